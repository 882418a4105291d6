//! Which networks have claims, what they are called, and whose they are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn vmi(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut object = json!({
        "metadata": { "name": "finch", "namespace": "bank", "uid": "i1", "ownerReferences": [
            { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "finch", "uid": "m1", "controller": true },
        ]},
        "spec": { "domain": { "devices": {} } },
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

fn definition(config: &Value) -> NetworkAttachmentDefinition {
    let mut definition = NetworkAttachmentDefinition::with_config("guests", config.to_string());
    definition.metadata.namespace = Some("bank".into());
    definition
}

fn ours() -> NetworkAttachmentDefinition {
    definition(
        &json!({ "name": "lan", "type": "bridge", "ipam": { "type": "godwit-ipam", "range": "192.0.2.0/24" } }),
    )
}

fn made(vmi: &VirtualMachineInstance) -> IPAMClaim {
    match judge(vmi, "blue", &ours(), None) {
        Standing::Missing(claim) => *claim,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_network_has_claims_if_its_configuration_says_so() {
    for (config, expected) in [
        (json!({ "type": "bridge", "ipam": { "type": "godwit-ipam" } }), true),
        (
            json!({ "plugins": [{ "type": "bridge", "ipam": { "type": "godwit-ipam" } }, { "type": "tuning" }] }),
            true,
        ),
        (json!({ "type": "bridge", "ipam": { "type": "godwit-ipam" }, "allowPersistentIPs": false }), false),
        (json!({ "type": "bridge", "ipam": { "type": "whereabouts" } }), false),
        (json!({ "type": "bridge", "ipam": { "type": "whereabouts" }, "allowPersistentIPs": true }), true),
        (json!({ "type": "ovn-k8s-cni-overlay", "allowPersistentIPs": true }), true),
        (json!({ "plugins": [{ "type": "ovn-k8s-cni-overlay", "allowPersistentIPs": true }] }), true),
        (json!({ "type": "bridge" }), false),
        (json!({ "type": "bridge", "allowPersistentIPs": "yes" }), false),
        (json!([]), false),
    ] {
        assert_eq!(honours_claims(&config), expected, "{config}");
    }
}

#[test]
fn a_claim_is_made_for_the_machine_and_held() {
    let claim = made(&vmi(|_| {}));
    assert_eq!((claim.name_any().as_str(), claim.namespace().as_deref()), ("finch.blue", Some("bank")));
    assert_eq!(claim.spec.network, "lan", "the network's name in its configuration");
    assert_eq!(claim.finalizers(), ["kubevirt.io/persistent-ipam"]);
    assert_eq!(claim.labels()["kubevirt.io/vm"], "finch");
    let [owner] = claim.owner_references() else { panic!("{claim:?}") };
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("VirtualMachine", "m1", Some(true))
    );

    let alone = made(&vmi(|object| object["metadata"]["ownerReferences"] = json!([])));
    assert_eq!(alone.owner_references()[0].uid, "i1", "an instance without a machine owns it itself");

    let unnamed = definition(&json!({ "type": "bridge", "allowPersistentIPs": true }));
    let standing = judge(&vmi(|_| {}), "blue", &unnamed, None);
    let Standing::Missing(claim) = standing else { panic!("{standing:?}") };
    assert_eq!(claim.spec.network, "guests", "as plugins are told it");
}

#[test]
fn a_claim_that_is_there_is_used_held_or_refused() {
    let vmi = vmi(|_| {});
    let claim = |change: &dyn Fn(&mut IPAMClaim)| {
        let mut claim = made(&vmi);
        change(&mut claim);
        judge(&vmi, "blue", &ours(), Some(&claim))
    };
    let refusal = |standing: Standing| match standing {
        Standing::Refused { reason, message } => (reason, message),
        other => panic!("{other:?}"),
    };
    assert!(matches!(claim(&|_| {}), Standing::Ready(_)));

    let loose = claim(&|claim| {
        claim.metadata = kube::api::ObjectMeta { name: claim.metadata.name.clone(), ..Default::default() }
    });
    let Standing::Loose(held) = loose else { panic!("{loose:?}") };
    assert_eq!(held.finalizers(), ["kubevirt.io/persistent-ipam"]);
    assert!(held.owner_references().is_empty(), "it stays its maker's");

    let (reason, message) = refusal(claim(&|claim| {
        let owner = &mut claim.owner_references_mut()[0];
        (owner.uid, owner.name) = ("m2".into(), "wren".into());
    }));
    assert_eq!(reason, "IPAMClaimNotOwned");
    assert_eq!(
        message,
        "IPAMClaim bank/finch.blue belongs to VirtualMachine wren (m2); it must be gone before this instance can start"
    );

    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    let (reason, _) = refusal(claim(&|claim| claim.metadata.deletion_timestamp = Some(now.clone())));
    assert_eq!(reason, "IPAMClaimDeleting");
    let (reason, _) = refusal(claim(&|claim| claim.spec.network = "other".into()));
    assert_eq!(reason, "IPAMClaimOfAnotherNetwork");
}

#[test]
fn chosen_addresses_are_asked_for_and_never_changed_under_a_claim() {
    let asks = |text: &str| {
        let text = text.to_owned();
        vmi(move |object| {
            object["metadata"]["annotations"] = json!({ "network.kubevirt.io/addresses": text });
        })
    };
    let vmi = asks(r#"{"blue": ["192.0.2.10", "2001:db8::10"], "red": ["192.0.2.11"]}"#);
    let claim = made(&vmi);
    assert_eq!(claim.annotations()["godwit.dev/addresses"], "192.0.2.10,2001:db8::10");

    // Made before the address was chosen, and given none yet: it is asked for now.
    let before = made(&self::vmi(|_| {}));
    let standing = judge(&vmi, "blue", &ours(), Some(&before));
    let Standing::Loose(asked) = standing else { panic!("{standing:?}") };
    assert_eq!(asked.annotations()["godwit.dev/addresses"], "192.0.2.10,2001:db8::10");

    let mut given = before;
    given.status =
        Some(api::ipam::IPAMClaimStatus { ips: vec!["192.0.2.77/24".into()], ..Default::default() });
    let standing = judge(&vmi, "blue", &ours(), Some(&given));
    let Standing::Refused { reason, message } = standing else { panic!("{standing:?}") };
    assert_eq!(reason, "IPAddressConflict");
    assert!(
        message.contains("192.0.2.10 was asked for, but IPAMClaim bank/finch.blue holds 192.0.2.77"),
        "{message}"
    );

    let standing = judge(&asks("192.0.2.10"), "blue", &ours(), None);
    assert!(matches!(standing, Standing::Refused { reason: "AddressesInvalid", .. }), "{standing:?}");
    let broken = NetworkAttachmentDefinition::with_config("guests", "{".into());
    let standing = judge(&self::vmi(|_| {}), "blue", &broken, None);
    assert!(
        matches!(standing, Standing::Refused { reason: "NetworkAttachmentDefinitionInvalid", .. }),
        "{standing:?}"
    );
}

proptest! {
    #[test]
    fn a_name_is_one_whatever_it_is_made_of(machine in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", network in ".{0,80}") {
        let name = name(&machine, &network);
        prop_assert!(is_subdomain(&name), "{name:?}");
    }
}

#[test]
fn names_that_had_to_be_changed_are_told_apart() {
    assert_eq!(name("finch", "blue"), "finch.blue");
    assert_ne!(name("finch", "Blue"), name("finch", "BLUE"));
    assert_ne!(name(&"a".repeat(250), "blue"), name(&"a".repeat(250), "bluf"));
}
