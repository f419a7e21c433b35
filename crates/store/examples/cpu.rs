//! CPU time per operation, on a disk in memory that answers at once.
//!
//! What the disk itself costs (copying between its memory and ours) is measured apart and taken
//! off, so that the figures are those of the store. Run with `--release`.

use bytes::Bytes;
use fastrand::Rng;
use io::disk::{DeviceInfo, DiskDone, DiskOp, DiskToken};
use io::{AlignedBuf, BLOCK_BYTES, Effects, Now};
use std::collections::VecDeque;
use std::time::Duration;
use store::{
    Config, Devices, Expect, Identity, Mkfs, Mount, ReadSet, Store, StoreEvent, SubmitError,
    Transaction,
};
use types::{Mono, ObjectKey, OsdId, Uuid};

/// CPU time of this thread: what others do on the machine does not count.
fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Chunks of memory; writes and reads copy.
struct Ram {
    data: Vec<u8>,
    queue: VecDeque<(DiskToken, DiskOp)>,
    spent: Duration,
    written: u64,
    writes: u64,
    reads: u64,
}

impl Ram {
    fn new(bytes: usize) -> Ram {
        Ram {
            data: vec![0; bytes],
            queue: VecDeque::new(),
            spent: Duration::ZERO,
            written: 0,
            writes: 0,
            reads: 0,
        }
    }

    fn take(&mut self, fx: &mut Effects) {
        self.queue.extend(fx.disk.drain(..));
    }

    fn complete(&mut self) -> Option<DiskDone> {
        let (token, op) = self.queue.pop_front()?;
        let start = cpu();
        let result = match op {
            DiskOp::Read { offset, len, .. } => {
                self.reads += 1;
                let from = offset as usize;
                Ok(AlignedBuf::copy_of(&self.data[from..from + len]).freeze())
            }
            DiskOp::Write { offset, data, .. } => {
                self.writes += 1;
                let mut at = offset as usize;
                for piece in data {
                    self.data[at..at + piece.len()].copy_from_slice(&piece);
                    at += piece.len();
                    self.written += piece.len() as u64;
                }
                Ok(Bytes::new())
            }
            DiskOp::Flush { .. } | DiskOp::Discard { .. } => Ok(Bytes::new()),
        };
        self.spent += cpu() - start;
        Some(DiskDone { token, result })
    }
}

struct Bench {
    ram: Ram,
    store: Store,
    fx: Effects,
    now: Now,
    durable: u64,
    fetched: Vec<(u64, ReadSet)>,
    slowest: Duration,
}

fn open(bytes: usize, config: &Config) -> Bench {
    let mut ram = Ram::new(bytes);
    let info = DeviceInfo { path: "ram".into(), bytes: bytes as u64, is_block: false };
    let devices = Devices { data: info, wal: None };
    let identity = Identity { cluster: Uuid([1; 16]), osd: OsdId(0), store: Uuid([2; 16]) };
    let mut fx = Effects::new();
    let mut mkfs = Mkfs::new(devices.clone(), identity, config, false).expect("a large device");
    mkfs.start(&mut fx);
    loop {
        ram.take(&mut fx);
        let done = ram.complete().expect("mkfs goes on");
        if mkfs.handle(done, &mut fx).is_some() {
            break;
        }
    }
    let store = mount(&mut ram, devices, config);
    Bench {
        ram,
        store,
        fx,
        now: Now::default(),
        durable: 0,
        fetched: Vec::new(),
        slowest: Duration::ZERO,
    }
}

fn mount(ram: &mut Ram, devices: Devices, config: &Config) -> Store {
    let mut fx = Effects::new();
    let mut mount = Mount::new(devices, Expect::default(), config.clone());
    mount.start(&mut fx);
    loop {
        ram.take(&mut fx);
        let done = ram.complete().expect("the mount goes on");
        if let Some(outcome) = mount.handle(done, &mut fx) {
            return outcome.expect("the store is good");
        }
    }
}

impl Bench {
    /// One turn: completes what is in flight, calls `f`, ends the turn.
    fn turn(&mut self, f: impl FnOnce(&mut Self)) {
        self.now.mono = Mono(self.now.mono.0 + 100_000);
        let n = self.ram.queue.len();
        for _ in 0..n {
            let Some(done) = self.ram.complete() else { break };
            self.store.handle(self.now, done, &mut self.fx);
        }
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Durable { txns } => self.durable += txns.len() as u64,
                StoreEvent::Fetched { waiter, result } => {
                    self.fetched.push((waiter, result.expect("memory does not rot")));
                }
                StoreEvent::Fatal(why) => panic!("{why}"),
                _ => {}
            }
        }
        f(self);
        let (start, spent) = (cpu(), self.ram.spent);
        self.store.end_turn(self.now, &mut self.fx);
        self.slowest = self.slowest.max((cpu() - start) - (self.ram.spent - spent));
        self.ram.take(&mut self.fx);
    }

    fn idle(&mut self) {
        loop {
            self.turn(|_| {});
            let due = self.store.next_deadline().is_some_and(|at| at <= self.now.mono);
            if self.ram.queue.is_empty() && !due {
                return;
            }
        }
    }

    fn submit(&mut self, txn: &Transaction) -> bool {
        let mut set = ReadSet::new();
        loop {
            match self.store.submit(self.now, txn, &set) {
                Ok(_) => return true,
                Err(SubmitError::Busy) => return false,
                Err(SubmitError::Miss(miss)) => {
                    self.store.fetch(self.now, miss, u64::MAX, &mut self.fx);
                    self.ram.take(&mut self.fx);
                    while !self.fetched.iter().any(|(w, _)| *w == u64::MAX) {
                        self.turn(|_| {});
                    }
                    let at =
                        self.fetched.iter().position(|(w, _)| *w == u64::MAX).expect("it is there");
                    set.merge(self.fetched.remove(at).1);
                }
                Err(why) => panic!("{why:?}"),
            }
        }
    }
}

fn object(n: u64) -> ObjectKey {
    ObjectKey::from_bytes(format!("........rbd_data.10226b8b4567.{n:016x}........").as_bytes())
}

const OBJECT: u64 = 4 << 20;

fn report(
    name: &str,
    ops: u64,
    wall: Duration,
    disk: Duration,
    b: &Bench,
    before: (u64, store::Counters),
    payload: u64,
) {
    let c = b.store.counters();
    let us = (wall - disk).as_secs_f64() * 1e6 / ops as f64;
    let written = (b.ram.written - before.0) as f64 / (ops * payload) as f64;
    println!(
        "{name:32} {us:8.2} us/op  written/payload {written:5.2}  log {:5.2}  in place {:5.2}  nodes {:5.2}  checkpoints {:3}  busy {:6}  slowest turn {:?}",
        (c.log_bytes - before.1.log_bytes) as f64 / (ops * payload) as f64,
        ((c.in_place_blocks - before.1.in_place_blocks) * 4096) as f64 / (ops * payload) as f64,
        (c.node_bytes - before.1.node_bytes) as f64 / (ops * payload) as f64,
        c.checkpoints - before.1.checkpoints,
        c.submit_busy - before.1.submit_busy,
        b.slowest,
    );
}

/// Transactions `make` at a depth, until `ops` are durable.
fn writes(
    b: &mut Bench,
    name: &str,
    ops: u64,
    depth: u64,
    payload: u64,
    meta: bool,
    mut make: impl FnMut(&mut Transaction, u64),
) {
    let before = (b.ram.written, b.store.counters());
    b.slowest = Duration::ZERO;
    let (start, spent, first) = (cpu(), b.ram.spent, b.durable);
    let mut submitted = 0;
    let log = ObjectKey::from_bytes(b"pg meta");
    while b.durable - first < ops {
        b.turn(|b| {
            while submitted < ops && submitted - (b.durable - first) < depth {
                let mut txn = Transaction::new(submitted % 8);
                make(&mut txn, submitted);
                if meta {
                    let key = Bytes::from(format!("{:020}", submitted));
                    txn.omap_set(&log, vec![(key, Bytes::from(vec![7; 150]))]);
                    if submitted >= 1000 {
                        txn.omap_remove(
                            &log,
                            vec![Bytes::from(format!("{:020}", submitted - 1000))],
                        );
                    }
                }
                if !b.submit(&txn) {
                    break;
                }
                submitted += 1;
            }
        });
    }
    let name = if meta { format!("{name} + log entry") } else { name.to_string() };
    report(&name, ops, cpu() - start, b.ram.spent - spent, b, before, payload);
}

fn reads(b: &mut Bench, name: &str, ops: u64, depth: u64, len: u64, objects: u64) {
    let mut rng = Rng::with_seed(3);
    let before = (b.ram.written, b.store.counters());
    b.slowest = Duration::ZERO;
    let (start, spent) = (cpu(), b.ram.spent);
    let (mut done, mut asked) = (0u64, 0u64);
    let mut wanted: Vec<(ObjectKey, u64)> = vec![(object(0), 0); depth as usize];
    let mut free: Vec<u64> = (0..depth).collect();
    let mut bytes = 0u64;
    let mut misses = 0u64;
    while done < ops {
        b.turn(|b| {
            for (waiter, set) in std::mem::take(&mut b.fetched) {
                let (key, at) = &wanted[waiter as usize];
                match b.store.read(key, *at, len, &set) {
                    Ok(pieces) => {
                        bytes += pieces.iter().map(|p| p.len).sum::<u64>();
                        done += 1;
                        free.push(waiter);
                    }
                    Err(miss) => {
                        misses += 1;
                        b.store.fetch(b.now, miss, waiter, &mut b.fx)
                    }
                }
            }
            while asked < ops
                && let Some(waiter) = free.pop()
            {
                asked += 1;
                let key = object(rng.u64(0..objects));
                let at = rng.u64(0..OBJECT / len) * len;
                match b.store.read(&key, at, len, &ReadSet::new()) {
                    Ok(pieces) => {
                        bytes += pieces.iter().map(|p| p.len).sum::<u64>();
                        done += 1;
                        free.push(waiter);
                    }
                    Err(miss) => {
                        wanted[waiter as usize] = (key, at);
                        b.store.fetch(b.now, miss, waiter, &mut b.fx);
                    }
                }
            }
        });
    }
    assert_eq!(bytes, ops * len);
    let _ = misses;
    report(name, ops, cpu() - start, b.ram.spent - spent, b, before, len);
}

fn main() {
    let gib: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    let memory: usize = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(512);
    let config = Config { wal_bytes: 256 << 20, ..Config::for_memory(memory << 20) };
    let device = (gib as usize + 1) << 30;
    let objects = (gib << 30) / OBJECT * 3 / 4;
    let mut b = open(device, &config);
    let big = AlignedBuf::copy_of(&(0..OBJECT as usize).map(|i| (i / 7) as u8).collect::<Vec<_>>())
        .freeze();
    writes(&mut b, "write 4M, new objects", objects, 16, OBJECT, false, |txn, n| {
        txn.write(&object(n), 0, big.clone());
    });
    b.idle();
    let mut rng = Rng::with_seed(1);
    let small = AlignedBuf::copy_of(&[0x5a; BLOCK_BYTES]).freeze();
    for (depth, meta) in [(1, false), (32, false), (32, true), (128, false)] {
        let name = format!("randwrite 4k QD{depth}");
        writes(&mut b, &name, 400_000, depth, 4096, meta, |txn, _| {
            let at = rng.u64(0..OBJECT / 4096) * 4096;
            let key = object(rng.u64(0..objects));
            txn.write(&key, at, small.clone());
            txn.set_meta(&key, Bytes::from_static(&[1; 100]));
        });
    }
    b.store.flush_soon();
    b.idle();
    reads(&mut b, "randread 4k QD32", 400_000, 32, 4096, objects);
    reads(&mut b, "randread 4k QD1", 200_000, 1, 4096, objects);
    reads(&mut b, "randread 64k QD32", 40_000, 32, 65536, objects);
    reads(&mut b, "read 4M QD16", 400, 16, OBJECT, objects);
    writes(&mut b, "overwrite 4M QD16", 400, 16, OBJECT, false, |txn, n| {
        txn.write(&object(n % objects), 0, big.clone());
    });
    writes(&mut b, "randwrite 64k QD32", 20_000, 32, 65536, false, |txn, _| {
        let at = rng.u64(0..OBJECT / 65536) * 65536;
        txn.write(&object(rng.u64(0..objects)), at, big.slice(..65536));
    });
    println!("{:?}", b.store.usage());
    println!("{:?}", b.store.counters());
    let start = cpu();
    let spent = b.ram.spent;
    let devices = b.store.devices().clone();
    let store = mount(&mut b.ram, devices, &config);
    println!(
        "mount without closing: {:?} of CPU; {:?}",
        (cpu() - start) - (b.ram.spent - spent),
        store.usage().objects
    );
}
