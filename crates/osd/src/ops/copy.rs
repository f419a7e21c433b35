//! COPY_FROM: the object becomes a copy of another one, which may be on any OSD.
//!
//! The run stops with [`Stop::Copy`]; the host fetches the source and runs the request again.

use super::{Run, Stop};
use bytes::Bytes;
use maps::OsdMap;
use types::{ByteString, Errno, HObject, PgId, PoolId, SnapId, UTime};
use wire::msg::op_data::{CopyFrom2In, CopyFromIn, input};
use wire::msg::{ObjectLocator, OpCode, OsdOp};

/// `CEPH_OSD_COPY_FROM_FLAG_FLUSH`
const FLAG_FLUSH: u8 = 1;
/// `CEPH_OSD_COPY_FROM_FLAG_TRUNCATE_SEQ`
const FLAG_TRUNCATE_SEQ: u8 = 0x20;

/// What is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The source's name.
    pub name: ByteString,
    /// Where it is.
    pub locator: ObjectLocator,
    /// Which snapshot of it; [`SnapId::HEAD`] for the newest state.
    pub snap: SnapId,
}

impl CopySource {
    /// Where its name, or its locator, puts it. `None`: there is no such pool.
    pub fn raw_pg(&self, map: &OsdMap) -> Option<PgId> {
        let ObjectLocator { pool, key, nspace, hash } = &self.locator;
        match u32::try_from(*hash) {
            Ok(hash) => Some(PgId::new(*pool, hash)),
            Err(_) => map.object_to_pg(*pool, nspace, key, &self.name),
        }
    }
}

/// An object that was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedObject {
    /// Its size in bytes.
    pub size: u64,
    /// When it was written last: the copy is as old.
    pub mtime: UTime,
    /// Its user version.
    pub user_version: u64,
    /// Offset and bytes of what is stored.
    pub data: Vec<(u64, Bytes)>,
    /// Users' attributes, by their stored names.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// The omap header.
    pub omap_header: Bytes,
    /// The omap.
    pub omap: Vec<(Bytes, Bytes)>,
    /// CephFS: its truncation.
    pub truncate_seq: u32,
    /// See `truncate_seq`.
    pub truncate_size: u64,
}

impl CopiedObject {
    /// What it takes of memory, about.
    fn bytes(&self) -> usize {
        let data: usize = self.data.iter().map(|(_, data)| data.len()).sum();
        let pairs: usize = self.attrs.iter().chain(&self.omap).map(entry_bytes).sum();
        data + pairs + self.omap_header.len()
    }
}

/// What an attribute or an entry of an omap takes of memory, about.
pub fn entry_bytes(entry: &(Bytes, Bytes)) -> usize {
    size_of_val(entry).saturating_add(entry.0.len()).saturating_add(entry.1.len())
}

impl Run<'_> {
    pub(super) fn op_copy_from(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let args = op.args.copy_from();
        let (CopyFromIn { source, mut locator }, truncation) = copy_input(op, args.flags)?;
        if locator.pool == PoolId(-1) {
            locator.pool = self.head.pool;
        }
        let snap = SnapId(args.snapid);
        if is_same(&self.head, &source, &locator, snap) {
            return Err(Errno::EINVAL.into());
        }
        let wanted = CopySource { name: source, locator, snap };
        let Some((_, fetched)) = self.scene.copies.iter().find(|(s, _)| *s == wanted) else {
            return Err(Stop::Copy(wanted, self.made_bytes));
        };
        let copied = fetched.clone().map_err(Stop::Refuse)?;
        // There is no tier to flush the source from first.
        if args.flags & FLAG_FLUSH != 0 {
            return Err(Stop::Refuse(Errno::EINVAL));
        }
        let version = args.src_version;
        if version != 0 && version < copied.user_version {
            return Err(Stop::Refuse(Errno::ERANGE));
        }
        if version > copied.user_version {
            return Err(Stop::Refuse(Errno::EOVERFLOW));
        }
        self.made_bytes = self.made_bytes.saturating_add(copied.bytes());
        self.replace_by(copied, truncation);
        Ok(0)
    }

    fn replace_by(&mut self, copied: CopiedObject, truncation: Option<(u32, u64)>) {
        self.change();
        let key = self.head_key.clone();
        let old = self.now.size;
        self.txn.remove(&key);
        self.txn.touch(&key);
        self.txn.truncate(&key, copied.size);
        for (offset, data) in copied.data {
            self.txn.write(&key, offset, data);
        }
        for (name, value) in copied.attrs {
            self.txn.set_attr(&key, name, value);
        }
        self.txn.omap_set_header(&key, copied.omap_header);
        self.txn.omap_set(&key, copied.omap);
        self.snapset_changed |= !self.snapset.clones.is_empty();
        self.modified.insert(0, old.max(copied.size));
        self.now.exists = true;
        self.now.size = copied.size;
        self.now.meta.whiteout = false;
        let (seq, size) = truncation.unwrap_or((copied.truncate_seq, copied.truncate_size));
        self.now.meta.truncate_seq = seq;
        self.now.meta.truncate_size = size;
        // The copy has its source's user version, whatever was here before.
        self.now.meta.user_version = copied.user_version;
        self.now.meta.mtime = copied.mtime;
        self.is_copy = true;
    }
}

fn copy_input(op: &OsdOp, flags: u8) -> Result<(CopyFromIn, Option<(u32, u64)>), Stop> {
    if op.code == OpCode::COPY_FROM {
        return Ok((input(op)?, None));
    }
    if flags & FLAG_TRUNCATE_SEQ == 0 {
        return Ok((input(op)?, None));
    }
    let CopyFrom2In { source, locator, truncate_seq, truncate_size } = input(op)?;
    Ok((CopyFromIn { source, locator }, Some((truncate_seq, truncate_size))))
}

fn is_same(head: &HObject, source: &ByteString, locator: &ObjectLocator, snap: SnapId) -> bool {
    let key = if locator.key == *source { ByteString::default() } else { locator.key.clone() };
    head.name == *source
        && head.key == key
        && head.nspace == locator.nspace
        && head.pool == locator.pool
        && snap == SnapId::HEAD
}
