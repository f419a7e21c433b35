//! A disk in memory that keeps to the contract of `io::disk`, and no more.
//!
//! Operations complete in any order. A crash keeps what is durable; of every other write each
//! 512-byte sector may be there or not. Faults can be put in: failing reads, flipped bits, writes
//! that get lost or go elsewhere.

use bytes::Bytes;
use fastrand::Rng;
use io::disk::{DevId, DeviceInfo, DiskDone, DiskError, DiskOp, DiskToken, WriteMode};
use io::{AlignedBuf, BLOCK_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;

pub const SECTOR: usize = 512;
const SECTORS: usize = BLOCK_BYTES / SECTOR;

pub type Block = Arc<[u8; BLOCK_BYTES]>;

/// A write that is not known to be durable.
#[derive(Clone, Debug)]
struct Loose {
    dev: DevId,
    block: u64,
    data: Vec<Block>,
    /// When it completed and so became visible to reads; 0 while it is in flight.
    done_at: u64,
    serial: u64,
}

/// A write that was carried out.
#[derive(Clone, Debug)]
pub struct Written {
    pub dev: DevId,
    pub block: u64,
    /// What stood there before.
    pub old: Vec<Block>,
    pub new: Vec<Block>,
}

/// What a read returned.
struct Lent(Bytes, #[expect(dead_code, reason = "it is counted")] Arc<()>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An operation in flight.
#[derive(Clone, Debug)]
enum Op {
    Read {
        dev: DevId,
        block: u64,
        blocks: usize,
    },
    Write {
        serial: u64,
        durable: bool,
    },
    /// Makes these writes, which completed before, durable.
    Flush {
        covers: Vec<u64>,
    },
    Discard {
        dev: DevId,
        block: u64,
        blocks: u64,
    },
}

/// How writes end.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFaults {
    /// One in so many writes is lost though it is reported as done; 0 for none.
    pub lost_one_in: u32,
    /// One in so many goes to another place.
    pub misdirected_one_in: u32,
}

#[derive(Clone)]
pub struct Disk {
    pub rng: Rng,
    sizes: Vec<u64>,
    /// What is durable.
    stable: Vec<BTreeMap<u64, Block>>,
    /// What reads see.
    seen: Vec<BTreeMap<u64, Block>>,
    loose: Vec<Loose>,
    flying: BTreeMap<DiskToken, Op>,
    serial: u64,
    /// Blocks whose reading fails.
    pub unreadable: BTreeSet<(DevId, u64)>,
    /// Blocks whose writing fails.
    pub unwritable: BTreeSet<(DevId, u64)>,
    /// All writes and flushes fail from now on.
    pub writes_fail: bool,
    /// The operation that completes after so many others fails, and only that. Of a write, anything
    /// may be there then.
    pub fail_after: Option<u64>,
    /// The same, of writes and flushes alone.
    pub fail_write_after: Option<u64>,
    /// So many reads fail.
    pub fail_reads: u32,
    /// So many reads of each of these blocks fail.
    pub fail_times: BTreeMap<(DevId, u64), u32>,
    /// Writes from this block on end only when they are told to ([`Disk::complete_held`]).
    pub held: Option<(DevId, u64)>,
    pub fail_discards: bool,
    /// How operations fail.
    pub error: DiskError,
    pub faults: WriteFaults,
    /// Blocks that hold something else than what was written there.
    pub damaged: BTreeSet<(DevId, u64)>,
    /// All blocks that were read.
    pub read_blocks: BTreeSet<(DevId, u64)>,
    /// All that reads return holds this, if it is there.
    pub lent: Option<Arc<()>>,
    /// All writes, if they are kept.
    pub log: Option<Vec<Written>>,
    /// Operations issued.
    pub issued: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
    /// Discards that were in flight together, at most.
    pub discards_together: usize,
    /// Complete operations in the order they were issued.
    pub in_order: bool,
}

fn zero() -> Block {
    Arc::new([0; BLOCK_BYTES])
}

fn blocks_of(data: &[u8]) -> Vec<Block> {
    data.chunks_exact(BLOCK_BYTES).map(|b| Arc::new(b.try_into().unwrap())).collect()
}

impl Disk {
    /// Devices of so many bytes.
    pub fn new(seed: u64, sizes: &[u64]) -> Self {
        Disk {
            rng: Rng::with_seed(seed),
            sizes: sizes.to_vec(),
            stable: vec![BTreeMap::new(); sizes.len()],
            seen: vec![BTreeMap::new(); sizes.len()],
            loose: Vec::new(),
            flying: BTreeMap::new(),
            serial: 0,
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            writes_fail: false,
            fail_after: None,
            fail_write_after: None,
            fail_reads: 0,
            fail_times: BTreeMap::new(),
            held: None,
            fail_discards: false,
            error: DiskError::Os(5),
            faults: WriteFaults::default(),
            damaged: BTreeSet::new(),
            read_blocks: BTreeSet::new(),
            lent: None,
            log: None,
            issued: 0,
            writes: 0,
            written_bytes: 0,
            flushes: 0,
            discards: 0,
            discards_together: 0,
            in_order: false,
        }
    }

    pub fn info(&self, dev: u8) -> DeviceInfo {
        let bytes = self.sizes[usize::from(dev)];
        DeviceInfo { path: format!("/sim/{dev}"), bytes, is_block: false }
    }

    pub fn devices(&self) -> store::Devices {
        let wal = (self.sizes.len() > 1).then(|| self.info(1));
        store::Devices { data: self.info(0), wal }
    }

    pub fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    /// Writes and discards in flight or not flushed.
    pub fn loose_writes(&self) -> usize {
        self.loose.len()
    }

    /// Bytes of them.
    pub fn loose_bytes(&self) -> u64 {
        self.loose.iter().map(|w| (w.data.len() * BLOCK_BYTES) as u64).sum()
    }

    fn check(&self, dev: DevId, offset: u64, len: u64) -> (u64, u64) {
        let block = BLOCK_BYTES as u64;
        assert!(offset.is_multiple_of(block) && len.is_multiple_of(block) && len > 0);
        assert!(offset + len <= self.sizes[usize::from(dev.0)], "an operation behind the end");
        (offset / block, len / block)
    }

    fn range_of(&self, op: &Op) -> Option<(DevId, u64, u64, bool)> {
        match op {
            Op::Read { dev, block, blocks } => Some((*dev, *block, *blocks as u64, false)),
            Op::Write { serial, .. } => {
                let w = self.loose.iter().find(|w| w.serial == *serial).unwrap();
                Some((w.dev, w.block, w.data.len() as u64, true))
            }
            Op::Flush { .. } => None,
            Op::Discard { dev, block, blocks } => Some((*dev, *block, *blocks, true)),
        }
    }

    /// The contract: nothing in flight overlaps when one of the two writes.
    fn check_overlap(&self, dev: DevId, block: u64, blocks: u64, writes: bool) {
        for op in self.flying.values() {
            if let Some((d, b, n, w)) = self.range_of(op) {
                let apart = d != dev || b + n <= block || block + blocks <= b;
                assert!(apart || !(w || writes), "operations in flight overlap");
            }
        }
    }

    pub fn submit(&mut self, token: DiskToken, op: DiskOp) {
        self.issued += 1;
        let op = match op {
            DiskOp::Read { dev, offset, len } => {
                let (block, blocks) = self.check(dev, offset, len as u64);
                self.check_overlap(dev, block, blocks, false);
                Op::Read { dev, block, blocks: blocks as usize }
            }
            DiskOp::Write { dev, offset, data, mode } => {
                let durable = mode == WriteMode::Durable;
                let all: Vec<u8> = data.iter().flat_map(|b| b.iter().copied()).collect();
                let (block, blocks) = self.check(dev, offset, all.len() as u64);
                self.check_overlap(dev, block, blocks, true);
                self.serial += 1;
                self.writes += 1;
                self.written_bytes += all.len() as u64;
                let serial = self.serial;
                self.loose.push(Loose { dev, block, data: blocks_of(&all), done_at: 0, serial });
                Op::Write { serial, durable }
            }
            DiskOp::Flush { dev } => {
                self.flushes += 1;
                let done = self.loose.iter().filter(|w| w.dev == dev && w.done_at > 0);
                Op::Flush { covers: done.map(|w| w.serial).collect() }
            }
            DiskOp::Discard { dev, offset, len } => {
                self.discards += 1;
                let others = self.flying.values().filter(|op| matches!(op, Op::Discard { .. }));
                self.discards_together = self.discards_together.max(others.count() + 1);
                let (block, blocks) = self.check(dev, offset, len);
                self.check_overlap(dev, block, blocks, true);
                Op::Discard { dev, block, blocks }
            }
        };
        assert!(self.flying.insert(token, op).is_none(), "a token is used twice");
    }

    /// Completes one operation, any of those in flight.
    pub fn complete(&mut self) -> Option<DiskDone> {
        if self.flying.is_empty() {
            return None;
        }
        if self.held.is_some() {
            return self.complete_first(false);
        }
        let n = if self.in_order { 0 } else { self.rng.usize(..self.flying.len()) };
        let token = *self.flying.keys().nth(n)?;
        Some(self.complete_this(token))
    }

    /// Completes the oldest write that is held.
    pub fn complete_held(&mut self) -> Option<DiskDone> {
        self.complete_first(true)
    }

    fn complete_first(&mut self, held: bool) -> Option<DiskDone> {
        let is_held = |op: &Op| {
            let range = self.range_of(op).filter(|(.., writes)| *writes);
            self.held.zip(range).is_some_and(|((d, from), (dev, b, ..))| d == dev && b >= from)
        };
        let (&token, _) = self.flying.iter().find(|(_, op)| is_held(op) == held)?;
        Some(self.complete_this(token))
    }

    fn complete_this(&mut self, token: DiskToken) -> DiskDone {
        let op = self.flying.remove(&token).unwrap();
        DiskDone { token, result: self.finish(op) }
    }

    /// Whether it is this operation's turn to fail.
    fn fails(&mut self, op: &Op) -> bool {
        let is_write = matches!(op, Op::Write { .. } | Op::Flush { .. });
        match op {
            Op::Read { .. } if self.fail_reads > 0 => {
                self.fail_reads -= 1;
                return true;
            }
            Op::Discard { .. } if self.fail_discards => return true,
            _ => {}
        }
        let counters = [Some(&mut self.fail_after), is_write.then_some(&mut self.fail_write_after)];
        for counter in counters.into_iter().flatten() {
            match counter {
                Some(0) => {
                    *counter = None;
                    return true;
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        false
    }

    fn finish(&mut self, op: Op) -> Result<Bytes, DiskError> {
        let eio = Err(self.error);
        // A failed write stays among those that a crash keeps or not.
        if self.fails(&op) {
            return eio;
        }
        match op {
            Op::Read { dev, block, blocks } => {
                let range = block..block + blocks as u64;
                self.read_blocks.extend(range.clone().map(|b| (dev, b)));
                let mut failed = false;
                for (_, left) in self.fail_times.range_mut((dev, block)..(dev, range.end)) {
                    failed |= *left > 0;
                    *left = left.saturating_sub(1);
                }
                if failed || range.clone().any(|b| self.unreadable.contains(&(dev, b))) {
                    return eio;
                }
                let content = self.content(dev, block, blocks);
                Ok(match self.lent.clone() {
                    Some(lent) => Bytes::from_owner(Lent(content, lent)),
                    None => content,
                })
            }
            _ if self.writes_fail => eio,
            Op::Write { serial, .. } if self.is_unwritable(serial) => eio,
            Op::Write { serial, durable } => {
                self.finish_write(serial, durable);
                Ok(Bytes::new())
            }
            Op::Flush { covers } => {
                covers.into_iter().for_each(|serial| self.make_stable(serial));
                Ok(Bytes::new())
            }
            Op::Discard { dev, block, blocks } => {
                for b in block..block + blocks {
                    let junk = Arc::new([0xdd; BLOCK_BYTES]);
                    self.seen[usize::from(dev.0)].insert(b, junk.clone());
                    self.stable[usize::from(dev.0)].insert(b, junk);
                }
                Ok(Bytes::new())
            }
        }
    }

    fn is_unwritable(&self, serial: u64) -> bool {
        let Some(w) = self.loose.iter().find(|w| w.serial == serial) else { return false };
        let blocks = (w.dev, w.block)..(w.dev, w.block + w.data.len() as u64);
        self.unwritable.range(blocks).next().is_some()
    }

    fn finish_write(&mut self, serial: u64, durable: bool) {
        self.serial += 1;
        let now = self.serial;
        let at = self.loose.iter().position(|w| w.serial == serial).unwrap();
        let faults = self.faults;
        let hit = |rng: &mut Rng, one_in: u32| one_in > 0 && rng.u32(0..one_in) == 0;
        if hit(&mut self.rng, faults.lost_one_in) {
            let w = self.loose.remove(at);
            self.damaged.extend((w.block..).take(w.data.len()).map(|b| (w.dev, b)));
            return;
        }
        if hit(&mut self.rng, faults.misdirected_one_in) {
            let w = &mut self.loose[at];
            let last = self.sizes[usize::from(w.dev.0)] / BLOCK_BYTES as u64 - w.data.len() as u64;
            let n = w.data.len();
            self.damaged.extend((w.block..).take(n).map(|b| (w.dev, b)));
            w.block = self.rng.u64(0..=last);
            self.damaged.extend((w.block..).take(n).map(|b| (w.dev, b)));
        } else {
            let w = &self.loose[at];
            for b in (w.block..).take(w.data.len()) {
                self.damaged.remove(&(w.dev, b));
            }
        }
        let w = &mut self.loose[at];
        w.done_at = now;
        let seen = &mut self.seen[usize::from(w.dev.0)];
        let mut old = Vec::new();
        for (b, data) in (w.block..).zip(&w.data) {
            old.push(seen.insert(b, data.clone()).unwrap_or_else(zero));
        }
        if let Some(log) = &mut self.log {
            log.push(Written { dev: w.dev, block: w.block, old, new: w.data.clone() });
        }
        if durable {
            self.make_stable(serial);
        }
    }

    fn make_stable(&mut self, serial: u64) {
        let Some(at) = self.loose.iter().position(|w| w.serial == serial) else { return };
        let w = self.loose.remove(at);
        for (b, data) in (w.block..).zip(&w.data) {
            self.stable[usize::from(w.dev.0)].insert(b, data.clone());
            // What was written there before cannot come back.
            for older in &mut self.loose {
                let inside = older.dev == w.dev && older.done_at > 0 && older.done_at < w.done_at;
                if inside && (older.block..older.block + older.data.len() as u64).contains(&b) {
                    older.data[(b - older.block) as usize] = data.clone();
                }
            }
        }
    }

    fn content(&self, dev: DevId, block: u64, blocks: usize) -> Bytes {
        let mut out = AlignedBuf::zeroed(blocks * BLOCK_BYTES);
        let seen = &self.seen[usize::from(dev.0)];
        for (b, data) in seen.range(block..block + blocks as u64) {
            let at = (b - block) as usize * BLOCK_BYTES;
            out.as_mut_slice()[at..at + BLOCK_BYTES].copy_from_slice(&data[..]);
        }
        out.freeze()
    }

    /// The power goes: of what is not durable, `keep` says for each write and sector whether it got
    /// there.
    pub fn crash(&mut self, mut keep: impl FnMut(&mut Rng, usize, usize) -> bool) {
        self.loose.sort_by_key(|w| if w.done_at > 0 { w.done_at } else { u64::MAX });
        let loose = std::mem::take(&mut self.loose);
        for (i, w) in loose.into_iter().enumerate() {
            for (n, (b, data)) in (w.block..).zip(&w.data).enumerate() {
                let dev = usize::from(w.dev.0);
                let mut block = *self.stable[dev].get(&b).cloned().unwrap_or_else(zero);
                let mut changed = false;
                for s in 0..SECTORS {
                    if keep(&mut self.rng, i, n * SECTORS + s) {
                        let at = s * SECTOR..(s + 1) * SECTOR;
                        block[at.clone()].copy_from_slice(&data[at]);
                        changed = true;
                    }
                }
                if changed {
                    self.stable[dev].insert(b, Arc::new(block));
                }
            }
        }
        self.flying.clear();
        self.seen = self.stable.clone();
    }

    /// A crash that keeps writes and sectors at random, in one of several manners.
    pub fn crash_randomly(&mut self) {
        let manner = self.rng.u8(0..5);
        let mut whole: BTreeMap<usize, bool> = BTreeMap::new();
        self.crash(|rng, write, _| match manner {
            0 => false,
            1 => true,
            2 => *whole.entry(write).or_insert_with(|| rng.bool()),
            3 => rng.bool(),
            _ => rng.u8(0..8) != 0,
        });
    }

    /// The process dies; what it wrote stays in the device's cache, and what was in flight gets
    /// there or not, whole.
    pub fn kill(&mut self) {
        self.flying.clear();
        let flying: Vec<u64> =
            self.loose.iter().filter(|w| w.done_at == 0).map(|w| w.serial).collect();
        for serial in flying {
            if self.rng.bool() {
                self.finish_write(serial, false);
            } else {
                self.loose.retain(|w| w.serial != serial);
            }
        }
    }

    /// A number that stands for all that is durable: the same for the same blocks.
    pub fn digest(&self) -> u64 {
        let hasher = types::HashSet::<u64>::default().hasher().clone();
        let one =
            |(dev, (at, block)): (usize, (&u64, &Block))| hasher.hash_one((dev, at, &block[..]));
        let all = self.stable.iter().enumerate();
        all.flat_map(|(dev, blocks)| blocks.iter().map(move |b| (dev, b)))
            .map(one)
            .fold(0, u64::wrapping_add)
    }

    /// All blocks that were ever written.
    pub fn written(&self) -> Vec<(DevId, u64)> {
        let dev = |d: usize| self.seen[d].keys().map(move |b| (DevId(d as u8), *b));
        (0..self.seen.len()).flat_map(dev).collect()
    }

    pub fn block(&self, dev: DevId, block: u64) -> [u8; BLOCK_BYTES] {
        *self.seen[usize::from(dev.0)].get(&block).cloned().unwrap_or_else(zero)
    }

    /// Overwrites a block behind the store's back.
    pub fn poke(&mut self, dev: DevId, block: u64, data: [u8; BLOCK_BYTES]) {
        let data = Arc::new(data);
        self.seen[usize::from(dev.0)].insert(block, data.clone());
        self.stable[usize::from(dev.0)].insert(block, data);
    }

    /// Flips one bit.
    pub fn flip(&mut self, dev: DevId, block: u64, bit: usize) {
        let mut data = self.block(dev, block);
        data[bit / 8] ^= 1 << (bit % 8);
        self.poke(dev, block, data);
    }

    /// Forgets all devices but the first.
    pub fn cut_to_one_device(&mut self) {
        self.sizes.truncate(1);
        self.stable.truncate(1);
        self.seen.truncate(1);
    }

    /// Makes the device larger or smaller.
    pub fn grow(&mut self, dev: u8, bytes: u64) {
        self.sizes[usize::from(dev)] = bytes;
    }
}
