//! Who asks, and what they may.

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
        println!("NOT RUN: the embedded server evaluates no roles");
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
