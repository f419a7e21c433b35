//! Requests on objects: what is sent, what comes back, time limits, bounds.

use crate::rig::{POOL, Rig, object};
use client::{ObjectOp, Outcome};
use std::time::Duration;
use types::{Errno, Eversion, PoolId, SnapId};
use wire::msg::{flags, kind};

#[test]
fn a_write_is_sent_to_the_primary_of_its_pg_and_answered() {
    let mut rig = Rig::new(3);
    let op = ObjectOp::new(object("a").in_namespace("n").with_key("k"));
    let id = rig.submit(op.write(8, "hello").set_xattr("x", b"y"));
    let map = rig.maps.borrow().now.clone();
    let raw = map.object_to_pg(POOL, b"n", b"k", b"a").unwrap();
    let pg = map.raw_pg_to_pg(raw).unwrap();
    let primary = map.pg_to_acting(pg).1.unwrap().0 as usize;
    let asked = rig.request(primary);
    let op = &asked.op;
    assert_eq!((op.pgid.pgid, op.object.hash, op.epoch), (pg, raw.seed, map.epoch));
    assert_eq!((op.flags, op.retry_attempt, op.locator_hash), (0x40_0024, 0, -1));
    assert_eq!((op.object.snap, op.mtime.sec > 1_767_000_000), (SnapId::HEAD, true));
    assert_eq!((&op.object.nspace[..], &op.object.key[..]), (&b"n"[..], &b"k"[..]));
    assert_eq!((op.ops.len(), &op.ops[0].indata[..]), (2, &b"hello"[..]));
    assert!(rig.is_pending(id));
    rig.reply(&asked, |r| {
        r.user_version = 7;
        r.replay_version = Eversion::new(map.epoch, 9);
    });
    let Outcome::Op(Ok(reply)) = rig.outcome(id) else { panic!() };
    assert_eq!((reply.user_version, reply.version.version), (7, 9));
}

#[test]
fn outputs_are_typed_and_errors_say_what_and_why() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let op = ObjectOp::new(object(&name)).read(0, 100).stat().at_snap(SnapId(4));
    let id = rig.submit(op);
    let asked = rig.request(0);
    assert_eq!((asked.op.object.snap, asked.op.mtime.sec), (SnapId(4), 0));
    rig.reply(&asked, |r| {
        r.ops[0].outdata.push("data".into());
        r.ops[1].outdata.push(denc::encode(&(4u64, types::UTime { sec: 5, nsec: 6 })));
    });
    let Outcome::Op(Ok(reply)) = rig.outcome(id) else { panic!() };
    assert_eq!(&reply.bytes(0).unwrap()[..], b"data");
    assert_eq!(reply.stat(1).unwrap().size, 4);
    assert_eq!(reply.stat(0).unwrap_err().errno, Errno::EIO, "four bytes are no stat");
    assert_eq!(reply.bytes(9).unwrap_err().errno, Errno::EIO);

    let id = rig.submit(ObjectOp::new(object(&name)).compare(0, "abc").write(0, "x"));
    let asked = rig.request(0);
    rig.reply(&asked, |r| (r.result, r.ops[0].rval) = (-4097, -4097));
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.mismatch_offset(), Some(2));
    let text = format!("CMPEXT+WRITE of object {name} in pool 2: the bytes differ at offset 2");
    assert_eq!(error.to_string(), text);
    assert!(error.reply.is_some());
}

#[test]
fn a_late_request_times_out_and_its_answer_is_dropped() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let op = ObjectOp::new(object(&name)).write_full("x").with_timeout(Duration::from_secs(3));
    let id = rig.submit(op);
    let asked = rig.request(0);
    rig.run_secs(2);
    assert!(rig.is_pending(id));
    rig.run_secs(2);
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ETIMEDOUT);
    assert!(error.to_string().contains("it waited for the answer of osd.0"), "{error}");
    rig.reply(&asked, |_| ());
    assert!(rig.done().is_empty());
    assert_eq!(rig.act(|_, c| c.in_flight()), (0, 0));
}

#[test]
fn what_is_in_flight_is_bounded_and_a_refused_request_comes_back_whole() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let op = move || ObjectOp::new(object(&name)).write(0, vec![1; 400 << 10]);
    // One MiB is the bound of this rig.
    let (a, b) = (rig.submit(op()), rig.submit(op()));
    let third = op();
    let busy = rig.act(move |now, c| c.submit(now, third)).unwrap_err();
    assert_eq!(rig.act(|_, c| c.in_flight()), (2, 800 << 10));
    let first = rig.request(0);
    rig.reply(&first, |_| ());
    let c = rig.submit(*busy.0);
    for _ in 0..2 {
        let next = rig.request(0);
        assert_eq!(next.op.ops[0].indata.len(), 400 << 10);
        rig.reply(&next, |_| ());
    }
    for id in [a, b, c] {
        assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
    }
    // One that is larger than the bound goes alone.
    let big = ObjectOp::new(object("big")).write(0, vec![1; 3 << 20]);
    rig.submit(big);
    let small = ObjectOp::new(object("small")).stat();
    assert!(rig.act(move |_, c| !c.has_room_for(&small.write(0, "x"))));
}

#[test]
fn the_number_of_requests_is_bounded_too() {
    let mut rig = Rig::new(3);
    let full = rig.act(|now, c| {
        (0..64).for_each(|i| {
            c.submit(now, ObjectOp::new(object(&format!("o{i}"))).stat()).unwrap();
        });
        c.submit(now, ObjectOp::new(object("more")).stat()).is_err()
    });
    assert!(full);
    let per_osd: Vec<usize> = (0..3).map(|i| rig.osds[i].1.borrow().inbox.len()).collect();
    assert_eq!(per_osd.iter().sum::<usize>(), 64);
    assert!(per_osd.iter().all(|n| *n > 5), "{per_osd:?}");
}

#[test]
fn a_cancelled_request_ends_and_its_answer_is_dropped() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.submit(ObjectOp::new(object(&name)).remove());
    let asked = rig.request(0);
    assert!(rig.act(move |now, c| c.cancel(now, id)));
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ECANCELED);
    rig.reply(&asked, |_| ());
    assert!(rig.done().is_empty());
    assert!(!rig.act(move |now, c| c.cancel(now, id)));
}

#[test]
fn eagain_makes_a_new_request_of_it() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let op = ObjectOp::new(object(&name)).read(0, 0).with_flags(flags::BALANCE_READS);
    let id = rig.submit(op);
    let first = rig.request(0);
    assert!(first.op.has_flag(flags::BALANCE_READS));
    rig.reply(&first, |r| r.result = Errno::EAGAIN.wire());
    let second = rig.request(0);
    assert!(second.tid > first.tid && !second.op.has_flag(flags::BALANCE_READS));
    assert_eq!(second.op.retry_attempt, 0);
    rig.reply(&second, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));

    // For ever is too long.
    let id = rig.submit(ObjectOp::new(object(&name)).read(0, 0));
    while rig.is_pending(id) {
        let asked = rig.request(0);
        rig.reply(&asked, |r| r.result = Errno::EAGAIN.wire());
    }
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::EAGAIN);
}

#[test]
fn a_malformed_reply_costs_the_osd_its_connection_and_the_request_is_sent_again() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.submit(ObjectOp::new(object(&name)).write_full("x"));
    let asked = rig.request(0);
    let mut garbage = wire::msg::OutMessage::new::<wire::msg::MOsdOpReply>("garbage");
    garbage.tid = asked.tid;
    assert_eq!(garbage.kind, kind::OSD_OPREPLY);
    rig.osd_says(0, asked.link, garbage);
    rig.run_secs(1);
    let again = rig.request(0);
    assert_eq!((again.tid, again.op.retry_attempt), (asked.tid, 1));
    rig.reply(&again, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
}

#[test]
fn a_redirect_is_refused() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.submit(ObjectOp::new(object(&name)).stat());
    let asked = rig.request(0);
    rig.reply(&asked, |r| r.redirect = Some(wire::msg::Redirect::default()));
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::EOPNOTSUPP);
}

#[test]
fn a_pool_that_is_nowhere_is_enoent_once_the_newest_map_says_so() {
    let mut rig = Rig::new(3);
    rig.maps.borrow_mut().answers_versions = false;
    let nowhere = client::Object::new(PoolId(77), "x");
    let id = rig.submit(ObjectOp::new(nowhere.clone()).stat());
    rig.run_secs(1);
    assert!(rig.is_pending(id), "the map may be old");
    let waits = rig.act(|_, c| c.waiting());
    assert!(waits.contains(&(id, client::Waiting::PoolCheck)), "{waits:?}");
    rig.maps.borrow_mut().answers_versions = true;
    // The question is asked again in a new session.
    let (mon, state) = rig.mons[0].clone();
    let links = state.borrow().links.clone();
    state.borrow_mut().close = links;
    rig.nudge(mon);
    rig.run_secs(1);
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
    assert!(error.to_string().contains("there is no such pool"), "{error}");
}

#[test]
fn a_pool_that_is_new_is_found_by_asking_for_the_newest_map() {
    let mut rig = Rig::new(3);
    rig.make_pool(PoolId(3), "new", 4);
    let id = rig.submit(ObjectOp::new(client::Object::new(PoolId(3), "x")).stat());
    let asked = (0..3).find_map(|osd| rig.try_request(osd)).expect("it was sent");
    assert_eq!(asked.op.pgid.pgid.pool, PoolId(3));
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Op(Ok(_))));
}

#[test]
fn a_pool_that_was_deleted_fails_what_was_sent_to_it() {
    let mut rig = Rig::new(3);
    let id = rig.submit(ObjectOp::new(object("x")).write_full("x"));
    let watch = rig.act(|now, c| c.watch(now, object("w"), 0));
    rig.change(|inc, _| {
        inc.old_pools.insert(POOL);
    });
    // Nobody told the client yet; the slow request makes it ask.
    rig.run_secs(20);
    let Outcome::Op(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
    assert!(error.to_string().contains("the pool was deleted"), "{error}");
    let Outcome::Watching(Err(error)) = rig.outcome(watch) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
}
