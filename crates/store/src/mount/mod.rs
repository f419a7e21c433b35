//! Mounting: from the bytes of a device to a [`Store`].
//!
//! 1. Flush the devices: what an earlier process left in their caches becomes as durable as what is
//!    read from them looks.
//! 2. Read all copies of the superblock; the newest good one counts. Look whether the log's device is its own ([`label`]).
//! 3. Walk the inner nodes of the tree: its blocks, and the bitmaps.
//! 4. Read the log and replay it ([`replay`]); verify the data of the last big writes. Count what accounts have,
//!    where that is not known ([`recount`]).
//! 5. Repair bad copies of the superblock and a bad label of the log's device, and see to it that all copies say
//!    what this program may write ([`repair`]); then write a batch that makes the decisions permanent.
//!
//! Until step 5 nothing is written, so a failed mount changes nothing. A mount for reading only
//! ([`MountReadOnly`]) leaves out the first and the last step, and passes over what is damaged.

pub(crate) mod label;
mod read_only;
mod recount;
mod repair;
pub(crate) mod replay;
pub(crate) mod supers;
pub(crate) mod verify;
pub(crate) mod walk;

pub use read_only::{MAX_PROBLEMS, MountReadOnly, ReadStore};

use crate::alloc::Allocator;
use crate::config::{Config, Devices, Expect, HEAD_BLOCKS, TAIL_BLOCKS};
use crate::error::MountError;
use crate::fsck::Fsck;
use crate::gaps::Gaps;
use crate::plan::Rows;
use crate::store::inflight::{DATA, Io};
use crate::store::{Parts, Store};
use crate::superblock::{PLACES, Superblock};
use crate::tree::cache::PageCache;
use crate::wal::Wal;
use crate::wal::format::BadRecords;
use crate::wal::scan::{Scan, Scanned, Witness};
use bytes::Bytes;
use io::Effects;
use io::disk::{DevId, DiskDone, DiskError, WriteMode};
use label::{Search, check_label};
use repair::Repair;
use replay::Replay;
use supers::{Supers, check_identity, device_blocks, first_needed, tail_places};
use verify::{VERIFIES_IN_FLIGHT, Verify};
use walk::{Visit, Walk, is_possible_root};

/// Tree nodes being read at a time.
const NODES_IN_FLIGHT: usize = 64;

#[derive(Debug)]
enum Tag {
    Flush(DevId),
    Super(usize),
    Label,
    LogSearch,
    Node(Visit),
    Log { at: u64, blocks: u64 },
    Verify(verify::Part),
    Repair(Repair),
    Write { seq: u64 },
}

enum Phase {
    Flush,
    Supers { left: usize },
    Label,
    Walk,
    Log,
    Verify,
    Repair,
    Write { left: usize },
    Over,
}

/// A mount in progress.
pub struct Mount {
    config: Config,
    devices: Devices,
    expect: Expect,
    io: Io<Tag>,
    phase: Phase,
    supers: Supers,
    sb: Option<Superblock>,
    /// The label of the log's device is bad.
    bad_label: Option<Search>,
    pages: PageCache,
    walk: Walk,
    scan: Option<Scan>,
    replay: Option<Replay>,
    verify: Verify,
    /// Goes on after the verifying, if accounts are counted anew.
    recount: Option<Box<Fsck>>,
    stale: Option<u64>,
    news: bool,
    warnings: Vec<String>,
    /// What was passed over, when the store is only to be read.
    problems: Option<Vec<String>>,
}

impl Mount {
    /// Prepares to mount the store on `devices`, if it is the expected one.
    pub fn new(devices: Devices, expect: Expect, config: Config) -> Mount {
        let pages = PageCache::new(config.page_cache_bytes);
        Mount {
            config,
            devices,
            expect,
            io: Io::new(1),
            phase: Phase::Flush,
            supers: Supers::default(),
            sb: None,
            bad_label: None,
            pages,
            walk: Walk::default(),
            scan: None,
            replay: None,
            verify: Verify::default(),
            recount: None,
            stale: None,
            news: false,
            warnings: Vec::new(),
            problems: None,
        }
    }

    /// Issues the first operations.
    pub fn start(&mut self, fx: &mut Effects) {
        let log = self.devices.wal.is_some().then_some(DevId(1));
        for dev in std::iter::once(DATA).chain(log) {
            self.io.flush(fx, dev, Tag::Flush(dev));
        }
    }

    /// Takes in the end of an operation. `Some` is the outcome; what still is in flight then is of
    /// no interest.
    pub fn handle(
        &mut self,
        done: DiskDone,
        fx: &mut Effects,
    ) -> Option<Result<Store, MountError>> {
        let outcome = if self.recount.is_some() {
            self.recount_read(done, fx).transpose()
        } else {
            let tag = self.io.done(done.token)?;
            if matches!(self.phase, Phase::Over) {
                return None;
            }
            self.step(tag, done.result, fx).transpose()
        };
        if outcome.is_some() {
            self.phase = Phase::Over;
        }
        outcome
    }

    fn step(
        &mut self,
        tag: Tag,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<Option<Store>, MountError> {
        match tag {
            Tag::Flush(dev) => {
                result.map_err(|error| self.failed(dev, "flushing".into(), error))?;
                if self.io.in_flight() == 0 {
                    self.read_supers(fx)?;
                }
            }
            Tag::Super(index) => {
                match result {
                    Ok(bytes) => self.supers.put(index, &bytes),
                    Err(_) => self.supers.unreadable(index),
                }
                self.super_read(fx)?;
            }
            Tag::Label => self.label_read(result, fx)?,
            Tag::LogSearch => self.log_searched(result, fx)?,
            Tag::Node(visit) => {
                match result {
                    Ok(bytes) => self.node_read(visit, bytes)?,
                    Err(error) => self.pass_over(self.cannot_read(DATA, visit.ptr.block, error))?,
                }
                self.step_walk(fx)?;
            }
            Tag::Log { at, blocks } => self.log_read(at, blocks, result, fx)?,
            Tag::Verify(part) => {
                if let Ok(bytes) = result {
                    self.verify.read(part, &bytes);
                }
                self.step_verify(fx)?;
            }
            Tag::Repair(what) => self.repair_written(what, result, fx)?,
            Tag::Write { seq } => self.written(seq, result)?,
        }
        self.finish_if_written()
    }

    fn sb(&self) -> &Superblock {
        self.sb.as_ref().expect("the superblock was chosen before")
    }

    fn path(&self) -> String {
        self.devices.data.path.clone()
    }

    fn path_of(&self, dev: DevId) -> String {
        let log = self.devices.wal.as_ref().filter(|_| dev != DATA);
        log.unwrap_or(&self.devices.data).path.clone()
    }

    fn log_dev(&self) -> DevId {
        DevId(self.sb().wal.dev)
    }

    fn failed(&self, dev: DevId, what: String, error: DiskError) -> MountError {
        MountError::Io { path: self.path_of(dev), what, error }
    }

    fn cannot_read(&self, dev: DevId, block: u64, error: DiskError) -> MountError {
        self.failed(dev, format!("reading block {block}"), error)
    }

    fn damaged(&self, place: impl Into<String>, what: impl Into<String>) -> MountError {
        MountError::Damaged { path: self.path(), place: place.into(), what: what.into() }
    }

    fn read_supers(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let blocks = device_blocks(self.devices.data.bytes);
        if blocks < HEAD_BLOCKS + TAIL_BLOCKS {
            return Err(MountError::NoStore { path: self.path() });
        }
        let front = [(0, 0), (1, 1)];
        for (index, block) in front.into_iter().chain(tail_places(blocks)) {
            self.io.read(fx, DATA, block, 1, Tag::Super(index));
        }
        self.phase = Phase::Supers { left: PLACES };
        Ok(())
    }

    fn super_read(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let Phase::Supers { left } = &mut self.phase else { return Ok(()) };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        let newest = self.supers.newest(&self.devices.data.path)?.clone();
        let blocks = device_blocks(self.devices.data.bytes);
        if newest.total_blocks < blocks && self.sb.is_none() {
            // The device grew: the copies at the end of the store are further in.
            self.phase = Phase::Supers { left: 2 };
            for (index, block) in tail_places(newest.total_blocks) {
                self.io.read(fx, DATA, block, 1, Tag::Super(index));
            }
            self.sb = Some(newest);
            return Ok(());
        }
        check_identity(&newest, &self.devices, &self.expect)?;
        self.sb = Some(newest);
        if self.devices.wal.is_some() {
            self.phase = Phase::Label;
            self.io.read(fx, DevId(1), 0, 1, Tag::Label);
            return Ok(());
        }
        self.begin_walk(fx)
    }

    fn label_read(
        &mut self,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        let Some(bad) = check_label(result, self.sb(), &self.devices)? else {
            return self.begin_walk(fx);
        };
        self.bad_label = Some(Search::new(bad, self.sb()));
        self.search_log(fx);
        Ok(())
    }

    fn search_log(&mut self, fx: &mut Effects) {
        if let (Some(search), Some(sb)) = (&self.bad_label, &self.sb) {
            search.read(sb, Tag::LogSearch, &mut self.io, fx);
        }
    }

    fn log_searched(
        &mut self,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        let (Some(search), Some(sb)) = (&mut self.bad_label, &self.sb) else { return Ok(()) };
        match search.looked(result, sb, &self.devices) {
            Some(outcome) => outcome.and_then(|()| self.begin_walk(fx)),
            None => {
                self.search_log(fx);
                Ok(())
            }
        }
    }

    fn begin_walk(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let sb = self.sb();
        let (root, level) = (sb.root, sb.root_level);
        if is_possible_root(root, level, sb.total_blocks - TAIL_BLOCKS) {
            self.walk = Walk::new(root, level);
        } else {
            self.pass_over(self.damaged("the superblock", "its root is impossible"))?;
        }
        self.phase = Phase::Walk;
        self.step_walk(fx)
    }

    fn step_walk(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        while self.io.in_flight() < NODES_IN_FLIGHT {
            let Some(visit) = self.walk.next() else { break };
            let blocks = u64::from(visit.ptr.blocks);
            self.io.read(fx, DATA, visit.ptr.block, blocks, Tag::Node(visit));
        }
        if self.io.in_flight() == 0 {
            return self.begin_log(fx);
        }
        Ok(())
    }

    fn node_read(&mut self, visit: Visit, bytes: Bytes) -> Result<(), MountError> {
        let end = self.sb().total_blocks - TAIL_BLOCKS;
        match self.walk.visited(visit, bytes, end) {
            Ok(node) => self.pages.insert(visit.ptr, node),
            Err(bad) => {
                let place = format!("tree node at block {}", bad.block);
                return self.pass_over(self.damaged(place, bad.what));
            }
        }
        Ok(())
    }

    /// The allocator with what the tree says.
    fn load_allocator(&mut self) -> Result<Allocator, MountError> {
        let mut alloc = fresh_allocator(self.sb());
        for (region, bits) in std::mem::take(&mut self.walk.bitmaps) {
            if !alloc.load_region(region, &bits) {
                let place = format!("bitmap of region {region}");
                self.pass_over(self.damaged(place, "it lies behind the end of the device"))?;
            }
        }
        Ok(alloc)
    }

    fn begin_log(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let alloc = self.load_allocator()?;
        let budget = self.config.wal_cache_bytes;
        let (scan, mut replay) = begin_replay(self.sb(), alloc, budget);
        for (account, sums) in std::mem::take(&mut self.walk.accounts) {
            replay.accounts.load(account, sums);
        }
        (self.scan, self.replay) = (Some(scan), Some(replay));
        self.phase = Phase::Log;
        self.step_log(fx)
    }

    fn log_read(
        &mut self,
        at: u64,
        blocks: u64,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        let Some(scan) = &mut self.scan else {
            // The log is at its end: nothing needs what stands there.
            return self.step_verify(fx);
        };
        match result {
            Ok(bytes) => scan.loaded(at, bytes),
            Err(error) => scan.failed(at, blocks, error),
        }
        self.step_log(fx)
    }

    fn step_log(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        loop {
            let (Some(scan), Some(replay)) = (&mut self.scan, &mut self.replay) else {
                return Ok(());
            };
            match scan.next() {
                Scanned::Batch(batch) => {
                    if let Err((seq, what)) = replay.batch(*batch) {
                        self.pass_over(self.damaged(format!("log batch {seq}"), what))?;
                    }
                }
                Scanned::End { stale_life } => {
                    self.stale = stale_life;
                    return self.begin_verify(fx);
                }
                Scanned::Wait => break,
                cut_off => {
                    if let Some(why) = self.cut_off(&cut_off) {
                        self.pass_over(why)?;
                    }
                    return self.begin_verify(fx);
                }
            }
        }
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let place = self.sb.as_ref().map(|sb| sb.wal);
        while let (Some(read), Some(place)) = (scan.wants(), place) {
            let tag = Tag::Log { at: read.at, blocks: read.blocks };
            self.io.read(fx, DevId(place.dev), place.base + read.block, read.blocks, tag);
        }
        Ok(())
    }

    /// Why the log cannot be read to its end, if that is so.
    fn cut_off(&self, scanned: &Scanned) -> Option<MountError> {
        let path = self.path_of(self.log_dev());
        let damaged = |seq, block, what| {
            Some(self.damaged(format!("log batch {seq} at block {block} of {path}"), what))
        };
        match scanned {
            Scanned::Wait | Scanned::Batch(_) | Scanned::End { .. } => None,
            Scanned::Rot { seq, block, what } => {
                damaged(seq, block, format!("{what}, but it is known to have been durable"))
            }
            Scanned::Unreadable { block, error, .. } => {
                Some(self.cannot_read(self.log_dev(), *block, *error))
            }
            Scanned::Unknown { seq, why: BadRecords::Newer(kind), .. } => {
                Some(MountError::NewerLog { path, seq: *seq, kind: *kind })
            }
            Scanned::Unknown { seq, block, why: BadRecords::Malformed(what) } => {
                damaged(seq, block, format!("{what}, but its checksums are right"))
            }
        }
    }

    fn begin_verify(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        self.scan = None;
        self.phase = Phase::Verify;
        let Some(replay) = &self.replay else { return Ok(()) };
        self.news = replay.waiting() > 0;
        self.verify = Verify::new(replay);
        self.step_verify(fx)
    }

    fn step_verify(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        while self.io.in_flight() < VERIFIES_IN_FLIGHT {
            let Some(part) = self.verify.next() else { break };
            self.io.read(fx, DATA, part.start, part.blocks, Tag::Verify(part));
        }
        if self.io.in_flight() == 0 { self.begin_write(fx) } else { Ok(()) }
    }

    /// Decides what the last transactions come to, and begins to make that permanent.
    fn begin_write(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let missing = std::mem::take(&mut self.verify).missing();
        let Some(mut replay) = self.replay.take() else { return Ok(()) };
        if let Err((seq, what)) = replay.finish(&missing) {
            self.pass_over(self.damaged(format!("log batch {seq}"), what))?;
        }
        if self.problems.is_some() {
            self.replay = Some(replay);
            self.phase = Phase::Write { left: 0 };
            return Ok(());
        }
        self.check_space(&mut replay)?;
        self.replay = Some(replay);
        self.begin_recount(fx)
    }

    fn check_space(&self, replay: &mut Replay) -> Result<(), MountError> {
        if let Err(block) = replay.alloc.finish_load() {
            return Err(self.damaged(format!("block {block}"), "data stands in a fixed area"));
        }
        for ptr in &self.walk.pages {
            if !replay.alloc.adopt_page(ptr.block, ptr.blocks) {
                let place = format!("block {}", ptr.block);
                return Err(self.damaged(place, "two things stand in the same place"));
            }
        }
        Ok(())
    }

    /// Goes on in a life of its own, unless the last one says all that this one would.
    fn decide(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let Some(mut replay) = self.replay.take() else { return Ok(()) };
        let sb = self.sb().clone();
        let life = replay.life(&sb, self.stale, self.news);
        let same = life == replay.wal.life;
        replay.wal.begin_life(life);
        let mut left = 0;
        if same {
            replay.wal.set_recorded(replay.next_txn - 1);
        } else {
            left = self.write_decisions(&mut replay, &sb, fx)?;
        }
        self.replay = Some(replay);
        self.phase = Phase::Write { left };
        Ok(())
    }

    fn write_decisions(
        &mut self,
        replay: &mut Replay,
        sb: &Superblock,
        fx: &mut Effects,
    ) -> Result<usize, MountError> {
        let dropped: Vec<u64> = replay.dropped.iter().copied().collect();
        if !replay.wal.seal_dropped(&dropped) {
            return Err(self.damaged("the log", "it is full, no mount can be recorded in it"));
        }
        let issue = replay.wal.issue(replay.next_txn - 1, sb.generation);
        let issue = issue.expect("a closed batch can be written");
        let count = issue.writes.len();
        for (block, pieces) in issue.writes {
            let at = (DevId(sb.wal.dev), sb.wal.base + block);
            self.io.write(fx, at, pieces, WriteMode::Durable, Tag::Write { seq: issue.seq });
        }
        Ok(count)
    }

    fn written(&mut self, seq: u64, result: Result<Bytes, DiskError>) -> Result<(), MountError> {
        if let Err(error) = result {
            return Err(MountError::Log { path: self.path_of(self.log_dev()), error });
        }
        if let Some(replay) = &mut self.replay {
            replay.wal.written(seq);
        }
        if let Phase::Write { left } = &mut self.phase {
            *left -= 1;
        }
        Ok(())
    }

    fn finish_if_written(&mut self) -> Result<Option<Store>, MountError> {
        if !matches!(self.phase, Phase::Write { left: 0 }) {
            return Ok(None);
        }
        let (Some(sb), Some(replay)) = (self.sb.take(), self.replay.take()) else {
            return Ok(None);
        };
        let pages = std::mem::replace(&mut self.pages, PageCache::new(0));
        let rows = Rows {
            active: replay.changes,
            frozen: None,
            tree: self.walk.tree,
            pages,
            gaps: Gaps::default(),
        };
        Ok(Some(Store::assemble(Parts {
            config: self.config.clone(),
            devices: self.devices.clone(),
            sb,
            rows,
            wal: replay.wal,
            alloc: replay.alloc,
            totals: replay.totals,
            accounts: replay.accounts,
            next_id: replay.next_id,
            next_txn: replay.next_txn,
            next_token: self.io.next_token(),
        })))
    }
}

/// An allocator with the fixed areas taken.
pub(crate) fn fresh_allocator(sb: &Superblock) -> Allocator {
    let mut alloc = Allocator::new(sb.total_blocks);
    alloc.take(0, HEAD_BLOCKS);
    if sb.wal.dev == 0 {
        alloc.take(sb.wal.base, sb.wal.blocks);
    }
    alloc.take(sb.total_blocks - TAIL_BLOCKS, TAIL_BLOCKS);
    alloc
}

/// A scan of the needed part of the log, and a replay to feed.
pub(crate) fn begin_replay(sb: &Superblock, alloc: Allocator, budget: usize) -> (Scan, Replay) {
    let from = first_needed(sb);
    let witness = Witness { durable_seq: sb.durable_seq, generation: sb.generation };
    // A batch that was there when the superblock was written may be of an older life.
    let life = if from.seq <= sb.durable_seq { 0 } else { sb.life };
    let scan = Scan::new(sb.identity.store, sb.wal, from, life, witness);
    let wal = Wal::new(sb.identity.store, sb.wal, 0, from, budget);
    (scan, Replay::new(sb, wal, alloc))
}
