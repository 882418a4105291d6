//! What a container may do, out of what the node may do.

use std::io;

use oci_spec::runtime::Capability::{self, *};

use super::Error;
use crate::runtime::Security;

/// By their numbers in the kernel.
const NUMBERED: [Capability; 41] = [
    Chown,
    DacOverride,
    DacReadSearch,
    Fowner,
    Fsetid,
    Kill,
    Setgid,
    Setuid,
    Setpcap,
    LinuxImmutable,
    NetBindService,
    NetBroadcast,
    NetAdmin,
    NetRaw,
    IpcLock,
    IpcOwner,
    SysModule,
    SysRawio,
    SysChroot,
    SysPtrace,
    SysPacct,
    SysAdmin,
    SysBoot,
    SysNice,
    SysResource,
    SysTime,
    SysTtyConfig,
    Mknod,
    Lease,
    AuditWrite,
    AuditControl,
    Setfcap,
    MacOverride,
    MacAdmin,
    Syslog,
    WakeAlarm,
    BlockSuspend,
    AuditRead,
    Perfmon,
    Bpf,
    CheckpointRestore,
];

/// What a container has that asks for nothing.
const USUAL: [Capability; 14] = [
    Chown,
    DacOverride,
    Fsetid,
    Fowner,
    Mknod,
    NetRaw,
    Setgid,
    Setuid,
    Setfcap,
    Setpcap,
    NetBindService,
    SysChroot,
    Kill,
    AuditWrite,
];

/// What this process may give to others.
pub fn own() -> io::Result<Vec<Capability>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let set = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(value.trim(), 16).ok()
    };
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status lists no capabilities");
    let had = set("CapPrm:").zip(set("CapBnd:")).map(|(permitted, bounding)| permitted & bounding);
    let had = had.ok_or_else(unreadable)?;
    Ok(NUMBERED.into_iter().enumerate().filter(|(bit, _)| had >> bit & 1 == 1).map(|(_, one)| one).collect())
}

/// What the container gets, in the order of the kernel.
pub(super) fn given(security: &Security, node: &[Capability]) -> Result<Vec<Capability>, Error> {
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    if let Some(missing) = add.iter().find(|one| !node.contains(one)) {
        return Err(Error::MissingCapability { name: missing.to_string() });
    }
    let all = security.privileged || add_all;
    // A single name says more than ALL; between the two ALL, what is dropped counts.
    let wanted = |one: &Capability| {
        let by_default = !drop_all && (all || USUAL.contains(one));
        (by_default && !drop.contains(one)) || add.contains(one)
    };
    Ok(NUMBERED.into_iter().filter(|one| node.contains(one) && wanted(one)).collect())
}

/// Whether `ALL` is among the names, and the others.
fn parse(names: &[String]) -> Result<(bool, Vec<Capability>), Error> {
    let (mut all, mut parsed) = (false, Vec::new());
    for name in names {
        let upper = name.to_uppercase();
        match upper.strip_prefix("CAP_").unwrap_or(&upper) {
            "ALL" => all = true,
            short => parsed.push(short.parse().map_err(|_| Error::UnknownCapability { name: name.clone() })?),
        }
    }
    Ok((all, parsed))
}
