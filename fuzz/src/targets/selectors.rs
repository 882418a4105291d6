//! Label and field selectors from arbitrary text: what is accepted must print as something that means the same.

use std::sync::LazyLock;

use apiserver::kinds::KindTable;
use apiserver::selector::{FieldSelector, LabelSelector};

static KINDS: LazyLock<KindTable> = LazyLock::new(KindTable::builtin);

/// Runs one input.
pub fn run(data: &[u8]) {
    let text = crate::text(data);
    if let Ok(selector) = LabelSelector::parse(text) {
        let labels = [("a".to_owned(), "b".to_owned())].into();
        let again = LabelSelector::parse(&selector.to_string());
        assert_eq!(again.as_ref(), Ok(&selector));
        assert_eq!(again.is_ok_and(|again| again.matches(&labels)), selector.matches(&labels));
    }
    for kind in KINDS.all() {
        if let Ok(selector) = FieldSelector::parse(kind, text) {
            assert_eq!(FieldSelector::parse(kind, &selector.to_string()), Ok(selector));
        }
    }
}
