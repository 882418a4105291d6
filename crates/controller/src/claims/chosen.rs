//! The addresses that a VM's owner chose: the annotation [`annotations::ADDRESSES`] of the instance; pure.
//!
//! Whether they can be had is not known here: the pool's rules are the network's, and who holds an address is in the API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::kubevirt::VirtualMachineInstance;
use api::names::annotations;
use kube::ResourceExt as _;

/// What an annotation asks for, by network; or a sentence on what is wrong with it.
pub fn read(text: &str) -> Result<BTreeMap<String, Vec<IpAddr>>, String> {
    let example = r#"{"blue": ["192.0.2.10", "2001:db8::10"]}"#;
    let written: BTreeMap<String, Vec<String>> = serde_json::from_str(text)
        .map_err(|cause| format!("it must be an object of lists of addresses, such as {example}: {cause}"))?;
    let parse = |network: &str, text: &String| {
        text.parse().map_err(|_| format!("{text:?}, for network {network:?}, is not an IP address"))
    };
    let list = |(network, texts): (String, Vec<String>)| {
        let addresses = texts.iter().map(|text| parse(&network, text)).collect::<Result<Vec<IpAddr>, _>>()?;
        Ok((network, addresses))
    };
    written.into_iter().map(list).collect()
}

/// What an instance asks for on a network.
pub fn by(vmi: &VirtualMachineInstance, network: &str) -> Result<Vec<IpAddr>, String> {
    let Some(text) = vmi.annotations().get(annotations::ADDRESSES) else { return Ok(Vec::new()) };
    let mut all = read(text).map_err(|why| format!("annotation {}: {why}", annotations::ADDRESSES))?;
    Ok(all.remove(network).unwrap_or_default())
}

/// As a claim says it.
pub fn text(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
