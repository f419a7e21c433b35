//! Reading and writing numbers in our own disk formats.
//!
//! Everything read here came from a disk: each access is checked, nothing panics, and a length is
//! never trusted for an allocation.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

/// Appends what [`Reader::varint`] reads.
pub(crate) use denc::put_varint;

/// Bytes that are not what the format says; the text says what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

/// Result of decoding something from the disk.
pub(crate) type Decoded<T> = Result<T, Malformed>;

/// The checksum of everything that is stored.
pub(crate) fn block_crc(block: &[u8]) -> u32 {
    denc::crc32c(0xffff_ffff, block)
}

/// A position in bytes that values are read from.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed("ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed("ends too early"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of 1 to 10 bytes, 7 bits each, least significant first.
    pub(crate) fn varint(&mut self) -> Decoded<u64> {
        let (value, rest) = denc::read_varint(self.rest).map_err(Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// A [`Reader::varint`] that must fit 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Decoded<u32> {
        u32::try_from(self.varint()?).map_err(|_| Malformed("a number is too large"))
    }

    /// A count or length that is small enough to index with.
    pub(crate) fn count(&mut self) -> Decoded<usize> {
        usize::try_from(self.varint()?).map_err(|_| Malformed("a count is too large"))
    }

    /// A length and that many bytes.
    pub(crate) fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let n = self.count()?;
        self.take(n)
    }

    pub(crate) fn finish(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes are left over")) }
    }
}

/// Appends what [`Reader::bytes`] reads.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Overwrites `place` bytes of a fixed-size block; the callers' layouts are checked by their tests.
pub(crate) fn put_at<const N: usize>(block: &mut [u8], offset: usize, value: [u8; N]) {
    let place = block
        .get_mut(offset..)
        .and_then(|b| b.first_chunk_mut::<N>())
        .expect("a field lies within its block");
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(v in any::<u64>()) {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.varint(), Ok(v));
            prop_assert!(r.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_read_or_refused(b in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut r = Reader::new(&b);
            while r.varint().is_ok() {}
            let mut r = Reader::new(&b);
            while r.bytes().is_ok_and(|x| !x.is_empty()) {}
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        let eleven = [0xff; 11];
        assert!(Reader::new(&eleven).varint().is_err());
        let ten = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Reader::new(&ten).varint().is_err());
    }
}
