//! Guests on their way from one launcher to another. Between the two are unix sockets, joined by the test as two handlers would join them.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::kubevirt::{MigrationMode, MigrationOptions, VirtualMachineInstance};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use wire::{AcceleratorPolicy, Command, MigrateOptions, MigrationPhase, Outcome, Phase, Status};

use crate::handler::{ADDRESS, Handler};
use crate::life::{guest, nothing_is_left};
use crate::sandbox::Pod;

const QEMU_USER: u32 = 107;
const OTHER_NODE: &str = "10.9.0.2";
const FILLED_MIB: u64 = 48;

/// A guest with disks that are only in its pod.
fn traveller() -> Box<VirtualMachineInstance> {
    let Command::Start { vmi, .. } = guest() else { unreachable!() };
    vmi
}

fn options(uid: &str) -> MigrateOptions {
    let settings =
        MigrationOptions { max_downtime_ms: 300, parallel_connections: 2, ..MigrationOptions::default() };
    let sockets = traveller().metadata.uid.unwrap();
    MigrateOptions { uid: uid.to_owned(), sockets, settings }
}

/// So slow that it does not end by itself.
fn slow(uid: &str) -> Box<MigrateOptions> {
    let mut options = options(uid);
    options.settings.bandwidth_per_migration = Quantity("1Mi".to_owned());
    Box::new(options)
}

/// The channels of a move, open as long as this lives.
struct Road(Vec<JoinHandle<()>>);

/// What goes wrong on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The hypervisors lose each other when the target has finished, and the source has not heard of it.
    LastAnswerLost,
    /// Nobody carries the source's word that the guest has left.
    NoWord,
}

impl Road {
    fn open(source: &Handler, target: &Handler) -> Self {
        Self::with(Fault::None, source, target)
    }

    fn with(fault: Fault, source: &Handler, target: &Handler) -> Self {
        let sockets = |pod: &Handler| pod.pod.private().join(wire::MIGRATION_SOCKETS);
        let name = |channel| MigrateOptions::socket(&options("").sockets, channel);
        let here = |channel| sockets(source).join(name(channel));
        let rpc = target.pod.private().join(wire::HYPERVISOR_SOCKET);
        let last_answer = move |said: &[u8]| fault != Fault::LastAnswerLost || !has_last_answer(said);
        let departure = if fault == Fault::NoWord { "nowhere.sock" } else { wire::DEPARTURE_SOCKET };
        Self(vec![
            join(&here(0), rpc, last_answer),
            join(&here(1), sockets(target).join(departure), |_| true),
            join(&here(49152), sockets(target).join(name(49152)), |_| true),
            join(&here(49153), sockets(target).join(name(49153)), |_| true),
        ])
    }
}

/// Whether libvirt's answer is among this to the call by which the target finishes a move. A message begins with its length, program,
/// version, procedure and type, four bytes each.
fn has_last_answer(mut said: &[u8]) -> bool {
    const FINISH: u32 = 306;
    const ANSWER: u32 = 1;
    while said.len() >= 20 {
        let word = |index: usize| u32::from_be_bytes(said[index * 4..][..4].try_into().unwrap());
        if (word(3), word(4)) == (FINISH, ANSWER) {
            return true;
        }
        said = said.get(usize::try_from(word(0)).unwrap().max(4)..).unwrap_or_default();
    }
    false
}

impl Drop for Road {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Whoever connects here is connected there, as long as what comes back is let through. Ends, with all connections, when it is aborted.
fn join(
    here: &Path,
    there: PathBuf,
    lets_through: impl Fn(&[u8]) -> bool + Copy + Send + Sync + 'static,
) -> JoinHandle<()> {
    // An earlier move may have left it.
    let _ = std::fs::remove_file(here);
    let listener = UnixListener::bind(here).unwrap();
    chown(here, Some(QEMU_USER), Some(QEMU_USER)).unwrap();
    tokio::spawn(async move {
        let mut carried = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let Ok(mut far) = UnixStream::connect(&there).await else { continue };
            carried.spawn(async move {
                let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.split(), far.split());
                let forth = async {
                    let copied = tokio::io::copy(&mut from_near, &mut to_far).await;
                    to_far.shutdown().await.and(copied.map(drop))
                };
                let back = async {
                    let mut buffer = vec![0; 1 << 16];
                    loop {
                        let count = from_far.read(&mut buffer).await?;
                        if count > 0 && !lets_through(&buffer[..count]) {
                            return Err(std::io::ErrorKind::ConnectionAborted.into());
                        }
                        if count == 0 {
                            return to_near.shutdown().await;
                        }
                        to_near.write_all(&buffer[..count]).await?;
                    }
                };
                tokio::try_join!(forth, back)
            });
        }
    })
}

/// Lines of the guest's counter, none left out.
struct Counter(BufReader<TcpStream>, Option<u64>);

impl Counter {
    fn open(handler: &Handler) -> Self {
        let stream = handler.reach(ADDRESS, 7001, 30);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream), None)
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let number: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
            assert!(self.1.is_none_or(|last| number == last + 1), "{:?} then {number}", self.1);
            self.1 = Some(number);
        }
    }
}

/// A guest that runs at the first of two nodes with a network between them.
async fn two_nodes() -> (Handler, Handler) {
    let (mut source, mut target) = (Handler::start().await, Handler::start_at(OTHER_NODE).await);
    source.join(&target).await;
    let accelerator = AcceleratorPolicy::Tcg;
    source.send(&Command::Start { vmi: traveller(), accelerator }).await;
    source.until("running", 60, |status| status.phase == Phase::Running).await;
    target.send(&Command::PrepareTarget { vmi: traveller(), accelerator }).await;
    target.until("ready", 60, |status| status.phase == Phase::ReadyForMigration).await;
    let filled = source.control(&json!({ "fill": { "mib": FILLED_MIB, "seed": 3 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    (source, target)
}

fn migration(status: &Status) -> Option<MigrationPhase> {
    status.migration.as_ref().map(|report| report.phase)
}

/// Whether the hypervisor's user may handle page faults of others is the machine's decision: without it post-copy is refused by name,
/// and the guest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn post_copy_finishes_what_does_not_converge_or_is_refused_with_the_reason() {
    let (mut source, target) = two_nodes().await;
    let _road = Road::open(&source, &target);
    let mut options = slow("m1");
    options.settings.allow_post_copy = true;
    options.settings.allow_workload_disruption = true;
    options.settings.completion_timeout_per_gib = 5;
    source.send(&Command::Migrate { options }).await;
    let over =
        source.until("over", 180, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    let report = over.migration.clone().unwrap();
    let node = if report.phase == MigrationPhase::Completed {
        assert_eq!(report.mode, MigrationMode::PostCopy, "{report:?}");
        target.until("running", 60, |status| status.phase == Phase::Running).await;
        &target
    } else {
        let reason = report.reason.clone().unwrap_or_default().to_lowercase();
        println!("refused: {reason}");
        assert!(
            reason.contains("postcopy") || reason.contains("userfault"),
            "{report:?}\n{}",
            target.pod.log()
        );
        assert_eq!(over.phase, Phase::Running, "{over:?}");
        &source
    };
    let checked = node.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_moves_with_its_memory_and_its_connections() {
    let (mut source, target) = two_nodes().await;
    let mut counter = Counter::open(&source);
    counter.read(10);
    let _road = Road::open(&source, &target);
    source.send(&Command::Migrate { options: Box::new(options("m1")) }).await;
    let over =
        source.until("over", 120, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    assert_eq!(migration(&over), Some(MigrationPhase::Completed), "{over:?}\n{}", target.pod.log());
    let there = target.until("running", 10, |status| status.phase == Phase::Running).await;
    assert_eq!(there.ending, None);
    let here = source.until("ended", 60, |status| status.phase == Phase::Ended).await;
    let ending = here.ending.as_ref().unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Succeeded, "Migrated"), "{ending:?}");
    assert_eq!(migration(&here), Some(MigrationPhase::Completed), "{here:?}");
    let sample = here.migration.unwrap().sample;
    assert!(sample.processed_bytes > FILLED_MIB << 20, "{sample:?}");
    assert!(sample.downtime_ms.is_some(), "{sample:?}");
    assert_eq!(here.problems, Vec::<String>::new());
    assert_eq!(source.pod.ended().await.code(), Some(0), "{}", source.pod.log());
    nothing_is_left(&source).await;

    // Seen from the node that it left: the connection goes on, and the memory is what it was.
    counter.read(100);
    let checked = source.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
    assert!(!target.pod.console().contains(r#""event":"boot""#), "it was never started there");
}

/// What QEMU counts on when it decides how much may be left to send while the guest stands still, in bytes a second.
fn counted_on(pod: &Pod) -> u64 {
    let [daemon] = pod.processes("libvirtd")[..] else { panic!("there is one libvirtd:\n{}", pod.log()) };
    let uri =
        format!("qemu+unix:///system?socket={}/{}", api::names::paths::PRIVATE, wire::HYPERVISOR_SOCKET);
    let asked = std::process::Command::new("nsenter")
        .args(["--target", &daemon.to_string(), "--mount", "--root", "virsh", "--connect", &uri])
        .args(["qemu-monitor-command", "default_testvm", r#"{"execute":"query-migrate-parameters"}"#])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stdout);
    let answer: serde_json::Value = serde_json::from_str(&said)
        .unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&asked.stderr)));
    answer["return"]["avail-switchover-bandwidth"].as_u64().unwrap_or_else(|| panic!("{answer:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hypervisor_counts_on_the_speed_that_was_measured_and_forgets_it_with_the_move() {
    const LIMIT: u64 = 4 << 20;
    let (mut source, target) = two_nodes().await;
    assert_eq!(counted_on(&source.pod), 0, "it judges by itself");
    let _road = Road::open(&source, &target);
    let mut options = slow("m1");
    options.settings.bandwidth_per_migration = Quantity("4Mi".to_owned());
    // With one connection the limit is what goes over it; beside others it is not kept to the byte.
    options.settings.parallel_connections = 1;
    source.send(&Command::Migrate { options }).await;
    let under_way = |bytes: u64| {
        move |status: &Status| {
            status.migration.as_ref().is_some_and(|report| report.sample.processed_bytes >= bytes)
        }
    };
    source.until("under way", 60, under_way(1)).await;
    let first = counted_on(&source.pod);
    // Four seconds and more: measured, at the speed that is allowed.
    let later = source.until("measured", 60, under_way(4 * LIMIT)).await;
    let measured = counted_on(&source.pod);
    println!("at first {first}, then {measured}; {:?}", later.migration);
    assert!(first > 0, "before the first byte it is told not to judge by itself");
    // QEMU keeps a limit within tenths of a second, and a little above it.
    assert!((LIMIT / 2..=LIMIT / 2 * 3).contains(&measured), "{measured} of {LIMIT}");
    source.send(&Command::CancelMigration).await;
    let over =
        source.until("given up", 30, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    assert_eq!(migration(&over), Some(MigrationPhase::Cancelled), "{over:?}");
    assert!(counted_on(&source.pod) < measured, "what was measured was of that move");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_given_up_leaves_the_guest_where_it_was() {
    let (mut source, mut target) = two_nodes().await;
    let mut counter = Counter::open(&source);
    let _road = Road::open(&source, &target);
    source.send(&Command::Migrate { options: slow("m1") }).await;
    let sent =
        |status: &Status| status.migration.as_ref().is_some_and(|report| report.sample.processed_bytes > 0);
    let under_way = source.until("under way", 60, sent).await;
    assert_eq!(migration(&under_way), Some(MigrationPhase::Running));
    source.send(&Command::CancelMigration).await;
    let over =
        source.until("given up", 30, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    assert_eq!((migration(&over), over.phase), (Some(MigrationPhase::Cancelled), Phase::Running), "{over:?}");

    let there = target.until("ended", 30, |status| status.phase == Phase::Ended).await;
    let ending = there.ending.unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Failed, "NeverArrived"), "{ending:?}");
    assert_eq!(target.pod.ended().await.code(), Some(1));
    nothing_is_left(&target).await;

    counter.read(100);
    let checked = source.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_dies_on_the_way_leaves_the_guest_where_it_was() {
    let (mut source, target) = two_nodes().await;
    let mut counter = Counter::open(&source);
    let road = Road::open(&source, &target);
    source.send(&Command::Migrate { options: slow("m1") }).await;
    let sent =
        |status: &Status| status.migration.as_ref().is_some_and(|report| report.sample.processed_bytes > 0);
    source.until("under way", 60, sent).await;
    target.pod.kill("qemu-system");
    drop(road);
    let over =
        source.until("failed", 60, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    assert_eq!((migration(&over), over.phase), (Some(MigrationPhase::Failed), Phase::Running), "{over:?}");
    assert!(over.migration.unwrap().reason.is_some());
    counter.read(100);
    let checked = source.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
}

/// The two moments at which only one side knows where the guest is. In neither does it run twice, and it is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_whose_hypervisors_lose_each_other_at_the_end_runs_at_one_place() {
    let (mut source, mut target) = two_nodes().await;
    let mut counter = Counter::open(&source);
    let road = Road::with(Fault::LastAnswerLost, &source, &target);
    source.send(&Command::Migrate { options: Box::new(options("m1")) }).await;
    target.until("arrived", 120, |status| status.phase == Phase::Arrived).await;
    let over =
        source.until("over", 60, |status| migration(status).is_some_and(MigrationPhase::is_final)).await;
    assert_eq!((migration(&over), over.phase), (Some(MigrationPhase::Failed), Phase::Running), "{over:?}");
    counter.read(100);
    assert_eq!(target.until("said", 1, |_| true).await.phase, Phase::Arrived, "nobody told it to run");
    let checked = source.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
    // What its handler does when the move has failed.
    target.send(&Command::Kill).await;
    target.until("ended", 60, |status| status.phase == Phase::Ended).await;
    source.part().await;
    drop((road, target));

    let mut target = Handler::start_at(OTHER_NODE).await;
    source.join(&target).await;
    target.send(&Command::PrepareTarget { vmi: traveller(), accelerator: AcceleratorPolicy::Tcg }).await;
    target.until("ready", 60, |status| status.phase == Phase::ReadyForMigration).await;
    let _road = Road::with(Fault::NoWord, &source, &target);
    source.send(&Command::Migrate { options: Box::new(options("m2")) }).await;
    let here = source.until("ended", 120, |status| status.phase == Phase::Ended).await;
    assert_eq!(migration(&here), Some(MigrationPhase::Completed), "{here:?}");
    target.until("arrived", 10, |status| status.phase == Phase::Arrived).await;
    target.send(&Command::TakeOver { paused: false }).await;
    target.until("running", 30, |status| status.phase == Phase::Running).await;
    counter.read(100);
    let checked = source.control(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
}
