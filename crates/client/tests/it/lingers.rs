//! Watches and notifies.

use crate::rig::{Asked, OSD_PORT, Rig, object};
use bytes::Bytes;
use client::{ClientError, Outcome, RequestId};
use maps::OsdMapFlags;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Errno;
use wire::LinkId;
use wire::msg::op::watch_op;
use wire::msg::op_data::{NotifyAckIn, NotifyIn, NotifyReplies};
use wire::msg::{MWatchNotify, OpCode, Payload, WatchEvent, flags};

/// The next request of an OSD that is a WATCH of this kind.
fn watch_request(rig: &mut Rig, osd: usize, op: u8) -> Asked {
    let asked = rig.request(osd);
    assert_eq!((asked.op.ops[0].code, asked.op.ops[0].args.watch().op), (OpCode::WATCH, op));
    asked
}

/// Watches an object of PG 0, as far as that it is registered.
fn watching(rig: &mut Rig) -> (String, RequestId, Asked) {
    let name = rig.name_in(0);
    let n = name.clone();
    let id = rig.act(move |now, c| c.watch(now, object(&n), 20));
    let asked = watch_request(rig, 0, watch_op::WATCH);
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Watching(Ok(()))));
    (name, id, asked)
}

fn event(event: WatchEvent, cookie: u64) -> MWatchNotify {
    MWatchNotify {
        event,
        cookie,
        version: 1,
        notify_id: 77,
        payload: "news".into(),
        return_code: 0,
        notifier_gid: 4999,
        data: Bytes::new(),
    }
}

fn link(rig: &Rig, osd: usize) -> LinkId {
    *rig.osds[osd].1.borrow().links.last().unwrap()
}

fn say(rig: &mut Rig, osd: usize, m: MWatchNotify) {
    let link = link(rig, osd);
    rig.osd_says(osd, link, m.encode());
}

/// Nobody knows what became of its PG in the maps between.
#[test]
fn lingers_are_registered_again_after_maps_that_were_skipped() {
    let mut rig = Rig::new(3);
    let (name, _, _) = watching(&mut rig);
    rig.act(move |now, c| c.notify(now, object(&name), Bytes::from("hello"), 5));
    let notify = rig.request(0);
    assert_eq!(notify.op.ops[0].code, OpCode::NOTIFY);
    rig.reply(&notify, |_| ());
    for _ in 0..3 {
        rig.maps.borrow_mut().change(|_, _| ());
    }
    let newest = rig.maps.borrow().message(0);
    let link = link(&rig, 0);
    rig.osd_says(0, link, newest.encode());
    rig.run_secs(1);
    watch_request(&mut rig, 0, watch_op::RECONNECT);
    assert_eq!(rig.request(0).op.ops[0].code, OpCode::NOTIFY);
}

#[test]
fn a_watch_is_registered_gets_notifies_and_is_ended() {
    let mut rig = Rig::new(3);
    let (_, id, asked) = watching(&mut rig);
    let args = asked.op.ops[0].args.watch();
    assert_eq!((args.cookie, args.timeout_s, asked.op.flags), (id.0, 20, 0xc0_0024));
    say(&mut rig, 0, event(WatchEvent::Notify, id.0));
    let Outcome::Notified { notify_id, notifier, payload } = rig.outcome(id) else { panic!() };
    assert_eq!((notify_id, notifier, &payload[..]), (77, 4999, &b"news"[..]));
    rig.act(move |now, c| c.notify_ack(now, id, 77, "fine".into()));
    let ack = rig.request(0);
    let op = &ack.op.ops[0];
    assert_eq!((op.code, ack.op.has_flag(flags::READ)), (OpCode::NOTIFY_ACK, true));
    let said: NotifyAckIn = denc::decode(&op.indata).unwrap();
    assert_eq!((said.notify_id, said.cookie, &said.reply[..]), (77, id.0, &b"fine"[..]));
    rig.reply(&ack, |_| ());

    let end = rig.act(move |now, c| c.unwatch(now, id)).unwrap();
    let asked = watch_request(&mut rig, 0, watch_op::UNWATCH);
    assert_eq!(asked.op.ops[0].args.watch().cookie, id.0);
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(end), Outcome::Op(Ok(_))));
    say(&mut rig, 0, event(WatchEvent::Notify, id.0));
    assert!(rig.done().is_empty(), "nobody watches any more");
    assert!(rig.act(move |now, c| c.unwatch(now, id)).is_none());
}

#[test]
fn a_watch_is_pinged_and_its_age_known() {
    let mut rig = Rig::new(3);
    let (_, id, _) = watching(&mut rig);
    for _ in 0..3 {
        rig.run_secs(5);
        let ping = watch_request(&mut rig, 0, watch_op::PING);
        assert!(ping.op.has_flag(flags::READ) && !ping.op.has_flag(flags::WRITE));
        rig.reply(&ping, |_| ());
        let age = rig.act(move |now, c| c.watch_age(now, id)).unwrap();
        assert!(age.as_secs() < 6, "{age:?}");
    }
    // No second ping while one is on its way.
    rig.run_secs(5);
    watch_request(&mut rig, 0, watch_op::PING);
    rig.run_secs(15);
    assert!(rig.try_request(0).is_none());
    assert!(rig.act(move |now, c| c.watch_age(now, id)).unwrap().as_secs() >= 15);
}

#[test]
fn a_watch_that_the_osd_does_not_know_is_lost_once() {
    let mut rig = Rig::new(3);
    let (_, id, _) = watching(&mut rig);
    rig.run_secs(5);
    let ping = watch_request(&mut rig, 0, watch_op::PING);
    rig.reply(&ping, |r| r.result = Errno::ENOTCONN.wire());
    let Outcome::WatchLost(error) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOTCONN);
    say(&mut rig, 0, event(WatchEvent::Disconnect, id.0));
    rig.run_secs(20);
    assert!(rig.done().is_empty() && rig.try_request(0).is_none());
    assert_eq!(rig.act(move |now, c| c.watch_age(now, id)), Err(Errno::ENOTCONN));
    // It can still be ended in good order.
    rig.act(move |now, c| c.unwatch(now, id)).unwrap();
    watch_request(&mut rig, 0, watch_op::UNWATCH);
}

#[test]
fn a_removed_object_loses_its_watches() {
    let mut rig = Rig::new(3);
    let (_, id, _) = watching(&mut rig);
    say(&mut rig, 0, event(WatchEvent::Disconnect, id.0));
    let Outcome::WatchLost(error) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOTCONN);
}

#[test]
fn a_watch_survives_a_lost_connection() {
    let mut rig = Rig::new(3);
    let (_, id, _) = watching(&mut rig);
    for generation in 1..3 {
        rig.hang_up(0);
        rig.run_secs(1);
        let asked = watch_request(&mut rig, 0, watch_op::RECONNECT);
        assert_eq!(asked.op.ops[0].args.watch().generation, generation);
        rig.reply(&asked, |_| ());
    }
    say(&mut rig, 0, event(WatchEvent::Notify, id.0));
    assert!(matches!(rig.outcome(id), Outcome::Notified { .. }));
    // The OSD has forgotten it, or the object is gone.
    rig.hang_up(0);
    rig.run_secs(1);
    let asked = watch_request(&mut rig, 0, watch_op::RECONNECT);
    rig.reply(&asked, |r| r.result = Errno::ENOENT.wire());
    let Outcome::WatchLost(error) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOTCONN);
}

#[test]
fn a_watch_follows_its_pg_and_is_renewed_when_replicas_change() {
    let mut rig = Rig::new(4);
    let (_, _, _) = watching(&mut rig);
    rig.remap(0, &[0, 3, 1]);
    // The client learns of it by a request to the OSD, which shares its map.
    let m = rig.maps.borrow().message(u64::from(rig.maps.borrow().now.epoch.0));
    let at = link(&rig, 0);
    rig.osd_says(0, at, m.encode());
    let asked = watch_request(&mut rig, 0, watch_op::RECONNECT);
    rig.reply(&asked, |_| ());
    rig.remap(0, &[2, 3, 1]);
    let m = rig.maps.borrow().message(u64::from(rig.maps.borrow().now.epoch.0));
    rig.osd_says(0, at, m.encode());
    let asked = watch_request(&mut rig, 2, watch_op::RECONNECT);
    assert_eq!(asked.op.ops[0].args.watch().generation, 2);
}

#[test]
fn a_registration_that_fails_ends_the_watch() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.act(move |now, c| c.watch(now, object(&name), 0));
    let asked = watch_request(&mut rig, 0, watch_op::WATCH);
    rig.reply(&asked, |r| r.result = Errno::ENOENT.wire());
    let Outcome::Watching(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
    rig.run_secs(20);
    assert!(rig.try_request(0).is_none());
    assert!(rig.act(move |now, c| c.unwatch(now, id)).is_none());
}

#[test]
fn an_unanswered_registration_is_made_anew_after_a_lost_connection() {
    let mut rig = Rig::new(3);
    let name = rig.name_in(0);
    let id = rig.act(move |now, c| c.watch(now, object(&name), 0));
    let first = watch_request(&mut rig, 0, watch_op::WATCH);
    rig.hang_up(0);
    rig.run_secs(1);
    let again = watch_request(&mut rig, 0, watch_op::WATCH);
    assert!(again.tid > first.tid, "a new request, not the old one again");
    rig.reply(&again, |_| ());
    assert!(matches!(rig.outcome(id), Outcome::Watching(Ok(()))));
}

fn notifying(rig: &mut Rig) -> (RequestId, Asked) {
    let name = rig.name_in(0);
    let id = rig.act(move |now, c| c.notify(now, object(&name), "ping", 7));
    let asked = rig.request(0);
    assert_eq!(asked.op.ops[0].code, OpCode::NOTIFY);
    (id, asked)
}

fn complete(cookie: u64, notify_id: u64, code: i32) -> MWatchNotify {
    let replies = NotifyReplies {
        replies: BTreeMap::from([((4101, 5), "pong".into())]),
        missed: vec![(4102, 6)],
    };
    MWatchNotify {
        notify_id,
        return_code: code,
        payload: Bytes::new(),
        data: denc::encode(&replies),
        ..event(WatchEvent::NotifyComplete, cookie)
    }
}

#[test]
fn a_notify_ends_with_the_answers_and_who_missed() {
    let mut rig = Rig::new(3);
    let (id, asked) = notifying(&mut rig);
    let said: NotifyIn = denc::decode(&asked.op.ops[0].indata).unwrap();
    assert_eq!((said.timeout_s, &said.payload[..]), (7, &b"ping"[..]));
    assert_eq!(asked.op.ops[0].args.notify().cookie, id.0);
    rig.reply(&asked, |r| r.ops[0].outdata.push(denc::encode(&88u64)));
    assert!(rig.is_pending(id));
    say(&mut rig, 0, complete(id.0, 87, 0));
    assert!(rig.is_pending(id), "that was another notify");
    say(&mut rig, 0, complete(id.0, 88, Errno::ETIMEDOUT.wire()));
    let Outcome::NotifyDone(Ok(result)) = rig.outcome(id) else { panic!() };
    assert_eq!(result.replies, [((4101, 5), Bytes::from("pong"))]);
    assert_eq!(result.missed, [(4102, 6)]);
    say(&mut rig, 0, complete(id.0, 88, 0));
    assert!(rig.done().is_empty(), "once");
}

#[test]
fn a_notify_is_sent_anew_after_a_lost_connection_and_can_fail() {
    let mut rig = Rig::new(3);
    let (id, asked) = notifying(&mut rig);
    rig.reply(&asked, |r| r.ops[0].outdata.push(denc::encode(&88u64)));
    rig.hang_up(0);
    rig.run_secs(1);
    let again = rig.request(0);
    assert_eq!(again.op.ops[0].code, OpCode::NOTIFY);
    rig.reply(&again, |r| r.result = Errno::ENOENT.wire());
    let Outcome::NotifyDone(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ENOENT);
    assert_eq!(OSD_PORT, 6800);
}

#[test]
fn a_notify_that_is_sent_anew_may_complete_before_its_number_is_known() {
    let mut rig = Rig::new(3);
    let (id, asked) = notifying(&mut rig);
    rig.reply(&asked, |r| r.ops[0].outdata.push(denc::encode(&88u64)));
    rig.hang_up(0);
    rig.run_secs(1);
    let again = rig.request(0);
    say(&mut rig, 0, complete(id.0, 89, 0));
    let Outcome::NotifyDone(Ok(result)) = rig.outcome(id) else { panic!() };
    assert_eq!(result.replies.len(), 1);
    rig.reply(&again, |r| r.ops[0].outdata.push(denc::encode(&89u64)));
    assert!(rig.done().is_empty());
}

#[test]
fn watches_of_an_osd_that_is_marked_down_go_to_the_next() {
    let mut rig = Rig::new(3);
    let (_, id, _) = watching(&mut rig);
    let node = rig.osds[0].0;
    rig.world.crash(node);
    rig.mark_down(0);
    rig.run_secs(20);
    let asked = watch_request(&mut rig, 1, watch_op::RECONNECT);
    rig.reply(&asked, |_| ());
    say(&mut rig, 1, event(WatchEvent::Notify, id.0));
    assert!(matches!(rig.outcome(id), Outcome::Notified { .. }));
}

fn set_flags(rig: &mut Rig, flags: OsdMapFlags) {
    rig.change(move |inc, _| inc.new_flags = Some(OsdMapFlags::FRESH | flags));
    let epoch = rig.maps.borrow().now.epoch;
    rig.act(move |now, c| c.wait_for_map(now, epoch));
}

fn assert_timed_out(error: &ClientError, waited: &str) {
    assert_eq!(error.errno, Errno::ETIMEDOUT);
    assert!(error.to_string().contains(waited), "{error}");
}

#[test]
fn a_watch_that_may_not_be_sent_ends_when_its_time_is_over() {
    let mut rig = Rig::with_op_timeout(Duration::from_secs(10));
    let name = rig.name_in(0);
    set_flags(&mut rig, OsdMapFlags::PAUSEWR);
    let id = rig.act(move |now, c| c.watch(now, object(&name), 0));
    rig.run_secs(9);
    assert!(rig.is_pending(id));
    rig.run_secs(2);
    let Outcome::Watching(Err(error)) = rig.outcome(id) else { panic!() };
    assert_timed_out(&error, "not to be full or paused");
    rig.run_secs(30);
    set_flags(&mut rig, OsdMapFlags::NONE);
    assert!(rig.try_request(0).is_none() && rig.is_pending(id), "once");
}

#[test]
fn a_watch_whose_registration_is_not_answered_ends_when_its_time_is_over() {
    let mut rig = Rig::with_op_timeout(Duration::from_secs(10));
    let name = rig.name_in(0);
    let id = rig.act(move |now, c| c.watch(now, object(&name), 0));
    rig.run_secs(6);
    watch_request(&mut rig, 0, watch_op::WATCH);
    // A lost connection does not prolong it.
    rig.hang_up(0);
    rig.run_secs(1);
    watch_request(&mut rig, 0, watch_op::WATCH);
    assert!(rig.is_pending(id));
    rig.run_secs(4);
    let Outcome::Watching(Err(error)) = rig.outcome(id) else { panic!() };
    assert_timed_out(&error, "the answer of osd.0");
    // It may have come to be: nobody is to think that somebody is there.
    let end = watch_request(&mut rig, 0, watch_op::UNWATCH);
    assert_eq!(end.op.ops[0].args.watch().cookie, id.0);
    rig.reply(&end, |r| r.result = Errno::ENOENT.wire());
    assert!(rig.act(move |now, c| c.unwatch(now, id)).is_none());
    rig.run_secs(30);
    assert!(rig.try_request(0).is_none() && rig.is_pending(id), "once");
}

#[test]
fn a_watch_is_registered_on_a_full_cluster_and_again() {
    let mut rig = Rig::new(3);
    set_flags(&mut rig, OsdMapFlags::FULL);
    let (_, id, _) = watching(&mut rig);
    rig.hang_up(0);
    rig.run_secs(1);
    let again = watch_request(&mut rig, 0, watch_op::RECONNECT);
    rig.reply(&again, |_| ());
    say(&mut rig, 0, event(WatchEvent::Notify, id.0));
    assert!(matches!(rig.outcome(id), Outcome::Notified { .. }));
}

#[test]
fn a_registered_watch_has_no_limit_and_can_be_ended_on_a_full_cluster() {
    let mut rig = Rig::with_op_timeout(Duration::from_secs(10));
    let (_, id, _) = watching(&mut rig);
    rig.run_secs(30);
    assert!(rig.done().is_empty());
    while rig.try_request(0).is_some() {}
    set_flags(&mut rig, OsdMapFlags::FULL);
    let end = rig.act(move |now, c| c.unwatch(now, id)).unwrap();
    let asked = watch_request(&mut rig, 0, watch_op::UNWATCH);
    rig.reply(&asked, |_| ());
    assert!(matches!(rig.outcome(end), Outcome::Op(Ok(_))));
}

#[test]
fn a_notify_whose_end_is_not_told_ends_when_its_time_is_over() {
    let mut rig = Rig::with_op_timeout(Duration::from_secs(10));
    let (id, asked) = notifying(&mut rig);
    rig.reply(&asked, |r| r.ops[0].outdata.push(denc::encode(&88u64)));
    // The watchers have 7 s of their own.
    rig.run_secs(15);
    assert!(rig.is_pending(id));
    rig.run_secs(3);
    let Outcome::NotifyDone(Err(error)) = rig.outcome(id) else { panic!() };
    assert_timed_out(&error, "has not said");
    say(&mut rig, 0, complete(id.0, 88, 0));
    assert!(rig.done().is_empty(), "once");
}
