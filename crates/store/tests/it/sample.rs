//! Stores that earlier versions made still open, with everything in them.
//!
//! A sample is a device as its non-zero blocks: number (8, little-endian) and bytes (4096) of each.
//! `STORE_WRITE_SAMPLE=feature-1.blocks` makes that one anew; a change of the format adds one.

use crate::disk::Disk;
use crate::rig::{Rig, assert_clean, assert_same, bytes, key, tiny_config};
use io::BLOCK_BYTES;
use io::disk::DevId;
use std::path::PathBuf;
use store::model::Model;
use store::{Algorithm, Compress, Transaction};

const DEVICE_BYTES: u64 = 8 << 20;
const DATA: DevId = DevId(0);

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

fn pattern(seed: u8, len: usize) -> bytes::Bytes {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<u8>>().into()
}

/// A bit of everything.
fn history() -> Vec<Transaction> {
    let mut first = Transaction::new(1);
    first.write(&key(1), 0, pattern(1, 30_000));
    first.set_meta(&key(1), bytes(b"meta"));
    first.set_attr(&key(1), bytes(b"short"), bytes(b"value"));
    first.set_attr(&key(1), bytes(b"long"), pattern(2, 30_000));
    first.omap_set_header(&key(2), bytes(b"header"));
    let entries = (0..300).map(|n| (bytes(format!("key{n:04}").as_bytes()), pattern(n as u8, 20)));
    first.omap_set(&key(2), entries.collect());
    first.touch(&key(3));
    let mut second = Transaction::new(1);
    second.clone_object(&key(1), &key(4));
    second.write(&key(1), 4096, pattern(3, 8192));
    second.write(&key(5), 1 << 30, pattern(4, 10));
    second.omap_remove(&key(2), vec![bytes(b"key0007")]);
    let mut third = Transaction::new(2);
    third.write(&key(6), 3, pattern(5, 50));
    third.remove(&key(3));
    third.truncate(&key(4), 20_001);
    third.zero(&key(4), 8192, 4096);
    vec![first, second, third]
}

fn expected(history: &[Transaction]) -> Model {
    let mut model = Model::new();
    history.iter().for_each(|txn| model.apply(txn).unwrap());
    model
}

/// As it is after a crash: two transactions in the tree, the last one in the log only.
fn make(txns: &[Transaction]) -> Disk {
    let mut rig = Rig::new(1, &[DEVICE_BYTES], &tiny_config());
    for txn in &txns[..2] {
        rig.commit(txn);
    }
    let mut rig = Rig::open(rig.unmount(), &tiny_config()).unwrap();
    rig.commit(&txns[2]);
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    disk
}

fn save(disk: &Disk) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..DEVICE_BYTES / BLOCK_BYTES as u64 {
        let block = disk.block(DATA, number);
        if block.iter().any(|b| *b != 0) {
            out.extend(number.to_le_bytes());
            out.extend(block);
        }
    }
    out
}

fn load(sample: &[u8]) -> Disk {
    let mut disk = Disk::new(1, &[DEVICE_BYTES]);
    for record in sample.chunks_exact(8 + BLOCK_BYTES) {
        let (number, block) = record.split_at(8);
        let number = u64::from_le_bytes(number.try_into().unwrap());
        disk.poke(DATA, number, block.try_into().unwrap());
    }
    disk
}

/// With feature 1: the same, and compressed extents, in the tree and in the log.
fn compressed_history() -> Vec<Transaction> {
    let [first, mut second, mut third]: [_; 3] = history().try_into().unwrap();
    let compress = |txn: &mut Transaction, algorithm| {
        txn.account = 5;
        txn.compress = Some(Compress {
            algorithm,
            required_per_mille: 875,
            min_blob_bytes: 8 << 10,
            max_blob_bytes: 64 << 10,
        });
    };
    compress(&mut second, Algorithm::Zstd);
    second.write(&key(7), 4096, pattern(6, 200_000)).clone_object(&key(7), &key(8));
    compress(&mut third, Algorithm::Lz4);
    third.write(&key(9), 0, pattern(7, 40_960)).write(&key(7), 70_000, pattern(8, 10));
    third.clone_range(&key(8), 8192, 20_000, &key(9), 16_384);
    vec![first, second, third]
}

/// With a checksum of each block that stands beside the log.
fn direct_history() -> Vec<Transaction> {
    let [first, second, mut third]: [_; 3] = history().try_into().unwrap();
    third.write(&key(9), 0, pattern(7, 200_000)).write(&key(9), 8192, pattern(8, 4096));
    vec![first, second, third]
}

/// With what two accounts have, of one of them in the tree and in the log.
fn counted_history() -> Vec<Transaction> {
    let [first, second, third]: [_; 3] = history().try_into().unwrap();
    let mut of_other = Transaction::new(third.sequencer);
    of_other.account = 1;
    of_other.write(&key(101), 0, pattern(6, 200_000)).zero(&key(101), 5000, 100_000);
    of_other.clone_object(&key(101), &key(102));
    vec![first, second, of_other]
}

fn opens(name: &str, history: fn() -> Vec<Transaction>) {
    let path = path(name);
    if std::env::var_os("STORE_WRITE_SAMPLE").is_some_and(|wanted| *wanted == *name) {
        std::fs::write(&path, save(&make(&history()))).unwrap();
    }
    let disk = load(&std::fs::read(path).unwrap());
    assert_clean(&mut disk.clone(), &tiny_config(), name);
    let mut rig = Rig::open(disk, &tiny_config()).unwrap();
    assert_same(&rig.dump().unwrap(), &expected(&history()), name);
    assert_counted(rig, name);
}

/// What its accounts have is known, though the older ones never counted that: also when it crashes before that is in
/// the tree, and when it is.
fn assert_counted(mut rig: Rig, name: &str) {
    let counted = rig.store.by_account().expect(name);
    assert_eq!(counted.iter().map(|a| a.allocated).sum::<u64>(), rig.store.usage().data);
    let mut txn = Transaction::new(0);
    rig.commit(txn.write(&key(42), 0, pattern(9, 4096)).zero(&key(42), 0, 4096));
    for sleep in [false, true] {
        if sleep {
            rig.sleep();
        }
        let mut disk = rig.disk;
        disk.crash(|_, _, _| true);
        assert_clean(&mut disk.clone(), &tiny_config(), name);
        rig = Rig::open(disk, &tiny_config()).unwrap();
        assert_eq!(rig.store.by_account().as_ref(), Some(&counted), "{name}");
    }
    assert_clean(&mut rig.unmount(), &tiny_config(), name);
}

/// What was never counted is removed, and it crashes before anything else is in the tree: then all sums fit but one.
#[test]
fn what_goes_before_it_was_counted_is_not_owed() {
    let disk = load(&std::fs::read(path("format-1.blocks")).unwrap());
    let mut rig = Rig::open(disk, &tiny_config()).unwrap();
    for n in 1..7 {
        rig.commit(Transaction::new(0).remove(&key(n)));
    }
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    let mut rig = Rig::open(disk, &tiny_config()).unwrap();
    rig.commit(Transaction::new(0).write(&key(1), 0, pattern(1, 4096)));
    let [all] = rig.store.by_account().unwrap()[..] else { panic!("one account") };
    assert_eq!((all.allocated, all.stored), (4096, 4096));
    assert_clean(&mut rig.unmount(), &tiny_config(), "at the end");
}

#[test]
fn format_1_opens() {
    opens("format-1.blocks", history);
}

#[test]
fn feature_1_opens() {
    opens("feature-1.blocks", compressed_history);
}

#[test]
fn direct_1_opens() {
    opens("direct-1.blocks", direct_history);
}

#[test]
fn feature_16_opens() {
    opens("feature-16.blocks", counted_history);
}

#[test]
fn feature_8_opens() {
    opens("feature-8.blocks", direct_history);
}
