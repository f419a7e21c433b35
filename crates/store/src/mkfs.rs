//! Making a store on a device.
//!
//! 1. Look at the start and the end, and refuse if there is anything (unless forced): what is known is named, and
//!    what is not is no less somebody's.
//! 2. Write zeros over the log, so that its writes later only overwrite, and over the superblocks.
//! 3. Flush; write both copies of the first superblock, and the label of a log device.
//!
//! A crash before the end leaves a device without a superblock, which is no store.

use crate::config::{
    Config, Devices, HEAD_BLOCKS, Identity, MIN_DATA_BYTES, MIN_WAL_BYTES, TAIL_BLOCKS,
    WAL_HEAD_BLOCKS, WalPlace, blocks_of,
};
use crate::error::MkfsError;
use crate::store::inflight::{DATA, Io};
use crate::superblock::{FEATURES, LogPos, PLACES, Superblock, Totals, WalLabel, place, places_of};
use bytes::Bytes;
use io::disk::{DevId, DeviceInfo, DiskDone, DiskError, WriteMode};
use io::{AlignedBuf, BLOCK_BYTES, Effects};
use smallvec::smallvec;
use std::collections::VecDeque;

const LOG: DevId = DevId(1);
/// Blocks at the start of a device that are looked at.
const PROBE_BLOCKS: u64 = 32;
/// For [`what_is_on`]: bytes at a device's start.
pub const PROBE_BYTES: usize = PROBE_BLOCKS as usize * BLOCK_BYTES;
/// And at its end.
pub const PROBE_END_BYTES: usize = TAIL_BLOCKS as usize * BLOCK_BYTES;
/// Blocks of one write of zeros.
const ZERO_BLOCKS: u64 = 256;
/// Writes of zeros in flight.
const ZEROS_IN_FLIGHT: usize = 4;
/// Transaction and batch numbers begin above 0, which means "none".
const FIRST: u64 = 1;

#[derive(Debug)]
enum Tag {
    /// The start, or the end, of a device.
    Probe {
        dev: DevId,
        tail: bool,
    },
    Zero,
    Flush,
    Super,
}

/// A store being made.
pub struct Mkfs {
    devices: Devices,
    sb: Superblock,
    force: bool,
    io: Io<Tag>,
    /// Ranges to be zeroed.
    zeros: VecDeque<(DevId, u64, u64)>,
    over: bool,
}

/// What stands at a place of a device if something known is there: offset, bytes, name.
const KNOWN: &[(usize, &[u8], &str)] = &[
    (0, b"LoligoSB", "a store of Loligo"),
    (4096, b"LoligoSB", "a store of Loligo"),
    (0, b"LoligoWL", "the log of a store of Loligo"),
    (0, b"bluestore block device", "an OSD of Ceph"),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (65600, b"_BHRfS_M", "a btrfs file system"),
    (512, b"LABELONE", "an LVM volume"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (512, b"EFI PART", "a partition table"),
    (510, &[0x55, 0xaa], "a partition table or boot sector"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
];

/// What nobody knows.
const UNKNOWN: &str = "data of an unknown kind";

fn known_at_start(bytes: &[u8]) -> Option<&'static str> {
    let is = |(at, magic, _): &&(usize, &[u8], &str)| {
        bytes.get(*at..).is_some_and(|b| b.starts_with(magic))
    };
    KNOWN.iter().find(is).map(|(_, _, what)| *what)
}

fn known_at_end(bytes: &[u8]) -> Option<&'static str> {
    let found = bytes.chunks(BLOCK_BYTES).any(|b| b.starts_with(b"LoligoSB"));
    found.then_some("a store of Loligo (its second superblock)")
}

fn unknown(bytes: &[u8]) -> Option<&'static str> {
    bytes.iter().any(|b| *b != 0).then_some(UNKNOWN)
}

/// What a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros, where anything would begin or end.
    Nothing,
    /// A store, of which a superblock can be read.
    Store(Identity),
    /// The log of a store, of which the label can be read.
    Log(Identity),
    /// Something else.
    Other(&'static str),
}

/// What a device holds, by its first [`PROBE_BYTES`] and its last [`PROBE_END_BYTES`].
pub fn what_is_on(start: &[u8], end: &[u8]) -> Content {
    let copies = start.chunks(BLOCK_BYTES).take(2).chain(end.chunks(BLOCK_BYTES)).enumerate();
    let mut supers = copies.filter_map(|(index, block)| Superblock::decode(block, index).ok());
    if let Some(found) = supers.next() {
        return Content::Store(found.identity);
    }
    let label = start.chunks(BLOCK_BYTES).next().map(WalLabel::decode);
    if let Some(Ok(label)) = label {
        return Content::Log(label.identity);
    }
    let known = known_at_start(start).or_else(|| known_at_end(end));
    let other = known.or_else(|| unknown(start)).or_else(|| unknown(end));
    other.map_or(Content::Nothing, Content::Other)
}

impl Mkfs {
    /// Prepares to make a store. With `force`, whatever the devices hold is destroyed.
    ///
    /// # Errors
    /// When a device is too small.
    pub fn new(
        devices: Devices,
        identity: Identity,
        config: &Config,
        force: bool,
    ) -> Result<Mkfs, MkfsError> {
        let wal = place_log(&devices, config)?;
        let total_blocks = blocks_of(devices.data.bytes);
        let first = LogPos { seq: FIRST, at: 0 };
        let sb = Superblock {
            identity,
            features: FEATURES,
            total_blocks,
            wal,
            clean: true,
            generation: 1,
            life: 0,
            root: None,
            root_level: 0,
            rows: first,
            blocks: first,
            durable_seq: 0,
            next_id: 1,
            next_txn: FIRST,
            totals: Totals::default(),
        };
        let zeros = VecDeque::new();
        Ok(Mkfs { devices, sb, force, io: Io::new(1), zeros, over: false })
    }

    /// Issues the first operations.
    pub fn start(&mut self, fx: &mut Effects) {
        let all: Vec<(DevId, u64)> = std::iter::once((DATA, &self.devices.data))
            .chain(self.devices.wal.iter().map(|d| (LOG, d)))
            .map(|(dev, info)| (dev, blocks_of(info.bytes)))
            .collect();
        for (dev, blocks) in all {
            let probe = PROBE_BLOCKS.min(blocks);
            self.io.read(fx, dev, 0, probe, Tag::Probe { dev, tail: false });
            let tail = TAIL_BLOCKS.min(blocks);
            self.io.read(fx, dev, blocks - tail, tail, Tag::Probe { dev, tail: true });
        }
    }

    fn device(&self, dev: DevId) -> &DeviceInfo {
        match (&self.devices.wal, dev) {
            (Some(wal), LOG) => wal,
            _ => &self.devices.data,
        }
    }

    /// Takes in the end of an operation. `Some` is the outcome.
    pub fn handle(
        &mut self,
        done: DiskDone,
        fx: &mut Effects,
    ) -> Option<Result<Identity, MkfsError>> {
        let tag = self.io.done(done.token)?;
        if self.over {
            return None;
        }
        let outcome = self.step(tag, done.result, fx).transpose();
        self.over = outcome.is_some();
        outcome
    }

    fn step(
        &mut self,
        tag: Tag,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<Option<Identity>, MkfsError> {
        let (what, dev) = match &tag {
            Tag::Probe { dev, .. } => ("reading", *dev),
            Tag::Zero => ("writing zeros", DATA),
            Tag::Flush => ("flushing", DATA),
            Tag::Super => ("writing the superblock", DATA),
        };
        let path = self.device(dev).path.clone();
        let bytes = result.map_err(|error| MkfsError::Io { path: path.clone(), what, error })?;
        match tag {
            Tag::Probe { tail, .. } => {
                let known = if tail { known_at_end(&bytes) } else { known_at_start(&bytes) };
                let found = known.or_else(|| unknown(&bytes));
                if let Some(what) = found.filter(|_| !self.force) {
                    return Err(MkfsError::InUse { path, what: what.into() });
                }
                if self.io.in_flight() == 0 {
                    self.begin_zeros(fx);
                }
            }
            Tag::Zero => self.write_zeros(fx),
            Tag::Flush => {
                if self.io.in_flight() == 0 {
                    self.write_supers(fx);
                }
            }
            Tag::Super => {
                if self.io.in_flight() == 0 {
                    return Ok(Some(self.sb.identity));
                }
            }
        }
        Ok(None)
    }

    fn begin_zeros(&mut self, fx: &mut Effects) {
        for index in 0..PLACES {
            self.zeros.push_back((DATA, place(index, self.sb.total_blocks), 1));
        }
        let wal = self.sb.wal;
        let mut at = 0;
        while at < wal.blocks {
            let len = ZERO_BLOCKS.min(wal.blocks - at);
            self.zeros.push_back((DevId(wal.dev), wal.base + at, len));
            at += len;
        }
        if wal.dev == 1 {
            self.zeros.push_back((LOG, 0, 1));
        }
        self.write_zeros(fx);
    }

    fn write_zeros(&mut self, fx: &mut Effects) {
        while self.io.in_flight() < ZEROS_IN_FLIGHT {
            let Some((dev, block, blocks)) = self.zeros.pop_front() else { break };
            let zeros = AlignedBuf::zeroed(blocks as usize * BLOCK_BYTES).freeze();
            self.io.write(fx, (dev, block), smallvec![zeros], WriteMode::Plain, Tag::Zero);
        }
        if self.io.in_flight() == 0 {
            self.io.flush(fx, DATA, Tag::Flush);
            if self.sb.wal.dev == 1 {
                self.io.flush(fx, LOG, Tag::Flush);
            }
        }
    }

    fn write_supers(&mut self, fx: &mut Effects) {
        for index in places_of(self.sb.generation) {
            let at = (DATA, place(index, self.sb.total_blocks));
            self.io.write(fx, at, smallvec![self.sb.encode(index)], WriteMode::Durable, Tag::Super);
        }
        if self.sb.wal.dev == 1 {
            let label = WalLabel { identity: self.sb.identity, blocks: self.sb.wal.blocks };
            self.io.write(fx, (LOG, 0), smallvec![label.encode()], WriteMode::Durable, Tag::Super);
        }
    }
}

/// Where the log goes, if the devices have room.
fn place_log(devices: &Devices, config: &Config) -> Result<WalPlace, MkfsError> {
    let block = BLOCK_BYTES as u64;
    let fixed = (HEAD_BLOCKS + TAIL_BLOCKS) * block;
    let too_small = |info: &DeviceInfo, min: u64| MkfsError::TooSmall {
        path: info.path.clone(),
        bytes: info.bytes,
        min,
    };
    let wanted = blocks_of(config.wal_bytes.max(MIN_WAL_BYTES));
    match &devices.wal {
        None => {
            let min = fixed + wanted * block + MIN_DATA_BYTES;
            if devices.data.bytes < min {
                return Err(too_small(&devices.data, min));
            }
            Ok(WalPlace { dev: 0, base: HEAD_BLOCKS, blocks: wanted })
        }
        Some(wal) => {
            let min = WAL_HEAD_BLOCKS * block + MIN_WAL_BYTES;
            if wal.bytes < min {
                return Err(too_small(wal, min));
            }
            if devices.data.bytes < fixed + MIN_DATA_BYTES {
                return Err(too_small(&devices.data, fixed + MIN_DATA_BYTES));
            }
            let blocks = blocks_of(wal.bytes) - WAL_HEAD_BLOCKS;
            Ok(WalPlace { dev: 1, base: WAL_HEAD_BLOCKS, blocks })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{OsdId, Uuid};

    const START: usize = PROBE_BYTES;
    const END: usize = PROBE_END_BYTES;

    #[test]
    fn what_others_left_is_known() {
        for (at, magic, what) in KNOWN {
            let mut bytes = vec![0; START];
            bytes[*at..*at + magic.len()].copy_from_slice(magic);
            assert!(known_at_start(&bytes).is_some(), "{what}");
        }
        assert_eq!(known_at_start(&[0; START]), None);
    }

    #[test]
    fn a_device_holds_nothing_when_it_begins_and_ends_with_zeros() {
        let with = |at: usize| {
            let mut all = vec![0; START + END];
            all[at] = 1;
            what_is_on(&all[..START], &all[START..])
        };
        assert_eq!(what_is_on(&[0; START], &[0; END]), Content::Nothing);
        for at in [0, 4095, START - 1, START, START + END - 1] {
            assert_eq!(with(at), Content::Other(UNKNOWN), "{at}");
        }
    }

    #[test]
    fn a_store_and_a_log_are_known_by_whose_they_are() {
        let identity =
            Identity { cluster: Uuid::from_random(1), osd: OsdId(3), store: Uuid::from_random(2) };
        let info = |bytes| DeviceInfo { path: "disk".into(), bytes, is_block: false };
        let devices = Devices { data: info(1 << 40), wal: None };
        let mkfs = Mkfs::new(devices, identity, &Config::default(), false).expect("it has room");
        let zeros = |blocks: usize| vec![0; blocks * BLOCK_BYTES];
        let (nothing, end) = (zeros(32), zeros(2));
        for index in 0..PLACES {
            let block = mkfs.sb.encode(index);
            let (mut start, mut end) = (nothing.clone(), end.clone());
            let at = (index % 2) * BLOCK_BYTES;
            let into = if index < 2 { &mut start } else { &mut end };
            into[at..at + BLOCK_BYTES].copy_from_slice(&block);
            assert_eq!(what_is_on(&start, &end), Content::Store(identity), "copy {index}");
        }
        let mut log = WalLabel { identity, blocks: 7 }.encode().to_vec();
        log.resize(START, 0);
        assert_eq!(what_is_on(&log, &end), Content::Log(identity));
        log[20] ^= 1;
        assert_eq!(what_is_on(&log, &end), Content::Other("the log of a store of Loligo"));
    }
}
