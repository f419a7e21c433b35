//! A store that gets more memory, or has to give some back, while it runs.

use crate::conformance::rounds;
use crate::r#gen::{Flavour, Gen};
use crate::rig::{Rig, Taken, assert_clean, assert_same, key};
use fastrand::Rng;
use store::model::Model;
use store::{Config, MemoryUse, Outside, Transaction};

const MIB: usize = 1 << 20;

fn config() -> Config {
    Config { wal_bytes: 8 << 20, ..Config::for_memory(64 * MIB) }
}

/// Bytes of all that goes by the memory that the store has.
fn held(rig: &Rig) -> usize {
    let MemoryUse { blocks, nodes, rows, outlines, log, changes, .. } = rig.store.memory();
    let all = [blocks, nodes, rows, outlines, log, changes];
    all.iter().map(|held| held.bytes as usize).sum()
}

/// Reads 20 objects of a MiB. Gives the bytes that the disk is asked for.
fn read_all(rig: &mut Rig) -> u64 {
    let before = rig.store.counters().data_read_bytes;
    for n in 0..20 {
        assert_eq!(rig.read(&key(n), 0, MIB as u64).unwrap(), vec![n as u8; MIB]);
    }
    rig.store.counters().data_read_bytes - before
}

/// With these objects, which have been read.
fn filled() -> Rig {
    let mut rig = Rig::new(1, &[64 << 20], &config());
    for n in 0..20 {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; MIB].into());
        rig.commit(&txn);
    }
    rig.sleep();
    read_all(&mut rig);
    rig
}

#[test]
fn memory_goes_little_by_little_and_comes_again() {
    let mut rig = filled();
    assert!(held(&rig) > 20 * MIB && read_all(&mut rig) == 0);

    rig.store.set_memory(MIB);
    while rig.store.next_deadline().is_some_and(|at| at <= rig.now.mono) {
        let before = held(&rig);
        rig.end_turn();
        assert!(before <= held(&rig) + 5 * MIB, "{} at once", before - held(&rig));
    }
    assert!(held(&rig) <= MIB + MIB / 8, "{}", held(&rig));
    assert!(read_all(&mut rig) > 0);
    assert!(held(&rig) <= MIB + MIB / 8, "{}", held(&rig));

    rig.store.set_memory(64 * MIB);
    rig.end_turn();
    read_all(&mut rig);
    assert_eq!(read_all(&mut rig), 0);
}

/// Neither at once nor while what needs that much is still there.
#[test]
fn writers_are_not_held_for_memory_that_goes() {
    const KIB: u64 = 1 << 10;
    let config = Config { wal_bytes: 8 << 20, ..Config::for_memory(4 * MIB) };
    let mut rig = Rig::new(2, &[64 << 20], &config);
    // A checkpoint is made of some changes, and there are others already.
    for n in 0.. {
        if rig.store.memory().changes.bytes >= 832 * KIB {
            break;
        }
        let mut txn = Transaction::new(0);
        txn.touch(&key(1))
            .omap_set(&key(1), vec![(format!("{n:09}").into(), vec![7; 1000].into())]);
        while !matches!(rig.submit(&txn), Taken::Yes(_)) {
            rig.turn();
        }
    }
    while rig.store.holds_writers() {
        rig.turn();
    }
    rig.store.set_memory(MIB);
    rig.end_turn();
    let mut held = 0;
    while rig.turn() {
        held += u32::from(rig.store.holds_writers());
    }
    assert_eq!(held, 0);
    assert!(rig.store.memory().changes.bytes < 256 * KIB);
}

/// The owner wants blocks to leave much of their memory.
#[test]
fn blocks_go_little_by_little_too() {
    let mut rig = filled();
    let blocks = |rig: &Rig| rig.store.memory().blocks.bytes as usize;
    let before = blocks(&rig);
    assert!(before > 15 * MIB);
    rig.store.set_outside(Outside { beyond: -(64 * MIB as isize), buffers: 0 });
    assert_eq!(blocks(&rig), before);
    while blocks(&rig) > 0 {
        let before = blocks(&rig);
        rig.end_turn();
        assert!(before <= blocks(&rig) + 5 * MIB && blocks(&rig) < before, "{before}");
    }
}

/// Whatever it has when, and whatever is under way.
#[test]
fn random_transactions_while_the_memory_changes() {
    for seed in 600..600 + rounds(20) {
        let mut rng = Rng::with_seed(seed);
        let generator = Gen { flavour: Flavour::any(&mut rng), ..Gen::default() };
        let mut rig = Rig::new(seed, &[40 << 20], &config());
        let mut model = Model::new();
        for i in 0..250 {
            let txn = generator.txn(&mut rng, 0);
            let mut next = model.clone();
            let wanted = next.apply(&txn);
            if let (Taken::Yes(_), Ok(())) = (rig.submit(&txn), wanted) {
                model = next;
            }
            if rng.u8(0..8) == 0 {
                rig.store.set_memory([64 << 10, MIB, 16 * MIB, 64 * MIB][rng.usize(0..4)]);
            }
            for _ in 0..rng.usize(0..6) {
                rig.turn();
            }
            if rng.u8(0..30) == 0 {
                let got = rig.dump().unwrap();
                assert_same(&got, &model, &format!("seed {seed}, transaction {i}"));
            }
        }
        let mut disk = rig.unmount();
        assert_clean(&mut disk, &config(), &format!("seed {seed}"));
        let got = Rig::open(disk, &config()).unwrap().dump().unwrap();
        assert_same(&got, &model, &format!("seed {seed}, after the last mount"));
    }
}
