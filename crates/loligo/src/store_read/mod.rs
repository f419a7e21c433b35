//! Reading a store that no OSD has open, and that may be damaged: `loligo store ls, dump, export`.
//!
//! The store is opened for reading only, and what is damaged is passed over: everything that can
//! still be read comes out, and what cannot is named.

pub(crate) mod dump;
pub(crate) mod export;
pub(crate) mod format;
pub(crate) mod import;
pub(crate) mod list;

use crate::cli::StorePath;
use crate::disks::{DiskWork, Disks};
use crate::failure::{Exit, Failure};
use crate::store_tool::disks_of;
use io::disk::DiskDone;
use io::{Effects, Now};
use store::{
    Config, Miss, MountError, MountReadOnly, ReadSet, ReadStore, Store, StoreError, StoreEvent,
};
use uring::Open;

/// Memory for reading a store.
const READ_BYTES: usize = 256 << 20;

/// Something that is read out of a store, step by step.
pub(crate) trait Job {
    /// What comes of it.
    type Outcome;
    /// Takes one step. An error names what must be read first; then the step is taken again.
    fn step(&mut self, store: &Store, set: &ReadSet) -> Result<Option<Self::Outcome>, Miss>;
    /// What the step needs cannot be read.
    fn failed(&mut self, why: &StoreError) -> Option<Self::Outcome>;
}

/// What was read, and what is damaged in the store.
pub(crate) struct WasRead<T> {
    pub outcome: T,
    pub problems: Vec<String>,
}

struct Reading<J> {
    job: J,
    mount: MountReadOnly,
    store: Option<ReadStore>,
    set: ReadSet,
    fetching: bool,
}

impl<J: Job> Reading<J> {
    fn go_on(&mut self, fx: &mut Effects) -> Option<Result<WasRead<J::Outcome>, MountError>> {
        let store = self.store.as_mut()?;
        loop {
            while let Some(event) = store.poll_event() {
                let StoreEvent::Fetched { result, .. } = event else { continue };
                self.fetching = false;
                match result {
                    Ok(more) => self.set.merge(more),
                    Err(why) => {
                        self.set = ReadSet::new();
                        if let Some(outcome) = self.job.failed(&why) {
                            return Some(Ok(was_read(outcome, store)));
                        }
                    }
                }
            }
            if self.fetching {
                return None;
            }
            match self.job.step(store, &self.set) {
                Ok(None) => self.set = ReadSet::new(),
                Ok(Some(outcome)) => return Some(Ok(was_read(outcome, store))),
                Err(miss) => {
                    self.fetching = true;
                    store.fetch(Now::default(), miss, 0, fx);
                }
            }
        }
    }
}

fn was_read<T>(outcome: T, store: &ReadStore) -> WasRead<T> {
    WasRead { outcome, problems: store.problems().to_vec() }
}

impl<J: Job> DiskWork for Reading<J> {
    type Outcome = Result<WasRead<J::Outcome>, MountError>;

    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome> {
        self.mount.start(fx).map(Err)
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome> {
        if let Some(store) = &mut self.store {
            store.handle(Now::default(), done, fx);
        } else {
            match self.mount.handle(done, fx)? {
                Ok(store) => self.store = Some(store),
                Err(why) => return Some(Err(why)),
            }
        }
        self.go_on(fx)
    }
}

/// Does a job on a store.
pub(crate) fn read<J: Job>(place: &StorePath, job: J) -> Result<WasRead<J::Outcome>, Failure> {
    let (path, wal) = disks_of(place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::ReadOnly)?;
    let mount = MountReadOnly::new(disks.devices.clone(), Config::for_memory(READ_BYTES));
    let set = ReadSet::new();
    let work = Reading { job, mount, store: None, set, fetching: false };
    let outcome = disks.work(work)?;
    outcome.map_err(|why| Failure::new("cannot read a store", &why).exit(exit_of(&why)))
}

/// How a command ends whose store cannot be mounted.
pub(crate) fn exit_of(why: &MountError) -> Exit {
    if why.is_of_device() { Exit::Failed } else { Exit::Refused }
}

/// Says what is damaged, beside the output.
pub(crate) fn complain(problems: &[String]) -> Exit {
    for problem in problems {
        eprintln!("damaged: {problem}");
    }
    if problems.is_empty() { Exit::Done } else { Exit::Damaged }
}
