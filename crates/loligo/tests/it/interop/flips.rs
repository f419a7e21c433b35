//! Bits of one replica's store flip, in blocks of objects' data: all of them are found by reads or
//! scrubs and repaired, none is returned. Of flips in the store's own records see `thrash`.
//!
//! `LOLIGO_IT_FLIPS=10000 cargo test -p loligo --test it interop::flips -- --nocapture` is the whole.

use super::cluster::{BINARY, Cluster, is_foreign, pattern};
use super::scrub::scrub_all;
use super::tool::Tool;
use client::Object;
use io::Rng;
use loligo::SyncClient;
use loligo::conf::ClientConf;
use loligo::wait::Deadline;
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::PoolId;

const FLIPS_ENV: &str = "LOLIGO_IT_FLIPS";
const DEFAULT_FLIPS: usize = 300;
const FLIPS_OF_ROUND: usize = 1000;
const OSDS: usize = 3;
const OBJECTS: usize = 64;
const OBJECT_BYTES: usize = 1 << 20;
const IMAGE_BYTES: usize = 32 << 20;
const BLOCK: usize = 4096;
/// How each block of data begins, so that it is known on a disk.
const MARK: &[u8; 16] = b"a block of flips";
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(100);
/// What `loligo store fsck` ends with when something is damaged.
const DAMAGED: i32 = 6;

/// Blocks that begin with the mark, and are all different.
fn content(n: usize, len: usize) -> Vec<u8> {
    let mut bytes = pattern(len, n as u8);
    for (i, block) in bytes.chunks_mut(BLOCK).enumerate() {
        block[..16].copy_from_slice(MARK);
        block[16..24].copy_from_slice(&((n as u64) << 32 | i as u64).to_le_bytes());
    }
    bytes
}

struct Rot<'a> {
    c: &'a Cluster,
    client: SyncClient,
    pool: PoolId,
    rng: Rng,
    image: PathBuf,
}

impl<'a> Rot<'a> {
    fn new(c: &'a Cluster) -> Self {
        let conf = ClientConf::load(c.conf()).unwrap();
        let mut client = SyncClient::connect(&conf, PATIENCE).unwrap();
        let pool = client.pool("rbd").unwrap();
        for n in 0..OBJECTS {
            client.put(object(pool, n), content(n, OBJECT_BYTES)).unwrap();
            let named = format!("object-{n}");
            if n.is_multiple_of(12) {
                c.rados().args(["-p", "rbd", "setomapval", &named, "key", &named]).ok();
                c.rados().args(["-p", "rbd", "setxattr", &named, "attr", &named]).ok();
            }
        }
        let image = c.dir().join("image");
        std::fs::write(&image, content(OBJECTS, IMAGE_BYTES)).unwrap();
        let rbd = Tool::new("rbd").env("CEPH_CONF", c.conf());
        rbd.args(["import", "--no-progress"]).arg(&image).arg("rbd/image").ok();
        Rot { c, client, pool, rng: Rng::with_seed(1), image }
    }

    fn disk(&self, osd: usize) -> PathBuf {
        self.c.dir().join(format!("osd.{osd}/block"))
    }

    /// Flips a bit in so many different blocks of data.
    fn flip(&mut self, osd: usize, flips: usize) {
        let file = File::options().read(true).write(true).open(self.disk(osd)).unwrap();
        let mut blocks = marked(&file);
        assert!(blocks.len() > flips, "{} blocks of data", blocks.len());
        self.rng.shuffle(&mut blocks);
        for at in blocks.into_iter().take(flips) {
            // Behind the mark: it may be flipped again in another round.
            let place = at + self.rng.u64(MARK.len() as u64..BLOCK as u64);
            let mut byte = [0];
            file.read_exact_at(&mut byte, place).unwrap();
            byte[0] ^= 1 << self.rng.u8(0..8);
            file.write_all_at(&byte, place).unwrap();
        }
        file.sync_all().unwrap();
    }

    /// Everything is what was written.
    fn compare(&mut self) {
        for n in 0..OBJECTS {
            let got = self.client.get(object(self.pool, n)).unwrap();
            assert!(got == content(n, OBJECT_BYTES), "object-{n} has other bytes");
        }
        let out = self.image.with_extension("out");
        let rbd = Tool::new("rbd").env("CEPH_CONF", self.c.conf());
        rbd.args(["export", "--no-progress", "rbd/image"]).arg(&out).limit(PATIENCE).ok();
        let same = std::fs::read(&out).unwrap() == std::fs::read(&self.image).unwrap();
        assert!(same, "the image has other bytes");
        std::fs::remove_file(out).unwrap();
        for n in (0..OBJECTS).step_by(12) {
            let named = format!("object-{n}");
            let get = |what: &str, name: &str| {
                self.c.rados().args(["-p", "rbd", what, &named, name]).text()
            };
            assert!(get("getomapval", "key").contains("00000000"), "{named}: omap");
            assert_eq!(get("getxattr", "attr").trim(), named);
        }
    }

    fn repairs(&self, osd: usize) -> u64 {
        let perf = self.c.ceph().args(["daemon", &format!("osd.{osd}"), "perf", "dump"]).json();
        let of = |name: &str| perf["osd"][name].as_u64().unwrap();
        of("repairs") + of("scrub_repairs")
    }

    /// Flips while the OSD is off until so many blocks of objects are damaged, and some more while it
    /// runs, of which some hit what is in use no more.
    fn round(&mut self, osd: usize, flips: usize) {
        let name = format!("osd.{osd}");
        // In order: the log is empty then, and all data in its place.
        self.c.signal(&name, Signal::TERM);
        let down =
            || self.c.ask("osd dump")["osds"][osd]["up"] == 0 && self.c.pid_of(&name).is_none();
        assert!(Deadline::after(PATIENCE).until(PAUSE, down), "{name} does not stop");
        let mut damaged = 0;
        while damaged < flips {
            self.flip(osd, flips - damaged);
            damaged = damaged_blocks(self.disk(osd).parent().unwrap());
        }
        self.c.dev("start").limit(PATIENCE).ok();
        self.flip(osd, flips / 10);
        self.compare();
        scrub_all(self.c, PATIENCE);
        eprintln!("flips: {name}: {damaged} blocks; {} repairs as primary", self.repairs(osd));
    }
}

fn object(pool: PoolId, n: usize) -> Object {
    Object::new(pool, format!("object-{n}"))
}

/// Where blocks of data are, live ones and some that were.
fn marked(file: &File) -> Vec<u64> {
    let mut image = vec![0; 1 << 20];
    let mut found = Vec::new();
    for at in (0..file.metadata().unwrap().len()).step_by(image.len()) {
        let read = file.read_at(&mut image, at).unwrap();
        let blocks = image[..read].chunks_exact(BLOCK).enumerate();
        let ours = blocks.filter(|(_, block)| block.starts_with(MARK));
        found.extend(ours.map(|(i, _)| at + (i * BLOCK) as u64));
    }
    found
}

/// What the check of a store finds: every one of them is a damaged block of an object.
fn damaged_blocks(store: &Path) -> usize {
    let ran = Tool::new(BINARY).args(["store", "fsck", "--json"]).arg(store).run();
    assert!([0, DAMAGED].iter().any(|code| ran.status.code() == Some(*code)), "{ran:?}");
    let report: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.len() + report["more_findings"].as_u64().unwrap() as usize
}

#[test]
fn flipped_bits_are_found_and_repaired_and_never_returned() {
    if is_foreign() {
        return;
    }
    let given = std::env::var(FLIPS_ENV).ok();
    let flips: usize = given.and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_FLIPS);
    let c = Cluster::start(OSDS as u32, "512M");
    let mut rot = Rot::new(&c);
    let mut left = flips;
    for osd in (0..OSDS).cycle() {
        let round = left.min(FLIPS_OF_ROUND);
        if round == 0 {
            break;
        }
        rot.round(osd, round);
        left -= round;
    }
    rot.compare();
    eprintln!("flips: {flips} damaged blocks, and a tenth more while the OSD ran");
    rot.client.close().unwrap();
    c.dev("stop").ok();
    for osd in 0..OSDS {
        let store = c.dir().join(format!("osd.{osd}"));
        Tool::new(BINARY).args(["store", "fsck"]).arg(store).ok();
    }
}
