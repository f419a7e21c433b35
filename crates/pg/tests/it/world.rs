//! The small world: what `osd` does around a [`Pg`], reduced to a map of objects.

pub use crate::map::Map;
use bytes::Bytes;
use pg::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::*;

pub const PGID: PgId = PgId { pool: PoolId(1), seed: 0 };
/// Short logs, so that backfill happens.
pub const LIMITS: LogLimits =
    LogLimits { clean_entries: 8, degraded_entries: 14, batch_entries: 2 };

/// What a disk holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    pub omap: BTreeMap<Bytes, Bytes>,
    pub objects: BTreeMap<HObject, (Eversion, u64)>,
}

/// A transaction on its way to the disk.
#[derive(Debug, Default)]
struct Txn {
    meta: Vec<MetaOp>,
    remove: Vec<HObject>,
    put: Vec<(HObject, Eversion, u64)>,
    then: Vec<Then>,
}

/// What happens when a transaction is durable.
#[derive(Debug)]
enum Then {
    Send(OsdId, Net),
    TellPg(Epoch),
    Durable(Eversion),
    Pulled(HObject, u64),
}

/// Everything OSDs send to each other.
#[derive(Clone, Debug)]
pub enum Net {
    Pg(PgMsg),
    Rep {
        epoch: Epoch,
        interval: Epoch,
        records: Vec<LogRecord>,
        put: Option<(HObject, Option<u64>)>,
        trim: Eversion,
    },
    RepAck {
        interval: Epoch,
        version: Eversion,
        missed: bool,
    },
    Pull {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
    },
    Push {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
        state: Option<(Eversion, u64)>,
        pulled: bool,
    },
    PushAck {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
        version: Eversion,
    },
    Scan {
        epoch: Epoch,
        interval: Epoch,
        begin: HObject,
    },
    Listed {
        epoch: Epoch,
        interval: Epoch,
        listing: Listing,
    },
    Progress {
        epoch: Epoch,
        interval: Epoch,
        to: HObject,
    },
    ProgressAck {
        epoch: Epoch,
        interval: Epoch,
        to: HObject,
    },
}

impl Net {
    fn epoch(&self) -> Epoch {
        match self {
            Net::Pg(m) => m.epoch,
            Net::RepAck { .. } => Epoch::ZERO,
            Net::Rep { epoch, .. }
            | Net::Pull { epoch, .. }
            | Net::Push { epoch, .. }
            | Net::PushAck { epoch, .. }
            | Net::Scan { epoch, .. }
            | Net::Listed { epoch, .. }
            | Net::Progress { epoch, .. }
            | Net::ProgressAck { epoch, .. } => *epoch,
        }
    }
}

/// What an OSD asks of the mon.
#[derive(Clone, Debug)]
pub enum Ask {
    UpThru(Epoch),
    PgTemp(Epoch, Vec<i32>),
}

/// A write of the checking client that is in flight.
#[derive(Clone, Debug)]
pub struct Ack {
    pub object: u32,
    pub value: u64,
    pub version: Eversion,
    /// No client's write, but the log entry of an object that goes back to this value.
    goes_back: bool,
}

/// An object goes back to a state.
pub struct Back {
    pub to: Eversion,
    /// The version in which it does.
    pub version: Eversion,
    pub value: u64,
}

/// One OSD.
pub struct Osd {
    pub id: i32,
    pub disk: Disk,
    queue: VecDeque<Txn>,
    pub pg: Option<Pg>,
    pub map: u32,
    held: Vec<(OsdId, Net)>,
    in_flight: InFlight<Ack>,
    /// Objects that go back to a state just now.
    going_back: BTreeSet<u32>,
    pub out: Vec<(OsdId, Net)>,
    pub asks: Vec<Ask>,
    pub acked: Vec<Ack>,
    pub notices: Vec<Notice>,
    mem: BTreeMap<HObject, (Eversion, u64)>,
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
    pub fn new(id: i32) -> Self {
        Osd {
            id,
            disk: Disk::default(),
            queue: VecDeque::new(),
            pg: None,
            map: 0,
            held: Vec::new(),
            in_flight: InFlight::default(),
            going_back: BTreeSet::new(),
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
            apply(&mut self.disk, &txn);
        }
        self.queue.clear();
        self.pg = None;
        self.held.clear();
        self.in_flight = InFlight::default();
        self.going_back.clear();
        self.out.clear();
        self.asks.clear();
    }

    /// Number of transactions that are not durable.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Boots with the maps up to `maps.last()`.
    pub fn boot(&mut self, maps: &[Map]) {
        self.mem = self.disk.objects.clone();
        self.map = maps.len() as u32;
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

    fn run(&mut self, maps: &[Map], f: impl FnOnce(&mut Pg, &Ctx<'_>, &mut Fx)) {
        let ctx = Ctx { map: &maps[self.map as usize - 1], now: UTime::ZERO };
        let mut fx = Fx::default();
        let Some(pg) = self.pg.as_mut() else { return };
        f(pg, &ctx, &mut fx);
        self.carry_out(fx, Txn::default());
    }

    fn carry_out(&mut self, fx: Fx, mut txn: Txn) {
        txn.meta.extend(fx.meta);
        txn.remove.extend(fx.remove);
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
                Notice::NewInterval => {
                    self.in_flight.clear();
                    self.going_back.clear();
                }
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
                Notice::Clean => {}
            }
            self.notices.push(notice);
        }
    }

    fn submit(&mut self, txn: Txn) {
        for o in &txn.remove {
            self.mem.remove(o);
        }
        for (o, v, value) in &txn.put {
            self.mem.insert(o.clone(), (*v, *value));
        }
        self.queue.push_back(txn);
    }

    /// The oldest transaction is durable now.
    pub fn make_durable(&mut self, maps: &[Map]) {
        let Some(txn) = self.queue.pop_front() else {
            return;
        };
        apply(&mut self.disk, &txn);
        for then in txn.then {
            match then {
                Then::Send(to, net) => self.out.push((to, net)),
                Then::TellPg(epoch) => self.run(maps, |pg, ctx, fx| pg.on_durable(epoch, ctx, fx)),
                Then::Durable(v) => self.durable(OsdId(self.id), v),
                Then::Pulled(o, interval) => {
                    if self.interval().0 as u64 == interval {
                        self.run(maps, |pg, _, fx| pg.pulled(&o, fx));
                    }
                }
            }
        }
    }

    fn durable(&mut self, osd: OsdId, v: Eversion) {
        self.in_flight.durable(osd, v);
        self.commit();
    }

    /// A replica has only the log of a write.
    fn left_out(&mut self, osd: OsdId, version: Eversion, missed: bool) {
        let Some(pg) = self.pg.as_mut().filter(|_| missed) else { return };
        let Some(ack) = self.in_flight.get_mut(version) else { return };
        pg.taken_without_data(osd, &[version]);
        let (n, counts) = (ack.object, pg.mapping().acting.contains(&osd));
        if counts && !pg.is_safe(&object(n), version, self.in_flight.committed()) {
            self.in_flight.hold(version);
        }
    }

    fn commit(&mut self) {
        if let Some(pg) = &self.pg {
            let is_safe = |ack: &Ack, at, all| pg.is_safe(&object(ack.object), at, all);
            self.in_flight.release(is_safe);
        }
        while let Some((_, ack)) = self.in_flight.pop_committed() {
            if ack.goes_back {
                self.going_back.remove(&ack.object);
                self.stamp(&ack);
            }
            self.acked.push(ack);
        }
    }

    /// The older state of an object that is here gets the version that counts now.
    fn stamp(&mut self, ack: &Ack) {
        let (o, interval) = (object(ack.object), self.interval());
        let Some(pg) = self.pg.as_mut() else { return };
        let mut txn = write_txn(&o, Some(ack.value), ack.version);
        txn.meta = pg.arrival_ops(&o, ack.version);
        pg.arrived(&o, ack.version);
        txn.then.push(Then::Pulled(o, u64::from(interval.0)));
        self.submit(txn);
    }

    fn interval(&self) -> Epoch {
        self.pg.as_ref().map_or(Epoch::ZERO, |pg| pg.info().history.same_interval_since)
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.map)
    }

    /// The checking client writes (or removes: `None`) an object. Its version, if the write was taken.
    pub fn client_write(&mut self, n: u32, value: Option<u64>) -> Option<Eversion> {
        let o = object(n);
        let pg = self.pg.as_mut().filter(|pg| pg.is_primary() && pg.accepts_io())?;
        if pg.write_readiness(&o) != Readiness::Ready {
            pg.hurry(&o);
            return None;
        }
        if value.is_none() && !self.mem.contains_key(&o) {
            return None;
        }
        // A write comes with the push that is under way (see `PushAck`), or puts it off.
        if pg.is_on_its_way(&o) && (value.is_none() || value.is_some_and(|v| v % 3 == 0)) {
            if !pg.may_put_off(&o) {
                return None;
            }
            pg.put_off(&o);
        }
        let prior = self.mem.get(&o).map_or(Eversion::ZERO, |(v, _)| *v);
        Some(self.write(n, value, prior, None))
    }

    /// An object that is unfound goes back to the state before, if that is here, or is removed.
    pub fn take_back(&mut self, n: u32) -> Option<Back> {
        let o = object(n);
        let pg = self.pg.as_ref().filter(|pg| pg.may_give_up())?;
        let need = pg.missing().get(&o)?.need;
        match pg.give_up_unfound(&o, true) {
            GiveUp::Delete => {
                let version = self.write(n, None, need, Some(Eversion::ZERO));
                Some(Back { to: Eversion::ZERO, version, value: 0 })
            }
            GiveUp::Revert { from, to } if from.0 == self.id => {
                let (version, value) = self.mem.get(&o).copied()?;
                if !self.going_back.insert(n) {
                    return None;
                }
                assert_eq!(version, to, "what is here is what is said to be here");
                let version = self.write(n, Some(value), need, Some(to));
                Some(Back { to, version, value })
            }
            GiveUp::Revert { .. } => None,
        }
    }

    /// Logs a write and sends it. One that goes back to a state (`lost_after`, not zero) has no data: all copies
    /// miss the object then.
    fn write(
        &mut self,
        n: u32,
        value: Option<u64>,
        prior_version: Eversion,
        lost_after: Option<Eversion>,
    ) -> Eversion {
        let (o, goes_back) = (object(n), lost_after.is_some() && value.is_some());
        let pg = self.pg.as_mut().expect("it leads");
        let version = pg.next_version();
        if is_traced() {
            eprintln!(
                "osd.{} writes {o} {version}, {value:?}, lost after {lost_after:?}, acting {:?}",
                self.id,
                pg.mapping().acting
            );
        }
        let entry = LogEntry {
            kind: if value.is_some() { EntryKind::Modify } else { EntryKind::Delete },
            prior_version,
            reqid: ReqId { tid: version.version, ..ReqId::default() },
            lost_after,
            ..LogEntry::of(o.clone(), version)
        };
        let sums = ObjectSums::default();
        let record = LogRecord { entry: entry.clone(), sums, last_user_version: 0 };
        let mut meta = Pg::log_ops(std::slice::from_ref(&entry), &sums, 0);
        let targets = pg.targets(&o);
        match goes_back {
            true => pg.append_without_data(entry.clone()),
            false => pg.append(vec![entry.clone()], sums, 0),
        }
        if lost_after.is_some() {
            let left = pg.missing().get(&o).map(|item| put_missing(&o, item));
            meta.push(left.unwrap_or_else(|| MetaOp::Remove(missing_key(&o))));
        }
        let trim = pg.trim_target(&LIMITS, self.in_flight.committed()).unwrap_or_default();
        if trim > Eversion::ZERO {
            meta.extend(pg.trim(trim));
        }
        let (epoch, interval) = (self.epoch(), self.interval());
        for t in targets {
            let put = (t.with_data && !goes_back).then(|| (o.clone(), value));
            let records = vec![record.clone()];
            self.out.push((t.osd, Net::Rep { epoch, interval, records, put, trim }));
        }
        let ack = Ack { object: n, value: value.unwrap_or(0), version, goes_back };
        self.in_flight.push(version, ack);
        let mut txn = if goes_back { Txn::default() } else { write_txn(&o, value, version) };
        txn.meta = meta;
        txn.then.push(Then::Durable(version));
        self.submit(txn);
        version
    }

    /// The version of an object that a client would be shown, or be told that it was written, if it asked.
    pub fn shows(&mut self, n: u32) -> Option<Eversion> {
        let pg = self.pg.as_ref().filter(|pg| pg.is_primary() && pg.accepts_io())?;
        let (version, _) = self.mem.get(&object(n)).copied()?;
        let waits = self.in_flight.get_mut(version).is_some();
        (pg.readiness(&object(n)) != Readiness::Missing && !waits).then_some(version)
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
                if interval == self.interval() {
                    self.left_out(from, version, missed);
                    self.durable(from, version);
                }
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

    fn on_write(&mut self, from: OsdId, net: Net) {
        let Net::Rep { interval, records, put, trim, .. } = net else { return };
        let Some(pg) = self.pg.as_mut() else { return };
        if !pg.accepts_write(from, interval) {
            return;
        }
        let entry = records[0].entry.clone();
        let version = entry.version;
        let mut txn = match &put {
            Some((o, value)) => write_txn(o, *value, version),
            None => Txn::default(),
        };
        txn.meta = Pg::log_ops(&[entry], &ObjectSums::default(), 0);
        // One of three has no room now and then, or all but the primary, or not what the write is made upon.
        let value = put.as_ref().and_then(|(_, value)| *value);
        let full = from.0 != 2 && self.id == 2 && pg.mapping().acting.len() == 3;
        let all_full = value.is_some_and(|v| v % 5 == 3);
        let full = all_full || (full && value.is_some_and(|v| v % 11 == 5));
        let no_room = full || pg.misses_base_of(&records);
        let taken = match put {
            None => Taken::LogOnly,
            Some(_) if no_room => Taken::LeftOut,
            Some(_) => Taken::Whole,
        };
        let missed = taken == Taken::LeftOut;
        if missed {
            txn = Txn { meta: txn.meta, ..Txn::default() };
        }
        let behind = pg.append_as_replica(records, taken).unwrap();
        txn.meta.extend(behind.meta);
        txn.remove.extend(behind.remove);
        if trim > Eversion::ZERO {
            txn.meta.extend(pg.trim(trim));
        }
        txn.then.push(Then::Send(from, Net::RepAck { interval, version, missed }));
        self.submit(txn);
    }

    fn on_data(&mut self, maps: &[Map], from: OsdId, net: Net) {
        if is_traced() {
            eprintln!("osd.{} <- {from} {net:?}", self.id);
        }
        let (epoch, current) = (self.epoch(), self.interval());
        let Some(pg) = self.pg.as_mut() else { return };
        match net {
            write @ Net::Rep { .. } => self.on_write(from, write),
            Net::Pull { interval, object, .. } if interval == current => {
                let state = self.mem.get(&object).copied();
                let push = Net::Push { epoch, interval, object, state, pulled: true };
                self.out.push((from, push));
            }
            Net::Push { interval, object, state, pulled, .. } if interval == current => {
                let version = state.map_or(Eversion::ZERO, |s| s.0);
                if pulled {
                    let need = pg.missing().get(&object).map(|m| m.need);
                    if need != Some(version) {
                        pg.give_up(&object, Some(from));
                        return;
                    }
                }
                let mut txn = write_txn(&object, state.map(|s| s.1), version);
                txn.meta = pg.arrival_ops(&object, version);
                pg.arrived(&object, version);
                if pulled {
                    txn.then.push(Then::Pulled(object, u64::from(interval.0)));
                } else {
                    let ack = Net::PushAck { epoch, interval, object, version };
                    txn.then.push(Then::Send(from, ack));
                }
                self.submit(txn);
            }
            Net::PushAck { interval, object, version, .. } if interval == current => {
                if self.mem.get(&object).map_or(Eversion::ZERO, |(v, _)| *v) != version {
                    self.push(from, &object);
                    return;
                }
                self.run(maps, |pg, _, fx| {
                    pg.backfill_moved(from, &object);
                    pg.pushed(from, &object, version, fx);
                });
                self.commit();
            }
            Net::Scan { interval, begin, .. } if interval == current => {
                let listing = self.list(&begin);
                self.out.push((from, Net::Listed { epoch, interval, listing }));
            }
            Net::Listed { interval, listing, .. } if interval == current => {
                pg.backfill_listed(from, false, listing);
            }
            Net::Progress { interval, to, .. } if interval == current => {
                let mut fx = Fx::default();
                pg.note_backfill_progress(to.clone(), &mut fx);
                let ack = Net::ProgressAck { epoch, interval, to };
                let txn = Txn { then: vec![Then::Send(from, ack)], ..Txn::default() };
                self.carry_out(fx, txn);
            }
            Net::ProgressAck { interval, to, .. } if interval == current => {
                self.run(maps, |pg, _, fx| pg.backfill_progressed(from, &to, fx));
            }
            _ => {}
        }
    }

    fn list(&self, begin: &HObject) -> Listing {
        const AT_ONCE: usize = 3;
        let mut rest = self.mem.range(begin.clone()..);
        let objects = rest.by_ref().take(AT_ONCE).map(|(o, (v, _))| (o.clone(), *v)).collect();
        // Not between the clones of an object and its head: up to before the first of them.
        let end = rest.next().map_or(HObject::max(), |(o, _)| o.at_snap(types::SnapId(0)));
        Listing { begin: begin.clone(), end, objects }
    }

    /// One step of background work.
    pub fn recover(&mut self) {
        let (epoch, interval) = (self.epoch(), self.interval());
        let Some(pg) = self.pg.as_mut().filter(|pg| pg.is_primary()) else {
            return;
        };
        match pg.next_recovery() {
            Some(Work::Pull { object, from, .. }) => {
                self.out.push((from, Net::Pull { epoch, interval, object }));
                return;
            }
            Some(Work::Push { object, to, .. }) => {
                to.into_iter().for_each(|osd| self.push(osd, &object));
                return;
            }
            None => {}
        }
        match self.pg.as_mut().and_then(|pg| pg.next_backfill(2)) {
            Some(BackfillWork::ListHere { target, begin }) => {
                let listing = self.list(&begin);
                self.pg.as_mut().unwrap().backfill_listed(target, true, listing);
            }
            Some(BackfillWork::ListThere { target, begin }) => {
                self.out.push((target, Net::Scan { epoch, interval, begin }));
            }
            Some(BackfillWork::Push { target, object, .. })
            | Some(BackfillWork::Remove { target, object }) => self.push(target, &object),
            Some(BackfillWork::Progress { target, to }) => {
                self.out.push((target, Net::Progress { epoch, interval, to }));
            }
            None => {}
        }
    }

    fn push(&mut self, to: OsdId, object: &HObject) {
        let state = self.mem.get(object).copied();
        let (epoch, interval, object) = (self.epoch(), self.interval(), object.clone());
        self.out.push((to, Net::Push { epoch, interval, object, state, pulled: false }));
    }

    /// The objects as the OSD sees them now.
    pub fn contents(&self) -> &BTreeMap<HObject, (Eversion, u64)> {
        &self.mem
    }
}

/// Whether everything that is said is to be told.
pub fn is_traced() -> bool {
    std::env::var("PG_TRACE").is_ok_and(|v| !v.is_empty())
}

/// A message in a line, for PG_TRACE.
fn summary(msg: &PgMsg) -> String {
    let info = |i: &PgInfo| {
        format!(
            "lu {} tail {} les {}/{}",
            i.last_update, i.log_tail, i.last_epoch_started, i.history.last_epoch_started
        )
    };
    let what = match &msg.body {
        Body::Query(q, _) => format!("{q:?}"),
        Body::Notify(n) => format!("notify {} missing {}", info(&n.info), n.lack.objects),
        Body::Log { info: i, log, .. } => format!("log {} {}..{}", info(i), log.tail, log.head),
        Body::Activate { info: i, log, backfill } => {
            format!("activate {} {}..{} backfill {backfill}", info(i), log.tail, log.head)
        }
        Body::Activated(i) => format!("activated {}", info(i)),
        Body::History(_) => "history".into(),
        Body::Remove => "remove".into(),
        Body::Bad(object, need) => format!("bad {object} {need}"),
    };
    format!("e{} i{} {what}", msg.epoch, msg.interval)
}

fn write_txn(o: &HObject, value: Option<u64>, version: Eversion) -> Txn {
    let mut txn = Txn::default();
    match value {
        Some(value) => txn.put.push((o.clone(), version, value)),
        None => txn.remove.push(o.clone()),
    }
    txn
}

fn apply(disk: &mut Disk, txn: &Txn) {
    for op in &txn.meta {
        match op {
            MetaOp::Put(k, v) => drop(disk.omap.insert(k.clone(), v.clone())),
            MetaOp::Remove(k) => drop(disk.omap.remove(k)),
            MetaOp::RemoveRange(from, to) => disk.omap.retain(|k, _| k < from || k >= to),
        }
    }
    for o in &txn.remove {
        disk.objects.remove(o);
    }
    for (o, v, value) in &txn.put {
        disk.objects.insert(o.clone(), (*v, *value));
    }
}
