//! The disks of a store: opened, and worked on by a state machine until it has an outcome.

use crate::failure::{Exit, Failure};
use crate::wait::Deadline;
use io::disk::DiskDone;
use io::{Core, Effects, Event, Now};
use std::path::Path;
use std::time::Duration;
use store::Devices;
use types::Mono;
use uring::{Device, DeviceError, Open, Unusable};

/// An OSD's data folder holds its disk under this name, as Ceph has it.
pub const BLOCK: &str = "block";
/// And, if the log has a disk of its own, that one under this.
pub const BLOCK_WAL: &str = "block.wal";

/// How long the lock of a disk is waited for, unless its opener knows better.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// Who waits longer than this says so.
const TELL_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The open disks of a store.
pub struct Disks {
    /// For the runner: data first, then the log.
    pub open: Vec<Device>,
    /// For the store.
    pub devices: Devices,
}

impl Disks {
    /// Opens a store's disks and locks them against other processes.
    ///
    /// # Errors
    /// When one cannot be used.
    pub fn open(data: &Path, wal: Option<&Path>, how: Open) -> Result<Self, Failure> {
        Self::open_within(data, wal, how, LOCK_LIMIT)
    }

    /// The same, waiting so long for whoever holds their locks.
    ///
    /// # Errors
    /// When one cannot be used.
    pub fn open_within(
        data: &Path,
        wal: Option<&Path>,
        how: Open,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let open = |path: &Path, how| {
            let tell = || tracing::warn!("{}: waits until it is let go of", path.display());
            open_one(path, how, limit, tell).map_err(explain)
        };
        // A log device is never made: it is a disk, or part of one, that is there. If it is not, no file is made
        // for the data either.
        let existing = if how == Open::ReadOnly { how } else { Open::Existing };
        let wal = wal.map(|p| open(p, existing)).transpose()?;
        let data = open(data, how)?;
        let devices =
            Devices { data: data.info.clone(), wal: wal.as_ref().map(|w| w.info.clone()) };
        Ok(Disks { open: std::iter::once(data).chain(wal).collect(), devices })
    }

    /// Runs a state machine on the disks until it has an outcome.
    ///
    /// # Errors
    /// When there is no io_uring.
    pub fn work<W: DiskWork>(self, work: W) -> Result<W::Outcome, Failure> {
        let mut core = Worker { work, outcome: None };
        // An operator who interrupts this means it.
        let options = uring::Options { handle_signals: false, ..uring::Options::default() };
        uring::run(&mut core, self.open, None, &options)
            .map_err(|e| Failure::new("cannot work on the store's disk", e).exit(Exit::Machine))?;
        core.outcome.ok_or_else(|| Failure::new("work on the store's disk", "it has no outcome"))
    }
}

/// The kernel lets go of the disk of a process that was killed, or of a ring that was closed, only some
/// time after that: when its last operations are over.
fn open_one(
    path: &Path,
    how: Open,
    limit: Duration,
    tell: impl FnOnce(),
) -> Result<Device, DeviceError> {
    let deadline = Deadline::after(limit);
    let mut tell = Some(tell);
    let mut last = None;
    let opened = deadline.poll(LOOK_EVERY, || match uring::open(path, how) {
        // Who is to end waits no longer.
        Err(e) if e.kind == Unusable::InUse && !uring::is_stop_wanted() => {
            if let Some(tell) = tell.take_if(|_| deadline.elapsed() > TELL_AFTER) {
                tell();
            }
            last = Some(e);
            None
        }
        other => Some(other),
    });
    match (opened, last) {
        (Some(opened), _) => opened,
        (None, Some(in_use)) => Err(in_use),
        (None, None) => uring::open(path, how),
    }
}

fn explain(e: DeviceError) -> Failure {
    let exit = match e.kind {
        Unusable::InUse => Exit::Refused,
        Unusable::Missing | Unusable::NoSpace => Exit::Machine,
        Unusable::Other => Exit::Failed,
    };
    Failure::new("cannot use the store's disk", e).exit(exit)
}

/// What is done on disks: operations in, an outcome at the end.
pub trait DiskWork {
    /// What comes of it.
    type Outcome;
    /// Issues the first operations. `Some` when there is nothing to do.
    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome>;
    /// Takes in the end of an operation. `Some` is the outcome.
    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome>;
}

struct Worker<W: DiskWork> {
    work: W,
    outcome: Option<W::Outcome>,
}

impl<W: DiskWork> Core for Worker<W> {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = match event {
            Event::Start => self.work.start(fx),
            Event::Disk(done) => self.work.handle(done, fx),
            Event::Net(_) | Event::Kv(_) | Event::Timer | Event::Memory(_) | Event::Stop => None,
        };
        if self.outcome.is_some() {
            fx.exit(0, "done");
        }
    }

    fn end_turn(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

impl DiskWork for store::Mkfs {
    type Outcome = Result<store::Identity, store::MkfsError>;

    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome> {
        store::Mkfs::start(self, fx);
        None
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome> {
        store::Mkfs::handle(self, done, fx)
    }
}

impl DiskWork for store::Fsck {
    type Outcome = store::FsckReport;

    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome> {
        store::Fsck::start(self, fx)
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome> {
        store::Fsck::handle(self, done, fx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is slow has more to do than a moment's work when an OSD ends.
    #[test]
    fn a_disk_is_waited_for_until_it_is_let_go_of() {
        let path = std::env::temp_dir().join(format!("loligo-lock-{}", std::process::id()));
        let holder = uring::open(&path, Open::Create { bytes: 1 << 20 }).unwrap();
        let refused = open_one(&path, Open::Existing, Duration::ZERO, || ());
        assert_eq!(refused.unwrap_err().kind, Unusable::InUse);
        let long = Duration::from_secs(60);
        let opened = open_one(&path, Open::Existing, long, || drop(holder));
        std::fs::remove_file(&path).unwrap();
        assert!(opened.is_ok());
    }
}
