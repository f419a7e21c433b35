//! Changing weights, and keeping all sums right.

use super::Result;
use crate::bucket::{Algorithm, Bucket, Weights};
use crate::error::CrushError;
use crate::location::Location;
use crate::map::{ChooseArg, ChooseArgs, CrushMap, ItemId};
use std::collections::{BTreeMap, BTreeSet};

impl CrushMap {
    /// Sets the weight of a device wherever it stands, and of all buckets above
    /// (`osd crush reweight`).
    ///
    /// # Errors
    /// When it stands nowhere or is a bucket, or a sum does not fit.
    pub fn reweight_item(&mut self, item: ItemId, weight: u32) -> Result<()> {
        if item < 0 {
            let name = self.item_name(item).unwrap_or("?").to_owned();
            return Err(CrushError::NotALeaf(name));
        }
        self.all_or_nothing(|map| match map.set_weight_everywhere(item, weight, true)? {
            0 => Err(CrushError::NotPlaced(item)),
            _ => Ok(()),
        })
    }

    /// Sets the weight of every device below a bucket (`osd crush reweight-subtree`). How many
    /// there are.
    ///
    /// # Errors
    /// When it is no bucket, or a sum does not fit.
    pub fn reweight_subtree(&mut self, root: ItemId, weight: u32) -> Result<usize> {
        self.all_or_nothing(|map| {
            map.existing(root)?;
            let (mut changed, mut holders) = (0, Vec::new());
            for id in map.subtree(root).into_iter().filter(|&id| id < 0) {
                let items = map.existing(id)?.items.clone();
                for item in items.into_iter().filter(|&item| item >= 0) {
                    map.set_entry(item, weight, id, true)?;
                    changed += 1;
                }
                holders.push(id);
            }
            // Once for all: there may be thousands of devices.
            map.pass_up(&holders)?;
            map.sync_weight_sets();
            map.rebuild_shadows()?;
            Ok(changed)
        })
    }

    /// Recalculates the weight of every bucket from the devices up (`osd crush reweight-all`).
    ///
    /// # Errors
    /// When a sum does not fit.
    pub fn reweight_all(&mut self) -> Result<()> {
        self.all_or_nothing(|map| {
            for id in map.bottom_up() {
                if !map.is_shadow(id) {
                    map.recalculate(id)?;
                }
            }
            map.sum_weight_sets(false);
            map.rebuild_shadows()
        })
    }

    /// Takes over the weights of the buckets in a bucket, whose own are right already.
    fn recalculate(&mut self, id: ItemId) -> Result<()> {
        let bucket = self.existing(id)?;
        let mut entries: Vec<(ItemId, u32)> = bucket.entries().collect();
        let of_buckets: Vec<u32> =
            entries.iter().filter_map(|&(item, _)| Some(self.bucket(item)?.weight)).collect();
        if let Weights::Uniform(_) = bucket.weights {
            // Where most items are buckets, all get their average.
            if of_buckets.len() * 2 > entries.len() {
                let sum = of_buckets.iter().try_fold(0u32, |sum, &w| sum.checked_add(w));
                let sum = sum.ok_or(CrushError::WeightOverflow)?;
                let average = sum / of_buckets.len() as u32;
                entries.iter_mut().for_each(|entry| entry.1 = average);
            }
        } else {
            for (item, weight) in &mut entries {
                if let Some(b) = self.bucket(*item) {
                    *weight = b.weight;
                }
            }
        }
        let (kind, alg, hash) = (bucket.kind, bucket.algorithm(), bucket.hash);
        let new = Bucket::new(id, kind, alg, hash, &entries, self.straw_version())
            .map_err(|why| CrushError::BucketRefuses { id, why })?;
        if let Some(bucket) = self.bucket_mut(id) {
            *bucket = new;
        }
        Ok(())
    }

    /// Sets an item's weight in the buckets that a location names. In how many it stands.
    pub(super) fn set_weight_in(
        &mut self,
        item: ItemId,
        weight: u32,
        loc: &Location,
        weight_sets: bool,
    ) -> Result<usize> {
        let names = loc.iter().filter_map(|(_, name)| self.item_id(name));
        let mut changed = 0;
        for bucket in names.collect::<Vec<_>>() {
            changed += usize::from(self.set_weight_in_bucket(item, weight, bucket, weight_sets)?);
        }
        Ok(changed)
    }

    /// Sets an item's weight wherever it stands. In how many buckets that is.
    pub(super) fn set_weight_everywhere(
        &mut self,
        item: ItemId,
        weight: u32,
        weight_sets: bool,
    ) -> Result<usize> {
        let mut changed = 0;
        for bucket in self.bucket_ids() {
            changed += usize::from(self.set_weight_in_bucket(item, weight, bucket, weight_sets)?);
        }
        Ok(changed)
    }

    /// Sets an item's weight in one bucket, with `weight_sets` in all its weight-sets too, and
    /// passes the sums up. Whether the item is there.
    pub(super) fn set_weight_in_bucket(
        &mut self,
        item: ItemId,
        weight: u32,
        bucket: ItemId,
        weight_sets: bool,
    ) -> Result<bool> {
        if !self.set_entry(item, weight, bucket, weight_sets)? {
            return Ok(false);
        }
        self.pass_up(&[bucket])?;
        self.sync_weight_sets();
        Ok(true)
    }

    /// The entries of these buckets have changed: what they weigh now is set in the buckets around them, and so on up.
    /// Each bucket is gone to once, after all that changed below it: one that stands in several others, which stand in
    /// several others, has very many ways up.
    fn pass_up(&mut self, buckets: &[ItemId]) -> Result<()> {
        let weight = |&id: &ItemId| Ok((id, self.existing(id)?.weight));
        let mut changed = buckets.iter().map(weight).collect::<Result<BTreeMap<_, _>>>()?;
        for id in self.bottom_up() {
            let items = self.existing(id)?.items.iter();
            let below: BTreeMap<ItemId, u32> =
                items.filter_map(|item| Some((*item, *changed.get(item)?))).collect();
            for (&item, &weight) in &below {
                self.set_entry(item, weight, id, false)?;
            }
            if !below.is_empty() {
                changed.insert(id, self.existing(id)?.weight);
            }
        }
        Ok(())
    }

    /// Sets an item's weight in one bucket and no other. Whether the item is there.
    fn set_entry(
        &mut self,
        item: ItemId,
        weight: u32,
        bucket: ItemId,
        weight_sets: bool,
    ) -> Result<bool> {
        let version = self.straw_version();
        let Some(b) = self.bucket_mut(bucket) else {
            return Ok(false);
        };
        let places: Vec<usize> =
            (0..b.items.len()).filter(|&pos| b.items.get(pos) == Some(&item)).collect();
        for &pos in &places {
            b.set_weight(pos, weight, version).map_err(|_| CrushError::WeightOverflow)?;
        }
        let uniform = b.algorithm() == Algorithm::Uniform;
        if places.is_empty() {
            return Ok(false);
        }
        if weight_sets {
            for args in self.choose_args.values_mut() {
                let sets = args.get_mut(bucket).map(|arg| &mut arg.weight_sets);
                for set in sets.into_iter().flatten() {
                    let hit = |pos: &usize| uniform || places.contains(pos);
                    let weights = set.iter_mut().enumerate();
                    weights.filter(|(pos, _)| hit(pos)).for_each(|(_, w)| *w = weight);
                }
            }
        }
        Ok(true)
    }

    /// All buckets, those inside before those around them.
    pub(crate) fn bottom_up(&self) -> Vec<ItemId> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for root in self.bucket_ids() {
            // The second visit of a bucket on the stack comes after all that is below it.
            let mut stack = vec![(root, false)];
            while let Some((id, done)) = stack.pop() {
                if done {
                    order.push(id);
                } else if seen.insert(id) {
                    stack.push((id, true));
                    let items = self.bucket(id).map(Bucket::items).unwrap_or_default();
                    stack.extend(items.iter().filter(|&&i| i < 0).map(|&i| (i, false)));
                }
            }
        }
        order
    }

    /// After a weight was changed: makes weight-sets sum up, and gives one of its own weights to
    /// each bucket without.
    pub(super) fn sync_weight_sets(&mut self) {
        self.sum_weight_sets(true);
    }

    /// Makes every weight-set sum up: each bucket's sum becomes its weight in the buckets it
    /// stands in. With `create`, buckets without a weight-set get one of their own weights.
    fn sum_weight_sets(&mut self, create: bool) {
        if self.choose_args.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.choose_args);
        let order = self.bottom_up();
        for args in all.values_mut() {
            let in_use = args.iter().any(|(_, arg)| !arg.weight_sets.is_empty());
            if in_use {
                self.sum_weight_set(args, &order, create);
            }
        }
        self.choose_args = all;
    }

    fn sum_weight_set(&self, args: &mut ChooseArgs, order: &[ItemId], create: bool) {
        let positions = args.positions();
        let mut sums: BTreeMap<ItemId, Vec<u32>> = BTreeMap::new();
        for &id in order {
            let Some(b) = self.bucket(id) else { continue };
            if b.algorithm() != Algorithm::Straw2 {
                continue;
            }
            if create && args.get(id).is_none_or(|arg| arg.weight_sets.is_empty()) {
                let own: Vec<u32> = b.entries().map(|(_, weight)| weight).collect();
                let mut arg = args.get(id).cloned().unwrap_or_default();
                arg.weight_sets = vec![own; positions];
                args.set(id, Some(arg));
            }
            let Some(arg) = args.get_mut(id) else { continue };
            for (pos, item) in b.items.iter().enumerate() {
                let Some(sum) = sums.get(item).filter(|s| s.len() == arg.weight_sets.len()) else {
                    continue;
                };
                for (set, &sum) in arg.weight_sets.iter_mut().zip(sum) {
                    if let Some(weight) = set.get_mut(pos) {
                        *weight = sum;
                    }
                }
            }
            let sum = |set: &Vec<u32>| set.iter().fold(0u32, |sum, &w| sum.saturating_add(w));
            sums.insert(id, arg.weight_sets.iter().map(sum).collect());
        }
    }

    /// Creates a weight-set for a pool, or with [`crate::COMPAT_CHOOSE_ARGS`] for all pools
    /// without one, that starts with the real weights (`osd crush weight-set create`).
    ///
    /// # Errors
    /// When there is one already.
    pub fn create_weight_set(&mut self, id: i64, positions: usize) -> Result<()> {
        if self.choose_args.contains_key(&id) {
            return Err(CrushError::WeightSetExists(id));
        }
        let mut args = ChooseArgs::default();
        for b in self.buckets().filter(|b| b.algorithm() == Algorithm::Straw2) {
            let own: Vec<u32> = b.entries().map(|(_, weight)| weight).collect();
            let weight_sets = vec![own; positions.max(1)];
            let ids = Vec::new();
            args.set(b.id, Some(ChooseArg { weight_sets, ids }));
        }
        self.choose_args.insert(id, args);
        Ok(())
    }

    /// Removes a weight-set (`osd crush weight-set rm`). Whether there was one.
    pub fn remove_weight_set(&mut self, id: i64) -> bool {
        self.choose_args.remove(&id).is_some()
    }

    /// Sets an item's weights, one for each position, in a weight-set
    /// (`osd crush weight-set reweight`).
    ///
    /// # Errors
    /// When there is no such weight-set, the number of weights is not that of its positions, or
    /// the item stands nowhere.
    pub fn reweight_in_weight_set(&mut self, id: i64, item: ItemId, weights: &[u32]) -> Result<()> {
        self.all_or_nothing(|map| {
            let holders: Vec<(ItemId, Vec<usize>)> = map
                .buckets()
                .map(|b| {
                    let places = b.items.iter().enumerate().filter(|&(_, &i)| i == item);
                    (b.id, places.map(|(pos, _)| pos).collect())
                })
                .collect();
            let args = map.choose_args.get_mut(&id);
            let args = args.ok_or(CrushError::NotPlaced(item))?;
            let mut changed = false;
            for (bucket, places) in holders {
                let Some(arg) = args.get_mut(bucket) else {
                    continue;
                };
                if arg.weight_sets.len() != weights.len() {
                    continue;
                }
                for (set, &weight) in arg.weight_sets.iter_mut().zip(weights) {
                    for place in &places {
                        if let Some(w) = set.get_mut(*place) {
                            *w = weight;
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return Err(CrushError::NotPlaced(item));
            }
            map.sync_weight_sets();
            Ok(())
        })
    }
}
