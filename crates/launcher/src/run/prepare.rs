//! All that must be there before the guest is: the plan, the accelerator, disks, vNICs, networks. And the domain itself.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use api::kubevirt::VirtualMachineInstance;
use api::mac::MacAddress;
use tracing::info;
use wire::{Accelerator, AcceleratorPolicy, InterfaceStatus, Vnic};

use super::{Executor, kernel_mac, make_for_qemu, whole};
use crate::domain::{self, DiskFacts, Facts, Places, VnicFacts};
use crate::network::{self, Guest};
use crate::plan::{self, Plan, PlannedVnic};
use crate::supervise::Input;
use crate::wiring::Wired;
use crate::{disks, probe};

/// A CNI plugin may ask a server far away for an address.
const ATTACH_DEADLINE: Duration = Duration::from_mins(2);

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

/// A vNIC, as far as it was made.
#[derive(Debug)]
pub(super) struct MadeVnic {
    pub vnic: Vnic,
    pub mac: MacAddress,
    pub mtu: u32,
    /// Its network was asked for; it may be there.
    pub network: bool,
    pub wired: Option<Wired>,
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

    async fn make_vnic(
        &self,
        index: usize,
        planned: &PlannedVnic,
        hostname: &str,
    ) -> Result<InterfaceStatus, String> {
        let failed = |cause: String| format!("vNIC {}: {cause}", planned.name);
        let vnic =
            self.proxy.add(&planned.name, ATTACH_DEADLINE).await.map_err(|error| failed(whole(&error)))?;
        let mac = planned.mac.or(vnic.mac);
        let interface = vnic.interface.as_str();
        {
            // Before anything can fail: it is attached, so it must be detached.
            let made = MadeVnic {
                mac: mac.unwrap_or(MacAddress([0; 6])),
                vnic: vnic.clone(),
                mtu: 0,
                network: false,
                wired: None,
            };
            self.made.lock().await.vnics.push(made);
        }
        let mac = mac.ok_or_else(|| {
            failed("neither the VM nor its network says which MAC address it has".to_owned())
        })?;
        let mtu = match vnic.mtu {
            Some(mtu) => mtu,
            None => self.wiring.mtu(interface).await.map_err(|error| failed(whole(&error)))?,
        };
        let guest = Guest { index, mac, hostname, mtu: Some(mtu) };
        let document = network::document(&vnic, guest).map_err(|error| whole(&error))?;
        self.note(index, |made| (made.mtu, made.network) = (mtu, true)).await;
        let forwarding = self.wiring.forwarding().map_err(|error| failed(whole(&error)))?;
        self.call(move |hypervisor| hypervisor.create_network(&document)).await.map_err(failed)?;
        let wired = async {
            self.wiring.restore(&forwarding)?;
            self.wiring.plug(&vnic, &network::bridge_name(index), kernel_mac(mac)).await
        };
        let wired = wired.await.map_err(|error| failed(whole(&error)))?;
        self.note(index, |made| made.wired = Some(wired)).await;
        let (given, untold): (Vec<IpAddr>, Vec<IpAddr>) =
            vnic.addresses.iter().map(|address| address.address.addr()).partition(IpAddr::is_ipv4);
        if !untold.is_empty() {
            let cause = format!("vNIC {}: the guest is not told its IPv6 address: {untold:?}", vnic.name);
            self.say(Input::Problem { cause });
        }
        Ok(InterfaceStatus {
            name: vnic.name.clone(),
            mac,
            pod_interface: vnic.interface.clone(),
            addresses: given,
            mtu: Some(mtu),
        })
    }

    async fn note(&self, index: usize, change: impl FnOnce(&mut MadeVnic)) {
        if let Some(made) = self.made.lock().await.vnics.get_mut(index) {
            change(made);
        }
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
                    console: in_private("console.sock"),
                    console_log: self.settings.console_log().display().to_string(),
                    screen: in_private(SCREEN_SOCKET),
                },
            };
            (domain::document(plan, &facts).map_err(|error| whole(&error))?, plan.start_paused)
        };
        self.call(move |hypervisor| hypervisor.start(&document, paused)).await
    }

    /// Until now the addresses were at the pod's interfaces, and neighbours may remember it.
    pub(super) async fn announce(&self) {
        for made in &self.made.lock().await.vnics {
            if let Err(error) = self.wiring.announce(&made.vnic, kernel_mac(made.mac)).await {
                self.say(Input::Problem { cause: whole(&error) });
            }
        }
    }
}
