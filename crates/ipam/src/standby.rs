//! Interfaces that say nothing until their addresses are a guest's.
//!
//! The plugin that makes an interface puts the addresses on it and announces them. For a machine's pod that is wrong: while it is the
//! target of a move, the guest answers for them elsewhere. So its interface is mute from before the addresses are known until the
//! launcher has taken them off for the guest: two pods may hold one claim, and one of them at most is heard.
//!
//! Plugins that ask for addresses before they make the interface (`ptp`) join no segment that a guest could move on.

use net::{Handle, Namespace};

use crate::Call;

/// Why an interface may be heard.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    #[error("no runtime for netlink")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Net(#[from] net::Error),
}

/// Mutes the interface of a call, if it is there yet.
pub(crate) fn mute(call: &Call) -> Result<(), StandbyError> {
    let Some(path) = &call.namespace else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let muted = runtime.block_on(async {
        let handle = Handle::open(&Namespace::open(path)?)?;
        match handle.mute(call.interface.as_str()).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    });
    Ok(muted?)
}
