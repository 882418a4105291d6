//! Kernel settings of a namespace: files below `/proc/sys/net`, which every thread sees as its own namespace has them.
//!
//! Settings of a link are named by path, not with dots, because a link's name may have a dot in it.

use std::path::PathBuf;

use crate::{Error, Namespace};

/// A setting: a path below `/proc/sys/net`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl(String);

impl Sysctl {
    /// Any setting: `ipv4/conf/eth0/rp_filter`.
    pub fn at(path: &str) -> Result<Self, Error> {
        if path.split('/').any(|part| matches!(part, "" | "." | "..") || part.contains('\0')) {
            let rule = "it must be a path below /proc/sys/net";
            return Err(Error::Invalid { object: format!("the setting {path:?}"), rule });
        }
        Ok(Self(path.to_owned()))
    }

    /// Whether IPv4 packets are forwarded between links.
    pub fn ip_forward() -> Self {
        Self("ipv4/ip_forward".to_owned())
    }

    /// Whether IPv6 packets are forwarded between links.
    pub fn ipv6_forwarding() -> Self {
        Self("ipv6/conf/all/forwarding".to_owned())
    }

    /// Whether a link has no IPv6 at all. `all` and `default` are links too, here and below.
    pub fn disable_ipv6(link: &str) -> Result<Self, Error> {
        Self::of_link("ipv6", link, "disable_ipv6")
    }

    /// Whether a link accepts router advertisements.
    pub fn accept_ra(link: &str) -> Result<Self, Error> {
        Self::of_link("ipv6", link, "accept_ra")
    }

    /// Whether the kernel itself announces addresses when a link comes up or its MAC address changes.
    pub fn arp_notify(link: &str) -> Result<Self, Error> {
        Self::of_link("ipv4", link, "arp_notify")
    }

    /// Whether an announcement of an address that was not known is believed.
    pub fn arp_accept(link: &str) -> Result<Self, Error> {
        Self::of_link("ipv4", link, "arp_accept")
    }

    /// Whether packets must come in by the link that answers would leave by.
    pub fn rp_filter(link: &str) -> Result<Self, Error> {
        Self::of_link("ipv4", link, "rp_filter")
    }

    fn of_link(family: &str, link: &str, setting: &str) -> Result<Self, Error> {
        if link.contains('/') {
            let object = format!("the setting {setting} of link {link:?}");
            return Err(Error::Invalid { object, rule: "the name of a link must not contain a slash" });
        }
        Self::at(&format!("{family}/conf/{link}/{setting}"))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/proc/sys/net").join(&self.0)
    }
}

impl Namespace {
    pub fn sysctl(&self, sysctl: &Sysctl) -> Result<String, Error> {
        let path = sysctl.path();
        let read = self.run(|| std::fs::read_to_string(&path))?;
        match read {
            Ok(value) => Ok(value.trim_end().to_owned()),
            Err(source) => Err(Error::File { operation: "reading setting", path, source }),
        }
    }

    pub fn set_sysctl(&self, sysctl: &Sysctl, value: &str) -> Result<(), Error> {
        let path = sysctl.path();
        // Not created: a setting that is not there is an error.
        let write = || {
            let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
            std::io::Write::write_all(&mut file, value.as_bytes())
        };
        self.run(write)?.map_err(|source| Error::File {
            operation: "writing setting",
            path: path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_leads_out_of_the_tree() {
        for path in ["", "/etc/passwd", "ipv4/../../kernel/core_pattern", "ipv4//ip_forward", "."] {
            assert!(matches!(Sysctl::at(path), Err(Error::Invalid { .. })), "{path}");
        }
        assert!(Sysctl::arp_notify("../all").is_err());
        assert_eq!(
            Sysctl::arp_notify("eth0.100").unwrap(),
            Sysctl::at("ipv4/conf/eth0.100/arp_notify").unwrap()
        );
    }
}
