use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kinds::{Custom, Traits};
use crate::schema::{Node, Schema};

fn kind(name: &str, fields: &[&str]) -> Kind {
    let boolean = Schema { kind: Type::Boolean, ..Schema::default() };
    let holding = |name: &str, schema: Schema| Schema {
        properties: [(name.to_owned(), Node::from(schema))].into(),
        ..Schema::default()
    };
    Kind {
        group: String::new(),
        version: "v1".into(),
        kind: name.into(),
        list_kind: format!("{name}List"),
        plural: String::new(),
        singular: String::new(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        storage: Arc::from(""),
        storage_api_version: "v1".into(),
        schema: holding("spec", holding("unschedulable", boolean)).into(),
        columns: vec![],
        selectable_fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        status: false,
        scale: None,
        subresources: vec![],
        traits: Traits::default(),
        custom: None,
    }
}

fn custom(mut kind: Kind, namespaced: bool) -> Kind {
    kind.namespaced = namespaced;
    kind.custom = Some(Custom {
        definition: String::new(),
        definition_uid: String::new(),
        default_on_read: false,
        raw_schema: Arc::default(),
        deprecation_warning: None,
        storage_schema: None,
        terminating: false,
    });
    kind
}

#[test]
fn matches_as_upstream() {
    let node = kind("Node", &["spec.unschedulable", "spec.count"]);
    let object = json!({"metadata": {"name": "a,b", "namespace": "x"}, "spec": {"count": 3}});
    for (text, expected) in [
        ("", true),
        (",", true),
        ("metadata.name=a\\,b", true),
        ("metadata.name==a\\,b,metadata.namespace=x", true),
        ("metadata.name!=a\\,b", false),
        ("metadata.name=a", false),
        ("spec.count=3", true),
        ("spec.unschedulable=false", true),
        ("spec.unschedulable=", false),
        ("spec.unschedulable!=true", true),
    ] {
        assert_eq!(FieldSelector::parse(&node, text).unwrap().matches(&object), expected, "{text}");
    }
    let exact = FieldSelector::parse(&node, "metadata.namespace=x,metadata.name=n").unwrap();
    assert_eq!(exact.exact_name(), Some("n"));
    assert_eq!(FieldSelector::parse(&node, "metadata.name!=n").unwrap().exact_name(), None);

    let event = kind("Event", &["source"]);
    let source = FieldSelector::parse(&event, "source=kubelet").unwrap();
    assert!(source.matches(&json!({"source": {"component": "kubelet"}})));
    assert!(source.matches(&json!({"source": {}, "reportingComponent": "kubelet"})));
}

/// Messages of kube-apiserver 1.36.4.
#[test]
fn errors_read_as_upstream() {
    let plain = kind("ConfigMap", &[]);
    let selectable = kind("Pod", &["spec.nodeName"]);
    let cluster_custom = custom(kind("Foo", &[".spec.color"]), false);
    for (kind, text, error) in [
        (&plain, "a", "invalid selector: 'a'; can't understand 'a'"),
        (
            &plain,
            "a=b",
            "\"a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (&plain, "=a", "\"\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        (&plain, "metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
        (&plain, "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        (&plain, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (&selectable, "foo=1", "field label not supported: foo"),
        (&cluster_custom, "spec.size=1", "field label not supported: spec.size"),
        (&cluster_custom, "metadata.namespace=a", "field label not supported: metadata.namespace"),
    ] {
        let found = FieldSelector::parse(kind, text).unwrap_err();
        assert_eq!((found.code, found.message.as_str()), (400, error), "{text}");
    }
    assert!(FieldSelector::parse(&cluster_custom, "spec.color=red").is_ok());
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(text in "(metadata.name(=|==|!=)[ab\\\\,=]{0,5},?){0,3}") {
        let kind = kind("ConfigMap", &[]);
        if let Ok(selector) = FieldSelector::parse(&kind, &text) {
            prop_assert_eq!(FieldSelector::parse(&kind, &selector.to_string()), Ok(selector));
        }
    }
}
