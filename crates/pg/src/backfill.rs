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
    range_end: HObject,
    reported: Option<HObject>,
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
            begin: at,
            here: (Side::Wanted, Listing::default()),
            there: (Side::Wanted, Listing::default()),
            todo: BTreeMap::new(),
            again: BTreeMap::new(),
            moving: BTreeMap::new(),
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

    /// Whether the target has this object already.
    pub(crate) fn has_passed(&self, object: &HObject) -> bool {
        let open = self.again.contains_key(object) || self.moving.contains_key(object);
        self.is_behind_front(object) && !open
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

    /// The objects that a write of `head` has changed, with their versions now, if the target was only
    /// told of it.
    pub(crate) fn note_write(
        &mut self,
        head: &HObject,
        changed: impl Iterator<Item = (HObject, Option<Eversion>)>,
    ) {
        if self.has_passed(head) || self.here.0 != Side::Have {
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
            } else if object < self.here.1.end {
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
            if !self.has_older_before(&object, unreadable) {
                self.moving.insert(object.clone(), version);
                return Some((object, version));
            }
            self.again.insert(object, version);
        }
        let object = self.again.keys().find(|o| !self.has_older_before(o, unreadable))?.clone();
        let next = self.again.remove_entry(&object)?;
        self.moving.insert(object, next.1);
        Some(next)
    }

    /// Whether an older clone of the same object is on its way, or waits for it. One that nobody can read stays on its
    /// way for ever: for that only the head waits.
    fn has_older_before(&self, object: &HObject, unreadable: &Unreadable) -> bool {
        let counts = |clone: &HObject| object.is_head() || !unreadable.contains_key(clone);
        let has = |objects: &BTreeMap<HObject, Option<Eversion>>| {
            objects.range(object.older()).any(|(clone, _)| counts(clone))
        };
        has(&self.moving) || has(&self.again)
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
        let lacking = self.todo.values().chain(self.again.values()).filter(|v| v.is_some());
        let open = lacking.count() + self.moving.len();
        self.done + self.in_range.saturating_sub(open as u64)
    }

    fn begin_range(&mut self, begin: HObject) {
        self.done += std::mem::take(&mut self.in_range);
        self.begin = begin.clone();
        self.range_end = begin;
        self.here = (Side::Wanted, Listing::default());
        self.there = (Side::Wanted, Listing::default());
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
        let open = !(b.todo.is_empty() && b.again.is_empty() && b.moving.is_empty());
        // What it has left out since: it does not know of what was written then, and would count as complete.
        let missing = self.peers.get(&target).and_then(|p| p.missing.as_ref());
        let lacks = missing.and_then(|m| m.from(&b.begin).next()).is_some_and(|o| *o < b.range_end);
        if open || lacks || b.reported.as_ref() == Some(&b.range_end) {
            return None;
        }
        b.front = Front { object: b.range_end.clone(), inclusive: false };
        b.reported = Some(b.range_end.clone());
        Some(BackfillWork::Progress { target, to: b.range_end.clone() })
    }

    /// A listing came: of our own objects, or of the target's.
    pub fn backfill_listed(&mut self, target: OsdId, here: bool, listing: Listing) {
        let Some(b) = self.backfills.get_mut(&target) else {
            return;
        };
        let side = if here { &mut b.here } else { &mut b.there };
        if side.0 != Side::Asked || listing.begin != b.begin {
            return;
        }
        assert!(listing.end.max || !listing.end.is_head(), "a listing up to {}", listing.end);
        *side = (Side::Have, listing);
        if b.here.0 == Side::Have && b.there.0 == Side::Have {
            b.compare();
        }
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
            b.begin_range(to.clone());
        }
        if !self.missing.is_empty() {
            // It may be here that it has what we lack.
            self.look_at_all_again();
        }
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
