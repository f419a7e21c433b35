//! Maps: who is subscribed gets every change, old ones are kept for as long as they are needed.

use crate::client::TestClient;
use crate::cluster::{Cluster, as_osd};
use maps::{Incremental, OsdMap};
use sim::NodeId;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::Epoch;
use wire::msg::{
    MConfig, MMgrMap, MMonGetOsdMap, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe,
    MOsdMap, Payload, Subscription,
};

fn subscribe(what: &str, start: u64, flags: u8) -> MMonSubscribe {
    let wish = (what.to_owned(), Subscription { start, flags });
    MMonSubscribe { what: [wish].into(), hostname: "here".into() }
}

struct Subscriber {
    node: NodeId,
    client: Rc<RefCell<TestClient>>,
}

impl Subscriber {
    fn new(c: &mut Cluster, me: wire::Identity, wish: MMonSubscribe) -> Self {
        let (node, client) = c.add_client(me);
        let subscriber = Subscriber { node, client };
        subscriber.say(c, wish);
        subscriber
    }

    fn say(&self, c: &mut Cluster, wish: MMonSubscribe) {
        let said =
            c.world.with_core(self.node, |_, _, _| self.client.borrow_mut().say(wish.encode()));
        said.expect("it runs");
    }

    fn osdmaps(&self) -> Vec<MOsdMap> {
        self.client.borrow().all()
    }
}

/// Puts the maps of messages together, every checksum checked; answers the last one.
fn follow(messages: &[MOsdMap]) -> OsdMap {
    let mut map: Option<OsdMap> = None;
    for m in messages {
        assert!(m.incrementals.len() + m.fulls.len() <= 41, "a bounded message");
        let (first, last) = (m.first().expect("a map"), m.last().expect("a map"));
        for epoch in (first.0..=last.0).map(Epoch) {
            if let Some(full) = m.fulls.get(&epoch) {
                map = Some(denc::decode(full).expect("a map"));
                continue;
            }
            let inc: Incremental = denc::decode(&m.incrementals[&epoch]).expect("an incremental");
            if inc.epoch == Epoch(1) {
                map = Some(denc::decode(&inc.fullmap).expect("a map"));
                continue;
            }
            let map = map.as_mut().expect("it begins with a full map");
            map.apply(&inc).expect("it follows");
            assert_eq!(map.encode_with_crc().1, inc.full_crc, "epoch {epoch}");
        }
    }
    map.expect("a map")
}

/// Makes new epochs.
fn turn_flags(c: &mut Cluster, times: u32) {
    for _ in 0..times {
        for prefix in ["osd set", "osd unset"] {
            let ack = c.ask(&format!(r#"{{"prefix":"{prefix}","key":"noscrub"}}"#));
            assert_eq!(ack.result, 0, "{}", ack.outs);
        }
    }
}

fn epoch(c: &mut Cluster) -> Epoch {
    Epoch(c.json("osd stat")["epoch"].as_u64().expect("a number") as u32)
}

fn oldest(c: &mut Cluster) -> Epoch {
    c.on_client(|c| c.heard.clear());
    let ask = MMonGetVersion { handle: 7, what: "osdmap".into() };
    c.on_client(|c| c.say(ask.encode()));
    c.pass(Duration::from_millis(50));
    let replies = c.client.borrow().all::<MMonGetVersionReply>();
    assert_eq!(replies[0].handle, 7);
    Epoch(replies[0].oldest as u32)
}

#[test]
fn subscribers_get_every_change_also_after_a_restart() {
    let mut c = Cluster::new(31, 1);
    c.pass(Duration::from_secs(1));
    turn_flags(&mut c, 60);
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.pass(Duration::from_secs(1));
    // From the first epoch on, out of the store; newest only; once: clients hear of later changes
    // all the same.
    let me = || wire::Identity::client("x", 9);
    let all = Subscriber::new(&mut c, me(), subscribe("osdmap", 1, 0));
    let newest = Subscriber::new(&mut c, me(), subscribe("osdmap", 0, 0));
    let once = Subscriber::new(&mut c, me(), subscribe("osdmap", 0, 1));
    let later = u64::from(epoch(&mut c).0) + 3;
    let later = Subscriber::new(&mut c, me(), subscribe("osdmap", later, 1));
    c.pass(Duration::from_secs(1));
    let now = epoch(&mut c);
    assert!(now > Epoch(120));
    assert!(all.osdmaps().len() >= 4, "in several messages");
    assert_eq!(follow(&all.osdmaps()).epoch, now);
    assert_eq!(newest.osdmaps().len(), 1);
    assert_eq!(newest.osdmaps()[0].first(), Some(now));
    assert!(later.osdmaps().is_empty());
    turn_flags(&mut c, 2);
    c.pass(Duration::from_millis(100));
    let end = epoch(&mut c);
    assert_eq!(follow(&all.osdmaps()), follow(&newest.osdmaps()));
    assert_eq!(follow(&all.osdmaps()).epoch, end);
    assert_eq!(follow(&once.osdmaps()).epoch, end);
    assert_eq!(later.osdmaps()[0].last(), Some(Epoch(now.0 + 3)));
}

#[test]
fn who_comes_back_hears_of_maps_without_asking() {
    let mut c = Cluster::new(33, 1);
    c.pass(Duration::from_secs(1));
    turn_flags(&mut c, 10);
    let me = || wire::Identity::client("x", 9);
    let back = Subscriber::new(&mut c, me(), subscribe("monmap", 2, 0));
    let first = Subscriber::new(&mut c, me(), subscribe("monmap", 0, 0));
    c.pass(Duration::from_secs(1));
    let now = epoch(&mut c);
    let epochs = |m: &MOsdMap| (m.first(), m.last());
    let told: Vec<_> = back.osdmaps().iter().map(epochs).collect();
    assert_eq!(told, [(Some(now), Some(now))], "whether it missed any");
    turn_flags(&mut c, 1);
    c.pass(Duration::from_millis(100));
    assert_eq!(back.osdmaps().last().and_then(MOsdMap::last), Some(epoch(&mut c)));
    assert!(first.osdmaps().is_empty());
}

#[test]
fn old_maps_go_when_every_pg_was_clean_after_them() {
    let mut c = Cluster::with(32, 3, None, &[("mon_min_osdmap_epochs", "10")]);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    c.create_pool("rbd");
    c.wait_clean(32);
    c.crash_osd(2);
    turn_flags(&mut c, 60);
    c.pass(Duration::from_secs(10));
    assert_eq!(oldest(&mut c), Epoch(1), "PGs are not clean: their history is needed");
    c.start_osd(2);
    c.wait_clean(32);
    turn_flags(&mut c, 5);
    c.run_until(Duration::from_secs(20), |c| oldest(c) > Epoch(80));
    let (first, last) = (oldest(&mut c), epoch(&mut c));
    assert!(last.0 - first.0 >= 10);
    // A client that is behind gets the newest map, an OSD all there is.
    let client = Subscriber::new(&mut c, wire::Identity::client("x", 9), subscribe("osdmap", 5, 0));
    let osd = Subscriber::new(&mut c, as_osd(9), subscribe("osdmap", 5, 0));
    c.pass(Duration::from_millis(500));
    assert_eq!(client.osdmaps()[0].first(), Some(last));
    assert_eq!(osd.osdmaps()[0].first(), Some(first));
    assert_eq!(follow(&osd.osdmaps()), follow(&client.osdmaps()));
    // Commands see what is there, and say what is not.
    let at = |epoch: u32| format!(r#"{{"prefix":"osd dump","epoch":{epoch},"format":"json"}}"#);
    let ack = c.ask(&at(first.0));
    let shown: serde_json::Value = serde_json::from_slice(&ack.data).expect("JSON");
    assert_eq!(shown["epoch"], first.0);
    for gone in [1, first.0 - 1, last.0 + 1] {
        let ack = c.ask(&at(gone));
        assert_eq!((ack.result, ack.outs), (-2, format!("there is no map for epoch {gone}")));
    }
    // Nothing of that is lost by a restart.
    c.crash_all();
    c.wait_clean(32);
    assert_eq!(oldest(&mut c), first);
}

/// Of a PG that is not clean for long all maps are needed: as changes. Those that are kept whole are few.
#[test]
fn maps_that_are_needed_for_long_are_kept_as_changes() {
    let options = [("mon_min_osdmap_epochs", "10"), ("mon_osdmap_full_prune_min", "20")];
    let mut c = Cluster::with(39, 3, None, &options);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    c.create_pool("rbd");
    c.wait_clean(32);
    c.crash_osd(2);
    turn_flags(&mut c, 100);
    c.pass(Duration::from_secs(10));
    let (first, last) = (oldest(&mut c), epoch(&mut c));
    assert!(first == Epoch(1) && last > Epoch(200));
    let kept = |c: &Cluster, start: &str| {
        let pairs = c.world.kv(c.mon).expect("a store").pairs();
        pairs.keys().filter(|key| key.starts_with(start.as_bytes())).count()
    };
    let changes = kept(&c, "m/inc/");
    assert_eq!(changes, last.0 as usize);
    let whole = kept(&c, "m/full/");
    assert!((20..100).contains(&whole), "{whole} of {changes}");
    // Each of them can be had, also by a mon that has just started.
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.pass(Duration::from_secs(1));
    for wanted in (1..last.0).step_by(7) {
        let at = format!(r#"{{"prefix":"osd dump","epoch":{wanted},"format":"json"}}"#);
        let ack = c.ask(&at);
        let shown: serde_json::Value = serde_json::from_slice(&ack.data).expect("JSON");
        assert_eq!((ack.result, &shown["epoch"]), (0, &wanted.into()));
    }
    let client = Subscriber::new(&mut c, wire::Identity::client("x", 9), subscribe("osdmap", 1, 0));
    c.pass(Duration::from_millis(500));
    assert_eq!(follow(&client.osdmaps()).epoch, epoch(&mut c));
    // When they are not needed any more they go, and what is then the oldest one is whole.
    c.start_osd(2);
    c.wait_clean(32);
    turn_flags(&mut c, 5);
    c.run_until(Duration::from_secs(20), |c| oldest(c) > Epoch(150));
    let osd = Subscriber::new(&mut c, as_osd(9), subscribe("osdmap", 5, 0));
    c.pass(Duration::from_millis(500));
    let oldest = oldest(&mut c);
    assert_eq!(osd.osdmaps()[0].first(), Some(oldest));
    assert_eq!(follow(&osd.osdmaps()).epoch, epoch(&mut c));
    assert_eq!(kept(&c, "m/inc/"), (epoch(&mut c).0 - oldest.0) as usize + 1);
}

/// PGs may have been written to that nobody has reported: a mon that starts sees all maps again since they were ordered,
/// of which only some are whole.
#[test]
fn a_mon_starts_from_maps_that_are_kept_as_changes() {
    let options = [("mon_min_osdmap_epochs", "10"), ("mon_osdmap_full_prune_min", "20")];
    let mut c = Cluster::with(40, 3, None, &options);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    // They are there, and cannot say that they have made them.
    c.ask(r#"{"prefix":"osd set","key":"nodown"}"#);
    c.osds.clone().into_iter().for_each(|node| c.world.set_paused(node, true));
    c.create_pool("rbd");
    c.run_until(Duration::from_secs(3), |c| c.json("status")["pgmap"]["num_pgs"] == 32);
    let made = c.json("osd dump")["pools"][0]["last_change"].as_str().map(str::parse::<u32>);
    let made = Epoch(made.expect("text").expect("a number"));
    assert_ne!(made.0 % 10, 0, "it would be kept whole");
    turn_flags(&mut c, 100);
    let is_whole = |c: &Cluster| {
        let pairs = c.world.kv(c.mon).expect("a store").pairs();
        pairs.contains_key(format!("m/full/{:010}", made.0).as_bytes())
    };
    c.run_until(Duration::from_secs(20), |c| !is_whole(c));
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.pass(Duration::from_secs(1));
    assert!(oldest(&mut c) <= made);
    c.osds.clone().into_iter().for_each(|node| c.world.set_paused(node, false));
    c.wait_clean(32);
}

/// Nobody can have written to its PGs, so that nobody needs what happened before there are OSDs for them.
#[test]
fn a_pool_that_no_osd_can_hold_keeps_no_old_maps() {
    let mut c = Cluster::with(36, 3, None, &[("mon_min_osdmap_epochs", "10")]);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    c.create_pool("rbd");
    c.wait_clean(32);
    let done = |c: &mut Cluster, command: &str| {
        let ack = c.ask(command);
        assert_eq!(ack.result, 0, "{command}: {}", ack.outs);
    };
    done(&mut c, r#"{"prefix":"osd crush add-bucket","name":"empty","type":"root"}"#);
    let rule = r#"{"prefix":"osd crush rule create-replicated","name":"nowhere","root":"empty","type":"host"}"#;
    done(&mut c, rule);
    let pool =
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"erasure_code_profile":"nowhere"}"#;
    done(&mut c, pool);
    let made = epoch(&mut c);
    turn_flags(&mut c, 60);
    c.run_until(Duration::from_secs(20), |c| oldest(c) > made);
    assert_eq!(c.clean(), (32, 40));
    // A mon that starts finds what it needs, and so does who makes them at last.
    c.crash_all();
    c.run_until(Duration::from_secs(10), |c| c.clean().0 == 32);
    turn_flags(&mut c, 60);
    let set = r#"{"prefix":"osd pool set","pool":"p","var":"crush_rule","val":"replicated_rule"}"#;
    done(&mut c, set);
    c.wait_clean(40);
    turn_flags(&mut c, 1);
    c.run_until(Duration::from_secs(20), |c| oldest(c).0 > made.0 + 120);
}

#[test]
fn settings_and_other_maps_are_told_when_they_change() {
    let mut c = Cluster::new(33, 1);
    c.pass(Duration::from_millis(500));
    let wish = MMonSubscribe {
        what: ["config", "monmap", "mgrmap", "nosuch"]
            .map(|what| (what.to_owned(), Subscription { start: 0, flags: 0 }))
            .into(),
        ..MMonSubscribe::default()
    };
    let s = Subscriber::new(&mut c, wire::Identity::client("x", 9), wish);
    c.pass(Duration::from_millis(100));
    let configs = |s: &Subscriber| s.client.borrow().all::<MConfig>();
    assert_eq!(configs(&s), [MConfig::default()], "an empty one is told too");
    assert_eq!(s.client.borrow().all::<MMonMap>().len(), 1);
    let mgrmaps = s.client.borrow().all::<MMgrMap>();
    let mgrmap: maps::MgrMap = denc::decode(&mgrmaps[0].mgrmap).expect("a map");
    assert!(mgrmap.available && mgrmap.active_addrs.v2().is_some());
    for (who, name) in [("osd", "osd_max_backfills"), ("client.x", "rbd_cache_size")] {
        let set = format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"9"}}"#);
        assert_eq!(c.ask(&set).result, 0);
    }
    c.pass(Duration::from_millis(100));
    let told = configs(&s);
    assert_eq!(told.len(), 2, "what is not for it is not told");
    assert_eq!(told[1].config.get("rbd_cache_size").map(String::as_str), Some("9"));
}

/// Where somebody is, CRUSH says.
#[test]
fn an_option_for_a_place_is_told_to_who_comes_there() {
    let mut c = Cluster::new(40, 1);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 1);
    let wish = subscribe("config", 0, 0);
    let s = Subscriber::new(&mut c, wire::Identity::client("x", 9), wish);
    let done = |c: &mut Cluster, command: &str| {
        let ack = c.ask(command);
        assert_eq!(ack.result, 0, "{command}: {}", ack.outs);
    };
    done(&mut c, r#"{"prefix":"osd crush add-bucket","name":"r1","type":"rack"}"#);
    done(&mut c, r#"{"prefix":"osd crush add-bucket","name":"here","type":"host"}"#);
    let set =
        r#"{"prefix":"config set","who":"client/rack:r1","name":"rbd_cache_size","value":"9"}"#;
    done(&mut c, set);
    turn_flags(&mut c, 3);
    c.pass(Duration::from_millis(100));
    let told = |s: &Subscriber| {
        let client = s.client.borrow();
        let all = client.all::<MConfig>().into_iter();
        all.map(|m| m.config.get("rbd_cache_size").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(told(&s), [None]);
    done(&mut c, r#"{"prefix":"osd crush move","name":"here","args":["rack=r1"]}"#);
    c.pass(Duration::from_millis(100));
    assert_eq!(told(&s), [None, Some("9".into())]);
}

/// `ceph -w`
#[test]
fn who_follows_the_log_hears_what_happens() {
    let mut c = Cluster::new(35, 2);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 2);
    let me = || wire::Identity::client("x", 9);
    let info = Subscriber::new(&mut c, me(), subscribe("log-info", 0, 0));
    let warn = Subscriber::new(&mut c, me(), subscribe("log-warn", 0, 0));
    c.pass(Duration::from_millis(200));
    assert_eq!(c.ask(r#"{"prefix":"log","logtext":["hello","world"]}"#).result, 0);
    c.crash_osd(1);
    c.pass(Duration::from_secs(3));
    let heard = |s: &Subscriber| {
        let client = s.client.borrow();
        let logs: Vec<_> =
            client.heard.iter().filter(|m| m.header.kind == wire::msg::kind::LOG).collect();
        let texts: Vec<u8> = logs.iter().flat_map(|m| m.front.to_vec()).collect();
        let versions: Vec<u64> = logs.iter().map(|m| denc::decode(&m.front).unwrap()).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        String::from_utf8_lossy(&texts).into_owned()
    };
    for text in ["hello world", "osd.1 marked down", "Health check failed: 1 osds down (OSD_DOWN)"]
    {
        assert!(heard(&info).contains(text), "{text}");
    }
    assert!(!heard(&info).contains("boot"), "what was before is not told");
    assert!(!heard(&warn).contains("hello") && heard(&warn).contains("marked down"));
}

#[test]
fn upmaps_that_cannot_be_are_cleared_away() {
    let mut c = Cluster::new(34, 3);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    c.create_pool("rbd");
    c.wait_clean(32);
    for (command, outs) in [
        (
            r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#,
            "set require_min_compat_client to luminous",
        ),
        (r#"{"prefix":"osd pg-upmap","pgid":"1.3","id":[0]}"#, "set 1.3 pg_upmap mapping to [0]"),
    ] {
        let ack = c.ask(command);
        assert_eq!((ack.result, ack.outs.as_str()), (0, outs));
    }
    let dump = c.json("osd dump");
    assert_eq!(dump["pg_upmap"], serde_json::json!([]), "one copy in a pool of three");
    c.wait_clean(32);
}

/// Messages of the log, 4 KiB each.
fn write_log(c: &mut Cluster, times: usize) {
    let text = "x".repeat(4 << 10);
    for _ in 0..times {
        let ack = c.ask(&format!(r#"{{"prefix":"log","logtext":["{text}"]}}"#));
        assert_eq!(ack.result, 0, "{}", ack.outs);
    }
}

/// A virtual machine that was stopped, say: what it is subscribed to waits until it reads.
#[test]
fn who_does_not_read_has_no_more_sent_and_gets_it_later() {
    let mut c = Cluster::new(37, 1);
    c.pass(Duration::from_secs(1));
    let me = wire::Identity::client("x", 9);
    let mut wish = subscribe("osdmap", 0, 0);
    wish.what.insert("log-info".to_owned(), Subscription { start: 0, flags: 0 });
    let stopped = Subscriber::new(&mut c, me, wish);
    c.pass(Duration::from_millis(100));
    c.world.set_paused(stopped.node, true);
    write_log(&mut c, 6000);
    let most = c.world.unsent_bytes(c.mon);
    turn_flags(&mut c, 5);
    write_log(&mut c, 500);
    assert!(most > 16 << 20, "{most}");
    assert!(c.world.unsent_bytes(c.mon) < most + (1 << 20), "{most} and more");
    let now = epoch(&mut c);
    assert!(stopped.osdmaps().last().expect("one").last() < Some(now));
    c.world.set_paused(stopped.node, false);
    c.pass(Duration::from_secs(1));
    assert_eq!(follow(&stopped.osdmaps()).epoch, now);
    assert_eq!(stopped.client.borrow().sessions, 1);
}

#[test]
fn who_says_nothing_for_long_is_disconnected() {
    let mut c = Cluster::new(38, 1);
    c.pass(Duration::from_secs(1));
    let stopped =
        Subscriber::new(&mut c, wire::Identity::client("x", 9), subscribe("log-info", 0, 0));
    c.pass(Duration::from_millis(100));
    c.world.set_paused(stopped.node, true);
    write_log(&mut c, 200);
    c.world.run_for(Duration::from_secs(290));
    assert!(c.world.unsent_bytes(c.mon) > 600 << 10);
    let lives = c.on_client(|c| c.sessions);
    c.world.run_for(Duration::from_secs(20));
    assert!(c.world.unsent_bytes(c.mon) < 10 << 10, "nothing waits for it");
    c.world.set_paused(stopped.node, false);
    c.world.run_for(Duration::from_secs(1));
    assert_eq!(stopped.client.borrow().sessions, 2, "it is back");
    assert_eq!(c.on_client(|c| c.sessions), lives, "one that only listens is left alone");
    assert_eq!(c.json("osd stat")["num_up_osds"], 1);
}

/// As an OSD of Ceph asks that could not make a map of the one before and an incremental.
#[test]
fn whoever_names_maps_gets_these_and_its_subscription_goes_on() {
    let mut c = Cluster::new(33, 1);
    c.pass(Duration::from_secs(1));
    turn_flags(&mut c, 60);
    // So that they come out of the store.
    c.world.crash(c.mon);
    c.world.start(c.mon);
    c.pass(Duration::from_secs(1));
    let me = wire::Identity::client("x", 9);
    let one = Subscriber::new(&mut c, me, subscribe("osdmap", 0, 0));
    c.pass(Duration::from_millis(100));
    let asks = |full_first, full_last, inc_first, inc_last| MMonGetOsdMap {
        full_first: Epoch(full_first),
        full_last: Epoch(full_last),
        inc_first: Epoch(inc_first),
        inc_last: Epoch(inc_last),
        ..MMonGetOsdMap::default()
    };
    let get = |c: &mut Cluster, ask: MMonGetOsdMap| {
        one.client.borrow_mut().heard.clear();
        let said = c.world.with_core(one.node, |_, _, _| one.client.borrow_mut().say(ask.encode()));
        said.expect("it runs");
        c.pass(Duration::from_millis(100));
        let mut all = one.osdmaps();
        assert_eq!(all.len(), 1);
        let m = all.remove(0);
        (m.fulls, m.incrementals)
    };
    let (fulls, incrementals) = get(&mut c, asks(7, 8, 8, 9));
    assert_eq!(fulls.keys().copied().collect::<Vec<_>>(), [Epoch(7), Epoch(8)]);
    assert_eq!(incrementals.keys().copied().collect::<Vec<_>>(), [Epoch(8), Epoch(9)]);
    let map: OsdMap = denc::decode(&fulls[&Epoch(8)]).expect("a map");
    assert_eq!(map.epoch, Epoch(8));
    assert_eq!(get(&mut c, asks(0, 0, 0, 0)), Default::default());
    assert_eq!(get(&mut c, asks(1, u32::MAX, 1, u32::MAX)).0.len(), 40, "a bounded message");
    // It was not moved.
    one.client.borrow_mut().heard.clear();
    turn_flags(&mut c, 1);
    c.pass(Duration::from_millis(100));
    let end = epoch(&mut c);
    assert_eq!(one.osdmaps().iter().flat_map(|m| m.incrementals.keys()).max(), Some(&end));
}
