//! What a DaemonSet does next, node by node. Pure: a function of the nodes and of the pods on them.
//!
//! Invariant: an old pod that works is ended only while fewer than `max_unavailable` of the nodes that want a pod are
//! without one that works. Whatever breaks meanwhile is counted first.

/// One pod of the set, as far as a decision needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<I> {
    pub id: I,
    /// Of the template as it is now.
    pub is_current: bool,
    pub state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or will, but does not count as available.
    Unavailable,
    Available,
    /// Its containers have ended; the set wants them to run.
    Finished,
    /// Being deleted: it still takes the node's place.
    Leaving,
}

impl<I> Member<I> {
    pub fn is_available(&self) -> bool {
        self.state == State::Available
    }

    pub fn runs(&self) -> bool {
        matches!(self.state, State::Available | State::Unavailable)
    }
}

/// One node and the set's pods there, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<I> {
    pub node: String,
    /// A new pod may come here.
    pub may_start: bool,
    /// A pod that is here may stay.
    pub may_stay: bool,
    pub members: Vec<Member<I>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Old pods are replaced; otherwise someone must delete them.
    pub rolls: bool,
    pub max_unavailable: usize,
    pub max_surge: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<I> {
    /// Nodes that get a pod of the template as it is now.
    pub create: Vec<String>,
    pub delete: Vec<I>,
    /// Pods that ended by themselves: deleted as well, but not again and again without a pause.
    pub replace: Vec<I>,
}

impl<I> Default for Plan<I> {
    fn default() -> Self {
        Self { create: Vec::new(), delete: Vec::new(), replace: Vec::new() }
    }
}

pub fn plan<I: Copy + PartialEq>(places: &[Place<I>], limits: Limits) -> Plan<I> {
    let mut plan = Plan::default();
    for place in places {
        keep_one(place, limits, &mut plan);
    }
    if limits.rolls && limits.max_surge > 0 {
        roll_by_surge(places, limits.max_surge, &mut plan);
    } else if limits.rolls {
        roll_in_place(places, limits.max_unavailable, &mut plan);
    }
    plan
}

/// The one old and the one current pod of a node that are meant to stay.
struct Standing<I> {
    old: Option<Member<I>>,
    current: Option<Member<I>>,
}

fn standing<I: Copy>(place: &Place<I>) -> Standing<I> {
    let running = |current: bool| {
        let mut found = place.members.iter().filter(|pod| pod.runs() && pod.is_current == current);
        // The oldest that works, or else the oldest.
        let working = found.clone().find(|pod| pod.is_available());
        working.or_else(|| found.next()).copied()
    };
    Standing { old: running(false), current: running(true) }
}

/// What every node is owed whatever the strategy: one pod where the set may run, none where it may not.
fn keep_one<I: Copy + PartialEq>(place: &Place<I>, limits: Limits, plan: &mut Plan<I>) {
    let staying = || place.members.iter().filter(|pod| pod.state != State::Leaving);
    if !place.may_stay {
        plan.delete.extend(staying().map(|pod| pod.id));
        return;
    }
    if place.members.is_empty() {
        if place.may_start {
            plan.create.push(place.node.clone());
        }
        return;
    }
    plan.replace.extend(staying().filter(|pod| pod.state == State::Finished).map(|pod| pod.id));
    // Where a surge is allowed an old and a current pod may stand side by side. Elsewhere the one that works stays.
    let Standing { mut old, mut current } = standing(place);
    if !(limits.rolls && limits.max_surge > 0)
        && let (Some(before), Some(now)) = (old, current)
    {
        if now.is_available() || !before.is_available() { old = None } else { current = None }
    }
    let kept = [old, current].map(|pod| pod.map(|pod| pod.id));
    let surplus = staying().filter(|pod| pod.runs() && !kept.contains(&Some(pod.id)));
    plan.delete.extend(surplus.map(|pod| pod.id));
}

/// Ends old pods, so that current ones take their place.
fn roll_in_place<I: Copy>(places: &[Place<I>], max_unavailable: usize, plan: &mut Plan<I>) {
    let (mut broken, mut working, mut unavailable) = (Vec::new(), Vec::new(), 0);
    // Where no new pod may start, the old one is better than none.
    for place in places.iter().filter(|place| place.may_start) {
        let pods = standing(place);
        let is_available = [pods.current, pods.old].iter().flatten().any(Member::is_available);
        unavailable += usize::from(!is_available);
        match (pods.current, pods.old) {
            (None, Some(old)) if old.is_available() => working.push(old.id),
            // Ending a pod that does not work costs nothing.
            (None, Some(old)) => broken.push(old.id),
            _ => {}
        }
    }
    plan.delete.extend(broken);
    plan.delete.extend(working.into_iter().take(max_unavailable.saturating_sub(unavailable)));
}

/// Starts current pods beside old ones, and ends the old when the current work.
fn roll_by_surge<I: Copy>(places: &[Place<I>], max_surge: usize, plan: &mut Plan<I>) {
    let (mut at_once, mut candidates, mut surging) = (Vec::new(), Vec::new(), 0);
    for place in places.iter().filter(|place| place.may_start) {
        let pods = standing(place);
        let Some(old) = pods.old else { continue };
        match pods.current {
            Some(current) if current.is_available() || !old.is_available() => plan.delete.push(old.id),
            Some(_) => surging += 1,
            // A pod that is leaving still holds its place.
            None if place.members.iter().any(|pod| pod.is_current && pod.state == State::Leaving) => {
                surging += 1;
            }
            None if old.is_available() => candidates.push(place.node.clone()),
            None => at_once.push(place.node.clone()),
        }
    }
    plan.create.extend(at_once);
    plan.create.extend(candidates.into_iter().take(max_surge.saturating_sub(surging)));
}

#[cfg(test)]
mod tests;
