//! The client against a server that is played by hand.

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sent(steps: &[Step]) -> (&Message, Ipv4Addr) {
    match steps {
        [.., Step::Send { message, to }] => (message, *to),
        other => panic!("nothing was sent: {other:?}"),
    }
}

/// A server's answer to a message of the client.
fn answer(to: &Message, kind: Kind, address: Ipv4Addr) -> Message {
    let mut message = Message::new(kind, to.xid, to.mac);
    message.yiaddr = address;
    message.server = Some(SERVER);
    message.mask = Some(Ipv4Addr::new(255, 255, 255, 0));
    message.routers = vec![SERVER];
    message.seconds = Some(120);
    message
}

/// A client that was bound at second 1 for 120 seconds.
fn bound() -> (Client, Lease) {
    let mut client = Client::new(MAC, 7);
    let steps = client.poll(seconds(0));
    let (discover, to) = sent(&steps);
    assert_eq!((discover.kind, to), (Kind::Discover, Ipv4Addr::BROADCAST));
    let offer = answer(discover, Kind::Offer, ADDRESS);
    let steps = client.receive(seconds(1), &offer);
    let (request, _) = sent(&steps);
    assert_eq!(
        (request.kind, request.requested, request.server),
        (Kind::Request, Some(ADDRESS), Some(SERVER))
    );
    let ack = answer(request, Kind::Ack, ADDRESS);
    match client.receive(seconds(1), &ack).as_slice() {
        [Step::Install { lease, renewed: false }] => (client, lease.clone()),
        other => panic!("no lease: {other:?}"),
    }
}

#[test]
fn four_messages_make_a_lease() {
    let (client, lease) = bound();
    assert_eq!(lease.address.to_string(), "10.0.0.5/24");
    assert_eq!(lease.routes, [Route { to: "0.0.0.0/0".parse().unwrap(), via: Some(SERVER.into()) }]);
    assert_eq!(client.deadline(), seconds(61));
}

#[test]
fn silence_is_asked_again_with_growing_patience() {
    let mut client = Client::new(MAC, 7);
    let mut times = Vec::new();
    let mut now = Duration::ZERO;
    while now < seconds(40) {
        if !client.poll(now).is_empty() {
            times.push(now.as_secs());
        }
        now += seconds(1);
    }
    assert_eq!(times, [0, 1, 3, 7, 15, 23, 31, 39]);
}

#[test]
fn an_offer_that_is_never_acknowledged_is_given_up() {
    let mut client = Client::new(MAC, 7);
    let steps = client.poll(seconds(0));
    let offer = answer(sent(&steps).0, Kind::Offer, ADDRESS);
    client.receive(seconds(0), &offer);
    let mut kinds = Vec::new();
    for now in 1..30 {
        kinds.extend(client.poll(seconds(now)).iter().map(|step| match step {
            Step::Send { message, .. } => message.kind,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(kinds[..4], [Kind::Request, Kind::Request, Kind::Request, Kind::Discover]);
}

#[test]
fn a_lease_is_renewed_with_its_server_then_with_anyone_then_given_up() {
    let (mut client, lease) = bound();
    assert_eq!(client.poll(seconds(60)), []);
    let steps = client.poll(seconds(61));
    let (renewal, to) = sent(&steps);
    assert_eq!((renewal.ciaddr, renewal.server, to), (ADDRESS, None, SERVER));
    let renewal = answer(renewal, Kind::Ack, ADDRESS);

    // Nobody answers: T2 is at 1 + 105, the end at 121.
    let steps = client.poll(seconds(106));
    assert_eq!(sent(&steps).1, Ipv4Addr::BROADCAST);
    assert_eq!(
        client.receive(seconds(107), &renewal),
        [],
        "an answer to an older request is not one to this"
    );
    let late = answer(sent(&steps).0, Kind::Ack, ADDRESS);
    let steps = client.receive(seconds(107), &late);
    assert!(matches!(&steps[..], [Step::Install { renewed: true, .. }]), "{steps:?}");

    let steps = client.poll(seconds(107 + 120));
    assert_eq!(steps[0], Step::Remove(Lease { ..lease }));
    assert_eq!(sent(&steps).0.kind, Kind::Discover);
}

#[test]
fn a_refused_renewal_gives_the_address_up_at_once() {
    let (mut client, lease) = bound();
    let steps = client.poll(seconds(61));
    let nak = Message::new(Kind::Nak, sent(&steps).0.xid, MAC);
    assert_eq!(client.receive(seconds(62), &nak), [Step::Remove(lease)]);
    assert_eq!(sent(&client.poll(seconds(62))).0.kind, Kind::Discover);
}

#[test]
fn another_address_replaces_the_old_one() {
    let (mut client, lease) = bound();
    let steps = client.poll(seconds(61));
    let other = answer(sent(&steps).0, Kind::Ack, Ipv4Addr::new(10, 0, 0, 6));
    let steps = client.receive(seconds(62), &other);
    assert!(
        matches!(&steps[..], [Step::Remove(old), Step::Install { renewed: false, .. }] if *old == lease),
        "{steps:?}"
    );
}

#[test]
fn what_is_not_for_us_or_not_usable_is_ignored() {
    let mut client = Client::new(MAC, 7);
    let steps = client.poll(seconds(0));
    let good = answer(sent(&steps).0, Kind::Offer, ADDRESS);
    let bad = [
        Message { xid: good.xid + 1, ..good.clone() },
        Message { mac: [9; 6], ..good.clone() },
        Message { yiaddr: Ipv4Addr::UNSPECIFIED, ..good.clone() },
        Message { server: None, ..good.clone() },
        Message { kind: Kind::Ack, ..good.clone() },
    ];
    for message in bad {
        assert_eq!(client.receive(seconds(0), &message), [], "{message:?}");
    }
    assert_eq!(client.receive(seconds(0), &good).len(), 1);
}

#[test]
fn times_that_make_no_sense_are_replaced_and_an_endless_lease_is_left_alone() {
    let mut message = answer(&Message::new(Kind::Request, 1, MAC), Kind::Ack, ADDRESS);
    (message.t1, message.t2) = (Some(100), Some(50));
    let lease = read_lease(&message, SERVER).unwrap();
    assert_eq!((lease.t1, lease.t2), (seconds(60), seconds(105)));
    message.seconds = Some(0);
    assert_eq!(read_lease(&message, SERVER), None);

    let (mut client, mut lease) = bound();
    lease.seconds = FOREVER;
    client.enter(State::Bound { lease, since: seconds(1) }, seconds(60));
    assert_eq!((client.poll(seconds(1_000_000)), client.deadline()), (Vec::new(), Duration::MAX));
}

#[test]
fn routes_come_from_one_option_and_routers_are_reachable() {
    let network: Ipv4Net = "10.0.0.5/32".parse().unwrap();
    let shown = |routes: Vec<Route>| -> Vec<String> {
        routes
            .iter()
            .map(|route| match route.via {
                Some(via) => format!("{} via {via}", route.to),
                None => route.to.to_string(),
            })
            .collect()
    };
    let far = Ipv4Addr::new(169, 254, 1, 1);
    assert_eq!(shown(routes(network, &[], &[far])), ["169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1"]);
    let classless =
        [("169.254.1.1/32".parse().unwrap(), Ipv4Addr::UNSPECIFIED), ("10.1.0.0/16".parse().unwrap(), far)];
    assert_eq!(
        shown(routes(network, &classless, &[SERVER])),
        ["169.254.1.1/32", "10.1.0.0/16 via 169.254.1.1"]
    );
}
