//! Fields that the types do not know, found by the schema of the CRD: there is one list of what we have, and it is the types.

use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use super::Causes;

/// Refuses every field below `value` that the spec of this kind does not have.
pub(super) fn refuse(kind: &str, value: &Value, path: &str, causes: &mut Causes) {
    if let Some(schema) = specs().iter().find(|(name, _)| name == kind).map(|(_, schema)| schema) {
        walk(schema, value, path, causes);
    }
}

/// The schema of `spec`, by kind.
fn specs() -> &'static [(String, JSONSchemaProps)] {
    static SPECS: OnceLock<Vec<(String, JSONSchemaProps)>> = OnceLock::new();
    SPECS.get_or_init(|| {
        let spec = |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            let version = crd.spec.versions.into_iter().next()?;
            let schema = version.schema?.open_api_v3_schema?.properties?.remove("spec")?;
            Some((crd.spec.names.kind, schema))
        };
        api::crds().into_iter().filter_map(spec).collect()
    })
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, causes: &mut Causes) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                field(schema, name, value, path, causes);
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn field(schema: &JSONSchemaProps, name: &str, value: &Value, path: &str, causes: &mut Causes) {
    let path = format!("{path}.{name}");
    let known = schema.properties.as_ref().and_then(|properties| properties.get(name));
    match (known, &schema.additional_properties) {
        (Some(known), _) => walk(known, value, &path, causes),
        (None, Some(JSONSchemaPropsOrBool::Schema(values))) => walk(values, value, &path, causes),
        // What is null is not there; what has no fields of its own takes any.
        (None, _) if value.is_null() || schema.properties.is_none() => {}
        // Template metadata is kept as it is written: it means nothing to us.
        (None, _) if path.starts_with("spec.template.metadata.") => {}
        (None, _) => causes.unsupported(
            path,
            format!("{name} is not supported here: nothing would act on it. Remove it if the machine can do without."),
        ),
    }
}
