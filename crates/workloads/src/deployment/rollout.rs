//! How many replicas each ReplicaSet of a Deployment should have next. Pure.
//!
//! Invariants while the template rolls: the pods that are there, or are asked for, never exceed `desired + max_surge`;
//! and no step takes away a pod that works while no more than `desired - max_unavailable` work.

/// One ReplicaSet, as far as a decision needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Set {
    /// What it is asked to have.
    pub wanted: i32,
    /// What it has: pods that are neither ended nor being deleted.
    pub present: i32,
    /// Those of them that work.
    pub available: i32,
}

impl Set {
    /// Working pods that will still be there when it has done what it was asked. It gives up others first.
    fn keeps(self) -> i32 {
        self.available.min(self.wanted)
    }

    /// Pods that count against the limit: also those that it has yet to give up, or to make.
    fn takes(self) -> i32 {
        self.wanted.max(self.present)
    }
}

/// What the Deployment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub desired: i32,
    pub max_surge: i32,
    pub max_unavailable: i32,
}

impl Bounds {
    /// Neither more nor fewer would never end: then one fewer.
    pub fn new(desired: i32, max_surge: i32, max_unavailable: i32) -> Self {
        let max_unavailable = if max_surge <= 0 && max_unavailable <= 0 { 1 } else { max_unavailable };
        Self {
            desired,
            max_surge: max_surge.max(0),
            max_unavailable: max_unavailable.clamp(0, desired.max(0)),
        }
    }

    pub fn most(self) -> i32 {
        self.desired + self.max_surge
    }

    pub fn least_available(self) -> i32 {
        self.desired - self.max_unavailable
    }
}

/// The next step of a rolling update: what the new set and each of the old sets, oldest first, should be asked for.
pub fn roll(bounds: Bounds, new: Set, old: &[Set]) -> (i32, Vec<i32>) {
    let others: i32 = old.iter().map(|set| set.takes()).sum();
    let room = bounds.most() - others - new.takes();
    let next = if new.wanted >= bounds.desired {
        bounds.desired
    } else {
        new.wanted + room.clamp(0, bounds.desired - new.wanted)
    };
    let new = Set { wanted: next, ..new };
    let mut old: Vec<Set> = old.to_vec();
    // New pods that do not work yet stand for nothing; old ones that do not may still come back.
    let mut spare = new.keeps() + old.iter().map(|set| set.wanted).sum::<i32>() - bounds.least_available();
    let mut give = |set: &mut Set, at_most: i32| {
        let given = spare.clamp(0, at_most.max(0));
        set.wanted -= given;
        spare -= given;
    };
    // Pods that do not work go first: that costs nothing.
    for set in &mut old {
        let broken = set.wanted - set.keeps();
        give(set, broken);
    }
    for set in &mut old {
        let all = set.wanted;
        give(set, all);
    }
    (next, old.iter().map(|set| set.wanted).collect())
}

/// The next step of a strategy that ends all that is old before it starts anything new.
pub fn recreate(desired: i32, new: Set, old: &[Set], any_old_pod: bool) -> (i32, Vec<i32>) {
    let next = if any_old_pod { new.wanted.min(desired) } else { desired };
    (next, vec![0; old.len()])
}

/// A Deployment that is scaled in the middle of a rollout shares the change among its sets as they are, the larger
/// first: nobody knows yet which of them is the better one.
pub fn share(total: i32, sets: &[i32]) -> Vec<i32> {
    let had: i32 = sets.iter().sum();
    if had == 0 {
        return sets.to_vec();
    }
    let part = |size: i32| i64::from(size) * i64::from(total) / i64::from(had);
    let mut parts: Vec<i32> =
        sets.iter().map(|size| i32::try_from(part(*size)).unwrap_or(i32::MAX)).collect();
    let mut left = total - parts.iter().sum::<i32>();
    let mut order: Vec<usize> = (0..sets.len()).filter(|index| sets[*index] > 0).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sets[*index]));
    for index in order {
        let more = left.min(1);
        parts[index] += more;
        left -= more;
    }
    parts
}

#[cfg(test)]
mod tests;
