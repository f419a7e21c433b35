//! The runner on io_uring: gives a [`io::Core`] the real disk, network and clock.
//!
//! One thread, one ring (and one for writes that nobody waits for), one core. A turn: wait for
//! completions (or the core's deadline), hand each to the core as an event, [`io::Core::end_turn`],
//! carry the effects out, submit. Everything that one turn sends on a connection leaves in one
//! system call; everything it asks of the disk is submitted together, behind what it sends.
//!
//! **Unsafe.** All of the project's `unsafe` is here. Beside setting an option of the allocator it
//! is of four kinds: pushing an entry to the ring (the kernel will read or write memory we name),
//! saying how many bytes of a buffer the kernel has filled, taking over a file descriptor the
//! kernel returned, and handing out parts of the memory that the kernel was shown for reads
//! ([`pool`]). One rule makes them sound: *memory and descriptors named in an entry are owned by
//! that entry's slot* ([`slots`]) *until its last completion has been taken from the ring*. Nothing
//! else may drop or touch them. At the end of a run the rings are torn down before the slots.

mod device;
mod memory;
mod net;
mod pool;
mod ring;
mod runner;
mod signals;
mod slots;
mod timer;

pub use device::{Device, DeviceError, Open, Unusable, open};
pub use memory::{avoid_huge_pages, keep_freed_memory, resident_bytes};
pub use runner::{Options, RunError, run};
pub use signals::is_stop_wanted;
