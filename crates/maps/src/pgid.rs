//! The arithmetic of PG seeds: which hash belongs to which PG, what a split makes of a PG, and
//! the range of objects a PG has.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use types::{ByteString, HObject, PgId, SnapId};

/// Reduces a hash to `0..b` so that growing `b` moves as little as possible (`ceph_stable_mod`).
/// `mask` is [`pg_num_mask`] of `b`.
#[inline]
pub fn stable_mod(x: u32, b: u32, mask: u32) -> u32 {
    let low = x & mask;
    if low < b { low } else { x & (mask >> 1) }
}

/// The lowest mask of ones that all seeds below `pg_num` fit in.
#[inline]
pub fn pg_num_mask(pg_num: u32) -> u32 {
    match pg_num {
        0 | 1 => 0,
        n => u32::MAX >> n.saturating_sub(1).leading_zeros(),
    }
}

/// What PG ids can tell by their numbers alone (`pg_t`).
pub trait PgIdExt: Sized {
    /// The PG this one came from when its pool had fewer PGs (`get_ancestor`).
    #[must_use]
    fn ancestor(self, old_pg_num: u32) -> Self;

    /// The PG this one was split from: without the highest bit of the seed (`get_parent`). Seed 0
    /// is its own parent.
    #[must_use]
    fn parent(self) -> Self;

    /// The PGs that are split from this one when the pool grows (`is_split`); none when it does
    /// not exist before.
    fn split_children(self, old_pg_num: u32, new_pg_num: u32) -> Vec<Self>;

    /// Whether this PG is split when the pool grows. A client resends its ops then.
    fn is_split(&self, old_pg_num: u32, new_pg_num: u32) -> bool;

    /// The PG this one is merged into when the pool shrinks (`is_merge_source`).
    fn merge_target(self, old_pg_num: u32, new_pg_num: u32) -> Option<Self>;

    /// Whether other PGs are merged into this one when the pool shrinks (`is_merge_target`).
    fn is_merge_target(&self, old_pg_num: u32, new_pg_num: u32) -> bool;

    /// How many low bits of a hash decide that it belongs to this PG (`get_split_bits`).
    fn split_bits(self, pg_num: u32) -> u32;

    /// Whether an object's hash belongs to this PG.
    fn contains_hash(self, hash: u32, pg_num: u32) -> bool;

    /// Before all objects of this PG in the order of objects (`get_hobj_start`).
    fn first_object(self) -> HObject;

    /// After all objects of this PG: the start of the next PG in the order of objects, or the
    /// maximum (`get_hobj_end`). A PG is one range of bit-reversed hashes.
    fn end_of_objects(self, pg_num: u32) -> HObject;
}

impl PgIdExt for PgId {
    fn ancestor(self, old_pg_num: u32) -> Self {
        let seed = stable_mod(self.seed, old_pg_num, pg_num_mask(old_pg_num));
        PgId::new(self.pool, seed)
    }

    fn parent(self) -> Self {
        let highest = self.seed.checked_ilog2().map_or(0, |bit| 1 << bit);
        PgId::new(self.pool, self.seed & !highest)
    }

    fn split_children(self, old_pg_num: u32, new_pg_num: u32) -> Vec<Self> {
        if self.seed >= old_pg_num || new_pg_num <= old_pg_num {
            return Vec::new();
        }
        children(self, old_pg_num, new_pg_num).collect()
    }

    fn is_split(&self, old_pg_num: u32, new_pg_num: u32) -> bool {
        self.seed < old_pg_num
            && new_pg_num > old_pg_num
            && children(*self, old_pg_num, new_pg_num).next().is_some()
    }

    fn merge_target(self, old_pg_num: u32, new_pg_num: u32) -> Option<Self> {
        if !(new_pg_num..old_pg_num).contains(&self.seed) {
            return None;
        }
        let mut target = self;
        while target.seed >= new_pg_num && target.seed > 0 {
            target = target.parent();
        }
        Some(target)
    }

    fn is_merge_target(&self, old_pg_num: u32, new_pg_num: u32) -> bool {
        self.seed < new_pg_num && self.is_split(new_pg_num, old_pg_num)
    }

    fn split_bits(self, pg_num: u32) -> u32 {
        if pg_num <= 1 {
            return 0;
        }
        // pg_num is in 2^high .. 2^(high + 1); the PGs below the remainder are split already.
        let high = pg_num.ilog2();
        let mask = (1u32 << high).wrapping_sub(1);
        high.saturating_add(u32::from(self.seed & mask < pg_num & mask))
    }

    fn contains_hash(self, hash: u32, pg_num: u32) -> bool {
        stable_mod(hash, pg_num, pg_num_mask(pg_num)) == self.seed
    }

    fn first_object(self) -> HObject {
        border(self, self.seed, SnapId(0))
    }

    fn end_of_objects(self, pg_num: u32) -> HObject {
        let bits = self.split_bits(pg_num);
        let ones = u32::MAX.checked_shr(bits).unwrap_or(0);
        let last = self.seed.reverse_bits() | ones;
        match last.checked_add(1) {
            Some(next) => border(self, next.reverse_bits(), SnapId::HEAD),
            None => HObject::max(),
        }
    }
}

/// The seeds between the two numbers that belong to `pg` as long as there are `old` PGs.
fn children(pg: PgId, old: u32, new: u32) -> impl Iterator<Item = PgId> {
    let mask = pg_num_mask(old);
    // Seeds that differ from ours only above the mask's half can come from us.
    let step = mask.wrapping_add(1).checked_shr(1).unwrap_or(1).max(1);
    let first = u64::from(pg.seed & step.wrapping_sub(1));
    let seeds = (first..u64::from(new)).step_by(step as usize);
    seeds
        .filter_map(|seed| u32::try_from(seed).ok())
        .filter(move |&seed| seed >= old && stable_mod(seed, old, mask) == pg.seed)
        .map(move |seed| PgId::new(pg.pool, seed))
}

fn border(pg: PgId, hash: u32, snap: SnapId) -> HObject {
    HObject {
        pool: pg.pool,
        hash,
        nspace: ByteString::default(),
        key: ByteString::default(),
        name: ByteString::default(),
        snap,
        max: false,
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::PoolId;

    fn pg(seed: u32) -> PgId {
        PgId::new(PoolId(3), seed)
    }

    #[test]
    fn masks() {
        let masks: Vec<u32> = [0, 1, 2, 3, 4, 5, 8, 9, 12, 100].map(pg_num_mask).to_vec();
        assert_eq!(masks, [0, 0, 1, 3, 3, 7, 7, 15, 15, 127]);
        assert_eq!(pg_num_mask(u32::MAX), u32::MAX);
    }

    #[test]
    fn listing_order_of_eight_pgs() {
        let mut order = vec![0];
        while let Some(&seed) = order.last() {
            let end = pg(seed).end_of_objects(8);
            if end.max {
                break;
            }
            order.push(end.hash);
        }
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    proptest! {
        #[test]
        fn splits_are_what_the_hash_says(old in 1..70u32, more in 0..200u32) {
            let new = old + more;
            for seed in 0..old {
                // All that is in this PG before and in another one after.
                let expected: Vec<PgId> = (old..new)
                    .filter(|&s| stable_mod(s, old, pg_num_mask(old)) == seed)
                    .map(pg)
                    .collect();
                prop_assert_eq!(pg(seed).split_children(old, new), expected.clone());
                prop_assert_eq!(pg(seed).is_split(old, new), !expected.is_empty());
                for child in expected {
                    prop_assert_eq!(child.ancestor(old), pg(seed));
                    prop_assert_eq!(child.merge_target(new, old), Some(pg(seed)));
                    prop_assert!(pg(seed).is_merge_target(new, old));
                }
            }
        }

        #[test]
        fn a_pg_is_one_range_of_objects(pg_num in 1..300u32, hash: u32) {
            let seed = stable_mod(hash, pg_num, pg_num_mask(pg_num));
            let object = HObject { name: "x".into(), ..border(pg(0), hash, SnapId::HEAD) };
            for s in [seed, 0, pg_num - 1] {
                let p = pg(s);
                let inside = p.first_object() <= object && object < p.end_of_objects(pg_num);
                prop_assert_eq!(inside, p.contains_hash(hash, pg_num), "seed {}", s);
            }
        }
    }
}
