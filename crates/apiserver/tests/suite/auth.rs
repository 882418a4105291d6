//! Who asks, and what they may.

use base64::Engine as _;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testkit::{Engine, Http, Identity, eventually};

use crate::Space;

/// The embedded server stores roles and lets everyone whom it knows do everything; nobody is anonymous there.
fn evaluates_roles(space: &Space) -> bool {
    space.server.engine() != &Engine::Embedded
}

async fn robot(space: &Space) -> Http {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    space.http.post(&space.core("serviceaccounts"), &account).await.ok();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = space.http.post(&space.core("serviceaccounts/robot/token"), &request).await.ok();
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    space.server.http_as(Identity::Token(token)).await
}

async fn allow(space: &Space, rules: serde_json::Value) {
    let group = "rbac.authorization.k8s.io";
    let path = format!("/apis/{group}/v1/namespaces/{}", space.name);
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "robot"}, "rules": rules});
    space.http.post(&format!("{path}/roles"), &role).await.ok();
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "robot"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": space.name}],
    });
    space.http.post(&format!("{path}/rolebindings"), &binding).await.ok();
}

#[tokio::test]
async fn strangers_and_liars() {
    let space = Space::new().await;
    let anonymous = space.server.http_as(Identity::Anonymous).await;
    let answer = anonymous.get(&space.core("configmaps")).await;
    if evaluates_roles(&space) {
        let refusal = answer.refused(403, "Forbidden");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains(r#"User "system:anonymous" cannot list resource "configmaps""#));
    } else {
        answer.refused(401, "Unauthorized");
    }
    let liar = space.server.http_as(Identity::Token("made-up".into())).await;
    liar.get(&space.core("configmaps")).await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn a_role_gives_what_it_says_and_no_more() {
    let space = Space::new().await;
    if !evaluates_roles(&space) {
        testkit::not_run("the embedded server evaluates no roles");
        return;
    }
    space.config_map("a", &json!({})).await;
    let robot = robot(&space).await;
    robot.get(&space.core("configmaps/a")).await.refused(403, "Forbidden");
    allow(
        &space,
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]),
    )
    .await;
    eventually("the permission", async || {
        robot.get(&space.core("configmaps/a")).await.status.is_success().then_some(())
    })
    .await;
    robot.get(&space.core("configmaps/b")).await.refused(403, "Forbidden");
    robot.get(&space.core("configmaps")).await.refused(403, "Forbidden");
    robot.delete(&space.core("configmaps/a")).await.refused(403, "Forbidden");
    robot.get("/api/v1/namespaces/default/configmaps/a").await.refused(403, "Forbidden");
}

#[tokio::test]
async fn an_account_that_is_gone_is_nobody() {
    let space = Space::new().await;
    let robot = robot(&space).await;
    assert_ne!(robot.get(&space.core("configmaps/a")).await.status, 401, "the account is known");
    space.http.delete(&space.core("serviceaccounts/robot")).await.ok();
    eventually("the token to be refused", async || {
        (robot.get(&space.core("configmaps/a")).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn admins_may_ask_what_they_may() {
    let space = Space::new().await;
    let review: SelfSubjectAccessReview = serde_json::from_value(
        json!({"spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}}),
    )
    .unwrap();
    let answer = Api::all(space.client.clone()).create(&PostParams::default(), &review).await.unwrap();
    assert!(answer.status.unwrap().allowed);
}

#[tokio::test]
async fn a_request_for_a_certificate_says_which_pod_asks_and_is_decided_and_answered_apart() {
    let space = Space::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    space.http.post(&space.core("serviceaccounts"), &account).await.ok();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wren"}, "spec": {
        "serviceAccountName": "robot", "nodeName": "nest", "containers": [{"name": "main", "image": "i"}]}});
    let pod = space.http.post(&space.core("pods"), &pod).await.ok();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "wren", "uid": uid});
    let request = |bound| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}});
    let token = space.http.post(&space.core("serviceaccounts/robot/token"), &request(bound)).await.ok();
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    let other = json!({"kind": "Pod", "apiVersion": "v1", "name": "wren", "uid": "another"});
    space
        .http
        .post(&space.core("serviceaccounts/robot/token"), &request(other))
        .await
        .refused(409, "Conflict");
    allow_requests(&space).await;

    let robot = space.server.http_as(Identity::Token(token)).await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let pem = base64::engine::general_purpose::STANDARD.encode(identity::Request::new("nest").unwrap().pem());
    let asked = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": space.name}, "spec": {"request": pem, "signerName": "example.com/birds",
            "usages": ["client auth"], "username": "somebody-else"}});
    let stamped = robot.post(requests, &asked).await.ok();
    assert_eq!(stamped["spec"]["username"], format!("system:serviceaccount:{}:robot", space.name));
    assert_eq!(stamped["spec"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["wren"]));
    assert_eq!(stamped["spec"]["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));
    assert_eq!(stamped["spec"]["extra"]["authentication.kubernetes.io/node-name"], json!(["nest"]));

    let path = format!("{requests}/{}", space.name);
    let mut decided = stamped.clone();
    decided["status"] = json!({"certificate": "bm90aGluZw==", "conditions": [{"type": "Approved", "status": "True",
        "reason": "Test", "message": "so be it"}]});
    let decided = space.http.put(&format!("{path}/approval"), &decided).await.ok();
    assert_eq!(decided["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(decided["status"]["certificate"], serde_json::Value::Null, "an approval is no answer");
    space.http.delete(&path).await.ok();
}

/// On a server that evaluates roles, robots may ask for certificates.
async fn allow_requests(space: &Space) {
    let group = "rbac.authorization.k8s.io";
    let name = format!("requests-{}", space.name);
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}]});
    space.http.post(&format!("/apis/{group}/v1/clusterroles"), &role).await.ok();
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": space.name}],
    });
    space.http.post(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).await.ok();
}
