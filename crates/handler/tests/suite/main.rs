//! The whole handler as a process that can be killed, against an API server, real CNI plugins in namespaces, and launchers that say what
//! the test says. Every test runs in process, mount and network namespaces of its own, which the kernel ends with it.
//! Needs root and `tools/setup`; without them it fails, and says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod garbage;
mod launchers;
mod node;
mod proxy;
mod relay;
mod rights;
mod road;

use std::path::Path;

/// Where the process that becomes the handler finds its node.
const NODE_DIRECTORY: &str = "GODWIT_TEST_NODE";

#[test]
#[ignore = "not a test: the handler of the tests"]
fn become_the_handler() {
    let directory = std::env::var(NODE_DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    // Shown when the test fails.
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let kubeconfig = kube::config::Kubeconfig::read_from(directory.join("kubeconfig")).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
                .await
                .unwrap();
        let options = options(directory, config.try_into().unwrap());
        handler::run(options, std::future::pending()).await.unwrap();
    });
}

/// Those of a handler of the node in this directory.
fn options(directory: &Path, client: kube::Client) -> handler::Options {
    handler::Options {
        node: node::NODE.to_owned(),
        client,
        kubelet: directory.join("kubelet"),
        cni_configurations: directory.join("net.d"),
        cni_plugins: vec![directory.join("bin"), "/usr/lib/cni".into()],
        cni_processes: cni::Processes::beside(1),
        namespaces: "/run/netns".into(),
        state: directory.join("handler"),
        road: handler::road::Options {
            namespace: "kubevirt".to_owned(),
            pod: [127, 0, 0, 1].into(),
            network_status: directory.join("network-status"),
            made_with: None,
            port: api::names::ports::MIGRATION_TUNNEL,
            health: api::names::ports::METRICS,
        },
    }
}

#[test]
#[ignore = "not a test: a process in a pod of the tests"]
fn become_a_relay() {
    relay::run();
}
