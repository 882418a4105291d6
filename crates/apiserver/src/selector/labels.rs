//! Label selectors, and the syntax of label keys and values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::parse;
use crate::object::strings;
use crate::status::{ApiError, ApiResult, FieldError};

/// A parsed label selector; the default one matches everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One condition on one label. `a=b` is `a in (b)`, `a!=b` is `a notin (b)`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// From a query string such as `app=web,tier in (a,b),!legacy`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        let requirements = parse::requirements(text).map_err(ApiError::bad_request)?;
        Ok(Self::of(requirements))
    }

    /// From a `metav1.LabelSelector` object with `matchLabels` and `matchExpressions`. None at all (null) restricts
    /// nothing.
    pub fn from_object(object: &Value) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::In, BTreeSet::from([value])));
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let message = format!("{other:?} is not a valid label selector operator");
                    return Err(ApiError::bad_request(message));
                }
            };
            let values = strings(&expression["values"]).into_iter().map(str::to_owned).collect();
            let key = expression["key"].as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, operator, values));
        }
        let requirements: Result<Vec<_>, _> = requirements.into_iter().collect();
        Ok(Self::of(requirements.map_err(ApiError::bad_request)?))
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    /// Checks the key and the values; the error names all that is wrong with them.
    pub(super) fn new(key: &str, operator: Operator, values: BTreeSet<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let text = |value: &str| Value::String(value.to_owned());
        if let Some(detail) = joined(&label_key_errors(key)) {
            errors.push(FieldError::invalid("key", &text(key), detail));
        }
        let list: Value = values.iter().cloned().collect();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let detail = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(FieldError::invalid("values", &Value::Null, detail));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let detail = "values set must be empty for exists and does not exist";
                errors.push(FieldError::invalid("values", &list, detail));
            }
            Operator::GreaterThan | Operator::LessThan => {
                for value in values.iter().filter(|value| value.parse::<i64>().is_err()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid("values[0]", &text(value), detail));
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            if let Some(detail) = joined(&label_value_errors(value)) {
                errors.push(FieldError::invalid(format!("values[{index}][{key}]"), &text(value), detail));
            }
        }
        let messages: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        match messages.as_slice() {
            [] => Ok(Self { key: key.to_owned(), operator, values }),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    fn matches(&self, label: Option<&String>) -> bool {
        let than = |holds: fn(&i64, &i64) -> bool| {
            let label = label.and_then(|label| label.parse().ok());
            let bound = self.values.first().and_then(|value| value.parse().ok());
            label.zip(bound).is_some_and(|(label, bound)| holds(&label, &bound))
        };
        match self.operator {
            Operator::In => label.is_some_and(|label| self.values.contains(label)),
            Operator::NotIn => label.is_none_or(|label| !self.values.contains(label)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => than(i64::gt),
            Operator::LessThan => than(i64::lt),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let single = self.values.len() == 1;
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::In if single => write!(f, "{key}={values}"),
            Operator::NotIn if single => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

pub(super) fn joined(errors: &[String]) -> Option<String> {
    (!errors.is_empty()).then(|| errors.join("; "))
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// What is wrong with a label's (or annotation's) key: `name` or `prefix/name`.
pub fn label_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !prefix.split('.').all(is_dns_label) {
                    errors.push(format!("prefix part {SUBDOMAIN_RULE}"));
                }
            }
            *name
        }
        _ => {
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME_RULE} {prefix}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

/// What is wrong with a label's value.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().last()];
    text.bytes().all(inner) && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
        && ends.iter().all(|end| end.is_some_and(alphanumeric))
}

#[cfg(test)]
mod tests;
