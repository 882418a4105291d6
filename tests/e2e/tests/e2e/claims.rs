//! A machine's address is the machine's: whatever becomes of its pods, its node's handler, or where it runs. Told by the guest itself,
//! by the instance, and by the claim; and a neighbour outside never hears of it from anybody but the guest.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::Place::{Node, Outside};
use e2e::migration_network::ROLE;
use e2e::objects::{VMS, text};
use e2e::{Installation, Kind, Signal, network_to_move_on};
use serde_json::{Value, json};

use crate::asked;

/// A layer-2 network through both nodes, whose addresses are given by our plugin; and one for guests' memory.
const LAB: &str = "
clusters: [{ name: lab, nodes: 2 }]
networks:
  - { name: management, nic: eth0 }
  - { name: secondary, nic: eth1, bridge: br-guests }
  - { name: moving, nic: eth2 }
";
const NODES: [&str; 2] = ["node-1", "node-2"];
/// Up to the address that the example asks for, so that nobody draws it before. The example widens it.
const DEFINITION: &str = r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: guests }
spec:
  config: '{"cniVersion":"1.0.0","name":"guests","type":"bridge","bridge":"br-guests",
    "ipam":{"type":"godwit-ipam","range":"192.0.2.0/24","range_start":"192.0.2.50","range_end":"192.0.2.76"}}'
"#;
/// How often it migrates, unless `GODWIT_MOVES` says otherwise.
const FEW_MOVES: u64 = 6;
/// By then everything that a handler makes once is made.
const WARM: u64 = 3;
/// The pod that has the guest, and those that it left last: they are kept for their logs.
const PODS: usize = 3;
/// For one step of a machine that is emulated.
const PATIENCE: Duration = Duration::from_mins(3);

/// A machine on that network; `asks` are annotations of its template.
fn machine(name: &str, memory: &str, asks: &Value) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{ name: {name} }}
spec:
  runStrategy: Always
  template:
    metadata: {{ annotations: {asks} }}
    spec:
      terminationGracePeriodSeconds: 5
      domain:
        cpu: {{ cores: 1, model: qemu64 }}
        memory: {{ guest: {memory} }}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
            container: {{ image: 'godwit/guest:1', kernelPath: /vmlinuz, initrdPath: /initrd }}
        devices:
          interfaces: [{{ name: lan, bridge: {{}} }}]
      networks: [{{ name: lan, multus: {{ networkName: guests }} }}]
"
    )
}

fn chosen(address: &str) -> Value {
    json!({ "network.kubevirt.io/addresses": json!({ "lan": [address] }).to_string() })
}

/// What a handler holds: its memory in KiB and its open files.
type Holds = (u64, u64);

/// What can be seen of machines in the lab.
struct Seen<'a>(&'a Installation);

impl Seen<'_> {
    fn claim(&self, name: &str) -> Value {
        self.0.object(Kind::IpamClaim, VMS, &format!("{name}.lan"))
    }

    /// The address that instance, claim and guest agree on, once the guest answers there.
    fn address(&self, name: &str) -> String {
        let lab = self.0;
        let address = lab.until("the instance has an address", PATIENCE, || lab.address(name));
        lab.until_it_is("the guest answers", PATIENCE, || lab.echo(Outside, &address, "hello"));
        let claim = self.claim(name);
        assert_eq!(claim["status"]["ips"], json!([format!("{address}/24")]), "{claim:#}");
        let report = r#"{"report":{}}"#;
        let told = lab.until("the guest reports", PATIENCE, || lab.control(Outside, &address, report));
        let nics = told["report"]["nics"].to_string();
        assert!(nics.contains(&format!("\"{address}/24\"")), "the guest itself: {nics}");
        address
    }

    /// Waits until the claim is used by the one launcher pod that is left, on this node.
    fn one_launcher_on(&self, node: &str) {
        let launcher = self.0.until("one launcher is left, and has the claim", PATIENCE, || {
            let pods = self.0.selected(Kind::Pod, VMS, "vm.kubevirt.io/name=traveller", "");
            let ended =
                |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let mut living = pods.iter().filter(|pod| !ended(pod));
            let (only, none) = (living.next()?, living.next());
            let user = &self.claim("traveller")["status"]["ownerPod"]["name"];
            (none.is_none() && *user == only["metadata"]["name"]).then(|| only["spec"]["nodeName"].clone())
        });
        assert_eq!(launcher, node);
    }

    fn moves(&self, name: &str) {
        let request = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": name }, "spec": { "vmiName": "traveller" },
        });
        self.0.apply(&request.to_string());
        let ended = self.0.until("the move is over", PATIENCE, || {
            let migration = self.0.migration(name);
            let over = matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            over.then_some(migration)
        });
        assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}\n{}", self.0.describe());
    }

    /// Memory and open files of both handlers.
    fn handlers(&self) -> BTreeMap<&'static str, Holds> {
        let look = |node: &str| -> Holds {
            let handler = self.0.pod_on(node, "kubevirt", "kubevirt.io=virt-handler");
            let numbers = self.0.processes(&handler).into_iter().map(|process| process.number.to_string());
            let numbers = numbers.collect::<Vec<_>>().join(" ");
            let script = format!(
                "for p in {numbers}; do grep -q virt-handler /proc/$p/cmdline || continue; \
                 sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$p/status; ls /proc/$p/fd | wc -l; done"
            );
            let shown = self.0.shell(Node(node), &script);
            let mut numbers = shown.split_whitespace().map(|number| number.parse::<u64>().unwrap());
            let holds = (numbers.next().unwrap(), numbers.next().unwrap());
            assert_eq!(numbers.next(), None, "one handler a node: {shown}");
            holds
        };
        NODES.into_iter().map(|node| (node, look(node))).collect()
    }

    fn sets(&self, name: &str, strategy: &str) {
        let spec = json!({ "spec": { "runStrategy": strategy } }).to_string();
        self.0.kubectl_ok(&["patch", "vm", name, "--type=merge", "-p", &spec]);
    }

    fn goes(&self, name: &str) {
        self.0.kubectl_ok(&["delete", "vm", name, "--timeout=120s"]);
        self.0.until_it_is("its claim is gone", PATIENCE, || self.claim(name).is_null());
    }
}

#[test]
fn an_address_is_the_machines_through_restarts_moves_and_crashes() {
    let lab = Installation::new(LAB);
    let seen = Seen(&lab);
    lab.shell(Outside, "ip address add 192.0.2.1/24 dev secondary");
    lab.apply(DEFINITION);
    lab.apply(&machine("traveller", "160Mi", &json!({})));
    let address = seen.address("traveller");

    seen.sets("traveller", "Halted");
    lab.until_it_is("the instance is gone", PATIENCE, || lab.status_of("traveller").is_null());
    let claim = seen.claim("traveller");
    assert_eq!(claim["status"]["ips"], json!([format!("{address}/24")]), "held while it is stopped");
    seen.sets("traveller", "Always");
    assert_eq!(seen.address("traveller"), address, "after a restart");

    lab.apply(&network_to_move_on("moving", "eth2", &json!({})));
    assert!(lab.set_roles(ROLE).status.success());
    lab.ready_on("kubevirt/moving");
    keeps_it_in_moves(&seen, &address);
    keeps_it_when_a_handler_dies(&seen, &address);
    is_had_by_one_machine_at_a_time(&seen);

    seen.goes("traveller");
    let allocations = lab.objects(Kind::AddressAllocation, "");
    let held = allocations.iter().find(|item| item["spec"]["address"] == *address);
    let spec = &held.expect("it rests")["spec"];
    assert!(spec["owner"].is_null() && spec["releasedAt"].is_string(), "{spec:#}");
}

/// There and back several times, under a guest that writes to its memory, with a neighbour that talks to it all the while.
fn keeps_it_in_moves(seen: &Seen<'_>, address: &str) {
    let lab = seen.0;
    let mac = text(&lab.status_of("traveller"), "/interfaces/0/mac");
    let dirty = r#"{"dirty":{"mib_per_s":8,"working_set_mib":24}}"#;
    lab.until("the guest works", PATIENCE, || lab.control(Outside, address, dirty));
    let counter = lab.counter(Outside, address);
    let log = lab.directory().join("neighbours");
    lab.shell(Outside, &format!("(ip monitor neigh dev secondary >{} 2>&1 </dev/null &)", log.display()));
    let heard = || std::fs::read_to_string(&log).unwrap();
    lab.until_it_is("the neighbour listens", PATIENCE, || {
        lab.shell(Outside, "ip neigh flush dev secondary");
        lab.echo(Outside, address, "who are you?") && heard().contains(&mac)
    });
    let mut warm: BTreeMap<&str, Holds> = BTreeMap::new();
    let mut there = BTreeMap::new();
    for number in 1..=asked("GODWIT_MOVES").unwrap_or(FEW_MOVES) {
        let from = lab.node_of("traveller");
        seen.moves(&format!("move-{number}"));
        let to = lab.node_of("traveller");
        assert_ne!(from, to);
        seen.one_launcher_on(&to);
        assert_eq!(seen.address("traveller"), address, "after move {number}");
        counter.goes_on(lab);
        let now = seen.handlers();
        println!("move {number}: {from} to {to}, {now:?}");
        if number <= WARM {
            // Pages of the program itself come and go as the machine needs room: the most that it had counts.
            let most = |node, memory: u64| warm.get(node).map_or(memory, |(before, _)| memory.max(*before));
            warm =
                now.into_iter().map(|(node, (memory, files))| (node, (most(node, memory), files))).collect();
            there = lab.footprint_by_kind();
        }
    }
    println!("longest silence: {:?}", counter.longest_silence());
    drop(counter);
    // Of both together: one of them has the guest.
    let files = |holds: &BTreeMap<_, Holds>| holds.values().map(|(_, files)| files).sum::<u64>();
    lab.until_it_is("what moves opened is closed", PATIENCE, || files(&seen.handlers()) <= files(&warm));
    lab.until_it_is("pods that it left are gone", PATIENCE, || {
        lab.selected(Kind::Pod, VMS, "vm.kubevirt.io/name=traveller", "").len() <= PODS
    });
    lab.until_it_is(&format!("there is no more than {there:?}"), PATIENCE, || {
        lab.footprint_by_kind().iter().all(|(kind, count)| there.get(kind) >= Some(count))
    });
    for (node, (memory, _)) in &warm {
        let now = seen.handlers()[node].0;
        assert!(now * 10 <= memory * 11, "the handler of {node} had {memory} KiB, and now has {now}");
    }
    let heard = heard();
    let of_guest = heard.lines().filter(|line| line.starts_with(&format!("{address} ")));
    let others: Vec<_> = of_guest.filter(|line| line.contains("lladdr") && !line.contains(&mac)).collect();
    assert!(others.is_empty(), "somebody else answered for {address} of {mac}: {others:#?}");
}

fn keeps_it_when_a_handler_dies(seen: &Seen<'_>, address: &str) {
    let lab = seen.0;
    let node = lab.node_of("traveller");
    let handler = lab.pod_on(&node, "kubevirt", "kubevirt.io=virt-handler");
    lab.signal_pod(&handler, Signal::Kill);
    assert!(lab.echo(Outside, address, "no handler"));
    lab.until_it_is("the handler is back", PATIENCE, || {
        lab.pod_on(&node, "kubevirt", "kubevirt.io=virt-handler").uid != handler.uid
            || !lab.processes(&handler).is_empty()
    });
    lab.rolled_out();
    assert_eq!(seen.address("traveller"), address, "after the handler's death");
}

fn is_had_by_one_machine_at_a_time(seen: &Seen<'_>) {
    let lab = seen.0;
    let refused = lab.with_manifest("apply", &machine("stray", "96Mi", &chosen("10.9.9.9")));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("10.9.9.9 is outside of"), "{said}");
    lab.apply_file("examples/vm-with-address.yaml");
    assert_eq!(seen.address("vm-with-address"), "192.0.2.77", "as it was asked for");
    lab.apply(&machine("rival", "96Mi", &chosen("192.0.2.77")));
    let why = lab.until("the rival is told why it waits", PATIENCE, || {
        let status = lab.status_of("rival");
        let told = status["conditions"].as_array()?.iter().find(|told| told["type"] == "Synchronized")?;
        (told["reason"] == "IPAddressConflict").then(|| told["message"].as_str().unwrap().to_owned())
    });
    assert_eq!(why, "192.0.2.77 is taken by claim default/vm-with-address.lan");
    seen.goes("rival");
    assert_eq!(seen.address("vm-with-address"), "192.0.2.77", "it was never in doubt");
    seen.goes("vm-with-address");
}
