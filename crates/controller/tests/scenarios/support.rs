//! A cluster for one test: the API server in this process, a controller that can be killed, and a hand for every part that is not
//! there. The hands write what the real parts would write, and only when told.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::kubevirt::{
    InstancePhase, InstancePhaseTransition, PrintableStatus, VirtualMachine, VirtualMachineInstance,
};
use api::names::{labels, objects};
use apiserver::ApiServer;
use controller::{Launcher, Options, Timing, Webhook};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;
use tokio::task::AbortHandle;

pub const NAMESPACE: &str = "default";
pub const INSTALLATION: &str = "kubevirt";
const SERVICE: &str = "virt-controller";

/// Timing of a test: leaders change in a second.
pub const QUICK: Timing = Timing {
    lease: Duration::from_secs(1),
    deadline: Duration::from_millis(800),
    period: Duration::from_millis(100),
};

pub struct Cluster {
    pub server: ApiServer,
    pub client: Client,
    pub machines: Api<VirtualMachine>,
    pub instances: Api<VirtualMachineInstance>,
    pub pods: Api<Pod>,
    listener: std::net::TcpListener,
    running: Mutex<Option<AbortHandle>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Cluster {
    /// A cluster with every definition, one node, and no controller.
    pub async fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let resolver = move |service: &apiserver::admission::ServiceRef<'_>| {
            (service.namespace == INSTALLATION && service.name == SERVICE).then_some(address)
        };
        let options =
            apiserver::Options { resolver: Some(Arc::new(resolver)), ..apiserver::Options::default() };
        let server = ApiServer::start(options).await.unwrap();
        let client = server.client(NAMESPACE);
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions_needed() {
            definitions.create(&PostParams::default(), definition).await.unwrap();
        }
        for definition in definitions_needed() {
            let established = kube::runtime::conditions::is_crd_established();
            let name = definition.name_any();
            let wait = kube::runtime::wait::await_condition(definitions.clone(), &name, established);
            tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap().unwrap();
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in [INSTALLATION.to_owned(), objects::migration_tokens(INSTALLATION)] {
            let namespace = object(json!({ "metadata": { "name": name } }));
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let cluster = Self {
            machines: Api::namespaced(client.clone(), NAMESPACE),
            instances: Api::namespaced(client.clone(), NAMESPACE),
            pods: Api::namespaced(client.clone(), NAMESPACE),
            server,
            client,
            listener,
            running: Mutex::new(None),
        };
        cluster.add_node("node01").await;
        cluster
    }

    /// The same with a controller that has no webhooks: most tests are not about them.
    pub async fn with_controller() -> Self {
        let cluster = Self::new().await;
        cluster.start();
        cluster
    }

    /// Starts the controller.
    pub fn start(&self) {
        self.start_with(self.client.clone(), options("controller-1"));
    }

    /// Starts the controller with its webhooks, and waits until they are registered.
    pub async fn start_with_webhooks(&self) {
        self.start_with(
            self.client.clone(),
            Options { webhook: Some(self.webhook()), ..options("controller-1") },
        );
        self.registered().await;
    }

    pub fn webhook(&self) -> Webhook {
        Webhook { listener: self.listener.try_clone().unwrap(), service: SERVICE.into(), port: 443 }
    }

    /// Waits until the API server knows the webhooks.
    pub async fn registered(&self) {
        let configurations: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
            Api::all(self.client.clone());
        eventually("the webhooks' registration", async || {
            configurations.get_opt(objects::VALIDATING_WEBHOOKS).await.unwrap()
        })
        .await;
    }

    /// Starts a controller that calls the API server through this client.
    pub fn start_with(&self, client: Client, options: Options) {
        let running = controller::run(client, options, std::future::pending());
        let task = tokio::spawn(async move { running.await.unwrap() });
        *self.running.lock().unwrap() = Some(task.abort_handle());
    }

    /// Kills the controller: it says goodbye to nobody.
    pub fn kill(&self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            running.abort();
        }
    }

    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    pub async fn add_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = json!({
            "metadata": { "name": name, "labels": { labels::SCHEDULABLE: "true" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        nodes.create(&PostParams::default(), &object(node.clone())).await.unwrap();
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(node)).await.unwrap();
    }

    pub async fn lose_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    }
}

/// What a person does.
impl Cluster {
    pub async fn create_machine(&self, name: &str, run_strategy: &str) -> VirtualMachine {
        let machine = machine(name, run_strategy);
        self.machines.create(&PostParams::default(), &machine).await.unwrap()
    }

    pub async fn create_instance(&self, name: &str) -> VirtualMachineInstance {
        let instance = instance(name);
        self.instances.create(&PostParams::default(), &instance).await.unwrap()
    }

    pub async fn set_run_strategy(&self, name: &str, run_strategy: &str) {
        let patch = json!({ "spec": { "runStrategy": run_strategy } });
        self.machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn request(&self, name: &str, requests: Value) {
        let patch = json!({ "status": { "stateChangeRequests": requests } });
        self.machines.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete_machine(&self, name: &str) {
        self.machines.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn delete_instance(&self, name: &str) {
        self.instances.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// What the scheduler and the kubelet do.
impl Cluster {
    /// The launcher pod of an instance, once it is there.
    pub async fn pod_of(&self, instance: &VirtualMachineInstance) -> Pod {
        eventually("the launcher pod", async || self.pods_of(instance).await.pop()).await
    }

    pub async fn pods_of(&self, instance: &VirtualMachineInstance) -> Vec<Pod> {
        let own = format!("{}={}", labels::CREATED_BY, instance.uid().unwrap());
        self.pods.list(&ListParams::default().labels(&own)).await.unwrap().items
    }

    pub async fn bind(&self, pod: &Pod, node: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod.name_any() },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let request =
            http::Request::post(format!("/api/v1/namespaces/{NAMESPACE}/pods/{}/binding", pod.name_any()))
                .header("content-type", "application/json")
                .body(binding.to_string().into_bytes())
                .unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    pub async fn pod_status(&self, pod: &Pod, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pod gets a node and its container starts there.
    pub async fn run_pod(&self, pod: &Pod, node: &str) {
        self.bind(pod, node).await;
        self.pod_runs(pod).await;
    }

    pub async fn pod_runs(&self, pod: &Pod) {
        self.pod_status(
            pod,
            json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] }),
        )
        .await;
    }

    pub async fn pod_ends(&self, pod: &Pod, phase: &str) {
        self.pod_status(
            pod,
            json!({ "phase": phase, "conditions": [{ "type": "Ready", "status": "False" }] }),
        )
        .await;
    }

    /// The kubelet confirms that a pod that was told to end has ended.
    pub async fn pod_goes(&self, pod: &Pod) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        match self.pods.delete(&pod.name_any(), &now).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            result => drop(result.unwrap()),
        }
    }

    /// Waits until the pod was told to end, and lets it.
    pub async fn pod_ends_when_told(&self, instance: &VirtualMachineInstance) {
        let told = eventually("the pod to be told to end", async || {
            let pods = self.pods_of(instance).await;
            let told = pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_some()).cloned();
            // Without a node, nobody has to confirm anything.
            if pods.is_empty() { Some(None) } else { told.map(Some) }
        })
        .await;
        if let Some(pod) = told {
            self.pod_goes(&pod).await;
        }
    }
}

/// What the handler does.
impl Cluster {
    pub async fn handler_says(&self, name: &str, phase: InstancePhase) {
        eventually("the handler's word to be taken", async || {
            let mut instance = self.instances.get(name).await.unwrap();
            let status = instance.status.get_or_insert_default();
            status.phase = Some(phase);
            let now = Time(Timestamp::now());
            status
                .phase_transition_timestamps
                .push(InstancePhaseTransition { phase, phase_transition_timestamp: now });
            self.instances.replace_status(name, &PostParams::default(), &instance).await.ok()
        })
        .await;
    }

    /// Everybody does their part until the guest runs.
    pub async fn run(&self, name: &str) -> VirtualMachineInstance {
        let instance = self.instance(name).await;
        let pod = self.pod_of(&instance).await;
        self.run_pod(&pod, "node01").await;
        self.phase(name, InstancePhase::Scheduled).await;
        self.handler_says(name, InstancePhase::Running).await;
        self.ready(name).await
    }
}

/// What a person sees.
impl Cluster {
    pub async fn instance(&self, name: &str) -> VirtualMachineInstance {
        eventually("the instance", async || self.instances.get_opt(name).await.unwrap()).await
    }

    /// An instance of the name that is not this one.
    pub async fn next_instance(&self, previous: &VirtualMachineInstance) -> VirtualMachineInstance {
        eventually("the next instance", async || {
            let instance = self.instances.get_opt(&previous.name_any()).await.unwrap()?;
            (instance.uid() != previous.uid()).then_some(instance)
        })
        .await
    }

    pub async fn phase(&self, name: &str, phase: InstancePhase) -> VirtualMachineInstance {
        eventually(&format!("phase {phase}"), async || {
            let instance = self.instances.get_opt(name).await.unwrap()?;
            (instance.status.as_ref()?.phase? == phase).then_some(instance)
        })
        .await
    }

    pub async fn ready(&self, name: &str) -> VirtualMachineInstance {
        eventually("the instance to be ready", async || {
            let instance = self.instances.get_opt(name).await.unwrap()?;
            api::condition::is_true(&instance.status.as_ref()?.conditions, "Ready").then_some(instance)
        })
        .await
    }

    pub async fn printable(&self, name: &str, expected: PrintableStatus) -> VirtualMachine {
        let last = Mutex::new(None);
        let wanted = format!("printable status {expected}");
        let wait = eventually(&wanted, async || {
            let machine = self.machines.get_opt(name).await.unwrap()?;
            last.lock().unwrap().clone_from(&machine.status);
            (machine.status.as_ref()?.printable_status? == expected).then_some(machine)
        });
        tokio::time::timeout(Duration::from_secs(29), wait)
            .await
            .unwrap_or_else(|_| panic!("{name} is not {expected}: {:?}", last.lock().unwrap()))
    }

    pub async fn instance_gone(&self, instance: &VirtualMachineInstance) {
        eventually("the instance to be gone", async || {
            let there = self.instances.get_opt(&instance.name_any()).await.unwrap();
            there.is_none_or(|there| there.uid() != instance.uid()).then_some(())
        })
        .await;
    }

    pub async fn machine_gone(&self, name: &str) {
        eventually("the machine to be gone", async || {
            self.machines.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

/// A controller alone, without webhooks.
pub fn options(identity: &str) -> Options {
    Options {
        namespace: INSTALLATION.into(),
        launcher: Launcher { image: "godwit/launcher:1".into() },
        identity: identity.into(),
        election: None,
        webhook: None,
        metrics: None,
        operator: false,
    }
}

/// The kinds that the controller watches; the others would only cost time.
fn definitions_needed() -> &'static [CustomResourceDefinition] {
    static NEEDED: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    NEEDED.get_or_init(|| {
        let needed = [
            "KubeVirt",
            "VirtualMachine",
            "VirtualMachineInstance",
            "VirtualMachineInstanceMigration",
            "MigrationPolicy",
            "NetworkAttachmentDefinition",
            "IPAMClaim",
            "AddressAllocation",
            "Setting",
            "ClusterNetwork",
            "VlanConfig",
            "VlanStatus",
        ];
        api::crds().into_iter().filter(|crd| needed.contains(&crd.spec.names.kind.as_str())).collect()
    })
}

pub fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn instance_spec() -> Value {
    json!({
        "domain": {
            "memory": { "guest": "64Mi" },
            "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] },
        },
        "networks": [{ "name": "default", "pod": {} }],
    })
}

pub fn instance(name: &str) -> VirtualMachineInstance {
    object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": name }, "spec": instance_spec(),
    }))
}

pub fn machine(name: &str, run_strategy: &str) -> VirtualMachine {
    object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name },
        "spec": { "runStrategy": run_strategy, "template": { "spec": instance_spec() } },
    }))
}
