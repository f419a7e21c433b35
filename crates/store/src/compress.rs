//! Compression of objects' bytes: what may be compressed how, and the doing of it.
//!
//! A run of whole blocks that a write brings is cut where its offset in the object is a multiple of
//! the largest blob, and each part is compressed by itself. It is stored compressed if that takes
//! fewer blocks, and no more than the required share of them, rounded up to a block (as BlueStore
//! does, `BlueStore.cc: _do_alloc_write`). Such a *blob* is never changed: blocks that are written
//! again leave it and stand by themselves, and when the last one has left, its space is free. Its
//! checksums are over what is stored.

use crate::keys::SHARD_BLOCKS;
use bytes::Bytes;
use io::{AlignedBuf, BLOCK_BYTES};

/// Effort of zstd, as Ceph's `compressor_zstd_level`.
const ZSTD_LEVEL: i32 = 1;
/// Blocks of content that a blob may have: it lies within one extent shard.
pub(crate) const MAX_BLOB_BLOCKS: u64 = SHARD_BLOCKS;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// LZ4, block format.
    Lz4 = 1,
    /// Zstandard.
    Zstd = 2,
}

impl Algorithm {
    pub(crate) fn from_byte(byte: u8) -> Option<Algorithm> {
        match byte {
            1 => Some(Algorithm::Lz4),
            2 => Some(Algorithm::Zstd),
            _ => None,
        }
    }
}

/// How the writes of a transaction are to be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compress {
    /// How.
    pub algorithm: Algorithm,
    /// Compressed bytes may be at most so many thousandths of the original ones.
    pub required_per_mille: u16,
    /// Shorter pieces are not compressed.
    pub min_blob_bytes: u32,
    /// Longer pieces are cut; at most 128 KiB count.
    pub max_blob_bytes: u32,
}

impl Compress {
    /// Blocks of the largest blob.
    pub(crate) fn max_blocks(&self) -> u64 {
        (u64::from(self.max_blob_bytes) / BLOCK_BYTES as u64).clamp(2, MAX_BLOB_BLOCKS)
    }

    /// Most blocks that compressing `blocks` blocks may leave; 0 when it is not worth trying.
    pub(crate) fn most(&self, blocks: u64) -> u64 {
        let bytes = blocks * BLOCK_BYTES as u64;
        if blocks < 2 || bytes < u64::from(self.min_blob_bytes) {
            return 0;
        }
        let share = bytes * u64::from(self.required_per_mille) / 1000;
        share.div_ceil(BLOCK_BYTES as u64).min(blocks - 1)
    }
}

/// Compressed bytes, filled up with zeros to whole blocks.
#[derive(Debug)]
pub(crate) struct Packed {
    pub data: Bytes,
    /// Bytes that count.
    pub bytes: u32,
}

/// The compressors with their working memory, which is kept from one call to the next.
#[derive(Default)]
pub(crate) struct Codec {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Codec")
    }
}

impl Codec {
    /// Compresses `data` into at most `most` blocks. `None` when it does not fit.
    pub fn pack(&mut self, algorithm: Algorithm, data: &[u8], most: u64) -> Option<Packed> {
        let room = most as usize * BLOCK_BYTES;
        let mut buf = AlignedBuf::zeroed(room);
        let out = buf.as_mut_slice();
        let bytes = match algorithm {
            Algorithm::Lz4 => {
                // It wants room for the worst case.
                let packed = lz4_flex::block::compress(data);
                out.get_mut(..packed.len())?.copy_from_slice(&packed);
                packed.len()
            }
            Algorithm::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.zstd.as_mut()?.compress_to_buffer(data, out).ok()?
            }
        };
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        out.get_mut(bytes..)?.fill(0);
        let data = buf.freeze().slice(..blocks * BLOCK_BYTES);
        Some(Packed { data, bytes: u32::try_from(bytes).ok()? })
    }

    /// The content of a blob: `len` bytes. `None` when these are not its bytes.
    pub fn unpack(&mut self, algorithm: Algorithm, packed: &[u8], len: usize) -> Option<Bytes> {
        let mut buf = AlignedBuf::zeroed(len);
        let out = buf.as_mut_slice();
        let got = match algorithm {
            Algorithm::Lz4 => lz4_flex::block::decompress_into(packed, out).ok()?,
            Algorithm::Zstd => {
                if self.unzstd.is_none() {
                    self.unzstd = zstd::bulk::Decompressor::new().ok();
                }
                self.unzstd.as_mut()?.decompress_to_buffer(packed, out).ok()?
            }
        };
        (got == len).then(|| buf.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LZ4: Compress = Compress {
        algorithm: Algorithm::Lz4,
        required_per_mille: 875,
        min_blob_bytes: 8 << 10,
        max_blob_bytes: 64 << 10,
    };

    #[test]
    fn what_may_be_compressed_follows_bluestore() {
        assert_eq!((LZ4.most(1), LZ4.most(2), LZ4.most(16)), (0, 1, 14));
        // 3.5 blocks round up to 4, which saves nothing.
        assert_eq!(LZ4.most(4), 3);
        assert_eq!(Compress { min_blob_bytes: 16 << 10, ..LZ4 }.most(3), 0);
        assert_eq!(Compress { max_blob_bytes: u32::MAX, ..LZ4 }.max_blocks(), 32);
    }

    #[test]
    fn incompressible_bytes_stay_as_they_are() {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        let data: Vec<u8> = (0..64 << 10).map(|_| noise()).collect();
        let mut codec = Codec::default();
        for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
            assert!(codec.pack(algorithm, &data, 15).is_none());
        }
    }

    proptest! {
        #[test]
        fn blobs_round_trip(piece in proptest::collection::vec(any::<u8>(), 1..200), blocks in 2usize..=32) {
            let data: Vec<u8> =
                piece.iter().copied().cycle().take(blocks * BLOCK_BYTES).collect();
            let mut codec = Codec::default();
            for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
                let packed = codec.pack(algorithm, &data, blocks as u64 - 1).expect("it repeats");
                let bytes = &packed.data[..packed.bytes as usize];
                let got = codec.unpack(algorithm, bytes, data.len()).expect("its bytes");
                prop_assert!(got == data);
                prop_assert!(codec.unpack(algorithm, bytes, data.len() + 1).is_none());
                prop_assert!(codec.unpack(algorithm, bytes, data.len() - 1).is_none());
            }
        }

        #[test]
        fn damaged_blobs_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let mut codec = Codec::default();
            for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
                let _ = codec.unpack(algorithm, &bytes, 8192);
            }
        }
    }
}
