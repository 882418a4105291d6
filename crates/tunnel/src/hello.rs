//! The first message of a TLS connection, read without taking part in it: which server is wanted, in which protocol.
//!
//! Listener and relay both look here first. The message is parsed by rustls; this file feeds it and keeps the bytes, so that they
//! can be given to whoever takes the connection on. It never answers, and never reads more than [`LONGEST`].

use std::io::Read;

use tokio_rustls::rustls::server::Acceptor;

use crate::route::{Route, RouteError};

/// The application protocol of the tunnel.
pub const PROTOCOL: &[u8] = b"godwit/1";

/// Nobody honest needs as much for a first message.
pub const LONGEST: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    #[error("it is not the beginning of a TLS connection")]
    NotTls,
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("it asks for no server by name")]
    NoServerName,
    #[error("it asks for a server that is no channel of a migration")]
    ServerName(#[source] RouteError),
    #[error("it does not speak godwit/1")]
    Protocol,
    #[error("it ends early, or cannot be read")]
    Read(#[source] std::io::Error),
}

/// A first message that asks for a channel of a migration.
#[derive(Debug)]
pub struct Hello {
    pub route: Route,
    /// Everything that was read, which may be more than the message.
    pub bytes: Vec<u8>,
}

impl Hello {
    pub fn read(from: &mut impl Read) -> Result<Self, HelloError> {
        let mut acceptor = Acceptor::default();
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let length = from.read(&mut piece).map_err(HelloError::Read)?;
            if length == 0 {
                return Err(HelloError::Read(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let piece = &piece[..length];
            bytes.extend_from_slice(piece);
            if bytes.len() > LONGEST {
                return Err(HelloError::TooLong);
            }
            if let Some(route) = feed(&mut acceptor, piece)? {
                return Ok(Self { route, bytes });
            }
        }
    }
}

fn feed(acceptor: &mut Acceptor, mut piece: &[u8]) -> Result<Option<Route>, HelloError> {
    while !piece.is_empty() {
        acceptor.read_tls(&mut piece).map_err(|_| HelloError::NotTls)?;
        let Some(accepted) = acceptor.accept().map_err(|_| HelloError::NotTls)? else {
            continue;
        };
        let hello = accepted.client_hello();
        let speaks = hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == PROTOCOL));
        let name = hello.server_name().ok_or(HelloError::NoServerName)?;
        let route = Route::from_server_name(name).map_err(HelloError::ServerName)?;
        return if speaks { Ok(Some(route)) } else { Err(HelloError::Protocol) };
    }
    Ok(None)
}
