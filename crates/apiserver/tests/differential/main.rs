//! The differential suite: the same requests to our server and to Kubernetes, and the same answers from both.
//!
//! `corpus/` holds what is asked, one file a theme; `recorded/` what Kubernetes answered, with names, versions and times
//! replaced by tokens (`normal.rs`); `known-differences.yaml` where we differ and why. A difference that is not listed fails,
//! and so does a listed one that no longer occurs.
//!
//! - `cargo test -p apiserver --test differential`: the embedded server against the recording.
//! - `GODWIT_TEST_SERVER=kubernetes`: the real server against the recording, which must match without exception.
//! - `GODWIT_TEST_SERVER=kubernetes GODWIT_RECORD=1`: record anew.
//! - `GODWIT_ONLY=TEXT`: only the themes whose name contains TEXT.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helpers"
)]

mod compare;
mod corpus;
mod normal;
mod play;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use serde_json::Value;
use testkit::{Engine, Options, Server};

use compare::{Difference, KnownDifferences};
use corpus::Theme;

/// The server whose answers are the yardstick.
const KUBERNETES: &str = "v1.36.4";
/// Fewer distinct requests than this, and someone has lost a part of the corpus.
const ENOUGH: usize = 600;
const AT_ONCE: usize = 4;

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_as_kubernetes_does() {
    let record = std::env::var("GODWIT_RECORD").is_ok_and(|value| value == "1");
    let only = std::env::var("GODWIT_ONLY").unwrap_or_default();
    let themes = corpus::load(&home().join("corpus"));
    let distinct: BTreeSet<String> = themes.iter().flat_map(Theme::requests).collect();
    println!("{} themes, {} distinct requests", themes.len(), distinct.len());
    assert!(distinct.len() >= ENOUGH, "{} distinct requests, {ENOUGH} wanted", distinct.len());

    let server = Server::start(Options { history: Some(5000), ..Options::default() }).await;
    let version = server.http().await.get("/version").await.ok()["gitVersion"].clone();
    let real = server.engine() != &Engine::Embedded && version == KUBERNETES;
    assert!(real || !record, "only Kubernetes {KUBERNETES} may be recorded, not {version}");

    let (chosen, left_out): (Vec<&Theme>, Vec<&Theme>) = themes
        .iter()
        .partition(|theme| theme.name.contains(&only) && (server.can_restart() || !theme.own_server));
    for theme in &left_out {
        testkit::not_run(&format!("{}: needs a server that is not shared", theme.name));
    }
    let answers: Vec<(&Theme, Value)> = futures::stream::iter(chosen)
        .map(async |theme| (theme, play::theme(theme, &server).await))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    if record {
        for (theme, answers) in answers {
            let text = serde_json::to_string_pretty(&answers).expect("JSON can be written");
            std::fs::write(recording(theme), text + "\n").expect("the recording can be written");
        }
        return;
    }

    let differences: Vec<Difference> = answers
        .iter()
        .flat_map(|(theme, answers)| compare::theme(&theme.name, &recorded(theme), answers))
        .collect();
    let known = if real {
        KnownDifferences::default()
    } else {
        KnownDifferences::load(&home().join("known-differences.yaml"))
    };
    let report = known.judge(&differences, left_out.is_empty());
    assert!(report.is_empty(), "{report}");
}

fn recording(theme: &Theme) -> PathBuf {
    home().join("recorded").join(format!("{}.json", theme.name))
}

fn recorded(theme: &Theme) -> Value {
    let path = recording(theme);
    let text = std::fs::read(&path).unwrap_or_else(|_| panic!("no {}: record it", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
