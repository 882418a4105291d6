//! Services: what the fields that are left out become, and what cannot change. Addresses are given by the caller, who
//! sees the other services. Node ports are not drawn at all.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{default, each, get, list, map_at, port_in_range, text};
use crate::status::FieldError;

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
}

/// What follows from the address.
pub fn derive_addresses(service: &mut Value) {
    let Some(spec) = map_at(service, &["spec"]) else {
        return;
    };
    if get(spec, "type") == "ExternalName" {
        return;
    }
    let address = text(get(spec, "clusterIP")).to_owned();
    if !address.is_empty() {
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        default(spec, "clusterIPs", json!([address]));
        default(spec, "ipFamilies", json!([family]));
        default(spec, "ipFamilyPolicy", "SingleStack");
    }
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
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        if !was[field].is_null() {
            default(spec, field, was[field].clone());
        }
    }
    for port in each(spec, "ports") {
        let same = |p: &&Value| p["port"] == *get(port, "port") && p["protocol"] == *get(port, "protocol");
        let outside = list(&was["ports"]).iter().find(same).map_or(&Value::Null, |p| &p["nodePort"]);
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
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &shown, "may not change once set"));
        }
    }
    errors
}
