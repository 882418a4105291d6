//! A TCP proxy that cuts every connection through it when told: the network as a watch must survive it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Forwards connections to one address until dropped.
#[derive(Debug)]
pub struct Flaky {
    pub address: SocketAddr,
    cuts: Arc<watch::Sender<u64>>,
    accepting: AbortHandle,
}

impl Flaky {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let cuts = Arc::new(watch::Sender::new(0));
        let seen = Arc::clone(&cuts);
        let accepting = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = seen.subscribe();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        })
        .abort_handle();
        Self { address, cuts, accepting }
    }

    /// Cuts every connection that is open now; new ones are welcome.
    pub fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}

impl Drop for Flaky {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}
