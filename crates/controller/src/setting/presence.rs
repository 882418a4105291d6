//! The existence of the setting `vm-migration-network`: the leader creates the object when it is
//! missing, with an empty default, as Harvester does when it starts.
//!
//! A person can then list and edit the setting before anybody has set a network. This module only
//! creates: it never changes an object that exists, whether Harvester, a person or an earlier leader
//! created it. While the API server does not serve the kind `Setting`, there is nothing to create.

use std::time::Duration;

use api::harvester::{Setting, SettingBody};
use api::names::objects;
use futures::{StreamExt as _, pin_mut};
use kube::api::{ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};

use super::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::error::{Error, describe};

/// Creates the setting whenever it is missing, until dropped.
pub async fn ensure(client: &Client) {
    let metadata: Api<PartialObjectMeta<Setting>> = Api::all(client.clone());
    let changes = watch_object(metadata, objects::MIGRATION_NETWORK_SETTING).default_backoff();
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(Some(_)) => {}
            Ok(None) => create_with_retries(client).await,
            Err(error) => tracing::debug!(%error, "the setting cannot be watched"),
        }
    }
}

/// Tries until the setting exists. Its admission webhook may not answer yet, and refuses every change
/// of the migration network while a VM migrates.
async fn create_with_retries(client: &Client) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = create(client).await {
        tracing::warn!(retry_after = ?pause, "{}", error.explain());
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}

async fn create(client: &Client) -> Result<(), Error> {
    let settings: Api<Setting> = Api::all(client.clone());
    let setting = unset();
    match settings.create(&PostParams::default(), &setting).await {
        Ok(_) => tracing::info!(object = %describe(&setting), "created with an empty default"),
        // Harvester, or a person, was faster.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        // The definition of the kind has gone. The watch starts again when it is back.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(source) => return Err(Error::api("creating", describe(&setting))(source)),
    }
    Ok(())
}

/// The setting as it is before anybody sets it. Harvester, too, leaves out texts that are empty.
fn unset() -> Setting {
    Setting {
        metadata: ObjectMeta {
            name: Some(objects::MIGRATION_NETWORK_SETTING.to_owned()),
            ..ObjectMeta::default()
        },
        spec: SettingBody::default(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_unset_setting_has_its_name_and_no_network() {
        let setting = unset();
        assert_eq!((setting.spec.effective_value(), setting.spec.default.as_str()), ("", ""));
        assert_eq!(
            serde_json::to_value(setting).unwrap(),
            json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting",
                "metadata": { "name": "vm-migration-network" },
            })
        );
    }

    #[test]
    fn pauses_grow_up_to_the_longest() {
        assert_eq!(longer(FIRST_PAUSE), FIRST_PAUSE * 2);
        assert_eq!(longer(LONGEST_PAUSE), LONGEST_PAUSE);
    }
}
