//! The value of the migration network's setting: what is accepted has one normal spelling, which is the same network.

use controller::admission::setting::{Cluster, read, rules};

/// Runs one input.
pub fn run(data: &[u8]) {
    let text = crate::text(data);
    let Ok(Some(network)) = read(text, "value") else { return };
    let normal = network.text();
    let again = read(&normal, "value").ok().flatten();
    assert!(again.is_some(), "{text} is accepted, {normal} is not");
    let Some(again) = again else { return };
    assert_eq!(again.text(), normal);
    assert_eq!(again.hash(), network.hash());
    assert_eq!(again.ranges(), network.ranges());
    assert_eq!(again.allocatable(), network.allocatable());
    assert!(!network.allocatable().is_empty(), "a network that is accepted has an address to give");
    let _ = rules::judge(&network, &Cluster::default(), "value");
}
