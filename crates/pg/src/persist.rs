//! How a PG is kept: as omap keys of one object of its own.
//!
//! | key | value |
//! |---|---|
//! | `i` | [`InfoRecord`] |
//! | `l` + version (u64 BE) | [`LogRecord`]; up to the tail it stands for its [`Dup`] |
//! | `d` + version (u64 BE) | [`Dup`], learned from another copy |
//! | `m` + object key | [`MissingItem`] |
//! | `r` + object key | nothing: the log has deleted the object, and it may still be there |
//! | `t` | Eversion: the log's tail, once it has been moved |
//! | `x` | `pg_num` of the pool (u32): the PG is being brought into this store. Nothing else here counts |
//!
//! A write stores only its log record: last update and sums are those of the newest record, so that
//! the info record need not be written with each write. Trimming the log moves its tail and removes
//! what is older than all dups, as one range: a record is written once and never rewritten.
//!
//! A copy that was away may have thousands of objects to delete when it takes over the log. They go in
//! transactions of a few, behind the one that brings the log: until each is gone its `r` row says so, and
//! after a crash [`load`] gives those that are left.
//!
//! `loligo store import` brings a PG with its objects one after the other. As long as `x` is there it has not ended, or
//! was broken off: some objects may be half there, and an OSD that starts removes all of them. It goes in the
//! transaction that brings `i`.
//!
//! After a split the records of what went to other PGs stay behind until the log is trimmed beyond
//! them: [`load`] passes over them, by the `pg_num` in the info record.

use crate::entry::LogEntry;
use crate::info::{ObjectSums, PgInfo};
use crate::intervals::PastIntervals;
use crate::log::{Dup, PgLog};
use crate::missing::{Missing, MissingItem};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{Epoch, Eversion, HObject, ObjectKey, PgId};

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
#[denc(v = 2, compat = 1)]
pub struct InfoRecord {
    /// The copy's state when this was written.
    pub info: PgInfo,
    /// Intervals since the PG was clean.
    pub past: PastIntervals,
    /// The newest map the copy has taken in.
    pub epoch: Epoch,
    /// PGs of the pool by that map; 0 in old records.
    #[denc(since = 2)]
    pub pg_num: u32,
}

/// A log entry with the state after it.
///
/// Version 2 holds the [`LogEntry`]'s body, bytes, objects, clones, whiteouts and objects with omap keys of the
/// sums (numbers with a sign in groups of seven bits), a byte whether they are a guess, and the newest
/// user-visible version (in groups of seven bits). In version 1 each was encoded as it is by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The entry.
    pub entry: LogEntry,
    /// Sums over the PG's objects after it.
    pub sums: ObjectSums,
    /// Newest user-visible version after it.
    pub last_user_version: u64,
}

const LOG_RECORD_VERSION: u8 = 2;

impl LogRecord {
    /// The record of an entry, encoded as it is, without a copy of it.
    pub fn encode_of(entry: &LogEntry, sums: &ObjectSums, last_user_version: u64) -> Bytes {
        struct Of<'a>(&'a LogEntry, &'a ObjectSums, u64);
        impl Encode for Of<'_> {
            fn encode(&self, e: &mut Encoder) {
                put_log_record(e, self.0, self.1, self.2);
            }
        }
        denc::encode_briefly(&Of(entry, sums, last_user_version))
    }
}

fn put_log_record(e: &mut Encoder, entry: &LogEntry, sums: &ObjectSums, last_user_version: u64) {
    e.section(LOG_RECORD_VERSION, LOG_RECORD_VERSION, |e| {
        entry.put_body(e);
        for n in [sums.bytes, sums.objects, sums.clones, sums.whiteouts, sums.omap_objects] {
            e.put_varint_signed(n);
        }
        e.put(&sums.approximate);
        e.put_varint(last_user_version);
    });
}

impl Encode for LogRecord {
    fn encode(&self, e: &mut Encoder) {
        put_log_record(e, &self.entry, &self.sums, self.last_user_version);
    }
}

impl Decode for LogRecord {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(LOG_RECORD_VERSION, |d, v| {
            if v < LOG_RECORD_VERSION {
                return Ok(LogRecord {
                    entry: d.get()?,
                    sums: d.get()?,
                    last_user_version: d.get()?,
                });
            }
            let entry = LogEntry::body(d)?;
            let sums = ObjectSums {
                bytes: d.varint_signed()?,
                objects: d.varint_signed()?,
                clones: d.varint_signed()?,
                whiteouts: d.varint_signed()?,
                omap_objects: d.varint_signed()?,
                approximate: d.get()?,
            };
            Ok(LogRecord { entry, sums, last_user_version: d.varint()? })
        })
    }
}

/// Key of the info record.
pub const INFO_KEY: &[u8] = b"i";
/// Key of the log's tail.
pub const TAIL_KEY: &[u8] = b"t";
/// Key of what says that the PG is being brought into this store.
pub const IMPORT_KEY: &[u8] = b"x";
const LOG: u8 = b'l';
const DUP: u8 = b'd';
const MISSING: u8 = b'm';
const DELETED: u8 = b'r';

fn versioned(prefix: u8, version: u64) -> Bytes {
    let mut key = [prefix; 9];
    key[1..].copy_from_slice(&version.to_be_bytes());
    denc::copy_briefly(&key)
}

/// Key of a log record.
pub fn log_key(v: Eversion) -> Bytes {
    versioned(LOG, v.version)
}

/// Key of a dup.
pub fn dup_key(v: Eversion) -> Bytes {
    versioned(DUP, v.version)
}

/// Removes the log records and dups up to and including a version number.
pub fn forget_up_to(version: u64) -> [MetaOp; 2] {
    let behind = version.saturating_add(1);
    let range = |p: u8| MetaOp::RemoveRange(versioned(p, 0), versioned(p, behind));
    [range(LOG), range(DUP)]
}

fn of_object(prefix: u8, object: &HObject) -> Bytes {
    let key = object.to_key();
    let mut out = Vec::with_capacity(1 + key.as_bytes().len());
    out.push(prefix);
    out.extend_from_slice(key.as_bytes());
    out.into()
}

/// Key of a missing object.
pub fn missing_key(object: &HObject) -> Bytes {
    of_object(MISSING, object)
}

/// Notes that an object is deleted, and may still be there.
pub fn put_deleted(object: &HObject) -> MetaOp {
    MetaOp::Put(of_object(DELETED, object), Bytes::new())
}

/// It is gone.
pub fn forget_deleted(object: &HObject) -> MetaOp {
    MetaOp::Remove(of_object(DELETED, object))
}

/// Whatever was noted of objects with these keys, another PG has it from now on.
pub fn forget_deleted_range(first: &ObjectKey, end: &ObjectKey) -> MetaOp {
    let row = |key: &ObjectKey| Bytes::from([&[DELETED], key.as_bytes()].concat());
    MetaOp::RemoveRange(row(first), row(end))
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

/// Removes every missing object.
pub fn remove_all_missing() -> MetaOp {
    MetaOp::RemoveRange(Bytes::from_static(&[MISSING]), Bytes::from_static(&[MISSING + 1]))
}

/// Puts a missing object.
pub fn put_missing(object: &HObject, item: &MissingItem) -> MetaOp {
    MetaOp::Put(missing_key(object), denc::encode(item))
}

/// Puts a dup.
pub fn put_dup(dup: &Dup) -> MetaOp {
    MetaOp::Put(dup_key(dup.version), denc::encode(dup))
}

/// What a row says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectRow {
    /// It was changed.
    Log(LogEntry),
    /// It is missing.
    Missing(HObject, MissingItem),
    /// It is deleted, and may still be there.
    Deleted(HObject),
}

impl ObjectRow {
    /// Which.
    pub fn object(&self) -> &HObject {
        match self {
            ObjectRow::Log(entry) => &entry.object,
            ObjectRow::Missing(object, _) | ObjectRow::Deleted(object) => object,
        }
    }
}

/// What a row says of an object, if it is about one and can be read.
pub fn object_row(key: &[u8], value: &Bytes) -> Option<ObjectRow> {
    let (kind, rest) = key.split_first()?;
    let named = || ObjectKey::from_bytes(rest).decode().ok();
    match *kind {
        LOG => Some(ObjectRow::Log(denc::decode::<LogRecord>(value).ok()?.entry)),
        MISSING => Some(ObjectRow::Missing(named()?, denc::decode(value).ok()?)),
        DELETED => Some(ObjectRow::Deleted(named()?)),
        _ => None,
    }
}

/// Notes that a PG is being brought into this store, in a pool of so many.
pub fn put_import(pg_num: u32) -> (Bytes, Bytes) {
    (Bytes::from_static(IMPORT_KEY), denc::encode(&pg_num))
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
    /// What is to be removed before anything else: the log has deleted it.
    pub deleted: Vec<HObject>,
}

/// Why a PG's own object does not make sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It has no info record.
    #[error("the PG has no info record")]
    NoInfo,
    /// It was being brought into this store, by which not all has come.
    #[error("the PG's import was broken off")]
    BrokenOff {
        /// PGs of its pool then: so that its objects are known.
        pg_num: u32,
    },
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

/// Whether objects of a hash belong to a PG, in a pool of so many PGs.
pub type Belongs = dyn Fn(PgId, u32, u32) -> bool;

/// Rebuilds a PG from the omap of its object, in key order. `belongs` is given the PG, `pg_num` and
/// an object's hash.
///
/// # Errors
/// When a record is absent or damaged.
pub fn load(pairs: &[(Bytes, Bytes)], belongs: &Belongs) -> Result<Loaded, LoadError> {
    let find = |wanted: &[u8]| pairs.iter().find(|(key, _)| key == wanted).map(|(_, v)| v);
    if let Some(import) = find(IMPORT_KEY) {
        return Err(LoadError::BrokenOff { pg_num: value(IMPORT_KEY, import)? });
    }
    let mut record: InfoRecord = value(INFO_KEY, find(INFO_KEY).ok_or(LoadError::NoInfo)?)?;
    let (pgid, pg_num) = (record.info.pgid, record.pg_num);
    let ours = |hash: u32| pg_num == 0 || belongs(pgid, pg_num, hash);
    let mut moved_tail: Option<Eversion> = None;
    let (mut entries, mut dups) = (Vec::new(), Vec::new());
    let (mut missing, mut deleted) = (Vec::new(), Vec::new());
    for (key, v) in pairs {
        let named =
            |object: &[u8]| ObjectKey::from_bytes(object).decode().map_err(|e| damaged(key, e));
        match key.split_first() {
            Some((&LOG, _)) => {
                let record = value::<LogRecord>(key, v)?;
                entries.extend(Some(record).filter(|r| ours(r.entry.object.hash)));
            }
            Some((&DUP, _)) => dups.push(value::<Dup>(key, v)?),
            Some((&MISSING, object)) => {
                let (object, item) = (named(object)?, value::<MissingItem>(key, v)?);
                missing.extend(Some((object, item)).filter(|(o, _)| ours(o.hash)));
            }
            Some((&DELETED, object)) => {
                deleted.extend(Some(named(object)?).filter(|o| ours(o.hash)));
            }
            _ if key == INFO_KEY => {}
            _ if key == TAIL_KEY => moved_tail = Some(value(key, v)?),
            _ => return Err(damaged(key, "is of no known kind")),
        }
    }
    let tail = moved_tail.unwrap_or(record.info.log_tail);
    if let Some(newest) = entries.last()
        && newest.entry.version > record.info.last_update
    {
        record.info.last_update = newest.entry.version;
        record.info.last_user_version = newest.last_user_version;
        record.info.sums = newest.sums;
    }
    let (trimmed, list): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|r| r.entry).partition(|e| e.version <= tail);
    dups.retain(|d| d.version <= tail);
    let dups = all_dups(&trimmed, dups);
    let mut log = PgLog::from_parts(tail, list, dups).map_err(|e| damaged(&[LOG], e))?;
    log.raise_head(record.info.last_update);
    record.info.log_tail = log.tail();
    Ok(Loaded { record, log, missing: missing.into_iter().collect(), deleted })
}

/// Dups from trimmed entries and those that another copy told, oldest first.
fn all_dups(trimmed: &[LogEntry], learned: Vec<Dup>) -> Vec<Dup> {
    let mut all: BTreeMap<Eversion, Dup> = learned.into_iter().map(|d| (d.version, d)).collect();
    all.extend(trimmed.iter().filter(|e| e.has_reqid()).map(|e| (e.version, e.to_dup())));
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::DUPS_TRACKED;
    use types::ReqId;

    fn entry(n: u64) -> LogEntry {
        // Every seventh is a write of the OSD's own: no request to be remembered.
        let reqid = if n.is_multiple_of(7) {
            ReqId::default()
        } else {
            ReqId { tid: n, inc: 1, ..ReqId::default() }
        };
        LogEntry { reqid, ..LogEntry::of(HObject::min(), Eversion::new(Epoch(3), n)) }
    }

    fn apply(rows: &mut BTreeMap<Bytes, Bytes>, op: MetaOp) {
        match op {
            MetaOp::Put(k, v) => drop(rows.insert(k, v)),
            MetaOp::Remove(k) => drop(rows.remove(&k)),
            MetaOp::RemoveRange(from, to) => rows.retain(|k, _| *k < from || *k >= to),
        }
    }

    fn rows_of_one_pg() -> BTreeMap<Bytes, Bytes> {
        let info = InfoRecord {
            info: PgInfo::absent(types::PgId::new(types::PoolId(1), 0)),
            past: PastIntervals::default(),
            epoch: Epoch(3),
            pg_num: 1,
        };
        BTreeMap::from([(Bytes::from_static(INFO_KEY), denc::encode(&info))])
    }

    #[test]
    fn a_record_is_encoded_as_one_that_is_made() {
        let record =
            LogRecord { entry: entry(7), sums: ObjectSums::default(), last_user_version: 5 };
        let encoded = LogRecord::encode_of(&record.entry, &record.sums, record.last_user_version);
        assert_eq!(encoded, denc::encode(&record));
    }

    /// Records stand on disks, those of version 1 too.
    #[test]
    fn records_of_both_versions_are_read() {
        let sums = ObjectSums {
            bytes: 1 << 40,
            objects: -1,
            clones: 64,
            whiteouts: 2,
            omap_objects: 3,
            approximate: true,
        };
        let record = LogRecord { entry: entry(8), sums, last_user_version: 300 };
        let bytes = denc::encode(&record);
        // 2^41 in groups of seven bits, then 1, 128, 4, 6, the guess, and 300.
        let behind_entry = [128, 128, 128, 128, 128, 64, 1, 128, 1, 4, 6, 1, 172, 2];
        assert!(bytes.ends_with(&behind_entry) && bytes[..2] == [2, 2]);
        assert_eq!(denc::decode_all::<LogRecord>(&bytes).unwrap(), record);
        let mut e = Encoder::new();
        e.section(1, 1, |e| {
            e.put(&record.entry).put(&record.sums).put(&record.last_user_version);
        });
        assert_eq!(denc::decode_all::<LogRecord>(&e.into_bytes()).unwrap(), record);
    }

    /// They are removed before anything relies on it.
    #[test]
    fn what_is_still_to_be_deleted_is_loaded() {
        let object = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let mut rows = rows_of_one_pg();
        for name in ["a", "b"] {
            apply(&mut rows, put_deleted(&object(name)));
        }
        apply(&mut rows, forget_deleted(&object("a")));
        let pairs: Vec<_> = rows.into_iter().collect();
        let loaded = load(&pairs, &|_, _, _| true).expect("it is whole");
        assert_eq!(loaded.deleted, [object("b")]);
    }

    /// Written ahead for a merge, or left behind by a split: another PG has noted them.
    #[test]
    fn what_another_pg_has_to_delete_is_not_loaded() {
        let object = |hash: u32| HObject { hash, name: "a".into(), ..HObject::min() };
        let mut rows = rows_of_one_pg();
        for hash in 0..4 {
            apply(&mut rows, put_deleted(&object(hash)));
        }
        let pairs: Vec<_> = rows.clone().into_iter().collect();
        let loaded = load(&pairs, &|_, _, hash| hash < 2).expect("it is whole");
        assert_eq!(loaded.deleted, [object(0), object(1)]);
        // In the order of their keys, which is that of reversed hashes, 1 and 3 are the second half.
        let (first, end) = (object(1).to_key(), object(u32::MAX).to_key());
        apply(&mut rows, forget_deleted_range(&first, &end));
        let pairs: Vec<_> = rows.into_iter().collect();
        let loaded = load(&pairs, &|_, _, _| true).expect("it is whole");
        assert_eq!(loaded.deleted, [object(0), object(2)]);
    }

    /// Whatever else is there.
    #[test]
    fn a_pg_whose_import_has_not_ended_is_none() {
        let mut rows = rows_of_one_pg();
        rows.extend([put_import(32)]);
        let pairs: Vec<_> = rows.into_iter().collect();
        let loaded = load(&pairs, &|_, _, _| true);
        assert_eq!(loaded.map(|_| ()), Err(LoadError::BrokenOff { pg_num: 32 }));
    }

    #[test]
    fn a_trimmed_log_is_loaded_as_it_was() {
        let mut rows = rows_of_one_pg();
        let mut log = PgLog::default();
        let newest = DUPS_TRACKED * 2;
        for n in 1..=newest {
            log.append(entry(n));
            let sums = ObjectSums { objects: n as i64, ..ObjectSums::default() };
            let record = LogRecord { entry: entry(n), sums, last_user_version: n };
            apply(&mut rows, MetaOp::Put(log_key(entry(n).version), denc::encode(&record)));
            if n.is_multiple_of(64) {
                let forgotten = log.trim(Eversion::new(Epoch(3), n - 20));
                apply(&mut rows, put_tail(log.tail()));
                forget_up_to(forgotten).into_iter().for_each(|op| apply(&mut rows, op));
            }
        }
        let pairs: Vec<_> = rows.into_iter().collect();
        let loaded = load(&pairs, &|_, _, _| true).expect("it is whole");
        assert!(loaded.log.entries().eq(log.entries()) && loaded.log.dups().eq(log.dups()));
        assert_eq!((loaded.log.tail(), loaded.log.head()), (log.tail(), log.head()));
        assert_eq!(loaded.record.info.last_update.version, newest);
        assert_eq!(loaded.record.info.sums.objects, newest as i64);
        let known = |n: u64| loaded.log.find_request(&entry(n).reqid).is_some();
        let oldest = log.tail().version - DUPS_TRACKED;
        assert!(known(newest) && known(log.tail().version) && known(oldest + 2));
        assert!(!known(oldest) && !known(oldest - 1));
        assert!(pairs.len() as u64 <= DUPS_TRACKED + 64 + 20 + 3, "what is forgotten is removed");
    }
}
