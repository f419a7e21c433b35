//! The label of the log's device: what tells whose log it is, and what does where it is bad.

use crate::disk::Disk;
use crate::rig::{
    Rig, assert_clean, bytes, fsck, identity, key, mkfs_of, mount, open_with_warnings, tiny_config,
};
use io::BLOCK_BYTES;
use io::disk::DevId;
use store::{Expect, Identity, MountError, Severity, Transaction};
use types::Uuid;

const LOG: DevId = DevId(1);

fn expect_error(disk: &mut Disk) -> MountError {
    match mount(disk, &tiny_config(), Expect::default()) {
        Ok(_) => panic!("it was mounted"),
        Err(why) => why,
    }
}

/// An object, and the power went; the log has a device of its own.
fn crashed_with_a_log() -> Disk {
    let mut rig = Rig::new(1, &[8 << 20, 1 << 20], &tiny_config());
    let mut txn = Transaction::new(0);
    rig.commit(txn.set_attr(&key(1), bytes(b"a"), bytes(b"v")));
    let mut disk = rig.disk;
    disk.crash(|_, _, _| true);
    disk
}

/// The label of the log's device guards from the wrong device, and no more.
#[test]
fn a_bad_label_of_the_logs_device_is_noted_and_repaired() {
    let config = tiny_config();
    let disk = crashed_with_a_log();
    let good = disk.block(LOG, 0);
    let (mut rotten, mut gone) = (disk.clone(), disk.clone());
    rotten.flip(LOG, 0, 8 * 100);
    gone.flip(LOG, 0, 3);
    for mut bad in [rotten.clone(), gone.clone()] {
        let report = fsck(&mut bad.clone(), &config);
        let found: Vec<_> = report.findings.iter().map(|f| f.severity).collect();
        assert_eq!(found, [Severity::Note], "{report:?}");
        mount(&mut bad, &config, Expect::default()).unwrap();
        assert_eq!(bad.block(LOG, 0), good);
        assert_clean(&mut bad, &config, "repaired");
    }
    // Nothing on the device is of this store.
    for block in 16..(1 << 20) / 4096 {
        gone.poke(LOG, block, [0; BLOCK_BYTES]);
    }
    assert!(fsck(&mut gone.clone(), &config).is_damaged());
    assert!(matches!(expect_error(&mut gone), MountError::LogDevice { .. }));
}

/// A store that was closed in order, with a log on a device of its own; some of its log is in a later lap, or all in
/// the first.
fn closed_with_a_log(of: Identity, laps: bool) -> Disk {
    let (mut disk, config) = (Disk::new(1, &[8 << 20, 1 << 20]), tiny_config());
    mkfs_of(&mut disk, of, &config, false).unwrap();
    let mut rig = Rig::open(disk, &config).unwrap();
    for n in 0..if laps { 100 } else { 1 } {
        rig.commit(Transaction::new(0).write(&key(1), 0, vec![n; 15_000].into()));
    }
    rig.unmount()
}

/// The label is damaged, gone, and cannot be read.
fn with_bad_labels(disk: &Disk) -> [Disk; 3] {
    let mut bad = [disk.clone(), disk.clone(), disk.clone()];
    bad[0].flip(LOG, 0, 8 * 100);
    bad[1].flip(LOG, 0, 3);
    bad[2].unreadable.insert((LOG, 0));
    bad
}

/// After an orderly end nothing in the log is needed: what was in it tells the device all the same.
#[test]
fn a_log_without_its_label_is_known_by_what_stands_in_it() {
    for laps in [false, true] {
        let disk = closed_with_a_log(identity(), laps);
        for mut bad in with_bad_labels(&disk) {
            let report = fsck(&mut bad.clone(), &tiny_config());
            let found: Vec<_> = report.findings.iter().map(|f| f.severity).collect();
            assert_eq!(found, [Severity::Note], "{report:?}");
            mount(&mut bad, &tiny_config(), Expect::default()).unwrap();
            assert_eq!(bad.block(LOG, 0), disk.block(LOG, 0));
        }
    }
}

/// A bad label says nothing: then the device may be another store's, or no store's.
#[test]
fn what_is_not_known_to_be_the_stores_log_is_not_written_over() {
    let disk = closed_with_a_log(identity(), false);
    let store = Uuid([8; 16]);
    let other = closed_with_a_log(Identity { store, ..identity() }, false);
    let (mut of_other, mut empty) = (disk.clone(), disk.clone());
    for block in 16..(1 << 20) / 4096 {
        of_other.poke(LOG, block, other.block(LOG, block));
        empty.poke(LOG, block, [0; BLOCK_BYTES]);
    }
    for bad in with_bad_labels(&of_other) {
        let mut after = bad.clone();
        let why = expect_error(&mut after);
        assert!(matches!(why, MountError::OtherStore { found, .. } if found == store), "{why}");
        assert_eq!(after.writes, bad.writes);
        assert!(fsck(&mut after, &tiny_config()).is_damaged());
    }
    let [mut damaged, gone, unreadable] = with_bad_labels(&empty);
    // It was a store's log, and nothing is in it.
    mount(&mut damaged, &tiny_config(), Expect::default()).unwrap();
    for mut bad in [gone, unreadable] {
        assert!(matches!(expect_error(&mut bad), MountError::LogDevice { .. }));
        assert!(fsck(&mut bad, &tiny_config()).is_damaged());
    }
}

/// Nothing stands in its block but what guards from the wrong device.
#[test]
fn a_label_that_cannot_be_written_again_keeps_no_store_from_being_used() {
    let config = tiny_config();
    let mut disk = crashed_with_a_log();
    disk.unreadable.insert((LOG, 0));
    disk.unwritable.insert((LOG, 0));
    let (mut rig, warnings) = open_with_warnings(disk, &config);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("/sim/1: the label of the log's device"), "{warnings:?}");
    assert_eq!(rig.object(&key(1)).unwrap().unwrap().attrs.len(), 1);
    let mut txn = Transaction::new(0);
    rig.commit(txn.touch(&key(2)));
    rig.unmount();
}
