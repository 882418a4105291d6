//! Guests that move between nodes, with a peer outside that talks to them all the while.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use migration::texts::TARGET_ENDED;
use serde_json::{Value, json};

use crate::installation::Installation;

/// A layer-2 network through all nodes, with a DHCP server on it: addresses are no node's.
const LAB: &str = "
networks:
  - { name: management, nic: eth0 }
  - { name: secondary, nic: eth1, bridge: br-guests }
";
const DEFINITION: &str = r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: guests }
spec:
  config: '{"cniVersion":"1.0.0","name":"guests","type":"bridge","bridge":"br-guests"}'
"#;
const ADDRESS: &str = "192.0.2.50";
const MAC: &str = "02:00:00:00:02:50";
const FILLED_MIB: u64 = 64;
/// Connections for memory besides the first.
const SEVERAL: u64 = 4;
const GENERATIONS: &str = "jsonpath={.metadata.generation} {.status.observedGeneration}";
/// From the request to its end, on a machine that emulates guests.
const PATIENCE: Duration = Duration::from_mins(2);

pub fn traveller() -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{ name: traveller }}
spec:
  terminationGracePeriodSeconds: 10
  domain:
    cpu: {{ cores: 1, model: qemu64 }}
    memory: {{ guest: 256Mi }}
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet
        container: {{ image: 'godwit/guest:1', kernelPath: /vmlinuz, initrdPath: /initrd }}
    devices:
      interfaces: [{{ name: lan, bridge: {{}}, macAddress: '{MAC}' }}]
  networks: [{{ name: lan, multus: {{ networkName: guests }} }}]
"
    )
}

pub fn request(name: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {{ name: {name} }}
spec: {{ vmiName: traveller }}
"
    )
}

impl Installation {
    /// A lab with a guest that has its address.
    fn with_traveller() -> Self {
        Self::with_traveller_in(LAB)
    }

    /// The same with other networks besides that of guests.
    pub fn with_traveller_in(config: &str) -> Self {
        let lab = Self::new(config);
        lab.welcome_traveller("secondary", &traveller());
        lab.until_the_traveller_answers();
        lab
    }

    /// Has the guest start, and sees to it that it will have its address on this network of the lab, whose bridge is `br-guests`.
    pub fn welcome_traveller(&self, network: &str, traveller: &str) {
        let directory = self.directory();
        self.shell(
            "fabric",
            &format!(
                "ip address add 192.0.2.1/24 dev {network} && dnsmasq --conf-file=/dev/null --port=0 --interface={network} \
                 --bind-interfaces --except-interface=lo --dhcp-range=192.0.2.50,192.0.2.99 --dhcp-host={MAC},{ADDRESS} \
                 --dhcp-leasefile={0}/leases --pid-file={0}/dnsmasq.pid",
                directory.display()
            ),
        );
        self.apply(DEFINITION);
        self.apply(traveller);
    }

    pub fn until_the_traveller_answers(&self) {
        self.until_it_is("the guest answers", PATIENCE, || self.echo("fabric", ADDRESS, "hello"));
    }

    /// Asks the guest's control service.
    pub fn ask(&self, request: &Value) -> Value {
        let asked =
            self.shell("fabric", &format!("echo '{request}' | timeout 20 socat -t15 - TCP:{ADDRESS}:7002"));
        serde_json::from_str(asked.lines().next().unwrap_or_default()).unwrap()
    }

    pub fn migration(&self, name: &str) -> Value {
        serde_json::from_str(&self.kubectl_ok(&["get", "vmim", name, "-o", "json"])).unwrap()
    }

    fn moves(&self, name: &str) -> Value {
        self.apply(&request(name));
        self.ended(name)
    }

    /// As a person asks for it: to a node of their choice, over several connections.
    fn comes_back_to(&self, node: &str) -> Value {
        let home = self.node_of("traveller");
        self.configure(&json!({ "parallelConnections": SEVERAL, "bandwidthPerMigration": "32Mi" }));
        for (elsewhere, why) in [("nowhere", "there is no node nowhere"), (home.as_str(), "it runs on node")]
        {
            let refused = self.at_terminal(&["migrate", "traveller", "--node", elsewhere]).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains(why), "{said}");
        }
        let mut asking = self.at_terminal(&["migrate", "traveller", "--node", node, "--wait", "--json"]);
        let asking = asking.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let open = || self.number(&home, r#"godwit_tunnel_connections{channel="memory"}"#);
        self.until_it_is("memory takes several connections", PATIENCE, || open() > SEVERAL);
        let answer = asking.wait_with_output().unwrap();
        assert!(answer.status.success(), "{answer:?}\n{}", self.describe());
        let outcome: Value = serde_json::from_slice(&answer.stdout).unwrap();
        assert_eq!(
            (&outcome["succeeded"], &outcome["targetNode"]),
            (&json!(true), &json!(node)),
            "{outcome}"
        );
        self.migration(outcome["migration"].as_str().unwrap())
    }

    /// Waits for the end of a move.
    pub fn ended(&self, name: &str) -> Value {
        let over = || {
            let migration = self.migration(name);
            matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed")).then_some(migration)
        };
        self.until("the move is over", PATIENCE, over)
    }

    /// Launcher pods that have not ended, with their nodes.
    pub fn launchers(&self) -> Vec<(String, String)> {
        let all = self.kubectl_ok(&["get", "pods", "-l", "kubevirt.io=virt-launcher", "-o", "json"]);
        let all: Value = serde_json::from_str(&all).unwrap();
        let of = |pod: &Value, path: &str| {
            pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let ended = |pod: &Value| matches!(of(pod, "/status/phase").as_str(), "Succeeded" | "Failed");
        let pods = all["items"].as_array().unwrap().iter().filter(|pod| !ended(pod));
        pods.map(|pod| (of(pod, "/metadata/name"), of(pod, "/spec/nodeName"))).collect()
    }
}

/// A peer outside, that reads the guest's counter without a pause.
pub struct Listener {
    process: Child,
    heard: Arc<Mutex<Vec<(Instant, u64)>>>,
}

impl Listener {
    pub fn start(lab: &Installation) -> Self {
        let script = format!("exec socat -u TCP:{ADDRESS}:7001 -");
        let mut command = lab.command(&["lab", "shell", "fabric", "--", "/bin/sh", "-c", &script]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let (lines, kept) = (BufReader::new(process.stdout.take().unwrap()).lines(), Arc::clone(&heard));
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let number = line.split(' ').next().and_then(|number| number.parse().ok());
                kept.lock().unwrap().push((Instant::now(), number.expect("a line of the counter")));
            }
        });
        Self { process, heard }
    }

    pub fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// The longest silence; there must be no gap in what was heard.
    pub fn silence(&self) -> Duration {
        let heard = self.heard.lock().unwrap();
        for pair in heard.windows(2) {
            assert_eq!(pair[1].1, pair[0].1 + 1, "a line is missing");
        }
        heard.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or_default()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended with the lab.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_guest_moves_and_comes_back_with_its_memory_its_address_and_its_connections() {
    let lab = Installation::with_traveller();
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 5 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    let listener = Listener::start(&lab);
    let first = lab.node_of("traveller");
    let mut home = first.clone();
    for name in ["there", "back"] {
        let begun = Instant::now();
        let migration = if name == "back" { lab.comes_back_to(&first) } else { lab.moves(name) };
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
    let lab = Installation::with_traveller();
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 7 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    let listener = Listener::start(&lab);
    let home = lab.node_of("traveller");
    let unharmed = |name: &str| {
        let migration = lab.ended(name);
        assert_eq!(migration["status"]["phase"], "Failed", "{migration:#}");
        let state: Value = serde_json::from_str(&lab.show("traveller", ".status.migrationState")).unwrap();
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
            _ => lab.show("traveller", ".status.migrationState.targetNode"),
        };
        let handler = lab.pod_uid("kubevirt", "kubevirt.io=virt-handler", &node);
        lab.shell(&node, &format!("kill -9 $(ip netns pids {handler})"));
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
    lab.a_wrong_token_is_refused(&home);
    lab.the_move_shows_in_numbers(&home);
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
    let state: Value = serde_json::from_str(&lab.show("traveller", ".status.migrationState")).unwrap();
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

impl Installation {
    /// Changes how machines move in this cluster.
    pub fn configure(&self, migrations: &Value) {
        let patch = json!({ "spec": { "configuration": { "migrations": migrations } } });
        self.kubectl_ok(&[
            "-n",
            "kubevirt",
            "patch",
            "kubevirt",
            "kubevirt",
            "--type=merge",
            "-p",
            &patch.to_string(),
        ]);
        self.until_it_is_whole();
    }

    /// Nothing moves while a handler is missing, or a change is on its way to them.
    pub fn until_it_is_whole(&self) {
        let whole = || {
            let seen = self.in_installation(&["get", "kv", "kubevirt", "-o", GENERATIONS]);
            self.condition("Available").1 == "All components are ready."
                && seen.split_once(' ').is_some_and(|(made, observed)| made == observed)
        };
        self.until_it_is("the installation is whole", PATIENCE, whole);
    }

    /// A stranger at the very address of the source, who knows everything of the move but its token, gets nowhere and is counted.
    fn a_wrong_token_is_refused(&self, source: &str) {
        let state: Value = serde_json::from_str(&self.show("traveller", ".status.migrationState")).unwrap();
        let text = |field: &str| state[field].as_str().unwrap().to_owned();
        let (uid, target, address) = (text("migrationUid"), text("targetNode"), text("targetNodeAddress"));
        let refused = || self.number(&target, "godwit_tunnel_refusals_total{reason=\"token\"}");
        assert_eq!(refused(), 0);
        // Magic; UID, channel 49152 and token, each with its length before it.
        let preamble = format!(r"godwit\000\001\0{:o}{uid}\002\300\000\040{}", uid.len(), "x".repeat(32));
        let command = format!("sh -c \"printf '{preamble}' | socat -t10 - TCP:{address}:9186\"");
        assert_eq!(self.in_handler(source, &command), "", "not a word");
        self.until_it_is("it is counted", PATIENCE, || refused() >= 1);
    }

    /// Whoever watches the handlers and the controller sees the move.
    fn the_move_shows_in_numbers(&self, source: &str) {
        let labels = format!(r#"{{namespace="default",name="traveller",node="{source}"}}"#);
        for name in ["data_bytes_total", "data_processed_bytes", "memory_transfer_rate_bytes"] {
            let number = format!("kubevirt_vmi_migration_{name}{labels}");
            self.until_it_is(&number, PATIENCE, || self.number(source, &number) > 0);
        }
        let sent = r#"godwit_tunnel_bytes_total{channel="memory",direction="sent"}"#;
        assert!(self.number(source, sent) > 0);
        assert_eq!(self.number(source, r#"godwit_tunnel_transfers{direction="outgoing"}"#), 1);
        let all = self.kubectl_ok(&[
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
            all.split(' ').filter_map(|address| number(&self.scrape(source, address), name)).collect()
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
    fn scrape(&self, node: &str, address: &str) -> String {
        self.shell(node, &format!("curl --silent --fail --max-time 20 http://{address}:8443/metrics"))
    }

    /// A number of the handler of a node; zero if it is not there.
    fn number(&self, node: &str, name: &str) -> u64 {
        let pod = self.handler(node).name;
        let address = self.in_installation(&["get", "pod", &pod, "-o", "jsonpath={.status.podIP}"]);
        number(&self.scrape(node, &address), name).unwrap_or_default()
    }

    /// Waits until guest memory is on its way.
    pub fn under_way(&self, name: &str) {
        self.until("guest memory is on its way", PATIENCE, || {
            let migration = self.migration(name);
            let moves =
                migration["status"]["progress"]["processedBytes"].as_u64().is_some_and(|bytes| bytes > 0);
            assert_ne!(migration["status"]["phase"], "Failed", "{migration:#}\n{}", self.describe());
            moves.then_some(())
        });
    }
}

/// Of those that are whole.
fn number(text: &str, name: &str) -> Option<u64> {
    let shown = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    shown.trim_end_matches(".0").parse().ok()
}
