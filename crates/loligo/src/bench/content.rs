//! What is written: patterns, or blocks that can be told from all others.
//!
//! A verified block, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `LOLIGOBN` |
//! | 8..16 | its place: the offset in the image, or in the objects of all jobs one behind the other |
//! | 16..20 | which write of the run it is, of those to this place from 1 on |
//! | 20..24 | the run |
//! | 24..28 | 0 |
//! | 28..32 | CRC-32C of the rest, begun with the low half of the place |
//! | 32.. | a pattern |

use bytes::Bytes;
use io::{AlignedBuf, Rng};

/// Different patterns, so that no disk knows them all.
const PATTERNS: usize = 16;
/// The same for blocks larger than [`SMALL_BYTES`].
const LARGE_PATTERNS: usize = 2;
const SMALL_BYTES: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"LOLIGOBN";
const STAMP_BYTES: usize = 32;

/// Contents of one size.
pub(super) struct Content {
    patterns: Vec<Bytes>,
    next: usize,
    /// Where in the patterns the next piece begins.
    at: usize,
    run: u32,
}

/// The 32 bytes that a verified block begins with.
fn stamp(run: u32, place: u64, number: u32, rest: &[u8]) -> [u8; STAMP_BYTES] {
    let mut out = [0; STAMP_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&place.to_le_bytes());
    out[16..20].copy_from_slice(&number.to_le_bytes());
    out[20..24].copy_from_slice(&run.to_le_bytes());
    out[28..].copy_from_slice(&denc::crc32c(place as u32, rest).to_le_bytes());
    out
}

impl Content {
    pub fn new(rng: &mut Rng, bytes: usize, run: u32) -> Self {
        let number = if bytes > SMALL_BYTES { LARGE_PATTERNS } else { PATTERNS };
        let mut one = || {
            let mut buf = AlignedBuf::zeroed(bytes);
            rng.fill(buf.as_mut_slice());
            buf.freeze()
        };
        Content { patterns: (0..number).map(|_| one()).collect(), next: 0, at: 0, run }
    }

    /// So many bytes of the next pattern. Nothing is copied.
    pub fn plain(&mut self, bytes: usize) -> Bytes {
        self.next = (self.next + 1) % self.patterns.len();
        let pattern = &self.patterns[self.next];
        if self.next == 0 {
            self.at += bytes;
        }
        if self.at + bytes > pattern.len() {
            self.at = 0;
        }
        pattern.slice(self.at..self.at + bytes)
    }

    /// A block that can be verified.
    pub fn stamped(&mut self, bytes: usize, place: u64, number: u32) -> Bytes {
        let mut buf = AlignedBuf::copy_of(&self.plain(bytes));
        let (head, rest) = buf.as_mut_slice().split_at_mut(STAMP_BYTES);
        head.copy_from_slice(&stamp(self.run, place, number, rest));
        buf.freeze()
    }

    /// Whether this is what was written to `place` the `number`th time; what it is else.
    pub fn check(&self, data: &[u8], place: u64, number: u32) -> Result<(), String> {
        let Some((head, rest)) = data.split_at_checked(STAMP_BYTES) else {
            return Err(format!("{} bytes are there", data.len()));
        };
        if *head == stamp(self.run, place, number, rest) {
            return Ok(());
        }
        let word = |at: usize| {
            head.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let its_place = u64::from(word(12)) << 32 | u64::from(word(8));
        Err(if head[..8] != MAGIC {
            "it was never written by this program".to_owned()
        } else if word(20) != self.run {
            "it is of another run".to_owned()
        } else if its_place != place {
            format!("it belongs to {its_place}")
        } else if word(16) != number {
            format!("it is write {} of this place, not {number}", word(16))
        } else {
            "its checksum is wrong".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_by_place_number_run_and_checksum() {
        let mut content = Content::new(&mut Rng::with_seed(1), 4096, 5);
        let block = content.stamped(4096, 1 << 33, 2);
        assert!(AlignedBuf::is_aligned(&block));
        assert_eq!(content.check(&block, 1 << 33, 2), Ok(()));
        let why = |data: &[u8], place, number| content.check(data, place, number).unwrap_err();
        assert_eq!(why(&block, 0, 2), "it belongs to 8589934592");
        assert_eq!(why(&block, 1 << 33, 3), "it is write 2 of this place, not 3");
        let mut rotten = block.to_vec();
        rotten[4095] ^= 1;
        assert_eq!(why(&rotten, 1 << 33, 2), "its checksum is wrong");
        assert_eq!(why(&block[..7], 0, 1), "7 bytes are there");
        assert_eq!(why(&[0; 4096], 0, 1), "it was never written by this program");
        let other = Content::new(&mut Rng::with_seed(1), 4096, 6);
        assert_eq!(other.check(&block, 1 << 33, 2).unwrap_err(), "it is of another run");
    }

    #[test]
    fn patterns_differ() {
        let mut content = Content::new(&mut Rng::with_seed(1), 4 << 20, 5);
        let all: Vec<Bytes> = (0..10).map(|_| content.plain(4096)).collect();
        for (n, one) in all.iter().enumerate() {
            assert!(AlignedBuf::is_aligned(one) && !all[..n].contains(one), "{n}");
        }
        assert_eq!(content.plain(4 << 20).len(), 4 << 20);
        assert_eq!(content.plain(4096).len(), 4096);
    }
}
