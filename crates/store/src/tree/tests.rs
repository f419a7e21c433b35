//! The tree against a plain ordered map, over many checkpoints.

use super::apply::{Apply, PageSpace, Step};
use super::cache::PageCache;
use super::filter::Filter;
use super::node::{Entry, MAX_LEVEL, Node, PagePtr, Payload, node_crc};
use super::range::RangeSearch;
use super::*;
use crate::keys::{self, Key};
use crate::memtable::Memtable;
use crate::rows::Shard;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A device for nodes: blocks handed out one after the other.
#[derive(Default)]
struct Disk {
    next: u64,
    pages: BTreeMap<u64, Bytes>,
}

impl PageSpace for Disk {
    fn alloc_page(&mut self, blocks: u16) -> Option<u64> {
        let at = self.next + 1;
        self.next += u64::from(blocks);
        Some(at)
    }
}

struct Rig {
    disk: Disk,
    pages: PageCache,
    tree: Tree,
    plain: BTreeMap<Vec<u8>, Vec<u8>>,
    generation: u64,
}

impl Rig {
    fn new(cache_bytes: usize) -> Self {
        Rig {
            disk: Disk { next: 100, pages: BTreeMap::new() },
            pages: PageCache::new(cache_bytes),
            tree: Tree::default(),
            plain: BTreeMap::new(),
            generation: 0,
        }
    }

    fn read(&self, ptr: PagePtr) -> Arc<Node> {
        let bytes = self.disk.pages[&ptr.block].clone();
        assert_eq!(node_crc(&bytes), ptr.crc);
        Arc::new(Node::parse(bytes).unwrap())
    }

    /// Applies changes, in slices of 20 entries; gives the most nodes that one of them wrote.
    fn checkpoint(&mut self, changes: &Memtable) -> usize {
        let before = self.all_pages();
        let (most, freed) = self.apply(changes);
        let after = self.all_pages();
        let freed_once: BTreeSet<PagePtr> = freed.iter().copied().collect();
        assert_eq!(freed.len(), freed_once.len());
        assert_eq!(before.difference(&after).copied().collect::<BTreeSet<_>>(), freed_once);
        most
    }

    /// The same without looking at the whole tree before and after; gives the freed pages, too.
    fn apply(&mut self, changes: &Memtable) -> (usize, Vec<PagePtr>) {
        for (from, range) in changes.ranges() {
            let span = from.to_vec()..range.end.to_vec();
            let gone: Vec<_> = self.plain.range(span).map(|(k, _)| k.clone()).collect();
            gone.iter().for_each(|k| drop(self.plain.remove(k)));
        }
        for (key, row) in changes.rows() {
            match &row.value {
                Some(v) => drop(self.plain.insert(key.to_vec(), v.to_vec())),
                None => drop(self.plain.remove(key.as_slice())),
            }
        }
        for ((id, number), patch, _) in changes.patches().all() {
            let row = self.plain.get_mut(keys::shard(id, number).as_slice()).unwrap();
            *row = Shard::patched(std::mem::take(row).into(), &patch).unwrap().to_vec();
        }
        self.generation += 1;
        let mut apply = Apply::new(self.tree, self.generation);
        let mut most = 0;
        loop {
            let mut budget = 20;
            let step = apply.step(changes, &self.pages, &mut self.disk, &mut budget);
            most = most.max(apply.written.len());
            for (ptr, node) in apply.written.drain(..) {
                self.disk.pages.insert(ptr.block, node.bytes().clone());
                self.pages.insert(ptr, node);
            }
            match step {
                Step::More => {}
                Step::Need(ptrs) => {
                    assert!(!ptrs.is_empty());
                    for ptr in ptrs {
                        apply.provide(ptr, self.read(ptr));
                    }
                }
                Step::Done => break,
                other => panic!("{other:?}"),
            }
        }
        self.tree = apply.new;
        (most, apply.freed)
    }

    /// Checks the shape of the whole tree; gives its pages.
    fn all_pages(&self) -> BTreeSet<PagePtr> {
        let mut out = BTreeSet::new();
        let (mut leaves, mut inner, mut blocks, mut leaf_blocks) = (0, 0, 0, 0);
        let mut todo: Vec<_> = self.tree.root.map(|r| (r, self.tree.level)).into_iter().collect();
        while let Some((ptr, level)) = todo.pop() {
            assert!(out.insert(ptr));
            let node = self.read(ptr);
            assert_eq!(node.level(), level);
            blocks += u64::from(ptr.blocks);
            if level == 0 {
                leaves += 1;
                leaf_blocks += u64::from(ptr.blocks);
                continue;
            }
            inner += 1;
            todo.extend((0..node.count()).map(|i| (node.child(i), level - 1)));
            for i in (0..node.count()).filter(|_| level == 1) {
                assert_eq!(node.filter(i), filter_of(&self.read(node.child(i))));
            }
        }
        let t = self.tree;
        assert_eq!((t.leaves, t.inner), (leaves, inner));
        assert_eq!((t.blocks, t.leaf_blocks), (blocks, leaf_blocks));
        out
    }

    fn with_pages<T>(&mut self, mut f: impl FnMut(&Tree, &PageCache) -> Result<T, TreeMiss>) -> T {
        let mut held = Vec::new();
        loop {
            match f(&self.tree, &self.pages) {
                Ok(v) => return v,
                Err(TreeMiss::Pages(ptrs)) => {
                    for ptr in ptrs {
                        let node = self.read(ptr);
                        held.push(node.clone());
                        self.pages.insert(ptr, node);
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn check(&mut self) {
        let all = self.with_pages(|tree, pages| {
            let mut all = Vec::new();
            let mut cursor = Cursor::new(*tree, pages, &[0xff]);
            cursor.seek(&[])?;
            while let Some(key) = cursor.key() {
                all.push((key.to_vec(), cursor.value().to_vec()));
                cursor.next()?;
            }
            Ok(all)
        });
        let plain: Vec<_> = self.plain.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(all, plain);
    }

    fn check_gets(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            let got = self.with_pages(|tree, pages| tree.get(pages, key));
            assert_eq!(got.as_deref(), self.plain.get(key).map(Vec::as_slice), "{key:?}");
            let from = self.with_pages(|tree, pages| {
                let mut cursor = Cursor::new(*tree, pages, &[0xff]);
                cursor.seek(key)?;
                Ok(cursor.key().map(<[u8]>::to_vec))
            });
            assert_eq!(from, self.plain.range(key.clone()..).next().map(|(k, _)| k.clone()));
        }
    }
}

fn filter_of(leaf: &Node) -> Filter {
    let entries = (0..leaf.count()).map(|i| (leaf.key(i), Payload::Value(leaf.value(i))));
    Filter::of(&entries.collect::<Vec<Entry>>())
}

/// Half of the keys are of objects' records.
fn random_key(rng: &mut fastrand::Rng, long: bool) -> Vec<u8> {
    let (first, second) = (rng.u32(0..40), rng.u32(0..300));
    let space = if first < 20 { "\x01" } else { "\x02" };
    let mut key = format!("{space}{first:03}/{second}").into_bytes();
    if long && rng.u8(0..10) == 0 {
        key.extend(std::iter::repeat_n(b'x', rng.usize(0..12_000)));
    }
    key
}

fn random_changes(rng: &mut fastrand::Rng, long: bool) -> Memtable {
    let mut changes = Memtable::default();
    let mode = rng.u8(0..6);
    for _ in 0..rng.usize(0..400) {
        let key = Key::from_slice(&random_key(rng, long));
        match (mode, rng.u8(0..100)) {
            (0, 0..90) | (1..5, 0..25) => changes.put(key, None, 1),
            (_, 95..97) | (5, 0..20) => {
                let to = Key::from_slice(&random_key(rng, long));
                let (from, to) = if key < to { (key, to) } else { (to, key) };
                let small = mode == 0 || rng.bool();
                let to = if small { to.min(keys::after(&from)) } else { to };
                if from < to {
                    changes.delete_range(from, to, 1);
                }
            }
            _ => {
                let max = if long && rng.u8(0..20) == 0 { 24_000 } else { 200 };
                let value = vec![rng.u8(..); rng.usize(0..max)];
                changes.put(key, Some(value.into()), 1);
            }
        }
    }
    changes
}

#[test]
fn holds_what_a_map_holds_over_many_checkpoints() {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new(if seed % 2 == 0 { 0 } else { 1 << 20 });
        for _ in 0..30 {
            let changes = random_changes(&mut rng, seed % 3 == 0);
            rig.checkpoint(&changes);
            rig.check();
            let keys: Vec<_> = (0..20).map(|_| random_key(&mut rng, false)).collect();
            rig.check_gets(&keys);
        }
    }
}

/// Writers wait for a slice.
#[test]
fn however_much_is_new_a_slice_writes_few_nodes() {
    let mut rig = Rig::new(1 << 20);
    let rows = |first: u32, step: u32, count: u32| {
        let mut changes = Memtable::default();
        for n in 0..count {
            let key = [&[1][..], &(first + step * n).to_be_bytes()].concat();
            changes.put(Key::from_slice(&key), Some(vec![7; 1300].into()), 1);
        }
        changes
    };
    // All of it above nothing, then all of it below one inner node.
    let most = rig.checkpoint(&rows(0, 1 << 18, 9_000));
    assert!(most <= 20, "{most} of {} nodes in one slice", rig.tree.leaves + rig.tree.inner);
    rig.check();
    let mut few = Rig::new(1 << 20);
    few.checkpoint(&rows(0, 1 << 28, 9));
    assert_eq!(few.tree.level, 1);
    let most = few.checkpoint(&rows(1, 7, 4_000));
    assert!(most <= 20, "{most} of {} nodes in one slice", few.tree.leaves + few.tree.inner);
    few.check();
}

/// What is deeper than a reader takes for possible would be lost.
#[test]
fn a_tree_of_long_keys_stays_low() {
    // A prefix that fills more than a block; pairs of keys that have less in common with all others, in
    // which every second separator is as long as a key can be.
    let shared = |_: u64| vec![b'x'; 4200];
    let pairs = |n: u64| [&(n / 2).to_be_bytes()[..], &[0; 24_000]].concat();
    let prefixes: [&dyn Fn(u64) -> Vec<u8>; 2] = [&shared, &pairs];
    for (prefix, deletes) in prefixes.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let mut rng = fastrand::Rng::with_seed(9);
        let mut rig = Rig::new(16 << 20);
        let mut live: Vec<Key> = Vec::new();
        let mut order: Vec<u64> = (0..1_000).collect();
        rng.shuffle(&mut order);
        for n in order {
            let key = [&[1][..], &prefix(n), &n.to_be_bytes()].concat();
            let mut changes = Memtable::default();
            changes.put(Key::from_slice(&key), Some(vec![7; 20].into()), 1);
            live.push(Key::from_slice(&key));
            if deletes && rng.u8(0..3) == 0 {
                changes.put(live.swap_remove(rng.usize(..live.len())), None, 1);
            }
            for ptr in rig.apply(&changes).1 {
                rig.disk.pages.remove(&ptr.block);
            }
            assert!(rig.tree.level <= MAX_LEVEL / 3, "{} levels", rig.tree.level);
        }
        let tree = rig.tree;
        println!("{} leaves, {} inner nodes, {} levels", tree.leaves, tree.inner, tree.level);
        rig.all_pages();
        rig.check();
    }
}

#[test]
fn deleting_everything_leaves_nothing() {
    let mut rig = Rig::new(1 << 20);
    let mut rng = fastrand::Rng::with_seed(7);
    rig.checkpoint(&random_changes(&mut rng, false));
    rig.checkpoint(&random_changes(&mut rng, false));
    let mut changes = Memtable::default();
    changes.delete_range(Key::from_slice(&[0]), Key::from_slice(&[9]), 1);
    rig.checkpoint(&changes);
    assert_eq!(rig.tree, Tree::default());
}

/// Else every new object reads a leaf.
#[test]
fn who_asks_for_an_object_that_is_not_there_reads_no_leaf() {
    let mut rig = Rig::new(1 << 20);
    let key = |n: u32| Key::from_slice(&[&[1][..], &n.to_be_bytes()].concat());
    let mut changes = Memtable::default();
    for n in 0..4_000 {
        changes.put(key(2 * n), Some(vec![7; 300].into()), 1);
    }
    rig.checkpoint(&changes);
    assert!(rig.tree.level > 1, "there are inner nodes of inner nodes");
    let mut inner = PageCache::new(1 << 20);
    for ptr in rig.all_pages() {
        let node = rig.read(ptr);
        if node.level() > 0 {
            inner.insert(ptr, node);
        }
    }
    let asked = |n: u32| rig.tree.get(&inner, &key(n)).is_err();
    assert!((0..4_000).all(|n| asked(2 * n)));
    let in_vain = (0..4_000).filter(|n| asked(2 * n + 1)).count();
    assert!(in_vain < 120, "{in_vain} of 4,000");
}

#[test]
fn appended_keys_fill_their_leaves() {
    let mut rig = Rig::new(1 << 20);
    for round in 0u32..50 {
        let mut changes = Memtable::default();
        for i in 0..50 {
            let key = Key::from_slice(&(round * 50 + i).to_be_bytes());
            changes.put(key, Some(vec![7; 100].into()), 1);
        }
        rig.checkpoint(&changes);
    }
    rig.check();
    let bytes = 2500 * 106;
    assert!(rig.tree.leaves * 4096 < bytes * 12 / 10, "{} leaves", rig.tree.leaves);
}

#[test]
fn a_range_without_rows_costs_no_writes() {
    let mut rig = Rig::new(1 << 20);
    let mut changes = Memtable::default();
    for i in 0u32..1000 {
        changes.put(Key::from_slice(&(i * 10).to_be_bytes()), Some(vec![7; 100].into()), 1);
    }
    rig.checkpoint(&changes);
    let before = rig.all_pages();
    let mut changes = Memtable::default();
    let key = |n: u32| Key::from_slice(&n.to_be_bytes());
    changes.delete_range(key(5001), key(5009), 2);
    rig.checkpoint(&changes);
    let leaves = |pages: &BTreeSet<PagePtr>, rig: &Rig| -> BTreeSet<PagePtr> {
        pages.iter().copied().filter(|p| rig.read(*p).level() == 0).collect()
    };
    assert_eq!(leaves(&before, &rig), leaves(&rig.all_pages(), &rig));
}

/// One round for each level, and then nothing is missing, and nothing more has been read.
#[test]
fn the_nodes_of_a_range_are_found_together() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new(0);
        for _ in 0..20 {
            rig.checkpoint(&random_changes(&mut rng, seed % 3 == 0));
        }
        for _ in 0..50 {
            let mut ends = [random_key(&mut rng, false), random_key(&mut rng, false)];
            ends.sort();
            let [from, to] = ends;
            // What is there and not held would go when others come.
            rig.pages.clear();
            let (mut rounds, mut read) = (0, BTreeSet::new());
            let rows = rig.with_pages(|tree, pages| {
                let search = RangeSearch { pages, hidden: &|_, _| false, most: usize::MAX };
                let nodes = tree.nodes_of(&search, &from, &to)?;
                if !nodes.missing.is_empty() {
                    rounds += 1;
                    read.extend(nodes.missing.iter().copied());
                    return Err(TreeMiss::Pages(nodes.missing));
                }
                let mut rows = Vec::new();
                let (hits, _) = pages.hits_and_misses();
                let mut cursor = Cursor::new(*tree, pages, &to);
                if from < to {
                    cursor.seek(&from).expect("all is there");
                }
                while let Some(key) = cursor.key().filter(|key| *key < to.as_slice()) {
                    rows.push((key.to_vec(), cursor.value().to_vec()));
                    cursor.next().expect("all is there");
                }
                assert_eq!(pages.hits_and_misses().0 - hits, read.len() as u64);
                Ok(rows)
            });
            assert!(rounds <= u32::from(rig.tree.level) + 1);
            let plain = rig.plain.range(from.clone()..to.clone());
            assert_eq!(rows, plain.map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_deleted_is_not_looked_for() {
    let mut rig = Rig::new(0);
    let mut changes = Memtable::default();
    let key = |n: u32| Key::from_slice(&n.to_be_bytes());
    for i in 0..3000 {
        changes.put(key(i), Some(vec![7; 100].into()), 1);
    }
    rig.checkpoint(&changes);
    let deleted = key(100)..key(2900);
    let hidden = |start: &[u8], end: &[u8]| {
        deleted.start.as_slice() <= start && end <= deleted.end.as_slice()
    };
    let leaves = rig.with_pages(|tree, pages| {
        let search = RangeSearch { pages, hidden: &hidden, most: 1 };
        let nodes = tree.nodes_of(&search, &key(50), &key(2950))?;
        assert!(nodes.missing.len() <= 1);
        if nodes.missing.is_empty() {
            Ok(nodes.leaves)
        } else {
            Err(TreeMiss::Pages(nodes.missing))
        }
    });
    assert!((2..=6).contains(&leaves), "{leaves} of {}", rig.tree.leaves);
}
