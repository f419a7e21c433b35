//! The tree on the disk: a copy-on-write B+tree of checksummed nodes.
//!
//! A tree is never changed in place. A checkpoint makes a new one that shares all untouched nodes
//! with the old one ([`apply`]); it comes into force when the superblock that points to its root is
//! durable, and only then are the replaced nodes' blocks free.

pub(crate) mod apply;
pub(crate) mod cache;
pub(crate) mod filter;
pub(crate) mod node;
pub(crate) mod range;
#[cfg(test)]
mod tests;

use crate::keys::Key;
use bytes::Bytes;
use cache::PageCache;
use node::{Node, PagePtr};
use std::sync::Arc;

/// A tree: where its root is, and how big it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// `None`: the tree is empty.
    pub root: Option<PagePtr>,
    /// Level of the root.
    pub level: u8,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of inner nodes.
    pub inner: u64,
    /// Blocks of all nodes.
    pub blocks: u64,
    /// Blocks of the leaves.
    pub leaf_blocks: u64,
}

/// Why the tree cannot answer from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeMiss {
    /// These nodes must be read; the first is needed, the others will be.
    Pages(Vec<PagePtr>),
    /// The node is intact but does not belong here.
    Damaged { block: u64, what: &'static str },
    /// Nothing is missing, but it is enough for one time (see [`crate::gaps`]).
    Again,
}

/// Leaves that a scan asks for together when it comes to one that is not in memory.
const READ_AHEAD_LEAVES: usize = 8;

fn fetch(pages: &PageCache, ptr: PagePtr, level: u8) -> Result<Arc<Node>, TreeMiss> {
    let node = pages.get(ptr).ok_or_else(|| TreeMiss::Pages(vec![ptr]))?;
    if node.level() != level || node.block() != ptr.block {
        let what = "a tree node stands where another belongs";
        return Err(TreeMiss::Damaged { block: ptr.block, what });
    }
    Ok(node)
}

impl Tree {
    /// Counts a node of it.
    pub fn add(&mut self, level: u8, blocks: u16) {
        let leaves = u64::from(level == 0);
        self.leaves += leaves;
        self.inner += 1 - leaves;
        self.blocks += u64::from(blocks);
        self.leaf_blocks += leaves * u64::from(blocks);
    }

    /// A node is no more of it.
    pub fn remove(&mut self, level: u8, blocks: u16) {
        let leaves = u64::from(level == 0);
        self.leaves -= leaves;
        self.inner -= 1 - leaves;
        self.blocks -= u64::from(blocks);
        self.leaf_blocks -= leaves * u64::from(blocks);
    }

    /// The value of `key`.
    pub fn get(&self, pages: &PageCache, key: &[u8]) -> Result<Option<Bytes>, TreeMiss> {
        let Some(mut ptr) = self.root else { return Ok(None) };
        let mut level = self.level;
        loop {
            let node = fetch(pages, ptr, level)?;
            if level == 0 {
                let (at, exact) = node.search(key);
                return Ok(exact.then(|| node.value(at)));
            }
            let at = node.child_index(key);
            if level == 1 && !node.may_hold(at, key) {
                return Ok(None);
            }
            ptr = node.child(at);
            level -= 1;
        }
    }
}

/// A position in a tree that moves on in key order.
pub(crate) struct Cursor<'a> {
    pages: &'a PageCache,
    tree: Tree,
    /// Inner nodes from the root down, each with the index of the child taken.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<(Arc<Node>, usize)>,
    key: Key,
    /// Nothing at or after this key is wanted.
    end: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Stands before everything; [`Cursor::seek`] comes next.
    pub fn new(tree: Tree, pages: &'a PageCache, end: &'a [u8]) -> Self {
        Cursor { pages, tree, path: Vec::new(), leaf: None, key: Key::new(), end }
    }

    /// The key it stands at; `None` at the end.
    pub fn key(&self) -> Option<&[u8]> {
        self.leaf.is_some().then_some(self.key.as_slice())
    }

    /// The value it stands at.
    pub fn value(&self) -> Bytes {
        self.leaf.as_ref().map_or_else(Bytes::new, |(node, at)| node.value(*at))
    }

    /// Moves to the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), TreeMiss> {
        self.path.clear();
        self.leaf = None;
        let Some(root) = self.tree.root else { return Ok(()) };
        let (mut ptr, mut level) = (root, self.tree.level);
        while level > 0 {
            let node = self.load(ptr, level)?;
            let at = node.child_index(key);
            ptr = node.child(at);
            self.path.push((node, at));
            level -= 1;
        }
        let leaf = self.load(ptr, 0)?;
        let (at, _) = leaf.search(key);
        self.settle(leaf, at)
    }

    /// Moves to the next key.
    pub fn next(&mut self) -> Result<(), TreeMiss> {
        match self.leaf.take() {
            Some((leaf, at)) => self.settle(leaf, at + 1),
            None => Ok(()),
        }
    }

    /// Stands at entry `at` of `leaf`, or at the first entry behind it.
    fn settle(&mut self, leaf: Arc<Node>, at: usize) -> Result<(), TreeMiss> {
        let (mut leaf, mut at) = (leaf, at);
        while at >= leaf.count() {
            match self.next_leaf()? {
                Some(next) => (leaf, at) = (next, 0),
                None => return Ok(()),
            }
        }
        leaf.key_into(at, &mut self.key);
        self.leaf = Some((leaf, at));
        Ok(())
    }

    /// The leaf behind the one it was in; `None` if nothing in it is wanted.
    fn next_leaf(&mut self) -> Result<Option<Arc<Node>>, TreeMiss> {
        loop {
            match self.path.last_mut() {
                None => return Ok(None),
                Some((node, at)) if *at + 1 < node.count() => {
                    *at += 1;
                    if node.key(*at).as_slice() >= self.end {
                        return Ok(None);
                    }
                    break;
                }
                Some(_) => drop(self.path.pop()),
            }
        }
        loop {
            let (node, at) = self.path.last().expect("there is a next child");
            let (ptr, level) = (node.child(*at), node.level() - 1);
            let child = self.load(ptr, level)?;
            if level == 0 {
                return Ok(Some(child));
            }
            self.path.push((child, 0));
        }
    }

    /// Loads a node; when a leaf is missing, the ones behind it are asked for too.
    fn load(&self, ptr: PagePtr, level: u8) -> Result<Arc<Node>, TreeMiss> {
        fetch(self.pages, ptr, level).map_err(|miss| match (miss, self.path.last()) {
            (TreeMiss::Pages(_), Some((parent, at))) if level == 0 => {
                let end = parent.count().min(at + READ_AHEAD_LEAVES);
                let ahead = (at + 1..end).take_while(|i| parent.key(*i).as_slice() < self.end);
                let ahead = ahead.map(|i| parent.child(i));
                let ahead = ahead.filter(|p| !self.pages.contains(*p));
                TreeMiss::Pages(std::iter::once(ptr).chain(ahead).collect())
            }
            (miss, _) => miss,
        })
    }
}
