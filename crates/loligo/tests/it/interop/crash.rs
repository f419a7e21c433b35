//! `kill -9` of every daemon under load, again and again: what was acknowledged is there, once.
//!
//! The writers live through it all: their requests are sent again when the cluster is back, with the
//! same identity, so an append that had happened must not happen twice.

use super::cluster::{Cluster, is_foreign};
use super::load::{PATIENCE, check, under_load, wait_for_progress};

/// How often everything is killed: a few times in `./check`, 20 for the acceptance.
const KILLS_ENV: &str = "LOLIGO_IT_KILLS";
const DEFAULT_KILLS: u32 = 3;
/// How often something is killed.
pub fn kills() -> u32 {
    let given = std::env::var(KILLS_ENV).ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_KILLS)
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_of_everything() {
    if is_foreign() {
        return;
    }
    let cluster = Cluster::start(3, "1G");
    under_load(&cluster, |reader, pool, shared| {
        for round in 0..kills() {
            let name = format!("round-{round}");
            let bench = |mode: &[&str]| {
                let tool = cluster.rados().args(["-p", "rbd", "bench", "4"]).args(mode);
                tool.args(["--run-name", &name, "-t", "16"]).limit(PATIENCE)
            };
            // It writes through the kill and ends well.
            let running = bench(&["write", "-b", "4096", "--no-cleanup"]).start();
            wait_for_progress(shared);
            cluster.kill_all();
            cluster.dev("start").limit(PATIENCE).ok();
            check(reader, pool, shared);
            let ran = running.wait();
            assert!(ran.status.success(), "{ran:?}");
            let read = bench(&["seq"]).text();
            assert!(read.contains("Total reads made"), "{read}");
            let cleanup = cluster.rados().args(["-p", "rbd", "cleanup", "--run-name", &name]);
            cleanup.limit(PATIENCE).ok();
        }
    });
}
