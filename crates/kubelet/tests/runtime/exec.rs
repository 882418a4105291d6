//! Commands in a running container.

use std::time::{Duration, Instant};

use kubelet::runtime::{Error, State, Streams};

use crate::fixture::{LONG, eventually, isolated, processes, sleeper, wrote};

fn shell(text: &str) -> Vec<String> {
    ["/bin/sh", "-c", text].map(str::to_owned).to_vec()
}

#[test]
fn a_command_runs_beside_the_container() {
    isolated("exec::a_command_runs_beside_the_container", async |node| {
        let runtime = node.open();
        let mut container = sleeper("a");
        container.environment = vec![("NAME".into(), "value".into())];
        runtime.start(&container).await.unwrap();
        let result =
            runtime.exec(&container.id, &shell("echo $NAME; echo err >&2; exit 4"), LONG).await.unwrap();
        let output = String::from_utf8(result.output).unwrap();
        let mut lines: Vec<_> = output.lines().collect();
        lines.sort_unstable();
        assert_eq!((result.code, lines), (4, vec!["err", "value"]));
        let result = runtime.exec(&container.id, &shell("head -c 3000000 /dev/zero"), LONG).await.unwrap();
        assert_eq!((result.code, result.output.len()), (0, 1 << 20));
        let result = runtime.exec(&container.id, &["/no/such".into()], LONG).await.unwrap();
        assert_ne!(result.code, 0);
        assert!(String::from_utf8_lossy(&result.output).contains("/no/such"));

        runtime.signal(&container.id, nix::libc::SIGKILL).await.unwrap();
        runtime.wait(&container.id).await.unwrap();
        let error = runtime.exec(&container.id, &shell("true"), LONG).await.unwrap_err();
        assert!(matches!(error, Error::NotRunning { .. }), "{error}");
        runtime.remove(&container.id).await.unwrap();
    });
}

#[test]
fn a_command_that_is_not_waited_for_is_killed() {
    isolated("exec::a_command_that_is_not_waited_for_is_killed", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        wrote(&runtime, &container.id, "ready").await;
        let runs = |text: &'static str| move || processes().iter().any(|process| process.contains(text));

        let begun = Instant::now();
        let stubborn = shell("trap '' TERM INT HUP; sleep 2001 & sleep 2001");
        let error = runtime.exec(&container.id, &stubborn, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(error, Error::ExecTimeout { .. }), "{error}");
        assert!(begun.elapsed() < LONG / 2, "it took {:?}", begun.elapsed());
        assert!(!runs("2001")(), "{:?}", processes());

        let abandoned = tokio::spawn({
            let (runtime, id) = (runtime.clone(), container.id.clone());
            async move { runtime.exec(&id, &shell("sleep 2002"), LONG).await }
        });
        eventually("the command runs", runs("sleep 2002")).await;
        abandoned.abort();
        eventually("the command ends", || !runs("2002")()).await;
        eventually("its file is gone", || pid_files(&node.container_directory(&container.id)) == 0).await;

        // Whatever the container runtime is at.
        for wait in (0..120).step_by(8) {
            let command = shell("sleep 2003");
            let exec = runtime.exec(&container.id, &command, LONG);
            let _ = tokio::time::timeout(Duration::from_millis(wait), exec).await;
        }
        let directory = node.container_directory(&container.id);
        eventually("all of it is gone", || !runs("2003")() && !runs("runc")() && pid_files(&directory) == 0)
            .await;
        assert!(!runs("2003")(), "{:?}", processes());
        runtime.remove(&container.id).await.unwrap();
    });
}

fn pid_files(directory: &std::path::Path) -> usize {
    let files = std::fs::read_dir(directory).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("exec")).count()
}

#[test]
fn a_command_of_an_agent_that_was_killed_is_ended_by_the_next() {
    isolated("exec::a_command_of_an_agent_that_was_killed_is_ended_by_the_next", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        runtime.start(&container).await.unwrap();
        wrote(&runtime, &container.id, "ready").await;
        // What is left when nobody gets to drop anything.
        let session = runtime.session(&container.id, &shell("sleep 2004"), Streams::default()).await.unwrap();
        let directory = node.container_directory(&container.id);
        let runs = || processes().iter().any(|process| process.contains("sleep 2004"));
        eventually("the command runs", || runs() && pid_files(&directory) == 1).await;
        std::mem::forget(session);

        let next = node.open();
        assert_eq!(pid_files(&directory), 0);
        // The container runtime that waited for the command ends by itself, in its own time.
        eventually("nothing of it runs", || !runs()).await;
        assert!(matches!(next.state(&container.id).await.unwrap(), Some(State::Running { .. })));
        next.remove(&container.id).await.unwrap();
    });
}
