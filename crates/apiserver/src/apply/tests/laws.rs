//! What must hold whatever is written.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::set::{FieldSet, Node, Step};
use super::super::{fields_v1, merge, owners, walk};
use super::*;

/// Any JSON, of the depth and with the words that make trouble here.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..12).prop_map(Value::from),
        Just(json!(1.5)),
        word().prop_map(Value::from),
        Just(json!("f:spec")),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((word(), inner), 0..5).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "spec",
            "status",
            "metadata",
            "managedFields",
            "l",
            "lk",
            "set",
            "m",
            "any",
            "free",
            "name",
            "port",
            "emb",
            "f:spec",
            "f:l",
            "k:{\"name\":\"a\"}",
            "v:1",
            "i:1",
            ".",
            "v:",
            "k:1",
            "é",
            "",
        ])
        .prop_map(str::to_owned),
        "[a-c]{1,2}",
    ]
}

/// A value of this schema.
fn of_schema(schema: &Schema) -> BoxedStrategy<Value> {
    match schema.kind {
        Type::String => "[a-c]".prop_map(Value::from).boxed(),
        Type::Integer => (0i64..4).prop_map(Value::from).boxed(),
        Type::Number => prop_oneof![Just(json!(1)), Just(json!(1.0)), Just(json!(2.5))].boxed(),
        Type::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Type::IntOrString => prop_oneof![Just(json!(1)), Just(json!("1"))].boxed(),
        Type::Any => small().boxed(),
        Type::Array => {
            let items = schema.items.as_ref().unwrap().get();
            let schema = schema.clone();
            vec(of_schema(items), 0..4).prop_map(move |list| distinct(&schema, list)).boxed()
        }
        Type::Object => match &schema.additional {
            Some(value) => vec(("[a-c]", of_schema(value.get())), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect()))
                .boxed(),
            None if schema.properties.is_empty() => vec(("[a-c]", small()), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect()))
                .boxed(),
            None => fields(schema),
        },
    }
}

fn fields(schema: &Schema) -> BoxedStrategy<Value> {
    let required = &schema.constraints.required;
    schema
        .properties
        .iter()
        .fold(Just(Map::new()).boxed(), |map, (name, node)| {
            let odds = if required.contains(name) { 0.999 } else { 0.3 };
            let (name, value) = (name.clone(), proptest::option::weighted(odds, of_schema(node.get())));
            (map, value)
                .prop_map(move |(mut map, value)| {
                    map.extend(value.map(|value| (name.clone(), value)));
                    map
                })
                .boxed()
        })
        .prop_map(Value::Object)
        .boxed()
}

/// Data without a schema.
fn small() -> impl Strategy<Value = Value> {
    (0u8..3).prop_map(Value::from).prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..2).prop_map(Value::Array),
            vec(("[a-b]", inner), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// The list without what the server would refuse as duplicates.
fn distinct(schema: &Schema, list: Vec<Value>) -> Value {
    let shape = Shape::object(schema);
    let mut seen = std::collections::BTreeSet::new();
    let keys: &[String] = match &schema.list {
        ListType::Atomic => return Value::Array(list),
        ListType::Set => &[],
        ListType::Map(keys) => keys,
    };
    list.into_iter().filter(|element| shape.step(keys, element).is_ok_and(|step| seen.insert(step))).collect()
}

static THING: LazyLock<Schema> = LazyLock::new(|| Schemas::load().kind("Thing"));

fn config() -> impl Strategy<Value = Value> {
    of_schema(THING.properties["spec"].get()).prop_map(|spec| {
        json!({"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
    })
}

/// The value without empty maps and lists in it. Nobody owns an empty list, and a map that is owned empty becomes null
/// when others' keys leave it, which validation then refuses: the real server does both.
fn dense(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            let map: Map<String, Value> =
                map.into_iter().filter_map(|(name, value)| Some((name, dense(value)?))).collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        Value::Array(list) => {
            let list: Vec<Value> = list.into_iter().filter_map(dense).collect();
            (!list.is_empty()).then_some(Value::Array(list))
        }
        scalar => Some(scalar),
    }
}

fn writer(manager: &str) -> Writer<'_> {
    Writer {
        manager,
        api_version: "example.dev/v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        resets: resets(true, ""),
        custom: true,
    }
}

fn later<'a>(writer: &Writer<'a>) -> Writer<'a> {
    Writer { now: "2027-01-01T00:00:00Z", ..writer.clone() }
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    let step = prop_oneof![
        "[a-c]".prop_map(Step::Field),
        "[a-c]".prop_map(|name| Step::Key(vec![("name".to_owned(), json!(name))])),
        (0i64..12).prop_map(|n| Step::Value(json!(n))),
        (0i64..3).prop_map(Step::Index),
    ];
    vec(vec(step, 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::default();
        for path in paths {
            let mut node = Node { member: true, children: FieldSet::default() };
            let mut steps = path.into_iter().rev();
            let last = steps.next();
            let top = steps.fold(last, |below, step| {
                let mut children = FieldSet::default();
                children.add(below.unwrap(), std::mem::take(&mut node));
                node.children = children;
                Some(step)
            });
            set.add(top.unwrap(), node);
        }
        set
    })
}

fn union(a: &FieldSet, b: &FieldSet) -> FieldSet {
    let mut out = a.clone();
    out.union(b.clone());
    out
}

fn difference(a: &FieldSet, b: &FieldSet) -> FieldSet {
    let mut out = a.clone();
    out.subtract(b);
    out
}

/// Whether laying `config` over `object` would change nothing of it.
fn holds(shape: Shape<'_>, object: &Value, config: &Value) -> bool {
    same(&merge::merge(shape, object, config), object)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn sets_obey_their_algebra(a in field_set(), b in field_set(), c in field_set()) {
        prop_assert_eq!(union(&a, &b), union(&b, &a));
        prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(union(&difference(&a, &b), &a.intersection(&b)), a.clone());
        prop_assert!(difference(&a, &b).intersection(&b).is_empty());
        prop_assert!(a.is_subset(&union(&a, &b)) && a.intersection(&b).is_subset(&a));
        prop_assert_eq!(difference(&a, &b).is_empty(), a.is_subset(&b));
        let mut without = a.clone();
        without.subtract_trees(&b);
        prop_assert!(without.is_subset(&difference(&a, &b)));
    }

    #[test]
    fn sets_survive_the_wire(a in field_set()) {
        prop_assert_eq!(fields_v1::parse(&fields_v1::serialize(&a)).unwrap(), a);
    }

    #[test]
    fn nothing_sent_can_break_it(live in json(), config in json(), force: bool) {
        let schema = &*THING;
        fuzz(schema, &live, &config, force);
        fuzz(&Schema::anything(), &live, &config, force);
        let _ = owners::decode(&config);
        let in_object = json!({"apiVersion": "example.dev/v1", "metadata": {"uid": "u", "managedFields": [
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": live}]},
            "spec": config});
        let whole = json!({"apiVersion": "example.dev/v1", "spec": live});
        fuzz(schema, &in_object, &whole, force);
    }

    #[test]
    fn applying_twice_is_applying_once(live in config(), config in config()) {
        let (schema, a) = (&*THING, writer("a"));
        let mut object = live;
        record_update(schema, None, &mut object, &writer("b"));
        let once = apply(schema, Some(&object), &config, &a, true).unwrap();
        let twice = apply(schema, Some(&once), &config, &later(&a), false).unwrap();
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn giving_up_leaves_the_others(
        mine in config().prop_filter_map("empty", dense),
        theirs in config().prop_filter_map("empty", dense),
    ) {
        let (schema, a, b) = (&*THING, writer("a"), writer("b"));
        let object = apply(schema, None, &mine, &a, false).unwrap();
        let object = apply(schema, Some(&object), &theirs, &b, true).unwrap();
        let nothing = json!({"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "x"}});
        let left = apply(schema, Some(&object), &nothing, &later(&a), false).unwrap();
        let shape = Shape::object(schema);
        prop_assert!(holds(shape, &left, &theirs), "{left}");
        let entries = left["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        prop_assert!(entries.iter().all(|entry| entry["manager"] == "b"));
    }

    #[test]
    fn an_applied_config_is_there_and_owned(live in config(), config in config()) {
        let (schema, a) = (&*THING, writer("a"));
        let mut object = live;
        record_update(schema, None, &mut object, &writer("b"));
        let got = apply(schema, Some(&object), &config, &a, true).unwrap();
        let shape = Shape::object(schema);
        prop_assert!(holds(shape, &got, &config), "{got}");
        // Nothing of the config is in conflict with what is there.
        prop_assert!(apply(schema, Some(&got), &config, &writer("c"), false).is_ok());
    }

    #[test]
    fn an_update_that_changes_nothing_records_nothing(live in config()) {
        let (schema, a) = (&*THING, writer("a"));
        let mut object = live;
        record_update(schema, None, &mut object, &a);
        let mut again = object.clone();
        record_update(schema, Some(&object), &mut again, &later(&writer("b")));
        prop_assert_eq!(again.to_string(), object.to_string());
    }

    #[test]
    fn an_update_owns_what_it_changed(live in config(), new in config()) {
        let (schema, a) = (&*THING, writer("a"));
        let shape = Shape::object(schema);
        let mut object = live;
        record_update(schema, None, &mut object, &a);
        let changes = walk::compare(shape, Some(&object), Some(&new));
        let mut recorded = new;
        record_update(schema, Some(&object), &mut recorded, &writer("b"));
        let entries = owners::decode(&recorded["metadata"]["managedFields"]).unwrap();
        for owner in entries {
            prop_assert!(owner.fields.intersection(&changes.removed).is_empty());
            if owner.manager == "a" {
                prop_assert!(owner.fields.intersection(&changes.modified).is_empty());
            }
        }
    }
}
