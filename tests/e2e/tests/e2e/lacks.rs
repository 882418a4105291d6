//! What a handler may lack for long: an address on the migration network, a certificate that has not expired. The node is named with the
//! reason, nothing moves that could not arrive, what moves already goes on, and the guest runs at one place all the while.

use std::time::Duration;

use e2e::handlers::NO_REQUESTS;
use e2e::migrating::request;
use e2e::migration_network::{ROLE, SPEC, squatter};
use e2e::objects::KUBEVIRT;
use e2e::traveller::Listener;
use e2e::{Guest, Installation, Kind, Signal, Watch, network_to_move_on};
use serde_json::json;

/// An address for each of three handlers, and none besides. One that is given back can be given again at once.
fn network() -> String {
    let few = json!({ "range_start": "198.51.100.11", "range_end": "198.51.100.13", "rest_seconds": 0 });
    network_to_move_on("moving", "eth2", &few)
}

/// Of a handler's certificate: shorter than the slow move below.
const LIFE: Duration = Duration::from_secs(20);
const SLOWLY: &str = "2Mi";
const FILLED_MIB: u64 = 64;
/// Until what is wrong, or no longer is, has shown.
const SHOWN: Duration = Duration::from_mins(3);

#[test]
fn a_handler_without_an_address_or_with_an_expired_certificate_is_named_and_the_guest_goes_on() {
    let lab = Installation::with_traveller_in(SPEC);
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 13 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    // A guest that runs is told by its processor's time.
    lab.ask(&json!({ "dirty": { "mib_per_s": 1, "working_set_mib": 1 } }));
    let listener = Listener::start(&lab);
    let (watch, mut guest) = (Watch::start(&lab), Guest::default());
    guest.is_well(&lab, &watch);
    let mut well = |lab: &Installation| guest.is_well(lab, &watch);
    the_pool_is_full(&lab, &mut well);
    a_certificate_expires_on_the_way(&lab, &mut well);
    println!("longest silence: {:.1?}", listener.silence());
}

fn the_pool_is_full(lab: &Installation, well: &mut impl FnMut(&Installation)) {
    lab.apply(&network());
    // Somebody else who has an address there.
    lab.apply(&squatter(lab.tools_image()));
    lab.in_installation(&["wait", "--for=condition=Ready", "pod/squatter", "--timeout=60s"]);
    assert!(lab.set_roles(ROLE).status.success());
    let (pod, node) = lab.until("a handler gets no address", SHOWN, || {
        let events = lab.objects(Kind::Event, KUBEVIRT);
        let full = events.iter().find(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "FailedCreatePodSandBox" && message.contains("has no free address")
        })?;
        let pod = full["involvedObject"]["name"].as_str()?.to_owned();
        let node = lab.in_installation(&["get", "pod", &pod, "-o", "jsonpath={.spec.nodeName}"]);
        Some((pod, node))
    });
    let named = format!(
        "{node}: its handler's pod has no network yet; `kubectl -n kubevirt describe pod {pod}` says why"
    );
    is_named(lab, &named);
    refuses_because(lab, "nowhere", &named);
    well(lab);

    lab.in_installation(&["delete", "pod", "squatter", "--timeout=60s"]);
    lab.ready_on("kubevirt/moving");
    moves_again(lab, "somewhere");
    well(lab);
}

fn a_certificate_expires_on_the_way(lab: &Installation, well: &mut impl FnMut(&Installation)) {
    let source = lab.node_of("traveller");
    lab.configure(&json!({ "bandwidthPerMigration": SLOWLY }));
    lab.certificates_live(Some(LIFE));
    let before = lab.certificates_of(&source);
    // The next one asks for a certificate.
    lab.end_handler(&source, Signal::Kill);
    lab.until_it_is("it has a new one", SHOWN, || lab.certificates_of(&source) > before);
    lab.request_until_admitted("slowly");
    lab.under_way("slowly");
    lab.apply(NO_REQUESTS);
    let named = format!(
        "{source}: the handler has no certificate: asking for a certificate failed: Internal error occurred: failed calling webhook"
    );
    is_named(lab, &named);
    assert_eq!(lab.migration("slowly")["status"]["phase"], "Running", "the certificate outlived the move");
    // What is open was let in by a certificate that counted.
    let migration = lab.ended("slowly");
    assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
    well(lab);
    refuses_because(lab, "in-vain", &named);
    well(lab);

    lab.kubectl_ok(&["delete", "validatingwebhookconfiguration", "no-requests"]);
    lab.certificates_live(None);
    lab.configure(&json!({ "bandwidthPerMigration": "0" }));
    lab.ready_on("kubevirt/moving");
    moves_again(lab, "with-a-new-one");
    well(lab);
}

/// Waits until the installation says this of a node.
fn is_named(lab: &Installation, named: &str) {
    lab.until_it_is(named, SHOWN, || {
        let (status, message) = lab.condition("MigrationNetworkReady");
        status == "False" && message.contains(named)
    });
}

/// A request to move the guest is refused, and the refusal says what is wrong.
fn refuses_because(lab: &Installation, name: &str, why: &str) {
    let asked = lab.with_manifest("create", &request(name));
    let said = String::from_utf8_lossy(&asked.stderr);
    println!("{name}: {}", said.trim());
    assert!(!asked.status.success(), "it was let in\n{}", lab.describe());
    assert!(said.contains("Cannot migrate VMI now") && said.contains(why), "{said}");
}

fn moves_again(lab: &Installation, name: &str) {
    lab.apply(&request(name));
    let migration = lab.ended(name);
    assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
    assert_eq!(migration["status"]["migrationState"]["migrationNetworkType"], "Migration");
}
