//! GET and LIST.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Registry, is_verbatim, key, present};
use crate::http::Call;
use crate::http::negotiate::Accept;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Stored, View};
use crate::{object, table};

/// Which objects of a kind a list or a watch is about.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    /// Keys start with this: a namespace, or nothing.
    pub prefix: String,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub(super) fn parse(call: &Call, kind: &Kind) -> ApiResult<Self> {
        let mut fields = FieldSelector::parse(kind, call.query.text("fieldSelector"))?;
        if let Some(name) = &call.route.name {
            fields = FieldSelector::parse(kind, &format!("metadata.name={name}"))?;
        }
        let prefix =
            call.route.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        Ok(Self { prefix, labels: LabelSelector::parse(call.query.text("labelSelector"))?, fields })
    }

    pub(super) fn matches(&self, kind: &Kind, stored: &Stored) -> bool {
        stored.key.starts_with(&self.prefix)
            && self.labels.matches(&stored.labels)
            && (self.fields.is_everything() || self.matches_fields(kind, stored))
    }

    fn matches_fields(&self, kind: &Kind, stored: &Stored) -> bool {
        // A name can be told by the key; anything else needs the object.
        if let Some(name) = self.fields.exact_name()
            && stored.key.rsplit('/').next() != Some(name)
        {
            return false;
        }
        self.fields.matches(&present(kind, stored))
    }
}

/// Where a paged list goes on.
#[derive(serde::Serialize, serde::Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    start: String,
}

impl Continue {
    fn encode(rv: u64, start: &str) -> String {
        let token = json!({ "v": "meta.k8s.io/v1", "rv": rv, "start": start });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> ApiResult<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        token.filter(|token| token.v == "meta.k8s.io/v1").ok_or_else(|| {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: this server did not give it",
            )
        })
    }
}

/// `resourceVersion` of a request: none, or a number, or the text of what is wrong. `0` means any.
pub(super) fn asked_revision(call: &Call) -> Result<Option<u64>, String> {
    let text = call.query.text("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        FieldError::invalid("resourceVersion", &json!(text), detail).to_string()
    })
}

impl Registry {
    pub(super) async fn get(&self, call: &Call, kind: &Kind) -> ApiResult<Reply> {
        let asked = asked_revision(call).map_err(|message| ApiError::new(500, "", message))?;
        self.view_at_least(asked).await?;
        let stored = self.stored(kind, call.route.namespace(), call.route.name())?;
        if call.accept == Accept::Object && is_verbatim(kind) {
            return Ok(Reply::bytes(StatusCode::OK, "application/json", stored.json.clone()));
        }
        Self::reply(call, kind, present(kind, &stored), false)
    }

    /// The object as it is now, or 404.
    pub(crate) fn stored(&self, kind: &Kind, namespace: &str, name: &str) -> ApiResult<Arc<Stored>> {
        let view = self.store.view();
        view.get(&kind.storage, &key(namespace, name)).cloned().ok_or_else(|| kind.not_found(name))
    }

    /// The newest view, once it has reached what the client has already seen.
    pub(super) async fn view_at_least(&self, revision: Option<u64>) -> ApiResult<Arc<View>> {
        let asked = revision.unwrap_or_default();
        if self.store.view().revision < asked && !self.store.reaches(asked).await {
            return Err(ApiError::too_large_resource_version(asked, self.store.view().revision));
        }
        Ok(self.store.view())
    }

    pub(super) async fn list(&self, call: &Call, kind: &Kind) -> ApiResult<Reply> {
        let selection = Selection::parse(call, kind)?;
        if call.query.get("sendInitialEvents").is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            return Err(invalid_list(vec![FieldError::forbidden("sendInitialEvents", detail)]));
        }
        let limit = call
            .query
            .number("limit")?
            .filter(|limit| *limit > 0)
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let token =
            call.query.get("continue").filter(|text| !text.is_empty()).map(Continue::decode).transpose()?;
        if token.is_some() && !matches!(call.query.text("resourceVersion"), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (view, start) = match &token {
            Some(token) => {
                let view = self
                    .store
                    .view_at(&kind.storage, token.rv)
                    .map_err(|_| ApiError::expired(EXPIRED_PAGE))?;
                (view, token.start.as_str())
            }
            None => (self.view_for_list(call, kind).await?, ""),
        };
        let mut page: Vec<&Arc<Stored>> = Vec::new();
        let mut rest = view
            .scan(&kind.storage, &selection.prefix, start)
            .filter(|stored| selection.matches(kind, stored));
        let mut next = None;
        for stored in rest.by_ref() {
            if limit.is_some_and(|limit| page.len() >= limit) {
                next = Some(stored);
                break;
            }
            page.push(stored);
        }
        let mut meta = json!({ "resourceVersion": view.revision.to_string() });
        if kind.custom.is_some() && call.accept == Accept::Object {
            // Lists of custom resources say even that there is no more; built-in ones leave it out.
            meta["continue"] = "".into();
        }
        if let Some(next) = next {
            meta["continue"] = Continue::encode(view.revision, &next.key).into();
            if selection.labels.is_everything() && selection.fields.is_everything() {
                meta["remainingItemCount"] = (rest.count() + 1).into();
            }
        }
        Self::list_reply(call, kind, &page, &meta)
    }

    async fn view_for_list(&self, call: &Call, kind: &Kind) -> ApiResult<Arc<View>> {
        let asked = asked_revision(call)
            .map_err(|message| ApiError::bad_request(format!("invalid resource version: {message}")))?;
        match (call.query.text("resourceVersionMatch"), asked) {
            ("", asked) | ("NotOlderThan", asked @ Some(_)) => self.view_at_least(asked).await,
            ("Exact", Some(revision)) if revision > 0 => {
                self.view_at_least(Some(revision)).await?;
                let gone = |_| ApiError::expired("The resourceVersion for the provided list is too old.");
                self.store.view_at(&kind.storage, revision).map_err(gone)
            }
            ("Exact", Some(_)) => {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                Err(invalid_list(vec![FieldError::forbidden(MATCH, detail)]))
            }
            ("Exact" | "NotOlderThan", None) => {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                Err(invalid_list(vec![FieldError::forbidden(MATCH, detail)]))
            }
            (other, _) => {
                let supported = ["Exact", "NotOlderThan", ""].map(str::to_owned);
                Err(invalid_list(vec![FieldError::not_supported(MATCH, &json!(other), &supported)]))
            }
        }
    }

    fn list_reply(call: &Call, kind: &Kind, page: &[&Arc<Stored>], meta: &Value) -> ApiResult<Reply> {
        match call.accept {
            Accept::Object if is_verbatim(kind) => {
                let head = item_head(kind);
                let items = page.iter().map(|stored| (head.as_str(), stored.json.as_ref()));
                Ok(joined_list(&kind.api_version(), &kind.list_kind, meta, items))
            }
            Accept::Object => {
                let head = item_head(kind);
                let items: Vec<Vec<u8>> =
                    page.iter().filter_map(|stored| object::to_json(&present(kind, stored)).ok()).collect();
                let items = items.iter().map(|json| (head.as_str(), json.as_slice()));
                Ok(joined_list(&kind.api_version(), &kind.list_kind, meta, items))
            }
            Accept::PartialMetadata if page.is_empty() => {
                // Go's list of none.
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": meta, "items": null,
                });
                Ok(Reply::json(StatusCode::OK, &list))
            }
            Accept::PartialMetadata => {
                let items: Vec<String> = page
                    .iter()
                    .map(|stored| table::partial_metadata(&present(kind, stored)).to_string())
                    .collect();
                let items = items.iter().map(|json| ("", json.as_bytes()));
                Ok(joined_list("meta.k8s.io/v1", "PartialObjectMetadataList", meta, items))
            }
            Accept::Table => {
                let objects: Vec<Value> = page.iter().map(|stored| present(kind, stored)).collect();
                let include = table::IncludeObject::parse(call.query.text("includeObject"))?;
                Ok(Reply::json(StatusCode::OK, &table::render(kind, &objects, meta, include, true)))
            }
        }
    }
}

/// What every item of a built-in kind begins with, and lists leave out: the list says it. Custom resources keep it.
fn item_head(kind: &Kind) -> String {
    if kind.custom.is_some() {
        return String::new();
    }
    format!(r#"{{"kind":"{}","apiVersion":"{}","#, kind.kind, kind.api_version())
}

/// A list from items that are JSON already, each without the beginning that goes with it: ten thousand objects are a
/// copy, not a serialisation.
fn joined_list<'a>(
    api_version: &str,
    kind: &str,
    meta: &Value,
    items: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Reply {
    let head = json!({ "apiVersion": api_version, "kind": kind, "metadata": meta }).to_string();
    let mut body = BytesMut::with_capacity(4096);
    body.put_slice(&head.as_bytes()[..head.len() - 1]);
    body.put_slice(b",\"items\":[");
    for (index, (head, item)) in items.enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        match item.strip_prefix(head.as_bytes()) {
            Some(rest) if !head.is_empty() => {
                body.put_u8(b'{');
                body.put_slice(rest);
            }
            _ => body.put_slice(item),
        }
    }
    body.put_slice(b"]}");
    Reply::bytes(StatusCode::OK, "application/json", body.freeze())
}

const EXPIRED_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.";

pub(super) const MATCH: &str = "resourceVersionMatch";

pub(super) fn invalid_list(errors: Vec<FieldError>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)
}
