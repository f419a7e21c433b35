//! Whom must a new primary hear from before it knows that no acknowledged write is lost?

use crate::intervals::{Interval, MapView, Mapping, PastIntervals};
use std::collections::BTreeSet;
use types::{Epoch, OsdId};

/// The answer, for one map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
    /// Up OSDs to ask: members of the current sets and of past intervals.
    pub probe: BTreeSet<OsdId>,
    /// OSDs that could know something but are down.
    pub down: BTreeSet<OsdId>,
    /// OSDs one of which must come back, because an interval that may have taken writes has no
    /// member left that is up. Empty when peering can go on.
    pub blocked_by: BTreeSet<OsdId>,
}

impl Prior {
    /// Looks at all intervals that may have taken writes since the PG was last active
    /// (`last_epoch_started`). `has_nothing`: what is known to have no copy of the PG, or an empty one.
    ///
    /// Who was given up (`lost_at`) is waited for by nobody, and vouches for nothing: with Ceph (`osd_types.h:
    /// PastIntervals::PriorSet`) it stands for all that took part in the interval, so that the PG goes on without
    /// those that are only away, and what they alone have is lost. Nor does its successor of the same number,
    /// which is there with an empty disk.
    pub fn build(
        mapping: &Mapping,
        past: &PastIntervals,
        last_epoch_started: Epoch,
        map: &dyn MapView,
        has_nothing: &dyn Fn(OsdId) -> bool,
    ) -> Prior {
        let mut prior = Prior::default();
        let current = mapping.up.iter().chain(&mapping.acting);
        prior.probe.extend(current.copied().filter(|o| o.is_some()));
        for interval in past.iter().rev() {
            if interval.last < last_epoch_started {
                break;
            }
            if interval.maybe_went_rw {
                prior.consider(interval, map, has_nothing);
            }
        }
        prior
    }

    fn consider(
        &mut self,
        interval: &Interval,
        map: &dyn MapView,
        has_nothing: &dyn Fn(OsdId) -> bool,
    ) {
        let mut survivors = 0;
        let mut down = BTreeSet::new();
        let given_up = |osd| map.lost_at(osd) > interval.first;
        // Not only of this interval: who took part in one that took writes has a copy, whenever it began.
        let knows = |osd| map.lost_at(osd) == Epoch::ZERO || !has_nothing(osd);
        for osd in interval.acting.iter().copied().filter(|o| o.is_some()) {
            if map.is_up(osd) {
                self.probe.insert(osd);
                survivors += usize::from(knows(osd));
            } else if map.exists(osd) && !given_up(osd) {
                down.insert(osd);
            }
        }
        if survivors == 0 && !down.is_empty() {
            self.blocked_by.extend(down.iter().copied());
        }
        self.down.extend(down);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::OsdSet;
    use proptest::prelude::*;

    struct Up(Vec<i32>);

    impl MapView for Up {
        fn epoch(&self) -> Epoch {
            Epoch(20)
        }
        fn exists(&self, osd: OsdId) -> bool {
            osd.0 < 9
        }
        fn is_up(&self, osd: OsdId) -> bool {
            self.0.contains(&osd.0)
        }
        fn up_from(&self, _: OsdId) -> Epoch {
            Epoch(1)
        }
        fn up_thru(&self, _: OsdId) -> Epoch {
            Epoch(1)
        }
        fn lost_at(&self, osd: OsdId) -> Epoch {
            if [6, 7, 8].contains(&osd.0) { Epoch(15) } else { Epoch::ZERO }
        }
        fn is_full(&self, _: OsdId) -> bool {
            false
        }
    }

    fn set(osds: &[i32]) -> OsdSet {
        osds.iter().map(|o| OsdId(*o)).collect()
    }

    fn interval(first: u32, last: u32, acting: &[i32], rw: bool) -> Interval {
        let (first, last, acting) = (Epoch(first), Epoch(last), set(acting));
        let (up, follows) = (acting.clone(), false);
        Interval { first, last, up, acting, primary: None, maybe_went_rw: rw, follows }
    }

    fn prior(past: &[Interval], les: u32, up: &[i32]) -> Prior {
        let mut intervals = PastIntervals::default();
        past.iter().for_each(|i| intervals.push(i.clone()));
        let mapping = Mapping { acting: set(&[0]), up: set(&[0]), ..Mapping::default() };
        let has_nothing = |osd: OsdId| osd == OsdId(7);
        Prior::build(&mapping, &intervals, Epoch(les), &Up(up.to_vec()), &has_nothing)
    }

    #[test]
    fn one_survivor_of_each_interval_is_enough() {
        let p =
            prior(&[interval(5, 9, &[1, 2], true), interval(10, 12, &[2, 3], true)], 5, &[0, 2]);
        assert_eq!(p.probe, [OsdId(0), OsdId(2)].into());
        assert_eq!(p.down, [OsdId(1), OsdId(3)].into());
        assert!(p.blocked_by.is_empty());
    }

    #[test]
    fn an_interval_without_survivor_blocks() {
        let p = prior(&[interval(5, 9, &[1, 3], true)], 5, &[0, 2]);
        assert_eq!(p.blocked_by, [OsdId(1), OsdId(3)].into());
    }

    #[test]
    fn intervals_that_took_no_writes_or_are_too_old_do_not_matter() {
        let old = interval(2, 4, &[3], true);
        let p = prior(&[old, interval(5, 9, &[1], false)], 5, &[0]);
        assert_eq!((p.probe.len(), p.blocked_by.len(), p.down.len()), (1, 0, 0));
    }

    #[test]
    fn lost_and_removed_osds_do_not_block() {
        assert!(prior(&[interval(5, 9, &[8], true)], 5, &[0]).blocked_by.is_empty());
        assert!(prior(&[interval(5, 9, &[9], true)], 5, &[0]).blocked_by.is_empty());
    }

    /// What was written while another one was away only they and it have: it must come back.
    #[test]
    fn lost_osds_and_their_successors_vouch_for_nothing() {
        let p = prior(&[interval(5, 9, &[1, 8], true)], 5, &[0, 2]);
        assert_eq!(p.blocked_by, [OsdId(1)].into(), "the operator gave up 8, not 1");
        let p = prior(&[interval(5, 9, &[1, 7], true)], 5, &[0, 7]);
        assert_eq!(p.blocked_by, [OsdId(1)].into(), "7 has an empty disk");
        assert!(p.probe.contains(&OsdId(7)));
        let p = prior(&[interval(5, 9, &[1, 6], true)], 5, &[0, 6]);
        assert!(p.blocked_by.is_empty(), "6 was given up, and came back with what it had");
        let p = prior(&[interval(16, 19, &[1, 7], true)], 5, &[0, 7]);
        assert_eq!(p.blocked_by, [OsdId(1)].into(), "7 has it since, but no copy");
        assert!(prior(&[interval(5, 9, &[7], true)], 5, &[0, 7]).blocked_by.is_empty());
    }

    /// OSDs that are up, that exist, and when each was lost.
    #[derive(Debug)]
    struct Some4([bool; 4], [bool; 4], [u32; 4]);

    impl MapView for Some4 {
        fn epoch(&self) -> Epoch {
            Epoch(99)
        }
        fn exists(&self, osd: OsdId) -> bool {
            self.1[osd.0 as usize]
        }
        fn is_up(&self, osd: OsdId) -> bool {
            self.exists(osd) && self.0[osd.0 as usize]
        }
        fn up_from(&self, _: OsdId) -> Epoch {
            Epoch(1)
        }
        fn up_thru(&self, _: OsdId) -> Epoch {
            Epoch(1)
        }
        fn lost_at(&self, osd: OsdId) -> Epoch {
            Epoch(self.2[osd.0 as usize])
        }
        fn is_full(&self, _: OsdId) -> bool {
            false
        }
    }

    fn acting() -> impl Strategy<Value = Vec<i32>> {
        proptest::sample::subsequence(vec![0, 1, 2, 3], 1..4).prop_shuffle()
    }

    proptest! {
        /// Whatever is up, gone or lost, and whenever the PG was active: of intervals that are left out the others
        /// say as much.
        #[test]
        fn what_is_left_out_makes_no_difference(
            spans in proptest::collection::vec((acting(), any::<bool>(), 1u32..4, 0u32..2), 1..24),
            up in any::<[bool; 4]>(), exist in any::<[bool; 4]>(), lost in [0u32..60, 0..60, 0..60, 0..60],
            les in 0u32..60, empty in any::<[bool; 4]>(),
        ) {
            let (mut all, mut at) = (Vec::new(), 1);
            for (acting, rw, len, gap) in spans {
                all.push(interval(at, at + len - 1, &acting, rw));
                at += len + gap;
            }
            let mut past = PastIntervals::default();
            all.iter().for_each(|i| past.push(i.clone()));
            let whole: PastIntervals = denc::decode_all(&denc::encode(&all)).unwrap();
            prop_assert_eq!(whole.len(), all.len());
            prop_assert_eq!(past.members(), whole.members());
            let (map, mapping) = (Some4(up, exist, lost), Mapping::default());
            let has_nothing = |osd: OsdId| empty[osd.0 as usize];
            let prior = |past| Prior::build(&mapping, past, Epoch(les), &map, &has_nothing);
            prop_assert_eq!(prior(&past), prior(&whole));
        }
    }
}
