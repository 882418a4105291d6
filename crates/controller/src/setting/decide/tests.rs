//! Every step from one network to another, and to none, told from the objects alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use serde_json::{Value, json};

use super::*;

const FIRST: &str = r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24"}"#;
const SECOND: &str = r#"{"clusterNetwork":"mig","vlan":200,"range":"10.2.0.0/24"}"#;
const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn name(value: &str) -> String {
    definition::name(&read(value, "value").unwrap().unwrap())
}

/// A cluster of three nodes, and what the setting has led to in it.
struct World {
    setting: Setting,
    cluster: Cluster,
    definitions: Vec<NetworkAttachmentDefinition>,
    pods: Vec<Pod>,
    moving: Vec<String>,
}

impl World {
    /// Handlers run on the pod network, and KubeVirt is well.
    fn new(value: &str) -> Self {
        let ready = json!([{ "type": "ready", "status": "True" }]);
        let status = |node: &&str| {
            object(json!({
                "metadata": { "name": format!("mig-{node}") },
                "status": { "clusterNetwork": "mig", "vlanConfig": "mig", "linkMonitor": "", "node": node, "conditions": ready },
            }))
        };
        let cluster = Cluster {
            installation: Some(object(
                json!({ "metadata": { "name": "kubevirt", "uid": "kv", "generation": 1 }, "spec": {} }),
            )),
            nodes: NODES.iter().map(|node| object(json!({ "metadata": { "name": node } }))).collect(),
            cluster_networks: vec![object(json!({ "metadata": { "name": "mig" } }))],
            vlan_configs: vec![object(
                json!({ "metadata": { "name": "mig" }, "spec": { "clusterNetwork": "mig", "uplink": {} } }),
            )],
            vlan_statuses: NODES.iter().map(status).collect(),
            ..Cluster::default()
        };
        let mut world = Self {
            setting: object(json!({ "metadata": { "name": "vm-migration-network" }, "value": value })),
            cluster,
            definitions: Vec::new(),
            pods: NODES.iter().map(|node| handler(node, "")).collect(),
            moving: Vec::new(),
        };
        world.proves(false);
        world
    }

    fn decide(&self) -> Decision {
        decide(&Situation {
            setting: &self.setting,
            namespace: "kubevirt",
            cluster: &self.cluster,
            definitions: &self.definitions,
            pods: &self.pods,
            moving: &self.moving,
        })
    }

    /// Does as was decided.
    fn act(&mut self, decision: &Decision) {
        for action in &decision.actions {
            match action {
                Action::Define(definition) => {
                    self.definitions.retain(|there| there.name_any() != definition.name_any());
                    self.definitions.push((**definition).clone());
                }
                Action::Use { definition, .. } => self.uses(Some(definition)),
                Action::Leave { .. } => self.uses(None),
                Action::Undefine { name, .. } => self.definitions.retain(|there| there.name_any() != *name),
                Action::Record { hash, definition } => {
                    let noted = [
                        (annotations::MIGRATION_NETWORK_HASH, hash),
                        (annotations::MIGRATION_NETWORK_DEFINITION, definition),
                    ];
                    let noted =
                        noted.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
                    self.setting.metadata.annotations = Some(noted.collect());
                }
            }
        }
    }

    fn uses(&mut self, name: Option<&str>) {
        let installation = self.cluster.installation.as_mut().unwrap();
        installation.spec = object(json!({ "configuration": { "migrations": { "network": name } } }));
        installation.metadata.generation = installation.metadata.generation.map(|generation| generation + 1);
    }

    /// The handler of one node is replaced by one with this network.
    fn rolls(&mut self, node: usize, network: &str) {
        self.pods[node] = handler(NODES[node], network);
    }

    /// The operator has acted on the configuration.
    fn proves(&mut self, network: bool) {
        let installation = self.cluster.installation.as_mut().unwrap();
        installation.status = object(json!({
            "observedGeneration": installation.metadata.generation,
            "conditions": [
                { "type": "Available", "status": "True", "reason": "AllComponentsReady" },
                { "type": "MigrationNetworkReady", "status": if network { "True" } else { "False" }, "message": "n1 does not reach n2" },
            ],
        }));
    }

    /// The whole way, until nothing is left to do.
    fn settle(&mut self, network: &str) {
        for _ in 0..3 {
            let decision = self.decide();
            self.act(&decision);
            (0..NODES.len()).for_each(|node| self.rolls(node, network));
            self.proves(true);
        }
        assert_eq!(self.decide().actions, []);
        assert!(matches!(self.decide().phase, Phase::Ready(_)));
    }
}

fn handler(node: &str, network: &str) -> Pod {
    let networks = if network.is_empty() {
        json!({})
    } else {
        json!({ "k8s.v1.cni.cncf.io/networks": format!("{network}@migration0") })
    };
    object(json!({
        "metadata": { "name": format!("virt-handler-{node}"), "labels": { "kubevirt.io": "virt-handler" }, "annotations": networks },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    }))
}

fn kinds(decision: &Decision) -> Vec<&'static str> {
    let kind = |action: &Action| match action {
        Action::Define(_) => "define",
        Action::Use { .. } => "use",
        Action::Leave { .. } => "leave",
        Action::Undefine { .. } => "undefine",
        Action::Record { .. } => "record",
    };
    decision.actions.iter().map(kind).collect()
}

fn told(decision: &Decision) -> String {
    let told = decision.phase.tell(&decision.attention);
    format!("{} {}: {}", told.status, told.reason, told.message)
}

#[test]
fn a_network_is_written_rolled_out_proved_and_then_noted() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    let decision = world.decide();
    assert_eq!(
        kinds(&decision),
        ["define", "use"],
        "the definition is there before anybody is told to use it"
    );
    assert_eq!(told(&decision), "False Applying: The network is being written.");
    world.act(&decision);
    for done in 0..3 {
        let decision = world.decide();
        assert_eq!(decision.actions, []);
        assert_eq!(
            told(&decision),
            format!(
                "False RollingOut: RollingOut {done}/3: virt-handler is being moved, node by node. Not there yet: {}.",
                NODES[done..].join(", ")
            )
        );
        world.rolls(done, &first);
    }
    assert_eq!(
        told(&world.decide()),
        "False Verifying: Waits until the network is proved: KubeVirt kubevirt has not acted on its configuration yet."
    );
    world.proves(false);
    assert_eq!(
        told(&world.decide()),
        "False Verifying: Waits until the network is proved: condition MigrationNetworkReady of KubeVirt kubevirt is False n1 does not reach n2."
    );
    world.proves(true);
    let decision = world.decide();
    assert_eq!(kinds(&decision), ["record"], "the hash is noted after success, and not before");
    assert_eq!(
        told(&decision),
        "True Ready: virt-handler on 3 of 3 nodes has an address of 10.1.0.0/24 on mig VLAN 200."
    );
    world.act(&decision);
    assert_eq!(world.decide().actions, []);
    assert_eq!(
        world.setting.annotations()[annotations::MIGRATION_NETWORK_DEFINITION],
        format!("kubevirt/{first}")
    );
}

#[test]
fn another_network_is_made_before_the_old_one_goes() {
    let mut world = World::new(FIRST);
    let (first, second) = (name(FIRST), name(SECOND));
    world.settle(&first);
    let hash = world.setting.annotations()[annotations::MIGRATION_NETWORK_HASH].clone();
    world.setting.spec.value = SECOND.to_owned();
    let decision = world.decide();
    assert_eq!(kinds(&decision), ["define", "use"]);
    world.act(&decision);
    for node in 0..3 {
        assert_eq!(world.decide().actions, [], "nothing goes while a handler is on it");
        world.rolls(node, &second);
    }
    world.proves(false);
    assert_eq!(world.decide().actions, [], "nor before the new one is proved");
    assert_eq!(world.setting.annotations()[annotations::MIGRATION_NETWORK_HASH], hash);
    world.proves(true);
    world.pods.push(handler("n1", &first));
    world.pods[3].metadata.labels =
        Some([("kubevirt.io".to_owned(), "virt-synchronization-controller".to_owned())].into());
    assert!(told(&world.decide()).contains("has not left"), "{}", told(&world.decide()));
    world.pods.pop();
    let decision = world.decide();
    assert_eq!(kinds(&decision), ["undefine", "record"]);
    world.act(&decision);
    assert_eq!(world.definitions.len(), 1);
    assert_ne!(world.setting.annotations()[annotations::MIGRATION_NETWORK_HASH], hash);
}

#[test]
fn another_spelling_changes_nothing() {
    let mut world = World::new(FIRST);
    world.settle(&name(FIRST));
    world.setting.spec.value =
        r#"{ "range":"10.1.0.0/24","exclude":[], "vlan": 200, "clusterNetwork":"mig" }"#.to_owned();
    assert_eq!(world.decide().actions, []);
    // A default holds where there is no value.
    world.setting.spec.default = std::mem::take(&mut world.setting.spec.value);
    assert_eq!(world.decide().actions, []);
}

#[test]
fn without_a_value_all_of_it_goes_when_the_last_handler_has_left() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    world.settle(&first);
    world.setting.spec.value.clear();
    let decision = world.decide();
    assert_eq!(kinds(&decision), ["leave"]);
    world.act(&decision);
    for done in 0..3 {
        let decision = world.decide();
        assert_eq!(decision.actions, []);
        assert!(
            told(&decision).starts_with(&format!("False RollingOut: RollingOut {done}/3"))
                && told(&decision).ends_with(&format!("Not there yet: {}.", NODES[done..].join(", "))),
            "{}",
            told(&decision)
        );
        world.rolls(done, "");
    }
    assert!(matches!(world.decide().phase, Phase::Verifying(_)));
    world.proves(false);
    let decision = world.decide();
    assert_eq!(kinds(&decision), ["undefine", "record"]);
    assert_eq!(
        told(&decision),
        "True Ready: No migration network is set: virtual machines move over the pod network."
    );
    world.act(&decision);
    assert_eq!((world.decide().actions, world.definitions.len()), (Vec::new(), 0));
    assert!(world.setting.annotations().is_empty());
}

#[test]
fn a_network_that_somebody_else_set_is_left_alone() {
    let mut world = World::new("");
    world.uses(Some("by-hand"));
    world.cluster.installation.as_mut().unwrap().status = None;
    let decision = world.decide();
    assert_eq!(decision.actions, []);
    assert_eq!(
        told(&decision),
        "True Ready: No migration network is set: virtual machines move over by-hand, which KubeVirt kubevirt names.",
        "nothing of ours is there, so nothing is awaited"
    );
    world.cluster.installation = None;
    assert_eq!(
        told(&world.decide()),
        "True Ready: No migration network is set: virtual machines move over the pod network."
    );
}

#[test]
fn what_was_changed_by_hand_is_put_right() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    world.settle(&first);
    let intact = world.definitions.clone();
    world.definitions.clear();
    assert_eq!(kinds(&world.decide()), ["define"]);
    world.definitions = intact.clone();
    world.definitions[0].spec.spec.as_mut().unwrap().config = Some(r#"{"type":"bridge"}"#.into());
    assert_eq!(kinds(&world.decide()), ["define"]);
    world.definitions = intact;
    world.uses(Some("by-hand"));
    assert_eq!(kinds(&world.decide()), ["use"]);
    world.uses(None);
    assert_eq!(kinds(&world.decide()), ["use"]);
    // The same by its full name.
    world.uses(Some(&format!("kubevirt/{first}")));
    assert_eq!(kinds(&world.decide()), [""; 0]);
}

#[test]
fn a_bad_value_changes_nothing_and_says_why() {
    let mut world = World::new(FIRST);
    world.settle(&name(FIRST));
    for (value, reason, why) in [
        ("{", "InvalidValue", "EOF while parsing"),
        (
            r#"{"clusterNetwork":"mig","range":"10.2.0.0/31"}"#,
            "InvalidValue",
            "value.range: 10.2.0.0/31 is too small",
        ),
        (
            r#"{"clusterNetwork":"gone","range":"10.2.0.0/24"}"#,
            "Validating",
            "value.clusterNetwork: Cluster network \"gone\" does not exist",
        ),
        (r#"{"clusterNetwork":"mig","range":"10.2.0.0/29"}"#, "Validating", "value.range: Too few addresses"),
    ] {
        world.setting.spec.value = value.to_owned();
        let decision = world.decide();
        assert_eq!(decision.actions, []);
        let told = decision.phase.tell(&decision.attention);
        assert_eq!((told.status.as_str(), told.reason), ("False", reason));
        assert!(
            told.message.starts_with("Nothing was changed") && told.message.contains(why),
            "{}",
            told.message
        );
    }
    world.setting.spec.value = SECOND.to_owned();
    world.cluster.installation = None;
    assert_eq!(
        told(&world.decide()),
        "False GetKubeVirtError: There is no KubeVirt object: create it first."
    );
}

#[test]
fn a_node_that_would_not_fit_is_told_before_it_fails_and_nothing_is_undone() {
    let mut world = World::new(FIRST);
    world.settle(&name(FIRST));
    world.cluster.vlan_configs[0].metadata.annotations =
        Some([(annotations::MATCHED_NODES.to_owned(), r#"["n1","n2","n3"]"#.to_owned())].into());
    world.cluster.nodes.push(object(json!({ "metadata": { "name": "n4" } })));
    let decision = world.decide();
    assert_eq!(decision.actions, []);
    assert!(
        told(&decision).starts_with("False RollingOut: RollingOut 3/4")
            && told(&decision)
                .contains("Attention: value.clusterNetwork: Cluster network \"mig\" does not reach node n4"),
        "{}",
        told(&decision)
    );
    // Nor when the cluster network is gone altogether.
    world.cluster.cluster_networks.clear();
    assert_eq!(world.decide().actions, []);
}

#[test]
fn nothing_is_written_under_a_running_migration() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    world.moving = vec!["migration shop/move".to_owned()];
    assert_eq!(
        told(&world.decide()),
        "False Applying: Nothing was changed yet: waits for the end of migration shop/move."
    );
    assert_eq!(world.decide().actions, []);
    world.moving.clear();
    world.settle(&first);
    world.moving = vec!["migration shop/move".to_owned()];
    assert!(matches!(world.decide().phase, Phase::Ready(_)), "what is in effect stays so");
    world.definitions.clear();
    assert_eq!(kinds(&world.decide()), ["define"], "who starts again needs the definition, whatever moves");
    world.setting.spec.value.clear();
    assert_eq!(world.decide().actions, []);
}

#[test]
fn a_handler_that_is_not_ready_or_ends_has_not_arrived() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    world.settle(&first);
    world.pods[1].status = object(json!({ "phase": "Running" }));
    let without_n2 = Phase::RollingOut { done: 2, of: 3, left: vec!["n2".to_owned()], stuck: None };
    assert_eq!(world.decide().phase, without_n2);
    world.settle(&first);
    world.pods[1].metadata.deletion_timestamp = object(json!("2026-01-01T00:00:00Z"));
    assert_eq!(world.decide().phase, without_n2);
}

#[test]
fn a_roll_out_that_is_stuck_says_why_and_where() {
    let mut world = World::new(FIRST);
    let first = name(FIRST);
    let decision = world.decide();
    world.act(&decision);
    world.rolls(0, &first);
    let fails = |world: &mut World, behind: i64| {
        let installation = world.cluster.installation.as_mut().unwrap();
        let why = "An error occurred during deployment: virt-handler-n2 on n2 does not become ready: CrashLoopBackOff";
        installation.status = object(json!({
            "observedGeneration": installation.metadata.generation.unwrap() - behind,
            "conditions": [
                { "type": "Available", "status": "False", "reason": "DeploymentFailed", "message": why },
                { "type": "Degraded", "status": "True", "reason": "DeploymentFailed", "message": why },
            ],
        }));
    };
    fails(&mut world, 0);
    let decision = world.decide();
    assert_eq!(
        told(&decision),
        "False RollingOut: RollingOut 1/3: virt-handler cannot be moved: KubeVirt kubevirt says DeploymentFailed: \
         An error occurred during deployment: virt-handler-n2 on n2 does not become ready: CrashLoopBackOff. \
         Not there yet: n2, n3."
    );
    assert!(decision.phase.is_failure());
    // What it said of the configuration before is over.
    fails(&mut world, 1);
    assert!(!world.decide().phase.is_failure());
    // The same on the way back.
    world.setting.spec.value.clear();
    let decision = world.decide();
    world.act(&decision);
    fails(&mut world, 0);
    assert_eq!(
        told(&world.decide()),
        "False RollingOut: RollingOut 2/3: virt-handler cannot be moved: KubeVirt kubevirt says DeploymentFailed: \
         An error occurred during deployment: virt-handler-n2 on n2 does not become ready: CrashLoopBackOff. \
         Not there yet: n1."
    );
}

#[test]
fn not_more_nodes_are_named_than_a_person_reads() {
    let left = (1..=7).map(|number| format!("n{number}")).collect();
    let told = Phase::RollingOut { done: 0, of: 7, left, stuck: None }.tell(&[]);
    assert!(told.message.ends_with("Not there yet: n1, n2, n3, n4, n5 and 2 more."), "{}", told.message);
}

#[test]
fn only_the_end_of_a_migration_is_asked_for_often() {
    let mut world = World::new(FIRST);
    world.moving = vec!["migration shop/move".to_owned()];
    assert_eq!(world.decide().again, MOVING);
    for value in ["{", r#"{"clusterNetwork":"gone","range":"10.2.0.0/24"}"#] {
        world.setting.spec.value = value.to_owned();
        assert_eq!(world.decide().again, RESTING, "{value}");
    }
}
