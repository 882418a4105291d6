//! The controller is killed after every step of a machine's life and started anew: it ends as if nothing had happened.

use api::kubevirt::{InstancePhase, PrintableStatus};
use kube::ResourceExt as _;

use crate::support::Cluster;

/// Kills the controller after the step of this number, and starts another.
struct Saboteur<'a> {
    cluster: &'a Cluster,
    step: usize,
    kill_after: usize,
}

impl Saboteur<'_> {
    fn step_done(&mut self) {
        self.step += 1;
        if self.step == self.kill_after {
            self.cluster.restart();
        }
    }
}

const STEPS: usize = 7;

/// A machine's life; the same whoever is killed on the way.
async fn life(kill_after: usize) -> usize {
    let cluster = Cluster::with_controller().await;
    let mut saboteur = Saboteur { cluster: &cluster, step: 0, kill_after };
    cluster.create_machine("wren", "Always").await;
    saboteur.step_done();
    let instance = cluster.instance("wren").await;
    saboteur.step_done();
    let pod = cluster.pod_of(&instance).await;
    saboteur.step_done();
    cluster.run_pod(&pod, "node01").await;
    saboteur.step_done();
    cluster.phase("wren", InstancePhase::Scheduled).await;
    cluster.handler_says("wren", InstancePhase::Running).await;
    saboteur.step_done();
    cluster.printable("wren", PrintableStatus::Running).await;
    let running = cluster.ready("wren").await;
    assert_eq!(running.uid(), instance.uid(), "killed after {kill_after}: one instance, not two");
    let pods = cluster.pods_of(&running).await;
    assert_eq!(pods.len(), 1, "killed after {kill_after}: one pod, not two");
    assert_eq!(pods[0].uid(), pod.uid());

    cluster.delete_machine("wren").await;
    saboteur.step_done();
    cluster.pod_ends_when_told(&running).await;
    saboteur.step_done();
    cluster.machine_gone("wren").await;
    cluster.instance_gone(&running).await;
    saboteur.step
}

#[tokio::test]
async fn a_controller_killed_after_any_step_ends_in_the_same_state() {
    for kill_after in 0..=STEPS {
        assert_eq!(Box::pin(life(kill_after)).await, STEPS, "every step is a place to be killed at");
    }
}

#[tokio::test]
async fn a_controller_that_was_away_while_everything_happened_catches_up() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let running = cluster.run("wren").await;
    cluster.kill();
    let pod = cluster.pod_of(&running).await;
    cluster.handler_says("wren", InstancePhase::Succeeded).await;
    cluster.pod_ends(&pod, "Succeeded").await;
    cluster.start();
    cluster.next_instance(&running).await;
    cluster.run("wren").await;
    cluster.printable("wren", PrintableStatus::Running).await;
}
