//! The blocks that a transaction puts into the log.

use bytes::Bytes;
use smallvec::SmallVec;

/// Place, checksum and content of a block.
pub(crate) type LoggedBlock = (u64, u32, Bytes);

/// Blocks for the log, ascending by place. Most transactions have one or two.
#[derive(Debug, Default)]
pub(crate) struct LoggedBlocks(SmallVec<[LoggedBlock; 2]>);

impl LoggedBlocks {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, place: u64) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, ..)) if *last < place => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&place, |(place, ..)| *place),
        }
    }

    /// The content that the block at `place` will have.
    pub fn get(&self, place: u64) -> Option<&Bytes> {
        self.find(place).ok().map(|at| &self.0[at].2)
    }

    /// The last content of a block counts.
    pub fn insert(&mut self, place: u64, crc: u32, content: Bytes) {
        match self.find(place) {
            Ok(at) => self.0[at] = (place, crc, content),
            Err(at) => self.0.insert(at, (place, crc, content)),
        }
    }

    pub fn remove(&mut self, place: u64) {
        if let Ok(at) = self.find(place) {
            self.0.remove(at);
        }
    }

    /// Places and checksums.
    pub fn sums(&self) -> impl ExactSizeIterator<Item = (u64, u32)> {
        self.0.iter().map(|(place, crc, _)| (*place, *crc))
    }
}

impl IntoIterator for LoggedBlocks {
    type Item = LoggedBlock;
    type IntoIter = smallvec::IntoIter<[LoggedBlock; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keeps_blocks_in_order_and_the_last_of_each() {
        let (mut blocks, mut model) = (LoggedBlocks::default(), BTreeMap::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for n in 0..2000 {
            let place = rng.u64(..50);
            if rng.u8(..4) == 0 {
                blocks.remove(place);
                model.remove(&place);
            } else {
                blocks.insert(place, n, Bytes::copy_from_slice(&n.to_le_bytes()));
                model.insert(place, n);
            }
            let place = rng.u64(..50);
            let content = model.get(&place).map(|n: &u32| n.to_le_bytes());
            assert_eq!(blocks.get(place).map(|b| &b[..]), content.as_ref().map(|b| &b[..]));
            assert!(blocks.sums().eq(model.iter().map(|(place, n)| (*place, *n))));
            assert_eq!(blocks.len(), model.len());
        }
    }
}
