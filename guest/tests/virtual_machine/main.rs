//! The guest where it belongs: in a virtual machine, emulated, with a DHCP server on the other side of a bridge.
//!
//! One test, because booting costs seconds: each part begins where the one before ended. Times go to the output (`--nocapture`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod machine;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::machine::{Machine, connect};

const GUEST: &str = "10.77.0.5";

struct Clock(Instant);

impl Clock {
    fn lap(&mut self, what: &str) {
        eprintln!("{:>6} ms  {what}", self.0.elapsed().as_millis());
        self.0 = Instant::now();
    }
}

#[test]
fn a_guest_boots_is_addressed_serves_dirties_and_shuts_down() {
    let mut clock = Clock(Instant::now());
    let mut machine = Machine::start();
    clock.lap("QEMU runs");
    machine.event("boot", |_| true);
    clock.lap("boot");
    let mut control = leases(&machine);
    clock.lap("leases of both IP versions");
    echo(&format!("{GUEST}:7"));
    echo("[fd77::5]:7");
    clock.lap("echo");
    counter();
    clock.lap("200 lines of the counter, 5 ms apart");
    dirty(&mut machine, &mut control);
    clock.lap("dirty rate, measured by the guest and by QEMU");
    fill(&mut control);
    clock.lap("64 MiB filled and checked");
    hot_plug(&mut machine);
    clock.lap("a second NIC plugged in and leased");
    let keys = ["ctrl", "alt", "delete"].map(|key| json!({"type": "qcode", "data": key}));
    machine.qmp("send-key", &json!({ "keys": keys }));
    machine.event("reboot", |said| said["why"] == "ctrl-alt-del");
    machine.event("boot", |_| true);
    clock.lap("ctrl-alt-del and boot");
    machine.qmp("system_powerdown", &json!({}));
    machine.event("poweroff", |said| said["why"] == "power button");
    let status = machine.ended();
    clock.lap("power button to QEMU's end");
    assert!(status.success(), "{status}");
}

/// The addresses are those of the host entries, and all that DHCP told is in place.
fn leases(machine: &Machine) -> impl FnMut(Value) -> Value + use<> {
    let lease = machine.event("lease", |said| said["address"] == format!("{GUEST}/24"));
    assert_eq!((&lease["mac"], &lease["renewed"]), (&"52:54:00:77:00:05".into(), &false.into()));
    machine.event("lease", |said| said["address"] == "fd77::5/128");
    let mut control = Machine::control(&format!("{GUEST}:7002"));
    let report = control(json!({"report": {}}));
    let nic = &report["report"]["nics"][0];
    assert!(nic["addresses"].as_array().unwrap().contains(&"fd77::5/128".into()), "{nic}");
    assert_eq!((&nic["mtu"], &nic["up"]), (&1400.into(), &true.into()), "{nic}");
    assert_eq!(nic["dns"], json!(["10.77.0.53", "fd77::53"]));
    for route in [
        json!({"to": "0.0.0.0/0", "via": "10.77.0.1"}),
        json!({"to": "10.78.0.0/16", "via": "10.77.0.2"}),
        json!({"to": "10.77.0.0/24"}),
    ] {
        assert!(nic["routes"].as_array().unwrap().contains(&route), "{route} is not in {nic}");
    }
    control
}

fn echo(address: &str) {
    let mut stream = connect(address);
    let sent: Vec<u8> = (0..=255).cycle().take(20_000).collect();
    stream.write_all(&sent).unwrap();
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).unwrap();
    assert!(received == sent, "echo gave back other bytes");
}

fn counter() {
    let mut stream = connect(&format!("{GUEST}:7001"));
    stream.write_all(b"every 5ms\n").unwrap();
    let start = Instant::now();
    for (line, expected) in BufReader::new(stream).lines().take(200).zip(0_u64..) {
        let line = line.unwrap();
        let (sequence, ms) = line.split_once(' ').expect("two numbers");
        assert_eq!(sequence.parse(), Ok(expected));
        ms.parse::<u64>().unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(990), "faster than asked for: {:?}", start.elapsed());
}

/// Over two seconds no page is touched twice, so what QEMU finds changed is what was touched.
fn dirty(machine: &mut Machine, control: &mut impl FnMut(Value) -> Value) {
    const RATE: f64 = 60.0;
    control(json!({"dirty": {"mib_per_s": 60, "working_set_mib": 256}}));
    machine.qmp("calc-dirty-rate", &json!({"calc-time": 2, "sample-pages": 4096}));
    let deadline = Instant::now() + Duration::from_secs(20);
    let measured = loop {
        let found = machine.qmp("query-dirty-rate", &json!({}));
        if found["status"] == "measured" {
            break found["dirty-rate"].as_f64().unwrap();
        }
        assert!(Instant::now() < deadline, "QEMU does not come to an end: {found}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let report = control(json!({"report": {}}));
    let achieved = report["report"]["dirty"]["achieved_mib_per_s"].as_f64().unwrap();
    eprintln!("           asked {RATE}, the guest says {achieved}, QEMU says {measured} MiB/s");
    for (who, rate) in [("the guest", achieved), ("QEMU", measured)] {
        assert!((rate - RATE).abs() <= RATE * 0.2, "{who} finds {rate} MiB/s, not about {RATE}");
    }
    control(json!({"dirty": null}));
}

fn fill(control: &mut impl FnMut(Value) -> Value) {
    control(json!({"fill": {"mib": 64, "pattern": "random"}}));
    assert_eq!(control(json!({"check": {}}))["filled"]["mib"], 64);
}

fn hot_plug(machine: &mut Machine) {
    machine.qmp(
        "netdev_add",
        &json!({"type": "tap", "id": "net1", "ifname": "tap1", "script": "no", "downscript": "no"}),
    );
    let mac = "52:54:00:77:00:06";
    machine.qmp(
        "device_add",
        &json!({"driver": "virtio-net-pci", "id": "nic1", "netdev": "net1", "mac": mac, "bus": "port1"}),
    );
    let lease = machine.event("lease", |said| said["mac"] == mac);
    assert_eq!(lease["address"], "10.77.0.6/24");
    machine.qmp("device_del", &json!({"id": "nic1"}));
    machine.event("report", |said| said["nics"].as_array().unwrap().len() == 1);
}
