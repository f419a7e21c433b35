//! Images that wait to be removed (`rbd_trash`).

use super::directory::check_id;
use super::types::TrashSpec;
use crate::input::{ListArgs, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::Errno;

const PREFIX: &str = "id_";

pub fn trash_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, spec): (Bytes, TrashSpec) = args(input)?;
    o.create(false)?;
    check_id(&id)?;
    let key = omap::key(PREFIX, &id);
    if omap::find::<TrashSpec>(o, &key)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    omap::put(o, &key, &spec)?;
    Ok(Bytes::new())
}

pub fn trash_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    let key = omap::key(PREFIX, &id);
    o.omap_get(&key)?;
    omap::remove(o, &key)?;
    Ok(Bytes::new())
}

pub fn trash_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    o.omap_get(&omap::key(PREFIX, &id))
}

pub fn trash_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let listed = omap::list_as::<TrashSpec>(o, PREFIX, &after, max)?;
    Ok(denc::encode(&BTreeMap::from_iter(listed)))
}

pub fn trash_state_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, new, expected): (Bytes, u8, u8) = args(input)?;
    let key = omap::key(PREFIX, &id);
    let mut spec: TrashSpec = omap::get(o, &key)?;
    if spec.state == expected {
        spec.state = new;
        omap::put(o, &key, &spec)?;
    } else if spec.state != new {
        return Err(Errno::ESTALE.into());
    }
    Ok(Bytes::new())
}
