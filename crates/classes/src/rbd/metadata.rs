//! Names and values that people give to an image (header) or a pool (`rbd_info`).

use crate::input::{ListArgs, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use std::collections::BTreeMap;

const PREFIX: &str = "metadata_";
/// What is listed when the client does not say how much it wants.
const DEFAULT_LISTED: u64 = 64;

pub fn metadata_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let max = if max == 0 { DEFAULT_LISTED } else { max };
    let listed = omap::list(o, PREFIX, &after, max)?;
    Ok(denc::encode(&BTreeMap::from_iter(listed)))
}

pub fn metadata_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let values: BTreeMap<Bytes, Bytes> = args(input)?;
    o.omap_set(values.into_iter().map(|(name, v)| (omap::key(PREFIX, &name), v)).collect())?;
    Ok(Bytes::new())
}

pub fn metadata_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let name: Bytes = args(input)?;
    Ok(denc::encode(&o.omap_get(&omap::key(PREFIX, &name))?))
}

pub fn metadata_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let name: Bytes = args(input)?;
    omap::remove(o, &omap::key(PREFIX, &name))?;
    Ok(Bytes::new())
}
