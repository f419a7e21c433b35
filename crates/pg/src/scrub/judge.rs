//! Which copy of an object is right.

use super::{ScrubObject, copy_error, object_error};
use std::collections::BTreeMap;
use types::{Eversion, HObject, OsdId};

/// What a copy turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVerdict {
    /// See [`copy_error`].
    pub errors: u64,
    /// The copy, if it is there.
    pub copy: Option<ScrubObject>,
    /// It is what the others are compared with.
    pub selected: bool,
    /// It is to be replaced.
    pub bad: bool,
}

/// What bad copies are replaced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The copy of this OSD, in this version.
    Copy(OsdId, Eversion),
    /// Nothing: the object was deleted, and a copy is left over.
    Deleted,
    /// Nobody has a good copy.
    None,
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The object.
    pub object: HObject,
    /// In what the copies differ: see [`object_error`].
    pub errors: u64,
    /// Every copy.
    pub copies: BTreeMap<OsdId, CopyVerdict>,
    /// What bad copies are replaced by.
    pub source: Source,
    /// The source is known to be right: what differs from it is damaged by its checksum, or the log
    /// says so, or most copies do. Else it is the best guess, and an operator has to say so.
    pub certain: bool,
}

impl Verdict {
    /// Errors: those a light scrub sees, and those only a deep one does.
    pub fn count(&self) -> (u64, u64) {
        let (mut shallow, mut deep) = (0, 0);
        if self.source == Source::Deleted {
            // Those who do not have it are right.
            return (self.bad().count() as u64, 0);
        }
        for copy in self.copies.values().filter(|c| c.bad || c.errors != 0) {
            let differs_deep = self.errors & object_error::DEEP != 0 && copy.errors == 0;
            if copy.errors & copy_error::DEEP != 0 || differs_deep {
                deep += 1;
            } else {
                shallow += 1;
            }
        }
        (shallow, deep)
    }

    /// All errors of copies.
    pub fn union(&self) -> u64 {
        self.copies.values().fold(0, |all, c| all | c.errors)
    }

    /// The OSDs whose copies are to be replaced.
    pub fn bad(&self) -> impl Iterator<Item = OsdId> {
        self.copies.iter().filter(|(_, c)| c.bad).map(|(o, _)| *o)
    }

    /// Whether every bad copy is bad by itself, without any comparison.
    pub fn is_proven(&self) -> bool {
        let proof = copy_error::UNUSABLE & !copy_error::MISSING;
        let proven = |c: &CopyVerdict| c.errors & proof != 0;
        self.source == Source::Deleted || self.copies.values().filter(|c| c.bad).all(proven)
    }
}

/// Looks at the copies of `object` on all members. `is_deleted` says of a version whether the log
/// has a later deletion.
///
/// Of the copies that can be read the newest version counts; of several that differ, the one that
/// most of them agree on, then the primary's. `None`: all is well.
pub fn judge(
    object: &HObject,
    primary: OsdId,
    copies: BTreeMap<OsdId, Option<ScrubObject>>,
    is_deleted: impl Fn(Eversion) -> bool,
) -> Option<Verdict> {
    let error = |c: &Option<ScrubObject>| c.as_ref().map_or(copy_error::MISSING, |c| c.errors);
    let usable = |c: &&Option<ScrubObject>| error(c) & copy_error::UNUSABLE == 0;
    let newest = copies.values().filter(usable).flatten().map(|c| c.version).max();
    let known = copies.values().flatten().map(|c| c.version).max().unwrap_or_default();
    // Looking through the log takes time: only where something is odd.
    let odd = copies.values().any(|c| error(c) != 0);
    let deleted = odd && is_deleted(newest.unwrap_or(known));
    let selected = newest.and_then(|v| select(primary, v, &copies));
    let mut verdict = Verdict {
        object: object.clone(),
        errors: 0,
        copies: copies
            .into_iter()
            .map(|(osd, copy)| {
                let errors = error(&copy);
                (osd, CopyVerdict { errors, copy, selected: false, bad: false })
            })
            .collect(),
        source: Source::None,
        certain: false,
    };
    if deleted {
        verdict.source = Source::Deleted;
        verdict.certain = true;
        verdict.copies.values_mut().for_each(|c| c.bad = c.copy.is_some());
    } else if let Some((source, version)) = selected {
        verdict.source = Source::Copy(source, version);
    }
    if let Some((source, _)) = selected {
        compare(&mut verdict, source, primary);
    }
    let fault = verdict.errors != 0 || verdict.copies.values().any(|c| c.bad || c.errors != 0);
    fault.then_some(verdict)
}

/// The best of the copies of this version.
fn select(
    primary: OsdId,
    version: Eversion,
    copies: &BTreeMap<OsdId, Option<ScrubObject>>,
) -> Option<(OsdId, Eversion)> {
    let candidates: Vec<(OsdId, &ScrubObject)> = copies
        .iter()
        .filter_map(|(osd, copy)| Some((*osd, copy.as_ref()?)))
        .filter(|(_, c)| c.errors & copy_error::UNUSABLE == 0 && c.version == version)
        .collect();
    let votes = |one: &ScrubObject| candidates.iter().filter(|(_, c)| same(one, c)).count();
    let best = candidates.iter().max_by_key(|(osd, c)| {
        // Of equals the one with the smallest number, so that the choice is the same every time.
        (votes(c), *osd == primary, std::cmp::Reverse(*osd))
    });
    best.map(|(osd, _)| (*osd, version))
}

fn same(a: &ScrubObject, b: &ScrubObject) -> bool {
    differences(a, b) == 0
}

/// In what two copies differ.
fn differences(a: &ScrubObject, b: &ScrubObject) -> u64 {
    let mut errors = 0;
    let mut note = |differ: bool, bit: u64| errors |= if differ { bit } else { 0 };
    note(a.meta != b.meta || a.version != b.version, object_error::INFO);
    note(a.size != b.size, object_error::SIZE);
    if let (Some(a), Some(b)) = (&a.digests, &b.digests) {
        note(a.data != b.data, object_error::DATA_DIGEST);
        note(a.omap != b.omap, object_error::OMAP_DIGEST);
    }
    let names = |o: &ScrubObject| o.attrs.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    note(names(a) != names(b), object_error::ATTR_NAME);
    let value = |n| b.attrs.iter().find(|(name, _)| name == n).map(|(_, v)| v);
    let other = a.attrs.iter().any(|(n, v)| value(n).is_some_and(|w| w != v));
    note(other, object_error::ATTR_VALUE);
    errors
}

/// Compares every copy with the selected one.
fn compare(verdict: &mut Verdict, source: OsdId, primary: OsdId) {
    let Some(right) = verdict.copies.get(&source).and_then(|c| c.copy.clone()) else { return };
    let deleted = verdict.source == Source::Deleted;
    let total = verdict.copies.len();
    let mut agree = 0;
    let mut guesses = false;
    for (osd, copy) in &mut verdict.copies {
        copy.selected = *osd == source;
        let differs = copy.copy.as_ref().map_or(0, |c| differences(&right, c));
        if copy.errors & copy_error::UNUSABLE == 0 {
            verdict.errors |= differs;
            agree += usize::from(differs == 0);
            guesses |= differs != 0;
        }
        copy.bad |= !deleted && (differs != 0 || copy.errors & copy_error::UNUSABLE != 0);
    }
    if deleted {
        return;
    }
    let usable = |c: &CopyVerdict| c.errors & copy_error::UNUSABLE == 0;
    let readable = verdict.copies.values().filter(|c| usable(c)).count();
    let missing = verdict.copies.values().any(|c| c.copy.is_none());
    // An object that only a minority has, without the primary, may be a leftover.
    let primary_has = verdict.copies.get(&primary).is_some_and(|c| c.copy.is_some());
    let leftover = missing && !primary_has && agree * 2 <= total;
    verdict.certain = !leftover && (!guesses || agree * 2 > readable);
    if verdict.certain {
        name_the_odd_ones(verdict, &right);
    }
}

/// Where it is clear who is right, the others are wrong in just this.
fn name_the_odd_ones(verdict: &mut Verdict, right: &ScrubObject) {
    for copy in verdict.copies.values_mut().filter(|c| c.bad) {
        let differs = copy.copy.as_ref().map_or(0, |c| differences(right, c));
        let pairs = [
            (object_error::DATA_DIGEST, copy_error::DATA_DIGEST),
            (object_error::OMAP_DIGEST, copy_error::OMAP_DIGEST),
            (object_error::SIZE, copy_error::SIZE),
        ];
        for (object, shard) in pairs {
            if differs & object != 0 && copy.errors & copy_error::UNUSABLE == 0 {
                copy.errors |= shard;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Digests;
    use super::*;
    use bytes::Bytes;
    use types::Epoch;

    fn version(n: u64) -> Eversion {
        Eversion::new(Epoch(3), n)
    }

    fn copy(n: u64) -> Option<ScrubObject> {
        let digests = Digests { data: 1, omap: 2, omap_entries: 1, omap_bytes: 8 };
        Some(ScrubObject {
            object: HObject::min(),
            version: version(n),
            size: 4096,
            meta: Bytes::from(vec![n as u8]),
            attrs: vec![("_a".into(), Bytes::from_static(b"x"))],
            digests: Some(digests),
            errors: 0,
        })
    }

    fn broken(n: u64, errors: u64) -> Option<ScrubObject> {
        copy(n).map(|c| ScrubObject { errors, digests: None, ..c })
    }

    fn other_data(n: u64, data: u32) -> Option<ScrubObject> {
        copy(n).map(|c| {
            let digests = c.digests.map(|d| Digests { data, ..d });
            ScrubObject { digests, ..c }
        })
    }

    /// The copies of osd.0 (the primary), osd.1, ..
    fn look(copies: Vec<Option<ScrubObject>>, deleted_at: u64) -> Option<Verdict> {
        let copies = (0..).map(OsdId).zip(copies).collect();
        judge(&HObject::min(), OsdId(0), copies, |v| v < version(deleted_at))
    }

    fn bad(v: &Verdict) -> Vec<i32> {
        v.bad().map(|o| o.0).collect()
    }

    #[test]
    fn equal_copies_are_well() {
        assert_eq!(look(vec![copy(5), copy(5), copy(5)], 0), None);
        assert_eq!(look(vec![copy(5)], 0), None);
        // The log is asked only where something is odd.
        assert_eq!(look(vec![copy(5), copy(5)], 9), None);
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_replaced_wherever_it_is() {
        for at in 0..3 {
            let mut copies = vec![copy(5), copy(5), copy(5)];
            copies[at] = broken(5, copy_error::READ);
            let v = look(copies, 0).expect("a fault");
            assert_eq!(bad(&v), [at as i32]);
            assert!(
                matches!(v.source, Source::Copy(osd, n) if osd.0 != at as i32 && n == version(5))
            );
            assert!(v.certain && v.is_proven());
            assert_eq!((v.count(), v.union(), v.errors), ((0, 1), copy_error::READ, 0));
        }
    }

    #[test]
    fn the_only_copy_that_can_be_read_is_right() {
        let v = look(vec![broken(5, copy_error::READ), broken(5, copy_error::READ), copy(5)], 0);
        let v = v.expect("a fault");
        assert_eq!((bad(&v), v.source), (vec![0, 1], Source::Copy(OsdId(2), version(5))));
        assert!(v.certain && v.count() == (0, 2));
    }

    #[test]
    fn without_a_good_copy_nothing_is_replaced() {
        let v = look(vec![broken(5, copy_error::READ), None, broken(5, copy_error::STAT)], 0);
        let v = v.expect("a fault");
        assert_eq!((bad(&v), v.source, v.certain), (vec![], Source::None, false));
        assert_eq!(v.count(), (2, 1));
    }

    #[test]
    fn a_missing_copy_comes_from_the_others() {
        let v = look(vec![copy(5), None, copy(5)], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain, v.count()), (vec![1], true, (1, 0)));
        assert!(!v.is_proven() && v.union() == copy_error::MISSING);
        let v = look(vec![None, copy(5), copy(5)], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain), (vec![0], true));
        assert_eq!(v.source, Source::Copy(OsdId(1), version(5)));
    }

    #[test]
    fn what_only_a_replica_has_is_left_over_if_the_log_says_so() {
        let v = look(vec![None, copy(5), None], 6).expect("a fault");
        assert_eq!((bad(&v), v.source, v.certain), (vec![1], Source::Deleted, true));
        assert_eq!(v.count(), (1, 0));
        // Without the log nobody knows: it is kept until an operator decides, and never removed.
        let v = look(vec![None, copy(5), None], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain), (vec![0, 2], false));
        assert_eq!(v.source, Source::Copy(OsdId(1), version(5)));
    }

    #[test]
    fn the_newest_version_counts_even_against_most() {
        let v = look(vec![copy(4), copy(5), copy(4)], 0).expect("a fault");
        assert_eq!(v.source, Source::Copy(OsdId(1), version(5)));
        assert_eq!((bad(&v), v.certain), (vec![0, 2], false));
        assert_eq!(v.errors & object_error::INFO, object_error::INFO);
    }

    #[test]
    fn of_equal_versions_most_copies_count_and_then_the_primary() {
        let v = look(vec![other_data(5, 7), copy(5), copy(5)], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain), (vec![0], true));
        assert_eq!(v.copies[&OsdId(0)].errors, copy_error::DATA_DIGEST);
        assert_eq!((v.errors, v.count()), (object_error::DATA_DIGEST, (0, 1)));
        assert!(!v.is_proven());
        let v = look(vec![other_data(5, 7), copy(5)], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain, v.union()), (vec![1], false, 0));
        let v = look(vec![other_data(5, 7), copy(5), other_data(5, 8)], 0).expect("a fault");
        assert_eq!((bad(&v), v.certain, v.count()), (vec![1, 2], false, (0, 2)));
    }

    #[test]
    fn every_difference_has_its_name() {
        let change = |f: fn(&mut ScrubObject)| {
            let mut one = copy(5).expect("a copy");
            f(&mut one);
            let v = look(vec![copy(5), copy(5), Some(one)], 0).expect("a fault");
            assert_eq!((bad(&v), v.certain), (vec![2], true));
            (v.errors, v.copies[&OsdId(2)].errors, v.count())
        };
        assert_eq!(change(|o| o.size = 1), (object_error::SIZE, copy_error::SIZE, (1, 0)));
        let omap = |o: &mut ScrubObject| o.digests.as_mut().expect("deep").omap = 0;
        assert_eq!(change(omap), (object_error::OMAP_DIGEST, copy_error::OMAP_DIGEST, (0, 1)));
        let value = |o: &mut ScrubObject| o.attrs[0].1 = Bytes::from_static(b"y");
        assert_eq!(change(value), (object_error::ATTR_VALUE, 0, (1, 0)));
        assert_eq!(change(|o| o.attrs.clear()), (object_error::ATTR_NAME, 0, (1, 0)));
        let meta = |o: &mut ScrubObject| o.meta = Bytes::from_static(b"m");
        assert_eq!(change(meta), (object_error::INFO, 0, (1, 0)));
    }
}
