//! Memory for short reads that the kernel has been shown once.
//!
//! For any other buffer it looks up, pins and lets go of the page with each read: a tenth of what a read of
//! 4 KiB costs. The slots are taken in turns; a read that finds none free gets memory of its own.

use io::{AlignedBuf, BLOCK_BYTES};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a slot: a store reads two blocks where it knows but one checksum of both.
pub(crate) const SLOT_BYTES: usize = 2 * BLOCK_BYTES;
/// Slots of a runner: 4 MiB.
const SLOTS: usize = 512;

/// The slots of a runner.
pub(crate) struct ReadPool {
    memory: Arc<Memory>,
}

struct Memory {
    /// Of `_owner`, which nobody looks at.
    start: *mut u8,
    _owner: AlignedBuf,
    /// Slots that nobody has.
    free: Mutex<Vec<usize>>,
}

// SAFETY: a slot belongs to the one `PoolBuf` with its number (numbers come from `free`, and go back there
// when it is dropped), and no two slots overlap.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadPool {
    pub fn new() -> Self {
        let mut owner = AlignedBuf::zeroed(SLOTS * SLOT_BYTES);
        let start = owner.as_mut_slice().as_mut_ptr();
        // Those at the end are taken first, and again while they are warm.
        let free = Mutex::new((0..SLOTS).rev().collect());
        ReadPool { memory: Arc::new(Memory { start, _owner: owner, free }) }
    }

    /// All of it, to be shown to the kernel.
    pub fn all(&self) -> libc::iovec {
        libc::iovec { iov_base: self.memory.start.cast(), iov_len: SLOTS * SLOT_BYTES }
    }

    /// A slot for `len` bytes, if one is free and they fit.
    pub fn take(&self, len: usize) -> Option<PoolBuf> {
        let slot = if len <= SLOT_BYTES { self.memory.free().pop()? } else { return None };
        Some(PoolBuf { memory: self.memory.clone(), slot, len })
    }
}

/// A slot. It is free again when this is dropped.
pub(crate) struct PoolBuf {
    memory: Arc<Memory>,
    slot: usize,
    /// At most [`SLOT_BYTES`].
    len: usize,
}

impl PoolBuf {
    /// Bytes of it that are used.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where these begin.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: slots are numbered from 0 to `SLOTS`, and the memory has so many.
        unsafe { self.memory.start.add(self.slot * SLOT_BYTES) }
    }
}

impl AsRef<[u8]> for PoolBuf {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes live as long as `memory`, were all written when that was made, and are ours
        // alone; the kernel writes to them only while a ring's slot has the `PoolBuf`, which shows it to
        // nobody.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        self.memory.free().push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_slot_is_nobody_elses_until_the_last_one_that_reads_it_is_gone() {
        let pool = ReadPool::new();
        assert!(pool.take(SLOT_BYTES + 1).is_none());
        let mut all: Vec<_> = std::iter::from_fn(|| pool.take(BLOCK_BYTES)).collect();
        assert_eq!(all.len(), SLOTS);
        let places: std::collections::BTreeSet<_> =
            all.iter_mut().map(|slot| slot.as_mut_ptr().addr()).collect();
        assert_eq!(places.len(), SLOTS);
        let slot = all.pop().unwrap();
        let at = slot.as_ref().as_ptr();
        let bytes = Bytes::from_owner(slot);
        assert_eq!(bytes.len(), BLOCK_BYTES);
        let part = bytes.slice(100..200);
        drop(bytes);
        assert!(pool.take(BLOCK_BYTES).is_none() && part.as_ptr().addr() == at.addr() + 100);
        drop(part);
        assert_eq!(pool.take(SLOT_BYTES).unwrap().as_ref().as_ptr(), at);
    }

    #[test]
    fn slots_outlive_their_pool() {
        let pool = ReadPool::new();
        let bytes = Bytes::from_owner(pool.take(SLOT_BYTES).unwrap());
        drop(pool);
        assert!(bytes.iter().all(|b| *b == 0));
    }
}
