//! Copies of objects that turned out to be damaged, or not to be where they should: they come anew from others.
//!
//! What the primary cannot read counts as missing, and is pulled. Its own copy is not touched before another one has
//! come whole, and is noted with the missing object ([`MissingItem::damaged`]): when no other copy is left it counts
//! again, in this interval or a later one. Each block is verified whenever it is read, so that nobody gets what is
//! not right; what cannot be read is answered with an error. A copy that was damaged in an earlier interval is also
//! asked, last of all, for what nobody else has.

use crate::entry::LogEntry;
use crate::missing::MissingItem;
use crate::persist::{MetaOp, missing_key, put_missing};
use crate::pg::{Fx, Notice, Peer, Pg, Stage};
use types::testing::{Probe, hit};
use types::{Eversion, HObject, OsdId};

impl Pg {
    /// As the primary: our copy of `object`, in version `have`, turned out to be damaged. It counts
    /// as missing and is pulled from another copy (`PrimaryLogPG.cc: rep_repair_primary_object`).
    /// When nobody has it, but somebody an older state of it, it is unfound from now on.
    /// Gives the record change, or `None` when all copies are alike: then all stays as it is, and the
    /// object is not pushed to others.
    pub fn repair(&mut self, object: &HObject, have: Eversion) -> Option<MetaOp> {
        self.bring_anew(object, MissingItem::of_damaged(have))
    }

    /// The same of a copy that counts as missing from now on, for whatever is wrong with it.
    pub(crate) fn bring_anew(&mut self, object: &HObject, item: MissingItem) -> Option<MetaOp> {
        assert!(self.is_primary(), "{}: a replica repairs nothing by itself", self.info.pgid);
        assert!(!self.missing.contains(object), "what is missing cannot be found to be damaged");
        self.recovery.unreadable.remove(object);
        self.missing.set_item(object.clone(), item);
        self.look_again(object);
        let is_found = self.source_of(object).is_some();
        if self.stage == Stage::Active && (is_found || self.is_lacked(object)) {
            self.recovery.damaged.insert(object.clone(), item.need);
            self.hurry(object);
            return Some(put_missing(object, &item));
        }
        self.all_are_alike(object, item.need);
        None
    }

    /// No copy of `object` is better than ours, nor is any to be replaced by it.
    fn all_are_alike(&mut self, object: &HObject, version: Eversion) {
        self.missing.remove(object);
        for peer in self.peers.values_mut().filter(|p| p.lacks.contains(object)) {
            peer.missing.iter_mut().for_each(|missing| _ = missing.remove(object));
        }
        self.recovery.unreadable.insert(object.clone(), version);
        self.look_again(object);
    }

    /// As the primary: if nobody else has `object`, and it is only missing because our copy of it is damaged, then it
    /// is not missing any more. When it turned out to be damaged in this interval, and members have no older state,
    /// what can be read of it is all that there is. Else it is tried again, and turns out as before, or not: an
    /// error of a device may have been a passing one. What a scrub found to be wrong is read without an error, and
    /// never counts again. Gives the record change.
    fn back_to_our_own(&mut self, object: &HObject) -> Option<MetaOp> {
        let item = *self.missing.get(object)?;
        let of_now = self.recovery.damaged.get(object) == Some(&item.need);
        if !item.is_damaged()
            || self.source_of(object).is_some()
            || (of_now && self.is_lacked(object))
        {
            return None;
        }
        if of_now {
            self.recovery.damaged.remove(object);
            self.all_are_alike(object, item.need);
        } else {
            hit(Probe::DamagedTriedAgain);
            self.missing.remove(object);
            self.look_again(object);
        }
        Some(MetaOp::Remove(missing_key(object)))
    }

    /// As the primary: others went, or said what they have. What is damaged here may be all that is left.
    pub(crate) fn look_at_damaged(&mut self, fx: &mut Fx) {
        if self.stage != Stage::Active {
            return;
        }
        let is_ours = |(_, item): &(&HObject, &MissingItem)| item.is_damaged();
        let ours: Vec<_> = self.missing.iter().filter(is_ours).map(|(o, _)| o.clone()).collect();
        for object in ours {
            if let Some(record) = self.back_to_our_own(&object) {
                fx.meta.push(record);
                fx.notices.push(Notice::Counts(object));
            }
        }
    }

    /// As the primary: not even the record of `object` can be read here, so that nothing is known of our copy.
    /// It is not pushed to those who miss it, until something changes.
    pub fn cannot_read(&mut self, object: &HObject) {
        let needs = self.peers.values().filter_map(|p| p.missing.as_ref()?.get(object));
        let here = self.backfills.values().filter_map(|b| b.version_of_moving(object));
        if let Some(need) = needs.map(|item| item.need).chain(here).max()
            && !self.missing.contains(object)
        {
            self.recovery.unreadable.entry(object.clone()).or_insert(need);
            self.look_again(object);
        }
    }

    /// Whether a member never got the version that counts: it has an older state of the object, or
    /// none, and no damaged copy.
    fn is_lacked(&self, object: &HObject) -> bool {
        let behind = |p: &Peer| {
            let misses = p.missing.as_ref().is_some_and(|m| m.contains(object));
            misses && !p.lacks.contains(object)
        };
        self.members().filter_map(|osd| self.peers.get(&osd)).any(behind)
    }

    /// As the primary: these entries are new. What they wrote may be readable, and the other copies may be
    /// good again.
    pub(crate) fn forget_what_was_unreadable(&mut self, entries: &[LogEntry]) {
        for entry in entries.iter().filter(|e| e.changes_object()) {
            if self.recovery.unreadable.contains_key(&entry.object) {
                self.forget_failures(&entry.object);
            }
            // It may have become unfound meanwhile, and was given up.
            self.backfills.values_mut().for_each(|b| b.try_again(&entry.object));
        }
    }

    /// As the primary: somebody came who may have what nobody could read. It is missing until that is
    /// known.
    pub(crate) fn try_unreadable_again(&mut self, fx: &mut Fx) {
        if self.stage != Stage::Active {
            return;
        }
        for (object, version) in std::mem::take(&mut self.recovery.unreadable) {
            fx.meta.extend(self.repair(&object, version));
        }
    }

    pub(crate) fn is_readable_again(&mut self, object: &HObject) {
        self.recovery.unreadable.remove(object);
        self.backfills.values_mut().for_each(|b| b.try_again(object));
    }

    /// As the primary: what copies of `object` turned out not to have or not to be readable before
    /// does not count any more.
    pub(crate) fn forget_failures(&mut self, object: &HObject) {
        self.is_readable_again(object);
        for peer in self.peers.values_mut() {
            peer.lacks.remove(object);
        }
        self.look_again(object);
    }

    /// As the primary: `source` did not have the object that it was asked for. Our own copy may be all that
    /// is left (see [`Pg::repair`]): gives the record change then.
    pub fn source_failed(&mut self, object: &HObject, source: OsdId) -> Option<MetaOp> {
        let Some(item) = self.missing.get(object).copied() else {
            // It has come, or was deleted since: a second answer says nothing of that copy.
            if self.recovery.pulling.get(object) == Some(&source) {
                self.give_up(object, None);
            }
            return None;
        };
        let acting = self.mapping.acting.contains(&source);
        // A late holder may have said meanwhile that it has an older state. That it still has.
        let said = self.peers.get(&source).and_then(|p| p.missing.as_ref()?.get(object));
        let said = !acting && said.is_some_and(|theirs| theirs.damaged != item.need);
        self.give_up(object, (!said).then_some(source));
        if let Some(missing) = self.peers.get_mut(&source).and_then(|p| p.missing.as_mut())
            && acting
        {
            // It holds a damaged copy itself, or none: it gets the object with the others.
            missing.set(object.clone(), item.need, Eversion::ZERO);
        }
        self.back_to_our_own(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::left_out::{at, copy, object, peer, pulled};
    use crate::missing::Missing;
    use crate::recovery::{Readiness, Work};

    const VERSION: Eversion = Eversion { epoch: types::Epoch(5), version: 9 };

    /// osd.1 leads these, and found its copy to be damaged in an earlier interval.
    fn leader(acting: &[i32]) -> Pg {
        let mut pg = copy(Stage::Active, acting);
        pg.missing.set_item(object(), MissingItem::of_damaged(VERSION));
        pg
    }

    fn lacking(have: Eversion) -> Missing {
        [(object(), MissingItem::new(VERSION, have))].into_iter().collect()
    }

    /// What is noted when nothing better is left: the record is gone, and the host hears of it.
    fn counts(pg: &mut Pg) -> bool {
        let mut fx = Fx::default();
        pg.look_at_damaged(&mut fx);
        let counts = fx.notices == [Notice::Counts(object())];
        assert_eq!(counts, fx.meta == [MetaOp::Remove(missing_key(&object()))]);
        assert_eq!(counts, !pg.missing.contains(&object()));
        counts
    }

    #[test]
    fn what_is_damaged_counts_again_when_no_other_copy_is_left() {
        let mut pg = leader(&[1]);
        assert!(pg.is_unfound(&object()));
        assert!(counts(&mut pg));
        assert_eq!(pg.readiness(&object()), Readiness::Ready);
        // It cannot be read now either, and stays what there is.
        assert_eq!(pg.repair(&object(), VERSION), None);
        assert!(!pg.is_unfound(&object()));
        // What is merely missing is waited for.
        pg.missing.set(object(), VERSION, at(4, 3));
        assert!(!counts(&mut pg) && pg.is_unfound(&object()));
    }

    #[test]
    fn another_copy_is_asked_first() {
        let mut pg = leader(&[1, 2]);
        peer(&mut pg, 2, Missing::default());
        assert!(!counts(&mut pg));
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
        // It has none that is whole.
        assert!(pg.source_failed(&object(), OsdId(2)).is_some());
        assert_eq!(pg.readiness(&object()), Readiness::Degraded, "the other one is brought ours");
        // In vain: now both are known to be alike.
        assert!(matches!(pg.next_recovery(), Some(Work::Push { .. })));
        assert_eq!(pg.repair(&object(), VERSION), None);
        assert_eq!(pg.readiness(&object()), Readiness::Ready);
    }

    /// Who was damaged says so, and may be readable again.
    #[test]
    fn a_damaged_copy_is_asked_for_what_nobody_else_has_and_once() {
        for acts in [true, false] {
            let mut pg = copy(Stage::Active, if acts { &[1, 2, 3] } else { &[1, 3] });
            pg.missing.set(object(), VERSION, at(4, 3));
            let damaged = [(object(), MissingItem::of_damaged(VERSION))].into_iter().collect();
            peer(&mut pg, 2, damaged);
            peer(&mut pg, 3, lacking(at(4, 2)));
            let from = |work| matches!(work, Some(Work::Pull { from: OsdId(2), .. }));
            assert!(from(pg.next_recovery()), "{acts}");
            assert_eq!(pg.source_failed(&object(), OsdId(2)), None);
            assert!(pg.is_unfound(&object()), "{acts}");
            assert_eq!(pg.next_recovery(), None);
        }
    }

    /// Another one has an older state: the damage of an earlier interval is looked at again, once.
    #[test]
    fn what_is_still_damaged_stays_unfound_where_others_have_an_older_state() {
        let mut pg = leader(&[1, 2]);
        peer(&mut pg, 2, lacking(at(4, 3)));
        assert!(counts(&mut pg));
        assert!(matches!(pg.next_recovery(), Some(Work::Push { .. })));
        assert!(pg.repair(&object(), VERSION).is_some());
        assert!(pg.is_unfound(&object()) && !counts(&mut pg));
    }

    /// The scrub took another copy for the right one: that ours can be read proves nothing, also when the right one
    /// cannot be.
    #[test]
    fn what_others_found_to_be_wrong_does_not_count_again() {
        let wrong = || {
            let mut pg = copy(Stage::Active, &[1, 2]);
            peer(&mut pg, 2, Missing::default());
            let wrong = MissingItem::new(VERSION, Eversion::ZERO);
            assert!(pg.bring_anew(&object(), wrong).is_some());
            pg
        };
        let mut pg = wrong();
        pg.recovery = Default::default();
        pg.peers.clear();
        assert!(!counts(&mut pg) && pg.is_unfound(&object()));
        let mut pg = wrong();
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
        assert_eq!(pg.source_failed(&object(), OsdId(2)), None);
        assert!(pg.is_unfound(&object()));
        pg.peers.clear();
        assert!(!counts(&mut pg));
    }

    /// Who had it goes, in the middle of an interval.
    #[test]
    fn what_turned_out_to_be_damaged_counts_again_when_its_source_is_gone() {
        let mut pg = copy(Stage::Active, &[1]);
        peer(&mut pg, 2, Missing::default());
        assert!(pg.repair(&object(), VERSION).is_some());
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
        pg.peers.clear();
        pg.recovery.pulling.clear();
        assert!(counts(&mut pg));
        assert!(pg.recovery.unreadable.contains_key(&object()), "it was read just now");
    }

    /// The primary could not even look it up, and pulls it when its copy turns out to be damaged. Somebody comes who
    /// may have another one: the OSD ended.
    #[test]
    fn what_is_pulled_is_not_tried_again() {
        let mut pg = copy(Stage::Active, &[1, 2, 3]);
        peer(&mut pg, 2, Missing::default());
        peer(&mut pg, 3, lacking(at(4, 3)));
        pg.cannot_read(&object());
        assert!(pg.repair(&object(), VERSION).is_some());
        let mut fx = Fx::default();
        pg.try_unreadable_again(&mut fx);
        assert!(fx.meta.is_empty());
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
    }
}
