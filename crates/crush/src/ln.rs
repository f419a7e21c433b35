//! `crush_ln`: a fixed-point logarithm from two small tables (`crush/crush_ln_table.h`).
//!
//! The published tables are not quite the function they describe: most of the second one was once
//! computed with an error, and every client has those values. So the tables are generated at
//! compile time from their definition and the known deviations. A test holds the result against
//! the SHA-256 of all 65,536 values.

/// The entries of the second table that are right; so are all from [`LL_RIGHT_FROM`].
const LL_RIGHT: [usize; 13] = [0, 1, 203, 216, 222, 233, 237, 238, 239, 243, 244, 245, 246];
const LL_RIGHT_FROM: usize = 248;
/// What the other entries are too large by, except those of [`LL_ODD`].
const LL_ERROR: u64 = 0x1_4770_0000;
/// Entries of the second table that are off in their own way.
const LL_ODD: [(usize, u64); 23] = [
    (56, 0x0a2_b07f_3458),
    (127, 0x16d_f6ca_19bd),
    (134, 0x182_b07f_3458),
    (181, 0x209_c06e_6212),
    (184, 0x212_b07f_3458),
    (188, 0x21d_6a73_a78f),
    (193, 0x22c_2367_9b4e),
    (198, 0x23a_2c3b_0ea4),
    (199, 0x23d_13ee_805b),
    (200, 0x240_35e9_221f),
    (207, 0x254_9264_4d65),
    (210, 0x25d_13ee_805b),
    (212, 0x262_9645_3882),
    (225, 0x287_bdbf_5255),
    (227, 0x28d_13ee_805b),
    (228, 0x290_35e9_221f),
    (229, 0x292_9645_3882),
    (231, 0x299_02a3_7aab),
    (235, 0x2a4_c760_5d61),
    (236, 0x2a7_bdbf_5255),
    (240, 0x2b2_9645_3882),
    (241, 0x2b5_d022_d80f),
    (247, 0x2c6_1a5e_8f4c),
];

/// `RH[k] = ceil(2^48 / (1 + k/128))` and `LH[k] = floor(2^48 * log2(1 + k/128))` side by side,
/// since they are used together. `LH[128]` is a little less than 2^48.
static RH_LH: [(u64, u64); 129] = {
    let mut table = [(0, 0); 129];
    let mut k = 0;
    while k < 129 {
        let denominator = 128 + k as u64;
        let rh = (1u64 << 55).div_ceil(denominator);
        table[k] = (rh, log2_fraction(denominator, 7));
        k += 1;
    }
    table[128].1 = 0xffff_0000_0000;
    table
};

/// `LL[k] = floor(2^48 * log2(1 + k/2^15))`, with the deviations.
static LL: [u64; 256] = {
    let mut table = [0; 256];
    let mut k = 0;
    while k < 256 {
        table[k] = log2_fraction((1 << 15) + k as u64, 15);
        if k < LL_RIGHT_FROM {
            table[k] += LL_ERROR;
        }
        k += 1;
    }
    let mut i = 0;
    while i < LL_RIGHT.len() {
        table[LL_RIGHT[i]] -= LL_ERROR;
        i += 1;
    }
    let mut i = 0;
    while i < LL_ODD.len() {
        table[LL_ODD[i].0] = LL_ODD[i].1;
        i += 1;
    }
    table
};

/// `floor(2^48 * log2(n / 2^shift))` for `n / 2^shift` in 1..=2: one bit for each squaring of the
/// value, which is kept with 126 bits after the point. The error doubles with each of the 48
/// steps and stays below 2^-77, while no value of the tables comes that near to a power of two.
const fn log2_fraction(n: u64, shift: u32) -> u64 {
    const POINT: u32 = 126;
    let mut value = (n as u128) << (POINT - shift);
    if value >> POINT >= 2 {
        return 1 << 48;
    }
    let mut bits = 0;
    let mut i = 0;
    while i < 48 {
        value = square(value);
        bits <<= 1;
        if value >> (POINT + 1) != 0 {
            bits |= 1;
            value >>= 1;
        }
        i += 1;
    }
    bits
}

/// The square of a number with 126 bits after the point, cut off.
const fn square(v: u128) -> u128 {
    let (hi, lo) = (v >> 64, v & u64::MAX as u128);
    let middle = hi * lo;
    // v^2 = hi^2 * 2^128 + middle * 2^65 + lo^2, wanted / 2^126.
    let low = ((lo * lo) >> 64) + ((middle & ((1 << 63) - 1)) << 1);
    ((hi * hi) << 2) + ((middle >> 63) << 2) + (low >> 62)
}

/// 2^44 * log2(x + 1) for x in 0..=65535, as all clients compute it.
#[inline(always)]
pub fn crush_ln(x: u16) -> u64 {
    let mut x = u32::from(x) + 1;
    let mut exponent = 15;
    if x & 0x1_8000 == 0 {
        let bits = (x & 0x1_ffff).leading_zeros() - 16;
        x <<= bits;
        exponent = 15 - bits;
    }
    // x is now in 2^15..=2^16, so both indices are in range whatever the input was.
    let (rh, lh) = RH_LH[((x >> 8) as usize).wrapping_sub(128).min(128)];
    let fine = (u64::from(x).wrapping_mul(rh) >> 48) as u8;
    (u64::from(exponent) << 44) + ((lh + LL[usize::from(fine)]) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_is_in_range_and_known_values_are_met() {
        for (x, ln) in [
            (0, 0),
            (1, 0x1000_0000_0000),
            (2, 0x195c_01a3_9fbd),
            (100, 0x6a88_08c3_8454),
            (32767, 0xf000_0000_0000),
            (65534, 0xffff_fd61_ad10),
            (65535, 0xffff_f000_0000),
        ] {
            assert_eq!(crush_ln(x), ln, "{x}");
        }
        assert!((0..=u16::MAX).all(|x| crush_ln(x) < 1 << 48));
    }
}
