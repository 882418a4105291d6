//! What is judged how: never what somebody has.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use std::time::Duration;

use api::godwit::{AddressAllocationSpec, AddressOwner, ClaimReference, PodInterface};
use proptest::prelude::*;

use super::*;

fn allocation(owner: Option<AddressOwner>, released: Option<SystemTime>) -> AddressAllocation {
    let released_at = released.map(micro_time);
    AddressAllocation::new(
        "a",
        AddressAllocationSpec { owner, released_at, ..AddressAllocationSpec::default() },
    )
}

fn pod(uid: &str) -> AddressOwner {
    AddressOwner { pod: Some(PodInterface { uid: uid.into(), ..PodInterface::default() }), claim: None }
}

fn claim(uid: &str) -> AddressOwner {
    AddressOwner { pod: None, claim: Some(ClaimReference { uid: uid.into(), ..ClaimReference::default() }) }
}

/// A claim that is gone.
fn named(namespace: &str, name: &str) -> AddressOwner {
    let claim = ClaimReference { namespace: namespace.into(), name: name.into(), uid: "gone".into() };
    AddressOwner { pod: None, claim: Some(claim) }
}

#[test]
fn a_pod_refers_to_claims_by_its_networks_and_their_arguments() {
    let referred = |key: &str, text: &str| {
        let annotations = Some([(key.to_owned(), text.to_owned())].into());
        referred_to(&ObjectMeta { annotations, ..ObjectMeta::default() }).collect::<Vec<_>>()
    };
    let element = r#"[{"name":"blue","ipam-claim-reference":"vm.blue"}]"#;
    assert_eq!(referred(annotations::NETWORKS, element), ["vm.blue"]);
    assert_eq!(referred(annotations::DEFAULT_NETWORK, element), ["vm.blue"]);
    let argument = r#"[{"name":"blue"},{"name":"red","cni-args":{"ipam-claim-reference":"vm.red"}}]"#;
    assert_eq!(referred(annotations::NETWORKS, argument), ["vm.red"]);
    assert_eq!(referred(annotations::NETWORKS, "blue@net1"), [""; 0]);
    assert_eq!(referred(annotations::NETWORKS, "[{"), [""; 0]);
}

#[test]
fn owners_keep_the_gone_lose_and_the_rested_are_forgotten() {
    let living = Living {
        pods: ["p".to_owned()].into(),
        claims: ["c".to_owned()].into(),
        referred: [("vms".to_owned(), "used".to_owned())].into(),
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let ago = |seconds| Some(now - Duration::from_secs(seconds));
    for (owner, released, verdict) in [
        (Some(pod("p")), None, Verdict::Keep),
        (Some(pod("gone")), None, Verdict::Release),
        // A pod and a claim of equal UIDs are two.
        (Some(pod("c")), None, Verdict::Release),
        (Some(claim("c")), None, Verdict::Keep),
        (Some(claim("gone")), None, Verdict::Release),
        (Some(claim("p")), None, Verdict::Release),
        // A pod may use what a claim had.
        (Some(named("vms", "used")), None, Verdict::Keep),
        (Some(named("others", "used")), None, Verdict::Release),
        (Some(named("vms", "unused")), None, Verdict::Release),
        // Who that is, nobody can say.
        (Some(pod("")), None, Verdict::Keep),
        (Some(claim("")), None, Verdict::Keep),
        (Some(AddressOwner::default()), None, Verdict::Keep),
        (None, None, Verdict::Keep),
        (None, ago(59), Verdict::Keep),
        (None, ago(60), Verdict::Forget),
        (None, Some(now + Duration::from_hours(1)), Verdict::Keep),
    ] {
        assert_eq!(
            judge(&allocation(owner.clone(), released), &living, now),
            verdict,
            "{owner:?} {released:?}"
        );
    }
}

#[test]
fn an_address_rests_for_as_long_as_it_says() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for (seconds, ago, verdict) in [
        (0, 0, Verdict::Forget),
        (5, 5, Verdict::Forget),
        (600, 61, Verdict::Keep),
        (600, 600, Verdict::Forget),
        (u32::MAX, 1_000_000, Verdict::Keep),
    ] {
        let mut resting = allocation(None, Some(now - Duration::from_secs(ago)));
        resting.spec.rest_seconds = Some(seconds);
        assert_eq!(judge(&resting, &Living::default(), now), verdict, "{ago} of {seconds} s");
    }
}

proptest! {
    #[test]
    fn what_a_living_owner_has_is_kept(uid in "[a-f0-9]{1,8}", others in prop::collection::vec("[a-f0-9]{1,8}", 0..8), seconds in 0..u64::from(u32::MAX)) {
        let mut uids: BTreeSet<String> = others.into_iter().collect();
        uids.insert(uid.clone());
        let living = Living { pods: uids.clone(), claims: uids, ..Living::default() };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for owner in [pod(&uid), claim(&uid)] {
            prop_assert_eq!(judge(&allocation(Some(owner), None), &living, now), Verdict::Keep);
        }
    }
}
