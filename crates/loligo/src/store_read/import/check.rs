//! What is looked at before an import touches the store: the whole file, and what has become of the PG since.

use crate::cli::StoreImport;
use crate::failure::{Context, Exit, Failure};
use crate::store_read::export::FindPgNum;
use crate::store_read::format::{Begin, Malformed, Reader, Section};
use crate::store_read::read;
use osd::offline::{children_of, info_key, meta_object, pg_num_of};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use types::PgId;

/// That a PG has been divided since it was exported: its OSD does that, when it is started.
#[derive(Default)]
pub(super) struct Split {
    /// PGs of its pool now.
    pub pg_num: u32,
    /// The other parts of it: none of them may be here.
    pub children: Vec<PgId>,
}

pub(super) fn open(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let file = File::open(path).context(|| format!("cannot read {}", path.display()))?;
    Ok(Reader::new(BufReader::new(file)))
}

/// What a file says of itself, when all of it was read.
pub(super) struct Checked {
    pub begin: Begin,
    /// Objects may be missing in it.
    pub is_incomplete: bool,
    /// Whether the PG's own object is in it, and whole, with the info.
    has_own: bool,
    /// How many PGs its pool had by its own record.
    record_pg_num: Option<u32>,
}

/// Reads a whole file.
pub(super) fn check(path: &Path) -> Result<Checked, Failure> {
    let bad = |why: Malformed| {
        Failure::new(format!("{} is damaged", path.display()), why).exit(Exit::Refused)
    };
    let mut input = open(path)?;
    let Some(Section::Begin(begin)) = input.next().map_err(bad)? else {
        return Err(Failure::new("cannot import", "the file holds nothing"));
    };
    let own = meta_object(begin.pgid);
    let (mut is_incomplete, mut has_own, mut info) = (false, false, None);
    let mut is_own = false;
    while let Some(section) = input.next().map_err(bad)? {
        match section {
            Section::Object { key, .. } => is_own = key == own,
            Section::Omap { key, value } if is_own && key == info_key() => {
                info = Some(value);
            }
            Section::ObjectEnd { whole } if is_own => has_own = whole && info.is_some(),
            Section::End { is_incomplete: so, .. } => is_incomplete = so,
            _ => {}
        }
    }
    let record_pg_num = info.as_ref().and_then(pg_num_of);
    Ok(Checked { begin, is_incomplete, has_own, record_pg_num })
}

/// That a PG can be what it was, with what the file has of it.
pub(super) fn check_content(args: &StoreImport, checked: &Checked) -> Result<(), Failure> {
    let refuse = |why| Failure::new(cannot(&checked.begin), why).exit(Exit::Refused);
    if !checked.has_own {
        let why =
            "its own record, with its log, is not whole in the file: nobody would know what it has";
        return Err(
            refuse(why).advise("Copy the whole disk, and export it from another OSD if you can.")
        );
    }
    if checked.is_incomplete && !args.accept_incomplete {
        let why = "the list of objects was damaged in the store that it was exported from: some may be \
                   missing in the file altogether, and nobody would notice";
        return Err(refuse(why).advise(
            "If no other copy is left, add --accept-incomplete: who reads what is missing is told that it \
             does not exist.",
        ));
    }
    Ok(())
}

pub(super) fn cannot(begin: &Begin) -> String {
    format!("cannot import PG {}", begin.pgid)
}

/// How it was divided since. Other changes of the pool are refused: what the file has belongs to others, or to none.
pub(super) fn split_since(args: &StoreImport, checked: &Checked) -> Result<Split, Failure> {
    let begin = &checked.begin;
    let known = read(&args.place, FindPgNum::of(begin.pgid))?.outcome.map;
    let Some(pg_num) = known.filter(|pg_num| *pg_num != begin.pg_num) else {
        return Ok(Split::default());
    };
    // By its own record, the OSD knows what it is to be divided from.
    if pg_num > begin.pg_num && checked.record_pg_num == Some(begin.pg_num) {
        let children = children_of(begin.pgid, begin.pg_num, pg_num);
        return Ok(Split { pg_num, children });
    }
    let why = format!(
        "its pool had {} PGs when it was exported, and has {pg_num} in the newest map of this store",
        begin.pg_num
    );
    Err(Failure::new(cannot(begin), why).exit(Exit::Refused).advise(
        "Import it into a store that stopped when the pool had as many PGs; when that OSD is started, \
         it goes through what happened since.",
    ))
}
