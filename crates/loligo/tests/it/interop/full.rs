//! One OSD's disk is filled to the last byte under `rados bench`, fio and objects with a model: no
//! daemon dies, clients wait or get ENOSPC as they asked, deletions bring everything back, and what was
//! acknowledged is there. And the file system below an OSD's file is filled by others: nobody notices.
//!
//! `LOLIGO_IT_FULL_ROUNDS=20` fills and empties it so often.

use super::cluster::{BINARY, Cluster, free_port, is_foreign};
use super::load::{PATIENCE, check, under_load, wait_for_progress};
use super::tool::{Running, Tool};
use client::{ClientError, Object, ObjectOp};
use loligo::SyncClient;
use loligo::wait::Deadline;
use rustix::process::Pid;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Errno, PoolId};

const ROUNDS_ENV: &str = "LOLIGO_IT_FULL_ROUNDS";
const DEFAULT_ROUNDS: u32 = 1;
const OSDS: u32 = 3;
/// The one with the small disk.
const SMALL: u32 = 2;
const LARGE_DISK: &str = "1G";
const SMALL_DISK: &str = "256M";
/// Just enough for the small disk.
const FILE_SYSTEM: &str = "300M";
/// This machine cannot.
const MACHINE: i32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it stays full.
const FULL_TIME: Duration = Duration::from_secs(3);

fn rounds() -> u32 {
    let given = std::env::var(ROUNDS_ENV).ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_ROUNDS)
}

fn until(what: &str, f: impl FnMut() -> bool) {
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, f), "{what}");
}

/// A file system in a file; who stops the cluster unmounts it.
struct FileSystem {
    at: PathBuf,
}

impl FileSystem {
    /// Of so many bytes, mounted at `at`. Needs root.
    fn mount(at: &Path, size: &str) -> Self {
        let image = at.with_extension("ext4");
        Tool::new("truncate").args(["-s", size]).arg(&image).ok();
        Tool::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).ok();
        std::fs::create_dir_all(at).unwrap();
        Tool::new("mount").args(["-o", "loop"]).arg(&image).arg(at).ok();
        FileSystem { at: at.to_owned() }
    }

    /// The same in memory: one that is full has not a block left.
    fn in_memory(at: &Path, size: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={size}");
        Tool::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).ok();
        FileSystem { at: at.to_owned() }
    }

    /// Fills it with a file of somebody else.
    fn fill(&self) {
        let mut other = File::create(self.at.join("other")).unwrap();
        let piece = vec![1; 1 << 16];
        let full = loop {
            match other.write_all(&piece) {
                Ok(()) => {}
                Err(e) => break e,
            }
        };
        assert_eq!(full.raw_os_error(), Some(Errno::ENOSPC.0));
    }
}

/// A cluster of which one disk is smaller, and nothing but its end stops anybody.
fn uneven() -> Cluster {
    let c = Cluster::start(SMALL, LARGE_DISK);
    add_small(&c);
    c
}

fn add_small(c: &Cluster) {
    let more = ["--osds", "3", "--osd-size", SMALL_DISK];
    c.dev("start").args(more).ok();
    no_ratios(c);
    c.ceph().args(["osd", "pool", "set", "rbd", "size", "3"]).ok();
    c.ceph().args(["osd", "pool", "set", "rbd", "min_size", "2"]).ok();
    c.wait_until_clean(PATIENCE);
}

fn no_ratios(c: &Cluster) {
    for ratio in ["full", "backfillfull", "nearfull"] {
        c.ceph().args(["osd", &format!("set-{ratio}-ratio"), "1"]).ok();
    }
    c.ceph().args(["config", "set", "osd", "osd_failsafe_full_ratio", "1"]).ok();
}

pub fn is_full(c: &Cluster) -> bool {
    c.ask("health")["checks"]["OSD_FULL"].is_object()
}

pub fn bench(c: &Cluster, line: &str) -> Tool {
    let tool = c.rados().args(["-p", "rbd", "bench"]).args(line.split(' '));
    tool.limit(Duration::from_secs(300))
}

/// What [`bench`] has left.
pub fn bench_objects(c: &Cluster) -> Vec<String> {
    let names = c.rados().args(["-p", "rbd", "ls"]).text();
    names.lines().filter(|n| n.starts_with("benchmark_data")).map(str::to_owned).collect()
}

/// Deletes objects, by a client that does not wait for space.
pub fn removal(c: &Cluster, names: &[String]) -> Tool {
    let remove = c.rados().args(["-p", "rbd", "--force-full", "rm"]).args(names);
    remove.limit(PATIENCE)
}

fn fio(c: &Cluster) -> Running {
    let image = ["--name=full", "--ioengine=rbd", "--clientname=admin", "--rbdname=full"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"];
    let load = ["--pool=rbd", "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=16", "--size=48M"];
    let tool = Tool::new("fio").env("CEPH_CONF", c.conf()).args(image).args(verify).args(load);
    tool.arg("--output-format=json").limit(Duration::from_secs(300)).start()
}

/// A write that does not want to wait fails with ENOSPC.
fn assert_refuses(client: &mut SyncClient, pool: PoolId) {
    let mut last: Result<(), ClientError> = Ok(());
    until("no write is refused", || {
        let op = ObjectOp::new(Object::new(pool, "hasty")).write_full(vec![7; 2 << 20]);
        last = client.op(op.full_try()).map(drop);
        last.is_err()
    });
    assert_eq!(last.unwrap_err().errno, Errno::ENOSPC);
}

fn pids(c: &Cluster) -> Vec<Pid> {
    (0..OSDS).map(|osd| c.pid(&format!("osd.{osd}"))).chain([c.pid("mon.a")]).collect()
}

/// Fills the disk, keeps it full, and empties it.
fn fill_and_empty(c: &Cluster, client: &mut SyncClient, pool: PoolId, round: u32) {
    let filling = bench(c, &format!("20 write -t 16 --no-cleanup --run-name fill-{round}")).start();
    let verified = fio(c);
    until("it is not full", || is_full(c));
    eprintln!("round {round}: full");
    let before = pids(c);
    Deadline::after(FULL_TIME).until(LOOK_EVERY, || false);
    assert_refuses(client, pool);
    assert_eq!(pids(c), before, "a daemon has died");
    filling.kill();
    let names = bench_objects(c);
    assert!(names.len() > 20, "{names:?}");
    removal(c, &names).ok();
    until("it is full for ever", || !is_full(c));
    // What waited has gone on.
    let ran = verified.wait();
    assert!(ran.status.success(), "{ran:?}");
    c.rados().args(["-p", "rbd", "cleanup", "--prefix", "benchmark_data"]).run();
    c.wait_until_clean(PATIENCE);
    assert_eq!(pids(c), before, "a daemon has died");
}

fn make_image(c: &Cluster) {
    let rbd = Tool::new("rbd").env("CEPH_CONF", c.conf());
    rbd.args(["create", "full", "--size", "64M"]).ok();
}

#[test]
fn a_disk_filled_to_the_last_byte_stops_nothing() {
    if is_foreign() {
        return;
    }
    let c = uneven();
    make_image(&c);
    under_load(&c, |client, pool, shared| {
        for round in 0..rounds() {
            fill_and_empty(&c, client, pool, round);
            wait_for_progress(shared);
            check(client, pool, shared);
        }
    });
}

#[test]
fn a_full_file_system_below_an_osd_is_not_noticed() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(SMALL, LARGE_DISK);
    c.ceph().args(["config", "set", "osd", "bdev_enable_discard", "true"]).ok();
    let below = FileSystem::mount(&c.dir().join(format!("osd.{SMALL}")), FILE_SYSTEM);
    add_small(&c);
    make_image(&c);
    under_load(&c, |client, pool, shared| {
        let before = pids(&c);
        // Something is freed before and after: it stays the store's.
        bench(&c, "2 write -t 8 -b 65536 --max-objects 500 --run-name before").ok();
        below.fill();
        for _ in 0..rounds() {
            bench(&c, "2 write -t 8 -b 65536 --max-objects 500 --run-name after").ok();
            let ran = fio(&c).wait();
            assert!(ran.status.success(), "{ran:?}");
            wait_for_progress(shared);
            check(client, pool, shared);
        }
        assert_eq!(pids(&c), before, "a daemon has died");
        // It starts on it, too.
        c.kill_all();
        c.dev("start").limit(PATIENCE).ok();
        wait_for_progress(shared);
    });
}

/// What it has begun is not taken for a damaged store when there is room again.
#[test]
fn a_mon_without_space_says_so_and_starts_when_there_is_some() {
    if is_foreign() {
        return;
    }
    let c = Cluster::unborn();
    // By this name it is unmounted when the cluster is removed.
    let fs = FileSystem::in_memory(&c.dir().join("osd.full"), "16M");
    let (data, socket) = (fs.at.join("mon"), c.dir().join("asok"));
    std::fs::create_dir(&data).unwrap();
    fs.fill();
    let mon = || {
        let addr = format!("127.0.0.1:{}", free_port());
        let fsid = "7b1a4d3e-0000-4000-8000-000000000001";
        let mon = Tool::new(BINARY).args(["mon", "--fsid", fsid, "--addr", &addr, "--data"]);
        mon.arg(&data).arg("--admin-socket").arg(&socket).limit(PATIENCE)
    };
    let said = mon().fails(MACHINE);
    assert!(said.contains("cluster store") && said.contains("No space"), "{said}");
    let said = mon().arg("--pid-file").arg(fs.at.join("pid")).fails(MACHINE);
    assert!(said.contains("cannot take the pid file") && said.contains("No space"), "{said}");
    std::fs::remove_file(fs.at.join("other")).unwrap();
    let running = mon().start();
    until("it does not start", || socket.exists());
    let ran = running.end();
    assert!(ran.status.success(), "{ran:?}");
}
