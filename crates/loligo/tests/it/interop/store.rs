//! `loligo store`: what is in the store of an OSD that does not run, and moving a PG out of it and
//! into it.

use super::cluster::{BINARY, Cluster, is_foreign};
use super::tool::Tool;
use super::unfound::Osd;
use loligo::wait::Deadline;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const SMALL: &str = "512M";
const REFUSED: i32 = 5;
const DAMAGED: i32 = 6;
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

fn store(command: &str, place: &Path) -> Tool {
    Tool::new(BINARY).args(["store", command]).arg(place)
}

fn data(n: usize) -> Vec<u8> {
    (0..n * 70_000).map(|i| (i / 100 + n) as u8).collect()
}

/// Bytes of a PG that exists on this OSD, and of no other.
fn pg_of(c: &Cluster, object: &str) -> String {
    let map = c.ceph().args(["osd", "map", "rbd", object, "-f", "json"]).json();
    map["pgid"].as_str().unwrap().to_owned()
}

#[test]
fn a_pg_goes_out_of_a_store_and_into_it_and_is_served() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(1, SMALL);
    let rados = || c.rados().args(["-p", "rbd"]);
    for n in 0..12 {
        let name = format!("object{n}");
        rados().args(["put", &name, "-"]).stdin(data(n)).ok();
        rados().args(["setxattr", &name, "colour", "blue"]).ok();
        rados().args(["setomapval", &name, "key", &format!("value{n}")]).ok();
    }
    let pgid = pg_of(&c, "object7");
    c.dev("stop").ok();
    let place = c.dir().join("osd.0");
    let listed = store("ls", &place).arg("--json").json();
    let listed = listed.as_array().unwrap();
    let ours = listed.iter().find(|o| o["object"].as_str().unwrap().contains(":object7:"));
    let ours = ours.unwrap_or_else(|| panic!("{listed:?}"));
    assert_eq!(ours["bytes"], 490_000);

    let file = c.dir().join("object7");
    let name = ours["object"].as_str().unwrap();
    let shown = store("dump", &place).arg(name).arg("--data").arg(&file).json();
    assert_eq!((&shown["bytes"], &shown["omap"][0]["value"]), (&490_000.into(), &"value7".into()));
    assert!(std::fs::read(&file).unwrap() == data(7), "its data");

    let export = c.dir().join("pg.export");
    let file = ["--file".as_ref(), export.as_os_str()];
    let said = store("export", &place).args(["--pgid", &pgid]).args(file).arg("--json").json();
    let objects = said["objects"].as_u64();
    assert!(said["pgid"] == *pgid && said["bytes"].as_u64() >= Some(490_000), "{said}");
    let said = store("import", &place).args(file).fails(REFUSED);
    assert!(said.contains("--force"), "{said}");
    let said = store("import", &place).args(file).args(["--force", "--json"]).json();
    assert_eq!((said["objects"].as_u64(), &said["damaged"]), (objects, &0.into()), "{said}");
    let after = store("ls", &place).arg("--json").json();
    assert_eq!(after.as_array(), Some(listed), "the same objects");
    store("fsck", &place).ok();
    let counted = store("count", &place).arg("--json").json();
    let pool: u64 = pgid.split('.').next().unwrap().parse().unwrap();
    let counted = counted.as_array().unwrap().iter().find(|a| a["pool"] == pool).unwrap();
    assert_eq!(counted["stored_bytes"], (0..12).map(|n| data(n).len()).sum::<usize>());

    // A file that is damaged is refused as a whole.
    let mut bytes = std::fs::read(&export).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let bad = c.dir().join("bad.export");
    std::fs::write(&bad, bytes).unwrap();
    store("import", &place).arg("--file").arg(&bad).arg("--force").fails(REFUSED);
    store("fsck", &place).ok();

    c.dev("start").ok();
    // When its pool has more PGs, others have a part of what is in the file.
    c.ceph().args(["osd", "pool", "set", "rbd", "pg_num", "64"]).ok();
    let grown = || c.ask("osd pool get rbd pg_num")["pg_num"] == 64;
    assert!(Deadline::after(LIMIT).until(PAUSE, grown));
    c.wait_until_clean(LIMIT);
    c.dev("stop").ok();
    let said = store("import", &place).args(file).arg("--force").fails(REFUSED);
    assert!(said.contains("had 32 PGs") && said.contains("has 64"), "{said}");
    c.dev("start").ok();
    for n in 0..12 {
        let name = format!("object{n}");
        assert!(rados().args(["get", &name, "-"]).ok() == data(n), "{name}");
        assert_eq!(rados().args(["getxattr", &name, "colour"]).text().trim(), "blue");
        let value = rados().args(["getomapval", &name, "key", "/dev/stdout"]).text();
        assert!(value.contains(&format!("value{n}")), "{value}");
    }
}

/// The OSD with the only copy is lost. Long after, what could be read of its store comes to one that has only newer
/// maps: with the map that comes with it, the OSD finds out what happened since.
#[test]
fn a_pg_is_served_by_an_osd_that_has_only_newer_maps() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(2, SMALL);
    let ceph = |line: &str| c.ceph().args(line.split(' ')).text();
    ceph("config set global mon_allow_pool_size_one true");
    ceph("osd pool create single 1 1 --autoscale-mode=off");
    ceph("osd pool set single size 1 --yes-i-really-mean-it");
    c.wait_until_clean(LIMIT);
    c.rados().args(["-p", "single", "put", "object", "-"]).stdin(data(3)).ok();
    let map = c.ask("osd map single object");
    let (pgid, from) = (map["pgid"].as_str().unwrap(), map["acting"][0].as_u64().unwrap() as u32);
    let to = 1 - from;
    let (mut lost, mut heir) = (Osd::new(&c, from), Osd::new(&c, to));
    lost.kill();
    ceph(&format!("osd out {from}"));
    let export = c.dir().join("pg.export");
    let file = ["--file".as_ref(), export.as_os_str()];
    let place = |osd: u32| c.dir().join(format!("osd.{osd}"));
    store("export", &place(from)).args(["--pgid", pgid]).args(file).ok();
    let epoch = || c.ask("osd dump")["epoch"].as_u64();
    let exported_at = epoch();
    // `ceph` reads commands from its input, too.
    let changes = "osd set noscrub\nosd unset noscrub\n".repeat(320);
    c.ceph().stdin(changes).limit(LIMIT).ok();
    assert!(epoch() > exported_at.map(|e| e + 600));
    let oldest = || c.ask(&format!("tell osd.{to} status"))["oldest_map"].as_u64();
    assert!(Deadline::after(LIMIT).until(PAUSE, || oldest() > exported_at), "{:?}", oldest());
    heir.kill();
    store("import", &place(to)).args(file).arg("--force").ok();
    heir.start();
    ceph(&format!("osd lost {from} --yes-i-really-mean-it"));
    let got = c.rados().args(["-p", "single", "get", "object", "-"]).limit(LIMIT).ok();
    assert!(got == data(3), "another object");
}

/// The largest object's data is overwritten behind the store's back: all else still comes out.
#[test]
fn a_damaged_store_gives_what_it_has() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(1, SMALL);
    let rados = || c.rados().args(["-p", "rbd"]);
    let marked: Vec<u8> = b"find me!".repeat(512 * 4);
    rados().args(["put", "hurt", "-"]).stdin(marked.clone()).ok();
    rados().args(["put", "good", "-"]).stdin(data(3)).ok();
    let pgid = pg_of(&c, "hurt");
    c.dev("stop").ok();
    let place = c.dir().join("osd.0");
    let disk = place.join("block");
    let mut image = std::fs::read(&disk).unwrap();
    // In its place and in the log.
    let blocks: Vec<usize> = (0..image.len() / 4096)
        .filter(|b| image[b * 4096..(b + 1) * 4096] == marked[..4096])
        .collect();
    assert!(!blocks.is_empty());
    blocks.iter().for_each(|b| image[b * 4096 + 5] ^= 1);
    std::fs::write(&disk, image).unwrap();

    store("fsck", &place).fails(DAMAGED);
    let listed = store("ls", &place).arg("--json").json();
    let named = |name: &str| {
        let all = listed.as_array().unwrap().iter().filter_map(|o| o["object"].as_str());
        all.filter(|o| o.contains(name)).map(str::to_owned).next().unwrap()
    };
    let file = c.dir().join("hurt");
    let said = store("dump", &place).arg(named(":hurt:")).arg("--data").arg(&file).fails(DAMAGED);
    assert!(said.contains("zeros"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), vec![0; marked.len()]);
    let file = c.dir().join("good");
    store("dump", &place).arg(named(":good:")).arg("--data").arg(&file).ok();
    assert!(std::fs::read(&file).unwrap() == data(3));
    let export = c.dir().join("pg.export");
    let file = ["--file".as_ref(), export.as_os_str()];
    let said = store("export", &place).args(["--pgid", &pgid]).args(file).fails(DAMAGED);
    assert!(said.contains("hurt"), "{said}");

    // Whoever imports it does not believe that it has what it has not.
    c.dev("start").ok();
    let mut osd = Osd::new(&c, 0);
    osd.kill();
    store("import", &place).args(file).arg("--force").fails(DAMAGED);
    osd.start();
    let health = || c.ceph().args(["health", "detail"]).text();
    let told = || health().contains(&format!("pg {pgid} has 1 unfound objects"));
    assert!(Deadline::after(LIMIT).until(PAUSE, told), "{}", health());
    let mut reader = std::process::Command::new("timeout");
    reader.args(["2", "rados", "-p", "rbd", "get", "hurt", "/dev/null"]);
    let status = reader.env("CEPH_CONF", c.conf()).status().unwrap();
    assert_eq!(status.code(), Some(124), "an object that is lost was read");
    assert!(rados().args(["get", "good", "-"]).ok() == data(3));
}

/// A part of the list of objects is overwritten: which those were, nobody knows.
#[test]
fn what_comes_from_a_damaged_list_is_not_taken_for_all() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(1, SMALL);
    c.ceph().args(["osd", "pool", "create", "one", "1", "1", "--autoscale-mode=off"]).ok();
    let one = ["osd", "pool", "set", "one", "size", "1", "--yes-i-really-mean-it"];
    c.ceph().args(one).ok();
    c.wait_until_clean(LIMIT);
    let rados = || c.rados().args(["-p", "one"]);
    // Long names, so that the list takes several nodes of the tree.
    let name = |n: usize| format!("object{n}-{}", "y".repeat(500));
    for n in 0..30 {
        rados().args(["put", &name(n), "-"]).stdin(data(1)).ok();
    }
    let pgid = c.ask(&format!("osd map one {}", name(7)))["pgid"].as_str().unwrap().to_owned();
    let fsid = c.ask("status")["fsid"].as_str().unwrap().to_owned();
    c.dev("stop").ok();
    let place = c.dir().join("osd.0");
    let disk = std::fs::File::options().read(true).write(true).open(place.join("block")).unwrap();
    let image = std::fs::read(place.join("block")).unwrap();
    // Nodes of the tree that are leaves: the magic, format 2, level 0; in them their length in blocks.
    let leaf = |at: &usize| image[*at..].starts_with(b"LoTN\x02\x00");
    let leaves = (0..image.len() / 4096).map(|block| block * 4096).filter(leaf);
    let in_them = |at: usize| at..at + 4096 * usize::from(image[at + 8]);
    let leaves =
        leaves.filter(|at| image[in_them(*at)].windows(9).any(|bytes| bytes == b"object7-y"));
    let export = c.dir().join("pg.export");
    let file = ["--file".as_ref(), export.as_os_str()];
    // One of those that have its name is a part of the list; others have the log, or what was before.
    let mut said = String::new();
    let mut leaves = leaves.filter(|at| {
        let flip = |by: u8| disk.write_all_at(&[image[at + 40] ^ by], *at as u64 + 40).unwrap();
        flip(1);
        let _ = std::fs::remove_file(&export);
        let ran = store("export", &place).args(["--pgid", &pgid]).args(file).run();
        said = String::from_utf8(ran.out).unwrap() + &ran.err;
        let found = ran.status.code() == Some(DAMAGED) && said.contains("tree node");
        if !found || store("ls", &place).run().out.windows(9).any(|b| b == b"object7-y") {
            flip(0);
            return false;
        }
        true
    });
    assert!(leaves.next().is_some(), "no part of the list is found");
    assert!(said.contains("missing altogether"), "{said}");

    let heir = c.dir().join("heir");
    let new = ["--fsid", &fsid, "--id", "5", "--size", "256M"];
    store("mkfs", &heir).args(new).ok();
    let said = store("import", &heir).args(file).fails(REFUSED);
    assert!(said.contains("--accept-incomplete"), "{said}");
    store("import", &heir).args(file).arg("--accept-incomplete").ok();
    let listed = store("ls", &heir).text();
    assert!(listed.contains(":object") && !listed.contains(":object7-"), "{listed}");
}

#[test]
fn a_bench_measures_all_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let words = ["--size", "256M", "--span", "32M", "--seconds", "1", "--json"];
    let out = store("bench", &path).args(words).json();
    let tests = out["tests"].as_array().unwrap();
    let ids: Vec<&str> = tests.iter().filter_map(|t| t["id"].as_str()).collect();
    let all = ["fill", "read4m", "read4k-q1", "read4k-q32", "write4k-q1", "write4k-q32", "write4m"];
    assert_eq!(ids, all);
    for test in tests {
        assert!(test["per_second"].as_f64().unwrap() > 1.0, "{test}");
        assert!(test["latency_us"]["p99"].as_f64() >= test["latency_us"]["p50"].as_f64(), "{test}");
    }
    assert!(!path.exists());
    store("bench", &path).args(&words[2..]).fails(1);
}
