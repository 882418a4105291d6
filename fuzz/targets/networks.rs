//! The networks annotation in either form: what is accepted is written as something that reads the same.
#![no_main]

use api::multus::{format_networks, parse_default_network, parse_networks};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = parse_default_network(text);
    if let Ok(selections) = parse_networks(text)
        && let Ok(written) = format_networks(&selections)
    {
        assert_eq!(parse_networks(&written).ok(), Some(selections), "{written}");
    }
});
