//! What was used last.

use std::hash::Hash;
use types::HashMap;

/// Generations of a [`Recent`].
pub(crate) const GENERATIONS: usize = 2;

/// A cache of two generations: what is used stands in the young one; when that is full, it becomes the
/// old one, and what nobody used since goes with the one before.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    /// Entries of a generation, at most.
    generation: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Up to so many entries in each of the two generations.
    pub fn new(generation: usize) -> Self {
        Recent { generation, young: HashMap::default(), old: HashMap::default() }
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// From the next entry on, up to so many in each.
    pub fn set_generation(&mut self, generation: usize) {
        self.generation = generation;
    }

    /// What `f` says of what is known of `key`.
    pub fn look_at<T>(&mut self, key: &K, f: impl FnOnce(&V) -> T) -> Option<T> {
        if let Some(value) = self.young.get(key) {
            return Some(f(value));
        }
        let (key, value) = self.old.remove_entry(key)?;
        let said = f(&value);
        self.add(key, value);
        Some(said)
    }

    /// Notes what holds from now on.
    pub fn put(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.add(key, value);
    }

    /// Knows nothing from now on.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Changes what is known of `key`, if anything is; gives what `f` says.
    pub fn change<T>(&mut self, key: &K, f: impl FnOnce(&mut V) -> T) -> Option<T> {
        let known = self.young.get_mut(key).or_else(|| self.old.get_mut(key))?;
        Some(f(known))
    }

    /// Knows nothing of `key` from now on.
    pub fn forget(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn add(&mut self, key: K, value: V) {
        if self.young.len() >= self.generation && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: usize = 64;

    #[test]
    fn the_newest_is_known_until_it_is_long_unused() {
        let mut cache = Recent::new(GENERATION);
        cache.put(0, "first");
        cache.put(0, "second");
        for n in 1..=GENERATION * 3 {
            cache.put(n, "other");
            if n % GENERATION == 0 {
                // Used once in each generation.
                assert_eq!(cache.look_at(&0, |v| *v), Some("second"));
            }
        }
        assert_eq!(cache.look_at(&1, |v| *v), None);
        assert!(cache.young.len() <= GENERATION && cache.old.len() <= GENERATION);
    }

    #[test]
    fn an_old_generation_never_hides_a_change() {
        let mut cache = Recent::new(GENERATION);
        cache.put(0, "first");
        (1..=GENERATION).for_each(|n| cache.put(n, "other"));
        cache.put(0, "second");
        (1..=GENERATION).for_each(|n| cache.put(n, "other"));
        assert_eq!(cache.look_at(&0, |v| *v), Some("second"));
    }
}
