//! Making a new tree out of an old one and a memtable of changes.
//!
//! One walk from left to right: nodes whose keys no change touches are taken over by pointer, the
//! others are rewritten. The walk keeps one [`Frame`] per level, collecting the children of the new
//! nodes; a level's new nodes are written when the old node's key range is behind the walk. A node
//! that got too small takes in its right neighbour. Subtrees that a deleted range covers are not
//! read, only their inner nodes, to learn which blocks become free.
//!
//! The walk does no I/O: [`Apply::step`] says which nodes it needs, and leaves new nodes in
//! [`Apply::written`]. It works in slices, and neither the old tree nor the memtable may change
//! meanwhile (the memtable is frozen).

use super::Tree;
use super::cache::PageCache;
use super::filter::Filter;
use super::node::{Entry, Node, NodeSize, PagePtr, Payload, build, separator};
use crate::keys::{self, Key};
use crate::memtable::{Change, Changed, Memtable};
use crate::rows::Shard;
use io::BLOCK_BYTES;
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

/// A leaf being merged with the changes of its range.
struct LeafJob {
    old: Option<Arc<Node>>,
    /// Where the first old leaf is, and what is known of it.
    place: Option<(PagePtr, Filter)>,
    at: usize,
    /// Something is different from that leaf.
    changed: bool,
    /// The smallest key that may come here: the separator of the first new leaf.
    lower: Key,
    upper: Option<Key>,
    /// Whether deleted ranges touch the old leaf.
    deletes: bool,
    /// A new key came behind all old ones.
    appended: bool,
    /// A new key came before an old one.
    inserted: bool,
    pending: Vec<Entry>,
    pending_bytes: usize,
    /// Last key of the new leaf before.
    last: Option<Key>,
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
/// From this on a leaf being merged gives up its first part.
const STREAM_BYTES: usize = 4 * BLOCK_BYTES;
/// Leaves to be read together for the walk.
const READ_AHEAD: usize = 64;
/// Children an inner node has at least, also when its keys are too long for one block.
const MIN_CHILDREN: usize = 2;

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
            Phase::Walk if self.job.is_some() => self.run_leaf(changes, pages, space, budget),
            Phase::Walk => self.walk(changes, pages, space),
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
    ) -> Progress<()> {
        let Some(frame) = self.frames.last() else { return self.grow_root(space) };
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
        let small = !frame.out.is_empty() && NodeSize::of(&frame.out).bytes() < MERGE_BYTES;
        if small && let Some((node, lower, upper)) = self.take_neighbour(pages)? {
            let frame = self.frames.last_mut().expect("the walk is in a node");
            (frame.node, frame.next, frame.lower, frame.upper) = (node, 0, lower, upper);
            return Ok(());
        }
        let frame = self.frames.last_mut().expect("the walk is in a node");
        let level = frame.node.level();
        let out = std::mem::take(&mut frame.out);
        if self.frames.len() == 1 && out.len() == 1 {
            // A root with one child is not needed.
            self.frames.pop();
            (self.top, self.top_level) = (out, level - 1);
            return Ok(());
        }
        let mut nodes = Vec::new();
        for entries in split(out, MIN_CHILDREN, false) {
            let ptr = self.write(level, &entries, space)?;
            let (first, _) = entries.into_iter().next().expect("a node has entries");
            nodes.push((first, Payload::Child(ptr, Filter::default())));
        }
        self.frames.pop();
        match self.frames.last_mut() {
            Some(parent) => parent.out.append(&mut nodes),
            None => (self.top, self.top_level) = (nodes, level),
        }
        Ok(())
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
        self.new.blocks += u64::from(ptr.blocks);
        self.new.leaves += 1;
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
        let blocks = NodeSize::of(entries).blocks();
        let block = space.alloc_page(blocks).ok_or(Stop::NoSpace)?;
        let (ptr, node) = build(level, entries, block, self.generation);
        self.new.blocks += u64::from(blocks);
        *self.new.count_of(level) += 1;
        self.written.push((ptr, Arc::new(node)));
        Ok(ptr)
    }

    fn free(&mut self, ptr: PagePtr, level: u8) {
        self.new.blocks -= u64::from(ptr.blocks);
        *self.new.count_of(level) -= 1;
        self.freed_blocks += u64::from(ptr.blocks);
        self.freed.push(ptr);
    }

    /// The walk is over: builds levels until one node is left.
    fn grow_root(&mut self, space: &mut dyn PageSpace) -> Progress<()> {
        let mut top = std::mem::take(&mut self.top);
        while top.len() > 1 {
            let level = self.top_level + 1;
            let mut nodes = Vec::new();
            for entries in split(top, MIN_CHILDREN, false) {
                let ptr = self.write(level, &entries, space)?;
                let (first, _) = entries.into_iter().next().expect("a node has entries");
                nodes.push((first, Payload::Child(ptr, Filter::default())));
            }
            (top, self.top_level) = (nodes, level);
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

impl Tree {
    fn count_of(&mut self, level: u8) -> &mut u64 {
        if level == 0 { &mut self.leaves } else { &mut self.inner }
    }
}

impl LeafJob {
    fn new(
        old: Option<(PagePtr, Filter, Arc<Node>)>,
        lower: Key,
        upper: Option<Key>,
        changes: &Memtable,
    ) -> Self {
        let deletes = changes.deletes_in(&lower, upper.as_deref());
        let (place, old) = old.map(|(ptr, filter, node)| ((ptr, filter), node)).unzip();
        LeafJob {
            old,
            place,
            at: 0,
            changed: false,
            lower,
            upper,
            deletes,
            appended: false,
            inserted: false,
            pending: Vec::new(),
            pending_bytes: 0,
            last: None,
        }
    }

    /// Takes in the next leaf.
    fn go_on(&mut self, node: Arc<Node>, upper: Option<Key>, changes: &Memtable) {
        self.deletes = changes.deletes_in(&node.key(0), upper.as_deref());
        (self.old, self.at, self.upper) = (Some(node), 0, upper);
        (self.changed, self.inserted) = (true, true);
    }

    /// Merges; true when the end of the leaf's range is reached. An error is what cannot be.
    fn merge(
        &mut self,
        changes: &Memtable,
        pos: &mut Option<Key>,
        budget: &mut usize,
    ) -> Result<bool, &'static str> {
        let Some(from) = pos.clone() else {
            return Ok(self.take_old_until(None, changes, budget));
        };
        let mut rows = changes.rows_from(&from);
        loop {
            let next = rows.next().filter(|c| self.upper.as_ref().is_none_or(|u| *c.key < *u));
            let Some(Changed { key, change, .. }) = next else {
                return Ok(self.take_old_until(None, changes, budget));
            };
            if !self.take_old_until(Some(&key), changes, budget) {
                return Ok(false);
            }
            let replaced = self.old_key().is_some_and(|old| old == *key);
            let value = match change {
                Change::Put(value) => Some(value.clone()),
                Change::Delete => None,
                Change::Patch(patch) => {
                    let old = self.old.as_ref().filter(|_| replaced).map(|n| n.value(self.at));
                    let old = old.ok_or("a row that was patched is not there")?;
                    Some(Shard::patched(old, &patch).map_err(|why| why.0)?)
                }
            };
            self.at += usize::from(replaced);
            self.changed |= replaced || value.is_some();
            if let Some(value) = value {
                if !replaced {
                    let inside = self.old_key().is_some();
                    self.inserted |= inside;
                    self.appended |= !inside;
                }
                self.push((Key::clone(&key), Payload::Value(value)));
            }
            *pos = Some(keys::after(&key));
            *budget = budget.saturating_sub(1);
            if *budget == 0 || self.is_long() {
                return Ok(false);
            }
        }
    }

    /// Enough for a first new leaf. An unchanged leaf gives nothing away: it may yet stay.
    fn is_long(&self) -> bool {
        self.changed && self.pending_bytes >= STREAM_BYTES
    }

    fn old_key(&self) -> Option<Key> {
        let node = self.old.as_ref()?;
        (self.at < node.count()).then(|| node.key(self.at))
    }

    /// Takes over the old entries below `end` that are not deleted; true when all are.
    fn take_old_until(
        &mut self,
        end: Option<&Key>,
        changes: &Memtable,
        budget: &mut usize,
    ) -> bool {
        let Some(node) = self.old.clone() else { return true };
        while self.at < node.count() {
            let key = node.key(self.at);
            if end.is_some_and(|end| key >= *end) {
                return true;
            }
            if self.is_long() {
                return false;
            }
            if self.deletes && changes.covering(&key).is_some() {
                self.changed = true;
            } else {
                self.push((key, Payload::Value(node.value(self.at))));
            }
            self.at += 1;
            *budget = budget.saturating_sub(1);
        }
        true
    }

    fn push(&mut self, entry: Entry) {
        self.pending_bytes += entry_bytes(&entry);
        self.pending.push(entry);
    }
}

fn has_rows(changes: &Memtable, from: &[u8], to: Option<&[u8]>) -> bool {
    let first = changes.rows_from(from).next();
    first.is_some_and(|changed| to.is_none_or(|to| changed.key.as_slice() < to))
}

fn entry_bytes((key, payload): &Entry) -> usize {
    key.len() + payload.len() + 4
}

/// How many of the first entries fill one node.
fn dense_end(entries: &[Entry]) -> usize {
    fill_end(entries, 1, BLOCK_BYTES)
}

/// How many of the first entries make a node of up to `target` bytes, and of one block unless
/// there are fewer than `min`.
fn fill_end(entries: &[Entry], min: usize, target: usize) -> usize {
    let mut size = NodeSize::default();
    for entry in entries {
        let next = size.with(entry);
        let full = next.bytes() > BLOCK_BYTES || size.bytes() >= target;
        if full && size.count() >= min {
            break;
        }
        size = next;
    }
    size.count()
}

/// Cuts entries into nodes: evenly, or each but the last full (`dense`).
fn split(entries: Vec<Entry>, min: usize, dense: bool) -> Vec<Vec<Entry>> {
    let target = if dense { BLOCK_BYTES } else { even_target(&entries, min) };
    let mut out = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let tail = rest.split_off(fill_end(&rest, min, target));
        out.push(std::mem::replace(&mut rest, tail));
    }
    out
}

/// The size of each of the fewest nodes that hold `entries`.
fn even_target(entries: &[Entry], min: usize) -> usize {
    let (mut rest, mut nodes) = (entries, 0usize);
    while !rest.is_empty() {
        let n = fill_end(rest, min, BLOCK_BYTES);
        rest = rest.get(n..).unwrap_or_default();
        nodes += 1;
    }
    let bytes: usize = entries.iter().map(entry_bytes).sum();
    if nodes < 2 { BLOCK_BYTES } else { bytes / nodes }
}
