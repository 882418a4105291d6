//! Every rule with a row, and what must hold whatever the cluster looks like.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn node(name: &str, spec: &Value, labels: &Value) -> Arc<Node> {
    let mut labels = labels.clone();
    labels["kubernetes.io/hostname"] = name.into();
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3", "x.io/device": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, spec: &Value) -> Arc<Pod> {
    let mut full = json!({"containers": [{"name": "c"}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "labels": {"app": name}}, "spec": full});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn requesting(resource: &str, amount: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]})
}

fn world(nodes: &[Arc<Node>], pods: &[(&str, Arc<Pod>)]) -> World {
    let namespace = json!({"metadata": {"name": "ns", "labels": {"team": "a"}}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let mut world = World::new(nodes, &[], &[Arc::new(namespace)]);
    for (node, pod) in pods {
        world.place(pod, node);
    }
    world
}

/// What one node says to a pod, with `there` on it already.
fn asked(wanted: &Value, spec: &Value, labels: &Value, there: &[Value]) -> String {
    let there: Vec<_> = there.iter().map(|spec| ("n", pod("there", spec))).collect();
    let world = world(&[node("n", spec, labels)], &there);
    let (_, seat) = world.seats().next().unwrap();
    match filter(&pod("new", wanted), seat, &world) {
        Ok(()) => "yes".into(),
        Err(reason) => reason.texts().join(", "),
    }
}

fn required(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    required(&json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
}

fn field(operator: &str, name: &str) -> Value {
    required(&json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]))
}

#[test]
fn selectors_and_affinity_to_nodes() {
    let no = "node(s) didn't match Pod's node affinity/selector";
    for (pod, expected) in [
        (json!({"nodeSelector": {"zone": "a"}}), "yes"),
        (json!({"nodeSelector": {"zone": "b"}}), no),
        (expression("zone", "In", &["a", "b"]), "yes"),
        (expression("zone", "In", &["b"]), no),
        (expression("zone", "NotIn", &["b"]), "yes"),
        (expression("zone", "NotIn", &["a"]), no),
        (expression("absent", "NotIn", &["a"]), "yes"),
        (expression("zone", "Exists", &[]), "yes"),
        (expression("absent", "Exists", &[]), no),
        (expression("absent", "DoesNotExist", &[]), "yes"),
        (expression("zone", "DoesNotExist", &[]), no),
        (expression("size", "Gt", &["9"]), "yes"),
        (expression("size", "Gt", &["10"]), no),
        (expression("size", "Lt", &["11"]), "yes"),
        (expression("zone", "Lt", &["11"]), no),
        (field("In", "n"), "yes"),
        (field("In", "m"), no),
        (field("NotIn", "n"), no),
        (required(&json!([{"matchExpressions": []}])), no),
        (
            required(
                &json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            ),
            "yes",
        ),
    ] {
        assert_eq!(asked(&pod, &json!({}), &json!({"zone": "a", "size": "10"}), &[]), expected, "{pod}");
    }
}

#[test]
fn taints_and_tolerations() {
    let taint = |effect: &str| json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
    let no = "node(s) had untolerated taint {k: v}";
    let tolerating = |toleration: Value| json!({"tolerations": [toleration]});
    for (pod, effect, expected) in [
        (json!({}), "NoSchedule", no),
        (json!({}), "NoExecute", no),
        (json!({}), "PreferNoSchedule", "yes"),
        (tolerating(json!({"operator": "Exists"})), "NoExecute", "yes"),
        (tolerating(json!({"key": "k", "operator": "Exists"})), "NoSchedule", "yes"),
        (tolerating(json!({"key": "k", "value": "v"})), "NoSchedule", "yes"),
        (tolerating(json!({"key": "k", "value": "other"})), "NoSchedule", no),
        (tolerating(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})), "NoSchedule", no),
    ] {
        assert_eq!(asked(&pod, &taint(effect), &json!({}), &[]), expected, "{pod} {effect}");
    }
    let cordoned = json!({"unschedulable": true});
    assert_eq!(asked(&json!({}), &cordoned, &json!({}), &[]), "node(s) were unschedulable");
    let daemon = tolerating(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}));
    assert_eq!(asked(&daemon, &cordoned, &json!({}), &[]), "yes");
}

#[test]
fn resources_and_ports() {
    let port = |address: &str, protocol: &str| json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": address, "protocol": protocol}]}]});
    let taken = "node(s) didn't have free ports for the requested pod ports";
    let both =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "5Gi"}}}]});
    for (pod, there, expected) in [
        (requesting("cpu", "2"), vec![], "yes"),
        (requesting("cpu", "2001m"), vec![], "Insufficient cpu"),
        (requesting("cpu", "1500m"), vec![requesting("cpu", "500m")], "yes"),
        (requesting("cpu", "1501m"), vec![requesting("cpu", "500m")], "Insufficient cpu"),
        (requesting("memory", "5Gi"), vec![], "Insufficient memory"),
        (both, vec![], "Insufficient cpu, Insufficient memory"),
        (requesting("x.io/device", "1"), vec![], "yes"),
        (requesting("x.io/device", "1"), vec![requesting("x.io/device", "1")], "Insufficient x.io/device"),
        (requesting("y.io/device", "1"), vec![], "Insufficient y.io/device"),
        (json!({}), vec![json!({}), json!({}), json!({})], "Too many pods"),
        (port("", "TCP"), vec![port("", "TCP")], taken),
        (port("", "TCP"), vec![port("", "UDP")], "yes"),
        (port("10.0.0.1", "TCP"), vec![port("10.0.0.2", "TCP")], "yes"),
        (port("10.0.0.1", "TCP"), vec![port("0.0.0.0", "TCP")], taken),
    ] {
        assert_eq!(asked(&pod, &json!({}), &json!({}), &there), expected, "{pod} beside {there:?}");
    }
}

#[test]
fn init_containers_count_at_the_hungriest_moment() {
    let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let sidecar =
        |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (init, containers, fits) in [
        (vec![container("2")], vec![container("1")], true),
        (vec![container("2"), container("2")], vec![container("1")], true),
        (vec![container("2100m")], vec![container("1")], false),
        (vec![sidecar("1")], vec![container("1")], true),
        (vec![sidecar("1")], vec![container("1100m")], false),
        (vec![sidecar("1"), container("1100m")], vec![container("500m")], false),
        (vec![container("2"), sidecar("1")], vec![container("500m")], true),
    ] {
        let pod = json!({"initContainers": init, "containers": containers});
        let expected = if fits { "yes" } else { "Insufficient cpu" };
        assert_eq!(asked(&pod, &json!({}), &json!({}), &[]), expected, "{pod}");
    }
    let mut heavy = requesting("cpu", "1");
    heavy["overhead"] = json!({"cpu": "1500m"});
    assert_eq!(asked(&heavy, &json!({}), &json!({}), &[]), "Insufficient cpu");
}

fn near(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// Which nodes of two zones a pod may go to.
fn allowed(pod: &Pod, there: &[(&str, Arc<Pod>)]) -> Vec<String> {
    let zone = |name: &str, zone: &str| node(name, &json!({}), &json!({"zone": zone}));
    let world =
        world(&[zone("a1", "a"), zone("a2", "a"), zone("b1", "b"), node("x", &json!({}), &json!({}))], there);
    let fits = world.seats().filter(|(_, seat)| filter(pod, seat, &world).is_ok());
    fits.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn affinity_between_pods() {
    let there = |spec: &Value| [("a1", pod("db", spec))];
    let plain = there(&json!({}));
    assert_eq!(allowed(&pod("web", &near("podAffinity", "db", "zone")), &plain), ["a1", "a2"]);
    assert_eq!(allowed(&pod("web", &near("podAffinity", "db", "kubernetes.io/hostname")), &plain), ["a1"]);
    assert_eq!(allowed(&pod("web", &near("podAntiAffinity", "db", "zone")), &plain), ["b1", "x"]);
    assert!(allowed(&pod("web", &near("podAffinity", "absent", "zone")), &plain).is_empty());
    // The first of a group has nobody to go to, but needs the label.
    assert_eq!(allowed(&pod("web", &near("podAffinity", "web", "zone")), &plain), ["a1", "a2", "b1"]);
    // Who is there already does not want the new one near.
    assert_eq!(
        allowed(&pod("web", &json!({})), &there(&near("podAntiAffinity", "web", "zone"))),
        ["b1", "x"]
    );
}

#[test]
fn affinity_crosses_namespaces_only_when_told() {
    let term = |more: Value| {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
        for (key, value) in more.as_object().unwrap() {
            term[key] = value.clone();
        }
        let mut pod = (*pod(
            "web",
            &json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
        ))
        .clone();
        pod.metadata.namespace = Some("other".into());
        pod
    };
    let there = [("a1", pod("db", &json!({})))];
    assert!(allowed(&term(json!({})), &there).is_empty());
    assert_eq!(allowed(&term(json!({"namespaces": ["ns"]})), &there), ["a1", "a2"]);
    assert_eq!(
        allowed(&term(json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})), &there),
        ["a1", "a2"]
    );
    assert_eq!(allowed(&term(json!({"namespaceSelector": {}})), &there), ["a1", "a2"]);
    assert!(allowed(&term(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}})), &there).is_empty());
}

#[test]
fn an_even_spread() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
    let web = pod("web", &json!({"topologySpreadConstraints": [constraint]}));
    assert_eq!(allowed(&web, &[]), ["a1", "a2", "b1"], "a node without the label is out");
    assert_eq!(allowed(&web, &[("a1", web.clone())]), ["b1"]);
    assert_eq!(allowed(&web, &[("a1", web.clone()), ("b1", web.clone())]), ["a1", "a2", "b1"]);
    let mut many = constraint.clone();
    many["minDomains"] = json!(3);
    let web = pod("web", &json!({"topologySpreadConstraints": [many]}));
    assert!(allowed(&web, &[("a1", web.clone()), ("b1", web.clone())]).is_empty(), "a third zone is missing");
}

#[test]
fn the_message_counts_nodes_by_reason() {
    let nodes = [
        node("a", &json!({"unschedulable": true}), &json!({})),
        node("b", &json!({}), &json!({})),
        node("c", &json!({}), &json!({})),
    ];
    let message = choose(&pod("p", &requesting("memory", "9Gi")), &world(&nodes, &[])).unwrap_err();
    assert_eq!(message, "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient memory.");
    let message = choose(&pod("p", &json!({})), &world(&[], &[])).unwrap_err();
    assert_eq!(message, "no nodes available to schedule pods");
}

#[test]
fn the_better_node_wins() {
    let nodes = [
        node("a", &json!({}), &json!({})),
        node("b", &json!({}), &json!({"disk": "fast"})),
        node("c", &json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), &json!({})),
    ];
    let busy = [("a", pod("there", &requesting("cpu", "1")))];
    assert_eq!(choose(&pod("p", &json!({})), &world(&nodes, &busy)), Ok("b"), "the emptier one");
    let preference =
        json!({"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}});
    let prefers = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}});
    let busy = [("b", pod("there", &requesting("cpu", "1")))];
    assert_eq!(choose(&pod("p", &prefers), &world(&nodes, &busy)), Ok("b"), "what it prefers");
    let term = json!({"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "p"}}}});
    let apart =
        json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}});
    assert_eq!(
        choose(&pod("p", &apart), &world(&nodes, &[("a", pod("p", &json!({})))])),
        Ok("b"),
        "away from its like"
    );
}

fn any_pod() -> impl Strategy<Value = Value> {
    let resources = (0_u32..2500, 0_u32..5000).prop_map(|(cpu, memory)| {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]})
    });
    let tolerates = any::<bool>();
    (resources, tolerates, 0_u8..4).prop_map(|(mut spec, tolerates, kind)| {
        if tolerates {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let affinity = match kind {
            0 => near("podAntiAffinity", "p", "kubernetes.io/hostname"),
            1 => near("podAntiAffinity", "p", "zone"),
            2 => near("podAffinity", "p", "zone"),
            _ => json!({}),
        };
        if !affinity["affinity"].is_null() {
            spec["affinity"] = affinity["affinity"].clone();
        }
        spec
    })
}

proptest! {
    /// However pods come, no node gives away more than it has, and every pod that is refused fits on no node.
    #[test]
    fn nobody_is_overbooked_and_nobody_is_refused_without_reason(
        pods in proptest::collection::vec(any_pod(), 0..20),
        tainted in proptest::collection::vec(any::<bool>(), 1..5),
    ) {
        let nodes: Vec<_> = tainted
            .iter()
            .enumerate()
            .map(|(index, tainted)| {
                let taints = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
                let spec = if *tainted { taints } else { json!({}) };
                node(&format!("n{index}"), &spec, &json!({"zone": format!("z{}", index % 2)}))
            })
            .collect();
        let mut world = world(&nodes, &[]);
        for spec in &pods {
            let pod = pod("p", spec);
            match choose(&pod, &world).map(str::to_owned) {
                Ok(name) => {
                    let (_, seat) = world.seats().find(|(node, _)| *node == name).unwrap();
                    prop_assert_eq!(filter(&pod, seat, &world), Ok(()));
                    world.place(&pod, &name);
                }
                Err(message) => {
                    prop_assert!(world.seats().all(|(_, seat)| filter(&pod, seat, &world).is_err()));
                    let start = format!("0/{} nodes are available: ", nodes.len());
                    prop_assert!(message.starts_with(&start) && message.ends_with('.'), "{}", message);
                }
            }
        }
        for (name, seat) in world.seats() {
            for (resource, amount) in seat.requested.iter() {
                prop_assert!(amount <= seat.allocatable.get(resource), "{} of {} on {}", amount, resource, name);
            }
        }
    }
}
