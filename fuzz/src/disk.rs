//! The disk of an OSD: a sample of the store's format with blocks that rotted, in memory.
//!
//! Superblocks get a checksum that fits, so that what they say is believed; everything else is under
//! checksums that are kept elsewhere, and damage there must be found.

use bytes::Bytes;
use io::disk::{DevId, DeviceInfo, DiskDone, DiskError, DiskOp};
use io::{AlignedBuf, BLOCK_BYTES, Effects};
use std::collections::BTreeMap;
use store::{Config, Devices, Fsck, FsckReport};

/// The sample's device.
const DEVICE_BYTES: u64 = 8 << 20;
/// Memory for a check.
const CHECK_BYTES: usize = 8 << 20;
/// Each block of a sample: its number, and its bytes.
const RECORD_BYTES: usize = 8 + BLOCK_BYTES;
const MAGIC: &[u8] = b"LoligoSB";
const CRC_AT: usize = BLOCK_BYTES - 4;

pub fn samples() -> Vec<Vec<u8>> {
    crate::corpus::all_sizes("crates/store/tests/samples", |n| n.ends_with(".blocks"))
}

struct Disk(BTreeMap<u64, Bytes>);

impl Disk {
    fn load(sample: &[u8]) -> Self {
        let mut blocks = BTreeMap::new();
        for record in sample.chunks_exact(RECORD_BYTES) {
            let Some((number, block)) = record.split_first_chunk::<8>() else { continue };
            let mut block = block.to_vec();
            if block.starts_with(MAGIC) {
                let crc = denc::crc32c(u32::MAX, &block[..CRC_AT]);
                block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            }
            blocks.insert(u64::from_le_bytes(*number), block.into());
        }
        Disk(blocks)
    }

    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > DEVICE_BYTES) {
            return Err(DiskError::Short { done: 0, wanted: len });
        }
        let mut buf = AlignedBuf::zeroed(len);
        let first = offset / BLOCK_BYTES as u64;
        for (number, to) in (first..).zip(buf.as_mut_slice().chunks_mut(BLOCK_BYTES)) {
            if let Some(block) = self.0.get(&number) {
                to.copy_from_slice(block);
            }
        }
        Ok(buf.freeze())
    }

    fn carry_out(&self, op: &DiskOp) -> Result<Bytes, DiskError> {
        match op {
            DiskOp::Read { dev, offset, len } if *dev == DevId(0) => self.read(*offset, *len),
            DiskOp::Read { .. } => Err(DiskError::Os(5)),
            DiskOp::Write { .. } | DiskOp::Discard { .. } => panic!("a check writes nothing"),
            DiskOp::Flush { .. } => Ok(Bytes::new()),
        }
    }
}

/// Checks the store. Whether it is good.
pub fn feed(sample: &[u8]) -> bool {
    let disk = Disk::load(sample);
    let data = DeviceInfo { path: "memory".to_owned(), bytes: DEVICE_BYTES, is_block: false };
    let config = Config::for_memory(CHECK_BYTES);
    let mut fsck = Fsck::new(Devices { data, wal: None }, true, &config);
    let report = run(&disk, &mut fsck);
    let _ = report.findings.iter().map(ToString::to_string).collect::<Vec<_>>();
    !report.is_damaged()
}

fn run(disk: &Disk, fsck: &mut Fsck) -> FsckReport {
    let mut fx = Effects::new();
    let mut report = fsck.start(&mut fx);
    while report.is_none() {
        assert!(!fx.disk.is_empty(), "a check that waits for nothing never ends");
        for (token, op) in std::mem::take(&mut fx.disk) {
            let done = DiskDone { token, result: disk.carry_out(&op) };
            report = report.or(fsck.handle(done, &mut fx));
        }
    }
    report.expect("the loop ended with it")
}
