//! The running OSD: what it owns, and how events find their way.
//!
//! One owner, one thread, no locks. An event is handled to its end; what must wait (for the disk,
//! a map, a replica) is kept where it waits, with a name that the completion carries. The methods
//! are spread over the modules by theme; this one has the data and the dispatch.

use crate::admin::Admin;
use crate::arriving::Temporary;
use crate::backoff::Backoffs;
use crate::boot::Loading;
use crate::config::OsdConfig;
use crate::copy::Copies;
use crate::disk_bench::DiskBench;
use crate::early::Early;
use crate::heartbeat::Heartbeats;
use crate::host::{Hosts, OpId, Thens};
use crate::image_io::ImagesIo;
use crate::lease::Leases;
use crate::leftovers::Leftovers;
use crate::links::{PeerLinks, Sessions};
use crate::mapstate::Maps;
use crate::memory::{Beyond, InHand};
use crate::mon_link::MonLink;
use crate::op::Ops;
use crate::options::Limits;
use crate::pace::{Held, Pacer};
use crate::perf::Perf;
use crate::read_room::ReadRoom;
use crate::remove::Removal;
use crate::reserve::Places;
use crate::scrub::Scrubs;
use crate::space::{Injected, Space};
use crate::tracker::History;
use crate::trim::Trimming;
use crate::watch::Expired;
use crate::write_room::WriteRoom;
use io::disk::DiskDone;
use io::net::NetEvent;
use io::{Effects, Event, Now, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Miss, ReadSet, Store, StoreError, StoreEvent, TxnId};
use types::{AddrVec, Epoch, HObject, HashMap, Mono, OsdId, PgId};
use wire::{Identity, LinkId, Messenger, MsgrEvent};

/// Where the OSD stands in its life.
#[derive(Debug)]
pub enum Life {
    /// Reading maps and PGs from the store.
    Loading(Loading),
    /// Has all that is stored; waits for the mon to mark it up.
    Joining,
    /// In the map, serving.
    Up,
    /// Ends: has told the mon, and waits for the map that says so.
    Leaving {
        /// Ends anyway at this time.
        until: Mono,
    },
    /// The store is being closed.
    Closing,
}

/// Whom a fetch was for.
#[derive(Debug)]
pub enum Waiter {
    /// A client's request, and which attempt of it.
    Op(OpId, u32),
    /// The first transaction in a PG's queue.
    Queue(PgId),
    /// Loading at the start.
    Loading,
    /// The sending side of an object on its way.
    Push(PgId, OsdId, HObject),
    /// A part that came from there: what it is made upon is being looked for.
    Base(PgId, OsdId, HObject),
    /// Listing objects for a backfill; `None`: for a target's primary elsewhere.
    Listing(PgId, Option<OsdId>),
    /// Removing a PG.
    Removal(PgId),
    /// Going back to an older state of an unfound object.
    GiveUp(PgId),
    /// Trimming snapshots.
    Trim(PgId),
    /// Removing a watch that timed out.
    Watch(PgId, Box<Expired>),
    /// Scrub of a PG: its number of this fetch.
    Scrub(PgId, u64),
    /// The check of the OSD's own records: its number of this fetch.
    OwnRecords(u64),
    /// Counting the objects of a PG.
    Recount(PgId),
    /// The transaction that stores maps.
    Maps,
    /// Removing what a start has found.
    Leftovers,
    /// The next transaction of `ceph tell osd.N bench`.
    Bench,
}

/// The OSD.
pub struct Daemon {
    pub(crate) cfg: OsdConfig,
    pub(crate) now: Now,
    pub(crate) life: Life,
    pub(crate) store: Store,
    pub(crate) msgr: Messenger,
    pub(crate) maps: Maps,
    pub(crate) pgs: Hosts,
    /// PGs that are stored with a newer map than we have.
    pub(crate) ahead: BTreeMap<Epoch, Vec<pg::Loaded>>,
    /// PGs we lead that have something to recover.
    pub(crate) recovering: BTreeSet<PgId>,
    /// PGs of which something changed that decides whether they may recover.
    pub(crate) recovered: BTreeSet<PgId>,
    /// All PGs are to be looked at for that.
    pub(crate) gates_due: bool,
    /// PGs of which a client waits for objects.
    pub(crate) urgent: BTreeSet<PgId>,
    /// Objects on their way, of all PGs we lead.
    pub(crate) moving: usize,
    /// Who may recover.
    pub(crate) places: Places,
    /// How fast.
    pub(crate) pacer: Pacer,
    /// Steps of recovery that wait for their time: as many as there are objects on their way, at most.
    pub(crate) held: VecDeque<Held>,
    /// Objects are to be pulled when there is time.
    pub(crate) paced_pulls: bool,
    /// PGs we lead of which unfound objects are given up.
    pub(crate) giving_up: BTreeSet<PgId>,
    /// PGs we lead that have snapshots to trim.
    pub(crate) trimming: Trimming,
    /// Trimming or counting goes on in the next turn: this one's share was not enough.
    pub(crate) goes_on: bool,
    pub(crate) scrubs: Scrubs,
    /// PGs we lead whose sums are a guess.
    pub(crate) recounting: BTreeSet<PgId>,
    pub(crate) removals: BTreeMap<PgId, Removal>,
    pub(crate) leftovers: Leftovers,
    /// See [`Temporary`].
    pub(crate) last_temporary: Temporary,
    pub(crate) disk_bench: Option<Box<DiskBench>>,
    pub(crate) ops: Ops,
    pub(crate) last_op: u64,
    /// What came with requests that are in flight.
    pub(crate) in_hand: InHand,
    pub(crate) read_room: ReadRoom,
    pub(crate) backoffs: Backoffs,
    /// Requests and messages that name a map we have not got.
    pub(crate) waiting_ops: Vec<OpId>,
    pub(crate) early: Early,
    pub(crate) fetches: HashMap<u64, Waiter>,
    pub(crate) last_fetch: u64,
    pub(crate) durable: HashMap<TxnId, Thens>,
    /// Whoever was told "busy" by the store.
    pub(crate) blocked: Vec<Waiter>,
    /// OSDs that have no space for data, by what they said last.
    pub(crate) full_peers: BTreeSet<OsdId>,
    /// They are others than before.
    pub(crate) peer_space_changed: bool,
    /// Who waits for space is to try again: there is a new map.
    pub(crate) retry_blocked: bool,
    pub(crate) space: Space,
    /// PGs we lead of which objects were pulled that did not fit.
    pub(crate) unfitting: BTreeSet<PgId>,
    pub(crate) injected: Injected,
    pub(crate) map_queue: VecDeque<crate::host::Queued>,
    pub(crate) map_queue_stalled: bool,
    pub(crate) copies: Copies,
    pub(crate) write_room: WriteRoom,
    pub(crate) mon: MonLink,
    pub(crate) peers: PeerLinks,
    pub(crate) sessions: Sessions,
    pub(crate) admin: Admin,
    /// What the settings come to.
    pub(crate) limits: Limits,
    pub(crate) history: History,
    pub(crate) perf: Perf,
    pub(crate) beyond: Beyond,
    pub(crate) images_io: ImagesIo,
    /// Where clients and OSDs reach us, once both sockets listen.
    pub(crate) client_addrs: AddrVec,
    pub(crate) cluster_addrs: AddrVec,
    /// The epoch in which we came up.
    pub(crate) up_from: Epoch,
    /// Where heartbeats reach us.
    pub(crate) hb_back_addrs: AddrVec,
    pub(crate) hb_front_addrs: AddrVec,
    pub(crate) heartbeats: Heartbeats,
    /// Connections on which other OSDs ask for heartbeats.
    pub(crate) asked_by: HashMap<LinkId, OsdId>,
    pub(crate) leases: Leases,
    pub(crate) next_notify: u64,
    pub(crate) next_tick: Mono,
    pub(crate) next_report: Mono,
    /// The log hears of slow requests then at the earliest.
    pub(crate) say_slow_at: Mono,
    pub(crate) report_soon: Option<Mono>,
    /// Durable transactions and their time, as of the last report.
    pub(crate) reported_commits: (u64, u64),
    /// Reports that were sent.
    pub(crate) reports: u32,
    events: Vec<MsgrEvent>,
}

impl Daemon {
    /// Around a mounted store.
    pub fn new(cfg: OsdConfig, store: Store, now: Now, rng: Rng) -> Self {
        let id = u32::try_from(cfg.id.0).expect("an OSD's number is not negative");
        let identity = Identity::daemon(types::EntityType::OSD, id, cfg.nonce);
        let admin = Admin::new(&cfg);
        let limits = Limits::of(&admin.settings);
        let last_temporary = Temporary::first(store.durable_txn());
        Daemon {
            limits,
            admin,
            mon: MonLink::new(cfg.mons.clone()),
            peers: PeerLinks::default(),
            life: Life::Loading(Loading::default()),
            now,
            store,
            msgr: Messenger::new(identity, rng),
            maps: Maps::default(),
            pgs: Hosts::new(),
            ahead: BTreeMap::new(),
            recovering: BTreeSet::new(),
            recovered: BTreeSet::new(),
            gates_due: false,
            urgent: BTreeSet::new(),
            moving: 0,
            places: Places::new(limits.max_backfills),
            pacer: Pacer::new(limits.recovery_share),
            held: VecDeque::new(),
            paced_pulls: false,
            giving_up: BTreeSet::new(),
            trimming: Trimming::default(),
            goes_on: false,
            scrubs: Scrubs::default(),
            recounting: BTreeSet::new(),
            removals: BTreeMap::new(),
            leftovers: Leftovers::default(),
            last_temporary,
            disk_bench: None,
            ops: HashMap::default(),
            last_op: 0,
            in_hand: InHand::default(),
            read_room: ReadRoom::default(),
            backoffs: Backoffs::default(),
            waiting_ops: Vec::new(),
            early: Early::default(),
            fetches: HashMap::default(),
            last_fetch: 0,
            durable: HashMap::default(),
            blocked: Vec::new(),
            full_peers: BTreeSet::new(),
            peer_space_changed: false,
            retry_blocked: false,
            space: Space::default(),
            unfitting: BTreeSet::new(),
            injected: Injected::default(),
            map_queue: VecDeque::new(),
            map_queue_stalled: false,
            copies: Copies::default(),
            write_room: WriteRoom::default(),
            sessions: Sessions::default(),
            history: History::default(),
            perf: Perf::default(),
            beyond: Beyond::default(),
            images_io: ImagesIo::default(),
            client_addrs: AddrVec::default(),
            cluster_addrs: AddrVec::default(),
            up_from: Epoch::ZERO,
            hb_back_addrs: AddrVec::default(),
            hb_front_addrs: AddrVec::default(),
            heartbeats: Heartbeats::default(),
            asked_by: HashMap::default(),
            leases: Leases::new(now.mono),
            next_notify: 0,
            next_tick: now.mono,
            next_report: now.mono,
            say_slow_at: now.mono,
            report_soon: None,
            reported_commits: (0, 0),
            reports: 0,
            events: Vec::new(),
            cfg,
        }
    }

    /// The first act: read what is stored.
    pub fn start(&mut self, now: Now, fx: &mut Effects) {
        self.now = now;
        self.limit_receiving();
        self.admin.listen(fx);
        self.load(fx);
    }

    /// One event.
    pub fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        self.now = now;
        match event {
            Event::Net(event) => self.on_net(event, fx),
            Event::Disk(done) => self.on_disk(done, fx),
            Event::Stop => self.leave(),
            Event::Memory(memory) => self.on_memory(memory),
            Event::Start | Event::Timer | Event::Kv(_) => {}
        }
        self.drain_store(fx);
    }

    /// All events of the turn are in.
    pub fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.now = now;
        if is_due(self.msgr.next_deadline(), now.mono) {
            let mut events = std::mem::take(&mut self.events);
            self.msgr.tick(now, fx, &mut events);
            self.on_msgr(&mut events, fx);
            self.events = events;
            self.drain_store(fx);
        }
        if self.has_background_work() {
            self.do_background_work(fx);
        }
        self.abandon_held_ops(fx);
        self.store.end_turn(now, fx);
        self.drain_store(fx);
        self.check_request_memory(fx);
        self.read_room.end_turn();
        self.msgr.end_turn(now, fx);
    }

    /// Whether there is anything to do but requests. In most turns there is not, and finding that out
    /// one by one would touch the code of a dozen modules: at low load that is what a turn costs.
    fn has_background_work(&self) -> bool {
        let now = self.now.mono;
        self.is_tick_due()
            || is_due(self.admin.next_deadline(), now)
            || is_due(self.leases.wake_at, now)
            || self.read_room.is_due()
            || self.may_recover()
            || self.scrubs.has_work()
            || self.trimming.has_work(self.limits.trim_pgs)
            || !self.recounting.is_empty()
    }

    #[inline(never)]
    fn do_background_work(&mut self, fx: &mut Effects) {
        self.admin.tick(self.now, fx);
        self.tick(fx);
        self.start_waiting_reads(fx);
        self.end_waits(fx);
        self.recover(fx);
        self.goes_on = false;
        self.trim(fx);
        self.scrub(fx);
        self.recount(fx);
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        let mut next = self.next_tick;
        let is_due = self.goes_on
            || self.read_room.is_due()
            || self.copies.are_due()
            || self.write_room.is_due();
        let all = [
            self.report_soon,
            self.next_step(),
            is_due.then_some(self.now.mono),
            self.leases.wake_at,
            self.scrubs.next_deadline(),
            self.store.next_deadline(),
            self.msgr.next_deadline(),
            self.admin.next_deadline(),
        ];
        for at in all {
            next = next.min(at.unwrap_or(next));
        }
        Some(next)
    }

    fn on_net(&mut self, event: NetEvent, fx: &mut Effects) {
        let mut events = std::mem::take(&mut self.events);
        let other = self.msgr.handle(self.now, event, fx, &mut events);
        self.on_msgr(&mut events, fx);
        self.events = events;
        if let Some(event) = other {
            self.on_admin(event, fx);
        }
    }

    fn on_msgr(&mut self, events: &mut Vec<MsgrEvent>, fx: &mut Effects) {
        for event in events.drain(..) {
            self.on_msgr_event(event, fx);
        }
    }

    fn on_disk(&mut self, done: DiskDone, fx: &mut Effects) {
        let ours = self.store.handle(self.now, done, fx);
        assert!(ours, "only the store asks anything of the disk");
    }

    fn drain_store(&mut self, fx: &mut Effects) {
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Durable { txns } => self.on_durable(&txns, fx),
                StoreEvent::Fetched { waiter, result } => self.on_fetched(waiter, result, fx),
                StoreEvent::Writable => self.on_writable(fx),
                StoreEvent::BadBlock { object, offset } => {
                    tracing::error!(
                        "osd.{}: object {object:?} is damaged at byte {offset}: its checksum is \
                         wrong; who reads it gets a good copy from another OSD",
                        self.cfg.id
                    );
                    self.perf.bad_blocks += 1;
                }
                StoreEvent::Unmounted => fx.exit(0, "stopped in order"),
                StoreEvent::Fatal(fatal) => {
                    let id = self.cfg.id;
                    fx.exit(
                        1,
                        format!(
                            "osd.{id} stops: {} failed: {}. What was acknowledged is on the other \
                             copies; look at the disk before you start it again",
                            fatal.what, fatal.why
                        ),
                    );
                }
            }
        }
    }

    /// Fetches what an operation lacks; [`Daemon::on_fetched`] goes on with it.
    pub(crate) fn fetch(&mut self, miss: Miss, waiter: Waiter, fx: &mut Effects) {
        self.last_fetch += 1;
        self.fetches.insert(self.last_fetch, waiter);
        self.store.fetch(self.now, miss, self.last_fetch, fx);
    }

    fn on_fetched(&mut self, id: u64, result: Result<ReadSet, StoreError>, fx: &mut Effects) {
        let Some(waiter) = self.fetches.remove(&id) else { return };
        match waiter {
            Waiter::Op(op, attempt) => self.op_fetched(op, attempt, result, fx),
            Waiter::Queue(pgid) => self.queue_fetched(pgid, result, fx),
            Waiter::Loading => self.load_fetched(result, fx),
            Waiter::Push(pgid, to, object) => self.push_fetched(pgid, to, object, result, fx),
            Waiter::Base(pgid, from, object) => {
                self.go_on_with_base(pgid, from, object, result, fx);
            }
            Waiter::Listing(pgid, target) => self.listing_fetched(pgid, target, result, fx),
            Waiter::Removal(pgid) => self.removal_fetched(pgid, result, fx),
            Waiter::GiveUp(pgid) => self.give_up_fetched(pgid, id, result),
            Waiter::Trim(pgid) => self.trim_fetched(pgid, result),
            Waiter::Watch(pgid, watch) => self.watch_fetched(pgid, watch, result, fx),
            Waiter::Scrub(pgid, id) => self.scrub_fetched(pgid, id, result, fx),
            Waiter::OwnRecords(id) => self.own_records_fetched(id, result),
            Waiter::Recount(pgid) => self.recount_fetched(pgid, result),
            Waiter::Maps => self.maps_fetched(result, fx),
            Waiter::Leftovers => self.leftovers_fetched(result, fx),
            Waiter::Bench => self.bench_fetched(result, fx),
        }
    }

    /// The store takes writes again: who was told "busy" tries again, in order, until it is too much
    /// for the store once more. Those behind would be told the same, each after all its work.
    pub(crate) fn on_writable(&mut self, fx: &mut Effects) {
        let mut waiters = std::mem::take(&mut self.blocked).into_iter();
        while let Some(waiter) = waiters.next() {
            if self.store.holds_writers() {
                let came_meanwhile = std::mem::take(&mut self.blocked);
                self.blocked.push(waiter);
                self.blocked.extend(waiters);
                self.blocked.extend(came_meanwhile);
                return;
            }
            let none = Ok(ReadSet::new());
            match waiter {
                Waiter::Op(op, attempt) => self.op_fetched(op, attempt, none, fx),
                Waiter::Queue(pgid) => self.queue_fetched(pgid, none, fx),
                Waiter::Removal(pgid) => self.removal_fetched(pgid, none, fx),
                Waiter::Trim(pgid) => self.trim_fetched(pgid, none),
                Waiter::Maps => self.maps_fetched(none, fx),
                Waiter::Leftovers => self.leftovers_fetched(none, fx),
                Waiter::Bench => self.bench_fetched(none, fx),
                Waiter::Loading
                | Waiter::Push(..)
                | Waiter::Base(..)
                | Waiter::Listing(..)
                | Waiter::Recount(..)
                | Waiter::GiveUp(_)
                | Waiter::OwnRecords(_)
                | Waiter::Watch(..)
                | Waiter::Scrub(..) => {}
            }
        }
    }

    fn on_durable(&mut self, txns: &[TxnId], fx: &mut Effects) {
        for txn in txns {
            for then in self.durable.remove(txn).unwrap_or_default() {
                self.carry_out_then(then, fx);
            }
        }
    }

    /// Whether the OSD serves.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.life, Life::Up)
    }
}

fn is_due(at: Option<Mono>, now: Mono) -> bool {
    at.is_some_and(|at| at <= now)
}
