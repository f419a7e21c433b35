//! What the mon counts, for `perf dump`.

use super::Server;
use admin::perf::{CounterDef, CounterKind, CounterValue, Logger};
use std::time::Duration;

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub messages: u64,
    pub commands: u64,
    pub reports: u64,
    pub epochs: u64,
    pub commits: u64,
    /// From the turn a commit is asked for to the turn its answer is there.
    pub commit_time: Duration,
    pub map_reads: u64,
}

use CounterKind::{AvgTime, Counter, Gauge};

const MESSAGES: CounterDef = CounterDef::new("messages", Counter, "messages received");
const COMMANDS: CounterDef = CounterDef::new("commands", Counter, "commands carried out");
const REPORTS: CounterDef = CounterDef::new("osd_reports", Counter, "reports of OSDs");
const EPOCHS: CounterDef = CounterDef::new("osdmap_epochs", Counter, "new OSDMaps");
const COMMIT: CounterDef =
    CounterDef::new("commit_latency", AvgTime, "time of a commit to the cluster store");
const MAP_READS: CounterDef =
    CounterDef::new("osdmap_reads", Counter, "old maps read from the cluster store");
const SESSIONS: CounterDef = CounterDef::new("num_sessions", Gauge, "open sessions");
const WAITING: CounterDef =
    CounterDef::new("num_waiting", Gauge, "messages that wait for a commit under way");

impl Server {
    pub(super) fn loggers(&self) -> Vec<Logger> {
        let c = &self.counters;
        let number = |n: usize| CounterValue::Int(n as u64);
        let counters = vec![
            (MESSAGES, CounterValue::Int(c.messages)),
            (COMMANDS, CounterValue::Int(c.commands)),
            (REPORTS, CounterValue::Int(c.reports)),
            (EPOCHS, CounterValue::Int(c.epochs)),
            (COMMIT, CounterValue::AvgTime(c.commits, c.commit_time)),
            (MAP_READS, CounterValue::Int(c.map_reads)),
            (SESSIONS, number(self.cluster.sessions.len())),
            (WAITING, number(self.waiting.len())),
        ];
        vec![Logger { name: "mon".to_owned(), counters }]
    }
}
