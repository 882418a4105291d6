//! Errors as people read them.

/// An error and its causes on one line, for where there is no room for a source.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = Vec::new();
    for text in causes.map(ToString::to_string) {
        // Some libraries say their cause themselves.
        if !texts.last().is_some_and(|last| last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}
