//! Recovery: moving objects between copies, as the PG's machine says.
//!
//! An object travels as one or more parts ([`peer::Push`], see `part`); the receiver makes each part
//! durable and asks for the next.

use crate::arriving::Temporary;
use crate::daemon::Daemon;
use crate::host::{PgHost, Then};
use crate::listing::{ListingRequest, Listings};
use crate::object::ObjectMeta;
use crate::pace::{BUSY_OBJECTS, Held, Step};
use crate::part::{apply_part, note_arrived_clone};
use crate::push::Sending;
use crate::share::Waiting;
use io::Effects;
use peer::{
    BackfillProgress, BackfillProgressAck, PartFate, Pull, Push, PushAck, PushCursor, Scan,
};
use pg::{BackfillWork, Fx, Gate, Need, PullSize, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use types::testing::{Probe, hit};
use types::{Epoch, Eversion, HObject, OsdId, PgId};
use wire::msg::Payload;

/// Objects on their way, of one PG in one interval.
#[derive(Debug, Default)]
pub struct Transfers {
    pub(crate) sending: BTreeMap<(OsdId, HObject), Sending>,
    pub(crate) listings: Listings,
    /// What comes, and from whom.
    pub(crate) receiving: BTreeMap<(OsdId, HObject), Receiving>,
    /// Where parts of objects have gathered, and from whom they came.
    pub(crate) gathering: BTreeMap<(OsdId, HObject), Temporary>,
    /// Parts that came, and cannot be looked at yet.
    pub(crate) waiting: Waiting,
}

/// The receiving side of an object on its way.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    /// Where the next part begins.
    next: PushCursor,
    /// A client waits for it.
    urgent: bool,
    /// What has come of it: data, and all. It gathers in the store.
    gathered: (u64, u64),
}

impl Transfers {
    /// All is forgotten, but not what lies in the store.
    pub(crate) fn forget(&mut self) {
        let gathering = std::mem::take(&mut self.gathering);
        *self = Transfers { gathering, ..Transfers::default() };
    }

    /// Notes a part that came. Whether it continues those before it: nothing else may become an object.
    fn continues(&mut self, from: OsdId, m: &Push) -> bool {
        let key = (from, m.object.clone());
        let before = self.receiving.remove(&key);
        let first = m.from == PushCursor::default();
        if !first && before.as_ref().is_none_or(|b| b.next.done || b.next != m.from) {
            return false;
        }
        let urgent = m.urgent || before.as_ref().is_some_and(|b| b.urgent);
        let (data, bytes) = before.filter(|_| !first).map_or((0, 0), |b| b.gathered);
        let gathered = (data + m.data.len() as u64, bytes + m.bytes());
        self.receiving.insert(key, Receiving { next: m.next.clone(), urgent, gathered });
        true
    }

    /// What has come of an object before this part of it: data, and all.
    fn gathered_before(&self, from: OsdId, m: &Push) -> (u64, u64) {
        let before = self.receiving.get(&(from, m.object.clone()));
        before.filter(|_| m.from != PushCursor::default()).map_or((0, 0), |b| b.gathered)
    }

    /// Whether a client waits for what comes from there.
    pub(crate) fn is_urgent(&self, from: OsdId, object: &HObject) -> bool {
        self.receiving.get(&(from, object.clone())).is_some_and(|r| r.urgent)
    }

    /// The last part of an object was answered. (If more of it comes, its push was put off, and has
    /// begun anew.)
    pub(crate) fn has_come(&mut self, from: OsdId, object: &HObject) {
        let key = (from, object.clone());
        if self.receiving.get(&key).is_some_and(|r| r.next.done) {
            self.receiving.remove(&key);
        }
    }

    /// A client waits for an object. Gives those who hold a part of it, or will, and do not know.
    pub(crate) fn hurry(&mut self, object: &HObject) -> BTreeSet<OsdId> {
        let mut unaware = BTreeSet::new();
        for_each_of(&mut self.sending, object, |osd, sending| {
            if !std::mem::replace(&mut sending.urgent, true) && sending.awaits_answer {
                unaware.insert(osd);
            }
        });
        for_each_of(&mut self.receiving, object, |osd, receiving| {
            if !std::mem::replace(&mut receiving.urgent, true) {
                unaware.insert(osd);
            }
        });
        unaware
    }
}

/// What is on its way of an object, to or from each OSD: found without a look at all others, of which there may be
/// as many as clients wait for.
pub(crate) fn for_each_of<T>(
    all: &mut BTreeMap<(OsdId, HObject), T>,
    object: &HObject,
    mut each: impl FnMut(OsdId, &mut T),
) {
    let mut from = all.keys().next().map(|(osd, _)| *osd);
    while let Some(osd) = from {
        if let Some(one) = all.get_mut(&(osd, object.clone())) {
            each(osd, one);
        }
        let others = (Bound::Excluded((osd, HObject::max())), Bound::Unbounded);
        from = all.range(others).next().map(|((osd, _), _)| *osd);
    }
}

/// Takes some of these out, and says to or from whom they were.
pub(crate) fn take_of<T>(
    all: &mut BTreeMap<(OsdId, HObject), T>,
    object: &HObject,
    goes: impl Fn(&T) -> bool,
) -> Vec<OsdId> {
    let mut gone = Vec::new();
    for_each_of(all, object, |osd, one| gone.extend(goes(one).then_some(osd)));
    for osd in &gone {
        all.remove(&(*osd, object.clone()));
    }
    gone
}

impl Daemon {
    /// Whether [`Daemon::recover`] may have something to do.
    pub(crate) fn may_recover(&self) -> bool {
        self.gates_due
            || self.paced_pulls
            || !self.recovered.is_empty()
            || !self.urgent.is_empty()
            || !self.held.is_empty()
            || !self.giving_up.is_empty()
            || self.copies.are_due()
            || self.write_room.is_due()
            || self.places.holders().next().is_some()
    }

    /// Gives the PGs work as the limits allow.
    pub(crate) fn recover(&mut self, fx: &mut Effects) {
        self.go_on_copying(fx);
        if !self.is_up() {
            return;
        }
        self.go_on_giving_up(fx);
        self.release_held(fx);
        self.paced_pulls = false;
        let working = self.working(fx);
        let busy = self.pacer.clients_work(self.now.mono);
        let most = if busy { BUSY_OBJECTS } else { usize::MAX };
        let room = self.limits.recovery_objects.min(most);
        let count = |p| self.pgs.get(p).map_or(0, |h: &PgHost| h.pg.moving_count());
        let mut moving: usize = working.iter().map(count).sum();
        let pulls_in_turn = self.pulls_in_turn();
        for pgid in working {
            loop {
                let now = self.now.mono;
                let Some(host) = self.pgs.get(&pgid).filter(|h| h.only_removes()) else { break };
                let (more_pulls, more_pushes) = self.may_hurry(host);
                let Some(host) = self.pgs.get_mut(&pgid) else { break };
                let urgent = host.pg.next_urgent(more_pulls, more_pushes);
                let is_urgent = urgent.is_some();
                if !is_urgent && !pulls_in_turn && !host.pg.missing().is_empty() {
                    break;
                }
                if !is_urgent && host.pg.gate() == Gate::Open && !self.pacer.may_begin(now) {
                    self.paced_pulls = true;
                    break;
                }
                if !is_urgent && moving >= room {
                    break;
                }
                let Some(work) = urgent.or_else(|| host.pg.next_in_turn()) else { break };
                moving += 1;
                host.dirty = true;
                if let Work::Pull { .. } = work {
                    self.pacer.begins(now, Step::Write);
                }
                self.do_work(pgid, work, is_urgent, fx);
                self.count_moving(pgid);
            }
            while let Some(host) = self.pgs.get_mut(&pgid)
                && let Some(work) = host.pg.next_backfill(room)
            {
                self.do_backfill(pgid, work, fx);
            }
            if self.pgs.get(&pgid).is_some_and(|h| h.pg.has_urgent()) {
                self.urgent.insert(pgid);
            }
        }
    }

    /// The PGs that may move objects now: those that have their places, and those of which a client
    /// wants something. The others cost nothing.
    fn working(&mut self, fx: &mut Effects) -> BTreeSet<PgId> {
        let mut changed = std::mem::take(&mut self.recovered);
        if std::mem::take(&mut self.gates_due) {
            changed.extend(self.recovering.iter().copied());
        }
        for pgid in changed {
            self.set_gate(pgid, fx);
        }
        let mut working: BTreeSet<PgId> = self.places.holders().collect();
        working.append(&mut self.urgent);
        working.retain(|pgid| self.recovering.contains(pgid));
        working
    }

    /// A client, or a repair, waits for an object.
    pub(crate) fn hurry(&mut self, pgid: PgId, object: &HObject) {
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.pg.hurry(object);
            self.urgent.insert(pgid);
        }
    }

    /// Keeps the list of PGs that have something to recover.
    pub(crate) fn note_recovering(&mut self, pgid: PgId) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.count_moving(&mut self.moving);
        let leads = host.started && host.pg.is_primary();
        let before = host.need;
        host.need = if leads { host.pg.need() } else { Need::Nothing };
        if host.pg.has_urgent() {
            self.urgent.insert(pgid);
        }
        let (need, gate) = (host.need, host.pg.gate());
        let open = need != Need::Nothing && gate == Gate::Open;
        if need == Need::Nothing {
            self.recovering.remove(&pgid);
        } else {
            self.recovering.insert(pgid);
        }
        if leads && (need == Need::Nothing || gate == Gate::TooFull) {
            self.give_up_unacknowledged(pgid);
        }
        if need != before || open {
            // Its places are looked after at the end of the turn.
            self.recovered.insert(pgid);
        }
    }

    fn do_work(&mut self, pgid: PgId, work: Work, urgent: bool, fx: &mut Effects) {
        match work {
            Work::Pull { object, need, from } => {
                let Some(host) = self.pgs.get_mut(&pgid) else { return };
                let (epoch, interval) = (self.maps.epoch(), host.interval());
                let cursor = PushCursor::default();
                let comes = Receiving { next: cursor.clone(), urgent, ..Receiving::default() };
                host.transfers.receiving.insert((from, object.clone()), comes);
                let have = host.pg.missing().get(&object).map_or(Eversion::ZERO, |i| i.have);
                let shares = host.pg.may_share(self.cfg.id, &object);
                let whole = Pull::whole(pgid, epoch, interval, object, need);
                let pull = Pull { cursor, urgent, have, shares, ..whole };
                self.send_peer(from, pull.encode(), fx);
            }
            Work::Push { object, to, .. } => {
                for osd in to {
                    self.begin_push(pgid, osd, object.clone(), urgent, fx);
                }
            }
        }
    }

    fn do_backfill(&mut self, pgid: PgId, work: BackfillWork, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (epoch, interval) = (self.maps.epoch(), host.interval());
        match work {
            BackfillWork::ListHere { target, begin } => {
                let request = ListingRequest { begin, asked_by: None };
                host.transfers.listings.requests.insert(target, request);
                self.list_for(pgid, target, fx);
            }
            BackfillWork::ListThere { target, begin } => {
                let max = self.limits.scan_objects as u32;
                let scan = Scan { pgid, epoch, interval, begin, max };
                self.send_peer(target, scan.encode(), fx);
            }
            BackfillWork::Push { target, object, .. } | BackfillWork::Remove { target, object } => {
                self.begin_push(pgid, target, object, false, fx);
            }
            BackfillWork::Progress { target, to } => {
                let progress = BackfillProgress { pgid, epoch, interval, to };
                self.send_peer(target, progress.encode(), fx);
            }
        }
    }

    // ---- receiving ----

    pub(crate) fn on_push(&mut self, from: OsdId, m: Push, fx: &mut Effects) {
        let pgid = m.pgid;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        let goes_back = m.pulled && host.giving_up.wants(&m.object);
        // If one waits that came before, its push was put off, and has begun anew.
        host.transfers.waiting.remove(&(from, m.object.clone()));
        let m = match m.takes_from_another() {
            true => match self.find_base(from, m, fx) {
                Some(m) => m,
                None => return,
            },
            false => m,
        };
        if !self.is_usable(from, &m, goes_back, fx) {
            self.give_up_parts(pgid, from, &m.object, fx);
            return;
        }
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(place) = host.transfers.place_of(from, &m, &mut self.last_temporary) else {
            self.want_whole(from, &m, fx);
            return;
        };
        let mut txn = host.transaction();
        let hints = ObjectMeta::decode(&m.meta).map_or(0, |meta| meta.hint.flags);
        txn.compress = self.maps.pool_compression(pgid.pool).for_hints(hints);
        if let Err(why) = apply_part(&mut txn, &m, place) {
            tracing::error!("osd.{}: a bad push from osd.{from}: {why}", self.cfg.id);
            self.perf.odd_messages += 1;
            return;
        }
        host.transfers.note_part(&mut txn, from, &m, place);
        if m.pulled {
            host.recovered.1 += m.data.len() as u64;
        }
        let urgent = host.transfers.is_urgent(from, &m.object);
        if m.next.done && m.pulled {
            host.transfers.has_come(from, &m.object);
        }
        if m.next.done && goes_back {
            let record = host.pg.older_arrived(&m.object, m.version);
            host.put_meta(&mut txn, record);
            host.giving_up.is_here(&m.object);
            self.submit(pgid, txn, Vec::new(), fx);
            return;
        }
        let mut awaited = None;
        if m.next.done {
            let is_known = note_arrived_clone(&mut txn, from, &m);
            self.perf.odd_messages += u64::from(!is_known);
            let ops = host.pg.arrival_ops(&m.object, m.version);
            host.put_meta(&mut txn, ops);
            host.pg.arrived(&m.object, m.version);
            awaited = m.pulled.then(|| m.object.head());
        }
        let then = self.after_part(from, &m, urgent);
        if let Then::Part(held, ..) = &then
            && let Held::Pull(_, pull) = &**held
            && (urgent || !self.pacer.clients_work(self.now.mono))
            && self.pgs.get(&pgid).is_some_and(|h| h.queue.is_empty())
        {
            // The next part is asked for at once, as the store keeps up; it keeps the order.
            let pull = pull.clone();
            self.submit(pgid, txn, Vec::new(), fx);
            self.send_peer(from, pull.encode(), fx);
            return;
        }
        self.submit(pgid, txn, [then], fx);
        if let Some(head) = awaited {
            // It can be read.
            self.pump_object(pgid, &head, fx);
        }
    }

    /// Whether a part may be put into the store; if not, the sender, or another one, is told.
    fn is_usable(&mut self, from: OsdId, m: &Push, goes_back: bool, fx: &mut Effects) -> bool {
        let pgid = m.pgid;
        let no_room = self.must_leave_out(m.data.len() as u64, m.bytes(), false);
        let Some(host) = self.pgs.get_mut(&pgid) else { return false };
        if goes_back && !host.giving_up.wants_version(&m.object, m.version, m.exists) {
            self.nothing_to_go_back_to(pgid, from, &m.object);
            return false;
        }
        let item = host.pg.missing().get(&m.object).copied();
        if m.pulled && !goes_back && (item.map(|i| i.need) != Some(m.version) || !m.exists) {
            // Not the version that counts: look elsewhere.
            self.source_failed(pgid, from, &m.object, fx);
            return false;
        }
        let own_base = m.base != Eversion::ZERO && !m.takes_from_another();
        if own_base && (item.map(|i| i.have) != Some(m.base) || !m.next.done) {
            self.want_whole(from, m, fx);
            return false;
        }
        if no_room {
            match m.pulled {
                true => self.pull_later(from, m, goes_back),
                false => self.refuse_part(from, m, fx),
            }
            return false;
        }
        if !host.transfers.continues(from, m) {
            let (id, object) = (self.cfg.id, &m.object);
            tracing::error!("osd.{id}: a part of {object} from osd.{from} is out of order");
            self.perf.odd_messages += 1;
            return false;
        }
        true
    }

    /// What happens when a part is durable here.
    fn after_part(&self, from: OsdId, m: &Push, urgent: bool) -> Then {
        let now = self.now.mono;
        match (m.pulled, m.next.done) {
            (true, true) => Then::Pulled(m.pgid, m.interval, m.object.clone()),
            (true, false) => {
                let pull = Pull { urgent, ..self.pull_again(m, m.next.clone()) };
                Then::Part(Box::new(Held::Pull(from, pull)), now, false)
            }
            (false, _) => {
                let ack = self.answer_to(m, PartFate::Durable);
                // Writes wait for the last part of many; it holds up what comes after it instead.
                let last = ack.next.done && m.from != PushCursor::default();
                Then::Part(Box::new(Held::Ack(from, ack)), now, last)
            }
        }
    }

    fn answer_to(&self, m: &Push, fate: PartFate) -> PushAck {
        let (pgid, interval, version) = (m.pgid, m.interval, m.version);
        let (epoch, object, next) = (self.maps.epoch(), m.object.clone(), m.next.clone());
        PushAck { pgid, epoch, interval, object, version, next, fate }
    }

    fn pull_again(&self, m: &Push, cursor: PushCursor) -> Pull {
        let (epoch, object) = (self.maps.epoch(), m.object.clone());
        let whole = Pull::whole(m.pgid, epoch, m.interval, object, m.version);
        // From the start again: the whole.
        let goes_on = cursor != PushCursor::default();
        let shared = if goes_on { m.shared.clone() } else { Vec::new() };
        Pull { cursor, urgent: m.urgent, shared, ..whole }
    }

    /// What came is made upon a version of the object that is not here.
    pub(crate) fn want_whole(&mut self, from: OsdId, m: &Push, fx: &mut Effects) {
        hit(Probe::WholeWanted);
        if m.pulled {
            let pull = self.pull_again(m, PushCursor::default());
            self.send_peer(from, pull.encode(), fx);
        } else {
            let ack = self.answer_to(m, PartFate::WholeWanted);
            self.send_peer(from, ack.encode(), fx);
        }
    }

    /// There is no space for a part of an object: writes, and deletions before all, need what is left.
    fn refuse_part(&mut self, from: OsdId, m: &Push, fx: &mut Effects) {
        hit(Probe::PushRefused);
        self.lacks_space(m.bytes());
        let ack = self.answer_to(m, PartFate::NoSpace);
        self.send_peer(from, ack.encode(), fx);
    }

    /// The same where we asked for it: what waits for the object waits for space.
    fn pull_later(&mut self, from: OsdId, m: &Push, goes_back: bool) {
        self.lacks_space(m.bytes());
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        // What had come goes again: there must be room for all of that, and for the next part, or it would be pulled
        // again and again.
        let (data, bytes) = host.transfers.gathered_before(from, m);
        let parts = if m.next.done { 1 } else { 2 };
        let data = data + parts * m.data.len() as u64;
        host.dirty = true;
        host.pg.did_not_fit(&m.object, PullSize { data, all: bytes + parts * m.bytes() });
        if goes_back {
            host.giving_up.fetch_later(&m.object, from, m.version);
        }
        self.unfitting.insert(m.pgid);
        self.note_recovering(m.pgid);
    }

    pub(crate) fn pulled_durable(
        &mut self,
        pgid: PgId,
        interval: Epoch,
        object: HObject,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.interval() != interval {
            return;
        }
        host.recovered.0 += 1;
        hit(Probe::Pulled);
        self.run_pg(pgid, fx, |pg, _, out| pg.pulled(&object, out));
        self.begin_waiting_pushes(pgid, &object, fx);
        self.release_object(pgid, &object, fx);
    }

    /// An object has arrived, here or on another copy: what waited for it, or for a clone of it, goes
    /// on. What waits for the disk as well is run once more for nothing.
    pub(crate) fn release_object(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let head = object.head();
        self.unstall(pgid, &head, false);
        self.call_back(pgid, &head, fx);
        self.pump_object(pgid, &head, fx);
    }

    // ---- backfill ----

    pub(crate) fn on_progress(&mut self, from: OsdId, m: BackfillProgress, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        let mut out = Fx::default();
        host.pg.note_backfill_progress(m.to.clone(), &mut out);
        let txn = host.transaction();
        let (pgid, interval, to) = (m.pgid, m.interval, m.to);
        let epoch = self.maps.epoch();
        let ack = Then::ProgressAck(from, BackfillProgressAck { pgid, epoch, interval, to });
        self.carry_out(pgid, out, txn, [ack].into(), fx);
    }

    pub(crate) fn on_progress_ack(
        &mut self,
        from: OsdId,
        m: BackfillProgressAck,
        fx: &mut Effects,
    ) {
        let same = |h: &crate::host::PgHost| h.interval() == m.interval;
        if self.pgs.get(&m.pgid).is_some_and(same) {
            self.run_pg(m.pgid, fx, |pg, _, out| pg.backfill_progressed(from, &m.to, out));
        }
    }

    /// A session with another OSD was lost though it goes on: what was on its way is begun anew.
    pub(crate) fn session_lost(&mut self, osd: OsdId, fx: &mut Effects) {
        let shared: Vec<_> = self
            .pgs
            .iter()
            .filter(|(_, h)| h.started && h.pg.relies_on(osd))
            .map(|(p, _)| *p)
            .collect();
        for pgid in shared {
            self.restart_pg(pgid, fx);
        }
        self.resend_copies_to(osd);
    }
}
