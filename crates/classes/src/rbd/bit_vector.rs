//! The form of an object map: two bits for each object, checksums for each block of them.
//!
//! header: u32 14 and the V(1,1) section of the u64 number of objects; data: four objects to a
//! byte, the first in the highest bits; footer: u32 length, then nothing (no checksums), or u32
//! checksum of the header, u32 number of blocks, u32 checksum of each block of 4096 bytes of data.

use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder, crc32c};

/// Length of the header.
pub const HEADER_BYTES: u64 = 18;
/// Data bytes that one checksum is for.
pub const BLOCK_BYTES: usize = 4096;
const OBJECTS_PER_BYTE: u64 = 4;

/// States of objects, two bits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitVector {
    len: u64,
    data: Vec<u8>,
    /// Whether it has checksums.
    checked: bool,
}

/// Bytes that a bit vector of so many objects takes at most.
pub fn encoded_bytes(objects: u64) -> u64 {
    let data = objects.div_ceil(OBJECTS_PER_BYTE);
    HEADER_BYTES + data + 12 + 4 * data.div_ceil(BLOCK_BYTES as u64)
}

/// Checksum of a part of a bit vector.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c(0, bytes)
}

/// Where the objects `start..end` are kept in a bit vector of `len` objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Place of their blocks, relative to the start of the bit vector.
    pub data_at: u64,
    /// Bytes of those blocks.
    pub data_bytes: u64,
    /// Place of the blocks' checksums.
    pub sums_at: u64,
    /// Bytes of those checksums.
    pub sums_bytes: u64,
    /// The first object in the blocks.
    pub first: u64,
}

impl Part {
    /// For objects that are in the bit vector (`start < end <= len`).
    pub fn new(len: u64, start: u64, end: u64) -> Part {
        let block = BLOCK_BYTES as u64;
        let all = len.div_ceil(OBJECTS_PER_BYTE);
        let from = start / OBJECTS_PER_BYTE / block;
        let to = end.div_ceil(OBJECTS_PER_BYTE).div_ceil(block);
        let sums = HEADER_BYTES.saturating_add(all).saturating_add(12);
        Part {
            data_at: HEADER_BYTES + from * block,
            data_bytes: (to * block).min(all) - from * block,
            sums_at: sums.saturating_add(from * 4),
            sums_bytes: (to - from) * 4,
            first: from * block * OBJECTS_PER_BYTE,
        }
    }
}

impl BitVector {
    /// Of `len` objects with the state 0.
    pub fn new(len: u64) -> BitVector {
        let mut made = BitVector { len: 0, data: Vec::new(), checked: true };
        made.resize(len, 0);
        made
    }

    /// States in whole blocks, cut out of a longer vector.
    pub fn from_blocks(data: Vec<u8>) -> BitVector {
        BitVector { len: data.len() as u64 * OBJECTS_PER_BYTE, data, checked: true }
    }

    /// The same states with or without checksums.
    pub fn with_checksums(self, checked: bool) -> BitVector {
        BitVector { checked, ..self }
    }

    /// Number of objects.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The states, packed.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Byte and shift of an object.
    fn place(i: u64) -> (usize, u64) {
        ((i / OBJECTS_PER_BYTE) as usize, (3 - i % OBJECTS_PER_BYTE) * 2)
    }

    /// State of an object; `None` beyond the end.
    pub fn get(&self, i: u64) -> Option<u8> {
        let (byte, shift) = Self::place(i);
        let byte = self.data.get(byte).filter(|_| i < self.len)?;
        Some(byte >> shift & 3)
    }

    /// Sets the state of an object, of which only two bits count.
    pub fn set(&mut self, i: u64, state: u8) {
        let (byte, shift) = Self::place(i);
        if let Some(byte) = self.data.get_mut(byte) {
            *byte = *byte & !(3 << shift) | (state & 3) << shift;
        }
    }

    /// Drops objects at the end, or adds some with this state.
    pub fn resize(&mut self, len: u64, state: u8) {
        let old = std::mem::replace(&mut self.len, len);
        let bytes = usize::try_from(len.div_ceil(OBJECTS_PER_BYTE)).unwrap_or(usize::MAX);
        self.data.resize(bytes, (state & 3) * 0b0101_0101);
        // The last byte that was there before may have room for the first of the new ones, and the
        // last one now for more than there are: those are zero, as with Ceph.
        let in_last = old.next_multiple_of(OBJECTS_PER_BYTE);
        (old..len.min(in_last)).for_each(|i| self.set(i, state));
        if len > in_last {
            (len..len.next_multiple_of(OBJECTS_PER_BYTE)).for_each(|i| self.set(i, 0));
        }
    }

    /// Whether all states from `start` on are this one.
    pub fn are_all(&self, start: u64, state: u8) -> bool {
        let is_it = |i: u64| self.get(i) == Some(state);
        let (from, to) = self.whole_bytes(start, self.len);
        (start..self.len.min(from * OBJECTS_PER_BYTE)).all(is_it)
            && self.bytes(from, to).iter().all(|byte| *byte == (state & 3) * 0b0101_0101)
            && (start.max(to * OBJECTS_PER_BYTE)..self.len).all(is_it)
            && (state <= 3 || start >= self.len)
    }

    /// The bytes of which all four states are in a range: from which one to before which one.
    fn whole_bytes(&self, start: u64, end: u64) -> (u64, u64) {
        let from = start.div_ceil(OBJECTS_PER_BYTE);
        (from, (end.min(self.len) / OBJECTS_PER_BYTE).max(from))
    }

    fn bytes(&self, from: u64, to: u64) -> &[u8] {
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        self.data.get(place(from)..place(to)).unwrap_or_default()
    }

    /// Changes each state in a range for which `change` gives another; says whether one was. Maps may have a
    /// hundred million states, which is why it goes by bytes.
    pub fn change(&mut self, start: u64, end: u64, change: impl Fn(u8) -> u8) -> bool {
        self.change_in(start, end, &BitVector::new(0), |own, _| change(own))
    }

    /// The same for all states that both have, each of which depends on the other's.
    pub fn change_beside(&mut self, other: &BitVector, change: impl Fn(u8, u8) -> u8) -> bool {
        self.change_in(0, self.len.min(other.len), other, change)
    }

    fn change_in(
        &mut self,
        start: u64,
        end: u64,
        other: &BitVector,
        change: impl Fn(u8, u8) -> u8,
    ) -> bool {
        let end = end.min(self.len);
        // Two states of one, and two of the other.
        let table: [u8; 256] = std::array::from_fn(|pair| {
            let (own, beside) = (pair as u8 >> 4, pair as u8 & 15);
            let at = |shift: u8| (change(own >> shift & 3, beside >> shift & 3) & 3) << shift;
            at(2) | at(0)
        });
        let (from, to) = self.whole_bytes(start, end);
        let mut changed = false;
        for i in
            (start..end.min(from * OBJECTS_PER_BYTE)).chain(start.max(to * OBJECTS_PER_BYTE)..end)
        {
            let old = self.get(i).unwrap_or(0);
            let new = change(old, other.get(i).unwrap_or(0)) & 3;
            changed |= new != old;
            self.set(i, new);
        }
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let count = usize::try_from(to - from).unwrap_or(0);
        let besides = other.data.iter().skip(skipped).copied().chain(std::iter::repeat(0));
        for (byte, beside) in self.data.iter_mut().skip(skipped).take(count).zip(besides) {
            let by = |own: u8, beside: u8| table[usize::from(own << 4 | beside)];
            let new = by(*byte >> 4, beside >> 4) << 4 | by(*byte & 15, beside & 15);
            changed |= new != *byte;
            *byte = new;
        }
        changed
    }

    /// Checksums of the blocks.
    pub fn checksums(&self) -> Vec<u32> {
        self.data.chunks(BLOCK_BYTES).map(checksum).collect()
    }
}

/// The header, without the length before it.
fn header(len: u64) -> Bytes {
    let mut e = Encoder::new();
    e.section(1, 1, |e| {
        e.put(&len);
    });
    e.into_bytes()
}

/// Reads a header: the number of objects, and the checksum of the header.
pub fn decode_header(d: &mut Decoder<'_>) -> Result<(u64, u32), DecodeError> {
    let header = d.take_bytes()?;
    let len = Decoder::new(&header).section(1, |d, _| d.get())?;
    Ok((len, checksum(&header)))
}

impl Encode for BitVector {
    fn encode(&self, e: &mut Encoder) {
        let header = header(self.len);
        e.put_bytes(&header);
        e.put_raw(&self.data);
        e.framed(|e| {
            if self.checked {
                e.put(&checksum(&header)).put(&self.checksums());
            }
        });
    }
}

impl Decode for BitVector {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (len, header_sum) = decode_header(d)?;
        let bytes = usize::try_from(len.div_ceil(OBJECTS_PER_BYTE)).unwrap_or(usize::MAX);
        let data = d.take_slice(bytes)?.to_vec();
        let mut found = BitVector { len, data, checked: true };
        found.checked = d.framed(|d| {
            if d.remaining() == 0 {
                return Ok(false);
            }
            if d.get::<u32>()? != header_sum {
                return Err(d.invalid("an object map whose header has another checksum"));
            }
            if d.get::<Vec<u32>>()? != found.checksums() {
                return Err(d.invalid("an object map whose data has another checksum"));
            }
            Ok(true)
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_encoded_as_ceph_does() {
        crate::corpus::check_type::<BitVector>("BitVector2");
    }

    #[test]
    fn states_lie_four_to_a_byte() {
        let mut map = BitVector::new(6);
        (0..6).for_each(|i| map.set(i, (i % 4) as u8));
        assert_eq!(map.data(), [0b00_01_10_11, 0b00_01_00_00]);
        assert_eq!((map.get(3), map.get(5), map.get(6)), (Some(3), Some(1), None));
        map.resize(11, 2);
        let states: Vec<_> = (0..11).map(|i| map.get(i).unwrap()).collect();
        assert_eq!(states, [0, 1, 2, 3, 0, 1, 2, 2, 2, 2, 2]);
        map.resize(5, 0);
        map.resize(7, 3);
        assert_eq!((map.get(4), map.get(5), map.get(6)), (Some(0), Some(3), Some(3)));
    }

    fn of(states: &[u8]) -> BitVector {
        let mut map = BitVector::new(states.len() as u64);
        states.iter().zip(0..).for_each(|(&state, i)| map.set(i, state));
        map
    }

    proptest! {
        /// By whole bytes as one by one.
        #[test]
        fn changes_are_those_of_each_state(
            own in prop::collection::vec(0u8..4, 0..40),
            other in prop::collection::vec(0u8..4, 0..40),
            to in prop::collection::vec(0u8..4, 16),
            (start, end) in (0u64..45, 0u64..45),
            state in 0u8..4,
        ) {
            let turn = |own: u8, beside: u8| to[usize::from(own << 2 | beside)];
            let (mut ranged, mut beside) = (of(&own), of(&own));
            let changed = ranged.change(start, end, |s| turn(s, 0));
            let in_range = |i: usize| (start..end).contains(&(i as u64));
            let model = |f: &dyn Fn(usize, u8) -> u8| -> Vec<u8> {
                own.iter().enumerate().map(|(i, s)| f(i, *s)).collect()
            };
            let wanted = model(&|i, s| if in_range(i) { turn(s, 0) } else { s });
            prop_assert_eq!((ranged, changed), (of(&wanted), wanted != own));
            let changed = beside.change_beside(&of(&other), turn);
            let wanted = model(&|i, s| other.get(i).map_or(s, |beside| turn(s, *beside)));
            prop_assert_eq!((beside, changed), (of(&wanted), wanted != own));
            let all = own.iter().skip(start as usize).all(|s| *s == state);
            prop_assert_eq!(of(&own).are_all(start, state), all);
        }
    }

    #[test]
    fn long_maps_are_changed_by_bytes() {
        let mut map = BitVector::new(1_000_003);
        let calls = std::cell::Cell::new(0);
        let count = |state: u8| {
            calls.set(calls.get() + 1);
            state ^ 1
        };
        assert!(map.change(1, 1_000_003, count));
        assert!(map.are_all(1, 1) && !map.are_all(0, 1));
        assert!(calls.get() < 1000, "{}", calls.get());
        assert!(map.change_beside(&BitVector::new(1_000_001), |state, _| count(state)));
        assert!(calls.get() < 2000, "{}", calls.get());
    }

    #[test]
    fn any_damage_is_noticed() {
        let mut map = BitVector::new(40_000);
        map.set(39_999, 1);
        let bytes = denc::encode(&map);
        assert_eq!(denc::decode_all::<BitVector>(&bytes).as_ref(), Ok(&map));
        for i in [4, 12, 18, 5000, bytes.len() - 20, bytes.len() - 1] {
            let mut damaged = bytes.to_vec();
            damaged[i] ^= 1;
            assert!(denc::decode_all::<BitVector>(&damaged.into()).is_err(), "byte {i}");
        }
    }

    #[test]
    fn a_part_is_what_holds_the_objects() {
        // 40,000 objects: 10,000 bytes in three blocks.
        let part = |start, end| Part::new(40_000, start, end);
        let sums = 18 + 10_000 + 12;
        assert_eq!(
            part(0, 1),
            Part { data_at: 18, data_bytes: 4096, sums_at: sums, sums_bytes: 4, first: 0 }
        );
        assert_eq!(part(0, 16_384), part(0, 1));
        assert_eq!(part(16_383, 16_385).sums_bytes, 8);
        let last = Part {
            data_at: 18 + 8192,
            data_bytes: 10_000 - 8192,
            sums_at: sums + 8,
            sums_bytes: 4,
            first: 32_768,
        };
        assert_eq!(part(39_999, 40_000), last);
    }
}
