//! Input and output of operations that have an encoding of their own (guide §5.6, §5.10, §5.11).
//!
//! Named after the operation, with `In` for its input and `Out` for its output. Plain bytes (READ's
//! output, WRITE's input) need no type.

use super::op::OsdOp;
use super::snaps::{ObjectLocator, name};
use super::{Pieces, op};
use bytes::Bytes;
use denc::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};
use types::{ByteString, EntityAddr, EntityName, HObject, SnapId, UTime};

/// Output of STAT: `u64 size, utime mtime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StatOut {
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub mtime: UTime,
}

/// Output of MAPEXT, and the first part of SPARSE_READ's: `map<u64 offset, u64 length>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Extents {
    /// Offset to length, bytes.
    pub map: BTreeMap<u64, u64>,
}

/// Output of SPARSE_READ: `map<u64, u64>, bl data`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SparseReadOut {
    /// Where the data belongs.
    pub extents: Extents,
    /// The bytes of all extents, one after the other.
    pub data: Bytes,
}

impl SparseReadOut {
    /// The output for data in pieces, which are not copied.
    ///
    /// # Panics
    /// When the data has 4 GiB or more.
    pub fn pieces(extents: &Extents, data: impl IntoIterator<Item = Bytes>) -> Pieces {
        let mut out = Pieces::new();
        out.push(Bytes::new());
        out.extend(data);
        let len = out.iter().map(Bytes::len).sum();
        let mut e = Encoder::new();
        e.put(extents);
        e.put_count(len);
        if let Some(first) = out.first_mut() {
            *first = e.into_bytes();
        }
        out
    }
}

/// Name and value of an xattr operation's input; the value is empty for GETXATTR and RMXATTR.
///
/// # Errors
/// When the input is shorter than the arguments say.
pub fn xattr_in(op: &OsdOp) -> Result<(ByteString, Bytes), DecodeError> {
    let args = op.args.xattr();
    let mut d = Decoder::new(&op.indata);
    let name = d.take_slice(args.name_len as usize)?.into();
    Ok((name, d.take(args.value_len as usize)?))
}

/// The input of SETXATTR and CMPXATTR, and with an empty value of GETXATTR and RMXATTR.
pub fn xattr_op(code: op::OpCode, name: &[u8], value: &[u8], cmp_op: u8, cmp_mode: u8) -> OsdOp {
    let args =
        op::Xattr { name_len: name.len() as u32, value_len: value.len() as u32, cmp_op, cmp_mode };
    OsdOp::new(code, args).with_indata([name, value].concat())
}

/// Input of CALL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIn {
    /// The object class.
    pub class: String,
    /// Its method.
    pub method: String,
    /// The method's input.
    pub input: Bytes,
}

impl CallIn {
    /// From an operation.
    ///
    /// # Errors
    /// When the input is shorter than the arguments say, or a name is not UTF-8.
    pub fn of(op: &OsdOp) -> Result<Self, DecodeError> {
        let args = op.args.call();
        let mut d = Decoder::new(&op.indata);
        let class = text(&mut d, args.class_len.into())?;
        let method = text(&mut d, args.method_len.into())?;
        let input = d.take(args.input_len as usize)?;
        Ok(CallIn { class, method, input })
    }

    /// The operation.
    ///
    /// # Panics
    /// When a name is longer than 255 bytes.
    pub fn into_op(self) -> OsdOp {
        let short = |s: &str| u8::try_from(s.len()).expect("names of classes are short");
        let args = op::Call {
            class_len: short(&self.class),
            method_len: short(&self.method),
            argc: 0,
            input_len: self.input.len() as u32,
        };
        let parts = [self.class.as_bytes(), self.method.as_bytes(), &self.input];
        OsdOp::new(op::OpCode::CALL, args).with_indata(parts.concat())
    }
}

fn text(d: &mut Decoder<'_>, n: usize) -> Result<String, DecodeError> {
    let bytes = d.take_slice(n)?.to_vec();
    String::from_utf8(bytes).map_err(|_| d.invalid("a class or method name that is not UTF-8"))
}

/// Output of CHECKSUM: `u32 count`, and so many values of 4 bytes (8 for xxhash64).
pub fn checksum_out(kind: u8, values: &[u64]) -> Bytes {
    let mut e = Encoder::new();
    e.put_count(values.len());
    for value in values {
        if kind == op::checksum_kind::XXHASH64 {
            e.put(value);
        } else {
            e.put(&(*value as u32));
        }
    }
    e.into_bytes()
}

/// Input of CHECKSUM: the start value.
///
/// # Errors
/// When it is too short.
pub fn checksum_in(op: &OsdOp) -> Result<u64, DecodeError> {
    if op.args.checksum().kind == op::checksum_kind::XXHASH64 {
        denc::decode(&op.indata)
    } else {
        denc::decode::<u32>(&op.indata).map(u64::from)
    }
}

/// Attributes or omap values by name: `map<str, bl>`. Output of GETXATTRS and OMAPGETVALSBYKEYS,
/// input of OMAPSETVALS.
pub type Values = BTreeMap<ByteString, Bytes>;

/// Names of omap keys: `set<str>`. Input of OMAPGETVALSBYKEYS and OMAPRMKEYS.
pub type Keys = BTreeSet<ByteString>;

/// Input of OMAPGETKEYS: `str start_after, u64 max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapGetKeysIn {
    /// Only keys after this one.
    pub start_after: ByteString,
    /// At most so many.
    pub max: u64,
}

/// Output of OMAPGETKEYS: `u32 n, n × str, u8 more`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapGetKeysOut {
    /// In order.
    pub keys: Vec<ByteString>,
    /// Whether there are more.
    pub more: bool,
}

/// Input of OMAPGETVALS: `str start_after, u64 max, str prefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapGetValsIn {
    /// Only keys after this one.
    pub start_after: ByteString,
    /// At most so many.
    pub max: u64,
    /// Only keys that begin so.
    pub prefix: ByteString,
}

/// Output of OMAPGETVALS: `map<str, bl>, u8 more`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapGetValsOut {
    /// By key.
    pub values: Values,
    /// Whether there are more.
    pub more: bool,
}

/// One assertion of OMAP_CMP: `bl value, i32 op`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapAssertion {
    /// Compared with what is stored.
    pub value: Bytes,
    /// See [`op::cmp_op`]: EQ, LT or GT.
    pub op: i32,
}

/// Input of OMAP_CMP: `map<str, {bl, i32}>`.
pub type OmapCmpIn = BTreeMap<ByteString, OmapAssertion>;

/// Input of OMAPRMKEYRANGE: `str begin, str end`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OmapRmKeyRangeIn {
    /// First key.
    pub begin: ByteString,
    /// End, not included.
    pub end: ByteString,
}

/// Input of COPY_FROM: `str source, object_locator_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct CopyFromIn {
    /// The source's name.
    pub source: ByteString,
    /// Where it is.
    pub locator: ObjectLocator,
}

/// Input of COPY_FROM2: that of COPY_FROM, then `u32 truncate_seq, u64 truncate_size`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct CopyFrom2In {
    /// The source's name.
    pub source: ByteString,
    /// Where it is.
    pub locator: ObjectLocator,
    /// Of the new object.
    pub truncate_seq: u32,
    /// Of the new object, bytes.
    pub truncate_size: u64,
}

/// One watcher: watch_item_t V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct WatchItem {
    /// Who.
    pub watcher: EntityName,
    /// The watcher's name for the watch.
    pub cookie: u64,
    /// Seconds without a ping after which it is dropped.
    pub timeout_s: u32,
    /// From where.
    #[denc(since = 2)]
    pub addr: EntityAddr,
}

/// Output of LIST_WATCHERS: obj_list_watch_response_t V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ListWatchersOut {
    /// All watchers.
    pub watchers: Vec<WatchItem>,
}

/// One version of an object: clone_info V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct CloneInfo {
    /// The clone; [`SnapId::HEAD`] for the head, which is listed last.
    pub cloneid: SnapId,
    /// The snapshots it serves, ascending.
    pub snaps: Vec<SnapId>,
    /// Ranges (offset, length) equal in the next newer version.
    pub overlap: Vec<(u64, u64)>,
    /// Bytes.
    pub size: u64,
}

/// Output of LIST_SNAPS: obj_list_snap_response_t V(2,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ListSnapsOut {
    /// Oldest first.
    pub clones: Vec<CloneInfo>,
    /// The object's snap seq.
    #[denc(since = 2)]
    pub seq: SnapId,
}

/// Input of NOTIFY: `u32 1, u32 timeout, bl payload`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyIn {
    /// Seconds to wait for the watchers; 0 = default.
    pub timeout_s: u32,
    /// Given to the watchers.
    pub payload: Bytes,
}

impl Encode for NotifyIn {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u32).put(&self.timeout_s).put(&self.payload);
    }
}

impl Decode for NotifyIn {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get::<u32>()?;
        Ok(NotifyIn { timeout_s: d.get()?, payload: d.get()? })
    }
}

/// Output of NOTIFY: `u64 notify_id`.
pub type NotifyOut = u64;

/// Input of NOTIFY_ACK: `u64 notify_id, u64 cookie, bl reply`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyAckIn {
    /// The notify.
    pub notify_id: u64,
    /// The watcher's name for its watch.
    pub cookie: u64,
    /// Given to the notifier.
    pub reply: Bytes,
}

impl Encode for NotifyAckIn {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.notify_id).put(&self.cookie).put(&self.reply);
    }
}

impl Decode for NotifyAckIn {
    /// Old clients leave out the reply.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(NotifyAckIn {
            notify_id: d.get()?,
            cookie: d.get()?,
            reply: if d.remaining() > 0 { d.get()? } else { Bytes::new() },
        })
    }
}

/// A watcher as a notify names it: `u64 global id, u64 cookie`.
pub type WatcherId = (u64, u64);

/// Data of a NOTIFY_COMPLETE message: `map<{u64, u64}, bl>, list<{u64, u64}>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NotifyReplies {
    /// What each watcher answered.
    pub replies: BTreeMap<WatcherId, Bytes>,
    /// Watchers that did not answer in time.
    pub missed: Vec<WatcherId>,
}

/// One listed object: `str nspace, str oid, str locator_key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode)]
pub struct ListedObject {
    /// Its namespace.
    pub nspace: ByteString,
    /// Its name.
    pub name: ByteString,
    /// Its locator key, mostly empty.
    pub key: ByteString,
}

impl Decode for ListedObject {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(ListedObject { nspace: name(d)?, name: name(d)?, key: name(d)? })
    }
}

/// Output of PGNLS: pg_nls_response_t V(1,1). PGNLS's input is the [`HObject`] to begin at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgnlsOut {
    /// Where to go on.
    pub handle: HObject,
    /// The objects.
    pub entries: Vec<ListedObject>,
}

/// Decodes an operation's input that must be there in full; what follows it is ignored.
///
/// # Errors
/// See [`Decode::decode`].
pub fn input<T: Decode>(op: &OsdOp) -> Result<T, DecodeError> {
    denc::decode(&op.indata)
}

/// Decodes an operation's output.
///
/// # Errors
/// See [`Decode::decode`]; also when there is no such operation.
pub fn output<T: Decode>(op: Option<&super::ReplyOp>) -> Result<T, DecodeError> {
    let op = op.ok_or(DecodeError {
        kind: DecodeErrorKind::Invalid("a reply with fewer operations than the request"),
        at: 0,
    })?;
    denc::decode(&op.output())
}
