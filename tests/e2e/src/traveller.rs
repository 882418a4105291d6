//! The guest that migrates: a VMI named `traveller`, on a layer-2 network through all nodes, with
//! an address from a DHCP server outside.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::engine::Place::Outside;
use crate::installation::Installation;

/// A layer-2 network through all nodes, with a DHCP server on it: addresses are no node's.
pub const SPEC: &str = "
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
/// From the manifest to the first answer, on a machine that emulates guests.
const ANSWERS: Duration = Duration::from_mins(2);

/// Its manifest.
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
        kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
        container: {{ image: 'godwit/guest:1', kernelPath: /vmlinuz, initrdPath: /initrd }}
    devices:
      interfaces: [{{ name: lan, bridge: {{}}, macAddress: '{MAC}' }}]
  networks: [{{ name: lan, multus: {{ networkName: guests }} }}]
"
    )
}

impl Installation {
    /// In a cluster of this specification, with the guest running. The network of guests is
    /// `secondary`.
    pub fn with_traveller_in(spec: &str) -> Self {
        let lab = Self::new(spec);
        lab.welcome_traveller("secondary", &traveller());
        lab.until_the_traveller_answers();
        lab
    }

    /// Has the guest start, and sees to it that it will have its address on this network of the
    /// cluster, whose bridge is `br-guests`.
    pub fn welcome_traveller(&self, network: &str, traveller: &str) {
        let directory = self.directory();
        self.shell(
            Outside,
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
        self.until_it_is("the guest answers", ANSWERS, || self.echo(Outside, ADDRESS, "hello"));
    }

    /// Asks the guest's control service.
    pub fn ask(&self, request: &Value) -> Value {
        let asked =
            self.shell(Outside, &format!("echo '{request}' | timeout 20 socat -t15 - TCP:{ADDRESS}:7002"));
        serde_json::from_str(asked.lines().next().unwrap_or_default()).unwrap()
    }
}

/// A peer outside, that reads the guest's counter without a pause.
pub struct Listener {
    process: Child,
    heard: Arc<Mutex<Vec<(Instant, u64)>>>,
}

impl Listener {
    pub fn start(lab: &Installation) -> Self {
        let mut command = lab.command(Outside, &format!("exec socat -u TCP:{ADDRESS}:7001 -"));
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
        // It may have ended with the cluster.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
