//! Guests that move between nodes, with a peer outside that talks to them all the while.

use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::migrating::request;
use e2e::objects::text;
use e2e::traveller::{Listener, SPEC};
use e2e::{Installation, Place, Signal};
use migration::texts::TARGET_ENDED;
use serde_json::{Value, json};

const FILLED_MIB: u64 = 64;
/// Connections for memory besides the first.
const SEVERAL: u64 = 4;
/// From the request to its end, on a machine that emulates guests.
const PATIENCE: Duration = Duration::from_mins(2);

fn moves(lab: &Installation, name: &str) -> Value {
    lab.apply(&request(name));
    lab.ended(name)
}

/// As a person asks for it: to a node of their choice, over several connections.
fn comes_back_to(lab: &Installation, node: &str) -> Value {
    let home = lab.node_of("traveller");
    lab.configure(&json!({ "parallelConnections": SEVERAL, "bandwidthPerMigration": "32Mi" }));
    for (elsewhere, why) in [("nowhere", "there is no node nowhere"), (home.as_str(), "it runs on node")] {
        let refused = lab.at_terminal(&["migrate", "traveller", "--node", elsewhere]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    let mut asking = lab.at_terminal(&["migrate", "traveller", "--node", node, "--wait", "--json"]);
    let asking = asking.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let open = || handler_number(lab, &home, r#"godwit_tunnel_connections{channel="memory"}"#);
    lab.until_it_is("memory takes several connections", PATIENCE, || open() > SEVERAL);
    let answer = asking.wait_with_output().unwrap();
    assert!(answer.status.success(), "{answer:?}\n{}", lab.describe());
    let outcome: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&outcome["succeeded"], &outcome["targetNode"]), (&json!(true), &json!(node)), "{outcome}");
    lab.migration(outcome["migration"].as_str().unwrap())
}

#[test]
fn a_guest_moves_and_comes_back_with_its_memory_its_address_and_its_connections() {
    let lab = Installation::with_traveller_in(SPEC);
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 5 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    let listener = Listener::start(&lab);
    let first = lab.node_of("traveller");
    let mut home = first.clone();
    for name in ["there", "back"] {
        let begun = Instant::now();
        let migration = if name == "back" { comes_back_to(&lab, &first) } else { moves(&lab, name) };
        assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
        let took = begun.elapsed();
        let node = lab.node_of("traveller");
        assert_ne!(node, home);
        let progress = &migration["status"]["progress"];
        println!("{name}: {home} to {node} in {took:?}, silence {:?}, {progress}", listener.silence());
        assert!(progress["processedBytes"].as_u64().unwrap() > FILLED_MIB << 20, "{progress}");
        assert!(progress["downtimeMs"].is_u64() && progress["elapsedMs"].is_u64(), "{progress}");
        let state = &migration["status"]["migrationState"];
        assert_eq!((&state["sourceNode"], &state["targetNode"]), (&json!(home), &json!(node)), "{state:#}");
        assert_eq!(lab.phase("traveller"), "Running");
        lab.until("the source's pod is gone", Duration::from_secs(30), || {
            matches!(&lab.launchers()[..], [(_, on)] if *on == node).then_some(())
        });
        let checked = lab.ask(&json!({ "check": {} }));
        assert_eq!(checked["ok"], json!(true), "{checked}");
        home = node;
    }
    assert_eq!(home, first, "it came back");
    let heard = listener.count();
    lab.until("it still counts", Duration::from_secs(10), || (listener.count() > heard + 100).then_some(()));
    let silence = listener.silence();
    println!("longest silence: {silence:?}");
    assert!(silence < Duration::from_secs(5), "{silence:?}");

    lab.kubectl_ok(&["delete", "vmi", "traveller", "--timeout=60s"]);
    lab.until("all is given back", Duration::from_secs(90), || (lab.attachments() == 0).then_some(()));
}

/// Everything that can end a move early, one after the other, on one guest: after each it is where it was, and as it was.
#[test]
fn a_move_that_is_cut_off_or_given_up_leaves_the_guest_alone_and_the_next_one_succeeds() {
    let lab = Installation::with_traveller_in(SPEC);
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 7 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    let listener = Listener::start(&lab);
    let home = lab.node_of("traveller");
    let unharmed = |name: &str| {
        let migration = lab.ended(name);
        assert_eq!(migration["status"]["phase"], "Failed", "{migration:#}");
        let state: Value = lab.status_of("traveller")["migrationState"].take();
        println!("{name}: {} {}", state["failureReason"], state["abortStatus"]);
        assert!(state["failureReason"].is_string(), "{state:#}");
        assert_eq!((lab.phase("traveller").as_str(), lab.node_of("traveller")), ("Running", home.clone()));
        let checked = lab.ask(&json!({ "check": {} }));
        assert_eq!(checked["ok"], json!(true), "{checked}");
        lab.until("one launcher is left", Duration::from_mins(1), || {
            (lab.launchers().len() == 1).then_some(())
        });
        state
    };
    // So slow that it is caught on the way.
    lab.configure(&json!({ "bandwidthPerMigration": "2Mi" }));
    for victim in ["source", "target"] {
        let name = format!("{victim}-handler-dies");
        lab.apply(&request(&name));
        lab.under_way(&name);
        let node = match victim {
            "source" => home.clone(),
            _ => text(&lab.status_of("traveller"), "/migrationState/targetNode"),
        };
        let handler = lab.pod_on(&node, "kubevirt", "kubevirt.io=virt-handler");
        lab.signal_pod(&handler, Signal::Kill);
        let state = unharmed(&name);
        let reason = state["failureReason"].as_str().unwrap();
        let expected = match victim {
            "source" => format!("the handler of node {home} ended while the guest moved through it"),
            _ => format!("the connection to node {node} broke while the guest moved"),
        };
        // The target's pod may end before the handler tells; then that was seen first, and is said first.
        let cause =
            reason.strip_prefix(TARGET_ENDED).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason);
        assert!(cause.starts_with(&expected), "{reason}");
        assert!(reason.contains(&format!("The guest goes on at node {home}")), "{reason}");
        assert!(reason.contains("The hypervisor says: "), "{reason}");
        lab.until_it_is_whole();
    }
    lab.configure(&json!({ "disableTLS": true }));
    lab.apply(&request("given-up"));
    lab.under_way("given-up");
    a_wrong_token_is_refused(&lab, &home);
    the_move_shows_in_numbers(&lab, &home);
    let abort =
        json!({ "status": { "migrationState": { "abortRequested": true, "failureReason": "enough" } } });
    lab.kubectl_ok(&[
        "patch",
        "vmi",
        "traveller",
        "--subresource=status",
        "--type=merge",
        "-p",
        &abort.to_string(),
    ]);
    let state = unharmed("given-up");
    assert_eq!(
        (&state["failureReason"], &state["abortStatus"]),
        (&json!("enough"), &json!("Succeeded")),
        "{state:#}"
    );

    // To delete the request is to cancel the move.
    lab.apply(&request("deleted"));
    lab.under_way("deleted");
    lab.kubectl_ok(&["delete", "vmim", "deleted", "--timeout=60s"]);
    let state: Value = lab.status_of("traveller")["migrationState"].take();
    assert_eq!((&state["failed"], &state["abortStatus"]), (&json!(true), &json!("Succeeded")), "{state:#}");
    assert_eq!(lab.node_of("traveller"), home);

    lab.configure(&json!({ "bandwidthPerMigration": "0" }));
    lab.apply(&request("in-the-clear"));
    let migration = lab.ended("in-the-clear");
    assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
    assert_ne!(lab.node_of("traveller"), home);
    let checked = lab.ask(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
    println!("longest silence: {:?}", listener.silence());
}

/// A stranger at the very address of the source, who knows everything of the move but its token, gets nowhere and is counted.
fn a_wrong_token_is_refused(lab: &Installation, source: &str) {
    let state: Value = lab.status_of("traveller")["migrationState"].take();
    let text = |field: &str| state[field].as_str().unwrap().to_owned();
    let (uid, target, address) = (text("migrationUid"), text("targetNode"), text("targetNodeAddress"));
    let refused = || handler_number(lab, &target, "godwit_tunnel_refusals_total{reason=\"token\"}");
    assert_eq!(refused(), 0);
    // Magic; UID, channel 49152 and token, each with its length before it.
    let preamble = format!(r"godwit\000\001\0{:o}{uid}\002\300\000\040{}", uid.len(), "x".repeat(32));
    let script = format!("printf '{preamble}' | socat -t10 - TCP:{address}:9186");
    assert_eq!(lab.in_handler(source, &script), "", "not a word");
    lab.until_it_is("it is counted", PATIENCE, || refused() >= 1);
}

/// Whoever watches the handlers and the controller sees the move.
fn the_move_shows_in_numbers(lab: &Installation, source: &str) {
    let labels = format!(r#"{{namespace="default",name="traveller",node="{source}"}}"#);
    for name in ["data_bytes_total", "data_processed_bytes", "memory_transfer_rate_bytes"] {
        let number = format!("kubevirt_vmi_migration_{name}{labels}");
        lab.until_it_is(&number, PATIENCE, || handler_number(lab, source, &number) > 0);
    }
    let sent = r#"godwit_tunnel_bytes_total{channel="memory",direction="sent"}"#;
    assert!(handler_number(lab, source, sent) > 0);
    assert_eq!(handler_number(lab, source, r#"godwit_tunnel_transfers{direction="outgoing"}"#), 1);
    let all = lab.kubectl_ok(&[
        "-n",
        "kubevirt",
        "get",
        "pods",
        "-l",
        "kubevirt.io=virt-controller",
        "-o",
        "jsonpath={.items[*].status.podIP}",
    ]);
    let shown = |name: &str| -> Vec<u64> {
        all.split(' ').filter_map(|address| number(&scrape(lab, source, address), name)).collect()
    };
    let mut leading = shown("kubevirt_virt_controller_leading_status");
    leading.sort_unstable();
    assert_eq!(leading, [0, 1]);
    assert_eq!(shown("kubevirt_vmi_migrations_in_running_phase"), [1], "of the leader alone");
    assert_eq!(
        shown(
            r#"kubevirt_vmi_migration_failed{vmi="traveller",vmim="target-handler-dies",namespace="default"}"#
        ),
        [1]
    );
}

/// What a pod says of itself in numbers, to one on a node.
fn scrape(lab: &Installation, node: &str, address: &str) -> String {
    lab.shell(Place::Node(node), &format!("curl --silent --fail --max-time 20 http://{address}:8443/metrics"))
}

/// A number of the handler of a node; zero if it is not there.
fn handler_number(lab: &Installation, node: &str, name: &str) -> u64 {
    let pod = lab.handler(node).name;
    let address = lab.in_installation(&["get", "pod", &pod, "-o", "jsonpath={.status.podIP}"]);
    number(&scrape(lab, node, &address), name).unwrap_or_default()
}

/// Of those that are whole.
fn number(text: &str, name: &str) -> Option<u64> {
    let shown = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    shown.trim_end_matches(".0").parse().ok()
}
