//! The manifests: they are accepted, and the controller's rights are what it uses, no more and no less.

use api::kubevirt::{InstancePhase, MigrationPhase, PrintableStatus};
use api::names::ports;
use apiserver::auth::User;
use controller::Options;
use kube::api::{DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use testkit::{Granted, Used, eventually};
use tower::ServiceExt as _;

use crate::certificates;
use crate::support::{Cluster, INSTALLATION, NAMESPACE, QUICK, options};

const MANIFEST: &str = include_str!("../../../../deploy/virt-controller.yaml");

/// The other files that `kubectl apply -f deploy/` applies.
const OTHERS: [&str; 5] = [
    include_str!("../../../../deploy/kubevirt-metrics.yaml"),
    include_str!("../../../../deploy/kubevirt-migrations.yaml"),
    include_str!("../../../../deploy/virt-handler.yaml"),
    include_str!("../../../../deploy/kubevirt.yaml"),
    include_str!("../../../../deploy/godwit-cni.yaml"),
];

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(MANIFEST).unwrap()
}

fn documents_of_all() -> Vec<Value> {
    let others = OTHERS.iter().flat_map(|file| serde_saphyr::from_multiple::<Value>(file).unwrap());
    others.chain(documents()).collect()
}

#[tokio::test]
async fn the_manifests_are_accepted_by_the_api_server_and_applying_them_again_changes_nothing() {
    let cluster = Cluster::new().await;
    for _ in 0..2 {
        for document in documents_of_all() {
            let object: DynamicObject = serde_json::from_value(document).unwrap();
            let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
            let mut resource = kube::core::ApiResource::from_gvk(&kind);
            // The plural of this one is not what grammar makes of it.
            if kind.kind == "KubeVirt" {
                resource.plural = "kubevirts".into();
            }
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(cluster.client.clone(), &namespace, &resource),
                None => Api::all_with(cluster.client.clone(), &resource),
            };
            let strictly = PatchParams {
                field_validation: Some(kube::api::ValidationDirective::Strict),
                ..PatchParams::apply("test")
            };
            let applied = api.patch(&object.name_any(), &strictly, &Patch::Apply(&object)).await;
            let applied = applied.unwrap_or_else(|error| panic!("{}: {error}", kind.kind));
            assert!(applied.metadata.generation.unwrap_or(1) == 1, "{} changed", kind.kind);
        }
    }
}

#[test]
fn the_port_is_the_one_that_everybody_knows() {
    let deployment = documents().into_iter().find(|document| document["kind"] == "Deployment").unwrap();
    let port = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"];
    assert_eq!(*port, ports::WEBHOOKS);
}

/// A VM is evicted, moves without TLS, and is moved again until the oldest of its migrations is forgotten.
async fn moves(cluster: &Cluster) {
    cluster.configure(serde_json::json!({ "migrations": { "disableTLS": true } })).await;
    cluster.create_policy("patient", serde_json::json!({}), serde_json::json!({})).await;
    let mut evicted = crate::support::instance("dove");
    evicted.spec.eviction_strategy = Some(api::kubevirt::EvictionStrategy::LiveMigrate);
    cluster.instances.create(&PostParams::default(), &evicted).await.unwrap();
    let vmi = cluster.run("dove").await;
    let pod = cluster.pod_of(&vmi).await;
    let eviction = EvictParams::default();
    cluster.pods.evict(&pod.name_any(), &eviction).await.unwrap_err();
    let made = eventually("the evacuation", async || {
        cluster.migrations().list(&ListParams::default()).await.unwrap().items.pop()
    })
    .await;
    cluster.brought_to(&made, "node02", MigrationPhase::Succeeded).await;
    for index in 0..5 {
        let again = cluster.migrate(&format!("again{index}"), "dove").await;
        let target = cluster.target_pod(&again).await;
        cluster.pod_goes(&target).await;
        cluster.migration_phase(&again.name_any(), MigrationPhase::Failed).await;
    }
    eventually("the oldest to be forgotten", async || {
        let left = cluster.migrations().list(&ListParams::default()).await.unwrap().items.len();
        (left == 5).then_some(())
    })
    .await;
}

/// An installation with a migration network.
async fn install(cluster: &Cluster) {
    let definition = serde_json::json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "fast" }, "spec": { "config": "{}" },
    });
    let definitions: Api<api::multus::NetworkAttachmentDefinition> =
        Api::namespaced(cluster.client.clone(), INSTALLATION);
    let definition = crate::support::object(definition);
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let spec = serde_json::json!({ "configuration": { "migrations": { "network": "fast" } } });
    let installation = api::kubevirt::KubeVirt::new("kubevirt", crate::support::object(spec));
    let installations: Api<api::kubevirt::KubeVirt> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    installations.create(&PostParams::default(), &installation).await.unwrap();
}

/// A controller whose requests are noted.
async fn observed(used: &Used, operator: bool) -> Cluster {
    let cluster = Cluster::new().await;
    if operator {
        install(&cluster).await;
        certificates::seed(&cluster, &certificates::old_authority(), None).await;
    }
    crate::claims::leave_an_address(&cluster).await;
    let record = used.clone();
    let service = cluster
        .server
        .service(User::admin())
        .map_request(move |request: http::Request<kube::client::Body>| record.note(request));
    let webhook = Some(cluster.webhook());
    let options = Options { webhook, election: Some(QUICK), operator, ..options("controller-1") };
    cluster.start_with(Client::new(service, NAMESPACE), options);
    cluster.registered().await;
    cluster
}

/// Everything that a controller asks for while machines live and die, move, and their network changes.
async fn rights_used() -> Used {
    let used = Used::default();
    Box::pin(machines(&observed(&used, true).await, &used)).await;
    // The operator's part is played by the test, which also says when.
    let cluster = observed(&used, false).await;
    Box::pin(crate::setting::whole_life(&cluster)).await;
    Box::pin(moves(&cluster)).await;
    cluster.define_network().await;
    Box::pin(crate::claims::life_of_a_claim(&cluster)).await;
    cluster.kill();
    used
}

async fn machines(cluster: &Cluster, used: &Used) {
    let request = identity::Request::new("node01").unwrap();
    let pod = certificates::handler(cluster, "node01").await;
    certificates::ask(certificates::client(cluster, certificates::HANDLER, &pod), &request).await;

    cluster.create_machine("wren", "Always").await;
    let first = cluster.run("wren").await;
    cluster.printable("wren", PrintableStatus::Running).await;
    let pod = cluster.pod_of(&first).await;
    // The node is asked for when a pod is gone; the end of the machine deletes instance and pod.
    cluster.lose_node("node01").await;
    cluster.pod_goes(&pod).await;
    cluster.phase("wren", InstancePhase::Failed).await;
    cluster.delete_machine("wren").await;
    cluster.machine_gone("wren").await;
    let with_claim = serde_json::json!({
        "domain": { "memory": { "guest": "64Mi" }, "devices": { "disks": [{ "name": "root" }] } },
        "volumes": [{ "name": "root", "persistentVolumeClaim": { "claimName": "root" } }],
    });
    let mut waiting = crate::support::instance("finch");
    waiting.spec = serde_json::from_value(with_claim).unwrap();
    cluster.instances.create(&PostParams::default(), &waiting).await.unwrap();
    let deleted = cluster.create_instance("robin").await;
    cluster.pod_of(&deleted).await;
    cluster.delete_instance("robin").await;
    cluster.pod_ends_when_told(&deleted).await;
    cluster.instance_gone(&deleted).await;
    eventually("the lease to be renewed, and an event and the installation's status written", async || {
        let claims = used.all().iter().any(|right| right.resource == "persistentvolumeclaims");
        let told = used.has("update", "kubevirts/status");
        (used.has("update", "leases") && claims && told).then_some(())
    })
    .await;
    cluster.kill();
}

#[tokio::test]
async fn the_controller_has_every_right_that_it_uses_and_none_that_it_does_not() {
    let used = Box::pin(rights_used()).await;
    // What no request shows: a pod of the name is looked at only when making it collides, an event is patched when it repeats,
    // and the API server turns an apply into a create.
    let unseen = |resource: &str, verb: &str| {
        matches!((resource, verb), ("pods", "get") | ("events", "patch"))
            || verb == "create"
                && (resource.ends_with("webhookconfigurations")
                    || matches!(resource, "daemonsets" | "configmaps" | "network-attachment-definitions"))
            // Asked by the API server itself, when the answer to a request is written.
            || resource == "signers"
    };
    Granted::by(&documents()).are_exactly(&used, unseen);
}
