//! The end of space.

use crate::r#gen::{ACCOUNT, any_compress};
use crate::rig::{Rig, Taken, assert_clean, key, tiny_config};
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
        txn.account = ACCOUNT;
        if compressed && n > 0 && rng.u8(0..4) == 0 {
            // Into a compressed object, whose other blocks may then have to stand by themselves.
            let (at, len) = (rng.u64(0..max as u64), rng.usize(1..30_000));
            txn.write(&key(rng.u64(0..n)), at, text(rng, len).into());
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
            txn.account = ACCOUNT;
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
