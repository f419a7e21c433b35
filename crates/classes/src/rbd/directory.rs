//! Names and ids of the images of a pool (`rbd_directory`) or of its groups
//! (`rbd_group_directory`), and of one image (`rbd_id.<name>`).

use super::header::must_exist;
use crate::input::{ListArgs, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::Errno;

const NAME: &str = "name_";
const ID: &str = "id_";

/// Images may be added.
const READY: u8 = 0;
/// None may be: the pool's namespace is about to be removed.
const ADD_DISABLED: u8 = 1;

/// EINVAL unless an id is made of letters and digits.
pub fn check_id(id: &[u8]) -> CallResult<()> {
    let valid = !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric);
    if valid { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

fn add(o: &mut dyn Object, name: &Bytes, id: &Bytes, id_must_be_new: bool) -> CallResult<Bytes> {
    check_id(id)?;
    if name.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let (name_key, id_key) = (omap::key(NAME, name), omap::key(ID, id));
    if omap::has(o, &name_key)? {
        return Err(Errno::EEXIST.into());
    }
    if id_must_be_new && omap::has(o, &id_key)? {
        return Err(Errno::EBADF.into());
    }
    o.omap_set(vec![(name_key, denc::encode(id)), (id_key, denc::encode(name))])?;
    Ok(Bytes::new())
}

fn remove(o: &mut dyn Object, name: &Bytes, id: &Bytes) -> CallResult<Bytes> {
    let (name_key, id_key) = (omap::key(NAME, name), omap::key(ID, id));
    let stored_id: Bytes = omap::get(o, &name_key)?;
    let stored_name: Bytes = omap::get(o, &id_key)?;
    if (&stored_name, &stored_id) != (name, id) {
        // It was renamed meanwhile.
        return Err(Errno::ESTALE.into());
    }
    o.omap_remove(&[name_key, id_key])?;
    Ok(Bytes::new())
}

pub fn dir_get_id(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let name: Bytes = args(input)?;
    Ok(denc::encode(&omap::get::<Bytes>(o, &omap::key(NAME, &name))?))
}

pub fn dir_get_name(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    Ok(denc::encode(&omap::get::<Bytes>(o, &omap::key(ID, &id))?))
}

/// Also `group_dir_list`.
pub fn dir_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let listed = omap::list_as::<Bytes>(o, NAME, &after, max)?;
    Ok(denc::encode(&BTreeMap::from_iter(listed)))
}

/// Also `group_dir_add`.
pub fn dir_add_image(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (name, id): (Bytes, Bytes) = args(input)?;
    o.create(false)?;
    add(o, &name, &id, true)
}

/// Also `group_dir_remove`.
pub fn dir_remove_image(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (name, id): (Bytes, Bytes) = args(input)?;
    remove(o, &name, &id)
}

/// Also `group_dir_rename`.
pub fn dir_rename_image(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (from, to, id): (Bytes, Bytes, Bytes) = args(input)?;
    remove(o, &from, &id)?;
    // What was just removed is still seen, so the id is not looked at.
    add(o, &to, &id, false)
}

pub fn dir_state_assert(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let expected: u8 = args(input)?;
    let state: u8 = omap::get(o, b"state")?;
    if state == expected { Ok(Bytes::new()) } else { Err(Errno::ENOENT.into()) }
}

pub fn dir_state_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let state: u8 = args(input)?;
    match state {
        READY => {}
        ADD_DISABLED => {
            must_exist(o)?;
            if !omap::list(o, NAME, b"", 1)?.is_empty() {
                return Err(Errno::EBUSY.into());
            }
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    omap::put(o, b"state", &state)?;
    Ok(Bytes::new())
}

pub fn get_id(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let stat = o.stat()?.ok_or(Errno::ENOENT)?;
    if stat.size == 0 {
        return Err(Errno::ENOENT.into());
    }
    let data = o.read(0, stat.size)?;
    Ok(denc::encode(&omap::stored::<Bytes>(&data)?))
}

pub fn set_id(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let stat = o.stat()?.ok_or(Errno::ENOENT)?;
    let id: Bytes = args(input)?;
    check_id(&id)?;
    if stat.size != 0 {
        return Err(Errno::EEXIST.into());
    }
    o.write(0, denc::encode(&id))?;
    Ok(Bytes::new())
}
