//! Everything on the nodes that belongs to launcher pods: what must be there for a machine that runs, and for none that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::{Place, Pod};
use crate::installation::Installation;
use crate::objects::{Kind, text};

impl Installation {
    /// What there is on all nodes but of Godwit's own pods, which may come and go.
    pub fn footprint(&self) -> BTreeSet<String> {
        let own = self.own_pods();
        let on = |node: &str| -> Vec<String> {
            let all = self.traces(node).into_iter();
            let others = all.filter(|line| !own.iter().any(|uid| line.contains(uid.as_str())));
            others.map(|line| format!("{node} {line}")).collect()
        };
        let nodes = self.objects(Kind::Node, "");
        nodes.iter().flat_map(|node| on(&text(node, "/metadata/name"))).collect()
    }

    /// How many things of every kind there are: a guest that has moved has the same ones elsewhere.
    pub fn footprint_by_kind(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for line in self.footprint() {
            let kind = line.split(' ').nth(1).unwrap().to_owned();
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    /// Waits until there is what there was, no more and no less.
    pub fn until_all_is_as(&self, before: &BTreeSet<String>, within: Duration) {
        let differences = || {
            let now = self.footprint();
            let more = now.difference(before).map(|line| format!("more: {line}"));
            more.chain(before.difference(&now).map(|line| format!("less: {line}"))).collect()
        };
        self.until_there_is_none("difference to before", within, differences);
    }

    /// Waits until nothing of the pod is plugged into a network, has an address or runs.
    pub fn until_it_has_nothing(&self, pod: &Pod, within: Duration) {
        let kinds = ["entry", "link", "process", "netns"];
        let is_of_it = |line: &String| {
            line.contains(&pod.uid) && kinds.iter().any(|kind| line.contains(&format!(" {kind}")))
        };
        let left = || self.footprint().into_iter().filter(is_of_it).collect();
        self.until_there_is_none(&format!("thing of pod {}", pod.name), within, left);
    }

    fn until_there_is_none(&self, what: &str, within: Duration, look: impl Fn() -> Vec<String>) {
        let end = Instant::now() + within;
        loop {
            let found = look();
            if found.is_empty() {
                return;
            }
            assert!(
                Instant::now() < end,
                "after {within:?} there should be no {what}: {found:#?}\n{}",
                self.describe()
            );
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// The pod's own interface and routes, to the last bit; the kernel's counters are not among that.
    pub fn eth0(&self, pod: &Pod) -> String {
        self.shell(
            Place::PodNetwork(pod),
            "ip -d -j address show dev eth0; ip -j route show table all dev eth0; \
             ip -6 -j route show table all dev eth0; cat /proc/sys/net/ipv4/ip_forward",
        )
    }

    /// Names of the interfaces in a pod.
    pub fn links(&self, pod: &Pod) -> Vec<String> {
        let shown = self.shell(Place::PodNetwork(pod), "ip -br link");
        let names = shown.lines().filter_map(|line| line.split(['@', ' ']).next());
        names.map(ToOwned::to_owned).collect()
    }
}
