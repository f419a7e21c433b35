//! Recovery beside clients: what they wait for, what they do not, and how fast it goes.

use crate::admin::ask;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use maps::OsdMapFlags;
use pg::StateBits;
use std::time::Duration;
use types::OsdId;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn name(i: usize) -> types::HObject {
    object(1, &format!("o{i}"))
}

fn write_all(c: &mut Cluster, count: usize, bytes: usize, mark: u8) {
    for i in 0..count {
        let ops = vec![write_full(&vec![mark; bytes])];
        assert_eq!(c.call(name(i), ops, true).result, 0);
    }
}

fn stop(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    c.crash(osd);
    c.run_until(10 * SECOND, |c| c.mon.borrow().map.is_down(OsdId(osd as i32)));
}

fn degraded(c: &Cluster) -> u64 {
    c.mon.borrow().stats.values().map(|s| s.degraded).sum()
}

fn misplaced(c: &Cluster) -> u64 {
    c.mon.borrow().stats.values().map(|s| s.misplaced).sum()
}

#[test]
fn a_write_brings_its_object_to_the_copy_that_misses_it() {
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 3, &Options::new());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 4));
        c.wait_clean();
        write_all(&mut c, 20, 3000, 1);
        stop(&mut c, 0);
        write_all(&mut c, 20, 3000, 2);
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
        c.start(0);
        c.run_until(20 * SECOND, |c| {
            let mon = c.mon.borrow();
            let waits = |s: &peer::PgStat| StateBits(s.state).has(StateBits::RECOVERY_WAIT);
            mon.stats.values().all(|s| waits(s) && s.acting.len() == 3)
        });
        assert_eq!(degraded(&c), 20);
        // Changed while osd.0 misses them: it is brought these first, flag or not, and no others. Nobody
        // needs to have what is deleted.
        let patch = |c: &mut Cluster, i: usize| {
            let args = wire::msg::op::Extent { offset: 100, length: 3, ..Default::default() };
            let op = wire::msg::OsdOp::new(wire::msg::OpCode::WRITE, args).with_indata(&b"new"[..]);
            assert_eq!(c.call(name(i), vec![op], true).result, 0);
        };
        (0..10).for_each(|i| patch(&mut c, i));
        let delete =
            wire::msg::OsdOp::new(wire::msg::OpCode::DELETE, wire::msg::op::Extent::default());
        assert_eq!(c.call(name(10), vec![delete], true).result, 0);
        // The mon hears of it with the next report.
        c.pass(6 * SECOND);
        assert_eq!(degraded(&c), 9, "nothing else moved");
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        c.wait_clean();
        // It has everything now, alone with each of the others.
        let mut wanted = vec![2; 3000];
        wanted[100..103].copy_from_slice(b"new");
        for off in [1, 2] {
            stop(&mut c, off);
            for i in 0..20 {
                let got = c.call(name(i), vec![read(0, 0)], false);
                match i {
                    10 => assert_eq!(got.result, -types::Errno::ENOENT.0),
                    0..10 => assert!(output(&got, 0) == wanted, "seed {seed}: o{i}"),
                    _ => assert!(output(&got, 0) == vec![2; 3000], "seed {seed}: o{i}"),
                }
            }
            c.start(off);
            c.wait_clean();
        }
    }
}

#[test]
fn a_copy_that_was_away_is_brought_what_was_changed() {
    const BYTES: usize = 327_680;
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 3, &Options::new());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 4));
        c.wait_clean();
        write_all(&mut c, 20, BYTES, 1);
        stop(&mut c, 0);
        let mut wanted = vec![vec![1; BYTES]; 20];
        for (i, bytes) in wanted.iter_mut().enumerate() {
            for n in 0..=i % 3 {
                let at = (i * 7919 + n * 50_000) % BYTES;
                bytes[at] = 2;
                assert_eq!(c.call(name(i), vec![patch(at as u64, 2)], true).result, 0);
            }
        }
        // One grows (not by whole blocks: it is brought whole), one loses its end, one is new.
        wanted[0].push(3);
        assert_eq!(c.call(name(0), vec![patch(BYTES as u64, 3)], true).result, 0);
        wanted[1] = vec![4; 10];
        wanted.push(vec![5; 10]);
        for i in [1, 20] {
            assert_eq!(c.call(name(i), vec![write_full(&wanted[i])], true).result, 0);
        }
        types::testing::take_hits();
        c.start(0);
        c.wait_clean();
        let sent = types::testing::hits_of(types::testing::Probe::ChangesSent);
        assert_eq!((seed, sent), (seed, 18));
        let pgs: Vec<types::PgId> = c.mon.borrow().stats.keys().copied().collect();
        for pgid in pgs {
            let record = crate::scrub::scrub(&mut c, pgid, true, false);
            assert_eq!((record.errors(), record.objects_repaired), (0, 0), "{record:?}");
        }
        stop(&mut c, 1);
        stop(&mut c, 2);
        c.on_mon(|m| m.set_min_size(1, 1));
        for (i, bytes) in wanted.iter().enumerate() {
            assert!(output(&c.call(name(i), vec![read(0, 0)], false), 0) == *bytes, "o{i}");
        }
    }
}

/// Lets osd.0 miss much, and gives the time until all is clean; with a client that writes all the
/// while, also the longest that it waited.
fn recover(seed: u64, share: &str, with_client: bool) -> (Duration, Duration) {
    let mut options = Options::new();
    options.insert("osd_recovery_share".into(), share.into());
    let mut c = Cluster::new(seed, 3, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 4));
    c.wait_clean();
    write_all(&mut c, 60, 300_000, 1);
    stop(&mut c, 0);
    write_all(&mut c, 60, 300_000, 2);
    c.world.set_faults(sim::Faults {
        break_ppm: 0,
        slow_disk_ppm: 1_000_000,
        ..sim::Faults::default()
    });
    c.start(0);
    let begin = c.world.now();
    c.run_until(20 * SECOND, |c| c.mon.borrow().map.is_up(OsdId(0)));
    let (mut longest, mut n) = (Duration::ZERO, 0usize);
    c.run_until(60 * SECOND, |c| degraded(c) > 0);
    while !c.mon.borrow().all_clean() {
        if with_client {
            n += 1;
            let asked = c.world.now();
            let tid = c.on_client(|cl| cl.request(name(n % 60), vec![write_full(b"x")], true));
            assert_eq!(c.wait_for(tid).result, 0);
            longest = longest.max(c.world.now() - asked);
            c.pass(5 * MS);
        } else {
            c.pass(5 * MS);
        }
        assert!(c.world.now() - begin < 300 * SECOND, "it does not come to an end");
    }
    (c.world.now() - begin, longest)
}

#[test]
fn recovery_leaves_clients_their_share_and_takes_all_of_it_without_them() {
    let (alone, _) = recover(1, "0.05", false);
    let (paced, _) = recover(1, "0.05", true);
    let (greedy, _) = recover(1, "1", true);
    eprintln!("alone {alone:?}, paced {paced:?}, greedy {greedy:?}");
    assert!(paced > 2 * greedy, "paced {paced:?}, greedy {greedy:?}");
    assert!(alone < paced, "alone {alone:?}, paced {paced:?}");
}

/// An object is on its way, slowly, to a copy that holds its answers back; then a client wants to write it.
#[test]
fn what_a_client_waits_for_is_held_at_neither_end() {
    for seed in 0..4 {
        let (all, longest) = recover(seed, "0.01", true);
        eprintln!("seed {seed}: {all:?}, the longest wait {longest:?}");
        assert!(longest < 200 * MS, "of {all:?} a write waited {longest:?}");
    }
}

#[test]
fn misplaced_copies_are_counted_down_to_none() {
    let mut options = Options::new();
    options.insert("osd_backfill_scan_max".into(), "8".into());
    options.insert("osd_recovery_max_active".into(), "2".into());
    let mut c = Cluster::new(3, 3, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    write_all(&mut c, 60, 5000, 1);
    let holder = c.mon.borrow().stats.values().next().expect("a PG").acting[0];
    c.world.set_faults(sim::Faults {
        break_ppm: 0,
        slow_disk_ppm: 1_000_000,
        ..sim::Faults::default()
    });
    c.on_mon(|m| m.set_weight(holder, 0));
    let mut seen = Vec::new();
    c.run_until(120 * SECOND, |c| {
        let now = misplaced(c);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        c.mon.borrow().all_clean()
    });
    let most = seen.iter().position(|n| *n == 60).expect("all of one copy is misplaced");
    assert!(seen[most..].windows(2).all(|w| w[0] >= w[1]), "{seen:?}");
    assert!(seen.len() > most + 3 && seen.last() == Some(&0), "{seen:?}");
    assert_eq!(degraded(&c), 0);
}

fn patch(offset: u64, byte: u8) -> wire::msg::OsdOp {
    let args = wire::msg::op::Extent { offset, length: 1, ..Default::default() };
    wire::msg::OsdOp::new(wire::msg::OpCode::WRITE, args).with_indata(vec![byte])
}

/// One large object goes to another OSD in many parts, slowly, while one byte of it after another is
/// written: gives how long that took, the longest that a write waited, and what the object must be.
fn move_a_large_object(c: &mut Cluster) -> (Duration, Duration, Vec<u8>) {
    const BYTES: usize = 400_000;
    let mut wanted = vec![1u8; BYTES];
    assert_eq!(c.call(name(0), vec![write_full(&wanted)], true).result, 0);
    let holder = c.mon.borrow().stats.values().next().expect("a PG").acting[1];
    c.world.set_faults(sim::Faults {
        break_ppm: 0,
        slow_disk_ppm: 1_000_000,
        ..sim::Faults::default()
    });
    c.on_mon(|m| m.set_weight(holder, 0));
    let begin = c.world.now();
    c.run_until(60 * SECOND, |c| misplaced(c) > 0);
    let (mut longest, mut n) = (Duration::ZERO, 0usize);
    while !c.mon.borrow().all_clean() {
        n += 1;
        let at = n * 7919 % BYTES;
        wanted[at] = 2;
        let asked = c.world.now();
        assert_eq!(c.call(name(0), vec![patch(at as u64, 2)], true).result, 0);
        longest = longest.max(c.world.now() - asked);
        assert!(c.world.now() - begin < 300 * SECOND, "it does not come to an end");
    }
    (c.world.now() - begin, longest, wanted)
}

#[test]
fn an_object_on_its_way_is_written_meanwhile() {
    for seed in 0..4 {
        let mut options = Options::new();
        options.insert("osd_recovery_share".into(), "0.1".into());
        options.insert("osd_recovery_max_chunk".into(), "8192".into());
        let mut c = Cluster::new(seed, 3, &options);
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        types::testing::take_hits();
        let (all, longest, wanted) = move_a_large_object(&mut c);
        eprintln!("seed {seed}: {all:?}, the longest wait {longest:?}");
        assert!(longest < all / 4, "of {all:?} a write waited {longest:?}");
        assert!(types::testing::hits_of(types::testing::Probe::WriteBesidePush) > 10);
        let pgid = *c.mon.borrow().stats.keys().next().expect("a PG");
        let record = crate::scrub::scrub(&mut c, pgid, true, false);
        assert_eq!((record.errors(), record.objects_repaired), (0, 0), "{record:?}");
        assert!(output(&c.call(name(0), vec![read(0, 0)], false), 0) == wanted, "seed {seed}");
    }
}

#[test]
fn an_osd_that_leaves_sleeps_on_the_steps_it_holds() {
    let mut options = Options::new();
    options.insert("osd_recovery_share".into(), "0.01".into());
    let mut c = Cluster::new(5, 3, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    write_all(&mut c, 4, 2_000_000, 1);
    let acting = c.mon.borrow().stats.values().next().expect("a PG").acting.clone();
    c.on_mon(|m| m.set_weight(acting[1], 0));
    for i in 0..100 {
        assert_eq!(c.call(name(i % 4), vec![patch(0, 2)], true).result, 0);
        c.pass(5 * MS);
    }
    assert!(misplaced(&c) > 0, "it is still at it");
    // The mon does not answer that it may go. The world says when a machine spins.
    let leaver = c.osds[acting[0].0 as usize];
    let mon = c.mon_node;
    c.world.set_cut(leaver, mon, true);
    c.world.stop(leaver);
    c.pass(5 * SECOND);
}

/// Sets one entry of an object's omap.
fn set_omap(n: u8) -> wire::msg::OsdOp {
    let entry = [(bytes::Bytes::from_static(b"key"), bytes::Bytes::from(vec![n]))];
    let entry: std::collections::BTreeMap<_, _> = entry.into();
    let op =
        wire::msg::OsdOp::new(wire::msg::OpCode::OMAPSETVALS, wire::msg::op::Extent::default());
    op.with_indata(denc::encode(&entry))
}

#[test]
fn a_push_that_is_put_off_leaves_nothing_behind() {
    for seed in 0..40 {
        let mut options = Options::new();
        if seed % 2 == 1 {
            options.insert("osd_recovery_max_chunk".into(), "20000".into());
        }
        let mut c = Cluster::new(seed, 3, &options);
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
        c.wait_clean();
        write_all(&mut c, 3, 50_000, 1);
        stop(&mut c, 2);
        write_all(&mut c, 3, 50_000, 2);
        // All begin anew with nothing in memory: what is pushed is fetched from the disk first.
        (0..3).for_each(|osd| c.crash(osd));
        (0..3).for_each(|osd| c.start(osd));
        c.world.set_faults(sim::Faults {
            break_ppm: 0,
            slow_disk_ppm: 300_000,
            ..sim::Faults::default()
        });
        let mut n = 0u8;
        let mut last = Vec::new();
        while n < 100 || !c.mon.borrow().all_clean() {
            n = n.wrapping_add(1);
            let op = if n.is_multiple_of(5) { set_omap(n) } else { patch(u64::from(n), n) };
            last.push(c.on_client(|cl| cl.request(name(usize::from(n % 3)), vec![op], true)));
            if last.len() > 3 {
                assert_eq!(c.wait_for(last.remove(0)).result, 0);
            }
        }
        for tid in last {
            assert_eq!(c.wait_for(tid).result, 0);
        }
        let pgid = *c.mon.borrow().stats.keys().next().expect("a PG");
        let record = crate::scrub::scrub(&mut c, pgid, true, false);
        assert_eq!((record.errors(), record.objects_repaired), (0, 0), "seed {seed}: {record:?}");
    }
}

/// An OSD comes back, and clients wait for objects in all its PGs. Each PG had a bound of its own: all of it together
/// was more than memory, or a session with another OSD, takes.
#[test]
fn what_clients_wait_for_comes_a_few_objects_at_a_time_of_all_pgs_together() {
    const PGS: u32 = 16;
    const OF_EACH: usize = 8;
    const AT_ONCE: u64 = 32;
    let mut c = Cluster::new(1, 2, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, PGS));
    c.on_mon(|m| m.set_affinity(OsdId(1), 0));
    c.wait_clean();
    let mut of_each = std::collections::BTreeMap::new();
    let few = |i: &usize| {
        let of_its: &mut usize = of_each.entry(c.client.borrow().pg_of(&name(*i))).or_default();
        *of_its += 1;
        *of_its <= OF_EACH
    };
    let objects: Vec<usize> = (0..1000).filter(few).collect();
    assert_eq!(objects.len(), PGS as usize * OF_EACH);
    stop(&mut c, 0);
    for i in &objects {
        assert_eq!(c.call(name(*i), vec![write_full(&[1; 3000])], true).result, 0);
    }
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    c.start(0);
    c.run_until(20 * SECOND, |c| {
        let mon = c.mon.borrow();
        let leads = |s: &peer::PgStat| s.acting.first() == Some(&OsdId(0));
        mon.stats.values().all(|s| StateBits(s.state).has(StateBits::ACTIVE) && leads(s))
    });
    let node = c.osds[0];
    c.world.set_slow_disks(node, 3000);
    let read = |c: &mut Cluster, i: usize| {
        c.on_client(|cl| cl.request(name(i), vec![read(0, 0)], false));
    };
    objects.iter().for_each(|i| read(&mut c, *i));
    let mut most = 0;
    for _ in 0..100 {
        let moving = ask(&mut c, 0, "perf dump")["osd"]["recovery_in_flight"].as_u64();
        most = most.max(moving.expect("a count"));
    }
    assert!((AT_ONCE..AT_ONCE + u64::from(PGS)).contains(&most), "{most} at once");
    c.world.set_slow_disks(node, 1);
    c.run_until(20 * SECOND, |c| c.client.borrow().outstanding() == 0);
}
