//! The webhooks as the API server calls them, and what kubectl shows of their answers.

use std::io::Write as _;
use std::process::{Command, Stdio};

use api::kubevirt::{KubeVirt, VirtualMachineInstance};
use api::names::objects;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, instance, instance_spec, machine, object};

fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Box<kube::core::Status> {
    match result {
        Err(kube::Error::Api(status)) => status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn causes(status: &kube::core::Status) -> Vec<(String, String)> {
    let details = status.details.as_ref().expect("details");
    details.causes.iter().map(|cause| (cause.field.clone(), cause.message.clone())).collect()
}

#[tokio::test]
async fn an_instance_is_filled_in_when_it_is_made_and_does_not_change_afterwards() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let bare: VirtualMachineInstance = object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "finch" },
        "spec": { "domain": { "devices": {}, "resources": { "requests": { "memory": "64Mi", "cpu": "1500m" } } } },
    }));
    let made = cluster.instances.create(&PostParams::default(), &bare).await.unwrap();
    let domain = &made.spec.domain;
    assert_eq!(domain.machine.as_ref().unwrap().type_, "q35");
    assert_eq!(domain.memory.as_ref().unwrap().guest.as_ref().unwrap().0, "64Mi");
    assert_eq!(domain.cpu.as_ref().unwrap().count(), 2);
    assert!(domain.devices.interfaces[0].bridge.is_some() && made.spec.networks[0].pod.is_some());
    assert_eq!(made.spec.termination_grace_period_seconds, Some(30));

    let change = Patch::Merge(json!({ "spec": { "hostname": "other" } }));
    let status = refusal(cluster.instances.patch("finch", &PatchParams::default(), &change).await);
    assert_eq!((status.code, causes(&status)[0].0.as_str()), (422, "spec"));
    // Labels are not what runs.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "tier": "db" } } }));
    cluster.instances.patch("finch", &PatchParams::default(), &label).await.unwrap();
    cluster.run("finch").await;
}

#[tokio::test]
async fn the_defaults_are_those_of_the_installation() {
    let cluster = Cluster::new().await;
    let installation: KubeVirt = object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "configuration": {
            "evictionStrategy": "LiveMigrate",
            "network": { "defaultNetworkInterface": "masquerade", "binding": { "l2bridge": {} } },
        }},
    }));
    let installations: Api<KubeVirt> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    installations.create(&PostParams::default(), &installation).await.unwrap();
    cluster.start_with_webhooks().await;
    let mut bare = instance("finch");
    bare.spec.domain.devices.interfaces.clear();
    bare.spec.networks.clear();
    // The controller hears of the installation a little later than we.
    eventually("the installation's defaults", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = cluster.instances.create(&dry, &bare).await.unwrap();
        made.spec.domain.devices.interfaces[0].masquerade.is_some().then_some(())
    })
    .await;
    let made = cluster.instances.create(&PostParams::default(), &bare).await.unwrap();
    assert_eq!(made.spec.eviction_strategy, Some(api::kubevirt::EvictionStrategy::LiveMigrate));
}

#[tokio::test]
async fn a_field_that_we_do_not_have_is_refused_by_its_path_whoever_asks() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let instances: Api<kube::core::DynamicObject> = Api::namespaced_with(
        cluster.client.clone(),
        "default",
        &kube::core::ApiResource::erase::<VirtualMachineInstance>(&()),
    );
    let mut spec = instance_spec();
    spec["domain"]["devices"]["gpus"] = json!([{ "name": "gpu1", "deviceName": "nvidia.com/GV100GL" }]);
    spec["domain"]["features"] = json!({ "hyperv": { "relaxed": {} } });
    let gpus = object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "finch" }, "spec": spec,
    }));
    let status = refusal(instances.create(&PostParams::default(), &gpus).await);
    assert_eq!(
        causes(&status).into_iter().map(|(field, _)| field).collect::<Vec<_>>(),
        ["spec.domain.devices.gpus", "spec.domain.features"]
    );
    assert!(status.message.contains("denied the request"), "{}", status.message);
}

#[tokio::test]
async fn a_machine_whose_instance_could_not_run_is_refused_with_the_path_in_its_template() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let mut bad = machine("wren", "Always");
    bad.spec.template.spec.networks.clear();
    let status = refusal(cluster.machines.create(&PostParams::default(), &bad).await);
    let (field, message) = causes(&status).remove(0);
    assert_eq!(field, "spec.template.spec.domain.devices.interfaces[0].name");
    assert_eq!(
        message,
        "Interface \"default\" is plugged into nothing: add a network of that name to networks."
    );

    cluster.create_machine("wren", "Always").await;
    let running = cluster.run("wren").await;
    assert_eq!(running.spec.domain.machine.unwrap().type_, "q35");
    let status = cluster.machines.get("wren").await.unwrap().status.unwrap();
    assert!(
        !api::condition::is_true(&status.conditions, api::names::conditions::RESTART_REQUIRED),
        "what admission filled in is no change of the template"
    );
}

#[tokio::test]
async fn a_restarted_controller_has_the_same_authority() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    let before = secrets.get(objects::CA_SECRET).await.unwrap();
    cluster.kill();
    cluster.start_with_webhooks().await;
    cluster.create_instance("finch").await;
    assert_eq!(secrets.get(objects::CA_SECRET).await.unwrap().data, before.data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_the_field_and_the_sentence_and_the_columns_that_a_person_wants() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let listening = cluster.server.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, &listening.kubeconfig).unwrap();
    let serving = tokio::spawn(listening.run(std::future::pending()));
    let kubectl = async |arguments: &'static [&'static str], input: Option<Value>| {
        let kubeconfig = kubeconfig.clone();
        let run = move || {
            let mut command = Command::new("kubectl");
            command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("kubectl runs");
            let text = input.map(|input| input.to_string()).unwrap_or_default();
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            text(&output.stdout) + &text(&output.stderr)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut manifest = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "wren", "namespace": "default" },
            "spec": { "runStrategy": "Always", "template": { "spec": instance_spec() } },
        });
        change(&mut manifest["spec"]);
        manifest
    };
    let multicast = with(&|spec| {
        spec["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] =
            json!("01:00:5e:00:00:01");
    });
    assert_eq!(
        kubectl(&["apply", "-f", "-"], Some(multicast)).await.trim(),
        "The VirtualMachine \"wren\" is invalid: spec.template.spec.domain.devices.interfaces[0].macAddress: \
         01:00:5e:00:00:01 is a multicast address, which no interface can have: its first octet must be even."
    );
    let unknown = with(&|spec| spec["instancetype"] = json!({ "name": "u1.medium" }));
    assert_eq!(
        kubectl(&["apply", "-f", "-"], Some(unknown)).await.trim(),
        "The VirtualMachine \"wren\" is invalid: spec.instancetype: instancetype is not supported here: nothing would act \
         on it. Remove it if the machine can do without."
    );
    assert!(kubectl(&["apply", "-f", "-"], Some(with(&|_| {}))).await.contains("wren created"));
    cluster.run("wren").await;
    cluster.printable("wren", api::kubevirt::PrintableStatus::Running).await;
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let machines = kubectl(&["get", "vm"], None).await;
    assert_eq!(columns(machines.lines().next().unwrap()), ["NAME", "AGE", "STATUS", "READY"]);
    assert!(machines.contains("Running") && machines.contains("True"), "{machines}");
    let instances = kubectl(&["get", "vmi"], None).await;
    assert_eq!(
        columns(instances.lines().next().unwrap()),
        ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"]
    );
    assert!(instances.contains("node01"), "{instances}");
    serving.abort();
}
