//! Requests to an OSD.

use super::op::{OP_BYTES, OsdOp, get_op, put_op};
use super::snaps::{name, put_locator};
use super::{Message, ObjectLocator, OutMessage, PRIORITY_CLIENT_OP, Payload, SnapContext, kind};
use crate::frame::{FEATURES_SUPPORTED, FILL_MIN_BYTES};
use bytes::Bytes;
use denc::{DecodeError, DecodeErrorKind, Decoder, Encoder};
use smallvec::SmallVec;
use types::{Epoch, HObject, PoolId, ReqId, SpgId, UTime};

/// The operations of a request; up to three without an allocation (a librbd write has two).
pub type Ops = SmallVec<[OsdOp; 3]>;

/// Bytes of a zipkin trace record: three u64.
pub(super) const TRACE_BYTES: usize = 24;

/// Bits of [`MOsdOp::flags`] (`CEPH_OSD_FLAG_*`, guide §5.3).
pub mod flags {
    /// Answer when applied.
    pub const ACK: u32 = 0x1;
    /// Obsolete.
    pub const ONNVRAM: u32 = 0x2;
    /// Answer when durable.
    pub const ONDISK: u32 = 0x4;
    /// Sent again.
    pub const RETRY: u32 = 0x8;
    /// Reads; informative.
    pub const READ: u32 = 0x10;
    /// Writes; informative.
    pub const WRITE: u32 = 0x20;
    /// Fail with EOLDSNAPC when the object knows a newer snapshot.
    pub const ORDERSNAP: u32 = 0x40;
    /// Any replica may answer.
    pub const BALANCE_READS: u32 = 0x100;
    /// Not supported.
    pub const PARALLELEXEC: u32 = 0x200;
    /// About a PG.
    pub const PGOP: u32 = 0x400;
    /// Contains CALL.
    pub const EXEC: u32 = 0x800;
    /// Any replica may answer.
    pub const LOCALIZE_READS: u32 = 0x2000;
    /// Order reads with writes of the same object.
    pub const RWORDERED: u32 = 0x4000;
    /// Take the client's SnapContext also in pool-snapshot mode.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    /// Always set by clients.
    pub const KNOWN_IF_REDIRECTED: u32 = 0x40_0000;
    /// Try though the cluster is full: it may be a delete.
    pub const FULL_TRY: u32 = 0x80_0000;
    /// Go on though the cluster is full.
    pub const FULL_FORCE: u32 = 0x100_0000;
    /// Writes may return data.
    pub const RETURNVEC: u32 = 0x400_0000;
}

/// MOSDOp (42, version 8): operations on one object, all or nothing.
///
/// | # | front |
/// |---|---|
/// | 1 | spg_t; u32 hash; u32 epoch; u32 flags |
/// | 2 | osd_reqid_t; 24 B trace; u32 client_inc; utime mtime |
/// | 3 | object_locator_t; str name |
/// | 4 | u16 n; n × 38 B op |
/// | 5 | u64 snapid; u64 snap_seq; `vec<u64>` snaps; i32 retry_attempt; u64 features |
///
/// The data segment is the input of all operations, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MOsdOp {
    /// The PG, as the client computed it.
    pub pgid: SpgId,
    /// The object. Its hash is the client's, its snap what to read; the name of a PG operation is
    /// empty.
    pub object: HObject,
    /// The pool in the locator: that of the PG, always.
    pub locator_pool: PoolId,
    /// The hash in the locator: -1, or the PG's seed for an operation on a PG.
    pub locator_hash: i64,
    /// The client's map.
    pub epoch: Epoch,
    /// See [`flags`].
    pub flags: u32,
    /// Explicit request id. All zero, which it is for clients, means: sender, `client_inc`, tid.
    pub reqid: ReqId,
    /// The client's incarnation, 0.
    pub client_inc: u32,
    /// The modification time a write sets.
    pub mtime: UTime,
    /// The operations.
    pub ops: Ops,
    /// For writes.
    pub snapc: SnapContext,
    /// 0 at first, one more for each resend. A reply must echo it.
    pub retry_attempt: i32,
    /// The client's feature bits.
    pub features: u64,
    /// The input was more than a message may have: the operations are without theirs. Only of received
    /// ones.
    pub data_left_out: bool,
}

impl Default for MOsdOp {
    /// Nothing to do for no object, with the features of this crate.
    fn default() -> Self {
        MOsdOp {
            pgid: SpgId { pgid: types::PgId::default(), shard: types::ShardId::NONE },
            object: HObject { pool: PoolId(0), snap: types::SnapId::HEAD, ..HObject::min() },
            locator_pool: PoolId(0),
            locator_hash: -1,
            epoch: Epoch::ZERO,
            flags: 0,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            ops: Ops::new(),
            snapc: SnapContext::default(),
            retry_attempt: 0,
            features: FEATURES_SUPPORTED,
            data_left_out: false,
        }
    }
}

impl MOsdOp {
    /// Whether it asks a PG as such and not an object. The flag of that name does not tell: clients
    /// do not set it (`PrimaryLogPG.cc: do_op` goes by the operations too).
    pub fn is_for_pg(&self) -> bool {
        self.ops.iter().any(|op| op.code.is_pg())
    }

    /// Whether the client set `flag` (of [`flags`]).
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Keeps no more of the memory it was received into than it has use for: it waits, and its neighbours there may be
    /// gone long before. Long input has memory of its own.
    pub fn stand_alone(&mut self) {
        for op in &mut self.ops {
            if !op.indata.is_empty() && op.indata.len() < FILL_MIN_BYTES {
                op.indata = Bytes::copy_from_slice(&op.indata);
            }
        }
    }

    /// Whether an operation's class is write. Whether a CALL writes, its method knows.
    pub fn has_write_op(&self) -> bool {
        self.ops.iter().any(|op| op.code.is_write())
    }

    fn decode_front(d: &mut Decoder<'_>) -> Result<(Self, SmallVec<[usize; 3]>), DecodeError> {
        let pgid: SpgId = d.get()?;
        let hash = d.get()?;
        let (epoch, flags) = (d.get()?, d.get()?);
        let reqid = d.get()?;
        d.skip(TRACE_BYTES)?;
        let (client_inc, mtime) = (d.get()?, d.get()?);
        let locator: ObjectLocator = d.get()?;
        let object_name = name(d)?;
        let mut ops = Ops::new();
        let mut lens = SmallVec::new();
        let count = usize::from(d.get::<u16>()?);
        for _ in 0..count {
            let (op, len) = get_op(d)?;
            ops.push(op);
            lens.push(len);
        }
        let snap = d.get()?;
        let snapc = d.get()?;
        let object = HObject {
            pool: pgid.pgid.pool,
            hash,
            nspace: locator.nspace,
            // A key that equals the name is no key (`hobject_t`'s constructor).
            key: if locator.key == object_name {
                types::ByteString::default()
            } else {
                locator.key
            },
            name: object_name,
            snap,
            max: false,
        };
        let request = MOsdOp {
            pgid,
            object,
            locator_pool: locator.pool,
            locator_hash: locator.hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            ops,
            snapc,
            retry_attempt: d.get()?,
            features: d.get()?,
            data_left_out: false,
        };
        Ok((request, lens))
    }

    fn encode_front(&self) -> Bytes {
        let names = self
            .object
            .name
            .len()
            .saturating_add(self.object.key.len())
            .saturating_add(self.object.nspace.len())
            .saturating_add(self.snapc.snaps.len().saturating_mul(8));
        let ops = self.ops.len().saturating_mul(OP_BYTES);
        let mut e = Encoder::with_capacity(names.saturating_add(ops).saturating_add(256));
        e.put(&self.pgid).put(&self.object.hash);
        e.put(&self.epoch).put(&self.flags).put(&self.reqid);
        e.put_raw(&[0; TRACE_BYTES]);
        e.put(&self.client_inc).put(&self.mtime);
        let (key, nspace) = (&self.object.key, &self.object.nspace);
        put_locator(&mut e, self.locator_pool, key, nspace, self.locator_hash);
        e.put(&self.object.name);
        let count = u16::try_from(self.ops.len()).expect("at most 65535 operations");
        e.put(&count);
        for op in &self.ops {
            put_op(&mut e, op.code, op.flags, &op.args, op.indata.len());
        }
        e.put(&self.object.snap).put(&self.snapc);
        e.put(&self.retry_attempt).put(&self.features);
        e.into_bytes()
    }
}

impl Payload for MOsdOp {
    const TYPE: u16 = kind::OSD_OP;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = PRIORITY_CLIENT_OP;
    const MAY_LACK_DATA: bool = true;

    /// Only version 8 and newer: every 16.2 client sends it.
    fn decode(m: &Message) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(&m.front);
        if m.header.version < Self::VERSION {
            return Err(d.invalid("an OSD_OP older than version 8"));
        }
        let (mut request, lens) = MOsdOp::decode_front(&mut d)?;
        if m.data_left_out {
            request.data_left_out = true;
            return Ok(request);
        }
        let mut at = 0usize;
        for (op, len) in request.ops.iter_mut().zip(lens) {
            if len == 0 {
                continue;
            }
            let end = at.saturating_add(len);
            if end > m.data.len() {
                return Err(DecodeError {
                    kind: DecodeErrorKind::Invalid("operations with more input than there is data"),
                    at,
                });
            }
            op.indata = m.data.slice(at..end);
            op.indata_crc = m.data_crc.of_part(len, m.data.len());
            at = end;
        }
        Ok(request)
    }

    fn encode(mut self) -> OutMessage {
        let front = self.encode_front();
        let mut out = OutMessage::new::<Self>(front);
        for op in self.ops.iter_mut().filter(|op| !op.indata.is_empty()) {
            // It is sent if this piece is all there is.
            out.data_crc = op.indata_crc;
            out.data.push(std::mem::take(&mut op.indata));
        }
        out
    }
}
