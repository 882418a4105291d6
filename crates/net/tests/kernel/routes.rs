//! Routes.

use net::{Error, Route};

use crate::fixture::{Fixture, ask, network, run};

#[tokio::test]
async fn routes_of_both_families_are_added_replaced_and_deleted() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let link = a.link("eth0").await.unwrap().index;
    for (to, by, other, family) in [
        ("198.51.100.0/24", "192.0.2.2", "192.0.2.3", "-4"),
        ("2001:db8:1::/48", "2001:db8::2", "2001:db8::3", "-6"),
    ] {
        let route = Route::to(network(to)).gateway(by.parse().unwrap());
        let show = || ask(a.namespace(), &format!("ip -j {family} route show {to}"));
        a.add_route(&route).await.unwrap();
        assert_eq!((&show()[0]["gateway"], &show()[0]["dev"]), (&by.into(), &"eth0".into()));
        assert!(a.add_route(&route).await.unwrap_err().is_already_exists());
        assert!(!a.ensure_route(&route).await.unwrap());

        let other_way = route.gateway(other.parse().unwrap());
        assert!(a.ensure_route(&other_way).await.unwrap(), "another gateway: replaced");
        assert_eq!((show().as_array().unwrap().len(), &show()[0]["gateway"]), (1, &other.into()));
        a.replace_route(&route).await.unwrap();
        assert_eq!((show().as_array().unwrap().len(), &show()[0]["gateway"]), (1, &by.into()));
        let listed = a.routes().await.unwrap();
        let found = listed.iter().find(|listed| listed.destination == network(to)).unwrap();
        assert_eq!((found.gateway, found.link), (route.gateway, Some(link)));

        assert!(a.delete_route(&other_way).await.unwrap_err().is_not_found(), "not that one");
        a.delete_route(&route).await.unwrap();
        assert!(a.delete_route(&route).await.unwrap_err().is_not_found());
        assert!(!a.delete_route_if_exists(&route).await.unwrap());
        assert_eq!(show(), serde_json::json!([]));
    }
}

#[tokio::test]
async fn a_default_route_may_lead_to_a_gateway_that_only_the_link_has() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let link = a.link("eth0").await.unwrap().index;
    let route = Route::default_by("203.0.113.1".parse().unwrap());
    assert!(matches!(a.add_route(&route).await, Err(Error::Refused { .. })), "no way there");
    let route = route.link(link).onlink().source("192.0.2.1".parse().unwrap()).metric(50);
    a.add_route(&route).await.unwrap();
    let seen = ask(a.namespace(), "ip -j route show default");
    assert_eq!((&seen[0]["gateway"], &seen[0]["metric"]), (&"203.0.113.1".into(), &50.into()));
    assert_eq!((&seen[0]["prefsrc"], &seen[0]["flags"][0]), (&"192.0.2.1".into(), &"onlink".into()));
    assert!(a.routes().await.unwrap().contains(&route));
    assert!(!a.ensure_route(&route).await.unwrap());
    a.add_route(&Route::default_by("2001:db8::2".parse().unwrap())).await.unwrap();
    assert_eq!(ask(a.namespace(), "ip -j -6 route show default")[0]["gateway"], "2001:db8::2");
}

#[tokio::test]
async fn routes_of_another_tool_are_listed_and_deleted_and_other_tables_left_out() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let link = a.link("eth0").await.unwrap().index;
    run(a.namespace(), "ip route add 198.51.100.0/24 dev eth0 proto 99 scope link metric 7");
    run(a.namespace(), "ip route add 203.0.113.0/24 dev eth0 table 100");
    run(a.namespace(), "ip route add blackhole 233.252.0.0/24");
    let listed = a.routes().await.unwrap();
    let theirs = Route::to(network("198.51.100.0/24")).link(link).metric(7);
    assert!(listed.contains(&theirs), "{listed:?}");
    assert!(
        listed.contains(&Route::to(network("192.0.2.0/24")).link(link).source("192.0.2.1".parse().unwrap()))
    );
    for absent in ["203.0.113.0/24", "233.252.0.0/24"] {
        assert!(!listed.iter().any(|route| route.destination == network(absent)), "{absent}");
    }
    assert!(a.delete_route_if_exists(&Route::to(network("198.51.100.7/24")).link(link)).await.unwrap());
    assert_eq!(ask(a.namespace(), "ip -j route show 198.51.100.0/24"), serde_json::json!([]));
}
