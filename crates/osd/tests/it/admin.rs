//! What an operator sees of an OSD, by `ceph tell`.

use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::time::Duration;
use types::{Errno, OsdId};
use wire::msg::{MCommandReply, Payload};

/// What was answered to a command, if anything yet.
pub fn answer(c: &Cluster, tid: u64) -> Option<MCommandReply> {
    let client = c.client.borrow();
    let mut all = client.other.iter();
    all.find(|m| m.header.kind == MCommandReply::TYPE && m.header.tid == tid)
        .map(|m| m.decode().expect("a reply"))
}

/// Sends a command to an OSD and waits for its answer.
pub fn tell(c: &mut Cluster, osd: i32, command: &Value) -> (i32, String, Value) {
    let tid = c.on_client(|client| client.command(OsdId(osd), command.to_string()));
    c.run_until(Duration::from_secs(10), |c| answer(c, tid).is_some());
    let reply = answer(c, tid).expect("it came");
    let data = serde_json::from_slice(&reply.data).unwrap_or(Value::Null);
    (reply.result, reply.outs, data)
}

pub fn ask(c: &mut Cluster, osd: i32, prefix: &str) -> Value {
    let (result, outs, data) = tell(c, osd, &json!({ "prefix": prefix }));
    assert_eq!(result, 0, "{prefix}: {outs}");
    data
}

#[test]
fn every_moment_of_a_write_can_be_seen() {
    let mut c = with_pool(5, 3, 3);
    c.call(object(1, "a"), vec![write_full(&[1; 5000])], true);
    let leader = c.client.borrow().primary_of(&object(1, "a")).0;
    let ended = ask(&mut c, leader, "dump_historic_ops");
    let op = &ended["ops"][0];
    let text = op["description"].as_str().expect("a text");
    assert!(text.contains(":::a:head [writefull 0~5000]"), "{text}");
    let events: Vec<&str> = op["type_data"]["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|e| e["event"].as_str().expect("a name"))
        .collect();
    let has = |start: &str| events.iter().filter(|e| e.starts_with(start)).count();
    assert_eq!(
        (has("initiated"), has("started"), has("op_commit queued")),
        (1, 1, 1),
        "{events:?}"
    );
    assert_eq!((has("sub_op sent to"), has("sub_op_commit_rec from")), (2, 2), "{events:?}");
    assert_eq!((has("commit_sent"), has("done")), (1, 1), "{events:?}");
    let perf = ask(&mut c, leader, "perf dump");
    assert_eq!(
        (&perf["osd"]["op_w"], &perf["osd"]["op_latency"]["avgcount"]),
        (&json!(1), &json!(1))
    );
    assert!(perf["store"]["transactions"].as_u64() > Some(0));
    assert_eq!(ask(&mut c, leader, "dump_ops_in_flight")["num_ops"], 0);
    let pools = &ask(&mut c, leader, "dump_mempools")["mempool"];
    let bytes = |pool: &Value| pool["bytes"].as_u64().expect("bytes");
    let sum: u64 = pools["by_pool"].as_object().expect("pools").values().map(bytes).sum();
    assert_eq!((&pools["by_pool"]["osd_pglog"]["items"], sum), (&json!(1), bytes(&pools["total"])));
    assert!(bytes(&pools["by_pool"]["bluestore_txc"]) > 0, "{pools}");
    let status = ask(&mut c, leader, "status");
    assert_eq!((&status["whoami"], &status["state"]), (&json!(leader), &json!("active")));
}

/// Whoever may be a client could tell an OSD that all others are down.
#[test]
fn maps_that_a_client_sends_are_no_maps() {
    let mut c = with_pool(7, 1, 1);
    c.call(object(1, "a"), vec![write_full(b"abc")], true);
    let map = c.client.borrow().map.clone();
    let mut inc = maps::Incremental::after(&map);
    inc.new_max_osd = Some(77);
    let mut next = map.clone();
    next.apply(&inc).expect("it follows");
    inc.full_crc = next.encode_with_crc().1;
    let m = wire::msg::MOsdMap {
        fsid: map.fsid,
        incrementals: [(inc.epoch, denc::encode(&inc))].into(),
        oldest: types::Epoch(1),
        newest: inc.epoch,
        ..Default::default()
    };
    c.on_client(|client| client.send(OsdId(0), m.encode()));
    c.call(object(1, "a"), vec![write_full(b"abc")], true);
    assert_eq!(ask(&mut c, 0, "status")["newest_map"], map.epoch.0);
}

#[test]
fn a_pg_tells_all_of_itself() {
    let mut c = with_pool(6, 3, 3);
    c.call(object(1, "a"), vec![write_full(b"abc")], true);
    let (pgid, leader) = {
        let client = c.client.borrow();
        (client.pg_of(&object(1, "a")), client.primary_of(&object(1, "a")).0)
    };
    for command in [
        json!({ "prefix": "query", "pgid": pgid.to_string() }),
        json!({ "prefix": "pg", "pgid": pgid.to_string(), "cmd": "query" }),
    ] {
        let (result, outs, pg) = tell(&mut c, leader, &command);
        assert_eq!(result, 0, "{outs}");
        assert_eq!(pg["state"], "active+clean");
        assert_eq!(pg["info"]["pgid"], pgid.to_string());
        assert_eq!(pg["info"]["stats"]["stat_sum"]["num_objects"], 1);
        assert_eq!(pg["peer_info"].as_array().map(Vec::len), Some(2));
        assert_eq!(pg["recovery_state"][0]["name"], "Started/Primary/Active");
    }
    let elsewhere = (leader + 1) % 3;
    let query = json!({ "prefix": "query", "pgid": pgid.to_string() });
    assert_eq!(tell(&mut c, elsewhere, &query).0, -Errno::ENOENT.0);
}

#[test]
fn options_are_set_and_nonsense_is_refused() {
    let mut c = with_pool(7, 1, 1);
    let set = json!({ "prefix": "config set", "var": "osd_op_history_size", "val": ["1"] });
    assert_eq!(tell(&mut c, 0, &set).0, 0);
    for name in ["a", "b"] {
        c.call(object(1, name), vec![write_full(b"x")], true);
        c.call(object(1, name), vec![read(0, 0)], false);
    }
    let ended = ask(&mut c, 0, "dump_historic_ops");
    assert_eq!((&ended["size"], ended["ops"].as_array().map(Vec::len)), (&json!(1), Some(1)));
    let inject = json!({ "prefix": "injectargs", "injected_args": ["--osd-op-history-size=7"] });
    assert_eq!(tell(&mut c, 0, &inject).1, "osd_op_history_size = '7' ");
    let shown = json!({ "prefix": "config get", "var": "osd_op_history_size" });
    assert_eq!(tell(&mut c, 0, &shown).2, json!({ "osd_op_history_size": "7" }));
    for command in [json!({ "prefix": "nosuch" }), json!([1]), json!({ "prefix": "query" })] {
        assert_eq!(tell(&mut c, 0, &command).0, -Errno::EINVAL.0, "{command}");
    }
    let descriptions = ask(&mut c, 0, "get_command_descriptions");
    assert!(descriptions["cmd000"]["sig"].is_array());
}

#[test]
fn counters_can_be_reset() {
    let mut c = with_pool(5, 3, 3);
    c.call(object(1, "a"), vec![write_full(&[1; 5000])], true);
    let leader = c.client.borrow().primary_of(&object(1, "a")).0;
    let ops = |c: &mut Cluster| {
        let perf = ask(c, leader, "perf dump");
        (perf["osd"]["op_w"].clone(), perf["osd"]["numpg"].clone())
    };
    let (before, pgs) = ops(&mut c);
    assert_eq!(before, 1);
    let reset = |what: &str| json!({"prefix": "perf reset", "var": what});
    assert_eq!(tell(&mut c, leader, &reset("nobody")).0, Errno::ENOENT.wire());
    let (_, _, said) = tell(&mut c, leader, &reset("all"));
    assert_eq!(said, json!({"success": "perf reset all"}));
    assert_eq!(ops(&mut c), (json!(0), pgs.clone()), "gauges stay");
    c.call(object(1, "a"), vec![write_full(&[1; 5000])], true);
    assert_eq!(ops(&mut c), (json!(1), pgs));
}

#[test]
fn what_an_osd_says_of_itself_is_with_the_mon_when_it_was_asked_to_report() {
    let mut c = with_pool(5, 3, 3);
    for _ in 0..3 {
        c.call(object(1, "a"), vec![write_full(&[1; 5000])], true);
        for osd in 0..3 {
            let seq = ask(&mut c, osd, "flush_pg_stats").as_u64().expect("a number");
            c.run_until(Duration::from_millis(100), |c| {
                let mon = c.mon.borrow();
                let report = &mon.reports[&OsdId(osd)];
                peer::stat_seq(report.up_from, report.seq) >= seq
            });
        }
        let versions = |c: &Cluster| -> u64 {
            let mon = c.mon.borrow();
            mon.stats.values().map(|s| s.last_update.version).sum()
        };
        let before = versions(&c);
        c.pass(Duration::from_secs(10));
        assert_eq!(versions(&c), before, "something was not reported");
    }
}

#[test]
fn what_is_idle_says_so() {
    let mut c = with_pool(5, 3, 3);
    let asked = ask(&mut c, 0, "objecter_requests");
    assert_eq!((&asked["ops"], &asked["command_ops"]), (&json!([]), &json!([])));
    for command in ["send_beacon", "flush_store_cache"] {
        let (result, outs, _) = tell(&mut c, 0, &json!({ "prefix": command }));
        assert_eq!((result, &*outs), (0, ""), "{command}");
    }
}

#[test]
fn the_next_scrub_of_each_pg_can_be_seen() {
    let mut c = with_pool(5, 3, 3);
    let all: Vec<Value> = (0..3)
        .flat_map(|osd| ask(&mut c, osd, "dump_scrubs").as_array().cloned().expect("a list"))
        .collect();
    assert_eq!(all.len(), 8, "each PG has one primary");
    for pg in &all {
        // The pool is of 1970: such times are shown as seconds.
        let seconds = |name: &str| -> f64 {
            pg[name].as_str().and_then(|text| text.parse().ok()).expect("seconds")
        };
        let (at, late) = (seconds("sched_time"), seconds("deadline"));
        assert!((86_400.0..=1.5 * 86_400.0).contains(&at) && at < late, "{pg}");
        assert_eq!((&pg["forced"], &pg["running"]), (&json!(false), &json!(false)), "{pg}");
    }
    let reserved = ask(&mut c, 0, "dump_scrub_reservations");
    assert_eq!(reserved, json!({"scrubs_local": 0, "scrubs_remote": 0, "osd_max_scrubs": 1}));
}
