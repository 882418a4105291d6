//! The kernel's form of `tbf` and `htb` (`linux/pkt_sched.h`), written and read. Pure.
//!
//! The kernel counts a burst in the time that it takes, in ticks of 64 ns, and a rate in bytes a second: 32 bits of it in the
//! old structure and, where these do not suffice, 64 in an attribute beside it.

use rtnetlink::packet_core::{DefaultNla, Nla as _, NlasIterator};
use rtnetlink::packet_route::tc::TcOption;

use super::{RateLimit, Shaper};

const TICK_NANOSECONDS: u128 = 64;
const LINK_LAYER_ETHERNET: u8 = 1;

const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;

const HTB_PARMS: u16 = 1;
const HTB_INIT: u16 = 2;
const HTB_RATE64: u16 = 6;
const HTB_CEIL64: u16 = 7;
const HTB_VERSION: u32 = 3;
const HTB_RATE_TO_QUANTUM: u32 = 10;
/// How much a class may send in its turn. There is only one, so that it matters only that the kernel does not compute it.
const HTB_QUANTUM: u32 = 64 * 1024;

/// Where the rate is in a rate specification, and how long that is.
const RATE_OFFSET: usize = 8;
const RATESPEC_LENGTH: usize = 12;

pub(super) fn tbf(limit: &RateLimit, queue: u32) -> Vec<TcOption> {
    let rate = limit.bits_per_second / 8;
    let mut parms = ratespec(rate);
    parms.extend([0; RATESPEC_LENGTH]); // no peak rate
    parms.extend(queue.to_ne_bytes());
    parms.extend(ticks(limit.burst, rate).to_ne_bytes());
    parms.extend([0; 4]); // the smallest packet at peak rate
    vec![
        option(TBF_PARMS, parms),
        option(TBF_RATE64, rate.to_ne_bytes().to_vec()),
        option(TBF_BURST, limit.burst.to_ne_bytes().to_vec()),
    ]
}

/// A hierarchy whose unclassified packets go to one class.
pub(super) fn htb(default: u16) -> Vec<TcOption> {
    let init = [HTB_VERSION, HTB_RATE_TO_QUANTUM, u32::from(default), 0, 0];
    vec![option(HTB_INIT, init.into_iter().flat_map(u32::to_ne_bytes).collect())]
}

/// A class that has its rate for itself and borrows nothing.
pub(super) fn htb_class(limit: &RateLimit) -> Vec<TcOption> {
    let rate = limit.bits_per_second / 8;
    let burst = ticks(limit.burst, rate);
    let mut parms = [ratespec(rate), ratespec(rate)].concat();
    parms.extend([burst, burst, HTB_QUANTUM, 0, 0].into_iter().flat_map(u32::to_ne_bytes));
    let rate = rate.to_ne_bytes().to_vec();
    vec![option(HTB_PARMS, parms), option(HTB_RATE64, rate.clone()), option(HTB_CEIL64, rate)]
}

pub(super) fn parse_tbf(options: &[u8]) -> Option<RateLimit> {
    let parms = attribute(options, TBF_PARMS)?;
    let rate = rate(&parms, attribute(options, TBF_RATE64))?;
    let after = 2 * RATESPEC_LENGTH;
    Some(RateLimit {
        bits_per_second: rate.saturating_mul(8),
        burst: burst(u32_at(&parms, after + 4)?, rate),
        shaper: Shaper::Tbf { queue: u32_at(&parms, after)? },
    })
}

pub(super) fn parse_htb_default(options: &[u8]) -> Option<u16> {
    u32_at(&attribute(options, HTB_INIT)?, 8)?.try_into().ok()
}

pub(super) fn parse_htb_class(options: &[u8]) -> Option<RateLimit> {
    let parms = attribute(options, HTB_PARMS)?;
    // What limits it is how much it may have with all that it borrows.
    let ceiling = rate(parms.get(RATESPEC_LENGTH..)?, attribute(options, HTB_CEIL64))?;
    let burst = burst(u32_at(&parms, 2 * RATESPEC_LENGTH + 4)?, ceiling);
    Some(RateLimit { bits_per_second: ceiling.saturating_mul(8), burst, shaper: Shaper::Htb })
}

pub(super) fn bytes(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

fn option(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

fn ratespec(rate: u64) -> Vec<u8> {
    let mut spec = vec![0, LINK_LAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    spec.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

fn rate(spec: &[u8], wide: Option<Vec<u8>>) -> Option<u64> {
    match wide.and_then(|wide| wide.try_into().ok()) {
        Some(wide) => Some(u64::from_ne_bytes(wide)),
        None => u32_at(spec, RATE_OFFSET).map(u64::from),
    }
}

/// How long a burst takes. A burst that takes longer than the kernel can count is cut.
fn ticks(burst: u32, rate: u64) -> u32 {
    let nanoseconds = u128::from(burst) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(nanoseconds / TICK_NANOSECONDS).unwrap_or(u32::MAX)
}

fn burst(ticks: u32, rate: u64) -> u32 {
    let bytes = u128::from(ticks) * TICK_NANOSECONDS * u128::from(rate) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let found = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == kind)?;
    Some(found.value().to_vec())
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtnetlink::packet_core::Emitable as _;

    use super::*;

    fn emitted(options: &[TcOption]) -> Vec<u8> {
        let mut bytes = vec![0; options.buffer_len()];
        options.emit(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes_per_second in 1_000_000_u64..100_000_000_000, burst in 1_600_u32..16_000_000, queue: u32) {
            let limit = RateLimit { bits_per_second: bytes_per_second * 8, burst, shaper: Shaper::Tbf { queue } };
            for (limit, read) in [
                (limit, parse_tbf(&emitted(&tbf(&limit, queue)))),
                (limit.htb(), parse_htb_class(&emitted(&htb_class(&limit)))),
            ] {
                let read = read.expect("it was written whole");
                // One tick of the rate is lost at most.
                let lost = u64::from(limit.burst - read.burst);
                prop_assert!(lost <= bytes_per_second * 64 / 1_000_000_000 + 1, "{lost}");
                prop_assert_eq!(RateLimit { burst, ..read }, limit);
            }
        }

        #[test]
        fn no_answer_confuses_the_reader(bytes: Vec<u8>) {
            parse_tbf(&bytes);
            parse_htb_class(&bytes);
            parse_htb_default(&bytes);
        }
    }

    #[test]
    fn the_default_class_is_found() {
        assert_eq!(parse_htb_default(&emitted(&htb(7))), Some(7));
    }
}
