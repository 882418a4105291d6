//! What a launcher sends to the CNI proxy, and what comes of it: nothing but its own vNICs, and an answer to every line. The first byte says
//! in how many pieces the rest arrives.
#![allow(clippy::panic, reason = "a target that cannot start must say so")]

use std::sync::{Arc, LazyLock};

use api::kubevirt::VirtualMachineInstance;
use handler::{AttachmentError, Desk, Maker, Planned, converse};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use wire::{ProxyRequest, ProxyResponse, Vnic, VnicName};

/// The vNICs that the instance has, the interfaces that they must have, and who makes those.
const VNICS: [(&str, &str, Maker); 2] =
    [("default", "vnic0", Maker::Handler), ("blue", "pod16477688c0e", Maker::Node)];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|cause| panic!("no runtime: {cause}"))
});

static INSTANCE: LazyLock<Arc<VirtualMachineInstance>> = LazyLock::new(|| {
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "vm" },
        "spec": {
            "domain": { "devices": { "interfaces": [{ "name": "default", "bridge": {} }, { "name": "blue", "bridge": {} }, { "name": "nat", "masquerade": {} }] } },
            "networks": [{ "name": "default", "pod": {} }, { "name": "blue", "multus": { "networkName": "blue" } }, { "name": "nat", "pod": {} }],
        },
    });
    Arc::new(serde_json::from_value(instance).unwrap_or_else(|cause| panic!("no instance: {cause}")))
});

/// Attaches nothing, and fails if it is asked for what the instance does not have.
struct Watchful {
    turn: Mutex<()>,
}

fn check_plan(vnic: &Planned) {
    let expected = VNICS.iter().find(|(name, ..)| vnic.name.as_str() == *name);
    assert_eq!(expected, Some(&(vnic.name.as_str(), vnic.interface.as_str(), vnic.maker)), "{vnic:?}");
}

impl Desk for Watchful {
    fn instance(&self) -> Option<Arc<VirtualMachineInstance>> {
        Some(Arc::clone(&INSTANCE))
    }

    fn turn(&self) -> &Mutex<()> {
        &self.turn
    }

    async fn add(&self, vnic: &Planned) -> Result<Vnic, AttachmentError> {
        check_plan(vnic);
        let given = json!({ "name": vnic.name, "interface": vnic.interface });
        Ok(serde_json::from_value(given).unwrap_or_else(|cause| panic!("no vNIC: {cause}")))
    }

    async fn check(&self, vnic: &Planned) -> Result<(), AttachmentError> {
        check_plan(vnic);
        Err(AttachmentError::NotAttached { vnic: vnic.name.clone() })
    }

    async fn del(&self, vnic: &VnicName) -> Result<(), AttachmentError> {
        assert!(
            vnic.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
            "{vnic}"
        );
        Ok(())
    }

    fn list(&self) -> Result<Vec<Vnic>, AttachmentError> {
        Ok(Vec::new())
    }

    fn refused(&self, _: &ProxyRequest, why: &str) {
        assert!(!why.is_empty());
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((pieces, sent)) = data.split_first() else { return };
    let desk = Watchful { turn: Mutex::new(()) };
    let (here, there) = tokio::io::duplex(1 << 16);
    let (mut hear, mut say) = tokio::io::split(here);
    let speaking = async {
        for piece in sent.chunks(sent.len() / (usize::from(*pieces) + 1) + 1) {
            // It has hung up.
            if say.write_all(piece).await.is_err() {
                return;
            }
        }
        let _ = say.shutdown().await;
    };
    let mut heard = Vec::new();
    let (ended, (), _) = RUNTIME
        .block_on(async { tokio::join!(converse(there, &desk), speaking, hear.read_to_end(&mut heard)) });
    let answers: Vec<ProxyResponse> = heard
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| wire::decode(line).unwrap_or_else(|cause| panic!("no answer: {cause}")))
        .collect();
    let lines = sent.split_inclusive(|byte| *byte == b'\n').count();
    match ended {
        Err(error) => {
            assert!(answers.len() <= lines, "{} answers to {lines} lines", answers.len());
            assert_eq!(answers.last(), Some(&ProxyResponse::Failed { error }));
        }
        // Every line was a request, and had its answer.
        Ok(()) => assert_eq!(answers.len(), lines),
    }
}
