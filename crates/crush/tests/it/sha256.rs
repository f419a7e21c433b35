//! SHA-256 (FIPS 180-4), to check a long table against one published value.

/// The digest in lower-case hex.
pub fn sha256(data: &[u8]) -> String {
    let roots = |power: f64, n: usize| -> Vec<u32> {
        let primes = (2u32..).filter(|n| (2..*n).all(|d| n % d != 0));
        primes
            .take(n)
            .map(|p| (f64::from(p).powf(power).fract() * 4_294_967_296.0) as u32)
            .collect()
    };
    let (mut state, constants) = (roots(0.5, 8), roots(1.0 / 3.0, 64));
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(data.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut w: Vec<u32> =
            block.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            let next = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]);
            w.push(next.wrapping_add(s1));
        }
        let mut v = state.clone();
        for (k, w) in constants.iter().zip(&w) {
            let (a, e) = (v[0], v[4]);
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let ch = (e & v[5]) ^ (!e & v[6]);
            let t1 = v[7].wrapping_add(s1).wrapping_add(ch);
            let t1 = t1.wrapping_add(*k).wrapping_add(*w);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(t1);
            v[0] = t1.wrapping_add(s0).wrapping_add(majority);
        }
        for (s, v) in state.iter_mut().zip(v) {
            *s = s.wrapping_add(v);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn known_digest() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
