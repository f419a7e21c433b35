//! Random requests on the objects of a history. The same numbers make the same request for each pool.

use super::answer::show;
use super::{call, op};
use client::{Object, ObjectOp};
use io::Rng;
use types::{ByteString, PoolId, SnapId, UTime};
use wire::msg::op::op_flags;
use wire::msg::op_data as od;
use wire::msg::{OpArgs, OpCode, OsdOp, SnapContext, flags};

/// Snapshots that reads and writes may know of.
pub const SNAPS: u64 = 6;
/// Objects of a history.
const OBJECTS: u64 = 2;

/// A request, and what belongs to it.
pub struct Asked {
    pub request: ObjectOp,
    /// For people.
    pub shown: String,
    /// Its outputs hold times or addresses: only their lengths must be the same.
    pub is_own: bool,
    /// Asked afterwards: what the object has come to.
    pub look: ObjectOp,
}

impl Asked {
    fn of(object: &Object, n: u64, look: ObjectOp) -> Self {
        let mtime = UTime { sec: 1_000_000 + n as u32, nsec: 7 };
        let request = ObjectOp::new(object.clone()).with_mtime(mtime);
        Asked { request, shown: object.name.to_string(), is_own: false, look }
    }

    fn change(&mut self, what: &str, f: impl FnOnce(ObjectOp) -> ObjectOp) {
        let nothing = ObjectOp::new(self.request.object().clone());
        self.request = f(std::mem::replace(&mut self.request, nothing));
        self.shown.push_str(what);
    }

    fn push(&mut self, op: OsdOp) {
        self.change(&format!(" + {}", show(&op)), |request| request.op(op));
    }
}

/// The objects of a history: in one PG, and of no other run.
pub struct Names {
    pub pool: PoolId,
    pub prefix: String,
    pub seed: u64,
}

impl Names {
    fn nth(&self, n: u64) -> Object {
        Object::new(self.pool, format!("{}.{n}", self.prefix)).with_key(self.prefix.clone())
    }

    fn any(&self, r: &mut Rng) -> Object {
        self.nth(r.u64(0..OBJECTS))
    }

    /// What others are copied from.
    pub fn source(&self) -> Object {
        self.nth(OBJECTS - 1)
    }

    /// Whether writes of this history speak of truncations, as those of CephFS do.
    pub fn truncates(&self) -> bool {
        self.seed.is_multiple_of(4)
    }

    fn rng(&self, n: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(n))
    }
}

/// Operations on an object.
pub fn on_object(of: &Names, n: u64) -> Asked {
    let r = &mut of.rng(n);
    let object = of.any(r);
    let mut asked = Asked::of(&object, n, look(&object));
    let writes = r.u8(0..3) > 0;
    for i in 0..[1, 1, 1, 2, 2, 3, 4][r.usize(0..7)] {
        let op = one_of(r, of, writes, i == 0, object == of.source());
        let (code, may_fail) = (op.code, r.u8(0..12) == 0);
        let flags = if may_fail { op.flags | op_flags::FAILOK } else { op.flags };
        asked.push(OsdOp { flags, ..op });
        if code == OpCode::CREATE {
            // See `op::with_some`.
            asked.change(" + SETXATTR made", |request| request.set_xattr("made", b""));
        }
        if code == OpCode::CMPXATTR {
            // Its result of 1 stays that of some operations after it, in Ceph.
            break;
        }
    }
    if writes {
        as_write(r, &mut asked, n);
    } else if r.u8(0..3) == 0 {
        let snap = SnapId(r.u64(1..=SNAPS));
        asked.change(&format!(" at snap {}", snap.0), |request| request.at_snap(snap));
    } else if r.u8(0..12) == 0 {
        asked.request = ObjectOp::new(object).list_snaps();
        asked.shown.push_str(" but LIST_SNAPS");
    }
    asked
}

fn one_of(r: &mut Rng, of: &Names, writes: bool, is_first: bool, is_source: bool) -> OsdOp {
    if !writes {
        return op::read(r);
    }
    let op = op::any(r, of);
    // Ceph reads some of what these need from the store, where nothing of the request is yet.
    let only_first = [
        OpCode::COPY_FROM,
        OpCode::DELETE,
        OpCode::ROLLBACK,
        OpCode::CHECKSUM,
        OpCode::CMPEXT,
        OpCode::OMAPRMKEYRANGE,
    ];
    // A copy of a snapshot of the object itself never comes to an end in Ceph.
    let from_itself = is_source && op.code == OpCode::COPY_FROM;
    if from_itself || (!is_first && only_first.contains(&op.code)) {
        return OsdOp::new(OpCode::STAT, OpArgs::default());
    }
    op
}

/// What makes a request a write, and how it is to be done.
fn as_write(r: &mut Rng, asked: &mut Asked, n: u64) {
    if r.u8(0..25) == 0 {
        // Of an object that never had an omap it is no change in Ceph.
        asked.change(" + OMAPSETHEADER + OMAPCLEAR", |q| q.set_omap_header("").clear_omap());
    }
    // Where outputs are too long, an OSD of Ceph says so and remembers what it has not done.
    let long = ["READ", "GETXATTR", "CHECKSUM", "MAPEXT"];
    if r.u8(0..4) == 0 && !long.iter().any(|op| asked.shown.contains(op)) {
        asked.change(" returnvec", |request| request.with_flags(flags::RETURNVEC));
    }
    let snaps = snap_context(r, n);
    if snaps.seq.0 > 0 {
        let shown = format!(" snaps {}:{:?}", snaps.seq.0, snaps.snaps);
        asked.change(&shown, |request| request.with_snaps(snaps));
    }
    if r.u8(0..20) == 0 {
        asked.change(" ordersnap", |request| request.with_flags(flags::ORDERSNAP));
    }
}

/// Calls of classes.
pub fn call_on_object(of: &Names, n: u64) -> Asked {
    let r = &mut of.rng(n);
    let object = of.nth(0);
    let look = ObjectOp::new(object.clone()).stat().read(0, 0);
    let mut asked = Asked::of(&object, n, look.omap_header().omap_keys("", 200));
    // One: what a second one reads is of before the request, but for what the classes of Ceph have in memory.
    let (op, is_own) = call::any(r, of.seed);
    asked.is_own = is_own;
    asked.push(op);
    asked.change("", ObjectOp::as_write);
    if r.bool() {
        asked.change(" returnvec", |request| request.with_flags(flags::RETURNVEC));
    }
    asked
}

/// What an object has come to.
fn look(object: &Object) -> ObjectOp {
    // Not all omap values: that may end an OSD of Ceph.
    let keys: od::Keys = ["a", "b", "c", "d", "e"].map(ByteString::from).into_iter().collect();
    let look = ObjectOp::new(object.clone()).stat().read(0, 0).get_xattrs();
    look.omap_header().omap_keys("", 100).omap_values_of(&keys)
}

/// Later requests know of more snapshots, mostly.
fn snap_context(r: &mut Rng, n: u64) -> SnapContext {
    let seq = match r.u8(0..8) {
        0 => r.u64(0..=SNAPS),
        _ => n * SNAPS / 40,
    };
    let snaps = (1..=seq).rev().filter(|_| r.u8(0..8) > 0).map(SnapId).collect();
    SnapContext { seq: SnapId(seq), snaps }
}
