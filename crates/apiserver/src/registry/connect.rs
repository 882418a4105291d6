//! Which container of which node a request is about, and conversations with it: `exec` and `attach`.
//!
//! The node serves them. This server knows who calls, finds the node, asks it for the same change of protocol, and from then on
//! moves bytes that it does not read: which protocols there are is the node's business.

use std::sync::Arc;

use serde_json::Value;

use super::node::NodeClient;
use super::{Registry, Verb};
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::object;
use crate::status::{ApiError, ApiResult};

/// A container, and the node that its pod was given.
pub(super) struct Place {
    pub(super) node: Value,
    pub(super) pod: Value,
    pub(super) container: String,
}

impl Place {
    /// Where the node has what it serves of this container.
    pub(super) fn path(&self, what: &str) -> String {
        format!("/{what}/{}/{}/{}", object::namespace(&self.pod), object::name(&self.pod), self.container)
    }
}

impl Registry {
    /// `GET` or `POST pods/NAME/exec` and `attach`, as a change of protocol.
    pub(super) async fn connect(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        if !matches!(call.verb, Verb::Get | Verb::Create) {
            return Err(ApiError::method_not_allowed());
        }
        let place = self.container(call, kind)?;
        let nodes = self.kubelets()?;
        let upgrade =
            call.upgrade.as_ref().ok_or_else(|| ApiError::bad_request("Upgrade request required"))?;
        let path = format!("{}?{}", place.path(&call.route.subresource), options(call));
        nodes.connect(&place, call.verb, &path, upgrade, self.stopping.subscribe()).await
    }

    /// The container that the request names, or the only one that there is.
    pub(super) fn container(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Place> {
        let pod = self.stored(kind, call.route.namespace(), call.route.name())?.value();
        let names: Vec<&str> = ["initContainers", "containers"]
            .iter()
            .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
            .filter_map(|container| container["name"].as_str())
            .collect();
        let asked = call.query.text("container");
        let container = match (asked, pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice)) {
            ("", [only]) => only["name"].as_str().unwrap_or_default(),
            ("", _) => {
                return Err(ApiError::bad_request(format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    object::name(&pod),
                    names.join(" ")
                )));
            }
            (asked, _) if names.contains(&asked) => asked,
            (asked, _) => {
                return Err(ApiError::bad_request(format!(
                    "container {asked} is not valid for pod {}",
                    object::name(&pod)
                )));
            }
        };
        let container = container.to_owned();
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(ApiError::bad_request(format!(
                "pod {} does not have a host assigned",
                object::name(&pod)
            )));
        }
        let found = self.store.view().get("nodes", node).map(|stored| stored.value());
        let node = found.ok_or_else(|| ApiError::not_found("", "nodes", node))?;
        Ok(Place { node, pod, container })
    }

    pub(super) fn kubelets(&self) -> ApiResult<&NodeClient> {
        self.nodes.as_ref().ok_or_else(|| {
            let message = "this server runs without nodes: it has no way to reach a container";
            ApiError::new(501, "NotImplemented", message)
        })
    }
}

/// What the caller asks for, as kubelets call it.
fn options(call: &Call) -> String {
    let mut options = form_urlencoded::Serializer::new(String::new());
    options.extend_pairs(call.query.all("command").map(|word| ("command", word)));
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if call.query.flag(ours) {
            options.append_pair(theirs, "1");
        }
    }
    options.finish()
}
