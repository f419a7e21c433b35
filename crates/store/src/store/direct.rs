//! Data that is on its way to fresh blocks, beside the log.
//!
//! It can be read from memory until it is there.

use crate::plan::DirectData;
use bytes::Bytes;
use io::BLOCK_BYTES;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Flying {
    data: Bytes,
    txn: u64,
    /// Needs a flush when it is there.
    flush: bool,
}

/// One write to be issued.
#[derive(Debug)]
pub(crate) struct DirectWrite {
    pub start: u64,
    pub data: Bytes,
    pub durable: bool,
}

/// Writes beside the log that are queued or in flight.
#[derive(Debug, Default)]
pub(crate) struct DirectWrites {
    flying: BTreeMap<u64, Flying>,
    queue: Vec<u64>,
    bytes: u64,
    /// Writes left of transactions that are flushed at their end.
    left: BTreeMap<u64, usize>,
    /// Transactions whose data is there but not flushed.
    unflushed: Vec<u64>,
}

/// A transaction with more runs than this gets one flush instead of durable writes.
const DURABLE_RUNS: usize = 4;

impl DirectWrites {
    /// Bytes queued or in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many completions [`crate::store::txns::Txns`] must count for this data.
    pub fn completions(data: &[DirectData]) -> u32 {
        if data.len() > DURABLE_RUNS { 1 } else { data.len() as u32 }
    }

    /// Queues the data of a transaction.
    pub fn add(&mut self, txn: u64, data: Vec<DirectData>) {
        let flush = data.len() > DURABLE_RUNS;
        if flush {
            self.left.insert(txn, data.len());
        }
        for DirectData { run, data, .. } in data {
            self.bytes += data.len() as u64;
            self.queue.push(run.start);
            let old = self.flying.insert(run.start, Flying { data, txn, flush });
            assert!(old.is_none(), "a block is written by one transaction at a time");
        }
    }

    /// The content of a block that is on its way.
    pub fn block(&self, place: u64) -> Option<Bytes> {
        let (start, flying) = self.flying.range(..=place).next_back()?;
        let from = (place - start) as usize * BLOCK_BYTES;
        (from < flying.data.len()).then(|| flying.data.slice(from..from + BLOCK_BYTES))
    }

    /// The start of the run that a block on its way belongs to, and the run's data.
    pub fn run(&self, place: u64) -> Option<(u64, &Bytes)> {
        let (start, flying) = self.flying.range(..=place).next_back()?;
        let from = (place - start) as usize * BLOCK_BYTES;
        (from < flying.data.len()).then_some((*start, &flying.data))
    }

    /// Whether there is nothing to issue.
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.unflushed.is_empty()
    }

    /// The writes to be issued now.
    pub fn take_queue(&mut self) -> Vec<DirectWrite> {
        let queue = std::mem::take(&mut self.queue);
        let write = |start| {
            let flying: &Flying = &self.flying[&start];
            DirectWrite { start, data: flying.data.clone(), durable: !flying.flush }
        };
        queue.into_iter().map(write).collect()
    }

    /// A write is done. Gives its transaction if that makes the data durable; a transaction in many
    /// pieces needs a flush when all of them are there.
    pub fn done(&mut self, start: u64) -> Option<u64> {
        let flying = self.flying.remove(&start).expect("a write that is in flight");
        self.bytes -= flying.data.len() as u64;
        if !flying.flush {
            return Some(flying.txn);
        }
        let left = self.left.get_mut(&flying.txn).expect("a transaction with writes in flight");
        *left -= 1;
        if *left == 0 {
            self.left.remove(&flying.txn);
            self.unflushed.push(flying.txn);
        }
        None
    }

    /// The transactions that a flush issued now will make durable.
    pub fn take_unflushed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unflushed)
    }

    /// Whether a flush is wanted.
    pub fn wants_flush(&self) -> bool {
        !self.unflushed.is_empty()
    }
}
