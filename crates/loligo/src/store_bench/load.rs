//! The load: a core that mounts the store and keeps so many operations going.

use super::{Kind, OBJECT_BYTES, TESTS, Test};
use bytes::Bytes;
use io::disk::DiskDone;
use io::{AlignedBuf, BLOCK_BYTES, Core, Effects, Event, Now, Rng};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use store::{
    Config, Counters, Devices, Expect, Mount, ReadSet, Store, StoreEvent, SubmitError, Transaction,
    TxnId,
};
use types::{HObject, HashMap, Mono, ObjectKey, PoolId, SnapId};

/// Different contents that are written, so that the disk cannot know them all.
const PATTERNS: usize = 16;
/// Merging into place that takes longer than this after a test has gone wrong.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// What one test gave.
#[derive(Debug)]
pub(crate) struct Measured {
    pub test: Test,
    /// Of each operation, sorted.
    pub latencies_ns: Vec<u64>,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Until everything was in place, behind the end.
    pub drain_seconds: f64,
    pub before: Counters,
    pub after: Counters,
}

/// One of the operations under way.
#[derive(Default)]
struct Slot {
    /// None: it is free.
    since: Option<Mono>,
    object: u64,
    offset: u64,
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
    latencies_ns: Vec<u64>,
    /// Objects begun, when the store is being filled.
    next: u64,
}

/// The core.
pub(crate) struct Load {
    devices: Devices,
    config: Config,
    mount: Option<Mount>,
    store: Option<Store>,
    objects: u64,
    limit: Duration,
    rng: Rng,
    small: Vec<Bytes>,
    large: Vec<Bytes>,
    slots: Vec<Slot>,
    /// Slots by the transaction they wait for.
    writing: HashMap<TxnId, usize>,
    /// Submits were answered with busy.
    blocked: bool,
    running: Option<Running>,
    failed: Option<String>,
    pub measured: Vec<Measured>,
}

/// CPU time of the process.
fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
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
    pub(crate) fn new(devices: Devices, config: Config, objects: u64, seconds: u64) -> Self {
        let mut rng = Rng::with_seed(1);
        Load {
            small: patterns(&mut rng, BLOCK_BYTES, PATTERNS),
            large: patterns(&mut rng, OBJECT_BYTES as usize, 2),
            rng,
            devices,
            config,
            mount: None,
            store: None,
            objects,
            limit: Duration::from_secs(seconds),
            slots: Vec::new(),
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
        let (Some(store), Some(test)) = (&self.store, TESTS.get(number)) else { return };
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
            next: 0,
        });
    }

    /// Starts operations in all free slots, and goes on with those that had to wait.
    fn fill_slots(&mut self, now: Now, fx: &mut Effects) {
        for slot in 0..self.slots.len() {
            let Some(running) = &mut self.running else { return };
            if self.blocked && running.test.kind == Kind::Write {
                return;
            }
            let s = &mut self.slots[slot];
            if s.since.is_none() {
                let over = match running.test.fill {
                    true => running.next >= self.objects,
                    false => now.mono.since(running.began) >= self.limit,
                };
                if over && matches!(running.phase, Phase::Run) {
                    running.phase = Phase::Finish;
                }
                if !matches!(running.phase, Phase::Run) {
                    continue;
                }
                let places = OBJECT_BYTES / running.test.bytes;
                let object =
                    if running.test.fill { running.next } else { self.rng.u64(0..self.objects) };
                running.next += 1;
                let offset = self.rng.u64(0..places) * running.test.bytes;
                let set = ReadSet::new();
                *s = Slot { since: Some(now.mono), object, offset, set, waits: false };
            }
            if !self.slots[slot].waits {
                self.go_on(now, slot, fx);
            }
        }
    }

    /// Tries the operation of a slot.
    fn go_on(&mut self, now: Now, slot: usize, fx: &mut Effects) {
        let (Some(running), Some(store)) = (&self.running, &mut self.store) else { return };
        let test = running.test;
        let s = &mut self.slots[slot];
        let object = key(s.object);
        let miss = match test.kind {
            Kind::Read => match store.read(&object, s.offset, test.bytes, &s.set) {
                Ok(pieces) => {
                    let got: usize =
                        pieces.iter().filter_map(|p| p.data.as_ref()).map(Bytes::len).sum();
                    if got as u64 != test.bytes {
                        self.fail(format!("{object:?} has {got} bytes where {} were", test.bytes));
                    }
                    return self.end(now, slot);
                }
                Err(miss) => miss,
            },
            Kind::Write => {
                let from = if test.fill { &self.large } else { &self.small };
                let data = from[self.rng.usize(..from.len())].clone();
                let mut txn = Transaction::new(slot as u64);
                txn.write(&object, s.offset, data);
                match store.submit(&txn, &s.set) {
                    Ok(id) => {
                        s.waits = true;
                        self.writing.insert(id, slot);
                        return;
                    }
                    Err(SubmitError::Miss(miss)) => miss,
                    Err(SubmitError::Busy) => {
                        self.blocked = true;
                        return;
                    }
                    Err(SubmitError::NoSpace) => return self.fail("it is full"),
                    Err(SubmitError::Invalid(why)) => return self.fail(why),
                }
            }
        };
        s.waits = true;
        store.fetch(miss, slot as u64, fx);
    }

    /// An operation is done.
    fn end(&mut self, now: Now, slot: usize) {
        let Some(running) = &mut self.running else { return };
        let Some(since) = std::mem::take(&mut self.slots[slot]).since else { return };
        running.latencies_ns.push(now.mono.since(since).as_nanos() as u64);
        running.ended = now.mono;
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
                if running.test.kind == Kind::Read {
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
        tracing::info!("{}: {} operations", running.test.name, running.latencies_ns.len());
        let mut latencies_ns = running.latencies_ns;
        latencies_ns.sort_unstable();
        self.measured.push(Measured {
            test: running.test,
            latencies_ns,
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
            Event::Net(_) | Event::Kv(_) | Event::Timer | Event::Stop => {}
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
