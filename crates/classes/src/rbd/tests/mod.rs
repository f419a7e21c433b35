//! Methods and the errors they give, by what they are for.

mod clones;
mod containers;
mod header;
mod maps;
mod mirroring;
mod old_format;
mod snapshots;

use super::header::feature;
use crate::testing::MemObject;
use types::Errno;

/// Features of an image as `rbd` makes them.
const DEFAULT: u64 = feature::LAYERING
    | feature::EXCLUSIVE_LOCK
    | feature::OBJECT_MAP
    | feature::FAST_DIFF
    | feature::DEEP_FLATTEN;
/// The size of an image.
const MIB: u64 = 1 << 20;

fn create(o: &mut MemObject, features: u64, data_pool: i64) -> Result<(), Errno> {
    o.run("rbd.create", ((64 * MIB, 22u8, features), "rbd_data.1", data_pool))
}

/// The header of an image of 64 MiB.
fn image(features: u64) -> MemObject {
    let mut o = MemObject::empty();
    create(&mut o, features, -1).unwrap();
    o
}

/// The value of an omap key, decoded.
fn stored<T: denc::Decode>(o: &MemObject, key: &'static str) -> Option<T> {
    o.state.omap.get(key.as_bytes()).map(|value| denc::decode(value).unwrap())
}
