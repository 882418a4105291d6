//! XML, as far as libvirt's documents need it: elements, attributes, text.
//!
//! Every string is escaped on its way out, and a character that XML cannot carry at all is an error: no text that a user wrote can
//! become an element.

use std::fmt::{Display, Write as _};

/// A text holds a character that XML has no way to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} holds a control character, which cannot be given to the hypervisor")]
pub struct UnwritableText {
    /// The text.
    pub text: String,
}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    children: Vec<Element>,
}

impl Element {
    pub fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: None, children: Vec::new() }
    }

    /// An element that holds this text.
    pub fn with_text(name: &'static str, text: impl Display) -> Self {
        Self { text: Some(format!("{text}")), ..Self::new(name) }
    }

    #[must_use]
    pub fn attribute(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, format!("{value}")));
        self
    }

    #[must_use]
    pub fn child(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    #[must_use]
    pub fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// The document with this element as its root.
    pub fn document(&self) -> Result<String, UnwritableText> {
        let mut out = String::new();
        self.write(&mut out, 0)?;
        Ok(out)
    }

    fn write(&self, out: &mut String, depth: usize) -> Result<(), UnwritableText> {
        let indent = "  ".repeat(depth);
        let name = self.name;
        let _ = write!(out, "{indent}<{name}"); // writing to a string does not fail, here and below
        for (attribute, value) in &self.attributes {
            let _ = write!(out, " {attribute}='{}'", escaped(value)?);
        }
        match (&self.text, self.children.is_empty()) {
            (None, true) => out.push_str("/>\n"),
            (Some(text), _) => {
                let _ = writeln!(out, ">{}</{name}>", escaped(text)?);
            }
            (None, false) => {
                out.push_str(">\n");
                for child in &self.children {
                    child.write(out, depth + 1)?;
                }
                let _ = writeln!(out, "{indent}</{name}>");
            }
        }
        Ok(())
    }
}

/// White space other than a blank is written by number: a reader would make blanks of it in an attribute.
fn escaped(text: &str) -> Result<String, UnwritableText> {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' => out.push_str("&#9;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                return Err(UnwritableText { text: text.to_owned() });
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_document() {
        let root = Element::new("a")
            .attribute("b", 1)
            .child(Element::with_text("c", "x & y"))
            .child(Element::new("d"));
        assert_eq!(root.document().unwrap(), "<a b='1'>\n  <c>x &amp; y</c>\n  <d/>\n</a>\n");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        assert!(Element::with_text("a", "bell\u{7}").document().is_err());
        assert!(Element::new("a").attribute("b", "null\0").document().is_err());
    }

    proptest! {
        #[test]
        fn no_text_becomes_markup(text: String) {
            if let Ok(document) = Element::new("a").attribute("b", &text).child(Element::with_text("c", &text)).document() {
                prop_assert_eq!(document.matches('<').count(), 4);
                prop_assert_eq!(document.matches('>').count(), 4);
                prop_assert_eq!(document.matches('\'').count(), 2);
                prop_assert_eq!(document.lines().count(), 3);
            }
        }
    }
}
