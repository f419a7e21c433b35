//! The memory that the process has freed.

/// Number of mimalloc's option `purge_delay` (`enum mi_option_e` in its `mimalloc.h`).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Freed memory goes back to the kernel so many milliseconds after it was freed.
const PURGE_DELAY_MS: std::ffi::c_long = 10_000;

/// Lets the process keep memory that it freed for ten seconds instead of one. A log and its tables
/// free in bursts what they need again a moment later: at the allocator's default, getting it back
/// page by page took 8 % of an OSD's time.
pub fn keep_freed_memory() {
    // SAFETY: sets a number that the allocator reads when it next frees memory; an option it does
    // not know is ignored.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) }
}
