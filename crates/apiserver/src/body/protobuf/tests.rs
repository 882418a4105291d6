//! `captured.txt`: what kubectl 1.32 sent, and the JSON that Kubernetes' own codec makes of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::table::TABLE;
use super::*;

/// Go writes nulls and the empty structs of fields that were not set; here they are left out.
fn without_unset(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().map(|(key, value)| (key, without_unset(value)));
            // A pointer to an empty struct says something: an emptyDir, the volumes that need no more.
            Value::Object(fields.filter(|(_, value)| !value.is_null() && value != &json!({})).collect())
        }
        Value::Array(list) => list.into_iter().map(without_unset).collect(),
        scalar => scalar,
    }
}

fn check(pairs: &str) {
    for line in pairs.lines() {
        let (body, expected) = line.split_once(' ').unwrap();
        let decoded = decode(&STANDARD.decode(body).unwrap(), "").unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(without_unset(decoded), without_unset(expected));
    }
}

#[test]
fn what_kubectl_sends_decodes() {
    check(include_str!("captured.txt"));
}

/// Errors of kube-apiserver 1.36.4.
#[test]
fn broken_messages_are_described_as_upstream() {
    let no_magic = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    for (body, error) in [
        (&b""[..], "empty data"),
        (b"k8s", no_magic),
        (b"abcd", no_magic),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (b"k8s\0\xff\xff", "unexpected EOF"),
        (b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x05", "unexpected EOF"),
        (
            b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigFoo\x12\x00",
            "no kind \"ConfigFoo\" is registered for version \"v1\"",
        ),
    ] {
        assert_eq!(decode(body, "ConfigMap").unwrap_err(), error);
    }
    let unnamed = b"k8s\0\x0a\x04\x0a\x02v1\x12\x00";
    assert_eq!(decode(unnamed, "ConfigMap"), Ok(json!({"apiVersion": "v1", "kind": "ConfigMap"})));
}

#[test]
fn the_table_is_whole() {
    assert!(TABLE.kinds().count() > 40);
    for (version, kind) in TABLE.kinds() {
        assert!(TABLE.kind(version, kind).is_some(), "{version} {kind}");
    }
}
