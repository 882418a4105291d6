//! Label and field selectors: parsing and matching.
//!
//! Accepts and refuses exactly what the real server does, in its words. A selector is immutable once parsed, and
//! what it prints parses to the same selector again.

mod fields;
mod labels;
mod parse;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
pub use labels::{label_key_errors, label_value_errors};
