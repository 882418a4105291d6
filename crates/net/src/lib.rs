//! Kernel networking by netlink: network namespaces, links, addresses, routes, neighbours, announcements, counters, rates.
//!
//! Two types carry everything. A [`Namespace`] is an open network namespace; work that must happen inside it runs on a
//! thread of its own, which ends with the work, so that no thread of the program is ever left in another namespace. A
//! [`Handle`] is a netlink socket opened inside a namespace; its calls are async and may be made from any task.
//!
//! ```no_run
//! # async fn example() -> Result<(), net::Error> {
//! use net::{Handle, Namespaces, NewLink, Peer};
//!
//! let namespaces = Namespaces::at("/run/godwit/lab/netns");
//! let (fabric, node) = (namespaces.ensure("fabric")?, namespaces.ensure("node1")?);
//! let (fabric, on_node) = (Handle::open(&fabric)?, Handle::open(&node)?);
//! fabric.ensure_link(&NewLink::bridge("management").mtu(9000).up()).await?;
//! let node_end = Peer::new("eth0").namespace(&node).up();
//! fabric.create_link(&NewLink::veth("node1", node_end).master("management").up()).await?;
//! on_node.ensure_address("eth0", net::Address::new("192.0.2.1/24".parse().unwrap())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here decides what a network should look like, runs a program, or keeps state: the kernel has it.
//!
//! Invariant: a call that returns an error says what it was doing, to what, and in which namespace; a call that changes
//! something either did it or did not.

mod address;
mod announce;
mod discovery;
mod error;
mod handle;
mod icmpv6;
mod link;
mod mac;
mod mute;
mod namespace;
mod neighbour;
mod rate;
mod route;
mod router;
mod sysctl;

pub use address::{Address, AddressState, DuplicateDetection, Readiness};
pub use announce::Announcement;
pub use discovery::{Discovery, Heard};
pub use error::{Error, Refusal, Teardown};
pub use handle::Handle;
pub use ipnet::IpNet;
pub use link::{Counters, Link, LinkId, LinkKind, NewLink, Peer, Vxlan};
pub use mac::{InvalidMac, MacAddress};
pub use namespace::{Namespace, NamespaceGuard, Namespaces};
pub use neighbour::{Neighbour, NeighbourState};
pub use rate::{RateLimit, Shaper};
pub use route::Route;
pub use router::RouterAdvertisement;
pub use sysctl::Sysctl;
