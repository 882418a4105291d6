//! Request bodies of every content type. The first byte says which; the rest is the body.

use apiserver::body;

const TYPES: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let content_type = TYPES[usize::from(*first) % TYPES.len()];
    if let Ok(decoded) = body::decode(content_type, rest) {
        // Whatever was accepted can be stored and read back.
        let text = decoded.value.to_string();
        assert_eq!(serde_json::from_str(&text).ok(), Some(decoded.value));
    }
}
