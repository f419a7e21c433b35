//! One write, as the log has it, and how it is encoded.
//!
//! There is an entry in each write's log record and in the messages of peering, so that what most entries do not
//! have takes no bytes. The body of version 4 (after it more may follow, as in a [`LogRecord`](crate::LogRecord)):
//!
//! | bytes | content |
//! |---|---|
//! | 1 | kind |
//! | 1 | what else there is: the flags below |
//! | s, 4 | object: pool, hash |
//! | v, .. | object: length of its name, the name |
//! | v, .. | `NSPACE`: length of the namespace, the namespace |
//! | v, .. | `LOCATOR`: length of the locator key, the key |
//! | v | `CLONE`: the clone's id; else it is a head |
//! | v, v | version: epoch, number |
//! | v, v | `PRIOR`: version before: epoch, number |
//! | 1, s, v, s | `REQUEST`: kind and number of who asked, transaction id, incarnation |
//! | v | user version |
//! | 8 | time of the write |
//! | 4, 4, .. | `RESULT`: result, how many results of ops, these |
//! | v, v | `CHANGED`: offset, length |
//! | v, v | `LOST`: given up after this version: epoch, number |
//!
//! `v` is a number in groups of seven bits ([`Encoder::put_varint`]), `s` one with a sign
//! ([`Encoder::put_varint_signed`]). Up to version 3 all fields stood one after the other in their full length;
//! these are still read.

use crate::log::Dup;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{
    ByteString, EntityName, EntityType, Epoch, Eversion, HObject, PoolId, ReqId, SnapId, UTime,
};

/// Result and output of one op of a compound request, kept for requests with RETURNVEC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OpReturn {
    /// The op's result.
    pub rval: i32,
    /// The op's output.
    pub outdata: Bytes,
}

impl OpReturn {
    pub(crate) fn weight(&self) -> usize {
        size_of::<OpReturn>() + self.outdata.len()
    }
}

/// What an entry did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// Created or changed it.
    Modify = 1,
    /// Made this clone of its head.
    Clone = 2,
    /// Removed it.
    Delete = 3,
    /// Changed nothing: a request failed, and a resend must fail the same way.
    Error = 4,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// What it did.
    pub kind: EntryKind,
    /// To what.
    pub object: HObject,
    /// The object's version from now on, and the entry's place in the log.
    pub version: Eversion,
    /// The object's version before; zero when it was not there.
    pub prior_version: Eversion,
    /// The request that caused it. A request of several entries stands in its last one; the others
    /// hold the default.
    pub reqid: ReqId,
    /// User-visible version of the object.
    pub user_version: u64,
    /// The client's time of the write.
    pub mtime: UTime,
    /// Result the client got.
    pub result: i32,
    /// Results of its ops, when the client asked for them.
    pub op_returns: Vec<OpReturn>,
    /// Offset and length of what it put, where it did no more to the object, but to set attributes and
    /// the record: who has the version before needs no more than these. Length 0: it put nothing. `None`:
    /// anything may be different.
    pub changed: Option<(u32, u32)>,
    /// The object was given up: what was done to it after this version is lost, and requests that did it
    /// are done anew when they are sent again. Zero: all of it.
    pub lost_after: Option<Eversion>,
}

impl LogEntry {
    /// Whether the object exists after this entry.
    pub fn leaves_object(&self) -> bool {
        matches!(self.kind, EntryKind::Modify | EntryKind::Clone)
    }

    /// Whether it touched an object at all.
    pub fn changes_object(&self) -> bool {
        self.kind != EntryKind::Error
    }

    pub(crate) fn has_reqid(&self) -> bool {
        self.reqid != ReqId::default()
    }

    /// Bytes that its record takes, about, and not more.
    pub(crate) fn weight(&self) -> usize {
        let (o, rest) = (&self.object, 128);
        let names = o.name.len() + o.nspace.len() + o.key.len();
        names + rest + self.op_returns.iter().map(OpReturn::weight).sum::<usize>()
    }

    pub(crate) fn to_dup(&self) -> Dup {
        Dup {
            reqid: self.reqid,
            version: self.version,
            user_version: self.user_version,
            result: self.result,
            op_returns: self.op_returns.clone(),
            hash: Some(self.object.hash),
        }
    }
}

const VERSION: u8 = 4;

const NSPACE: u8 = 1;
const LOCATOR: u8 = 2;
const CLONE: u8 = 4;
const PRIOR: u8 = 8;
const REQUEST: u8 = 16;
const RESULT: u8 = 32;
const CHANGED: u8 = 64;
const LOST: u8 = 128;

impl EntryKind {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            1 => Ok(EntryKind::Modify),
            2 => Ok(EntryKind::Clone),
            3 => Ok(EntryKind::Delete),
            4 => Ok(EntryKind::Error),
            _ => Err(d.invalid("an unknown kind of log entry")),
        }
    }
}

fn put_version(e: &mut Encoder, version: Eversion) {
    e.put_varint(version.epoch.0.into());
    e.put_varint(version.version);
}

fn version(d: &mut Decoder<'_>) -> Result<Eversion, DecodeError> {
    Ok(Eversion { epoch: Epoch(d.varint_u32()?), version: d.varint()? })
}

fn put_name(e: &mut Encoder, name: &[u8]) {
    e.put_varint(name.len() as u64);
    e.put_raw(name);
}

fn name(d: &mut Decoder<'_>) -> Result<ByteString, DecodeError> {
    let len = d.varint_u32()?;
    Ok(d.take_slice(len as usize)?.into())
}

impl LogEntry {
    /// What is not as it is with most entries, or not there.
    fn flags(&self) -> u8 {
        denc::flags_of([
            (NSPACE, !self.object.nspace.is_empty()),
            (LOCATOR, !self.object.key.is_empty()),
            (CLONE, !self.object.is_head()),
            (PRIOR, self.prior_version != Eversion::ZERO),
            (REQUEST, self.has_reqid()),
            (RESULT, self.result != 0 || !self.op_returns.is_empty()),
            (CHANGED, self.changed.is_some()),
            (LOST, self.lost_after.is_some()),
        ])
    }

    /// Appends the body, without the head of a section.
    pub(crate) fn put_body(&self, e: &mut Encoder) {
        let object = &self.object;
        assert!(!object.max, "a log has no entry of what is behind all objects");
        let flags = self.flags();
        let has = |flag| flags & flag != 0;
        e.put_raw(&[self.kind as u8, flags]);
        e.put_varint_signed(object.pool.0);
        e.put(&object.hash);
        put_name(e, &object.name);
        if has(NSPACE) {
            put_name(e, &object.nspace);
        }
        if has(LOCATOR) {
            put_name(e, &object.key);
        }
        if has(CLONE) {
            e.put_varint(object.snap.0);
        }
        put_version(e, self.version);
        if has(PRIOR) {
            put_version(e, self.prior_version);
        }
        if has(REQUEST) {
            e.put(&self.reqid.name.kind);
            e.put_varint_signed(self.reqid.name.num);
            e.put_varint(self.reqid.tid);
            e.put_varint_signed(self.reqid.inc.into());
        }
        e.put_varint(self.user_version);
        e.put(&self.mtime);
        if has(RESULT) {
            e.put(&self.result).put(&self.op_returns);
        }
        if let Some((offset, len)) = self.changed {
            e.put_varint(offset.into());
            e.put_varint(len.into());
        }
        if let Some(to) = self.lost_after {
            put_version(e, to);
        }
    }

    /// Reads what [`LogEntry::put_body`] appended.
    pub(crate) fn body(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let kind = EntryKind::decode(d)?;
        let flags: u8 = d.get()?;
        let has = |flag| flags & flag != 0;
        let pool = PoolId(d.varint_signed()?);
        let hash = d.get()?;
        let object = HObject {
            pool,
            hash,
            name: name(d)?,
            nspace: if has(NSPACE) { name(d)? } else { ByteString::default() },
            key: if has(LOCATOR) { name(d)? } else { ByteString::default() },
            snap: if has(CLONE) { SnapId(d.varint()?) } else { SnapId::HEAD },
            max: false,
        };
        let mut entry = LogEntry {
            kind,
            object,
            version: version(d)?,
            prior_version: if has(PRIOR) { version(d)? } else { Eversion::ZERO },
            reqid: if has(REQUEST) { request(d)? } else { ReqId::default() },
            user_version: d.varint()?,
            mtime: d.get()?,
            result: 0,
            op_returns: Vec::new(),
            changed: None,
            lost_after: None,
        };
        if has(RESULT) {
            entry.result = d.get()?;
            entry.op_returns = d.get()?;
        }
        if has(CHANGED) {
            entry.changed = Some((d.varint_u32()?, d.varint_u32()?));
        }
        if has(LOST) {
            entry.lost_after = Some(version(d)?);
        }
        Ok(entry)
    }

    /// A body of version 1, 2 (with `lost_after`) or 3 (with `changed`).
    fn body_of_full_length(d: &mut Decoder<'_>, v: u8) -> Result<Self, DecodeError> {
        let mut entry = LogEntry {
            kind: EntryKind::decode(d)?,
            object: d.get()?,
            version: d.get()?,
            prior_version: d.get()?,
            reqid: d.get()?,
            user_version: d.get()?,
            mtime: d.get()?,
            result: d.get()?,
            op_returns: d.get()?,
            changed: None,
            lost_after: None,
        };
        if entry.object.max {
            return Err(d.invalid("a log entry of what is behind all objects"));
        }
        match v {
            0 | 1 => {}
            2 => entry.lost_after = Some(d.get()?),
            _ => entry.changed = Some((d.get()?, d.get()?)),
        }
        Ok(entry)
    }
}

fn request(d: &mut Decoder<'_>) -> Result<ReqId, DecodeError> {
    let name = EntityName { kind: EntityType(d.get()?), num: d.varint_signed()? };
    let tid = d.varint()?;
    let inc = i32::try_from(d.varint_signed()?).map_err(|_| d.invalid("a number is too large"))?;
    Ok(ReqId { name, inc, tid })
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.section(VERSION, VERSION, |e| self.put_body(e));
    }
}

impl Decode for LogEntry {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(VERSION, |d, v| match v {
            VERSION => Self::body(d),
            _ => Self::body_of_full_length(d, v),
        })
    }
}

impl LogEntry {
    /// A change of an object that was not there, by nobody's request.
    pub fn of(object: HObject, version: Eversion) -> Self {
        LogEntry {
            kind: EntryKind::Modify,
            object,
            version,
            prior_version: Eversion::ZERO,
            reqid: ReqId::default(),
            user_version: version.version,
            mtime: UTime::ZERO,
            result: 0,
            op_returns: Vec::new(),
            changed: None,
            lost_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(version: u64) -> Eversion {
        Eversion::new(Epoch(300), version)
    }

    /// The write of a block of an image.
    fn plain() -> LogEntry {
        let (pool, name) = (PoolId(2), "rbd_data.10".into());
        LogEntry {
            kind: EntryKind::Modify,
            object: HObject { pool, hash: 7, name, snap: SnapId::HEAD, ..HObject::min() },
            version: at(70_000),
            prior_version: at(69_999),
            reqid: ReqId { name: EntityName::client(types::ClientId(4123)), inc: 0, tid: 200 },
            user_version: 70_000,
            mtime: UTime { sec: 1_700_000_000, nsec: 5 },
            result: 0,
            op_returns: Vec::new(),
            changed: Some((4096, 10)),
            lost_after: None,
        }
    }

    fn full() -> LogEntry {
        let object = HObject {
            pool: PoolId(i64::MIN),
            hash: u32::MAX,
            nspace: "n".into(),
            key: "k".into(),
            name: ByteString::default(),
            snap: SnapId(3),
            max: false,
        };
        LogEntry {
            kind: EntryKind::Error,
            object,
            version: Eversion::MAX,
            reqid: ReqId { inc: i32::MIN, ..plain().reqid },
            result: -5,
            op_returns: vec![OpReturn { rval: -1, outdata: Bytes::from_static(b"out") }],
            changed: Some((u32::MAX, 0)),
            lost_after: Some(at(1)),
            ..plain()
        }
    }

    #[test]
    fn what_is_stored_is_read() {
        let first = LogEntry {
            prior_version: Eversion::ZERO,
            reqid: ReqId::default(),
            changed: None,
            ..plain()
        };
        let of = |object: HObject| LogEntry { object, ..first.clone() };
        let object = first.object.clone();
        let some = [
            first.clone(),
            plain(),
            full(),
            of(HObject { nspace: "n".into(), ..object.clone() }),
            of(HObject { key: "k".into(), ..object.clone() }),
            of(HObject { snap: SnapId(4), ..object }),
            of(HObject::min()),
            LogEntry { kind: EntryKind::Clone, ..first.clone() },
            LogEntry { kind: EntryKind::Delete, prior_version: at(3), ..first.clone() },
            LogEntry { reqid: plain().reqid, ..first.clone() },
            LogEntry { result: 1, ..first.clone() },
            LogEntry { op_returns: full().op_returns, ..first.clone() },
            LogEntry { changed: Some((0, 0)), ..first.clone() },
            LogEntry { lost_after: Some(Eversion::ZERO), ..first },
        ];
        for entry in some {
            assert_eq!(denc::decode_all::<LogEntry>(&denc::encode(&entry)).unwrap(), entry);
        }
    }

    /// Entries stand on disks.
    #[test]
    fn bytes_stay_what_they_are() {
        let expected: &[&[u8]] = &[
            &[4, 4, 49, 0, 0, 0],
            &[1, PRIOR | REQUEST | CHANGED],
            &[4, 7, 0, 0, 0, 11],
            b"rbd_data.10",
            &[0xac, 2, 0xf0, 0xa2, 4, 0xac, 2, 0xef, 0xa2, 4],
            &[8, 0xb6, 0x40, 0xc8, 1, 0],
            &[0xf0, 0xa2, 4],
            &[0, 0xf1, 0x53, 0x65, 5, 0, 0, 0],
            &[0x80, 0x20, 10],
        ];
        assert_eq!(denc::encode(&plain())[..], expected.concat());
    }

    /// As entries were stored at first: the last field by the version.
    #[test]
    fn entries_of_full_length_are_read() {
        let before = |v: u8, entry: &LogEntry| {
            let mut e = Encoder::new();
            e.section(v, 1, |e| {
                e.put(&(entry.kind as u8)).put(&entry.object).put(&entry.version);
                e.put(&entry.prior_version).put(&entry.reqid).put(&entry.user_version);
                e.put(&entry.mtime).put(&entry.result).put(&entry.op_returns);
                match v {
                    1 => {}
                    2 => drop(e.put(&at(1))),
                    _ => drop(e.put(&u32::MAX).put(&0u32)),
                }
            });
            denc::decode_all::<LogEntry>(&e.into_bytes())
        };
        let full = full();
        let of = |changed, lost_after| LogEntry { changed, lost_after, ..full.clone() };
        assert_eq!(before(1, &full).unwrap(), of(None, None));
        assert_eq!(before(2, &full).unwrap(), of(None, full.lost_after));
        assert_eq!(before(3, &full).unwrap(), of(full.changed, None));
        let behind_all = LogEntry { object: HObject::max(), ..full.clone() };
        assert!(before(1, &behind_all).is_err());
    }

    proptest! {
        #[test]
        fn damaged_entries_never_panic(damage in proptest::collection::vec((0usize..120, any::<u8>()), 1..8), cut in 0usize..120) {
            let mut bytes = denc::encode(&full()).to_vec();
            bytes.truncate(cut);
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Ok(entry) = denc::decode::<LogEntry>(&bytes.into()) {
                prop_assert_eq!(denc::decode_all::<LogEntry>(&denc::encode(&entry)).unwrap(), entry);
            }
        }
    }
}
