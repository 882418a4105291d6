//! Results: what every version may say, said in each of them, and as a pod's network status.

use cni::{Attachment, Version};
use serde_json::{Value, json};

use crate::sandbox::whole;

/// Everything that 1.1.0 has words for.
fn full() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            { "name": "br0", "mac": "02:00:00:00:00:01" },
            { "name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 1400, "sandbox": "/run/netns/a", "socketPath": "/s",
              "pciID": "0000:01" },
            { "name": "eth1", "sandbox": "/run/netns/a" },
        ],
        "ips": [
            { "address": "192.0.2.5/24", "gateway": "192.0.2.1", "interface": 1 },
            { "address": "2001:db8::5/64", "gateway": "2001:db8::1", "interface": 2 },
            { "address": "198.51.100.1/32" },
        ],
        "routes": [
            { "dst": "0.0.0.0/0" },
            { "dst": "::/0", "gw": "2001:db8::fe", "mtu": 1400, "advmss": 1300, "priority": 5, "table": 7, "scope": 0 },
            { "dst": "203.0.113.0/24", "gw": "192.0.2.9" },
        ],
        "dns": { "nameservers": ["192.0.2.53"], "domain": "example", "search": ["a"], "options": ["b"] },
    })
}

#[test]
fn each_version_says_what_it_has_words_for() {
    let attachment = Attachment::from_value(&full()).unwrap();
    assert_eq!(attachment.render(Version::V1_1_0), full());
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0] {
        let mut expected = full();
        expected["cniVersion"] = json!(version);
        for field in ["mtu", "socketPath", "pciID"] {
            expected["interfaces"][1].as_object_mut().unwrap().remove(field);
        }
        for field in ["mtu", "advmss", "priority", "table", "scope"] {
            expected["routes"][1].as_object_mut().unwrap().remove(field);
        }
        if version < Version::V1_0_0 {
            for (ip, family) in expected["ips"].as_array_mut().unwrap().iter_mut().zip(["4", "6", "4"]) {
                ip["version"] = json!(family);
            }
        }
        let rendered = attachment.render(version);
        assert_eq!(rendered, expected);
        let again = Attachment::from_value(&rendered).unwrap();
        assert_eq!(again.render(version), expected);
    }
}

#[test]
fn plugins_habits_are_understood() {
    let habits = json!({ "interfaces": null, "ips": [{ "version": "4", "address": "192.0.2.5/24", "gateway": "", "interface": -1 }],
        "routes": [{ "dst": "0.0.0.0/0", "gw": null }], "dns": {} });
    let attachment = Attachment::from_value(&habits).unwrap();
    assert_eq!((attachment.ips[0].gateway, attachment.ips[0].interface), (None, None));
    assert_eq!(Attachment::from_value(&json!({})).unwrap(), Attachment::default());
}

#[test]
fn refusals_name_the_field() {
    for (result, expected) in [
        (json!([1]), "not a CNI result"),
        (json!({ "cniVersion": "0.2.0", "ip4": { "ip": "192.0.2.5/24" } }), "\"0.2.0\" is not spoken here"),
        (json!({ "ips": [{ "address": "192.0.2.5/33" }] }), "ips[0].address of the result: \"192.0.2.5/33\""),
        (json!({ "ips": [{ "address": "192.0.2.5/+2" }] }), "ips[0].address"),
        (
            json!({ "ips": [{ "address": "192.0.2.5/24", "gateway": "x" }] }),
            "ips[0].gateway of the result is \"x\"",
        ),
        (
            json!({ "ips": [{ "address": "192.0.2.5/24", "interface": 0 }] }),
            "ips[0].interface of the result is 0, and there are 0",
        ),
        (json!({ "routes": [{ "dst": "default" }] }), "routes[0].dst"),
    ] {
        let refused = whole(&Attachment::from_value(&result).unwrap_err());
        assert!(refused.contains(expected), "{result}: {refused}");
    }
}

#[test]
fn one_network_status_for_each_interface_in_the_pod() {
    let statuses = Attachment::from_value(&full()).unwrap().network_status("infra/net", "eth0", true);
    assert_eq!(statuses.len(), 2);
    assert_eq!(statuses[0].ips, ["192.0.2.5", "198.51.100.1"], "an address of no interface is the first's");
    assert_eq!((statuses[0].mtu, statuses[0].default), (Some(1400), true));
    assert_eq!((&statuses[1].ips, statuses[1].default), (&vec!["2001:db8::5".to_owned()], false));
    assert_eq!(statuses[0].gateway, ["192.0.2.1", "2001:db8::fe"]);
    assert_eq!(statuses[0].dns.nameservers, ["192.0.2.53"]);
    // A plugin that names no interface: the one that was asked for.
    let bare = Attachment::from_value(&json!({ "ips": [{ "address": "192.0.2.5/24" }] })).unwrap();
    let status = &bare.network_status("infra/net", "net1", false)[0];
    assert_eq!((status.interface.as_deref(), &status.ips), (Some("net1"), &vec!["192.0.2.5".to_owned()]));
}
