//! Reading the tree in key order, as much of it as there is.

use crate::keys::Key;
use crate::mount::walk::is_possible;
use crate::store::check_node;
use crate::tree::filter::Filter;
use crate::tree::node::{Node, PagePtr};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::HashMap;

/// Nodes that are read ahead.
const READ_AHEAD: usize = 32;

/// A node to be looked at.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub ptr: PagePtr,
    pub level: u8,
    /// What its parent knows of it.
    filter: Filter,
    /// Keys that it may hold.
    pub low: Key,
    pub high: Option<Key>,
}

enum Read {
    Asked,
    Done(Result<Bytes, String>),
}

/// What comes next.
pub(super) enum Next {
    /// Something must be read first.
    Wait,
    Leaf(Node),
    /// A node and all below it cannot be read.
    Bad(Box<Item>, String),
    End,
}

/// The walk.
#[derive(Default)]
pub(super) struct OrderedWalk {
    /// What is to come, the next one last.
    stack: Vec<Item>,
    reads: HashMap<u64, Read>,
    end: u64,
    /// What is wanted is from the first key to the second.
    keys: (Key, Option<Key>),
    /// Nodes were gone through before, by those of these keys.
    repeated: bool,
    /// What nodes may hold of which it was said that they are bad: the first key, and the one behind the last.
    bad: BTreeMap<Key, Option<Key>>,
    pub pages: Vec<PagePtr>,
    pub nodes: u64,
}

impl OrderedWalk {
    /// Goes through what is between two keys. What was read of other keys before stays counted; `repeated`: the
    /// same keys are gone through again.
    pub fn go_through(
        &mut self,
        (root, level): (Option<PagePtr>, u8),
        end: u64,
        keys: (Key, Option<Key>),
        repeated: bool,
    ) {
        let filter = Filter::default();
        let item = |ptr| Item { ptr, level, filter, low: Key::new(), high: None };
        self.stack = root.map(item).into_iter().collect();
        self.reads.clear();
        (self.end, self.keys, self.repeated) = (end, keys, repeated);
    }

    /// Whether a key is among those that are wanted.
    pub fn wants_key(&self, key: &[u8]) -> bool {
        let (from, to) = &self.keys;
        key >= from.as_slice() && to.as_ref().is_none_or(|to| key < to.as_slice())
    }

    /// A node is bad; false when that was said.
    fn note_bad(&mut self, item: &Item) -> bool {
        self.bad.insert(item.low.clone(), item.high.clone()).is_none()
    }

    /// Whether the row of this key may be in a node that is bad.
    pub fn is_lost(&self, key: &[u8]) -> bool {
        let before = self.bad.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let high = before.map(|(_, high)| high.as_ref()).next_back();
        high.is_some_and(|high| high.is_none_or(|high| high.as_slice() > key))
    }

    /// Whether a node comes for the first time: it is counted where its first key is wanted.
    fn is_new(&self, item: &Item) -> bool {
        !self.repeated && self.wants_key(&item.low)
    }

    /// The nodes to be read now.
    pub fn wants(&mut self) -> Vec<PagePtr> {
        let mut out = Vec::new();
        for item in self.stack.iter().rev().take(READ_AHEAD) {
            if is_possible(item.ptr, self.end) && !self.reads.contains_key(&item.ptr.block) {
                self.reads.insert(item.ptr.block, Read::Asked);
                out.push(item.ptr);
            }
        }
        out
    }

    /// A node was read, or not.
    pub fn loaded(&mut self, block: u64, result: Result<Bytes, String>) {
        self.reads.insert(block, Read::Done(result));
    }

    pub fn next(&mut self) -> Next {
        loop {
            let Some(item) = self.stack.last().cloned() else { return Next::End };
            if !is_possible(item.ptr, self.end) {
                self.stack.pop();
                if self.note_bad(&item) {
                    let why = "its pointer leads out of the device";
                    return Next::Bad(Box::new(item), why.into());
                }
                continue;
            }
            let result = match self.reads.get(&item.ptr.block) {
                Some(Read::Done(result)) => result.clone(),
                _ => return Next::Wait,
            };
            self.stack.pop();
            self.reads.remove(&item.ptr.block);
            let is_new = self.is_new(&item);
            if is_new {
                self.pages.push(item.ptr);
            }
            let checked = result.and_then(|bytes| check(&item, bytes));
            let node = match checked {
                Ok(node) => node,
                Err(why) if self.note_bad(&item) => return Next::Bad(Box::new(item), why),
                Err(_) => continue,
            };
            self.nodes += u64::from(is_new);
            if item.level == 0 {
                return Next::Leaf(node);
            }
            for i in (0..node.count()).rev() {
                let low = if i == 0 { item.low.clone() } else { node.key(i) };
                let next = (i + 1 < node.count()).then(|| node.key(i + 1));
                let high = next.or_else(|| item.high.clone());
                let (from, to) = &self.keys;
                let is_before = high.as_ref().is_some_and(|high| high <= from);
                let is_behind = to.as_ref().is_some_and(|to| low >= *to);
                if is_before || is_behind {
                    continue;
                }
                let (ptr, filter) = (node.child(i), node.filter(i));
                self.stack.push(Item { ptr, level: item.level - 1, filter, low, high });
            }
        }
    }
}

fn check(item: &Item, bytes: Bytes) -> Result<Node, String> {
    let node = check_node(item.ptr, bytes)?;
    if node.level() != item.level || node.block() != item.ptr.block {
        return Err("it stands where another belongs".into());
    }
    let last = node.key(node.count() - 1);
    if item.high.as_ref().is_some_and(|high| last >= *high)
        || (item.level == 0 && node.key(0) < item.low)
    {
        return Err("its keys lie outside the range its parent gives".into());
    }
    if item.level == 0 && !(0..node.count()).all(|i| item.filter.may_hold(&node.key(i))) {
        return Err("it holds objects that its parent's filter does not know".into());
    }
    Ok(node)
}
