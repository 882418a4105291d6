//! The operations of the protocol: what each needs, in which order, and what it answers.
//!
//! ADD, CHECK and STATUS fail with a code and a text. DEL never fails: what it cannot free is in the journal for the next call,
//! and what is not even there is found by the sweep. Nothing here decides about addresses.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use addressing::Ledger;
use addressing::decision::{Choice, usage};
use api::godwit::{AddressOwner, PodInterface};
use api::multus::{NetworkSelection, parse_default_network, parse_networks};
use api::names::annotations;
use cni::{Attachment, AttachmentId, InterfaceAddress, Operation, Prefix, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::json;

use crate::allocate::{Asked, allocate, exhausted};
use crate::allocations::{Allocations, Held, PAGE, holding, understood};
use crate::claims::{self, Given, Reference, allocate_for};
use crate::config::{ConfigError, Giving, files};
use crate::journal::{Entry, Journal, Record, Whose};
use crate::log::{Level, Log};
use crate::wire::Wire;
use crate::{Call, Config, Error, Owner, codes, release, standby};

/// What the plugin writes to standard output, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// A result, an error, or nothing.
    pub text: String,
    /// Whether it did what it was asked.
    pub success: bool,
}

impl Answer {
    fn done(text: String) -> Self {
        Self { text, success: true }
    }

    fn failed(error: &Error, version: Version, code: u32) -> Self {
        Self { text: format!("{:#}\n", error.render(version.as_str(), code)), success: false }
    }
}

/// Does what a runtime asks in the environment and on standard input.
pub fn run(variable: impl Fn(&str) -> Option<String>, input: &[u8]) -> Answer {
    let deleting = variable("CNI_COMMAND").as_deref() == Some("DEL");
    let call = match Call::read(variable) {
        Ok(call) => call,
        Err(error) if deleting => {
            eprintln!("nothing is released: {error}");
            return Answer::done(String::new());
        }
        Err(error) => {
            return Answer::failed(&error.into(), newest(), codes::ENVIRONMENT);
        }
    };
    if call.operation == Operation::Version {
        let supported = Version::ALL.map(Version::as_str);
        return Answer::done(json!({ "cniVersion": newest(), "supportedVersions": supported }).to_string());
    }
    let read = Config::parse(input).map_err(Error::from).and_then(files::complete);
    // The journal of a node that uses another directory is not found without its configuration; the default is.
    let (config, unread) = match read {
        Ok(config) => (config, None),
        Err(error) => (Config::parse(input).unwrap_or_default(), Some(error)),
    };
    let about = format!("{} {} {}", call.operation, call.container, call.interface);
    let log = Log { file: config.log_file(), level: config.log_level(), about };
    let plugin = Plugin { journal: Journal::new(config.data_directory()), call, config, log };
    plugin.run(unread)
}

fn newest() -> Version {
    Version::V1_1_0
}

struct Plugin {
    call: Call,
    config: Config,
    journal: Journal,
    log: Log,
}

impl Plugin {
    fn run(&self, unread: Option<Error>) -> Answer {
        let version = self.config.version();
        let result = match (unread, &version) {
            (Some(error), _) => Err(error),
            (None, Err(_)) => self.config.version().map(|_| String::new()).map_err(Error::from),
            (None, Ok(version)) => self.operate(*version),
        };
        if self.call.operation == Operation::Del {
            if let Err(error) = result {
                self.log.tell(Level::Error, format!("left for later: {error}: {}", error.details()));
                self.remember_release();
            }
            return Answer::done(String::new());
        }
        match result {
            Ok(text) => Answer::done(text),
            Err(error) => {
                self.log.tell(Level::Error, format!("{error}: {}", error.details()));
                let status = self.call.operation == Operation::Status;
                let code = if status { codes::NOT_AVAILABLE } else { error.code() };
                Answer::failed(&error, version.unwrap_or(newest()), code)
            }
        }
    }

    fn operate(&self, version: Version) -> Result<String, Error> {
        let silent = |done: Result<(), Error>| done.map(|()| String::new());
        match self.call.operation {
            Operation::Add => self.add(version),
            Operation::Del => silent(self.del()),
            Operation::Check => silent(self.check()),
            Operation::Gc => silent(self.gc()),
            Operation::Status => silent(self.status()),
            Operation::Version => Ok(String::new()),
        }
    }

    fn wire(&self) -> Result<Wire, Error> {
        Ok(Wire::new(&files::kubeconfig(&self.config)?)?)
    }

    fn add(&self, version: Version) -> Result<String, Error> {
        let giving = self.config.giving(self.call.arg("IP"))?;
        for warning in &giving.warnings {
            self.log.tell(Level::Warning, warning);
        }
        let mut wire = self.wire()?;
        let (pod, claim) = self.who(&mut wire)?;
        let whose = Whose { pod_uid: &pod.uid, container: &pod.container_id, interface: &pod.interface };
        let mut entry = self.journal.open(&whose)?;
        let given = if let Some(name) = &claim {
            let template = self.template(AddressOwner::default());
            let reference = Reference { name, pod: &pod };
            allocate_for(&mut wire, (&self.config, &giving), &reference, &mut entry, &template)
        } else {
            let given = self.add_for_pod(&mut wire, &giving, pod.clone(), &whose, &mut entry);
            given.map(|choices| Given { choices, for_guest: false })
        };
        if given.is_err() && entry.record.as_ref().is_none_or(|record| record.addresses.is_empty()) {
            entry.remove()?;
        }
        let Given { choices, for_guest } = given?;
        if for_guest {
            // Heard beside its guest it would take the guest's connections: rather no pod than that. DEL frees what was given.
            standby::mute(&self.call)?;
        }
        self.log.tell(
            Level::Debug,
            format!("given: {:?}", choices.iter().map(ToString::to_string).collect::<Vec<_>>()),
        );
        self.catch_up(&mut wire);
        Ok(format!("{:#}\n", result(&giving, &choices).render(version)))
    }

    fn add_for_pod(
        &self,
        wire: &mut Wire,
        giving: &Giving,
        pod: PodInterface,
        whose: &Whose<'_>,
        entry: &mut Entry,
    ) -> Result<Vec<Choice>, Error> {
        let owner = Owner(AddressOwner { pod: Some(pod), claim: None });
        let template = self.template(owner.0.clone());
        let noted = entry.record.iter().cloned().chain(self.journal.predecessors(whose)?);
        let noted = noted.filter(|record| record.network == template.network);
        let known: Vec<_> = noted.flat_map(|record| record.addresses).map(|held| held.address).collect();
        let asked = Asked {
            pool: &giving.pool,
            owner: &owner,
            wanted: &giving.wanted,
            known: &known,
            rest_seconds: self.config.rest_seconds(),
        };
        let mut api = Allocations::of(wire, &template.network);
        allocate(&mut api, &asked, entry, &template)
    }

    /// What the journal notes of this call, but for the addresses.
    fn template(&self, owner: AddressOwner) -> Record {
        Record {
            container: self.call.container.clone(),
            interface: self.call.interface.clone(),
            name: self.config.name().to_owned(),
            network: self.config.network().to_owned(),
            owner,
            addresses: Vec::new(),
            rest_seconds: self.config.rest_seconds(),
        }
    }

    /// The pod's interface, and the claim that it refers to. The pod itself is read only if the runtime does not say enough.
    fn who(&self, wire: &mut Wire) -> Result<(PodInterface, Option<String>), Error> {
        let (namespace, name) = self.call.pod()?;
        let mut claim = self.config.claim().map(str::to_owned);
        let mut uid = self.call.pod_uid().map(str::to_owned);
        if uid.is_none() || (claim.is_none() && self.config.allows_claims()) {
            let metadata = pod(wire, namespace, name)?;
            claim = claim.or_else(|| self.claim_of(&metadata));
            uid = uid.or(metadata.uid);
        }
        let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        let pod = PodInterface {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.unwrap_or_default(),
            container_id: self.call.container.clone(),
            interface: self.call.interface.clone(),
            node_name: self.config.node_name().map_or_else(host, str::to_owned),
        };
        Ok((pod, claim))
    }

    /// The claim that the pod's annotations name for this interface: Multus reads them, and does not pass it on.
    fn claim_of(&self, pod: &ObjectMeta) -> Option<String> {
        let annotation = |key| pod.annotations.as_ref()?.get(key);
        let listed = annotation(annotations::NETWORKS).and_then(|text| parse_networks(text).ok());
        let is_it = |(position, selection): &(usize, NetworkSelection)| {
            let named = selection.interface.clone().unwrap_or_else(|| format!("net{}", position + 1));
            named == self.call.interface
        };
        let found = listed.into_iter().flatten().enumerate().find(is_it).map(|(_, selection)| selection);
        let default = || parse_default_network(annotation(annotations::DEFAULT_NETWORK)?).ok();
        let default = || default().filter(|_| self.call.interface == "eth0");
        found.or_else(default)?.ipam_claim_reference
    }

    fn del(&self) -> Result<(), Error> {
        let mut found = self.journal.find(&self.call.container, &self.call.interface)?;
        if let Some(entry) = &mut found {
            // From here on it is freed, whatever happens to this process.
            entry.release()?;
        }
        let mut wire = self.wire()?;
        match found {
            Some(entry) if entry.record.is_some() => release::entry(&mut wire, entry)?,
            unknown => {
                self.release_previous(&mut wire)?;
                unknown.map_or(Ok(()), Entry::remove)?;
            }
        }
        self.catch_up(&mut wire);
        Ok(())
    }

    /// Frees what the runtime says that this container had: the journal does not know, so the objects must say whose they are.
    fn release_previous(&self, wire: &mut Wire) -> Result<(), Error> {
        let mut api = Allocations::of(wire, self.config.network());
        for ip in self.config.previous().into_iter().flat_map(|previous| previous.ips) {
            let Some(object) = api.get(ip.address.address)? else { continue };
            let Some(owner) = object.spec.owner.clone() else { continue };
            let ours = owner.pod.as_ref().is_some_and(|pod| {
                (&pod.container_id, &pod.interface) == (&self.call.container, &self.call.interface)
            });
            if let Some(held) = Held::of(&object).filter(|_| ours) {
                let rest_seconds = object.spec.rest_seconds.unwrap_or(self.config.rest_seconds());
                let record = Record { addresses: vec![held], rest_seconds, ..self.template(owner) };
                release::release(api.wire, &record)?;
            }
        }
        Ok(())
    }

    /// Marks what could not be freed, if the journal knows it; the next call frees it.
    fn remember_release(&self) {
        let found = self.journal.find(&self.call.container, &self.call.interface);
        let marked = found.and_then(|entry| entry.map_or(Ok(()), |mut entry| entry.release()));
        if let Err(error) = marked {
            self.log.tell(Level::Error, format!("left for the sweep: {error}: {}", error.details()));
        }
    }

    fn catch_up(&self, wire: &mut Wire) {
        if let Err(error) = release::catch_up(wire, &self.journal) {
            self.log.tell(Level::Warning, format!("earlier releases wait: {error}: {}", error.details()));
        }
    }

    fn check(&self) -> Result<(), Error> {
        let giving = self.config.giving(None)?;
        let ips = self.config.previous().ok_or(ConfigError::NoPrevious)?.ips;
        let mut wire = self.wire()?;
        let (pod, claim) = self.who(&mut wire)?;
        // One that was made anew under its name is another, and has not given these addresses.
        let owner = match &claim {
            Some(name) => claims::owner_of(&mut wire, &Reference { name, pod: &pod })?,
            None => Owner(AddressOwner { pod: Some(pod.clone()), claim: None }),
        };
        let network = self.config.network();
        let mut api = Allocations::of(&mut wire, network);
        let networks: Vec<_> = giving.pool.ranges().iter().map(addressing::PoolRange::network).collect();
        for address in ips.iter().map(|ip| ip.address.address) {
            // Addresses that are fixed, or another plugin's, are not ours to vouch for.
            if !networks.iter().any(|network| network.contains(address)) || is_fixed(&giving, address) {
                continue;
            }
            let by = api.get(address)?.and_then(|object| object.spec.owner);
            // In full: of a pod, the sandbox counts too.
            if by.as_ref() != Some(&owner.0) {
                let (by, owner) = (by.map(Owner), owner.to_string());
                let held = match by {
                    Some(by) if by.to_string() == owner => format!("of an earlier {by}"),
                    Some(by) => format!("of {by}"),
                    None => "free".to_owned(),
                };
                return Err(Error::NotHeld { address, network: network.to_owned(), held, owner });
            }
        }
        Ok(())
    }

    /// Frees what the journal has of this network and the runtime does not list. A runtime that gives no list has not said what
    /// is garbage; one that gives an empty list has said that all of it is. What cannot be freed is no reason to leave the others.
    fn gc(&self) -> Result<(), Error> {
        let Some(valid) = self.config.valid_attachments() else { return Ok(()) };
        let mut wire = self.wire()?;
        let mut failures = Vec::new();
        for path in self.journal.files()? {
            failures.extend(self.collect(&mut wire, &path, &valid).err());
            // An API server that is away is away for all of them, and each would be waited for.
            if matches!(failures.last(), Some(Error::Wire(_))) {
                break;
            }
        }
        if failures.is_empty() {
            return release::catch_up(&mut wire, &self.journal);
        }
        Err(Error::Garbage { failures })
    }

    /// Frees what a file of the journal says, if it is garbage.
    fn collect(&self, wire: &mut Wire, path: &Path, valid: &BTreeSet<AttachmentId>) -> Result<(), Error> {
        let Some(mut entry) = Entry::lock(path, false)? else { return Ok(()) };
        let is_garbage = |record: &Record| record.name == self.config.name() && !valid.contains(&record.id());
        if entry.record.as_ref().is_some_and(is_garbage) {
            entry.release()?;
            release::entry(wire, entry)?;
        }
        Ok(())
    }

    /// Whether addresses can be given: the API server answers, and no range is known to be full. Runtimes ask often, on every node,
    /// and the network may be the one that all others share: one request is made, for as many objects as fit into one page.
    /// A network that has more is not counted; ADD says when it is full.
    fn status(&self) -> Result<(), Error> {
        let giving = self.config.giving(None)?;
        let mut wire = self.wire()?;
        let mut api = Allocations::of(&mut wire, self.config.network());
        let countable = giving.pool.ranges().iter().any(|range| range.capacity() <= PAGE.into());
        let objects = if countable { api.list_few()? } else { api.answer().map(|()| None)? };
        let objects = objects.unwrap_or_default();
        let known =
            objects.iter().filter_map(|object| Some((object.spec.address.parse().ok()?, holding(object))));
        let ledger: Ledger<Owner> = known.collect();
        let now = SystemTime::now();
        for range in giving.pool.ranges() {
            let usage = usage(range, &ledger, now);
            if usage.free() == 0 {
                return Err(exhausted(range.network(), &usage, &ledger));
            }
        }
        self.catch_up(&mut wire);
        Ok(())
    }
}

fn is_fixed(giving: &Giving, address: std::net::IpAddr) -> bool {
    giving.fixed.iter().any(|fixed| fixed.address.address == address)
}

fn pod(wire: &mut Wire, namespace: &str, name: &str) -> Result<ObjectMeta, Error> {
    #[derive(Deserialize)]
    struct Pod {
        metadata: ObjectMeta,
    }
    let reply = wire.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}"))?;
    if reply.status == 404 {
        return Err(Error::NoPod { namespace: namespace.to_owned(), name: name.to_owned() });
    }
    let pod: Pod = understood(&reply, || format!("to read pod {namespace}/{name}"))?;
    Ok(pod.metadata)
}

fn result(giving: &Giving, choices: &[Choice]) -> Attachment {
    let address = |choice: &Choice| InterfaceAddress {
        address: Prefix { address: choice.address, length: choice.network.prefix_length() },
        gateway: choice.gateway,
        interface: None,
    };
    Attachment {
        interfaces: Vec::new(),
        ips: choices.iter().map(address).chain(giving.fixed.iter().cloned()).collect(),
        routes: giving.routes.clone(),
        dns: giving.dns.clone(),
    }
}
