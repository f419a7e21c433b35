//! How long a mount takes of a store whose process ended in the middle of writing.

use crate::disks::{DiskWork, Disks};
use crate::failure::Failure;
use crate::machine::{clock, cpu_time};
use crate::sizes::Bytes;
use io::Effects;
use io::disk::DiskDone;
use rustix::time::ClockId;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use store::{Config, Expect, Mount, MountError, Store};
use uring::Open;

/// A mount that was measured.
pub(crate) struct Mounted {
    time: Duration,
    cpu: Duration,
    /// Bytes of the log that were needed.
    log_bytes: u64,
    objects: u64,
}

impl Mounted {
    pub(super) fn as_json(&self) -> Value {
        json!({"seconds": self.time.as_secs_f64(), "cpu_seconds": self.cpu.as_secs_f64(),
            "log_bytes": self.log_bytes, "objects": self.objects})
    }
}

impl fmt::Display for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mount after a crash: {:.2} s ({:.2} s of CPU), {} objects, {} of log replayed",
            self.time.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.objects,
            Bytes(self.log_bytes)
        )
    }
}

struct Work(Mount);

impl DiskWork for Work {
    type Outcome = Result<Box<Store>, MountError>;

    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome> {
        self.0.start(fx);
        None
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome> {
        self.0.handle(done, fx).map(|outcome| outcome.map(Box::new))
    }
}

/// Mounts the store and leaves it.
pub(super) fn mount(path: &Path, wal: Option<&Path>, config: &Config) -> Result<Mounted, Failure> {
    let disks = Disks::open(path, wal, Open::Existing)?;
    let work = Work(Mount::new(disks.devices.clone(), Expect::default(), config.clone()));
    let (began, cpu) = (clock(ClockId::Monotonic), cpu_time());
    let store = disks.work(work)?.map_err(|e| Failure::new("cannot mount the store", e))?;
    let time = clock(ClockId::Monotonic).saturating_sub(began);
    let cpu = cpu_time().saturating_sub(cpu);
    let usage = store.usage();
    Ok(Mounted { time, cpu, log_bytes: usage.log_used, objects: usage.objects })
}
