//! The manifests: they are accepted, and the controller's rights are what it uses, no more and no less.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use api::kubevirt::{InstancePhase, MigrationPhase, PrintableStatus};
use api::names::ports;
use apiserver::auth::User;
use controller::Options;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use testkit::eventually;
use tower::ServiceExt as _;

use crate::certificates;
use crate::support::{Cluster, INSTALLATION, NAMESPACE, QUICK, options};

const MANIFEST: &str = include_str!("../../../../deploy/virt-controller.yaml");

/// The other files that `kubectl apply -f deploy/` applies.
const OTHERS: [&str; 2] =
    [include_str!("../../../../deploy/virt-handler.yaml"), include_str!("../../../../deploy/kubevirt.yaml")];

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(MANIFEST).unwrap()
}

fn documents_of_all() -> Vec<Value> {
    let others = OTHERS.iter().flat_map(|file| serde_saphyr::from_multiple::<Value>(file).unwrap());
    documents().into_iter().chain(others).collect()
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

/// One right: verb, group, resource, and whether it is needed only in the installation's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: String,
    group: String,
    resource: String,
    own_namespace: bool,
    /// Empty: the request names none.
    name: String,
}

/// What a request asks for, as an authoriser reads it.
fn right(method: &http::Method, uri: &http::Uri) -> Right {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => panic!("{uri}"),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, name) = match rest {
        [resource] => ((*resource).to_owned(), ""),
        [resource, name] => ((*resource).to_owned(), *name),
        [resource, name, below] => (format!("{resource}/{below}"), *name),
        _ => panic!("{uri}"),
    };
    let watching = uri.query().is_some_and(|query| query.contains("watch=true"));
    let verb = match (method.as_str(), name.is_empty(), watching) {
        ("GET", true, true) => "watch",
        ("GET", true, false) => "list",
        ("GET", false, _) => "get",
        ("POST", ..) => "create",
        ("PUT", ..) => "update",
        ("PATCH", ..) => "patch",
        ("DELETE", ..) => "delete",
        _ => panic!("{method} {uri}"),
    };
    let own_namespace = namespace == INSTALLATION || resource == "namespaces" && name == INSTALLATION;
    Right { verb: verb.to_owned(), group: group.to_owned(), resource, own_namespace, name: name.to_owned() }
}

/// The rules of the manifest: those of the cluster, then those of the installation's namespace.
fn rules(kind: &str) -> Vec<PolicyRule> {
    let role = documents().into_iter().find(|document| document["kind"] == kind).unwrap();
    serde_json::from_value(role["rules"].clone()).unwrap()
}

fn grants(rule: &PolicyRule, right: &Right) -> bool {
    let has = |list: &Option<Vec<String>>, value: &str| list.iter().flatten().any(|entry| entry == value);
    has(&rule.api_groups, &right.group)
        && has(&rule.resources, &right.resource)
        && rule.verbs.contains(&right.verb)
        && rule.resource_names.as_ref().is_none_or(|names| names.contains(&right.name))
}

/// A VM is evicted, moves without TLS, and is moved again until the oldest of its migrations is forgotten.
async fn moves(cluster: &Cluster) {
    cluster.configure(serde_json::json!({ "migrations": { "disableTLS": true } })).await;
    cluster.create_policy("patient", serde_json::json!({}), serde_json::json!({})).await;
    cluster.add_node("node02").await;
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
    cluster.migration_gone(&made.name_any()).await;
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
    definitions.create(&kube::api::PostParams::default(), &definition).await.unwrap();
    let spec = serde_json::json!({ "configuration": { "migrations": { "network": "fast" } } });
    let installation = api::kubevirt::KubeVirt::new("kubevirt", crate::support::object(spec));
    let installations: Api<api::kubevirt::KubeVirt> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    installations.create(&kube::api::PostParams::default(), &installation).await.unwrap();
}

/// Everything that a controller asks for while machines live and die.
async fn rights_used() -> BTreeSet<Right> {
    let cluster = Cluster::new().await;
    let used: Arc<Mutex<BTreeSet<Right>>> = Arc::default();
    let record = Arc::clone(&used);
    let service = cluster.server.service(User::admin()).map_request(
        move |request: http::Request<kube::client::Body>| {
            record.lock().unwrap().insert(right(request.method(), request.uri()));
            request
        },
    );
    let client = Client::new(service, NAMESPACE);
    install(&cluster).await;
    let webhook = Some(cluster.webhook());
    cluster.start_with(client, Options { webhook, election: Some(QUICK), ..options("controller-1") });
    cluster.registered().await;
    let request = identity::Request::new("node01").unwrap();
    let pod = certificates::handler(&cluster, "node01").await;
    certificates::ask(certificates::client(&cluster, certificates::HANDLER, &pod), &request).await;

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
    crate::setting::whole_life(&cluster).await;
    Box::pin(moves(&cluster)).await;
    eventually("the lease to be renewed, and an event and the installation's status written", async || {
        let used = used.lock().unwrap();
        let told = used.iter().any(|right| right.resource == "kubevirts/status");
        let renewed = used.iter().any(|right| right.resource == "leases" && right.verb == "update");
        let claims = used.iter().any(|right| right.resource == "persistentvolumeclaims");
        (renewed && claims && told).then_some(())
    })
    .await;
    cluster.kill();
    std::mem::take(&mut *used.lock().unwrap())
}

#[tokio::test]
async fn the_controller_has_every_right_that_it_uses_and_none_that_it_does_not() {
    let used = Box::pin(rights_used()).await;
    let (everywhere, own) = (rules("ClusterRole"), rules("Role"));
    for right in &used {
        let granted = everywhere.iter().any(|rule| grants(rule, right))
            || right.own_namespace && own.iter().any(|rule| grants(rule, right));
        assert!(granted, "the manifest does not grant {right:?}");
    }
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
    for rule in everywhere.iter().chain(&own) {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let uses = |right: &&Right| {
                    right.resource == *resource && right.verb == *verb && grants(rule, right)
                };
                assert!(
                    unseen(resource, verb) || used.iter().any(|right| uses(&right)),
                    "nothing needs the right to {verb} {resource}"
                );
            }
        }
    }
}
