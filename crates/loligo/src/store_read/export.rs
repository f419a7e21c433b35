//! `loligo store export`: a PG's objects, into a file.

use super::format::{self, Begin, Section, Writer};
use super::{Job, complain, list, read};
use crate::cli::StoreExport;
use crate::failure::{Context, Exit, Failure};
use crate::files::MadeFile;
use crate::sizes;
use crate::store_tool::{is_there, object_name};
use bytes::Bytes;
use osd::offline;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, Error, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use store::{Miss, OmapRange, ReadSet, Store, StoreError};
use types::{ObjectKey, PgId};

const CHUNK_BYTES: u64 = 1 << 20;
const PAGE_ENTRIES: usize = 1000;
const PAGE_BYTES: usize = 1 << 20;

/// How many PGs a pool has, as far as a store knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PgNums {
    /// By the PG's own record, which is behind the map where a split or merge was not done yet.
    pub record: Option<u32>,
    /// By the newest map in the store.
    pub map: Option<u32>,
}

impl PgNums {
    /// By which the PG has its objects.
    fn of_objects(self) -> Option<u32> {
        self.record.or(self.map)
    }
}

/// Reads how many PGs the pool of a PG has.
pub(super) struct FindPgNum {
    pgid: PgId,
    newest: Option<Bytes>,
    record: Option<Option<u32>>,
}

impl FindPgNum {
    /// Of this PG's pool.
    pub fn of(pgid: PgId) -> Self {
        FindPgNum { pgid, newest: None, record: None }
    }
}

impl Job for FindPgNum {
    type Outcome = PgNums;

    fn step(&mut self, store: &Store, _: &ReadSet) -> Result<Option<Self::Outcome>, Miss> {
        let get = |object: &ObjectKey, key: Bytes| {
            Ok(store.omap_get(object, &[key])?.and_then(|mut found| found.pop().flatten()))
        };
        let Some(record) = self.record else {
            let info = get(&offline::meta_object(self.pgid), offline::info_key())?;
            self.record = Some(info.as_ref().and_then(offline::pg_num_of));
            return Ok(None);
        };
        let wanted = self.newest.clone().unwrap_or_else(offline::map_range_key);
        let value = get(&offline::map_object(), wanted)?;
        if self.newest.is_none() {
            self.newest = value.as_ref().and_then(offline::newest_map_key);
            let unknown = PgNums { record, map: None };
            return Ok(self.newest.is_none().then_some(unknown));
        }
        let map = value.and_then(|map| offline::pg_num(&map, self.pgid.pool));
        Ok(Some(PgNums { record, map }))
    }

    fn failed(&mut self, _: &StoreError) -> Option<Self::Outcome> {
        let Some(record) = self.record else {
            self.record = Some(None);
            return None;
        };
        Some(PgNums { record, map: None })
    }
}

enum Step {
    Begin,
    Map,
    Stat,
    Data(u64),
    Attrs,
    Header,
    Omap(OmapRange),
    End,
}

struct Export {
    begin: Begin,
    objects: VecDeque<ObjectKey>,
    out: Writer<BufWriter<File>>,
    step: Step,
    size: u64,
    whole: u64,
    bytes: u64,
    problems: Vec<String>,
    /// The objects may not be all.
    is_incomplete: bool,
}

/// What was exported.
struct Exported {
    whole: u64,
    bytes: u64,
    problems: Vec<String>,
}

impl Exported {
    fn as_json(&self, begin: &Begin, is_incomplete: bool, problems: &[String]) -> Value {
        json!({
            "pgid": begin.pgid.to_string(), "osd": begin.osd.0, "objects": self.whole,
            "bytes": self.bytes, "damaged": self.problems.len(), "incomplete": is_incomplete,
            "problems": problems,
        })
    }

    fn as_text(&self, begin: &Begin, is_incomplete: bool) -> String {
        let (whole, bytes, damaged) = (self.whole, sizes::Bytes(self.bytes), self.problems.len());
        let pgid = begin.pgid;
        let incomplete = if is_incomplete {
            "The store's list of objects is damaged: some of the PG may be missing altogether.\n"
        } else {
            ""
        };
        format!(
            "Exported {whole} objects of PG {pgid}, {bytes} of data; {damaged} damaged ones are not whole in \
             it.\n{incomplete}"
        )
    }
}

fn first_page() -> OmapRange {
    OmapRange { max_entries: PAGE_ENTRIES, max_bytes: PAGE_BYTES, ..OmapRange::default() }
}

impl Export {
    fn next_object(&mut self) {
        self.step = if self.objects.is_empty() { Step::End } else { Step::Stat };
    }

    fn end_object(&mut self, whole: bool) -> Result<(), Error> {
        self.objects.pop_front();
        self.whole += u64::from(whole);
        self.next_object();
        self.out.put(&Section::ObjectEnd { whole })
    }

    fn data(&mut self, store: &Store, set: &ReadSet) -> Result<Result<(), Error>, Miss> {
        let Step::Data(offset) = self.step else { return Ok(Ok(())) };
        let Some(key) = self.objects.front() else { return Ok(Ok(())) };
        for piece in store.read(key, offset, CHUNK_BYTES, set)? {
            let Some(data) = piece.data else { continue };
            self.bytes += data.len() as u64;
            if let Err(why) = self.out.put(&Section::Data { offset: piece.offset, data }) {
                return Ok(Err(why));
            }
        }
        let next = offset.saturating_add(CHUNK_BYTES);
        self.step = if next < self.size { Step::Data(next) } else { Step::Attrs };
        Ok(Ok(()))
    }

    /// The newest map that the PG knows, if it is there.
    fn map(&mut self, store: &Store) -> Result<Result<(), Error>, Miss> {
        let get = |object: &ObjectKey, key: Bytes| {
            Ok(store.omap_get(object, &[key])?.and_then(|mut found| found.pop().flatten()))
        };
        let own = self.objects.back();
        let get_own = |key: Bytes| own.map(|own| get(own, key)).transpose().map(Option::flatten);
        if get_own(offline::import_key())?.is_some() {
            let why = "its import into this store was broken off: import it again, or start the OSD, \
                       which removes what came of it";
            return Ok(Err(Error::other(why)));
        }
        let epoch = get_own(offline::info_key())?.as_ref().and_then(offline::epoch_of);
        let key = epoch.map(offline::map_key);
        let map = key.map(|key| get(&offline::map_object(), key)).transpose()?.flatten();
        self.next_object();
        let section = epoch.zip(map).map(|(epoch, map)| Section::Map { epoch, map });
        Ok(section.map_or(Ok(()), |section| self.out.put(&section)))
    }

    /// Everything of an object but its data.
    fn rows(&mut self, store: &Store) -> Result<Result<(), Error>, Miss> {
        let Some(key) = self.objects.front().cloned() else { return Ok(Ok(())) };
        let (sections, next): (Vec<Section>, Step) = match &self.step {
            Step::Stat => {
                let Some(stat) = store.stat(&key)? else {
                    // It is in the tree; the log, as far as it can be read, has removed it.
                    self.objects.pop_front();
                    self.next_object();
                    return Ok(Ok(()));
                };
                self.size = stat.size;
                let next = if stat.size > 0 { Step::Data(0) } else { Step::Attrs };
                (vec![Section::Object { size: stat.size, key, meta: stat.meta }], next)
            }
            Step::Attrs => {
                let attrs = store.attrs(&key)?.unwrap_or_default().into_iter();
                let attrs = attrs.map(|(name, value)| Section::Attr { name, value });
                (attrs.collect(), Step::Header)
            }
            Step::Header => {
                let header = store.omap_header(&key)?.unwrap_or_default();
                let header = (!header.is_empty()).then_some(Section::Header(header));
                (header.into_iter().collect(), Step::Omap(first_page()))
            }
            Step::Omap(range) => {
                let page = store.omap_list(&key, range)?.unwrap_or_default();
                let next = page.entries.last().filter(|_| page.more).map(|(last, _)| {
                    let from = Bytes::copy_from_slice(last);
                    Step::Omap(OmapRange { from, after: true, ..range.clone() })
                });
                let entries = page.entries.into_iter();
                let entries = entries.map(|(key, value)| Section::Omap { key, value }).collect();
                (entries, next.unwrap_or(Step::Begin))
            }
            Step::Begin | Step::Map | Step::Data(_) | Step::End => return Ok(Ok(())),
        };
        for section in &sections {
            if let Err(why) = self.out.put(section) {
                return Ok(Err(why));
            }
        }
        if matches!(next, Step::Begin) {
            return Ok(self.end_object(true));
        }
        self.step = next;
        Ok(Ok(()))
    }

    fn finish(&mut self) -> Result<Exported, Error> {
        let problems = std::mem::take(&mut self.problems);
        let (whole, damaged) = (self.whole, problems.len() as u64);
        let is_incomplete = self.is_incomplete;
        self.out.put(&Section::End { whole, damaged, is_incomplete })?;
        self.out.flush()?;
        Ok(Exported { whole, bytes: self.bytes, problems })
    }
}

impl Job for Export {
    type Outcome = Result<Exported, Error>;

    fn step(&mut self, store: &Store, set: &ReadSet) -> Result<Option<Self::Outcome>, Miss> {
        let done = match self.step {
            Step::Begin => {
                self.step = Step::Map;
                self.out.put(&Section::Begin(self.begin))
            }
            Step::Map => self.map(store)?,
            Step::Data(_) => self.data(store, set)?,
            Step::End => return Ok(Some(self.finish())),
            _ => self.rows(store)?,
        };
        Ok(done.err().map(Err))
    }

    fn failed(&mut self, why: &StoreError) -> Option<Self::Outcome> {
        if matches!(self.step, Step::Map) {
            // Then it goes where there are maps as old.
            self.next_object();
            return None;
        }
        let key = self.objects.front()?;
        self.problems.push(format!("object {}: {why}", object_name(key)));
        let mut done = Ok(());
        if matches!(self.step, Step::Stat) {
            let (size, meta) = (0, Bytes::new());
            done = self.out.put(&Section::Object { size, key: key.clone(), meta });
        }
        done.and_then(|()| self.end_object(false)).err().map(Err)
    }
}

fn pg_num(args: &StoreExport) -> Result<u32, Failure> {
    if let Some(pg_num) = args.pg_num {
        return Ok(pg_num);
    }
    let found = read(&args.place, FindPgNum::of(args.pgid))?.outcome;
    found.of_objects().ok_or_else(|| {
        let why = "the store has no map that can be read and knows the PG's pool";
        Failure::new(format!("cannot export PG {}", args.pgid), why)
            .advise("If you know the pool's pg_num, say it with --pg-num.")
    })
}

fn not_written(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn refuse_old(path: &Path) -> Result<(), Failure> {
    if !is_there(path)? {
        return Ok(());
    }
    Err(Failure::new(not_written(path), "there is such a file already")
        .advise("Name another one by --file, or remove that one.")
        .exit(Exit::Refused))
}

/// An empty file, which takes its name when it is whole. Until it is closed nobody else writes there.
fn begin_file(path: &Path) -> Result<(File, MadeFile), Failure> {
    let what = || not_written(path);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".unfinished");
    let beside = PathBuf::from(beside);
    // It may be that of an export under way.
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&beside);
    let mut file = file.context(what)?;
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let id = |meta: Metadata| (meta.dev(), meta.ino());
    let own = file.metadata().map(id).context(what)?;
    // It was, and has its name by now.
    let is_still_there = std::fs::metadata(&beside).is_ok_and(|meta| id(meta) == own);
    if !is_ours || !is_still_there {
        return Err(Failure::new(what(), "another export is writing it")
            .advise("Wait for its end, or name another file by --file.")
            .exit(Exit::Refused));
    }
    let mut start = Vec::new();
    (&file).take(format::START_BYTES as u64).read_to_end(&mut start).context(what)?;
    if !format::is_begun(&start) {
        let why = format!("{} is in its way, and is no export", beside.display());
        return Err(Failure::new(what(), why)
            .advise("Remove that, or name another file by --file.")
            .exit(Exit::Refused));
    }
    file.rewind().context(what)?;
    let unfinished = MadeFile::new(&beside, true);
    refuse_old(path)?;
    file.set_len(0).context(what)?;
    Ok((file, unfinished))
}

/// Carries out `loligo store export`.
///
/// # Errors
/// When the PG is not there, or the file cannot be written.
pub(crate) fn run(args: &StoreExport) -> Result<Exit, Failure> {
    let not_written = || not_written(&args.file);
    refuse_old(&args.file)?;
    let pg_num = pg_num(args)?;
    let parts = offline::objects_of(args.pgid, pg_num);
    let (first, end) = (parts.first.clone(), parts.end.clone());
    let (meta, snaps) = (parts.meta.clone(), parts.snaps.clone());
    let wanted = move |key: &ObjectKey| {
        *key == meta || snaps.contains(key) || (parts.first <= *key && *key < parts.end)
    };
    let (mut found, report) = list::objects(&args.place, wanted)?;
    let what = || format!("cannot export PG {}", args.pgid);
    let Some(at) = found.iter().position(|(key, _)| *key == parts.meta) else {
        return Err(Failure::new(what(), "its record is not in this store, or is damaged"));
    };
    // The PG's own object is the last.
    let own = found.remove(at);
    found.push(own);
    let damage = list::damage(&report);
    // Of what else is damaged, who reads it says so.
    let is_incomplete = report.may_lack(&first, &end);
    let identity = report.identity.ok_or_else(|| Failure::new(what(), "whose store is it?"))?;
    let begin = Begin {
        pg_num,
        cluster: identity.cluster,
        store: identity.store,
        osd: identity.osd,
        pgid: args.pgid,
    };
    let (file, mut unfinished) = begin_file(&args.file)?;
    let job = Export {
        begin,
        objects: found.into_iter().map(|(key, _)| key).collect(),
        out: Writer::new(BufWriter::new(file.try_clone().context(not_written)?)),
        step: Step::Begin,
        size: 0,
        whole: 0,
        bytes: 0,
        problems: Vec::new(),
        is_incomplete,
    };
    let done = read(&args.place, job)?;
    let exported = done.outcome.context(not_written)?;
    file.sync_all().context(not_written)?;
    std::fs::rename(unfinished.path(), &args.file).context(not_written)?;
    unfinished.keep();
    crate::files::sync_folder_of(&args.file)?;
    let problems = [&*damage, &*done.problems, &*exported.problems].concat();
    if args.place.json {
        println!("{:#}", exported.as_json(&begin, is_incomplete, &problems));
    } else {
        print!("{}", exported.as_text(&begin, is_incomplete));
    }
    Ok(complain(&problems))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use types::{OsdId, PoolId, Uuid};

    /// The second one would go on in the file that the first one has finished.
    #[test]
    fn one_export_writes_a_file_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pg");
        let (mut file, mut unfinished) = begin_file(&path).unwrap();
        file.write_all(b"begun").unwrap();
        let refused = begin_file(&path).unwrap_err();
        assert!(refused.why.contains("another export"), "{refused}");
        assert_eq!(std::fs::read(unfinished.path()).unwrap(), b"begun");
        std::fs::rename(unfinished.path(), &path).unwrap();
        unfinished.keep();
        drop(file);
        let refused = begin_file(&path).unwrap_err();
        assert!(refused.why.contains("there is such a file"), "{refused}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_what_an_export_has_left_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, beside) = (dir.path().join("pg"), dir.path().join("pg.unfinished"));
        let (file, mut unfinished) = begin_file(&path).unwrap();
        let begin = Begin {
            pg_num: 8,
            cluster: Uuid([1; 16]),
            store: Uuid([2; 16]),
            osd: OsdId(3),
            pgid: PgId { pool: PoolId(4), seed: 5 },
        };
        let mut out = Writer::new(&file);
        out.put(&Section::Begin(begin)).unwrap();
        // It was killed.
        unfinished.keep();
        drop(file);
        assert!(beside.metadata().unwrap().len() > 0);
        let (mut file, unfinished) = begin_file(&path).unwrap();
        file.write_all(b"anew").unwrap();
        assert_eq!(std::fs::read(&beside).unwrap(), b"anew");
        drop((file, unfinished));
        assert!(!beside.exists());
        std::fs::write(&beside, b"somebody else's").unwrap();
        let refused = begin_file(&path).unwrap_err();
        assert!(refused.why.contains("pg.unfinished is in its way"), "{refused}");
        assert_eq!(std::fs::read(&beside).unwrap(), b"somebody else's");
    }

    /// A PG whose OSD stopped before it was split has the objects of all its parts.
    #[test]
    fn a_pg_has_its_objects_by_its_own_record() {
        let of = |record, map| PgNums { record, map }.of_objects();
        assert_eq!(of(Some(32), Some(64)), Some(32));
        assert_eq!(of(None, Some(64)), Some(64), "a record of an older build");
        assert_eq!(of(Some(32), None), Some(32));
        assert_eq!(of(None, None), None);
    }
}
