//! What a container is given besides its image: environment, volumes, and the files that every pod has.

use std::net::IpAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::network::Made;
use crate::runtime::{ContainerId, Mount};

pub(crate) struct Provisions {
    pub state: PathBuf,
    pub api_server: (String, u16),
    pub cluster_dns: Option<IpAddr>,
}

impl Provisions {
    pub async fn publish(&self, _pod: &Pod) -> Result<(), String> {
        Ok(())
    }
    pub async fn refresh(&self, _pod: &Pod) -> Result<(), String> {
        Ok(())
    }
    pub async fn release(&self, _uid: &str) -> Result<(), String> {
        Ok(())
    }
    pub async fn traces(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
    pub async fn remove(&self, _uid: &str) -> Result<(), String> {
        Ok(())
    }
    pub async fn environment(&self, _pod: &Pod, container: &Container, _made: &Made) -> Result<Vec<(String, String)>, String> {
        Ok(container.env.iter().flatten().filter_map(|v| Some((v.name.clone(), v.value.clone()?))).collect())
    }
    pub async fn mounts(&self, _pod: &Pod, _container: &Container, _made: &Made, _id: &ContainerId, _environment: &[(String, String)]) -> Result<Vec<Mount>, String> {
        Ok(Vec::new())
    }
    pub fn hostname(&self, pod: &Pod) -> String {
        pod.metadata.name.clone().unwrap_or_default()
    }
    pub fn termination_log(&self, id: &ContainerId) -> PathBuf {
        self.state.join("pods").join(&id.pod).join("termination").join(format!("{}.{}", id.container, id.attempt))
    }
}
