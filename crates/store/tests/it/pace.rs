//! How a store paces its writers, on disks that take time: virtual time, so that each run is the same
//! and takes little of ours.

use crate::rig::{identity, key};
use bytes::Bytes;
use fastrand::Rng;
use io::disk::{DevId, DeviceInfo, DiskDone, DiskOp, DiskToken};
use io::{AlignedBuf, BLOCK_BYTES, Effects, Now};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{
    Config, Devices, Expect, Mkfs, Mount, ReadSet, Store, StoreEvent, SubmitError, Transaction,
    TxnId,
};
use types::{Mono, ObjectKey};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// How fast a disk is. It does one thing after the other.
#[derive(Clone, Copy)]
struct Speed {
    /// Nanoseconds of each operation.
    op_ns: u64,
    /// And of each block on top.
    block_ns: u64,
}

/// What a fast disk takes: 50,000 operations a second, 1 GB/s.
const FAST: Speed = Speed { op_ns: 20_000, block_ns: 4_000 };

/// A disk that puts operations into a queue.
struct SlowDisk {
    bytes: u64,
    speed: Speed,
    blocks: BTreeMap<u64, Bytes>,
    free_at: u64,
    busy_ns: u64,
    reads: u64,
    writes: u64,
}

impl SlowDisk {
    fn new(bytes: u64, speed: Speed) -> Self {
        let blocks = BTreeMap::new();
        SlowDisk { bytes, speed, blocks, free_at: 0, busy_ns: 0, reads: 0, writes: 0 }
    }

    /// Carries an operation out: when it is over, and what a read gives.
    fn carry_out(&mut self, now: u64, op: DiskOp) -> (u64, Bytes) {
        let block = BLOCK_BYTES as u64;
        let (blocks, out) = match op {
            DiskOp::Read { offset, len, .. } => {
                self.reads += 1;
                let mut buf = AlignedBuf::zeroed(len);
                let blocks = offset / block..(offset + len as u64) / block;
                for (at, out) in blocks.clone().zip(buf.as_mut_slice().chunks_mut(BLOCK_BYTES)) {
                    if let Some(data) = self.blocks.get(&at) {
                        out.copy_from_slice(data);
                    }
                }
                (blocks.count() as u64, buf.freeze())
            }
            DiskOp::Write { offset, data, .. } => {
                self.writes += 1;
                let all: Vec<u8> = data.iter().flat_map(|d| d.iter().copied()).collect();
                let all = Bytes::from(all);
                for (i, at) in (offset / block..).take(all.len() / BLOCK_BYTES).enumerate() {
                    let piece = all.slice(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES);
                    self.blocks.insert(at, piece);
                }
                ((all.len() / BLOCK_BYTES) as u64, Bytes::new())
            }
            DiskOp::Flush { .. } | DiskOp::Discard { .. } => (0, Bytes::new()),
        };
        let took = self.speed.op_ns + blocks * self.speed.block_ns;
        self.free_at = self.free_at.max(now) + took;
        self.busy_ns += took;
        (self.free_at, out)
    }
}

/// The disks of a store, and what is in flight on them.
struct Disks {
    disks: Vec<SlowDisk>,
    ends: BTreeMap<(u64, DiskToken), Bytes>,
}

impl Disks {
    fn devices(&self) -> Devices {
        let info = |i: usize| DeviceInfo {
            path: format!("/sim/{i}"),
            bytes: self.disks[i].bytes,
            is_block: false,
        };
        Devices { data: info(0), wal: (self.disks.len() > 1).then(|| info(1)) }
    }

    fn submit(&mut self, now: u64, fx: &mut Effects) {
        for (token, op) in fx.disk.drain(..) {
            let dev = match &op {
                DiskOp::Read { dev, .. }
                | DiskOp::Write { dev, .. }
                | DiskOp::Flush { dev }
                | DiskOp::Discard { dev, .. } => *dev,
            };
            let DevId(dev) = dev;
            let (end, out) = self.disks[usize::from(dev)].carry_out(now, op);
            self.ends.insert((end, token), out);
        }
    }

    /// The first operation that ends, by `until` at the latest.
    fn next_end(&mut self, until: u64) -> Option<(u64, DiskDone)> {
        let entry = self.ends.first_entry().filter(|e| e.key().0 <= until)?;
        let ((at, token), out) = entry.remove_entry();
        Some((at, DiskDone { token, result: Ok(out) }))
    }
}

/// A store with writers who each wait for one write before they begin the next.
struct Pace {
    disks: Disks,
    store: Store,
    now: u64,
    fx: Effects,
    rng: Rng,
    writers: Vec<Option<u64>>,
    /// Whose turn it is to be first.
    first: usize,
    waiting: BTreeMap<TxnId, usize>,
    busy: bool,
    objects: u64,
    object_bytes: u64,
    /// What was not in memory and has come.
    fetched: Option<ReadSet>,
    /// When each write ended.
    ends: Vec<u64>,
    longest_ns: u64,
}

fn at(ns: u64) -> Now {
    Now { mono: Mono(ns), ..Now::default() }
}

fn open(mut disks: Disks, config: &Config) -> (Disks, Store, u64) {
    let mut fx = Effects::new();
    let mut mkfs = Mkfs::new(disks.devices(), identity(), config, false).unwrap();
    mkfs.start(&mut fx);
    let mut now = 0;
    loop {
        disks.submit(now, &mut fx);
        let (end, done) = disks.next_end(u64::MAX).unwrap();
        now = end;
        if let Some(made) = mkfs.handle(done, &mut fx) {
            made.unwrap();
            break;
        }
    }
    let mut mount = Mount::new(disks.devices(), Expect::default(), config.clone());
    mount.start(&mut fx);
    loop {
        disks.submit(now, &mut fx);
        let (end, done) = disks.next_end(u64::MAX).unwrap();
        now = end;
        if let Some(store) = mount.handle(done, &mut fx) {
            return (disks, store.unwrap(), now);
        }
    }
}

impl Pace {
    fn new(disks: Vec<SlowDisk>, config: &Config, writers: usize) -> Self {
        let disks = Disks { disks, ends: BTreeMap::new() };
        let (disks, store, now) = open(disks, config);
        Pace {
            disks,
            store,
            now,
            fx: Effects::new(),
            rng: Rng::with_seed(1),
            writers: vec![None; writers],
            first: 0,
            waiting: BTreeMap::new(),
            busy: false,
            objects: 0,
            object_bytes: 1 << 20,
            fetched: None,
            ends: Vec::new(),
            longest_ns: 0,
        }
    }

    /// Submits, when what it needs of the tree has been read.
    fn submit(&mut self, txn: &Transaction) -> Result<TxnId, SubmitError> {
        let mut reads = ReadSet::new();
        loop {
            match self.store.submit(at(self.now), txn, &reads) {
                Err(SubmitError::Miss(miss)) => {
                    self.store.fetch(at(self.now), miss, 0, &mut self.fx)
                }
                other => return other,
            }
            while self.fetched.is_none() {
                self.turn(u64::MAX, false);
            }
            reads.merge(self.fetched.take().unwrap());
        }
    }

    /// Writes `objects` once.
    fn fill(&mut self, objects: u64) {
        (0..objects).for_each(|n| self.write_once(&key(n)));
        self.objects = objects;
        self.store.flush_soon();
        while !self.store.is_at_rest() {
            self.turn(u64::MAX, false);
        }
    }

    fn write_once(&mut self, object: &ObjectKey) {
        let durable = self.store.counters().durable;
        let mut txn = Transaction::new(0);
        txn.write(object, 0, vec![1; self.object_bytes as usize].into());
        while let Err(why) = self.submit(&txn) {
            assert!(matches!(why, SubmitError::Busy), "{why:?}");
            self.turn(u64::MAX, false);
        }
        while self.store.counters().durable == durable {
            self.turn(u64::MAX, false);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Durable { txns } => {
                    for txn in txns {
                        let Some(writer) = self.waiting.remove(&txn) else { continue };
                        let since = self.writers[writer].take().unwrap();
                        self.ends.push(self.now);
                        self.longest_ns = self.longest_ns.max(self.now - since);
                    }
                }
                StoreEvent::Writable => self.busy = false,
                StoreEvent::Fetched { result, .. } => self.fetched = Some(result.unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }

    fn write(&mut self) {
        for n in 0..self.writers.len() {
            let writer = (self.first + n) % self.writers.len();
            let since = *self.writers[writer].get_or_insert(self.now);
            if self.busy || self.waiting.values().any(|w| *w == writer) {
                continue;
            }
            let mut txn = Transaction::new(writer as u64);
            let blocks = self.object_bytes / BLOCK_BYTES as u64;
            let offset = self.rng.u64(..blocks) * BLOCK_BYTES as u64;
            txn.write(&key(self.rng.u64(..self.objects)), offset, vec![2; BLOCK_BYTES].into());
            match self.submit(&txn) {
                Ok(id) => drop(self.waiting.insert(id, writer)),
                Err(SubmitError::Busy) => {
                    self.busy = true;
                    self.first = writer;
                }
                Err(other) => panic!("{other:?}"),
            }
            assert!(since <= self.now);
        }
    }

    /// One turn, at the next thing that happens, if that is before `until`.
    fn turn(&mut self, until: u64, write: bool) -> bool {
        self.store.end_turn(at(self.now), &mut self.fx);
        self.events();
        self.disks.submit(self.now, &mut self.fx);
        let due = self.store.next_deadline().map(|d| d.0.max(self.now));
        let end = self.disks.ends.first_key_value().map(|((end, _), _)| *end);
        let next = [due, end].into_iter().flatten().min().expect("something happens");
        if next > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        while let Some((_, done)) = self.disks.next_end(self.now) {
            assert!(self.store.handle(at(self.now), done, &mut self.fx));
            self.events();
        }
        if write {
            self.write();
        }
        true
    }

    /// Lets the writers write for so long: when each write ended, since the beginning.
    fn load(&mut self, time: Duration) -> Vec<u64> {
        let began = self.now;
        let until = began + time.as_nanos() as u64;
        self.ends.clear();
        self.longest_ns = 0;
        self.write();
        while self.turn(until, true) {}
        self.ends.iter().map(|end| end - began).collect()
    }
}

/// How many of `ends` are in each interval.
fn by_interval(ends: &[u64], interval: u64, count: usize) -> Vec<u64> {
    let mut out = vec![0; count];
    for end in ends {
        if let Some(n) = out.get_mut((end / interval) as usize) {
            *n += 1;
        }
    }
    out
}

/// A config with room for memory not to be the limit.
fn roomy() -> Config {
    Config { wal_bytes: 64 << 20, ..Config::for_memory(64 << 20) }
}

/// The pace of a store under random writes of 4 KiB, 32 at a time.
struct Run {
    tenths: Vec<u64>,
    longest_ms: u64,
    /// Of the log, in blocks.
    log: u64,
}

/// Loads a store of 128 MiB on a slow disk with a log of so many bytes on a fast one.
fn burst(slow: Speed, log: u64, seconds: u64) -> Run {
    let disks = vec![SlowDisk::new(256 << 20, slow), SlowDisk::new(log, FAST)];
    let mut pace = Pace::new(disks, &roomy(), 32);
    pace.fill(128);
    let ends = pace.load(Duration::from_secs(seconds));
    let tenths = by_interval(&ends, SECOND / 10, seconds as usize * 10);
    let run = Run { tenths, longest_ms: pace.longest_ns / MILLI, log: log / BLOCK_BYTES as u64 };
    println!("in each 100 ms: {:?}; the longest took {} ms", run.tenths, run.longest_ms);
    run
}

impl Run {
    /// The burst was taken at the speed of the log; then the rate fell to `rate` a second, without
    /// going far below, and nobody waited for a second.
    fn check(&self, rate: u64) {
        assert!(self.longest_ms < 1000, "a write took {} ms", self.longest_ms);
        // A batch of 32 writes has one or two blocks more. The log is not filled beyond 3/4 so fast.
        let taken: u64 = self.tenths[..3].iter().sum();
        assert!(taken > self.log * 6 / 10, "{taken} of {} blocks were taken at once", self.log);
        // It comes down, smoothly: no interval is much above the one before.
        for pair in self.tenths.windows(2).filter(|p| p[0] > 0) {
            assert!(pair[1] < pair[0] * 3 / 2 + rate / 10, "{pair:?} in successive intervals");
        }
        // And it does not go below the disk's.
        let least = self.tenths.chunks(5).map(|c| c.iter().sum::<u64>()).min().unwrap();
        assert!(least * 2 > rate * 7 / 10, "{least} in half a second, of {rate} in one");
        let last = &self.tenths[self.tenths.len() / 2..];
        let mean = last.iter().sum::<u64>() * 10 / last.len() as u64;
        assert!(mean < rate * 2, "{mean} a second in the end, where the disk does {rate}");
    }
}

#[test]
fn a_burst_goes_at_the_speed_of_the_log_then_falls_smoothly_to_that_of_the_disk() {
    // 2,000 operations a second.
    let slow = Speed { op_ns: 496_000, block_ns: 4_000 };
    burst(slow, 16 << 20, 10).check(2000);
    burst(slow, 64 << 20, 20).check(2000);
}

#[test]
fn a_burst_before_a_very_slow_disk_ends_without_a_halt() {
    // A spinning disk: 200 operations a second.
    let slow = Speed { op_ns: 4_980_000, block_ns: 20_000 };
    burst(slow, 16 << 20, 60).check(200);
}

#[test]
fn checkpoints_do_not_hold_up_writers() {
    // Little memory for changes, so that one checkpoint follows the other.
    let config = Config { memtable_bytes: 1 << 20, ..roomy() };
    let disks = vec![SlowDisk::new(512 << 20, FAST)];
    let mut pace = Pace::new(disks, &config, 8);
    pace.fill(256);
    let before = pace.store.counters().checkpoints;
    pace.load(Duration::from_secs(4));
    let checkpoints = pace.store.counters().checkpoints - before;
    println!("{checkpoints} checkpoints; the longest write took {} us", pace.longest_ns / 1000);
    assert!(checkpoints >= 8, "{checkpoints} checkpoints");
    assert!(pace.longest_ns < 10 * MILLI, "a write took {} us", pace.longest_ns / 1000);
}

/// A store whose log is four times what it may keep in memory, with writers who are faster than its disk.
fn overloaded() -> Pace {
    let slow = Speed { op_ns: 496_000, block_ns: 4_000 };
    let disks = vec![SlowDisk::new(256 << 20, slow), SlowDisk::new(64 << 20, FAST)];
    let mut pace = Pace::new(disks, &roomy(), 32);
    pace.fill(128);
    pace
}

#[test]
fn what_has_left_memory_is_read_back_in_long_pieces() {
    let mut pace = overloaded();
    let before = pace.store.counters();
    pace.load(Duration::from_secs(20));
    let now = pace.store.counters();
    let blocks = now.in_place_blocks - before.in_place_blocks;
    let reads = now.in_place_reads - before.in_place_reads;
    println!("{reads} reads for {blocks} blocks");
    assert!(blocks > 20_000, "{blocks} blocks");
    assert!(reads > 0, "the log was larger than memory");
    assert!(reads * 8 < blocks, "{reads} reads for {blocks} blocks");
}

#[test]
fn a_checkpoint_reads_leaves_that_stand_side_by_side_in_one_piece() {
    // No leaf stays in memory; what is written over is known by outlines.
    let config = Config { memtable_bytes: 1 << 20, page_cache_bytes: 32 << 10, ..roomy() };
    let mut pace = Pace::new(vec![SlowDisk::new(512 << 20, FAST)], &config, 32);
    pace.fill(256);
    pace.load(Duration::from_secs(1));
    let (nodes, reads) = (pace.store.counters().nodes_read, pace.disks.disks[0].reads);
    pace.load(Duration::from_secs(2));
    let nodes = pace.store.counters().nodes_read - nodes;
    let reads = pace.disks.disks[0].reads - reads;
    println!("{reads} reads for {nodes} nodes");
    assert!(nodes > 200, "{nodes} nodes");
    assert!(reads * 4 < nodes, "{reads} reads for {nodes} nodes");
}

#[test]
fn leaves_that_change_at_random_are_written_and_read_in_long_pieces() {
    // Long names: ten objects to a leaf. Each checkpoint finds new ones for two leaves of five, of which few
    // are in memory.
    let config = Config { memtable_bytes: 2 << 20, page_cache_bytes: 1 << 20, ..roomy() };
    let disks = vec![SlowDisk::new(512 << 20, FAST), SlowDisk::new(64 << 20, FAST)];
    let mut pace = Pace::new(disks, &config, 1);
    pace.object_bytes = BLOCK_BYTES as u64;
    let key = |n: u64| ObjectKey::from_bytes(format!("{n:06}{}", "-".repeat(300)).as_bytes());
    let mut objects: Vec<ObjectKey> = (0..1 << 15).map(key).collect();
    Rng::with_seed(1).shuffle(&mut objects);
    let (first, last) = objects.split_at(objects.len() / 2);
    first.iter().for_each(|object| pace.write_once(object));
    let (before, disk) = (pace.store.counters(), &pace.disks.disks[0]);
    let (reads, writes) = (disk.reads, disk.writes);
    last.iter().for_each(|object| pace.write_once(object));
    let (now, disk) = (pace.store.counters(), &pace.disks.disks[0]);
    let (read, written) =
        (now.nodes_read - before.nodes_read, now.nodes_written - before.nodes_written);
    let others =
        now.in_place_writes + now.superblocks - before.in_place_writes - before.superblocks;
    let (reads, writes) = (disk.reads - reads, disk.writes - writes - others);
    println!("{reads} reads for {read} nodes, {writes} writes for {written} nodes");
    assert!(written > 5_000, "{written} nodes");
    assert!(writes * 8 < written, "{writes} writes for {written} nodes");
    assert!(reads * 2 < read, "{reads} reads for {read} nodes");
}

#[test]
fn writers_who_are_held_are_called_only_when_several_may_go() {
    let mut pace = overloaded();
    pace.load(Duration::from_secs(10));
    let before = pace.store.counters().submit_busy;
    let ends = pace.load(Duration::from_secs(10));
    let busy = pace.store.counters().submit_busy - before;
    println!("{busy} times too early for {} writes", ends.len());
    assert!(busy > 0, "the log was full");
    assert!(busy * 8 < ends.len() as u64, "{busy} times too early for {} writes", ends.len());
}
