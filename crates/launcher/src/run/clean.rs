//! All that was made, taken away again: in the opposite order, past every error.

use std::time::Duration;

use tracing::info;

use super::prepare::MadeVnic;
use super::{Executor, whole};
use crate::network;
use crate::supervise::Input;

/// A handler that is away detaches the vNICs itself when it is back: the pod need not wait for it long.
const DETACH_DEADLINE: Duration = Duration::from_secs(15);

impl Executor {
    pub(super) async fn clean_up(&self) {
        let vnics = std::mem::take(&mut self.made.lock().await.vnics);
        let mut problems = Vec::new();
        for made in vnics.iter().rev() {
            self.remove_vnic(made, &mut problems).await;
        }
        info!(vnics = vnics.len(), ?problems, "cleaned up");
        self.say(Input::Cleaned { problems });
    }

    async fn remove_vnic(&self, made: &MadeVnic, problems: &mut Vec<String>) {
        let name = &made.vnic.name;
        let mut note = |cause: String| problems.push(format!("vNIC {name}: {cause}"));
        if let Some(wired) = &made.wired
            && let Err(error) = self.wiring.unplug(wired).await
        {
            note(whole(&error));
        }
        if made.network {
            let network = network::name(name);
            if let Err(cause) = self.call(move |hypervisor| hypervisor.destroy_network(&network)).await {
                note(cause);
            }
        }
        if let Err(error) = self.proxy.del(name, DETACH_DEADLINE).await {
            note(whole(&error));
        }
    }
}
