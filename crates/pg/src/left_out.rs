//! What a copy does without the data of a write: tests of the pieces that stand in `replicate`, `recovery`,
//! `merge` and `unfound`.

use crate::backfill::{Backfill, BackfillWork, Listing};
use crate::entry::{EntryKind, LogEntry};
use crate::info::{History, ObjectSums, PgInfo};
use crate::intervals::{Interval, Mapping, OsdSet, PastIntervals, PoolRules};
use crate::log::PgLog;
use crate::merge::{LogSegment, merge_log};
use crate::missing::{Lack, Missing, MissingItem};
use crate::persist::{LogRecord, MetaOp, missing_key};
use crate::pg::{Fx, Peer, Pg, Stage};
use crate::recovery::Work;
use crate::replicate::{InFlight, Taken};
use crate::unfound::GiveUp;
use types::{Epoch, Eversion, HObject, OsdId, PgId, PoolId, SnapId};

const SIZE: u32 = 3;

pub(crate) fn at(epoch: u32, n: u64) -> Eversion {
    Eversion::new(Epoch(epoch), n)
}

pub(crate) fn object() -> HObject {
    HObject { pool: PoolId(1), hash: 7, name: "a".into(), snap: SnapId::HEAD, ..HObject::min() }
}

pub(crate) fn entry(kind: EntryKind, version: Eversion, prior_version: Eversion) -> LogEntry {
    LogEntry { kind, prior_version, ..LogEntry::of(object(), version) }
}

fn osds(ids: &[i32]) -> OsdSet {
    ids.iter().map(|o| OsdId(*o)).collect()
}

/// osd.1's copy, there since epoch 1, whose log ends at 5'10.
pub(crate) fn copy(stage: Stage, acting: &[i32]) -> Pg {
    let rules = PoolRules { size: SIZE, min_size: 2, pg_num: 1, pg_num_pending: 1 };
    let acting = osds(acting);
    let primary = acting.first().copied();
    let mapping =
        Mapping { up: acting.clone(), up_primary: primary, acting, acting_primary: primary };
    let (history, past) = (History::created(Epoch(1)), PastIntervals::default());
    let pgid = PgId::new(PoolId(1), 0);
    let mut pg = Pg::create(OsdId(1), pgid, history, past, Epoch(8), mapping, rules);
    pg.stage = stage;
    pg.info.there_since = Epoch(1);
    pg.log.raise_head(at(5, 10));
    pg.info.last_update = at(5, 10);
    pg
}

pub(crate) fn peer(pg: &mut Pg, osd: i32, missing: Missing) {
    let info = PgInfo { there_since: Epoch(1), ..pg.info.clone() };
    let peer = Peer { missing: Some(missing), ..Peer::new(info, Lack::default()) };
    pg.peers.insert(OsdId(osd), peer);
}

/// What is to be pulled next, if anything is to be done.
pub(crate) fn pulled(work: Option<Work>) -> Option<HObject> {
    match work? {
        Work::Pull { object, .. } => Some(object),
        Work::Push { object, .. } => panic!("{object} is pushed"),
    }
}

/// osd.1 leads; osd.2 and osd.3 miss nothing.
fn one_of_three() -> Pg {
    let mut pg = copy(Stage::Active, &[1, 2, 3]);
    [2, 3].into_iter().for_each(|osd| peer(&mut pg, osd, Missing::default()));
    pg
}

fn append(pg: &mut Pg, entry: LogEntry) {
    pg.append(vec![entry], ObjectSums::default(), 1);
}

/// What a copy misses that left out the write 5'11, and was there.
fn missing(there_since: u32) -> Missing {
    let mut missing = Missing::default();
    missing.note(&entry(EntryKind::Modify, at(5, 11), at(4, 3)), Epoch(there_since));
    missing
}

fn interval(first: u32, last: u32, acting: &[i32], maybe_went_rw: bool) -> Interval {
    let acting = osds(acting);
    let primary = acting.first().copied();
    Interval {
        first: Epoch(first),
        last: Epoch(last),
        up: acting.clone(),
        acting,
        primary,
        maybe_went_rw,
        follows: false,
    }
}

/// osd.1 leads with osd.2, which misses this, in an interval from epoch 8 on, after these; both lack the write
/// 5'11.
fn leader(past: &[Interval], theirs: Missing) -> Pg {
    let mut pg = copy(Stage::Active, &[1, 2]);
    pg.info.history.same_interval_since = Epoch(8);
    pg.missing = missing(1);
    peer(&mut pg, 2, theirs);
    past.iter().for_each(|i| pg.past.push(i.clone()));
    pg
}

fn after(past: &[Interval], theirs: Missing) -> Vec<HObject> {
    leader(past, theirs).never_acknowledged()
}

fn record(entry: LogEntry) -> LogRecord {
    LogRecord { entry, sums: ObjectSums::default(), last_user_version: 1 }
}

#[test]
fn what_only_one_ever_had_is_taken_back() {
    let of_write = interval(4, 7, &[0, 1, 2], true);
    assert_eq!(after(std::slice::from_ref(&of_write), missing(1)), [object()]);
    // Others than these two served later, or may have.
    let with = |acting: &[i32], rw| {
        [Interval { last: Epoch(5), ..of_write.clone() }, interval(6, 7, acting, rw)]
    };
    assert_eq!(after(&with(&[2, 1], true), missing(1)), [object()]);
    assert_eq!(after(&with(&[0], false), missing(1)), [object()]);
    // What a later interval stands for is not in the list.
    let many = [
        Interval { last: Epoch(5), ..of_write.clone() },
        interval(6, 6, &[1, 2], true),
        interval(7, 7, &[2, 1], true),
    ];
    assert_eq!(after(&many, missing(1)), [object()]);
    assert!(after(&with(&[0], true), missing(1)).is_empty());
    assert!(after(&with(&[1, 3], true), missing(1)).is_empty());
}

#[test]
fn what_two_may_have_had_is_kept() {
    let of_write = |acting: &[i32]| [interval(4, 7, acting, true)];
    // One that is away, and one whose disk is new.
    assert!(after(&of_write(&[0, 1, 2]), missing(6)).is_empty());
    assert!(after(&of_write(&[0, 1, 2, 3]), missing(1)).is_empty());
    // The primary served alone: then that is enough.
    assert!(after(&of_write(&[0]), missing(1)).is_empty());
    // Nothing is known of the interval of the write, or of a time since.
    assert!(after(&[], missing(1)).is_empty());
    assert!(after(&[interval(6, 7, &[0, 1, 2], true)], missing(1)).is_empty());
    assert!(after(&[interval(4, 6, &[0, 1, 2], true)], missing(1)).is_empty());
    let gap = [interval(4, 5, &[0, 1, 2], true), interval(7, 7, &[1, 2], true)];
    assert!(after(&gap, missing(1)).is_empty());
}

/// The primary led from the beginning, and showed the object to clients before it rotted.
#[test]
fn what_was_damaged_is_kept() {
    let mut pg = leader(&[interval(4, 7, &[1, 2], true)], missing(1));
    pg.missing.set(object(), at(5, 11), Eversion::ZERO);
    assert!(pg.never_acknowledged().is_empty());
}

/// A clone that was made goes with it. One that was changed or removed would have to come again.
#[test]
fn what_changed_a_clone_is_kept() {
    let lost = |first: LogEntry| {
        let mut pg = leader(&[interval(4, 7, &[0, 1, 2], true)], missing(1));
        pg.log = PgLog::starting_at(at(5, 9));
        pg.log.append(first);
        pg.log.append(entry(EntryKind::Modify, at(5, 11), at(4, 3)));
        pg.never_acknowledged()
    };
    let clone = |kind| LogEntry {
        kind,
        ..LogEntry::of(HObject { snap: SnapId(4), ..object() }, at(5, 10))
    };
    assert_eq!(lost(LogEntry::of(HObject::min(), at(5, 10))), [object()]);
    assert_eq!(lost(clone(EntryKind::Clone)), [object()]);
    for kind in [EntryKind::Modify, EntryKind::Delete] {
        assert!(lost(clone(kind)).is_empty());
    }
    let mut pg = leader(&[], missing(1));
    pg.log = PgLog::starting_at(at(4, 3));
    pg.log.append(clone(EntryKind::Clone));
    let of_it = clone(EntryKind::Clone);
    assert_eq!(pg.clones_made_after(&object(), at(4, 3)), [(of_it.object, of_it.version)]);
    assert!(pg.clones_made_after(&object(), at(5, 10)).is_empty(), "that had it already");
    // It may have been the last one that was trimmed.
    let mut pg = leader(&[interval(4, 7, &[0, 1, 2], true)], missing(1));
    pg.log = PgLog::starting_at(at(5, 10));
    pg.log.append(entry(EntryKind::Modify, at(5, 11), at(4, 3)));
    assert!(pg.never_acknowledged().is_empty());
}

/// osd.1 took a write back, which osd.2 had done before it went away, and ended before the state before was in its
/// place again.
#[test]
fn what_was_lost_does_not_come_again() {
    let mut pg = leader(&[], Missing::default());
    let back =
        LogEntry { lost_after: Some(at(4, 3)), ..entry(EntryKind::Modify, at(8, 12), at(5, 11)) };
    pg.log.append(back.clone());
    pg.missing.note(&back, Epoch(1));
    let mut theirs = Missing::default();
    theirs.note(&back, Epoch(1));
    assert_eq!(theirs.get(&object()).map(|item| item.have), Some(at(5, 11)));
    peer(&mut pg, 2, theirs.clone());
    let here = GiveUp::Revert { to: at(4, 3), from: OsdId(1) };
    assert_eq!(pg.give_up_unfound(&object(), true), here);
    // Better that than nothing.
    pg.missing = theirs;
    let there = GiveUp::Revert { to: at(5, 11), from: OsdId(1) };
    assert_eq!(pg.give_up_unfound(&object(), true), there);
}

#[test]
fn what_another_copy_has_is_not_lost() {
    assert!(after(&[interval(4, 7, &[0, 1, 2], true)], Missing::default()).is_empty());
}

/// The primary dies, the deletion is on no other disk: the write before it was on the primary's alone.
#[test]
fn a_deletion_in_flight_makes_no_write_safe_that_others_left_out() {
    let mut pg = one_of_three();
    append(&mut pg, entry(EntryKind::Modify, at(5, 11), at(4, 3)));
    [2, 3].into_iter().for_each(|osd| pg.taken_without_data(OsdId(osd), &[at(5, 11)]));
    assert!(!pg.is_safe(&object(), at(5, 11), at(5, 11)), "one has it");
    append(&mut pg, entry(EntryKind::Delete, at(5, 12), at(5, 11)));
    assert!(pg.enough_have(&object()), "nobody misses what is deleted");
    assert!(!pg.is_safe(&object(), at(5, 11), at(5, 11)), "not all have deleted it");
    assert!(pg.is_safe(&object(), at(5, 11), at(5, 12)));
    assert!(pg.is_safe(&object(), at(5, 12), at(5, 12)));
}

/// osd.3 left the first write out and has not heard of the second one, which has replaced the first on the
/// others. If it once serves by itself, the second one is taken back, and nobody has the first one any more.
#[test]
fn a_write_that_a_later_one_replaced_is_safe_when_all_have_that_in_their_logs() {
    let mut pg = one_of_three();
    append(&mut pg, entry(EntryKind::Modify, at(5, 11), at(4, 3)));
    append(&mut pg, entry(EntryKind::Modify, at(5, 12), at(5, 11)));
    pg.taken_without_data(OsdId(3), &[at(5, 11)]);
    assert!(pg.enough_have(&object()), "two have it");
    assert!(!pg.is_safe(&object(), at(5, 11), at(5, 11)));
    assert!(pg.is_safe(&object(), at(5, 11), at(5, 12)));
}

/// A write made a clone first. Of two replicas that left both out, one has been brought the object, and not yet
/// the clone.
#[test]
fn a_write_that_made_a_clone_is_safe_with_the_clone() {
    let mut pg = one_of_three();
    let clone = HObject { snap: SnapId(4), ..object() };
    let of_clone = LogEntry { kind: EntryKind::Clone, ..LogEntry::of(clone.clone(), at(5, 11)) };
    let of_head = entry(EntryKind::Modify, at(5, 12), at(4, 3));
    pg.append(vec![of_clone, of_head], ObjectSums::default(), 1);
    let both = [at(5, 11), at(5, 12)];
    [2, 3].into_iter().for_each(|osd| pg.taken_without_data(OsdId(osd), &both));
    let mut brought = |what: &HObject| {
        let missing = pg.peers.get_mut(&OsdId(2)).and_then(|p| p.missing.as_mut()).unwrap();
        assert!(missing.remove(what).is_some());
        pg.is_safe(&object(), at(5, 12), at(5, 12))
    };
    assert_eq!([brought(&object()), brought(&clone)], [false, true]);
}

/// osd.1 is being filled. A write comes behind the cursor that it has noted, and there is no room for it.
fn filled_that_left_out() -> Pg {
    let mut pg = copy(Stage::Replica, &[0, 1]);
    pg.info.last_backfill = HObject::min();
    let write = record(entry(EntryKind::Modify, at(5, 11), at(4, 3)));
    pg.append_as_replica([write], Taken::LeftOut).unwrap();
    assert!(pg.missing.contains(&object()));
    pg
}

#[test]
fn a_deleted_object_is_not_missing_whatever_a_backfill_has_noted() {
    for taken in [Taken::Whole, Taken::LogOnly] {
        let mut pg = filled_that_left_out();
        let deletion = record(entry(EntryKind::Delete, at(5, 12), at(5, 11)));
        let behind = pg.append_as_replica([deletion], taken).unwrap();
        assert!(pg.missing.is_empty(), "{taken:?}");
        assert_eq!(behind.meta.len(), 1);
    }
}

/// The primary found no copy to be whole, and counts ours again: it was kept from all writes of the object, none of
/// which was answered.
#[test]
fn what_is_damaged_here_takes_the_writes_that_are_sent_with_data() {
    let damaged = || {
        let mut pg = copy(Stage::Replica, &[0, 1]);
        pg.missing.set_item(object(), MissingItem::of_damaged(at(4, 3)));
        pg
    };
    let of_clone = LogEntry {
        kind: EntryKind::Clone,
        ..LogEntry::of(HObject { snap: SnapId(4), ..object() }, at(5, 11))
    };
    let write = entry(EntryKind::Modify, at(5, 12), at(4, 3));
    let records = [of_clone, write].map(record);
    let mut pg = damaged();
    assert!(!pg.misses_base_of(&records));
    let behind = pg.append_as_replica(records.clone(), Taken::Whole).unwrap();
    assert!(pg.missing.is_empty());
    assert_eq!(behind.meta, [MetaOp::Remove(missing_key(&object()))]);
    // Without its data it is made upon what is damaged.
    let mut pg = damaged();
    pg.append_as_replica(records.clone(), Taken::LogOnly).unwrap();
    assert!(pg.missing.contains(&object()) && pg.misses_base_of(&records));
    // Of what is missing for another reason the primary knows nothing yet.
    let mut pg = damaged();
    pg.missing.set(object(), at(4, 3), Eversion::ZERO);
    assert!(pg.misses_base_of(&records));
}

/// The next write of it comes to the target as a log entry only, of which it notes nothing before the backfill is past
/// the object; then that counts as complete in whatever state it is.
#[test]
fn a_backfill_does_not_go_past_what_its_target_left_out() {
    let mut pg = copy(Stage::Active, &[1]);
    pg.backfills.insert(OsdId(2), Backfill::starting_at(HObject::min()));
    peer(&mut pg, 2, Missing::default());
    for here in [true, false] {
        let _ = pg.next_backfill(1);
        let end = HObject::max();
        let listing =
            Listing { begin: HObject::min(), end, objects: [(object(), at(4, 3))].into() };
        pg.backfill_listed(OsdId(2), here, listing);
    }
    peer(&mut pg, 2, missing(1));
    assert_eq!(pg.next_backfill(1), None);
    pg.pushed(OsdId(2), &object(), at(5, 11), &mut Fx::default());
    assert!(matches!(pg.next_backfill(1), Some(BackfillWork::Progress { .. })));
}

/// The write turns out not to have happened: what is missing is not known by the log, but by the backfill.
#[test]
fn a_backfill_that_goes_on_misses_nothing_but_what_it_compares() {
    let Pg { mut log, mut info, mut missing, .. } = filled_that_left_out();
    let others = LogSegment { head: at(6, 11), ..LogSegment::default() };
    let auth = PgInfo { last_update: at(6, 11), ..info.clone() };
    merge_log(&mut log, &mut info, &mut missing, &auth, &others).unwrap();
    assert!(missing.is_empty());
}

/// Else a client would hear of its second write before the first.
#[test]
fn writes_of_one_object_are_answered_in_order() {
    let other = HObject { name: "other".into(), ..object() };
    let mut in_flight = InFlight::default();
    in_flight.begin([OsdId(1)], at(5, 10));
    for (n, of) in [(11, object()), (12, object()), (13, other.clone())] {
        in_flight.push(at(5, n), of);
    }
    in_flight.hold(at(5, 11));
    in_flight.durable(OsdId(1), at(5, 13));
    let mut next = |safe| {
        in_flight.release(|_, _, _| safe);
        in_flight.pop_committed(|o| o)
    };
    assert_eq!(next(false), Some((at(5, 13), other)));
    assert_eq!(next(false), None);
    assert_eq!(next(true), Some((at(5, 11), object())));
    assert_eq!(next(false), Some((at(5, 12), object())));
    assert_eq!(next(false), None);
}
