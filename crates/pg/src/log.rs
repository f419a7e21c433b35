//! The PG log: which writes happened, in order, and which requests they answered.
//!
//! The log is what copies are compared by, what a copy that was away catches up from, and where a
//! resent request is recognised. Entries older than the tail live on as [`Dup`]s: enough to answer a
//! resent request, not enough to recover from.

use crate::entry::{EntryKind, LogEntry, OpReturn};
use crate::requests::Requests;
use denc::{Decode, Encode};
use smallvec::SmallVec;
use std::collections::VecDeque;
use types::{Eversion, HObject, ReqId};

/// Ranges of bytes: offset and length of each.
pub type Changed = SmallVec<[(u64, u64); 4]>;

/// What a resent request is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct Dup {
    /// The request.
    pub reqid: ReqId,
    /// Version it was applied at.
    pub version: Eversion,
    /// User-visible version it made.
    pub user_version: u64,
    /// Its result.
    pub result: i32,
    /// Results of its ops, when asked for.
    pub op_returns: Vec<OpReturn>,
    /// Hash of its object: to which PG it belongs. `None`: it was noted before this was kept.
    #[denc(since = 2)]
    pub hash: Option<u32>,
}

/// Versions behind the tail whose requests are remembered (`osd_pg_log_dups_tracked`).
pub const DUPS_TRACKED: u64 = 3000;

/// Bytes of what is remembered of them, at most ([`LogEntry::weight`]): it goes to another copy in one
/// message, and into its log in one transaction.
const DUPS_BYTES: usize = 1 << 20;

/// The log of one copy, oldest entry first.
///
/// The head is the newest version that the copy knows of. It may be above the newest entry: after a
/// split, the entries between are in the logs of other PGs.
#[derive(Clone, Debug, Default)]
pub struct PgLog {
    entries: VecDeque<LogEntry>,
    /// What the entries weigh.
    entries_bytes: usize,
    dups: VecDeque<Dup>,
    /// What the dups weigh.
    dups_bytes: usize,
    tail: Eversion,
    head: Eversion,
    requests: Requests,
}

impl Dup {
    fn weight(&self) -> usize {
        size_of::<Dup>() + self.op_returns.iter().map(OpReturn::weight).sum::<usize>()
    }
}

impl PgLog {
    /// An empty log that continues after `tail`.
    pub fn starting_at(tail: Eversion) -> Self {
        PgLog { tail, head: tail, ..PgLog::default() }
    }

    /// Puts a log together from its parts, as loaded or received.
    ///
    /// # Errors
    /// When the versions are not strictly rising from `tail` on.
    pub fn from_parts(
        tail: Eversion,
        entries: Vec<LogEntry>,
        dups: Vec<Dup>,
    ) -> Result<Self, &'static str> {
        let mut log = PgLog::starting_at(tail);
        for dup in dups {
            log.requests.note(dup.reqid, dup.version);
            log.push_dup(dup);
        }
        for entry in entries {
            if entry.version <= log.head || entry.version.version <= log.head.version {
                return Err("log entries out of order");
            }
            log.append(entry);
        }
        Ok(log)
    }

    /// Version just before the oldest entry.
    pub fn tail(&self) -> Eversion {
        self.tail
    }

    /// Version of the newest entry, or above it; the tail when there was none ever.
    pub fn head(&self) -> Eversion {
        self.head
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What the entries weigh, in bytes.
    pub fn entries_bytes(&self) -> usize {
        self.entries_bytes
    }

    /// How many of the oldest entries must go for the others to weigh so much at most.
    pub fn entries_beyond(&self, bytes: usize) -> usize {
        let mut left = self.entries_bytes;
        let mut entries = self.entries.iter();
        while left > bytes
            && let Some(goes) = entries.next()
        {
            left -= goes.weight();
        }
        self.entries.len() - entries.len()
    }

    /// Number of dups behind the tail.
    pub fn dup_count(&self) -> usize {
        self.dups.len()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// The dups, oldest first.
    pub fn dups(&self) -> impl DoubleEndedIterator<Item = &Dup> + ExactSizeIterator {
        self.dups.iter()
    }

    /// The entries newer than `v`, oldest first.
    pub fn after(&self, v: Eversion) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.range(self.position_after(v)..)
    }

    /// Whether `v` is the version of an entry, or the tail itself.
    pub fn contains(&self, v: Eversion) -> bool {
        v == self.tail || self.get(v).is_some()
    }

    /// The entry of version `v`.
    pub fn get(&self, v: Eversion) -> Option<&LogEntry> {
        let i = self.entries.partition_point(|e| e.version < v);
        self.entries.get(i).filter(|e| e.version == v)
    }

    fn position_after(&self, v: Eversion) -> usize {
        self.entries.partition_point(|e| e.version <= v)
    }

    /// What was changed of an object since it had version `base`, and its version now. `None`: that is not
    /// known, or it is not the same object.
    pub fn changed_since(&self, object: &HObject, base: Eversion) -> Option<(Eversion, Changed)> {
        let (at, all) = self.changed_until(object, base, self.head)?;
        (at > base).then_some((at, all))
    }

    /// What was changed of an object from version `base` up to the one it had when the log came to `until`, and
    /// that version.
    fn changed_until(
        &self,
        object: &HObject,
        base: Eversion,
        until: Eversion,
    ) -> Option<(Eversion, Changed)> {
        let (mut at, mut all) = (base, Changed::new());
        let its = |e: &&LogEntry| e.changes_object() && e.object == *object;
        for entry in self.after(base).take_while(|e| e.version <= until).filter(its) {
            // Without a gap: the log may not reach back to the base.
            if entry.kind != EntryKind::Modify || entry.prior_version != at {
                return None;
            }
            let (offset, len) = entry.changed?;
            all.extend((len > 0).then_some((offset.into(), len.into())));
            at = entry.version;
        }
        Some((at, all))
    }

    /// What of a clone is not in the head's version `base`, if it was made of that or a later one. `None`: it was
    /// not, or that is not known, or an older clone was made of such a one as well, which is nearer.
    pub fn changed_before_clone(&self, clone: &HObject, base: Eversion) -> Option<Changed> {
        let head = clone.head();
        let made = |e: &&LogEntry| e.kind == EntryKind::Clone && e.object.head() == head;
        let first = self.after(base).find(made).filter(|e| e.object == *clone)?;
        // The write that made the clone comes next. What it wrote upon is what the clone shows.
        let write = self.after(first.version).next().filter(|e| e.object == head)?;
        let (at, changed) = self.changed_until(&head, base, first.version)?;
        (at == write.prior_version).then_some(changed)
    }

    /// Adds the newest entry.
    ///
    /// # Panics
    /// When its version is not above the head: a log never goes back.
    pub fn append(&mut self, entry: LogEntry) {
        assert!(
            entry.version > self.head && entry.version.version > self.head.version,
            "log entry {} after head {}",
            entry.version,
            self.head
        );
        self.head = entry.version;
        if entry.has_reqid() {
            self.requests.note(entry.reqid, entry.version);
        }
        if let Some(to) = entry.lost_after {
            self.forget_requests_after(&entry.object, to);
        }
        self.entries_bytes += entry.weight();
        self.entries.push_back(entry);
    }

    fn push_dup(&mut self, dup: Dup) {
        self.dups_bytes += dup.weight();
        self.dups.push_back(dup);
    }

    /// Both were changed by more than what is added at one end and goes at the other.
    fn weigh(&mut self) {
        self.entries_bytes = self.entries.iter().map(LogEntry::weight).sum();
        self.dups_bytes = self.dups.iter().map(Dup::weight).sum();
    }

    fn forget_requests_after(&mut self, object: &HObject, to: Eversion) {
        let mut entries = std::mem::take(&mut self.entries);
        for lost in entries.iter_mut().filter(|e| e.object == *object && e.version > to) {
            self.requests.forget(&lost.reqid, lost.version);
            lost.reqid = ReqId::default();
        }
        self.entries = entries;
    }

    /// Versions up to `to` are accounted for: their entries are in this log, or of other PGs.
    pub fn raise_head(&mut self, to: Eversion) {
        self.head = self.head.max(to);
    }

    /// Takes out what belongs to another PG from now on. Both logs reach from the same tail to the
    /// same head, so that they are compared with other copies' as the one before was.
    pub fn split_off(&mut self, goes: impl Fn(u32) -> bool) -> PgLog {
        let mut off = PgLog { tail: self.tail, head: self.head, ..PgLog::default() };
        let (theirs, ours): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|e| goes(e.object.hash));
        (off.entries, self.entries) = (theirs, ours);
        // Of a request whose object is not known both remember.
        off.dups = self.dups.iter().filter(|d| d.hash.is_none_or(&goes)).cloned().collect();
        self.dups.retain(|d| d.hash.is_none_or(|hash| !goes(hash)));
        for log in [&mut *self, &mut off] {
            log.reset_requests();
            log.weigh();
        }
        off
    }

    fn reset_requests(&mut self) {
        self.requests.reset(remembered(&self.dups, &self.entries));
    }

    /// What to answer to a request that was applied already.
    pub fn find_request(&self, reqid: &ReqId) -> Option<Dup> {
        let version = self.requests.find(reqid, || remembered(&self.dups, &self.entries))?;
        if let Some(entry) = self.get(version) {
            return Some(entry.to_dup());
        }
        let i = self.dups.partition_point(|d| d.version < version);
        self.dups.get(i).filter(|d| d.version == version).cloned()
    }

    /// Removes the entries up to and including `to`; they live on as dups. Gives the version number
    /// up to which nothing is remembered any more.
    ///
    /// # Panics
    /// When `to` is above the head.
    pub fn trim(&mut self, to: Eversion) -> u64 {
        assert!(to <= self.head, "the log is trimmed to {to}, its head is {}", self.head);
        while let Some(entry) = self.entries.pop_front_if(|e| e.version <= to) {
            self.tail = entry.version;
            self.entries_bytes -= entry.weight();
            if entry.has_reqid() {
                self.push_dup(entry.to_dup());
            }
        }
        self.tail = self.tail.max(to);
        let mut forgotten = self.tail.version.saturating_sub(DUPS_TRACKED);
        let bytes = &mut self.dups_bytes;
        while let Some(dup) =
            self.dups.pop_front_if(|d| d.version.version <= forgotten || *bytes > DUPS_BYTES)
        {
            *bytes -= dup.weight();
            forgotten = forgotten.max(dup.version.version);
            self.requests.forget(&dup.reqid, dup.version);
        }
        let len = self.dups.len() + self.entries.len();
        self.requests.trimmed(len, remembered(&self.dups, &self.entries));
        forgotten
    }

    /// Takes out the entries newer than `to`, oldest first: they turned out not to have happened.
    ///
    /// # Panics
    /// When `to` is below the tail.
    pub fn rewind(&mut self, to: Eversion) -> Vec<LogEntry> {
        assert!(to >= self.tail, "the log is rewound to {to}, its tail is {}", self.tail);
        let divergent: Vec<_> = self.entries.drain(self.position_after(to)..).collect();
        for entry in &divergent {
            self.entries_bytes -= entry.weight();
            self.requests.forget(&entry.reqid, entry.version);
        }
        self.head = self.entries.back().map_or(self.tail, |e| e.version);
        divergent
    }

    /// Puts older entries (of the authoritative log) before the tail.
    pub fn extend_tail(&mut self, tail: Eversion, older: Vec<LogEntry>) {
        assert!(tail <= self.tail, "a tail is extended backwards");
        for entry in older.into_iter().rev() {
            assert!(entry.version <= self.tail || self.entries.is_empty());
            self.entries.push_front(entry);
        }
        self.tail = tail;
        // What was remembered of these requests is in their entries again. Twice it would be out of order
        // when they are trimmed again, and a request that is sent again not be found.
        self.dups.retain(|d| d.version <= tail);
        self.weigh();
        self.reset_requests();
    }

    /// Replaces the dups by a better-informed peer's. Returns whether they changed.
    pub fn adopt_dups(&mut self, mut dups: Vec<Dup>) -> bool {
        dups.retain(|d| d.version <= self.tail);
        if dups.len() <= self.dups.len() {
            return false;
        }
        self.dups = dups.into();
        self.weigh();
        self.reset_requests();
        true
    }

    /// The newest entry for `object`, if the log has one.
    pub fn newest_of(&self, object: &HObject) -> Option<&LogEntry> {
        self.entries.iter().rev().find(|e| e.changes_object() && e.object == *object)
    }
}

/// The requests that a log remembers, in the order of versions.
fn remembered(
    dups: &VecDeque<Dup>,
    entries: &VecDeque<LogEntry>,
) -> impl Iterator<Item = (ReqId, Eversion)> {
    let entries = entries.iter().filter(|e| e.has_reqid()).map(|e| (e.reqid, e.version));
    dups.iter().map(|d| (d.reqid, d.version)).chain(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, PoolId};

    fn entry(n: u64, name: &str) -> LogEntry {
        let object = HObject { pool: PoolId(1), name: name.into(), ..HObject::min() };
        let reqid = ReqId { tid: n, ..ReqId::default() };
        LogEntry { reqid, ..LogEntry::of(object, Eversion::new(Epoch(3), n)) }
    }

    #[test]
    fn what_was_changed_since_is_known_without_gaps_only() {
        let at = |n| Eversion::new(Epoch(3), n);
        let write = |n, prior, offset: u32| LogEntry {
            prior_version: at(prior),
            changed: Some((offset, 8)),
            ..entry(n, "a")
        };
        let all = vec![write(5, 2, 0), entry(6, "b"), write(7, 5, 100), write(9, 7, 50)];
        let decoded: Vec<LogEntry> = denc::decode_all(&denc::encode(&all)).unwrap();
        assert_eq!(decoded, all);
        let a = all[0].object.clone();
        let log = PgLog::from_parts(at(4), all.clone(), Vec::new()).unwrap();
        let since = |n| log.changed_since(&a, at(n));
        let is = |ranges: &[(u64, u64)]| Some((at(9), Changed::from_slice(ranges)));
        assert_eq!(since(2), is(&[(0, 8), (100, 8), (50, 8)]));
        assert_eq!(since(5), is(&[(100, 8), (50, 8)]));
        // Never its version, or from before the log's first entry of it; it has it already.
        assert_eq!([1, 3, 4, 6, 8, 9].map(since), [const { None }; 6]);
        let broken = |i: usize, change: fn(&mut LogEntry)| {
            let mut all = all.clone();
            change(&mut all[i]);
            PgLog::from_parts(at(4), all, Vec::new()).unwrap().changed_since(&a, at(2))
        };
        assert_eq!(broken(2, |e| e.changed = None), None);
        assert_eq!(broken(2, |e| e.kind = EntryKind::Delete), None);
        assert_eq!(broken(1, |e| e.kind = EntryKind::Error), is(&[(0, 8), (100, 8), (50, 8)]));
    }

    /// What was written between is known as well, or nothing is.
    #[test]
    fn a_clone_is_like_the_head_that_it_was_made_of() {
        let at = |n| Eversion::new(Epoch(3), n);
        let of = |snap| HObject { snap: types::SnapId(snap), ..entry(1, "a").object };
        let head = HObject { snap: types::SnapId::HEAD, ..of(0) };
        let write = |n, prior, offset: u32| LogEntry {
            prior_version: at(prior),
            changed: Some((offset, 8)),
            ..LogEntry::of(head.clone(), at(n))
        };
        let clone = |n, snap| LogEntry { kind: EntryKind::Clone, ..LogEntry::of(of(snap), at(n)) };
        let all = [
            write(5, 3, 50),
            write(6, 5, 0),
            clone(7, 4),
            write(8, 6, 100),
            write(9, 8, 20),
            clone(10, 9),
            write(11, 9, 30),
        ];
        let log = |all: &[LogEntry]| PgLog::from_parts(at(4), all.to_vec(), Vec::new()).unwrap();
        let since = |snap, n| log(&all).changed_before_clone(&of(snap), at(n));
        let is = |ranges: &[(u64, u64)]| Some(Changed::from_slice(ranges));
        assert_eq!([since(4, 3), since(4, 5)], [is(&[(50, 8), (0, 8)]), is(&[(0, 8)])]);
        assert_eq!(since(4, 6), is(&[]));
        assert_eq!([since(4, 2), since(4, 4), since(4, 8), since(7, 6)], [const { None }; 4]);
        // The one before is nearer, but not if the head is of a later time.
        assert_eq!([since(9, 6), since(9, 8)], [None, is(&[(20, 8)])]);
        assert_eq!(
            log(&all[..3]).changed_before_clone(&of(4), at(5)),
            None,
            "who wrote it is not known"
        );
        let mut broken = all.clone();
        broken[1].changed = None;
        assert_eq!(log(&broken).changed_before_clone(&of(4), at(5)), None);
    }

    /// Copies give each other all that they remember at once.
    #[test]
    fn entries_and_dups_are_bounded_by_what_they_weigh() {
        let output = bytes::Bytes::from(vec![7; 100_000]);
        let returns = vec![OpReturn { rval: 0, outdata: output }];
        let mut log = PgLog::default();
        for n in 1..=40 {
            log.append(LogEntry { op_returns: returns.clone(), ..entry(n, "a") });
        }
        assert_eq!((log.entries_beyond(usize::MAX), log.entries_beyond(0)), (0, 40));
        assert_eq!(log.entries_beyond(1_050_000), 30);
        let forgotten = log.trim(Eversion::new(Epoch(3), 30));
        assert_eq!((forgotten, log.dup_count(), log.len()), (20, 10, 10));
        let known = |n| log.find_request(&entry(n, "").reqid).is_some();
        assert!(!known(20) && (21..=40).all(known));
        let (mut all, before) = (log.clone(), (log.entries_bytes, log.dups_bytes));
        all.weigh();
        assert_eq!((all.entries_bytes, all.dups_bytes), before);
        log.rewind(log.tail());
        assert_eq!((log.entries_bytes, log.entries_beyond(0)), (0, 0));
    }

    /// Else a client that asks again is told that what is lost was done.
    #[test]
    fn lost_requests_are_forgotten() {
        let to = Eversion::new(Epoch(3), 2);
        let mut all: Vec<_> =
            [(1, "a"), (2, "a"), (3, "b"), (4, "a")].map(|(n, o)| entry(n, o)).into();
        all.push(LogEntry { reqid: ReqId::default(), lost_after: Some(to), ..entry(5, "a") });
        let decoded: Vec<LogEntry> = denc::decode_all(&denc::encode(&all)).unwrap();
        assert_eq!(decoded, all);
        let log = PgLog::from_parts(Eversion::ZERO, all, Vec::new()).unwrap();
        let known = |n| log.find_request(&entry(n, "").reqid).is_some();
        assert_eq!([1, 2, 3, 4].map(known), [true, true, true, false]);
        let trimmed = {
            let mut log = log.clone();
            log.trim(Eversion::new(Epoch(3), 5));
            log
        };
        assert_eq!(trimmed.dup_count(), 3);
    }
}
