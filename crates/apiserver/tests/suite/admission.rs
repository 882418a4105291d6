//! Admission webhooks served by the test itself on loopback.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testkit::{Reply, Webhook, eventually};

use crate::{Space, Things};

/// Registers a webhook for the things of a test, and waits until it is asked.
async fn register(space: &Space, things: &Things, kind: &str, hook: &Webhook, extra: Value) {
    let plural =
        if kind == "Mutating" { "mutatingwebhookconfigurations" } else { "validatingwebhookconfigurations" };
    let mut webhook = json!({
        "name": format!("hook.{}", things.group),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": hook.client_config(),
        "rules": [{"apiGroups": [things.group], "apiVersions": ["*"], "resources": ["things", "things/status"], "operations": ["*"]}],
        "matchConditions": [],
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": format!("{}-{}", space.name, kind.to_lowercase())}, "webhooks": [webhook],
    });
    space.http.post(&format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &configuration).await.ok();
    eventually("the webhook to be asked", async || {
        probe(space, things).await;
        (!hook.asked().is_empty()).then_some(())
    })
    .await;
}

async fn probe(space: &Space, things: &Things) -> Reply {
    space.http.post(&format!("{}?dryRun=All", things.path), &things.body("probe", json!({}))).await
}

#[tokio::test]
async fn a_mutating_hook_changes_what_is_stored() {
    let space = Space::new().await;
    let things = space.things().await;
    let patch = BASE64_STANDARD.encode(r#"[{"op": "add", "path": "/spec/added", "value": "by the hook"}]"#);
    let hook = Webhook::serve(move |_| {
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["mind the hook"]})
    })
    .await;
    register(&space, &things, "Mutating", &hook, json!({})).await;
    let reply = space.http.post(&things.path, &things.body("a", json!({"own": 1}))).await;
    assert_eq!(reply.ok()["spec"], json!({"own": 1, "added": "by the hook"}));
    assert_eq!(reply.header("warning"), r#"299 - "mind the hook""#);
    assert_eq!(space.http.get(&things.at("a")).await.ok()["spec"]["added"], "by the hook");
}

#[tokio::test]
async fn a_validating_hook_sees_the_whole_request_and_may_refuse() {
    let space = Space::new().await;
    let things = space.things().await;
    let hook = Webhook::serve(|request| {
        let bad = request["object"]["spec"]["bad"] == true;
        json!({"allowed": !bad, "status": {"message": "it is bad", "code": 418}})
    })
    .await;
    register(&space, &things, "Validating", &hook, json!({})).await;
    let reply = space.http.post(&things.path, &things.body("a", json!({"bad": true}))).await;
    assert_eq!(reply.status, 418);
    let message = format!("admission webhook \"hook.{}\" denied the request: it is bad", things.group);
    assert_eq!(reply.json()["message"], message);
    space.http.get(&things.at("a")).await.refused(404, "NotFound");

    space.http.post(&things.path, &things.body("a", json!({"n": 1}))).await.ok();
    space.http.patch("merge", &things.at("a"), &json!({"spec": {"n": 2}})).await.ok();
    space.http.patch("merge", &things.at("a/status"), &json!({"status": {"x": 1}})).await.ok();
    space.http.delete(&things.at("a")).await.ok();
    let asked = hook.asked();
    let last: Vec<&Value> = asked.iter().rev().take(4).rev().collect();
    let brief = |request: &Value| {
        format!(
            "{} {}",
            request["operation"].as_str().unwrap(),
            request["subResource"].as_str().unwrap_or("-")
        )
    };
    assert_eq!(
        last.iter().map(|request| brief(request)).collect::<Vec<_>>(),
        ["CREATE -", "UPDATE -", "UPDATE status", "DELETE -"]
    );

    let [create, update, _, delete] = last[..] else { unreachable!() };
    assert!(create["oldObject"].is_null() && delete["object"].is_null());
    assert_eq!((&update["oldObject"]["spec"]["n"], &update["object"]["spec"]["n"]), (&json!(1), &json!(2)));
    assert_eq!(update["kind"], json!({"group": things.group, "version": "v1", "kind": "Thing"}));
    assert_eq!(update["resource"], json!({"group": things.group, "version": "v1", "resource": "things"}));
    assert_eq!(
        (&update["name"], &update["namespace"], &update["dryRun"]),
        (&json!("a"), &json!(space.name), &json!(false))
    );
    assert!(update["userInfo"]["groups"].as_array().unwrap().contains(&json!("system:masters")));
}

#[tokio::test]
async fn a_hook_that_cannot_be_reached_fails_or_is_ignored() {
    let space = Space::new().await;
    let things = space.things().await;
    let hook = Webhook::serve(|_| json!({"allowed": true})).await;
    register(&space, &things, "Validating", &hook, json!({"failurePolicy": "Fail", "timeoutSeconds": 2}))
        .await;
    drop(hook);
    let reply = eventually("the failure", async || {
        let reply = probe(&space, &things).await;
        (!reply.status.is_success()).then_some(reply)
    })
    .await;
    let refusal = reply.refused(500, "InternalError");
    assert!(refusal["message"].as_str().unwrap().contains("failed calling webhook"), "{refusal}");

    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}-validating",
        space.name
    );
    let ignore = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    space.http.patch("json", &path, &ignore).await.ok();
    eventually("the hook to be ignored", async || {
        probe(&space, &things).await.status.is_success().then_some(())
    })
    .await;
}

#[tokio::test]
async fn selectors_and_conditions_spare_a_hook() {
    let space = Space::new().await;
    let things = space.things().await;
    let hook = Webhook::serve(|_| json!({"allowed": false})).await;
    let only = json!({
        "objectSelector": {"matchExpressions": [{"key": "spared", "operator": "DoesNotExist"}]},
        "matchConditions": [{"name": "loud", "expression": "!has(object.spec.quiet)"}],
    });
    register(&space, &things, "Validating", &hook, only).await;
    let reply = space.http.post(&things.path, &things.body("a", json!({}))).await;
    assert_eq!(reply.status, 400, "a refusal without a code is 400: {reply}");
    let mut spared = things.body("a", json!({}));
    spared["metadata"]["labels"] = json!({"spared": "yes"});
    space.http.post(&things.path, &spared).await.ok();
    space.http.post(&things.path, &things.body("b", json!({"quiet": true}))).await.ok();
}
