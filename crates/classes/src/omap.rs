//! Keys of an omap with values in Ceph's encoding.

use crate::object::{CallResult, Object, if_found};
use bytes::Bytes;
use denc::{Decode, Encode};
use types::Errno;

/// Keys read at a time.
const PAGE_KEYS: u64 = 256;

/// No bound on what is listed but what there is.
pub const ALL: u64 = u64::MAX;

/// A key made of a prefix and a name.
pub fn key(prefix: impl AsRef<[u8]>, name: &[u8]) -> Bytes {
    [prefix.as_ref(), name].concat().into()
}

/// What was stored, decoded; EIO when it cannot be.
pub fn stored<T: Decode>(value: &Bytes) -> CallResult<T> {
    denc::decode(value).map_err(|_| Errno::EIO.into())
}

/// The value of a key, if there is one.
pub fn find<T: Decode>(o: &mut dyn Object, key: &[u8]) -> CallResult<Option<T>> {
    if_found(o.omap_get(key))?.map(|value| stored(&value)).transpose()
}

/// The value of a key; ENOENT without it.
pub fn get<T: Decode>(o: &mut dyn Object, key: &[u8]) -> CallResult<T> {
    find(o, key)?.ok_or(Errno::ENOENT.into())
}

/// Whether there is a key, whatever its value.
pub fn has(o: &mut dyn Object, key: &[u8]) -> CallResult<bool> {
    Ok(if_found(o.omap_get(key))?.is_some())
}

/// Sets a key.
pub fn put<T: Encode + ?Sized>(o: &mut dyn Object, key: &[u8], value: &T) -> CallResult<()> {
    put_raw(o, key, denc::encode(value))
}

/// Sets a key to bytes as they are.
pub fn put_raw(o: &mut dyn Object, key: &[u8], value: Bytes) -> CallResult<()> {
    o.omap_set(vec![(Bytes::copy_from_slice(key), value)])
}

/// Removes a key; ENOENT without an object.
pub fn remove(o: &mut dyn Object, key: &[u8]) -> CallResult<()> {
    o.omap_remove(&[Bytes::copy_from_slice(key)])
}

/// Removes keys, if there is an object. To remove none is no change of it.
pub fn remove_any(o: &mut dyn Object, keys: &[Bytes]) -> CallResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    if_found(o.omap_remove(keys)).map(drop)
}

/// Names (keys without `prefix`) after the name `after`, with their values; `max` of them at most.
pub fn list(
    o: &mut dyn Object,
    prefix: impl AsRef<[u8]>,
    after: &[u8],
    max: u64,
) -> CallResult<Vec<(Bytes, Bytes)>> {
    let prefix = prefix.as_ref();
    list_after_key(o, prefix, key(prefix, after), max)
}

/// As [`list`], after a key: with an empty one the empty name is listed too.
pub fn list_after_key(
    o: &mut dyn Object,
    prefix: impl AsRef<[u8]>,
    mut last: Bytes,
    max: u64,
) -> CallResult<Vec<(Bytes, Bytes)>> {
    let prefix = prefix.as_ref();
    let mut found = Vec::new();
    loop {
        let wanted = max.saturating_sub(found.len() as u64).min(PAGE_KEYS);
        if wanted == 0 {
            return Ok(found);
        }
        let page = o.omap_list(&last, prefix, wanted)?;
        let end = page.entries.last().map(|(key, _)| key.clone());
        found.extend(page.entries.into_iter().map(|(k, v)| (k.slice(prefix.len()..), v)));
        match end {
            Some(key) if page.more => last = key,
            _ => return Ok(found),
        }
    }
}

/// As [`list`], with the values decoded; EIO when one cannot be.
pub fn list_as<T: Decode>(
    o: &mut dyn Object,
    prefix: impl AsRef<[u8]>,
    after: &[u8],
    max: u64,
) -> CallResult<Vec<(Bytes, T)>> {
    let listed = list(o, prefix, after, max)?;
    listed.into_iter().map(|(name, value)| Ok((name, stored(&value)?))).collect()
}
