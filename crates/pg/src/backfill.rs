//! Backfill: filling a copy whose log is too short, by comparing all objects in hash order.
//!
//! For each target the primary compares its own listing of a range with the target's, deletes and
//! pushes what differs, and moves the target's `last_backfill` to the end of the range when all of
//! it is durable there. Writes of objects that the backfill has passed are sent to the target
//! (ordered behind the push); a write beyond it changes what is still to be pushed instead. A write
//! of an object on its way comes with the push, or the push is put off: then the object comes again at
//! the end of the range. (What a target left out is brought as recovery by log, before `last_backfill` moves over
//! it.) So does an object of which an older clone is still on its way: see `clones`.

use crate::pg::{Fx, Pg, Stage};
use crate::recovery::Unreadable;
use std::collections::BTreeMap;
use types::testing::{Bug, planted};
use types::{Eversion, HObject, OsdId};

/// A listing of part of a PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// First object asked for.
    pub begin: HObject,
    /// Everything from `begin` up to here (exclusive) is listed. Never a head: a write of it could
    /// make a clone, which sorts directly before it, and so belongs on the same side.
    pub end: HObject,
    /// The objects and their versions.
    pub objects: BTreeMap<HObject, Eversion>,
}

/// What to do for a backfill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackfillWork {
    /// List our own objects from `begin` on (call [`Pg::backfill_listed`] with the target `None`).
    ListHere {
        /// For which backfill.
        target: OsdId,
        /// First object.
        begin: HObject,
    },
    /// Have the target list its objects from `begin` on.
    ListThere {
        /// Where.
        target: OsdId,
        /// First object.
        begin: HObject,
    },
    /// Bring the object to the target.
    Push {
        /// Where.
        target: OsdId,
        /// What.
        object: HObject,
        /// Version it has here at least.
        version: Eversion,
    },
    /// Remove an object that is not here from the target.
    Remove {
        /// Where.
        target: OsdId,
        /// What.
        object: HObject,
    },
    /// Have the target note that it is complete up to `to` ([`HObject::max`]: altogether).
    Progress {
        /// Where.
        target: OsdId,
        /// Up to where.
        to: HObject,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Wanted,
    Asked,
    Have,
    /// It could not be made.
    Failed,
}

/// How far a backfill has come: everything before is done or under way.
#[derive(Clone, Debug)]
struct Front {
    object: HObject,
    inclusive: bool,
}

/// One target being filled.
#[derive(Clone, Debug)]
pub struct Backfill {
    front: Front,
    begin: HObject,
    here: (Side, Listing),
    there: (Side, Listing),
    /// What differs: the version here, or `None` for what must go there.
    todo: BTreeMap<HObject, Option<Eversion>>,
    /// The same behind the front: objects whose push was put off for a write, and what such writes
    /// changed beside.
    again: BTreeMap<HObject, Option<Eversion>>,
    moving: BTreeMap<HObject, Option<Eversion>>,
    /// The same of what nobody can read, and of heads that have such a clone, in all ranges since `complete`.
    in_vain: BTreeMap<HObject, Option<Eversion>>,
    range_end: HObject,
    reported: Option<HObject>,
    /// Up to where the target has noted that it is.
    complete: HObject,
    pushed: u64,
    /// Objects of ours in ranges that are done, and in the current one.
    done: u64,
    in_range: u64,
}

impl Backfill {
    /// The target is complete up to `at`.
    pub(crate) fn starting_at(at: HObject) -> Self {
        Backfill {
            front: Front { object: at.clone(), inclusive: false },
            begin: at.clone(),
            complete: at,
            here: (Side::Wanted, Listing::default()),
            there: (Side::Wanted, Listing::default()),
            todo: BTreeMap::new(),
            again: BTreeMap::new(),
            moving: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            range_end: HObject::min(),
            reported: None,
            pushed: 0,
            done: 0,
            in_range: 0,
        }
    }

    /// Up to which object the target is complete.
    pub(crate) fn reached(&self) -> &HObject {
        &self.front.object
    }

    /// Whether the object is on its way to the target just now.
    pub(crate) fn is_moving(&self, object: &HObject) -> bool {
        self.moving.contains_key(object)
    }

    /// The version here, at least, of an object that is on its way.
    pub(crate) fn version_of_moving(&self, object: &HObject) -> Option<Eversion> {
        *self.moving.get(object)?
    }

    /// Whether the target has this object already.
    pub(crate) fn has_passed(&self, object: &HObject) -> bool {
        let lists = [&self.again, &self.moving, &self.in_vain];
        self.is_behind_front(object) && !lists.iter().any(|list| list.contains_key(object))
    }

    fn is_behind_front(&self, object: &HObject) -> bool {
        *object < self.front.object || (self.front.inclusive && *object == self.front.object)
    }

    /// The object, if it is on its way, is brought later.
    pub(crate) fn put_off(&mut self, object: &HObject) {
        if let Some((object, version)) = self.moving.remove_entry(object) {
            self.again.insert(object, version);
        }
    }

    /// Nobody has the object, which is on its way, in a state that can be read.
    pub(crate) fn give_up(&mut self, object: &HObject) {
        if let Some((object, version)) = self.moving.remove_entry(object) {
            self.in_vain.insert(object, version);
        }
    }

    /// The object may be readable again, or is gone.
    pub(crate) fn try_again(&mut self, object: &HObject) {
        if self.in_vain.is_empty() {
            return;
        }
        let all: Vec<_> =
            self.in_vain.range(object.head().versions()).map(|(o, _)| o.clone()).collect();
        for object in all {
            self.again.extend(self.in_vain.remove_entry(&object));
        }
    }

    /// The object was changed without its data, on the target too.
    pub(crate) fn bring_again(&mut self, object: &HObject, version: Eversion) {
        if self.complete <= *object && self.has_passed(object) {
            self.again.insert(object.clone(), Some(version));
        }
    }

    /// The objects that a write of `head` has changed, with their versions now, if the target was only
    /// told of it.
    pub(crate) fn note_write(
        &mut self,
        head: &HObject,
        changed: impl Iterator<Item = (HObject, Option<Eversion>)>,
    ) {
        if self.has_passed(head) {
            return;
        }
        for (object, now) in changed {
            if let Some(version) = self.moving.get_mut(&object) {
                *version = now;
            } else if self.is_behind_front(&object) || self.again.contains_key(head) {
                self.again.insert(object, now);
            } else if self.there.0 == Side::Have {
                if object < self.range_end {
                    self.todo.insert(object, now);
                }
            } else if self.here.0 == Side::Have && object < self.here.1.end {
                match now {
                    Some(v) => self.here.1.objects.insert(object, v),
                    None => self.here.1.objects.remove(&object),
                };
            }
        }
    }

    /// The next object that differs.
    fn next_object(&mut self, unreadable: &Unreadable) -> Option<(HObject, Option<Eversion>)> {
        while let Some((object, version)) = self.todo.pop_first() {
            self.front = Front { object: object.clone(), inclusive: true };
            if self.has_older_before(&object) {
                self.again.insert(object, version);
            } else if self.may_come(&object, version, unreadable) {
                return Some((object, version));
            }
        }
        while let Some(object) = self.again.keys().find(|o| !self.has_older_before(o)).cloned() {
            let (object, version) = self.again.remove_entry(&object)?;
            if self.may_come(&object, version, unreadable) {
                return Some((object, version));
            }
        }
        None
    }

    /// Whether the object can be brought; it is on its way then. Of an object with a clone that nobody can read the
    /// other clones come, and the head waits.
    fn may_come(
        &mut self,
        object: &HObject,
        version: Option<Eversion>,
        unreadable: &Unreadable,
    ) -> bool {
        let has_such_a_clone = object.is_head() && has_any(&self.in_vain, object);
        let may_come = !has_such_a_clone && !unreadable.contains_key(object);
        let list = if may_come { &mut self.moving } else { &mut self.in_vain };
        list.insert(object.clone(), version);
        may_come
    }

    /// Whether an older clone of the same object is on its way, or waits for it.
    fn has_older_before(&self, object: &HObject) -> bool {
        has_any(&self.moving, object) || has_any(&self.again, object)
    }

    /// Objects were made or deleted in a write of `object`.
    fn count(&mut self, object: &HObject, more: i64) {
        if *object < self.begin {
            self.done = self.done.saturating_add_signed(more);
        } else if *object < self.range_end {
            self.in_range = self.in_range.saturating_add_signed(more);
        }
    }

    /// How many objects of ours the target has.
    fn filled(&self) -> u64 {
        let lists = [&self.todo, &self.again, &self.in_vain];
        let lacking = lists.into_iter().flat_map(BTreeMap::values).filter(|v| v.is_some());
        let open = lacking.count() + self.moving.len();
        self.done + self.in_range.saturating_sub(open as u64)
    }

    /// Whether something of the range is still to be brought, and can be.
    fn is_open(&self) -> bool {
        !(self.todo.is_empty() && self.again.is_empty() && self.moving.is_empty())
    }

    fn begin_range(&mut self, begin: HObject) {
        self.done += std::mem::take(&mut self.in_range);
        self.begin = begin.clone();
        self.range_end = begin;
        self.here = (Side::Wanted, Listing::default());
        self.there = (Side::Wanted, Listing::default());
    }

    fn side(&mut self, here: bool) -> &mut (Side, Listing) {
        if here { &mut self.here } else { &mut self.there }
    }

    fn cannot_be_listed(&self) -> bool {
        self.here.0 == Side::Failed || self.there.0 == Side::Failed
    }

    /// Both listings are here.
    fn compare(&mut self) {
        let (here, there) = (&self.here.1, &self.there.1);
        self.range_end = here.end.clone().min(there.end.clone());
        self.in_range = here.objects.range(..&self.range_end).count() as u64;
        let all = here.objects.keys().chain(there.objects.keys());
        let differs = |o: &&HObject| here.objects.get(*o) != there.objects.get(*o);
        let todo = all.filter(|o| **o < self.range_end).filter(differs);
        self.todo = todo.map(|o| (o.clone(), here.objects.get(o).copied())).collect();
        if planted(Bug::BackfillJump) {
            self.todo.pop_first();
        }
    }
}

/// Whether an older clone of the same object is among these.
fn has_any(objects: &BTreeMap<HObject, Option<Eversion>>, object: &HObject) -> bool {
    objects.range(object.older()).next().is_some()
}

impl Pg {
    /// The next thing to do for a backfill. `room` says how many objects may be under way.
    pub fn next_backfill(&mut self, room: usize) -> Option<BackfillWork> {
        let open = self.recovery.gate == crate::recovery::Gate::Open;
        if self.stage != Stage::Active || !self.missing.is_empty() || !open {
            return None;
        }
        let targets: Vec<_> = self.backfills.keys().copied().collect();
        targets.into_iter().find_map(|target| self.step(target, room))
    }

    fn step(&mut self, target: OsdId, room: usize) -> Option<BackfillWork> {
        let b = self.backfills.get_mut(&target)?;
        let begin = b.begin.clone();
        if b.here.0 == Side::Wanted {
            b.here.0 = Side::Asked;
            return Some(BackfillWork::ListHere { target, begin });
        }
        if b.there.0 == Side::Wanted {
            b.there.0 = Side::Asked;
            return Some(BackfillWork::ListThere { target, begin });
        }
        if b.here.0 != Side::Have || b.there.0 != Side::Have {
            return None;
        }
        if b.moving.len() < room
            && let Some((object, version)) = b.next_object(&self.recovery.unreadable)
        {
            return Some(match version {
                Some(version) => BackfillWork::Push { target, object, version },
                None => BackfillWork::Remove { target, object },
            });
        }
        if b.is_open() || b.reported.as_ref() == Some(&b.range_end) {
            return None;
        }
        let lacks = self.lacks_before_end(target);
        if lacks && (self.moving_count() > 0 || self.next_to_move().is_some()) {
            return None;
        }
        let b = self.backfills.get_mut(&target)?;
        let to = b.range_end.clone();
        if !lacks && b.in_vain.is_empty() {
            b.front = Front { object: to.clone(), inclusive: false };
            b.reported = Some(to.clone());
            return Some(BackfillWork::Progress { target, to });
        }
        if to.max {
            return None;
        }
        b.front = Front { object: to.clone(), inclusive: false };
        b.begin_range(to);
        self.step(target, room)
    }

    /// Whether the target has left out something in what would be reported next: it does not know of what was written
    /// then, and would count as complete.
    fn lacks_before_end(&self, target: OsdId) -> bool {
        let Some(b) = self.backfills.get(&target) else { return false };
        let missing = self.peers.get(&target).and_then(|p| p.missing.as_ref());
        missing.and_then(|m| m.from(&b.complete).next()).is_some_and(|o| *o < b.range_end)
    }

    /// Whether something can be brought to a copy that is being filled, when there is nothing to recover: some have all
    /// but what nobody can read, and of some it is not known what they have.
    pub(crate) fn can_backfill(&self) -> bool {
        let is_stuck = |(osd, b): (&OsdId, &Backfill)| {
            let at_end = b.there.0 == Side::Have && b.here.0 == Side::Have && b.range_end.max;
            let lacks = || !b.in_vain.is_empty() || self.lacks_before_end(*osd);
            b.cannot_be_listed() || (at_end && !b.is_open() && lacks())
        };
        !self.backfills.iter().all(is_stuck)
    }

    /// A listing came: of our own objects, or of the target's.
    pub fn backfill_listed(&mut self, target: OsdId, here: bool, listing: Listing) {
        let Some(b) = self.backfills.get_mut(&target) else {
            return;
        };
        if b.side(here).0 != Side::Asked || listing.begin != b.begin {
            return;
        }
        assert!(listing.end.max || !listing.end.is_head(), "a listing up to {}", listing.end);
        *b.side(here) = (Side::Have, listing);
        if b.here.0 == Side::Have && b.there.0 == Side::Have {
            b.compare();
        }
    }

    /// A listing could not be made. The backfill waits until [`Pg::list_again`].
    pub fn backfill_not_listed(&mut self, target: OsdId, here: bool) {
        if let Some(b) = self.backfills.get_mut(&target)
            && b.side(here).0 == Side::Asked
        {
            b.side(here).0 = Side::Failed;
        }
    }

    /// Listings that could not be made are asked for again.
    pub fn list_again(&mut self) {
        let sides = self.backfills.values_mut().flat_map(|b| [&mut b.here.0, &mut b.there.0]);
        sides.filter(|side| **side == Side::Failed).for_each(|side| *side = Side::Wanted);
    }

    /// The object is durable on the target (or durably gone from it).
    pub fn backfill_moved(&mut self, target: OsdId, object: &HObject) {
        if let Some(b) = self.backfills.get_mut(&target)
            && b.moving.remove(object).is_some()
        {
            b.pushed += 1;
        }
        self.recovery.note_brought(object);
    }

    /// As the target: the primary says that we are complete up to `to`.
    pub fn note_backfill_progress(&mut self, to: HObject, fx: &mut Fx) {
        self.info.last_backfill = to;
        self.info_dirty = true;
        self.flush_info(fx);
    }

    /// As the primary: the target has durably noted its progress.
    pub fn backfill_progressed(&mut self, target: OsdId, to: &HObject, fx: &mut Fx) {
        let Some(b) = self.backfills.get_mut(&target) else {
            return;
        };
        if b.reported.as_ref() != Some(to) {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&target) {
            peer.info.last_backfill = to.clone();
            peer.info.sums = self.info.sums;
        }
        if to.max {
            self.backfills.remove(&target);
            self.check_clean(fx);
            self.flush_info(fx);
        } else {
            b.complete = to.clone();
            b.begin_range(to.clone());
        }
        if !self.missing.is_empty() {
            // It may be here that it has what we lack.
            self.look_at_all_again();
        }
    }

    /// The object was changed without its data, everywhere.
    pub(crate) fn bring_again_everywhere(&mut self, object: &HObject, version: Eversion) {
        self.backfills.values_mut().for_each(|b| b.bring_again(object, version));
    }

    /// Objects brought so far to targets that are being filled.
    pub fn backfilled_count(&self) -> u64 {
        self.backfills.values().map(|b| b.pushed).sum()
    }

    pub(crate) fn count_objects(&mut self, object: &HObject, more: i64) {
        if more != 0 {
            self.backfills.values_mut().for_each(|b| b.count(object, more));
        }
    }

    /// Copies of objects that are lacking altogether, and copies that are not where CRUSH wants them,
    /// beside what the logs name.
    pub fn copies_lacking(&self) -> (u64, u64) {
        let objects = u64::try_from(self.info.sums.objects).unwrap_or(0);
        let lacking = (self.rules.size as usize).saturating_sub(self.acting_count());
        let mut left: Vec<u64> =
            self.backfills.values().map(|b| objects.saturating_sub(b.filled())).collect();
        let filled =
            |o: &&OsdId| self.mapping.acting.contains(o) || self.backfills.contains_key(*o);
        let elsewhere = self.mapping.up.iter().filter(|o| o.is_some() && !filled(o)).count();
        left.extend(std::iter::repeat_n(objects, elsewhere));
        let given = lacking.min(left.len());
        let misplaced = left.split_off(given).iter().sum();
        let absent = (lacking - given) as u64 * objects;
        (left.iter().sum::<u64>() + absent, misplaced)
    }

    /// Whether anything is being filled.
    pub fn is_backfilling(&self) -> bool {
        !self.backfills.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::LogEntry;
    use crate::info::ObjectSums;
    use crate::left_out::{at, copy, peer};
    use crate::missing::Missing;
    use crate::recovery::Need;
    use crate::status::StateBits;
    use types::{ByteString, PoolId, SnapId};

    const TARGET: OsdId = OsdId(2);
    const ROOM: usize = 2;

    fn object(i: u32) -> HObject {
        let name: ByteString = format!("o{i}").as_str().into();
        let hash = i.reverse_bits();
        HObject { pool: PoolId(1), hash, name, snap: SnapId::HEAD, ..HObject::min() }
    }

    /// Where a listing may end.
    fn behind(i: u32) -> HObject {
        HObject { snap: SnapId(0), ..object(i + 1) }
    }

    /// osd.1 leads, and fills osd.2.
    fn filling() -> Pg {
        let mut pg = copy(Stage::Active, &[1]);
        pg.backfills.insert(TARGET, Backfill::starting_at(HObject::min()));
        peer(&mut pg, 2, Missing::default());
        pg
    }

    /// Both list what is up to here; the target has nothing.
    fn list(pg: &mut Pg, objects: std::ops::Range<u32>, end: &HObject) {
        let here: BTreeMap<_, _> = objects.map(|i| (object(i), at(5, 1 + u64::from(i)))).collect();
        for _ in 0..2 {
            let (begin, is_here) = match pg.next_backfill(ROOM) {
                Some(BackfillWork::ListHere { begin, .. }) => (begin, true),
                Some(BackfillWork::ListThere { begin, .. }) => (begin, false),
                other => panic!("{other:?}"),
            };
            let objects = if is_here { here.clone() } else { BTreeMap::new() };
            pg.backfill_listed(TARGET, is_here, Listing { begin, end: end.clone(), objects });
        }
    }

    /// Brings what comes, except what nobody can read. Gives the numbers.
    fn bring_all(pg: &mut Pg, is_bad: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut brought = Vec::new();
        loop {
            if !pg.backfills[&TARGET].is_open() {
                return brought;
            }
            let o = match pg.next_backfill(ROOM) {
                Some(BackfillWork::Push { object, .. }) => object,
                other => panic!("{other:?}: {:?}", pg.backfills),
            };
            let i = (0..100).find(|i| object(*i) == o).expect("there are no others");
            if is_bad(i) {
                pg.cannot_read(&o);
                pg.pushed_in_vain(&o, &[TARGET]);
            } else {
                pg.backfill_moved(TARGET, &o);
                brought.push(i);
            }
        }
    }

    fn write(pg: &mut Pg, i: u32, version: u64) {
        let entry = LogEntry::of(object(i), at(5, version));
        pg.append(vec![entry], ObjectSums::default(), 1);
    }

    /// Each of them kept one of the places for ever, so that the backfill soon stood still, and the PG kept the OSD's.
    #[test]
    fn a_backfill_goes_on_past_what_nobody_can_read() {
        let mut pg = filling();
        let is_bad = |i: u32| i.is_multiple_of(3) && i < 20;
        let is_good = |i: &u32| !is_bad(*i);
        list(&mut pg, 0..10, &behind(9));
        assert_eq!(bring_all(&mut pg, is_bad), (0..10).filter(is_good).collect::<Vec<_>>());
        assert!(!pg.targets(&object(3))[0].with_data && pg.targets(&object(4))[0].with_data);
        list(&mut pg, 10..30, &HObject::max());
        assert_eq!(bring_all(&mut pg, is_bad), (10..30).filter(is_good).collect::<Vec<_>>());
        // It is not complete, and waits without a place.
        assert_eq!((pg.next_backfill(ROOM), pg.need()), (None, Need::Nothing));
        assert!(pg.state().has(StateBits::BACKFILL_UNFOUND));
        let [lacking, version] = [7, 31];
        pg.info.sums.objects = 30;
        assert_eq!(pg.copies_lacking(), (lacking + 30, 0));
        // They are written anew, one after the other.
        let mut bad = (0..20).filter(|i| is_bad(*i)).collect::<Vec<_>>();
        while let Some(i) = bad.pop() {
            write(&mut pg, i, version + 20 - bad.len() as u64);
            assert_eq!(pg.need(), Need::Backfill);
            assert_eq!(bring_all(&mut pg, |_| false), [i]);
        }
        let to = HObject::max();
        assert_eq!(pg.next_backfill(ROOM), Some(BackfillWork::Progress { target: TARGET, to }));
    }

    /// What it was to note of a write while it compares nothing, it would never bring.
    #[test]
    fn what_was_passed_over_is_brought_though_it_is_written_while_others_are_listed() {
        let mut pg = filling();
        list(&mut pg, 0..2, &behind(1));
        assert_eq!(bring_all(&mut pg, |i| i == 0), [1]);
        assert!(matches!(pg.next_backfill(ROOM), Some(BackfillWork::ListHere { .. })));
        write(&mut pg, 0, 11);
        // It becomes unfound and goes back to something older.
        pg.bring_again_everywhere(&object(1), at(5, 12));
        let end = HObject::max();
        let begin = behind(1);
        let _ = pg.next_backfill(ROOM);
        for is_here in [true, false] {
            let listing =
                Listing { begin: begin.clone(), end: end.clone(), objects: BTreeMap::new() };
            pg.backfill_listed(TARGET, is_here, listing);
        }
        assert_eq!(bring_all(&mut pg, |_| false), [0, 1]);
        assert!(matches!(pg.next_backfill(ROOM), Some(BackfillWork::Progress { .. })));
    }

    /// It left out the newest write of it, which nobody can read now.
    #[test]
    fn a_backfill_goes_on_past_what_its_target_left_out_and_nobody_can_read() {
        let mut pg = filling();
        list(&mut pg, 0..2, &behind(1));
        assert_eq!(bring_all(&mut pg, |_| false), [0, 1]);
        write(&mut pg, 0, 11);
        pg.taken_without_data(TARGET, &[at(5, 11)]);
        assert_eq!((pg.next_backfill(ROOM), pg.need()), (None, Need::Recovery));
        assert!(pg.next_recovery().is_some());
        pg.cannot_read(&object(0));
        pg.pushed_in_vain(&object(0), &[TARGET]);
        assert_eq!(pg.need(), Need::Backfill);
        list(&mut pg, 2..4, &HObject::max());
        assert_eq!(bring_all(&mut pg, |_| false), [2, 3]);
        assert_eq!((pg.next_backfill(ROOM), pg.need()), (None, Need::Nothing));
        assert!(pg.state().has(StateBits::BACKFILL_UNFOUND));
    }

    /// Their PG has its places as long as one of them goes on.
    #[test]
    fn who_cannot_be_listed_waits_and_keeps_no_other_from_being_filled() {
        const OTHER: OsdId = OsdId(3);
        for here in [true, false] {
            let mut pg = filling();
            pg.backfills.insert(OTHER, Backfill::starting_at(HObject::min()));
            peer(&mut pg, 3, Missing::default());
            for _ in 0..4 {
                assert!(pg.next_backfill(ROOM).is_some());
            }
            pg.backfill_not_listed(TARGET, here);
            assert_eq!((pg.need(), pg.next_backfill(ROOM)), (Need::Backfill, None));
            pg.backfill_not_listed(OTHER, here);
            assert_eq!(pg.need(), Need::Nothing);
            assert!(pg.state().has(StateBits::BACKFILL_UNFOUND), "{}", pg.state());
            pg.list_again();
            assert_eq!(pg.need(), Need::Backfill);
            let (begin, next) = (HObject::min(), pg.next_backfill(ROOM));
            assert_eq!(
                next,
                Some(match here {
                    true => BackfillWork::ListHere { target: TARGET, begin },
                    false => BackfillWork::ListThere { target: TARGET, begin },
                })
            );
        }
    }
}
