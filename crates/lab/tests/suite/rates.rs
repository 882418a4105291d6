//! Segments are as fast as they are told to be.

use serde_json::Value;
use testkit::TestLab;

const CONFIG: &str = "
clusters: [{ name: lab, nodes: 2 }]
networks:
  - { name: management, nic: eth0, rate: 200Mbit }
  - { name: fast, nic: eth1 }
  - { name: slow, nic: eth2, rate: 200Mbit, shaper: htb }
";

/// What iperf3 gets from the first node to an address of the second, in bits per second.
fn rate(lab: &TestLab, address: &str) -> f64 {
    lab.shell("node-2", "iperf3 --server --one-off --daemon --pidfile /run/iperf3.pid");
    // It listens when it has written its pid file.
    let client = format!(
        "while ! iperf3 --client {address} --time 3 --omit 1 --json; do test $((n=n+1)) -lt 20; done"
    );
    let said: Value = serde_json::from_str(&lab.shell("node-1", &client)).expect("iperf3 speaks JSON");
    said["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate")
}

#[test]
fn a_limited_segment_carries_its_limit_and_an_unlimited_one_at_least_ten_times_that() {
    let lab = TestLab::up(CONFIG);
    for (node, last) in [("node-1", 1), ("node-2", 2)] {
        lab.shell(
            node,
            &format!(
                "ip address add 198.51.100.{last}/25 dev eth1; ip address add 198.51.100.{}/25 dev eth2",
                128 + last
            ),
        );
    }
    let address = lab.shell("node-2", "ip -4 -o address show eth0 | sed 's/.*inet \\([0-9.]*\\).*/\\1/'");
    let limited = rate(&lab, address.trim());
    let hierarchy = rate(&lab, "198.51.100.130");
    let unlimited = rate(&lab, "198.51.100.2");
    println!("limited (tbf) {limited:.0}, limited (htb) {hierarchy:.0}, unlimited {unlimited:.0} bit/s");
    for limited in [limited, hierarchy] {
        assert!((180e6..=220e6).contains(&limited), "200 Mbit/s ± 10 %: {limited}");
    }
    assert!(unlimited >= 10.0 * limited, "unlimited {unlimited}, limited {limited}");
}
