//! Trimming PGs' logs to their bounds: with each write that makes one too long, and by itself where no write comes
//! though the bound has moved: the PG became clean, there are more PGs, or a setting was changed.

use crate::daemon::Daemon;
use io::Effects;
use peer::PgTrim;
use pg::LogLimits;
use types::testing::{Probe, hit};
use types::{Eversion, OsdId, PgId};
use wire::msg::Payload;

/// Part of the largest transaction that a PG's log may weigh: a copy that takes it over writes it in
/// one, with as much of what it misses, and of what is deleted.
const LOG_SHARE_OF_TRANSACTION: u64 = 8;

/// What is not committed everywhere is not trimmed. A log that weighs so many times what it may takes no more writes
/// until some of it is: else a copy that takes it over, with what it misses by it and what it has to remove, could not
/// write that in one transaction.
const FULL_LOG_TIMES: usize = 2;

/// Logs that are trimmed in one tick without a write: when many PGs become clean at once, each may have thousands
/// of entries too many.
const LOGS_AT_ONCE: usize = 4;

impl Daemon {
    /// Trims a PG's log when it has grown; the record changes go with the next write.
    pub(crate) fn trim_log(&mut self, pgid: PgId) {
        let limits = self.log_limits();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if let Some(to) = host.pg.trim_target(&limits, host.in_flight.committed()) {
            let ops = host.pg.trim(to);
            host.backlog.extend(ops);
            host.trim_to = to;
        }
        let most = limits.bytes.saturating_mul(FULL_LOG_TIMES);
        host.log_is_full = host.pg.log().entries_bytes() > most;
    }

    /// Some writes are committed: a log that was full may take more.
    pub(crate) fn relieve_log(&mut self, pgid: PgId, fx: &mut Effects) {
        self.trim_log(pgid);
        if self.pgs.get(&pgid).is_some_and(|host| !host.must_wait_for_log()) {
            self.queue_empty(pgid, fx);
        }
    }

    /// How long logs may be, by how many PGs there are.
    fn log_limits(&self) -> LogLimits {
        let l = self.limits;
        let share = l.log_entries / self.pgs.len().max(1);
        let most = LogLimits::default();
        let between = |most: usize| share.min(most).max(l.min_log_entries);
        let transaction = self.least_transaction_bytes(self.store.max_transaction_bytes());
        LogLimits {
            clean_entries: between(most.clean_entries),
            degraded_entries: between(most.degraded_entries),
            batch_entries: l.log_trim_entries,
            bytes: (transaction / LOG_SHARE_OF_TRANSACTION) as usize,
        }
    }

    /// Called often: trims logs of PGs that nobody writes to.
    pub(crate) fn trim_idle_logs(&mut self, fx: &mut Effects) {
        let limits = self.log_limits();
        let mut due = Vec::new();
        for (pgid, host) in &self.pgs {
            let is_idle = host.started && host.pg.accepts_io() && host.in_flight.is_empty();
            if is_idle && host.pg.trim_target(&limits, host.in_flight.committed()).is_some() {
                due.push(*pgid);
            }
            if due.len() == LOGS_AT_ONCE {
                break;
            }
        }
        for pgid in due {
            self.trim_idle_log(pgid, fx);
        }
    }

    fn trim_idle_log(&mut self, pgid: PgId, fx: &mut Effects) {
        hit(Probe::IdleLogTrimmed);
        self.trim_log(pgid);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let to = std::mem::replace(&mut host.trim_to, Eversion::ZERO);
        let mut txn = host.transaction();
        host.put_backlog(&mut txn);
        let (interval, epoch, me) = (host.interval(), self.maps.epoch(), self.cfg.id);
        let filled = host.pg.backfills().map(|(osd, _)| osd);
        let acting = host.pg.mapping().acting.iter().copied();
        let others: Vec<OsdId> =
            acting.chain(filled).filter(|osd| *osd != me && osd.is_some()).collect();
        self.submit(pgid, txn, Vec::new(), fx);
        for osd in others {
            self.send_peer(osd, PgTrim { pgid, epoch, interval, to }.encode(), fx);
        }
    }

    /// As a replica: the primary has trimmed its log up to here.
    pub(crate) fn on_pg_trim(&mut self, from: OsdId, m: &PgTrim, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || !host.pg.accepts_write(from, m.interval) {
            return;
        }
        let ops = host.pg.trim(m.to);
        let mut txn = host.transaction();
        host.put_meta(&mut txn, ops);
        self.submit(m.pgid, txn, Vec::new(), fx);
    }
}
