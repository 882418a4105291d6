//! The behaviour suite: what clients of Kubernetes rely on, tried with kube-rs and with raw requests.
//!
//! Every test runs on either engine (see `testkit::Server`); all share one server, and each works in its own namespace and with its own
//! definitions, so that they can run side by side. A test that restarts its server or exhausts its history starts one of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helpers"
)]

mod admission;
mod apply;
mod auth;
mod chunking;
mod controller;
mod crd;
mod crud;
mod events;
mod eviction;
mod finalizers;
mod gc;
mod leases;
mod namespaces;
mod own_kinds;
mod patch;
mod selectors;
mod watch;
mod watcher;

use kube::Client;
use serde_json::{Value, json};
use testkit::{Http, Options, Server, eventually};
use tokio::sync::OnceCell;

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// A namespace on the shared server, and clients of it. The namespace is deleted at the end, without waiting.
struct Space {
    server: &'static Server,
    client: Client,
    http: Http,
    name: String,
}

impl Space {
    async fn new() -> Self {
        let server = SERVER.get_or_init(|| Server::start(Options::default())).await;
        let client = server.client().await;
        let http = Http::new(client.clone());
        let name = format!("suite-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        http.post("/api/v1/namespaces", &body).await.ok();
        Self { server, client, http, name }
    }

    /// The path of a resource of the core group in this namespace.
    fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.name)
    }

    async fn config_map(&self, name: &str, data: &Value) -> Value {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.http.post(&self.core("configmaps"), &body).await.ok()
    }

    /// Defines a resource `things` of a group of our own: `/status`, `/scale` and any spec. Returns the path of its collection here.
    async fn things(&self) -> Things {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": any, "status": any}});
        self.define(schema).await
    }

    async fn define(&self, schema: Value) -> Things {
        let group = format!("{}.test", self.name);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.http.post(definitions, &definition).await.ok();
        let path = format!("/apis/{group}/v1/namespaces/{}/things", self.name);
        eventually("the definition to be served", async || {
            self.http.get(&path).await.status.is_success().then_some(())
        })
        .await;
        Things { group, path }
    }
}

/// A custom resource of a test's own.
struct Things {
    group: String,
    /// Of the collection in the test's namespace.
    path: String,
}

impl Things {
    fn at(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    fn api_version(&self) -> String {
        format!("{}/v1", self.group)
    }

    #[allow(clippy::needless_pass_by_value, reason = "every caller writes it in place")]
    fn body(&self, name: &str, spec: Value) -> Value {
        json!({"apiVersion": self.api_version(), "kind": "Thing", "metadata": {"name": name}, "spec": spec})
    }

    /// For kube-rs.
    fn resource(&self) -> kube::api::ApiResource {
        let gvk = kube::api::GroupVersionKind::gvk(&self.group, "v1", "Thing");
        kube::api::ApiResource::from_gvk_with_plural(&gvk, "things")
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a resourceVersion")
}
