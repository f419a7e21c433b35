//! Memory that a disk can read and write directly.
//!
//! Buffers are kept by their thread when they are dropped, and used again: page-aligned memory is dear to
//! get from an allocator, and has to be zeroed; every request needs some.

use bytes::Bytes;
use std::cell::RefCell;
use std::fmt;
use types::HashMap;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The unit of the store and the alignment of every disk transfer: 4 KiB.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Page>() == BLOCK_BYTES && align_of::<Page>() == BLOCK_BYTES);

/// A buffer whose address and capacity are multiples of [`BLOCK_BYTES`], as O_DIRECT wants.
#[derive(Default)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When the memory cannot be had.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = match Kept::take(pages_for(len)) {
            Some(pages) => AlignedBuf { pages, len },
            None => return Self::fresh(len),
        };
        buf.pages.zero();
        buf
    }

    /// `len` bytes that will all be written: they hold anything, which may be what another buffer
    /// held.
    ///
    /// # Panics
    /// When the memory cannot be had.
    pub fn for_overwrite(len: usize) -> Self {
        match Kept::take(pages_for(len)) {
            Some(pages) => AlignedBuf { pages, len },
            None => Self::fresh(len),
        }
    }

    fn fresh(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(pages_for(len)).expect("out of memory");
        Kept::made(pages.len());
        AlignedBuf { pages, len }
    }

    /// A copy of `data`.
    pub fn copy_of(data: &[u8]) -> Self {
        let mut buf = AlignedBuf::for_overwrite(data.len());
        buf.as_mut_slice().copy_from_slice(data);
        buf
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit, a multiple of [`BLOCK_BYTES`].
    pub fn capacity(&self) -> usize {
        self.pages.len() * BLOCK_BYTES
    }

    /// Changes the number of bytes in use, up to the capacity. Bytes that come in are whatever the
    /// buffer held there before.
    ///
    /// # Panics
    /// When `len` is over the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "an aligned buffer does not grow");
        self.len = len;
    }

    /// The bytes in use.
    pub fn as_slice(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }

    /// The bytes in use.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }

    /// As shared bytes, without copying.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Whether `data` could be handed to an O_DIRECT transfer as it is.
    pub fn is_aligned(data: &[u8]) -> bool {
        data.as_ptr().addr().is_multiple_of(BLOCK_BYTES) && data.len().is_multiple_of(BLOCK_BYTES)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        Kept::put(std::mem::take(&mut self.pages));
    }
}

/// Pages of a buffer for `len` bytes. Buffers come in few lengths, so that one that was dropped fits the
/// next; of a short one at most a third is unused, of a longer one an eighth.
fn pages_for(len: usize) -> usize {
    let pages = len.div_ceil(BLOCK_BYTES);
    let steps = match pages {
        0..=SHORT_PAGES => 4,
        _ if pages <= LONG_PAGES => 16,
        _ => return pages,
    };
    let step = (pages.next_power_of_two() / steps).max(1);
    pages.next_multiple_of(step)
}

/// Buffers of more pages are longer ones.
const SHORT_PAGES: usize = 16;
/// 4 MiB, as long as most objects are: buffers of more have exactly the pages that they need.
const LONG_PAGES: usize = 1024;
/// Buffers of up to so many pages are kept: such an object, and what comes with it.
const KEPT_PAGES: usize = LONG_PAGES + 8;
/// Pages that a thread keeps in all: 128 MiB. A log gives back what it held in bursts, and what it needs
/// next would have to be zeroed and mapped anew.
const KEPT_IN_ALL: usize = 32768;
/// Buffers of one length that [`give_back`] drops at a time, and pages of longer ones: a millisecond's work.
const GIVEN_BACK: usize = 128;
const GIVEN_BACK_PAGES: usize = GIVEN_BACK * SHORT_PAGES;

/// Drops some of the buffers that this thread keeps and did not need since the last call. To be called every
/// now and then.
pub fn give_back() {
    let _ = KEPT.try_with(|kept| kept.borrow_mut().give_back());
}

/// Memory of all buffers of this thread, in bytes: of those in use, and of those that it keeps to use them
/// again. A buffer that another thread drops counts here as if it were in use.
pub fn buffer_bytes() -> usize {
    KEPT.try_with(|kept| kept.borrow().made * BLOCK_BYTES).unwrap_or(0)
}

/// Dropped buffers of one length.
#[derive(Default)]
struct OneLength {
    buffers: Vec<Vec<Page>>,
    /// There were never fewer since [`give_back`] was called last.
    least: usize,
}

/// Dropped buffers of this thread, by their length in pages.
#[derive(Default)]
struct Kept {
    short: [OneLength; SHORT_PAGES],
    longer: HashMap<usize, OneLength>,
    /// Pages in it.
    pages: usize,
    /// These, and those of buffers in use.
    made: usize,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

impl OneLength {
    fn take(&mut self) -> Option<Vec<Page>> {
        let found = self.buffers.pop()?;
        self.least = self.least.min(self.buffers.len());
        Some(found)
    }

    /// Drops some of what was not needed; gives the pages of that.
    fn give_back(&mut self, pages: usize) -> usize {
        let most = GIVEN_BACK.min(GIVEN_BACK_PAGES / pages);
        // Those at the front were dropped first.
        let dropped = self.buffers.drain(..self.least.min(most)).len();
        self.least = self.buffers.len();
        dropped * pages
    }
}

impl Kept {
    /// Those of a length, which is not 0.
    fn of_length(&mut self, pages: usize) -> Option<&mut OneLength> {
        match pages {
            1..=SHORT_PAGES => self.short.get_mut(pages - 1),
            _ => self.longer.get_mut(&pages),
        }
    }

    fn take(pages: usize) -> Option<Vec<Page>> {
        let take = |kept: &mut Kept| {
            let found = kept.of_length(pages)?.take()?;
            kept.pages -= pages;
            Some(found)
        };
        KEPT.try_with(|kept| take(&mut kept.borrow_mut())).ok().flatten()
    }

    /// Memory for a new buffer came from the allocator.
    fn made(pages: usize) {
        let _ = KEPT.try_with(|kept| kept.borrow_mut().made += pages);
    }

    fn put(pages: Vec<Page>) {
        let count = pages.len();
        if count == 0 {
            return;
        }
        // When the thread ends there is nowhere to keep it, which is as well.
        let _ = KEPT.try_with(|kept| {
            let kept = &mut *kept.borrow_mut();
            if count > KEPT_PAGES || kept.pages + count > KEPT_IN_ALL {
                kept.made = kept.made.saturating_sub(count);
                return;
            }
            if count > SHORT_PAGES {
                kept.longer.entry(count).or_default();
            }
            if let Some(same) = kept.of_length(count) {
                same.buffers.push(pages);
                kept.pages += count;
            }
        });
    }

    fn give_back(&mut self) {
        let short = self.short.iter_mut().zip(1..).map(|(same, pages)| (pages, same));
        let longer = self.longer.iter_mut().map(|(pages, same)| (*pages, same));
        for (pages, same) in short.chain(longer) {
            let given_back = same.give_back(pages);
            self.pages -= given_back;
            self.made = self.made.saturating_sub(given_back);
        }
        self.longer.retain(|_, same| !same.buffers.is_empty());
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_its_bytes() {
        let mut buf = AlignedBuf::zeroed(5000);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        buf.as_mut_slice()[4999] = 7;
        buf.set_len(8192);
        let bytes = buf.freeze();
        assert!(AlignedBuf::is_aligned(&bytes));
        assert_eq!((bytes[4999], bytes[5000]), (7, 0));
        assert!(!AlignedBuf::is_aligned(&bytes[512..]));
    }

    #[test]
    fn a_buffer_that_is_used_again_is_zero_if_asked_for() {
        let mut buf = AlignedBuf::zeroed(5000);
        buf.as_mut_slice().fill(7);
        drop(buf);
        let again = AlignedBuf::for_overwrite(6000);
        assert_eq!((again.as_slice()[0], again.capacity()), (7, 8192));
        drop(again);
        assert!(AlignedBuf::zeroed(8192).as_slice().iter().all(|b| *b == 0));
        let many: Vec<_> = (0..2 * KEPT_IN_ALL).map(|_| AlignedBuf::zeroed(4096)).collect();
        drop(many);
        let one_more = AlignedBuf::zeroed(4096);
        KEPT.with(|kept| {
            let kept = kept.borrow();
            let all = kept.short.iter().flat_map(|same| &same.buffers);
            let counted: usize = all.map(Vec::len).sum();
            assert_eq!((kept.pages, counted), (KEPT_IN_ALL - 1, KEPT_IN_ALL - 1));
        });
        drop(one_more);
    }

    #[test]
    fn what_is_not_needed_is_given_back() {
        let some = |n| drop((0..n).map(|_| AlignedBuf::zeroed(8192)).collect::<Vec<_>>());
        let kept = || KEPT.with(|kept| kept.borrow().short[1].buffers.len());
        some(1000);
        give_back();
        assert_eq!(kept(), 1000, "all of them were needed until now");
        while kept() > 300 {
            let before = kept();
            some(300);
            give_back();
            assert_eq!(kept(), before.saturating_sub(GIVEN_BACK).max(300));
        }
        some(300);
        give_back();
        assert_eq!(kept(), 300);
        (0..3).for_each(|_| give_back());
        KEPT.with(|kept| assert_eq!(kept.borrow().pages, 0));
    }

    #[test]
    fn all_buffers_are_counted() {
        let some: Vec<_> = [1, 5000, 70_000, 4 << 20, 5 << 20].map(AlignedBuf::zeroed).into();
        let all: usize = some.iter().map(AlignedBuf::capacity).sum();
        assert_eq!(buffer_bytes(), all);
        drop(some);
        assert_eq!(buffer_bytes(), all - (5 << 20), "one is too long to be kept");
        let again = AlignedBuf::for_overwrite(4 << 20);
        assert_eq!(buffer_bytes(), all - (5 << 20));
        drop(again.freeze());
        (0..3).for_each(|_| give_back());
        assert_eq!(buffer_bytes(), 0);
    }

    #[test]
    fn of_a_buffer_little_is_unused() {
        for pages in 1..=KEPT_PAGES {
            let (taken, most) =
                (pages_for(pages * BLOCK_BYTES), if pages > SHORT_PAGES { 8 } else { 2 });
            assert!((pages..=pages + pages / most).contains(&taken), "{taken} for {pages}");
            assert_eq!(pages_for(taken * BLOCK_BYTES), taken);
        }
    }

    #[test]
    fn long_buffers_are_kept_too_and_no_more_than_all() {
        const LONG: usize = 4 << 20;
        let kept = || KEPT.with(|kept| kept.borrow().pages * BLOCK_BYTES);
        let mut buf = AlignedBuf::zeroed(LONG);
        buf.as_mut_slice().fill(7);
        drop(buf);
        assert_eq!(kept(), LONG);
        let again = AlignedBuf::for_overwrite(LONG);
        assert_eq!((again.as_slice()[LONG - 1], kept()), (7, 0));
        drop(again);
        assert!(AlignedBuf::zeroed(LONG).as_slice().iter().all(|b| *b == 0));
        // One of about that length is one of these, a shorter one is not.
        drop(AlignedBuf::for_overwrite(LONG - BLOCK_BYTES));
        assert_eq!(kept(), LONG);
        drop(AlignedBuf::for_overwrite(LONG / 2));
        assert_eq!(kept(), LONG + LONG / 2);
        drop(AlignedBuf::zeroed((KEPT_PAGES + 1) * BLOCK_BYTES));
        assert_eq!(kept(), LONG + LONG / 2);
        drop((0..40).map(|_| AlignedBuf::for_overwrite(LONG)).collect::<Vec<_>>());
        assert!((120 << 20..=KEPT_IN_ALL * BLOCK_BYTES).contains(&kept()));
        let mut rounds = 0;
        while kept() > 0 {
            let before = kept();
            give_back();
            assert!(before - kept() <= 2 * GIVEN_BACK_PAGES * BLOCK_BYTES);
            rounds += 1;
        }
        assert!(rounds >= 10, "{rounds}");
        KEPT.with(|kept| assert!(kept.borrow().longer.is_empty()));
    }
}
