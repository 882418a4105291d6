//! Disks and what they hold.
//!
//! The controller mounts a user's volumes at places that follow from their names; no path of the node is ever opened here.

use std::path::{Path, PathBuf};

use api::kubevirt::{
    CloudInitNoCloud, Disk as DiskSpec, DiskBus, DriverCache, HostDiskType, VirtualMachineInstance, Volume,
};
use api::names::paths;
use api::quantity;
use base64::Engine as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{PlanError, first_label};

/// The file of a claim that is a file system.
const CLAIM_FILE: &str = "disk.img";
/// Where first-boot settings become disks.
const SETTINGS_DIRECTORY: &str = "/run/godwit/settings";

/// A disk as it will be made. Its bytes are the guest's own, in no format: one that was guessed could be guessed wrong, from what a
/// guest wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    pub source: Source,
    pub bus: DiskBus,
    pub cdrom: bool,
    pub read_only: bool,
    pub shareable: bool,
    pub cache: Option<DriverCache>,
    pub serial: Option<String>,
    pub boot_order: Option<u32>,
}

/// What a disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file that is there; with a size, one that is made if it is not.
    File { path: PathBuf, create: Option<u64> },
    /// A claim: a block device, or a directory with a file in it. Which of them is seen on the spot.
    Claim { path: PathBuf },
    /// A new file of this size.
    Empty { path: PathBuf, size: u64 },
    /// A file made of first-boot settings.
    Settings { path: PathBuf, settings: Settings },
}

impl Source {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. }
            | Self::Claim { path }
            | Self::Empty { path, .. }
            | Self::Settings { path, .. } => path,
        }
    }
}

/// First-boot settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub user_data: Option<Content>,
    pub network_data: Option<Content>,
    pub instance: String,
    pub hostname: String,
}

/// Bytes that are known, or the file that a secret is mounted at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

pub(super) fn disks(vmi: &VirtualMachineInstance) -> Result<Vec<Disk>, PlanError> {
    let disks = &vmi.spec.domain.devices.disks;
    let mut planned: Vec<Disk> = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let field = format!("spec.domain.devices.disks[{index}].name");
        check_name(&field, &disk.name)?;
        if planned.iter().any(|other| other.name == disk.name) {
            return Err(PlanError::field(field, format!("there are two called {}", disk.name)));
        }
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
        let volume = volume
            .ok_or_else(|| PlanError::field(field, format!("there is no volume called {}", disk.name)))?;
        planned.push(planned_disk(disk, volume, vmi)?);
    }
    Ok(planned)
}

/// Names become paths.
fn check_name(field: &str, name: &str) -> Result<(), PlanError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '.';
    if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
        let problem = format!("{name:?} is not a name: expected letters, digits, dashes and dots");
        return Err(PlanError::field(field, problem));
    }
    Ok(())
}

fn planned_disk(disk: &DiskSpec, volume: &Volume, vmi: &VirtualMachineInstance) -> Result<Disk, PlanError> {
    let target = disk.disk.clone().unwrap_or_default();
    let claim = volume.persistent_volume_claim.as_ref();
    let (bus, read_only) = match &disk.cdrom {
        Some(cdrom) => (cdrom.bus, cdrom.readonly != Some(false)),
        None => (target.bus, target.readonly == Some(true)),
    };
    Ok(Disk {
        name: disk.name.clone(),
        source: source(volume, vmi)?,
        bus: bus.unwrap_or(DiskBus::Sata),
        cdrom: disk.cdrom.is_some(),
        read_only: read_only || claim.is_some_and(|claim| claim.read_only == Some(true)),
        shareable: disk.shareable == Some(true),
        cache: disk.cache,
        serial: disk.serial.clone(),
        boot_order: disk.boot_order,
    })
}

fn source(volume: &Volume, vmi: &VirtualMachineInstance) -> Result<Source, PlanError> {
    let field = format!("spec.volumes[{}]", volume.name);
    let mounted = Path::new(paths::DISKS).join(&volume.name);
    if let Some(host) = &volume.host_disk {
        let field = format!("{field}.hostDisk");
        let file = Path::new(&host.path).file_name();
        let file =
            file.ok_or_else(|| PlanError::field(format!("{field}.path"), "it is not the path of a file"))?;
        let create = match host.type_ {
            HostDiskType::Disk => None,
            HostDiskType::DiskOrCreate => Some(capacity(&field, host.capacity.as_ref())?),
        };
        return Ok(Source::File { path: mounted.join(file), create });
    }
    if let Some(empty) = &volume.empty_disk {
        let size = capacity(&format!("{field}.emptyDisk"), Some(&empty.capacity))?;
        let path = Path::new(paths::EMPTY_DISKS).join(format!("{}.img", volume.name));
        return Ok(Source::Empty { path, size });
    }
    if volume.persistent_volume_claim.is_some() {
        return Ok(Source::Claim { path: mounted });
    }
    if let Some(settings) = &volume.cloud_init_no_cloud {
        let path = Path::new(SETTINGS_DIRECTORY).join(format!("{}.img", volume.name));
        return Ok(Source::Settings { path, settings: first_boot(&field, volume, settings, vmi)? });
    }
    Err(PlanError::field(field, "it has no source that is known here"))
}

/// The place of the file of a claim that is mounted as a directory.
pub(crate) fn claim_file(directory: &Path) -> PathBuf {
    directory.join(CLAIM_FILE)
}

/// Whole sectors of any disk on which the file may be, and at least one.
fn capacity(field: &str, capacity: Option<&Quantity>) -> Result<u64, PlanError> {
    const SECTOR: u64 = 4096;
    let field = format!("{field}.capacity");
    let capacity = capacity.ok_or_else(|| PlanError::field(&field, "a disk that is made needs a size"))?;
    let bytes = quantity::whole(capacity).map_err(|cause| PlanError::field(&field, cause))?;
    if bytes == 0 {
        return Err(PlanError::field(field, "a disk needs some room"));
    }
    Ok(bytes.div_ceil(SECTOR).saturating_mul(SECTOR))
}

fn first_boot(
    field: &str,
    volume: &Volume,
    settings: &CloudInitNoCloud,
    vmi: &VirtualMachineInstance,
) -> Result<Settings, PlanError> {
    let secret = |file: &str| Content::File(Path::new(paths::SECRETS).join(&volume.name).join(file));
    let content = |name: &str, plain: &Option<String>, coded: &Option<String>, secret: Option<Content>| {
        let decoded = coded.as_ref().map(|coded| {
            let decoded = base64::engine::general_purpose::STANDARD.decode(coded.trim());
            let field = format!("{field}.cloudInitNoCloud.{name}Base64");
            decoded.map(Content::Bytes).map_err(|cause| PlanError::field(field, cause))
        });
        let plain = plain.as_ref().map(|text| Content::Bytes(text.clone().into_bytes()));
        Ok::<_, PlanError>(plain.or(decoded.transpose()?).or(secret))
    };
    let name = vmi.metadata.name.clone().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
    Ok(Settings {
        user_data: content(
            "userData",
            &settings.user_data,
            &settings.user_data_base64,
            settings.secret_ref.is_some().then(|| secret("userdata")),
        )?,
        network_data: content(
            "networkData",
            &settings.network_data,
            &settings.network_data_base64,
            settings.network_data_secret_ref.is_some().then(|| secret("networkdata")),
        )?,
        instance: format!("{name}.{namespace}"),
        hostname: vmi.spec.hostname.clone().unwrap_or_else(|| first_label(&name)),
    })
}
