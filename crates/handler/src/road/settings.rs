//! What the `KubeVirt` object says about the road, as it is now.

use api::kubevirt::{KubeVirt, MigrationConfiguration, NetworkPreference};
use kube::{Api, Client};
use tokio::sync::watch;

use super::address::Wanted;
use super::followed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub wanted: Wanted,
    pub disable_tls: bool,
}

impl Settings {
    /// Those of an installation; without one, what it would say if it said nothing.
    pub fn of(installation: Option<&KubeVirt>, namespace: &str) -> Self {
        let spec = installation.map(|installation| &installation.spec);
        let configuration = spec.and_then(|spec| spec.configuration.as_ref());
        let none = MigrationConfiguration::default();
        let migrations =
            configuration.and_then(|configuration| configuration.migrations.as_ref()).unwrap_or(&none);
        let network = spec.and_then(|spec| spec.migration_network());
        Self {
            wanted: Wanted {
                network: network.map(|network| api::multus::full_name(network, namespace)),
                preference: migrations.network_preference.unwrap_or(NetworkPreference::Require),
            },
            disable_tls: migrations.disable_tls.unwrap_or_default(),
        }
    }
}

/// What is known of them, none before the first look; and the work that keeps it so until dropped.
pub fn follow(
    client: Client,
    namespace: &str,
) -> (watch::Receiver<Option<Settings>>, impl Future<Output = ()> + use<>) {
    let (sender, receiver) = watch::channel(None);
    let (namespace, installations) = (namespace.to_owned(), Api::<KubeVirt>::namespaced(client, namespace));
    let work = followed::follow(installations, "KubeVirt objects", move |all| {
        let settings = Some(Settings::of(KubeVirt::in_charge(all).as_deref(), &namespace));
        sender.send_if_modified(|now| std::mem::replace(now, settings.clone()) != settings);
    });
    (receiver, work)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    fn settings(configuration: &serde_json::Value) -> Settings {
        let spec = serde_json::from_value(json!({ "configuration": configuration })).unwrap();
        Settings::of(Some(&KubeVirt::new("kubevirt", spec)), "kubevirt")
    }

    #[test]
    fn either_spelling_names_the_network_and_a_bare_name_is_of_the_installations_namespace() {
        let nothing = Settings::of(None, "kubevirt");
        assert_eq!(nothing, settings(&json!({})));
        assert_eq!(nothing.wanted, Wanted { network: None, preference: NetworkPreference::Require });
        let flat = settings(&json!({ "migrations": { "network": "fast", "disableTLS": true } }));
        assert_eq!((flat.wanted.network.as_deref(), flat.disable_tls), (Some("kubevirt/fast"), true));
        let role = json!({ "network": { "roles": [{ "networkAttachmentDefinition": "nets/fast", "role": "migration" }] },
            "migrations": { "networkPreference": "Prefer" } });
        let wanted = settings(&role).wanted;
        assert_eq!(
            (wanted.network.as_deref(), wanted.preference),
            (Some("nets/fast"), NetworkPreference::Prefer)
        );
    }
}
