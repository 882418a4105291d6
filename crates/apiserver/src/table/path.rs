//! The `JSONPath` of printed columns: fields, indices, slices, `[*]` and filters.
//!
//! Owns parsing and following such a path. Must never fail on an object: what is not there is simply not found.
//! A path that the real server cannot read does not parse here either; recursion (`..`) and unions do not parse.

use serde_json::Value;

/// A parsed path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Debug, Clone, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// One element; negative counts from the end.
    Index(i64),
    /// Elements from the first to before the second.
    Slice(Option<i64>, Option<i64>),
    All,
    Filter(Filter),
}

/// Elements for which the path leads somewhere, and what it finds compares so.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: Path,
    test: Option<(Comparison, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Path {
    /// `None` when the text is no path that is understood here.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let end = closing_bracket(inside)?;
                steps.extend(subscript(inside[..end].trim())?);
                rest = &inside[end + 1..];
            } else {
                let (name, after) = field(rest.strip_prefix('.')?)?;
                steps.push(if name == "*" { Step::All } else { Step::Field(name) });
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// The first value that the path leads to. Null is nothing.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.find(object).into_iter().next()
    }

    fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![object], |found, step| {
            let mut next: Vec<&Value> = found.into_iter().flat_map(|value| step.follow(value)).collect();
            next.retain(|value| !value.is_null());
            next
        })
    }
}

/// A field's name up to the next `.` or `[`; a backslash takes the special meaning from what follows it.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return (!name.is_empty()).then_some((name, &text[at..])),
            _ => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// Where the bracket closes that opened before `text`, not looking inside quotes and inner brackets.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = (open != c).then_some(open),
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn subscript(text: &str) -> Option<Vec<Step>> {
    if text == "*" {
        return Some(vec![Step::All]);
    }
    if let Some(name) = text.strip_prefix('\'') {
        // As on the real server, a dot inside the quotes still separates unless it is escaped.
        return Path::parse(&format!(".{}", name.strip_suffix('\'')?)).map(|path| path.0);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return Some(vec![Step::Filter(Filter::parse(filter)?)]);
    }
    if let Some((from, to)) = text.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        return Some(vec![Step::Slice(bound(from)?, bound(to)?)]);
    }
    text.parse().ok().map(|index| vec![Step::Index(index)])
}

impl Filter {
    fn parse(text: &str) -> Option<Self> {
        let path = |text: &str| Path::parse(text.trim().strip_prefix('@')?);
        let Some(at) = text.find(['=', '!', '<', '>']) else {
            return Some(Self { path: path(text)?, test: None });
        };
        let (left, right) = text.split_at(at);
        let operator_length = right.find(|c| !"=!<>".contains(c))?;
        let comparison = match &right[..operator_length] {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        Some(Self { path: path(left)?, test: Some((comparison, literal(right[operator_length..].trim())?)) })
    }

    fn accepts(&self, value: &Value) -> bool {
        let Some(found) = self.path.first(value) else {
            return false;
        };
        let Some((comparison, wanted)) = &self.test else {
            return true;
        };
        let order = match (found, wanted) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => match (found.as_f64(), wanted.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
        };
        // Values of two types compare with nothing.
        order.is_some_and(|order| match comparison {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        })
    }
}

/// A quoted text, a number or a boolean.
fn literal(text: &str) -> Option<Value> {
    match text.chars().next()? {
        quote @ ('\'' | '"') => {
            let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
            Some(Value::String(inner.to_owned()))
        }
        _ => serde_json::from_str(text).ok(),
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                list.get(position(*index, list.len())).into_iter().collect()
            }
            (Self::Slice(from, to), Value::Array(list)) => {
                let from = from.map_or(0, |from| position(from, list.len()));
                let to = to.map_or(list.len(), |to| position(to, list.len()));
                list.iter().take(to).skip(from).collect()
            }
            (Self::Filter(filter), Value::Array(list)) => {
                list.iter().filter(|value| filter.accepts(value)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// An index that may count from the end, as one that counts from the start; out of range when there is none.
fn position(index: i64, length: usize) -> usize {
    let from_start = if index < 0 {
        i64::try_from(length).ok().and_then(|length| length.checked_add(index))
    } else {
        Some(index)
    };
    from_start.and_then(|index| usize::try_from(index).ok()).unwrap_or(usize::MAX)
}
