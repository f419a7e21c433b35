//! New checksums of blocks that keep their places: what an overwrite changes in a row of extents.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | number of slots |
//! | 5 for each | slot (1), ascending; crc32c of its block (4) |
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::codec::{Decoded, Malformed, Reader};
use crate::keys::SHARD_BLOCKS;
use smallvec::SmallVec;

/// What changes in the row of a shard that need not be in memory for that. It stands above the row it
/// changes, in memtables and in the log, until a checkpoint makes one row of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patch(SmallVec<[(u8, u32); 2]>);

impl Patch {
    /// Slots and checksums, ascending.
    pub fn slots(&self) -> &[(u8, u32)] {
        &self.0
    }

    /// The checksum of a slot's block, if it is changed.
    pub fn get(&self, slot: u8) -> Option<u32> {
        self.0.iter().find(|(s, _)| *s == slot).map(|(_, crc)| *crc)
    }

    /// Changes a slot, whatever it was.
    pub fn set(&mut self, slot: u8, crc: u32) {
        let at = self.0.partition_point(|(s, _)| *s < slot);
        match self.0.get_mut(at) {
            Some(known) if known.0 == slot => known.1 = crc,
            _ => self.0.insert(at, (slot, crc)),
        }
    }

    /// Adds what an earlier patch changed, where this one changes nothing.
    pub fn add_below(&mut self, earlier: &Patch) {
        for (slot, crc) in earlier.slots() {
            if self.get(*slot).is_none() {
                self.set(*slot, *crc);
            }
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        for (slot, crc) in &self.0 {
            out.push(*slot);
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Decoded<Patch> {
        let mut patch = Patch::default();
        let mut next = 0;
        let count = r.u8()?;
        for _ in 0..count {
            let (slot, crc) = (r.u8()?, r.u32()?);
            if slot < next || u64::from(slot) >= SHARD_BLOCKS {
                return Err(Malformed("a patch with impossible slots"));
            }
            next = slot.saturating_add(1);
            patch.0.push((slot, crc));
        }
        if count == 0 { Err(Malformed("a patch that changes nothing")) } else { Ok(patch) }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    pub(crate) fn patches() -> impl Strategy<Value = Patch> {
        proptest::collection::btree_map(0u8..32, any::<u32>(), 1..6).prop_map(|slots| {
            let mut patch = Patch::default();
            slots.into_iter().rev().for_each(|(slot, crc)| patch.set(slot, crc));
            patch
        })
    }

    fn map(patch: &Patch) -> BTreeMap<u8, u32> {
        patch.slots().iter().copied().collect()
    }

    proptest! {
        #[test]
        fn patches_round_trip(patch in patches()) {
            let mut out = Vec::new();
            patch.encode(&mut out);
            let mut r = Reader::new(&out);
            prop_assert_eq!(Patch::decode(&mut r), Ok(patch));
            prop_assert!(r.is_empty());
        }

        #[test]
        fn the_later_patch_counts(earlier in patches(), later in patches()) {
            let mut want = map(&earlier);
            want.extend(map(&later));
            let mut both = later;
            both.add_below(&earlier);
            prop_assert_eq!(map(&both), want);
        }
    }
}
