//! Where requests go, and when they are sent again.

use crate::rig::{OSD_PORT, POOL, Rig, addrs, object, snapc};
use client::{ObjectOp, Outcome, Waiting};
use maps::{OsdMapFlags, PgPool, PoolFlags, PoolType};
use types::{Epoch, OsdId, PgId, PoolId, ShardId, SnapId};
use wire::msg::{BackoffOp, MOsdBackoff, Payload, flags, kind};

fn write(name: &str) -> ObjectOp {
    ObjectOp::new(object(name)).write_full("x")
}

/// Everything that an OSD has received: tid and attempt.
fn received(rig: &mut Rig, osd: usize) -> Vec<(u64, i32)> {
    let all = std::iter::from_fn(|| rig.try_request(osd));
    all.map(|a| (a.tid, a.op.retry_attempt)).collect()
}

#[test]
fn after_a_lost_connection_everything_is_sent_again_in_order() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let ids: Vec<_> = (0..5).map(|_| rig.submit(write(&name))).collect();
    let first: Vec<_> = std::iter::from_fn(|| rig.try_request(0)).collect();
    rig.reply(&first[1], |_| ());
    rig.hang_up(0);
    rig.run_secs(1);
    let again: Vec<_> = std::iter::from_fn(|| rig.try_request(0)).collect();
    let tids: Vec<u64> = again.iter().map(|a| a.tid).collect();
    assert_eq!(tids, [0, 2, 3, 4].map(|i: usize| first[i].tid));
    for asked in &again {
        assert_eq!((asked.op.retry_attempt, asked.op.has_flag(flags::RETRY)), (1, true));
        // An answer to the first attempt is none to the second.
        rig.reply(asked, |r| r.retry_attempt = 0);
    }
    assert!(rig.is_pending(ids[0]));
    for asked in &again {
        rig.reply(asked, |_| ());
    }
    for id in ids {
        assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
    }
    assert!(rig.done().is_empty(), "each ended once");
}

#[test]
fn a_new_primary_gets_what_the_old_one_had_and_the_old_one_is_not_heard_any_more() {
    let mut rig = Rig::new(4);
    let name = rig.name_in(0);
    let id = rig.submit(write(&name));
    let old = rig.request(0);
    rig.remap(0, &[2, 0, 1]);
    // A map comes by another OSD's word, or here: because the client asked.
    rig.run_secs(20);
    let new = rig.request(2);
    assert_eq!((new.tid, new.op.retry_attempt), (old.tid, 1));
    rig.reply(&old, |r| r.retry_attempt = 1);
    assert!(rig.is_pending(id));
    rig.reply(&new, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
}

/// An OSD gives the client all maps from an epoch on, as it does when it sees an old one.
fn share_maps(rig: &mut Rig, osd: usize, from: Epoch) {
    let link = *rig.osds[osd].1.borrow().links.last().expect("the client is there");
    let m = rig.maps.borrow().message(u64::from(from.0));
    rig.osd_says(osd, link, m.encode());
}

#[test]
fn a_new_replica_is_no_reason_to_send_again() {
    let mut rig = Rig::new(4);
    let name = rig.name_in(0);
    let id = rig.submit(write(&name));
    let asked = rig.request(0);
    rig.remap(0, &[0, 3, 1]);
    let epoch = rig.maps.borrow().now.epoch;
    share_maps(&mut rig, 0, epoch);
    assert_eq!(rig.act(|_, c| c.map().unwrap().epoch), epoch);
    assert!(rig.try_request(0).is_none());
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
}

#[test]
fn a_primary_that_went_and_came_back_between_two_messages_gets_it_again() {
    let mut rig = Rig::new(4);
    let name = rig.name_in(0);
    rig.submit(write(&name));
    let asked = rig.request(0);
    let from = rig.maps.borrow().now.epoch.next();
    rig.remap(0, &[1, 2, 0]);
    rig.remap(0, &[0, 1, 2]);
    share_maps(&mut rig, 0, from);
    assert_eq!(received(&mut rig, 0), [(asked.tid, 1)]);
    assert!(rig.try_request(1).is_none());
}

#[test]
fn after_a_jump_to_a_full_map_everything_is_sent_again() {
    let mut rig = Rig::new(4);
    let name = rig.name_in(0);
    rig.submit(write(&name));
    let asked = rig.request(0);
    for _ in 0..3 {
        rig.maps.borrow_mut().change(|_, _| ());
    }
    share_maps(&mut rig, 0, Epoch::ZERO);
    assert_eq!(received(&mut rig, 0), [(asked.tid, 1)]);
}

#[test]
fn a_pool_can_ask_for_everything_again() {
    let mut rig = Rig::new(4);
    let name = rig.name_in(0);
    rig.submit(write(&name));
    let asked = rig.request(0);
    rig.change(|inc, map| {
        let mut pool = map.pool(POOL).unwrap().clone();
        pool.last_force_op_resend = inc.epoch;
        inc.new_pools.insert(POOL, pool);
    });
    let epoch = rig.maps.borrow().now.epoch;
    share_maps(&mut rig, 0, epoch);
    assert_eq!(received(&mut rig, 0), [(asked.tid, 1)]);
    rig.maps.borrow_mut().change(|_, _| ());
    share_maps(&mut rig, 0, epoch.next());
    assert_eq!(received(&mut rig, 0), [], "once");
}

#[test]
fn a_split_sends_again_what_is_in_the_pg_that_splits() {
    let mut rig = Rig::new(4);
    let names = rig.names_in(0, 40);
    let moving = |name: &String| crate::rig::hash_of(name) & 0xf == 8;
    let mover = names.iter().find(|n| moving(n)).unwrap().clone();
    rig.submit(write(&mover));
    let asked = rig.request(0);
    assert_eq!(asked.op.pgid.pgid.seed, 0);
    rig.change(|inc, map| {
        let mut pool = map.pool(POOL).unwrap().clone();
        (pool.pg_num, pool.pgp_num) = (16, 16);
        inc.new_pools.insert(POOL, pool);
        for seed in 8..16 {
            let pg = PgId::new(POOL, seed);
            inc.new_pg_upmap.insert(pg, [3, 1, 2].map(OsdId).into_iter().collect());
        }
    });
    let epoch = rig.maps.borrow().now.epoch;
    share_maps(&mut rig, 0, epoch);
    let again = rig.request(3);
    assert_eq!((again.tid, again.op.pgid.pgid.seed), (asked.tid, 8));
}

#[test]
fn an_osd_that_is_back_at_another_address_is_dialled_there() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.submit(write(&name));
    let asked = rig.request(0);
    let node = rig.osds[0].0;
    rig.world.crash(node);
    rig.run_secs(5);
    assert!(rig.is_pending(id));
    let waits = rig.act(|_, c| c.waiting());
    assert_eq!(waits, [(id, Waiting::Connection(OsdId(0)))]);
    // It starts with nonce 2: by the old map the client dials somebody who is not there.
    rig.world.start(node);
    rig.run_secs(6);
    assert!(rig.try_request(0).is_none());
    rig.change(|inc, _| inc.mark_up(OsdId(0), addrs(node, 2)));
    rig.run_secs(1);
    let again = received(&mut rig, 0);
    assert!(matches!(again[..], [(tid, 1..)] if tid == asked.tid), "{again:?}");
    let at = rig.maps.borrow().now.client_addrs(OsdId(0)).unwrap().clone();
    assert_eq!(at.v2().unwrap().sock.unwrap().port(), OSD_PORT);
}

#[test]
fn a_pg_without_osds_is_waited_for_and_newer_maps_are_asked_for() {
    let mut rig = Rig::new(3);
    rig.remap(0, &[]);
    let epoch = rig.maps.borrow().now.epoch;
    rig.act(move |now, c| c.wait_for_map(now, epoch));
    let name = rig.name_of_pg0();
    let id = rig.submit(write(&name));
    rig.run_secs(1);
    let waits = rig.act(|_, c| c.waiting());
    assert_eq!(waits, [(id, Waiting::Primary(PgId::new(POOL, 0)))]);
    rig.remap(0, &[1, 2]);
    rig.run_secs(1);
    let asked = rig.request(1);
    assert_eq!(asked.op.retry_attempt, 0);
}

#[test]
fn shards_of_erasure_coded_pools_are_named() {
    let mut rig = Rig::new(4);
    rig.change(|inc, _| {
        let pool = PgPool::new(PoolType::ERASURE, 3, 2, 0, 1);
        inc.new_pools.insert(PoolId(5), pool);
        inc.new_pool_names.insert(PoolId(5), "ec".into());
        let pg = PgId::new(PoolId(5), 0);
        let osds = [OsdId::NONE, OsdId(2), OsdId(1)];
        inc.new_pg_upmap.insert(pg, osds.into_iter().collect());
    });
    rig.submit(ObjectOp::new(client::Object::new(PoolId(5), "x")).stat());
    let asked = rig.request(2);
    assert_eq!(asked.op.pgid.shard, ShardId(1));
}

#[test]
fn a_broken_pool_fails_at_once() {
    let mut rig = Rig::new(3);
    rig.change(|inc, map| {
        let mut pool = map.pool(POOL).unwrap().clone();
        pool.flags |= PoolFlags::EIO;
        inc.new_pools.insert(POOL, pool);
    });
    let epoch = rig.maps.borrow().now.epoch;
    rig.act(move |now, c| c.wait_for_map(now, epoch));
    let id = rig.submit(write("x"));
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, types::Errno::EIO);
}

// ---- flags of the map ----

fn set_flags(rig: &mut Rig, flags: OsdMapFlags) {
    rig.change(move |inc, _| inc.new_flags = Some(OsdMapFlags::FRESH | flags));
    let epoch = rig.maps.borrow().now.epoch;
    rig.act(move |now, c| c.wait_for_map(now, epoch));
}

#[test]
fn pauserd_holds_reads_and_pausewr_holds_writes() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let read = || ObjectOp::new(object(&name)).stat();
    for (flag, held_op, free_op) in
        [(OsdMapFlags::PAUSEWR, write(&name), read()), (OsdMapFlags::PAUSERD, read(), write(&name))]
    {
        set_flags(&mut rig, flag);
        let held = rig.submit(held_op);
        let free = rig.submit(free_op);
        let asked = rig.request(0);
        rig.reply(&asked, |_| ());
        assert!(matches!(rig.outcome(free), Outcome::Op(Ok(_))));
        assert!(rig.try_request(0).is_none());
        assert_eq!(rig.act(|_, c| c.waiting()), [(held, Waiting::Flag)]);
        // The client keeps asking: it learns of the end by itself.
        set_flags(&mut rig, OsdMapFlags::NONE);
        let asked = rig.request(0);
        rig.reply(&asked, |_| ());
        assert!(matches!(rig.outcome(held), Outcome::Op(Ok(_))));
    }
}

#[test]
fn a_full_cluster_holds_writes_but_not_those_that_want_to_try() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    // In flight when the cluster gets full: OSDs drop it, so it is sent again afterwards.
    let early = rig.submit(write(&name));
    let first = rig.request(0);
    set_flags(&mut rig, OsdMapFlags::FULL);
    let late = rig.submit(write(&name));
    let remove = rig.submit(ObjectOp::new(object(&name)).remove().full_try());
    let asked = rig.request(0);
    assert!(asked.op.has_flag(flags::FULL_TRY));
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(remove), Outcome::Op(Ok(_))));
    assert!(rig.try_request(0).is_none());
    set_flags(&mut rig, OsdMapFlags::NONE);
    let again = rig.request(0);
    assert_eq!((again.tid, again.op.retry_attempt), (first.tid, 1));
    rig.reply(&again, |_| ());
    let other = rig.request(0);
    rig.reply(&other, |_| ());
    for id in [early, late] {
        assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
    }
}

#[test]
fn a_full_pool_holds_writes_to_it() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let set = |rig: &mut Rig, full: bool| {
        rig.change(move |inc, map| {
            let mut pool = map.pool(POOL).unwrap().clone();
            let flag = PoolFlags::FULL | PoolFlags::FULL_QUOTA;
            pool.flags = if full { pool.flags.with(flag) } else { pool.flags.without(flag) };
            inc.new_pools.insert(POOL, pool);
        });
        let epoch = rig.maps.borrow().now.epoch;
        rig.act(move |now, c| c.wait_for_map(now, epoch));
    };
    set(&mut rig, true);
    let id = rig.submit(write(&name));
    assert!(rig.try_request(0).is_none());
    set(&mut rig, false);
    let asked = rig.request(0);
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
}

// ---- backoffs ----

fn backoff(rig: &mut Rig, asked: &crate::rig::Asked, op: BackoffOp, whole_pg: bool) {
    let one = asked.op.object.clone();
    let (begin, end) = if whole_pg {
        use maps::PgIdExt;
        let pg = asked.op.pgid.pgid;
        (pg.first_object(), pg.end_of_objects(crate::rig::PG_NUM))
    } else {
        (one.clone(), one)
    };
    let m = MOsdBackoff { pgid: asked.op.pgid, epoch: asked.op.epoch, op, id: 5, begin, end };
    rig.osd_says(asked.osd, asked.link, m.encode());
}

#[test]
fn a_backoff_holds_its_range_until_it_is_lifted() {
    let mut rig = Rig::new(3);
    let names = rig.names_in(0, 2);
    for whole_pg in [false, true] {
        let first = rig.submit(write(&names[0]));
        let asked = rig.request(0);
        backoff(&mut rig, &asked, BackoffOp::Block, whole_pg);
        let ack: MOsdBackoff = rig.other_message(0).unwrap().1.decode().unwrap();
        assert_eq!((ack.op, ack.id, ack.pgid), (BackoffOp::AckBlock, 5, asked.op.pgid));
        let same = rig.submit(write(&names[0]));
        let other = rig.submit(write(&names[1]));
        let free: Vec<_> = std::iter::from_fn(|| rig.try_request(0)).collect();
        let free_names: Vec<_> = free.iter().map(|a| a.name()).collect();
        let expected = if whole_pg { vec![] } else { vec![names[1].clone()] };
        assert_eq!(free_names, expected);
        let pg = asked.op.pgid.pgid;
        let waits = rig.act(|_, c| c.waiting());
        assert!(waits.contains(&(same, Waiting::Backoff(pg, OsdId(0)))), "{waits:?}");
        backoff(&mut rig, &asked, BackoffOp::Unblock, whole_pg);
        let again: Vec<_> = std::iter::from_fn(|| rig.try_request(0)).collect();
        assert_eq!((again[0].tid, again[0].op.retry_attempt), (asked.tid, 1));
        assert!(again.is_sorted_by_key(|a| a.tid));
        assert_eq!(again.len(), if whole_pg { 3 } else { 2 });
        for a in free.iter().chain(&again) {
            rig.reply(a, |_| ());
        }
        for id in [first, same, other] {
            assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
        }
    }
}

#[test]
fn a_backoff_ends_with_the_connection() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    rig.submit(write(&name));
    let asked = rig.request(0);
    backoff(&mut rig, &asked, BackoffOp::Block, true);
    rig.hang_up(0);
    rig.run_secs(1);
    assert_eq!(received(&mut rig, 0), [(asked.tid, 1)]);
}

// ---- others ----

#[test]
fn a_slow_osd_is_pinged_and_the_mon_asked_for_a_map() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    rig.submit(write(&name));
    rig.maps.borrow_mut().asked.clear();
    rig.run_secs(20);
    let (_, ping) = rig.other_message(0).unwrap();
    assert_eq!(ping.header.kind, kind::PING);
    let next = u64::from(rig.maps.borrow().now.epoch.next().0);
    assert_eq!(rig.maps.borrow().asked.last(), Some(&(next, 1)));
}

#[test]
fn snapshots_that_are_removed_vanish_from_the_contexts_of_writes_in_flight() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    rig.submit(write(&name).with_snaps(snapc(9, &[9, 7, 4])));
    let asked = rig.request(0);
    assert_eq!(asked.op.snapc, snapc(9, &[9, 7, 4]));
    rig.change(|inc, _| {
        let removed = [SnapId(7)].into_iter().collect();
        inc.new_removed_snaps.insert(POOL, removed);
    });
    let epoch = rig.maps.borrow().now.epoch;
    share_maps(&mut rig, 0, epoch);
    rig.hang_up(0);
    rig.run_secs(1);
    assert_eq!(rig.request(0).op.snapc, snapc(9, &[9, 4]));
}
