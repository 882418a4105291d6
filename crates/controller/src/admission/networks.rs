//! vNICs and networks: each vNIC has its network, its binding fits it, and its address is one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use api::kubevirt::{Interface, Network, PodNetwork, VirtualMachineInstanceSpec};

use super::{Causes, Rules, is_label, is_subdomain};

pub(super) fn check(spec: &VirtualMachineInstanceSpec, path: &str, rules: &Rules, causes: &mut Causes) {
    for (index, network) in spec.networks.iter().enumerate() {
        check_network(spec, network, &format!("{path}.networks[{index}]"), causes);
    }
    check_networks_together(spec, path, causes);
    let mut names = BTreeSet::new();
    let mut addresses = BTreeMap::new();
    let mut masqueraded: Option<&str> = None;
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        let path = format!("{path}.domain.devices.interfaces[{index}]");
        if !names.insert(&interface.name) {
            causes.duplicate(
                format!("{path}.name"),
                format!(
                    "There are two interfaces called {:?}: each needs a name of its own.",
                    interface.name
                ),
            );
        }
        check_plug(spec, interface, &path, causes);
        check_binding(spec, interface, &path, rules, causes);
        check_address(interface, &path, causes);
        if let Some(address) = interface.requested_mac()
            && let Some(other) = addresses.insert(address, &interface.name)
        {
            let field = format!("{path}.{}", address_field(interface));
            causes.duplicate(field, format!("{address} is the address of interface {other:?} already."));
        }
        check_ports(interface, &path, causes);
        match masqueraded {
            Some(first) if interface.masquerade.is_some() => causes.invalid(
                format!("{path}.masquerade"),
                format!("Interface {first:?} has the pod's address already: only one can be behind it. Use bridge: {{}}."),
            ),
            None if interface.masquerade.is_some() => masqueraded = Some(&interface.name),
            _ => {}
        }
    }
}

fn check_network(spec: &VirtualMachineInstanceSpec, network: &Network, path: &str, causes: &mut Causes) {
    let name = &network.name;
    match (&network.pod, &network.multus) {
        (Some(_), Some(_)) => {
            causes.invalid(path, format!("Network {name:?} has two sources, pod and multus: keep one."));
        }
        (None, None) => {
            causes.required(
                path,
                format!("Network {name:?} has no source: add pod: {{}}, or multus with a networkName."),
            );
        }
        (Some(pod), None) => check_ranges(pod, path, causes),
        (None, Some(multus)) => {
            let field = format!("{path}.multus.networkName");
            let given = multus.network_name.as_str();
            let (namespace, definition) =
                given.split_once('/').map_or((None, given), |(namespace, name)| (Some(namespace), name));
            if given.is_empty() {
                causes.required(field, "Name a NetworkAttachmentDefinition, as name or namespace/name.");
            } else if !is_subdomain(definition) || namespace.is_some_and(|namespace| !is_label(namespace)) {
                causes.invalid(
                    field,
                    format!("{given:?} is not the name of a NetworkAttachmentDefinition: write name or namespace/name, in lower-case letters, digits and '-'."),
                );
            }
        }
    }
    if !spec.domain.devices.interfaces.iter().any(|interface| interface.name == *name) {
        causes.required(
            format!("{path}.name"),
            format!("Network {name:?} has no interface: add an interface of that name to domain.devices.interfaces, or remove the network."),
        );
    }
}

fn check_ranges(pod: &PodNetwork, path: &str, causes: &mut Causes) {
    if let Some(text) = &pod.vm_network_cidr {
        let usable = |address: Ipv4Addr| {
            let [first, ..] = address.octets();
            !address.is_loopback() && !address.is_link_local() && (1..224).contains(&first)
        };
        check_range(text, 30, usable, ("IPv4", "10.0.2.0/24"), format!("{path}.pod.vmNetworkCIDR"), causes);
    }
    if let Some(text) = &pod.vm_ipv6_network_cidr {
        let usable = |address: Ipv6Addr| {
            !address.is_loopback()
                && !address.is_multicast()
                && !address.is_unicast_link_local()
                && !address.is_unspecified()
        };
        let field = format!("{path}.pod.vmIPv6NetworkCIDR");
        check_range(text, 126, usable, ("IPv6", "fd10:0:2::/120"), field, causes);
    }
}

/// A network behind NAT: it has two addresses at least, which machines can have.
fn check_range<A: FromStr + Copy>(
    text: &str,
    longest: u8,
    usable: impl Fn(A) -> bool,
    (version, example): (&str, &str),
    field: String,
    causes: &mut Causes,
) {
    let range = text.split_once('/').and_then(|(address, length)| {
        let length = length.parse::<u8>().ok().filter(|length| *length <= longest);
        length.and_then(|_| address.parse::<A>().ok())
    });
    match range {
        None => causes.invalid(
            field,
            format!("{text:?} is not an {version} network with room for a guest and its gateway, such as {example}."),
        ),
        Some(address) if !usable(address) => causes.invalid(
            field,
            format!("{text:?} is not a network that a machine can have an address of: use a private one, such as {example}."),
        ),
        Some(_) => {}
    }
}

fn check_networks_together(spec: &VirtualMachineInstanceSpec, path: &str, causes: &mut Causes) {
    let mut names = BTreeSet::new();
    let mut primary: Option<&Network> = None;
    for (index, network) in spec.networks.iter().enumerate() {
        let path = format!("{path}.networks[{index}]");
        if !names.insert(&network.name) {
            causes.duplicate(
                format!("{path}.name"),
                format!("There are two networks called {:?}: each needs a name of its own.", network.name),
            );
        }
        let takes_its_place = network.multus.as_ref().is_some_and(|multus| multus.default == Some(true));
        if network.pod.is_none() && !takes_its_place {
            continue;
        }
        let field = if takes_its_place { format!("{path}.multus.default") } else { format!("{path}.pod") };
        match primary {
            None => primary = Some(network),
            Some(first) => causes.invalid(
                field,
                format!(
                    "A machine has one pod network, and {:?} is it already: remove one of the two.",
                    first.name
                ),
            ),
        }
    }
}

/// A vNIC is plugged into the network of its name, or into the pod network by the short spelling.
fn check_plug(spec: &VirtualMachineInstanceSpec, interface: &Interface, path: &str, causes: &mut Causes) {
    let name = &interface.name;
    match (spec.network_of(interface), interface.type_) {
        (None, None) => causes.required(
            format!("{path}.name"),
            format!("Interface {name:?} is plugged into nothing: add a network of that name to networks."),
        ),
        (Some(network), Some(type_)) if network.pod.is_none() => causes.invalid(
            format!("{path}.type"),
            format!("{type_} is the pod network, but network {name:?} is another: remove one of the two."),
        ),
        _ => {}
    }
}

fn check_binding(
    spec: &VirtualMachineInstanceSpec,
    interface: &Interface,
    path: &str,
    rules: &Rules,
    causes: &mut Causes,
) {
    let name = &interface.name;
    let bindings: Vec<&str> = [
        ("bridge", interface.bridge.is_some()),
        ("masquerade", interface.masquerade.is_some()),
        ("passtBinding", interface.passt_binding.is_some()),
        ("binding", interface.binding.is_some()),
    ]
    .into_iter()
    .filter_map(|(binding, used)| used.then_some(binding))
    .collect();
    match bindings.as_slice() {
        [] => causes.required(path, format!("Interface {name:?} has no binding: add bridge: {{}}.")),
        [_] => {}
        several => {
            causes.invalid(
                path,
                format!("Interface {name:?} has several bindings ({}): keep one.", several.join(", ")),
            );
        }
    }
    let on_pod_network =
        interface.type_.is_some() || spec.network_of(interface).is_some_and(|network| network.pod.is_some());
    for binding in bindings.iter().filter(|binding| matches!(**binding, "masquerade" | "passtBinding")) {
        if !on_pod_network {
            causes.invalid(
                format!("{path}.{binding}"),
                format!("{binding} works on the pod network only: use bridge: {{}} for network {name:?}."),
            );
        }
    }
    if interface.bridge.is_some() && on_pod_network && !rules.permit_bridge_on_pod_network {
        causes.invalid(
            format!("{path}.bridge"),
            "This cluster does not let machines be bridged to the pod network (permitBridgeInterfaceOnPodNetwork): use masquerade: {}.",
        );
    }
    if let Some(plugin) = &interface.binding
        && !rules.bindings.contains_key(&plugin.name)
    {
        causes.unsupported(
            format!("{path}.binding.name"),
            format!("The KubeVirt object has no network binding called {:?}.", plugin.name),
        );
    }
}

fn address_field(interface: &Interface) -> &'static str {
    if interface.mac_address.is_some() { "macAddress" } else { "mac.address" }
}

fn check_address(interface: &Interface, path: &str, causes: &mut Causes) {
    if interface.mac.is_some() && interface.mac_address.is_some() {
        causes.invalid(
            format!("{path}.mac"),
            "mac.address and macAddress are the same thing: set one of them.",
        );
    }
    let Some(address) = interface.requested_mac() else { return };
    let field = format!("{path}.{}", address_field(interface));
    if address.0 == [0; 6] {
        causes.invalid(
            field,
            format!("{address} is nobody's address: choose another, such as 02:00:00:12:34:56."),
        );
    } else if address.0[0] & 1 == 1 {
        causes.invalid(
            field,
            format!(
                "{address} is a multicast address, which no interface can have: its first octet must be even."
            ),
        );
    }
}

fn check_ports(interface: &Interface, path: &str, causes: &mut Causes) {
    let (mut seen, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in interface.ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let protocol = port.protocol.map_or("TCP", |protocol| protocol.as_str());
        if port.port == 0 {
            causes.invalid(format!("{path}.port"), "A port is a number from 1 to 65535.");
        } else if !seen.insert((protocol, port.port)) {
            causes.duplicate(
                format!("{path}.port"),
                format!("{protocol} port {} is forwarded already.", port.port),
            );
        }
        let Some(name) = &port.name else { continue };
        if !is_port_name(name) {
            causes.invalid(
                format!("{path}.name"),
                format!("{name:?} is not the name of a port: write up to 15 lower-case letters, digits and single '-', with a letter among them."),
            );
        } else if !names.insert(name) {
            causes.duplicate(format!("{path}.name"), format!("There are two ports called {name:?}."));
        }
    }
}

/// As services name their ports (RFC 6335).
fn is_port_name(name: &str) -> bool {
    is_label(name)
        && name.len() <= 15
        && !name.contains("--")
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
}
