//! The ring: pushing entries and taking completions.

use io_uring::squeue::Entry;
use io_uring::{IoUring, cqueue};

/// How often the kernel is asked to take in what fills the queue, while it lacks memory for it.
const MAX_TRIES: usize = 10_000;

/// A submission and a completion queue.
pub(crate) struct Ring {
    ring: IoUring,
    /// Completions that were in the way.
    early: Vec<Done>,
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
        Ok(Ring { ring, early: Vec::new() })
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
        for _ in 0..MAX_TRIES {
            // SAFETY: passed on to the caller.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(e) if is_to_be_repeated(&e) => {
                    // There may be no place for more completions.
                    let mut early = std::mem::take(&mut self.early);
                    self.take_made(&mut early);
                    self.early = early;
                    std::thread::yield_now();
                }
                Err(e) => return Err(e),
            }
        }
        Err(std::io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// Submits, and waits for `want` completions. A timeout in the ring ends the wait as well.
    pub fn submit_and_wait(&mut self, want: usize) -> std::io::Result<()> {
        let want = if self.early.is_empty() { want } else { 0 };
        match self.ring.submit_and_wait(want) {
            Ok(_) => Ok(()),
            Err(e) if is_to_be_repeated(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Whether the kernel did not take in all that it was handed.
    pub fn has_rest(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Whether there are completions, made or waiting to be made.
    pub fn has_news(&mut self) -> bool {
        let is_there = !self.early.is_empty() || !self.ring.completion().is_empty();
        is_there || self.ring.submission().taskrun()
    }

    /// Makes the completions that wait to be made; without a system call if there are none.
    pub fn make_completions(&mut self) -> std::io::Result<()> {
        if self.ring.submission().taskrun() { self.submit_and_wait(0) } else { Ok(()) }
    }

    /// Takes all completions there are.
    pub fn take(&mut self, out: &mut Vec<Done>) {
        if !self.early.is_empty() {
            out.append(&mut self.early);
        }
        self.take_made(out);
    }

    fn take_made(&mut self, out: &mut Vec<Done>) {
        out.extend(self.ring.completion().map(|c| Done {
            key: c.user_data(),
            result: c.result(),
            more: cqueue::more(c.flags()),
            has_rest: cqueue::sock_nonempty(c.flags()),
        }));
    }
}

/// Whether the kernel may take it in when it is asked again: a signal came, it lacks memory for a moment, or the
/// completion queue must be emptied first.
fn is_to_be_repeated(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than its queues have places for.
    #[test]
    fn what_is_pushed_completes_however_much_it_is() {
        const MANY: u64 = 500;
        let mut ring = Ring::new(4).expect("there is io_uring");
        for key in 0..MANY {
            // SAFETY: it names no memory.
            unsafe { ring.push(&io_uring::opcode::Nop::new().build().user_data(key)) }.unwrap();
        }
        let mut done = Vec::new();
        while (done.len() as u64) < MANY {
            let (want, before) = (usize::from(!ring.has_news()), done.len());
            ring.submit_and_wait(want).unwrap();
            ring.take(&mut done);
            assert!(done.len() > before || ring.has_rest(), "{} of {MANY}", done.len());
        }
        let mut keys: Vec<u64> = done.iter().map(|d| d.key).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..MANY));
    }
}
