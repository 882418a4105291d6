//! The files of a volume that is made of API objects: a source and the objects it refers to in, files with modes out.
//! Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};

use crate::downward::{self, Allocatable};

/// The mode of files of which nothing is said.
pub const USUAL_MODE: i32 = 0o644;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} {name:?} does not exist in namespace {namespace:?}, and is not optional")]
    Missing { kind: &'static str, namespace: String, name: String },
    #[error("{kind} {name:?} has no key {key:?}, and is not optional")]
    MissingKey { kind: &'static str, name: String, key: String },
    #[error("{path:?} cannot be a path in a volume: it must stay inside, and must not begin with \"..\"")]
    Path { path: String },
    #[error("file {path:?}: say one of fieldRef and resourceFieldRef")]
    Nothing { path: String },
    #[error("file {path:?}")]
    Downward {
        path: String,
        #[source]
        source: Box<downward::Error>,
    },
}

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub mode: u32,
    pub content: Vec<u8>,
}

/// Files by their path in the volume.
pub type Payload = BTreeMap<String, File>;

/// An object whose data can be files or variables; whether it exists is known.
#[derive(Debug, Clone)]
pub struct Data {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub content: Option<BTreeMap<String, Vec<u8>>>,
}

impl Data {
    pub fn of_config_map(namespace: &str, name: &str, object: Option<ConfigMap>) -> Self {
        let content = object.map(|object| {
            let text = object.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
            let binary = object.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
            text.chain(binary).collect()
        });
        Self { kind: "ConfigMap", namespace: namespace.to_owned(), name: name.to_owned(), content }
    }

    pub fn of_secret(namespace: &str, name: &str, object: Option<Secret>) -> Self {
        let content = object
            .map(|object| object.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect());
        Self { kind: "Secret", namespace: namespace.to_owned(), name: name.to_owned(), content }
    }

    /// All of it; nothing if it does not exist and is optional.
    pub fn all(self, optional: bool) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        match self.content {
            Some(content) => Ok(content),
            None if optional => Ok(BTreeMap::new()),
            None => Err(Error::Missing { kind: self.kind, namespace: self.namespace, name: self.name }),
        }
    }

    /// One value of it; none if it is not there and is optional.
    pub fn value(self, key: &str, optional: bool) -> Result<Option<Vec<u8>>, Error> {
        let (kind, name) = (self.kind, self.name.clone());
        match self.all(optional)?.remove(key) {
            None if !optional => Err(Error::MissingKey { kind, name, key: key.to_owned() }),
            value => Ok(value),
        }
    }

    /// As files: every key, or those that are listed.
    pub fn files(self, items: Option<&[KeyToPath]>, optional: bool, mode: i32) -> Result<Payload, Error> {
        let (kind, name) = (self.kind, self.name.clone());
        let mut content = self.all(optional)?;
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            let files = content.into_iter().map(|(key, content)| file(&key, mode, content));
            return files.collect();
        };
        let mut files = Payload::new();
        for item in items {
            match content.get_mut(&item.key) {
                Some(content) => {
                    files.extend([file(&item.path, item.mode.unwrap_or(mode), content.clone())?]);
                }
                None if optional => {}
                None => return Err(Error::MissingKey { kind, name, key: item.key.clone() }),
            }
        }
        Ok(files)
    }
}

/// What the pod knows of itself, as files.
pub fn downward(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
    node: Allocatable,
) -> Result<Payload, Error> {
    let one = |item: &DownwardAPIVolumeFile| {
        let failed = |error| Error::Downward { path: item.path.clone(), source: Box::new(error) };
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), None) => downward::field(pod, &field.field_path).map_err(failed)?,
            (None, Some(selector)) => downward::resource(pod, None, selector, node).map_err(failed)?,
            _ => return Err(Error::Nothing { path: item.path.clone() }),
        };
        file(&item.path, item.mode.unwrap_or(mode), text.into_bytes())
    };
    items.iter().map(one).collect()
}

/// A file at a path that stays inside the volume.
pub fn file(path: &str, mode: i32, content: Vec<u8>) -> Result<(String, File), Error> {
    let inside = !path.is_empty()
        && !path.starts_with("..")
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return Err(Error::Path { path: path.to_owned() });
    }
    Ok((path.to_owned(), File { mode: mode.unsigned_abs() & 0o777, content }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use serde_json::json;

    use super::*;

    fn data() -> Data {
        let map = serde_json::from_value(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}}));
        Data::of_config_map("default", "settings", Some(map.unwrap()))
    }

    fn absent() -> Data {
        Data::of_secret("default", "keys", None)
    }

    fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
        KeyToPath { key: key.into(), path: path.into(), mode }
    }

    #[test]
    fn every_key_is_a_file_or_those_that_are_listed() {
        let files = data().files(None, false, 0o640).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(files["c"], File { mode: 0o640, content: vec![0, 1] });
        let items = [item("a", "sub/dir/x", Some(0o400)), item("b", "y", None)];
        let files = data().files(Some(&items), false, 0o644).unwrap();
        assert_eq!(files["sub/dir/x"], File { mode: 0o400, content: b"1".to_vec() });
        assert_eq!(files["y"].mode, 0o644);
        assert_eq!(files.len(), 2);
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = absent().files(None, false, 0).unwrap_err().to_string();
        assert_eq!(text, "Secret \"keys\" does not exist in namespace \"default\", and is not optional");
        assert!(absent().files(None, true, 0).unwrap().is_empty());
        let items = [item("z", "z", None)];
        let text = data().files(Some(&items), false, 0).unwrap_err().to_string();
        assert_eq!(text, "ConfigMap \"settings\" has no key \"z\", and is not optional");
        assert!(data().files(Some(&items), true, 0).unwrap().is_empty());
        assert_eq!(data().value("a", false).unwrap().unwrap(), b"1");
        assert_eq!(data().value("z", true).unwrap(), None);
        assert_eq!(absent().value("z", true).unwrap(), None);
    }

    #[test]
    fn no_file_is_outside_of_its_volume() {
        for path in ["", "/etc/passwd", "../x", "a/../../x", "..data", "./a", "..data/x"] {
            let items = [item("a", path, None)];
            let refused = data().files(Some(&items), false, 0);
            assert!(matches!(refused, Err(Error::Path { .. })), "{path}");
        }
    }
}
