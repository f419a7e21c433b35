//! Headers of images of format 1: one packed structure in the object's data.
//!
//! text 40, block name 24, signature 4, version 8, order and three unused bytes; u64 image size,
//! u64 snap seq, u32 snapshots, u32 unused, u64 bytes of names; for each snapshot u64 id and u64
//! image size, newest first; then their names in the same order, each ended by a zero byte.

use crate::input::args;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::Errno;

/// Text a header begins with.
pub const TEXT: &[u8; 34] = b"<<< Rados Block Device Image >>>\n\0";
/// The same while the image is migrated away.
pub const MIGRATING_TEXT: &[u8; 34] = b"<<< Migrating RBD Image      >>>\n\0";

/// Bytes before the image size: kept as they are.
const START_BYTES: usize = 80;
/// Bytes before the snapshots.
const FIXED_BYTES: u64 = 112;
const SNAP_BYTES: u64 = 16;
/// What a header may be at most; real ones are some KiB.
const MAX_BYTES: u64 = 16 << 20;

/// A snapshot in the header.
pub struct Snap {
    id: u64,
    image_size: u64,
    name: Bytes,
}

/// A header.
pub struct Header {
    start: [u8; START_BYTES],
    image_size: u64,
    snap_seq: u64,
    reserved: u32,
    /// Newest first.
    pub snaps: Vec<Snap>,
}

impl Encode for Header {
    fn encode(&self, e: &mut Encoder) {
        e.put_raw(&self.start);
        e.put(&self.image_size).put(&self.snap_seq);
        e.put_count(self.snaps.len());
        let names_len: usize = self.snaps.iter().map(|s| s.name.len().saturating_add(1)).sum();
        e.put(&self.reserved).put(&(names_len as u64));
        for snap in &self.snaps {
            e.put(&snap.id).put(&snap.image_size);
        }
        for snap in &self.snaps {
            e.put_raw(&snap.name);
            e.put_raw(&[0]);
        }
    }
}

impl Decode for Header {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let start = d.take_array()?;
        let (image_size, snap_seq, count): (u64, u64, u32) = d.get()?;
        let (reserved, _names_len): (u32, u64) = d.get()?;
        let mut sizes: Vec<(u64, u64)> = Vec::new();
        for _ in 0..count {
            sizes.push(d.get()?);
        }
        let mut snaps = Vec::new();
        for (id, image_size) in sizes {
            snaps.push(Snap { id, image_size, name: take_name(d)? });
        }
        Ok(Header { start, image_size, snap_seq, reserved, snaps })
    }
}

/// Bytes up to a zero byte, which is taken too.
fn take_name(d: &mut Decoder<'_>) -> Result<Bytes, DecodeError> {
    let mut name = Vec::new();
    loop {
        match d.get::<u8>()? {
            0 => return Ok(name.into()),
            byte => name.push(byte),
        }
    }
}

/// Reads the header; `None` when the data is too short for one (an image of format 2).
pub fn load(o: &mut dyn Object) -> CallResult<Option<Header>> {
    let fixed = o.read(0, FIXED_BYTES)?;
    let mut d = Decoder::new(&fixed);
    if d.skip(START_BYTES + 16).is_err() {
        return Ok(None);
    }
    let Ok((count, (_, names_len))) = d.get::<(u32, (u32, u64))>() else {
        return Ok(None);
    };
    let snaps_len = u64::from(count) * SNAP_BYTES;
    let len = FIXED_BYTES.saturating_add(snaps_len).saturating_add(names_len);
    if len > MAX_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let all = o.read(0, len)?;
    Ok(Some(denc::decode(&all).map_err(|_| Errno::EIO)?))
}

/// Reads the header; EINVAL when there is none.
fn must_load(o: &mut dyn Object) -> CallResult<Header> {
    load(o)?.ok_or(Errno::EINVAL.into())
}

fn save(o: &mut dyn Object, header: &Header) -> CallResult<Bytes> {
    o.write_full(denc::encode(header))?;
    Ok(Bytes::new())
}

/// A name as it can be kept: C text.
fn without_zero(name: &Bytes) -> Bytes {
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    name.slice(..end)
}

pub fn snap_list(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let header = must_load(o)?;
    let mut e = Encoder::new();
    e.put(&header.snap_seq);
    e.put_count(header.snaps.len());
    for snap in &header.snaps {
        e.put(&snap.id).put(&snap.image_size).put(&snap.name);
    }
    Ok(e.into_bytes())
}

pub fn snap_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let mut header = must_load(o)?;
    let (name, id): (Bytes, u64) = args(input)?;
    let name = without_zero(&name);
    if header.snap_seq > id {
        return Err(Errno::ESTALE.into());
    }
    let limit: u64 = omap::find(o, b"snap_limit")?.unwrap_or(u64::MAX);
    if header.snaps.len() as u64 >= limit {
        return Err(Errno::EDQUOT.into());
    }
    if header.snaps.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST.into());
    }
    header.snap_seq = id;
    header.snaps.insert(0, Snap { id, image_size: header.image_size, name });
    save(o, &header)
}

pub fn snap_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let mut header = must_load(o)?;
    let name = without_zero(&args(input)?);
    let place = header.snaps.iter().position(|s| s.name == name).ok_or(Errno::ENOENT)?;
    header.snaps.remove(place);
    save(o, &header)
}

pub fn snap_rename(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let mut header = must_load(o)?;
    let (id, name): (u64, Bytes) = args(input)?;
    let name = without_zero(&name);
    if header.snaps.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST.into());
    }
    let snap = header.snaps.iter_mut().find(|s| s.id == id).ok_or(Errno::ENOENT)?;
    snap.name = name;
    save(o, &header)
}
