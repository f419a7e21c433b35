//! One session per OSD: its link, what is on it, and what the OSD asked us to hold back.
//!
//! A link lives as long as its TCP connection. When it is lost the OSD is dialled again, at once the
//! first time and then with growing pauses, and everything on the session is sent again in the order
//! of its numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{AddrVec, HObject, HashMap, Mono, SpgId};
use wire::LinkId;

/// First pause before an OSD that could not be reached is dialled again.
const REDIAL_MIN: Duration = Duration::from_millis(100);
/// The longest such pause. Ceph's messenger goes to 15 s; a client that waits so long for an OSD
/// that the map calls up only wastes its user's time.
const REDIAL_MAX: Duration = Duration::from_secs(4);
/// A link that lived so long was no failed try.
const STEADY: Duration = Duration::from_secs(1);
/// Ranges an OSD may have held at a time; more is abuse.
const MAX_BACKOFFS: usize = 1 << 16;

/// What the session's link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// To be dialled at the end of a turn at or after this time.
    Due(Mono),
    /// Dialled; messages can be queued.
    Link(LinkId),
}

#[derive(Debug)]
pub(super) struct Session {
    pub addrs: AddrVec,
    pub connection: Connection,
    /// When the link opened.
    open_since: Option<Mono>,
    pause: Duration,
    /// Numbers of the requests on it.
    pub ops: BTreeSet<u64>,
    pub backoffs: Backoffs,
}

impl Session {
    pub fn new(addrs: AddrVec, now: Mono) -> Self {
        Session {
            addrs,
            connection: Connection::Due(now),
            open_since: None,
            pause: REDIAL_MIN,
            ops: BTreeSet::new(),
            backoffs: Backoffs::default(),
        }
    }

    pub fn link(&self) -> Option<LinkId> {
        match self.connection {
            Connection::Link(link) => Some(link),
            Connection::Due(_) => None,
        }
    }

    pub fn set_open(&mut self, now: Mono) {
        self.open_since = Some(now);
    }

    /// The link is gone. When the next one is due; `spread` (0..1) is random, so that the clients
    /// of an OSD do not come back all at once.
    pub fn lose_link(&mut self, now: Mono, spread: f64) -> Mono {
        self.backoffs = Backoffs::default();
        let lived = self.open_since.take().map_or(Duration::ZERO, |since| now.since(since));
        let due = if lived >= STEADY {
            self.pause = REDIAL_MIN;
            now
        } else {
            let wait = types::times(self.pause, 1.0 + spread / 2.0);
            self.pause = self.pause.saturating_mul(2).min(REDIAL_MAX);
            now.after(wait)
        };
        self.connection = Connection::Due(due);
        due
    }
}

/// Ranges of objects an OSD asked us to hold requests for.
#[derive(Debug, Default)]
pub(super) struct Backoffs {
    /// By the first object of the range: the end (not included) and the OSD's id for it.
    ranges: HashMap<SpgId, BTreeMap<HObject, (HObject, u64)>>,
    by_id: HashMap<u64, (SpgId, HObject)>,
}

/// Whether an object is in a range; a range whose ends are equal is one object.
pub(super) fn in_range(object: &HObject, begin: &HObject, end: &HObject) -> bool {
    object == begin || (object > begin && object < end)
}

impl Backoffs {
    /// Holds a range. Whether there was room for it.
    pub fn add(&mut self, pgid: SpgId, id: u64, begin: HObject, end: HObject) -> bool {
        if self.by_id.len() >= MAX_BACKOFFS && !self.by_id.contains_key(&id) {
            return false;
        }
        self.remove(id);
        let of_pg = self.ranges.entry(pgid).or_default();
        if let Some((_, old)) = of_pg.insert(begin.clone(), (end, id)) {
            self.by_id.remove(&old);
        }
        self.by_id.insert(id, (pgid, begin));
        true
    }

    /// Releases a range, if it was held.
    pub fn remove(&mut self, id: u64) {
        let Some((pgid, begin)) = self.by_id.remove(&id) else {
            return;
        };
        if let Some(of_pg) = self.ranges.get_mut(&pgid) {
            of_pg.remove(&begin);
            if of_pg.is_empty() {
                self.ranges.remove(&pgid);
            }
        }
    }

    /// Whether requests for an object are to be held.
    pub fn holds(&self, pgid: SpgId, object: &HObject) -> bool {
        let Some(of_pg) = self.ranges.get(&pgid) else {
            return false;
        };
        let before = of_pg.range(..=object).next_back();
        before.is_some_and(|(begin, (end, _))| in_range(object, begin, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PgId, PoolId, ShardId, SnapId};

    fn object(hash: u32) -> HObject {
        HObject {
            pool: PoolId(1),
            hash: hash.reverse_bits(),
            name: "x".into(),
            snap: SnapId::HEAD,
            ..HObject::min()
        }
    }

    #[test]
    fn a_range_holds_what_is_in_it_and_a_point_one_object() {
        let pg = SpgId { pgid: PgId::new(PoolId(1), 0), shard: ShardId::NONE };
        let other = SpgId { pgid: PgId::new(PoolId(1), 1), shard: ShardId::NONE };
        let mut b = Backoffs::default();
        assert!(b.add(pg, 1, object(10), object(20)));
        assert!(b.add(pg, 2, object(30), object(30)));
        let held: Vec<u32> = (0..40).filter(|h| b.holds(pg, &object(*h))).collect();
        assert_eq!(held, (10..20).chain([30]).collect::<Vec<_>>());
        assert!(!b.holds(other, &object(15)));
        b.remove(1);
        assert!(!b.holds(pg, &object(15)) && b.holds(pg, &object(30)));
        b.remove(2);
        assert!(!b.holds(pg, &object(30)));
    }

    #[test]
    fn a_steady_link_is_replaced_at_once_and_failed_tries_wait_longer_and_longer() {
        let mut s = Session::new(AddrVec::default(), Mono(0));
        s.set_open(Mono(0));
        let later = Mono(0).after(STEADY);
        assert_eq!(s.lose_link(later, 0.9), later);
        let waits: Vec<u64> = (0..8).map(|_| s.lose_link(Mono(0), 0.0).0 / 1_000_000).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 4000, 4000]);
        // One that opens and closes again and again is no better.
        s.set_open(Mono(5));
        assert_eq!(s.lose_link(Mono(6), 0.0).0 / 1_000_000, 4000);
        s.set_open(Mono(0));
        assert_eq!(s.lose_link(later, 0.5), later);
    }
}
