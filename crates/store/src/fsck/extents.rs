//! The blocks that rows refer to: read and compared with their checksums.

use super::rows::{Extent, RowCheck};
use super::{DATA_IN_FLIGHT, Fsck, Tag};
use crate::codec::block_crc;
use crate::store::inflight::{DATA, MAX_IO_BLOCKS};
use crate::wal::Content;
use bytes::Bytes;
use io::disk::{DevId, DiskError};
use io::{BLOCK_BYTES, Effects};
use std::collections::VecDeque;

impl Fsck {
    /// Reads the blocks of extents: neighbours together.
    pub(super) fn read_extents(&mut self, fx: &mut Effects) {
        let end = self.root().2;
        while self.reading < DATA_IN_FLIGHT {
            let Some(first) = self.queue.pop_front() else { return };
            let at = first.slot.phys;
            if let Some((blob, index)) = first.blob.as_ref().filter(|_| at >= end) {
                self.blobs.loaded(blob, *index, None);
            }
            if at >= end {
                let place = format!("block {at}");
                self.report.object(first.object.as_ref(), place, "it lies behind the device");
                continue;
            }
            if !self.data {
                continue;
            }
            let pending = self.replay.as_ref().and_then(|r| r.wal.pending(at));
            if let (Some(pending), Some(replay)) = (pending, &self.replay) {
                match replay.wal.content(pending) {
                    Content::Memory(bytes) => self.check_extents(vec![first], Ok(bytes)),
                    Content::Log { block, .. } => {
                        let sb = self.sb.as_ref().expect("the superblock was chosen before");
                        let (dev, block) = (DevId(sb.wal.dev), sb.wal.base + block);
                        self.reading += 1;
                        self.io.read(fx, dev, block, 1, Tag::Check(vec![first]));
                    }
                }
                continue;
            }
            let mut extents = vec![first];
            while let Some(next) = self.queue.front() {
                let place = at + extents.len() as u64;
                let logged = self.replay.as_ref().is_some_and(|r| r.wal.pending(place).is_some());
                let long = extents.len() as u64 >= MAX_IO_BLOCKS;
                if next.slot.phys != place || logged || long || place >= end {
                    break;
                }
                extents.extend(self.queue.pop_front());
            }
            self.reading += 1;
            self.io.read(fx, DATA, at, extents.len() as u64, Tag::Check(extents));
        }
    }

    pub(super) fn check_extents(&mut self, extents: Vec<Extent>, result: Result<Bytes, DiskError>) {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => {
                for e in extents {
                    if let Some((blob, at)) = &e.blob {
                        self.blobs.loaded(blob, *at, None);
                    }
                    let place = format!("block {}", e.slot.phys);
                    let what = format!("byte {} cannot be read: {error}", e.offset);
                    self.report.object(e.object.as_ref(), place, what);
                }
                return;
            }
        };
        for (i, e) in extents.into_iter().enumerate() {
            let block = bytes.slice(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES);
            self.report.blocks_checked += 1;
            let good = block_crc(&block) == e.slot.crc;
            if let Some((blob, at)) = &e.blob {
                let unpacked = self.blobs.loaded(blob, *at, good.then_some(block));
                if !unpacked {
                    let place = format!("block {}", blob.start());
                    let what = format!(
                        "the compressed extent at byte {} cannot be unpacked; the object must be \
                         fetched from another OSD",
                        e.offset
                    );
                    self.report.object(e.object.as_ref(), place, what);
                }
            }
            if !good {
                let place = format!("block {}", e.slot.phys);
                let what = format!(
                    "the 4 KiB at byte {} do not have their checksum; the object must be fetched \
                     from another OSD",
                    e.offset
                );
                self.report.object(e.object.as_ref(), place, what);
            }
        }
    }
}

/// What a row refers to is to be read. If no data is (`all`), only what is behind the device is of interest.
pub(super) fn queue_extents(
    queue: &mut VecDeque<Extent>,
    rows: &mut RowCheck,
    all: bool,
    end: u64,
) {
    let extents = rows.extents.drain(..);
    queue.extend(extents.filter(|extent| all || extent.slot.phys >= end));
}
