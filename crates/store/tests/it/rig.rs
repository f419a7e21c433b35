//! A store on a simulated disk, driven the way a runner drives it.

use crate::disk::Disk;
use crate::r#gen::account_of;
use bytes::Bytes;
use io::{BLOCK_BYTES, Effects, Now};
use std::collections::{BTreeMap, BTreeSet};
use store::model::{Model, ModelObject};
use store::{
    AccountOf, Config, Expect, Fsck, FsckReport, Identity, Miss, Mkfs, MkfsError, Mount,
    MountError, ObjectStat, OmapRange, ReadSet, Store, StoreError, StoreEvent, SubmitError,
    Transaction, TxnId,
};
use types::{Mono, ObjectKey, OsdId, Uuid};

pub const CLUSTER: Uuid = Uuid([7; 16]);
pub const OSD: OsdId = OsdId(3);

pub fn identity() -> Identity {
    Identity { cluster: CLUSTER, osd: OSD, store: Uuid([9; 16]) }
}

/// Small figures, so that everything happens often.
pub fn tiny_config() -> Config {
    Config {
        page_cache_bytes: 64 << 10,
        shard_cache_bytes: 64 << 10,
        outline_bytes: 16 << 10,
        wal_cache_bytes: 128 << 10,
        memtable_bytes: 128 << 10,
        wal_bytes: 512 << 10,
        small_write_bytes: 16 << 10,
        // What is in flight together can be lost in more ways.
        wal_gather_blocks: 0,
        account_of: Some(AccountOf(account_of)),
        ..Config::for_memory(1 << 20)
    }
}

/// Rows of extents are hardly ever in memory; their outlines are.
pub fn outline_config() -> Config {
    Config {
        page_cache_bytes: 0,
        shard_cache_bytes: 0,
        outline_bytes: 64 << 10,
        memtable_bytes: 8 << 10,
        ..tiny_config()
    }
}

/// What came of trying to submit.
#[derive(Debug)]
pub enum Taken {
    Yes(TxnId),
    NoSpace,
    Invalid(store::Invalid),
    /// The store died while it waited.
    Dead,
}

pub struct Rig {
    pub disk: Disk,
    pub store: Store,
    pub now: Now,
    pub fx: Effects,
    pub durable: BTreeSet<TxnId>,
    pub fetched: BTreeMap<u64, Result<ReadSet, StoreError>>,
    pub fatal: Option<String>,
    pub unmounted: bool,
    pub bad_blocks: Vec<(ObjectKey, u64)>,
    /// Times that waiting writers were told to try again.
    pub writable: u64,
    /// The transaction that was taken last.
    pub last_taken: Option<TxnId>,
    next_waiter: u64,
}

pub fn mkfs(disk: &mut Disk, config: &Config, force: bool) -> Result<Identity, MkfsError> {
    mkfs_of(disk, identity(), config, force)
}

/// Makes a store of another identity.
pub fn mkfs_of(
    disk: &mut Disk,
    identity: Identity,
    config: &Config,
    force: bool,
) -> Result<Identity, MkfsError> {
    let mut fx = Effects::new();
    let mut mkfs = Mkfs::new(disk.devices(), identity, config, force)?;
    mkfs.start(&mut fx);
    loop {
        for (token, op) in fx.disk.drain(..) {
            disk.submit(token, op);
        }
        let done = disk.complete().expect("mkfs waits for nothing");
        if let Some(outcome) = mkfs.handle(done, &mut fx) {
            while disk.complete().is_some() {}
            return outcome;
        }
    }
}

pub fn mount(disk: &mut Disk, config: &Config, expect: Expect) -> Result<Store, MountError> {
    mount_until(disk, config, expect, u64::MAX).expect("the mount is not cut short")
}

/// Mounts, but gives up after so many completions.
pub fn mount_until(
    disk: &mut Disk,
    config: &Config,
    expect: Expect,
    steps: u64,
) -> Option<Result<Store, MountError>> {
    carry_out(disk, &mut Mount::new(disk.devices(), expect, config.clone()), steps)
}

/// Mounts; tells what it warns of too.
pub fn open_with_warnings(mut disk: Disk, config: &Config) -> (Rig, Vec<String>) {
    let mut mount = Mount::new(disk.devices(), Expect::default(), config.clone());
    let store = carry_out(&mut disk, &mut mount, u64::MAX).expect("it is not cut short").unwrap();
    (Rig::with(disk, store), mount.warnings().to_vec())
}

fn carry_out(disk: &mut Disk, mount: &mut Mount, steps: u64) -> Option<Result<Store, MountError>> {
    let mut fx = Effects::new();
    mount.start(&mut fx);
    for _ in 0..steps {
        for (token, op) in fx.disk.drain(..) {
            disk.submit(token, op);
        }
        let done = disk.complete().expect("a mount waits for nothing but the disk");
        if let Some(outcome) = mount.handle(done, &mut fx) {
            while disk.complete().is_some() {}
            return Some(outcome);
        }
    }
    None
}

/// Checks the whole store.
pub fn fsck(disk: &mut Disk, config: &Config) -> FsckReport {
    let mut fsck = Fsck::new(disk.devices(), true, config);
    run_fsck(disk, &mut fsck, |_| {})
}

/// The same with memory for so many objects.
pub fn fsck_in_parts(disk: &mut Disk, config: &Config, objects: usize) -> FsckReport {
    let mut fsck = Fsck::new(disk.devices(), true, config).objects_at_a_time(objects);
    run_fsck(disk, &mut fsck, |_| {})
}

/// Carries out a check; it is looked at after each step.
pub fn run_fsck(disk: &mut Disk, fsck: &mut Fsck, mut look: impl FnMut(&Fsck)) -> FsckReport {
    let mut fx = Effects::new();
    if let Some(report) = fsck.start(&mut fx) {
        return report;
    }
    let written = disk.writes;
    loop {
        for (token, op) in fx.disk.drain(..) {
            disk.submit(token, op);
        }
        let done = disk.complete().expect("a check waits for nothing but the disk");
        let outcome = fsck.handle(done, &mut fx);
        look(fsck);
        if let Some(report) = outcome {
            assert!(disk.complete().is_none() && disk.writes == written);
            return report;
        }
    }
}

/// Checks that nothing is wrong, and that the figures are those of the store.
pub fn assert_clean(disk: &mut Disk, config: &Config, what: &str) -> FsckReport {
    let report = fsck(disk, config);
    for finding in report.findings.iter().take(10) {
        println!("{finding}");
    }
    assert!(report.is_good(), "{what}: a check found something");
    report
}

impl Rig {
    pub fn new(seed: u64, sizes: &[u64], config: &Config) -> Rig {
        let mut disk = Disk::new(seed, sizes);
        mkfs(&mut disk, config, false).unwrap();
        Rig::open(disk, config).unwrap()
    }

    pub fn open(mut disk: Disk, config: &Config) -> Result<Rig, MountError> {
        let store = mount(&mut disk, config, Expect::default())?;
        Ok(Rig::with(disk, store))
    }

    pub fn with(disk: Disk, store: Store) -> Rig {
        Rig {
            disk,
            store,
            now: Now { mono: Mono(1_000_000_000), ..Now::default() },
            fx: Effects::new(),
            durable: BTreeSet::new(),
            fetched: BTreeMap::new(),
            fatal: None,
            unmounted: false,
            bad_blocks: Vec::new(),
            writable: 0,
            last_taken: None,
            next_waiter: 0,
        }
    }

    pub fn events(&mut self) {
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Durable { txns } => self.durable.extend(txns),
                StoreEvent::Fetched { waiter, result } => drop(self.fetched.insert(waiter, result)),
                StoreEvent::Writable => self.writable += 1,
                StoreEvent::BadBlock { object, offset } => self.bad_blocks.push((object, offset)),
                StoreEvent::Unmounted => self.unmounted = true,
                StoreEvent::Fatal(why) => self.fatal = Some(why.to_string()),
            }
        }
    }

    /// Ends the turn and hands its effects to the disk.
    pub fn end_turn(&mut self) {
        self.store.end_turn(self.now, &mut self.fx);
        self.issue();
        self.events();
        self.store.check_accounting();
    }

    fn issue(&mut self) {
        for (token, op) in self.fx.disk.drain(..) {
            self.disk.submit(token, op);
        }
    }

    /// Completes one operation, if one is in flight.
    pub fn complete_one(&mut self) -> bool {
        let Some(done) = self.disk.complete() else { return false };
        assert!(self.store.handle(self.now, done, &mut self.fx));
        self.events();
        true
    }

    /// Completes the oldest write that the disk holds.
    pub fn complete_held(&mut self) -> bool {
        let Some(done) = self.disk.complete_held() else { return false };
        assert!(self.store.handle(self.now, done, &mut self.fx));
        self.events();
        true
    }

    /// One turn: some completions, and its end. False when there is nothing to do.
    pub fn turn(&mut self) -> bool {
        self.issue();
        let n = self.disk.rng.usize(1..4);
        let any = (0..n).filter(|_| self.complete_one()).count() > 0;
        let due = self.store.next_deadline().is_some_and(|at| at <= self.now.mono);
        self.now.mono.0 += 10_000;
        if any || due {
            self.end_turn();
        }
        any || due
    }

    /// Goes on until nothing is in flight and nothing is due.
    pub fn settle(&mut self) {
        self.end_turn();
        let mut turns = 0;
        while self.turn() {
            turns += 1;
            assert!(turns < 1_000_000, "the store never comes to rest");
        }
    }

    /// Lets time pass, so that everything lazy happens.
    pub fn sleep(&mut self) {
        for _ in 0..4 {
            self.settle();
            self.now.mono.0 += 60_000_000_000;
        }
        self.settle();
    }

    pub fn fetch(&mut self, miss: Miss) -> Option<Result<ReadSet, StoreError>> {
        self.next_waiter += 1;
        let waiter = self.next_waiter;
        self.store.fetch(self.now, miss, waiter, &mut self.fx);
        self.events();
        let mut idle = 0;
        loop {
            if let Some(result) = self.fetched.remove(&waiter) {
                return Some(result);
            }
            if self.fatal.is_some() {
                return None;
            }
            idle = if self.turn() { 0 } else { idle + 1 };
            assert!(idle < 3, "a fetch never ends");
        }
    }

    /// Runs a read until it has all it needs.
    pub fn run<T>(
        &mut self,
        f: impl Fn(&Store, &ReadSet) -> Result<T, Miss>,
    ) -> Result<T, StoreError> {
        let mut set = ReadSet::new();
        for _ in 0..1000 {
            match f(&self.store, &set) {
                Ok(value) => return Ok(value),
                Err(miss) => match self.fetch(miss) {
                    Some(result) => set.merge(result?),
                    None => panic!("the store died: {:?}", self.fatal),
                },
            }
        }
        panic!("a read never gets all it needs");
    }

    /// Submits until it is taken or refused for good.
    pub fn submit(&mut self, txn: &Transaction) -> Taken {
        let mut set = ReadSet::new();
        let mut busy = 0;
        loop {
            match self.store.submit(self.now, txn, &set) {
                Ok(id) => {
                    self.last_taken = Some(id);
                    return Taken::Yes(id);
                }
                Err(SubmitError::NoSpace) => return Taken::NoSpace,
                Err(SubmitError::Invalid(why)) => return Taken::Invalid(why),
                Err(SubmitError::Miss(miss)) => match self.fetch(miss) {
                    Some(Ok(more)) => set.merge(more),
                    Some(Err(why)) => panic!("a submit could not read: {why}"),
                    None => return Taken::Dead,
                },
                Err(SubmitError::Busy) => {
                    if self.fatal.is_some() {
                        return Taken::Dead;
                    }
                    busy += 1;
                    self.end_turn();
                    assert!(self.turn() || busy < 10, "the store is busy with nothing");
                    assert!(busy < 100_000, "the store is busy for ever");
                }
            }
        }
    }

    /// Submits what must be taken.
    pub fn must(&mut self, txn: &Transaction) -> TxnId {
        match self.submit(txn) {
            Taken::Yes(id) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Submits and waits until it is durable.
    pub fn commit(&mut self, txn: &Transaction) -> TxnId {
        let id = self.must(txn);
        self.end_turn();
        while !self.durable.contains(&id) {
            assert!(self.turn(), "a transaction never gets durable");
        }
        id
    }

    /// Closes the store in order; gives back the disk.
    pub fn unmount(mut self) -> Disk {
        self.store.unmount();
        self.end_turn();
        while !self.unmounted {
            assert!(self.fatal.is_none(), "{:?}", self.fatal);
            assert!(self.turn(), "the store never closes");
        }
        self.store.check_accounting();
        assert!(self.disk.is_idle());
        self.disk
    }

    pub fn read(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        let pieces = self.run(|s, rs| s.read(key, offset, len, rs))?;
        let mut out = Vec::new();
        let mut at = offset;
        for piece in pieces {
            assert_eq!(piece.offset, at, "pieces have no gaps");
            at += piece.len;
            match piece.data {
                Some(data) => {
                    assert_eq!(data.len() as u64, piece.len);
                    out.extend_from_slice(&data);
                }
                None => out.resize(out.len() + piece.len as usize, 0),
            }
        }
        Ok(out)
    }

    pub fn list(&mut self) -> Result<Vec<(ObjectKey, ObjectStat)>, StoreError> {
        let mut all: Vec<(ObjectKey, ObjectStat)> = Vec::new();
        let end = ObjectKey::from_bytes(&[0xff; 20]);
        loop {
            let from = match all.last() {
                Some((key, _)) => ObjectKey::from_bytes(&[key.as_bytes(), &[0]].concat()),
                None => ObjectKey::from_bytes(b""),
            };
            let page = self.run(|s, _| s.list(&from, &end, 7))?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// One object as the model keeps it.
    pub fn object(&mut self, key: &ObjectKey) -> Result<Option<ModelObject>, StoreError> {
        let Some(stat) = self.run(|s, _| s.stat(key))? else { return Ok(None) };
        let mut o = ModelObject { size: stat.size, meta: stat.meta, ..ModelObject::default() };
        let block = BLOCK_BYTES as u64;
        for (offset, len) in self.run(|s, _| s.extents(key, 0, u64::MAX))? {
            let mut data = self.read(key, offset, len)?;
            assert_eq!(data.len() as u64, len);
            data.resize(data.len().next_multiple_of(BLOCK_BYTES), 0);
            for (i, bytes) in data.chunks(BLOCK_BYTES).enumerate() {
                o.blocks.insert(offset / block + i as u64, bytes.to_vec());
            }
        }
        o.attrs = self.run(|s, _| s.attrs(key))?.unwrap().into_iter().collect();
        o.header = self.run(|s, _| s.omap_header(key))?.unwrap();
        let mut range = OmapRange { max_entries: 5, max_bytes: 100_000, ..OmapRange::default() };
        loop {
            let page = self.run(|s, _| s.omap_list(key, &range))?.unwrap();
            o.omap.extend(page.entries.iter().cloned());
            match page.entries.last() {
                Some((last, _)) if page.more => (range.from, range.after) = (last.clone(), true),
                _ => return Ok(Some(o)),
            }
        }
    }

    /// Everything the store holds.
    pub fn dump(&mut self) -> Result<Model, StoreError> {
        let mut model = Model::new();
        for (key, stat) in self.list()? {
            let object = self.object(&key)?.unwrap();
            assert_eq!(object.size, stat.size);
            if let Some((before, other)) = model.objects.last_key_value() {
                for (offset, len) in self.run(|s, _| s.alike(before, &key))? {
                    assert!(
                        other.read(offset, len) == object.read(offset, len),
                        "{before:?}, {key:?}"
                    );
                }
            }
            model.objects.insert(key, object);
        }
        Ok(model)
    }
}

pub fn key(n: u64) -> ObjectKey {
    ObjectKey::from_bytes(format!("obj{n:03}").as_bytes())
}

pub fn bytes(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(data)
}

/// Shows where two models differ.
pub fn assert_same(got: &Model, want: &Model, what: &str) {
    if got == want {
        return;
    }
    let keys: BTreeSet<_> = got.objects.keys().chain(want.objects.keys()).collect();
    for key in keys {
        let (g, w) = (got.objects.get(key), want.objects.get(key));
        if g == w {
            continue;
        }
        let (Some(g), Some(w)) = (g, w) else {
            panic!("{what}: {key:?}: got {:?}, want {:?}", g.is_some(), w.is_some());
        };
        assert_eq!((g.size, &g.meta), (w.size, &w.meta), "{what}: {key:?}");
        assert_eq!(g.attrs, w.attrs, "{what}: attributes of {key:?}");
        assert_eq!((&g.header, &g.omap), (&w.header, &w.omap), "{what}: omap of {key:?}");
        assert_eq!(
            g.blocks.keys().collect::<Vec<_>>(),
            w.blocks.keys().collect::<Vec<_>>(),
            "{what}: extents of {key:?}"
        );
        for (b, data) in &g.blocks {
            assert!(
                *data == w.blocks[b],
                "{what}: block {b} of {key:?} differs: got {:?}, want {:?}",
                &data[..8],
                &w.blocks[b][..8]
            );
        }
    }
    panic!("{what}: the models differ");
}
