//! The plugin on a node: its file where runtimes look for plugins, a kubeconfig that root alone reads, and the keeper that it asks.
//!
//! Run by a pod on every node, whose service account the plugin acts for. The account's token is short-lived and replaced by the
//! kubelet: the kubeconfig follows it. Every file is there whole or as it was. What was installed stays when the pod ends: interfaces
//! that are there must be given back.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::keeper;
use crate::log::{Level, Log};

/// How often it is looked whether everything is as it should be. A token is replaced long before it ends.
const PERIOD: Duration = Duration::from_secs(10);
/// Less than a connection is kept that nobody uses.
const AWAKE: Duration = Duration::from_mins(1);
const KUBECONFIG: &str = "godwit.kubeconfig";

/// What is installed, from where, to where.
#[derive(Clone, Debug)]
pub struct Installation {
    /// This program.
    pub program: PathBuf,
    /// Where runtimes look for plugins.
    pub plugins: PathBuf,
    /// Under which names.
    pub names: Vec<String>,
    /// Where the plugin looks for its kubeconfig.
    pub settings: PathBuf,
    /// What a pod is given of its service account.
    pub account: PathBuf,
    /// The API server's URL.
    pub server: String,
}

/// Why something could not be put in its place.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be installed", path.display())]
pub struct InstallError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Installation {
    /// Installs, and keeps it so until the process is told to end.
    pub fn run(&self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut told = signal(SignalKind::terminate())?;
            tokio::select! { () = self.keep() => {}, () = self.be_asked() => {}, _ = told.recv() => {} }
            Ok(())
        })
    }

    /// Answers plugins. What fails is told and tried again; until then they ask the API server themselves.
    async fn be_asked(&self) {
        let log = Log { file: None, level: Level::Error, about: "keeper".to_owned() };
        let socket = self.settings.join(keeper::SOCKET);
        loop {
            let Err(error) = self.answer_at(&socket).await;
            log.tell(Level::Error, format!("{} is not served: {error}", socket.display()));
            sleep(PERIOD).await;
        }
    }

    async fn answer_at(&self, socket: &Path) -> io::Result<Infallible> {
        fs::create_dir_all(&self.settings)?;
        let mut config = Config::new(self.server.parse().map_err(io::Error::other)?);
        // Both are files that are replaced, and read again.
        config.root_cert_file = Some(self.account.join("ca.crt"));
        config.auth_info.token_file = Some(self.account.join("token").display().to_string());
        let client = Client::try_from(config).map_err(io::Error::other)?;
        tokio::select! { failed = keeper::serve(socket, client.clone()) => failed, never = stay_awake(client) => match never {} }
    }

    /// What fails is told and tried again.
    async fn keep(&self) {
        let log = Log { file: None, level: Level::Error, about: "install".to_owned() };
        let mut turns = interval(PERIOD);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            if let Err(error) = self.once() {
                log.tell(Level::Error, format!("{error}: {}", error.source));
            }
        }
    }

    /// Puts in place what is not there, or not as it should be. The kubeconfig first: a plugin without one is of no use.
    pub fn once(&self) -> Result<(), InstallError> {
        let path = self.settings.join(KUBECONFIG);
        let failed = |source| InstallError { path: path.clone(), source };
        let wanted = self.kubeconfig().map_err(failed)?;
        put(&path, wanted.as_bytes(), 0o600).map_err(failed)?;
        for name in &self.names {
            let path = self.plugins.join(name);
            let failed = |source| InstallError { path: path.clone(), source };
            if !self.is_newer(&path, 0o755).map_err(failed)? {
                let program = fs::read(&self.program).map_err(failed)?;
                put(&path, &program, 0o755).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Whether what is there was put there after this program was made: it need not be read every time.
    fn is_newer(&self, path: &Path, mode: u32) -> io::Result<bool> {
        let ours = fs::metadata(&self.program)?;
        Ok(fs::metadata(path).is_ok_and(|there| {
            there.permissions().mode() & 0o7777 == mode
                && there.len() == ours.len()
                && matches!((there.modified(), ours.modified()), (Ok(there), Ok(ours)) if there > ours)
        }))
    }

    /// Whether the plugin could be called.
    pub fn is_done(&self) -> bool {
        let plugins = self.names.iter().map(|name| self.plugins.join(name));
        plugins.chain([self.settings.join(KUBECONFIG)]).all(|path| path.exists())
    }

    fn kubeconfig(&self) -> io::Result<String> {
        let token = fs::read_to_string(self.account.join("token"))?;
        let authority = fs::read(self.account.join("ca.crt"))?;
        let name = "godwit";
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{ "name": name, "cluster": {
                "server": self.server, "certificate-authority-data": STANDARD.encode(authority),
            }}],
            "users": [{ "name": name, "user": { "token": token.trim() } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        });
        Ok(format!("{config:#}\n"))
    }
}

/// Asks now and then, so that the one who needs an address after a quiet hour does not wait for a connection, and that a road that leads
/// nowhere is told before.
async fn stay_awake(client: Client) -> Infallible {
    let log = Log { file: None, level: Level::Error, about: "keeper".to_owned() };
    let mut turns = interval(AWAKE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        if let Err(error) = client.apiserver_version().await {
            log.tell(Level::Error, format!("the API server does not answer: {error}"));
        }
    }
}

/// A file with this content and mode, whole: whoever runs or reads it sees the old one or the new.
fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let same = fs::metadata(path).is_ok_and(|there| {
        there.permissions().mode() & 0o7777 == mode && there.len() == content.len() as u64
    });
    if same && fs::read(path)? == content {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    // One pod a node installs, so nobody else writes to that name; runtimes pass over files that begin with a dot.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = directory.join(format!(".{name}.partial"));
    // Of one that was left behind, neither content nor mode is to be kept.
    match fs::remove_file(&partial) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_installed_is_whole_private_and_follows_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("account")).unwrap();
        for (name, content) in
            [("program", "first"), ("account/token", "one\n"), ("account/ca.crt", "authority")]
        {
            fs::write(at(name), content).unwrap();
        }
        let installation = Installation {
            program: at("program"),
            plugins: at("plugins"),
            names: vec!["godwit-ipam".to_owned(), "whereabouts".to_owned()],
            settings: at("settings"),
            account: at("account"),
            server: "https://192.0.2.1:6443".to_owned(),
        };
        assert!(!installation.is_done());
        installation.once().unwrap();
        assert!(installation.is_done());
        let kubeconfig = at("settings/godwit.kubeconfig");
        assert!(fs::read_to_string(&kubeconfig).unwrap().contains("\"token\": \"one\""));
        assert_eq!((mode(&kubeconfig), mode(&at("plugins/whereabouts"))), (0o600, 0o755));

        // Somebody opens it to all, the token is replaced, the program is a new one.
        fs::set_permissions(&kubeconfig, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(at("account/token"), "two").unwrap();
        fs::write(at("program"), "other").unwrap();
        fs::write(at("plugins/.godwit-ipam.partial"), "left behind by one that died").unwrap();
        installation.once().unwrap();
        assert!(fs::read_to_string(&kubeconfig).unwrap().contains("\"token\": \"two\""));
        assert_eq!(mode(&kubeconfig), 0o600);
        assert_eq!(fs::read_to_string(at("plugins/godwit-ipam")).unwrap(), "other");
        assert!(!at("plugins/.godwit-ipam.partial").exists());
        let before = fs::metadata(&kubeconfig).unwrap().modified().unwrap();
        installation.once().unwrap();
        assert_eq!(
            fs::metadata(&kubeconfig).unwrap().modified().unwrap(),
            before,
            "nothing to do, nothing done"
        );
    }
}
