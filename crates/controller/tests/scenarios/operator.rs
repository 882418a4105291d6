//! The installation: handlers are rolled out as they should be, and people see how far that is. DaemonSets are those of the
//! lab's own controllers; the kubelet and the handlers are hands.

use std::collections::BTreeMap;

use api::condition;
use api::kubevirt::{KubeVirt, KubeVirtPhase};
use api::names::{annotations, conditions, labels, reasons};
use controller::Options;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, object, options};

const FAST: &str = "kubevirt/fast";

/// A cluster with an installation, four nodes, and controllers of workloads.
struct Site {
    cluster: Cluster,
    installations: Api<KubeVirt>,
    pods: Api<Pod>,
    workloads: tokio::task::AbortHandle,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.workloads.abort();
    }
}

impl Site {
    async fn new() -> Self {
        let cluster = Cluster::new().await;
        for node in ["node02", "node03", "node04"] {
            cluster.add_node(node).await;
        }
        let client = cluster.client.clone();
        let nodes: Api<Node> = Api::all(client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let room = json!({ "status": { "allocatable": { "cpu": "4", "memory": "4Gi", "pods": "110" } } });
            let patch = Patch::Merge(room);
            nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
        // Nodes of this test do not beat.
        let quiet =
            workloads::Options { node_grace: std::time::Duration::from_hours(1), ..Default::default() };
        let running = workloads::run(client.clone(), quiet, std::future::pending());
        let workloads = tokio::spawn(async move { running.await.unwrap() }).abort_handle();
        let installations = Api::namespaced(client.clone(), INSTALLATION);
        let installation = KubeVirt::new("kubevirt", object(json!({})));
        installations.create(&PostParams::default(), &installation).await.unwrap();
        let pods = Api::namespaced(client, INSTALLATION);
        Self { cluster, installations, pods, workloads }
    }

    fn start(&self) {
        let operating = Options { operator: true, ..options("controller-1") };
        self.cluster.start_with(self.cluster.client.clone(), operating);
    }

    /// With handlers that are ready and reach each other.
    async fn deployed() -> Self {
        let site = Self::new().await;
        site.start();
        site.settle(None).await;
        site.report(&reports(None)).await;
        site.reason(reasons::ALL_COMPONENTS_READY).await;
        site
    }

    async fn define(&self) {
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "fast" }, "spec": { "config": "{}" },
        });
        let definitions: Api<api::multus::NetworkAttachmentDefinition> =
            Api::namespaced(self.cluster.client.clone(), INSTALLATION);
        definitions.create(&PostParams::default(), &object(definition)).await.unwrap();
    }

    async fn set_network(&self, network: Option<&str>) -> kube::Result<KubeVirt> {
        let patch = json!({ "spec": { "configuration": { "migrations": { "network": network } } } });
        self.installations.patch("kubevirt", &PatchParams::default(), &Patch::Merge(patch)).await
    }

    async fn handlers(&self) -> Vec<Pod> {
        let ours = ListParams::default().labels(&format!("{}={}", labels::APP, labels::APP_HANDLER));
        self.pods.list(&ours).await.unwrap().items
    }

    async fn pace(&self) -> Value {
        let sets: Api<DaemonSet> = Api::namespaced(self.cluster.client.clone(), INSTALLATION);
        let set = serde_json::to_value(sets.get("virt-handler").await.unwrap()).unwrap();
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].clone()
    }

    /// What the kubelets do: pods that are told to end are gone, others run; and, of this network, become ready.
    async fn kubelets(&self, ready: impl Fn(&Pod) -> bool) {
        for pod in self.handlers().await {
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                self.pods.delete(&name, &now).await.map(drop).or_else(gone).unwrap();
            } else if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                let ready = if ready(&pod) { "True" } else { "False" };
                let status = json!({ "status": { "phase": "Running", "podIP": "10.244.0.7", "conditions": [{ "type": "Ready", "status": ready }] } });
                let patched =
                    self.pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
                patched.map(drop).or_else(gone).unwrap();
            }
        }
    }

    /// What the handlers do: say where they are, and whom they reach.
    async fn report(&self, reports: &BTreeMap<String, Value>) {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        for (node, report) in reports {
            let notes = json!({ annotations::MIGRATION_NETWORK_REPORT: report.to_string() });
            let patch = Patch::Merge(json!({ "metadata": { "annotations": notes } }));
            nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Everybody does their part until the roll-out is over.
    async fn settle(&self, network: Option<&str>) {
        eventually("the roll-out to end", async || {
            self.kubelets(|_| true).await;
            let handlers = self.handlers().await;
            let current = handlers.iter().all(|pod| network_of(pod).as_deref() == network && is_ready(pod));
            (handlers.len() == 4 && current).then_some(())
        })
        .await;
    }

    async fn reason(&self, reason: &str) -> KubeVirt {
        eventually(reason, async || {
            let installation = self.installations.get("kubevirt").await.unwrap();
            let status = installation.status.as_ref()?;
            let available = condition::find(&status.conditions, conditions::AVAILABLE)?;
            let current = status.observed_generation == installation.metadata.generation;
            (available.reason.as_deref() == Some(reason) && current).then_some(installation)
        })
        .await
    }

    /// Waits for what the condition of the migration network says.
    async fn network(&self, ready: bool, said: &str) -> String {
        eventually(said, async || {
            let status = self.installations.get("kubevirt").await.unwrap().status?;
            let condition = condition::find(&status.conditions, conditions::MIGRATION_NETWORK_READY)?;
            let is = condition::is_true(&status.conditions, conditions::MIGRATION_NETWORK_READY) == ready;
            let message = condition.message.clone().unwrap_or_default();
            (is && message.contains(said)).then_some(message)
        })
        .await
    }
}

fn gone(error: kube::Error) -> kube::Result<()> {
    match error {
        kube::Error::Api(status) if status.is_not_found() || status.is_conflict() => Ok(()),
        error => Err(error),
    }
}

fn network_of(pod: &Pod) -> Option<String> {
    pod.annotations().get(annotations::NETWORKS).cloned()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = |condition: &k8s_openapi::api::core::v1::PodCondition| {
        condition.type_ == "Ready" && condition.status == "True"
    };
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

fn is_updated(pod: &Pod) -> bool {
    network_of(pod).as_deref() == Some("fast@migration0")
}

/// Reports of four handlers that reach each other.
fn reports(network: Option<&str>) -> BTreeMap<String, Value> {
    let nodes = ["node01", "node02", "node03", "node04"];
    let report = |node: &str| {
        let others: Vec<&str> = nodes.into_iter().filter(|other| *other != node).collect();
        json!({ "network": network, "address": "192.0.2.1", "reached": others, "unreached": {},
            "at": Timestamp::now() })
    };
    nodes.map(|node| (node.to_owned(), report(node))).into()
}

#[tokio::test]
async fn an_installation_becomes_handlers_and_says_when_they_are_there() {
    let site = Site::new().await;
    site.start();
    let deploying = site.reason(reasons::DEPLOYMENT_IN_PROGRESS).await.status.unwrap();
    assert_eq!(deploying.phase, Some(KubeVirtPhase::Deploying));
    site.settle(None).await;
    // They are ready, and nobody has said that they reach each other.
    site.network(false, "has not reported yet").await;
    site.reason(reasons::DEPLOYMENT_IN_PROGRESS).await;
    site.report(&reports(None)).await;
    let status = site.reason(reasons::ALL_COMPONENTS_READY).await.status.unwrap();
    assert_eq!(
        (status.phase, status.observed_deployment_id.clone()),
        (Some(KubeVirtPhase::Deployed), status.target_deployment_id)
    );
    assert!(condition::is_true(&status.conditions, conditions::CREATED));
    assert!(condition::is_false(&status.conditions, conditions::DEGRADED));
    site.network(true, "all 4 nodes reach each other on the pod network").await;
}

#[tokio::test]
async fn a_witness_has_no_handler_and_nobody_waits_for_one() {
    let site = Site::new().await;
    let nodes: Api<Node> = Api::all(site.cluster.client.clone());
    let witness = Patch::Merge(json!({ "metadata": { "labels": { labels::WITNESS_NODE: "true" } } }));
    nodes.patch("node04", &PatchParams::default(), &witness).await.unwrap();
    site.start();
    eventually("all others to have one", async || {
        site.kubelets(|_| true).await;
        let handlers = site.handlers().await;
        (handlers.len() == 3 && handlers.iter().all(is_ready)).then_some(())
    })
    .await;
    site.report(&reports(None)).await;
    site.reason(reasons::ALL_COMPONENTS_READY).await;
    let places: Vec<String> =
        site.handlers().await.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    assert!(!places.contains(&"node04".to_owned()), "{places:?}");
}

#[tokio::test]
async fn a_migration_network_is_rolled_out_by_a_canary_and_taken_back() {
    let site = Site::deployed().await;
    site.define().await;
    site.set_network(Some("fast")).await.unwrap();
    site.reason(reasons::UPDATE_IN_PROGRESS).await;
    // The canary is alone until it is ready.
    let canary = eventually("the canary", async || {
        site.kubelets(|pod| !is_updated(pod)).await;
        site.handlers().await.into_iter().find(is_updated)
    })
    .await;
    for _ in 0..20 {
        site.kubelets(|pod| !is_updated(pod)).await;
        assert_eq!(site.handlers().await.iter().filter(|pod| is_updated(pod)).count(), 1);
    }
    assert_eq!(site.pace().await, 1);
    site.network(false, "its handler is to be replaced").await;
    let name = canary.name_any();
    eventually("the pace to quicken", async || {
        site.kubelets(|pod| !is_updated(pod) || pod.name_any() == name).await;
        (site.pace().await == "10%").then_some(())
    })
    .await;
    site.settle(Some("fast@migration0")).await;
    site.network(false, "its handler has not taken up the change yet").await;
    site.reason(reasons::UPDATE_IN_PROGRESS).await;
    site.report(&reports(Some(FAST))).await;
    site.network(true, FAST).await;
    site.reason(reasons::ALL_COMPONENTS_READY).await;
    eventually("the pace to slow down", async || (site.pace().await == 1).then_some(())).await;

    let mut broken = reports(Some(FAST));
    broken.get_mut("node03").unwrap()["problem"] = json!("migration0 has no address");
    broken.get_mut("node02").unwrap()["unreached"] = json!({ "node04": "timed out" });
    site.report(&broken).await;
    let message = site.network(false, "node03: migration0 has no address").await;
    assert!(
        message.contains("node02: does not reach node04 (timed out)") && !message.contains("node01"),
        "{message}"
    );

    site.set_network(None).await.unwrap();
    site.reason(reasons::UPDATE_IN_PROGRESS).await;
    site.settle(None).await;
    site.report(&reports(None)).await;
    site.reason(reasons::ALL_COMPONENTS_READY).await;
    site.network(true, "the pod network").await;
}

#[tokio::test]
async fn a_canary_that_fails_stops_the_roll_out_and_taking_it_back_mends_it() {
    let site = Site::deployed().await;
    site.define().await;
    site.set_network(Some("fast")).await.unwrap();
    let canary = eventually("the canary", async || {
        site.kubelets(|pod| !is_updated(pod)).await;
        site.handlers().await.into_iter().find(is_updated)
    })
    .await;
    eventually("the canary to crash", async || {
        let waiting = json!([{ "name": "virt-handler", "image": "i", "imageID": "i", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
        let status = Patch::Merge(json!({ "status": { "containerStatuses": waiting } }));
        site.pods.patch_status(&canary.name_any(), &PatchParams::default(), &status).await.ok()
    })
    .await;
    let status = site.reason(reasons::DEPLOYMENT_FAILED).await.status.unwrap();
    let degraded = condition::find(&status.conditions, conditions::DEGRADED).unwrap();
    assert!(degraded.message.as_deref().unwrap().contains(&canary.name_any()), "{degraded:?}");
    assert_eq!(site.handlers().await.iter().filter(|pod| is_updated(pod)).count(), 1);
    site.set_network(None).await.unwrap();
    site.settle(None).await;
    site.report(&reports(None)).await;
    site.reason(reasons::ALL_COMPONENTS_READY).await;
}

#[tokio::test]
async fn a_network_that_cannot_be_is_refused_with_its_field() {
    let site = Site::new().await;
    site.cluster.start_with_webhooks().await;
    let refused = site.set_network(Some("fast")).await.unwrap_err().to_string();
    assert!(
        refused.contains(
            "spec.configuration.migrations.network: there is no NetworkAttachmentDefinition kubevirt/fast"
        ),
        "{refused}"
    );
    site.define().await;
    let both = json!({ "spec": { "configuration": { "migrations": { "network": "fast" }, "network": { "roles":
        [{ "networkAttachmentDefinition": "slow", "role": "migration" }] } } } });
    let patch = |patch: Value| async {
        site.installations.patch("kubevirt", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let refused = patch(both).await.unwrap_err().to_string();
    assert!(refused.contains("set one of them, or both to the same network"), "{refused}");
    let role = json!({ "spec": { "configuration": { "network": { "roles":
        [{ "networkAttachmentDefinition": "fast", "role": "storage" }] } } } });
    let refused = patch(role).await.unwrap_err().to_string();
    assert!(
        refused.contains("spec.configuration.network.roles[0].role") && refused.contains("storage"),
        "{refused}"
    );
    site.set_network(Some("fast")).await.unwrap();
}

#[tokio::test]
async fn a_second_installation_is_told_that_there_is_one() {
    let site = Site::deployed().await;
    let second = KubeVirt::new("second", object(json!({})));
    site.installations.create(&PostParams::default(), &second).await.unwrap();
    eventually("the second to be told", async || {
        let status = site.installations.get("second").await.unwrap().status?;
        let condition = condition::find(&status.conditions, conditions::SYNCHRONIZED)?;
        (condition.reason.as_deref() == Some(reasons::EXISTING_DEPLOYMENT)).then_some(())
    })
    .await;
}
