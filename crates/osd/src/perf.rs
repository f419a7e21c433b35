//! Performance counters of the OSD (`perf dump`), by Ceph's names where they exist.

use admin::perf::{CounterDef, CounterKind, CounterValue, Logger};
use io::Memory;
use std::time::Duration;
use store::{Counters, Usage};

use CounterKind::{AvgTime, Counter, Gauge};

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

    fn value(self) -> CounterValue {
        CounterValue::AvgTime(self.count, self.sum)
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
    /// Objects fetched anew from another copy because a read met damage.
    pub repairs: u64,
    /// Scrubs that ended, as the primary.
    pub scrubs: u64,
    /// Copies of objects that were looked at by them.
    pub scrubbed_objects: u64,
    /// Copies that they could not read.
    pub scrub_read_errors: u64,
    /// Errors that they found.
    pub scrub_errors: u64,
    /// Objects that they began to repair.
    pub scrub_repairs: u64,
    /// Checks of its own records that ended.
    pub own_checks: u64,
    /// Objects with such records that the last of them found damaged.
    pub own_damaged: u64,
    /// Memory of the process, as it was last told.
    pub memory: Memory,
    /// Messages that made no sense.
    pub odd_messages: u64,
    /// Sessions with other OSDs that were lost.
    pub lost_sessions: u64,
    /// Writes refused or delayed for lack of space.
    pub no_space: u64,
}

/// PGs by what they do.
#[derive(Clone, Copy, Debug, Default)]
pub struct PgCounts {
    /// All.
    pub all: u64,
    /// Of which this OSD is the primary.
    pub led: u64,
    /// Being removed.
    pub removing: u64,
    /// Objects on their way between copies of those that are led.
    pub moving: u64,
}

const fn def(name: &'static str, kind: CounterKind, text: &'static str) -> CounterDef {
    CounterDef::new(name, kind, text)
}

const fn bytes(name: &'static str, kind: CounterKind, text: &'static str) -> CounterDef {
    CounterDef::bytes(name, kind, text)
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

    /// The group `osd`. `in_flight`: requests, and their bytes.
    pub fn logger(&self, pgs: &PgCounts, in_flight: (u64, u64), usage: &Usage) -> Logger {
        let int = CounterValue::Int;
        let counters = vec![
            (def("op_wip", Gauge, "client requests in flight"), int(in_flight.0)),
            (bytes("op_wip_bytes", Gauge, "their bytes"), int(in_flight.1)),
            (def("op", Counter, "client requests"), int(self.op)),
            (bytes("op_in_bytes", Counter, "received with them"), int(self.op_in_bytes)),
            (bytes("op_out_bytes", Counter, "sent with their answers"), int(self.op_out_bytes)),
            (def("op_latency", AvgTime, "from receiving to answering"), self.op_latency.value()),
            (def("op_r", Counter, "requests that read"), int(self.op_r)),
            (def("op_r_latency", AvgTime, "time of reads"), self.op_r_latency.value()),
            (def("op_w", Counter, "requests that write"), int(self.op_w)),
            (def("op_w_latency", AvgTime, "time of writes"), self.op_w_latency.value()),
            (def("subop_w", Counter, "writes taken as a replica"), int(self.replica_writes)),
            (def("numpg", Gauge, "PGs here"), int(pgs.all)),
            (def("numpg_primary", Gauge, "PGs led from here"), int(pgs.led)),
            (def("numpg_replica", Gauge, "PGs led from elsewhere"), int(pgs.all - pgs.led)),
            (def("numpg_removing", Gauge, "PGs being removed"), int(pgs.removing)),
            (
                def("recovery_in_flight", Gauge, "objects on their way to or from here"),
                int(pgs.moving),
            ),
            (bytes("stat_bytes", Gauge, "size of the device"), int(usage.total)),
            (bytes("stat_bytes_used", Gauge, "in use"), int(usage.total - usage.free)),
            (bytes("stat_bytes_avail", Gauge, "free for objects"), int(usage.available)),
            (def("bad_blocks", Counter, "damaged blocks found"), int(self.bad_blocks)),
            (def("read_errors", Counter, "reads that failed"), int(self.read_errors)),
            (def("repairs", Counter, "damaged objects fetched anew"), int(self.repairs)),
            (def("scrubs", Counter, "scrubs that ended, as the primary"), int(self.scrubs)),
            (
                def("scrubbed_objects", Counter, "copies that scrubs looked at here"),
                int(self.scrubbed_objects),
            ),
            (
                def("scrub_read_errors", Counter, "copies that scrubs could not read here"),
                int(self.scrub_read_errors),
            ),
            (def("scrub_errors", Counter, "errors that scrubs found"), int(self.scrub_errors)),
            (
                def("scrub_repairs", Counter, "objects that scrubs began to repair"),
                int(self.scrub_repairs),
            ),
            (
                def("own_checks", Counter, "checks of its own records that ended"),
                int(self.own_checks),
            ),
            (
                def("own_damaged", Gauge, "objects with its own records that are damaged"),
                int(self.own_damaged),
            ),
            (bytes("resident_bytes", Gauge, "memory of the process"), int(self.memory.resident)),
            (def("odd_messages", Counter, "messages without sense"), int(self.odd_messages)),
            (def("lost_sessions", Counter, "lost sessions with OSDs"), int(self.lost_sessions)),
            (def("no_space", Counter, "writes stopped by lack of space"), int(self.no_space)),
        ];
        Logger { name: "osd".into(), counters }
    }
}

/// The group `store`.
pub fn store_logger(c: Counters) -> Logger {
    let int = CounterValue::Int;
    let time = |count: u64, ns: u64| CounterValue::AvgTime(count, Duration::from_nanos(ns));
    let counters = vec![
        (def("transactions", Counter, "transactions taken"), int(c.transactions)),
        (def("commit_lat", AvgTime, "from submit to durable"), time(c.durable, c.durable_ns)),
        (def("submit_misses", Counter, "submits that had to read first"), int(c.submit_misses)),
        (def("submit_busy", Counter, "submits that had to wait"), int(c.submit_busy)),
        (def("submit_no_space", Counter, "submits without space"), int(c.submit_no_space)),
        (bytes("data_bytes", Counter, "data in transactions"), int(c.data_bytes)),
        (def("log_batches", Counter, "batches written to the log"), int(c.log_batches)),
        (bytes("log_bytes", Counter, "written to the log"), int(c.log_bytes)),
        (
            def("log_answer_us", Gauge, "microseconds that the quickest of the last batches took"),
            int(c.log_answer_ns / 1000),
        ),
        (def("logged_blocks", Counter, "blocks in the log"), int(c.logged_blocks)),
        (bytes("direct_bytes", Counter, "written beside the log"), int(c.direct_bytes)),
        (def("direct_writes", Counter, "writes beside the log"), int(c.direct_writes)),
        (def("direct_flushes", Counter, "flushes for them"), int(c.direct_flushes)),
        (def("in_place_blocks", Counter, "logged blocks put in place"), int(c.in_place_blocks)),
        (def("in_place_writes", Counter, "writes that did so"), int(c.in_place_writes)),
        (def("in_place_reads", Counter, "reads of the log for it"), int(c.in_place_reads)),
        (def("checkpoints", Counter, "checkpoints of the tree"), int(c.checkpoints)),
        (def("superblocks", Counter, "superblocks written"), int(c.superblocks)),
        (def("nodes_written", Counter, "tree nodes written"), int(c.nodes_written)),
        (bytes("node_bytes", Counter, "tree nodes written"), int(c.node_bytes)),
        (def("nodes_read", Counter, "tree nodes read"), int(c.nodes_read)),
        (
            def(
                "overwrites_unseen",
                Counter,
                "writes over blocks whose row of extents was not read",
            ),
            int(c.overwrites_unseen),
        ),
        (
            def("outlined_blocks_read", Counter, "blocks read whose row of extents was not"),
            int(c.outlined_blocks_read),
        ),
        (
            def("kept_blocks_read", Counter, "blocks found in memory from an earlier read"),
            int(c.kept_blocks_read),
        ),
        (bytes("kept_bytes", Gauge, "memory for blocks that were read"), int(c.kept_bytes)),
        (def("fetch_lat", AvgTime, "time of reads"), time(c.fetches, c.fetch_ns)),
        (bytes("data_read_bytes", Counter, "data read"), int(c.data_read_bytes)),
        (def("bad_blocks", Counter, "data with a wrong checksum"), int(c.bad_blocks)),
        (def("bad_nodes", Counter, "tree nodes with a wrong checksum"), int(c.bad_nodes)),
        (def("read_errors", Counter, "reads the device failed"), int(c.read_errors)),
        (bytes("discarded_bytes", Counter, "discarded"), int(c.discarded_bytes)),
        (
            def(
                "accounts_below_zero",
                Counter,
                "transactions that took more from a count of compressed extents than was in it",
            ),
            int(c.accounts_below_zero),
        ),
        (def("page_hits", Counter, "tree nodes found in memory"), int(c.page_hits)),
        (def("page_misses", Counter, "tree nodes not in memory"), int(c.page_misses)),
    ];
    Logger { name: "store".into(), counters }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts that do not add up are seen from outside.
    #[test]
    fn counts_that_would_go_below_zero_are_shown() {
        let shown = store_logger(Counters { accounts_below_zero: 3, ..Counters::default() });
        let is_it = |def: &CounterDef| def.name == "accounts_below_zero";
        let found = shown.counters.iter().find(|(def, _)| is_it(def));
        assert!(matches!(found, Some((_, CounterValue::Int(3)))));
    }
}
