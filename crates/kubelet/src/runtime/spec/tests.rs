//! Descriptions of containers, as the OCI runtime reads them.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::runtime::{ContainerId, Mount};

fn plain() -> Container {
    Container {
        id: ContainerId { pod: "pod".into(), container: "a".into(), attempt: 0 },
        image: "host".into(),
        command: vec!["/bin/true".into()],
        environment: Vec::new(),
        working_directory: None,
        hostname: "name".into(),
        mounts: Vec::new(),
        network: Some("/run/netns/pod".into()),
        host_pid: false,
        host_ipc: false,
        security: Security::default(),
        resources: Resources::default(),
        labels: BTreeMap::new(),
    }
}

fn described(container: &Container, image: &Configuration) -> Value {
    let around = Surroundings {
        root: Path::new("/bundle/rootfs"),
        image,
        cgroup: "/lab/pod/a_0",
        capabilities: &[Capability::Chown, Capability::Kill, Capability::NetAdmin],
    };
    let mut value = serde_json::to_value(spec(container, &around).unwrap()).unwrap();
    // A set has no order.
    for kind in ["bounding", "effective", "permitted"] {
        let set = value["process"]["capabilities"][kind].as_array_mut().unwrap();
        set.sort_by_key(ToString::to_string);
    }
    value
}

fn of(container: &Container) -> Value {
    described(container, &Configuration::default())
}

fn namespaces(container: &Container) -> Vec<String> {
    let value = of(container);
    let kinds = value["linux"]["namespaces"].as_array().unwrap().iter();
    kinds.map(|namespace| namespace["type"].as_str().unwrap().to_owned()).collect()
}

fn mount_at<'a>(value: &'a Value, destination: &str) -> Option<&'a Value> {
    value["mounts"].as_array().unwrap().iter().find(|mount| mount["destination"] == destination)
}

#[test]
fn a_plain_container() {
    let value = of(&plain());
    let caps = json!(["CAP_CHOWN", "CAP_KILL"]);
    assert_eq!(
        value["process"],
        json!({
            "terminal": false,
            "user": {"uid": 0, "gid": 0, "additionalGids": []},
            "args": ["/bin/true"],
            "env": ["HOSTNAME=name", format!("PATH={SEARCH}")],
            "cwd": "/",
            "capabilities": {"bounding": caps, "effective": caps, "permitted": caps, "inheritable": [], "ambient": []},
            "noNewPrivileges": false,
        })
    );
    assert_eq!(value["root"], json!({"path": "/bundle/rootfs", "readonly": false}));
    assert_eq!(value["hostname"], "name");
    assert_eq!(value["linux"]["cgroupsPath"], "/lab/pod/a_0");
    assert_eq!(
        value["linux"]["namespaces"],
        json!([
            {"type": "mount"}, {"type": "uts"}, {"type": "pid"}, {"type": "ipc"},
            {"type": "network", "path": "/run/netns/pod"},
        ])
    );
    assert_eq!(
        value["linux"]["resources"]["devices"],
        json!([{"allow": false, "type": "a", "access": "rwm"}])
    );
    assert!(value["linux"]["maskedPaths"].as_array().unwrap().contains(&json!("/proc/kcore")));
    assert!(value["linux"]["readonlyPaths"].as_array().unwrap().contains(&json!("/proc/sys")));
    assert!(value["linux"].get("rootfsPropagation").is_none());
    let destinations: Vec<_> =
        value["mounts"].as_array().unwrap().iter().map(|mount| mount["destination"].clone()).collect();
    assert_eq!(
        destinations,
        ["/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup"]
    );
    for read_only in ["/sys", "/sys/fs/cgroup"] {
        assert!(mount_at(&value, read_only).unwrap()["options"].as_array().unwrap().contains(&json!("ro")));
    }
}

#[test]
fn namespaces_of_the_node() {
    let mut container = plain();
    (container.host_pid, container.host_ipc, container.network) = (true, true, None);
    assert_eq!(namespaces(&container), ["mount", "uts"]);
    let value = of(&container);
    assert_eq!(mount_at(&value, "/dev/shm").unwrap()["source"], "/dev/shm");
}

#[test]
fn a_privileged_container() {
    let mut container = plain();
    container.security.privileged = true;
    let value = of(&container);
    assert_eq!(
        value["process"]["capabilities"]["effective"],
        json!(["CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN"])
    );
    assert_eq!(
        value["linux"]["resources"]["devices"],
        json!([{"allow": true, "type": "a", "access": "rwm"}])
    );
    assert_eq!(value["linux"]["maskedPaths"], json!([]));
    assert_eq!(value["linux"]["readonlyPaths"], json!([]));
    assert_eq!(mount_at(&value, "/dev").unwrap()["source"], "/dev");
    assert!(mount_at(&value, "/dev/pts").is_none());
    assert!(mount_at(&value, "/sys").unwrap()["options"].as_array().unwrap().contains(&json!("rw")));
}

#[test]
fn the_image_says_what_the_container_does_not() {
    let image = Configuration {
        entrypoint: vec!["/init".into(), "-v".into()],
        env: [("A".into(), "image".into()), ("B".into(), "image".into()), ("PATH".into(), "/x".into())]
            .into(),
        working_dir: Some("/srv".into()),
    };
    let mut container = plain();
    container.command.clear();
    container.environment =
        vec![("B".into(), "own".into()), ("C".into(), "first".into()), ("C".into(), "last".into())];
    let process = &described(&container, &image)["process"];
    assert_eq!(process["args"], json!(["/init", "-v"]));
    assert_eq!(process["cwd"], "/srv");
    assert_eq!(process["env"], json!(["A=image", "B=own", "C=last", "HOSTNAME=name", "PATH=/x"]));
    assert_eq!(of(&container)["process"]["args"], json!(["/bin/sh"]));
}

#[test]
fn volumes_come_last_and_the_outer_before_the_inner() {
    let mount = |destination: &str, read_only, propagation| Mount {
        source: "/source".into(),
        destination: destination.into(),
        read_only,
        propagation,
    };
    let mut container = plain();
    container.mounts =
        vec![mount("/a/b", true, Propagation::Private), mount("/a", false, Propagation::HostToContainer)];
    let value = of(&container);
    let volumes = &value["mounts"].as_array().unwrap()[7..];
    assert_eq!(
        volumes,
        [
            json!({"destination": "/a", "type": "bind", "source": "/source", "options": ["rbind", "rslave", "rw"]}),
            json!({"destination": "/a/b", "type": "bind", "source": "/source", "options": ["rbind", "rprivate", "ro"]}),
        ]
    );
    assert_eq!(value["linux"]["rootfsPropagation"], "rslave");
    container.mounts.push(mount("/c", false, Propagation::Bidirectional));
    let value = of(&container);
    assert_eq!(value["linux"]["rootfsPropagation"], "rshared");
    assert_eq!(mount_at(&value, "/c").unwrap()["options"], json!(["rbind", "rshared", "rw"]));
}

#[test]
fn users_limits_and_the_rest() {
    let mut container = plain();
    container.security = Security {
        user: Some(107),
        group: Some(108),
        supplemental_groups: vec![5],
        read_only_root: true,
        no_new_privileges: true,
        ..Security::default()
    };
    container.resources =
        Resources { memory_limit: Some(1 << 20), cpu_quota_millis: Some(250), cpu_shares: Some(256) };
    container.working_directory = Some("/tmp".into());
    container.labels = [("pod".into(), "name".into())].into();
    let value = of(&container);
    assert_eq!(value["process"]["user"], json!({"uid": 107, "gid": 108, "additionalGids": [5]}));
    assert_eq!(value["process"]["noNewPrivileges"], true);
    assert_eq!(value["process"]["cwd"], "/tmp");
    assert_eq!(value["root"]["readonly"], true);
    assert_eq!(value["linux"]["resources"]["memory"], json!({"limit": 1 << 20}));
    assert_eq!(value["linux"]["resources"]["cpu"], json!({"shares": 256, "quota": 25000, "period": 100_000}));
    assert_eq!(value["annotations"], json!({"pod": "name"}));
    container.resources.cpu_quota_millis = Some(1);
    assert_eq!(of(&container)["linux"]["resources"]["cpu"]["quota"], 1000);
}
