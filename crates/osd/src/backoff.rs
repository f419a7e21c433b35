//! Backoffs: a client holds its requests for a PG that does not serve, in our stead.
//!
//! A PG may be without enough copies for days, and its clients go on writing. Some requests wait here
//! ([`Daemon::may_hold`]), so that a short peering costs none of them another way. Beyond that, and at once when only
//! another OSD can help, the client is told to hold all of the PG (BLOCK). What it has sent of that before it knows
//! is dropped, here and when it comes, until it says that it knows (ACK_BLOCK): of what it wants of an object nothing may
//! overtake the rest. When the PG serves, or is not ours any more, it is told so (UNBLOCK), and sends everything in
//! order. A backoff ends with its connection.
//!
//! A range is what the PG had when it was blocked; objects that it gets by a merge are not in it. Other OSDs, which
//! copy objects, and clients that know no backoffs go without.
//!
//! Ceph: `doc/dev/osd_internals/backoff.rst`, `PrimaryLogPG::do_request`, `PG::release_backoffs`,
//! `Objecter::handle_osd_backoff`.

use crate::daemon::Daemon;
use crate::host::{OpId, PgHost};
use crate::op::{ClientOp, Origin};
use io::Effects;
use maps::PgIdExt;
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Probe, hit};
use types::{HObject, PgId, ShardId, SpgId};
use wire::LinkId;
use wire::msg::{BackoffOp, MOsdBackoff, Message, Payload};

/// `CEPH_FEATURE_RADOS_BACKOFF`: bit 21 as newer versions use it, which bit 57 says.
const FEATURE: u64 = 1 << 21 | 1 << 57;

/// When all that is in hand is more than one part of so many of what may be, no more of it waits for PGs to serve. That
/// leaves clients with enough to be heard ([`crate::memory`]).
const HELD_PART: usize = 4;

/// Names a backoff: its PG, its client's link, and its number, which is never used again.
type Key = (PgId, LinkId, u64);

#[derive(Debug)]
struct Backoff {
    begin: HObject,
    end: HObject,
    /// The client knows of it.
    is_known: bool,
    /// It was ended before the client knew of it. What comes until then was sent before.
    is_over: bool,
}

impl Backoff {
    fn holds(&self, object: &HObject) -> bool {
        self.begin <= *object && *object < self.end
    }
}

/// All backoffs: no more than there are PGs that do not serve, for each client.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    all: BTreeMap<Key, Backoff>,
    last: u64,
    /// Those begun in this turn, by which requests go at its end: all at once, as all are looked through for it.
    begun: BTreeSet<(PgId, LinkId)>,
}

impl Backoffs {
    /// Whether a request is dropped: its client holds it, or will.
    #[inline]
    pub fn hold(&self, op: &ClientOp) -> bool {
        !self.all.is_empty() && op.origin == Origin::Client && self.holds(op)
    }

    fn holds(&self, op: &ClientOp) -> bool {
        let (pgid, link) = (op.pgid(), op.link);
        let mut of_link = self.all.range((pgid, link, 0)..=(pgid, link, u64::MAX));
        of_link.any(|(_, backoff)| backoff.holds(&op.request.object))
    }

    fn begin(&mut self, pgid: PgId, link: LinkId, begin: HObject, end: HObject) -> u64 {
        self.last += 1;
        let backoff = Backoff { begin, end, is_known: false, is_over: false };
        self.all.insert((pgid, link, self.last), backoff);
        self.begun.insert((pgid, link));
        self.last
    }

    /// A client knows of one.
    fn known(&mut self, key: Key) {
        if let Some(backoff) = self.all.get_mut(&key) {
            backoff.is_known = true;
            if backoff.is_over {
                self.all.remove(&key);
            }
        }
    }

    /// Ends those of a PG. Whom to tell, and of what.
    fn end(&mut self, pgid: PgId) -> Vec<(Key, HObject, HObject)> {
        let of_pg = (pgid, LinkId(0), 0)..=(pgid, LinkId(u64::MAX), u64::MAX);
        let mut ended = Vec::new();
        for (key, backoff) in self.all.range_mut(of_pg.clone()) {
            if !std::mem::replace(&mut backoff.is_over, true) {
                ended.push((*key, backoff.begin.clone(), backoff.end.clone()));
            }
        }
        self.all.extract_if(of_pg, |_, b| b.is_known && b.is_over).for_each(drop);
        ended
    }

    /// A client has left.
    pub fn forget(&mut self, link: LinkId) {
        self.all.retain(|(_, of, _), _| *of != link);
    }

    /// PGs that have some.
    fn pgs(&self) -> BTreeSet<PgId> {
        let lasting = self.all.iter().filter(|(_, backoff)| !backoff.is_over);
        lasting.map(|((pgid, ..), _)| *pgid).collect()
    }
}

impl Daemon {
    /// Whether a request may wait here for its PG, for which so many wait already.
    pub(crate) fn may_hold(&self, id: OpId, waiting: usize) -> bool {
        let Some(op) = self.ops.get(&id) else { return false };
        let pg = self.pgs.get(&op.pgid()).map(|host| &host.pg);
        let is_stuck = pg.is_some_and(|pg| pg.is_stuck());
        // What a PG that serves waits for comes in a moment.
        let has_much = self.in_hand.own > self.limits.request_bytes / HELD_PART
            && !pg.is_some_and(|pg| pg.accepts_io());
        let held_by_client = (is_stuck || has_much) && self.knows_backoffs(op);
        waiting < crate::config::WAITING_OPS_PER_PG && !held_by_client
    }

    /// Whether its client can be told to hold a request.
    pub(crate) fn knows_backoffs(&self, op: &ClientOp) -> bool {
        let peer = self.msgr.peer(op.link).filter(|_| op.origin == Origin::Client);
        peer.is_some_and(|peer| peer.features & FEATURE == FEATURE)
    }

    /// The client of a request is told to hold it, and all that it wants of the PG. What it has sent goes at the end
    /// of the turn.
    pub(crate) fn back_off(&mut self, id: OpId) {
        let Some(op) = self.ops.get(&id) else { return };
        let (pgid, link) = (op.pgid(), op.link);
        let Some(pool) = self.maps.current().pool(pgid.pool) else {
            self.drop_op(id);
            return;
        };
        hit(Probe::BackedOff);
        let (begin, end) = (pgid.first_object(), pgid.end_of_objects(pool.pg_num));
        let number = self.backoffs.begin(pgid, link, begin.clone(), end.clone());
        self.send_backoff(BackoffOp::Block, (pgid, link, number), begin, end);
    }

    /// Forgets what clients hold from this turn on.
    pub(crate) fn abandon_held_ops(&mut self, fx: &mut Effects) {
        if self.backoffs.begun.is_empty() {
            return;
        }
        let begun = std::mem::take(&mut self.backoffs.begun);
        let is_held =
            |op: &ClientOp| op.origin == Origin::Client && begun.contains(&(op.pgid(), op.link));
        self.abandon_ops(is_held, fx);
    }

    fn send_backoff(&mut self, op: BackoffOp, key: Key, begin: HObject, end: HObject) {
        let (pgid, link, id) = key;
        let pgid = SpgId { pgid, shard: ShardId::NONE };
        let epoch = self.maps.epoch();
        self.msgr.send(link, MOsdBackoff { pgid, epoch, op, id, begin, end }.encode());
    }

    /// A client says that it holds what it was told to.
    pub(crate) fn on_backoff(&mut self, link: LinkId, message: &Message, fx: &mut Effects) {
        match message.decode::<MOsdBackoff>() {
            Ok(m) if m.op == BackoffOp::AckBlock => {
                self.backoffs.known((m.pgid.pgid, link, m.id));
            }
            Ok(_) => {}
            Err(why) => self.refuse_link(link, format!("a malformed OSD_BACKOFF: {why}"), fx),
        }
    }

    /// Clients need not hold requests for a PG any more.
    pub(crate) fn end_backoffs(&mut self, pgid: PgId) {
        for (key, begin, end) in self.backoffs.end(pgid) {
            self.send_backoff(BackoffOp::Unblock, key, begin, end);
        }
    }

    /// The same for each PG that serves, or that others lead.
    pub(crate) fn end_needless_backoffs(&mut self) {
        for pgid in self.backoffs.pgs() {
            self.end_needless_backoffs_of(pgid);
        }
    }

    /// The same for one PG.
    pub(crate) fn end_needless_backoffs_of(&mut self, pgid: PgId) {
        if !self.keeps_waiting(pgid) {
            self.end_backoffs(pgid);
        }
    }

    /// Whether requests for a PG are right here, and have to wait.
    fn keeps_waiting(&self, pgid: PgId) -> bool {
        let leads = |host: &&PgHost| host.started && host.pg.is_primary();
        match self.pgs.get(&pgid).filter(leads) {
            Some(host) => !host.pg.accepts_io() || host.priors.over_at() > self.now.mono,
            None => self.maps.current().pg_exists(pgid) && self.will_lead(pgid),
        }
    }

    /// Requests wait for PGs that turned out to need another OSD: their clients are to hold them.
    pub(crate) fn back_off_stuck(&mut self) {
        let is_stuck = |host: &&PgHost| !host.waiting.is_empty() && host.pg.is_stuck();
        let waiting: Vec<OpId> =
            self.pgs.values().filter(is_stuck).flat_map(|host| &host.waiting).copied().collect();
        for id in waiting {
            // The first one of each client speaks for all of them.
            let may_be_told = |op: &ClientOp| self.knows_backoffs(op) && !self.backoffs.hold(op);
            if self.ops.get(&id).is_some_and(|op| may_be_told(op)) {
                self.back_off(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, SnapId};

    fn object(hash: u32) -> HObject {
        let snap = SnapId::HEAD;
        HObject { pool: PoolId(1), hash: hash.reverse_bits(), snap, ..HObject::min() }
    }

    #[test]
    fn what_a_client_sent_before_it_knew_is_dropped_though_the_backoff_is_over() {
        let (pgid, link) = (PgId::new(PoolId(1), 0), LinkId(7));
        let mut b = Backoffs::default();
        let id = b.begin(pgid, link, object(10), object(20));
        assert_eq!(b.end(pgid).len(), 1);
        assert!(b.end(pgid).is_empty() && b.pgs().is_empty(), "it is said once");
        assert!(b.all[&(pgid, link, id)].holds(&object(15)));
        b.known((pgid, link, id + 1));
        assert_eq!(b.all.len(), 1);
        b.known((pgid, link, id));
        assert!(b.all.is_empty());
        let id = b.begin(pgid, link, object(10), object(20));
        b.known((pgid, link, id));
        assert_eq!(b.pgs().len(), 1);
        assert_eq!(b.end(pgid).len(), 1);
        assert!(b.all.is_empty());
    }

    #[test]
    fn a_backoff_holds_its_range_and_ends_with_its_link() {
        let pgid = PgId::new(PoolId(1), 0);
        let mut b = Backoffs::default();
        for link in [1, 2] {
            b.begin(pgid, LinkId(link), object(10), object(20));
        }
        let first = b.all.values().next().expect("one");
        let held: Vec<u32> = (0..40).filter(|h| first.holds(&object(*h))).collect();
        assert_eq!(held, (10..20).collect::<Vec<_>>());
        b.forget(LinkId(1));
        assert_eq!(b.end(pgid).len(), 1);
    }
}
