//! Environments, with objects of the API that are given.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::downward::Allocatable;
use crate::volumes::{SourceError, Token, TokenOrder};

struct Objects;

impl Source for Objects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, SourceError> {
        assert_eq!(namespace, "shop");
        let map = json!({"data": {"COLOUR": "blue", "SIZE": "9", "not=a name": "x"}});
        Ok((name == "settings").then(|| serde_json::from_value(map).unwrap()))
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Option<Secret>, SourceError> {
        let secret = json!({"data": {"password": "c2VjcmV0"}});
        Ok((name == "keys").then(|| serde_json::from_value(secret).unwrap()))
    }

    async fn token(&self, _: &TokenOrder) -> Result<Token, SourceError> {
        Err("no tokens here".into())
    }

    fn allocatable(&self) -> Allocatable {
        Allocatable { cpu_milli: 2000, memory: 1 << 30 }
    }
}

async fn of(container: Value) -> Result<Vec<(String, String)>, Error> {
    let mut container = container;
    container["name"] = json!("a");
    let pod = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [container]},
        "status": {"podIP": "10.0.0.1"},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    environment(&pod, &pod.spec.as_ref().unwrap().containers[0], &Objects).await
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn values_refer_to_what_was_said_before() {
    let found = of(json!({
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "MY_"}, {"secretRef": {"name": "none", "optional": true}}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(MY_COLOUR)-$(C)-$$(A)"},
            {"name": "C", "value": "late"},
            {"name": "A", "value": "2"},
            {"name": "EMPTY"},
        ],
    }))
    .await
    .unwrap();
    let expected = [
        ("MY_COLOUR", "blue"),
        ("MY_SIZE", "9"),
        ("A", "2"),
        ("B", "1-blue-$(C)-$(A)"),
        ("C", "late"),
        ("EMPTY", ""),
    ];
    assert_eq!(found, pairs(&expected));
}

#[tokio::test]
async fn values_come_from_elsewhere() {
    let found = of(json!({
        "resources": {"limits": {"memory": "64Mi"}},
        "env": [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOUR"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "none", "optional": true}}},
        ],
    }))
    .await
    .unwrap();
    let expected = [("IP", "10.0.0.1"), ("MEMORY", "64"), ("COLOUR", "blue"), ("PASSWORD", "secret")];
    assert_eq!(found, pairs(&expected));
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let from = json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]});
    let error = of(from).await.unwrap_err();
    assert_eq!(error.to_string(), "variable \"X\"");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "Secret \"none\" does not exist in namespace \"shop\", and is not optional");
    assert!(matches!(
        of(json!({"envFrom": [{"configMapRef": {"name": "none"}}]})).await,
        Err(Error::From { .. })
    ));
    let nothing = json!({"env": [{"name": "X", "valueFrom": {}}]});
    assert!(matches!(of(nothing).await, Err(Error::Unsupported { .. })));
}

#[test]
fn references_in_text() {
    let variables = pairs(&[("A", "1"), ("B", "$(A)")]);
    for (text, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("$(A)$(A)", "11"),
        ("$(B)", "$(A)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
        ("$(C) $(A)", "$(C) 1"),
        ("$()", "$()"),
    ] {
        assert_eq!(expand(text, &variables, Unresolved::Keep).unwrap(), expected, "{text}");
    }
    assert_eq!(expand("$(C)", &variables, Unresolved::Refuse), None);
    assert_eq!(expand("$(A)", &variables, Unresolved::Refuse).as_deref(), Some("1"));
}

#[test]
fn command_lines() {
    let image = Configuration { entrypoint: vec!["/init".into()], ..Configuration::default() };
    let variables = pairs(&[("A", "1")]);
    let line = |container: Value| {
        let mut container = container;
        container["name"] = json!("a");
        command_line(&serde_json::from_value(container).unwrap(), &image, &variables)
    };
    assert_eq!(line(json!({})), ["/init"]);
    assert_eq!(line(json!({"args": ["$(A)"]})), ["/init", "1"]);
    assert_eq!(line(json!({"command": ["/x"], "args": ["$(B)"]})), ["/x", "$(B)"]);
    assert_eq!(line(json!({"command": ["/x"]})), ["/x"]);
}

proptest! {
    #[test]
    fn text_without_dollars_stays(text in "[^$]{0,40}") {
        prop_assert_eq!(expand(&text, &[], Unresolved::Refuse), Some(text));
    }

    #[test]
    fn a_doubled_dollar_is_a_dollar(text in "[$(A)x]{0,20}") {
        prop_assert_eq!(expand(&text.replace('$', "$$"), &pairs(&[("A", "1")]), Unresolved::Keep), Some(text));
    }
}
