//! Pods get an account and its token, where the server is told so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

use apiserver::{ApiServer, Options};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use testkit::eventually;

async fn server(service_accounts: bool) -> (ApiServer, Client) {
    let server = ApiServer::start(Options { service_accounts, ..Options::default() }).await.unwrap();
    let client = server.client("default");
    let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
    eventually("the default account", async || accounts.get_opt("default").await.unwrap()).await;
    (server, client)
}

async fn create(client: &Client, name: &str, spec: serde_json::Value) -> kube::Result<Pod> {
    let pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
    Api::<Pod>::default_namespaced(client.clone()).create(&PostParams::default(), &pod).await
}

#[tokio::test]
async fn a_pod_gets_the_default_account_and_a_token_in_every_container() {
    let (_server, client) = server(true).await;
    let spec = json!({ "initContainers": [{ "name": "i", "image": "x" }], "containers": [{ "name": "c", "image": "x" }] });
    let spec = create(&client, "plain", spec).await.unwrap().spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    let volume = spec.volumes.unwrap().pop().unwrap();
    assert!(volume.name.starts_with("kube-api-access-"));
    assert_eq!(volume.projected.unwrap().sources.unwrap().len(), 3);
    let init = spec.init_containers.unwrap();
    for container in init.iter().chain(&spec.containers) {
        let mount = &container.volume_mounts.as_ref().unwrap()[0];
        assert_eq!((mount.name.as_str(), mount.read_only), (volume.name.as_str(), Some(true)));
        assert_eq!(mount.mount_path, "/var/run/secrets/kubernetes.io/serviceaccount");
    }
}

#[tokio::test]
async fn nobody_gets_a_token_that_is_not_wanted() {
    let (_server, client) = server(true).await;
    let containers = json!([{ "name": "c", "image": "x" }]);
    let unwanted = json!({ "automountServiceAccountToken": false, "containers": containers });
    assert!(create(&client, "unwanted", unwanted).await.unwrap().spec.unwrap().volumes.is_none());
    let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
    let quiet = json!({ "metadata": { "name": "quiet" }, "automountServiceAccountToken": false });
    accounts.create(&PostParams::default(), &serde_json::from_value(quiet).unwrap()).await.unwrap();
    let of_quiet = json!({ "serviceAccountName": "quiet", "containers": containers });
    assert!(create(&client, "of-quiet", of_quiet).await.unwrap().spec.unwrap().volumes.is_none());
    let own = json!({ "containers": [{ "name": "c", "image": "x", "volumeMounts":
        [{ "name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }] }],
        "volumes": [{ "name": "own", "emptyDir": {} }] });
    assert_eq!(create(&client, "own", own).await.unwrap().spec.unwrap().volumes.unwrap().len(), 1);
}

#[tokio::test]
async fn an_account_that_is_not_there_is_an_error_that_names_it() {
    let (_server, client) = server(true).await;
    let spec = json!({ "serviceAccountName": "ghost", "containers": [{ "name": "c", "image": "x" }] });
    let Err(kube::Error::Api(status)) = create(&client, "lost", spec).await else { panic!("it is refused") };
    assert_eq!(status.code, 403);
    assert!(
        status.message.contains(r#"service account default/ghost: serviceaccount "ghost" not found"#),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_server_without_accounts_leaves_pods_as_they_are() {
    let (_server, client) = server(false).await;
    let spec = create(&client, "plain", json!({ "containers": [{ "name": "c", "image": "x" }] }))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!((spec.service_account_name, spec.volumes), (None, None));
}
