//! Performance counters of the OSD (`perf dump`), by Ceph's names where they exist.

use serde_json::{Value, json};
use std::time::Duration;

/// Count and sum of durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    count: u64,
    sum: Duration,
}

impl Latency {
    /// Adds one.
    pub fn add(&mut self, d: Duration) {
        self.count += 1;
        self.sum += d;
    }

    /// `{avgcount, sum, avgtime}`
    pub fn to_json(self) -> Value {
        let sum = self.sum.as_secs_f64();
        let mean = if self.count == 0 { 0.0 } else { sum / self.count as f64 };
        json!({ "avgcount": self.count, "sum": sum, "avgtime": mean })
    }
}

/// The counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Perf {
    /// Client operations.
    pub op: u64,
    /// That read.
    pub op_r: u64,
    /// That write.
    pub op_w: u64,
    /// Bytes received with them.
    pub op_in_bytes: u64,
    /// Bytes sent with their answers.
    pub op_out_bytes: u64,
    /// From receiving to answering.
    pub op_latency: Latency,
    /// Of reads.
    pub op_r_latency: Latency,
    /// Of writes.
    pub op_w_latency: Latency,
    /// Writes taken as a replica.
    pub replica_writes: u64,
    /// Damaged blocks found.
    pub bad_blocks: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Messages that made no sense.
    pub odd_messages: u64,
    /// Sessions with other OSDs that were lost.
    pub lost_sessions: u64,
    /// Writes refused or delayed for lack of space.
    pub no_space: u64,
}

impl Perf {
    /// Counts an operation that was answered.
    pub fn op_done(&mut self, write: bool, latency: Duration, out_bytes: u64) {
        self.op += 1;
        self.op_out_bytes += out_bytes;
        self.op_latency.add(latency);
        if write {
            self.op_w += 1;
            self.op_w_latency.add(latency);
        } else {
            self.op_r += 1;
            self.op_r_latency.add(latency);
        }
    }
}
