//! Random requests against a model, while machines crash, networks break and OSDs move.
//!
//! Every request is sent until it is answered, so the model knows what each answer must be, to the
//! byte: a lost write, one applied twice, and a stale read all show.
//!
//! `OSD_FIRST=n OSD_SEEDS=m` runs other seeds.

use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use crate::model::{Model, Request, State};
use io::Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{HObject, OsdId, PoolId, SnapId};
use wire::msg::op::Extent;
use wire::msg::op_data::ListSnapsOut;
use wire::msg::{MOsdOpReply, OpCode, OsdOp, SnapContext, flags};

const POOL: i64 = 1;
const OBJECTS: u64 = 12;

struct Chaos {
    c: Cluster,
    rng: Rng,
    model: Model,
    /// What each outstanding request must answer.
    expected: BTreeMap<u64, (String, Request, Option<SnapId>, Expected)>,
    snapc: SnapContext,
    cuts: Vec<(usize, usize)>,
    size: u8,
    min_size: u8,
    /// Says what it does.
    loud: bool,
}

#[derive(Debug)]
enum Expected {
    Result(i32),
    State(Option<State>),
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let osds = rng.i32(3..=5);
        let size = rng.u8(2..=3);
        let min_size = if size == 2 { 1 } else { rng.u8(1..=2) };
        let mut c = Cluster::new(seed, osds, &options(&mut rng));
        let pg_num = 1 << rng.u32(0..=3);
        c.on_mon(|m| m.create_pool(POOL, "rbd", size, min_size, pg_num));
        if rng.bool() {
            let algorithm = ["lz4", "zstd"][rng.usize(0..2)];
            let options = [("compression_mode", "force"), ("compression_algorithm", algorithm)];
            c.on_mon(|m| m.set_pool_options(POOL, &options));
        }
        c.wait_clean();
        if rng.bool() {
            let break_ppm = rng.u32(0..2000);
            let faults = sim::Faults { break_ppm, slow_disk_ppm: 1000, ..sim::Faults::default() };
            c.world.set_faults(faults);
        }
        let (model, expected) = (Model::default(), BTreeMap::new());
        let snapc = SnapContext::default();
        let loud = std::env::var_os("OSD_SAY").is_some();
        Chaos { c, rng, model, expected, snapc, cuts: Vec::new(), size, min_size, loud }
    }

    fn issue(&mut self) {
        let name = format!("object{}", self.rng.u64(0..OBJECTS));
        let target = object(POOL, &name);
        if self.rng.u8(..) < 8 {
            let snap = SnapId(self.snapc.seq.0 + 1);
            self.model.snapshot(snap);
            self.snapc.seq = snap;
            self.snapc.snaps.insert(0, snap);
        }
        // A read whose answer gets lost is done again, and then may see a write that was sent after
        // it: what it must answer is known only if there is none.
        let is_read = |(n, _, snap, e): &(String, Request, Option<SnapId>, Expected)| {
            *n == name && snap.is_none() && matches!(e, Expected::State(_))
        };
        if self.rng.u8(..) < 90 || self.expected.values().any(is_read) {
            self.issue_read(name, target);
            return;
        }
        let request = Request::random(&mut self.rng, &self.model, &name, &self.snapc);
        let expected = Expected::Result(self.model.apply(&name, &request));
        let (ops, snapc) = (request.ops(), self.snapc.clone());
        let tid = self.c.on_client(|c| c.request_with(target, ops, flags::WRITE, snapc));
        self.expected.insert(tid, (name, request, None, expected));
        self.say(format_args!("{:?}", self.expected.last_key_value()));
    }

    /// A snapshot is not wanted any more. Not while a write is on its way that knows of it: a client
    /// that writes with a snapshot it has removed gets what it asks for.
    fn remove_snap(&mut self) {
        let reads_head = |e: &(String, Request, Option<SnapId>, Expected)| {
            e.2.is_none() && matches!(e.1, Request::Read)
        };
        if self.snapc.snaps.is_empty() || !self.expected.values().all(reads_head) {
            return;
        }
        let at = self.rng.usize(0..self.snapc.snaps.len());
        let snap = self.snapc.snaps.remove(at);
        self.model.forget(snap);
        self.c.on_mon(|m| m.remove_snap(POOL, snap));
        self.say(format_args!("snapshot {snap} is removed"));
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.loud {
            let text: String = what.to_string().chars().take(300).collect();
            eprintln!("{:?} {text}", self.c.world.now());
        }
    }

    fn issue_read(&mut self, name: String, mut target: HObject) {
        let snaps = &self.snapc.snaps;
        let snap =
            (!snaps.is_empty() && self.rng.bool()).then(|| snaps[self.rng.usize(0..snaps.len())]);
        target.snap = snap.unwrap_or(SnapId::HEAD);
        let state = self.model.state(&name, snap);
        let ops = Request::Read.ops();
        let tid = self.c.on_client(|c| c.request(target, ops, false));
        self.expected.insert(tid, (name, Request::Read, snap, Expected::State(state)));
        self.say(format_args!("{:?}", self.expected.last_key_value()));
    }

    fn check_answers(&mut self) {
        let done = std::mem::take(&mut self.c.client.borrow_mut().done);
        for (tid, reply) in done {
            let (name, request, snap, expected) =
                self.expected.remove(&tid).expect("it was asked for");
            self.say(format_args!("{tid} {name}: {} at {}", reply.result, reply.replay_version));
            check(&name, &request, snap, &expected, &reply, tid);
        }
    }

    /// OSDs that may fail at once without ending the service, and without losing data: what is on
    /// disk is never lost here, so all may.
    fn fault(&mut self) {
        let n = self.c.osds.len();
        let osd = self.rng.usize(0..n);
        let kind = self.rng.u32(0..12);
        self.say(format_args!("fault {kind} at osd.{osd}"));
        match kind {
            0 | 1 => {
                if self.c.world.is_up(self.c.osds[osd]) {
                    self.c.crash(osd);
                    self.c.off[osd] = true;
                }
            }
            2..=4 => self.c.start(osd),
            5 => {
                let id = OsdId(osd as i32);
                self.c.on_mon(|m| m.mark_down(id));
            }
            6 => {
                let id = OsdId(osd as i32);
                let weight = [0, 0x8000, 0x10000, 0x10000][self.rng.usize(0..4)];
                self.c.on_mon(|m| m.set_weight(id, weight));
            }
            7 => {
                let other = self.rng.usize(0..n);
                if other != osd {
                    let (a, b) = (self.c.osds[osd], self.c.osds[other]);
                    self.c.world.set_cut(a, b, true);
                    self.cuts.push((osd, other));
                }
            }
            8 | 9 => self.heal_cuts(),
            10 => {
                if self.c.world.is_up(self.c.osds[osd]) {
                    self.c.off[osd] = true;
                    let node = self.c.osds[osd];
                    self.c.world.stop(node);
                }
            }
            _ => {
                // Everything at once.
                if self.rng.u8(..) < 60 {
                    (0..n).for_each(|i| self.c.crash(i));
                    (0..n).for_each(|i| self.c.start(i));
                }
            }
        }
    }

    fn heal_cuts(&mut self) {
        for (a, b) in std::mem::take(&mut self.cuts) {
            let (a, b) = (self.c.osds[a], self.c.osds[b]);
            self.c.world.set_cut(a, b, false);
        }
    }

    fn run(&mut self) {
        let steps = self.rng.u32(20..120);
        for _ in 0..steps {
            for _ in 0..self.rng.u32(0..12) {
                if self.expected.len() < 64 {
                    self.issue();
                }
            }
            let pause = Duration::from_micros(self.rng.u64(0..20_000));
            self.c.pass(pause);
            self.check_answers();
            if self.rng.u8(..) < 40 {
                self.remove_snap();
            }
            if self.rng.u8(..) < 60 {
                self.fault();
            }
        }
        self.heal();
        self.verify();
    }

    /// Everything works again, and everything becomes whole.
    fn heal(&mut self) {
        self.heal_cuts();
        let n = self.c.osds.len();
        self.c.on_mon(|m| (0..n).for_each(|i| m.set_weight(OsdId(i as i32), 0x10000)));
        self.c.run_until(Duration::from_secs(20), |c| {
            (0..n).for_each(|i| c.start(i));
            (0..n).all(|i| c.world.is_up(c.osds[i]))
        });
        let left = |c: &mut Cluster| c.client.borrow().outstanding() == 0;
        self.c.run_until(Duration::from_secs(300), left);
        self.check_answers();
        assert!(self.expected.is_empty());
        self.c.wait_clean();
        self.check_trimmed();
        self.scrub_everything();
    }

    /// All copies are the same, to the byte; nor was any other at any time.
    fn scrub_everything(&mut self) {
        let pgs: Vec<_> = self.c.mon.borrow().stats.keys().copied().collect();
        for pgid in pgs {
            let record = crate::scrub::scrub(&mut self.c, pgid, true, false);
            assert_eq!((record.errors(), record.objects_repaired), (0, 0), "pg {pgid}: {record:?}");
        }
    }

    /// Of removed snapshots nothing is left, and the PGs' sums are right.
    fn check_trimmed(&mut self) {
        let queue = |c: &mut Cluster| {
            c.mon.borrow().map.removed_snaps_queue.get(&PoolId(POOL)).is_none_or(|q| q.is_empty())
        };
        self.c.run_until(Duration::from_secs(60), queue);
        let (mut clones, mut heads) = (0, 0);
        for i in 0..OBJECTS {
            let target = HObject { snap: SnapId::SNAPDIR, ..object(POOL, &format!("object{i}")) };
            let op = OsdOp::new(OpCode::LIST_SNAPS, Extent::default());
            let reply = self.c.call(target, vec![op], false);
            if reply.result != 0 {
                continue;
            }
            let listed: ListSnapsOut = denc::decode(&output(&reply, 0)).expect("a list");
            for clone in listed.clones {
                if clone.cloneid == SnapId::HEAD {
                    heads += 1;
                    continue;
                }
                clones += 1;
                let live = |s: &SnapId| self.snapc.snaps.contains(s);
                assert!(!clone.snaps.is_empty() && clone.snaps.iter().all(live), "{clone:?}");
            }
        }
        self.c.run_until(Duration::from_secs(30), |c| {
            let mon = c.mon.borrow();
            let sums = |f: fn(&pg::ObjectSums) -> i64| -> i64 {
                mon.stats.values().map(|s| f(&s.sums)).sum()
            };
            sums(|s| s.clones) == clones && sums(|s| s.objects) == clones + heads
        });
    }

    /// Every object is what it should be, from every copy.
    fn verify(&mut self) {
        self.read_everything();
        if self.size == 2 || self.min_size == 1 || self.c.osds.len() > 3 {
            return;
        }
        for osd in 0..self.c.osds.len() {
            self.c.crash(osd);
            self.c.off[osd] = true;
            self.read_everything();
            self.c.start(osd);
            self.c.wait_clean();
        }
    }

    fn read_everything(&mut self) {
        for i in 0..OBJECTS {
            let name = format!("object{i}");
            let snaps = self.snapc.snaps.iter().map(|s| Some(*s)).chain([None]);
            for snap in snaps.collect::<Vec<_>>() {
                let mut target = object(POOL, &name);
                target.snap = snap.unwrap_or(SnapId::HEAD);
                let state = self.model.state(&name, snap);
                let reply = self.c.call(target, Request::Read.ops(), false);
                check(&name, &Request::Read, snap, &Expected::State(state), &reply, 0);
            }
        }
    }
}

/// Small numbers meet every boundary: logs that are trimmed before a copy is back, objects in many
/// parts, listings of few objects.
fn options(rng: &mut Rng) -> Options {
    if rng.u8(0..4) == 0 {
        return Options::new();
    }
    let mut options = Options::new();
    let mut set = |name: &str, value: u64| drop(options.insert(name.into(), value.to_string()));
    set("osd_target_pg_log_entries_per_osd", 1);
    set("osd_min_pg_log_entries", rng.u64(1..60));
    set("osd_pg_log_trim_min", rng.u64(1..10));
    set("osd_recovery_max_active", rng.u64(1..6));
    set("osd_recovery_max_chunk", rng.u64(4096..80_000));
    set("osd_recovery_max_omap_chunk", rng.u64(16..5000));
    set("osd_recovery_max_omap_entries_per_chunk", rng.u64(1..8));
    set("osd_backfill_scan_max", rng.u64(2..12));
    set("osd_target_transaction_size", rng.u64(1..6));
    set("osd_scrub_min_interval", rng.u64(1..20));
    set("osd_deep_scrub_interval", rng.u64(2..30));
    set("osd_scrub_chunk_max", rng.u64(1..8));
    set("osd_scrub_chunk_min", 1);
    set("osd_deep_scrub_stride", rng.u64(4096..60_000));
    set("osd_deep_scrub_keys", rng.u64(1..8));
    options
}

#[track_caller]
fn check(
    name: &str,
    request: &Request,
    snap: Option<SnapId>,
    expected: &Expected,
    reply: &MOsdOpReply,
    tid: u64,
) {
    match expected {
        Expected::Result(result) => {
            assert_eq!(reply.result, *result, "{name} at {snap:?}, tid {tid}: {request:?}");
        }
        Expected::State(None) => {
            assert_eq!(reply.result, -types::Errno::ENOENT.0, "{name} at {snap:?}, tid {tid}");
        }
        Expected::State(Some(state)) => {
            assert_eq!(reply.result, 0, "{name} at {snap:?}, tid {tid} exists");
            let got = State::from_outputs(&output(reply, 0), &output(reply, 1), &output(reply, 2));
            if got != *state {
                let at = got.data.iter().zip(&state.data).position(|(a, b)| a != b);
                panic!(
                    "{name} at {snap:?}, tid {tid}: {} bytes instead of {}, different at {at:?}; \
                     omap equal: {}, xattrs equal: {}",
                    got.data.len(),
                    state.data.len(),
                    got.omap == state.omap,
                    got.xattrs == state.xattrs
                );
            }
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_done_twice() {
    let number = |name, default| {
        std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(default)
    };
    let first = number("OSD_FIRST", 1);
    for seed in first..first + number("OSD_SEEDS", 40) {
        eprintln!("seed {seed}");
        let mut chaos = Chaos::new(seed);
        chaos.run();
    }
}
