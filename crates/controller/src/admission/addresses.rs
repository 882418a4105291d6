//! The addresses that a VM's owner chose, as far as they can be judged without asking who holds them; pure.
//!
//! The annotation names networks of the spec, and addresses that the definitions of these give. A definition that is not there cannot
//! be judged: the instance waits for it, and its claim is told then.

use std::collections::BTreeMap;
use std::net::IpAddr;

use addressing::decision::{Request, Start};
use addressing::{Ledger, Pool, decide};
use api::kubevirt::{Network, VirtualMachineInstanceSpec};
use api::multus::NetworkAttachmentDefinition;
use api::names::annotations;
use serde_json::Value;

use super::{Cause, Causes};
use crate::claims::{chosen, wanted};

/// A machine or an instance that asks for addresses.
pub struct Asked<'a> {
    /// The annotation's value.
    pub text: &'a str,
    /// Its path.
    pub field: String,
    pub spec: VirtualMachineInstanceSpec,
}

impl<'a> Asked<'a> {
    /// What a request to make or change an object asks for; none: nothing that is to be judged.
    pub fn of(request: &'a Value) -> Option<Self> {
        let (old, new) = (&request["oldObject"], &request["object"]);
        let update = request["operation"] == "UPDATE";
        let (template, path) = match request["kind"]["kind"].as_str()? {
            "VirtualMachine" if !update || old["spec"] != new["spec"] => {
                (&new["spec"]["template"], "spec.template.")
            }
            "VirtualMachineInstance" if !update => (new, ""),
            _ => return None,
        };
        Some(Self {
            text: template["metadata"]["annotations"][annotations::ADDRESSES].as_str()?,
            field: format!("{path}metadata.annotations[{}]", annotations::ADDRESSES),
            // What cannot be read is refused with its field, elsewhere.
            spec: serde_json::from_value(template["spec"].clone()).ok()?,
        })
    }

    /// The networks of the spec that have definitions, by the names of these.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        self.spec.networks.iter().filter_map(|network| Some(network.multus.as_ref()?.network_name.as_str()))
    }
}

/// Everything that is wrong with what is asked for. `definitions` are those that there are.
pub fn validate(
    asked: &Asked<'_>,
    definitions: &BTreeMap<String, NetworkAttachmentDefinition>,
) -> Vec<Cause> {
    let mut causes = Causes::default();
    match chosen::read(asked.text) {
        Err(why) => causes.invalid(&asked.field, format!("This cannot be read: {why}.")),
        Ok(chosen) => {
            for (name, addresses) in chosen {
                let network = asked.spec.networks.iter().find(|network| network.name == name);
                let Some(network) = network else {
                    causes.invalid(&asked.field, format!("There is no network {name:?} in networks: addresses are asked for by the name of a network there."));
                    continue;
                };
                if let Err(message) = check(network, &addresses, definitions) {
                    causes.invalid(&asked.field, message);
                }
            }
        }
    }
    causes.0
}

fn check(
    network: &Network,
    addresses: &[IpAddr],
    definitions: &BTreeMap<String, NetworkAttachmentDefinition>,
) -> Result<(), String> {
    let name = &network.name;
    let Some(multus) = network.multus.as_ref().filter(|multus| multus.default != Some(true)) else {
        return Err(format!(
            "The addresses of network {name:?} are the cluster's to give: they can be chosen on secondary networks only."
        ));
    };
    let Some(config) = definitions.get(&multus.network_name).and_then(NetworkAttachmentDefinition::config)
    else {
        return Ok(());
    };
    // Whoever starts the machine says what is wrong with a definition.
    let Ok(config) = serde_json::from_str::<Value>(config) else { return Ok(()) };
    if !wanted::honours_claims(&config) {
        return Err(format!(
            "Nobody keeps addresses for machines on network {name:?}: its definition {:?} has neither ipam of type godwit-ipam nor allowPersistentIPs.",
            multus.network_name
        ));
    }
    let Some(pool) = pool(&config) else { return Ok(()) };
    let anybody = ipam::Owner::default();
    let request = Request { owner: &anybody, wanted: addresses, start: Start::Lowest };
    // Nobody holds anything here, and nothing rests, so that only the pool's own rules can be broken.
    let refused = decide(&pool, &Ledger::default(), &request, std::time::SystemTime::UNIX_EPOCH).err();
    refused.map_or(Ok(()), |refusal| Err(format!("Network {name:?} does not give this: {refusal}.")))
}

/// The addresses that our plugin gives on a network; none: it gives none, or the definition is incomplete without the node's file.
fn pool(config: &Value) -> Option<Pool> {
    let listed = config.get("plugins").and_then(Value::as_array);
    let mut all = std::iter::once(config).chain(listed.into_iter().flatten());
    let plugin = all.find(|plugin| plugin.get("ipam").is_some())?;
    let config = ipam::Config::parse(plugin.to_string().as_bytes()).ok()?;
    Some(config.giving(None).ok()?.pool)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]

    use serde_json::json;

    use super::*;

    fn request(chosen: &str) -> Value {
        json!({
            "operation": "CREATE", "kind": { "kind": "VirtualMachine" },
            "object": { "spec": { "template": {
                "metadata": { "annotations": { "network.kubevirt.io/addresses": chosen } },
                "spec": { "domain": { "devices": {} }, "networks": [
                    { "name": "pods", "pod": {} },
                    { "name": "lan", "multus": { "networkName": "guests" } },
                    { "name": "plain", "multus": { "networkName": "plain" } },
                    { "name": "later", "multus": { "networkName": "other/later" } },
                ]},
            }}},
        })
    }

    fn causes(chosen: &str) -> Vec<String> {
        let ipam = json!({
            "type": "godwit-ipam",
            "ipRanges": [{ "range": "192.0.2.0/24", "range_start": "192.0.2.50", "exclude": ["192.0.2.60"] }, { "range": "2001:db8::/64" }],
        });
        let definitions = [
            ("guests", json!({ "name": "guests", "plugins": [{ "type": "bridge", "ipam": ipam }] })),
            ("plain", json!({ "name": "plain", "type": "bridge", "ipam": { "type": "host-local" } })),
        ];
        let definitions = definitions.map(|(name, config)| {
            (name.to_owned(), NetworkAttachmentDefinition::with_config(name, config.to_string()))
        });
        let request = request(chosen);
        let asked = Asked::of(&request).unwrap();
        let causes = validate(&asked, &definitions.into());
        let field = "spec.template.metadata.annotations[network.kubevirt.io/addresses]";
        assert!(causes.iter().all(|cause| cause.field == field), "{causes:?}");
        causes.into_iter().map(|cause| cause.message).collect()
    }

    #[test]
    fn what_a_network_gives_can_be_asked_for() {
        for good in [
            r#"{"lan": ["192.0.2.77"]}"#,
            r#"{"lan": ["2001:db8::77", "192.0.2.77"]}"#,
            r#"{"later": ["10.0.0.1"]}"#,
            "{}",
        ] {
            assert_eq!(causes(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn what_no_network_gives_is_refused_with_the_reason() {
        for (bad, why) in [
            ("192.0.2.77", "such as"),
            (r#"{"lan": "192.0.2.77"}"#, "such as"),
            (r#"{"lan": ["192.0.2.777"]}"#, "\"192.0.2.777\", for network \"lan\", is not an IP address"),
            (r#"{"lan": ["192.0.2.77/24"]}"#, "is not an IP address"),
            (r#"{"wan": ["192.0.2.77"]}"#, "no network \"wan\""),
            (r#"{"pods": ["192.0.2.77"]}"#, "secondary networks only"),
            (r#"{"plain": ["192.0.2.77"]}"#, "Nobody keeps addresses"),
            (r#"{"lan": ["192.0.2.7"]}"#, "192.0.2.7 is outside of"),
            (r#"{"lan": ["10.0.0.1"]}"#, "10.0.0.1 is outside of"),
            (r#"{"lan": ["192.0.2.60"]}"#, "192.0.2.60 is never given"),
            (r#"{"lan": ["192.0.2.77", "192.0.2.78"]}"#, "192.0.2.77 and 192.0.2.78 are both of"),
        ] {
            let causes = causes(bad);
            assert!(causes.len() == 1 && causes[0].contains(why), "{bad}: {causes:?}");
        }
    }

    #[test]
    fn a_change_of_something_else_is_not_judged() {
        let mut update = request("nonsense");
        update["operation"] = json!("UPDATE");
        update["oldObject"] = update["object"].clone();
        assert!(Asked::of(&update).is_none());
    }
}
