//! Memory that a disk can read and write directly.

use bytes::Bytes;
use std::fmt;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The unit of the store and the alignment of every disk transfer: 4 KiB.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Page>() == BLOCK_BYTES && align_of::<Page>() == BLOCK_BYTES);

/// A buffer whose address and capacity are multiples of [`BLOCK_BYTES`], as O_DIRECT wants.
#[derive(Default)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When the memory cannot be had.
    pub fn zeroed(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(BLOCK_BYTES)).expect("out of memory");
        AlignedBuf { pages, len }
    }

    /// A copy of `data`.
    pub fn copy_of(data: &[u8]) -> Self {
        let mut buf = AlignedBuf::zeroed(data.len());
        buf.as_mut_slice().copy_from_slice(data);
        buf
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit, a multiple of [`BLOCK_BYTES`].
    pub fn capacity(&self) -> usize {
        self.pages.len() * BLOCK_BYTES
    }

    /// Changes the number of bytes in use, up to the capacity. Bytes that come in are whatever the
    /// buffer held there before.
    ///
    /// # Panics
    /// When `len` is over the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "an aligned buffer does not grow");
        self.len = len;
    }

    /// The bytes in use.
    pub fn as_slice(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }

    /// The bytes in use.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }

    /// As shared bytes, without copying.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Whether `data` could be handed to an O_DIRECT transfer as it is.
    pub fn is_aligned(data: &[u8]) -> bool {
        data.as_ptr().addr().is_multiple_of(BLOCK_BYTES) && data.len().is_multiple_of(BLOCK_BYTES)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_its_bytes() {
        let mut buf = AlignedBuf::zeroed(5000);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        buf.as_mut_slice()[4999] = 7;
        buf.set_len(8192);
        let bytes = buf.freeze();
        assert!(AlignedBuf::is_aligned(&bytes));
        assert_eq!((bytes[4999], bytes[5000]), (7, 0));
        assert!(!AlignedBuf::is_aligned(&bytes[512..]));
    }
}
