//! The manifest of the controller: it is accepted, and its rights are what the controller uses, no more and no less.

use api::kubevirt::{InstancePhase, PrintableStatus};
use api::names::ports;
use apiserver::auth::User;
use controller::Options;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use testkit::{Granted, Used, eventually};
use tower::ServiceExt as _;

use crate::support::{Cluster, INSTALLATION, NAMESPACE, QUICK, options};

const MANIFEST: &str = include_str!("../../../../deploy/virt-controller.yaml");

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(MANIFEST).unwrap()
}

#[tokio::test]
async fn the_manifest_is_accepted_by_the_api_server_and_applying_it_again_changes_nothing() {
    let cluster = Cluster::new().await;
    for _ in 0..2 {
        for document in documents() {
            let object: DynamicObject = serde_json::from_value(document).unwrap();
            let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
            let resource = kube::core::ApiResource::from_gvk(&kind);
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

/// Everything that a controller asks for while machines live and die.
async fn rights_used() -> Used {
    let cluster = Cluster::new().await;
    let used = Used::default();
    let record = used.clone();
    let service = cluster
        .server
        .service(User::admin())
        .map_request(move |request: http::Request<kube::client::Body>| record.note(request));
    let client = Client::new(service, NAMESPACE);
    let webhook = Some(cluster.webhook());
    cluster.start_with(client, Options { webhook, election: Some(QUICK), ..options("controller-1") });
    cluster.registered().await;

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
    cluster.instances.create(&kube::api::PostParams::default(), &waiting).await.unwrap();
    let deleted = cluster.create_instance("robin").await;
    cluster.pod_of(&deleted).await;
    cluster.delete_instance("robin").await;
    cluster.pod_ends_when_told(&deleted).await;
    cluster.instance_gone(&deleted).await;
    eventually("the lease to be renewed, and an event written", async || {
        let claims = used.all().iter().any(|right| right.resource == "persistentvolumeclaims");
        (used.has("update", "leases") && claims).then_some(())
    })
    .await;
    cluster.kill();
    used
}

#[tokio::test]
async fn the_controller_has_every_right_that_it_uses_and_none_that_it_does_not() {
    let used = Box::pin(rights_used()).await;
    // What no request shows: a pod of the name is looked at only when making it collides, an event is patched when it repeats,
    // and the API server turns an apply into a create.
    let unseen = |resource: &str, verb: &str| {
        matches!((resource, verb), ("pods", "get") | ("events", "patch"))
            || resource.ends_with("webhookconfigurations") && verb == "create"
    };
    Granted::by(&documents(), INSTALLATION).are_exactly(&used, unseen);
}
