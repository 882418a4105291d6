//! Who is calling: client certificates and service-account tokens. Nobody is anonymous.
//!
//! Says who, never what they may do: on this server every authenticated user may do everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::status::{ApiError, ApiResult};

pub const ISSUER: &str = "https://kubernetes.default.svc";
const AUTHENTICATED: &str = "system:authenticated";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    /// What else is known: the certificate that the caller showed, the pod that its token is bound to, and the pod's node.
    pub extra: BTreeMap<String, Vec<String>>,
}

const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

impl User {
    /// The person, or the program, that may do anything.
    pub fn admin() -> Self {
        let groups = vec!["system:masters".into(), AUTHENTICATED.into()];
        Self { name: "system:admin".into(), groups, ..Self::default() }
    }

    /// The user that a client certificate names: common name and organisations.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let organisations = subject.iter_organization().filter_map(|organisation| organisation.as_str().ok());
        let groups = organisations.map(str::to_owned).chain([AUTHENTICATED.to_owned()]).collect();
        let digest = Sha256::digest(der);
        let credential =
            digest.iter().fold("X509SHA256=".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let extra = [(CREDENTIAL.to_owned(), vec![credential])].into();
        Some(Self { name, uid: String::new(), groups, extra })
    }

    fn from_service_account(claims: Claims) -> Option<Self> {
        let namespace = claims.sub.split(':').nth(2)?;
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED.to_owned(),
        ];
        let bound = claims.bound.into_iter().flat_map(|Bound { pod, node }| {
            let node = node.into_iter().flat_map(|node| [(NODE_NAME, node.name), (NODE_UID, node.uid)]);
            [(POD_NAME, pod.name), (POD_UID, pod.uid)].into_iter().chain(node)
        });
        let extra = bound.map(|(key, value)| (key.to_owned(), vec![value])).collect();
        Some(Self { name: claims.sub, uid: claims.uid, groups, extra })
    }

    /// Name and UID of the pod that the caller's token ends with.
    pub(crate) fn pod(&self) -> Option<(&str, &str)> {
        let one = |key: &str| self.extra.get(key).and_then(|values| values.first()).map(String::as_str);
        Some((one(POD_NAME)?, one(POD_UID)?))
    }

    /// The user that `kubectl --as` and `--as-group` name, if they do.
    fn impersonated(headers: &HeaderMap) -> Option<Self> {
        let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let name = headers.get("impersonate-user").and_then(text)?;
        let groups = headers.get_all("impersonate-group").iter().filter_map(text);
        let groups = groups.chain([AUTHENTICATED.to_owned()]).collect();
        let uid = headers.get("impersonate-uid").and_then(text).unwrap_or_default();
        Some(Self { name, uid, groups, extra: BTreeMap::new() })
    }

    /// As `userInfo` shows it.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "username": self.name, "groups": self.groups });
        if !self.uid.is_empty() {
            value["uid"] = self.uid.clone().into();
        }
        if !self.extra.is_empty() {
            value["extra"] = json!(self.extra);
        }
        value
    }
}

/// The claims of a service-account token.
#[derive(serde::Serialize, serde::Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    uid: String,
    exp: i64,
    aud: Vec<String>,
    #[serde(rename = "kubernetes.io", default, skip_serializing_if = "Option::is_none")]
    bound: Option<Bound>,
}

/// The pod that a token is for, and its node.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Bound {
    pub pod: Named,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Named>,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Named {
    pub name: String,
    pub uid: String,
}

/// Makes and checks tokens, and tells callers apart.
pub struct Auth {
    key: hmac::Key,
}

impl Auth {
    /// `key` signs service-account tokens; tokens of an earlier run are good as long as the key is the same.
    pub fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// The caller of a request: its bearer token, or else whoever the connection belongs to; or whom they speak for.
    /// `exists` says whether the account of a token is still there.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        connection: Option<&Arc<User>>,
        exists: impl Fn(&User) -> bool,
    ) -> ApiResult<Arc<User>> {
        let authorization = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let caller = match authorization.and_then(|text| text.split_once(' ')) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                let (user, audiences) = self.bearer(token.trim()).ok_or_else(ApiError::unauthorized)?;
                if !audiences.iter().any(|audience| audience == ISSUER) || !exists(&user) {
                    return Err(ApiError::unauthorized());
                }
                Arc::new(user)
            }
            _ => connection.cloned().ok_or_else(ApiError::unauthorized)?,
        };
        Ok(User::impersonated(headers).map_or(caller, Arc::new))
    }

    /// The user of a token that this server gave and that has not expired, and whom the token is for.
    pub(crate) fn bearer(&self, token: &str) -> Option<(User, Vec<String>)> {
        let (signed, signature) = token.rsplit_once('.')?;
        hmac::verify(&self.key, signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
        let claims: Claims = serde_json::from_slice(&claims).ok()?;
        if claims.exp <= jiff::Timestamp::now().as_second() {
            return None;
        }
        let audiences = claims.aud.clone();
        Some((User::from_service_account(claims)?, audiences))
    }

    /// A token of a service account, in the usual JWT form, for the audiences given or else for this server.
    pub(crate) fn issue(
        &self,
        (namespace, name): (&str, &str),
        uid: &str,
        expires: jiff::Timestamp,
        audiences: &[&str],
        bound: Option<Bound>,
    ) -> ApiResult<String> {
        let audiences = if audiences.is_empty() { &[ISSUER] } else { audiences };
        let claims = Claims {
            iss: ISSUER.into(),
            sub: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.into(),
            exp: expires.as_second(),
            aud: audiences.iter().map(|audience| (*audience).to_owned()).collect(),
            bound,
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

    fn anyone(_: &User) -> bool {
        true
    }

    fn in_seconds(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)
    }

    fn with_token(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[test]
    fn nobody_is_anonymous() {
        let (auth, admin) = (Auth::new(b"key"), Arc::new(User::admin()));
        assert_eq!(auth.identify(&HeaderMap::new(), None, anyone).map_err(|e| e.code), Err(401));
        assert_eq!(auth.identify(&with_token("wrong"), Some(&admin), anyone).map_err(|e| e.code), Err(401));
        assert_eq!(auth.identify(&HeaderMap::new(), Some(&admin), anyone).unwrap().name, "system:admin");
    }

    #[test]
    fn a_token_names_its_service_account_until_it_expires() {
        let auth = Auth::new(b"key");
        let token = auth.issue(("birds", "godwit"), "u1", in_seconds(60), &[], None).unwrap();
        let user = auth.identify(&with_token(&token), None, anyone).unwrap();
        assert_eq!(user.name, "system:serviceaccount:birds:godwit");
        assert!(user.groups.contains(&"system:serviceaccounts:birds".to_owned()));
        assert_eq!(auth.identify(&with_token(&token), None, |_| false).map_err(|e| e.code), Err(401));
        let (body, _) = token.rsplit_once('.').unwrap();
        assert_eq!(auth.bearer(&format!("{body}.AAAA")), None);
        let expired = auth.issue(("birds", "godwit"), "u1", in_seconds(-1), &[], None).unwrap();
        assert_eq!(auth.bearer(&expired), None);
    }

    #[test]
    fn a_token_of_a_pod_names_the_pod_and_its_node() {
        let auth = Auth::new(b"key");
        let named = |name: &str| Named { name: name.to_owned(), uid: format!("uid of {name}") };
        let bound = Bound { pod: named("wren"), node: Some(named("nest")) };
        let token = auth.issue(("birds", "godwit"), "u1", in_seconds(60), &[], Some(bound)).unwrap();
        let user = auth.identify(&with_token(&token), None, anyone).unwrap();
        assert_eq!(user.pod(), Some(("wren", "uid of wren")));
        let extra = &user.to_value()["extra"];
        assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["nest"]));
        assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!(["uid of wren"]));
    }

    #[test]
    fn a_token_for_someone_else_is_no_key_to_this_server() {
        let auth = Auth::new(b"key");
        let token = auth.issue(("birds", "godwit"), "u1", in_seconds(60), &["vault"], None).unwrap();
        assert_eq!(auth.identify(&with_token(&token), None, anyone).map_err(|e| e.code), Err(401));
        assert_eq!(auth.bearer(&token).unwrap().1, ["vault"]);
    }

    #[test]
    fn one_may_speak_for_another() {
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", "jane".parse().unwrap());
        headers.append("impersonate-group", "birds".parse().unwrap());
        let user = Auth::new(b"key").identify(&headers, Some(&Arc::new(User::admin())), anyone).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("jane", &["birds".to_owned(), AUTHENTICATED.to_owned()][..])
        );
        assert!(Auth::new(b"key").identify(&headers, None, anyone).is_err());
    }
}
