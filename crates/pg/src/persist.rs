//! How a PG is kept: as omap keys of one object of its own.
//!
//! | key | value |
//! |---|---|
//! | `i` | [`InfoRecord`] |
//! | `l` + version (u64 BE) | [`LogRecord`] |
//! | `d` + version (u64 BE) | [`Dup`] |
//! | `m` + object key | [`MissingItem`] |
//! | `t` | Eversion: the log's tail, once it has been moved |
//!
//! A write stores only its log record: last update and sums are those of the newest record, so that
//! the info record need not be written with each write.

use crate::info::{ObjectSums, PgInfo};
use crate::intervals::PastIntervals;
use crate::log::{Dup, LogEntry, PgLog};
use crate::missing::{Missing, MissingItem};
use bytes::Bytes;
use denc::{Decode, Encode};
use types::{Epoch, Eversion, HObject, ObjectKey};

/// One change of a PG's own object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaOp {
    /// Set a key.
    Put(Bytes, Bytes),
    /// Remove a key.
    Remove(Bytes),
    /// Remove all keys from the first (inclusive) to the second (exclusive).
    RemoveRange(Bytes, Bytes),
}

/// Everything about a copy that changes with intervals rather than with writes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct InfoRecord {
    /// The copy's state when this was written.
    pub info: PgInfo,
    /// Intervals since the PG was clean.
    pub past: PastIntervals,
    /// The newest map the copy has taken in.
    pub epoch: Epoch,
}

/// A log entry with the state after it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LogRecord {
    /// The entry.
    pub entry: LogEntry,
    /// Sums over the PG's objects after it.
    pub sums: ObjectSums,
    /// Newest user-visible version after it.
    pub last_user_version: u64,
}

/// Key of the info record.
pub const INFO_KEY: &[u8] = b"i";
/// Key of the log's tail.
pub const TAIL_KEY: &[u8] = b"t";
const LOG: u8 = b'l';
const DUP: u8 = b'd';
const MISSING: u8 = b'm';

fn versioned(prefix: u8, v: Eversion) -> Bytes {
    let mut key = [prefix; 9];
    key[1..].copy_from_slice(&v.version.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

/// Key of a log record.
pub fn log_key(v: Eversion) -> Bytes {
    versioned(LOG, v)
}

/// Key of a dup.
pub fn dup_key(v: Eversion) -> Bytes {
    versioned(DUP, v)
}

/// Key of a missing object.
pub fn missing_key(object: &HObject) -> Bytes {
    let key = object.to_key();
    let mut out = Vec::with_capacity(1 + key.as_bytes().len());
    out.push(MISSING);
    out.extend_from_slice(key.as_bytes());
    out.into()
}

/// Puts the log's tail.
pub fn put_tail(tail: Eversion) -> MetaOp {
    MetaOp::Put(Bytes::from_static(TAIL_KEY), denc::encode(&tail))
}

/// Removes every log record, dup and missing object.
pub fn remove_all_log() -> [MetaOp; 3] {
    let range =
        |p: u8| MetaOp::RemoveRange(Bytes::copy_from_slice(&[p]), Bytes::copy_from_slice(&[p + 1]));
    [range(LOG), range(DUP), range(MISSING)]
}

/// Puts a missing object.
pub fn put_missing(object: &HObject, item: &MissingItem) -> MetaOp {
    MetaOp::Put(missing_key(object), denc::encode(item))
}

/// Puts a dup.
pub fn put_dup(dup: &Dup) -> MetaOp {
    MetaOp::Put(dup_key(dup.version), denc::encode(dup))
}

/// What was loaded of a PG.
#[derive(Debug)]
pub struct Loaded {
    /// The info record with last update and sums brought up to the newest log record.
    pub record: InfoRecord,
    /// The log.
    pub log: PgLog,
    /// The missing objects.
    pub missing: Missing,
}

/// Why a PG's own object does not make sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It has no info record.
    #[error("the PG has no info record")]
    NoInfo,
    /// A value cannot be decoded.
    #[error("the PG's record {key:02x?} {why}")]
    Damaged {
        /// The key.
        key: Vec<u8>,
        /// What is wrong.
        why: String,
    },
}

fn damaged(key: &[u8], why: impl ToString) -> LoadError {
    LoadError::Damaged { key: key.to_vec(), why: why.to_string() }
}

fn value<T: Decode>(key: &[u8], v: &Bytes) -> Result<T, LoadError> {
    denc::decode(v).map_err(|e| damaged(key, e))
}

/// Rebuilds a PG from the omap of its object, in key order.
///
/// # Errors
/// When a record is absent or damaged.
pub fn load(pairs: &[(Bytes, Bytes)]) -> Result<Loaded, LoadError> {
    let mut record: Option<InfoRecord> = None;
    let mut moved_tail: Option<Eversion> = None;
    let (mut entries, mut dups, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (key, v) in pairs {
        match key.split_first() {
            Some((&LOG, _)) => entries.push(value::<LogRecord>(key, v)?),
            Some((&DUP, _)) => dups.push(value::<Dup>(key, v)?),
            Some((&MISSING, object)) => {
                let object = ObjectKey::from_bytes(object).decode().map_err(|e| damaged(key, e))?;
                missing.push((object, value::<MissingItem>(key, v)?));
            }
            _ if key == INFO_KEY => record = Some(value(key, v)?),
            _ if key == TAIL_KEY => moved_tail = Some(value(key, v)?),
            _ => return Err(damaged(key, "is of no known kind")),
        }
    }
    let mut record = record.ok_or(LoadError::NoInfo)?;
    if let Some(newest) = entries.last() {
        record.info.last_update = newest.entry.version;
        record.info.last_user_version = newest.last_user_version;
        record.info.sums = newest.sums;
    }
    let tail = moved_tail.unwrap_or(record.info.log_tail);
    let list = entries.into_iter().map(|r| r.entry).collect();
    let log = PgLog::from_parts(tail, list, dups).map_err(|e| damaged(&[LOG], e))?;
    record.info.log_tail = log.tail();
    Ok(Loaded { record, log, missing: missing.into_iter().collect() })
}
