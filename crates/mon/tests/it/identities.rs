//! OSDs that come back as somebody else, or as less than they were.

use crate::cluster::{Cluster, FSID, mon_addr};
use serde_json::Value;
use sim::{NodeId, SimOsd};
use std::time::Duration;
use types::{AddrVec, OsdId};

const PGS: u64 = 32;

fn up(c: &mut Cluster) -> u64 {
    c.json("status")["osdmap"]["num_up_osds"].as_u64().unwrap_or(0)
}

fn up_from(c: &mut Cluster, osd: usize) -> Value {
    c.json("osd dump")["osds"][osd]["up_from"].clone()
}

fn begun(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    c.create_pool("one");
    c.wait_clean(PGS);
    c
}

/// What `ceph health detail` says of a check.
fn told(c: &mut Cluster, code: &str) -> String {
    let ack = c.ask(r#"{"prefix":"health","detail":"detail","format":"json"}"#);
    let all: Value = serde_json::from_slice(&ack.data).expect("JSON");
    let detail = all["checks"][code]["detail"].as_array().cloned().unwrap_or_default();
    let lines = detail.iter().filter_map(|d| d["message"].as_str());
    lines.collect::<Vec<_>>().join("\n")
}

/// An image of yesterday instead of the disk: it would tell of a PG's past as if nothing had been
/// written since.
#[test]
fn a_store_that_was_rolled_back_stays_out_until_it_is_taken_as_it_is() {
    let mut c = begun(31);
    let (seed, node) = (c.osds[1], 0);
    let image = c.world.disk(seed, node).clone();
    c.create_pool("two");
    c.wait_clean(2 * PGS);
    c.pass(Duration::from_secs(10));
    c.crash_osd(1);
    c.run_until(Duration::from_secs(2), |c| up(c) == 2);
    // The mon remembers it over its own restarts.
    c.world.crash(c.mon);
    c.world.start(c.mon);
    let newest = std::mem::replace(c.world.disk(c.osds[1], 0), image.clone());
    c.start_osd(1);
    c.run_until(Duration::from_secs(30), |c| told(c, "OSD_REFUSED").contains("an older image"));
    c.pass(Duration::from_secs(20));
    assert_eq!(up(&mut c), 2);

    // With the right disk it comes back.
    c.crash_osd(1);
    *c.world.disk(c.osds[1], 0) = newest;
    c.start_osd(1);
    c.wait_clean(2 * PGS);
    c.run_until(Duration::from_secs(30), |c| told(c, "OSD_REFUSED").is_empty());

    // And with the old one when the operator says so.
    c.crash_osd(1);
    *c.world.disk(c.osds[1], 0) = image;
    c.start_osd(1);
    c.run_until(Duration::from_secs(30), |c| told(c, "OSD_REFUSED").contains("osd lost 1"));
    let ack = c.ask(r#"{"prefix":"osd lost","id":"1","yes_i_really_mean_it":true}"#);
    assert_eq!(ack.result, 0, "{}", ack.outs);
    c.wait_clean(2 * PGS);
    assert_eq!(up(&mut c), 3);
}

#[test]
fn a_copied_disk_is_refused_and_does_not_disturb_the_first() {
    let mut c = begun(32);
    let since = up_from(&mut c, 1);
    // A store with the same number and identity, and less in it.
    let copy = c.world.add_osd(SimOsd {
        id: OsdId(1),
        cluster: FSID,
        mons: vec![AddrVec::msgr2(mon_addr(), 0)],
        disk_bytes: 64 << 20,
        options: Default::default(),
    });
    c.world.start(copy);
    c.run_until(Duration::from_secs(10), |c| told(c, "OSD_REFUSED").contains("runs already"));
    c.pass(Duration::from_secs(10));
    assert_eq!((up(&mut c), up_from(&mut c, 1)), (3, since.clone()));
    // Nor is it taken for it when the first one is gone.
    c.crash_osd(1);
    c.run_until(Duration::from_secs(10), |c| told(c, "OSD_REFUSED").contains("a copy"));
    c.pass(Duration::from_secs(5));
    assert_eq!(up(&mut c), 2);
    c.start_osd(1);
    c.wait_clean(PGS);
    assert_eq!(up(&mut c), 3);
    let since = up_from(&mut c, 1);
    c.world.crash(copy);
    c.run_until(Duration::from_secs(30), |c| told(c, "OSD_REFUSED").is_empty());
    assert_eq!((up(&mut c), up_from(&mut c, 1)), (3, since));
}

/// Starts another process as this OSD, with a copy of its disk.
fn successor(c: &mut Cluster, osd: usize) -> NodeId {
    let (mon, node) = (c.mon, c.osds[osd]);
    let successor = c.world.add_osd(SimOsd {
        id: OsdId(osd as i32),
        cluster: FSID,
        mons: vec![AddrVec::msgr2(mon_addr(), 0)],
        disk_bytes: 64 << 20,
        options: Default::default(),
    });
    let image = c.world.disk(node, 0).clone();
    // It makes a store when it starts for the first time.
    c.world.set_cut(mon, successor, true);
    c.world.start(successor);
    c.pass(Duration::from_millis(100));
    c.world.crash(successor);
    *c.world.disk(successor, 0) = image;
    c.world.set_cut(mon, successor, false);
    c.world.start(successor);
    successor
}

/// A mon that starts again does not forget what is gone.
#[test]
fn a_destroyed_osd_that_starts_with_its_old_disk_is_refused() {
    let mut c = begun(37);
    c.crash_osd(1);
    c.run_until(Duration::from_secs(2), |c| up(c) == 2);
    let destroy = r#"{"prefix":"osd destroy","id":1,"yes_i_really_mean_it":true}"#;
    let ack = c.ask(destroy);
    assert_eq!(ack.result, 0, "{}", ack.outs);
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.start_osd(1);
    c.run_until(Duration::from_secs(30), |c| told(c, "OSD_REFUSED").contains("was destroyed"));
    c.pass(Duration::from_secs(10));
    assert_eq!(up(&mut c), 2);
    let why = told(&mut c, "OSD_REFUSED");
    let words = why.split("'ceph osd new ").nth(1).expect("what to do");
    let uuid = words.split(' ').next().expect("a uuid");
    let ack = c.ask(&format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":1}}"#));
    assert_eq!(ack.result, 0, "{}", ack.outs);
    c.wait_clean(PGS);
    assert_eq!(up(&mut c), 3);
}

/// Its machine came back before anybody noticed that it had gone.
#[test]
fn an_osd_whose_old_session_hangs_is_taken_in_again() {
    let mut c = begun(33);
    let since = up_from(&mut c, 2);
    // A process that hangs cannot say that it lives.
    let (mon, node) = (c.mon, c.osds[2]);
    c.world.set_silent(node, mon, true);
    successor(&mut c, 2);
    c.off[2] = true;
    c.run_until(Duration::from_secs(15), |c| up_from(c, 2) != since && up(c) == 3);
}

/// It died while it was asked whether it lives: the question ends with it, and a copy that comes later is
/// asked about anew.
#[test]
fn a_question_ends_with_the_one_that_was_asked() {
    let mut c = begun(36);
    let since = up_from(&mut c, 2);
    let (mon, node) = (c.mon, c.osds[2]);
    c.world.set_silent(node, mon, true);
    let new = successor(&mut c, 2);
    c.pass(Duration::from_millis(1500));
    assert_eq!(up_from(&mut c, 2), since);
    c.world.set_silent(node, mon, false);
    c.world.crash(node);
    c.run_until(Duration::from_secs(15), |c| up_from(c, 2) != since && up(c) == 3);
    c.pass(Duration::from_secs(5));
    let since = up_from(&mut c, 2);
    c.osds[2] = new;
    successor(&mut c, 2);
    c.run_until(Duration::from_secs(10), |c| told(c, "OSD_REFUSED").contains("runs already"));
    assert_eq!((up(&mut c), up_from(&mut c, 2)), (3, since));
}

#[test]
fn a_clock_that_is_off_is_told() {
    let mut c = begun(34);
    c.crash_osd(0);
    let node = c.osds[0];
    c.world.set_skew(node, Duration::from_secs(24 * 3600));
    c.start_osd(0);
    c.wait_clean(PGS);
    c.run_until(Duration::from_secs(15), |c| {
        told(c, "OSD_CLOCK_SKEW").contains("its clock is 1d ahead of the mon's")
    });
}

/// It was away for so long that the maps of that time are gone.
#[test]
fn an_osd_older_than_the_history_comes_back() {
    let mut c = Cluster::with(35, 4, None, &[("mon_min_osdmap_epochs", "10")]);
    c.run_until(Duration::from_secs(3), |c| up(c) == 4);
    c.create_pool("one");
    c.wait_clean(PGS);
    c.crash_osd(3);
    let ack = c.ask(r#"{"prefix":"osd out","ids":["3"]}"#);
    assert_eq!(ack.result, 0, "{}", ack.outs);
    c.wait_clean(PGS);
    let last = c.json("osd dump")["epoch"].as_u64().unwrap_or(0);
    let first = |c: &mut Cluster| c.json("report")["osdmap_first_committed"].as_u64().unwrap_or(0);
    let end = c.world.now() + Duration::from_secs(60);
    while first(&mut c) <= last {
        assert!(c.world.now() < end, "no map goes");
        c.pass(Duration::from_millis(500));
        for prefix in ["osd set", "osd unset"] {
            c.ask(&format!(r#"{{"prefix":"{prefix}","key":"noscrub"}}"#));
        }
    }
    c.start_osd(3);
    c.run_until(Duration::from_secs(10), |c| up(c) == 4);
    let ack = c.ask(r#"{"prefix":"osd in","ids":["3"]}"#);
    assert_eq!(ack.result, 0, "{}", ack.outs);
    c.pass(Duration::from_secs(2));
    c.wait_clean(PGS);
    let held = c.json("osd df")["nodes"][3]["pgs"].as_u64().unwrap_or(0);
    assert!(held > 0, "it has PGs again");
}
