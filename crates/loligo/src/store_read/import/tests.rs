//! Imports that end, break off, or are refused, into stores on real files.

use super::*;
use crate::cli::{StoreExport, StorePath};
use crate::store_read::format::Writer;
use crate::store_read::{Job, export};
use crate::store_tool::{MIN_DISK_BYTES, NewStore, mkfs};
use types::{Epoch, HObject, OsdId, PoolId, Uuid};

const CLUSTER: Uuid = Uuid([3; 16]);
const WHOLE: &[u8] = b"the record of an object that is whole";

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    /// An empty store.
    fn new() -> Case {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        let new = NewStore {
            path: &case.path("block"),
            wal: None,
            cluster: CLUSTER,
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
        let pgid = PgId::new(PoolId(1), seed);
        let path = self.path("export");
        let mut out = Writer::new(File::create(&path).unwrap());
        let mut put = |section| out.put(&section).unwrap();
        let store = Uuid([4; 16]);
        put(Section::Begin(Begin { pg_num, cluster: CLUSTER, store, osd: OsdId(7), pgid }));
        put(Section::Object { size: bytes, key: object(seed), meta: WHOLE.into() });
        let data = Bytes::from(vec![7; 1 << 20]);
        for offset in (0..bytes).step_by(data.len()) {
            put(Section::Data { offset, data: data.clone() });
        }
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
        let (pgid, file) = (PgId::new(PoolId(1), seed), self.path("again"));
        export::run(&StoreExport { place: self.place(), pgid, file, pg_num: Some(1) })
    }

    /// The record of an object in the store.
    fn record(&self, key: &ObjectKey) -> Option<Bytes> {
        read(&self.place(), RecordOf(key.clone())).unwrap().outcome
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

fn object(hash: u32) -> ObjectKey {
    HObject { pool: PoolId(1), name: "big".into(), hash, ..HObject::min() }.to_key()
}

/// There is no space for all of it: what is half there has another version than the whole one, and the PG is marked.
#[test]
fn an_import_that_breaks_off_leaves_no_pg_and_no_object_that_seems_whole() {
    let case = Case::new();
    let failure = case.import(case.file(0, 1, 2 * MIN_DISK_BYTES), false).unwrap_err();
    assert!(failure.why.contains("no space"), "{failure}");
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
