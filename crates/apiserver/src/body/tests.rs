//! Texts of errors are those of kube-apiserver 1.36.4 for a `ConfigMap`.

use proptest::prelude::*;
use serde_json::json;

use super::testing::any_json;
use super::*;

const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type ConfigMap): ";
const NO_KIND: &str = "couldn't get version/kind; json parse error: ";

#[test]
fn broken_json_is_described_as_upstream() {
    for (body, cause, shown) in [
        ("", "unexpected end of JSON input", "<empty>"),
        ("{", "unexpected end of JSON input", "{"),
        ("{\"a\":1", "unexpected end of JSON input", "{\"a\":1"),
        ("x", "invalid character 'x' looking for beginning of value", "78"),
        ("{} x", "invalid character 'x' after top-level value", "{} x"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string", "{\"a\":1,}"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string", "{a:1}"),
        ("{\"a\":\"\\x\"}", "invalid character 'x' in string escape code", "{\"a\":\"\\x\"}"),
        ("{\"a\":\"\t\"}", "invalid character '\\t' in string literal", "{\"a\":\"\t\"}"),
        ("{\"a\" 1}", "invalid character '1' after object key", "{\"a\" 1}"),
        ("{\"a\":1 2}", "invalid character '2' after object key:value pair", "{\"a\":1 2}"),
        ("{\"a\":[1 2]}", "invalid character '2' after array element", "{\"a\":[1 2]}"),
        (
            "{\"kind\":\"ConfigMap\",\"apiVersion\":3}",
            "json: cannot unmarshal number into Go struct field .apiVersion of type string",
            "{\"kind\":\"ConfigMap\",\"apiVersio ...",
        ),
    ] {
        let error = decode_object("ConfigMap", "application/json", body.as_bytes()).unwrap_err();
        assert_eq!(
            (error.code, error.message),
            (400, format!("{UNRECOGNIZED}{NO_KIND}{cause} ({shown})")),
            "{body}"
        );
    }
    let error = decode_object("ConfigMap", "", b"[]").unwrap_err().message;
    assert!(
        error.contains("json: cannot unmarshal array into Go value of type struct { APIVersion"),
        "{error}"
    );
    let error = decode("application/json", b"{").unwrap_err().message;
    assert_eq!(error, format!("{NO_KIND}unexpected end of JSON input"));
}

#[test]
fn broken_patches_are_described_as_upstream() {
    for (content_type, body, message) in [
        ("json-patch+json", "[", "error decoding patch: unexpected end of JSON input"),
        ("merge-patch+json", "null", "Invalid JSON Patch"),
        (
            "merge-patch+json",
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("merge-patch+json", "{} x", "error decoding patch: invalid character 'x' after top-level value"),
        (
            "strategic-merge-patch+json",
            "3",
            "json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
        ("strategic-merge-patch+json", "", "unexpected end of JSON input"),
    ] {
        let content_type = format!("application/{content_type}");
        let error = decode_patch(&content_type, body.as_bytes()).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, message), "{content_type} {body}");
        assert_eq!(decode(&content_type, body.as_bytes()), Err(error));
    }
    assert!(decode_patch("application/strategic-merge-patch+json", b"null").is_ok());
    let error = decode_patch("application/json", b"{}").unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (415, "415: Unsupported Media Type"));
}

#[test]
fn duplicates_are_found_and_the_last_wins() {
    let body = br#"{"metadata":{"name":"b","name":"c"},"data":{"k":"1","k":"2","k":"3"},"l":[{"a":1},{"a":1,"a":2}]}"#;
    let decoded = decode("application/json", body).unwrap();
    assert_eq!(decoded.duplicates, ["metadata.name", "data.k", "l[1].a"]);
    assert_eq!(
        decoded.value,
        json!({"metadata": {"name": "c"}, "data": {"k": "3"}, "l": [{"a": 1}, {"a": 2}]})
    );
}

#[test]
fn content_types() {
    for content_type in ["", "application/json", "Application/JSON", "application/json; charset=utf-8"] {
        assert_eq!(Format::of(content_type), Some(Format::Json), "{content_type}");
    }
    for content_type in
        ["text/plain", "application/json;q", "application/cbor", "application/merge-patch+json"]
    {
        let error = decode_object("ConfigMap", content_type, b"{}").unwrap_err();
        let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        assert_eq!(error, ApiError::unsupported_media_type(accepted), "{content_type}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth - 1) + "{}", "}".repeat(depth - 1));
    assert!(decode("application/json", nested(MAX_DEPTH).as_bytes()).is_ok());
    for body in [nested(MAX_DEPTH + 1), nested(100_000), format!("{{\"a\":{}", "[".repeat(100_000))] {
        let error = decode("application/json", body.as_bytes()).unwrap_err().message;
        assert!(error.ends_with("exceeded max depth"), "{error}");
        assert!(decode("application/yaml", body.as_bytes()).is_err());
    }
    assert!(decode("application/yaml", "- ".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn numbers_are_written_as_go_would() {
    let decoded =
        decode("application/json", br#"{"a":1.0,"b":1e3,"c":1.5,"d":-0.0,"e":18446744073709551615}"#)
            .unwrap();
    assert_eq!(decoded.value.to_string(), r#"{"a":1,"b":1000,"c":1.5,"d":0,"e":18446744073709551615}"#);
}

#[test]
fn yaml_is_read_as_upstream() {
    for (body, expected) in [
        ("", json!({})),
        ("# nothing\n", json!({})),
        ("a: {name: y1}\n---\nb: 2", json!({"a": {"name": "y1"}})),
        ("{\"a\": 1}", json!({"a": 1})),
        ("{a: 1, b: [x, \"y\"]}", json!({"a": 1, "b": ["x", "y"]})),
        // YAML 1.1: these are booleans, also as keys; keys become text.
        ("y: 1\nn: 2\n\"y\": 3", json!({"true": 1, "false": 2, "y": 3})),
        ("a: yes\nb: \"yes\"\nc: off", json!({"a": true, "b": "yes", "c": false})),
        ("1: a\n1.5: b", json!({"1": "a", "1.5": "b"})),
        ("mode: 0644\nhex: 0x10\nt: 2020-01-01", json!({"mode": 420, "hex": 16, "t": "2020-01-01"})),
        ("a: ~\nb:\nc: null", json!({"a": null, "b": null, "c": null})),
        ("a: !!binary aGk=\nb: !!str 1", json!({"a": "hi", "b": "1"})),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y", json!({"a": "x\ny\n", "b": "x y"})),
        (
            "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2",
            json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}),
        ),
    ] {
        let decoded = decode_object("ConfigMap", "application/yaml", body.as_bytes());
        assert_eq!(decoded.map(|decoded| decoded.value), Ok(expected), "{body}");
    }
    let decoded = decode("application/yaml", b"a:\n  name: q\n  name: r\n").unwrap();
    assert_eq!((decoded.value, decoded.duplicates), (json!({"a": {"name": "r"}}), vec!["a.name".to_owned()]));
    for body in ["{", "a: b: c", "&a [*a]", "- a", "s"] {
        let error = decode_object("ConfigMap", "application/yaml", body.as_bytes()).unwrap_err();
        assert_eq!(error.code, 400, "{body}");
    }
}

#[test]
fn aliases_cannot_multiply_without_bound() {
    let mut body = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        let list = [before.as_str(); 10].join(",");
        body.extend([format!("a{level}: &a{level} [{list}]\n")]);
    }
    assert!(decode("application/yaml", body.as_bytes()).is_err());
}

proptest! {
    #[test]
    fn json_comes_out_as_it_went_in(value in any_json()) {
        let value = json!({"a": value});
        for content_type in ["application/json", "application/yaml"] {
            let decoded = decode(content_type, value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&decoded.value, &value);
            prop_assert_eq!(decoded.duplicates.len(), 0);
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(body in any::<Vec<u8>>(), text in "[{}\\[\\]:,&*\\-a1'\"\n #|>!~.]{0,40}") {
        for content_type in ["application/json", "application/yaml", "application/apply-patch+yaml"] {
            let _ = decode(content_type, &body);
            let _ = decode(content_type, text.as_bytes());
        }
        let _ = decode("application/vnd.kubernetes.protobuf", &[b"k8s\0".as_slice(), &body].concat());
    }
}
