//! Every sequence of up to two operations, with a crash at every boundary of disk operations and
//! every subset of the writes that were not durable then.

use crate::disk::Disk;
use crate::rig::{Rig, assert_same, bytes, fsck, key, tiny_config};
use fastrand::Rng;
use store::model::Model;
use store::{Config, Transaction, TxnId};

/// Up to so many loose writes, every subset of them is tried.
const ALL_SUBSETS: usize = 4;
/// Otherwise, so many random ones.
const SOME_SUBSETS: usize = 6;

type Make = fn(&mut Transaction) -> bool;

fn data(n: u8, len: usize) -> bytes::Bytes {
    (0..len).map(|i| n.wrapping_add((i / 100) as u8)).collect::<Vec<u8>>().into()
}

/// Object 1 has data, an attribute and omap; object 2 is a clone of it; object 3 does not exist.
fn alphabet() -> Vec<(&'static str, Make)> {
    vec![
        ("touch", |t| t.touch(&key(3)).is_empty()),
        ("write a new object", |t| t.write(&key(3), 0, data(1, 5000)).is_empty()),
        ("overwrite a shared block", |t| t.write(&key(1), 4096, data(2, 4096)).is_empty()),
        ("overwrite part of a block", |t| t.write(&key(1), 5000, data(3, 100)).is_empty()),
        ("append", |t| t.write(&key(1), 40_000, data(4, 9000)).is_empty()),
        ("big write", |t| t.write(&key(1), 8192, data(5, 65_536)).is_empty()),
        ("big write with edges", |t| t.write(&key(3), 100, data(6, 40_000)).is_empty()),
        ("zero", |t| t.zero(&key(1), 6000, 20_000).is_empty()),
        ("truncate", |t| t.truncate(&key(1), 10_000).is_empty()),
        ("remove", |t| t.remove(&key(1)).is_empty()),
        ("set attr", |t| t.set_attr(&key(1), bytes(b"b"), data(7, 30)).is_empty()),
        ("set omap", |t| t.omap_set(&key(1), vec![(bytes(b"k2"), data(8, 50))]).is_empty()),
        ("clear omap", |t| t.omap_clear(&key(1)).is_empty()),
        ("clone", |t| t.clone_object(&key(1), &key(3)).is_empty()),
        ("clone over", |t| t.clone_object(&key(1), &key(2)).is_empty()),
        ("clone range", |t| t.clone_range(&key(1), 4000, 9000, &key(2), 8096).is_empty()),
        ("rename", |t| t.rename(&key(1), &key(3)).is_empty()),
    ]
}

fn config() -> Config {
    Config { wal_bytes: 256 << 10, small_write_bytes: 4 << 10, ..tiny_config() }
}

struct Enumeration {
    points: u64,
    subsets: u64,
    rng: Rng,
}

fn start() -> (Rig, Model) {
    let mut rig = Rig::new(5, &[2 << 20], &config());
    rig.disk.in_order = true;
    let mut model = Model::new();
    let mut txn = Transaction::new(0);
    txn.write(&key(1), 0, data(9, 30_000)).set_attr(&key(1), bytes(b"a"), data(10, 40));
    txn.omap_set(&key(1), vec![(bytes(b"k"), data(11, 60))]).omap_set_header(&key(1), data(1, 9));
    txn.clone_object(&key(1), &key(2));
    rig.commit(&txn);
    model.apply(&txn).unwrap();
    rig.sleep();
    (rig, model)
}

impl Enumeration {
    /// All that a crash may leave of this moment.
    fn crash(&mut self, rig: &Rig, models: &[Model], ids: &[TxnId], what: &str) {
        self.points += 1;
        let durable = ids.iter().filter(|id| rig.durable.contains(id)).count();
        let loose = rig.disk.loose_writes();
        let subsets: Vec<Option<u64>> = if loose <= ALL_SUBSETS {
            (0..1u64 << loose).map(Some).collect()
        } else {
            (0..SOME_SUBSETS).map(|_| Some(self.rng.u64(..))).collect()
        };
        // And one torn within writes.
        for subset in subsets.into_iter().chain([None]) {
            if subset.is_none() && loose == 0 {
                continue;
            }
            self.subsets += 1;
            let mut disk = rig.disk.clone();
            disk.rng = Rng::with_seed(self.rng.u64(..));
            disk.crash(|rng, write, _| match subset {
                Some(mask) => mask & (1 << write.min(63)) != 0,
                None => rng.bool(),
            });
            check(disk, models, durable, what);
        }
    }
}

fn check(mut disk: Disk, models: &[Model], durable: usize, what: &str) {
    let report = fsck(&mut disk, &config());
    assert!(!report.is_damaged(), "{what}: {:?}", report.findings);
    let mut opened = Rig::open(disk, &config()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let dump = opened.dump().unwrap_or_else(|e| panic!("{what}: {e}"));
    if !models[durable..].contains(&dump) {
        assert_same(&dump, &models[durable], &format!("{what}, {durable} durable"));
    }
}

fn run(steps: &[(&'static str, Make)], e: &mut Enumeration, base: &(Disk, Model)) {
    let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
    let what = names.join(", then ");
    let mut rig = Rig::open(base.0.clone(), &config()).unwrap();
    let mut models = vec![base.1.clone()];
    let mut ids = Vec::new();
    for (_, make) in steps {
        let mut txn = Transaction::new(0);
        assert!(!make(&mut txn));
        let mut next = models.last().unwrap().clone();
        if next.apply(&txn).is_err() {
            return;
        }
        ids.push(rig.must(&txn));
        models.push(next);
        rig.end_turn();
        e.crash(&rig, &models, &ids, &what);
        if rig.complete_one() {
            rig.end_turn();
            e.crash(&rig, &models, &ids, &what);
        }
    }
    for flush in [false, true] {
        if flush {
            rig.store.flush_soon();
            rig.end_turn();
        }
        loop {
            let went = rig.complete_one();
            let due = rig.store.next_deadline().is_some_and(|at| at <= rig.now.mono);
            if !went && !due {
                break;
            }
            rig.end_turn();
            if went {
                e.crash(&rig, &models, &ids, &what);
            }
        }
    }
    assert_eq!(rig.durable.len(), ids.len());
}

fn all(steps: &[(&'static str, Make)], depth: usize, e: &mut Enumeration, base: &(Disk, Model)) {
    for step in alphabet() {
        let steps = [steps, &[step]].concat();
        run(&steps, e, base);
        if depth > 1 {
            all(&steps, depth - 1, e, base);
        }
    }
}

/// `STORE_TEST_DEPTH=3` tries three operations.
#[test]
fn all_sequences_of_up_to_two_operations() {
    let depth = std::env::var("STORE_TEST_DEPTH").ok().and_then(|v| v.parse().ok()).unwrap_or(2);
    let (rig, model) = start();
    let base = (rig.unmount(), model);
    let mut e = Enumeration { points: 0, subsets: 0, rng: Rng::with_seed(1) };
    all(&[], depth, &mut e, &base);
    println!("{} crash points, {} outcomes of crashes", e.points, e.subsets);
    assert!(e.points > 1000);
}
