//! The few rules that need more than the object itself: definitions, addresses of services, and who asks for a certificate.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::Registry;
use crate::auth::User;
use crate::crd;
use crate::kinds::Kind;
use crate::object;
use crate::status::ApiResult;

/// Services get an address from here: the usual range of a cluster.
const SERVICE_NETWORK: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const SERVICE_BITS: u32 = 12;

/// Place of requests for certificates.
const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

pub(super) fn prepare_create(registry: &Registry, kind: &Kind, caller: &User, object: &mut Value) {
    match kind.storage.as_ref() {
        "services" => assign_cluster_ip(registry, object),
        REQUESTS => name_requester(caller, object),
        crd::PLACE => {
            crd::default(object);
            crd::prepare_status(object, None);
        }
        _ => {}
    }
}

/// Fills in what a client may leave out.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    if kind.storage.as_ref() == crd::PLACE {
        crd::default(object);
    }
}

pub(super) fn prepare_update(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.storage.as_ref() == crd::PLACE {
        crd::default(new);
        crd::prepare_status(new, Some(old));
    }
}

pub(super) fn check(kind: &Kind, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    if kind.storage.as_ref() != crd::PLACE {
        return Ok(());
    }
    let errors = crd::validate(new, old);
    if errors.is_empty() { Ok(()) } else { Err(kind.invalid(object::name(new), errors)) }
}

/// Who asks for a certificate is not for them to say.
fn name_requester(caller: &User, request: &mut Value) {
    let who = caller.to_value();
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        match who.get(field) {
            Some(value) => spec.insert(field.to_owned(), value.clone()),
            None => spec.remove(field),
        };
    }
}

/// A decision on a request goes by way of `/approval`, its answer by way of `/status`.
pub(super) fn keep_other_part(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    if kind.storage.as_ref() != REQUESTS {
        return;
    }
    let conditions =
        |request: &Value| request["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let decides = |condition: &Value| matches!(condition["type"].as_str(), Some("Approved" | "Denied"));
    match subresource {
        "approval" => {
            let decided = conditions(new);
            let meta = new["metadata"].clone();
            *new = old.clone();
            object::as_map_mut(new).insert("metadata".into(), meta);
            object::set_path(new, "status.conditions", Value::Array(decided));
        }
        "status" => {
            let kept = conditions(old).into_iter().filter(decides);
            let said = conditions(new).into_iter().filter(|condition| !decides(condition));
            object::set_path(new, "status.conditions", kept.chain(said).collect());
        }
        _ => {}
    }
}

/// A free address of the service network; headless and external services have none.
fn assign_cluster_ip(registry: &Registry, service: &mut Value) {
    let spec = &service["spec"];
    let given = spec["clusterIP"].as_str().unwrap_or_default();
    if spec["type"] == "ExternalName" {
        return;
    }
    let address = if given.is_empty() {
        let view = registry.store.view();
        let taken: std::collections::HashSet<String> = view
            .scan("services", "", "")
            .filter_map(|stored| stored.value()["spec"]["clusterIP"].as_str().map(str::to_owned))
            .collect();
        // 0 is the network, 1 the API's own service, 10 by custom the DNS.
        let free =
            (11..1 << (32 - SERVICE_BITS)).map(|host| Ipv4Addr::from(SERVICE_NETWORK + host).to_string());
        match free.into_iter().find(|address| !taken.contains(address)) {
            Some(address) => address,
            None => return,
        }
    } else {
        given.to_owned()
    };
    object::set_path(service, "spec.clusterIP", address.into());
}
