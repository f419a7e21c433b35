//! What a peer can do wrong.

use crate::frame::Tag;
use denc::DecodeError;
use types::EntityType;

/// The peer broke the protocol, or speaks a dialect we do not. Its connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are not msgr v2's banner.
    #[error("does not start with the banner of msgr v2")]
    NotMsgr2,
    /// A banner longer than any known.
    #[error("a banner payload of {bytes} bytes; 16 are expected")]
    BannerLength {
        /// The length it states.
        bytes: usize,
    },
    /// The peer cannot do msgr2.1, or wants a messenger feature nobody here has.
    #[error("msgr2 features do not match: it has {supported:#x} and requires {required:#x}")]
    BannerFeatures {
        /// What the peer can do.
        supported: u64,
        /// What the peer insists on.
        required: u64,
    },
    /// The checksum of a frame's preamble is wrong.
    #[error("bad checksum of a frame's preamble: {stored:#010x} stored, {computed:#010x} computed")]
    PreambleCrc {
        /// In the preamble.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// A frame type that does not exist.
    #[error("unknown frame tag {0}")]
    UnknownTag(u8),
    /// A frame has one to four segments.
    #[error("a frame of {0} segments")]
    SegmentCount(u8),
    /// Trailing empty segments are left out, never sent.
    #[error("a frame whose last segment is empty")]
    EmptyLastSegment,
    /// A frame over its bound.
    #[error("a {tag:?} frame of {bytes} bytes; at most {limit} are taken")]
    FrameTooLong {
        /// Its type.
        tag: Tag,
        /// Bytes of all segments.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// The checksum of a segment is wrong.
    #[error(
        "bad checksum of segment {segment} of a {tag:?} frame: {stored:#010x} stored, \
         {computed:#010x} computed"
    )]
    SegmentCrc {
        /// The frame's type.
        tag: Tag,
        /// Which segment, from 0.
        segment: usize,
        /// In the frame.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// Neither "complete" nor "aborted".
    #[error("a frame that ends with status {0:#x}")]
    LateStatus(u8),
    /// A frame that does not belong here.
    #[error("a {tag:?} frame while {phase}")]
    Unexpected {
        /// Its type.
        tag: Tag,
        /// What the connection was doing.
        phase: &'static str,
    },
    /// Bytes came while the peer had to wait for an answer.
    #[error("spoke while it had to wait for the answer to its AUTH_REQUEST")]
    OutOfTurn,
    /// The payload of a control frame cannot be read.
    #[error("{tag:?} frame: {error}")]
    Payload {
        /// The frame's type.
        tag: Tag,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A MESSAGE frame whose first segment is not a message header.
    #[error("a message header of {bytes} bytes; 41 are expected")]
    HeaderLength {
        /// Its length.
        bytes: usize,
    },
    /// Dialled one kind of daemon, got another.
    #[error("is a {got:?}; {wanted:?} was dialled")]
    WrongEntity {
        /// What was expected.
        wanted: EntityType,
        /// What it says it is.
        got: EntityType,
    },
    /// No service here for that kind of peer.
    #[error("is a {0:?}, which is not served here")]
    NotServed(EntityType),
    /// The peer refused every authentication method we have.
    #[error("refuses authentication with method {method}: result {result}, allows {allowed:?}")]
    AuthRefused {
        /// The method tried.
        method: u32,
        /// Negative error number.
        result: i32,
        /// The methods it would take.
        allowed: Vec<u32>,
    },
    /// Authentication was tried too often.
    #[error("tried to authenticate {0} times")]
    AuthAttempts(u32),
    /// The peer's connection mode was not offered.
    #[error("chose connection mode {0}, which was not offered")]
    ConMode(u32),
    /// The AUTH_SIGNATURE is not the right one.
    #[error("its AUTH_SIGNATURE does not match")]
    Signature,
    /// An ident without a usable address.
    #[error("identifies itself without an address")]
    NoAddress,
    /// The peer wanted to reach somebody else, or is somebody else.
    #[error("addresses do not match: {0}")]
    WrongAddress(String),
    /// Feature bits missing on one of the sides.
    #[error("feature bits {missing:#x} are missing")]
    MissingFeatures {
        /// The bits.
        missing: u64,
    },
    /// The two ends do not agree on lossy or lossless.
    #[error("wants a {theirs} session; only {ours} ones are kept here")]
    SessionKind {
        /// What the peer wants.
        theirs: &'static str,
        /// What this end does.
        ours: &'static str,
    },
    /// An older connection attempt that comes after a newer one.
    #[error("an old connection attempt: global_seq {global_seq} after {newest}")]
    Stale {
        /// Of this attempt.
        global_seq: u64,
        /// Of the newest one.
        newest: u64,
    },
    /// Too many peers are authenticating at once.
    #[error("{0} connections are authenticating already")]
    TooManyHandshakes(usize),
    /// Idents went to and fro without an end.
    #[error("sent {0} idents without opening a session")]
    IdentRounds(u32),
    /// An acknowledgement of what was never sent.
    #[error("acknowledges message {acked}; the last one sent is {sent}")]
    AckedUnsent {
        /// The sequence number acknowledged.
        acked: u64,
        /// The last one sent.
        sent: u64,
    },
    /// Lossless messages must come without a gap.
    #[error("message {got} where {wanted} was due")]
    Gap {
        /// The sequence number expected.
        wanted: u64,
        /// The one that came.
        got: u64,
    },
}
