//! Errors as one line, for logs, statuses and answers.

use std::error::Error;

/// An error and its causes.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        match error.downcast_ref() {
            // Its own text is the whole answer as Rust has it, twice; people read the sentence in it.
            Some(kube::Error::Api(answer)) if !answer.message.is_empty() => {
                texts.push(answer.message.clone());
                break;
            }
            _ => texts.push(error.to_string()),
        }
        next = error.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("asking failed")]
    struct Asking(#[source] kube::Error);

    #[test]
    fn the_api_server_is_heard_in_its_own_words() {
        let answer = kube::core::Status::failure("the pod a is gone", "NotFound").with_code(404);
        let error = Asking(kube::Error::Api(answer.boxed()));
        assert_eq!(chain(&error), "asking failed: the pod a is gone");
        let wordless = Asking(kube::Error::Api(kube::core::Status::failure("", "Gone").boxed()));
        assert!(chain(&wordless).starts_with("asking failed: ") && chain(&wordless).contains("Gone"));
    }
}
