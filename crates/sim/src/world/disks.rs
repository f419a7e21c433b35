//! Disk operations of machines: how long they take, what they do when they end, and what a crash makes of those that
//! have not ended.

use super::{Due, NodeId, World};
use bytes::Bytes;
use io::Event;
use io::disk::{DiskDone, DiskError, DiskOp, DiskToken, WriteMode};
use std::time::Duration;
use types::Errno;

/// A disk operation in flight.
pub(super) struct InFlight {
    device: usize,
    token: DiskToken,
    op: DiskOp,
    /// Writes that had completed on the device before.
    after_writes: u64,
}

impl World {
    pub(super) fn disk_op(&mut self, node: NodeId, token: DiskToken, op: DiskOp) {
        self.disk_ops += 1;
        let id = self.disk_ops;
        let device = usize::from(match &op {
            DiskOp::Read { dev, .. }
            | DiskOp::Write { dev, .. }
            | DiskOp::Flush { dev }
            | DiskOp::Discard { dev, .. } => dev.0,
        });
        let mut micros = self.rng.u64(10..200) * self.nodes[node.0].slow;
        if self.rng.u32(..1_000_000) < self.faults.slow_disk_ppm {
            micros *= 100;
            self.count("disk operation slow", 1);
        }
        let n = &mut self.nodes[node.0];
        let after_writes = n.disks[device].writes();
        n.in_flight.insert(id, InFlight { device, token, op, after_writes });
        self.at(node, Duration::from_micros(micros), Due::DiskDone(id));
    }

    pub(super) fn disk_done(&mut self, node: NodeId, id: u64) {
        let n = &mut self.nodes[node.0];
        let Some(in_flight) = n.in_flight.remove(&id) else { return };
        let InFlight { device, token, op, after_writes } = in_flight;
        let bad = n.bad_disk.filter(|_| device == 0);
        let disk = &mut n.disks[device];
        let (mut went_wrong, mut discarded) = (None, 0);
        let result = match op {
            DiskOp::Read { .. } if n.unreadable => Err(DiskError::Os(Errno::EIO.0)),
            DiskOp::Read { offset, len, .. } => disk.read(offset, len),
            DiskOp::Write { offset, data, mode, .. } => {
                let durable = mode == WriteMode::Durable;
                let data = data.concat();
                went_wrong = bad.and_then(|b| disk.mistreat(&b, offset, &data, &mut self.rng));
                match went_wrong {
                    Some(_) => Ok(Bytes::new()),
                    None => disk.write(offset, &data, durable).map(|()| Bytes::new()),
                }
            }
            DiskOp::Flush { .. } => {
                disk.flush(after_writes);
                Ok(Bytes::new())
            }
            DiskOp::Discard { offset, len, .. } => {
                discarded = disk.discard(offset, len, &mut self.rng);
                Ok(Bytes::new())
            }
        };
        self.count("discarded block lost", discarded);
        if let Some(what) = went_wrong {
            self.count(what, 1);
        }
        self.give(node, vec![Event::Disk(DiskDone { token, result })]);
    }

    /// The power of a machine failed: what its disks are afterwards.
    pub(super) fn crash_disks(&mut self, node: NodeId) {
        let n = &mut self.nodes[node.0];
        let in_flight = std::mem::take(&mut n.in_flight);
        let mut per_disk: Vec<Vec<(u64, Bytes)>> = vec![Vec::new(); n.disks.len()];
        let (mut lost, mut torn, mut discarded) = (0, 0, 0);
        for op in in_flight.into_values() {
            match op.op {
                DiskOp::Write { offset, data, .. } => {
                    per_disk[op.device].push((offset, data.concat().into()));
                }
                // It may not have begun.
                DiskOp::Discard { offset, len, .. } if self.rng.bool() => {
                    discarded += n.disks[op.device].discard(offset, len, &mut self.rng);
                }
                DiskOp::Read { .. } | DiskOp::Flush { .. } | DiskOp::Discard { .. } => {}
            }
        }
        for (disk, writes) in n.disks.iter_mut().zip(per_disk) {
            let left = disk.crash(writes, &mut self.rng);
            lost += left.lost;
            torn += left.torn;
        }
        self.count("unflushed block lost", lost);
        self.count("unflushed block torn", torn);
        self.count("discarded block lost", discarded);
    }
}
