//! The header of an image (`rbd_header.<id>`): size, features, flags, times, stripes.

use super::snapshot;
use super::types::Parent;
use crate::input::{Tail, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use denc::Decode;
use types::{Errno, SnapId, UTime};

/// Feature bits of images.
pub mod feature {
    pub const LAYERING: u64 = 1;
    pub const STRIPING: u64 = 2;
    pub const EXCLUSIVE_LOCK: u64 = 4;
    pub const OBJECT_MAP: u64 = 8;
    pub const FAST_DIFF: u64 = 0x10;
    pub const DEEP_FLATTEN: u64 = 0x20;
    pub const JOURNALING: u64 = 0x40;
    pub const DATA_POOL: u64 = 0x80;
    pub const OPERATIONS: u64 = 0x100;
    pub const MIGRATING: u64 = 0x200;
    pub const NON_PRIMARY: u64 = 0x400;
    pub const DIRTY_CACHE: u64 = 0x800;

    pub const ALL: u64 = 0xfff;
    /// Only the class itself sets them.
    pub const INTERNAL: u64 = OPERATIONS | MIGRATING;
    pub const MUTABLE: u64 =
        EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
    pub const DISABLE_ONLY: u64 = DEEP_FLATTEN;
    /// Who does not know one of them cannot read the image.
    pub const READ_INCOMPATIBLE: u64 = LAYERING | STRIPING | DATA_POOL | DIRTY_CACHE;
}

/// Feature bits that come and go with what is done to an image.
pub mod op_feature {
    pub const CLONE_PARENT: u64 = 1;
    pub const CLONE_CHILD: u64 = 2;
    pub const GROUP: u64 = 4;
    pub const SNAP_TRASH: u64 = 8;
    pub const ALL: u64 = CLONE_PARENT | CLONE_CHILD | GROUP | SNAP_TRASH;
}

/// ENOENT unless the object is there.
pub fn must_exist(o: &mut dyn Object) -> CallResult<()> {
    o.stat()?.map(drop).ok_or(Errno::ENOENT.into())
}

/// ENOEXEC unless the image has the features.
pub fn must_have(o: &mut dyn Object, features: u64) -> CallResult<()> {
    if has(o, features)? { Ok(()) } else { Err(Errno::ENOEXEC.into()) }
}

/// Whether the image has the features; one of format 1 has none.
pub fn has(o: &mut dyn Object, features: u64) -> CallResult<bool> {
    let found = omap::find::<u64>(o, b"features")?.unwrap_or(0);
    Ok(found & features == features)
}

/// Changes op features, and the feature OPERATIONS which says that there are some.
pub fn change_op_features(o: &mut dyn Object, value: u64, mask: u64) -> CallResult<()> {
    let features: u64 = omap::get(o, b"features")?;
    let old: u64 = omap::find(o, b"op_features")?.unwrap_or(0);
    let new = old & !mask | value & mask;
    if new == old {
        return Ok(());
    }
    let new_features = if new == 0 {
        omap::remove(o, b"op_features")?;
        features & !feature::OPERATIONS
    } else {
        omap::put(o, b"op_features", &new)?;
        features | feature::OPERATIONS
    };
    if new_features != features {
        omap::put(o, b"features", &new_features)?;
    }
    Ok(())
}

#[derive(Decode)]
struct CreateArgs {
    size: u64,
    order: u8,
    features: u64,
    object_prefix: Bytes,
    data_pool: Tail<i64>,
}

pub fn create(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: CreateArgs = args(input)?;
    if a.features & !feature::ALL != 0 {
        return Err(Errno::ENOSYS.into());
    }
    if a.object_prefix.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    if omap::has(o, b"object_prefix")? {
        return Err(Errno::EEXIST.into());
    }
    let data_pool = a.data_pool.0.filter(|&pool| pool != super::types::NO_POOL);
    if a.features & feature::OPERATIONS != 0
        || data_pool.is_some() != (a.features & feature::DATA_POOL != 0)
    {
        return Err(Errno::EINVAL.into());
    }
    let now = denc::encode(&o.now());
    let mut entries = vec![
        (Bytes::from_static(b"size"), denc::encode(&a.size)),
        (Bytes::from_static(b"order"), denc::encode(&a.order)),
        (Bytes::from_static(b"features"), denc::encode(&a.features)),
        (Bytes::from_static(b"object_prefix"), denc::encode(&a.object_prefix)),
        (Bytes::from_static(b"snap_seq"), denc::encode(&0u64)),
        (Bytes::from_static(b"create_timestamp"), now.clone()),
        (Bytes::from_static(b"access_timestamp"), now.clone()),
        (Bytes::from_static(b"modify_timestamp"), now),
    ];
    if let Some(pool) = data_pool {
        entries.push((Bytes::from_static(b"data_pool_id"), denc::encode(&pool)));
    }
    o.omap_set(entries)?;
    Ok(Bytes::new())
}

pub fn get_features(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (_snap, Tail(read_only)): (SnapId, Tail<bool>) = args(input)?;
    let features: u64 = omap::get(o, b"features")?;
    let mask = if read_only == Some(true) { feature::READ_INCOMPATIBLE } else { feature::ALL };
    Ok(denc::encode(&(features, features & mask)))
}

pub fn set_features(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (value, mask): (u64, u64) = args(input)?;
    let old: u64 = omap::find(o, b"features")?.unwrap_or(0);
    if mask & feature::INTERNAL != 0 {
        return Err(Errno::EINVAL.into());
    }
    // Newer clients may name features that we do not know.
    let mask = mask & feature::ALL;
    let (enabled, disabled) = (value & mask, !value & mask);
    if enabled & !feature::MUTABLE != 0
        || disabled & !(feature::MUTABLE | feature::DISABLE_ONLY) != 0
    {
        return Err(Errno::EINVAL.into());
    }
    omap::put(o, b"features", &(old & !mask | enabled))?;
    Ok(Bytes::new())
}

pub fn get_all_features(_: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&feature::ALL))
}

pub fn get_size(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: SnapId = args(input)?;
    let order: u8 = omap::get(o, b"order")?;
    let size = match snap {
        SnapId::HEAD => omap::get(o, b"size")?,
        snap => snapshot::load(o, snap)?.image_size,
    };
    Ok(denc::encode(&(order, size)))
}

pub fn set_size(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let size: u64 = args(input)?;
    let old: u64 = omap::get(o, b"size")?;
    omap::put(o, b"size", &size)?;
    if size < old
        && let Some(mut parent) = omap::find::<Parent>(o, b"parent")?
        && parent.spec.exists()
        && parent.head_overlap > Some(size)
    {
        parent.head_overlap = Some(size);
        omap::put(o, b"parent", &parent)?;
    }
    Ok(Bytes::new())
}

pub fn get_object_prefix(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&omap::get::<Bytes>(o, b"object_prefix")?))
}

pub fn get_data_pool(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let pool = omap::find(o, b"data_pool_id")?;
    Ok(denc::encode(&pool.unwrap_or(super::types::NO_POOL)))
}

pub fn get_stripe_unit_count(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    must_exist(o)?;
    must_have(o, feature::STRIPING)?;
    let unit = match omap::find::<u64>(o, b"stripe_unit")? {
        Some(unit) => unit,
        None => object_size(o)?.ok_or(Errno::EIO)?,
    };
    let count = omap::find::<u64>(o, b"stripe_count")?.unwrap_or(1);
    Ok(denc::encode(&(unit, count)))
}

pub fn set_stripe_unit_count(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (unit, count): (u64, u64) = args(input)?;
    if unit == 0 || count == 0 {
        return Err(Errno::EINVAL.into());
    }
    must_exist(o)?;
    must_have(o, feature::STRIPING)?;
    let object_size = object_size(o)?.ok_or(Errno::ENOENT)?;
    if object_size % unit != 0 || unit > object_size {
        return Err(Errno::EINVAL.into());
    }
    omap::put(o, b"stripe_unit", &unit)?;
    omap::put(o, b"stripe_count", &count)?;
    Ok(Bytes::new())
}

/// Bytes of a data object.
fn object_size(o: &mut dyn Object) -> CallResult<Option<u64>> {
    match omap::find::<u8>(o, b"order")? {
        None => Ok(None),
        Some(order) => Ok(Some(1u64.checked_shl(order.into()).ok_or(Errno::EIO)?)),
    }
}

fn timestamp(o: &mut dyn Object, key: &[u8]) -> CallResult<Bytes> {
    Ok(denc::encode(&omap::find::<UTime>(o, key)?.unwrap_or_default()))
}

fn set_timestamp(o: &mut dyn Object, key: &[u8]) -> CallResult<Bytes> {
    must_exist(o)?;
    let now = o.now();
    omap::put(o, key, &now)?;
    Ok(Bytes::new())
}

pub fn get_create_timestamp(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    timestamp(o, b"create_timestamp")
}

pub fn get_access_timestamp(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    timestamp(o, b"access_timestamp")
}

pub fn get_modify_timestamp(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    timestamp(o, b"modify_timestamp")
}

pub fn set_access_timestamp(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    set_timestamp(o, b"access_timestamp")
}

pub fn set_modify_timestamp(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    set_timestamp(o, b"modify_timestamp")
}

pub fn get_flags(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let flags = match args(input)? {
        SnapId::HEAD => omap::find(o, b"flags")?.unwrap_or(0),
        snap => snapshot::load(o, snap)?.flags,
    };
    Ok(denc::encode(&flags))
}

pub fn set_flags(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (value, mask, Tail(snap)): (u64, u64, Tail<SnapId>) = args(input)?;
    let changed = |old: u64| old & !mask | value & mask;
    match snap.unwrap_or(SnapId::HEAD) {
        SnapId::HEAD => {
            let old = omap::find(o, b"flags")?.unwrap_or(0);
            omap::put(o, b"flags", &changed(old))?;
        }
        snap => {
            let mut record = snapshot::load(o, snap)?;
            record.flags = changed(record.flags);
            snapshot::save(o, &record)?;
        }
    }
    Ok(Bytes::new())
}

pub fn op_features_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&omap::find::<u64>(o, b"op_features")?.unwrap_or(0)))
}

pub fn op_features_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (value, mask): (u64, u64) = args(input)?;
    if mask & !op_feature::ALL != 0 {
        return Err(Errno::EINVAL.into());
    }
    change_op_features(o, value, mask)?;
    Ok(Bytes::new())
}
