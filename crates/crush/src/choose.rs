//! How one bucket chooses one of its items (`bucket_*_choose` in `crush/mapper.c`).
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use crate::bucket::{Bucket, Weights, tree_step};
use crate::hash::{LANES, hash3, hash3_lanes, hash4};
use crate::ln::crush_ln;
use crate::map::{ChooseArg, ItemId};
use smallvec::SmallVec;

/// Buckets up to this size are permuted without allocation.
const INLINE_PERM: usize = 32;
/// Below it lies every [`crush_ln`].
const LN_ONE: u64 = 1 << 48;

/// Chooses by the bucket's algorithm. `None` only for an empty bucket, or a tree whose weights
/// lead to a leaf without an item.
#[inline]
pub(crate) fn choose(
    b: &Bucket,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
    perm: &mut Permutation,
) -> Option<ItemId> {
    match &b.weights {
        Weights::Straw2(weights) => {
            let (weights, ids) = match arg {
                None => (weights.as_slice(), b.items.as_slice()),
                Some(arg) => substituted(b, weights, arg, position),
            };
            b.items.get(straw2(b, weights, ids, x, r)).copied()
        }
        Weights::Uniform(_) => perm.choose(b, x, r),
        Weights::List { items, sums } => list(b, items, sums, x, r),
        Weights::Tree(nodes) => tree(b, nodes, x, r),
        Weights::Straw { straws, .. } => straw(b, straws, x, r),
    }
}

/// All bits when the bucket's hash function is the one there is; no bits otherwise: an unknown
/// function gives 0.
fn hash_mask(b: &Bucket) -> u32 {
    if b.hash == 0 { u32::MAX } else { 0 }
}

/// The weights and ids that choose_args put in place of the bucket's own.
fn substituted<'a>(
    b: &'a Bucket,
    weights: &'a [u32],
    arg: &'a ChooseArg,
    position: usize,
) -> (&'a [u32], &'a [ItemId]) {
    let set = arg.weight_sets.get(position).or(arg.weight_sets.last());
    let ids = if arg.ids.is_empty() { &b.items } else { &arg.ids };
    (set.map_or(weights, Vec::as_slice), ids)
}

/// The index of the item whose exponentially distributed draw, scaled by its weight, is best.
///
/// Ceph computes `draw = -(2^48 - ln(hash)) / weight`, rounded towards zero, and the first highest
/// wins. Here the sign is dropped, the lowest wins, and the division is done for a new winner
/// only: `a / w < best` is the same as `a < best * w`.
fn straw2(b: &Bucket, weights: &[u32], ids: &[ItemId], x: u32, r: u32) -> usize {
    let mask = hash_mask(b) & 0xffff;
    let (mut winner, mut best) = (0usize, u64::MAX);
    let mut consider = |pos: usize, hash: u32, weight: u32| {
        let a = LN_ONE.wrapping_sub(crush_ln((hash & mask) as u16));
        if u128::from(a) < u128::from(best).wrapping_mul(u128::from(weight)) {
            best = a.checked_div(u64::from(weight)).unwrap_or(best);
            winner = pos;
        }
    };
    let mut pos = 0usize;
    for (group, weights) in ids.chunks(LANES).zip(weights.chunks(LANES)) {
        // A last group that is not full costs as much as a full one.
        let mut lanes = [0; LANES];
        for (lane, &id) in lanes.iter_mut().zip(group) {
            *lane = id as u32;
        }
        for (hash, &weight) in hash3_lanes(x, lanes, r).into_iter().zip(weights) {
            consider(pos, hash, weight);
            pos = pos.wrapping_add(1);
        }
    }
    winner
}

/// From the newest item back: each is taken with the probability of its weight in the sum so far.
fn list(b: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> Option<ItemId> {
    let mask = hash_mask(b) & 0xffff;
    let entries = b.items.iter().zip(weights).zip(sums).rev();
    for ((&item, &weight), &sum) in entries {
        let w = u64::from(hash4(x, item as u32, r, b.id as u32) & mask);
        if w.wrapping_mul(u64::from(sum)) >> 16 < u64::from(weight) {
            return Some(item);
        }
    }
    b.items.first().copied()
}

fn tree(b: &Bucket, nodes: &[u32], x: u32, r: u32) -> Option<ItemId> {
    let mask = hash_mask(b);
    let mut node = nodes.len() >> 1;
    while node & 1 == 0 {
        let weight = u64::from(*nodes.get(node)?);
        let hash = u64::from(hash4(x, node as u32, r, b.id as u32) & mask);
        let point = hash.wrapping_mul(weight) >> 32;
        let step = tree_step(node);
        let left = node.wrapping_sub(step);
        node = if point < u64::from(*nodes.get(left)?) { left } else { node.wrapping_add(step) };
        if step == 0 {
            return None;
        }
    }
    b.items.get(node >> 1).copied()
}

fn straw(b: &Bucket, straws: &[u32], x: u32, r: u32) -> Option<ItemId> {
    let mask = hash_mask(b) & 0xffff;
    let mut best = None;
    for (&item, &straw) in b.items.iter().zip(straws) {
        let hash = hash3(x, item as u32, r) & mask;
        let draw = u64::from(hash).wrapping_mul(u64::from(straw));
        if best.is_none_or(|(high, _)| draw > high) {
            best = Some((draw, item));
        }
    }
    best.map(|(_, item)| item)
}

/// The random permutation of one bucket's items, as far as it was needed (`bucket_perm_choose`).
/// Kept over one mapping, where the same bucket is often asked again.
#[derive(Default)]
pub(crate) struct Permutation {
    /// Whose items; 0 is nobody's.
    bucket: ItemId,
    /// Places that are final.
    done: usize,
    order: SmallVec<[u32; INLINE_PERM]>,
}

impl Permutation {
    /// The item at place `r` (modulo the size) of the permutation that `x` gives.
    pub(crate) fn choose(&mut self, b: &Bucket, x: u32, r: u32) -> Option<ItemId> {
        let n = u32::try_from(b.items.len()).ok()?;
        let place = r.checked_rem(n)? as usize;
        if self.bucket != b.id {
            self.bucket = b.id;
            self.done = 0;
            self.order.clear();
            self.order.extend(0..n);
        }
        let mask = hash_mask(b);
        while self.done <= place {
            let left = n.wrapping_sub(self.done as u32);
            if left > 1 {
                let hash = hash3(x, b.id as u32, self.done as u32) & mask;
                let other = self.done.wrapping_add(hash.checked_rem(left)? as usize);
                if other < self.order.len() {
                    self.order.swap(self.done, other);
                }
            }
            self.done = self.done.wrapping_add(1);
        }
        let pos = *self.order.get(place)?;
        b.items.get(pos as usize).copied()
    }
}
