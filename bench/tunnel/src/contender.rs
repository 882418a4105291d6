//! Who is measured: each a pair of processes, one in each namespace, that lead from a unix socket here to a unix socket there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tunnel::Token;

use bench_stage::relay::{self, PORT};
use bench_stage::{Process, Stage, TARGET};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// TCP from namespace to namespace, nothing between.
    Direct,
    GodwitTls,
    GoTls,
    HaproxyTls,
    /// With larger buffers than its default.
    HaproxyTls64k,
    SocatTls,
    GodwitPlain,
    HaproxySplice,
    Socat,
}

impl Contender {
    pub const ALL: [Self; 9] = [
        Self::Direct,
        Self::GodwitTls,
        Self::GoTls,
        Self::HaproxyTls,
        Self::HaproxyTls64k,
        Self::SocatTls,
        Self::GodwitPlain,
        Self::HaproxySplice,
        Self::Socat,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::GodwitTls => "godwit-tls",
            Self::GoTls => "go-tls",
            Self::HaproxyTls => "haproxy-tls",
            Self::HaproxyTls64k => "haproxy-tls-64k",
            Self::SocatTls => "socat-tls",
            Self::GodwitPlain => "godwit-plain",
            Self::HaproxySplice => "haproxy-splice",
            Self::Socat => "socat",
        }
    }

    /// Whether what it needs is here.
    pub fn is_here(self) -> bool {
        let there = |tool: &str| {
            std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
        };
        match self {
            Self::Direct | Self::GodwitTls | Self::GodwitPlain => true,
            Self::GoTls => there("go"),
            Self::HaproxyTls | Self::HaproxyTls64k | Self::HaproxySplice => there("haproxy"),
            Self::SocatTls | Self::Socat => there("socat"),
        }
    }
}

/// A running pair.
pub struct Pair {
    processes: Vec<Process>,
}

impl Pair {
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// Starts both sides, and waits until the source's socket can be connected to. Nothing runs for [`Contender::Direct`].
    pub fn start(stage: &Stage, contender: Contender) -> Result<Self> {
        let entrance = stage.path("entrance");
        // Left by the last one, if any.
        let _ = std::fs::remove_file(&entrance);
        let sides = commands(stage, contender)?;
        let mut processes = Vec::new();
        for (namespace, command) in [&stage.target, &stage.source].into_iter().zip(&sides) {
            processes.push(stage.start(namespace, namespace.name(), command)?);
        }
        let mut pair = Self { processes };
        if contender != Contender::Direct {
            relay::await_ready(stage, &entrance).and_then(|()| pair.check()).with_context(|| {
                format!("{}: {}{}", contender.name(), stage.log("target"), stage.log("source"))
            })?;
        }
        Ok(pair)
    }
}

/// What to run: the target's side first.
fn commands(stage: &Stage, contender: Contender) -> Result<Vec<Vec<String>>> {
    let path = |name: &str| stage.path(name).display().to_string();
    let (entrance, exit, directory) =
        (path("entrance"), path("exit"), stage.directory().display().to_string());
    let address = format!("{TARGET}:{PORT}");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    Ok(match contender {
        Contender::Direct => Vec::new(),
        Contender::GodwitTls | Contender::GodwitPlain => {
            let token = (contender == Contender::GodwitPlain).then(Token::generate).transpose()?;
            relay::commands(stage, Path::new(&entrance), Path::new(&exit), token.as_ref())?.to_vec()
        }
        Contender::GoTls => {
            let relay = path("go-relay");
            vec![
                words(&[&relay, "target", &address, &exit, &directory]),
                words(&[&relay, "source", &entrance, &address, &directory]),
            ]
        }
        Contender::HaproxyTls | Contender::HaproxyTls64k | Contender::HaproxySplice => {
            let (target, source) = haproxy(contender, &address, &entrance, &exit, &directory);
            let (target_file, source_file) = (path("haproxy-target.cfg"), path("haproxy-source.cfg"));
            std::fs::write(&target_file, target)?;
            std::fs::write(&source_file, source)?;
            vec![
                words(&["haproxy", "-db", "-f", &target_file]),
                words(&["haproxy", "-db", "-f", &source_file]),
            ]
        }
        Contender::Socat => vec![
            words(&[
                "socat",
                "-b65536",
                &format!("TCP-LISTEN:{PORT},bind={TARGET},reuseaddr,fork,nodelay,backlog=128"),
                &format!("UNIX-CONNECT:{exit}"),
            ]),
            words(&[
                "socat",
                "-b65536",
                &format!("UNIX-LISTEN:{entrance},fork,backlog=128"),
                &format!("TCP:{address},nodelay"),
            ]),
        ],
        Contender::SocatTls => {
            let options = |side: &str| {
                format!(
                    "cert={directory}/{side}.pem,cafile={directory}/authority.pem,verify=1,nodelay,openssl-min-proto-version=TLS1.3"
                )
            };
            vec![
                words(&[
                    "socat",
                    "-b65536",
                    &format!(
                        "OPENSSL-LISTEN:{PORT},bind={TARGET},reuseaddr,fork,backlog=128,{}",
                        options("target")
                    ),
                    &format!("UNIX-CONNECT:{exit}"),
                ]),
                words(&[
                    "socat",
                    "-b65536",
                    &format!("UNIX-LISTEN:{entrance},fork,backlog=128"),
                    &format!("OPENSSL:{address},commonname=target,{}", options("source")),
                ]),
            ]
        }
    })
}

fn haproxy(
    contender: Contender,
    address: &str,
    entrance: &str,
    exit: &str,
    directory: &str,
) -> (String, String) {
    let tune = if contender == Contender::HaproxyTls64k { "tune.bufsize 65536" } else { "" };
    let splice = if contender == Contender::HaproxySplice { "option splice-auto" } else { "" };
    let tls = |side: &str| {
        if contender == Contender::HaproxySplice {
            return String::new();
        }
        format!(
            "ssl crt {directory}/{side}.pem ca-file {directory}/authority.pem verify required ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256"
        )
    };
    let file = |bind: &str, server: &str| {
        format!(
            "global\n  {tune}\ndefaults\n  mode tcp\n  {splice}\n  timeout connect 10s\n  timeout client 10m\n  timeout server 10m\n\
             listen relay\n  bind {bind}\n  server other {server}\n"
        )
    };
    let verify = if contender == Contender::HaproxySplice { "" } else { "sni str(target) verifyhost target" };
    (
        file(&format!("{address} {}", tls("target")), &format!("unix@{exit}")),
        file(&format!("unix@{entrance}"), &format!("{address} {} {verify}", tls("source"))),
    )
}

/// Builds the relay in Go, once.
pub fn build_go(stage: &Stage) -> Result<()> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(stage.path("go-relay"))
        .current_dir(sources)
        .env("CGO_ENABLED", "0")
        .output()
        .context("go build")?;
    anyhow::ensure!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
