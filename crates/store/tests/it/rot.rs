//! A filled store, damaged in one place at a time: bits flipped, writes that never got to the disk,
//! writes that went elsewhere. Nothing wrong is returned, a check names what was hit, nothing
//! panics.
//!
//! What was hit is known without asking the store: a check of the good store reads each tree node
//! and each block of an object that counts, and nothing else outside the log. So damage there must
//! be named *every* time, and so must damage to a superblock and to a batch that is needed. Damage
//! elsewhere hits what nobody needs: then everything must read as before.
//!
//! `STORE_TEST_FLIPS=100000 cargo test --release -p store --test it rot:: -- --nocapture` makes so
//! many of each kind; without it a bounded number.

use crate::disk::{Disk, Written};
use crate::r#gen::{Flavour, Gen};
use crate::rig::{
    Rig, Taken, assert_clean, bytes, fsck, fsck_in_parts, key, mount, outline_config, run_fsck,
    tiny_config,
};
use fastrand::Rng;
use io::disk::DevId;
use io::{BLOCK_BYTES, Effects, Now};
use std::collections::{BTreeMap, BTreeSet};
use store::model::Model;
use store::{
    Config, Expect, Finding, Fsck, FsckReport, Miss, MountError, MountReadOnly, ReadSet, ReadStore,
    Store, StoreError, StoreEvent, Transaction,
};
use types::ObjectKey;

/// Pieces of damage that are tried on one store before another is filled.
const PER_STORE: u64 = 250;
const DATA: DevId = DevId(0);
const BLOCK: u64 = BLOCK_BYTES as u64;

fn tries(default: u64) -> u64 {
    std::env::var("STORE_TEST_FLIPS").ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// What stands in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Holds {
    Superblock,
    /// A tree node, or a block of an object: what a check reads.
    Needed,
    /// A part of a batch that a mount replays and a later batch confirms: its header and records up
    /// to this byte of the block.
    Batch {
        bytes: usize,
    },
    /// Blocks in the log, padding, the last batch, older things.
    Other,
}

/// A batch: its number, where it begins, all its blocks, and the last one that it calls durable.
struct Head {
    seq: u64,
    at: u64,
    blocks: Vec<u64>,
    durable_seq: u64,
}

/// A store that was not closed, its content, and what stands where.
struct Filled {
    disk: Disk,
    model: Model,
    holds: BTreeMap<(DevId, u64), Holds>,
    heads: Vec<Head>,
    config: Config,
    bytes: u64,
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().unwrap())
}

fn u32_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(b[at..at + 4].try_into().unwrap()))
}

impl Filled {
    fn new(seed: u64) -> Filled {
        // Sometimes most is in the log, sometimes most in the tree.
        // And sometimes rows are changed that are not in memory.
        let (flavour, config) = match seed % 3 {
            0 => (Flavour::Images, outline_config()),
            _ => (Flavour::Mixed, tiny_config()),
        };
        let memtable_bytes = if seed.is_multiple_of(2) { 128 << 10 } else { 4 << 20 };
        let config = Config { memtable_bytes, ..config };
        let bytes = 6 << 20;
        let mut rng = Rng::with_seed(seed);
        let mut rig = Rig::new(seed, &[bytes], &config);
        rig.disk.log = Some(Vec::new());
        let mut model = Model::new();
        let generator = Gen { objects: 8, blocks: 30, write_blocks: 12, flavour, ..Gen::default() };
        for _ in 0..rng.usize(20..60) {
            if flavour == Flavour::Images && rng.bool() {
                rig.store.flush_soon();
                rig.settle();
                for key in model.objects.keys() {
                    rig.store.drop_caches();
                    rig.read(key, 0, BLOCK).unwrap();
                }
                rig.store.drop_caches();
            }
            let txn = generator.txn(&mut rng, 0);
            let mut next = model.clone();
            if next.apply(&txn).is_ok() && matches!(rig.submit(&txn), Taken::Yes(_)) {
                model = next;
            }
            if rng.u8(0..5) == 0 {
                rig.turn();
            }
        }
        rig.settle();
        // The log is told that its last batch was durable.
        rig.now.mono.0 += 200_000_000;
        rig.settle();
        let mut disk = rig.disk;
        disk.crash(|_, _, _| true);
        let (holds, heads) = (BTreeMap::new(), Vec::new());
        let mut filled = Filled { disk, model, holds, heads, config, bytes };
        filled.look();
        filled
    }

    fn supers(&self) -> [u64; 4] {
        let end = self.bytes / BLOCK_BYTES as u64;
        [0, 1, end - 2, end - 1]
    }

    /// Finds out what stands where.
    fn look(&mut self) {
        let mut disk = self.disk.clone();
        disk.read_blocks.clear();
        assert_clean(&mut disk, &self.config, "before the damage");
        let supers = self.supers();
        let log = 16..16 + self.config.wal_bytes / BLOCK_BYTES as u64;
        for (dev, block) in disk.read_blocks.iter().copied() {
            if !log.contains(&block) && !supers.contains(&block) {
                self.holds.insert((dev, block), Holds::Needed);
            }
        }
        let newest = supers.iter().max_by_key(|b| u64_at(&disk.block(DATA, **b), 80)).unwrap();
        let newest = disk.block(DATA, *newest);
        for block in supers.iter().filter(|b| disk.block(DATA, **b)[..8] == *b"LoligoSB") {
            self.holds.insert((DATA, *block), Holds::Superblock);
        }
        self.find_batches(&disk, u64_at(&newest, 112).min(u64_at(&newest, 128)));
    }

    /// The batches from `first` on but the last, which nothing confirms.
    fn find_batches(&mut self, disk: &Disk, first: u64) {
        let blocks = self.config.wal_bytes / BLOCK_BYTES as u64;
        let mut heads = Vec::new();
        for at in 0..blocks {
            let b = disk.block(DATA, 16 + at);
            if b[..8] == *b"LoligoWA" && u64_at(&b, 40) >= first {
                let len = u32_at(&b, 64) + u32_at(&b, 68);
                let (seq, durable_seq) = (u64_at(&b, 40), u64_at(&b, 80));
                let of_batch = (at..at + len).map(|at| 16 + at % blocks).collect();
                heads.push((seq, at, 128 + u32_at(&b, 56), durable_seq));
                self.heads.push(Head { seq, at: 16 + at, blocks: of_batch, durable_seq });
            }
        }
        heads.sort_unstable();
        let confirmed = heads.iter().map(|h| h.3).max().unwrap_or(0);
        for (_, at, bytes, _) in heads.into_iter().filter(|h| h.0 <= confirmed) {
            for i in 0..bytes.div_ceil(BLOCK_BYTES as u64) {
                let bytes = (bytes as usize - i as usize * BLOCK_BYTES).min(BLOCK_BYTES);
                self.holds.insert((DATA, 16 + (at + i) % blocks), Holds::Batch { bytes });
            }
        }
    }

    /// A batch that none behind it confirms: without it the log ends before it. When it is the one that
    /// hits the data of the last big write, nothing tells that write from one that was never finished: the
    /// window that `Config::mark_interval_ms` speaks of.
    fn is_unconfirmed_batch(&self, write: &Written) -> bool {
        let confirmed = self.heads.iter().map(|h| h.durable_seq).max();
        let head = &write.new[0];
        head[..8] == *b"LoligoWA" && Some(u64_at(&head[..], 40)) > confirmed
    }

    /// What stands in this block, as far as damage to these bytes of it is concerned.
    fn hit(&self, dev: DevId, block: u64, bytes: impl Iterator<Item = usize>) -> Holds {
        match self.holds.get(&(dev, block)).copied().unwrap_or(Holds::Other) {
            Holds::Batch { bytes: end } => {
                let mut bytes = bytes;
                if bytes.any(|b| b < end) { Holds::Batch { bytes: end } } else { Holds::Other }
            }
            other => other,
        }
    }

    /// Whether a batch that confirms this one is still there.
    fn is_confirmed(&self, bad: &Disk, seq: u64) -> bool {
        let is_whole = |at: u64| self.disk.block(DATA, at)[..128] == bad.block(DATA, at)[..128];
        self.heads.iter().any(|h| h.durable_seq >= seq && is_whole(h.at))
    }

    /// Whether a batch was hit together with all that confirm it: nothing tells it then from one that
    /// was never wholly written.
    fn takes_the_end(&self, bad: &Disk) -> bool {
        let is_hit = |at: &u64| self.disk.block(DATA, *at) != bad.block(DATA, *at);
        let mut known = self.heads.iter().filter(|h| self.is_confirmed(&self.disk, h.seq));
        known.any(|h| h.blocks.iter().any(is_hit) && !self.is_confirmed(bad, h.seq))
    }
}

#[derive(Default, Debug)]
struct Tally {
    refused: u64,
    /// Objects read out of those that were refused.
    rescued: u64,
    unreadable: u64,
    repaired: u64,
    harmless: u64,
    /// Blocks that were read by outlines.
    outlined: u64,
    /// Damage to what is needed, all of which must have been found.
    must: u64,
}

/// All that a check says, whatever it found first.
fn in_order(mut report: FsckReport) -> String {
    report.findings.sort_by_key(|finding| finding.to_string());
    format!("{report:?}")
}

/// Looks at a damaged disk. `must`: a check must find it.
fn look_at(filled: &Filled, mut bad: Disk, must: bool, tally: &mut Tally, what: &str) {
    let report = fsck(&mut bad, &filled.config);
    let in_parts = fsck_in_parts(&mut bad, &filled.config, 2);
    assert_eq!(in_order(in_parts), in_order(report.clone()), "{what}: in parts");
    assert!(!must || !report.is_good(), "{what}: not found");
    tally.must += u64::from(must);
    let before = bad.clone();
    let store = match mount(&mut bad, &filled.config, Expect::default()) {
        Ok(store) => store,
        Err(why) => {
            assert!(report.is_damaged(), "{what}: {why}, but a check finds no damage");
            tally.rescued += rescue(filled, before, what);
            tally.refused += 1;
            return;
        }
    };
    let mut rig = Rig::with(bad, store);
    let mut failed = 0;
    for (key, want) in &filled.model.objects {
        match rig.object(key) {
            Ok(Some(got)) => assert!(got == *want, "{what}: {key:?} is wrong"),
            Ok(None) => panic!("{what}: {key:?} is gone"),
            Err(why) => {
                failed += 1;
                assert_named(&report, &why, what);
            }
        }
    }
    // Once more, as far as it goes by what is known of rows that are not in memory.
    let objects = filled.model.objects.iter();
    for (key, want) in objects.flat_map(|object| [object; 2]) {
        rig.store.drop_caches();
        match rig.read(key, BLOCK, BLOCK) {
            Ok(got) => assert!(got == want.read(BLOCK, BLOCK), "{what}: {key:?} is wrong"),
            Err(why) => assert_named(&report, &why, what),
        }
    }
    tally.outlined += rig.store.counters().outlined_blocks_read;
    match rig.list() {
        Ok(all) => assert_eq!(all.len(), filled.model.objects.len(), "{what}: objects"),
        Err(why) => assert_named(&report, &why, what),
    }
    match (failed, report.is_good()) {
        (0, true) => tally.harmless += 1,
        (0, false) => tally.repaired += 1,
        _ => tally.unreadable += 1,
    }
}

/// Reads what a store that no mount takes still holds; nothing is written. Gives the number of
/// objects. When the log is whole, what is read is what was written.
fn rescue(filled: &Filled, mut disk: Disk, what: &str) -> u64 {
    let written = disk.writes;
    let Ok(mut reader) = Reader::open(&mut disk, &filled.config) else { return 0 };
    let problems = reader.store.problems().to_vec();
    assert!(!problems.is_empty(), "{what}: refused, and nothing is wrong");
    let log_is_whole = problems.iter().all(|p| p.starts_with("tree node"));
    let mut rescued = 0;
    for (key, want) in &filled.model.objects {
        let Ok(size) = reader.run(&mut disk, |s, _| s.stat(key).map(|o| o.map(|o| o.size))) else {
            continue;
        };
        let Ok(pieces) = reader.run(&mut disk, |s, set| s.read(key, 0, u64::MAX, set)) else {
            continue;
        };
        let mut got = Vec::new();
        for piece in pieces {
            let zeros = || vec![0; piece.len as usize];
            got.extend(piece.data.map_or_else(zeros, |data| data.to_vec()));
        }
        let right = size == Some(want.size) && got == want.read(0, u64::MAX);
        assert!(right || !log_is_whole, "{what}: {key:?} is wrong; {problems:?}");
        rescued += 1;
    }
    assert_eq!(disk.writes, written, "{what}: nothing is written");
    rescued
}

/// A store that is only read.
pub struct Reader {
    pub store: ReadStore,
}

impl Reader {
    pub fn open(disk: &mut Disk, config: &Config) -> Result<Reader, MountError> {
        let mut fx = Effects::new();
        let mut mount = MountReadOnly::new(disk.devices(), config.clone());
        if let Some(why) = mount.start(&mut fx) {
            return Err(why);
        }
        loop {
            fx.disk.drain(..).for_each(|(token, op)| disk.submit(token, op));
            let done = disk.complete().expect("it waits for nothing but the disk");
            if let Some(outcome) = mount.handle(done, &mut fx) {
                while disk.complete().is_some() {}
                return outcome.map(|store| Reader { store });
            }
        }
    }

    pub fn run<T>(
        &mut self,
        disk: &mut Disk,
        f: impl Fn(&Store, &ReadSet) -> Result<T, Miss>,
    ) -> Result<T, StoreError> {
        let mut set = ReadSet::new();
        loop {
            let miss = match f(&self.store, &set) {
                Ok(done) => return Ok(done),
                Err(miss) => miss,
            };
            let mut fx = Effects::new();
            self.store.fetch(Now::default(), miss, 0, &mut fx);
            fx.disk.drain(..).for_each(|(token, op)| disk.submit(token, op));
            while let Some(done) = disk.complete() {
                assert!(self.store.handle(Now::default(), done, &mut fx));
            }
            while let Some(event) = self.store.poll_event() {
                if let StoreEvent::Fetched { result, .. } = event {
                    set.merge(result?);
                }
            }
        }
    }
}

/// What could not be read is named by the check.
fn assert_named(report: &FsckReport, why: &StoreError, what: &str) {
    let named = match why {
        StoreError::BadBlock { object, .. } => {
            report.findings.iter().any(|f| f.object.as_ref() == Some(object))
        }
        StoreError::BadMetadata { block, .. } => {
            let place = format!("tree node at block {block}");
            report.findings.iter().any(|f| f.place == place)
        }
        StoreError::Io { .. } => false,
    };
    assert!(named && report.is_damaged(), "{what}: {why}; the check says {:?}", report.findings);
}

fn on_stores(tries: u64, first_seed: u64, mut one: impl FnMut(&Filled, &mut Rng, &str)) {
    for n in 0..tries.div_ceil(PER_STORE) {
        let filled = Filled::new(first_seed + n);
        let mut rng = Rng::with_seed(n ^ 77);
        for i in 0..PER_STORE.min(tries - n * PER_STORE) {
            one(&filled, &mut rng, &format!("store {}, try {i}", first_seed + n));
        }
    }
}

#[test]
fn flipped_bits() {
    let mut tally = Tally::default();
    let tries = tries(500);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    on_stores(tries, 0, |filled, rng, what| {
        let mut bad = filled.disk.clone();
        // All kinds alike: most blocks are objects' data.
        let holds = [Holds::Superblock, Holds::Needed, Holds::Other][rng.usize(0..3)];
        let all: Vec<_> = match rng.u8(0..4) {
            0 => bad.written(),
            _ => {
                let alike = |h: &Holds| std::mem::discriminant(h) == std::mem::discriminant(&holds);
                let batch = |h: &Holds| matches!(h, Holds::Batch { .. }) && holds == Holds::Other;
                let some = filled.holds.iter().filter(|(_, h)| alike(h) || batch(h));
                some.map(|(at, _)| *at).collect::<BTreeSet<_>>().into_iter().collect()
            }
        };
        if all.is_empty() {
            return;
        }
        let (dev, block) = all[rng.usize(..all.len())];
        let bit = rng.usize(..BLOCK_BYTES * 8);
        let hit = filled.hit(dev, block, std::iter::once(bit / 8));
        let name = match hit {
            Holds::Superblock => "superblock",
            Holds::Needed => "tree or data",
            Holds::Batch { .. } => "log records",
            Holds::Other => "logged blocks and what nobody needs",
        };
        *kinds.entry(name).or_default() += 1;
        bad.flip(dev, block, bit);
        let what = format!("{what}, bit {bit} of block {block}, {name}");
        look_at(filled, bad, hit != Holds::Other, &mut tally, &what);
    });
    println!("{tries} flips: {tally:?}; hit {kinds:?}");
    assert!(tally.rescued > 0);
    assert!(tally.refused > 0 && tally.unreadable > 0 && tally.repaired > 0 && tally.harmless > 0);
}

/// Takes a write back as far as nothing newer stands there.
fn lose(disk: &mut Disk, write: &Written) {
    for (block, (old, new)) in (write.block..).zip(write.old.iter().zip(&write.new)) {
        if disk.block(write.dev, block) == **new {
            disk.poke(write.dev, block, **old);
        }
    }
}

/// One of the writes, and its number. Later ones are more likely still to be there.
fn a_write(filled: &Filled, rng: &mut Rng) -> (usize, Written) {
    let log = filled.disk.log.as_ref().unwrap();
    let n = log.len() - 1 - (rng.f64() * rng.f64() * log.len() as f64) as usize;
    (n, log[n].clone())
}

/// Whether a write after this one went to the block, and so undoes what it did there.
fn is_overwritten(filled: &Filled, n: usize, dev: DevId, block: u64) -> bool {
    let later = filled.disk.log.as_ref().unwrap()[n + 1..].iter();
    let hits =
        |w: &Written| w.dev == dev && (w.block..w.block + w.new.len() as u64).contains(&block);
    later.into_iter().any(hits)
}

/// Whether a check must find what is wrong with this block now.
fn must_be_found(filled: &Filled, bad: &Disk, dev: DevId, block: u64) -> bool {
    let (was, is) = (filled.disk.block(dev, block), bad.block(dev, block));
    let changed = (0..BLOCK_BYTES).filter(|b| was[*b] != is[*b]);
    // The copies of the older superblock may be older still: nobody compares them.
    let generation = |b| u64_at(&filled.disk.block(DATA, b), 80);
    let newest = filled.supers().map(generation).into_iter().max();
    let older = Some(generation(block)) < newest && is[..8] == *b"LoligoSB";
    let (mut changed, spare) = (changed.peekable(), filled.supers().contains(&block) && older);
    changed.peek().is_some() && !spare && filled.hit(dev, block, changed) != Holds::Other
}

#[test]
fn lost_writes() {
    let mut tally = Tally::default();
    let tries = tries(500);
    on_stores(tries, 10_000, |filled, rng, what| {
        let mut bad = filled.disk.clone();
        let (_, write) = a_write(filled, rng);
        lose(&mut bad, &write);
        let mut blocks = write.block..write.block + write.new.len() as u64;
        let must = blocks.any(|b| must_be_found(filled, &bad, write.dev, b));
        let what = format!("{what}, lost {} blocks at {}", write.new.len(), write.block);
        look_at(filled, bad, must, &mut tally, &what);
    });
    println!("{tries} lost writes: {tally:?}");
    assert!(tally.refused > 0 && tally.unreadable > 0 && tally.repaired > 0 && tally.harmless > 0);
}

/// What a mark recorded is put in place and written over soon after it. The disk loses the mark: big
/// writes before it, whose places hold something else now, were acknowledged nevertheless.
#[test]
fn lost_marks() {
    let mut tally = Tally::default();
    for seed in 10_000..10_060 {
        let filled = Filled::new(seed);
        let log = filled.disk.log.as_ref().unwrap();
        let batches = log.iter().filter(|w| w.new[0][..8] == *b"LoligoWA");
        let last = batches.max_by_key(|w| u64_at(&w.new[0][..], 40)).unwrap();
        assert_eq!(u32_at(&last.new[0][..], 76), 0, "a batch without records");
        let mut bad = filled.disk.clone();
        lose(&mut bad, last);
        look_at(&filled, bad, false, &mut tally, &format!("store {seed}"));
    }
    // It is refused where a superblock, too, says that the mark was there.
    assert!(tally.harmless > 0 && tally.unreadable == 0);
}

#[test]
fn misdirected_writes() {
    let mut tally = Tally::default();
    let tries = tries(500);
    on_stores(tries, 20_000, |filled, rng, what| {
        let mut bad = filled.disk.clone();
        let (mut n, mut write) = a_write(filled, rng);
        while filled.is_unconfirmed_batch(&write) {
            (n, write) = a_write(filled, rng);
        }
        lose(&mut bad, &write);
        let written = bad.written();
        let len = write.new.len() as u64;
        let (dev, at) = written[rng.usize(..written.len())];
        let at = at.min(filled.bytes / BLOCK_BYTES as u64 - len);
        for (block, data) in (at..).zip(&write.new) {
            if !is_overwritten(filled, n, dev, block) {
                bad.poke(dev, block, **data);
            }
        }
        if filled.takes_the_end(&bad) {
            return;
        }
        let mut blocks = (write.block..write.block + len).chain(at..at + len);
        let must = blocks.any(|b| must_be_found(filled, &bad, dev, b));
        let what = format!("{what}, {len} blocks for {} went to {at}", write.block);
        look_at(filled, bad, must, &mut tally, &what);
    });
    println!("{tries} misdirected writes: {tally:?}");
    assert!(tally.refused > 0 && tally.unreadable > 0);
}

/// Every node of the tree is damaged once: what is not listed is said to be lost, and what is said of a row names the
/// object whose row it is.
#[test]
fn what_a_list_of_objects_may_lack_is_known() {
    let config = tiny_config();
    let mut rig = Rig::new(3, &[16 << 20], &config);
    for n in 0..400 {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; 9000].into()).set_attr(
            &key(n),
            bytes(b"name"),
            vec![7; 300].into(),
        );
        rig.commit(&txn);
    }
    rig.sleep();
    // In the log alone: patches of rows that are in the tree.
    for n in (0..400).step_by(20) {
        let mut txn = Transaction::new(0);
        rig.commit(txn.write(&key(n), 0, vec![8; 4096].into()));
    }
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    let (first, end) = (ObjectKey::from_bytes(b""), ObjectKey::from_bytes(&[0xff; 9]));
    let list = |disk: &mut Disk| {
        let mut fsck = Fsck::new(disk.devices(), false, &config).listing();
        let report = run_fsck(disk, &mut fsck, |_| {});
        (report, fsck.take_objects().len())
    };
    assert_eq!(list(&mut disk.clone()).1, 400);
    let (mut lists, mut rows) = (0, 0);
    for (dev, block) in disk.written() {
        if !disk.block(dev, block).starts_with(b"LoTN") {
            continue;
        }
        let mut bad = disk.clone();
        bad.flip(dev, block, 8 * 100);
        let (report, count) = list(&mut bad);
        let may_lack = report.may_lack(&first, &end);
        assert!(count == 400 || may_lack, "block {block}: {count}");
        lists += u64::from(may_lack);
        rows += u64::from(report.is_damaged() && !may_lack);
        let is_there = |f: &Finding| !f.what.contains("a row that is not there");
        assert!(report.findings.iter().all(is_there), "block {block}: {report:?}");
    }
    assert!(lists > 0 && rows > 0, "{lists} of names, {rows} of others");
}
