//! Requests on one object.

use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use types::{ByteString, HObject, PoolId, SnapId, UTime};
use wire::msg::op::{self, OpArgs, OpCode, cmp_op, op_flags};
use wire::msg::op_data as od;
use wire::msg::{ObjectLocator, Ops, OsdOp, SnapContext, flags};

/// The full name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its pool.
    pub pool: PoolId,
    /// Its namespace; empty by default.
    pub nspace: ByteString,
    /// Its locator key: objects of one key share a PG. Empty: the name counts.
    pub key: ByteString,
    /// Its name.
    pub name: ByteString,
}

impl Object {
    /// An object in the default namespace, without a locator key.
    pub fn new(pool: PoolId, name: impl Into<ByteString>) -> Self {
        let (nspace, key) = (ByteString::default(), ByteString::default());
        Object { pool, nspace, key, name: name.into() }
    }

    /// In this namespace.
    #[must_use]
    pub fn in_namespace(mut self, nspace: impl Into<ByteString>) -> Self {
        self.nspace = nspace.into();
        self
    }

    /// With this locator key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<ByteString>) -> Self {
        self.key = key.into();
        self
    }

    pub(crate) fn locator(&self) -> ObjectLocator {
        let (key, nspace) = (self.key.clone(), self.nspace.clone());
        ObjectLocator { pool: self.pool, key, nspace, hash: -1 }
    }

    /// At its place in the order of objects; `hash` is the raw hash of its name.
    pub(crate) fn at(&self, hash: u32, snap: SnapId) -> HObject {
        let key = if self.key == self.name { ByteString::default() } else { self.key.clone() };
        let (nspace, name) = (self.nspace.clone(), self.name.clone());
        HObject { pool: self.pool, hash, nspace, key, name, snap, max: false }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {}", self.name)?;
        if !self.nspace.is_empty() {
            write!(f, " of namespace {}", self.nspace)?;
        }
        write!(f, " in pool {}", self.pool)
    }
}

/// Operations on one object that happen together or not at all.
///
/// Each method appends one operation; outputs are taken from the reply by the operation's place,
/// counted from 0. A request is a write when it has an operation that writes.
#[derive(Clone, Debug)]
pub struct ObjectOp {
    pub(crate) object: Object,
    pub(crate) ops: Ops,
    pub(crate) flags: u32,
    pub(crate) snap: SnapId,
    pub(crate) snapc: SnapContext,
    pub(crate) mtime: Option<UTime>,
    pub(crate) timeout: Option<Duration>,
}

fn extent(offset: u64, length: u64) -> OpArgs {
    op::Extent { offset, length, ..op::Extent::default() }.into()
}

fn len(data: &Bytes) -> u64 {
    data.len() as u64
}

/// What is asked for.
impl ObjectOp {
    /// Nothing yet, on this object.
    pub fn new(object: Object) -> Self {
        ObjectOp {
            object,
            ops: Ops::new(),
            flags: 0,
            snap: SnapId::HEAD,
            snapc: SnapContext::default(),
            mtime: None,
            timeout: None,
        }
    }

    /// Any operation.
    #[must_use]
    pub fn op(mut self, op: OsdOp) -> Self {
        self.ops.push(op);
        self
    }

    fn plain(self, code: OpCode, args: impl Into<OpArgs>) -> Self {
        self.op(OsdOp::new(code, args))
    }

    fn with_data(self, code: OpCode, args: impl Into<OpArgs>, data: impl Into<Bytes>) -> Self {
        self.op(OsdOp::new(code, args).with_indata(data))
    }

    /// Reads bytes; `length` 0 reads to the end.
    #[must_use]
    pub fn read(self, offset: u64, length: u64) -> Self {
        self.plain(OpCode::READ, extent(offset, length))
    }

    /// Reads bytes, without holes.
    #[must_use]
    pub fn sparse_read(self, offset: u64, length: u64) -> Self {
        self.plain(OpCode::SPARSE_READ, extent(offset, length))
    }

    /// Size and modification time.
    #[must_use]
    pub fn stat(self) -> Self {
        self.plain(OpCode::STAT, OpArgs::default())
    }

    /// Writes bytes.
    #[must_use]
    pub fn write(self, offset: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.with_data(OpCode::WRITE, extent(offset, len(&data)), data)
    }

    /// Replaces all bytes.
    #[must_use]
    pub fn write_full(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.with_data(OpCode::WRITEFULL, extent(0, len(&data)), data)
    }

    /// Writes bytes at the end.
    #[must_use]
    pub fn append(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.with_data(OpCode::APPEND, extent(0, len(&data)), data)
    }

    /// Writes a pattern again and again; `length` must be a multiple of the pattern's.
    #[must_use]
    pub fn write_same(self, offset: u64, length: u64, pattern: impl Into<Bytes>) -> Self {
        let pattern = pattern.into();
        let args = op::WriteSame { offset, length, data_length: len(&pattern) };
        self.with_data(OpCode::WRITESAME, args, pattern)
    }

    /// Makes a hole.
    #[must_use]
    pub fn zero(self, offset: u64, length: u64) -> Self {
        self.plain(OpCode::ZERO, extent(offset, length))
    }

    /// Cuts off, or extends with zeros.
    #[must_use]
    pub fn truncate(self, size: u64) -> Self {
        self.plain(OpCode::TRUNCATE, extent(size, 0))
    }

    /// Removes the object.
    #[must_use]
    pub fn remove(self) -> Self {
        self.plain(OpCode::DELETE, OpArgs::default())
    }

    /// Makes the object. If `exclusive`, it must not exist.
    #[must_use]
    pub fn create(self, exclusive: bool) -> Self {
        let flags = if exclusive { op_flags::EXCL } else { 0 };
        self.op(OsdOp::new(OpCode::CREATE, OpArgs::default()).with_flags(flags))
    }

    /// Fails unless the object is at this user version.
    #[must_use]
    pub fn assert_version(self, version: u64) -> Self {
        self.plain(OpCode::ASSERT_VER, op::AssertVer { unused: 0, version })
    }

    /// Fails unless these bytes stand there.
    #[must_use]
    pub fn compare(self, offset: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.with_data(OpCode::CMPEXT, extent(offset, len(&data)), data)
    }

    /// CRC-32C of each `chunk_bytes` (0: of all), begun with `seed`.
    #[must_use]
    pub fn checksum_crc32c(self, offset: u64, length: u64, chunk_bytes: u32, seed: u32) -> Self {
        let kind = op::checksum_kind::CRC32C;
        let args = op::Checksum { offset, length, chunk_size: chunk_bytes, kind };
        self.with_data(OpCode::CHECKSUM, args, denc::encode(&seed))
    }

    /// One attribute.
    #[must_use]
    pub fn get_xattr(self, name: &str) -> Self {
        self.op(od::xattr_op(OpCode::GETXATTR, name.as_bytes(), &[], 0, 0))
    }

    /// All attributes.
    #[must_use]
    pub fn get_xattrs(self) -> Self {
        self.plain(OpCode::GETXATTRS, OpArgs::default())
    }

    /// Sets an attribute.
    #[must_use]
    pub fn set_xattr(self, name: &str, value: &[u8]) -> Self {
        self.op(od::xattr_op(OpCode::SETXATTR, name.as_bytes(), value, 0, 0))
    }

    /// Removes an attribute.
    #[must_use]
    pub fn remove_xattr(self, name: &str) -> Self {
        self.op(od::xattr_op(OpCode::RMXATTR, name.as_bytes(), &[], 0, 0))
    }

    /// Fails unless the attribute has this value.
    #[must_use]
    pub fn compare_xattr(self, name: &str, value: &[u8]) -> Self {
        let (eq, mode) = (cmp_op::EQ, cmp_op::MODE_STRING);
        self.op(od::xattr_op(OpCode::CMPXATTR, name.as_bytes(), value, eq, mode))
    }

    /// Omap keys after `after`, at most `max`.
    #[must_use]
    pub fn omap_keys(self, after: impl Into<ByteString>, max: u64) -> Self {
        let ask = od::OmapGetKeysIn { start_after: after.into(), max };
        self.with_data(OpCode::OMAPGETKEYS, OpArgs::default(), denc::encode(&ask))
    }

    /// Omap keys and values after `after` whose keys begin with `prefix`, at most `max`.
    #[must_use]
    pub fn omap_values(
        self,
        after: impl Into<ByteString>,
        prefix: impl Into<ByteString>,
        max: u64,
    ) -> Self {
        let ask = od::OmapGetValsIn { start_after: after.into(), max, prefix: prefix.into() };
        self.with_data(OpCode::OMAPGETVALS, OpArgs::default(), denc::encode(&ask))
    }

    /// The omap values of these keys, as far as they exist.
    #[must_use]
    pub fn omap_values_of(self, keys: &od::Keys) -> Self {
        self.with_data(OpCode::OMAPGETVALSBYKEYS, OpArgs::default(), denc::encode(keys))
    }

    /// The omap header.
    #[must_use]
    pub fn omap_header(self) -> Self {
        self.plain(OpCode::OMAPGETHEADER, OpArgs::default())
    }

    /// Sets omap values.
    #[must_use]
    pub fn set_omap(self, values: &od::Values) -> Self {
        self.with_data(OpCode::OMAPSETVALS, OpArgs::default(), denc::encode(values))
    }

    /// Sets the omap header.
    #[must_use]
    pub fn set_omap_header(self, header: impl Into<Bytes>) -> Self {
        self.with_data(OpCode::OMAPSETHEADER, OpArgs::default(), header)
    }

    /// Removes omap keys.
    #[must_use]
    pub fn remove_omap_keys(self, keys: &od::Keys) -> Self {
        self.with_data(OpCode::OMAPRMKEYS, OpArgs::default(), denc::encode(keys))
    }

    /// Removes the omap keys from `begin` to before `end`.
    #[must_use]
    pub fn remove_omap_range(
        self,
        begin: impl Into<ByteString>,
        end: impl Into<ByteString>,
    ) -> Self {
        let ask = od::OmapRmKeyRangeIn { begin: begin.into(), end: end.into() };
        self.with_data(OpCode::OMAPRMKEYRANGE, OpArgs::default(), denc::encode(&ask))
    }

    /// Removes the whole omap.
    #[must_use]
    pub fn clear_omap(self) -> Self {
        self.plain(OpCode::OMAPCLEAR, OpArgs::default())
    }

    /// Fails unless omap values compare as said.
    #[must_use]
    pub fn compare_omap(self, assertions: &od::OmapCmpIn) -> Self {
        self.with_data(OpCode::OMAP_CMP, OpArgs::default(), denc::encode(assertions))
    }

    /// Makes this object a copy of another; `version` 0: of whatever version it has.
    #[must_use]
    pub fn copy_from(self, source: &Object, snap: SnapId, version: u64) -> Self {
        let args = op::CopyFrom { snapid: snap.0, src_version: version, ..op::CopyFrom::default() };
        let ask = od::CopyFromIn { source: source.name.clone(), locator: source.locator() };
        self.with_data(OpCode::COPY_FROM, args, denc::encode(&ask))
    }

    /// A hint about what the object will be.
    #[must_use]
    pub fn alloc_hint(self, object_bytes: u64, write_bytes: u64, flags: u32) -> Self {
        let args = op::AllocHint {
            expected_object_size: object_bytes,
            expected_write_size: write_bytes,
            flags,
        };
        self.plain(OpCode::SETALLOCHINT, args).may_fail()
    }

    /// Who watches the object.
    #[must_use]
    pub fn list_watchers(self) -> Self {
        self.plain(OpCode::LIST_WATCHERS, OpArgs::default())
    }

    /// The object's clones. Must be the only operation.
    #[must_use]
    pub fn list_snaps(self) -> Self {
        self.plain(OpCode::LIST_SNAPS, OpArgs::default()).at_snap(SnapId::SNAPDIR)
    }

    /// Makes the object what it was at a snapshot.
    #[must_use]
    pub fn rollback(self, snap: SnapId) -> Self {
        self.plain(OpCode::ROLLBACK, op::Snap { snapid: snap.0 })
    }

    /// Runs a method of an object class. If the method writes, add [`ObjectOp::as_write`].
    #[must_use]
    pub fn call(self, class: &str, method: &str, input: impl Into<Bytes>) -> Self {
        let (class, method, input) = (class.to_owned(), method.to_owned(), input.into());
        self.op(od::CallIn { class, method, input }.into_op())
    }
}

/// How it is to be done.
impl ObjectOp {
    /// The last operation may fail; the others go on.
    #[must_use]
    pub fn may_fail(mut self) -> Self {
        if let Some(last) = self.ops.last_mut() {
            last.flags |= op_flags::FAILOK;
        }
        self
    }

    /// The request writes, though none of its operations says so.
    #[must_use]
    pub fn as_write(mut self) -> Self {
        self.flags |= flags::WRITE;
        self
    }

    /// Reads at a snapshot.
    #[must_use]
    pub fn at_snap(mut self, snap: SnapId) -> Self {
        self.snap = snap;
        self
    }

    /// Writes with these snapshots in mind.
    #[must_use]
    pub fn with_snaps(mut self, snapc: SnapContext) -> Self {
        self.snapc = snapc;
        self
    }

    /// The modification time to set; now by default.
    #[must_use]
    pub fn with_mtime(mut self, mtime: UTime) -> Self {
        self.mtime = Some(mtime);
        self
    }

    /// Fails with ETIMEDOUT after so long. A write may then have happened or not.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Is sent though the cluster or pool is full, and fails if it needs space.
    #[must_use]
    pub fn full_try(mut self) -> Self {
        self.flags |= flags::FULL_TRY;
        self
    }

    /// The same on a condition.
    #[must_use]
    pub(crate) fn full_try_if(self, yes: bool) -> Self {
        if yes { self.full_try() } else { self }
    }

    /// A write's operations may return data.
    #[must_use]
    pub fn return_data(mut self) -> Self {
        self.flags |= flags::RETURNVEC;
        self
    }

    /// More request flags ([`wire::msg::flags`]).
    #[must_use]
    pub fn with_flags(mut self, more: u32) -> Self {
        self.flags |= more;
        self
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn is_write(&self) -> bool {
        self.flags & flags::WRITE != 0 || self.ops.iter().any(|op| op.code.is_write())
    }

    /// The request's flags on the wire.
    pub(crate) fn wire_flags(&self) -> u32 {
        let mut all = self.flags | flags::ONDISK | flags::KNOWN_IF_REDIRECTED;
        if self.is_write() {
            all |= flags::WRITE;
        }
        // WRITE alone is what librados sets for a compound write that reads as well.
        if all & flags::WRITE == 0 {
            all |= flags::READ;
        }
        all
    }

    /// Bytes it counts against the bound on bytes in flight: what it writes, or wants to read.
    pub(crate) fn cost(&self) -> usize {
        let of = |op: &OsdOp| match op.code {
            OpCode::READ | OpCode::SPARSE_READ | OpCode::SYNC_READ => {
                usize::try_from(op.args.extent().length).unwrap_or(usize::MAX)
            }
            _ => op.indata.len(),
        };
        self.ops.iter().map(of).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on() -> ObjectOp {
        ObjectOp::new(Object::new(PoolId(2), "o"))
    }

    #[test]
    fn flags_are_those_real_clients_send() {
        assert_eq!(on().write_full("x").wire_flags(), 0x40_0024);
        assert_eq!(on().read(0, 5).stat().wire_flags(), 0x40_0014);
        assert_eq!(on().remove().full_try().wire_flags(), 0xc0_0024);
        assert!(on().call("lock", "lock", "").as_write().is_write());
        assert!(!on().compare(0, "x").is_write());
    }

    #[test]
    fn cost_is_what_moves() {
        assert_eq!(on().write(0, vec![0; 100]).set_xattr("ab", b"c").cost(), 103);
        assert_eq!(on().read(7, 4096).stat().cost(), 4096);
    }
}
