//! The migration network set, changed, spoilt, mended and cleared; the operator and its handlers are played by [`World`].

mod kills;
mod world;

use api::condition;
use api::harvester::Setting;
use api::names::{annotations, conditions};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, object};
pub use world::whole_life;
use world::{FIRST, NODES, SECOND, World};

fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

async fn created(settings: &Api<Setting>) -> Setting {
    eventually("the setting to be created", async || settings.get_opt("vm-migration-network").await.unwrap())
        .await
}

#[tokio::test]
async fn the_setting_is_created_empty_and_created_again_when_it_is_deleted() {
    let cluster = Cluster::new().await;
    let settings: Api<Setting> = Api::all(cluster.client.clone());
    assert!(settings.get_opt("vm-migration-network").await.unwrap().is_none());
    cluster.start_with_webhooks().await;
    let first = created(&settings).await;
    assert_eq!((first.spec.value.as_str(), first.spec.default.as_str()), ("", ""));
    let world = World::new(&cluster).await;
    world.told("Ready", "No migration network is set").await;
    let (code, _) = refusal(settings.delete("vm-migration-network", &DeleteParams::default()).await);
    assert_eq!(code, 405, "a person may not delete it");

    // Deleted while no webhook was registered; the controller that starts then finds it missing.
    cluster.kill();
    world.without_webhooks().await;
    settings.delete("vm-migration-network", &DeleteParams::default()).await.unwrap();
    cluster.start();
    let second = created(&settings).await;
    assert_ne!(first.uid(), second.uid());

    // Deleted under a controller that runs.
    settings.delete("vm-migration-network", &DeleteParams::default()).await.unwrap();
    let third = eventually("the next setting", async || {
        let setting = settings.get_opt("vm-migration-network").await.unwrap()?;
        (setting.uid() != second.uid()).then_some(setting)
    })
    .await;
    assert_eq!((third.spec.value.as_str(), third.spec.default.as_str()), ("", ""));
    world.told("Ready", "No migration network is set").await;
}

#[tokio::test]
async fn a_setting_that_exists_is_left_as_harvester_made_it() {
    let cluster = Cluster::new().await;
    let settings: Api<Setting> = Api::all(cluster.client.clone());
    let by_harvester = object(json!({
        "metadata": { "name": "vm-migration-network", "labels": { "made-by": "harvester" } }, "source": "env",
    }));
    let before = settings.create(&PostParams::default(), &by_harvester).await.unwrap();
    cluster.start();
    let world = World::new(&cluster).await;
    world.told("Ready", "No migration network is set").await;
    let after = world.setting().await;
    assert_eq!((after.uid(), after.labels()), (before.uid(), before.labels()));
    assert_eq!(after.spec, before.spec);
}

#[tokio::test]
async fn the_setting_is_created_once_its_kind_is_served() {
    const KIND: &str = "settings.harvesterhci.io";
    let cluster = Cluster::new().await;
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut kind = kinds.get(KIND).await.unwrap();
    kinds.delete(KIND, &DeleteParams::default()).await.unwrap();
    eventually("the kind to be gone", async || kinds.get_opt(KIND).await.unwrap().is_none().then_some(()))
        .await;
    // Everything else works without it.
    cluster.start();
    let instance = cluster.create_instance("wren").await;
    cluster.pod_of(&instance).await;
    kind.metadata = object(json!({ "name": KIND }));
    kind.status = None;
    kinds.create(&PostParams::default(), &kind).await.unwrap();
    created(&Api::all(cluster.client.clone())).await;
}

#[tokio::test]
async fn a_network_is_set_rolled_out_proved_and_ready() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.set(FIRST).await;
    world.told("RollingOut", "RollingOut 0/2: ").await;
    let definition = world.definition_in_use().await;
    let config: Value = serde_json::from_str(definition.config().unwrap()).unwrap();
    assert_eq!(config["type"], "bridge");
    assert_eq!(config["vlan"], 200);
    assert_eq!(config["mtu"], 9000);
    assert_eq!(
        config["ipam"],
        json!({
            "type": "godwit-ipam", "network_name": "mig-vlan-200", "rest_seconds": 2,
            "range": "10.1.0.0/24", "exclude": ["10.1.0.1"],
        })
    );
    let noted =
        async || world.setting().await.annotations().contains_key(annotations::MIGRATION_NETWORK_HASH);
    assert!(!noted().await, "nothing is noted before it is in effect");

    world.roll(NODES[0]).await;
    world.told("RollingOut", "RollingOut 1/2: ").await;
    world.roll(NODES[1]).await;
    world.told("Verifying", "has not acted on its configuration yet").await;
    world.prove(false).await;
    world.told("Verifying", "MigrationNetworkReady of KubeVirt kubevirt is False").await;
    assert!(!noted().await);
    world.prove(true).await;
    world.told("Ready", "virt-handler on 2 of 2 nodes has an address of 10.1.0.0/24 on mig VLAN 200.").await;
    let setting = world.setting().await;
    assert_eq!(
        setting.annotations()[annotations::MIGRATION_NETWORK_DEFINITION],
        format!("{INSTALLATION}/{}", definition.name_any())
    );
    assert_eq!(
        setting.annotations()[annotations::MIGRATION_NETWORK_HASH],
        definition.labels()[annotations::MIGRATION_NETWORK_HASH]
    );
    // Another word of the stanza is somebody else's, and stays.
    let migrations = world.installation().await.spec.configuration.unwrap().migrations.unwrap();
    assert_eq!(migrations.parallel_migrations_per_cluster, Some(7));
}

#[tokio::test]
async fn a_change_is_made_before_the_old_network_is_broken() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    let first = world.definition_in_use().await.name_any();
    world.set(SECOND).await;
    eventually("KubeVirt to use the second", async || {
        (world.network_in_use().await.as_deref() != Some(first.as_str())).then_some(())
    })
    .await;
    let both = world.definitions().await;
    assert_eq!(both.len(), 2, "{both:?}");
    world.roll(NODES[0]).await;
    world.told("RollingOut", "RollingOut 1/2: ").await;
    assert!(world.definitions().await.contains(&first), "a handler is still on it");
    world.roll(NODES[1]).await;
    world.told("Verifying", "").await;
    assert!(world.definitions().await.contains(&first), "the new one is not proved yet");
    world.prove(true).await;
    world.told("Ready", "10.2.0.0/24").await;
    world.only_definition(Some(world.network_in_use().await.unwrap().as_str())).await;
}

#[tokio::test]
async fn a_bad_value_is_refused_and_one_that_slipped_through_changes_nothing() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    let before = (world.network_in_use().await, world.definitions().await);
    let try_to = async |value: &str| {
        let patch = Patch::Merge(json!({ "value": value }));
        world.settings.patch("vm-migration-network", &PatchParams::default(), &patch).await
    };
    let (code, message) =
        refusal(try_to(r#"{"clusterNetwork":"mig","range":"10.9.0.0/24","excludes":[]}"#).await);
    assert_eq!(code, 422);
    assert!(message.contains("unknown field `excludes`"), "{message}");
    let (_, message) = refusal(try_to(r#"{"clusterNetwork":"gone","range":"10.9.0.7/24"}"#).await);
    assert!(
        message.contains(r#"value.range: "10.9.0.7/24" has host bits set: did you mean 10.9.0.0/24?"#),
        "{message}"
    );
    let (_, message) = refusal(try_to(r#"{"clusterNetwork":"gone","range":"10.9.0.0/24"}"#).await);
    assert!(message.contains(r#"value.clusterNetwork: Cluster network "gone" does not exist"#), "{message}");
    let (code, message) =
        refusal(world.settings.delete("vm-migration-network", &DeleteParams::default()).await);
    assert_eq!(code, 405);
    assert!(message.contains("Disallow delete setting name vm-migration-network"), "{message}");
    // Other settings are nobody's business here.
    let other = object(json!({ "metadata": { "name": "log-level" }, "value": "nonsense" }));
    world.settings.create(&PostParams::default(), &other).await.unwrap();
    world.settings.delete("log-level", &DeleteParams::default()).await.unwrap();

    // While a migration runs, not even a good one, nor none.
    cluster.create_instance("wren").await;
    world.migration("Running").await;
    for value in [SECOND, ""] {
        let (code, message) = refusal(try_to(value).await);
        assert_eq!(code, 400);
        assert!(
            message.contains("There is a VM migration in progress")
                && message.contains("default/move (wren, Running)"),
            "{message}"
        );
    }
    world.migration("Succeeded").await;

    // Written while nobody looked: the webhooks' registration is gone, and then comes back.
    cluster.kill();
    world.without_webhooks().await;
    try_to(r#"{"clusterNetwork":"gone","range":"10.9.0.0/24"}"#).await.unwrap();
    cluster.start();
    world.told("Validating", r#"Cluster network "gone" does not exist"#).await;
    assert_eq!((world.network_in_use().await, world.definitions().await), before);
    // As soon as it is what it was, it is in effect again, and nobody noticed.
    try_to(FIRST).await.unwrap();
    world.told("Ready", "10.1.0.0/24").await;
    assert_eq!((world.network_in_use().await, world.definitions().await), before);
}

#[tokio::test]
async fn a_change_that_slipped_in_beside_a_migration_waits_for_its_end() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    let before = world.network_in_use().await;
    world.migration("Running").await;
    world.set(SECOND).await;
    world.told("Applying", "waits for the end of migration default/move").await;
    assert_eq!(world.network_in_use().await, before);
    assert_eq!(world.definitions().await.len(), 1);
    world.migration("Succeeded").await;
    world.follow("Ready", "10.2.0.0/24").await;
}

#[tokio::test]
async fn what_is_cleared_is_gone_when_the_last_handler_has_left() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    // Somebody said the same word by hand: it is still ours to take back.
    let name = world.network_in_use().await.unwrap();
    world.set_network_by_hand(Some(&name)).await;
    world.set("").await;
    eventually("KubeVirt to use none", async || world.network_in_use().await.is_none().then_some(())).await;
    world.roll(NODES[0]).await;
    world.told("RollingOut", "RollingOut 1/2: ").await;
    world.only_definition(Some(&name)).await;
    world.roll(NODES[1]).await;
    world.prove(false).await;
    world.told("Ready", "No migration network is set").await;
    world.only_definition(None).await;
    assert!(world.setting().await.annotations().is_empty());
    let migrations = world.installation().await.spec.configuration.unwrap().migrations.unwrap();
    assert_eq!((migrations.network, migrations.parallel_migrations_per_cluster), (None, Some(7)));
}

#[tokio::test]
async fn what_is_changed_by_hand_is_put_right() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    let definition = world.definition_in_use().await;
    let name = definition.name_any();

    world.definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    let again =
        eventually("the definition to be back", async || world.definitions.get_opt(&name).await.unwrap())
            .await;
    assert_eq!(again.config(), definition.config());

    let edited = Patch::Merge(
        json!({ "spec": { "config": "{\"type\":\"host-device\"}" }, "metadata": { "labels": { "mine": "yes" } } }),
    );
    world.definitions.patch(&name, &PatchParams::default(), &edited).await.unwrap();
    let mended = eventually("the definition to be mended", async || {
        let there = world.definitions.get(&name).await.unwrap();
        (there.config() == definition.config()).then_some(there)
    })
    .await;
    assert_eq!(mended.labels()["mine"], "yes", "what others add is theirs");

    for network in [Some("other"), None] {
        world.set_network_by_hand(network).await;
        eventually("KubeVirt to use it again", async || {
            (world.network_in_use().await.as_ref() == Some(&name)).then_some(())
        })
        .await;
    }
    world.follow("Ready", "10.1.0.0/24").await;
}

#[tokio::test]
async fn a_node_that_does_not_fit_is_told_before_it_fails() {
    let cluster = Cluster::with_controller().await;
    let world = World::new(&cluster).await;
    world.establish(FIRST).await;
    let name = world.network_in_use().await;
    cluster.add_node("node03").await;
    world
        .told(
            "RollingOut",
            "Attention: value.clusterNetwork: Cluster network \"mig\" does not reach node node03",
        )
        .await;
    assert_eq!(world.network_in_use().await, name, "nothing is undone");
    world.reach("node03").await;
    eventually("nothing but the handler to be missing", async || {
        let status = world.setting().await.status.unwrap_or_default();
        let configured = condition::find(&status.conditions, conditions::CONFIGURED)?;
        let rolling = "RollingOut 2/3: virt-handler is being moved, node by node. Not there yet: node03.";
        (configured.message.as_deref() == Some(rolling)).then_some(())
    })
    .await;
    world.start_handler("node03").await;
    world.follow("Ready", "on 3 of 3 nodes").await;
}
