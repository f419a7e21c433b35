//! Is there room? And what is the room used for?
//!
//! A checkpoint must never lack space, or the store could neither go on nor give anything back. So
//! a transaction is taken only if afterwards the free blocks still suffice for writing all changed
//! nodes anew ([`node_need`]), and those of several blocks find a place (`alloc::stretches`).
//! Transactions that may not use the reserve leave that too. What was freed but is not usable yet
//! does not count; if it would make the difference, the answer is "busy", and background work is
//! hurried so that it becomes usable.

use super::checkpoint::Checkpoint;
use super::{AccountUsage, Compressed, Life, Store, Usage};
use crate::accounts::{AccountSums, PackedSums};
use crate::alloc::{STRETCH_BLOCKS, stretches_for};
use crate::config::{HEAD_BLOCKS, TAIL_BLOCKS, reserve_blocks};
use crate::memtable::{LONG_KEY_BYTES, Long, Memtable};
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
    long: Long,
}

impl Load {
    fn of(changes: &Memtable) -> Load {
        let (rows, bytes) = (changes.len() as u64, changes.bytes() as u64);
        Load { rows, bytes, regions: 0, long: changes.long() }
    }

    #[inline]
    fn plus(self, other: Load) -> Load {
        Load {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            regions: self.regions + other.regions,
            long: self.long.plus(other.long),
        }
    }
}

/// What a checkpoint takes of free blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// For nodes of one block.
    pub single: u64,
    /// Longer nodes, and blocks for them: those of each must stand together.
    pub long_nodes: u64,
    pub long_blocks: u64,
}

impl Need {
    fn stretches(self) -> u64 {
        stretches_for(self.long_blocks).min(self.long_nodes)
    }

    fn blocks(self) -> u64 {
        self.single + self.stretches() * STRETCH_BLOCKS
    }

    #[inline]
    fn plus(self, other: Need) -> Need {
        Need {
            single: self.single + other.single,
            long_nodes: self.long_nodes + other.long_nodes,
            long_blocks: self.long_blocks + other.long_blocks,
        }
    }

    fn without(self, done: Need) -> Need {
        Need {
            single: self.single.saturating_sub(done.single),
            long_nodes: self.long_nodes.saturating_sub(done.long_nodes),
            long_blocks: self.long_blocks.saturating_sub(done.long_blocks),
        }
    }

    /// Counts a node that was written.
    pub fn add_node(&mut self, blocks: u16) {
        let is_long = blocks > 1;
        self.single += u64::from(!is_long);
        self.long_nodes += u64::from(is_long);
        self.long_blocks += if is_long { u64::from(blocks) } else { 0 };
    }
}

/// Slack for what every checkpoint writes.
const NODE_SLACK_BLOCKS: u64 = 8;
/// The part of the reserve that is in stretches.
const STRETCHES_SHARE: u64 = 2;
/// Stretches of the reserve, at most.
const RESERVE_STRETCHES: u64 = 4096;

/// What applying `load` to `tree` takes at most before old nodes are given back.
///
/// Each change rewrites at most its leaf and, when that got small, the leaf behind it; new rows fill nodes
/// at least by a quarter (a bitmap row, a quarter of a block, is counted as a block), but for those beside
/// the row of a long leaf; and each rewritten or new node may change an inner node per level. How many of
/// them are new follows from how many there are.
fn node_need(tree: Tree, load: Load) -> Need {
    let changes = load.rows + load.regions;
    if changes == 0 {
        return Need::default();
    }
    let level = u64::from(tree.level);
    let more = tree.leaf_blocks - tree.leaves;
    let rows = load.long.rows as u64;
    let bytes = load.bytes.saturating_sub(load.long.row_bytes as u64);
    let new = bytes / 1024 + load.regions + changes.min(2 * (more + rows));
    let nodes = (2 * changes).min(2 * tree.leaves) + new;
    let inner_blocks = tree.blocks - tree.leaf_blocks;
    let inner = (level * changes).min(tree.inner);
    let new_inner = nodes / 16 + 2 * nodes * inner_blocks / (tree.leaves + tree.inner).max(1);
    let single = nodes + inner + new_inner + level + NODE_SLACK_BLOCKS;
    long_need(tree, load, changes).plus(Need { single, ..Need::default() })
}

/// Nodes of more than one block that applying `load` to `tree` writes at most.
///
/// Of a long node at least half of the blocks are beyond its first, so that of all of them there are at most
/// twice as many. A long leaf has one row, and a leaf takes in the one behind it only if it is not long itself.
/// Keys of rows come into inner nodes where leaves are parted, on each level a quarter of those below, and
/// lengthen what else is there.
fn long_need(tree: Tree, load: Load, changes: u64) -> Need {
    let longest = u64::from(MAX_NODE_BLOCKS);
    let inner_blocks = tree.blocks - tree.leaf_blocks;
    let (more, more_inner) = (tree.leaf_blocks - tree.leaves, inner_blocks - tree.inner);
    let (rows, row_bytes) = (load.long.rows as u64, load.long.row_bytes as u64);
    let key_bytes = load.long.key_bytes as u64;
    if more + more_inner + rows + key_bytes == 0 {
        return Need::default();
    }
    let leaves = changes.min(more) + rows;
    let leaf_blocks = (longest * changes).min(2 * more) + row_bytes / BLOCK_BYTES as u64 + 2 * rows;
    let rewritten = (2 * u64::from(tree.level) * changes).min(more_inner);
    let rewritten_blocks = (longest * rewritten).min(2 * more_inner);
    let lengthened = 2 * (key_bytes / LONG_KEY_BYTES as u64).min(tree.inner + 1);
    let new_blocks = 3 * key_bytes.div_ceil(BLOCK_BYTES as u64) + lengthened;
    Need {
        single: 0,
        long_nodes: leaves + rewritten + new_blocks.div_ceil(2),
        long_blocks: leaf_blocks + rewritten_blocks + new_blocks,
    }
}

/// What a transaction wants space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It leaves the reserve.
    Ordinary,
    /// It may use the reserve, and leaves what removals need of it.
    Upkeep,
    /// It gives more back than it takes. Only that leads out when all is full, so it may use the rest.
    Removal,
}

impl Purpose {
    /// What it leaves of a reserve.
    fn leaves(self, reserve: u64) -> u64 {
        match self {
            Purpose::Ordinary => reserve,
            Purpose::Upkeep => reserve / REMOVALS_SHARE,
            Purpose::Removal => 0,
        }
    }
}

/// The part of the reserve that is for removals.
const REMOVALS_SHARE: u64 = 8;

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

    /// What the running checkpoint may still take, and what the next one will.
    fn checkpoint_need(&self, more: Load) -> Need {
        let mut tree = self.rows.tree;
        let mut running = Need::default();
        if let (Some(frozen), Some(checkpoint)) = (&self.rows.frozen, self.running_checkpoint()) {
            let load = Load::of(frozen);
            let whole = node_need(tree, load);
            running = whole.without(checkpoint.written());
            // The next checkpoint finds a larger tree.
            tree.leaves += whole.single;
            tree.leaf_blocks += whole.single + whole.long_blocks;
            tree.blocks += whole.single + 2 * whole.long_blocks;
            tree.level += 1;
        }
        running.plus(node_need(tree, self.load().plus(more)))
    }

    pub(super) fn reserve(&self) -> u64 {
        reserve_blocks(&self.config, self.sb.total_blocks)
    }

    /// Whether a transaction of these changes fits; its data has been taken already.
    pub(super) fn room_for(&mut self, changes: &Memtable, purpose: Purpose) -> Room {
        let load = Load::of(changes);
        let reserve = purpose.leaves(self.reserve());
        let need = self.checkpoint_need(load);
        let free = self.alloc.free_blocks();
        if free >= need.blocks() + reserve && self.has_stretches(need, purpose, load.long) {
            return Room::Yes;
        }
        let soon = free + self.alloc.quarantined() + self.coming_pages();
        let changing = soon > free || !self.rows.active.is_empty() || self.rows.frozen.is_some();
        let alone = node_need(self.rows.tree, load);
        if changing
            && soon >= alone.blocks() + reserve
            && self.has_stretches(alone, purpose, load.long)
        {
            return Room::Later;
        }
        Room::No
    }

    /// Whether the long nodes of `need` find a place. A part of the reserve is kept in stretches as long as
    /// there are such, and is there for all that changes when no more are to be found; what is `long` itself
    /// uses up to half of it.
    fn has_stretches(&mut self, need: Need, purpose: Purpose, long: Long) -> bool {
        let kept = self.alloc.kept_stretches();
        if self.reserved_stretches.is_some_and(|reserved| kept >= need.stretches() + reserved) {
            self.in_pieces = false;
            return true;
        }
        let spare = self.alloc.free_blocks().saturating_sub(need.blocks()).min(self.reserve());
        let reserve = (spare / STRETCHES_SHARE / STRETCH_BLOCKS).min(RESERVE_STRETCHES);
        if self.alloc.keep_stretches(need.stretches() + reserve) {
            self.in_pieces = false;
            self.reserved_stretches = Some(reserve);
            return true;
        }
        let share = if long == Long::default() { REMOVALS_SHARE } else { STRETCHES_SHARE };
        let left = purpose.leaves(reserve / share);
        self.in_pieces = self.alloc.kept_stretches() < need.stretches() + left;
        !self.in_pieces
    }

    /// Gives back for data what was kept for long nodes that will not be written; true when there was some.
    pub(super) fn give_up_stretches(&mut self) -> bool {
        let need = self.checkpoint_need(Load::default());
        self.reserved_stretches = None;
        self.alloc.give_up_stretches(need.stretches())
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
        let kept =
            self.reserve() * kept_percent / 100 + self.checkpoint_need(Load::default()).blocks();
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
        let packed = self.accounts.total().packed;
        let kept = self.reserve() + self.checkpoint_need(Load::default()).blocks();
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
            available: if self.in_pieces { 0 } else { free.saturating_sub(kept) * block },
            objects: self.totals.objects,
            object_bytes: self.totals.bytes,
        }
    }

    /// What data takes, by the accounts of transactions ([`crate::Transaction::account`]). `None` when that is not
    /// known: in a store of an earlier version that was not counted anew, or when something was changed under
    /// another account than its own.
    pub fn by_account(&self) -> Option<Vec<AccountUsage>> {
        let usage = |(account, sums): (u64, AccountSums)| AccountUsage {
            account,
            allocated: sums.data * BLOCK_BYTES as u64,
            stored: u64::try_from(sums.stored).unwrap_or(0),
        };
        self.accounts
            .is_known(self.alloc.data_blocks())
            .then(|| self.accounts.iter().map(usage).collect())
    }

    /// What compression did, by account.
    pub fn compressed(&self) -> impl Iterator<Item = Compressed> {
        let block = BLOCK_BYTES as u64;
        let compressed =
            self.accounts.iter().filter(|(_, sums)| sums.packed != PackedSums::default());
        compressed.map(move |(account, AccountSums { packed, .. })| Compressed {
            account,
            original: packed.content * block,
            allocated: packed.blocks * block,
            stored: packed.bytes,
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
        let accounts = &self.accounts;
        let is_excused = accounts.is_given_up() || accounts.below_zero() > 0;
        assert!(
            is_excused || accounts.is_known(self.alloc.data_blocks()),
            "every block of data is in one account: {accounts:?}, {u:?}"
        );
    }
}
