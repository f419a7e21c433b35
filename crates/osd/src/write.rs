//! A client's write: version, one transaction here, the same one on every replica, and the answer
//! when all of them have it durable.

use crate::daemon::{Daemon, Waiter};
use crate::host::{OpId, PgHost, Source, Then, Write, account, put_meta};
use crate::ops::{Change, Finished, MAX_WRITE_OUTPUT_BYTES, Versioned, WatchEffect};
use crate::takes::Takes;
use crate::tracker::Mark;
use crate::trim::drop_left_rows;
use bytes::Bytes;
use denc::KnownCrc;
use io::Effects;
use maps::PgIdExt;
use peer::{RepAck, RepOp};
use pg::{
    EntryKind, LogEntry, LogRecord, MetaOp, MissingItem, Need, ObjectSums, OpReturn, log_key,
};
use smallvec::SmallVec;
use store::{Invalid, ReadSet, SubmitError, Transaction};
use types::testing::{Probe, hit};
use types::{Epoch, Errno, Eversion, HObject, OsdId, PgId, ReqId, UTime};
use wire::msg::{MOsdOpReply, OpCode, Payload, Pieces, ReplyOps, flags};

/// Of the largest transaction one part of so many is left to what goes with a value.
const VALUE_SHARE: u64 = 4;

/// What is answered when a write is committed.
pub struct Answer {
    result: i32,
    ops: ReplyOps,
    effects: Vec<WatchEffect>,
    version: Eversion,
    user_version: u64,
}

/// A write ready to be handed over.
struct Ready {
    entries: Vec<LogEntry>,
    txn: Transaction,
    sums: ObjectSums,
    user_version: u64,
    object: HObject,
    /// Record changes of this copy beside the log entries.
    meta: Vec<MetaOp>,
    /// Nobody gets the change itself: all copies miss the object from now on.
    log_only: bool,
}

impl Ready {
    fn new(entries: Vec<LogEntry>, txn: Transaction, sums: ObjectSums, object: HObject) -> Self {
        Ready { entries, txn, sums, user_version: 0, object, meta: Vec::new(), log_only: false }
    }
}

impl Daemon {
    /// Takes a finished run of a write request. `Err` when the store could not take it yet: the
    /// request will be run again.
    pub(crate) fn begin_write(
        &mut self,
        id: OpId,
        pgid: PgId,
        mut finished: Finished,
        fx: &mut Effects,
    ) -> Result<(), ()> {
        if self.is_held_by_change(id, &finished) {
            return Ok(());
        }
        if self.must_wait_for_space(id, pgid) {
            return self.wait_for_space(id);
        }
        let Some(op) = self.ops.get(&id) else { return Ok(()) };
        let Some(host) = self.pgs.get(&pgid) else { return Ok(()) };
        let (object, reqid, mtime) = (op.head(), op.reqid, op.request.mtime);
        let first = host.pg.next_version();
        let returns = op.request.has_flag(flags::RETURNVEC);
        let tells_of_clones = finished.change.as_ref().is_some_and(|c| c.tells_of_clones());
        let mut ready = match finished.change.take() {
            Some(change) => ready_change(host, *change, first, reqid, &finished, returns),
            None => ready_error(host, object, first, reqid, mtime, &finished, returns),
        };
        let most = self.max_value_bytes();
        // What depends on nothing that is stored writes no more than came with it, but for what is told
        // of clones.
        let may_be_long =
            tells_of_clones || op.class.reads || (op.bytes + op.room_bytes) as u64 > most;
        if may_be_long && ready.txn.longest_value() > most {
            hit(Probe::ValueTooLong);
            self.refuse_op(id, Errno::EMSGSIZE);
            return Ok(());
        }
        // Of what has no space for data, this is the way out.
        ready.txn.may_use_reserve |= op.takes == Takes::Nothing;
        let (reads, attempt) = (op.reads.clone(), op.attempt);
        let answer = Answer {
            result: finished.result,
            ops: finished.ops,
            effects: finished.effects,
            version: ready.entries.last().map(|e| e.version).unwrap_or_default(),
            user_version: ready.user_version,
        };
        match self.hand_over(pgid, ready, &reads, Source::Op(id), fx) {
            Ok(()) => {
                self.next_notify += answer.effects.len() as u64;
                if let Some(op) = self.ops.get_mut(&id) {
                    op.trace.mark(self.now.mono, Mark::Submitted);
                    op.answer = Some(answer);
                }
                Ok(())
            }
            Err(SubmitError::Miss(miss)) => {
                self.mark_op(id, Mark::WaitingForRead);
                self.fetch(miss, Waiter::Op(id, attempt), fx);
                Err(())
            }
            Err(SubmitError::Busy) => {
                hit(Probe::StoreBusy);
                self.mark_op(id, Mark::WaitingForStore);
                self.blocked.push(Waiter::Op(id, attempt));
                Err(())
            }
            Err(SubmitError::NoSpace) => {
                let bytes = self.ops.get(&id).map_or(0, |op| op.bytes as u64);
                self.lacks_space(bytes);
                self.wait_for_space(id)
            }
            Err(SubmitError::Invalid(why)) => {
                tracing::error!("osd.{}: pg {pgid}: a write was refused: {why}", self.cfg.id);
                let is_too_large = matches!(why, Invalid::TooLarge { .. });
                self.refuse_op(id, if is_too_large { Errno::EMSGSIZE } else { Errno::EINVAL });
                Ok(())
            }
        }
    }

    /// Notes what a write takes that calls methods. Whether it is held, or was refused, for that.
    fn is_held_by_change(&mut self, id: OpId, finished: &Finished) -> bool {
        let Some(op) = self.ops.get_mut(&id) else { return false };
        let calls = || op.request.ops.iter().any(|o| o.code == OpCode::CALL);
        let Some(change) = finished.change.as_ref().filter(|_| op.class.reads && calls()) else {
            return false;
        };
        op.takes = Takes::by_ops(&op.request).max(Takes::by_change(&op.request, change));
        self.must_hold_for_space(id)
    }

    /// There is no space for a write, here or with another member of the PG: it waits, unless it asked
    /// not to, or its client knows by the map that it has to send it again.
    fn wait_for_space(&mut self, id: OpId) -> Result<(), ()> {
        let Some(op) = self.ops.get(&id) else { return Ok(()) };
        let (attempt, asked) = (op.attempt, op.request.has_flag(flags::FULL_TRY));
        if asked {
            self.refuse_op(id, Errno::ENOSPC);
            return Ok(());
        }
        if self.must_hold_for_space(id) {
            return Ok(());
        }
        self.mark_op(id, Mark::WaitingForStore);
        self.blocked.push(Waiter::Op(id, attempt));
        Err(())
    }

    pub(crate) fn mark_op(&mut self, id: OpId, mark: Mark) {
        if let Some(op) = self.ops.get_mut(&id) {
            op.trace.mark(self.now.mono, mark);
        }
    }

    /// The longest value that may be written: recovery must bring it to any OSD that we share PGs with, with
    /// something beside it, in one transaction.
    fn max_value_bytes(&self) -> u64 {
        let least = self.least_transaction_bytes(self.store.max_first_transaction_bytes());
        least - least / VALUE_SHARE
    }

    /// The largest transaction that we, who take this one, and all that we ask for heartbeats take.
    pub(crate) fn least_transaction_bytes(&self, own: u64) -> u64 {
        self.heartbeats.txn_bytes().map_or(own, |theirs| own.min(theirs))
    }

    /// Hands a write to the store and to the replicas.
    fn hand_over(
        &mut self,
        pgid: PgId,
        ready: Ready,
        reads: &ReadSet,
        source: Source,
        fx: &mut Effects,
    ) -> Result<(), SubmitError> {
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(()) };
        let Ready { entries, mut txn, sums, user_version, object, meta, log_only } = ready;
        let pg_num = host.pg.rules().pg_num;
        assert!(pgid.contains_hash(object.hash, pg_num), "pg {pgid} of {pg_num} writes {object}");
        assert!(!host.has_deleted(&txn), "pg {pgid}: a write of what is still to be removed");
        txn.account = account(pgid);
        host.write_beside_push(&object, &txn);
        let targets = host.pg.targets(&object);
        let sent = if targets.is_empty() { None } else { Some(encode_txn(&txn)) };
        let luv = host.pg.info().last_user_version.max(user_version);
        let records: SmallVec<[Bytes; 2]> =
            entries.iter().map(|entry| LogRecord::encode_of(entry, &sums, luv)).collect();
        let puts = entries.iter().zip(&records);
        let puts = puts.map(|(entry, r)| MetaOp::Put(log_key(entry.version), r.clone()));
        put_meta(&mut txn, &host.key, host.backlog.iter().cloned().chain(puts).chain(meta));
        let txn_id = self.store.submit(self.now, &txn, reads)?;

        host.backlog.clear();
        let delta = sums.since(&host.pg.info().sums);
        host.note_counted(&object, &delta);
        let version = entries.last().map(|e| e.version).unwrap_or_default();
        match entries.into_iter() {
            mut all if log_only => {
                all.by_ref().for_each(|e| host.pg.append_without_data(e, sums));
            }
            all => host.pg.append(all.collect(), sums, luv),
        }
        host.last_txn = Some(txn_id);
        host.dirty = true;
        if let Some(queue) = host.objects.get_mut(&object) {
            queue.writing += 1;
        }
        host.in_flight
            .push(version, Write { source, object: object.clone(), duplicates: Vec::new() });
        let (interval, trim_to) = (host.interval(), std::mem::take(&mut host.trim_to));
        self.durable.insert(txn_id, [Then::Committed(pgid, interval, version)].into());
        self.trim_log(pgid);
        let Some((txn, data, data_crc)) = sent else { return Ok(()) };
        let epoch = self.maps.epoch();
        let whole = RepOp { pgid, epoch, interval, records, trim_to, txn, data, data_crc };
        let log = || RepOp {
            txn: Bytes::new(),
            data: Pieces::new(),
            data_crc: KnownCrc::NONE,
            ..whole.clone()
        };
        let log = (log_only || targets.iter().any(|t| !t.with_data)).then(|| log().encode());
        let whole = whole.encode();
        for target in targets {
            let of_log = log.as_ref().filter(|_| log_only || !target.with_data);
            self.send_peer(target.osd, of_log.unwrap_or(&whole).clone(), fx);
            if let Source::Op(id) = source {
                self.mark_op(id, Mark::SentTo(target.osd));
            }
        }
        Ok(())
    }

    /// An OSD (or this one) has every write up to `version` durable.
    pub(crate) fn durable_on(
        &mut self,
        pgid: PgId,
        interval: Epoch,
        osd: OsdId,
        version: Eversion,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.interval() != interval {
            return;
        }
        if let Some(Source::Op(id)) = host.in_flight.get_mut(version).map(|w| w.source)
            && let Some(op) = self.ops.get_mut(&id)
        {
            let mark = if osd == self.cfg.id { Mark::LocalDurable } else { Mark::DurableOn(osd) };
            op.trace.mark(self.now.mono, mark);
        }
        host.in_flight.durable(osd, version);
        self.commit(pgid, fx);
    }

    /// A replica has the write up to `m.version`; of some of it only the log.
    pub(crate) fn on_rep_ack(&mut self, from: OsdId, m: RepAck, fx: &mut Effects) {
        self.heard_of_space(from, m.full);
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if host.interval() == m.interval && !m.missed.is_empty() {
            let left_out = (m.version, &m.missed[..]);
            host.pg.left_out(from, left_out, &mut host.in_flight, |write| &write.object);
            host.dirty = true;
            self.note_recovering(m.pgid);
            self.report_soon();
        }
        self.durable_on(m.pgid, m.interval, from, m.version, fx);
    }

    /// Answers what every member has in its log, and enough of them as a whole.
    pub(crate) fn commit(&mut self, pgid: PgId, fx: &mut Effects) {
        let mut touched: SmallVec<[HObject; 4]> = SmallVec::new();
        let mut log_is_full = false;
        if let Some(host) = self.pgs.get_mut(&pgid) {
            log_is_full = host.log_is_full;
            let pg = &host.pg;
            host.in_flight.release(|write, at, committed| pg.is_safe(&write.object, at, committed));
        }
        while let Some(host) = self.pgs.get_mut(&pgid) {
            let Some((version, write)) = host.in_flight.pop_committed(|w| &w.object) else { break };
            if let Some(queue) = host.objects.get_mut(&write.object) {
                queue.writing = queue.writing.saturating_sub(1);
                // A long read may wait for the last of them.
                if queue.writing == 0 && queue.reading > 0 {
                    self.read_room.look_again();
                }
            }
            touched.push(write.object.clone());
            self.committed(pgid, version, write, fx);
        }
        if touched.is_empty() {
            return;
        }
        if log_is_full {
            self.relieve_log(pgid, fx);
        }
        for object in touched {
            self.pump_object(pgid, &object, fx);
        }
        let Some(host) = self.pgs.get(&pgid) else { return };
        if host.pg.awaits_clean() {
            self.run_pg(pgid, fx, |pg, _, out| pg.recovered(out));
            self.note_recovering(pgid);
        } else if host.pg.is_backfilling() && host.need == Need::Nothing {
            // What a copy could not be brought may have been written anew.
            self.note_recovering(pgid);
        }
    }

    fn committed(&mut self, pgid: PgId, version: Eversion, write: Write, fx: &mut Effects) {
        let epoch = self.maps.epoch();
        let id = match write.source {
            Source::Op(id) => id,
            Source::Watch => return,
            Source::Trimmer => return self.trim_committed(pgid),
            Source::GiveUp => return self.give_up_committed(pgid, version, &write.object, fx),
        };
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.trace.mark(self.now.mono, Mark::Committed);
        let Some(answer) = op.answer.take() else { return };
        debug_assert_eq!(answer.version, version);
        let mut reply = MOsdOpReply::answer(&op.request, epoch);
        reply.result = answer.result;
        reply.ops = answer.ops;
        let mut reply = reply.with_versions(answer.version, answer.user_version);
        if answer.result == Errno::ENOENT.wire() {
            self.set_enoent_versions(pgid, &mut reply);
        }
        if let Some(host) = self.pgs.get_mut(&pgid)
            && let Some(op) = self.ops.get(&id)
        {
            host.io.writes += 1;
            host.io.write_bytes += op.bytes as u64;
        }
        if answer.result >= 0 {
            self.carry_out_effects(id, pgid, answer.effects, answer.user_version, fx);
        }
        for dup in write.duplicates {
            self.answer_like(dup, &reply);
        }
        self.reply_op(id, reply);
    }

    /// A request that was sent again while it was in flight.
    fn answer_like(&mut self, id: OpId, first: &MOsdOpReply) {
        let Some(op) = self.ops.get(&id) else { return };
        let mut reply = first.clone();
        reply.retry_attempt = op.request.retry_attempt;
        self.reply_op(id, reply);
    }

    /// A write of the OSD's own: the removal of a watch that timed out, or of a clone.
    pub(crate) fn own_write(
        &mut self,
        pgid: PgId,
        change: Change,
        object: HObject,
        reads: &ReadSet,
        source: Source,
        fx: &mut Effects,
    ) -> Result<(), SubmitError> {
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(()) };
        let Versioned { entries, txn, user_version, sums } =
            change.at(host.pg.next_version(), ReqId::default());
        let mut total = host.pg.info().sums;
        total.add(&sums);
        let ready = Ready { user_version, ..Ready::new(entries, txn, total, object.clone()) };
        host.objects.entry(object).or_default();
        self.hand_over(pgid, ready, reads, source, fx)
    }

    /// Logs what becomes of an unfound object that is given up: it is deleted, or from now on all
    /// copies miss it in the version that is answered here, until the primary has put the older state
    /// in its place. In the same change the clones go that only lost writes have made.
    pub(crate) fn write_given_up(
        &mut self,
        pgid: PgId,
        object: &HObject,
        delete: bool,
        reads: &ReadSet,
        fx: &mut Effects,
    ) -> Result<Eversion, SubmitError> {
        let now = self.now.wall;
        let size = self.store.stat(&object.to_key()).ok().flatten().map_or(0, |s| s.size);
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(Eversion::ZERO) };
        let Some(item) = host.pg.missing().get(object).copied() else { return Ok(Eversion::ZERO) };
        let (mut entries, mut meta, mut version) = (Vec::new(), Vec::new(), host.pg.next_version());
        let mut txn = host.transaction();
        let mut sums = host.pg.info().sums;
        // What was lost was in them, and nobody knows how much it was: they are to be counted anew.
        sums.approximate = true;
        let to = if delete { Eversion::ZERO } else { item.have };
        for (clone, prior_version) in host.giving_up.clones_that_go(object, to) {
            txn.remove(&clone.to_key());
            (sums.objects, sums.clones) = (sums.objects - 1, sums.clones - 1);
            meta.push(MetaOp::Remove(pg::missing_key(&clone)));
            let of_clone = LogEntry::of(clone, version);
            entries.push(LogEntry { kind: EntryKind::Delete, prior_version, ..of_clone });
            version.version += 1;
        }
        meta.push(if delete {
            txn.remove(&object.to_key());
            // How large it was, nobody knows; what is left of it is the best guess.
            sums.bytes -= i64::try_from(size).unwrap_or(0);
            sums.objects -= 1;
            sums.clones -= i64::from(!object.is_head());
            MetaOp::Remove(pg::missing_key(object))
        } else {
            pg::put_missing(object, &MissingItem { need: version, ..item })
        });
        entries.push(LogEntry {
            kind: if delete { EntryKind::Delete } else { EntryKind::Modify },
            prior_version: item.need,
            user_version: host.pg.info().last_user_version,
            mtime: now,
            lost_after: Some(to),
            ..LogEntry::of(object.clone(), version)
        });
        let head = object.head();
        host.objects.entry(head.clone()).or_default();
        drop_left_rows(&self.store, &mut txn).map_err(SubmitError::Miss)?;
        let ready = Ready { meta, log_only: !delete, ..Ready::new(entries, txn, sums, head) };
        self.hand_over(pgid, ready, reads, Source::GiveUp, fx)?;
        self.note_recount(pgid);
        Ok(version)
    }
}

fn ready_change(
    host: &PgHost,
    change: Change,
    first: Eversion,
    reqid: ReqId,
    finished: &Finished,
    returns: bool,
) -> Ready {
    let Versioned { mut entries, txn, user_version, sums } = change.at(first, reqid);
    let mut total = host.pg.info().sums;
    total.add(&sums);
    let object = entries.last().map(|e| e.object.clone()).unwrap_or_default();
    if let Some(last) = entries.last_mut() {
        last.result = finished.result;
        if returns {
            last.op_returns = op_returns(&finished.ops);
        }
    }
    Ready { user_version, ..Ready::new(entries, txn, total, object) }
}

/// A write that failed or changed nothing is logged all the same: sent again, it must get the same
/// answer.
fn ready_error(
    host: &PgHost,
    object: HObject,
    version: Eversion,
    reqid: ReqId,
    mtime: UTime,
    finished: &Finished,
    returns: bool,
) -> Ready {
    let entry = LogEntry {
        kind: EntryKind::Error,
        object: object.clone(),
        version,
        prior_version: Eversion::ZERO,
        reqid,
        user_version: finished.user_version,
        mtime,
        result: finished.result,
        op_returns: if returns { op_returns(&finished.ops) } else { Vec::new() },
        changed: None,
        lost_after: None,
    };
    let txn = Transaction::new(crate::host::sequencer(host.pg.pgid()));
    let (sums, user_version) = (host.pg.info().sums, finished.user_version);
    Ready { user_version, ..Ready::new(vec![entry], txn, sums, object) }
}

/// Results and outputs to be kept; the run has seen to it that outputs are short.
fn op_returns(ops: &ReplyOps) -> Vec<OpReturn> {
    let anything = ops.iter().any(|op| op.rval != 0 || !op.is_empty());
    let keep = |op: &wire::msg::ReplyOp| {
        let short = op.len() <= MAX_WRITE_OUTPUT_BYTES;
        OpReturn { rval: op.rval, outdata: if short { op.output() } else { Bytes::new() } }
    };
    if anything { ops.iter().map(keep).collect() } else { Vec::new() }
}

/// A transaction as it is sent: without its data, and the data beside.
pub(crate) fn encode_txn(txn: &Transaction) -> (Bytes, Pieces, KnownCrc) {
    let mut data = Pieces::new();
    let meta = denc::encoded_briefly(|e| txn.encode_to(e, &mut data));
    (meta, data, txn.data_crc())
}
