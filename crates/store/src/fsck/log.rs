//! The log of a store that is checked: read as a mount does, and what is wrong with it.

use super::{Fsck, FsckReport, Tag};
use crate::wal::format::BadRecords;
use crate::wal::scan::{Scan, Scanned};
use bytes::Bytes;
use io::Effects;
use io::disk::{DevId, DiskError};

impl Fsck {
    pub(super) fn log_read(
        &mut self,
        at: u64,
        blocks: u64,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        // Behind the end of the log nothing is needed.
        let Some(scan) = &mut self.scan else { return self.step_verify(fx) };
        match result {
            Ok(bytes) => scan.loaded(at, bytes),
            Err(error) => scan.failed(at, blocks, error),
        }
        self.step_log(fx)
    }

    pub(super) fn step_log(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        while let (Some(scan), Some(replay)) = (&mut self.scan, &mut self.replay) {
            match scan.next() {
                Scanned::Batch(batch) => {
                    self.report.log_batches += 1;
                    if let Err((seq, what)) = replay.batch(*batch) {
                        self.log_damaged(format!("log batch {seq}"), what);
                    }
                }
                Scanned::End { .. } => {
                    self.note_unreadable();
                    return self.begin_verify(fx);
                }
                Scanned::Wait => break,
                cut_off => {
                    self.log_cut_off(&cut_off);
                    return self.begin_verify(fx);
                }
            }
        }
        let (Some(scan), Some(sb)) = (&mut self.scan, &self.sb) else { return None };
        while let Some(read) = scan.wants() {
            let (dev, block) = (DevId(sb.wal.dev), sb.wal.base + read.block);
            let tag = Tag::Log { at: read.at, blocks: read.blocks };
            self.io.read(fx, dev, block, read.blocks, tag);
        }
        None
    }

    /// All of the log that is needed could be read.
    fn note_unreadable(&mut self) {
        for (block, error) in self.scan.iter().flat_map(Scan::unreadable) {
            let place = format!("block {block} of the log's device");
            let what = format!("it cannot be read ({error}), but nothing in it is needed");
            self.report.note(place, what);
        }
    }

    /// The log cannot be read to its end.
    fn log_cut_off(&mut self, scanned: &Scanned) {
        let (seq, block, what) = match scanned {
            Scanned::Wait | Scanned::Batch(_) | Scanned::End { .. } => return,
            Scanned::Rot { seq, block, what } => {
                let known = "but it is known to have been durable: it and all after it are lost";
                (seq, block, format!("{what}, {known}"))
            }
            Scanned::Unreadable { seq, block, error } => (
                seq,
                block,
                format!(
                    "reading it failed ({error}): if it was there, it is lost, and all after it"
                ),
            ),
            Scanned::Unknown { seq, block, why: BadRecords::Newer(kind) } => {
                let what = format!(
                    "it has a record of kind {kind}, which only a newer program knows: use that"
                );
                (seq, block, what)
            }
            Scanned::Unknown { seq, block, why: BadRecords::Malformed(what) } => (
                seq,
                block,
                format!("{what}, but its checksums are right: it and all after it are lost"),
            ),
        };
        self.log_damaged(format!("log batch {seq} at block {block} of the log's device"), what);
    }

    /// What objects there are is not known any more.
    pub(super) fn log_damaged(&mut self, place: String, what: impl Into<String>) {
        self.report.damage(place, what);
        self.report.lost_all_names();
        self.incomplete = true;
    }
}
