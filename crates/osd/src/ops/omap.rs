//! Operations on the omap: ordered keys and values of an object.

use super::{Run, Stop};
use bytes::Bytes;
use denc::Decode;
use std::cmp::Ordering;
use store::{OmapPage, OmapRange};
use types::{ByteString, EntityType, Errno};
use wire::msg::OsdOp;
use wire::msg::op::cmp_op;
use wire::msg::op_data::{
    Keys, OmapCmpIn, OmapGetKeysIn, OmapGetKeysOut, OmapGetValsIn, OmapGetValsOut,
    OmapRmKeyRangeIn, Values, input,
};

/// `osd_max_omap_entries_per_request`
const MAX_ENTRIES: u64 = 1024;
/// `osd_max_omap_bytes_per_request`, kept to what fits comfortably in a reply.
const MAX_BYTES: usize = 16 << 20;
/// Keys and values that come with one operation. No transaction takes more; and decoded they are many times
/// as much, when they are short.
const MAX_INPUT_BYTES: usize = 16 << 20;

fn bounded<T: Decode>(op: &OsdOp) -> Result<T, Stop> {
    if op.indata.len() > MAX_INPUT_BYTES {
        return Err(Errno::EMSGSIZE.into());
    }
    Ok(input(op)?)
}

/// The same for an OSD that copies the object, and takes room for a page before it asks for one. Only a
/// longer value makes a longer page.
pub const MAX_COPY_BYTES: usize = 256 << 10;

fn shared(key: &ByteString) -> Bytes {
    Bytes::copy_from_slice(key)
}

impl Run<'_> {
    /// Entries after `start_after` that begin with `prefix`, and whether there are more.
    fn omap_page(
        &self,
        start_after: &ByteString,
        prefix: &ByteString,
        max: u64,
    ) -> Result<OmapPage, Stop> {
        let is_osd = self.scene.sender.name.kind == EntityType::OSD;
        let range = OmapRange {
            from: shared(start_after),
            // Also after the empty key: nobody who lists from the beginning sees that one in Ceph.
            after: true,
            prefix: shared(prefix),
            max_entries: max.min(MAX_ENTRIES) as usize,
            max_bytes: if is_osd { MAX_COPY_BYTES } else { MAX_BYTES },
        };
        let exists = self.before.exists;
        let page =
            if exists { self.reader.store.omap_list(&self.source_key, &range)? } else { None };
        Ok(page.unwrap_or_default())
    }

    pub(super) fn op_omap_get_keys(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let OmapGetKeysIn { start_after, max } = bounded(op)?;
        let OmapPage { entries, more } =
            self.omap_page(&start_after, &ByteString::default(), max)?;
        let keys = entries.iter().map(|(k, _)| ByteString::from(&k[..])).collect();
        self.put(i, denc::encode(&OmapGetKeysOut { keys, more }));
        Ok(0)
    }

    pub(super) fn op_omap_get_vals(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let OmapGetValsIn { start_after, max, prefix } = bounded(op)?;
        let OmapPage { entries, more } = self.omap_page(&start_after, &prefix, max)?;
        let values: Values = entries.into_iter().map(|(k, v)| ((&k[..]).into(), v)).collect();
        self.put(i, denc::encode(&OmapGetValsOut { values, more }));
        Ok(0)
    }

    pub(super) fn op_omap_get_header(&mut self, i: usize) -> Result<i32, Stop> {
        let exists = self.before.exists;
        let header = if exists { self.reader.store.omap_header(&self.source_key)? } else { None };
        self.put(i, header.unwrap_or_default());
        Ok(0)
    }

    fn omap_values(&self, keys: Vec<Bytes>) -> Result<Values, Stop> {
        if !self.before.exists {
            return Ok(Values::new());
        }
        let found = self.reader.store.omap_get(&self.source_key, &keys)?.unwrap_or_default();
        let pairs = keys.iter().zip(found).filter_map(|(k, v)| Some(((&k[..]).into(), v?)));
        Ok(pairs.collect())
    }

    pub(super) fn op_omap_get_by_keys(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let keys: Keys = bounded(op)?;
        let values = self.omap_values(keys.iter().map(shared).collect())?;
        self.put(i, denc::encode(&values));
        Ok(0)
    }

    pub(super) fn op_omap_cmp(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        if !self.state().exists {
            return Err(Errno::ENOENT.into());
        }
        let assertions: OmapCmpIn = bounded(op)?;
        let values = self.omap_values(assertions.keys().map(shared).collect())?;
        for (key, assertion) in &assertions {
            let stored = values.get(key).cloned().unwrap_or_default();
            let wanted = match u8::try_from(assertion.op) {
                Ok(cmp_op::EQ) => Ordering::Equal,
                Ok(cmp_op::LT) => Ordering::Less,
                Ok(cmp_op::GT) => Ordering::Greater,
                _ => return Err(Errno::EINVAL.into()),
            };
            if stored.cmp(&assertion.value) != wanted {
                return Err(Errno::ECANCELED.into());
            }
        }
        Ok(0)
    }

    pub(super) fn op_omap_set(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let values: Values = bounded(op)?;
        self.change_existing();
        let entries = values.into_iter().map(|(k, v)| (shared(&k), v)).collect();
        let key = self.head_key.clone();
        self.txn.omap_set(&key, entries);
        Ok(0)
    }

    pub(super) fn op_omap_set_header(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.omap_set_header(&key, op.indata.clone());
        Ok(0)
    }

    pub(super) fn op_omap_clear(&mut self) -> Result<i32, Stop> {
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.omap_clear(&key);
        Ok(0)
    }

    pub(super) fn op_omap_rm_keys(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        let keys: Keys = bounded(op)?;
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.omap_remove(&key, keys.iter().map(shared).collect());
        Ok(0)
    }

    pub(super) fn op_omap_rm_range(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        let range: OmapRmKeyRangeIn = bounded(op)?;
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.omap_remove_range(&key, shared(&range.begin), shared(&range.end));
        Ok(0)
    }
}
