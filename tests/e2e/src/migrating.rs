//! Migrations of the traveller: their requests, how far they are, how they end, and the settings
//! that they follow.

use std::time::Duration;

use serde_json::{Value, json};

use crate::installation::Installation;

const GENERATIONS: &str = "jsonpath={.metadata.generation} {.status.observedGeneration}";
/// From the request to its end, on a machine that emulates guests.
const PATIENCE: Duration = Duration::from_mins(2);

/// The manifest of a request to migrate the traveller.
pub fn request(name: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {{ name: {name} }}
spec: {{ vmiName: traveller }}
"
    )
}

impl Installation {
    pub fn migration(&self, name: &str) -> Value {
        serde_json::from_str(&self.kubectl_ok(&["get", "vmim", name, "-o", "json"])).unwrap()
    }

    /// Waits until guest memory is on its way.
    pub fn under_way(&self, name: &str) {
        self.until("guest memory is on its way", PATIENCE, || {
            let migration = self.migration(name);
            let moves =
                migration["status"]["progress"]["processedBytes"].as_u64().is_some_and(|bytes| bytes > 0);
            assert_ne!(migration["status"]["phase"], "Failed", "{migration:#}\n{}", self.describe());
            moves.then_some(())
        });
    }

    /// Waits for the end of a move.
    pub fn ended(&self, name: &str) -> Value {
        let over = || {
            let migration = self.migration(name);
            matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed")).then_some(migration)
        };
        self.until("the move is over", PATIENCE, over)
    }

    /// Launcher pods that have not ended, with their nodes.
    pub fn launchers(&self) -> Vec<(String, String)> {
        let all = self.kubectl_ok(&["get", "pods", "-l", "kubevirt.io=virt-launcher", "-o", "json"]);
        let all: Value = serde_json::from_str(&all).unwrap();
        let of = |pod: &Value, path: &str| {
            pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let ended = |pod: &Value| matches!(of(pod, "/status/phase").as_str(), "Succeeded" | "Failed");
        let pods = all["items"].as_array().unwrap().iter().filter(|pod| !ended(pod));
        pods.map(|pod| (of(pod, "/metadata/name"), of(pod, "/spec/nodeName"))).collect()
    }

    /// Changes how machines move in this cluster.
    pub fn configure(&self, migrations: &Value) {
        let patch = json!({ "spec": { "configuration": { "migrations": migrations } } });
        self.kubectl_ok(&[
            "-n",
            "kubevirt",
            "patch",
            "kubevirt",
            "kubevirt",
            "--type=merge",
            "-p",
            &patch.to_string(),
        ]);
        self.until_it_is_whole();
    }

    /// Nothing moves while a handler is missing, or a change is on its way to them.
    pub fn until_it_is_whole(&self) {
        let whole = || {
            let seen = self.in_installation(&["get", "kv", "kubevirt", "-o", GENERATIONS]);
            self.condition("Available").1 == "All components are ready."
                && seen.split_once(' ').is_some_and(|(made, observed)| made == observed)
        };
        self.until_it_is("the installation is whole", PATIENCE, whole);
    }
}
