//! What recovery looks at next, so that a step costs the same however many objects are missing.
//!
//! Of an object and its clones at most one can be brought at a time (see `clones`), so that recovery goes from
//! object to object. One of which nothing can be brought now, since nobody has it or it is on its way, is not
//! looked at again before something changes of it ([`Pg::look_again`]) or of who has what
//! ([`Pg::look_at_all_again`]). Whatever changes what copies miss or have of an object must say so.

use crate::missing::Missing;
use crate::pg::{Pg, Stage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Eversion, HObject};

/// With so few missing objects, debug builds look whether one was forgotten.
const FEW_OBJECTS: usize = 64;

/// Objects, each named by its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Todo {
    /// All that are missing somewhere were put in here.
    is_known: bool,
    /// Of which something may have to be pulled.
    pulls: Line,
    /// Of which something may have to be pushed.
    pushes: Line,
    /// Of which something changed since it was found out what is unfound.
    changed: BTreeSet<HObject>,
    /// What is, clones too.
    unfound: BTreeSet<HObject>,
    /// Those of them that were found out and not asked for.
    found_out: BTreeSet<HObject>,
}

/// Objects, each once, by the oldest version that is missing of them.
#[derive(Clone, Debug, Default)]
struct Line {
    in_order: BTreeSet<(Eversion, HObject)>,
    needs: BTreeMap<HObject, Eversion>,
}

impl Line {
    fn put(&mut self, head: &HObject, need: Eversion) {
        if let Some(before) = self.needs.insert(head.clone(), need) {
            self.in_order.remove(&(before, head.clone()));
        }
        self.in_order.insert((need, head.clone()));
    }

    fn put_all(&mut self, missing: &Missing) {
        for (object, item) in missing.iter() {
            let head = object.head();
            if self.needs.get(&head).is_none_or(|need| item.need < *need) {
                self.put(&head, item.need);
            }
        }
    }

    fn first(&self) -> Option<&HObject> {
        self.in_order.first().map(|(_, head)| head)
    }

    fn pop(&mut self) {
        if let Some((_, head)) = self.in_order.pop_first() {
            self.needs.remove(&head);
        }
    }
}

/// Objects that a client waits for, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Urgent {
    line: VecDeque<HObject>,
    all: BTreeSet<HObject>,
}

impl Urgent {
    pub fn push(&mut self, object: &HObject) {
        if self.all.insert(object.clone()) {
            self.line.push_back(object.clone());
        }
    }

    pub fn pop(&mut self) -> Option<HObject> {
        let object = self.line.pop_front()?;
        self.all.remove(&object);
        Some(object)
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

impl Pg {
    /// Something changed of what copies miss or have of an object, or it is not on its way any more.
    pub(crate) fn look_again(&mut self, object: &HObject) {
        if !self.recovery.todo.borrow().is_known {
            return;
        }
        let head = object.head();
        let oldest = |m: &Missing| m.versions_of(&head).map(|(_, item)| item.need).min();
        let here = oldest(&self.missing);
        let there = self.missed_by_members().filter_map(oldest).min();
        let todo = self.recovery.todo.get_mut();
        here.into_iter().for_each(|need| todo.pulls.put(&head, need));
        there.into_iter().for_each(|need| todo.pushes.put(&head, need));
        todo.changed.insert(head);
    }

    /// Other copies came or went, or said what they have.
    pub(crate) fn look_at_all_again(&mut self) {
        *self.recovery.todo.get_mut() = Todo::default();
    }

    fn know_all(&self) {
        let mut todo = self.recovery.todo.borrow_mut();
        if std::mem::replace(&mut todo.is_known, true) {
            return;
        }
        todo.pulls.put_all(&self.missing);
        self.missed_by_members().for_each(|missing| todo.pushes.put_all(missing));
        todo.changed = self.missing.iter().map(|(object, _)| object.head()).collect();
    }

    /// The next object that can be moved, in the order of recovery.
    pub(crate) fn next_to_move(&self) -> Option<HObject> {
        if self.stage != Stage::Active {
            return None;
        }
        self.know_all();
        let mut todo = self.recovery.todo.borrow_mut();
        while let Some(head) = todo.pulls.first() {
            let next = self.next_pull_of(head);
            if next.is_some() {
                return next;
            }
            todo.pulls.pop();
        }
        while let Some(head) = todo.pushes.first() {
            let next = self.next_push_of(head);
            if next.is_some() {
                return next;
            }
            todo.pushes.pop();
        }
        debug_assert!(self.nothing_was_forgotten(), "{}: it would wait for ever", self.info.pgid);
        None
    }

    /// Of an object and its clones the one that can be pulled now.
    fn next_pull_of(&self, head: &HObject) -> Option<HObject> {
        let mut missing = self.missing.versions_of(head).map(|(object, _)| object);
        let first = missing.find(|object| self.source_of(object).is_some())?;
        let waits = self.recovery.pulling.contains_key(first) || self.is_unfitting(first);
        (!waits).then(|| first.clone())
    }

    /// The same with the one that can be pushed.
    fn next_push_of(&self, head: &HObject) -> Option<HObject> {
        let unreadable = &self.recovery.unreadable;
        let may_come = |o: &&HObject| !self.is_unfound(o) && !unreadable.contains_key(*o);
        let missing = |m: &'_ Missing| m.versions_of(head).map(|(o, _)| o).find(may_come).cloned();
        let first = self.missed_by_members().filter_map(missing).min()?;
        let waits = self.missing.contains(&first) || self.recovery.pushing.contains_key(&first);
        (!waits).then_some(first)
    }

    /// Whether there really is nothing to do, where there is not much to look at.
    fn nothing_was_forgotten(&self) -> bool {
        let all = || self.missed_by_members().chain([&self.missing]);
        let few = all().map(Missing::len).sum::<usize>() <= FEW_OBJECTS;
        let heads = || all().flat_map(Missing::iter).map(|(object, _)| object.head());
        let nothing = |o| self.next_pull_of(&o).or_else(|| self.next_push_of(&o)).is_none();
        !few || heads().all(nothing)
    }

    /// How many objects are unfound.
    pub fn unfound_count(&self) -> usize {
        if self.stage != Stage::Active {
            // Who has what is being found out.
            return self.unfound().count();
        }
        self.find_out_unfound();
        self.recovery.todo.borrow().unfound.len()
    }

    fn find_out_unfound(&self) {
        self.know_all();
        let mut todo = self.recovery.todo.borrow_mut();
        while let Some(head) = todo.changed.pop_first() {
            let before: Vec<_> = todo.unfound.range(head.versions()).cloned().collect();
            before.iter().for_each(|object| _ = todo.unfound.remove(object));
            let missing = self.missing.versions_of(&head).map(|(o, _)| o);
            for object in missing.filter(|o| self.source_of(o).is_none()) {
                todo.unfound.insert(object.clone());
                todo.found_out.insert(object.clone());
            }
        }
        debug_assert!(
            self.missing.len() > FEW_OBJECTS || self.unfound().eq(&todo.unfound),
            "{}: it is not known what is unfound",
            self.info.pgid
        );
    }

    /// Those of [`Pg::never_acknowledged`] of which something changed since this was asked.
    pub fn newly_never_acknowledged(&mut self) -> Vec<HObject> {
        if !self.may_take_back() {
            return Vec::new();
        }
        self.find_out_unfound();
        let found_out = std::mem::take(&mut self.recovery.todo.get_mut().found_out);
        found_out.into_iter().filter(|object| self.was_never_acknowledged(object)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::entry::LogEntry;
    use crate::info::ObjectSums;
    use crate::left_out::{at, copy, peer};
    use crate::merge::LogSegment;
    use crate::missing::{Missing, MissingItem};
    use crate::pg::{Fx, Pg, Stage};
    use crate::recovery::{Need, Work};
    use crate::unfound::GiveUp;
    use std::cell::Cell;
    use types::{ByteString, Eversion, HObject, OsdId, PoolId, SnapId};

    thread_local! {
        /// Objects of which it was looked who has them.
        pub(crate) static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    const OBJECTS: u64 = 100_000;

    fn object(i: u64) -> HObject {
        let name: ByteString = format!("o{i}").as_str().into();
        HObject { pool: PoolId(1), hash: i as u32, name, snap: SnapId::HEAD, ..HObject::min() }
    }

    fn missing(which: impl Fn(u64) -> bool) -> Missing {
        let item = |i| MissingItem {
            never_had_since: at(5, 1 + i),
            ..MissingItem::new(at(5, 1 + i), Eversion::ZERO)
        };
        (0..OBJECTS).filter(|i| which(*i)).map(|i| (object(i), item(i))).collect()
    }

    /// What the host does after each step.
    fn ask(pg: &mut Pg) -> Need {
        assert!(pg.newly_never_acknowledged().is_empty());
        assert_eq!(pg.unfound_count() as u64, OBJECTS / 2);
        let _ = pg.state();
        pg.need()
    }

    /// Half of what is missing nobody has. (Each step looked at all of that, so that 100,000 objects took
    /// hours of a processor.)
    #[test]
    fn a_step_costs_the_same_however_many_objects_are_missing() {
        let mut pg = copy(Stage::Active, &[1, 2, 3]);
        pg.info.last_update = at(5, OBJECTS + 1);
        let unfound = |i: u64| i.is_multiple_of(2);
        pg.missing = missing(|_| true);
        peer(&mut pg, 2, missing(unfound));
        peer(&mut pg, 3, missing(|_| true));
        for _ in 0..2 {
            (0..OBJECTS).for_each(|i| pg.hurry(&object(i)));
        }
        for i in (0..OBJECTS).filter(|i| !unfound(*i)) {
            // What is not known to be on its way is asked for again.
            let work = pg.next_urgent(true, true).expect("somebody waits");
            assert!(matches!(work, Work::Pull { object: o, .. } if o == object(i)));
            pg.give_up(&object(i), None);
        }
        assert!(pg.next_urgent(true, true).is_none() && !pg.has_urgent());
        let (mut steps, mut fx) = (0, Fx::default());
        while ask(&mut pg) == Need::Recovery {
            steps += 1;
            match pg.next_recovery().expect("there is something to do") {
                Work::Pull { object, need, from } => {
                    assert_eq!((from, need), (OsdId(2), at(5, 2 * steps)), "oldest first");
                    pg.arrived(&object, need);
                    pg.pulled(&object, &mut fx);
                }
                Work::Push { object, need, to } => {
                    assert_eq!(to[..], [OsdId(3)]);
                    pg.pushed(OsdId(3), &object, need, &mut fx);
                }
            }
        }
        assert_eq!(steps, OBJECTS);
        let looks = LOOKS.get();
        assert!(looks < 20 * OBJECTS, "{looks} looks in {steps} steps");
        assert_eq!(pg.unfound_count() as u64, OBJECTS / 2);
    }

    /// The host bounds how many are on their way. A push may wait for what is pulled, but not the other way round.
    #[test]
    fn what_clients_wait_for_is_moved_when_the_host_lets_it() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        pg.info.last_update = at(5, OBJECTS + 1);
        let half = |i: u64| i < OBJECTS / 2;
        pg.missing = missing(half);
        peer(&mut pg, 2, missing(|i| !half(i)));
        (0..OBJECTS).rev().for_each(|i| pg.hurry(&object(i)));
        assert!(pg.next_urgent(false, false).is_none());
        assert!(pg.next_in_turn().is_none(), "these go first");
        assert!(matches!(pg.next_urgent(false, true), Some(Work::Push { .. })));
        assert!(matches!(pg.next_urgent(true, true), Some(Work::Pull { .. })));
        assert!(matches!(pg.next_urgent(true, false), Some(Work::Pull { .. })));
        assert_eq!((pg.pulling().count(), pg.pushing().count()), (2, 1));
    }

    /// Recovery waits for its turn, while an object that a copy lacks is written again and again.
    #[test]
    fn an_object_stands_in_line_once_however_often_it_is_written() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        let mut theirs = Missing::default();
        theirs.set(object(1), at(5, 5), Eversion::ZERO);
        peer(&mut pg, 2, theirs);
        assert_eq!(pg.need(), Need::Recovery);
        for version in (11..).map(|n| at(5, n)).take(100) {
            pg.append(vec![LogEntry::of(object(1), version)], ObjectSums::default(), 1);
        }
        let todo = pg.recovery.todo.borrow();
        assert_eq!((todo.pushes.in_order.len(), todo.pushes.needs.len()), (1, 1));
        drop(todo);
        let work = pg.next_recovery();
        assert!(matches!(work, Some(Work::Push { need, .. }) if need == at(5, 110)));
    }

    /// A pull is answered a second time, when the object is here: the copy that sent it is a good one.
    #[test]
    fn a_second_answer_to_a_pull_says_nothing_of_the_copy() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        pg.missing.set(object(1), at(5, 5), at(5, 1));
        peer(&mut pg, 2, Missing::default());
        assert!(matches!(pg.next_recovery(), Some(Work::Pull { from: OsdId(2), .. })));
        pg.arrived(&object(1), at(5, 5));
        assert!(pg.source_failed(&object(1), OsdId(2)).is_none());
        let theirs = &pg.peers[&OsdId(2)];
        assert!(theirs.lacks.is_empty() && !theirs.missing.as_ref().unwrap().contains(&object(1)));
        assert!(!pg.is_recovered(), "it is not durable yet");
        pg.pulled(&object(1), &mut Fx::default());
        assert!(pg.is_recovered());
    }

    /// A late holder is asked for what is unfound before it is known what it misses. Both answers may come first.
    #[test]
    fn a_late_holder_that_lacks_an_object_may_have_an_older_state_of_it() {
        let older = || {
            let mut theirs = Missing::default();
            theirs.set(object(1), at(5, 5), at(5, 2));
            theirs
        };
        for log_first in [false, true] {
            let mut pg = copy(Stage::Active, &[1]);
            pg.missing.set(object(1), at(5, 5), at(5, 1));
            peer(&mut pg, 2, older());
            let peer = pg.peers.get_mut(&OsdId(2)).unwrap();
            peer.missing = log_first.then(older);
            let info = peer.info.clone();
            assert!(pg.source_failed(&object(1), OsdId(2)).is_none());
            if !log_first {
                let seg = LogSegment { tail: pg.log.tail(), ..LogSegment::default() };
                let fx = &mut Fx::default();
                pg.late_holder_answers(OsdId(2), info, &seg, older(), fx);
            }
            let plan = GiveUp::Revert { to: at(5, 2), from: OsdId(2) };
            assert_eq!(pg.give_up_unfound(&object(1), true), plan, "{log_first}");
        }
    }

    /// Whatever may make an unfound object come is noticed.
    #[test]
    fn what_is_found_again_is_brought() {
        let lost = || {
            let mut pg = copy(Stage::Active, &[1, 2]);
            pg.missing.set(object(1), at(5, 5), at(5, 1));
            let mut theirs = Missing::default();
            theirs.set(object(1), at(5, 5), Eversion::ZERO);
            peer(&mut pg, 2, theirs);
            assert_eq!((pg.need(), pg.unfound_count()), (Need::Nothing, 1));
            pg
        };
        let is_found = |mut pg: Pg| {
            assert_eq!((pg.need(), pg.unfound_count()), (Need::Recovery, 0));
            assert!(matches!(pg.next_recovery(), Some(Work::Pull { .. })));
            assert!(pg.next_recovery().is_none());
        };
        // It was brought there by somebody else, or turns out not to be missed there.
        let mut pg = lost();
        pg.pushed(OsdId(2), &object(1), at(5, 5), &mut Fx::default());
        is_found(pg);
        // A source is asked again.
        let mut pg = copy(Stage::Active, &[1, 2]);
        pg.missing.set(object(1), at(5, 5), at(5, 1));
        peer(&mut pg, 2, Missing::default());
        assert!(pg.next_recovery().is_some());
        assert!(pg.source_failed(&object(1), OsdId(2)).is_none());
        assert_eq!((pg.need(), pg.unfound_count()), (Need::Nothing, 1));
        if let Some(peer) = pg.peers.get_mut(&OsdId(2)) {
            peer.missing = Some(Missing::default());
        }
        pg.forget_failures(&object(1));
        is_found(pg);
        // It is given up.
        let mut pg = lost();
        pg.missing.set(object(1), at(6, 7), at(6, 7));
        pg.look_again(&object(1));
        pg.arrived(&object(1), at(6, 7));
        pg.pulled(&object(1), &mut Fx::default());
        assert_eq!((pg.need(), pg.unfound_count()), (Need::Recovery, 0));
        assert!(matches!(pg.next_recovery(), Some(Work::Push { .. })));
    }
}
