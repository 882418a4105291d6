//! Objects as an API server has them, for tests without an async runtime. A look costs a request on an open connection, where
//! `kubectl get` costs a process and a handshake.

use std::path::Path;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Reads what an API server has.
pub struct Objects {
    runtime: Runtime,
    client: Client,
}

impl Objects {
    /// Of the cluster that a kubeconfig names.
    pub fn of(kubeconfig: &Path) -> Self {
        // One thread besides the callers', which keeps the connection.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            Client::try_from(config.expect("a configuration")).expect("a client")
        });
        Self { runtime, client }
    }

    /// The object, or the list, at a path of the API; `None`: there is none.
    pub fn get(&self, path: &str) -> Option<Value> {
        let ask = || {
            let request = http::Request::get(path).body(Vec::new()).expect("a request");
            self.runtime.block_on(self.client.request::<Value>(request))
        };
        // Once more: the server may have closed a connection on which nothing was asked for long.
        match ask().or_else(|error| if matches!(error, kube::Error::Api(_)) { Err(error) } else { ask() }) {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("reading {path}: {error}"),
        }
    }

    /// The items of a list.
    pub fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).unwrap_or_else(|| panic!("there is no resource at {path}"));
        list["items"].as_array().expect("a list has items").clone()
    }
}
