//! Which address guest memory comes to and leaves from: a function of what is wanted, what the pod's network-status file says,
//! and what its interfaces are.
//!
//! The interface is the truth: an address that the file lists and the interface has not is nobody's. The file says which network
//! the interface is of, which the interface cannot. A pod that lacks the migration network never takes another road unless
//! `Prefer` allows it, and then it says why.

use std::net::IpAddr;

use api::kubevirt::{MigrationNetworkType, NetworkPreference};
use api::multus::parse_network_status;
use api::names::interfaces;

use super::Unavailable;

/// What the `KubeVirt` object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `namespace/name` of the definition; none: the pod network.
    pub network: Option<String>,
    /// What a pod without that network does.
    pub preference: NetworkPreference,
}

/// An interface of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number: an interface that is made again under its name has another.
    pub index: u32,
    pub name: String,
    pub up: bool,
    /// In the kernel's order; none that is still tentative, or somebody else's too.
    pub addresses: Vec<IpAddr>,
}

/// What a pod can see of its networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The network-status annotation as the downward API shows it; empty until it is written.
    pub status: String,
    pub interfaces: Vec<Interface>,
    /// The address that Kubernetes knows the pod by.
    pub pod: IpAddr,
}

/// The address to use, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub address: IpAddr,
    pub interface: String,
    /// The kernel's number of that interface.
    pub link: u32,
    pub network: MigrationNetworkType,
    /// Why it is not on the network that was asked for.
    pub instead: Option<Unavailable>,
}

/// Finds the address.
pub fn find(wanted: &Wanted, facts: &Facts) -> Result<Found, Unavailable> {
    let Some(network) = &wanted.network else { return on_the_pod_network(facts, None) };
    match on_the_migration_network(network, facts) {
        Err(why) if wanted.preference == NetworkPreference::Prefer => on_the_pod_network(facts, Some(why)),
        found => found,
    }
}

fn on_the_migration_network(wanted: &str, facts: &Facts) -> Result<Found, Unavailable> {
    let interface = interfaces::MIGRATION;
    let status = parse_network_status(&facts.status)
        .map_err(|error| Unavailable::Status { problem: crate::error::chain(&error) })?;
    let entry = status.iter().find(|entry| entry.interface.as_deref() == Some(interface));
    let entry = entry.ok_or_else(|| Unavailable::NotAttached { network: wanted.to_owned() })?;
    if entry.name != wanted {
        let (network, attached) = (wanted.to_owned(), entry.name.clone());
        return Err(Unavailable::OtherNetwork { network, attached });
    }
    let there = facts.interfaces.iter().find(|there| there.name == interface);
    let there = there.ok_or_else(|| Unavailable::NoInterface { network: wanted.to_owned() })?;
    if !there.up {
        return Err(Unavailable::Down { network: wanted.to_owned() });
    }
    let usable = || there.addresses.iter().copied().filter(|address| is_usable(*address));
    let listed = entry.ips.iter().filter_map(|address| address.parse::<IpAddr>().ok());
    let listed = listed.into_iter().find(|address| usable().any(|there| there == *address));
    // What was listed may have changed since: leases run out. IPv4 first, so that all nodes of a network choose alike.
    let address = listed.or_else(|| usable().find(IpAddr::is_ipv4)).or_else(|| usable().next());
    let address = address.ok_or_else(|| Unavailable::NoAddress { network: wanted.to_owned() })?;
    Ok(Found {
        address,
        interface: interface.to_owned(),
        link: there.index,
        network: MigrationNetworkType::Migration,
        instead: None,
    })
}

fn on_the_pod_network(facts: &Facts, instead: Option<Unavailable>) -> Result<Found, Unavailable> {
    let has_it = |interface: &&Interface| interface.addresses.contains(&facts.pod);
    let interface = facts.interfaces.iter().find(has_it);
    let interface = interface.ok_or(Unavailable::NoPodAddress { address: facts.pod })?;
    Ok(Found {
        address: facts.pod,
        interface: interface.name.clone(),
        link: interface.index,
        network: MigrationNetworkType::Pod,
        instead,
    })
}

/// Whether other nodes can reach it.
fn is_usable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    const NETWORK: &str = "kubevirt/fast";

    fn wanted(network: Option<&str>) -> Wanted {
        Wanted { network: network.map(str::to_owned), preference: NetworkPreference::Require }
    }

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Interface { index: 7, name: name.to_owned(), up: true, addresses }
    }

    /// A pod with eth0, `migration0` as given, and a file that lists these addresses of this network.
    fn pod(listed: Option<(&str, &[&str])>, migration: Option<Interface>) -> Facts {
        let mut status =
            vec![json!({ "name": "pods", "interface": "eth0", "ips": ["10.1.0.5"], "default": true })];
        if let Some((name, ips)) = listed {
            status.push(json!({ "name": name, "interface": "migration0", "ips": ips }));
        }
        let interfaces =
            [interface("lo", &["127.0.0.1"]), interface("eth0", &["10.1.0.5"])].into_iter().chain(migration);
        Facts {
            status: json!(status).to_string(),
            interfaces: interfaces.collect(),
            pod: "10.1.0.5".parse().unwrap(),
        }
    }

    fn attached(listed: &[&str], addresses: &[&str]) -> Facts {
        pod(Some((NETWORK, listed)), Some(interface("migration0", addresses)))
    }

    #[test]
    fn the_address_is_one_that_the_interface_has_and_preferably_one_that_the_file_lists() {
        for (listed, there, expected) in [
            (&["192.0.2.7"][..], &["192.0.2.7"][..], Some("192.0.2.7")),
            (&["2001:db8::7"], &["fe80::1", "2001:db8::7"], Some("2001:db8::7")),
            (&["2001:db8::7", "192.0.2.7"], &["192.0.2.7", "2001:db8::7"], Some("2001:db8::7")),
            // The file is old: the interface has another address now.
            (&["192.0.2.7"], &["192.0.2.8"], Some("192.0.2.8")),
            (&["192.0.2.7"], &["2001:db8::8", "192.0.2.8"], Some("192.0.2.8")),
            (&["192.0.2.7", "2001:db8::7"], &["2001:db8::7"], Some("2001:db8::7")),
            (&["not an address"], &["192.0.2.8"], Some("192.0.2.8")),
            (&[], &["192.0.2.8"], Some("192.0.2.8")),
            // Nothing that another node could reach.
            (&["192.0.2.7"], &[], None),
            (&["fe80::1"], &["fe80::1", "169.254.7.7"], None),
            (&["127.0.0.1"], &["127.0.0.1", "224.0.0.1"], None),
        ] {
            let found = find(&wanted(Some(NETWORK)), &attached(listed, there));
            match expected {
                Some(expected) => {
                    let found = found.unwrap();
                    assert_eq!(
                        (found.address, found.interface.as_str()),
                        (expected.parse().unwrap(), "migration0")
                    );
                    assert_eq!((found.network, found.instead), (MigrationNetworkType::Migration, None));
                }
                None => assert_eq!(found, Err(Unavailable::NoAddress { network: NETWORK.into() })),
            }
        }
    }

    #[test]
    fn without_a_migration_network_it_is_the_pods_whatever_else_is_attached() {
        for facts in [pod(None, None), attached(&["192.0.2.7"], &["192.0.2.7"])] {
            let found = find(&wanted(None), &facts).unwrap();
            assert_eq!((found.address, found.interface.as_str()), (facts.pod, "eth0"));
            assert_eq!((found.network, found.instead), (MigrationNetworkType::Pod, None));
        }
        let elsewhere = Facts { pod: "10.9.9.9".parse().unwrap(), ..pod(None, None) };
        assert_eq!(
            find(&wanted(None), &elsewhere),
            Err(Unavailable::NoPodAddress { address: elsewhere.pod })
        );
    }

    #[test]
    fn a_pod_that_lacks_the_network_says_why_and_falls_back_only_if_that_is_preferred() {
        let network = || NETWORK.to_owned();
        let migration = || interface("migration0", &["192.0.2.7"]);
        let listed: Option<(&str, &[&str])> = Some((NETWORK, &["192.0.2.7"]));
        let silent = |status: &str| Facts { status: status.to_owned(), ..attached(&[], &["192.0.2.7"]) };
        let down = Interface { up: false, ..migration() };
        for (facts, expected) in [
            (pod(None, None), Unavailable::NotAttached { network: network() }),
            (pod(None, Some(migration())), Unavailable::NotAttached { network: network() }),
            (silent(""), Unavailable::NotAttached { network: network() }),
            (pod(listed, None), Unavailable::NoInterface { network: network() }),
            (pod(listed, Some(down)), Unavailable::Down { network: network() }),
            (attached(&["192.0.2.7"], &[]), Unavailable::NoAddress { network: network() }),
            (
                pod(Some(("kubevirt/slow", &["192.0.2.7"])), Some(migration())),
                Unavailable::OtherNetwork { network: network(), attached: "kubevirt/slow".into() },
            ),
        ] {
            assert_eq!(find(&wanted(Some(NETWORK)), &facts), Err(expected.clone()));
            let prefer = Wanted { preference: NetworkPreference::Prefer, ..wanted(Some(NETWORK)) };
            let found = find(&prefer, &facts).unwrap();
            assert_eq!((found.address, found.network), (facts.pod, MigrationNetworkType::Pod));
            assert_eq!(found.instead, Some(expected));
        }
        let garbled = find(&wanted(Some(NETWORK)), &silent("[{"));
        assert!(matches!(garbled, Err(Unavailable::Status { .. })), "{garbled:?}");
    }
}
