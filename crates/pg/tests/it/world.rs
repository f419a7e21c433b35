//! The small world: what `osd` does around a [`Pg`], reduced to a map of objects. Writes stand in `writes`, the
//! moving of objects in `moves`.

pub use crate::map::Map;
pub use crate::net::*;
pub use crate::state::*;
use crate::writes::Ack;
use pg::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::*;

pub const PGID: PgId = PgId { pool: PoolId(1), seed: 0 };
/// Short logs, so that backfill happens.
pub const LIMITS: LogLimits =
    LogLimits { clean_entries: 8, degraded_entries: 14, batch_entries: 2, bytes: 1600 };

/// One OSD.
pub struct Osd {
    pub id: i32,
    pub rng: fastrand::Rng,
    /// Of so many writes replicas leave one out.
    pub full_one_in: u64,
    /// Of so many objects that it is to bring to others it cannot read one. 0: it can.
    pub unreadable_one_in: u8,
    /// By the newest map it has no space.
    pub full: bool,
    pub disk: Disk,
    queue: VecDeque<Txn>,
    pub pg: Option<Pg>,
    pub map: u32,
    held: Vec<(OsdId, Net)>,
    pub in_flight: InFlight<Ack>,
    /// How many writes of an object are in flight.
    pub writing: BTreeMap<u32, usize>,
    /// Objects that go back to a state just now.
    pub going_back: BTreeSet<u32>,
    /// Objects that are read slowly for others, and whether these asked for them.
    pub slow: Vec<(OsdId, HObject, bool)>,
    pub out: Vec<(OsdId, Net)>,
    pub asks: Vec<Ask>,
    pub acked: Vec<Ack>,
    pub notices: Vec<Notice>,
    pub mem: Objects,
}

pub const OBJECTS: u32 = 12;

/// The number of an object, or of a clone's.
pub fn number_of(o: &HObject) -> u32 {
    let head = o.head();
    (0..OBJECTS).find(|n| object(*n) == head).expect("there are no others")
}

/// A head of the pool.
pub fn object(n: u32) -> HObject {
    HObject {
        pool: PGID.pool,
        hash: n.wrapping_mul(0x9e37_79b9),
        nspace: "".into(),
        key: "".into(),
        name: format!("o{n}").into(),
        snap: SnapId::HEAD,
        max: false,
    }
}

impl Osd {
    pub fn new(id: i32, rng: fastrand::Rng, full_one_in: u64) -> Self {
        Osd {
            id,
            rng,
            full_one_in,
            unreadable_one_in: 0,
            full: false,
            disk: Disk::default(),
            queue: VecDeque::new(),
            pg: None,
            map: 0,
            held: Vec::new(),
            in_flight: InFlight::default(),
            writing: BTreeMap::new(),
            going_back: BTreeSet::new(),
            slow: Vec::new(),
            out: Vec::new(),
            asks: Vec::new(),
            acked: Vec::new(),
            notices: Vec::new(),
            mem: BTreeMap::new(),
        }
    }

    /// Loses what is not on the disk; `durable` transactions of the queue made it.
    pub fn crash(&mut self, durable: usize) {
        for txn in self.queue.drain(..).take(durable) {
            self.disk.apply(&txn);
        }
        self.queue.clear();
        self.pg = None;
        self.held.clear();
        self.end_interval();
        self.out.clear();
        self.asks.clear();
    }

    /// What was under way is not answered any more.
    fn end_interval(&mut self) {
        self.in_flight.clear();
        self.writing.clear();
        self.going_back.clear();
        self.slow.clear();
    }

    /// Number of transactions that are not durable.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Boots with the maps up to `maps.last()`.
    pub fn boot(&mut self, maps: &[Map]) {
        self.mem = self.disk.objects.clone();
        self.map = maps.len() as u32;
        self.full = maps[self.map as usize - 1].full.contains(&self.id);
        if self.disk.omap.is_empty() {
            return;
        }
        let pairs: Vec<_> = self.disk.omap.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let loaded = pg::load(&pairs, &|_, _, _| true).expect("what was written can be read");
        let at = maps[loaded.record.epoch.0 as usize - 1].clone();
        let mut pg = Pg::restore(OsdId(self.id), loaded, at.mapping(), at.rules());
        for pair in maps[at.epoch as usize - 1..].windows(2) {
            pg.catch_up(&pair[0], &pair[1], pair[1].mapping(), pair[1].rules());
        }
        self.pg = Some(pg);
        self.run(maps, |pg, ctx, fx| pg.start(ctx, fx));
    }

    /// The mon asks this OSD to create the PG.
    pub fn create(&mut self, maps: &[Map], created: u32) {
        if self.pg.is_some() {
            return;
        }
        let at = &maps[created as usize - 1];
        let history = History::created(Epoch(created));
        let me = OsdId(self.id);
        let mut pg = Pg::create(
            me,
            PGID,
            history,
            PastIntervals::default(),
            Epoch(created),
            at.mapping(),
            at.rules(),
        );
        for pair in maps[created as usize - 1..self.map as usize].windows(2) {
            pg.catch_up(&pair[0], &pair[1], pair[1].mapping(), pair[1].rules());
        }
        self.pg = Some(pg);
        self.run(maps, |pg, ctx, fx| pg.start(ctx, fx));
    }

    /// Takes in the next map.
    pub fn next_map(&mut self, maps: &[Map]) {
        let (old, new) = (&maps[self.map as usize - 1], &maps[self.map as usize]);
        self.map += 1;
        self.full = new.full.contains(&self.id);
        if self.pg.is_some() {
            self.run(maps, |pg, ctx, fx| pg.on_map(old, ctx, new.mapping(), new.rules(), fx));
        }
        for (from, net) in std::mem::take(&mut self.held) {
            self.receive(maps, from, net);
        }
    }

    /// The session with the mon is new: what is waited for is asked again.
    pub fn ask_again(&mut self, maps: &[Map]) {
        self.run(maps, |pg, _, fx| pg.ask_again(fx));
    }

    pub fn run(&mut self, maps: &[Map], f: impl FnOnce(&mut Pg, &Ctx<'_>, &mut Fx)) {
        let ctx = Ctx { map: &maps[self.map as usize - 1], now: UTime::ZERO };
        let mut fx = Fx::default();
        let Some(pg) = self.pg.as_mut() else { return };
        f(pg, &ctx, &mut fx);
        self.carry_out(fx, Txn::default());
    }

    pub fn carry_out(&mut self, fx: Fx, mut txn: Txn) {
        txn.meta.extend(fx.meta);
        txn.ops.extend(fx.remove.into_iter().map(Op::Remove));
        txn.then.extend(fx.send_durable.into_iter().map(|(o, m)| Then::Send(o, Net::Pg(m))));
        txn.then.extend(fx.tell_durable.map(Then::TellPg));
        self.out.extend(fx.send.into_iter().map(|(o, m)| (o, Net::Pg(m))));
        self.asks.extend(fx.want_up_thru.map(Ask::UpThru));
        let since = self.pg.as_ref().unwrap().info().history.same_interval_since;
        if let Some(want) = fx.want_pg_temp {
            self.asks.push(Ask::PgTemp(since, want.iter().map(|o| o.0).collect()));
        }
        self.submit(txn);
        for notice in fx.notices {
            match &notice {
                Notice::NewInterval => self.end_interval(),
                Notice::Active => {
                    let pg = self.pg.as_ref().unwrap();
                    self.in_flight.begin(pg.mapping().acting.iter().copied(), pg.last_update());
                }
                Notice::RemoveSelf => {
                    self.pg = None;
                    self.mem.clear();
                    self.queue.clear();
                    self.disk = Disk::default();
                }
                Notice::Odd(why) => {
                    panic!("osd.{}: {why}; {:?}", self.id, self.pg.as_ref().unwrap())
                }
                Notice::Clean | Notice::Counts(_) => {}
            }
            self.notices.push(notice);
        }
    }

    pub fn submit(&mut self, txn: Txn) {
        txn.ops.iter().for_each(|op| op.apply(&mut self.mem));
        self.queue.push_back(txn);
    }

    /// The oldest transaction is durable now.
    pub fn make_durable(&mut self, maps: &[Map]) {
        let Some(txn) = self.queue.pop_front() else {
            return;
        };
        self.disk.apply(&txn);
        for then in txn.then {
            match then {
                Then::Send(to, net) => self.out.push((to, net)),
                Then::TellPg(epoch) => self.run(maps, |pg, ctx, fx| pg.on_durable(epoch, ctx, fx)),
                Then::Durable(v) => self.durable(OsdId(self.id), v),
                Then::Pulled(o, interval) => {
                    if self.interval() == interval {
                        self.run(maps, |pg, _, fx| pg.pulled(&o, fx));
                    }
                }
            }
        }
    }

    pub fn interval(&self) -> Epoch {
        self.pg.as_ref().map_or(Epoch::ZERO, |pg| pg.info().history.same_interval_since)
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.map)
    }

    /// A message from another OSD.
    pub fn receive(&mut self, maps: &[Map], from: OsdId, net: Net) {
        if net.epoch() > self.epoch() {
            self.held.push((from, net));
            return;
        }
        match net {
            Net::Pg(msg) => self.on_pg(maps, from, msg),
            Net::RepAck { interval, version, missed } => {
                if interval != self.interval() {
                    return;
                }
                if let Some(pg) = self.pg.as_mut().filter(|_| !missed.is_empty()) {
                    pg.left_out(from, (version, &missed), &mut self.in_flight, |ack| &ack.head);
                }
                self.durable(from, version);
            }
            other => self.on_data(maps, from, other),
        }
    }

    fn on_pg(&mut self, maps: &[Map], from: OsdId, msg: PgMsg) {
        if is_traced() {
            eprintln!("osd.{} <- {from} {}", self.id, summary(&msg));
        }
        if self.pg.is_none() {
            // Only a message of the current interval may make a copy.
            let spans = &maps[msg.epoch.0 as usize - 1..self.map as usize];
            if spans.iter().any(|m| m.mapping() != spans[0].mapping()) {
                return;
            }
            match &msg.body {
                Body::Query(Query::Info, _) => {
                    let info = PgInfo::absent(PGID);
                    let n = Notify { info, past: PastIntervals::default(), lack: Lack::default() };
                    let body = Body::Notify(Box::new(n));
                    let msg = PgMsg { epoch: self.epoch(), body, ..msg };
                    self.out.push((from, Net::Pg(msg)));
                    return;
                }
                Body::Activate { info, .. } => self.become_copy(maps, info.history),
                Body::Notify(n) if !n.info.is_absent() => {
                    let map = &maps[self.map as usize - 1];
                    if map.mapping().acting_primary != Some(OsdId(self.id)) {
                        return;
                    }
                    self.become_copy(maps, n.info.history);
                }
                _ => return,
            }
        }
        self.run(maps, |pg, ctx, fx| pg.on_msg(from, msg, ctx, fx));
    }

    fn become_copy(&mut self, maps: &[Map], history: History) {
        let map = &maps[self.map as usize - 1];
        let (me, epoch) = (OsdId(self.id), self.epoch());
        let mut pg = Pg::create(
            me,
            PGID,
            history,
            PastIntervals::default(),
            epoch,
            map.mapping(),
            map.rules(),
        );
        pg.mark_unfilled();
        self.pg = Some(pg);
        self.run(maps, |pg, ctx, fx| pg.start(ctx, fx));
    }

    /// The objects as the OSD sees them now.
    pub fn contents(&self) -> &Objects {
        &self.mem
    }
}
