//! `loligo dev` and `./start`: from nothing to a cluster and back, and what they say when they cannot.

use super::cluster::{BINARY, Cluster, free_port, is_foreign, pattern};
use super::tool::Tool;
use loligo::wait::Deadline;
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

const SMALL: &str = "256M";
/// From the first process to active+clean.
const UP_LIMIT_S: f64 = 3.0;
/// An OSD that nobody uses.
const IDLE_LIMIT_BYTES: u64 = 100 << 20;

const MACHINE: i32 = 4;
const REFUSED: i32 = 5;
const NOT_RUNNING: i32 = 3;

fn start(cluster: &Cluster, osds: u32) -> Value {
    let port = free_port().to_string();
    let shape = ["--osds", &osds.to_string(), "--port", &port, "--osd-size", SMALL, "--json"];
    cluster.dev("start").args(shape).json()
}

fn daemons(status: &Value) -> Vec<(String, Value)> {
    let all = status["daemons"].as_object().unwrap();
    all.iter().map(|(name, d)| (name.clone(), d.clone())).collect()
}

#[test]
fn a_cluster_lives_stops_and_lives_again_with_its_data() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let first = start(&c, 3);
    assert_eq!(first["cluster"]["clean"], true, "{first:#}");
    assert_eq!(first["conf"], c.dir().join("ceph.conf").to_str().unwrap());
    let size = c.ask("osd pool get rbd size");
    assert_eq!(size["size"], 3);
    for (name, daemon) in daemons(&first) {
        let pid = daemon["pid"].as_i64().unwrap();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words: Vec<String> =
            line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        let data = daemon["data"].as_str().unwrap();
        assert!(words.iter().any(|w| w == data), "{name}: {words:?} does not name {data}");
        assert!(data.starts_with(c.dir().to_str().unwrap()));
        let version = c.ceph().args(["daemon", &name, "version"]).json();
        assert!(version["version"].as_str().is_some(), "{version}");
    }
    let data = pattern(5_000_000, 3);
    let rados = || c.rados().args(["-p", "rbd"]);
    rados().args(["put", "kept", "-"]).stdin(data.clone()).ok();

    // Once more while it runs: nothing changes.
    let again = c.dev("start").arg("--json").json();
    let pids = |v: &Value| daemons(v).iter().map(|(_, d)| d["pid"].clone()).collect::<Vec<_>>();
    assert_eq!(pids(&again), pids(&first));
    c.dev("start").args(["--osds", "2"]).fails(REFUSED);
    c.dev("start").args(["--port", "1"]).fails(REFUSED);

    let ended = c.dev("stop").arg("--json").json();
    let all_ended = ended["daemons"].as_object().unwrap().values().all(|e| e == "stopped");
    assert!(all_ended, "they end in order: {ended}");
    let status = c.dev("status").arg("--json").run();
    assert_eq!(status.status.code(), Some(NOT_RUNNING), "{status:?}");
    c.dev("stop").ok();

    let text = c.dev("start").text();
    for wanted in ["up and clean", "ceph.conf rados -p rbd put", "dev stop", "3 up of 3"] {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(rados().args(["get", "kept", "-"]).ok() == data);
    // One more OSD, and the data move.
    let grown = c.dev("start").args(["--osds", "4", "--osd-size", SMALL, "--json"]).json();
    assert_eq!(grown["cluster"]["osds_up"], 4, "{grown:#}");
    assert!(rados().args(["get", "kept", "-"]).ok() == data);
    c.dev("stop").ok();
    for osd in 0..4 {
        let store = c.dir().join(format!("osd.{osd}"));
        let report = Tool::new(BINARY).args(["store", "fsck", "--json"]).arg(store).json();
        assert_eq!((&report["good"], &report["closed_in_order"]), (&true.into(), &true.into()));
    }
}

#[test]
fn it_is_up_soon_and_idle_osds_are_small() {
    if is_foreign() {
        return;
    }
    // The machine may be busy with other tests: the best of some.
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let c = Cluster::unborn();
        let status = start(&c, 3);
        best = best.min(status["start_seconds"].as_f64().unwrap());
        let osds: Vec<_> =
            daemons(&status).into_iter().filter(|(n, _)| n.starts_with("osd")).collect();
        assert_eq!(osds.len(), 3);
        for (name, osd) in osds {
            let bytes = osd["resident_bytes"].as_u64().unwrap();
            assert!(bytes > 0 && bytes < IDLE_LIMIT_BYTES, "{name} has {bytes} bytes resident");
        }
        c.dev("stop").ok();
        if best <= UP_LIMIT_S {
            return;
        }
    }
    panic!("it took {best} s at best");
}

/// The map has it as up, and its process holds its pid file, but it is at its end.
#[test]
fn an_osd_that_does_not_answer_is_not_taken_for_up() {
    if is_foreign() {
        return;
    }
    const SOON: Duration = Duration::from_secs(2);
    let c = Cluster::start(3, SMALL);
    c.signal("osd.2", Signal::STOP);
    let mut start = c.dev("start").start();
    assert!(!Deadline::after(SOON).until(Duration::from_millis(20), || !start.is_running()));
    c.kill("osd.2");
    let said = start.wait();
    assert!(said.status.success(), "{said:?}");
    assert!(String::from_utf8_lossy(&said.out).contains("3 up of 3"), "{said:?}");
}

#[test]
fn one_osd_is_a_cluster_too() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let status = start(&c, 1);
    assert_eq!(status["cluster"]["clean"], true, "{status:#}");
    assert_eq!(c.ask("osd pool get rbd size")["size"], 1);
    // Others can be made and used as well.
    c.ceph().args(["osd", "pool", "create", "mine"]).ok();
    c.rados().args(["-p", "mine", "put", "object", "-"]).stdin(pattern(1000, 1)).ok();
    // One that cannot be clean keeps nobody from working.
    c.ceph().args(["osd", "pool", "create", "wide", "8"]).ok();
    c.ceph().args(["osd", "pool", "set", "wide", "size", "3"]).ok();
    c.dev("stop").ok();
    let again = c.dev("start").run();
    assert!(again.status.success(), "{again:?}");
    let hint = "ceph osd pool set wide size 1 --yes-i-really-mean-it";
    assert!(again.err.contains("wants 3 copies") && again.err.contains(hint), "{again:?}");
    assert!(!String::from_utf8_lossy(&again.out).contains("up and clean"), "{again:?}");
    c.ceph().args(hint.split(' ').skip(1)).ok();
    assert!(c.dev("start").text().contains("up and clean"));
    c.dev("stop").ok();
}

#[test]
fn the_script_starts_shows_and_stops() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../start");
    let run = |words: &[&str]| {
        let tool = Tool::new(&script).env("LOLIGO_BINARY", BINARY).args(words);
        tool.arg("--dir").arg(c.dir())
    };
    let port = free_port().to_string();
    let started = run(&["--osds", "3", "--port", &port, "--osd-size", "268435456"]).text();
    assert!(started.contains("up and clean") && started.contains("CEPH_CONF="), "{started}");
    assert!(run(&["--status"]).text().contains("3 up of 3"));
    assert!(run(&["--stop"]).text().contains("Stopped 4 daemons"));
    run(&["--status"]).fails(NOT_RUNNING);
    assert!(Tool::new(&script).arg("--help").text().contains("--osd-size"));
    run(&["--nonsense"]).fails(2);
}

#[test]
fn a_taken_port_is_named_and_nothing_is_begun() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let said = c.dev("start").args(["--port", &port, "--osd-size", SMALL]).fails(MACHINE);
    assert!(said.contains("taken") && said.contains(&port) && said.contains("--port"), "{said}");
    assert!(!c.dir().join("osd.0").exists(), "no disk was made");
}

#[test]
fn without_space_it_says_how_much_is_there() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let said = c.dev("start").args(["--osd-size", "900T"]).fails(MACHINE);
    assert!(said.contains("no space") && said.contains("--osd-size"), "{said}");
    let said = c.dev("start").args(["--osd-size", "1M"]).fails(1);
    assert!(said.contains("too small"), "{said}");
    assert!(!c.dir().join("osd.0").exists(), "no disk was made");
}

#[test]
fn without_io_uring_it_says_so() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interop/without_io_uring.py");
    let said = Tool::new("/usr/bin/python3")
        .arg(script)
        .args([BINARY, "dev", "start", "--osd-size", SMALL, "--port"])
        .arg(free_port().to_string())
        .arg("--dir")
        .arg(c.dir())
        .fails(MACHINE);
    assert!(said.contains("io_uring") && said.contains("io_uring_disabled"), "{said}");
    assert!(!c.dir().join("osd.0").exists(), "no disk was made");
}

#[test]
fn a_folder_with_other_things_is_left_alone() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    std::fs::create_dir_all(c.dir()).unwrap();
    std::fs::write(c.dir().join("diary"), "dear").unwrap();
    let said = c.dev("start").fails(REFUSED);
    assert!(said.contains("other things"), "{said}");
    c.dev("stop").fails(REFUSED);
    let left: Vec<_> = std::fs::read_dir(c.dir()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let nowhere = Cluster::unborn();
    nowhere.dev("status").fails(NOT_RUNNING);
    nowhere.dev("stop").fails(NOT_RUNNING);
}

#[test]
fn a_lost_monitor_store_is_not_replaced_by_an_empty_one() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    start(&c, 1);
    c.dev("stop").ok();
    let store = c.dir().join("mon/store.redb");
    std::fs::rename(&store, c.dir().join("mon/elsewhere")).unwrap();
    let said = c.dev("start").fails(REFUSED);
    assert!(said.contains("store.redb") && said.contains("gone"), "{said}");
    std::fs::rename(c.dir().join("mon/elsewhere"), &store).unwrap();
    c.dev("start").ok();
    c.dev("stop").ok();
}

// ---- an OSD and its store ----

const FSID: &str = "11111111-2222-4333-8444-555555555555";

/// A store of osd.3 of [`FSID`], in a folder.
fn store_in(dir: &Path) {
    let block = dir.join("block");
    let words = ["store", "mkfs", "--fsid", FSID, "--id", "3", "--size", SMALL];
    Tool::new(BINARY).args(words).arg(block).ok();
}

/// `loligo osd` on a folder; it is to refuse.
fn osd(dir: &Path, id: &str, fsid: &str) -> Tool {
    // Nobody answers there, and nobody is asked: the store comes first.
    let words = ["osd", "--id", id, "--fsid", fsid, "--mon", "127.0.0.1:1", "--data"];
    Tool::new(BINARY).args(words).arg(dir).limit(Duration::from_secs(30))
}

/// The bytes that a superblock could be in, and what stands in the middle.
fn fingerprint(path: &Path) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut all = Vec::new();
    for at in [0, len / 2, len - (1 << 20)] {
        let mut piece = vec![0; 1 << 20];
        file.read_exact_at(&mut piece, at).unwrap();
        all.extend(piece);
    }
    all
}

/// As `loligo --help` says.
#[test]
fn daemons_that_cannot_start_say_why_by_their_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    store_in(dir.path());
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let limit = Duration::from_secs(30);
    let mon = |words: [&str; 4]| {
        Tool::new(BINARY).args(["mon", "--data"]).arg(dir.path()).args(words).limit(limit)
    };
    let said = mon(["--fsid", FSID, "--addr", &taken]).fails(MACHINE);
    assert!(said.contains("cannot listen"), "{said}");
    let other = "99999999-2222-4333-8444-555555555555";
    let said = mon(["--fsid", other, "--addr", &taken]).fails(REFUSED);
    assert!(said.contains(FSID) && said.contains(other), "{said}");
    let said = mon(["--addr", &taken, "--set", "osd_pool_default_sise=1"]).fails(1);
    assert!(said.contains("no such option"), "{said}");
    let said = osd(dir.path(), "3", FSID).args(["--addr", &taken]).fails(MACHINE);
    assert!(said.contains("cannot listen"), "{said}");
    osd(dir.path(), "3", FSID).args(["--set", "osd_max_scrubs=x"]).fails(1);
    osd(dir.path(), "3", FSID).args(["--addr", "0.0.0.0:0"]).fails(2);
}

#[test]
fn a_wrong_store_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let said = osd(dir.path(), "3", FSID).fails(MACHINE);
    assert!(said.contains("block") && said.contains("no such file"), "{said}");
    store_in(dir.path());
    let block = dir.path().join("block");
    let before = fingerprint(&block);

    let said = osd(dir.path(), "4", FSID).fails(REFUSED);
    assert!(said.contains("belongs to osd.3, not to osd.4"), "{said}");
    let other = "99999999-2222-4333-8444-555555555555";
    let said = osd(dir.path(), "3", other).fails(REFUSED);
    assert!(said.contains(FSID) && said.contains(other), "{said}");
    let words = ["store", "mkfs", "--fsid", other, "--id", "3"];
    let said = Tool::new(BINARY).args(words).arg(&block).fails(REFUSED);
    assert!(said.contains("holds a store of Loligo") && said.contains("--force"), "{said}");
    assert!(fingerprint(&block) == before);
}

#[test]
fn a_damaged_or_short_store_is_refused_and_left_as_it_is() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    store_in(dir.path());
    let block = dir.path().join("block");
    let file = std::fs::OpenOptions::new().write(true).open(&block).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len / 2).unwrap();
    let said = osd(dir.path(), "3", FSID).fails(REFUSED);
    assert!(said.contains("was made for"), "{said}");
    file.set_len(len).unwrap();
    // All copies of the superblock: behind the magic something else.
    for at in [0, 4096, len - 8192, len - 4096] {
        file.write_all_at(&[0xee; 100], at + 64).unwrap();
    }
    let before = fingerprint(&block);
    let said = osd(dir.path(), "3", FSID).fails(REFUSED);
    assert!(said.contains("damaged"), "{said}");
    let said = Tool::new(BINARY).args(["store", "fsck"]).arg(dir.path()).fails(REFUSED);
    assert!(said.contains("damaged"), "{said}");
    assert!(fingerprint(&block) == before);
    // Nothing at all.
    file.set_len(0).unwrap();
    let said = osd(dir.path(), "3", FSID).run();
    assert!(!said.status.success() && said.err.contains("block"), "{said:?}");
}

#[test]
fn a_store_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    store_in(dir.path());
    let socket = dir.path().join("first.asok");
    let mut first = osd(dir.path(), "3", FSID).arg("--admin-socket").arg(&socket).start();
    let limit = Deadline::after(Duration::from_secs(20));
    // It makes its socket when its store is mounted.
    assert!(limit.until(Duration::from_millis(10), || socket.exists()), "it does not start");
    let second = || osd(dir.path(), "3", FSID).limit(Duration::from_secs(10));
    assert!(second().fails(REFUSED).contains("in use"));
    let fsck = Tool::new(BINARY).args(["store", "fsck"]).arg(dir.path());
    assert!(fsck.fails(REFUSED).contains("in use"));
    let words = ["store", "mkfs", "--force", "--fsid", FSID, "--id", "3"];
    let said = Tool::new(BINARY).args(words).arg(dir.path().join("block")).fails(REFUSED);
    assert!(said.contains("in use"), "{said}");
    assert!(first.is_running());
    first.kill();
}
