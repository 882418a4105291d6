//! Which addresses there are, which are free, and who may have one.
//!
//! Everything here is a function of values: no I/O, no clock, no state between calls. Ranges are intervals and are never
//! walked address by address, so a /8 and a /64 are judged as fast as a /30. Those who admit a network and those who give
//! its addresses ask the same code, so what was admitted can be given.

pub mod decision;
pub mod headroom;
mod interval;
pub mod ledger;
mod network;
pub mod overlap;
pub mod pool;
mod set;
pub mod text;

#[cfg(test)]
mod naive;

pub use decision::{Decision, decide};
pub use interval::{Family, Interval};
pub use ledger::Ledger;
pub use network::Network;
pub use pool::{Pool, PoolRange, PoolSettings, RangeSettings};
pub use set::AddressSet;
pub use text::TextError;
