//! The controller is killed after every step of a machine's life and started anew: it ends as if nothing had happened.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::kubevirt::{InstancePhase, MigrationPhase, PrintableStatus};
use apiserver::auth::User;
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::support::{Cluster, NAMESPACE, options};

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

const STEPS_OF_A_MOVE: usize = 9;

/// A move; the same whoever is killed on the way.
async fn moving(kill_after: usize) -> usize {
    let cluster = Cluster::with_controller().await;
    cluster.add_node("node02").await;
    let before = cluster.runs_on("wren", "node01").await;
    let source = cluster.pod_of(&before).await;
    let mut saboteur = Saboteur { cluster: &cluster, step: 0, kill_after };
    let migration = cluster.migrate("move", "wren").await;
    saboteur.step_done();
    let target = cluster.target_pod(&migration).await;
    saboteur.step_done();
    cluster.bind(&target, "node02").await;
    saboteur.step_done();
    cluster.pod_runs(&target).await;
    saboteur.step_done();
    cluster.target_listens("wren").await;
    saboteur.step_done();
    cluster.source_begins("wren").await;
    saboteur.step_done();
    cluster.guest_arrives("wren").await;
    saboteur.step_done();
    cluster.source_is_done("wren").await;
    saboteur.step_done();
    cluster.pod_ends(&source, "Succeeded").await;
    saboteur.step_done();
    let done = cluster.migration_phase("move", MigrationPhase::Succeeded).await.status.unwrap();
    assert_eq!(done.phase_transition_timestamps.len(), 7, "killed after {kill_after}: {done:?}");
    let vmi = cluster.ready("wren").await;
    assert_eq!(vmi.uid(), before.uid());
    assert_eq!(vmi.labels()["kubevirt.io/nodeName"], "node02");
    assert!(!vmi.labels().contains_key("kubevirt.io/migrationTargetNodeName"));
    assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some("node02"));
    assert_eq!(cluster.pods_of(&before).await.len(), 2, "killed after {kill_after}: one target pod, not two");
    saboteur.step
}

#[tokio::test]
async fn a_move_ends_in_the_same_state_whenever_the_controller_is_killed() {
    for kill_after in 1..=STEPS_OF_A_MOVE {
        assert_eq!(
            Box::pin(moving(kill_after)).await,
            STEPS_OF_A_MOVE,
            "every step is a place to be killed at"
        );
    }
}

/// A client whose write of this number reaches the API server, and whose answer reaches nobody; nor does anything after it.
fn cut_after(cluster: &Cluster, write: usize, cut: &Arc<Notify>) -> Client {
    let (inner, cut, writes) =
        (cluster.server.service(User::admin()), cut.clone(), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, cut, writes) = (inner.clone(), cut.clone(), writes.clone());
        async move {
            // Events are told after the work, whoever is killed.
            let counts = request.method() != http::Method::GET && !request.uri().path().contains("events");
            let number =
                if counts { writes.fetch_add(1, Ordering::SeqCst) } else { writes.load(Ordering::SeqCst) };
            if number > write {
                std::future::pending::<()>().await;
            }
            let answer = inner.oneshot(request).await;
            if counts && number == write {
                cut.notify_one();
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    Client::new(service, NAMESPACE)
}

/// Goes through something while the controller is killed after so many writes, and started again; whether it came to that.
async fn through_a_kill(cluster: &Cluster, writes: usize, life: impl Future<Output = ()>) -> bool {
    let (cut, was_cut) = (Arc::new(Notify::new()), Cell::new(false));
    let killed = async {
        cut.notified().await;
        was_cut.set(true);
        cluster.restart();
        std::future::pending::<()>().await;
    };
    cluster.kill();
    cluster.start_with(cut_after(cluster, writes, &cut), options("controller-1"));
    tokio::select! { () = life => {}, () = killed => {} }
    was_cut.get()
}

#[tokio::test]
async fn a_move_ends_in_the_same_state_whichever_write_the_controller_is_killed_after() {
    let cluster = Cluster::with_controller().await;
    cluster.add_node("node02").await;
    let before = cluster.runs_on("wren", "node01").await;
    let homes = ["node01", "node02"];
    let mut kills = 0;
    loop {
        let target = homes[(kills + 1) % 2];
        let name = format!("move{kills}");
        let went = async {
            let migration = cluster.migrate(&name, "wren").await;
            cluster.brought_to(&migration, target, MigrationPhase::Succeeded).await;
            let state = cluster.instance("wren").await.status.unwrap().migration_state.unwrap();
            let source = cluster.pods.get(&state.source_pod.unwrap()).await.unwrap();
            cluster.pod_ends(&source, "Succeeded").await;
            cluster.pod_goes(&source).await;
        };
        let was_cut = Box::pin(through_a_kill(&cluster, kills, went)).await;

        let vmi = cluster.ready("wren").await;
        assert_eq!(vmi.uid(), before.uid());
        let labels = vmi.labels();
        assert_eq!(labels["kubevirt.io/nodeName"], target, "killed after write {kills}");
        assert!(!labels.contains_key("kubevirt.io/migrationTargetNodeName"), "killed after write {kills}");
        assert_eq!(vmi.status.as_ref().unwrap().node_name.as_deref(), Some(target));
        assert_eq!(cluster.pods_of(&vmi).await.len(), 1, "killed after write {kills}: one pod is left");
        let status = cluster.migrations().get(&name).await.unwrap().status.unwrap();
        assert_eq!(status.phase_transition_timestamps.len(), 7, "killed after write {kills}: {status:?}");
        if !was_cut {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 12, "a move has more writes than {kills}, and each is a place to be killed at");
}

#[tokio::test]
async fn a_claim_is_one_and_is_let_go_of_whichever_write_the_controller_is_killed_after() {
    let cluster = Cluster::new().await;
    cluster.define_network().await;
    let mut kills = 0;
    loop {
        let name = format!("wren{kills}");
        let lived = crate::claims::short_life(&cluster, &name);
        let was_cut = Box::pin(through_a_kill(&cluster, kills, lived)).await;
        if !was_cut {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 12, "a machine has more writes than {kills}, and each is a place to be killed at");
}
