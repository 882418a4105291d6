//! A lab node on a control plane that is not the lab's: ours alone, or the real one with `GODWIT_TEST_SERVER=kubernetes`.

use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testkit::{Options, Server, TestLab, eventually};

/// The program in the foreground; told to end when dropped, as a person would with Ctrl-C.
struct Joined(Child);

impl Joined {
    fn end(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(self.0.wait().expect("it can be waited for").success(), "it ends well");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_any_api_server_and_leaves_nothing() {
    let server = Server::start(Options::default()).await;
    let place = TestLab::none();
    let mut command = place.command(&["lab", "node", "--name", "worker", "--kubeconfig"]);
    command.arg(server.kubeconfig()).stdout(Stdio::null());
    let mut joined = Joined(command.spawn().expect("godwit runs"));
    let client = server.client().await;
    let nodes = Api::<Node>::all(client.clone());
    eventually("the node to be ready", async || {
        let status = nodes.get_opt("worker").await.ok()??.status?;
        status
            .conditions?
            .iter()
            .find(|condition| condition.type_ == "Ready" && condition.status == "True")
            .cloned()
    })
    .await;

    // Nobody schedules there: the pod names its node.
    let pod = json!({
        "metadata": { "name": "hello", "namespace": "default" },
        "spec": {
            "nodeName": "worker", "restartPolicy": "Never", "automountServiceAccountToken": false,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "hello", "image": "host", "command": ["ip", "-br", "address", "show", "eth0"] }],
        },
    });
    let pods = Api::<Pod>::namespaced(client, "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = eventually("the pod to have run", async || {
        let status = pods.get("hello").await.ok()?.status?;
        (status.phase.as_deref() == Some("Succeeded")).then_some(status)
    })
    .await;
    assert!(status.pod_ip.is_some_and(|address| address.starts_with("10.244.")));

    let directory = place.directory().with_file_name("worker");
    assert!(directory.exists());
    joined.end();
    assert!(!directory.exists(), "the node is gone when the command has ended");
}
