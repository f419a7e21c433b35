//! The checksum of everything on the wire and on disk.

/// CRC-32C without any inversion (`ceph_crc32c`): a register update starting from `seed`.
///
/// Ceph starts from `0xffff_ffff` for frame segments, maps and stored blocks, and from 0 for the
/// frame preamble. Continuing is `crc32c(crc32c(seed, a), b)`.
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, data)
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
    fn gives_ceph_values() {
        assert_eq!(crc32c(0xffff_ffff, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(crc32c(0, b"123456789"), 0x58e3_fa20);
        assert_eq!(crc32c(0xffff_ffff, b""), 0xffff_ffff);
        assert_eq!(crc32c(crc32c(5, b"1234"), b"56789"), crc32c(5, b"123456789"));
    }
}
