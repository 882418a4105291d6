//! The objects of the benchmark: `ConfigMap`s of about 1 KiB, numbered so that a byte search finds the number again.
//!
//! A `ConfigMap` is the harder contest: the real server holds it in a compiled type and stores it as protobuf, where a custom
//! resource is a tree of maps to it.

use bytes::Bytes;
use memchr::memmem::Finder;

/// Precedes the number in the text of an object, and occurs nowhere else in it.
const MARK: &str = "number=";

pub fn collection(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

pub fn namespace(name: &str) -> Bytes {
    format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#).into()
}

pub fn object(name: &str, number: usize) -> Bytes {
    render(&format!(r#""name":"{name}""#), number)
}

/// The object to replace the one that was read at this resource version.
pub fn replacement(name: &str, resource_version: &str, number: usize) -> Bytes {
    render(&format!(r#""name":"{name}","resourceVersion":"{resource_version}""#), number)
}

/// A merge patch that changes the number alone.
pub fn change(number: usize) -> Bytes {
    format!(r#"{{"data":{{"number":"{MARK}{number}"}}}}"#).into()
}

fn render(metadata: &str, number: usize) -> Bytes {
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(19);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{{metadata}}},"data":{{"number":"{MARK}{number}","text":"{text}"}}}}"#
    )
    .into()
}

/// Finds the numbers in what a server sends.
pub struct Numbers(Finder<'static>);

impl Numbers {
    pub fn new() -> Self {
        Self(Finder::new(MARK))
    }

    pub fn first(&self, text: &[u8]) -> Option<usize> {
        let digits = &text[self.0.find(text)? + MARK.len()..];
        let number = digits.iter().take_while(|byte| byte.is_ascii_digit());
        Some(number.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
    }

    pub fn count(&self, text: &[u8]) -> usize {
        self.0.find_iter(text).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_about_one_kibibyte_and_carry_their_number() {
        let object = object("o-7", 7);
        assert!((900..1100).contains(&object.len()), "{} bytes", object.len());
        assert_eq!(Numbers::new().first(&object), Some(7));
        assert_eq!(Numbers::new().count(&object), 1);
        assert!(serde_json::from_slice::<serde_json::Value>(&object).is_ok());
        assert_eq!(Numbers::new().first(&change(1234)), Some(1234));
        assert_eq!(Numbers::new().first(b"{}"), None);
    }
}
