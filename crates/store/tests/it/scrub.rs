//! Scrubs: digests as Ceph takes them, in slices, of what is really on the disk.

use crate::r#gen::Gen;
use crate::rig::{Rig, Taken, bytes, key, outline_config, tiny_config};
use fastrand::Rng;
use io::BLOCK_BYTES;
use io::disk::DevId;
use store::model::{Model, ModelObject};
use store::{
    Algorithm, Compress, ObjectDigest, ScrubCursor, ScrubLimits, Scrubbed, StoreError, Transaction,
};
use types::ObjectKey;

/// As `be_deep_scrub` does it, over a whole object at once.
fn expected(object: &ModelObject) -> (u32, u32) {
    let data = denc::crc32c(u32::MAX, &object.read(0, object.size));
    let mut omap = denc::crc32c(u32::MAX, &object.header);
    for (key, value) in &object.omap {
        for part in [key, value] {
            omap = denc::crc32c(omap, &(part.len() as u32).to_le_bytes());
            omap = denc::crc32c(omap, part);
        }
    }
    (data, omap)
}

fn scrub(
    rig: &mut Rig,
    object: &ObjectKey,
    limits: &ScrubLimits,
) -> Result<Option<(ObjectDigest, usize)>, StoreError> {
    let mut cursor = ScrubCursor::default();
    for slices in 1.. {
        let (step, next) = rig.run(|store, set| {
            let mut cursor = cursor.clone();
            let step = store.scrub(object, &mut cursor, limits, set)?;
            Ok((step, cursor))
        })?;
        cursor = next;
        match step {
            Scrubbed::More => {}
            Scrubbed::Changed => panic!("nobody changes anything"),
            Scrubbed::Absent => return Ok(None),
            Scrubbed::Done(digest) => return Ok(Some((digest, slices))),
        }
    }
    unreachable!("a scrub ends")
}

#[test]
fn digests_are_cephs_whatever_the_slices() {
    for seed in 0..10 {
        let mut rng = Rng::with_seed(seed);
        let mut rig = Rig::new(seed, &[24 << 20], &tiny_config());
        let mut model = Model::new();
        let generator = Gen::default();
        for _ in 0..60 {
            let txn = generator.txn(&mut rng, 0);
            let mut next = model.clone();
            if next.apply(&txn).is_ok() && matches!(rig.submit(&txn), Taken::Yes(_)) {
                model = next;
            }
        }
        rig.sleep();
        for (name, object) in &model.objects {
            let limits = ScrubLimits {
                data_bytes: [1, 5000, 65_536, 1 << 30][rng.usize(0..4)].max(object.size / 50),
                omap_entries: rng.usize(1..6),
                omap_bytes: rng.usize(1..2000),
            };
            let (got, _) = scrub(&mut rig, name, &limits).unwrap().expect("it is there");
            assert_eq!((got.data, got.omap), expected(object), "seed {seed}, {name:?}, {limits:?}");
            assert_eq!((got.size, &got.meta), (object.size, &object.meta));
            assert_eq!(got.attrs.len(), object.attrs.len());
            assert!(got.attrs.iter().eq(
                object.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>().iter()
            ));
            assert_eq!(got.omap_entries, object.omap.len() as u64);
            let values: usize = object.omap.values().map(|v| v.len()).sum();
            assert_eq!(got.omap_value_bytes, values as u64);
        }
        assert!(scrub(&mut rig, &key(999), &ScrubLimits::default()).unwrap().is_none());
    }
}

/// Figures that real Ceph gave for such an object would be these: they depend on nothing of ours.
#[test]
fn known_digests() {
    let mut rig = Rig::new(1, &[8 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, bytes(b"123456789"));
    txn.touch(&key(2));
    rig.commit(&txn);
    let (got, slices) = scrub(&mut rig, &key(1), &ScrubLimits::default()).unwrap().unwrap();
    // The check value of crc32c is its inversion.
    assert_eq!((got.data, slices), (!0xe306_9283, 2));
    let (got, _) = scrub(&mut rig, &key(2), &ScrubLimits::default()).unwrap().unwrap();
    assert_eq!((got.data, got.omap), (u32::MAX, u32::MAX));
}

#[test]
fn a_slice_reads_no_more_than_it_may() {
    let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![7; 1 << 20].into());
    txn.truncate(&key(1), 3 << 20);
    rig.commit(&txn);
    rig.sleep();
    let before = rig.store.counters().data_read_bytes;
    let limits = ScrubLimits { data_bytes: 64 << 10, ..ScrubLimits::default() };
    let (_, slices) = scrub(&mut rig, &key(1), &limits).unwrap().unwrap();
    assert_eq!(slices, (3 << 20) / (64 << 10) + 1);
    assert_eq!(rig.store.counters().data_read_bytes - before, 1 << 20);
}

#[test]
fn what_is_damaged_is_named_also_in_compressed_extents() {
    for algorithm in [None, Some(Algorithm::Lz4), Some(Algorithm::Zstd)] {
        let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
        let mut txn = Transaction::new(0);
        txn.compress = algorithm.map(|algorithm| Compress {
            algorithm,
            required_per_mille: 875,
            min_blob_bytes: 8 << 10,
            max_blob_bytes: 64 << 10,
        });
        let data: Vec<u8> = (0..1u32 << 20).map(|i| (i / 7 % 251) as u8).collect();
        txn.write(&key(1), 0, data.into());
        txn.write(&key(2), 0, vec![3; 100_000].into());
        rig.commit(&txn);
        rig.sleep();
        assert_eq!(rig.store.usage().compressed > 0, algorithm.is_some());
        rig.disk.read_blocks.clear();
        let all = ScrubLimits { data_bytes: 1 << 30, ..ScrubLimits::default() };
        scrub(&mut rig, &key(1), &all).unwrap().unwrap();
        let blocks: Vec<(DevId, u64)> = rig.disk.read_blocks.iter().copied().collect();
        assert_eq!(blocks.len() < (1 << 20) / BLOCK_BYTES / 2, algorithm.is_some());
        for (dev, block) in blocks.into_iter().step_by(5) {
            let good = rig.disk.block(dev, block);
            rig.disk.flip(dev, block, 9999);
            let why = scrub(&mut rig, &key(1), &ScrubLimits::default()).unwrap_err();
            assert_eq!(why.object(), Some(&key(1)), "{why}");
            assert_eq!(rig.bad_blocks.last().unwrap().0, key(1));
            scrub(&mut rig, &key(2), &ScrubLimits::default()).unwrap().unwrap();
            rig.disk.poke(dev, block, good);
        }
    }
}

#[test]
fn a_change_between_two_slices_is_noticed() {
    let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![7; 300_000].into()).set_meta(&key(1), bytes(b"1"));
    rig.commit(&txn);
    let limits = ScrubLimits { data_bytes: 100_000, ..ScrubLimits::default() };
    let mut cursor = ScrubCursor::default();
    let mut step = |rig: &mut Rig| {
        let (step, next) = rig
            .run(|store, set| {
                let mut cursor = cursor.clone();
                let step = store.scrub(&key(1), &mut cursor, &limits, set)?;
                Ok((step, cursor))
            })
            .unwrap();
        cursor = next;
        step
    };
    assert_eq!(step(&mut rig), Scrubbed::More);
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, bytes(b"x")).set_meta(&key(1), bytes(b"2"));
    rig.commit(&txn);
    assert_eq!(step(&mut rig), Scrubbed::Changed);
    let mut last = Scrubbed::More;
    while last == Scrubbed::More {
        last = step(&mut rig);
    }
    let Scrubbed::Done(digest) = last else { panic!("{last:?}") };
    let mut data = vec![7; 300_000];
    data[0] = b'x';
    assert_eq!(digest.data, denc::crc32c(u32::MAX, &data));
}

/// Outlines tell where a block is without its row; a scrub wants the row, too.
#[test]
fn a_rotten_row_is_found_though_an_outline_would_do() {
    let mut rig = Rig::new(3, &[16 << 20], &outline_config());
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, vec![7; 100_000].into());
    rig.commit(&txn);
    rig.store.flush_soon();
    rig.sleep();
    let whole = [7; 100_000];
    rig.store.drop_caches();
    assert_eq!(rig.read(&key(1), 0, 100_000).unwrap(), whole);
    let mut read_by = |scrubs: bool| {
        rig.store.drop_caches();
        rig.disk.read_blocks.clear();
        if scrubs {
            scrub(&mut rig, &key(1), &ScrubLimits::default()).unwrap().expect("it is there");
        } else {
            assert_eq!(rig.read(&key(1), 0, 100_000).unwrap(), whole);
        }
        std::mem::take(&mut rig.disk.read_blocks)
    };
    let (outlined, by_row) = (read_by(false), read_by(true));
    assert_eq!(outlined.len(), 25, "nothing but the data is read");
    let rows: Vec<_> = by_row.difference(&outlined).copied().collect();
    assert!(!rows.is_empty());
    rows.iter().for_each(|(dev, block)| rig.disk.flip(*dev, *block, 999));
    rig.store.drop_caches();
    let found = scrub(&mut rig, &key(1), &ScrubLimits::default());
    assert!(matches!(found, Err(StoreError::BadMetadata { .. })), "{found:?}");
}
