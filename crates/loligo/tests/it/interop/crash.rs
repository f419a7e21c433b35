//! `kill -9` of every daemon under load, again and again: what was acknowledged is there, once.
//!
//! The writers live through it all: their requests are sent again when the cluster is back, with the
//! same identity, so an append that had happened must not happen twice.

use super::cluster::{Cluster, is_foreign};
use super::load::{PATIENCE, Shared, StopAtEnd, append, check, wait_for_progress, write_over};
use loligo::SyncClient;
use loligo::conf::ClientConf;
use types::PoolId;

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
    let conf = ClientConf::load(&cluster.dir().join("ceph.conf")).unwrap();
    let client = || SyncClient::connect(&conf, PATIENCE).unwrap();
    let mut reader = client();
    let pool = reader.pool("rbd").unwrap();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let writers: [fn(&mut SyncClient, PoolId, &Shared) -> _; 2] = [write_over, append];
        let writers = writers.map(|write| {
            let (mut client, shared) = (client(), &shared);
            scope.spawn(move || write(&mut client, pool, shared))
        });
        let stop = StopAtEnd(&shared);
        for round in 0..kills() {
            let name = format!("round-{round}");
            let bench = |mode: &[&str]| {
                let tool = cluster.rados().args(["-p", "rbd", "bench", "4"]).args(mode);
                tool.args(["--run-name", &name, "-t", "16"]).limit(PATIENCE)
            };
            // It writes through the kill and ends well.
            let running = bench(&["write", "-b", "4096", "--no-cleanup"]).start();
            wait_for_progress(&shared);
            cluster.kill_all();
            cluster.dev("start").limit(PATIENCE).ok();
            check(&mut reader, pool, &shared);
            let ran = running.wait();
            assert!(ran.status.success(), "{ran:?}");
            let read = bench(&["seq"]).text();
            assert!(read.contains("Total reads made"), "{read}");
            let cleanup = cluster.rados().args(["-p", "rbd", "cleanup", "--run-name", &name]);
            cleanup.limit(PATIENCE).ok();
        }
        drop(stop);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    check(&mut reader, pool, &shared);
    assert!(shared.is_settled(), "everything was answered");
    eprintln!("{} writes acknowledged", shared.acked_writes());
    reader.close().unwrap();
    cluster.dev("stop").ok();
    for osd in 0..3 {
        let store = cluster.dir().join(format!("osd.{osd}"));
        let report = super::tool::Tool::new(super::cluster::BINARY);
        report.args(["store", "fsck"]).arg(store).ok();
    }
}
