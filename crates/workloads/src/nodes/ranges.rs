//! Every node gets a part of the pod network: its own, and the same for as long as the node exists. Pure.

use ipnet::IpNet;

use crate::PodNetwork;

/// The first part of the network that overlaps nothing that is taken; none: the network is used up, or cannot be cut
/// this way.
pub fn free(network: PodNetwork, taken: &[IpNet]) -> Option<IpNet> {
    let mut parts = network.range.subnets(network.node_prefix).ok()?;
    parts.find(|part| !taken.iter().any(|other| other.contains(part) || part.contains(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_given_in_order_until_none_is_left() {
        let network = PodNetwork { range: "10.244.0.0/22".parse().unwrap(), node_prefix: 24 };
        let mut taken = vec!["10.244.1.0/25".parse().unwrap()];
        let mut given = Vec::new();
        while let Some(part) = free(network, &taken) {
            given.push(part.to_string());
            taken.push(part);
        }
        assert_eq!(given, ["10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24"]);
        assert_eq!(free(PodNetwork { node_prefix: 8, ..network }, &[]), None, "a part larger than the whole");
        let six = PodNetwork { range: "fd00::/48".parse().unwrap(), node_prefix: 64 };
        assert_eq!(free(six, &[]).unwrap().to_string(), "fd00::/64");
    }

    proptest! {
        #[test]
        fn no_two_nodes_share_an_address(prefix in 17_u8..28, nodes in 0_usize..40) {
            let network = PodNetwork { range: "10.0.0.0/16".parse().unwrap(), node_prefix: prefix };
            let mut taken: Vec<IpNet> = Vec::new();
            for _ in 0..nodes {
                let Some(part) = free(network, &taken) else { break };
                prop_assert!(network.range.contains(&part));
                prop_assert!(taken.iter().all(|other| !other.contains(&part) && !part.contains(other)));
                taken.push(part);
            }
        }
    }
}
