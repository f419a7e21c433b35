//! What OSDs have in hand, against the memory that they may use.

use crate::admin::{answer, ask, tell};
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use crate::copy::copy_from;
use serde_json::json;
use std::time::Duration;
use types::testing::{Probe, hits_of};
use types::{Errno, HObject, OsdId, PgId, PoolId, SnapId};
use wire::msg::op::{OpCode, Pgls, WriteSame};
use wire::msg::op_data::{OmapGetValsIn, OmapGetValsOut, Values};
use wire::msg::{MOsdOpReply, OsdOp, flags};

const MIB: u64 = 1 << 20;

/// Bytes that came with requests.
fn in_hand(c: &mut Cluster, osd: i32) -> u64 {
    let pools = ask(c, osd, "dump_mempools");
    pools["mempool"]["by_pool"]["osd"]["bytes"].as_u64().expect("bytes")
}

/// A cluster whose OSDs have 8 MiB for requests.
fn small_cluster() -> Cluster {
    let options = [("osd_memory_target".to_owned(), "32M".to_owned())].into();
    let mut c = Cluster::with_disks(3, &[512 * MIB; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    c
}

/// Objects that an OSD leads, or that it does not lead.
fn objects(c: &Cluster, count: usize, osd: OsdId, leads: bool) -> Vec<HObject> {
    let client = c.client.borrow();
    let all = (0..).map(|i| object(1, &format!("o{i}")));
    all.filter(|o| (client.primary_of(o) == osd) == leads).take(count).collect()
}

/// Starts writes of 1 MiB.
fn start_writes(c: &mut Cluster, objects: &[HObject]) {
    let data = vec![7; MIB as usize];
    for target in objects {
        c.on_client(|c| c.request(target.clone(), vec![write_full(&data)], true));
    }
}

#[test]
fn clients_wait_while_writes_that_others_lead_fill_the_memory() {
    let mut c = small_cluster();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    let others = objects(&c, 6, OsdId(0), false);
    start_writes(&mut c, &others);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 6 * MIB);

    let own = objects(&c, 4, OsdId(0), true);
    // Half of what is left a client may have: this one has it now, and another one is heard.
    start_writes(&mut c, &own[..1]);
    let writer = c.change_client();
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 7 * MIB);
    (c.client_node, c.client) = writer;
    start_writes(&mut c, &own[1..]);
    let tid = c.on_client(|c| c.command(OsdId(0), json!({ "prefix": "version" }).to_string()));
    c.pass(Duration::from_millis(500));
    assert!(answer(&c, tid).is_none(), "it came after more than there should be in hand");

    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| answer(c, tid).is_some());
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    for osd in 0..3 {
        assert_eq!(in_hand(&mut c, osd), 0, "osd.{osd}");
    }
}

#[test]
fn clients_are_heard_again_when_what_fills_the_memory_is_another_osds() {
    let mut c = small_cluster();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    let own = objects(&c, 12, OsdId(0), true);
    start_writes(&mut c, &own);
    c.pass(Duration::from_millis(500));
    // Nobody sends them again.
    let (gone, _) = c.change_client();
    c.world.crash(gone);
    c.on_mon(|m| m.set_affinity(OsdId(0), 0));
    let leads = |c: &Cluster| own.iter().any(|o| c.client.borrow().primary_of(o) == OsdId(0));
    c.run_until(Duration::from_secs(60), |c| !leads(c));
    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| c.mon.borrow().all_clean());
    assert_eq!(in_hand(&mut c, 0), 0);
}

/// A cluster with 100 objects of 1 MiB that OSD 0 leads and has not in memory.
fn with_objects_on_disk() -> (Cluster, Vec<HObject>) {
    let mut c = small_cluster();
    let all = objects(&c, 100, OsdId(0), true);
    start_writes(&mut c, &all);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    restart(&mut c, &all[0]);
    (c, all)
}

/// OSD 0, which leads an object, starts again.
fn restart(c: &mut Cluster, object: &HObject) {
    c.crash(0);
    let leads = |c: &Cluster| c.client.borrow().primary_of(object) == OsdId(0);
    c.run_until(Duration::from_secs(60), |c| !leads(c));
    c.start(0);
    c.run_until(Duration::from_secs(60), |c| leads(c));
    c.wait_clean();
    c.call(object.clone(), vec![read(0, 1)], false);
}

/// Bytes that the store of OSD 0 keeps in memory of what was read.
fn kept(c: &mut Cluster) -> u64 {
    ask(c, 0, "cache status")["bluestore_buffers"].as_u64().expect("bytes")
}

/// So many after all of these were read.
fn kept_of(c: &mut Cluster, all: &[HObject]) -> u64 {
    for target in all {
        assert_eq!(c.call(target.clone(), vec![read(0, MIB)], false).result, 0);
    }
    kept(c)
}

/// `ceph config set osd osd_memory_target`, and the OSD has heard it.
fn set_memory(c: &mut Cluster, bytes: u64) {
    c.on_mon(|m| m.set_option("osd_memory_target", &bytes.to_string()));
    let get = json!({ "prefix": "config get", "var": "osd_memory_target" });
    c.run_until(Duration::from_secs(1), |c| {
        tell(c, 0, &get).2["osd_memory_target"] == *bytes.to_string()
    });
}

/// Not only the requests: more of them upon the same store took what it did not have.
#[test]
fn the_store_has_the_memory_that_the_mon_says() {
    let (mut c, all) = with_objects_on_disk();
    let some = kept_of(&mut c, &all);
    assert!((8 * MIB..=16 * MIB).contains(&some), "{some}");
    set_memory(&mut c, 1024 * MIB);
    let most = kept_of(&mut c, &all);
    assert!(most >= 100 * MIB, "{most}");
    // Its store is mounted by what its command line says.
    restart(&mut c, &all[0]);
    let most = kept_of(&mut c, &all);
    assert!(most >= 100 * MIB, "{most}");
    set_memory(&mut c, 32 * MIB);
    c.run_until(Duration::from_secs(1), |c| kept(c) <= 16 * MIB);
    assert!(kept_of(&mut c, &all) <= 16 * MIB);
}

/// A cluster in which a client has asked OSD 0 for 100 MiB, half of them in so many parts each, and
/// takes nothing of it.
fn with_stuck_reader(parts: u64) -> Cluster {
    let (mut c, all) = with_objects_on_disk();
    c.pause_client(OsdId(0), true);
    // All that is asked for comes in one receive.
    c.on_client(|c| {
        for (i, target) in all.iter().enumerate() {
            let parts = if i < 50 { 1 } else { parts };
            let part = |i| read(MIB / parts * i, MIB / parts);
            c.request(target.clone(), (0..parts).map(part).collect(), false);
        }
    });
    c
}

/// The client takes what it asked for, and everything is answered. How many bytes each of the last 100
/// reads gave.
fn unstuck(c: &mut Cluster) -> Vec<usize> {
    c.pause_client(OsdId(0), false);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    let client = c.client.borrow();
    assert!(client.done.values().all(|reply| reply.result == 0));
    let bytes = |reply: &MOsdOpReply| reply.ops.iter().map(|op| op.len()).sum();
    let reads =
        client.done.values().rev().filter(|reply| reply.flags & i64::from(flags::WRITE) == 0);
    let reads = reads.take(100).map(bytes).collect();
    drop(client);
    assert!(hits_of(Probe::ReadWaitedForRoom) > 0);
    c.run_until(Duration::from_secs(10), |c| in_hand(c, 0) == 0);
    reads
}

/// All reads gave what was there when they were asked for.
fn check_unstuck(c: &mut Cluster) {
    assert_eq!(unstuck(c), [MIB as usize; 100]);
}

#[test]
fn reads_wait_for_clients_that_do_not_take_what_they_asked_for() {
    let mut c = with_stuck_reader(1);
    let reader = c.osds[0];
    let mut most = 0;
    for _ in 0..1000 {
        c.pass(Duration::from_millis(1));
        most = most.max(c.world.unsent_bytes(reader) as u64);
    }
    // What may be unsent, and what was being read by then.
    assert!((16 * MIB..=20 * MIB).contains(&most), "{most}");
    check_unstuck(&mut c);
}

/// However short they are, and where they are read.
#[test]
fn thousands_of_short_requests_wait_for_their_client() {
    const BYTES: u64 = 16 << 10;
    let (mut c, all) = with_objects_on_disk();
    let reader = c.osds[0];
    let from_disk = |i: u64| (all[i as usize % 100].clone(), read(BYTES * (i / 100), BYTES));
    // Four blocks that stand in memory afterwards.
    let from_memory = |_: u64| (all[0].clone(), read(0, BYTES));
    let requests: [&dyn Fn(u64) -> (HObject, OsdOp); 2] = [&from_disk, &from_memory];
    for request in requests {
        c.pause_client(OsdId(0), true);
        c.on_client(|c| {
            for (target, op) in (0..6400).map(request) {
                c.request(target, vec![op], false);
            }
        });
        let mut most = 0;
        for _ in 0..1000 {
            c.pass(Duration::from_millis(1));
            most = most.max(c.world.unsent_bytes(reader) as u64);
        }
        // What may be unsent, and what may be answered until that is known.
        assert!((16 * MIB..=34 * MIB).contains(&most), "{most}");
        let stuck = c.change_client();
        assert_eq!(c.call(all[1].clone(), vec![read(0, 1)], false).result, 0);
        assert_eq!(c.call(all[0].clone(), vec![read(0, 1)], false).result, 0);
        (c.client_node, c.client) = stuck;
        c.pause_client(OsdId(0), false);
        c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
        let client = c.client.borrow();
        let newest = client.done.values().rev().take(6400);
        assert!(newest.into_iter().all(|reply| output(reply, 0).len() as u64 == BYTES));
        drop(client);
        c.run_until(Duration::from_secs(10), |c| in_hand(c, 0) == 0);
    }
}

/// Many requests that wait take memory, too, however short they are.
#[test]
fn a_client_whose_requests_wait_keeps_nobody_else_waiting() {
    const LIMIT: u64 = 8 * MIB;
    let mut c = small_cluster();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    let own = objects(&c, 400, OsdId(0), true);
    let mut clients = Vec::new();
    for _ in 0..2 {
        for _ in 0..10 {
            c.on_client(|c| {
                for target in &own {
                    c.request(target.clone(), vec![write_full(b"short")], true);
                }
            });
            c.pass(Duration::from_millis(5));
        }
        clients.push(c.change_client());
    }
    // Two thirds of it are theirs, and what came at once with the last. A third one is heard.
    let theirs = in_hand(&mut c, 0);
    assert!((LIMIT / 2..LIMIT).contains(&theirs), "{theirs}");
    c.world.set_slow_disks(slow, 1);
    for client in clients {
        (c.client_node, c.client) = client;
        c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    }
    c.run_until(Duration::from_secs(10), |c| in_hand(c, 0) == 0);
}

/// Each time it stops taking answers, reads are under way.
#[test]
fn what_was_read_for_a_client_is_not_held_until_it_has_taken_what_it_asked_for_before() {
    const BYTES: u64 = 16 << 10;
    let (mut c, all) = with_objects_on_disk();
    c.on_mon(|m| m.set_flags(maps::OsdMapFlags::NODEEP_SCRUB));
    let held = |c: &mut Cluster| {
        let perf = ask(c, 0, "perf dump");
        let number = |of: &str, name: &str| perf[of][name].as_i64().expect("a number");
        number("store", "data_read_bytes") - number("osd", "op_out_bytes")
    };
    let before = held(&mut c);
    c.on_client(|c| {
        for i in 0..6400 {
            let target = all[i as usize % 100].clone();
            c.request(target, vec![read(BYTES * (i / 100), BYTES)], false);
        }
    });
    let reader = c.change_client();
    let asker = (c.client_node, c.client.clone());
    let mut stops = 0;
    let mut most = 0;
    while reader.1.borrow().outstanding() > 0 {
        for paused in [true, false] {
            (c.client_node, c.client) = reader.clone();
            c.pause_client(OsdId(0), paused);
            (c.client_node, c.client) = asker.clone();
            c.pass(Duration::from_millis(if paused { 100 } else { 1 }));
            most = most.max(held(&mut c) - before);
        }
        stops += 1;
    }
    assert!(stops > 3, "{stops}");
    // What may be under way.
    assert!(most <= 3 * MIB as i64, "{most}");
}

#[test]
fn listings_wait_for_their_client() {
    let mut c = small_cluster();
    for i in 0..400 {
        let name = format!("{i}{}", "x".repeat(1000));
        c.on_client(|c| c.request(object(1, &name), vec![write_full(b"x")], true));
    }
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    let led = |c: &Cluster| {
        let client = c.client.borrow();
        let all = (0..8).map(|seed| PgId::new(PoolId(1), seed));
        all.into_iter()
            .find(|pgid| client.map.pg_to_up_acting(*pgid).acting_primary == Some(OsdId(0)))
    };
    let pgid = led(&c).expect("it leads one");
    c.pause_client(OsdId(0), true);
    c.on_client(|c| {
        for _ in 0..2000 {
            let op = OsdOp::new(OpCode::PGNLS, Pgls { count: 1000, start_epoch: 0 })
                .with_indata(denc::encode(&HObject::min()));
            c.request_of_pg(pgid, op);
        }
    });
    let mut most = 0;
    for _ in 0..1000 {
        c.pass(Duration::from_millis(1));
        most = most.max(c.world.unsent_bytes(c.osds[0]) as u64);
    }
    assert!((16 * MIB..=34 * MIB).contains(&most), "{most}");
    c.pause_client(OsdId(0), false);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
}

/// Whatever object its client names in it.
#[test]
fn a_listing_that_waits_is_not_one_of_the_reads_of_an_object() {
    const BYTES: u64 = 16 << 10;
    let (mut c, all) = with_objects_on_disk();
    assert_eq!(c.call(all[0].clone(), vec![read(0, BYTES)], false).result, 0);
    let targets = objects(&c, 102, OsdId(0), true).split_off(100);
    c.client.borrow_mut().done.clear();
    for (target, writes) in targets.into_iter().zip([false, true]) {
        let waited = hits_of(Probe::ReadWaitedForRoom);
        c.on_client(|c| {
            // More than is answered in one turn.
            for _ in 0..400 {
                c.request(all[0].clone(), vec![read(0, BYTES)], false);
            }
            let pool = c.map.pool(PoolId(1)).expect("it is there");
            let hash = pool.hash_key(&target.nspace, &target.key, &target.name);
            let op = OsdOp::new(OpCode::PGNLS, Pgls { count: 1000, start_epoch: 0 })
                .with_indata(denc::encode(&HObject::min()));
            let named = HObject { hash, ..target.clone() };
            c.request_with(named, vec![op], flags::READ, Default::default());
            c.request(target.clone(), vec![read(0, 1)], false);
            if writes {
                c.request(target.clone(), vec![write_full(b"new")], true);
            }
        });
        c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
        assert!(hits_of(Probe::ReadWaitedForRoom) >= waited + 2, "they were answered at once");
        let results: Vec<i32> = c.client.borrow().done.values().map(|r| r.result).collect();
        c.client.borrow_mut().done.clear();
        let absent = results.iter().filter(|r| **r == -Errno::ENOENT.0).count();
        let served = results.iter().filter(|r| **r >= 0).count();
        assert_eq!((absent, served), (1, 401 + usize::from(writes)));
    }
}

#[test]
fn reads_that_wait_for_their_client_outlast_an_interval() {
    let mut c = with_stuck_reader(1);
    c.pass(Duration::from_secs(1));
    c.crash(1);
    let is_up = |c: &Cluster| c.client.borrow().map.is_up(OsdId(1));
    c.run_until(Duration::from_secs(60), |c| !is_up(c));
    c.pass(Duration::from_secs(1));
    check_unstuck(&mut c);
}

/// A read that waited for room begins anew with its PG, and waits once more: it is one that a write of its
/// client must not pass, not two.
#[test]
fn a_read_that_waits_again_after_an_interval_counts_once() {
    let mut c = small_cluster();
    // Reads of PGs that nothing happens to, for a long time.
    c.on_mon(|m| m.create_pool(2, "alone", 1, 1, 8));
    c.wait_clean();
    let others = (0..).map(|i| object(2, &format!("o{i}")));
    let mut all: Vec<HObject> =
        others.filter(|o| c.client.borrow().primary_of(o) == OsdId(0)).take(40).collect();
    let target = objects(&c, 1, OsdId(0), true).remove(0);
    all.push(target.clone());
    start_writes(&mut c, &all);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    c.crash(0);
    c.run_until(Duration::from_secs(60), |c| c.mon.borrow().map.is_down(OsdId(0)));
    c.start(0);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().primary_of(&target) == OsdId(0));
    c.wait_clean();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 20_000);
    let request = |c: &mut Cluster, o: &HObject| {
        c.on_client(|c| c.request(o.clone(), vec![read(0, MIB)], false))
    };
    let tids: Vec<u64> = all.iter().map(|o| request(&mut c, o)).collect();
    c.pass(Duration::from_millis(100));
    c.crash(1);
    let pgid = c.client.borrow().pg_of(&target);
    c.run_until(Duration::from_secs(60), |c| {
        let stats = &c.mon.borrow().stats[&pgid];
        pg::StateBits(stats.state).has(pg::StateBits::ACTIVE) && stats.acting.len() == 2
    });
    c.on_client(|c| c.request(target.clone(), vec![write_full(b"new")], true));
    c.pass(Duration::from_secs(1));
    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    let client = c.client.borrow();
    let bytes = |tid| output(&client.done[tid], 0).len() as u64;
    assert!(tids.iter().all(|tid| bytes(tid) == MIB));
}

#[test]
fn writes_pass_the_reads_of_another_client_that_is_stuck() {
    // Of a read in two parts each one may have to wait.
    for parts in [1, 2] {
        let mut c = with_stuck_reader(parts);
        c.pass(Duration::from_secs(1));
        let all = objects(&c, 100, OsdId(0), true);
        let stuck = c.change_client();
        for target in all {
            c.on_client(|c| c.request(target, vec![write_full(b"new")], true));
            c.run_until(Duration::from_secs(10), |c| c.client.borrow().outstanding() == 0);
        }
        // Nothing more was read for it.
        let unsent = c.world.unsent_bytes(c.osds[0]) as u64;
        assert!(unsent <= 20 * MIB, "{unsent}");
        (c.client_node, c.client) = stuck;
        let bytes = unstuck(&mut c);
        let old = bytes.iter().filter(|n| **n == MIB as usize).count();
        assert!((10..=50).contains(&old), "{old}");
        assert_eq!(bytes.iter().filter(|n| **n == 3).count(), 100 - old);
    }
}

#[test]
fn writes_of_a_client_do_not_pass_its_own_reads() {
    for others_write in [false, true] {
        let mut c = with_stuck_reader(2);
        c.pass(Duration::from_secs(1));
        let all = objects(&c, 100, OsdId(0), true);
        if others_write {
            // What waits for a write that passed it goes before those that come then.
            let slow = c.osds[0];
            c.world.set_slow_disks(slow, 100);
            let stuck = c.change_client();
            start_writes(&mut c, &all[60..70]);
            c.pass(Duration::from_millis(1));
            (c.client_node, c.client) = stuck;
        }
        for target in &all[60..80] {
            c.on_client(|c| c.request(target.clone(), vec![write_full(b"new")], true));
        }
        c.pass(Duration::from_secs(1));
        c.world.set_slow_disks(c.osds[0], 1);
        check_unstuck(&mut c);
    }
}

#[test]
fn no_write_passes_a_read_whose_turn_it_is() {
    let mut c = with_stuck_reader(1);
    c.pass(Duration::from_secs(1));
    let last = objects(&c, 100, OsdId(0), true).pop().expect("an object");
    let write = |c: &mut Cluster, data: &[u8]| {
        c.on_client(|c| c.request(last.clone(), vec![write_full(data)], true));
    };
    let replica = c.osds[1];
    c.world.set_slow_disks(replica, 20_000);
    let reader = c.change_client();
    write(&mut c, b"one");
    c.pass(Duration::from_millis(100));
    let writer = std::mem::replace(&mut c.client, reader.1);
    let writer = (std::mem::replace(&mut c.client_node, reader.0), writer);
    // Everything but the last one is read; that waits for the write.
    c.pause_client(OsdId(0), false);
    c.pass(Duration::from_millis(500));
    assert_eq!((c.client.borrow().outstanding(), writer.1.borrow().outstanding()), (1, 1));
    let reader = std::mem::replace(&mut c.client, writer.1);
    c.client_node = writer.0;
    write(&mut c, b"another");
    c.pass(Duration::from_millis(100));
    c.world.set_slow_disks(replica, 1);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    c.run_until(Duration::from_secs(60), |_| reader.borrow().outstanding() == 0);
    let reader = reader.borrow();
    let reply = reader.done.values().next_back().expect("its answer");
    assert_eq!(output(reply, 0), b"one"[..]);
}

/// Sources with 1 MiB of data or of omap each, which is half of what copies may take.
fn write_sources(c: &mut Cluster, count: usize) {
    let values: Values =
        (0..1200u32).map(|i| (i.to_be_bytes()[..].into(), vec![9; 900].into())).collect();
    for i in 0..count {
        let op = match i % 3 {
            0 => OsdOp::new(OpCode::OMAPSETVALS, wire::msg::OpArgs::default())
                .with_indata(denc::encode(&values)),
            _ => write_full(&vec![i as u8; MIB as usize]),
        };
        assert_eq!(c.call(object(1, &format!("s{i}")), vec![op], true).result, 0);
    }
}

/// What an object holds, as far as one request says.
fn content(c: &mut Cluster, name: &str) -> (bytes::Bytes, OmapGetValsOut) {
    let omap = OmapGetValsIn {
        start_after: (&1000u32.to_be_bytes()[..]).into(),
        max: 1000,
        ..Default::default()
    };
    let omap = OsdOp::new(OpCode::OMAPGETVALS, wire::msg::OpArgs::default())
        .with_indata(denc::encode(&omap));
    let reply = c.call(object(1, name), vec![read(0, 0), omap], false);
    assert_eq!(reply.result, 0, "{name}");
    (output(&reply, 0), denc::decode(&output(&reply, 1)).expect("an omap"))
}

/// Of a pool of size 1, so that nothing comes from other OSDs but what is read for copies.
#[test]
fn copies_and_what_is_repeated_wait_for_memory() {
    const COUNT: usize = 45;
    let options = [("osd_memory_target".to_owned(), "32M".to_owned())].into();
    let mut c = Cluster::with_disks(7, &[512 * MIB; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 1, 1, 8));
    c.wait_clean();
    write_sources(&mut c, COUNT);
    c.pass(Duration::from_secs(1));
    c.osds.clone().into_iter().for_each(|node| c.world.set_slow_disks(node, 20));
    c.on_client(|c| {
        for i in 0..COUNT {
            let source = copy_from(1, &format!("s{i}"), SnapId::HEAD);
            c.request(object(1, &format!("t{i}")), vec![source], true);
            if i % 5 == 0 {
                let args = WriteSame { offset: 0, length: MIB, data_length: 512 };
                let op = OsdOp::new(OpCode::WRITESAME, args).with_indata(vec![i as u8; 512]);
                c.request(object(1, &format!("w{i}")), vec![op], true);
            }
        }
    });
    let mut most = 0;
    c.run_until(Duration::from_secs(120), |c| {
        (0..3).for_each(|osd| most = most.max(in_hand(c, osd)));
        c.client.borrow().outstanding() == 0
    });
    assert!(hits_of(Probe::WriteWaitedForRoom) > 0);
    // 2 MiB for copies, as much for the long reads of their sources, and the requests themselves.
    assert!(most > MIB && most <= 9 * MIB / 2, "{most} bytes");
    assert!(c.client.borrow().done.values().all(|reply| reply.result == 0));
    for i in 0..COUNT {
        assert!(content(&mut c, &format!("t{i}")) == content(&mut c, &format!("s{i}")), "{i}");
        if i % 5 == 0 {
            assert_eq!(content(&mut c, &format!("w{i}")).0, vec![i as u8; MIB as usize]);
        }
    }
    for osd in 0..3 {
        assert_eq!(in_hand(&mut c, osd), 0, "osd.{osd}");
    }
}

/// A copy of a source whose PG stops serving on the way has memory that others wait for.
#[test]
fn a_copy_whose_source_does_not_come_keeps_no_memory_from_others() {
    copy_without_source("32M", 6, 1, false);
}

/// It is asked for again and again.
#[test]
fn a_copy_whose_source_is_refused_keeps_no_memory_from_others() {
    copy_without_source("256M", 12, 10, true);
}

/// With a source, and another write that needs room for this many MiB.
fn copy_without_source(memory: &str, source_mib: u64, other_mib: u64, is_refused: bool) {
    let options = [("osd_memory_target".to_owned(), memory.to_owned())].into();
    let mut c = Cluster::with_disks(8, &[512 * MIB; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 8));
    c.on_mon(|m| m.create_pool(2, "other", 3, 3, 1));
    c.wait_clean();
    let source = object(2, "s");
    let half = vec![5; (source_mib * MIB) as usize];
    assert_eq!(c.call(source.clone(), vec![write_full(&half)], true).result, 0);
    let leader = c.client.borrow().primary_of(&source);
    // Its copies are on the leader and another one: its interval lasts when the third is away.
    let (target, here) = objects(&c, 20, leader, false)
        .into_iter()
        .find_map(|o| {
            let client = c.client.borrow();
            let acting = client.map.pg_to_up_acting(client.pg_of(&o)).acting;
            acting.contains(&leader).then(|| (o.clone(), client.primary_of(&o)))
        })
        .expect("some are on both");
    let away = (0..3).find(|i| ![here, leader].contains(&OsdId(*i))).expect("there are three");
    c.crash(leader.0 as usize);
    let leads = |c: &Cluster| c.client.borrow().primary_of(&source) == leader;
    c.run_until(Duration::from_secs(60), |c| !leads(c));
    c.start(leader.0 as usize);
    c.run_until(Duration::from_secs(60), |c| leads(c));
    c.wait_clean();
    // What it is, the leader has in memory then.
    c.call(source.clone(), vec![read(0, 1)], false);
    // It has to be read from the disk, which takes its time.
    let slow = c.osds[leader.0 as usize];
    c.world.set_slow_disks(slow, 2_000);
    let copy = copy_from(2, "s", SnapId::HEAD);
    let copied = c.on_client(|c| c.request(target.clone(), vec![copy], true));
    c.run_until(Duration::from_secs(5), |c| in_hand(c, here.0) >= source_mib * MIB);
    c.off[away as usize] = true;
    c.crash(away as usize);
    c.run_until(Duration::from_secs(20), |c| c.mon.borrow().map.is_down(OsdId(away)));
    c.world.set_slow_disks(slow, 1);
    if is_refused {
        // Another one leads its PG for a while. When it does not any more, who copies hears of that last, and so many
        // wait there that no more are taken.
        const WHOLE: u32 = 1 << 16;
        c.on_mon(|m| m.set_affinity(leader, 0));
        c.run_until(Duration::from_secs(5), |c| !leads(c));
        c.pass(Duration::from_secs(1));
        let copies = c.osds[here.0 as usize];
        c.world.set_paused(copies, true);
        c.on_mon(|m| m.set_affinity(leader, WHOLE));
        c.run_until(Duration::from_secs(5), |c| leads(c));
        c.on_client(|c| {
            c.know_no_backoffs();
            for _ in 0..8192 {
                c.request(source.clone(), vec![read(0, 1)], false);
            }
        });
        c.pass(Duration::from_millis(500));
        let refused = hits_of(Probe::CopyRefused);
        c.world.set_paused(copies, false);
        c.run_until(Duration::from_secs(5), |_| hits_of(Probe::CopyRefused) > refused);
    }
    let args = WriteSame { offset: 0, length: other_mib * MIB, data_length: 512 };
    let op = OsdOp::new(OpCode::WRITESAME, args).with_indata(vec![7; 512]);
    let same = objects(&c, 20, here, true).into_iter().find(|o| *o != target).expect("another");
    let repeated = c.on_client(|c| c.request(same, vec![op], true));
    c.run_until(Duration::from_secs(20), |c| c.client.borrow().done.contains_key(&repeated));
    assert!(!c.client.borrow().done.contains_key(&copied), "its source came all the same");
    c.start(away as usize);
    assert_eq!(c.wait_for(copied).result, 0);
    let got = c.call(target, vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), half);
}

/// A cluster of which only OSD 0 is left, with a PG of its own that it serves: objects of PGs without enough copies
/// that it leads, and one that it serves.
fn with_stuck_pgs(count: usize) -> (Cluster, Vec<HObject>, HObject) {
    let mut c = small_cluster();
    c.on_mon(|m| m.create_pool(2, "alone", 1, 1, 8));
    c.wait_clean();
    let alone = (0..).map(|i| object(2, &format!("o{i}")));
    let served = {
        let client = c.client.borrow();
        alone.into_iter().find(|o| client.primary_of(o) == OsdId(0)).expect("one of them")
    };
    for osd in [1, 2] {
        c.off[osd as usize] = true;
        c.crash(osd as usize);
        c.run_until(Duration::from_secs(60), |c| c.client.borrow().map.is_down(OsdId(osd)));
    }
    let stuck = objects(&c, count, OsdId(0), true);
    (c, stuck, served)
}

/// All are there again, and everything is answered.
fn revive(c: &mut Cluster) {
    (1..3).for_each(|osd| c.start(osd));
    c.run_until(Duration::from_secs(120), |c| c.client.borrow().outstanding() == 0);
    c.run_until(Duration::from_secs(10), |c| in_hand(c, 0) == 0);
}

#[test]
fn requests_of_clients_that_left_keep_no_memory_from_others() {
    // Its PGs go through peering for as long as another OSD does not answer: requests wait here.
    let mut c = small_cluster();
    let (silent, dead) = (c.osds[1], 2);
    c.off[dead] = true;
    let all = objects(&c, 12, OsdId(0), true);
    c.world.set_paused(silent, true);
    c.crash(dead);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().map.is_down(OsdId(2)));
    start_writes(&mut c, &all[..1]);
    c.on_client(|c| c.request(all[0].clone(), vec![read(0, 1)], false));
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= MIB);
    let (gone, _) = c.change_client();
    c.world.crash(gone);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) == 0);
    assert!(hits_of(Probe::OpsAbandoned) > 0);
    c.world.set_paused(silent, false);
    assert_eq!(c.call(all[0].clone(), vec![read(0, 1)], false).result, -Errno::ENOENT.0);
}

#[test]
fn a_pg_that_does_not_serve_keeps_nobody_from_those_that_do() {
    let (mut c, stuck, served) = with_stuck_pgs(40);
    for _ in 0..3 {
        start_writes(&mut c, &stuck);
        c.pass(Duration::from_secs(1));
        assert_eq!(c.call(served.clone(), vec![write_full(b"new")], true).result, 0);
        assert_eq!(in_hand(&mut c, 0), 0);
        let (gone, _) = c.change_client();
        c.world.crash(gone);
    }
    start_writes(&mut c, &stuck);
    revive(&mut c);
    for target in stuck {
        let got = c.call(target, vec![read(0, 1)], false);
        assert_eq!(output(&got, 0), [7][..]);
    }
}

#[test]
fn requests_of_a_client_that_cannot_hold_them_wait_here() {
    let (mut c, stuck, served) = with_stuck_pgs(40);
    c.on_client(|c| {
        c.know_no_backoffs();
        for target in &stuck {
            c.request(target.clone(), vec![write_full(b"short")], true);
        }
    });
    assert_eq!(c.call(served, vec![write_full(b"new")], true).result, 0);
    assert!(in_hand(&mut c, 0) > 0 && c.client.borrow().backoffs == 0);
    revive(&mut c);
}

/// Each write of an object is seen by the read that comes behind it, however often their PG stops serving.
#[test]
fn a_client_holds_thousands_of_requests_and_sends_them_in_order() {
    // Twice as many requests, more than would wait here.
    const COUNT: u32 = 4200;
    let (mut c, stuck, served) = with_stuck_pgs(3);
    let first = c.on_client(|c| {
        let request = |i: u32| {
            let target = stuck[i as usize % 3].clone();
            let write = c.request(target.clone(), vec![write_full(&i.to_le_bytes())], true);
            c.request(target, vec![read(0, 0)], false);
            write
        };
        (0..COUNT).map(request).min().expect("the first")
    });
    c.pass(Duration::from_secs(2));
    assert_eq!(c.call(served, vec![write_full(b"new")], true).result, 0);
    assert!(c.client.borrow().backoffs > 0 && c.client.borrow().outstanding() > 0);
    revive(&mut c);
    let client = c.client.borrow();
    for i in 0..COUNT {
        let reply = &client.done[&(first + u64::from(i) * 2 + 1)];
        assert_eq!(output(reply, 0), i.to_le_bytes()[..], "{i}");
    }
}
