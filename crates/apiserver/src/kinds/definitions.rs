//! Schemas of the built-in types.
//!
//! Their structure is what the Kubernetes types of `k8s-openapi` say of themselves; `facts.txt` (from a real
//! server's `OpenAPI`) and `defaults.txt` (by hand) add what those leave out. The schemas are made once, at the
//! first use, and are kept without descriptions: whoever wants those asks for [`raw_definitions`], which is
//! made anew each time. A name that is not defined accepts anything: nothing here can fail a request.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use k8s_openapi::{ListableResource, Resource, api, apiextensions_apiserver as extensions, apimachinery};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::facts::{Fact, Facts, WHOLE};
use crate::schema::{Constraints, Node, Schema, Type};

const REFERENCE: &str = "#/components/schemas/";
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// The format of base64 text in a built-in: that of custom resources, `byte`, takes neither nothing nor line breaks.
pub const BYTES: &str = "bytes";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// Any JSON at all, whatever the types say: raw values, and field sets that only server-side apply reads.
const OPAQUE: [&str; 3] = [
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

static ANYTHING: LazyLock<Schema> = LazyLock::new(Schema::anything);
static SCHEMAS: LazyLock<HashMap<&'static str, Schema>> = LazyLock::new(build);

/// The named definition (`io.k8s.api.core.v1.PodSpec`); an unknown name accepts anything.
pub fn get(name: &str) -> &'static Schema {
    SCHEMAS.get(name).unwrap_or(&ANYTHING)
}

/// All definitions as `OpenAPI` v3 has them, with descriptions and `x-kubernetes-…`.
pub fn raw_definitions() -> Map<String, Value> {
    let mut generated = Generated::new();
    let facts = Facts::parse();
    for (name, definition) in &mut generated.definitions {
        facts.of(name, WHOLE).extend(definition);
        if let Some(required) = definition["required"].as_array_mut() {
            required.retain(|field| field != "metadata");
        }
        if let Some(properties) = definition["properties"].as_object_mut() {
            for (field, property) in properties {
                facts.of(name, field).extend(property);
                // `OpenAPI` v3 ignores what stands beside a reference.
                if let Some(reference) = property.as_object_mut().and_then(|p| p.remove("$ref")) {
                    property["allOf"] = json!([{ "$ref": reference }]);
                }
            }
        }
    }
    for root in &generated.roots {
        if let Some(list) = &root.list_name {
            let mut definition = root.list(&generated.definitions);
            definition["x-kubernetes-group-version-kind"] = json!([root.gvk(root.list_kind)]);
            generated.definitions.insert(list.clone(), definition);
        }
        if let Some(definition) = generated.definitions.get_mut(&root.name) {
            definition["x-kubernetes-group-version-kind"] = json!([root.gvk(root.kind)]);
        }
    }
    generated.definitions
}

/// A kind of its own: it has an apiVersion, and mostly a list.
struct Root {
    name: String,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    list_name: Option<String>,
}

impl Root {
    fn gvk(&self, kind: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": kind})
    }

    /// The definition of the kind's list, which the types do not describe.
    fn list(&self, definitions: &Map<String, Value>) -> Value {
        let of_item = &definitions[&self.name]["properties"];
        json!({
            "description": format!("{} is a list of {}.", self.list_kind, self.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": of_item["apiVersion"],
                "kind": of_item["kind"],
                "items": {
                    "description": "The objects.",
                    "type": "array",
                    "items": {"$ref": format!("{REFERENCE}{}", self.name)},
                },
                "metadata": {
                    "description": "The list's own metadata.",
                    "allOf": [{"$ref": format!("{REFERENCE}{LIST_META}")}],
                },
            },
        })
    }
}

/// What the Kubernetes types say of themselves.
struct Generated {
    definitions: Map<String, Value>,
    roots: Vec<Root>,
}

impl Generated {
    fn new() -> Self {
        let mut types = Types { generator: SchemaSettings::openapi3().into_generator(), roots: Vec::new() };
        types.served();
        Self { definitions: types.generator.take_definitions(false), roots: types.roots }
    }
}

struct Types {
    generator: SchemaGenerator,
    roots: Vec<Root>,
}

impl Types {
    /// Every type that a request or an answer is made of. A new row of `builtin.rs` wants a line here.
    fn served(&mut self) {
        use api::{
            admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
            authorization::v1 as authorization, certificates::v1 as certificates, core::v1 as core,
            rbac::v1 as rbac,
        };
        self.listed::<core::ComponentStatus>();
        self.listed::<core::ConfigMap>();
        self.listed::<core::Event>();
        self.listed::<core::Namespace>();
        self.listed::<core::Node>();
        self.listed::<core::PersistentVolume>();
        self.listed::<core::PersistentVolumeClaim>();
        self.listed::<core::Pod>();
        self.listed::<core::Secret>();
        self.listed::<core::Service>();
        self.listed::<core::ServiceAccount>();
        self.listed::<api::events::v1::Event>();
        self.listed::<api::coordination::v1::Lease>();
        self.listed::<api::discovery::v1::EndpointSlice>();
        self.listed::<api::policy::v1::PodDisruptionBudget>();
        self.listed::<api::storage::v1::StorageClass>();
        self.listed::<api::scheduling::v1::PriorityClass>();
        self.listed::<apps::ControllerRevision>();
        self.listed::<apps::DaemonSet>();
        self.listed::<apps::Deployment>();
        self.listed::<apps::ReplicaSet>();
        self.listed::<admission::MutatingWebhookConfiguration>();
        self.listed::<admission::ValidatingWebhookConfiguration>();
        self.listed::<rbac::ClusterRole>();
        self.listed::<rbac::ClusterRoleBinding>();
        self.listed::<rbac::Role>();
        self.listed::<rbac::RoleBinding>();
        self.listed::<certificates::CertificateSigningRequest>();
        self.listed::<extensions::pkg::apis::apiextensions::v1::CustomResourceDefinition>();
        self.single::<authentication::SelfSubjectReview>();
        self.single::<authentication::TokenRequest>();
        self.single::<authentication::TokenReview>();
        self.single::<authorization::LocalSubjectAccessReview>();
        self.single::<authorization::SelfSubjectAccessReview>();
        self.single::<authorization::SelfSubjectRulesReview>();
        self.single::<authorization::SubjectAccessReview>();
        self.single::<api::autoscaling::v1::Scale>();
        self.single::<api::policy::v1::Eviction>();
        self.single::<core::Binding>();
        self.single::<apimachinery::pkg::apis::meta::v1::Status>();
        // DeleteOptions counts as a kind of every group; v1 is the one that all of them accept.
        self.add::<apimachinery::pkg::apis::meta::v1::DeleteOptions>("", "v1", "DeleteOptions");
        self.generator.subschema_for::<apimachinery::pkg::apis::meta::v1::ListMeta>();
    }

    fn add<T: JsonSchema>(&mut self, group: &'static str, version: &'static str, kind: &'static str) {
        self.generator.subschema_for::<T>();
        self.roots.push(Root {
            name: T::schema_name().into_owned(),
            group,
            version,
            kind,
            list_kind: "",
            list_name: None,
        });
    }

    fn single<T: JsonSchema + Resource>(&mut self) {
        self.add::<T>(T::GROUP, T::VERSION, T::KIND);
    }

    fn listed<T: JsonSchema + ListableResource>(&mut self) {
        self.single::<T>();
        if let Some(root) = self.roots.last_mut() {
            let package = root.name.strip_suffix(T::KIND).unwrap_or_default();
            root.list_kind = T::LIST_KIND;
            root.list_name = Some(format!("{package}{}", T::LIST_KIND));
        }
    }
}

fn build() -> HashMap<&'static str, Schema> {
    let generated = Generated::new();
    let mut builder = Builder {
        facts: Facts::parse(),
        names: HashSet::new(),
        scalars: HashMap::new(),
        variants: HashMap::new(),
        alternatives: Vec::new(),
    };
    let mut schemas = HashMap::with_capacity(generated.definitions.len());
    for (name, definition) in &generated.definitions {
        let schema = builder.definition(name, definition);
        schemas.insert(builder.intern(name), schema);
    }
    for (name, base) in builder.alternatives {
        let properties = schemas.get(base).map(|schema: &Schema| schema.properties.clone());
        if let (Some(schema), Some(properties)) = (schemas.get_mut(name), properties) {
            schema.properties = properties;
        }
    }
    for ((name, fact), variant) in builder.variants {
        let mut schema = schemas.get(name).cloned().unwrap_or_else(Schema::anything);
        fact.apply(&mut schema);
        schemas.insert(variant, schema);
    }
    schemas
}

struct Builder {
    facts: Facts,
    names: HashSet<&'static str>,
    /// Plain values are many and alike: they share their schemas.
    scalars: HashMap<String, Arc<Schema>>,
    /// Definitions as single fields use them, with facts of the field: each gets a name of its own.
    variants: HashMap<(&'static str, Fact), &'static str>,
    /// Definitions that may also be what another definition is.
    alternatives: Vec<(&'static str, &'static str)>,
}

impl Builder {
    /// Names live as long as the program: the schemas do, too.
    fn intern(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.names.get(name) {
            return known;
        }
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.names.insert(kept);
        kept
    }

    fn definition(&mut self, name: &str, definition: &Value) -> Schema {
        if OPAQUE.contains(&name) {
            return Schema::anything();
        }
        if name == QUANTITY {
            // Clients may write a bare number; `strategy` turns it into the text that others expect.
            return Schema::default();
        }
        let mut schema = self.schema(name, definition);
        self.facts.of(name, WHOLE).apply(&mut schema);
        schema
    }

    fn schema(&mut self, name: &str, definition: &Value) -> Schema {
        let mut schema = Schema { kind: kind_of(definition), ..Schema::default() };
        // "A schema, or a list of them": keep what any of the alternatives knows, and check no type.
        for alternative in definition["oneOf"].as_array().into_iter().flatten() {
            if let Node::Named(base) = self.node(name, "", alternative) {
                let name = self.intern(name);
                self.alternatives.push((name, base));
            } else if let Some(items) = alternative.get("items") {
                schema.items = Some(Box::new(self.node(name, "", items)));
            }
        }
        let properties: BTreeMap<String, Node> = definition["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, property)| (field.clone(), self.node(name, field, property)))
            .collect();
        schema.properties = properties;
        if let Some(additional) = definition.get("additionalProperties") {
            schema.additional = Some(Box::new(self.node(name, "", additional)));
        }
        if let Some(items) = definition.get("items") {
            schema.items = Some(Box::new(self.node(name, "", items)));
        }
        schema.constraints = Constraints {
            required: self.required(name, &definition["required"]),
            format: definition["format"]
                .as_str()
                .map(|format| if format == "byte" { BYTES } else { format }.to_owned()),
            ..Constraints::default()
        };
        schema
    }

    /// The fields whose absence the server reports. It makes `metadata` itself, and fills in what has a default.
    fn required(&self, name: &str, listed: &Value) -> Vec<String> {
        crate::object::strings(listed)
            .into_iter()
            .filter(|field| {
                let fact = self.facts.of(name, field);
                *field != "metadata" && !fact.optional && fact.default.is_none()
            })
            .map(str::to_owned)
            .collect()
    }

    /// The schema of the named definition's field; of a list's or map's elements when `field` is empty.
    fn node(&mut self, name: &str, field: &str, value: &Value) -> Node {
        let fact = self.facts.of(name, field);
        if let Some(reference) = value["$ref"].as_str() {
            let base = self.intern(reference.strip_prefix(REFERENCE).unwrap_or(reference));
            return Node::Named(self.variant(base, fact));
        }
        let mut schema = self.schema("", value);
        let plain = schema.properties.is_empty() && schema.items.is_none() && schema.additional.is_none();
        fact.apply(&mut schema);
        if plain && !fact.shapes() {
            let key = format!("{:?} {:?}", schema.kind, schema.constraints.format);
            return Node::Inline(Arc::clone(self.scalars.entry(key).or_insert_with(|| Arc::new(schema))));
        }
        schema.into()
    }

    fn variant(&mut self, base: &'static str, fact: Fact) -> &'static str {
        if !fact.shapes() {
            return base;
        }
        if let Some(known) = self.variants.get(&(base, fact)) {
            return known;
        }
        let name = self.intern(&format!("{base}#{}", self.variants.len()));
        self.variants.insert((base, fact), name);
        name
    }
}

fn kind_of(definition: &Value) -> Type {
    if definition["x-kubernetes-int-or-string"] == true {
        return Type::IntOrString;
    }
    match definition["type"].as_str() {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}
