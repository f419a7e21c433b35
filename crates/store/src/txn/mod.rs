//! Transactions: changes to several objects that happen together.
//!
//! A transaction is data: the primary builds it, hands it to its own store, and sends the same one
//! to the replicas ([`Transaction::encode_to`]). Its ops are carried out in order; each sees what
//! the ones before it did.

mod encoding;

use crate::compress::Compress;
use bytes::Bytes;
use denc::KnownCrc;
use io::BLOCK_BYTES;
use types::ObjectKey;

pub use crate::keys::MAX_NAME_BYTES;

/// Largest object: its extents must fit one transaction.
pub const MAX_OBJECT_BYTES: u64 = 1 << 32;
/// Longest record that an object's owner may keep with it.
pub const MAX_META_BYTES: usize = 16 * 1024;
/// Longest value of an attribute, omap entry or omap header.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// An object of a transaction: an index into its table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIx(pub u32);

/// One change.
///
/// An op that gives an object something creates the object when it is missing; one that takes
/// something away does nothing then. Zeros and holes read the same; a hole takes no space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes sure that the object exists.
    Touch(ObjectIx),
    /// Writes `data` at `offset`; the object grows as needed.
    Write {
        /// The object.
        object: ObjectIx,
        /// First byte.
        offset: u64,
        /// The bytes. One aligned piece at an aligned offset reaches the disk without a copy.
        data: Bytes,
        /// Their checksum, if somebody has worked it out.
        crc: KnownCrc,
    },
    /// Makes a range read as zeros, up to the object's size, which stays as it is. Whole blocks
    /// become holes, also the last one when the range goes up to the size. Does nothing to a
    /// missing object.
    Zero {
        /// The object.
        object: ObjectIx,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Sets the size; bytes that come in are zero.
    Truncate {
        /// The object.
        object: ObjectIx,
        /// The new size.
        size: u64,
    },
    /// Removes the object with everything it has.
    Remove(ObjectIx),
    /// Sets the owner's record of the object.
    SetMeta {
        /// The object.
        object: ObjectIx,
        /// The record, up to [`MAX_META_BYTES`].
        meta: Bytes,
    },
    /// Sets an attribute.
    SetAttr {
        /// The object.
        object: ObjectIx,
        /// Its name.
        name: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// Removes an attribute.
    RmAttr {
        /// The object.
        object: ObjectIx,
        /// Its name.
        name: Bytes,
    },
    /// Removes all attributes.
    RmAttrs(ObjectIx),
    /// Makes `to` a copy of `from`: data (shared until either is overwritten), size, record,
    /// attributes, omap and its header. What `to` was before is removed. `from` must exist.
    Clone {
        /// The original.
        from: ObjectIx,
        /// The copy.
        to: ObjectIx,
    },
    /// Copies `len` bytes (up to the end of `from`) over those of `to`, sharing whole blocks where
    /// both offsets agree within a block. Holes come over as holes. `from` must exist.
    CloneRange {
        /// The original.
        from: ObjectIx,
        /// Where the bytes go.
        to: ObjectIx,
        /// First byte in `from`.
        src_offset: u64,
        /// Number of bytes.
        len: u64,
        /// First byte in `to`.
        dst_offset: u64,
    },
    /// Gives `from` the name `to`. `from` must exist, `to` must not.
    Rename {
        /// The old name.
        from: ObjectIx,
        /// The new one.
        to: ObjectIx,
    },
    /// Sets omap entries.
    OmapSet {
        /// The object.
        object: ObjectIx,
        /// Keys and values.
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Removes omap entries.
    OmapRemove {
        /// The object.
        object: ObjectIx,
        /// Their keys.
        keys: Vec<Bytes>,
    },
    /// Removes the omap entries `from..to`.
    OmapRemoveRange {
        /// The object.
        object: ObjectIx,
        /// First key.
        from: Bytes,
        /// End, not included.
        to: Bytes,
    },
    /// Removes all omap entries and the header.
    OmapClear(ObjectIx),
    /// Sets the omap header; an empty one is none.
    OmapSetHeader {
        /// The object.
        object: ObjectIx,
        /// The header.
        header: Bytes,
    },
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Transactions of one sequencer become durable in the order they were submitted, and after a
    /// crash those that are there are the first ones.
    pub sequencer: u64,
    /// Whether it may use the space that is kept back so that removals and bookkeeping always work, and the
    /// part of the largest transaction that is kept back for copies of what another store took.
    pub may_use_reserve: bool,
    /// What data takes, and what compression does, is counted by account (an OSD's: the pool), see
    /// [`crate::Store::by_account`]. An object must always be changed under the same one:
    /// [`crate::Config::account_of`]. `u64::MAX` is nobody's.
    pub account: u64,
    /// How its writes are to be compressed, if at all.
    pub compress: Option<Compress>,
    objects: Vec<ObjectKey>,
    ops: Vec<Op>,
}

/// Why a transaction cannot be carried out, on any store, however often it is tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An op names an object that the table does not have.
    #[error("op {op} names object {index} of a table that has fewer")]
    NoSuchIndex {
        /// Which op.
        op: usize,
        /// The index.
        index: u32,
    },
    /// The table has a name twice.
    #[error("the object {0:?} stands twice in the transaction's table")]
    NamedTwice(ObjectKey),
    /// Something is longer than the store can keep.
    #[error("op {op}: {what} of {len} bytes, {max} are allowed")]
    TooLong {
        /// Which op.
        op: usize,
        /// What.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A copy or rename of an object that is not there.
    #[error("op {op}: the object {object:?} does not exist")]
    NoSuchObject {
        /// Which op.
        op: usize,
        /// The object.
        object: ObjectKey,
    },
    /// A rename onto an object that is there.
    #[error("op {op}: the object {object:?} exists already")]
    Exists {
        /// Which op.
        op: usize,
        /// The object.
        object: ObjectKey,
    },
    /// A copy or rename of an object to itself.
    #[error("op {op} copies or renames {object:?} to itself")]
    Itself {
        /// Which op.
        op: usize,
        /// The object.
        object: ObjectKey,
    },
    /// The whole transaction is more than the log can take at once.
    #[error("the transaction takes {blocks} blocks of the log, {max} are allowed")]
    TooLarge {
        /// Blocks of the log.
        blocks: u64,
        /// The limit.
        max: u64,
    },
}

impl Op {
    /// The objects the op names.
    pub fn objects(&self) -> [Option<ObjectIx>; 2] {
        match self {
            Op::Touch(o) | Op::Remove(o) | Op::RmAttrs(o) | Op::OmapClear(o) => [Some(*o), None],
            Op::Write { object, .. }
            | Op::Zero { object, .. }
            | Op::Truncate { object, .. }
            | Op::SetMeta { object, .. }
            | Op::SetAttr { object, .. }
            | Op::RmAttr { object, .. }
            | Op::OmapSet { object, .. }
            | Op::OmapRemove { object, .. }
            | Op::OmapRemoveRange { object, .. }
            | Op::OmapSetHeader { object, .. } => [Some(*object), None],
            Op::Clone { from, to } | Op::CloneRange { from, to, .. } | Op::Rename { from, to } => {
                [Some(*from), Some(*to)]
            }
        }
    }

    /// Checks the lengths of what the op carries.
    fn check_lengths(&self, op: usize) -> Result<(), Invalid> {
        let check = |what, len: u64, max: u64| {
            if len > max { Err(Invalid::TooLong { op, what, len, max }) } else { Ok(()) }
        };
        let end = |offset: u64, len: u64| {
            check("an object", offset.saturating_add(len), MAX_OBJECT_BYTES)
        };
        let name = |b: &Bytes| check("a name", b.len() as u64, MAX_NAME_BYTES as u64);
        let value = |b: &Bytes| check("a value", b.len() as u64, MAX_VALUE_BYTES as u64);
        match self {
            Op::Touch(_) | Op::Remove(_) | Op::RmAttrs(_) | Op::OmapClear(_) => Ok(()),
            Op::Clone { .. } | Op::Rename { .. } | Op::Zero { .. } => Ok(()),
            Op::Write { offset, data, .. } => end(*offset, data.len() as u64),
            Op::Truncate { size, .. } => end(*size, 0),
            // The length is cut at the source's end, which is known later.
            Op::CloneRange { dst_offset, .. } => end(*dst_offset, 0),
            Op::SetMeta { meta, .. } => {
                check("an object's record", meta.len() as u64, MAX_META_BYTES as u64)
            }
            Op::SetAttr { name: n, value: v, .. } => name(n).and_then(|()| value(v)),
            Op::RmAttr { name: n, .. } => name(n),
            Op::OmapSet { entries, .. } => {
                entries.iter().try_for_each(|(k, v)| name(k).and_then(|()| value(v)))
            }
            Op::OmapRemove { keys, .. } => keys.iter().try_for_each(name),
            Op::OmapRemoveRange { from, to, .. } => name(from).and_then(|()| name(to)),
            Op::OmapSetHeader { header, .. } => value(header),
        }
    }
}

impl Transaction {
    /// An empty transaction.
    pub fn new(sequencer: u64) -> Self {
        Transaction { sequencer, ..Transaction::default() }
    }

    /// The names of its objects.
    pub fn objects(&self) -> &[ObjectKey] {
        &self.objects
    }

    /// Its ops, in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The index of `key`, which is added to the table if it is not in it.
    pub fn object(&mut self, key: &ObjectKey) -> ObjectIx {
        let found = self.objects.iter().rposition(|k| k == key);
        let at = found.unwrap_or_else(|| {
            self.objects.push(key.clone());
            self.objects.len() - 1
        });
        ObjectIx(u32::try_from(at).expect("a transaction has fewer than 2^32 objects"))
    }

    /// Adds an op; its objects come from [`Transaction::object`].
    pub fn push(&mut self, op: Op) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// Adds [`Op::Touch`].
    pub fn touch(&mut self, key: &ObjectKey) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Touch(object))
    }

    /// Adds [`Op::Write`].
    pub fn write(&mut self, key: &ObjectKey, offset: u64, data: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Write { object, offset, data, crc: KnownCrc::NONE })
    }

    /// Adds [`Op::Write`] of data of which somebody may have worked out the checksum.
    pub fn write_summed(
        &mut self,
        key: &ObjectKey,
        offset: u64,
        (data, crc): (Bytes, KnownCrc),
    ) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Write { object, offset, data, crc })
    }

    /// Adds [`Op::Zero`].
    pub fn zero(&mut self, key: &ObjectKey, offset: u64, len: u64) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Zero { object, offset, len })
    }

    /// Adds [`Op::Truncate`].
    pub fn truncate(&mut self, key: &ObjectKey, size: u64) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Truncate { object, size })
    }

    /// Adds [`Op::Remove`].
    pub fn remove(&mut self, key: &ObjectKey) -> &mut Self {
        let object = self.object(key);
        self.push(Op::Remove(object))
    }

    /// Adds [`Op::SetMeta`].
    pub fn set_meta(&mut self, key: &ObjectKey, meta: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::SetMeta { object, meta })
    }

    /// Adds [`Op::SetAttr`].
    pub fn set_attr(&mut self, key: &ObjectKey, name: Bytes, value: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::SetAttr { object, name, value })
    }

    /// Adds [`Op::RmAttr`].
    pub fn rm_attr(&mut self, key: &ObjectKey, name: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::RmAttr { object, name })
    }

    /// Adds [`Op::RmAttrs`].
    pub fn rm_attrs(&mut self, key: &ObjectKey) -> &mut Self {
        let object = self.object(key);
        self.push(Op::RmAttrs(object))
    }

    /// Adds [`Op::Clone`].
    pub fn clone_object(&mut self, from: &ObjectKey, to: &ObjectKey) -> &mut Self {
        let (from, to) = (self.object(from), self.object(to));
        self.push(Op::Clone { from, to })
    }

    /// Adds [`Op::CloneRange`].
    pub fn clone_range(
        &mut self,
        from: &ObjectKey,
        src_offset: u64,
        len: u64,
        to: &ObjectKey,
        dst_offset: u64,
    ) -> &mut Self {
        let (from, to) = (self.object(from), self.object(to));
        self.push(Op::CloneRange { from, to, src_offset, len, dst_offset })
    }

    /// Adds [`Op::Rename`].
    pub fn rename(&mut self, from: &ObjectKey, to: &ObjectKey) -> &mut Self {
        let (from, to) = (self.object(from), self.object(to));
        self.push(Op::Rename { from, to })
    }

    /// Adds [`Op::OmapSet`].
    pub fn omap_set(&mut self, key: &ObjectKey, entries: Vec<(Bytes, Bytes)>) -> &mut Self {
        let object = self.object(key);
        self.push(Op::OmapSet { object, entries })
    }

    /// Adds [`Op::OmapRemove`].
    pub fn omap_remove(&mut self, key: &ObjectKey, keys: Vec<Bytes>) -> &mut Self {
        let object = self.object(key);
        self.push(Op::OmapRemove { object, keys })
    }

    /// Adds [`Op::OmapRemoveRange`].
    pub fn omap_remove_range(&mut self, key: &ObjectKey, from: Bytes, to: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::OmapRemoveRange { object, from, to })
    }

    /// Adds [`Op::OmapClear`].
    pub fn omap_clear(&mut self, key: &ObjectKey) -> &mut Self {
        let object = self.object(key);
        self.push(Op::OmapClear(object))
    }

    /// Adds [`Op::OmapSetHeader`].
    pub fn omap_set_header(&mut self, key: &ObjectKey, header: Bytes) -> &mut Self {
        let object = self.object(key);
        self.push(Op::OmapSetHeader { object, header })
    }

    /// The checksum of all data it writes, if that is one piece of which it is known.
    pub fn data_crc(&self) -> KnownCrc {
        let mut writes = self.ops.iter().filter_map(|op| match op {
            Op::Write { data, crc, .. } if !data.is_empty() => Some(*crc),
            _ => None,
        });
        let first = writes.next().unwrap_or_default();
        if writes.next().is_none() { first } else { KnownCrc::NONE }
    }

    /// Bytes of data it writes.
    pub fn data_bytes(&self) -> u64 {
        let len = |op: &Op| match op {
            Op::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        self.ops.iter().map(len).sum()
    }

    /// Bytes of its longest attribute, omap header, or omap entry: what recovery cannot divide.
    pub fn longest_value(&self) -> u64 {
        let len = |op: &Op| match op {
            Op::SetAttr { name, value, .. } => name.len() + value.len(),
            Op::OmapSetHeader { header, .. } => header.len(),
            Op::OmapSet { entries, .. } => {
                entries.iter().map(|(key, value)| key.len() + value.len()).max().unwrap_or(0)
            }
            _ => 0,
        };
        self.ops.iter().map(len).max().unwrap_or(0) as u64
    }

    fn named_twice(&self) -> Option<&ObjectKey> {
        // Nearly all have one or two.
        match &self.objects[..] {
            [] | [_] => return None,
            [one, two] => return (one == two).then_some(one),
            _ => {}
        }
        let mut names: Vec<&ObjectKey> = self.objects.iter().collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Checks everything that does not depend on the state of a store.
    ///
    /// # Errors
    /// When the transaction could never be carried out.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(name) = self.named_twice() {
            return Err(Invalid::NamedTwice(name.clone()));
        }
        if let Some(long) = self.objects.iter().find(|n| n.as_bytes().len() > MAX_NAME_BYTES) {
            let (len, max) = (long.as_bytes().len() as u64, MAX_NAME_BYTES as u64);
            return Err(Invalid::TooLong { op: 0, what: "an object's name", len, max });
        }
        for (i, op) in self.ops.iter().enumerate() {
            let [a, b] = op.objects();
            for ix in [a, b].into_iter().flatten() {
                if ix.0 as usize >= self.objects.len() {
                    return Err(Invalid::NoSuchIndex { op: i, index: ix.0 });
                }
            }
            if let (Some(a), true) = (a, a == b) {
                let object = self.objects[a.0 as usize].clone();
                return Err(Invalid::Itself { op: i, object });
            }
            op.check_lengths(i)?;
        }
        Ok(())
    }
}

/// Whole blocks within `offset..offset + len`: first, and the one after the last.
pub(crate) fn whole_blocks(offset: u64, len: u64) -> (u64, u64) {
    let block = BLOCK_BYTES as u64;
    let first = offset.div_ceil(block);
    (first, first.max((offset + len) / block))
}
