//! From a transaction to what it comes to.
//!
//! A plan works out the new rows, blocks and allocations of a transaction without changing the
//! store, but for blocks that are taken and given back if it comes to nothing. When something that
//! must be read is not in memory it stops with all that it knows to be missing; the transaction is
//! planned again from its beginning when that is there.

mod blobs;
mod clone;
mod data;
pub(crate) mod logged;
mod refs;
mod values;

use crate::accounts::AccountDelta;
use crate::alloc::{Allocator, Run, push_run};
use crate::codec::Decoded;
use crate::compress::Codec;
use crate::gaps::Gaps;
use crate::keys::{self, Key};
use crate::memtable::{Found, Memtable};
use crate::rows::{Onode, Slot};
use crate::store::blocks::BlockCache;
use crate::store::direct::DirectWrites;
use crate::store::miss::{ReadSet, Wants};
use crate::store::onodes::{KnownRow, OnodeCache, ShardCache};
use crate::store::outlines::Outlines;
use crate::store::txns::Txns;
use crate::tree::cache::PageCache;
use crate::tree::{Tree, TreeMiss};
use crate::txn::{Invalid, ObjectIx, Op, Transaction};
use crate::view::View;
use crate::wal::Wal;
use crate::wal::format::{Crcs, Delta, Direct};
use bytes::Bytes;
use denc::Arena;
use io::BLOCK_BYTES;
use logged::LoggedBlocks;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use types::ObjectKey;

/// The rows of the store: memtables over the tree.
pub(crate) struct Rows {
    pub active: Memtable,
    pub frozen: Option<Memtable>,
    pub tree: Tree,
    pub pages: PageCache,
    /// What scans found to be removed.
    pub gaps: Gaps,
}

impl Rows {
    /// Takes in the changes of transaction `txn`.
    pub fn absorb(&mut self, changes: Memtable, txn: u64) -> Decoded<()> {
        // What they put may be where there was nothing.
        self.close_gaps();
        self.active.absorb(changes, txn)
    }

    /// Deletes as ranges what scans found to be removed, before anything else changes.
    #[inline]
    pub fn close_gaps(&mut self) {
        // Nearly always there are none.
        if !self.gaps.is_empty() {
            self.delete_gaps();
        }
    }

    fn delete_gaps(&mut self) {
        for gap in self.gaps.take() {
            let to = gap.to();
            self.active.delete_range(gap.from, to, gap.txn);
        }
    }

    /// All layers, to be read.
    pub fn view(&self) -> View<'_> {
        let layers = std::iter::once(&self.active).chain(&self.frozen).collect();
        View { layers, tree: self.tree, pages: &self.pages, watch: None, gaps: Some(&self.gaps) }
    }

    /// The row of a key, and the transaction that made it so (0: long ago).
    pub fn get(&self, key: &[u8]) -> Result<(Option<Bytes>, u64), TreeMiss> {
        let by = Cell::new(0);
        let watch = |txn| by.set(txn);
        let row = View { watch: Some(&watch), ..self.view() }.get(key)?;
        Ok((row, by.get()))
    }
}

/// Why a plan came to nothing.
#[derive(Debug)]
pub(crate) enum PlanError {
    Miss(Wants),
    /// So many blocks are not free.
    NoSpace {
        short: u64,
    },
    /// It builds on a transaction of another sequencer that may yet be lost.
    Conflict,
    Invalid(Invalid),
}

impl From<Wants> for PlanError {
    fn from(wants: Wants) -> Self {
        PlanError::Miss(wants)
    }
}

impl From<TreeMiss> for PlanError {
    fn from(miss: TreeMiss) -> Self {
        PlanError::Miss(miss.into())
    }
}

impl From<Invalid> for PlanError {
    fn from(why: Invalid) -> Self {
        PlanError::Invalid(why)
    }
}

pub(crate) type Planned<T> = Result<T, PlanError>;

/// What planning looks at.
pub(crate) struct Context<'a> {
    pub rows: &'a Rows,
    pub onodes: &'a OnodeCache,
    pub shards: &'a ShardCache,
    pub outlines: &'a Outlines,
    pub kept: &'a BlockCache,
    pub wal: &'a Wal,
    pub direct: &'a DirectWrites,
    pub txns: &'a Txns,
    pub fetched: &'a ReadSet,
    /// Writes shorter than this go into the log.
    pub small_write_bytes: u64,
    pub codec: &'a RefCell<Codec>,
    /// For rows.
    pub arena: &'a RefCell<Arena>,
}

/// An object of the transaction as it is at this point of the plan.
#[derive(Clone, Debug, Default)]
struct ObjectState {
    loaded: bool,
    onode: Option<Onode>,
    /// The store has a record of it.
    had: bool,
    /// Its [`Onode::padding`].
    had_padding: u64,
    dirty: bool,
}

/// Data that goes straight to its place.
#[derive(Debug)]
pub(crate) struct DirectData {
    pub run: Run,
    pub data: Bytes,
    /// crc32c of each block.
    pub crcs: Vec<u32>,
}

/// What a transaction comes to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub changes: Memtable,
    /// The records that change, as they will be.
    pub onodes: SmallVec<[(ObjectKey, Option<Onode>); 2]>,
    pub next_id: u64,
    pub delta: Delta,
    pub counts: AccountDelta,
    pub taken: Vec<Run>,
    pub freed: Vec<Run>,
    /// Blocks for the log.
    pub blocks: LoggedBlocks,
    pub direct: Vec<DirectData>,
    /// Overwrites of blocks whose row was not in memory.
    pub unseen: u64,
}

impl Outcome {
    /// As the log wants it.
    pub fn direct_records(&self) -> Vec<Direct> {
        let record = |d: &DirectData| Direct { run: d.run, crcs: Crcs::Each(d.crcs.clone()) };
        self.direct.iter().map(record).collect()
    }
}

/// A transaction being planned.
pub(crate) struct Plan<'a> {
    cx: Context<'a>,
    alloc: &'a mut Allocator,
    txn: &'a Transaction,
    /// Index of the op being planned, for messages.
    op: usize,
    objects: SmallVec<[ObjectState; 4]>,
    out: Outcome,
    conflict: Cell<bool>,
    /// Blobs that were unpacked, by their first block.
    unpacked: RefCell<Vec<(u64, Bytes)>>,
}

/// Plans a transaction. On failure nothing is changed.
pub(crate) fn plan<'a>(
    cx: Context<'a>,
    alloc: &'a mut Allocator,
    txn: &'a Transaction,
    next_id: u64,
) -> Planned<Outcome> {
    let objects = SmallVec::from_elem(ObjectState::default(), txn.objects().len());
    let out = Outcome { next_id, ..Outcome::default() };
    let (conflict, unpacked) = (Cell::new(false), RefCell::default());
    let mut plan = Plan { cx, alloc, txn, op: 0, objects, out, conflict, unpacked };
    match plan.run() {
        Ok(()) => Ok(plan.out),
        Err(why) => {
            for run in &plan.out.taken {
                plan.alloc.undo(*run);
            }
            Err(why)
        }
    }
}

impl<'a> Plan<'a> {
    fn run(&mut self) -> Planned<()> {
        self.load_all()?;
        let txn = self.txn;
        for (i, op) in txn.ops().iter().enumerate() {
            self.op = i;
            self.apply(op)?;
            if self.conflict.get() {
                return Err(PlanError::Conflict);
            }
        }
        self.check_freed()?;
        self.write_onodes();
        self.count_blocks();
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Planned<()> {
        match op {
            Op::Touch(o) => drop(self.create(*o)),
            Op::Write { object, offset, data, crc } => {
                self.write(*object, *offset, data, *crc)?;
            }
            Op::Zero { object, offset, len } => self.zero(*object, *offset, *len)?,
            Op::Truncate { object, size } => self.truncate(*object, *size)?,
            Op::Remove(o) => self.remove(*o)?,
            Op::SetMeta { object, meta } => {
                self.create(*object);
                if let Some(onode) = self.change(*object) {
                    onode.meta = Bytes::copy_from_slice(meta);
                }
            }
            Op::Clone { from, to } => self.clone_object(*from, *to)?,
            Op::CloneRange { from, to, src_offset, len, dst_offset } => {
                self.clone_range(*from, *src_offset, *len, *to, *dst_offset)?;
            }
            Op::Rename { from, to } => self.rename(*from, *to)?,
            _ => self.apply_values(op)?,
        }
        Ok(())
    }

    /// All rows as the plan sees them.
    fn with_view<T>(&self, f: impl FnOnce(&View<'_>) -> T) -> T {
        let watch = |txn: u64| self.builds_on(txn);
        let rows = self.cx.rows;
        let staged = std::iter::once(&self.out.changes);
        let layers = staged.chain(std::iter::once(&rows.active)).chain(&rows.frozen).collect();
        f(&View { layers, tree: rows.tree, pages: &rows.pages, watch: Some(&watch), gaps: None })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeMiss> {
        self.with_view(|view| view.get(key))
    }

    /// What `f` says of a row of extents.
    fn with_shard_row<T>(
        &self,
        id: u64,
        number: u32,
        mut f: impl FnMut(Option<&Bytes>) -> T,
    ) -> Result<T, TreeMiss> {
        if !self.out.changes.is_empty() {
            let key = keys::shard(id, number);
            if self.out.changes.get(&key) != Found::Below {
                return Ok(f(self.get(&key)?.as_ref()));
            }
        }
        let look = |known: &KnownRow| {
            self.builds_on(known.txn);
            f(known.row.as_ref())
        };
        let said = self.cx.shards.look_at(self.cx.rows, (id, number), look)?;
        if !self.cx.fetched.pages.is_empty() {
            self.cx.outlines.learn(self.cx.rows, (id, number), self.cx.fetched);
        }
        Ok(said)
    }

    /// All rows of a range.
    fn rows(&self, from: &[u8], to: &[u8]) -> Result<Vec<(Key, Bytes)>, TreeMiss> {
        let mut out = Vec::new();
        self.with_view(|view| {
            view.scan(from, to, &mut |key, value| {
                out.push((Key::from_slice(key), value.clone()));
                true
            })
        })?;
        Ok(out)
    }

    fn put(&mut self, key: Key, value: Option<Bytes>) {
        self.out.changes.put(key, value, 0);
    }

    fn delete_range(&mut self, from: Key, to: Key) {
        self.out.changes.delete_range(from, to, 0);
    }

    fn key(&self, ix: ObjectIx) -> &'a ObjectKey {
        &self.txn.objects()[ix.0 as usize]
    }

    /// Loads the records of all objects.
    fn load_all(&mut self) -> Planned<()> {
        let mut wants = Wants::default();
        for i in 0..self.objects.len() {
            if let Some(onode) = self.load(&self.txn.objects()[i], &mut wants) {
                let had = onode.is_some();
                let had_padding = onode.as_ref().map_or(0, Onode::padding);
                self.objects[i] =
                    ObjectState { loaded: true, onode, had, had_padding, dirty: false };
            }
        }
        if wants.is_empty() { Ok(()) } else { Err(wants.into()) }
    }

    /// The record of an object; `None` when something must be read for it.
    fn load(&self, object: &ObjectKey, wants: &mut Wants) -> Option<Option<Onode>> {
        if let Some(known) = self.cx.onodes.get(object) {
            self.builds_on(known.txn);
            return Some(known.onode);
        }
        let (row, txn) = match self.cx.rows.get(&keys::object(object)) {
            Ok(found) => found,
            Err(miss) => {
                wants.tree(miss);
                return None;
            }
        };
        match row.as_ref().map(Onode::decode).transpose() {
            Ok(onode) => {
                self.cx.onodes.found(object, onode.as_ref(), txn);
                self.builds_on(txn);
                Some(onode)
            }
            Err(why) => {
                wants.damaged(0, why.0);
                None
            }
        }
    }

    /// Notes that the plan depends on what a transaction did.
    fn builds_on(&self, txn: u64) {
        if self.cx.txns.is_foreign(txn, self.txn.sequencer) {
            self.conflict.set(true);
        }
    }

    fn state(&mut self, ix: ObjectIx) -> &mut ObjectState {
        let state = &mut self.objects[ix.0 as usize];
        assert!(state.loaded, "objects are loaded before the ops are planned");
        state
    }

    fn onode(&mut self, ix: ObjectIx) -> Option<&Onode> {
        self.state(ix).onode.as_ref()
    }

    /// The object, which is made if it does not exist.
    fn create(&mut self, ix: ObjectIx) -> &Onode {
        if self.state(ix).onode.is_none() {
            let id = self.new_id();
            self.out.delta.objects += 1;
            let state = self.state(ix);
            state.onode = Some(Onode { id, size: 0, flags: 0, meta: Bytes::new() });
            state.dirty = true;
        }
        self.state(ix).onode.as_ref().expect("it is there, or was just made")
    }

    fn new_id(&mut self) -> u64 {
        let id = self.out.next_id;
        self.out.next_id += 1;
        id
    }

    /// The object if it exists; it counts as changed.
    fn change(&mut self, ix: ObjectIx) -> Option<&mut Onode> {
        let state = self.state(ix);
        state.dirty |= state.onode.is_some();
        state.onode.as_mut()
    }

    fn source(&mut self, ix: ObjectIx) -> Planned<Onode> {
        let (op, object) = (self.op, self.key(ix));
        let onode = self.onode(ix).cloned();
        onode.ok_or_else(|| Invalid::NoSuchObject { op, object: object.clone() }.into())
    }

    fn set_size(&mut self, ix: ObjectIx, size: u64) {
        let before = self.create(ix).size;
        if size != before
            && let Some(onode) = self.change(ix)
        {
            onode.size = size;
            self.out.delta.bytes += size as i64 - before as i64;
        }
    }

    fn set_flag(&mut self, ix: ObjectIx, flag: u8) {
        if !self.create(ix).has(flag)
            && let Some(onode) = self.change(ix)
        {
            onode.flags |= flag;
        }
    }

    /// Removes the object with everything it has.
    fn remove(&mut self, ix: ObjectIx) -> Planned<()> {
        let Some(onode) = self.onode(ix).cloned() else { return Ok(()) };
        if onode.has(Onode::HAS_DATA) {
            for (_, shard) in self.shards(onode.id, 0, u32::MAX)? {
                self.free_slots(&shard.slots)?;
                shard.blobs.iter().try_for_each(|blob| self.free_blob(blob))?;
            }
        }
        if onode.flags != 0 {
            self.delete_range(keys::rows(onode.id), keys::rows_end(onode.id));
        }
        self.out.delta.objects -= 1;
        self.out.delta.bytes -= onode.size as i64;
        let state = self.state(ix);
        (state.onode, state.dirty) = (None, true);
        Ok(())
    }

    fn rename(&mut self, from: ObjectIx, to: ObjectIx) -> Planned<()> {
        let onode = self.source(from)?;
        if self.onode(to).is_some() {
            let object = self.key(to).clone();
            return Err(Invalid::Exists { op: self.op, object }.into());
        }
        for (ix, onode) in [(from, None), (to, Some(onode))] {
            let state = self.state(ix);
            (state.onode, state.dirty) = (onode, true);
        }
        Ok(())
    }

    fn write_onodes(&mut self) {
        for (i, state) in std::mem::take(&mut self.objects).into_iter().enumerate() {
            if !state.dirty {
                continue;
            }
            let padding = state.onode.as_ref().map_or(0, Onode::padding);
            self.out.counts.stored += state.had_padding as i64 - padding as i64;
            let object = &self.txn.objects()[i];
            let encode =
                |onode: &Onode| self.cx.arena.borrow_mut().written(|out| onode.encode_to(out));
            let row = state.onode.as_ref().map(encode);
            if row.is_some() || state.had {
                self.put(keys::object(object), row);
                self.out.onodes.push((object.clone(), state.onode));
            }
        }
    }

    /// Counts the blocks that were taken and freed.
    fn count_blocks(&mut self) {
        let blocks = |runs: &[Run]| runs.iter().map(|run| i64::from(run.len)).sum::<i64>();
        self.out.counts.data = blocks(&self.out.taken) - blocks(&self.out.freed);
    }

    /// Takes blocks for data.
    fn take(&mut self, len: u64) -> Planned<SmallVec<[Run; 4]>> {
        let short = len.saturating_sub(self.alloc.room_for_data());
        let runs = self.alloc.alloc(len).ok_or(PlanError::NoSpace { short })?;
        runs.iter().for_each(|run| push_run(&mut self.out.taken, *run));
        Ok(runs)
    }

    fn problem<T>(&self, what: &'static str) -> Planned<T> {
        let mut wants = Wants::default();
        wants.damaged(0, what);
        Err(wants.into())
    }

    /// Frees what slots refer to; blobs are given up when it is known that no slot is in them
    /// (`settle`).
    fn free_slots(&mut self, slots: &[Slot]) -> Planned<()> {
        let mut shared = Vec::new();
        for slot in slots.iter().filter(|s| !s.is_hole()) {
            self.out.counts.stored -= BLOCK_BYTES as i64;
            if slot.is_packed() {
                self.out.counts.packed.content -= 1;
            } else if slot.shared {
                push_run(&mut shared, Run { start: slot.phys, len: 1 });
            } else {
                self.free_block(slot.phys);
            }
        }
        shared.into_iter().try_for_each(|run| self.drop_references(run))
    }

    fn free_block(&mut self, place: u64) {
        self.out.blocks.remove(place);
        push_run(&mut self.out.freed, Run { start: place, len: 1 });
    }

    /// What is freed was in use, and two extents that are not marked as shared may not refer to one block.
    fn check_freed(&mut self) -> Planned<()> {
        if !self.out.freed.iter().all(|run| self.alloc.is_data(*run)) {
            return self.problem("an extent refers to a block that is marked as free");
        }
        if self.out.freed.len() < 2 {
            return Ok(());
        }
        let mut runs = self.out.freed.clone();
        runs.sort_unstable();
        if runs.windows(2).any(|pair| pair[0].end() > pair[1].start) {
            return self.problem("two extents refer to one block, and do not know it");
        }
        Ok(())
    }
}
