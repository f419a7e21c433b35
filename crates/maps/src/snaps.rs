//! Sets of snapshot ids as intervals, as the maps carry them (`snap_interval_set_t`).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use std::fmt;
use types::SnapId;

/// A set of snapshot ids: disjoint intervals that do not touch. `vec<{u64 start, u64 length}>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// Start -> the first id after the interval.
    intervals: BTreeMap<u64, u64>,
}

impl SnapSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// How many ids are in it.
    pub fn len(&self) -> u64 {
        let lengths = self.intervals.iter().map(|(start, end)| end.saturating_sub(*start));
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether an id is in it.
    pub fn contains(&self, snap: SnapId) -> bool {
        let before = self.intervals.range(..=snap.0).next_back();
        before.is_some_and(|(_, &end)| snap.0 < end)
    }

    /// The intervals: first id and length, ascending.
    pub fn intervals(&self) -> impl DoubleEndedIterator<Item = (SnapId, u64)> {
        let pair = |(&start, &end): (&u64, &u64)| (SnapId(start), end.saturating_sub(start));
        self.intervals.iter().map(pair)
    }

    /// The intervals of what is in it from an id on, and before another: first id and length, ascending.
    pub fn within(&self, from: SnapId, end: SnapId) -> impl Iterator<Item = (SnapId, u64)> {
        let first = self.intervals.range(..=from.0).next_back().map_or(from.0, |(start, _)| *start);
        let cut = move |(&s, &e): (&u64, &u64)| (s.max(from.0), e.min(end.0));
        let pieces = self.intervals.range(first..end.0.max(first)).map(cut);
        pieces.filter(|(s, e)| s < e).map(|(s, e)| (SnapId(s), e.saturating_sub(s)))
    }

    /// All ids, ascending. There may be very many.
    pub fn iter(&self) -> impl Iterator<Item = SnapId> {
        self.intervals.iter().flat_map(|(&start, &end)| (start..end).map(SnapId))
    }

    /// Adds one id. Whether it is new.
    pub fn insert(&mut self, snap: SnapId) -> bool {
        let new = !self.contains(snap);
        self.insert_range(snap, 1);
        new
    }

    /// Adds `len` ids from `start` on.
    pub fn insert_range(&mut self, start: SnapId, len: u64) {
        let (mut start, mut end) = (start.0, start.0.saturating_add(len));
        if start >= end {
            return;
        }
        // Everything that overlaps or touches becomes one interval.
        while let Some((&s, &e)) = self.intervals.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.intervals.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.intervals.insert(start, end);
    }

    /// Removes one id. Whether it was in it.
    pub fn remove(&mut self, snap: SnapId) -> bool {
        let found = self.contains(snap);
        self.remove_range(snap, 1);
        found
    }

    /// Removes `len` ids from `start` on, where they are.
    pub fn remove_range(&mut self, start: SnapId, len: u64) {
        let (start, end) = (start.0, start.0.saturating_add(len));
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.intervals.range(..end).next_back() {
            if e <= start {
                break;
            }
            self.intervals.remove(&s);
            if e > end {
                self.intervals.insert(end, e);
            }
            if s < start {
                self.intervals.insert(s, start);
            }
        }
    }

    /// Adds all of another set.
    pub fn union_with(&mut self, other: &SnapSet) {
        for (start, len) in other.intervals() {
            self.insert_range(start, len);
        }
    }

    /// Removes all of another set.
    pub fn subtract(&mut self, other: &SnapSet) {
        for (start, len) in other.intervals() {
            self.remove_range(start, len);
        }
    }

    /// Keeps what is in the other set too.
    pub fn intersect(&mut self, other: &SnapSet) {
        let common = |(&start, &end): (&u64, &u64)| other.within(SnapId(start), SnapId(end));
        let both = self.intervals.iter().flat_map(common);
        self.intervals = both.map(|(s, len)| (s.0, s.0.saturating_add(len))).collect();
    }
}

impl FromIterator<SnapId> for SnapSet {
    fn from_iter<I: IntoIterator<Item = SnapId>>(snaps: I) -> Self {
        let mut set = SnapSet::new();
        for snap in snaps {
            set.insert(snap);
        }
        set
    }
}

impl fmt::Display for SnapSet {
    /// `[1~2,5~1]`: start and length in hex, as Ceph prints interval sets of snapshots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (start, len)) in self.intervals().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{:x}~{len:x}", start.0)?;
        }
        f.write_str("]")
    }
}

impl Encode for SnapSet {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.intervals.len());
        for (start, len) in self.intervals() {
            e.put(&start).put(&len);
        }
    }
}

impl Decode for SnapSet {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut set = SnapSet::new();
        for _ in 0..d.count()? {
            let (start, len) = (d.get()?, d.get()?);
            set.insert_range(start, len);
        }
        Ok(set)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u64),
        Remove(u64, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..40u64, 0..9u64).prop_map(|(s, n)| Op::Insert(s, n)),
            (0..40u64, 0..9u64).prop_map(|(s, n)| Op::Remove(s, n)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(ops in prop::collection::vec(op(), 0..30)) {
            let (mut set, mut model) = (SnapSet::new(), BTreeSet::new());
            for op in ops {
                match op {
                    Op::Insert(s, n) => {
                        set.insert_range(SnapId(s), n);
                        model.extend(s..s + n);
                    }
                    Op::Remove(s, n) => {
                        set.remove_range(SnapId(s), n);
                        model.retain(|id| !(s..s + n).contains(id));
                    }
                }
                prop_assert!(set.iter().map(|s| s.0).eq(model.iter().copied()));
                prop_assert_eq!(set.len(), model.len() as u64);
                let ends: Vec<_> = set.intervals().map(|(s, n)| (s.0, s.0 + n)).collect();
                prop_assert!(ends.windows(2).all(|w| w[0].1 < w[1].0), "merged: {set}");
                let read: SnapSet = denc::decode_all(&denc::encode(&set)).unwrap();
                prop_assert_eq!(&read, &set);
            }
        }

        #[test]
        fn intersects_as_sets_of_numbers(a in prop::collection::vec((0..40u64, 0..9u64), 0..8),
                                         b in prop::collection::vec((0..40u64, 0..9u64), 0..8)) {
            let set = |ranges: &[(u64, u64)]| {
                let mut set = SnapSet::new();
                ranges.iter().for_each(|(s, n)| set.insert_range(SnapId(*s), *n));
                set
            };
            let (mut both, b) = (set(&a), set(&b));
            let model: Vec<_> = both.iter().filter(|id| b.contains(*id)).collect();
            both.intersect(&b);
            prop_assert_eq!(both, model.into_iter().collect());
        }

        #[test]
        fn is_cut_at_both_ends(a in prop::collection::vec((0..40u64, 0..9u64), 0..8),
                               from in 0..50u64, end in 0..50u64) {
            let mut set = SnapSet::new();
            a.iter().for_each(|(s, n)| set.insert_range(SnapId(*s), *n));
            let model = set.iter().filter(|id| (from..end).contains(&id.0));
            let within = set.within(SnapId(from), SnapId(end)).flat_map(|(s, n)| s.0..s.0 + n);
            prop_assert!(within.eq(model.map(|id| id.0)));
        }
    }

    #[test]
    fn is_printed_in_hex() {
        let set: SnapSet = [1, 2, 10].into_iter().map(SnapId).collect();
        assert_eq!(set.to_string(), "[1~2,a~1]");
        assert!(set.contains(SnapId(2)) && !set.contains(SnapId(3)));
    }
}
