//! Which objects' records a layer may have.
//!
//! Whoever makes an object asks all layers whether it exists. A search through a large layer that finds
//! nothing reads a dozen places of memory for that, this reads one. It is made when a layer has become
//! large, and knows no more of what was taken out again.

use crate::keys;

/// A line of the processor's cache.
type Line = [u64; 8];

/// Lines: 64 KiB. With 50,000 objects one question of 20 is answered by a maybe.
const LINES: usize = 1024;
pub(super) const BYTES: usize = LINES * size_of::<Line>();

/// A filter of two bits for each object, in one line. Empty: anything may be there.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects(Vec<Line>);

impl Objects {
    /// Of a layer with these keys.
    pub fn of<'a>(keys: impl Iterator<Item = &'a keys::Key>) -> Self {
        let mut objects = Objects(vec![Line::default(); LINES]);
        keys.for_each(|key| objects.add(key));
        objects
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layer has a row of this key.
    pub fn add(&mut self, key: &[u8]) {
        if !self.0.is_empty() && keys::is_object(key) {
            let (line, bits) = places(key);
            for (word, bit) in bits {
                self.0[line][word] |= bit;
            }
        }
    }

    /// Whether it may have one.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        if self.0.is_empty() || !keys::is_object(key) {
            return true;
        }
        let (line, bits) = places(key);
        bits.iter().all(|(word, bit)| self.0[line][*word] & bit != 0)
    }
}

/// Line, and words and bits in it.
fn places(key: &[u8]) -> (usize, [(usize, u64); 2]) {
    let mixed = u64::from(denc::crc32c(u32::MAX, key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bit = |from: u32| ((mixed >> from & 7) as usize, 1 << (mixed >> (from + 3) & 63));
    ((mixed >> 54) as usize % LINES, [bit(45), bit(36)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectKey;

    fn key(n: u64) -> keys::Key {
        keys::object(&ObjectKey::from_bytes(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()))
    }

    #[test]
    fn what_is_there_may_be_and_the_rest_hardly() {
        let some: Vec<_> = (0..25_000).map(key).collect();
        let mut objects = Objects::of(some.iter());
        (25_000..50_000).for_each(|n| objects.add(&key(n)));
        assert!((0..50_000).all(|n| objects.may_hold(&key(n))));
        let wrong = (50_000..150_000).filter(|n| objects.may_hold(&key(*n))).count();
        assert!(wrong < 6_000, "{wrong} of 100,000");
        assert!(objects.may_hold(&keys::shard(1, 0)) && Objects::default().may_hold(&key(1)));
    }
}
