//! A cluster on one machine.
