//! The log where it is full, or holds far more than memory.

use crate::disk::Disk;
use crate::rig::{Rig, assert_clean, fsck, key, mount, run_fsck, tiny_config};
use crate::rot::Reader;
use fastrand::Rng;
use io::disk::DevId;
use store::{Config, Expect, Fsck, MountError, ReadSet, Severity, SubmitError, Transaction};

/// Blocks of the smallest log, and the first block behind it.
const LOG_BLOCKS: u64 = 64;
const DATA_FROM: u64 = 16 + LOG_BLOCKS;
const BIG: usize = 8192;

/// The smallest log; what is in memory is no reason to put anything in place.
fn small_log() -> Config {
    Config { wal_bytes: LOG_BLOCKS * 4096, wal_cache_bytes: 1 << 20, ..tiny_config() }
}

/// Big writes, each of a sequencer of its own, `in_batch` of them in a batch; their data does not get to the
/// disk. Until the log has so many blocks, or is told to take no more; gives how many there are.
fn held_writes(rig: &mut Rig, blocks: u64, in_batch: u64) -> u64 {
    let mut txn = Transaction::new(0);
    rig.commit(txn.touch(&key(999)));
    // Nothing of the log is needed.
    rig.sleep();
    rig.disk.held = Some((DevId(0), DATA_FROM));
    let mut n = 0;
    while rig.store.usage().log_used < blocks * 4096 {
        for _ in 0..in_batch {
            let mut txn = Transaction::new(n);
            txn.write(&key(n), 0, vec![n as u8; BIG].into());
            match rig.store.submit(rig.now, &txn, &ReadSet::new()) {
                Ok(_) => n += 1,
                Err(SubmitError::Busy) => return n,
                Err(other) => panic!("{other:?}"),
            }
        }
        rig.end_turn();
        while rig.turn() {}
    }
    n
}

/// The power goes; what was written is there, but for what the disk held.
fn crashed(disk: &Disk) -> Disk {
    let mut disk = disk.clone();
    disk.held = None;
    disk.crash(|_, _, _| false);
    disk
}

fn check_writes(rig: &mut Rig, durable: u64) {
    for n in 0..durable {
        assert_eq!(rig.read(&key(n), 0, BIG as u64).unwrap(), vec![n as u8; BIG], "write {n}");
    }
}

#[test]
fn whatever_is_told_to_the_log_a_mount_finds_room_in_it() {
    let config = small_log();
    let mut rig = Rig::new(1, &[8 << 20], &config);
    let writes = held_writes(&mut rig, 7, 10);
    rig.store.flush_soon();
    for n in 0..writes {
        rig.end_turn();
        while rig.turn() {}
        assert!(rig.complete_held());
        let mut after = Rig::open(crashed(&rig.disk), &config).unwrap();
        check_writes(&mut after, n);
    }
    rig.disk.held = None;
    rig.settle();
    assert!(rig.store.is_at_rest());
    check_writes(&mut rig, writes);
    assert_clean(&mut rig.unmount(), &config, "all is in the tree");
}

#[test]
fn a_full_log_is_told_of_the_last_that_it_waits_for() {
    let config = small_log();
    for close in [false, true] {
        let mut rig = Rig::new(1, &[8 << 20], &config);
        let writes = held_writes(&mut rig, LOG_BLOCKS, 1);
        assert!(writes > 30, "{writes} writes");
        if close {
            rig.store.unmount();
        } else {
            rig.store.flush_soon();
        }
        for _ in 0..writes {
            rig.end_turn();
            while rig.turn() {}
            assert!(rig.complete_held());
        }
        rig.disk.held = None;
        rig.settle();
        assert!(rig.store.is_at_rest() && rig.unmounted == close, "it waits for ever");
        check_writes(&mut Rig::open(crashed(&rig.disk), &config).unwrap(), writes);
    }
}

#[test]
fn mounts_that_end_in_crashes_do_not_fill_the_log() {
    let config = small_log();
    let mut disk = Rig::new(1, &[8 << 20], &config).unmount();
    let mut refused = 0;
    for n in 0..200 {
        let mut rig = Rig::open(disk, &config).unwrap_or_else(|why| panic!("mount {n}: {why}"));
        rig.disk.held = Some((DevId(0), DATA_FROM));
        // Its data will not be there, so the next mount has to pass it over.
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; BIG].into());
        refused += u64::from(rig.store.submit(rig.now, &txn, &ReadSet::new()).is_err());
        rig.end_turn();
        while rig.complete_one() {}
        disk = crashed(&rig.disk);
    }
    assert!(refused > 100, "the log was not full");
    let mut rig = Rig::open(disk, &config).unwrap();
    rig.sleep();
    assert!(rig.store.is_at_rest());
    assert_clean(&mut rig.unmount(), &config, "after all");
}

#[test]
fn what_is_read_back_after_a_crash_keeps_to_its_memory() {
    let cache = 256 << 10;
    let config = Config { wal_bytes: 8 << 20, wal_cache_bytes: cache, ..tiny_config() };
    let mut rig = Rig::new(1, &[32 << 20, 9 << 20], &config);
    let blocks = 100;
    for n in 0..2 {
        let mut txn = Transaction::new(0);
        rig.commit(txn.write(&key(n), 0, vec![1; blocks * 4096].into()));
    }
    rig.sleep();
    // Few blocks are written again and again, others once: these are all that is left of most of the log.
    rig.disk.held = Some((DevId(0), 0));
    let write = |rig: &mut Rig, object: u64, n: usize| {
        let mut txn = Transaction::new(0);
        let at = (n % blocks * 4096) as u64;
        rig.commit(txn.write(&key(object), at, vec![n as u8; 4096].into()));
    };
    let mut n = 0;
    while rig.store.usage().log_used < 5 << 20 {
        write(&mut rig, 0, n);
        if n % 60 == 0 {
            write(&mut rig, 1, n / 60);
        }
        n += 1;
    }
    let mut disk = rig.disk;
    disk.held = None;
    disk.crash(|_, _, _| true);
    let mut rig = Rig::open(disk, &config).unwrap();
    rig.store.flush_soon();
    rig.end_turn();
    let mut most = 0;
    while rig.turn() {
        most = most.max(rig.store.memory().log.bytes);
    }
    assert!(rig.store.is_at_rest());
    assert!(most > 0 && most <= cache as u64, "{most} bytes were read back");
    for i in n - blocks..n {
        let at = (i % blocks * 4096) as u64;
        assert_eq!(rig.read(&key(0), at, 4096).unwrap(), [i as u8; 4096]);
    }
    let reads = rig.store.counters().in_place_reads;
    assert!(reads < 200, "{reads} reads for {n} blocks of which few are left");
}

/// A log that takes writes of two blocks in.
fn long_log() -> Config {
    Config {
        wal_bytes: 16 << 20,
        wal_cache_bytes: 16 << 20,
        memtable_bytes: 16 << 20,
        ..tiny_config()
    }
}

/// A crashed store with so many objects in its log alone, and where the log's batches begin, of three blocks each.
fn logged(sizes: &[u64], config: &Config, objects: u64) -> (Disk, Vec<u64>) {
    let mut rig = Rig::new(1, sizes, config);
    for n in 0..objects {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; BIG].into());
        rig.commit(&txn);
    }
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    let dev = DevId(sizes.len() as u8 - 1);
    let log = 16..16 + config.wal_bytes / 4096;
    let heads = log.filter(|b| disk.block(dev, *b).starts_with(b"LoligoWA")).collect();
    (disk, heads)
}

fn no_mount(disk: &Disk, config: &Config) -> MountError {
    match mount(&mut disk.clone(), config, Expect::default()) {
        Ok(_) => panic!("it was mounted"),
        Err(why) => why,
    }
}

#[test]
fn what_cannot_be_read_behind_the_end_of_the_log_is_not_needed() {
    let config = long_log();
    let (mut disk, heads) = logged(&[32 << 20], &config, 4);
    let end = heads[heads.len() - 1] + 3;
    disk.unreadable.insert((DevId(0), end + 10));
    let report = fsck(&mut disk.clone(), &config);
    let found: Vec<_> = report.findings.iter().map(|f| (f.severity, f.place.clone())).collect();
    assert_eq!(found, [(Severity::Note, format!("block {} of the log's device", end + 10))]);
    check_writes(&mut Rig::open(disk.clone(), &config).unwrap(), 4);
    // Where the next batch would be nobody knows whether there is one.
    disk.unreadable.insert((DevId(0), end));
    let why = no_mount(&disk, &config).to_string();
    assert!(why.starts_with(&format!("/sim/0: reading block {end} failed")), "{why}");
    assert!(fsck(&mut disk, &config).is_damaged());
}

#[test]
fn a_block_of_the_log_that_is_needed_and_cannot_be_read_is_named_with_its_device() {
    let config = long_log();
    let (disk, heads) = logged(&[16 << 20, 17 << 20], &config, 4);
    let last = heads[heads.len() - 1];
    for block in [last, last + 1] {
        let mut bad = disk.clone();
        bad.unreadable.insert((DevId(1), block));
        let why = no_mount(&bad, &config).to_string();
        assert!(why.starts_with(&format!("/sim/1: reading block {block} failed")), "{why}");
        assert!(fsck(&mut bad, &config).is_damaged());
    }
    let mut bad = disk;
    bad.writes_fail = true;
    let why = no_mount(&bad, &config).to_string();
    assert!(why.contains(": flushing failed"), "{why}");
}

/// Of a batch that is known to have been durable the records count, whatever becomes of the blocks in it.
#[test]
fn an_unreadable_block_in_a_proven_batch_is_bad_for_its_object_alone() {
    let config = long_log();
    let (mut disk, heads) = logged(&[32 << 20], &config, 4);
    disk.unreadable.insert((DevId(0), heads[heads.len() - 3] + 1));
    let mut rig = Rig::open(disk, &config).unwrap();
    let failed = (0..4).filter(|n| rig.read(&key(*n), 0, BIG as u64).is_err()).count();
    assert_eq!(failed, 1);
}

/// Whatever comes first from the disk: all batches before the block that cannot be read are there.
#[test]
fn reading_only_goes_as_far_as_the_log_can_be_read() {
    let config = long_log();
    let (disk, heads) = logged(&[32 << 20], &config, 300);
    // A read of the log has 256 blocks.
    let third = heads.iter().position(|head| *head >= 16 + 600).unwrap();
    let mut bad = disk;
    bad.unreadable.insert((DevId(0), heads[third]));
    for seed in 0..8 {
        bad.rng = Rng::with_seed(seed);
        let mut disk = bad.clone();
        let mut reader = Reader::open(&mut disk, &config).unwrap();
        assert_eq!(reader.store.problems().len(), 1, "{:?}", reader.store.problems());
        let mut there = |n| reader.run(&mut disk, |s, _| s.stat(&key(n))).unwrap().is_some();
        let count = (0..300).take_while(|n| there(*n)).count();
        assert!(count.abs_diff(third) <= 1, "{count} of {third}, seed {seed}");
    }
}

/// Nearly all that the store has is in the log: a check reads as it goes on, and when it reads no data keeps none in mind.
#[test]
fn what_a_check_keeps_in_mind_of_the_log_is_bounded() {
    let config = Config { memtable_bytes: 64 << 20, ..long_log() };
    let mut rig = Rig::new(1, &[64 << 20], &config);
    let mut txn = Transaction::new(0);
    rig.commit(txn.write(&key(0), 0, vec![7; 4 << 20].into()));
    const COPIES: u64 = 48;
    for n in 1..COPIES {
        let mut txn = Transaction::new(0);
        rig.commit(txn.clone_object(&key(0), &key(n)));
    }
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    for (reads_data, most) in [(true, 16 << 10), (false, 0)] {
        let mut waiting = 0;
        let mut fsck = Fsck::new(disk.devices(), reads_data, &config);
        let look = |fsck: &Fsck| waiting = waiting.max(fsck.waiting());
        let report = run_fsck(&mut disk, &mut fsck, look);
        assert!(report.is_good() && report.data_blocks == 1024, "{report:?}");
        assert_eq!(report.blocks_checked, if reads_data { COPIES << 10 } else { 0 });
        assert!(waiting <= most, "{waiting} blocks wait");
        assert!(!reads_data || waiting > 1000, "too few for this test: {waiting}");
    }
}

#[test]
fn wherever_a_block_of_the_log_cannot_be_read_nothing_is_lost_unsaid() {
    let config = long_log();
    let (disk, heads) = logged(&[32 << 20], &config, 8);
    let (mut refused, mut failed) = (0, 0);
    for block in heads[0]..heads[heads.len() - 1] + 8 {
        let mut bad = disk.clone();
        bad.unreadable.insert((DevId(0), block));
        // All of it, and without the data of objects.
        let reports = [true, false].map(|data| {
            let mut disk = bad.clone();
            let mut check = Fsck::new(disk.devices(), data, &config);
            run_fsck(&mut disk, &mut check, |_| {})
        });
        let mut is_lost = false;
        match Rig::open(bad, &config) {
            Err(why) => {
                let text = why.to_string();
                assert!(text.contains(&format!("block {block} ")), "block {block}: {text}");
                is_lost = true;
                refused += 1;
            }
            Ok(mut rig) => {
                for n in 0..8 {
                    match rig.read(&key(n), 0, BIG as u64) {
                        Ok(data) => assert_eq!(data, vec![n as u8; BIG], "block {block}"),
                        Err(_) => {
                            is_lost = true;
                            failed += 1;
                        }
                    }
                }
            }
        }
        for report in reports {
            let text: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            assert_eq!(report.is_damaged(), is_lost, "block {block}: {text:?}");
            let spared = text.iter().any(|what| what.contains("nothing in it is needed"));
            assert_eq!(spared, !is_lost, "block {block}: {text:?}");
        }
    }
    assert!(refused > 5 && failed > 5, "{refused} refused, {failed} reads failed");
}
