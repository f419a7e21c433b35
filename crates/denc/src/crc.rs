//! The checksum of everything on the wire and on disk.

use crc_fast::{CrcAlgorithm, Digest};

/// From so many bytes on, carry-less multiplication is the faster way: of 4 KiB that are in no cache it takes
/// 0.7 us instead of 1.0, of 4 MiB half the time (docs/latency.md).
const LONG_BYTES: usize = 1024;

/// CRC-32C without any inversion (`ceph_crc32c`): a register update starting from `seed`.
///
/// Ceph starts from `0xffff_ffff` for frame segments, maps and stored blocks, and from 0 for the
/// frame preamble. Continuing is `crc32c(crc32c(seed, a), b)`.
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    if data.len() < LONG_BYTES {
        return !::crc32c::crc32c_append(!seed, data);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    !(digest.finalize() as u32)
}

/// The [`crc32c`] of some bytes, from `0xffff_ffff` on, if somebody has worked it out: frames and stored
/// blocks have the same one, so that bytes that come in a frame of their own are gone through once.
///
/// It is no part of the value it stands beside: all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownCrc(Option<u32>);

impl KnownCrc {
    /// Nobody has.
    pub const NONE: KnownCrc = KnownCrc(None);

    /// This is it.
    pub fn of(crc: u32) -> Self {
        KnownCrc(Some(crc))
    }

    /// The crc, worked out of the bytes if need be.
    pub fn or_of(self, bytes: &[u8]) -> u32 {
        self.0.unwrap_or_else(|| crc32c(u32::MAX, bytes))
    }

    /// Whether it is known.
    pub fn is_some(self) -> bool {
        self.0.is_some()
    }

    /// That of `part` bytes out of `whole`: known only if they are all of them.
    #[must_use]
    pub fn of_part(self, part: usize, whole: usize) -> Self {
        if part == whole { self } else { KnownCrc::NONE }
    }
}

impl PartialEq for KnownCrc {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KnownCrc {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_of_all_bytes_or_worked_out() {
        let known = KnownCrc::of(7);
        assert_eq!(known.or_of(b"123456789"), 7);
        assert_eq!(known.of_part(9, 9).or_of(b"123456789"), 7);
        assert_eq!(known.of_part(8, 9).or_of(b"123456789"), 0x1cf9_6d7c);
        assert!(known == KnownCrc::NONE && known.is_some() && !KnownCrc::NONE.is_some());
    }

    #[test]
    fn both_ways_give_the_same() {
        let bytes: Vec<u8> = (0..3 * LONG_BYTES as u32).map(|i| ((i * i) >> 3) as u8).collect();
        let by_bits = |seed: u32, data: &[u8]| {
            data.iter().fold(seed, |crc, byte| {
                let bit = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
                (0..8).fold(crc ^ u32::from(*byte), bit)
            })
        };
        let lens = (0..20).chain(LONG_BYTES - 20..LONG_BYTES + 300).chain([3 * LONG_BYTES - 3]);
        for (seed, len) in [0, u32::MAX, 0x1234_5678].into_iter().cycle().zip(lens) {
            let data = &bytes[len % 3..][..len];
            assert_eq!(crc32c(seed, data), by_bits(seed, data), "{len} bytes from {seed:x} on");
            let (first, rest) = data.split_at(len / 3);
            assert_eq!(crc32c(crc32c(seed, first), rest), by_bits(seed, data));
        }
    }

    #[test]
    fn gives_ceph_values() {
        assert_eq!(crc32c(0xffff_ffff, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(crc32c(0, b"123456789"), 0x58e3_fa20);
        assert_eq!(crc32c(0xffff_ffff, b""), 0xffff_ffff);
        assert_eq!(crc32c(crc32c(5, b"1234"), b"56789"), crc32c(5, b"123456789"));
    }
}
