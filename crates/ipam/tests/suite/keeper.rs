//! The plugin as its pod installs it on a node: asked through the keeper, and without it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Leash, Options, Signal, eventually};

use crate::world::{Interface, World};

/// A node with the pod that installs, which is a process here.
struct Node {
    pod: Leash,
    directory: TempDir,
}

impl Node {
    /// `server` is where the pod is told that the API server is.
    async fn new(world: &World, server: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let accounts: Api<ServiceAccount> = Api::default_namespaced(world.client.clone());
        let account = serde_json::from_value(json!({ "metadata": { "name": "godwit-cni" } })).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let request = TokenRequest::default();
        let token =
            accounts.create_token_request("godwit-cni", &PostParams::default(), &request).await.unwrap();
        std::fs::write(path("token"), token.status.unwrap().token.unwrap()).unwrap();
        std::fs::write(path("ca.crt"), authority(&world.server.kubeconfig())).unwrap();
        let variables = [
            format!("KUBERNETES_SERVICE_HOST={}", server.ip()),
            format!("KUBERNETES_SERVICE_PORT={}", server.port()),
            format!("GODWIT_SERVICE_ACCOUNT={}", directory.path().display()),
        ];
        let program = testkit::program("godwit-cni", "GODWIT_CNI_BIN").display().to_string();
        let install = [program, "install".into(), path("plugins"), path("settings"), "godwit-ipam".into()];
        let command: Vec<String> = ["env".to_owned()].into_iter().chain(variables).chain(install).collect();
        let pod = Leash::start(&directory.path().join("settings"), &directory.path().join("log"), &command);
        let node = Self { pod, directory };
        eventually("the keeper to listen", async || node.socket().exists().then_some(())).await;
        node
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("settings/keeper.sock")
    }

    /// What a network's definition says on this node, with a kubeconfig of this name.
    fn config(&self, world: &World, kubeconfig: &str) -> Value {
        let kubeconfig = self.directory.path().join("settings").join(kubeconfig);
        world.config(json!({ "range": "10.1.0.0/24", "kubernetes": { "kubeconfig": kubeconfig } }))
    }
}

fn authority(kubeconfig: &Path) -> Vec<u8> {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let cluster = read.clusters.into_iter().find_map(|named| named.cluster).unwrap();
    STANDARD.decode(cluster.certificate_authority_data.unwrap()).unwrap()
}

#[tokio::test]
async fn the_keeper_is_asked_while_it_is_there_and_the_api_server_when_it_is_not() {
    let mut world = World::with(Options { durable: true, ..Options::default() }).await;
    let node = Node::new(&world, world.server.address().await).await;
    let mode = std::fs::metadata(node.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what it may is for root alone");
    // Without a kubeconfig that could be read, the keeper is the only way.
    let through_keeper = node.config(&world, "none.kubeconfig");
    let first = world.add(&Interface::of("first"), &through_keeper).ip();
    assert_eq!(world.owned().await, [first]);

    // Its connection breaks with the server; the next request has another.
    world.server.kill().await;
    let second = world.add(&Interface::of("second"), &through_keeper).ip();
    assert_ne!(first, second);

    let alone = node.config(&world, "godwit.kubeconfig");
    node.pod.stop(Signal::Kill).await;
    let (_, text) = world.add(&Interface::of("third"), &through_keeper).error();
    assert!(text.contains("none.kubeconfig"), "{text}");
    let third = world.add(&Interface::of("third"), &alone).ip();
    for (pod, address) in [("first", first), ("second", second), ("third", third)] {
        assert_eq!(world.owner(address).await, Some(Interface::of(pod).owner("node-1")));
        world.del(&Interface::of(pod), &alone);
    }
    assert_eq!(world.owned().await, [] as [IpAddr; 0]);
}

#[tokio::test]
async fn a_keeper_that_reaches_nobody_says_so() {
    let world = World::new().await;
    // A port that nobody listens on any more.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = Node::new(&world, nobody).await;
    let (_, text) = world.add(&Interface::of("first"), &node.config(&world, "none.kubeconfig")).error();
    assert!(text.contains("the API server was not reached by the keeper of this node"), "{text}");
    assert_eq!(world.owned().await, [] as [IpAddr; 0]);
}
