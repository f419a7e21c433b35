//! Crashes: at every boundary of disk operations, again during recovery, and with every manner of
//! what gets to the disk.
//!
//! Several sequencers, each with its own objects. Each transaction also numbers itself in an object
//! of its sequencer. After a crash that number says how far the sequencer got: at least as far as
//! was durable, and the objects must be just those of the model at that number.

use crate::conformance::rounds;
use crate::disk::Disk;
use crate::r#gen::{Flavour, Gen};
use crate::rig::{
    Rig, Taken, assert_same, bytes, fsck, key, mount_until, outline_config, tiny_config,
};
use fastrand::Rng;
use store::model::Model;
use store::{Config, Expect, Invalid, TxnId};
use types::ObjectKey;

/// What one sequencer has been given.
#[derive(Clone, Default)]
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

pub struct Crashes {
    pub config: Config,
    sequencers: u64,
    histories: Vec<History>,
    /// What was durable before the last crash that was taken over.
    floor: Vec<usize>,
    generator: Gen,
    pub points: u64,
    pub lives: u64,
    /// Overwrites in one life of blocks whose row was not in memory: the most.
    pub unseen: u64,
}

const MARKER: u64 = 900;
/// Writes that make the images of a workload.
const IMAGE_WRITES: usize = 150;

fn marker(sequencer: u64) -> ObjectKey {
    key(MARKER + sequencer)
}

impl Crashes {
    pub fn new(config: Config, sequencers: u64, generator: Gen) -> Self {
        let start = History { models: vec![Model::new()], ids: Vec::new() };
        Crashes {
            config,
            sequencers,
            histories: vec![start; sequencers as usize],
            floor: vec![0; sequencers as usize],
            generator,
            points: 0,
            lives: 1,
            unseen: 0,
        }
    }

    fn submit(&mut self, rig: &mut Rig, rng: &mut Rng) {
        if self.generator.flavour == Flavour::Images {
            rig.store.drop_caches();
        }
        let sequencer = rng.u64(0..self.sequencers);
        let generator = Gen { first: sequencer * 100, ..self.generator.clone() };
        let history = &mut self.histories[sequencer as usize];
        let mut txn = generator.txn(rng, sequencer);
        let number = history.ids.len() as u64 + 1;
        txn.set_meta(&marker(sequencer), bytes(&number.to_le_bytes()));
        let mut next = history.models.last().unwrap().clone();
        if next.apply(&txn).is_err() {
            return;
        }
        match rig.submit(&txn) {
            Taken::Yes(id) => {
                history.ids.push(id);
                history.models.push(next);
            }
            Taken::NoSpace | Taken::Invalid(Invalid::TooLarge { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Opens a crashed disk, perhaps after crashes during recovery, and checks what is there. Gives
    /// the store and how far each sequencer got.
    pub fn check(&mut self, rig: &Rig, mut disk: Disk, what: &str) -> (Rig, Vec<usize>) {
        self.points += 1;
        let again = disk.rng.u8(0..3);
        for _ in 0..again {
            let steps = disk.rng.u64(0..30);
            if mount_until(&mut disk, &self.config, Expect::default(), steps).is_some() {
                break;
            }
            if disk.rng.bool() { disk.crash_randomly() } else { disk.kill() }
        }
        if disk.rng.u8(0..4) == 0 {
            let mut copy = disk.clone();
            let report = fsck(&mut copy, &self.config);
            let bad: Vec<_> = report
                .findings
                .iter()
                .filter(|f| !f.what.contains("old copy") && !f.place.contains("superblock"))
                .collect();
            assert!(bad.is_empty(), "{what}: {bad:?}");
        }
        let mut opened = Rig::open(disk, &self.config).unwrap_or_else(|e| panic!("{what}: {e}"));
        opened.store.check_accounting();
        let dump = opened.dump().unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut got = Vec::new();
        let mut want = Model::new();
        for (i, history) in self.histories.iter().enumerate() {
            let mark = dump.objects.get(&marker(i as u64)).map(|o| o.meta.clone());
            let mark = mark.filter(|m| !m.is_empty());
            let number = mark.map_or(0, |m| u64::from_le_bytes(m[..].try_into().unwrap()) as usize);
            let durable = history.durable(rig).max(self.floor[i]);
            let submitted = history.ids.len();
            assert!(number <= submitted, "{what}: sequencer {i}: {number} of {submitted}");
            assert!(number >= durable, "{what}: sequencer {i}: {number}, durable was {durable}");
            want.objects.extend(history.models[number].objects.clone());
            got.push(number);
        }
        assert_same(&dump, &want, what);
        (opened, got)
    }

    /// A crash of one manner or another, and what is there after it.
    fn crash(&mut self, rig: &Rig, rng: &mut Rng, what: &str) -> (Rig, Vec<usize>) {
        let mut disk = rig.disk.clone();
        disk.rng = Rng::with_seed(rng.u64(..));
        if rng.u8(0..6) == 0 {
            disk.kill()
        } else {
            disk.crash_randomly()
        }
        self.check(rig, disk, what)
    }

    /// Goes on with a store that was opened after a crash.
    pub fn take_over(&mut self, got: &[usize]) {
        self.lives += 1;
        for ((history, floor), number) in self.histories.iter_mut().zip(&mut self.floor).zip(got) {
            history.ids.truncate(*number);
            history.models.truncate(*number + 1);
            // Numbers of transactions begin anew: what is there is durable.
            history.ids.iter_mut().for_each(|id| *id = TxnId(u64::MAX));
            *floor = *number;
        }
    }

    /// Makes objects that are in the tree, and has them read, so that there are outlines.
    fn make_images(&mut self, rig: &mut Rig, rng: &mut Rng) {
        for _ in 0..IMAGE_WRITES {
            self.submit(rig, rng);
        }
        rig.store.flush_soon();
        rig.end_turn();
        rig.settle();
        self.look_around(rig, rng);
    }

    /// Reads of objects everywhere.
    fn look_around(&self, rig: &mut Rig, rng: &mut Rng) {
        for _ in 0..2 * self.sequencers * self.generator.objects {
            rig.store.drop_caches();
            let first = rng.u64(0..self.sequencers) * 100;
            let object = key(first + rng.u64(0..self.generator.objects));
            rig.read(&object, 0, io::BLOCK_BYTES as u64).unwrap();
        }
    }

    /// A workload of `steps` steps with a crash tried at each; some are taken over.
    pub fn run(&mut self, mut rig: Rig, rng: &mut Rng, steps: usize, what: &str) {
        if self.generator.flavour != Flavour::Images {
            self.generator.flavour = Flavour::any(rng);
        } else {
            self.make_images(&mut rig, rng);
        }
        let take_over = rng.u8(3..40);
        let eager = rng.u8(1..6);
        for step in 0..steps {
            match rng.u8(0..10) {
                n if n < eager => self.submit(&mut rig, rng),
                0..6 => rig.end_turn(),
                6 => {
                    rig.store.flush_soon();
                    rig.end_turn();
                }
                _ => drop(rig.turn()),
            }
            self.unseen = self.unseen.max(rig.store.counters().overwrites_unseen);
            let (opened, got) = self.crash(&rig, rng, &format!("{what}, step {step}"));
            if rng.u8(0..take_over) == 0 {
                self.take_over(&got);
                rig = opened;
                if self.generator.flavour == Flavour::Images {
                    self.look_around(&mut rig, rng);
                }
            }
        }
    }
}

/// The same with any number of log batches on their way.
fn any_batches(rng: &mut Rng, config: Config) -> Config {
    Config {
        wal_inflight_batches: rng.usize(1..5),
        wal_gather_blocks: [0, 4, 64][rng.usize(0..3)],
        ..config
    }
}

fn workload(
    seed: u64,
    sizes: &[u64],
    config: &Config,
    generator: &Gen,
    steps: usize,
) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let config = any_batches(&mut rng, config.clone());
    let rig = Rig::new(seed, sizes, &config);
    let mut crashes = Crashes::new(config, 3, generator.clone());
    crashes.run(rig, &mut rng, steps, &format!("seed {seed}"));
    (crashes.points, crashes.lives)
}

#[test]
fn every_state_after_a_crash_is_allowed() {
    let generator = Gen { objects: 3, blocks: 20, write_blocks: 8, ..Gen::default() };
    let (mut points, mut lives) = (0, 0);
    for seed in 0..rounds(8) {
        let (p, l) = workload(seed, &[10 << 20], &tiny_config(), &generator, 150);
        points += p;
        lives += l;
    }
    println!("{points} crash points, {lives} lives");
}

#[test]
fn also_with_a_log_device_no_memory_and_the_smallest_log() {
    let generator = Gen { objects: 3, blocks: 10, write_blocks: 4, ops: 2, ..Gen::default() };
    let config = Config {
        page_cache_bytes: 0,
        wal_cache_bytes: 0,
        wal_bytes: 256 << 10,
        memtable_bytes: 16 << 10,
        discard: true,
        ..tiny_config()
    };
    let mut points = 0;
    for seed in 50..50 + rounds(6) {
        let sizes: &[u64] = if seed % 2 == 0 { &[8 << 20] } else { &[8 << 20, 320 << 10] };
        points += workload(seed, sizes, &config, &generator, 150).0;
    }
    println!("{points} crash points");
}

/// Overwrites that the log knows as patches of rows.
#[test]
fn rows_that_are_not_in_memory() {
    let flavour = Flavour::Images;
    let generator = Gen { objects: 30, blocks: 4, ops: 2, flavour, ..Gen::default() };
    let config = outline_config();
    let (mut points, mut unseen) = (0, 0);
    for seed in 60..60 + rounds(6) {
        let mut rng = Rng::with_seed(seed);
        let rig = Rig::new(seed, &[10 << 20], &config);
        let mut crashes = Crashes::new(config.clone(), 3, generator.clone());
        crashes.run(rig, &mut rng, 150, &format!("seed {seed}"));
        points += crashes.points;
        unseen += crashes.unseen;
    }
    println!("{points} crash points, {unseen} overwrites of rows that were not in memory");
    assert!(unseen > 0);
}

#[test]
fn big_writes_beside_the_log_are_there_or_not() {
    let generator = Gen { objects: 3, blocks: 64, write_blocks: 40, ops: 2, ..Gen::default() };
    let config = Config { small_write_bytes: 4 << 10, ..tiny_config() };
    let mut points = 0;
    for seed in 80..80 + rounds(6) {
        points += workload(seed, &[12 << 20], &config, &generator, 150).0;
    }
    println!("{points} crash points");
}

/// A thousand operations, with several crashes after each; `STORE_TEST_TIMES` makes more such.
#[test]
fn a_thousand_operations() {
    let generator = Gen { objects: 4, blocks: 24, write_blocks: 8, ops: 1, ..Gen::default() };
    let (mut points, mut lives) = (0, 0);
    for seed in 120..120 + rounds(1) {
        let mut rng = Rng::with_seed(seed);
        let config = any_batches(&mut rng, tiny_config());
        let mut rig = Rig::new(seed, &[10 << 20], &config);
        let mut crashes = Crashes::new(config, 3, generator.clone());
        crashes.generator.flavour = Flavour::any(&mut rng);
        for n in 0..1000 {
            crashes.submit(&mut rig, &mut rng);
            let what = format!("seed {seed}, operation {n}");
            for _ in 0..rng.u8(1..4) {
                match rng.bool() {
                    true => rig.end_turn(),
                    false => drop(rig.turn()),
                }
                crashes.crash(&rig, &mut rng, &what);
            }
            if rng.u8(0..100) == 0 {
                let (opened, got) = crashes.crash(&rig, &mut rng, &what);
                crashes.take_over(&got);
                rig = opened;
            }
        }
        points += crashes.points;
        lives += crashes.lives;
    }
    println!("{points} crash points, {lives} lives");
    assert!(points > 1000);
}
