//! Where benchmarks of the tunnel happen: two namespaces with a veth pair between them, and the processes in them. All of it goes when it is dropped.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use identity::{Authority, Member, Subject};
use net::{Address, Handle, Namespace, Namespaces, NewLink, Peer};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

pub mod machine;
pub mod relay;

/// The address of the side that sends.
pub const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
/// The address of the side that receives.
pub const TARGET: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));

/// A benchmark, or the relay that it started itself as. `run` is given the stage and says whether the goals are met, or were not asked
/// for.
pub fn play(
    program: &str,
    command: Option<relay::Internal>,
    run: impl FnOnce(&Stage) -> Result<bool>,
) -> ExitCode {
    let played = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        if let Some(relay::Internal::Relay(relay)) = command {
            return runtime.block_on(relay::run(relay)).map(|()| true);
        }
        let stage = runtime.block_on(Stage::new())?;
        stage.strike_when_interrupted(&runtime)?;
        // On the main thread, to which the lives of all processes are tied.
        run(&stage)
    };
    end(program, played())
}

/// How a program ends that did what it should or not.
pub fn end(program: &str, outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Two nodes, as far as the tunnel knows.
pub struct Stage {
    /// Where memory comes from.
    pub source: Namespace,
    /// Where it goes.
    pub target: Namespace,
    namespaces: Namespaces,
    directory: tempfile::TempDir,
}

impl Stage {
    /// Makes it.
    pub async fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let namespaces = Namespaces::at(directory.path().join("netns"));
        let (source, target) = (namespaces.create("source")?, namespaces.create("target")?);
        // Made at once, so that it is taken down whatever fails below.
        let stage = Self { source, target, namespaces, directory };
        let (a, b) = (Handle::open(&stage.source)?, Handle::open(&stage.target)?);
        a.create_link(&NewLink::veth("eth0", Peer::new("eth0").namespace(&stage.target).up()).up()).await?;
        for (handle, address) in [(&a, SOURCE), (&b, TARGET)] {
            handle.add_address("eth0", Address::new(format!("{address}/24").parse()?)).await?;
        }
        for namespace in [&stage.source, &stage.target] {
            // BBR paces, which costs a third on a link without delay: every contender gets cubic.
            let cubic = "ip route replace 198.51.100.0/24 dev eth0 congctl cubic";
            let done = inside(namespace, cubic.split(' ')).status().context("nsenter")?;
            anyhow::ensure!(done.success(), "{cubic} failed");
        }
        stage.write_certificates()?;
        Ok(stage)
    }

    /// A file of this run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where such files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// `SIDE.crt`, `SIDE.key`, both together as `SIDE.pem`, and `authority.pem`.
    fn write_certificates(&self) -> Result<()> {
        let day = Duration::from_hours(24);
        let authority = Authority::generate("bench", day)?;
        let write = |name: &str, content: &str| identity::write_private(&self.path(name), content.as_bytes());
        write("authority.pem", authority.certificate())?;
        for side in ["source", "target"] {
            let subject = Subject {
                common_name: side.to_owned(),
                dns_names: vec![side.to_owned()],
                member: Some(member(side)?),
                ..Subject::default()
            };
            let identity = authority.issue(&subject, day)?;
            write(&format!("{side}.crt"), &identity.certificate)?;
            write(&format!("{side}.key"), &identity.key)?;
            write(&format!("{side}.pem"), &(identity.certificate + &identity.key))?;
        }
        Ok(())
    }

    /// Takes everything down and ends this process when someone interrupts it. The relays end with it.
    pub fn strike_when_interrupted(&self, runtime: &Runtime) -> Result<()> {
        let _guard = runtime.enter();
        let (mut interrupt, mut terminate, mut hangup) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        );
        let (namespaces, directory) = (self.namespaces.clone(), self.directory.path().to_owned());
        runtime.spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
            strike(&namespaces);
            if let Err(error) = std::fs::remove_dir_all(&directory) {
                eprintln!("{} is left: {error}", directory.display());
            }
            eprintln!("interrupted");
            std::process::exit(1);
        });
        Ok(())
    }

    /// Starts a process in a namespace; `name` is its log's. It ends when its guard is dropped, or when this process does.
    pub fn start(&self, namespace: &Namespace, name: &str, command: &[String]) -> Result<Process> {
        let log = std::fs::File::create(self.path(&format!("{name}.log")))?;
        let child = inside(namespace, command.iter().map(String::as_str))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Process(child))
    }

    /// What a process said so far.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        strike(&self.namespaces);
    }
}

fn strike(namespaces: &Namespaces) {
    if let Err(error) = namespaces.delete_all() {
        eprintln!("a namespace is left: {error}");
    }
}

fn inside<'a>(namespace: &Namespace, command: impl IntoIterator<Item = &'a str>) -> Command {
    let mut tied = Command::new("setpriv");
    let enter = format!("--net={}", namespace.path().display());
    tied.args(["--pdeathsig", "KILL", "nsenter", &enter]).args(command);
    tied
}

/// Tries until it succeeds, for 20 s at most.
pub fn until<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > deadline => return Err(error.context("not within 20 s")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Who a side is, in its certificate.
pub fn member(node: &str) -> Result<Member> {
    Ok(Member::new("bench", "virt-handler", node)?)
}

/// Ends when dropped.
pub struct Process(Child);

impl Process {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// An error when it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            bail!("a process ended early: {status}");
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
