//! The kinds of this project, from `deploy/crds` to an object: their definitions are accepted and served as they are, and
//! the rules in them hold, on the real server as on ours.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::Space;

async fn install(space: &Space) {
    let definitions: Api<CustomResourceDefinition> = Api::all(space.client.clone());
    let apply = PatchParams::apply("suite").force();
    for definition in api::crds() {
        let name = definition.name_any();
        definitions.patch(&name, &apply, &Patch::Apply(&definition)).await.unwrap();
        await_condition(definitions.clone(), &name, conditions::is_crd_established()).await.unwrap();
    }
}

fn machine(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name }, "spec": spec })
}

#[tokio::test]
async fn what_users_write_is_accepted_and_what_cannot_be_is_refused() {
    let space = Space::new().await;
    install(&space).await;
    let machines = format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachines", space.name);
    let template = json!({
        "metadata": { "labels": { "app": "godwit" } },
        "spec": {
            "domain": {
                "memory": { "guest": "64Mi" },
                "devices": { "interfaces": [{ "name": "default", "bridge": {} }] },
            },
            "networks": [{ "name": "default", "pod": {} }],
        },
    });
    let strict = format!("{machines}?fieldValidation=Strict");
    let created = space
        .http
        .post(&strict, &machine("a", &json!({ "runStrategy": "Always", "template": template })))
        .await
        .ok();
    // The template's metadata is the user's own: nothing of it is lost.
    assert_eq!(created["spec"]["template"]["metadata"]["labels"]["app"], "godwit");

    let both = machine("b", &json!({ "running": true, "runStrategy": "Always", "template": template }));
    let refused = space.http.post(&machines, &both).await;
    assert_eq!(refused.status, 422, "{}", refused.json());

    // Machines keep what their schema does not know, for admission to refuse by its path; other kinds do not.
    let unknown = json!({ "runStrategy": "Always", "template": template, "wings": 2 });
    let mut kept = machine("c", &unknown);
    kept["spec"]["template"]["spec"]["domain"]["devices"]["gpus"] = json!([{ "name": "g" }]);
    let kept = space.http.post(&strict, &kept).await.ok();
    assert_eq!(kept["spec"]["wings"], 2);
    assert_eq!(kept["spec"]["template"]["spec"]["domain"]["devices"]["gpus"][0]["name"], "g");

    let migrations =
        format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstancemigrations", space.name);
    let strict = format!("{migrations}?fieldValidation=Strict");
    let unknown = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": { "name": "c" },
        "spec": { "vmiName": "a", "wings": 2 },
    });
    let refused = space.http.post(&strict, &unknown).await;
    assert_eq!(refused.status, 400, "{}", refused.json());
    assert!(refused.json()["message"].as_str().unwrap().contains("spec.wings"));
}
