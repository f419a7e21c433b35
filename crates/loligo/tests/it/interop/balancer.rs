//! The balancer gives OSDs equal shares, while clients go on. `osdmaptool --upmap` is the judge: it finds
//! nothing left to do.

use super::cluster::{Cluster, is_foreign};
use super::load::{PATIENCE, check, under_load, wait_for_progress};
use super::tool::Tool;
use loligo::wait::Deadline;
use std::time::Duration;

const OSDS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);

fn shares(c: &Cluster) -> Vec<u64> {
    let tree = c.ask("osd df");
    let nodes = tree["nodes"].as_array().unwrap();
    nodes.iter().map(|n| n["pgs"].as_u64().unwrap()).collect()
}

/// What Ceph's own tool would still move.
fn left_to_do(c: &Cluster) -> String {
    let (map, out) = (c.dir().join("osdmap"), c.dir().join("upmaps"));
    c.ceph().args(["osd", "getmap", "-o"]).arg(&map).ok();
    let tool = Tool::new("osdmaptool").arg(&map).arg("--upmap").arg(&out);
    tool.args(["--upmap-deviation", "1", "--upmap-max", "100"]).ok();
    std::fs::read_to_string(out).unwrap()
}

#[test]
fn osds_get_equal_shares() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(OSDS, "512M");
    let ceph = |line: &str| c.ceph().args(line.split(' '));
    ceph("balancer off").ok();
    ceph("config set mgr mgr/balancer/upmap_max_deviation 1").ok();
    ceph("config set mgr mgr/balancer/upmap_max_optimizations 3").ok();
    assert_eq!(c.ask("balancer status")["active"], false);
    assert!(!left_to_do(&c).is_empty(), "CRUSH gave equal shares by chance: {:?}", shares(&c));
    ceph("balancer optimize plan").ok();
    let shown = ceph("balancer show plan").text();
    assert_eq!(shown.matches("pg-upmap-items").count(), 3, "{shown}");
    // While there are no objects: they count, too, and those of a few do not lie evenly when PGs do.
    let score = |what: &str| -> f64 {
        let said = ceph(&format!("balancer eval {what}")).text();
        let (_, number) = said.split_once(" score ").unwrap();
        number.split(' ').next().unwrap().parse().unwrap()
    };
    let (planned, now) = (score("plan"), score("rbd"));
    assert!(planned < now, "{planned} {now}, {:?}\n{shown}", shares(&c));
    under_load(&c, |client, pool, shared| {
        ceph("balancer execute plan").ok();
        assert_eq!(c.ask("balancer ls"), serde_json::json!([]));
        // The rest by itself, a few at a time.
        ceph("config set mgr mgr/balancer/sleep_interval 1").ok();
        ceph("config set mgr target_max_misplaced_ratio 0.5").ok();
        ceph("balancer on").ok();
        let done = Deadline::after(PATIENCE).until(PAUSE, || left_to_do(&c).is_empty());
        assert!(done, "{} {}", c.ask("balancer status"), left_to_do(&c));
        c.wait_until_clean(PATIENCE);
        let (least, most) = (shares(&c).into_iter().min(), shares(&c).into_iter().max());
        assert!(most.unwrap() - least.unwrap() <= 2, "{:?}", shares(&c));
        wait_for_progress(shared);
        check(client, pool, shared);
    });
}
