//! Transactions of a PG that are not a client's write: in order, waiting where they must.

use crate::arriving::is_temporary;
use crate::boot::EXIT_REPAIR;
use crate::daemon::{Daemon, Waiter};
use crate::host::{Queued, Then, Thens, account};
use crate::trim::drop_left_rows;
use io::{BLOCK_BYTES, Effects};
use maps::OsdMap;
use peer::PgPeering;
use pg::{Ctx, Fx, Notice, Pg, put_deleted};
use std::collections::VecDeque;
use store::{Invalid, ReadSet, StoreError, SubmitError, Transaction};
use types::PgId;
use types::testing::{Probe, hit};
use wire::msg::Payload;

/// What a small transaction takes beside its data, at most mostly.
const SLACK_BYTES: u64 = 4096;

/// Transactions of a PG that wait, in order, and the space they will take.
#[derive(Debug, Default)]
pub struct TxnQueue {
    queue: VecDeque<Queued>,
    bytes: u64,
}

/// What a transaction will take of the disk.
fn space_of(queued: &Queued) -> u64 {
    queued.txn.data_bytes().next_multiple_of(BLOCK_BYTES as u64) + SLACK_BYTES
}

impl TxnQueue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Space that all of them will take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first one. Its changes stay as they are while it waits.
    pub fn front_mut(&mut self) -> Option<&mut Queued> {
        self.queue.front_mut()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Queued> {
        self.queue.iter()
    }

    /// The same, for who is to be told of their births.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Queued> {
        self.queue.iter_mut()
    }

    /// Puts one behind the others.
    pub fn push_back(&mut self, queued: Queued) {
        self.bytes += space_of(&queued);
        self.queue.push_back(queued);
    }

    /// Takes the first one.
    pub fn pop_front(&mut self) -> Option<Queued> {
        let first = self.queue.pop_front()?;
        self.bytes -= space_of(&first);
        Some(first)
    }

    /// Several take the place of the first one.
    fn divide_front(&mut self) {
        let Some(mut all) = self.pop_front() else { return };
        let apart = std::mem::take(&mut all.apart).into_iter().map(|mut txn| {
            txn.account = all.txn.account;
            Queued { removes: all.removes, ..Queued::of(txn) }
        });
        let mut apart: Vec<_> = apart.collect();
        if let Some(last) = apart.last_mut() {
            (last.then, last.births) = (all.then, all.births);
        }
        for queued in apart.into_iter().rev() {
            self.bytes += space_of(&queued);
            self.queue.push_front(queued);
        }
    }

    /// Puts those of another PG behind these.
    pub fn append(&mut self, other: TxnQueue) {
        self.bytes += other.bytes;
        self.queue.extend(other.queue);
    }
}

impl Daemon {
    /// Lets a PG's machine take an input, and carries out what it wants.
    pub(crate) fn run_pg(
        &mut self,
        pgid: PgId,
        fx: &mut Effects,
        input: impl FnOnce(&mut Pg, &Ctx<'_>, &mut Fx),
    ) {
        let map = self.maps.current().clone();
        self.run_pg_at(&map, pgid, fx, input);
    }

    /// The same with the map that the PG is at: of several maps that came at once, each is taken in
    /// by itself.
    pub(crate) fn run_pg_at(
        &mut self,
        map: &OsdMap,
        pgid: PgId,
        fx: &mut Effects,
        input: impl FnOnce(&mut Pg, &Ctx<'_>, &mut Fx),
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let view = peer::View(map);
        let ctx = Ctx { map: &view, now: self.now.wall };
        let mut out = Fx::default();
        let readers_gone_at = host.priors.over_at();
        host.pg.set_read_elsewhere(readers_gone_at > self.now.mono);
        input(&mut host.pg, &ctx, &mut out);
        if readers_gone_at > self.now.mono && host.pg.awaits_clean() {
            self.leases.wake_by(readers_gone_at);
        }
        let (at, to) = (host.pg.epoch(), host.pg.mapping());
        let (osd, stage) = (self.cfg.id, host.pg.stage());
        tracing::trace!("osd.{osd}: pg {pgid} at {at}: {stage:?}, {:?} of {:?}", to.acting, to.up);
        let txn = host.transaction();
        self.carry_out(pgid, out, txn, Thens::new(), fx);
    }

    /// Carries out what a machine wants, together with a transaction of the host's own.
    pub(crate) fn carry_out(
        &mut self,
        pgid: PgId,
        out: Fx,
        mut txn: Transaction,
        mut then: Thens,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        // What is to go is noted, and goes behind: it may be more than one transaction takes, and take long.
        host.put_meta(&mut txn, out.remove.iter().map(put_deleted));
        host.put_meta(&mut txn, out.meta);
        if !out.send_durable.is_empty() {
            then.push(Then::Send(out.send_durable));
        }
        then.extend(out.tell_durable.map(|epoch| Then::Tell(pgid, epoch)));
        if out.notices.contains(&Notice::NewInterval) {
            // Before what the new interval wishes: a lone OSD may wish at once.
            host.wish = Default::default();
        }
        if out.want_pg_temp.is_some() {
            host.wish.pg_temp = out.want_pg_temp;
            self.mon.wishes_changed = true;
        }
        if out.want_up_thru.is_some() {
            host.wish.up_thru = out.want_up_thru;
            self.mon.wishes_changed = true;
        }
        host.dirty = true;
        self.submit(pgid, txn, then, fx);
        self.remove_deleted(pgid, out.remove, fx);
        for (to, msg) in out.send {
            let readers = self.prior_readers(pgid);
            self.send_peer(to, PgPeering { msg, readers }.encode(), fx);
        }
        for notice in out.notices {
            self.on_notice(pgid, notice, fx);
        }
        self.note_recovering(pgid);
        self.report_soon();
    }

    fn on_notice(&mut self, pgid: PgId, notice: Notice, fx: &mut Effects) {
        match notice {
            Notice::NewInterval => {
                self.forget_places(pgid, fx);
                self.new_interval(pgid, fx);
            }
            Notice::Active => self.went_active(pgid, fx),
            Notice::Clean => {
                self.recovery_is_over(pgid, fx);
                self.note_trimming(pgid);
            }
            Notice::Counts(object) => {
                tracing::warn!(
                    "osd.{}: pg {pgid}: no other copy has {object}: ours, which could not be read whole, counts again",
                    self.cfg.id
                );
                self.release_object(pgid, &object, fx);
            }
            Notice::RemoveSelf => self.begin_removal(pgid, fx),
            Notice::Odd(why) => {
                tracing::error!("osd.{}: pg {pgid}: {why}", self.cfg.id);
                self.perf.odd_messages += 1;
            }
        }
    }

    /// Hands a transaction of a PG to the store, behind those that wait. Without changes, what comes
    /// `then` happens when everything before is durable.
    pub(crate) fn submit(
        &mut self,
        pgid: PgId,
        txn: Transaction,
        then: impl Into<Thens>,
        fx: &mut Effects,
    ) {
        let then = then.into();
        if txn.is_empty() && then.is_empty() {
            return;
        }
        self.enqueue(pgid, Queued { then, ..Queued::of(txn) }, fx);
    }

    /// Puts a transaction behind those that wait.
    pub(crate) fn enqueue(&mut self, pgid: PgId, mut queued: Queued, fx: &mut Effects) {
        queued.txn.account = account(pgid);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.queue_removals_for(&queued.txn);
        host.queue.push_back(queued);
        if !host.queue_stalled {
            self.pump_queue(pgid, fx);
        }
    }

    pub(crate) fn pump_queue(&mut self, pgid: PgId, fx: &mut Effects) {
        let at_once = self.deletes_at_once();
        while let Some(host) = self.pgs.get_mut(&pgid).filter(|h| h.unborn == 0) {
            let Some(first) = host.queue.front_mut() else {
                if !self.go_on_behind_queue(pgid, at_once, fx) {
                    return;
                }
                continue;
            };
            if first.txn.is_empty() {
                let then = std::mem::take(&mut first.then);
                host.queue.pop_front();
                match host.last_txn.filter(|t| self.durable.contains_key(t)) {
                    Some(last) => self.durable.entry(last).or_default().extend(then),
                    None => then.into_iter().for_each(|t| self.carry_out_then(t, fx)),
                }
                continue;
            }
            let first_time = !std::mem::replace(&mut first.rows_dropped, true);
            if first_time && let Err(miss) = drop_left_rows(&self.store, &mut first.txn) {
                first.rows_dropped = false;
                host.queue_stalled = true;
                return self.queue_stopped(pgid, SubmitError::Miss(miss), fx);
            }
            match self.store.submit(self.now, &first.txn, &first.reads) {
                Ok(id) => {
                    let then = std::mem::take(&mut first.then);
                    let births = std::mem::take(&mut first.births);
                    host.queue.pop_front();
                    host.last_txn = Some(id);
                    self.durable.insert(id, then);
                    births.into_iter().for_each(|pgid| self.is_born(pgid, fx));
                }
                Err(SubmitError::Invalid(Invalid::TooLarge { .. })) if !first.apart.is_empty() => {
                    hit(Probe::RemovalDivided);
                    host.queue.divide_front();
                }
                Err(stop) => {
                    host.queue_stalled = true;
                    self.queue_stopped(pgid, stop, fx);
                    return;
                }
            }
        }
    }

    /// Nothing is in the queue. Whether that has changed.
    fn go_on_behind_queue(&mut self, pgid: PgId, at_once: usize, fx: &mut Effects) -> bool {
        if self.pgs.get(&pgid).is_some_and(|h| h.doomed && !h.is_splitting()) {
            self.begin_removal(pgid, fx);
            return false;
        }
        self.queue_empty(pgid, fx);
        let Some(host) = self.pgs.get_mut(&pgid) else { return false };
        if host.queue_next_removals(at_once) {
            return true;
        }
        if !host.behind_removals.is_empty() {
            self.release_listings(pgid, fx);
        }
        false
    }

    fn queue_stopped(&mut self, pgid: PgId, stop: SubmitError, fx: &mut Effects) {
        match stop {
            SubmitError::Miss(miss) => self.fetch(miss, Waiter::Queue(pgid), fx),
            SubmitError::Busy => self.blocked.push(Waiter::Queue(pgid)),
            SubmitError::NoSpace => {
                // Even the reserve is used up: wait for space, and say so.
                self.lacks_space(0);
                self.blocked.push(Waiter::Queue(pgid));
            }
            SubmitError::Invalid(Invalid::NoSuchObject { object, .. })
                if object.decode().is_ok_and(|o| is_temporary(&o)) =>
            {
                // It must not be: parts of an object are gone, and more of them came. Without these, the
                // log says that the object is missing, and it is brought whole.
                fx.exit(
                    EXIT_REPAIR,
                    format!(
                        "osd.{}: pg {pgid}: parts of an object that have come are not there any more. It \
                         starts again without the last one, to be given the object whole",
                        self.cfg.id
                    ),
                );
            }
            SubmitError::Invalid(why) => {
                // What a clone takes of the log is not known before. The primary's log takes more than ours: when
                // we come back without this write, the object is brought to us in parts.
                let first = self.pgs.get(&pgid).and_then(|host| host.queue.iter().next());
                let answers = |q: &Queued| q.then.iter().any(|t| matches!(t, Then::RepAck(..)));
                let is_copy = first.is_some_and(answers);
                let too_large = matches!(why, Invalid::TooLarge { .. });
                let code = if is_copy && too_large { EXIT_REPAIR } else { 1 };
                let id = self.cfg.id;
                fx.exit(code, format!("osd.{id}: pg {pgid}: a transaction cannot be: {why}"));
            }
        }
    }

    pub(crate) fn queue_fetched(
        &mut self,
        pgid: PgId,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.queue_stalled = false;
        match (result, host.queue.front_mut()) {
            (Ok(reads), Some(first)) => first.reads.merge(reads),
            (Ok(_), None) => {}
            (Err(error), Some(first)) if error.object().is_some() && !first.txn.is_empty() => {
                // What is written here is damaged. When we come back without this write, the log
                // says that the object is missing, and it is brought whole.
                fx.exit(
                    EXIT_REPAIR,
                    format!(
                        "osd.{}: pg {pgid}: what a write needs cannot be read: {error}. It starts \
                         again without the write, to be given the object by another copy",
                        self.cfg.id
                    ),
                );
                return;
            }
            (Err(error), _) => {
                // A replica that cannot apply what all others have is of no use until it is repaired.
                fx.exit(
                    1,
                    format!(
                        "osd.{} stops: pg {pgid}: what a write needs cannot be read: {error}. Its \
                         data is on the other copies; replace the disk, or remove this OSD and add \
                         it again",
                        self.cfg.id
                    ),
                );
                return;
            }
        }
        self.pump_queue(pgid, fx);
    }

    pub(crate) fn carry_out_then(&mut self, then: Then, fx: &mut Effects) {
        match then {
            Then::Send(messages) => {
                for (to, msg) in messages {
                    let readers = self.prior_readers(msg.pgid);
                    self.send_peer(to, PgPeering { msg, readers }.encode(), fx);
                }
            }
            Then::Tell(pgid, epoch) => {
                self.run_pg(pgid, fx, |pg, ctx, out| pg.on_durable(epoch, ctx, out));
            }
            Then::Committed(pgid, interval, version) => {
                self.durable_on(pgid, interval, self.cfg.id, version, fx);
            }
            Then::RepAck(to, ack, bytes) => {
                self.in_hand.replica -= bytes;
                self.send_peer(to, ack.encode(), fx);
            }
            Then::Pulled(pgid, interval, object) => {
                self.pulled_durable(pgid, interval, object, fx);
            }
            Then::Pull(from, pull) => self.on_pull(from, *pull, fx),
            Then::Base(pgid, from, object) => {
                self.go_on_with_base(pgid, from, object, Ok(ReadSet::new()), fx);
            }
            Then::Part(held, since, urgent) => self.answer_part(*held, since, urgent, fx),
            Then::ProgressAck(to, ack) => self.send_peer(to, ack.encode(), fx),
            Then::Removed(pgid) => self.go_on_removing(pgid, fx),
            Then::Bench => self.bench_durable(fx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{HObject, ObjectKey};

    #[test]
    fn what_is_too_much_at_once_is_done_one_by_one() {
        let named = |name: &str| HObject { name: name.into(), ..HObject::min() }.to_key();
        let remove = |some: &[ObjectKey]| {
            let mut txn = Transaction::new(3);
            some.iter().for_each(|object| _ = txn.remove(object));
            txn
        };
        let objects = ["a", "b", "c"].map(named);
        assert!(Queued::divisible(&objects[..1], remove).apart.is_empty());
        let mut queue = TxnQueue::default();
        let mut all = Queued { then: [Then::Bench].into(), ..Queued::divisible(&objects, remove) };
        all.txn.account = 7;
        queue.push_back(all);
        queue.push_back(Queued::of(remove(&[named("behind")])));
        queue.divide_front();
        assert_eq!(queue.bytes(), 4 * SLACK_BYTES);
        for (i, object) in objects.iter().chain([&named("behind")]).enumerate() {
            let one = queue.pop_front().expect("one");
            assert_eq!(
                (one.txn.objects(), one.then.len()),
                (&[object.clone()][..], usize::from(i == 2))
            );
            assert_eq!((one.txn.sequencer, one.txn.account), (3, if i < 3 { 7 } else { 0 }));
        }
        assert_eq!((queue.is_empty(), queue.bytes()), (true, 0));
    }
}
