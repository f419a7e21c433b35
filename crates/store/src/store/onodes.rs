//! Records of the objects, and rows of extents, that were last used.
//!
//! Each write needs the record of its object several times, and those of its PG's own object, and the row
//! of the extents that it changes; found in the memtables or the tree each time, they were a third of a
//! write's instructions, and most of the memory it touched. The caches know what does not exist, too. They
//! hold what the newest layer says: every change goes through [`super::Store::submit`], which tells it
//! here.

use super::recent::{GENERATIONS, Recent};
use crate::keys::{self, ShardId};
use crate::memtable::Memtable;
use crate::plan::Rows;
use crate::rows::{Onode, Shard};
use crate::tree::TreeMiss;
use bytes::Bytes;
use std::cell::RefCell;
use types::ObjectKey;

/// Records in one generation; there are at most two: 1 MiB with names of the usual length.
const ONODES: usize = 2048;
/// What a record with such a name takes, about.
pub(crate) const ONODE_BYTES: usize = 256;
/// What a row of extents takes here, about, with what finds it. It describes 128 KiB.
const SHARD_BYTES: usize = 384;

/// A record, or that there is none, and the transaction that made it so (0: long ago).
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub onode: Option<Onode>,
    pub txn: u64,
}

/// Records of objects.
#[derive(Debug)]
pub(crate) struct OnodeCache(RefCell<Recent<ObjectKey, Known>>);

impl OnodeCache {
    pub fn new() -> Self {
        OnodeCache(RefCell::new(Recent::new(ONODES)))
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// What is known of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Known> {
        self.look_at(key, Known::clone)
    }

    /// What `f` says of what is known of an object.
    pub fn look_at<T>(&self, key: &ObjectKey, f: impl FnOnce(&Known) -> T) -> Option<T> {
        self.0.borrow_mut().look_at(key, f)
    }

    /// Notes what was found. The record is copied: it may be part of a large page.
    pub fn found(&self, key: &ObjectKey, onode: Option<&Onode>, txn: u64) {
        let copy = |o: &Onode| Onode { meta: Bytes::copy_from_slice(&o.meta), ..*o };
        self.put(key.clone(), Known { onode: onode.map(copy), txn });
    }

    /// Notes a change.
    pub fn put(&self, key: ObjectKey, known: Known) {
        self.0.borrow_mut().put(key, known);
    }
}

/// A row, or that there is none, and the transaction that made it so (0: long ago).
#[derive(Clone, Debug)]
pub(crate) struct KnownRow {
    pub row: Option<Bytes>,
    pub txn: u64,
}

/// Rows of a generation, of which there are two in so much memory.
fn rows_in(bytes: usize) -> usize {
    (bytes / SHARD_BYTES / GENERATIONS).max(1)
}

/// Rows of a generation that are dropped together, about: of a large cache they are so many that it would take
/// tenths of a second, so that it is made of many small ones.
const PART_ROWS: usize = 2048;

#[derive(Debug)]
struct Shards {
    /// As many as a power of two.
    parts: Box<[Recent<ShardId, KnownRow>]>,
    /// Rows of a generation of each.
    rows: usize,
    /// Parts of the cache that it was with other memory. One goes with each row that is wanted.
    leaving: Vec<Recent<ShardId, KnownRow>>,
}

impl Shards {
    fn new(bytes: usize) -> Self {
        let rows = rows_in(bytes);
        let parts = (rows / PART_ROWS).max(1).next_power_of_two();
        let rows = (rows / parts).max(1);
        let parts = (0..parts).map(|_| Recent::new(rows)).collect();
        Shards { parts, rows, leaving: Vec::new() }
    }

    /// Neighbours are in different parts, and so are objects that came one after the other.
    fn part(&mut self, (id, number): ShardId) -> &mut Recent<ShardId, KnownRow> {
        self.leaving.pop();
        let spot = id.wrapping_add(number.into());
        let last = self.parts.len() - 1;
        let part = &mut self.parts[spot as usize & last];
        part.set_generation(self.rows);
        part
    }
}

/// Rows of extents.
#[derive(Debug)]
pub(crate) struct ShardCache(RefCell<Shards>);

impl ShardCache {
    /// A cache that takes about so much memory.
    pub fn new(bytes: usize) -> Self {
        ShardCache(RefCell::new(Shards::new(bytes)))
    }

    /// Becomes a cache that takes about so much memory. Where that takes more parts, or fewer, it begins anew:
    /// what it knew stands in the nodes, too.
    pub fn resize(&mut self, bytes: usize) {
        let shards = self.0.get_mut();
        let new = Shards::new(bytes);
        if new.parts.len() == shards.parts.len() {
            shards.rows = new.rows;
            return;
        }
        let old = std::mem::replace(shards, new);
        shards.leaving = old.leaving;
        shards.leaving.extend(old.parts);
    }

    /// Rows in it, and the memory that they take, about.
    pub fn len_and_bytes(&self) -> (usize, usize) {
        let all = self.0.borrow();
        let rows = all.parts.iter().chain(&all.leaving).map(Recent::len).sum::<usize>();
        (rows, rows * SHARD_BYTES)
    }

    /// From the next row on it takes about so much memory.
    pub fn set_room(&mut self, bytes: usize) {
        let shards = self.0.get_mut();
        shards.rows = (rows_in(bytes) / shards.parts.len()).max(1);
    }

    /// What `f` says of the row of a shard: known already, or found in `rows` and known from now on.
    pub fn look_at<T>(
        &self,
        rows: &Rows,
        id: ShardId,
        mut f: impl FnMut(&KnownRow) -> T,
    ) -> Result<T, TreeMiss> {
        let mut all = self.0.borrow_mut();
        let part = all.part(id);
        if let Some(said) = part.look_at(&id, &mut f) {
            return Ok(said);
        }
        let (row, txn) = rows.get(&keys::shard(id.0, id.1))?;
        // It may be part of a large page.
        let row = row.map(|row| Bytes::copy_from_slice(&row));
        let known = KnownRow { row, txn };
        let said = f(&known);
        part.put(id, known);
        Ok(said)
    }

    /// Knows nothing from now on.
    pub fn clear(&self) {
        let all = &mut *self.0.borrow_mut();
        all.parts.iter_mut().for_each(Recent::clear);
        all.leaving.clear();
    }

    /// Notes what a transaction changes. The rows of an object go as a range, with the object: its id is
    /// never used again, so that what is known of them is never asked for.
    pub fn absorb(&self, changes: &Memtable, txn: u64) {
        let mut all = self.0.borrow_mut();
        for (key, row) in changes.rows() {
            let Some(id) = keys::shard_of(key) else { continue };
            all.part(id).put(id, KnownRow { row: row.value.clone(), txn });
        }
        for (id, patch, _) in changes.patches().all() {
            let patched = all.part(id).change(&id, |known| {
                known.txn = txn;
                known.row.as_mut().is_some_and(|row| Shard::patch(row, &patch).is_ok())
            });
            if patched == Some(false) {
                all.part(id).forget(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaps::Gaps;
    use crate::tree::Tree;
    use crate::tree::cache::PageCache;

    /// With the memory of a large OSD.
    #[test]
    fn few_rows_go_together() {
        let pages = PageCache::new(0);
        let (active, tree, gaps) = (Memtable::default(), Tree::default(), Gaps::default());
        let rows = Rows { active, frozen: None, tree, pages, gaps };
        let bytes = 64 << 20;
        let mut cache = ShardCache::new(bytes);
        let mut most = 0;
        let mut look_at = |cache: &ShardCache, id| {
            let before = cache.len_and_bytes().0;
            cache.look_at(&rows, id, |_| ()).unwrap();
            let (after, taken) = cache.len_and_bytes();
            most = most.max(before - after.min(before));
            assert!(most < 4096, "{most} rows at once");
            taken
        };
        for n in 0..500_000 {
            // First small objects, then large ones.
            let id = if n < 200_000 { (n, 0) } else { (n / 32, (n % 32) as u32) };
            let taken = look_at(&cache, id);
            assert!(taken <= bytes, "{taken} bytes");
            assert!(n != 199_999 || taken > bytes / 2, "{taken} bytes");
        }
        assert!(cache.len_and_bytes().1 > bytes / 2);
        // And when its memory changes.
        cache.resize(bytes / 64);
        let taken = (0..100).map(|n| look_at(&cache, (n, 0))).last();
        assert!(taken.is_some_and(|taken| taken <= bytes / 64), "{taken:?}");
        assert!(most > 0);
    }
}
