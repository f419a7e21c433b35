//! Looking things up in a map: names, classes, who contains whom.

use crate::bucket::Bucket;
use crate::error::CrushError;
use crate::location::{Location, is_valid_name};
use crate::map::{CrushMap, ItemId, MAX_WAYS, Op, Rule};
use std::collections::{BTreeMap, BTreeSet};

fn name_in(names: &BTreeMap<i32, String>, id: i32) -> Option<&str> {
    names.get(&id).map(String::as_str)
}

/// The last id with a name, as Ceph's reverse maps have it when a name stands twice.
fn id_in(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    let found = names.iter().rev().find(|(_, n)| n.as_str() == name);
    found.map(|(&id, _)| id)
}

fn pairs(names: &BTreeMap<i32, String>) -> impl Iterator<Item = (i32, &str)> {
    names.iter().map(|(&id, name)| (id, name.as_str()))
}

/// Names.
impl CrushMap {
    /// The name of a device or bucket.
    pub fn item_name(&self, id: ItemId) -> Option<&str> {
        name_in(&self.item_names, id)
    }

    /// The device or bucket of this name.
    pub fn item_id(&self, name: &str) -> Option<ItemId> {
        id_in(&self.item_names, name)
    }

    /// All named items, by id.
    pub fn item_names(&self) -> impl Iterator<Item = (ItemId, &str)> {
        pairs(&self.item_names)
    }

    /// The name of a type of bucket; 0 is that of devices.
    pub fn type_name(&self, kind: i32) -> Option<&str> {
        name_in(&self.type_names, kind)
    }

    /// The type of this name.
    pub fn type_id(&self, name: &str) -> Option<i32> {
        id_in(&self.type_names, name)
    }

    /// All types, by number.
    pub fn type_names(&self) -> impl Iterator<Item = (i32, &str)> {
        pairs(&self.type_names)
    }

    /// The name of a rule.
    pub fn rule_name(&self, rule: u32) -> Option<&str> {
        name_in(&self.rule_names, i32::try_from(rule).ok()?)
    }

    /// The rule of this name.
    pub fn rule_id(&self, name: &str) -> Option<u32> {
        u32::try_from(id_in(&self.rule_names, name)?).ok()
    }

    /// The name of a device class.
    pub fn class_name(&self, class: i32) -> Option<&str> {
        name_in(&self.class_names, class)
    }

    /// The device class of this name.
    pub fn class_id(&self, name: &str) -> Option<i32> {
        id_in(&self.class_names, name)
    }

    /// All device classes, by number.
    pub fn class_names(&self) -> impl Iterator<Item = (i32, &str)> {
        pairs(&self.class_names)
    }

    /// The class of a device or shadow bucket.
    pub fn item_class(&self, id: ItemId) -> Option<&str> {
        self.class_name(*self.class_map.get(&id)?)
    }

    /// The devices of a class, ascending.
    pub fn devices_of_class(&self, class: i32) -> impl Iterator<Item = ItemId> {
        let of_class = move |&(&id, &c): &(&ItemId, &i32)| id >= 0 && c == class;
        self.class_map.iter().filter(of_class).map(|(&id, _)| id)
    }

    /// The shadow of a bucket for a class: the same hierarchy with only that class's devices.
    pub fn shadow_of(&self, bucket: ItemId, class: i32) -> Option<ItemId> {
        self.class_buckets.get(&bucket)?.get(&class).copied()
    }

    /// All shadows: original bucket, class, shadow bucket.
    pub fn shadows(&self) -> impl Iterator<Item = (ItemId, i32, ItemId)> {
        self.class_buckets
            .iter()
            .flat_map(|(&b, of)| of.iter().map(move |(&class, &shadow)| (b, class, shadow)))
    }

    /// Whether an item is a shadow bucket, which its name tells.
    pub fn is_shadow(&self, id: ItemId) -> bool {
        self.item_name(id).is_some_and(|name| !is_valid_name(name))
    }

    /// The bucket and class of a shadow; for any other named item itself and `None`
    /// (`split_id_class`). `None` when the item has no name or is a shadow of nothing.
    pub fn split_shadow(&self, id: ItemId) -> Option<(ItemId, Option<i32>)> {
        match self.item_name(id)?.split_once('~') {
            None => Some((id, None)),
            Some((name, class)) => Some((self.item_id(name)?, Some(self.class_id(class)?))),
        }
    }
}

/// Who contains whom.
impl CrushMap {
    /// The bucket an item stands in: the first that is no shadow (`get_immediate_parent`).
    pub fn parent(&self, id: ItemId) -> Option<&Bucket> {
        self.buckets().find(|b| b.position(id).is_some() && !self.is_shadow(b.id))
    }

    /// The bucket that each item stands in, as [`CrushMap::parent`] has it. For many items: it looks at everything
    /// once.
    pub fn parents(&self) -> BTreeMap<ItemId, &Bucket> {
        let mut parents = BTreeMap::new();
        for bucket in self.buckets().filter(|b| !self.is_shadow(b.id)) {
            for item in &bucket.items {
                parents.entry(*item).or_insert(bucket);
            }
        }
        parents
    }

    /// Whether any bucket, shadows too, has this item.
    pub fn is_placed(&self, id: ItemId) -> bool {
        self.buckets().any(|b| b.position(id).is_some())
    }

    /// The devices that stand in buckets.
    pub fn placed_devices(&self) -> BTreeSet<ItemId> {
        self.buckets().flat_map(|b| b.items()).copied().filter(|&id| id >= 0).collect()
    }

    /// The buckets above an item, the nearest first.
    pub fn ancestors(&self, id: ItemId) -> impl Iterator<Item = &Bucket> {
        std::iter::successors(self.parent(id), |b| self.parent(b.id))
    }

    /// Type and name of each bucket above an item, the nearest first
    /// (`get_full_location_ordered`).
    pub fn location_path(&self, id: ItemId) -> Vec<(&str, &str)> {
        let name = |b: &Bucket| {
            let kind = self.type_name(i32::from(b.kind)).unwrap_or_default();
            (kind, self.item_name(b.id).unwrap_or_default())
        };
        self.ancestors(id).map(name).collect()
    }

    /// Where an item stands (`get_full_location`).
    pub fn location(&self, id: ItemId) -> Location {
        self.location_path(id)
            .into_iter()
            .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
            .collect()
    }

    /// The nearest bucket of a type above an item (`get_parent_of_type` without a rule).
    pub fn ancestor_of_type(&self, id: ItemId, kind: u16) -> Option<ItemId> {
        self.ancestors(id).find(|b| b.kind == kind).map(Bucket::id)
    }

    /// Buckets that stand in no other bucket, shadows too, from -1 downwards.
    pub fn roots(&self) -> impl Iterator<Item = ItemId> {
        let children: BTreeSet<ItemId> = self.buckets().flat_map(|b| &b.items).copied().collect();
        self.buckets().map(Bucket::id).filter(move |id| !children.contains(id))
    }

    /// [`CrushMap::roots`] without shadows.
    pub fn real_roots(&self) -> impl Iterator<Item = ItemId> {
        self.roots().filter(|&id| !self.is_shadow(id))
    }

    /// How many items a walk from the roots down meets, shadows too: each as often as there are ways to it. Where
    /// buckets stand in several others, which stand in several others, it doubles with each level.
    pub fn walk_len(&self) -> u64 {
        let mut below: BTreeMap<ItemId, u64> = BTreeMap::new();
        for id in self.bottom_up() {
            let items = self.bucket(id).map(Bucket::items).unwrap_or_default().iter();
            let met = items.map(|item| below.get(item).copied().unwrap_or(1));
            let met = met.fold(1, u64::saturating_add);
            below.insert(id, met);
        }
        self.roots().filter_map(|root| below.get(&root).copied()).fold(0, u64::saturating_add)
    }

    /// The buckets, and the devices in them.
    pub(crate) fn item_count(&self) -> u64 {
        self.buckets().count().saturating_add(self.placed_devices().len()) as u64
    }

    /// That walks are bounded: there are at most [`MAX_WAYS`] ways to an item, on average.
    ///
    /// # Errors
    /// When there are more.
    pub fn check_walk(&self) -> Result<(), CrushError> {
        match (self.walk_len(), self.item_count()) {
            (ways, items) if ways <= items.saturating_mul(MAX_WAYS) => Ok(()),
            (ways, items) => Err(CrushError::TooManyWays { ways, items }),
        }
    }

    /// An item and all below it, each once, parents before their children.
    pub fn subtree(&self, root: ItemId) -> Vec<ItemId> {
        let mut seen = BTreeSet::from([root]);
        let mut found = vec![root];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            let items = self.bucket(id).map(Bucket::items).unwrap_or_default();
            found.extend(items.iter().filter(|&&item| seen.insert(item)));
        }
        found
    }

    /// Whether `item` is `root` or stands below it.
    pub fn subtree_contains(&self, root: ItemId, item: ItemId) -> bool {
        root == item || (root < 0 && self.subtree(root).contains(&item))
    }

    /// The devices below an item, or the device itself.
    pub fn devices_below(&self, root: ItemId) -> BTreeSet<ItemId> {
        self.subtree(root).into_iter().filter(|&i| i >= 0).collect()
    }

    /// The items of a type at or below `root`, not looking below those, without shadows
    /// (`get_children_of_type`); type 0 gives devices.
    pub fn subtree_of_type(&self, root: ItemId, kind: u16) -> Vec<ItemId> {
        let mut found = Vec::new();
        let mut rest = vec![root];
        let mut seen = BTreeSet::from([root]);
        while let Some(id) = rest.pop() {
            let bucket = self.bucket(id);
            match bucket.map_or(0, |b| b.kind) {
                k if k == kind && !(kind > 0 && self.is_shadow(id)) => found.push(id),
                k if k > kind => {
                    let items = bucket.map(Bucket::items).unwrap_or_default();
                    rest.extend(items.iter().rev().filter(|&&item| seen.insert(item)));
                }
                _ => {}
            }
        }
        found
    }

    /// The weight of the first occurrence of an item (`get_item_weight`).
    pub fn item_weight(&self, id: ItemId) -> Option<u32> {
        self.buckets().find_map(|b| match b.position(id) {
            _ if b.id == id => Some(b.weight),
            Some(pos) => Some(b.item_weight(pos)),
            None => None,
        })
    }

    /// The weight an item has in the lowest bucket that a location names; `None` when it is not
    /// there (`check_item_loc`). What the location says of higher levels is not looked at.
    pub fn weight_at(&self, id: ItemId, loc: &Location) -> Option<u32> {
        let levels = self.type_names.iter().filter(|&(&kind, _)| kind != 0);
        let name = levels.filter_map(|(_, name)| loc.get(name)).next()?;
        let bucket = self.bucket(self.item_id(name)?)?;
        Some(bucket.item_weight(bucket.position(id)?))
    }

    /// How near an item is to a location: the lowest type at which both are in the same bucket
    /// (`get_common_ancestor_distance`).
    pub fn common_ancestor_type(&self, id: ItemId, loc: &Location) -> Option<i32> {
        let own = self.location(id);
        let same = |name: &str| own.get(name).is_some() && own.get(name) == loc.get(name);
        let mut types = self.type_names();
        types.find(|(_, name)| same(name)).map(|(kind, _)| kind)
    }
}

impl Rule {
    /// The items the rule starts from, shadows as they are.
    pub fn takes(&self) -> impl Iterator<Item = ItemId> {
        let takes = self.steps.iter().filter(|s| s.op == Op::TAKE);
        takes.map(|s| s.arg1)
    }
}

/// What rules refer to.
impl CrushMap {
    /// Whether a rule takes this bucket or a shadow of it, or it is itself a shadow
    /// (`_bucket_is_in_use`).
    pub fn is_in_use(&self, id: ItemId) -> bool {
        let takes = |item| item == id || self.split_shadow(item).is_some_and(|(b, _)| b == id);
        self.shadows().any(|(_, _, shadow)| shadow == id)
            || self.rules().flat_map(|(_, r)| r.takes()).any(takes)
    }

    /// The rules that take a shadow of this class (`class_is_in_use`, `get_rules_by_class`).
    pub fn rules_by_class(&self, class: i32) -> Vec<u32> {
        let of_class: BTreeSet<ItemId> =
            self.shadows().filter(|&(_, c, _)| c == class).map(|(_, _, shadow)| shadow).collect();
        self.rules()
            .filter(|(_, r)| r.takes().any(|item| of_class.contains(&item)))
            .map(|(number, _)| number)
            .collect()
    }

    /// The rules that may map to a device (`get_rules_by_osd`).
    pub fn rules_by_device(&self, device: ItemId) -> Vec<u32> {
        self.rules()
            .filter(|(_, r)| r.takes().any(|item| self.subtree_contains(item, device)))
            .map(|(number, _)| number)
            .collect()
    }

    /// The lowest rule of a kind (`find_first_rule`).
    pub fn first_rule(&self, kind: u8) -> Option<u32> {
        let mut rules = self.rules();
        rules.find(|(_, r)| r.kind == kind).map(|(number, _)| number)
    }

    /// What a rule could ever use: the devices below what it takes, with the share of the weight
    /// each has (`get_rule_weight_osd_map`). Shares of one take add up to 1.
    pub fn rule_weights(&self, rule: u32) -> BTreeMap<ItemId, f64> {
        let mut shares = BTreeMap::new();
        for take in self.rule(rule).into_iter().flat_map(Rule::takes) {
            let mut weights = BTreeMap::new();
            for bucket in self.subtree(take) {
                let entries = self.bucket(bucket).into_iter().flat_map(Bucket::entries);
                weights.extend(entries.filter(|&(item, _)| item >= 0));
            }
            if take >= 0 {
                weights.insert(take, 1);
            }
            let sum: f64 = weights.values().map(|&w| f64::from(w)).sum();
            for (device, weight) in weights {
                let share = f64::from(weight) / if sum > 0.0 { sum } else { 1.0 };
                *shares.entry(device).or_insert(0.0) += share;
            }
        }
        shares
    }
}
