//! Mounting a store that may be damaged, to read what can still be read.
//!
//! Nothing is written, not even the decisions of a mount: the store stays as it was found. What the
//! tree or the log cannot give is noted and passed over; what was to be found there is answered with
//! an error when it is read, or is missing when the log was cut off.

use super::Mount;
use crate::config::{Config, Devices, Expect};
use crate::error::MountError;
use crate::store::{Miss, Store, StoreEvent};
use io::disk::DiskDone;
use io::{Effects, Now};
use std::ops::Deref;

/// Problems beyond this are not noted.
pub const MAX_PROBLEMS: usize = 1000;

/// A mount for reading only, in progress.
pub struct MountReadOnly(Mount);

/// A store that can be read and not written.
pub struct ReadStore {
    store: Store,
    problems: Vec<String>,
}

impl MountReadOnly {
    /// Prepares to mount the store on `devices`, which are never written.
    pub fn new(devices: Devices, config: Config) -> MountReadOnly {
        let mut mount = Mount::new(devices, Expect::default(), config);
        mount.problems = Some(Vec::new());
        MountReadOnly(mount)
    }

    /// Issues the first operations. `Some` when there is nothing to be mounted.
    pub fn start(&mut self, fx: &mut Effects) -> Option<MountError> {
        self.0.read_supers(fx).err()
    }

    /// Takes in the end of an operation. `Some` is the outcome: an error only when not even a
    /// superblock, or the right devices, are there, or when a newer program has had the store.
    pub fn handle(
        &mut self,
        done: DiskDone,
        fx: &mut Effects,
    ) -> Option<Result<ReadStore, MountError>> {
        let outcome = self.0.handle(done, fx)?;
        let problems = self.0.problems.take().unwrap_or_default();
        Some(outcome.map(|store| ReadStore { store, problems }))
    }
}

impl Mount {
    /// Notes what is wrong when the store is only to be read; otherwise it ends the mount.
    pub(super) fn pass_over(&mut self, why: MountError) -> Result<(), MountError> {
        let Some(problems) = &mut self.problems else { return Err(why) };
        let text = match why {
            MountError::Damaged { place, what, .. } => format!("{place}: {what}"),
            other => other.to_string(),
        };
        if problems.len() < MAX_PROBLEMS {
            problems.push(text);
        }
        Ok(())
    }
}

/// All that reads: what changes a store needs it mutable.
impl Deref for ReadStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl ReadStore {
    /// What was passed over, up to [`MAX_PROBLEMS`].
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// As [`Store::fetch`].
    pub fn fetch(&mut self, now: Now, miss: Miss, waiter: u64, fx: &mut Effects) {
        self.store.fetch(now, miss, waiter, fx);
    }

    /// As [`Store::handle`].
    pub fn handle(&mut self, now: Now, done: DiskDone, fx: &mut Effects) -> bool {
        self.store.handle(now, done, fx)
    }

    /// As [`Store::poll_event`].
    pub fn poll_event(&mut self) -> Option<StoreEvent> {
        self.store.poll_event()
    }
}
