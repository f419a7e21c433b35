//! The paths that every request takes, to be counted by `bench/instructions`.
//!
//! Three OSDs, a pool of size 3, one client, no faults. The same seed gives the same run, and the same
//! instructions. [`counted`] is where counting begins.

use crate::rig::{Rig, TICK};
use bytes::Bytes;
use client::{Object, ObjectOp, Outcome};
use io::{AlignedBuf, Rng};
use std::collections::BTreeMap;
use std::time::Duration;
use types::PoolId;

const OBJECTS: u64 = 16;
const OBJECT_BYTES: u64 = 512 << 10;
const FILL_BYTES: usize = 256 << 10;
const BLOCK_BYTES: usize = 4096;
const DISK_BYTES: u64 = 1 << 30;
/// Operations before those that are counted, so that caches are warm.
const WARM_UP: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done, and how many at a time.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum HotPath {
    /// Random writes of 4 KiB, one at a time.
    Write4kQ1,
    /// Sixteen at a time.
    Write4kQ16,
    /// Random reads of 4 KiB of the disk, one at a time.
    Read4kQ1,
    /// Sixteen at a time.
    Read4kQ16,
    /// Random reads of 4 KiB that are in memory, one at a time.
    Kept4kQ1,
    /// Sixteen at a time.
    Kept4kQ16,
}

impl HotPath {
    fn writes(self) -> bool {
        matches!(self, HotPath::Write4kQ1 | HotPath::Write4kQ16)
    }

    fn depth(self) -> u64 {
        match self {
            HotPath::Write4kQ1 | HotPath::Read4kQ1 | HotPath::Kept4kQ1 => 1,
            HotPath::Write4kQ16 | HotPath::Read4kQ16 | HotPath::Kept4kQ16 => 16,
        }
    }

    fn is_kept(self) -> bool {
        matches!(self, HotPath::Kept4kQ1 | HotPath::Kept4kQ16)
    }
}

fn data(bytes: usize) -> Bytes {
    let mut buf = AlignedBuf::zeroed(bytes);
    buf.as_mut_slice().iter_mut().zip(0u32..).for_each(|(b, n)| *b = (n >> 3) as u8);
    buf.freeze()
}

fn object(number: u64) -> Object {
    Object::new(PoolId(1), format!("rbd_data.1234567890ab.{number:016x}"))
}

/// Runs it.
pub fn run(path: HotPath, operations: u64) {
    let options = BTreeMap::from([
        ("osd_memory_target".to_owned(), "512M".to_owned()),
        ("bluestore_default_buffered_read".to_owned(), path.is_kept().to_string()),
    ]);
    let mut rig = Rig::new(1, 3, 1, DISK_BYTES, &options);
    let up = rig.wait(PATIENCE, TICK, |rig| rig.osds_up() == 3);
    assert!(up, "the OSDs come up");
    rig.ask(
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":3,"autoscale_mode":"off"}"#,
    );
    let status = r#"{"prefix":"status","format":"json"}"#;
    let clean = rig.wait(PATIENCE, TICK, |rig| {
        let pgs = rig.ask(status)["pgmap"]["pgs_by_state"].clone();
        pgs.as_array().is_some_and(|p| p.len() == 1 && p[0]["state_name"] == "active+clean")
    });
    assert!(clean, "the PGs become clean");
    let content = data(FILL_BYTES);
    let fills =
        (0..OBJECTS).flat_map(|n| (0..OBJECT_BYTES).step_by(FILL_BYTES).map(move |at| (n, at)));
    let mut fills = fills.map(|(n, at)| ObjectOp::new(object(n)).write(at, content.clone()));
    let count = OBJECTS * OBJECT_BYTES / FILL_BYTES as u64;
    pump(&mut rig, 4, count, || fills.next().expect("as many as are counted"));
    if path.is_kept() {
        let mut reads = (0..OBJECTS).map(|n| ObjectOp::new(object(n)).read(0, OBJECT_BYTES));
        pump(&mut rig, 4, OBJECTS, || reads.next().expect("as many as are counted"));
    }
    let (block, mut rng) = (data(BLOCK_BYTES), Rng::with_seed(1));
    let mut op = || {
        let at = rng.u64(0..OBJECT_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
        let op = ObjectOp::new(object(rng.u64(0..OBJECTS)));
        match path.writes() {
            true => op.write(at, block.clone()),
            false => op.read(at, BLOCK_BYTES as u64),
        }
    };
    pump(&mut rig, path.depth(), WARM_UP, &mut op);
    counted(&mut rig, path.depth(), operations, op);
}

/// What is counted, under a name that stays.
#[inline(never)]
fn counted(rig: &mut Rig, depth: u64, operations: u64, op: impl FnMut() -> ObjectOp) {
    pump(rig, depth, operations, op);
}

/// Keeps `depth` requests going until `count` are done.
fn pump(rig: &mut Rig, depth: u64, count: u64, mut op: impl FnMut() -> ObjectOp) {
    let (mut sent, mut done) = (0, 0);
    while done < count {
        while sent < count && sent - done < depth {
            let op = op();
            rig.as_user(0, |now, c| c.submit(now, op)).expect("few are under way");
            sent += 1;
        }
        let end = rig.world.now() + PATIENCE;
        let before = done;
        while done == before {
            assert!(rig.world.now() < end, "no answer within {PATIENCE:?}");
            rig.pass(Duration::from_micros(20));
            for completion in rig.done(0) {
                assert!(matches!(completion.outcome, Outcome::Op(Ok(_))), "{completion:?}");
                done += 1;
            }
        }
    }
}
