//! `loligo store`: making, checking and showing a store that no OSD has open.

use crate::cli::{StoreArgs, StoreCommand, StoreMkfs, StorePath};
use crate::disks::{BLOCK, BLOCK_WAL, Disks};
use crate::failure::{Context, Exit, Failure};
use crate::files::MadeFile;
use crate::sizes::Bytes;
use crate::store_read;
use crate::sync_client::entropy;
use io::BLOCK_BYTES;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use store::{Config, Finding, Fsck, FsckReport, Identity, Mkfs, MkfsError, Severity, SpaceReport};
use types::{ObjectKey, OsdId, Uuid};
use uring::Open;

/// A smaller disk makes no sense: the log and the reserve would be most of it.
pub const MIN_DISK_BYTES: u64 = 64 << 20;
/// The log of a store is this part of its disk, within bounds: large enough to gather many small
/// writes to one place, small enough to be read in a second when an OSD starts after a crash.
const LOG_SHARE: u64 = 16;
const MIN_LOG_BYTES: u64 = 16 << 20;
const MAX_LOG_BYTES: u64 = 1 << 30;
/// Memory for a check.
const CHECK_BYTES: usize = 256 << 20;

/// Carries out `loligo store`.
///
/// # Errors
/// When it could not be done.
pub fn run(args: &StoreArgs) -> Result<Exit, Failure> {
    match &args.command {
        StoreCommand::Mkfs(args) => run_mkfs(args),
        StoreCommand::Fsck(place) => run_fsck(place),
        StoreCommand::Info(place) => run_info(place),
        StoreCommand::Count(place) => crate::store_count::run(place),
        StoreCommand::Ls(args) => store_read::list::run(args),
        StoreCommand::Dump(args) => store_read::dump::run(args),
        StoreCommand::Export(args) => store_read::export::run(args),
        StoreCommand::Import(args) => store_read::import::run(args),
        StoreCommand::Bench(args) => crate::store_bench::run(args),
    }
}

/// A store to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewStore<'a> {
    /// A file or block device.
    pub path: &'a Path,
    /// A device for the log alone.
    pub wal: Option<&'a Path>,
    /// Whose it will be.
    pub cluster: Uuid,
    /// Whose it will be.
    pub osd: OsdId,
    /// Size of a file that is to be made.
    pub bytes: Option<u64>,
    /// Whether what is there is destroyed.
    pub force: bool,
}

/// Makes an empty store, in a new file or on what is there.
///
/// # Errors
/// When it could not be made, or there is something already. A file that was made for it is gone
/// again then.
pub fn mkfs(new: &NewStore<'_>) -> Result<Identity, Failure> {
    Prepared::new(new, |_| Ok(()))?.make()
}

/// A store that is about to be made: its disks are open, nobody else has them, and there is room. If it is not
/// made, a file that was made for it goes again.
pub(crate) struct Prepared {
    disks: Disks,
    work: Mkfs,
    file: MadeFile,
}

impl Prepared {
    /// Opens the disks, and has them judged before anything else.
    pub(crate) fn new(
        new: &NewStore<'_>,
        judge: impl FnOnce(&Disks) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let is_new = !is_there(new.path)?;
        let how = new.bytes.map_or(Open::Existing, |bytes| Open::Create { bytes });
        let disks = Disks::open(new.path, new.wal, how)?;
        let file = MadeFile::new(new.path, is_new);
        judge(&disks)?;
        let bytes = disks.devices.data.bytes;
        let is_as_wanted = |size: u64| size.next_multiple_of(BLOCK_BYTES as u64) == bytes;
        if !new.bytes.is_none_or(is_as_wanted) {
            let why = format!("it is there, and has {}", Bytes(bytes));
            let what = format!("cannot make {} as large as that", new.path.display());
            return Err(Failure::new(what, why).exit(Exit::Refused).advise(
                "Leave out --size to make the store on what is there, or remove that first.",
            ));
        }
        if bytes < MIN_DISK_BYTES {
            let path = new.path.display().to_string();
            return Err(not_made(MkfsError::TooSmall { path, bytes, min: MIN_DISK_BYTES }));
        }
        let random = u128::from(entropy()) << 64 | u128::from(entropy());
        let identity =
            Identity { cluster: new.cluster, osd: new.osd, store: Uuid::from_random(random) };
        let log = (bytes / LOG_SHARE).clamp(MIN_LOG_BYTES, MAX_LOG_BYTES);
        let config = Config { wal_bytes: log - log % BLOCK_BYTES as u64, ..Config::default() };
        let work = Mkfs::new(disks.devices.clone(), identity, &config, new.force);
        Ok(Prepared { disks, work: work.map_err(not_made)?, file })
    }

    /// Makes it.
    pub(crate) fn make(mut self) -> Result<Identity, Failure> {
        let identity = self.disks.work(self.work)?.map_err(not_made)?;
        self.file.keep();
        crate::files::sync_folder_of(self.file.path())?;
        Ok(identity)
    }
}

fn not_made(e: MkfsError) -> Failure {
    let exit = match e {
        MkfsError::InUse { .. } => Exit::Refused,
        MkfsError::TooSmall { .. } | MkfsError::Io { .. } => Exit::Machine,
    };
    Failure::new("cannot make a store", e).exit(exit)
}

fn run_mkfs(args: &StoreMkfs) -> Result<Exit, Failure> {
    let new = NewStore {
        path: &args.path,
        wal: args.wal.as_deref(),
        cluster: args.fsid,
        osd: OsdId(args.id.cast_signed()),
        bytes: args.size.map(|b| b.0),
        force: args.force,
    };
    let made = mkfs(&new)?;
    let path = args.path.display();
    if args.json {
        println!("{}", json!({"path": args.path, "identity": identity_json(&made)}));
    } else {
        println!("Made a store for osd.{} of cluster {} on {path}.", made.osd, made.cluster);
    }
    Ok(Exit::Done)
}

/// The disks that a path means: an OSD's folder stands for what is in it.
///
/// # Errors
/// When it cannot be told whether the log has a disk of its own.
pub fn disks_of(place: &StorePath) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    if !place.path.is_dir() {
        return Ok((place.path.clone(), place.wal.clone()));
    }
    let wal = place.path.join(BLOCK_WAL);
    let wal = match &place.wal {
        Some(named) => Some(named.clone()),
        None => is_there(&wal)?.then_some(wal),
    };
    Ok((place.path.join(BLOCK), wal))
}

/// Whether there is something of this name. A link that leads nowhere is an error: what it names may be a disk
/// that is not plugged in.
///
/// # Errors
/// When that cannot be told.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    let what = || format!("cannot use {}", path.display());
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.context(what)?,
    };
    match path.metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let to = std::fs::read_link(path).unwrap_or_default();
            let why = format!("it is a link to {}, which does not exist", to.display());
            Err(Failure::new(what(), why).exit(Exit::Refused).advise(
                "Is a disk not plugged in, or has it another name now? Otherwise remove the link.",
            ))
        }
        other => other.map(|_| true).context(what),
    }
}

/// A store that was checked.
struct Checked {
    path: PathBuf,
    bytes: u64,
    identity: Identity,
    report: FsckReport,
}

fn check(place: &StorePath, data: bool) -> Result<Checked, Failure> {
    let (path, wal) = disks_of(place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::ReadOnly)?;
    let bytes = disks.devices.data.bytes;
    let account_of = Some(osd::offline::store_accounts());
    let config = Config { account_of, ..Config::for_memory(CHECK_BYTES) };
    let work = Fsck::new(disks.devices.clone(), data, &config);
    let report = disks.work(work)?;
    let Some(identity) = report.identity else {
        let why = report.findings.first().map_or("it holds no store", |f| &f.what);
        return Err(Failure::new("cannot read a store", why).exit(Exit::Refused));
    };
    Ok(Checked { path, bytes, identity, report })
}

fn run_fsck(place: &StorePath) -> Result<Exit, Failure> {
    let checked = check(place, true)?;
    if place.json {
        println!("{:#}", checked.as_json());
    } else {
        print!("{}{}", checked.findings_text(), checked.summary_text());
    }
    Ok(if checked.report.is_damaged() { Exit::Damaged } else { Exit::Done })
}

fn run_info(place: &StorePath) -> Result<Exit, Failure> {
    let checked = check(place, false)?;
    if place.json {
        println!("{:#}", checked.as_json());
    } else {
        print!("{}", checked.info_text());
    }
    Ok(if checked.report.is_damaged() { Exit::Damaged } else { Exit::Done })
}

fn identity_json(identity: &Identity) -> Value {
    json!({
        "cluster": identity.cluster.to_string(), "osd": identity.osd.0,
        "store": identity.store.to_string(),
    })
}

/// An object as people know it.
pub(crate) fn object_name(key: &ObjectKey) -> String {
    key.decode().map_or_else(|_| format!("{key:?}"), |object| object.to_string())
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": severity(finding.severity), "place": finding.place,
        "object": finding.object.as_ref().map(object_name), "what": finding.what,
    })
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Damage => "damage",
    }
}

fn space_json(s: &SpaceReport) -> Value {
    json!({
        "total_bytes": s.total, "system_bytes": s.system, "log_bytes": s.log,
        "log_used_bytes": s.log_used, "data_bytes": s.data, "padding_bytes": s.padding,
        "shared_bytes": s.shared, "saved_by_sharing_bytes": s.saved_by_sharing,
        "compressed_bytes": s.compressed, "compressed_original_bytes": s.compressed_original,
        "metadata_bytes": s.metadata, "free_bytes": s.free, "reserve_bytes": s.reserve,
    })
}

/// What the space is used for, by reason.
fn space_text(s: &SpaceReport) -> String {
    let mut out =
        format!("  data      {}, of which {} are padding\n", Bytes(s.data), Bytes(s.padding));
    // Writing to a string does not fail.
    if s.shared > 0 {
        let (shared, saved) = (Bytes(s.shared), Bytes(s.saved_by_sharing));
        let _ = writeln!(out, "  clones    {shared} of the data are shared, which saves {saved}");
    }
    if s.compressed > 0 {
        let (now, before) = (Bytes(s.compressed), Bytes(s.compressed_original));
        let _ = writeln!(out, "  packed    {now} of the data hold {before}, compressed");
    }
    let (metadata, log) = (Bytes(s.metadata), Bytes(s.log));
    let _ = writeln!(out, "  metadata  {metadata}, and {} of superblocks", Bytes(s.system));
    let _ = writeln!(out, "  log       {log} here; {} are needed", Bytes(s.log_used));
    let _ = writeln!(
        out,
        "  free      {}, of which {} are kept for removals and bookkeeping",
        Bytes(s.free),
        Bytes(s.reserve)
    );
    out
}

fn blocks(n: u64) -> Bytes {
    Bytes(n.saturating_mul(BLOCK_BYTES as u64))
}

impl Checked {
    fn as_json(&self) -> Value {
        let r = &self.report;
        json!({
            "path": self.path, "bytes": self.bytes,
            "identity": identity_json(&self.identity),
            "closed_in_order": r.clean, "good": r.is_good(), "damaged": r.is_damaged(),
            "findings": r.findings.iter().map(finding_json).collect::<Vec<_>>(),
            "more_findings": r.more_findings, "more_damage": r.more_damage,
            "objects": r.objects, "object_bytes": r.object_bytes,
            "data_bytes": blocks(r.data_blocks).0, "shared_bytes": blocks(r.shared_blocks).0,
            "tree_bytes": blocks(r.node_blocks).0, "tree_nodes": r.nodes,
            "space": space_json(&r.space),
            "log_batches": r.log_batches, "checked_bytes": blocks(r.blocks_checked).0,
        })
    }

    fn findings_text(&self) -> String {
        let mut out = String::new();
        for f in &self.report.findings {
            let object = f.object.as_ref().map(|o| format!(": object {}", object_name(o)));
            let (kind, object) = (severity(f.severity), object.unwrap_or_default());
            // Writing to a string does not fail.
            let _ = writeln!(out, "{kind}: {}{object}: {}", f.place, f.what);
        }
        if self.report.more_findings > 0 {
            let (more, damage) = (self.report.more_findings, self.report.more_damage);
            let _ = writeln!(out, "... and {more} more, {damage} of them damage");
        }
        out
    }

    fn summary_text(&self) -> String {
        let r = &self.report;
        let verdict = if r.is_damaged() {
            "is damaged"
        } else if r.is_good() {
            "is good"
        } else {
            "has lost nothing"
        };
        format!(
            "{} {verdict}: {} objects, {} of data read and compared with their checksums, {} tree \
             nodes, {} log batches.\n",
            self.path.display(),
            r.objects,
            blocks(r.blocks_checked),
            r.nodes,
            r.log_batches
        )
    }

    fn info_text(&self) -> String {
        let (r, identity) = (&self.report, &self.identity);
        let (path, size) = (self.path.display(), Bytes(self.bytes));
        let closed =
            if r.clean { "in order" } else { "not in order; the next start replays its log" };
        let health = match (r.is_damaged(), r.is_good()) {
            (true, _) => "DAMAGED; `loligo store fsck` says where",
            (_, true) => "good, as far as metadata tell; `loligo store fsck` reads all data",
            _ => "nothing is lost; `loligo store fsck` says more",
        };
        format!(
            "{path}\n  OSD       osd.{}\n  cluster   {}\n  store     {}\n  size      {size}\n  \
             objects   {}, {} in them\n{}  closed    {closed}\n  health    {health}\n",
            identity.osd,
            identity.cluster,
            identity.store,
            r.objects,
            Bytes(r.object_bytes),
            space_text(&r.space),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_as_large_as_it_was_asked_for_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (path, none) = (dir.path().join("block"), dir.path().join("none"));
        let new = NewStore {
            path: &path,
            wal: None,
            cluster: Uuid([1; 16]),
            osd: OsdId(0),
            bytes: Some(MIN_DISK_BYTES),
            force: true,
        };
        assert!(mkfs(&NewStore { wal: Some(&none), ..new }).is_err());
        assert!(!path.exists(), "a file without a store");
        mkfs(&new).unwrap();
        let twice = NewStore { bytes: Some(2 * MIN_DISK_BYTES), ..new };
        let failure = mkfs(&twice).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.why.contains("it is there"), "{failure}");
        mkfs(&new).unwrap();
        mkfs(&NewStore { bytes: None, ..new }).unwrap();
    }
}
