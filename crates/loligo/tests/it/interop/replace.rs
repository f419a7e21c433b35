//! `loligo osd replace`: what it refuses, and that nothing is lost when it does it.

use super::cluster::{BINARY, Cluster, is_foreign, pattern};
use super::tool::Tool;
use loligo::wait::Deadline;
use std::time::Duration;

/// Refused for the sake of data.
const REFUSED: i32 = 5;
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// `loligo osd replace`, of an OSD by its folder's number.
pub fn replace(c: &Cluster, osd: u32) -> Tool {
    let tool = Tool::new(BINARY).args(["osd", "replace", "--id", &osd.to_string()]);
    tool.arg("--data").arg(c.dir().join(format!("osd.{osd}"))).arg("--conf").arg(c.conf())
}

/// Kills an OSD, and waits until the cluster knows.
pub fn kill(c: &Cluster, osd: u32) {
    c.kill(&format!("osd.{osd}"));
    let down = || c.ask("osd dump")["osds"][osd as usize]["up"] == 0;
    assert!(Deadline::after(LIMIT).until(PAUSE, down), "osd.{osd} is not down");
}

#[test]
fn a_disk_is_replaced_when_nothing_is_lost_by_it() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(3, "256M");
    let data = pattern(3_000_000, 5);
    for name in ["one", "two", "three", "four", "five"] {
        c.rados().args(["-p", "rbd", "put", name, "-"]).stdin(data.clone()).ok();
    }
    let said = replace(&c, 1).arg("--yes").fails(REFUSED);
    assert!(said.contains("it runs") && said.contains("Stop it"), "{said}");
    let said = replace(&c, 7).args(["--yes"]).fails(REFUSED);
    assert!(said.contains("is not a folder") || said.contains("no such OSD"), "{said}");
    kill(&c, 1);
    let said = replace(&c, 1).arg("--yes").fails(REFUSED);
    assert!(said.contains("fewer copies") && said.contains("--accept-fewer-copies"), "{said}");
    let other =
        Tool::new(BINARY).args(["osd", "replace", "--id", "1", "--yes", "--accept-fewer-copies"]);
    let other = other.arg("--data").arg(c.dir().join("osd.2")).arg("--conf").arg(c.conf());
    let said = other.fails(REFUSED);
    assert!(said.contains("in use") || said.contains("another process"), "{said}");

    // What it would do; nothing is done.
    let accept = || replace(&c, 1).arg("--accept-fewer-copies");
    let plan = accept().arg("--dry-run").text();
    assert!(plan.contains("would be destroyed") && plan.contains("Nothing was done"), "{plan}");
    assert_eq!(accept().arg("--json").json()["done"], false);
    // Nothing is overwritten that is not this OSD's.
    kill(&c, 2);
    let other = c.dir().join("osd.2").join("block");
    let said = accept().arg("--yes").arg("--disk").arg(&other).fails(REFUSED);
    assert!(said.contains("holds the store of osd.2"), "{said}");
    let files = c.dir().join("files");
    let mut image = vec![0; 1 << 20];
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&files, &image).unwrap();
    let said = accept().arg("--yes").arg("--disk").arg(&files).fails(REFUSED);
    assert!(said.contains("ext4") && said.contains("wipefs"), "{said}");
    assert!(std::fs::read(&files).unwrap() == image);
    c.dev("start").ok();
    c.wait_until_clean(LIMIT);
    kill(&c, 1);
    let done = accept().args(["--yes", "--json"]).json();
    assert_eq!(done["done"], true);
    assert_ne!(done["store"], done["old_store"]);
    // It has nothing now, and is brought everything.
    c.dev("start").ok();
    c.wait_until_clean(LIMIT);
    assert_eq!(c.ask("osd dump")["osds"][1]["uuid"], done["store"]);
    for osd in [0, 2] {
        // The others are not needed for what it has.
        kill(&c, osd);
        c.dev("start").ok();
    }
    assert!(c.rados().args(["-p", "rbd", "get", "three", "-"]).ok() == data);

    // An OSD that has the only copy of something stays.
    c.ceph().args(["config", "set", "global", "mon_allow_pool_size_one", "true"]).ok();
    c.ceph().args(["osd", "pool", "create", "single", "8"]).ok();
    let one = ["osd", "pool", "set", "single", "size", "1", "--yes-i-really-mean-it"];
    c.ceph().args(one).ok();
    c.wait_until_clean(LIMIT);
    kill(&c, 1);
    let said = accept().arg("--yes").fails(REFUSED);
    assert!(said.contains("do not go on without it") && said.contains("last copy"), "{said}");
    c.dev("start").ok();
    c.wait_until_clean(LIMIT);
}
