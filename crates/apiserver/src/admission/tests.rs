//! Hooks on a real HTTPS server; messages are those of the real API server.
use serde_json::{Value, json};

use super::*;
use crate::discovery::tests::{bird, builtin};
use crate::kinds::Scale;
use server::Server;

mod server;

const BIRDS: &str = "example.godwit.dev";

fn kinds() -> Arc<KindTable> {
    let mut kinds = KindTable::default();
    kinds.insert(bird("v1alpha1", json!({})));
    let scale = Some(Scale {
        spec_replicas: ".spec.size".into(),
        status_replicas: ".status.size".into(),
        selector: None,
    });
    kinds.insert(Kind { scale, status: true, ..bird("v1", json!({})) });
    kinds.insert(Kind { namespaced: false, ..builtin("", "v1", "Namespace", "namespaces") });
    let own = "validatingwebhookconfigurations";
    kinds.insert(builtin("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", own));
    Arc::new(kinds)
}

fn target<'a>(kinds: &'a KindTable, group: &str, plural: &str) -> Target<'a> {
    let kind = kinds.get(group, "v1", plural).unwrap();
    Target { kinds, kind, subresource: "", operation: "CREATE" }
}

fn review(kinds: &Arc<KindTable>) -> Review<'_> {
    Review {
        kinds: Arc::clone(kinds),
        kind: kinds.get(BIRDS, "v1", "birds").unwrap(),
        subresource: "",
        operation: "CREATE",
        namespace: "lab",
        name: "robin",
        object: json!({"apiVersion": "example.godwit.dev/v1", "kind": "Bird", "spec": {"size": 1},
            "metadata": {"name": "robin", "namespace": "lab", "labels": {"wild": "yes"}}}),
        old_object: Value::Null,
        options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        dry_run: false,
        user: json!({"username": "admin", "groups": ["system:masters"]}),
        namespace_object: Some(json!({"metadata": {"name": "lab", "labels": {"team": "birds"}}})),
    }
}

fn everything() -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}])
}

/// A hook at this path of the server, with further fields.
fn hook(server: &Server, path: &str, more: &Value) -> Value {
    let mut hook = json!({
        "name": format!("{}.godwit.dev", &path[1..]), "clientConfig": server.client_config(path),
        "rules": everything(), "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    hook
}

fn configuration(name: &str, hooks: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "webhooks": hooks})
}

fn webhooks() -> Webhooks {
    Webhooks::new(Arc::new(|_: &ServiceRef<'_>| None))
}

async fn mutate(hooks: &[Value], review: &mut Review<'_>) -> ApiResult<Vec<String>> {
    webhooks().mutate(&[configuration("c", hooks)], review).await
}

fn matches(rule: &Value, target: Target<'_>) -> bool {
    let mut full = everything()[0].clone();
    for (key, value) in rule.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    any_match(&[configuration("c", &[json!({"rules": [full]})])], target)
}

#[test]
fn rules_match_as_on_the_real_server() {
    let kinds = kinds();
    let whole = target(&kinds, BIRDS, "birds");
    let status = Target { subresource: "status", ..whole };
    for (pattern, on_whole, on_status) in [
        ("birds", true, false),
        ("birds/*", true, true),
        ("birds/status", false, true),
        ("*", true, false),
        ("*/*", true, true),
        ("*/status", false, true),
        ("fish", false, false),
    ] {
        assert_eq!(matches(&json!({"resources": [pattern]}), whole), on_whole, "{pattern}");
        assert_eq!(matches(&json!({"resources": [pattern]}), status), on_status, "{pattern}/status");
    }
    assert!(matches(&json!({"operations": ["UPDATE", "CREATE"]}), whole));
    assert!(!matches(&json!({"operations": ["DELETE"]}), whole));
    assert!(!matches(&json!({"apiGroups": [""]}), whole));
    assert!(matches(&json!({"scope": "Namespaced"}), whole));
    assert!(!matches(&json!({"scope": "Cluster"}), whole));
    assert!(matches(&json!({"scope": "Cluster"}), target(&kinds, "", "namespaces")));
    assert!(!any_match(&[], whole));
}

#[test]
fn a_rule_for_another_version_matches_unless_it_must_be_exact() {
    let kinds = kinds();
    let old = json!([{"operations": ["*"], "apiGroups": [BIRDS], "apiVersions": ["v1alpha1"], "resources": ["birds"]}]);
    let any = |policy: &str| {
        let hook = json!({"rules": old, "matchPolicy": policy});
        any_match(&[configuration("c", &[hook])], target(&kinds, BIRDS, "birds"))
    };
    assert!(any("Equivalent"));
    assert!(!any("Exact"));
}

#[test]
fn webhook_configurations_are_exempt() {
    let kinds = kinds();
    let own = target(&kinds, "admissionregistration.k8s.io", "validatingwebhookconfigurations");
    assert!(!matches(&json!({}), own));
}

#[test]
fn conditions_must_all_hold_and_one_that_fails_outweighs_errors() {
    let kinds = kinds();
    let review = review(&kinds);
    let request = review::request(&review, review.kind);
    let holds = |expressions: &[&str]| {
        let conditions: Value = expressions.iter().map(|e| json!({"name": "c", "expression": e})).collect();
        conditions::all_hold(&conditions, &review.object, &Value::Null, &request)
    };
    assert_eq!(holds(&["object.spec.size == 1", "oldObject == null"]), Ok(true));
    assert_eq!(holds(&["request.operation == 'CREATE' && request.userInfo.username == 'admin'"]), Ok(true));
    assert_eq!(holds(&["'system:masters' in request.userInfo.groups"]), Ok(true));
    assert_eq!(holds(&["has(object.metadata.labels) && object.metadata.labels.wild == 'no'"]), Ok(false));
    assert_eq!(holds(&["object.data.x == 1", "false"]), Ok(false));
    let error = holds(&["object.data.x == 1"]).unwrap_err();
    assert!(error.starts_with("expression 'object.data.x == 1' resulted in error: "), "{error}");
    assert!(holds(&["1"]).is_err());
}

#[tokio::test]
async fn hooks_are_told_what_the_real_server_tells_them() {
    let server = Server::start().await;
    let kinds = kinds();
    let mut review = review(&kinds);
    mutate(&[hook(&server, "/ok", &json!({}))], &mut review).await.unwrap();
    let mut request = server.last_request();
    assert!(request["uid"].take().is_string());
    let (kind, resource) = (
        json!({"group": BIRDS, "version": "v1", "kind": "Bird"}),
        json!({"group": BIRDS, "version": "v1", "resource": "birds"}),
    );
    let expected = json!({
        "uid": null, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "robin", "namespace": "lab", "operation": "CREATE", "userInfo": review.user,
        "object": review.object, "oldObject": null, "dryRun": false, "options": review.options,
    });
    assert_eq!(request, expected);

    review.subresource = "scale";
    mutate(&[hook(&server, "/ok", &json!({}))], &mut review).await.unwrap();
    let request = server.last_request();
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!([&request["subResource"], &request["requestSubResource"]], ["scale", "scale"]);

    review.kind = kinds.get("", "v1", "namespaces").unwrap();
    review.namespace = "";
    mutate(&[hook(&server, "/ok", &json!({}))], &mut review).await.unwrap();
    assert_eq!(server.last_request()["namespace"], "robin");
}

#[tokio::test]
async fn hooks_run_by_configuration_name_then_place_and_each_sees_the_last_ones_work() {
    let server = Server::start().await;
    let kinds = kinds();
    let mut review = review(&kinds);
    let configurations = [
        configuration("b", &[hook(&server, "/grow", &json!({})), hook(&server, "/nothing", &json!({}))]),
        configuration("a", &[hook(&server, "/warn", &json!({}))]),
    ];
    let warnings = webhooks().mutate(&configurations, &mut review).await.unwrap();
    assert_eq!(warnings, ["careful"]);
    assert_eq!(server.calls(), ["/warn", "/grow", "/nothing"]);
    assert_eq!(review.object["spec"]["size"], 2);
    assert_eq!(server.last_request()["object"]["spec"]["size"], 2);
}

#[tokio::test]
async fn only_hooks_before_a_change_run_again_and_only_once() {
    let server = Server::start().await;
    let kinds = kinds();
    let mut review = review(&kinds);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        hook(&server, "/once", &json!({})),
        hook(&server, "/before", &again),
        hook(&server, "/grow", &again),
        hook(&server, "/after", &again),
    ];
    mutate(&hooks, &mut review).await.unwrap();
    assert_eq!(server.calls(), ["/once", "/before", "/grow", "/after", "/before"]);
    assert_eq!(review.object["spec"]["size"], 2);
}

#[tokio::test]
async fn a_denial_names_the_hook_and_is_always_an_error() {
    let server = Server::start().await;
    let kinds = kinds();
    let cases = [
        ("/deny", 400, "", " without explanation"),
        ("/deny-why", 400, "", ": no way"),
        ("/deny-reason", 451, "Forbidden", ": Forbidden"),
    ];
    for (path, code, reason, why) in cases {
        let review = review(&kinds);
        let configurations =
            [configuration("c", &[hook(&server, path, &json!({"failurePolicy": "Ignore"}))])];
        let error = webhooks().validate(&configurations, &review).await.unwrap_err();
        let name = &path[1..];
        let message = format!("admission webhook \"{name}.godwit.dev\" denied the request{why}");
        assert_eq!((error.code, error.reason, error.message), (code, reason, message));
        let causes = error.details.map(|details| details.causes).unwrap_or_default();
        assert_eq!(causes.len(), usize::from(path == "/deny-why"));
    }
}

#[tokio::test]
async fn a_failed_call_fails_the_request_unless_it_is_to_be_ignored() {
    let server = Server::start().await;
    let kinds = kinds();
    let refused = json!({"clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": server.ca_bundle}});
    let other_authority = Server::start().await.ca_bundle;
    let url = format!("https://{}/ok", server.address);
    let untrusted = json!({"clientConfig": {"url": url, "caBundle": other_authority}});
    let no_bundle = json!({"clientConfig": {"url": url}});
    let plain = json!({"clientConfig": {"url": "http://127.0.0.1/x"}});
    let service = json!({"clientConfig": {"service": {"name": "gone", "namespace": "lab"}, "caBundle": server.ca_bundle}});
    let none = json!({});
    let late = json!({"timeoutSeconds": 1});
    let cases = [
        (
            "/slow",
            &late,
            "failed to call webhook: Post \"SERVER/slow?timeout=1s\": context deadline exceeded",
        ),
        (
            "/refused",
            &refused,
            "failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp: connect: ",
        ),
        ("/untrusted", &untrusted, "failed to call webhook: Post \"SERVER/ok?timeout=10s\": tls: "),
        ("/untrusted", &no_bundle, "failed to call webhook: Post \"SERVER/ok?timeout=10s\": tls: "),
        ("/plain", &plain, "failed to call webhook: invalid webhook URL"),
        (
            "/service",
            &service,
            "failed to call webhook: Post \"https://gone.lab.svc:443/?timeout=10s\": service \"gone\" not found",
        ),
        (
            "/500",
            &none,
            "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
        ("/garbage", &none, "failed to call webhook: couldn't get version/kind; json parse error: "),
        ("/absent", &none, "received invalid webhook response: webhook response was absent"),
        ("/wrong-uid", &none, "received invalid webhook response: expected response.uid="),
        (
            "/no-type",
            &none,
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
        ("/bad-json", &none, "received undecodable patch in webhook response: "),
    ];
    for (path, more, cause) in cases {
        let error = mutate(&[hook(&server, path, more)], &mut review(&kinds)).await.unwrap_err();
        assert_eq!((error.code, error.reason), (500, "InternalError"));
        let cause = cause.replace("SERVER", &format!("https://{}", server.address));
        let name = &path[1..];
        let expected =
            format!("Internal error occurred: failed calling webhook \"{name}.godwit.dev\": {cause}");
        assert!(error.message.starts_with(&expected), "{}", error.message);

        let mut ignored = more.clone();
        ignored["failurePolicy"] = json!("Ignore");
        let result = mutate(&[hook(&server, path, &ignored)], &mut review(&kinds)).await;
        assert_eq!(result, Ok(vec![]), "{path}");
    }
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_an_error_whatever_the_policy() {
    let server = Server::start().await;
    let kinds = kinds();
    let ignore = json!({"failurePolicy": "Ignore"});
    let error = mutate(&[hook(&server, "/bad-patch", &ignore)], &mut review(&kinds)).await.unwrap_err();
    assert_eq!(error.code, 500);

    let mut delete = review(&kinds);
    delete.operation = "DELETE";
    delete.old_object = delete.object.take();
    let error = mutate(&[hook(&server, "/grow", &ignore)], &mut delete).await.unwrap_err();
    let expected = "Internal error occurred: admission webhook \"grow.godwit.dev\" attempted to modify the object, \
                    which is not supported for this operation";
    assert_eq!(error.message, expected);
    assert_eq!(server.last_request()["object"], Value::Null);
}

#[tokio::test]
async fn validating_hooks_may_not_patch() {
    let server = Server::start().await;
    let kinds = kinds();
    let configurations = [configuration("c", &[hook(&server, "/grow", &json!({}))])];
    let error = webhooks().validate(&configurations, &review(&kinds)).await.unwrap_err();
    assert!(error.message.ends_with("validating webhook may not return response.patch"));
}

#[tokio::test]
async fn validating_hooks_run_all_at_once() {
    let server = Server::start().await;
    let kinds = kinds();
    let late = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"});
    let hooks = [hook(&server, "/slow", &late), hook(&server, "/slow", &late), hook(&server, "/warn", &late)];
    let began = std::time::Instant::now();
    let warnings = webhooks().validate(&[configuration("c", &hooks)], &review(&kinds)).await;
    assert_eq!(warnings, Ok(vec!["careful".into()]));
    assert!(began.elapsed().as_millis() < 1900);
}

#[tokio::test]
async fn selectors_look_at_the_namespace_and_at_both_sides_of_a_change() {
    let server = Server::start().await;
    let kinds = kinds();
    let selecting = |key: &str, labels: Value| json!({key: {"matchLabels": labels}});
    let mut asked = 0;
    let mut check = async |more: Value, review: &mut Review<'_>, expected: bool| {
        mutate(&[hook(&server, "/ok", &more)], review).await.unwrap();
        asked += usize::from(expected);
        assert_eq!(server.calls().len(), asked, "{more}");
    };
    let mut bird = review(&kinds);
    check(selecting("objectSelector", json!({"wild": "yes"})), &mut bird, true).await;
    check(selecting("objectSelector", json!({"wild": "no"})), &mut bird, false).await;
    bird.old_object = json!({"metadata": {"labels": {"wild": "no"}}});
    check(selecting("objectSelector", json!({"wild": "no"})), &mut bird, true).await;
    check(selecting("namespaceSelector", json!({"team": "birds"})), &mut bird, true).await;
    check(selecting("namespaceSelector", json!({"team": "fish"})), &mut bird, false).await;
    check(json!({"namespaceSelector": {}, "objectSelector": {}}), &mut bird, true).await;

    // A new namespace is judged by its own labels.
    bird.kind = kinds.get("", "v1", "namespaces").unwrap();
    bird.namespace = "";
    check(selecting("namespaceSelector", json!({"wild": "yes"})), &mut bird, true).await;
    check(selecting("namespaceSelector", json!({"team": "birds"})), &mut bird, false).await;
}

#[tokio::test]
async fn a_dry_run_meets_only_hooks_without_side_effects() {
    let server = Server::start().await;
    let kinds = kinds();
    let mut dry = review(&kinds);
    dry.dry_run = true;
    mutate(&[hook(&server, "/ok", &json!({"sideEffects": "NoneOnDryRun"}))], &mut dry).await.unwrap();
    assert_eq!(server.last_request()["dryRun"], true);
    let some = json!({"sideEffects": "Some", "failurePolicy": "Ignore"});
    let error = mutate(&[hook(&server, "/ok", &some)], &mut dry).await.unwrap_err();
    assert_eq!((error.code, error.reason), (400, "BadRequest"));
    assert_eq!(error.message, "admission webhook \"ok.godwit.dev\" does not support dry run");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn conditions_keep_hooks_from_being_asked() {
    let server = Server::start().await;
    let kinds = kinds();
    let with = |expression: &str, policy: &str| {
        let conditions = json!([{"name": "c", "expression": expression}]);
        hook(&server, "/ok", &json!({"matchConditions": conditions, "failurePolicy": policy}))
    };
    let mut bird = review(&kinds);
    mutate(&[with("object.spec.size > 0", "Fail")], &mut bird).await.unwrap();
    mutate(&[with("object.spec.size > 5", "Fail")], &mut bird).await.unwrap();
    mutate(&[with("object.data.x > 5", "Ignore")], &mut bird).await.unwrap();
    assert_eq!(server.calls().len(), 1);
    let error = mutate(&[with("object.data.x > 5", "Fail")], &mut bird).await.unwrap_err();
    assert_eq!(error.code, 403);
    let expected =
        "birds.example.godwit.dev \"robin\" is forbidden: expression 'object.data.x > 5' resulted in error: ";
    assert!(error.message.starts_with(expected), "{}", error.message);
}

#[tokio::test]
async fn a_service_is_where_the_resolver_says_under_its_own_name() {
    let server = Server::start().await;
    let kinds = kinds();
    let address = server.address;
    let webhooks = Webhooks::new(Arc::new(move |service: &ServiceRef<'_>| {
        assert_eq!((service.namespace, service.name, service.port), ("lab", "hook", 8443));
        Some(address)
    }));
    let service = json!({"name": "hook", "namespace": "lab", "port": 8443, "path": "/warn"});
    let client_config = json!({"service": service, "caBundle": server.ca_bundle});
    let hook = hook(&server, "/warn", &json!({"clientConfig": client_config}));
    let warnings = webhooks.validate(&[configuration("c", &[hook])], &review(&kinds)).await;
    assert_eq!(warnings, Ok(vec!["careful".into()]));
}

#[tokio::test]
async fn a_self_signed_certificate_is_its_own_authority() {
    let server = Server::start_self_signed().await;
    let kinds = kinds();
    mutate(&[hook(&server, "/ok", &json!({}))], &mut review(&kinds)).await.unwrap();

    let url = format!("https://localhost:{}/ok", server.address.port());
    let misnamed = json!({"clientConfig": {"url": url, "caBundle": server.ca_bundle}});
    let error = mutate(&[hook(&server, "/ok", &misnamed)], &mut review(&kinds)).await.unwrap_err();
    assert!(error.message.contains("tls: "), "{}", error.message);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn a_hook_for_another_version_sees_and_patches_that_version() {
    let server = Server::start().await;
    let kinds = kinds();
    let mut bird = review(&kinds);
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["v1alpha1"], "resources": ["*"]}]);
    mutate(&[hook(&server, "/grow", &json!({"rules": rules}))], &mut bird).await.unwrap();
    let request = server.last_request();
    assert_eq!(request["object"]["apiVersion"], "example.godwit.dev/v1alpha1");
    assert_eq!([&request["kind"]["version"], &request["requestKind"]["version"]], ["v1alpha1", "v1"]);
    assert_eq!(bird.object["apiVersion"], "example.godwit.dev/v1");
    assert_eq!(bird.object["spec"]["size"], 2);
}
