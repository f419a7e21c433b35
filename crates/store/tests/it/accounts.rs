//! What the data of each account takes. That all of them have what the allocator says is looked at after each turn of
//! every test here, and that each is what its objects have by every check; the random ones are of several accounts.

use crate::r#gen::account_of;
use crate::rig::{Rig, assert_clean, fsck, key, mount, open_with_warnings, tiny_config};
use io::disk::DevId;
use store::{AccountUsage, COUNT_ALL, Config, Expect, MountError, Transaction};

const DATA: DevId = DevId(0);

const KIB: u64 = 1 << 10;

fn of(rig: &Rig, account: u64) -> (u64, u64) {
    let all = rig.store.by_account().expect("everything is counted");
    let found = all.into_iter().find(|a| a.account == account).unwrap_or_default();
    (found.allocated, found.stored)
}

fn of_account(account: u64) -> Transaction {
    let mut txn = Transaction::new(0);
    txn.account = account;
    txn
}

/// A transaction on objects of the account of this one.
fn on(object: u64) -> Transaction {
    of_account(account_of(&key(object)))
}

fn with(recount_blocks: u64) -> Config {
    Config { recount_blocks, ..tiny_config() }
}

/// What the steps leave: allocated and stored of the accounts 0 and 1.
fn after(rig: &mut Rig, txn: &Transaction) -> [(u64, u64); 2] {
    rig.commit(txn);
    [of(rig, 0), of(rig, 1)]
}

#[test]
fn holes_take_nothing_and_what_is_shared_is_there_once() {
    let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
    let whole = vec![7; 1 << 20];
    let first = after(&mut rig, on(1).write(&key(1), 0, whole.clone().into()));
    assert_eq!(first, [(1024 * KIB, 1024 * KIB), (0, 0)]);
    // The end of the last block is room, and an overwrite is nothing more.
    let small = after(&mut rig, on(101).write(&key(101), 4096, vec![1; 5].into()));
    assert_eq!(small, [(1024 * KIB, 1024 * KIB), (4 * KIB, 5)]);
    assert_eq!(after(&mut rig, on(101).write(&key(101), 4097, vec![2; 3].into())), small);
    // A discard within, with its two ends in the middle of blocks.
    let thin = after(&mut rig, on(1).zero(&key(1), 1000, 512 * KIB));
    assert_eq!(thin[0], (516 * KIB, 516 * KIB));
    // A clone takes nothing until one of the two is written.
    let cloned = after(&mut rig, on(1).clone_object(&key(1), &key(2)));
    assert_eq!(cloned[0], (516 * KIB, 1032 * KIB));
    let parted = after(&mut rig, on(1).write(&key(1), 1020 * KIB, vec![3; 4096].into()));
    assert_eq!(parted[0], (520 * KIB, 1032 * KIB));
    let ranged = after(&mut rig, on(1).clone_range(&key(2), 768 * KIB, 256 * KIB, &key(3), 0));
    assert_eq!(ranged[0], (520 * KIB, 1288 * KIB));
    let cut = after(&mut rig, on(1).truncate(&key(3), 4 * KIB + 100));
    assert_eq!(cut[0], (524 * KIB, 1036 * KIB + 100));
    let moved = after(&mut rig, on(1).rename(&key(3), &key(4)));
    assert_eq!(moved, cut);
    // It is known again after a crash: from the log, and from the tree.
    for sleep in [false, true] {
        if sleep {
            rig.sleep();
        }
        let mut disk = rig.disk;
        disk.crash(|_, _, _| true);
        assert_clean(&mut disk.clone(), &tiny_config(), "after a crash");
        rig = Rig::open(disk, &tiny_config()).unwrap();
        assert_eq!([of(&rig, 0), of(&rig, 1)], cut);
    }
    // The last of the two that share goes with everything.
    let one = after(&mut rig, on(1).remove(&key(1)).remove(&key(4)));
    assert_eq!(one[0], (516 * KIB, 516 * KIB));
    assert_eq!(after(&mut rig, on(1).remove(&key(2))), [(0, 0), (4 * KIB, 5)]);
    assert_eq!(after(&mut rig, on(101).remove(&key(101))), [(0, 0); 2]);
    assert_eq!(rig.store.by_account(), Some(vec![]));
    assert_clean(&mut rig.unmount(), &tiny_config(), "at the end");
}

/// Whoever changes an object under another account than its own is found out: nothing more is said, and the next mount
/// counts anew.
#[test]
fn what_was_counted_wrong_is_counted_anew_by_the_next_mount() {
    let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
    rig.commit(on(1).write(&key(1), 0, vec![1; 100_000].into()));
    rig.commit(on(101).write(&key(101), 0, vec![1; 50_000].into()));
    let right = [(0, 25, 100_000), (1, 13, 50_000)];
    let right = right.map(|(account, blocks, stored)| AccountUsage {
        account,
        allocated: 4 * KIB * blocks,
        stored,
    });
    assert_eq!(rig.store.by_account(), Some(right.to_vec()));
    rig.commit(of_account(2).remove(&key(101)));
    assert_eq!(rig.store.by_account(), None);
    // Nobody can say which account objects are of.
    let unknown = Config { account_of: None, ..tiny_config() };
    let mut disk = rig.unmount();
    assert_eq!(Rig::open(disk.clone(), &unknown).unwrap().store.by_account(), None);
    for _ in 0..2 {
        let rig = Rig::open(disk, &tiny_config()).unwrap();
        assert_eq!(rig.store.by_account(), Some(right[..1].to_vec()));
        disk = rig.unmount();
        assert_clean(&mut disk, &tiny_config(), "counted anew");
    }
}

/// A start of an OSD does not wait for long for what it can do without. Then it is not known, whatever is changed, until
/// somebody counts who has the time.
#[test]
fn what_takes_long_is_not_counted_by_a_mount() {
    let mut rig = Rig::new(1, &[24 << 20], &tiny_config());
    for n in 0..60 {
        rig.commit(on(n).write(&key(n), 0, vec![1; 9000].into()));
    }
    rig.commit(on(101).write(&key(101), 0, vec![1; 50_000].into()));
    rig.commit(of_account(2).remove(&key(101)));
    let (mut rig, warnings) = open_with_warnings(rig.unmount(), &with(0));
    assert_eq!((rig.store.by_account(), warnings.len()), (None, 1));
    assert!(warnings[0].contains("`loligo store count`"), "{warnings:?}");
    // Everything that was counted goes, and something comes.
    for n in 0..60 {
        rig.commit(on(n).remove(&key(n)));
    }
    rig.commit(on(1).write(&key(1), 0, vec![1; 5].into()));
    assert_eq!(rig.store.by_account(), None);
    // It would not take long any more, but that is not looked at again.
    let (rig, warnings) = open_with_warnings(rig.unmount(), &tiny_config());
    assert_eq!((rig.store.by_account(), warnings.len()), (None, 1));
    let mut disk = rig.unmount();
    let noted = fsck(&mut disk, &tiny_config()).findings;
    assert!(noted.len() == 1 && noted[0].what.contains("`loligo store count`"), "{noted:?}");
    let (rig, warnings) = open_with_warnings(disk, &with(COUNT_ALL));
    let one = AccountUsage { account: 0, allocated: 4 * KIB, stored: 5 };
    assert_eq!((rig.store.by_account(), warnings.len()), (Some(vec![one]), 0));
    let mut disk = rig.unmount();
    assert_clean(&mut disk, &tiny_config(), "counted");
    assert_eq!(Rig::open(disk, &with(0)).unwrap().store.by_account(), Some(vec![one]));
}

/// Where records that have to be counted are damaged nothing is said of accounts, and the store is there all the same.
#[test]
fn damaged_records_are_not_counted() {
    let mut rig = Rig::new(1, &[16 << 20], &tiny_config());
    for n in 0..60 {
        let mut txn = on(n);
        txn.write(&key(n), 0, vec![n as u8; 4096].into());
        rig.commit(txn.set_attr(&key(n), b"name"[..].into(), vec![1; 900].into()));
    }
    rig.commit(of_account(2).remove(&key(0)));
    let disk = rig.unmount();
    let (mut counted, mut not_counted) = (0, 0);
    for number in 0..(16 << 20) / 4096 {
        if disk.block(DATA, number).iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut damaged = disk.clone();
        damaged.flip(DATA, number, 800);
        let whole = mount(&mut damaged.clone(), &with(COUNT_ALL), Expect::default());
        let Ok(rig) = Rig::open(damaged, &tiny_config()) else { continue };
        match rig.store.by_account() {
            Some(all) => {
                let one = AccountUsage { account: 0, allocated: 59 * 4096, stored: 59 * 4096 };
                assert_eq!((all, whole.is_ok()), (vec![one], true), "block {number}");
                counted += 1;
            }
            None => {
                let (rig, warnings) = open_with_warnings(rig.unmount(), &tiny_config());
                assert_eq!(rig.store.by_account(), None);
                assert!(warnings[0].contains("an earlier start"), "{warnings:?}");
                assert!(matches!(whole, Err(MountError::Damaged { .. })), "block {number}");
                not_counted += 1;
            }
        }
    }
    assert!(counted > 60 && not_counted > 5, "{counted}, {not_counted}");
}
