//! Our own two sides, each a process of its own as on two nodes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use identity::Identity;
use tunnel::{
    Channel, Credentials, Dialler, Listener, Migration, Registrations, Route, Source, Target, Token,
};

use crate::stage::{SOURCE, member};

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
