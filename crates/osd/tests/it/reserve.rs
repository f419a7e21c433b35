//! Whose turn it is to recover: places, flags, space, and what an operator forces.

use crate::basic::write_full;
use crate::client::object;
use crate::cluster::{Cluster, Options};
use maps::{OsdMapFlags, OsdState};
use peer::{PgStat, RecoveryOrder};
use pg::StateBits;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Epoch, OsdId, PgId};

const SECOND: Duration = Duration::from_secs(1);
const OBJECTS: usize = 160;

fn options() -> Options {
    let all = [
        ("osd_max_backfills", "1"),
        ("osd_recovery_max_active", "2"),
        ("osd_backfill_scan_max", "4"),
    ];
    all.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn cluster(seed: u64, osds: i32) -> Cluster {
    let mut c = Cluster::new(seed, osds, &options());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 16));
    c.wait_clean();
    write_all(&mut c, 1);
    c
}

fn write_all(c: &mut Cluster, mark: u8) {
    let put = |c: &mut Cluster, i: usize| {
        let ops = vec![write_full(&vec![mark; 5000])];
        c.on_client(|cl| cl.request(object(1, &format!("o{i}")), ops, true))
    };
    let tids: Vec<u64> = (0..OBJECTS).map(|i| put(c, i)).collect();
    tids.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
}

fn stop(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    c.crash(osd);
    c.run_until(10 * SECOND, |c| c.mon.borrow().map.is_down(OsdId(osd as i32)));
}

fn has(stat: &PgStat, bits: StateBits) -> bool {
    StateBits(stat.state).has(bits)
}

fn moves(stat: &PgStat) -> bool {
    has(stat, StateBits::RECOVERING) || has(stat, StateBits::BACKFILLING)
}

/// Runs until all is clean, on disks so slow that the mon hears of every state. Each OSD may lead at
/// `most` so many PGs that move. Gives all states seen, and the PGs in the order in which they became
/// clean.
fn watch(c: &mut Cluster, most: usize) -> (StateBits, Vec<PgId>) {
    let (mut seen, mut order) = (StateBits::default(), Vec::new());
    let mut clean = BTreeSet::new();
    c.world.set_faults(sim::Faults {
        break_ppm: 0,
        slow_disk_ppm: 1_000_000,
        ..sim::Faults::default()
    });
    c.run_until(300 * SECOND, |c| {
        let mon = c.mon.borrow();
        let mut moving: BTreeMap<i32, usize> = BTreeMap::new();
        for (pgid, stat) in &mon.stats {
            seen |= StateBits(stat.state);
            // Of others the newest word may be that of a primary whose interval is over.
            let leads = mon.map.pg_to_up_acting(*pgid).acting_primary;
            if leads != Some(OsdId(stat.acting_primary)) {
                continue;
            }
            *moving.entry(stat.acting_primary).or_default() += usize::from(moves(stat));
            if has(stat, StateBits::CLEAN) && clean.insert(*pgid) {
                order.push(*pgid);
            }
        }
        assert!(moving.values().all(|n| *n <= most), "{}", mon.states());
        mon.all_clean()
    });
    c.world.set_faults(sim::Faults { break_ppm: 0, slow_disk_ppm: 0, ..sim::Faults::default() });
    (seen, order)
}

#[test]
fn pgs_recover_and_are_filled_one_after_the_other() {
    for seed in 0..4 {
        let mut c = cluster(seed, 3);
        stop(&mut c, 0);
        write_all(&mut c, 2);
        c.start(0);
        let (seen, _) = watch(&mut c, 1);
        assert!(seen.has(StateBits::RECOVERING) && seen.has(StateBits::RECOVERY_WAIT), "{seen}");
        // All that was on osd.0 goes to the others.
        c.on_mon(|m| m.set_weight(OsdId(0), 0));
        let (seen, _) = watch(&mut c, 1);
        assert!(seen.has(StateBits::BACKFILLING) && seen.has(StateBits::BACKFILL_WAIT), "{seen}");
    }
}

#[test]
fn flags_hold_backfill_and_recovery_back() {
    let mut c = cluster(5, 3);
    let shows = |c: &Cluster, bits| c.mon.borrow().stats.values().any(|s| has(s, bits));
    for flag in [OsdMapFlags::NOREBALANCE, OsdMapFlags::NOBACKFILL, OsdMapFlags::NORECOVER] {
        c.on_mon(|m| m.set_flags(flag));
        let weight = if flag == OsdMapFlags::NOBACKFILL { 0x10000 } else { 0 };
        c.on_mon(|m| m.set_weight(OsdId(0), weight));
        c.run_until(20 * SECOND, |c| shows(c, StateBits::BACKFILL_WAIT));
        for _ in 0..200 {
            c.pass(Duration::from_millis(50));
            assert!(!shows(&c, StateBits::BACKFILLING), "{flag}");
        }
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        watch(&mut c, 1);
    }
    // A copy that is lacking is no matter of balance.
    c.on_mon(|m| m.set_weight(OsdId(0), 0x10000));
    watch(&mut c, 1);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NOREBALANCE));
    stop(&mut c, 0);
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    watch(&mut c, 1);
}

#[test]
fn an_osd_that_is_too_full_is_not_filled_until_it_has_space() {
    let mut c = cluster(6, 3);
    stop(&mut c, 0);
    c.on_mon(|m| m.set_state(OsdId(1), OsdState::BACKFILLFULL, true));
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    // What goes to osd.2 goes there; what should go to osd.1 says why it does not.
    c.run_until(60 * SECOND, |c| {
        let mon = c.mon.borrow();
        let waits = |s: &PgStat| has(s, StateBits::BACKFILL_TOOFULL);
        mon.stats.values().all(|s| waits(s) || has(s, StateBits::CLEAN))
            && mon.stats.values().any(waits)
    });
    let mon = c.mon.borrow();
    for stat in mon.stats.values().filter(|s| has(s, StateBits::BACKFILL_TOOFULL)) {
        assert!(stat.up.contains(&OsdId(1)) && !stat.acting.contains(&OsdId(1)));
    }
    drop(mon);
    c.on_mon(|m| m.set_state(OsdId(1), OsdState::BACKFILLFULL, false));
    watch(&mut c, 1);
}

#[test]
fn what_an_operator_forces_comes_first() {
    for seed in 0..6 {
        let mut c = cluster(seed, 2);
        stop(&mut c, 0);
        write_all(&mut c, 2);
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
        c.start(0);
        c.run_until(20 * SECOND, |c| {
            let mon = c.mon.borrow();
            let waits = |s: &PgStat| has(s, StateBits::RECOVERY_WAIT) && s.acting.len() == 2;
            mon.stats.len() == 16 && mon.stats.values().all(waits)
        });
        let (pgid, primary) = {
            let mon = c.mon.borrow();
            let (pgid, stat) = mon.stats.iter().next_back().expect("there are PGs");
            (*pgid, stat.acting_primary)
        };
        let order =
            RecoveryOrder { epoch: Epoch(1), pgs: vec![pgid], backfill: false, cancel: false };
        c.on_mon(|m| m.tell(OsdId(primary), order));
        c.run_until(10 * SECOND, |c| has(&c.mon.borrow().stats[&pgid], StateBits::FORCED_RECOVERY));
        let of = |c: &Cluster, p: &PgId| c.mon.borrow().stats[p].acting_primary;
        let led: Vec<PgId> = c.mon.borrow().stats.keys().copied().collect();
        let led: Vec<PgId> = led.into_iter().filter(|p| of(&c, p) == primary).collect();
        assert!(led.len() > 3, "it has something to wait for");
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        // Whoever had begun and lost its place brings its last objects home.
        let (_, order) = watch(&mut c, 2);
        let first = order.iter().find(|p| led.contains(p));
        assert_eq!(first, Some(&pgid), "seed {seed}");
        assert!(!has(&c.mon.borrow().stats[&pgid], StateBits::FORCED_RECOVERY), "it is done");
    }
}
