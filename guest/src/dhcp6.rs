//! DHCPv6 (RFC 8415), one address (IA_NA) for one NIC, when a router says that addresses come this way: effects only.
//! [`client`] decides, [`message`] reads and writes.

pub mod client;
pub mod message;

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket};
use serde_json::json;

use self::client::{Client, Lease, Step};
use self::message::Message;
use crate::dhcp4::{LOOK, random};
use crate::kernel::{Kernel, Lifetime};
use crate::network::{Card, chain, mac_text, refresh};

/// All servers and relays of the link.
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// Gets and keeps a lease, until the NIC is gone.
pub fn run(card: &Card) {
    let (socket, mut kernel) = match (open(&card.link.name), Kernel::open()) {
        (Ok(socket), Ok(kernel)) => (socket, kernel),
        (Err(cause), _) => return card.complain(&format_args!("no DHCPv6: {cause}")),
        (_, Err(cause)) => return card.complain(&chain(&cause)),
    };
    let start = Instant::now();
    let mut client = Client::new(card.link.mac, random());
    while card.is_there() {
        for step in client.poll(start.elapsed()) {
            take(card, &mut kernel, &socket, step);
        }
        if let Some(message) = receive(&socket, client.deadline().saturating_sub(start.elapsed())) {
            for step in client.receive(start.elapsed(), &message) {
                take(card, &mut kernel, &socket, step);
            }
        }
    }
}

fn open(device: &str) -> io::Result<UdpSocket> {
    let socket = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    setsockopt(&socket, Ipv6V6Only, &true)?;
    setsockopt(&socket, BindToDevice, &device.into())?;
    let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, message::CLIENT_PORT, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(address))?;
    Ok(UdpSocket::from(socket))
}

/// Waits for a message, at most `wait` and never longer than [`LOOK`].
fn receive(socket: &UdpSocket, wait: Duration) -> Option<Message> {
    let mut bytes = [0; 1500];
    let wait = wait.clamp(Duration::from_millis(1), LOOK);
    let received = socket.set_read_timeout(Some(wait)).and_then(|()| socket.recv(&mut bytes));
    // Nothing came, or what came is not DHCPv6: both are answered by the next attempt.
    Message::parse(&bytes[..received.ok()?]).ok()
}

fn take(card: &Card, kernel: &mut Kernel, socket: &UdpSocket, step: Step) {
    let index = card.link.index;
    match step {
        Step::Send(message) => {
            let to = SocketAddrV6::new(SERVERS, message::SERVER_PORT, 0, index);
            // Unsent is like lost on the way: the next attempt follows.
            drop(socket.send_to(&message.emit(), to));
        }
        Step::Install { lease, renewed } => install(card, kernel, &lease, renewed),
        Step::Remove(lease) => {
            // It went by itself when its lifetime was over.
            let gone = |cause: &crate::kernel::Error| {
                cause.cause.raw_os_error() == Some(Errno::EADDRNOTAVAIL as i32)
            };
            match kernel.delete_address(index, network(lease.address)) {
                Err(cause) if !gone(&cause) => card.complain(&chain(&cause)),
                _ => {}
            }
            card.guest.network.set_dns6(index, []);
        }
    }
}

/// Which other addresses are on the link, the router says; DHCPv6 gives just the one.
fn network(address: Ipv6Addr) -> IpNet {
    IpNet::V6(Ipv6Net::from(address))
}

fn install(card: &Card, kernel: &mut Kernel, lease: &Lease, renewed: bool) {
    let index = card.link.index;
    let lifetime = Lifetime { preferred: lease.preferred, valid: lease.valid };
    let set = kernel.set_address(index, network(lease.address), lifetime);
    card.guest.network.set_dns6(index, lease.dns.clone());
    for cause in [set, refresh(&card.guest, kernel)].into_iter().filter_map(Result::err) {
        card.complain(&chain(&cause));
    }
    let text = json!({
        "nic": card.link.name, "mac": mac_text(card.link.mac), "address": network(lease.address).to_string(),
        "seconds": lease.valid, "dns": lease.dns, "renewed": renewed, "uptime_ms": card.guest.uptime_ms(),
    });
    card.guest.serial.say("lease", &text);
}
