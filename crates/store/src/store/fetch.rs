//! Getting what an operation lacks.
//!
//! Each piece is verified when it arrives: a tree node by the checksum its parent keeps, a block by
//! the one its extent keeps.

use super::inflight::{DATA, MAX_IO_BLOCKS};
use super::miss::{Fetched, Miss, ReadSet, Want};
use super::outlines::BriefCrc;
use super::{Ended, Life, Store, StoreEvent};
use crate::codec::block_crc;
use crate::error::StoreError;
use crate::keys::ShardId;
use crate::mount::walk::is_possible;
use crate::tree::node::{Node, PagePtr, node_crc};
use bytes::Bytes;
use io::disk::DiskError;
use io::{BLOCK_BYTES, Effects, Now};
use smallvec::SmallVec;
use std::sync::Arc;
use types::testing::{Bug, planted};
use types::{HashMap, Mono, ObjectKey};

/// Which part of a fetch a read is.
#[derive(Debug)]
pub(crate) enum Piecewise {
    Page(PagePtr),
    Data { object: ObjectKey, offset: u64, step: u64, start: u64, crcs: SmallVec<[u32; 4]> },
    Outlined { shard: ShardId, start: u64, crcs: SmallVec<[BriefCrc; 4]> },
    Log { object: ObjectKey, offset: u64, seq: u64, block: u64, place: u64, crc: u32 },
}

#[derive(Debug)]
struct Fetch {
    waiter: u64,
    left: usize,
    set: ReadSet,
    error: Option<StoreError>,
    since: Mono,
    /// Whether blocks that it brings are kept for others.
    keep: bool,
}

/// Fetches under way.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    next: u64,
    running: HashMap<u64, Fetch>,
}

/// A node from its bytes, if it is the one that `ptr` means. It has memory of its own, as it may be kept
/// for long: what a device reads into is lent, and short when much of it is held.
pub(crate) fn check_node(ptr: PagePtr, bytes: Bytes) -> Result<Node, &'static str> {
    if node_crc(&bytes) != ptr.crc {
        return Err("a tree node does not have its checksum");
    }
    Node::parse(Bytes::copy_from_slice(&bytes)).map_err(|why| why.0)
}

impl Store {
    /// Gets what `miss` names. [`StoreEvent::Fetched`] with `waiter` follows, at once or when the
    /// device has answered.
    pub fn fetch(&mut self, now: Now, mut miss: Miss, waiter: u64, fx: &mut Effects) {
        self.now = now.mono;
        if matches!(self.life, Life::Dead | Life::Closed) {
            return;
        }
        self.rows.close_gaps();
        self.counters.fetches += 1;
        let result = match miss.problem.take().or_else(|| self.impossible(&miss.wants)) {
            Some(problem) => Err(problem),
            // What it names may have moved: the operation finds out by running again.
            None if miss.epoch != self.epoch || self.is_stale(&miss.wants) => Ok(ReadSet::new()),
            None => {
                self.start_fetch(miss, waiter, fx);
                return;
            }
        };
        self.events.push_back(StoreEvent::Fetched { waiter, result });
    }

    /// Whether something is being written where a wanted block stood.
    fn is_stale(&self, wants: &[Want]) -> bool {
        wants.iter().any(|want| match want {
            Want::Page(ptr) => self.io.writes.overlaps(ptr.block, u64::from(ptr.blocks)),
            Want::Data { start, crcs, .. } => self.io.writes.overlaps(*start, crcs.len() as u64),
            Want::Outlined { start, crcs, .. } => {
                self.io.writes.overlaps(*start, crcs.len() as u64)
            }
            Want::Log { seq, .. } => *seq < self.wal.tail().seq,
        })
    }

    /// The problem that something wanted cannot be on the device at all.
    fn impossible(&self, wants: &[Want]) -> Option<StoreError> {
        let total = self.sb.total_blocks;
        let what = "a pointer leads out of the device";
        wants
            .iter()
            .find_map(|want| match want {
                Want::Page(ptr) if !is_possible(*ptr, total) => Some(ptr.block),
                Want::Data { start, crcs, .. } if start + crcs.len() as u64 > total => Some(*start),
                Want::Outlined { start, crcs, .. } if start + crcs.len() as u64 > total => {
                    Some(*start)
                }
                _ => None,
            })
            .map(|block| StoreError::BadMetadata { block, what })
    }

    fn start_fetch(&mut self, miss: Miss, waiter: u64, fx: &mut Effects) {
        let id = self.fetches.next;
        self.fetches.next += 1;
        let since = self.now;
        let keep = !miss.once && self.keeps(&miss.wants);
        let mut fetch = Fetch { waiter, left: 0, set: ReadSet::new(), error: None, since, keep };
        for want in miss.wants {
            match want {
                Want::Page(ptr) => match self.rows.pages.get(ptr) {
                    Some(node) => fetch.set.pages.push(node),
                    None => {
                        fetch.left += 1;
                        self.counters.nodes_read += 1;
                        let what = Ended::Fetch { id, part: Piecewise::Page(ptr) };
                        self.io.read(fx, DATA, ptr.block, u64::from(ptr.blocks), what);
                    }
                },
                Want::Data { object, offset, step, start, crcs } => {
                    for (i, crcs) in crcs.chunks(MAX_IO_BLOCKS as usize).enumerate() {
                        fetch.left += 1;
                        let skip = i as u64 * MAX_IO_BLOCKS;
                        let (start, offset) = (start + skip, offset + skip * step);
                        let (object, crcs) = (object.clone(), SmallVec::from_slice(crcs));
                        let part = Piecewise::Data { object, offset, step, start, crcs };
                        self.fetch_data(id, part, fx);
                    }
                }
                Want::Outlined { shard, start, crcs } => {
                    fetch.left += 1;
                    let blocks = crcs.len() as u64;
                    self.count_read(blocks);
                    self.counters.outlined_blocks_read += blocks;
                    let part = Piecewise::Outlined { shard, start, crcs };
                    let what = Ended::Fetch { id, part };
                    self.io.read(fx, DATA, start, blocks, what);
                }
                Want::Log { object, offset, seq, block, place, crc } => {
                    fetch.left += 1;
                    self.wal.begin_read(seq);
                    let dev = self.log_dev();
                    let part = Piecewise::Log { object, offset, seq, block, place, crc };
                    let at = self.wal.place.base + block;
                    self.count_read(1);
                    self.io.read(fx, dev, at, 1, Ended::Fetch { id, part });
                }
            }
        }
        if fetch.left == 0 {
            let result = Ok(fetch.set);
            self.events.push_back(StoreEvent::Fetched { waiter, result });
            return;
        }
        self.fetches.running.insert(id, fetch);
    }

    /// Whether the blocks among what is wanted are to be kept for others.
    fn keeps(&mut self, wants: &[Want]) -> bool {
        let blocks = wants.iter().map(|want| match want {
            Want::Data { crcs, .. } => crcs.len() as u64,
            Want::Outlined { crcs, .. } => crcs.len() as u64,
            Want::Page(_) | Want::Log { .. } => 0,
        });
        let blocks = blocks.sum();
        if blocks > 0 && self.blocks.bytes() == 0 {
            self.share_memory();
        }
        self.blocks.keeps(blocks)
    }

    fn fetch_data(&mut self, id: u64, part: Piecewise, fx: &mut Effects) {
        let Piecewise::Data { start, crcs, .. } = &part else { return };
        let (start, blocks) = (*start, crcs.len() as u64);
        self.count_read(blocks);
        self.io.read(fx, DATA, start, blocks, Ended::Fetch { id, part });
    }

    fn count_read(&mut self, blocks: u64) {
        self.counters.data_reads += 1;
        self.counters.data_read_bytes += blocks * BLOCK_BYTES as u64;
    }

    /// A read of a fetch ended.
    pub(super) fn fetched(&mut self, id: u64, part: Piecewise, result: Result<Bytes, DiskError>) {
        if let Piecewise::Log { seq, .. } = &part {
            self.wal.end_read(*seq);
        }
        let block = match &part {
            Piecewise::Page(ptr) => ptr.block,
            Piecewise::Data { start, .. } | Piecewise::Outlined { start, .. } => *start,
            Piecewise::Log { block, .. } => self.wal.place.base + block,
        };
        let checked = match result {
            Err(error) => {
                self.counters.read_errors += 1;
                match &part {
                    Piecewise::Page(_) => Err(StoreError::Io { object: None, block, error }),
                    Piecewise::Data { object, .. } | Piecewise::Log { object, .. } => {
                        let object = Some(object.clone());
                        Err(StoreError::Io { object, block, error })
                    }
                    Piecewise::Outlined { shard, .. } => Ok(self.bad_outlined(*shard)),
                }
            }
            Ok(bytes) => self.check_part(&part, bytes),
        };
        // What comes from the log can be older than what is at its place by now.
        let is_of_place = matches!(&part, Piecewise::Data { .. } | Piecewise::Outlined { .. });
        let fetch = self.fetches.running.get_mut(&id).expect("a fetch that is under way");
        fetch.left -= 1;
        match checked {
            Ok(set) => {
                if fetch.keep && is_of_place {
                    set.blocks().for_each(|f| self.blocks.put(f.start, &f.crcs, &f.data));
                }
                fetch.set.merge(set);
            }
            Err(error) => drop(fetch.error.get_or_insert(error)),
        }
        if fetch.left > 0 {
            return;
        }
        let fetch = self.fetches.running.remove(&id).expect("a fetch that is under way");
        self.counters.fetch_ns += self.now.since(fetch.since).as_nanos() as u64;
        let result = fetch.error.map_or(Ok(fetch.set), Err);
        self.events.push_back(StoreEvent::Fetched { waiter: fetch.waiter, result });
    }

    fn check_part(&mut self, part: &Piecewise, bytes: Bytes) -> Result<ReadSet, StoreError> {
        let mut set = ReadSet::new();
        match part {
            Piecewise::Page(ptr) => match check_node(*ptr, bytes) {
                Ok(node) => {
                    let node = Arc::new(node);
                    self.share_memory();
                    self.rows.pages.insert(*ptr, node.clone());
                    set.pages.push(node);
                }
                Err(what) => {
                    self.counters.bad_nodes += 1;
                    return Err(StoreError::BadMetadata { block: ptr.block, what });
                }
            },
            Piecewise::Data { object, offset, step, start, crcs } => {
                for (i, (block, crc)) in bytes.chunks_exact(BLOCK_BYTES).zip(crcs).enumerate() {
                    if block_crc(block) != *crc && !planted(Bug::NoChecksums) {
                        let offset = offset + i as u64 * step;
                        return Err(self.bad_block(object, offset, start + i as u64));
                    }
                }
                set.add(Fetched { start: *start, crcs: crcs.clone(), data: bytes });
            }
            Piecewise::Outlined { shard, start, crcs } => {
                let found: SmallVec<[u32; 4]> =
                    bytes.chunks_exact(BLOCK_BYTES).map(block_crc).collect();
                if !found.iter().map(|crc| BriefCrc::of(*crc)).eq(crcs.iter().copied()) {
                    return Ok(self.bad_outlined(*shard));
                }
                set.add(Fetched { start: *start, crcs: found, data: bytes });
            }
            Piecewise::Log { object, offset, block, place, crc, .. } => {
                if block_crc(&bytes) != *crc {
                    let block = self.wal.place.base + block;
                    return Err(self.bad_block(object, *offset, block));
                }
                let crcs = SmallVec::from_slice(&[*crc]);
                set.add(Fetched { start: *place, crcs, data: bytes });
            }
        }
        Ok(set)
    }

    /// A block does not have the checksum that its outline knows: its row is read, and the block again, to
    /// say whose it is.
    fn bad_outlined(&mut self, shard: ShardId) -> ReadSet {
        self.outlines.forget(shard);
        ReadSet::new()
    }

    fn bad_block(&mut self, object: &ObjectKey, offset: u64, block: u64) -> StoreError {
        self.counters.bad_blocks += 1;
        let event = StoreEvent::BadBlock { object: object.clone(), offset };
        self.events.push_back(event);
        StoreError::BadBlock { object: object.clone(), offset, block }
    }
}
