//! Reading and verifying a whole object in slices, with Ceph's digests.
//!
//! What a slice needs that is not in memory is answered as a [`Miss`], as with every read; a block
//! that does not have its checksum fails the fetch with the object's name
//! ([`crate::StoreError::object`]). The digests are those that Ceph compares between copies
//! (`ReplicatedBackend.cc: be_deep_scrub`): crc32c, begun at 0xffffffff and without a final
//! inversion, over the data with zeros for holes; and over the omap header, if it is not empty, and
//! then each key and value in the order of keys, each behind its length (u32, little-endian).

use super::Store;
use super::miss::{Miss, ReadSet};
use super::read_values::OmapRange;
use crate::rows::Onode;
use bytes::Bytes;
use types::ObjectKey;

/// A run of zeros that holes are digested from.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// How much one slice reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubLimits {
    /// Bytes of data (Ceph: `osd_deep_scrub_stride`).
    pub data_bytes: u64,
    /// Entries of the omap (Ceph: `osd_deep_scrub_keys`).
    pub omap_entries: usize,
    /// Bytes of them.
    pub omap_bytes: usize,
}

impl Default for ScrubLimits {
    fn default() -> Self {
        ScrubLimits { data_bytes: 512 << 10, omap_entries: 1024, omap_bytes: 1 << 20 }
    }
}

/// What a scrub found an object to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDigest {
    /// Logical bytes.
    pub size: u64,
    /// The owner's record.
    pub meta: Bytes,
    /// All attributes, in order.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// Digest of the data.
    pub data: u32,
    /// Digest of omap header and entries.
    pub omap: u32,
    /// Entries of the omap.
    pub omap_entries: u64,
    /// Bytes of their values.
    pub omap_value_bytes: u64,
    /// Bytes of keys, values and header.
    pub omap_bytes: u64,
}

/// How far the scrub of an object is.
#[derive(Clone, Debug, Default)]
pub struct ScrubCursor {
    begun: Option<Begun>,
}

#[derive(Clone, Debug)]
struct Begun {
    /// What the object was when it began.
    onode: Onode,
    attrs: Vec<(Bytes, Bytes)>,
    at: u64,
    data: u32,
    header_done: bool,
    after: Option<Bytes>,
    omap: u32,
    entries: u64,
    value_bytes: u64,
    bytes: u64,
}

/// What became of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// There is more: call again.
    More,
    /// The object's record changed since the first slice: it begins anew with the next call. An owner
    /// that changes the record with each write so learns of every change.
    Changed,
    /// There is no such object.
    Absent,
    /// All of it was read, and is as it was written.
    Done(ObjectDigest),
}

impl Begun {
    fn new(onode: Onode, attrs: Vec<(Bytes, Bytes)>) -> Begun {
        let copy = |b: &Bytes| Bytes::copy_from_slice(b);
        let attrs = attrs.iter().map(|(name, value)| (copy(name), copy(value))).collect();
        let meta = copy(&onode.meta);
        Begun {
            onode: Onode { meta, ..onode },
            attrs,
            at: 0,
            data: u32::MAX,
            header_done: false,
            after: None,
            omap: u32::MAX,
            entries: 0,
            value_bytes: 0,
            bytes: 0,
        }
    }

    fn add_entry(&mut self, key: &[u8], value: &[u8]) {
        for part in [key, value] {
            let len = part.len() as u32;
            self.omap = denc::crc32c(self.omap, &len.to_le_bytes());
            self.omap = denc::crc32c(self.omap, part);
        }
        self.entries += 1;
        self.value_bytes += value.len() as u64;
        self.bytes += (key.len() + value.len()) as u64;
    }

    fn digest(self) -> ObjectDigest {
        ObjectDigest {
            size: self.onode.size,
            meta: self.onode.meta,
            attrs: self.attrs,
            data: self.data,
            omap: self.omap,
            omap_entries: self.entries,
            omap_value_bytes: self.value_bytes,
            omap_bytes: self.bytes,
        }
    }
}

impl Store {
    /// Reads and verifies the next slice of an object.
    ///
    /// # Errors
    /// What must be fetched first; `fetched` is what was, for this slice.
    pub fn scrub(
        &self,
        object: &ObjectKey,
        cursor: &mut ScrubCursor,
        limits: &ScrubLimits,
        fetched: &ReadSet,
    ) -> Result<Scrubbed, Miss> {
        let Some(onode) = self.onode(object)? else {
            cursor.begun = None;
            return Ok(Scrubbed::Absent);
        };
        if cursor.begun.as_ref().is_some_and(|b| b.onode != onode) {
            cursor.begun = None;
            return Ok(Scrubbed::Changed);
        }
        if cursor.begun.is_none() {
            let attrs = self.attrs(object)?.unwrap_or_default();
            cursor.begun = Some(Begun::new(onode, attrs));
        }
        let Some(begun) = &mut cursor.begun else { return Ok(Scrubbed::More) };
        if begun.at < begun.onode.size {
            self.scrub_data(object, begun, limits, fetched)?;
            return Ok(Scrubbed::More);
        }
        if self.scrub_omap(object, begun, limits)? {
            return Ok(Scrubbed::More);
        }
        let digest = cursor.begun.take().map(Begun::digest);
        Ok(digest.map_or(Scrubbed::More, Scrubbed::Done))
    }

    fn scrub_data(
        &self,
        object: &ObjectKey,
        begun: &mut Begun,
        limits: &ScrubLimits,
        fetched: &ReadSet,
    ) -> Result<(), Miss> {
        let pieces = self.read_once(object, begun.at, limits.data_bytes.max(1), fetched)?;
        for piece in pieces {
            begun.at = piece.offset + piece.len;
            if let Some(data) = piece.data {
                begun.data = denc::crc32c(begun.data, &data);
                continue;
            }
            let mut left = piece.len;
            while left > 0 {
                let len = left.min(ZEROS.len() as u64);
                begun.data = denc::crc32c(begun.data, &ZEROS[..len as usize]);
                left -= len;
            }
        }
        Ok(())
    }

    /// Digests some of the omap. Whether there is more.
    fn scrub_omap(
        &self,
        object: &ObjectKey,
        begun: &mut Begun,
        limits: &ScrubLimits,
    ) -> Result<bool, Miss> {
        if !begun.header_done {
            let header = self.omap_header(object)?.unwrap_or_default();
            begun.omap = denc::crc32c(begun.omap, &header);
            begun.bytes += header.len() as u64;
            begun.header_done = true;
        }
        let range = OmapRange {
            from: begun.after.clone().unwrap_or_default(),
            after: begun.after.is_some(),
            prefix: Bytes::new(),
            max_entries: limits.omap_entries.max(1),
            max_bytes: limits.omap_bytes,
        };
        let page = self.omap_list(object, &range)?.unwrap_or_default();
        for (key, value) in &page.entries {
            begun.add_entry(key, value);
        }
        begun.after = page.entries.last().map(|(key, _)| Bytes::copy_from_slice(key));
        Ok(page.more)
    }
}
