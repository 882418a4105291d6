use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn matches_as_upstream() {
    let object = labels(&[("app", "web"), ("tier", "5"), ("in", "in"), ("e", "")]);
    for (text, expected) in [
        ("", true),
        ("app", true),
        ("!app", false),
        ("nope", false),
        ("! nope", true),
        ("app=web", true),
        ("app==web,tier", true),
        ("app!=web", false),
        ("nope!=web", true),
        ("nope=", false),
        ("e=", true),
        ("app in (db, web)", true),
        ("app in (db)", false),
        ("app notin (db)", true),
        ("nope notin (db)", true),
        ("e in ()", true),
        ("e in (,x)", true),
        ("in in (in)", true),
        ("in=in,in", true),
        ("tier>4,tier<6", true),
        ("tier>5", false),
        ("app>1", false),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(&object), expected, "{text}");
        assert_eq!(selector.is_everything(), text.is_empty());
    }
}

/// Messages of kube-apiserver 1.36.4.
#[test]
fn errors_read_as_upstream() {
    let requirement = [
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", "found '' expected: '('"),
        ("a in (", "found '', expected: ',', ')' or identifier"),
        ("a in (b", "found '', expected: ',' or ')'"),
        ("a in (b c)", "found 'c', expected: ',' or ')'"),
        ("a in (=)", "found '=', expected: ',', ')' or identifier"),
        ("a in (b,", "found '', expected: ',', or identifier"),
        ("!", "found '', expected: identifier"),
        ("!!a", "found '!', expected: identifier"),
        ("a!", "found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(b", "found '(', expected: identifier"),
        ("a><b", "found '<', expected: identifier"),
        ("a===b", "found '=', expected: identifier"),
        ("a>x", "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ("/z", "<nil>: Invalid value: \"/z\": prefix part must be non-empty"),
    ];
    let requirement =
        requirement.map(|(text, error)| (text, format!("unable to parse requirement: {error}")));
    let whole = [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a=b)", "found ')', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ];
    for (text, error) in requirement.into_iter().chain(whole.map(|(text, error)| (text, error.to_owned()))) {
        let found = LabelSelector::parse(text).unwrap_err();
        assert_eq!((found.code, found.message), (400, error), "{text}");
    }
    for (text, part) in [
        (
            "-a=b",
            "<nil>: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start",
        ),
        ("x/y/z=1", "<nil>: Invalid value: \"x/y/z\": a valid label key must consist of"),
        (
            "A_/z",
            "<nil>: Invalid value: \"A_/z\": prefix part a lowercase RFC 1123 subdomain must consist of",
        ),
        ("a=-b", "values[0][a]: Invalid value: \"-b\": a valid label must be an empty string or consist of"),
        ("a in (b,-c,d-)", "[values[0][a]: Invalid value: \"-c\": a valid label must be"),
    ] {
        let found = LabelSelector::parse(text).unwrap_err().message;
        assert!(found.starts_with(&format!("unable to parse requirement: {part}")), "{found}");
    }
}

#[test]
fn reads_selector_objects() {
    let selector = LabelSelector::from_object(&json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }));
    assert_eq!(selector.unwrap().to_string(), "app=web,!old,tier in (a,b)");
    assert!(LabelSelector::from_object(&json!({})).unwrap().is_everything());
    assert!(LabelSelector::from_object(&json!(null)).unwrap().is_everything());
    for (expression, error) in [
        (json!({"key": "a", "operator": "Is"}), "\"Is\" is not a valid label selector operator"),
        (
            json!({"key": "a", "operator": "In"}),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
    ] {
        let found = LabelSelector::from_object(&json!({"matchExpressions": [expression]}));
        assert_eq!(found.unwrap_err().message, error);
    }
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(text in "[ab!=(), ><1]{0,12}|(a|b/c|in)( in | notin |=|!=|>)(\\((a|b|,){0,4}\\)|1)") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC*") {
        let _ = LabelSelector::parse(&text);
    }
}
