//! One QEMU, in one of the two namespaces, and the two ways to talk to it: QMP to the machine, the control service to its guest.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bench_stage::{Process, Stage};
use serde_json::{Value, json};

/// Becomes QEMU in the launcher's image, which has the version that production runs. `/mnt` is the directory of the run.
const ENTER: &str = r#"
set -e
directory=$1 rootfs=$2
shift 2
ip link set lo up
mount --bind "$directory" "$rootfs/mnt"
mount --bind /dev "$rootfs/dev"
exec chroot "$rootfs" qemu-system-x86_64 "$@"
"#;

/// How the directory of the run is called in there.
pub const INSIDE: &str = "/mnt";
/// Where the guest's control service can be reached, in the namespace of its QEMU.
const CONTROL: &str = "127.0.0.1:7002";
/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a guest is made of.
pub struct Image {
    pub rootfs: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

impl Image {
    /// As the project's set-up says.
    pub fn find() -> Result<Self> {
        let find = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).with_context(|| {
                format!("{name} is not set: run `tools/setup vm`, then `eval \"$(tools/setup --print-env)\"`")
            })
        };
        Ok(Self {
            rootfs: find("GODWIT_LAUNCHER_IMAGE")?.join("rootfs"),
            kernel: find("GODWIT_GUEST_KERNEL")?,
            initrd: find("GODWIT_GUEST_INITRD")?,
        })
    }

    /// Puts the kernel where QEMU finds it.
    pub fn bring(&self, stage: &Stage) -> Result<()> {
        for (from, name) in [(&self.kernel, "vmlinuz"), (&self.initrd, "initrd")] {
            std::fs::copy(from, stage.path(name)).with_context(|| format!("copying {}", from.display()))?;
        }
        Ok(())
    }
}

pub struct Qemu<'a> {
    stage: &'a Stage,
    side: &'static str,
    qmp: Qmp,
    process: Process,
}

impl<'a> Qemu<'a> {
    /// Starts it. The source boots its guest; the target waits for one, with all its memory there already: to make each page as it
    /// comes would take longer than to send it, whoever sends it.
    pub fn start(stage: &'a Stage, image: &Image, side: &'static str, mebibytes: u32) -> Result<Self> {
        let socket = stage.path(&format!("{side}.qmp"));
        // Left by the last one, if any.
        let _ = std::fs::remove_file(&socket);
        let (namespace, incoming) = match side {
            "source" => (&stage.source, ""),
            // What arrives stands still until it is let run, as in a launcher.
            _ => (&stage.target, "-S -incoming defer"),
        };
        let prealloc = if incoming.is_empty() { "off" } else { "on" };
        let arguments = format!(
            "-machine q35,memory-backend=ram -cpu qemu64 -m {mebibytes} -nodefaults -display none -monitor none \
             -object memory-backend-memfd,id=ram,size={mebibytes}M,prealloc={prealloc} \
             -netdev user,id=net,hostfwd=tcp:{CONTROL}-:7002 -device virtio-net-pci,netdev=net \
             -kernel {INSIDE}/vmlinuz -initrd {INSIDE}/initrd -serial file:{INSIDE}/{side}.serial \
             -qmp unix:{INSIDE}/{side}.qmp,server=on,wait=off {incoming}"
        );
        let directory = stage.directory().display().to_string();
        let rootfs = image.rootfs.display().to_string();
        let enter = ["unshare", "--mount", "sh", "-c", ENTER, "enter", &directory, &rootfs];
        let command = enter.into_iter().chain(arguments.split_whitespace());
        let kernel = ["-append", "console=ttyS0 quiet no_timer_check"];
        let command: Vec<String> = command.chain(kernel).map(str::to_owned).collect();
        let mut process = stage.start(namespace, &format!("{side}-qemu"), &command)?;
        let qmp = Qmp::open(&socket, &mut process)
            .with_context(|| format!("QEMU of the {side}: {}", stage.log(&format!("{side}-qemu"))))?;
        Ok(Self { stage, side, qmp, process })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// One command to QEMU.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.qmp.ask(command, arguments).with_context(|| self.said(command))
    }

    /// The moment, in seconds, of the first event that fits, of those that nobody asked for yet.
    pub fn event(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<f64> {
        let moment = self.qmp.event(what, PATIENCE, fits).with_context(|| self.said(what))?;
        moment.with_context(|| format!("{what} did not come within {PATIENCE:?}"))
    }

    /// The same; none: it has not come within this time.
    pub fn event_within(
        &mut self,
        what: &str,
        limit: Duration,
        fits: impl Fn(&Value) -> bool,
    ) -> Result<Option<f64>> {
        self.qmp.event(what, limit, fits).with_context(|| self.said(what))
    }

    /// Forgets what happened so far.
    pub fn forget_events(&mut self) {
        self.qmp.events.clear();
        self.qmp.stopped = None;
    }

    /// When the guest stopped, since that was asked for.
    pub fn stopped(&self) -> Option<f64> {
        self.qmp.stopped
    }

    fn said(&self, about: &str) -> String {
        format!("{about}, {}: {}", self.side, self.stage.log(&format!("{}-qemu", self.side)))
    }

    /// One request to the guest, which is waited for until it has booted.
    pub fn guest(&self, request: &Value) -> Result<Value> {
        let namespace = if self.side == "source" { &self.stage.source } else { &self.stage.target };
        let deadline = Instant::now() + PATIENCE;
        let line = loop {
            match namespace.run(|| control(request))? {
                Ok(line) if !line.is_empty() => break line,
                Ok(_) | Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
                Ok(_) => bail!("the guest hangs up on {request}"),
                Err(error) => return Err(error).context("the guest does not answer"),
            }
        };
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["ok"] == true, "the guest answers {request} with {answer}");
        Ok(answer)
    }
}

fn control(request: &Value) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(CONTROL)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// QEMU's own protocol: JSON lines, events between the answers.
struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// The beginning of a line whose rest has not come yet.
    begun: String,
    events: VecDeque<Value>,
    stopped: Option<f64>,
}

impl Qmp {
    fn open(socket: &Path, process: &mut Process) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) => ensure!(Instant::now() < deadline, "{}: {error}", socket.display()),
            }
            process.check()?;
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut qmp = Self {
            reader: BufReader::new(stream.try_clone()?),
            writer: stream,
            begun: String::new(),
            events: VecDeque::new(),
            stopped: None,
        };
        ensure!(qmp.read()?.get("QMP").is_some(), "this is no QMP");
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    fn read(&mut self) -> Result<Value> {
        self.read_within(PATIENCE)?.context("QEMU is silent")
    }

    /// The next line; none: it has not come within this time.
    fn read_within(&mut self, limit: Duration) -> Result<Option<Value>> {
        self.writer.set_read_timeout(Some(limit))?;
        match self.reader.read_line(&mut self.begun) {
            Ok(0) => bail!("QEMU hung up"),
            Ok(_) => Ok(Some(serde_json::from_str(&std::mem::take(&mut self.begun))?)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.writer.write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU answers {request} with {error}");
            }
            match answer.get_mut("return") {
                Some(value) => return Ok(value.take()),
                None => self.events.push_back(answer),
            }
        }
    }

    fn event(&mut self, what: &str, limit: Duration, fits: impl Fn(&Value) -> bool) -> Result<Option<f64>> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let next =
                self.events.pop_front().map_or_else(|| self.read_within(left), |event| Ok(Some(event)));
            let Some(event) = next? else { return Ok(None) };
            let part = |name: &str| event["timestamp"][name].as_f64().context("an event has a time");
            let moment = part("seconds")? + part("microseconds")? / 1e6;
            if event["event"] == "STOP" {
                self.stopped = Some(moment);
            }
            if fits(&event) {
                return Ok(Some(moment));
            }
            ensure!(event["data"]["status"] != "failed", "{what} did not come: the move failed");
        }
    }
}
