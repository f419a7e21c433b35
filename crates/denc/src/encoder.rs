//! Writing.

use crate::Encode;
use bytes::Bytes;

/// A growing buffer that values are appended to.
#[derive(Debug)]
pub struct Encoder {
    buf: Vec<u8>,
}

/// Room that a new encoder has: most messages and records need no more, and growing step by step
/// would cost more than all the rest.
const FIRST_BYTES: usize = 256;

impl Default for Encoder {
    fn default() -> Self {
        Self::with_capacity(FIRST_BYTES)
    }
}

impl Encoder {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Encoder { buf: Vec::with_capacity(bytes) }
    }

    /// Appends to what `buf` holds already.
    pub fn append_to(buf: Vec<u8>) -> Self {
        Encoder { buf }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What is written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// The finished bytes.
    pub fn into_bytes(self) -> Bytes {
        self.buf.into()
    }

    /// The finished bytes as a vector.
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// Appends a value.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) -> &mut Self {
        value.encode(self);
        self
    }

    /// Appends bytes as they are, without a length.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends `u32` length and the bytes: Ceph's string and bufferlist.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.put_raw(bytes);
    }

    /// Appends a number in groups of seven bits ([`crate::put_varint`]).
    pub fn put_varint(&mut self, value: u64) {
        crate::put_varint(&mut self.buf, value);
    }

    /// Appends a number with a sign as an unsigned one ([`crate::zigzag`]) in groups of seven bits.
    pub fn put_varint_signed(&mut self, value: i64) {
        self.put_varint(crate::zigzag(value));
    }

    /// Appends a count of elements.
    ///
    /// # Panics
    /// When there are 2^32 of them or more, which no caller may build.
    pub fn put_count(&mut self, n: usize) {
        let n = u32::try_from(n).expect("a collection of 2^32 elements cannot be encoded");
        n.encode(self);
    }

    /// Appends a versioned section: `u8 v, u8 compat, u32 length` and what `body` writes
    /// (`ENCODE_START .. ENCODE_FINISH`).
    pub fn section(&mut self, v: u8, compat: u8, body: impl FnOnce(&mut Encoder)) {
        self.put_raw(&[v, compat]);
        self.framed(body);
    }

    /// Appends a `u32` length and what `body` writes.
    pub fn framed(&mut self, body: impl FnOnce(&mut Encoder)) {
        let at = self.buf.len();
        self.put_raw(&[0; 4]);
        body(self);
        let written = self.buf.len().saturating_sub(at).saturating_sub(4);
        let len = u32::try_from(written).expect("a section of 4 GiB cannot be encoded");
        self.patch_u32(at, len);
    }

    /// Overwrites four bytes at `at` with `value`.
    ///
    /// # Panics
    /// When those bytes are not written yet.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        let end = at.saturating_add(4);
        let place = self.buf.get_mut(at..end).expect("only written bytes are patched");
        place.copy_from_slice(&value.to_le_bytes());
    }
}
