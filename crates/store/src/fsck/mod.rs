//! Checking a whole store, which may be damaged.
//!
//! Everything is read and nothing written: superblocks, log, tree, and every block of every object. It takes a
//! bounded amount of memory beside what a mount does: 0.8 GiB for objects ([`parts`]), 32 MiB for each TiB of the
//! device and 0.5 GiB for each TiB that clones share, and 16 bytes for each node of the tree.
//! What is found goes into a [`FsckReport`]; damage in one place does not keep the rest from being
//! checked, but what cannot be judged then is said so once and not guessed.

mod blobs;
mod compare;
mod extents;
mod log;
mod parts;
mod recount;
mod report;
mod rows;
mod walk;

pub(crate) use recount::Recounted;
pub use report::{Finding, FsckReport, MAX_FINDINGS, Severity, SpaceReport};

use crate::config::{Config, Devices, Expect, HEAD_BLOCKS, TAIL_BLOCKS};
use crate::keys::{self, Key, Parsed};
use crate::memtable::{Change, Found};
use crate::mount::label::{Search, check_label};
use crate::mount::replay::Replay;
use crate::mount::supers::{Supers, check_identity, device_blocks, tail_places};
use crate::mount::verify::{self, VERIFIES_IN_FLIGHT, Verify};
use crate::mount::walk::{Visit, Walk, is_possible_root};
use crate::mount::{begin_replay, fresh_allocator};
use crate::rows::Shard;
use crate::store::inflight::{DATA, Io};
use crate::superblock::{NotSuper, PLACES, Superblock, place, places_of};
use crate::tree::node::Node;
use crate::wal::scan::{LostBlock, Scan};
use blobs::BlobChecks;
use bytes::Bytes;
use extents::queue_extents;
use io::Effects;
use io::disk::{DevId, DiskDone, DiskError};
use rows::{Extent, RowCheck};
use std::collections::VecDeque;
use types::ObjectKey;
use walk::{Next, OrderedWalk};

/// Reads of object data in flight.
const DATA_IN_FLIGHT: usize = 16;
/// Extents that wait to be read before the walk pauses.
const EXTENTS_WAITING: usize = 16 * 1024;
const LABEL: &str = "the label of the log's device";
/// Tree nodes being read at a time while looking for the bitmaps.
const NODES_IN_FLIGHT: usize = 64;

#[derive(Debug)]
enum Tag {
    Super(usize),
    Label,
    LogSearch,
    Node(Visit),
    Log { at: u64, blocks: u64 },
    Check(Vec<Extent>),
    Page { block: u64 },
    Verify(verify::Part),
}

enum Phase {
    Supers { left: usize },
    Label,
    Bitmaps,
    Log,
    Verify,
    Rows,
}

/// A check in progress.
pub struct Fsck {
    devices: Devices,
    /// Whether the bytes of objects are read too.
    data: bool,
    config: Config,
    io: Io<Tag>,
    phase: Phase,
    supers: Supers,
    sb: Option<Superblock>,
    /// Whose the log is, where its label does not say it.
    search: Option<Search>,
    bitmaps: Walk,
    scan: Option<Scan>,
    /// Blocks of the log that could not be read.
    unreadable: Vec<LostBlock>,
    replay: Option<Replay>,
    verify: Verify,
    walk: OrderedWalk,
    /// A leaf, and how many of its rows have been checked.
    leaf: Option<(Node, usize)>,
    rows: RowCheck,
    /// Rows of the log below this key have been checked.
    pos: Key,
    queue: VecDeque<Extent>,
    reading: usize,
    /// All rows have been checked.
    walked: bool,
    /// Parts of the tree or log are missing: what should be there is not known.
    incomplete: bool,
    /// Compressed extents that are being read.
    blobs: BlobChecks,
    report: FsckReport,
}

impl Fsck {
    /// Prepares a check; `data` says whether the bytes of all objects are compared with their
    /// checksums too.
    pub fn new(devices: Devices, data: bool, config: &Config) -> Fsck {
        Fsck {
            devices,
            data,
            config: config.clone(),
            io: Io::new(1),
            phase: Phase::Supers { left: PLACES },
            supers: Supers::default(),
            sb: None,
            search: None,
            bitmaps: Walk::default(),
            scan: None,
            unreadable: Vec::new(),
            replay: None,
            verify: Verify::default(),
            walk: OrderedWalk::default(),
            leaf: None,
            rows: RowCheck::new(config.account_of),
            pos: Key::new(),
            queue: VecDeque::new(),
            reading: 0,
            walked: false,
            incomplete: false,
            blobs: BlobChecks::default(),
            report: FsckReport::default(),
        }
    }

    /// Keeps no more than so many objects in mind at a time: the fewer, the more often all their records are read.
    #[must_use]
    pub fn objects_at_a_time(mut self, objects: usize) -> Self {
        self.rows.part.set_most(objects);
        self
    }

    /// Also lists the objects, for [`Fsck::take_objects`].
    #[must_use]
    pub fn listing(mut self) -> Self {
        self.rows.found = Some(Vec::new());
        self
    }

    /// The objects found since it was last asked, with their bytes, in order. Those whose record is
    /// damaged are not among them.
    pub fn take_objects(&mut self) -> Vec<(ObjectKey, u64)> {
        self.rows.found.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Issues the first operations. `Some` when there is nothing to be read.
    pub fn start(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        let blocks = device_blocks(self.devices.data.bytes);
        if blocks < HEAD_BLOCKS + TAIL_BLOCKS {
            self.report.damage(&self.devices.data.path, "it is too small to hold a store");
            return Some(std::mem::take(&mut self.report));
        }
        for (index, block) in [(0, 0), (1, 1)].into_iter().chain(tail_places(blocks)) {
            self.io.read(fx, DATA, block, 1, Tag::Super(index));
        }
        None
    }

    /// Takes in the end of an operation. `Some` is the outcome.
    pub fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<FsckReport> {
        match self.io.done(done.token)? {
            Tag::Super(index) => self.super_read(index, done.result, fx),
            Tag::Label => self.label_read(done.result, fx),
            Tag::LogSearch => self.log_searched(done.result, fx),
            Tag::Node(visit) => self.bitmap_node(visit, done.result, fx),
            Tag::Log { at, blocks } => self.log_read(at, blocks, done.result, fx),
            Tag::Verify(part) => self.verified(part, done.result, fx),
            Tag::Page { block } => {
                self.walk.loaded(block, done.result.map_err(|e| e.to_string()));
                self.step_rows(fx)
            }
            Tag::Check(extents) => {
                self.reading -= 1;
                self.check_extents(extents, done.result);
                self.step_rows(fx)
            }
        }
    }

    /// Blocks that wait to be read: bounded, whatever the store.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn finish(&mut self) -> Option<FsckReport> {
        Some(std::mem::take(&mut self.report))
    }

    fn super_read(
        &mut self,
        index: usize,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        match result {
            Ok(bytes) => self.supers.put(index, &bytes),
            Err(_) => self.supers.unreadable(index),
        }
        let Phase::Supers { left } = &mut self.phase else { return None };
        *left -= 1;
        if *left > 0 {
            return None;
        }
        let newest = match self.supers.newest(&self.devices.data.path) {
            Ok(newest) => newest.clone(),
            Err(why) => {
                self.report.damage(&self.devices.data.path, why.to_string());
                return self.finish();
            }
        };
        if newest.total_blocks < device_blocks(self.devices.data.bytes) && self.sb.is_none() {
            self.phase = Phase::Supers { left: 2 };
            for (index, block) in tail_places(newest.total_blocks) {
                self.io.read(fx, DATA, block, 1, Tag::Super(index));
            }
            self.sb = Some(newest);
            return None;
        }
        self.note_supers(&newest);
        self.report.identity = Some(newest.identity);
        if let Err(why) = check_identity(&newest, &self.devices, &Expect::default()) {
            self.report.damage(&self.devices.data.path, why.to_string());
            return self.finish();
        }
        self.sb = Some(newest);
        if self.devices.wal.is_some() {
            self.phase = Phase::Label;
            self.io.read(fx, DevId(1), 0, 1, Tag::Label);
            return None;
        }
        self.begin_bitmaps(fx)
    }

    fn note_supers(&mut self, newest: &Superblock) {
        for index in 0..PLACES {
            let at = format!("superblock at block {}", place(index, newest.total_blocks));
            let current = places_of(newest.generation).contains(&index);
            match self.supers.copy(index) {
                Ok(sb) if current && sb != newest => {
                    let what = format!(
                        "an old copy, of generation {}; the other one is of {}: a write was lost, \
                         or the last one was cut short",
                        sb.generation, newest.generation
                    );
                    self.report.note(at, what);
                }
                Ok(_) => {}
                Err(NotSuper::NoMagic) if newest.generation < 2 && !current => {}
                Err(why) => {
                    let what = match why {
                        NotSuper::NoMagic => "it is gone",
                        NotSuper::Newer { .. } => "it is another store's, of a newer format",
                        NotSuper::Damaged(what) => what,
                    };
                    let what = format!("{what}; another copy is good, a mount will repair it");
                    self.report.note(at, what);
                }
            }
        }
    }

    fn label_read(
        &mut self,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        let sb = self.sb.as_ref().expect("the superblock was chosen before");
        match check_label(result, sb, &self.devices) {
            Ok(None) => {}
            Ok(Some(bad)) => {
                self.search = Some(Search::new(bad, sb));
                return self.search_log(fx);
            }
            Err(why) => self.report.damage(LABEL, why.to_string()),
        }
        self.begin_bitmaps(fx)
    }

    fn search_log(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        if let (Some(search), Some(sb)) = (&self.search, &self.sb) {
            search.read(sb, Tag::LogSearch, &mut self.io, fx);
        }
        None
    }

    fn log_searched(
        &mut self,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        let (Some(search), Some(sb)) = (&mut self.search, &self.sb) else { return None };
        match search.looked(result, sb, &self.devices) {
            None => return self.search_log(fx),
            Some(Ok(())) => {
                let what = format!("{}; a mount will repair it", search.label().what());
                self.report.note(LABEL, what);
            }
            Some(Err(why)) => self.report.damage(LABEL, why.to_string()),
        }
        self.begin_bitmaps(fx)
    }

    /// Looks for the bitmaps, which the log is replayed over.
    fn begin_bitmaps(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        let (root, level, end) = self.root();
        if !is_possible_root(root, level, end) {
            self.report.damage("the superblock", "its root is impossible");
            self.report.lost_all_names();
            self.incomplete = true;
        } else {
            self.bitmaps = Walk::new(root, level);
        }
        self.phase = Phase::Bitmaps;
        self.step_bitmaps(fx)
    }

    fn root(&self) -> (Option<crate::tree::node::PagePtr>, u8, u64) {
        let sb = self.sb.as_ref().expect("the superblock was chosen before");
        (sb.root, sb.root_level, sb.total_blocks - TAIL_BLOCKS)
    }

    fn step_bitmaps(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        while self.io.in_flight() < NODES_IN_FLIGHT {
            let Some(visit) = self.bitmaps.next() else { break };
            let blocks = u64::from(visit.ptr.blocks);
            self.io.read(fx, DATA, visit.ptr.block, blocks, Tag::Node(visit));
        }
        if self.io.in_flight() == 0 { self.begin_log(fx) } else { None }
    }

    fn bitmap_node(
        &mut self,
        visit: Visit,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        let end = self.root().2;
        // What is wrong with the node is said when the rows are read.
        let good = result.is_ok_and(|bytes| self.bitmaps.visited(visit, bytes, end).is_ok());
        self.incomplete |= !good;
        self.step_bitmaps(fx)
    }

    fn begin_log(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        let sb = self.sb.as_ref().expect("the superblock was chosen before");
        let mut alloc = fresh_allocator(sb);
        for (region, bits) in std::mem::take(&mut self.bitmaps.bitmaps) {
            if !alloc.load_region(region, &bits) {
                let what = "it lies behind the end of the device";
                self.report.damage(format!("bitmap of region {region}"), what);
            }
        }
        let (scan, mut replay) = begin_replay(sb, alloc, self.config.wal_cache_bytes);
        for (account, sums) in std::mem::take(&mut self.bitmaps.accounts) {
            replay.accounts.load(account, sums);
        }
        (self.scan, self.replay) = (Some(scan), Some(replay));
        self.phase = Phase::Log;
        self.step_log(fx)
    }

    /// Data of the last big writes: what a mount would find.
    fn begin_verify(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        self.scan = None;
        self.verify = self.replay.as_ref().map(Verify::new).unwrap_or_default();
        self.phase = Phase::Verify;
        self.step_verify(fx)
    }

    fn step_verify(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        while self.io.in_flight() < VERIFIES_IN_FLIGHT {
            let Some(part) = self.verify.next() else { break };
            self.io.read(fx, DATA, part.start, part.blocks, Tag::Verify(part));
        }
        if self.io.in_flight() == 0 { self.begin_rows(fx) } else { None }
    }

    fn verified(
        &mut self,
        part: verify::Part,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Option<FsckReport> {
        if let Ok(bytes) = result {
            self.verify.read(part, &bytes);
        }
        self.step_verify(fx)
    }

    fn begin_rows(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        let missing = std::mem::take(&mut self.verify).missing();
        if let Some(replay) = &mut self.replay
            && let Err((seq, what)) = replay.finish(&missing)
        {
            self.log_damaged(format!("log batch {seq}"), what);
        }
        self.judge_unreadable();
        self.rows.set_blocks(self.root().2);
        self.phase = Phase::Rows;
        self.begin_keys();
        self.step_rows(fx)
    }

    /// Begins with the keys that come now.
    fn begin_keys(&mut self) {
        let (root, level, end) = self.root();
        let root = root.filter(|_| is_possible_root(root, level, end));
        let keys = self.rows.part.keys();
        self.pos = keys.0.clone();
        self.walk.go_through((root, level), end, keys, self.rows.part.is_repeated());
    }

    /// All rows of the keys that came have been read.
    fn end_keys(&mut self) {
        if !self.logged_rows(self.rows.part.keys().1.as_ref()) {
            return;
        }
        self.rows.leave(&mut self.report);
        self.walked = !self.rows.part.go_on(&mut self.report);
        if !self.walked {
            self.begin_keys();
        }
    }

    fn step_rows(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        loop {
            self.walk_rows();
            for ptr in self.walk.wants() {
                let what = Tag::Page { block: ptr.block };
                self.io.read(fx, DATA, ptr.block, u64::from(ptr.blocks), what);
            }
            self.read_extents(fx);
            if self.io.in_flight() > 0 {
                return None;
            }
            if self.walked && self.queue.is_empty() {
                return if self.rows.only_counts { self.finish() } else { self.compare() };
            }
        }
    }

    /// Takes in the rows that have been read.
    fn walk_rows(&mut self) {
        while !self.walked && !self.is_queue_full() {
            if let Some((node, from)) = self.leaf.take() {
                let next = self.leaf_rows(&node, from);
                self.leaf = (next < node.count()).then_some((node, next));
                continue;
            }
            match self.walk.next() {
                Next::Leaf(node) => self.leaf = Some((node, 0)),
                Next::Bad(item, why) => {
                    self.incomplete = true;
                    let what = format!("{why}; {}", self.lost_range(&item));
                    self.report.damage(format!("tree node at block {}", item.ptr.block), what);
                    self.note_lost_names(&item);
                }
                Next::Wait => return,
                Next::End => self.end_keys(),
            }
        }
    }

    fn is_queue_full(&self) -> bool {
        self.queue.len() >= EXTENTS_WAITING
    }

    /// The records of objects that a bad node may hold.
    fn note_lost_names(&mut self, item: &walk::Item) {
        let end = item.high.as_ref().filter(|high| **high < keys::objects_end());
        // The one of the smallest key has no name.
        let from =
            keys::object_of(&item.low).or(item.low.is_empty().then(|| ObjectKey::from_bytes(&[])));
        if let Some(from) = from {
            self.report.lost_names((from, end.and_then(|key| keys::object_of(key))));
        }
    }

    /// What the loss of a node means.
    fn lost_range(&self, item: &walk::Item) -> String {
        let name = |key: &Key| match keys::parse(key) {
            Ok(Parsed::Object(object)) => format!("the record of {object:?}"),
            Ok(Parsed::Shard { id, .. } | Parsed::Attr { id, .. } | Parsed::Omap { id, .. }) => {
                format!("the contents of object number {id}")
            }
            _ => format!("key {:02x?}", &key[..key.len().min(24)]),
        };
        let high = item.high.as_ref().map_or_else(|| "the end".into(), name);
        format!("everything from {} to {high} is lost", name(&item.low))
    }

    /// Checks the rows of a leaf from one on, with those of the log between them. Gives the one to go on with: when
    /// enough waits to be read, that is not behind the last.
    fn leaf_rows(&mut self, node: &Node, from: usize) -> usize {
        let end = self.root().2;
        for i in from..node.count() {
            let key = node.key(i);
            if !self.walk.wants_key(&key) {
                continue;
            }
            if self.is_queue_full() || !self.logged_rows(Some(&key)) {
                return i;
            }
            let row = match self.replay.as_ref().map(|r| r.changes.get(&key)) {
                None | Some(Found::Below) => Ok(node.value(i)),
                Some(Found::Patched { patch, .. }) => Shard::patched(node.value(i), &patch),
                Some(_) => continue,
            };
            match row {
                Ok(row) => self.rows.row(&key, &row, &mut self.report),
                Err(why) => self.rows.bad_row(&key, why.0, &mut self.report),
            }
            queue_extents(&mut self.queue, &mut self.rows, self.data, end);
        }
        node.count()
    }

    /// Checks the rows of the log up to a key, with it. False: enough waits to be read before the next one.
    fn logged_rows(&mut self, to: Option<&Key>) -> bool {
        let end = self.root().2;
        let Some(replay) = &self.replay else { return true };
        if to.is_some_and(|to| *to < self.pos) {
            return true;
        }
        for changed in replay.changes.rows_from(&self.pos) {
            let key = changed.key.as_ref();
            if to.is_some_and(|to| key > to) {
                break;
            }
            if self.queue.len() >= EXTENTS_WAITING {
                self.pos = Key::from_slice(key);
                return false;
            }
            match changed.change {
                Change::Put(value) => {
                    self.rows.row(key, value, &mut self.report);
                    queue_extents(&mut self.queue, &mut self.rows, self.data, end);
                }
                // Of a row of the tree: that comes with its leaf, if that can be read.
                Change::Patch(_) if to == Some(key) => {}
                Change::Patch(_) if self.walk.is_lost(key) => {}
                Change::Patch(_) => {
                    let why = "the log changes a row that is not there";
                    self.rows.bad_row(key, why, &mut self.report);
                }
                Change::Delete => {}
            }
        }
        if let Some(to) = to {
            self.pos = keys::after(to);
        }
        true
    }
}
