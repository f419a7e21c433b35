//! One simulated disk: what is durable, what is only visible, and what a crash makes of it. It keeps what
//! `io::disk` promises, and no more.

use crate::world::BadDisk;
use bytes::Bytes;
use io::disk::{DeviceInfo, DiskError};
use io::{AlignedBuf, BLOCK_BYTES, Rng};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::HashMap;

/// What a disk writes at once: a sector is old or new, never mixed.
const SECTOR_BYTES: usize = 512;
const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

type Block = Box<[u8; BLOCK_BYTES]>;

fn blank() -> Block {
    Box::new([0; BLOCK_BYTES])
}

/// A block of these bytes, copied once.
fn block_of(bytes: &[u8]) -> Block {
    Box::<[u8]>::from(bytes).try_into().expect("it is a block")
}

/// What discarded blocks may read as.
const JUNK: u8 = 0xdd;

/// What a write that is not durable left in a block.
#[derive(Clone, Debug)]
struct Loose {
    /// The write's number.
    write: u64,
    block: Block,
}

/// What a crash made of blocks that were not flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashLeft {
    /// Blocks that are as they were before.
    pub lost: u64,
    /// Blocks that are partly old and partly new.
    pub torn: u64,
}

/// A disk. Cloning it is an image of its durable and its visible state.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    bytes: u64,
    durable: BTreeMap<u64, Block>,
    /// What was written and is not durable, of each block the oldest first. Reads see the last.
    loose: BTreeMap<u64, SmallVec<[Loose; 1]>>,
    /// Reads of these blocks fail.
    bad: BTreeMap<u64, i32>,
    /// Number of writes so far, and of the one that was last to write each block.
    writes: u64,
    written_by: HashMap<u64, u64>,
}

impl SimDisk {
    /// An empty disk of so many bytes.
    pub fn new(bytes: u64) -> Self {
        SimDisk { bytes: bytes - bytes % BLOCK_BYTES as u64, ..SimDisk::default() }
    }

    /// What a core is told of it.
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo { path: "simulated".into(), bytes: self.bytes, is_block: true }
    }

    fn blocks(offset: u64, len: usize) -> std::ops::Range<u64> {
        let block = BLOCK_BYTES as u64;
        assert!(
            offset.is_multiple_of(block) && len.is_multiple_of(BLOCK_BYTES),
            "a transfer of {len} bytes at {offset} is not aligned"
        );
        offset / block..(offset + len as u64) / block
    }

    fn block(&self, at: u64) -> Option<&Block> {
        let newest = self.loose.get(&at).and_then(|all| all.last());
        newest.map(|loose| &loose.block).or_else(|| self.durable.get(&at))
    }

    /// Reads what is visible.
    ///
    /// # Errors
    /// Beyond the end, or on a block that was made bad.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        let mut buf = AlignedBuf::zeroed(len);
        let end = self.bytes / BLOCK_BYTES as u64;
        for (i, at) in Self::blocks(offset, len).enumerate() {
            if at >= end {
                return Err(DiskError::Short { done: i * BLOCK_BYTES, wanted: len });
            }
            if let Some(errno) = self.bad.get(&at) {
                return Err(DiskError::Os(*errno));
            }
            if let Some(block) = self.block(at) {
                buf.as_mut_slice()[i * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block[..]);
            }
        }
        Ok(buf.freeze())
    }

    /// Writes; visible at once.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), DiskError> {
        let blocks = Self::blocks(offset, data.len());
        if blocks.end > self.bytes / BLOCK_BYTES as u64 {
            return Err(DiskError::Short { done: 0, wanted: data.len() });
        }
        self.writes += 1;
        for (at, bytes) in blocks.zip(data.chunks_exact(BLOCK_BYTES)) {
            let block = block_of(bytes);
            self.written_by.insert(at, self.writes);
            // Writing a bad block heals it, as disks do.
            self.bad.remove(&at);
            if durable {
                self.put(at, block);
            } else {
                self.loose.entry(at).or_default().push(Loose { write: self.writes, block });
            }
        }
        Ok(())
    }

    /// What a block durably is: nothing that was written there before comes back.
    fn put(&mut self, at: u64, block: Block) {
        self.loose.remove(&at);
        self.durable.insert(at, block);
    }

    /// How many writes have completed.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// A flush completes: the writes become durable that had completed when it was asked for, which are the
    /// first so many.
    pub fn flush(&mut self, writes: u64) {
        for (at, all) in &mut self.loose {
            let covered = all.iter().take_while(|loose| loose.write <= writes).count();
            if let Some(newest) = all.drain(..covered).next_back() {
                self.durable.insert(*at, newest.block);
            }
        }
        self.loose.retain(|_, all| !all.is_empty());
    }

    /// These bytes are not needed any more: each block reads as before, as zeroes or as junk from now on. What lies
    /// beyond the end is left out. Returns how many blocks are not as before.
    pub fn discard(&mut self, offset: u64, bytes: u64, rng: &mut Rng) -> u64 {
        let block = BLOCK_BYTES as u64;
        let mut changed = 0;
        for at in offset / block..(offset + bytes).min(self.bytes) / block {
            if self.block(at).is_none() {
                continue;
            }
            match rng.u32(..3) {
                0 => continue,
                1 => self.put(at, blank()),
                _ => self.put(at, Box::new([JUNK; BLOCK_BYTES])),
            }
            changed += 1;
        }
        changed
    }

    /// The power fails: of each write that is not durable every sector is there or not. `in_flight`
    /// are writes that had not completed.
    pub fn crash(&mut self, in_flight: Vec<(u64, Bytes)>, rng: &mut Rng) -> CrashLeft {
        let mut left = CrashLeft::default();
        for (offset, data) in in_flight {
            // It may not have begun at all.
            if rng.bool() {
                let _ = self.write(offset, &data, false);
            }
        }
        for (at, all) in std::mem::take(&mut self.loose) {
            for Loose { block, .. } in all {
                match rng.u32(..3) {
                    0 => left.lost += 1,
                    1 => drop(self.durable.insert(at, block)),
                    _ => {
                        left.torn += 1;
                        self.tear(at, &block, rng);
                    }
                }
            }
        }
        left
    }

    fn tear(&mut self, at: u64, new: &Block, rng: &mut Rng) {
        let old = self.durable.entry(at).or_insert_with(blank);
        for sector in 0..SECTORS {
            if rng.bool() {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                old[range.clone()].copy_from_slice(&new[range]);
            }
        }
    }

    /// A block that was ever written, is on the disk, and that both accept.
    fn some_block(
        &self,
        hits: fn(u64, &[u8]) -> bool,
        is_it: impl Fn(&u64) -> bool,
        rng: &mut Rng,
    ) -> Option<u64> {
        let known = self.durable.iter().filter(|(at, _)| is_it(at));
        let hit = known.filter(|(at, b)| hits(**at * BLOCK_BYTES as u64, &b[..]));
        let all: Vec<u64> = hit.map(|(at, _)| *at).collect();
        (!all.is_empty()).then(|| all[rng.usize(..all.len())])
    }

    /// Flips a bit of a durable block that `hits` accepts (by its place in bytes and its content), and
    /// that stood there while the disk took so many writes. Returns where.
    pub fn rot(
        &mut self,
        hits: fn(u64, &[u8]) -> bool,
        age_writes: u64,
        rng: &mut Rng,
    ) -> Option<u64> {
        let (written_by, writes) = (&self.written_by, self.writes);
        let is_old = |at: &u64| written_by.get(at).is_none_or(|n| n + age_writes <= writes);
        let at = self.some_block(hits, is_old, rng)?;
        let bit = rng.usize(..BLOCK_BYTES * 8);
        for block in self.all_of(at) {
            block[bit / 8] ^= 1 << (bit % 8);
        }
        Some(at * BLOCK_BYTES as u64)
    }

    /// All that may be in a block after a crash.
    fn all_of(&mut self, at: u64) -> impl Iterator<Item = &mut Block> {
        let loose = self.loose.get_mut(&at).into_iter().flatten().map(|loose| &mut loose.block);
        self.durable.get_mut(&at).into_iter().chain(loose)
    }

    /// What a bad disk does instead of a write, if anything.
    pub(crate) fn mistreat(
        &mut self,
        bad: &BadDisk,
        offset: u64,
        data: &[u8],
        rng: &mut Rng,
    ) -> Option<&'static str> {
        let places = Self::blocks(offset, data.len());
        let all = places.clone().zip(data.chunks_exact(BLOCK_BYTES));
        if !all.into_iter().all(|(at, b)| (bad.hits)(at * BLOCK_BYTES as u64, b)) {
            return None;
        }
        let draw = rng.u32(..1_000_000);
        if draw < bad.lost_ppm {
            return Some("write lost");
        }
        if draw - bad.lost_ppm >= bad.misdirected_ppm {
            return None;
        }
        let to = self.some_block(bad.hits, |to| !places.contains(to), rng)?;
        self.put(to, block_of(&data[..BLOCK_BYTES]));
        Some("write misdirected")
    }

    /// Flips a bit in every block that begins so. Returns their offsets.
    pub fn damage(&mut self, beginning: &[u8]) -> Vec<u64> {
        let loose = self
            .loose
            .iter_mut()
            .flat_map(|(at, all)| all.iter_mut().map(move |l| (at, &mut l.block)));
        let begin_so =
            self.durable.iter_mut().chain(loose).filter(|(_, b)| b.starts_with(beginning));
        let mut hit = Vec::new();
        for (at, block) in begin_so {
            block[BLOCK_BYTES / 2] ^= 1;
            hit.push(at * BLOCK_BYTES as u64);
        }
        hit
    }

    /// Reads of the block at `offset` fail from now on, until it is written.
    pub fn make_bad(&mut self, offset: u64, errno: i32) {
        self.bad.insert(offset / BLOCK_BYTES as u64, errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(n: u8) -> Vec<u8> {
        vec![n; BLOCK_BYTES]
    }

    #[test]
    fn durable_data_survives_and_the_rest_is_old_or_new_by_sector() {
        let mut torn = 0;
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let mut disk = SimDisk::new(1 << 20);
            disk.write(0, &filled(1), true).unwrap();
            disk.write(4096, &filled(2), false).unwrap();
            disk.flush(disk.writes());
            disk.write(0, &filled(3), false).unwrap();
            assert_eq!(disk.read(0, 4096).unwrap()[9], 3);
            disk.crash(vec![(8192, filled(4).into())], &mut rng);
            let data = disk.read(0, 3 * 4096).unwrap();
            let sectors: Vec<u8> = data.chunks(SECTOR_BYTES).map(|s| s[0]).collect();
            assert!(sectors[..8].iter().all(|s| [1, 3].contains(s)));
            assert_eq!(sectors[8..16], [2; 8]);
            assert!(sectors[16..].iter().all(|s| [0, 4].contains(s)));
            torn += usize::from(sectors[..8].contains(&1) && sectors[..8].contains(&3));
        }
        assert!(torn > 10);
    }

    #[test]
    fn a_flush_covers_what_was_written_when_it_was_asked_for() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let mut disk = SimDisk::new(1 << 20);
            disk.write(0, &filled(1), false).unwrap();
            disk.write(4096, &filled(1), false).unwrap();
            let writes = disk.writes();
            disk.write(4096, &filled(2), false).unwrap();
            disk.write(8192, &filled(2), false).unwrap();
            disk.flush(writes);
            assert_eq!(disk.read(4096, 4096).unwrap()[0], 2);
            disk.crash(Vec::new(), &mut rng);
            let data = disk.read(0, 3 * 4096).unwrap();
            let sectors: Vec<u8> = data.chunks(SECTOR_BYTES).map(|s| s[0]).collect();
            assert_eq!(sectors[..8], [1; 8]);
            assert!(sectors[8..16].iter().all(|s| [1, 2].contains(s)), "the first one is durable");
            kept += usize::from(sectors[16..] == [2; 8]);
            lost += usize::from(sectors[16..] == [0; 8]);
        }
        assert!(kept > 10 && lost > 10);
    }

    #[test]
    fn discarded_blocks_read_as_anything_and_others_as_they_were() {
        let mut seen = [0; 256];
        for seed in 0..50 {
            let mut disk = SimDisk::new(1 << 20);
            disk.write(0, &[filled(1), filled(1), filled(1)].concat(), true).unwrap();
            disk.write(4096, &filled(2), false).unwrap();
            let changed = disk.discard(4096, 4096, &mut Rng::with_seed(seed));
            let now = disk.read(0, 3 * 4096).unwrap();
            assert_eq!((now[0], now[8192]), (1, 1));
            assert_eq!(now[4096] != 2, changed == 1);
            seen[usize::from(now[4096])] += 1;
        }
        assert!([0, 2, JUNK].iter().all(|n| seen[usize::from(*n)] > 5));
        let mut disk = SimDisk::new(1 << 20);
        assert_eq!(disk.discard(0, 2 << 20, &mut Rng::with_seed(1)), 0, "nothing was there");
    }

    #[test]
    fn bad_blocks_fail_until_they_are_written() {
        let mut disk = SimDisk::new(1 << 20);
        disk.make_bad(4096, 5);
        assert_eq!(disk.read(0, 8192), Err(DiskError::Os(5)));
        disk.write(4096, &filled(1), false).unwrap();
        assert!(disk.read(0, 8192).is_ok());
        assert!(disk.read(1 << 20, 4096).is_err());
    }
}
