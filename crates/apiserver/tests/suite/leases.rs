//! Leader election: compare and swap on a Lease.

use serde_json::{Value, json};

use crate::Space;

#[tokio::test]
async fn one_of_many_candidates_leads() {
    let space = Space::new().await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", space.name);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": {}});
    let free = space.http.post(&path, &lease).await.ok();

    let path = format!("{path}/leader");
    for round in 1..=5 {
        let seen: Value = if round == 1 { free.clone() } else { space.http.get(&path).await.ok() };
        let acquire = async |candidate: usize| {
            let mut claim = seen.clone();
            claim["spec"] = json!({
                "holderIdentity": format!("candidate-{candidate}"), "leaseDurationSeconds": 15, "leaseTransitions": round,
                "renewTime": format!("2001-02-03T04:05:06.{round:06}Z"),
            });
            space.http.put(&path, &claim).await.status.as_u16()
        };
        let mut codes = futures::future::join_all((0..6).map(acquire)).await;
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409, 409, 409]);
        let held = space.http.get(&path).await.ok();
        assert_eq!(held["spec"]["renewTime"], format!("2001-02-03T04:05:06.{round:06}Z"));
    }
}
