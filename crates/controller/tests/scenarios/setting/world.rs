//! What stands around the setting in a test: a cluster network on two nodes, a `KubeVirt` object, and the operator's part, which is to
//! replace handlers by ones with the network that `KubeVirt` names, and to say whether it works. It does so when told.

use std::sync::Mutex;
use std::time::Duration;

use api::condition;
use api::harvester::{ClusterNetwork, Setting, VlanConfig, VlanStatus};
use api::kubevirt::{KubeVirt, VirtualMachineInstanceMigration};
use api::multus::NetworkAttachmentDefinition;
use api::names::{annotations, conditions, objects};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, object};

pub const FIRST: &str =
    r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","exclude":["10.1.0.1/32"]}"#;
pub const SECOND: &str = r#"{"clusterNetwork":"mig","vlan":200,"range":"10.2.0.0/24"}"#;
pub const NODES: [&str; 2] = ["node01", "node02"];
const SETTING: &str = objects::MIGRATION_NETWORK_SETTING;

pub struct World {
    client: Client,
    pub settings: Api<Setting>,
    pub definitions: Api<NetworkAttachmentDefinition>,
    installations: Api<KubeVirt>,
    pods: Api<Pod>,
}

/// Everything that can happen to the setting, for who records what the controller asks for.
pub async fn whole_life(cluster: &Cluster) {
    let world = World::new(cluster).await;
    eventually("the setting to be created", async || world.settings.get_opt(SETTING).await.unwrap()).await;
    world.establish(FIRST).await;
    world.establish(SECOND).await;
    world.establish("").await;
}

impl World {
    pub async fn new(cluster: &Cluster) -> Self {
        let client = cluster.client.clone();
        let world = Self {
            settings: Api::all(client.clone()),
            definitions: Api::namespaced(client.clone(), INSTALLATION),
            installations: Api::namespaced(client.clone(), INSTALLATION),
            pods: Api::namespaced(client.clone(), INSTALLATION),
            client,
        };
        let installation = json!({
            "metadata": { "name": "kubevirt" },
            "spec": { "configuration": { "migrations": { "parallelMigrationsPerCluster": 7 } } },
        });
        world.installations.create(&PostParams::default(), &object(installation)).await.unwrap();
        let networks: Api<ClusterNetwork> = Api::all(world.client.clone());
        let network = json!({ "metadata": { "name": "mig", "annotations": { "network.harvesterhci.io/uplink-mtu": "9000" } } });
        networks.create(&PostParams::default(), &object(network)).await.unwrap();
        let configs: Api<VlanConfig> = Api::all(world.client.clone());
        let config = json!({ "metadata": { "name": "mig" }, "spec": { "clusterNetwork": "mig", "uplink": { "nics": ["eth1"] } } });
        configs.create(&PostParams::default(), &object(config)).await.unwrap();
        cluster.add_node(NODES[1]).await;
        for node in NODES {
            world.reach(node).await;
            world.start_handler(node).await;
        }
        world.prove(false).await;
        world
    }

    /// The cluster network reaches a node.
    pub async fn reach(&self, node: &str) {
        let configs: Api<VlanConfig> = Api::all(self.client.clone());
        let mut config = configs.get("mig").await.unwrap();
        let matched =
            config.annotations().get(annotations::MATCHED_NODES).cloned().unwrap_or_else(|| "[]".into());
        let mut matched: Vec<String> = serde_json::from_str(&matched).unwrap();
        matched.push(node.to_owned());
        config.annotations_mut().insert(annotations::MATCHED_NODES.into(), json!(matched).to_string());
        configs.replace("mig", &PostParams::default(), &config).await.unwrap();
        let statuses: Api<VlanStatus> = Api::all(self.client.clone());
        let status = json!({
            "metadata": { "name": format!("mig-{node}") },
            "status": {
                "clusterNetwork": "mig", "vlanConfig": "mig", "linkMonitor": "", "node": node,
                "conditions": [{ "type": "ready", "status": "True" }],
            },
        });
        statuses.create(&PostParams::default(), &object(status)).await.unwrap();
    }
}

/// What a person does.
impl World {
    pub async fn set(&self, value: &str) {
        let setting = json!({ "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": { "name": SETTING }, "value": value });
        self.settings
            .patch(SETTING, &PatchParams::apply("person").force(), &Patch::Apply(setting))
            .await
            .unwrap();
    }

    /// Sets a value and lets the operator do its part until it is ready.
    pub async fn establish(&self, value: &str) {
        self.set(value).await;
        self.settle(value).await;
    }

    /// Lets the operator do its part until the value is in effect.
    pub async fn settle(&self, value: &str) {
        let range = serde_json::from_str::<Value>(value)
            .ok()
            .and_then(|value| Some(value["range"].as_str()?.to_owned()));
        self.follow("Ready", range.as_deref().unwrap_or("No migration network")).await;
    }

    pub async fn set_network_by_hand(&self, network: Option<&str>) {
        let patch =
            Patch::Merge(json!({ "spec": { "configuration": { "migrations": { "network": network } } } }));
        self.installations.patch("kubevirt", &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn without_webhooks(&self) {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        configurations.delete(objects::VALIDATING_WEBHOOKS, &DeleteParams::default()).await.unwrap();
    }

    /// A migration that is in this phase. It comes from another cluster, so nobody here takes it further.
    pub async fn migration(&self, phase: &str) {
        let migrations: Api<VirtualMachineInstanceMigration> =
            Api::namespaced(self.client.clone(), "default");
        let migration = json!({ "metadata": { "name": "move" }, "spec": { "vmiName": "wren", "receive": { "migrationID": "move" } } });
        if migrations.get_opt("move").await.unwrap().is_none() {
            migrations.create(&PostParams::default(), &object(migration)).await.unwrap();
        }
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        migrations.patch_status("move", &PatchParams::default(), &status).await.unwrap();
    }
}

/// What the operator and the kubelets do.
impl World {
    /// A handler on a node, with the network that `KubeVirt` names now.
    pub async fn start_handler(&self, node: &str) {
        let name = self.place_handler(node).await;
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = Patch::Merge(json!({ "status": { "phase": "Running", "conditions": ready } }));
        self.pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }

    /// The same before it runs.
    pub async fn place_handler(&self, node: &str) -> String {
        let network = self.network_in_use().await;
        let networks =
            network.map(|network| json!({ annotations::NETWORKS: format!("{network}@migration0") }));
        let name = format!("virt-handler-{node}");
        let pod = json!({
            "metadata": { "name": name, "labels": { "kubevirt.io": "virt-handler" }, "annotations": networks },
            "spec": { "nodeName": node, "containers": [{ "name": "virt-handler", "image": "godwit/handler:1" }] },
        });
        self.pods.create(&PostParams::default(), &object(pod)).await.unwrap();
        name
    }

    /// Replaces the handler of a node.
    pub async fn roll(&self, node: &str) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods.delete(&format!("virt-handler-{node}"), &now).await.unwrap();
        self.start_handler(node).await;
    }

    /// Says that everything is as configured, and whether the network works.
    pub async fn prove(&self, network: bool) {
        let generation = self.installation().await.metadata.generation;
        let status = json!({ "status": {
            "observedGeneration": generation,
            "conditions": [
                { "type": "Available", "status": "True", "reason": "AllComponentsReady" },
                { "type": "MigrationNetworkReady", "status": if network { "True" } else { "False" } },
            ],
        }});
        self.installations
            .patch_status("kubevirt", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Does one thing that the operator would do next; nothing if all is done.
    pub async fn operate(&self) {
        let wanted = self.network_in_use().await.map(|network| format!("{network}@migration0"));
        for pod in self.pods.list(&ListParams::default()).await.unwrap() {
            if pod.annotations().get(annotations::NETWORKS) != wanted.as_ref() {
                let node = pod.spec.and_then(|spec| spec.node_name).unwrap();
                return self.roll(&node).await;
            }
        }
        let installation = self.installation().await;
        let status = installation.status.unwrap_or_default();
        let proved = condition::is_true(&status.conditions, conditions::MIGRATION_NETWORK_READY);
        if status.observed_generation != installation.metadata.generation || proved != wanted.is_some() {
            self.prove(wanted.is_some()).await;
        }
    }
}

/// What a person sees.
impl World {
    pub async fn setting(&self) -> Setting {
        self.settings.get(SETTING).await.unwrap()
    }

    pub async fn installation(&self) -> KubeVirt {
        self.installations.get("kubevirt").await.unwrap()
    }

    pub async fn network_in_use(&self) -> Option<String> {
        self.installation().await.spec.migration_network().map(str::to_owned)
    }

    pub async fn definition_in_use(&self) -> NetworkAttachmentDefinition {
        self.definitions.get(&self.network_in_use().await.unwrap()).await.unwrap()
    }

    pub async fn definitions(&self) -> Vec<String> {
        let list = self.definitions.list(&ListParams::default()).await.unwrap();
        list.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// There is this definition and no other.
    pub async fn only_definition(&self, name: Option<&str>) {
        assert_eq!(self.definitions().await, name.into_iter().collect::<Vec<_>>());
    }

    /// Waits until the condition has this reason, and words.
    pub async fn told(&self, reason: &str, words: &str) {
        self.wait_for(reason, words, async || {}).await;
    }

    /// The same, while the operator does its part.
    pub async fn follow(&self, reason: &str, words: &str) {
        self.wait_for(reason, words, async || self.operate().await).await;
    }

    async fn wait_for(&self, reason: &str, words: &str, meanwhile: impl AsyncFn()) {
        let last = Mutex::new(None);
        let wanted = format!("{reason}: {words}");
        let wait = eventually(&wanted, async || {
            meanwhile().await;
            let status = self.setting().await.status.unwrap_or_default();
            let configured = condition::find(&status.conditions, conditions::CONFIGURED).cloned();
            last.lock().unwrap().clone_from(&configured);
            let configured = configured?;
            let ready = configured.status == condition::ConditionStatus::True;
            assert_eq!(ready, configured.reason.as_deref() == Some("Ready"), "{configured:?}");
            (configured.reason? == reason && configured.message?.contains(words)).then_some(())
        });
        tokio::time::timeout(Duration::from_secs(29), wait)
            .await
            .unwrap_or_else(|_| panic!("not {wanted}: {:?}", last.lock().unwrap()));
    }
}
