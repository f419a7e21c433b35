//! What `rbd` says about arguments that make no sense and objects whose bytes are wrong: the codes
//! are those that Ceph 16.2.15 gave for the same.

use super::images::{EEXIST, EINVAL, ENOENT, Images};

const EIO: i32 = 5;
/// Of creations: an object size that there is not.
const EDOM: i32 = 33;
const OK: i32 = 0;

/// The code of a line of `rbd`.
fn code(i: &Images, line: &str) -> i32 {
    i.rbd(line).run().status.code().unwrap_or(-1)
}

/// A new image `x`: the names of its header and its object map.
fn fresh(i: &Images) -> (String, String) {
    // What the last one left.
    for name in i.pool.ls() {
        if name != "rbd_info" {
            i.pool.rados().args(["rm", &name]).ok();
        }
    }
    i.ok("create x --size 16M");
    let info = i.json("info x");
    let id = info["id"].as_str().unwrap();
    (format!("rbd_header.{id}"), format!("rbd_object_map.{id}"))
}

const WRITE: &str = "bench --io-type write --io-size 4K --io-threads 1 --io-total 8K x";
const SNAP: &str = "snap create --no-progress x@s";
const RM: &str = "rm --no-progress x";

#[test]
fn header_values_that_are_gone_or_wrong() {
    let i = Images::new("rbd-header");
    for key in ["size", "order", "features", "object_prefix", "snap_seq"] {
        let (header, _) = fresh(&i);
        i.pool.ok(&format!("rmomapkey {header} {key}"));
        let codes = ["info x", WRITE, SNAP, RM].map(|line| code(&i, line));
        assert_eq!(codes, [ENOENT, ENOENT, ENOENT, OK], "{key} is gone");
    }
    for key in ["size", "features", "object_prefix", "snap_seq", "parent"] {
        let (header, _) = fresh(&i);
        i.pool.ok(&format!("setomapval {header} {key} short"));
        let codes = ["info x", WRITE, SNAP, RM].map(|line| code(&i, line));
        assert_eq!(codes, [EIO; 4], "{key} is wrong");
        assert_eq!(i.names("ls"), ["x"], "it can be seen");
    }
}

#[test]
fn objects_of_an_image_that_are_gone_or_wrong() {
    let i = Images::new("rbd-objects");
    let lines = ["info x", RM, "info x"];
    let three = |i: &Images| lines.map(|line| code(i, line));

    let (header, _) = fresh(&i);
    i.pool.ok(&format!("clearomap {header}"));
    i.pool.rados().args(["put", &header, "-"]).stdin("garbage").ok();
    assert_eq!(three(&i), [ENOENT, OK, ENOENT]);
    fresh(&i);
    i.pool.rados().args(["put", "rbd_id.x", "-"]).stdin("garbage").ok();
    assert_eq!(three(&i), [EIO, OK, ENOENT]);
    fresh(&i);
    i.pool.ok("truncate rbd_id.x 0");
    assert_eq!(i.names("ls"), ["x"]);
    fresh(&i);
    i.pool.ok("setomapval rbd_directory name_x g");
    assert_eq!(code(&i, "ls"), EIO);
    assert_eq!(code(&i, "info x"), OK);
    let (header, _) = fresh(&i);
    i.pool.ok(&format!("setxattr {header} lock.rbd_lock garbage"));
    assert_eq!(["lock ls x", WRITE, RM].map(|line| code(&i, line)), [EIO; 3]);
    let (header, _) = fresh(&i);
    i.ok(SNAP);
    let keys = i.pool.ok(&format!("listomapkeys {header}"));
    let snapshot = keys.lines().find(|key| key.starts_with("snapshot_")).unwrap();
    i.pool.ok(&format!("setomapval {header} {snapshot} garbage"));
    assert_eq!(["info x", "snap ls x", RM].map(|line| code(&i, line)), [EIO; 3]);
}

#[test]
fn an_object_map_is_made_anew() {
    let i = Images::new("rbd-map");
    for gone in [false, true] {
        let (_, map) = fresh(&i);
        match gone {
            true => drop(i.pool.rados().args(["rm", &map]).ok()),
            false => drop(i.pool.rados().args(["put", &map, "-"]).stdin("garbage").ok()),
        }
        i.ok(WRITE);
        assert!(i.json("info x")["flags"].to_string().contains("object map invalid"));
        i.ok("object-map rebuild --no-progress x");
        assert_eq!(i.json("info x")["flags"], serde_json::json!([]));
        i.ok("object-map check --no-progress x");
        i.ok(RM);
    }
}

#[test]
fn names_and_sizes_that_make_no_sense() {
    let i = Images::new("rbd-names");
    let pool = i.pool.name.clone();
    i.ok("create x --size 9M");
    for (line, wanted) in [
        ("create a/b --size 1M", ENOENT),
        ("create a/b/c --size 1M", ENOENT),
        ("create a@b --size 1M", EINVAL),
        ("create a/b@c --size 1M", EINVAL),
        ("create /a --size 1M", EINVAL),
        ("create a/ --size 1M", EINVAL),
        ("create @s --size 1M", EINVAL),
        ("snap create --no-progress a@b/c", EINVAL),
        ("rename x x/y", EINVAL),
        ("clone x y", EINVAL),
        ("clone nosuch@s y", ENOENT),
        ("group create a/b/c", ENOENT),
        ("group create a@b", EINVAL),
        (&format!("namespace create {pool}/a/b"), EINVAL),
        ("trash mv nosuch", ENOENT),
        ("trash restore nosuch", ENOENT),
        ("create y --size -1", 1),
        ("create y --size 1M --image-feature nosuch", 1),
        ("create y --size 1M --image-feature object-map", EINVAL),
        ("create y --size 1M --object-size 64M", EDOM),
        ("create y --size 1M --stripe-unit 3000 --stripe-count 2", EINVAL),
        ("create y --size 1M --stripe-count 2", EINVAL),
        ("create y --size 1M --data-pool nosuch", ENOENT),
        ("create x --size 1M", EEXIST),
    ] {
        assert_eq!(code(&i, line), wanted, "{line}");
    }
    assert_eq!(i.rbd("create --size 1M").arg("").run().status.code(), Some(EINVAL));
    // These are names like others.
    let long = "n".repeat(300);
    for name in [".", "ä", "a b", &long] {
        i.rbd("create --size 1M").arg(name).ok();
        i.rbd("rm --no-progress").arg(name).ok();
    }
    assert_eq!(i.names("ls"), ["x"]);
    // A snapshot keeps what the image is shrunk below.
    i.scribble("x");
    let then = i.content("x");
    i.ok(SNAP);
    i.ok("resize --no-progress x --size 1M --allow-shrink");
    assert!(i.content("x@s") == then && i.content("x") == then[..1 << 20]);
}
