//! Which objects of an image exist (`rbd_object_map.<id>`).

use super::bit_vector::{self, BitVector, HEADER_BYTES, Part};
use super::header::must_exist;
use crate::input::args;
use crate::object::if_found;
use crate::{CallResult, Object};
use bytes::Bytes;
use denc::{Decode, Decoder};
use types::Errno;

/// It exists and was written since the last snapshot.
const EXISTS: u8 = 1;
/// It exists and is as it was at the last snapshot.
const EXISTS_CLEAN: u8 = 3;

/// Objects an image may have to have a map.
const MAX_OBJECTS: u64 = 256_000_000;

fn load(o: &mut dyn Object) -> CallResult<BitVector> {
    let stat = o.stat()?.filter(|s| s.size > 0).ok_or(Errno::ENOENT)?;
    if stat.size > bit_vector::encoded_bytes(MAX_OBJECTS) {
        return Err(Errno::EINVAL.into());
    }
    let data = o.read(0, stat.size)?;
    Ok(denc::decode(&data)?)
}

fn save(o: &mut dyn Object, map: &BitVector) -> CallResult<Bytes> {
    if map.len() > MAX_OBJECTS {
        return Err(Errno::EINVAL.into());
    }
    o.write_full(denc::encode(map))?;
    Ok(Bytes::new())
}

pub fn object_map_load(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&load(o)?.with_checksums(false)))
}

pub fn object_map_save(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let map: BitVector = args(input)?;
    save(o, &map.with_checksums(true))
}

pub fn object_map_resize(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (len, state): (u64, u8) = args(input)?;
    if len > MAX_OBJECTS {
        return Err(Errno::EINVAL.into());
    }
    let mut map = if_found(load(o))?.unwrap_or_else(|| BitVector::new(0));
    if !map.are_all(len, state) {
        // An object that would not be in the image any more is still there.
        return Err(Errno::ESTALE.into());
    }
    map.resize(len, state);
    save(o, &map)
}

#[derive(Decode)]
struct UpdateArgs {
    start: u64,
    end: u64,
    new: u8,
    /// Only objects in this state are changed.
    current: Option<u8>,
}

/// Reads and writes only the blocks that hold the objects, as a map may be tens of MiB long.
pub fn object_map_update(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let UpdateArgs { start, end, new, current } = args(input)?;
    must_exist(o)?;
    let header = o.read(0, HEADER_BYTES)?;
    let (len, _) = bit_vector::decode_header(&mut Decoder::new(&header))?;
    if len > MAX_OBJECTS {
        return Err(Errno::EINVAL.into());
    }
    if start >= end || end > len {
        return Err(Errno::ERANGE.into());
    }
    let part = Part::new(len, start, end);
    let sums = o.read(part.sums_at, part.sums_bytes)?;
    let data = o.read(part.data_at, part.data_bytes)?;
    let mut states = BitVector::from_blocks(data.to_vec());
    if data.len() as u64 != part.data_bytes || encoded_sums(&states) != sums {
        return Err(Errno::EINVAL.into());
    }
    let matches = |state: u8| match current {
        None => true,
        Some(EXISTS) => state == EXISTS || state == EXISTS_CLEAN,
        Some(current) => state == current,
    };
    let changed = states.change(start - part.first, end - part.first, |state| {
        if matches(state) { new & 3 } else { state }
    });
    if changed {
        o.write(part.data_at, Bytes::copy_from_slice(states.data()))?;
        o.write(part.sums_at, encoded_sums(&states))?;
    }
    Ok(Bytes::new())
}

fn encoded_sums(states: &BitVector) -> Bytes {
    states.checksums().iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

pub fn object_map_snap_add(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let mut map = load(o)?;
    let clean = |state| if state == EXISTS { EXISTS_CLEAN } else { state };
    if map.change(0, map.len(), clean) { save(o, &map) } else { Ok(Bytes::new()) }
}

pub fn object_map_snap_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: BitVector = args(input)?;
    let mut map = load(o)?;
    let written = |state| if state == EXISTS_CLEAN { EXISTS } else { state };
    let beside = |state, at_snap| if at_snap == EXISTS { written(state) } else { state };
    let changed = map.change_beside(&snap, beside);
    // What the snapshot is too short for counts as written.
    if map.change(snap.len(), map.len(), written) || changed {
        save(o, &map)
    } else {
        Ok(Bytes::new())
    }
}
