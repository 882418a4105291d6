//! The lab as a person uses it: the program itself, stock kubectl, real plugins, and what is left afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod attachments;
mod chaos;
mod cluster_networks;
mod commands;
mod drain;
mod exec;
mod join;
mod migration_network;
mod rates;
