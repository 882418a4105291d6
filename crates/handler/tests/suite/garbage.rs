//! What pods leave behind, and what is never taken for that.

use std::time::Instant;

use crate::node::{eventually, isolated, links};

#[test]
fn what_a_vanished_pod_had_is_given_back_and_nothing_of_another() {
    isolated(
        "garbage::what_a_vanished_pod_had_is_given_back_and_nothing_of_another",
        |mut node| async move {
            node.start_handler();
            let (goes, stays) =
                (node.launcher_pod("goes", &["a", "b"]).await, node.launcher_pod("stays", &["a"]).await);
            for vnic in ["a", "b"] {
                goes.proxy().await.ask("add", vnic).await;
            }
            let kept = stays.proxy().await.ask("add", "a").await;
            assert_eq!(node.leases().len(), 3);
            node.lose_pod(&goes).await;
            // The journal forgets an attachment when the plugin has deleted it.
            eventually("its attachments are deleted", || node.journal().len() == 1).await;
            assert_eq!(node.leases().len(), 1);
            assert_eq!(stays.proxy().await.ask("add", "a").await, kept);
            assert!(links(&stays.uid).contains(&"vnic0".to_owned()));
            assert!(node.journal()[0].contains(&stays.uid));
        },
    );
}

#[test]
fn what_was_left_while_no_handler_ran_is_given_back_at_the_start() {
    isolated(
        "garbage::what_was_left_while_no_handler_ran_is_given_back_at_the_start",
        |mut node| async move {
            node.start_handler();
            let mut pods = Vec::new();
            for name in ["vanished", "ended", "unloved", "stays"] {
                let pod = node.launcher_pod(name, &["default"]).await;
                assert_eq!(pod.proxy().await.ask("add", "default").await["response"], "added");
                pods.push(pod);
            }
            node.kill_handler();
            let [vanished, ended, unloved, stays] = &pods[..] else { unreachable!() };
            // Everything is gone; the container ended and its namespace is still there; the object alone is gone.
            node.lose_pod(vanished).await;
            node.set_pod_phase(&ended.name, "Failed").await;
            node.delete_pod(unloved).await;
            node.start_handler();
            let started = Instant::now();
            eventually("three attachments are deleted", || node.journal().len() == 1).await;
            assert_eq!(node.leases().len(), 1);
            assert!(started.elapsed().as_secs() < 30, "it is the first thing that a handler does");
            assert!(node.journal()[0].contains(&stays.uid));
            assert!(links(&stays.uid).contains(&"vnic0".to_owned()));
            assert!(!links(&ended.uid).contains(&"vnic0".to_owned()));
            assert!(links(&ended.uid).contains(&"eth0".to_owned()), "what the pod itself has is not ours");
        },
    );
}
