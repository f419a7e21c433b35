//! Memory for short reads that the kernel has been shown once.
//!
//! For any other buffer it looks up, pins and lets go of the page with each read: a tenth of what a read of
//! 4 KiB costs. The slots are taken in turns; a read that finds none free gets memory of its own.

use io::{AlignedBuf, BLOCK_BYTES};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = BLOCK_BYTES;
/// Slots of a runner: 4 MiB.
const SLOTS: usize = 1024;

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

    /// A slot, if one is free.
    pub fn take(&self) -> Option<PoolBuf> {
        let slot = self.memory.free().pop()?;
        Some(PoolBuf { memory: self.memory.clone(), slot })
    }
}

/// A slot. It is free again when this is dropped.
pub(crate) struct PoolBuf {
    memory: Arc<Memory>,
    slot: usize,
}

impl PoolBuf {
    /// Its [`SLOT_BYTES`] bytes.
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
        unsafe { std::slice::from_raw_parts(self.start(), SLOT_BYTES) }
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
        let mut all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), SLOTS);
        let places: std::collections::BTreeSet<_> =
            all.iter_mut().map(|slot| slot.as_mut_ptr().addr()).collect();
        assert_eq!(places.len(), SLOTS);
        let slot = all.pop().unwrap();
        let at = slot.as_ref().as_ptr();
        let bytes = Bytes::from_owner(slot);
        let part = bytes.slice(100..200);
        drop(bytes);
        assert!(pool.take().is_none() && part.as_ptr().addr() == at.addr() + 100);
        drop(part);
        assert_eq!(pool.take().unwrap().as_ref().as_ptr(), at);
    }

    #[test]
    fn slots_outlive_their_pool() {
        let pool = ReadPool::new();
        let bytes = Bytes::from_owner(pool.take().unwrap());
        drop(pool);
        assert!(bytes.iter().all(|b| *b == 0));
    }
}
