//! Who is calling: client certificates, static tokens and service-account tokens. Nobody is anonymous.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::status::{ApiError, ApiResult};

const ISSUER: &str = "https://kubernetes.default.svc";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    /// The person, or the program, that may do anything.
    pub fn admin() -> Self {
        Self {
            name: "system:admin".into(),
            uid: String::new(),
            groups: vec!["system:masters".into(), AUTHENTICATED.into()],
        }
    }

    /// The user that a client certificate names: common name and organisations.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let organisations = subject
            .iter_organization()
            .filter_map(|organisation| organisation.as_str().ok());
        let groups = organisations
            .map(str::to_owned)
            .chain([AUTHENTICATED.to_owned()])
            .collect();
        Some(Self {
            name,
            uid: String::new(),
            groups,
        })
    }

    pub fn to_value(&self) -> Value {
        let mut value = json!({ "username": self.name, "groups": self.groups });
        if !self.uid.is_empty() {
            value["uid"] = self.uid.clone().into();
        }
        value
    }
}

const AUTHENTICATED: &str = "system:authenticated";

/// What is known of callers.
pub struct Auth {
    tokens: HashMap<String, Arc<User>>,
    key: hmac::Key,
}

/// The claims of a service-account token.
#[derive(serde::Serialize, serde::Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    uid: String,
    exp: i64,
}

impl Auth {
    /// `key` signs service-account tokens; tokens of an earlier run are good as long as the key is the same.
    pub fn new(tokens: HashMap<String, Arc<User>>, key: &[u8]) -> Self {
        Self {
            tokens,
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// The caller of a request: its bearer token, or else whoever the connection belongs to.
    pub(crate) fn identify(
        &self,
        authorization: &str,
        connection: Option<&Arc<User>>,
    ) -> ApiResult<Arc<User>> {
        match authorization.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                self.bearer(token.trim()).ok_or_else(ApiError::unauthorized)
            }
            _ => connection.cloned().ok_or_else(ApiError::unauthorized),
        }
    }

    pub(crate) fn bearer(&self, token: &str) -> Option<Arc<User>> {
        if let Some(user) = self.tokens.get(token) {
            return Some(user.clone());
        }
        let (signed, signature) = token.rsplit_once('.')?;
        hmac::verify(
            &self.key,
            signed.as_bytes(),
            &URL_SAFE_NO_PAD.decode(signature).ok()?,
        )
        .ok()?;
        let claims: Claims =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?).ok()?;
        if claims.exp <= jiff::Timestamp::now().as_second() {
            return None;
        }
        let namespace = claims.sub.split(':').nth(2)?;
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED.to_owned(),
        ];
        Some(Arc::new(User {
            name: claims.sub,
            uid: claims.uid,
            groups,
        }))
    }

    /// A token of a service account, in the usual JWT form.
    pub(crate) fn issue(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        expires: jiff::Timestamp,
    ) -> ApiResult<String> {
        let claims = Claims {
            iss: ISSUER.into(),
            sub: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.into(),
            exp: expires.as_second(),
        };
        let claims = serde_json::to_vec(&claims).map_err(ApiError::internal)?;
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth() -> Auth {
        Auth::new(
            HashMap::from([("secret".to_owned(), Arc::new(User::admin()))]),
            b"key",
        )
    }

    #[test]
    fn nobody_is_anonymous() {
        assert_eq!(auth().identify("", None).map_err(|e| e.code), Err(401));
        assert_eq!(
            auth()
                .identify("Bearer wrong", Some(&Arc::new(User::admin())))
                .map_err(|e| e.code),
            Err(401)
        );
        assert!(auth().identify("Bearer secret", None).is_ok());
    }

    #[test]
    fn a_service_account_token_names_its_account_until_it_expires() {
        let auth = auth();
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let token = auth.issue("birds", "godwit", "u1", soon).unwrap();
        let user = auth.bearer(&token).unwrap();
        assert_eq!(user.name, "system:serviceaccount:birds:godwit");
        assert!(user.groups.contains(&"system:serviceaccounts:birds".to_owned()));
        let past = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(1);
        assert_eq!(
            auth.bearer(&auth.issue("birds", "godwit", "u1", past).unwrap()),
            None
        );
        let (body, _) = token.rsplit_once('.').unwrap();
        assert_eq!(auth.bearer(&format!("{body}.AAAA")), None);
    }
}
