//! Placing, moving and removing items.

use super::Result;
use crate::bucket::Bucket;
use crate::error::CrushError;
use crate::location::{Location, is_valid_name};
use crate::map::{CrushMap, ItemId, slot_of};

impl CrushMap {
    /// Places a device, with its weight, creating the buckets of the location that do not exist
    /// (`insert_item`; `osd crush add` of a device that is not there yet). One that stands
    /// elsewhere too then stands in both places.
    ///
    /// The item is put below the lowest level of the location that exists; what the location says
    /// of higher levels is not looked at.
    ///
    /// # Errors
    /// When a name is taken or not a name, the weight does not fit, the location names a bucket of
    /// another type or a device, or nothing in it takes the item.
    pub fn insert_item(
        &mut self,
        item: ItemId,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<()> {
        self.all_or_nothing(|map| map.insert(item, weight, name, loc, true))
    }

    fn insert(
        &mut self,
        item: ItemId,
        weight: u32,
        name: &str,
        loc: &Location,
        set_weight_sets: bool,
    ) -> Result<()> {
        check_names(name, loc)?;
        if i32::try_from(weight).is_err() {
            return Err(CrushError::WeightOverflow);
        }
        match self.item_id(name) {
            Some(id) if id != item => {
                let name = name.to_owned();
                return Err(CrushError::NameTaken { name, id });
            }
            Some(_) => {}
            None => self.set_item_name(item, name)?,
        }
        self.attach(item, loc)?;
        if self.set_weight_in(item, weight, loc, item >= 0 && set_weight_sets)? == 0 {
            return Err(CrushError::NoPlace(item));
        }
        if item >= 0 {
            self.max_devices = self.max_devices.max(item.saturating_add(1));
        }
        self.rebuild_shadows()
    }

    /// Adds an item, without weight, to the lowest bucket of the location that exists, with new
    /// buckets between them for the levels below.
    fn attach(&mut self, item: ItemId, loc: &Location) -> Result<()> {
        let levels: Vec<(i32, String)> = self
            .type_names
            .iter()
            .filter(|&(&kind, _)| kind != 0)
            .filter_map(|(&kind, name)| Some((kind, loc.get(name)?.to_owned())))
            .collect();
        let mut current = item;
        for (kind, name) in levels {
            let Some(id) = self.item_id(&name) else {
                let unknown = |_| CrushError::NoSuchType(kind.to_string());
                let kind = u16::try_from(kind).map_err(unknown)?;
                let bucket = self.add_bucket_of(kind, &[(current, 0)])?;
                self.set_item_name(bucket, &name)?;
                current = bucket;
                continue;
            };
            let existing = self.existing(id)?;
            if self.subtree_contains(id, current) {
                let (item, below) = (current, id);
                return Err(CrushError::AlreadyBelow { item, below });
            }
            if i32::from(existing.kind) != kind {
                let type_name = |kind| self.type_name(kind).unwrap_or("?").to_owned();
                return Err(CrushError::WrongType {
                    actual: type_name(i32::from(existing.kind)),
                    wanted: type_name(kind),
                    name,
                });
            }
            if self.subtree_contains(current, id) {
                let (outer, inner) = (current, id);
                return Err(CrushError::Loop { outer, inner });
            }
            return self.bucket_add(id, current, 0);
        }
        Ok(())
    }

    /// Appends an item to a bucket and to its weight-sets.
    fn bucket_add(&mut self, bucket: ItemId, item: ItemId, weight: u32) -> Result<()> {
        let version = self.straw_version();
        let b = self.bucket_mut(bucket);
        b.ok_or(CrushError::NoSuchItem(bucket))?
            .add_item(item, weight, version)
            .map_err(|why| CrushError::BucketRefuses { id: bucket, why })?;
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(bucket) {
                arg.weight_sets.iter_mut().for_each(|set| set.push(weight));
                if !arg.ids.is_empty() {
                    arg.ids.push(item);
                }
            }
        }
        Ok(())
    }

    /// Takes the item at `pos` out of a bucket and out of its weight-sets.
    fn bucket_remove(&mut self, bucket: ItemId, pos: usize) -> Result<()> {
        let version = self.straw_version();
        let b = self.bucket_mut(bucket);
        b.ok_or(CrushError::NoSuchItem(bucket))?
            .remove_at(pos, version)
            .map_err(|why| CrushError::BucketRefuses { id: bucket, why })?;
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(bucket) {
                for set in arg.weight_sets.iter_mut().filter(|set| pos < set.len()) {
                    set.remove(pos);
                }
                if pos < arg.ids.len() {
                    arg.ids.remove(pos);
                }
            }
        }
        Ok(())
    }

    /// Takes all occurrences of an item out of a bucket. Whether there was one.
    fn unlink(&mut self, item: ItemId, bucket: ItemId) -> Result<bool> {
        let mut found = false;
        while let Some(pos) = self.bucket(bucket).and_then(|b| b.position(item)) {
            self.set_weight_in_bucket(item, 0, bucket, true)?;
            self.bucket_remove(bucket, pos)?;
            found = true;
        }
        Ok(found)
    }

    /// Moves a bucket to another place (`osd crush move`).
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`]; also when the item is a device or does not exist.
    pub fn move_bucket(&mut self, id: ItemId, loc: &Location) -> Result<()> {
        self.all_or_nothing(|map| {
            map.existing(id)?;
            map.move_detached(id, loc)
        })
    }

    /// Takes a bucket out of where it stands, if anywhere, and puts it at `loc`.
    pub(super) fn move_detached(&mut self, id: ItemId, loc: &Location) -> Result<()> {
        let weight = self.existing(id)?.weight;
        let name = self.item_name(id).ok_or(CrushError::NoSuchItem(id))?;
        let name = name.to_owned();
        if let Some(parent) = self.parent(id).map(Bucket::id) {
            self.unlink(id, parent)?;
        }
        self.insert(id, weight, &name, loc, false)
    }

    /// Lets a bucket stand in one more place (`osd crush link`).
    ///
    /// # Errors
    /// As [`CrushMap::move_bucket`].
    pub fn link_bucket(&mut self, id: ItemId, loc: &Location) -> Result<()> {
        self.all_or_nothing(|map| {
            let weight = map.existing(id)?.weight;
            let name = map.item_name(id).ok_or(CrushError::NoSuchItem(id))?;
            let name = name.to_owned();
            map.insert(id, weight, &name, loc, true)
        })
    }

    /// Exchanges what two buckets contain, and their names: each id then stands where it stood,
    /// as the other one (`osd crush swap-bucket`).
    ///
    /// # Errors
    /// When one is no bucket, or contains the other.
    pub fn swap_buckets(&mut self, src: ItemId, dst: ItemId) -> Result<()> {
        self.all_or_nothing(|map| {
            let (a, b) = (map.existing(src)?.clone(), map.existing(dst)?.clone());
            let above = |low: ItemId, high| map.ancestors(low).any(|b| b.id == high);
            if src == dst || above(src, dst) || above(dst, src) {
                return Err(CrushError::Nested(src, dst));
            }
            map.set_weight_everywhere(src, b.weight, true)?;
            map.set_weight_everywhere(dst, a.weight, true)?;
            for bucket in [src, dst] {
                while map.bucket(bucket).is_some_and(|b| !b.items.is_empty()) {
                    map.bucket_remove(bucket, 0)?;
                }
            }
            for (item, weight) in b.entries() {
                map.bucket_add(src, item, weight)?;
            }
            // Ceph keeps these in a sorted map on the way.
            let mut entries: Vec<_> = a.entries().collect();
            entries.sort_by_key(|&(item, _)| item);
            for (item, weight) in entries {
                map.bucket_add(dst, item, weight)?;
            }
            let (a, b) = (map.item_names.remove(&src), map.item_names.remove(&dst));
            map.item_names.extend(b.map(|name| (src, name)));
            map.item_names.extend(a.map(|name| (dst, name)));
            map.rebuild_shadows()
        })
    }

    /// Makes sure a device is at a place: leaves it and its weight when it is there, moves it with
    /// its weight when it is elsewhere, else adds it with `weight`
    /// (`osd crush create-or-move`, also what a booting OSD asks for). Whether anything changed.
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`].
    pub fn create_or_move_item(
        &mut self,
        item: ItemId,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<bool> {
        self.all_or_nothing(|map| {
            check_names(name, loc)?;
            if map.weight_at(item, loc).is_some() {
                return Ok(false);
            }
            let mut weight = weight;
            if map.is_placed(item) {
                weight = map.item_weight(item).unwrap_or(weight);
                map.remove(item, true)?;
            }
            map.insert(item, weight, name, loc, item >= 0)?;
            Ok(true)
        })
    }

    /// Makes sure a device is at a place with a weight and a name (`osd crush set` with a
    /// location). Whether anything changed.
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`].
    pub fn update_item(
        &mut self,
        item: ItemId,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<bool> {
        self.all_or_nothing(|map| {
            check_names(name, loc)?;
            let Some(old) = map.weight_at(item, loc) else {
                if map.item_name(item).is_some() {
                    map.remove(item, true)?;
                }
                map.insert(item, weight, name, loc, true)?;
                return Ok(true);
            };
            let mut changed = false;
            if old != weight {
                map.set_weight_in(item, weight, loc, true)?;
                map.rebuild_shadows()?;
                changed = true;
            }
            if map.item_name(item) != Some(name) {
                map.set_item_name(item, name)?;
                changed = true;
            }
            Ok(changed)
        })
    }

    /// Removes an item from wherever it stands (`osd crush rm`). With `unlink_only` a bucket
    /// itself stays (`osd crush unlink`).
    ///
    /// # Errors
    /// When the item is nowhere, or is a bucket that is not empty or is taken by a rule.
    pub fn remove_item(&mut self, item: ItemId, unlink_only: bool) -> Result<()> {
        self.all_or_nothing(|map| map.remove(item, unlink_only))
    }

    fn remove(&mut self, item: ItemId, unlink_only: bool) -> Result<()> {
        if item < 0 && !unlink_only {
            self.check_removable(item)?;
        }
        let mut found = false;
        for id in self.bucket_ids() {
            found |= self.unlink(item, id)?;
        }
        found |= self.remove_last_instance(item, unlink_only)?;
        if found { Ok(()) } else { Err(CrushError::NotPlaced(item)) }
    }

    /// Removes an item from below one bucket only (`osd crush rm NAME ANCESTOR`).
    ///
    /// # Errors
    /// As [`CrushMap::remove_item`]; also when `ancestor` is no bucket.
    pub fn remove_item_under(
        &mut self,
        item: ItemId,
        ancestor: ItemId,
        unlink_only: bool,
    ) -> Result<()> {
        self.all_or_nothing(|map| {
            map.existing(ancestor)?;
            if !unlink_only && map.is_in_use(item) {
                return Err(CrushError::InUse(item));
            }
            let mut found = false;
            for id in map.subtree(ancestor) {
                found |= id < 0 && map.unlink(item, id)?;
            }
            if !found {
                return Err(CrushError::NotPlaced(item));
            }
            if item < 0 && !unlink_only {
                map.check_removable(item)?;
            }
            map.remove_last_instance(item, unlink_only)?;
            Ok(())
        })
    }

    /// Whether a bucket is empty and unused.
    fn check_removable(&self, id: ItemId) -> Result<()> {
        let items = self.existing(id)?.items.len();
        if items > 0 {
            return Err(CrushError::NotEmpty { id, items });
        }
        if self.is_in_use(id) {
            return Err(CrushError::InUse(id));
        }
        Ok(())
    }

    /// Forgets an item that stands nowhere any more: a device altogether (its class only when
    /// it is really removed), a bucket unless it is only unlinked. Whether it stands nowhere.
    fn remove_last_instance(&mut self, item: ItemId, unlink_only: bool) -> Result<bool> {
        if self.is_placed(item) || (item < 0 && self.is_in_use(item)) {
            return Ok(false);
        }
        let known = self.item_names.contains_key(&item) || self.bucket(item).is_some();
        if let Some(slot) = slot_of(item).filter(|_| !unlink_only) {
            if let Some(place) = self.buckets.get_mut(slot) {
                *place = None;
            }
            self.class_buckets.remove(&item);
            self.class_map.remove(&item);
            self.update_choose_args();
        }
        if item >= 0 || !unlink_only {
            self.item_names.remove(&item);
        }
        if item >= 0 && !unlink_only {
            self.class_map.remove(&item);
        }
        self.rebuild_shadows()?;
        Ok(known)
    }

    /// The ids of all buckets, to edit while going over them.
    pub(super) fn bucket_ids(&self) -> Vec<ItemId> {
        self.buckets().map(Bucket::id).collect()
    }
}

fn check_names(name: &str, loc: &Location) -> Result<()> {
    let words = loc.iter().flat_map(|(kind, name)| [kind, name]);
    match std::iter::once(name).chain(words).find(|n| !is_valid_name(n)) {
        Some(bad) => Err(CrushError::BadName(bad.to_owned())),
        None => Ok(()),
    }
}
