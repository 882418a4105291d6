//! What a part asks of the API server, beside what its manifest lets it ask.
//!
//! A right is a request as an authoriser reads it. [`Used`] writes down those of a client; [`Granted`] reads those of a manifest, and says
//! where the two differ.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

/// One right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    pub group: String,
    /// With the subresource, if there is one: `pods/status`.
    pub resource: String,
    /// Empty: all namespaces, or none.
    pub namespace: String,
    /// Empty: the request names none.
    pub name: String,
}

/// How a query selects one object.
const ONE_NAME: &str = "fieldSelector=metadata.name%3D";

impl Right {
    /// What a request asks for.
    pub fn of(method: &http::Method, uri: &http::Uri) -> Self {
        let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => panic!("{uri}"),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name) = match rest {
            [resource] => ((*resource).to_owned(), ""),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource, name, below] => (format!("{resource}/{below}"), *name),
            _ => panic!("{uri}"),
        };
        let watching = uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match (method.as_str(), name.is_empty(), watching) {
            ("GET", true, true) => "watch",
            ("GET", true, false) => "list",
            ("GET", false, _) => "get",
            ("POST", ..) => "create",
            ("PUT", ..) => "update",
            ("PATCH", ..) => "patch",
            ("DELETE", ..) => "delete",
            _ => panic!("{method} {uri}"),
        };
        // Who lists objects of one name asks for that one.
        let one = uri.query().and_then(|query| query.split('&').find_map(|part| part.strip_prefix(ONE_NAME)));
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource,
            namespace: namespace.to_owned(),
            name: if name.is_empty() { one.unwrap_or_default() } else { name }.to_owned(),
        }
    }
}

/// What was asked for so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Used(Arc<Mutex<BTreeSet<Right>>>);

impl Used {
    /// Writes down a request that passes by.
    pub fn note<B>(&self, request: http::Request<B>) -> http::Request<B> {
        let right = Right::of(request.method(), request.uri());
        self.0.lock().expect("nobody panics here").insert(right);
        request
    }

    /// Whether something of this kind was asked for.
    pub fn has(&self, verb: &str, resource: &str) -> bool {
        self.all().iter().any(|right| right.verb == verb && right.resource == resource)
    }

    pub fn all(&self) -> BTreeSet<Right> {
        self.0.lock().expect("nobody panics here").clone()
    }
}

/// What a manifest grants.
#[derive(Debug)]
pub struct Granted {
    /// Where, if not everywhere, and what.
    rules: Vec<(Option<String>, PolicyRule)>,
}

impl Granted {
    /// The rules of a manifest's documents: of its `ClusterRole`, and of each `Role` for the role's namespace.
    pub fn by(documents: &[Value]) -> Self {
        let roles = documents
            .iter()
            .filter(|document| matches!(document["kind"].as_str(), Some("ClusterRole" | "Role")));
        let rules = roles.flat_map(|role| {
            let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).expect("rules");
            let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
            rules.into_iter().map(move |rule| (namespace.clone(), rule))
        });
        Self { rules: rules.collect() }
    }

    /// Fails if something is used that is not granted, or granted and neither used nor `unseen` (resource, verb): what no test can
    /// make a part ask for.
    #[track_caller]
    pub fn are_exactly(&self, used: &Used, unseen: impl Fn(&str, &str) -> bool) {
        let used = used.all();
        for right in &used {
            let granted = self.rules.iter().any(|rule| grants(rule, right));
            assert!(granted, "the manifest does not grant {right:?}");
        }
        for rule in &self.rules {
            for resource in rule.1.resources.iter().flatten() {
                for verb in &rule.1.verbs {
                    let uses = |right: &Right| {
                        right.resource == *resource && right.verb == *verb && grants(rule, right)
                    };
                    assert!(
                        unseen(resource, verb) || used.iter().any(uses),
                        "nothing needs the right to {verb} {resource}"
                    );
                }
            }
        }
    }
}

fn grants((namespace, rule): &(Option<String>, PolicyRule), right: &Right) -> bool {
    let has = |list: &Option<Vec<String>>, value: &str| list.iter().flatten().any(|entry| entry == value);
    namespace.as_ref().is_none_or(|namespace| *namespace == right.namespace)
        && has(&rule.api_groups, &right.group)
        && has(&rule.resources, &right.resource)
        && rule.verbs.contains(&right.verb)
        && rule.resource_names.as_ref().is_none_or(|names| names.contains(&right.name))
}
