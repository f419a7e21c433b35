//! The header of a message, segment 0 of a MESSAGE frame.

use crate::ProtocolError;
use bytes::{Buf, BufMut};

/// Bytes of a message header.
pub const HEADER_BYTES: usize = 41;
/// What Ceph sets in `flags`: complete, and no old-style checksums.
pub const HEADER_FLAGS: u8 = 3;

/// `ceph_msg_header2` (`include/msgr.h`, guide §1.8), 41 bytes.
///
/// | at | field |
/// |---|---|
/// | 0 | u64 seq, u64 tid |
/// | 16 | u16 type, u16 priority, u16 version |
/// | 22 | u32 data_pre_padding_len, u16 data_off |
/// | 28 | u64 ack_seq, u8 flags, u16 compat_version, u16 reserved |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Counts the messages of a direction, from 1.
    pub seq: u64,
    /// The sender's transaction id; a reply carries its request's.
    pub tid: u64,
    /// What it is, see [`crate::msg::kind`].
    pub kind: u16,
    /// Higher is more urgent; informative.
    pub priority: u16,
    /// Version of the payload.
    pub version: u16,
    /// Unused, 0.
    pub data_pre_padding_len: u32,
    /// Low bits of the offset of the data in its file; a hint for alignment.
    pub data_off: u16,
    /// The last message the sender received.
    pub ack_seq: u64,
    /// See [`HEADER_FLAGS`]; receivers ignore it.
    pub flags: u8,
    /// The oldest version whose decoder can read the payload.
    pub compat: u16,
    /// Unused, 0.
    pub reserved: u16,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            seq: 0,
            tid: 0,
            kind: 0,
            priority: super::PRIORITY_DEFAULT,
            version: 1,
            data_pre_padding_len: 0,
            data_off: 0,
            ack_seq: 0,
            flags: HEADER_FLAGS,
            compat: 1,
            reserved: 0,
        }
    }
}

impl Header {
    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut b = out.as_mut_slice();
        b.put_u64_le(self.seq);
        b.put_u64_le(self.tid);
        b.put_u16_le(self.kind);
        b.put_u16_le(self.priority);
        b.put_u16_le(self.version);
        b.put_u32_le(self.data_pre_padding_len);
        b.put_u16_le(self.data_off);
        b.put_u64_le(self.ack_seq);
        b.put_u8(self.flags);
        b.put_u16_le(self.compat);
        b.put_u16_le(self.reserved);
        out
    }

    /// Reads segment 0 of a MESSAGE frame.
    ///
    /// # Errors
    /// When it is not 41 bytes long.
    pub fn parse(segment: &[u8]) -> Result<Header, ProtocolError> {
        let bytes = segment.len();
        let whole: &[u8; HEADER_BYTES] =
            segment.try_into().map_err(|_| ProtocolError::HeaderLength { bytes })?;
        let mut b = whole.as_slice();
        Ok(Header {
            seq: b.get_u64_le(),
            tid: b.get_u64_le(),
            kind: b.get_u16_le(),
            priority: b.get_u16_le(),
            version: b.get_u16_le(),
            data_pre_padding_len: b.get_u32_le(),
            data_off: b.get_u16_le(),
            ack_seq: b.get_u64_le(),
            flags: b.get_u8(),
            compat: b.get_u16_le(),
            reserved: b.get_u16_le(),
        })
    }
}
