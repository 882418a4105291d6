#![allow(clippy::unwrap_used, reason = "x")]
