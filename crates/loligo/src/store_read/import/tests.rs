//! Imports that end, break off, or are refused, into stores on real files.

use super::*;
use crate::cli::{StoreExport, StorePath};
use crate::store_read::format::Writer;
use crate::store_read::{Job, export, list, read};
use crate::store_tool::{MIN_DISK_BYTES, NewStore, mkfs};
use store::{Algorithm, Compress, OmapRange};
use types::{Epoch, HObject, OsdId, PoolId, SnapId, Uuid};

const CLUSTER: Uuid = Uuid([3; 16]);
const WHOLE: &[u8] = b"the record of an object that is whole";

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    /// An empty store.
    fn new() -> Case {
        Case::of(CLUSTER)
    }

    /// The same, of this cluster.
    fn of(cluster: Uuid) -> Case {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        let new = NewStore {
            path: &case.path("block"),
            wal: None,
            cluster,
            osd: OsdId(0),
            bytes: Some(MIN_DISK_BYTES),
            force: false,
        };
        mkfs(&new).unwrap();
        case
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn place(&self) -> StorePath {
        StorePath { path: self.path("block"), wal: None, json: false }
    }

    /// An export of a PG with one object of so many bytes.
    fn file(&self, seed: u32, pg_num: u32, bytes: u64) -> std::path::PathBuf {
        let data = Bytes::from(vec![7; 1 << 20]);
        let offsets = (0..bytes).step_by(data.len());
        let data = offsets.map(|offset| Section::Data { offset, data: data.clone() });
        let begin = Section::Object { size: bytes, key: object(seed), meta: WHOLE.into() };
        self.file_of(seed, pg_num, std::iter::once(begin).chain(data))
    }

    /// An export of a PG with one object.
    fn file_of(
        &self,
        seed: u32,
        pg_num: u32,
        object: impl IntoIterator<Item = Section>,
    ) -> std::path::PathBuf {
        let pgid = PgId::new(PoolId(1), seed);
        let path = self.path("export");
        let mut out = Writer::new(File::create(&path).unwrap());
        let mut put = |section| out.put(&section).unwrap();
        let store = Uuid([4; 16]);
        put(Section::Begin(Begin { pg_num, cluster: CLUSTER, store, osd: OsdId(7), pgid }));
        object.into_iter().for_each(&mut put);
        put(Section::ObjectEnd { whole: true });
        put(Section::Object { size: 0, key: meta_object(pgid), meta: Bytes::new() });
        let (info, past) = (pg::PgInfo::absent(pgid), Default::default());
        let info = pg::InfoRecord { info, past, epoch: Epoch(3), pg_num };
        put(Section::Omap { key: info_key(), value: denc::encode(&info) });
        put(Section::ObjectEnd { whole: true });
        put(Section::End { whole: 2, damaged: 0, is_incomplete: false });
        out.flush().unwrap();
        path
    }

    fn import(&self, file: std::path::PathBuf, force: bool) -> Result<Exit, Failure> {
        run(&StoreImport { place: self.place(), file, force, accept_incomplete: false })
    }

    fn export(&self, seed: u32) -> Result<Exit, Failure> {
        self.export_of(seed, 1)
    }

    fn export_of(&self, seed: u32, pg_num: u32) -> Result<Exit, Failure> {
        let (pgid, file) = (PgId::new(PoolId(1), seed), self.path("again"));
        export::run(&StoreExport { place: self.place(), pgid, file, pg_num: Some(pg_num) })
    }

    /// The store changes in another way.
    fn change(&self, change: Transaction) {
        let disks = Disks::open(&self.path("block"), None, Open::Existing).unwrap();
        let config = Config::for_memory(64 << 20);
        let mount = Mount::new(disks.devices.clone(), Expect::default(), config);
        let mut tool = Tool { mount, store: None, change };
        let exit = uring::run(&mut tool, disks.open, None, &uring::Options::default()).unwrap();
        assert_eq!(exit.code, 0);
    }

    /// What a check finds.
    fn findings(&self) -> Vec<store::Finding> {
        list::objects(&self.place(), |_| false).unwrap().1.findings
    }

    fn read<J: Job>(&self, job: J) -> J::Outcome {
        read(&self.place(), job).unwrap().outcome
    }

    /// The record of an object in the store.
    fn record(&self, key: &ObjectKey) -> Option<Bytes> {
        self.read(RecordOf(key.clone()))
    }
}

/// Changes a store.
struct Tool {
    mount: Mount,
    store: Option<Store>,
    change: Transaction,
}

impl Core for Tool {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match (event, &mut self.store) {
            (Event::Start, _) => self.mount.start(fx),
            (Event::Disk(done), Some(store)) => _ = store.handle(now, done, fx),
            (Event::Disk(done), None) => {
                if let Some(store) = self.mount.handle(done, fx) {
                    let mut store = store.unwrap();
                    store.submit(now, &self.change, &ReadSet::new()).unwrap();
                    store.unmount();
                    self.store = Some(store);
                }
            }
            _ => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let Some(store) = &mut self.store else { return };
        store.end_turn(now, fx);
        while let Some(event) = store.poll_event() {
            if let StoreEvent::Unmounted = event {
                fx.exit(0, "done");
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.store.as_ref()?.next_deadline()
    }
}

/// Reads all omap entries of an object.
struct RowsOf(ObjectKey);

impl Job for RowsOf {
    type Outcome = Vec<(Bytes, Bytes)>;

    fn step(&mut self, store: &Store, _: &ReadSet) -> Result<Option<Self::Outcome>, store::Miss> {
        let (max_entries, max_bytes) = (usize::MAX, usize::MAX);
        let all = OmapRange { max_entries, max_bytes, ..OmapRange::default() };
        let page = store.omap_list(&self.0, &all)?.unwrap_or_default();
        Ok(Some(page.entries))
    }

    fn failed(&mut self, why: &store::StoreError) -> Option<Self::Outcome> {
        panic!("{why}")
    }
}

/// Reads an object's record.
struct RecordOf(ObjectKey);

impl Job for RecordOf {
    type Outcome = Option<Bytes>;

    fn step(&mut self, store: &Store, _: &ReadSet) -> Result<Option<Self::Outcome>, store::Miss> {
        Ok(Some(store.stat(&self.0)?.map(|stat| stat.meta)))
    }

    fn failed(&mut self, why: &store::StoreError) -> Option<Self::Outcome> {
        panic!("{why}")
    }
}

/// The record of a clone that serves one snapshot.
fn record_of_clone(snap: u64) -> Bytes {
    let mut record = record_of_half().to_vec();
    record[6] |= 64;
    record.extend(1u32.to_le_bytes());
    record.extend(snap.to_le_bytes());
    let len = record.len() as u32 - 6;
    record[2..6].copy_from_slice(&len.to_le_bytes());
    record.into()
}

fn object(hash: u32) -> ObjectKey {
    HObject { pool: PoolId(1), name: "big".into(), hash, ..HObject::min() }.to_key()
}

/// There is no space for all of it: what is half there has another version than the whole one, and the PG is marked.
#[test]
fn an_import_that_breaks_off_leaves_no_pg_and_no_object_that_seems_whole() {
    let case = Case::new();
    let failure = case.import(case.file(0, 1, 2 * MIN_DISK_BYTES), false).unwrap_err();
    assert!(failure.why.contains("no space"), "{failure}");
    assert_eq!(failure.exit, Exit::Machine);
    assert!(failure.advice.as_ref().is_some_and(|advice| advice.contains("--force")), "{failure}");
    assert_eq!(case.record(&object(0)), Some(record_of_half()));
    let failure = case.export(0).unwrap_err();
    assert!(failure.why.contains("broken off"), "{failure}");
    assert!(!case.path("again").exists() && !case.path("again.unfinished").exists());

    let file = case.file(0, 1, 3 << 20);
    assert_eq!(case.import(file.clone(), false).unwrap_err().exit, Exit::Refused);
    assert_eq!(case.import(file, true).unwrap(), Exit::Done);
    assert_eq!(case.record(&object(0)), Some(WHOLE.into()));
    assert_eq!(case.export(0).unwrap(), Exit::Done);
    let failure = case.export(0).unwrap_err();
    assert!(failure.advice.is_some_and(|advice| advice.contains("--file")));
}

#[test]
fn a_store_that_is_anothers_or_damaged_is_refused() {
    let case = Case::of(Uuid([5; 16]));
    let failure = case.import(case.file(0, 1, 4096), false).unwrap_err();
    assert_eq!(failure.exit, Exit::Refused);
    assert!(failure.why.contains("belongs to cluster"), "{failure}");
    // It is found out later.
    let damage = StoreError::BadMetadata { block: 7, what: "its checksum" };
    assert_eq!(Broken::from(damage).exit, Exit::Refused);
    let error = io::disk::DiskError::Os(5);
    assert_eq!(Broken::from(StoreError::Io { object: None, block: 7, error }).exit, Exit::Failed);
}

/// The OSD stopped before it divided the PG that it has: that one has the objects of both.
#[test]
fn a_pg_whose_objects_another_one_holds_is_refused() {
    let case = Case::new();
    assert_eq!(case.import(case.file(0, 32, 4096), false).unwrap(), Exit::Done);
    let failure = case.import(case.file(32, 64, 4096), true).unwrap_err();
    assert_eq!(failure.exit, Exit::Refused);
    assert!(failure.why.contains("when this OSD last had PG 1.0"), "{failure}");
    assert_eq!(case.import(case.file(33, 64, 4096), false).unwrap(), Exit::Done);
    assert_eq!(case.record(&object(0)), Some(WHOLE.into()));
}

/// Trimming finds a clone by its rows only. Where several PGs share an index, it comes with none of them.
#[test]
fn clones_come_into_an_index_that_several_pgs_share_and_go_from_it() {
    let case = Case::new();
    let clone = HObject { snap: SnapId(5), ..object(3).decode().unwrap() }.to_key();
    let begin = Section::Object { size: 0, key: clone.clone(), meta: record_of_clone(4) };
    let mut index = meta_object(PgId::new(PoolId(1), 3)).decode().unwrap();
    index.name = "snapindex/1/03".into();
    let rows = || case.read(RowsOf(index.to_key()));
    assert_eq!(case.import(case.file_of(3, 512, [begin]), false).unwrap(), Exit::Done);
    let row = [&4u64.to_be_bytes(), clone.as_bytes()].concat();
    assert_eq!(rows(), [(row.into(), Bytes::new())]);
    assert_eq!(case.import(case.file(3, 512, 0), true).unwrap(), Exit::Done);
    assert_eq!(rows(), []);
}

/// Each of its rows was small, and all together more than the log of the smallest store takes at once.
#[test]
fn what_an_object_has_is_divided_by_what_the_log_takes() {
    let case = Case::new();
    let entries = (0..5000u32).map(|n| (n.to_be_bytes().to_vec().into(), vec![1; 1024].into()));
    let entries: Vec<(Bytes, Bytes)> = entries.collect();
    let begin = Section::Object { size: 0, key: object(0), meta: WHOLE.into() };
    let rows = entries.iter().cloned().map(|(key, value)| Section::Omap { key, value });
    let file = case.file_of(0, 1, std::iter::once(begin).chain(rows));
    assert_eq!(case.import(file, false).unwrap(), Exit::Done);
    assert_eq!(case.read(RowsOf(object(0))), entries);
}

/// What compression did is counted by pool: what is removed goes from the pool's count.
#[test]
fn compressed_objects_that_an_import_removes_are_counted_off_their_pool() {
    let case = Case::new();
    let mut txn = transaction(PgId::new(PoolId(1), 0));
    txn.compress = Some(Compress {
        algorithm: Algorithm::Zstd,
        required_per_mille: 875,
        min_blob_bytes: 8 << 10,
        max_blob_bytes: 64 << 10,
    });
    txn.write(&object(0), 0, vec![7; 1 << 20].into());
    case.change(txn);
    assert_eq!(case.findings(), []);
    assert_eq!(case.import(case.file(0, 1, 0), true).unwrap(), Exit::Done);
    assert_eq!(case.findings(), []);
}

/// What is damaged in another PG takes nothing from this one, and nobody has to accept that it may.
#[test]
fn an_export_is_incomplete_only_if_objects_of_the_pg_may_be_missing() {
    let case = Case::new();
    assert_eq!(case.import(case.file(0, 32, 4096), false).unwrap(), Exit::Done);
    let begin = Section::Object { size: 0, key: object(1), meta: WHOLE.into() };
    let rows = (0..3000u32).map(|n| Section::Omap {
        key: n.to_be_bytes().to_vec().into(),
        value: vec![0xa5; 1024].into(),
    });
    let file = case.file_of(1, 32, std::iter::once(begin).chain(rows));
    assert_eq!(case.import(file, false).unwrap(), Exit::Done);
    // A node of the tree behind the log that has such rows, and nothing else.
    let mut store = std::fs::read(case.path("block")).unwrap();
    let of_tree = |at: &usize| store[*at..*at + 512].iter().all(|byte| *byte == 0xa5);
    let found: Vec<usize> = (17 << 20..store.len() - 512).step_by(64).filter(of_tree).collect();
    store[found[found.len() / 2]] ^= 1;
    std::fs::write(case.path("block"), store).unwrap();
    assert!(case.findings().iter().any(|f| f.severity == store::Severity::Damage));
    assert_eq!(case.export_of(0, 32).unwrap(), Exit::Damaged);
    assert!(!check(&case.path("again")).unwrap().is_incomplete);
}
