//! What a container may do, out of what the node may do.

use std::io;

use oci_spec::runtime::Capability;

use super::Error;
use crate::runtime::Security;

/// By their numbers in the kernel.
const NUMBERED: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE \
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE \
    SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL \
    SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

/// What a container has that asks for nothing.
const USUAL: &str = "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE \
    SYS_CHROOT KILL AUDIT_WRITE";

fn named(names: &str) -> Vec<Capability> {
    names.split(' ').filter_map(|name| name.parse().ok()).collect()
}

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
    Ok(named(NUMBERED)
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| had >> bit & 1 == 1)
        .map(|(_, one)| one)
        .collect())
}

/// What the container gets, in the order of the kernel.
pub(super) fn given(security: &Security, node: &[Capability]) -> Result<Vec<Capability>, Error> {
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    if let Some(missing) = add.iter().find(|one| !node.contains(one)) {
        return Err(Error::MissingCapability { name: missing.to_string() });
    }
    let all = security.privileged || add_all;
    let usual = named(USUAL);
    // A single name says more than ALL; between the two ALL, what is dropped counts.
    let wanted = |one: &Capability| {
        let by_default = !drop_all && (all || usual.contains(one));
        (by_default && !drop.contains(one)) || add.contains(one)
    };
    Ok(named(NUMBERED).into_iter().filter(|one| node.contains(one) && wanted(one)).collect())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use super::*;

    fn security(privileged: bool, add: &[&str], drop: &[&str]) -> Security {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Security {
            privileged,
            add_capabilities: owned(add),
            drop_capabilities: owned(drop),
            ..Security::default()
        }
    }

    #[test]
    fn every_name_is_one() {
        assert_eq!(named(NUMBERED).len(), NUMBERED.split(' ').count());
        assert_eq!(named(NUMBERED).len(), 41);
        assert_eq!(named(USUAL).len(), 14);
        assert_eq!(named(NUMBERED)[21], Capability::SysAdmin);
    }

    #[test]
    fn what_is_added_and_dropped() {
        let node = named(NUMBERED);
        let count = |security: Security| given(&security, &node).unwrap().len();
        assert_eq!(count(security(false, &[], &[])), 14);
        assert_eq!(count(security(false, &["NET_ADMIN", "cap_kill"], &[])), 15);
        assert_eq!(count(security(false, &[], &["CAP_KILL"])), 13);
        assert_eq!(count(security(false, &["ALL"], &["NET_RAW"])), 40);
        assert_eq!(count(security(true, &[], &[])), 41);
        let only = given(&security(false, &["NET_BIND_SERVICE"], &["ALL"]), &node).unwrap();
        assert_eq!(only, [Capability::NetBindService]);
    }

    #[test]
    fn nobody_gives_what_the_node_has_not() {
        let node = [Capability::Chown, Capability::NetAdmin];
        assert_eq!(given(&security(true, &[], &[]), &node).unwrap(), node);
        assert_eq!(given(&security(false, &[], &[]), &node).unwrap(), [Capability::Chown]);
        let error = given(&security(true, &["SYS_RESOURCE"], &[]), &node).unwrap_err();
        assert_eq!(
            error.to_string(),
            "capability SYS_RESOURCE cannot be given: the node itself does not have it"
        );
        let error = given(&security(false, &["SYS_MAGIC"], &[]), &node).unwrap_err();
        assert_eq!(error.to_string(), "\"SYS_MAGIC\" is not a capability of Linux");
    }
}
