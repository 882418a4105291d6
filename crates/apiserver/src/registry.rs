//! What requests mean: reading, writing and watching objects of any kind.
//!
//! A handler reads one [`View`](crate::store::View) of the store and decides; a write is committed only if the object is
//! still as it was read. Nothing here knows a kind by name except `special`, which holds the few rules that need
//! more than one object.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::admission::Webhooks;
use crate::auth::Auth;
use crate::http::negotiate::Accept;
use crate::http::reply::Reply;
use crate::http::{Call, status};
use crate::kinds::{Kind, Kinds};
use crate::object;
use crate::schema::{defaults, prune};
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, Store, Stored};
use crate::{kinds, table};

mod connect;
mod delete;
mod metadata;
mod modify;
mod node;
mod patching;
mod pods;
mod read;
mod reviews;
mod service_accounts;
mod special;
mod subresource;
mod watch;
mod write;

pub(crate) use delete::{FOREGROUND, ORPHAN, Options as DeleteOptions};
pub use node::NodeClient;

/// What is asked of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// As discovery writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

pub struct Registry {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) auth: Auth,
    pub(crate) webhooks: Webhooks,
    pub(crate) nodes: Option<NodeClient>,
    /// Where clients reach this server; known once it listens.
    address: RwLock<String>,
    /// The certificate that clients trust, as PEM; empty for a server without TLS.
    authority: String,
    /// Whether pods get an account and its token.
    service_accounts: bool,
    /// Turns true when the server stops: watches end then.
    stopping: tokio::sync::watch::Sender<bool>,
}

impl Registry {
    pub(crate) fn new(
        store: Store,
        kinds: Kinds,
        auth: Auth,
        webhooks: Webhooks,
        nodes: Option<NodeClient>,
        authority: String,
        service_accounts: bool,
    ) -> Self {
        Self {
            store,
            kinds,
            auth,
            webhooks,
            nodes,
            address: RwLock::default(),
            authority,
            service_accounts,
            stopping: tokio::sync::watch::Sender::new(false),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_address(&self, address: String) {
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub(crate) fn certificate_authority(&self) -> &str {
        &self.authority
    }

    /// Ends every watch, so that connections drain.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) async fn handle(self: &Arc<Self>, call: Call) -> ApiResult<Reply> {
        let route = &call.route;
        let table = self.kinds.load();
        let kind = table
            .get(&route.group, &route.version, &route.plural)
            .ok_or_else(|| table.not_served(&route.group, &route.version))?;
        // A list may span namespaces; everything else must be as the kind is scoped.
        let spans = kind.namespaced && route.namespace.is_none();
        let misplaced = !kind.namespaced && route.namespace.is_some();
        let is_list = matches!(call.verb, Verb::List | Verb::Watch) && route.name.is_none();
        if misplaced && kind.custom.is_some() && route.name.is_some() {
            return Err(kind.not_found(route.name()));
        }
        // A built-in kind has a URL across namespaces, which only lists; a custom one has none.
        if spans && !is_list && route.name.is_none() && kind.custom.is_none() && kind.verbs() != ["create"] {
            return Err(ApiError::method_not_allowed());
        }
        if misplaced || (spans && !is_list && kind.verbs() != ["create"]) {
            return Err(table.not_served(&route.group, &route.version));
        }
        if !route.subresource.is_empty() {
            return self.subresource(&call, kind).await;
        }
        if kind.verbs() == ["create"] {
            return match call.verb {
                Verb::Create => self.review(&call, kind),
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        if !kind.verbs().contains(&call.verb.name()) {
            return Err(ApiError::method_not_allowed());
        }
        let mut reply = match call.verb {
            Verb::Get => self.get(&call, kind).await,
            Verb::List => self.list(&call, kind).await,
            Verb::Watch => self.watch(&call, kind),
            Verb::Create => self.create(&call, kind).await,
            Verb::Update => self.replace(&call, kind).await,
            Verb::Patch => self.patch(&call, kind).await,
            Verb::Delete => self.delete(&call, kind).await,
            Verb::DeleteCollection => self.delete_collection(&call, kind).await,
        }?;
        reply.warnings.extend(kind.custom.as_ref().and_then(|custom| custom.deprecation_warning.clone()));
        Ok(reply)
    }

    /// A whole object as the answer, in the form that the client wants.
    fn reply(call: &Call, kind: &Kind, object: Value, created: bool) -> ApiResult<Reply> {
        let shown = match call.accept {
            Accept::Object => object,
            Accept::PartialMetadata => table::partial_metadata(&object),
            Accept::Table => {
                let meta = serde_json::json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                table::render(
                    kind,
                    &[object],
                    &meta,
                    table::IncludeObject::parse(call.query.text("includeObject"))?,
                    true,
                )
            }
        };
        Ok(Reply::json(status(created), &shown))
    }
}

/// `namespace/name`, or `name`.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// Whether what is stored can be shown as it is.
pub(crate) fn is_verbatim(kind: &Kind) -> bool {
    kind.api_version() == kind.storage_api_version
        && !kind.custom.as_ref().is_some_and(|custom| custom.default_on_read)
}

/// A stored object as this version of the kind shows it.
pub(crate) fn present(kind: &Kind, stored: &Stored) -> Value {
    let mut object = stored.value();
    if !is_verbatim(kind) {
        present_value(kind, &mut object);
    }
    object
}

fn present_value(kind: &Kind, object: &mut Value) {
    let map = object::as_map_mut(object);
    map.insert("apiVersion".into(), kind.api_version().into());
    map.insert("kind".into(), kind.kind.clone().into());
    kinds::strategy::present(kind, object);
    if kind.custom.is_some() {
        prune::prune(kind.schema.get(), object);
        defaults::apply(kind.schema.get(), object);
    }
}

/// What a client sent, as it is stored. Another version than the stored one keeps only what that one knows.
pub(crate) fn absorb(kind: &Kind, mut object: Value) -> ApiResult<Value> {
    if let Some(stored) = kind.custom.as_ref().and_then(|custom| custom.storage_schema.as_ref()) {
        prune::prune(stored.get(), &mut object);
    }
    let map = object::as_map_mut(&mut object);
    map.insert("apiVersion".into(), kind.storage_api_version.clone().into());
    map.insert("kind".into(), kind.kind.clone().into());
    kinds::strategy::absorb(kind, &mut object)?;
    Ok(object)
}
