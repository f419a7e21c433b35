//! One PG on this OSD: its machine, and everything that waits around it.

use crate::arriving::is_temporary;
use crate::lease::{Prior, Priors};
use crate::mapstate;
use crate::object::{META_POOL, own_object};
use crate::pace::Held;
use crate::queue::TxnQueue;
use crate::recount::Recount;
use crate::recover::Transfers;
use crate::reserve::Course;
use crate::scrub::Scrubbing;
use crate::trim::Trimmer;
use crate::unfound::GivingUp;
use crate::watch::Watches;
use bytes::Bytes;
use peer::{BackfillProgressAck, IoCounts, Pull, RepAck};
use pg::{InFlight, MetaOp, Need, Pg, PgMsg};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{AccountOf, ReadSet, Transaction, TxnId};
use types::{
    Epoch, Eversion, HObject, HashMap, Mono, ObjectKey, OsdId, PgId, PoolId, SnapId, UTime,
};

const _: () = assert!(size_of::<Then>() <= 128, "there is one for each write in flight");

/// Names a client request on this OSD. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// What happens when a transaction is durable, one after the other.
pub type Thens = SmallVec<[Then; 1]>;

/// What happens when a transaction is durable.
#[derive(Debug)]
pub enum Then {
    /// Messages of peering leave.
    Send(Vec<(OsdId, PgMsg)>),
    /// The machine is told.
    Tell(PgId, Epoch),
    /// A write of the primary is durable here.
    Committed(PgId, Epoch, Eversion),
    /// A replica answers for a write of so many bytes.
    RepAck(OsdId, RepAck, usize),
    /// A pulled object (or its last part) is durable here.
    Pulled(PgId, Epoch, HObject),
    /// An object is sent to whoever asked for it.
    Pull(OsdId, Box<Pull>),
    /// A part from there is looked at that waited, of this object.
    Base(PgId, OsdId, HObject),
    /// A part of an object is durable here, since when it was under way, and whether a client waits.
    Part(Box<Held>, Mono, bool),
    /// Progress of a backfill is durable here.
    ProgressAck(OsdId, BackfillProgressAck),
    /// A step of removing a PG is done.
    Removed(PgId),
    /// A transaction of `ceph tell osd.N bench` is done.
    Bench,
}

impl Then {
    /// What a write that another OSD leads has of [`InHand`](crate::memory::InHand).
    pub fn replica_bytes(&self) -> usize {
        match self {
            Self::RepAck(.., bytes) => *bytes,
            _ => 0,
        }
    }
}

/// A transaction that waits for its turn.
#[derive(Debug)]
pub struct Queued {
    /// The changes.
    pub txn: Transaction,
    /// What was fetched for it.
    pub reads: ReadSet,
    /// What happens when it is durable.
    pub then: Thens,
    /// PGs whose own transactions wait until this one is submitted.
    pub births: Vec<PgId>,
    /// It has what it takes from the snapshot indexes ([`crate::trim::drop_left_rows`]).
    pub rows_dropped: bool,
    /// The same in several, one after the other, if it is too much for one.
    pub apart: Vec<Transaction>,
    /// It removes what the log has deleted, and does nothing else.
    pub removes: bool,
}

impl Queued {
    /// One of which nothing is read, and for which nobody waits.
    #[inline]
    pub fn of(txn: Transaction) -> Self {
        let (reads, then, births) = (ReadSet::new(), Thens::new(), Vec::new());
        let (rows_dropped, apart, removes) = (false, Vec::new(), false);
        Queued { txn, reads, then, births, rows_dropped, apart, removes }
    }

    /// One that changes all these objects, and may as well change one after the other.
    pub fn divisible<T>(objects: &[T], change: impl Fn(&[T]) -> Transaction) -> Self {
        let apart = match objects {
            [] | [_] => Vec::new(),
            several => several.chunks(1).map(&change).collect(),
        };
        Queued { apart, ..Queued::of(change(objects)) }
    }
}

/// Where a write comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A request.
    Op(OpId),
    /// A watch that timed out.
    Watch,
    /// The trimmer.
    Trimmer,
    /// An unfound object that is given up.
    GiveUp,
}

/// A write that waits until every copy is durable.
#[derive(Debug)]
pub struct Write {
    /// Where it comes from.
    pub source: Source,
    /// The object whose queue it holds.
    pub object: HObject,
    /// Requests that turned out to be the same one, sent again.
    pub duplicates: Vec<OpId>,
}

/// Requests on one object, in order.
#[derive(Debug, Default)]
pub struct ObjectQueue {
    /// Those that have not started.
    pub waiting: VecDeque<OpId>,
    /// Reads for COPY_FROM: they pass what waits, so that two objects can be copied to each other.
    pub urgent: VecDeque<OpId>,
    /// Reads of clones that are missing, by the clone's snapshot: nobody waits behind them ([`crate::aside`]).
    pub aside: BTreeMap<SnapId, Vec<OpId>>,
    /// Reads that wait for the disk, or for room ([`crate::read_room`]).
    pub reading: u32,
    /// Those of them that wait for room, and that writes may pass.
    pub parked: u32,
    /// Writes that are not committed.
    pub writing: u32,
    /// This one waits for the disk, for recovery, or for a copy, and all others behind it.
    pub stalled: Option<OpId>,
    /// It is one of [`PgHost::behind_queue`].
    pub behind_queue: bool,
}

impl ObjectQueue {
    /// Whether no request is in it that has not started.
    pub fn awaits_nothing(&self) -> bool {
        self.waiting.is_empty() && self.urgent.is_empty() && self.aside.is_empty()
    }

    /// Whether nothing happens on the object.
    pub fn is_idle(&self) -> bool {
        self.awaits_nothing() && self.reading == 0 && self.writing == 0
    }
}

/// The PG.
pub struct PgHost {
    /// The machine.
    pub pg: Pg,
    /// Whether the machine has taken up its role.
    pub started: bool,
    /// The PG's own object.
    pub key: ObjectKey,
    /// Transactions that wait for something to be fetched, in order.
    pub queue: TxnQueue,
    /// The first of them waits.
    pub queue_stalled: bool,
    /// Transactions of other PGs that make this one, and come before its own (see `split`).
    pub unborn: u32,
    /// To be removed when the queue is empty.
    pub doomed: bool,
    /// The newest transaction handed to the store that is not durable.
    pub last_txn: Option<TxnId>,
    /// Writes that are not committed.
    pub in_flight: InFlight<Write>,
    /// Requests by object.
    pub objects: HashMap<HObject, ObjectQueue>,
    /// Objects whose requests wait for the PG's transactions, in the order they came.
    pub behind_queue: Vec<HObject>,
    /// The log weighs more than may be, and nothing of it is to be trimmed before more writes are committed.
    pub log_is_full: bool,
    /// What the log has deleted, and is still in the store (see [`crate::deleted`]).
    pub deleted: BTreeSet<HObject>,
    /// Requests that wait for the PG to go active.
    pub waiting: VecDeque<OpId>,
    /// Listings that wait until all is removed that the log has deleted. Nobody waits behind them.
    pub behind_removals: VecDeque<OpId>,
    /// Earlier primaries that may still serve reads.
    pub priors: Priors,
    /// Watches and notifies.
    pub watches: Watches,
    /// What could be done for its copies.
    pub need: Need,
    /// Whether it is its turn to do it.
    pub course: Course,
    /// Objects on their way.
    pub transfers: Transfers,
    /// How many of them count for the bound of all PGs ([`crate::urgent`]).
    pub moving: usize,
    /// Removed snapshots.
    pub trimmer: Trimmer,
    /// Scrubs.
    pub scrub: Scrubbing,
    /// How far counting its objects has come.
    pub recount: Option<Recount>,
    /// Unfound objects that are given up.
    pub giving_up: GivingUp,
    /// Record changes that go with the next transaction.
    pub backlog: Vec<MetaOp>,
    /// Trim the replicas' logs up to here with the next write.
    pub trim_to: Eversion,
    /// Client I/O since the OSD started.
    pub io: IoCounts,
    /// Recovered since the OSD started: objects, bytes.
    pub recovered: (u64, u64),
    /// What was last wished of the mon in this interval.
    pub wish: Wish,
    /// Last reported state, and since when.
    pub reported: (u64, UTime),
    /// The map when it was last reported.
    pub reported_epoch: Epoch,
    /// Its state must be reported.
    pub dirty: bool,
    /// The newest map epoch in the stored info record.
    pub stored_epoch: Epoch,
}

/// What a PG waits for the mon to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// This acting set (empty: the up set).
    pub pg_temp: Option<pg::OsdSet>,
    /// Note that we are alive in this epoch.
    pub up_thru: Option<Epoch>,
}

impl PgHost {
    /// A PG around this machine.
    pub fn new(pg: Pg) -> Self {
        let key = meta_object(pg.pgid()).to_key();
        let stored_epoch = pg.epoch();
        PgHost {
            pg,
            started: false,
            key,
            queue: TxnQueue::default(),
            queue_stalled: false,
            unborn: 0,
            doomed: false,
            last_txn: None,
            in_flight: InFlight::default(),
            objects: HashMap::default(),
            behind_queue: Vec::new(),
            log_is_full: false,
            deleted: BTreeSet::new(),
            waiting: VecDeque::new(),
            behind_removals: VecDeque::new(),
            priors: Priors::default(),
            watches: Watches::default(),
            need: Need::Nothing,
            course: Course::default(),
            transfers: Transfers::default(),
            moving: 0,
            trimmer: Trimmer::default(),
            scrub: Scrubbing::default(),
            recount: None,
            giving_up: GivingUp::default(),
            backlog: Vec::new(),
            trim_to: Eversion::ZERO,
            io: IoCounts::default(),
            recovered: (0, 0),
            wish: Wish::default(),
            reported: (u64::MAX, UTime::ZERO),
            reported_epoch: Epoch::ZERO,
            dirty: true,
            stored_epoch,
        }
    }

    /// Takes all requests out of their queues.
    pub fn forget_requests(&mut self) {
        self.objects.clear();
        self.behind_queue.clear();
        self.waiting.clear();
        self.behind_removals.clear();
        self.in_flight.clear();
        self.transfers.forget();
        self.trimmer.interrupted();
        self.scrub.interrupted();
        self.recount = None;
        self.giving_up = GivingUp::default();
    }

    /// An interval ends that lasted until `last`. Its primary may read until then, by our promises.
    pub fn end_interval(&mut self, now: Mono, last: Epoch, reads_until: Option<Mono>) {
        self.priors.new_interval(now);
        let primary = self.pg.mapping().acting_primary.filter(|osd| *osd != self.pg.me());
        if let (Some(osd), Some(until)) = (primary, reads_until) {
            self.priors.add(Prior { osd, epoch: last, until });
        }
    }

    /// Whether other PGs wait for what stands in its queue, or it for another's.
    pub fn is_splitting(&self) -> bool {
        self.unborn > 0 || self.queue.iter().any(|q| !q.births.is_empty())
    }

    /// Whether writes wait until others are committed.
    #[inline]
    pub fn must_wait_for_log(&self) -> bool {
        self.log_is_full && !self.in_flight.is_empty()
    }

    /// First epoch of the current interval.
    pub fn interval(&self) -> Epoch {
        self.pg.info().history.same_interval_since
    }

    /// Adds record changes to a transaction that will be made for certain, behind those that were
    /// put off.
    pub fn put_meta(&mut self, txn: &mut Transaction, ops: impl IntoIterator<Item = MetaOp>) {
        let mut ops = ops.into_iter().peekable();
        if ops.peek().is_some() {
            put_meta(txn, &self.key, self.backlog.drain(..).chain(ops));
        }
    }

    /// Adds only those that were put off.
    pub fn put_backlog(&mut self, txn: &mut Transaction) {
        put_meta(txn, &self.key, self.backlog.drain(..));
    }

    /// A transaction of this PG.
    pub fn transaction(&self) -> Transaction {
        let mut txn = Transaction::new(sequencer(self.pg.pgid()));
        // Bookkeeping and recovery must always work.
        txn.may_use_reserve = true;
        txn
    }
}

/// Adds changes of a PG's records to a transaction.
pub fn put_meta(txn: &mut Transaction, key: &ObjectKey, ops: impl IntoIterator<Item = MetaOp>) {
    let (mut puts, mut removes): (Vec<(Bytes, Bytes)>, Vec<Bytes>) = (Vec::new(), Vec::new());
    let flush = |txn: &mut Transaction, puts: &mut Vec<_>, removes: &mut Vec<_>| {
        if !removes.is_empty() {
            txn.omap_remove(key, std::mem::take(removes));
        }
        if !puts.is_empty() {
            txn.omap_set(key, std::mem::take(puts));
        }
    };
    // The order of a removal and a later put of the same key matters.
    for op in ops {
        match op {
            MetaOp::Put(k, v) => puts.push((k, v)),
            MetaOp::Remove(k) => {
                if !puts.is_empty() {
                    flush(txn, &mut puts, &mut removes);
                }
                removes.push(k);
            }
            MetaOp::RemoveRange(from, to) => {
                flush(txn, &mut puts, &mut removes);
                txn.omap_remove_range(key, from, to);
            }
        }
    }
    flush(txn, &mut puts, &mut removes);
}

/// The sequencer of a PG's transactions.
pub fn sequencer(pgid: PgId) -> u64 {
    let id = (pgid.pool.0 as u64) << 32 | u64::from(pgid.seed);
    debug_assert_ne!(id, mapstate::MAP_SEQUENCER);
    id
}

/// What the store counts a PG's data under: its pool.
pub fn account(pgid: PgId) -> u64 {
    pgid.pool.0 as u64
}

/// What it counts the OSD's own data under.
pub const OWN_ACCOUNT: u64 = 0;

/// What it counts an object's data under. Of the OSD's own only temporaries have any that is a pool's: of the one that
/// their names begin with. Older builds' names do not say it.
pub fn account_of(object: &HObject) -> u64 {
    if object.pool != META_POOL {
        return account(PgId::new(object.pool, 0));
    }
    let pool = || {
        let name = std::str::from_utf8(&object.name).ok().filter(|_| is_temporary(object))?;
        let (_, rest) = name.split_once('/')?;
        let (pool, _) = rest.split_once('/')?;
        pool.parse().ok().map(|pool| account(PgId::new(PoolId(pool), 0)))
    };
    pool().unwrap_or(OWN_ACCOUNT)
}

/// The same for the store ([`store::Config::account_of`]). What is no object's key is nobody's.
pub fn store_accounts() -> AccountOf {
    AccountOf(|key| key.decode().map_or(OWN_ACCOUNT, |object| account_of(&object)))
}

const PG_PREFIX: &str = "pg/";

/// The object that holds a PG's records.
pub fn meta_object(pgid: PgId) -> HObject {
    own_object(format!("{PG_PREFIX}{pgid}"))
}

/// Which PG's records an object of the OSD's own holds.
pub fn pg_of_meta_object(object: &HObject) -> Option<PgId> {
    let name = std::str::from_utf8(&object.name).ok()?;
    name.strip_prefix(PG_PREFIX)?.parse().ok()
}

/// All PGs of an OSD.
pub type Hosts = BTreeMap<PgId, PgHost>;
