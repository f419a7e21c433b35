//! Watches and what becomes of them when intervals, clients and maps change; reads that any copy may answer.

use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use std::time::Duration;
use types::{Errno, OsdId};
use wire::msg::op::{Extent, Notify, Watch, watch_op};
use wire::msg::op_data::{ListWatchersOut, NotifyIn, NotifyReplies, StatOut};
use wire::msg::{MWatchNotify, OpCode, OsdOp, Payload, WatchEvent, flags};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const COOKIE: u64 = 9;

/// One PG on all OSDs, and an object in it.
fn cluster(osds: i32, min_size: u8) -> Cluster {
    let mut c = Cluster::new(1, osds, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", osds as u8, min_size, 1));
    c.wait_clean();
    assert_eq!(c.call(object(1, "a"), vec![write_full(b"a")], true).result, 0);
    c
}

fn watch(op: u8) -> OsdOp {
    let args = Watch { cookie: COOKIE, version: 0, op, generation: 0, timeout_s: 30 };
    OsdOp::new(OpCode::WATCH, args)
}

#[track_caller]
fn begin_watch(c: &mut Cluster) {
    assert_eq!(c.call(object(1, "a"), vec![watch(watch_op::WATCH)], true).result, 0);
}

/// How many watch.
#[track_caller]
fn watchers(c: &mut Cluster) -> usize {
    let list = OsdOp::new(OpCode::LIST_WATCHERS, Extent::default());
    let got = c.call(object(1, "a"), vec![list], false);
    denc::decode::<ListWatchersOut>(&output(&got, 0)).expect("watchers").watchers.len()
}

/// Tells all watchers something: how long it takes, and how many do not answer.
#[track_caller]
fn notify(c: &mut Cluster) -> (Duration, usize) {
    let ask = NotifyIn { timeout_s: 10, payload: Default::default() };
    let op = OsdOp::new(OpCode::NOTIFY, Notify { cookie: 1 }).with_indata(denc::encode(&ask));
    let begun = c.world.now();
    c.client.borrow_mut().other.clear();
    assert_eq!(c.call(object(1, "a"), vec![op], false).result, 0);
    let complete = |c: &mut Cluster| {
        let client = c.client.borrow();
        let all = client.other.iter().filter(|m| m.header.kind == MWatchNotify::TYPE);
        let mut all = all.map(|m| m.decode::<MWatchNotify>().expect("a watch's event"));
        all.find(|m| m.event == WatchEvent::NotifyComplete)
    };
    c.run_until(MINUTE, |c| complete(c).is_some());
    let replies = complete(c).expect("it is there").data;
    let replies: NotifyReplies = denc::decode(&replies).expect("replies");
    (c.world.now() - begun, replies.missed.len())
}

/// The primary, and another that has a copy.
fn primary_and_other(c: &Cluster) -> (usize, usize) {
    let primary = c.client.borrow().primary_of(&object(1, "a")).0 as usize;
    (primary, (primary + 1) % c.osds.len())
}

/// Its client would wait for ever: nothing that it hears of later makes it send the read again.
#[test]
fn a_read_that_any_copy_may_answer_is_sent_to_the_primary() {
    let mut c = cluster(3, 2);
    let (_, other) = primary_and_other(&c);
    let other = OsdId(other as i32);
    let ask = |c: &mut Cluster, ops, kind| {
        c.on_client(|cl| cl.request_to(other, object(1, "a"), ops, kind))
    };
    for anywhere in [flags::BALANCE_READS, flags::LOCALIZE_READS] {
        let asked = ask(&mut c, vec![read(0, 0)], flags::READ | anywhere);
        assert_eq!(c.wait_for(asked).result, -Errno::EAGAIN.0);
    }
    // A client that does not know what it may do again sends such a request again by the map.
    ask(&mut c, vec![read(0, 0)], flags::READ);
    ask(&mut c, vec![write_full(b"b")], flags::WRITE | flags::BALANCE_READS);
    c.pass(10 * SECOND);
    assert_eq!(c.client.borrow().outstanding(), 2);
    // And the primary answers it, if it is asked.
    let kind = flags::READ | flags::BALANCE_READS;
    let asked = c.on_client(|cl| {
        cl.request_with(object(1, "a"), vec![read(0, 0)], kind, Default::default())
    });
    assert_eq!(c.wait_for(asked).result, 0);
}

#[test]
fn a_watcher_that_is_dead_when_the_primary_changes_is_not_listed_for_ever() {
    let mut c = cluster(3, 2);
    begin_watch(&mut c);
    let (node, _) = c.change_client();
    c.world.crash(node);
    let (primary, _) = primary_and_other(&c);
    c.off[primary] = true;
    c.crash(primary);
    assert_eq!(watchers(&mut c), 1);
    c.pass(31 * SECOND);
    assert_eq!(watchers(&mut c), 0);
}

#[test]
fn a_watch_ends_when_its_client_is_shut_out() {
    for loaded in [true, false] {
        let mut c = cluster(3, 2);
        begin_watch(&mut c);
        let (node, _) = c.change_client();
        let host = sim::World::ip(node);
        if !loaded {
            let (primary, _) = primary_and_other(&c);
            c.off[primary] = true;
            c.crash(primary);
            c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(primary as i32)));
        }
        c.on_mon(|m| m.blocklist(host));
        c.pass(SECOND);
        assert_eq!(watchers(&mut c), if loaded { 0 } else { 1 });
        // Its connection ends, which would give it time to come back.
        c.world.crash(node);
        c.pass(2 * SECOND);
        assert_eq!(watchers(&mut c), 0);
        let (took, missed) = notify(&mut c);
        assert!(took < SECOND && missed == 0, "{took:?} {missed}");
    }
}

/// A write is in the log, and another copy has not got it, when the interval ends; the primary stays.
fn interval_ends_over(c: &mut Cluster, op: OsdOp) {
    let (_, other) = primary_and_other(c);
    c.world.set_slow_disks(c.osds[other], 100_000);
    let tid = c.on_client(|cl| cl.request(object(1, "a"), vec![op], true));
    c.pass(SECOND);
    assert_eq!(c.client.borrow().outstanding(), 1, "it waits for the other copy");
    c.on_mon(|m| {
        m.no_up = true;
        m.mark_down(OsdId(other as i32));
    });
    assert_eq!(c.wait_for(tid).result, 0);
}

#[test]
fn a_watch_that_ended_with_its_interval_is_not_waited_for() {
    for delete in [false, true] {
        let mut c = cluster(3, 2);
        begin_watch(&mut c);
        let removal = match delete {
            true => OsdOp::new(OpCode::DELETE, Extent::default()),
            false => watch(watch_op::UNWATCH),
        };
        interval_ends_over(&mut c, removal);
        let told = c.client.borrow().other.iter().any(|m| m.header.kind == MWatchNotify::TYPE);
        assert_eq!(told, delete, "who ends his watch himself is not told");
        assert_eq!(c.call(object(1, "a"), vec![write_full(b"b")], true).result, 0);
        let (took, missed) = notify(&mut c);
        assert!(took < SECOND && missed == 0, "{took:?} {missed}");
    }
}

#[test]
fn a_watch_that_began_with_the_end_of_an_interval_is_connected() {
    let mut c = cluster(3, 2);
    interval_ends_over(&mut c, watch(watch_op::WATCH));
    assert_eq!(c.call(object(1, "a"), vec![watch(watch_op::PING)], false).result, 0);
}

/// It was up to half a second later.
#[test]
fn a_notify_that_a_watcher_does_not_answer_ends_when_its_time_is_over() {
    let mut c = cluster(2, 2);
    begin_watch(&mut c);
    for _ in 0..2 {
        let (took, missed) = notify(&mut c);
        assert!((10 * SECOND..10 * SECOND + SECOND / 20).contains(&took), "{took:?}");
        assert_eq!(missed, 1);
        c.pass(SECOND / 5);
    }
}

/// Nobody can give a sign of life while the PG takes no requests.
#[test]
fn time_in_which_a_pg_takes_no_requests_does_not_count() {
    let mut c = cluster(2, 2);
    begin_watch(&mut c);
    let (_, other) = primary_and_other(&c);
    c.off[other] = true;
    c.crash(other);
    c.pass(40 * SECOND);
    c.start(other);
    c.wait_clean();
    c.pass(2 * SECOND);
    assert_eq!(watchers(&mut c), 1);
    assert_eq!(c.call(object(1, "a"), vec![watch(watch_op::PING)], false).result, 0);
    c.pass(31 * SECOND);
    assert_eq!(watchers(&mut c), 0);
    // Who is heard of no more, and hears on, learns it (python3-rados calls back).
    let client = c.client.borrow();
    let mut told = client.other.iter().filter(|m| m.header.kind == MWatchNotify::TYPE);
    let event = |m: &wire::msg::Message| m.decode::<MWatchNotify>().expect("an event").event;
    assert!(told.any(|m| event(m) == WatchEvent::Disconnect));
}

/// The last moment: the other copies have not got yet by which its client stays.
#[test]
fn a_watch_whose_client_has_come_back_does_not_end() {
    let mut c = cluster(2, 2);
    begin_watch(&mut c);
    let (_, other) = primary_and_other(&c);
    c.pass(28 * SECOND);
    c.world.set_slow_disks(c.osds[other], 30_000);
    let back = c.on_client(|cl| cl.request(object(1, "a"), vec![watch(watch_op::RECONNECT)], true));
    c.pass(4 * SECOND);
    assert_eq!(c.client.borrow().outstanding(), 1, "it waits for the other copy");
    c.world.set_slow_disks(c.osds[other], 1);
    assert_eq!(c.wait_for(back).result, 0);
    c.pass(2 * SECOND);
    assert_eq!(watchers(&mut c), 1);
}

/// `rados stat` would show a write that nobody made.
#[test]
fn a_watch_that_ends_leaves_the_object_as_old_as_it_was() {
    let mut c = cluster(2, 2);
    let mtime = |c: &mut Cluster| {
        let stat = OsdOp::new(OpCode::STAT, Extent::default());
        let got = c.call(object(1, "a"), vec![stat], false);
        denc::decode::<StatOut>(&output(&got, 0)).expect("a time").mtime
    };
    begin_watch(&mut c);
    let before = mtime(&mut c);
    // Whoever keeps it says nothing more.
    c.pass(60 * SECOND);
    assert_eq!((watchers(&mut c), mtime(&mut c)), (0, before));
}

#[test]
fn what_is_written_along_with_a_sign_of_life_is_written() {
    let mut c = cluster(2, 2);
    begin_watch(&mut c);
    let ops = vec![write_full(b"written"), watch(watch_op::PING)];
    assert_eq!(c.call(object(1, "a"), ops, true).result, 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(&output(&got, 0)[..], b"written");
}
