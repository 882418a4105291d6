//! An agent is killed at every moment of a start, with and without its shim; the next one starts or removes the same
//! container, and nothing is left.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use kubelet::runtime::{Container, State};

use crate::fixture::{Node, id, isolated, processes, script};

const STATE: &str = "GODWIT_TEST_STATE";
const CGROUP: &str = "GODWIT_TEST_CGROUP";
/// From one moment to the next.
const STEP: Duration = Duration::from_millis(6);

fn container() -> Container {
    script("a", "echo ready; exec sleep 1000")
}

/// The agent that is killed: it starts the container and stays.
pub fn agent() {
    let state = std::env::var_os(STATE).expect("this is no test: a test starts it");
    let node = Node { state: state.into(), cgroup: std::env::var(CGROUP).unwrap() };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        node.open().start(&container()).await.unwrap();
        std::future::pending::<()>().await;
    });
}

fn start_agent(node: &Node) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["become_the_agent", "--exact", "--ignored", "--nocapture"])
        .env(STATE, &node.state)
        .env(CGROUP, &node.cgroup)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills all that runs at that moment: the agent's whole tree.
fn kill_all() {
    for process in processes() {
        let pid = process.split(' ').next().unwrap().parse().unwrap();
        // It may have ended since it was listed.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Kills at one moment after another, until the start was over before the kill.
async fn sweep(node: Node, all: bool) {
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    for step in 0..200 {
        let mut agent = start_agent(&node);
        let moment = Instant::now() + STEP * step;
        // The one place where time itself is what is tested.
        tokio::time::sleep_until(moment.into()).await;
        agent.kill().unwrap();
        agent.wait().unwrap();
        if all {
            kill_all();
        }
        let runtime = node.open();
        let found = runtime.state(&id("a")).await.unwrap();
        let name = match &found {
            None => "nothing",
            Some(State::Created) => "created",
            Some(State::Running { .. }) => "running",
            Some(State::Exited(_)) => "exited",
        };
        *seen.entry(name).or_default() += 1;
        if step % 2 == 0 {
            runtime.start(&container()).await.unwrap();
            match runtime.state(&id("a")).await.unwrap() {
                Some(State::Running { .. }) => {}
                Some(State::Exited(exit)) if all => assert_eq!(exit.reason, "ContainerStatusUnknown"),
                other => panic!("after {step} steps it was {found:?} and is {other:?}"),
            }
        }
        runtime.remove(&id("a")).await.unwrap();
        node.assert_nothing_left();
        if *seen.get(if all { "exited" } else { "running" }).unwrap_or(&0) > 5 {
            break;
        }
    }
    assert!(seen.contains_key("created"), "the kill came in the middle at least once: {seen:?}");
}

#[test]
fn the_agent_is_killed_at_any_moment() {
    isolated("crash::the_agent_is_killed_at_any_moment", async |node| sweep(node, false).await);
}

#[test]
fn everything_is_killed_at_any_moment() {
    isolated("crash::everything_is_killed_at_any_moment", async |node| sweep(node, true).await);
}
