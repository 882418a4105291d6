//! One webhook of a configuration: what it says of itself, and whether a request concerns it.
//!
//! Owns matching: rules, selectors, match conditions, and the version of the object that they lead to. Nothing here calls anybody. The defaults of absent fields
//! are those of `admissionregistration.k8s.io/v1`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Review, Target, conditions, review};
use crate::kinds::{Kind, strategy};
use crate::object::{self, strings};
use crate::selector::LabelSelector;
use crate::status::{ApiError, ApiResult};

/// A webhook, read where it stands in its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Hook<'a> {
    pub name: &'a str,
    body: &'a Value,
}

/// The version in which a hook wants to see the object.
#[derive(Debug, Clone)]
pub enum Shape {
    AsRequested,
    /// Another version, which the hook's rule names.
    Other(Arc<Kind>),
}

impl Shape {
    pub fn kind<'a>(&'a self, review: &'a Review<'_>) -> &'a Kind {
        match self {
            Self::AsRequested => review.kind,
            Self::Other(kind) => kind,
        }
    }

    /// The request's object in this version.
    pub fn of(&self, object: &Value, review: &Review<'_>) -> ApiResult<Value> {
        self.convert(object.clone(), review, review.kind, self.kind(review))
    }

    /// The reverse of [`Shape::of`].
    pub fn undo(&self, object: Value, review: &Review<'_>) -> ApiResult<Value> {
        self.convert(object, review, self.kind(review), review.kind)
    }

    fn convert(&self, mut object: Value, review: &Review<'_>, from: &Kind, to: &Kind) -> ApiResult<Value> {
        let other = matches!(self, Self::Other(_));
        // What a subresource of another kind speaks has no versions of the resource.
        if other && !object.is_null() && review::foreign(review).is_none() {
            strategy::absorb(from, &mut object)?;
            strategy::present(to, &mut object);
            object["apiVersion"] = json!(to.api_version());
        }
        Ok(object)
    }
}

/// The hooks of one configuration.
pub fn of(configuration: &Value) -> impl Iterator<Item = Hook<'_>> {
    let hooks = configuration["webhooks"].as_array();
    hooks.into_iter().flatten().map(|body| Hook { name: body["name"].as_str().unwrap_or_default(), body })
}

/// All hooks in the order of calls.
pub fn ordered(configurations: &[Value]) -> Vec<Hook<'_>> {
    let mut configurations: Vec<&Value> = configurations.iter().collect();
    configurations.sort_by_key(|configuration| object::name(configuration));
    configurations.into_iter().flat_map(of).collect()
}

impl<'a> Hook<'a> {
    fn text(&self, key: &str) -> &'a str {
        self.body[key].as_str().unwrap_or_default()
    }

    pub fn client_config(&self) -> &'a Value {
        &self.body["clientConfig"]
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.body["timeoutSeconds"].as_u64().unwrap_or(10))
    }

    pub fn ignores_failures(&self) -> bool {
        self.text("failurePolicy") == "Ignore"
    }

    pub fn wants_reinvocation(&self) -> bool {
        self.text("reinvocationPolicy") == "IfNeeded"
    }

    pub fn is_safe_for_dry_run(&self) -> bool {
        matches!(self.text("sideEffects"), "None" | "NoneOnDryRun")
    }

    /// The version of the request's resource that a rule names, preferring the request's own.
    pub fn shape_for(&self, target: Target<'_>) -> Option<Shape> {
        if is_exempt(target.kind) {
            return None;
        }
        let rules = || self.body["rules"].as_array().into_iter().flatten();
        if rules().any(|rule| rule_matches(rule, target, target.kind)) {
            return Some(Shape::AsRequested);
        }
        if self.text("matchPolicy") == "Exact" {
            return None;
        }
        // Versions of one resource are kept in one place.
        let others = || {
            let same = |kind: &&Arc<Kind>| {
                kind.storage == target.kind.storage
                    && (&kind.group, &kind.version) != (&target.kind.group, &target.kind.version)
            };
            target.kinds.all().filter(same)
        };
        rules()
            .find_map(|rule| others().find(|kind| rule_matches(rule, target, kind)))
            .map(|kind| Shape::Other(Arc::clone(kind)))
    }

    /// The version of the object that the hook wants to see, if the request concerns it.
    pub fn applies_to(&self, review: &Review<'_>) -> ApiResult<Option<Shape>> {
        let Some(shape) = self.shape_for(review.target()) else {
            return Ok(None);
        };
        if !self.selects_namespace(review)? || !self.selects_object(review)? {
            return Ok(None);
        }
        let conditions = &self.body["matchConditions"];
        if conditions.as_array().is_none_or(Vec::is_empty) {
            return Ok(Some(shape));
        }
        let object = shape.of(&review.object, review)?;
        let old_object = shape.of(&review.old_object, review)?;
        let request = review::request(review, shape.kind(review));
        match conditions::all_hold(conditions, &object, &old_object, &request) {
            Ok(true) => Ok(Some(shape)),
            Ok(false) => Ok(None),
            Err(_) if self.ignores_failures() => Ok(None),
            Err(cause) => Err(review.kind.forbidden(review.name, cause)),
        }
    }

    /// The selector under `key`, unless it selects everything.
    fn selector(&self, key: &str) -> ApiResult<Option<LabelSelector>> {
        let selector = &self.body[key];
        if selector.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(None);
        }
        let parsed = LabelSelector::from_object(selector).map_err(ApiError::internal)?;
        Ok((!parsed.is_everything()).then_some(parsed))
    }

    fn selects_namespace(&self, review: &Review<'_>) -> ApiResult<bool> {
        let namespace = review.shown_namespace();
        if namespace.is_empty() {
            return Ok(true);
        }
        let Some(selector) = self.selector("namespaceSelector")? else {
            return Ok(true);
        };
        // A namespace that is being written has the labels that it is going to have.
        let written = review.is_of_namespace() && review.subresource.is_empty() && !review.object.is_null();
        let labels = if written {
            object::labels(&review.object)
        } else if let Some(namespace) = &review.namespace_object {
            object::labels(namespace)
        } else if review.is_of_namespace() {
            object::labels(&review.old_object)
        } else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        Ok(selector.matches(&labels))
    }

    /// Either side of the change is enough, so that an object cannot leave a hook's sight unseen.
    fn selects_object(&self, review: &Review<'_>) -> ApiResult<bool> {
        let Some(selector) = self.selector("objectSelector")? else {
            return Ok(true);
        };
        let selects = |value: &Value| !value.is_null() && selector.matches(&object::labels(value));
        Ok(selects(&review.object) || selects(&review.old_object))
    }
}

/// Admission's own configuration: a broken hook must not keep its own repair out.
fn is_exempt(kind: &Kind) -> bool {
    kind.group == "admissionregistration.k8s.io"
        && matches!(
            kind.plural.as_str(),
            "mutatingwebhookconfigurations"
                | "validatingwebhookconfigurations"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
        )
}

fn rule_matches(rule: &Value, target: Target<'_>, kind: &Kind) -> bool {
    let names =
        |key: &str, wanted: &str| strings(&rule[key]).iter().any(|name| *name == "*" || *name == wanted);
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => kind.namespaced,
        Some("Cluster") => !kind.namespaced,
        _ => true,
    };
    scope
        && names("operations", target.operation)
        && names("apiGroups", &kind.group)
        && names("apiVersions", &kind.version)
        && strings(&rule["resources"])
            .iter()
            .any(|pattern| resource_matches(pattern, &kind.plural, target.subresource))
}

/// `pods` is the resource alone, `pods/*` every subresource with it, `*` all resources alone.
fn resource_matches(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, below) = pattern.split_once('/').unwrap_or((pattern, ""));
    let matches = |pattern: &str, text: &str| pattern == "*" || pattern == text;
    matches(resource, plural) && matches(below, subresource)
}
