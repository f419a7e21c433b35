//! What machines do, counted.

use io::Effects;
use io::disk::{DiskOp, WriteMode};
use io::net::NetOp;
use std::ops::{Add, Sub};

/// What a machine has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Turns of its core.
    pub turns: u64,
    /// Sends: one for each connection and turn.
    pub sends: u64,
    /// Disk reads.
    pub reads: u64,
    /// Disk writes that are durable when they end.
    pub durable_writes: u64,
    /// Other disk writes.
    pub writes: u64,
    /// Flushes of a disk.
    pub flushes: u64,
}

impl Work {
    /// A turn has ended, and wants this.
    pub(crate) fn count(&mut self, fx: &Effects) {
        self.turns += 1;
        self.sends += fx.net.iter().filter(|op| matches!(op, NetOp::Send { .. })).count() as u64;
        for (_, op) in &fx.disk {
            match op {
                DiskOp::Read { .. } => self.reads += 1,
                DiskOp::Write { mode: WriteMode::Durable, .. } => self.durable_writes += 1,
                DiskOp::Write { .. } => self.writes += 1,
                DiskOp::Flush { .. } => self.flushes += 1,
                DiskOp::Discard { .. } => {}
            }
        }
    }

    fn with(self, other: Work, f: fn(u64, u64) -> u64) -> Work {
        Work {
            turns: f(self.turns, other.turns),
            sends: f(self.sends, other.sends),
            reads: f(self.reads, other.reads),
            durable_writes: f(self.durable_writes, other.durable_writes),
            writes: f(self.writes, other.writes),
            flushes: f(self.flushes, other.flushes),
        }
    }
}

impl Add for Work {
    type Output = Work;
    fn add(self, other: Work) -> Work {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Work {
    type Output = Work;
    fn sub(self, other: Work) -> Work {
        self.with(other, |a, b| a - b)
    }
}
