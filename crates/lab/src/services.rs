//! How the API server finds webhooks that name a service: a ready pod behind it. There are no virtual addresses in a lab.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use apiserver::admission::ServiceRef;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};

/// The label by which a slice names its service.
const SERVICE: &str = "kubernetes.io/service-name";

/// What is known of services and of the pods behind them. Empty until it is [`Services::follow`]ed.
#[derive(Clone, Default)]
pub(crate) struct Services(Arc<OnceLock<(Store<Service>, Store<EndpointSlice>)>>);

impl Services {
    /// Where a service is reached, if a pod behind it is ready.
    pub fn resolve(&self, wanted: &ServiceRef<'_>) -> Option<SocketAddr> {
        let (services, slices) = self.0.get()?;
        let service = services.get(&ObjectRef::new(wanted.name).within(wanted.namespace))?;
        let ports = service.spec.as_ref()?.ports.as_ref()?;
        let port = ports.iter().find(|port| port.port == i32::from(wanted.port))?;
        let slices = slices.state();
        let mut behind = slices.iter().filter(|slice| {
            slice.namespace().as_deref() == Some(wanted.namespace)
                && slice.labels().get(SERVICE).is_some_and(|service| service == wanted.name)
        });
        behind.find_map(|slice| ready_endpoint(slice, port.name.as_deref().unwrap_or_default()))
    }

    /// Follows services and slices, for ever.
    pub async fn follow(&self, client: Client) {
        let (services, service_writer) = reflector::store();
        let (slices, slice_writer) = reflector::store();
        // Followed once in a process.
        let _ = self.0.set((services, slices));
        let configuration = watcher::Config::default;
        let services = watcher(Api::<Service>::all(client.clone()), configuration());
        let slices = watcher(Api::<EndpointSlice>::all(client), configuration());
        let services =
            services.default_backoff().reflect(service_writer).for_each(|_| std::future::ready(()));
        let slices = slices.default_backoff().reflect(slice_writer).for_each(|_| std::future::ready(()));
        tokio::join!(services, slices);
    }
}

fn ready_endpoint(slice: &EndpointSlice, port: &str) -> Option<SocketAddr> {
    let ports = slice.ports.as_ref()?;
    let port = ports.iter().find(|entry| entry.name.as_deref().unwrap_or_default() == port)?.port?;
    let ready = slice.endpoints.iter().flatten().find(|endpoint| {
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    })?;
    let address: IpAddr = ready.addresses.first()?.parse().ok()?;
    Some(SocketAddr::new(address, u16::try_from(port).ok()?))
}
