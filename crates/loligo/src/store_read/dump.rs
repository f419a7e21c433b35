//! `loligo store dump`: one object, with everything it has.

use super::{Job, complain, list, read};
use crate::cli::StoreDump;
use crate::failure::{Context, Exit, Failure};
use crate::store_tool::object_name;
use bytes::Bytes;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use store::{Miss, OmapRange, ReadSet, Store, StoreError};
use types::ObjectKey;

/// Bytes of data read at a time. What is damaged in them is lost as a block at a time.
const CHUNK_BYTES: u64 = 4096 * 256;
const BLOCK: u64 = io::BLOCK_BYTES as u64;
const PAGE_ENTRIES: usize = 1000;
const PAGE_BYTES: usize = 1 << 20;

enum Step {
    Stat,
    Attrs,
    Header,
    Omap(OmapRange),
    Data { offset: u64, len: u64 },
}

struct Dump {
    key: ObjectKey,
    step: Step,
    size: u64,
    file: Option<File>,
    shown: Value,
    omap: Vec<Value>,
    problems: Vec<String>,
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(s) if !s.contains(|c: char| c.is_control()) => json!(s),
        _ => json!({"hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()}),
    }
}

fn pairs(pairs: &[(Bytes, Bytes)]) -> Vec<Value> {
    pairs.iter().map(|(k, v)| json!({"key": text(k), "value": text(v)})).collect()
}

type Outcome = Result<(Value, Vec<String>), std::io::Error>;

impl Dump {
    fn end(&mut self) -> Outcome {
        self.shown["omap"] = json!(std::mem::take(&mut self.omap));
        Ok((std::mem::take(&mut self.shown), std::mem::take(&mut self.problems)))
    }

    fn after_omap(&mut self) -> Option<Outcome> {
        if self.file.is_none() || self.size == 0 {
            return Some(self.end());
        }
        self.step = Step::Data { offset: 0, len: CHUNK_BYTES };
        None
    }

    /// The next piece of data.
    fn after_data(&mut self, offset: u64, len: u64) -> Option<Outcome> {
        let offset = offset.saturating_add(len);
        if offset >= self.size {
            return Some(self.end());
        }
        // After a damaged block: single blocks up to the next border.
        let len = if offset.is_multiple_of(CHUNK_BYTES) { CHUNK_BYTES } else { BLOCK };
        self.step = Step::Data { offset, len };
        None
    }

    fn first_page() -> Step {
        let (max_entries, max_bytes) = (PAGE_ENTRIES, PAGE_BYTES);
        Step::Omap(OmapRange { max_entries, max_bytes, ..OmapRange::default() })
    }
}

impl Job for Dump {
    type Outcome = Outcome;

    fn step(&mut self, store: &Store, set: &ReadSet) -> Result<Option<Outcome>, Miss> {
        match &mut self.step {
            Step::Stat => {
                if let Some(stat) = store.stat(&self.key)? {
                    self.size = stat.size;
                    self.shown["bytes"] = json!(stat.size);
                    self.shown["record"] = text(&stat.meta);
                }
                let extents = store.extents(&self.key, 0, u64::MAX);
                self.shown["extents"] = json!(extents?);
                self.step = Step::Attrs;
            }
            Step::Attrs => {
                let attrs = store.attrs(&self.key)?.unwrap_or_default();
                self.shown["attrs"] = json!(pairs(&attrs));
                self.step = Step::Header;
            }
            Step::Header => {
                let header = store.omap_header(&self.key)?.unwrap_or_default();
                self.shown["omap_header"] = text(&header);
                self.step = Self::first_page();
            }
            Step::Omap(range) => {
                let page = store.omap_list(&self.key, range)?.unwrap_or_default();
                self.omap.extend(pairs(&page.entries));
                match page.entries.last() {
                    Some((last, _)) if page.more => {
                        range.from = Bytes::copy_from_slice(last);
                        range.after = true;
                    }
                    _ => return Ok(self.after_omap()),
                }
            }
            Step::Data { offset, len } => {
                let (offset, len) = (*offset, *len);
                let pieces = store.read(&self.key, offset, len, set)?;
                for piece in pieces {
                    let (Some(data), Some(file)) = (piece.data, &self.file) else { continue };
                    if let Err(why) = file.write_all_at(&data, piece.offset) {
                        return Ok(Some(Err(why)));
                    }
                }
                return Ok(self.after_data(offset, len));
            }
        }
        Ok(None)
    }

    fn failed(&mut self, why: &StoreError) -> Option<Outcome> {
        match self.step {
            // One block of many: the others may be good.
            Step::Data { offset, len } if len > BLOCK => {
                self.step = Step::Data { offset, len: BLOCK };
                return None;
            }
            Step::Data { offset, len } => {
                self.problems.push(format!("{why}; zeros stand in the file for them"));
                return self.after_data(offset, len);
            }
            _ => self.problems.push(why.to_string()),
        }
        match self.step {
            Step::Stat => self.step = Step::Attrs,
            Step::Attrs => self.step = Step::Header,
            Step::Header => self.step = Self::first_page(),
            _ => return self.after_omap(),
        }
        None
    }
}

/// Carries out `loligo store dump`.
///
/// # Errors
/// When there is no such object, or no store that could be read.
pub(crate) fn run(args: &StoreDump) -> Result<Exit, Failure> {
    let name = args.object.clone();
    let wanted = name.clone();
    let (found, _) = list::objects(&args.place, move |key| object_name(key) == wanted)?;
    let Some((key, size)) = found.into_iter().next() else {
        let why = "there is none, or its record is damaged";
        return Err(Failure::new(format!("cannot show object {name}"), why)
            .advise("`loligo store ls` lists those that there are."));
    };
    let file = match &args.data {
        Some(path) => {
            let what = || format!("cannot write {}", path.display());
            let file = File::create_new(path).context(what)?;
            file.set_len(size).context(what)?;
            Some(file)
        }
        None => None,
    };
    let shown = json!({"object": name});
    let (step, omap, problems) = (Step::Stat, Vec::new(), Vec::new());
    let done = read(&args.place, Dump { key, step, size, file, shown, omap, problems })?;
    let (shown, problems) = done.outcome.context(|| "cannot write the data".into())?;
    println!("{shown:#}");
    Ok(complain(&problems))
}
