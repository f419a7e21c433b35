//! Device classes and their shadow trees.
//!
//! For each root and class there is a copy of the hierarchy with only the devices of the class,
//! named `bucket~class`. Rules of a class take a shadow. The copies are made anew after each
//! change; a shadow keeps its id over that, since rules and clients know it by the id.

use super::Result;
use crate::bucket::Algorithm;
use crate::error::CrushError;
use crate::location::is_valid_name;
use crate::map::{ChooseArg, CrushMap, ItemId, slot_of};
use std::collections::{BTreeMap, BTreeSet};

/// Bucket, class -> shadow.
type Shadows = BTreeMap<ItemId, BTreeMap<i32, ItemId>>;

impl CrushMap {
    /// The number of a class, which is created if need be.
    pub(crate) fn class_or_new(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_id(name) {
            return id;
        }
        let next = match self.class_names.keys().next_back() {
            Some(&last) => last.checked_add(1),
            None => Some(0),
        };
        let free = || (0..i32::MAX).find(|id| !self.class_names.contains_key(id));
        let id = next.or_else(free).unwrap_or(i32::MAX);
        self.class_names.insert(id, name.to_owned());
        id
    }

    /// Creates a class (`osd crush class create`). Whether it is new.
    ///
    /// # Errors
    /// When the name is not a name.
    pub fn create_class(&mut self, name: &str) -> Result<bool> {
        if !is_valid_name(name) {
            return Err(CrushError::BadName(name.to_owned()));
        }
        let new = self.class_id(name).is_none();
        self.class_or_new(name);
        Ok(new)
    }

    /// Removes a class, taking it from all devices (`osd crush class rm`). Whether it was there.
    ///
    /// # Errors
    /// When a rule takes a shadow of the class.
    pub fn remove_class(&mut self, name: &str) -> Result<bool> {
        let Some(class) = self.class_id(name) else {
            return Ok(false);
        };
        let rules = self.rules_by_class(class);
        if !rules.is_empty() {
            let name = |&rule: &u32| format!("'{}'", self.rule_name(rule).unwrap_or_default());
            let names: Vec<_> = rules.iter().map(name).collect();
            return Err(CrushError::ClassInUse(names.join(",")));
        }
        self.all_or_nothing(|map| {
            map.class_map.retain(|&id, &mut c| id < 0 || c != class);
            map.rebuild_shadows()?;
            map.class_names.remove(&class);
            Ok(true)
        })
    }

    /// Renames a class and its shadows (`osd crush class rename`).
    ///
    /// # Errors
    /// When there is no such class, or the new name is taken or not a name.
    pub fn rename_class(&mut self, src: &str, dst: &str) -> Result<()> {
        if !is_valid_name(dst) {
            return Err(CrushError::BadName(dst.to_owned()));
        }
        let missing = || CrushError::ClassRenameMissing(src.to_owned());
        let class = self.class_id(src).ok_or_else(missing)?;
        if self.class_id(dst).is_some() {
            return Err(CrushError::ClassRenameTaken(dst.to_owned()));
        }
        for (id, _) in self.class_map.iter().filter(|&(_, &c)| c == class) {
            if let Some(name) = self.item_names.get_mut(id).filter(|_| *id < 0)
                && let Some((bucket, _)) = name.split_once('~')
            {
                *name = format!("{bucket}~{dst}");
            }
        }
        self.class_names.insert(class, dst.to_owned());
        Ok(())
    }

    /// Gives a device without a class one (`osd crush set-device-class`). Whether it is new to it.
    /// A device that is not in the map yet gets its name, `osd.N`.
    ///
    /// # Errors
    /// When the device has another class, or is a bucket.
    pub fn set_device_class(&mut self, id: ItemId, class: &str) -> Result<bool> {
        Ok(!self.set_device_classes(&[id], class)?.is_empty())
    }

    /// The same of several devices: those to which it is new. The shadows of all are made once.
    ///
    /// # Errors
    /// When one of them has another class, or is a bucket.
    pub fn set_device_classes(&mut self, ids: &[ItemId], class: &str) -> Result<Vec<ItemId>> {
        if !is_valid_name(class) {
            return Err(CrushError::BadName(class.to_owned()));
        }
        self.all_or_nothing(|map| {
            let mut new = Vec::new();
            for &id in ids {
                let default_name = || format!("osd.{id}");
                let name = map.item_name(id).map_or_else(default_name, str::to_owned);
                match map.item_class(id).map(str::to_owned) {
                    Some(old) if old != class => {
                        return Err(CrushError::OtherClass { id, old, new: class.to_owned() });
                    }
                    _ if id < 0 => return Err(CrushError::ClassOfBucket { name, id }),
                    Some(_) => continue,
                    None => {}
                }
                map.set_item_name(id, &name)?;
                let class = map.class_or_new(class);
                map.class_map.insert(id, class);
                new.push(id);
            }
            if !new.is_empty() {
                map.rebuild_shadows()?;
            }
            Ok(new)
        })
    }

    /// Takes a device's class away (`osd crush rm-device-class`). Whether it had one.
    ///
    /// # Errors
    /// When the device has no name.
    pub fn remove_device_class(&mut self, id: ItemId) -> Result<bool> {
        Ok(!self.remove_device_classes(&[id])?.is_empty())
    }

    /// The same of several devices: those that had one. The shadows of all are made once.
    ///
    /// # Errors
    /// When one of them has no name.
    pub fn remove_device_classes(&mut self, ids: &[ItemId]) -> Result<Vec<ItemId>> {
        self.all_or_nothing(|map| {
            let mut had = Vec::new();
            for &id in ids {
                if map.item_name(id).is_none() {
                    return Err(CrushError::Nameless(id));
                }
                if map.item_class(id).is_some() {
                    map.class_map.remove(&id);
                    had.push(id);
                }
            }
            if !had.is_empty() {
                map.rebuild_shadows()?;
            }
            Ok(had)
        })
    }

    /// Makes all shadow trees anew (`rebuild_roots_with_classes`). Classes that no device has and
    /// no rule takes are dropped.
    pub(crate) fn rebuild_shadows(&mut self) -> Result<()> {
        let old = self.class_buckets.clone();
        self.drop_dead_classes();
        for id in self.unused_shadows() {
            if let Some(place) = slot_of(id).and_then(|slot| self.buckets.get_mut(slot)) {
                *place = None;
                self.item_names.remove(&id);
                self.class_map.remove(&id);
            }
        }
        self.update_choose_args();
        self.class_buckets.clear();
        self.make_shadows(&old)
    }

    /// The shadow trees, but for what a real bucket contains (as only a damaged map has it).
    fn unused_shadows(&self) -> BTreeSet<ItemId> {
        let mut all: BTreeSet<ItemId> = self.buckets().map(|b| b.id).collect();
        for root in self.real_roots() {
            for id in self.subtree(root) {
                all.remove(&id);
            }
        }
        // What is left stands only below shadows; a real bucket there keeps all below it.
        let real: Vec<ItemId> = all.iter().copied().filter(|&id| !self.is_shadow(id)).collect();
        for id in real.into_iter().flat_map(|id| self.subtree(id)) {
            all.remove(&id);
        }
        all
    }

    fn drop_dead_classes(&mut self) {
        let taken: BTreeSet<ItemId> = self.rules().flat_map(|(_, r)| r.takes()).collect();
        let devices = self.class_map.iter().filter(|&(&id, _)| id >= 0);
        let mut alive: BTreeSet<i32> = devices.map(|(_, &class)| class).collect();
        let shadows = self.shadows().filter(|(_, _, shadow)| taken.contains(shadow));
        alive.extend(shadows.map(|(_, class, _)| class));
        self.class_names.retain(|class, _| alive.contains(class));
    }

    /// Copies each root for each class (`populate_classes`). `old` says which ids were used.
    pub(crate) fn make_shadows(&mut self, old: &Shadows) -> Result<()> {
        let reserved = old.values().flat_map(BTreeMap::values).copied().collect();
        let mut free = FreeIds { reserved, last: 0 };
        // The order decides which ids new shadows get: the lowest id first.
        let mut roots: Vec<ItemId> = self.real_roots().collect();
        roots.sort_unstable();
        let classes: Vec<(i32, String)> = self.class_names.clone().into_iter().collect();
        for root in roots {
            for (class, name) in &classes {
                Cloner { map: self, class: *class, class_name: name, old, free: &mut free }
                    .copy(root)?;
            }
        }
        Ok(())
    }
}

/// Ids for new shadows, the lowest first. While shadows are made no id becomes free, so that the search goes on
/// where it ended: there may be thousands of buckets.
struct FreeIds {
    /// Those that shadows had.
    reserved: BTreeSet<ItemId>,
    last: ItemId,
}

impl FreeIds {
    /// The next one that no bucket has and no shadow had.
    fn next(&mut self, mut is_taken: impl FnMut(ItemId) -> bool) -> ItemId {
        let from = self.last.saturating_sub(1);
        let free = |id: &ItemId| !is_taken(*id) && !self.reserved.contains(id);
        self.last = (ItemId::MIN..=from).rev().find(free).unwrap_or(ItemId::MIN);
        self.last
    }
}

/// Copying for one class.
struct Cloner<'a> {
    map: &'a mut CrushMap,
    class: i32,
    class_name: &'a str,
    old: &'a Shadows,
    free: &'a mut FreeIds,
}

impl Cloner<'_> {
    /// The copy of a bucket and all below it; made before is made only once
    /// (`device_class_clone`). Recursion is as deep as the hierarchy, which is bounded.
    fn copy(&mut self, original: ItemId) -> Result<ItemId> {
        if let Some(shadow) = self.map.shadow_of(original, self.class) {
            return Ok(shadow);
        }
        let source = self.map.existing(original)?.clone();
        let name = self.map.item_name(original);
        let name = name.ok_or(CrushError::NoSuchItem(original))?;
        let name = format!("{name}~{}", self.class_name);
        let mut items = Vec::new();
        // Where each copied item stands in the original.
        let mut places = Vec::new();
        for (pos, (item, weight)) in source.entries().enumerate() {
            if item < 0 {
                let copy = self.copy(item)?;
                items.push((copy, self.map.existing(copy)?.weight));
            } else if self.map.class_map.get(&item) == Some(&self.class) {
                items.push((item, weight));
            } else {
                continue;
            }
            places.push(pos);
        }
        let known = self.old.get(&original).and_then(|of| of.get(&self.class));
        let id = match known {
            Some(id) => *id,
            None => self.free.next(|id| self.map.bucket(id).is_some()),
        };
        let alg = match source.algorithm() {
            // The copies of equal buckets need not be equal.
            Algorithm::Uniform if items.windows(2).any(|w| w[0].1 != w[1].1) => Algorithm::Straw2,
            alg => alg,
        };
        let map = &mut *self.map;
        let id = map.place_bucket(Some(id), source.kind, alg, source.hash, &items)?;
        map.class_map.insert(id, self.class);
        map.item_names.insert(id, name);
        let of_original = map.class_buckets.entry(original).or_default();
        of_original.insert(self.class, id);
        self.copy_weight_sets(original, id, &items, &places);
        Ok(id)
    }

    fn copy_weight_sets(
        &mut self,
        original: ItemId,
        id: ItemId,
        items: &[(ItemId, u32)],
        places: &[usize],
    ) {
        for args in self.map.choose_args.values_mut() {
            let Some(of_original) = args.get(original) else {
                continue;
            };
            let mut weight_sets = Vec::new();
            for (position, set) in of_original.weight_sets.iter().enumerate() {
                let weight = |(&(item, own), &place): (&(ItemId, u32), &usize)| {
                    if item >= 0 {
                        return set.get(place).copied().unwrap_or(own);
                    }
                    let below = args.get(item).and_then(|arg| arg.weight_sets.get(position));
                    below.map_or(own, |set| set.iter().fold(0u32, |sum, &w| sum.saturating_add(w)))
                };
                weight_sets.push(items.iter().zip(places).map(weight).collect());
            }
            let ids = Vec::new();
            args.set(id, Some(ChooseArg { weight_sets, ids }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each new shadow takes an id: to look for it among all that are taken, each time, was quadratic.
    #[test]
    fn the_search_for_a_free_id_goes_on_where_it_ended() {
        let mut taken: BTreeSet<ItemId> = (-1000..0).filter(|id| id % 3 == 0).collect();
        let mut free = FreeIds { reserved: [-1, -5].into(), last: 0 };
        let mut looks = 0;
        let mut ids = Vec::new();
        for _ in 0..1000 {
            let id = free.next(|id| {
                looks += 1;
                taken.contains(&id)
            });
            assert!(taken.insert(id));
            ids.push(id);
        }
        assert_eq!(ids[..5], [-2, -4, -7, -8, -10], "the lowest ones, in order");
        assert!(looks < 2000, "{looks} looks");
    }
}
