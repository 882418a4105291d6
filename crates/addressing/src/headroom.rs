//! Whether a pool has enough addresses for those who will ask, also while they are replaced.
//!
//! It owns the sums, with the name of each part, so that a refusal can be checked by hand. A rolling update needs more than
//! one address a node: a pod that comes before the old one goes needs its own, and the address of one that went first rests
//! while its successor asks for another.

use std::fmt;

use crate::{Interval, Network, Pool, PoolRange};

/// A number, or a part of the nodes; a part of a node counts as one, as Kubernetes rounds it for a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Count(u64),
    Percent(u8),
}

impl Share {
    pub fn of(self, nodes: u64) -> u128 {
        match self {
            Self::Count(count) => u128::from(count),
            Self::Percent(percent) => (u128::from(nodes) * u128::from(percent)).div_ceil(100),
        }
    }
}

/// Who will ask for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Nodes that need one each.
    pub nodes: u64,
    /// How many of them may run two pods in a rolling update.
    pub surge: Share,
    /// How many of them may be replaced at once: so many addresses rest while as many others are asked for. It is all that
    /// rests only if an address rests no longer than a pod takes to be replaced; to see to that is the asker's part.
    pub replaced: Share,
    /// Others on the same network, and how many each needs at most.
    pub others: Vec<(String, u64)>,
}

impl Demand {
    /// The parts of what is needed.
    pub fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        // Said even if it is none, or the sum would not say what it is about.
        sum.parts.push(Part { count: u128::from(self.nodes), sign: Sign::Plus, what: "nodes".to_owned() });
        // More than there are nodes cannot be replaced.
        let at_most = |share: Share| share.of(self.nodes).min(u128::from(self.nodes));
        sum.plus(at_most(self.surge), "more in a rolling update");
        sum.plus(at_most(self.replaced), "resting in a rolling update");
        for (who, count) in &self.others {
            sum.plus(u128::from(*count), who);
        }
        sum
    }
}

/// What is needed of a range and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRoom {
    pub network: Network,
    pub needs: Sum,
    pub has: Sum,
}

impl HeadRoom {
    pub fn suffices(&self) -> bool {
        self.missing() == 0
    }

    /// How many addresses are lacking.
    pub fn missing(&self) -> u128 {
        self.needs.total().saturating_sub(self.has.total())
    }

    /// How many addresses are left.
    pub fn spare(&self) -> u128 {
        self.has.total().saturating_sub(self.needs.total())
    }
}

/// `needs 7 = 4 nodes + 1 more in a rolling update + 2 gateways; 10.1.0.0/29 has 5 = 6 usable (…) - 1 the gateway`.
impl fmt::Display for HeadRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs {}; {} has {}", self.needs, self.network, self.has)?;
        match self.missing() {
            0 => Ok(()),
            missing => write!(f, "; {missing} missing"),
        }
    }
}

/// Judges every range of the pool, as each gives an address to everyone.
pub fn head_room(pool: &Pool, demand: &Demand) -> Vec<HeadRoom> {
    let judge =
        |range: &PoolRange| HeadRoom { network: range.network(), needs: demand.sum(), has: supply(range) };
    pool.ranges().iter().map(judge).collect()
}

/// The parts of what a range has: their sum is its capacity.
fn supply(range: &PoolRange) -> Sum {
    let bounds = range.bounds();
    let ends = |interval: &Interval| format!("usable ({}-{})", interval.first(), interval.last());
    let in_bounds = range.exclusions().intersection(&bounds.into());
    let gateway =
        range.gateway().filter(|gateway| bounds.contains(*gateway) && !in_bounds.contains(*gateway));
    let mut sum = Sum::default();
    sum.plus(bounds.count(), &ends(&bounds));
    sum.minus(in_bounds.count(), "excluded");
    sum.minus(u128::from(gateway.is_some()), "for the gateway");
    sum
}

/// A sum that shows its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub parts: Vec<Part>,
}

/// A part of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub sign: Sign,
    pub count: u128,
    /// What is counted, as it follows the number in a sentence.
    pub what: String,
}

/// Whether a part adds or takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Plus,
    Minus,
}

impl Sum {
    /// Parts that are nothing are not shown.
    fn plus(&mut self, count: u128, what: &str) {
        self.part(Sign::Plus, count, what);
    }

    fn minus(&mut self, count: u128, what: &str) {
        self.part(Sign::Minus, count, what);
    }

    fn part(&mut self, sign: Sign, count: u128, what: &str) {
        if count > 0 {
            self.parts.push(Part { sign, count, what: what.to_owned() });
        }
    }

    pub fn total(&self) -> u128 {
        self.parts.iter().fold(0, |total: u128, part| match part.sign {
            Sign::Plus => total.saturating_add(part.count),
            Sign::Minus => total.saturating_sub(part.count),
        })
    }
}

/// `5 = 6 usable (10.1.0.1-10.1.0.6) - 1 for the gateway`.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} =", self.total())?;
        for (position, Part { sign, count, what }) in self.parts.iter().enumerate() {
            match sign {
                Sign::Plus if position == 0 => {}
                Sign::Plus => f.write_str(" +")?,
                Sign::Minus => f.write_str(" -")?,
            }
            write!(f, " {count} {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;
    use crate::pool::{PoolSettings, RangeSettings};

    #[test]
    fn the_sums_can_be_checked_by_hand() {
        let settings = PoolSettings {
            range: Some("10.1.0.0/28".to_owned()),
            exclude: vec!["10.1.0.8/30".to_owned(), "10.1.0.15".to_owned()],
            gateway: Some("10.1.0.1".to_owned()),
            ip_ranges: vec![RangeSettings { range: "fd00::/64".to_owned(), ..Default::default() }],
            ..Default::default()
        };
        let pool = Pool::read(&settings).unwrap();
        let others = vec![("synchronization controllers".to_owned(), 3), ("probes".to_owned(), 0)];
        let mut demand = Demand { nodes: 5, surge: Share::Count(0), replaced: Share::Percent(10), others };
        let judged = head_room(&pool, &demand);
        assert_eq!(
            judged[0].to_string(),
            "needs 9 = 5 nodes + 1 resting in a rolling update + 3 synchronization controllers; \
             10.1.0.0/28 has 9 = 14 usable (10.1.0.1-10.1.0.14) - 4 excluded - 1 for the gateway"
        );
        assert!(judged[0].suffices());
        assert!(judged[1].suffices());
        assert_eq!(judged[1].spare(), (1 << 64) - 2 - 9);
        demand.surge = Share::Count(2);
        let judged = head_room(&pool, &demand);
        assert_eq!((judged[0].missing(), judged[0].spare()), (2, 0));
        assert!(judged[0].to_string().contains(" + 2 more in a rolling update + "), "{}", judged[0]);
        assert!(judged[0].to_string().ends_with("for the gateway; 2 missing"), "{}", judged[0]);
    }

    #[test]
    fn shares_round_up_and_stop_at_the_nodes() {
        assert_eq!(Share::Percent(10).of(0), 0);
        assert_eq!(Share::Percent(10).of(11), 2);
        assert_eq!(Share::Percent(100).of(u64::MAX), u128::from(u64::MAX));
        let demand =
            Demand { nodes: 2, surge: Share::Count(9), replaced: Share::Percent(0), others: Vec::new() };
        assert_eq!(demand.sum().to_string(), "4 = 2 nodes + 2 more in a rolling update");
        let none = Demand { nodes: 0, ..demand };
        assert_eq!(none.sum().to_string(), "0 = 0 nodes");
    }

    proptest! {
        #[test]
        fn what_a_range_has_is_its_capacity(window in naive::window(), exclusions in naive::intervals(), gateway in naive::address()) {
            let settings = PoolSettings {
                range: Some(window.to_string()),
                exclude: exclusions.iter().map(ToString::to_string).collect(),
                gateway: Some(gateway.to_string()),
                ..Default::default()
            };
            if let Ok(pool) = Pool::read(&settings) {
                prop_assert_eq!(supply(&pool.ranges()[0]).total(), pool.capacity());
            }
        }

        #[test]
        fn missing_and_spare_are_the_difference(nodes in 0..40_u64, surge in 0..5_u64, percent in 0..=100_u8, other in 0..5_u64) {
            let settings = PoolSettings { range: Some("10.0.0.0/27".to_owned()), ..Default::default() };
            let pool = Pool::read(&settings).unwrap();
            let others = vec![("others".to_owned(), other)];
            let demand = Demand { nodes, surge: Share::Count(surge), replaced: Share::Percent(percent), others };
            let replaced = (0..=nodes).find(|count| count * 100 >= nodes * u64::from(percent)).unwrap();
            let needs = u128::from(nodes + surge.min(nodes) + replaced + other);
            let judged = &head_room(&pool, &demand)[0];
            prop_assert_eq!(judged.needs.total(), needs);
            prop_assert_eq!(judged.suffices(), needs <= 30);
            prop_assert_eq!(30 + judged.missing(), needs + judged.spare());
        }
    }
}
