//! Whether the log takes a batch while another one is on its way.
//!
//! Each write of the log costs CPU time on its way through the kernel and back, several times what a
//! transaction costs. Where the disk answers soon, what comes meanwhile is gathered, and goes as one write
//! when the answer is there. Where it answers late, waiting for the answer would cost more than the write.

use crate::config::Config;
use std::time::Duration;
use types::Mono;

/// A disk whose quickest answers take longer than this answers late.
const LATE: Duration = Duration::from_micros(1_000);
/// The quickest answer is forgotten by this share of what the others take longer. How long one takes says
/// as much of the other processes on this core as of the disk; the quickest ones say what the disk takes.
const SHARE: u64 = 256;

/// How soon the disk answers to batches of the log.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The batch that is measured, and when it was handed over.
    measured: Option<(u64, Mono)>,
    /// What the quickest of the last answers took, in nanoseconds.
    quickest_ns: u64,
}

impl Gather {
    /// A batch is handed over.
    pub fn issued(&mut self, seq: u64, now: Mono) {
        self.measured.get_or_insert((seq, now));
    }

    /// A write of a batch is done.
    pub fn written(&mut self, seq: u64, now: Mono) {
        let Some((_, since)) = self.measured.take_if(|(measured, _)| *measured == seq) else {
            return;
        };
        let took_ns = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
        let rise = took_ns.saturating_sub(self.quickest_ns) / SHARE;
        self.quickest_ns = took_ns.min(self.quickest_ns.saturating_add(rise));
    }

    /// Whether a batch of so many blocks is written now, though so many others are on their way.
    pub fn lets_go(&self, blocks: u64, writing: usize, config: &Config) -> bool {
        let is_late = self.quickest_ns > LATE.as_nanos() as u64;
        let is_large = blocks >= config.wal_gather_blocks;
        writing == 0 || (writing < config.wal_inflight_batches && (is_late || is_large))
    }

    /// What the quickest of the last answers took.
    pub fn quickest_ns(&self) -> u64 {
        self.quickest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { wal_gather_blocks: 64, wal_inflight_batches: 4, ..Config::for_memory(1 << 20) }
    }

    fn after(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn small_batches_wait_for_a_disk_that_answers_soon() {
        let gather = Gather::default();
        assert!(gather.lets_go(2, 0, &config()));
        assert!(!gather.lets_go(2, 1, &config()));
        assert!(gather.lets_go(64, 3, &config()));
        assert!(!gather.lets_go(64, 4, &config()));
    }

    #[test]
    fn nothing_waits_for_a_disk_that_answers_late() {
        let mut gather = Gather::default();
        for seq in 0..200 {
            gather.issued(seq, after(10 * seq));
            // Others meanwhile are not measured.
            gather.issued(seq + 1000, after(10 * seq + 1));
            gather.written(seq + 1000, after(10 * seq + 1));
            gather.written(seq, after(10 * seq + 4));
            // The second half of a batch where the log begins anew.
            gather.written(seq, after(10 * seq + 5));
        }
        assert!(gather.lets_go(2, 3, &config()));
        assert!(!gather.lets_go(2, 4, &config()));
        // One quick answer says that it can.
        gather.issued(200, after(2000));
        gather.written(200, after(2000));
        assert!(!gather.lets_go(2, 1, &config()));
    }
}
