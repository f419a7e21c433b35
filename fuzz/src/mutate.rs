//! Damage: the kinds that decoders get wrong.

use io::Rng;

/// Inputs are not longer than this.
const MAX_BYTES: usize = 512 << 10;
/// Kinds of damage done to one input, at most.
const MAX_STEPS: usize = 4;
/// Numbers that lengths, counts and versions break at.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// A damaged sample.
pub fn mutate(rng: &mut Rng, samples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = samples[rng.usize(..samples.len())].clone();
    bytes.truncate(MAX_BYTES);
    for _ in 0..rng.usize(1..=MAX_STEPS) {
        step(rng, &mut bytes, samples);
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn step(rng: &mut Rng, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(rng.u8(..));
        return;
    }
    let at = place(rng, bytes.len());
    let len = rng.usize(1..=(bytes.len() - at).min(64));
    match rng.u8(..9) {
        0 => bytes[at] ^= 1 << rng.u8(..8),
        1 => bytes[at] = rng.u8(..),
        2 => write_edge(rng, bytes, at),
        3 => add_little(rng, bytes, at),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..at + len)),
        6 => {
            let piece: Vec<u8> = bytes[at..at + len].to_vec();
            let to = rng.usize(..=bytes.len());
            drop(bytes.splice(to..to, piece));
        }
        7 => {
            let other = &samples[rng.usize(..samples.len())];
            if !other.is_empty() {
                let from = rng.usize(..other.len());
                let end = (from + rng.usize(1..=256)).min(other.len());
                let until = (at + (end - from)).min(bytes.len());
                drop(bytes.splice(at..until, other[from..end].iter().copied()));
            }
        }
        _ => bytes.extend((0..len).map(|_| rng.u8(..))),
    }
}

/// Heads are hit more often: versions, lengths and counts stand there.
fn place(rng: &mut Rng, len: usize) -> usize {
    let within = if rng.bool() { len } else { len.min(64) };
    rng.usize(..within)
}

/// Overwrites a little-endian number of some width.
fn write_edge(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let edge = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
    let width = [1, 2, 4, 8][rng.usize(..4)];
    for (to, from) in bytes[at..].iter_mut().zip(&edge[..width]) {
        *to = *from;
    }
}

/// A number that is off by a little.
fn add_little(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let by = rng.u32(1..=16);
    if let Some(four) = bytes[at..].first_chunk_mut::<4>() {
        let old = u32::from_le_bytes(*four);
        let new = if rng.bool() { old.wrapping_add(by) } else { old.wrapping_sub(by) };
        *four = new.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads beyond its bytes when a length says so, as bad decoders do.
    fn bad_decoder(bytes: &[u8]) -> bool {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return false };
        u32::from_le_bytes(*len) as usize <= rest.len()
    }

    #[test]
    fn a_planted_bug_is_found() {
        let samples = [vec![8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]];
        assert!(bad_decoder(&samples[0]));
        let found = (0..1000).find(|n| !bad_decoder(&mutate(&mut Rng::with_seed(*n), &samples)));
        assert!(found.is_some(), "a dead search looks like a clean decoder");
    }

    #[test]
    fn the_same_seed_gives_the_same_input() {
        let samples = [vec![1; 100], vec![2; 300]];
        let make = || mutate(&mut Rng::with_seed(7), &samples);
        assert_eq!(make(), make());
    }
}
