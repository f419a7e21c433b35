//! `loligo store ls`: the objects of a store, as far as their records can be read.

use crate::cli::{StoreLs, StorePath};
use crate::disks::{DiskWork, Disks};
use crate::failure::{Context, Exit, Failure};
use crate::store_tool::{disks_of, object_name};
use io::Effects;
use io::disk::DiskDone;
use serde_json::json;
use std::io::{BufWriter, Write};
use store::{Config, Fsck, FsckReport, Severity};
use types::ObjectKey;
use uring::Open;

/// Memory for the log's changes.
const LIST_BYTES: usize = 256 << 20;

struct Listing<T> {
    fsck: Fsck,
    take: T,
}

impl<T: FnMut(ObjectKey, u64)> DiskWork for Listing<T> {
    type Outcome = FsckReport;

    fn start(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        self.fsck.start(fx)
    }

    fn handle(&mut self, done: DiskDone, fx: &mut Effects) -> Option<FsckReport> {
        let report = self.fsck.handle(done, fx);
        self.fsck.take_objects().into_iter().for_each(|(key, bytes)| (self.take)(key, bytes));
        report
    }
}

/// The wanted objects of a store, in order, and what is damaged.
pub(crate) fn objects(
    place: &StorePath,
    wanted: impl Fn(&ObjectKey) -> bool,
) -> Result<(Vec<(ObjectKey, u64)>, FsckReport), Failure> {
    let mut objects = Vec::new();
    let report = each_object(place, |key, bytes| {
        if wanted(&key) {
            objects.push((key, bytes));
        }
    })?;
    Ok((objects, report))
}

/// Shows the objects of a store, in order and as they are found. Answers what is damaged.
fn each_object(place: &StorePath, take: impl FnMut(ObjectKey, u64)) -> Result<FsckReport, Failure> {
    let (path, wal) = disks_of(place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::ReadOnly)?;
    let config = Config::for_memory(LIST_BYTES);
    let fsck = Fsck::new(disks.devices.clone(), false, &config).listing();
    let report = disks.work(Listing { fsck, take })?;
    if report.identity.is_none() {
        let why = report.findings.first().map_or("it holds no store", |f| &f.what);
        return Err(Failure::new("cannot read a store", why).exit(Exit::Refused));
    }
    Ok(report)
}

/// Objects, written as they come: there may be more than fit into memory.
struct Printer<W> {
    out: W,
    as_json: bool,
    number: u64,
    /// Nobody reads on, or there is no room; then nothing more is written.
    result: std::io::Result<()>,
}

impl<W: Write> Printer<W> {
    fn object(&mut self, key: &ObjectKey, bytes: u64) {
        if self.result.is_err() {
            return;
        }
        let name = object_name(key);
        self.result = if self.as_json {
            let before = if self.number == 0 { "[\n  " } else { ",\n  " };
            let object = json!({"object": name, "bytes": bytes});
            write!(self.out, "{before}{object}")
        } else {
            writeln!(self.out, "{bytes:>12} {name}")
        };
        self.number += 1;
    }

    fn end(mut self) -> std::io::Result<()> {
        self.result?;
        match (self.as_json, self.number) {
            (true, 0) => writeln!(self.out, "[]")?,
            (true, _) => writeln!(self.out, "\n]")?,
            (false, _) => {}
        }
        self.out.flush()
    }
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
    let is_wanted = |key: &ObjectKey| {
        args.pool.is_none_or(|pool| key.decode().is_ok_and(|object| object.pool.0 == pool))
    };
    let out = BufWriter::new(std::io::stdout().lock());
    let mut printer = Printer { out, as_json: args.place.json, number: 0, result: Ok(()) };
    let report = each_object(&args.place, |key, bytes| {
        if is_wanted(&key) {
            printer.object(&key, bytes);
        }
    })?;
    printer.end().context(|| "cannot write the list".to_owned())?;
    Ok(super::complain(&damage(&report)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use types::HObject;

    fn printed(as_json: bool, sizes: &[u64]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, as_json, number: 0, result: Ok(()) };
        sizes.iter().for_each(|bytes| printer.object(&HObject::min().to_key(), *bytes));
        printer.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_written_piece_by_piece_is_one_list() {
        for sizes in [&[][..], &[7], &[7, 8, 9]] {
            let all: Vec<Value> = serde_json::from_str(&printed(true, sizes)).unwrap();
            let bytes: Vec<u64> = all.iter().filter_map(|o| o["bytes"].as_u64()).collect();
            assert_eq!(bytes, sizes);
            assert_eq!(printed(false, sizes).lines().count(), sizes.len());
        }
    }
}
