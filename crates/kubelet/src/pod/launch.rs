//! A container as the pod describes it, turned into what the runtime needs. Pure: whatever has to be looked up is given.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::quantity::{milli, whole};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::runtime::{self, ContainerId, Mount, Resources, Security};

/// What is looked up for a container.
#[derive(Debug, Clone, Default)]
pub struct Provided {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    pub network: Option<PathBuf>,
    pub hostname: String,
}

/// The whole of a container for the runtime.
pub fn describe(pod: &Pod, container: &Container, id: ContainerId, provided: Provided) -> runtime::Container {
    let spec = pod.spec.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    let label = |key: &str, value: &Option<String>| (key.to_owned(), value.clone().unwrap_or_default());
    runtime::Container {
        image: container.image.clone().unwrap_or_default(),
        command: provided.command,
        working_directory: container.working_dir.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from),
        hostname: provided.hostname,
        mounts: provided.mounts,
        network: provided.network,
        host_pid: spec.host_pid.unwrap_or_default(),
        host_ipc: spec.host_ipc.unwrap_or_default(),
        security: security(&spec, container),
        resources: resources(container),
        labels: BTreeMap::from([
            label("io.kubernetes.pod.name", &metadata.name),
            label("io.kubernetes.pod.namespace", &metadata.namespace),
            label("io.kubernetes.pod.uid", &metadata.uid),
            label("io.kubernetes.container.name", &Some(id.container.clone())),
        ]),
        environment: provided.environment,
        id,
    }
}

fn security(spec: &PodSpec, container: &Container) -> Security {
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let number = |own: Option<i64>, of_pod: Option<i64>| own.or(of_pod).and_then(|id| u32::try_from(id).ok());
    let groups = of_pod.supplemental_groups.iter().flatten().chain(&of_pod.fs_group);
    let capabilities = own.capabilities.unwrap_or_default();
    Security {
        privileged: own.privileged.unwrap_or_default(),
        user: number(own.run_as_user, of_pod.run_as_user),
        group: number(own.run_as_group, of_pod.run_as_group),
        supplemental_groups: groups.filter_map(|id| u32::try_from(*id).ok()).collect(),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        read_only_root: own.read_only_root_filesystem.unwrap_or_default(),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
    }
}

fn resources(container: &Container) -> Resources {
    let own = container.resources.clone().unwrap_or_default();
    let (limits, requests) = (own.limits.unwrap_or_default(), own.requests.unwrap_or_default());
    let millis = |of: &BTreeMap<String, _>| of.get("cpu").and_then(|quantity| milli(quantity).ok());
    let memory = limits.get("memory").and_then(|quantity| whole(quantity).ok());
    Resources {
        memory_limit: memory.and_then(|bytes| i64::try_from(bytes).ok()),
        cpu_quota_millis: millis(&limits).and_then(|millis| i64::try_from(millis).ok()),
        // What the kernel's own default of 1024 for one core comes to.
        cpu_shares: millis(&requests)
            .or_else(|| millis(&limits))
            .map(|millis| millis.saturating_mul(1024) / 1000)
            .map(|shares| shares.clamp(2, 262_144)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_says_more_than_its_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": {
                "hostPID": true,
                "securityContext": { "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002 },
                "containers": [{
                    "name": "c", "image": "host",
                    "securityContext": { "runAsUser": 0, "capabilities": { "add": ["NET_ADMIN"] } },
                    "resources": { "limits": { "memory": "64Mi", "cpu": "250m" } },
                }],
            },
        }))
        .unwrap();
        let spec = pod.spec.clone().unwrap();
        let id = ContainerId { pod: "u".into(), container: "c".into(), attempt: 0 };
        let described = describe(&pod, &spec.containers[0], id, Provided::default());
        assert!(described.host_pid && !described.host_ipc);
        assert_eq!((described.security.user, described.security.group), (Some(0), Some(1001)));
        assert_eq!(described.security.supplemental_groups, [1002]);
        assert_eq!(described.security.add_capabilities, ["NET_ADMIN"]);
        assert_eq!(described.resources.memory_limit, Some(64 << 20));
        assert_eq!(
            (described.resources.cpu_quota_millis, described.resources.cpu_shares),
            (Some(250), Some(256))
        );
    }
}
