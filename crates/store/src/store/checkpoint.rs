//! Checkpoints: applying the memtable to the tree.
//!
//! 1. *Freeze*: the memtable is put aside; the log position behind its last transaction is noted.
//! 2. *Wait* until all its transactions are recorded.
//! 3. *Bitmaps*: the changed bitmap rows of that moment join the frozen memtable.
//! 4. *Apply*, in slices; nodes that are missing are read, new ones written as runs.
//! 5. When all writes are done, a commit brings the new tree into force.
//!
//! New transactions go on meanwhile, in a new memtable.

use super::inflight::DATA;
use super::space::Need;
use super::{Ended, Life, Store};
use crate::keys;
use crate::mount::walk::is_possible;
use crate::superblock::{LogPos, Totals};
use crate::tree::apply::{Apply, Step};
use crate::tree::node::{Node, PagePtr};
use bytes::Bytes;
use io::disk::{DiskError, WriteMode};
use io::{BLOCK_BYTES, Effects};
use smallvec::SmallVec;
use std::sync::Arc;
use types::HashMap;

/// Entries that one slice looks at: 0.1 ms where each is one of many in its leaf, 2 ms at most where
/// leaves are new and memory is slow.
const SLICE_ENTRIES: usize = 250;
/// Bitmap rows of one slice.
const SLICE_BITMAPS: usize = 64;
/// Longest write of new nodes, in blocks.
const WRITE_BLOCKS: usize = 128;
/// Blocks of new nodes in flight before the walk pauses.
const WRITING_BLOCKS: u64 = 2048;
/// Longest read of old nodes, in blocks. The checkpoints before wrote them in the order in which this one
/// needs them, but it does not need all of them.
const READ_BLOCKS: u64 = 64;
/// So many blocks of other nodes between two are read with them: that costs less than another read.
const GAP_BLOCKS: u64 = 8;
/// How often a node of the tree is read again before the checkpoint gives up.
const READ_TRIES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Wait,
    Bitmaps,
    Apply,
    Writes,
    Ready,
}

/// A running checkpoint.
pub(crate) struct Checkpoint {
    /// What the tree will hold: everything before this position.
    pub rows: LogPos,
    pub totals: Totals,
    pub next_id: u64,
    pub next_txn: u64,
    pub apply: Apply,
    phase: Phase,
    /// Rows of the frozen memtable, for telling how far it is.
    size: usize,
    done: usize,
    reading: usize,
    /// How often each node that could not be read was read by itself, until it could.
    tries: HashMap<u64, u32>,
    /// Nodes that wait to be written.
    queue: Vec<(PagePtr, Arc<Node>)>,
    writing_blocks: u64,
    /// What it has taken of free blocks.
    written: Need,
}

impl Checkpoint {
    /// What it has taken of free blocks so far.
    pub fn written(&self) -> Need {
        self.written
    }

    /// Blocks of old nodes that the commit will free.
    pub fn freed_blocks(&self) -> u64 {
        self.apply.freed_blocks
    }

    /// The part of `whole` that corresponds to what is done.
    pub fn progress(&self, whole: usize) -> usize {
        match self.phase {
            Phase::Wait => 0,
            Phase::Writes | Phase::Ready => whole,
            _ => {
                (whole as u128 * self.done.min(self.size) as u128 / self.size.max(1) as u128)
                    as usize
            }
        }
    }

    /// Whether it waits for nothing but that the log calls all up to `decided` decided.
    pub fn waits_for(&self, decided: u64) -> bool {
        self.phase == Phase::Wait && decided + 1 >= self.next_txn
    }

    /// Whether only the commit is left.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }
}

impl Store {
    /// Whether a checkpoint should begin.
    fn wants_checkpoint(&self) -> bool {
        let end = self.wal.end();
        let behind = end.at - self.sb.rows.at.min(end.at);
        if self.rows.active.is_empty() && behind == 0 && !self.wal.has_open() {
            return self.is_closing() && !self.sb.clean && self.is_settled();
        }
        let full =
            self.checkpoint_wanted || self.rows.active.bytes() >= self.config.memtable_bytes / 2;
        let long = behind >= self.log_blocks() / 3;
        full || long || self.pressure || (self.is_closing() && self.is_settled())
    }

    /// Closing: whether all that must come before the last checkpoint has happened.
    fn is_settled(&self) -> bool {
        self.txns.in_flight() == 0
            && !self.wal.has_open()
            && !self.wal.has_pending()
            && self.alloc.quarantined() == 0
            && self.wal.recorded() >= self.txns.decided()
    }

    fn begin_checkpoint(&mut self) {
        let rows = if self.wal.has_open() { self.wal.seal() } else { self.wal.end() };
        let frozen = std::mem::take(&mut self.rows.active);
        self.alloc.freeze();
        self.accounts.freeze();
        self.checkpoint = Some(Checkpoint {
            rows,
            totals: self.totals,
            next_id: self.next_id,
            next_txn: self.txns.next(),
            apply: Apply::new(self.rows.tree, self.sb.generation + 1),
            phase: Phase::Wait,
            size: frozen.len(),
            done: 0,
            reading: 0,
            tries: HashMap::default(),
            queue: Vec::new(),
            writing_blocks: 0,
            written: Need::default(),
        });
        self.rows.frozen = Some(frozen);
        self.rows_limit = self.config.memtable_bytes / 2;
        self.checkpoint_wanted = false;
    }

    /// One slice of the running checkpoint, or the beginning of one.
    pub(super) fn step_checkpoint(&mut self, fx: &mut Effects) {
        if self.checkpoint.is_none() {
            // Nothing begins before the last one is cleared away; that takes nothing from the wish.
            if self.commit.is_some() || !self.garbage.is_empty() {
                return;
            }
            if !self.wants_checkpoint() {
                self.checkpoint_wanted = false;
                return;
            }
            self.begin_checkpoint();
        }
        let Some(checkpoint) = &mut self.checkpoint else { return };
        match checkpoint.phase {
            Phase::Wait => {
                let recorded = self.wal.recorded() + 1 >= checkpoint.next_txn;
                if recorded && self.wal.durable_seq() + 1 >= checkpoint.rows.seq {
                    checkpoint.phase = Phase::Bitmaps;
                    self.work_left = true;
                } else {
                    self.mark_wanted = true;
                }
            }
            Phase::Bitmaps => self.freeze_bitmaps(),
            Phase::Apply => self.step_apply(fx),
            Phase::Writes => {
                if checkpoint.writing_blocks == 0 {
                    checkpoint.phase = Phase::Ready;
                    self.work_left = true;
                }
            }
            Phase::Ready => {}
        }
    }

    fn freeze_bitmaps(&mut self) {
        let (Some(checkpoint), Some(frozen)) = (&mut self.checkpoint, &mut self.rows.frozen) else {
            return;
        };
        self.work_left = true;
        for _ in 0..SLICE_BITMAPS {
            let Some((region, row)) = self.alloc.pop_frozen() else {
                for (key, row) in self.accounts.take_frozen() {
                    frozen.put(key, row, 0);
                }
                checkpoint.phase = Phase::Apply;
                checkpoint.size = frozen.len();
                return;
            };
            frozen.put(keys::bitmap(region), row, 0);
        }
    }

    fn step_apply(&mut self, fx: &mut Effects) {
        let (Some(checkpoint), Some(frozen)) = (&mut self.checkpoint, &self.rows.frozen) else {
            return;
        };
        if checkpoint.reading > 0 || checkpoint.writing_blocks >= WRITING_BLOCKS {
            return;
        }
        let mut budget = SLICE_ENTRIES;
        let step = checkpoint.apply.step(frozen, &self.rows.pages, &mut self.alloc, &mut budget);
        checkpoint.done += (SLICE_ENTRIES - budget) / 2;
        for (ptr, node) in checkpoint.apply.written.drain(..) {
            checkpoint.written.add_node(ptr.blocks);
            checkpoint.queue.push((ptr, node));
        }
        match step {
            Step::More => {
                self.write_nodes(false, fx);
                self.work_left = true;
            }
            Step::Need(ptrs) => {
                // None of the new ones waits to be written where something is read.
                self.write_nodes(true, fx);
                self.read_nodes(ptrs, fx);
            }
            Step::Done => {
                checkpoint.phase = Phase::Writes;
                self.write_nodes(true, fx);
                self.work_left = true;
            }
            Step::Damaged { block, what } => {
                self.fatal("a checkpoint", format!("tree node at block {block}: {what}"));
            }
            Step::NoSpace => self.fatal("a checkpoint", "the space kept for it did not suffice"),
        }
        self.unblock();
    }

    fn read_nodes(&mut self, mut ptrs: Vec<PagePtr>, fx: &mut Effects) {
        if let Some(ptr) = ptrs.iter().find(|ptr| !is_possible(**ptr, self.sb.total_blocks)) {
            let why = format!("a pointer leads out of the device, to block {}", ptr.block);
            return self.fatal("a checkpoint", why);
        }
        ptrs.sort_unstable_by_key(|ptr| ptr.block);
        let mut rest = ptrs.as_slice();
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.close_together(rest));
            self.read_run(run, fx);
            rest = others;
        }
    }

    /// How many of these nodes, in the order of their places, one read takes in: at least one.
    ///
    /// What stands between them are nodes, too: their blocks are not freed, and so not written, while
    /// something is in flight on them.
    fn close_together(&self, ptrs: &[PagePtr]) -> usize {
        let Some(first) = ptrs.first() else { return 0 };
        let mut end = end_of(*first);
        let fits = |ptr: &&PagePtr| {
            let gap = ptr.block.checked_sub(end).filter(|gap| *gap <= GAP_BLOCKS);
            let is_quiet = |len| {
                len == 0 || self.alloc.are_nodes(end, len) && !self.io.writes.overlaps(end, len)
            };
            let is_close = gap.is_some_and(is_quiet);
            end = end_of(**ptr);
            is_close && end - first.block <= READ_BLOCKS
        };
        1 + ptrs.iter().skip(1).take_while(fits).count()
    }

    /// Reads nodes, in the order of their places, in one piece.
    fn read_run(&mut self, run: &[PagePtr], fx: &mut Effects) {
        let (Some(checkpoint), [first, ..]) = (&mut self.checkpoint, run) else { return };
        let blocks = run.last().map_or(0, |last| end_of(*last) - first.block);
        checkpoint.reading += 1;
        self.counters.nodes_read += run.len() as u64;
        self.io.read(fx, DATA, first.block, blocks, Ended::CheckpointRead { ptrs: run.into() });
    }

    /// Nodes of the old tree were read. One that is not what it should be is read again by itself.
    pub(super) fn checkpoint_read(
        &mut self,
        ptrs: Box<[PagePtr]>,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        checkpoint.reading -= 1;
        self.work_left = true;
        let alone = ptrs.len() == 1;
        let start = ptrs.first().map_or(0, |first| first.block);
        let read = result.map_err(|error| error.to_string());
        for ptr in ptrs {
            let from = (ptr.block - start) as usize * BLOCK_BYTES;
            let to = from + usize::from(ptr.blocks) * BLOCK_BYTES;
            let checked = match &read {
                Ok(bytes) => {
                    // Less than was asked for does not have the checksum.
                    let bytes = bytes.slice(from.min(bytes.len())..to.min(bytes.len()));
                    super::fetch::check_node(ptr, bytes).map_err(str::to_string)
                }
                Err(error) => Err(error.clone()),
            };
            let Some(checkpoint) = &mut self.checkpoint else { return };
            match checked {
                Ok(node) => {
                    checkpoint.tries.remove(&ptr.block);
                    checkpoint.apply.provide(ptr, Arc::new(node));
                }
                Err(why) => {
                    let tries = checkpoint.tries.entry(ptr.block).or_insert(0);
                    if !alone || *tries < READ_TRIES {
                        *tries += u32::from(alone);
                        self.read_run(&[ptr], fx);
                        continue;
                    }
                    let why = format!("tree node at block {}: {why}", ptr.block);
                    return self.fatal("a checkpoint", why);
                }
            }
        }
    }

    /// Writes queued nodes as runs; short runs wait for more unless it is the end.
    fn write_nodes(&mut self, all: bool, fx: &mut Effects) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        if !all && checkpoint.queue.len() < WRITE_BLOCKS {
            return;
        }
        let mut queue = std::mem::take(&mut checkpoint.queue);
        queue.sort_unstable_by_key(|(ptr, _)| ptr.block);
        let mut run: SmallVec<[Bytes; 4]> = SmallVec::new();
        let (mut start, mut end) = (0, 0);
        let mut runs = Vec::new();
        for (ptr, node) in queue {
            if ptr.block != end || run.len() >= WRITE_BLOCKS {
                if !run.is_empty() {
                    runs.push((start, end, std::mem::take(&mut run)));
                }
                (start, end) = (ptr.block, ptr.block);
            }
            run.push(node.bytes().clone());
            end += u64::from(ptr.blocks);
            self.counters.nodes_written += 1;
            self.counters.node_bytes += node.bytes().len() as u64;
            self.rows.pages.insert(ptr, node);
        }
        if !run.is_empty() {
            runs.push((start, end, run));
        }
        for (start, end, data) in runs {
            checkpoint.writing_blocks += end - start;
            let what = Ended::CheckpointWrite { blocks: end - start };
            self.io.write(fx, (DATA, start), data, WriteMode::Plain, what);
        }
    }

    /// A run of new nodes was written.
    pub(super) fn checkpoint_written(&mut self, blocks: u64, result: Result<Bytes, DiskError>) {
        if !self.must("writing tree nodes", result) {
            return;
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.writing_blocks -= blocks;
        }
        self.work_left = true;
    }

    /// The commit made the checkpoint's tree the store's.
    pub(super) fn finish_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.rows.tree = checkpoint.apply.new;
        self.reserved_stretches = None;
        self.counters.checkpoints += 1;
        self.old_page_blocks += checkpoint.apply.freed_blocks;
        match self.old_pages.is_empty() {
            // There may be hundreds of thousands.
            true => self.old_pages = checkpoint.apply.freed.into(),
            false => self.old_pages.extend(checkpoint.apply.freed),
        }
        assert!(self.garbage.is_empty(), "a checkpoint begins when the one before is cleared away");
        self.garbage = self.rows.frozen.take().unwrap_or_default().into();
        assert!(self.life != Life::Closed, "a closed store commits nothing");
    }
}

/// The block behind a node.
fn end_of(ptr: PagePtr) -> u64 {
    ptr.block + u64::from(ptr.blocks)
}
