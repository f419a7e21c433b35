//! What the rows of the ordered space hold.
//!
//! Every row begins with a format byte, so that a later format can stand beside an older one.
//!
//! | row | bytes |
//! |---|---|
//! | [`Onode`] | 1; flags (1); id, size (varints); length of the owner's record (varint), the record |
//! | [`Shard`] | 1; number of runs (1); each run: first slot (1), slots (1), 1 if shared (1), block (6); then the crc32c (4) of each block that is there |
//! | [`Shard`] with compressed extents | 2; what stands behind the 1 in the form above, of the blocks that stand by themselves; number of blobs (1); each: 1 if shared (1), algorithm (1: LZ4, 2: Zstandard), blocks of content (1), stored bytes (varint), number of runs (1), each: blocks (1), block (6); the crc32c (4) of each stored block; number of ranges (1), each: first slot (1), slots (1), first block of the content (1) |
//! | account | 2; blocks of compressed content, blocks and bytes that it is stored in, blocks that all its data takes (varints), bytes that are stored (zigzag varint); or 1, without the last two, as it was before they were counted |
//! | [`Refs`] | 1; pairs of varints until the region's 256 blocks are told: blocks, count of each |
//! | bitmap | 1 and 1024 bytes, a bit a block; or 2 and pairs of varints: blocks passed over, blocks that hold data |
//! | [`Value`] | 0 and the value; or 1 and its length (4), when it stands in pieces of 24 KiB |
//! | piece | its bytes |
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::blob::Blob;
use crate::codec::{Decoded, Malformed, Reader, put_at, put_bytes, put_varint};
use crate::keys::SHARD_BLOCKS;
use crate::patch::Patch;
use crate::txn::MAX_OBJECT_BYTES;
use bytes::{Bytes, BytesMut};
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use std::ops::Range;

const FORMAT: u8 = 1;

/// Longest value that stands in one row; longer ones are cut into pieces of this size.
pub(crate) const PIECE_BYTES: usize = 24 * 1024;

/// Longest row.
pub(crate) const MAX_ROW_BYTES: usize = PIECE_BYTES + 64;

/// The record of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Onode {
    /// Names the object's rows. Never used again.
    pub id: u64,
    /// Logical bytes.
    pub size: u64,
    /// `HAS_*`: which kinds of rows there may be.
    pub flags: u8,
    /// The owner's own small record.
    pub meta: Bytes,
}

impl Onode {
    /// There may be extents.
    pub const HAS_DATA: u8 = 1;
    /// There may be attributes.
    pub const HAS_ATTRS: u8 = 2;
    /// There may be omap entries.
    pub const HAS_OMAP: u8 = 4;
    /// There is an omap header.
    pub const HAS_HEADER: u8 = 8;
    /// There may be values cut into pieces.
    pub const HAS_BIG: u8 = 16;

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that the last block has room for behind the object's end, when it has data, wherever that is.
    pub fn padding(&self) -> u64 {
        let room = self.size.wrapping_neg() & (BLOCK_BYTES as u64).wrapping_sub(1);
        if self.has(Onode::HAS_DATA) { room } else { 0 }
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, self.flags]);
        put_varint(out, self.id);
        put_varint(out, self.size);
        put_bytes(out, &self.meta);
    }

    pub fn decode(row: &Bytes) -> Decoded<Onode> {
        let mut r = Reader::new(row);
        if r.u8()? != FORMAT {
            return Err(Malformed("an object record of an unknown format"));
        }
        let flags = r.u8()?;
        let id = r.varint()?;
        if id >= u64::MAX >> 1 {
            return Err(Malformed("an object id is too large"));
        }
        let size = r.varint()?;
        if size > MAX_OBJECT_BYTES {
            return Err(Malformed("an object's size is impossible"));
        }
        let meta = row.slice_ref(r.bytes()?);
        r.finish()?;
        Ok(Onode { id, size, flags, meta })
    }
}

/// Where one 4 KiB block of an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Block on the device; 0 for a hole (block 0 is a superblock, never data). Of a block in a blob,
    /// the blob's first block.
    pub phys: u64,
    /// crc32c of the block; 0 when it is in a blob.
    pub crc: u32,
    /// Other objects may refer to the block too; the reference counts know. False when it is in a
    /// blob, which knows itself.
    pub shared: bool,
    /// 0: the block stands by itself. Otherwise it is in a blob: block `part - 1` of its content.
    pub part: u8,
}

impl Slot {
    pub const HOLE: Slot = Slot { phys: 0, crc: 0, shared: false, part: 0 };

    /// A block that stands by itself.
    pub fn plain(phys: u64, crc: u32) -> Slot {
        Slot { phys, crc, shared: false, part: 0 }
    }

    pub fn is_hole(&self) -> bool {
        self.phys == 0
    }

    /// Whether it is a block that stands by itself.
    pub fn is_plain(&self) -> bool {
        self.phys != 0 && self.part == 0
    }

    /// Whether it is in a blob.
    pub fn is_packed(&self) -> bool {
        self.part != 0
    }
}

/// The extents of 128 KiB of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub slots: [Slot; SHARD_BLOCKS as usize],
    /// The blobs that slots are in.
    pub blobs: Vec<Blob>,
}

pub(crate) const RUN_SHARED: u8 = 1;
const SHARD_WITH_BLOBS: u8 = 2;
/// Bytes of an encoded run: first slot, length, flags, place.
const RUN_BYTES: usize = 9;

impl Default for Shard {
    fn default() -> Self {
        Shard { slots: [Slot::HOLE; SHARD_BLOCKS as usize], blobs: Vec::new() }
    }
}

impl Shard {
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Slot::is_hole)
    }

    /// The blob that a slot is in.
    pub fn blob(&self, start: u64) -> Option<&Blob> {
        self.blobs.iter().find(|b| b.start() == start)
    }

    /// How many slots are in the blob that begins at `start`.
    pub fn uses(&self, start: u64) -> usize {
        self.slots.iter().filter(|s| s.is_packed() && s.phys == start).count()
    }

    /// How many slots are no holes.
    pub fn content(&self) -> u64 {
        self.slots.iter().filter(|s| !s.is_hole()).count() as u64
    }

    /// How many slots are in blobs.
    pub fn packed(&self) -> u64 {
        self.slots.iter().filter(|s| s.is_packed()).count() as u64
    }

    /// Runs of slots that follow each other on the device: first slot, length.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0usize;
        std::iter::from_fn(move || {
            let mut rest = self.slots.iter().enumerate().skip(at);
            let (first, start) = rest.find(|(_, s)| s.is_plain())?;
            let follows = |(i, s): &(usize, &Slot)| {
                let n = (*i as u64).wrapping_sub(first as u64);
                s.is_plain() && s.phys == start.phys.wrapping_add(n) && s.shared == start.shared
            };
            let len = rest.take_while(follows).count().saturating_add(1);
            at = first.saturating_add(len);
            Some((first, len))
        })
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(168);
        let format = if self.blobs.is_empty() { FORMAT } else { SHARD_WITH_BLOBS };
        out.extend_from_slice(&[format, 0]);
        let mut count = 0u8;
        for (first, len) in self.runs() {
            let Some(slot) = self.slots.get(first) else { break };
            count = count.saturating_add(1);
            let flags = if slot.shared { RUN_SHARED } else { 0 };
            out.extend_from_slice(&[first as u8, len as u8, flags]);
            let [a, b, c, d, e, f, _, _] = slot.phys.to_le_bytes();
            out.extend_from_slice(&[a, b, c, d, e, f]);
        }
        if let Some(place) = out.get_mut(1) {
            *place = count;
        }
        for slot in self.slots.iter().filter(|s| s.is_plain()) {
            out.extend_from_slice(&slot.crc.to_le_bytes());
        }
        if format == SHARD_WITH_BLOBS {
            out.push(self.blobs.len() as u8);
            self.blobs.iter().for_each(|blob| self.encode_blob(blob, &mut out));
        }
        out.into()
    }

    pub fn decode(row: &[u8]) -> Decoded<Shard> {
        let mut r = Reader::new(row);
        let format = r.u8()?;
        if format != FORMAT && format != SHARD_WITH_BLOBS {
            return Err(Malformed("an extent shard of an unknown format"));
        }
        let runs = r.u8()?;
        let mut shard = Shard::default();
        let mut next = 0usize;
        for _ in 0..runs {
            let [first, len, flags] = r.array()?;
            let [a, b, c, d, e, f] = r.array()?;
            let phys = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            let first = usize::from(first);
            let end = first.saturating_add(usize::from(len));
            if first < next || len == 0 || phys == 0 || flags & !RUN_SHARED != 0 {
                return Err(Malformed("an extent shard with impossible runs"));
            }
            let slots = shard.slots.get_mut(first..end).ok_or(Malformed("a run past its shard"))?;
            for (slot, phys) in slots.iter_mut().zip(phys..) {
                *slot = Slot { shared: flags & RUN_SHARED != 0, ..Slot::plain(phys, 0) };
            }
            next = end;
        }
        for slot in shard.slots.iter_mut().filter(|s| !s.is_hole()) {
            slot.crc = r.u32()?;
        }
        if format == SHARD_WITH_BLOBS {
            for _ in 0..r.u8()? {
                shard.decode_blob(&mut r)?;
            }
        }
        r.finish()?;
        Ok(shard)
    }

    /// Of an encoded shard the slots of `wanted` that are no holes, in order: what
    /// [`Shard::decode`] gives, without unpacking the others. False, and nothing, if it has blobs.
    pub fn visit(
        row: &[u8],
        wanted: Range<usize>,
        mut take: impl FnMut(usize, Slot),
    ) -> Decoded<bool> {
        let mut r = Reader::new(row);
        match r.u8()? {
            FORMAT => {}
            SHARD_WITH_BLOBS => return Ok(false),
            _ => return Err(Malformed("an extent shard of an unknown format")),
        }
        let count = usize::from(r.u8()?);
        let runs = r.take(count.saturating_mul(RUN_BYTES))?;
        let crcs = r.rest();
        let (mut next, mut before) = (0usize, 0usize);
        let (runs, _) = runs.as_chunks::<RUN_BYTES>();
        for &[first, len, flags, a, b, c, d, e, f] in runs {
            let phys = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            let (first, len) = (usize::from(first), usize::from(len));
            let end = first.saturating_add(len);
            let is_odd = first < next || len == 0 || phys == 0 || flags & !RUN_SHARED != 0;
            if is_odd || end > SHARD_BLOCKS as usize {
                return Err(Malformed("an extent shard with impossible runs"));
            }
            for at in first.max(wanted.start)..end.min(wanted.end) {
                let skip = at.saturating_sub(first);
                let crc = crcs.as_chunks().0.get(before.saturating_add(skip));
                let crc = u32::from_le_bytes(*crc.ok_or(Malformed("ends too early"))?);
                let phys = phys.saturating_add(skip as u64);
                take(at, Slot { shared: flags & RUN_SHARED != 0, ..Slot::plain(phys, crc) });
            }
            (next, before) = (end, before.saturating_add(len));
        }
        if crcs.len() != before.saturating_mul(4) {
            return Err(Malformed("an extent shard with another number of checksums"));
        }
        Ok(true)
    }

    /// An encoded shard with what a patch changes. Its blocks stand by themselves and are not shared:
    /// only of those patches are made.
    pub fn patched(mut row: Bytes, patch: &Patch) -> Decoded<Bytes> {
        Shard::patch(&mut row, patch)?;
        Ok(row)
    }

    /// The same, in the row's own memory if nobody else has a part in it.
    pub fn patch(row: &mut Bytes, patch: &Patch) -> Decoded<()> {
        let mut places: SmallVec<[(usize, u32); 2]> = SmallVec::new();
        for (slot, crc) in patch.slots() {
            let (_, at) = Shard::own(row, *slot)
                .ok_or(Malformed("a patch of a block that has no place of its own"))?;
            places.push((at, *crc));
        }
        let own = std::mem::take(row).try_into_mut();
        let mut out = own.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        for (at, crc) in places {
            put_at(&mut out, at, crc.to_le_bytes());
        }
        *row = out.freeze();
        Ok(())
    }

    /// Of an encoded shard without blobs the place of a block that stands by itself and is not shared,
    /// and where in the row its checksum is.
    pub fn own(row: &[u8], slot: u8) -> Option<(u64, usize)> {
        let (&[FORMAT, count], rest) = row.split_first_chunk()? else { return None };
        let (runs, _) = rest.get(..usize::from(count).checked_mul(RUN_BYTES)?)?.as_chunks();
        let crcs = runs.len().checked_mul(RUN_BYTES)?.checked_add(2)?;
        let mut before = 0usize;
        for &[first, len, flags, a, b, c, d, e, f] in runs {
            match slot.checked_sub(first).filter(|skip| *skip < len) {
                Some(_) if flags != 0 => return None,
                Some(skip) => {
                    let place = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
                    let at =
                        crcs.checked_add(before.checked_add(usize::from(skip))?.checked_mul(4)?)?;
                    let is_there = row.len() >= at.checked_add(4)?;
                    return is_there.then_some((place.checked_add(u64::from(skip))?, at));
                }
                None => before = before.checked_add(usize::from(len))?,
            }
        }
        None
    }

    /// Place of the first slot, first slot and number of slots, if all blocks of an encoded shard are one
    /// run that is not shared.
    pub fn single_run(row: &[u8]) -> Option<(u64, u8, u8)> {
        match row {
            [FORMAT, 1, first, len, 0, a, b, c, d, e, f, ..] => {
                Some((u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0]), *first, *len))
            }
            _ => None,
        }
    }
}

/// Blocks whose references one row counts: 1 MiB.
pub(crate) const REFS_BLOCKS: u64 = 256;

/// Reference counts of the blocks of one region that more than one extent refers to.
///
/// A block without a count belongs to the one extent that refers to it, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refs {
    /// 0, or at least 2.
    pub counts: [u32; REFS_BLOCKS as usize],
}

impl Default for Refs {
    fn default() -> Self {
        Refs { counts: [0; REFS_BLOCKS as usize] }
    }
}

impl Refs {
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&n| n == 0)
    }

    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        let mut rest = self.counts.as_slice();
        while let Some((&count, _)) = rest.split_first() {
            let len = rest.iter().take_while(|&&n| n == count).count();
            put_varint(&mut out, len as u64);
            put_varint(&mut out, u64::from(count));
            rest = rest.get(len..).unwrap_or_default();
        }
        out.into()
    }

    pub fn decode(row: &[u8]) -> Decoded<Refs> {
        let mut r = Reader::new(row);
        if r.u8()? != FORMAT {
            return Err(Malformed("reference counts of an unknown format"));
        }
        let mut refs = Refs::default();
        let mut at = 0usize;
        while !r.is_empty() {
            let len = r.count()?;
            let count = r.varint_u32()?;
            let end = at.saturating_add(len);
            if len == 0 || count == 1 {
                return Err(Malformed("impossible reference counts"));
            }
            let places = refs.counts.get_mut(at..end);
            places.ok_or(Malformed("reference counts past their region"))?.fill(count);
            at = end;
        }
        if at != refs.counts.len() {
            return Err(Malformed("reference counts end too early"));
        }
        Ok(refs)
    }
}

/// Blocks that one bitmap row covers: 32 MiB.
pub(crate) const REGION_BLOCKS: u64 = 8192;
/// 64-bit words of a region's bitmap.
pub(crate) const REGION_WORDS: usize = (REGION_BLOCKS / 64) as usize;
/// The bitmap of one region; a set bit is a block that holds data.
pub(crate) type RegionBits = [u64; REGION_WORDS];

const BITMAP_RAW: u8 = 1;
const BITMAP_RUNS: u8 = 2;

/// The row of a region's bitmap: raw, or as runs where that is shorter.
pub(crate) fn encode_bitmap(bits: &RegionBits) -> Bytes {
    let mut out = vec![BITMAP_RUNS];
    let mut at = 0u64;
    while let Some((start, end)) = next_run(bits, at) {
        put_varint(&mut out, start.saturating_sub(at));
        put_varint(&mut out, end.saturating_sub(start));
        at = end;
        if out.len() > REGION_WORDS.saturating_mul(8) {
            let mut raw = Vec::with_capacity(REGION_WORDS.saturating_mul(8).saturating_add(1));
            raw.push(BITMAP_RAW);
            raw.extend(bits.iter().flat_map(|w| w.to_le_bytes()));
            return raw.into();
        }
    }
    // Until the checkpoint is done there are as many of them as regions that changed.
    out.shrink_to_fit();
    out.into()
}

/// The first run of set bits at or after `from`.
fn next_run(bits: &RegionBits, from: u64) -> Option<(u64, u64)> {
    let start = next_bit(bits, from, true)?;
    Some((start, next_bit(bits, start, false).unwrap_or(REGION_BLOCKS)))
}

/// The first bit at or after `from` that is `set`.
fn next_bit(bits: &RegionBits, from: u64, set: bool) -> Option<u64> {
    let first = usize::try_from(from / 64).ok()?;
    for (i, word) in bits.iter().enumerate().skip(first) {
        let mut word = if set { *word } else { !*word };
        if i == first {
            word &= u64::MAX.checked_shl((from % 64) as u32).unwrap_or(0);
        }
        if word != 0 {
            let base = (i as u64).saturating_mul(64);
            return Some(base.saturating_add(u64::from(word.trailing_zeros())));
        }
    }
    None
}

/// Reads [`encode_bitmap`].
pub(crate) fn decode_bitmap(row: &[u8]) -> Decoded<Box<RegionBits>> {
    let mut bits = Box::new([0u64; REGION_WORDS]);
    let mut r = Reader::new(row);
    match r.u8()? {
        BITMAP_RAW => {
            for word in bits.iter_mut() {
                *word = r.u64()?;
            }
            r.finish()?;
        }
        BITMAP_RUNS => {
            let mut at = 0u64;
            while !r.is_empty() {
                let start = at.saturating_add(r.varint()?);
                let end = start.saturating_add(r.varint()?);
                if start == end || end > REGION_BLOCKS {
                    return Err(Malformed("a bitmap with impossible runs"));
                }
                set_bits(&mut bits, start, end);
                at = end;
            }
        }
        _ => return Err(Malformed("a bitmap of an unknown format")),
    }
    Ok(bits)
}

fn set_bits(bits: &mut RegionBits, start: u64, end: u64) {
    for bit in start..end {
        if let Some(word) = usize::try_from(bit / 64).ok().and_then(|i| bits.get_mut(i)) {
            *word |= 1u64.checked_shl((bit % 64) as u32).unwrap_or(0);
        }
    }
}

/// An attribute's or omap entry's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The value itself.
    Inline(Bytes),
    /// It stands in pieces ([`crate::keys::piece`]) of this length together.
    Pieces(u32),
}

impl Value {
    pub fn inline_row(value: &[u8], out: &mut Vec<u8>) {
        out.push(0);
        out.extend_from_slice(value);
    }

    pub fn pieces_row(len: u32) -> Bytes {
        let mut out = vec![1];
        out.extend_from_slice(&len.to_le_bytes());
        out.into()
    }

    pub fn decode(row: &Bytes) -> Decoded<Value> {
        let mut r = Reader::new(row);
        match r.u8()? {
            0 => Ok(Value::Inline(row.slice_ref(r.rest()))),
            1 => {
                let len = r.u32()?;
                r.finish()?;
                Ok(Value::Pieces(len))
            }
            _ => Err(Malformed("a value of an unknown format")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::alloc::Run;
    use crate::compress::Algorithm;
    use crate::patch::tests::patches;
    use io::BLOCK_BYTES;
    use proptest::prelude::*;
    use smallvec::SmallVec;

    fn slots() -> impl Strategy<Value = Vec<Slot>> {
        let slot = (0u64..6, any::<u32>(), any::<bool>()).prop_map(|(phys, crc, shared)| {
            if phys == 0 { Slot::HOLE } else { Slot { shared, ..Slot::plain(phys, crc) } }
        });
        proptest::collection::vec(slot, SHARD_BLOCKS as usize)
    }

    proptest! {
        #[test]
        fn shards_round_trip(s in slots()) {
            let shard = Shard { slots: s.try_into().unwrap(), blobs: Vec::new() };
            let row = shard.encode();
            for wanted in [0..32, 3..4, 10..20, 31..32, 5..5] {
                let mut got = Vec::new();
                let all = Shard::visit(&row, wanted.clone(), |i, slot| got.push((i, slot)));
                prop_assert_eq!(all, Ok(true));
                let all = shard.slots.iter().copied().enumerate();
                let want: Vec<_> =
                    all.filter(|(i, s)| wanted.contains(i) && !s.is_hole()).collect();
                prop_assert_eq!(got, want);
            }
            prop_assert_eq!(Shard::decode(&row), Ok(shard));
        }

        #[test]
        fn a_patch_changes_what_a_shard_decodes_to(s in slots(), patch in patches()) {
            let mut shard = Shard { slots: s.try_into().unwrap(), blobs: Vec::new() };
            let row = shard.encode();
            let own = |s: &Slot| s.is_plain() && !s.shared;
            for (at, slot) in shard.slots.iter().enumerate() {
                let place = Shard::own(&row, at as u8).map(|(place, _)| place);
                prop_assert_eq!(place, own(slot).then_some(slot.phys));
            }
            let patched = Shard::patched(row, &patch);
            let slots = patch.slots().iter().map(|(at, _)| shard.slots[usize::from(*at)]);
            prop_assert_eq!(patched.is_ok(), slots.into_iter().all(|s| own(&s)));
            if let Ok(patched) = patched {
                patch.slots().iter().for_each(|(at, crc)| shard.slots[usize::from(*at)].crc = *crc);
                prop_assert_eq!(Shard::decode(&patched), Ok(shard));
            }
        }

        #[test]
        fn shards_with_blobs_round_trip(
            s in slots(),
            blobs in proptest::collection::vec((2u8..=32, 0u32..31, any::<bool>(), any::<u32>()), 1..5),
            places in proptest::collection::vec((0usize..32, 0usize..5, 0u8..32), 1..40),
        ) {
            let mut shard = Shard { slots: s.try_into().unwrap(), blobs: Vec::new() };
            for (i, (content, less, shared, crc)) in blobs.into_iter().enumerate() {
                let blocks = (u32::from(content) - 1).saturating_sub(less).max(1);
                let start = 1000 * (i as u64 + 1);
                let mut runs: SmallVec<[Run; 1]> = SmallVec::from_slice(&[Run { start, len: 1 }]);
                if blocks > 1 {
                    runs.push(Run { start: start + 500, len: blocks - 1 });
                }
                let crcs = (0..blocks).map(|n| crc ^ n).collect();
                let bytes = blocks * BLOCK_BYTES as u32 - crc % BLOCK_BYTES as u32;
                let algorithm = if shared { Algorithm::Lz4 } else { Algorithm::Zstd };
                shard.blobs.push(Blob { algorithm, shared, content, bytes, runs, crcs });
            }
            for (at, which, part) in places {
                let Some(blob) = shard.blobs.get(which) else { continue };
                let part = part % blob.content + 1;
                shard.slots[at] = Slot { phys: blob.start(), crc: 0, shared: false, part };
            }
            let slots = shard.slots;
            shard.blobs.retain(|b| slots.iter().any(|s| s.is_packed() && s.phys == b.start()));
            prop_assert_eq!(Shard::decode(&shard.encode()), Ok(shard));
        }

        #[test]
        fn onodes_round_trip(id in 0u64..1 << 60, size in 0u64..1 << 32, flags in any::<u8>(),
                             meta in proptest::collection::vec(any::<u8>(), 0..50)) {
            let onode = Onode { id, size, flags, meta: meta.into() };
            let mut row = Vec::new();
            onode.encode_to(&mut row);
            prop_assert_eq!(Onode::decode(&row.into()), Ok(onode));
        }

        #[test]
        fn bitmaps_round_trip(words in proptest::collection::vec(
            prop_oneof![Just(0u64), Just(u64::MAX), any::<u64>()], REGION_WORDS)) {
            let bits: RegionBits = words.try_into().unwrap();
            prop_assert_eq!(*decode_bitmap(&encode_bitmap(&bits)).unwrap(), bits);
        }

        #[test]
        fn refs_round_trip(counts in proptest::collection::vec(
            prop_oneof![Just(0u32), Just(2), 2u32..9], REFS_BLOCKS as usize)) {
            let refs = Refs { counts: counts.try_into().unwrap() };
            prop_assert_eq!(Refs::decode(&refs.encode()), Ok(refs));
        }

        #[test]
        fn damaged_rows_are_refused_or_read(b in proptest::collection::vec(any::<u8>(), 0..300),
                                            first in 0u8..4) {
            let mut b = b;
            if let Some(x) = b.first_mut() { *x = first; }
            let b = Bytes::from(b);
            let visited = Shard::visit(&b, 0..32, |_, _| ());
            prop_assert!(visited == Ok(false) || Shard::decode(&b).is_ok() == visited.is_ok());
            for slot in 0..32 {
                let own = Shard::own(&b, slot);
                prop_assert!(own.is_none_or(|(_, at)| at + 4 <= b.len()));
            }
            let _ = Onode::decode(&b);
            let _ = Refs::decode(&b);
            let _ = decode_bitmap(&b);
            let _ = Value::decode(&b);
        }
    }

    #[test]
    fn a_full_contiguous_shard_is_small() {
        let mut shard = Shard::default();
        for (i, slot) in shard.slots.iter_mut().enumerate() {
            *slot = Slot::plain(1000 + i as u64, i as u32);
        }
        assert_eq!(shard.encode().len(), 139);
    }
}
