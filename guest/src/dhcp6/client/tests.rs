//! The client against a server that is played by hand.

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sent(steps: &[Step]) -> &Message {
    match steps {
        [.., Step::Send(message)] => message,
        other => panic!("nothing was sent: {other:?}"),
    }
}

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

/// A server's answer to a message of the client.
fn answer(to: &Message, kind: Kind, last: u16) -> Message {
    let given = Address { address: address(last), preferred: 100, valid: 120 };
    let association = Association { address: Some(given), ..to.association.clone().unwrap() };
    Message { kind, server: Some(vec![9]), association: Some(association), ..to.clone() }
}

/// A client that was bound at second 1: T1 at 51, T2 at 81, the end at 121.
fn bound() -> (Client, Lease) {
    let mut client = Client::new(MAC, 7);
    let solicit = client.poll(seconds(0));
    assert_eq!(sent(&solicit).kind, Kind::Solicit);
    assert_eq!(sent(&solicit).client, [0, 3, 0, 1, 2, 0, 0, 0, 0, 1]);
    let request = client.receive(seconds(1), &answer(sent(&solicit), Kind::Advertise, 5));
    assert_eq!((sent(&request).kind, sent(&request).server.as_deref()), (Kind::Request, Some(&[9][..])));
    match client.receive(seconds(1), &answer(sent(&request), Kind::Reply, 5)).as_slice() {
        [Step::Install { lease, renewed: false }] => (client, lease.clone()),
        other => panic!("no lease: {other:?}"),
    }
}

#[test]
fn four_messages_make_a_lease() {
    let (client, lease) = bound();
    assert_eq!((lease.address, client.deadline()), (address(5), seconds(51)));
}

#[test]
fn a_lease_is_renewed_then_rebound_then_given_up() {
    let (mut client, lease) = bound();
    let renew = client.poll(seconds(51));
    assert_eq!((sent(&renew).kind, sent(&renew).server.is_some()), (Kind::Renew, true));
    let rebind = client.poll(seconds(81));
    assert_eq!((sent(&rebind).kind, sent(&rebind).server.is_some()), (Kind::Rebind, false));
    let steps = client.receive(seconds(82), &answer(sent(&rebind), Kind::Reply, 5));
    assert!(matches!(&steps[..], [Step::Install { renewed: true, .. }]), "{steps:?}");
    let steps = client.poll(seconds(82 + 120));
    assert_eq!((&steps[0], sent(&steps).kind), (&Step::Remove(lease), Kind::Solicit));
}

#[test]
fn a_server_that_knows_nothing_of_the_lease_ends_it() {
    let (mut client, lease) = bound();
    let renew = client.poll(seconds(51));
    let mut reply = answer(sent(&renew), Kind::Reply, 5);
    reply.association.as_mut().unwrap().status = 3;
    assert_eq!(client.receive(seconds(52), &reply), [Step::Remove(lease)]);
    assert_eq!(sent(&client.poll(seconds(52))).kind, Kind::Solicit);
}

#[test]
fn what_is_not_for_us_or_gives_nothing_is_ignored() {
    let mut client = Client::new(MAC, 7);
    let solicit = client.poll(seconds(0));
    let good = answer(sent(&solicit), Kind::Advertise, 5);
    let bad = [
        Message { xid: good.xid + 1, ..good.clone() },
        Message { client: vec![1], ..good.clone() },
        Message { server: None, ..good.clone() },
        Message { status: 2, ..good.clone() },
        Message { association: None, ..good.clone() },
        Message { kind: Kind::Reply, ..good.clone() },
    ];
    for message in bad {
        assert_eq!(client.receive(seconds(0), &message), [], "{message:?}");
    }
    assert_eq!(client.receive(seconds(0), &good).len(), 1);
}
