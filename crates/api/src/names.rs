//! Every name that two parts must agree on, each exactly once.
//!
//! A part that writes or reads an annotation, a label, a port or a reason takes it from here; a string of this kind in
//! any other crate is a defect. Each constant says who writes it and who reads it. "Users" are people and other
//! systems; "the controller", "the handler", "the launcher", "the gateway" and "the plugin" are virt-controller,
//! virt-handler, virt-launcher, virt-synchronization-controller and godwit-cni.

pub mod annotations;
pub mod channels;
pub mod conditions;
pub mod events;
pub mod exit_codes;
pub mod finalizers;
pub mod interfaces;
pub mod labels;
pub mod objects;
pub mod paths;
pub mod ports;
pub mod reasons;
