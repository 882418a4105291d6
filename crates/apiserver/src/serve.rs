//! The server behind TLS: accepts connections, finds out who is calling, and hands requests to the service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::auth::User;
use crate::http::Service;

const HANDSHAKE: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until `stop` resolves, then lets running requests end.
pub(crate) async fn run(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: Service,
    stop: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                tokio::spawn(connection(stream, peer, acceptor.clone(), service.clone(), graceful.watcher()));
            }
            // Out of file descriptors, most likely: those that are open must end first.
            Err(cause) => {
                tracing::warn!(%cause, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not end in time and are cut");
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    service: Service,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Small answers matter more here than few packets.
    if let Err(cause) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %cause, "TCP_NODELAY could not be set");
    }
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(cause)) => return tracing::debug!(%peer, %cause, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "a TLS handshake took too long"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let caller = certificate.and_then(|der| User::from_certificate(der)).map(Arc::new);
    let service = TowerToHyperService::new(service.with_caller(caller));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1000);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    if let Err(cause) = watcher.watch(connection).await {
        tracing::debug!(%peer, %cause, "a connection ended early");
    }
}
