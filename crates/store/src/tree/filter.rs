//! Which objects a leaf may hold: a Bloom filter, kept by its parent beside its checksum.
//!
//! Whoever makes an object asks first whether it exists. Names are spread over all leaves of records,
//! so that with many objects each such question would read a leaf from the disk, only to find nothing
//! there. The filter knows the keys of objects' records and nothing else; rows of objects that exist
//! are asked for because they exist.
//!
//! A filter of `n` keys has `10 n` bits in whole bytes (at most 254 of them). Bit `i` of 4 of a key
//! is number `(a + i b) mod bits`, with `m = crc32c(key) * 0x9e3779b97f4a7c15 mod 2^64`, `a` the upper
//! half of `m` and `b` the lower one, made odd (Kirsch and Mitzenmacher, *Less Hashing, Same
//! Performance*, 2006); bit `j` is bit `j mod 8` of byte `j / 8`. One question of 80 about an object
//! that is not there is answered by a maybe.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use super::node::Entry;
use crate::keys;
use bytes::Bytes;

const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 4;
/// Longest filter. Only a leaf of many blocks has so many objects, and that is for a single long row.
pub(crate) const MAX_FILTER_BYTES: usize = 254;

/// What is known of a leaf. `None`: nothing, anything may be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(pub Option<Bytes>);

impl Filter {
    /// Of a leaf with these entries.
    pub fn of(entries: &[Entry]) -> Filter {
        let objects = || entries.iter().map(|(key, _)| key).filter(|key| keys::is_object(key));
        let bits = objects().count().saturating_mul(BITS_PER_KEY);
        let mut bytes = vec![0u8; bits.div_ceil(8).min(MAX_FILTER_BYTES)];
        for key in objects() {
            for (byte, mask) in places(bytes.len(), key) {
                if let Some(byte) = bytes.get_mut(byte) {
                    *byte |= mask;
                }
            }
        }
        Filter(Some(bytes.into()))
    }

    /// Whether a row of this key may be in the leaf.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        may_hold(self.0.as_deref(), key)
    }
}

/// The same, of a filter as it stands in a node.
pub(crate) fn may_hold(filter: Option<&[u8]>, key: &[u8]) -> bool {
    let Some(bytes) = filter.filter(|_| keys::is_object(key)) else { return true };
    let set = |(byte, mask): (usize, u8)| bytes.get(byte).is_some_and(|b| b & mask != 0);
    !bytes.is_empty() && places(bytes.len(), key).all(set)
}

/// Byte and bit of each of a key's bits, in a filter of so many bytes.
fn places(bytes: usize, key: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let bits = bytes.saturating_mul(8).max(1) as u64;
    let mixed = u64::from(denc::crc32c(u32::MAX, key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (mixed >> 32, mixed & 0xffff_ffff | 1);
    (0..PROBES).map(move |i| {
        let bit = a.wrapping_add(u64::from(i).wrapping_mul(b)) % bits;
        ((bit / 8) as usize, 1 << (bit % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::node::Payload;
    use types::ObjectKey;

    fn object(n: u64) -> Entry {
        let key = ObjectKey::from_bytes(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        (keys::object(&key), Payload::Value(Bytes::new()))
    }

    #[test]
    fn what_is_there_may_be_and_the_rest_hardly() {
        for n in [1u64, 2, 30, 200, 1_000] {
            let entries: Vec<Entry> = (0..n).map(object).collect();
            let filter = Filter::of(&entries);
            assert!(entries.iter().all(|(key, _)| filter.may_hold(key)), "{n}");
            let wrong = (n..n + 10_000).filter(|i| filter.may_hold(&object(*i).0)).count();
            assert!(n > 200 || wrong < 300, "{n}: {wrong} of 10,000");
        }
    }

    #[test]
    fn rows_of_objects_are_not_asked_of_it() {
        let none = Filter::of(&[(keys::shard(7, 0), Payload::Value(Bytes::new()))]);
        assert_eq!(none.0.as_deref(), Some(&[][..]));
        assert!(none.may_hold(&keys::shard(7, 1)) && !none.may_hold(&object(1).0));
        assert!(Filter::default().may_hold(&object(1).0));
    }

    /// Filters stand on disks: another place for a bit loses objects.
    #[test]
    fn bits_stay_where_they_are() {
        let filter = Filter::of(&[object(1), object(2), object(3)]);
        assert_eq!(filter.0.as_deref(), Some(&[16, 135, 22, 142][..]));
    }
}
