//! The two hash functions of placement, both Bob Jenkins'.
//!
//! [`hash1`] .. [`hash5`] mix integers (`crush/hash.c`); [`str_hash_rjenkins`] turns an object's
//! name into the raw seed of its PG (`common/ceph_hash.cc`). Every value here is part of the
//! protocol: a client computes the same.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

/// The mixing step both hashes are made of. All three values change.
#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 13);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 8);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 13);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 12);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 16);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 5);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 3);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 10);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 15);
}

/// `crush_hash32`.
pub fn hash1(mut a: u32) -> u32 {
    let (mut b, mut x, mut y) = (a, X, Y);
    let mut h = SEED ^ a;
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    h
}

/// `crush_hash32_2`.
#[inline]
pub fn hash2(mut a: u32, mut b: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut h = SEED ^ a ^ b;
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// `crush_hash32_3`.
#[inline(always)]
pub fn hash3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut h = SEED ^ a ^ b ^ c;
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// As many [`hash3`] are computed side by side by [`hash3_lanes`].
pub(crate) const LANES: usize = 8;

/// A number for each lane. Each operation is one loop over the lanes, which compiles to vector
/// instructions.
#[derive(Clone, Copy)]
struct Lanes([u32; LANES]);

impl Lanes {
    /// `(self - b - c) ^ shifted`
    #[inline(always)]
    fn step(self, b: Lanes, c: Lanes, shifted: impl Fn(u32) -> u32, by: Lanes) -> Lanes {
        let mut out = [0; LANES];
        for (i, lane) in out.iter_mut().enumerate() {
            *lane = self.0[i].wrapping_sub(b.0[i]).wrapping_sub(c.0[i]) ^ shifted(by.0[i]);
        }
        Lanes(out)
    }
}

#[inline(always)]
fn mix_lanes(a: &mut Lanes, b: &mut Lanes, c: &mut Lanes) {
    *a = a.step(*b, *c, |c| c >> 13, *c);
    *b = b.step(*c, *a, |a| a << 8, *a);
    *c = c.step(*a, *b, |b| b >> 13, *b);
    *a = a.step(*b, *c, |c| c >> 12, *c);
    *b = b.step(*c, *a, |a| a << 16, *a);
    *c = c.step(*a, *b, |b| b >> 5, *b);
    *a = a.step(*b, *c, |c| c >> 3, *c);
    *b = b.step(*c, *a, |a| a << 10, *a);
    *c = c.step(*a, *b, |b| b >> 15, *b);
}

/// [`hash3`] of `a`, each of the `b`s, and `c`.
#[inline]
pub(crate) fn hash3_lanes(a: u32, b: [u32; LANES], c: u32) -> [u32; LANES] {
    let h = b.map(|b| SEED ^ a ^ b ^ c);
    let [mut a, mut c, mut x, mut y] = [a, c, X, Y].map(|word| Lanes([word; LANES]));
    let (mut b, mut h) = (Lanes(b), Lanes(h));
    mix_lanes(&mut a, &mut b, &mut h);
    mix_lanes(&mut c, &mut x, &mut h);
    mix_lanes(&mut y, &mut a, &mut h);
    mix_lanes(&mut b, &mut x, &mut h);
    mix_lanes(&mut y, &mut c, &mut h);
    h.0
}

/// `crush_hash32_4`.
#[inline]
pub fn hash4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut h = SEED ^ a ^ b ^ c ^ d;
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}

/// `crush_hash32_5`.
pub fn hash5(mut a: u32, mut b: u32, mut c: u32, mut d: u32, mut e: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut h = SEED ^ a ^ b ^ c ^ d ^ e;
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut e, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    mix(&mut d, &mut x, &mut h);
    mix(&mut y, &mut e, &mut h);
    h
}

/// The hash of an object's name (`ceph_str_hash_rjenkins`): lookup2 with a zero initial value.
///
/// Twelve bytes a round; of the rest the last four lie above the lowest byte of `c`, which holds
/// the length.
pub fn str_hash_rjenkins(name: &[u8]) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, 0u32);
    let mut rounds = name.chunks_exact(12);
    for round in &mut rounds {
        let (x, rest) = le_word(round);
        let (y, rest) = le_word(rest);
        let (z, _) = le_word(rest);
        a = a.wrapping_add(x);
        b = b.wrapping_add(y);
        c = c.wrapping_add(z);
        mix(&mut a, &mut b, &mut c);
    }
    let (x, rest) = le_word(rounds.remainder());
    let (y, rest) = le_word(rest);
    let (z, _) = le_word(rest);
    a = a.wrapping_add(x);
    b = b.wrapping_add(y);
    c = c.wrapping_add(name.len() as u32).wrapping_add(z << 8);
    mix(&mut a, &mut b, &mut c);
    c
}

/// Up to four bytes as a little-endian number, and what follows them.
#[inline]
fn le_word(bytes: &[u8]) -> (u32, &[u8]) {
    let (word, rest) = bytes.split_at(bytes.len().min(4));
    let value = word.iter().rev().fold(0u32, |acc, &byte| acc << 8 | u32::from(byte));
    (value, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_by_side_is_one_by_one() {
        let b = [0, 1, u32::MAX, 7, 1 << 31, 12, 99, 0xdead_beef];
        for (a, c) in [(0, 0), (5, 1), (u32::MAX, 50)] {
            assert_eq!(hash3_lanes(a, b, c), b.map(|b| hash3(a, b, c)));
        }
    }

    #[test]
    fn fixed_values() {
        // From vectors/hash (hash2..4, names); hash1 and hash5 as the published code computes them.
        assert_eq!(hash2(1, 2), 0xb78d_ee9c);
        assert_eq!(hash3(1, 2, 3), 0x735a_d42b);
        assert_eq!(hash4(1, 2, 3, 4), 0x696d_1f16);
        assert_eq!(str_hash_rjenkins(b""), 0xbd49_d10d);
        assert_eq!(str_hash_rjenkins(b"foo"), 0x7fc1_f406);
        assert_eq!(str_hash_rjenkins(b"abcdefghijkl"), 0x0b1b_3ea5);
        assert_ne!(hash1(1), hash1(2));
        assert_ne!(hash5(1, 2, 3, 4, 5), hash5(1, 2, 3, 5, 4));
    }
}
