//! What ownership needs to know of a schema: which values are owned whole, and how a list's elements are told apart.
//!
//! Owns the reading of [`Schema`] for server-side apply, including the parts that a schema leaves out: the metadata of
//! whole objects, and data without a schema (its maps are owned key by key, its lists whole). It never looks at two
//! values at once; comparing and merging are `walk` and `merge`.

use std::sync::LazyLock;

use serde_json::Value;

use super::set::Step;
use crate::schema::{ListType, Node, Schema, Type};

/// What is known of one value. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    Known {
        schema: &'a Schema,
        /// A schema further up keeps unknown fields, and so does every inline schema below it.
        preserve: bool,
        /// The value is a whole object, whose metadata is not the schema's to describe.
        whole: bool,
    },
    /// No schema: maps are owned key by key, lists whole.
    Deduced,
    /// No schema, within a list without one: owned whole.
    Opaque,
}

/// How a value of some shape is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Element by element: told apart by these keys, or by value when there are none.
    List(&'a [String]),
}

impl<'a> Shape<'a> {
    /// The shape of a whole object.
    pub fn object(schema: &'a Schema) -> Self {
        Self::Known { schema, preserve: schema.preserve_unknown, whole: true }
    }

    fn of(node: &'a Node, preserve: bool) -> Self {
        let schema = node.get();
        // A named type is the same wherever it is used.
        let inherited = preserve && matches!(node, Node::Inline(_));
        Self::Known {
            schema,
            preserve: inherited || schema.preserve_unknown,
            whole: schema.embedded_resource,
        }
    }

    /// How `value` is owned. A value that does not fit its schema, or null, has the form of the schema's first type.
    pub fn form(self, value: &Value) -> Form<'a> {
        let schema = match self {
            Self::Opaque => return Form::Leaf,
            Self::Deduced => {
                return match value {
                    Value::Object(_) | Value::Null => Form::Map,
                    _ => Form::Leaf,
                };
            }
            Self::Known { schema, .. } => schema,
        };
        let (map, list) = (self.map_form(), list_form(schema));
        match schema.kind {
            Type::Object => map,
            Type::Array => list,
            Type::Any => match value {
                Value::Object(_) | Value::Null => map,
                Value::Array(_) => list,
                _ => Form::Leaf,
            },
            Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => Form::Leaf,
        }
    }

    fn map_form(self) -> Form<'a> {
        match self {
            Self::Known { schema, .. } if schema.atomic_map => Form::Leaf,
            _ => Form::Map,
        }
    }

    /// The shape of the field `name`, and whether a schema names that field.
    pub fn field(self, name: &str) -> (Shape<'a>, bool) {
        let Self::Known { schema, preserve, whole } = self else {
            return (self, false);
        };
        if whole && let Some(node) = OBJECT.properties.get(name) {
            return (Self::of(node, false), true);
        }
        if let Some(node) = schema.properties.get(name) {
            return (Self::of(node, preserve), true);
        }
        let additional = schema.additional.as_deref();
        (additional.map_or(Self::Deduced, |node| Self::of(node, preserve)), false)
    }

    /// Whether this is the metadata of a whole object.
    pub fn is_metadata(self) -> bool {
        let metadata = OBJECT.properties.get("metadata").map(Node::get);
        matches!((self, metadata), (Self::Known { schema, .. }, Some(metadata)) if std::ptr::eq(schema, metadata))
    }

    /// Whether an object of this shape may have the field `name`.
    pub fn declares(self, name: &str) -> bool {
        let Self::Known { schema, preserve, .. } = self else {
            return true;
        };
        preserve || schema.additional.is_some() || schema.properties.is_empty() || self.field(name).1
    }

    /// The type that a schema gives to values of this shape.
    pub fn kind(self) -> Type {
        match self {
            Self::Known { schema, .. } => schema.kind,
            Self::Deduced | Self::Opaque => Type::Any,
        }
    }

    /// The shape of a list's elements.
    pub fn element(self) -> Shape<'a> {
        match self {
            Self::Known { schema, preserve, .. } => {
                let items = schema.items.as_deref();
                items.map_or(Self::Opaque, |node| Self::of(node, preserve))
            }
            Self::Deduced | Self::Opaque => Self::Opaque,
        }
    }

    /// The step to `element` of a list of this shape, or why it cannot be told apart from others.
    pub fn step(self, keys: &[String], element: &Value) -> Result<Step, String> {
        if keys.is_empty() {
            return match element {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Step::Value(scalar.clone())),
            };
        }
        let fields = match element {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut found: Vec<(String, Value)> = keys
            .iter()
            .filter_map(|key| {
                let value = fields.get(key).or_else(|| self.element().default_of(key))?;
                Some((key.clone(), value.clone()))
            })
            .collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                 default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Step::Key(found))
    }

    fn default_of(self, key: &str) -> Option<&'a Value> {
        match self {
            Self::Known { schema, .. } => schema.properties.get(key)?.get().default.as_ref(),
            Self::Deduced | Self::Opaque => None,
        }
    }
}

/// What the real server compares a new object of a built-in kind with: its empty struct. That already has the structs
/// that cannot be absent (their schemas default to `{}`) and a null for every other map and list that is required.
pub fn empty_object(schema: &Schema) -> Value {
    let fields = schema.properties.iter().filter_map(|(name, node)| {
        let below = node.get();
        let value = match &below.default {
            Some(Value::Object(default)) if default.is_empty() => empty_object(below),
            Some(zero) if is_zero(zero) => zero.clone(),
            _ if !matches!(below.kind, Type::Object | Type::Array) => return None,
            _ if !schema.constraints.required.contains(name) => return None,
            _ => Value::Null,
        };
        Some((name.clone(), value))
    });
    Value::Object(fields.collect())
}

/// What Go writes for a plain field that nobody set.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn list_form(schema: &Schema) -> Form<'_> {
    match &schema.list {
        ListType::Atomic => Form::Leaf,
        ListType::Set => Form::List(&[]),
        ListType::Map(keys) => Form::List(keys),
    }
}

/// What every whole object has besides what its kind's schema says. Custom resources' schemas do not repeat it.
static OBJECT: LazyLock<Schema> = LazyLock::new(|| {
    let strings = || Schema { additional: Some(Box::new(scalar(Type::String).into())), ..structure([]) };
    let list = |list: ListType, items: Schema| Schema {
        kind: Type::Array,
        list,
        items: Some(Box::new(items.into())),
        ..Schema::default()
    };
    let owner = Schema {
        atomic_map: true,
        ..structure([
            ("apiVersion", scalar(Type::String)),
            ("kind", scalar(Type::String)),
            ("name", scalar(Type::String)),
            ("uid", scalar(Type::String)),
            ("controller", scalar(Type::Boolean)),
            ("blockOwnerDeletion", scalar(Type::Boolean)),
        ])
    };
    let metadata = structure([
        ("name", scalar(Type::String)),
        ("generateName", scalar(Type::String)),
        ("namespace", scalar(Type::String)),
        ("selfLink", scalar(Type::String)),
        ("uid", scalar(Type::String)),
        ("resourceVersion", scalar(Type::String)),
        ("creationTimestamp", scalar(Type::String)),
        ("deletionTimestamp", scalar(Type::String)),
        ("generation", scalar(Type::Integer)),
        ("deletionGracePeriodSeconds", scalar(Type::Integer)),
        ("labels", strings()),
        ("annotations", strings()),
        ("finalizers", list(ListType::Set, scalar(Type::String))),
        ("ownerReferences", list(ListType::Map(vec!["uid".to_owned()]), owner)),
        ("managedFields", list(ListType::Atomic, structure([]))),
    ]);
    structure([("apiVersion", scalar(Type::String)), ("kind", scalar(Type::String)), ("metadata", metadata)])
});

fn scalar(kind: Type) -> Schema {
    Schema { kind, ..Schema::default() }
}

fn structure<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    Schema {
        properties: fields.map(|(name, schema)| (name.to_owned(), schema.into())).into(),
        ..scalar(Type::Object)
    }
}
