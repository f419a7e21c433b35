//! Bytes that cannot be, under checksums that fit: nothing panics, whatever they say.

use crate::conformance::rounds;
use crate::disk::Disk;
use crate::r#gen::Gen;
use crate::rig::{Rig, fsck, mount, tiny_config};
use fastrand::Rng;
use io::BLOCK_BYTES;
use io::disk::DevId;
use store::model::Model;
use store::{Config, Expect, MountError, ReadSet, StoreError, SubmitError};
use types::ObjectKey;

const DATA: DevId = DevId(0);
const BYTES: u64 = 8 << 20;

fn crc(bytes: &[u8]) -> u32 {
    denc::crc32c(0xffff_ffff, bytes)
}

/// A crashed store with a log, and a closed one with a tree.
fn images() -> (Disk, Disk) {
    let config = Config { memtable_bytes: 4 << 20, ..tiny_config() };
    let mut rng = Rng::with_seed(5);
    let mut rig = Rig::new(5, &[BYTES], &config);
    let mut model = Model::new();
    let generator = Gen { objects: 4, blocks: 20, write_blocks: 6, ..Gen::default() };
    for _ in 0..14 {
        let txn = generator.txn(&mut rng, 0);
        if model.apply(&txn).is_ok() {
            rig.commit(&txn);
        }
    }
    let mut crashed = rig.disk.clone();
    crashed.crash(|_, _, _| true);
    (crashed, rig.unmount())
}

/// Everything that reads or writes; only that it comes to an end counts.
fn use_it(mut disk: Disk, rng: &mut Rng) -> bool {
    let config = tiny_config();
    let report = fsck(&mut disk.clone(), &config);
    let _ = report.findings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let Ok(store) = mount(&mut disk, &config, Expect::default()) else { return false };
    let mut rig = Rig::with(disk, store);
    let end = ObjectKey::from_bytes(&[0xff; 20]);
    let start = ObjectKey::from_bytes(b"");
    let all = rig.run(|s, _| s.list(&start, &end, 100)).unwrap_or_default();
    for (key, _) in all {
        let _: Result<_, StoreError> = rig.run(|s, rs| s.read(&key, 0, 1 << 20, rs));
        let _ = rig.run(|s, _| s.attrs(&key));
        let _ = rig.run(|s, _| s.extents(&key, 0, 1 << 20));
    }
    let generator = Gen { objects: 4, blocks: 20, write_blocks: 6, ..Gen::default() };
    for _ in 0..3 {
        let txn = generator.txn(rng, 0);
        let mut set = ReadSet::new();
        for _ in 0..20 {
            match rig.store.submit(rig.now, &txn, &set) {
                Err(SubmitError::Miss(miss)) => match rig.fetch(miss) {
                    Some(Ok(more)) => set.merge(more),
                    _ => break,
                },
                _ => break,
            }
        }
    }
    true
}

fn damage(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        bytes[at] = if rng.bool() { rng.u8(..) } else { bytes[at].wrapping_add(1) };
    }
}

fn u32_at(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap()) as usize
}

#[test]
fn superblocks() {
    let (_, closed) = images();
    let end = BYTES / 4096;
    let (mut mounted, tries) = (0, rounds(8) * 20);
    for seed in 0..tries {
        let mut rng = Rng::with_seed(seed);
        let mut disk = closed.clone();
        for block in [0, 1, end - 2, end - 1] {
            let mut b = disk.block(DATA, block);
            let at = rng.usize(16..184);
            damage(&mut rng, &mut b[at..at + 8]);
            let sum = crc(&b[..4092]);
            b[4092..].copy_from_slice(&sum.to_le_bytes());
            disk.poke(DATA, block, b);
        }
        mounted += u64::from(use_it(disk, &mut rng));
    }
    println!("{mounted} of {tries} mounted");
}

#[test]
fn log_batches() {
    let (crashed, _) = images();
    let heads: Vec<u64> =
        (16..144).filter(|b| crashed.block(DATA, *b).starts_with(b"LoligoWA")).collect();
    assert!(heads.len() > 5, "{heads:?}");
    let (mut mounted, tries) = (0, rounds(8) * 40);
    for seed in 0..tries {
        let mut rng = Rng::with_seed(seed);
        let mut disk = crashed.clone();
        let head = heads[rng.usize(..heads.len())];
        let first = disk.block(DATA, head);
        let (len, blocks) = (u32_at(&first, 56), u32_at(&first, 64));
        if head + blocks as u64 > 144 || len == 0 {
            continue;
        }
        let mut bytes: Vec<u8> =
            (head..head + blocks as u64).flat_map(|b| disk.block(DATA, b)).collect();
        damage(&mut rng, &mut bytes[128..128 + len]);
        let sum = crc(&bytes[128..128 + len]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes[12..16].fill(0);
        let sum = crc(&bytes[..128]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        for (b, data) in (head..).zip(bytes.chunks(BLOCK_BYTES)) {
            disk.poke(DATA, b, data.try_into().unwrap());
        }
        mounted += u64::from(use_it(disk, &mut rng));
    }
    println!("{mounted} of {tries} mounted");
}

/// What was acknowledged is not dropped by a program that is too old to read it, or has a bug.
#[test]
fn a_whole_batch_that_cannot_be_decoded_is_never_taken_for_an_unfinished_one() {
    let (crashed, _) = images();
    let seq = |b: &u64| u64::from_le_bytes(crashed.block(DATA, *b)[40..48].try_into().unwrap());
    let heads = (16..144).filter(|b| crashed.block(DATA, *b).starts_with(b"LoligoWA"));
    let last = heads.max_by_key(seq).unwrap();
    // The kind of its first record, and the length of it.
    for (at, value) in [(128, 9), (129, 255)] {
        let mut disk = crashed.clone();
        let blocks = u32_at(&disk.block(DATA, last), 64) as u64;
        let mut bytes: Vec<u8> = (last..last + blocks).flat_map(|b| disk.block(DATA, b)).collect();
        bytes[at] = value;
        let sum = crc(&bytes[128..128 + u32_at(&bytes, 56)]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes[12..16].fill(0);
        let sum = crc(&bytes[..128]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        for (b, data) in (last..).zip(bytes.chunks(BLOCK_BYTES)) {
            disk.poke(DATA, b, data.try_into().unwrap());
        }
        assert!(fsck(&mut disk.clone(), &tiny_config()).is_damaged());
        match mount(&mut disk, &tiny_config(), Expect::default()) {
            Err(MountError::NewerLog { kind: 9, .. }) if value == 9 => {}
            Err(MountError::Damaged { .. }) if value != 9 => {}
            Err(why) => panic!("{why}"),
            Ok(_) => panic!("a batch was dropped"),
        }
    }
}

#[test]
fn tree_nodes() {
    let (_, closed) = images();
    let end = BYTES / 4096;
    let places = [0, 1, end - 2, end - 1];
    let generation = |b: &[u8]| u64::from_le_bytes(b[80..88].try_into().unwrap());
    let newest = places.into_iter().max_by_key(|p| generation(&closed.block(DATA, *p))).unwrap();
    let super_block = closed.block(DATA, newest);
    let root = u64::from_le_bytes(super_block[96..104].try_into().unwrap());
    let (mut mounted, tries) = (0, rounds(8) * 40);
    for seed in 0..tries {
        let mut rng = Rng::with_seed(seed);
        let mut disk = closed.clone();
        let mut node = disk.block(DATA, root);
        assert_eq!(u32_at(&super_block, 104), 1);
        let used = u32_at(&node, 12).min(BLOCK_BYTES);
        let (from, to) = if rng.bool() { (0, 32) } else { (32, used) };
        damage(&mut rng, &mut node[from..to]);
        disk.poke(DATA, root, node);
        for place in places {
            let mut b = disk.block(DATA, place);
            b[108..112].copy_from_slice(&crc(&node).to_le_bytes());
            let sum = crc(&b[..4092]);
            b[4092..].copy_from_slice(&sum.to_le_bytes());
            disk.poke(DATA, place, b);
        }
        mounted += u64::from(use_it(disk, &mut rng));
    }
    println!("{mounted} of {tries} mounted");
}
