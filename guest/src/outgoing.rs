//! Connections that the guest opens and keeps: a line goes out at an interval, lines that come in are counted.
//!
//! By them a test sees from inside whether a connection survived, and how long nothing came.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::control::Connect;
use crate::{lock, millis};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    pub to: SocketAddr,
    pub sent: u64,
    pub received: u64,
    /// Between two lines that came in.
    pub longest_silence_ms: u64,
    /// Why it is no longer open.
    pub closed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {to}: {cause}")]
pub struct CannotConnect {
    to: SocketAddr,
    cause: String,
}

#[derive(Debug, Default)]
pub struct Outgoing(Mutex<Vec<Arc<Mutex<Connection>>>>);

impl Outgoing {
    /// Opens a connection, and gives its number.
    pub fn open(&self, asked: &Connect) -> Result<usize, CannotConnect> {
        let to = asked.to;
        let failed = |cause: io::Error| CannotConnect { to, cause: cause.to_string() };
        let stream = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let other = stream.try_clone().map_err(failed)?;
        let connection = Arc::new(Mutex::new(Connection {
            to,
            sent: 0,
            received: 0,
            longest_silence_ms: 0,
            closed: None,
        }));
        let every = Duration::from_millis(asked.every_ms.max(1));
        let (sender, receiver) = (Arc::clone(&connection), Arc::clone(&connection));
        std::thread::spawn(move || close(&sender, send(&stream, every, &sender)));
        std::thread::spawn(move || close(&receiver, receive(other, &receiver)));
        let mut all = lock(&self.0);
        all.push(connection);
        Ok(all.len() - 1)
    }

    pub fn connections(&self) -> Vec<Connection> {
        lock(&self.0).iter().map(|connection| lock(connection).clone()).collect()
    }
}

/// The first reason stays: the other direction only follows.
fn close(connection: &Mutex<Connection>, result: io::Result<()>) {
    let reason =
        result.err().map_or_else(|| "the other side closed it".to_owned(), |cause| cause.to_string());
    lock(connection).closed.get_or_insert(reason);
}

fn send(mut stream: &TcpStream, every: Duration, connection: &Mutex<Connection>) -> io::Result<()> {
    let start = Instant::now();
    while lock(connection).closed.is_none() {
        let sequence = lock(connection).sent;
        stream.write_all(format!("{sequence} {}\n", millis(start)).as_bytes())?;
        lock(connection).sent += 1;
        std::thread::sleep(every);
    }
    Ok(())
}

fn receive(stream: TcpStream, connection: &Mutex<Connection>) -> io::Result<()> {
    let mut last = Instant::now();
    for line in BufReader::new(stream).lines() {
        line?;
        let mut connection = lock(connection);
        connection.received += 1;
        connection.longest_silence_ms = connection.longest_silence_ms.max(millis(last));
        last = Instant::now();
    }
    Ok(())
}
