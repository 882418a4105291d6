//! What is sent is what is received, for every message; and no bytes at all confuse the reader.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use std::net::IpAddr;

use api::kubevirt::{
    MigrationMode, MigrationOptions, ProgressSample, VirtualMachineInstance, VirtualMachineInstanceSpec,
};
use api::mac::MacAddress;
use ipnet::IpNet;
use proptest::{collection::vec, option, prelude::*};
use wire::{
    Accelerator, AcceleratorPolicy, Command, Dns, Ending, Event, InterfaceName, InterfaceStatus, Lines,
    Message, MigrateOptions, MigrationPhase, MigrationReport, Outcome, Phase, ProxyRequest, ProxyResponse,
    Status, Vnic, VnicAddress, VnicName, VnicRoute, decode, encode,
};

fn vnic_name() -> impl Strategy<Value = VnicName> {
    "[a-zA-Z0-9_-]{1,63}".prop_map(|name| name.parse().unwrap())
}

fn interface_name() -> impl Strategy<Value = InterfaceName> {
    "[a-z0-9@.-]{1,14}x".prop_map(|name| name.parse().unwrap())
}

fn mac() -> impl Strategy<Value = MacAddress> {
    any::<[u8; 6]>().prop_map(MacAddress)
}

fn network() -> impl Strategy<Value = IpNet> {
    let length = |address: &IpAddr| if address.is_ipv4() { 0..=32_u8 } else { 0..=128 };
    any::<IpAddr>()
        .prop_flat_map(move |address| (Just(address), length(&address)))
        .prop_map(|(address, length)| IpNet::new(address, length).unwrap())
}

prop_compose! {
    fn vnic()(
        name in vnic_name(),
        interface in interface_name(),
        mac in option::of(mac()),
        addresses in vec((network(), option::of(any::<IpAddr>())), 0..3),
        routes in vec((network(), option::of(any::<IpAddr>())), 0..3),
        servers in vec(any::<IpAddr>(), 0..3),
        search in vec(any::<String>(), 0..2),
        mtu in option::of(any::<u32>()),
    ) -> Vnic {
        let addresses = addresses.into_iter().map(|(address, gateway)| VnicAddress { address, gateway }).collect();
        let routes = routes.into_iter().map(|(destination, gateway)| VnicRoute { destination, gateway }).collect();
        Vnic { name, interface, mac, addresses, routes, dns: Dns { servers, search }, mtu }
    }
}

fn proxy_request() -> impl Strategy<Value = ProxyRequest> {
    prop_oneof![
        vnic_name().prop_map(|vnic| ProxyRequest::Add { vnic }),
        vnic_name().prop_map(|vnic| ProxyRequest::Check { vnic }),
        vnic_name().prop_map(|vnic| ProxyRequest::Del { vnic }),
        Just(ProxyRequest::List {}),
    ]
}

fn proxy_response() -> impl Strategy<Value = ProxyResponse> {
    prop_oneof![
        vnic().prop_map(|vnic| ProxyResponse::Added { vnic: Box::new(vnic) }),
        vnic_name().prop_map(|vnic| ProxyResponse::Checked { vnic }),
        vnic_name().prop_map(|vnic| ProxyResponse::Deleted { vnic }),
        vec(vnic(), 0..3).prop_map(|vnics| ProxyResponse::Listed { vnics }),
        any::<String>().prop_map(|error| ProxyResponse::Failed { error }),
    ]
}

fn instance() -> impl Strategy<Value = Box<VirtualMachineInstance>> {
    (any::<String>(), option::of(any::<String>()), option::of(0..1000_i64)).prop_map(
        |(name, hostname, grace)| {
            let mut spec = VirtualMachineInstanceSpec { hostname, ..Default::default() };
            spec.termination_grace_period_seconds = grace;
            Box::new(VirtualMachineInstance::new(&name, spec))
        },
    )
}

prop_compose! {
    fn options()(
        uid: String, sockets: String, parallel_connections: u16, max_downtime_ms: u64, allow_post_copy: bool,
    ) -> Box<MigrateOptions> {
        let settings =
            MigrationOptions { parallel_connections, max_downtime_ms, allow_post_copy, ..MigrationOptions::default() };
        Box::new(MigrateOptions { uid, sockets, settings })
    }
}

prop_compose! {
    fn report()(
        uid: String,
        phase in prop::sample::select(vec![
            MigrationPhase::Running, MigrationPhase::Completed, MigrationPhase::Failed, MigrationPhase::Cancelled,
        ]),
        mode in prop::sample::select(MigrationMode::ALL.to_vec()),
        reason: Option<String>,
        (total_bytes, remaining_bytes, processed_bytes) in any::<(u64, u64, u64)>(),
        (bytes_per_second, dirty_bytes_per_second, iteration) in any::<(u64, u64, u64)>(),
        (elapsed_ms, downtime_ms) in any::<(Option<u64>, Option<u64>)>(),
    ) -> MigrationReport {
        let sample = ProgressSample {
            total_bytes, remaining_bytes, processed_bytes, bytes_per_second, dirty_bytes_per_second, iteration,
            elapsed_ms, downtime_ms, network: None,
        };
        MigrationReport { uid, phase, mode, reason, sample }
    }
}

fn command() -> impl Strategy<Value = Command> {
    let policy = prop_oneof![
        Just(AcceleratorPolicy::Probe),
        Just(AcceleratorPolicy::Kvm),
        Just(AcceleratorPolicy::Tcg)
    ];
    prop_oneof![
        any::<u32>().prop_map(|version| Command::Hello { version }),
        (instance(), policy.clone()).prop_map(|(vmi, accelerator)| Command::Start { vmi, accelerator }),
        (instance(), policy).prop_map(|(vmi, accelerator)| Command::PrepareTarget { vmi, accelerator }),
        options().prop_map(|options| Command::Migrate { options }),
        Just(Command::CancelMigration),
        any::<u32>().prop_map(|grace_seconds| Command::Shutdown { grace_seconds }),
        Just(Command::Kill),
        Just(Command::Pause),
        Just(Command::Resume),
        Just(Command::Query),
    ]
}

prop_compose! {
    fn interface_status()(
        name in vnic_name(), mac in mac(), pod_interface in interface_name(),
        addresses in vec(any::<IpAddr>(), 0..3), mtu in option::of(any::<u32>()),
    ) -> InterfaceStatus {
        InterfaceStatus { name, mac, pod_interface, addresses, mtu }
    }
}

fn ending() -> impl Strategy<Value = Ending> {
    let outcome = prop_oneof![Just(Outcome::Succeeded), Just(Outcome::Failed)];
    (outcome, any::<String>(), any::<String>()).prop_map(|(outcome, reason, message)| Ending {
        outcome,
        reason,
        message,
    })
}

fn phase() -> impl Strategy<Value = Phase> {
    use Phase::{
        CleaningUp, Ended, Paused, Preparing, ReadyForMigration, Running, ShuttingDown, Starting, Waiting,
    };
    prop::sample::select(vec![
        Waiting,
        Preparing,
        Starting,
        ReadyForMigration,
        Running,
        Paused,
        ShuttingDown,
        CleaningUp,
        Ended,
    ])
}

prop_compose! {
    fn status()(
        phase in phase(),
        accelerator in option::of(prop_oneof![Just(Accelerator::Kvm), Just(Accelerator::Tcg)]),
        accelerator_reason in option::of(any::<String>()),
        interfaces in vec(interface_status(), 0..3),
        migration in option::of(report()),
        ending in option::of(ending()),
        problems in vec(any::<String>(), 0..3),
    ) -> Status {
        Status { phase, accelerator, accelerator_reason, interfaces, migration, ending, problems }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<u32>().prop_map(|version| Event::Hello { version }),
        status().prop_map(|status| Event::Status(Box::new(status))),
        (any::<String>(), any::<String>()).prop_map(|(command, reason)| Event::Refused { command, reason }),
    ]
}

/// The message goes through a line, alone in it, and comes back.
fn returns<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let line = encode(message).unwrap();
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
    let mut lines = Lines::new();
    lines.push(&line);
    assert_eq!(&lines.next::<M>().unwrap().unwrap(), message);
}

proptest! {
    #[test]
    fn commands(message in command()) { returns(&message); }

    #[test]
    fn events(message in event()) { returns(&message); }

    #[test]
    fn requests(message in proxy_request()) { returns(&message); }

    #[test]
    fn responses(message in proxy_response()) { returns(&message); }

    #[test]
    fn bytes_of_any_kind(bytes: Vec<u8>, text in "[{}\\[\\]\":,a-z0-9]{0,80}") {
        for line in [&bytes[..], text.as_bytes()] {
            let _ = decode::<Command>(line);
            let _ = decode::<Event>(line);
            let _ = decode::<ProxyRequest>(line);
            let _ = decode::<ProxyResponse>(line);
        }
    }
}
