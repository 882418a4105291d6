//! Certificate authorities, certificates, and the names in them.
//!
//! Keys are ECDSA P-256; files that hold one are readable by their owner only. Nothing here opens a connection.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

mod file;
mod kubeconfig;
mod member;
mod request;

pub use file::write_private;
pub use kubeconfig::kubeconfig;
pub use member::{Member, MemberError};
pub use request::{Asked, Request, is_signed_by, validity};

/// Clocks differ: a certificate is valid from a little before it was made.
pub const SKEW: Duration = Duration::from_mins(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("making a key or certificate for {subject:?} failed")]
    Generate {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("the certificate authority in {place} cannot be used; remove it to have a new one made")]
    Parse {
        place: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("this is not a request for a certificate, or not one of the holder of its key")]
    Request(#[source] rcgen::Error),
    #[error("the certificate cannot be read")]
    Certificate,
    #[error("reading or writing {path} failed")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// What a certificate says of its holder.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    pub common_name: String,
    /// The group of a Kubernetes user.
    pub organisation: Option<String>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// Who the holder is inside Godwit.
    pub member: Option<Member>,
}

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: Identity,
    /// Nothing that it signs outlives it.
    until: SystemTime,
}

impl Authority {
    /// A new authority of its own key.
    pub fn generate(name: &str, valid_for: Duration) -> Result<Self, Error> {
        let now = SystemTime::now();
        Self::generate_between(name, now, now + valid_for)
    }

    /// The same, made at one time to be valid until another.
    pub fn generate_between(name: &str, made: SystemTime, until: SystemTime) -> Result<Self, Error> {
        let failed = |source| Error::Generate { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let subject = Subject { common_name: name.to_owned(), ..Subject::default() };
        let mut params = params(&subject, made, until).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(failed)?;
        let pem = Identity { certificate: certificate.pem(), key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), pem, until })
    }

    /// The authority kept in `directory` (`NAME.crt`, `NAME.key`), made there if it is not.
    pub fn load_or_generate(directory: &Path, name: &str, valid_for: Duration) -> Result<Self, Error> {
        let (certificate, key) =
            (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        if !certificate.exists() || !key.exists() {
            let authority = Self::generate(name, valid_for)?;
            write_private(&key, authority.pem.key.as_bytes())?;
            write_private(&certificate, authority.pem.certificate.as_bytes())?;
            return Ok(authority);
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|source| Error::File { path: path.display().to_string(), source })
        };
        let pem = Identity { certificate: read(&certificate)?, key: read(&key)? };
        Self::from_pem(pem, &directory.display().to_string())
    }

    /// The authority that was kept elsewhere; `place` says where, for the one who reads of a failure.
    pub fn from_pem(pem: Identity, place: &str) -> Result<Self, Error> {
        let failed = |source| Error::Parse { place: place.to_owned(), source };
        let key = KeyPair::from_pem(&pem.key).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&pem.certificate, key).map_err(failed)?;
        let (_, until) = validity(&pem.certificate)?;
        Ok(Self { issuer, pem, until })
    }

    /// Certificate and key, to keep: whoever has them can sign.
    pub fn to_pem(&self) -> &Identity {
        &self.pem
    }

    /// The authority's certificate, which others trust.
    pub fn certificate(&self) -> &str {
        &self.pem.certificate
    }

    fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// A certificate for one who serves, who calls, or who does both.
    pub fn issue(&self, subject: &Subject, valid_for: Duration) -> Result<Identity, Error> {
        let failed = |source| Error::Generate { subject: subject.common_name.clone(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let params = self.leaf(subject, valid_for).map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Of one who does not sign others.
    fn leaf(&self, subject: &Subject, valid_for: Duration) -> Result<CertificateParams, rcgen::Error> {
        let now = SystemTime::now();
        let mut params = params(subject, now, self.until.min(now + valid_for))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

fn params(subject: &Subject, made: SystemTime, until: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(subject.dns_names.clone())?;
    params.subject_alt_names.extend(subject.addresses.iter().map(|address| SanType::IpAddress(*address)));
    if let Some(member) = &subject.member {
        params.subject_alt_names.push(SanType::URI(member.to_string().try_into()?));
    }
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, subject.common_name.as_str());
    if let Some(organisation) = &subject.organisation {
        name.push(DnType::OrganizationName, organisation.as_str());
    }
    params.distinguished_name = name;
    params.not_before = (made - SKEW).into();
    params.not_after = until.into();
    Ok(params)
}
