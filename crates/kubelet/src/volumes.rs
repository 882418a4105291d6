//! The volumes of pods: made of the node, of memory, of objects of the API.
//!
//! ```text
//!   DIRECTORY/<pod's UID>/volumes/kubernetes.io~<kind>/<volume>
//! ```
//!
//! These are the places where Kubernetes has them, because other programs on the node look there. Files that come from
//! the API are published whole, see `writer`; publishing again refreshes them.
//!
//! Invariant: everything that is made for a pod is below the directory of its UID, and `teardown` removes that without
//! touching what is mounted in it.

mod mounts;
pub mod payload;
pub mod place;
mod source;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection, Volume, VolumeProjection};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::images::{self, Images};
use crate::runtime::rootfs::{self, Mounts};
pub use mounts::mounts;
use payload::{Data, Payload, USUAL_MODE};
pub(crate) use source::namespace;
pub use source::{ApiSource, Source, SourceError, Token, TokenOrder};

/// How long a token is for, unless the pod says otherwise.
const TOKEN_SECONDS: i64 = 3600;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("volume {volume:?}")]
    Payload {
        volume: String,
        #[source]
        source: payload::Error,
    },
    #[error("volume {volume:?}")]
    Place {
        volume: String,
        #[source]
        source: place::Error,
    },
    #[error("volume {volume:?}")]
    Image {
        volume: String,
        #[source]
        source: images::Error,
    },
    #[error("volume {volume:?} is of a kind that this node does not have")]
    Unsupported { volume: String },
    #[error("the API was asked for {what} and did not give it")]
    Source {
        what: String,
        #[source]
        source: SourceError,
    },
    #[error("volume {volume:?} of the container is not one of the pod's")]
    Undeclared { volume: String },
    #[error("{propagation:?} is not a mount propagation")]
    Propagation { propagation: String },
    #[error("subPathExpr {text:?} refers to a variable that the container does not have")]
    Expression { text: String },
    #[error("a pod of UID {uid:?} cannot have volumes")]
    Uid { uid: String },
    #[error("{operation} {} failed", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The volumes of a pod that are ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// Where each volume is, by its name.
    pub paths: BTreeMap<String, PathBuf>,
    /// Volumes whose files are other ones than before, or were not there before.
    pub changed: Vec<String>,
}

/// The volumes of the pods of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Volumes {
    directory: PathBuf,
    images: Images,
    tokens: Arc<Mutex<HashMap<TokenOrder, Held>>>,
}

/// A token, and when it is old enough to be replaced.
#[derive(Debug, Clone)]
struct Held {
    value: String,
    renew: Timestamp,
}

impl Volumes {
    /// Below this directory; those that are images are looked for among these.
    pub fn new(directory: impl Into<PathBuf>, images: Images) -> Self {
        Self { directory: directory.into(), images, tokens: Arc::default() }
    }

    /// The directory of a pod; the agent may keep its own files of the pod there, beside `volumes`.
    pub fn pod_directory(&self, uid: &str) -> Result<PathBuf, Error> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || character == '-';
        if uid.is_empty() || !uid.chars().all(allowed) {
            return Err(Error::Uid { uid: uid.to_owned() });
        }
        Ok(self.directory.join(uid))
    }

    /// Makes all volumes of a pod as its spec says now. May be called again at any time, and then refreshes what came from
    /// the API.
    pub async fn publish(&self, pod: &Pod, source: &impl Source) -> Result<Published, Error> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let root = self.pod_directory(uid)?.join("volumes");
        let spec = pod.spec.as_ref();
        let group = spec.and_then(|spec| spec.security_context.as_ref()).and_then(|context| context.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok());
        let mut published = Published::default();
        for volume in spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten() {
            let name = volume.name.clone();
            let misplaced = |source| Error::Place { volume: name.clone(), source };
            let path = root.join(format!("kubernetes.io~{}", kind(volume)?)).join(&name);
            let path = if let Some(host) = &volume.host_path {
                place::host(host).map_err(misplaced)?
            } else if let Some(empty) = &volume.empty_dir {
                place::empty(&path, empty, group).map_err(misplaced)?;
                path
            } else if let Some(image) = &volume.image {
                let reference = image.reference.as_deref().unwrap_or_default();
                let found = self.images.get(reference);
                found.map_err(|source| Error::Image { volume: name.clone(), source })?.root
            } else {
                let payload = self.payload(pod, volume, source).await?;
                if writer::publish(&path, &payload, group).map_err(failed("writing", &path))? {
                    published.changed.push(name.clone());
                }
                path
            };
            published.paths.insert(name, path);
        }
        Ok(published)
    }

    /// Removes everything of a pod, also its directory. A pod of which there is nothing is no error.
    pub fn teardown(&self, uid: &str) -> Result<(), Error> {
        let directory = self.pod_directory(uid)?;
        let mounts = Mounts::read().map_err(failed("reading", Path::new("/proc/self/mountinfo")))?;
        for point in mounts.below(&directory).iter().rev() {
            rootfs::unmount(Path::new(point)).map_err(failed("unmounting", Path::new(point)))?;
        }
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).retain(|order, _| order.uid != uid);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("removing", &directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// The UIDs of pods of which something is here.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("listing", &self.directory))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed("listing", &self.directory))?.file_name();
            found.extend(name.into_string().ok().filter(|name| self.pod_directory(name).is_ok()));
        }
        found.sort();
        Ok(found)
    }

    /// The files of a volume that comes from the API.
    async fn payload(&self, pod: &Pod, volume: &Volume, source: &impl Source) -> Result<Payload, Error> {
        let wrong = |source| Error::Payload { volume: volume.name.clone(), source };
        if let Some(map) = &volume.config_map {
            let mode = map.default_mode.unwrap_or(USUAL_MODE);
            let data = config_map(pod, &map.name, source).await?;
            data.files(map.items.as_deref(), map.optional.unwrap_or(false), mode).map_err(wrong)
        } else if let Some(keys) = &volume.secret {
            let mode = keys.default_mode.unwrap_or(USUAL_MODE);
            let data = secret(pod, keys.secret_name.as_deref().unwrap_or_default(), source).await?;
            data.files(keys.items.as_deref(), keys.optional.unwrap_or(false), mode).map_err(wrong)
        } else if let Some(own) = &volume.downward_api {
            let mode = own.default_mode.unwrap_or(USUAL_MODE);
            let items = own.items.as_deref().unwrap_or_default();
            payload::downward(pod, items, mode, source.allocatable()).map_err(wrong)
        } else if let Some(projected) = &volume.projected {
            let mode = projected.default_mode.unwrap_or(USUAL_MODE);
            let mut files = Payload::new();
            for part in projected.sources.iter().flatten() {
                files.extend(self.projection(pod, volume, part, mode, source).await?);
            }
            Ok(files)
        } else {
            Err(Error::Unsupported { volume: volume.name.clone() })
        }
    }

    async fn projection(
        &self,
        pod: &Pod,
        volume: &Volume,
        part: &VolumeProjection,
        mode: i32,
        source: &impl Source,
    ) -> Result<Payload, Error> {
        let wrong = |source| Error::Payload { volume: volume.name.clone(), source };
        if let Some(map) = &part.config_map {
            let data = config_map(pod, &map.name, source).await?;
            data.files(map.items.as_deref(), map.optional.unwrap_or(false), mode).map_err(wrong)
        } else if let Some(keys) = &part.secret {
            let data = secret(pod, &keys.name, source).await?;
            data.files(keys.items.as_deref(), keys.optional.unwrap_or(false), mode).map_err(wrong)
        } else if let Some(own) = &part.downward_api {
            let items = own.items.as_deref().unwrap_or_default();
            payload::downward(pod, items, mode, source.allocatable()).map_err(wrong)
        } else if let Some(token) = &part.service_account_token {
            let value = self.token(pod, token, source).await?;
            let file = payload::file(&token.path, mode, value.into_bytes()).map_err(wrong)?;
            Ok(Payload::from([file]))
        } else {
            Err(Error::Unsupported { volume: volume.name.clone() })
        }
    }

    /// The token that is held, or a new one when most of its time is over.
    async fn token(
        &self,
        pod: &Pod,
        wanted: &ServiceAccountTokenProjection,
        source: &impl Source,
    ) -> Result<String, Error> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let order = TokenOrder {
            namespace: namespace(pod).to_owned(),
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            audience: wanted.audience.clone().filter(|audience| !audience.is_empty()),
            expiration_seconds: wanted.expiration_seconds.unwrap_or(TOKEN_SECONDS),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
        };
        let held = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(&order).cloned();
        let now = Timestamp::now();
        if let Some(held) = held.filter(|held| now < held.renew) {
            return Ok(held.value);
        }
        let token = source.token(&order).await.map_err(|source| Error::Source {
            what: format!("a token of service account {}/{}", order.namespace, order.service_account),
            source,
        })?;
        let held = Held { value: token.value.clone(), renew: renewal(now, token.expires) };
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(order, held);
        Ok(token.value)
    }
}

/// When four fifths of its time are over.
fn renewal(now: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(now);
    let most = life.checked_mul(4).unwrap_or(life) / 5;
    now.checked_add(most.max(SignedDuration::ZERO)).unwrap_or(expires)
}

/// As it is part of the volume's path.
fn kind(volume: &Volume) -> Result<&'static str, Error> {
    let kinds = [
        (volume.host_path.is_some(), "host-path"),
        (volume.empty_dir.is_some(), "empty-dir"),
        (volume.image.is_some(), "image"),
        (volume.config_map.is_some(), "configmap"),
        (volume.secret.is_some(), "secret"),
        (volume.downward_api.is_some(), "downward-api"),
        (volume.projected.is_some(), "projected"),
    ];
    let found = kinds.into_iter().find_map(|(is, kind)| is.then_some(kind));
    found.ok_or_else(|| Error::Unsupported { volume: volume.name.clone() })
}

/// The data of a ConfigMap in the pod's namespace.
pub(crate) async fn config_map(pod: &Pod, name: &str, source: &impl Source) -> Result<Data, Error> {
    let namespace = namespace(pod);
    let object = source.config_map(namespace, name).await;
    let object =
        object.map_err(|source| Error::Source { what: format!("ConfigMap {namespace}/{name}"), source })?;
    Ok(Data::of_config_map(namespace, name, object))
}

/// The data of a Secret in the pod's namespace.
pub(crate) async fn secret(pod: &Pod, name: &str, source: &impl Source) -> Result<Data, Error> {
    let namespace = namespace(pod);
    let object = source.secret(namespace, name).await;
    let object =
        object.map_err(|source| Error::Source { what: format!("Secret {namespace}/{name}"), source })?;
    Ok(Data::of_secret(namespace, name, object))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { operation, path: path.to_owned(), source }
}
