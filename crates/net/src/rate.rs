//! Rate limits: how fast packets leave a link.
//!
//! A limit is the link's root queueing discipline, a token bucket (`tbf`) or a hierarchy with one class (`htb`). Both may be
//! changed while traffic flows. A root discipline of another kind is replaced when a limit is set, and comes back, as the
//! kernel's default, when the limit is removed. What comes in on a link is limited where it is sent: at the peer.

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use crate::handle::{Asked, Existing};
use crate::{Error, Handle, LinkId};

mod wire;

/// Our disciplines have numbers of their own for each kind, because one number cannot change its kind.
const TBF: TcHandle = TcHandle { major: 0xd1, minor: 0 };
const HTB: TcHandle = TcHandle { major: 0xd2, minor: 0 };
/// The one class of our hierarchy, to which everything belongs.
const CLASS: TcHandle = TcHandle { major: 0xd2, minor: 1 };

/// The most that may leave at once however slow the link: two of the largest packets that the kernel makes.
const LEAST_BURST: u32 = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub bits_per_second: u64,
    /// How many bytes may leave at once after a silence. The kernel rounds it.
    pub burst: u32,
    pub shaper: Shaper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shaper {
    /// A token bucket, and the bytes that may wait for it; more are dropped.
    Tbf { queue: u32 },
    /// A hierarchy of one class, with the link's usual queue.
    Htb,
}

impl RateLimit {
    /// A token bucket that holds 4 ms of traffic and lets 50 ms of it wait.
    pub fn new(bits_per_second: u64) -> Self {
        let burst = of(bits_per_second, 4).max(LEAST_BURST);
        let queue = burst.saturating_add(of(bits_per_second, 50));
        Self { bits_per_second, burst, shaper: Shaper::Tbf { queue } }
    }

    /// The same by a hierarchy.
    #[must_use]
    pub fn htb(self) -> Self {
        Self { shaper: Shaper::Htb, ..self }
    }
}

/// The bytes that pass in some milliseconds.
fn of(bits_per_second: u64, milliseconds: u64) -> u32 {
    u32::try_from((bits_per_second / 8000).saturating_mul(milliseconds)).unwrap_or(u32::MAX)
}

/// A root discipline that limits the rate.
struct Root {
    handle: TcHandle,
    kind: String,
    options: Vec<u8>,
}

impl Handle {
    /// Limits what leaves by a link, or changes the limit.
    pub async fn set_rate_limit(&self, link: impl Into<LinkId>, limit: RateLimit) -> Result<(), Error> {
        let link = link.into();
        if limit.bits_per_second < 8 || limit.burst == 0 {
            let object = format!("limiting link {link} to {} bit/s", limit.bits_per_second);
            return Err(Error::Invalid {
                object,
                rule: "it must let a byte a second pass, and a burst of one",
            });
        }
        let index = self.index_of(link.clone()).await?;
        let asked = Asked { operation: "limiting the rate of", object: format!("link {link}") };
        match limit.shaper {
            Shaper::Tbf { queue } => {
                let root = message(index, TcHandle::ROOT, TBF, "tbf", wire::tbf(&limit, queue))?;
                self.shape(asked, RouteNetlinkMessage::NewQueueDiscipline(root)).await
            }
            Shaper::Htb => self.set_htb(asked, index, &limit).await,
        }
    }

    /// The limit of a link, if it has one.
    pub async fn rate_limit(&self, link: impl Into<LinkId>) -> Result<Option<RateLimit>, Error> {
        let index = self.index_of(link.into()).await?;
        let Some(root) = self.root(index).await? else { return Ok(None) };
        if root.kind == "tbf" {
            return Ok(wire::parse_tbf(&root.options));
        }
        let Some(minor) = wire::parse_htb_default(&root.options) else { return Ok(None) };
        let class = TcHandle { minor, ..root.handle };
        let asked = Asked { operation: "listing", object: "traffic classes".to_owned() };
        let message = TcMessage::with_index(signed(index)?);
        let answers = self.list(asked, RouteNetlinkMessage::GetTrafficClass(message)).await?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewTrafficClass(message) if message.header.handle == class => {
                wire::parse_htb_class(&options(message)?)
            }
            _ => None,
        }))
    }

    /// Removes the limit of a link; says whether it had one.
    pub async fn remove_rate_limit(&self, link: impl Into<LinkId>) -> Result<bool, Error> {
        let link = link.into();
        let index = self.index_of(link.clone()).await?;
        let Some(root) = self.root(index).await? else { return Ok(false) };
        let mut message = TcMessage::with_index(signed(index)?);
        (message.header.parent, message.header.handle) = (TcHandle::ROOT, root.handle);
        let asked = Asked { operation: "removing the rate limit of", object: format!("link {link}") };
        crate::error::deleted(
            self.ask(asked, RouteNetlinkMessage::DelQueueDiscipline(message), 0).await.map(drop),
        )
    }

    /// A hierarchy cannot be changed, only its classes can; so ours is left if it is there.
    async fn set_htb(&self, asked: Asked, index: u32, limit: &RateLimit) -> Result<(), Error> {
        let there = self.root(index).await?.is_some_and(|root| root.handle == HTB && root.kind == "htb");
        if !there {
            let root = message(index, TcHandle::ROOT, HTB, "htb", wire::htb(CLASS.minor))?;
            self.shape(asked.clone(), RouteNetlinkMessage::NewQueueDiscipline(root)).await?;
        }
        let class = message(index, HTB, CLASS, "htb", wire::htb_class(limit))?;
        let outcome = self.shape(asked, RouteNetlinkMessage::NewTrafficClass(class)).await;
        if outcome.is_err() && !there {
            // Without its class it would limit nothing. The first error is the one to report.
            let _ = self.remove_rate_limit(index).await;
        }
        outcome
    }

    async fn shape(&self, asked: Asked, message: RouteNetlinkMessage) -> Result<(), Error> {
        match self.ask(asked.clone(), message, Existing::Replace.flags()).await {
            // The link was found, so it is the kind of discipline that is not there.
            Err(Error::NotFound { source, .. }) if source.errno == nix::errno::Errno::ENOENT => {
                Err(self.unsupported(asked, &source.to_string()))
            }
            outcome => outcome.map(drop),
        }
    }

    async fn root(&self, index: u32) -> Result<Option<Root>, Error> {
        let index = signed(index)?;
        let asked = Asked { operation: "listing", object: "queueing disciplines".to_owned() };
        let answers =
            self.list(asked, RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index))).await?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(message)
                if message.header.index == index && message.header.parent == TcHandle::ROOT =>
            {
                root(message)
            }
            _ => None,
        }))
    }
}

fn root(message: &TcMessage) -> Option<Root> {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) if kind == "tbf" || kind == "htb" => Some(kind.clone()),
        _ => None,
    })?;
    Some(Root { handle: message.header.handle, kind, options: options(message)? })
}

/// The options of a discipline whose options the netlink library does not know: bytes.
fn options(message: &TcMessage) -> Option<Vec<u8>> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => match options.as_slice() {
            [TcOption::Other(options)] => Some(wire::bytes(options)),
            _ => None,
        },
        _ => None,
    })
}

fn message(
    index: u32,
    parent: TcHandle,
    handle: TcHandle,
    kind: &str,
    options: Vec<TcOption>,
) -> Result<TcMessage, Error> {
    let mut message = TcMessage::with_index(signed(index)?);
    (message.header.parent, message.header.handle) = (parent, handle);
    message.attributes = vec![TcAttribute::Kind(kind.to_owned()), TcAttribute::Options(options)];
    Ok(message)
}

/// Traffic control has signed indices.
pub(crate) fn signed(index: u32) -> Result<i32, Error> {
    let invalid = |_| Error::Invalid {
        object: format!("a link with index {index}"),
        rule: "indices end at 2147483647",
    };
    i32::try_from(index).map_err(invalid)
}
