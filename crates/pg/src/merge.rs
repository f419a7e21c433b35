//! Bringing the logs of two copies together.
//!
//! One log is authoritative. Entries another copy has beyond the newest common one are *divergent*:
//! they were never acknowledged, and their objects go back to the version the authoritative log
//! knows. Nothing can be rolled back in place, so such an object is removed and recovered from a
//! peer. Source: Ceph `osd/PGLog.{h,cc}: merge_log, proc_replica_log,
//! _merge_object_divergent_entries`.

use crate::entry::{EntryKind, LogEntry};
use crate::info::PgInfo;
use crate::log::{Dup, PgLog};
use crate::missing::{Missing, MissingItem};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use types::testing::{Bug, Probe, hit, planted};
use types::{Eversion, HObject};

/// A stretch of a log, as it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LogSegment {
    /// Version just before the first entry.
    pub tail: Eversion,
    /// The newest version that the log knows of (see [`PgLog`]).
    pub head: Eversion,
    /// Oldest first.
    pub entries: Vec<LogEntry>,
    /// What is remembered of requests before the tail.
    pub dups: Vec<Dup>,
}

impl LogSegment {
    /// All of a log.
    pub fn whole(log: &PgLog) -> Self {
        LogSegment {
            tail: log.tail(),
            head: log.head(),
            entries: log.entries().cloned().collect(),
            dups: log.dups().cloned().collect(),
        }
    }

    /// The entries after `since`. The segment's tail is the newest version of *this* log that is not
    /// beyond `since` (which may be a version that this log never had).
    pub fn after(log: &PgLog, since: Eversion) -> Self {
        let known = log.entries().rev().map(|e| e.version).find(|v| *v <= since);
        let tail = known.unwrap_or(log.tail());
        let entries = log.after(tail).cloned().collect();
        LogSegment { tail, head: log.head(), entries, dups: Vec::new() }
    }

    /// Whether versions rise and lie between tail and head.
    pub fn is_well_formed(&self) -> bool {
        let mut last = self.tail;
        for entry in &self.entries {
            if entry.version <= last || entry.version.version <= last.version {
                return false;
            }
            last = entry.version;
        }
        last <= self.head && last.version <= self.head.version
    }
}

/// What a merge changed, for the persisted copy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Versions of our entries that are gone.
    pub divergent: Vec<Eversion>,
    /// Versions of entries that came in.
    pub added: Vec<Eversion>,
    /// Objects to remove: deleted by the authoritative log, or divergent.
    pub remove: Vec<HObject>,
    /// Whether the dups were replaced.
    pub dups_changed: bool,
}

/// Makes our log the authoritative one. Objects whose new version we have not got become missing.
///
/// # Errors
/// When the logs have no version in common: the copy must be backfilled instead.
pub fn merge_log(
    log: &mut PgLog,
    info: &mut PgInfo,
    missing: &mut Missing,
    auth: &PgInfo,
    seg: &LogSegment,
) -> Result<Merged, &'static str> {
    if !seg.is_well_formed() {
        return Err("the authoritative log is malformed");
    }
    if seg.tail > log.head() || seg.head < log.tail() {
        return Err("the logs do not overlap");
    }
    let common =
        newest_common(log, auth, seg).ok_or("the segment begins after where the logs part")?;
    let mut merged = Merged::default();
    missing.forget_from(&info.last_backfill);
    extend_tail(log, seg, &mut merged);
    let divergent = log.rewind(common);
    merged.divergent = divergent.iter().map(|e| e.version).collect();
    if !divergent.is_empty() {
        hit(Probe::DivergentEntries);
    }
    for entry in seg.entries.iter().filter(|e| e.version > common) {
        if entry.changes_object() && entry.object < info.last_backfill {
            missing.note(entry, info.there_since);
            if entry.kind == EntryKind::Delete && !planted(Bug::LostDelete) {
                hit(Probe::DeleteRecovered);
                merged.remove.push(entry.object.clone());
            }
        }
        hit(Probe::LogMerged);
        merged.added.push(entry.version);
        log.append(entry.clone());
    }
    log.raise_head(seg.head);
    merge_divergent(log, &divergent, &info.last_backfill, missing, &mut merged.remove);
    merged.dups_changed = log.adopt_dups(seg.dups.clone());
    info.last_update = log.head();
    info.log_tail = log.tail();
    info.last_user_version = auth.last_user_version;
    info.sums = auth.sums;
    if auth.last_epoch_started > info.last_epoch_started {
        // What is the same log counts the same. Else choosing would go back and forth between the copy
        // that it was taken from and this one (Ceph `PeeringState.cc: merge_log`).
        info.last_epoch_started = auth.last_epoch_started;
        info.last_interval_started = auth.last_interval_started;
    }
    Ok(merged)
}

/// A longer authoritative log gives our own older entries, so that we can serve peers that need
/// them.
fn extend_tail(log: &mut PgLog, seg: &LogSegment, merged: &mut Merged) {
    if seg.tail >= log.tail() {
        return;
    }
    let older: Vec<_> = seg.entries.iter().filter(|e| e.version <= log.tail()).cloned().collect();
    merged.added.extend(older.iter().map(|e| e.version));
    log.extend_tail(seg.tail, older);
}

/// The newest version that our log and the one of `auth` share, of which this is a segment: two logs that share
/// a version share all before it. `None`: the segment begins after where they part. (That a version is not
/// beyond our head does not say that we have it: of two branches either may go on with the newer one. What is
/// trimmed is on all copies; between versions of this PG there may be some of others.)
pub fn newest_common(log: &PgLog, auth: &PgInfo, seg: &LogSegment) -> Option<Eversion> {
    let versions = seg.entries.iter().rev().map(|e| e.version);
    let is_shared = |v: &Eversion| {
        *v <= log.tail() || log.contains(*v) || (*v == auth.log_tail && *v <= log.head())
    };
    let newest = versions.chain([seg.tail]).find(is_shared)?;
    Some(newest.max(log.tail()))
}

/// Works out what the divergent entries mean for the objects they touched. `log` is the log without
/// them (and with everything authoritative that came instead).
fn merge_divergent(
    log: &PgLog,
    divergent: &[LogEntry],
    last_backfill: &HObject,
    missing: &mut Missing,
    remove: &mut Vec<HObject>,
) {
    if planted(Bug::DivergentKept) {
        return;
    }
    let mut by_object: BTreeMap<&HObject, &LogEntry> = BTreeMap::new();
    for entry in divergent.iter().filter(|e| e.changes_object()) {
        // The first divergent entry of an object knows the last version that counts.
        by_object.entry(&entry.object).or_insert(entry);
    }
    for (object, first) in by_object {
        if object >= last_backfill {
            continue;
        }
        revert_object(log, object, first, missing);
        remove.push(object.clone());
        let kept = match missing.get(object) {
            // What we have is exactly the version that counts.
            None => !is_gone(log, object, first),
            // What we have is older and was never touched by the divergent entries.
            Some(item) => item.is_there(),
        };
        if kept {
            remove.pop();
        }
    }
}

/// Whether the object must not exist after the divergent entries are taken back.
fn is_gone(log: &PgLog, object: &HObject, first: &LogEntry) -> bool {
    match log.newest_of(object).filter(|e| e.version > first.prior_version) {
        Some(newer) => !newer.leaves_object(),
        None => first.prior_version == Eversion::ZERO || first.kind == EntryKind::Clone,
    }
}

fn revert_object(log: &PgLog, object: &HObject, first: &LogEntry, missing: &mut Missing) {
    if let Some(newer) = log.newest_of(object).filter(|e| e.version > first.prior_version) {
        // The authoritative log went on with this object: that version is needed, and what we have
        // is worth nothing.
        if newer.leaves_object() {
            missing.set(object.clone(), newer.version, Eversion::ZERO);
        } else {
            missing.remove(object);
        }
        return;
    }
    if is_gone(log, object, first) {
        missing.remove(object);
        return;
    }
    let prior = first.prior_version;
    match missing.get(object).copied() {
        Some(item) if item.have == prior => {
            missing.remove(object);
        }
        Some(item) if item.have < prior => {
            let counts = item.damaged <= prior;
            let damaged = if counts { item.damaged } else { Eversion::ZERO };
            let item = MissingItem { damaged, ..MissingItem::new(prior, item.have) };
            missing.set_item(object.clone(), item);
        }
        Some(_) | None => missing.set(object.clone(), prior, Eversion::ZERO),
    }
}

/// As the authority: works out what a peer will be missing once it has taken over our log.
///
/// `info.last_update` goes back to the newest version that the peer shares with us, and `missing`
/// (the peer's own) is corrected for its divergent entries, then wound forward to our head.
///
/// # Errors
/// When the logs have no version in common: the peer must be backfilled.
pub fn peer_missing(
    log: &PgLog,
    peer: &mut PgInfo,
    seg: &LogSegment,
    mut missing: Missing,
) -> Result<Missing, &'static str> {
    if !seg.is_well_formed() {
        return Err("the peer's log is malformed");
    }
    if seg.head < log.tail() || seg.tail > log.head() {
        return Err("the logs do not overlap");
    }
    missing.forget_from(&peer.last_backfill);
    let limit = log.tail().max(seg.tail);
    let mut theirs = PgLog::from_parts(seg.tail, seg.entries.clone(), Vec::new())?;
    let newest = log.entries().rev().map(|e| e.version).find(|v| theirs.contains(*v));
    let common = newest.unwrap_or(limit).max(limit);
    let divergent = theirs.rewind(common);
    merge_divergent(&theirs, &divergent, &peer.last_backfill, &mut missing, &mut Vec::new());
    peer.last_update = peer.last_update.min(common);
    for entry in log.after(peer.last_update) {
        if entry.changes_object() && entry.object < peer.last_backfill {
            missing.note(entry, peer.there_since);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::History;
    use types::{Epoch, PgId, PoolId};

    fn log_of(tail: (u32, u64), versions: &[(u32, u64)]) -> PgLog {
        let at = |(epoch, n): (u32, u64)| Eversion::new(Epoch(epoch), n);
        let object = |n: u64| HObject { hash: n as u32, name: "a".into(), ..HObject::min() };
        let entry = |v: &(u32, u64)| LogEntry::of(object(v.1), at(*v));
        PgLog::from_parts(at(tail), versions.iter().map(entry).collect(), Vec::new()).unwrap()
    }

    fn info_of(log: &PgLog) -> PgInfo {
        let info = PgInfo::new(PgId::new(PoolId(1), 0), History::default());
        PgInfo { last_update: log.head(), log_tail: log.tail(), ..info }
    }

    /// One copy wrote 7'5 and 8'6, the other 9'5: neither is all before the other's end.
    #[test]
    fn branches_part_where_they_have_the_last_version_in_common() {
        let (ours, theirs) =
            (log_of((3, 1), &[(3, 4), (9, 5)]), log_of((3, 1), &[(3, 4), (7, 5), (8, 6)]));
        let auth = info_of(&theirs);
        let (parted, common) = (Eversion::new(Epoch(7), 5), Eversion::new(Epoch(3), 4));
        for since in [auth.last_update, parted] {
            assert_eq!(newest_common(&ours, &auth, &LogSegment::after(&theirs, since)), None);
        }
        let seg = LogSegment::after(&theirs, common);
        assert_eq!(newest_common(&ours, &auth, &seg), Some(common));
        let (mut log, mut info, mut missing) = (ours.clone(), info_of(&ours), Missing::default());
        let merged = merge_log(&mut log, &mut info, &mut missing, &auth, &seg).unwrap();
        assert!(log.entries().eq(theirs.entries()));
        assert_eq!((merged.divergent.len(), merged.added.len(), missing.len()), (1, 2, 2));
        // And what the one that leads makes of the other's.
        let mut peer = info_of(&ours);
        let seg = LogSegment::whole(&ours);
        let lacks = peer_missing(&theirs, &mut peer, &seg, Missing::default()).unwrap();
        assert_eq!((peer.last_update, lacks.len()), (common, 2));
    }

    #[test]
    fn what_is_trimmed_is_in_common() {
        let (ours, theirs) = (log_of((3, 1), &[(3, 4), (3, 6)]), log_of((3, 5), &[(3, 6)]));
        let auth = info_of(&theirs);
        let seg = LogSegment::after(&theirs, Eversion::new(Epoch(3), 5));
        assert_eq!(newest_common(&ours, &auth, &seg), Some(Eversion::new(Epoch(3), 6)));
        let all_trimmed = log_of((3, 6), &[]);
        let auth = info_of(&all_trimmed);
        let seg = LogSegment::whole(&all_trimmed);
        assert_eq!(newest_common(&ours, &auth, &seg), Some(Eversion::new(Epoch(3), 6)));
    }

    /// The copy was damaged, and missed the next write, which turns out not to have happened.
    #[test]
    fn a_damaged_copy_is_kept_when_what_came_after_it_is_taken_back() {
        let versions = [(3, 4), (4, 5)];
        let (mut log, rest) = (log_of((3, 1), &versions), log_of((3, 1), &versions[..1]));
        let object = log.entries().next().unwrap().object.clone();
        let (last, damaged) = (Eversion::new(Epoch(4), 5), Eversion::new(Epoch(3), 4));
        log.rewind(damaged);
        let again = LogEntry { prior_version: damaged, ..LogEntry::of(object.clone(), last) };
        log.append(again.clone());
        for version in [damaged, last] {
            let (mut log, mut missing) = (log.clone(), Missing::default());
            missing.set_item(object.clone(), MissingItem::of_damaged(version));
            missing.note(&again, Epoch::ZERO);
            let mut info = info_of(&log);
            let auth = PgInfo { last_update: damaged, ..info_of(&rest) };
            let seg = LogSegment::whole(&rest);
            let merged = merge_log(&mut log, &mut info, &mut missing, &auth, &seg).unwrap();
            let item = missing.get(&object).unwrap();
            let counts = version == damaged;
            assert_eq!((item.need, item.is_damaged()), (damaged, counts));
            assert_eq!(merged.remove.is_empty(), counts);
        }
    }
}
