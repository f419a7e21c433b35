//! Requests against a healthy cluster, and one that is switched off.

use crate::client::object;
use crate::cluster::{Cluster, output};
use std::time::Duration;
use types::{Errno, HObject, OsdId, PgId, PoolId, SnapId};
use wire::msg::op::{Extent, OpCode, Pgls};
use wire::msg::op_data::{ListedObject, OmapGetValsIn, OmapGetValsOut, PgnlsOut, Values};
use wire::msg::{OsdOp, SnapContext};

pub fn write_full(data: &[u8]) -> OsdOp {
    let args = Extent { length: data.len() as u64, ..Extent::default() };
    OsdOp::new(OpCode::WRITEFULL, args).with_indata(data.to_vec())
}

pub fn read(offset: u64, length: u64) -> OsdOp {
    OsdOp::new(OpCode::READ, Extent { offset, length, ..Extent::default() })
}

fn stat() -> OsdOp {
    OsdOp::new(OpCode::STAT, Extent::default())
}

pub fn with_pool(seed: u64, osds: i32, size: u8) -> Cluster {
    let mut c = Cluster::new(seed, osds, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", size, 1.max(size - 1), 8));
    c.wait_clean();
    c
}

#[test]
fn requests_wait_for_a_pg_that_is_about_to_be_made() {
    for seed in 0..20 {
        let mut c = Cluster::new(seed, 3, &Default::default());
        c.run_until(Duration::from_secs(10), |c| {
            let map = &c.client.borrow().map;
            (0..3).all(|osd| map.is_up(OsdId(osd)))
        });
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
        // Sent as soon as the client knows of the pool: the OSD may not have the PG yet.
        c.run_until(Duration::from_secs(10), |c| c.client.borrow().map.pool(PoolId(1)).is_some());
        for i in 0..8 {
            let target = object(1, &format!("o{i}"));
            assert_eq!(c.call(target, vec![stat()], false).result, -Errno::ENOENT.0, "seed {seed}");
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(c.call(object(1, "a"), vec![stat()], false).result, -Errno::ENOENT.0);
    let data: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    let reply = c.call(object(1, "a"), vec![write_full(&data)], true);
    assert_eq!(reply.result, 0);
    assert!(reply.user_version > 0);
    let got = c.call(object(1, "a"), vec![read(0, 0), stat()], false);
    assert_eq!(got.result, 0);
    assert_eq!(output(&got, 0), data);
    let got = c.call(object(1, "a"), vec![read(99_990, 4096)], false);
    assert_eq!(output(&got, 0), data[99_990..]);
}

#[test]
fn everything_survives_a_power_cut() {
    let mut c = with_pool(2, 3, 3);
    let names: Vec<_> = (0..40).map(|i| format!("object{i}")).collect();
    let data = |i: usize| vec![i as u8 + 1; 1000 * (i + 1)];
    for (i, name) in names.iter().enumerate() {
        assert_eq!(c.call(object(1, name), vec![write_full(&data(i))], true).result, 0);
    }
    (0..3).for_each(|i| c.crash(i));
    (0..3).for_each(|i| c.start(i));
    for (i, name) in names.iter().enumerate() {
        let got = c.call(object(1, name), vec![read(0, 0)], false);
        assert_eq!(got.result, 0, "{name}");
        assert_eq!(output(&got, 0), data(i), "{name}");
    }
    c.wait_clean();
}

/// All objects of a pool, as `rados ls` finds them.
pub fn list(c: &mut Cluster, pool: i64, pg_num: u32) -> Vec<String> {
    list_by(c, pool, pg_num, OsdOp::new(OpCode::PGNLS, Pgls { count: 3, start_epoch: 0 }))
}

fn list_by(c: &mut Cluster, pool: i64, pg_num: u32, page: OsdOp) -> Vec<String> {
    let mut names = Vec::new();
    for seed in 0..pg_num {
        let mut cursor = HObject::min();
        loop {
            let op = page.clone().with_indata(denc::encode(&cursor));
            let reply = c.list(PgId { pool: PoolId(pool), seed }, op);
            assert!(reply.result >= 0, "{}", reply.result);
            let out: PgnlsOut = denc::decode(&output(&reply, 0)).expect("a listing");
            let name = |e: &ListedObject| String::from_utf8_lossy(&e.name).into_owned();
            names.extend(out.entries.iter().map(name));
            cursor = out.handle;
            if reply.result == 1 {
                break;
            }
        }
    }
    names.sort();
    names
}

/// More than are looked at for one request: some request ends at a clone whose head comes next.
#[test]
fn a_listing_has_all_objects_that_have_clones() {
    let mut c = Cluster::new(1, 1, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 1, 1, 1));
    c.wait_clean();
    let names: Vec<_> = (0..700).map(|i| format!("object{i:03}")).collect();
    for newest in 0..=2 {
        let snaps: Vec<_> = (1..=newest).rev().map(SnapId).collect();
        let snapc = SnapContext { seq: SnapId(newest), snaps: snaps.into() };
        for name in &names {
            let ops = vec![write_full(b"data")];
            assert_eq!(c.write_under(object(1, name), ops, snapc.clone(), 0).result, 0);
        }
    }
    let page = OsdOp::new(OpCode::PGNLS, Pgls { count: 1024, start_epoch: 0 });
    assert_eq!(list_by(&mut c, 1, 1, page), names);
}

/// The new primary was away when they were written; what it has of others is older.
#[test]
fn a_listing_has_what_is_not_recovered_yet() {
    let mut c = with_pool(4, 3, 3);
    let names: Vec<_> = (0..60).map(|i| format!("object{i:02}")).collect();
    let write = |c: &mut Cluster, name: &String| {
        assert_eq!(c.call(object(1, name), vec![write_full(b"x")], true).result, 0);
    };
    names.iter().step_by(3).for_each(|name| write(&mut c, name));
    c.off[0] = true;
    c.crash(0);
    c.run_until(Duration::from_secs(10), |c| c.mon.borrow().map.is_down(OsdId(0)));
    names.iter().for_each(|name| write(&mut c, name));
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NORECOVER));
    c.start(0);
    c.run_until(Duration::from_secs(20), |c| {
        let mon = c.mon.borrow();
        let leads = |s: &peer::PgStat| s.acting.len() == 3 && s.acting_primary == 0;
        let degraded = mon.stats.values().filter(|s| leads(s) && s.degraded > 0).count();
        degraded > 0 && mon.stats.values().all(|s| s.acting.len() == 3)
    });
    assert_eq!(list(&mut c, 1, 8), names);
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::default()));
    c.wait_clean();
    assert_eq!(list(&mut c, 1, 8), names);
}

#[test]
fn a_listing_ends_with_its_pool() {
    let mut c = with_pool(3, 1, 1);
    c.on_mon(|m| m.create_pool(2, "other", 1, 1, 2));
    c.wait_clean();
    for i in 0..20 {
        c.call(object(1, &format!("mine{i:02}")), vec![write_full(b"1")], true);
        c.call(object(2, &format!("theirs{i:02}")), vec![write_full(b"2")], true);
    }
    let mine: Vec<_> = (0..20).map(|i| format!("mine{i:02}")).collect();
    assert_eq!(list(&mut c, 1, 8), mine);
    let theirs: Vec<_> = (0..20).map(|i| format!("theirs{i:02}")).collect();
    assert_eq!(list(&mut c, 2, 2), theirs);
}

#[test]
fn a_deleted_pool_leaves_nothing() {
    let mut c = with_pool(4, 3, 3);
    c.on_mon(|m| m.create_pool(2, "other", 3, 2, 4));
    c.wait_clean();
    for i in 0..100 {
        c.call(object(2, &format!("o{i}")), vec![write_full(&[3; 5000])], true);
    }
    c.call(object(1, "stays"), vec![write_full(b"here")], true);
    c.on_mon(|m| m.delete_pool(2));
    c.run_until(Duration::from_secs(30), |c| {
        let mon = c.mon.borrow();
        let gone = |osd: i32| {
            let report = mon.reports.get(&OsdId(osd));
            report.is_some_and(|r| r.pgs_held == 8 && r.space.data < 100_000)
        };
        (0..3).all(gone)
    });
    let got = c.call(object(1, "stays"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), &b"here"[..]);
}

/// A write that waits while its client is blocklisted never lands.
#[test]
fn a_waiting_write_of_a_blocklisted_client_is_refused() {
    let mut c = with_pool(8, 3, 3);
    c.call(object(1, "a"), vec![write_full(b"old")], true);
    let leader = c.client.borrow().primary_of(&object(1, "a"));
    // The first write waits for a replica that does not answer, the second one reads and so waits
    // for the first.
    let other = (leader.0 + 1) % 3;
    let (a, b) = (c.osds[leader.0 as usize], c.osds[other as usize]);
    c.on_mon(|m| m.notices_deaths = false);
    c.world.set_cut(a, b, true);
    let first = c.on_client(|c| c.request(object(1, "a"), vec![write_full(b"first")], true));
    let late = vec![stat(), write_full(b"late")];
    let second = c.on_client(|c| c.request(object(1, "a"), late, true));
    c.pass(Duration::from_millis(500));
    let host = sim::World::ip(c.client_node);
    let epoch = c.mon.borrow().map.epoch;
    c.on_mon(|m| m.blocklist(host));
    c.run_until(Duration::from_secs(10), |c| c.client.borrow().map.epoch > epoch);
    c.pass(Duration::from_millis(500));
    c.world.set_cut(a, b, false);
    assert_eq!(c.wait_for(first).result, 0, "it was under way already");
    assert_eq!(c.wait_for(second).result, -Errno::EBLOCKLISTED.0);
}

/// Where CRUSH finds two OSDs for three copies, the third one goes on serving: clean and remapped.
#[test]
fn an_osd_that_is_out_without_a_substitute_keeps_its_copies() {
    let mut c = with_pool(9, 3, 3);
    c.call(object(1, "a"), vec![write_full(b"here")], true);
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    c.run_until(Duration::from_secs(60), |c| {
        let mon = c.mon.borrow();
        let settled = |s: &peer::PgStat| {
            let state = pg::StateBits(s.state);
            s.up.len() == 2
                && s.acting.len() == 3
                && state.has(pg::StateBits::CLEAN)
                && state.has(pg::StateBits::REMAPPED)
        };
        mon.stats.len() == 8 && mon.stats.values().all(settled)
    });
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), &b"here"[..]);
    c.on_mon(|m| m.set_weight(OsdId(0), 0x10000));
    c.wait_clean();
}

/// Whoever lists an omap from its beginning does not see the empty key, as with Ceph.
#[test]
fn a_listing_of_an_omap_begins_after_the_empty_key() {
    let mut c = with_pool(10, 1, 1);
    let values = Values::from([("".into(), "0".into()), ("a".into(), "1".into())]);
    let set = OsdOp::new(OpCode::OMAPSETVALS, Extent::default()).with_indata(denc::encode(&values));
    assert_eq!(c.call(object(1, "o"), vec![set], true).result, 0);
    let input = OmapGetValsIn { max: 10, ..OmapGetValsIn::default() };
    let list = OsdOp::new(OpCode::OMAPGETVALS, Extent::default()).with_indata(denc::encode(&input));
    let reply = c.call(object(1, "o"), vec![list], false);
    let listed: OmapGetValsOut = denc::decode(&output(&reply, 0)).expect("values");
    assert_eq!(listed.values, Values::from([("a".into(), "1".into())]));
}
