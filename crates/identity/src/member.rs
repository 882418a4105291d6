//! Who a certificate's holder is inside Godwit: a component, on a node, in a cluster.
//!
//! It is written as one URI among the subject alternative names, `godwit://CLUSTER/COMPONENT/NODE`, and read back from there
//! and from nowhere else: common names and DNS names say nothing about membership. A certificate with two such names names
//! nobody. This file checks no signature: whoever asks must have verified the certificate.

use std::fmt;
use std::str::FromStr;

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

const SCHEME: &str = "godwit://";
/// Of a Kubernetes object's name, which is the longest of the three.
const LONGEST: usize = 253;

/// A component on a node in a cluster. Each part is a DNS name, as Kubernetes names objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    cluster: String,
    component: String,
    node: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MemberError {
    #[error("the {part} of a member must be a lower-case DNS name, and {value:?} is not")]
    Part { part: &'static str, value: String },
    #[error("{value:?} is not godwit://CLUSTER/COMPONENT/NODE")]
    Form { value: String },
    #[error("the certificate cannot be read")]
    Certificate,
    #[error("the certificate is not current")]
    NotCurrent,
    #[error("the certificate names no member of a cluster")]
    Missing,
    #[error("the certificate names more than one member of a cluster")]
    Several,
}

impl Member {
    pub fn new(cluster: &str, component: &str, node: &str) -> Result<Self, MemberError> {
        for (part, value) in [("cluster", cluster), ("component", component), ("node", node)] {
            if !is_dns_name(value) {
                return Err(MemberError::Part { part, value: value.to_owned() });
            }
        }
        Ok(Self { cluster: cluster.to_owned(), component: component.to_owned(), node: node.to_owned() })
    }

    /// The member that a certificate (DER) names. One whose time is over, or has not come, names nobody.
    pub fn of_certificate(der: &[u8]) -> Result<Self, MemberError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| MemberError::Certificate)?;
        if !certificate.validity().is_valid() {
            return Err(MemberError::NotCurrent);
        }
        let names = certificate.subject_alternative_name().map_err(|_| MemberError::Certificate)?;
        let mut uris =
            names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
                GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
                _ => None,
            });
        let uri = uris.next().ok_or(MemberError::Missing)?;
        if uris.next().is_some() {
            return Err(MemberError::Several);
        }
        uri.parse()
    }

    /// The same of the first certificate of a PEM text.
    pub fn of_pem(certificate: &str) -> Result<Self, MemberError> {
        let (_, pem) =
            x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|_| MemberError::Certificate)?;
        Self::of_certificate(&pem.contents)
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn component(&self) -> &str {
        &self.component
    }

    pub fn node(&self) -> &str {
        &self.node
    }
}

impl fmt::Display for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}/{}/{}", self.cluster, self.component, self.node)
    }
}

impl FromStr for Member {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self, MemberError> {
        let form = || MemberError::Form { value: text.to_owned() };
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(form)?.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(cluster), Some(component), Some(node), None) => Self::new(cluster, component, node),
            _ => Err(form()),
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= LONGEST && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Authority, Subject};

    fn der(subject: &Subject) -> Vec<u8> {
        let authority = Authority::generate("authority", Duration::from_mins(1)).unwrap();
        let identity = authority.issue(subject, Duration::from_mins(1)).unwrap();
        x509_parser::pem::parse_x509_pem(identity.certificate.as_bytes()).unwrap().1.contents
    }

    #[test]
    fn a_certificate_gives_back_the_member_that_it_was_made_for() {
        let member = Member::new("alaska", "virt-handler", "node-1.example").unwrap();
        assert_eq!(member.to_string(), "godwit://alaska/virt-handler/node-1.example");
        let subject = Subject {
            common_name: "node-1".to_owned(),
            dns_names: vec!["node-1.example".to_owned()],
            member: Some(member.clone()),
            ..Subject::default()
        };
        assert_eq!(Member::of_certificate(&der(&subject)), Ok(member));
    }

    #[test]
    fn a_certificate_of_nobody_or_of_two_names_no_member() {
        let subject = Subject { common_name: "godwit://a/b/c".to_owned(), ..Subject::default() };
        assert_eq!(Member::of_certificate(&der(&subject)), Err(MemberError::Missing));
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names = ["godwit://a/b/one", "godwit://a/b/two"]
            .map(|uri| rcgen::SanType::URI(uri.try_into().unwrap()))
            .to_vec();
        let two = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        assert_eq!(Member::of_certificate(two.der()), Err(MemberError::Several));
        assert_eq!(Member::of_certificate(b"\x30\x03abc"), Err(MemberError::Certificate));
    }

    #[test]
    fn a_certificate_names_a_member_within_its_dates_only() {
        let dated = |from, to| {
            let mut params = rcgen::CertificateParams::default();
            params.subject_alt_names = vec![rcgen::SanType::URI("godwit://a/b/c".try_into().unwrap())];
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            Member::of_certificate(certificate.der())
        };
        assert!(dated(2020, 2999).is_ok());
        assert_eq!(dated(2020, 2021), Err(MemberError::NotCurrent));
        assert_eq!(dated(2998, 2999), Err(MemberError::NotCurrent));
    }

    #[test]
    fn names_are_kept_strictly() {
        for good in ["godwit://a/b/c", "godwit://a-1.b/virt-handler/0"] {
            assert_eq!(good.parse::<Member>().unwrap().to_string(), good);
        }
        let bad = ["", "godwit://", "godwit://a/b", "godwit://a/b/c/d", "godwit://a//c", "godwit://A/b/c"];
        let bad =
            bad.into_iter().chain(["https://a/b/c", "godwit://a/b/c ", "godwit://-a/b/c", "godwit://a/b/c."]);
        for text in bad {
            assert!(text.parse::<Member>().is_err(), "{text:?}");
        }
    }
}
