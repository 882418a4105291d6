//! Links that say nothing: everything that would leave is dropped, whoever sends it; what comes in is heard.
//!
//! A muted link has a root queueing discipline without room for a single packet (`pfifo`, limit 0), which every kernel with traffic
//! control has. What is below sees no frame, not even one that a program made by hand.

use rtnetlink::packet_core::DefaultNla;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::handle::{Asked, Existing};
use crate::rate::signed;
use crate::{Error, Handle, LinkId};

/// Ours alone, so that nobody else's discipline is taken off.
const HANDLE: TcHandle = TcHandle { major: 0xd3, minor: 0 };
/// `TCA_OPTIONS`; this kind has no attributes in it, but a number.
const OPTIONS: u16 = 2;

impl Handle {
    /// Mutes a link; one that is mute stays so.
    pub async fn mute(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        let link = link.into();
        let index = self.index_of(link.clone()).await?;
        let mut message = TcMessage::with_index(signed(index)?);
        (message.header.parent, message.header.handle) = (TcHandle::ROOT, HANDLE);
        let no_room = DefaultNla::new(OPTIONS, 0_u32.to_ne_bytes().to_vec());
        message.attributes = vec![TcAttribute::Kind("pfifo".to_owned()), TcAttribute::Other(no_room)];
        let asked = Asked { operation: "muting", object: format!("link {link}") };
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.ask(asked, message, Existing::Replace.flags()).await.map(drop)
    }

    /// Lets a link speak again; says whether it was mute.
    pub async fn unmute(&self, link: impl Into<LinkId>) -> Result<bool, Error> {
        let link = link.into();
        let index = signed(self.index_of(link.clone()).await?)?;
        let mut message = TcMessage::with_index(index);
        (message.header.parent, message.header.handle) = (TcHandle::ROOT, HANDLE);
        let asked = Asked { operation: "listing", object: "queueing disciplines".to_owned() };
        let all =
            self.list(asked, RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index))).await?;
        let ours = |answer: &RouteNetlinkMessage| {
            matches!(answer, RouteNetlinkMessage::NewQueueDiscipline(seen)
                if seen.header.index == index && seen.header.handle == HANDLE)
        };
        if !all.iter().any(ours) {
            return Ok(false);
        }
        let asked = Asked { operation: "unmuting", object: format!("link {link}") };
        let message = RouteNetlinkMessage::DelQueueDiscipline(message);
        crate::error::deleted(self.ask(asked, message, 0).await.map(drop))
    }
}
