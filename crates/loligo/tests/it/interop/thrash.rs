//! A thrasher: everything that can happen to a cluster's machines happens to it, one thing after the
//! other, under a load that checks itself.
//!
//! The load: objects with a model, written, appended to and read all the time; fio with checksums on a
//! block image; files in an ext4 in another image. After each round the cluster has to get on; after some of them it has to become clean,
//! and in the end it has to be clean, scrubbed without an error, and every store without damage.
//!
//! `LOLIGO_IT_THRASH_SECONDS=3600 LOLIGO_IT_THRASH_SEED=7 cargo test -p loligo --test it thrash --
//! --nocapture` is an hour of it; each line says what is done. `LOLIGO_IT_THRASH_ONLY=Damage,Replace` does only
//! such things.

use super::cluster::{Cluster, is_foreign};
use super::full;
use super::image_fs::{Files, ImageFs};
use super::load::{PATIENCE, Shared, StopAtEnd, Writers, check, client_of, wait_for_progress};
use super::machines::{self, CUTS, Cut};
use super::scrub::{scrub_all, stamps};
use super::tool::{Running, Tool};
use io::Rng;
use loligo::wait::Deadline;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const SECONDS_ENV: &str = "LOLIGO_IT_THRASH_SECONDS";
const ONLY_ENV: &str = "LOLIGO_IT_THRASH_ONLY";
const SEED_ENV: &str = "LOLIGO_IT_THRASH_SEED";
const DEFAULT_SECONDS: u64 = 15;
const DEFAULT_SEED: u64 = 1;
const OSDS: usize = 4;
const MON: &str = "mon.a";
const CLEAN_LIMIT: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(100);
/// PGs of the pool, at most: it gets more and more.
const MAX_PGS: u64 = 128;
/// Places of [`Deed::Cut`] at the end of [`DEEDS`].
const CUTS_OF_DEEDS: usize = 3;
/// Blocks of a store that are damaged in one round.
const DAMAGED_BLOCKS: usize = 30;

/// The image with a file system.
const FS_IMAGE: &str = "ext4";
const FS_MIB: u64 = 64;

/// What is done to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    KillOsd,
    KillTwo,
    KillAll,
    KillMon,
    StopOsd,
    HangOsd,
    OutAndIn,
    Reweight,
    Size,
    Split,
    Scrub,
    Replace,
    Damage,
    Fill,
    Cut,
}

const DEEDS: [Deed; 17] = [
    Deed::KillOsd,
    Deed::KillTwo,
    Deed::KillAll,
    Deed::KillMon,
    Deed::StopOsd,
    Deed::HangOsd,
    Deed::OutAndIn,
    Deed::Reweight,
    Deed::Size,
    Deed::Split,
    Deed::Scrub,
    Deed::Replace,
    Deed::Damage,
    Deed::Fill,
    // There are many kinds of them.
    Deed::Cut,
    Deed::Cut,
    Deed::Cut,
];

struct Thrasher<'a> {
    c: &'a Cluster,
    rng: Rng,
    done: BTreeMap<Deed, u32>,
    cuts: BTreeMap<Cut, u32>,
    /// What may be done, as often as it is likely.
    deeds: Vec<Deed>,
}

/// What may be done where each OSD is a machine of its own, or is not.
fn deeds(machines: bool) -> Vec<Deed> {
    let possible = if machines { DEEDS.len() } else { DEEDS.len() - CUTS_OF_DEEDS };
    let only = std::env::var(ONLY_ENV).unwrap_or_default();
    let is_wanted = |deed: &Deed| only.is_empty() || only.contains(&format!("{deed:?}"));
    let deeds: Vec<_> = DEEDS[..possible].iter().copied().filter(is_wanted).collect();
    assert!(!deeds.is_empty(), "{ONLY_ENV}={only} names nothing of {:?}", &DEEDS[..possible]);
    deeds
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

impl Thrasher<'_> {
    fn osd(&mut self) -> usize {
        self.rng.usize(0..OSDS)
    }

    fn up(&self, osd: usize) -> bool {
        self.c.ask("osd dump")["osds"][osd]["up"] == 1
    }

    fn wait(&self, what: &str, until: impl FnMut() -> bool) {
        assert!(Deadline::after(PATIENCE).until(PAUSE, until), "{what} does not happen");
    }

    /// Starts what does not run. It may take longer than a start alone may to become clean.
    fn heal(&self) {
        let ran = self.c.dev("start").limit(PATIENCE).run();
        let only_slow = ran.err.contains("is not ready after");
        assert!(ran.status.success() || only_slow, "{ran:?}");
    }

    /// Waits some time, without looking at anything.
    fn linger(&mut self, most_ms: u64) {
        let pause = Duration::from_millis(self.rng.u64(0..most_ms));
        Deadline::after(pause).until(pause, || false);
    }

    fn do_one(&mut self) {
        let deed = self.deeds[self.rng.usize(0..self.deeds.len())];
        let osd = self.osd();
        eprintln!("thrash: {deed:?} osd.{osd}");
        *self.done.entry(deed).or_default() += 1;
        let name = format!("osd.{osd}");
        match deed {
            Deed::KillOsd => self.c.signal(&name, Signal::KILL),
            Deed::StopOsd => self.c.signal(&name, Signal::TERM),
            Deed::KillTwo => {
                self.c.signal(&name, Signal::KILL);
                self.c.signal(&format!("osd.{}", (osd + 1) % OSDS), Signal::KILL);
            }
            Deed::KillAll => {
                for daemon in (0..OSDS).map(|n| format!("osd.{n}")).chain([MON.to_owned()]) {
                    self.c.signal(&daemon, Signal::KILL);
                }
            }
            Deed::KillMon => self.c.signal(MON, Signal::KILL),
            Deed::HangOsd => {
                self.c.signal(&name, Signal::STOP);
                self.linger(8000);
                self.c.signal(&name, Signal::CONT);
            }
            Deed::OutAndIn => {
                self.c.ceph().args(["osd", "out", &name]).ok();
                self.linger(6000);
                self.c.ceph().args(["osd", "in", &name]).ok();
            }
            Deed::Reweight => {
                let weight = ["0.3", "0.7", "1"][self.rng.usize(0..3)];
                self.c.ceph().args(["osd", "reweight", &name, weight]).ok();
            }
            Deed::Size => {
                let size = ["2", "3"][self.rng.usize(0..2)];
                self.c.ceph().args(["osd", "pool", "set", "rbd", "size", size]).ok();
            }
            Deed::Split => {
                let now = self.c.ask("osd pool get rbd pg_num")["pg_num"].as_u64().unwrap();
                let pgs = (now + 16).min(MAX_PGS).to_string();
                self.c.ceph().args(["osd", "pool", "set", "rbd", "pg_num", &pgs]).ok();
            }
            Deed::Scrub => drop(self.c.ceph().args(["osd", "deep-scrub", "all"]).run()),
            Deed::Replace => self.replace(osd),
            Deed::Damage => self.damage(osd),
            Deed::Fill => self.fill(osd),
            Deed::Cut => self.cut(osd),
        }
        self.linger(3000);
        self.heal();
    }

    /// The disks are filled until somebody says so, and emptied again. Sometimes an OSD dies at that moment.
    fn fill(&mut self, osd: usize) {
        let filling = full::bench(self.c, "120 write -t 16 --no-cleanup").start();
        self.wait("a full disk", || full::is_full(self.c));
        filling.kill();
        if self.rng.bool() {
            self.c.signal(&format!("osd.{osd}"), Signal::KILL);
        }
        self.linger(5000);
        let removing = full::removal(self.c, &full::bench_objects(self.c)).start();
        // With min_size 1 the OSD that died may have been the only one that had a write.
        self.linger(5000);
        self.heal();
        let removed = removing.wait();
        assert!(removed.status.success(), "{removed:?}");
        self.wait("space", || !full::is_full(self.c));
    }

    /// The network of an OSD, sometimes of two, fails for a while.
    fn cut(&mut self, osd: usize) {
        let mut osds = vec![osd];
        if self.rng.u32(0..3) == 0 {
            osds.push((osd + 1) % OSDS);
        }
        for osd in &osds {
            let cut = CUTS[self.rng.usize(0..CUTS.len())];
            eprintln!("thrash: {cut:?} osd.{osd}");
            *self.cuts.entry(cut).or_default() += 1;
            machines::cut(*osd, OSDS, cut, self.c.mon_port());
        }
        self.linger(10_000);
        osds.into_iter().for_each(machines::mend);
    }

    fn make_clean(&self) {
        self.heal();
        // With small weights CRUSH may not find three places among four.
        for osd in 0..OSDS {
            self.c.ceph().args(["osd", "reweight", &format!("osd.{osd}"), "1"]).ok();
        }
        self.c.wait_until_clean(CLEAN_LIMIT);
    }

    /// A disk fails for good, and a new one takes its place.
    fn replace(&mut self, osd: usize) {
        self.c.ceph().args(["osd", "pool", "set", "rbd", "size", "3"]).ok();
        self.make_clean();
        self.c.signal(&format!("osd.{osd}"), Signal::KILL);
        self.wait("down", || !self.up(osd));
        self.anew(osd);
    }

    fn anew(&self, osd: usize) {
        let replace = || {
            let tool = super::replace::replace(self.c, osd as u32);
            tool.args(["--accept-fewer-copies", "--yes"]).run()
        };
        let mut ran = None;
        // While PGs peer nobody knows whether they need it, and the tool refuses.
        let replaced = Deadline::after(PATIENCE).until(PAUSE, || {
            let ran = ran.insert(replace());
            ran.status.success() || !ran.err.contains("PGs may need it")
        });
        let replaced = replaced && ran.as_ref().is_some_and(|r| r.status.success());
        assert!(replaced, "{ran:?}");
        self.make_clean();
    }

    /// Bits of a store flip while its OSD is off. All other copies are whole then.
    fn damage(&mut self, osd: usize) {
        let name = format!("osd.{osd}");
        self.c.ceph().args(["osd", "pool", "set", "rbd", "size", "3"]).ok();
        self.make_clean();
        self.c.signal(&name, Signal::KILL);
        self.wait("down", || !self.up(osd));
        let flipped = self.flip(osd);
        let settled = Deadline::after(CLEAN_LIMIT).until(PAUSE, || {
            let start = self.c.dev("start").limit(PATIENCE).run();
            let refused = || self.c.ceph().args(["health"]).text().contains("are refused");
            if start.status.success() || self.c.pid_of(&name).is_none() || refused() {
                return true;
            }
            false
        });
        assert!(settled, "osd.{osd} with {flipped} flips is neither clean nor given up");
        if self.up(osd) && self.lives_after_scrub(osd) {
            scrub_all(self.c, CLEAN_LIMIT);
            return;
        }
        // Its own records were hit, or the end of its log: it says so, and is made anew.
        let log = std::fs::read_to_string(self.c.dir().join(format!("osd.{osd}.log")));
        let log = log.unwrap_or_default();
        let last = log.lines().next_back().unwrap_or_default();
        eprintln!("thrash: osd.{osd} with {flipped} flips must be made anew: {last}");
        self.c.signal(&name, Signal::KILL);
        self.wait("down", || !self.up(osd));
        self.anew(osd);
    }

    /// Has everything read and repaired, the records of this OSD, too. Whether it lives on, and says that
    /// they are whole.
    fn lives_after_scrub(&self, osd: usize) -> bool {
        let lives = || self.c.pid_of(&format!("osd.{osd}")).is_some();
        let newest = stamps(self.c).values().max().cloned().unwrap_or_default();
        let counter = |name: &str| {
            let tool = self.c.ceph().args(["tell", &format!("osd.{osd}"), "perf", "dump"]);
            let all: Value = serde_json::from_slice(&tool.run().out).unwrap_or_default();
            all["osd"][name].as_u64().unwrap_or(0)
        };
        let before = counter("own_checks");
        self.c.ceph().args(["osd", "pool", "repair", "rbd"]).ok();
        let read =
            || stamps(self.c).values().all(|s| *s > newest) && counter("own_checks") > before;
        let over = Deadline::after(CLEAN_LIMIT).until(PAUSE, || !lives() || read());
        assert!(over, "not all is read: {:?}", stamps(self.c));
        let is_whole = counter("own_damaged") == 0;
        let shown =
            || self.c.ceph().args(["health", "detail"]).text().contains("OSD_RECORDS_DAMAGED");
        if lives() && !is_whole {
            self.wait("the damage in the cluster's health", shown);
        }
        lives() && is_whole
    }

    /// Flips a bit in some blocks that hold something. How many.
    fn flip(&mut self, osd: usize) -> usize {
        const BLOCK: u64 = 4096;
        let path = self.c.dir().join(format!("osd.{osd}/block"));
        let file = File::options().read(true).write(true).open(path).unwrap();
        let blocks = file.metadata().unwrap().len() / BLOCK;
        let mut flipped = 0;
        for _ in 0..20_000 {
            let at = self.rng.u64(0..blocks) * BLOCK;
            let mut block = [0; BLOCK as usize];
            file.read_exact_at(&mut block, at).unwrap();
            if block.iter().any(|b| *b != 0) {
                let place = self.rng.usize(0..block.len());
                let bit = 1 << self.rng.u8(0..8);
                file.write_all_at(&[block[place] ^ bit], at + place as u64).unwrap();
                flipped += 1;
            }
            if flipped == DAMAGED_BLOCKS {
                break;
            }
        }
        file.sync_all().unwrap();
        flipped
    }
}

/// Writes a part of the image with checksums and reads it again.
fn fio(c: &Cluster, round: u32) -> Running {
    let image = ["--name=thrash", "--ioengine=rbd", "--clientname=admin", "--rbdname=thrash"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"];
    let load = ["--pool=rbd", "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=8", "--size=8M"];
    let tool = Tool::new("fio").env("CEPH_CONF", c.conf()).args(image).args(verify).args(load);
    let tool = tool.arg(format!("--randseed={round}")).arg("--output-format=json");
    tool.limit(Duration::from_secs(900)).start()
}

#[test]
fn whatever_happens_nothing_is_lost() {
    if is_foreign() {
        return;
    }
    let machines = match machines::inside("interop::thrash::whatever_happens_nothing_is_lost") {
        Some(false) => return,
        inside => inside.is_some(),
    };
    let time = Duration::from_secs(number(SECONDS_ENV, DEFAULT_SECONDS));
    let seed = number(SEED_ENV, DEFAULT_SEED);
    eprintln!("thrash: seed {seed}, {} s", time.as_secs());
    let c = if machines {
        machines::make(OSDS);
        Cluster::of_machines(OSDS as u32, "512M", machines::PREFIX)
    } else {
        Cluster::start(OSDS as u32, "512M")
    };
    // OSDs are marked down on purpose, and more often than anybody would bear.
    c.ceph().args(["osd", "pool", "set", "rbd", "min_size", "1"]).ok();
    let rbd = |line: &str| Tool::new("rbd").env("CEPH_CONF", c.conf()).args(line.split(' '));
    rbd("create thrash --size 64M").ok();
    let mut reader = client_of(&c);
    let pool = reader.pool("rbd").unwrap();
    let shared = Shared::default();
    let mut thrasher = Thrasher {
        c: &c,
        rng: Rng::with_seed(seed),
        done: BTreeMap::new(),
        cuts: BTreeMap::new(),
        deeds: deeds(machines),
    };
    let over = Deadline::after(time);
    let files = std::thread::scope(|scope| {
        let writers = Writers::start(scope, &c, pool, &shared);
        let (mut looker, looked) = (client_of(&c), &shared);
        let looking = scope.spawn(move || {
            while !looked.stopped() {
                check(&mut looker, pool, looked);
            }
        });
        let fs = ImageFs::make(&c, FS_IMAGE, FS_MIB);
        let root = fs.root();
        let living = scope.spawn(move || Files::live(&root, looked));
        let stop = StopAtEnd(&shared);
        let mut round = 0;
        let mut writing = fio(&c, round);
        while !over.is_over() {
            thrasher.do_one();
            wait_for_progress(&shared);
            round += 1;
            if !writing.is_running() {
                let ran = std::mem::replace(&mut writing, fio(&c, round)).wait();
                assert!(ran.status.success(), "{ran:?}");
            }
            if round.is_multiple_of(5) {
                thrasher.make_clean();
            }
        }
        thrasher.make_clean();
        let ran = writing.wait();
        assert!(ran.status.success(), "{ran:?}");
        drop(stop);
        writers.join();
        looking.join().unwrap();
        let files = living.join().unwrap();
        fs.unmount();
        files
    });
    thrasher.make_clean();
    scrub_all(&c, CLEAN_LIMIT);
    check(&mut reader, pool, &shared);
    assert!(shared.is_settled(), "everything was answered");
    files.check_image(&c, FS_IMAGE);
    let (done, cuts) = (&thrasher.done, &thrasher.cuts);
    let (writes, changes) = (shared.acked_writes(), files.changes());
    eprintln!("thrash: {writes} writes, {changes} changes of files, {done:?}, {cuts:?}");
    reader.close().unwrap();
    c.stop_and_check_stores();
}
