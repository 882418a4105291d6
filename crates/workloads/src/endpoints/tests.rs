//! Which slices a Service has, by what its pods look like.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, change: &[(&str, Value)]) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}, "deletionTimestamp": null},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (pointer, value) in change {
        *pod.pointer_mut(pointer).unwrap() = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[allow(clippy::needless_pass_by_value, reason = "every caller writes it in place")]
fn service(spec: Value) -> Service {
    let mut full = json!({"selector": {"app": "web"}, "ports": [{"port": 8000, "targetPort": "http"}]});
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}, "spec": full}))
        .unwrap()
}

fn ready(slices: &[EndpointSlice]) -> Vec<(String, bool)> {
    let all = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    all.map(|one| (one.addresses[0].clone(), one.conditions.as_ref().unwrap().ready.unwrap())).collect()
}

#[test]
fn only_pods_that_run_and_have_an_address_are_listed() {
    let leaving = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    for (change, expected) in [
        (vec![], vec![("10.0.0.1".to_owned(), true)]),
        (vec![("/status/conditions/0/status", json!("False"))], vec![("10.0.0.1".to_owned(), false)]),
        (vec![leaving], vec![("10.0.0.1".to_owned(), false)]),
        (vec![("/status/phase", json!("Succeeded"))], vec![]),
        (vec![("/status/podIP", json!("")), ("/status/podIPs", json!([]))], vec![]),
        (vec![("/metadata/labels/app", json!("other"))], vec![]),
        (vec![("/metadata/namespace", json!("other"))], vec![]),
    ] {
        assert_eq!(ready(&slices(&service(json!({})), &[pod("p", &change)])), expected, "{change:?}");
    }
    let sick = pod("p", &[("/status/conditions/0/status", json!("False"))]);
    let publishing = service(json!({"publishNotReadyAddresses": true}));
    assert_eq!(ready(&slices(&publishing, &[sick])), [("10.0.0.1".into(), true)]);
}

#[test]
fn families_and_ports_make_slices() {
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let made = slices(&both, &[pod("p", &[])]);
    let families: Vec<_> = made.iter().map(|slice| slice.address_type.as_str()).collect();
    assert_eq!(families, ["IPv4", "IPv6"]);
    assert_eq!(ready(&made)[1].0, "fd00::1");
    let other = pod("q", &[("/spec/containers/0/ports/0/containerPort", json!(81))]);
    let made = slices(&service(json!({})), &[pod("p", &[]), other]);
    let mut ports: Vec<_> = made.iter().map(|slice| slice.ports.as_ref().unwrap()[0].port.unwrap()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 81]);
    assert_ne!(made[0].name_any(), made[1].name_any());
    assert_eq!(slices(&service(json!({})), &[]).len(), 1, "a service without pods says that it has none");
}

#[test]
fn services_that_others_look_after_have_none_of_ours() {
    let pods = [pod("p", &[])];
    assert!(slices(&service(json!({"selector": null})), &pods).is_empty());
    assert!(slices(&service(json!({"type": "ExternalName"})), &pods).is_empty());
}
