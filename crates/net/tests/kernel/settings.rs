//! Kernel settings of a namespace.

use net::{NewLink, Peer, Sysctl};

use crate::fixture::{Fixture, run};

#[tokio::test]
async fn settings_are_those_of_the_namespace() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.handle("a"), fixture.handle("b"));
    a.create_link(&NewLink::veth("eth0.1", Peer::new("wire"))).await.unwrap();
    let settings = [
        (Sysctl::ip_forward(), "ipv4/ip_forward"),
        (Sysctl::ipv6_forwarding(), "ipv6/conf/all/forwarding"),
        (Sysctl::disable_ipv6("eth0.1").unwrap(), "ipv6/conf/eth0.1/disable_ipv6"),
        (Sysctl::arp_notify("eth0.1").unwrap(), "ipv4/conf/eth0.1/arp_notify"),
        (Sysctl::accept_ra("default").unwrap(), "ipv6/conf/default/accept_ra"),
        (Sysctl::rp_filter("all").unwrap(), "ipv4/conf/all/rp_filter"),
    ];
    for (setting, path) in settings {
        let theirs = |handle: &net::Handle| {
            run(handle.namespace(), &format!("cat /proc/sys/net/{path}")).trim().to_owned()
        };
        for value in ["1", "0"] {
            a.namespace().set_sysctl(&setting, value).unwrap();
            assert_eq!(
                (theirs(&a).as_str(), a.namespace().sysctl(&setting).unwrap().as_str()),
                (value, value),
                "{path}"
            );
        }
    }
    a.namespace().set_sysctl(&Sysctl::ip_forward(), "1").unwrap();
    assert_eq!(b.namespace().sysctl(&Sysctl::ip_forward()).unwrap(), "0", "the neighbour's is its own");
    assert!(a.namespace().sysctl(&Sysctl::arp_notify("absent").unwrap()).unwrap_err().is_not_found());
    assert!(a.namespace().set_sysctl(&Sysctl::ip_forward(), "nonsense").is_err());
}
