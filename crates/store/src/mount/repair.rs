//! What a mount puts right before anything comes into the log.
//!
//! *Superblocks.* A bad copy of the newest one is written again. As long as any copy lacks features, the next
//! superblock is written over the older slot, as ever: twice at most. An older program takes the newest of the
//! copies that it can read: if there were one, it would find a log behind it that it cannot read, or take what the
//! log says of newer superblocks for the loss of them.
//!
//! *The label of the log's device.* It only guards from the wrong device: that it cannot be written keeps nobody
//! from mounting.

use super::label::label_of;
use super::{Mount, Phase, Tag};
use crate::error::MountError;
use crate::store::inflight::DATA;
use crate::superblock::{FEATURES, place, places_of};
use bytes::Bytes;
use io::Effects;
use io::disk::{DevId, DiskError, WriteMode};
use smallvec::smallvec;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repair {
    Super { block: u64 },
    Label,
}

impl Mount {
    /// What is not as it should be, and kept nobody from mounting.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn begin_repair(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        self.phase = Phase::Repair;
        if self.bad_label.is_some() {
            let (at, label) = ((DevId(1), 0), smallvec![label_of(self.sb())]);
            self.io.write(fx, at, label, WriteMode::Durable, Tag::Repair(Repair::Label));
        }
        self.step_repair(fx)
    }

    /// One after the other: only a slot that is not the newest is ever written over.
    fn step_repair(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        if self.io.in_flight() == 0 {
            self.write_supers(fx);
        }
        if self.io.in_flight() == 0 { self.decide(fx) } else { Ok(()) }
    }

    /// Writes the copies of the superblock that are to be written next, if any are.
    fn write_supers(&mut self, fx: &mut Effects) {
        let Some(sb) = &mut self.sb else { return };
        let places = if self.supers.lack_features(sb.identity.store) {
            (sb.features, sb.generation) = (FEATURES, sb.generation + 1);
            places_of(sb.generation).to_vec()
        } else {
            self.supers.stale_places(sb)
        };
        for index in places {
            self.supers.replace(index, sb);
            let block = place(index, sb.total_blocks);
            let (at, copy) = ((DATA, block), smallvec![sb.encode(index)]);
            self.io.write(fx, at, copy, WriteMode::Durable, Tag::Repair(Repair::Super { block }));
        }
    }

    pub(super) fn repair_written(
        &mut self,
        what: Repair,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        match (what, result) {
            (_, Ok(_)) => {}
            (Repair::Super { block }, Err(error)) => {
                return Err(self.failed(DATA, format!("writing block {block}"), error));
            }
            (Repair::Label, Err(error)) => {
                let path = self.path_of(DevId(1));
                self.warnings.push(format!(
                    "{path}: the label of the log's device is bad, and writing block 0 to repair it failed: \
                     {error}; nothing else is lost by that, but the device may not last"
                ));
            }
        }
        self.step_repair(fx)
    }
}
