//! Blobs: compressed extents.
//!
//! A blob is written once, to fresh blocks, in the log or beside it as its size says. Slots leave it
//! when they are written again; when none of a shard is left, the shard gives up its reference. A
//! write that leaves no more slots in a blob than it takes blocks puts those by themselves, so that
//! writing never makes an object take more than its bytes do.

use super::data::{BLOCK, Shards, shard_of, slot, slot_mut};
use super::{DirectData, Plan, Planned};
use crate::blob::Blob;
use crate::codec::block_crc;
use crate::compress::{MAX_BLOB_BLOCKS, Packed};
use crate::rows::{Shard, Slot};
use crate::store::miss::Wants;
use crate::txn::ObjectIx;
use bytes::{Bytes, BytesMut};
use denc::KnownCrc;
use io::BLOCK_BYTES;
use smallvec::SmallVec;

/// Whole blocks of a write, and what they compress to.
pub(super) struct Part {
    pub first: u64,
    pub data: Bytes,
    pub packed: Option<Packed>,
}

impl Part {
    /// Blocks that it takes on the device.
    pub fn stored_blocks(&self) -> u64 {
        let data = self.packed.as_ref().map_or(&self.data, |p| &p.data);
        (data.len() / BLOCK_BYTES) as u64
    }
}

impl Plan<'_> {
    /// Cuts whole blocks from `first` on into parts that are compressed, if they may be, and what is
    /// between those.
    pub(super) fn parts(&self, first: u64, mut data: Bytes) -> SmallVec<[Part; 1]> {
        let mut out: SmallVec<[Part; 1]> = SmallVec::new();
        let Some(how) = self.txn.compress.filter(|_| data.len() >= 2 * BLOCK_BYTES) else {
            if !data.is_empty() {
                out.push(Part { first, data, packed: None });
            }
            return out;
        };
        let whole = data.clone();
        let (max, mut at) = (how.max_blocks(), first);
        // Where the last part that stays as it is begins.
        let mut plain: Option<u64> = None;
        let bytes_of = |from: u64, to: u64| {
            whole.slice((from - first) as usize * BLOCK_BYTES..(to - first) as usize * BLOCK_BYTES)
        };
        while !data.is_empty() {
            let in_shard = at % MAX_BLOB_BLOCKS;
            let end = at - in_shard + ((in_shard / max + 1) * max).min(MAX_BLOB_BLOCKS);
            let blocks = (end - at).min((data.len() / BLOCK_BYTES) as u64);
            let piece = data.split_to(blocks as usize * BLOCK_BYTES);
            let most = how.most(blocks);
            let packed = (most > 0)
                .then(|| self.cx.codec.borrow_mut().pack(how.algorithm, &piece, most))
                .flatten();
            if packed.is_some() {
                if let Some(from) = plain.take() {
                    out.push(Part { first: from, data: bytes_of(from, at), packed: None });
                }
                out.push(Part { first: at, data: piece, packed });
            } else {
                plain.get_or_insert(at);
            }
            at += blocks;
        }
        if let Some(from) = plain {
            out.push(Part { first: from, data: bytes_of(from, at), packed: None });
        }
        out
    }

    /// Writes compressed blocks to fresh places; `direct`: beside the log.
    pub(super) fn write_blob(
        &mut self,
        shards: &mut Shards,
        part: &Part,
        packed: &Packed,
        direct: bool,
    ) -> Planned<()> {
        let how = self.txn.compress.expect("what is not to be compressed is not");
        let content = (part.data.len() / BLOCK_BYTES) as u64;
        let old: Vec<Slot> = (part.first..part.first + content).map(|b| slot(shards, b)).collect();
        self.free_slots(&old)?;
        let count = part.stored_blocks();
        let mut blob = Blob {
            algorithm: how.algorithm,
            shared: false,
            content: content as u8,
            bytes: packed.bytes,
            runs: self.take(count)?.into_iter().collect(),
            crcs: SmallVec::new(),
        };
        let mut rest = packed.data.clone();
        for run in &blob.runs {
            let data = rest.split_to(run.len as usize * BLOCK_BYTES);
            let mut crcs = Vec::with_capacity(run.len as usize);
            for (i, place) in (run.start..run.end()).enumerate() {
                let block = data.slice(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES);
                let crc = block_crc(&block);
                crcs.push(crc);
                if !direct {
                    self.out.blocks.insert(place, crc, block);
                }
            }
            blob.crcs.extend_from_slice(&crcs);
            if direct {
                self.out.direct.push(DirectData { run: *run, data, crcs });
            }
        }
        for (i, block) in (part.first..part.first + content).enumerate() {
            let part = i as u8 + 1;
            *slot_mut(shards, block) = Slot { phys: blob.start(), crc: 0, shared: false, part };
        }
        let counts = &mut self.out.counts;
        counts.stored += (content * BLOCK) as i64;
        counts.packed.content += content as i64;
        counts.packed.blocks += count as i64;
        counts.packed.bytes += i64::from(packed.bytes);
        shards.entry(shard_of(part.first)).or_default().blobs.push(blob);
        Ok(())
    }

    /// Puts by themselves the blocks of blobs that hold hardly anything any more.
    pub(super) fn dissolve(&mut self, ix: ObjectIx, shards: &mut Shards, size: u64) -> Planned<()> {
        let mut left: Vec<u64> = Vec::new();
        for (number, shard) in shards.iter() {
            for blob in &shard.blobs {
                let start = blob.start();
                if shard.uses(start) > blob.crcs.len() {
                    continue;
                }
                let base = u64::from(*number) * MAX_BLOB_BLOCKS;
                let slots = shard.slots.iter().enumerate();
                let mine = slots.filter(|(_, s)| s.is_packed() && s.phys == start);
                left.extend(mine.map(|(i, _)| base + i as u64));
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        left.sort_unstable();
        let contents = self.contents(ix, shards, left.iter().copied())?;
        let blocks = left.into_iter().zip(contents).collect();
        self.log_blocks(shards, (blocks, KnownCrc::NONE), size)
    }

    /// Gives up the blobs of a shard that no slot is in any more.
    pub(super) fn settle(&mut self, shard: &mut Shard) -> Planned<()> {
        if shard.blobs.is_empty() {
            return Ok(());
        }
        for blob in std::mem::take(&mut shard.blobs) {
            if shard.uses(blob.start()) > 0 {
                shard.blobs.push(blob);
            } else {
                self.free_blob(&blob)?;
            }
        }
        Ok(())
    }

    /// A shard does not refer to a blob any more.
    pub(super) fn free_blob(&mut self, blob: &Blob) -> Planned<()> {
        let last = !blob.shared || self.is_sole_owner(blob.start())?;
        for run in &blob.runs {
            if blob.shared {
                self.drop_references(*run)?;
            } else {
                (run.start..run.end()).for_each(|place| self.free_block(place));
            }
        }
        if last {
            let packed = &mut self.out.counts.packed;
            packed.blocks -= blob.crcs.len() as i64;
            packed.bytes -= i64::from(blob.bytes);
        }
        Ok(())
    }

    /// The content of a block that is in a blob, or what must be read to have it.
    pub(super) fn unpacked(
        &self,
        ix: ObjectIx,
        shards: &Shards,
        block: u64,
        slot: Slot,
        wants: &mut Wants,
    ) -> Option<Bytes> {
        let from = usize::from(slot.part.saturating_sub(1)) * BLOCK_BYTES;
        let cut = |content: &Bytes| Some(content.slice(from..from + BLOCK_BYTES));
        let known = self.unpacked.borrow().iter().find(|(start, _)| *start == slot.phys).cloned();
        if let Some((_, content)) = known {
            return cut(&content);
        }
        let blob = shards.get(&shard_of(block)).and_then(|s| s.blob(slot.phys));
        let Some(blob) = blob.filter(|b| from < b.content_bytes()) else {
            wants.damaged(slot.phys, "a block is in a compressed extent that is not there");
            return None;
        };
        let mut packed = BytesMut::with_capacity(blob.crcs.len() * BLOCK_BYTES);
        let mut whole = true;
        for stored in blob.blocks() {
            match self.stored(ix, block * BLOCK, 0, stored, wants) {
                Some(bytes) => packed.extend_from_slice(&bytes),
                None => whole = false,
            }
        }
        if !whole {
            return None;
        }
        let packed = packed.get(..blob.bytes as usize)?;
        let mut codec = self.cx.codec.borrow_mut();
        let Some(content) = codec.unpack(blob.algorithm, packed, blob.content_bytes()) else {
            wants.bad_blob(self.key(ix), block * BLOCK, blob);
            return None;
        };
        self.unpacked.borrow_mut().push((slot.phys, content.clone()));
        cut(&content)
    }
}
