//! msgr2.1 frames, revision 1 (Ceph `msg/async/frames_v2.{h,cc}`, guide §1.2).
//!
//! In crc mode ([`FrameMode::Crc`]) a frame is
//!
//! | bytes | content |
//! |---|---|
//! | 32 | preamble: `u8 tag, u8 segments, 4 x {u32 length, u16 alignment}, 2 zero, u32 crc` (seed 0) |
//! | n (+4) | segment 0 and its crc (seed 2^32-1); both absent when it is empty |
//! | n | segments 1 to 3, back to back |
//! | 13 | epilogue, with more than one segment: `u8 late status, 3 x u32 crc` of segments 1 to 3 |
//!
//! [`FrameReader`] cuts received bytes into frames; [`FrameWriter`] builds them. What is checked:
//! preamble crc, tag, number of segments, total length, the crc of every segment, late status.

mod control;
mod reader;
mod writer;

pub use control::*;
pub use reader::{Frame, FrameReader};
pub(crate) use writer::put_control;
pub use writer::{FrameWriter, INLINE_MAX_BYTES};

use crate::ProtocolError;
use denc::crc32c;

/// Bytes of a preamble.
pub const PREAMBLE_BYTES: usize = 32;
/// Bytes of the crc behind segment 0.
pub const CRC_BYTES: usize = 4;
/// Bytes of an epilogue in crc mode.
pub const EPILOGUE_BYTES: usize = 13;
/// Segments a frame can have.
pub const MAX_SEGMENTS: usize = 4;
/// The bound of a control frame: everything but MESSAGE. Tickets of cephx are the largest.
pub const MAX_CONTROL_FRAME_BYTES: u64 = 64 << 10;
/// The bound of a MESSAGE frame: the largest object (128 MiB) in one message, with a page of omap, or
/// with what else a transaction is (16 MiB), and room beside it.
///
/// Of a message whose data alone is beyond it the data is passed over, so that who sent it can be told:
/// else he would connect and send it again without end.
pub const MAX_MESSAGE_FRAME_BYTES: u64 = 192 << 20;
/// A data segment of at least so many bytes that is not there as a whole is received straight into
/// an aligned buffer.
pub const FILL_MIN_BYTES: usize = 64 << 10;
/// When less than this is missing, the rest comes with ordinary receives: another system call would
/// cost more than the copy.
pub const FILL_MIN_REST_BYTES: usize = 16 << 10;

/// The start value of every crc but the preamble's.
const SEGMENT_SEED: u32 = u32::MAX;
/// Preamble bytes under its crc.
const PREAMBLE_CRC_AT: usize = 28;
/// Late status of a frame that is all there.
const LATE_COMPLETE: u8 = 0x0e;
/// Late status of a frame whose sender gave up; it is dropped.
const LATE_ABORTED: u8 = 0x01;
/// Where the status stands in the status byte.
const LATE_MASK: u8 = 0x0f;
/// What Ceph states for segments 0 to 2, and for the data segment.
const ALIGNMENTS: [u16; MAX_SEGMENTS] = [8, 8, 8, 4096];
/// The index of a message's data segment.
const DATA_SEGMENT: usize = 3;

/// How the bytes of a connection are protected after authentication.
///
/// The second mode, secure (AES-128-GCM over preamble, segments and epilogue, guide §1.3), becomes
/// another variant here, with its keys and counters inside: [`FrameReader`] and [`FrameWriter`] hold
/// the mode and ask it how long the parts of a frame are on the wire. Connections switch after
/// AUTH_DONE, before AUTH_SIGNATURE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameMode {
    /// Checksums, no encryption.
    #[default]
    Crc,
}

macro_rules! tags {
    ($($name:ident = $n:literal, $doc:literal;)*) => {
        /// What a frame is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Tag { $(#[doc = $doc] $name = $n,)* }

        impl Tag {
            /// From its number; `None` for one that does not exist.
            pub fn from_number(n: u8) -> Option<Tag> {
                match n { $($n => Some(Tag::$name),)* _ => None }
            }
        }
    };
}

tags! {
    Hello = 1, "Who speaks, and where it sees the peer.";
    AuthRequest = 2, "The client starts to authenticate.";
    AuthBadMethod = 3, "Not with that method.";
    AuthReplyMore = 4, "The server's next step.";
    AuthRequestMore = 5, "The client's next step.";
    AuthDone = 6, "Authenticated.";
    AuthSignature = 7, "Signs all bytes so far.";
    ClientIdent = 8, "A new session, please.";
    ServerIdent = 9, "The new session is open.";
    IdentMissingFeatures = 10, "The client cannot do what is required.";
    SessionReconnect = 11, "Resume a lossless session.";
    SessionReset = 12, "There is no such session.";
    SessionRetry = 13, "Your connect_seq is old.";
    SessionRetryGlobal = 14, "Your global_seq is old.";
    SessionReconnectOk = 15, "The session is resumed.";
    Wait = 16, "I am dialling you, wait for that.";
    Message = 17, "A message.";
    Keepalive2 = 18, "Are you there?";
    Keepalive2Ack = 19, "I am.";
    Ack = 20, "Received up to this message.";
}

impl Tag {
    /// The bound of a frame with this tag, all segments together.
    fn max_bytes(self) -> u64 {
        match self {
            Tag::Message => MAX_MESSAGE_FRAME_BYTES,
            _ => MAX_CONTROL_FRAME_BYTES,
        }
    }
}

/// The start of a frame: what it is and how long its segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// What the frame is.
    pub tag: Tag,
    /// Segments present, 1 to 4.
    pub segments: u8,
    /// Their lengths; 0 for those not present.
    pub lens: [u32; MAX_SEGMENTS],
    /// Of a received one: there is more data than a message may have, and it is passed over.
    data_left_out: bool,
}

impl Preamble {
    /// For segments of these lengths; trailing empty ones are left out.
    pub fn new(tag: Tag, lens: [u32; MAX_SEGMENTS]) -> Self {
        let last = lens.iter().rposition(|&len| len > 0).unwrap_or(0);
        let segments = (last as u8).saturating_add(1);
        Preamble { tag, segments, lens, data_left_out: false }
    }

    /// Reads and checks a preamble.
    ///
    /// # Errors
    /// A bad crc, tag or number of segments, an empty last segment, or more bytes than the tag's
    /// bound.
    pub fn parse(bytes: &[u8; PREAMBLE_BYTES]) -> Result<Preamble, ProtocolError> {
        let (body, rest) = bytes.split_at(PREAMBLE_CRC_AT);
        let stored = u32::from_le_bytes(rest.first_chunk().copied().unwrap_or_default());
        let computed = crc32c(0, body);
        if stored != computed {
            return Err(ProtocolError::PreambleCrc { stored, computed });
        }
        let [tag, segments, table @ ..] = body else {
            return Err(ProtocolError::SegmentCount(0));
        };
        let tag = Tag::from_number(*tag).ok_or(ProtocolError::UnknownTag(*tag))?;
        let count = usize::from(*segments);
        if count == 0 || count > MAX_SEGMENTS {
            return Err(ProtocolError::SegmentCount(*segments));
        }
        let mut lens = [0; MAX_SEGMENTS];
        for (len, entry) in lens.iter_mut().zip(table.chunks_exact(6)).take(count) {
            *len = u32::from_le_bytes(entry.first_chunk().copied().unwrap_or_default());
        }
        let mut preamble = Preamble { tag, segments: *segments, lens, data_left_out: false };
        preamble.data_left_out = preamble.check()?;
        Ok(preamble)
    }

    /// Whether there is more data than a message may have; what else is too long is an error.
    fn check(&self) -> Result<bool, ProtocolError> {
        let count = usize::from(self.segments);
        if count > 1 && self.len(count.saturating_sub(1)) == 0 {
            return Err(ProtocolError::EmptyLastSegment);
        }
        let bytes: u64 = self.lens.iter().map(|&len| u64::from(len)).sum();
        let limit = self.tag.max_bytes();
        let data = self.len(DATA_SEGMENT) as u64;
        if bytes > limit && (self.tag != Tag::Message || bytes.saturating_sub(data) > limit) {
            return Err(ProtocolError::FrameTooLong { tag: self.tag, bytes, limit });
        }
        Ok(bytes > limit)
    }

    /// The 32 bytes on the wire.
    pub fn to_bytes(&self) -> [u8; PREAMBLE_BYTES] {
        let mut out = [0; PREAMBLE_BYTES];
        let [tag, segments, table @ ..] = &mut out;
        *tag = self.tag as u8;
        *segments = self.segments;
        let present = usize::from(self.segments);
        let entries = table.chunks_exact_mut(6).zip(self.lens.iter().zip(ALIGNMENTS));
        for (entry, (len, alignment)) in entries.take(present) {
            let (at_len, at_alignment) = entry.split_at_mut(4);
            at_len.copy_from_slice(&len.to_le_bytes());
            at_alignment.copy_from_slice(&alignment.to_le_bytes());
        }
        let (body, crc) = out.split_at_mut(PREAMBLE_CRC_AT);
        crc.copy_from_slice(&crc32c(0, body).to_le_bytes());
        out
    }

    /// Length of segment `i`.
    pub fn len(&self, i: usize) -> usize {
        self.lens.get(i).copied().unwrap_or(0) as usize
    }

    /// Whether all segments are empty.
    pub fn is_empty(&self) -> bool {
        self.lens.iter().all(|&len| len == 0)
    }

    /// Bytes on the wire from the preamble's end up to and with segment 2.
    fn before_data(&self) -> usize {
        let crc = if self.len(0) > 0 { CRC_BYTES } else { 0 };
        let lens = self.lens.iter().take(DATA_SEGMENT);
        lens.fold(crc, |sum, &len| sum.saturating_add(len as usize))
    }

    /// Bytes that are kept of it while it is received.
    fn held_bytes(&self) -> usize {
        let data = if self.data_left_out { 0 } else { self.data_and_after() };
        self.before_data().saturating_add(data)
    }

    /// Bytes on the wire behind segment 2: the data segment and the epilogue.
    fn data_and_after(&self) -> usize {
        let epilogue = if self.segments > 1 { EPILOGUE_BYTES } else { 0 };
        self.len(DATA_SEGMENT).saturating_add(epilogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preambles_round_trip() {
        for lens in [[0; 4], [41, 0, 0, 0], [41, 200, 0, 4096], [41, 7, 9, 0]] {
            let p = Preamble::new(Tag::Message, lens);
            assert_eq!(Preamble::parse(&p.to_bytes()), Ok(p));
        }
        let counts = |lens| Preamble::new(Tag::Message, lens).segments;
        assert_eq!((counts([0; 4]), counts([41, 0, 0, 1])), (1, 4));
    }

    /// A preamble with these first bytes and a right crc.
    fn forged(tag: u8, segments: u8, lens: [u32; 4]) -> [u8; PREAMBLE_BYTES] {
        let data_left_out = false;
        let forged = Preamble { tag: Tag::Message, segments: 4, lens, data_left_out };
        let mut bytes = forged.to_bytes();
        bytes[0] = tag;
        bytes[1] = segments;
        let crc = crc32c(0, &bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn impossible_preambles_are_refused() {
        let parse = |tag, segments, lens| Preamble::parse(&forged(tag, segments, lens));
        assert!(parse(17, 4, [41, 1, 1, 1]).is_ok());
        assert_eq!(parse(0, 1, [1, 0, 0, 0]), Err(ProtocolError::UnknownTag(0)));
        assert_eq!(parse(21, 1, [1, 0, 0, 0]), Err(ProtocolError::UnknownTag(21)));
        assert_eq!(parse(17, 0, [1; 4]), Err(ProtocolError::SegmentCount(0)));
        assert_eq!(parse(17, 5, [1; 4]), Err(ProtocolError::SegmentCount(5)));
        assert_eq!(parse(17, 2, [41, 0, 0, 0]), Err(ProtocolError::EmptyLastSegment));
        for lens in [[41, u32::MAX, 1, 1], [41, 1, u32::MAX, u32::MAX]] {
            let too_long = parse(17, 4, lens).unwrap_err();
            assert!(matches!(too_long, ProtocolError::FrameTooLong { .. }));
        }
        let data = (MAX_MESSAGE_FRAME_BYTES - 43) as u32;
        let left_out = |data| parse(17, 4, [41, 1, 1, data]).unwrap().data_left_out;
        assert_eq!([data, data + 1, u32::MAX].map(left_out), [false, true, true]);
        let too_long = parse(1, 1, [1 << 20, 0, 0, 0]).unwrap_err();
        assert!(matches!(too_long, ProtocolError::FrameTooLong { .. }));
        let mut flipped = forged(17, 4, [41, 1, 1, 1]);
        flipped[3] ^= 1;
        let bad = Preamble::parse(&flipped).unwrap_err();
        assert!(matches!(bad, ProtocolError::PreambleCrc { .. }));
    }
}
