//! The mon as itself, and as mgr.

use crate::cluster::{Cluster, FSID};
use serde_json::Value;
use std::time::Duration;
use types::EntityType;
use wire::msg::{
    MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMgrMap, MMonSubscribe, MPing, Payload,
    Subscription, kind,
};

fn tell(prefix: &str) -> MCommand {
    let cmd = vec![format!(r#"{{"prefix":"{prefix}","format":"json"}}"#)];
    MCommand { fsid: FSID, cmd, ..MCommand::default() }
}

#[test]
fn what_is_asked_of_this_daemon_is_answered() {
    let mut c = Cluster::new(41, 2);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 2);
    c.pass(Duration::from_secs(1));
    let asked = ["version", "mon_status", "sessions", "perf dump", "config show", "nosuch"];
    for prefix in asked {
        c.on_client(|client| client.say(tell(prefix).encode()));
    }
    c.on_client(|client| client.say(MPing {}.encode()));
    c.pass(Duration::from_millis(100));
    let replies = c.client.borrow().all::<MCommandReply>();
    let results: Vec<i32> = replies.iter().map(|r| r.result).collect();
    assert_eq!(results, [0, 0, 0, 0, 0, -22]);
    let json = |i: usize| -> Value { serde_json::from_slice(&replies[i].data).expect("JSON") };
    assert_eq!(json(0)["release"], "pacific");
    assert_eq!(json(1)["name"], "a");
    assert_eq!(json(2).as_array().map(Vec::len), Some(3), "two OSDs and us");
    let perf = &json(3)["mon"];
    assert!(perf["osdmap_epochs"].as_u64() >= Some(1) && perf["osd_reports"].as_u64() >= Some(2));
    assert!(perf["commit_latency"]["avgcount"].as_u64() >= Some(2));
    assert_eq!(json(4)["mon_max_pg_per_osd"], "250");
    let client = c.client.borrow();
    let pong = client.heard.iter().find(|m| m.header.kind == kind::PING).expect("a pong");
    let text: String = denc::decode(&pong.front).expect("a text");
    let pong: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(pong["mon_status"]["state"], "leader");
}

#[test]
fn settings_made_on_the_daemon_count_until_it_ends() {
    let mut c = Cluster::new(42, 0);
    c.pass(Duration::from_millis(100));
    let pools =
        |c: &mut Cluster| c.ask(r#"{"prefix":"osd pool create","pool":"p","pg_num":64}"#).result;
    let set = r#"{"prefix":"config set","var":"mon_max_pool_pg_num","val":["32"]}"#;
    let set = MCommand { fsid: FSID, cmd: vec![set.into()], ..MCommand::default() };
    c.on_client(|client| client.say(set.encode()));
    assert_eq!(pools(&mut c), -34);
    c.world.crash(c.mon);
    c.world.start(c.mon);
    assert_eq!(pools(&mut c), 0);
}

#[test]
fn the_mgr_is_where_its_map_says_and_answers_commands() {
    let mut c = Cluster::new(43, 1);
    let wish = |what: &str| (what.to_owned(), Subscription { start: 0, flags: 0 });
    let subscribe = MMonSubscribe { what: [wish("mgrmap")].into(), ..MMonSubscribe::default() };
    let mut epochs = Vec::new();
    for _ in 0..2 {
        c.on_client(|client| client.heard.clear());
        c.on_client(|client| client.say(subscribe.clone().encode()));
        c.pass(Duration::from_millis(500));
        let map = c.client.borrow().all::<MMgrMap>().remove(0);
        let map: maps::MgrMap = denc::decode(&map.mgrmap).expect("a map");
        epochs.push(map.epoch);
        let me = wire::Identity { global_id: 4200, ..wire::Identity::client("x", 9) };
        let (node, mgr) = c.add_client_of(map.active_addrs.clone(), EntityType::MGR, me);
        let unknown = r#"{"prefix":"rbd nonsense","image_spec":"p/i"}"#;
        for text in [r#"{"prefix":"pg stat","format":"json"}"#, unknown] {
            // Ceph's clients do not say for which cluster.
            let m = MMgrCommand { cmd: vec![text.into()], ..MMgrCommand::default() };
            c.world.with_core(node, |_, _, _| mgr.borrow_mut().say(m.encode()));
        }
        c.world.with_core(node, |_, _, _| mgr.borrow_mut().say(tell("version").encode()));
        c.pass(Duration::from_millis(500));
        let replies = mgr.borrow().all::<MMgrCommandReply>();
        assert_eq!(replies.iter().map(|r| r.result).collect::<Vec<_>>(), [0, -22]);
        // Clients of the module look for these words.
        assert_eq!(replies[1].outs, "No handler found for 'rbd nonsense'");
        let stat: Value = serde_json::from_slice(&replies[0].data).expect("JSON");
        assert_eq!(stat["pg_ready"], true);
        assert_eq!(mgr.borrow().all::<MCommandReply>()[0].result, 0);
        // After a restart it is another mgr, under a newer map.
        c.world.crash(node);
        c.world.crash(c.mon);
        c.world.start(c.mon);
        c.pass(Duration::from_secs(1));
    }
    assert!(epochs[0] < epochs[1], "{epochs:?}");
}

/// As a client of its own cluster it may be shut out like others: by an operator, or by who takes it for dead.
#[test]
fn a_mon_that_is_shut_out_as_a_client_comes_back_as_another_one() {
    let mut c = Cluster::new(43, 3);
    c.run_until(Duration::from_secs(3), |c| c.json("osd stat")["num_up_osds"] == 3);
    c.create_pool("images");
    let remove = r#"{"prefix":"rbd task add remove","image_spec":"images/x"}"#;
    let no_image = "[errno 2] RBD image not found (Image images/x does not exist)";
    let mut known = Vec::new();
    for _ in 0..3 {
        let answer = c.ask(remove);
        assert_eq!((answer.result, &*answer.outs), (-2, no_image));
        c.on_client(|client| client.say(tell("sessions").encode()));
        c.pass(Duration::from_millis(100));
        let reply = c.client.borrow().all::<MCommandReply>().pop().expect("an answer");
        let sessions: Vec<Value> = serde_json::from_slice(&reply.data).expect("JSON");
        let mut own = sessions.iter().filter(|s| s["entity_name"] == "client.rbd_support");
        let own = own.next_back().expect("a session of its own");
        let addr = &own["addrs"]["addrvec"][0];
        let addr = format!("{}/{}", addr["addr"].as_str().expect("an address"), addr["nonce"]);
        assert!(!known.contains(&addr), "{addr} is shut out, and still there");
        let shut_out =
            c.ask(&format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{addr}"}}"#));
        assert_eq!(shut_out.result, 0, "{}", shut_out.outs);
        known.push(addr);
        c.pass(Duration::from_secs(15));
    }
    let whole = r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/0"}"#;
    assert_eq!(c.ask(whole).result, 0);
    assert_eq!(c.ask(remove).result, -108, "another client of this host is shut out, too");
    assert_eq!(c.ask(r#"{"prefix":"osd blocklist clear"}"#).result, 0);
    c.pass(Duration::from_secs(15));
    assert_eq!(c.ask(remove).result, -2);
}

#[test]
fn options_are_injected_and_those_of_others_are_shown() {
    let mut c = Cluster::new(43, 0);
    c.pass(Duration::from_secs(1));
    let mut told = |cmd: Value| {
        let before = c.client.borrow().all::<MCommandReply>().len();
        let command = MCommand { fsid: FSID, cmd: vec![cmd.to_string()], ..MCommand::default() };
        c.on_client(|client| client.say(command.encode()));
        let heard = |c: &mut Cluster| c.client.borrow().all::<MCommandReply>().len() > before;
        c.run_until(Duration::from_secs(5), heard);
        let reply = c.client.borrow().all::<MCommandReply>().pop().expect("it is there");
        (reply.result, reply.outs, serde_json::from_slice(&reply.data).unwrap_or(Value::Null))
    };
    let inject =
        |words: &[&str]| serde_json::json!({"prefix": "injectargs", "injected_args": words});
    let get = |var: &str| serde_json::json!({"prefix": "config get", "var": var});
    let value = |var: &str, value: &str| (0, String::new(), serde_json::json!({ var: value }));
    let said = (0, "mon_allow_pool_delete = 'true' ".to_owned(), serde_json::json!({}));
    assert_eq!(told(inject(&["--mon-allow-pool-delete=true"])), said);
    assert_eq!(told(get("mon_allow_pool_delete")), value("mon_allow_pool_delete", "true"));
    assert_eq!(told(inject(&["--mon_allow_pool_delete false"])).0, 0);
    assert_eq!(told(get("mon_allow_pool_delete")), value("mon_allow_pool_delete", "false"));
    assert_eq!(told(inject(&["--mon_allow_pool_delete"])), said);
    assert_eq!(told(inject(&["--nosuch=1"])).0, -22);
    assert_eq!(told(get("debug_mgr")), value("debug_mgr", "1/5"));
    assert_eq!(told(get("nosuch")).0, -2);
    let mgr = c.json("mgr metadata");
    assert!(
        mgr[0]["addr"].as_str().is_some_and(|addr| addr.parse::<std::net::IpAddr>().is_ok()),
        "{mgr}"
    );
}
