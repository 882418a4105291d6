//! The road of guest memory: it follows the settings, the file, the interface and the certificate, and leaves running transfers alone.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use api::godwit::RoadReport;
use api::kubevirt::{KubeVirt, MigrationNetworkType};
use api::names::{annotations, objects};
use handler::road::{Here, Options, Road, Unavailable, Way};
use identity::{Asked, Authority, Identity, Member, Subject};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node as ApiNode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tunnel::{Channel, Credentials, Dialler, Migration, Route, Source, Target};

use crate::node::{LONG, NODE, Node, eventually, isolated, run};

const STATUS: &str = "/run/network-status";
const PORT: u16 = 9186;
/// Renewed again and again: the certificates of this test are nearly over when they are given.
const LIFE: Duration = Duration::from_mins(1);

fn member(node: &str) -> Member {
    Member::new("alaska", "virt-handler", node).unwrap()
}

/// An installation that says this of migrations, an authority, and one who signs.
pub async fn install(client: &Client, migrations: Value) -> (Authority, JoinHandle<()>) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = KubeVirt::crd();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let name = crd.name_any();
    let established = await_condition(crds, &name, conditions::is_crd_established());
    timeout(LONG, established).await.unwrap().unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["kubevirt", "kubevirt-migrations"] {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let installations: Api<KubeVirt> = Api::namespaced(client.clone(), "kubevirt");
    let spec = json!({ "configuration": { "migrations": migrations } });
    let installation = KubeVirt::new("kubevirt", serde_json::from_value(spec).unwrap());
    installations.create(&PostParams::default(), &installation).await.unwrap();
    let authority = Authority::generate("authority", Duration::from_hours(1)).unwrap();
    let bundle =
        json!({ "metadata": { "name": "kubevirt-ca" }, "data": { "ca-bundle": authority.certificate() } });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kubevirt");
    maps.create(&PostParams::default(), &serde_json::from_value(bundle).unwrap()).await.unwrap();
    let signer = tokio::spawn(sign(client.clone(), copy(&authority), LIFE));
    (authority, signer)
}

/// A node whose handler's pod is this test: `migration0` leads to another node, which is a namespace.
struct Site {
    client: Client,
    authority: Authority,
    signer: JoinHandle<()>,
    road: Road,
}

impl Site {
    async fn new(node: &Node) -> Self {
        let client = node.client.clone();
        let (authority, signer) = install(&client, json!({ "network": "fast" })).await;
        run("ip", &["netns", "add", "peer"]);
        run(
            "ip",
            &["link", "add", "migration0", "type", "veth", "peer", "name", "migration0", "netns", "peer"],
        );
        run("ip", &["link", "set", "migration0", "up"]);
        run("ip", &["-n", "peer", "link", "set", "migration0", "up"]);
        run("ip", &["-n", "peer", "address", "add", "198.51.100.2/24", "dev", "migration0"]);
        let options = Options {
            namespace: "kubevirt".into(),
            pod: [127, 0, 0, 1].into(),
            network_status: STATUS.into(),
            made_with: Some("kubevirt/fast".into()),
            port: PORT,
            health: 8443,
        };
        let (road, work) = Road::new(client.clone(), NODE, options);
        tokio::spawn(work.run());
        Self { client, authority, signer, road }
    }

    /// Publishes these authorities, the one who signs first.
    async fn believe(&self, authorities: &[&str]) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kubevirt");
        let patch = Patch::Merge(json!({ "data": { "ca-bundle": authorities.concat() } }));
        maps.patch("kubevirt-ca", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn set(&self, migrations: Value) {
        let installations: Api<KubeVirt> = Api::namespaced(self.client.clone(), "kubevirt");
        let patch = Patch::Merge(json!({ "spec": { "configuration": { "migrations": migrations } } }));
        installations.patch("kubevirt", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&Way) -> bool) {
        let mut changed = self.road.changed();
        let found = timeout(LONG, changed.wait_for(|way| holds(way))).await.is_ok();
        assert!(found, "{what}: {:?}", self.road.here());
    }

    async fn here(&self, expected: Here) {
        self.until("the road", |way| way.as_ref().is_ok_and(|open| open.here == expected)).await;
    }

    async fn closed(&self, why: &Unavailable) {
        self.until("no road", |way| way.as_ref().is_err_and(|found| found == why)).await;
    }

    async fn requests(&self) -> usize {
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let all = requests.list(&ListParams::default()).await.unwrap();
        all.iter()
            .filter(|one| one.status.as_ref().is_some_and(|status| status.certificate.is_some()))
            .count()
    }

    /// What the node says of itself.
    async fn reported(&self, what: &str, holds: impl Fn(&RoadReport) -> bool) {
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let look = |node: Option<&ApiNode>| {
            let text = node.and_then(|node| node.annotations().get(annotations::MIGRATION_NETWORK_REPORT));
            text.and_then(|text| RoadReport::parse(text)).is_some_and(|report| holds(&report))
        };
        let found = timeout(LONG, await_condition(nodes, NODE, look)).await;
        assert!(found.is_ok_and(|found| found.is_ok()), "never reported: {what}");
    }

    /// A unix socket at the other node that leads to this one.
    fn forward(&self, path: &Path, address: IpAddr) -> tunnel::Forward {
        let identity = certificate(&self.authority, "peer", Duration::from_hours(1));
        self.forward_as(&identity, path, address, route())
    }

    fn forward_as(&self, who: &Identity, path: &Path, address: IpAddr, route: Route) -> tunnel::Forward {
        forward_believing(who, self.authority.certificate(), path, address, route)
    }
}

/// A guest's memory that comes to this node, at its first address, through sockets of a node called peer.
struct Transfer {
    destination: UnixListener,
    registration: tunnel::Registration,
    forward: tunnel::Forward,
    sending: UnixStream,
    receiving: UnixStream,
}

impl Transfer {
    fn begin(site: &Site) -> Self {
        let destination = UnixListener::bind("/run/destination").unwrap();
        let channels = [(Channel::MEMORY, "/run/destination".into())];
        let source = Source::Certificate(member("peer"));
        let registration = site.road.registrations().register(route().migration, source, channels).unwrap();
        let forward = site.forward(Path::new("/run/forward"), [198, 51, 100, 1].into());
        let sending = UnixStream::connect("/run/forward").unwrap();
        let (receiving, _) = destination.accept().unwrap();
        Self { destination, registration, forward, sending, receiving }
    }

    fn ping(&self, word: [u8; 4]) {
        ping(&self.sending, &self.receiving, word);
    }
}

fn certificate(authority: &Authority, node: &str, life: Duration) -> Identity {
    let subject = Subject { common_name: node.into(), member: Some(member(node)), ..Subject::default() };
    authority.issue(&subject, life).unwrap()
}

fn forward_believing(
    who: &Identity,
    bundle: &str,
    path: &Path,
    address: IpAddr,
    route: Route,
) -> tunnel::Forward {
    let credentials = Credentials::tls(who, &[bundle]).unwrap();
    let peer = net::Namespace::open(Path::new("/run/netns/peer")).unwrap();
    let target = Target { address: SocketAddr::new(address, PORT), member: member(NODE), token: None };
    let forwarded = peer.run(|| {
        let dialler = Dialler::new([198, 51, 100, 2].into(), credentials);
        dialler.forward(path, target, route)
    });
    forwarded.unwrap().unwrap()
}

/// What the handler has counted.
fn refusals(reason: &str) -> u64 {
    let shown = run("curl", &["-s", "http://127.0.0.1:8443/metrics"]);
    let name = format!("godwit_tunnel_refusals_total{{reason=\"{reason}\"}} ");
    let number = shown.lines().find_map(|line| line.strip_prefix(&name));
    number.unwrap_or_else(|| panic!("{reason}: {shown}")).parse().unwrap()
}

fn route() -> Route {
    Route::new(Migration::new("5f0c8d1e-94a1-4f6c-b3a7-0d8c2d6f3a11").unwrap(), Channel::MEMORY)
}

fn copy(authority: &Authority) -> Authority {
    Authority::from_pem(authority.to_pem().clone(), "test").unwrap()
}

/// The signer.
async fn sign(client: Client, authority: Authority, life: Duration) {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    loop {
        for mut request in requests.list(&ListParams::default()).await.unwrap() {
            let status = request.status.get_or_insert_default();
            if status.certificate.is_some() {
                continue;
            }
            assert_eq!(request.spec.signer_name, objects::HANDLER_SIGNER);
            let asked = Asked::from_pem(std::str::from_utf8(&request.spec.request.0).unwrap()).unwrap();
            assert_eq!(asked.common_name(), Some(NODE));
            let subject =
                Subject { common_name: NODE.into(), member: Some(member(NODE)), ..Subject::default() };
            let certificate = authority.sign(&asked, &subject, life).unwrap();
            status.certificate = Some(ByteString(certificate.into_bytes()));
            requests.replace_status(&request.name_any(), &PostParams::default(), &request).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn write_status(addresses: &[&str]) {
    let status = json!([{ "name": "kubevirt/fast", "interface": "migration0", "ips": addresses }]);
    std::fs::write(STATUS, status.to_string()).unwrap();
}

fn add(address: &str) {
    run("ip", &["address", "add", &format!("{address}/24"), "dev", "migration0"]);
}

fn on(address: &str) -> Here {
    Here { address: address.parse().unwrap(), network: MigrationNetworkType::Migration, tls: true }
}

fn listeners() -> Vec<String> {
    let sockets = run("ss", &["-Hltn", "sport = :9186"]);
    sockets.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect()
}

/// Says something at one end, and hears it at the other.
fn ping(mut from: &UnixStream, mut to: &UnixStream, word: [u8; 4]) {
    from.write_all(&word).unwrap();
    let mut heard = [0; 4];
    to.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word);
}

#[test]
fn it_moves_with_its_address_and_a_transfer_goes_on() {
    isolated("road::it_moves_with_its_address_and_a_transfer_goes_on", |node| async move {
        let site = Site::new(&node).await;
        let network = || "kubevirt/fast".to_owned();
        site.closed(&Unavailable::NotAttached { network: network() }).await;
        write_status(&["198.51.100.1"]);
        site.closed(&Unavailable::NoAddress { network: network() }).await;
        site.reported("no address", |report| {
            report.problem.as_deref().is_some_and(|why| why.contains("no address"))
        })
        .await;
        assert_eq!(listeners(), [""; 0], "nowhere rather than elsewhere");
        add("198.51.100.1");
        site.here(on("198.51.100.1")).await;
        assert_eq!(listeners(), ["198.51.100.1%migration0:9186"]);

        assert_eq!(site.road.member("peer").unwrap(), member("peer"));
        let Transfer { destination, registration, forward, sending, receiving } = Transfer::begin(&site);
        ping(&sending, &receiving, *b"once");

        // Another address, another certificate; the connection that is open stays open.
        let before = site.requests().await;
        add("198.51.100.9");
        write_status(&["198.51.100.9"]);
        site.here(on("198.51.100.9")).await;
        assert_eq!(listeners(), ["198.51.100.9%migration0:9186"]);
        while site.requests().await < before + 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ping(&sending, &receiving, *b"more");
        drop(forward);
        let _forward = site.forward(Path::new("/run/forward"), [198, 51, 100, 9].into());
        let again = UnixStream::connect("/run/forward").unwrap();
        let (received, _) = destination.accept().unwrap();
        ping(&again, &received, *b"anew");
        let opened: u64 = registration.counters().map(|(_, counters)| counters.traffic().opened).sum();
        assert_eq!(opened, 2);

        // An interface that is made again under its name is another.
        run("ip", &["link", "delete", "migration0"]);
        site.closed(&Unavailable::NoInterface { network: network() }).await;
        eventually("nobody listens", || listeners().is_empty()).await;
    });
}

#[test]
fn another_authority_takes_over_while_a_transfer_runs() {
    isolated("road::another_authority_takes_over_while_a_transfer_runs", |node| async move {
        let site = Site::new(&node).await;
        write_status(&["198.51.100.1"]);
        add("198.51.100.1");
        site.here(on("198.51.100.1")).await;
        let address = IpAddr::from([198, 51, 100, 1]);
        let transfer = Transfer::begin(&site);
        transfer.ping(*b"old1");

        // Believed first, then the one who signs: the handler asks for a certificate of it at once.
        let hour = Duration::from_hours(1);
        let next = Authority::generate("authority", hour).unwrap();
        let (old, new) = (site.authority.certificate().to_owned(), next.certificate().to_owned());
        site.believe(&[&old, &new]).await;
        site.signer.abort();
        tokio::spawn(sign(site.client.clone(), copy(&next), LIFE));
        site.believe(&[&new, &old]).await;
        let shown = || {
            let hello = "openssl s_client -connect 198.51.100.1:9186 -tls1_3 -alpn godwit/1 -servername";
            let command = format!("{hello} {} </dev/null 2>/dev/null | openssl x509", route().server_name());
            let shown = std::process::Command::new("ip")
                .args(["netns", "exec", "peer", "sh", "-c", &command])
                .output();
            String::from_utf8(shown.unwrap().stdout).unwrap()
        };
        eventually("it shows a certificate of the new one", || {
            identity::is_signed_by(&shown(), &new).is_ok_and(|signed| signed)
        })
        .await;
        transfer.ping(*b"old2");

        // Peers that have not renewed yet still come in, and those that have.
        for (signer, word) in [(&site.authority, *b"old3"), (&next, *b"new1")] {
            let who = certificate(signer, "peer", hour);
            let path = Path::new("/run/another");
            let both = [old.as_str(), new.as_str()].concat();
            let _forward = forward_believing(&who, &both, path, address, route());
            let sending = UnixStream::connect(path).unwrap();
            let (receiving, _) = transfer.destination.accept().unwrap();
            ping(&sending, &receiving, word);
        }

        // When the old one is gone, what is open goes on, and nobody new comes in by it.
        site.believe(&[&new]).await;
        let before = refusals("untrusted_certificate");
        eventually("the old one is believed no more", || {
            let (who, path) = (certificate(&site.authority, "peer", hour), Path::new("/run/another"));
            let _forward = forward_believing(&who, &new, path, address, route());
            let mut sending = UnixStream::connect(path).unwrap();
            sending.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            // Until then it is let in, and waits in vain.
            let _ = sending.read(&mut [0]);
            refusals("untrusted_certificate") > before
        })
        .await;
        transfer.ping(*b"old4");
    });
}

#[test]
fn an_expired_certificate_closes_the_road_though_a_request_for_the_next_waits() {
    isolated(
        "road::an_expired_certificate_closes_the_road_though_a_request_for_the_next_waits",
        |node| async move {
            let site = Site::new(&node).await;
            write_status(&["198.51.100.1"]);
            add("198.51.100.1");
            site.here(on("198.51.100.1")).await;
            let transfer = Transfer::begin(&site);
            transfer.ping(*b"one1");

            // The next one is over soon, and then nobody answers.
            site.signer.abort();
            let soon = Duration::from_secs(4);
            let brief = tokio::spawn(sign(site.client.clone(), copy(&site.authority), soon));
            let before = site.requests().await;
            timeout(LONG, async {
                // The first may still be of the one before.
                while site.requests().await < before + 2 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            })
            .await
            .unwrap();
            brief.abort();
            site.until("it has expired", |way| {
                way.as_ref().is_err_and(|why| why.to_string().contains("the last one has expired"))
            })
            .await;
            assert_eq!(listeners(), [""; 0], "nobody is shown what has expired");
            site.reported("no certificate", |report| {
                report.problem.as_deref().is_some_and(|why| why.contains("kubectl get csr"))
            })
            .await;
            transfer.ping(*b"one2");

            tokio::spawn(sign(site.client.clone(), copy(&site.authority), LIFE));
            site.here(on("198.51.100.1")).await;
        },
    );
}

#[test]
fn strangers_get_nowhere_and_are_counted() {
    isolated("road::strangers_get_nowhere_and_are_counted", |node| async move {
        let site = Site::new(&node).await;
        write_status(&["198.51.100.1"]);
        add("198.51.100.1");
        site.here(on("198.51.100.1")).await;
        let destination = UnixListener::bind("/run/destination").unwrap();
        destination.set_nonblocking(true).unwrap();
        let expect = |uid: &str| {
            let source = Source::Certificate(site.road.member("peer").unwrap());
            let channels = [(Channel::MEMORY, "/run/destination".into())];
            site.road.registrations().register(Migration::new(uid).unwrap(), source, channels).unwrap()
        };
        let _open = expect(route().migration.as_str());
        drop(expect("over"));

        // With no certificate.
        let hello = "printf 'guest memory' | timeout 20 openssl s_client -connect 198.51.100.1:9186 -tls1_3 -alpn godwit/1 -quiet \
             -servername";
        let hello = format!("{hello} {} 2>/dev/null", route().server_name());
        let said = std::process::Command::new("ip")
            .args(["netns", "exec", "peer", "sh", "-c", &hello])
            .output()
            .unwrap();
        assert!(said.stdout.is_empty(), "{said:?}");
        eventually("it is counted", || refusals("no_certificate") == 1).await;

        let hour = Duration::from_hours(1);
        let other_authority = Authority::generate("authority", hour).unwrap();
        let peer = certificate(&site.authority, "peer", hour);
        let of = |uid: &str, channel| Route::new(Migration::new(uid).unwrap(), channel);
        let old = certificate(&site.authority, "peer", Duration::ZERO);
        // Its last second is over, for every clock.
        while std::time::SystemTime::now()
            <= identity::validity(&old.certificate).unwrap().1 + Duration::from_secs(1)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (who, route, reason, count) in [
            (&certificate(&other_authority, "peer", hour), route(), "untrusted_certificate", 1),
            (&old, route(), "expired_certificate", 1),
            (&certificate(&site.authority, "other", hour), route(), "other_source", 1),
            (&peer, of("never", Channel::MEMORY), "unknown_migration", 1),
            (&peer, of("over", Channel::MEMORY), "unknown_migration", 2),
            (&peer, Route::new(route().migration, Channel::DISKS), "unknown_channel", 1),
        ] {
            let path = Path::new("/run/forward");
            let _forward = site.forward_as(who, path, [198, 51, 100, 1].into(), route);
            let mut sending = UnixStream::connect(path).unwrap();
            // It may be closed already.
            let _ = sending.write_all(b"guest memory");
            let mut heard = Vec::new();
            let _ = sending.read_to_end(&mut heard);
            assert!(heard.is_empty(), "{reason}: {heard:?}");
            eventually(reason, || refusals(reason) == count).await;
        }
        let reached = destination.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(reached, Err(std::io::ErrorKind::WouldBlock), "nobody came as far as the hypervisor");

        // The one who is expected still comes in.
        destination.set_nonblocking(false).unwrap();
        let _forward = site.forward(Path::new("/run/forward"), [198, 51, 100, 1].into());
        let sending = UnixStream::connect("/run/forward").unwrap();
        let (receiving, _) = destination.accept().unwrap();
        ping(&sending, &receiving, *b"mine");
    });
}

#[test]
fn it_takes_the_pod_network_only_if_that_is_preferred_or_nothing_else_is_asked_for() {
    isolated(
        "road::it_takes_the_pod_network_only_if_that_is_preferred_or_nothing_else_is_asked_for",
        |node| async move {
            let site = Site::new(&node).await;
            let pod = Here { address: [127, 0, 0, 1].into(), network: MigrationNetworkType::Pod, tls: true };
            let network = || "kubevirt/fast".to_owned();
            site.closed(&Unavailable::NotAttached { network: network() }).await;
            let health = || {
                run("curl", &["-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8443/readyz"])
            };
            assert_eq!(health(), "503", "it was made for a network that it lacks");
            site.set(json!({ "networkPreference": "Prefer" })).await;
            site.here(pod).await;
            site.reported("the fall-back", |report| {
                report.network.is_none()
                    && report.problem.as_deref().is_some_and(|why| why.contains("not attached"))
            })
            .await;
            site.set(json!({ "networkPreference": null, "network": null, "disableTLS": true })).await;
            site.here(Here { tls: false, ..pod }).await;
            site.set(json!({ "network": "kubevirt/other", "disableTLS": null })).await;
            add("198.51.100.1");
            write_status(&["198.51.100.1"]);
            let attached =
                Unavailable::OtherNetwork { network: "kubevirt/other".into(), attached: network() };
            site.closed(&attached).await;
            eventually("it is ready for what it was made for", || health() == "200").await;
        },
    );
}
