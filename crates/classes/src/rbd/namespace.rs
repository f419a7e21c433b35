//! Namespaces of a pool (`rbd_namespace`).

use crate::input::{ListArgs, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use types::Errno;

const PREFIX: &str = "name_";

pub fn namespace_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let name: Bytes = args(input)?;
    let key = omap::key(PREFIX, &name);
    if omap::has(o, &key)? {
        return Err(Errno::EEXIST.into());
    }
    omap::put_raw(o, &key, Bytes::new())?;
    Ok(Bytes::new())
}

pub fn namespace_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let name: Bytes = args(input)?;
    let key = omap::key(PREFIX, &name);
    o.omap_get(&key)?;
    omap::remove(o, &key)?;
    Ok(Bytes::new())
}

pub fn namespace_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let names = omap::list(o, PREFIX, &after, max)?;
    Ok(denc::encode(&names.into_iter().map(|(name, _)| name).collect::<Vec<_>>()))
}
