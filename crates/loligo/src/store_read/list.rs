//! `loligo store ls`: the objects of a store, as far as their records can be read.

use crate::cli::{StoreLs, StorePath};
use crate::disks::{DiskWork, Disks};
use crate::failure::{Exit, Failure};
use crate::store_tool::{disks_of, object_name};
use io::Effects;
use io::disk::DiskDone;
use serde_json::{Value, json};
use store::{Config, Fsck, FsckReport, Severity};
use types::ObjectKey;
use uring::Open;

/// Memory for the log's changes.
const LIST_BYTES: usize = 256 << 20;

struct Listing {
    fsck: Fsck,
    objects: Vec<(ObjectKey, u64)>,
    wanted: Box<dyn Fn(&ObjectKey) -> bool>,
}

impl Listing {
    fn take(&mut self) {
        let found = self.fsck.take_objects();
        self.objects.extend(found.into_iter().filter(|(key, _)| (self.wanted)(key)));
    }
}

impl DiskWork for Listing {
    type Outcome = (FsckReport, Vec<(ObjectKey, u64)>);

    fn start(&mut self, fx: &mut Effects) -> Option<Self::Outcome> {
        let report = self.fsck.start(fx)?;
        Some((report, Vec::new()))
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<Self::Outcome> {
        let report = self.fsck.handle(done, fx);
        self.take();
        report.map(|report| (report, std::mem::take(&mut self.objects)))
    }
}

/// The wanted objects of a store, in order, and what is damaged.
pub(crate) fn objects(
    place: &StorePath,
    wanted: impl Fn(&ObjectKey) -> bool + 'static,
) -> Result<(Vec<(ObjectKey, u64)>, FsckReport), Failure> {
    let (path, wal) = disks_of(place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::ReadOnly)?;
    let config = Config::for_memory(LIST_BYTES);
    let fsck = Fsck::new(disks.devices.clone(), false, &config).listing();
    let work = Listing { fsck, objects: Vec::new(), wanted: Box::new(wanted) };
    let (report, objects) = disks.work(work)?;
    if report.identity.is_none() {
        let why = report.findings.first().map_or("it holds no store", |f| &f.what);
        return Err(Failure::new("cannot read a store", why).exit(Exit::Refused));
    }
    Ok((objects, report))
}

/// What is damaged in a store.
pub(crate) fn damage(report: &FsckReport) -> Vec<String> {
    let damage = report.findings.iter().filter(|f| f.severity == Severity::Damage);
    let mut damage: Vec<String> = damage.map(|f| format!("{}: {}", f.place, f.what)).collect();
    if report.more_damage > 0 {
        damage.push(format!("... and {} more that is not as it should be", report.more_damage));
    }
    damage
}

/// Carries out `loligo store ls`.
///
/// # Errors
/// When there is no store that could be read.
pub(crate) fn run(args: &StoreLs) -> Result<Exit, Failure> {
    let pool = args.pool;
    let wanted = move |key: &ObjectKey| {
        pool.is_none_or(|pool| key.decode().is_ok_and(|object| object.pool.0 == pool))
    };
    let (objects, report) = objects(&args.place, wanted)?;
    if args.place.json {
        let object = |(key, bytes): &(ObjectKey, u64)| -> Value {
            json!({"object": object_name(key), "bytes": bytes})
        };
        println!("{:#}", json!(objects.iter().map(object).collect::<Vec<_>>()));
    } else {
        for (key, bytes) in &objects {
            println!("{bytes:>12} {}", object_name(key));
        }
    }
    Ok(super::complain(&damage(&report)))
}
