//! What of a `KubeVirt` object is refused before it is stored: a migration network that cannot be, by its field and why.
//!
//! Shape and spelling are the schema's business; here it is asked whether the network is there. An update that leaves the network as
//! it was is never refused.

use api::kubevirt::{KubeVirt, NetworkPurpose};
use api::multus::full_name;
use kube::Client;
use serde_json::Value;

use super::{decide::field, definition_exists};
use crate::admission::{Answer, Cause};

const INVALID: &str = "FieldValueInvalid";
const NOT_FOUND: &str = "FieldValueNotFound";

/// Judges the `request` of a review of a `KubeVirt` object; none: it is of another kind.
pub(crate) async fn review(client: &Client, request: &Value, namespace: &str) -> Option<Answer> {
    if request["kind"]["kind"] != "KubeVirt" {
        return None;
    }
    // What cannot be read is the schema's to refuse.
    let Ok(new) = serde_json::from_value::<KubeVirt>(request["object"].clone()) else {
        return Some(Answer::Allow);
    };
    let old = serde_json::from_value::<KubeVirt>(request["oldObject"].clone()).ok();
    if let Some(cause) = contradiction(&new) {
        return Some(Answer::Refuse(vec![cause]));
    }
    let Some(network) = changed_network(old.as_ref(), &new) else { return Some(Answer::Allow) };
    let cause = match definition_exists(client.clone(), network, namespace).await {
        Ok(true) => return Some(Answer::Allow),
        Ok(false) => missing(&new, network, namespace),
        Err(error) => Cause {
            reason: INVALID,
            field: field(&new).to_owned(),
            message: format!(
                "it cannot be found out whether {network} exists; try again: {}",
                error.explain()
            ),
        },
    };
    Some(Answer::Refuse(vec![cause]))
}

/// The two fields of the migration network must agree; `fast` and `kubevirt/fast` do, in the installation `kubevirt/…`.
pub fn contradiction(installation: &KubeVirt) -> Option<Cause> {
    let configuration = installation.spec.configuration.as_ref()?;
    let flat = configuration.migrations.as_ref()?.network.as_deref().filter(|network| !network.is_empty())?;
    let roles = configuration.network.as_ref().map(|network| network.roles.as_slice()).unwrap_or_default();
    let role = roles.iter().position(|role| role.role == NetworkPurpose::Migration)?;
    let named = roles[role].network_attachment_definition.as_str();
    let namespace = installation.metadata.namespace.as_deref().unwrap_or_default();
    (full_name(named, namespace) != full_name(flat, namespace)).then(|| Cause {
        reason: INVALID,
        field: format!("spec.configuration.network.roles[{role}].networkAttachmentDefinition"),
        message: format!(
            "{named:?} is not {flat:?}, which spec.configuration.migrations.network names: they are the same setting; set one of them, or both to the same network"
        ),
    })
}

/// The network that is asked for and was not before.
fn changed_network<'a>(old: Option<&KubeVirt>, new: &'a KubeVirt) -> Option<&'a str> {
    let before = old.and_then(|old| old.spec.migration_network());
    new.spec.migration_network().filter(|network| before != Some(network))
}

fn missing(installation: &KubeVirt, network: &str, namespace: &str) -> Cause {
    let full = full_name(network, namespace);
    Cause {
        reason: NOT_FOUND,
        field: field(installation).to_owned(),
        message: format!("there is no NetworkAttachmentDefinition {full}; make it first"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    fn installation(flat: Option<&str>, role: Option<&str>) -> KubeVirt {
        let roles: Vec<Value> = role
            .into_iter()
            .map(|name| json!({ "networkAttachmentDefinition": name, "role": "migration" }))
            .collect();
        let migrations = flat.map_or_else(|| json!({}), |network| json!({ "network": network }));
        let spec = json!({ "configuration": { "migrations": migrations, "network": { "roles": roles } } });
        let mut installation = KubeVirt::new("kubevirt", serde_json::from_value(spec).unwrap());
        installation.metadata.namespace = Some("kubevirt".into());
        installation
    }

    #[test]
    fn both_spellings_may_be_used_if_they_agree() {
        for (flat, role) in [
            (None, None),
            (Some("a"), None),
            (None, Some("a")),
            (Some("a"), Some("a")),
            (Some("a"), Some("kubevirt/a")),
            (Some("kubevirt/a"), Some("a")),
            (Some(""), Some("a")),
        ] {
            assert_eq!(contradiction(&installation(flat, role)), None, "{flat:?} {role:?}");
        }
        assert!(contradiction(&installation(Some("a"), Some("other/a"))).is_some());
        let cause = contradiction(&installation(Some("a"), Some("b"))).unwrap();
        assert_eq!(cause.field, "spec.configuration.network.roles[0].networkAttachmentDefinition");
        assert!(cause.message.contains("migrations.network"), "{}", cause.message);
    }

    #[test]
    fn only_a_network_that_is_new_is_looked_for() {
        let (none, a, b) =
            (installation(None, None), installation(Some("a"), None), installation(None, Some("b")));
        assert_eq!(changed_network(None, &a), Some("a"));
        assert_eq!(changed_network(Some(&none), &b), Some("b"));
        assert_eq!(changed_network(Some(&a), &b), Some("b"));
        assert_eq!(
            changed_network(Some(&a), &installation(None, Some("a"))),
            None,
            "the other spelling of the same"
        );
        assert_eq!(changed_network(Some(&a), &none), None);
    }
}
