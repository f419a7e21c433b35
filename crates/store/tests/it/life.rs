//! From mkfs to unmount: what is refused, what is repaired, what an operation costs.

use crate::disk::Disk;
use crate::rig::{
    CLUSTER, OSD, Rig, Taken, assert_clean, bytes, fsck, identity, key, mkfs, mount, mount_until,
    outline_config, tiny_config,
};
use bytes::Bytes;
use io::disk::{DevId, DiskOp, WriteMode};
use io::{AlignedBuf, BLOCK_BYTES};
use std::sync::Arc;
use store::{
    Config, Expect, Format, MkfsError, MountError, OmapRange, ReadSet, Severity, Store, Transaction,
};
use types::{OsdId, Uuid};

const DATA: DevId = DevId(0);

fn expect_error(disk: &mut Disk, expect: Expect) -> MountError {
    match mount(disk, &tiny_config(), expect) {
        Ok(_) => panic!("it was mounted"),
        Err(why) => why,
    }
}

fn made(sizes: &[u64]) -> Disk {
    let mut disk = Disk::new(1, sizes);
    mkfs(&mut disk, &tiny_config(), false).unwrap();
    disk
}

#[test]
fn mkfs_refuses_what_holds_something() {
    let config = tiny_config();
    let mut disk = made(&[8 << 20]);
    let Err(MkfsError::InUse { what, .. }) = mkfs(&mut disk, &config, false) else { panic!() };
    assert!(what.contains("Loligo"), "{what}");
    mkfs(&mut disk, &config, true).unwrap();
    // The front is gone, the copy at the end tells.
    disk.poke(DATA, 0, [0; BLOCK_BYTES]);
    disk.poke(DATA, 1, [0; BLOCK_BYTES]);
    assert!(matches!(mkfs(&mut disk, &config, false), Err(MkfsError::InUse { .. })));
    let mut disk = Disk::new(1, &[8 << 20]);
    let mut block = [0; BLOCK_BYTES];
    block[..4].copy_from_slice(b"XFSB");
    disk.poke(DATA, 0, block);
    let Err(why) = mkfs(&mut disk, &config, false) else { panic!() };
    assert!(why.to_string().contains("XFS") && why.to_string().contains("--force"), "{why}");
    assert_eq!(disk.block(DATA, 0), block);
    // What nobody knows is somebody's, too.
    let mut disk = Disk::new(1, &[8 << 20]);
    disk.poke(DATA, 9, block);
    let Err(why) = mkfs(&mut disk, &config, false) else { panic!() };
    assert!(why.to_string().contains("unknown kind"), "{why}");
    mkfs(&mut disk, &config, true).unwrap();
}

#[test]
fn mkfs_refuses_what_is_too_small() {
    let config = tiny_config();
    for (sizes, bad) in
        [(&[1 << 20][..], true), (&[8 << 20, 64 << 10], true), (&[4 << 20, 1 << 20], false)]
    {
        let mut disk = Disk::new(1, sizes);
        let result = mkfs(&mut disk, &config, false);
        assert_eq!(matches!(result, Err(MkfsError::TooSmall { .. })), bad, "{sizes:?}: {result:?}");
    }
}

#[test]
fn a_mount_refuses_what_is_not_the_right_store() {
    let mut empty = Disk::new(1, &[8 << 20]);
    assert!(matches!(expect_error(&mut empty, Expect::default()), MountError::NoStore { .. }));
    let mut disk = made(&[8 << 20]);
    let other = Uuid([5; 16]);
    let cluster = Expect { cluster: Some(other), ..Expect::default() };
    assert!(matches!(expect_error(&mut disk, cluster), MountError::OtherCluster { .. }));
    let osd = Expect { osd: Some(OsdId(4)), ..Expect::default() };
    let text = expect_error(&mut disk, osd).to_string();
    assert!(text.contains("osd.3") && text.contains("osd.4"), "{text}");
    let store = Expect { store: Some(other), ..Expect::default() };
    assert!(matches!(expect_error(&mut disk, store), MountError::OtherStore { .. }));
    let right = Expect { cluster: Some(CLUSTER), osd: Some(OSD), store: Some(identity().store) };
    mount(&mut disk, &tiny_config(), right).unwrap();
}

#[test]
fn a_mount_refuses_the_wrong_devices() {
    let mut disk = made(&[8 << 20, 1 << 20]);
    let mut without = disk.clone();
    without.cut_to_one_device();
    let text = expect_error(&mut without, Expect::default()).to_string();
    assert!(text.contains("--wal"), "{text}");
    disk.poke(DevId(1), 0, [0; BLOCK_BYTES]);
    assert!(matches!(expect_error(&mut disk, Expect::default()), MountError::LogDevice { .. }));
    let mut small = made(&[8 << 20]);
    small.grow(0, 6 << 20);
    // The copies at the end are out of reach, but those at the front say what is wrong.
    assert!(matches!(expect_error(&mut small, Expect::default()), MountError::TooSmall { .. }));
    let mut grown = made(&[8 << 20]);
    grown.grow(0, 9 << 20);
    mount(&mut grown, &tiny_config(), Expect::default()).unwrap();
}

/// Changes bytes of a superblock and makes its checksum fit.
fn forge(disk: &mut Disk, block: u64, at: usize, value: u8) {
    let mut data = disk.block(DATA, block);
    data[at] = value;
    let crc = denc::crc32c(0xffff_ffff, &data[..4092]);
    data[4092..].copy_from_slice(&crc.to_le_bytes());
    disk.poke(DATA, block, data);
}

/// Blocks of the copies of the superblock.
fn supers() -> [u64; 4] {
    let end = (8 << 20) / 4096;
    [0, 1, end - 2, end - 1]
}

#[test]
fn a_newer_format_is_not_touched() {
    let mut disk = made(&[8 << 20]);
    let [.., last] = supers();
    for block in [1, last] {
        forge(&mut disk, block, 8, 2);
    }
    let why = expect_error(&mut disk, Expect::default());
    assert!(matches!(why, MountError::Newer { found: Format { number: 2, .. }, .. }), "{why:?}");
}

/// The features that each copy tells of.
fn features(disk: &Disk) -> Vec<u8> {
    let copies = supers().map(|block| disk.block(DATA, block));
    copies.iter().filter(|copy| copy[..] != [0; BLOCK_BYTES]).map(|copy| copy[12]).collect()
}

/// A store as a program of before left it: with a log, and fewer features.
fn of_an_older_program() -> Disk {
    let mut rig = Rig::new(1, &[8 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    rig.commit(txn.set_attr(&key(1), bytes(b"a"), bytes(b"v")));
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    for block in supers() {
        if disk.block(DATA, block) != [0; BLOCK_BYTES] {
            forge(&mut disk, block, 12, 7);
        }
    }
    assert_eq!(features(&disk), [7; 2]);
    disk
}

/// An older program must not come to a log that has records which it does not know, nor to one that knows of newer
/// superblocks than it can read.
#[test]
fn all_superblocks_have_all_features_before_anything_comes_into_the_log() {
    let config = tiny_config();
    let old = of_an_older_program();
    let batches =
        |disk: &Disk| (16..144).filter(|b| disk.block(DATA, *b).starts_with(b"LoligoWA")).count();
    let mut wrote = false;
    for steps in 0.. {
        let mut disk = old.clone();
        let mounted = mount_until(&mut disk, &config, Expect::default(), steps);
        let is_over = mounted.is_some_and(|store| store.is_ok());
        for keeps in [false, true] {
            let mut disk = disk.clone();
            disk.crash(|_, _, _| keeps);
            if batches(&disk) > batches(&old) {
                wrote = true;
                assert!(features(&disk).iter().all(|f| *f == 31), "after {steps} steps");
            }
            let mut rig = Rig::open(disk, &config).unwrap();
            assert!(features(&rig.disk).iter().all(|f| *f == 31), "again after {steps} steps");
            assert_eq!(rig.object(&key(1)).unwrap().unwrap().attrs.len(), 1);
            assert_clean(&mut rig.unmount(), &config, "after the crash");
        }
        if is_over {
            break;
        }
    }
    assert!(wrote, "nothing came into the log");
}

/// One copy that a newer program has written is enough: what it logged since is not for this one, and nothing is lost.
#[test]
fn a_store_that_a_newer_program_has_had_is_not_taken_for_a_damaged_one() {
    let rig = Rig::open(of_an_older_program(), &tiny_config()).unwrap();
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    // The log knows of their generation.
    let newest = [1, supers()[3]];
    newest.into_iter().for_each(|block| forge(&mut disk, block, 12, 63));
    let one_left = {
        let mut disk = disk.clone();
        disk.poke(DATA, newest[0], [0xee; BLOCK_BYTES]);
        disk
    };
    for mut disk in [disk, one_left] {
        let why = expect_error(&mut disk, Expect::default());
        let (found, known) =
            (Format { number: 1, features: 63 }, Format { number: 1, features: 31 });
        assert_eq!(why, MountError::Newer { path: "/sim/0".into(), found, known });
        let text = why.to_string();
        assert!(
            text.contains("format 1 with features 63") && text.contains("a newer one"),
            "{text}"
        );
        let report = fsck(&mut disk, &tiny_config());
        let found: Vec<_> = report.findings.iter().map(|f| f.what.clone()).collect();
        assert_eq!((found, report.identity), (vec![text], None));
    }
}

#[test]
fn any_one_copy_of_the_superblock_is_enough() {
    let config = tiny_config();
    let mut rig = Rig::new(1, &[8 << 20], &config);
    let mut txn = Transaction::new(0);
    txn.set_attr(&key(1), bytes(b"a"), bytes(b"v"));
    rig.commit(&txn);
    let disk = rig.unmount();
    let end = (8 << 20) / 4096;
    let all = [0, 1, end - 2, end - 1];
    for keep in all {
        let mut bad = disk.clone();
        for block in all.into_iter().filter(|b| *b != keep) {
            bad.flip(DATA, block, 100);
        }
        let newest_is_there = fsck(&mut bad.clone(), &config).identity.is_some();
        assert!(newest_is_there);
        if let Ok(store) = mount(&mut bad, &config, Expect::default()) {
            let mut rig = Rig::with(bad, store);
            let value = rig.run(|s, _| s.attr(&key(1), b"a")).unwrap();
            assert_eq!(value.as_deref(), Some(&b"v"[..]));
            // The copy was repaired.
            let report = fsck(&mut rig.disk, &config);
            assert!(!report.is_damaged(), "{:?}", report.findings);
        }
    }
    // Every copy of the newest is needed only once.
    for block in all {
        let mut bad = disk.clone();
        bad.flip(DATA, block, 100);
        let report = fsck(&mut bad.clone(), &config);
        assert!(report.findings.iter().all(|f| f.severity == Severity::Note));
        assert_eq!(report.findings.len(), 1);
        let rig = Rig::open(bad, &config).unwrap();
        let mut disk = rig.unmount();
        assert_clean(&mut disk, &config, "repaired");
    }
}

#[test]
fn the_loss_of_the_newest_superblock_is_seen() {
    let config = tiny_config();
    let mut rig = Rig::new(1, &[8 << 20], &config);
    for n in 0..5u8 {
        let mut txn = Transaction::new(0);
        txn.write(&key(1), 0, vec![n; 100_000].into());
        rig.commit(&txn);
        rig.store.flush_soon();
        rig.settle();
    }
    // A batch that knows the newest generation.
    let mut txn = Transaction::new(0);
    txn.touch(&key(2));
    rig.commit(&txn);
    let disk = rig.disk;
    let end = (8 << 20) / 4096;
    let mut refused = 0;
    for slot in [0, 1] {
        let mut bad = disk.clone();
        bad.crash(|_, _, _| true);
        bad.flip(DATA, slot, 1000);
        bad.flip(DATA, end - 2 + slot, 1000);
        match mount(&mut bad, &config, Expect::default()) {
            Err(why) => {
                assert!(why.to_string().contains("superblock"), "{why}");
                refused += 1;
            }
            Ok(store) => {
                let mut rig = Rig::with(bad, store);
                assert_eq!(rig.read(&key(1), 0, 1).unwrap(), [4]);
            }
        }
    }
    assert_eq!(refused, 1);
}

#[test]
fn mounting_again_and_again_does_not_fill_the_log() {
    let config = tiny_config();
    let mut disk = made(&[8 << 20]);
    for n in 0..300 {
        let store = mount(&mut disk, &config, Expect::default()).unwrap();
        assert!(store.usage().log_used <= 4096 * 4, "mount {n}: {:?}", store.usage());
        drop(store);
        if n % 3 == 0 {
            disk.crash_randomly();
        }
    }
    for steps in 0..60 {
        assert!(
            mount_until(&mut disk, &config, Expect::default(), steps % 20)
                .is_none_or(|r| r.is_ok())
        );
        disk.kill();
    }
    Rig::open(disk, &config).unwrap().unmount();
}

#[test]
fn an_unchanged_store_can_be_closed_and_opened() {
    let config = tiny_config();
    let mut disk = made(&[8 << 20]);
    for _ in 0..3 {
        let rig = Rig::open(disk, &config).unwrap();
        disk = rig.unmount();
        assert!(assert_clean(&mut disk, &config, "closed").clean);
    }
}

#[test]
fn a_small_write_is_one_disk_write() {
    let mut rig = Rig::new(1, &[16 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![1; 1 << 20].into()).set_meta(&key(1), bytes(&[1; 100]));
    rig.commit(&txn);
    rig.sleep();
    for n in 0..10 {
        let before = (rig.disk.issued, rig.disk.writes, rig.disk.written_bytes);
        let mut txn = Transaction::new(0);
        txn.write(&key(1), n * 8192, vec![2; 4096].into()).set_meta(&key(1), bytes(&[2; 100]));
        rig.commit(&txn);
        let after = (rig.disk.issued, rig.disk.writes, rig.disk.written_bytes);
        assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (1, 1, 8192));
    }
}

#[test]
fn a_store_comes_to_rest() {
    let mut rig = Rig::new(1, &[16 << 20], &tiny_config());
    assert!(rig.store.is_at_rest());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![1; 4096].into());
    rig.must(&txn);
    assert!(!rig.store.is_at_rest());
    rig.settle();
    assert!(rig.durable.len() == 1 && !rig.store.is_at_rest(), "it is in the log only");
    rig.store.flush_soon();
    rig.settle();
    assert!(rig.store.is_at_rest());
}

#[test]
fn a_wish_to_rest_outlives_the_clearing_away_of_the_last_checkpoint() {
    let mut config = tiny_config();
    config.memtable_bytes = 4 << 20;
    config.wal_bytes = 8 << 20;
    let mut rig = Rig::new(1, &[64 << 20], &config);
    for n in 0..200 {
        let mut txn = Transaction::new(0);
        for i in 0..10 {
            txn.set_attr(&key(n), bytes(&[i]), bytes(&[1; 40]));
        }
        rig.must(&txn);
    }
    rig.store.flush_soon();
    // The memtable that was applied is cleared away in slices, one a turn.
    while rig.store.counters().checkpoints == 0 {
        assert!(rig.turn());
    }
    let mut txn = Transaction::new(0);
    txn.set_attr(&key(1), bytes(b"a"), bytes(b"v"));
    rig.must(&txn);
    rig.store.flush_soon();
    rig.settle();
    assert!(rig.store.is_at_rest());
}

#[test]
fn a_turn_is_one_batch() {
    let mut rig = Rig::new(1, &[16 << 20], &tiny_config());
    rig.sleep();
    let before = rig.disk.writes;
    for n in 0..8 {
        let mut txn = Transaction::new(n);
        txn.write(&key(n), 0, vec![2; 4096].into());
        rig.must(&txn);
    }
    rig.end_turn();
    assert_eq!(rig.disk.writes - before, 1);
    rig.settle();
    assert_eq!(rig.durable.len(), 8);
}

/// Bytes of the object of [`filled`].
const FILLED_BYTES: u64 = 16 << 20;
const ROW_BYTES: u64 = 128 << 10;

/// A store with an object whose rows of extents are several leaves.
fn filled(config: &Config) -> Disk {
    let mut rig = Rig::new(1, &[32 << 20], config);
    for at in (0..FILLED_BYTES).step_by(1 << 20) {
        let mut txn = Transaction::new(0);
        rig.commit(txn.write(&key(1), at, vec![1; 1 << 20].into()));
    }
    rig.unmount()
}

#[test]
fn memory_that_a_device_read_into_is_not_kept() {
    // The runner lends it, and has little of it.
    let config = Config { page_cache_bytes: 1 << 20, ..tiny_config() };
    let mut disk = filled(&config);
    disk.lent = Some(Arc::default());
    let mut rig = Rig::open(disk, &config).unwrap();
    for at in (0..FILLED_BYTES).step_by(1 << 20) {
        rig.read(&key(1), at, 4096).unwrap();
    }
    rig.settle();
    assert!(rig.store.counters().nodes_read >= 3);
    let lent = rig.disk.lent.take().unwrap();
    assert_eq!(Arc::strong_count(&lent), 1, "something holds what a read returned");
}

#[test]
fn outlines_are_learned_from_all_rows_that_were_read() {
    let config = outline_config();
    let mut rig = Rig::open(filled(&config), &config).unwrap();
    let mut at_once = 0;
    let rows = FILLED_BYTES / ROW_BYTES;
    for i in 0..rows {
        // No leaf is needed twice in a row.
        rig.read(&key(1), i * 37 % rows * ROW_BYTES, 4096).unwrap();
        at_once += u64::from(rig.store.counters().outlined_blocks_read > at_once);
    }
    let nodes = rig.store.counters().nodes_read;
    // 128 rows are 5 leaves; with each of the first ones the root is read, too.
    assert!(at_once >= 100 && (5..=20).contains(&nodes), "{at_once} by outlines, {nodes} nodes");
    for at in (0..FILLED_BYTES).step_by(60 << 10) {
        assert_eq!(rig.read(&key(1), at, 4096).unwrap(), [1; 4096]);
    }
    assert_eq!(rig.store.counters().nodes_read, nodes);
}

#[test]
fn a_big_aligned_write_is_not_copied() {
    let mut rig = Rig::new(1, &[16 << 20], &tiny_config());
    let data = AlignedBuf::zeroed(1 << 20).freeze();
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 8192, data.clone());
    rig.store.submit(rig.now, &txn, &ReadSet::new()).unwrap();
    rig.store.end_turn(rig.now, &mut rig.fx);
    let range = data.as_ptr() as usize..data.as_ptr() as usize + data.len();
    let mut written = 0;
    for (_, op) in &rig.fx.disk {
        if let DiskOp::Write { data, mode, .. } = op {
            assert_eq!(*mode, WriteMode::Durable);
            let ours = data.iter().filter(|piece| range.contains(&(piece.as_ptr() as usize)));
            written += ours.map(|piece| piece.len()).sum::<usize>();
        }
    }
    assert_eq!(written, 1 << 20);
    // It can be read before it is there, also without a copy.
    let pieces = rig.store.read(&key(1), 0, 2 << 20, &ReadSet::new()).unwrap();
    assert_eq!(pieces.len(), 2);
    assert!(pieces[0].data.is_none() && pieces[0].len == 8192);
    let piece = pieces[1].data.as_ref().unwrap();
    assert_eq!((piece.as_ptr(), piece.len()), (data.as_ptr(), data.len()));
}

#[test]
fn a_big_write_in_pieces_is_flushed_once() {
    let config = Config { small_write_bytes: 4096, ..tiny_config() };
    let mut rig = Rig::new(1, &[4 << 20], &config);
    // Fill the device, then free every second block.
    let mut n = 0;
    loop {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![1; 4096].into());
        match rig.submit(&txn) {
            crate::rig::Taken::Yes(_) => n += 1,
            _ => break,
        }
    }
    for i in (0..n).step_by(2) {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        rig.must(txn.remove(&key(i)));
    }
    rig.sleep();
    let before = rig.store.counters();
    let mut txn = Transaction::new(0);
    txn.write(&key(9999), 0, vec![3; 100 * 4096].into());
    rig.commit(&txn);
    let after = rig.store.counters();
    assert_eq!(after.direct_flushes - before.direct_flushes, 1);
    let pieces = after.direct_writes - before.direct_writes;
    assert!(pieces > 20, "{pieces} pieces");
    assert_eq!(rig.read(&key(9999), 0, 1 << 20).unwrap(), vec![3; 100 * 4096]);
}

/// How long it was idle before does not count as the time that a write or a read took.
#[test]
fn times_begin_when_something_is_asked_for() {
    let config = tiny_config();
    let mut rig = Rig::new(4, &[8 << 20], &config);
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![1; 4096].into());
    rig.commit(&txn);
    rig.sleep();
    let mut rig = Rig::open(rig.disk, &config).unwrap();
    rig.settle();
    let before = rig.store.counters();
    let idle_ns = 3_600_000_000_000;
    rig.now.mono.0 += idle_ns;
    assert_eq!(rig.read(&key(1), 0, 4096).unwrap(), vec![1; 4096]);
    rig.settle();
    rig.now.mono.0 += idle_ns;
    rig.commit(&txn);
    let after = rig.store.counters();
    assert!(after.fetches > before.fetches && after.durable > before.durable);
    assert!(after.fetch_ns - before.fetch_ns < idle_ns, "of a read");
    assert!(after.durable_ns - before.durable_ns < idle_ns, "of a write");
}

#[test]
fn a_store_can_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Store>();
}

/// What comes while a small batch of the log is on its way goes together when that one is done.
#[test]
fn small_transactions_are_gathered_behind_a_batch() {
    for (wal_gather_blocks, at_once) in [(64, 1), (0, 6)] {
        let config = Config { wal_gather_blocks, wal_inflight_batches: 8, ..tiny_config() };
        let mut rig = Rig::new(9, &[8 << 20], &config);
        let before = rig.store.counters().log_batches;
        let written = |rig: &Rig| rig.store.counters().log_batches - before;
        let ids: Vec<_> = (0..6)
            .map(|n| {
                let mut txn = Transaction::new(n);
                txn.write(&key(n), 0, vec![1; 4096].into());
                let id = rig.must(&txn);
                rig.end_turn();
                id
            })
            .collect();
        assert_eq!(written(&rig), at_once, "{wal_gather_blocks}");
        while !ids.iter().all(|id| rig.durable.contains(id)) {
            assert!(rig.turn(), "a transaction never gets durable");
        }
        assert_eq!(written(&rig), at_once.max(2), "{wal_gather_blocks}");
    }
}

/// A copy is like its original but where one of them was written; so is what was written alike.
#[test]
fn what_is_alike_in_two_objects_is_known() {
    let config = tiny_config();
    let mut rig = Rig::new(1, &[16 << 20], &config);
    let block = BLOCK_BYTES as u64;
    let mut txn = Transaction::new(0);
    // Over several shards, with a hole, and an end within a block.
    txn.write(&key(1), 0, vec![1; 50 * BLOCK_BYTES].into());
    txn.write(&key(1), 60 * block, vec![2; 20 * BLOCK_BYTES + 5].into());
    txn.clone_object(&key(1), &key(2));
    rig.commit(&txn);
    let alike = |rig: &mut Rig, a, b| rig.run(|s, _| s.alike(&key(a), &key(b))).unwrap();
    assert_eq!(alike(&mut rig, 1, 2), [(0, 80 * block)]);
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 3 * block + 1, vec![9; BLOCK_BYTES].into());
    txn.write(&key(2), 55 * block, vec![9; BLOCK_BYTES].into());
    txn.zero(&key(2), 79 * block, 10 * block);
    txn.write(&key(3), 10 * block, vec![1; 2 * BLOCK_BYTES].into());
    rig.commit(&txn);
    for _ in 0..2 {
        let same = [(0, 3), (5, 50), (56, 23)].map(|(at, len)| (at * block, len * block));
        assert_eq!(alike(&mut rig, 1, 2), same);
        assert_eq!(alike(&mut rig, 2, 1), same);
        assert_eq!(alike(&mut rig, 1, 3), [(10 * block, 2 * block)]);
        assert_eq!(alike(&mut rig, 1, 4), []);
        rig = Rig::open(rig.unmount(), &config).unwrap();
    }
}

/// A large omap, nothing of which is in memory.
fn with_omap(keys: u32) -> Rig {
    let config = Config { wal_bytes: 2 << 20, ..tiny_config() };
    let mut rig = Rig::new(1, &[64 << 20], &config);
    for first in (0..keys).step_by(200) {
        let mut txn = Transaction::new(0);
        let entry = |i: u32| (i.to_be_bytes().to_vec().into(), vec![i as u8; 100].into());
        txn.omap_set(&key(1), (first..keys.min(first + 200)).map(entry).collect());
        rig.commit(&txn);
    }
    rig.sleep();
    rig.store.drop_caches();
    rig
}

fn clone_of_first() -> Transaction {
    let mut txn = Transaction::new(0);
    txn.clone_object(&key(1), &key(2));
    txn
}

/// Its rows are gone through once, however many reads bring them.
#[test]
fn a_clone_asks_for_all_of_an_omap_together() {
    let mut rig = with_omap(3000);
    let (misses, read) = (rig.store.counters().submit_misses, rig.store.counters().nodes_read);
    rig.commit(&clone_of_first());
    let read = rig.store.counters().nodes_read - read;
    assert!(read > 70, "{read} nodes");
    // The record, and then one for each level.
    let misses = rig.store.counters().submit_misses - misses;
    assert!(misses <= 4, "{misses} rounds for {read} nodes");
    let copy = rig.object(&key(2)).unwrap().unwrap();
    assert_eq!(copy.omap, rig.object(&key(1)).unwrap().unwrap().omap);
    assert_eq!(copy.omap.len(), 3000);
}

#[test]
fn a_clone_of_more_than_the_log_takes_is_refused_before_it_is_read() {
    // In a thousand leaves and more, of which the rows are eight times what a transaction may be.
    let mut rig = with_omap(40_000);
    let read = rig.store.counters().nodes_read;
    let refused = rig.submit(&clone_of_first());
    assert!(matches!(refused, Taken::Invalid(store::Invalid::TooLarge { .. })), "{refused:?}");
    let read = rig.store.counters().nodes_read - read;
    assert!(read < 200, "{read} nodes");
}

/// Ten times what a transaction may put into the log. What is not whole blocks goes there as ever.
#[test]
fn more_short_writes_than_the_log_takes_go_to_fresh_places() {
    let config = Config { wal_bytes: 2 << 20, ..tiny_config() };
    let mut rig = Rig::new(1, &[64 << 20], &config);
    let most = rig.store.max_first_transaction_bytes() as usize;
    let pieces = 10 * most / (2 * BLOCK_BYTES);
    let at = |i: usize| (i * 3 * BLOCK_BYTES) as u64;
    let content = |i: usize, n: u8| vec![(i as u8).wrapping_add(n) | 1; 2 * BLOCK_BYTES];
    for n in 0..2 {
        let mut txn = Transaction::new(0);
        (0..pieces).for_each(|i| _ = txn.write(&key(1), at(i), content(i, n).into()));
        txn.write(&key(1), at(1) + 1, vec![7; 5000].into());
        txn.write(&key(1), at(2), content(9, n).into());
        assert!(rig.store.logged_data_bytes(&txn) <= most as u64);
        let logged = rig.store.counters().logged_blocks;
        rig.commit(&txn);
        assert_eq!(rig.store.counters().logged_blocks - logged, 2);
        for _ in 0..2 {
            for i in 3..pieces {
                assert!(rig.read(&key(1), at(i), 2 * BLOCK_BYTES as u64).unwrap() == content(i, n));
            }
            let mut second = content(1, n);
            second[1..5001].fill(7);
            assert!(rig.read(&key(1), at(1), 2 * BLOCK_BYTES as u64).unwrap() == second);
            assert!(rig.read(&key(1), at(2), 2 * BLOCK_BYTES as u64).unwrap() == content(9, n));
            rig = Rig::open(rig.unmount(), &config).unwrap();
        }
    }
    assert_clean(&mut rig.unmount(), &config, "many short writes");
}

/// What is said before a transaction is looked at is no less than what it takes.
#[test]
fn what_data_takes_of_the_log_is_known_beforehand() {
    let mut rig = Rig::new(1, &[64 << 20], &Config { wal_bytes: 4 << 20, ..tiny_config() });
    let block = BLOCK_BYTES as u64;
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..200 {
        let mut txn = Transaction::new(0);
        for _ in 0..rng.u32(1..20) {
            let (at, len) = (rng.u64(..100 * block), rng.u64(1..10 * block));
            let (at, len) = match rng.bool() {
                true => (at / block * block, len.next_multiple_of(block)),
                false => (at, len),
            };
            match rng.u8(..8) {
                0 => txn.zero(&key(1), at, len),
                1 => txn.truncate(&key(1), at),
                _ => txn.write(&key(1), at, vec![round as u8 | 1; len as usize].into()),
            };
        }
        let most = rig.store.logged_data_bytes(&txn);
        let before = rig.store.counters().logged_blocks;
        rig.commit(&txn);
        let logged = (rig.store.counters().logged_blocks - before) * block;
        assert!(logged <= most, "round {round}: {logged} bytes, and {most} were to be expected");
    }
}

/// Its keys are removed at the head, one by one, and it is listed from its beginning each time.
#[test]
fn a_queue_does_not_pass_over_again_what_was_taken_from_it() {
    let mut rig = with_omap(4000);
    let range = OmapRange { max_entries: 10, max_bytes: usize::MAX, ..OmapRange::default() };
    let mut left = 4000;
    while left > 0 {
        let page = rig.run(|s, _| s.omap_list(&key(1), &range)).unwrap().unwrap();
        let keys: Vec<Bytes> = page.entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), 10.min(left));
        assert_eq!(keys[0][..], (4000 - left as u32).to_be_bytes());
        left -= keys.len();
        let mut txn = Transaction::new(0);
        txn.omap_remove(&key(1), keys);
        rig.commit(&txn);
    }
    let checkpoints = rig.store.counters().checkpoints;
    let passed = rig.store.counters().removed_rows_passed;
    // They were 99,000, however often a checkpoint ended some of them.
    assert!(passed < 12_000, "{passed} rows, in {checkpoints} checkpoints");
    assert_eq!(rig.object(&key(1)).unwrap().unwrap().omap.len(), 0);
    assert_clean(&mut rig.unmount(), &tiny_config(), "a queue");
}
