//! The sending side of recovery: an object is read part by part, and each part sent when the receiver
//! has the one before it durable.
//!
//! An acting copy must have the object before it is written ([`pg::Pg::write_readiness`]). On its way to
//! a copy that is being filled, writes go on meanwhile. That copy learns of them by its log only, so
//! what a write changes in front of the cursor is read with its part, and what it changes behind it
//! ("beside the push") goes with the last part: only while that one is on its way writes wait. A write
//! that does more than to put bytes and attributes puts the push off instead, and so does any write of
//! an object that travels in one part; an object that was put off a few times is pushed before it is
//! written again.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then};
use crate::object::Ranges;
use crate::ops::Reader;
use crate::options::Limits;
use crate::pace::{Held, STEP_BYTES, Step};
use crate::part::{Part, PartError, read_changes, read_part};
use crate::recover::{for_each_of, take_of};
use crate::share::base_for;
use bytes::Bytes;
use io::{BLOCK_BYTES, Effects};
use peer::{PartFate, Pull, Push, PushAck, PushCursor};
use pg::{Pg, Readiness};
use store::{Op, ReadSet, Store, StoreError, Transaction};
use types::testing::{Probe, hit};
use types::{Eversion, HObject, Mono, OsdId, PgId, SnapId};
use wire::msg::Payload;

/// Parts that bring what was written beside a push, before writes have to wait for it. (The last one does not
/// count: then it is over.)
const CATCH_UP_PARTS: u32 = 8;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The sending side of an object on its way.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Somebody asked for it.
    pub pulled: bool,
    /// A client waits for it.
    pub urgent: bool,
    /// The version that is there: what was changed since may be enough. Zero: none.
    pub base: Eversion,
    /// See [`pg::Pg::may_share`].
    pub shares: Option<Eversion>,
    /// What the receiver has taken from another version: it is not sent.
    pub shared: Ranges,
    /// Since when the next part is being read.
    pub reading_since: Option<Mono>,
    /// Our copy is damaged: it begins anew when that is repaired.
    pub waits_for_repair: bool,
    pub cursor: PushCursor,
    pub reads: ReadSet,
    /// A part was sent, and the next waits for the answer. What was held or fetched for a push that was
    /// put off comes too late then.
    pub awaits_answer: bool,
    /// The object's version in the part that was sent last.
    pub version: Eversion,
    /// How many parts were sent, and how many of them did not move the cursor.
    pub parts: u32,
    pub catch_up_parts: u32,
    pub beside: Beside,
}

/// What was written of an object behind the cursor of its push.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    pub ranges: Ranges,
    pub attrs: bool,
}

/// What a write of an object that is being pushed may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Begin: nothing is on its way yet, or the change comes with a later part.
    Free,
    /// Begin, if the push is put off.
    PutOff,
    /// Wait: the last part is on its way.
    Wait,
}

impl Sending {
    /// Reads the next part: what was changed, if the receiver has the version before, and the log knows; else
    /// what it does not share with another one that the receiver has.
    fn read(
        &mut self,
        store: &Store,
        limits: &Limits,
        object: &HObject,
        (to, pg): (OsdId, &Pg),
    ) -> Result<Part, PartError> {
        let first = self.cursor == PushCursor::default();
        if first {
            self.shared = Ranges::default();
        }
        let reader = Reader { store, set: &self.reads };
        if first
            && self.base != Eversion::ZERO
            && let Some(changed) = pg.log().changed_since(object, self.base)
            && let Some(part) = read_changes(reader, limits, object, self.base, changed)?
        {
            hit(Probe::ChangesSent);
            return Ok(part);
        }
        let base = match self.shares {
            Some(head) if first => base_for(store, pg, to, object, head)?,
            _ => None,
        };
        let Some(base) = base else { return read_part(reader, limits, object, self) };
        self.shared = base.shared;
        let reader = Reader { store, set: &self.reads };
        let mut part = read_part(reader, limits, object, self)?;
        hit(Probe::SharedSent);
        (part.base, part.base_snap) = (base.version, base.snap);
        part.next.done = false;
        Ok(part)
    }

    /// The receiver wants the whole.
    fn begin_anew(&mut self) {
        *self = Sending { pulled: self.pulled, urgent: self.urgent, ..Sending::default() };
    }

    fn way(&self) -> Way {
        match (self.parts, self.cursor.done) {
            _ if self.pulled || self.catch_up_parts > CATCH_UP_PARTS => Way::Wait,
            (0, _) | (_, false) => Way::Free,
            (1, true) => Way::PutOff,
            (_, true) => Way::Wait,
        }
    }

    /// Notes a write. Whether it can come with a later part.
    fn note_write(&mut self, txn: &Transaction) -> bool {
        if self.parts == 0 {
            return true;
        }
        if self.cursor.done {
            return false;
        }
        // When all data is sent, what comes behind its end is not read any more either.
        let sent = if self.cursor.data_done { u64::MAX } else { self.cursor.data_offset };
        for op in txn.ops() {
            match op {
                Op::Write { offset, data, .. } => {
                    // In whole blocks: the receiver does not look at what it has taken from elsewhere.
                    let (from, end) = (offset / BLOCK * BLOCK, offset + data.len() as u64);
                    let end = end.next_multiple_of(BLOCK);
                    self.beside.ranges.insert(from, end.min(sent).saturating_sub(from));
                    // What is in front of the cursor is sent now, if it was not to be.
                    self.shared.remove(from, end - from);
                }
                // One that is not sent yet comes as it is then.
                Op::SetAttr { name, .. } => {
                    let after = self.cursor.attrs_after.as_ref();
                    self.beside.attrs |= after.is_none_or(|after| name <= after);
                }
                Op::SetMeta { .. } | Op::Touch(_) => {}
                _ => return false,
            }
        }
        hit(Probe::WriteBesidePush);
        true
    }
}

impl PgHost {
    /// Whether a write of `object` may begin; for one that is being pushed the push may be put off.
    pub(crate) fn make_way(&mut self, object: &HObject) -> bool {
        if self.pg.write_readiness(object) != Readiness::Ready {
            return false;
        }
        if !self.pg.is_on_its_way(object) {
            return true;
        }
        let (mut wait, mut put_off) = (!self.pg.may_put_off(object), false);
        for_each_of(&mut self.transfers.sending, object, |_, push| {
            wait |= push.way() == Way::Wait;
            put_off |= push.way() == Way::PutOff;
        });
        if put_off && !wait {
            self.put_off(object);
        }
        !wait
    }

    /// A write of `object` begins: it comes with the push that is under way, or puts it off.
    pub(crate) fn write_beside_push(&mut self, object: &HObject, txn: &Transaction) {
        if !self.pg.is_on_its_way(object) {
            return;
        }
        let mut comes_later = txn.objects().iter().all(|key| *key == object.to_key());
        for_each_of(&mut self.transfers.sending, object, |_, push| {
            comes_later = comes_later && (push.pulled || push.note_write(txn));
        });
        if !comes_later {
            self.put_off(object);
        }
    }

    fn put_off(&mut self, object: &HObject) {
        self.pg.put_off(object);
        take_of(&mut self.transfers.sending, object, |push| !push.pulled);
    }
}

impl Daemon {
    pub(crate) fn begin_push(
        &mut self,
        pgid: PgId,
        to: OsdId,
        object: HObject,
        urgent: bool,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (base, shares) = (host.pg.base_of(to, &object), host.pg.may_share(to, &object));
        let sending = Sending { urgent, base, shares, ..Sending::default() };
        host.transfers.sending.insert((to, object.clone()), sending);
        self.push_part(pgid, to, object, fx);
    }

    pub(crate) fn on_pull(&mut self, from: OsdId, m: Pull, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        self.remove_first(m.pgid, &m.object.head(), fx);
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.is_settled_for(&m.object.head()) {
            // It may be written by what waits there.
            let (pgid, empty) = (m.pgid, host.transaction());
            self.submit(pgid, empty, [Then::Pull(from, Box::new(m))], fx);
            return;
        }
        let (urgent, cursor, base, shares) = (m.urgent, m.cursor, m.have, m.shares);
        let Ok(shared) = Ranges::try_from(m.shared) else {
            tracing::error!("osd.{}: osd.{from} has ranges out of order", self.cfg.id);
            self.perf.odd_messages += 1;
            return;
        };
        let sending =
            Sending { pulled: true, urgent, cursor, base, shares, shared, ..Sending::default() };
        host.transfers.sending.insert((from, m.object.clone()), sending);
        self.push_part(m.pgid, from, m.object, fx);
    }

    pub(crate) fn push_fetched(
        &mut self,
        pgid: PgId,
        to: OsdId,
        object: HObject,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let key = (to, object.clone());
        let Some(sending) = host.transfers.sending.get_mut(&key) else { return };
        match result {
            Ok(reads) => {
                sending.reads.merge(reads);
                self.begin_part(pgid, to, object, fx);
            }
            // It may be another version that cannot be read, with which this one shares something.
            Err(why) if sending.shares.take().is_some() => {
                hit(Probe::SentWithoutBase);
                tracing::error!("osd.{}: {object} is sent whole: {why}", self.cfg.id);
                self.perf.read_errors += 1;
                sending.reads = ReadSet::new();
                self.begin_part(pgid, to, object, fx);
            }
            Err(why) => {
                tracing::error!("osd.{}: {object} cannot be copied: {why}", self.cfg.id);
                self.perf.read_errors += 1;
                self.cannot_send(pgid, to, object, &why, fx);
            }
        }
    }

    /// Sends the next part of an object: now, or when there is time.
    pub(crate) fn push_part(&mut self, pgid: PgId, to: OsdId, object: HObject, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let Some(sending) = host.transfers.sending.get(&(to, object.clone())) else { return };
        let free = self.held.is_empty() && self.pacer.may_begin(self.now.mono);
        if !(sending.urgent || free) {
            self.held.push_back(Held::Part(pgid, interval, to, object));
            return;
        }
        self.begin_part(pgid, to, object, fx);
    }

    /// Reads the next part of an object and sends it.
    pub(crate) fn begin_part(&mut self, pgid: PgId, to: OsdId, object: HObject, fx: &mut Effects) {
        let (epoch, now) = (self.maps.epoch(), self.now.mono);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let Some(sending) = host.transfers.sending.get_mut(&(to, object.clone())) else { return };
        if sending.awaits_answer {
            return;
        }
        if sending.reading_since.is_none() {
            sending.reading_since = Some(now);
            self.pacer.begins(now, Step::Read);
        }
        let mut limits = self.limits;
        if self.pacer.clients_work(now) {
            limits.push_bytes = limits.push_bytes.min(STEP_BYTES);
        }
        let part = match sending.read(&self.store, &limits, &object, (to, &host.pg)) {
            Ok(part) => part,
            Err(PartError::Miss(miss)) => {
                self.fetch(miss, Waiter::Push(pgid, to, object), fx);
                return;
            }
            Err(PartError::Damaged) => {
                tracing::error!("osd.{}: {object} has a damaged record", self.cfg.id);
                self.perf.read_errors += 1;
                let why = StoreError::BadBlock { object: object.to_key(), offset: 0, block: 0 };
                self.cannot_send(pgid, to, object, &why, fx);
                return;
            }
        };
        let bytes: usize = part.data.iter().map(Bytes::len).sum();
        if !sending.pulled {
            host.recovered.1 += bytes as u64;
        }
        if let Some(since) = sending.reading_since.take() {
            self.pacer.took(Step::Read, now.since(since));
        }
        sending.awaits_answer = true;
        sending.version = part.version;
        sending.parts = sending.parts.saturating_add(1);
        sending.catch_up_parts += u32::from(part.next == sending.cursor);
        if part.next.attrs_after.as_ref().is_some_and(Bytes::is_empty) {
            // All of them are still to come, as they will be then.
            sending.beside.attrs = false;
            sending.catch_up_parts += 1;
        }
        part.beside.iter().for_each(|(offset, len)| sending.beside.ranges.remove(offset, len));
        // Who pulls gives it back with what it asks for next.
        let tells = sending.pulled || part.base_snap != SnapId::default();
        let push = Push {
            pgid,
            epoch,
            interval,
            object: object.clone(),
            pulled: sending.pulled,
            exists: part.exists,
            version: part.version,
            size: part.size,
            meta: part.meta,
            attrs: part.attrs,
            omap_header: part.omap_header,
            omap: part.omap,
            extents: part.extents,
            from: sending.cursor.clone(),
            next: part.next.clone(),
            urgent: sending.urgent,
            base: part.base,
            base_snap: part.base_snap,
            shared: if tells { sending.shared.iter().collect() } else { Vec::new() },
            data: Bytes::new(),
        };
        sending.reads = ReadSet::new();
        sending.cursor = part.next;
        if sending.pulled && sending.cursor.done {
            host.transfers.sending.remove(&(to, object));
        }
        let mut message = push.encode();
        message.data = part.data.into_iter().collect();
        self.send_peer(to, message, fx);
    }

    pub(crate) fn on_push_ack(&mut self, from: OsdId, m: PushAck, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if host.interval() != m.interval {
            return;
        }
        let sending = host.transfers.sending.get_mut(&(from, m.object.clone()));
        let Some(sending) = sending.filter(|s| s.cursor == m.next && s.version == m.version) else {
            // The push was put off, and perhaps begun anew.
            return;
        };
        sending.awaits_answer = false;
        match m.fate {
            PartFate::Durable => {}
            PartFate::NoSpace => return self.push_refused(m.pgid, from, &m.object, fx),
            PartFate::WholeWanted => {
                sending.begin_anew();
                return self.push_part(m.pgid, from, m.object, fx);
            }
        }
        if !m.next.done {
            self.push_part(m.pgid, from, m.object, fx);
            return;
        }
        host.transfers.sending.remove(&(from, m.object.clone()));
        host.recovered.0 += 1;
        hit(Probe::Pushed);
        self.run_pg(m.pgid, fx, |pg, _, out| {
            pg.backfill_moved(from, &m.object);
            pg.pushed(from, &m.object, m.version, out);
        });
        self.commit(m.pgid, fx);
        self.release_object(m.pgid, &m.object, fx);
    }

    /// There is no space there: the object is brought later. What waits for it waits for space now, and
    /// what makes some may go on.
    fn push_refused(&mut self, pgid: PgId, by: OsdId, object: &HObject, fx: &mut Effects) {
        self.heard_of_space(by, true);
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.put_off(object);
        }
        self.no_space_there(pgid, by, fx);
        self.note_recovering(pgid);
        self.release_object(pgid, object, fx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(cursor: PushCursor) -> Sending {
        Sending { parts: 1, cursor, ..Sending::default() }
    }

    fn write(offset: u64, len: usize) -> Transaction {
        let mut txn = Transaction::new(0);
        txn.write(&HObject::min().to_key(), offset, vec![1; len].into());
        txn
    }

    #[test]
    fn what_later_parts_do_not_bring_goes_beside_them() {
        let ranges = |push: &Sending| push.beside.ranges.iter().collect::<Vec<_>>();
        let mut half = push(PushCursor { data_offset: 100, ..PushCursor::default() });
        half.cursor.data_offset = 2 * BLOCK;
        half.shared = Ranges::whole(9 * BLOCK);
        assert!(half.note_write(&write(BLOCK + 90, 5000)) && half.note_write(&write(4 * BLOCK, 5)));
        assert_eq!(ranges(&half), [(BLOCK, BLOCK)]);
        // It is not there in another version any more.
        let left: Vec<_> = half.shared.iter().collect();
        assert_eq!(left, [(0, BLOCK), (3 * BLOCK, BLOCK), (5 * BLOCK, 4 * BLOCK)]);
        // Only the omap is left to be sent.
        let all = PushCursor { data_offset: 100, data_done: true, ..PushCursor::default() };
        let mut all = push(all);
        assert!(all.note_write(&write(100, 50)));
        assert_eq!(ranges(&all), [(0, BLOCK)]);
        let mut txn = write(0, 1);
        txn.truncate(&HObject::min().to_key(), 10);
        assert!(!all.note_write(&txn), "that puts it off");
        let mut unsent = Sending::default();
        assert!(unsent.note_write(&txn) && ranges(&unsent).is_empty());
    }
}
