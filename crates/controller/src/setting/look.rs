//! What is there: the cluster as rules see it, and what the setting has led to so far.
//!
//! Everything is read from the API server itself, not from a cache: definitions are deleted because no pod names them, and a cache
//! may be late. It must never write.

use std::fmt::Debug;

use api::harvester::{ClusterNetwork, Setting, VlanConfig, VlanStatus};
use api::kubevirt::{KubeVirt, MigrationPhase, VirtualMachineInstanceMigration};
use api::multus::NetworkAttachmentDefinition;
use api::names::{annotations, objects, reasons};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::definition;
use crate::admission::setting::{Cluster, is_under_way};
use crate::error::{Error, named};

/// The API server's own service, which has the first address of every service range.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");

/// What could not be looked at, in Harvester's words.
#[derive(Debug)]
pub struct Unseen {
    pub reason: &'static str,
    pub error: Error,
}

impl From<Error> for Unseen {
    fn from(error: Error) -> Self {
        Self { reason: reasons::VALIDATING, error }
    }
}

/// The cluster as the rules see it.
pub async fn cluster(client: &Client, namespace: &str) -> Result<Cluster, Unseen> {
    let installations: Api<KubeVirt> = Api::namespaced(client.clone(), namespace);
    let installations =
        list(&installations).await.map_err(|error| Unseen { reason: reasons::GET_KUBEVIRT_ERROR, error })?;
    let settings: Api<Setting> = Api::all(client.clone());
    let mut other_settings = Vec::new();
    for name in [objects::STORAGE_NETWORK_SETTING, objects::RWX_NETWORK_SETTING] {
        let setting =
            settings.get_opt(name).await.map_err(Error::api("reading", named::<Setting>(None, name)))?;
        other_settings.extend(setting);
    }
    let service_ranges = list::<ServiceCIDR>(&Api::all(client.clone())).await?;
    // Older clusters do not tell their service ranges.
    let api_service = if service_ranges.is_empty() { api_service(client).await? } else { None };
    Ok(Cluster {
        installation: KubeVirt::in_charge(installations),
        nodes: list::<Node>(&Api::all(client.clone())).await?,
        cluster_networks: list::<ClusterNetwork>(&Api::all(client.clone())).await?,
        vlan_configs: list::<VlanConfig>(&Api::all(client.clone())).await?,
        vlan_statuses: list::<VlanStatus>(&Api::all(client.clone())).await?,
        other_settings,
        service_ranges,
        api_service,
    })
}

async fn api_service(client: &Client) -> Result<Option<Service>, Error> {
    let (namespace, name) = API_SERVICE;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    services.get_opt(name).await.map_err(Error::api("reading", named::<Service>(Some(namespace), name)))
}

/// Every migration, over or not.
pub async fn migrations(client: &Client) -> Result<Vec<VirtualMachineInstanceMigration>, Error> {
    list(&Api::all(client.clone())).await
}

/// Those that a change of the network would disturb: what still waits for its turn goes on waiting, and then finds the new one.
pub fn moving(migrations: &[VirtualMachineInstanceMigration]) -> Vec<String> {
    let begun = |migration: &&VirtualMachineInstanceMigration| {
        let phase = migration.status.as_ref().and_then(|status| status.phase);
        let waits = [MigrationPhase::Pending, MigrationPhase::WaitingForSync, MigrationPhase::Synchronizing];
        is_under_way(migration) && phase.is_some_and(|phase| !waits.contains(&phase))
    };
    let name = |migration: &VirtualMachineInstanceMigration| {
        format!("migration {}/{}", migration.namespace().unwrap_or_default(), migration.name_any())
    };
    migrations.iter().filter(begun).map(name).collect()
}

/// The definitions that the setting has led to.
pub async fn definitions(
    client: &Client,
    namespace: &str,
) -> Result<Vec<NetworkAttachmentDefinition>, Error> {
    let all: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), namespace);
    let mut definitions = list(&all).await?;
    // By name or by mark: either may have been edited away.
    definitions.retain(|definition| {
        definition::is_ours(&definition.name_any())
            || definition.annotations().get(annotations::MIGRATION_NETWORK).is_some_and(|mark| mark == "true")
    });
    Ok(definitions)
}

/// The pods of the installation.
pub async fn pods(client: &Client, namespace: &str) -> Result<Vec<Pod>, Error> {
    list(&Api::namespaced(client.clone(), namespace)).await
}

/// All of a kind; none where the kind is not served.
async fn list<K>(api: &Api<K>) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(source) => Err(Error::api("listing", K::plural(&()).into_owned())(source)),
    }
}
