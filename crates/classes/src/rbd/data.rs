//! Data objects of an image (`rbd_data.<id>.%016x`).

use super::header::must_exist;
use crate::input::args;
use crate::{CallResult, Object};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Errno, SnapId};

/// Fills an object of a clone with what the parent has, unless it was written meanwhile.
pub fn copyup(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    if o.stat()?.is_none() {
        o.write(0, input.clone())?;
    }
    Ok(Bytes::new())
}

/// The same for the parts of the parent that hold data: offsets and lengths, then their bytes.
pub fn sparse_copyup(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (extents, mut data): (BTreeMap<u64, u64>, Bytes) = args(input)?;
    if o.stat()?.is_some() {
        return Ok(Bytes::new());
    }
    if extents.is_empty() {
        o.create(true)?;
    }
    for (offset, len) in extents {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > data.len() {
            return Err(Errno::EINVAL.into());
        }
        o.write(offset, data.split_to(len))?;
    }
    Ok(Bytes::new())
}

/// A multiple of this is what is freed at once: with less there may be millions of pieces in an object, and a store
/// frees no smaller ones.
const SPARSE_BYTES: usize = 4096;

/// Frees the space of zeros in whole blocks of a size, and of those at the object's end.
pub fn sparsify(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (block, remove_empty): (u64, bool) = args(input)?;
    must_exist(o)?;
    let is_good = |b: &usize| *b > 0 && b.is_multiple_of(SPARSE_BYTES);
    let block = usize::try_from(block).ok().filter(is_good).ok_or(Errno::EINVAL)?;
    let size = o.stat()?.map_or(0, |s| s.size);
    let data = o.read(0, size)?;
    let is_zero = |b: &[u8]| b.iter().all(|&b| b == 0);
    let used: Vec<bool> = data.chunks(block).map(|b| !is_zero(b)).collect();
    let Some(last) = used.iter().rposition(|&used| used) else {
        match data.is_empty() {
            _ if remove_empty => o.remove()?,
            true => {}
            false => o.truncate(0)?,
        }
        return Ok(Bytes::new());
    };
    let at = |block_no: usize| block_no.saturating_mul(block).min(data.len()) as u64;
    if last + 1 < used.len() {
        o.truncate(at(last + 1))?;
    }
    let mut block_no = 0;
    for run in used[..=last].chunk_by(|a, b| a == b) {
        let (from, to) = (at(block_no), at(block_no + run.len()));
        if !run[0] {
            o.zero(from, to - from)?;
        }
        block_no += run.len();
    }
    Ok(Bytes::new())
}

/// The snap context that the client writes with is newer than any the object was written with.
const NEWER: u8 = 0;
/// It is not.
const NOT_NEWER: u8 = 1;

pub fn assert_snapc_seq(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (seq, state): (SnapId, u8) = args(input)?;
    // An object that is deleted but has clones still counts, by its snap seq.
    let missing = o.stat()?.is_none() && o.snap_seq() == SnapId(0);
    let newer = missing || seq > o.snap_seq();
    match state {
        NEWER if newer => Ok(Bytes::new()),
        NOT_NEWER if !newer => Ok(Bytes::new()),
        NEWER | NOT_NEWER => Err(Errno::ERANGE.into()),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
