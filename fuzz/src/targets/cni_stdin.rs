//! What a runtime tells a CNI plugin: lines `NAME=value` of the environment, an empty line, the configuration.

use std::collections::BTreeMap;

use ipam::{Call, Config};

/// Runs one input.
pub fn run(data: &[u8]) {
    let end = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let input = data.get(end + 2..).unwrap_or_default();
    let head = String::from_utf8_lossy(&data[..end]);
    let environment: BTreeMap<&str, &str> = head.lines().filter_map(|line| line.split_once('=')).collect();
    let call = Call::read(|name| environment.get(name).map(|value| (*value).to_owned()));
    let asked = call.as_ref().ok().and_then(|call| call.arg("IP"));
    if let Ok(call) = &call {
        let _ = (call.pod(), call.pod_uid());
    }
    let Ok(config) = Config::parse(input) else { return };
    let _ =
        (config.version(), config.network(), config.claim(), config.previous(), config.valid_attachments());
    if let Ok(giving) = config.giving(asked) {
        assert!(giving.pool.capacity() > 0, "a pool that is accepted has an address to give");
    }
    // A file of settings is the same text as an `ipam`: it may complete, never break.
    let value: Option<serde_json::Value> = serde_json::from_slice(input).ok();
    if let Some(ipam) = value.as_ref().and_then(|value| value.get("ipam"))
        && let Ok(completed) = config.with_file(ipam.to_string().as_bytes())
    {
        let _ = completed.giving(asked);
    }
}
