//! The log of a store that is checked: read as a mount does, and what is wrong with it.

use super::{Fsck, FsckReport, Tag};
use crate::wal::format::BadRecords;
use crate::wal::scan::{LostBlock, Scanned};
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
                    self.unreadable = scan.unreadable().collect();
                    return self.begin_verify(fx);
                }
                Scanned::Wait => break,
                cut_off => {
                    // What stands behind all batches that were found is not known.
                    let end = replay.wal.end().at;
                    self.unreadable = scan.unreadable().filter(|lost| lost.at < end).collect();
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

    /// It is known what the log says: what it means that some blocks of it cannot be read.
    pub(super) fn judge_unreadable(&mut self) {
        for LostBlock { at, block, error } in std::mem::take(&mut self.unreadable) {
            let place = format!("block {block} of the log's device");
            match self.replay.as_ref().and_then(|replay| replay.wal.wanted_at(at)) {
                None => {
                    let what = format!("it cannot be read ({error}), but nothing in it is needed");
                    self.report.note(place, what);
                }
                Some(to) => {
                    let what = format!(
                        "it cannot be read ({error}), and nothing else has what is to be put into block {to}: the \
                         object must be fetched from another OSD"
                    );
                    self.report.damage(place, what);
                }
            }
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
