//! The embedded cluster store: one redb file, for one mon.
//!
//! Commits are durable when they return (redb writes with `fsync`). The file is locked by redb, so
//! that a second mon on the same file is refused.

use bytes::Bytes;
use io::kv::{ClusterStore, KvAnswer, KvBatch, KvDone, KvError, KvOp, KvSpace, KvToken, KvVersion};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const VERSION: &str = "version";

/// Memory for cached pages.
const CACHE_BYTES: usize = 16 << 20;

/// A cluster store in a file.
pub struct Embedded {
    db: Database,
    path: PathBuf,
    version: KvVersion,
    done: VecDeque<KvDone>,
}

/// Why the file cannot be used.
#[derive(Debug)]
pub struct OpenError {
    path: String,
    what: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster store {}: {}", self.path, self.what)
    }
}

impl std::error::Error for OpenError {}

impl Embedded {
    /// Opens the file, or makes it if there is none.
    ///
    /// # Errors
    /// When it cannot be opened or made, is damaged, or another process has it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |what: String| OpenError { path: path.display().to_string(), what };
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|e| {
            fail(match e {
                DatabaseError::DatabaseAlreadyOpen => {
                    "in use by another process; is a mon already running on it?".into()
                }
                e => e.to_string(),
            })
        })?;
        let version = Self::prepare(&db).map_err(|e| fail(e.to_string()))?;
        Ok(Embedded { db, path: path.to_owned(), version, done: VecDeque::new() })
    }

    /// Makes the tables if need be, and reads the version.
    fn prepare(db: &Database) -> Result<KvVersion, redb::Error> {
        let txn = db.begin_write()?;
        txn.open_table(PAIRS)?;
        let version = txn.open_table(META)?.get(VERSION)?.map_or(0, |v| v.value());
        txn.commit()?;
        Ok(KvVersion(version))
    }

    fn carry_out(&mut self, op: KvOp) -> Result<KvAnswer, redb::Error> {
        match op {
            KvOp::Scan { from, to, max } => self.scan(&from, &to, max),
            KvOp::Get { key } => {
                let table = self.db.begin_read()?.open_table(PAIRS)?;
                let value = table.get(&*key)?.map(|v| Bytes::copy_from_slice(v.value()));
                Ok(KvAnswer::Value(value))
            }
            KvOp::Space => Ok(KvAnswer::Space(self.space())),
            KvOp::Commit { from, .. } if from != self.version => {
                Ok(KvAnswer::Conflict(self.version))
            }
            KvOp::Commit { batch, .. } => {
                let next = KvVersion(self.version.0 + 1);
                self.commit(&batch, next)?;
                self.version = next;
                Ok(KvAnswer::Committed(next))
            }
        }
    }

    /// That it cannot be found out is no reason to fail.
    fn space(&self) -> Option<KvSpace> {
        let store_bytes = std::fs::metadata(&self.path).ok()?.len();
        let disk = rustix::fs::statvfs(&self.path).ok()?;
        Some(KvSpace {
            store_bytes,
            disk_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            available_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        })
    }

    fn scan(&self, from: &[u8], to: &[u8], max: usize) -> Result<KvAnswer, redb::Error> {
        let mut pairs = Vec::new();
        if from < to {
            let table = self.db.begin_read()?.open_table(PAIRS)?;
            for pair in table.range::<&[u8]>(from..to)?.take(max) {
                let (k, v) = pair?;
                let copy = |b: &[u8]| Bytes::copy_from_slice(b);
                pairs.push((copy(k.value()), copy(v.value())));
            }
        }
        Ok(KvAnswer::Pairs(pairs, self.version))
    }

    fn commit(&self, batch: &KvBatch, version: KvVersion) -> Result<(), redb::Error> {
        let txn = self.db.begin_write()?;
        {
            let mut table = txn.open_table(PAIRS)?;
            for (key, value) in &batch.changes {
                match value {
                    Some(value) => table.insert(&**key, &**value)?,
                    None => table.remove(&**key)?,
                };
            }
            txn.open_table(META)?.insert(VERSION, version.0)?;
        }
        txn.commit()?;
        Ok(())
    }
}

impl ClusterStore for Embedded {
    fn submit(&mut self, token: KvToken, op: KvOp) {
        let result = self.carry_out(op).map_err(|e| KvError(e.to_string()));
        self.done.push_back(KvDone { token, result });
    }

    fn poll(&mut self) -> Option<KvDone> {
        self.done.pop_front()
    }
}
