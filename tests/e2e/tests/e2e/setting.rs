//! The setting `vm-migration-network` from one end to the other: set, used, changed under a move, spoilt, mended and cleared, while
//! somebody talks to a guest without a pause.

use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use e2e::migrating::request;
use e2e::objects::{KUBEVIRT, Kind, text};
use e2e::traveller::{Listener, traveller};
use e2e::{Installation, NODES, Place};
use serde_json::{Value, json};

const LAB: &str = "
networks:
  - { name: management, nic: eth0 }
  - { name: fast, nic: eth1 }
  - { name: guests, nic: eth2, bridge: br-guests }
";
const NAME: &str = "vm-migration-network";
const FIRST: [u8; 3] = [198, 51, 100];
const SECOND: [u8; 3] = [203, 0, 113];
/// So much of the guest's 512 MiB is not empty.
const FILLED_MIB: u64 = 192;
/// How long handlers may take to be replaced, one after the other, and to find each other.
const ROLLED: Duration = Duration::from_mins(3);
const SHOWN: Duration = Duration::from_mins(1);

/// A network of 254 addresses that begin so.
fn range(of: [u8; 3]) -> String {
    format!("{}.{}.{}.0/24", of[0], of[1], of[2])
}

fn value(range: &str) -> Value {
    json!({ "clusterNetwork": "fast", "vlan": 0, "range": range })
}

/// What became of objects, in the API server's order: event by event.
struct Watch {
    process: Child,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Watch {
    fn start(lab: &Installation, arguments: &[&str]) -> Self {
        let watch = ["--watch", "--output-watch-events", "-o", "json"];
        let mut command = lab.kubectl_command(&[&["-n", "kubevirt", "get"], arguments, &watch].concat());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let events = Arc::<Mutex<Vec<_>>>::default();
        let (output, kept) = (BufReader::new(process.stdout.take().unwrap()), Arc::clone(&events));
        thread::spawn(move || {
            for event in serde_json::Deserializer::from_reader(output).into_iter().map_while(Result::ok) {
                kept.lock().unwrap().push(event);
            }
        });
        Self { process, events }
    }

    fn so_far(&self) -> Vec<Value> {
        self.events.lock().unwrap().clone()
    }

    /// When objects like this were deleted, as revisions of the store, which counts for all of them.
    fn deletions(&self, like: impl Fn(&Value) -> bool) -> Vec<u64> {
        let events = self.so_far();
        let deleted = events.iter().filter(|event| event["type"] == "DELETED" && like(&event["object"]));
        let revision = |event: &Value| event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok();
        deleted.map(|event| revision(event).unwrap()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended with the cluster.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Bytes that came and went by a NIC of a node.
struct Traffic {
    node: String,
    before: [u64; 2],
}

impl Traffic {
    fn from_now(lab: &Installation, node: &str) -> Self {
        Self { node: node.to_owned(), before: Self::counters(lab, node) }
    }

    fn counters(lab: &Installation, node: &str) -> [u64; 2] {
        ["eth0", "eth1"].map(|nic| {
            let counted = lab.shell(
                Place::Node(node),
                &format!("cd /sys/class/net/{nic}/statistics && cat rx_bytes tx_bytes"),
            );
            counted.lines().map(|line| line.parse::<u64>().unwrap()).sum()
        })
    }

    /// On eth0 and on eth1.
    fn since(&self, lab: &Installation) -> [u64; 2] {
        let now = Self::counters(lab, &self.node);
        [now[0] - self.before[0], now[1] - self.before[1]]
    }
}

/// Sets the value as a person does.
fn try_to_set(lab: &Installation, value: &str) -> Output {
    let setting = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": { "name": NAME }, "value": value,
    });
    lab.with_manifest("apply", &setting.to_string())
}

fn set(lab: &Installation, value: &str) {
    let set = try_to_set(lab, value);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}

/// Reason and message of the condition `configured`.
fn configured(lab: &Installation) -> (String, String) {
    let setting = lab.object(Kind::Setting, "", NAME);
    let conditions = setting["status"]["conditions"].as_array().into_iter().flatten();
    let Some(condition) = conditions.clone().find(|condition| condition["type"] == "configured") else {
        return Default::default();
    };
    let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
    assert_eq!(condition["status"] == "True", reason == "Ready", "{condition:#}");
    (reason, message)
}

/// Waits for a phase with these words.
fn until_configured(lab: &Installation, phase: &str, words: &str) {
    lab.until_it_is(&format!("{phase}: {words}"), ROLLED, || {
        let (reason, message) = configured(lab);
        reason == phase && message.contains(words)
    });
}

/// The definition that the installation uses for migrations.
fn definition_in_use(lab: &Installation) -> String {
    text(&lab.object(Kind::KubeVirt, KUBEVIRT, "kubevirt"), "/spec/configuration/migrations/network")
}

fn all_definitions(lab: &Installation) -> Vec<String> {
    let all = lab.objects(Kind::NetworkAttachmentDefinition, KUBEVIRT);
    all.iter().map(|definition| text(definition, "/metadata/name")).collect()
}

/// Versions of everything that a bad value must not touch.
fn versions(lab: &Installation) -> String {
    let path = "jsonpath={range .items[*]}{.metadata.name}={.metadata.resourceVersion} {end}";
    let of = |kinds: &str| lab.in_installation(&["get", kinds, "-o", path]);
    format!("{}{}", of("network-attachment-definitions,kv,ds"), of("settings.harvesterhci.io"))
}

/// Every handler has an address that begins so, and listens there and nowhere else.
fn are_on(lab: &Installation, range: [u8; 3]) {
    for node in NODES {
        let address = lab.address_of(node, "migration0");
        assert!(is_of(address, range), "{node} has {address}");
    }
    lab.listens_only_on("migration0");
}

/// Moves the guest, and says what the move's record says of its road.
fn move_traveller(lab: &Installation, name: &str) -> Value {
    lab.apply(&request(name));
    arrived(lab, name)
}

fn arrived(lab: &Installation, name: &str) -> Value {
    let migration = lab.ended(name);
    assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
    let state = migration["status"]["migrationState"].clone();
    assert_eq!(json!(lab.node_of("traveller")), state["targetNode"]);
    let checked = lab.ask(&json!({ "check": {} }));
    assert_eq!(checked["ok"], json!(true), "{checked}");
    lab.until_it_is("the source's pod is gone", SHOWN, || lab.launchers().len() == 1);
    state
}

/// A request to move the guest is refused, and says that the network is being rolled out.
fn refuses_to_move(lab: &Installation, name: &str) {
    let asked = lab.with_manifest("create", &request(name));
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success(), "it was let in: {:?}", configured(lab));
    assert!(said.contains("Cannot migrate VMI now") && said.contains("virt-handler"), "{said}");
    println!("while it rolls out: {}", said.trim());
}

fn is_of(address: IpAddr, range: [u8; 3]) -> bool {
    matches!(address, IpAddr::V4(address) if Ipv4Addr::octets(&address)[..3] == range)
}

#[test]
fn a_migration_network_is_set_used_changed_spoilt_mended_and_cleared() {
    let lab = Installation::new(LAB);
    lab.welcome_traveller("guests", &traveller().replace("256Mi", "512Mi"));
    lab.until_the_traveller_answers();
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 11 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    let listener = Listener::start(&lab);

    it_is_set(&lab);
    guest_memory_takes_it_alone(&lab);
    what_is_wrong_changes_nothing(&lab);
    it_is_changed_beside_a_move(&lab);
    it_is_repaired(&lab);
    it_is_cleared(&lab);

    let heard = listener.count();
    lab.until_it_is("the guest still counts", SHOWN, || listener.count() > heard);
    println!("longest silence: {:?}", listener.silence());
}

fn it_is_set(lab: &Installation) {
    lab.until_it_is_whole();
    // The installation has created it, before anybody sets it.
    let unset = lab.object(Kind::Setting, "", NAME);
    assert!(
        unset["metadata"]["name"] == NAME && unset["value"].is_null() && unset["default"].is_null(),
        "{unset:#}"
    );
    until_configured(lab, "Ready", "No migration network is set");
    set(lab, "");
    until_configured(lab, "Ready", "No migration network is set");
    let phases = Watch::start(lab, &["settings.harvesterhci.io", NAME]);
    set(lab, &value(&range(FIRST)).to_string());
    until_configured(lab, "RollingOut", "RollingOut ");
    refuses_to_move(lab, "too-early");
    until_configured(lab, "Ready", &range(FIRST));
    let mut told: Vec<String> = Vec::new();
    for event in phases.so_far() {
        let condition = &event["object"]["status"]["conditions"][0];
        let line = format!("{}: {}", condition["reason"], condition["message"]);
        if told.last() != Some(&line) {
            told.push(line);
        }
    }
    println!("phases:\n  {}", told.join("\n  "));
    for phase in ["RollingOut 1/3", "RollingOut 2/3", "Verifying", "Ready"] {
        assert!(told.iter().any(|line| line.contains(phase)), "{phase}: {told:#?}");
    }
    let (status, message) = lab.condition("MigrationNetworkReady");
    assert!(status == "True" && message.contains(&definition_in_use(lab)), "{message}");
    assert_eq!(all_definitions(lab), [definition_in_use(lab)]);
    are_on(lab, FIRST);
}

fn guest_memory_takes_it_alone(lab: &Installation) {
    let traffic = NODES.map(|node| Traffic::from_now(lab, node));
    let state = move_traveller(lab, "on-the-first");
    assert_eq!(state["migrationNetworkType"], "Migration", "{state:#}");
    let address: IpAddr = state["targetNodeAddress"].as_str().unwrap().parse().unwrap();
    assert!(is_of(address, FIRST), "{state:#}");
    let ends = [&state["sourceNode"], &state["targetNode"]].map(|node| node.as_str().unwrap());
    for traffic in traffic.iter().filter(|traffic| ends.contains(&traffic.node.as_str())) {
        let [main, fast] = traffic.since(lab);
        println!("{}: {main} bytes on eth0, {fast} on eth1", traffic.node);
        assert!(fast > FILLED_MIB << 20, "{}: {fast} bytes on eth1", traffic.node);
        assert!(main * 100 < fast, "{}: {main} bytes on eth0, {fast} on eth1", traffic.node);
    }
}

fn what_is_wrong_changes_nothing(lab: &Installation) {
    let pods = lab.kubectl_ok(&["get", "node", "node-1", "-o", "jsonpath={.spec.podCIDR}"]);
    let before = versions(lab);
    let mut unknown_field = value("192.0.2.0/24");
    unknown_field["excludes"] = json!([]);
    let mut elsewhere = value("192.0.2.0/24");
    elsewhere["clusterNetwork"] = json!("slow");
    for (wrong, field, sentence) in [
        (elsewhere, "value.clusterNetwork", "Cluster network \"slow\" does not exist".to_owned()),
        (value("192.0.2.0/30"), "value.range", "Too few addresses".to_owned()),
        (value(&pods), "value.range", format!("The range overlaps with the pod network in {pods}")),
        (unknown_field, "value", "unknown field `excludes`".to_owned()),
    ] {
        let refused = try_to_set(lab, &wrong.to_string());
        let said = String::from_utf8_lossy(&refused.stderr);
        println!("{wrong}: {}", said.trim());
        assert!(!refused.status.success(), "{wrong} was let in");
        assert!(said.contains(&format!("{field}: ")) && said.contains(&sentence), "{said}");
    }
    let refused = lab.kubectl(&["delete", "settings.harvesterhci.io", NAME]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("set value to an empty text"), "{said}");
    assert_eq!(versions(lab), before);
}

/// The change is refused while the guest moves, and takes effect after; the old network goes when nobody is on it.
fn it_is_changed_beside_a_move(lab: &Installation) {
    // Long enough that both changes are tried beside it.
    lab.configure(&json!({ "bandwidthPerMigration": "8Mi", "completionTimeoutPerGiB": 800 }));
    let first = definition_in_use(lab);
    let handlers = lab.handlers();
    lab.apply(&request("slowly"));
    lab.under_way("slowly");
    for change in [value(&range(SECOND)).to_string(), String::new()] {
        let refused = try_to_set(lab, &change);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{change:?} was let in beside a move");
        assert!(
            said.contains("There is a VM migration in progress") && said.contains("default/slowly"),
            "{said}"
        );
        println!("beside a move: {}", said.trim());
    }
    lab.under_way("slowly");
    assert_eq!((definition_in_use(lab), lab.handlers()), (first.clone(), handlers));
    let state = arrived(lab, "slowly");
    assert_eq!(state["migrationNetworkType"], "Migration", "{state:#}");
    let [began, ended] = ["startTimestamp", "endTimestamp"]
        .map(|name| state[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    assert!(ended.duration_since(began).as_secs() >= 20, "it was no slow move: {began} to {ended}");
    lab.configure(&json!({ "bandwidthPerMigration": "0" }));

    let definitions = Watch::start(lab, &["network-attachment-definitions"]);
    let pods = Watch::start(lab, &["pods", "-l", "kubevirt.io=virt-handler"]);
    lab.until_it_is("the watches are there", SHOWN, || {
        definitions.so_far().len() == 1 && pods.so_far().len() == NODES.len()
    });
    set(lab, &value(&range(SECOND)).to_string());
    until_configured(lab, "RollingOut", "RollingOut ");
    refuses_to_move(lab, "too-early-again");
    assert!(all_definitions(lab).contains(&first), "handlers are still on it");
    until_configured(lab, "Ready", &range(SECOND));
    lab.until_it_is("the old definition is gone", SHOWN, || {
        all_definitions(lab) == [definition_in_use(lab)] && !definitions.deletions(|_| true).is_empty()
    });
    let on_first = |pod: &Value| pod["metadata"]["annotations"].to_string().contains(&first);
    let (left, removed) = (pods.deletions(on_first), definitions.deletions(|_| true));
    assert_eq!((left.len(), removed.len()), (NODES.len(), 1));
    println!("handlers left at revisions {left:?}, the definition at {removed:?}");
    assert!(left.iter().all(|left| left < &removed[0]), "{left:?} {removed:?}");
    are_on(lab, SECOND);
}

fn it_is_repaired(lab: &Installation) {
    let (name, handlers) = (definition_in_use(lab), lab.handlers());
    lab.in_installation(&["delete", "network-attachment-definition", &name]);
    lab.until_it_is("the definition is back", SHOWN, || all_definitions(lab) == [name.clone()]);
    lab.until_it_is_whole();
    until_configured(lab, "Ready", &range(SECOND));
    assert_eq!(lab.handlers(), handlers, "nobody was disturbed");
}

fn it_is_cleared(lab: &Installation) {
    set(lab, "");
    until_configured(lab, "RollingOut", "RollingOut ");
    until_configured(
        lab,
        "Ready",
        "No migration network is set: virtual machines move over the pod network.",
    );
    assert_eq!((definition_in_use(lab), all_definitions(lab)), (String::new(), Vec::new()));
    lab.until_it_is_whole();
    lab.listens_only_on("eth0");
    let state = move_traveller(lab, "on-the-pod-network");
    assert_eq!(state["migrationNetworkType"], "Pod", "{state:#}");
}
