//! Whatever order things happen in, an update keeps to its bounds and comes to its end.

use proptest::prelude::*;

use super::*;

fn rolling(max_unavailable: usize, max_surge: usize) -> Limits {
    Limits { rolls: true, max_unavailable, max_surge }
}

fn place(node: &str, members: Vec<Member<u32>>) -> Place<u32> {
    Place { node: node.into(), may_start: true, may_stay: true, members }
}

fn member(id: u32, is_current: bool, state: State) -> Member<u32> {
    Member { id, is_current, state }
}

#[test]
fn broken_old_pods_go_first_and_count_as_missing() {
    use State::{Available, Unavailable};
    let places = [
        place("a", vec![member(1, false, Available)]),
        place("b", vec![member(2, false, Unavailable)]),
        place("c", vec![member(3, false, Available)]),
    ];
    assert_eq!(plan(&places, rolling(1, 0)).delete, [2]);
    assert_eq!(plan(&places, rolling(2, 0)).delete, [2, 1]);
}

#[test]
fn a_pod_on_its_way_out_keeps_its_place() {
    let places = [place("a", vec![member(1, true, State::Leaving)])];
    assert_eq!(plan(&places, rolling(1, 0)), Plan::default());
}

#[test]
fn of_two_on_one_node_the_working_one_stays() {
    use State::{Available, Unavailable};
    let places = [place("a", vec![member(1, true, Unavailable), member(2, true, Available)])];
    assert_eq!(plan(&places, rolling(1, 0)).delete, [1]);
    let places = [place("a", vec![member(1, false, Available), member(2, true, Unavailable)])];
    assert_eq!(plan(&places, rolling(1, 0)).delete, [2]);
}

#[test]
fn finished_pods_are_replaced_and_unwanted_places_cleared() {
    let places = [
        place("a", vec![member(1, true, State::Finished)]),
        Place { may_start: false, may_stay: false, ..place("b", vec![member(2, true, State::Available)]) },
        Place { may_start: false, ..place("c", vec![member(3, false, State::Available)]) },
    ];
    let expected = Plan { create: vec![], delete: vec![2], replace: vec![1] };
    assert_eq!(plan(&places, rolling(3, 0)), expected, "c could not be given a new pod: it keeps the old");
}

#[derive(Debug, Clone)]
enum Happens {
    /// The controller looks and acts.
    Decides,
    /// A pod that starts becomes available.
    Works(usize),
    /// A pod that leaves is gone.
    Goes(usize),
    /// A pod breaks by itself.
    Breaks(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Decides),
        4 => any::<usize>().prop_map(Happens::Works),
        4 => any::<usize>().prop_map(Happens::Goes),
        1 => any::<usize>().prop_map(Happens::Breaks),
    ]
}

struct Model {
    places: Vec<Place<u32>>,
    limits: Limits,
    next: u32,
}

impl Model {
    fn new(nodes: usize, limits: Limits) -> Self {
        let places = (0..nodes)
            .map(|index| {
                place(
                    &index.to_string(),
                    vec![member(u32::try_from(index).unwrap(), false, State::Available)],
                )
            })
            .collect();
        Self { places, limits, next: 1000 }
    }

    fn available(&self) -> usize {
        self.places.iter().filter(|place| place.members.iter().any(Member::is_available)).count()
    }

    fn pick(&mut self, nth: usize, state: State) -> Option<&mut Member<u32>> {
        let mut found: Vec<_> = self
            .places
            .iter_mut()
            .flat_map(|place| &mut place.members)
            .filter(|pod| pod.state == state)
            .collect();
        let count = found.len();
        (count > 0).then(|| found.swap_remove(nth % count))
    }

    fn decide(&mut self) -> Plan<u32> {
        let plan = plan(&self.places, self.limits);
        for node in &plan.create {
            let place = self.places.iter_mut().find(|place| place.node == *node).unwrap();
            place.members.push(member(self.next, true, State::Unavailable));
            self.next += 1;
        }
        for pod in self.places.iter_mut().flat_map(|place| &mut place.members) {
            if plan.delete.contains(&pod.id) || plan.replace.contains(&pod.id) {
                pod.state = State::Leaving;
            }
        }
        plan
    }

    fn goes(&mut self, nth: usize) {
        if let Some(id) = self.pick(nth, State::Leaving).map(|pod| pod.id) {
            self.places.iter_mut().for_each(|place| place.members.retain(|pod| pod.id != id));
        }
    }
}

proptest! {
    #[test]
    fn no_decision_takes_more_than_is_allowed(
        nodes in 1_usize..8,
        max_unavailable in 1_usize..4,
        max_surge in 0_usize..3,
        events in proptest::collection::vec(happens(), 0..120),
    ) {
        let limits = rolling(if max_surge > 0 { 0 } else { max_unavailable }, max_surge);
        let mut model = Model::new(nodes, limits);
        for event in events {
            match event {
                Happens::Decides => {
                    let before = model.available();
                    let plan = model.decide();
                    let after = model.available();
                    // What is missing after a decision was missing before, or is within the bound.
                    prop_assert!(after == before || nodes - after <= limits.max_unavailable, "{} then {}", before, after);
                    // A decision that starts a pod beside one that works keeps to the surge.
                    let beside = model.places.iter().filter(|place| {
                        let has = |current, state| place.members.iter().any(|pod| pod.is_current == current && pod.state == state);
                        has(false, State::Available) && has(true, State::Unavailable)
                    });
                    let beside: Vec<&str> = beside.map(|place| place.node.as_str()).collect();
                    let grew = plan.create.iter().any(|node| beside.contains(&node.as_str()));
                    prop_assert!(!grew || beside.len() <= max_surge, "{:?} have two", beside);
                }
                Happens::Works(nth) => if let Some(pod) = model.pick(nth, State::Unavailable) { pod.state = State::Available },
                Happens::Breaks(nth) => if let Some(pod) = model.pick(nth, State::Available) { pod.state = State::Unavailable },
                Happens::Goes(nth) => model.goes(nth),
            }
        }
        // From wherever it is, it comes to its end when nothing breaks any more.
        for _ in 0..nodes * 8 {
            model.decide();
            model.goes(0);
            if let Some(pod) = model.pick(0, State::Unavailable) { pod.state = State::Available }
        }
        while model.pick(0, State::Leaving).is_some() { model.goes(0); }
        for place in &model.places {
            prop_assert_eq!(place.members.len(), 1, "{:?}", place);
            prop_assert!(place.members[0].is_current && place.members[0].is_available(), "{:?}", place);
        }
        prop_assert_eq!(model.decide(), Plan::default(), "and then there is nothing to do");
    }
}
