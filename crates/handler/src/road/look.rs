//! What this pod can see of its networks: the file of the downward API and the kernel's interfaces, looked at once a second.
//!
//! The file is replaced by the kubelet and addresses come and go without a word; a look costs two netlink requests.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use net::{Handle, Namespace, Readiness};
use tokio::sync::watch;

use super::address::{Facts, Interface};
use crate::error::chain;

const PERIOD: Duration = Duration::from_secs(1);

/// What was seen, or why nothing was.
pub type Looked = Result<Facts, String>;

/// What is seen now; and the work that keeps looking until dropped.
pub fn follow(file: PathBuf, pod: IpAddr) -> (watch::Receiver<Looked>, impl Future<Output = ()>) {
    let (sender, receiver) = watch::channel(Err("nobody has looked yet".to_owned()));
    let work = async move {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut kernel = None;
        loop {
            period.tick().await;
            let looked = look(&mut kernel, &file, pod).await;
            sender.send_if_modified(|before| std::mem::replace(before, looked.clone()) != looked);
        }
    };
    (receiver, work)
}

async fn look(kernel: &mut Option<Handle>, file: &Path, pod: IpAddr) -> Looked {
    let looked = async {
        let handle = match kernel.take() {
            Some(handle) => handle,
            None => Handle::open(&Namespace::current()?)?,
        };
        let interfaces = interfaces(&handle).await?;
        *kernel = Some(handle);
        Ok::<_, net::Error>(interfaces)
    };
    let interfaces = looked.await.map_err(|error| chain(&error))?;
    let status = match tokio::fs::read_to_string(file).await {
        Ok(text) => text,
        // Not mounted, or not there yet: the same as an annotation that was not written.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    Ok(Facts { status, interfaces, pod })
}

async fn interfaces(handle: &Handle) -> Result<Vec<Interface>, net::Error> {
    let (links, addresses) = (handle.links().await?, handle.all_addresses().await?);
    let of = |link: u32| {
        let usable = move |address: &&net::AddressState| {
            address.link == link && address.readiness == Readiness::Usable
        };
        addresses.iter().filter(usable).map(|address| address.network.addr()).collect()
    };
    let interface = |link: net::Link| Interface {
        index: link.index,
        up: link.up,
        addresses: of(link.index),
        name: link.name,
    };
    Ok(links.into_iter().map(interface).collect())
}
