//! The environment of a container and its command line, with everything that they refer to.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};

use crate::downward;
use crate::images::Configuration;
use crate::volumes::{self, Source, payload};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("variable {variable:?}")]
    Reference {
        variable: String,
        #[source]
        source: payload::Error,
    },
    #[error("the environment is not whole")]
    From {
        #[source]
        source: payload::Error,
    },
    #[error("variable {variable:?}")]
    Downward {
        variable: String,
        #[source]
        source: downward::Error,
    },
    #[error("variable {variable:?} refers to something that this node does not have")]
    Unsupported { variable: String },
    #[error(transparent)]
    Source(#[from] volumes::Error),
}

/// What becomes of a reference to a variable that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    /// It stays as it is written.
    Keep,
    /// There is no result.
    Refuse,
}

/// Every variable once, in the order in which they were first said; what is said later wins.
pub async fn environment(
    pod: &Pod,
    container: &Container,
    source: &impl Source,
) -> Result<Vec<(String, String)>, Error> {
    let mut variables = Vec::new();
    for from in container.env_from.iter().flatten() {
        let (data, optional) = if let Some(map) = &from.config_map_ref {
            (volumes::config_map(pod, &map.name, source).await?, map.optional)
        } else if let Some(secret) = &from.secret_ref {
            (volumes::secret(pod, &secret.name, source).await?, secret.optional)
        } else {
            continue;
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let content = data.all(optional.unwrap_or(false)).map_err(|source| Error::From { source })?;
        for (key, value) in content.into_iter().filter(|(key, _)| !key.is_empty() && !key.contains('=')) {
            set(&mut variables, format!("{prefix}{key}"), text(value));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value_from, &variable.value) {
            (Some(from), _) => reference(pod, container, variable, from, source).await?,
            (None, Some(value)) => expand(value, &variables, Unresolved::Keep),
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut variables, variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The value that a variable refers to; none if it may be missing, and is.
async fn reference(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    from: &EnvVarSource,
    source: &impl Source,
) -> Result<Option<String>, Error> {
    let wrong = |source| Error::Reference { variable: variable.name.clone(), source };
    let unknown = |source| Error::Downward { variable: variable.name.clone(), source };
    if let Some(field) = &from.field_ref {
        downward::field(pod, &field.field_path).map(Some).map_err(unknown)
    } else if let Some(selector) = &from.resource_field_ref {
        let own = Some(container.name.as_str());
        downward::resource(pod, own, selector, source.allocatable()).map(Some).map_err(unknown)
    } else if let Some(key) = &from.config_map_key_ref {
        let data = volumes::config_map(pod, &key.name, source).await?;
        Ok(data.value(&key.key, key.optional.unwrap_or(false)).map_err(wrong)?.map(text))
    } else if let Some(key) = &from.secret_key_ref {
        let data = volumes::secret(pod, &key.name, source).await?;
        Ok(data.value(&key.key, key.optional.unwrap_or(false)).map_err(wrong)?.map(text))
    } else {
        Err(Error::Unsupported { variable: variable.name.clone() })
    }
}

fn text(value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn set(variables: &mut Vec<(String, String)>, name: String, value: String) {
    match variables.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => variables.push((name, value)),
    }
}

/// Puts values in the place of `$(NAME)`. `$$` is a dollar, and a dollar before anything else is itself.
pub fn expand(text: &str, variables: &[(String, String)], unresolved: Unresolved) -> Option<String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.iter().find(|(known, _)| known == name) {
                Some((_, value)) => expanded.push_str(value),
                None if unresolved == Unresolved::Refuse => return None,
                None => {
                    expanded.push_str("$(");
                    expanded.push_str(name);
                    expanded.push(')');
                }
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    Some(expanded)
}

/// What the container runs: its command or else the image's, then its arguments.
pub fn command_line(
    container: &Container,
    image: &Configuration,
    variables: &[(String, String)],
) -> Vec<String> {
    let expanded = |words: &Option<Vec<String>>| -> Vec<String> {
        let words = words.iter().flatten();
        words.filter_map(|word| expand(word, variables, Unresolved::Keep)).collect()
    };
    let command = expanded(&container.command);
    let mut line = if command.is_empty() { image.entrypoint.clone() } else { command };
    line.extend(expanded(&container.args));
    line
}

#[cfg(test)]
mod tests;
