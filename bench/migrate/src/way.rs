//! The ways that a guest can take: QEMU's own two, and ours.

use anyhow::{Context as _, Result};
use bench_stage::{Process, Stage, TARGET, relay};
use migration::Pace;
use serde::Serialize;
use serde_json::{Value, json};

use crate::qemu::{INSIDE, Qemu};

const PORT: u16 = 9187;
/// QEMU's name for its certificates.
const CREDENTIALS: &str = "tls0";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From QEMU to QEMU, readable by everybody on the way.
    Direct,
    /// From QEMU to QEMU, with QEMU's own TLS.
    QemuTls,
    /// Through the tunnel.
    Godwit,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Direct, Self::QemuTls, Self::Godwit];

    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::QemuTls => "qemu-tls",
            Self::Godwit => "godwit",
        }
    }

    /// What the source connects to, and what the target listens on.
    pub fn addresses(self) -> [String; 2] {
        match self {
            Self::Direct | Self::QemuTls => [format!("tcp:{TARGET}:{PORT}"), format!("tcp:{TARGET}:{PORT}")],
            Self::Godwit => ["entrance", "exit"].map(|name| format!("unix:{INSIDE}/{name}")),
        }
    }

    /// The bytes a second that QEMU is to count on when the move begins; 0: what it thinks itself.
    pub fn counts_on(self) -> u64 {
        if self == Self::Godwit { Pace::BEGINNING } else { 0 }
    }

    /// What QEMU is told about TLS: `endpoint` is `client` at the source and `server` at the target.
    pub fn secure(self, qemu: &mut Qemu<'_>, endpoint: &str) -> Result<Value> {
        // An empty name is none: QEMU keeps parameters from one move to the next.
        if self != Self::QemuTls {
            return Ok(json!({ "tls-creds": "", "tls-hostname": "" }));
        }
        let objects = qemu.ask("qom-list", &json!({ "path": "/objects" }))?;
        let made =
            objects.as_array().is_some_and(|all| all.iter().any(|object| object["name"] == CREDENTIALS));
        if !made {
            let credentials = json!({
                "qom-type": "tls-creds-x509", "id": CREDENTIALS, "endpoint": endpoint,
                "dir": format!("{INSIDE}/pki"), "verify-peer": true, "priority": "NORMAL:-VERS-ALL:+VERS-TLS1.3",
            });
            qemu.ask("object-add", &credentials)?;
        }
        Ok(json!({ "tls-creds": CREDENTIALS, "tls-hostname": "target" }))
    }
}

/// Both sides of the tunnel, as on two nodes: they are there before the first guest moves.
pub fn start_tunnel(stage: &Stage) -> Result<[Process; 2]> {
    let entrance = stage.path("entrance");
    let [target, source] = relay::commands(stage, &entrance, &stage.path("exit"), None)?;
    let relays =
        [stage.start(&stage.target, "target", &target)?, stage.start(&stage.source, "source", &source)?];
    relay::await_ready(stage, &entrance)
        .with_context(|| format!("{}{}", stage.log("target"), stage.log("source")))?;
    Ok(relays)
}

/// The certificates of the run under the names that QEMU looks for.
pub fn write_certificates(stage: &Stage) -> Result<()> {
    let directory = stage.path("pki");
    std::fs::create_dir(&directory)?;
    let names = [
        ("authority.pem", "ca-cert.pem"),
        ("source.crt", "client-cert.pem"),
        ("source.key", "client-key.pem"),
        ("target.crt", "server-cert.pem"),
        ("target.key", "server-key.pem"),
    ];
    for (from, to) in names {
        std::fs::copy(stage.path(from), directory.join(to))?;
    }
    Ok(())
}
