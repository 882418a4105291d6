//! The targets by name. Each takes one input of any bytes, and fails by panicking.

mod apply;
mod body;
mod cni_stdin;
mod hello;
mod http;
mod networks;
mod patch;
mod preamble;
mod proxy;
mod selectors;
mod setting;
mod wire;

/// Runs one input.
pub type Target = fn(&[u8]);

/// Every target, by the name of its folder in `corpus/`.
pub const ALL: [(&str, Target); 12] = [
    ("apply", apply::run),
    ("body", body::run),
    ("cni-stdin", cni_stdin::run),
    ("hello", hello::run),
    ("http", http::run),
    ("networks", networks::run),
    ("patch", patch::run),
    ("preamble", preamble::run),
    ("proxy", proxy::run),
    ("selectors", selectors::run),
    ("setting", setting::run),
    ("wire", wire::run),
];

/// The target of a name.
pub fn find(name: &str) -> Option<Target> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
