//! Ethernet addresses of vNICs whose owner chose none.
//!
//! An address is a function of the machine's UID and the vNIC's name, so there is nothing to store and nothing to lose: the
//! same machine has the same address after every stop and start, a machine that was deleted and made anew has others. It is
//! locally administered and unicast (`02:…`); forty bits of SHA-256 keep two vNICs apart.
//!
//! Three sources, the first that has one: what the spec says, what the status already says (a guest that came from
//! elsewhere keeps its address), the function above.

use api::kubevirt::{Interface, VirtualMachine, VirtualMachineInstance};
use api::mac::MacAddress;
use kube::{Resource as _, ResourceExt as _};
use sha2::{Digest as _, Sha256};

/// The address of a vNIC that nobody chose one for.
pub fn derived(uid: &str, interface: &str) -> MacAddress {
    // The zero byte keeps `("a", "bc")` and `("ab", "c")` apart.
    let digest = Sha256::new().chain_update(uid).chain_update([0]).chain_update(interface).finalize();
    MacAddress([0x02, digest[0], digest[1], digest[2], digest[3], digest[4]])
}

/// The address of a vNIC of an instance.
pub fn of(vmi: &VirtualMachineInstance, interface: &Interface) -> MacAddress {
    let known = vmi.status.iter().flat_map(|status| &status.interfaces);
    let known = || {
        known.clone().find(|known| known.name.as_ref() == Some(&interface.name)).and_then(|known| known.mac)
    };
    interface.requested_mac().or_else(known).unwrap_or_else(|| derived(&identity(vmi), &interface.name))
}

/// UID of the machine that the instance belongs to, or its own.
fn identity(vmi: &VirtualMachineInstance) -> String {
    let machine = vmi.owner_references().iter().find(|owner| owner.kind == VirtualMachine::kind(&()));
    machine.map(|owner| owner.uid.clone()).or_else(|| vmi.uid()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_is_local_unicast_and_always_the_same(uid in ".{0,40}", name in "[a-z0-9-]{1,63}") {
            let address = derived(&uid, &name);
            prop_assert_eq!(address.0[0], 2);
            prop_assert_eq!(address, derived(&uid, &name));
            prop_assert_ne!(address, derived(&format!("{uid}x"), &name));
            prop_assert_ne!(address, derived(&uid, &format!("{name}x")));
        }
    }

    #[test]
    fn the_address_of_a_machine_never_changes_between_versions() {
        assert_eq!(
            derived("6f2c7e9a-0000-4000-8000-000000000001", "default").to_string(),
            "02:12:00:33:d2:80"
        );
    }
}
