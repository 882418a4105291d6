//! One admission review: which judgement a request needs, and the answer in Kubernetes' form.

use api::kubevirt::VirtualMachineInstanceSpec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Cause, Rules, defaults, instance, machine, policy};

/// What is to become of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Allow,
    /// Allowed, with this spec in place of the one that was written.
    Fill(Value),
    /// Allowed, with these operations of a JSON patch done to it.
    Change(Vec<Value>),
    Refuse(Vec<Cause>),
    /// Refused for what is asked, not for what is written.
    Deny {
        code: u16,
        /// Kubernetes' own word.
        reason: &'static str,
        message: String,
    },
}

/// Judges the `request` of a review. `mutating`: it may still be filled in.
pub fn review(request: &Value, mutating: bool, rules: &Rules) -> Answer {
    let (old, new) = (&request["oldObject"], &request["object"]);
    let update = request["operation"] == "UPDATE";
    let causes = match (request["kind"]["kind"].as_str(), mutating) {
        (Some("VirtualMachineInstance"), true) if !update => return fill_in(&new["spec"], rules),
        (Some("VirtualMachineInstance"), false) if update => {
            instance::refuse_change(&old["spec"], &new["spec"])
        }
        (Some("VirtualMachineInstance"), false) => instance::validate(&new["spec"], "spec", rules),
        (Some("VirtualMachine" | "MigrationPolicy"), false) if update && old["spec"] == new["spec"] => {
            Vec::new()
        }
        (Some("MigrationPolicy"), false) => policy::validate(&new["spec"]),
        (Some("VirtualMachine"), false) => machine::validate(&new["spec"], rules),
        _ => Vec::new(),
    };
    if causes.is_empty() { Answer::Allow } else { Answer::Refuse(causes) }
}

/// A spec that cannot be read is left as it is: the schema says what is wrong with it.
fn fill_in(written: &Value, rules: &Rules) -> Answer {
    let Ok(mut spec) = serde_json::from_value::<VirtualMachineInstanceSpec>(written.clone()) else {
        return Answer::Allow;
    };
    defaults::fill_in(&mut spec, &rules.defaults);
    let mut filled = written.clone();
    overlay(&mut filled, &spec);
    if filled == *written { Answer::Allow } else { Answer::Fill(filled) }
}

/// Adds to `written` what `filled` has and it has not; what was written stays as it was written, also what we do not know.
pub(super) fn overlay(written: &mut Value, filled: &impl Serialize) {
    // The types serialise into JSON without fail: they came from it.
    if let Ok(filled) = serde_json::to_value(filled) {
        add_missing(written, filled);
    }
}

fn add_missing(written: &mut Value, filled: Value) {
    match (written, filled) {
        (Value::Object(written), Value::Object(filled)) => {
            for (name, value) in filled {
                match written.get_mut(&name) {
                    Some(present) if !present.is_null() => add_missing(present, value),
                    _ => {
                        written.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(written), Value::Array(filled)) => {
            for (index, value) in filled.into_iter().enumerate() {
                match written.get_mut(index) {
                    Some(present) => add_missing(present, value),
                    None => written.push(value),
                }
            }
        }
        (written @ Value::Null, filled) => *written = filled,
        _ => {}
    }
}

impl Answer {
    /// Refused for now; asking again may help.
    pub fn later(message: String) -> Self {
        Self::Deny { code: 429, reason: "TooManyRequests", message }
    }

    /// The `AdmissionReview` that is sent back.
    pub fn into_review(self, request: &Value) -> Value {
        let allowed = !matches!(self, Self::Refuse(_) | Self::Deny { .. });
        let mut response = json!({ "uid": request["uid"], "allowed": allowed });
        let mut change = |operations: Value| {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(operations.to_string()));
        };
        match self {
            Self::Allow => {}
            Self::Fill(spec) => change(json!([{ "op": "add", "path": "/spec", "value": spec }])),
            Self::Change(operations) => change(json!(operations)),
            Self::Refuse(causes) => response["status"] = refusal(&causes, request),
            Self::Deny { code, reason, message } => {
                response["status"] =
                    json!({ "status": "Failure", "code": code, "reason": reason, "message": message });
            }
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
    }
}

/// As the API server itself refuses an object, so that every client shows field and sentence.
fn refusal(causes: &[Cause], request: &Value) -> Value {
    let sentences: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let listed: Vec<Value> = causes
        .iter()
        .map(|cause| json!({ "reason": cause.reason, "field": cause.field, "message": cause.message }))
        .collect();
    let name = request["name"].as_str().or_else(|| request["object"]["metadata"]["name"].as_str());
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": sentences.join(" "),
        "details": {
            "name": name.unwrap_or_default(),
            "group": request["kind"]["group"],
            "kind": request["kind"]["kind"],
            "causes": listed,
        },
    })
}
