//! The memory of the process, as the kernel gives it and takes it back.

/// `VmRSS` of a process (proc(5)), in bytes; `None` when there is no such process.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

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

/// Lets the kernel give memory in small pages only. A huge one is cleared in one go, which takes up to
/// ten milliseconds on a virtual machine: so long everything waits that a loop serves.
pub fn avoid_huge_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: sets a flag of the process; where the kernel does not know it, nothing happens.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
}
