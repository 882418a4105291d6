//! EndpointSlices: where the pods of a Service are, for those who route to it. A Service without a selector keeps the
//! slices that others made for it.
//!
//! Pods whose named ports differ are in slices of their own; a slice is named for its Service, family and ports, so
//! that the same pods always make the same slices.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource as _, ResourceExt as _};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::owner::controller_of;
use crate::pods;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";

pub struct Endpoints {
    cluster: Arc<Cluster>,
}

impl Endpoints {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    async fn sync(
        &self,
        service: &Service,
        pods: &[Arc<Pod>],
        known: &[Arc<EndpointSlice>],
    ) -> Result<(), Error> {
        let wanted = slices(service, pods);
        for slice in &wanted {
            let name = slice.name_any();
            match known.iter().find(|known| known.name_any() == name) {
                None => {
                    self.cluster.slices.create(slice).await?;
                }
                Some(known) if same(known, slice) => {}
                Some(known) => {
                    let mut renewed = slice.clone();
                    renewed.metadata.resource_version = known.resource_version();
                    renewed.metadata.uid = known.uid();
                    self.cluster.slices.replace(&renewed).await?;
                }
            }
        }
        let is_ours = |slice: &&Arc<EndpointSlice>| {
            controller_of(&slice.metadata).map(|owner| &owner.uid) == service.metadata.uid.as_ref()
                && slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
        };
        let stale =
            |slice: &&Arc<EndpointSlice>| !wanted.iter().any(|wanted| wanted.name_any() == slice.name_any());
        for slice in known.iter().filter(is_ours).filter(stale) {
            self.cluster.slices.delete(slice, None).await?;
        }
        Ok(())
    }
}

fn same(known: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    known.endpoints.as_deref().unwrap_or_default() == wanted.endpoints.as_deref().unwrap_or_default()
        && known.ports.as_deref().unwrap_or_default() == wanted.ports.as_deref().unwrap_or_default()
        && known.metadata.labels == wanted.metadata.labels
        && known.metadata.owner_references == wanted.metadata.owner_references
}

/// The slices that a Service should have.
fn slices(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSlice> {
    let Some(spec) = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))
    else {
        return Vec::new();
    };
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else {
        return Vec::new();
    };
    let picked = |pod: &&Arc<Pod>| {
        pod.namespace() == service.namespace()
            && !pods::is_finished(pod)
            && selector.iter().all(|(key, value)| pods::labels(pod).get(key) == Some(value))
    };
    let one = || vec!["IPv4".to_owned()];
    let mut slices = Vec::new();
    for family in spec.ip_families.clone().filter(|families| !families.is_empty()).unwrap_or_else(one) {
        let mut groups: BTreeMap<String, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
        for pod in pods.iter().filter(picked) {
            let Some(address) = address(pod, &family) else { continue };
            let ports = ports(spec.ports.as_deref().unwrap_or_default(), pod);
            let key = serde_json::to_string(&ports).unwrap_or_default();
            let publishes = spec.publish_not_ready_addresses == Some(true);
            groups.entry(key).or_insert((ports, Vec::new())).1.push(endpoint(pod, address, publishes));
        }
        if groups.is_empty() {
            groups.insert(String::new(), Default::default());
        }
        slices.extend(groups.into_iter().map(|(key, group)| slice(service, &family, &key, group)));
    }
    slices
}

fn address(pod: &Pod, family: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|ip| &ip.ip).chain(&status.pod_ip);
    let fits = |text: &&String| match text.parse() {
        Ok(IpAddr::V4(_)) => family == "IPv4",
        Ok(IpAddr::V6(_)) => family == "IPv6",
        Err(_) => false,
    };
    all.filter(|text| !text.is_empty()).find(fits).cloned()
}

/// The ports of a Service on one pod; a name that the pod does not have leaves the port out.
fn ports(ports: &[ServicePort], pod: &Pod) -> Vec<EndpointPort> {
    let number = |port: &ServicePort| match port.target_port.clone() {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(number),
        Some(IntOrString::String(name)) => {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let own =
                pods::spec(pod).containers.iter().flat_map(|container| container.ports.iter().flatten());
            let named = |own: &&k8s_openapi::api::core::v1::ContainerPort| {
                own.name.as_ref() == Some(&name) && own.protocol.as_deref().unwrap_or("TCP") == protocol
            };
            let mut own = own;
            own.find(named).map(|own| own.container_port)
        }
    };
    let made = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    made.collect()
}

fn endpoint(pod: &Pod, address: String, publishes_not_ready: bool) -> Endpoint {
    let (serving, terminating) = (pods::is_ready(pod), pods::is_terminating(pod));
    Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publishes_not_ready || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: pods::spec(pod).hostname.clone().filter(|_| pods::spec(pod).subdomain.is_some()),
        node_name: pods::node_of(pod).map(str::to_owned),
        target_ref: Some(k8s_openapi::api::core::v1::ObjectReference {
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace: pod.namespace(),
            uid: pod.uid(),
            ..Default::default()
        }),
        ..Endpoint::default()
    }
}

fn slice(
    service: &Service,
    family: &str,
    key: &str,
    group: (Vec<EndpointPort>, Vec<Endpoint>),
) -> EndpointSlice {
    let (ports, endpoints) = group;
    let digest = Sha256::digest(format!("{family} {key}"));
    let mark = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let mut labels = service.labels().clone();
    labels.insert(SERVICE.into(), service.name_any());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    if service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS.into(), String::new());
    }
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(format!("{}-{mark:08x}", service.name_any())),
            namespace: service.namespace(),
            labels: Some(labels),
            owner_references: service.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: family.into(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    }
}

impl Controller for Endpoints {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let (pods, slices) = (self.cluster.pods.all(), self.cluster.slices.all());
        for service in self.cluster.services.all() {
            let is_leaving = service.metadata.deletion_timestamp.is_some();
            let of = |slice: &&Arc<EndpointSlice>| {
                slice.namespace() == service.namespace()
                    && slice.labels().get(SERVICE) == service.metadata.name.as_ref()
            };
            let known: Vec<_> = slices.iter().filter(of).cloned().collect();
            if !is_leaving {
                let done = self.sync(&service, &pods, &known).await;
                agenda.check(done);
            }
        }
    }
}

#[cfg(test)]
mod tests;
