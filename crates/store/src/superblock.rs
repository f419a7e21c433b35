//! The superblock: where everything begins.
//!
//! There are two slots, used by turns (the generation's parity), and two copies of each slot at
//! different places. Only a slot that is not the newest is ever overwritten, and it is overwritten
//! only when all that the new superblock points to is durable. So a torn write leaves the other
//! slot, and a copy that rots leaves the other copy.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | magic `LoligoSB` |
//! | 8 | 2 | format, 1 |
//! | 10 | 2 | place of this copy: 0 to 3 |
//! | 12 | 4 | features that a reader must know: 1, there may be compressed extents; 2, inner nodes of the tree may have filters; 4, the log may have patches (records of kind 4); 8, and a checksum of each block of the data beside it (records of kind 5); 16, accounts count all data (records of kind 6, rows of format 2) |
//! | 16 | 16 | store |
//! | 32 | 16 | cluster |
//! | 48 | 4 | OSD |
//! | 52 | 1 | the log's device: 0 or 1 |
//! | 53 | 1 | 1: the store was closed in order |
//! | 54 | 1 | level of the root |
//! | 56 | 8 | blocks of the device |
//! | 64 | 8 | first block of the log |
//! | 72 | 8 | blocks of the log |
//! | 80 | 8 | generation |
//! | 88 | 8 | life: counts the mounts |
//! | 96 | 8 | root: block, 0 when the tree is empty |
//! | 104 | 4 | root: blocks |
//! | 108 | 4 | root: crc32c |
//! | 112 | 8 | first log batch whose records are not in the tree |
//! | 120 | 8 | its place in the endless log |
//! | 128 | 8 | first log batch whose blocks are not all in place |
//! | 136 | 8 | its place in the endless log |
//! | 144 | 8 | last log batch that was durable when this was written |
//! | 152 | 8 | next object id |
//! | 160 | 8 | next transaction |
//! | 168 | 8 | objects |
//! | 176 | 8 | logical bytes of all objects |
//! | 184 | 8 | blocks that several extents share |
//! | 4092 | 4 | crc32c of all before |
//!
//! Magic, format, features, store and crc32c stand where they do in every format: an older program that finds
//! any copy of a newer one leaves the store alone, since the log may hold what it does not know. Before the log
//! does, no copy lacks a feature any more.
//!
//! Ids, transactions and counts are as of the first batch that is not in the tree.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::codec::{Decoded, Malformed, Reader, put_at};
use crate::config::{HEAD_BLOCKS, Identity, MIN_WAL_BYTES, TAIL_BLOCKS, WAL_HEAD_BLOCKS, WalPlace};
use crate::error::Format;
use crate::tree::node::{MAX_LEVEL, MAX_NODE_BLOCKS, PagePtr};
use crate::wal::format::Delta;
use bytes::Bytes;
use io::{AlignedBuf, BLOCK_BYTES};
use types::{OsdId, Uuid};

const MAGIC: [u8; 8] = *b"LoligoSB";
const LABEL_MAGIC: [u8; 8] = *b"LoligoWL";
/// The newest format this code knows.
const FORMAT: u16 = 1;
/// The features this code knows: compressed extents, filters, patches in the log, checksums of each block beside
/// the log, accounts of all data. Every superblock that it writes says so, and a mount sees to it that all do before
/// it writes to the log.
pub(crate) const FEATURES: u32 = 31;
/// What this code can read.
pub(crate) const KNOWN: Format = Format { number: FORMAT, features: FEATURES };
const CRC_AT: usize = BLOCK_BYTES - 4;
const MIN_WAL_BLOCKS: u64 = MIN_WAL_BYTES / BLOCK_BYTES as u64;
/// Copies of superblocks on a device.
pub(crate) const PLACES: usize = 4;

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPos {
    /// The batch that stands there.
    pub seq: u64,
    /// Blocks of the endless log before it.
    pub at: u64,
}

/// What the store counts; every transaction carries its difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub objects: u64,
    pub bytes: u64,
    /// Blocks that several extents share.
    pub shared: u64,
}

impl Totals {
    /// Counts what a transaction changed.
    pub fn add(&mut self, delta: Delta) {
        self.objects = self.objects.saturating_add_signed(delta.objects);
        self.bytes = self.bytes.saturating_add_signed(delta.bytes);
        self.shared = self.shared.saturating_add_signed(delta.shared);
    }
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub identity: Identity,
    /// What a reader must know.
    pub features: u32,
    pub total_blocks: u64,
    pub wal: WalPlace,
    pub clean: bool,
    pub generation: u64,
    pub life: u64,
    pub root: Option<PagePtr>,
    pub root_level: u8,
    /// First batch whose records are not in the tree.
    pub rows: LogPos,
    /// First batch whose blocks are not all in place.
    pub blocks: LogPos,
    pub durable_seq: u64,
    pub next_id: u64,
    pub next_txn: u64,
    pub totals: Totals,
}

/// Why a block is no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSuper {
    /// Something else, or nothing.
    NoMagic,
    /// Written by a newer program, for this store.
    Newer { found: Format, store: Uuid },
    /// It was one, but is damaged.
    Damaged(&'static str),
}

impl From<Malformed> for NotSuper {
    fn from(m: Malformed) -> Self {
        NotSuper::Damaged(m.0)
    }
}

/// The block of each copy: slot 0, slot 1 at the front, then both at the end.
pub(crate) fn place(index: usize, total_blocks: u64) -> u64 {
    let end = total_blocks.saturating_sub(TAIL_BLOCKS);
    match index {
        0 | 1 => index as u64,
        _ => end.saturating_add(index as u64).saturating_sub(2),
    }
}

/// The two copies of the slot of a generation.
pub(crate) fn places_of(generation: u64) -> [usize; 2] {
    if generation.is_multiple_of(2) { [0, 2] } else { [1, 3] }
}

fn seal(buf: &mut AlignedBuf) {
    let crc = denc::crc32c(0xffff_ffff, buf.as_slice().get(..CRC_AT).unwrap_or_default());
    put_at(buf.as_mut_slice(), CRC_AT, crc.to_le_bytes());
}

fn sealed(bytes: &[u8]) -> bool {
    let body = bytes.get(..CRC_AT).unwrap_or_default();
    let crc = bytes.get(CRC_AT..).and_then(|b| b.first_chunk::<4>());
    bytes.len() == BLOCK_BYTES
        && crc.is_some_and(|c| u32::from_le_bytes(*c) == denc::crc32c(0xffff_ffff, body))
}

impl Superblock {
    /// The block of the copy at place `index`.
    pub fn encode(&self, index: usize) -> Bytes {
        let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
        let b = buf.as_mut_slice();
        put_at(b, 0, MAGIC);
        put_at(b, 8, FORMAT.to_le_bytes());
        put_at(b, 10, (index as u16).to_le_bytes());
        put_at(b, 12, self.features.to_le_bytes());
        put_at(b, 16, self.identity.store.0);
        put_at(b, 32, self.identity.cluster.0);
        put_at(b, 48, self.identity.osd.0.to_le_bytes());
        put_at(b, 52, [self.wal.dev, u8::from(self.clean), self.root_level]);
        let root = self.root.unwrap_or(PagePtr { block: 0, blocks: 0, crc: 0 });
        let words = [
            (56, self.total_blocks),
            (64, self.wal.base),
            (72, self.wal.blocks),
            (80, self.generation),
            (88, self.life),
            (96, root.block),
            (112, self.rows.seq),
            (120, self.rows.at),
            (128, self.blocks.seq),
            (136, self.blocks.at),
            (144, self.durable_seq),
            (152, self.next_id),
            (160, self.next_txn),
            (168, self.totals.objects),
            (176, self.totals.bytes),
            (184, self.totals.shared),
        ];
        for (at, word) in words {
            put_at(b, at, word.to_le_bytes());
        }
        put_at(b, 104, u32::from(root.blocks).to_le_bytes());
        put_at(b, 108, root.crc.to_le_bytes());
        seal(&mut buf);
        buf.freeze()
    }

    /// Reads the copy at place `index`.
    pub fn decode(bytes: &[u8], index: usize) -> Result<Superblock, NotSuper> {
        let mut r = Reader::new(bytes);
        if r.array()? != MAGIC {
            return Err(NotSuper::NoMagic);
        }
        if !sealed(bytes) {
            return Err(NotSuper::Damaged("its checksum is wrong"));
        }
        let number = r.u16()?;
        let place = usize::from(r.u16()?);
        let features = r.u32()?;
        let store = Uuid(r.array()?);
        if number != FORMAT || features & !FEATURES != 0 {
            return Err(NotSuper::Newer { found: Format { number, features }, store });
        }
        if place != index {
            return Err(NotSuper::Damaged("it belongs to another place"));
        }
        Ok(Self::decode_fields(r, features, store)?)
    }

    fn decode_fields(mut r: Reader<'_>, features: u32, store: Uuid) -> Decoded<Superblock> {
        let cluster = Uuid(r.array()?);
        let osd = OsdId(r.u32()? as i32);
        let [dev, clean, root_level, _] = r.array()?;
        let (total_blocks, base, blocks) = (r.u64()?, r.u64()?, r.u64()?);
        let (generation, life) = (r.u64()?, r.u64()?);
        let (block, length, crc) = (r.u64()?, r.u32()?, r.u32()?);
        let root = PagePtr { block, blocks: u16::try_from(length).unwrap_or(u16::MAX), crc };
        let rows = LogPos { seq: r.u64()?, at: r.u64()? };
        let in_place = LogPos { seq: r.u64()?, at: r.u64()? };
        let (durable_seq, next_id, next_txn) = (r.u64()?, r.u64()?, r.u64()?);
        let totals = Totals { objects: r.u64()?, bytes: r.u64()?, shared: r.u64()? };
        let sb = Superblock {
            identity: Identity { cluster, osd, store },
            features,
            total_blocks,
            wal: WalPlace { dev, base, blocks },
            clean: clean != 0,
            generation,
            life,
            root: (block != 0).then_some(root),
            root_level,
            rows,
            blocks: in_place,
            durable_seq,
            next_id,
            next_txn,
            totals,
        };
        sb.check()?;
        Ok(sb)
    }

    /// What a checksum cannot tell: whether the figures make sense.
    fn check(&self) -> Decoded<()> {
        let data_end = self.total_blocks.saturating_sub(TAIL_BLOCKS);
        let wal_end = self.wal.base.checked_add(self.wal.blocks);
        let wal_ok = match self.wal.dev {
            0 => self.wal.base >= HEAD_BLOCKS && wal_end.is_some_and(|e| e <= data_end),
            1 => self.wal.base == WAL_HEAD_BLOCKS && wal_end.is_some(),
            _ => false,
        };
        let limit = 1u64 << 48;
        let root_ok = self
            .root
            .is_none_or(|r| r.block < data_end && (1..=MAX_NODE_BLOCKS).contains(&r.blocks));
        let seqs = [self.rows.seq, self.blocks.seq, self.rows.at, self.blocks.at, self.next_txn];
        let seqs_ok = seqs.iter().all(|s| *s < 1 << 60) && self.next_id < 1 << 60;
        let begun = self.rows.seq > 0 && self.blocks.seq > 0 && self.next_txn > 0;
        let (old, new) = (self.rows, self.blocks);
        let (old, new) = if old.seq <= new.seq { (old, new) } else { (new, old) };
        let ordered = old.at <= new.at && new.at.saturating_sub(old.at) <= self.wal.blocks;
        let Totals { objects, bytes, shared } = self.totals;
        let counted = objects < limit && bytes < 1 << 62 && shared <= self.total_blocks;
        let sizes = MIN_WAL_BLOCKS..limit;
        let wal_ok = wal_ok && sizes.contains(&self.wal.blocks) && begun && ordered && counted;
        if !wal_ok
            || self.total_blocks < HEAD_BLOCKS + TAIL_BLOCKS
            || self.total_blocks >= limit
            || !root_ok
            || !seqs_ok
        {
            return Err(Malformed("its figures are impossible"));
        }
        if self.root_level > MAX_LEVEL || self.generation >= limit || self.life >= limit {
            return Err(Malformed("its figures are impossible"));
        }
        Ok(())
    }
}

/// The first block of a log device: says whose log it is.
///
/// Magic `LoligoWL` (8), format 1 (2), 0 (6), store (16), cluster (16), OSD (4), 0 (4), blocks of
/// the log (8); crc32c at 4092.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalLabel {
    pub identity: Identity,
    pub blocks: u64,
}

impl WalLabel {
    pub fn encode(&self) -> Bytes {
        let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
        let b = buf.as_mut_slice();
        put_at(b, 0, LABEL_MAGIC);
        put_at(b, 8, FORMAT.to_le_bytes());
        put_at(b, 16, self.identity.store.0);
        put_at(b, 32, self.identity.cluster.0);
        put_at(b, 48, self.identity.osd.0.to_le_bytes());
        put_at(b, 56, self.blocks.to_le_bytes());
        seal(&mut buf);
        buf.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<WalLabel, NotSuper> {
        let mut r = Reader::new(bytes);
        if r.array()? != LABEL_MAGIC {
            return Err(NotSuper::NoMagic);
        }
        if !sealed(bytes) {
            return Err(NotSuper::Damaged("its checksum is wrong"));
        }
        let number = r.u16()?;
        r.take(6)?;
        let store = Uuid(r.array()?);
        if number != FORMAT {
            return Err(NotSuper::Newer { found: Format { number, features: 0 }, store });
        }
        let cluster = Uuid(r.array()?);
        let osd = OsdId(r.u32()? as i32);
        r.take(4)?;
        Ok(WalLabel { identity: Identity { cluster, osd, store }, blocks: r.u64()? })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample() -> Superblock {
        let id = |n| Uuid([n; 16]);
        Superblock {
            identity: Identity { cluster: id(1), osd: OsdId(3), store: id(2) },
            features: FEATURES,
            total_blocks: 4096,
            wal: WalPlace { dev: 0, base: 16, blocks: 64 },
            clean: true,
            generation: 7,
            life: 2,
            root: Some(PagePtr { block: 256, blocks: 1, crc: 0x1234_5678 }),
            root_level: 1,
            rows: LogPos { seq: 9, at: 40 },
            blocks: LogPos { seq: 8, at: 30 },
            durable_seq: 11,
            next_id: 5,
            next_txn: 20,
            totals: Totals { objects: 4, bytes: 5000, shared: 1 },
        }
    }

    #[test]
    fn round_trips_at_its_place_only() {
        let sb = sample();
        for index in 0..PLACES {
            let bytes = sb.encode(index);
            assert_eq!(Superblock::decode(&bytes, index), Ok(sb.clone()));
            assert!(Superblock::decode(&bytes, (index + 1) % PLACES).is_err());
        }
        assert_eq!([0, 1, 2, 3].map(|i| place(i, 4096)), [0, 1, 4094, 4095]);
        let label = WalLabel { identity: sb.identity, blocks: 64 };
        assert_eq!(WalLabel::decode(&label.encode()), Ok(label));
    }

    proptest! {
        #[test]
        fn damage_is_seen(at in 0usize..BLOCK_BYTES, bit in 0u8..8) {
            let mut bytes = sample().encode(0).to_vec();
            bytes[at] ^= 1 << bit;
            prop_assert!(Superblock::decode(&bytes, 0).is_err());
        }

        /// Also when the checksum fits what stands there.
        #[test]
        fn impossible_figures_never_panic(damage in proptest::collection::vec((8usize..192, any::<u8>()), 1..9)) {
            let mut buf = AlignedBuf::copy_of(&sample().encode(0));
            for (at, value) in damage {
                buf.as_mut_slice()[at] = value;
            }
            seal(&mut buf);
            let _ = Superblock::decode(buf.as_slice(), 0);
            let _ = WalLabel::decode(buf.as_slice());
        }
    }
}
