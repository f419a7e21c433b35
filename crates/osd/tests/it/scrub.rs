//! Scrub: what is damaged, missing, left over or different is found, listed, and repaired.

use crate::admin::tell;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use bytes::Bytes;
use pg::StateBits;
use pg::scrub::ScrubRecord;
use serde_json::json;
use std::time::Duration;
use types::{Errno, HObject, OsdId, PgId};
use wire::msg::op::OpCode;
use wire::msg::{OsdOp, ScrubLsOut, op_data};

const MINUTE: Duration = Duration::from_secs(60);
/// More than goes through the log, so that it is read from its place.
const BYTES: usize = 150_000;

/// Nothing is due before long.
fn never() -> Options {
    let often = ["osd_scrub_min_interval", "osd_scrub_max_interval", "osd_deep_scrub_interval"];
    let mut all: Options =
        often.iter().map(|name| ((*name).to_owned(), "4000000000".to_owned())).collect();
    all.insert("osd_scrub_interval_randomize_ratio".into(), "0".into());
    all
}

fn cluster(seed: u64, size: u8, options: &Options) -> Cluster {
    let mut c = Cluster::new(seed, 3, options);
    c.on_mon(|m| m.create_pool(1, "rbd", size, 1, 4));
    c.wait_clean();
    c
}

fn content(name: &str) -> Vec<u8> {
    let mut data = vec![name.len() as u8 ^ 0x5a; BYTES];
    for (i, block) in data.chunks_mut(4096).enumerate() {
        let head = begins(name, i);
        let len = head.len().min(block.len());
        block[..len].copy_from_slice(&head[..len]);
    }
    data
}

/// What block `i` of an object begins with, and no other.
fn begins(name: &str, i: usize) -> Vec<u8> {
    format!("block {i:06} of the object {name:>20}").into_bytes()
}

fn set_omap(key: &str, value: &str) -> OsdOp {
    let pair = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
    let values: std::collections::BTreeMap<Bytes, Bytes> = [pair].into();
    OsdOp::new(OpCode::OMAPSETVALS, wire::msg::OpArgs::default()).with_indata(denc::encode(&values))
}

fn put(c: &mut Cluster, name: &str) -> HObject {
    let target = object(1, name);
    let ops = vec![write_full(&content(name)), set_omap("key", "value")];
    assert_eq!(c.call(target.clone(), ops, true).result, 0);
    target
}

/// The primary first.
fn members(c: &Cluster, target: &HObject) -> Vec<i32> {
    let client = c.client.borrow();
    let acting = client.map.pg_to_up_acting(client.pg_of(target)).acting;
    acting.iter().map(|o| o.0).collect()
}

fn record(c: &Cluster, pgid: PgId) -> ScrubRecord {
    c.mon.borrow().stats.get(&pgid).map(|s| s.scrub).unwrap_or_default()
}

fn state(c: &Cluster, pgid: PgId) -> StateBits {
    StateBits(c.mon.borrow().stats.get(&pgid).map_or(0, |s| s.state))
}

/// Orders a scrub and waits for its end. An order is lost when another OSD becomes the primary, as with Ceph: then
/// it is given again.
#[track_caller]
pub fn scrub(c: &mut Cluster, pgid: PgId, deep: bool, repair: bool) -> ScrubRecord {
    let before = record(c, pgid).changes;
    let mut ordered = None;
    c.run_until(MINUTE, |c| {
        let primary = c.mon.borrow().map.pg_to_up_acting(pgid).acting_primary;
        if ordered != primary && c.on_mon(|m| m.order_scrub(pgid, deep, repair)) {
            ordered = primary;
        }
        record(c, pgid).changes > before && !state(c, pgid).has(StateBits::SCRUBBING)
    });
    record(c, pgid)
}

/// How many inconsistent objects the PG lists.
fn listed(c: &mut Cluster, pgid: PgId) -> Result<usize, i32> {
    let mut arg = denc::Encoder::new();
    arg.section(1, 1, |e| {
        e.put(&0u32).put(&0u32).put("").put("").put(&0u64).put(&100u64);
    });
    let op = OsdOp::new(OpCode(0x1507), wire::msg::OpArgs::default()).with_indata(arg.into_bytes());
    let reply = c.list(pgid, op);
    if reply.result < 0 {
        return Err(reply.result);
    }
    let out: ScrubLsOut = op_data::output(reply.ops.first()).expect("a list");
    Ok(out.values.len())
}

fn rot(c: &mut Cluster, osd: i32, name: &str, block: usize) {
    let node = c.osds[osd as usize];
    let hit = c.world.disk(node, 0).damage(&begins(name, block));
    assert!(!hit.is_empty(), "osd.{osd} has no such block");
}

#[track_caller]
fn inject(c: &mut Cluster, osd: i32, command: serde_json::Value) {
    let (result, outs, _) = tell(c, osd, &command);
    assert_eq!(result, 0, "{command}: {outs}");
    c.pass(Duration::from_millis(100));
}

/// What can be wrong with a copy, who sees it, and what it does to the copy on `osd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Rotten,
    Missing,
    Short,
    OtherOmap,
    LeftOver,
}

impl Wrong {
    fn is_deep(self) -> bool {
        matches!(self, Wrong::Rotten | Wrong::OtherOmap)
    }

    fn make(self, c: &mut Cluster, target: &HObject, osd: i32) {
        let name = target.name.to_string();
        let named = |prefix: &str| json!({"prefix": prefix, "pool": "rbd", "objname": name});
        match self {
            Wrong::Rotten => rot(c, osd, &name, 7),
            Wrong::Missing => inject(c, osd, named("rmobj")),
            Wrong::Short => {
                let mut command = named("truncobj");
                command["len"] = 5.into();
                inject(c, osd, command);
            }
            Wrong::OtherOmap | Wrong::LeftOver => {
                if self == Wrong::LeftOver {
                    let delete = OsdOp::new(OpCode::DELETE, wire::msg::OpArgs::default());
                    assert_eq!(c.call(target.clone(), vec![delete], true).result, 0);
                }
                let mut command = named("setomapval");
                command["key"] = "key".into();
                command["val"] = "other".into();
                inject(c, osd, command);
            }
        }
    }
}

#[test]
fn what_is_wrong_with_a_copy_is_found_listed_and_repaired() {
    use Wrong as W;
    for (seed, wrong) in
        [W::Rotten, W::Missing, W::Short, W::OtherOmap, W::LeftOver].into_iter().enumerate()
    {
        for who in 0..3 {
            let mut c = cluster(seed as u64, 3, &never());
            let target = put(&mut c, "precious");
            put(&mut c, "another");
            let pgid = c.client.borrow().pg_of(&target);
            let osd = members(&c, &target)[who];
            assert_eq!(listed(&mut c, pgid), Err(-Errno::ENOENT.0), "it was never scrubbed");
            assert_eq!(scrub(&mut c, pgid, true, false).errors(), 0);
            assert_eq!(listed(&mut c, pgid), Ok(0));

            wrong.make(&mut c, &target, osd);
            let light = scrub(&mut c, pgid, false, false);
            assert_eq!(light.errors(), u64::from(!wrong.is_deep()), "{wrong:?} on osd.{osd}");
            let deep = scrub(&mut c, pgid, true, false);
            assert_eq!(deep.errors(), 1, "{wrong:?} on osd.{osd}: {deep:?}");
            // Other bytes have another digest: that counts as deep, as in Ceph.
            let is_deep = wrong.is_deep() || wrong == W::Short;
            assert_eq!(deep.deep_errors, u64::from(is_deep), "{wrong:?}");
            assert!(state(&c, pgid).has(StateBits::INCONSISTENT));
            assert_eq!(listed(&mut c, pgid), Ok(1));
            assert_eq!(deep.objects_repaired, 0, "an operator's scrub only looks");

            let repaired = scrub(&mut c, pgid, true, true);
            assert_eq!((repaired.errors(), repaired.objects_repaired), (0, 1), "{wrong:?}");
            c.wait_clean();
            let after = scrub(&mut c, pgid, true, false);
            assert_eq!(after.errors(), 0, "{wrong:?} on osd.{osd}: {after:?}");
            assert_eq!(after.last_clean_scrub_stamp, after.last_deep_scrub_stamp);
            assert!(!state(&c, pgid).has(StateBits::INCONSISTENT));
            assert_eq!(listed(&mut c, pgid), Ok(0));
            let got = c.call(target.clone(), vec![read(0, 0)], false);
            if wrong == W::LeftOver {
                assert_eq!(got.result, -Errno::ENOENT.0);
            } else {
                assert!(output(&got, 0) == content("precious"));
            }
        }
    }
}

#[test]
fn a_scrub_that_was_due_repairs_what_is_certain() {
    for who in 0..3 {
        let mut options = never();
        options.insert("osd_deep_scrub_interval".into(), "20".into());
        let mut c = cluster(7, 3, &options);
        let target = put(&mut c, "precious");
        let pgid = c.client.borrow().pg_of(&target);
        let members = members(&c, &target);
        rot(&mut c, members[who], "precious", 3);
        c.run_until(2 * MINUTE, |c| record(c, pgid).objects_repaired == 1);
        let before = record(&c, pgid).changes;
        c.run_until(2 * MINUTE, |c| record(c, pgid).changes > before);
        assert_eq!(record(&c, pgid).errors(), 0);
        // The repaired copy serves by itself.
        for other in members.iter().filter(|o| **o != members[who]) {
            rot(&mut c, *other, "precious", 3);
        }
        let got = c.call(target, vec![read(0, 0)], false);
        assert!(output(&got, 0) == content("precious"));
    }
}

#[test]
fn of_two_copies_that_differ_only_an_operator_can_choose() {
    let mut options = never();
    options.insert("osd_deep_scrub_interval".into(), "10".into());
    let mut c = cluster(3, 2, &options);
    let target = put(&mut c, "precious");
    let pgid = c.client.borrow().pg_of(&target);
    let members = members(&c, &target);
    Wrong::OtherOmap.make(&mut c, &target, members[1]);
    c.run_until(2 * MINUTE, |c| record(c, pgid).errors() == 1);
    let before = record(&c, pgid).changes;
    c.run_until(2 * MINUTE, |c| record(c, pgid).changes > before + 1);
    assert_eq!((record(&c, pgid).errors(), record(&c, pgid).objects_repaired), (1, 0));
    assert_eq!(scrub(&mut c, pgid, true, true).errors(), 0);
    c.wait_clean();
    assert_eq!(scrub(&mut c, pgid, true, false).errors(), 0);
}

#[test]
fn a_scrub_begins_anew_when_its_interval_ends() {
    for seed in 0..6 {
        let mut options = never();
        options.insert("osd_scrub_chunk_max".into(), "1".into());
        options.insert("osd_scrub_chunk_min".into(), "1".into());
        options.insert("osd_scrub_sleep".into(), "0.2".into());
        let mut c = cluster(seed, 3, &options);
        let target = put(&mut c, "precious");
        for i in 0..40 {
            put(&mut c, &format!("o{i}"));
        }
        let pgid = c.client.borrow().pg_of(&target);
        let members = members(&c, &target);
        assert!(c.on_mon(|m| m.order_scrub(pgid, true, false)));
        c.run_until(MINUTE, |c| state(c, pgid).has(StateBits::SCRUBBING));
        c.pass(Duration::from_millis(100 * seed));
        let gone = members[1 + seed as usize % 2] as usize;
        c.off[gone] = true;
        c.crash(gone);
        c.run_until(MINUTE, |c| !state(c, pgid).has(StateBits::SCRUBBING));
        assert_eq!(record(&c, pgid).changes, 0, "it did not come to its end");
        // Writes go on, though the chunk at hand was never compared.
        put(&mut c, "precious");
        c.start(gone);
        c.run_until(2 * MINUTE, |c| record(c, pgid).changes == 1);
        assert_eq!(record(&c, pgid).errors(), 0);
    }
}

#[test]
fn clients_write_while_everything_is_compared() {
    for seed in 0..4 {
        let mut options = never();
        options.insert("osd_scrub_chunk_max".into(), "8".into());
        let mut c = cluster(seed, 3, &options);
        for i in 0..24 {
            put(&mut c, &format!("o{i}"));
        }
        for pg in 0..4 {
            assert!(c.on_mon(|m| m.order_scrub(PgId::new(types::PoolId(1), pg), true, false)));
        }
        let mut round = 0;
        let all =
            |c: &Cluster| (0..4).all(|pg| record(c, PgId::new(types::PoolId(1), pg)).changes == 1);
        while !all(&c) {
            round += 1;
            assert!(round < 500, "scrubs never come to their ends");
            let tids: Vec<_> = (0..24)
                .map(|i| {
                    let data = [round as u8; 3000];
                    let target = object(1, &format!("o{i}"));
                    c.on_client(|cl| cl.request(target, vec![write_full(&data)], true))
                })
                .collect();
            let begun = c.world.now();
            tids.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
            let took = c.world.now() - begun;
            assert!(took < Duration::from_secs(1), "writes waited for {took:?}");
        }
        for pg in 0..4 {
            assert_eq!(record(&c, PgId::new(types::PoolId(1), pg)).errors(), 0);
        }
    }
}

#[test]
fn flags_stop_what_is_due_and_nothing_else() {
    let mut options = never();
    options.insert("osd_deep_scrub_interval".into(), "5".into());
    let mut c = Cluster::new(4, 3, &options);
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NODEEP_SCRUB));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.wait_clean();
    let pgid = PgId::new(types::PoolId(1), 0);
    c.pass(Duration::from_secs(60));
    assert_eq!(record(&c, pgid).changes, 0);
    assert_eq!(scrub(&mut c, pgid, true, false).changes, 1, "an operator may");
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NONE));
    c.run_until(MINUTE, |c| record(c, pgid).changes > 1);
}

/// A scrub began to repair a copy, and its primary died before it was done: whoever leads next knows of it.
#[test]
fn a_repair_that_was_broken_off_is_not_forgotten() {
    let mut c = cluster(12, 3, &never());
    let target = put(&mut c, "precious");
    let pgid = c.client.borrow().pg_of(&target);
    let members = members(&c, &target);
    Wrong::Rotten.make(&mut c, &target, members[1]);
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NORECOVER));
    c.pass(Duration::from_secs(1));
    assert_eq!(scrub(&mut c, pgid, true, true).objects_repaired, 1);
    assert!(!state(&c, pgid).has(StateBits::CLEAN), "it has only begun");
    c.crash(members[0] as usize);
    c.start(members[0] as usize);
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NONE));
    c.pass(Duration::from_secs(5));
    c.wait_clean();
    assert_eq!(scrub(&mut c, pgid, true, false).errors(), 0);
}

/// The mon has a new map, by which another OSD leads, and orders a scrub of it before it has the map.
/// Each asks the others to take part, and nobody takes part in two at once.
#[test]
fn primaries_that_begin_at_once_do_not_refuse_each_other_for_ever() {
    let mut c = Cluster::new(1, 3, &never());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 32));
    c.wait_clean();
    // They all hang for a while: what goes by the clock is done at the same moment by all, from then on.
    for paused in [true, false] {
        c.osds.iter().for_each(|osd| c.world.set_paused(*osd, paused));
        c.pass(Duration::from_secs(1));
    }
    // Two PGs of different OSDs; by their numbers their pauses are about as long.
    let all: Vec<PgId> = c.mon.borrow().stats.keys().copied().collect();
    let primary = |p: &PgId| c.mon.borrow().stats[p].acting_primary;
    let pairs = all.iter().zip(&all[16..]);
    let mut pairs = pairs.filter(|(a, b)| primary(a) != primary(b));
    let pgs = pairs.next().map(|(a, b)| [*a, *b]).expect("there are such");
    let before: Vec<_> = pgs.iter().map(|p| record(&c, *p).changes).collect();
    assert!(c.on_mon(|m| pgs.iter().all(|p| m.order_scrub(*p, false, false))));
    c.run_until(Duration::from_secs(2), |c| {
        pgs.iter().zip(&before).all(|(p, n)| record(c, *p).changes > *n)
    });
}

#[test]
fn an_order_waits_for_its_map() {
    let mut c = cluster(9, 3, &never());
    let target = put(&mut c, "precious");
    let pgid = c.client.borrow().pg_of(&target);
    let members = members(&c, &target);
    c.on_mon(|m| {
        m.order_scrub_early(pgid, OsdId(members[1]));
        m.set_affinity(OsdId(members[0]), 0);
    });
    c.run_until(MINUTE, |c| record(c, pgid).changes == 1);
    assert_eq!(c.mon.borrow().stats[&pgid].acting_primary, members[1]);
}

const OLD_POOL: &str = "a-pool-that-only-old-maps-name";

/// Behind the head of the store and its log.
fn is_old_map(at: u64, block: &[u8]) -> bool {
    at > 5 << 20 && block.windows(OLD_POOL.len()).any(|w| w == OLD_POOL.as_bytes())
}

/// Nobody would read old maps, and they are in no PG.
#[test]
fn rotten_records_of_the_osd_itself_are_found() {
    let mut c = cluster(11, 3, &never());
    c.on_mon(|m| m.create_pool(9, OLD_POOL, 3, 1, 1));
    c.wait_clean();
    c.on_mon(|m| m.delete_pool(9));
    for i in 0..160 {
        let flags = [maps::OsdMapFlags::NONE, maps::OsdMapFlags::NOOUT][i % 2];
        c.on_mon(|m| m.set_flags(flags));
        c.pass(Duration::from_millis(100));
    }
    c.wait_clean();
    let pgid = PgId::new(types::PoolId(1), 0);
    let osd = OsdId(c.mon.borrow().stats[&pgid].acting_primary);
    let damage = |c: &Cluster| c.mon.borrow().reports[&osd].own_damage.clone();
    scrub(&mut c, pgid, true, false);
    c.pass(Duration::from_secs(2));
    assert_eq!(damage(&c), "");
    let node = c.osds[osd.0 as usize];
    let rotten = c.world.disk(node, 0).rot(is_old_map, 0, &mut io::Rng::with_seed(1));
    assert!(rotten.is_some(), "the maps are somewhere");
    c.crash(osd.0 as usize);
    c.start(osd.0 as usize);
    c.pass(Duration::from_secs(2));
    c.wait_clean();
    scrub(&mut c, pgid, true, false);
    c.run_until(MINUTE, |c| damage(c).contains("checksum"));
}

/// What is known of scrubs outlives everybody who made them.
#[test]
fn the_record_is_kept() {
    let mut c = cluster(5, 3, &never());
    let target = put(&mut c, "precious");
    let pgid = c.client.borrow().pg_of(&target);
    let members = members(&c, &target);
    Wrong::Missing.make(&mut c, &target, members[2]);
    let found = scrub(&mut c, pgid, true, false);
    assert_eq!(found.errors(), 1);
    c.pass(Duration::from_secs(1));
    c.off[members[0] as usize] = true;
    c.crash(members[0] as usize);
    c.run_until(MINUTE, |c| {
        let stats = &c.mon.borrow().stats;
        stats.get(&pgid).is_some_and(|s| s.acting_primary != members[0] && s.scrub == found)
    });
    for osd in 0..3 {
        c.crash(osd);
    }
    for osd in 0..3 {
        c.start(osd);
    }
    c.wait_clean();
    assert_eq!(record(&c, pgid), found);
    assert!(state(&c, pgid).has(StateBits::INCONSISTENT));
    assert_eq!(c.client.borrow().primary_of(&target), OsdId(members[0]));
}

/// A pool is deleted while it recovers: that does not keep the other PGs from being scrubbed.
#[test]
fn a_pool_that_is_gone_is_not_recovered_for_ever() {
    let mut options = never();
    options.insert("osd_deep_scrub_interval".into(), "5".into());
    let mut c = cluster(13, 3, &options);
    c.on_mon(|m| m.create_pool(2, "gone", 3, 1, 4));
    c.wait_clean();
    c.off[2] = true;
    c.crash(2);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(2)));
    for i in 0..20 {
        let target = object(2, &format!("o{i}"));
        assert_eq!(c.call(target, vec![write_full(b"new")], true).result, 0);
    }
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NORECOVER));
    c.start(2);
    let pgs = |pool| (0..4).map(move |seed| PgId::new(types::PoolId(pool), seed));
    let waits = |c: &Cluster, pgid| {
        let (state, stats) = (state(c, pgid), &c.mon.borrow().stats);
        state.has(StateBits::DEGRADED) && stats[&pgid].acting.len() == 3
    };
    c.run_until(MINUTE, |c| pgs(2).all(|pgid| waits(c, pgid)));
    c.on_mon(|m| m.delete_pool(2));
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NONE));
    c.pass(Duration::from_secs(2));
    let before: Vec<_> = pgs(1).map(|pgid| record(&c, pgid).changes).collect();
    c.run_until(MINUTE, |c| pgs(1).zip(&before).all(|(p, n)| record(c, p).changes > *n));
}

/// A member's disk takes very long for its part of a chunk: the scrub goes on when it is done, and so do the
/// writes that wait for it.
#[test]
fn a_slow_member_of_a_scrub_is_waited_for() {
    let mut c = cluster(14, 3, &never());
    let target = put(&mut c, "precious");
    let pgid = c.client.borrow().pg_of(&target);
    let replica = c.osds[members(&c, &target)[1] as usize];
    c.pass(Duration::from_secs(5));
    c.world.set_slow_disks(replica, 8_000_000);
    assert!(c.on_mon(|m| m.order_scrub(pgid, true, false)));
    c.pass(Duration::from_secs(1));
    c.world.set_slow_disks(replica, 1);
    let scrubs = |c: &Cluster| state(c, pgid).has(StateBits::SCRUBBING);
    assert!(scrubs(&c));
    c.pass(Duration::from_secs(610));
    assert!(scrubs(&c), "the disk was not slow enough");
    c.run_until(Duration::from_secs(1200), |c| !scrubs(c));
    assert_eq!(record(&c, pgid).changes, 1);
    assert_eq!(c.call(target, vec![write_full(b"later")], true).result, 0);
}

/// What a scrub repairs does not come, and nobody knows when it will: others are scrubbed meanwhile, and it begins
/// anew when it can.
#[test]
fn a_scrub_of_a_pg_that_does_not_recover_gives_its_places_back() {
    let mut options = never();
    options.insert("osd_scrub_chunk_max".into(), "1".into());
    let mut c = cluster(15, 3, &options);
    let targets: Vec<HObject> = (0..12).map(|i| put(&mut c, &format!("o{i}"))).collect();
    let pg_of = |c: &Cluster, target: &HObject| c.client.borrow().pg_of(target);
    let pgid = pg_of(&c, &targets[0]);
    let other = targets.iter().map(|t| pg_of(&c, t)).find(|p| *p != pgid).expect("another PG");
    let replica = members(&c, &targets[0])[1];
    let inside: Vec<_> = targets.iter().filter(|t| pg_of(&c, t) == pgid).collect();
    assert!(inside.len() > 1);
    inside.iter().for_each(|t| Wrong::Missing.make(&mut c, t, replica));
    let scrubs = |c: &Cluster| state(c, pgid).has(StateBits::SCRUBBING);
    let done = |c: &Cluster, pgid| record(c, pgid).changes;
    let before = [pgid, other].map(|p| done(&c, p));
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NORECOVER));
    c.pass(Duration::from_secs(1));
    assert!(c.on_mon(|m| m.order_scrub(pgid, true, true)));
    c.pass(Duration::from_secs(10));
    assert!(scrubs(&c) && !state(&c, pgid).has(StateBits::CLEAN), "one object is to come");
    assert!(c.on_mon(|m| m.order_scrub(other, false, false)));
    c.pass(Duration::from_secs(60));
    assert!(scrubs(&c) && done(&c, other) == before[1]);
    c.pass(Duration::from_secs(300));
    assert!(!scrubs(&c) && done(&c, other) > before[1] && done(&c, pgid) == before[0]);
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NONE));
    c.run_until(2 * MINUTE, |c| done(c, pgid) > before[0] && !scrubs(c));
    c.wait_clean();
    assert_eq!(scrub(&mut c, pgid, true, false).errors(), 0);
}
