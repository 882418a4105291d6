//! All that must be there before the guest is: the plan, the accelerator, disks, vNICs, networks. And the domain itself.

use std::io;

use api::kubevirt::VirtualMachineInstance;
use tracing::info;
use wire::{Accelerator, AcceleratorPolicy};

use super::vnics::MadeVnic;
use super::{Executor, make_for_qemu, whole};
use crate::domain::{self, DiskFacts, Facts, Places, VnicFacts};
use crate::plan::{self, Plan};
use crate::supervise::Input;
use crate::{disks, probe};

/// The one socket that QEMU makes itself, in a directory of its user's.
const SCREEN_SOCKET: &str = "screen/vnc.sock";

/// What was made, in the order in which it was.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub plan: Option<Plan>,
    pub disks: Vec<DiskFacts>,
    pub accelerator: Option<Accelerator>,
    pub vnics: Vec<MadeVnic>,
}

impl Executor {
    pub(super) async fn prepare(&self, vmi: &VirtualMachineInstance, policy: AcceleratorPolicy) {
        let input = match self.try_prepare(vmi, policy).await {
            Ok(input) => input,
            Err(cause) => Input::PreparationFailed { cause },
        };
        self.say(input);
    }

    async fn try_prepare(
        &self,
        vmi: &VirtualMachineInstance,
        policy: AcceleratorPolicy,
    ) -> Result<Input, String> {
        let plan = plan::plan(vmi).map_err(|error| whole(&error))?;
        info!(domain = plan.name, vnics = plan.vnics.len(), disks = plan.disks.len(), "preparing");
        let directory = self.settings.directory.clone();
        let (accelerator, accelerator_reason) = match policy {
            AcceleratorPolicy::Kvm => (Accelerator::Kvm, None),
            AcceleratorPolicy::Tcg => (Accelerator::Tcg, None),
            AcceleratorPolicy::Probe => tokio::task::spawn_blocking(move || probe::accelerator(&directory))
                .await
                .map_err(|panic| panic.to_string())?,
        };
        if accelerator == Accelerator::Kvm {
            probe::grant_device().map_err(|error| format!("KVM cannot be used: {error}"))?;
        }
        if plan.screen {
            self.make_place_for_screen().map_err(|error| format!("the screen has no place: {error}"))?;
        }
        let wanted = plan.disks.clone();
        let disks = self.call(move |_| disks::provide(&wanted)).await?;
        {
            let mut made = self.made.lock().await;
            (made.disks, made.accelerator, made.plan) = (disks, Some(accelerator), Some(plan.clone()));
        }
        let mut interfaces = Vec::new();
        for (index, planned) in plan.vnics.iter().enumerate() {
            interfaces.push(self.make_vnic(index, planned, &plan.hostname).await?);
        }
        Ok(Input::Prepared { interfaces, accelerator, accelerator_reason })
    }

    fn make_place_for_screen(&self) -> io::Result<()> {
        let socket = self.settings.private.join(SCREEN_SOCKET);
        make_for_qemu(socket.parent().unwrap_or(&self.settings.private))
    }

    pub(super) async fn start_domain(&self) {
        match self.try_start_domain().await {
            Ok(()) => {
                self.say(Input::Started);
                self.announce().await;
                self.follow_domain().await;
            }
            Err(cause) => self.say(Input::StartFailed { cause }),
        }
    }

    /// The domain that another launcher brings, from its arrival to its end.
    pub(super) async fn await_domain(&self) {
        if let Some(plan) = &self.made.lock().await.plan {
            self.hypervisor.expect(&plan.name);
        }
        self.hear_of_departure();
        self.follow_arrival().await;
    }

    async fn try_start_domain(&self) -> Result<(), String> {
        let (document, paused) = {
            let made = self.made.lock().await;
            let (Some(plan), Some(accelerator)) = (&made.plan, made.accelerator) else {
                return Err("there is no plan".to_owned());
            };
            let in_private = |name: &str| self.settings.private.join(name).display().to_string();
            let facts = Facts {
                accelerator,
                vnics: made
                    .vnics
                    .iter()
                    .map(|made| VnicFacts { mac: made.mac, mtu: Some(made.mtu) })
                    .collect(),
                disks: made.disks.clone(),
                places: Places {
                    console: in_private(crate::console::SOCKET),
                    console_log: self.settings.console_log().display().to_string(),
                    screen: in_private(SCREEN_SOCKET),
                },
            };
            (domain::document(plan, &facts).map_err(|error| whole(&error))?, plan.start_paused)
        };
        self.call(move |hypervisor| hypervisor.start(&document, paused)).await
    }
}
