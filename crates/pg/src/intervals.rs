//! Past intervals: in which spans of epochs might somebody have written without us?
//!
//! A PG may go active again only after it has heard from at least one member of *every* past
//! interval that could have accepted writes since the PG last went active; else an acknowledged
//! write could be lost. Source: Ceph `osd/osd_types.cc: PastIntervals`.
//!
//! A PG may be unclean for months while OSDs come and go. Of intervals with the same acting set only the newest
//! is kept, as nothing follows from the older ones that does not follow from it: the same OSDs may have what was
//! written, and one of them that was lost since then was lost since the older ones, too. So there are as many as
//! there were acting sets. (Ceph also drops those of which a later acting set is a part. If all of that are
//! removed from the cluster, nobody waits any more for the others.)

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use types::{Epoch, OsdId, PgId};

/// OSDs in the order of a mapping. Holes ([`OsdId::NONE`]) occur in erasure-coded PGs only.
pub type OsdSet = SmallVec<[OsdId; 4]>;

/// Up and acting set of a PG and their primaries; `None` when there is no primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Where CRUSH wants the copies, OSDs that are up.
    pub up: OsdSet,
    /// First of `up`.
    pub up_primary: Option<OsdId>,
    /// Who serves the PG now.
    pub acting: OsdSet,
    /// Who serves clients.
    pub acting_primary: Option<OsdId>,
}

/// What peering must know of an OSDMap; implemented for the real one by `osd`.
pub trait MapView {
    /// The map's epoch.
    fn epoch(&self) -> Epoch;
    /// Whether the OSD is part of the cluster.
    fn exists(&self, osd: OsdId) -> bool;
    /// Whether the OSD is up.
    fn is_up(&self, osd: OsdId) -> bool;
    /// Epoch the OSD came up last.
    fn up_from(&self, osd: OsdId) -> Epoch;
    /// The map promises that the OSD was alive up to this epoch.
    fn up_thru(&self, osd: OsdId) -> Epoch;
    /// Epoch the operator declared the OSD's data lost, or zero.
    fn lost_at(&self, osd: OsdId) -> Epoch;
    /// Whether the OSD has no space for objects that it misses.
    fn is_full(&self, osd: OsdId) -> bool;
}

/// The pool's settings that decide over intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRules {
    /// Wanted copies.
    pub size: u32,
    /// Copies without which no write is taken.
    pub min_size: u32,
    /// PGs of the pool: a change splits or merges.
    pub pg_num: u32,
    /// What `pg_num` is about to be: less while PGs are made ready to be merged.
    pub pg_num_pending: u32,
}

/// A span of epochs with one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Who acted.
    pub acting: OsdSet,
    /// Who was up.
    pub up: OsdSet,
    /// Who led.
    pub primary: Option<OsdId>,
    /// Whether writes may have been accepted.
    pub maybe_went_rw: bool,
    /// Between the one before it and this one there were only such that later ones stand for.
    pub follows: bool,
}

impl Interval {
    /// Whether nothing follows from an older one that does not follow from this one.
    fn stands_for(&self, older: &Interval) -> bool {
        let within = |a: &OsdSet, b: &OsdSet| a.iter().all(|osd| b.contains(osd));
        let same = within(&self.acting, &older.acting) && within(&older.acting, &self.acting);
        same && (self.maybe_went_rw || !older.maybe_went_rw)
    }
}

/// Intervals before the current one, oldest first, back to when the PG was last clean; those that later ones
/// stand for are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastIntervals {
    list: Vec<Interval>,
}

impl PastIntervals {
    /// The intervals, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Interval> {
        self.list.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Forgets everything: the PG is clean.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// First epoch that is covered.
    pub fn start(&self) -> Option<Epoch> {
        self.list.first().map(|i| i.first)
    }

    /// Adds the interval that has just ended.
    ///
    /// # Panics
    /// When it does not follow the ones there are.
    pub fn push(&mut self, mut interval: Interval) {
        assert!(interval.first <= interval.last, "an interval ends after it starts");
        if let Some(newest) = self.list.last() {
            assert!(newest.last < interval.first, "intervals are added in order");
            interval.follows = newest.last == interval.first.prev();
        }
        self.list.push(interval);
        self.keep_newest();
    }

    /// Leaves out what later ones stand for.
    fn keep_newest(&mut self) {
        let mut kept: Vec<Interval> = Vec::new();
        for interval in self.list.drain(..).rev() {
            if !kept.iter().any(|later| later.stands_for(&interval)) {
                kept.push(interval);
            } else if let Some(next) = kept.last_mut() {
                next.follows &= interval.follows;
            }
        }
        kept.reverse();
        self.list = kept;
    }

    /// Takes the history of a copy that has followed the PG for longer than we have.
    pub fn adopt_if_longer(&mut self, other: &PastIntervals) {
        let older = match (self.start(), other.start()) {
            (None, Some(_)) => true,
            (Some(ours), Some(theirs)) => theirs < ours,
            _ => false,
        };
        if !older {
            return;
        }
        let from = self.start().unwrap_or(Epoch(u32::MAX));
        let mut list: Vec<_> = other.list.iter().filter(|i| i.last < from).cloned().collect();
        if let (Some(before), Some(first)) = (list.last(), self.list.first_mut()) {
            first.follows = before.last == first.first.prev();
        }
        list.append(&mut self.list);
        self.list = list;
        self.keep_newest();
    }

    /// Everybody who acted in any of the intervals.
    pub fn members(&self) -> BTreeSet<OsdId> {
        self.list.iter().flat_map(|i| i.acting.iter().copied()).filter(|o| o.is_some()).collect()
    }
}

/// Whether writes may have been accepted in the interval `first..` that `map` is the last map of.
pub fn maybe_went_rw(old: &Mapping, first: Epoch, rules: PoolRules, map: &dyn MapView) -> bool {
    let members = old.acting.iter().filter(|o| o.is_some()).count();
    let Some(primary) = old.acting_primary else {
        return false;
    };
    members > 0
        && members >= rules.min_size as usize
        && map.up_from(primary) <= first
        && map.up_thru(primary) >= first
}

/// Whether the step from one map to the next starts a new interval of a PG. Splits and merges of other
/// PGs of its pool do not.
pub fn is_new_interval(
    pgid: PgId,
    (old, old_rules): (&Mapping, PoolRules),
    (new, new_rules): (&Mapping, PoolRules),
) -> bool {
    let what_counts =
        |r: PoolRules| (r.size, r.min_size, bits_of_hash(pgid.seed, r.pg_num), r.is_premerge(pgid));
    old != new || what_counts(old_rules) != what_counts(new_rules)
}

/// How many bits of an object's hash must be those of a PG's seed, in a pool of so many.
fn bits_of_hash(seed: u32, pg_num: u32) -> u32 {
    let Some(high) = pg_num.checked_ilog2() else { return 0 };
    let mask = (1u32 << high) - 1;
    high + u32::from(seed & mask < pg_num & mask)
}

impl Encode for Interval {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 1, |e| {
            e.put(&self.first).put(&self.last).put(&self.acting).put(&self.up);
            e.put(&self.primary).put(&self.maybe_went_rw).put(&self.follows);
        });
    }
}

impl Decode for Interval {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, version| {
            let interval = Interval {
                first: d.get()?,
                last: d.get()?,
                acting: d.get()?,
                up: d.get()?,
                primary: d.get()?,
                maybe_went_rw: d.get()?,
                follows: version >= 2 && d.get()?,
            };
            if interval.first > interval.last {
                return Err(d.invalid("an interval that ends before it starts"));
            }
            Ok(interval)
        })
    }
}

impl Encode for PastIntervals {
    fn encode(&self, e: &mut Encoder) {
        self.list.encode(e);
    }
}

impl Decode for PastIntervals {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut list: Vec<Interval> = d.get()?;
        if list.windows(2).any(|w| matches!(w, [a, b] if a.last >= b.first)) {
            return Err(d.invalid("past intervals out of order"));
        }
        // Before version 2 there were all of them.
        let mut before = None;
        for interval in &mut list {
            interval.follows |= before == Some(interval.first.prev());
            before = Some(interval.last);
        }
        Ok(PastIntervals { list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(first: u32, last: u32, acting: &[i32], maybe_went_rw: bool) -> Interval {
        let acting: OsdSet = acting.iter().map(|o| OsdId(*o)).collect();
        let (first, last, up) = (Epoch(first), Epoch(last), acting.clone());
        Interval { first, last, acting, up, primary: None, maybe_went_rw, follows: false }
    }

    fn past(list: &[Interval]) -> PastIntervals {
        let mut past = PastIntervals::default();
        list.iter().for_each(|i| past.push(i.clone()));
        past
    }

    /// First epoch, and whether it follows the one before.
    fn kept(past: &PastIntervals) -> Vec<(u32, bool)> {
        past.iter().map(|i| (i.first.0, i.follows)).collect()
    }

    #[test]
    fn an_osd_that_flaps_for_ever_leaves_a_few_intervals() {
        let mut past = past(&[interval(1, 9, &[0, 1, 2], true)]);
        for i in 10..10_000 {
            let acting: &[i32] = if i % 2 == 0 { &[0, 1] } else { &[1, 0, 3] };
            past.push(interval(i, i, acting, i % 3 == 0));
        }
        assert_eq!(kept(&past), [(1, false), (9996, true), (9998, true), (9999, true)]);
        assert!(denc::encode(&past).len() < 1000);
    }

    #[test]
    fn what_took_no_writes_does_not_stand_for_what_did() {
        let did = interval(1, 2, &[0, 1], true);
        let list = [did, interval(3, 4, &[1, 0], false), interval(5, 5, &[1], true)];
        let mut some = past(&list);
        assert_eq!(kept(&some), [(1, false), (3, true), (5, true)]);
        some.push(interval(6, 6, &[0, 1], true));
        assert_eq!(kept(&some), [(5, false), (6, true)]);
    }

    #[test]
    fn a_gap_stays_one() {
        let mut some = past(&[interval(1, 2, &[0], true), interval(4, 4, &[1], true)]);
        some.push(interval(5, 6, &[2], true));
        some.push(interval(7, 8, &[1], true));
        assert_eq!(kept(&some), [(1, false), (5, false), (7, true)]);
    }

    #[test]
    fn a_longer_history_is_adopted_without_what_ours_stands_for() {
        let older = past(&[
            interval(1, 2, &[0, 1], true),
            interval(3, 4, &[1, 2], true),
            interval(5, 6, &[0], true),
        ]);
        let mut ours = past(&[interval(5, 6, &[0], true), interval(7, 9, &[1, 0], true)]);
        ours.adopt_if_longer(&older);
        assert_eq!(kept(&ours), [(3, false), (5, true), (7, true)]);
    }

    /// All were kept, and none said whether it follows.
    #[test]
    fn what_was_stored_first_is_read() {
        let list = [interval(1, 2, &[0], true), interval(3, 3, &[0], true)];
        let mut e = Encoder::new();
        e.put(&2u32);
        for i in &list {
            e.section(1, 1, |e| {
                e.put(&i.first).put(&i.last).put(&i.acting).put(&i.up);
                e.put(&i.primary).put(&i.maybe_went_rw);
            });
        }
        let mut read: PastIntervals = denc::decode_all(&e.into_bytes()).unwrap();
        assert_eq!(kept(&read), [(1, false), (3, true)]);
        assert_eq!(denc::decode_all::<PastIntervals>(&denc::encode(&read)).unwrap(), read);
        read.push(interval(4, 4, &[0], true));
        assert_eq!(kept(&read), [(4, false)]);
        let end = interval(1, u32::MAX, &[0], true);
        let read: PastIntervals = denc::decode_all(&denc::encode(&past(&[end]))).unwrap();
        assert_eq!(read.len(), 1);
    }
}
