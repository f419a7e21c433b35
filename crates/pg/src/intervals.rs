//! Past intervals: in which spans of epochs might somebody have written without us?
//!
//! A PG may go active again only after it has heard from at least one member of *every* past
//! interval that could have accepted writes since the PG last went active; else an acknowledged
//! write could be lost. Source: Ceph `osd/osd_types.cc: PastIntervals`.

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
}

/// Intervals before the current one, oldest first, back to when the PG was last clean.
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
    pub fn push(&mut self, interval: Interval) {
        assert!(interval.first <= interval.last, "an interval ends after it starts");
        if let Some(newest) = self.list.last() {
            assert!(newest.last < interval.first, "intervals are added in order");
        }
        self.list.push(interval);
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
        list.append(&mut self.list);
        self.list = list;
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
        e.section(1, 1, |e| {
            e.put(&self.first).put(&self.last).put(&self.acting).put(&self.up);
            e.put(&self.primary).put(&self.maybe_went_rw);
        });
    }
}

impl Decode for Interval {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| {
            let interval = Interval {
                first: d.get()?,
                last: d.get()?,
                acting: d.get()?,
                up: d.get()?,
                primary: d.get()?,
                maybe_went_rw: d.get()?,
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
        let list: Vec<Interval> = d.get()?;
        if list.windows(2).any(|w| matches!(w, [a, b] if a.last >= b.first)) {
            return Err(d.invalid("past intervals out of order"));
        }
        Ok(PastIntervals { list })
    }
}
