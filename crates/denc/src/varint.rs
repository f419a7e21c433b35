//! Numbers in groups of seven bits, the lowest first, each but the last with the bit 0x80: 1 to 10 bytes
//! (`denc_varint` in Ceph's `include/denc.h`).

/// Appends a number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number that `bytes` begin with, and what is behind it.
///
/// # Errors
/// What is wrong, when the number ends too early or does not fit.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let (mut value, mut rest) = (0u64, bytes);
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or("ends too early")?;
        rest = behind;
        let bits = u64::from(byte & 0x7f);
        let placed = bits.checked_shl(shift).unwrap_or(0);
        if placed.checked_shr(shift) != Some(bits) {
            return Err("a number is too large");
        }
        value |= placed;
        if byte & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err("a number is too long")
}

/// A signed number as an unsigned one that is small when it is near zero.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The reverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ ((value & 1) as i64).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let read = |bytes: &[u8]| crate::Decoder::new(&Bytes::copy_from_slice(bytes)).varint();
        assert_eq!(read(&largest).unwrap(), u64::MAX);
        for (at, byte) in [(9, 2), (9, 0x81)] {
            let mut wrong = largest;
            wrong[at] = byte;
            assert!(read(&wrong).is_err());
        }
        assert!(read(&largest[..9]).is_err() && read(&[]).is_err());
    }

    proptest! {
        #[test]
        fn numbers_in_groups_of_seven_bits(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut e = crate::Encoder::new();
            e.put_varint(value);
            let bits = 64 - (value | 1).leading_zeros() as usize;
            prop_assert_eq!(e.len(), bits.div_ceil(7));
            let bytes = e.into_bytes();
            let mut d = crate::Decoder::new(&bytes);
            prop_assert_eq!(d.varint().unwrap(), value);
            prop_assert_eq!(d.remaining(), 0);
            prop_assert_eq!(crate::Decoder::new(&bytes).varint_u32().ok(), u32::try_from(value).ok());
        }

        #[test]
        fn numbers_with_a_sign(value in any::<i64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut e = crate::Encoder::new();
            e.put_varint_signed(value);
            prop_assert_eq!(e.len() == 1, (-64..64).contains(&value));
            prop_assert_eq!(crate::Decoder::new(&e.into_bytes()).varint_signed().unwrap(), value);
        }
    }
}
