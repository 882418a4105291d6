//! Whether guest memory can move from every node to every other: what the handlers report, judged together.
//!
//! Pure. A node counts if a handler is there; a report counts if it is fresh. The sentence names the nodes that are not ready and
//! says of each what is wrong with it, as its own handler or its peers see it.

use std::collections::BTreeMap;

use api::condition::ConditionStatus;
use api::godwit::RoadReport;
use api::names::reasons;
use jiff::{SignedDuration, Timestamp};

/// A report that is older says nothing any more: handlers renew theirs every half minute.
const FRESH: SignedDuration = SignedDuration::from_secs(120);
/// Of so many nodes it is said what is wrong with them; the others are named.
const NAMED: usize = 5;

/// A node with a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Its handler is the one that the installation asks for.
    pub updated: bool,
    /// Why its handler's pod has not started, if it has not. The report is then of the one before.
    pub unstarted: Option<String>,
    pub report: Option<RoadReport>,
}

/// What the condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

/// Judges. `wanted`: `namespace/name` of the migration network; none: the pod network. `missing`: handlers that are not there yet.
pub fn judge(
    wanted: Option<&str>,
    places: &BTreeMap<String, Place>,
    missing: usize,
    now: Timestamp,
) -> Judgement {
    let network = wanted.map_or_else(|| "the pod network".to_owned(), |wanted| format!("network {wanted}"));
    let rolling = missing > 0 || places.values().any(|place| !place.updated);
    let problems: Vec<(&str, String)> = places
        .iter()
        .filter_map(|(node, place)| Some((node.as_str(), problem(wanted, node, place, places, now)?)))
        .collect();
    if problems.is_empty() && !rolling && !places.is_empty() {
        let message = match places.len() {
            1 => format!("The handler of the only node is on {network}."),
            count => format!("The handlers of all {count} nodes reach each other on {network}."),
        };
        return Judgement { status: ConditionStatus::True, reason: reasons::PEERS_REACHED, message };
    }
    let (told, named) = problems.split_at(NAMED.min(problems.len()));
    let mut parts: Vec<String> = told.iter().map(|(node, why)| format!("{node}: {why}")).collect();
    if !named.is_empty() {
        let names: Vec<&str> = named.iter().map(|(node, _)| *node).collect();
        parts.push(format!("and {}", names.join(", ")));
    }
    if missing > 0 {
        parts.push(format!("{missing} handlers are not there yet"));
    }
    if parts.is_empty() {
        parts.push("no handler is there yet".to_owned());
    }
    let reason = if rolling { reasons::ROLLING_OUT } else { reasons::NODES_NOT_READY };
    Judgement {
        status: ConditionStatus::False,
        reason,
        message: format!("Guest memory cannot take {network} everywhere: {}.", parts.join("; ")),
    }
}

/// What is wrong with one node.
fn problem(
    wanted: Option<&str>,
    node: &str,
    place: &Place,
    places: &BTreeMap<String, Place>,
    now: Timestamp,
) -> Option<String> {
    if !place.updated {
        return Some("its handler is to be replaced".to_owned());
    }
    if let Some(why) = &place.unstarted {
        return Some(why.clone());
    }
    let Some(report) = &place.report else { return Some("its handler has not reported yet".to_owned()) };
    if now.duration_since(report.at.0) > FRESH {
        return Some(format!(
            "its handler has not reported since {}",
            report.at.0.strftime("%Y-%m-%dT%H:%M:%SZ")
        ));
    }
    if let Some(problem) = &report.problem {
        return Some(problem.clone());
    }
    if report.network.as_deref() != wanted {
        return Some("its handler has not taken up the change yet".to_owned());
    }
    let unreached = report.unreached.iter().find(|(peer, _)| places.contains_key(*peer));
    if let Some((peer, why)) = unreached {
        return Some(format!("does not reach {peer} ({why})"));
    }
    let is_asked = |peer: &str| peer == node || report.reached.iter().any(|reached| reached == peer);
    // A peer with a problem of its own is named with it.
    let sound = |place: &Place| {
        let listens = |report: &RoadReport| report.network.as_deref() == wanted && report.problem.is_none();
        place.updated && place.unstarted.is_none() && place.report.as_ref().is_some_and(listens)
    };
    let unasked = places.iter().find(|(peer, place)| !is_asked(peer) && sound(place));
    unasked.map(|(peer, _)| format!("has not heard of {peer} yet"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const NETWORK: Option<&str> = Some("kubevirt/fast");

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn report(reached: &[&str]) -> RoadReport {
        RoadReport {
            network: NETWORK.map(str::to_owned),
            address: Some([192, 0, 2, 7].into()),
            interface: Some("migration0".into()),
            problem: None,
            reached: reached.iter().map(|node| (*node).to_owned()).collect(),
            unreached: BTreeMap::new(),
            at: Time(now()),
        }
    }

    fn all() -> BTreeMap<String, Place> {
        let place =
            |reached: &[&str]| Place { updated: true, unstarted: None, report: Some(report(reached)) };
        [("a", ["b", "c"]), ("b", ["a", "c"]), ("c", ["a", "b"])]
            .map(|(node, reached)| (node.to_owned(), place(&reached)))
            .into()
    }

    fn with(change: impl FnOnce(&mut Place)) -> BTreeMap<String, Place> {
        let mut places = all();
        change(places.get_mut("b").unwrap());
        places
    }

    fn reported(change: impl FnOnce(&mut RoadReport)) -> BTreeMap<String, Place> {
        with(|place| change(place.report.as_mut().unwrap()))
    }

    #[test]
    fn it_is_ready_only_when_every_handler_has_reached_every_other() {
        let judgement = judge(NETWORK, &all(), 0, now());
        assert_eq!(judgement.status, ConditionStatus::True, "{judgement:?}");
        assert_eq!(judgement.reason, reasons::PEERS_REACHED);
        assert!(judgement.message.contains("all 3 nodes"));
    }

    #[test]
    fn whoever_is_not_is_named_with_the_reason() {
        let long_ago = Time(now() - SignedDuration::from_mins(5));
        for (places, missing, reason, said) in [
            (BTreeMap::new(), 0, reasons::NODES_NOT_READY, "no handler is there yet"),
            (all(), 1, reasons::ROLLING_OUT, "1 handlers are not there yet"),
            (
                with(|place| place.updated = false),
                0,
                reasons::ROLLING_OUT,
                "b: its handler is to be replaced",
            ),
            // Whatever the handler before it said.
            (
                with(|place| place.unstarted = Some("its pod has no network".into())),
                0,
                reasons::NODES_NOT_READY,
                "b: its pod has no network",
            ),
            (
                with(|place| place.report = None),
                0,
                reasons::NODES_NOT_READY,
                "b: its handler has not reported yet",
            ),
            (
                reported(|report| report.at = long_ago),
                0,
                reasons::NODES_NOT_READY,
                "b: its handler has not reported since",
            ),
            (
                reported(|report| report.problem = Some("no address".into())),
                0,
                reasons::NODES_NOT_READY,
                "b: no address",
            ),
            (
                reported(|report| report.network = None),
                0,
                reasons::NODES_NOT_READY,
                "b: its handler has not taken up",
            ),
            (
                reported(|report| {
                    report.reached.retain(|peer| peer != "c");
                    report.unreached.insert("c".into(), "no route".into());
                }),
                0,
                reasons::NODES_NOT_READY,
                "b: does not reach c (no route)",
            ),
            (
                reported(|report| report.reached.retain(|peer| peer != "c")),
                0,
                reasons::NODES_NOT_READY,
                "b: has not heard of c yet",
            ),
        ] {
            let judgement = judge(NETWORK, &places, missing, now());
            assert_eq!(
                (judgement.status, judgement.reason),
                (ConditionStatus::False, reason),
                "{judgement:?}"
            );
            assert!(judgement.message.contains(said), "{said}: {}", judgement.message);
            assert!(!judgement.message.contains(" a:"), "{}", judgement.message);
        }
    }

    #[test]
    fn a_node_without_a_handler_is_no_peer() {
        let places = reported(|report| _ = report.unreached.insert("gone".into(), "timeout".into()));
        assert_eq!(judge(NETWORK, &places, 0, now()).status, ConditionStatus::True);
    }

    #[test]
    fn all_nodes_are_named_and_of_some_it_is_said_what_is_wrong() {
        let places = (0..20)
            .map(|node| (format!("node-{node:02}"), Place { updated: true, unstarted: None, report: None }));
        let message = judge(NETWORK, &places.collect(), 0, now()).message;
        assert!(message.contains("node-04: its handler") && !message.contains("node-05:"), "{message}");
        assert!(message.contains("; and node-05, node-06") && message.contains("node-19."), "{message}");
    }
}
