//! From the schemas that `CustomResource` derives to the CRDs that a Kubernetes API server is given.
//!
//! Derived schemas say things that are true of Rust and not of the API: every `Option` is `nullable`, integers carry
//! formats that Kubernetes does not know. This file rewrites them, and holds the few schemas that no derive can
//! express. It must never add or remove a field.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// What Kubernetes' `resource.Quantity` parses.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The formats that kube-apiserver knows for the types that we use; it warns on any other.
const KNOWN_FORMATS: &[&str] = &["int32", "int64", "date-time", "byte"];

/// Rewrites every schema of a CRD from Rust's habits to those of the API.
pub(crate) fn published(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(root);
        }
    }
    crd
}

/// Keeps what the schema of `spec` does not know, so that admission sees it: the API server would drop it without a word, and
/// a machine would then run as something else than its manifest says.
pub(crate) fn keeping_unknown_fields_of_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let roots = crd
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in roots.filter_map(|root| root.properties.as_mut()?.get_mut("spec")) {
        keep_unknown(spec);
    }
    crd
}

/// The mark does not reach below a field that has properties of its own, so each of those gets it.
fn keep_unknown(node: &mut JSONSchemaProps) {
    if node.type_.as_deref() == Some("object") && node.additional_properties.is_none() {
        node.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    for property in node.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        keep_unknown(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut node.items {
        keep_unknown(items);
    }
}

/// For kinds whose originals keep the status in the object itself.
pub(crate) fn without_status_subresource(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

fn tidy(node: &mut JSONSchemaProps) {
    // An absent field is absent; the upstream schemas allow no null, and neither do ours.
    node.nullable = None;
    node.title = None;
    if let Some(values) = &mut node.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if node.default.as_ref().is_some_and(|value| value.0.is_null()) {
        node.default = None;
    }
    bound_integers(node);
    if node.x_kubernetes_int_or_string == Some(true) {
        describe_quantity(node);
        return;
    }

    for property in node.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    match &mut node.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut node.additional_properties {
        tidy(values);
    }
}

/// Replaces formats unknown to Kubernetes by the bounds that they stand for: an integer that passes the schema must
/// also fit the Rust type, or one bad object would blind every watcher of the kind.
fn bound_integers(node: &mut JSONSchemaProps) {
    let Some(format) = node.format.take() else { return };
    match format.as_str() {
        "uint8" => node.maximum = node.maximum.or(Some(f64::from(u8::MAX))),
        "uint16" => node.maximum = node.maximum.or(Some(f64::from(u16::MAX))),
        "uint32" => node.maximum = node.maximum.or(Some(f64::from(u32::MAX))),
        "uint64" => {
            node.minimum = node.minimum.or(Some(0.0));
            node.format = Some("int64".into());
        }
        known if KNOWN_FORMATS.contains(&known) => node.format = Some(format),
        _ => {}
    }
}

/// A quantity as controller-gen writes it: an integer or a string of the quantity grammar.
fn describe_quantity(node: &mut JSONSchemaProps) {
    // The grammar of quantities, a page long, stands in Kubernetes' own documentation.
    if node.description.as_ref().is_some_and(|text| text.starts_with("Quantity is a fixed-point")) {
        node.description = None;
    }
    let of_type = |name: &str| JSONSchemaProps { type_: Some(name.into()), ..JSONSchemaProps::default() };
    node.type_ = None;
    node.any_of = Some(vec![of_type("integer"), of_type("string")]);
    node.pattern = Some(QUANTITY_PATTERN.into());
}

/// The `metadata` of a template: labels and annotations are typed, whatever else the user writes is kept.
pub(crate) fn template_metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "annotations": { "type": "object", "additionalProperties": { "type": "string" } },
        },
    })
}
