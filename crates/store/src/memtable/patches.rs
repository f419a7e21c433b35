//! The patches of a layer, block by block.
//!
//! A store that is written over at random has little else in its layers, and the more of it a checkpoint
//! finds for each leaf, the less it writes. So a patched block takes few bytes here: its place in one
//! number, instead of a key in a row.

use super::table::{Entries, Owned, Table};
use crate::keys::ShardId;
use crate::patch::Patch;
use std::iter::Peekable;

/// A block of an object, as one number whose order is that of the keys of shards: object id (8 bytes),
/// shard (4), slot (4).
type Spot = u128;

/// What is known of a patched block. In words of 4 bytes, so that the map has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    crc: u32,
    /// The last transaction that wrote it: lower word, upper word.
    txn: [u32; 2],
}

const _: () = assert!(size_of::<Spot>() + size_of::<Sum>() == 28);

/// Estimated memory of a patched block: 28 bytes in nodes that are two thirds full, and inner nodes.
pub(super) const PATCHED_BLOCK_BYTES: usize = 48;

/// The patched blocks of a layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patches(Table<Spot, Sum>);

fn spot((id, number): ShardId, slot: u8) -> Spot {
    Spot::from(id) << 64 | Spot::from(number) << 32 | Spot::from(slot)
}

/// Where the shards from `from` on begin; `None`: behind all of them.
fn start(from: Option<ShardId>) -> Spot {
    from.map_or(Spot::MAX, |id| spot(id, 0))
}

fn shard_of(spot: Spot) -> ShardId {
    ((spot >> 64) as u64, (spot >> 32) as u32)
}

fn slot_of(spot: Spot) -> u8 {
    spot as u8
}

impl Sum {
    fn new(crc: u32, txn: u64) -> Sum {
        Sum { crc, txn: [txn as u32, (txn >> 32) as u32] }
    }

    fn txn(self) -> u64 {
        let [low, high] = self.txn;
        u64::from(high) << 32 | u64::from(low)
    }
}

impl Patches {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Patched blocks.
    pub fn blocks(&self) -> usize {
        self.0.len()
    }

    /// Adds what a transaction changes of a shard.
    pub fn add(&mut self, id: ShardId, patch: &Patch, txn: u64) {
        for (slot, crc) in patch.slots() {
            self.0.insert(spot(id, *slot), Sum::new(*crc, txn));
        }
    }

    /// What is changed of a shard, and the last transaction that had a part in it.
    pub fn get(&self, id: ShardId) -> Option<(Patch, u64)> {
        let blocks = self.0.range(spot(id, 0)..=spot(id, u8::MAX));
        collect(blocks.map(|(spot, sum)| (*spot, *sum)))
    }

    /// Removes what there is of a shard.
    pub fn remove(&mut self, id: ShardId) {
        self.0.remove_range(spot(id, 0)..=spot(id, u8::MAX), |_, _| ());
    }

    /// Removes what there is of the shards from `from` on, up to `to`; `None`: behind all of them. The
    /// range may be empty, but not turned around.
    pub fn remove_range(&mut self, from: Option<ShardId>, to: Option<ShardId>) {
        self.0.remove_range(start(from)..start(to), |_, _| ());
    }

    /// The patched shards from `from` on, in order; `None`: behind all of them.
    pub fn from(&self, from: Option<ShardId>) -> Shards<'_> {
        Shards(self.0.range(start(from)..).peekable())
    }

    /// All patched shards, in order.
    pub fn all(&self) -> Shards<'_> {
        self.from(Some((0, 0)))
    }

    pub fn into_blocks(self) -> Blocks {
        Blocks(self.0.into_iter())
    }
}

/// One shard of blocks in order.
fn collect(blocks: impl Iterator<Item = (Spot, Sum)>) -> Option<(Patch, u64)> {
    let (mut patch, mut txn) = (Patch::default(), None);
    for (spot, sum) in blocks {
        patch.set(slot_of(spot), sum.crc);
        txn = txn.max(Some(sum.txn()));
    }
    Some((patch, txn?))
}

/// Patched shards: what is changed of each, and the last transaction that had a part in it.
pub(crate) struct Shards<'a>(Peekable<Entries<'a, Spot, Sum>>);

impl Shards<'_> {
    /// Which shard is next.
    pub fn peek(&mut self) -> Option<ShardId> {
        self.0.peek().map(|(spot, _)| shard_of(**spot))
    }
}

impl Iterator for Shards<'_> {
    type Item = (ShardId, Patch, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.peek()?;
        let blocks = &mut self.0;
        let of_shard = std::iter::from_fn(|| blocks.next_if(|(spot, _)| shard_of(**spot) == id));
        let (patch, txn) = collect(of_shard.map(|(spot, sum)| (*spot, *sum)))?;
        Some((id, patch, txn))
    }
}

/// Patches whose memory is given back in slices.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Owned<Spot, Sum>);

impl Blocks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops up to `n` blocks.
    pub fn shrink(&mut self, n: usize) {
        self.0.by_ref().take(n).for_each(drop);
    }
}
