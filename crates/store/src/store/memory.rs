//! Who has how much of the store's memory.
//!
//! Each of the caches, the log and the memtables has a budget ([`crate::Config`]), and what one does not
//! need at the moment another may use, in this order: the log and the memtables, which get theirs back as
//! they grow; nodes of the tree and rows of extents; outlines of rows; blocks that were read. Blocks may also
//! take what the owner finds to be left of the memory of its process.
//!
//! The owner may change the memory of all at any time. More of it is there at once; what has to be given back goes
//! a little with each turn, as freeing much takes long, and writers that are in the way of it are slowed down and
//! not stopped.

use super::Store;
use super::onodes::ONODE_BYTES;
use crate::memtable::Memtable;
use io::BLOCK_BYTES;

/// What something in memory takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many there are.
    pub items: u64,
    /// Their memory, of small things an estimate.
    pub bytes: u64,
}

/// What a store holds in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Blocks that were read.
    pub blocks: Held,
    /// Nodes of the tree.
    pub nodes: Held,
    /// Records of objects.
    pub records: Held,
    /// Rows of extents.
    pub rows: Held,
    /// Chunks of outlines of such rows.
    pub outlines: Held,
    /// Blocks that are in the log and not yet in place.
    pub log: Held,
    /// Big writes on their way to their places.
    pub direct: Held,
    /// Changes that are not in the tree yet.
    pub changes: Held,
}

/// What the owner says of the memory of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Bytes that blocks that were read may take beyond the store's budgets; or, below 0, must leave of these.
    pub beyond: isize,
    /// Bytes of all buffers for disk and network, the log's content among them. Blocks give way to what is
    /// not.
    pub buffers: usize,
}

/// Memory that is given back in a turn, when there is to be less: about a millisecond's work.
pub(super) const STEP_BYTES: usize = 4 << 20;

/// What is left of a cache that gives its memory away: one part of so many.
const KEPT_PART: usize = 16;

impl Store {
    /// Shares memory anew.
    ///
    /// That of outlines is taken from the caches of nodes and of rows, which are of the less use, the more
    /// outlines there are; and it is what log and memtables do not need at the moment. What is then left of
    /// all but the rows' has blocks.
    pub(super) fn share_memory(&mut self) {
        let (nodes, rows) = (self.config.page_cache_bytes, self.config.shard_cache_bytes);
        // Every lookup needs the inner nodes; they stay where leaves have twice as much room.
        let inner = self.rows.tree.inner as usize * BLOCK_BYTES * 3;
        let nodes_room = nodes - (nodes / KEPT_PART).max(inner).min(nodes);
        let rows_room = rows - rows / KEPT_PART;
        let (log, changes) = (self.config.wal_cache_bytes, self.config.memtable_bytes);
        let idle = (log - log / KEPT_PART).saturating_sub(self.wal.cached_bytes())
            + (changes - changes / KEPT_PART).saturating_sub(self.changed_bytes());
        self.outlines.set_room(self.config.outline_bytes.min(nodes_room + rows_room + idle));
        let taken = self.outlines.bytes();
        let from_nodes = taken.min(nodes_room);
        self.rows.pages.set_budget(nodes - from_nodes);
        self.shards.set_room(rows - (taken - from_nodes).min(rows_room));
        let left = (nodes + idle).saturating_sub(self.rows.pages.bytes() + taken);
        // What leaves the log is in buffers that wait to be used again, until they are given back.
        let lent = self.outside.buffers.saturating_sub(self.wal.cached_bytes());
        let room = left.saturating_add_signed(self.outside.beyond).saturating_sub(lent);
        self.blocks.set_room(self.config.block_cache_bytes.min(room));
    }

    /// Changes that are not in the tree yet.
    fn changed_bytes(&self) -> usize {
        self.rows.active.bytes() + self.rows.frozen.as_ref().map_or(0, Memtable::bytes)
    }

    /// What is in memory, by what it is for.
    pub fn memory(&self) -> MemoryUse {
        let held = |items: usize, bytes: usize| Held { items: items as u64, bytes: bytes as u64 };
        let log = self.wal.cached_bytes();
        let (rows, row_bytes) = self.shards.len_and_bytes();
        let direct = self.direct.bytes();
        let changes = self.rows.active.len() + self.rows.frozen.as_ref().map_or(0, Memtable::len);
        MemoryUse {
            blocks: held(self.blocks.len(), self.blocks.bytes()),
            nodes: held(self.rows.pages.len(), self.rows.pages.bytes()),
            records: held(self.onodes.len(), self.onodes.len() * ONODE_BYTES),
            rows: held(rows, row_bytes),
            outlines: held(self.outlines.len(), self.outlines.bytes()),
            log: held(log / BLOCK_BYTES, log),
            direct: Held { items: direct / BLOCK_BYTES as u64, bytes: direct },
            changes: held(changes, self.changed_bytes()),
        }
    }

    /// Says how much memory it may use from now on, as [`crate::Config::for_memory`] does for a mount.
    pub fn set_memory(&mut self, bytes: usize) {
        self.memory_wanted = bytes;
        self.work_left |= bytes != self.config.memory_bytes;
    }

    /// A step towards the memory that is wanted.
    pub(super) fn step_memory(&mut self) {
        let (now, wanted) = (self.config.memory_bytes, self.memory_wanted);
        if now == wanted {
            return;
        }
        self.config.set_memory(wanted.max(now.saturating_sub(STEP_BYTES)));
        // What changes take now goes with the next checkpoint. Writers do not wait for that.
        self.rows_limit = self.rows_limit.max(self.config.memtable_bytes / 2);
        self.rows.pages.make_room(self.config.page_cache_bytes);
        self.shards.resize(self.config.shard_cache_bytes);
        self.share_memory();
        self.rows.pages.evict();
        self.wal.set_budget(self.config.wal_cache_bytes);
        self.work_left |= self.config.memory_bytes != wanted;
    }

    /// Says how it is outside of the store.
    pub fn set_outside(&mut self, outside: Outside) {
        self.outside = outside;
        self.share_memory();
    }
}
