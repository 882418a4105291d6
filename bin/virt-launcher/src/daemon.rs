//! libvirtd: its configuration, its process, and its return after it died.
//!
//! The configuration is written here and not in the image, so that what the launcher relies on is in one place. libvirtd is a child of
//! the launcher; QEMU is not a child of libvirtd, and outlives it.
//!
//! Its socket is in the directory that launcher and handler share: at the target of a move, the calls of the source's libvirtd come in
//! there by way of the handler. Nobody but root reaches it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use launcher::hypervisor::QEMU_USER;
use tracing::{info, warn};

const PROGRAM: &str = "/usr/sbin/libvirtd";
/// libvirt looks for it here and nowhere else.
const QEMU_CONFIGURATION: &str = "/etc/libvirt/qemu.conf";
/// What Linux makes a new random UUID of, whenever it is read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";
/// From its start to its first answer.
const START_DEADLINE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The process; there is none before the first start.
#[derive(Debug)]
pub struct Daemon {
    configuration: PathBuf,
    socket: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// Writes the configuration, into the launcher's own directory; the socket will be in the shared one.
    pub fn configure(directory: &Path, private: &Path) -> anyhow::Result<Self> {
        let configuration = directory.join("libvirtd.conf");
        let socket = private.join(wire::HYPERVISOR_SOCKET);
        let sockets = socket.parent().unwrap_or(private);
        fs::create_dir_all(sockets)
            .and_then(|()| fs::set_permissions(sockets, fs::Permissions::from_mode(0o700)))
            .with_context(|| format!("making {}", sockets.display()))?;
        let uuid = fs::read_to_string(RANDOM_UUID).context("making a UUID")?;
        write(&configuration, &daemon_configuration(sockets, uuid.trim()))?;
        write(Path::new(QEMU_CONFIGURATION), &qemu_configuration())?;
        Ok(Self { configuration, socket, child: None })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts it unless it runs, and waits until it answers.
    pub fn ensure(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child {
            match child.try_wait().context("looking at libvirtd")? {
                None => return self.wait_for_answer(),
                Some(status) => warn!(%status, "libvirtd died; it is started again"),
            }
        }
        let child = Command::new(PROGRAM)
            .arg("--config")
            .arg(&self.configuration)
            // The locale of whoever started us need not be there.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .spawn()
            .with_context(|| format!("starting {PROGRAM}"))?;
        info!(pid = child.id(), "libvirtd starts");
        self.child = Some(child);
        self.wait_for_answer()
    }

    fn wait_for_answer(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while let Err(error) = UnixStream::connect(&self.socket) {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose()) {
                self.child = None;
                anyhow::bail!("libvirtd ended at once: {}", status?);
            }
            if begun.elapsed() > START_DEADLINE {
                return Err(error)
                    .with_context(|| format!("libvirtd does not listen at {}", self.socket.display()));
            }
            // A socket says nothing when it begins to listen.
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Ends it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let ended = child.kill().and_then(|()| child.wait());
            if let Err(error) = ended {
                warn!(%error, "libvirtd does not end");
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Who reaches the socket is root already. The identity is the launcher's own and not the machine's: libvirt refuses to move a guest to where
/// it is, and two launchers may well be on one machine.
fn daemon_configuration(sockets: &Path, uuid: &str) -> String {
    // Errors only: it warns of much that a pod does not have.
    format!(
        "unix_sock_dir = \"{}\"\nunix_sock_rw_perms = \"0700\"\nunix_sock_ro_perms = \"0700\"\n\
         auth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\nhost_uuid = \"{uuid}\"\nlog_outputs = \"4:stderr\"\n",
        sockets.display()
    )
}

/// A user without rights, and nothing that a pod has not: no cgroup of one's own, no security module, no mounts, no second
/// daemon for QEMU's output. Files are given to that user by the launcher. Volumes of the user's are where the target of a move finds them
/// too: who lets a guest move has seen to that.
fn qemu_configuration() -> String {
    format!(
        "user = \"+{QEMU_USER}\"\ngroup = \"+{QEMU_USER}\"\ndynamic_ownership = 0\nremember_owner = 0\n\
         security_driver = \"none\"\ncgroup_controllers = []\nnamespaces = []\nstdio_handler = \"file\"\n\
         shared_filesystems = [ \"{}\" ]\n",
        api::names::paths::DISKS
    )
}
