//! Reading objects' bytes and records, from memory or with a miss.

use super::Store;
use super::blocks::{Kept, LONG_BLOCKS};
use super::miss::{Miss, ReadSet, Want, Wants};
use super::onodes::KnownRow;
use super::outlines::BriefCrc;
use super::pieces::{Piece, Reading, Source};
use crate::blob::Blob;
use crate::keys::{self, Parsed, SHARD_BLOCKS, ShardId};
use crate::rows::{Onode, Shard, Slot};
use crate::wal::Content;
use bytes::{Bytes, BytesMut};
use denc::KnownCrc;
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use types::ObjectKey;
use types::testing::{Bug, planted};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What is known of an object without reading its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Logical bytes.
    pub size: u64,
    /// The owner's record. It shares memory with the store's cache: copy it to keep it.
    pub meta: Bytes,
    /// Whether it may have attributes.
    pub has_attrs: bool,
    /// Whether it may have omap entries.
    pub has_omap: bool,
}

impl From<Onode> for ObjectStat {
    fn from(onode: Onode) -> Self {
        ObjectStat {
            size: onode.size,
            has_attrs: onode.has(Onode::HAS_ATTRS),
            has_omap: onode.has(Onode::HAS_OMAP),
            meta: onode.meta,
        }
    }
}

/// Of an object's record, what reads of its bytes need.
#[derive(Clone, Copy, Debug)]
struct Body {
    id: u64,
    size: u64,
    has_data: bool,
}

impl Body {
    fn of(onode: &Onode) -> Self {
        Body { id: onode.id, size: onode.size, has_data: onode.has(Onode::HAS_DATA) }
    }
}

/// Blocks of an object and where they are; most reads are of one.
type Slots = SmallVec<[(u64, Slot); 2]>;

/// Where blocks of an object are.
#[derive(Default)]
struct Extents {
    slots: Slots,
    /// The blobs that some of them are in.
    blobs: Vec<Blob>,
    /// If the outline of their shard says where they are: which shard, and of which of its slots the
    /// checksum is a brief one, bit by bit.
    outline: Option<(ShardId, u32)>,
}

impl Store {
    pub(super) fn miss(&self, wants: Wants) -> Miss {
        let Wants { wants, problem, once, partly, .. } = wants;
        Miss { wants, problem, epoch: self.epoch, once, partly }
    }

    pub(super) fn damaged(&self, what: &'static str) -> Miss {
        let mut wants = Wants::default();
        wants.damaged(0, what);
        self.miss(wants)
    }

    pub(super) fn row(&self, key: &[u8]) -> Result<Option<Bytes>, Miss> {
        self.rows.view().get(key).map_err(|miss| self.miss(miss.into()))
    }

    pub(super) fn onode(&self, object: &ObjectKey) -> Result<Option<Onode>, Miss> {
        if let Some(known) = self.onodes.get(object) {
            return Ok(known.onode);
        }
        let found = self.rows.get(&keys::object(object));
        let (row, txn) = found.map_err(|miss| self.miss(miss.into()))?;
        let onode = row.as_ref().map(Onode::decode).transpose();
        let onode = onode.map_err(|why| self.damaged(why.0))?;
        self.onodes.found(object, onode.as_ref(), txn);
        Ok(onode)
    }

    /// What a read of an object's bytes needs to know of it.
    fn body(&self, object: &ObjectKey) -> Result<Option<Body>, Miss> {
        let known = self.onodes.look_at(object, |known| known.onode.as_ref().map(Body::of));
        match known {
            Some(body) => Ok(body),
            None => Ok(self.onode(object)?.as_ref().map(Body::of)),
        }
    }

    /// Size and record of an object, `None` when it does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn stat(&self, object: &ObjectKey) -> Result<Option<ObjectStat>, Miss> {
        Ok(self.onode(object)?.map(ObjectStat::from))
    }

    /// The objects of `from..to` in order, up to `max` of them.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn list(
        &self,
        from: &ObjectKey,
        to: &ObjectKey,
        max: usize,
    ) -> Result<Vec<(ObjectKey, ObjectStat)>, Miss> {
        let mut out = Vec::new();
        let mut bad = None;
        let end = keys::object(to).min(keys::objects_end());
        let scanned = self.rows.view().scan(&keys::object(from), &end, &mut |key, row| {
            match (keys::object_of(key), Onode::decode(row)) {
                (Some(object), Ok(onode)) if out.len() < max => out.push((object, onode.into())),
                (_, Err(why)) => bad = Some(why.0),
                _ => {}
            }
            out.len() < max && bad.is_none()
        });
        scanned.map_err(|miss| self.miss(miss.into()))?;
        match bad {
            Some(what) => Err(self.damaged(what)),
            None => Ok(out),
        }
    }

    /// The extents of the blocks `first..last` of an object; `by_row`: by their row, also where an outline
    /// would do.
    fn slots(
        &self,
        body: Body,
        first: u64,
        last: u64,
        (fetched, by_row): (&ReadSet, bool),
    ) -> Result<Extents, Miss> {
        let mut out = Extents::default();
        if !body.has_data || first >= last {
            return Ok(out);
        }
        let mut bad = None;
        let (from, to) = (first / SHARD_BLOCKS, (last - 1) / SHARD_BLOCKS);
        let mut take = |key: &[u8], row: &Bytes| {
            // Most shards are plain, and of most only a little is wanted.
            if let Ok(Parsed::Shard { number, .. }) = keys::parse(key) {
                let base = u64::from(number) * SHARD_BLOCKS;
                let end = last.saturating_sub(base).min(SHARD_BLOCKS);
                let wanted = first.saturating_sub(base) as usize..end as usize;
                let add = |i, slot| out.slots.push((base + i as u64, slot));
                match Shard::visit(row, wanted, add) {
                    Ok(true) => return true,
                    Ok(false) => {}
                    Err(_) => {
                        bad = Some("an extent shard");
                        return false;
                    }
                }
            }
            match (keys::parse(key), Shard::decode(row)) {
                (Ok(Parsed::Shard { number, .. }), Ok(shard)) => {
                    let base = u64::from(number) * SHARD_BLOCKS;
                    let slots = shard.slots.iter().enumerate().map(|(i, s)| (base + i as u64, *s));
                    let wanted = slots.filter(|(b, s)| (first..last).contains(b) && !s.is_hole());
                    let from = out.slots.len();
                    out.slots.extend(wanted);
                    let used = |blob: &Blob| {
                        let mut new = out.slots.iter().skip(from);
                        new.any(|(_, s)| s.is_packed() && s.phys == blob.start())
                    };
                    // Two shards may refer to the same one, as an object may be cloned to itself by
                    // way of another.
                    let mut blobs: Vec<Blob> = shard.blobs.into_iter().filter(used).collect();
                    blobs.retain(|b| out.blobs.iter().all(|known| known.start() != b.start()));
                    out.blobs.append(&mut blobs);
                }
                _ => bad = Some("an extent shard"),
            }
            bad.is_none()
        };
        if from == to {
            let id = (body.id, from as u32);
            let key = keys::shard(id.0, id.1);
            let visit = |known: &KnownRow| known.row.as_ref().is_none_or(|row| take(&key, row));
            match self.shards.look_at(&self.rows, id, visit) {
                Ok(_) if fetched.pages.is_empty() => {}
                Ok(_) => self.outlines.learn(&self.rows, id, fetched),
                Err(miss) => {
                    let outlined = if by_row { None } else { self.outlined(id, first, last) };
                    return outlined.ok_or_else(|| self.miss(miss.into()));
                }
            }
        } else {
            let range = (keys::shard(body.id, from as u32), keys::shard(body.id, to as u32 + 1));
            let scanned = self.rows.view().scan(&range.0, &range.1, &mut take);
            scanned.map_err(|miss| self.miss(miss.into()))?;
        }
        match bad {
            Some(what) => Err(self.damaged(what)),
            None => Ok(out),
        }
    }

    /// Blocks of a shard whose row is not in memory, if what is known of it is enough to read them.
    fn outlined(&self, id: ShardId, first: u64, last: u64) -> Option<Extents> {
        let places = self.outlines.places(id)?;
        let patch = self.rows.view().patch(&keys::shard(id.0, id.1));
        let mut out = Extents::default();
        let mut brief = 0;
        for block in first..last {
            let at = (block % SHARD_BLOCKS) as u8;
            let Some(place) = places(at) else { continue };
            let crc = match (patch.get(at), self.wal.pending(place)) {
                (Some(crc), _) => crc,
                (None, Some(pending)) => pending.crc,
                (None, None) if self.direct.run(place).is_some() => return None,
                (None, None) => {
                    brief |= 1 << at;
                    self.outlines.sum(id, at)?.bits()
                }
            };
            out.slots.push((block, Slot::plain(place, crc)));
        }
        Some(Extents { outline: Some((id, brief)), ..out })
    }

    /// Where a block is to be had of which only the brief checksum is known, and its whole checksum.
    fn outlined_source<'a>(
        &'a self,
        shard: ShardId,
        slot: Slot,
        fetched: &'a ReadSet,
        wants: &mut Wants,
    ) -> (Source<'a>, KnownCrc) {
        let brief = BriefCrc::of(slot.crc);
        if let Some(((run, at), crc)) = fetched.find_outlined(slot.phys, brief) {
            return (Source::Run { bytes: fetched.run(run), at }, KnownCrc::of(crc));
        }
        let is_it = |crc| BriefCrc::of(crc) == brief;
        if let Some(kept) = self.kept(slot.phys, is_it, wants) {
            return (Source::Run { bytes: kept.piece, at: kept.at }, KnownCrc::of(kept.crc));
        }
        wants.outlined(shard, slot.phys, brief);
        (Source::Missing, KnownCrc::NONE)
    }

    /// The block at a place from the memory of what was read.
    fn kept(
        &self,
        place: u64,
        is_it: impl FnOnce(u32) -> bool,
        wants: &mut Wants,
    ) -> Option<Kept<'_>> {
        let kept = if wants.from_disk { None } else { self.blocks.get(place, is_it) };
        wants.partly |= kept.is_some();
        kept
    }

    /// The bytes of a range, up to the end of the object, as pieces without gaps. Nothing when the
    /// object does not exist or the range is behind its end.
    ///
    /// # Errors
    /// What must be fetched first; `fetched` is what was.
    pub fn read(
        &self,
        object: &ObjectKey,
        offset: u64,
        len: u64,
        fetched: &ReadSet,
    ) -> Result<Vec<Piece>, Miss> {
        match self.read_for(object, (offset, len), fetched, Wants::default()) {
            // One long read costs no more than to read what lies between the blocks in memory, and its
            // buffer has the length of others, which can be used again.
            Err(miss) if miss.partly && len > LONG_BLOCKS * BLOCK => {
                self.read_for(object, (offset, len), fetched, Wants::from_disk())
            }
            result => result,
        }
    }

    /// The same for one who goes through all of something, once: what is not in the log's memory comes from
    /// the disk, and is not kept in memory. It goes by rows, which are so verified too, and by whole checksums.
    ///
    /// # Errors
    /// What must be fetched first; `fetched` is what was.
    pub fn read_once(
        &self,
        object: &ObjectKey,
        offset: u64,
        len: u64,
        fetched: &ReadSet,
    ) -> Result<Vec<Piece>, Miss> {
        self.read_for(object, (offset, len), fetched, Wants::once())
    }

    fn read_for(
        &self,
        object: &ObjectKey,
        (offset, len): (u64, u64),
        fetched: &ReadSet,
        mut wants: Wants,
    ) -> Result<Vec<Piece>, Miss> {
        let Some(body) = self.body(object)? else { return Ok(Vec::new()) };
        let end = offset.saturating_add(len).min(body.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let Extents { slots, blobs, outline } =
            self.slots(body, offset / BLOCK, end.div_ceil(BLOCK), (fetched, wants.once))?;
        let unpacked = self.unpack(object, &slots, &blobs, fetched, &mut wants);
        let mut reading = Reading::new(offset..end);
        // One block as a whole has its own.
        let is_block = offset.is_multiple_of(BLOCK) && end - offset == BLOCK;
        let mut crc = KnownCrc::NONE;
        let mut next = offset / BLOCK;
        for (block, slot) in slots {
            if next < block {
                reading.add(next, Source::Hole);
            }
            let outlined = outline.filter(|(_, brief)| brief >> (block % SHARD_BLOCKS) & 1 == 1);
            let source = if slot.is_packed() {
                Self::packed_source(slot, &blobs, &unpacked, &mut wants)
            } else if let Some((shard, _)) = outlined {
                let (source, whole) = self.outlined_source(shard, slot, fetched, &mut wants);
                crc = whole;
                source
            } else {
                let verified = !planted(Bug::NoChecksums);
                crc = if verified { KnownCrc::of(slot.crc) } else { KnownCrc::NONE };
                self.source(object, (block * BLOCK, BLOCK), slot, fetched, &mut wants)
            };
            reading.add(block, source);
            next = block + 1;
        }
        if next * BLOCK < end {
            reading.add(next, Source::Hole);
        }
        if !wants.is_empty() {
            return Err(self.miss(wants));
        }
        let mut pieces = reading.done();
        if let ([piece], true) = (&mut pieces[..], is_block) {
            piece.crc = crc;
        }
        Ok(pieces)
    }

    /// The contents of blobs; nothing when something of them must be read first.
    fn unpack(
        &self,
        object: &ObjectKey,
        slots: &[(u64, Slot)],
        blobs: &[Blob],
        fetched: &ReadSet,
        wants: &mut Wants,
    ) -> Vec<Bytes> {
        let mut stored = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let first = slots.iter().find(|(_, s)| s.is_packed() && s.phys == blob.start());
            let offset = first.map_or(0, |(block, _)| block * BLOCK);
            let mut packed = BytesMut::with_capacity(blob.crcs.len() * BLOCK_BYTES);
            for slot in blob.blocks() {
                match self.source(object, (offset, 0), slot, fetched, wants) {
                    Source::Block(bytes) => packed.extend_from_slice(&bytes),
                    Source::Run { bytes, at } => {
                        packed.extend_from_slice(&bytes[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
                    }
                    Source::Hole | Source::Missing => {}
                }
            }
            stored.push((offset, packed));
        }
        if !wants.is_empty() {
            return Vec::new();
        }
        let mut codec = self.codec.borrow_mut();
        let mut out = Vec::with_capacity(blobs.len());
        for (blob, (offset, packed)) in blobs.iter().zip(stored) {
            let bytes = packed.get(..blob.bytes as usize);
            let content = bytes.and_then(|b| codec.unpack(blob.algorithm, b, blob.content_bytes()));
            match content {
                Some(content) => out.push(content),
                None => wants.bad_blob(object, offset, blob),
            }
        }
        out
    }

    /// Where a block of a blob is to be had; `unpacked`: the contents of all, or of none when something
    /// must be read first.
    fn packed_source<'a>(
        slot: Slot,
        blobs: &[Blob],
        unpacked: &'a [Bytes],
        wants: &mut Wants,
    ) -> Source<'a> {
        let at = usize::from(slot.part.saturating_sub(1));
        let found = blobs.iter().position(|b| b.start() == slot.phys);
        match found.filter(|i| at < usize::from(blobs[*i].content)) {
            Some(blob) => {
                unpacked.get(blob).map_or(Source::Missing, |bytes| Source::Run { bytes, at })
            }
            None => {
                wants.damaged(slot.phys, "a block is in a compressed extent that is not there");
                Source::Missing
            }
        }
    }

    /// Where a block of the device is to be had. It is for the byte `offset` of the object, and the
    /// one behind it for the byte `step` further on.
    fn source<'a>(
        &'a self,
        object: &ObjectKey,
        (offset, step): (u64, u64),
        slot: Slot,
        fetched: &'a ReadSet,
        wants: &mut Wants,
    ) -> Source<'a> {
        if let Some(pending) = self.wal.pending(slot.phys) {
            if pending.crc != slot.crc {
                wants.damaged(slot.phys, "the log and the extents disagree about a block");
                return Source::Missing;
            }
            match self.wal.content(pending) {
                Content::Memory(bytes) => return Source::Block(bytes),
                Content::Log { seq, block } => {
                    if let Some((run, at)) = fetched.find(slot) {
                        return Source::Run { bytes: fetched.run(run), at };
                    }
                    let (object, place, crc) = (object.clone(), slot.phys, slot.crc);
                    wants.wants.push(Want::Log { object, offset, seq, block, place, crc });
                    return Source::Missing;
                }
            }
        }
        if let Some((start, bytes)) = self.direct.run(slot.phys) {
            return Source::Run { bytes, at: (slot.phys - start) as usize };
        }
        if let Some((run, at)) = fetched.find(slot) {
            return Source::Run { bytes: fetched.run(run), at };
        }
        if let Some(kept) = self.kept(slot.phys, |crc| crc == slot.crc, wants) {
            wants.at_hand(object, offset, step, slot);
            return Source::Run { bytes: kept.piece, at: kept.at };
        }
        wants.data(object, offset, step, slot);
        Source::Missing
    }

    /// The ranges of an object that are no holes, up to its end, as offset and length.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn extents(
        &self,
        object: &ObjectKey,
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>, Miss> {
        let Some(body) = self.body(object)? else { return Ok(Vec::new()) };
        let end = offset.saturating_add(len).min(body.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut out: Vec<(u64, u64)> = Vec::new();
        let none = ReadSet::new();
        for (block, _) in
            self.slots(body, offset / BLOCK, end.div_ceil(BLOCK), (&none, false))?.slots
        {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            match out.last_mut() {
                Some((o, l)) if *o + *l == from => *l += to - from,
                _ => out.push((from, to - from)),
            }
        }
        Ok(out)
    }

    /// Where two objects are alike by what is known of their blocks: both have the same one, or a hole, or
    /// blocks with the same brief checksum. Ranges in whole blocks, as offset and length.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn alike(&self, one: &ObjectKey, other: &ObjectKey) -> Result<Vec<(u64, u64)>, Miss> {
        let (Some(one), Some(other)) = (self.body(one)?, self.body(other)?) else {
            return Ok(Vec::new());
        };
        let (last, none) = (one.size.min(other.size) / BLOCK, ReadSet::new());
        let by_outline = (&none, false);
        let (ours, theirs) =
            match (self.slots(one, 0, last, by_outline), self.slots(other, 0, last, by_outline)) {
                (Ok(ours), Ok(theirs)) => (ours.slots, theirs.slots),
                (Err(mut miss), Err(more)) => {
                    miss.merge(more);
                    return Err(miss);
                }
                (Err(miss), _) | (_, Err(miss)) => return Err(miss),
            };
        let mut theirs = theirs.into_iter().peekable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut from = 0;
        let mut differs = |block: u64| {
            if block > from {
                out.push((from * BLOCK, (block - from) * BLOCK));
            }
            from = block + 1;
        };
        for (block, slot) in ours {
            while let Some((before, _)) = theirs.next_if(|(b, _)| *b < block) {
                differs(before);
            }
            let same = theirs.next_if(|(b, _)| *b == block);
            if !same.is_some_and(|(_, s)| has_same_content(&slot, &s)) {
                differs(block);
            }
        }
        theirs.for_each(|(block, _)| differs(block));
        differs(last);
        Ok(out)
    }
}

/// Whether two blocks hold the same, as far as can be known without reading them. Of a block in a blob only its
/// place is known.
fn has_same_content(a: &Slot, b: &Slot) -> bool {
    let same_place = (a.phys, a.part) == (b.phys, b.part);
    same_place || (a.is_plain() && b.is_plain() && BriefCrc::of(a.crc) == BriefCrc::of(b.crc))
}
