//! Attributes, omap and its header.

use super::{Plan, Planned};
use crate::keys::{self, Kind};
use crate::rows::{Onode, PIECE_BYTES, Value};
use crate::txn::{ObjectIx, Op};
use bytes::Bytes;

impl Plan<'_> {
    pub(super) fn apply_values(&mut self, op: &Op) -> Planned<()> {
        match op {
            Op::SetAttr { object, name, value } => {
                self.set_flag(*object, Onode::HAS_ATTRS);
                self.put_value(*object, Kind::Attr, name, value);
            }
            Op::RmAttr { object, name } => {
                self.remove_value(*object, Onode::HAS_ATTRS, Kind::Attr, name);
            }
            Op::RmAttrs(object) => self.remove_all(*object, Onode::HAS_ATTRS, Kind::Attr),
            Op::OmapSet { object, entries } => {
                self.create(*object);
                if !entries.is_empty() {
                    self.set_flag(*object, Onode::HAS_OMAP);
                }
                for (key, value) in entries {
                    self.put_value(*object, Kind::Omap, key, value);
                }
            }
            Op::OmapRemove { object, keys } => {
                for key in keys {
                    self.remove_value(*object, Onode::HAS_OMAP, Kind::Omap, key);
                }
            }
            Op::OmapRemoveRange { object, from, to } => self.remove_range(*object, from, to),
            Op::OmapClear(object) => {
                self.remove_all(*object, Onode::HAS_OMAP, Kind::Omap);
                self.remove_all(*object, Onode::HAS_HEADER, Kind::Header);
            }
            Op::OmapSetHeader { object, header } if header.is_empty() => {
                self.create(*object);
                self.remove_all(*object, Onode::HAS_HEADER, Kind::Header);
            }
            Op::OmapSetHeader { object, header } => {
                self.set_flag(*object, Onode::HAS_HEADER);
                self.put_value(*object, Kind::Header, b"", header);
            }
            _ => unreachable!("ops on objects are planned elsewhere"),
        }
        Ok(())
    }

    /// Puts a value in one row, or in pieces when it is long. What was there before need not be
    /// known.
    fn put_value(&mut self, ix: ObjectIx, kind: Kind, name: &[u8], value: &[u8]) {
        let onode = self.create(ix);
        let (id, had_big) = (onode.id, onode.has(Onode::HAS_BIG));
        let key = keys::named(id, kind, name);
        if had_big {
            self.delete_range(keys::pieces(id, kind, name), keys::pieces_end(id, kind, name));
        }
        if value.len() <= PIECE_BYTES {
            let row = self.cx.arena.borrow_mut().written(|out| Value::inline_row(value, out));
            self.put(key, Some(row));
            return;
        }
        self.set_flag(ix, Onode::HAS_BIG);
        self.put(key, Some(Value::pieces_row(value.len() as u32)));
        for (i, piece) in value.chunks(PIECE_BYTES).enumerate() {
            let key = keys::piece(id, kind, name, i as u32);
            self.put(key, Some(Bytes::copy_from_slice(piece)));
        }
    }

    fn remove_value(&mut self, ix: ObjectIx, flag: u8, kind: Kind, name: &[u8]) {
        let Some(onode) = self.onode(ix).cloned().filter(|o| o.has(flag)) else { return };
        self.put(keys::named(onode.id, kind, name), None);
        if onode.has(Onode::HAS_BIG) {
            let (from, to) =
                (keys::pieces(onode.id, kind, name), keys::pieces_end(onode.id, kind, name));
            self.delete_range(from, to);
        }
    }

    /// Removes all values of a kind.
    fn remove_all(&mut self, ix: ObjectIx, flag: u8, kind: Kind) {
        let Some(onode) = self.onode(ix).cloned().filter(|o| o.has(flag)) else { return };
        let id = onode.id;
        self.delete_range(keys::kind(id, kind), keys::kind_end(id, kind));
        if onode.has(Onode::HAS_BIG) {
            let (from, to) = (keys::pieces_of_kind(id, kind), keys::pieces_of_kind_end(id, kind));
            self.delete_range(from, to);
        }
        if let Some(onode) = self.change(ix) {
            onode.flags &= !flag;
        }
    }

    fn remove_range(&mut self, ix: ObjectIx, from: &[u8], to: &[u8]) {
        let onode = self.onode(ix).cloned().filter(|o| o.has(Onode::HAS_OMAP));
        let (Some(onode), true) = (onode, from < to) else { return };
        let (id, kind) = (onode.id, Kind::Omap);
        self.delete_range(keys::named(id, kind, from), keys::named(id, kind, to));
        if onode.has(Onode::HAS_BIG) {
            self.delete_range(keys::pieces(id, kind, from), keys::pieces(id, kind, to));
        }
    }
}
