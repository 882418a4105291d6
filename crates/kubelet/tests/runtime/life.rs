//! A container's life: start, output, end, signals, removal.

use std::fs;

use kubelet::runtime::{Error, Resources, State};
use nix::libc::{SIGKILL, SIGTERM};

use crate::fixture::{id, isolated, pid, run, script, sleeper, wrote};

#[test]
fn output_is_in_the_log_and_the_exit_code_is_kept() {
    isolated("life::output_is_in_the_log_and_the_exit_code_is_kept", async |node| {
        let runtime = node.open();
        let container = script("a", "echo out; echo err >&2; printf end; exit 3");
        runtime.start(&container).await.unwrap();
        let exit = runtime.wait(&container.id).await.unwrap();
        assert_eq!((exit.code, exit.reason.as_str()), (3, "Error"));
        assert!(exit.started <= exit.finished);
        assert_eq!(runtime.state(&container.id).await.unwrap(), Some(State::Exited(exit.clone())));
        assert_eq!(runtime.list().await.unwrap(), [(container.id.clone(), State::Exited(exit))]);

        let log = fs::read_to_string(runtime.log(&container.id)).unwrap();
        let mut lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap()).collect();
        lines.sort_by_key(|line| line.1);
        let texts: Vec<_> = lines.iter().map(|line| line.1).collect();
        assert_eq!(texts, ["stderr F err", "stdout F end", "stdout F out"]);
        for (time, _) in lines {
            time.parse::<jiff::Timestamp>().unwrap();
        }
        runtime.remove(&container.id).await.unwrap();
        assert_eq!(runtime.state(&container.id).await.unwrap(), None);
        assert!(runtime.log(&container.id).exists());
        runtime.remove_logs(&container.id.pod).await.unwrap();
        assert!(!runtime.log(&container.id).exists());
    });
}

#[test]
fn success_is_completed_and_large_output_is_whole() {
    isolated("life::success_is_completed_and_large_output_is_whole", async |node| {
        let (exit, written) = run(&node.open(), &script("a", "seq 100000")).await;
        assert_eq!((exit.code, exit.reason.as_str()), (0, "Completed"));
        assert!(written.lines().eq((1..=100_000).map(|number| number.to_string())));
    });
}

#[test]
fn a_signal_reaches_the_first_process() {
    isolated("life::a_signal_reaches_the_first_process", async |node| {
        let runtime = node.open();
        let (polite, stubborn) =
            (sleeper("polite"), script("stubborn", "trap '' TERM; echo ready; exec sleep 1000"));
        for container in [&polite, &stubborn] {
            runtime.start(container).await.unwrap();
            wrote(&runtime, &container.id, "ready").await;
            runtime.signal(&container.id, SIGTERM).await.unwrap();
        }
        assert_eq!(runtime.wait(&polite.id).await.unwrap().code, 7);
        runtime.signal(&stubborn.id, SIGKILL).await.unwrap();
        let exit = runtime.wait(&stubborn.id).await.unwrap();
        assert_eq!((exit.code, exit.reason.as_str()), (137, "Error"));
        runtime.signal(&stubborn.id, SIGTERM).await.expect("one that has ended is no error");
        for container in [&polite, &stubborn] {
            runtime.remove(&container.id).await.unwrap();
        }
        assert!(matches!(runtime.signal(&polite.id, SIGTERM).await, Err(Error::Unknown { .. })));
        assert!(matches!(runtime.wait(&polite.id).await, Err(Error::Unknown { .. })));
    });
}

#[test]
fn starting_again_changes_nothing() {
    isolated("life::starting_again_changes_nothing", async |node| {
        let runtime = node.open();
        let container = sleeper("a");
        let (one, other) = tokio::join!(runtime.start(&container), runtime.start(&container));
        one.and(other).unwrap();
        let first = pid(&runtime, &container.id).await;
        runtime.start(&container).await.unwrap();
        assert_eq!(pid(&runtime, &container.id).await, first);
        runtime.signal(&container.id, SIGKILL).await.unwrap();
        let exit = runtime.wait(&container.id).await.unwrap();
        runtime.start(&container).await.unwrap();
        assert_eq!(runtime.state(&container.id).await.unwrap(), Some(State::Exited(exit)));
        runtime.remove(&container.id).await.unwrap();
        runtime.remove(&container.id).await.expect("nothing there is no error");
    });
}

#[test]
fn removing_ends_what_runs_and_tells_who_waits() {
    isolated("life::removing_ends_what_runs_and_tells_who_waits", async |node| {
        let runtime = node.open();
        let container = script("a", "trap '' TERM; sleep 1000 & sleep 1000");
        runtime.start(&container).await.unwrap();
        let waiting = tokio::spawn({
            let (runtime, id) = (runtime.clone(), container.id.clone());
            async move { runtime.wait(&id).await }
        });
        runtime.remove(&container.id).await.unwrap();
        match waiting.await.unwrap() {
            Ok(exit) => assert_eq!(exit.code, 137),
            Err(error) => assert!(matches!(error, Error::Unknown { .. }), "{error}"),
        }
    });
}

#[test]
fn what_cannot_start_says_why_and_leaves_nothing() {
    isolated("life::what_cannot_start_says_why_and_leaves_nothing", async |node| {
        let runtime = node.open();
        let mut container = script("a", "");
        container.command = vec!["/no/such/program".into()];
        let error = runtime.start(&container).await.unwrap_err();
        assert!(matches!(error, Error::Create { .. }), "{error:?}");
        assert!(error.to_string().contains("/no/such/program"), "{error}");
        assert_eq!(runtime.state(&container.id).await.unwrap(), None);
        node.assert_nothing_left();

        let mut container = script("a", "");
        container.image = "nginx".into();
        let text = runtime.start(&container).await.unwrap_err().to_string();
        assert_eq!(text, "image \"nginx\" is not on this node; registered are: host");

        let mut container = script("a", "");
        container.id.pod = "../a".into();
        assert!(matches!(runtime.start(&container).await, Err(Error::Name { .. })));
    });
}

#[test]
fn too_much_memory_is_said() {
    isolated("life::too_much_memory_is_said", async |node| {
        let runtime = node.open();
        let mut container = script("a", "tail /dev/zero");
        container.resources = Resources { memory_limit: Some(32 << 20), ..Resources::default() };
        let (exit, written) = run(&runtime, &container).await;
        assert_eq!(exit.reason, "OOMKilled", "{exit:?} {written}");
    });
}

#[test]
fn what_is_written_stays_in_the_container() {
    isolated("life::what_is_written_stays_in_the_container", async |node| {
        let runtime = node.open();
        let (exit, _) =
            run(&runtime, &script("a", "echo x > /etc/godwit-test-file && test -f /etc/godwit-test-file"))
                .await;
        assert_eq!(exit.code, 0);
        let (exit, _) = run(&runtime, &script("a", "test -f /etc/godwit-test-file")).await;
        assert_eq!(exit.code, 1);
        assert!(!std::path::Path::new("/etc/godwit-test-file").exists());
        assert_eq!(runtime.state(&id("a")).await.unwrap(), None);
    });
}
