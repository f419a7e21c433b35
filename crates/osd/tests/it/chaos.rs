//! Random requests against a model, while machines crash, networks break and OSDs move.
//!
//! `OSD_FIRST=n OSD_SEEDS=m` runs other seeds.

use crate::admin::ask;
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use crate::load::{Load, POOL};
use io::Rng;
use serde_json::json;
use std::time::Duration;
use types::{HObject, OsdId, SnapId};
use wire::msg::op::Extent;
use wire::msg::op_data::ListSnapsOut;
use wire::msg::{OpCode, OsdOp};

const OBJECTS: u64 = 12;
/// Of 256 requests so many read.
const READS: u8 = 90;

struct Chaos {
    load: Load,
    cuts: Vec<(usize, usize)>,
    size: u8,
    min_size: u8,
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
        Chaos { load: Load::new(c, rng, OBJECTS), cuts: Vec::new(), size, min_size }
    }

    fn issue(&mut self) {
        let name = self.load.name();
        if self.load.rng.u8(..) < 8 {
            self.load.take_snap();
        }
        self.load.issue(name, READS);
    }

    /// OSDs that may fail at once without ending the service, and without losing data: what is on
    /// disk is never lost here, so all may.
    fn fault(&mut self) {
        let n = self.load.c.osds.len();
        let osd = self.load.rng.usize(0..n);
        let kind = self.load.rng.u32(0..14);
        self.load.say(format_args!("fault {kind} at osd.{osd}"));
        match kind {
            0 | 1 => {
                if self.load.c.world.is_up(self.load.c.osds[osd]) {
                    self.load.c.crash(osd);
                    self.load.c.off[osd] = true;
                }
            }
            2..=4 => self.load.c.start(osd),
            5 => {
                let id = OsdId(osd as i32);
                self.load.c.on_mon(|m| m.mark_down(id));
            }
            6 => {
                let id = OsdId(osd as i32);
                let weight = [0, 0x8000, 0x10000, 0x10000][self.load.rng.usize(0..4)];
                self.load.c.on_mon(|m| m.set_weight(id, weight));
            }
            7 => {
                let other = self.load.rng.usize(0..n);
                if other != osd {
                    let (a, b) = (self.load.c.osds[osd], self.load.c.osds[other]);
                    self.load.c.world.set_cut(a, b, true);
                    self.cuts.push((osd, other));
                }
            }
            8 | 9 => self.heal_cuts(),
            10 => {
                if self.load.c.world.is_up(self.load.c.osds[osd]) {
                    self.load.c.off[osd] = true;
                    let node = self.load.c.osds[osd];
                    self.load.c.world.stop(node);
                }
            }
            11 | 12 => {
                let other = self.load.rng.usize(0..n);
                let json = format!(r#"{{"prefix":"break_session","osd":{other}}}"#);
                self.load.c.on_client(|client| client.command(OsdId(osd as i32), json));
            }
            _ => {
                // Everything at once.
                if self.load.rng.u8(..) < 60 {
                    (0..n).for_each(|i| self.load.c.crash(i));
                    (0..n).for_each(|i| self.load.c.start(i));
                }
            }
        }
    }

    fn heal_cuts(&mut self) {
        for (a, b) in std::mem::take(&mut self.cuts) {
            let (a, b) = (self.load.c.osds[a], self.load.c.osds[b]);
            self.load.c.world.set_cut(a, b, false);
        }
    }

    fn run(&mut self) {
        let steps = self.load.rng.u32(20..120);
        for _ in 0..steps {
            for _ in 0..self.load.rng.u32(0..12) {
                if self.load.has_room() {
                    self.issue();
                }
            }
            let pause = Duration::from_micros(self.load.rng.u64(0..20_000));
            self.load.c.pass(pause);
            self.load.check_answers();
            if self.load.rng.u8(..) < 40 {
                self.load.remove_snap();
            }
            if self.load.rng.u8(..) < 60 {
                self.fault();
            }
        }
        self.heal();
        self.verify();
    }

    /// Everything works again, and everything becomes whole.
    fn heal(&mut self) {
        self.heal_cuts();
        self.load.start_all();
        self.load.settle();
        self.load.c.wait_clean();
        self.check_trimmed();
        self.scrub_everything();
        self.check_nothing_in_hand();
    }

    /// No OSD thinks that it still has a request in hand, its own or of another one.
    fn check_nothing_in_hand(&mut self) {
        for osd in 0..self.load.c.osds.len() {
            let pools = ask(&mut self.load.c, osd as i32, "dump_mempools");
            let requests = &pools["mempool"]["by_pool"]["osd"];
            assert_eq!(requests, &json!({ "items": 0, "bytes": 0 }), "osd.{osd}");
        }
    }

    /// All copies are the same, to the byte; nor was any other at any time.
    fn scrub_everything(&mut self) {
        let pgs: Vec<_> = self.load.c.mon.borrow().stats.keys().copied().collect();
        for pgid in pgs {
            let record = crate::scrub::scrub(&mut self.load.c, pgid, true, false);
            assert_eq!((record.errors(), record.objects_repaired), (0, 0), "pg {pgid}: {record:?}");
        }
    }

    /// Of removed snapshots nothing is left, and the PGs' sums are right.
    fn check_trimmed(&mut self) {
        self.load.wait_trimmed();
        let (mut clones, mut heads) = (0, 0);
        for i in 0..OBJECTS {
            let target = HObject { snap: SnapId::SNAPDIR, ..object(POOL, &format!("object{i}")) };
            let op = OsdOp::new(OpCode::LIST_SNAPS, Extent::default());
            let reply = self.load.c.call(target, vec![op], false);
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
                let live = |s: &SnapId| self.load.snapc.snaps.contains(s);
                assert!(!clone.snaps.is_empty() && clone.snaps.iter().all(live), "{clone:?}");
            }
        }
        self.load.c.run_until(Duration::from_secs(30), |c| {
            let mon = c.mon.borrow();
            let sums = |f: fn(&pg::ObjectSums) -> i64| -> i64 {
                mon.stats.values().map(|s| f(&s.sums)).sum()
            };
            sums(|s| s.clones) == clones && sums(|s| s.objects) == clones + heads
        });
    }

    /// Every object is what it should be, from every copy.
    fn verify(&mut self) {
        self.load.read_everything();
        if self.size == 2 || self.min_size == 1 || self.load.c.osds.len() > 3 {
            return;
        }
        for osd in 0..self.load.c.osds.len() {
            self.load.c.crash(osd);
            self.load.c.off[osd] = true;
            self.load.read_everything();
            self.load.c.start(osd);
            self.load.c.wait_clean();
        }
    }
}

/// Small numbers, and scrubs all the time.
fn options(rng: &mut Rng) -> Options {
    let mut options = sim::small_options(rng);
    if options.is_empty() {
        return options;
    }
    let mut set = |name: &str, value: u64| drop(options.insert(name.into(), value.to_string()));
    set("osd_scrub_min_interval", rng.u64(1..20));
    set("osd_deep_scrub_interval", rng.u64(2..30));
    set("osd_scrub_chunk_max", rng.u64(1..8));
    set("osd_scrub_chunk_min", 1);
    set("osd_deep_scrub_stride", rng.u64(4096..60_000));
    set("osd_deep_scrub_keys", rng.u64(1..8));
    options
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
