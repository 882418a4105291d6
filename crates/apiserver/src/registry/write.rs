//! The road of every write: decode, prune, default, admit, validate, commit. Creation is the whole of it once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Registry, Verb, absorb, key, metadata, present, service_accounts, special};
use crate::admission::Review;
use crate::apply::{self, Writer};
use crate::body::{Format, PatchType};
use crate::http::Call;
use crate::http::query::FieldValidation;
use crate::http::reply::Reply;
use crate::kinds::typed::{self, Reader};
use crate::kinds::{Kind, KindTable, strategy};
use crate::schema::{cel, defaults, prune, validate};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Desired, Expect, Stored, Write, WriteError};
use crate::{body, object, patch};

/// What stays the same while a write is tried.
pub(super) struct Intent<'a> {
    pub call: &'a Call,
    pub kind: &'a Arc<Kind>,
    /// What was served when the request came.
    pub table: Arc<KindTable>,
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub manager: String,
    pub now: String,
}

/// What a write led to.
pub(super) struct Outcome {
    pub object: Value,
    pub created: bool,
    pub warnings: Vec<String>,
}

/// Characters of generated names: no vowels, so that they form no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED: usize = 5;

impl<'a> Intent<'a> {
    pub(super) fn new(registry: &Registry, call: &'a Call, kind: &'a Arc<Kind>) -> ApiResult<Self> {
        let named = call.query.text("fieldManager");
        // Without a name given, the program that calls is the manager.
        let agent = call.user_agent.split('/').next().unwrap_or_default();
        let manager = if named.is_empty() { agent } else { named };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Ok(Self {
            call,
            kind,
            table: registry.kinds.load(),
            dry_run: call.query.dry_run()?,
            validation: call.query.field_validation()?,
            manager: manager.chars().take(128).collect(),
            now: object::now(),
        })
    }

    pub(super) fn writer<'b>(&'b self, api_version: &'b str) -> Writer<'b> {
        let subresource = self.call.route.subresource.as_str();
        Writer {
            manager: &self.manager,
            api_version,
            subresource,
            now: &self.now,
            resets: apply::resets(self.kind.status, subresource),
            custom: self.kind.custom.is_some(),
        }
    }

    /// Drops what the schema does not know and fills in defaults. Returns warnings, or refuses when asked to be strict.
    pub(super) fn normalise(&self, object: &mut Value, duplicates: &[String]) -> ApiResult<Vec<String>> {
        let schema = self.kind.schema.get();
        let sent = if self.validation == FieldValidation::Strict { object.clone() } else { Value::Null };
        let mut unknown = prune::prune(schema, object);
        defaults::apply(schema, object);
        if self.kind.custom.is_none() {
            unknown.sort();
            defaults::drop_empty(schema, object);
            strategy::complete(self.kind, object);
            special::complete(self.kind, object);
        }
        let complaints: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field {path:?}"))
            .chain(duplicates.iter().map(|path| format!("duplicate field {path:?}")))
            .collect();
        match self.validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(complaints),
            FieldValidation::Strict if complaints.is_empty() => Ok(complaints),
            FieldValidation::Strict => {
                Err(self.undecodable(&sent, &format!("strict decoding error: {}", complaints.join(", "))))
            }
        }
    }

    /// Every value of a built-in kind is of its field's type.
    pub(super) fn check_types(&self, object: &Value) -> ApiResult<()> {
        if self.kind.custom.is_some() {
            return Ok(());
        }
        let strategic = Format::of(&self.call.content_type) == Some(Format::Patch(PatchType::Strategic));
        let reader = if strategic { Reader::Converter } else { Reader::Json };
        match typed::mismatch(&self.kind.schema, object, reader) {
            Some(why) => Err(self.undecodable(object, &why)),
            None => Ok(()),
        }
    }

    /// A body is refused for what it says, a patch for what it would make.
    pub(super) fn undecodable(&self, object: &Value, why: &str) -> ApiError {
        if self.call.verb == Verb::Patch && !self.applies() {
            let shown = match body::decode_patch(&self.call.content_type, &self.call.body) {
                Ok((PatchType::Strategic, patch)) => patch::shown(&patch.value),
                _ => object.to_string(),
            };
            let error = FieldError::invalid("patch", &shown.into(), why);
            return ApiError::invalid("", "", "", vec![error]);
        }
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}",
            kind = self.kind.kind,
            version = self.kind.version,
        ))
    }

    /// Whether this is a server-side apply.
    pub(super) fn applies(&self) -> bool {
        self.call.verb == Verb::Patch && self.call.content_type.starts_with("application/apply-patch")
    }
}

impl Registry {
    pub(super) async fn create(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let intent = Intent::new(self, call, kind)?;
        let decoded = body::decode_object(&kind.kind, &call.content_type, &call.body)?;
        check_type(kind, &decoded.value)?;
        intent.check_types(&decoded.value)?;
        let outcome = self.create_object(&intent, decoded.value, &decoded.duplicates).await?;
        Self::outcome_reply(&intent, outcome)
    }

    pub(super) fn outcome_reply(intent: &Intent<'_>, outcome: Outcome) -> ApiResult<Reply> {
        let reply = Self::reply(intent.call, intent.kind, outcome.object, outcome.created)?;
        Ok(reply.with_warnings(outcome.warnings))
    }

    /// Creates an object that may or may not have passed [`apply::apply`] before (then it has managedFields).
    pub(super) async fn create_object(
        &self,
        intent: &Intent<'_>,
        mut object: Value,
        duplicates: &[String],
    ) -> ApiResult<Outcome> {
        let kind = intent.kind;
        let namespace = intent.call.route.namespace();
        metadata::place(kind, &mut object, namespace)?;
        let mut warnings = intent.normalise(&mut object, duplicates)?;
        metadata::check_new(kind, &object)?;
        metadata::tidy(&mut object);
        if kind.status && !kind.traits.keeps_status_on_create {
            object::as_map_mut(&mut object).remove("status");
        }
        metadata::stamp_new(kind, &mut object, &intent.now);
        let api_version = kind.api_version();
        // An apply has recorded who owns what.
        if !intent.applies() {
            apply::record_update(kind.schema.get(), None, &mut object, &intent.writer(&api_version));
        }
        self.check_namespace(kind, &object, namespace)?;
        if kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(kind.forbidden(object::name(&object), why));
        }
        let generated = object::name(&object).is_empty();
        for _ in 0..8 {
            let mut candidate = object.clone();
            if generated {
                generate_name(&mut candidate);
            }
            let result = self.admit_and_insert(intent, candidate, &mut warnings).await;
            match result {
                Err(error) if generated && error.reason == "AlreadyExists" => {}
                Err(error) => return Err(error),
                Ok(object) => {
                    return Ok(Outcome { object, created: true, warnings });
                }
            }
        }
        let prefix = object::meta_str(&object, "generateName");
        Err(kind.already_exists(prefix).retry_after(1))
    }

    async fn admit_and_insert(
        &self,
        intent: &Intent<'_>,
        object: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Value> {
        let kind = intent.kind;
        let mut object = object;
        service_accounts::admit(self, kind, &mut object)?;
        let mut review = self.review_of(intent, "CREATE", object, Value::Null);
        let before = self.webhooks_apply().then(|| review.object.clone());
        self.mutate(&mut review, warnings).await?;
        if before.is_some_and(|before| before != review.object) {
            prune::prune(kind.schema.get(), &mut review.object);
            defaults::apply(kind.schema.get(), &mut review.object);
            strategy::complete(kind, &mut review.object);
        }
        special::prepare_create(self, kind, &intent.call.user, &mut review.object);
        strategy::prepare_create(kind, &mut review.object);
        check(kind, "", &review.object, None)?;
        special::check(kind, &review.object, None)?;
        self.validate(&review, warnings).await?;
        let object = review.object;
        let key = key(object::namespace(&object), object::name(&object));
        if intent.dry_run {
            return match self.store.view().get(&kind.storage, &key) {
                Some(current) => Err(already_exists(kind, object::name(&object), Some(current))),
                None => Ok(object),
            };
        }
        let name = object::name(&object).to_owned();
        let write = Write {
            place: kind.storage.clone(),
            key,
            expect: Expect::Absent,
            change: Desired::Put(absorb(kind, object)?),
        };
        match self.store.commit(write).await {
            Ok(stored) => Ok(present(kind, &stored)),
            Err(WriteError::Changed { current }) => Err(already_exists(kind, &name, current.as_deref())),
            Err(error @ WriteError::Failed(_)) => Err(ApiError::internal(error)),
        }
    }

    /// Objects live in a namespace that exists and is not going away.
    fn check_namespace(&self, kind: &Kind, object: &Value, namespace: &str) -> ApiResult<()> {
        if !kind.namespaced {
            return Ok(());
        }
        let view = self.store.view();
        let stored = view.get("namespaces", namespace);
        let found = stored.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?.value();
        if object::is_being_deleted(&found) {
            let name = object::name(object);
            return Err(ApiError::namespace_terminating(&kind.group, &kind.plural, name, namespace));
        }
        Ok(())
    }

    /// Whether any webhook is configured at all.
    pub(super) fn webhooks_apply(&self) -> bool {
        let view = self.store.view();
        view.count(MUTATING) + view.count(VALIDATING) > 0
    }

    pub(super) fn review_of<'a>(
        &self,
        intent: &'a Intent<'_>,
        operation: &'static str,
        object: Value,
        old_object: Value,
    ) -> Review<'a> {
        let route = &intent.call.route;
        let option_kind = match operation {
            "CREATE" => "CreateOptions",
            "DELETE" => "DeleteOptions",
            _ if intent.call.verb == Verb::Patch => "PatchOptions",
            _ => "UpdateOptions",
        };
        let mut options = json!({ "kind": option_kind, "apiVersion": "meta.k8s.io/v1" });
        if intent.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if !intent.call.query.text("fieldManager").is_empty() {
            options["fieldManager"] = json!(intent.manager);
        }
        let namespace_name =
            if intent.kind.storage.as_ref() == "namespaces" { route.name() } else { route.namespace() };
        // Only selectors of webhooks look at it: most writes need not read it.
        let namespace_object = if self.webhooks_apply() {
            self.store.view().get("namespaces", namespace_name).map(|stored| stored.value())
        } else {
            None
        };
        Review {
            kinds: intent.table.clone(),
            kind: intent.kind,
            subresource: &route.subresource,
            operation,
            namespace: route.namespace(),
            name: route.name(),
            object,
            old_object,
            options,
            dry_run: intent.dry_run,
            user: intent.call.user.to_value(),
            namespace_object,
        }
    }

    pub(super) async fn mutate(&self, review: &mut Review<'_>, warnings: &mut Vec<String>) -> ApiResult<()> {
        let configurations = self.configurations(MUTATING);
        if !configurations.is_empty() {
            warnings.extend(self.webhooks.mutate(&configurations, review).await?);
        }
        Ok(())
    }

    pub(super) async fn validate(&self, review: &Review<'_>, warnings: &mut Vec<String>) -> ApiResult<()> {
        let configurations = self.configurations(VALIDATING);
        if !configurations.is_empty() {
            warnings.extend(self.webhooks.validate(&configurations, review).await?);
        }
        Ok(())
    }

    fn configurations(&self, place: &str) -> Vec<Value> {
        self.store.view().scan(place, "", "").map(|stored| stored.value()).collect()
    }
}

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// Every rule that an object must keep, in one answer.
pub(super) fn check(kind: &Kind, endpoint: &str, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let schema = kind.schema.get();
    let mut errors = metadata::validate(kind, new, old);
    let of_status = kind.custom.is_some() && endpoint == "status";
    let broken = match old {
        Some(old) if of_status => validate::validate_status(schema, new, old),
        _ => validate::validate(schema, new, old),
    };
    if kind.custom.is_some() {
        let rules = match cel::blocked(&broken) {
            _ if schema.without_rules => Vec::new(),
            Some(notice) => vec![notice],
            None => cel::validate(schema, new, old),
        };
        errors.extend(broken);
        errors.extend(scale_errors(kind, new, of_status));
        errors.extend(rules);
    } else {
        errors.extend(broken);
        // A binding is the change of a pod that the pod's own endpoint refuses.
        errors.extend(strategy::validate(kind, new, old.filter(|_| endpoint != "binding")));
    }
    if errors.is_empty() { Ok(()) } else { Err(kind.invalid(object::name(new), errors)) }
}

/// What `/scale` shows must be numbers, wherever the kind keeps them.
fn scale_errors(kind: &Kind, new: &Value, of_status: bool) -> Vec<FieldError> {
    let Some(scale) = &kind.scale else { return Vec::new() };
    let mut errors = Vec::new();
    for path in [&scale.spec_replicas, &scale.status_replicas].into_iter().skip(usize::from(of_status)) {
        match object::at_path(new, path) {
            None => {}
            Some(value) => match value.as_i64() {
                Some(number) if number < 0 => {
                    errors.push(FieldError::invalid(path, value, "should be a non-negative integer"));
                }
                Some(_) => {}
                None => {
                    let (text, found) =
                        (value.as_str().map_or_else(|| value.to_string(), str::to_owned), go_type(value));
                    let detail =
                        format!("{path} accessor error: {text} is of the type {found}, expected int64");
                    errors.push(FieldError::invalid(path, &0.into(), detail));
                }
            },
        }
    }
    errors
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Null => "<nil>",
    }
}

/// The body is an object of the kind that the URL names.
pub(super) fn check_type(kind: &Kind, object: &Value) -> ApiResult<()> {
    let given = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, name, wanted) = (given("apiVersion"), given("kind"), &kind.kind);
    if kind.custom.is_some() {
        if api_version.is_empty() || name.is_empty() {
            let missing = if name.is_empty() { "Kind" } else { "apiVersion" };
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {wanted}): Object '{missing}' is missing in '{object}' ({object})"
            )));
        }
        if api_version != kind.api_version() {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                kind.api_version()
            )));
        }
        if name != wanted {
            let error = FieldError::invalid("kind", &name.into(), format!("must be {wanted}"));
            return Err(ApiError::invalid(&kind.group, name, object::name(object), vec![error]));
        }
        return Ok(());
    }
    let version = if api_version.is_empty() { &kind.api_version() } else { api_version };
    let found = if name.is_empty() { wanted } else { name };
    let why = if version != kind.api_version() {
        format!(
            "no kind {found:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )
    } else if found != wanted {
        let package =
            if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() };
        format!("converting ({}.{found}) to ({package}.{wanted}): unknown conversion", kind.version)
    } else {
        return Ok(());
    };
    let version = version.rsplit('/').next().unwrap_or_default();
    Err(ApiError::bad_request(format!(
        "{found} in version {version:?} cannot be handled as a {wanted}: {why}"
    )))
}

fn already_exists(kind: &Kind, name: &str, current: Option<&Stored>) -> ApiError {
    let mut error = kind.already_exists(name);
    if current.is_some_and(|current| object::is_being_deleted(&current.value())) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// What makes a generated name unlike others.
pub(super) fn suffix() -> String {
    let random = uuid::Uuid::new_v4();
    let bytes = random.as_bytes().iter().take(GENERATED);
    bytes.map(|byte| char::from(NAME_ALPHABET[usize::from(*byte) % NAME_ALPHABET.len()])).collect()
}

fn generate_name(object: &mut Value) {
    let prefix: String = object::meta_str(object, "generateName").chars().take(63 - GENERATED).collect();
    let name = prefix + &suffix();
    object::set_meta(object, "name", name.into());
}
