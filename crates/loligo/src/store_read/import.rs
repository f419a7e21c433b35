//! `loligo store import`: brings an exported PG into a store.
//!
//! The whole file is checked before the store is touched. Then the first thing that is written says that an
//! import is under way ([`import_row`]), and the last one, with the PG's info, takes that back: the PG's
//! own object is the last in the file, and is written when all others are durable. Objects come in one after the
//! other, and each gets its record with its last part: what is half there is of a version that nobody has. So an
//! import that breaks off leaves no PG. It can be run again with `--force`; an OSD that starts before removes what
//! came.
//!
//! Objects that could not be read when the PG was exported are put down as missing in it: they are brought
//! from other copies, or are unfound where there are none.

mod check;

use super::exit_of;
use super::format::{Begin, Reader, Section};
use crate::cli::StoreImport;
use crate::disks::Disks;
use crate::failure::{Exit, Failure};
use crate::store_tool::disks_of;
use bytes::Bytes;
use check::{Split, cannot, check, check_content, open, split_since};
use io::disk::DiskDone;
use io::{Core, Effects, Event, Now};
use osd::offline::{
    Lost, PgObjects, ancestors_of, children_of, drop_clone_rows, import_key, import_pg_num,
    import_row, info_key, map_key, map_object, meta_object, objects_of, pg_num_of, put_clone_rows,
    record_of_half, transaction,
};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::io::BufReader;
use store::{
    Config, Expect, Invalid, Mount, MountError, ReadSet, Store, StoreError, StoreEvent,
    SubmitError, Transaction,
};
use types::{Mono, ObjectKey, PgId};
use uring::Open;

/// Memory for the store.
const IMPORT_BYTES: usize = 512 << 20;
/// Sections gather in a transaction up to so many bytes, or up to half of what the store's log takes at once: more
/// only where one section alone has more.
const TXN_BYTES: usize = 4 << 20;
/// What each part takes beside its bytes.
const ROW_BYTES: usize = 64;
/// Transactions in flight.
const MAX_IN_FLIGHT: usize = 8;
/// Objects removed in one transaction, unless that is too much for the log.
const REMOVES: usize = 64;

/// Why it does not go on.
struct Broken {
    exit: Exit,
    why: String,
}

impl Broken {
    fn new(exit: Exit, why: impl Display) -> Self {
        Broken { exit, why: why.to_string() }
    }
}

impl From<MountError> for Broken {
    fn from(why: MountError) -> Self {
        Broken::new(exit_of(&why), why)
    }
}

impl From<StoreError> for Broken {
    fn from(why: StoreError) -> Self {
        let is_damaged = !matches!(why, StoreError::Io { .. });
        Broken::new(if is_damaged { Exit::Refused } else { Exit::Failed }, why)
    }
}

enum Phase {
    Mount,
    /// Looks for what is there of the PG, and whose objects are where its own belong.
    Look,
    /// Removes what is there.
    Clear,
    Objects,
    Close,
}

struct Import {
    input: Reader<BufReader<File>>,
    begin: Begin,
    parts: PgObjects,
    split: Split,
    force: bool,
    /// Objects removed in one transaction from now on.
    removes: usize,
    phase: Phase,
    mount: Mount,
    store: Option<Store>,
    /// The object that comes in, and what of it is not submitted yet.
    object: Option<(ObjectKey, Transaction)>,
    /// Its owner's record.
    record: Bytes,
    /// Bytes of that transaction, about.
    gathered: usize,
    /// To be submitted; at most what one section made too much, or what is written with the PG's info.
    ready: VecDeque<Transaction>,
    set: ReadSet,
    fetching: bool,
    blocked: bool,
    /// Of this turn.
    now: Now,
    in_flight: usize,
    whole: u64,
    damaged: u64,
    lost: Lost,
    /// The PG's info, to be written when all else of it is.
    info: Option<Bytes>,
    /// How the command ends when it is broken off.
    exit: Exit,
}

/// What is to be done next.
enum Next {
    Go,
    Wait,
}

impl Import {
    fn disk(&mut self, now: Now, done: DiskDone, fx: &mut Effects) -> Result<(), Broken> {
        if let Some(store) = &mut self.store {
            store.handle(now, done, fx);
            return Ok(());
        }
        match self.mount.handle(done, fx) {
            Some(Ok(store)) => {
                for what in self.mount.warnings() {
                    tracing::warn!("{what}");
                }
                self.store = Some(store);
                self.phase = Phase::Look;
                Ok(())
            }
            Some(Err(why)) => Err(why.into()),
            None => Ok(()),
        }
    }

    fn events(&mut self, fx: &mut Effects) -> Result<(), Broken> {
        while let Some(event) = self.store.as_mut().and_then(Store::poll_event) {
            match event {
                StoreEvent::Durable { txns } => {
                    self.in_flight = self.in_flight.saturating_sub(txns.len());
                }
                StoreEvent::Fetched { result, .. } => {
                    self.fetching = false;
                    self.set.merge(result?);
                }
                StoreEvent::Writable => self.blocked = false,
                StoreEvent::BadBlock { .. } => {}
                StoreEvent::Unmounted => fx.exit(0, "done"),
                StoreEvent::Fatal(why) => return Err(Broken::new(Exit::Failed, why)),
            }
        }
        Ok(())
    }

    /// Does what can be done without waiting.
    fn go_on(&mut self, fx: &mut Effects) -> Result<(), Broken> {
        while self.store.is_some() && !self.fetching && !self.blocked {
            let next = match self.phase {
                Phase::Look => self.look(fx)?,
                Phase::Clear => self.clear(fx)?,
                Phase::Objects => self.objects(fx)?,
                Phase::Mount | Phase::Close => Next::Wait,
            };
            self.events(fx)?;
            if matches!(next, Next::Wait) {
                break;
            }
        }
        Ok(())
    }

    /// Some of the PG's objects that are there, with their records, not its own one.
    fn there(&self) -> Result<Vec<(ObjectKey, Bytes)>, store::Miss> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let found = store.list(&self.parts.first, &self.parts.end, self.removes)?;
        let mut found: Vec<_> = found.into_iter().map(|(key, stat)| (key, stat.meta)).collect();
        for index in &self.parts.snaps {
            if found.len() >= self.removes {
                break;
            }
            found.extend(store.stat(index)?.map(|stat| (index.clone(), stat.meta)));
        }
        Ok(found)
    }

    /// A PG that split from this one since and is here already.
    fn child_there(&self, store: &Store) -> Result<Option<PgId>, store::Miss> {
        for child in &self.split.children {
            if store.stat(&meta_object(*child))?.is_some() {
                return Ok(Some(*child));
            }
        }
        Ok(None)
    }

    /// A PG that this one split from, and that has not been split here yet: the objects of both are its own.
    fn ancestor_there(&self, store: &Store) -> Result<Option<(PgId, u32)>, store::Miss> {
        for ancestor in ancestors_of(self.begin.pgid) {
            let keys = [info_key(), import_key()];
            let rows = store.omap_get(&meta_object(ancestor), &keys)?.unwrap_or_default();
            let mut rows = rows.iter().map(Option::as_ref);
            let mut row = || rows.next().flatten();
            let by_info = row().and_then(pg_num_of);
            let Some(pg_num) = by_info.or(row().and_then(import_pg_num)) else { continue };
            if children_of(ancestor, pg_num, self.begin.pg_num).contains(&self.begin.pgid) {
                return Ok(Some((ancestor, pg_num)));
            }
        }
        Ok(None)
    }

    /// Why it may not come into this store.
    fn refusal(&self) -> Result<Option<String>, store::Miss> {
        let Some(store) = &self.store else { return Ok(None) };
        if let Some(child) = self.child_there(store)? {
            return Ok(Some(format!(
                "its pool had {} PGs when it was exported, and has {} in the newest map of this store: \
                 the OSD has PG {child} already, which was a part of it. Take the store of one that has none",
                self.begin.pg_num, self.split.pg_num
            )));
        }
        if let Some((ancestor, pg_num)) = self.ancestor_there(store)? {
            return Ok(Some(format!(
                "its pool had {} PGs when it was exported, and {pg_num} when this OSD last had PG {ancestor}: \
                 that one holds the objects of both. Start the OSD, so that it divides them, and stop it again",
                self.begin.pg_num
            )));
        }
        let is_here = store.stat(&self.parts.meta)?.is_some() || !self.there()?.is_empty();
        let why = "it has objects of this PG already; --force removes them first";
        Ok((is_here && !self.force).then(|| why.to_owned()))
    }

    fn look(&mut self, fx: &mut Effects) -> Result<Next, Broken> {
        match self.refusal() {
            Ok(None) => {}
            Ok(Some(why)) => return Err(Broken::new(Exit::Refused, why)),
            Err(miss) => return Ok(self.fetch(miss, fx)),
        }
        let next = self.submit(&begun(&self.begin), fx)?;
        if matches!(next, Next::Go) {
            self.phase = Phase::Clear;
        }
        Ok(next)
    }

    fn clear(&mut self, fx: &mut Effects) -> Result<Next, Broken> {
        let found = match self.there() {
            Ok(found) => found,
            Err(miss) => return Ok(self.fetch(miss, fx)),
        };
        if found.is_empty() {
            self.set = ReadSet::new();
            self.phase = Phase::Objects;
            return Ok(Next::Go);
        }
        let mut txn = transaction(self.begin.pgid);
        txn.may_use_reserve = true;
        for (key, meta) in &found {
            txn.remove(key);
            drop_clone_rows(&mut txn, key, meta);
        }
        match self.try_submit(&txn, fx)? {
            Ok(next) => Ok(next),
            // What they leave to others that share their blocks is more than the log takes.
            Err(Invalid::TooLarge { .. }) if self.removes > 1 => {
                self.removes /= 2;
                Ok(Next::Go)
            }
            Err(why) => Err(Broken::new(Exit::Failed, why)),
        }
    }

    fn fetch(&mut self, miss: store::Miss, fx: &mut Effects) -> Next {
        if let Some(store) = &mut self.store {
            self.fetching = true;
            store.fetch(self.now, miss, 0, fx);
        }
        Next::Wait
    }

    /// `Next::Go` when it was taken.
    fn submit(&mut self, txn: &Transaction, fx: &mut Effects) -> Result<Next, Broken> {
        self.try_submit(txn, fx)?.map_err(|why| Broken::new(Exit::Failed, why))
    }

    /// The same, with why it can never be taken.
    fn try_submit(
        &mut self,
        txn: &Transaction,
        fx: &mut Effects,
    ) -> Result<Result<Next, Invalid>, Broken> {
        let Some(store) = &mut self.store else { return Ok(Ok(Next::Wait)) };
        Ok(Ok(match store.submit(self.now, txn, &self.set) {
            Ok(_) => {
                self.in_flight += 1;
                self.set = ReadSet::new();
                Next::Go
            }
            // What was fetched may be there already.
            Err(SubmitError::Miss(miss)) => self.fetch(miss, fx),
            Err(SubmitError::Busy) => {
                self.blocked = true;
                Next::Wait
            }
            Err(SubmitError::NoSpace) => {
                return Err(Broken::new(Exit::Machine, "there is no space left in the store"));
            }
            Err(SubmitError::Invalid(why)) => return Ok(Err(why)),
        }))
    }

    /// Submits what is ready, or takes in the next section.
    fn objects(&mut self, fx: &mut Effects) -> Result<Next, Broken> {
        if let Some(txn) = self.ready.pop_front() {
            // With the PG's own object the PG is there: all else must be durable before.
            let own = txn.objects().contains(&self.parts.meta);
            let limit = if own { 1 } else { MAX_IN_FLIGHT };
            let next = if self.in_flight < limit { self.submit(&txn, fx)? } else { Next::Wait };
            if matches!(next, Next::Wait) {
                self.ready.push_front(txn);
            }
            return Ok(next);
        }
        // It was whole a moment ago.
        match self.input.next().map_err(|why| Broken::new(Exit::Failed, why))? {
            Some(section) => self.take(section),
            None => {
                if let Some(store) = &mut self.store {
                    store.unmount();
                }
                self.phase = Phase::Close;
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Go)
    }

    fn take(&mut self, section: Section) {
        match section {
            Section::Map { epoch, map } => {
                let mut txn = transaction(self.begin.pgid);
                txn.may_use_reserve = map.len() > self.most_bytes();
                txn.omap_set(&map_object(), vec![(map_key(epoch), map)]);
                self.ready.push_back(txn);
            }
            Section::Object { size, key, meta } => {
                let mut txn = transaction(self.begin.pgid);
                self.record = meta;
                txn.truncate(&key, size).set_meta(&key, record_of_half());
                (self.object, self.gathered) = (Some((key, txn)), 0);
            }
            Section::ObjectEnd { whole } => self.end_object(whole),
            part => self.take_part(part),
        }
    }

    fn end_object(&mut self, whole: bool) {
        self.make_room(self.record.len());
        let Some((key, mut txn)) = self.object.take() else { return };
        let record = std::mem::take(&mut self.record);
        if whole {
            // An index that several PGs share is not in the file.
            put_clone_rows(&mut txn, &key, &record);
            txn.set_meta(&key, record);
        } else {
            // Parts of it may be there.
            txn = transaction(self.begin.pgid);
            txn.remove(&key);
            self.lost.add(&key, &record);
        }
        self.object = Some((key.clone(), txn));
        if key == self.parts.meta {
            self.end_own(&key);
        }
        *(if whole { &mut self.whole } else { &mut self.damaged }) += 1;
        self.ready.extend(self.object.take().map(|(_, txn)| txn));
    }

    /// The PG's own object is in: what is missing, and the info, come last.
    fn end_own(&mut self, own: &ObjectKey) {
        for row in std::mem::take(&mut self.lost).into_rows() {
            self.make_room(row.0.len() + row.1.len());
            if let Some((_, txn)) = &mut self.object {
                txn.omap_set(own, vec![row]);
            }
        }
        let info: Vec<_> = self.info.take().into_iter().map(|info| (info_key(), info)).collect();
        self.make_room(info.iter().map(|(key, info)| key.len() + info.len()).sum());
        if let Some((_, txn)) = &mut self.object {
            txn.omap_set(own, info).omap_remove(own, vec![import_key()]);
        }
    }

    fn take_part(&mut self, part: Section) {
        let Some((key, _)) = &self.object else { return };
        let is_own = *key == self.parts.meta;
        match &part {
            Section::Omap { key, value } if is_own && *key == info_key() => {
                self.info = Some(value.clone());
                return;
            }
            Section::Omap { key, value } if is_own => self.lost.note_row(key, value),
            _ => {}
        }
        self.make_room(match &part {
            Section::Data { data, .. } => data.len(),
            Section::Header(header) => header.len(),
            Section::Attr { name, value } | Section::Omap { key: name, value } => {
                name.len().saturating_add(value.len())
            }
            _ => 0,
        });
        let Some((key, txn)) = &mut self.object else { return };
        match part {
            Section::Data { offset, data } => txn.write(key, offset, data),
            Section::Attr { name, value } => txn.set_attr(key, name, value),
            Section::Header(header) => txn.omap_set_header(key, header),
            Section::Omap { key: name, value } => txn.omap_set(key, vec![(name, value)]),
            _ => return,
        };
    }

    /// What a transaction gathers. The log takes more, of which names with zeros in them need some.
    fn most_bytes(&self) -> usize {
        let most = self.store.as_ref().map_or(u64::MAX, Store::max_first_transaction_bytes);
        usize::try_from(most / 2).unwrap_or(usize::MAX).min(TXN_BYTES)
    }

    /// So many bytes are about to come into the object's transaction. What has gathered there goes before if it would be
    /// too much with them. What is too much alone was in one transaction where it comes from, of which this is a copy.
    fn make_room(&mut self, bytes: usize) {
        let bytes = bytes.saturating_add(ROW_BYTES);
        let (most, new) = (self.most_bytes(), transaction(self.begin.pgid));
        let Some((_, txn)) = &mut self.object else { return };
        if self.gathered > 0 && self.gathered.saturating_add(bytes) > most {
            self.gathered = 0;
            self.ready.push_back(std::mem::replace(txn, new));
        }
        txn.may_use_reserve |= bytes > most;
        self.gathered = self.gathered.saturating_add(bytes);
    }

    fn as_json(&self, is_incomplete: bool) -> Value {
        json!({
            "pgid": self.begin.pgid.to_string(), "osd": self.begin.osd.0, "objects": self.whole,
            "damaged": self.damaged, "incomplete": is_incomplete,
        })
    }

    /// It failed.
    fn broken_off(&self, why: impl Display) -> Failure {
        let failure = Failure::new(cannot(&self.begin), why).exit(self.exit);
        if matches!(self.phase, Phase::Mount | Phase::Look) {
            return failure;
        }
        failure.advise(
            "What has come in does not count until all has. Run it again with --force, before you start the \
             OSD: one that starts removes what came of the PG.",
        )
    }

    fn break_off(&mut self, broken: Broken, fx: &mut Effects) {
        self.exit = broken.exit;
        fx.exit(1, broken.why);
    }

    /// Whether there is something to do that waits for nothing.
    fn can_go_on(&self) -> bool {
        let own = |txn: &Transaction| txn.objects().contains(&self.parts.meta);
        let limit = if self.ready.front().is_some_and(own) { 1 } else { MAX_IN_FLIGHT };
        let waits = self.fetching || self.blocked || self.in_flight >= limit;
        self.store.is_some() && !waits && !matches!(self.phase, Phase::Mount | Phase::Close)
    }
}

/// That the PG is being brought into the store, in place of what was known of it: durable before all else.
fn begun(begin: &Begin) -> Transaction {
    let own = meta_object(begin.pgid);
    let mut txn = transaction(begin.pgid);
    txn.may_use_reserve = true;
    txn.remove(&own).omap_set(&own, vec![import_row(begin.pg_num)]);
    txn
}

impl Core for Import {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let done = match event {
            Event::Start => {
                self.mount.start(fx);
                Ok(())
            }
            Event::Disk(done) => self.disk(now, done, fx),
            Event::Stop => Err(Broken::new(Exit::Failed, "it was interrupted")),
            _ => Ok(()),
        };
        if let Err(broken) = done.and_then(|()| self.events(fx)) {
            self.break_off(broken, fx);
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if fx.exit.is_some() {
            return;
        }
        self.now = now;
        let mut done = self.go_on(fx);
        if let Some(store) = &mut self.store {
            store.end_turn(now, fx);
        }
        done = done.and_then(|()| self.events(fx));
        if let Err(broken) = done {
            self.break_off(broken, fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        if self.can_go_on() {
            return Some(Mono(0));
        }
        self.store.as_ref()?.next_deadline()
    }
}

/// Carries out `loligo store import`.
///
/// # Errors
/// When the file is damaged, the store is of another cluster or has the PG, or it fails.
pub(crate) fn run(args: &StoreImport) -> Result<Exit, Failure> {
    let checked = check(&args.file)?;
    check_content(args, &checked)?;
    let begin = checked.begin;
    let mut input = open(&args.file)?;
    let what = || cannot(&begin);
    // The first section was looked at.
    input.next().map_err(|why| Failure::new(what(), why))?;
    let split = split_since(args, &checked)?;
    let (path, wal) = disks_of(&args.place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::Existing)?;
    let expect = Expect { cluster: Some(begin.cluster), ..Expect::default() };
    let account_of = Some(osd::offline::store_accounts());
    let config = Config { account_of, ..Config::for_memory(IMPORT_BYTES) };
    let mut import = Import {
        input,
        begin,
        parts: objects_of(begin.pgid, begin.pg_num),
        split,
        force: args.force,
        removes: REMOVES,
        phase: Phase::Mount,
        mount: Mount::new(disks.devices.clone(), expect, config),
        store: None,
        object: None,
        record: Bytes::new(),
        gathered: 0,
        ready: VecDeque::new(),
        set: ReadSet::new(),
        fetching: false,
        blocked: false,
        now: Now::default(),
        in_flight: 0,
        whole: 0,
        damaged: 0,
        lost: Lost::default(),
        info: None,
        exit: Exit::Failed,
    };
    let exit = uring::run(&mut import, disks.open, None, &uring::Options::default())
        .map_err(|e| import.broken_off(e).exit(Exit::Machine))?;
    if exit.code != 0 {
        return Err(import.broken_off(exit.why));
    }
    if args.place.json {
        println!("{:#}", import.as_json(checked.is_incomplete));
    } else {
        println!(
            "Imported {} objects of PG {} of osd.{}; {} damaged ones were left out, and count as missing.",
            import.whole, import.begin.pgid, import.begin.osd, import.damaged
        );
    }
    Ok(if import.damaged == 0 { Exit::Done } else { Exit::Damaged })
}

#[cfg(test)]
mod tests;
