//! Messages: their header, their type numbers, and a typed struct for each.
//!
//! A received [`Message`] is a header and three byte strings (front, middle, data), slices of what
//! was received. [`Message::decode`] turns it into a typed struct such as [`MOsdOp`];
//! [`Payload::encode`] makes an [`OutMessage`] of one. The layer is open: a message of a type not
//! listed in [`kind`] travels like any other, and whoever knows it implements [`Payload`] for it.
//! Numbers from [`kind::OURS_FROM`] on are for our own daemons.
//!
//! Outside bytes: decoding never panics, never trusts a count for an allocation, and ignores what
//! newer versions append. Source: Ceph 16.2 `src/messages`, guide §3.2 and §5.

pub mod kind;
pub mod op;
pub mod op_data;

mod auth;
mod backoff;
mod command;
mod header;
mod maps;
mod mon;
mod osd_op;
mod osd_reply;
mod pools;
mod scrub;
mod snaps;
mod stats;
mod watch;

pub use auth::{MAuth, MAuthReply};
pub use backoff::{BackoffOp, MOsdBackoff};
pub use command::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply};
pub use header::{HEADER_BYTES, HEADER_FLAGS, Header};
pub use maps::{MFsMap, MFsMapUser, MMdsMap, MMgrMap, MMonMap, MOsdMap};
pub use mon::{
    MConfig, MMonCommand, MMonCommandAck, MMonGetMap, MMonGetOsdMap, MMonGetVersion,
    MMonGetVersionReply, MMonSubscribe, PaxosHeader, Subscription,
};
pub use op::{OpArgs, OpCode, OsdOp};
pub use osd_op::{MOsdOp, Ops, flags};
pub use osd_reply::{MOsdOpReply, Redirect, ReplyOp, ReplyOps};
pub use pools::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, MStatfs, MStatfsReply, pool_op,
};
pub use scrub::{ListedCopy, ObjectInfo, ScrubLsArg, ScrubLsOut, WrongObject};
pub use snaps::{ObjectLocator, SnapContext};
pub use stats::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use watch::{MWatchNotify, WatchEvent};

use bytes::Bytes;
use denc::{DecodeError, DecodeErrorKind, KnownCrc};
use smallvec::SmallVec;

/// Bytes in pieces, in order; as they were read from a disk or will be sent.
pub type Pieces = SmallVec<[Bytes; 2]>;

/// `CEPH_MSG_PRIO_DEFAULT`
pub const PRIORITY_DEFAULT: u16 = 127;
/// `CEPH_MSG_PRIO_HIGH`: what a mon answers with.
pub const PRIORITY_HIGH: u16 = 196;
/// What a client's object operations have.
pub const PRIORITY_CLIENT_OP: u16 = 63;

/// A received message.
///
/// Its bytes share the memory they were received into, up to 256 KiB with their neighbours: what is
/// kept for long should be copied. A large data segment has memory of its own, see
/// [`crate::frame::FILL_MIN_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// The payload.
    pub front: Bytes,
    /// Hardly used by anybody.
    pub middle: Bytes,
    /// Bulk data: object contents, command output.
    pub data: Bytes,
    /// The checksum of `data`.
    pub data_crc: KnownCrc,
    /// Its data was more than a message may have ([`crate::frame::MAX_MESSAGE_FRAME_BYTES`]): there is none.
    pub data_left_out: bool,
}

impl Message {
    /// The typed message.
    ///
    /// # Errors
    /// When it is of another type, needs a newer decoder, has more data than it may, or its bytes are
    /// malformed.
    pub fn decode<P: Payload>(&self) -> Result<P, DecodeError> {
        let error = |kind| DecodeError { kind, at: 0 };
        if self.header.kind != P::TYPE {
            return Err(error(DecodeErrorKind::Invalid("another type of message")));
        }
        if self.header.compat > P::VERSION {
            let compat = u8::try_from(self.header.compat).unwrap_or(u8::MAX);
            return Err(error(DecodeErrorKind::TooNew { compat }));
        }
        if self.data_left_out && !P::MAY_LACK_DATA {
            return Err(error(DecodeErrorKind::Invalid("more data than a message may have")));
        }
        P::decode(self)
    }

    /// Bytes of payload and data.
    pub fn len(&self) -> usize {
        let len = self.front.len().saturating_add(self.middle.len());
        len.saturating_add(self.data.len())
    }

    /// Whether there is neither payload nor data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message to be sent. Cheap to clone: its bytes are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutMessage {
    /// The transaction id; a reply carries its request's.
    pub tid: u64,
    /// What it is.
    pub kind: u16,
    /// Informative.
    pub priority: u16,
    /// Version of the payload.
    pub version: u16,
    /// The oldest version whose decoder can read it.
    pub compat: u16,
    /// See [`Header::data_off`].
    pub data_off: u16,
    /// The payload.
    pub front: Bytes,
    /// Hardly used by anybody.
    pub middle: Bytes,
    /// Bulk data, sent piece after piece without being copied.
    pub data: Pieces,
    /// The checksum of all of `data`.
    pub data_crc: KnownCrc,
}

impl OutMessage {
    /// A message of type `P` with this payload and no data.
    pub fn new<P: Payload>(front: impl Into<Bytes>) -> Self {
        OutMessage {
            tid: 0,
            kind: P::TYPE,
            priority: P::PRIORITY,
            version: P::VERSION,
            compat: P::COMPAT,
            data_off: 0,
            front: front.into(),
            middle: Bytes::new(),
            data: Pieces::new(),
            data_crc: KnownCrc::NONE,
        }
    }

    /// With this transaction id.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.tid = tid;
        self
    }

    /// With this data.
    #[must_use]
    pub fn with_data(mut self, data: Bytes) -> Self {
        self.data.clear();
        self.data_crc = KnownCrc::NONE;
        if !data.is_empty() {
            self.data.push(data);
        }
        self
    }

    /// With this priority.
    #[must_use]
    pub fn with_priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Bytes of payload and data.
    pub fn len(&self) -> usize {
        let rest = self.front.len().saturating_add(self.middle.len());
        self.data.iter().fold(rest, |sum, piece| sum.saturating_add(piece.len()))
    }

    /// Whether there is neither payload nor data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The header it travels with.
    pub fn header(&self, seq: u64, ack_seq: u64) -> Header {
        Header {
            seq,
            tid: self.tid,
            kind: self.kind,
            priority: self.priority,
            version: self.version,
            data_off: self.data_off,
            ack_seq,
            compat: self.compat,
            ..Header::default()
        }
    }

    /// As its receiver gets it: for tests, and for a daemon that talks to itself.
    pub fn into_message(self) -> Message {
        let data = match self.data.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        };
        let (front, middle, data_crc) = (self.front.clone(), self.middle.clone(), self.data_crc);
        Message { header: self.header(0, 0), front, middle, data, data_crc, data_left_out: false }
    }
}

/// A type of message.
pub trait Payload: Sized {
    /// Its number, see [`kind`].
    const TYPE: u16;
    /// The version written, and the newest one understood.
    const VERSION: u16;
    /// The oldest version whose decoder can read what is written.
    const COMPAT: u16;
    /// The priority it is sent with.
    const PRIORITY: u16 = PRIORITY_DEFAULT;
    /// It heeds [`Message::data_left_out`]. All others are malformed when data was left out.
    const MAY_LACK_DATA: bool = false;

    /// Reads a message of this type. Callers use [`Message::decode`], which checks type and
    /// version first.
    ///
    /// # Errors
    /// When the bytes are malformed.
    fn decode(m: &Message) -> Result<Self, DecodeError>;

    /// Makes the message, with transaction id 0.
    fn encode(self) -> OutMessage;
}

/// Implements [`Payload`] for a struct whose derived encoding is the front; with `data = field` one
/// field (of type `Bytes`, skipped by the encoding) is the data segment.
macro_rules! payload {
    ($name:ident, $kind:expr, $version:literal/$compat:literal, $priority:expr) => {
        $crate::msg::payload!(@ $name, $kind, $version/$compat, $priority, );
    };
    ($name:ident, $kind:expr, $version:literal/$compat:literal, $priority:expr, data = $data:ident) => {
        $crate::msg::payload!(@ $name, $kind, $version/$compat, $priority, $data);
    };
    (@ $name:ident, $kind:expr, $version:literal/$compat:literal, $priority:expr, $($data:ident)?) => {
        impl $crate::msg::Payload for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            const PRIORITY: u16 = $priority;

            fn decode(m: &$crate::msg::Message) -> Result<Self, denc::DecodeError> {
                #[allow(unused_mut)]
                let mut value: Self = denc::decode(&m.front)?;
                $(value.$data = m.data.clone();)?
                Ok(value)
            }

            fn encode(self) -> $crate::msg::OutMessage {
                let out = $crate::msg::OutMessage::new::<Self>(denc::encode_briefly(&self));
                $(let out = out.with_data(self.$data);)?
                out
            }
        }
    };
}
pub(crate) use payload;

/// MPing (2): no payload; an OSD ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, denc::Encode, denc::Decode)]
pub struct MPing {}

payload!(MPing, kind::PING, 1 / 1, PRIORITY_DEFAULT);
