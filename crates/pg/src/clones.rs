//! Clones and their heads on their way between copies.
//!
//! A write under a new snapshot makes a clone of the head, and each copy makes it of its own head. A copy that left
//! the write out still has the head as it was before, which is what the clone shows. Therefore:
//!
//! * nowhere does a head arrive before a clone of it that is missing, too: the state before would be gone, and if
//!   then whoever had the clone is lost, so is what was acknowledged and a snapshot must show;
//! * a write is neither begun nor answered while a clone of its object is on too few copies.
//!
//! Versions of an object share most of their data. Who is brought one of them takes what it shares from the one
//! before, if that is there; therefore clones are brought oldest first, where nobody waits for one of them.

use crate::missing::Missing;
use crate::pg::Pg;
use types::{Eversion, HObject, OsdId};

impl Pg {
    /// Whether a clone of this head, which we have, is on too few copies: perhaps since all replicas left out
    /// the write that made it. Nothing that was written since is safe then.
    pub(crate) fn too_few_have_a_clone_of(&self, head: &HObject) -> bool {
        let is_here = |clone: &&HObject| {
            !self.missing.contains(clone) && !self.recovery.unreadable.contains_key(*clone)
        };
        let clones = self.missed_by_members().flat_map(|m| m.clones_of(head));
        clones.filter(is_here).any(|clone| !self.enough_have(clone))
    }

    pub(crate) fn missed_by_members(&self) -> impl Iterator<Item = &Missing> {
        self.members().filter_map(|osd| self.peers.get(&osd).and_then(|p| p.missing.as_ref()))
    }

    /// What is to be brought, or is on its way, before this object may: a clone of it. Not one that cannot be
    /// brought.
    pub fn comes_first(&self, object: &HObject) -> Option<&HObject> {
        if object.is_head() { self.comes_before(object) } else { None }
    }

    /// What is better brought before this object: a clone that is older. Not one that cannot be brought.
    pub(crate) fn comes_before(&self, object: &HObject) -> Option<&HObject> {
        if self.missing.contains(object) {
            return self.missing.older_than(object).find(|c| self.source_of(c).is_some());
        }
        let may_come = |clone: &&HObject| {
            !self.is_unfound(clone) && !self.recovery.unreadable.contains_key(*clone)
        };
        self.missed_by_members().flat_map(|m| m.older_than(object)).find(may_come)
    }

    /// Whether a member that lacks `object` may take what it shares with another version from there, and then the
    /// version of the head that it has, if it misses a newer one (zero: it is not known that it does). Not if its
    /// copy may have been damaged: so may be what is shared.
    pub fn may_share(&self, osd: OsdId, object: &HObject) -> Option<Eversion> {
        let missing = match osd == self.me {
            true => &self.missing,
            false => self.peers.get(&osd)?.missing.as_ref()?,
        };
        let never_had = |o| missing.get(o).is_none_or(|i| i.never_had_since > Eversion::ZERO);
        let head = object.head();
        let known = missing.get(&head).filter(|_| never_had(&head));
        never_had(object).then(|| known.map_or(Eversion::ZERO, |item| item.have))
    }

    /// Whether a member is known to miss `object`.
    pub fn is_missed_by(&self, osd: OsdId, object: &HObject) -> bool {
        let missing = self.peers.get(&osd).and_then(|p| p.missing.as_ref());
        missing.is_some_and(|m| m.contains(object))
    }
}

#[cfg(test)]
mod tests {
    use crate::backfill::{Backfill, BackfillWork, Listing};
    use crate::left_out::{at, copy, entry, object, peer, pulled};
    use crate::missing::Missing;
    use crate::pg::{Fx, Pg, Stage};
    use crate::recovery::{Readiness, Work};
    use crate::{EntryKind, InFlight, LogEntry, ObjectSums};
    use types::{Eversion, HObject, OsdId, SnapId};

    const OTHER: OsdId = OsdId(2);

    fn clone() -> HObject {
        HObject { snap: SnapId(4), ..object() }
    }

    /// The clone's entry, and the one of the write that made it.
    fn entries() -> Vec<LogEntry> {
        let of_clone = LogEntry { kind: EntryKind::Clone, ..LogEntry::of(clone(), at(5, 11)) };
        vec![of_clone, entry(EntryKind::Modify, at(5, 12), at(4, 3))]
    }

    fn both() -> Missing {
        let mut missing = Missing::default();
        entries().iter().for_each(|e| missing.note(e, types::Epoch(1)));
        missing
    }

    /// osd.1 leads, and has both.
    fn leader(acting: &[i32]) -> Pg {
        let mut pg = copy(Stage::Active, acting);
        acting[1..].iter().for_each(|osd| peer(&mut pg, *osd, Missing::default()));
        pg.append(entries(), ObjectSums::default(), 1);
        acting[1..].iter().for_each(|osd| leave_out(&mut pg, *osd, &mut InFlight::default()));
        pg
    }

    fn leave_out(pg: &mut Pg, osd: i32, in_flight: &mut InFlight<HObject>) {
        pg.left_out(OsdId(osd), (at(5, 12), &[at(5, 11), at(5, 12)]), in_flight, |head| head);
    }

    /// The write was answered already when one answers that is being filled, and left it out.
    #[test]
    fn who_is_filled_may_answer_late_that_it_left_something_out() {
        let mut pg = copy(Stage::Active, &[1]);
        pg.backfills.insert(OTHER, Backfill::starting_at(HObject::max()));
        peer(&mut pg, 2, Missing::default());
        pg.append(entries(), ObjectSums::default(), 1);
        let mut in_flight = InFlight::default();
        in_flight.begin([OsdId(1)], at(5, 10));
        in_flight.push(at(5, 12), object());
        in_flight.durable(OsdId(1), at(5, 12));
        assert!(in_flight.pop_committed(|o| o).is_some() && pg.next_recovery().is_none());
        leave_out(&mut pg, 2, &mut in_flight);
        assert_eq!(pushed(pg.next_recovery()), Some(clone()));
    }

    /// A write was left out, and the next one, which made a clone, is on its way: its replica misses what that is made
    /// upon. The head is not brought in its new state before the clone.
    #[test]
    fn what_is_written_upon_what_was_left_out_is_left_out_as_well() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        peer(&mut pg, 2, Missing::default());
        let append = |pg: &mut Pg, all| pg.append(all, ObjectSums::default(), 1);
        append(&mut pg, entries());
        let later = HObject { snap: SnapId(9), ..object() };
        let of_clone =
            LogEntry { kind: EntryKind::Clone, ..LogEntry::of(later.clone(), at(5, 13)) };
        append(&mut pg, vec![of_clone, entry(EntryKind::Modify, at(5, 14), at(5, 12))]);
        let missing = |pg: &Pg| pg.peers[&OTHER].missing.clone().unwrap();
        pg.taken_without_data(OTHER, &[at(5, 12)]);
        assert!(missing(&pg).iter().map(|(o, _)| o).eq([&later, &object()]));
        append(&mut pg, vec![entry(EntryKind::Delete, at(5, 15), at(5, 14))]);
        append(&mut pg, vec![entry(EntryKind::Modify, at(5, 16), Eversion::ZERO)]);
        pg.taken_without_data(OTHER, &[at(5, 12)]);
        assert!(missing(&pg).iter().map(|(o, _)| o).eq([&later]));
    }

    fn pushed(work: Option<Work>) -> Option<HObject> {
        match work? {
            Work::Push { object, .. } => Some(object),
            Work::Pull { object, .. } => panic!("{object} is pulled"),
        }
    }

    /// Else the only copy of what the clone shows is lost with the primary.
    #[test]
    fn a_head_is_pushed_when_its_clone_is_there() {
        let mut pg = leader(&[1, 2, 3]);
        pg.hurry(&object());
        assert_eq!(pushed(pg.next_recovery()), Some(clone()));
        assert_eq!(pushed(pg.next_recovery()), None);
        pg.pushed(OTHER, &clone(), at(5, 11), &mut Fx::default());
        assert_eq!(pushed(pg.next_recovery()), None, "one has it");
        pg.pushed(OsdId(3), &clone(), at(5, 11), &mut Fx::default());
        assert_eq!(pushed(pg.next_recovery()), Some(object()));
    }

    #[test]
    fn a_head_is_pulled_when_its_clone_is_here() {
        let lacking = || {
            let mut pg = leader(&[1, 2]);
            pg.missing = both();
            peer(&mut pg, 2, Missing::default());
            pg.hurry(&object());
            pg
        };
        let mut pg = lacking();
        assert_eq!(pulled(pg.next_recovery()), Some(clone()));
        assert_eq!(pulled(pg.next_recovery()), None);
        pg.arrived(&clone(), at(5, 11));
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
        // It may turn out that nobody has the clone.
        let mut pg = lacking();
        assert_eq!(pulled(pg.next_recovery()), Some(clone()));
        pg.source_failed(&clone(), OTHER);
        assert_eq!(pulled(pg.next_recovery()), Some(object()));
    }

    /// Each may take from the one before it what they share. Who waits for one of them waits for no other.
    #[test]
    fn clones_come_oldest_first() {
        let (middle, new) =
            (HObject { snap: SnapId(6), ..object() }, HObject { snap: SnapId(9), ..object() });
        // In the order of the log the newest was changed first.
        let missed: Missing = [(&new, 11), (&clone(), 12), (&middle, 13)]
            .map(|(o, v)| (o.clone(), crate::MissingItem::new(at(5, v), Eversion::ZERO)))
            .into_iter()
            .collect();
        let mut pg = copy(Stage::Active, &[1, 2]);
        peer(&mut pg, 2, missed.clone());
        assert_eq!([pushed(pg.next_recovery()), pushed(pg.next_recovery())], [Some(clone()), None]);
        pg.pushed(OTHER, &clone(), at(5, 12), &mut Fx::default());
        assert_eq!(pushed(pg.next_recovery()), Some(middle.clone()));
        pg.hurry(&new);
        assert_eq!(pushed(pg.next_recovery()), Some(new.clone()));
        let mut pg = copy(Stage::Active, &[1, 2]);
        peer(&mut pg, 2, Missing::default());
        pg.missing = missed;
        assert_eq!([pulled(pg.next_recovery()), pulled(pg.next_recovery())], [Some(clone()), None]);
        pg.arrived(&clone(), at(5, 12));
        pg.hurry(&new);
        assert_eq!(pulled(pg.next_recovery()), Some(new));
        assert_eq!(pulled(pg.next_recovery()), Some(middle));
        // So does a backfill.
        let mut pg = copy(Stage::Active, &[1]);
        pg.backfills.insert(OTHER, Backfill::starting_at(HObject::min()));
        peer(&mut pg, 2, Missing::default());
        let here = [(clone(), at(5, 11)), (object(), at(5, 12))];
        let here = here.into_iter().chain([(HObject { snap: SnapId(6), ..object() }, at(5, 9))]);
        for (is_here, objects) in [(true, here.collect()), (false, [].into())] {
            let _ = pg.next_backfill(4);
            let listing = Listing { begin: HObject::min(), end: HObject::max(), objects };
            pg.backfill_listed(OTHER, is_here, listing);
        }
        for snap in [SnapId(4), SnapId(6), SnapId::HEAD] {
            let object = HObject { snap, ..object() };
            match [pg.next_backfill(4), pg.next_backfill(4)] {
                [Some(BackfillWork::Push { object: first, .. }), None] => assert_eq!(first, object),
                other => panic!("{other:?}"),
            }
            pg.backfill_moved(OTHER, &object);
        }
    }

    /// Of what nobody can read nothing comes, however long others wait for it. (But a head comes after all its clones.)
    #[test]
    fn a_backfill_passes_over_a_clone_that_nobody_can_read() {
        let snap = |snap| HObject { snap: SnapId(snap), ..object() };
        let mut pg = copy(Stage::Active, &[1]);
        pg.backfills.insert(OTHER, Backfill::starting_at(HObject::min()));
        peer(&mut pg, 2, Missing::default());
        let here = [4, 6, 9].map(|id| (snap(id), at(5, id))).into_iter();
        let here = here.chain([(object(), at(5, 12))]).collect();
        for (is_here, objects) in [(true, here), (false, [].into())] {
            let _ = pg.next_backfill(4);
            let listing = Listing { begin: HObject::min(), end: HObject::max(), objects };
            pg.backfill_listed(OTHER, is_here, listing);
        }
        let next = |pg: &mut Pg| match pg.next_backfill(4)? {
            BackfillWork::Push { object, .. } => Some(object),
            other => panic!("{other:?}"),
        };
        assert_eq!([next(&mut pg), next(&mut pg)], [Some(snap(4)), None]);
        // Neither here nor elsewhere.
        pg.recovery.unreadable.insert(snap(4), at(5, 4));
        pg.pushed_in_vain(&snap(4), &[OTHER]);
        for id in [6, 9] {
            assert_eq!([next(&mut pg), next(&mut pg)], [Some(snap(id)), None]);
            pg.backfill_moved(OTHER, &snap(id));
        }
        assert_eq!(next(&mut pg), None);
    }

    /// What may have been damaged is brought whole.
    #[test]
    fn what_a_copy_never_had_may_be_made_of_what_it_has() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        peer(&mut pg, 2, both());
        assert_eq!(pg.may_share(OTHER, &clone()), Some(at(4, 3)), "that of the head");
        assert_eq!(pg.may_share(OTHER, &object()), Some(at(4, 3)));
        let unknown = HObject { snap: SnapId(2), ..object() };
        assert_eq!(pg.may_share(OTHER, &unknown), Some(at(4, 3)), "a backfill brings it");
        assert_eq!(pg.may_share(OsdId(3), &clone()), None);
        let mut damaged = both();
        damaged.set(clone(), at(5, 11), Eversion::ZERO);
        peer(&mut pg, 2, damaged);
        assert_eq!(pg.may_share(OTHER, &clone()), None);
        let mut damaged = both();
        damaged.set(object(), at(5, 12), Eversion::ZERO);
        pg.missing = damaged;
        assert_eq!(pg.may_share(pg.me, &clone()), Some(Eversion::ZERO), "not of that head");
    }

    /// The write that made the clone may be answered when the client sends it again, and a later one relies on it.
    #[test]
    fn a_head_is_not_written_before_enough_have_its_clone() {
        let mut pg = leader(&[1, 2, 3]);
        let mut brought = |osd: i32, what: &HObject, version| {
            pg.pushed(OsdId(osd), what, version, &mut Fx::default());
            (pg.readiness(&object()), pg.write_readiness(&object()))
        };
        let waits = (Readiness::Degraded, Readiness::Degraded);
        assert_eq!(brought(2, &object(), at(5, 12)), waits);
        assert_eq!(brought(3, &object(), at(5, 12)), waits);
        assert_eq!(brought(2, &clone(), at(5, 11)), (Readiness::Ready, Readiness::Ready));
        pg.hurry(&object());
        assert_eq!(
            pushed(pg.next_urgent(true, true)),
            Some(clone()),
            "who wants to write the one waits for the other"
        );
        // What is nowhere is waited for by nobody but who wants it.
        let mut pg = leader(&[1, 2]);
        pg.pushed(OTHER, &object(), at(5, 12), &mut Fx::default());
        assert_eq!(pg.write_readiness(&object()), Readiness::Degraded);
        pg.missing.set(clone(), at(5, 11), Eversion::ZERO);
        assert_eq!(pg.write_readiness(&object()), Readiness::Ready);
    }

    /// The push of a clone is refused for lack of space. If its head were there by then, a rollback would be made upon a
    /// clone that is not.
    #[test]
    fn a_backfill_brings_a_head_after_its_clones() {
        let mut pg = copy(Stage::Active, &[1]);
        pg.backfills.insert(OTHER, Backfill::starting_at(HObject::min()));
        peer(&mut pg, 2, Missing::default());
        let later = HObject { hash: u32::MAX, ..object() };
        let here = [(clone(), at(5, 11)), (object(), at(5, 12)), (later.clone(), at(5, 10))];
        for (here, objects) in [(true, here.into()), (false, [].into())] {
            let _ = pg.next_backfill(4);
            let listing = Listing { begin: HObject::min(), end: HObject::max(), objects };
            pg.backfill_listed(OTHER, here, listing);
        }
        let next = |pg: &mut Pg| match pg.next_backfill(4)? {
            BackfillWork::Push { object, .. } => Some(object),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [next(&mut pg), next(&mut pg), next(&mut pg)],
            [Some(clone()), Some(later.clone()), None]
        );
        assert!(!pg.targets(&object())[0].with_data, "a write comes with the object");
        pg.put_off(&clone());
        assert_eq!([next(&mut pg), next(&mut pg)], [Some(clone()), None]);
        pg.backfill_moved(OTHER, &clone());
        assert_eq!([next(&mut pg), next(&mut pg)], [Some(object()), None]);
    }
}
