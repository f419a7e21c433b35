//! Copies that share their blocks.

use super::data::{BLOCK, Shards, shard_of, slot, slot_mut};
use super::{Plan, Planned};
use crate::alloc::{Run, push_run};
use crate::keys::{self, Key, Parsed};
use crate::rows::{Onode, Shard};
use crate::store::miss::MAX_PAGES;
use crate::tree::TreeMiss;
use crate::tree::range::RangeNodes;
use crate::txn::{Invalid, MAX_OBJECT_BYTES, ObjectIx, whole_blocks};
use bytes::{Bytes, BytesMut};
use denc::KnownCrc;
use std::ops::Range;

/// The rows of so many leaves fill a block of the log at least: a leaf with less than a quarter of a block takes in
/// the next one, and keys are shorter there. Twice that, as of each parent the last one has no next.
const MOST_LEAVES_OF_BLOCK: u64 = 8;

impl Plan<'_> {
    pub(super) fn clone_object(&mut self, from: ObjectIx, to: ObjectIx) -> Planned<()> {
        let source = self.source(from)?;
        self.remove(to)?;
        let id = self.new_id();
        let copy = Onode { id, ..source.clone() };
        self.out.delta.objects += 1;
        self.out.delta.bytes += copy.size as i64;
        let state = self.state(to);
        (state.onode, state.dirty) = (Some(copy), true);
        if source.flags == 0 {
            return Ok(());
        }
        let (from, to) = (keys::rows(source.id), keys::rows_end(source.id));
        self.ask_for_all(&from, &to)?;
        let rows = self.rows(&from, &to)?;
        let mut references = Vec::new();
        for (key, row) in rows {
            match keys::parse(&key) {
                Ok(Parsed::Shard { number, .. }) => {
                    let shard = Shard::decode(&row).or_else(|why| self.problem(why.0))?;
                    self.out.counts.stored += (shard.content() * BLOCK) as i64;
                    self.out.counts.packed.content += shard.packed() as i64;
                    let row = self.share(shard, &mut references).encode();
                    self.put(key, Some(row.clone()));
                    self.put(keys::shard(id, number), Some(row));
                }
                Ok(_) => {
                    let prefix = keys::rows(source.id).len();
                    let mut copy: Key = keys::rows(id);
                    copy.extend_from_slice(&key[prefix..]);
                    self.put(copy, Some(row));
                }
                Err(why) => return self.problem(why.0),
            }
        }
        for run in references {
            self.add_references(run)?;
        }
        Ok(())
    }

    /// Rows are looked at when all nodes that they are in are in memory, and not again and again while these
    /// come. More of them than the log takes are not fetched at all.
    fn ask_for_all(&self, from: &[u8], to: &[u8]) -> Planned<()> {
        let RangeNodes { missing, leaves } =
            self.with_view(|view| view.nodes_of(from, to, MAX_PAGES))?;
        let (blocks, max) = (leaves / MOST_LEAVES_OF_BLOCK, self.cx.wal.max_txn_blocks());
        if blocks > max {
            return Err(Invalid::TooLarge { blocks, max }.into());
        }
        if missing.is_empty() { Ok(()) } else { Err(TreeMiss::Pages(missing).into()) }
    }

    /// Marks all blocks of a shard as shared, and notes them.
    fn share(&self, mut shard: Shard, references: &mut Vec<Run>) -> Shard {
        for slot in shard.slots.iter_mut().filter(|s| s.is_plain()) {
            slot.shared = true;
            push_run(references, Run { start: slot.phys, len: 1 });
        }
        for blob in &mut shard.blobs {
            blob.shared = true;
            references.extend(&blob.runs);
        }
        shard
    }

    pub(super) fn clone_range(
        &mut self,
        from: ObjectIx,
        src: u64,
        len: u64,
        to: ObjectIx,
        dst: u64,
    ) -> Planned<()> {
        let source = self.source(from)?;
        let len = len.min(source.size.saturating_sub(src));
        let end = dst.saturating_add(len);
        if end > MAX_OBJECT_BYTES {
            let (op, what) = (self.op, "an object");
            return Err(Invalid::TooLong { op, what, len: end, max: MAX_OBJECT_BYTES }.into());
        }
        self.create(to);
        if len == 0 {
            return Ok(());
        }
        if end > self.create(to).size {
            self.set_size(to, end);
        }
        let blocks = src / BLOCK..(src + len).div_ceil(BLOCK);
        let shards = self.shards_of(&source, blocks.clone())?;
        if src % BLOCK != dst % BLOCK {
            return self.copy_blocks(from, &shards, src..src + len, blocks, to, dst);
        }
        let (first, last) = whole_blocks(src, len);
        let edges = |range: Range<u64>| range.start.max(blocks.start)..range.end.min(blocks.end);
        let head = edges(blocks.start..first);
        let tail = edges(last.max(head.end)..blocks.end);
        for edge in [head, tail] {
            self.copy_blocks(from, &shards, src..src + len, edge, to, dst)?;
        }
        if first < last {
            let target = (dst + (first * BLOCK - src)) / BLOCK;
            self.share_blocks(&source, shards, first..last, to, target)?;
        }
        Ok(())
    }

    /// Copies the part of `range` (bytes of the source) that lies in `blocks`, block by block.
    fn copy_blocks(
        &mut self,
        from: ObjectIx,
        shards: &Shards,
        range: Range<u64>,
        blocks: Range<u64>,
        to: ObjectIx,
        dst: u64,
    ) -> Planned<()> {
        let full = blocks.clone().filter(|b| !slot(shards, *b).is_hole());
        let contents = self.contents(from, shards, full)?;
        let mut contents = contents.into_iter();
        let mut joined: Option<(u64, BytesMut)> = None;
        for block in blocks {
            let first = range.start.max(block * BLOCK);
            let last = range.end.min((block + 1) * BLOCK);
            let at = dst + (first - range.start);
            if slot(shards, block).is_hole() {
                self.flush_copy(to, &mut joined)?;
                self.zero(to, at, last - first)?;
                continue;
            }
            let content = contents.next().unwrap_or_default();
            let (a, b) = ((first - block * BLOCK) as usize, (last - block * BLOCK) as usize);
            let (_, bytes) = joined.get_or_insert_with(|| (at, BytesMut::new()));
            bytes.extend_from_slice(&content[a..b]);
        }
        self.flush_copy(to, &mut joined)
    }

    fn flush_copy(&mut self, to: ObjectIx, joined: &mut Option<(u64, BytesMut)>) -> Planned<()> {
        match joined.take() {
            Some((at, bytes)) => self.write(to, at, &Bytes::from(bytes), KnownCrc::NONE),
            None => Ok(()),
        }
    }

    /// Makes whole blocks of the target refer to those of the source.
    fn share_blocks(
        &mut self,
        source: &Onode,
        mut shards: Shards,
        blocks: Range<u64>,
        to: ObjectIx,
        target: u64,
    ) -> Planned<()> {
        let onode = self.create(to).clone();
        let count = blocks.end - blocks.start;
        let mut theirs = self.shards_of(&onode, target..target + count)?;
        self.punch(&mut theirs, target..target + count)?;
        let mut references = Vec::new();
        for (block, copy) in blocks.clone().zip(target..) {
            if slot(&shards, block).is_hole() {
                continue;
            }
            self.out.counts.stored += BLOCK as i64;
            let slot = slot_mut(&mut shards, block);
            if slot.is_packed() {
                let slot = *slot;
                *slot_mut(&mut theirs, copy) = slot;
                self.share_blob(&mut shards, block, &mut theirs, copy, &mut references);
                continue;
            }
            slot.shared = true;
            push_run(&mut references, Run { start: slot.phys, len: 1 });
            *slot_mut(&mut theirs, copy) = *slot;
        }
        let touched = shard_of(blocks.start)..=shard_of(blocks.end - 1);
        shards.retain(|number, _| touched.contains(number));
        self.put_shards(source.id, shards)?;
        if !theirs.is_empty() {
            self.set_flag(to, Onode::HAS_DATA);
        }
        for run in references {
            self.add_references(run)?;
        }
        // Not before: it may give up the target's last reference to a blob.
        self.put_shards(onode.id, theirs)
    }

    /// The block `copy` of the target is in the blob that `block` of the source is in: its shard
    /// refers to that, if it did not already.
    fn share_blob(
        &mut self,
        shards: &mut Shards,
        block: u64,
        theirs: &mut Shards,
        copy: u64,
        references: &mut Vec<Run>,
    ) {
        self.out.counts.packed.content += 1;
        let start = slot(shards, block).phys;
        let source = shards.entry(shard_of(block)).or_default();
        let Some(blob) = source.blobs.iter_mut().find(|b| b.start() == start) else { return };
        blob.shared = true;
        let blob = blob.clone();
        let target = theirs.entry(shard_of(copy)).or_default();
        match target.blobs.iter_mut().find(|b| b.start() == start) {
            Some(known) => known.shared = true,
            None => {
                references.extend(&blob.runs);
                target.blobs.push(blob);
            }
        }
    }
}
