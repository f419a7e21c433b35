//! Reading attributes and omap.

use super::Store;
use super::miss::{Miss, Wants};
use crate::keys::{self, Key, Kind, Parsed};
use crate::rows::{Onode, Value};
use bytes::{Bytes, BytesMut};
use types::ObjectKey;

/// Which omap entries, or attributes, to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapRange {
    /// From this key on; empty for the beginning.
    pub from: Bytes,
    /// Only keys above `from`.
    pub after: bool,
    /// Only keys that begin so.
    pub prefix: Bytes,
    /// At most so many entries.
    pub max_entries: usize,
    /// No more entries once keys and values have so many bytes; the first one always comes.
    pub max_bytes: usize,
}

/// Some omap entries, or attributes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Keys and values. They share memory with the store's cache: copy them to keep them.
    pub entries: Vec<(Bytes, Bytes)>,
    /// There are more behind them.
    pub more: bool,
}

impl Store {
    /// The value that a row stands for.
    fn value(&self, id: u64, kind: Kind, name: &[u8], row: &Bytes) -> Result<Bytes, Miss> {
        let len = match Value::decode(row) {
            Ok(Value::Inline(value)) => return Ok(value),
            Ok(Value::Pieces(len)) => len as usize,
            Err(why) => return Err(self.damaged(why.0)),
        };
        let mut out = BytesMut::new();
        let (from, to) = (keys::pieces(id, kind, name), keys::pieces_end(id, kind, name));
        let scanned = self.rows.view().scan(&from, &to, &mut |_, piece| {
            out.extend_from_slice(piece);
            true
        });
        scanned.map_err(|miss| self.miss(miss.into()))?;
        if out.len() == len { Ok(out.freeze()) } else { Err(self.damaged("a value lacks pieces")) }
    }

    fn value_of(&self, id: u64, kind: Kind, name: &[u8]) -> Result<Option<Bytes>, Miss> {
        match self.row(&keys::named(id, kind, name))? {
            Some(row) => self.value(id, kind, name, &row).map(Some),
            None => Ok(None),
        }
    }

    /// An attribute; `None` when the object or the attribute does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn attr(&self, object: &ObjectKey, name: &[u8]) -> Result<Option<Bytes>, Miss> {
        match self.onode(object)?.filter(|o| o.has(Onode::HAS_ATTRS)) {
            Some(onode) => self.value_of(onode.id, Kind::Attr, name),
            None => Ok(None),
        }
    }

    /// All attributes, in order; `None` when the object does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn attrs(&self, object: &ObjectKey) -> Result<Option<Vec<(Bytes, Bytes)>>, Miss> {
        let Some(onode) = self.onode(object)? else { return Ok(None) };
        if !onode.has(Onode::HAS_ATTRS) {
            return Ok(Some(Vec::new()));
        }
        let (from, to) = (keys::kind(onode.id, Kind::Attr), keys::kind_end(onode.id, Kind::Attr));
        let rows = self.scan_named(&from, &to, usize::MAX, usize::MAX)?.0;
        self.values(onode.id, Kind::Attr, rows).map(Some)
    }

    /// Attributes in order, by the range of their names; `None` when the object does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn attr_list(
        &self,
        object: &ObjectKey,
        range: &OmapRange,
    ) -> Result<Option<OmapPage>, Miss> {
        self.list_values(object, (Onode::HAS_ATTRS, Kind::Attr), range)
    }

    /// The omap header, empty when it is not set; `None` when the object does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn omap_header(&self, object: &ObjectKey) -> Result<Option<Bytes>, Miss> {
        let Some(onode) = self.onode(object)? else { return Ok(None) };
        if !onode.has(Onode::HAS_HEADER) {
            return Ok(Some(Bytes::new()));
        }
        Ok(Some(self.value_of(onode.id, Kind::Header, b"")?.unwrap_or_default()))
    }

    /// The values of some omap keys, `None` for each that is not there; `None` for all when the
    /// object does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn omap_get(
        &self,
        object: &ObjectKey,
        keys: &[Bytes],
    ) -> Result<Option<Vec<Option<Bytes>>>, Miss> {
        let Some(onode) = self.onode(object)? else { return Ok(None) };
        if !onode.has(Onode::HAS_OMAP) {
            return Ok(Some(vec![None; keys.len()]));
        }
        let mut wants = Wants::default();
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            if wants.is_full() {
                break;
            }
            match self.value_of(onode.id, Kind::Omap, key) {
                Ok(value) => out.push(value),
                Err(miss) => wants.merge(miss),
            }
        }
        if wants.is_empty() { Ok(Some(out)) } else { Err(self.miss(wants)) }
    }

    /// Omap entries in order; `None` when the object does not exist.
    ///
    /// # Errors
    /// What must be fetched first.
    pub fn omap_list(
        &self,
        object: &ObjectKey,
        range: &OmapRange,
    ) -> Result<Option<OmapPage>, Miss> {
        self.list_values(object, (Onode::HAS_OMAP, Kind::Omap), range)
    }

    fn list_values(
        &self,
        object: &ObjectKey,
        (flag, kind): (u8, Kind),
        range: &OmapRange,
    ) -> Result<Option<OmapPage>, Miss> {
        let Some(onode) = self.onode(object)? else { return Ok(None) };
        if !onode.has(flag) {
            return Ok(Some(OmapPage::default()));
        }
        let mut from = keys::named(onode.id, kind, &range.from);
        if range.after {
            from = keys::after(&from);
        }
        let prefix = keys::named(onode.id, kind, &range.prefix);
        let end = keys::kind_end(onode.id, kind);
        let to = keys::prefix_end(&prefix).map_or(end.clone(), |e| e.min(end));
        let from = from.max(prefix);
        if from >= to {
            return Ok(Some(OmapPage::default()));
        }
        let (rows, more) = self.scan_named(&from, &to, range.max_entries, range.max_bytes)?;
        let entries = self.values(onode.id, kind, rows)?;
        Ok(Some(OmapPage { entries, more }))
    }

    /// Rows of a range up to the limits, and whether there are more.
    fn scan_named(
        &self,
        from: &[u8],
        to: &[u8],
        max: usize,
        max_bytes: usize,
    ) -> Result<(Vec<(Key, Bytes)>, bool), Miss> {
        let mut out: Vec<(Key, Bytes)> = Vec::new();
        let (mut bytes, mut more) = (0usize, false);
        let scanned = self.rows.view().scan(from, to, &mut |key, row| {
            let name = key.len() - keys::kind(0, Kind::Omap).len();
            let size = match Value::decode(row) {
                Ok(Value::Pieces(len)) => name + len as usize,
                Ok(Value::Inline(value)) => name + value.len(),
                Err(_) => name,
            };
            if out.len() >= max || (!out.is_empty() && bytes.saturating_add(size) > max_bytes) {
                more = true;
                return false;
            }
            bytes = bytes.saturating_add(size);
            out.push((Key::from_slice(key), row.clone()));
            true
        });
        scanned.map_err(|miss| self.miss(miss.into()))?;
        Ok((out, more))
    }

    fn values(
        &self,
        id: u64,
        kind: Kind,
        rows: Vec<(Key, Bytes)>,
    ) -> Result<Vec<(Bytes, Bytes)>, Miss> {
        let mut out = Vec::with_capacity(rows.len());
        let mut wants = Wants::default();
        for (key, row) in rows {
            if wants.is_full() {
                break;
            }
            let name = match keys::parse(&key) {
                Ok(Parsed::Attr { name, .. } | Parsed::Omap { name, .. }) => name,
                _ => return Err(self.damaged("a row with an impossible key")),
            };
            match self.value(id, kind, name, &row) {
                Ok(value) => out.push((Bytes::copy_from_slice(name), value)),
                Err(miss) => wants.merge(miss),
            }
        }
        if wants.is_empty() { Ok(out) } else { Err(self.miss(wants)) }
    }
}
