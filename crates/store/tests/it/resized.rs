//! A store that gets more memory, or has to give some back, while it runs.

use crate::conformance::rounds;
use crate::r#gen::{Flavour, Gen};
use crate::rig::{Rig, Taken, assert_clean, assert_same, key};
use fastrand::Rng;
use store::model::Model;
use store::{Config, MemoryUse, Transaction};

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

#[test]
fn memory_goes_little_by_little_and_comes_again() {
    let mut rig = Rig::new(1, &[64 << 20], &config());
    for n in 0..20 {
        let mut txn = Transaction::new(0);
        txn.write(&key(n), 0, vec![n as u8; MIB].into());
        rig.commit(&txn);
    }
    rig.sleep();
    read_all(&mut rig);
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
