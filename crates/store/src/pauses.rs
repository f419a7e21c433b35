//! The longest that one call takes where there is much memory: nothing else happens on the thread meanwhile.
//!
//! `cargo test --release -p store --lib pauses -- --ignored --nocapture`, on a machine that has nothing else to
//! do and some 4 GiB of memory. The figures are those of a store with about 16 GiB, scaled only in what the
//! entries hold.

use crate::config::WalPlace;
use crate::gaps::Gaps;
use crate::keys::Key;
use crate::memtable::Memtable;
use crate::plan::Rows;
use crate::plan::logged::LoggedBlocks;
use crate::store::BATCHES_PER_TURN;
use crate::store::blocks::BlockCache;
use crate::store::onodes::ShardCache;
use crate::superblock::LogPos;
use crate::tree::Tree;
use crate::tree::cache::PageCache;
use crate::tree::node::{NodeSize, PagePtr, Payload, build};
use crate::wal::Wal;
use bytes::Bytes;
use io::BLOCK_BYTES;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::Uuid;

/// Does a load some times over, and says how long the longest call takes at least each time: what another process
/// takes of the machine comes with another call the next time.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn longest<S>(what: &str, calls: u64, make: impl Fn() -> S, call: impl Fn(&mut S, u64)) {
    let mut least: Option<Vec<Duration>> = None;
    for _ in 0..3 {
        let mut store = make();
        let timed = |n| {
            let begin = Instant::now();
            call(&mut store, n);
            begin.elapsed()
        };
        let times: Vec<Duration> = (0..calls).map(timed).collect();
        least = Some(match least {
            None => times,
            Some(least) => least.into_iter().zip(times).map(|(a, b)| a.min(b)).collect(),
        });
    }
    let longest = least.into_iter().flatten().zip(0..).max();
    let (longest, n) = longest.unwrap_or_default();
    println!("{what}: {longest:?}, call {n} of {calls}");
}

#[test]
#[ignore = "a measurement"]
fn nodes() {
    let entry = [(Key::from_slice(b"key"), Payload::Value(Bytes::new()))];
    let (ptr, node) = build(0, (&entry, NodeSize::of(&entry)), 1, 1);
    let node = Arc::new(node);
    let at = |block| PagePtr { block, ..ptr };
    let nodes = 1_800_000;
    let make = || PageCache::new(64 << 30);
    longest("a node that comes, and later replaces another", 3 * nodes, make, |cache, n| {
        cache.insert(at(n), node.clone());
        if let Some(old) = n.checked_sub(nodes) {
            cache.forget(old);
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn rows() {
    let (active, tree, pages) = (Memtable::default(), Tree::default(), PageCache::new(0));
    let rows = Rows { active, frozen: None, tree, pages, gaps: Gaps::default() };
    longest(
        "a row of extents",
        5_000_000,
        || ShardCache::new(1 << 30),
        |cache, n| {
            cache.look_at(&rows, (n / 32, (n % 32) as u32), |_| ()).unwrap();
        },
    );
}

#[test]
#[ignore = "a measurement"]
fn blocks() {
    let block = [1; BLOCK_BYTES];
    let make = || {
        let mut cache = BlockCache::default();
        cache.set_room(3 << 30);
        cache
    };
    longest("a block that was read", 1_500_000, make, |cache, n| {
        cache.put(3 * n, &[n as u32], &block);
    });
}

/// A batch with a block.
fn log_one(wal: &mut Wal, n: u64) {
    let mut logged = LoggedBlocks::default();
    logged.insert(n, 0, Bytes::from(vec![1; BLOCK_BYTES]));
    wal.append(n + 1, b"record", logged);
    wal.seal();
    let issue = wal.issue(n, 0).unwrap();
    issue.writes.iter().for_each(|_| drop(wal.written(issue.seq)));
    wal.set_recorded(n + 1);
    wal.in_place(&[(n, n + 1)]);
}

fn empty_log() -> Wal {
    let place = WalPlace { dev: 0, base: 16, blocks: 512 * 1024 };
    Wal::new(Uuid::default(), place, 1, LogPos { seq: 1, at: 0 }, 64 << 20)
}

#[test]
#[ignore = "a measurement"]
fn log() {
    let batches = 170_000;
    longest("a batch", batches, empty_log, log_one);
    let full = || {
        let mut wal = empty_log();
        (0..batches).for_each(|n| log_one(&mut wal, n));
        wal
    };
    longest("a slice of the log that is given up", 700, full, |wal, _| {
        _ = wal.release(wal.end(), BATCHES_PER_TURN);
    });
}
