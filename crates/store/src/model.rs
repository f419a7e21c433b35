//! A store in memory with the semantics of [`crate::Transaction`]: the reference that the real
//! store is tested against, and a stand-in for tests elsewhere.
//!
//! It keeps 4 KiB blocks, so that holes are the same as in the real store.

use crate::txn::{Invalid, MAX_OBJECT_BYTES, ObjectIx, Op, Transaction, whole_blocks};
use bytes::Bytes;
use io::BLOCK_BYTES;
use std::collections::BTreeMap;
use types::ObjectKey;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelObject {
    /// Logical bytes.
    pub size: u64,
    /// The owner's record.
    pub meta: Bytes,
    /// Blocks that are no holes.
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Attributes.
    pub attrs: BTreeMap<Bytes, Bytes>,
    /// The omap header, empty when it is not set.
    pub header: Bytes,
    /// Omap entries.
    pub omap: BTreeMap<Bytes, Bytes>,
}

impl ModelObject {
    /// The bytes of a range, up to the end of the object.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let (from, to) =
                ((at % BLOCK) as usize, (end - at / BLOCK * BLOCK).min(BLOCK) as usize);
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => out.extend_from_slice(&block[from..to]),
                None => out.resize(out.len() + to - from, 0),
            }
            at += (to - from) as u64;
        }
        out
    }

    /// The ranges that are no holes, each as offset and length, up to the end of the object.
    pub fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        for block in self.blocks.keys() {
            let (from, to) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
            match out.last_mut() {
                _ if from >= to => {}
                Some((o, l)) if *o + *l == from => *l += to - from,
                _ => out.push((from, to - from)),
            }
        }
        out
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let from = (at % BLOCK) as usize;
            let n = rest.len().min(BLOCK_BYTES - from);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK_BYTES]);
            block[from..from + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            at += n as u64;
        }
        self.size = self.size.max(at);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let mut end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        if end == self.size {
            end = end.next_multiple_of(BLOCK);
        }
        let (first, last) = whole_blocks(offset, end - offset);
        self.blocks.retain(|b, _| !(first..last).contains(b));
        for (&b, block) in &mut self.blocks {
            let from = offset.clamp(b * BLOCK, (b + 1) * BLOCK) - b * BLOCK;
            let to = end.clamp(b * BLOCK, (b + 1) * BLOCK) - b * BLOCK;
            block[from as usize..to as usize].fill(0);
        }
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }
}

/// The whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    /// All objects.
    pub objects: BTreeMap<ObjectKey, ModelObject>,
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// When it cannot be carried out; then nothing has changed.
    pub fn apply(&mut self, txn: &Transaction) -> Result<(), Invalid> {
        txn.check()?;
        let saved: Vec<_> =
            txn.objects().iter().map(|k| (k.clone(), self.objects.get(k).cloned())).collect();
        for (i, op) in txn.ops().iter().enumerate() {
            if let Err(why) = self.apply_op(txn, i, op) {
                for (key, old) in saved {
                    match old {
                        Some(old) => drop(self.objects.insert(key, old)),
                        None => drop(self.objects.remove(&key)),
                    }
                }
                return Err(why);
            }
        }
        Ok(())
    }

    fn apply_op(&mut self, txn: &Transaction, i: usize, op: &Op) -> Result<(), Invalid> {
        let key = |ix: &ObjectIx| &txn.objects()[ix.0 as usize];
        match op {
            Op::Clone { from, to } => {
                let copy = self.source(i, key(from))?.clone();
                self.objects.insert(key(to).clone(), copy);
            }
            Op::CloneRange { from, to, src_offset, len, dst_offset } => {
                let source = self.source(i, key(from))?.clone();
                let len = (*len).min(source.size.saturating_sub(*src_offset));
                if dst_offset + len > MAX_OBJECT_BYTES {
                    let (len, max) = (dst_offset + len, MAX_OBJECT_BYTES);
                    return Err(Invalid::TooLong { op: i, what: "an object", len, max });
                }
                let target = self.objects.entry(key(to).clone()).or_default();
                clone_range(&source, *src_offset, len, target, *dst_offset);
            }
            Op::Rename { from, to } => {
                self.source(i, key(from))?;
                if self.objects.contains_key(key(to)) {
                    return Err(Invalid::Exists { op: i, object: key(to).clone() });
                }
                let object = self.objects.remove(key(from)).unwrap_or_default();
                self.objects.insert(key(to).clone(), object);
            }
            Op::Remove(o) => drop(self.objects.remove(key(o))),
            _ => self.change(txn, op),
        }
        Ok(())
    }

    fn source(&self, op: usize, key: &ObjectKey) -> Result<&ModelObject, Invalid> {
        self.objects.get(key).ok_or_else(|| Invalid::NoSuchObject { op, object: key.clone() })
    }

    /// Ops on one object.
    fn change(&mut self, txn: &Transaction, op: &Op) {
        let [ix, _] = op.objects();
        let Some(key) = ix.map(|ix| &txn.objects()[ix.0 as usize]) else { return };
        match op {
            Op::Zero { .. }
            | Op::RmAttr { .. }
            | Op::RmAttrs(_)
            | Op::OmapRemove { .. }
            | Op::OmapRemoveRange { .. }
            | Op::OmapClear(_) => {
                if let Some(object) = self.objects.get_mut(key) {
                    object.take_away(op);
                }
            }
            _ => self.objects.entry(key.clone()).or_default().give(op),
        }
    }
}

impl ModelObject {
    fn take_away(&mut self, op: &Op) {
        match op {
            Op::Zero { offset, len, .. } => self.zero(*offset, *len),
            Op::RmAttr { name, .. } => drop(self.attrs.remove(name)),
            Op::RmAttrs(_) => self.attrs.clear(),
            Op::OmapRemove { keys, .. } => keys.iter().for_each(|k| drop(self.omap.remove(k))),
            Op::OmapRemoveRange { from, to, .. } => {
                self.omap.retain(|k, _| !(from..to).contains(&k));
            }
            Op::OmapClear(_) => {
                self.omap.clear();
                self.header = Bytes::new();
            }
            _ => {}
        }
    }

    fn give(&mut self, op: &Op) {
        match op {
            Op::Write { offset, data, .. } => self.write(*offset, data),
            Op::Truncate { size, .. } => self.truncate(*size),
            Op::SetMeta { meta, .. } => self.meta = meta.clone(),
            Op::SetAttr { name, value, .. } => {
                self.attrs.insert(name.clone(), value.clone());
            }
            Op::OmapSet { entries, .. } => self.omap.extend(entries.iter().cloned()),
            Op::OmapSetHeader { header, .. } => self.header = header.clone(),
            _ => {}
        }
    }
}

/// Copies block by block: what is a hole in the source becomes zeros, or a hole, in the target.
fn clone_range(source: &ModelObject, from: u64, len: u64, target: &mut ModelObject, to: u64) {
    target.size = target.size.max(if len > 0 { to + len } else { 0 });
    let mut at = from;
    while at < from + len {
        let n = (BLOCK - at % BLOCK).min(from + len - at);
        if source.blocks.contains_key(&(at / BLOCK)) {
            target.write(to + at - from, &source.read(at, n));
        } else {
            target.zero(to + at - from, n);
        }
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ObjectKey {
        ObjectKey::from_bytes(&[n])
    }

    #[test]
    fn writes_zeros_and_holes() {
        let mut m = Model::new();
        let mut t = Transaction::new(0);
        t.write(&key(1), 5000, vec![1; 10_000].into()).zero(&key(1), 8000, 9000);
        m.apply(&t).unwrap();
        let o = &m.objects[&key(1)];
        assert_eq!(o.size, 15_000);
        assert_eq!(o.extents(0, u64::MAX), [(4096, 4096)]);
        assert_eq!(o.read(4999, 3), [0, 1, 1]);
        assert_eq!(o.read(7999, 3), [1, 0, 0]);
    }

    #[test]
    fn a_failed_transaction_changes_nothing() {
        let mut m = Model::new();
        let mut t = Transaction::new(0);
        t.write(&key(1), 0, vec![1; 10].into()).rename(&key(2), &key(3));
        assert!(matches!(m.apply(&t), Err(Invalid::NoSuchObject { op: 1, .. })));
        assert_eq!(m, Model::new());
    }
}
