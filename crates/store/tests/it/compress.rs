//! Compressed extents: what they save, what becomes of them when they are written into, shared and
//! removed. That reads are right whatever is done is for the random tests, which compress half of
//! what they write.

use crate::rig::{Rig, assert_clean, key, tiny_config};
use store::{Algorithm, Compress, Compressed, Config, Transaction};

const BLOCK: u64 = 4096;

const HOW: Compress = Compress {
    algorithm: Algorithm::Zstd,
    required_per_mille: 875,
    min_blob_bytes: 8 << 10,
    max_blob_bytes: 64 << 10,
};

/// Objects here are of whatever account their first transaction is.
fn config() -> Config {
    Config { account_of: None, ..tiny_config() }
}

fn compressed(account: u64) -> Transaction {
    let mut txn = Transaction::new(0);
    (txn.account, txn.compress) = (account, Some(HOW));
    txn
}

/// Text that shrinks to about a tenth, different in every place.
fn text(len: usize) -> Vec<u8> {
    let mut state = 9u64;
    let mut out = Vec::new();
    while out.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        out.extend(format!("{:05} a line of text that is like all others;", state >> 47).bytes());
    }
    out.truncate(len);
    out
}

fn of(rig: &Rig, account: u64) -> Compressed {
    rig.store.compressed().find(|c| c.account == account).unwrap_or_default()
}

#[test]
fn what_is_compressed_takes_less_and_is_counted_by_account() {
    let config = config();
    let mut rig = Rig::new(1, &[16 << 20], &config);
    rig.sleep();
    let before = rig.store.usage().data;
    let data = text(1 << 20);
    let mut txn = compressed(5);
    txn.write(&key(1), 0, data.clone().into());
    rig.commit(&txn);
    let mut txn = compressed(6);
    txn.write(&key(2), 0, data[..100_000].to_vec().into());
    rig.commit(&txn);
    let (one, two) = (of(&rig, 5), of(&rig, 6));
    assert_eq!(
        (one.original, two.original),
        (1 << 20, 98_304),
        "the last bytes are no whole block"
    );
    assert!(one.allocated < one.original / 2 && one.stored <= one.allocated, "{one:?}");
    let used = rig.store.usage().data - before;
    assert_eq!(used, one.allocated + two.allocated + BLOCK);
    assert_eq!(rig.store.usage().compressed, one.allocated + two.allocated);
    // Exact, by reason: the ends of the two compressed extents' last blocks, and of object 2.
    let mut disk = rig.disk.clone();
    disk.crash(|_, _, _| true);
    let space = assert_clean(&mut disk, &config, "compressed").space;
    let unused = one.allocated - one.stored + two.allocated - two.stored;
    assert_eq!(space.padding, unused + 2400);
    assert_eq!(space.data - space.padding, one.stored + two.stored + 1696);
    assert_eq!(
        (space.compressed, space.compressed_original),
        (one.allocated + two.allocated, one.original + two.original)
    );
    // The counts are there again after a crash, from the log, and from the tree.
    for sleep in [false, true] {
        if sleep {
            rig.sleep();
        }
        let mut disk = rig.disk;
        disk.crash(|_, _, _| true);
        rig = Rig::open(disk, &config).unwrap();
        assert_eq!((of(&rig, 5), of(&rig, 6)), (one, two));
    }
    let mut txn = Transaction::new(0);
    txn.account = 5;
    txn.remove(&key(1));
    rig.commit(&txn);
    rig.sleep();
    assert_eq!((of(&rig, 5), of(&rig, 6)), (Compressed::default(), two));
    assert_eq!(rig.store.usage().data - before, two.allocated + BLOCK);
    assert_clean(&mut rig.unmount(), &config, "at the end");
}

/// The count of an account cannot become less than nothing. That one would have to is told: it is a mistake of whoever
/// changes an object under another account than it was written under.
#[test]
fn what_is_taken_from_an_account_that_does_not_have_it_is_told() {
    let mut rig = Rig::new(1, &[16 << 20], &config());
    let remove = |account, n| {
        let mut txn = Transaction::new(0);
        txn.account = account;
        txn.remove(&key(n));
        txn
    };
    let mut txn = compressed(5);
    txn.write(&key(1), 0, text(1 << 18).into()).write(&key(2), 0, text(1 << 18).into());
    rig.commit(&txn);
    rig.commit(&remove(5, 1));
    assert_eq!(rig.store.counters().accounts_below_zero, 0);
    let before = of(&rig, 5);
    rig.commit(&remove(0, 2));
    assert_eq!(rig.store.counters().accounts_below_zero, 1);
    assert_eq!((of(&rig, 0), of(&rig, 5)), (Compressed::default(), before));
}

#[test]
fn what_cannot_be_compressed_enough_is_written_as_it_is() {
    let mut rig = Rig::new(1, &[16 << 20], &config());
    let mut rng = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..1 << 18).map(|_| rng.u8(..)).collect();
    let mut txn = compressed(5);
    txn.write(&key(1), 0, noise.into());
    // Too short a piece.
    txn.write(&key(2), 0, text(4096).into());
    rig.commit(&txn);
    assert_eq!(of(&rig, 5), Compressed::default());
    // It would be compressed to a twelfth, but more is asked for.
    let mut txn = compressed(5);
    txn.compress = Some(Compress { required_per_mille: 50, ..HOW });
    txn.write(&key(3), 0, text(1 << 18).into());
    rig.commit(&txn);
    assert_eq!(of(&rig, 5), Compressed::default());
}

/// Overwriting a compressed object bit by bit never makes it take more than its bytes do, and in the
/// end nothing of the compressed extents is left.
#[test]
fn overwrites_never_take_more_than_the_bytes_do() {
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        let config = config();
        let mut rig = Rig::new(1, &[16 << 20], &config);
        let bytes = 1 << 20;
        let mut txn = compressed(5);
        txn.compress = Some(Compress { algorithm, ..HOW });
        txn.write(&key(1), 0, text(bytes as usize).into());
        rig.commit(&txn);
        let mut blocks: Vec<u64> = (0..bytes / BLOCK).collect();
        fastrand::Rng::with_seed(2).shuffle(&mut blocks);
        let mut wanted = text(bytes as usize);
        for (n, block) in blocks.into_iter().enumerate() {
            let mut txn = Transaction::new(0);
            txn.account = 5;
            txn.write(&key(1), block * BLOCK, vec![n as u8; BLOCK as usize].into());
            wanted[(block * BLOCK) as usize..][..BLOCK as usize].fill(n as u8);
            rig.commit(&txn);
            assert!(rig.store.usage().data <= bytes, "after {n}: {:?}", rig.store.usage());
            if n % 50 == 0 {
                rig.sleep();
                assert!(rig.read(&key(1), 0, bytes).unwrap() == wanted);
            }
        }
        assert_eq!(of(&rig, 5), Compressed::default());
        assert!(rig.read(&key(1), 0, bytes).unwrap() == wanted);
        assert_clean(&mut rig.unmount(), &config, "at the end");
    }
}

#[test]
fn copies_share_compressed_extents() {
    let config = config();
    let mut rig = Rig::new(1, &[16 << 20], &config);
    let data = text(1 << 19);
    let mut txn = compressed(5);
    txn.write(&key(1), 0, data.clone().into());
    rig.commit(&txn);
    let (one, used) = (of(&rig, 5), rig.store.usage().data);
    let mut txn = Transaction::new(0);
    txn.account = 5;
    txn.clone_object(&key(1), &key(2));
    // To other shards, and twice into the same.
    txn.clone_range(&key(1), 0, 200_000, &key(3), 65_536);
    txn.clone_range(&key(1), 8192, 16_384, &key(3), 0);
    rig.commit(&txn);
    assert_eq!(rig.store.usage().data, used + BLOCK, "only the end of the range is copied");
    let shared = of(&rig, 5);
    assert_eq!((shared.allocated, shared.stored), (one.allocated, one.stored));
    assert_eq!(shared.original, 2 * one.original + 196_608 + 16_384);
    for (victim, left) in [(1, 2), (2, 3)] {
        let mut txn = Transaction::new(0);
        txn.account = 5;
        txn.remove(&key(victim));
        rig.commit(&txn);
        rig.sleep();
        let wanted = if left == 2 { &data[..] } else { &data[..200_000] };
        let at = if left == 2 { 0 } else { 65_536 };
        assert!(rig.read(&key(left), at, wanted.len() as u64).unwrap() == wanted);
        assert_clean(
            &mut {
                let d = rig.unmount();
                rig = Rig::open(d.clone(), &config).unwrap();
                d
            },
            &config,
            "a copy less",
        );
    }
    let mut txn = Transaction::new(0);
    txn.account = 5;
    txn.remove(&key(3));
    rig.commit(&txn);
    rig.sleep();
    assert_eq!((of(&rig, 5), rig.store.usage().data), (Compressed::default(), 0));
}
