//! Announcements, believed by the kernel at the other end.

use net::{Announcement, Error, Namespace, Sysctl};

use crate::fixture::{Fixture, ask, eventually, mac, run};

fn known(namespace: &Namespace, address: &str) -> Option<String> {
    let seen = ask(namespace, &format!("ip -j neighbour show {address} dev eth0"));
    seen[0]["lladdr"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn an_announced_address_is_known_to_the_other_end() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    // One that was not known: the kernel believes that only where it is told to.
    b.namespace().set_sysctl(&Sysctl::arp_accept("eth0").unwrap(), "1").unwrap();
    assert_eq!(known(b.namespace(), "192.0.2.50"), None);
    let sent = a.counters("eth0").await.unwrap().tx_packets;
    let moved = mac("02:00:00:00:00:50");
    a.announce("eth0", Announcement { address: "192.0.2.50".parse().unwrap(), mac: moved }).await.unwrap();
    eventually("the ARP announcement", || {
        known(b.namespace(), "192.0.2.50").filter(|known| *known == moved.to_string())
    });
    assert!(a.counters("eth0").await.unwrap().tx_packets > sent);

    // One that was known elsewhere.
    for address in ["192.0.2.51", "2001:db8::51"] {
        run(
            b.namespace(),
            &format!("ip neighbour add {address} lladdr 02:00:00:00:00:01 nud stale dev eth0"),
        );
        a.announce("eth0", Announcement { address: address.parse().unwrap(), mac: moved }).await.unwrap();
        eventually(address, || known(b.namespace(), address).filter(|known| *known == moved.to_string()));
    }
}

#[tokio::test]
async fn what_cannot_be_announced_is_refused() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let good = Announcement { address: "192.0.2.50".parse().unwrap(), mac: mac("02:00:00:00:00:50") };
    assert!(a.announce("absent", good).await.unwrap_err().is_not_found());
    for bad in [
        Announcement { mac: mac("ff:ff:ff:ff:ff:ff"), ..good },
        Announcement { address: "224.0.0.1".parse().unwrap(), ..good },
        Announcement { address: "::".parse().unwrap(), ..good },
    ] {
        assert!(matches!(a.announce("eth0", bad).await, Err(Error::Invalid { .. })), "{bad:?}");
    }
    a.set_down("eth0").await.unwrap();
    let error = a.announce("eth0", good).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "announcing 192.0.2.50 at 02:00:00:00:00:50 on link eth0 in namespace a failed"
    );
}
