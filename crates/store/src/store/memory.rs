//! Who has how much of the store's memory.
//!
//! Each of the caches, the log and the memtables has a budget ([`crate::Config`]), and what one does not
//! need at the moment another may use, in this order: the log and the memtables, which get theirs back as
//! they grow; nodes of the tree and rows of extents; outlines of rows; blocks that were read. Blocks may also
//! take what the owner finds to be left of the memory of its process.

use super::Store;
use crate::memtable::Memtable;
use io::BLOCK_BYTES;

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
        let room = left.saturating_add_signed(self.beyond_bytes);
        self.blocks.set_room(self.config.block_cache_bytes.min(room));
    }

    /// Changes that are not in the tree yet.
    fn changed_bytes(&self) -> usize {
        self.rows.active.bytes() + self.rows.frozen.as_ref().map_or(0, Memtable::bytes)
    }

    /// From now on blocks that were read may take so many bytes beyond what the budgets leave, or must
    /// leave as many of these alone.
    pub fn set_memory_beyond(&mut self, bytes: isize) {
        self.beyond_bytes = bytes;
        self.share_memory();
    }
}
