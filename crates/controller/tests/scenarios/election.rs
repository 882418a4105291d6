//! Two replicas, one leader.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use testkit::eventually;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Cluster, INSTALLATION, QUICK, options};

struct Replica {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn replica(cluster: &Cluster, identity: &str) -> Replica {
    let mut options = options(identity);
    options.election = Some(QUICK);
    let (stop, stopped) = oneshot::channel();
    let running = controller::run(cluster.client.clone(), options, async move {
        // Dropping the sender is no word to stop.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    let task = tokio::spawn(async move { running.await.unwrap() });
    Replica { stop: Some(stop), task }
}

async fn holder(cluster: &Cluster, expected: &str) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    eventually(&format!("{expected} to lead"), async || {
        let lease = leases.get_opt("virt-controller").await.unwrap()?;
        (lease.spec?.holder_identity? == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn when_the_leader_is_killed_another_replica_takes_over_and_goes_on() {
    let cluster = Cluster::new().await;
    let first = replica(&cluster, "controller-1");
    holder(&cluster, "controller-1").await;
    let second = replica(&cluster, "controller-2");
    cluster.create_machine("wren", "Always").await;
    cluster.run("wren").await;
    holder(&cluster, "controller-1").await;

    drop(first);
    holder(&cluster, "controller-2").await;
    cluster.create_machine("robin", "Always").await;
    cluster.run("robin").await;
    drop(second);
}

#[tokio::test]
async fn a_leader_that_is_stopped_gives_the_lease_back() {
    let cluster = Cluster::new().await;
    let mut first = replica(&cluster, "controller-1");
    holder(&cluster, "controller-1").await;
    first.stop.take().unwrap().send(()).unwrap();
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    eventually("the lease to be free", async || {
        let lease = leases.get("virt-controller").await.unwrap();
        lease.spec?.holder_identity.is_none().then_some(())
    })
    .await;
}
