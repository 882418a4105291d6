//! Commands in a running container.

use std::time::{Duration, Instant};

use kubelet::runtime::Error;

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
        // From then on it is known which process it is: before, the container runtime is still at it.
        let begun = || pid_files(&node.container_directory(&container.id)) == 1;
        eventually("the command runs", || begun() && runs("sleep 2002")()).await;
        abandoned.abort();
        eventually("the command ends", || !runs("2002")()).await;
        assert_eq!(pid_files(&node.container_directory(&container.id)), 0);
        runtime.remove(&container.id).await.unwrap();
    });
}

fn pid_files(directory: &std::path::Path) -> usize {
    let files = std::fs::read_dir(directory).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("exec")).count()
}
