//! The configurations by which the API server finds the webhooks, and the authority by which it believes them.
//!
//! Every replica applies the same; applying it again changes nothing. Without a webhook nothing is let in (`failurePolicy: Fail`): a
//! machine that nobody looked at must not run.

use std::time::Duration;

use api::names::objects;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};

use super::{MUTATE, VALIDATE};
use crate::edit::Object;
use crate::error::{Error, describe};

/// How long until a registration that failed is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// Seconds that the API server waits for an answer, which takes milliseconds.
const TIMEOUT: i32 = 10;

/// What is registered.
pub(super) struct Registration {
    pub namespace: String,
    pub service: String,
    pub port: u16,
    /// Certificates, as PEM.
    pub authorities: String,
}

impl Registration {
    /// Returns when both configurations are there.
    pub async fn apply(&self, client: &Client) {
        while let Err(error) = self.try_apply(client).await {
            tracing::warn!("{}", error.explain());
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_apply(&self, client: &Client) -> Result<(), Error> {
        put(&Api::all(client.clone()), &self.mutating()).await?;
        put(&Api::all(client.clone()), &self.validating()).await
    }

    fn validating(&self) -> ValidatingWebhookConfiguration {
        let webhook = |name: &str, rule: RuleWithOperations| ValidatingWebhook {
            name: name.to_owned(),
            admission_review_versions: vec!["v1".into()],
            client_config: self.client_config(VALIDATE),
            failure_policy: Some("Fail".into()),
            rules: Some(vec![rule]),
            side_effects: "None".into(),
            timeout_seconds: Some(TIMEOUT),
            ..ValidatingWebhook::default()
        };
        let launchers = MatchCondition {
            name: "launchers-only".into(),
            expression: format!("request.name.startsWith('{}')", objects::LAUNCHER_PREFIX),
        };
        let eviction = ValidatingWebhook {
            match_conditions: Some(vec![launchers]),
            // It marks the VM, unless the eviction is only tried out.
            side_effects: "NoneOnDryRun".into(),
            ..webhook(objects::EVICTION_WEBHOOK, rule("", "pods/eviction", &["CREATE"]))
        };
        let policies = RuleWithOperations {
            api_versions: Some(vec!["v1alpha1".into()]),
            scope: Some("Cluster".into()),
            ..rule("migrations.kubevirt.io", "migrationpolicies", &["CREATE", "UPDATE"])
        };
        let machines = |resource| rule("kubevirt.io", resource, &["CREATE", "UPDATE"]);
        let migrations = rule("kubevirt.io", "virtualmachineinstancemigrations", &["CREATE"]);
        let settings = RuleWithOperations {
            api_versions: Some(vec!["v1beta1".into()]),
            scope: Some("Cluster".into()),
            ..rule("harvesterhci.io", "settings", &["CREATE", "UPDATE", "DELETE"])
        };
        let settings = ValidatingWebhook {
            // No other setting is ours to judge, or to hold up.
            match_conditions: Some(vec![MatchCondition {
                name: "migration-network".into(),
                expression: format!(
                    "request.operation == 'DELETE' ? oldObject.metadata.name == '{0}' \
                     : has(object.metadata.name) && object.metadata.name == '{0}'",
                    objects::MIGRATION_NETWORK_SETTING
                ),
            }]),
            ..webhook(objects::SETTING_VALIDATOR, settings)
        };
        ValidatingWebhookConfiguration {
            metadata: metadata(objects::VALIDATING_WEBHOOKS),
            webhooks: Some(vec![
                webhook(objects::MACHINE_VALIDATOR, machines("virtualmachines")),
                webhook(objects::INSTANCE_VALIDATOR, machines("virtualmachineinstances")),
                webhook(objects::INSTALLATION_VALIDATOR, machines("kubevirts")),
                webhook(objects::MIGRATION_VALIDATOR, migrations),
                webhook(objects::POLICY_VALIDATOR, policies),
                eviction,
                settings,
            ]),
        }
    }

    fn mutating(&self) -> MutatingWebhookConfiguration {
        let webhook = |name: &str, resource: &str| MutatingWebhook {
            name: name.to_owned(),
            admission_review_versions: vec!["v1".into()],
            client_config: self.client_config(MUTATE),
            failure_policy: Some("Fail".into()),
            rules: Some(vec![rule("kubevirt.io", resource, &["CREATE"])]),
            side_effects: "None".into(),
            timeout_seconds: Some(TIMEOUT),
            ..MutatingWebhook::default()
        };
        MutatingWebhookConfiguration {
            metadata: metadata(objects::MUTATING_WEBHOOKS),
            webhooks: Some(vec![
                webhook(objects::INSTANCE_MUTATOR, "virtualmachineinstances"),
                webhook(objects::MIGRATION_MUTATOR, "virtualmachineinstancemigrations"),
            ]),
        }
    }

    fn client_config(&self, path: &str) -> WebhookClientConfig {
        WebhookClientConfig {
            ca_bundle: Some(ByteString(self.authorities.clone().into_bytes())),
            service: Some(ServiceReference {
                name: self.service.clone(),
                namespace: self.namespace.clone(),
                path: Some(path.to_owned()),
                port: Some(i32::from(self.port)),
            }),
            url: None,
        }
    }
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn rule(group: &str, resource: &str, operations: &[&str]) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["v1".into()]),
        operations: Some(operations.iter().map(|operation| (*operation).to_owned()).collect()),
        resources: Some(vec![resource.to_owned()]),
        scope: Some("Namespaced".into()),
    }
}

async fn put<K: Object>(api: &Api<K>, object: &K) -> Result<(), Error> {
    let name = object.meta().name.clone().unwrap_or_default();
    let params = PatchParams::apply(objects::CONTROLLER).force();
    api.patch(&name, &params, &Patch::Apply(object))
        .await
        .map_err(Error::api("applying", describe(object)))?;
    Ok(())
}
