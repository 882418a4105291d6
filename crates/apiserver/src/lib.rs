//! An embedded Kubernetes API server: what kube-rs and kubectl need, on one machine with nothing installed.
//!
//! ```text
//!  kubectl ── TLS ── serve ─┐                     ┌─ patch, apply, schema, selector, table …   (pure)
//!                           ├─ http ── registry ──┤
//!  kube::Client (in process)┘             │       └─ admission ── webhooks
//!                                         │
//!  controllers ───────────────────────── store ── one writer ── redb
//! ```
//!
//! Every kind is a row of a table and a schema; there is no handler per kind. Production is a real Kubernetes: what
//! Godwit does on this server must behave the same there, and the differential suite holds it to that.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub mod admission;
pub mod apply;
pub mod auth;
pub mod body;
pub mod crd;
pub mod discovery;
pub mod http;
pub mod kinds;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod status;
pub mod store;
pub mod table;

mod controllers;
mod credentials;
mod serve;

use admission::{ServiceResolver, Webhooks};
use auth::{Auth, User};
use credentials::Credentials;
use kinds::{KindTable, Kinds};
use registry::{NodeClient, Registry};
use store::Store;

/// How many events each resource's history keeps unless told otherwise.
pub const HISTORY: usize = 10_000;

/// How a server is set up. The default keeps everything in memory.
#[derive(Clone, Default)]
pub struct Options {
    /// Where the store and the keys are kept; none: in memory.
    pub data: Option<PathBuf>,
    /// How many events of each resource a watch can go back; none: [`HISTORY`].
    pub history: Option<usize>,
    /// Where webhooks that name a service are found.
    pub resolver: Option<Arc<ServiceResolver>>,
    /// Whether every pod gets a ServiceAccount and its token, as Kubernetes does by default.
    pub service_accounts: bool,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the data directory {path} cannot be made")]
    Directory {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the store cannot be opened")]
    Store(#[from] store::OpenError),
    #[error("the server's keys cannot be had")]
    Identity(#[from] identity::Error),
    #[error("the server's TLS set-up is not valid")]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("the server's certificates cannot be read back: {0}")]
    Certificate(String),
    #[error("nothing can listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the socket that was handed over cannot be used")]
    Adopt {
        #[source]
        source: std::io::Error,
    },
    #[error("the first objects cannot be written")]
    Bootstrap(#[from] status::ApiError),
}

/// A running server. Dropping it stops its controllers; clients in this process may outlive it, without them.
pub struct ApiServer {
    registry: Arc<Registry>,
    credentials: Credentials,
    _controllers: JoinSet<()>,
}

impl ApiServer {
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let history = options.history.unwrap_or(HISTORY);
        let (store, credentials) = match &options.data {
            None => (Store::memory(history)?, Credentials::generate()?),
            Some(path) => {
                let failed = |source| StartError::Directory { path: path.display().to_string(), source };
                std::fs::create_dir_all(path).map_err(failed)?;
                (Store::open(&path.join("store.redb"), history)?, Credentials::load_or_generate(path)?)
            }
        };
        let auth = Auth::new(&credentials.token_key);
        let webhooks = Webhooks::new(options.resolver.unwrap_or_else(|| Arc::new(|_| None)));
        let nodes = NodeClient::new(credentials.client_tls()?);
        let kinds = Kinds::new(KindTable::builtin());
        let authority = credentials.authority.certificate().to_owned();
        let registry = Arc::new(Registry::new(
            store,
            kinds,
            auth,
            webhooks,
            Some(nodes),
            authority,
            options.service_accounts,
        ));
        controllers::bootstrap(&registry).await?;
        controllers::restore_definitions(&registry);
        let controllers = controllers::start(&registry);
        Ok(Self { registry, credentials, _controllers: controllers })
    }

    /// The HTTP service, called as `user`.
    pub fn service(&self, user: User) -> http::Service {
        http::Service::new(self.registry.clone(), Some(Arc::new(user)))
    }

    /// A client without a socket, with every right.
    pub fn client(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.service(User::admin()), namespace)
    }

    /// Binds an address. Requests are answered once [`Listening::run`] is called.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, StartError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        self.serve(listener, address)
    }

    /// Serves on a socket that listens already, also one of another network namespace.
    pub fn adopt(&self, listener: std::net::TcpListener) -> Result<Listening, StartError> {
        let failed = |source| StartError::Adopt { source };
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.serve(TcpListener::from_std(listener).map_err(failed)?, address)
    }

    fn serve(&self, listener: TcpListener, address: SocketAddr) -> Result<Listening, StartError> {
        self.registry.set_address(address.to_string());
        Ok(Listening {
            tls: self.credentials.server_tls(address.ip())?,
            kubeconfig: self.credentials.kubeconfig(address)?,
            service: http::Service::new(self.registry.clone(), None),
            registry: self.registry.clone(),
            listener,
            address,
        })
    }
}

/// A bound address, ready to serve.
pub struct Listening {
    pub address: SocketAddr,
    /// For kubectl, with an administrator's certificate: a secret.
    pub kubeconfig: String,
    tls: Arc<tokio_rustls::rustls::ServerConfig>,
    service: http::Service,
    registry: Arc<Registry>,
    listener: TcpListener,
}

impl Listening {
    /// Serves until `stop` resolves; watches end then, and running requests are let finish.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let registry = self.registry.clone();
        let stop = async move {
            stop.await;
            registry.stop();
        };
        serve::run(self.listener, self.tls, self.service, stop).await;
    }
}
