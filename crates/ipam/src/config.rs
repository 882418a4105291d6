//! The configuration of a network as the plugin is given it: the keys of whereabouts, and a few of our own.
//!
//! Read in two steps, because DEL must work with a configuration that ADD would refuse: [`Config::parse`] reads what every
//! operation needs, [`Config::giving`] what is given and by which rules. Unknown keys are told and passed over. Nothing here
//! may panic, and nothing here reads a file: see [`files`].

pub mod files;
mod written;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use addressing::Pool;
use addressing::pool::Problems;
use api::godwit::AddressAllocationSpec;
use api::multus::{NetworkDns, RequestedAddress};
use api::names::objects::SHARED_NETWORK;
use cni::{Attachment, AttachmentId, InterfaceAddress, Prefix, Route, UnknownVersion, Version};

use crate::log::Level;
use written::{Ipam, Written};

/// A configuration.
#[derive(Debug, Default)]
pub struct Config {
    written: Written,
    ipam: Ipam,
}

/// What is given to whom asks, and by which rules.
#[derive(Clone, Debug)]
pub struct Giving {
    /// The addresses.
    pub pool: Pool,
    /// Addresses that every interface gets besides, which nobody keeps account of.
    pub fixed: Vec<InterfaceAddress>,
    /// Routes of the result.
    pub routes: Vec<Route>,
    /// Name servers of the result.
    pub dns: NetworkDns,
    /// Addresses that the runtime asks for by name.
    pub wanted: Vec<IpAddr>,
    /// What was passed over, and why.
    pub warnings: Vec<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON of that shape.
    #[error("the configuration is not JSON that this plugin understands")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The version is not spoken here.
    #[error("cniVersion of the configuration")]
    Version {
        /// Which.
        #[source]
        source: UnknownVersion,
    },
    /// There is no `ipam`.
    #[error("the configuration has no ipam")]
    NoIpam,
    /// There is no result of ADD, or none that can be read.
    #[error("the configuration has no prevResult that can be read: CHECK compares with what ADD answered")]
    NoPrevious,
    /// The addresses are not well described.
    #[error("ipam of the configuration")]
    Pool {
        /// Everything that is wrong.
        #[source]
        source: Problems,
    },
    /// A field is not what it must be.
    #[error("{field} is {value:?}: {rule}")]
    Field {
        /// Which.
        field: String,
        /// What was given.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

const DATA_DIRECTORY: &str = "/var/lib/cni/godwit-ipam";
const ADDRESS_WITH_LENGTH: &str = "it must be an IP address with /<prefix length>";
const ADDRESS: &str = "it must be an IP address";

impl Config {
    /// Reads what a runtime wrote to the plugin's standard input.
    pub fn parse(input: &[u8]) -> Result<Self, ConfigError> {
        let mut written: Written =
            serde_json::from_slice(input).map_err(|source| ConfigError::Json { source })?;
        let ipam = written.ipam.take().unwrap_or_default();
        Ok(Self { written, ipam })
    }

    /// With what a file of the node says for all networks; the network's own words win.
    pub fn with_file(mut self, file: &[u8]) -> Result<Self, ConfigError> {
        let flat: Ipam = serde_json::from_slice(file).map_err(|source| ConfigError::Json { source })?;
        self.ipam.complete(flat);
        Ok(self)
    }

    /// The version to answer in. Whoever has not said one is answered in the oldest.
    pub fn version(&self) -> Result<Version, ConfigError> {
        let given = self.written.cni_version.as_deref().filter(|text| !text.is_empty());
        let parsed = given.map_or(Ok(Version::V0_3_0), str::parse);
        parsed.map_err(|source| ConfigError::Version { source })
    }

    /// The network's name in the CNI configuration.
    pub fn name(&self) -> &str {
        self.written.name.as_deref().unwrap_or_default()
    }

    /// The network that the addresses are of: ranges of one network share their addresses, however many definitions say them.
    pub fn network(&self) -> &str {
        self.ipam.network_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(SHARED_NETWORK)
    }

    /// The claim that the runtime says the addresses belong to.
    pub fn claim(&self) -> Option<&str> {
        self.written.args.cni.claim.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether the network's addresses can belong to claims: then the pod is asked when the runtime does not say.
    pub fn allows_claims(&self) -> bool {
        self.written.allow_persistent_ips
    }

    /// For how many seconds an address that is given now rests once it is released.
    pub fn rest_seconds(&self) -> u32 {
        self.ipam.rest_seconds.unwrap_or(AddressAllocationSpec::DEFAULT_REST_SECONDS)
    }

    /// The kubeconfig that the configuration names.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        self.ipam.kubernetes.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty())
    }

    /// The file for all networks that the configuration names.
    pub fn configuration_path(&self) -> Option<PathBuf> {
        self.ipam.configuration_path.clone().filter(|path| !path.as_os_str().is_empty())
    }

    /// Where the journal is.
    pub fn data_directory(&self) -> PathBuf {
        self.ipam.data_dir.clone().unwrap_or_else(|| DATA_DIRECTORY.into())
    }

    /// The node's name, if it is not that of the host.
    pub fn node_name(&self) -> Option<&str> {
        self.ipam.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Where to log; none: to standard error.
    pub fn log_file(&self) -> Option<PathBuf> {
        self.ipam.log_file.clone().filter(|path| !path.as_os_str().is_empty())
    }

    /// How much to log.
    pub fn log_level(&self) -> Level {
        Level::parse(self.ipam.log_level.as_deref().unwrap_or_default())
    }

    /// The result of ADD, as the runtime remembers it.
    pub fn previous(&self) -> Option<Attachment> {
        self.written.previous.as_ref().and_then(|value| Attachment::from_value(value).ok())
    }

    /// What GC is to spare; none: the runtime did not say, so nothing may be taken for garbage.
    pub fn valid_attachments(&self) -> Option<BTreeSet<AttachmentId>> {
        let valid = self.written.valid.as_ref().or(self.written.valid_misnamed.as_ref())?;
        Some(valid.iter().cloned().collect())
    }

    /// What is given. `asked` are addresses of `CNI_ARGS`.
    pub fn giving(&self, asked: Option<&str>) -> Result<Giving, ConfigError> {
        if self.ipam == Ipam::default() {
            return Err(ConfigError::NoIpam);
        }
        let pool = Pool::read(&self.ipam.pool_settings()).map_err(|source| ConfigError::Pool { source })?;
        let mut warnings: Vec<String> = pool.warnings().iter().map(ToString::to_string).collect();
        warnings.extend(self.ipam.unknown().map(|key| format!("ipam.{key} is not known here and ignored")));
        let mut wanted = Vec::new();
        let runtime = (self.written.runtime.ips.iter()).map(|text| ("runtimeConfig.ips", text.as_str()));
        let cni_args = self.written.args.cni.ips.iter().map(|text| ("args.cni.ips", text.as_str()));
        let environment =
            asked.into_iter().flat_map(|text| text.split(',')).map(|text| ("CNI_ARGS IP", text));
        for (field, text) in runtime.chain(cni_args).chain(environment) {
            let requested: RequestedAddress =
                text.trim().parse().map_err(|_| refused(field, text, ADDRESS))?;
            // Multus says the same in two ways.
            if !wanted.contains(&requested.address) {
                wanted.push(requested.address);
            }
        }
        Ok(Giving {
            pool,
            fixed: self.fixed()?,
            routes: self.routes()?,
            dns: self.ipam.dns.clone().unwrap_or_default(),
            wanted,
            warnings,
        })
    }

    fn fixed(&self) -> Result<Vec<InterfaceAddress>, ConfigError> {
        let read = |(n, written): (usize, &written::Fixed)| {
            let field = format!("ipam.addresses[{n}].address");
            let address =
                written.address.parse().map_err(|_| refused(&field, &written.address, ADDRESS_WITH_LENGTH));
            let gateway = gateway(&format!("ipam.addresses[{n}].gateway"), written.gateway.as_deref())?;
            Ok(InterfaceAddress { address: address?, gateway, interface: None })
        };
        self.ipam.addresses.iter().enumerate().map(read).collect()
    }

    fn routes(&self) -> Result<Vec<Route>, ConfigError> {
        let read = |(n, written): (usize, &written::Route)| {
            let field = format!("ipam.routes[{n}].dst");
            let destination: Prefix =
                written.dst.parse().map_err(|_| refused(&field, &written.dst, ADDRESS_WITH_LENGTH))?;
            Ok(Route {
                destination,
                gateway: gateway(&format!("ipam.routes[{n}].gw"), written.gw.as_deref())?,
                mtu: written.mtu,
                advertised_mss: written.advmss,
                priority: written.priority,
                table: written.table,
                scope: written.scope,
            })
        };
        self.ipam.routes.iter().enumerate().map(read).collect()
    }
}

fn refused(field: &str, value: &str, rule: &'static str) -> ConfigError {
    ConfigError::Field { field: field.to_owned(), value: value.to_owned(), rule }
}

fn gateway(field: &str, text: Option<&str>) -> Result<Option<IpAddr>, ConfigError> {
    let given = text.filter(|text| !text.is_empty());
    given.map(|text| text.parse().map_err(|_| refused(field, text, ADDRESS))).transpose()
}

#[cfg(test)]
mod tests;
