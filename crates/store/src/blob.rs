//! Compressed extents in the rows of shards; the bytes are in the table of `rows`.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::alloc::Run;
use crate::codec::{Decoded, Malformed, Reader, put_varint};
use crate::compress::{Algorithm, MAX_BLOB_BLOCKS};
use crate::rows::{RUN_SHARED, Shard, Slot};
use io::BLOCK_BYTES;
use smallvec::SmallVec;

/// Compressed content: blocks of an object in fewer blocks of the device. The slots that are in it
/// say so; a shard that has one such slot or more counts as one reference to the blob's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub algorithm: Algorithm,
    /// Other shards may refer to it too; the reference counts of its blocks know.
    pub shared: bool,
    /// Blocks of content.
    pub content: u8,
    /// Bytes that are stored; what is behind them in the last block counts for nothing.
    pub bytes: u32,
    pub runs: SmallVec<[Run; 1]>,
    /// crc32c of each stored block.
    pub crcs: SmallVec<[u32; 8]>,
}

impl Blob {
    /// Its first block, which names it.
    pub fn start(&self) -> u64 {
        self.runs.first().map_or(0, |run| run.start)
    }

    /// Place and checksum of each stored block.
    pub fn blocks(&self) -> impl Iterator<Item = Slot> {
        let places = self.runs.iter().flat_map(|run| run.start..run.end());
        places.zip(&self.crcs).map(|(phys, crc)| Slot::plain(phys, *crc))
    }

    /// Bytes of its content.
    pub fn content_bytes(&self) -> usize {
        usize::from(self.content).saturating_mul(BLOCK_BYTES)
    }
}

impl Shard {
    pub(crate) fn encode_blob(&self, blob: &Blob, out: &mut Vec<u8>) {
        let shared = if blob.shared { RUN_SHARED } else { 0 };
        out.extend_from_slice(&[shared, blob.algorithm as u8, blob.content]);
        put_varint(out, u64::from(blob.bytes));
        out.push(blob.runs.len() as u8);
        for run in &blob.runs {
            let [a, b, c, d, e, f, _, _] = run.start.to_le_bytes();
            out.extend_from_slice(&[run.len as u8, a, b, c, d, e, f]);
        }
        for crc in &blob.crcs {
            out.extend_from_slice(&crc.to_le_bytes());
        }
        let ranges = self.ranges_in(blob.start());
        out.push(ranges.len() as u8);
        for (first, len, part) in ranges {
            out.extend_from_slice(&[first, len, part]);
        }
    }

    /// Slots that are in a blob: first, how many, and the first one's block of the content.
    fn ranges_in(&self, start: u64) -> SmallVec<[(u8, u8, u8); 4]> {
        let mut out: SmallVec<[(u8, u8, u8); 4]> = SmallVec::new();
        for (i, slot) in self.slots.iter().enumerate() {
            let Some(part) = slot.part.checked_sub(1).filter(|_| slot.phys == start) else {
                continue;
            };
            match out.last_mut() {
                Some((first, len, from))
                    if first.saturating_add(*len) == i as u8
                        && from.saturating_add(*len) == part =>
                {
                    *len = len.saturating_add(1);
                }
                _ => out.push((i as u8, 1, part)),
            }
        }
        out
    }

    pub(crate) fn decode_blob(&mut self, r: &mut Reader<'_>) -> Decoded<()> {
        const IMPOSSIBLE: Malformed = Malformed("an impossible compressed extent");
        let [shared, algorithm, content] = r.array()?;
        let algorithm = Algorithm::from_byte(algorithm).ok_or(IMPOSSIBLE)?;
        let bytes = r.varint_u32()?;
        let mut runs: SmallVec<[Run; 1]> = SmallVec::new();
        let mut blocks = 0usize;
        for _ in 0..r.u8()? {
            let [len, a, b, c, d, e, f] = r.array()?;
            let start = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            if len == 0 || start == 0 {
                return Err(IMPOSSIBLE);
            }
            blocks = blocks.saturating_add(usize::from(len));
            runs.push(Run { start, len: u32::from(len) });
        }
        let stored = (bytes as usize).div_ceil(BLOCK_BYTES);
        let fits = stored == blocks && blocks > 0 && blocks < usize::from(content);
        if !fits || u64::from(content) > MAX_BLOB_BLOCKS || shared & !RUN_SHARED != 0 {
            return Err(IMPOSSIBLE);
        }
        let mut crcs = SmallVec::new();
        for _ in 0..blocks {
            crcs.push(r.u32()?);
        }
        let blob = Blob { algorithm, shared: shared != 0, content, bytes, runs, crcs };
        let start = blob.start();
        if self.blob(start).is_some() {
            return Err(IMPOSSIBLE);
        }
        let ranges = r.u8()?;
        for _ in 0..ranges {
            let [first, len, part] = r.array()?;
            let (first, end) = (usize::from(first), usize::from(first).saturating_add(len.into()));
            if len == 0 || part.saturating_add(len) > content {
                return Err(IMPOSSIBLE);
            }
            let slots = self.slots.get_mut(first..end).ok_or(IMPOSSIBLE)?;
            for (slot, part) in slots.iter_mut().zip(part..) {
                if !slot.is_hole() {
                    return Err(IMPOSSIBLE);
                }
                *slot = Slot { phys: start, crc: 0, shared: false, part: part.saturating_add(1) };
            }
        }
        if ranges == 0 {
            return Err(IMPOSSIBLE);
        }
        self.blobs.push(blob);
        Ok(())
    }
}
