//! The load: a core that mounts the store and keeps so many operations going.

use super::{AGEING_BYTES, Kind, OBJECT_BYTES, Plan, Test, Until, objects};
use crate::machine::cpu_time as cpu;
use bytes::Bytes;
use io::disk::DiskDone;
use io::{AlignedBuf, BLOCK_BYTES, Core, Effects, Event, Now, Rng};
use std::time::Duration;
use store::{
    Config, Counters, Devices, Expect, Mount, ReadSet, Store, StoreEvent, SubmitError, Transaction,
    TxnId,
};
use types::{HObject, HashMap, Mono, ObjectKey, PoolId, SnapId};

/// Objects whose names are kept.
const KEPT_KEYS: u64 = 1 << 16;
/// Latencies that are kept in one piece.
const LATENCIES_PIECE: usize = 16 << 10;
/// Different contents that are written, so that the disk cannot know them all.
const PATTERNS: usize = 16;
/// A crash comes when the log is as full as it has ever been, but for a share of one in so many.
const LOG_SLACK: u64 = 20;
/// Merging into place that takes longer than this after a test has gone wrong.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// What one test gave.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub test: Test,
    /// Of each operation, sorted.
    pub latencies_ns: Vec<u64>,
    /// Bytes read or written.
    pub bytes: u64,
    pub seconds: f64,
    /// Until the last operation ended.
    pub cpu_seconds: f64,
    /// Until everything was in place, behind the end.
    pub drain_seconds: f64,
    /// The most CPU time that one turn of the loop took, the kernel's part included.
    pub longest_turn: Duration,
    /// The longest time for which writers were turned away.
    pub longest_wait: Duration,
    /// The longest time in which no operation ended.
    pub longest_pause: Duration,
    /// Operations that ended in each second.
    pub by_second: Vec<u64>,
    /// Memory of the process at the end.
    pub resident_bytes: u64,
    pub before: Counters,
    /// When everything was in place.
    pub after: Counters,
}

/// One of the operations under way.
#[derive(Default)]
struct Slot {
    /// None: it is free.
    since: Option<Mono>,
    object: Option<ObjectKey>,
    offset: u64,
    bytes: u64,
    set: ReadSet,
    /// It waits for a fetch or for durability.
    waits: bool,
}

enum Phase {
    Run,
    /// The time is over; the last operations come in.
    Finish,
    /// Everything is put in place.
    Drain,
}

struct Running {
    phase: Phase,
    test: Test,
    number: usize,
    began: Mono,
    ended: Mono,
    cpu: Duration,
    cpu_end: Duration,
    before: Counters,
    /// In pieces: one that grows is copied, which would count as time of the store.
    latencies_ns: Vec<Vec<u64>>,
    bytes: u64,
    by_second: Vec<u64>,
    longest_turn: Duration,
    /// CPU time at the end of the last turn.
    last_turn: Duration,
    /// Since when writers are turned away.
    refused: Option<Mono>,
    longest_wait: Duration,
    longest_pause: Duration,
    /// Objects begun, when the store is being filled.
    next: u64,
    /// Bytes begun.
    begun: u64,
    /// Bytes of the log that were needed when most of it was.
    most_log: u64,
}

/// The core.
pub(crate) struct Load {
    devices: Devices,
    config: Config,
    mount: Option<Mount>,
    store: Option<Store>,
    plan: Plan,
    /// Known when the store is mounted.
    pub objects: u64,
    /// The names of the first objects: to make one costs time that is not the store's.
    keys: Vec<ObjectKey>,
    limit: Duration,
    rng: Rng,
    small: Vec<Bytes>,
    large: Vec<Bytes>,
    slots: Vec<Slot>,
    /// Whose turn it is to be first: the one that was turned away.
    first: usize,
    /// Slots by the transaction they wait for.
    writing: HashMap<TxnId, usize>,
    /// Submits were answered with busy.
    blocked: bool,
    running: Option<Running>,
    failed: Option<String>,
    pub measured: Vec<Measured>,
}

fn patterns(rng: &mut Rng, bytes: usize, number: usize) -> Vec<Bytes> {
    let one = |rng: &mut Rng| {
        let mut buf = AlignedBuf::zeroed(bytes);
        rng.fill(buf.as_mut_slice());
        buf.freeze()
    };
    (0..number).map(|_| one(rng)).collect()
}

fn key(object: u64) -> ObjectKey {
    let name = format!("bench.{object:012}");
    let hash = spread(object);
    let pool = PoolId(1);
    HObject { pool, hash, name: name.as_str().into(), snap: SnapId::HEAD, ..HObject::min() }
        .to_key()
}

/// Spreads objects over the keys as a hash does.
fn spread(object: u64) -> u32 {
    (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl Load {
    pub(crate) fn new(devices: Devices, config: Config, plan: Plan) -> Self {
        let mut rng = Rng::with_seed(1);
        Load {
            small: patterns(&mut rng, BLOCK_BYTES, PATTERNS),
            large: patterns(&mut rng, OBJECT_BYTES as usize, 2),
            rng,
            devices,
            config,
            mount: None,
            store: None,
            objects: 0,
            keys: Vec::new(),
            limit: Duration::from_secs(plan.seconds),
            plan,
            slots: Vec::new(),
            first: 0,
            writing: HashMap::default(),
            blocked: false,
            running: None,
            failed: None,
            measured: Vec::new(),
        }
    }

    fn fail(&mut self, why: impl ToString) {
        self.failed.get_or_insert(why.to_string());
    }

    fn disk(&mut self, now: Now, done: DiskDone, fx: &mut Effects) {
        if let Some(store) = &mut self.store {
            store.handle(now, done, fx);
            self.events(now, fx);
            return;
        }
        let outcome = self.mount.as_mut().and_then(|m| m.handle(done, fx));
        match outcome {
            Some(Ok(store)) => {
                let device = self.devices.data.bytes;
                self.objects = objects(&self.plan, device, store.usage().available);
                self.keys = (0..self.objects.min(KEPT_KEYS)).map(key).collect();
                self.store = Some(store);
                self.begin(now, 0);
            }
            Some(Err(why)) => self.fail(why),
            None => {}
        }
    }

    fn events(&mut self, now: Now, fx: &mut Effects) {
        while let Some(event) = self.store.as_mut().and_then(Store::poll_event) {
            match event {
                StoreEvent::Durable { txns } => {
                    for txn in txns {
                        if let Some(slot) = self.writing.remove(&txn) {
                            self.end(now, slot);
                        }
                    }
                }
                StoreEvent::Fetched { waiter, result } => {
                    let slot = waiter as usize;
                    match result {
                        Ok(set) => {
                            self.slots[slot].set.merge(set);
                            self.slots[slot].waits = false;
                            self.go_on(now, slot, fx);
                        }
                        Err(why) => self.fail(why),
                    }
                }
                StoreEvent::Writable => self.blocked = false,
                StoreEvent::BadBlock { object, offset } => {
                    self.fail(format!("bytes at {offset} of {object:?} are damaged"));
                }
                StoreEvent::Fatal(why) => self.fail(why),
                StoreEvent::Unmounted => {}
            }
        }
    }

    fn begin(&mut self, now: Now, number: usize) {
        let (Some(store), Some(test)) = (&self.store, self.plan.tests.get(number)) else { return };
        self.slots = (0..test.depth).map(|_| Slot::default()).collect();
        self.running = Some(Running {
            phase: Phase::Run,
            test: *test,
            number,
            began: now.mono,
            ended: now.mono,
            cpu: cpu(),
            cpu_end: Duration::ZERO,
            before: store.counters(),
            latencies_ns: Vec::new(),
            bytes: 0,
            by_second: Vec::new(),
            longest_turn: Duration::ZERO,
            last_turn: cpu(),
            refused: None,
            longest_wait: Duration::ZERO,
            longest_pause: Duration::ZERO,
            next: 0,
            begun: 0,
            most_log: 0,
        });
    }

    /// Starts operations in all free slots, and goes on with those that had to wait.
    fn fill_slots(&mut self, now: Now, fx: &mut Effects) {
        for n in 0..self.slots.len() {
            let slot = (self.first + n) % self.slots.len();
            let Some(running) = &mut self.running else { return };
            if self.blocked && running.test.kind == Kind::Write {
                return;
            }
            if self.slots[slot].since.is_none() {
                if matches!(running.phase, Phase::Run) && self.is_over(now) {
                    self.set_phase(Phase::Finish);
                }
                if !self.begin_one(now, slot) {
                    continue;
                }
            }
            if !self.slots[slot].waits {
                self.go_on(now, slot, fx);
            }
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(running) = &mut self.running {
            running.phase = phase;
        }
    }

    /// Whether the running test begins nothing more.
    fn is_over(&self, now: Now) -> bool {
        let (Some(running), Some(store)) = (&self.running, &self.store) else { return true };
        let late = now.mono.since(running.began) >= self.limit;
        match running.test.until {
            Until::Filled => running.next >= self.objects,
            Until::Time => late,
            Until::Written { times } => {
                running.begun >= times * self.objects * self.plan.object_bytes
            }
            Until::LogFull => {
                let most = running.most_log;
                late && store.usage().log_used >= most - most / LOG_SLACK
            }
        }
    }

    /// Gives a free slot an operation, unless the test is over.
    fn begin_one(&mut self, now: Now, slot: usize) -> bool {
        let Some(running) = &mut self.running else { return false };
        if !matches!(running.phase, Phase::Run) {
            return false;
        }
        let bytes = match running.test.bytes {
            0 => AGEING_BYTES[self.rng.usize(0..AGEING_BYTES.len())],
            bytes => bytes,
        };
        let bytes = bytes.min(self.plan.object_bytes);
        let places = (self.plan.object_bytes - bytes) / BLOCK_BYTES as u64 + 1;
        let fill = running.test.until == Until::Filled;
        let object = if fill { running.next } else { self.rng.u64(0..self.objects) };
        running.next += 1;
        running.begun += bytes;
        let offset = self.rng.u64(0..places) * BLOCK_BYTES as u64;
        let set = ReadSet::new();
        let kept = self.keys.get(object as usize).cloned();
        let object = Some(kept.unwrap_or_else(|| key(object)));
        self.slots[slot] = Slot { since: Some(now.mono), object, offset, bytes, set, waits: false };
        true
    }

    /// Tries the operation of a slot.
    fn go_on(&mut self, now: Now, slot: usize, fx: &mut Effects) {
        let (Some(running), Some(store)) = (&mut self.running, &mut self.store) else { return };
        let test = running.test;
        let s = &mut self.slots[slot];
        let Some(object) = s.object.clone() else { return };
        let miss = match test.kind {
            Kind::Read => match store.read(&object, s.offset, s.bytes, &s.set) {
                Ok(pieces) => {
                    let got: usize =
                        pieces.iter().filter_map(|p| p.data.as_ref()).map(Bytes::len).sum();
                    if got as u64 != s.bytes {
                        let why = format!("{object:?} has {got} bytes where {} were", s.bytes);
                        self.fail(why);
                    }
                    return self.end(now, slot);
                }
                Err(miss) => miss,
            },
            Kind::Write => {
                let bytes = s.bytes as usize;
                let small = bytes <= BLOCK_BYTES;
                let from = if small { &self.small } else { &self.large };
                let data = from[self.rng.usize(..from.len())].slice(..bytes);
                let mut txn = Transaction::new(slot as u64);
                txn.write(&object, s.offset, data);
                match store.submit(now, &txn, &s.set) {
                    Ok(id) => {
                        if let Some(since) = running.refused.take() {
                            running.longest_wait = running.longest_wait.max(now.mono.since(since));
                        }
                        s.waits = true;
                        self.writing.insert(id, slot);
                        return;
                    }
                    Err(SubmitError::Miss(miss)) => miss,
                    Err(SubmitError::Busy) => {
                        running.refused.get_or_insert(now.mono);
                        self.blocked = true;
                        self.first = slot;
                        return;
                    }
                    Err(SubmitError::NoSpace) => return self.fail("it is full"),
                    Err(SubmitError::Invalid(why)) => return self.fail(why),
                }
            }
        };
        s.waits = true;
        store.fetch(now, miss, slot as u64, fx);
    }

    /// An operation is done.
    fn end(&mut self, now: Now, slot: usize) {
        let Some(running) = &mut self.running else { return };
        let done = std::mem::take(&mut self.slots[slot]);
        let Some(since) = done.since else { return };
        if running.latencies_ns.last().is_none_or(|piece| piece.len() == LATENCIES_PIECE) {
            running.latencies_ns.push(Vec::with_capacity(LATENCIES_PIECE));
        }
        let latency_ns = now.mono.since(since).as_nanos() as u64;
        if let Some(piece) = running.latencies_ns.last_mut() {
            piece.push(latency_ns);
        }
        running.bytes += done.bytes;
        running.longest_pause = running.longest_pause.max(now.mono.since(running.ended));
        running.ended = now.mono;
        let second = now.mono.since(running.began).as_secs() as usize;
        running.by_second.resize(running.by_second.len().max(second + 1), 0);
        running.by_second[second] += 1;
    }

    /// Goes from one phase, and one test, to the next. True when all is done.
    fn advance(&mut self, now: Now) -> bool {
        let (Some(running), Some(store)) = (&mut self.running, &mut self.store) else {
            return false;
        };
        let idle = self.slots.iter().all(|s| s.since.is_none());
        match running.phase {
            Phase::Finish if idle => {
                running.phase = Phase::Drain;
                running.cpu_end = cpu();
                if running.test.kind == Kind::Read || running.test.until == Until::LogFull {
                    return self.finish(now);
                }
                store.flush_soon();
            }
            Phase::Drain => {
                let drained = store.is_at_rest();
                let late = now.mono.since(running.ended) > DRAIN_LIMIT;
                if late && !drained {
                    self.fail("the store does not come to rest");
                } else if drained {
                    return self.finish(now);
                }
            }
            Phase::Run | Phase::Finish => {}
        }
        false
    }

    fn finish(&mut self, now: Now) -> bool {
        let (Some(running), Some(store)) = (self.running.take(), &self.store) else { return true };
        let mut latencies_ns = running.latencies_ns.concat();
        latencies_ns.sort_unstable();
        tracing::info!("{}: {} operations", running.test.name, latencies_ns.len());
        self.measured.push(Measured {
            test: running.test,
            latencies_ns,
            bytes: running.bytes,
            longest_turn: running.longest_turn,
            longest_wait: running.longest_wait,
            longest_pause: running.longest_pause,
            by_second: running.by_second,
            resident_bytes: uring::resident_bytes(std::process::id()).unwrap_or(0),
            seconds: running.ended.since(running.began).as_secs_f64(),
            cpu_seconds: running.cpu_end.saturating_sub(running.cpu).as_secs_f64(),
            drain_seconds: now.mono.since(running.ended).as_secs_f64(),
            before: running.before,
            after: store.counters(),
        });
        self.begin(now, running.number + 1);
        self.running.is_none()
    }
}

impl Core for Load {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                let mut mount =
                    Mount::new(self.devices.clone(), Expect::default(), self.config.clone());
                mount.start(fx);
                self.mount = Some(mount);
            }
            Event::Disk(done) => self.disk(now, done, fx),
            Event::Net(_) | Event::Kv(_) | Event::Timer | Event::Memory(_) | Event::Stop => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        // What needed nothing from the disk is done at once; nothing comes of it but the next.
        loop {
            self.fill_slots(now, fx);
            self.events(now, fx);
            let more = self.running.as_ref().is_some_and(|r| matches!(r.phase, Phase::Run));
            if !more || self.blocked || self.slots.iter().all(|s| s.since.is_some()) {
                break;
            }
        }
        if let Some(store) = &mut self.store {
            store.end_turn(now, fx);
        }
        self.events(now, fx);
        if let (Some(running), Some(store)) = (&mut self.running, &self.store) {
            if running.test.until == Until::LogFull {
                running.most_log = running.most_log.max(store.usage().log_used);
            }
            // Reads bring nothing about that takes long.
            if running.test.kind == Kind::Write {
                let cpu = cpu();
                let turn = cpu.saturating_sub(std::mem::replace(&mut running.last_turn, cpu));
                running.longest_turn = running.longest_turn.max(turn);
            }
        }
        if self.failed.is_none() && self.advance(now) {
            fx.exit(0, "done");
        }
        if let Some(why) = &self.failed {
            fx.exit(1, why.clone());
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let store = self.store.as_ref()?;
        let Some(running) = &self.running else { return Some(Mono(0)) };
        let idle = |s: &Slot| s.since.is_none() || !s.waits;
        let can_go = !self.blocked && self.slots.iter().any(idle);
        let turn = match running.phase {
            Phase::Run if can_go => Some(Mono(0)),
            Phase::Drain | Phase::Finish => Some(running.ended.after(DRAIN_LIMIT)),
            Phase::Run => None,
        };
        [store.next_deadline(), turn].into_iter().flatten().min()
    }
}
