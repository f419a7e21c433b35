//! The same random requests to our cluster and to one of real Ceph beside it must get the same
//! answers, result by result and byte by byte, and make the same objects.
//!
//! `bench/beside` starts both and runs these tests. `LOLIGO_IT_CEPH_CONF=FILE` names the cluster of real
//! Ceph, which has a pool `beside` with 8 PGs. `LOLIGO_IT_FIRST` and
//! `LOLIGO_IT_SEEDS` choose the histories: each is some requests on a few objects of its own, and ends
//! with the first answer that differs.
//!
//! What Ceph itself gets wrong (above all what ends its OSDs) is not asked for; see where the
//! requests are made.

mod answer;
mod call;
mod op;
mod request;

use super::cluster::shared;
use answer::Answer;
use client::{ObjectOp, Outcome};
use loligo::SyncClient;
use loligo::conf::ClientConf;
use request::{Asked, Names};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use types::{Errno, PoolId};

const CEPH_ENV: &str = "LOLIGO_IT_CEPH_CONF";
/// Its pool.
const POOL: &str = "beside";
/// Requests of a history.
const REQUESTS: u64 = 40;
/// Histories, unless the environment says otherwise.
const HISTORIES: u64 = 100;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

struct Side {
    client: SyncClient,
    pool: PoolId,
}

impl Side {
    fn connect(conf: &Path, pool: &str) -> Self {
        let conf = ClientConf::load(conf).unwrap();
        let mut client = SyncClient::connect(&conf, Duration::from_secs(10)).unwrap();
        let pool = client.pool(pool).unwrap();
        Side { client, pool }
    }

    fn ask(&mut self, op: ObjectOp) -> Answer {
        let id = self.client.submit(op).unwrap();
        match self.client.wait(id).unwrap() {
            Outcome::Op(result) => Answer::of(result),
            other => panic!("{other:?}"),
        }
    }
}

/// Makes request `n` of a history.
type Make = fn(&Names, u64) -> Asked;

struct Pair {
    ours: Side,
    theirs: Side,
    /// So that no run meets the objects of another one.
    run: String,
    asked: u64,
    /// Histories that ended since Ceph did not answer: an OSD of it had ended, mostly.
    unanswered: u64,
}

impl Pair {
    /// Runs one history: the first difference in a few words, and how it came to it.
    fn compare(&mut self, make: Make, seed: u64) -> Option<(String, String)> {
        let prefix = format!("{}-{seed}", self.run);
        let names = |side: &Side| Names { pool: side.pool, prefix: prefix.clone(), seed };
        let (our_names, their_names) = (names(&self.ours), names(&self.theirs));
        let mut history = format!("seed {seed}\n");
        for n in 0..REQUESTS {
            let (ours, theirs) = (make(&our_names, n), make(&their_names, n));
            let (a, b) = (self.ours.ask(ours.request), self.theirs.ask(theirs.request));
            self.asked += 1;
            history.push_str(&format!("{n}: {} -> {}\n", ours.shown, a.result));
            let mut difference = a.difference(&b, ours.is_own).map(|d| (d, a, b));
            if difference.is_none() {
                let (a, b) = (self.ours.ask(ours.look), self.theirs.ask(theirs.look));
                let afterwards = a.difference(&b, false);
                difference = afterwards.map(|d| (format!("afterwards: {d}"), a, b));
            }
            if let Some((difference, a, b)) = difference {
                if b.result == Errno::ETIMEDOUT.wire() {
                    self.unanswered += 1;
                    return None;
                }
                history.push_str(&format!("  ours:   {a}\n  theirs: {b}\n"));
                return Some((difference, history));
            }
        }
        None
    }
}

/// Many histories; each kind of difference is shown once.
fn compare(what: &str, make: Make) {
    let conf = std::env::var_os(CEPH_ENV).expect("LOLIGO_IT_CEPH_CONF");
    let pool = shared().pool(POOL);
    let mut pair = Pair {
        ours: Side::connect(pool.cluster.conf(), &pool.name),
        theirs: Side::connect(Path::new(&conf), POOL),
        run: format!("{what}-{}", std::process::id()),
        asked: 0,
        unanswered: 0,
    };
    let mut kinds: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let first = number("LOLIGO_IT_FIRST", 1);
    for seed in first..first + number("LOLIGO_IT_SEEDS", HISTORIES) {
        if let Some((difference, history)) = pair.compare(make, seed) {
            kinds.entry(difference).or_insert((0, history)).0 += 1;
        }
    }
    for (difference, (times, example)) in &kinds {
        println!("== {times} times: {difference}\n{example}");
    }
    let (asked, unanswered) = (pair.asked, pair.unanswered);
    println!(
        "{asked} requests, {unanswered} that Ceph did not answer, {} kinds of differences",
        kinds.len()
    );
    assert!(kinds.is_empty(), "answers differ from those of Ceph");
}

#[test]
#[ignore = "needs a real Ceph: bench/beside"]
fn objects_are_as_in_ceph() {
    compare("o", request::on_object);
}

#[test]
#[ignore = "needs a real Ceph: bench/beside"]
fn classes_are_as_in_ceph() {
    compare("c", request::call_on_object);
}
