//! The networks annotation in either form: what is accepted is written as something that reads the same.

use api::multus::{format_networks, parse_default_network, parse_networks};

/// Runs one input.
pub fn run(data: &[u8]) {
    let text = crate::text(data);
    let _ = parse_default_network(text);
    if let Ok(selections) = parse_networks(text)
        && let Ok(written) = format_networks(&selections)
    {
        assert_eq!(parse_networks(&written).ok(), Some(selections), "{written}");
    }
}
