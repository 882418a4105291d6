//! The files in /etc that a pod has from its node: hosts, hostname, resolv.conf. Pure.

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

/// A cluster's own name service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDns {
    pub servers: Vec<String>,
    /// Such as `cluster.local`.
    pub domain: String,
}

/// The longest host name that Linux takes.
const LONGEST: usize = 63;
const MANAGED: &str = "# Kubernetes-managed hosts file.\n";
const USUAL: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The pod's host name: what it asks for, or its own name, as far as it fits. In the node's network it has the node's.
pub fn hostname(pod: &Pod, node: &str) -> String {
    let spec = pod.spec.as_ref();
    if is_on_host_network(pod) {
        return node.to_owned();
    }
    let wanted = spec.and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    let name = wanted.or(pod.metadata.name.as_deref()).unwrap_or_default();
    let fits: String = name.chars().take(LONGEST).collect();
    fits.trim_end_matches(['-', '.']).to_owned()
}

/// `/etc/hosts`. `node_hosts` is the node's own file, which a pod in the node's network has.
pub fn hosts(pod: &Pod, node_hosts: &str, cluster: Option<&ClusterDns>) -> String {
    let spec = pod.spec.as_ref();
    let mut file = if is_on_host_network(pod) {
        format!("{MANAGED}{}\n", node_hosts.trim_end())
    } else {
        let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
        let names = names(pod, cluster);
        let own: Vec<_> = ips.map(|ip| format!("{}\t{names}\n", ip.ip)).collect();
        format!("{MANAGED}{USUAL}{}", own.concat())
    };
    let aliases = spec.and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        file.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.iter().flatten().map(String::as_str);
        let line: Vec<_> = std::iter::once(alias.ip.as_str()).chain(names).collect();
        file.push_str(&line.join("\t"));
        file.push('\n');
    }
    file
}

/// What the pod's own addresses are called: with its subdomain it has a long name too.
fn names(pod: &Pod, cluster: Option<&ClusterDns>) -> String {
    let name = hostname(pod, "");
    let subdomain =
        pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref()).filter(|name| !name.is_empty());
    match (subdomain, cluster) {
        (Some(subdomain), Some(cluster)) => {
            let namespace = crate::volumes::namespace(pod);
            format!("{name}.{subdomain}.{namespace}.svc.{}\t{name}", cluster.domain)
        }
        _ => name,
    }
}

/// `/etc/resolv.conf`. `node` is the node's own file; without a name service of the cluster, that is what pods have.
pub fn resolv_conf(pod: &Pod, node: &str, cluster: Option<&ClusterDns>) -> String {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let mut resolver = match (policy, cluster) {
        ("None", _) => Resolver::default(),
        ("ClusterFirst", Some(cluster)) if !is_on_host_network(pod) => {
            Resolver::of_cluster(pod, cluster, node)
        }
        ("ClusterFirstWithHostNet", Some(cluster)) => Resolver::of_cluster(pod, cluster, node),
        _ => Resolver::parse(node),
    };
    if let Some(config) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        resolver.add(config);
    }
    resolver.to_file()
}

/// What a resolver is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    /// Name, and value after a colon.
    options: Vec<(String, Option<String>)>,
}

impl Resolver {
    fn parse(file: &str) -> Self {
        let mut resolver = Self::default();
        for line in file.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => resolver.servers.extend(words.next()),
                // The last line counts.
                Some("search") => resolver.searches = words.collect(),
                Some("options") => {
                    for word in words {
                        match word.split_once(':') {
                            Some((name, value)) => resolver.set(name, Some(value)),
                            None => resolver.set(&word, None),
                        }
                    }
                }
                _ => {}
            }
        }
        resolver
    }

    fn of_cluster(pod: &Pod, cluster: &ClusterDns, node: &str) -> Self {
        let (namespace, domain) = (crate::volumes::namespace(pod), &cluster.domain);
        let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
        searches.extend(Self::parse(node).searches);
        let mut resolver = Self { servers: cluster.servers.clone(), searches, options: Vec::new() };
        resolver.set("ndots", Some("5"));
        resolver
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        self.options.retain(|(known, _)| known != name);
        self.options.push((name.to_owned(), value.map(str::to_owned)));
    }

    fn add(&mut self, config: &PodDNSConfig) {
        self.servers.extend(config.nameservers.iter().flatten().cloned());
        self.searches.extend(config.searches.iter().flatten().cloned());
        for option in config.options.iter().flatten() {
            if let Some(name) = &option.name {
                self.set(name, option.value.as_deref());
            }
        }
    }

    fn to_file(&self) -> String {
        let option = |(name, value): &(String, Option<String>)| match value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        let options: Vec<_> = self.options.iter().map(option).collect();
        let servers = once_each(&self.servers).into_iter().map(|server| format!("nameserver {server}\n"));
        let line = |keyword: &str, words: Vec<String>| {
            (!words.is_empty()).then(|| format!("{keyword} {}\n", words.join(" ")))
        };
        let lines = servers.chain(line("search", once_each(&self.searches))).chain(line("options", options));
        lines.collect::<Vec<_>>().concat()
    }
}

fn once_each(words: &[String]) -> Vec<String> {
    let mut once = Vec::new();
    for word in words {
        if !once.contains(word) {
            once.push(word.clone());
        }
    }
    once
}

fn is_on_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use serde_json::{Value, json};

    use super::*;

    const NODE: &str = "# the node's\nnameserver 192.0.2.53\nsearch example.org\noptions edns0 ndots:2\n";

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({
            "metadata": {"name": "web-0", "namespace": "shop"},
            "spec": spec,
            "status": {"podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]},
        }))
        .unwrap()
    }

    fn cluster() -> ClusterDns {
        ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() }
    }

    #[test]
    fn host_names() {
        assert_eq!(hostname(&pod(json!({})), "node1"), "web-0");
        assert_eq!(hostname(&pod(json!({"hostname": "db"})), "node1"), "db");
        assert_eq!(hostname(&pod(json!({"hostNetwork": true})), "node1"), "node1");
        let long = format!("{}-x", "a".repeat(62));
        assert_eq!(hostname(&pod(json!({"hostname": long})), ""), "a".repeat(62));
    }

    #[test]
    fn hosts_have_the_pod_and_its_aliases() {
        let aliases = json!([{"ip": "192.0.2.7", "hostnames": ["a", "b"]}]);
        let file = hosts(&pod(json!({"hostAliases": aliases, "subdomain": "db"})), "", Some(&cluster()));
        assert!(file.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{file}");
        assert!(
            file.ends_with(
                "10.1.0.5\tweb-0.db.shop.svc.cluster.local\tweb-0\nfd00::5\tweb-0.db.shop.svc.cluster.local\tweb-0\n\
                 \n# Entries added by HostAliases.\n192.0.2.7\ta\tb\n"
            ),
            "{file}"
        );
        let file = hosts(&pod(json!({"hostNetwork": true})), "127.0.0.1 localhost node1\n", None);
        assert_eq!(file, "# Kubernetes-managed hosts file.\n127.0.0.1 localhost node1\n");
        assert!(hosts(&pod(json!({})), "", None).ends_with("10.1.0.5\tweb-0\nfd00::5\tweb-0\n"));
    }

    #[test]
    fn names_are_resolved_as_the_policy_says() {
        let cluster_file = "nameserver 10.96.0.10\n\
            search shop.svc.cluster.local svc.cluster.local cluster.local example.org\noptions ndots:5\n";
        let node_file = "nameserver 192.0.2.53\nsearch example.org\noptions edns0 ndots:2\n";
        for (spec, cluster, expected) in [
            (json!({}), Some(cluster()), cluster_file),
            (json!({}), None, node_file),
            (json!({"dnsPolicy": "Default"}), Some(cluster()), node_file),
            (json!({"hostNetwork": true}), Some(cluster()), node_file),
            (
                json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
                Some(cluster()),
                cluster_file,
            ),
            (json!({"dnsPolicy": "None"}), Some(cluster()), ""),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.1"], "searches": ["x"],
                    "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}]}}),
                Some(cluster()),
                "nameserver 1.1.1.1\nsearch x\noptions ndots:1 edns0\n",
            ),
            (
                json!({"dnsPolicy": "Default", "dnsConfig": {"options": [{"name": "ndots", "value": "9"}]}}),
                None,
                "nameserver 192.0.2.53\nsearch example.org\noptions edns0 ndots:9\n",
            ),
        ] {
            assert_eq!(resolv_conf(&pod(spec.clone()), NODE, cluster.as_ref()), expected, "{spec}");
        }
    }
}
