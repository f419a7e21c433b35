//! Writes: log entries, who gets them, and when they are committed.

use crate::entry::{EntryKind, LogEntry};
use crate::info::ObjectSums;
use crate::missing::MissingItem;
use crate::persist::{
    LogRecord, MetaOp, forget_up_to, log_key, missing_key, put_missing, put_tail,
};
use crate::pg::{Pg, Stage};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::testing::{Bug, Probe, hit, planted};
use types::{Epoch, Eversion, HObject, OsdId};

/// Bounds of the log's length, in entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Kept while every copy is complete.
    pub clean_entries: usize,
    /// Kept while some copy is away, so that it can catch up from the log. No fewer.
    pub degraded_entries: usize,
    /// Trimmed at once, so that trimming costs little per write.
    pub batch_entries: usize,
    /// Bytes of the entries, whatever may be away: a copy takes the log over in one transaction.
    pub bytes: usize,
}

impl Default for LogLimits {
    /// Ceph's `osd_max_pg_log_entries` with a fifth of it kept when clean.
    fn default() -> Self {
        LogLimits {
            clean_entries: 2_000,
            degraded_entries: 10_000,
            batch_entries: 64,
            bytes: 2 << 20,
        }
    }
}

/// Who gets a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The OSD.
    pub osd: OsdId,
    /// Whether it applies the change, or only learns of it (recovery or backfill will bring the
    /// object).
    pub with_data: bool,
}

/// What a replica takes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All of it.
    Whole,
    /// Its log entries: the primary sent no more.
    LogOnly,
    /// Its log entries: for the rest, which the primary sent too, there is no room or no base here.
    LeftOut,
}

/// What a write that came without its data changes on a copy beside the log.
#[derive(Debug, Default)]
pub struct Behind {
    /// Record changes.
    pub meta: Vec<MetaOp>,
    /// Objects that are gone.
    pub remove: Vec<HObject>,
}

impl Pg {
    /// The version the next write gets.
    pub fn next_version(&self) -> Eversion {
        Eversion::new(self.epoch, self.info.last_update.version + 1)
    }

    /// The other OSDs a write of `object` goes to. Where its head is missed, it only comes into the log.
    pub fn targets(&self, object: &HObject) -> SmallVec<[Target; 4]> {
        let acting = self.mapping.acting.iter().copied().filter(|o| *o != self.me && o.is_some());
        let head = object.head();
        let mut out: SmallVec<[Target; 4]> =
            acting.map(|osd| Target { osd, with_data: !self.is_missed_by(osd, &head) }).collect();
        for (osd, backfill) in &self.backfills {
            let with_data = backfill.has_passed(object) && !self.is_missed_by(*osd, &head);
            hit(if with_data { Probe::WriteBehindCursor } else { Probe::WriteBeyondCursor });
            let with_data = with_data && !planted(Bug::BackfillMissesWrite);
            out.push(Target { osd: *osd, with_data });
        }
        out
    }

    /// The records of new entries, for the transaction that makes their changes.
    pub fn log_ops(entries: &[LogEntry], sums: &ObjectSums, last_user_version: u64) -> Vec<MetaOp> {
        let record = |e: &LogEntry| LogRecord::encode_of(e, sums, last_user_version);
        let put = |e: &LogEntry| MetaOp::Put(log_key(e.version), record(e));
        entries.iter().map(put).collect()
    }

    /// Where the log should be trimmed to now, if at all. `committed` is the newest version that all
    /// members have durable ([`InFlight::committed`]): what may still turn out divergent stays.
    pub fn trim_target(&self, limits: &LogLimits, committed: Eversion) -> Option<Eversion> {
        let fewest = limits.clean_entries.saturating_add(limits.batch_entries.max(1));
        if self.log.len() < fewest && self.log.entries_bytes() <= limits.bytes {
            return None;
        }
        let full = self.acting_count() >= self.rules.size as usize;
        let calm = full && self.backfills.is_empty() && self.is_recovered();
        let keep = if calm { limits.clean_entries } else { limits.degraded_entries };
        let mut extra = self.log.len().saturating_sub(keep);
        if extra < limits.batch_entries.max(1) {
            extra = 0;
        }
        // By a sixteenth at once.
        if self.log.entries_bytes() > limits.bytes {
            extra = extra.max(self.log.entries_beyond(limits.bytes / 16 * 15));
        }
        if extra == 0 {
            return None;
        }
        let to = self.log.entries().nth(extra - 1)?.version.min(committed);
        (to > self.log.tail()).then_some(to)
    }

    /// Trims the log; the record changes go into the transaction of the write that caused it.
    pub fn trim(&mut self, to: Eversion) -> Vec<MetaOp> {
        hit(Probe::LogTrimmed);
        let forgotten = self.log.trim(to.min(self.log.head()));
        self.info.log_tail = self.log.tail();
        let mut ops = vec![put_tail(self.log.tail())];
        if forgotten > 0 {
            ops.extend(forget_up_to(forgotten));
        }
        ops
    }

    /// As the primary: the transaction with these entries is handed to the store.
    pub fn append(&mut self, entries: Vec<LogEntry>, sums: ObjectSums, last_user_version: u64) {
        assert_eq!(self.stage, Stage::Active, "{}: a write while not active", self.info.pgid);
        self.note_missing_writes(&entries);
        self.forget_what_was_unreadable(&entries);
        if let Some(last) = entries.last() {
            let now = |e: &LogEntry| e.leaves_object().then_some(e.version);
            let changed = entries.iter().filter(|e| e.changes_object());
            let changed = changed.map(|e| (e.object.clone(), now(e)));
            let head = last.object.head();
            self.backfills.values_mut().for_each(|b| b.note_write(&head, changed.clone()));
            self.count_objects(&last.object, sums.objects - self.info.sums.objects);
        }
        self.take_in(entries, sums, last_user_version);
        for peer in self.peers.values_mut() {
            if peer.missing.is_some() {
                peer.info.last_update = self.info.last_update;
            }
        }
    }

    /// Copies that miss the object of these entries miss its new state. What is deleted, nobody
    /// misses any more.
    fn note_missing_writes(&mut self, entries: &[LogEntry]) {
        let Some(head) = entries.last().map(|e| e.object.head()) else { return };
        let deleted = |e: &&LogEntry| e.kind == EntryKind::Delete;
        let mut changed = false;
        for entry in entries.iter().filter(deleted) {
            changed |= self.missing.remove(&entry.object).is_some();
        }
        for peer in self.peers.values_mut() {
            let there_since = peer.info.there_since;
            let Some(missing) = peer.missing.as_mut() else { continue };
            if missing.contains(&head) {
                changed = true;
                entries.iter().for_each(|e| missing.note(e, there_since));
            } else {
                let gone = |e: &LogEntry| missing.remove(&e.object).is_some();
                changed |= entries.iter().filter(deleted).map(gone).fold(false, |a, b| a | b);
            }
        }
        if changed {
            self.look_again(&head);
        }
    }

    /// As the primary: the entry is handed to the store. Nobody gets its data, we neither: every copy
    /// misses the object in the entry's version from now on, and keeps what it has of it.
    pub fn append_without_data(&mut self, entry: LogEntry, sums: ObjectSums) {
        assert_eq!(self.stage, Stage::Active, "{}: a write while not active", self.info.pgid);
        self.missing.note(&entry, self.info.there_since);
        let reached: Vec<_> = self.members().collect();
        for (_, peer) in self.peers.iter_mut().filter(|(o, _)| reached.contains(o)) {
            if let Some(missing) = &mut peer.missing
                && entry.object < peer.info.last_backfill
            {
                missing.note(&entry, peer.info.there_since);
            }
        }
        self.look_again(&entry.object);
        let luv = self.info.last_user_version;
        let (object, version) = (entry.object.clone(), entry.version);
        self.append(vec![entry], sums, luv);
        self.bring_again_everywhere(&object, version);
    }

    /// The record changes for entries whose objects this copy misses.
    pub fn missing_ops(&self, entries: &[LogEntry]) -> Vec<MetaOp> {
        let record = |e: &LogEntry| match self.missing.get(&e.object) {
            Some(item) => put_missing(&e.object, item),
            None => MetaOp::Remove(missing_key(&e.object)),
        };
        entries.iter().filter(|e| e.changes_object()).map(record).collect()
    }

    fn take_in(
        &mut self,
        entries: impl IntoIterator<Item = LogEntry>,
        sums: ObjectSums,
        last_user_version: u64,
    ) {
        for entry in entries {
            self.log.append(entry);
        }
        self.info.last_update = self.log.head();
        self.info.last_user_version = last_user_version;
        self.info.sums = sums;
    }

    /// As a replica: whether a write sent in the interval that began in `interval` is for us.
    pub fn accepts_write(&self, from: OsdId, interval: Epoch) -> bool {
        self.stage == Stage::Replica
            && self.mapping.acting_primary == Some(from)
            && interval == self.info.history.same_interval_since
    }

    /// As the primary: a replica answers a write, of which it logged these entries without their data. If there
    /// are too few others the write is held. One that is being filled does not count, and its answer may come when
    /// the client has had its own.
    pub fn left_out<T>(
        &mut self,
        osd: OsdId,
        (write, entries): (Eversion, &[Eversion]),
        in_flight: &mut InFlight<T>,
        object: impl Fn(&T) -> &HObject,
    ) {
        self.taken_without_data(osd, entries);
        let (counts, committed) = (self.mapping.acting.contains(&osd), in_flight.committed());
        let flying = in_flight.get_mut(write).filter(|_| counts);
        if flying.is_some_and(|w| !self.is_safe(object(w), write, committed)) {
            in_flight.hold(write);
        }
    }

    /// As the primary: a replica logged these entries of a write without their data. It misses the objects now, and
    /// what was written upon them since it leaves out as well, though it has not said so yet (unless the object was
    /// deleted first).
    pub fn taken_without_data(&mut self, osd: OsdId, versions: &[Eversion]) {
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        let there_since = peer.info.there_since;
        let Some(missing) = peer.missing.as_mut() else { return };
        let Some(first) = versions.iter().find_map(|v| self.log.get(*v)) else { return };
        let head = first.object.head();
        let since = self.log.entries().skip_while(|e| e.version < first.version);
        for entry in since.filter(|e| e.object.head() == head) {
            missing.note(entry, there_since);
            if entry.kind == EntryKind::Delete && entry.object == head {
                break;
            }
        }
        self.look_again(&head);
    }

    /// As a replica: whether this copy misses what a write is made upon, so that it can only be logged. What is
    /// merely damaged here the primary has heard of, and sends no data for; if it does, it has found all copies to be
    /// alike since ([`Pg::repair`]): then ours counts again.
    pub fn misses_base_of(&self, records: &[LogRecord]) -> bool {
        let is_base = |o: &HObject| self.missing.get(o).is_none_or(MissingItem::is_damaged);
        let misses = |o: &HObject| !is_base(o) || !is_base(&o.head());
        let deletes = |r: &LogRecord| r.entry.kind == EntryKind::Delete;
        records.iter().any(|r| misses(&r.entry.object)) && !records.iter().all(deletes)
    }

    /// As a replica: takes in the entries of a write whose records are handed to the store. Without
    /// the write's data this copy misses the objects from now on, unless a backfill has yet to bring
    /// them anyway. (It has not if the data was sent: the backfill is past the object, though what is
    /// noted of its progress may not be.)
    ///
    /// # Errors
    /// When they do not continue the log: the primary and we do not agree on the past.
    pub fn append_as_replica(
        &mut self,
        records: impl IntoIterator<Item = LogRecord>,
        taken: Taken,
    ) -> Result<Behind, &'static str> {
        let mut behind = Behind::default();
        for record in records {
            let entry = record.entry;
            let next = self.info.last_update.version + 1;
            if entry.version.version != next || entry.version <= self.log.head() {
                return Err("a replicated write does not continue the log");
            }
            let deleted = entry.kind == EntryKind::Delete;
            let (with_data, left_out) = (taken == Taken::Whole, taken == Taken::LeftOut);
            let filled = left_out || entry.object < self.info.last_backfill;
            // A backfill may have left it out before, and has not noted yet that it is past it; or it is damaged.
            let was_missed = (deleted || with_data) && self.missing.contains(&entry.object);
            if entry.changes_object() && (was_missed || (filled && !with_data)) {
                match with_data {
                    true => _ = self.missing.remove(&entry.object),
                    false => self.missing.note(&entry, self.info.there_since),
                }
                behind.meta.extend(self.missing_ops(std::slice::from_ref(&entry)));
                if deleted && !with_data {
                    behind.remove.push(entry.object.clone());
                }
            }
            self.take_in([entry], record.sums, record.last_user_version);
        }
        Ok(behind)
    }
}

/// Writes that not every copy has made durable yet, oldest first.
///
/// Stores make the writes of a PG durable in order, so that one version per OSD says all.
#[derive(Debug)]
pub struct InFlight<T> {
    writes: VecDeque<(Eversion, T)>,
    durable: BTreeMap<OsdId, Eversion>,
    /// Of these too few members have the data, though all may have them in their logs.
    held: BTreeSet<Eversion>,
    /// Those of them that all have in their logs, and later ones of the same objects: writes of other
    /// objects do not wait for them.
    parked: BTreeMap<Eversion, T>,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        InFlight {
            writes: VecDeque::new(),
            durable: BTreeMap::new(),
            held: BTreeSet::new(),
            parked: BTreeMap::new(),
        }
    }
}

impl<T> InFlight<T> {
    /// Starts an interval with these members; nothing may be in flight.
    pub fn begin(&mut self, members: impl IntoIterator<Item = OsdId>, at: Eversion) {
        assert!(self.is_empty(), "writes of an old interval are taken out first");
        self.durable = members.into_iter().map(|o| (o, at)).collect();
    }

    /// A write was handed to the store and sent.
    pub fn push(&mut self, version: Eversion, what: T) {
        debug_assert!(self.writes.back().is_none_or(|(v, _)| *v < version));
        self.writes.push_back((version, what));
    }

    /// `osd` has everything up to `version` durable.
    pub fn durable(&mut self, osd: OsdId, version: Eversion) {
        if let Some(have) = self.durable.get_mut(&osd) {
            *have = version.max(*have);
        }
    }

    /// The newest version that every member has durable.
    pub fn committed(&self) -> Eversion {
        if planted(Bug::EarlyAck) {
            return self.durable.values().max().copied().unwrap_or_default();
        }
        self.durable.values().min().copied().unwrap_or_default()
    }

    /// The oldest write, if every member has it. Those of one object come in order, as clients rely on it
    /// (Ceph's own `test/osd/RadosModel.h` does).
    pub fn pop_committed(&mut self, object: impl Fn(&T) -> &HObject) -> Option<(Eversion, T)> {
        if !self.parked.is_empty()
            && let Some(version) = self.released(&object)
        {
            return self.parked.remove_entry(&version);
        }
        let all = self.committed();
        while let Some((version, what)) = self.writes.pop_front_if(|(v, _)| *v <= all) {
            let waits = self.parked.values().any(|earlier| object(earlier) == object(&what));
            if !waits && !self.held.contains(&version) {
                return Some((version, what));
            }
            self.parked.insert(version, what);
        }
        None
    }

    /// The oldest parked write that is not held, nor an earlier one of its object.
    fn released(&self, object: impl Fn(&T) -> &HObject) -> Option<Eversion> {
        let mut waiting: BTreeSet<&HObject> = BTreeSet::new();
        for (version, what) in &self.parked {
            if !waiting.contains(object(what)) && !self.held.contains(version) {
                return Some(*version);
            }
            waiting.insert(object(what));
        }
        None
    }

    /// A write is not committed before [`InFlight::release`], whoever has it in its log.
    pub fn hold(&mut self, version: Eversion) {
        self.held.insert(version);
    }

    /// Lets go of the held writes of which `is_safe` says so, given its version and what all members have
    /// durable.
    pub fn release(&mut self, is_safe: impl Fn(&T, Eversion, Eversion) -> bool) {
        if self.held.is_empty() {
            return;
        }
        let committed = self.committed();
        // No others are looked at: there may be thousands.
        let mut held = std::mem::take(&mut self.held);
        held.retain(|v| self.get(*v).is_some_and(|what| !is_safe(what, *v, committed)));
        self.held = held;
    }

    fn get(&self, version: Eversion) -> Option<&T> {
        let i = self.writes.partition_point(|(v, _)| *v < version);
        let flying = self.writes.get(i).filter(|(v, _)| *v == version).map(|(_, t)| t);
        flying.or_else(|| self.parked.get(&version))
    }

    /// The write of this version, if it is in flight.
    pub fn get_mut(&mut self, version: Eversion) -> Option<&mut T> {
        let i = self.writes.partition_point(|(v, _)| *v < version);
        let flying = self.writes.get_mut(i).filter(|(v, _)| *v == version).map(|(_, t)| t);
        flying.or_else(|| self.parked.get_mut(&version))
    }

    /// Members that have not made `version` durable: who is waited for.
    pub fn waiting_for(&self, version: Eversion) -> impl Iterator<Item = OsdId> {
        self.durable.iter().filter(move |(_, v)| **v < version).map(|(o, _)| *o)
    }

    /// Forgets all writes: the interval is over.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.held.clear();
        self.parked.clear();
    }

    /// How many writes are in flight.
    pub fn len(&self) -> usize {
        self.writes.len() + self.parked.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.parked.is_empty()
    }
}
