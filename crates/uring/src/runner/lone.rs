//! Waiting for a lone read of the disk without sleeping.
//!
//! A core that sleeps takes as long to wake as a fast disk takes to read a block. So a runner whose only
//! business is one read looks for its end for a moment, giving way to whoever else has work for the core.
//! With more under way there is always something to do, and it sleeps when there is not; so it does where
//! the disk is slow.

use io::disk::DiskOp;
use std::time::Duration;
use types::Mono;

/// Looks for the end so long, at most.
pub(super) const LOOK: Duration = Duration::from_micros(100);
/// Reads that usually take longer are not looked for.
const USUAL_MOST: Duration = Duration::from_micros(150);
/// The usual time follows each read by this part of the difference.
const FOLLOWS: u64 = 8;

/// The disk operations under way, and how long lone reads take.
#[derive(Debug, Default)]
pub(super) struct Lone {
    reads: usize,
    others: usize,
    /// Since when the only operation is under way.
    since: Option<Mono>,
    usual_ns: u64,
}

impl Lone {
    /// An operation begins.
    pub fn begins(&mut self, op: &DiskOp, now: Mono) {
        let is_read = matches!(op, DiskOp::Read { .. });
        if is_read {
            self.reads += 1
        } else {
            self.others += 1
        }
        self.since = (is_read && self.reads + self.others == 1).then_some(now);
    }

    /// A read has ended.
    pub fn read_ended(&mut self, now: Mono) {
        self.reads -= 1;
        if let Some(since) = self.since.take() {
            let took_ns = now.since(since).as_nanos() as u64;
            self.usual_ns = self.usual_ns - self.usual_ns / FOLLOWS + took_ns / FOLLOWS;
        }
    }

    /// Another operation has ended.
    pub fn other_ended(&mut self) {
        self.others -= 1;
    }

    /// Until when it is worth to look for the end of a lone read.
    pub fn look_until(&self) -> Option<Mono> {
        let usual = Duration::from_nanos(self.usual_ns);
        self.since.filter(|_| usual <= USUAL_MOST).map(|since| since.after(LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::disk::DevId;

    const READ: DiskOp = DiskOp::Read { dev: DevId(0), offset: 0, len: 4096 };
    const FLUSH: DiskOp = DiskOp::Flush { dev: DevId(0) };

    #[test]
    fn only_a_read_that_is_alone_is_looked_for() {
        let mut lone = Lone::default();
        assert_eq!(lone.look_until(), None);
        lone.begins(&READ, Mono(1000));
        assert_eq!(lone.look_until(), Some(Mono(1000).after(LOOK)));
        lone.begins(&READ, Mono(2000));
        assert_eq!(lone.look_until(), None);
        lone.read_ended(Mono(3000));
        assert_eq!(lone.look_until(), None, "the other one has been under way for some time");
        lone.read_ended(Mono(3000));
        lone.begins(&FLUSH, Mono(4000));
        lone.begins(&READ, Mono(4000));
        assert_eq!(lone.look_until(), None);
        lone.other_ended();
        lone.read_ended(Mono(5000));
        lone.begins(&READ, Mono(6000));
        assert!(lone.look_until().is_some());
    }

    #[test]
    fn a_slow_disk_is_slept_for_until_it_is_fast_again() {
        let mut lone = Lone::default();
        let mut read = |us: u64| {
            lone.begins(&READ, Mono(0));
            let looks = lone.look_until().is_some();
            lone.read_ended(Mono(us * 1000));
            looks
        };
        assert!((0..50).all(|_| read(60)));
        assert_eq!((0..50).filter(|_| read(5000)).count(), 1);
        assert!((0..50).filter(|_| read(60)).count() > 10);
    }
}
