//! Guests on their way from one launcher to another. Between the two are unix sockets, joined by the test as two handlers would join them.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::kubevirt::{MigrationMode, MigrationOptions, VirtualMachineInstance};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use wire::{AcceleratorPolicy, Command, MigrateOptions, MigrationPhase, Outcome, Phase, Status};

use crate::handler::{ADDRESS, Handler};
use crate::life::{guest, nothing_is_left};

const QEMU_USER: u32 = 107;
const OTHER_NODE: &str = "10.9.0.2";
const FILLED_MIB: u64 = 48;

/// A guest with disks that are only in its pod.
fn traveller() -> Box<VirtualMachineInstance> {
    let Command::Start { vmi, .. } = guest() else { unreachable!() };
    vmi
}

fn options(uid: &str) -> MigrateOptions {
    let settings = MigrationOptions { max_downtime_ms: 300, ..MigrationOptions::default() };
    let sockets = traveller().metadata.uid.unwrap();
    MigrateOptions { uid: uid.to_owned(), sockets, parallel_connections: Some(2), settings }
}

/// So slow that it does not end by itself.
fn slow(uid: &str) -> Box<MigrateOptions> {
    let mut options = options(uid);
    options.settings.bandwidth_per_migration = Quantity("1Mi".to_owned());
    Box::new(options)
}

/// The channels of a move, open as long as this lives.
struct Road(Vec<JoinHandle<()>>);

impl Road {
    fn open(source: &Handler, target: &Handler) -> Self {
        let sockets = |pod: &Handler| pod.pod.private().join(wire::MIGRATION_SOCKETS);
        let name = |channel| MigrateOptions::socket(&options("").sockets, channel);
        let rpc = target.pod.private().join(wire::HYPERVISOR_SOCKET);
        let of = |channel| join(&sockets(source).join(name(channel)), sockets(target).join(name(channel)));
        Self(vec![join(&sockets(source).join(name(0)), rpc), of(49152), of(49153)])
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Whoever connects here is connected there. Ends, with all connections, when it is aborted.
fn join(here: &Path, there: PathBuf) -> JoinHandle<()> {
    // An earlier move may have left it.
    let _ = std::fs::remove_file(here);
    let listener = UnixListener::bind(here).unwrap();
    chown(here, Some(QEMU_USER), Some(QEMU_USER)).unwrap();
    tokio::spawn(async move {
        let mut carried = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = UnixStream::connect(&there).await.unwrap();
            carried.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
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
