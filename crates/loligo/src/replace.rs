//! `loligo osd replace`: an empty store under the number of an OSD whose disk goes, and nothing lost.
//!
//! The mon is asked what the OSD still has that is needed, and the disks are looked at: only what holds nothing,
//! or is this OSD's own, is overwritten. When they are open, and nothing is left that could be in the way, the
//! OSD's data are marked as gone (`ceph osd destroy`), and a store is made. The OSD keeps its number and its
//! place, so only its own data move: they are copied to it when it is started.
//!
//! Where the new disk is another one, what the old one holds stays as it is, be it a device or a file: should
//! something have been overlooked, it is there to be exported. Not so if its log is on a disk of its own: that is made
//! anew with the new store, and without it the old one cannot be read. It is done only if that is said to be meant.

use crate::SyncClient;
use crate::cli::{OsdReplace, StorePath};
use crate::conf::ClientConf;
use crate::disks::{BLOCK, Disks};
use crate::failure::{Context, Exit, Failure};
use crate::files::{beside, folder_of, free_bytes, is_same_file, sync_folder_of};
use crate::sizes::Bytes;
use crate::store_tool::{MIN_DISK_BYTES, NewStore, Prepared, disks_of, is_there};
use crate::wait::Deadline;
use io::disk::DeviceInfo;
use serde_json::{Value, json};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{Content, Identity};
use types::{OsdId, Uuid};
use uring::Open;

/// Patience of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// PGs of an OSD that just stopped have this long to go on without it.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// PGs that a refusal names, at most.
const MAX_NAMED: usize = 5;

/// What goes with the OSD's data.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: every copy is elsewhere.
    Safe,
    /// Nothing is lost, but these PGs have fewer copies than they should until it is filled again.
    FewerCopies(usize),
    /// These PGs may need it: why.
    Needed(String),
    /// These PGs do not know yet that it stopped.
    Unsettled(String),
}

/// Carries out `loligo osd replace`.
///
/// # Errors
/// When it is refused, or could not be done.
pub fn run(args: &OsdReplace) -> Result<Exit, Failure> {
    let conf = ClientConf::find(args.conf.as_deref())?;
    crate::with_client(&conf, REQUEST_LIMIT, |client| replace(args, client))?
}

fn replace(args: &OsdReplace, client: &mut SyncClient) -> Result<Exit, Failure> {
    let what = format!("cannot replace osd.{}", args.id);
    let refuse = |why: String| Failure::new(what.clone(), why).exit(Exit::Refused);
    let cluster = check_osd(args, client, &refuse)?;
    let own = Own { cluster, osd: OsdId(args.id.cast_signed()) };
    let mut found = look_at_disks(args, own, &refuse)?;
    let disk = disk_of(args);
    let link = Link::plan(&disk, &args.data.join(BLOCK)).map_err(&refuse)?;
    let verdict = settled_verdict(args, client)?;
    let fewer = match &verdict {
        Verdict::Safe => 0,
        Verdict::FewerCopies(pgs) => *pgs,
        Verdict::Needed(why) | Verdict::Unsettled(why) => {
            return Err(refuse(why.clone()).advise(
                "Its data may be the last copy. Start it again if that can be done, and look at \
                 `ceph health detail`.",
            ));
        }
    };
    if fewer > 0 && !args.accept_fewer_copies {
        let why = format!("{fewer} PGs have fewer copies without it than they should");
        return Err(refuse(why).advise(
            "`ceph osd out` it and wait until all is active+clean: then nothing depends on it. Or \
             add --accept-fewer-copies: no data are lost, unless another disk fails before the new \
             one is filled.",
        ));
    }
    let loses_old = loses_old(link.is_some(), &found);
    if let Some(log) = found.log.as_ref().filter(|_| loses_old && args.yes && !args.reuse_log) {
        let log = log.display();
        let why =
            format!("the old disk keeps what it has, but its log on {log} would be made anew");
        return Err(refuse(why).advise(
            "Without the log nobody can read the old disk. Add --reuse-log if nothing on it is needed any more, or \
             `loligo store export` what is.",
        ));
    }
    let plan = Plan { id: args.id, cluster, disk, link, fewer, loses_old };
    let Some(store) = found.store.take().filter(|_| args.yes) else {
        plan.show(args.json, &found, None);
        return Ok(Exit::Done);
    };
    plan.link.as_ref().map_or(Ok(()), Link::keep_old)?;
    client.must(
        &json!({"prefix": "osd destroy", "id": args.id, "force": true, "yes_i_really_mean_it": true}),
    )?;
    let made = store.make()?;
    plan.link.as_ref().map_or(Ok(()), |link| link.make(&plan.disk))?;
    plan.show(args.json, &found, Some(&made));
    Ok(Exit::Done)
}

/// Whether a store is kept that cannot be read any more, since its log goes.
fn loses_old(to_other_disk: bool, found: &Found) -> bool {
    to_other_disk && found.is_readable && found.log.is_some()
}

/// That there is such an OSD, and that it does not run. The cluster's id.
fn check_osd(
    args: &OsdReplace,
    client: &mut SyncClient,
    refuse: &impl Fn(String) -> Failure,
) -> Result<Uuid, Failure> {
    let dump = client.must(&json!({"prefix": "osd dump"}))?;
    let fsid = dump["fsid"].as_str().and_then(|text| text.parse().ok());
    let cluster = fsid.ok_or_else(|| refuse("the cluster does not say its id".into()))?;
    let osds = dump["osds"].as_array().into_iter().flatten();
    let Some(osd) = osds.into_iter().find(|o| o["osd"] == args.id) else {
        return Err(refuse("the cluster has no such OSD".into())
            .advise("`ceph osd tree` lists them; a new one needs only `loligo store mkfs`."));
    };
    if osd["up"] != 1 {
        return Ok(cluster);
    }
    let id = args.id.to_string();
    let reply = client.command(&json!({"prefix": "osd ok-to-stop", "ids": [id]}));
    let reply = reply.context(|| "the cluster does not answer".into())?;
    let advice = match reply.status {
        0 => "Stop it, then do this again: all data stay available while it is stopped.".to_owned(),
        _ => format!("Do not stop it now: {}.", reply.outs),
    };
    Err(refuse("it runs".into()).advise(advice))
}

/// Where the new store is made.
fn disk_of(args: &OsdReplace) -> PathBuf {
    args.disk.clone().unwrap_or_else(|| args.data.join(BLOCK))
}

/// Whose stores may be overwritten.
#[derive(Clone, Copy)]
struct Own {
    cluster: Uuid,
    osd: OsdId,
}

/// What there is.
struct Found {
    /// The OSD's store, if it can be read.
    old: Option<Identity>,
    /// Whether that is so by the disk it has now.
    is_readable: bool,
    /// What the disk of the new store holds; `None`: it is a file that is to be made.
    disk: Option<Content>,
    /// The disk of its log alone, which is made anew with the store.
    log: Option<PathBuf>,
    /// The new store: it needs only to be made. `None`: only a plan is wanted, and it would be a new file.
    store: Option<Prepared>,
}

/// Looks at the OSD's folder, and at the disks of the new store: they must hold this OSD's, or nothing.
fn look_at_disks(
    args: &OsdReplace,
    own: Own,
    refuse: &impl Fn(String) -> Failure,
) -> Result<Found, Failure> {
    if !args.data.is_dir() {
        return Err(refuse(format!("{} is not a folder", args.data.display())));
    }
    let disk = disk_of(args);
    let old = look_at_old(args, own, refuse)?;
    let is_readable = old.is_some();
    let place = StorePath { path: args.data.clone(), wal: None, json: false };
    let (_, wal) = disks_of(&place)?;
    let is_new = !is_there(&disk)?;
    if is_new && args.size.is_none() {
        let why = format!("{} does not exist", disk.display());
        return Err(refuse(why).advise(
            "Name a disk that does by --disk, or say how large a file is to be made by --size.",
        ));
    }
    if let Some(size) = args.size.filter(|_| is_new && !args.yes) {
        check_new_file(&disk, size).map_err(|why| refuse(why).exit(Exit::Machine))?;
        if let Some(wal) = &wal {
            let device = Disks::open(wal, None, Open::ReadOnly)?;
            may_overwrite(&device.devices.data, own, refuse)?;
        }
        return Ok(Found { old, is_readable, disk: None, log: wal, store: None });
    }
    let new = NewStore {
        path: &disk,
        wal: wal.as_deref(),
        cluster: own.cluster,
        osd: own.osd,
        bytes: args.size.map(|size| size.0),
        // All of it was looked at.
        force: true,
    };
    let mut content = None;
    let store = Prepared::new(&new, |disks| {
        let devices = &disks.devices;
        content = Some(may_overwrite(&devices.data, own, refuse)?);
        devices.wal.as_ref().map(|wal| may_overwrite(wal, own, refuse)).transpose().map(drop)
    })?;
    let there = match content {
        Some(Content::Store(identity)) => Some(identity),
        _ => None,
    };
    let disk = content.filter(|_| !is_new);
    Ok(Found { old: old.or(there), is_readable, disk, log: wal, store: Some(store) })
}

/// Whether a file can be made for a disk.
fn check_new_file(disk: &Path, size: Bytes) -> Result<(), String> {
    let (folder, least) = (folder_of(disk), Bytes(MIN_DISK_BYTES));
    if size.0 < MIN_DISK_BYTES {
        return Err(format!("disks of {size} are too small: an OSD needs {least} at least"));
    }
    if !folder.is_dir() {
        return Err(format!("{} is not a folder", folder.display()));
    }
    let free = free_bytes(folder).map_err(|failure| failure.to_string())?;
    if free < size.0 {
        let free = Bytes(free);
        return Err(format!("{size} are wanted, {free} are free in {}", folder.display()));
    }
    Ok(())
}

/// What the OSD has now. If the new store goes elsewhere, that need not be readable, nor be there; but if it is a
/// file, which the link to the new disk takes the place of, it must be this OSD's.
fn look_at_old(
    args: &OsdReplace,
    own: Own,
    refuse: &impl Fn(String) -> Failure,
) -> Result<Option<Identity>, Failure> {
    let block = args.data.join(BLOCK);
    let disks = match Disks::open(&block, None, Open::ReadOnly) {
        Ok(disks) => disks,
        // Somebody has it who is not to be disturbed.
        Err(e) if e.exit == Exit::Refused => return Err(refuse(e.why)),
        Err(_) => return Ok(None),
    };
    let is_replaced = args.disk.is_some() && block.is_symlink();
    match may_overwrite(&disks.devices.data, own, refuse) {
        Ok(Content::Store(identity)) => Ok(Some(identity)),
        Ok(_) => Ok(None),
        Err(_) if is_replaced && !is_others(&disks.devices.data, own) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether a disk has the store of another OSD: then it is the wrong folder.
fn is_others(disk: &DeviceInfo, own: Own) -> bool {
    matches!(what_is_on(disk), Ok(Content::Store(found)) if !own.is(&found))
}

impl Own {
    fn is(self, found: &Identity) -> bool {
        (found.cluster, found.osd) == (self.cluster, self.osd)
    }
}

/// What a disk holds, if it may be overwritten.
fn may_overwrite(
    disk: &DeviceInfo,
    own: Own,
    refuse: &impl Fn(String) -> Failure,
) -> Result<Content, Failure> {
    let content = what_is_on(disk)?;
    let others = |what: &str, of: Identity| {
        let whose = format!("{what} of osd.{} of cluster {}", of.osd, of.cluster);
        Err(refuse(format!("{} holds {whose}", disk.path)))
    };
    match content {
        Content::Store(found) if !own.is(&found) => others("the store", found),
        Content::Log(found) if !own.is(&found) => others("the log", found),
        Content::Other(what) => Err(refuse(format!("{} holds {what}", disk.path)).advise(
            "If nobody needs that any more, empty the disk first: `wipefs --all` with its name, or zeros \
             over its first and last MiB.",
        )),
        Content::Nothing | Content::Store(_) | Content::Log(_) => Ok(content),
    }
}

/// What a disk holds. Only its start and its end are read: it may be about to die.
fn what_is_on(disk: &DeviceInfo) -> Result<Content, Failure> {
    let what = || format!("cannot read {}", disk.path);
    let mut file = File::open(&disk.path).context(what)?;
    let mut start = Vec::new();
    file.by_ref().take(store::PROBE_BYTES as u64).read_to_end(&mut start).context(what)?;
    let (bytes, at_end) = (disk.bytes, store::PROBE_END_BYTES as u64);
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(bytes.saturating_sub(at_end))).context(what)?;
    file.take(at_end).read_to_end(&mut end).context(what)?;
    Ok(store::what_is_on(&start, &end))
}

/// The verdict when every PG knows that the OSD has stopped.
fn settled_verdict(args: &OsdReplace, client: &mut SyncClient) -> Result<Verdict, Failure> {
    let deadline = Deadline::after(SETTLE_LIMIT);
    let mut last = None;
    let settled = deadline.poll(LOOK_EVERY, || match look(args.id, client) {
        Ok(Verdict::Unsettled(why)) => {
            last = Some(Verdict::Unsettled(why));
            None
        }
        other => Some(other),
    });
    settled.unwrap_or_else(|| Ok(last.unwrap_or(Verdict::Unsettled("nothing is known".into()))))
}

fn look(id: u32, client: &mut SyncClient) -> Result<Verdict, Failure> {
    let safe = json!({"prefix": "osd safe-to-destroy", "ids": [id.to_string()], "format": "json"});
    let reply = client.command(&safe).context(|| "the cluster does not answer".into())?;
    let safe: Value = serde_json::from_slice(&reply.data).unwrap_or_default();
    let is_in = |list: &Value| list.as_array().is_some_and(|l| l.iter().any(|o| *o == id));
    if reply.status == 0 && is_in(&safe["safe_to_destroy"]) {
        return Ok(Verdict::Safe);
    }
    let dump = client.must(&json!({"prefix": "pg dump", "dumpcontents": ["pgs"]}))?;
    let pgs = dump["pg_stats"].as_array().cloned().unwrap_or_default();
    Ok(judge(id, &pgs))
}

/// What the PGs say. An OSD that has stopped is needed by those that are not active without it, and by
/// those that miss objects; whatever else there is others have.
fn judge(id: u32, pgs: &[Value]) -> Verdict {
    let state = |pg: &Value| pg["state"].as_str().unwrap_or_default().to_owned();
    let named = |what: &str, of: Vec<&Value>| {
        let names = of
            .iter()
            .take(MAX_NAMED)
            .map(|pg| format!("{} ({})", pg["pgid"].as_str().unwrap_or_default(), state(pg)));
        let (names, more) =
            (names.collect::<Vec<_>>().join(", "), of.len().saturating_sub(MAX_NAMED));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} PGs {what}: {names}{more}", of.len())
    };
    let serves = |pg: &&Value| pg["acting"].as_array().is_some_and(|l| l.iter().any(|o| *o == id));
    let words = |pg: &Value, word: &str| state(pg).split('+').any(|w| w == word);
    let waits = |pg: &&Value| {
        let unfound = pg["stat_sum"]["num_objects_unfound"].as_i64().unwrap_or(0);
        !words(pg, "active") || words(pg, "stale") || unfound > 0
    };
    let unsettled: Vec<&Value> = pgs.iter().filter(serves).collect();
    let needed: Vec<&Value> = pgs.iter().filter(waits).collect();
    match (unsettled.is_empty(), needed.is_empty()) {
        (false, _) => Verdict::Unsettled(named("do not go on without it", unsettled)),
        (_, false) => Verdict::Needed(named("may need it", needed)),
        _ => {
            let fewer = |pg: &&Value| words(pg, "degraded") || words(pg, "undersized");
            Verdict::FewerCopies(pgs.iter().filter(fewer).count())
        }
    }
}

/// What is done.
struct Plan {
    id: u32,
    cluster: Uuid,
    disk: PathBuf,
    link: Option<Link>,
    fewer: usize,
    /// What is kept of the old store cannot be read.
    loses_old: bool,
}

impl Plan {
    fn show(&self, as_json: bool, found: &Found, made: Option<&Identity>) {
        let Plan { id, cluster, disk, link, fewer, loses_old } = self;
        let old_file = link.as_ref().and_then(|link| link.old_file.as_deref());
        if as_json {
            println!(
                "{:#}",
                json!({
                    "osd": id, "cluster": cluster.to_string(), "disk": disk,
                    "old_store": found.old.as_ref().map(|o| o.store.to_string()),
                    "old_file": old_file, "old_is_lost": loses_old,
                    "pgs_with_fewer_copies": fewer,
                    "done": made.is_some(), "store": made.map(|m| m.store.to_string()),
                })
            );
            return;
        }
        let path = disk.display();
        if made.is_some() {
            println!(
                "osd.{id} has an empty store on {path}. Start it: its data are copied to it then."
            );
            if let Some(old) = old_file.map(Path::display) {
                let but = if *loses_old { ", of no use without its log" } else { "" };
                println!(
                    "What it had is {old} now{but}. Remove that when all PGs are active+clean."
                );
            }
            return;
        }
        match found.disk {
            Some(Content::Nothing) => println!("{path}, which is empty, would be used."),
            Some(_) => println!("What osd.{id} has on {path} would be destroyed."),
            None => println!("A new file {path} would be made."),
        }
        if let Some(log) = &found.log {
            println!("Its log on {} would be destroyed, and made anew.", log.display());
            if *loses_old {
                println!("Without it what the old disk holds cannot be read any more.");
            }
        }
        if let Some(link) = link {
            print!("{} would become a link to it", link.block.display());
            match old_file.map(Path::display) {
                Some(old) => println!("; the file that it is now would be kept as {old}."),
                None => println!("."),
            }
        }
        match fewer {
            0 => println!("No data depend on it: all copies are elsewhere."),
            n => println!(
                "No data are lost, but {n} PGs have fewer copies than they should until it is filled."
            ),
        }
        let how = if *loses_old { "--yes --reuse-log" } else { "--yes" };
        println!("Nothing was done. Do it with {how}.");
    }
}

/// How the OSD's folder comes to name another disk than it does.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    /// What becomes a link.
    block: PathBuf,
    /// If that is a file now: how it is called then.
    old_file: Option<PathBuf>,
}

impl Link {
    /// `None`: the folder names that disk already. That must be known before anything is destroyed, and not by the
    /// spelling: a link that takes the place of the very file it names leaves neither of them.
    fn plan(disk: &Path, block: &Path) -> Result<Option<Self>, String> {
        let same = |name: &Path| {
            is_same_file(disk, name).map_err(|e| format!("cannot look at {}: {e}", disk.display()))
        };
        if same(block)? {
            return Ok(None);
        }
        let needed = |name: &Path, is_ours: &dyn Fn(&Metadata) -> bool| {
            let is_free = match name.symlink_metadata() {
                // One from a try that was cut short.
                Ok(meta) => is_ours(&meta),
                Err(_) => !same(name)?,
            };
            let (name, block) = (name.display(), block.display());
            let why = format!("the name {name} is needed to make {block} a link, and is taken");
            if is_free { Ok(()) } else { Err(why) }
        };
        needed(&beside(block), &Metadata::is_symlink)?;
        let now = block.symlink_metadata().ok().filter(Metadata::is_file);
        let old_file = now.as_ref().map(|_| block.with_extension("old"));
        if let (Some(now), Some(old)) = (now, &old_file) {
            needed(old, &|meta| (meta.dev(), meta.ino()) == (now.dev(), now.ino()))?;
        }
        Ok(Some(Link { block: block.to_owned(), old_file }))
    }

    /// Gives a file that the link takes the place of another name. It keeps this one until then.
    fn keep_old(&self) -> Result<(), Failure> {
        let Some(old) = &self.old_file else { return Ok(()) };
        match std::fs::hard_link(&self.block, old) {
            // By a try that was cut short.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            done => done.context(|| {
                format!("cannot give {} the name {}", self.block.display(), old.display())
            })?,
        }
        sync_folder_of(old)
    }

    /// The folder names its new disk.
    fn make(&self, disk: &Path) -> Result<(), Failure> {
        let block = &self.block;
        let what = || format!("cannot make {} a link to {}", block.display(), disk.display());
        let disk = std::fs::canonicalize(disk).context(what)?;
        let new = beside(block);
        let _ = std::fs::remove_file(&new);
        std::os::unix::fs::symlink(disk, &new).context(what)?;
        std::fs::rename(&new, block).context(what)?;
        sync_folder_of(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pg(pgid: &str, state: &str, acting: &[i32], unfound: u32) -> Value {
        json!({"pgid": pgid, "state": state, "acting": acting,
               "stat_sum": {"num_objects_unfound": unfound}})
    }

    #[test]
    fn what_only_it_may_have_keeps_it() {
        let clean = pg("1.0", "active+clean", &[0, 1, 2], 0);
        let fewer = pg("1.1", "active+undersized+degraded", &[0, 1], 0);
        assert_eq!(judge(3, &[clean.clone(), fewer.clone()]), Verdict::FewerCopies(1));
        let all = [clean.clone(), pg("1.2", "active+clean", &[3, 1, 2], 0)];
        assert!(matches!(judge(3, &all), Verdict::Unsettled(why) if why.contains("1.2")));
        for lost in [
            pg("1.3", "down", &[0, 1], 0),
            pg("1.3", "stale+active+clean", &[2], 0),
            pg("1.3", "active+recovery_unfound+degraded", &[0, 1], 1),
        ] {
            let all = [clean.clone(), fewer.clone(), lost];
            assert!(matches!(judge(3, &all), Verdict::Needed(why) if why.contains("1.3")));
        }
    }

    /// The log's disk is made anew, whichever disk the store goes to.
    #[test]
    fn an_old_disk_is_kept_for_nothing_if_its_log_goes() {
        let found = |log: bool, is_readable| {
            let log = log.then(|| PathBuf::from("/dev/log"));
            Found { old: None, is_readable, disk: None, log, store: None }
        };
        assert!(loses_old(true, &found(true, true)));
        assert!(!loses_old(false, &found(true, true)), "it is overwritten, as was asked for");
        assert!(!loses_old(true, &found(false, true)), "its log is on it");
        assert!(!loses_old(true, &found(true, false)), "it could not be read before");
    }

    /// What is only planned is refused where it could not be done.
    #[test]
    fn a_file_that_could_not_be_made_is_not_promised() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, size| check_new_file(&dir.path().join(name), Bytes(size));
        let said = |name, size| check(name, size).unwrap_err();
        assert_eq!(check("disk", MIN_DISK_BYTES), Ok(()));
        assert!(said("disk", MIN_DISK_BYTES - 1).contains("too small"));
        assert!(said("none/disk", MIN_DISK_BYTES).contains("is not a folder"));
        assert!(said("disk", 1 << 60).contains("are free"));
    }

    /// Where the disk is the folder's own file by another name, a link over it would be a link to itself.
    #[test]
    fn the_folders_own_file_is_not_replaced_by_a_link_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("osd0");
        let (block, other) = (data.join(BLOCK), dir.path().join("other"));
        std::fs::create_dir_all(data.join("sub")).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        let spelled = [
            block.clone(),
            data.join("sub/../block"),
            dir.path().join("link/block"),
            dir.path().join("link/./sub/../block"),
        ];
        // At first it is to be made.
        for is_there in [false, true] {
            if is_there {
                std::fs::write(&block, "a store").unwrap();
            }
            for disk in &spelled {
                assert_eq!(Link::plan(disk, &block), Ok(None), "{}", disk.display());
            }
            let link = Link::plan(&other, &block).unwrap().unwrap();
            assert_eq!(link.old_file.is_some(), is_there);
        }
        std::fs::hard_link(&block, &other).unwrap();
        assert_eq!(Link::plan(&other, &block), Ok(None), "it has two names");
        assert!(Link::plan(&dir.path().join("none/disk"), &block).is_err());
    }

    #[test]
    fn a_disk_is_linked_by_the_name_it_has_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (block, disk, new) =
            (dir.path().join(BLOCK), dir.path().join("disk"), dir.path().join("block.new"));
        std::fs::write(&disk, "a store").unwrap();
        // A link that leads to itself, and one from a try that was cut short, are in nobody's way.
        for name in [&block, &new] {
            std::os::unix::fs::symlink(&block, name).unwrap();
        }
        let spelled = dir.path().join("./disk");
        let link = Link::plan(&spelled, &block).unwrap().unwrap();
        assert_eq!(link.old_file, None);
        link.keep_old().and_then(|()| link.make(&spelled)).unwrap();
        assert_eq!(std::fs::read(&block).unwrap(), b"a store");
        assert_eq!(Link::plan(&disk, &block), Ok(None));
        // The link is made under that name first: who has it would lose it.
        assert!(Link::plan(&new, &block).unwrap_err().contains("is taken"));
        std::fs::write(&new, "somebody's").unwrap();
        let other = dir.path().join("other");
        assert!(Link::plan(&other, &block).unwrap_err().contains("is taken"));
    }

    #[test]
    fn a_file_that_a_link_takes_the_place_of_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (block, disk, old) =
            (dir.path().join(BLOCK), dir.path().join("disk"), dir.path().join("block.old"));
        std::fs::write(&block, "the old store").unwrap();
        std::fs::write(&disk, "the new store").unwrap();
        // Somebody else's, or the new disk itself.
        std::fs::write(&old, "older").unwrap();
        assert!(Link::plan(&disk, &block).unwrap_err().contains("block.old is needed"));
        std::fs::remove_file(&old).unwrap();
        assert!(Link::plan(&old, &block).unwrap_err().contains("block.old is needed"));
        // The first try is cut short.
        for _ in 0..2 {
            let link = Link::plan(&disk, &block).unwrap().unwrap();
            assert_eq!(link.old_file.as_ref(), Some(&old));
            link.keep_old().unwrap();
            assert_eq!(std::fs::read(&block).unwrap(), b"the old store");
        }
        Link::plan(&disk, &block).unwrap().unwrap().make(&disk).unwrap();
        assert_eq!(std::fs::read(&block).unwrap(), b"the new store");
        assert_eq!(std::fs::read(&old).unwrap(), b"the old store");
        // A link leads to a disk that stays as it is.
        let link = Link::plan(&dir.path().join("third"), &block).unwrap().unwrap();
        assert_eq!(link.old_file, None);
    }
}
