//! What pods refer to that is not on the node: one small seam to the API.

use std::future::Future;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use crate::downward::Allocatable;

/// Why the API did not answer; the caller says what it was asked for.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A token of a service account, bound to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub value: String,
    pub expires: Timestamp,
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenOrder {
    pub namespace: String,
    pub service_account: String,
    /// None: the API server itself.
    pub audience: Option<String>,
    pub expiration_seconds: i64,
    /// Name and UID of the pod: the token ends with it.
    pub pod: String,
    pub uid: String,
}

/// Where objects and tokens come from. An object that does not exist is none, and no error.
pub trait Source: Sync {
    fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<ConfigMap>, SourceError>> + Send;

    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Secret>, SourceError>> + Send;

    fn token(&self, order: &TokenOrder) -> impl Future<Output = Result<Token, SourceError>> + Send;

    /// What the node has to give.
    fn allocatable(&self) -> Allocatable;
}

/// The API itself, and what the node has.
#[derive(Clone)]
pub struct ApiSource {
    pub client: kube::Client,
    pub allocatable: Allocatable,
}

impl Source for ApiSource {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, SourceError> {
        Ok(Api::namespaced(self.client.clone(), namespace).get_opt(name).await?)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, SourceError> {
        Ok(Api::namespaced(self.client.clone(), namespace).get_opt(name).await?)
    }

    async fn token(&self, order: &TokenOrder) -> Result<Token, SourceError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &order.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: order.audience.clone().map(|audience| vec![audience]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(order.pod.clone()),
                    uid: Some(order.uid.clone()),
                }),
                expiration_seconds: Some(order.expiration_seconds),
            }),
            ..TokenRequest::default()
        };
        let answer =
            accounts.create_token_request(&order.service_account, &PostParams::default(), &request).await?;
        let status = answer.status.unwrap_or_default();
        match (status.token, status.expiration_timestamp) {
            (Some(value), Some(expires)) => Ok(Token { value, expires: expires.0 }),
            _ => Err("the API server's answer holds no token".into()),
        }
    }

    fn allocatable(&self) -> Allocatable {
        self.allocatable
    }
}

/// The namespace that a pod's references are in.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}
