//! The end of space.

use crate::r#gen::{account_of, any_compress};
use crate::rig::{Rig, Taken, assert_clean, bytes, key, tiny_config};
use fastrand::Rng;
use store::{Config, Transaction, Usage};

/// What must come back: everything but what the log holds at the moment.
fn space(rig: &Rig) -> Usage {
    let u = rig.store.usage();
    Usage { log_used: 0, reserve: 0, available: 0, ..u }
}

/// Text that can be compressed, but not to nothing.
fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let start = rng.u32(..);
    (0..len as u32).map(|i| ((start ^ (i / 9)).wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

fn fill(rig: &mut Rig, rng: &mut Rng, max: usize, compressed: bool) -> u64 {
    let mut n = 0;
    loop {
        let mut txn = Transaction::new(0);
        txn.account = account_of(&key(n));
        if compressed && n > 0 && rng.u8(0..4) == 0 {
            // Into a compressed object, whose other blocks may then have to stand by themselves.
            let (at, len) = (rng.u64(0..max as u64), rng.usize(1..30_000));
            let other = key(rng.u64(0..n));
            txn.account = account_of(&other);
            txn.write(&other, at, text(rng, len).into());
            match rig.submit(&txn) {
                Taken::Yes(_) => continue,
                Taken::NoSpace => return n,
                other => panic!("{other:?}"),
            }
        }
        txn.compress = any_compress(rng).filter(|_| compressed);
        let len = if rng.bool() { rng.usize(1..max) } else { rng.usize(1..9000) };
        let data = if compressed { text(rng, len) } else { vec![n as u8; len] };
        txn.write(&key(n), rng.u64(0..20_000), data.into());
        txn.omap_set(&key(n), vec![(vec![1; 20].into(), vec![2; 300].into())]);
        match rig.submit(&txn) {
            Taken::Yes(_) => n += 1,
            Taken::NoSpace => return n,
            other => panic!("{other:?}"),
        }
        if rng.u8(0..4) == 0 {
            rig.end_turn();
        }
    }
}

fn fill_and_empty(seed: u64, config: &Config, max: usize, compressed: bool) {
    let mut rng = Rng::with_seed(seed);
    let mut rig = Rig::new(seed, &[8 << 20], config);
    rig.sleep();
    let start = space(&rig);
    for round in 0..3 {
        let n = fill(&mut rig, &mut rng, max, compressed);
        assert!(n > 5);
        // Nothing more fits, but bookkeeping does.
        let mut big = Transaction::new(0);
        big.write(&key(9999), 0, vec![1; 1 << 20].into());
        assert!(matches!(rig.submit(&big), Taken::NoSpace));
        for i in 0..50u8 {
            let mut txn = Transaction::new(0);
            txn.may_use_reserve = true;
            txn.omap_set(&key(8888), vec![(vec![i].into(), vec![2; 200].into())]);
            rig.commit(&txn);
        }
        rig.sleep();
        if round == 1 {
            let mut disk = rig.unmount();
            let report = assert_clean(&mut disk, config, "full");
            rig = Rig::open(disk, config).unwrap();
            let u = rig.store.usage();
            assert_eq!(report.data_blocks * 4096, u.data);
            assert_eq!(report.node_blocks * 4096, u.metadata);
            let s = report.space;
            assert_eq!((s.total, s.system, s.log), (u.total, u.system, u.log));
            assert_eq!((s.data, s.metadata, s.free), (u.data, u.metadata, u.free));
            assert_eq!(s.system + s.log + s.data + s.metadata + s.free, s.total);
            assert_eq!((s.shared, s.compressed), (u.shared, u.compressed));
            assert_eq!((report.objects, report.object_bytes), (u.objects, u.object_bytes));
        }
        for i in (0..n).chain([8888]) {
            let mut txn = Transaction::new(0);
            txn.account = account_of(&key(i));
            txn.may_use_reserve = true;
            txn.remove(&key(i));
            rig.must(&txn);
            if rng.u8(0..8) == 0 {
                rig.turn();
            }
        }
        rig.sleep();
        rig.store.flush_soon();
        rig.sleep();
        assert_eq!(space(&rig), start, "round {round}");
    }
    assert!(rig.store.counters().submit_no_space > 0);
    let mut disk = rig.unmount();
    assert_clean(&mut disk, config, "emptied");
}

#[test]
fn a_full_store_refuses_and_recovers() {
    for seed in 0..4 {
        fill_and_empty(seed, &tiny_config(), 200_000, false);
    }
}

#[test]
fn a_full_store_of_compressed_objects_too() {
    for seed in 20..24 {
        fill_and_empty(seed, &tiny_config(), 200_000, true);
    }
}

#[test]
fn a_store_full_of_small_things_too() {
    let config = Config { memtable_bytes: 1 << 20, wal_bytes: 2 << 20, ..tiny_config() };
    for seed in 10..13 {
        fill_and_empty(seed, &config, 5000, false);
    }
}

#[test]
fn whoever_waits_for_room_hears_of_it() {
    let mut rig = Rig::new(5, &[8 << 20], &tiny_config());
    rig.sleep();
    let put = |n: u64, len: usize| {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        txn.write(&key(n), 0, vec![n as u8; len].into());
        txn
    };
    let mut n = 0;
    while let Taken::Yes(_) = rig.submit(&put(n, 100_000)) {
        n += 1;
    }
    rig.sleep();
    assert!(matches!(rig.submit(&put(n, 100_000)), Taken::NoSpace));
    let (before, busy) = (rig.writable, rig.store.counters().submit_busy);
    for i in 0..n {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        txn.remove(&key(i));
        rig.must(&txn);
        rig.sleep();
    }
    assert!(rig.writable > before);
    assert_eq!(rig.store.counters().submit_busy, busy, "nothing else would have told");
    assert!(matches!(rig.submit(&put(n, 100_000)), Taken::Yes(_)));
}

#[test]
fn clones_free_what_they_alone_hold() {
    let config = tiny_config();
    let mut rig = Rig::new(1, &[16 << 20], &config);
    rig.sleep();
    let start = space(&rig);
    let commit = |rig: &mut Rig, f: &dyn Fn(&mut Transaction) -> bool| {
        let mut txn = Transaction::new(0);
        assert!(!f(&mut txn));
        rig.commit(&txn);
    };
    commit(&mut rig, &|t| t.write(&key(1), 0, vec![1; 1 << 20].into()).is_empty());
    let one = rig.store.usage().data;
    assert_eq!(one, 1 << 20);
    commit(&mut rig, &|t| t.clone_object(&key(1), &key(2)).is_empty());
    commit(&mut rig, &|t| t.clone_object(&key(1), &key(3)).is_empty());
    assert_eq!((rig.store.usage().data, rig.store.usage().shared), (one, one));
    // Overwriting a shared block takes a new one; the copies keep the old one.
    commit(&mut rig, &|t| t.write(&key(1), 8192, vec![9; 4096].into()).is_empty());
    assert_eq!(rig.store.usage().data, one + 4096);
    assert_eq!(rig.read(&key(2), 8192, 1).unwrap(), [1]);
    // Overwriting it again takes none.
    commit(&mut rig, &|t| t.write(&key(1), 8192, vec![8; 4096].into()).is_empty());
    assert_eq!(rig.store.usage().data, one + 4096);
    commit(&mut rig, &|t| t.remove(&key(2)).is_empty());
    assert_eq!((rig.store.usage().data, rig.store.usage().shared), (one + 4096, one - 4096));
    commit(&mut rig, &|t| t.remove(&key(1)).is_empty());
    assert_eq!((rig.store.usage().data, rig.store.usage().shared), (one, 0));
    // The last owner writes in place again.
    commit(&mut rig, &|t| t.write(&key(3), 0, vec![7; 4096].into()).is_empty());
    assert_eq!(rig.store.usage().data, one);
    commit(&mut rig, &|t| t.remove(&key(3)).is_empty());
    commit(&mut rig, &|t| t.remove(&key(4)).is_empty());
    rig.sleep();
    assert_eq!(space(&rig), start);
}

/// A leaf of one large value has many blocks, and is written anew with the small one beside it.
#[test]
fn a_full_store_of_large_values_takes_small_ones() {
    for len in [6 << 10, 12 << 10, 20 << 10, 24 << 10] {
        full_of_large_values(len);
    }
}

fn full_of_large_values(len: usize) {
    let config = tiny_config();
    let mut rig = Rig::new(7, &[8 << 20], &config);
    let set = |n: u64, name: &'static [u8], len: usize, may_use_reserve: bool| {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = may_use_reserve;
        txn.set_attr(&key(n), name.into(), vec![n as u8; len].into());
        txn
    };
    let mut objects = 0;
    while let Taken::Yes(_) = rig.submit(&set(objects, b"a", len, false)) {
        objects += 1;
        if objects % 8 == 0 {
            rig.sleep();
        }
    }
    rig.sleep();
    for n in 10_000.. {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![1; 4096].into());
        let Taken::Yes(_) = rig.submit(&txn) else { break };
    }
    rig.sleep();
    let mut more = 0;
    for n in 0..objects {
        let taken = rig.submit(&set(n, b"b", 10, true));
        assert!(rig.fatal.is_none(), "{len}: {n} of {objects}: {:?}", rig.fatal);
        more += u64::from(matches!(taken, Taken::Yes(_)));
    }
    rig.store.flush_soon();
    rig.settle();
    println!("{len}: {more} of {objects}");
    assert!(rig.fatal.is_none(), "{len}: {more} of {objects}: {:?}", rig.fatal);
    assert!(objects > 150 && more > 0, "{len}: {more} of {objects}");
    assert_clean(&mut rig.unmount(), &config, "full");
}

/// Nodes of several blocks must stand together, and free are single blocks only.
#[test]
fn a_store_whose_free_space_came_apart_goes_on() {
    for seed in 0..12 {
        came_apart(seed);
    }
}

fn came_apart(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    // With more than a few blocks of reserve there are stretches for all that changes.
    let has_reserve = seed.is_multiple_of(3);
    let reserve_per_mille = if has_reserve { 100 } else { tiny_config().reserve_per_mille };
    let config = Config { reserve_per_mille, ..tiny_config() };
    let mut rig = Rig::new(seed, &[8 << 20], &config);
    let some_long = rng.u64(0..40);
    let small = |n: u64| {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; 4096].into());
        txn
    };
    let remove = |n: u64| {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        txn.remove(&key(n));
        txn
    };
    let large = |n: u64, len: usize, may_use_reserve: bool| {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = may_use_reserve;
        txn.set_attr(&key(n), bytes(b"a"), vec![n as u8; len].into());
        txn
    };
    // Some are there before, and some come; small ones fill the rest, of which every second goes.
    for n in 0..some_long {
        rig.must(&large(n, rng.usize(5000..24_000), false));
        rig.sleep();
    }
    let mut end = 1000;
    while let Taken::Yes(_) = rig.submit(&small(end)) {
        end += 1;
        if end % 64 == 0 {
            rig.sleep();
        }
    }
    for n in (1000..end).filter(|n| n % 2 == seed % 2) {
        rig.must(&remove(n));
    }
    rig.sleep();
    let mut taken = 0;
    for n in 2_000_000..2_000_400 {
        let len = rng.usize(5000..24_000);
        taken += u64::from(matches!(
            rig.submit(&large(n, len, rng.bool() && !has_reserve)),
            Taken::Yes(_)
        ));
        if rng.u8(0..16) == 0 {
            rig.store.flush_soon();
        }
        rig.turn();
    }
    rig.store.flush_soon();
    rig.settle();
    assert!(rig.fatal.is_none(), "seed {seed}: {taken} taken: {:?}", rig.fatal);
    // Small ones find place yet, if there is any, and what is removed is.
    let mut more = 0;
    for n in (1000..end).filter(|n| n % 2 == seed % 2) {
        let Taken::Yes(_) = rig.submit(&small(n)) else { break };
        more += 1;
    }
    assert!(more > 200 || !has_reserve, "seed {seed}: {more} taken, {:?}", rig.store.usage());
    rig.store.flush_soon();
    rig.settle();
    assert!(rig.fatal.is_none(), "seed {seed}: {:?}", rig.fatal);
    println!("{seed}: {some_long} and {taken} long ones, {more} more");
    let mut rig = Rig::open(rig.unmount(), &config).unwrap();
    for (key, _) in rig.list().unwrap() {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        txn.remove(&key);
        rig.must(&txn);
    }
    rig.sleep();
    assert!(rig.fatal.is_none(), "seed {seed}: {:?}", rig.fatal);
    assert_eq!(rig.store.usage().objects, 0);
    assert_clean(&mut rig.unmount(), &config, "came apart");
}

/// What only keeps books may use the reserve, but not all of it.
#[test]
fn what_leads_out_of_a_full_store_has_room() {
    let config = Config {
        memtable_bytes: 1 << 20,
        wal_bytes: 2 << 20,
        reserve_per_mille: 100,
        ..tiny_config()
    };
    let mut rig = Rig::new(3, &[32 << 20], &config);
    // Of the copy each block is shared, and the blocks are not neighbours.
    for block in 0..200u64 {
        let mut txn = Transaction::new(0);
        txn.write(&key(1), 8192 * block, vec![1; 4096].into());
        txn.write(&key(3), 8192 * block, vec![3; 4096].into());
        rig.must(&txn);
    }
    let mut txn = Transaction::new(0);
    txn.clone_object(&key(1), &key(2));
    rig.must(&txn);
    rig.sleep();
    let mut n = 1000;
    for len in [100_000, 4096, 0] {
        loop {
            let mut txn = Transaction::new(0);
            txn.may_use_reserve = true;
            match len {
                0 => {
                    let value = (vec![n as u8; 20].into(), vec![2; 900].into());
                    txn.omap_set(&key(n), vec![value]);
                }
                _ => drop(txn.write(&key(n), 0, vec![n as u8; len].into())),
            }
            match rig.submit(&txn) {
                Taken::Yes(_) => n += 1,
                Taken::NoSpace => break,
                other => panic!("{other:?}"),
            }
        }
        rig.sleep();
    }
    for object in [2, 1, 3] {
        let mut txn = Transaction::new(0);
        txn.may_use_reserve = true;
        txn.remove(&key(object));
        let taken = rig.submit(&txn);
        assert!(matches!(taken, Taken::Yes(_)), "{object}: {taken:?}, {:?}", rig.store.usage());
        rig.sleep();
    }
    assert!(rig.fatal.is_none());
    assert_clean(&mut rig.unmount(), &config, "led out");
}

/// Flushes would wait behind all of them.
#[test]
fn few_discards_are_in_flight_at_a_time() {
    let config = Config { discard: true, ..tiny_config() };
    let mut rig = Rig::new(1, &[32 << 20], &config);
    for n in 0..300 {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; 64 << 10].into());
        rig.commit(&txn);
    }
    for n in (0..300).filter(|n| n % 2 == 1) {
        let mut txn = Transaction::new(0);
        txn.remove(&key(n));
        rig.must(&txn);
    }
    rig.store.flush_soon();
    rig.sleep();
    let counters = rig.store.counters();
    assert_eq!((counters.discarded_bytes, rig.store.usage().freeing), (150 * (64 << 10), 0));
    assert!((2..=16).contains(&rig.disk.discards_together), "{}", rig.disk.discards_together);
}
