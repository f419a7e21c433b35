//! The store on real files and devices, by the runner that an OSD has: it does what the model does,
//! what it said to be durable is there when it is opened again after it was dropped in the middle of
//! its work, a check finds nothing, and discarded space goes back to the file system.
//!
//! `STORE_TEST_PLACES=/mnt/a/disk:/dev/loop7` names files (which are made) and devices (whose content
//! is lost); without it one file in the current folder is used. `bench/file-systems` runs this, and
//! more, on files of several file systems and on a loop device.

use crate::conformance::rounds;
use crate::r#gen::{Flavour, Gen};
use crate::rig::{CLUSTER, OSD, assert_same, bytes, identity, key};
use fastrand::Rng;
use io::disk::DeviceInfo;
use io::{BLOCK_BYTES, Core, Effects, Event, Now};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::model::{Model, ModelObject};
use store::{
    Config, Devices, Expect, Fsck, Miss, Mkfs, Mount, OmapRange, ReadSet, Store, StoreEvent,
    SubmitError, Transaction, TxnId,
};
use types::{Mono, ObjectKey};
use uring::{Open, open};

const FILE_BYTES: u64 = 192 << 20;
const MARKER: u64 = 900;
/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn config() -> Config {
    // A real disk is slow where a simulated one is not: less is enough.
    Config { wal_bytes: 8 << 20, small_write_bytes: 16 << 10, ..Config::for_memory(8 << 20) }
}

/// One run of a core on the devices.
struct Life<'a> {
    work: Work,
    txns: &'a [Transaction],
    /// Ends without a word after so many were submitted; otherwise it closes in order.
    kill_after: Option<usize>,
    next: usize,
    ids: Vec<TxnId>,
    durable: usize,
    reads: ReadSet,
    waiting: bool,
    busy: bool,
    /// What was there at the beginning.
    found: Option<Model>,
    began: Option<Mono>,
    now: Now,
    out: Outcome,
}

#[derive(Default)]
struct Outcome {
    submitted: usize,
    durable: usize,
    discarded: u64,
    findings: Vec<String>,
}

enum Work {
    Mkfs(Box<Mkfs>),
    Mount(Box<Mount>),
    Run(Box<Store>),
    Fsck(Box<Fsck>),
    Over,
}

fn every_key(store: &Store) -> Result<Vec<ObjectKey>, Miss> {
    let (from, to) = (ObjectKey::from_bytes(b""), ObjectKey::from_bytes(&[0xff; 20]));
    Ok(store.list(&from, &to, usize::MAX)?.into_iter().map(|(key, _)| key).collect())
}

fn object(store: &Store, key: &ObjectKey, set: &ReadSet) -> Result<ModelObject, Miss> {
    let stat = store.stat(key)?.expect("it was listed");
    let mut o = ModelObject { size: stat.size, meta: stat.meta, ..ModelObject::default() };
    for (offset, len) in store.extents(key, 0, u64::MAX)? {
        let mut data = Vec::new();
        for piece in store.read(key, offset, len, set)? {
            data.extend_from_slice(&piece.data.expect("an extent is no hole"));
        }
        data.resize(data.len().next_multiple_of(BLOCK_BYTES), 0);
        for (i, block) in data.chunks(BLOCK_BYTES).enumerate() {
            o.blocks.insert(offset / BLOCK_BYTES as u64 + i as u64, block.to_vec());
        }
    }
    o.attrs = store.attrs(key)?.unwrap_or_default().into_iter().collect();
    o.header = store.omap_header(key)?.unwrap_or_default();
    let all = OmapRange { max_entries: usize::MAX, max_bytes: usize::MAX, ..OmapRange::default() };
    o.omap = store.omap_list(key, &all)?.unwrap_or_default().entries.into_iter().collect();
    Ok(o)
}

fn dump(store: &Store, set: &ReadSet) -> Result<Model, Miss> {
    let mut model = Model::new();
    for key in every_key(store)? {
        let object = object(store, &key, set)?;
        model.objects.insert(key, object);
    }
    Ok(model)
}

impl Life<'_> {
    fn fetch(&mut self, miss: Miss, fx: &mut Effects) {
        self.waiting = true;
        if let Work::Run(store) = &mut self.work {
            store.fetch(self.now, miss, 1, fx);
        }
    }

    fn events(&mut self, fx: &mut Effects) {
        let Work::Run(store) = &mut self.work else { return };
        let mut closed = false;
        while let Some(event) = store.poll_event() {
            match event {
                StoreEvent::Durable { txns } => {
                    self.durable += txns.len();
                    assert!(self.durable <= self.ids.len());
                }
                StoreEvent::Fetched { result, .. } => {
                    self.waiting = false;
                    self.reads.merge(result.expect("the disk is good"));
                }
                StoreEvent::Writable => self.busy = false,
                StoreEvent::BadBlock { object, offset } => panic!("{object:?} at {offset}"),
                StoreEvent::Unmounted => closed = true,
                StoreEvent::Fatal(why) => panic!("{why}"),
            }
        }
        self.out.discarded = store.counters().discarded_bytes;
        if closed {
            self.out.durable = self.durable;
            self.work = Work::Over;
            fx.exit(0, "closed");
        }
    }

    /// Goes on with what there is to do.
    fn step(&mut self, fx: &mut Effects) {
        while !self.waiting && !self.busy {
            let Work::Run(store) = &mut self.work else { return };
            if self.found.is_none() {
                match dump(store, &self.reads) {
                    Ok(model) => (self.found, self.reads) = (Some(model), ReadSet::new()),
                    Err(miss) => return self.fetch(miss, fx),
                }
            }
            let Some(txn) = self.txns.get(self.next) else {
                store.unmount();
                return;
            };
            if self.kill_after.is_some_and(|n| self.next >= n) {
                (self.out.submitted, self.out.durable) = (self.next, self.durable);
                self.work = Work::Over;
                fx.exit(0, "killed");
                return;
            }
            match store.submit(self.now, txn, &self.reads) {
                Ok(id) => {
                    self.ids.push(id);
                    self.next += 1;
                    self.out.submitted = self.next;
                    self.reads = ReadSet::new();
                    // Not everything in one turn.
                    if self.next.is_multiple_of(5) {
                        return;
                    }
                }
                Err(SubmitError::Miss(miss)) => return self.fetch(miss, fx),
                Err(SubmitError::Busy) => self.busy = true,
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn disk(&mut self, now: Now, done: io::disk::DiskDone, fx: &mut Effects) {
        match &mut self.work {
            Work::Mkfs(mkfs) => {
                if let Some(result) = mkfs.handle(done, fx) {
                    result.unwrap();
                    fx.exit(0, "made");
                }
            }
            Work::Mount(mount) => {
                if let Some(result) = mount.handle(done, fx) {
                    self.work = Work::Run(Box::new(result.unwrap()));
                }
            }
            Work::Run(store) => assert!(store.handle(now, done, fx)),
            Work::Fsck(fsck) => {
                if let Some(report) = fsck.handle(done, fx) {
                    let said = report.findings.iter().map(ToString::to_string);
                    self.out.findings = said.collect();
                    fx.exit(0, "checked");
                }
            }
            Work::Over => {}
        }
    }
}

impl Core for Life<'_> {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let began = *self.began.get_or_insert(now.mono);
        assert!(now.mono < began.after(PATIENCE), "it takes too long");
        match event {
            Event::Start => match &mut self.work {
                Work::Mkfs(mkfs) => mkfs.start(fx),
                Work::Mount(mount) => mount.start(fx),
                Work::Fsck(fsck) => assert!(fsck.start(fx).is_none()),
                Work::Run(_) | Work::Over => {}
            },
            Event::Disk(done) => self.disk(now, done, fx),
            _ => {}
        }
        self.events(fx);
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.now = now;
        self.step(fx);
        if let Work::Run(store) = &mut self.work {
            store.end_turn(now, fx);
            store.check_accounting();
        }
        self.events(fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        match &self.work {
            // There is more to be submitted.
            Work::Run(_) if !self.waiting && !self.busy && self.next < self.txns.len() => {
                Some(Mono(0))
            }
            Work::Run(store) => store.next_deadline(),
            _ => None,
        }
    }
}

fn live<'a>(
    place: &Path,
    work: impl FnOnce(Devices) -> Work,
    txns: &'a [Transaction],
    kill_after: Option<usize>,
) -> Life<'a> {
    let device = open(place, Open::Create { bytes: FILE_BYTES }).unwrap();
    let data: DeviceInfo = device.info.clone();
    let mut life = Life {
        work: work(Devices { data, wal: None }),
        txns,
        kill_after,
        next: 0,
        ids: Vec::new(),
        durable: 0,
        reads: ReadSet::new(),
        waiting: false,
        busy: false,
        found: None,
        began: None,
        now: Now::default(),
        out: Outcome::default(),
    };
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    let exit = uring::run(&mut life, vec![device], None, &options).unwrap();
    assert_eq!(exit.code, 0, "{}", exit.why);
    life
}

fn mkfs(place: &Path, config: &Config) {
    let make =
        |devices| Work::Mkfs(Box::new(Mkfs::new(devices, identity(), config, true).unwrap()));
    live(place, make, &[], None);
}

fn mount(config: &Config) -> impl FnOnce(Devices) -> Work {
    let expect = Expect { cluster: Some(CLUSTER), osd: Some(OSD), store: None };
    let config = config.clone();
    move |devices| Work::Mount(Box::new(Mount::new(devices, expect, config)))
}

fn assert_checked(place: &Path, config: &Config) {
    let check = |devices| Work::Fsck(Box::new(Fsck::new(devices, true, config)));
    let found = live(place, check, &[], None).out.findings;
    assert!(found.is_empty(), "{}: {found:?}", place.display());
}

fn places() -> Vec<PathBuf> {
    let named = std::env::var_os("STORE_TEST_PLACES").unwrap_or_default();
    std::env::split_paths(&named).filter(|p| !p.as_os_str().is_empty()).collect()
}

/// Runs a test on each place; on a file of the current folder if none is named.
fn on_each(test: impl Fn(&Path)) {
    let places = places();
    if places.is_empty() {
        let dir = tempfile::tempdir_in(".").unwrap();
        return test(&dir.path().join("disk"));
    }
    for place in places {
        println!("{}", place.display());
        test(&place);
        // A file that was made for it.
        if std::fs::metadata(&place).is_ok_and(|m| m.is_file()) {
            std::fs::remove_file(&place).unwrap();
        }
    }
}

/// Transactions, each of which says in an object's record which one it is, and the model after each.
fn history(seed: u64, from: &Model, count: usize) -> (Vec<Transaction>, Vec<Model>) {
    let mut rng = Rng::with_seed(seed);
    let generator = Gen { flavour: Flavour::any(&mut rng), ..Gen::default() };
    let (mut txns, mut models) = (Vec::new(), vec![from.clone()]);
    while txns.len() < count {
        let mut txn = generator.txn(&mut rng, 0);
        let number = txns.len() as u64 + 1;
        txn.set_meta(&key(MARKER), bytes(&(seed << 32 | number).to_le_bytes()));
        let mut next = models.last().unwrap().clone();
        if next.apply(&txn).is_ok() {
            txns.push(txn);
            models.push(next);
        }
    }
    (txns, models)
}

#[test]
fn a_store_that_is_dropped_in_its_work_is_there_again() {
    on_each(|place| {
        let config = config();
        mkfs(place, &config);
        let mut allowed = vec![Model::new()];
        let mut rng = Rng::with_seed(1);
        let mut transactions = 0;
        for seed in 0..rounds(8) {
            // What it finds says which of the allowed states it is; the transactions go on from it.
            let look = live(place, mount(&config), &[], Some(0));
            let found = look.found.expect("it was read");
            assert!(allowed.contains(&found), "{}", {
                assert_same(&found, &allowed[0], "after a crash");
                ""
            });
            let (txns, models) = history(seed, &found, 60);
            let kill_after = if rng.bool() { Some(rng.usize(1..60)) } else { None };
            let life = live(place, mount(&config), &txns, kill_after);
            assert_eq!(life.found, Some(found));
            let Outcome { submitted, durable, .. } = life.out;
            assert!(kill_after.is_some() || durable == 60, "what closes in order has all");
            allowed = models[durable..=submitted].to_vec();
            transactions += submitted;
            if seed % 4 == 3 {
                assert_checked(place, &config);
            }
        }
        println!("{transactions} transactions in {} lives", rounds(8));
    });
}

/// Bytes that a file takes on its file system; a device says nothing.
fn taken(place: &Path) -> Option<u64> {
    let meta = std::fs::metadata(place).ok()?;
    meta.is_file().then(|| meta.blocks() * 512)
}

#[test]
fn discarded_space_goes_back() {
    on_each(|place| {
        let config = Config { discard: true, ..config() };
        mkfs(place, &config);
        let before = taken(place);
        let mut fill = Vec::new();
        for n in 0..32 {
            let mut txn = Transaction::new(0);
            txn.write(&key(n), 0, vec![n as u8 + 1; 2 << 20].into());
            fill.push(txn);
        }
        let mut empty = Transaction::new(0);
        for n in 0..31 {
            empty.remove(&key(n));
        }
        fill.push(empty);
        let life = live(place, mount(&config), &fill, None);
        assert!(life.out.discarded >= 60 << 20, "{}", life.out.discarded);
        if let (Some(before), Some(after)) = (before, taken(place)) {
            assert!(after + (50 << 20) < before, "{before} bytes before, {after} after");
        }
        // What is left is whole, and what was given back can be used again.
        fill.pop();
        let life = live(place, mount(&config), &fill, None);
        let found = life.found.expect("it was read");
        let left: Vec<_> = found.objects.keys().cloned().collect();
        assert_eq!(left, [key(31)]);
        assert!(found.objects[&key(31)].blocks.values().all(|b| b.iter().all(|x| *x == 32)));
        assert_checked(place, &config);
    });
}
