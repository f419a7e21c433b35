//! Pools get more PGs, and fewer, while clients read and write, OSDs crash and copies are filled.
//!
//! `SPLIT_FIRST=n SPLIT_SEEDS=m` runs other seeds.

use crate::basic::write_full;
use crate::client::object;
use crate::cluster::{Cluster, Options};
use crate::load::{Load, POOL};
use io::Rng;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{OsdId, PoolId, SnapId};
use wire::msg::{SnapContext, flags};

const OBJECTS: u64 = 40;

/// Of 256 requests so many read.
const READS: u8 = 80;

/// A cluster with a pool, and a client's load.
fn new(seed: u64, osds: i32, size: u8, pg_num: u32, options: &Options) -> Load {
    let mut c = Cluster::new(seed, osds, options);
    c.on_mon(|m| m.create_pool(POOL, "rbd", size, 1.max(size - 1), pg_num));
    c.wait_clean();
    Load::new(c, Rng::with_seed(seed ^ 0x5117), OBJECTS)
}

impl Load {
    /// Some requests, over a short time.
    fn burst(&mut self, requests: u32) {
        for _ in 0..requests {
            if self.has_room() {
                let name = self.name();
                self.issue(name, READS);
            }
            let pause = Duration::from_micros(self.rng.u64(0..3000));
            self.c.pass(pause);
            self.check_answers();
        }
    }

    /// Changes the number of PGs, when nobody is making any.
    fn set_pg_num(&mut self, pg_num: u32, pgp_num: u32) {
        self.c.on_mon(|m| m.set_pg_num(POOL, pg_num, pgp_num));
    }

    /// The numbers of PGs that there are, and that there will be.
    fn pg_nums(&self) -> (u32, u32) {
        let mon = self.c.mon.borrow();
        let pool = mon.map.pool(PoolId(POOL)).expect("the pool is there");
        (pool.pg_num, pool.pg_num_target)
    }

    /// Waits until merges are done and everything is clean.
    #[track_caller]
    fn wait_merged(&mut self) {
        self.c.run_until(Duration::from_secs(300), |c| {
            let mon = c.mon.borrow();
            let pool = mon.map.pool(PoolId(POOL)).expect("the pool is there");
            pool.pg_num == pool.pg_num_target
                && pool.pg_num_pending == pool.pg_num
                && mon.all_clean()
        });
    }

    /// Of removed snapshots nothing is left, and the PGs' sums are what the model says.
    #[track_caller]
    fn check_sums(&mut self) {
        self.wait_trimmed();
        let names = (0..OBJECTS).map(|i| format!("object{i}"));
        let states: Vec<_> = names.filter_map(|name| self.model.state(&name, None)).collect();
        let (heads, bytes) =
            (states.len() as i64, states.iter().map(|s| s.data.len() as i64).sum::<i64>());
        self.c.run_until(Duration::from_secs(30), |c| {
            let mon = c.mon.borrow();
            let sums = |f: fn(&pg::ObjectSums) -> i64| -> i64 {
                mon.stats.values().map(|s| f(&s.sums)).sum()
            };
            let exact = mon.stats.values().all(|s| !s.sums.approximate);
            let clones = sums(|s| s.clones);
            exact
                && sums(|s| s.objects) == heads + clones
                && (clones > 0 || sums(|s| s.bytes) == bytes)
        });
    }

    fn heal(&mut self) {
        self.start_all();
        self.settle();
        self.wait_merged();
    }
}

#[test]
fn a_pool_gets_more_pgs_while_clients_write() {
    let mut load = new(3, 4, 3, 1, &Options::new());
    load.burst(60);
    load.take_snap();
    for pg_num in [2, 3, 8, 16] {
        load.burst(20);
        load.set_pg_num(pg_num, 1);
        load.burst(40);
    }
    load.take_snap();
    load.burst(40);
    // Now they spread.
    load.set_pg_num(16, 16);
    load.burst(60);
    load.settle();
    load.c.wait_clean();
    load.read_everything();
    load.remove_snap();
    load.check_sums();
    (0..4).for_each(|i| load.c.crash(i));
    (0..4).for_each(|i| load.c.start(i));
    load.c.wait_clean();
    load.read_everything();
    load.remove_snap();
    load.check_sums();
    assert_eq!(load.c.mon.borrow().stats.len(), 16);
}

#[test]
fn an_osd_that_was_away_splits_step_by_step_when_it_is_back() {
    let mut load = new(5, 3, 3, 2, &Options::new());
    load.burst(60);
    load.settle();
    load.c.wait_clean();
    load.c.off[2] = true;
    load.c.crash(2);
    for pg_num in [4, 5, 6, 16] {
        load.set_pg_num(pg_num, 2);
        load.burst(30);
    }
    load.settle();
    load.c.start(2);
    load.c.wait_clean();
    // It caught up by the log, and holds all there is.
    for other in [0, 1] {
        load.c.off[other] = true;
        load.c.crash(other);
        if other == 0 {
            load.read_everything();
            load.c.start(0);
            load.c.wait_clean();
        }
    }
    load.c.start(1);
    load.c.wait_clean();
    load.read_everything();
    load.check_sums();
}

#[test]
fn a_pool_gets_fewer_pgs_while_clients_write() {
    let mut load = new(4, 4, 3, 8, &Options::new());
    load.burst(60);
    load.take_snap();
    load.burst(60);
    load.c.on_mon(|m| m.merge_to(POOL, 3));
    load.burst(100);
    load.settle();
    load.wait_merged();
    assert_eq!(load.pg_nums(), (3, 3));
    load.read_everything();
    load.check_sums();
    // What was removed before is found through the index, wherever its clones went.
    load.remove_snap();
    load.check_sums();
    load.take_snap();
    load.burst(60);
    load.set_pg_num(8, 8);
    load.burst(60);
    load.settle();
    load.c.wait_clean();
    load.c.on_mon(|m| m.merge_to(POOL, 1));
    load.burst(60);
    load.settle();
    load.wait_merged();
    (0..4).for_each(|i| load.c.crash(i));
    (0..4).for_each(|i| load.c.start(i));
    load.c.wait_clean();
    load.read_everything();
    load.remove_snap();
    load.check_sums();
    assert_eq!(load.c.mon.borrow().stats.len(), 1);
}

#[test]
fn an_osd_that_was_away_while_pgs_were_merged_is_filled() {
    let mut load = new(6, 4, 3, 8, &Options::new());
    load.burst(60);
    load.settle();
    load.c.wait_clean();
    // Its copies are whole where nothing is written after it goes, and old elsewhere.
    load.c.off[3] = true;
    load.c.crash(3);
    load.burst(30);
    load.settle();
    load.c.on_mon(|m| m.set_weight(OsdId(3), 0));
    load.c.wait_clean();
    load.c.on_mon(|m| m.merge_to(POOL, 2));
    load.burst(60);
    load.settle();
    load.wait_merged();
    load.c.start(3);
    load.c.on_mon(|m| m.set_weight(OsdId(3), 0x10000));
    load.burst(30);
    load.settle();
    load.c.run_until(Duration::from_secs(60), |c| c.mon.borrow().map.is_up(OsdId(3)));
    load.c.wait_clean();
    for gone in [0, 1] {
        load.c.off[gone] = true;
        load.c.crash(gone);
        load.read_everything();
        load.c.start(gone);
        load.c.wait_clean();
    }
    load.check_sums();
}

/// Faults at any moment, most of all while PGs split and merge.
fn chaos(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (osds, size) = (rng.i32(3..=5), rng.u8(2..=3));
    let mut options = Options::new();
    if rng.bool() {
        let mut set = |name: &str, value: u64| drop(options.insert(name.into(), value.to_string()));
        set("osd_target_pg_log_entries_per_osd", 1);
        set("osd_min_pg_log_entries", rng.u64(1..60));
        set("osd_pg_log_trim_min", rng.u64(1..10));
        set("osd_backfill_scan_max", rng.u64(2..12));
        set("osd_target_transaction_size", rng.u64(1..6));
    }
    let pg_num = rng.u32(1..=4);
    let mut load = new(seed, osds, size, pg_num, &options);
    for _ in 0..rng.u32(4..14) {
        let requests = rng.u32(5..60);
        load.burst(requests);
        let (pg_num, target) = load.pg_nums();
        let pgp_num = load.c.mon.borrow().map.pool(PoolId(POOL)).map_or(1, |p| p.pgp_num);
        match rng.u8(0..14) {
            // Also while others are being merged.
            0..=3 if pg_num < 32 => {
                let more = rng.u32(1..=pg_num);
                load.set_pg_num(pg_num + more, pgp_num);
            }
            4 if target == pg_num => {
                let more = rng.u32(pgp_num..=pg_num);
                load.set_pg_num(pg_num, more);
            }
            8..=10 => {
                let less = rng.u32(1..=pg_num);
                load.c.on_mon(|m| m.merge_to(POOL, less));
            }
            5 => load.take_snap(),
            6 => {
                let osd = OsdId(rng.i32(0..osds));
                let weight = [0, 0x8000, 0x10000][rng.usize(0..3)];
                load.c.on_mon(|m| m.set_weight(osd, weight));
            }
            7 => {
                load.heal();
                load.remove_snap();
            }
            _ => {}
        }
        let requests = rng.u32(0..6);
        load.burst(requests);
        // Someone falls, in the middle of it.
        for osd in 0..osds as usize {
            match rng.u8(0..8) {
                0 => {
                    load.c.crash(osd);
                    load.c.off[osd] = true;
                }
                1 => {
                    load.c.crash(osd);
                    load.c.start(osd);
                }
                2 | 3 => load.c.start(osd),
                _ => {}
            }
        }
    }
    load.heal();
    load.read_everything();
    load.check_sums();
}

#[test]
fn nothing_is_lost_when_machines_crash_amid_splits_and_merges() {
    let number = |name, default| {
        std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(default)
    };
    let first = number("SPLIT_FIRST", 1);
    for seed in first..first + number("SPLIT_SEEDS", 12) {
        eprintln!("seed {seed}");
        chaos(seed);
    }
}

/// Hardly anything of what is counted is in memory: what was counted before something had to be read is not
/// counted again.
#[test]
fn counting_goes_on_where_something_had_to_be_read() {
    const OBJECTS: usize = 400;
    let mut c = Cluster::new(3, 1, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 1, 1, 1));
    c.wait_clean();
    for snaps in [&[][..], &[1]] {
        let seq = SnapId(snaps.first().copied().unwrap_or(0));
        for i in 0..OBJECTS {
            let snapc = SnapContext { seq, snaps: snaps.iter().map(|s| SnapId(*s)).collect() };
            let target = object(1, &format!("{i}{}", "x".repeat(1000)));
            c.on_client(|cl| cl.request_with(target, vec![write_full(b"x")], flags::WRITE, snapc));
        }
        c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    }
    let node = c.osds[0];
    c.world.stop(node);
    let is_up = |c: &Cluster| c.mon.borrow().map.is_up(OsdId(0));
    c.run_until(Duration::from_secs(60), |c| !is_up(c));
    c.run_until(Duration::from_secs(60), |c| is_up(c));
    c.wait_clean();
    take_hits();
    c.on_mon(|m| m.set_pg_num(1, 2, 2));
    c.run_until(Duration::from_secs(60), |c| {
        let mon = c.mon.borrow();
        let objects: i64 = mon.stats.values().map(|s| s.sums.objects).sum();
        let exact = mon.stats.len() == 2 && mon.stats.values().all(|s| !s.sums.approximate);
        exact && objects == 2 * OBJECTS as i64
    });
    let counted = hits_of(Probe::ObjectCounted);
    assert!(
        counted < 2 * OBJECTS as u64 + 100,
        "{counted} times one of {OBJECTS} objects and clones"
    );
}
