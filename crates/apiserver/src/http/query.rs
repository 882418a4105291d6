//! Query parameters, and the options that they carry.

use crate::status::{ApiError, ApiResult};

#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Clients send empty pairs (`?&watch=true`); those are passed over.
    pub fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        Self(pairs.filter(|(key, _)| !key.is_empty()).collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter that may be repeated.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value, empty when the parameter is absent.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// `true`, `1`, or the bare name.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    /// A whole number; what is negative means the same as nothing.
    pub fn number(&self, key: &str) -> ApiResult<Option<u64>> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) => Ok(u64::try_from(number).ok()),
                Err(_) => {
                    Err(ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
                }
            },
        }
    }

    /// `dryRun=All`, as a query parameter.
    pub fn dry_run(&self) -> ApiResult<bool> {
        let mut asked = false;
        for (_, value) in self.0.iter().filter(|(name, _)| name == "dryRun") {
            match value.as_str() {
                "All" => asked = true,
                "" => {}
                other => return Err(invalid_option("dryRun", other, "All")),
            }
        }
        Ok(asked)
    }

    pub fn field_validation(&self) -> ApiResult<FieldValidation> {
        match self.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            "Ignore" => Ok(FieldValidation::Ignore),
            other => Err(invalid_option("fieldValidation", other, "\", \"Ignore\", \"Strict\", \"Warn")),
        }
    }
}

/// What happens to a field that nobody knows, or that is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

fn invalid_option(field: &str, value: &str, supported: &str) -> ApiError {
    use crate::status::{FieldError, FieldErrorKind};
    let detail = format!("supported values: \"{supported}\"");
    let shown = if field == "dryRun" { format!("[\"{value}\"]") } else { format!("\"{value}\"") };
    let kind = FieldErrorKind::NotSupported;
    ApiError::invalid("meta.k8s.io", "CreateOptions", "", vec![FieldError::of(kind, field, shown, detail)])
}
