//! Walking the inner nodes of the tree: which blocks hold nodes, and where the bitmaps are.

use crate::accounts::AccountSums;
use crate::keys::{self, Parsed};
use crate::rows::{RegionBits, decode_bitmap};
use crate::store::check_node;
use crate::tree::Tree;
use crate::tree::node::{MAX_LEVEL, MAX_NODE_BLOCKS, Node, PagePtr};
use bytes::Bytes;
use std::sync::Arc;

/// A node to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub ptr: PagePtr,
    pub level: u8,
}

/// The walk. The caller reads what [`Walk::next`] names, in any order.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    todo: Vec<Visit>,
    /// Every node of the tree.
    pub pages: Vec<PagePtr>,
    /// Rows found in leaves.
    pub bitmaps: Vec<(u32, Box<RegionBits>)>,
    pub accounts: Vec<(u64, AccountSums)>,
    pub tree: Tree,
}

/// What is wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadNode {
    pub block: u64,
    pub what: &'static str,
}

impl Walk {
    /// Starts at the root; nothing lies behind `total_blocks`.
    pub fn new(root: Option<PagePtr>, level: u8) -> Self {
        let mut walk = Walk { tree: Tree { root, level, ..Tree::default() }, ..Walk::default() };
        if let Some(ptr) = root {
            walk.note(ptr, level);
            walk.todo.push(Visit { ptr, level });
        }
        walk
    }

    /// The next node to be read.
    pub fn next(&mut self) -> Option<Visit> {
        self.todo.pop()
    }

    fn note(&mut self, ptr: PagePtr, level: u8) {
        self.pages.push(ptr);
        self.tree.add(level, ptr.blocks);
    }

    /// A node that was read.
    pub fn visited(&mut self, visit: Visit, bytes: Bytes, end: u64) -> Result<Arc<Node>, BadNode> {
        let bad = |what| BadNode { block: visit.ptr.block, what };
        let node = check_node(visit.ptr, bytes).map_err(bad)?;
        if node.level() != visit.level || node.block() != visit.ptr.block {
            return Err(bad("a tree node stands where another belongs"));
        }
        if visit.level == 0 {
            self.take_bitmaps(&node).map_err(bad)?;
            return Ok(Arc::new(node));
        }
        let (from, to) = (keys::bitmaps(), keys::mount_rows_end());
        for i in 0..node.count() {
            let ptr = node.child(i);
            if !is_possible(ptr, end) {
                return Err(bad("a child pointer leads out of the device"));
            }
            self.note(ptr, visit.level - 1);
            let starts_before_end = i == 0 || node.key(i) < to;
            let ends_after_start = i + 1 >= node.count() || node.key(i + 1) > from;
            if visit.level > 1 || (starts_before_end && ends_after_start) {
                self.todo.push(Visit { ptr, level: visit.level - 1 });
            }
        }
        Ok(Arc::new(node))
    }

    fn take_bitmaps(&mut self, node: &Node) -> Result<(), &'static str> {
        for i in node.search(&keys::bitmaps()).0..node.count() {
            match keys::parse(&node.key(i)) {
                Ok(Parsed::Bitmap { region }) => {
                    let bits = decode_bitmap(&node.value(i)).map_err(|why| why.0)?;
                    self.bitmaps.push((region, bits));
                }
                Ok(Parsed::Account { account }) => {
                    let sums = AccountSums::decode(&node.value(i)).map_err(|why| why.0)?;
                    self.accounts.push((account, sums));
                }
                _ => return Err("an unknown row among the bitmaps"),
            }
        }
        Ok(())
    }
}

/// Whether a pointer can be one at all.
pub(crate) fn is_possible(ptr: PagePtr, end: u64) -> bool {
    let last = ptr.block.checked_add(u64::from(ptr.blocks));
    ptr.block > 0 && (1..=MAX_NODE_BLOCKS).contains(&ptr.blocks) && last.is_some_and(|l| l <= end)
}

/// Whether a root of this level can be one at all.
pub(crate) fn is_possible_root(root: Option<PagePtr>, level: u8, end: u64) -> bool {
    level <= MAX_LEVEL && root.is_none_or(|ptr| is_possible(ptr, end))
}
