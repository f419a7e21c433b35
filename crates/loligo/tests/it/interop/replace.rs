//! `loligo osd replace`: what it refuses, and that nothing is lost when it does it.

use super::cluster::{BINARY, Cluster, is_foreign, pattern};
use super::tool::Tool;
use loligo::wait::Deadline;
use std::time::Duration;

/// Refused for the sake of data.
const REFUSED: i32 = 5;
/// This machine cannot.
const MACHINE: i32 = 4;
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

/// Whatever stands in the folder under the names of the OSD's disks. All of it is found before the OSD is destroyed.
fn what_is_not_its_own_stays(c: &Cluster, ext4: &[u8]) {
    let folder = |osd: u32| c.dir().join(format!("osd.{osd}"));
    let go = || replace(c, 1).args(["--accept-fewer-copies", "--yes"]);
    let is_destroyed = || {
        let dump = c.ask("osd dump");
        let state = dump["osds"][1]["state"].to_string();
        state.contains("destroyed")
    };
    let (block, aside) = (folder(1).join("block"), folder(1).join("aside"));
    std::fs::rename(&block, &aside).unwrap();
    // Its disk has got another's name, and that name something else.
    std::os::unix::fs::symlink(c.dir().join("files"), &block).unwrap();
    let said = go().fails(REFUSED);
    assert!(said.contains("ext4"), "{said}");
    assert!(std::fs::read(&block).unwrap() == ext4);
    std::fs::remove_file(&block).unwrap();
    // Nor is a disk that is not there a file that is to be made.
    std::os::unix::fs::symlink(c.dir().join("nowhere"), &block).unwrap();
    let said = go().args(["--size", "256M"]).fails(REFUSED);
    assert!(said.contains("nowhere") && block.is_symlink(), "{said}");
    std::fs::remove_file(&block).unwrap();
    std::fs::rename(&aside, &block).unwrap();

    // The log of another OSD.
    let (log, wal) = (c.dir().join("log2"), folder(1).join("block.wal"));
    let mkfs = |disk: &std::path::Path, id: &str, log: &std::path::Path| {
        let fsid = c.ask("status")["fsid"].as_str().unwrap().to_owned();
        std::fs::File::create(log).unwrap().set_len(64 << 20).unwrap();
        let tool = Tool::new(BINARY).args(["store", "mkfs", "--fsid", &fsid, "--id", id]);
        tool.args(["--size", "256M", "--wal"]).arg(log).arg(disk).ok();
    };
    mkfs(&c.dir().join("disk2"), "2", &log);
    std::os::unix::fs::symlink(&log, &wal).unwrap();
    let before = std::fs::read(&log).unwrap();
    let said = go().fails(REFUSED);
    assert!(said.contains("the log of osd.2"), "{said}");
    assert!(std::fs::read(&log).unwrap() == before);
    std::fs::remove_file(&wal).unwrap();
    // What is too small, or lacks a size.
    let small = c.dir().join("small");
    std::fs::File::create(&small).unwrap().set_len(1 << 20).unwrap();
    go().arg("--disk").arg(&small).fails(MACHINE);
    let said = go().arg("--disk").arg(c.dir().join("new")).fails(REFUSED);
    assert!(said.contains("--size"), "{said}");
    assert!(!is_destroyed());
}

/// Its log stays where it is, and is the new store's.
#[test]
fn an_osd_with_a_log_of_its_own_gets_a_new_disk() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(3, "256M");
    kill(&c, 1);
    let folder = c.dir().join("osd.1");
    let fsid = c.ask("status")["fsid"].as_str().unwrap().to_owned();
    let (block, wal) = (folder.join("block"), folder.join("block.wal"));
    std::fs::File::create(&wal).unwrap().set_len(64 << 20).unwrap();
    let mkfs = Tool::new(BINARY).args(["store", "mkfs", "--fsid", &fsid, "--id", "1", "--force"]);
    mkfs.arg(&block).arg("--wal").arg(&wal).ok();
    let (new, old) = (c.dir().join("new"), folder.join("block.old"));
    let go =
        || replace(&c, 1).args(["--accept-fewer-copies", "--size", "300M", "--disk"]).arg(&new);
    let plan = go().text();
    for named in [&new, &wal, &block, &old] {
        assert!(plan.contains(named.to_str().unwrap()), "{plan}");
    }
    assert!(plan.contains("cannot be read any more") && plan.contains("--reuse-log"), "{plan}");
    let (store, log) = (std::fs::read(&block).unwrap(), std::fs::read(&wal).unwrap());
    let said = go().arg("--yes").fails(REFUSED);
    assert!(
        said.contains("nobody can read the old disk") && said.contains("--reuse-log"),
        "{said}"
    );
    assert!(std::fs::read(&wal).unwrap() == log && !new.exists());
    let done = go().args(["--yes", "--json", "--reuse-log"]).json();
    assert_eq!((&done["done"], done["old_file"].as_str()), (&true.into(), old.to_str()));
    assert_eq!(done["old_is_lost"], true);
    assert!(std::fs::read(&old).unwrap() == store, "it is the old store");
    assert!(block.is_symlink() && std::fs::read_link(&block).unwrap().ends_with("new"));
    c.dev("start").ok();
    c.wait_until_clean(LIMIT);
    assert_eq!(c.ask("osd dump")["osds"][1]["uuid"], done["store"]);
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
    // A file that is there does not become larger, nor is that only found out when it is destroyed.
    for how in ["--dry-run", "--yes"] {
        let said = accept().args([how, "--size", "512M"]).fails(REFUSED);
        assert!(said.contains("it is there, and has 256 MiB"), "{said}");
    }
    assert_eq!(accept().args(["--dry-run", "--size", "256M", "--json"]).json()["done"], false);
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
    what_is_not_its_own_stays(&c, &image);
    c.dev("start").ok();
    c.wait_until_clean(LIMIT);
    kill(&c, 1);
    // Its own file by another name does not become a link to itself.
    let own = c.dir().join("osd.1/../osd.1/block");
    let done = accept().args(["--yes", "--json"]).arg("--disk").arg(&own).json();
    assert_eq!(done["done"], true);
    assert!(own.symlink_metadata().unwrap().is_file());
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
