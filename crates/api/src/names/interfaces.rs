//! Interfaces of the system's own pods, and of pods on tenants' networks.

use sha2::{Digest as _, Sha256};

/// The migration network, in handler and gateway pods. Written into their annotations by the controller; looked up by the
/// handler and the gateway.
pub const MIGRATION: &str = "migration0";
/// The network shared with other clusters, in gateway pods. Written and looked up as above.
pub const CROSS_CLUSTER: &str = "crosscluster0";
/// The pod network, in every pod. Made by the cluster's network; never touched.
pub const POD: &str = "eth0";
/// A primary user-defined network, in the pods on it. Made by the plugin; looked up by the handler.
pub const PRIMARY_USER_DEFINED_NETWORK: &str = "ovn-udn1";

/// A secondary network of a VM, in its launcher pod: `pod` and eleven hexadecimal digits of the SHA-256 of the network's name in the
/// VM's spec, as long as an interface's name may be. Written into the pod's annotation by the controller; looked up by the handler.
pub fn of_network(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    // Six octets are twelve digits, of which the name has room for eleven.
    let number = digest.iter().take(6).fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
    format!("pod{:011x}", number >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_networks_are_named_as_everybody_expects() {
        // The first eleven hexadecimal digits of SHA-256 of the network's name.
        assert_eq!(of_network("storage").len(), 14);
        assert_eq!(of_network("blue"), "pod16477688c0e");
    }
}
