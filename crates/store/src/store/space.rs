//! Is there room? And what is the room used for?
//!
//! A checkpoint must never lack space, or the store could neither go on nor give anything back. So
//! a transaction is taken only if afterwards the free blocks still suffice for writing all changed
//! nodes anew ([`node_need`]). Transactions that may not use the reserve leave that too. What was
//! freed but is not usable yet does not count; if it would make the difference, the answer is
//! "busy", and background work is hurried so that it becomes usable.

use super::checkpoint::Checkpoint;
use super::{Compressed, Life, Store, Usage};
use crate::config::{HEAD_BLOCKS, TAIL_BLOCKS, reserve_blocks};
use crate::memtable::Memtable;
use crate::tree::Tree;
use crate::tree::node::MAX_NODE_BLOCKS;
use io::BLOCK_BYTES;

/// Changes that wait to be applied to a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    rows: u64,
    bytes: u64,
    /// Rows of bitmaps and accounts.
    regions: u64,
}

impl Load {
    fn of(changes: &Memtable) -> Load {
        Load { rows: changes.len() as u64, bytes: changes.bytes() as u64, regions: 0 }
    }

    fn plus(self, other: Load) -> Load {
        Load {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            regions: self.regions + other.regions,
        }
    }
}

/// Blocks of a node beyond the first, at most.
const MORE_BLOCKS: u64 = MAX_NODE_BLOCKS as u64 - 1;
/// Slack for what every checkpoint writes.
const NODE_SLACK_BLOCKS: u64 = 8;

/// Blocks that applying `load` to `tree` takes at most before old nodes are given back.
///
/// Each change rewrites at most its leaf and, when that got small, the leaf behind it, of which one may be
/// long; new rows fill nodes at least by a quarter (a bitmap row, a quarter of a block, is counted as a block),
/// but for those beside the row of a long leaf; and each rewritten or new node may change an inner node per
/// level. How many of them are new follows from how many there are.
fn node_need(tree: Tree, load: Load) -> u64 {
    let changes = load.rows + load.regions;
    if changes == 0 {
        return 0;
    }
    let level = u64::from(tree.level);
    let inner_blocks = tree.blocks - tree.leaf_blocks;
    // Blocks of long nodes beyond the first.
    let (long, long_inner) = (tree.leaf_blocks - tree.leaves, inner_blocks - tree.inner);
    let rewritten = (2 * changes).min(2 * tree.leaves) + (MORE_BLOCKS * changes).min(long);
    let new = load.bytes / 1024 + load.regions + changes.min(2 * long);
    let inner = (level * changes).min(tree.inner) + (MORE_BLOCKS * level * changes).min(long_inner);
    let nodes = rewritten + new;
    let new_inner = nodes / 16 + 2 * nodes * inner_blocks / (tree.leaves + tree.inner).max(1);
    nodes + inner + new_inner + level + NODE_SLACK_BLOCKS
}

/// The answer to whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Yes,
    /// There will be when background work has gone on.
    Later,
    No,
}

impl Store {
    fn load(&self) -> Load {
        let regions = self.alloc.dirty_regions() + self.accounts.waiting();
        Load { regions, ..Load::of(&self.rows.active) }
    }

    /// Blocks that the running checkpoint may still take, and those the next one will.
    fn checkpoint_need(&self, more: Load) -> u64 {
        let mut tree = self.rows.tree;
        let mut running = 0;
        if let (Some(frozen), Some(checkpoint)) = (&self.rows.frozen, self.running_checkpoint()) {
            let load = Load::of(frozen);
            let whole = node_need(tree, load);
            running = whole.saturating_sub(checkpoint.written_blocks());
            // The next checkpoint finds a larger tree.
            tree.leaves += whole;
            let blocks = whole + load.bytes / BLOCK_BYTES as u64;
            tree.blocks += blocks;
            tree.leaf_blocks += blocks;
            tree.level += 1;
        }
        running + node_need(tree, self.load().plus(more))
    }

    pub(super) fn reserve(&self) -> u64 {
        reserve_blocks(&self.config, self.sb.total_blocks)
    }

    /// Whether a transaction of these changes fits; its data has been taken already.
    pub(super) fn room_for(&self, changes: &Memtable, may_use_reserve: bool) -> Room {
        let load = Load::of(changes);
        let reserve = if may_use_reserve { 0 } else { self.reserve() };
        let free = self.alloc.free_blocks();
        if free >= self.checkpoint_need(load) + reserve {
            return Room::Yes;
        }
        let soon = free + self.alloc.quarantined() + self.coming_pages();
        let changing = soon > free || !self.rows.active.is_empty() || self.rows.frozen.is_some();
        if changing && soon >= node_need(self.rows.tree, load) + reserve {
            return Room::Later;
        }
        Room::No
    }

    /// Whether `short` more blocks than are free will be free.
    pub(super) fn will_have(&self, short: u64) -> bool {
        self.alloc.quarantined() + self.coming_pages() >= short
    }

    /// Blocks of nodes that are free as soon as a commit is done.
    fn coming_pages(&self) -> u64 {
        self.old_page_blocks + self.running_checkpoint().map_or(0, |c| c.freed_blocks())
    }

    /// The checkpoint that is being made or committed.
    pub(super) fn running_checkpoint(&self) -> Option<&Checkpoint> {
        let committing = self.commit.as_ref().and_then(|c| c.checkpoint());
        self.checkpoint.as_ref().or(committing)
    }

    /// Bytes that a transaction which may use the reserve finds at most, when so many percent of the
    /// reserve are to be left.
    pub fn spare_bytes(&self, kept_percent: u64) -> u64 {
        let kept = self.reserve() * kept_percent / 100 + self.checkpoint_need(Load::default());
        self.alloc.free_blocks().saturating_sub(kept) * BLOCK_BYTES as u64
    }

    /// What the space is used for.
    pub fn usage(&self) -> Usage {
        let block = BLOCK_BYTES as u64;
        let total = self.sb.total_blocks;
        let on_data = self.wal.place.dev == 0;
        let log = if on_data { self.wal.place.blocks } else { 0 };
        let freeing = self.alloc.quarantined();
        let free = self.alloc.free_blocks();
        let packed = self.accounts.total();
        let kept = self.reserve() + self.checkpoint_need(Load::default());
        Usage {
            total: total * block,
            system: (HEAD_BLOCKS + TAIL_BLOCKS) * block,
            log: log * block,
            log_used: self.wal.used_blocks() * block,
            data: self.alloc.data_blocks() * block,
            shared: self.totals.shared * block,
            compressed: packed.blocks * block,
            compressed_bytes: packed.bytes,
            compressed_original: packed.content * block,
            metadata: self.alloc.page_blocks() * block,
            freeing: freeing * block,
            free: free * block,
            reserve: kept.min(free) * block,
            available: free.saturating_sub(kept) * block,
            objects: self.totals.objects,
            object_bytes: self.totals.bytes,
        }
    }

    /// What compression did, by the accounts of transactions ([`crate::Transaction::account`]).
    pub fn compressed(&self) -> impl Iterator<Item = Compressed> {
        let block = BLOCK_BYTES as u64;
        self.accounts.iter().map(move |(account, sums)| Compressed {
            account,
            original: sums.content * block,
            allocated: sums.blocks * block,
            stored: sums.bytes,
        })
    }

    /// Checks that every block is accounted for once.
    ///
    /// # Panics
    /// When the figures do not add up, which is a bug.
    pub fn check_accounting(&self) {
        let u = self.usage();
        let sum = u.system + u.log + u.data + u.metadata + u.freeing + u.free;
        assert_eq!(sum, u.total, "every block is used for one thing: {u:?}");
        assert!(self.life != Life::Closed || u.freeing == 0, "a closed store frees nothing");
    }
}
