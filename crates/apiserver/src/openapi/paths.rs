//! The operations of a kind as `OpenAPI` paths.
//!
//! Owns what kubectl reads from them: which kind a path speaks, which patches it takes, and whether it knows
//! `fieldValidation` and `dryRun`. Descriptions of parameters are left out: nobody reads them, and they are most
//! of the real document. Must never offer a verb that discovery does not list.

use serde_json::{Value, json};

use super::{GVK, META, definition_name, foreign_name, group_version_kind, list_name, reference};
use crate::discovery::subresources;
use crate::kinds::Kind;
use crate::object::JsonMap;

const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];

/// What one endpoint speaks.
struct Endpoint {
    /// The schema that is sent and received.
    schema: String,
    list_schema: String,
    gvk: Value,
    strategic: bool,
}

/// Every path of the kind with its operations.
pub fn of(kind: &Kind) -> Vec<(String, Value)> {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let own = Endpoint {
        schema: definition_name(kind),
        list_schema: list_name(kind),
        gvk: group_version_kind(&kind.group, &kind.version, &kind.kind),
        strategic: kind.custom.is_none(),
    };
    let everywhere = format!("{root}/{}", kind.plural);
    let collection = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        everywhere.clone()
    };
    let item = format!("{collection}/{{name}}");
    let verbs = kind.verbs();
    let mut paths = Vec::new();
    let mut add = |path: String, endpoint: &Endpoint, verbs: &[&str], offered: &[&str]| {
        let mut operations: JsonMap =
            offered.iter().filter(|verb| verbs.contains(verb)).map(|verb| endpoint.operation(verb)).collect();
        if !operations.is_empty() {
            operations.insert("parameters".into(), path_parameters(&path));
            paths.push((path, Value::Object(operations)));
        }
    };
    if kind.namespaced {
        add(everywhere, &own, verbs, &["list"]);
    }
    add(collection, &own, verbs, &["list", "create", "deletecollection"]);
    add(item.clone(), &own, verbs, &["get", "update", "patch", "delete"]);
    for subresource in subresources(kind).into_iter().filter(|subresource| !subresource.is_conversation()) {
        let speaks = subresource.speaks;
        let endpoint = Endpoint {
            schema: speaks.map_or_else(|| own.schema.clone(), foreign_name),
            list_schema: own.list_schema.clone(),
            gvk: speaks.map_or_else(|| own.gvk.clone(), |f| group_version_kind(f.group, f.version, f.kind)),
            strategic: own.strategic,
        };
        let path = format!("{item}/{}", subresource.name);
        add(path, &endpoint, subresource.verbs, &["get", "create", "update", "patch"]);
    }
    paths
}

impl Endpoint {
    /// The HTTP method of a verb, and the operation.
    fn operation(&self, verb: &str) -> (String, Value) {
        let status = format!("{META}.Status");
        let delete_options = || Some(content(&["application/json"], &format!("{META}.DeleteOptions")));
        let object = || Some(content(&["*/*"], &self.schema));
        let (method, action, parameters, body, answer) = match verb {
            "list" => ("get", "list", LIST, None, &self.list_schema),
            "create" => ("post", "post", WRITE, object(), &self.schema),
            "update" => ("put", "put", WRITE, object(), &self.schema),
            "patch" => ("patch", "patch", PATCH, Some(self.patch_body()), &self.schema),
            "delete" => ("delete", "delete", DELETE, delete_options(), &status),
            "deletecollection" => ("delete", "deletecollection", DELETE, delete_options(), &status),
            _ => ("get", "get", &[][..], None, &self.schema),
        };
        let mut operation = json!({
            "parameters": parameters.iter().map(|name| query_parameter(name)).collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK", "content": content(&["application/json"], answer)}},
            "x-kubernetes-action": action,
            GVK: self.gvk,
        });
        if let Some(content) = body {
            operation["requestBody"] = json!({"content": content});
        }
        (method.to_owned(), operation)
    }

    /// kubectl sends a strategic merge patch exactly to those endpoints that say they take one.
    fn patch_body(&self) -> Value {
        let all = [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        content(&all[..all.len() - usize::from(!self.strategic)], &format!("{META}.Patch"))
    }
}

fn content(media_types: &[&str], schema: &str) -> Value {
    media_types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), json!({"schema": reference(schema)})))
        .collect::<JsonMap>()
        .into()
}

fn query_parameter(name: &str) -> Value {
    let kind = match name {
        "allowWatchBookmarks" | "force" | "orphanDependents" | "sendInitialEvents" | "watch" => "boolean",
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        _ => "string",
    };
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn path_parameters(path: &str) -> Value {
    ["name", "namespace"]
        .iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect()
}
