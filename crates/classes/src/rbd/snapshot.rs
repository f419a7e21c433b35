//! Snapshots in an image's header, one key `snapshot_%016x` each.

use super::header::{change_op_features, feature, must_exist, must_have, op_feature};
use super::types::{Parent, SnapNamespace, SnapRecord};
use crate::input::{Tail, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use denc::Decode;
use types::{Errno, SnapId, Uuid};

const PREFIX: &str = "snapshot_";

fn key(snap: SnapId) -> String {
    format!("{PREFIX}{:016x}", snap.0)
}

/// A snapshot; ENOENT without it.
pub fn load(o: &mut dyn Object, snap: SnapId) -> CallResult<SnapRecord> {
    omap::get(o, key(snap).as_bytes())
}

/// Stores a snapshot under its id.
pub fn save(o: &mut dyn Object, record: &SnapRecord) -> CallResult<()> {
    omap::put(o, key(record.id).as_bytes(), record)
}

/// All snapshots, oldest first.
pub fn all(o: &mut dyn Object) -> CallResult<Vec<SnapRecord>> {
    let listed = omap::list_as(o, PREFIX, b"", omap::ALL)?;
    Ok(listed.into_iter().map(|(_, record)| record).collect())
}

/// Ids of all snapshots, oldest first.
fn ids(o: &mut dyn Object) -> CallResult<Vec<SnapId>> {
    let id = |(hex, _): (Bytes, Bytes)| {
        let hex = std::str::from_utf8(&hex).map_err(|_| Errno::EIO)?;
        Ok(SnapId(u64::from_str_radix(hex, 16).map_err(|_| Errno::EIO)?))
    };
    omap::list(o, PREFIX, b"", omap::ALL)?.into_iter().map(id).collect()
}

/// The snapshot that a method is asked about; EINVAL for the head.
fn asked(o: &mut dyn Object, input: &Bytes) -> CallResult<SnapRecord> {
    match args(input)? {
        SnapId::HEAD => Err(Errno::EINVAL.into()),
        snap => load(o, snap),
    }
}

pub fn get_snapcontext(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let mut snaps = ids(o)?;
    snaps.reverse();
    let seq: SnapId = omap::get(o, b"snap_seq")?;
    Ok(denc::encode(&(seq, snaps)))
}

pub fn snapshot_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&asked(o, input)?.info()))
}

pub fn get_snapshot_name(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&asked(o, input)?.name))
}

pub fn get_snapshot_timestamp(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&asked(o, input)?.timestamp))
}

#[derive(Decode)]
struct AddArgs {
    name: Bytes,
    id: SnapId,
    namespace: Tail<SnapNamespace>,
}

pub fn snapshot_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let AddArgs { name, id, namespace: Tail(namespace) } = args(input)?;
    let namespace = namespace.unwrap_or_default();
    if namespace == SnapNamespace::Unknown || id > SnapId::MAX {
        return Err(Errno::EINVAL.into());
    }
    // Ids only grow: this one lost a race with another snapshot.
    if id < omap::get::<SnapId>(o, b"snap_seq")? {
        return Err(Errno::ESTALE.into());
    }
    let image_size = omap::get(o, b"size")?;
    let flags = omap::find(o, b"flags")?.unwrap_or(0);
    let limit: u64 = omap::find(o, b"snap_limit")?.unwrap_or(u64::MAX);
    let others = all(o)?;
    if others.len() as u64 >= limit {
        return Err(Errno::EDQUOT.into());
    }
    let same = |s: &SnapRecord| s.id == id || (s.name == name && s.namespace == namespace);
    if others.iter().any(same) {
        return Err(Errno::EEXIST.into());
    }
    let parent = omap::find::<Parent>(o, b"parent")?.filter(|p| p.spec.exists());
    if namespace.is_trash() {
        change_op_features(o, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    }
    omap::put(o, b"snap_seq", &id)?;
    let record = SnapRecord {
        id,
        name,
        image_size,
        protection: SnapRecord::UNPROTECTED,
        flags,
        namespace,
        timestamp: o.now(),
        child_count: 0,
        parent_overlap: parent.and_then(|p| p.head_overlap),
    };
    save(o, &record)?;
    Ok(Bytes::new())
}

pub fn snapshot_rename(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, name): (SnapId, Bytes) = args(input)?;
    let same = |s: &SnapRecord| s.namespace == SnapNamespace::User && s.name == name;
    if all(o)?.iter().any(same) {
        return Err(Errno::EEXIST.into());
    }
    let mut record = load(o, id)?;
    if record.namespace != SnapNamespace::User {
        return Err(Errno::EINVAL.into());
    }
    record.name = name;
    save(o, &record)?;
    Ok(Bytes::new())
}

pub fn snapshot_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: SnapId = args(input)?;
    let record = load(o, id)?;
    if record.protection != SnapRecord::UNPROTECTED || record.child_count > 0 {
        return Err(Errno::EBUSY.into());
    }
    omap::remove(o, key(id).as_bytes())?;
    let others: Vec<_> = all(o)?.into_iter().filter(|s| s.id != id).collect();
    let others_have_parent = others.iter().any(|s| s.parent_overlap.is_some());
    let parent = omap::find::<Parent>(o, b"parent")?.filter(|p| p.spec.exists());
    let head_has_parent = parent.as_ref().is_some_and(|p| p.head_overlap.is_some());
    let still_child = head_has_parent || others_have_parent;
    if parent.is_some() && !still_child {
        omap::remove(o, b"parent")?;
    }
    let mut unused = 0;
    if !still_child {
        unused |= op_feature::CLONE_CHILD;
    }
    if !others.iter().any(|s| s.namespace.is_trash()) {
        unused |= op_feature::SNAP_TRASH;
    }
    if unused != 0 {
        change_op_features(o, 0, unused)?;
    }
    Ok(Bytes::new())
}

pub fn snapshot_trash_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let mut record = load(o, args(input)?)?;
    if record.protection != SnapRecord::UNPROTECTED {
        return Err(Errno::EBUSY.into());
    }
    if record.namespace.is_trash() {
        return Err(Errno::EEXIST.into());
    }
    change_op_features(o, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    record.namespace = SnapNamespace::Trash(record.name, record.namespace.kind());
    record.name = new_uuid(o);
    save(o, &record)?;
    Ok(Bytes::new())
}

/// A random UUID as text.
pub fn new_uuid(o: &mut dyn Object) -> Bytes {
    let mut random = [0; 16];
    o.random(&mut random);
    Uuid::from_random(u128::from_be_bytes(random)).to_string().into()
}

pub fn snapshot_get_limit(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&omap::find::<u64>(o, b"snap_limit")?.unwrap_or(u64::MAX)))
}

pub fn snapshot_set_limit(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let limit: u64 = args(input)?;
    if limit == u64::MAX {
        omap::remove(o, b"snap_limit")?;
        return Ok(Bytes::new());
    }
    let count = match super::old::load(o)? {
        Some(header) => header.snaps.len(),
        None => ids(o)?.len(),
    };
    if limit < count as u64 {
        return Err(Errno::ERANGE.into());
    }
    omap::put(o, b"snap_limit", &limit)?;
    Ok(Bytes::new())
}

pub fn get_protection_status(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: SnapId = args(input)?;
    must_exist(o)?;
    if snap == SnapId::HEAD {
        return Err(Errno::EINVAL.into());
    }
    match load(o, snap)?.protection {
        status @ ..=SnapRecord::PROTECTED => Ok(denc::encode(&status)),
        _ => Err(Errno::EIO.into()),
    }
}

pub fn set_protection_status(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (snap, status): (SnapId, u8) = args(input)?;
    must_exist(o)?;
    must_have(o, feature::LAYERING)?;
    if snap == SnapId::HEAD || status > SnapRecord::PROTECTED {
        return Err(Errno::EINVAL.into());
    }
    let mut record = load(o, snap)?;
    record.protection = status;
    save(o, &record)?;
    Ok(Bytes::new())
}
