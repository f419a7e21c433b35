//! Stores that earlier versions made still open, with everything in them.
//!
//! A sample is a device as its non-zero blocks: number (8, little-endian) and bytes (4096) of each.
//! `STORE_WRITE_SAMPLE=1` makes a new one, when the format has changed.

use crate::disk::Disk;
use crate::rig::{Rig, assert_clean, assert_same, bytes, key, tiny_config};
use io::BLOCK_BYTES;
use io::disk::DevId;
use std::path::PathBuf;
use store::Transaction;
use store::model::Model;

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

fn expected() -> Model {
    let mut model = Model::new();
    history().iter().for_each(|txn| model.apply(txn).unwrap());
    model
}

/// As it is after a crash: two transactions in the tree, the last one in the log only.
fn make() -> Disk {
    let mut rig = Rig::new(1, &[DEVICE_BYTES], &tiny_config());
    let txns = history();
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

#[test]
fn format_1_opens() {
    let path = path("format-1.blocks");
    if std::env::var_os("STORE_WRITE_SAMPLE").is_some() {
        std::fs::write(&path, save(&make())).unwrap();
    }
    let disk = load(&std::fs::read(path).unwrap());
    assert_clean(&mut disk.clone(), &tiny_config(), "sample of format 1");
    let mut rig = Rig::open(disk, &tiny_config()).unwrap();
    assert_same(&rig.dump().unwrap(), &expected(), "sample of format 1");
}
