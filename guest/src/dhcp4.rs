//! DHCPv4 (RFC 2131) for one NIC: effects only. [`client`] decides, [`message`] reads and writes.
//!
//! Messages ask the server to broadcast its answers, so that an ordinary UDP socket hears them before the NIC has an address.

pub mod client;
pub mod message;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sys::socket::sockopt::{BindToDevice, Broadcast, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};
use serde_json::json;

use self::client::{Client, Lease, Step};
use self::message::Message;
use crate::kernel::{Kernel, Lifetime};
use crate::network::{Card, chain, mac_text, refresh};

/// How long a thread goes without looking whether its NIC is still there.
pub const LOOK: Duration = Duration::from_millis(500);

/// Gets and keeps a lease, until the NIC is gone.
pub fn run(card: &Card) {
    let (socket, mut kernel) = match (open(&card.link.name), Kernel::open()) {
        (Ok(socket), Ok(kernel)) => (socket, kernel),
        (Err(cause), _) => return card.complain(&format_args!("no DHCP: {cause}")),
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
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    setsockopt(&socket, Broadcast, &true)?;
    setsockopt(&socket, BindToDevice, &device.into())?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, message::CLIENT_PORT));
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &address)?;
    Ok(UdpSocket::from(socket))
}

/// Waits for a message, at most `wait` and never longer than [`LOOK`].
fn receive(socket: &UdpSocket, wait: Duration) -> Option<Message> {
    let mut bytes = [0; 1500];
    let wait = wait.clamp(Duration::from_millis(1), LOOK);
    let received = socket.set_read_timeout(Some(wait)).and_then(|()| socket.recv(&mut bytes));
    // Nothing came, or what came is not DHCP: both are answered by the next attempt.
    Message::parse(&bytes[..received.ok()?]).ok()
}

fn take(card: &Card, kernel: &mut Kernel, socket: &UdpSocket, step: Step) {
    match step {
        // Unsent is like lost on the way: the next attempt follows.
        Step::Send { message, to } => drop(socket.send_to(&message.emit(), (to, message::SERVER_PORT))),
        Step::Install { lease, renewed } => install(card, kernel, &lease, renewed),
        Step::Remove(lease) => {
            if let Err(cause) = kernel.delete_address(card.link.index, IpNet::V4(lease.address)) {
                // It went by itself when its lifetime was over.
                if cause.cause.raw_os_error() != Some(nix::errno::Errno::EADDRNOTAVAIL as i32) {
                    card.complain(&chain(&cause));
                }
            }
            card.guest.network.set_dns4(card.link.index, []);
        }
    }
}

fn install(card: &Card, kernel: &mut Kernel, lease: &Lease, renewed: bool) {
    let index = card.link.index;
    let lifetime = Lifetime { preferred: lease.seconds, valid: lease.seconds };
    let mut results = vec![kernel.set_address(index, IpNet::V4(lease.address), lifetime)];
    if let Some(mtu) = lease.mtu {
        results.push(kernel.set_mtu(index, u32::from(mtu)));
    }
    results.extend(lease.routes.iter().map(|route| kernel.set_route(index, *route)));
    card.guest.network.set_dns4(index, lease.dns.clone());
    results.push(refresh(&card.guest, kernel));
    for cause in results.into_iter().filter_map(Result::err) {
        card.complain(&chain(&cause));
    }
    let text = json!({
        "nic": card.link.name, "mac": mac_text(card.link.mac), "address": lease.address.to_string(),
        "server": lease.server, "seconds": lease.seconds, "mtu": lease.mtu, "dns": lease.dns, "renewed": renewed,
        "uptime_ms": card.guest.uptime_ms(),
    });
    card.guest.serial.say("lease", &text);
}

/// Where an exchange's number begins: two guests must not have the same.
pub fn random() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let hash = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u32::try_from(hash >> 32).unwrap_or_default()
}
