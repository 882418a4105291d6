//! Both views of the ledger stay equal, and rest ends when it should.

use proptest::prelude::*;

use super::*;
use crate::naive;

fn holding() -> impl Strategy<Value = Option<Holding<u8>>> {
    let released = (0..5_u64).prop_map(|second| {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        Holding::Released(Rest { since, period: Duration::from_mins(1) })
    });
    prop::option::of(prop_oneof![(0..4_u8).prop_map(Holding::Owned), released])
}

#[test]
fn rest_lasts_its_period() {
    let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
    let now = at(100);
    let minute = |since| Rest { since: at(since), period: Duration::from_mins(1) };
    assert_eq!(minute(40).until(now), None);
    assert_eq!(minute(41).until(now), Some(at(101)));
    assert_eq!(minute(100).until(now), Some(at(160)));
    assert_eq!(minute(500).until(now), Some(at(560)), "a clock that is ahead");
    assert_eq!(Rest { period: Duration::ZERO, ..minute(100) }.until(now), None);
    assert!(Rest { period: Duration::MAX, ..minute(0) }.until(now).is_some());
}

proptest! {
    #[test]
    fn both_views_are_equal(
        notes in prop::collection::vec((naive::address(), holding()), 0..60),
        interval in naive::interval(),
    ) {
        let mut ledger = Ledger::default();
        let mut model = BTreeMap::new();
        for (address, holding) in notes {
            if let Some(holding) = holding {
                prop_assert_eq!(ledger.note(address, holding.clone()), model.insert(address, holding));
            } else {
                prop_assert_eq!(ledger.forget(address), model.remove(&address));
            }
        }
        for owner in 0..4 {
            let owned: Vec<IpAddr> = model
                .iter()
                .filter(|(_, holding)| **holding == Holding::Owned(owner))
                .map(|(address, _)| *address)
                .collect();
            prop_assert_eq!(ledger.owned_by(&owner).collect::<Vec<_>>(), owned);
        }
        let within: Vec<_> = ledger.within(&interval).map(|(address, holding)| (address, holding.clone())).collect();
        let expected: Vec<_> = model.clone().into_iter().filter(|(address, _)| interval.contains(*address)).collect();
        prop_assert_eq!(within, expected);
        prop_assert_eq!(model.into_iter().collect::<Ledger<u8>>(), ledger);
    }
}
