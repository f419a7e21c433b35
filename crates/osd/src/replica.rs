//! A write as a replica: apply the primary's transaction, answer when it is durable.

use crate::daemon::Daemon;
use crate::host::Then;
use denc::DecodeError;
use io::Effects;
use peer::{RepAck, RepOp};
use pg::{LogRecord, MetaOp, Taken, log_key};
use smallvec::SmallVec;
use std::fmt::Display;
use store::Transaction;
use types::testing::{Bug, Probe, hit, planted};
use types::{Eversion, OsdId, PgId};
use wire::msg::Payload;

/// Log entries and changes of a write.
fn parts(m: &RepOp) -> Result<(SmallVec<[LogRecord; 1]>, Transaction), DecodeError> {
    let records = m.log_records()?;
    if m.txn.is_empty() {
        return Ok((records, Transaction::default()));
    }
    Ok((records, Transaction::decode_from(&m.txn, (&m.data_bytes(), m.data_crc))?))
}

impl Daemon {
    fn odd_write(&mut self, from: OsdId, pgid: PgId, why: &dyn Display) {
        tracing::error!("osd.{}: pg {pgid}: a write from osd.{from}: {why}", self.cfg.id);
        self.perf.odd_messages += 1;
    }

    pub(crate) fn on_rep_op(&mut self, from: OsdId, m: RepOp, fx: &mut Effects) {
        let pgid = m.pgid;
        let data: usize = m.data.iter().map(bytes::Bytes::len).sum();
        let bytes = data + m.txn.len();
        let (records, mut txn) = match parts(&m) {
            Ok(parts) => parts,
            Err(why) => return self.odd_write(from, pgid, &why),
        };
        let no_room = self.must_leave_out(data as u64, bytes as u64, txn.may_use_reserve);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.started || !host.pg.accepts_write(from, m.interval) {
            return;
        }
        let Some(version) = records.last().map(|r| r.entry.version) else { return };
        if version <= host.pg.last_update() {
            hit(Probe::RepOpAgain);
            // Sent again after a lost session: it is here already.
            let missed = |r: &&LogRecord| host.pg.missing().contains(&r.entry.object);
            let missed = records.iter().filter(missed).map(|r| r.entry.version).collect();
            let empty = host.transaction();
            let full = self.is_full();
            let ack = RepAck { pgid, interval: m.interval, version, missed, full };
            let then = [Then::RepAck(from, ack, 0)];
            self.submit(pgid, empty, then, fx);
            return;
        }
        // The primary's log may be larger than ours: then the object is brought in smaller parts.
        let is_too_long = self.store.is_too_large(&txn, bytes as u64);
        let versions: SmallVec<[Eversion; 2]> = records.iter().map(|r| r.entry.version).collect();
        let taken = match m.txn.is_empty() {
            true => Taken::LogOnly,
            false if no_room || is_too_long || host.pg.misses_base_of(&records) => Taken::LeftOut,
            false => Taken::Whole,
        };
        let mut missed = Vec::new();
        if taken == Taken::LeftOut {
            hit(Probe::WriteLeftOut);
            txn = Transaction::default();
            missed.extend_from_slice(&versions);
        }
        let given_up = host.transfers.give_up_deleted(from, &records);
        let behind = match host.pg.append_as_replica(records, taken) {
            Ok(behind) => behind,
            Err(why) => return self.odd_write(from, pgid, &why),
        };
        for object in &behind.remove {
            txn.remove(&object.to_key());
        }
        given_up.iter().for_each(|temporary| _ = txn.remove(temporary));
        txn.sequencer = crate::host::sequencer(pgid);
        // What the primary took, a replica must take.
        txn.may_use_reserve = true;
        let trimmed = match m.trim_to > Eversion::ZERO {
            true => host.pg.trim(m.trim_to),
            false => Vec::new(),
        };
        let puts = versions
            .iter()
            .zip(m.records)
            .filter(|_| !planted(Bug::LostLogRecord))
            .map(|(v, record)| MetaOp::Put(log_key(*v), record));
        host.put_meta(&mut txn, puts.chain(behind.meta).chain(trimmed));
        self.perf.replica_writes += 1;
        self.pacer.client_came(self.now.mono);
        if taken == Taken::LeftOut && no_room {
            self.lacks_space(bytes as u64);
        }
        let full = self.is_full();
        let ack = RepAck { pgid, interval: m.interval, version, missed, full };
        if planted(Bug::ReplicaAckBeforeDurable) {
            self.send_peer(from, ack.clone().encode(), fx);
        }
        self.in_hand.replica += bytes;
        let then = [Then::RepAck(from, ack, bytes)];
        self.submit(pgid, txn, then, fx);
    }
}
