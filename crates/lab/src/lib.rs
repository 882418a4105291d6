//! A cluster on one machine.

pub mod topology;
