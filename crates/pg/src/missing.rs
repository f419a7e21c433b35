//! Objects whose newest version a copy does not hold yet.

use crate::entry::{EntryKind, LogEntry};
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use types::{Eversion, HObject};

/// What is missing of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MissingItem {
    /// The version it must have.
    pub need: Eversion,
    /// The version it has; zero when it is not there at all.
    pub have: Eversion,
}

/// The missing objects of one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    items: BTreeMap<HObject, MissingItem>,
    by_need: BTreeSet<(Eversion, HObject)>,
}

/// What a copy says of the objects that it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Lack {
    /// How many they are.
    pub objects: u64,
    /// The newest version of them. Zero: there are none.
    pub newest: Eversion,
}

impl Lack {
    /// Of these.
    #[must_use]
    pub fn of(missing: &Missing) -> Self {
        let newest = missing.by_need.last().map_or(Eversion::ZERO, |(need, _)| *need);
        Lack { objects: missing.len() as u64, newest }
    }
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many objects are missing.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// What is missing of `object`, if anything.
    pub fn get(&self, object: &HObject) -> Option<&MissingItem> {
        self.items.get(object)
    }

    /// Whether something of `object` is missing.
    pub fn contains(&self, object: &HObject) -> bool {
        self.items.contains_key(object)
    }

    /// All missing objects in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HObject, &MissingItem)> {
        self.items.iter()
    }

    /// The missing objects from one on, in their order.
    pub fn from(&self, object: &HObject) -> impl Iterator<Item = &HObject> {
        self.items.range(object..).map(|(object, _)| object)
    }

    /// All missing objects, the longest missing first: the order of recovery.
    pub fn oldest_first(&self) -> impl Iterator<Item = (&HObject, &MissingItem)> {
        self.by_need.iter().filter_map(|(_, o)| self.items.get_key_value(o))
    }

    /// Sets what is missing of `object`.
    pub fn set(&mut self, object: HObject, need: Eversion, have: Eversion) {
        self.remove(&object);
        self.by_need.insert((need, object.clone()));
        self.items.insert(object, MissingItem { need, have });
    }

    /// The object is complete, or gone. Returns what was missing.
    pub fn remove(&mut self, object: &HObject) -> Option<MissingItem> {
        let item = self.items.remove(object)?;
        self.by_need.remove(&(item.need, object.clone()));
        Some(item)
    }

    /// The object now exists in version `v`: it is complete if that is (at least) what is needed.
    pub fn got(&mut self, object: &HObject, v: Eversion) -> bool {
        match self.items.get(object) {
            Some(item) if item.need <= v => self.remove(object).is_some(),
            _ => false,
        }
    }

    /// The copy learns of a write whose data it does not get now.
    pub fn note(&mut self, entry: &LogEntry) {
        match entry.kind {
            EntryKind::Error => {}
            EntryKind::Delete => {
                self.remove(&entry.object);
            }
            EntryKind::Modify | EntryKind::Clone => {
                let have = match self.items.get(&entry.object) {
                    Some(item) => item.have,
                    None if entry.kind == EntryKind::Clone => Eversion::ZERO,
                    None => entry.prior_version,
                };
                self.set(entry.object.clone(), entry.version, have);
            }
        }
    }
}

impl FromIterator<(HObject, MissingItem)> for Missing {
    fn from_iter<T: IntoIterator<Item = (HObject, MissingItem)>>(iter: T) -> Self {
        let mut missing = Missing::default();
        for (object, item) in iter {
            missing.set(object, item.need, item.have);
        }
        missing
    }
}

impl Encode for Missing {
    fn encode(&self, e: &mut denc::Encoder) {
        self.items.encode(e);
    }
}

impl Decode for Missing {
    fn decode(d: &mut denc::Decoder<'_>) -> Result<Self, denc::DecodeError> {
        Ok(d.get::<BTreeMap<HObject, MissingItem>>()?.into_iter().collect())
    }
}
