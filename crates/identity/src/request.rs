//! Certificates for keys that never leave their holder: the holder asks with a signed request, the authority answers.
//!
//! Of a request only the key is taken, once it has been proved, and the name, to be compared: what the certificate says is the
//! authority's business.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, KeyPair};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{Authority, Error, Identity, Subject};

/// A key, and the request for a certificate of it.
pub struct Request {
    key: String,
    pem: String,
}

impl Request {
    /// A new key, and a request in this name.
    pub fn new(common_name: &str) -> Result<Self, Error> {
        let failed = |source| Error::Generate { subject: common_name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let request = params.serialize_request(&key).map_err(failed)?;
        Ok(Self { key: key.serialize_pem(), pem: request.pem().map_err(failed)? })
    }

    /// What the authority is sent.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key with the certificate (PEM) that was given for it.
    pub fn with_certificate(&self, certificate: &str) -> Identity {
        Identity { certificate: certificate.to_owned(), key: self.key.clone() }
    }
}

/// A request that was read, and proved to come from the holder of its key.
pub struct Asked(CertificateSigningRequestParams);

impl Asked {
    pub fn from_pem(request: &str) -> Result<Self, Error> {
        CertificateSigningRequestParams::from_pem(request).map(Self).map_err(Error::Request)
    }

    /// The name that it was made in.
    pub fn common_name(&self) -> Option<&str> {
        match self.0.params.distinguished_name.get(&DnType::CommonName)? {
            DnValue::Utf8String(name) => Some(name),
            DnValue::PrintableString(name) => Some(name.as_str()),
            _ => None,
        }
    }
}

impl Authority {
    /// A certificate (PEM) for the key of a request, that says this of its holder.
    pub fn sign(&self, asked: &Asked, subject: &Subject, valid_for: Duration) -> Result<String, Error> {
        let failed = |source| Error::Generate { subject: subject.common_name.clone(), source };
        let params = self.leaf(subject, valid_for).map_err(failed)?;
        let request = CertificateSigningRequestParams { params, public_key: asked.0.public_key.clone() };
        Ok(request.signed_by(self.issuer()).map_err(failed)?.pem())
    }
}

/// Whether the first certificate of a PEM text says that it is of the first authority of another: by the name of its key.
pub fn is_signed_by(certificate: &str, authorities: &str) -> Result<bool, Error> {
    let (certificate, authority) = (first(certificate)?, first(authorities)?);
    let (_, certificate) = X509Certificate::from_der(&certificate).map_err(|_| Error::Certificate)?;
    let (_, authority) = X509Certificate::from_der(&authority).map_err(|_| Error::Certificate)?;
    let signer = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(key) => key.key_identifier.as_ref().map(|key| key.0),
        _ => None,
    });
    let key = authority.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0),
        _ => None,
    });
    Ok(signer.is_some() && signer == key)
}

fn first(pem: &str) -> Result<Vec<u8>, Error> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|_| Error::Certificate)?;
    Ok(pem.contents)
}

/// From when to when the first certificate of a PEM text is valid.
pub fn validity(certificate: &str) -> Result<(SystemTime, SystemTime), Error> {
    let der = first(certificate)?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| Error::Certificate)?;
    let moment = |time: x509_parser::time::ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    };
    let validity = certificate.validity();
    Ok((moment(validity.not_before), moment(validity.not_after)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;

    #[test]
    fn a_certificate_says_what_the_authority_says_whatever_was_asked_for() {
        let authority = Authority::generate("authority", Duration::from_hours(1)).unwrap();
        let request = Request::new("node-1").unwrap();
        let asked = Asked::from_pem(request.pem()).unwrap();
        assert_eq!(asked.common_name(), Some("node-1"));
        let member = Member::new("alaska", "virt-handler", "node-1").unwrap();
        let subject =
            Subject { common_name: "other".into(), member: Some(member.clone()), ..Subject::default() };
        let certificate = authority.sign(&asked, &subject, Duration::from_mins(10)).unwrap();
        assert_eq!(Member::of_pem(&certificate), Ok(member));
        let (from, to) = validity(&certificate).unwrap();
        assert!(from < SystemTime::now() && to > SystemTime::now() + Duration::from_mins(9));
        assert!(to < SystemTime::now() + Duration::from_mins(11));
    }

    #[test]
    fn a_certificate_is_of_one_authority_and_does_not_outlive_it() {
        let hour = Duration::from_hours(1);
        let [one, two] = [1, 2].map(|_| Authority::generate("authority", hour).unwrap());
        let kept = Authority::from_pem(one.to_pem().clone(), "test").unwrap();
        let subject = Subject { common_name: "node-1".into(), ..Subject::default() };
        for authority in [&one, &kept] {
            let identity = authority.issue(&subject, 2 * hour).unwrap();
            let both = [one.certificate(), two.certificate()].concat();
            assert!(is_signed_by(&identity.certificate, &both).unwrap());
            assert!(!is_signed_by(&identity.certificate, two.certificate()).unwrap());
            let end = |certificate| validity(certificate).unwrap().1;
            assert_eq!(end(&identity.certificate), end(one.certificate()));
        }
        assert!(is_signed_by("nonsense", one.certificate()).is_err());
    }

    #[test]
    fn a_request_that_was_tampered_with_is_refused() {
        let request = Request::new("node-1").unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(request.pem().as_bytes()).unwrap();
        let mut der = pem.contents;
        let name = der.windows(6).position(|window| window == b"node-1").unwrap();
        der[name + 5] = b'2';
        let read = CertificateSigningRequestParams::from_der(&der.into());
        assert!(matches!(read, Err(rcgen::Error::InvalidCertificationRequestSignature)));
        assert!(matches!(Asked::from_pem("nonsense"), Err(Error::Request(_))));
        assert!(validity("nonsense").is_err());
    }
}
