//! The embedded cluster store: one redb file, for one mon.
//!
//! Commits are durable when they return (redb writes with `fsync`). The file is locked by redb, so
//! that a second mon on the same file is refused.

use bytes::Bytes;
use io::kv::{ClusterStore, KvAnswer, KvBatch, KvDone, KvError, KvOp, KvSpace, KvToken, KvVersion};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
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

/// Why the file cannot be used, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Another process has it.
    InUse,
    /// It is damaged, no cluster store, or one in a format of another time.
    Damaged,
    /// There is no space for what is to be written.
    NoSpace,
    /// The sentence says why.
    Other,
}

/// Why the file cannot be used.
#[derive(Debug)]
pub struct OpenError {
    path: String,
    what: String,
    /// The kind of hindrance.
    pub kind: Unusable,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster store {}: {}", self.path, self.what)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    fn new(path: &Path, e: &redb::Error) -> Self {
        let kind = Unusable::by(e);
        let what = match kind {
            Unusable::InUse => "in use by another process; is a mon already running on it?".into(),
            _ => e.to_string(),
        };
        OpenError { path: path.display().to_string(), what, kind }
    }
}

impl Unusable {
    fn by(e: &redb::Error) -> Self {
        match e {
            redb::Error::DatabaseAlreadyOpen => Unusable::InUse,
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_) => Unusable::Damaged,
            redb::Error::Io(e) => match e.kind() {
                // What it says of a file that is another kind of one, or shorter than it was.
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof => Unusable::Damaged,
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Unusable::NoSpace,
                _ => Unusable::Other,
            },
            _ => Unusable::Other,
        }
    }
}

impl Embedded {
    /// Opens the file, or makes it if there is none.
    ///
    /// # Errors
    /// When it cannot be opened or made, is damaged, or another process has it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let is_new = matches!(path.try_exists(), Ok(false));
        let opened = Self::open_or_make(path).map_err(|e| OpenError::new(path, &e));
        if is_new && opened.as_ref().is_err_and(|e| e.kind == Unusable::NoSpace) {
            // Half made, it would be taken for a damaged one when there is room again.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn open_or_make(path: &Path) -> Result<Self, redb::Error> {
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
        let version = Self::prepare(&db)?;
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
        let failed = |e: redb::Error| {
            let is_full = Unusable::by(&e) == Unusable::NoSpace;
            KvError { why: e.to_string(), is_full }
        };
        let result = self.carry_out(op).map_err(failed);
        self.done.push_back(KvDone { token, result });
    }

    fn poll(&mut self) -> Option<KvDone> {
        self.done.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hinders_is_told_by_its_kind() {
        let io = |kind: ErrorKind| Unusable::by(&redb::Error::Io(kind.into()));
        assert_eq!(io(ErrorKind::StorageFull), Unusable::NoSpace);
        assert_eq!(io(ErrorKind::QuotaExceeded), Unusable::NoSpace);
        assert_eq!(io(ErrorKind::PermissionDenied), Unusable::Other);
        assert_eq!(io(ErrorKind::InvalidData), Unusable::Damaged);
        assert_eq!(Unusable::by(&redb::Error::Corrupted("x".into())), Unusable::Damaged);
    }
}
