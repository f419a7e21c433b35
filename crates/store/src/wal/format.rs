//! The log's bytes: batches of records.
//!
//! A batch is a number of whole blocks: header and records, then the blocks that small writes put
//! into the log. The header is 128 bytes:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | magic `LoligoWA` |
//! | 8 | 2 | format, 1 |
//! | 10 | 2 | 0 |
//! | 12 | 4 | crc32c of the header, this field taken as 0 |
//! | 16 | 16 | store |
//! | 32 | 8 | life: the mount that wrote it |
//! | 40 | 8 | number of the batch |
//! | 48 | 8 | blocks of the endless log before it |
//! | 56 | 4 | bytes of records |
//! | 60 | 4 | crc32c of the records |
//! | 64 | 4 | blocks of header and records |
//! | 68 | 4 | blocks that follow them |
//! | 72 | 4 | crc32c field of the batch before, 0 for the first of a life |
//! | 76 | 4 | number of records |
//! | 80 | 8 | last batch known to be durable, with all before it |
//! | 88 | 8 | last transaction known to be decided, with all before it |
//! | 96 | 8 | generation of the newest durable superblock |
//! | 104 | 24 | 0 |
//!
//! The blocks' checksums stand in the records. A record is kind (1), length (4), body:
//!
//! * kind 1, a transaction, see [`Record`];
//! * kind 3, a transaction that changes what compression did: account (varint), change of its blocks
//!   of content, blocks and bytes (3 zigzag varints), then as kind 1;
//! * kind 4, a transaction with patches among its rows: as kind 3;
//! * kind 5, a transaction with data beside the log: as kind 4, and with a checksum of each of its
//!   blocks; before there was this kind, the others could have such data, with one for a run;
//! * kind 6, a transaction that changes what its account counts: as kind 5, and behind the changes of
//!   what compression did those of all its data, in blocks, and of what is stored, in bytes (2 zigzag
//!   varints); before there was this kind, the others could have such changes, which nobody counted;
//! * kind 2, dropped transactions: a count and their numbers; these are in earlier batches and must
//!   be passed over.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::accounts::AccountDelta;
use crate::alloc::Run;
use crate::codec::{Decoded, Malformed, Reader, put_at, put_bytes, put_varint};
use crate::keys::{self, Key, MAX_KEY_BYTES};
use crate::memtable::Memtable;
use crate::patch::Patch;
use crate::rows::MAX_ROW_BYTES;
use bytes::Bytes;
use denc::{unzigzag, zigzag};
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use types::Uuid;

const MAGIC: [u8; 8] = *b"LoligoWA";
const FORMAT: u16 = 1;
/// Bytes of a batch header.
pub(crate) const HEADER_BYTES: usize = 128;
const CRC_AT: usize = 12;

const KIND_TXN: u8 = 1;
const KIND_DROPPED: u8 = 2;
const KIND_PACKING_TXN: u8 = 3;
const KIND_PATCHING_TXN: u8 = 4;
const KIND_DIRECT_TXN: u8 = 5;
const KIND_COUNTED_TXN: u8 = 6;

/// What stands between the key of a row and what becomes of it.
const ROW_DELETE: u8 = 0;
const ROW_PUT: u8 = 1;
const ROW_PATCH: u8 = 2;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub store: Uuid,
    pub life: u64,
    pub seq: u64,
    /// Blocks of the endless log before it.
    pub at: u64,
    pub record_bytes: u32,
    pub record_crc: u32,
    pub head_blocks: u32,
    pub data_blocks: u32,
    pub prev_crc: u32,
    pub records: u32,
    pub durable_seq: u64,
    pub decided: u64,
    pub generation: u64,
}

impl Header {
    /// All blocks of the batch.
    pub fn blocks(&self) -> u64 {
        u64::from(self.head_blocks).saturating_add(u64::from(self.data_blocks))
    }

    /// Writes the header to the start of `out`; gives its crc.
    pub fn encode(&self, out: &mut [u8]) -> u32 {
        put_at(out, 0, MAGIC);
        put_at(out, 8, FORMAT.to_le_bytes());
        put_at(out, 10, [0; 6]);
        put_at(out, 16, self.store.0);
        for (at, word) in [
            (32, self.life),
            (40, self.seq),
            (48, self.at),
            (80, self.durable_seq),
            (88, self.decided),
            (96, self.generation),
        ] {
            put_at(out, at, word.to_le_bytes());
        }
        for (at, word) in [
            (56, self.record_bytes),
            (60, self.record_crc),
            (64, self.head_blocks),
            (68, self.data_blocks),
            (72, self.prev_crc),
            (76, self.records),
        ] {
            put_at(out, at, word.to_le_bytes());
        }
        put_at(out, 104, [0; 24]);
        let crc = denc::crc32c(0xffff_ffff, out.get(..HEADER_BYTES).unwrap_or_default());
        put_at(out, CRC_AT, crc.to_le_bytes());
        crc
    }

    /// Reads a header; gives its crc too.
    pub fn decode(block: &[u8]) -> Decoded<(Header, u32)> {
        let mut head: [u8; HEADER_BYTES] =
            *block.first_chunk().ok_or(Malformed("a batch header ends too early"))?;
        let mut r = Reader::new(block);
        if r.array()? != MAGIC || r.u16()? != FORMAT {
            return Err(Malformed("no batch header of a known format"));
        }
        r.u16()?;
        let crc = r.u32()?;
        put_at(&mut head, CRC_AT, [0; 4]);
        if denc::crc32c(0xffff_ffff, &head) != crc {
            return Err(Malformed("a batch header with a wrong checksum"));
        }
        let store = Uuid(r.array()?);
        let (life, seq, at) = (r.u64()?, r.u64()?, r.u64()?);
        let (record_bytes, record_crc) = (r.u32()?, r.u32()?);
        let (head_blocks, data_blocks) = (r.u32()?, r.u32()?);
        let (prev_crc, records) = (r.u32()?, r.u32()?);
        let (durable_seq, decided, generation) = (r.u64()?, r.u64()?, r.u64()?);
        let header = Header {
            store,
            life,
            seq,
            at,
            record_bytes,
            record_crc,
            head_blocks,
            data_blocks,
            prev_crc,
            records,
            durable_seq,
            decided,
            generation,
        };
        let room = u64::from(head_blocks).saturating_mul(BLOCK_BYTES as u64);
        let needed = u64::from(record_bytes).saturating_add(HEADER_BYTES as u64);
        let limit = 1u64 << 60;
        if needed > room || life >= limit || seq >= limit || at >= limit || decided >= limit {
            return Err(Malformed("a batch header with impossible figures"));
        }
        Ok((header, crc))
    }
}

/// Blocks that header and `record_bytes` of records take.
pub(crate) fn head_blocks(record_bytes: usize) -> u64 {
    record_bytes.saturating_add(HEADER_BYTES).div_ceil(BLOCK_BYTES) as u64
}

/// Data of a big write that stands beside the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    pub run: Run,
    pub crcs: Crcs,
}

/// Checksums of the blocks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Crcs {
    /// crc32c of each.
    Each(Vec<u32>),
    /// crc32c over the crc32c (4 bytes each) of all, as it was written once.
    All(u32),
}

impl Direct {
    /// The places of this run that do not hold its data, when the blocks that do stand there have the
    /// checksums `found`, in order. One that could not be read (`None`) may hold it: it is none of them.
    pub fn missing(&self, found: &[Option<u32>]) -> Vec<u64> {
        let places = self.run.start..self.run.end();
        match &self.crcs {
            Crcs::Each(crcs) => {
                let blocks = places.zip(crcs.iter().zip(found));
                let other = blocks.filter(|(_, (crc, found))| found.is_some_and(|f| f != **crc));
                other.map(|(place, _)| place).collect()
            }
            Crcs::All(all) => {
                let found: Option<Vec<u32>> = found.iter().copied().collect();
                let is_there = found.is_none_or(|found| crc_of_crcs(&found) == *all);
                if is_there { Vec::new() } else { places.collect() }
            }
        }
    }
}

fn crc_of_crcs(crcs: &[u32]) -> u32 {
    crcs.iter().fold(0xffff_ffff, |crc, block| denc::crc32c(crc, &block.to_le_bytes()))
}

/// How the store's totals change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub objects: i64,
    pub bytes: i64,
    pub shared: i64,
}

/// What one transaction comes to, as the log keeps it:
///
/// transaction, sequencer, next object id (varints), changes of the totals (3 zigzag varints),
/// deleted ranges (count; from, to each), rows (count; key, then 0: deleted; or 1, value: put; or 2,
/// [`Patch`]: patched), taken runs, freed runs (count; start, length each), blocks in the batch (count;
/// place, crc32c (4) each), data beside the log (count; start, length, then crc32c (4) of each block).
#[derive(Clone, Debug)]
pub(crate) struct Record<'a> {
    pub txn: u64,
    pub sequencer: u64,
    pub next_id: u64,
    pub delta: Delta,
    /// Whose sums `counts` changes.
    pub account: u64,
    pub counts: AccountDelta,
    pub changes: std::borrow::Cow<'a, Memtable>,
    pub taken: std::borrow::Cow<'a, [Run]>,
    pub freed: std::borrow::Cow<'a, [Run]>,
    /// Place and crc32c of each block that the batch holds for it.
    pub blocks: SmallVec<[(u64, u32); 2]>,
    pub direct: Vec<Direct>,
}

/// A record of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Txn(Box<Record<'static>>),
    Dropped(Vec<u64>),
}

fn put_runs(out: &mut Vec<u8>, runs: &[Run]) {
    put_varint(out, runs.len() as u64);
    for run in runs {
        put_varint(out, run.start);
        put_varint(out, u64::from(run.len));
    }
}

fn get_run(r: &mut Reader<'_>) -> Decoded<Run> {
    let (start, len) = (r.varint()?, r.varint_u32()?);
    let end = start.checked_add(u64::from(len)).filter(|end| *end < 1 << 48 && len > 0);
    end.map(|_| Run { start, len }).ok_or(Malformed("an impossible run of blocks"))
}

fn get_list<T>(r: &mut Reader<'_>, get: impl Fn(&mut Reader<'_>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let n = r.count()?;
    let mut out = Vec::with_capacity(n.min(r.rest().len()).min(1024));
    for _ in 0..n {
        out.push(get(r)?);
    }
    Ok(out)
}

fn get_key(r: &mut Reader<'_>) -> Decoded<Key> {
    let bytes = r.bytes()?;
    if bytes.len() > MAX_KEY_BYTES {
        return Err(Malformed("a key is too long"));
    }
    Ok(Key::from_slice(bytes))
}

fn put_kind(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = out.len().saturating_sub(start).saturating_sub(4);
    let len = u32::try_from(len).expect("a transaction's size is bounded");
    put_at(out, start, len.to_le_bytes());
}

impl Record<'_> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let plain = self.direct.is_empty() && self.changes.patches().is_empty();
        if plain && self.counts.is_empty() {
            return put_kind(out, KIND_TXN, |out| self.encode_body(out));
        }
        put_kind(out, KIND_COUNTED_TXN, |out| {
            put_varint(out, self.account);
            self.counts.encode(out);
            self.encode_body(out);
        });
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        for n in [self.txn, self.sequencer, self.next_id] {
            put_varint(out, n);
        }
        for n in [self.delta.objects, self.delta.bytes, self.delta.shared] {
            put_varint(out, zigzag(n));
        }
        put_varint(out, self.changes.ranges().len() as u64);
        for (from, range) in self.changes.ranges() {
            put_bytes(out, from);
            put_bytes(out, &range.end);
        }
        let rows = self.changes.rows().len().saturating_add(self.changes.patches().all().count());
        put_varint(out, rows as u64);
        for (key, row) in self.changes.rows() {
            put_bytes(out, key);
            match &row.value {
                None => out.push(ROW_DELETE),
                Some(value) => {
                    out.push(ROW_PUT);
                    put_bytes(out, value);
                }
            }
        }
        for ((id, number), patch, _) in self.changes.patches().all() {
            put_bytes(out, &keys::shard(id, number));
            out.push(ROW_PATCH);
            patch.encode(out);
        }
        put_runs(out, &self.taken);
        put_runs(out, &self.freed);
        put_varint(out, self.blocks.len() as u64);
        for (place, crc) in self.blocks.iter() {
            put_varint(out, *place);
            out.extend_from_slice(&crc.to_le_bytes());
        }
        put_varint(out, self.direct.len() as u64);
        for direct in self.direct.iter() {
            put_varint(out, direct.run.start);
            put_varint(out, u64::from(direct.run.len));
            match &direct.crcs {
                Crcs::Each(crcs) => crcs.iter().for_each(|crc| out.extend(crc.to_le_bytes())),
                Crcs::All(_) => unreachable!("no new record has only one checksum for a run"),
            }
        }
    }
}

/// Appends a record of dropped transactions.
pub(crate) fn encode_dropped(out: &mut Vec<u8>, txns: &[u64]) {
    put_kind(out, KIND_DROPPED, |out| {
        put_varint(out, txns.len() as u64);
        txns.iter().for_each(|txn| put_varint(out, *txn));
    });
}

/// Why records whose checksum is right cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRecords {
    /// One is of a kind that this program does not know.
    Newer(u8),
    Malformed(&'static str),
}

impl From<Malformed> for BadRecords {
    fn from(why: Malformed) -> Self {
        BadRecords::Malformed(why.0)
    }
}

/// Reads all records of a batch.
pub(crate) fn decode_records(bytes: &[u8], count: u32) -> Result<Vec<Entry>, BadRecords> {
    let mut r = Reader::new(bytes);
    let mut out = Vec::new();
    for _ in 0..count {
        let kind = r.u8()?;
        let len = r.u32()?;
        let mut body = Reader::new(r.take(len as usize)?);
        out.push(match kind {
            KIND_TXN => Entry::Txn(Box::new(decode_record(&mut body, kind)?)),
            KIND_PACKING_TXN | KIND_PATCHING_TXN | KIND_DIRECT_TXN | KIND_COUNTED_TXN => {
                let account = body.varint()?;
                let counts = AccountDelta::decode(&mut body, kind != KIND_COUNTED_TXN)?;
                let record = Record { account, counts, ..decode_record(&mut body, kind)? };
                Entry::Txn(Box::new(record))
            }
            KIND_DROPPED => Entry::Dropped(get_list(&mut body, |r| r.varint())?),
            _ => return Err(BadRecords::Newer(kind)),
        });
        body.finish()?;
    }
    r.finish()?;
    Ok(out)
}

fn decode_record(r: &mut Reader<'_>, kind: u8) -> Decoded<Record<'static>> {
    let (txn, sequencer, next_id) = (r.varint()?, r.varint()?, r.varint()?);
    if txn >= 1 << 60 || next_id >= 1 << 60 {
        return Err(Malformed("an impossible transaction"));
    }
    let objects = unzigzag(r.varint()?);
    let bytes = unzigzag(r.varint()?);
    let shared = unzigzag(r.varint()?);
    let changes = decode_changes(r, txn)?;
    let taken = get_list(r, get_run)?;
    let freed = get_list(r, get_run)?;
    let blocks = get_list(r, |r| Ok((r.varint()?, r.u32()?)))?;
    let each = [KIND_DIRECT_TXN, KIND_COUNTED_TXN].contains(&kind);
    let direct = get_list(r, |r| get_direct(r, each))?;
    Ok(Record {
        txn,
        sequencer,
        next_id,
        delta: Delta { objects, bytes, shared },
        account: 0,
        counts: AccountDelta::default(),
        changes: std::borrow::Cow::Owned(changes),
        taken: taken.into(),
        freed: freed.into(),
        blocks: blocks.into(),
        direct,
    })
}

fn get_direct(r: &mut Reader<'_>, each: bool) -> Decoded<Direct> {
    let run = get_run(r)?;
    if !each {
        return Ok(Direct { run, crcs: Crcs::All(r.u32()?) });
    }
    let bytes = (run.len as usize).saturating_mul(4);
    let crcs = r.take(bytes)?.as_chunks().0.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
    Ok(Direct { run, crcs: Crcs::Each(crcs) })
}

fn decode_changes(r: &mut Reader<'_>, txn: u64) -> Decoded<Memtable> {
    let mut changes = Memtable::default();
    for _ in 0..r.count()? {
        let (from, to) = (get_key(r)?, get_key(r)?);
        if from >= to {
            return Err(Malformed("an empty deleted range"));
        }
        changes.delete_range(from, to, txn);
    }
    for _ in 0..r.count()? {
        let key = get_key(r)?;
        let value = match r.u8()? {
            ROW_DELETE => None,
            ROW_PATCH => {
                let patch = Patch::decode(r)?;
                let id = keys::shard_of(&key);
                changes.patch(
                    id.ok_or(Malformed("a patch of a row that is no shard"))?,
                    &patch,
                    txn,
                )?;
                continue;
            }
            _ => Some(r.bytes()?),
        };
        if value.is_some_and(|v| v.len() > MAX_ROW_BYTES) {
            return Err(Malformed("a row is too long"));
        }
        changes.put(key, value.map(Bytes::copy_from_slice), txn);
    }
    Ok(changes)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use super::*;
    use crate::accounts::PackedDelta;
    use proptest::prelude::*;

    pub(crate) fn sample_header() -> Header {
        Header {
            store: Uuid([2; 16]),
            life: 3,
            seq: 9,
            at: 40,
            record_bytes: 100,
            record_crc: 7,
            head_blocks: 1,
            data_blocks: 2,
            prev_crc: 8,
            records: 1,
            durable_seq: 7,
            decided: 15,
            generation: 4,
        }
    }

    pub(crate) fn sample_record() -> Record<'static> {
        let mut changes = Memtable::default();
        changes.delete_range(Key::from_slice(b"a"), Key::from_slice(b"c"), 20);
        changes.put(Key::from_slice(b"b"), Some(Bytes::from_static(b"value")), 20);
        changes.put(Key::from_slice(b"d"), None, 20);
        Record {
            txn: 20,
            sequencer: 5,
            next_id: 6,
            delta: Delta { objects: 1, bytes: -4096, shared: 0 },
            account: 0,
            counts: AccountDelta::default(),
            changes: std::borrow::Cow::Owned(changes),
            taken: vec![Run { start: 100, len: 8 }].into(),
            freed: vec![Run { start: 200, len: 1 }].into(),
            blocks: vec![(100, 1), (300, 2)].into(),
            direct: vec![Direct {
                run: Run { start: 101, len: 3 },
                crcs: Crcs::Each(vec![9, 8, 7]),
            }],
        }
    }

    #[test]
    fn headers_and_records_round_trip() {
        let header = sample_header();
        let mut block = vec![0xaa; BLOCK_BYTES];
        let crc = header.encode(&mut block);
        assert_eq!(Header::decode(&block), Ok((header, crc)));
        let mut out = Vec::new();
        let record = sample_record();
        record.encode(&mut out);
        encode_dropped(&mut out, &[18, 19]);
        let back = decode_records(&out, 2).unwrap();
        let [Entry::Txn(txn), Entry::Dropped(dropped)] = back.as_slice() else {
            panic!("{back:?}")
        };
        assert_eq!(format!("{txn:?}"), format!("{record:?}"));
        assert_eq!(dropped, &[18, 19]);
        let packed = PackedDelta { content: 32, blocks: -7, bytes: 1 << 40 };
        let counts = AccountDelta { data: -9, stored: 1 << 50, packed };
        let counting = Record { account: 9, counts, ..record };
        let mut other = Vec::new();
        counting.encode(&mut other);
        let back = decode_records(&other, 1).unwrap();
        let [Entry::Txn(txn)] = back.as_slice() else { panic!("{back:?}") };
        assert_eq!(format!("{txn:?}"), format!("{counting:?}"));
        assert!(decode_records(&out, 1).is_err());
        assert!(decode_records(&out, 3).is_err());
    }

    #[test]
    fn data_beside_the_log_is_known_by_block_or_as_it_was_written_once() {
        let run = Run { start: 10, len: 3 };
        let each = Direct { run, crcs: Crcs::Each(vec![1, 2, 3]) };
        assert_eq!(each.missing(&[Some(1), Some(5), Some(3)]), [11]);
        assert_eq!(each.missing(&[None, Some(2), Some(5)]), [12]);
        let all = Direct { run, crcs: Crcs::All(crc_of_crcs(&[1, 2, 3])) };
        assert_eq!(all.missing(&[Some(1), Some(2), Some(3)]), [0; 0]);
        assert_eq!(all.missing(&[Some(1), Some(5), Some(3)]), [10, 11, 12]);
        assert_eq!(all.missing(&[None, Some(5), Some(3)]), [0; 0]);
        // Of one block both look the same but for the kind.
        let run = Run { start: 10, len: 1 };
        let direct = vec![Direct { run, crcs: Crcs::Each(vec![9]) }];
        let mut body = Vec::new();
        Record { direct, ..sample_record() }.encode_body(&mut body);
        let mut out = Vec::new();
        put_kind(&mut out, KIND_PATCHING_TXN, |out| {
            out.extend([0; 4]);
            out.extend_from_slice(&body);
        });
        let back = decode_records(&out, 1).unwrap();
        let [Entry::Txn(txn)] = back.as_slice() else { panic!("{back:?}") };
        assert_eq!(txn.direct, [Direct { run, crcs: Crcs::All(9) }]);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_in_a_header_is_seen(at in 0usize..HEADER_BYTES, bit in 0u8..8) {
            let mut block = vec![0; BLOCK_BYTES];
            sample_header().encode(&mut block);
            block[at] ^= 1 << bit;
            // The two bytes behind the format are not looked at, but are in the checksum.
            prop_assert!(Header::decode(&block).is_err());
        }

        #[test]
        fn damaged_records_never_panic(damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..5), count in 0u32..4) {
            let mut out = Vec::new();
            sample_record().encode(&mut out);
            encode_dropped(&mut out, &[18, 19]);
            let packed = PackedDelta { content: 1, blocks: 1, bytes: 1 };
            let counts = AccountDelta { data: 1, stored: 1, packed };
            Record { counts, ..sample_record() }.encode(&mut out);
            for (at, value) in damage {
                let at = at % out.len();
                out[at] = value;
            }
            let _ = decode_records(&out, count);
        }
    }
}
