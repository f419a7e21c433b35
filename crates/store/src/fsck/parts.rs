//! A store in parts, so that a check of any store takes a bounded amount of memory.
//!
//! What the rows of an object should be is known from its record; records stand in the order of names, and rows
//! in that of the objects' numbers. So the records are gone through, and those with the lowest numbers kept, as
//! many as there is memory for; then the rows of just these; and again, for those with the next numbers. All rows
//! are read once, and records once for each part.

use super::report::FsckReport;
use crate::keys::{self, Key};
use crate::rows::Onode;
use std::collections::BTreeMap;
use types::ObjectKey;

/// Objects of a part: with names of the usual length that is 0.8 GiB.
const MOST_OBJECTS: usize = 4 << 20;

/// An object whose rows come.
pub(super) struct Known {
    pub account: u64,
    /// `None`: it is only counted.
    pub record: Option<Box<Record>>,
}

/// What its rows must agree with.
pub(super) struct Record {
    pub key: ObjectKey,
    pub size: u64,
    flags: u8,
    /// Another has the same number.
    twice: bool,
}

impl Record {
    pub fn new(key: ObjectKey, onode: &Onode) -> Box<Self> {
        Box::new(Record { key, size: onode.size, flags: onode.flags, twice: false })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The objects of a part.
pub(super) struct Part {
    most: usize,
    objects: BTreeMap<u64, Known>,
    from: u64,
    /// The first number that is of a later part.
    to: Option<u64>,
    names: bool,
}

impl Default for Part {
    fn default() -> Self {
        let (most, objects) = (MOST_OBJECTS, BTreeMap::new());
        Part { most, objects, from: 0, to: None, names: true }
    }
}

impl Part {
    /// From now on parts are of up to so many objects.
    pub fn set_most(&mut self, objects: usize) {
        self.most = objects.max(1);
    }

    /// Whether rows are gone through of which all is said already.
    pub fn is_repeated(&self) -> bool {
        self.names && self.from > 0
    }

    /// Notes an object, if it is of this part as far as that is known.
    pub fn add(&mut self, id: u64, account: u64, record: Option<Box<Record>>) {
        if id < self.from || self.to.is_some_and(|to| id >= to) {
            return;
        }
        if let Some(known) = self.objects.get_mut(&id) {
            known.record.iter_mut().for_each(|record| record.twice = true);
            return;
        }
        self.objects.insert(id, Known { account, record });
        if self.objects.len() > self.most {
            self.to = self.objects.pop_last().map(|(id, _)| id);
        }
    }

    pub fn get(&self, id: u64) -> Option<&Known> {
        self.objects.get(&id)
    }

    /// The keys that are gone through now: from the first, to the second.
    pub fn keys(&self) -> (Key, Option<Key>) {
        match (self.names, self.from) {
            (true, _) => (Key::new(), Some(keys::objects_end())),
            (false, 0) => (keys::objects_end(), self.to.map(keys::rows)),
            (false, from) => (keys::rows(from), self.to.map(keys::rows)),
        }
    }

    /// These keys are over. False when they were the last.
    pub fn go_on(&mut self, report: &mut FsckReport) -> bool {
        if self.names {
            let records = self.objects.values().filter_map(|known| known.record.as_ref());
            for record in records.filter(|record| record.twice) {
                let what = "two objects have the same id, and so the same contents";
                report.object(Some(&record.key), "record", what);
            }
            self.names = false;
            return true;
        }
        let Some(to) = self.to.take() else { return false };
        self.objects.clear();
        (self.names, self.from) = (true, to);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_of_one_part_and_no_part_is_large() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut ids: Vec<u64> = (0..1000).map(|n| 3 * n).collect();
        let mut part = Part::default();
        part.set_most(70);
        let mut report = FsckReport::default();
        let (mut seen, mut end) = (Vec::new(), Key::new());
        loop {
            rng.shuffle(&mut ids);
            assert_eq!(part.is_repeated(), part.from > 0);
            for id in &ids {
                part.add(*id, 0, None);
                assert!(part.objects.len() <= 70);
            }
            assert!(part.go_on(&mut report));
            let (from, to) = part.keys();
            assert!(end.is_empty() || from == end);
            end = to.unwrap_or_default();
            seen.extend(part.objects.keys().copied());
            if !part.go_on(&mut report) {
                break;
            }
        }
        ids.sort_unstable();
        assert_eq!(seen, ids);
        assert!(end.is_empty() && report.is_good());
    }
}
