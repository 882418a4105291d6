//! What the disks of a virtual machine hold.
//!
//! It owns the sources of volumes; it must never say how the guest sees them: that is a disk.

use k8s_openapi::{api::core::v1::LocalObjectReference, apimachinery::pkg::api::resource::Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

/// A volume; the disk of the same name shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.hostDisk), has(self.emptyDisk), has(self.persistentVolumeClaim), has(self.cloudInitNoCloud)].filter(s, s).size() == 1",
    "message": "a volume has exactly one of hostDisk, emptyDisk, persistentVolumeClaim and cloudInitNoCloud",
}]))]
pub struct Volume {
    /// Name of the volume and of its disk.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// An image file on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disk: Option<HostDisk>,
    /// An empty disk that lives as long as the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_disk: Option<EmptyDisk>,
    /// A claim in the VM's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolume>,
    /// First-boot settings for the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInitNoCloud>,
}

/// An image file on the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDisk {
    /// Absolute path of the file.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^/"))]
    pub path: String,
    /// Whether the file must exist.
    #[serde(rename = "type")]
    pub type_: HostDiskType,
    /// Size of a file that is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// The path is the same storage on every node, so the VM may move. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

string_enum! {
    /// Whether the file of a host disk must exist.
    pub enum HostDiskType {
        /// It must.
        Disk = "Disk",
        /// It is created if it does not.
        DiskOrCreate = "DiskOrCreate",
    }
}

/// An empty disk that lives as long as the instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyDisk {
    /// Size.
    pub capacity: Quantity,
}

/// A claim in the VM's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimVolume {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// The VM may not write. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// First-boot settings for the guest, as cloud-init's NoCloud reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.userData), has(self.userDataBase64), has(self.secretRef)].filter(d, d).size() <= 1",
        "message": "at most one of userData, userDataBase64 and secretRef",
    },
    {
        "rule": "[has(self.networkData), has(self.networkDataBase64), has(self.networkDataSecretRef)].filter(d, d).size() <= 1",
        "message": "at most one of networkData, networkDataBase64 and networkDataSecretRef",
    },
]))]
pub struct CloudInitNoCloud {
    /// Secret with the key `userdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// User data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// User data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_base64: Option<String>,
    /// Secret with the key `networkdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// Network data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_base64: Option<String>,
}
