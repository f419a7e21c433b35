//! Maps as they come: whole, in steps, with gaps, damaged.

use crate::rig::{POOL, Rig, fsid, object};
use client::{ObjectOp, Outcome};
use types::{Epoch, Errno, PoolId, SnapId, Uuid};
use wire::msg::{MOsdMap, OutMessage, Payload};

fn epoch(rig: &mut Rig) -> Epoch {
    rig.act(|_, c| c.map().unwrap().epoch)
}

fn mon_says(rig: &mut Rig, message: OutMessage) {
    let (node, state) = rig.mons[0].clone();
    let link = *state.borrow().links.last().unwrap();
    state.borrow_mut().outbox.push((link, message));
    rig.nudge(node);
    rig.run();
}

#[test]
fn the_first_map_is_full_and_later_ones_come_in_steps() {
    let mut rig = Rig::new(3);
    let start = epoch(&mut rig);
    assert_eq!(start, rig.maps.borrow().now.epoch);
    assert_eq!(rig.maps.borrow().asked, [(0, 1)]);
    for _ in 0..3 {
        rig.maps.borrow_mut().change(|inc, _| inc.new_pool_max = Some(9));
    }
    let newest = rig.maps.borrow().now.epoch;
    let id = rig.act(move |now, c| c.wait_for_map(now, newest));
    assert!(matches!(rig.outcome(id), Outcome::Map(Ok(e)) if e == newest));
    assert_eq!(rig.maps.borrow().asked.last(), Some(&(u64::from(start.0) + 1, 1)));
    let same = rig.maps.borrow().now.clone();
    assert!(rig.act(move |_, c| **c.map().unwrap() == same));
}

#[test]
fn a_gap_is_bridged_by_a_full_map() {
    let mut rig = Rig::new(3);
    let have = epoch(&mut rig);
    for _ in 0..4 {
        rig.maps.borrow_mut().change(|_, _| ());
    }
    let mut m = rig.maps.borrow().message(u64::from(have.0) + 2);
    mon_says(&mut rig, m.clone().encode());
    // Nothing in it fits; the client asked for a full map and got it.
    assert_eq!(rig.maps.borrow().asked.last(), Some(&(0, 1)));
    assert_eq!(epoch(&mut rig), rig.maps.borrow().now.epoch);
    // A message with a full map after the gap, and steps from there.
    let have = epoch(&mut rig);
    for _ in 0..4 {
        rig.maps.borrow_mut().change(|_, _| ());
    }
    let full = Epoch(have.0 + 2);
    m = rig.maps.borrow().message(u64::from(full.0) + 1);
    m.fulls.insert(full, rig.maps.borrow().fulls[&full].clone());
    mon_says(&mut rig, m.encode());
    assert_eq!(epoch(&mut rig), Epoch(have.0 + 4));
}

#[test]
fn damaged_and_foreign_maps_are_not_used() {
    let mut rig = Rig::new(3);
    let have = epoch(&mut rig);
    rig.maps.borrow_mut().change(|_, _| ());
    let good = rig.maps.borrow().message(u64::from(have.0) + 1);
    let foreign = MOsdMap { fsid: Uuid::from_random(99), ..good.clone() };
    mon_says(&mut rig, foreign.encode());
    assert_eq!(epoch(&mut rig), have);
    let mut damaged = good.clone();
    for bytes in damaged.incrementals.values_mut() {
        let mut copy = bytes.to_vec();
        copy[40] ^= 1;
        *bytes = copy.into();
    }
    assert_eq!(damaged.fsid, fsid());
    mon_says(&mut rig, damaged.encode());
    // The damaged step was not taken; the full map was asked for instead.
    assert_eq!(epoch(&mut rig), have.next());
    assert_eq!(rig.maps.borrow().asked.last(), Some(&(0, 1)));
}

#[test]
fn old_maps_change_nothing() {
    let mut rig = Rig::new(3);
    let have = epoch(&mut rig);
    let old = rig.maps.borrow().message(1);
    mon_says(&mut rig, old.encode());
    assert_eq!(epoch(&mut rig), have);
}

#[test]
fn pool_names_are_looked_up_in_the_newest_map() {
    let mut rig = Rig::new(3);
    let id = rig.act(|now, c| c.lookup_pool(now, "rbd"));
    assert!(matches!(rig.outcome(id), Outcome::Pool(Ok(POOL))));
    rig.make_pool(PoolId(3), "new", 4);
    let id = rig.act(|now, c| c.lookup_pool(now, "new"));
    assert!(matches!(rig.outcome(id), Outcome::Pool(Ok(PoolId(3)))));
    let id = rig.act(|now, c| c.lookup_pool(now, "never"));
    let Outcome::Pool(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
    assert_eq!(error.to_string(), "looking for pool never: ENOENT (there is no pool of that name)");
}

#[test]
fn a_lookup_before_the_first_map_waits_for_it() {
    let mut rig = Rig::with_mons(1, 3, 1);
    rig.start_client();
    let id = rig.act(|now, c| c.lookup_pool(now, "rbd"));
    let op = rig.submit(ObjectOp::new(object("x")).stat());
    assert!(rig.is_pending(id));
    assert!(rig.act(move |_, c| c.waiting().contains(&(op, client::Waiting::FirstMap))));
    for (node, _) in rig.mons.iter().chain(&rig.osds).cloned().collect::<Vec<_>>() {
        rig.world.start(node);
    }
    rig.run_secs(10);
    assert!(matches!(rig.outcome(id), Outcome::Pool(Ok(POOL))));
    let asked = (0..3).find_map(|osd| rig.try_request(osd)).expect("it was sent");
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(op), Outcome::Op(Ok(_))));
}

#[test]
fn a_pool_operation_ends_when_the_map_with_it_is_here() {
    let mut rig = Rig::new(3);
    let id = rig.act(|now, c| c.create_own_snap(now, POOL));
    rig.run_secs(1);
    assert!(rig.is_pending(id), "the mon has answered, the map is not here");
    rig.change(|_, _| ());
    assert!(matches!(rig.outcome(id), Outcome::PoolOp(Ok(Some(1)))));
    let id = rig.act(|now, c| c.delete_own_snap(now, POOL, SnapId(1)));
    rig.change(|_, _| ());
    assert!(matches!(rig.outcome(id), Outcome::PoolOp(Ok(None))));
}

#[test]
fn a_pool_operation_that_fails_says_so() {
    let mut rig = Rig::new(3);
    let id = rig.act(|now, c| c.create_pool_snap(now, PoolId(99), "s"));
    rig.change(|_, _| ());
    let Outcome::PoolOp(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
}
