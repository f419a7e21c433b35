//! Bytes of objects.
//!
//! A write is cut into whole blocks and at most two partial ones. Long runs of whole blocks go to
//! fresh blocks of the device, beside the log. All others go into the log: over the block's own
//! place if no clone shares it, otherwise to a fresh one. A partial block becomes a whole one by
//! way of its old content. Whole blocks that compression makes fewer are written so (see `blobs`).

use super::blobs::Part;
use super::{DirectData, Plan, Planned};
use crate::alloc::{Run, push_run};
use crate::codec::block_crc;
use crate::keys::{self, Parsed, SHARD_BLOCKS};
use crate::patch::Patch;
use crate::rows::{Onode, Shard, Slot};
use crate::store::miss::{Want, Wants};
use crate::tree::TreeMiss;
use crate::txn::{ObjectIx, whole_blocks};
use crate::wal::Content;
use bytes::{Bytes, BytesMut};
use denc::KnownCrc;
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Shards of an object that an op works on.
pub(super) type Shards = BTreeMap<u32, Shard>;

/// Places of the blocks of a small write.
type Places = SmallVec<[u64; 4]>;

pub(super) fn shard_of(block: u64) -> u32 {
    (block / SHARD_BLOCKS) as u32
}

pub(super) fn slot_mut(shards: &mut Shards, block: u64) -> &mut Slot {
    let shard = shards.entry(shard_of(block)).or_default();
    &mut shard.slots[(block % SHARD_BLOCKS) as usize]
}

pub(super) fn slot(shards: &Shards, block: u64) -> Slot {
    let shard = shards.get(&shard_of(block));
    shard.map_or(Slot::HOLE, |s| s.slots[(block % SHARD_BLOCKS) as usize])
}

impl Plan<'_> {
    /// The shards `from..to` that there are.
    pub(super) fn shards(&self, id: u64, from: u32, to: u32) -> Planned<Shards> {
        let mut out = Shards::new();
        for (key, row) in self.rows(&keys::shard(id, from), &keys::shard(id, to))? {
            match (keys::parse(&key), Shard::decode(&row)) {
                (Ok(Parsed::Shard { number, .. }), Ok(shard)) => drop(out.insert(number, shard)),
                (_, Err(why)) => return self.problem(why.0),
                _ => return self.problem("an extent shard with an impossible key"),
            }
        }
        Ok(out)
    }

    /// The shards of a range of blocks. One is looked up, more are scanned.
    pub(super) fn shards_of(&self, onode: &Onode, blocks: Range<u64>) -> Planned<Shards> {
        if !onode.has(Onode::HAS_DATA) || blocks.is_empty() {
            return Ok(Shards::new());
        }
        let (first, last) = (shard_of(blocks.start), shard_of(blocks.end - 1));
        if first < last {
            return self.shards(onode.id, first, last + 1);
        }
        let mut out = Shards::new();
        if let Some(row) = self.with_shard_row(onode.id, first, |row| row.cloned())? {
            let shard = Shard::decode(&row).or_else(|why| self.problem(why.0))?;
            out.insert(first, shard);
        }
        Ok(out)
    }

    pub(super) fn put_shards(&mut self, id: u64, shards: Shards) -> Planned<()> {
        for (number, mut shard) in shards {
            self.settle(&mut shard)?;
            let row = (!shard.is_empty()).then(|| shard.encode());
            self.put(keys::shard(id, number), row);
        }
        Ok(())
    }

    /// The content of a block, or what must be read to have it.
    fn content(
        &self,
        ix: ObjectIx,
        shards: &Shards,
        block: u64,
        wants: &mut Wants,
    ) -> Option<Bytes> {
        let slot = slot(shards, block);
        if slot.is_hole() {
            return Some(Bytes::from_static(&[0; BLOCK_BYTES]));
        }
        if slot.is_packed() {
            return self.unpacked(ix, shards, block, slot, wants);
        }
        self.stored(ix, block * BLOCK, BLOCK, slot, wants)
    }

    /// The bytes of a block of the device. It is for the byte `offset` of the object, and the block
    /// behind it for the one `step` further on.
    pub(super) fn stored(
        &self,
        ix: ObjectIx,
        offset: u64,
        step: u64,
        slot: Slot,
        wants: &mut Wants,
    ) -> Option<Bytes> {
        if let Some(content) = self.out.blocks.get(slot.phys) {
            return Some(content.clone());
        }
        let mine = self.out.direct.iter().find(|d| (d.run.start..d.run.end()).contains(&slot.phys));
        if let Some(direct) = mine {
            let from = (slot.phys - direct.run.start) as usize * BLOCK_BYTES;
            return Some(direct.data.slice(from..from + BLOCK_BYTES));
        }
        let object = self.key(ix);
        if let Some(pending) = self.cx.wal.pending(slot.phys) {
            if pending.crc != slot.crc {
                wants.damaged(slot.phys, "the log and the extents disagree about a block");
                return None;
            }
            match self.cx.wal.content(pending) {
                Content::Memory(bytes) => return Some(bytes),
                Content::Log { seq, block } => {
                    if let Some((run, at)) = self.cx.fetched.find(slot) {
                        return Some(self.fetched(run, at));
                    }
                    wants.wants.push(Want::Log {
                        object: object.clone(),
                        offset,
                        seq,
                        block,
                        place: slot.phys,
                        crc: slot.crc,
                    });
                    return None;
                }
            }
        }
        if let Some(bytes) = self.cx.direct.block(slot.phys) {
            return Some(bytes);
        }
        if let Some((run, at)) = self.cx.fetched.find(slot) {
            return Some(self.fetched(run, at));
        }
        if let Some(kept) = self.cx.kept.get(slot.phys, |crc| crc == slot.crc) {
            wants.at_hand(object, offset, step, slot);
            return Some(kept.bytes());
        }
        wants.data(object, offset, step, slot);
        None
    }

    fn fetched(&self, run: usize, at: usize) -> Bytes {
        self.cx.fetched.bytes(run, at * BLOCK_BYTES, (at + 1) * BLOCK_BYTES)
    }

    /// The contents of several blocks.
    pub(super) fn contents(
        &self,
        ix: ObjectIx,
        shards: &Shards,
        blocks: impl Iterator<Item = u64>,
    ) -> Planned<Vec<Bytes>> {
        let mut wants = Wants::default();
        let out = blocks.filter_map(|b| self.content(ix, shards, b, &mut wants)).collect();
        if wants.is_empty() { Ok(out) } else { Err(wants.into()) }
    }

    pub(super) fn write(
        &mut self,
        ix: ObjectIx,
        offset: u64,
        data: &Bytes,
        crc: KnownCrc,
    ) -> Planned<()> {
        // Worth something only if the data is one block, which has the same.
        let is_block = data.len() == BLOCK_BYTES && offset.is_multiple_of(BLOCK);
        let crc = if is_block { crc } else { KnownCrc::NONE };
        let onode = self.create(ix).clone();
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        if onode.has(Onode::HAS_DATA) && self.overwrite(onode.id, offset, data, crc)? {
            return self.grow(ix, end);
        }
        let mut shards = self.shards_of(&onode, blocks.clone())?;
        let (first, last) = whole_blocks(offset, data.len() as u64);
        let mut logged: Vec<(u64, Bytes)> = Vec::new();
        let partial: Vec<u64> = blocks.clone().filter(|b| *b < first || *b >= last).collect();
        let old = self.contents(ix, &shards, partial.iter().copied())?;
        for (block, old) in partial.into_iter().zip(old) {
            let from = offset.max(block * BLOCK);
            let to = end.min((block + 1) * BLOCK);
            let piece = &data[(from - offset) as usize..(to - offset) as usize];
            logged.push((block, patched(&old, (from - block * BLOCK) as usize, piece)));
        }
        if first < last {
            let whole = (first * BLOCK - offset) as usize..(last * BLOCK - offset) as usize;
            self.write_whole(&mut shards, first, data.slice(whole), &mut logged)?;
        }
        logged.sort_unstable_by_key(|(block, _)| *block);
        self.log_blocks(&mut shards, (logged, crc), end.max(onode.size))?;
        self.dissolve(ix, &mut shards, end.max(onode.size))?;
        self.put_shards(onode.id, shards)?;
        self.set_flag(ix, Onode::HAS_DATA);
        self.grow(ix, end)
    }

    fn grow(&mut self, ix: ObjectIx, end: u64) -> Planned<()> {
        if end > self.create(ix).size {
            self.set_size(ix, end);
        }
        Ok(())
    }

    /// Puts whole blocks of one shard that keep their places into the log. False, and nothing, if they
    /// are to be written otherwise. The row need not be in memory, if enough is known of it.
    fn overwrite(&mut self, id: u64, offset: u64, data: &Bytes, crc: KnownCrc) -> Planned<bool> {
        let blocks = offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK);
        let number = shard_of(blocks.start);
        let whole = offset.is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK_BYTES);
        let small = (data.len() as u64) < self.cx.small_write_bytes;
        // Of less than two blocks compression makes nothing less.
        let as_it_is = self.txn.compress.is_none() || data.len() < 2 * BLOCK_BYTES;
        if !whole || !small || !as_it_is || number != shard_of(blocks.end - 1) {
            return Ok(false);
        }
        let slots = (blocks.start % SHARD_BLOCKS) as u8..;
        let contents = || slots.clone().zip(data.chunks_exact(BLOCK_BYTES));
        let places_in = |row: Option<&Bytes>| -> Option<Places> {
            let own = |slot| Shard::own(row?, slot).map(|(place, _)| place);
            contents().map(|(slot, _)| own(slot)).collect()
        };
        let (is_seen, places) = match self.with_shard_row(id, number, places_in) {
            Ok(places) => (true, places),
            Err(miss @ TreeMiss::Damaged { .. }) => return Err(miss.into()),
            Err(miss) => {
                // What others may yet lose is not to be built on.
                self.with_view(|view| view.patch(&keys::shard(id, number)));
                let places_of = self.cx.outlines.places((id, number)).ok_or(miss)?;
                (false, contents().map(|(slot, _)| places_of(slot)).collect())
            }
        };
        let Some(places) = places else { return Ok(false) };
        let mut patch = Patch::default();
        for ((slot, content), place) in contents().zip(places) {
            let crc = crc.or_of(content);
            patch.set(slot, crc);
            self.out.blocks.insert(place, crc, data.slice_ref(content));
        }
        self.out.unseen += u64::from(!is_seen);
        let done = self.out.changes.patch((id, number), &patch, 0);
        done.map(|()| true).or_else(|why| self.problem(why.0))
    }

    /// Writes whole blocks from `first` on, or adds those that the log takes as they are to `logged`.
    fn write_whole(
        &mut self,
        shards: &mut Shards,
        first: u64,
        data: Bytes,
        logged: &mut Vec<(u64, Bytes)>,
    ) -> Planned<()> {
        let parts = self.parts(first, data);
        let blocks: u64 = parts.iter().map(Part::stored_blocks).sum();
        let direct = blocks * BLOCK >= self.cx.small_write_bytes;
        for part in parts {
            if let Some(packed) = &part.packed {
                self.write_blob(shards, &part, packed, direct)?;
            } else if direct {
                self.write_direct(shards, part.first, part.data)?;
            } else {
                let Part { first, mut data, .. } = part;
                let blocks = (data.len() / BLOCK_BYTES) as u64;
                logged.extend((first..first + blocks).map(|b| (b, data.split_to(BLOCK_BYTES))));
            }
        }
        Ok(())
    }

    /// Whole blocks from `first` on go to fresh places, beside the log.
    fn write_direct(&mut self, shards: &mut Shards, first: u64, data: Bytes) -> Planned<()> {
        let count = (data.len() / BLOCK_BYTES) as u64;
        let old: Vec<Slot> = (first..first + count).map(|b| slot(shards, b)).collect();
        self.free_slots(&old)?;
        let runs = self.take(count)?;
        self.out.counts.stored += (count * BLOCK) as i64;
        let mut block = first;
        let mut rest = data;
        for run in runs {
            let data = rest.split_to(run.len as usize * BLOCK_BYTES);
            let mut crcs = Vec::with_capacity(run.len as usize);
            for (phys, content) in (run.start..).zip(data.chunks_exact(BLOCK_BYTES)) {
                let crc = block_crc(content);
                crcs.push(crc);
                *slot_mut(shards, block) = Slot::plain(phys, crc);
                block += 1;
            }
            self.out.direct.push(DirectData { run, data, crcs });
        }
        Ok(())
    }

    /// Puts whole blocks, in ascending order, into the log; the object will have `size` bytes. The checksum
    /// is that of the only one.
    pub(super) fn log_blocks(
        &mut self,
        shards: &mut Shards,
        (blocks, crc): (Vec<(u64, Bytes)>, KnownCrc),
        size: u64,
    ) -> Planned<()> {
        // What was in a blob leaves it.
        for (block, _) in &blocks {
            let own = slot(shards, *block);
            if own.is_packed() {
                self.free_slots(&[own])?;
                *slot_mut(shards, *block) = Slot::HOLE;
            }
        }
        // First the places: those that have none of their own get one, neighbours together.
        let mut at = 0;
        while at < blocks.len() {
            let block = blocks[at].0;
            let own = slot(shards, block);
            if !own.is_hole() && (!own.shared || self.is_sole_owner(own.phys)?) {
                slot_mut(shards, block).shared = false;
                at += 1;
                continue;
            }
            let same_shard = |b: u64| shard_of(b) == shard_of(block);
            let mut n = 1;
            while blocks.get(at + n).is_some_and(|(b, _)| {
                *b == block + n as u64 && same_shard(*b) && slot(shards, *b).is_hole()
            }) && own.is_hole()
            {
                n += 1;
            }
            self.free_slots(&[own])?;
            self.place(shards, block, n as u64, size)?;
            at += n;
        }
        for (block, content) in blocks {
            let crc = crc.or_of(&content);
            let slot = slot_mut(shards, block);
            slot.crc = crc;
            let place = slot.phys;
            self.out.blocks.insert(place, crc, content);
        }
        Ok(())
    }

    /// Gives `len` blocks of one shard fresh places, if possible beside the shard's other blocks.
    ///
    /// A small object is put close to others: a window of its own would stay empty but for it.
    fn place(&mut self, shards: &mut Shards, block: u64, len: u64, size: u64) -> Planned<()> {
        let at = block % SHARD_BLOCKS;
        let run = match self.natural_place(shards, block, len) {
            Some(run) => Some(run),
            None if size > SHARD_BLOCKS * BLOCK => self.alloc.alloc_in_window(at, len),
            None => None,
        };
        let runs = match run {
            Some(run) => {
                push_run(&mut self.out.taken, run);
                smallvec::smallvec![run]
            }
            None => self.take(len)?,
        };
        self.out.counts.stored += (len * BLOCK) as i64;
        let mut block = block;
        for run in runs {
            for phys in run.start..run.end() {
                *slot_mut(shards, block) = Slot::plain(phys, 0);
                block += 1;
            }
        }
        Ok(())
    }

    /// The place that continues the run of the nearest block before or behind, if it is free.
    fn natural_place(&mut self, shards: &Shards, block: u64, len: u64) -> Option<Run> {
        let shard = shards.get(&shard_of(block))?;
        let at = (block % SHARD_BLOCKS) as usize;
        let before = shard.slots[..at].iter().enumerate().rev().find(|(_, s)| s.is_plain());
        let behind = shard.slots[at..].iter().enumerate().find(|(_, s)| s.is_plain());
        let before = before.map(|(i, s)| s.phys + (at - i) as u64);
        let behind = behind.and_then(|(i, s)| s.phys.checked_sub(i as u64));
        let mut candidates = before.into_iter().chain(behind);
        candidates.find_map(|start| self.alloc.alloc_at(start, len))
    }

    pub(super) fn zero(&mut self, ix: ObjectIx, offset: u64, len: u64) -> Planned<()> {
        let Some(onode) = self.onode(ix).cloned() else { return Ok(()) };
        let mut end = offset.saturating_add(len).min(onode.size);
        if offset >= end || !onode.has(Onode::HAS_DATA) {
            return Ok(());
        }
        if end == onode.size {
            end = end.next_multiple_of(BLOCK);
        }
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let mut shards = self.shards_of(&onode, blocks.clone())?;
        if shards.is_empty() {
            return Ok(());
        }
        let (first, last) = whole_blocks(offset, end - offset);
        let mut edges = vec![blocks.start, blocks.end - 1];
        edges.dedup();
        edges.retain(|b| (*b < first || *b >= last) && !slot(&shards, *b).is_hole());
        let old = self.contents(ix, &shards, edges.iter().copied())?;
        let mut logged = Vec::new();
        for (block, old) in edges.into_iter().zip(old) {
            let from = (offset.max(block * BLOCK) - block * BLOCK) as usize;
            let to = (end.min((block + 1) * BLOCK) - block * BLOCK) as usize;
            logged.push((block, patched(&old, from, &[0; BLOCK_BYTES][..to - from])));
        }
        self.punch(&mut shards, first..last)?;
        self.log_blocks(&mut shards, (logged, KnownCrc::NONE), onode.size)?;
        self.put_shards(onode.id, shards)?;
        Ok(())
    }

    /// Makes whole blocks holes.
    pub(super) fn punch(&mut self, shards: &mut Shards, blocks: Range<u64>) -> Planned<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        for (number, shard) in shards.range_mut(shard_of(blocks.start)..=shard_of(blocks.end - 1)) {
            let base = u64::from(*number) * SHARD_BLOCKS;
            let from = blocks.start.max(base) - base;
            let to = (blocks.end - base).min(SHARD_BLOCKS);
            let slots = &mut shard.slots[from as usize..to as usize];
            self.free_slots(slots)?;
            slots.fill(Slot::HOLE);
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, ix: ObjectIx, size: u64) -> Planned<()> {
        let old = self.create(ix).size;
        if size < old {
            self.zero(ix, size, old - size)?;
        }
        self.set_size(ix, size);
        Ok(())
    }
}

/// A block with some of its bytes replaced.
fn patched(old: &[u8], at: usize, piece: &[u8]) -> Bytes {
    let mut out = BytesMut::from(old);
    out[at..at + piece.len()].copy_from_slice(piece);
    out.freeze()
}
