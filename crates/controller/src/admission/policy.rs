//! Whether a `MigrationPolicy` means something: what the schema cannot say.

use std::collections::BTreeMap;

use api::kubevirt::Compression;
use api::migrations::MigrationPolicySpec;
use api::quantity;
use serde_json::Value;

use super::{Cause, Causes, is_subdomain};

/// Everything that is wrong with the spec of a policy.
pub fn validate(spec: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    let spec = match serde_json::from_value::<MigrationPolicySpec>(spec.clone()) {
        Ok(spec) => spec,
        Err(error) => {
            causes.invalid("spec", format!("The spec cannot be read: {error}."));
            return causes.0;
        }
    };
    if let Some(Err(error)) = spec.bandwidth_per_migration.as_ref().map(quantity::whole) {
        causes
            .invalid("spec.bandwidthPerMigration", format!("must not be negative, and a quantity: {error}."));
    }
    if spec.experimental.and_then(|knobs| knobs.compression) == Some(Compression::Zstd) {
        causes.invalid(
            "spec.experimental.compression",
            "guest memory is not compressed here, and what is ignored would be a promise; leave it out, or set it to none.",
        );
    }
    let selectors = &spec.selectors;
    labels("spec.selectors.namespaceSelector", &selectors.namespace_selector, &mut causes);
    labels(
        "spec.selectors.virtualMachineInstanceSelector",
        &selectors.virtual_machine_instance_selector,
        &mut causes,
    );
    causes.0
}

/// A selector that no object can match is a mistake.
fn labels(path: &str, selector: &BTreeMap<String, String>, causes: &mut Causes) {
    for (key, value) in selector {
        if !is_key(key) {
            causes.invalid(format!("{path}[{key}]"), format!("{key:?} cannot be the name of a label."));
        }
        if !value.is_empty() && !is_word(value) {
            causes.invalid(format!("{path}[{key}]"), format!("{value:?} cannot be the value of a label."));
        }
    }
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_word(name),
        None => is_word(key),
    }
}

fn is_word(word: &str) -> bool {
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    word.len() <= 63
        && word.bytes().all(inner)
        && outer(word.bytes().next())
        && outer(word.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(spec: &Value) -> Vec<String> {
        validate(spec).into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let selecting = |labels: Value| json!({ "selectors": { "virtualMachineInstanceSelector": labels } });
        assert_eq!(refused(&json!({ "selectors": {} })), [""; 0], "it is for every VM");
        assert_eq!(refused(&selecting(json!({ "kubevirt.io/size": "Large_1", "empty": "" }))), [""; 0]);
        let compressed = |how: &str| json!({ "selectors": {}, "experimental": { "compression": how } });
        assert_eq!(refused(&compressed("none")), [""; 0]);
        assert_eq!(refused(&compressed("zstd")), ["spec.experimental.compression"]);
        let at = |key: &str| format!("spec.selectors.virtualMachineInstanceSelector[{key}]");
        for key in ["a b", "-a", "Prefix_/a", "/a", "a/", "a/b/c"] {
            assert_eq!(refused(&selecting(json!({ key: "x" }))), [at(key)]);
        }
        for value in ["a b", "a-", "ä"] {
            assert_eq!(refused(&selecting(json!({ "key": value }))), [at("key")]);
        }
        for (quantity, well) in [("0", true), ("64Mi", true), ("-1", false), ("fast", false)] {
            let spec = json!({ "selectors": {}, "bandwidthPerMigration": quantity });
            assert_eq!(refused(&spec).is_empty(), well, "{quantity}");
        }
    }
}
