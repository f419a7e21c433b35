//! Objects whose newest version a copy does not hold yet.

use crate::entry::{EntryKind, LogEntry};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, Eversion, HObject};

/// What is missing of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingItem {
    /// The version it must have.
    pub need: Eversion,
    /// The version it has; zero when it is not there at all.
    pub have: Eversion,
    /// The changes from this one on up to `need` never were on this copy: nothing after `have` was. Zero: that is
    /// not known.
    pub never_had_since: Eversion,
    /// This version is there, and could not be read whole. Zero: none is.
    pub damaged: Eversion,
}

impl MissingItem {
    /// Of which nothing more is known.
    #[must_use]
    pub fn new(need: Eversion, have: Eversion) -> Self {
        MissingItem { need, have, never_had_since: Eversion::ZERO, damaged: Eversion::ZERO }
    }

    /// It is there in the version that it must have, and could not be read whole.
    #[must_use]
    pub fn of_damaged(version: Eversion) -> Self {
        MissingItem { damaged: version, ..MissingItem::new(version, Eversion::ZERO) }
    }

    /// Whether it is missing for nothing else than that it could not be read.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged > Eversion::ZERO && self.damaged == self.need
    }

    /// Whether there is anything of it.
    pub(crate) fn is_there(&self) -> bool {
        self.have.max(self.damaged) > Eversion::ZERO
    }
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

    /// The missing clones of a head, oldest first.
    pub fn clones_of<'a>(&'a self, head: &HObject) -> impl Iterator<Item = &'a HObject> + use<'a> {
        self.older_if(head.is_head(), head)
    }

    /// The missing clones of the same object that are older than this clone, or its head; oldest first.
    pub fn older_than<'a>(
        &'a self,
        object: &HObject,
    ) -> impl Iterator<Item = &'a HObject> + use<'a> {
        self.older_if(true, object)
    }

    /// What is missing of a head and its clones: oldest first, the head last.
    pub fn versions_of(&self, head: &HObject) -> impl Iterator<Item = (&HObject, &MissingItem)> {
        let some = (!self.is_empty()).then(|| self.items.range(head.versions()));
        some.into_iter().flatten()
    }

    /// One iterator for both: a write asks several times, nearly always in vain.
    fn older_if<'a>(
        &'a self,
        wanted: bool,
        object: &HObject,
    ) -> impl Iterator<Item = &'a HObject> + use<'a> {
        let some = (wanted && !self.is_empty()).then(|| self.items.range(object.older()));
        some.into_iter().flatten().map(|(clone, _)| clone)
    }

    /// All missing objects, the longest missing first: the order of recovery.
    pub fn oldest_first(&self) -> impl Iterator<Item = (&HObject, &MissingItem)> {
        self.by_need.iter().filter_map(|(_, o)| self.items.get_key_value(o))
    }

    /// Sets what is missing of `object`.
    pub fn set(&mut self, object: HObject, need: Eversion, have: Eversion) {
        self.set_item(object, MissingItem::new(need, have));
    }

    /// The same with all that is known of it.
    pub fn set_item(&mut self, object: HObject, item: MissingItem) {
        self.remove(&object);
        self.by_need.insert((item.need, object.clone()));
        self.items.insert(object, item);
    }

    /// The object is complete, or gone. Returns what was missing.
    pub fn remove(&mut self, object: &HObject) -> Option<MissingItem> {
        let item = self.items.remove(object)?;
        self.by_need.remove(&(item.need, object.clone()));
        Some(item)
    }

    /// A backfill goes on from `object`: it compares what is there from there on.
    pub fn forget_from(&mut self, object: &HObject) {
        let gone = self.items.split_off(object);
        if !gone.is_empty() {
            self.by_need.retain(|(_, o)| !gone.contains_key(o));
        }
    }

    /// The object now exists in version `v`: it is complete if that is (at least) what is needed.
    pub fn got(&mut self, object: &HObject, v: Eversion) -> bool {
        match self.items.get(object) {
            Some(item) if item.need <= v => self.remove(object).is_some(),
            _ => false,
        }
    }

    /// A copy that is there since an epoch (see [`PgInfo`](crate::PgInfo)) learns of a write whose data it does
    /// not get now. If it was there at the time of the write, it never had them.
    pub fn note(&mut self, entry: &LogEntry, there_since: Epoch) {
        let need = entry.version;
        match entry.kind {
            EntryKind::Error => return,
            EntryKind::Delete => {
                self.remove(&entry.object);
                return;
            }
            EntryKind::Modify | EntryKind::Clone => {}
        }
        let before = self.items.get(&entry.object);
        let have = match before {
            Some(item) => item.have,
            None if entry.kind == EntryKind::Clone => Eversion::ZERO,
            None => entry.prior_version,
        };
        let was_there = there_since > Epoch::ZERO && there_since <= need.epoch;
        let never_had_since = match before {
            _ if !was_there => Eversion::ZERO,
            Some(item) => item.never_had_since,
            None => need,
        };
        let damaged = before.map_or(Eversion::ZERO, |item| item.damaged);
        let item = MissingItem { need, have, never_had_since, damaged };
        self.set_item(entry.object.clone(), item);
    }
}

impl FromIterator<(HObject, MissingItem)> for Missing {
    fn from_iter<T: IntoIterator<Item = (HObject, MissingItem)>>(iter: T) -> Self {
        let mut missing = Missing::default();
        for (object, item) in iter {
            missing.set_item(object, item);
        }
        missing
    }
}

/// As it is kept: `never_had_since` and `damaged`, which came later, stand at the end only when there is something to
/// say.
impl Encode for MissingItem {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.need).put(&self.have);
        if self.never_had_since.max(self.damaged) > Eversion::ZERO {
            e.put(&self.never_had_since);
        }
        if self.damaged > Eversion::ZERO {
            e.put(&self.damaged);
        }
    }
}

impl Decode for MissingItem {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut item = MissingItem::new(d.get()?, d.get()?);
        if d.remaining() > 0 {
            item.never_had_since = d.get()?;
        }
        if d.remaining() > 0 {
            item.damaged = d.get()?;
        }
        Ok(item)
    }
}

/// As it is sent, at the end of a message: of each object `need` and `have`, then `never_had_since` of those of
/// which it is known, then `damaged` of those that are. (The second and the third part came later.)
impl Encode for Missing {
    fn encode(&self, e: &mut Encoder) {
        let versions = self.items.iter().map(|(o, i)| (o, (i.need, i.have)));
        versions.collect::<BTreeMap<_, _>>().encode(e);
        self.known(|i| i.never_had_since).encode(e);
        let damaged = self.known(|i| i.damaged);
        if !damaged.is_empty() {
            damaged.encode(e);
        }
    }
}

impl Missing {
    /// One version of each item, where there is one.
    fn known(&self, version: impl Fn(&MissingItem) -> Eversion) -> BTreeMap<&HObject, Eversion> {
        let all = self.items.iter().map(|(o, i)| (o, version(i)));
        all.filter(|(_, v)| *v > Eversion::ZERO).collect()
    }
}

impl Decode for Missing {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let versions: BTreeMap<HObject, (Eversion, Eversion)> = d.get()?;
        let items = versions.into_iter().map(|(o, (need, have))| (o, MissingItem::new(need, have)));
        let mut missing: Missing = items.collect();
        if d.remaining() > 0 {
            for (object, since) in d.get::<BTreeMap<HObject, Eversion>>()? {
                if let Some(item) = missing.items.get_mut(&object) {
                    item.never_had_since = since;
                }
            }
        }
        if d.remaining() > 0 {
            for (object, version) in d.get::<BTreeMap<HObject, Eversion>>()? {
                if let Some(item) = missing.items.get_mut(&object) {
                    item.damaged = version;
                }
            }
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    fn at(epoch: u32, n: u64) -> Eversion {
        Eversion::new(Epoch(epoch), n)
    }

    fn entry(version: Eversion, prior_version: Eversion) -> LogEntry {
        let object = HObject { pool: PoolId(1), hash: 7, name: "a".into(), ..HObject::min() };
        LogEntry { prior_version, ..LogEntry::of(object, version) }
    }

    /// What was written before a copy was there, another one on its OSD may have had.
    #[test]
    fn a_copy_never_had_what_was_written_while_it_was_there() {
        let (first, second) = (entry(at(5, 2), at(4, 1)), entry(at(6, 3), at(5, 2)));
        let since = |there_since: u32| {
            let mut missing = Missing::default();
            missing.note(&first, Epoch(there_since));
            missing.note(&second, Epoch(there_since));
            let item = *missing.get(&first.object).unwrap();
            assert_eq!((item.need, item.have), (at(6, 3), at(4, 1)));
            item.never_had_since
        };
        assert_eq!(since(5), at(5, 2));
        assert_eq!([since(6), since(7), since(0)], [Eversion::ZERO; 3]);
    }

    #[test]
    fn what_is_known_is_kept_and_sent() {
        let mut missing = Missing::default();
        missing.note(&entry(at(5, 2), at(4, 1)), Epoch(1));
        let unsure = HObject { hash: 8, ..entry(at(5, 2), at(4, 1)).object };
        missing.set(unsure.clone(), at(3, 1), Eversion::ZERO);
        let bad = HObject { hash: 9, ..unsure.clone() };
        missing.set_item(bad.clone(), MissingItem::of_damaged(at(3, 1)));
        assert_eq!(denc::decode::<Missing>(&denc::encode(&missing)).unwrap(), missing);
        for (_, item) in missing.iter() {
            assert_eq!(denc::decode::<MissingItem>(&denc::encode(item)).unwrap(), *item);
        }
        // Who knows nothing of the rest passes over it.
        let kept = denc::encode(missing.get(&bad).unwrap());
        assert_eq!(
            denc::decode::<(Eversion, Eversion)>(&kept).unwrap(),
            (at(3, 1), Eversion::ZERO)
        );
        // As it was kept and sent before that was known.
        let item = *missing.get(&unsure).unwrap();
        assert_eq!(denc::encode(&item), denc::encode(&(item.need, item.have)));
        let sent: BTreeMap<_, _> = [(unsure.clone(), (item.need, item.have))].into();
        let read: Missing = denc::decode(&denc::encode(&sent)).unwrap();
        assert_eq!(read.get(&unsure), Some(&item));
    }

    /// A write that comes upon it changes nothing of what is there.
    #[test]
    fn a_damaged_copy_is_what_is_missing_until_something_newer_is() {
        let (mut missing, write) = (Missing::default(), entry(at(6, 3), at(5, 2)));
        missing.set_item(write.object.clone(), MissingItem::of_damaged(at(5, 2)));
        let item = |missing: &Missing| *missing.get(&write.object).unwrap();
        assert!(item(&missing).is_damaged());
        missing.note(&write, Epoch(1));
        assert_eq!((item(&missing).is_damaged(), item(&missing).damaged), (false, at(5, 2)));
        missing.set(write.object.clone(), at(6, 3), at(4, 1));
        assert_eq!(item(&missing).damaged, Eversion::ZERO, "an older state was brought");
        // Where nothing is to be, there is no copy either.
        assert!(!MissingItem::of_damaged(Eversion::ZERO).is_damaged());
    }

    #[test]
    fn a_backfill_forgets_what_it_has_not_come_to() {
        let (mut missing, low) = (Missing::default(), entry(at(5, 2), at(4, 1)));
        let high = HObject { hash: 8, ..low.object.clone() };
        for object in [&low.object, &high] {
            missing.set(object.clone(), at(5, 2), Eversion::ZERO);
        }
        let middle = low.object.clone().max(high.clone());
        missing.forget_from(&middle);
        assert_eq!(missing.oldest_first().count(), 1);
        assert!(!missing.contains(&middle));
    }
}
