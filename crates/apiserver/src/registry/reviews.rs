//! Questions about access: answered, never stored.
//!
//! Every authenticated user may do everything here; roles are kept for the real server, which evaluates them.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::{Registry, Verb};
use crate::auth::{Bound, ISSUER, Named, User};
use crate::body;
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::object;
use crate::status::{ApiError, ApiResult, FieldError};

const TOKEN_SECONDS: i64 = 3600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

impl Registry {
    pub(super) fn review(&self, call: &Call, kind: &Kind) -> ApiResult<Reply> {
        let mut review = body::decode(&call.content_type, &call.body)?.value;
        let everything = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
        let status = match kind.kind.as_str() {
            "SelfSubjectReview" => json!({ "userInfo": call.user.to_value() }),
            "TokenReview" => self.token_review(&review["spec"]),
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [everything], "incomplete": false,
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }),
            _ => json!({ "allowed": true, "reason": "every authenticated user is allowed on this server" }),
        };
        let map = object::as_map_mut(&mut review);
        map.insert("apiVersion".into(), kind.api_version().into());
        map.insert("kind".into(), kind.kind.clone().into());
        map.insert("status".into(), status);
        object::set_meta(&mut review, "creationTimestamp", Value::Null);
        Ok(Reply::json(StatusCode::CREATED, &review))
    }

    /// Who sends a request.
    pub(crate) fn caller(&self, headers: &HeaderMap, connection: Option<&Arc<User>>) -> ApiResult<Arc<User>> {
        self.auth.identify(headers, connection, |user| self.has_account(user))
    }

    /// Whether the account that a token was given to is still there, and the pod that it ends with, and not others of the same
    /// names.
    fn has_account(&self, user: &User) -> bool {
        let account =
            user.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        account.is_some_and(|(namespace, name)| {
            let view = self.store.view();
            let is = |place: &str, name: &str, uid: &str| {
                let stored = view.get(place, &super::key(namespace, name));
                stored.is_some_and(|stored| object::uid(&stored.value()) == uid)
            };
            is("serviceaccounts", name, &user.uid) && user.pod().is_none_or(|(pod, uid)| is("pods", pod, uid))
        })
    }

    fn token_review(&self, spec: &Value) -> Value {
        let asked = object::strings(&spec["audiences"]);
        let bearer = self.auth.bearer(spec["token"].as_str().unwrap_or_default());
        match bearer.filter(|(user, _)| self.has_account(user)) {
            Some((user, audiences))
                if asked.is_empty() || audiences.iter().any(|one| asked.contains(&one.as_str())) =>
            {
                let shared: Vec<String> = audiences
                    .into_iter()
                    .filter(|one| asked.is_empty() || asked.contains(&one.as_str()))
                    .collect();
                json!({ "authenticated": true, "user": user.to_value(), "audiences": shared })
            }
            _ => {
                json!({ "error": "the token is not one that this server gave to these audiences, or it has expired" })
            }
        }
    }

    /// `POST serviceaccounts/NAME/token`.
    pub(super) fn token(&self, call: &Call, kind: &Kind) -> ApiResult<Reply> {
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        let account = self.stored(kind, call.route.namespace(), call.route.name())?.value();
        let mut request = body::decode(&call.content_type, &call.body)?.value;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS);
        let wrong = match seconds {
            ..600 => Some("may not specify a duration less than 10 minutes"),
            600..=MAX_TOKEN_SECONDS => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(wrong) = wrong {
            let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), wrong);
            return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", vec![error]));
        }
        if object::strings(&request["spec"]["audiences"]).is_empty() {
            object::set_path(&mut request, "spec.audiences", json!([ISSUER]));
        }
        let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let (namespace, name) = (object::namespace(&account), object::name(&account));
        let audiences = object::strings(&request["spec"]["audiences"]);
        let bound = self.bound(&request["spec"]["boundObjectRef"], namespace)?;
        let token = self.auth.issue((namespace, name), object::uid(&account), expires, &audiences, bound)?;
        let map = object::as_map_mut(&mut request);
        map.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
        map.insert("kind".into(), "TokenRequest".into());
        map.insert(
            "status".into(),
            json!({
                "token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }),
        );
        object::set_path(&mut request, "spec.expirationSeconds", seconds.into());
        object::set_meta(&mut request, "name", name.into());
        object::set_meta(&mut request, "namespace", namespace.into());
        Ok(Reply::json(StatusCode::CREATED, &request))
    }

    /// What a token is bound to. Kubernetes has secrets and nodes, too; here it is pods, or nothing.
    fn bound(&self, reference: &Value, namespace: &str) -> ApiResult<Option<Bound>> {
        if reference["kind"] != "Pod" {
            return Ok(None);
        }
        let name = reference["name"].as_str().unwrap_or_default();
        let view = self.store.view();
        let pod = view.get("pods", &super::key(namespace, name));
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", name))?.value();
        let (asked, uid) = (reference["uid"].as_str().unwrap_or_default(), object::uid(&pod));
        if !asked.is_empty() && asked != uid {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
        let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        let node = node.map(|node| Named {
            name: node.to_owned(),
            uid: view
                .get("nodes", node)
                .map(|node| object::uid(&node.value()).to_owned())
                .unwrap_or_default(),
        });
        Ok(Some(Bound { pod: Named { name: name.to_owned(), uid: uid.to_owned() }, node }))
    }
}
