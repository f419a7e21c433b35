//! Every sequence of up to three operations, with a crash at every boundary of disk operations,
//! every subset of the writes that were not durable then, torn writes, and crashes and errors while
//! what is left is mounted.
//!
//! A sequence is up to three letters of [`alphabet`] with a [`Pace`] between them: how far the store
//! gets before the next one comes. It begins on one of three stores: one whose log goes on at its
//! start, one where it goes around its end, and one with a log device. Crash points that a sequence
//! shares with one before it are tried once, and so is a disk that several crashes leave alike: the
//! others only compare what was found on it with what they allow.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `STORE_TEST_ONE_IN` | 8000 | one in so many sequences of three is tried, and one in its root of those of two; 1: all |
//! | `STORE_TEST_DEPTH` | 3 | longest sequence |
//! | `STORE_TEST_SEED` | 1 | which sequences, paces of those of three, tears |
//! | `STORE_TEST_JOBS` | 1 | threads: each takes sequences with another first letter |
//!
//! The whole: `STORE_TEST_ONE_IN=1 STORE_TEST_JOBS=2 cargo test --release -p store --test it all_sequences --
//! --nocapture`. With it each sequence of up to two is run at every pace on every store, and each
//! of three at one of the 36 pairs of paces on one of the stores: another seed takes others.

use crate::disk::Disk;
use crate::rig::{Rig, assert_same, bytes, fsck, key, mount_until, tiny_config};
use fastrand::Rng;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::model::Model;
use store::{Algorithm, Compress, Config, Expect, StoreError, Transaction, TxnId};
use types::{HashMap, HashSet};

/// Up to so many loose writes, every subset of them is tried.
const ALL_SUBSETS: usize = 4;
/// Otherwise, so many random ones.
const SOME_SUBSETS: usize = 8;
/// Crashes with torn writes, of each crash point.
const TEARS: usize = 3;
/// One in so many outcomes is mounted with crashes and errors while that goes on.
const RECOVERIES_ONE_IN: u8 = 20;
/// Objects from this on are changed by another sequencer.
const OTHERS: u64 = 50;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

type Make = fn(&mut Transaction) -> &mut Transaction;

struct Letter {
    name: &'static str,
    sequencer: u64,
    make: Make,
}

fn data(n: u8, len: usize) -> bytes::Bytes {
    (0..len).map(|i| n.wrapping_add((i / 100) as u8)).collect::<Vec<u8>>().into()
}

/// A new object may get what stands in object 3; objects 1 and 50 are there, 2 is a clone of 1, 5 is
/// one compressed extent.
fn alphabet() -> Vec<Letter> {
    let ours: [(&'static str, Make); 31] = [
        ("touch", |t| t.touch(&key(3))),
        ("write a new object", |t| t.write(&key(3), 0, data(1, 5000))),
        ("write small", |t| t.write(&key(2), 12_288, data(2, 4096))),
        ("overwrite a shared block", |t| t.write(&key(1), 4096, data(2, 4096))),
        ("overwrite part of a block", |t| t.write(&key(1), 5000, data(3, 100))),
        ("append", |t| t.write(&key(1), 40_000, data(4, 9000))),
        ("big write", |t| t.write(&key(1), 8192, data(5, 65_536))),
        ("big write with edges", |t| t.write(&key(3), 100, data(6, 40_000))),
        ("zero", |t| t.zero(&key(1), 6000, 20_000)),
        ("truncate", |t| t.truncate(&key(1), 10_000)),
        ("grow", |t| t.truncate(&key(2), 100_000)),
        ("remove", |t| t.remove(&key(1))),
        ("set attr", |t| t.set_attr(&key(1), bytes(b"b"), data(7, 30))),
        ("remove attrs", |t| t.rm_attr(&key(1), bytes(b"a")).rm_attrs(&key(2))),
        ("set meta", |t| t.set_meta(&key(1), data(8, 200))),
        ("set omap", |t| t.omap_set(&key(1), vec![(bytes(b"k2"), data(8, 50))])),
        ("set much omap", |t| t.omap_set(&key(2), many())),
        ("remove from omap", |t| t.omap_remove(&key(1), vec![bytes(b"k")])),
        ("remove omap range", |t| t.omap_remove_range(&key(2), bytes(b"a"), bytes(b"m05"))),
        ("clear omap", |t| t.omap_clear(&key(1))),
        ("set omap header", |t| t.omap_set_header(&key(2), data(9, 300))),
        ("clone", |t| t.clone_object(&key(1), &key(3))),
        ("clone over", |t| t.clone_object(&key(1), &key(2))),
        ("clone range", |t| t.clone_range(&key(1), 4000, 9000, &key(2), 8096)),
        ("rename", |t| t.rename(&key(1), &key(3))),
        ("write two objects", |t| {
            t.write(&key(1), 0, data(12, 4096)).write(&key(2), 0, data(13, 20_000))
        }),
        ("compressed write", |t| compressed(t).write(&key(3), 0, data(16, 40_960))),
        ("compressed overwrite", |t| compressed(t).write(&key(5), 4096, data(17, 16_384))),
        ("overwrite in a compressed extent", |t| t.write(&key(5), 9000, data(18, 100))),
        ("share a compressed extent", |t| {
            t.clone_object(&key(5), &key(3)).clone_range(&key(5), 4096, 9000, &key(2), 8192)
        }),
        ("swap and remove", |t| {
            t.rename(&key(2), &key(4)).clone_object(&key(1), &key(2)).remove(&key(1));
            t.omap_set(&key(4), vec![(bytes(b"moved"), data(14, 20))])
        }),
    ];
    let theirs: [(&'static str, Make); 2] = [
        ("another's big write", |t| t.write(&key(OTHERS), 0, data(20, 12_288))),
        ("another's small write", |t| t.write(&key(OTHERS), 100, data(21, 600))),
    ];
    let ours = ours.map(|(name, make)| Letter { name, sequencer: 0, make });
    let theirs = theirs.map(|(name, make)| Letter { name, sequencer: 1, make });
    ours.into_iter().chain(theirs).collect()
}

fn compressed(txn: &mut Transaction) -> &mut Transaction {
    txn.compress = Some(Compress {
        algorithm: Algorithm::Lz4,
        required_per_mille: 875,
        min_blob_bytes: 8 << 10,
        max_blob_bytes: 64 << 10,
    });
    txn
}

fn many() -> Vec<(bytes::Bytes, bytes::Bytes)> {
    (0..12u8).map(|n| (bytes(format!("m{n:02}").as_bytes()), data(n, 700))).collect()
}

/// How far the store gets after an operation, before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// They are in one turn.
    Together,
    /// Their writes are in flight together.
    Flying,
    /// One disk operation is done.
    Step,
    /// It is durable.
    Durable,
    /// A checkpoint has begun.
    Begun,
    /// All is in place and in the tree.
    Checkpoint,
}

const PACES: [Pace; 6] =
    [Pace::Together, Pace::Flying, Pace::Step, Pace::Durable, Pace::Begun, Pace::Checkpoint];

fn config() -> Config {
    Config { wal_bytes: 256 << 10, small_write_bytes: 4 << 10, ..tiny_config() }
}

/// A store to begin with.
struct Base {
    name: &'static str,
    disk: Disk,
    model: Model,
}

fn base(name: &'static str, sizes: &[u64], used_of_log: u64) -> Base {
    let mut rig = Rig::new(5, sizes, &config());
    rig.disk.in_order = true;
    let mut model = Model::new();
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, data(9, 30_000)).set_attr(&key(1), bytes(b"a"), data(10, 40));
    txn.omap_set(&key(1), vec![(bytes(b"k"), data(11, 60))]).omap_set_header(&key(1), data(1, 9));
    txn.clone_object(&key(1), &key(2)).write(&key(OTHERS), 0, data(15, 5000));
    let mut packed = Transaction::new(0);
    compressed(&mut packed).write(&key(5), 0, data(19, 20_480));
    rig.commit(&packed);
    model.apply(&packed).unwrap();
    assert_eq!(rig.store.usage().compressed, 4096);
    loop {
        rig.commit(&txn);
        model.apply(&txn).unwrap();
        rig.sleep();
        if rig.store.counters().log_bytes / 4096 >= used_of_log {
            break;
        }
        txn = Transaction::new(0);
        txn.set_attr(&key(1), bytes(b"a"), data(10, 40));
    }
    Base { name, disk: rig.unmount(), model }
}

fn bases() -> Vec<Base> {
    vec![
        base("a young store", &[2 << 20], 0),
        base("a log at its end", &[2 << 20], 60),
        base("a log device", &[2 << 20, 320 << 10], 0),
    ]
}

/// What one sequencer has been given.
struct History {
    /// The model after each transaction, the first before any.
    models: Vec<Model>,
    ids: Vec<TxnId>,
}

impl History {
    fn durable(&self, rig: &Rig) -> usize {
        self.ids.iter().rposition(|id| rig.durable.contains(id)).map_or(0, |i| i + 1)
    }
}

/// Splits the objects by who changes them.
fn split(model: &Model) -> [Model; 2] {
    let mut parts = [Model::new(), Model::new()];
    for (name, object) in &model.objects {
        let part = usize::from(*name >= key(OTHERS));
        parts[part].objects.insert(name.clone(), object.clone());
    }
    parts
}

/// What may be there after a crash: of each sequencer, one of these.
type Allowed<'a> = [&'a [Model]; 2];

fn assert_allowed(dump: &Model, allowed: Allowed<'_>, what: &str) {
    for (got, models) in split(dump).iter().zip(allowed) {
        if !models.contains(got) {
            assert_same(got, &models[0], what);
        }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sequences: u64,
    points: u64,
    outcomes: u64,
    /// Outcomes that left a disk as another one had.
    alike: u64,
    /// Crashes and errors while a store was mounted.
    recoveries: u64,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.sequences += more.sequences;
        self.points += more.points;
        self.outcomes += more.outcomes;
        self.alike += more.alike;
        self.recoveries += more.recoveries;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} sequences, {} crash points, {} outcomes of crashes ({} left a disk as another one), \
             {} crashes and errors of mounts",
            self.sequences, self.points, self.outcomes, self.alike, self.recoveries
        )
    }
}

/// The sequences with one first letter.
struct Enumeration {
    rng: Rng,
    seen: HashSet<u64>,
    /// What was found on disks, by their digests.
    found: HashMap<u64, [u64; 2]>,
    counts: Counts,
}

/// A sequence being run.
struct Sequence<'a> {
    e: &'a mut Enumeration,
    rig: Rig,
    histories: [History; 2],
    /// What was done so far, hashed: the same again leads to the same.
    trace: u64,
    what: String,
}

impl Sequence<'_> {
    fn did(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// False when the operation makes no sense here.
    fn submit(&mut self, number: usize, letter: &Letter) -> bool {
        let mut txn = Transaction::new(letter.sequencer);
        (letter.make)(&mut txn);
        let history = &mut self.histories[letter.sequencer as usize];
        let mut next = history.models.last().unwrap().clone();
        if next.apply(&txn).is_err() {
            return false;
        }
        history.ids.push(self.rig.must(&txn));
        history.models.push(next);
        self.did(number as u64 + 100);
        true
    }

    fn end_turn(&mut self) {
        self.rig.end_turn();
        self.did(1);
        self.crash();
    }

    /// One disk operation and what follows from it. False when nothing is to be done.
    fn step(&mut self) -> bool {
        let went = self.rig.complete_one();
        let due = self.rig.store.next_deadline().is_some_and(|at| at <= self.rig.now.mono);
        if went || due {
            self.did(2);
            self.end_turn();
        }
        went || due
    }

    fn rest(&mut self) {
        while self.step() {}
    }

    fn flush(&mut self) {
        self.rig.store.flush_soon();
        self.did(3);
        self.end_turn();
    }

    fn pace(&mut self, pace: Pace) {
        match pace {
            Pace::Together => {}
            Pace::Flying => self.end_turn(),
            Pace::Step => {
                self.end_turn();
                self.step();
            }
            Pace::Durable => {
                self.end_turn();
                self.rest();
            }
            Pace::Begun => {
                self.flush();
                for _ in 0..4 {
                    self.step();
                }
            }
            Pace::Checkpoint => {
                self.flush();
                self.rest();
            }
        }
    }

    /// All that a crash may leave of this moment.
    fn crash(&mut self) {
        if !self.e.seen.insert(self.trace) {
            return;
        }
        self.e.counts.points += 1;
        let rng = &mut self.e.rng;
        let loose = self.rig.disk.loose_writes();
        let subsets: Vec<u64> = if loose <= ALL_SUBSETS {
            (0..1u64 << loose).collect()
        } else {
            (0..SOME_SUBSETS).map(|_| rng.u64(..)).collect()
        };
        for mask in subsets {
            self.outcome(|_, write, _| mask & (1 << write.min(63)) != 0);
        }
        for _ in 0..if loose > 0 { TEARS } else { 0 } {
            self.torn(loose);
        }
    }

    /// Cuts one write off somewhere, from the front or from the back, or mixes sectors of all.
    fn torn(&mut self, loose: usize) {
        let rng = &mut self.e.rng;
        let (mask, torn, cut) = (rng.u64(..), rng.usize(..loose), rng.usize(1..24));
        let manner = rng.u8(0..3);
        self.outcome(|rng, write, sector| match manner {
            0 if write == torn => sector < cut,
            1 if write == torn => sector >= cut,
            2 => rng.bool(),
            _ => mask & (1 << write.min(63)) != 0,
        });
    }

    fn outcome(&mut self, keep: impl FnMut(&mut Rng, usize, usize) -> bool) {
        self.e.counts.outcomes += 1;
        let mut disk = self.rig.disk.clone();
        disk.rng = self.e.rng.fork();
        disk.crash(keep);
        let [ours, theirs] = &self.histories;
        let from = [ours.durable(&self.rig), theirs.durable(&self.rig)];
        let allowed: Allowed<'_> = [&ours.models[from[0]..], &theirs.models[from[1]..]];
        let what = format!("{}, {from:?} durable", self.what);
        let digest = disk.digest();
        if let Some(found) = self.e.found.get(&digest) {
            self.e.counts.alike += 1;
            for (found, models) in found.iter().zip(allowed) {
                let is_allowed = models.iter().any(|m| stands_for(m) == *found);
                assert!(is_allowed, "{what}: what another crash left as well is not allowed");
            }
            return;
        }
        if self.e.rng.u8(0..RECOVERIES_ONE_IN) == 0 {
            self.e.counts.recoveries += crash_recovery(&disk, allowed, &what);
        }
        let dump = check(disk, allowed, &what);
        self.e.found.insert(digest, split(&dump).map(|part| stands_for(&part)));
    }
}

/// A number for all that a model holds.
fn stands_for(model: &Model) -> u64 {
    HashSet::<u64>::default().hasher().hash_one(model)
}

fn assert_checks_clean(disk: &mut Disk, what: &str) {
    let report = fsck(disk, &config());
    // The copies of the superblock are written together: one may be older than the other.
    let bad = |f: &&store::Finding| !f.place.starts_with("superblock");
    let findings: Vec<_> = report.findings.iter().filter(bad).collect();
    assert!(findings.is_empty() && !report.is_damaged(), "{what}: {findings:?}");
}

fn open(disk: Disk, allowed: Allowed<'_>, what: &str) -> (Rig, Model) {
    let mut rig = Rig::open(disk, &config()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let dump = rig.dump().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_allowed(&dump, allowed, what);
    (rig, dump)
}

/// Gives what is there.
fn check(mut disk: Disk, allowed: Allowed<'_>, what: &str) -> Model {
    assert_checks_clean(&mut disk, what);
    let (rig, dump) = open(disk, allowed, what);
    rig.store.check_accounting();
    // What a mounted store showed stays.
    let mut disk = rig.disk;
    disk.crash(|_, _, _| false);
    let again = Rig::open(disk, &config()).unwrap_or_else(|e| panic!("{what}, again: {e}")).dump();
    assert_same(&again.unwrap(), &dump, &format!("{what}, mounted twice"));
    dump
}

/// Mounts with a crash after each of its disk operations, with every subset of its writes, and with
/// each of its disk operations failing. Gives how many.
fn crash_recovery(disk: &Disk, allowed: Allowed<'_>, what: &str) -> u64 {
    let mut tried = 0;
    for steps in 0.. {
        let mut cut = disk.clone();
        let ended = mount_until(&mut cut, &config(), Expect::default(), steps);
        assert!(cut.loose_writes() <= ALL_SUBSETS, "a mount writes little");
        // With nothing to lose the outcome is that of no crash.
        let from = u64::from(cut.loose_writes() == 0);
        for mask in from..1u64 << cut.loose_writes() {
            let mut crashed = cut.clone();
            crashed.crash(|_, write, _| mask & (1 << write) != 0);
            let what = format!("{what}, mount cut after {steps} steps");
            assert_checks_clean(&mut crashed, &what);
            open(crashed, allowed, &what);
            tried += 1;
        }
        if ended.is_some() {
            break;
        }
        let mut failing = disk.clone();
        failing.fail_after = Some(steps);
        let what = format!("{what}, step {steps} of the mount failing");
        let ended = mount_until(&mut failing, &config(), Expect::default(), u64::MAX);
        failing.fail_after = None;
        if let Some(Ok(store)) = ended {
            // It could do without: but data of a big write that could not be verified may be bad.
            match Rig::with(failing, store).dump() {
                Ok(dump) => assert_allowed(&dump, allowed, &what),
                Err(StoreError::BadBlock { .. }) => {}
                Err(why) => panic!("{what}: {why}"),
            }
        } else {
            failing.crash_randomly();
            open(failing, allowed, &what);
        }
        tried += 1;
    }
    tried
}

impl Enumeration {
    fn new(seed: u64) -> Self {
        let (seen, found) = (HashSet::default(), HashMap::default());
        Enumeration { rng: Rng::with_seed(seed), seen, found, counts: Counts::default() }
    }

    /// Runs letters with paces between them (one less), then lets the store come to rest, first
    /// idle and then with a checkpoint.
    fn run(&mut self, base: (usize, &Base), letters: &[(usize, &Letter)], paces: &[Pace]) {
        let names: Vec<_> = letters.iter().map(|(_, l)| l.name).collect();
        let what = format!("on {}: {}, at {paces:?}", base.1.name, names.join(", then "));
        let rig = Rig::open(base.1.disk.clone(), &config()).unwrap();
        let start = split(&base.1.model);
        let histories = start.map(|m| History { models: vec![m], ids: Vec::new() });
        let mut s = Sequence { e: self, rig, histories, trace: base.0 as u64 + 1, what };
        for (i, (number, letter)) in letters.iter().enumerate() {
            if !s.submit(*number, letter) {
                return;
            }
            s.pace(paces.get(i).copied().unwrap_or(Pace::Flying));
        }
        s.rest();
        // The log is told that all is durable.
        s.rig.now.mono.0 += 200_000_000;
        s.did(4);
        s.end_turn();
        s.rest();
        s.flush();
        s.rest();
        let all = s.histories.iter().map(|h| h.ids.len()).sum::<usize>();
        assert_eq!(s.rig.durable.len(), all, "{}", s.what);
        self.counts.sequences += 1;
    }

    /// All that begin with the letter `a`.
    fn all(&mut self, letters: &[Letter], bases: &[Base], a: usize, depth: u64, one_in: u64) {
        let letters: Vec<_> = letters.iter().enumerate().collect();
        let bases: Vec<_> = bases.iter().enumerate().collect();
        let a = letters[a];
        let taken = |rng: &mut Rng, one_in: u64| rng.u64(0..one_in) == 0;
        for base in &bases {
            self.run(*base, &[a], &[]);
        }
        for b in letters.iter().filter(|_| depth > 1) {
            for (base, pace) in bases.iter().flat_map(|b| PACES.map(|p| (b, p))) {
                if taken(&mut self.rng, one_in.isqrt()) {
                    self.run(*base, &[a, *b], &[pace]);
                }
            }
            for c in letters.iter().filter(|_| depth > 2) {
                if taken(&mut self.rng, one_in) {
                    let paces = [0, 1].map(|_| PACES[self.rng.usize(..PACES.len())]);
                    let base = bases[self.rng.usize(..bases.len())];
                    self.run(base, &[a, *b, *c], &paces);
                }
            }
        }
    }
}

#[test]
fn all_sequences_of_up_to_three_operations() {
    let (depth, one_in) = (variable("STORE_TEST_DEPTH", 3), variable("STORE_TEST_ONE_IN", 8000));
    let (seed, jobs) = (variable("STORE_TEST_SEED", 1), variable("STORE_TEST_JOBS", 1));
    let (letters, bases) = (alphabet(), bases());
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    let work = || {
        loop {
            let a = next.fetch_add(1, Ordering::Relaxed);
            let Some(letter) = letters.get(a) else { return };
            let mut e = Enumeration::new(seed.wrapping_mul(1000).wrapping_add(a as u64));
            e.all(&letters, &bases, a, depth, one_in.max(1));
            all.lock().unwrap().add(e.counts);
            if one_in == 1 {
                println!("{}: {}", letter.name, e.counts);
            }
        }
    };
    std::thread::scope(|s| (0..jobs).for_each(|_| drop(s.spawn(work))));
    let all = *all.lock().unwrap();
    println!("{all}");
    assert!(all.points > 1000);
}
