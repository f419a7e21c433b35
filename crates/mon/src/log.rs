//! The cluster's log: what happened to the cluster, for `ceph log last`.

use std::collections::VecDeque;
use types::UTime;

/// Entries that are kept, in memory only.
const KEPT: usize = 1000;

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub stamp: UTime,
    pub who: String,
    pub seq: u64,
    pub level: Level,
    pub text: String,
}

/// How important an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Info,
    Warn,
}

impl Level {
    /// `[INF]`
    pub fn tag(self) -> &'static str {
        match self {
            Level::Info => "INF",
            Level::Warn => "WRN",
        }
    }
}

/// The newest entries.
#[derive(Debug, Default)]
pub(crate) struct ClusterLog {
    entries: VecDeque<LogEntry>,
    seq: u64,
}

impl ClusterLog {
    /// Notes something, here and in the daemon's own log.
    pub fn add(&mut self, stamp: UTime, who: &str, level: Level, text: impl Into<String>) {
        let text = text.into();
        match level {
            Level::Info => tracing::info!("{text}"),
            Level::Warn => tracing::warn!("{text}"),
        }
        if self.entries.len() >= KEPT {
            self.entries.pop_front();
        }
        self.seq += 1;
        self.entries.push_back(LogEntry { stamp, who: who.to_owned(), seq: self.seq, level, text });
    }

    /// The last entries, oldest first.
    pub fn last(&self, count: usize, at_least: Level) -> Vec<&LogEntry> {
        let wanted = self.entries.iter().filter(|e| e.level >= at_least);
        let wanted: Vec<_> = wanted.collect();
        let skip = wanted.len().saturating_sub(count);
        wanted.into_iter().skip(skip).collect()
    }
}
