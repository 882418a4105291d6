//! Placeholder.
use testkit as _;
