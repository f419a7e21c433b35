//! Reading.

use crate::Decode;
use bytes::Bytes;
use std::fmt;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// `need` more bytes were expected than there are.
    Truncated {
        /// How many bytes the next value takes.
        need: usize,
    },
    /// The encoder says that only decoders of this version or newer can read it.
    TooNew {
        /// The version it asks for.
        compat: u8,
    },
    /// The value is impossible; the text says why.
    Invalid(&'static str),
    /// Bytes were left over where none may be.
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// Outside bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode: {kind} at byte {at}")]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Offset in the buffer that was decoded.
    pub at: usize,
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeErrorKind::Truncated { need } => write!(f, "{need} more bytes expected"),
            DecodeErrorKind::TooNew { compat } => {
                write!(f, "needs a decoder of version {compat} or newer")
            }
            DecodeErrorKind::Invalid(why) => f.write_str(why),
            DecodeErrorKind::Trailing { bytes } => write!(f, "{bytes} bytes left over"),
        }
    }
}

/// A position in bytes that values are read from.
///
/// Reads of whole byte ranges ([`Decoder::take`]) are slices of the same allocation, not copies.
#[derive(Debug)]
pub struct Decoder<'a> {
    buf: &'a Bytes,
    pos: usize,
    end: usize,
}

impl<'a> Decoder<'a> {
    /// Reads from the start of `buf`.
    pub fn new(buf: &'a Bytes) -> Self {
        Decoder { buf, pos: 0, end: buf.len() }
    }

    /// Bytes left before the end, or before the end of the current section.
    pub fn remaining(&self) -> usize {
        self.end.saturating_sub(self.pos)
    }

    /// Offset from the start of the buffer.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// An error at the current position.
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { kind, at: self.pos }
    }

    /// An [`DecodeErrorKind::Invalid`] at the current position.
    pub fn invalid(&self, why: &'static str) -> DecodeError {
        self.error(DecodeErrorKind::Invalid(why))
    }

    /// Reads one value.
    ///
    /// # Errors
    /// See [`Decode::decode`].
    pub fn get<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take_slice(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let truncated = self.error(DecodeErrorKind::Truncated { need: n });
        let next = self.pos.checked_add(n).filter(|&e| e <= self.end).ok_or(truncated)?;
        let slice = self.buf.get(self.pos..next).ok_or(truncated)?;
        self.pos = next;
        Ok(slice)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let truncated = self.error(DecodeErrorKind::Truncated { need: N });
        self.take_slice(N)?.first_chunk().copied().ok_or(truncated)
    }

    /// The next `n` bytes, sharing the buffer's allocation.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        let from = self.pos;
        self.take_slice(n)?;
        Ok(self.buf.slice(from..self.pos))
    }

    /// A `u32` length and that many bytes: Ceph's string and bufferlist.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take_bytes(&mut self) -> Result<Bytes, DecodeError> {
        let n = self.count()?;
        self.take(n)
    }

    /// What [`crate::Encoder::put_varint`] appends.
    ///
    /// # Errors
    /// When bytes are missing, or the number does not fit.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let left = self.buf.get(self.pos..self.end).unwrap_or_default();
        let (value, rest) = crate::read_varint(left).map_err(|why| self.invalid(why))?;
        self.pos = self.end.saturating_sub(rest.len());
        Ok(value)
    }

    /// What [`crate::Encoder::put_varint`] appended of a `u32`.
    ///
    /// # Errors
    /// When bytes are missing, or the number does not fit.
    pub fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.invalid("a number is too large"))
    }

    /// What [`crate::Encoder::put_varint_signed`] appends.
    ///
    /// # Errors
    /// When bytes are missing, or the number does not fit.
    pub fn varint_signed(&mut self) -> Result<i64, DecodeError> {
        self.varint().map(crate::unzigzag)
    }

    /// A `u32` count. It is a claim: never allocate for it before the elements are seen.
    ///
    /// # Errors
    /// When fewer than four bytes are left.
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        let n: u32 = self.get()?;
        Ok(n as usize)
    }

    /// Skips `n` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take_slice(n).map(|_| ())
    }

    /// Reads a versioned section (`DECODE_START .. DECODE_FINISH`): `known` is the newest version
    /// we can read, `body` gets the version found. What the body leaves over is skipped, since a
    /// newer encoder may append fields.
    ///
    /// # Errors
    /// When the section needs a newer decoder, is longer than the bytes, or the body fails.
    pub fn section<T>(
        &mut self,
        known: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let [v, compat] = self.take_array()?;
        if compat > known {
            return Err(self.error(DecodeErrorKind::TooNew { compat }));
        }
        self.framed(|d| body(d, v))
    }

    /// Reads a `u32` length and runs `body` on just that many bytes; what it leaves is skipped.
    ///
    /// # Errors
    /// When fewer bytes are left than the length says, or the body fails.
    pub fn framed<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let len = self.count()?;
        let truncated = self.error(DecodeErrorKind::Truncated { need: len });
        let end = self.pos.checked_add(len).filter(|&e| e <= self.end).ok_or(truncated)?;
        let outer = std::mem::replace(&mut self.end, end);
        let result = body(self);
        self.end = outer;
        let value = result?;
        self.pos = end;
        Ok(value)
    }

    /// Ends the decoding.
    ///
    /// # Errors
    /// When bytes are left over.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            bytes => Err(self.error(DecodeErrorKind::Trailing { bytes })),
        }
    }
}
