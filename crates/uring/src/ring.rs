//! The ring: pushing entries and taking completions.

use io_uring::squeue::Entry;
use io_uring::{IoUring, cqueue};

/// A submission and a completion queue.
pub(crate) struct Ring {
    ring: IoUring,
}

/// One completion.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub key: u64,
    /// Bytes or descriptor, or a negative error number.
    pub result: i32,
    /// More completions of the same entry will follow.
    pub more: bool,
    /// Of a receive: there was more to be received.
    pub has_rest: bool,
}

impl Ring {
    pub fn new(entries: u32) -> std::io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            // Says when completions wait to be made, so that a submission that waits for nothing makes
            // them, too: without it requests stand behind all background work that is at hand.
            .setup_taskrun_flag()
            .setup_cqsize(entries * 4)
            .build(entries)?;
        Ok(Ring { ring })
    }

    /// Shows the kernel memory that fixed reads will go to, as buffer 0.
    ///
    /// # Safety
    /// The memory must stay valid as long as the ring.
    pub unsafe fn register(&mut self, memory: libc::iovec) -> std::io::Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.ring.submitter().register_buffers(&[memory]) }
    }

    /// Queues an entry; when the queue is full, what is in it is submitted first.
    ///
    /// # Safety
    /// All memory and descriptors that `entry` names must stay valid, and must not be touched, until
    /// the last completion with its `user_data` has been taken from the ring.
    pub unsafe fn push(&mut self, entry: &Entry) -> std::io::Result<()> {
        loop {
            // SAFETY: passed on to the caller.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Submits, and waits for `want` completions. A timeout in the ring ends the wait as well.
    pub fn submit_and_wait(&mut self, want: usize) -> std::io::Result<()> {
        match self.ring.submit_and_wait(want) {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                // A signal came; the completion queue must be emptied first.
                Some(libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(e),
            },
        }
    }

    /// Whether there are completions, made or waiting to be made.
    pub fn has_news(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Makes the completions that wait to be made; without a system call if there are none.
    pub fn make_completions(&mut self) -> std::io::Result<()> {
        if self.ring.submission().taskrun() { self.submit_and_wait(0) } else { Ok(()) }
    }

    /// Takes all completions there are.
    pub fn take(&mut self, out: &mut Vec<Done>) {
        out.extend(self.ring.completion().map(|c| Done {
            key: c.user_data(),
            result: c.result(),
            more: cqueue::more(c.flags()),
            has_rest: cqueue::sock_nonempty(c.flags()),
        }));
    }
}
