//! Making a new tree out of an old one and a memtable of changes.
//!
//! One walk from left to right: nodes whose keys no change touches are taken over by pointer, the
//! others are rewritten. The walk keeps one [`Frame`] per level, collecting the children of the new
//! nodes; a level's new nodes are written when the old node's key range is behind the walk, or, where
//! there are many, the first of them before. A node that got too small takes in its right neighbour.
//! Subtrees that a deleted range covers are not read, only their inner nodes, to learn which blocks
//! become free.
//!
//! The walk does no I/O: [`Apply::step`] says which nodes it needs, and leaves new nodes in
//! [`Apply::written`]. It works in slices, and neither the old tree nor the memtable may change
//! meanwhile (the memtable is frozen).

mod fill;
mod leaf;

use super::Tree;
use super::cache::PageCache;
use super::filter::Filter;
use super::node::{Entry, MAX_LEVEL, Node, NodeSize, PagePtr, Payload, build, separator};
use crate::keys::Key;
use crate::memtable::Memtable;
use fill::{Cuts, dense_end, entry_bytes, split};
use io::BLOCK_BYTES;
use leaf::LeafJob;
use std::sync::Arc;
use types::HashMap;

/// Where new nodes get their blocks.
pub(crate) trait PageSpace {
    /// `blocks` contiguous free blocks.
    fn alloc_page(&mut self, blocks: u16) -> Option<u64>;
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The slice is used up.
    More,
    /// These nodes must be [`Apply::provide`]d; the first is needed now, the others soon.
    Need(Vec<PagePtr>),
    /// [`Apply::new`] is the new tree.
    Done,
    /// The old tree is damaged.
    Damaged { block: u64, what: &'static str },
    /// No space for a node.
    NoSpace,
}

enum Stop {
    Need(Vec<PagePtr>),
    Damaged { block: u64, what: &'static str },
    NoSpace,
}

type Progress<T> = Result<T, Stop>;

/// A node of the old tree on the way down, with the children of the new one so far.
struct Frame {
    node: Arc<Node>,
    /// First child that is not dealt with.
    next: usize,
    lower: Key,
    upper: Option<Key>,
    out: Vec<Entry>,
}

impl Frame {
    fn child_lower(&self, i: usize) -> Key {
        if i == 0 { self.lower.clone() } else { self.node.key(i) }
    }

    /// A child that no change touches.
    fn kept_child(&self, i: usize) -> Entry {
        (self.child_lower(i), Payload::Child(self.node.child(i), self.node.filter(i)))
    }

    fn child_upper(&self, i: usize) -> Option<Key> {
        if i + 1 < self.node.count() { Some(self.node.key(i + 1)) } else { self.upper.clone() }
    }
}

/// A node, and the range of keys that belong to it.
type Neighbour = (Arc<Node>, Key, Option<Key>);

/// One more level on top of what is finished.
struct Growth {
    /// Children that have no parent yet.
    rest: std::vec::IntoIter<Entry>,
    cuts: Cuts,
    parents: Vec<Entry>,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Start,
    Walk,
    Drops,
    Done,
}

/// Below this a node takes in its right neighbour.
const MERGE_BYTES: usize = BLOCK_BYTES / 4;
/// Leaves to be read together for the walk.
const READ_AHEAD: usize = 64;
/// From this many children on an inner node being finished gives up its first ones.
const STREAM_CHILDREN: usize = 512;
/// An inner node has more than one block rather than fewer children, where keys are long: with two or three
/// of each node a tree would get as deep as a list is long.
const MIN_CHILDREN: usize = 8;
/// With fewer children an inner node takes in its right neighbour, however long their keys are. Fewer than
/// half of [`MIN_CHILDREN`]: of the longest keys a node has no more than that.
const MERGE_CHILDREN: usize = 3;
/// Children that are put into inner nodes for one entry of the budget.
const CHILDREN_PER_ENTRY: usize = 4;

/// The walk.
pub(crate) struct Apply {
    /// The tree that comes out.
    pub new: Tree,
    /// New nodes that are to be written; the caller takes them out.
    pub written: Vec<(PagePtr, Arc<Node>)>,
    /// Nodes of the old tree that the new one does not need.
    pub freed: Vec<PagePtr>,
    /// Blocks of `freed`.
    pub freed_blocks: u64,
    generation: u64,
    phase: Phase,
    /// Changes below this key are dealt with; `None`: all are.
    pos: Option<Key>,
    frames: Vec<Frame>,
    job: Option<LeafJob>,
    drops: Vec<(PagePtr, u8)>,
    /// Finished nodes of the highest level so far.
    top: Vec<Entry>,
    top_level: u8,
    /// The level that is being built above it.
    growth: Option<Growth>,
    provided: HashMap<u64, (u32, Arc<Node>)>,
}

impl Apply {
    /// A walk over `tree` that writes nodes of checkpoint `generation`.
    pub fn new(tree: Tree, generation: u64) -> Self {
        Apply {
            new: tree,
            written: Vec::new(),
            freed: Vec::new(),
            freed_blocks: 0,
            generation,
            phase: Phase::Start,
            pos: Some(Key::new()),
            frames: Vec::new(),
            job: None,
            drops: Vec::new(),
            top: Vec::new(),
            top_level: 0,
            growth: None,
            provided: HashMap::default(),
        }
    }

    /// Hands over a node that was asked for.
    pub fn provide(&mut self, ptr: PagePtr, node: Arc<Node>) {
        self.provided.insert(ptr.block, (ptr.crc, node));
    }

    /// Goes on for about `budget` entries.
    pub fn step(
        &mut self,
        changes: &Memtable,
        pages: &PageCache,
        space: &mut dyn PageSpace,
        budget: &mut usize,
    ) -> Step {
        while *budget > 0 {
            if self.phase == Phase::Done {
                return Step::Done;
            }
            *budget -= 1;
            match self.advance(changes, pages, space, budget) {
                Ok(()) => {}
                Err(Stop::Need(ptrs)) => return Step::Need(ptrs),
                Err(Stop::Damaged { block, what }) => return Step::Damaged { block, what },
                Err(Stop::NoSpace) => return Step::NoSpace,
            }
        }
        if self.phase == Phase::Done { Step::Done } else { Step::More }
    }

    fn advance(
        &mut self,
        changes: &Memtable,
        pages: &PageCache,
        space: &mut dyn PageSpace,
        budget: &mut usize,
    ) -> Progress<()> {
        match self.phase {
            Phase::Start => self.start(changes, pages),
            Phase::Walk if self.has_many_children() => self.stream_children(space, budget),
            Phase::Walk if self.job.is_some() => self.run_leaf(changes, pages, space, budget),
            Phase::Walk => self.walk(changes, pages, space, budget),
            Phase::Drops => self.drop_one(pages),
            Phase::Done => Ok(()),
        }
    }

    fn start(&mut self, changes: &Memtable, pages: &PageCache) -> Progress<()> {
        if changes.is_empty() {
            self.phase = Phase::Done;
            return Ok(());
        }
        let level = self.new.level;
        match self.new.root {
            None => self.job = Some(LeafJob::new(None, Key::new(), None, changes)),
            Some(root) => {
                let node = self.load(pages, root, level)?;
                self.free(root, level);
                if level == 0 {
                    let old = Some((root, Filter::default(), node));
                    self.job = Some(LeafJob::new(old, Key::new(), None, changes));
                } else {
                    self.push_frame(node, Key::new(), None);
                }
            }
        }
        self.phase = Phase::Walk;
        Ok(())
    }

    fn push_frame(&mut self, node: Arc<Node>, lower: Key, upper: Option<Key>) {
        self.frames.push(Frame { node, next: 0, lower, upper, out: Vec::new() });
    }

    /// One move of the walk: down to the next change, or up and out of a finished node.
    fn walk(
        &mut self,
        changes: &Memtable,
        pages: &PageCache,
        space: &mut dyn PageSpace,
        budget: &mut usize,
    ) -> Progress<()> {
        let Some(frame) = self.frames.last() else { return self.grow_root(space, budget) };
        let next = self.pos.as_ref().and_then(|pos| changes.change_from(pos));
        match next {
            Some(key) if frame.upper.as_ref().is_none_or(|upper| key < *upper) => {
                self.descend(&key, changes, pages)
            }
            _ => self.finish_frame(pages, space),
        }
    }

    fn descend(&mut self, key: &Key, changes: &Memtable, pages: &PageCache) -> Progress<()> {
        let frame = self.frames.last_mut().expect("the walk is in a node");
        let level = frame.node.level() - 1;
        let at = frame.node.child_index(key);
        assert!(at >= frame.next, "the walk goes from left to right");
        for i in frame.next..at {
            frame.out.push(frame.kept_child(i));
        }
        frame.next = at;
        let (lower, upper) = (frame.child_lower(at), frame.child_upper(at));
        let (ptr, filter) = (frame.node.child(at), frame.node.filter(at));
        if changes.covers(&lower, upper.as_deref()) && !has_rows(changes, &lower, upper.as_deref())
        {
            frame.next += 1;
            self.drops.push((ptr, level));
            self.pos = upper;
            return Ok(());
        }
        let node = match self.load(pages, ptr, level) {
            Err(Stop::Need(ptrs)) if level == 0 => {
                return Err(self.read_ahead(ptrs, at, changes, pages));
            }
            other => other?,
        };
        self.frames.last_mut().expect("the walk is in a node").next += 1;
        self.free(ptr, level);
        if level == 0 {
            self.job = Some(LeafJob::new(Some((ptr, filter, node)), lower, upper, changes));
        } else {
            self.push_frame(node, lower, upper);
        }
        Ok(())
    }

    /// Adds to the leaves needed now those of the same parent that will be needed next.
    fn read_ahead(
        &self,
        mut ptrs: Vec<PagePtr>,
        at: usize,
        changes: &Memtable,
        pages: &PageCache,
    ) -> Stop {
        let Some(frame) = self.frames.last() else { return Stop::Need(ptrs) };
        let mut pos = frame.child_upper(at);
        while let Some(key) = pos.and_then(|p| changes.change_from(&p)) {
            if ptrs.len() >= READ_AHEAD || frame.upper.as_ref().is_some_and(|u| key >= *u) {
                break;
            }
            let i = frame.node.child_index(&key);
            let ptr = frame.node.child(i);
            if !pages.contains(ptr) && !self.provided.contains_key(&ptr.block) {
                ptrs.push(ptr);
            }
            pos = frame.child_upper(i);
        }
        Stop::Need(ptrs)
    }

    /// Writes the new nodes in place of a finished one.
    fn finish_frame(&mut self, pages: &PageCache, space: &mut dyn PageSpace) -> Progress<()> {
        let frame = self.frames.last_mut().expect("the walk is in a node");
        for i in frame.next..frame.node.count() {
            frame.out.push(frame.kept_child(i));
        }
        frame.next = frame.node.count();
        let small =
            frame.out.len() < MERGE_CHILDREN || NodeSize::of(&frame.out).bytes() < MERGE_BYTES;
        if small
            && !frame.out.is_empty()
            && let Some((node, lower, upper)) = self.take_neighbour(pages)?
        {
            let frame = self.frames.last_mut().expect("the walk is in a node");
            (frame.node, frame.next, frame.lower, frame.upper) = (node, 0, lower, upper);
            return Ok(());
        }
        let frame = self.frames.last_mut().expect("the walk is in a node");
        let level = frame.node.level();
        let out = std::mem::take(&mut frame.out);
        if self.frames.len() == 1 && out.len() == 1 && self.top.is_empty() {
            // A root with one child is not needed.
            self.frames.pop();
            (self.top, self.top_level) = (out, level - 1);
            return Ok(());
        }
        for entries in split(out, MIN_CHILDREN, false) {
            let node = self.write_inner(level, entries, space)?;
            self.above().push(node);
        }
        self.frames.pop();
        if self.frames.is_empty() {
            self.top_level = level;
        }
        Ok(())
    }

    fn has_many_children(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.out.len() >= STREAM_CHILDREN)
    }

    /// Writes a first node of those that will stand in place of the current one.
    fn stream_children(&mut self, space: &mut dyn PageSpace, budget: &mut usize) -> Progress<()> {
        let frame = self.frames.last_mut().expect("the walk is in a node");
        let level = frame.node.level();
        let rest = frame.out.split_off(Cuts::dense(MIN_CHILDREN).end(&frame.out));
        let first = std::mem::replace(&mut frame.out, rest);
        *budget = budget.saturating_sub(first.len() / CHILDREN_PER_ENTRY);
        let node = self.write_inner(level, first, space)?;
        self.above().push(node);
        Ok(())
    }

    /// Where finished nodes of the current one's level go.
    fn above(&mut self) -> &mut Vec<Entry> {
        match self.frames.as_mut_slice() {
            [.., parent, _] => &mut parent.out,
            _ => &mut self.top,
        }
    }

    fn write_inner(
        &mut self,
        level: u8,
        children: Vec<Entry>,
        space: &mut dyn PageSpace,
    ) -> Progress<Entry> {
        let ptr = self.write(level, &children, space)?;
        let (first, _) = children.into_iter().next().expect("a node has entries");
        Ok((first, Payload::Child(ptr, Filter::default())))
    }

    /// The right neighbour, under the same parent, of the node or leaf being finished: it is taken
    /// out of the parent. `None` when there is none.
    fn take_neighbour(&mut self, pages: &PageCache) -> Progress<Option<Neighbour>> {
        let depth = if self.job.is_some() { 1 } else { 2 };
        let Some(index) = self.frames.len().checked_sub(depth) else { return Ok(None) };
        let Some(parent) = self.frames.get(index) else { return Ok(None) };
        let (at, level) = (parent.next, parent.node.level() - 1);
        if at >= parent.node.count() {
            return Ok(None);
        }
        let (lower, upper) = (parent.child_lower(at), parent.child_upper(at));
        let ptr = parent.node.child(at);
        let node = self.load(pages, ptr, level)?;
        self.free(ptr, level);
        if let Some(parent) = self.frames.get_mut(index) {
            parent.next += 1;
        }
        Ok(Some((node, lower, upper)))
    }

    fn run_leaf(
        &mut self,
        changes: &Memtable,
        pages: &PageCache,
        space: &mut dyn PageSpace,
        budget: &mut usize,
    ) -> Progress<()> {
        let job = self.job.as_mut().expect("a leaf is being merged");
        let merged = job.merge(changes, &mut self.pos, budget);
        let at_end = merged.map_err(|what| {
            let block = job.old.as_ref().map_or(0, |node| node.block());
            Stop::Damaged { block, what }
        })?;
        if !at_end {
            if job.is_long() {
                let rest = job.pending.split_off(dense_end(&job.pending));
                let entries = std::mem::replace(&mut job.pending, rest);
                job.pending_bytes = job.pending.iter().map(entry_bytes).sum();
                self.write_leaf(&entries, space)?;
            }
            return Ok(());
        }
        if !job.changed
            && let Some((ptr, filter)) = job.place.take()
        {
            return self.keep_leaf(ptr, filter);
        }
        let small = !job.pending.is_empty() && job.pending_bytes < MERGE_BYTES;
        if small && let Some((node, _, upper)) = self.take_neighbour(pages)? {
            let job = self.job.as_mut().expect("a leaf is being merged");
            self.pos.clone_from(&job.upper);
            job.go_on(node, upper, changes);
            return Ok(());
        }
        let job = self.job.as_mut().expect("a leaf is being merged");
        let pending = std::mem::take(&mut job.pending);
        let dense = job.appended && !job.inserted;
        self.pos.clone_from(&job.upper);
        for entries in split(pending, 1, dense) {
            self.write_leaf(&entries, space)?;
        }
        self.job = None;
        Ok(())
    }

    /// The leaf was only looked at: it stays.
    fn keep_leaf(&mut self, ptr: PagePtr, filter: Filter) -> Progress<()> {
        let job = self.job.take().expect("a leaf is being merged");
        assert_eq!(self.freed.pop(), Some(ptr), "the leaf was freed last");
        self.freed_blocks -= u64::from(ptr.blocks);
        self.new.add(0, ptr.blocks);
        self.pos = job.upper;
        self.out().push((job.lower, Payload::Child(ptr, filter)));
        Ok(())
    }

    /// Where the finished nodes below the current one go.
    fn out(&mut self) -> &mut Vec<Entry> {
        self.frames.last_mut().map_or(&mut self.top, |parent| &mut parent.out)
    }

    fn write_leaf(&mut self, entries: &[Entry], space: &mut dyn PageSpace) -> Progress<()> {
        let ptr = self.write(0, entries, space)?;
        let job = self.job.as_mut().expect("a leaf is being merged");
        let (first, last) = match entries {
            [only] => (only, only),
            [first, .., last] => (first, last),
            [] => unreachable!("a leaf has entries"),
        };
        let key = match &job.last {
            None => job.lower.clone(),
            Some(before) => separator(before, &first.0),
        };
        job.last = Some(last.0.clone());
        self.out().push((key, Payload::Child(ptr, Filter::of(entries))));
        Ok(())
    }

    fn write(
        &mut self,
        level: u8,
        entries: &[Entry],
        space: &mut dyn PageSpace,
    ) -> Progress<PagePtr> {
        // Who reads it would take it for damaged.
        assert!(level <= MAX_LEVEL, "a tree has a bounded height");
        let size = NodeSize::of(entries);
        let blocks = size.blocks();
        let block = space.alloc_page(blocks).ok_or(Stop::NoSpace)?;
        let (ptr, node) = build(level, (entries, size), block, self.generation);
        self.new.add(level, blocks);
        self.written.push((ptr, Arc::new(node)));
        Ok(ptr)
    }

    fn free(&mut self, ptr: PagePtr, level: u8) {
        self.new.remove(level, ptr.blocks);
        self.freed_blocks += u64::from(ptr.blocks);
        self.freed.push(ptr);
    }

    /// The walk is over: builds levels, a node at a time, until one node is left.
    fn grow_root(&mut self, space: &mut dyn PageSpace, budget: &mut usize) -> Progress<()> {
        if let Some(mut growth) = self.growth.take() {
            let count = growth.cuts.end(growth.rest.as_slice());
            let children: Vec<Entry> = growth.rest.by_ref().take(count).collect();
            *budget = budget.saturating_sub(count / CHILDREN_PER_ENTRY);
            let parent = self.write_inner(self.top_level + 1, children, space)?;
            growth.parents.push(parent);
            if growth.rest.len() > 0 {
                self.growth = Some(growth);
            } else {
                (self.top, self.top_level) = (growth.parents, self.top_level + 1);
            }
            return Ok(());
        }
        let mut top = std::mem::take(&mut self.top);
        if top.len() > 1 {
            let cuts = Cuts::even(&top, MIN_CHILDREN);
            self.growth = Some(Growth { rest: top.into_iter(), cuts, parents: Vec::new() });
            return Ok(());
        }
        match top.pop() {
            Some((_, Payload::Child(ptr, _))) => {
                (self.new.root, self.new.level) = (Some(ptr), self.top_level);
            }
            _ => (self.new.root, self.new.level) = (None, 0),
        }
        self.phase = Phase::Drops;
        Ok(())
    }

    /// Frees a dropped subtree, node by node.
    fn drop_one(&mut self, pages: &PageCache) -> Progress<()> {
        let Some(&(ptr, level)) = self.drops.last() else {
            self.phase = Phase::Done;
            return Ok(());
        };
        let node = if level > 0 { Some(self.load(pages, ptr, level)?) } else { None };
        self.drops.pop();
        self.free(ptr, level);
        if let Some(node) = node {
            self.drops.extend((0..node.count()).map(|i| (node.child(i), level - 1)));
        }
        Ok(())
    }

    fn load(&mut self, pages: &PageCache, ptr: PagePtr, level: u8) -> Progress<Arc<Node>> {
        let node = match self.provided.get(&ptr.block) {
            Some((crc, node)) if *crc == ptr.crc => node.clone(),
            _ => pages.get(ptr).ok_or_else(|| Stop::Need(vec![ptr]))?,
        };
        if node.level() != level || node.block() != ptr.block {
            let what = "a tree node stands where another belongs";
            return Err(Stop::Damaged { block: ptr.block, what });
        }
        self.provided.remove(&ptr.block);
        Ok(node)
    }
}

fn has_rows(changes: &Memtable, from: &[u8], to: Option<&[u8]>) -> bool {
    let first = changes.rows_from(from).next();
    first.is_some_and(|changed| to.is_none_or(|to| changed.key.as_slice() < to))
}
