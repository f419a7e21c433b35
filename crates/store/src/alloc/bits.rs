//! Bitmaps and runs of blocks.

use std::collections::BTreeMap;

/// Contiguous blocks of the data device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub start: u64,
    pub len: u32,
}

impl Run {
    pub fn new(start: u64, len: u64) -> Self {
        Run { start, len: u32::try_from(len).expect("a run of blocks has a 32-bit length") }
    }

    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// Adds a run to a list, joining it with the last one where they touch.
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}

/// One bit per block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

/// The bits of `start..start + len` that fall into one word: its index and mask.
pub(crate) fn masks(start: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = start + len;
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let word = at / 64;
        let (low, high) = (at % 64, (end - word * 64).min(64));
        at = (word + 1) * 64;
        let upper = if high == 64 { u64::MAX } else { (1 << high) - 1 };
        Some((word as usize, upper & (u64::MAX << low)))
    })
}

impl Bits {
    /// `len` clear bits, rounded up to whole words.
    pub fn new(len: u64) -> Self {
        Bits { words: vec![0; len.div_ceil(64) as usize] }
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Whether all bits of the range are `set`.
    pub fn all(&self, start: u64, len: u64, set: bool) -> bool {
        let want = |mask| if set { mask } else { 0 };
        masks(start, len).all(|(word, mask)| self.words[word] & mask == want(mask))
    }

    /// Sets bits that must be clear.
    pub fn set(&mut self, start: u64, len: u64) {
        for (word, mask) in masks(start, len) {
            assert_eq!(self.words[word] & mask, 0, "a block is taken twice near word {word}");
            self.words[word] |= mask;
        }
    }

    /// Clears bits that must be set.
    pub fn clear(&mut self, start: u64, len: u64) {
        for (word, mask) in masks(start, len) {
            assert_eq!(self.words[word] & mask, mask, "a block is freed twice near word {word}");
            self.words[word] &= !mask;
        }
    }

    /// Number of set bits.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|w| u64::from(w.count_ones())).sum()
    }
}

const PIECE_WORDS: usize = 4;

/// One bit per block of which few are set, or many together: memory only for where there are such.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseBits {
    /// By number, none of them empty.
    pieces: BTreeMap<usize, [u64; PIECE_WORDS]>,
}

impl SparseBits {
    /// The bits of one word.
    pub fn word(&self, word: usize) -> u64 {
        self.pieces.get(&(word / PIECE_WORDS)).map_or(0, |piece| piece[word % PIECE_WORDS])
    }

    /// Sets bits that must be clear.
    pub fn set(&mut self, start: u64, len: u64) {
        for (word, mask) in masks(start, len) {
            let piece = self.pieces.entry(word / PIECE_WORDS).or_default();
            let bits = &mut piece[word % PIECE_WORDS];
            assert_eq!(*bits & mask, 0, "a block is freed twice near word {word}");
            *bits |= mask;
        }
    }

    /// Clears bits that must be set.
    pub fn clear(&mut self, start: u64, len: u64) {
        for (word, mask) in masks(start, len) {
            let piece = self.pieces.get_mut(&(word / PIECE_WORDS));
            let piece = piece.expect("a block that is given back was set aside");
            let bits = &mut piece[word % PIECE_WORDS];
            assert_eq!(*bits & mask, mask, "a block is given back twice near word {word}");
            *bits &= !mask;
            if *piece == [0; PIECE_WORDS] {
                self.pieces.remove(&(word / PIECE_WORDS));
            }
        }
    }

    /// Number of set bits.
    pub fn count(&self) -> u64 {
        self.pieces.values().flatten().map(|w| u64::from(w.count_ones())).sum()
    }
}

/// Runs of clear bits, as first bit and length, in order.
pub(crate) struct ClearRuns<'a> {
    words: &'a [u64],
    at: u64,
}

impl<'a> ClearRuns<'a> {
    pub fn new(words: &'a [u64]) -> Self {
        ClearRuns { words, at: 0 }
    }

    /// The first bit at or after `self.at` that is `set`; the end if there is none.
    fn next_bit(&self, set: bool) -> u64 {
        let end = self.words.len() as u64 * 64;
        let mut word = (self.at / 64) as usize;
        let mut mask = u64::MAX << (self.at % 64);
        while let Some(&bits) = self.words.get(word) {
            let bits = (if set { bits } else { !bits }) & mask;
            if bits != 0 {
                return word as u64 * 64 + u64::from(bits.trailing_zeros());
            }
            word += 1;
            mask = u64::MAX;
        }
        end
    }
}

impl Iterator for ClearRuns<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.at = self.next_bit(false);
        if self.at >= self.words.len() as u64 * 64 {
            return None;
        }
        let start = self.at;
        self.at = self.next_bit(true);
        Some((start, self.at - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_where_the_bits_are(words in proptest::collection::vec(
            prop_oneof![Just(0u64), Just(u64::MAX), any::<u64>()], 1..6)) {
            let mut bits = vec![true; words.len() * 64];
            for (start, len) in ClearRuns::new(&words) {
                bits[start as usize..(start + len) as usize].fill(false);
            }
            for (i, bit) in bits.iter().enumerate() {
                prop_assert_eq!(*bit, words[i / 64] & (1 << (i % 64)) != 0);
            }
        }

        #[test]
        fn ranges_are_set_and_cleared(start in 0u64..300, len in 1u64..300) {
            let mut bits = Bits::new(640);
            bits.set(start, len);
            prop_assert_eq!(bits.count(), len);
            prop_assert!(bits.all(start, len, true));
            prop_assert!(bits.all(start + len, 1, false));
            let mut sparse = SparseBits::default();
            sparse.set(start, len);
            prop_assert!((0..10).all(|word| sparse.word(word) == bits.words()[word]));
            prop_assert_eq!(sparse.count(), len);
            sparse.clear(start, len);
            prop_assert!(sparse.pieces.is_empty());
            bits.clear(start, len);
            prop_assert!(bits.all(0, 640, false));
        }
    }
}
