//! Migrations of the traveller: their requests, how far they are, how they end, and the settings
//! that they follow.

use std::time::Duration;

use serde_json::{Value, json};

use crate::installation::Installation;
use crate::objects::{KUBEVIRT, Kind, VMS, text};

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
        let migration = self.object(Kind::Migration, VMS, name);
        assert!(!migration.is_null(), "there is no migration {name}\n{}", self.describe());
        migration
    }

    /// Requests a migration of the traveller, again while it is refused: the controller may not know yet that a handler, which was
    /// killed, is back.
    pub fn request_until_admitted(&self, name: &str) {
        self.until_it_is("a migration is admitted", PATIENCE, || {
            self.with_manifest("create", &request(name)).status.success()
        });
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
        let all = self.selected(Kind::Pod, VMS, "kubevirt.io=virt-launcher", "");
        let ended = |pod: &Value| matches!(text(pod, "/status/phase").as_str(), "Succeeded" | "Failed");
        let pods = all.iter().filter(|pod| !ended(pod));
        pods.map(|pod| (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"))).collect()
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
            let seen = self.object(Kind::KubeVirt, KUBEVIRT, "kubevirt");
            self.condition("Available").1 == "All components are ready."
                && seen["metadata"]["generation"] == seen["status"]["observedGeneration"]
        };
        self.until_it_is("the installation is whole", PATIENCE, whole);
    }
}
