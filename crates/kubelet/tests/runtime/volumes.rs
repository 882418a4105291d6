//! Volumes with the API server of this project, on a node of their own; and containers that use them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use apiserver::{ApiServer, Options};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use kubelet::downward::Allocatable;
use kubelet::environment::environment;
use kubelet::images::Images;
use kubelet::volumes::{ApiSource, Error, Published, Volumes, mounts};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fixture::{Node, eventually, isolated, run, script, wrote};

struct Cluster {
    _server: ApiServer,
    client: kube::Client,
    source: ApiSource,
    volumes: Volumes,
}

impl Cluster {
    async fn start(node: &Node) -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = server.client("default");
        let allocatable = Allocatable { cpu_milli: 2000, memory: 1 << 30 };
        let source = ApiSource { client: client.clone(), allocatable };
        let volumes = Volumes::new(node.state.join("pods"), Images::at(node.state.join("images")));
        Self { _server: server, client, source, volumes }
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let api = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    async fn annotate(&self, name: &str, key: &str, value: &str) -> Pod {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let patch = json!({"metadata": {"annotations": {key: value}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    async fn pod(&self, volumes: Value, mounts: Value) -> Pod {
        self.create(json!({
            "metadata": {"name": "a", "labels": {"app": "x"}},
            "spec": {
                "containers": [{"name": "a", "image": "host", "volumeMounts": mounts}],
                "volumes": volumes,
            },
        }))
        .await
    }

    async fn publish(&self, pod: &Pod) -> Result<Published, Error> {
        self.volumes.publish(pod, &self.source).await
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap()
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn whole(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn an_image_is_a_volume_that_nobody_writes() {
    isolated("volumes::an_image_is_a_volume_that_nobody_writes", async |node| {
        let cluster = Cluster::start(&node).await;
        let volumes = json!([{"name": "kernel", "image": {"reference": "some/kernel:1"}}]);
        let pod = cluster.pod(volumes, json!([{"name": "kernel", "mountPath": "/kernel"}])).await;
        let unknown = whole(&cluster.publish(&pod).await.unwrap_err());
        assert!(unknown.contains("image \"some/kernel:1\" is not on this node"), "{unknown}");
        let root = tempfile::tempdir().unwrap();
        Images::at(node.state.join("images")).register("some/kernel:1", root.path()).unwrap();
        let published = cluster.publish(&pod).await.unwrap();
        assert_eq!(published.paths["kernel"], root.path().canonicalize().unwrap());
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert!(mounts(&pod, container, &published, &[]).unwrap()[0].read_only);
        cluster.volumes.teardown(uid(&pod)).unwrap();
        assert!(root.path().exists(), "it is not the pod's");
    });
}

#[test]
fn objects_become_files_and_files_follow_them() {
    isolated("volumes::objects_become_files_and_files_follow_them", async |node| {
        let cluster = Cluster::start(&node).await;
        let pod = cluster
            .pod(
                json!([
                    {"name": "map", "configMap": {"name": "settings", "defaultMode": 0o600}},
                    {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "tls.key", "path": "deep/key", "mode": 0o400}]}},
                    {"name": "own", "downwardAPI": {"items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                        {"path": "status", "fieldRef": {"fieldPath": "metadata.annotations['status']"}},
                        {"path": "cpu", "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu"}},
                    ]}},
                    {"name": "none", "secret": {"secretName": "none", "optional": true}},
                    {"name": "all", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "map/a"}]}},
                        {"secret": {"name": "keys"}},
                        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]}},
                ]),
                json!([]),
            )
            .await;
        let error = cluster.publish(&pod).await.unwrap_err();
        assert_eq!(
            whole(&error),
            "volume \"map\": ConfigMap \"settings\" does not exist in namespace \"default\", and is not optional"
        );
        let map = json!({"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}});
        cluster.create::<k8s_openapi::api::core::v1::ConfigMap>(map).await;
        let keys = json!({"metadata": {"name": "keys"}, "stringData": {"tls.key": "secret"}});
        cluster.create::<k8s_openapi::api::core::v1::Secret>(keys).await;
        // The API server makes it on its own in its time.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::default_namespaced(cluster.client.clone());
        if accounts.get_opt("default").await.unwrap().is_none() {
            cluster
                .create::<k8s_openapi::api::core::v1::ServiceAccount>(
                    json!({"metadata": {"name": "default"}}),
                )
                .await;
        }

        let published = cluster.publish(&pod).await.unwrap();
        assert_eq!(published.changed, ["map", "keys", "own", "none", "all"]);
        let at = |volume: &str, file: &str| published.paths[volume].join(file);
        assert!(at("map", "").ends_with(format!("pods/{}/volumes/kubernetes.io~configmap/map", uid(&pod))));
        assert_eq!((text(at("map", "a")), text(at("map", "b"))), ("1".into(), "2".into()));
        assert_eq!(fs::metadata(at("map", "a")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(text(at("keys", "deep/key")), "secret");
        assert_eq!(fs::metadata(at("keys", "deep/key")).unwrap().permissions().mode() & 0o777, 0o400);
        assert_eq!(
            (text(at("own", "labels")), text(at("own", "status"))),
            ("app=\"x\"".into(), String::new())
        );
        assert_eq!(text(at("own", "cpu")), "2");
        assert_eq!((text(at("all", "map/a")), text(at("all", "tls.key"))), ("1".into(), "secret".into()));
        assert_eq!(text(at("all", "name")), "a");
        assert_eq!(text(at("all", "token")).split('.').count(), 3, "it is a signed token");

        assert!(cluster.publish(&pod).await.unwrap().changed.is_empty(), "a token is kept while it is good");
        let pod = cluster.annotate("a", "status", "[{\"ips\": []}]").await;
        assert_eq!(cluster.publish(&pod).await.unwrap().changed, ["own"]);
        assert_eq!(text(at("own", "status")), "[{\"ips\": []}]");

        assert_eq!(cluster.volumes.list().unwrap(), [uid(&pod)]);
        cluster.volumes.teardown(uid(&pod)).unwrap();
        cluster.volumes.teardown(uid(&pod)).expect("nothing there is no error");
        assert!(cluster.volumes.list().unwrap().is_empty());
    });
}

#[test]
fn empty_directories_and_memory() {
    isolated("volumes::empty_directories_and_memory", async |node| {
        let cluster = Cluster::start(&node).await;
        let mut pod = cluster
            .pod(
                json!([
                    {"name": "disk", "emptyDir": {}},
                    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                ]),
                json!([]),
            )
            .await;
        let published = cluster.publish(&pod).await.unwrap();
        let (disk, memory) = (&published.paths["disk"], &published.paths["memory"]);
        assert!(disk.ends_with("volumes/kubernetes.io~empty-dir/disk"));
        assert_eq!(fs::metadata(disk).unwrap().permissions().mode() & 0o7777, 0o777);
        assert!(fs::write(memory.join("large"), vec![0; 2 << 20]).is_err(), "its size is limited");
        fs::write(memory.join("large"), "kept").unwrap();
        fs::write(disk.join("file"), "kept").unwrap();
        let context = serde_json::from_value(json!({"fsGroup": 107})).unwrap();
        pod.spec.as_mut().unwrap().security_context = Some(context);
        assert_eq!(cluster.publish(&pod).await.unwrap(), published);
        assert_eq!((text(disk.join("file")), text(memory.join("large"))), ("kept".into(), "kept".into()));
        let found = fs::metadata(disk).unwrap();
        assert_eq!((found.gid(), found.permissions().mode() & 0o7777), (107, 0o2777));

        // What somebody mounts in a volume is not deleted with it.
        let elsewhere = node.state.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("precious"), "").unwrap();
        fs::create_dir(disk.join("inner")).unwrap();
        let bind = nix::mount::MsFlags::MS_BIND;
        nix::mount::mount(Some(&elsewhere), &disk.join("inner"), None::<&str>, bind, None::<&str>).unwrap();
        cluster.volumes.teardown(uid(&pod)).unwrap();
        assert!(elsewhere.join("precious").exists());
        assert!(!disk.exists());
    });
}

#[test]
fn what_cannot_be_made_is_said() {
    isolated("volumes::what_cannot_be_made_is_said", async |node| {
        let cluster = Cluster::start(&node).await;
        let mut pod = cluster.pod(json!([{"name": "v", "emptyDir": {}}]), json!([])).await;
        for (volume, expected) in [
            (
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}),
                "volume \"v\" is of a kind that this node does not have",
            ),
            (
                json!({"name": "v", "hostPath": {"path": "/etc/hostname", "type": "Directory"}}),
                "volume \"v\": host path \"/etc/hostname\" is not a directory",
            ),
            (
                json!({"name": "v", "emptyDir": {"medium": "HugePages"}}),
                "volume \"v\": medium \"HugePages\" of an emptyDir is not supported: the node has \"\" and \"Memory\"",
            ),
        ] {
            pod.spec.as_mut().unwrap().volumes = Some(vec![serde_json::from_value(volume).unwrap()]);
            assert_eq!(whole(&cluster.publish(&pod).await.unwrap_err()), expected);
        }
        cluster.volumes.teardown(uid(&pod)).unwrap();
        for uid in ["", "..", "a/b"] {
            assert!(matches!(cluster.volumes.teardown(uid), Err(Error::Uid { .. })), "{uid}");
        }
    });
}

#[test]
fn a_container_uses_its_volumes() {
    isolated("volumes::a_container_uses_its_volumes", async |node| {
        let cluster = Cluster::start(&node).await;
        let map = json!({"metadata": {"name": "settings"}, "data": {"a": "one"}});
        cluster.create::<k8s_openapi::api::core::v1::ConfigMap>(map).await;
        let mut pod = cluster
            .pod(
                json!([
                    {"name": "map", "configMap": {"name": "settings"}},
                    {"name": "scratch", "emptyDir": {}},
                    {"name": "own", "downwardAPI": {"items": [
                        {"path": "status", "fieldRef": {"fieldPath": "metadata.annotations['status']"}},
                    ]}},
                    {"name": "node", "hostPath": {"path": "/run/node/host", "type": "DirectoryOrCreate"}},
                ]),
                json!([
                    {"name": "map", "mountPath": "/map"},
                    {"name": "map", "mountPath": "/etc/one.conf", "subPath": "a"},
                    {"name": "scratch", "mountPath": "/scratch"},
                    {"name": "scratch", "mountPath": "/part", "subPathExpr": "logs/$(NAME)"},
                    {"name": "own", "mountPath": "/own"},
                    {"name": "node", "mountPath": "/node", "readOnly": true},
                ]),
            )
            .await;
        let spec = pod.spec.as_mut().unwrap();
        let name = json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
        spec.containers[0].env = Some(serde_json::from_value(name).unwrap());
        let published = cluster.publish(&pod).await.unwrap();
        let wanted = &pod.spec.as_ref().unwrap().containers[0];
        let variables = environment(&pod, wanted, &cluster.source).await.unwrap();
        let runtime = node.open();

        let mut container = script(
            "a",
            "cat /map/a /etc/one.conf; echo; echo x > /part/file; ls /scratch/logs/a; \
             echo no > /map/b || echo refused; echo no > /node/x || echo refused",
        );
        container.mounts = mounts(&pod, wanted, &published, &variables).unwrap();
        let (_, written) = run(&runtime, &container).await;
        let mut lines: Vec<_> = written.lines().filter(|line| !line.starts_with("/bin/sh")).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["file", "oneone", "refused", "refused"], "{written}");
        assert!(Path::new("/run/node/host").is_dir());

        let mut watcher =
            script("a", "echo ready; until grep -q there /own/status; do sleep 0.02; done; echo seen");
        watcher.mounts = mounts(&pod, wanted, &published, &variables).unwrap();
        runtime.start(&watcher).await.unwrap();
        wrote(&runtime, &watcher.id, "ready").await;
        let pod = cluster.annotate("a", "status", "there").await;
        cluster.publish(&pod).await.unwrap();
        wrote(&runtime, &watcher.id, "seen").await;
        assert_eq!(runtime.wait(&watcher.id).await.unwrap().code, 0);
        runtime.remove(&watcher.id).await.unwrap();
        cluster.volumes.teardown(uid(&pod)).unwrap();
        eventually("nothing is mounted", || !text("/proc/self/mountinfo").contains("/run/node")).await;
    });
}
