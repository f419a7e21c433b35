//! Answers of an OSD.

use super::op::{OP_BYTES, OpArgs, OpCode, OsdOp, get_op, put_op};
use super::osd_op::{MOsdOp, TRACE_BYTES};
use super::snaps::name;
use super::{Message, ObjectLocator, OutMessage, PRIORITY_DEFAULT, Payload, Pieces, kind};
use bytes::Bytes;
use denc::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, Encoder, KnownCrc};
use smallvec::SmallVec;
use types::{ByteString, Epoch, Errno, Eversion, PgId};

/// One operation of a reply: the request's, with its result and output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyOp {
    /// Of the request.
    pub code: OpCode,
    /// Of the request.
    pub flags: u32,
    /// Of the request; a READ's length is the number of bytes read.
    pub args: OpArgs,
    /// 0 or more, or a negative error number.
    pub rval: i32,
    /// Output, in pieces.
    pub outdata: Pieces,
    /// The checksum of all of it.
    pub outdata_crc: KnownCrc,
}

impl ReplyOp {
    /// Bytes of output.
    pub fn len(&self) -> usize {
        let pieces = self.outdata.iter();
        pieces.fold(0, |sum, piece| sum.saturating_add(piece.len()))
    }

    /// Whether there is no output.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The output as one piece; copied when there are several.
    pub fn output(&self) -> Bytes {
        match self.outdata.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

impl From<&OsdOp> for ReplyOp {
    /// The op echoed, with result 0 and no output.
    fn from(op: &OsdOp) -> Self {
        ReplyOp { code: op.code, flags: op.flags, args: op.args, ..ReplyOp::default() }
    }
}

/// The operations of a reply; up to three without an allocation.
pub type ReplyOps = SmallVec<[ReplyOp; 3]>;

/// Go elsewhere: request_redirect_t V(1,1) `{object_locator_t, str object, u32 0}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// Where to.
    pub locator: ObjectLocator,
    /// Which object there; the same when empty.
    pub object: ByteString,
}

impl Encode for Redirect {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| {
            e.put(&self.locator).put(&self.object).put(&0u32);
        });
    }
}

impl Decode for Redirect {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| Ok(Redirect { locator: d.get()?, object: name(d)? }))
    }
}

/// MOSDOpReply (43, version 8).
///
/// | # | front |
/// |---|---|
/// | 1 | str object; pg_t; i64 flags; i32 result |
/// | 2 | eversion bad_replay_version; u32 epoch |
/// | 3 | u32 n; n × 38 B op, each with the length of its output |
/// | 4 | i32 retry_attempt; n × i32 rval |
/// | 5 | eversion replay_version; u64 user_version |
/// | 6 | u8 redirect, with request_redirect_t when 1; 24 B trace |
///
/// The data segment is the output of all operations, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdOpReply {
    /// The object, as requested.
    pub object: ByteString,
    /// The PG, as requested.
    pub pgid: PgId,
    /// Of the request, changed; see [`MOsdOpReply::answer`].
    pub flags: i64,
    /// 0 or more, or a negative error number.
    pub result: i32,
    /// Version = user version, epoch as in `replay_version`. On ENOENT the PG's last update.
    pub bad_replay_version: Eversion,
    /// The OSD's map.
    pub epoch: Epoch,
    /// The operations with their results.
    pub ops: ReplyOps,
    /// Of the request; else the client takes the reply for a stale one.
    pub retry_attempt: i32,
    /// The version a write got; 0'0 of a read.
    pub replay_version: Eversion,
    /// The object's user version.
    pub user_version: u64,
    /// Go elsewhere.
    pub redirect: Option<Redirect>,
}

/// Request flags that say when to answer.
const ACK_MASK: u32 = 7;
/// What they become in the answer: applied and durable.
const ACKED: u32 = 5;

impl MOsdOpReply {
    /// An answer to `request`: all its operations echoed with result 0 and no output.
    pub fn answer(request: &MOsdOp, epoch: Epoch) -> Self {
        MOsdOpReply {
            object: request.object.name.clone(),
            pgid: request.pgid.pgid,
            flags: i64::from(request.flags & !ACK_MASK | ACKED),
            epoch,
            ops: request.ops.iter().map(ReplyOp::from).collect(),
            retry_attempt: request.retry_attempt,
            ..MOsdOpReply::default()
        }
    }

    /// A refusal before any operation was run.
    pub fn refuse(request: &MOsdOp, epoch: Epoch, error: Errno) -> Self {
        MOsdOpReply {
            flags: i64::from(request.flags & ACKED),
            result: error.wire(),
            ..Self::answer(request, epoch)
        }
    }

    /// The same with the versions of a write or read at `replay_version` (0'0 for a read).
    #[must_use]
    pub fn with_versions(mut self, replay_version: Eversion, user_version: u64) -> Self {
        self.replay_version = replay_version;
        self.bad_replay_version = Eversion::new(replay_version.epoch, user_version);
        self.user_version = user_version;
        self
    }

    fn encode_front(&self) -> Bytes {
        let ops = self.ops.len().saturating_mul(OP_BYTES.saturating_add(4));
        let fixed = self.object.len().saturating_add(160);
        let mut e = Encoder::with_capacity(ops.saturating_add(fixed));
        e.put(&self.object).put(&self.pgid).put(&self.flags);
        e.put(&self.result).put(&self.bad_replay_version);
        e.put(&self.epoch);
        e.put_count(self.ops.len());
        for op in &self.ops {
            put_op(&mut e, op.code, op.flags, &op.args, op.len());
        }
        e.put(&self.retry_attempt);
        for op in &self.ops {
            e.put(&op.rval);
        }
        e.put(&self.replay_version).put(&self.user_version);
        e.put(&self.redirect);
        e.put_raw(&[0; TRACE_BYTES]);
        e.into_bytes()
    }

    fn decode_front(d: &mut Decoder<'_>) -> Result<(Self, SmallVec<[usize; 3]>), DecodeError> {
        let object = name(d)?;
        let (pgid, flags, result) = (d.get()?, d.get()?, d.get()?);
        let (bad_replay_version, epoch) = (d.get()?, d.get()?);
        let count = d.count()?;
        if count > usize::from(u16::MAX) {
            return Err(d.invalid("more operations than a request can have"));
        }
        let mut ops = ReplyOps::new();
        let mut lens = SmallVec::new();
        for _ in 0..count {
            let (op, len) = get_op(d)?;
            ops.push(ReplyOp::from(&op));
            lens.push(len);
        }
        let retry_attempt = d.get()?;
        for op in &mut ops {
            op.rval = d.get()?;
        }
        let reply = MOsdOpReply {
            object,
            pgid,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version: d.get()?,
            user_version: d.get()?,
            redirect: d.get()?,
        };
        Ok((reply, lens))
    }
}

impl Payload for MOsdOpReply {
    const TYPE: u16 = kind::OSD_OPREPLY;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;
    const PRIORITY: u16 = PRIORITY_DEFAULT;

    fn decode(m: &Message) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(&m.front);
        if m.header.version < Self::VERSION {
            return Err(d.invalid("an OSD_OPREPLY older than version 8"));
        }
        let (mut reply, lens) = MOsdOpReply::decode_front(&mut d)?;
        let mut at = 0usize;
        for (op, len) in reply.ops.iter_mut().zip(lens) {
            let end = at.saturating_add(len);
            if end > m.data.len() {
                return Err(DecodeError {
                    kind: DecodeErrorKind::Invalid(
                        "operations with more output than there is data",
                    ),
                    at,
                });
            }
            if len > 0 {
                op.outdata.push(m.data.slice(at..end));
            }
            at = end;
        }
        Ok(reply)
    }

    fn encode(mut self) -> OutMessage {
        let front = self.encode_front();
        let first_read = self.ops.iter().find(|op| op.code == OpCode::READ);
        let data_off = first_read.map_or(0, |op| op.args.extent().offset as u16);
        let mut out = OutMessage { data_off, ..OutMessage::new::<Self>(front) };
        for op in self.ops.iter_mut().filter(|op| !op.outdata.is_empty()) {
            // It is sent if this piece is all there is.
            out.data_crc = op.outdata_crc;
            out.data.extend(op.outdata.drain(..).filter(|piece| !piece.is_empty()));
        }
        out
    }
}
