//! The settings of one move: the installation's, then those of the policy that the VM falls under.

use api::condition::{self, ConditionEntry as _, ConditionStatus};
use api::kubevirt::{KubeVirt, MigrationOptions, VirtualMachineInstance};
use api::migrations::{MigrationPolicy, matching_policy};
use api::names::{conditions, reasons};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use migration::Wait;

use crate::error::{Error, describe, named};
use crate::{Context, installation};

/// Settings, and the name of the policy that had a say.
pub(super) struct Settings {
    pub options: MigrationOptions,
    pub policy: Option<String>,
}

/// The settings that a VM's next move has.
pub(super) async fn of(vmi: &VirtualMachineInstance, context: &Context) -> Result<Settings, Error> {
    let policies: Api<MigrationPolicy> = Api::all(context.client.clone());
    let policies = policies
        .list(&ListParams::default())
        .await
        .map_err(Error::api("listing the policies for", describe(vmi)))?
        .items;
    let policy = if policies.is_empty() {
        None
    } else {
        let name = vmi.namespace().unwrap_or_default();
        let namespaces: Api<Namespace> = Api::all(context.client.clone());
        let namespace = namespaces
            .get_opt(&name)
            .await
            .map_err(Error::api("reading", named::<Namespace>(None, &name)))?;
        let labels = namespace.map(|namespace| namespace.labels().clone()).unwrap_or_default();
        matching_policy(&policies, &labels, vmi.labels())
    };
    let installation = installation::current(&context.installation);
    let options = effective(installation.as_deref(), policy);
    Ok(Settings { options, policy: policy.map(MigrationPolicy::name_any) })
}

/// The installation's settings alone: what limits are about.
pub(crate) fn of_cluster(context: &Context) -> MigrationOptions {
    effective(installation::current(&context.installation).as_deref(), None)
}

fn effective(installation: Option<&KubeVirt>, policy: Option<&MigrationPolicy>) -> MigrationOptions {
    let configuration = installation.and_then(|installation| installation.spec.configuration.as_ref());
    let cluster = configuration.and_then(|configuration| configuration.migrations.as_ref());
    let network = installation.and_then(|installation| installation.spec.migration_network());
    MigrationOptions {
        network: network.map(str::to_owned),
        ..MigrationOptions::effective(cluster, policy.map(|policy| &policy.spec))
    }
}

/// Why nothing may begin to move now: the installation is being changed.
pub(super) fn rolling_out(context: &Context) -> Option<Wait> {
    unready(installation::current(&context.installation)?.as_ref())
        .map(|message| Wait { reason: reasons::INSTALLATION_NOT_READY, message })
}

/// Why migrations must wait for the installation; none: it is ready.
pub(crate) fn unready(installation: &KubeVirt) -> Option<String> {
    let status = installation.status.clone().unwrap_or_default();
    let behind = installation::is_behind(installation);
    if status.all_components_ready() && !behind {
        return None;
    }
    let why = match condition::find(&status.conditions, conditions::AVAILABLE) {
        _ if behind => "its configuration has not reached virt-handler yet".to_owned(),
        Some(available) => {
            // It names nodes and what they lack, which is why they are not ready more often than not.
            let road = condition::find(&status.conditions, conditions::MIGRATION_NETWORK_READY);
            let road = road.filter(|road| road.status() == ConditionStatus::False);
            let road = road.map(|road| format!(" {}", road.message())).unwrap_or_default();
            format!("{}: {}{road}", available.reason(), available.message())
        }
        None => "nobody has said yet that virt-handler is ready".to_owned(),
    };
    Some(format!(
        "the installation {}/{} is being changed ({why}); VMs move again when its condition Available has the reason {}",
        installation.namespace().unwrap_or_default(),
        installation.name_any(),
        reasons::ALL_COMPONENTS_READY,
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_moves_until_what_was_asked_for_is_there() {
        for (seen, available, says) in [
            (3, Some(("True", "AllComponentsReady")), None),
            (
                2,
                Some(("True", "AllComponentsReady")),
                Some("its configuration has not reached virt-handler yet"),
            ),
            (3, Some(("True", "UpdateInProgress")), Some("UpdateInProgress: 1 of 3")),
            (3, Some(("False", "DeploymentFailed")), Some("DeploymentFailed: 1 of 3")),
            (3, None, Some("nobody has said yet that virt-handler is ready")),
        ] {
            let conditions: Vec<_> = available
                .iter()
                .map(|(status, reason)| {
                    json!({ "type": "Available", "status": status, "reason": reason, "message": "1 of 3" })
                })
                .collect();
            let installation: KubeVirt = serde_json::from_value(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": { "name": "kubevirt", "namespace": "kubevirt", "generation": 3 }, "spec": {},
                "status": { "observedGeneration": seen, "conditions": conditions },
            }))
            .unwrap();
            let why = unready(&installation);
            assert_eq!(why.is_some(), says.is_some(), "{why:?}");
            assert!(why.unwrap_or_default().contains(says.unwrap_or_default()), "{says:?}");
        }
    }

    #[test]
    fn a_node_that_is_in_the_way_is_named() {
        for (road, says) in
            [("False", "1 of 3. node-1: no certificate)"), ("True", "1 of 3.)"), ("Unknown", "1 of 3.)")]
        {
            let installation: KubeVirt = serde_json::from_value(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": { "name": "kubevirt", "namespace": "kubevirt" }, "spec": {},
                "status": { "conditions": [
                    { "type": "Available", "status": "True", "reason": "UpdateInProgress", "message": "1 of 3." },
                    { "type": "MigrationNetworkReady", "status": road, "message": "node-1: no certificate" },
                ] },
            }))
            .unwrap();
            let why = unready(&installation).unwrap();
            assert!(why.contains(says), "{why}");
        }
    }
}
