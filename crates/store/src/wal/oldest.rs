//! What is to be put in place next, and what of it has to be read back for that.

use super::batch::State;
use super::{Pending, Wal};
use crate::superblock::LogPos;
use std::ops::Range;

/// What [`Wal::oldest_blocks`] finds.
pub(crate) struct Oldest {
    /// Places of the blocks.
    pub places: Vec<u64>,
    /// Where the last of their batches ends.
    pub until: LogPos,
    /// Where the content of some of them is, and only there.
    pub gone: Gone,
}

/// Parts of the endless log that are to be read back.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// In order.
    pub parts: Vec<Range<u64>>,
    pub blocks: u64,
    /// The first batch they are of.
    pub seq: u64,
}

/// So many blocks between two that are read back are read with them: that costs less than another read.
const GAP_BLOCKS: u64 = 8;

impl Gone {
    /// Adds a block of a batch behind those before.
    fn add(&mut self, seq: u64, at: u64) {
        match self.parts.last_mut() {
            Some(part) if at <= part.end + GAP_BLOCKS => {
                self.blocks += at + 1 - part.end;
                part.end = at + 1;
            }
            last => {
                if last.is_none() {
                    self.seq = seq;
                }
                self.blocks += 1;
                self.parts.push(at..at + 1);
            }
        }
    }
}

impl Wal {
    /// The logged blocks of the oldest batches that may be put in place, `max` or a few more of
    /// them, or as many as need `max_gone` or a few more to be read back; the newest logged content of each
    /// is recorded.
    pub fn oldest_blocks(&mut self, max: usize, max_gone: u64) -> Oldest {
        let first = self.blocks_pos();
        let mut until = first;
        let (mut out, mut gone) = (Vec::new(), Gone::default());
        for batch in self.batches.iter().skip(self.index_of(first.seq)) {
            let is_enough = out.len() >= max || gone.blocks >= max_gone;
            if is_enough || batch.state != State::Durable {
                break;
            }
            until = LogPos { seq: batch.seq + 1, at: batch.at + batch.total_blocks() };
            if batch.live == 0 {
                continue;
            }
            let live = batch.blocks.iter().enumerate().filter(|(i, place)| {
                let here = |p: &Pending| {
                    (p.seq, p.index as usize) == (batch.seq, *i) && p.txn <= self.recorded
                };
                self.overlay.get(**place).is_some_and(here)
            });
            for (i, place) in live {
                out.push(*place);
                if batch.kept == 0 {
                    gone.add(batch.seq, batch.at + batch.head_blocks + i as u64);
                }
            }
        }
        Oldest { places: out, until, gone }
    }
}
