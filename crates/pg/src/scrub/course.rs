//! The course of one scrub, on the primary.

use super::{ScrubObject, ScrubRecord, Source, Verdict, judge};
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Bug, Probe, hit, planted};
use types::{Eversion, HObject, Mono, OsdId, UTime};

/// Inconsistent objects of one PG that are remembered to be listed.
pub const MAX_LISTED: usize = 10_000;
/// Bytes of attributes and records of their copies, beyond which no more are.
pub const MAX_LISTED_BYTES: usize = 32 << 20;

/// Who wanted a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Starter {
    /// It was due.
    Schedule,
    /// An operator: it is done whatever the flags say, and repairs only what it was told to.
    Operator,
}

/// Which scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// All data is read.
    pub deep: bool,
    /// Who wanted it.
    pub starter: Starter,
    /// What is wrong is repaired, by the best guess if need be.
    pub repair: bool,
}

impl Kind {
    /// A light scrub that was due.
    pub fn periodic() -> Self {
        Kind { deep: false, starter: Starter::Schedule, repair: false }
    }

    /// One that an operator asks for. A repair reads all data.
    pub fn asked(deep: bool, repair: bool) -> Self {
        Kind { deep: deep || repair, starter: Starter::Operator, repair }
    }

    /// What does the work of both.
    #[must_use]
    pub fn and(self, other: Kind) -> Kind {
        Kind {
            deep: self.deep || other.deep,
            starter: self.starter.max(other.starter),
            repair: self.repair || other.repair,
        }
    }

    /// `scrub`, `deep-scrub`, `repair`
    pub fn name(self) -> &'static str {
        match self {
            Kind { repair: true, .. } => "repair",
            Kind { deep: true, .. } => "deep-scrub",
            Kind { .. } => "scrub",
        }
    }
}

/// Where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Members that have not said whether they take part.
    Reserving(BTreeSet<OsdId>),
    /// The next chunk is to be chosen, from this time on.
    Between(Mono),
    /// The chunk's objects take no new writes; earlier ones are not all committed.
    Draining,
    /// Members that have not sent their list.
    Scanning(BTreeSet<OsdId>),
    /// Everything was compared.
    Over,
}

/// What is compared at once: `begin..end` in hash order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Counts the chunks of a scrub: answers to others are void.
    pub number: u64,
    /// The first object.
    pub begin: HObject,
    /// Behind the last.
    pub end: HObject,
    /// All data is read.
    pub deep: bool,
}

/// What was found so far.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Objects, as the selected copies say.
    pub objects: u64,
    /// Errors that a light scrub sees.
    pub shallow_errors: u64,
    /// Errors that only a deep one sees.
    pub deep_errors: u64,
    /// Of both, those that are being repaired.
    pub fixed: u64,
    /// Objects of which a copy is being repaired.
    pub repaired: u64,
    /// Entries of omaps.
    pub omap_entries: u64,
    /// Bytes of omaps.
    pub omap_bytes: u64,
    /// What is wrong and not repaired, up to [`MAX_LISTED`] objects and [`MAX_LISTED_BYTES`].
    pub wrong: BTreeMap<HObject, Verdict>,
    /// What those take.
    wrong_bytes: usize,
}

/// One scrub.
#[derive(Clone, Debug)]
pub struct Scrub {
    kind: Kind,
    me: OsdId,
    members: Vec<OsdId>,
    phase: Phase,
    chunk: Chunk,
    lists: BTreeMap<OsdId, BTreeMap<HObject, ScrubObject>>,
    /// Times that the chunk at hand gave way to a write.
    gave_way: u32,
    course: Course,
}

impl Scrub {
    /// Begins. `others` are the other members; each is to be asked for a reservation.
    pub fn new(kind: Kind, me: OsdId, others: impl IntoIterator<Item = OsdId>) -> Self {
        let others: BTreeSet<OsdId> = others.into_iter().filter(|o| *o != me).collect();
        let members = others.iter().copied().chain([me]).collect();
        let chunk =
            Chunk { number: 0, begin: HObject::min(), end: HObject::min(), deep: kind.deep };
        let phase = match others.is_empty() {
            true => Phase::Between(Mono::default()),
            false => Phase::Reserving(others),
        };
        let (lists, course) = (BTreeMap::new(), Course::default());
        Scrub { kind, me, members, phase, chunk, lists, gave_way: 0, course }
    }

    /// Which scrub it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The chunk at hand, or the last one.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// Those who take part, beside the primary.
    pub fn others(&self) -> impl Iterator<Item = OsdId> {
        self.members.iter().copied().filter(|o| *o != self.me)
    }

    /// What was found so far.
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// The same, to note repairs.
    pub fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    /// A member takes part.
    pub fn granted(&mut self, osd: OsdId) {
        if let Phase::Reserving(waiting) = &mut self.phase {
            waiting.remove(&osd);
            if waiting.is_empty() {
                self.phase = Phase::Between(Mono::default());
            }
        }
    }

    /// Where the next chunk begins, if it is to be chosen now.
    pub fn wants_chunk(&self, now: Mono) -> Option<&HObject> {
        match self.phase {
            Phase::Between(at) if at <= now => Some(&self.chunk.end),
            _ => None,
        }
    }

    /// The next chunk goes up to here. Its objects take no writes from now on.
    pub fn choose(&mut self, end: HObject) {
        assert!(matches!(self.phase, Phase::Between(_)), "a chunk is chosen between two");
        assert!(end > self.chunk.end, "a chunk is never empty");
        let begin = std::mem::replace(&mut self.chunk.end, end);
        self.chunk.begin = begin;
        self.chunk.number += 1;
        self.phase = Phase::Draining;
    }

    /// Whether a write of an object with this head waits.
    pub fn holds(&self, head: &HObject) -> bool {
        let busy = matches!(self.phase, Phase::Draining | Phase::Scanning(_));
        busy && head.at_snap(types::SnapId(0)) < self.chunk.end && *head >= self.chunk.begin
    }

    /// A client's write waits for the chunk: it is done later, in smaller parts. `false` when it has
    /// given way often enough.
    pub fn give_way(&mut self, now: Mono, max: u32) -> bool {
        let may = match &self.phase {
            Phase::Draining => true,
            // What is being compared is as good as done.
            Phase::Scanning(waiting) => !waiting.is_empty(),
            _ => false,
        };
        if self.gave_way >= max || !may {
            return false;
        }
        self.gave_way += 1;
        self.lists.clear();
        // What is chosen next begins where this one did.
        self.chunk.end = self.chunk.begin.clone();
        self.phase = Phase::Between(now);
        true
    }

    /// How often the chunk at hand has given way: it is to be half as large each time.
    pub fn gave_way(&self) -> u32 {
        self.gave_way
    }

    /// All writes of the chunk's objects are committed: members are to be asked for their lists.
    pub fn drained(&mut self) {
        assert_eq!(self.phase, Phase::Draining, "only a chosen chunk is drained");
        self.phase = Phase::Scanning(self.members.iter().copied().collect());
    }

    /// A member's list of the chunk with this number, up to `end` (there may be more objects than one
    /// message takes). Whether it is the last one: then [`Scrub::compare`] follows.
    pub fn listed(
        &mut self,
        osd: OsdId,
        number: u64,
        end: &HObject,
        objects: Vec<ScrubObject>,
    ) -> bool {
        let Phase::Scanning(waiting) = &mut self.phase else { return false };
        if number != self.chunk.number || *end <= self.chunk.begin || !waiting.remove(&osd) {
            return false;
        }
        let last = waiting.is_empty();
        self.chunk.end = self.chunk.end.clone().min(end.clone());
        let objects = objects.into_iter().map(|o| (o.object.clone(), o)).collect();
        self.lists.insert(osd, objects);
        last
    }

    /// Compares the lists. `skip` names objects that are not to be compared now (they are being
    /// recovered); `is_deleted` says whether the log has a deletion of an object later than a version.
    /// The chunk's objects still take no writes, so that repairs can be begun; [`Scrub::go_on`] ends
    /// that.
    pub fn compare(
        &mut self,
        skip: impl Fn(&HObject) -> bool,
        is_deleted: impl Fn(&HObject, Eversion) -> bool,
    ) -> Vec<Verdict> {
        let lists = std::mem::take(&mut self.lists);
        assert_eq!(lists.len(), self.members.len(), "every member has sent its list");
        let end = &self.chunk.end;
        let names: BTreeSet<&HObject> =
            lists.values().flat_map(BTreeMap::keys).filter(|o| *o < end && !skip(o)).collect();
        let mut verdicts = Vec::new();
        for object in names {
            let copies: BTreeMap<_, _> =
                lists.iter().map(|(osd, list)| (*osd, list.get(object).cloned())).collect();
            self.course.objects += 1;
            if let Some(digests) = copies.values().flatten().find_map(|c| c.digests) {
                self.course.omap_entries += digests.omap_entries;
                self.course.omap_bytes += digests.omap_bytes;
            }
            hit(Probe::Scrubbed);
            let verdict = judge(object, self.me, copies, |v| is_deleted(object, v));
            if let Some(verdict) = verdict.filter(|_| !planted(Bug::BlindScrub)) {
                hit(Probe::ScrubFoundError);
                let (shallow, deep) = verdict.count();
                self.course.shallow_errors += shallow;
                self.course.deep_errors += deep;
                verdicts.push(verdict);
            }
        }
        verdicts
    }

    /// Notes what was found of an object, and whether it is being repaired.
    pub fn note(&mut self, verdict: Verdict, repaired: bool) {
        if repaired {
            let (shallow, deep) = verdict.count();
            self.course.fixed += shallow + deep;
            self.course.repaired += u64::from(verdict.source != Source::None);
        } else if self.course.wrong.len() < MAX_LISTED && self.course.wrong_bytes < MAX_LISTED_BYTES
        {
            let copies = verdict.copies.values().filter_map(|c| c.copy.as_ref());
            self.course.wrong_bytes += copies.map(ScrubObject::bytes).sum::<usize>();
            self.course.wrong.insert(verdict.object.clone(), verdict);
        }
    }

    /// A chunk is done: the next one, not before `at`.
    pub fn go_on(&mut self, at: Mono) {
        assert!(matches!(&self.phase, Phase::Scanning(w) if w.is_empty()), "it was compared");
        self.gave_way = 0;
        self.phase = if self.chunk.end.max { Phase::Over } else { Phase::Between(at) };
    }

    /// What is to be recorded when it is over.
    pub fn record(&self, before: &ScrubRecord, version: Eversion, now: UTime) -> ScrubRecord {
        let c = &self.course;
        let left = |of: fn(&Verdict) -> u64| c.wrong.values().map(of).sum::<u64>();
        let all_fixed = c.fixed >= c.shallow_errors + c.deep_errors;
        let (shallow, deep) = match (c.fixed, all_fixed) {
            (_, true) => (0, 0),
            (0, _) => (c.shallow_errors, c.deep_errors),
            _ => (left(|v| v.count().0), left(|v| v.count().1)),
        };
        let mut record = ScrubRecord {
            changes: before.changes + 1,
            last_scrub: version,
            last_scrub_stamp: now,
            shallow_errors: shallow,
            objects_repaired: before.objects_repaired + c.repaired,
            ..*before
        };
        if self.kind.deep {
            record.last_deep_scrub = version;
            record.last_deep_scrub_stamp = now;
            record.deep_errors = deep;
            record.omap_entries = c.omap_entries;
            record.omap_bytes = c.omap_bytes;
        }
        if record.errors() == 0 {
            record.last_clean_scrub_stamp = now;
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy_error;
    use super::*;
    use types::{Epoch, PoolId, SnapId};

    fn object(hash: u32) -> HObject {
        HObject {
            pool: PoolId(1),
            hash: hash.reverse_bits(),
            name: format!("o{hash}").into(),
            snap: SnapId::HEAD,
            ..HObject::min()
        }
    }

    /// Between an object, with its clones, and the one before it.
    fn before(hash: u32) -> HObject {
        object(hash).at_snap(SnapId(0))
    }

    fn found(hash: u32) -> ScrubObject {
        ScrubObject {
            object: object(hash),
            version: Eversion::new(Epoch(1), u64::from(hash)),
            size: 1,
            meta: bytes::Bytes::new(),
            attrs: Vec::new(),
            digests: None,
            errors: 0,
        }
    }

    fn begun(kind: Kind) -> Scrub {
        let mut scrub = Scrub::new(kind, OsdId(0), [OsdId(0), OsdId(1), OsdId(2)]);
        assert_eq!(scrub.wants_chunk(Mono(9)), None, "nobody has agreed");
        scrub.granted(OsdId(1));
        scrub.granted(OsdId(1));
        assert_eq!(scrub.wants_chunk(Mono(9)), None, "one has not");
        scrub.granted(OsdId(2));
        assert!(scrub.wants_chunk(Mono(9)).is_some_and(HObject::is_min));
        scrub
    }

    fn compare(scrub: &mut Scrub) -> Vec<Verdict> {
        scrub.compare(|_| false, |_, _| false)
    }

    #[test]
    fn chunks_follow_each_other_to_the_end() {
        let mut scrub = begun(Kind::asked(false, false));
        scrub.choose(before(10));
        assert!(scrub.holds(&object(9)) && !scrub.holds(&object(10)));
        scrub.drained();
        let (number, end) = (scrub.chunk().number, before(10));
        assert!(!scrub.listed(OsdId(0), number, &end, vec![found(1)]));
        assert!(!scrub.listed(OsdId(1), number + 1, &end, vec![]), "of another chunk");
        assert!(!scrub.listed(OsdId(1), number, &end, vec![found(1)]));
        assert!(!scrub.listed(OsdId(1), number, &end, vec![]), "it was heard already");
        assert!(scrub.listed(OsdId(2), number, &end, vec![found(1)]));
        assert_eq!(compare(&mut scrub), []);
        assert!(scrub.holds(&object(9)), "repairs may begin now");
        scrub.go_on(Mono(20));
        assert!(!scrub.holds(&object(9)));
        assert_eq!(scrub.wants_chunk(Mono(19)), None, "it sleeps");
        assert_eq!(scrub.wants_chunk(Mono(20)), Some(&before(10)));
        scrub.choose(HObject::max());
        assert!(!scrub.holds(&object(9)) && scrub.holds(&object(10)));
        scrub.drained();
        for osd in 0..3 {
            scrub.listed(OsdId(osd), number + 1, &HObject::max(), vec![]);
        }
        compare(&mut scrub);
        scrub.go_on(Mono(20));
        assert_eq!(*scrub.phase(), Phase::Over);
        assert_eq!(scrub.course().objects, 1);
    }

    /// A copy with more objects than one list takes: the rest is compared with the next chunk.
    #[test]
    fn the_shortest_list_is_the_end_of_the_chunk() {
        let mut scrub = begun(Kind::asked(false, false));
        scrub.choose(HObject::max());
        scrub.drained();
        scrub.listed(OsdId(0), 1, &HObject::max(), vec![found(1), found(7)]);
        scrub.listed(OsdId(1), 1, &object(5), vec![found(1), found(3)]);
        assert!(scrub.listed(OsdId(2), 1, &HObject::max(), vec![found(1), found(7)]));
        let verdicts = compare(&mut scrub);
        assert_eq!(verdicts.iter().map(|v| v.object.clone()).collect::<Vec<_>>(), [object(3)]);
        scrub.go_on(Mono(0));
        assert_eq!(scrub.wants_chunk(Mono(0)), Some(&object(5)));
    }

    #[test]
    fn a_chunk_gives_way_to_writes_a_few_times() {
        let mut scrub = begun(Kind::asked(true, false));
        for round in 0..2 {
            scrub.choose(object(10));
            if round == 1 {
                scrub.drained();
                scrub.listed(OsdId(1), scrub.chunk().number, &object(10), vec![found(1)]);
            }
            assert!(scrub.give_way(Mono(5), 2));
            assert!(!scrub.holds(&object(1)));
            assert_eq!(scrub.wants_chunk(Mono(4)), None);
            assert!(scrub.wants_chunk(Mono(5)).is_some_and(HObject::is_min), "the same again");
        }
        scrub.choose(object(5));
        assert!(!scrub.give_way(Mono(5), 2), "often enough");
        scrub.drained();
        let number = scrub.chunk().number;
        assert!(!scrub.listed(OsdId(2), number - 1, &object(10), vec![]), "late, and void");
        for osd in 0..3 {
            scrub.listed(OsdId(osd), number, &object(5), vec![found(1)]);
        }
        compare(&mut scrub);
        assert!(!scrub.give_way(Mono(5), 9), "what was compared is not thrown away");
        scrub.go_on(Mono(5));
        assert_eq!(scrub.gave_way(), 0);
    }

    #[test]
    fn objects_that_are_on_their_way_are_not_compared() {
        let mut scrub = begun(Kind::asked(false, false));
        scrub.choose(HObject::max());
        scrub.drained();
        scrub.listed(OsdId(0), 1, &HObject::max(), vec![found(1), found(2)]);
        scrub.listed(OsdId(1), 1, &HObject::max(), vec![]);
        scrub.listed(OsdId(2), 1, &HObject::max(), vec![found(1), found(2)]);
        let verdicts = scrub.compare(|o| *o == object(1), |_, _| false);
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].copies[&OsdId(1)].errors, copy_error::MISSING);
    }

    fn ended(kind: Kind, missing: u32, repaired: u32) -> Scrub {
        let mut scrub = begun(kind);
        scrub.choose(HObject::max());
        scrub.drained();
        scrub.listed(OsdId(0), 1, &HObject::max(), (0..missing).map(found).collect());
        scrub.listed(OsdId(1), 1, &HObject::max(), (0..missing).map(found).collect());
        scrub.listed(OsdId(2), 1, &HObject::max(), vec![]);
        for (verdict, i) in compare(&mut scrub).into_iter().zip(0..) {
            scrub.note(verdict, i < repaired);
        }
        scrub.go_on(Mono(0));
        scrub
    }

    #[test]
    fn the_record_says_what_is_left() {
        let at = |sec| UTime { sec, nsec: 0 };
        let before = ScrubRecord { changes: 4, deep_errors: 2, ..ScrubRecord::default() };
        let version = Eversion::new(Epoch(2), 9);
        let light = ended(Kind::asked(false, false), 3, 0).record(&before, version, at(7));
        assert_eq!((light.changes, light.shallow_errors, light.deep_errors), (5, 3, 2));
        assert_eq!((light.last_scrub, light.last_scrub_stamp), (version, at(7)));
        assert!(light.last_deep_scrub_stamp.is_zero() && light.last_clean_scrub_stamp.is_zero());
        let some = ended(Kind::asked(true, true), 3, 2).record(&light, version, at(8));
        assert_eq!((some.shallow_errors, some.deep_errors, some.objects_repaired), (1, 0, 2));
        let all = ended(Kind::asked(true, true), 3, 3).record(&some, version, at(9));
        assert_eq!((all.errors(), all.objects_repaired, all.last_clean_scrub_stamp), (0, 5, at(9)));
        let mut merged = light;
        assert!(merged.merge(&all) && !merged.merge(&light) && merged == all);
    }

    /// Their attributes are kept to be listed.
    #[test]
    fn what_is_kept_of_inconsistent_objects_is_bounded() {
        let listed = |attr_bytes: usize| {
            let mut scrub = begun(Kind::asked(false, false));
            for n in 0..100 {
                let attrs = vec![("_a".into(), vec![1; attr_bytes].into())];
                let copy =
                    |osd| (OsdId(osd), Some(ScrubObject { attrs: attrs.clone(), ..found(n) }));
                let copies = [copy(0), (OsdId(1), None), copy(2)].into();
                let verdict = judge(&object(n), OsdId(0), copies, |_| false);
                scrub.note(verdict.expect("a copy is missing"), false);
            }
            scrub.course().wrong.len()
        };
        assert_eq!(listed(1000), 100);
        assert_eq!(listed(MAX_LISTED_BYTES / 20), 10);
    }
}
