//! The checksum of everything on the wire and on disk.

/// CRC-32C without any inversion (`ceph_crc32c`): a register update starting from `seed`.
///
/// Ceph starts from `0xffff_ffff` for frame segments, maps and stored blocks, and from 0 for the
/// frame preamble. Continuing is `crc32c(crc32c(seed, a), b)`.
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_ceph_values() {
        assert_eq!(crc32c(0xffff_ffff, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(crc32c(0, b"123456789"), 0x58e3_fa20);
        assert_eq!(crc32c(0xffff_ffff, b""), 0xffff_ffff);
        assert_eq!(crc32c(crc32c(5, b"1234"), b"56789"), crc32c(5, b"123456789"));
    }
}
