//! Which of a pod's networks carries its default route. The pod says so with `default-route`; then no other does.

use std::net::IpAddr;

use net::{Handle, Route};

use super::Error;
use super::plan::Wanted;

/// Gives the default routes to the networks that asked for them, and takes them from the others.
pub(super) async fn settle(handle: &Handle, wanted: &[Wanted]) -> Result<(), Error> {
    for asking in wanted {
        let Some(gateways) = &asking.selection.default_route else { continue };
        let failed =
            |source| Error::Route { network: asking.selection.name.clone(), source: Box::new(source) };
        let link = handle.link(asking.interface.as_str()).await.map_err(failed)?.index;
        let routes = handle.routes().await.map_err(failed)?;
        // Without gateways of its own it carries what its plugins gave it, in both families.
        let concerns = |address: IpAddr| {
            gateways.is_empty() || gateways.iter().any(|gateway| gateway.is_ipv4() == address.is_ipv4())
        };
        let of_others = |route: &&Route| {
            route.destination.prefix_len() == 0
                && concerns(route.destination.addr())
                && (route.link != Some(link) || !gateways.is_empty())
        };
        for route in routes.iter().filter(of_others) {
            handle.delete_route_if_exists(route).await.map_err(failed)?;
        }
        for gateway in gateways {
            handle.add_route(&Route::default_by(*gateway).link(link)).await.map_err(failed)?;
        }
    }
    Ok(())
}
