//! Disks that lie: rotten bits, lost and misdirected writes, failing operations. Nothing wrong is
//! ever returned, everything is found, and nothing panics.

use crate::conformance::rounds;
use crate::disk::{Disk, WriteFaults};
use crate::r#gen::Gen;
use crate::rig::{Rig, Taken, bytes, fsck, key, mount, tiny_config};
use fastrand::Rng;
use io::BLOCK_BYTES;
use io::disk::{DevId, DiskError};
use store::model::Model;
use store::{Config, Expect, ReadSet, Severity, StoreError, SubmitError, Transaction};

/// A store with all kinds of things in it, and its model.
fn filled(seed: u64, config: &Config, txns: usize) -> (Rig, Model) {
    let mut rng = Rng::with_seed(seed);
    let mut rig = Rig::new(seed, &[12 << 20], config);
    let mut model = Model::new();
    let generator = Gen { objects: 12, blocks: 40, ..Gen::default() };
    for _ in 0..txns {
        submit_one(&mut rig, &mut model, &generator, &mut rng);
        if rng.u8(0..5) == 0 {
            rig.turn();
        }
    }
    rig.settle();
    // The log is told that its last batch was durable.
    rig.now.mono.0 += 200_000_000;
    rig.settle();
    (rig, model)
}

fn submit_one(rig: &mut Rig, model: &mut Model, generator: &Gen, rng: &mut Rng) {
    let txn = generator.txn(rng, 0);
    let mut next = model.clone();
    if next.apply(&txn).is_ok() && matches!(rig.submit(&txn), Taken::Yes(_)) {
        *model = next;
    }
}

/// Submits, unless something that must be read first is damaged.
fn try_submit(rig: &mut Rig, txn: &Transaction) -> bool {
    let mut set = ReadSet::new();
    for _ in 0..200 {
        match rig.store.submit(rig.now, txn, &set) {
            Ok(_) => return true,
            Err(SubmitError::Miss(miss)) => match rig.fetch(miss) {
                Some(Ok(more)) => set.merge(more),
                _ => return false,
            },
            Err(SubmitError::Busy) => {
                rig.end_turn();
                rig.turn();
            }
            Err(_) => return false,
        }
        if rig.fatal.is_some() {
            return false;
        }
    }
    false
}

/// Reads everything; what is returned must be right. Gives how many objects could not be read.
fn read_all(rig: &mut Rig, model: &Model, what: &str) -> usize {
    let mut failed = 0;
    for (key, want) in &model.objects {
        match rig.object(key) {
            Ok(Some(got)) => assert!(got == *want, "{what}: {key:?} is wrong"),
            Ok(None) => panic!("{what}: {key:?} is gone"),
            Err(StoreError::BadBlock { object, .. }) => {
                assert_eq!(object, *key, "{what}");
                failed += 1;
            }
            Err(_) => failed += 1,
        }
    }
    failed
}

#[test]
fn flipped_bits_are_found_wherever_they_are() {
    let config = tiny_config();
    let (mut flips, mut refused, mut reads, mut harmless) = (0, 0, 0, 0);
    for seed in 0..rounds(6) {
        let (rig, model) = filled(seed, &config, 60);
        let disk = if seed % 2 == 0 { rig.unmount() } else { rig.disk };
        let written = disk.written();
        let mut rng = Rng::with_seed(seed ^ 77);
        for _ in 0..60 {
            let mut bad = disk.clone();
            bad.crash(|_, _, _| true);
            let (dev, block) = written[rng.usize(..written.len())];
            bad.flip(dev, block, rng.usize(..BLOCK_BYTES * 8));
            flips += 1;
            let report = fsck(&mut bad.clone(), &config);
            let what = format!("seed {seed}, block {block}");
            match mount(&mut bad, &config, Expect::default()) {
                Err(_) => {
                    assert!(report.is_damaged(), "{what}: refused, but fsck finds no damage");
                    refused += 1;
                }
                Ok(store) => {
                    let mut rig = Rig::with(bad, store);
                    let failed = read_all(&mut rig, &model, &what);
                    assert!(failed == 0 || report.is_damaged(), "{what}: fsck finds no damage");
                    reads += usize::from(failed > 0);
                    harmless += usize::from(failed == 0);
                }
            }
        }
    }
    println!("{flips} flips: {refused} mounts refused, {reads} reads failed, {harmless} harmless");
    assert!(reads > 0 && refused > 0);
}

fn lying_writes(faults: WriteFaults, seed: u64) -> (usize, usize) {
    let config = tiny_config();
    let (mut rig, mut model) = filled(seed, &config, 40);
    let mut rng = Rng::with_seed(seed ^ 99);
    let generator = Gen { objects: 12, blocks: 40, ..Gen::default() };
    rig.disk.faults = faults;
    let mut sure = true;
    for _ in 0..30 {
        let txn = generator.txn(&mut rng, 0);
        let mut next = model.clone();
        if next.apply(&txn).is_ok() && try_submit(&mut rig, &txn) {
            model = next;
        }
        rig.turn();
        if rig.fatal.is_some() {
            return (1, 0);
        }
    }
    rig.store.flush_soon();
    rig.settle();
    rig.disk.faults = WriteFaults::default();
    // Later batches are witnesses of the lost ones.
    for n in 0..3 {
        let mut txn = Transaction::new(0);
        txn.set_attr(&key(500), bytes(b"n"), bytes(&[n]));
        sure &= try_submit(&mut rig, &txn);
        model.apply(&txn).unwrap();
        rig.sleep();
    }
    if rig.fatal.is_some() || !sure {
        return (1, 0);
    }
    let before = read_all(&mut rig, &model, &format!("seed {seed}, running"));
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    let report = fsck(&mut disk.clone(), &config);
    match mount(&mut disk, &config, Expect::default()) {
        Err(why) => {
            assert!(report.is_damaged(), "seed {seed}: {why}, but fsck finds no damage");
            (1, before)
        }
        Ok(store) => {
            let mut rig = Rig::with(disk, store);
            let after = read_all(&mut rig, &model, &format!("seed {seed}, mounted again"));
            assert!(after == 0 || report.is_damaged(), "seed {seed}: fsck finds no damage");
            (0, after)
        }
    }
}

#[test]
fn lost_writes_are_found() {
    let (mut refused, mut failed) = (0, 0);
    for seed in 0..rounds(40) {
        let (r, f) = lying_writes(WriteFaults { lost_one_in: 20, misdirected_one_in: 0 }, seed);
        refused += r;
        failed += f;
    }
    println!("lost writes: {refused} stores stopped or refused, {failed} objects unreadable");
    assert!(refused + failed > 0);
}

#[test]
fn misdirected_writes_are_found() {
    let (mut refused, mut failed) = (0, 0);
    for seed in 1000..1000 + rounds(40) {
        let (r, f) = lying_writes(WriteFaults { lost_one_in: 0, misdirected_one_in: 20 }, seed);
        refused += r;
        failed += f;
    }
    println!(
        "misdirected writes: {refused} stores stopped or refused, {failed} objects unreadable"
    );
    assert!(refused + failed > 0);
}

#[test]
fn a_failing_read_fails_only_what_needs_it() {
    let config = Config { block_cache_bytes: 0, ..tiny_config() };
    let mut rig = Rig::new(1, &[12 << 20], &config);
    let mut model = Model::new();
    for n in 0..8 {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; 100_000].into());
        rig.commit(&txn);
        model.apply(&txn).unwrap();
    }
    rig.sleep();
    let mut failed = 0;
    for (dev, block) in rig.disk.written() {
        rig.disk.unreadable.insert((dev, block));
        for n in 0..8 {
            match rig.read(&key(n), 0, 100_000) {
                Ok(data) => assert_eq!(data, vec![n as u8; 100_000]),
                Err(StoreError::Io { .. }) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        rig.disk.unreadable.clear();
    }
    assert_eq!(failed, 8 * 25);
    assert_eq!(read_all(&mut rig, &model, "after all"), 0);
}

#[test]
fn a_failed_write_or_flush_ends_the_store() {
    for seed in 0..20 {
        let (mut rig, _) = filled(seed, &tiny_config(), 10);
        rig.disk.writes_fail = true;
        let mut txn = Transaction::new(0);
        txn.write(&key(1), 0, vec![1; 30_000].into());
        assert!(matches!(rig.submit(&txn), Taken::Yes(_)));
        let durable = rig.durable.len();
        if seed % 2 == 0 {
            rig.store.flush_soon();
        }
        rig.end_turn();
        for _ in 0..100 {
            rig.turn();
        }
        assert!(rig.fatal.is_some());
        assert_eq!(rig.durable.len(), durable, "nothing is acknowledged after a failure");
        let issued = rig.disk.issued;
        rig.end_turn();
        assert_eq!(rig.disk.issued, issued, "a dead store touches nothing");
        assert!(matches!(rig.submit(&txn), Taken::Dead));
    }
}

/// A store whose last log batch is the one that is going to be damaged.
fn with_last_batch(idle: bool) -> (Disk, Model, u64) {
    let config = tiny_config();
    let mut rig = Rig::new(3, &[8 << 20], &config);
    let mut model = Model::new();
    for n in 0..3u8 {
        let mut txn = Transaction::new(0);
        txn.set_attr(&key(1), bytes(b"n"), bytes(&[n; 9]));
        rig.commit(&txn);
        model.apply(&txn).unwrap();
    }
    if idle {
        rig.now.mono.0 += 200_000_000;
        rig.settle();
    }
    // The log begins at block 16; each batch here is one block; the first is the mount's.
    (rig.disk, model, 16 + 3)
}

#[test]
fn a_rotten_last_batch_is_told_from_a_torn_one() {
    let config = tiny_config();
    let (mut disk, _, block) = with_last_batch(true);
    disk.crash(|_, _, _| true);
    disk.flip(DevId(0), block, 333);
    let Err(why) = mount(&mut disk, &config, Expect::default()) else { panic!("it was mounted") };
    let text = why.to_string();
    assert!(
        text.contains("log batch 4") && text.contains("durable") && text.contains("fsck"),
        "{text}"
    );
    let report = fsck(&mut disk, &config);
    assert!(
        report.findings.iter().any(|f| f.severity == Severity::Damage && f.what.contains("lost"))
    );
}

#[test]
fn rotten_logged_blocks_damage_only_their_objects() {
    let config = Config { mark_interval_ms: 1, ..tiny_config() };
    let mut rig = Rig::new(4, &[8 << 20], &config);
    let mut model = Model::new();
    for n in 0..4u8 {
        let mut txn = Transaction::new(0);
        txn.write(&key(u64::from(n)), 0, vec![n + 1; 4096].into());
        rig.commit(&txn);
        rig.settle();
        model.apply(&txn).unwrap();
    }
    rig.now.mono.0 += 20_000_000;
    rig.settle();
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    // Find the logged block of the third object.
    let is_it = |d: &Disk, b: u64| d.block(DevId(0), b) == [3; BLOCK_BYTES];
    let block = (16..144).find(|b| is_it(&disk, *b)).expect("it is in the log");
    disk.flip(DevId(0), block, 99);
    let report = fsck(&mut disk.clone(), &config);
    assert!(report.findings.iter().any(|f| f.object == Some(key(2))), "{:?}", report.findings);
    let store = mount(&mut disk, &config, Expect::default()).unwrap();
    let mut rig = Rig::with(disk, store);
    assert_eq!(read_all(&mut rig, &model, "from the log"), 1);
    assert_eq!(rig.bad_blocks, [(key(2), 0)]);
    // Also when it should have been put in place; and a new write makes it good.
    rig.sleep();
    assert_eq!(read_all(&mut rig, &model, "from its place"), 1);
    let mut txn = Transaction::new(0);
    txn.write(&key(2), 0, vec![9; 4096].into());
    model.apply(&txn).unwrap();
    rig.commit(&txn);
    assert_eq!(read_all(&mut rig, &model, "written anew"), 0);
    rig.unmount();
}

/// What a device answers that does not do what it should.
fn errors() -> [DiskError; 2] {
    [DiskError::Os(5), DiskError::Short { done: 512, wanted: 4096 }]
}

#[test]
fn a_short_read_is_an_error_and_the_next_one_is_not() {
    let mut rig = Rig::new(1, &[12 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![7; 100_000].into());
    rig.commit(&txn);
    rig.sleep();
    for error in errors() {
        rig.store.drop_caches();
        rig.disk.error = error;
        rig.disk.fail_after = Some(0);
        match rig.read(&key(1), 0, 100_000) {
            Err(StoreError::Io { error: told, .. }) => assert_eq!(told, error),
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.read(&key(1), 0, 100_000).unwrap(), vec![7; 100_000]);
        assert!(rig.bad_blocks.is_empty() && rig.fatal.is_none(), "the data are not to blame");
    }
    assert_eq!(rig.store.counters().read_errors, 2);
}

/// Any one write or flush that fails, of a turn or of a checkpoint, ends the store: nothing is
/// acknowledged after it, nothing more is asked of the disk, and what was acknowledged is there.
#[test]
fn one_failed_or_short_write_or_failed_flush_ends_the_store() {
    let mut ended = 0;
    for (n, error) in (0..60).flat_map(|n| errors().map(|e| (n, e))) {
        let (mut rig, model) = filled(3, &tiny_config(), 10);
        rig.disk.error = error;
        let mut txn = Transaction::new(0);
        txn.write(&key(900), 0, vec![1; 30_000].into()).write(&key(901), 0, vec![2; 10].into());
        assert!(matches!(rig.submit(&txn), Taken::Yes(_)));
        rig.store.flush_soon();
        rig.disk.fail_write_after = Some(n);
        rig.end_turn();
        while rig.fatal.is_none() && rig.turn() {}
        if rig.disk.fail_write_after.is_some() {
            assert!(n > 5, "a checkpoint writes and flushes");
            break;
        }
        ended += 1;
        assert!(rig.fatal.is_some(), "write {n}");
        let (durable, issued) = (rig.durable.len(), rig.disk.issued);
        while rig.complete_one() {}
        rig.end_turn();
        assert_eq!((rig.durable.len(), rig.disk.issued), (durable, issued));
        assert!(matches!(rig.submit(&txn), Taken::Dead));
        let mut after = model.clone();
        after.apply(&txn).unwrap();
        let told = rig.durable.iter().next_back() == rig.last_taken.as_ref();
        let mut disk = rig.disk;
        disk.crash_randomly();
        let got = Rig::open(disk, &tiny_config()).unwrap().dump().unwrap();
        assert!(got == after || !told && got == model, "write {n}: acknowledged: {told}");
    }
    assert!(ended > 10, "{ended}");
}

/// A tree node that a checkpoint needs and cannot read is tried again; only when that does not help
/// does the store end.
#[test]
fn a_checkpoint_tries_again_to_read() {
    let config = Config { page_cache_bytes: 0, ..tiny_config() };
    for lasting in [false, true] {
        let (mut rig, mut model) = filled(6, &config, 40);
        rig.sleep();
        let mut rig = Rig::open(rig.unmount(), &config).unwrap();
        let mut txn = Transaction::new(0);
        txn.set_attr(&key(1), bytes(b"x"), bytes(b"y"));
        rig.commit(&txn);
        model.apply(&txn).unwrap();
        rig.store.flush_soon();
        rig.disk.fail_reads = if lasting { u32::MAX } else { 1 };
        rig.settle();
        assert_eq!(rig.fatal.is_some(), lasting);
        assert!(rig.disk.fail_reads != 1, "the checkpoint reads");
        rig.disk.fail_reads = 0;
        let mut rig = if lasting {
            let mut disk = rig.disk;
            disk.crash_randomly();
            Rig::open(disk, &config).unwrap()
        } else {
            rig
        };
        assert_eq!(read_all(&mut rig, &model, "after the failed read"), 0);
    }
}

/// A disk that does not answer: what is in flight stays within its limits, writers are told to
/// wait, nothing is acknowledged; when it answers again, all goes on.
#[test]
fn a_slow_disk_makes_writers_wait() {
    let config = Config { direct_inflight_bytes: 1 << 20, ..tiny_config() };
    for big in [false, true] {
        let mut rig = Rig::new(1, &[32 << 20], &config);
        rig.settle();
        let (mut taken, mut tried) = (0, 0u64);
        let len = if big { 64 << 10 } else { 4096 };
        loop {
            let mut txn = Transaction::new(0);
            txn.write(&key(tried % 300), 0, vec![tried as u8; len].into());
            tried += 1;
            match rig.store.submit(rig.now, &txn, &ReadSet::new()) {
                Ok(_) => taken += 1,
                Err(SubmitError::Busy) => break,
                Err(other) => panic!("{other:?}"),
            }
            // The turns go on, the disk does not.
            rig.end_turn();
            assert!(tried < 10_000, "a writer is never told to wait");
        }
        assert!(rig.durable.is_empty() && taken > 10);
        let flying = rig.disk.loose_bytes();
        assert!(flying <= config.direct_inflight_bytes + config.wal_bytes, "{flying} in flight");
        assert_eq!(rig.writable, 0);
        rig.settle();
        assert!(rig.writable > 0, "the writer is told");
        assert_eq!(rig.durable.len(), taken);
    }
}

/// A failed discard is no error: the space is used again all the same.
#[test]
fn a_failed_discard_is_nothing() {
    let config = Config { discard: true, ..tiny_config() };
    let mut rig = Rig::new(1, &[8 << 20], &config);
    rig.disk.fail_discards = true;
    for n in 0..20u8 {
        let mut txn = Transaction::new(0);
        txn.write(&key(1), 0, vec![n; 3 << 20].into());
        rig.commit(&txn);
        let mut txn = Transaction::new(0);
        txn.remove(&key(1));
        rig.commit(&txn);
        rig.sleep();
    }
    assert!(rig.disk.discards > 0 && rig.fatal.is_none());
}

/// All blocks of a device so far: so many reads of each fail.
fn flaky(rig: &mut Rig, dev: u8, times: u32) {
    let written = rig.disk.written();
    let blocks = written.into_iter().filter(|(d, _)| *d == DevId(dev));
    rig.disk.fail_times = blocks.map(|block| (block, times)).collect();
}

/// Each node is read well in the end; that there are many of them is no reason to give up.
#[test]
fn a_checkpoint_goes_on_when_many_reads_fail_now_and_then() {
    let config = Config { page_cache_bytes: 0, ..tiny_config() };
    let mut rig = Rig::new(2, &[12 << 20], &config);
    let set = |n: u64, value: &[u8]| {
        let mut txn = Transaction::new(0);
        txn.set_attr(&key(n), bytes(b"x"), bytes(value));
        txn
    };
    for n in 0..200 {
        rig.must(&set(n, &[1; 1000]));
    }
    rig.sleep();
    for n in 0..200 {
        rig.must(&set(n, &[2; 10]));
    }
    // With others, and alone.
    flaky(&mut rig, 0, 2);
    rig.store.flush_soon();
    rig.settle();
    assert!(rig.fatal.is_none(), "{:?}", rig.fatal);
    assert!(rig.store.is_at_rest());
    let failed = rig.disk.fail_times.values().filter(|left| **left == 0).count();
    assert!(failed > 20, "{failed} blocks failed");
}

/// A block that was read back from the log in the end is none that failed.
#[test]
fn what_is_read_back_well_again_and_again_is_not_given_up() {
    // Nothing of the log stays in memory.
    let config = Config { wal_cache_bytes: 0, ..tiny_config() };
    let mut rig = Rig::new(2, &[12 << 20, 2 << 20], &config);
    for n in 0..8u8 {
        let mut txn = Transaction::new(0);
        txn.write(&key(1), 0, vec![n; 4096].into());
        rig.commit(&txn);
        // In a long piece, and by itself.
        flaky(&mut rig, 1, 2);
        rig.store.flush_soon();
        rig.settle();
        let failed = rig.disk.fail_times.values().filter(|left| **left == 0).count();
        assert!(n == 0 || failed > 0, "nothing was read back");
        rig.disk.fail_times.clear();
        rig.sleep();
        rig.store.drop_caches();
        assert_eq!(rig.read(&key(1), 0, 4096).unwrap(), [n; 4096], "{n}");
    }
}
