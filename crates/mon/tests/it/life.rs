//! A cluster from its birth over crashes to clean again.

use crate::cluster::Cluster;
use std::time::Duration;

const PGS: u64 = 32;

/// Since which epochs OSDs are up.
fn up_from(c: &mut Cluster) -> Vec<serde_json::Value> {
    let dump = c.json("osd dump");
    let osds = dump["osds"].as_array().expect("a list").clone();
    osds.into_iter().map(|osd| osd["up_from"].clone()).collect()
}

fn up(c: &mut Cluster) -> u64 {
    c.json("status")["osdmap"]["num_up_osds"].as_u64().unwrap_or(0)
}

#[test]
fn osds_boot_a_pool_gets_clean_and_survives_a_crash_of_everything() {
    let mut c = Cluster::new(1, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    c.create_pool("rbd");
    let made = c.world.now();
    c.wait_clean(PGS);
    assert!(
        c.world.now() - made < Duration::from_secs(2),
        "made within {:?}",
        c.world.now() - made
    );
    assert_eq!(c.json("health")["status"], "HEALTH_OK");
    let fsid = c.json("fsid");
    c.crash_all();
    let crashed = c.world.now();
    c.wait_clean(PGS);
    assert!(c.world.now() - crashed < Duration::from_secs(4), "{:?}", c.world.now() - crashed);
    assert_eq!(c.json("fsid"), fsid);
    assert_eq!(c.json("status")["osdmap"]["num_osds"], 3);
}

#[test]
fn an_osd_that_dies_is_down_at_once_and_comes_back() {
    let mut c = Cluster::new(2, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    c.create_pool("rbd");
    c.wait_clean(PGS);
    c.crash_osd(1);
    c.run_until(Duration::from_millis(500), |c| up(c) == 2);
    let degraded = |c: &mut Cluster| {
        let stat = c.json("pg stat");
        let states = stat["pg_summary"]["num_pg_by_state"].as_array().expect("a list").clone();
        states.iter().any(|s| s["name"].as_str().is_some_and(|n| n.contains("undersized")))
    };
    c.run_until(Duration::from_secs(10), degraded);
    let health = c.json("health");
    assert_eq!(health["status"], "HEALTH_WARN");
    assert!(health["checks"]["OSD_DOWN"].is_object(), "{health}");
    c.start_osd(1);
    c.wait_clean(PGS);
    assert_eq!(up(&mut c), 3);
}

/// Its process was stopped, or its disk hung: everybody has given up the sessions meanwhile, and the mon hears of that
/// before it hears that they are there again.
#[test]
fn a_mon_that_stood_still_marks_nobody_down() {
    let mut c = Cluster::new(3, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    c.create_pool("rbd");
    c.wait_clean(PGS);
    let since = up_from(&mut c);
    c.world.set_paused(c.mon, true);
    c.pass(Duration::from_secs(35));
    c.world.set_paused(c.mon, false);
    c.pass(Duration::from_secs(30));
    assert_eq!((up(&mut c), up_from(&mut c)), (3, since));
    // One that dies is down at once, as ever.
    c.crash_osd(1);
    c.run_until(Duration::from_millis(500), |c| up(c) == 2);
    c.start_osd(1);
    c.wait_clean(PGS);
    // One that died meanwhile is missed when its time is over.
    c.world.set_paused(c.mon, true);
    c.pass(Duration::from_secs(10));
    c.crash_osd(2);
    c.pass(Duration::from_secs(10));
    c.world.set_paused(c.mon, false);
    c.run_until(Duration::from_secs(25), |c| up(c) == 2);
}

/// The network between this mon and some OSDs, or all of them, is cut: neither end is told. Both give their sessions up,
/// and when it is over the end of the old one may arrive before the new one begins.
#[test]
fn a_mon_that_was_cut_off_marks_nobody_down() {
    for (seed, seconds, osds) in [(4, 35, 0..3), (5, 320, 0..3), (6, 35, 1..2), (7, 320, 1..3)] {
        let mut c = Cluster::new(seed, 3);
        c.run_until(Duration::from_secs(3), |c| up(c) == 3);
        c.create_pool("rbd");
        c.wait_clean(PGS);
        let since = up_from(&mut c);
        let cut = |c: &mut Cluster, silent: bool| {
            for osd in c.osds[osds.clone()].iter().copied() {
                c.world.set_silent(c.mon, osd, silent);
                c.world.set_silent(osd, c.mon, silent);
            }
        };
        cut(&mut c, true);
        c.pass(Duration::from_secs(seconds));
        let health = c.json("health");
        assert!(health["checks"]["OSD_SILENT"].is_object(), "{health}");
        cut(&mut c, false);
        c.pass(Duration::from_secs(30));
        assert_eq!((up(&mut c), up_from(&mut c)), (3, since), "{seconds} s, {osds:?}");
        c.wait_clean(PGS);
        // One that dies is down at once, as ever.
        c.crash_osd(1);
        c.run_until(Duration::from_millis(500), |c| up(c) == 2);
    }
}

/// PGs that were ordered and never reported are ordered again, with their history: from whoever
/// leads them after whatever happened.
#[test]
fn pools_are_finished_whatever_crashes_while_they_are_made() {
    for seed in 10..22 {
        let mut c = Cluster::new(seed, 3);
        c.run_until(Duration::from_secs(3), |c| up(c) == 3);
        for (round, pool) in ["one", "two"].into_iter().enumerate() {
            c.create_pool(pool);
            let wait = c.world.rng().u64(0..40_000);
            c.world.run_for(Duration::from_micros(wait));
            match c.world.rng().u8(0..3) {
                0 => c.crash_all(),
                1 => {
                    let victim = c.world.rng().usize(0..3);
                    c.crash_osd(victim);
                    c.pass(Duration::from_millis(30));
                    c.world.crash(c.mon);
                    c.world.start(c.mon);
                    c.start_osd(victim);
                }
                _ => {
                    c.world.crash(c.mon);
                    c.world.start(c.mon);
                }
            }
            // The request itself may have been lost with the mon.
            c.pass(Duration::from_millis(500));
            c.create_pool(pool);
            c.wait_clean(PGS * (round as u64 + 1));
        }
    }
}

/// A pool is made while its OSDs are away; epochs pass, the mon is started anew and sees the old maps
/// again; then the OSDs come, and are told of PGs with the history they have.
#[test]
fn pgs_that_nobody_has_reported_keep_their_history_over_a_restart() {
    let mut c = Cluster::new(50, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    (0..3).for_each(|osd| c.crash_osd(osd));
    c.run_until(Duration::from_secs(1), |c| up(c) == 0);
    c.create_pool("rbd");
    c.pass(Duration::from_millis(100));
    let created = c.json("osd stat")["epoch"].as_u64().expect("a number");
    for _ in 0..30 {
        for prefix in ["osd set", "osd unset"] {
            c.ask(&format!(r#"{{"prefix":"{prefix}","key":"noscrub"}}"#));
        }
    }
    assert_eq!(c.clean(), (0, PGS));
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.pass(Duration::from_secs(1));
    (0..3).for_each(|osd| c.start_osd(osd));
    c.wait_clean(PGS);
    let stats = c.json("pg dump");
    let pgs = stats["pg_map"]["pg_stats"].as_array().expect("PGs");
    assert_eq!(pgs.len() as u64, PGS);
    for pg in pgs {
        assert_eq!(pg["created"], created, "{}", pg["pgid"]);
        assert!(pg["mapping_epoch"].as_u64() > Some(created + 60));
    }
}

/// A client that follows the log (`ceph -w`) takes nothing that is not newer than what it has.
#[test]
fn entries_of_the_log_are_numbered_on_over_a_restart() {
    let mut c = Cluster::new(51, 3);
    c.run_until(Duration::from_secs(3), |c| up(c) == 3);
    let newest = |c: &mut Cluster| {
        let log = c.json("log last");
        log.as_array().and_then(|all| all.last()?["seq"].as_u64()).expect("a number")
    };
    let before = newest(&mut c);
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.crash_osd(1);
    c.run_until(Duration::from_secs(5), |c| up(c) == 2);
    assert!(newest(&mut c) > before);
}
