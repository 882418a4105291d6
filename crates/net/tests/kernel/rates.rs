//! Rate limits as `tc` sees them. That they hold is for those to measure who depend on it.

use net::{Announcement, Error, RateLimit, Shaper};
use serde_json::Value;

use crate::fixture::{Fixture, ask, mac, run};

/// The root discipline.
fn root(handle: &net::Handle) -> Value {
    let seen = ask(handle.namespace(), "tc -j qdisc show dev eth0");
    seen.as_array().unwrap().iter().find(|qdisc| qdisc["root"] == true).cloned().unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_mute_link_hears_and_lets_nothing_out() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    assert!(!a.unmute("eth0").await.unwrap(), "it was not mute");
    a.mute("eth0").await.unwrap();
    a.mute("eth0").await.unwrap();
    let (sent, heard) =
        (b.counters("eth0").await.unwrap().rx_packets, a.counters("eth0").await.unwrap().rx_packets);
    // By hand, and as the kernel's own answer to a question.
    let own = Announcement { address: "192.0.2.1".parse().unwrap(), mac: mac("02:00:00:00:00:01") };
    // Whether the sender is told that it was dropped is the kernel's business.
    let _ = a.announce("eth0", own).await;
    let asked = b.namespace().run(|| std::net::UdpSocket::bind("192.0.2.2:0").unwrap()).unwrap();
    asked.send_to(b"who has it?", "192.0.2.1:9").unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while a.counters("eth0").await.unwrap().rx_packets == heard {
        assert!(std::time::Instant::now() < deadline, "the question does not arrive");
        tokio::task::yield_now().await;
    }
    assert_eq!(b.counters("eth0").await.unwrap().rx_packets, sent, "nothing comes out");
    assert!(a.unmute("eth0").await.unwrap());
    crate::fixture::datagram(b.namespace(), a.namespace(), "192.0.2.1", 8);
}

#[tokio::test]
async fn a_token_bucket_is_set_changed_read_and_removed() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    assert_eq!(a.rate_limit("eth0").await.unwrap(), None);
    assert!(!a.remove_rate_limit("eth0").await.unwrap());
    for bits in [200_000_000, 40_000_000_000, 1_000_000] {
        let limit = RateLimit::new(bits);
        a.set_rate_limit("eth0", limit).await.unwrap();
        let seen = root(&a);
        assert_eq!((&seen["kind"], &seen["options"]["rate"]), (&"tbf".into(), &(bits / 8).into()), "{seen}");
        assert!(seen["options"]["lat"].as_u64().unwrap().abs_diff(50_000) < 500, "50 ms may wait: {seen}");
        let read = a.rate_limit("eth0").await.unwrap().unwrap();
        assert_eq!((read.bits_per_second, read.shaper), (bits, limit.shaper));
        assert!(limit.burst.abs_diff(read.burst) <= limit.burst / 100, "{} and {}", limit.burst, read.burst);
        assert!(
            seen["options"]["burst"].as_u64().unwrap().abs_diff(limit.burst.into())
                <= u64::from(limit.burst / 100),
            "{seen}"
        );
    }
    assert_eq!(b.rate_limit("eth0").await.unwrap(), None);
    assert!(a.remove_rate_limit("eth0").await.unwrap());
    assert!(!a.remove_rate_limit("eth0").await.unwrap());
    assert_ne!(root(&a)["kind"], "tbf");
}

#[tokio::test]
async fn a_hierarchy_is_set_changed_read_and_removed_and_takes_the_buckets_place() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    a.set_rate_limit("eth0", RateLimit::new(1_000_000)).await.unwrap();
    for bits in [200_000_000, 40_000_000_000, 1_000_000] {
        let limit = RateLimit::new(bits).htb();
        a.set_rate_limit("eth0", limit).await.unwrap();
        assert_eq!((&root(&a)["kind"], &root(&a)["options"]["default"]), (&"htb".into(), &"0x1".into()));
        let seen = run(a.namespace(), "tc class show dev eth0");
        let shown = format!("rate {} ceil {}", rate(bits), rate(bits));
        assert_eq!((seen.lines().count(), seen.contains(&shown)), (1, true), "{shown}: {seen}");
        let read = a.rate_limit("eth0").await.unwrap().unwrap();
        assert_eq!((read.bits_per_second, read.shaper), (bits, Shaper::Htb));
        assert!(limit.burst.abs_diff(read.burst) <= limit.burst / 100, "{} and {}", limit.burst, read.burst);
    }
    a.set_rate_limit("eth0", RateLimit::new(1_000_000)).await.unwrap();
    assert_eq!(root(&a)["kind"], "tbf");
    a.set_rate_limit("eth0", RateLimit::new(1_000_000).htb()).await.unwrap();
    assert!(a.remove_rate_limit("eth0").await.unwrap());
    assert_eq!(a.rate_limit("eth0").await.unwrap(), None);
}

/// As `tc` writes it.
fn rate(bits: u64) -> String {
    if bits >= 10_000_000_000 {
        format!("{}Gbit", bits / 1_000_000_000)
    } else {
        format!("{}Mbit", bits / 1_000_000)
    }
}

#[tokio::test]
async fn limits_of_another_tool_are_read_and_removed() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    run(a.namespace(), "tc qdisc add dev eth0 root tbf rate 80mbit burst 64kb limit 1mb");
    let read = a.rate_limit("eth0").await.unwrap().unwrap();
    assert_eq!((read.bits_per_second, read.shaper), (80_000_000, Shaper::Tbf { queue: 1024 * 1024 }));
    assert!(read.burst.abs_diff(64 * 1024) < 700, "{}", read.burst);
    a.set_rate_limit("eth0", RateLimit::new(8_000_000)).await.unwrap();
    assert_eq!(root(&a)["options"]["rate"], 1_000_000, "replaced by ours");
    assert!(a.remove_rate_limit("eth0").await.unwrap());

    run(a.namespace(), "tc qdisc add dev eth0 root handle 1: htb default 30");
    assert_eq!(a.rate_limit("eth0").await.unwrap(), None, "no class, no limit");
    run(a.namespace(), "tc class add dev eth0 parent 1: classid 1:30 htb rate 8mbit ceil 16mbit");
    let read = a.rate_limit("eth0").await.unwrap().unwrap();
    assert_eq!((read.bits_per_second, read.shaper), (16_000_000, Shaper::Htb));
    assert!(a.remove_rate_limit("eth0").await.unwrap());

    let nothing = RateLimit { bits_per_second: 0, ..RateLimit::new(8_000_000) };
    assert!(matches!(a.set_rate_limit("eth0", nothing).await, Err(Error::Invalid { .. })));
    assert!(a.set_rate_limit("absent", RateLimit::new(8_000_000)).await.unwrap_err().is_not_found());
}
