//! Commands in containers through the API server, as `kubectl exec` runs them, and `kubectl attach`.

use futures::SinkExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, DeleteParams, TerminalSize};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::cluster::{Cluster, container, phase, script, sleeper};
use crate::fixture::{LONG, eventually, isolated, processes};

/// A client with a connection: one in the server's own process has none to talk on.
async fn pods(cluster: &Cluster) -> Api<Pod> {
    let kubeconfig = Kubeconfig::read_from(cluster.serve().await).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Api::default_namespaced(Client::try_from(config.unwrap()).unwrap())
}

fn shell(text: &str) -> [&str; 3] {
    ["/bin/sh", "-c", text]
}

fn outputs() -> AttachParams {
    AttachParams::default().stdout(true).stderr(true)
}

/// What it wrote to standard output and standard error, and how it ended.
async fn finish(mut process: AttachedProcess) -> (String, String, Status) {
    let status = process.take_status().unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let all = async { tokio::join!(read(stdout, &mut out), read(stderr, &mut err), status).2 };
    let ended = tokio::time::timeout(LONG, all).await;
    let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
    let Ok(Some(status)) = ended else { panic!("no end of the command: {ended:?}, {out:?}, {err:?}") };
    (out, err, status)
}

async fn read(stream: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(mut stream) = stream {
        stream.read_to_end(into).await.unwrap();
    }
}

fn exit_code(status: &Status) -> String {
    match status.status.as_deref() {
        Some("Success") => "0".to_owned(),
        _ => {
            status.details.clone().unwrap_or_default().causes.unwrap_or_default()[0].message.clone().unwrap()
        }
    }
}

fn runs(text: &str) -> bool {
    processes().iter().any(|process| process.contains(text))
}

#[test]
fn a_command_gets_its_input_and_says_how_it_ended() {
    isolated("exec::a_command_gets_its_input_and_says_how_it_ended", |node| async {
        let mut cluster = Cluster::start(node).await;
        cluster.create(sleeper("a")).await;
        cluster.running("a").await;
        let pods = pods(&cluster).await;

        let both = shell("echo out; echo err >&2; exit 4");
        let (stdout, stderr, status) = finish(pods.exec("a", both, &outputs()).await.unwrap()).await;
        assert_eq!((stdout.as_str(), stderr.as_str(), exit_code(&status).as_str()), ("out\n", "err\n", "4"));
        let (.., status) = finish(pods.exec("a", ["true"], &outputs()).await.unwrap()).await;
        assert_eq!(exit_code(&status), "0");
        let (.., status) = finish(pods.exec("a", shell("kill -9 $$"), &outputs()).await.unwrap()).await;
        assert_eq!(exit_code(&status), "137");
        let (_, stderr, status) = finish(pods.exec("a", ["/no/such"], &outputs()).await.unwrap()).await;
        assert!(stderr.contains("/no/such"), "{stderr}");
        assert_eq!(status.reason.as_deref(), Some("InternalError"), "{status:?}");

        // `wc` and `cat` end only because their input does.
        let text = "all that is written arrives\n".repeat(20_000);
        let options = outputs().stdin(true).max_stdout_buf_size(1 << 20);
        let mut process = pods.exec("a", shell("tee /dev/stderr | wc -c; exit 7"), &options).await.unwrap();
        let mut stdin = process.stdin().unwrap();
        let (written, (stdout, stderr, status)) = tokio::join!(
            async {
                stdin.write_all(text.as_bytes()).await.unwrap();
                stdin.shutdown().await
            },
            finish(process),
        );
        written.unwrap();
        assert_eq!((stdout.trim(), exit_code(&status).as_str()), (text.len().to_string().as_str(), "7"));
        assert!(stderr == text, "{} of {} bytes came back", stderr.len(), text.len());

        cluster.delete("a", &DeleteParams::default()).await;
        cluster.stop_agent().await;
    });
}

#[test]
fn a_terminal_has_a_size_and_echoes() {
    isolated("exec::a_terminal_has_a_size_and_echoes", |node| async {
        let mut cluster = Cluster::start(node).await;
        cluster.create(sleeper("a")).await;
        cluster.running("a").await;
        let pods = pods(&cluster).await;

        let options = AttachParams::default().stdin(true).stdout(true).stderr(false).tty(true);
        let mut process = pods.exec("a", ["/bin/sh"], &options).await.unwrap();
        process.terminal_size().unwrap().send(TerminalSize { width: 77, height: 33 }).await.unwrap();
        let mut stdin = process.stdin().unwrap();
        // The size may come after the question: it is asked until the answer is right.
        let ask = b"tty; until stty size | grep '33 77'; do :; done; echo $((40 + 2))\nexit 3\n";
        stdin.write_all(ask).await.unwrap();
        let (stdout, _, status) = finish(process).await;
        assert_eq!(exit_code(&status), "3", "{stdout}");
        for part in ["/dev/pts/", "33 77", "until stty size", "\r\n42\r\n"] {
            assert!(stdout.contains(part), "{part:?} is not in {stdout:?}");
        }

        // The end of input is the terminal's own.
        let mut process = pods.exec("a", ["cat"], &options).await.unwrap();
        let mut stdin = process.stdin().unwrap();
        stdin.write_all(b"word\n").await.unwrap();
        stdin.shutdown().await.unwrap();
        let (stdout, _, status) = finish(process).await;
        assert_eq!((stdout.matches("word").count(), exit_code(&status).as_str()), (2, "0"), "{stdout:?}");

        cluster.delete("a", &DeleteParams::default()).await;
        cluster.stop_agent().await;
    });
}

#[test]
fn a_connection_that_is_cut_leaves_nothing() {
    isolated("exec::a_connection_that_is_cut_leaves_nothing", |node| async {
        let mut cluster = Cluster::start(node).await;
        let pod = cluster.create(sleeper("a")).await;
        cluster.running("a").await;
        let pods = pods(&cluster).await;
        let stubborn = shell("trap '' TERM INT HUP; sleep 3001 & sleep 3001");
        let all_gone = || !runs("3001") && !runs("runc");

        for tty in [false, true] {
            let options = AttachParams::default().stdin(true).stdout(true).stderr(!tty).tty(tty);
            let process = pods.exec("a", stubborn, &options).await.unwrap();
            eventually("the command runs", || runs("sleep 3001")).await;
            drop(process);
            eventually("the command ends", all_gone).await;
        }
        // At any moment of its beginning, too.
        for wait in [0, 5, 20, 40, 60, 80, 100, 130] {
            let process = pods.exec("a", stubborn, &outputs()).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            drop(process);
        }
        eventually("the commands end", all_gone).await;
        let id = kubelet::runtime::ContainerId {
            pod: pod.metadata.uid.unwrap(),
            container: "main".into(),
            attempt: 0,
        };
        let directory = cluster.node.container_directory(&id);
        eventually("their files are gone", || {
            let files = std::fs::read_dir(&directory).unwrap();
            !files.into_iter().any(|file| file.unwrap().file_name().to_string_lossy().starts_with("exec"))
        })
        .await;

        // One that does not read its input is no reason to wait for it.
        let mut deaf = pods.exec("a", stubborn, &outputs().stdin(true)).await.unwrap();
        let mut stdin = deaf.stdin().unwrap();
        eventually("the command runs", || runs("sleep 3001")).await;
        let stuck = tokio::spawn(async move { stdin.write_all(&vec![b'x'; 16 << 20]).await });
        eventually("its input is full", || runs("sleep 3001")).await;
        drop(deaf);
        stuck.abort();
        eventually("the command ends", all_gone).await;

        // An agent that ends takes the conversations with it, and the pod goes on.
        let process = pods.exec("a", stubborn, &outputs()).await.unwrap();
        eventually("the command runs", || runs("sleep 3001")).await;
        cluster.stop_agent().await;
        eventually("the command ends", all_gone).await;
        drop(process);
        cluster.start_agent();
        assert_eq!(phase(&cluster.running("a").await), "Running");
        cluster.delete("a", &DeleteParams::default()).await;
        cluster.stop_agent().await;
    });
}

#[test]
fn what_cannot_be_talked_to_is_refused_with_the_reason() {
    isolated("exec::what_cannot_be_talked_to_is_refused_with_the_reason", |node| async {
        let mut cluster = Cluster::start(node).await;
        let mut done = script("done", "exit 0");
        done["spec"]["restartPolicy"] = json!("Never");
        cluster.create(done).await;
        cluster.pod("done", "over", |pod| phase(pod) == "Succeeded").await;
        let in_process = cluster.pods();
        let pods = pods(&cluster).await;
        let refused = async |pods: &Api<Pod>, pod: &str, options: &AttachParams| match pods
            .exec(pod, ["true"], options)
            .await
        {
            Err(kube::Error::Api(status)) => (status.code, status.message),
            other => panic!("{pod} is refused: {:?}", other.err()),
        };
        let (code, why) = refused(&pods, "done", &outputs()).await;
        assert!(code == 400 && why.contains("does not run"), "{code} {why}");
        let (code, why) = refused(&pods, "done", &outputs().container("other")).await;
        assert!(code == 400 && why.contains("container other is not valid"), "{code} {why}");
        assert_eq!(refused(&pods, "nobody", &outputs()).await.0, 404);
        let (code, why) = refused(&in_process, "done", &outputs()).await;
        assert!(code == 400 && why.contains("HTTP/1.1"), "{code} {why}");
        cluster.delete("done", &DeleteParams::default()).await;
        cluster.stop_agent().await;
        let mut lost = sleeper("lost");
        lost["spec"]["terminationGracePeriodSeconds"] = json!(0);
        cluster.create(lost).await;
        let (code, why) = refused(&pods, "lost", &outputs()).await;
        assert!(code == 500 && why.contains("asking node node1 failed"), "{code} {why}");
    });
}

#[test]
fn what_a_container_writes_is_shown_from_now_on() {
    isolated("exec::what_a_container_writes_is_shown_from_now_on", |node| async {
        let mut cluster = Cluster::start(node).await;
        let mark = cluster.path("kubelet/go-on");
        let text = format!(
            "echo before; until [ -e {} ]; do sleep 0.1; done; echo out; echo err >&2",
            mark.display()
        );
        let mut pod = script("job", &text);
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["volumes"] = json!([{ "name": "node", "hostPath": { "path": cluster.path("kubelet") } }]);
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "node", "mountPath": cluster.path("kubelet") }]);
        cluster.create(pod).await;
        cluster.running("job").await;
        crate::logs::lines_until(
            &cluster,
            "job",
            &kube::api::LogParams { follow: true, ..Default::default() },
            "before",
        )
        .await;
        let pods = pods(&cluster).await;
        let attached = pods.attach("job", &outputs()).await.unwrap();
        std::fs::write(mark, "").unwrap();
        let (stdout, stderr, status) = finish(attached).await;
        assert_eq!((stdout.as_str(), stderr.as_str(), exit_code(&status).as_str()), ("out\n", "err\n", "0"));
        let ended = cluster.pod("job", "over", |pod| phase(pod) == "Succeeded").await;
        assert!(container(&ended, "main").state.unwrap().terminated.is_some());
        cluster.delete("job", &DeleteParams::default()).await;
        cluster.stop_agent().await;
    });
}
