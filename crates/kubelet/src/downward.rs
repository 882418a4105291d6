//! What a pod may know of itself: fields of its own object, and the resources of its containers. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use api::quantity::{self, QuantityError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a pod cannot refer to its field {path:?}")]
    Field { path: String },
    #[error(
        "a pod cannot refer to the resource {resource:?}: limits and requests of cpu and memory can be had"
    )]
    Resource { resource: String },
    #[error("there is no container {container:?} in the pod to tell the {resource} of")]
    Container { container: String, resource: String },
    #[error("{resource} of container {container:?}")]
    Quantity {
        container: String,
        resource: String,
        #[source]
        source: QuantityError,
    },
}

/// What a node has to give: the limit of a container that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocatable {
    pub cpu_milli: u64,
    pub memory: u64,
}

/// The value of a field of the pod. A label or annotation that is not there is empty.
pub fn field(pod: &Pod, path: &str) -> Result<String, Error> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(Error::Field { path: path.to_owned() }),
        };
        return Ok(text(map.as_ref().and_then(|map| map.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.podIP" => text(status.and_then(|status| status.pod_ip.as_ref())),
        "status.hostIP" => text(status.and_then(|status| status.host_ip.as_ref())),
        "status.podIPs" => {
            let ips = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
            ips.map(|ip| ip.ip.as_str()).collect::<Vec<_>>().join(",")
        }
        "status.hostIPs" => {
            let ips = status.and_then(|status| status.host_ips.as_ref()).into_iter().flatten();
            ips.map(|ip| ip.ip.as_str()).collect::<Vec<_>>().join(",")
        }
        _ => return Err(Error::Field { path: path.to_owned() }),
    })
}

/// One `key="value"` a line, sorted by key.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// As a string literal of Go, which is what readers of these files parse.
fn quoted(value: &str) -> String {
    let mut quoted = String::from('"');
    for character in value.chars() {
        // Writing to a string does not fail.
        let _ = match character {
            '"' | '\\' => write!(quoted, "\\{character}"),
            '\n' => quoted.write_str("\\n"),
            '\r' => quoted.write_str("\\r"),
            '\t' => quoted.write_str("\\t"),
            '\u{7}' => quoted.write_str("\\a"),
            '\u{8}' => quoted.write_str("\\b"),
            '\u{b}' => quoted.write_str("\\v"),
            '\u{c}' => quoted.write_str("\\f"),
            control if control.is_ascii_control() => write!(quoted, "\\x{:02x}", u32::from(control)),
            control if control.is_control() => write!(quoted, "\\u{:04x}", u32::from(control)),
            plain => quoted.write_char(plain),
        };
    }
    quoted.push('"');
    quoted
}

/// How a resource is counted.
type Count = fn(&Quantity) -> Result<u64, QuantityError>;

/// The value of a container's resource, divided and rounded up. `own` is the container that asks, for a selector that
/// names none; a limit that is not set is all that the node has.
pub fn resource(
    pod: &Pod,
    own: Option<&str>,
    selector: &ResourceFieldSelector,
    node: Allocatable,
) -> Result<String, Error> {
    let resource = &selector.resource;
    let unknown = || Error::Resource { resource: resource.clone() };
    let name = selector.container_name.as_deref().filter(|name| !name.is_empty()).or(own).unwrap_or_default();
    let container = container(pod, name)
        .ok_or_else(|| Error::Container { container: name.to_owned(), resource: resource.clone() })?;
    let (kind, what) = resource.split_once('.').ok_or_else(unknown)?;
    let (count, all): (Count, u64) = match what {
        "cpu" => (quantity::milli, node.cpu_milli),
        "memory" => (quantity::whole, node.memory),
        _ => return Err(unknown()),
    };
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|all| all.limits.as_ref()).and_then(|limits| limits.get(what));
    let request = resources.and_then(|all| all.requests.as_ref()).and_then(|requests| requests.get(what));
    let wrong = |source| Error::Quantity { container: name.to_owned(), resource: resource.clone(), source };
    let value = match kind {
        "limits" => limit.map_or(Ok(all), count).map_err(wrong)?,
        "requests" => request.or(limit).map_or(Ok(0), count).map_err(wrong)?,
        _ => return Err(unknown()),
    };
    let one = Quantity("1".to_owned());
    let divisor = count(selector.divisor.as_ref().filter(|divisor| divisor.0 != "0").unwrap_or(&one));
    Ok(value.div_ceil(divisor.map_err(wrong)?.max(1)).to_string())
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .find(|container| container.name == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "launcher", "namespace": "default", "uid": "u1",
                "labels": {"b": "2", "a": "1"},
                "annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\n  \"name\": \"x\"\n}]", "ü": "\u{1}ö\\"},
            },
            "spec": {
                "nodeName": "node1", "serviceAccountName": "default",
                "containers": [{"name": "a", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}}],
                "initContainers": [{"name": "first"}],
            },
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "192.0.2.1"},
        }))
        .unwrap()
    }

    #[test]
    fn fields() {
        for (path, expected) in [
            ("metadata.name", "launcher"),
            ("metadata.namespace", "default"),
            ("metadata.uid", "u1"),
            ("metadata.labels", "a=\"1\"\nb=\"2\""),
            ("metadata.labels['b']", "2"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['k8s.v1.cni.cncf.io/network-status']", "[{\n  \"name\": \"x\"\n}]"),
            (
                "metadata.annotations",
                "k8s.v1.cni.cncf.io/network-status=\"[{\\n  \\\"name\\\": \\\"x\\\"\\n}]\"\nü=\"\\x01ö\\\\\"",
            ),
            ("spec.nodeName", "node1"),
            ("spec.serviceAccountName", "default"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,fd00::1"),
            ("status.hostIP", "192.0.2.1"),
            ("status.hostIPs", ""),
        ] {
            assert_eq!(field(&pod(), path).unwrap(), expected, "{path}");
        }
        for path in ["", "spec.containers", "metadata.finalizers['x']", "metadata.labels['x"] {
            assert!(matches!(field(&pod(), path), Err(Error::Field { .. })), "{path}");
        }
    }

    #[test]
    fn resources() {
        let node = Allocatable { cpu_milli: 2000, memory: 1 << 30 };
        let of = |container: &str, resource: &str, divisor: Option<&str>| {
            let selector = ResourceFieldSelector {
                container_name: Some(container.to_owned()),
                divisor: divisor.map(|divisor| Quantity(divisor.to_owned())),
                resource: resource.to_owned(),
            };
            resource_of(&selector, node)
        };
        for (container, resource, divisor, expected) in [
            ("a", "limits.cpu", None, "2"),
            ("a", "limits.cpu", Some("1m"), "1500"),
            ("a", "limits.memory", None, "67108864"),
            ("a", "limits.memory", Some("1Mi"), "64"),
            ("a", "limits.memory", Some("0"), "67108864"),
            ("a", "requests.cpu", Some("1m"), "250"),
            ("a", "requests.memory", Some("1Mi"), "64"),
            ("first", "limits.cpu", Some("1m"), "2000"),
            ("first", "limits.memory", Some("1Gi"), "1"),
            ("first", "requests.memory", None, "0"),
        ] {
            assert_eq!(
                of(container, resource, divisor).unwrap(),
                expected,
                "{container} {resource} {divisor:?}"
            );
        }
        assert!(matches!(of("b", "limits.cpu", None), Err(Error::Container { .. })));
        assert!(matches!(of("a", "limits.gpu", None), Err(Error::Resource { .. })));
        assert!(matches!(of("a", "cpu", None), Err(Error::Resource { .. })));
        assert!(matches!(of("a", "limits.cpu", Some("x")), Err(Error::Quantity { .. })));
    }

    fn resource_of(selector: &ResourceFieldSelector, node: Allocatable) -> Result<String, Error> {
        resource(&pod(), None, selector, node)
    }
}
