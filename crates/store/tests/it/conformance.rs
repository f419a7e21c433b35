//! The store does what the model does.
//!
//! `STORE_TEST_SEQUENCES=100000 cargo test --release -p store --test it many_short_sequences --
//! --nocapture` tries so many sequences; without it a bounded number. `STORE_TEST_TIMES=20` makes twenty times
//! the rounds of the other tests, whose sequences are longer.

use crate::r#gen::{Flavour, Gen};
use crate::rig::{Rig, Taken, assert_clean, assert_same, key, outline_config, tiny_config};
use fastrand::Rng;
use store::model::Model;
use store::{Config, Invalid, Store};

const BLOCK: u64 = io::BLOCK_BYTES as u64;

pub fn rounds(default: u64) -> u64 {
    let times = std::env::var("STORE_TEST_TIMES").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    default.saturating_mul(times)
}

/// Transactions, and how often outlines were of use.
#[derive(Clone, Copy, Debug, Default)]
struct Conformed {
    taken: u64,
    overwrites_unseen: u64,
    outlined: u64,
}

impl Conformed {
    fn add(&mut self, store: &Store) {
        self.overwrites_unseen += store.counters().overwrites_unseen;
        self.outlined += store.counters().outlined_blocks_read;
    }
}

fn conform(seed: u64, sizes: &[u64], config: &Config, txns: usize) -> Conformed {
    conform_with(&Gen::default(), seed, sizes, config, txns)
}

fn conform_with(
    generator: &Gen,
    seed: u64,
    sizes: &[u64],
    config: &Config,
    txns: usize,
) -> Conformed {
    let mut rng = Rng::with_seed(seed);
    let mut rig = Rig::new(seed, sizes, config);
    let mut model = Model::new();
    let generator = match generator.flavour {
        Flavour::Images => generator.clone(),
        _ => Gen { flavour: Flavour::any(&mut rng), ..generator.clone() },
    };
    let mut sum = Conformed::default();
    for i in 0..txns {
        let sequencer = rng.u64(0..3);
        if generator.flavour == Flavour::Images && rng.bool() {
            rig.store.drop_caches();
        }
        let txn = generator.txn(&mut rng, sequencer);
        let mut next = model.clone();
        let wanted = next.apply(&txn);
        match (rig.submit(&txn), wanted) {
            (Taken::Yes(_), Ok(())) => {
                model = next;
                sum.taken += 1;
            }
            (Taken::NoSpace | Taken::Invalid(Invalid::TooLarge { .. }), _) => {}
            (Taken::Invalid(got), Err(want)) => assert_eq!(got, want),
            (got, want) => panic!("seed {seed}, transaction {i}: got {got:?}, want {want:?}"),
        }
        match rng.u8(0..40) {
            0..25 => {}
            25..35 => rig.end_turn(),
            35 => rig.settle(),
            36 => rig.sleep(),
            37 => {
                rig.store.flush_soon();
                rig.end_turn();
            }
            // A mount knows nothing yet.
            38 if generator.flavour == Flavour::Images && rng.u8(0..6) > 0 => {}
            38 => {
                sum.add(&rig.store);
                let mut disk = rig.unmount();
                assert!(assert_clean(&mut disk, config, &format!("seed {seed}")).clean);
                rig = Rig::open(disk, config).unwrap();
            }
            _ => {
                for _ in 0..rng.usize(0..20) {
                    rig.turn();
                }
            }
        }
        if generator.flavour == Flavour::Images {
            let (object, block) =
                (key(rng.u64(0..generator.objects)), rng.u64(0..generator.blocks));
            let got = rig.read(&object, block * BLOCK, BLOCK).unwrap();
            let want = model.objects.get(&object).map(|o| o.read(block * BLOCK, BLOCK));
            assert!(got == want.unwrap_or_default(), "seed {seed}, transaction {i}: {object:?}");
        }
        if rng.u8(0..30) == 0 {
            let got = rig.dump().unwrap();
            assert_same(&got, &model, &format!("seed {seed}, transaction {i}"));
        }
    }
    let got = rig.dump().unwrap();
    assert_same(&got, &model, &format!("seed {seed}, at the end"));
    sum.add(&rig.store);
    let mut disk = rig.unmount();
    assert_clean(&mut disk, config, &format!("seed {seed}"));
    let mut rig = Rig::open(disk, config).unwrap();
    let got = rig.dump().unwrap();
    assert_same(&got, &model, &format!("seed {seed}, after the last mount"));
    sum
}

#[test]
fn random_transactions_with_a_tiny_log() {
    let total: u64 =
        (0..rounds(20)).map(|seed| conform(seed, &[24 << 20], &tiny_config(), 250).taken).sum();
    println!("{total} transactions like the model");
}

#[test]
fn random_transactions_with_no_memory_to_speak_of() {
    let config = Config { page_cache_bytes: 0, wal_cache_bytes: 0, ..tiny_config() };
    for seed in 100..100 + rounds(10) {
        conform(seed, &[24 << 20], &config, 200);
    }
}

/// Rows of extents are not in memory, but what is needed of them is.
#[test]
fn random_transactions_upon_outlines() {
    let config = outline_config();
    let flavour = Flavour::Images;
    let generator = Gen { objects: 100, blocks: 8, ops: 2, flavour, ..Gen::default() };
    let conform = |seed| conform_with(&generator, seed, &[24 << 20], &config, 500);
    let all: Vec<_> = (400..400 + rounds(8)).map(conform).collect();
    let unseen: u64 = all.iter().map(|c| c.overwrites_unseen).sum();
    let outlined: u64 = all.iter().map(|c| c.outlined).sum();
    println!(
        "{unseen} overwrites of rows that were not in memory, {outlined} blocks read by outlines"
    );
    assert!(unseen > 0 && outlined > 0);
}

#[test]
fn random_transactions_with_room_for_everything() {
    let config = Config { wal_bytes: 8 << 20, discard: true, ..Config::for_memory(64 << 20) };
    for seed in 200..200 + rounds(10) {
        conform(seed, &[40 << 20], &config, 300);
    }
}

#[test]
fn random_transactions_with_the_log_on_its_own_device() {
    for seed in 300..300 + rounds(6) {
        conform(seed, &[16 << 20, 1 << 20], &tiny_config(), 200);
    }
}

/// A bitmap row is 32 MiB of the device; here there are several, mostly filled by large objects.
#[test]
fn random_transactions_over_many_regions() {
    let generator = Gen { objects: 12, blocks: 5000, write_blocks: 2000, ..Gen::default() };
    let config = Config { wal_bytes: 8 << 20, ..Config::for_memory(32 << 20) };
    for seed in 500..500 + rounds(1) {
        conform_with(&generator, seed, &[160 << 20], &config, 50);
    }
}

/// The settings of a short sequence: each seed has others.
fn any_config(rng: &mut Rng) -> Config {
    Config {
        page_cache_bytes: [0, 8 << 10, 64 << 10, 1 << 20][rng.usize(0..4)],
        shard_cache_bytes: [0, 4 << 10, 64 << 10][rng.usize(0..3)],
        outline_bytes: [0, 2 << 10, 64 << 10][rng.usize(0..3)],
        wal_cache_bytes: [0, 128 << 10, 1 << 20][rng.usize(0..3)],
        memtable_bytes: [16 << 10, 128 << 10, 1 << 20][rng.usize(0..3)],
        wal_bytes: [256 << 10, 512 << 10, 1 << 20][rng.usize(0..3)],
        small_write_bytes: [4 << 10, 16 << 10, 64 << 10][rng.usize(0..3)],
        wal_inflight_batches: rng.usize(1..5),
        wal_gather_blocks: [0, 4, 64][rng.usize(0..3)],
        discard: rng.bool(),
        ..tiny_config()
    }
}

#[test]
fn many_short_sequences() {
    let number = std::env::var("STORE_TEST_SEQUENCES").ok().and_then(|v| v.parse().ok());
    let number = number.unwrap_or(100);
    let mut taken = 0;
    for seed in 1_000_000..1_000_000 + number {
        let mut rng = Rng::with_seed(seed);
        let config = any_config(&mut rng);
        let sizes: &[u64] = if rng.u8(0..4) == 0 { &[8 << 20, 1 << 20] } else { &[12 << 20] };
        let txns = rng.usize(1..50);
        taken += conform(seed, sizes, &config, txns).taken;
    }
    println!("{number} sequences, {taken} transactions like the model");
}
