//! The CRDs: equal to the manifests in `deploy/crds`, and structural as kube-apiserver wants them.
//!
//! To regenerate the manifests after a change of the types:
//!
//! ```text
//! UPDATE=1 cargo test -p api --test crds
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::Serialize;
use serde_json::Value;

const HEADER: &str = "# Generated from crates/api: UPDATE=1 cargo test -p api --test crds\n";

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "deploy", "crds"].iter().collect()
}

/// JSON with its keys in one order, whatever features other crates switch on in `serde_json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Ordered {
    Object(BTreeMap<String, Ordered>),
    List(Vec<Ordered>),
    Scalar(Value),
}

impl From<Value> for Ordered {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(map) => {
                Self::Object(map.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            Value::Array(list) => Self::List(list.into_iter().map(Self::from).collect()),
            // Bounds are floating point in the Rust type and whole numbers in ours.
            Value::Number(number) => match number.as_f64() {
                #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
                Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                    Self::Scalar(Value::from(float as i64))
                }
                _ => Self::Scalar(Value::Number(number)),
            },
            scalar => Self::Scalar(scalar),
        }
    }
}

fn manifest(crd: &CustomResourceDefinition) -> String {
    let ordered = Ordered::from(serde_json::to_value(crd).unwrap());
    format!("{HEADER}{}", serde_saphyr::to_string(&ordered).unwrap())
}

#[test]
fn manifests_are_those_of_the_types() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut expected: BTreeMap<String, String> = api::crds()
        .iter()
        .map(|crd| (format!("{}.yaml", crd.metadata.name.as_deref().unwrap()), manifest(crd)))
        .collect();
    assert_eq!(expected.len(), api::crds().len(), "two CRDs of one name");

    if update {
        fs::create_dir_all(directory()).unwrap();
        for entry in fs::read_dir(directory()).unwrap() {
            let entry = entry.unwrap();
            if !expected.contains_key(entry.file_name().to_str().unwrap()) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        for (name, text) in &expected {
            fs::write(directory().join(name), text).unwrap();
        }
    }

    let mut stale = Vec::new();
    for entry in fs::read_dir(directory()).expect("deploy/crds exists; UPDATE=1 makes it") {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if expected.remove(&name) != Some(fs::read_to_string(entry.path()).unwrap()) {
            stale.push(name);
        }
    }
    stale.extend(expected.into_keys());
    assert!(
        stale.is_empty(),
        "deploy/crds differs from the types in {stale:?}; run: UPDATE=1 cargo test -p api --test crds"
    );
}

#[test]
fn a_manifest_is_read_back_as_the_crd() {
    for crd in api::crds() {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&manifest(&crd)).unwrap();
        assert_eq!(read, crd);
    }
}

/// Walks a schema and collects what kube-apiserver would refuse.
struct Inspection {
    problems: Vec<String>,
}

impl Inspection {
    fn problem(&mut self, path: &str, what: &str) {
        self.problems.push(format!("{path}: {what}"));
    }

    fn node(&mut self, path: &str, node: &JSONSchemaProps) {
        let preserves = node.x_kubernetes_preserve_unknown_fields == Some(true);
        let int_or_string = node.x_kubernetes_int_or_string == Some(true);
        match (&node.type_, preserves || int_or_string) {
            (None, false) => self.problem(path, "no type"),
            (Some(_), _) if int_or_string => self.problem(path, "int-or-string has a type"),
            (Some(kind), _) => self.types(path, kind, node),
            (None, true) => {}
        }
        for (keyword, used) in [
            ("$ref", node.ref_path.is_some()),
            ("nullable", node.nullable.is_some()),
            ("definitions", node.definitions.is_some()),
            ("dependencies", node.dependencies.is_some()),
            ("patternProperties", node.pattern_properties.is_some()),
            ("additionalItems", node.additional_items.is_some()),
            ("uniqueItems", node.unique_items.is_some()),
            ("oneOf", node.one_of.is_some()),
            ("allOf", node.all_of.is_some()),
            ("not", node.not.is_some()),
            ("anyOf", node.any_of.is_some() && !int_or_string),
            ("preserveUnknownFields: false", node.x_kubernetes_preserve_unknown_fields == Some(false)),
            (
                "properties and additionalProperties",
                node.properties.is_some() && node.additional_properties.is_some(),
            ),
        ] {
            if used {
                self.problem(path, keyword);
            }
        }
        if let Some(format) = &node.format
            && !["int32", "int64", "date-time", "byte"].contains(&format.as_str())
        {
            self.problem(path, &format!("format {format}"));
        }
        if let Some(default) = &node.default {
            self.default(path, &default.0, node);
        }
        self.rules(path, node);
        self.children(path, node);
    }

    fn types(&mut self, path: &str, kind: &str, node: &JSONSchemaProps) {
        if !["object", "array", "string", "integer", "number", "boolean"].contains(&kind) {
            self.problem(path, &format!("type {kind}"));
        }
        if kind == "array" && !matches!(node.items, Some(JSONSchemaPropsOrArray::Schema(_))) {
            self.problem(path, "array without items");
        }
        if node.properties.is_some() && kind != "object" {
            self.problem(path, "properties of something that is no object");
        }
        for value in node.enum_.iter().flatten() {
            if !is_of_type(&value.0, kind) {
                self.problem(path, &format!("enum value {} is no {kind}", value.0));
            }
        }
        for required in node.required.iter().flatten() {
            if !node.properties.as_ref().is_some_and(|properties| properties.contains_key(required)) {
                self.problem(path, &format!("required {required} is not a property"));
            }
        }
        self.list(path, kind, node);
    }

    fn list(&mut self, path: &str, kind: &str, node: &JSONSchemaProps) {
        let Some(list_type) = &node.x_kubernetes_list_type else {
            if node.x_kubernetes_list_map_keys.is_some() {
                self.problem(path, "list-map-keys without list-type");
            }
            return;
        };
        if kind != "array" {
            self.problem(path, "list-type of something that is no array");
        }
        if list_type != "map" {
            return;
        }
        let Some(JSONSchemaPropsOrArray::Schema(items)) = &node.items else {
            return;
        };
        let keys = node.x_kubernetes_list_map_keys.clone().unwrap_or_default();
        if keys.is_empty() {
            self.problem(path, "list-type map without keys");
        }
        for key in keys {
            let property = items.properties.as_ref().and_then(|properties| properties.get(&key));
            let required = items.required.iter().flatten().any(|required| *required == key);
            if !property.is_some_and(|property| required || property.default.is_some()) {
                self.problem(path, &format!("key {key} is neither required nor defaulted"));
            }
        }
    }

    fn default(&mut self, path: &str, default: &Value, node: &JSONSchemaProps) {
        let fits = match &node.type_ {
            Some(kind) => is_of_type(default, kind),
            None => default.is_string() || default.is_i64(),
        };
        let allowed = node.enum_.as_ref().is_none_or(|values| values.iter().any(|value| value.0 == *default));
        if !fits || !allowed {
            self.problem(path, &format!("default {default} does not fit"));
        }
    }

    fn rules(&mut self, path: &str, node: &JSONSchemaProps) {
        for rule in node.x_kubernetes_validations.iter().flatten() {
            if rule.message.as_ref().is_none_or(String::is_empty) {
                self.problem(path, &format!("rule {} has no message", rule.rule));
            }
            // Field names with an underscore are escaped in CEL, and not all engines agree on how.
            if rule.rule.contains('_') {
                self.problem(path, &format!("rule {} is not camelCase", rule.rule));
            }
        }
    }

    fn children(&mut self, path: &str, node: &JSONSchemaProps) {
        for (name, property) in node.properties.iter().flatten() {
            self.node(&format!("{path}.{name}"), property);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &node.items {
            self.node(&format!("{path}[]"), items);
        }
        match &node.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => self.node(&format!("{path}.*"), values),
            Some(JSONSchemaPropsOrBool::Bool(_)) => {
                self.problem(path, "additionalProperties without a schema");
            }
            None => {}
        }
    }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    }
}

#[test]
fn schemas_are_structural() {
    let mut inspection = Inspection { problems: Vec::new() };
    for crd in api::crds() {
        let name = crd.metadata.name.unwrap();
        for version in &crd.spec.versions {
            let root = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            match root {
                Some(root) if root.type_.as_deref() == Some("object") => inspection.node(&name, root),
                _ => inspection.problem(&name, "the root is no object"),
            }
        }
    }
    assert!(inspection.problems.is_empty(), "{:#?}", inspection.problems);
}

/// What `kubectl get` needs: a wrong name here is a user's broken script.
#[test]
fn names_and_columns_are_those_of_the_originals() {
    let summary: BTreeMap<String, String> = api::crds()
        .into_iter()
        .map(|crd| {
            let version = &crd.spec.versions[0];
            let columns: Vec<_> = version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| column.name.clone())
                .collect();
            let status =
                version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
            let text = format!(
                "{} {} {} [{}] [{}]{}",
                version.name,
                crd.spec.scope,
                crd.spec.names.kind,
                crd.spec.names.short_names.unwrap_or_default().join(" "),
                columns.join(" "),
                if status { " status" } else { "" }
            );
            (crd.metadata.name.unwrap(), text)
        })
        .collect();
    let expected = [
        (
            "addressallocations.godwit.dev",
            "v1alpha1 Cluster AddressAllocation [addr] [Address Network Pod Claim Released]",
        ),
        ("clusternetworks.network.harvesterhci.io", "v1beta1 Cluster ClusterNetwork [cn cns] []"),
        ("clusteruserdefinednetworks.k8s.ovn.org", "v1 Cluster ClusterUserDefinedNetwork [cudn] [] status"),
        ("ipamclaims.k8s.cni.cncf.io", "v1alpha1 Namespaced IPAMClaim [] [] status"),
        ("kubevirts.kubevirt.io", "v1 Namespaced KubeVirt [kv kvs] [Age Phase] status"),
        ("migrationpolicies.migrations.kubevirt.io", "v1alpha1 Cluster MigrationPolicy [] [] status"),
        (
            "network-attachment-definitions.k8s.cni.cncf.io",
            "v1 Namespaced NetworkAttachmentDefinition [net-attach-def] []",
        ),
        ("settings.harvesterhci.io", "v1beta1 Cluster Setting [] [VALUE CONFIGURED]"),
        ("userdefinednetworks.k8s.ovn.org", "v1 Namespaced UserDefinedNetwork [udn] [] status"),
        (
            "virtualmachineinstancemigrations.kubevirt.io",
            "v1 Namespaced VirtualMachineInstanceMigration [vmim vmims] [Phase VMI Percent Rate] status",
        ),
        (
            "virtualmachineinstances.kubevirt.io",
            "v1 Namespaced VirtualMachineInstance [vmi vmis] [Age Phase IP NodeName Ready Live-Migratable Paused] status",
        ),
        ("virtualmachines.kubevirt.io", "v1 Namespaced VirtualMachine [vm vms] [Age Status Ready] status"),
        (
            "vlanconfigs.network.harvesterhci.io",
            "v1beta1 Cluster VlanConfig [vc vcs] [CLUSTERNETWORK DESCRIPTION AGE]",
        ),
        (
            "vlanstatuses.network.harvesterhci.io",
            "v1beta1 Cluster VlanStatus [vs vss] [CLUSTERNETWORK VLANCONFIG NODE AGE]",
        ),
    ];
    let expected: BTreeMap<String, String> =
        expected.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
    assert_eq!(summary, expected);
}
