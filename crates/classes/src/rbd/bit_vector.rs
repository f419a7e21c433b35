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

    /// Changes each state in a range for which `change` gives another; says whether one was.
    pub fn change(&mut self, start: u64, end: u64, change: impl Fn(u64, u8) -> u8) -> bool {
        let mut changed = false;
        for i in start..end {
            let Some(old) = self.get(i) else { break };
            let new = change(i, old);
            if new != old {
                self.set(i, new);
                changed = true;
            }
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
