//! Services: what the fields that are left out become, and what cannot change.
//!
//! Cluster addresses are drawn by hashing the service's name, because nothing here sees the other services:
//! two of a million addresses may coincide. No packet is sent to them in a lab; a caller that routes them
//! allocates by itself and writes `clusterIP` before the object gets here. Node ports are not drawn at all.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::{default, each, get, list, map_at, port_in_range, text};
use crate::object::{name, namespace};
use crate::status::FieldError;

/// 10.96.0.0/12, the usual range.
const RANGE: u32 = 0x0a60_0000;

pub fn complete(service: &mut Value) {
    let Some(spec) = map_at(service, &["spec"]) else {
        return;
    };
    let kind = text(get(spec, "type")).to_owned();
    if kind == "ExternalName" {
        return;
    }
    for port in each(spec, "ports") {
        let number = get(port, "port").clone();
        if get(port, "targetPort").is_null() || get(port, "targetPort") == 0 {
            port.insert("targetPort".into(), number);
        }
    }
    default(spec, "internalTrafficPolicy", "Cluster");
    if kind != "ClusterIP" {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if get(spec, "sessionAffinity") == "ClientIP" {
        let config = json!({"clientIP": {"timeoutSeconds": 10800}});
        default(spec, "sessionAffinityConfig", config);
    }
    let address = text(get(spec, "clusterIP")).to_owned();
    if !address.is_empty() {
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        default(spec, "clusterIPs", json!([address]));
        default(spec, "ipFamilies", json!([family]));
        default(spec, "ipFamilyPolicy", "SingleStack");
    }
}

/// Gives a new service its address, unless it has one or wants none.
pub fn allocate(service: &mut Value) {
    let address = address(namespace(service), name(service));
    if let Some(spec) = map_at(service, &["spec"])
        && get(spec, "type") != "ExternalName"
        && text(get(spec, "clusterIP")).is_empty()
    {
        spec.insert("clusterIP".into(), json!(address.to_string()));
    }
}

/// An address in the range, always the same for the same service; never the first, which is the API server's.
fn address(namespace: &str, name: &str) -> Ipv4Addr {
    let key = [namespace.as_bytes(), b"/", name.as_bytes()].concat();
    // FNV-1a: stable across builds, which the standard library's hash is not.
    let hash = key.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let offset = (hash ^ (hash >> 20)) & 0x000f_ffff;
    Ipv4Addr::from(RANGE | offset.clamp(0x100, 0x000f_fffe))
}

/// What the server once gave stays, when an update does not mention it.
pub fn keep_allocated(new: &mut Value, old: &Value) {
    let Some(spec) = map_at(new, &["spec"]) else {
        return;
    };
    let was = &old["spec"];
    if get(spec, "type") == "ExternalName" || was["type"] == "ExternalName" {
        return;
    }
    for field in [
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "healthCheckNodePort",
    ] {
        if !was[field].is_null() {
            default(spec, field, was[field].clone());
        }
    }
    for port in each(spec, "ports") {
        let same = |p: &&Value| p["port"] == *get(port, "port") && p["protocol"] == *get(port, "protocol");
        let outside = list(&was["ports"])
            .iter()
            .find(same)
            .map_or(&Value::Null, |p| &p["nodePort"]);
        if !outside.is_null() {
            default(port, "nodePort", outside.clone());
        }
    }
}

pub fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &new["spec"];
    let (kind, address) = (text(&spec["type"]), text(&spec["clusterIP"]));
    let ports = list(&spec["ports"]);
    let mut errors = Vec::new();
    if kind == "ExternalName" {
        if text(&spec["externalName"]).is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
    } else {
        if ports.is_empty() && address != "None" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        if !address.is_empty() && address != "None" && address.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &address.into(), detail));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        let own = text(&port["name"]);
        if own.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(at("name"), ""));
        } else if !own.is_empty() && ports[..index].iter().any(|p| p["name"] == port["name"]) {
            errors.push(FieldError::duplicate(at("name"), &port["name"]));
        }
        errors.extend(port_in_range(at("port"), &port["port"]));
        errors.extend(port_in_range(at("targetPort"), &port["targetPort"]));
        let twice = |p: &&Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
        if ports[..index].iter().any(|p| twice(&p)) {
            let shown = json!({"port": port["port"], "protocol": port["protocol"]});
            errors.push(FieldError::duplicate(format!("spec.ports[{index}]"), &shown));
        }
    }
    if let Some(old) =
        old.filter(|old| text(&old["spec"]["type"]) != "ExternalName" && kind != "ExternalName")
    {
        let had = text(&old["spec"]["clusterIP"]);
        if !had.is_empty() && had != address {
            let shown = json!([address]);
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                &shown,
                "may not change once set",
            ));
        }
    }
    errors
}
