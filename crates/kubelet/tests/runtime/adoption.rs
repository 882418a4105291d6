//! Agents, shims and nodes that end, and agents that come after them.

use std::fs;
use std::path::Path;

use kubelet::runtime::{ContainerId, Error, Exit, Runtime, State};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Node, eventually, id, isolated, pid, processes, script, sleeper, wrote};

/// Something that an agent does, on the container's directory.
type Step = fn(&Path);

fn shim(node: &Node, id: &ContainerId) -> Pid {
    let text = fs::read_to_string(node.container_directory(id).join("shim.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    Pid::from_raw(i32::try_from(record["pid"].as_i64().unwrap()).unwrap())
}

fn assert_unknown(exit: &Exit) {
    assert_eq!((exit.code, exit.reason.as_str()), (137, "ContainerStatusUnknown"));
}

#[test]
fn an_agent_that_starts_again_has_its_containers() {
    isolated("adoption::an_agent_that_starts_again_has_its_containers", async |node| {
        let first = node.open();
        let (one, two) = (sleeper("one"), script("two", "exit 5"));
        first.start(&one).await.unwrap();
        first.start(&two).await.unwrap();
        first.wait(&two.id).await.unwrap();
        let before = pid(&first, &one.id).await;
        drop(first);

        let second = node.open();
        let listed = second.list().await.unwrap();
        assert!(matches!(listed[0], (ref id, State::Running { pid, .. }) if *id == one.id && pid == before));
        assert!(matches!(listed[1], (ref id, State::Exited(ref exit)) if *id == two.id && exit.code == 5));
        second.start(&one).await.unwrap();
        assert_eq!(pid(&second, &one.id).await, before);
        let waiting = second.wait(&one.id);
        wrote(&second, &one.id, "ready").await;
        second.signal(&one.id, nix::libc::SIGTERM).await.unwrap();
        assert_eq!(waiting.await.unwrap().code, 7);
        for id in [&one.id, &two.id] {
            second.remove(id).await.unwrap();
        }
    });
}

#[test]
fn a_container_whose_shim_is_killed_is_ended() {
    isolated("adoption::a_container_whose_shim_is_killed_is_ended", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        let waiting = tokio::spawn({
            let (runtime, id) = (runtime.clone(), container.id.clone());
            async move { runtime.wait(&id).await.unwrap() }
        });
        kill(shim(&node, &container.id), Signal::SIGKILL).unwrap();
        let exit = waiting.await.unwrap();
        assert_unknown(&exit);
        assert_eq!(processes(), Vec::<String>::new());
        assert_eq!(runtime.state(&container.id).await.unwrap(), Some(State::Exited(exit)));
        runtime.remove(&container.id).await.unwrap();
    });
}

#[test]
fn a_container_that_is_killed_from_outside_has_ended() {
    isolated("adoption::a_container_that_is_killed_from_outside_has_ended", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        let first = pid(&runtime, &container.id).await;
        kill(Pid::from_raw(i32::try_from(first).unwrap()), Signal::SIGKILL).unwrap();
        let exit = runtime.wait(&container.id).await.unwrap();
        assert_eq!((exit.code, exit.reason.as_str()), (137, "Error"));
        runtime.remove(&container.id).await.unwrap();
    });
}

/// As after a power cut: no process, no mount, nothing in /run; only the state is there.
async fn cut_power(node: &Node, runtime: &Runtime, id: &ContainerId) {
    let first = pid(runtime, id).await;
    kill(shim(node, id), Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(i32::try_from(first).unwrap()), Signal::SIGKILL).unwrap();
    eventually("all is dead", || processes().is_empty()).await;
    nix::mount::umount(&node.container_directory(id).join("bundle/rootfs")).unwrap();
    fs::remove_dir_all(node.state.join("run")).unwrap();
}

#[test]
fn after_a_restart_of_the_node_containers_are_known_to_be_gone() {
    isolated("adoption::after_a_restart_of_the_node_containers_are_known_to_be_gone", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        cut_power(&node, &runtime, &container.id).await;
        drop(runtime);

        let runtime = node.open();
        let exit = runtime.wait(&container.id).await.unwrap();
        assert_unknown(&exit);
        assert_eq!(runtime.list().await.unwrap(), [(container.id.clone(), State::Exited(exit))]);
        runtime.remove(&container.id).await.unwrap();
    });
}

#[test]
fn a_number_that_is_another_processes_now_is_left_alone() {
    isolated("adoption::a_number_that_is_another_processes_now_is_left_alone", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        cut_power(&node, &runtime, &container.id).await;
        // The records name a process that has nothing to do with the container.
        let mut bystander = std::process::Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap();
        for record in ["shim.json", "pid.json"] {
            let path = node.container_directory(&container.id).join(record);
            let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let holder = if record == "pid.json" { &mut value["process"] } else { &mut value };
            holder["pid"] = bystander.id().into();
            fs::write(&path, value.to_string()).unwrap();
        }
        runtime.signal(&container.id, nix::libc::SIGKILL).await.unwrap();
        assert_unknown(&runtime.wait(&container.id).await.unwrap());
        runtime.remove(&container.id).await.unwrap();
        assert_eq!(bystander.try_wait().unwrap(), None, "it lives");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    });
}

#[test]
fn half_made_containers_can_be_started_and_removed() {
    isolated("adoption::half_made_containers_can_be_started_and_removed", async |node| {
        let runtime = node.open();
        let container = script("a", "exit 0");
        let directory = node.container_directory(&container.id);
        // What an agent leaves that is killed after its first, second, … step.
        let steps: [Step; 5] = [
            |directory| fs::create_dir_all(directory.join("bundle")).unwrap(),
            |directory| {
                let task = r#"{"name":"NAME","runtime":"runc","run":"/run/node/run","log":"/run/node/l","cgroup":"/x/y/z"}"#;
                let name = directory.file_name().unwrap().to_str().unwrap();
                fs::write(directory.join("task.json"), task.replace("NAME", name)).unwrap();
            },
            |directory| {
                for part in ["upper", "work", "bundle/rootfs"] {
                    fs::create_dir_all(directory.join(part)).unwrap();
                }
                fs::write(directory.join("upper/old"), "").unwrap();
                let path = directory.display();
                let options = format!("lowerdir=/usr,upperdir={path}/upper,workdir={path}/work");
                let root = directory.join("bundle/rootfs");
                nix::mount::mount(
                    Some("o"),
                    &root,
                    Some("overlay"),
                    nix::mount::MsFlags::empty(),
                    Some(&*options),
                )
                .unwrap();
            },
            |directory| fs::write(directory.join("bundle/config.json"), "{").unwrap(),
            |directory| fs::write(directory.join("lock"), "").unwrap(),
        ];
        for done in 1..=steps.len() {
            for remove in [true, false] {
                steps[..done].iter().for_each(|step| step(&directory));
                assert_eq!(runtime.state(&container.id).await.unwrap(), Some(State::Created));
                assert!(matches!(runtime.wait(&container.id).await, Err(Error::NotRunning { .. })));
                if !remove {
                    runtime.start(&container).await.unwrap();
                    assert_eq!(runtime.wait(&container.id).await.unwrap().code, 0);
                }
                runtime.remove(&container.id).await.unwrap();
                assert_eq!(runtime.state(&id("a")).await.unwrap(), None);
                node.assert_nothing_left();
            }
        }
        assert!(Path::new("/usr/bin").exists(), "what was below the overlay is still there");
    });
}
