//! What removed snapshots alone held is freed, and until then can be found.

use crate::basic::{list, read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use maps::OsdMapFlags;
use pg::StateBits;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, OsdId, PoolId, SnapId};
use wire::msg::op::{Extent, OpCode};
use wire::msg::op_data::ListSnapsOut;
use wire::msg::{OsdOp, SnapContext};

const OBJECTS: usize = 30;
const PATIENCE: Duration = Duration::from_secs(60);

fn write_all(c: &mut Cluster, snaps: &[u64]) {
    change_all(c, snaps, &write_full(b"data"));
}

fn change_all(c: &mut Cluster, snaps: &[u64], change: &OsdOp) {
    let seq = SnapId(snaps.first().copied().unwrap_or(0));
    for i in 0..OBJECTS {
        let (target, write) = (object(1, &format!("o{i}")), vec![change.clone()]);
        let snapc = SnapContext { seq, snaps: snaps.iter().map(|s| SnapId(*s)).collect() };
        assert_eq!(c.write_under(target, write, snapc, 0).result, 0);
    }
}

/// Snapshots for which an object has a clone.
fn clones(c: &mut Cluster, i: usize) -> Vec<SnapId> {
    let target = HObject { snap: SnapId::SNAPDIR, ..object(1, &format!("o{i}")) };
    let reply = c.call(target, vec![OsdOp::new(OpCode::LIST_SNAPS, Extent::default())], false);
    let listed: ListSnapsOut = denc::decode(&output(&reply, 0)).expect("a list");
    listed.clones.iter().map(|clone| clone.cloneid).filter(|id| *id != SnapId::HEAD).collect()
}

/// A snapshot is removed while a younger one is being trimmed: it is trimmed first, and from the
/// beginning, not only from where the other one was.
#[test]
fn an_older_snapshot_is_removed_while_a_younger_one_is_trimmed() {
    for pause_us in (0..3000).step_by(300) {
        let one = ("osd_pg_max_concurrent_snap_trims".into(), "1".into());
        let mut c = Cluster::new(5, 3, &Options::from([one]));
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        for snaps in [&[][..], &[1], &[2, 1]] {
            write_all(&mut c, snaps);
        }
        c.on_mon(|m| m.remove_snap(1, SnapId(2)));
        let begun = |c: &Cluster| c.mon.borrow().map.removed_snaps_queue.contains_key(&PoolId(1));
        c.run_until(PATIENCE, |c| begun(c));
        c.pass(Duration::from_micros(pause_us));
        c.on_mon(|m| m.remove_snap(1, SnapId(1)));
        c.pass(Duration::from_millis(1));
        c.wait_trimmed(PoolId(1));
        for i in 0..OBJECTS {
            assert_eq!(clones(&mut c, i), [], "object {i}, after {pause_us} us");
        }
    }
}

/// Who has removed the wrong snapshot stops it so.
#[test]
fn nothing_is_trimmed_while_the_operator_forbids_it() {
    let mut c = Cluster::new(5, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    [&[][..], &[1]].into_iter().for_each(|snaps| write_all(&mut c, snaps));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NOSNAPTRIM));
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    let waits = |c: &Cluster| c.mon.borrow().states().contains("snaptrim_wait");
    c.run_until(PATIENCE, |c| waits(c));
    c.pass(PATIENCE);
    assert!((0..OBJECTS).all(|i| clones(&mut c, i) == [SnapId(1)]));
    c.on_mon(|m| m.set_flags(OsdMapFlags::default()));
    c.wait_trimmed(PoolId(1));
    assert!((0..OBJECTS).all(|i| clones(&mut c, i).is_empty()));
}

/// Who brings back a snapshot finds by a listing what was deleted since.
#[test]
fn what_was_deleted_is_listed_while_a_snapshot_has_it() {
    let mut c = Cluster::new(6, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 2));
    c.wait_clean();
    write_all(&mut c, &[]);
    change_all(&mut c, &[1], &OsdOp::new(OpCode::DELETE, Extent::default()));
    assert_eq!(c.call(object(1, "o1"), vec![read(0, 1)], false).result, Errno::ENOENT.wire());
    assert_eq!(list(&mut c, 1, 2).len(), OBJECTS);
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    c.wait_trimmed(PoolId(1));
    assert_eq!(list(&mut c, 1, 2), [""; 0]);
}

/// What cannot be read at the moment is trimmed later, and another PG takes its place meanwhile.
#[test]
fn what_cannot_be_read_is_trimmed_later() {
    let mut c = Cluster::new(7, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let target = |i: usize| object(1, &format!("{i}{}", "x".repeat(1000)));
    for snaps in [&[][..], &[1]] {
        let seq = SnapId(snaps.first().copied().unwrap_or(0));
        for i in 0..400 {
            let snapc = SnapContext { seq, snaps: snaps.iter().map(|s| SnapId(*s)).collect() };
            let kind = wire::msg::flags::WRITE;
            c.on_client(|cl| cl.request_with(target(i), vec![write_full(b"x")], kind, snapc));
        }
        c.run_until(PATIENCE, |c| c.client.borrow().outstanding() == 0);
    }
    let primary = c.client.borrow().primary_of(&target(0)).0 as usize;
    let node = c.osds[primary];
    c.world.stop(node);
    c.run_until(PATIENCE, |c| c.world.exit_of(node).is_some());
    let leads = |c: &Cluster| c.client.borrow().primary_of(&target(0)).0 as usize == primary;
    c.run_until(PATIENCE, |c| !leads(c));
    c.run_until(PATIENCE, |c| leads(c));
    c.wait_clean();
    c.world.set_unreadable(node, true);
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    let pgid = c.client.borrow().pg_of(&target(0));
    let failed = |c: &Cluster| {
        let mon = c.mon.borrow();
        mon.stats.get(&pgid).is_some_and(|s| StateBits(s.state).has(StateBits::SNAPTRIM_ERROR))
    };
    c.run_until(PATIENCE, |c| failed(c));
    c.world.set_unreadable(node, false);
    let errors =
        crate::admin::ask(&mut c, primary as i32, "perf dump")["osd"]["read_errors"].clone();
    assert_eq!(errors, 1);
    c.run_until(Duration::from_secs(120), |c| {
        c.mon.borrow().map.removed_snaps_queue.get(&PoolId(1)).is_none_or(|q| q.is_empty())
    });
    c.run_until(PATIENCE, |c| !failed(c));
}

/// A copy was away while snapshots were trimmed. Its index says no more of them than the others do: what another
/// removal of the same snapshots finds there, which it leads now, would stay for ever.
#[test]
fn a_copy_that_was_away_keeps_no_rows_of_what_was_trimmed() {
    // By log; by comparing all objects, its log being too short.
    for log in ["1000", "10"] {
        let log =
            ["osd_min_pg_log_entries", "osd_max_pg_log_entries"].map(|o| (o.into(), log.into()));
        let mut c = Cluster::new(8, 4, &Options::from(log));
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 1));
        c.wait_clean();
        // Two clones: of one snapshot, and of two.
        for snaps in [&[][..], &[1], &[3, 2, 1]] {
            write_all(&mut c, snaps);
        }
        let pgid = c.client.borrow().pg_of(&object(1, "o0"));
        let away = c.mon.borrow().map.pg_to_up_acting(pgid).acting[1];
        c.off[away.0 as usize] = true;
        let node = c.osds[away.0 as usize];
        c.world.stop(node);
        c.run_until(PATIENCE, |c| c.world.exit_of(node).is_some());
        c.on_mon(|m| m.set_weight(away, 0));
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(away));
        let trim = |c: &mut Cluster| {
            c.on_mon(|m| [1, 2].into_iter().for_each(|snap| m.remove_snap(1, SnapId(snap))));
            let queue =
                |c: &Cluster| c.mon.borrow().map.removed_snaps_queue.get(&PoolId(1)).cloned();
            c.run_until(PATIENCE, |c| queue(c).is_some_and(|q| !q.is_empty()));
            c.run_until(PATIENCE, |c| queue(c).is_none_or(|q| q.is_empty()));
        };
        c.pass(Duration::from_secs(1));
        c.wait_clean();
        trim(&mut c);
        take_hits();
        c.start(away.0 as usize);
        for osd in (0..4).map(OsdId).filter(|osd| *osd != away) {
            c.on_mon(|m| m.set_affinity(osd, 0));
        }
        c.on_mon(|m| m.set_weight(away, 0x10000));
        let leads =
            |c: &Cluster| c.mon.borrow().map.pg_to_up_acting(pgid).acting_primary == Some(away);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_up(away) && leads(c));
        c.run_until(PATIENCE, |c| c.mon.borrow().all_clean() && leads(c));
        trim(&mut c);
        assert_eq!(hits_of(Probe::RowLedNowhere), 0);
        // What is left is found.
        c.on_mon(|m| m.remove_snap(1, SnapId(3)));
        c.run_until(PATIENCE, |c| (0..OBJECTS).all(|i| clones(c, i).is_empty()));
    }
}

/// An OSD starts, and tens of thousands of snapshots are removed, few of which hold anything. A turn does not go
/// through all of them, and those that hold nothing cost nothing.
#[test]
fn many_snapshots_are_removed_at_once() {
    const SNAPS: u64 = 20_000;
    let mut c = Cluster::new(9, 2, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    write_all(&mut c, &[]);
    // One of those in between lives on.
    for snaps in [&[1000][..], &[1001, 1000], &[2001, 1000], &[2 * SNAPS - 1, 1000]] {
        write_all(&mut c, snaps);
    }
    take_hits();
    c.on_mon(|m| (0..SNAPS).for_each(|i| m.remove_snap(1, SnapId(2 * i + 1))));
    c.wait_trimmed(PoolId(1));
    for i in 0..OBJECTS {
        assert_eq!(clones(&mut c, i), [SnapId(1000)], "object {i}");
    }
    // Once through all indexes for each snapshot that holds something, and one look for each row.
    let (looks, rows) = (hits_of(Probe::SnapIndexLooked), 3 * OBJECTS as u64);
    assert!(looks < 6 * 300 + 2 * rows, "{looks} looks");
    assert!(hits_of(Probe::TrimGoesOn) > 0);
}

/// PGs that cannot be trimmed now, or not here any more, cost no turn anything.
#[test]
fn pgs_that_are_not_to_be_trimmed_are_not_looked_at() {
    const PGS: u64 = 8;
    let mut c = Cluster::new(10, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, PGS as u32));
    c.wait_clean();
    write_all(&mut c, &[]);
    write_all(&mut c, &[1]);
    // Others lead its PGs, which are degraded.
    c.crash(0);
    c.pass(Duration::from_secs(2));
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    c.run_until(PATIENCE, |c| c.mon.borrow().map.removed_snaps_queue.contains_key(&PoolId(1)));
    take_hits();
    for i in 0..200 {
        let reply = c.call(object(1, &format!("new{i}")), vec![write_full(b"data")], true);
        assert_eq!(reply.result, 0);
    }
    assert!(hits_of(Probe::TrimLookedAtPg) <= 4 * PGS, "{}", hits_of(Probe::TrimLookedAtPg));
    // Maps in which nothing else was removed.
    take_hits();
    for i in 0..10 {
        c.on_mon(|m| m.set_min_size(1, 1 + i % 2));
        c.pass(Duration::from_millis(20));
    }
    assert!(hits_of(Probe::TrimLookedAtPg) <= 4 * PGS, "{}", hits_of(Probe::TrimLookedAtPg));
    c.start(0);
    c.wait_clean();
    c.wait_trimmed(PoolId(1));
    c.pass(Duration::from_secs(2));
    assert_eq!(clones(&mut c, 1), []);
    take_hits();
    c.pass(Duration::from_secs(10));
    assert_eq!(hits_of(Probe::TrimLookedAtPg), 0);
}
