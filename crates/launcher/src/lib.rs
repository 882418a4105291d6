//! The launcher of a VM: all of it but the link to libvirt, which the program `virt-launcher` adds.
//!
//! ```text
//!  handler ──launcher.sock──► server ──┐                        ┌──► hypervisor (libvirt): networks, domain
//!  SIGTERM ────────────────────────────┼──► supervise ──► run ──┼──► proxy ──cni.sock──► handler: vNICs
//!  the domain's state (polled) ────────┘   what happens   does  ├──► wiring: interface into bridge, by netlink
//!                                          next, pure     it    └──► disks, first-boot settings
//! ```
//!
//! Pure: [`plan`] (a VM's spec to what is to be made), [`domain`] and [`network`] (that to libvirt's documents), [`masquerade`] (that to
//! rules), [`supervise`] (what happens next). Effects: [`run`](mod@run), [`wiring`], [`rules`],
//! [`advertise`], [`disks`], [`proxy`], [`server`], [`serial`], [`probe`].
//! Beside it, in a process of its own: [`console`].
//!
//! It must never talk to the API server or to another launcher, nor touch the pod's own `eth0`. Invariant: what it made in
//! the pod's network namespace it takes away before it ends, and what it cannot take away it reports.

pub mod advertise;
pub mod cloud_init;
pub mod console;
pub mod disks;
pub mod domain;
mod fat;
pub mod hypervisor;
pub mod masquerade;
pub mod network;
pub mod plan;
pub mod probe;
pub mod proxy;
pub mod rules;
pub mod run;
pub mod serial;
pub mod server;
pub mod supervise;
pub mod wiring;
mod xml;

pub use xml::UnwritableText;
