//! Blocks that are kept in memory after a read.

use crate::conformance::rounds;
use crate::disk::Disk;
use crate::r#gen::{Flavour, Gen};
use crate::rig::{Rig, Taken, key, outline_config, tiny_config};
use io::BLOCK_BYTES;
use io::disk::DevId;
use store::model::Model;
use store::{Config, Held, Outside, ScrubCursor, ScrubLimits, Scrubbed, StoreError, Transaction};
use types::ObjectKey;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn write(rig: &mut Rig, object: &ObjectKey, at: u64, data: Vec<u8>) {
    let mut txn = Transaction::new(0);
    txn.write(object, at, data.into());
    rig.commit(&txn);
}

/// An object of so many blocks, each full of its number, all in place, nothing of it in memory.
fn filled(blocks: u64, config: &Config) -> Rig {
    let mut rig = Rig::new(1, &[24 << 20], config);
    let data = (0..blocks).flat_map(|n| vec![n as u8; BLOCK_BYTES]).collect();
    write(&mut rig, &key(1), 0, data);
    rig.sleep();
    rig.store.drop_caches();
    rig
}

/// Bytes that the disk is asked for to read so many blocks of the object.
fn asked_for(rig: &mut Rig, first: u64, blocks: u64) -> u64 {
    let before = rig.store.counters().data_read_bytes;
    let got = rig.read(&key(1), first * BLOCK, blocks * BLOCK).unwrap();
    let expected = (first..first + blocks).flat_map(|n| vec![n as u8; BLOCK_BYTES]);
    assert!(got.iter().copied().eq(expected));
    rig.store.counters().data_read_bytes - before
}

#[test]
fn what_was_read_is_read_from_memory_until_it_is_written_over() {
    for small_write_bytes in [64 << 10, 4 << 10] {
        let config = Config { small_write_bytes, ..tiny_config() };
        let mut rig = filled(30, &config);
        assert_eq!(asked_for(&mut rig, 3, 4), 4 * BLOCK);
        assert_eq!(asked_for(&mut rig, 3, 4), 0);
        assert_eq!(rig.read(&key(1), 4 * BLOCK + 5, 10).unwrap(), [4; 10]);
        let kept = rig.store.counters().kept_blocks_read;
        assert!(kept >= 5, "{kept}");
        // Through the log and later in place, or beside the log.
        write(&mut rig, &key(1), 4 * BLOCK, vec![99; 2 * BLOCK_BYTES]);
        for _ in 0..2 {
            assert_eq!(rig.read(&key(1), 4 * BLOCK, 2 * BLOCK).unwrap(), [99; 2 * BLOCK_BYTES]);
            rig.sleep();
        }
        rig.store.drop_caches();
        assert_eq!(asked_for(&mut rig, 3, 1), BLOCK);
    }
}

/// The block that part of one is written over is not read again.
#[test]
fn a_write_of_a_part_finds_the_rest_in_memory() {
    let mut rig = filled(30, &tiny_config());
    assert_eq!(asked_for(&mut rig, 3, 1), BLOCK);
    let before = rig.store.counters().data_read_bytes;
    write(&mut rig, &key(1), 3 * BLOCK + 100, vec![3; 10]);
    assert_eq!(rig.store.counters().data_read_bytes, before);
    assert_eq!(asked_for(&mut rig, 3, 1), 0);
}

#[test]
fn a_long_read_goes_through_what_is_in_memory() {
    let mut rig = filled(60, &Config { page_cache_bytes: 1 << 20, ..tiny_config() });
    for n in [2, 3, 20, 59] {
        assert_eq!(asked_for(&mut rig, n, 1), BLOCK);
    }
    let reads = rig.store.counters().data_reads;
    // The first two stand in memory; one read brings the others, with the one at 20.
    assert_eq!(asked_for(&mut rig, 2, 30), 28 * BLOCK);
    assert_eq!(rig.store.counters().data_reads, reads + 1);
    // Of a long one all is read, unless all is in memory.
    assert_eq!(asked_for(&mut rig, 2, 40), 40 * BLOCK);
    assert_eq!(rig.store.counters().data_reads, reads + 2);
    assert_eq!(asked_for(&mut rig, 2, 40), 0);
}

/// Who looks for damage does not find what memory still has.
#[test]
fn a_scrub_and_a_read_for_once_look_at_the_disk() {
    for config in [tiny_config(), outline_config()] {
        let mut rig = filled(30, &config);
        for _ in 0..2 {
            let before = rig.store.counters().data_read_bytes;
            rig.run(|store, set| store.read_once(&key(1), 0, 8 * BLOCK, set)).unwrap();
            assert_eq!(rig.store.counters().data_read_bytes - before, 8 * BLOCK);
        }
        assert_eq!(asked_for(&mut rig, 0, 8), 8 * BLOCK);
        assert_eq!(asked_for(&mut rig, 0, 8), 0);
        let five = |disk: &Disk, b: u64| disk.block(DevId(0), b) == [5; BLOCK_BYTES];
        let total = (24 << 20) / BLOCK;
        for block in (0..total).filter(|b| five(&rig.disk, *b)).collect::<Vec<_>>() {
            rig.disk.flip(DevId(0), block, 7);
        }
        assert_eq!(asked_for(&mut rig, 5, 1), 0);
        let once = rig.run(|store, set| store.read_once(&key(1), 5 * BLOCK, 1, set)).unwrap_err();
        assert!(matches!(once, StoreError::BadBlock { .. }), "{once}");
        let limits = ScrubLimits::default();
        let scrubbed = rig.run(|store, set| {
            let mut cursor = ScrubCursor::default();
            match store.scrub(&key(1), &mut cursor, &limits, set)? {
                Scrubbed::More => Ok(()),
                other => panic!("{other:?}"),
            }
        });
        assert!(matches!(scrubbed, Err(StoreError::BadBlock { .. })), "{scrubbed:?}");
    }
}

/// What log and memtable do not need has blocks that were read, until they need it.
#[test]
fn the_log_gets_its_memory_back() {
    let config = Config { wal_cache_bytes: 1200 << 10, ..tiny_config() };
    let config = Config { wal_bytes: 8 << 20, block_cache_bytes: usize::MAX, ..config };
    let mut rig = filled(255, &config);
    asked_for(&mut rig, 0, 255);
    assert_eq!(asked_for(&mut rig, 0, 255), 0);
    let mut left = Vec::new();
    for n in 0..100u64 {
        write(&mut rig, &key(2), n * 2 * BLOCK, vec![1; BLOCK_BYTES]);
        left.push(255 * BLOCK - asked_for(&mut rig, 0, 255).min(255 * BLOCK));
    }
    assert!(rig.store.counters().kept_blocks_read > 255);
    assert!(left.iter().any(|kept| *kept < 255 * BLOCK), "{left:?}");
}

/// The owner says how much more or less it may be than the store's own memory leaves.
#[test]
fn blocks_give_way_to_the_owner() {
    let mut rig = filled(120, &tiny_config());
    let kept = |rig: &mut Rig| 120 * BLOCK - asked_for(rig, 0, 120);
    let mut say = |beyond: isize, buffers: usize| {
        rig.store.set_outside(Outside { beyond, buffers });
        rig.end_turn();
        (kept(&mut rig), kept(&mut rig), rig.store.memory().blocks)
    };
    assert_eq!(say(1 << 20, 0).1, 120 * BLOCK);
    assert_eq!(say(-(1 << 20), 0), (0, 0, Held::default()));
    assert_eq!(say(1 << 20, 0).1, 120 * BLOCK);
    assert_eq!(say(1 << 20, 2 << 20), (0, 0, Held::default()), "buffers come first");
    assert_eq!(say(1 << 20, 0).1, 120 * BLOCK);
}

#[test]
fn whatever_is_kept_nobody_reads_what_was_before() {
    let rounds = rounds(12);
    let (mut kept, mut read) = (0, 0);
    for seed in 0..rounds {
        let mut rng = io::Rng::with_seed(seed);
        let base = if rng.bool() { tiny_config() } else { outline_config() };
        let config = Config { block_cache_bytes: rng.usize(0..600 << 10), ..base };
        let mut rig = Rig::new(seed, &[12 << 20], &config);
        let mut model = Model::new();
        let flavour = Flavour::any(&mut rng);
        let generator = Gen { objects: 6, blocks: 40, write_blocks: 9, flavour, ..Gen::default() };
        for _ in 0..300 {
            let txn = generator.txn(&mut rng, 0);
            let mut next = model.clone();
            if next.apply(&txn).is_ok() && matches!(rig.submit(&txn), Taken::Yes(_)) {
                model = next;
            }
            match rng.u8(0..40) {
                0 => rig.sleep(),
                1..20 => drop(rig.turn()),
                _ => {}
            }
            let some = model.objects.iter().nth(rng.usize(0..6)).or(model.objects.iter().next());
            let Some((name, object)) = some else { continue };
            let from = rng.u64(0..object.size.max(1));
            let len = rng.u64(1..10 * BLOCK).min(object.size.saturating_sub(from));
            let got = rig.read(name, from, len).unwrap();
            assert!(got == object.read(from, len), "seed {seed}: {name:?} at {from}, {len} bytes");
        }
        kept += rig.store.counters().kept_blocks_read;
        read += rig.store.counters().data_read_bytes / BLOCK;
    }
    println!("{kept} blocks from memory, {read} from the disk");
    assert!(kept > rounds * 50 && read > rounds * 100);
}

/// Each leaf is asked for once, however many of its rows are.
#[test]
fn many_values_of_few_leaves_are_few_reads() {
    let config = Config { page_cache_bytes: 1 << 20, ..tiny_config() };
    let mut rig = Rig::new(3, &[16 << 20], &config);
    let name = |n: u64| bytes::Bytes::copy_from_slice(format!("{:08}", n * 7919 % 1000).as_bytes());
    let names: Vec<_> = (0..1000).map(name).collect();
    let mut txn = Transaction::new(0);
    txn.omap_set(&key(1), names.iter().map(|name| (name.clone(), vec![1; 40].into())).collect());
    rig.commit(&txn);
    rig.sleep();
    rig.store.drop_caches();
    let before = rig.store.counters().nodes_read;
    let values = rig.run(|s, _| s.omap_get(&key(1), &names)).unwrap().unwrap();
    assert!(values.iter().all(Option::is_some));
    let read = rig.store.counters().nodes_read - before;
    // 1,000 rows of 64 bytes.
    assert!(read > 10 && read < 40, "{read} nodes");
}
