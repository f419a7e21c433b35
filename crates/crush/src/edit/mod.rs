//! Changing a map, with the semantics of Ceph's commands (`CrushWrapper.cc`).
//!
//! Every public edit is made whole or not at all: after an error the map is as it was. Weights are
//! 16.16 integers; where Ceph goes through floats on the way (moving a bucket above 256.0), the
//! integer is kept here, so that sums stay exact.

mod classes;
mod fresh;
mod items;
mod rules;
mod weights;

pub use rules::RuleMode;

use crate::bucket::{Algorithm, Bucket};
use crate::error::CrushError;
use crate::location::{Location, is_valid_name};
use crate::map::{ChooseArg, CrushMap, ItemId, MAX_BUCKETS, MAX_DEPTH, WEIGHT_ONE, id_of, slot_of};

type Result<T> = std::result::Result<T, CrushError>;

/// The weight of a command line (`1.0`) as 16.16, rounded down as Ceph does it: in single
/// precision.
///
/// # Errors
/// When it is negative, not a number, or 32768 or more.
pub fn weight_from_f64(weight: f64) -> Result<u32> {
    let scaled = weight as f32 * WEIGHT_ONE as f32;
    if scaled >= 0.0 && scaled < i32::MAX as f32 {
        Ok(scaled as u32)
    } else {
        Err(CrushError::WeightOverflow)
    }
}

impl CrushMap {
    /// Runs an edit; puts the map back as it was when it fails.
    fn all_or_nothing<T>(&mut self, edit: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.clone();
        let result = edit(self).and_then(|value| match self.depth() {
            Some(depth) if depth <= MAX_DEPTH => self.check_walk_since(&before).map(|()| value),
            _ => Err(CrushError::TooDeep),
        });
        if result.is_err() {
            *self = before;
        }
        result
    }

    /// That an edit makes no more ways to an item than there may be. A map that has more stays editable.
    fn check_walk_since(&self, before: &Self) -> Result<()> {
        let average = |map: &Self| map.walk_len() as f64 / map.item_count() as f64;
        self.check_walk()
            .or_else(|e| if average(self) <= average(before) { Ok(()) } else { Err(e) })
    }

    fn straw_version(&self) -> u8 {
        self.tunables.straw_calc_version
    }

    /// The algorithm new buckets get.
    fn default_algorithm(&self) -> Result<Algorithm> {
        let allowed = |alg: &Algorithm| self.tunables.allowed_bucket_algs >> alg.wire() & 1 == 1;
        let mut algs = Algorithm::PREFERRED.into_iter();
        algs.find(allowed).ok_or(CrushError::NoAlgorithm)
    }

    fn existing(&self, id: ItemId) -> Result<&Bucket> {
        let missing = || match slot_of(id) {
            None => CrushError::NotABucket(id),
            Some(_) => CrushError::NoSuchItem(id),
        };
        self.bucket(id).ok_or_else(missing)
    }

    /// Names an item.
    pub(crate) fn set_item_name(&mut self, id: ItemId, name: &str) -> Result<()> {
        if !is_valid_name(name) {
            return Err(CrushError::BadName(name.to_owned()));
        }
        self.item_names.insert(id, name.to_owned());
        Ok(())
    }

    /// Names a type.
    pub(crate) fn set_type_name(&mut self, kind: i32, name: &str) {
        self.type_names.insert(kind, name.to_owned());
    }

    /// Puts a bucket into the lowest free slot, or into that of `id` (`crush_add_bucket`).
    pub(crate) fn place_bucket(
        &mut self,
        id: Option<ItemId>,
        kind: u16,
        alg: Algorithm,
        hash: u8,
        items: &[(ItemId, u32)],
    ) -> Result<ItemId> {
        let free = || {
            let mut slots = self.buckets.iter();
            let slot = slots.position(Option::is_none);
            id_of(slot.unwrap_or(self.buckets.len()))
        };
        let id = id.unwrap_or_else(free);
        let slot = slot_of(id).ok_or(CrushError::NotABucket(id))?;
        if slot >= MAX_BUCKETS {
            return Err(CrushError::BucketIdRange(id));
        }
        if self.bucket(id).is_some() {
            return Err(CrushError::BucketExists(id));
        }
        let bucket = Bucket::new(id, kind, alg, hash, items, self.straw_version())
            .map_err(|why| CrushError::BucketRefuses { id, why })?;
        // Ceph doubles the number of slots, from 8.
        let mut slots = self.buckets.len();
        while slots <= slot {
            slots = (slots * 2).max(8);
        }
        self.buckets.resize(slots, None);
        self.buckets[slot] = Some(bucket);
        Ok(id)
    }

    /// Adds a bucket with items, and their weights to each weight-set (`CrushWrapper::add_bucket`).
    fn add_bucket_of(&mut self, kind: u16, items: &[(ItemId, u32)]) -> Result<ItemId> {
        let alg = self.default_algorithm()?;
        let id = self.place_bucket(None, kind, alg, 0, items)?;
        if !items.is_empty() {
            for args in self.choose_args.values_mut() {
                let weights: Vec<u32> = items.iter().map(|&(_, w)| w).collect();
                let arg =
                    ChooseArg { weight_sets: vec![weights; args.positions()], ids: Vec::new() };
                args.set(id, Some(arg));
            }
        }
        Ok(id)
    }

    /// Adds an empty bucket, at a place if `loc` names one (`osd crush add-bucket`).
    ///
    /// # Errors
    /// When the name is taken or not a name, the type does not exist or is that of devices, or the
    /// location cannot take it.
    pub fn add_bucket(&mut self, name: &str, kind: &str, loc: &Location) -> Result<ItemId> {
        self.all_or_nothing(|map| {
            let unknown = || CrushError::NoSuchType(kind.to_owned());
            let number = map.type_id(kind).ok_or_else(unknown)?;
            let number = u16::try_from(number).ok().filter(|&n| n > 0);
            if let Some(id) = map.item_id(name) {
                let name = name.to_owned();
                return Err(CrushError::NameTaken { name, id });
            }
            let id = map.add_bucket_of(number.ok_or_else(unknown)?, &[])?;
            map.set_item_name(id, name)?;
            if !loc.is_empty() {
                map.move_detached(id, loc)?;
            }
            Ok(id)
        })
    }

    /// Lets all straw buckets choose by straw2 (`osd crush set-all-straw-buckets-to-straw2`).
    pub fn straw_buckets_to_straw2(&mut self) {
        self.buckets.iter_mut().flatten().for_each(Bucket::straw_to_straw2);
    }

    /// Renames a bucket (`osd crush rename-bucket`). Its shadows are renamed with it.
    ///
    /// # Errors
    /// When there is no such bucket, or the new name is taken or not a name.
    pub fn rename_bucket(&mut self, src: &str, dst: &str) -> Result<()> {
        let taken = self.item_id(dst).is_some();
        let id = match self.item_id(src) {
            Some(_) if taken => return Err(CrushError::RenameTaken(dst.to_owned())),
            Some(_) if !is_valid_name(dst) => {
                return Err(CrushError::RenameBadName(dst.to_owned()));
            }
            Some(id) => id,
            None if taken => {
                let (src, dst) = (src.to_owned(), dst.to_owned());
                return Err(CrushError::RenameDone { src, dst });
            }
            None => return Err(CrushError::RenameMissing(src.to_owned())),
        };
        if id >= 0 {
            let name = src.to_owned();
            return Err(CrushError::RenameDevice { name, id });
        }
        self.all_or_nothing(|map| {
            map.set_item_name(id, dst)?;
            map.rebuild_shadows()
        })
    }
}
