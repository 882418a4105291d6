//! What a definition may say.
//!
//! The real server moves what all versions say alike to the top of the spec before it looks at it, so the same breach is
//! found at `spec.validation` or at `spec.versions[0].schema`; the errors here name the same places.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{names, text, versions};
use crate::object::{self, strings};
use crate::schema::naming::{dns_subdomain, dns1035_label};
use crate::schema::{dialect, structural};
use crate::status::{FieldError, FieldErrorKind};

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Everything that is wrong with the definition. Expects it defaulted, with its status prepared.
pub fn validate(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        validate_name(definition, &mut errors);
    }
    validate_spec(&definition["spec"], &mut errors);
    if let Some(old) = old {
        validate_unchanged(&definition["spec"], old, &mut errors);
    }
    validate_stored(definition, &mut errors);
    validate_approval(definition, old, &mut errors);
    if definition["spec"]["preserveUnknownFields"] == json!(true) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                      instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    errors
}

fn validate_name(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    let name = json!(object::name(definition));
    let mut breaches = dns_subdomain(object::name(definition));
    if object::name(definition) != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group")) {
        breaches.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    errors.extend(breaches.into_iter().map(|detail| FieldError::invalid("metadata.name", &name, detail)));
}

fn validate_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let breaches = dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !breaches.is_empty() {
        errors.push(FieldError::invalid("spec.group", &json!(group), breaches.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &json!(group), detail));
    }
    one_of(text(spec, "scope"), &["Cluster", "Namespaced"], "spec.scope", errors);
    validate_versions(spec, errors);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"], key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    validate_names(&spec["names"], "spec.names", errors);
    validate_conversion(&spec["conversion"], errors);
}

fn one_of(found: &str, allowed: &[&str], field: &str, errors: &mut Vec<FieldError>) {
    if found.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !allowed.contains(&found) {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        errors.push(FieldError::not_supported(field, &json!(found), &allowed));
    }
}

fn validate_versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let places = Places::of(versions, index);
        let name = text(version, "name");
        let breaches = dns1035_label(name);
        if !breaches.is_empty() {
            let mut refuse =
                |field| errors.push(FieldError::invalid(field, &json!(name), breaches.join(",")));
            refuse(format!("{path}.name"));
            if index == 0 {
                refuse("spec.version".to_owned());
            }
        }
        validate_deprecation(version, &path, errors);
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_object() {
            if let Some(path) = &places.schema {
                validate_schema(schema, path, version["subresources"]["status"].is_object(), errors);
            }
        } else {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), ""));
        }
        if let Some(path) = &places.subresources {
            validate_scale(&version["subresources"]["scale"], &format!("{path}.scale"), errors);
        }
        if let Some(path) = &places.columns {
            validate_columns(&version["additionalPrinterColumns"], path, errors);
        }
        if let Some(path) = &places.selectable {
            validate_selectable(&version["selectableFields"], schema, path, errors);
        }
    }
    let names: BTreeSet<&str> = versions.iter().map(|version| text(version, "name")).collect();
    if names.len() < versions.len() {
        errors.push(about_versions(versions, "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == json!(true)).count() != 1 {
        errors.push(about_versions(versions, "must have exactly one version marked as storage version"));
    }
}

/// Where the parts of one version stand after what all versions share has moved to the top; `None` for a part that was
/// looked at with the first version.
struct Places {
    schema: Option<String>,
    subresources: Option<String>,
    columns: Option<String>,
    selectable: Option<String>,
}

impl Places {
    fn of(versions: &[Value], index: usize) -> Self {
        let place = |key: &str, top: &str, own: &str| {
            let shared = versions.iter().all(|version| version[key] == versions[0][key]);
            match (shared, index) {
                (true, 0) => Some(format!("spec.{top}")),
                (true, _) => None,
                (false, _) => Some(format!("spec.versions[{index}].{own}")),
            }
        };
        Self {
            schema: place("schema", "validation.openAPIV3Schema", "schema.openAPIV3Schema"),
            subresources: place("subresources", "subresources", "subresources"),
            columns: place(
                "additionalPrinterColumns",
                "additionalPrinterColumns",
                "additionalPrinterColumns",
            ),
            selectable: place("selectableFields", "selectableFields", "selectableFields"),
        }
    }
}

/// An error about the versions as a whole, which the message shows as the real server's own structures.
fn about_versions(versions: &[Value], detail: &str) -> FieldError {
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            let flag = |key: &str| version[key].as_bool().unwrap_or_default();
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
                 \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                json!(text(version, "name")),
                flag("served"),
                flag("storage"),
                flag("deprecated"),
                version["deprecationWarning"],
            )
        })
        .collect();
    let shown = format!("[{}]", shown.join(","));
    FieldError::of(FieldErrorKind::Invalid, "spec.versions", shown, detail)
}

fn validate_deprecation(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(warning) = version["deprecationWarning"].as_str() else {
        return;
    };
    let unprintable = warning.char_indices().find(|(_, c)| c.is_control());
    let breach = if version["deprecated"] != json!(true) {
        "can only be set for deprecated versions".to_owned()
    } else if warning.is_empty() {
        "must not be an empty string".to_owned()
    } else if warning.len() > 256 {
        "must be <= 256 characters long".to_owned()
    } else if let Some((index, _)) = unprintable {
        format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        )
    } else {
        return;
    };
    let field = format!("{path}.deprecationWarning");
    errors.push(FieldError::invalid(field, &json!(warning), breach));
}

fn validate_schema(schema: &Value, path: &str, has_status: bool, errors: &mut Vec<FieldError>) {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                           MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
                           ExternalDocs Example XPreserveUnknownFields XValidations";
    if has_status {
        // The schema of the status is cut out of the whole: what speaks of the whole would be lost on the way.
        let is_allowed = |key: &String| {
            let name = match key.as_str() {
                "x-kubernetes-preserve-unknown-fields" => "XPreserveUnknownFields",
                "x-kubernetes-validations" => "XValidations",
                other => other,
            };
            ALLOWED.split(' ').any(|allowed| allowed.eq_ignore_ascii_case(name))
        };
        if let Some(keys) = schema.as_object().filter(|keys| !keys.keys().all(is_allowed)) {
            let detail = format!(
                "only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            errors.push(FieldError::invalid(path, &Value::Object(keys.clone()), detail));
        }
    }
    errors.extend(structural::parse(schema, path).err().into_iter().flatten());
}

fn validate_scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !scale.is_object() {
        return;
    }
    for (key, roots, detail) in [
        ("specReplicasPath", &[".spec."] as &[&str], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let (field, found) = (format!("{path}.{key}"), text(scale, key));
        if found.is_empty() {
            if key != "labelSelectorPath" {
                errors.push(FieldError::required(field, ""));
            }
        } else if !found.starts_with('.') {
            errors.push(FieldError::invalid(field, &json!(found), NOT_SIMPLE));
        } else if !roots.iter().any(|root| found.starts_with(root)) {
            errors.push(FieldError::invalid(field, &json!(found), detail));
        }
    }
}

const NOT_SIMPLE: &str = "must be a simple json path starting with .";

fn validate_columns(columns: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let field = |key: &str| format!("{path}[{index}].{key}");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(field("name"), ""));
        }
        let kind = text(column, "type");
        let one_of_types = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), one_of_types));
        } else if !TYPES.contains(&kind) {
            errors.push(FieldError::invalid(field("type"), &json!(kind), one_of_types));
        }
        let format = text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(field("format"), &json!(format), detail));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(field("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            errors.push(FieldError::invalid(field("JSONPath"), &json!(json_path), NOT_SIMPLE));
        }
    }
}

fn validate_selectable(fields: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const MOST: usize = 8;
    let mut seen = BTreeSet::new();
    for (index, selectable) in fields.as_array().into_iter().flatten().enumerate() {
        let json_path = text(selectable, "jsonPath");
        let field = format!("{path}[{index}].jsonPath");
        let shown = json!(json_path);
        if json_path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let found = match dialect::find_field(schema, json_path, false) {
            Ok(found) => found,
            Err(reason) => {
                let detail = format!("is an invalid path: {reason}");
                errors.push(FieldError::invalid(field, &shown, detail));
                continue;
            }
        };
        if json_path.starts_with(".metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(field.as_str(), &shown, detail));
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(field.as_str(), &shown, detail));
        }
        if !seen.insert(json_path) {
            errors.push(FieldError::duplicate(field, &shown));
        }
    }
    if seen.len() > MOST {
        let detail = format!("must have at most {MOST} items");
        errors.push(FieldError::of(FieldErrorKind::TooMany, path, seen.len().to_string(), detail));
    }
}

fn validate_names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(names, key);
        let mixed_case = key.ends_with("ind");
        let breaches = if mixed_case { dns1035_label(&name.to_lowercase()) } else { dns1035_label(name) };
        if name.is_empty() || breaches.is_empty() {
            continue;
        }
        let prefix = if mixed_case { "may have mixed case, but should otherwise match: " } else { "" };
        let detail = format!("{prefix}{}", breaches.join(","));
        errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(name), detail));
    }
    let list_kind = text(names, "listKind");
    if !list_kind.is_empty() && list_kind == text(names, "kind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), &json!(list_kind), detail));
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in strings(&names[key]).into_iter().enumerate() {
            let breaches = dns1035_label(name);
            if !breaches.is_empty() {
                let field = format!("{path}.{key}[{index}]");
                errors.push(FieldError::invalid(field, &json!(name), breaches.join(",")));
            }
        }
    }
}

fn validate_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    let strategy = text(conversion, "strategy");
    one_of(strategy, &["None", "Webhook"], "spec.conversion.strategy", errors);
    if strategy == "Webhook" {
        let detail =
            "conversion webhooks are not supported by this server; use None, which rewrites apiVersion only";
        errors.push(FieldError::invalid("spec.conversion.strategy", &json!(strategy), detail));
        return;
    }
    let webhook = &conversion["webhook"];
    let detail = "should not be set when strategy is not set to Webhook";
    if webhook["clientConfig"].is_object() {
        errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
    }
    if !strings(&webhook["conversionReviewVersions"]).is_empty() {
        errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
    }
}

/// What stored objects and their keys depend on.
fn validate_unchanged(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut same = |pointer: &str| {
        let found = spec.pointer(pointer).unwrap_or(&Value::Null);
        if found != old["spec"].pointer(pointer).unwrap_or(&Value::Null) {
            let field = format!("spec{}", pointer.replace('/', "."));
            errors.push(FieldError::invalid(field, found, "field is immutable"));
        }
    };
    if names::condition(old, "Established").is_some_and(|condition| condition["status"] == json!("True")) {
        same("/scope");
        same("/names/kind");
    }
    same("/group");
    same("/names/plural");
}

fn validate_stored(definition: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    let shown = &definition["status"]["storedVersions"];
    let stored = strings(shown);
    if stored.is_empty() {
        errors.push(FieldError::invalid(FIELD, &Value::Null, "must have at least one stored version"));
        return;
    }
    // Each version is looked for once, as the real server does: of two that share a name, the second is not there.
    let mut missing: Vec<&str> = stored.clone();
    for version in versions(definition) {
        let name = text(version, "name");
        match missing.iter().position(|known| *known == name) {
            Some(index) => drop(missing.remove(index)),
            None if version["storage"] == json!(true) => {
                errors.push(FieldError::invalid(
                    FIELD,
                    shown,
                    format!("must have the storage version {name}"),
                ));
            }
            None => {}
        }
    }
    for name in missing {
        let index = stored.iter().position(|known| *known == name).unwrap_or_default();
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{FIELD}[{index}]"), &json!(name), detail));
    }
}

/// Groups of the Kubernetes project need its approval, or an admission that there is none.
fn validate_approval(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let group = text(&definition["spec"], "group");
    let is_protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let approval = |definition: &Value| definition["metadata"]["annotations"][APPROVAL].clone();
    let found = approval(definition);
    if !(is_protected("k8s.io") || is_protected("kubernetes.io"))
        || old.is_some_and(|old| approval(old) == found)
    {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let told = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match found.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(field, format!("{told}, {see}"))),
        reason if reason.starts_with("unapproved") || reason.contains("://") => {}
        other => {
            let detail = format!("{told} with either a URL or a reason starting with \"unapproved\", {see}");
            errors.push(FieldError::invalid(field, &json!(other), detail));
        }
    }
}
