//! Mirroring of a pool to other clusters (`rbd_mirroring`): mode, peers, images and their state.
//! What instances of rbd-mirror agree on lies in `rbd_mirror_leader`.

pub mod image;
pub mod peer;
pub mod status;
pub mod types;

use crate::input::args;
use crate::object::if_found;
use crate::{CallResult, Object, omap};
use ::types::Errno;
use bytes::Bytes;

const MODE: &[u8] = b"mirror_mode";
const UUID: &[u8] = b"mirror_uuid";

const DISABLED: u32 = 0;
/// Each image is mirrored or not.
const BY_IMAGE: u32 = 1;
/// All images with a journal are.
const WHOLE_POOL: u32 = 2;

/// This pool's name to its peers.
fn own_uuid(o: &mut dyn Object) -> CallResult<Bytes> {
    o.omap_get(UUID)
}

fn is_enabled(o: &mut dyn Object) -> CallResult<bool> {
    Ok(omap::find::<u32>(o, MODE)?.unwrap_or(DISABLED) != DISABLED)
}

pub fn mirror_uuid_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&own_uuid(o)?))
}

pub fn mirror_uuid_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let uuid: Bytes = args(input)?;
    if uuid.is_empty() || is_enabled(o)? {
        return Err(Errno::EINVAL.into());
    }
    omap::put_raw(o, UUID, uuid)?;
    Ok(Bytes::new())
}

pub fn mirror_mode_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&omap::get::<u32>(o, MODE)?))
}

pub fn mirror_mode_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let mode: u32 = args(input)?;
    match mode {
        BY_IMAGE | WHOLE_POOL => {
            if_found(own_uuid(o))?.ok_or(Errno::EINVAL)?;
            omap::put(o, MODE, &mode)?;
        }
        DISABLED => {
            if !peer::all(o)?.is_empty() {
                return Err(Errno::EBUSY.into());
            }
            omap::remove_any(o, &[Bytes::from_static(MODE), Bytes::from_static(UUID)])?;
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(Bytes::new())
}

const INSTANCE: &str = "instance_";

pub fn mirror_instances_list(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let listed = omap::list(o, INSTANCE, b"", omap::ALL)?;
    Ok(denc::encode(&listed.into_iter().map(|(id, _)| id).collect::<Vec<_>>()))
}

pub fn mirror_instances_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    omap::put_raw(o, &omap::key(INSTANCE, &id), Bytes::new())?;
    Ok(Bytes::new())
}

pub fn mirror_instances_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    omap::remove(o, &omap::key(INSTANCE, &id))?;
    Ok(Bytes::new())
}
