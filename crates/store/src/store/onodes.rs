//! Records of the objects that were last used.
//!
//! Each write needs the record of its object several times, and those of its PG's own object; found
//! in the memtable or the tree each time, they were a fifth of a write's instructions. The cache
//! knows objects that do not exist, too. It holds what the newest layer says: every change of a
//! record goes through [`super::Store::submit`], which tells it here.

use crate::rows::Onode;
use bytes::Bytes;
use std::cell::RefCell;
use types::{HashMap, ObjectKey};

/// Records in one generation; there are at most two: 1 MiB with names of the usual length.
const GENERATION: usize = 2048;

/// A record, or that there is none, and the transaction that made it so (0: long ago).
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub onode: Option<Onode>,
    pub txn: u64,
}

/// Two generations: what is used stands in the young one; when that is full, it becomes the old one,
/// and what nobody used since goes with the one before.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ObjectKey, Known>,
    old: HashMap<ObjectKey, Known>,
}

impl Generations {
    fn put(&mut self, key: ObjectKey, known: Known) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, known);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OnodeCache(RefCell<Generations>);

impl OnodeCache {
    /// What is known of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Known> {
        let mut all = self.0.borrow_mut();
        if let Some(known) = all.young.get(key) {
            return Some(known.clone());
        }
        let known = all.old.remove(key)?;
        all.put(key.clone(), known.clone());
        Some(known)
    }

    /// Notes what was found. The record is copied: it may be part of a large page.
    pub fn found(&self, key: &ObjectKey, onode: Option<&Onode>, txn: u64) {
        let copy = |o: &Onode| Onode { meta: Bytes::copy_from_slice(&o.meta), ..*o };
        self.put(key.clone(), Known { onode: onode.map(copy), txn });
    }

    /// Notes a change.
    pub fn put(&self, key: ObjectKey, known: Known) {
        let mut all = self.0.borrow_mut();
        all.old.remove(&key);
        all.put(key, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> ObjectKey {
        ObjectKey::from_bytes(format!("object {n}").as_bytes())
    }

    fn onode(id: u64) -> Option<Onode> {
        Some(Onode { id, size: 0, flags: 0, meta: Bytes::new() })
    }

    #[test]
    fn the_newest_record_is_known_until_it_is_long_unused() {
        let cache = OnodeCache::default();
        cache.put(key(0), Known { onode: onode(1), txn: 1 });
        cache.put(key(0), Known { onode: None, txn: 2 });
        for n in 1..=GENERATION * 3 {
            cache.put(key(n), Known { onode: onode(n as u64), txn: 3 });
            if n % GENERATION == 0 {
                // Used once in each generation.
                let known = cache.get(&key(0)).expect("it is used");
                assert_eq!((known.onode, known.txn), (None, 2));
            }
        }
        assert!(cache.get(&key(1)).is_none());
        let all = cache.0.borrow();
        assert!(all.young.len() <= GENERATION && all.old.len() <= GENERATION);
    }

    #[test]
    fn an_old_generation_never_hides_a_change() {
        let cache = OnodeCache::default();
        cache.put(key(0), Known { onode: onode(1), txn: 1 });
        for n in 1..=GENERATION {
            cache.put(key(n), Known { onode: None, txn: 1 });
        }
        cache.put(key(0), Known { onode: onode(2), txn: 2 });
        for n in 1..=GENERATION {
            cache.put(key(n), Known { onode: None, txn: 1 });
        }
        assert_eq!(cache.get(&key(0)).and_then(|k| k.onode), onode(2));
    }
}
