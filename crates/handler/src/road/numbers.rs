//! The road in numbers: how far the moves are that leave from here, what passed, who was turned away.
//!
//! Names, labels and units of `kubevirt_…` are KubeVirt's. A move has numbers while its guard lives, and a while longer, so that one who
//! looks now and then sees how it ended; then they are gone. Nothing that a caller sends becomes a label.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::kubevirt::ProgressSample;
use telemetry::{Labels, Numbers, Sheet};
use tunnel::{Channel, DialError, Ledger, Refusal};

use super::Road;

/// How long the numbers of a move are there when it is over: longer than the pause between two looks of who collects them.
const KEPT: Duration = Duration::from_mins(5);
const CHANNELS: [Channel; 4] = [Channel::RPC, Channel::DEPARTURE, Channel::MEMORY, Channel::DISKS];

/// Namespace and name of an instance.
type Instance = (String, String);

/// The moves that leave from this node. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Departures(Arc<Mutex<BTreeMap<Instance, Known>>>);

/// What is known of one.
#[derive(Debug)]
struct Known {
    uid: String,
    sample: ProgressSample,
    over: Option<Instant>,
}

impl Departures {
    /// A move has begun. A move of the same instance before it is forgotten.
    pub fn begin(&self, namespace: String, name: String, uid: &str) -> Departure {
        let instance = (namespace, name);
        let known = Known { uid: uid.to_owned(), sample: ProgressSample::default(), over: None };
        self.lock().insert(instance.clone(), known);
        Departure { departures: self.clone(), instance, uid: uid.to_owned() }
    }

    /// How many are under way.
    fn under_way(&self) -> usize {
        self.lock().values().filter(|known| known.over.is_none()).count()
    }

    /// Those that are shown; the others are forgotten.
    fn shown(&self, now: Instant) -> Vec<(Instance, ProgressSample)> {
        let mut all = self.lock();
        all.retain(|_, known| known.over.is_none_or(|over| now.saturating_duration_since(over) < KEPT));
        all.iter().map(|(instance, known)| (instance.clone(), known.sample.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Instance, Known>> {
        // Every change is one call on the map: it is whole whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A move that is under way, until this is dropped.
#[derive(Debug)]
pub struct Departure {
    departures: Departures,
    instance: Instance,
    pub uid: String,
}

impl Departure {
    /// How far it is.
    pub fn show(&self, sample: &ProgressSample) {
        self.change(|known| known.sample = sample.clone());
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut all = self.departures.lock();
        all.get_mut(&self.instance).filter(|known| known.uid == self.uid).map(change);
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.change(|known| known.over = Some(Instant::now()));
    }
}

/// All numbers of a handler.
pub fn numbers(node: &str, road: &Road, ready: impl Fn() -> bool + Send + Sync + 'static) -> Numbers {
    let (node, departures, ledger) = (node.to_owned(), road.departures().clone(), road.0.ledger.clone());
    let registrations = road.registrations().clone();
    Numbers::default()
        .with(move |sheet| moves(sheet, &node, &departures.shown(Instant::now())))
        .with(move |sheet| passed(sheet, &ledger))
        .with({
            let departures = road.departures().clone();
            move |sheet| {
                let direction = |name: &str| vec![("direction", name.to_owned())];
                let open = [
                    (direction("incoming"), as_number(registrations.count() as u64)),
                    (direction("outgoing"), as_number(departures.under_way() as u64)),
                ];
                sheet.gauge("godwit_tunnel_transfers", "Moves that may send or receive now.", open)?;
                let help = "Whether the handler has the road that it was made for.";
                let ready = f64::from(u8::from(ready()));
                sheet.gauge("kubevirt_virt_handler_ready_status", help, [(Labels::new(), ready)])
            }
        })
}

/// Larger than 2^53 bytes no guest is: nothing is lost.
#[allow(clippy::cast_precision_loss, reason = "exact up to eight pebibytes, and near enough above")]
fn as_number(count: u64) -> f64 {
    count as f64
}

type Field = fn(&ProgressSample) -> Option<f64>;

/// Name, meaning and value of each number of a move that goes up and down.
const OF_A_MOVE: [(&str, &str, Field); 7] = [
    (
        "kubevirt_vmi_migration_data_total_bytes",
        "Deprecated: kubevirt_vmi_migration_data_bytes_total.",
        |s| Some(as_number(s.total_bytes)),
    ),
    (
        "kubevirt_vmi_migration_data_remaining_bytes",
        "What has still to be sent of a guest that moves.",
        |s| Some(as_number(s.remaining_bytes)),
    ),
    (
        "kubevirt_vmi_migration_data_processed_bytes",
        "What was sent of a guest that moves, repetitions included.",
        |s| Some(as_number(s.processed_bytes)),
    ),
    (
        "kubevirt_vmi_migration_dirty_memory_rate_bytes",
        "Memory that a guest that moves writes, a second.",
        |s| Some(as_number(s.dirty_bytes_per_second)),
    ),
    (
        "kubevirt_vmi_migration_memory_transfer_rate_bytes",
        "What is sent of a guest that moves, a second.",
        |s| Some(as_number(s.bytes_per_second)),
    ),
    ("godwit_vmi_migration_iteration", "Passes over the memory of a guest that moves.", |s| {
        Some(as_number(s.iteration))
    }),
    (
        "godwit_vmi_migration_downtime_seconds",
        "How long a guest that moves stands still: expected while it moves, measured afterwards.",
        |s| s.downtime_ms.map(|downtime| as_number(downtime) / 1000.0),
    ),
];

fn moves(sheet: &mut Sheet<'_>, node: &str, shown: &[(Instance, ProgressSample)]) -> fmt::Result {
    let labels = |(namespace, name): &Instance| -> Labels {
        vec![("namespace", namespace.clone()), ("name", name.clone()), ("node", node.to_owned())]
    };
    let totals = shown.iter().map(|(instance, sample)| (labels(instance), sample.total_bytes));
    sheet.counter("kubevirt_vmi_migration_data_bytes", "Memory and disks of a guest that moves.", totals)?;
    for (name, help, field) in OF_A_MOVE {
        let numbers = shown.iter().filter_map(|(instance, sample)| Some((labels(instance), field(sample)?)));
        sheet.gauge(name, help, numbers)?;
    }
    Ok(())
}

/// What passed, and what did not. Every channel and every reason has a number from the beginning, so that the first one shows.
fn passed(sheet: &mut Sheet<'_>, ledger: &Ledger) -> fmt::Result {
    let channels = ledger.channels();
    let of = |channel: Channel| channels.get(&channel).copied().unwrap_or_default();
    let label = |channel: Channel| ("channel", channel.name().to_owned());
    let bytes = CHANNELS.into_iter().flat_map(|channel| {
        let directed = |direction: &str| vec![label(channel), ("direction", direction.to_owned())];
        [(directed("sent"), of(channel).sent), (directed("received"), of(channel).received)]
    });
    sheet.counter("godwit_tunnel_bytes", "Bytes of guests and their hypervisors that passed.", bytes)?;
    let open = CHANNELS.into_iter().map(|channel| (vec![label(channel)], as_number(of(channel).open)));
    sheet.gauge("godwit_tunnel_connections", "Connections that are open.", open)?;
    let reason = |reason: &str| vec![("reason", reason.to_owned())];
    let refusals = Refusal::ALL.into_iter().map(|why| (reason(why.name()), ledger.refusals().count(why)));
    sheet.counter("godwit_tunnel_refusals", "Connections that were not let in.", refusals)?;
    let failed = ledger.failures();
    let failures = DialError::NAMES.map(|why| (reason(why), failed.get(why).copied().unwrap_or_default()));
    sheet.counter("godwit_tunnel_dial_failures", "Connections from here that were not made.", failures)?;
    let probes = [(Labels::new(), ledger.probes().count())];
    sheet.counter("godwit_tunnel_probes", "Questions of other nodes whether this one is reached.", probes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    #[test]
    fn a_move_is_shown_while_it_lasts_and_a_while_longer() {
        let departures = Departures::default();
        let first = departures.begin("default".into(), "wren".into(), "m1");
        let sample = ProgressSample {
            total_bytes: 100,
            remaining_bytes: 40,
            processed_bytes: 70,
            bytes_per_second: 10,
            dirty_bytes_per_second: 3,
            iteration: 2,
            elapsed_ms: Some(9000),
            downtime_ms: Some(250),
            network: None,
        };
        first.show(&sample);
        let text = |now| {
            let shown = departures.shown(now);
            Numbers::default().with(move |sheet| moves(sheet, "node-1", &shown)).text().unwrap()
        };
        let labels = r#"{namespace="default",name="wren",node="node-1"}"#;
        let now = Instant::now();
        for line in [
            format!("kubevirt_vmi_migration_data_bytes_total{labels} 100\n"),
            format!("kubevirt_vmi_migration_data_remaining_bytes{labels} 40.0\n"),
            format!("kubevirt_vmi_migration_data_processed_bytes{labels} 70.0\n"),
            format!("kubevirt_vmi_migration_memory_transfer_rate_bytes{labels} 10.0\n"),
            format!("kubevirt_vmi_migration_dirty_memory_rate_bytes{labels} 3.0\n"),
            format!("godwit_vmi_migration_downtime_seconds{labels} 0.25\n"),
        ] {
            assert!(text(now).contains(&line), "{line} is not in\n{}", text(now));
        }

        // The next move of the instance has its series, and the end of the first does not end it.
        let second = departures.begin("default".into(), "wren".into(), "m2");
        drop(first);
        second.show(&ProgressSample { total_bytes: 7, ..sample });
        assert!(text(now + 2 * KEPT).contains(&format!("data_bytes_total{labels} 7\n")));
        assert_eq!(departures.under_way(), 1);
        drop(second);
        assert_eq!(departures.under_way(), 0);
        assert!(text(Instant::now()).contains("wren"), "how it ended can be seen");
        assert_eq!(text(Instant::now() + KEPT), "# EOF\n");
        assert!(departures.lock().is_empty());
    }

    #[test]
    fn every_reason_has_a_number_before_it_happens() {
        let ledger = Ledger::default();
        let text = Numbers::default().with(move |sheet| passed(sheet, &ledger)).text().unwrap();
        for reason in Refusal::ALL {
            let line = format!("godwit_tunnel_refusals_total{{reason=\"{reason}\"}} 0\n");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(text.contains("godwit_tunnel_dial_failures_total{reason=\"connect\"} 0\n"), "{text}");
        let bytes = "godwit_tunnel_bytes_total{channel=\"memory\",direction=\"sent\"} 0\n";
        assert!(text.contains(bytes), "{text}");
    }
}
