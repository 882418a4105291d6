//! What the OCI runtime is told of a container. Pure: a container, its image and its surroundings in, a document out.
//!
//! The defaults are those that container runtimes for Kubernetes agree on. Limits of open files and the like are left
//! as the agent has them: raising them is not everywhere allowed.

pub mod capabilities;
mod mounts;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, LinuxResources, LinuxResourcesBuilder, Process, ProcessBuilder, RootBuilder, Spec,
    SpecBuilder, UserBuilder, get_default_maskedpaths, get_default_readonly_paths,
};

use super::{Container, Propagation, Resources, Security};
use crate::images::Configuration;

const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The period that a CPU quota is counted in, in microseconds.
const PERIOD: u64 = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{name:?} is not a capability of Linux")]
    UnknownCapability { name: String },
    #[error("capability {name} cannot be given: the node itself does not have it")]
    MissingCapability { name: String },
    #[error("the container's description is not whole")]
    Incomplete {
        #[source]
        source: OciSpecError,
    },
}

impl From<OciSpecError> for Error {
    fn from(source: OciSpecError) -> Self {
        Self::Incomplete { source }
    }
}

/// What a container's description depends on besides the container.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// Where its root file system is mounted.
    pub root: &'a Path,
    pub image: &'a Configuration,
    pub cgroup: &'a str,
    /// What the node itself may do; nobody can give more.
    pub capabilities: &'a [Capability],
}

/// The description of a container.
pub fn spec(container: &Container, around: &Surroundings<'_>) -> Result<Spec, Error> {
    let root =
        RootBuilder::default().path(around.root).readonly(container.security.read_only_root).build()?;
    let mut spec = SpecBuilder::default()
        .version("1.0.2")
        .process(process(container, around)?)
        .root(root)
        .mounts(mounts::of(container)?)
        .annotations(container.labels.clone().into_iter().collect::<HashMap<_, _>>())
        .linux(linux(container, around)?)
        .build()?;
    spec.set_hostname(Some(container.hostname.clone()).filter(|name| !name.is_empty()));
    Ok(spec)
}

/// The command line: the container's, or the image's, or a shell.
fn command(container: &Container, image: &Configuration) -> Vec<String> {
    [&container.command, &image.entrypoint]
        .into_iter()
        .find(|command| !command.is_empty())
        .cloned()
        .unwrap_or_else(|| vec!["/bin/sh".to_owned()])
}

fn process(container: &Container, around: &Surroundings<'_>) -> Result<Process, Error> {
    let security = &container.security;
    let given: std::collections::HashSet<_> =
        capabilities::given(security, around.capabilities)?.into_iter().collect();
    // Inheritable and ambient stay empty: a process that gave up its powers must not get them back by running a program.
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(given.clone())
        .permitted(given.clone())
        .effective(given)
        .inheritable([])
        .ambient([])
        .build()?;
    let mut process = ProcessBuilder::default()
        .terminal(false)
        .user(user(security)?)
        .args(command(container, around.image))
        .env(environment(container, around.image))
        .cwd(working_directory(container, around.image))
        .capabilities(capabilities)
        .no_new_privileges(security.no_new_privileges)
        .build()?;
    process.set_rlimits(None);
    Ok(process)
}

fn user(security: &Security) -> Result<oci_spec::runtime::User, Error> {
    Ok(UserBuilder::default()
        .uid(security.user.unwrap_or(0))
        .gid(security.group.unwrap_or(0))
        .additional_gids(security.supplemental_groups.clone())
        .build()?)
}

fn working_directory(container: &Container, image: &Configuration) -> PathBuf {
    container.working_directory.clone().or_else(|| image.working_dir.clone()).unwrap_or_else(|| "/".into())
}

/// Each name once; the container's own wins over the image's, and that over the defaults.
fn environment(container: &Container, image: &Configuration) -> Vec<String> {
    let defaults = [("PATH", SEARCH), ("HOSTNAME", container.hostname.as_str())];
    let image = image.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let own = container.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let merged: BTreeMap<_, _> = defaults.into_iter().chain(image).chain(own).collect();
    merged.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn linux(container: &Container, around: &Surroundings<'_>) -> Result<Linux, Error> {
    let privileged = container.security.privileged;
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(container)?)
        .cgroups_path(around.cgroup)
        .resources(resources(&container.resources, privileged)?)
        .masked_paths(if privileged { Vec::new() } else { get_default_maskedpaths() })
        .readonly_paths(if privileged { Vec::new() } else { get_default_readonly_paths() })
        .build()?;
    linux.set_rootfs_propagation(propagation(container).map(str::to_owned));
    Ok(linux)
}

/// A mount passes on what happens in it only if the mount that it is made in does.
fn propagation(container: &Container) -> Option<&'static str> {
    let any = |wanted| container.mounts.iter().any(|mount| mount.propagation == wanted);
    if any(Propagation::Bidirectional) {
        Some("rshared")
    } else if any(Propagation::HostToContainer) {
        Some("rslave")
    } else {
        None
    }
}

fn namespaces(container: &Container) -> Result<Vec<LinuxNamespace>, Error> {
    let new = |typ| LinuxNamespaceBuilder::default().typ(typ).build();
    let mut namespaces = vec![new(LinuxNamespaceType::Mount)?, new(LinuxNamespaceType::Uts)?];
    if !container.host_pid {
        namespaces.push(new(LinuxNamespaceType::Pid)?);
    }
    if !container.host_ipc {
        namespaces.push(new(LinuxNamespaceType::Ipc)?);
    }
    if let Some(path) = &container.network {
        let entered = LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::Network).path(path.clone());
        namespaces.push(entered.build()?);
    }
    Ok(namespaces)
}

fn resources(wanted: &Resources, privileged: bool) -> Result<LinuxResources, Error> {
    let mut cpu = LinuxCpuBuilder::default();
    if let Some(shares) = wanted.cpu_shares {
        cpu = cpu.shares(shares);
    }
    if let Some(millis) = wanted.cpu_quota_millis {
        // The kernel takes no less than a millisecond a period.
        cpu = cpu.quota((millis * 100).max(1000)).period(PERIOD);
    }
    let mut resources =
        LinuxResourcesBuilder::default().devices(devices(privileged)?).cpu(cpu.build()?).build()?;
    if let Some(limit) = wanted.memory_limit {
        resources.set_memory(Some(LinuxMemoryBuilder::default().limit(limit).build()?));
    }
    Ok(resources)
}

/// Nothing but what the runtime itself adds (null, zero, random, the terminal), unless it is privileged.
fn devices(privileged: bool) -> Result<Vec<LinuxDeviceCgroup>, Error> {
    let all = LinuxDeviceCgroupBuilder::default().allow(privileged).typ(LinuxDeviceType::A).access("rwm");
    Ok(vec![all.build()?])
}

#[cfg(test)]
mod tests;
