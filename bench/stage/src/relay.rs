//! Our own two sides, each a process of its own as on two nodes.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use identity::Identity;
use tunnel::{
    Channel, Credentials, Dialler, Listener, Migration, Registrations, Route, Source, Target, Token,
};

use crate::{SOURCE, Stage, TARGET, member, until};

/// The port of the tunnel.
pub const PORT: u16 = 9186;

/// What a benchmark of the tunnel starts itself as.
#[derive(Subcommand)]
pub enum Internal {
    /// One side of our tunnel, as a process: started by the benchmark itself
    #[command(hide = true)]
    Relay(Relay),
}

/// One side, as the command line has it.
#[derive(Args)]
pub struct Relay {
    side: String,
    from: String,
    to: String,
    /// Where certificates are
    directory: PathBuf,
    /// Without TLS, with this token
    #[arg(long)]
    token: Option<Token>,
}

/// What starts both sides, the target's first: from the unix socket `entrance` to the unix socket `exit`. This program must have the
/// subcommand `relay`.
pub fn commands(
    stage: &Stage,
    entrance: &Path,
    exit: &Path,
    token: Option<&Token>,
) -> Result<[Vec<String>; 2]> {
    let this = std::env::current_exe()?.display().to_string();
    let address = format!("{TARGET}:{PORT}");
    let side = |side: &str, from: String, to: String| {
        let directory = stage.directory().display().to_string();
        let mut command = vec![this.clone(), "relay".to_owned(), side.to_owned(), from, to, directory];
        command.extend(token.into_iter().flat_map(|token| ["--token".to_owned(), token.reveal()]));
        command
    };
    let (entrance, exit) = (entrance.display().to_string(), exit.display().to_string());
    Ok([side("target", address.clone(), exit), side("source", entrance, address)])
}

/// Waits until both sides can be connected to.
pub fn await_ready(stage: &Stage, entrance: &Path) -> Result<()> {
    until(|| {
        stage.source.run(|| TcpStream::connect((TARGET, PORT)))??;
        UnixStream::connect(entrance)?;
        Ok(())
    })
}

/// Is that side until it is killed.
pub async fn run(relay: Relay) -> Result<()> {
    let credentials = match &relay.token {
        Some(_) => Credentials::plain(),
        None => credentials(&relay.directory, &relay.side)?,
    };
    let route = Route::new(Migration::new("bench")?, Channel::MEMORY);
    if relay.side == "source" {
        let target = Target { address: relay.to.parse()?, member: member("target")?, token: relay.token };
        let forward = Dialler::new(SOURCE, credentials).forward(Path::new(&relay.from), target, route)?;
        std::future::pending::<()>().await;
        drop(forward);
        return Ok(());
    }
    let registrations = Registrations::default();
    let source = match relay.token {
        Some(token) => Source::Token { token, address: SOURCE },
        None => Source::Certificate(member("source")?),
    };
    let _registration =
        registrations.register(route.migration, source, [(route.channel, relay.to.into())])?;
    let address: SocketAddr = relay.from.parse()?;
    Listener::bind(address, credentials, Arc::new(registrations))?.run(std::future::pending()).await;
    Ok(())
}

fn credentials(directory: &Path, side: &str) -> Result<Credentials> {
    let read =
        |name: &str| std::fs::read_to_string(directory.join(name)).with_context(|| format!("reading {name}"));
    let identity =
        Identity { certificate: read(&format!("{side}.crt"))?, key: read(&format!("{side}.key"))? };
    Ok(Credentials::tls(&identity, &[&read("authority.pem")?])?)
}
