//! The binary form of a map (`CrushWrapper::encode`, `decode`).
//!
//! | part | content |
//! |---|---|
//! | head | u32 magic 0x10000, i32 max_buckets, u32 max_rules, i32 max_devices |
//! | buckets | max_buckets slots: u32 algorithm (0: empty), else i32 id, u16 type, u8 algorithm, u8 hash, u32 weight, items, weights as the algorithm keeps them |
//! | rules | max_rules slots: u32 0/1, else u32 length, u8 ruleset, type, min_size, max_size, steps of u32 op, i32 arg1, i32 arg2 |
//! | names | of types, items, rules: map<i32, str> |
//! | tunables | u32 local_tries, fallback_tries, total_tries, descend_once; u8 vary_r, straw_calc_version; u32 allowed_bucket_algs; u8 stable |
//! | classes | map<item, class>, map<class, str>, map<bucket, map<class, shadow>> |
//! | choose_args | u32 n, each i64 id, u32 m, each u32 slot, weight sets, ids |
//!
//! The parts from the tunables on may be missing in old maps. Decoding checks the invariants of
//! [`CrushMap`] and repairs what Ceph repairs: `max_devices` and weight-sets of a wrong size.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::bucket::{Algorithm, Bucket, Weights};
use crate::map::{
    ChooseArg, ChooseArgs, CrushMap, ITEM_UNDEF, ItemId, MAX_BUCKETS, MAX_CHOOSE_ARG_SLOTS,
    MAX_CHOOSE_ARG_WEIGHTS, Op, Rule, Step, Tunables, id_of, slot_of,
};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;

impl Encode for CrushMap {
    fn encode(&self, e: &mut Encoder) {
        e.put(&MAGIC);
        e.put_count(self.buckets.len());
        e.put_count(self.rules.len());
        e.put(&self.max_devices);
        for slot in &self.buckets {
            match slot {
                None => {
                    e.put(&0u32);
                }
                Some(bucket) => encode_bucket(bucket, e),
            }
        }
        for slot in &self.rules {
            e.put(&u32::from(slot.is_some()));
            if let Some(rule) = slot {
                e.put(rule);
            }
        }
        e.put(&self.type_names).put(&self.item_names).put(&self.rule_names);
        e.put(&self.tunables);
        e.put(&self.class_map).put(&self.class_names).put(&self.class_buckets);
        e.put(&self.choose_args);
    }
}

fn encode_bucket(b: &Bucket, e: &mut Encoder) {
    let alg = b.algorithm().wire();
    e.put(&u32::from(alg)).put(&b.id).put(&b.kind).put(&alg);
    e.put(&b.hash).put(&b.weight).put(&b.items);
    match &b.weights {
        Weights::Uniform(weight) => {
            e.put(weight);
        }
        Weights::List { items, sums: other } | Weights::Straw { items, straws: other } => {
            for (weight, other) in items.iter().zip(other) {
                e.put(weight).put(other);
            }
        }
        Weights::Tree(nodes) => {
            // At most 128 nodes: checked when decoded and when built.
            e.put(&(nodes.len() as u8));
            for weight in nodes {
                e.put(weight);
            }
        }
        Weights::Straw2(items) => {
            for weight in items {
                e.put(weight);
            }
        }
    }
}

impl Encode for Rule {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.steps.len());
        e.put_raw(&[self.ruleset, self.kind, self.min_size, self.max_size]);
        for step in &self.steps {
            e.put(&step.op.0).put(&step.arg1).put(&step.arg2);
        }
    }
}

impl Encode for Tunables {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.choose_local_tries)
            .put(&self.choose_local_fallback_tries)
            .put(&self.choose_total_tries)
            .put(&self.chooseleaf_descend_once)
            .put(&self.chooseleaf_vary_r)
            .put(&self.straw_calc_version)
            .put(&self.allowed_bucket_algs)
            .put(&self.chooseleaf_stable);
    }
}

impl Encode for ChooseArgs {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.iter().count());
        for (id, arg) in self.iter() {
            e.put(&(!id as u32)).put(&arg.weight_sets).put(&arg.ids);
        }
    }
}

impl Decode for CrushMap {
    /// Reads up to the end of the buffer or section, since a missing part is known by that only.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if d.get::<u32>()? != MAGIC {
            return Err(d.invalid("bad magic number of a crush map"));
        }
        let max_buckets = d.count()?;
        let max_rules = d.count()?;
        let _max_devices: i32 = d.get()?;
        if max_buckets > MAX_BUCKETS {
            return Err(d.invalid("too many crush buckets"));
        }
        let mut map = CrushMap { tunables: Tunables::LEGACY, ..CrushMap::default() };
        for slot in 0..max_buckets {
            map.buckets.push(decode_bucket(slot, d)?);
        }
        for _ in 0..max_rules {
            let rule = (d.get::<u32>()? != 0).then(|| d.get()).transpose()?;
            map.rules.push(rule);
        }
        map.type_names = decode_names(d)?;
        map.item_names = decode_names(d)?;
        map.rule_names = decode_names(d)?;
        decode_tunables(&mut map.tunables, d)?;
        if d.remaining() > 0 {
            map.class_map = d.get()?;
            map.class_names = d.get()?;
            map.class_buckets = d.get()?;
        }
        if d.remaining() > 0 {
            decode_choose_args(&mut map, d)?;
        }
        map.check_hierarchy().map_err(|why| d.invalid(why))?;
        map.update_choose_args();
        map.finalize();
        Ok(map)
    }
}

/// Parts came one after the other in the history of the format; each may be the last.
fn decode_tunables(t: &mut Tunables, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
    if d.remaining() > 0 {
        t.choose_local_tries = d.get()?;
        t.choose_local_fallback_tries = d.get()?;
        t.choose_total_tries = d.get()?;
    }
    if d.remaining() > 0 {
        t.chooseleaf_descend_once = d.get()?;
    }
    if d.remaining() > 0 {
        t.chooseleaf_vary_r = d.get()?;
    }
    if d.remaining() > 0 {
        t.straw_calc_version = d.get()?;
    }
    if d.remaining() > 0 {
        t.allowed_bucket_algs = d.get()?;
    }
    if d.remaining() > 0 {
        t.chooseleaf_stable = d.get()?;
    }
    Ok(())
}

fn decode_bucket(slot: usize, d: &mut Decoder<'_>) -> Result<Option<Bucket>, DecodeError> {
    let alg: u32 = d.get()?;
    if alg == 0 {
        return Ok(None);
    }
    let id: ItemId = d.get()?;
    let kind = d.get()?;
    let inner_alg: u8 = d.get()?;
    let hash = d.get()?;
    let weight = d.get()?;
    let items: Vec<ItemId> = d.get()?;
    if u32::from(inner_alg) != alg {
        return Err(d.invalid("a crush bucket with two different algorithms"));
    }
    if id != id_of(slot) {
        return Err(d.invalid("a crush bucket in the slot of another"));
    }
    let alg = Algorithm::from_wire(inner_alg)
        .ok_or_else(|| d.invalid("a crush bucket with an unknown algorithm"))?;
    Ok(Some(Bucket {
        id,
        kind,
        hash,
        weight,
        weights: decode_weights(alg, items.len(), d)?,
        items,
    }))
}

fn decode_weights(alg: Algorithm, n: usize, d: &mut Decoder<'_>) -> Result<Weights, DecodeError> {
    Ok(match alg {
        Algorithm::Uniform => Weights::Uniform(d.get()?),
        Algorithm::List => {
            let (items, sums) = decode_pairs(n, d)?;
            Weights::List { items, sums }
        }
        Algorithm::Straw => {
            let (items, straws) = decode_pairs(n, d)?;
            Weights::Straw { items, straws }
        }
        Algorithm::Tree => {
            let nodes = usize::from(d.get::<u8>()?);
            let leaves = nodes >> 1;
            if n > leaves || (nodes > 0 && !nodes.is_power_of_two()) {
                return Err(d.invalid("a crush tree bucket with a wrong number of nodes"));
            }
            Weights::Tree(decode_words(nodes, d)?)
        }
        Algorithm::Straw2 => Weights::Straw2(decode_words(n, d)?),
    })
}

fn decode_words(n: usize, d: &mut Decoder<'_>) -> Result<Vec<u32>, DecodeError> {
    (0..n).map(|_| d.get()).collect()
}

fn decode_pairs(n: usize, d: &mut Decoder<'_>) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..n {
        first.push(d.get()?);
        second.push(d.get()?);
    }
    Ok((first, second))
}

impl Decode for Rule {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let [ruleset, kind, min_size, max_size] = d.take_array()?;
        let mut steps = Vec::new();
        for _ in 0..n {
            steps.push(Step::new(Op(d.get()?), d.get()?, d.get()?));
        }
        Ok(Rule { ruleset, kind, min_size, max_size, steps })
    }
}

/// Old encoders wrote 64-bit keys by mistake. Names are never empty, so an empty one is the upper
/// half of such a key.
fn decode_names(d: &mut Decoder<'_>) -> Result<BTreeMap<i32, String>, DecodeError> {
    let n = d.count()?;
    let mut names = BTreeMap::new();
    for _ in 0..n {
        let key = d.get()?;
        let mut len = d.count()?;
        if len == 0 {
            len = d.count()?;
        }
        if len == 0 {
            return Err(d.invalid("an empty name in a crush map"));
        }
        let name = std::str::from_utf8(d.take_slice(len)?)
            .map_err(|_| d.invalid("a name in a crush map that is not UTF-8"))?;
        names.insert(key, name.to_owned());
    }
    Ok(names)
}

fn decode_choose_args(map: &mut CrushMap, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
    let (mut slots, mut weights) = (0usize, 0usize);
    for _ in 0..d.count()? {
        let id = d.get()?;
        let mut args = ChooseArgs::default();
        for _ in 0..d.count()? {
            let slot = d.count()?;
            let arg = ChooseArg { weight_sets: d.get()?, ids: d.get()? };
            let bucket = map.buckets.get(slot).and_then(Option::as_ref);
            let items = bucket.map(|b| b.items.len());
            if slot >= map.buckets.len() || (!arg.ids.is_empty() && Some(arg.ids.len()) != items) {
                return Err(d.invalid("choose_args that do not fit their crush bucket"));
            }
            // Each set will have a weight of each item, however short it is here.
            let more = arg.weight_sets.len().saturating_mul(items.unwrap_or(0));
            weights = weights.saturating_add(more);
            if weights > MAX_CHOOSE_ARG_WEIGHTS {
                return Err(d.invalid("too many weights in the weight-sets of a crush map"));
            }
            args.set(id_of(slot), Some(arg));
        }
        slots = slots.saturating_add(args.slots());
        if slots > MAX_CHOOSE_ARG_SLOTS {
            return Err(d.invalid("too many choose_args in a crush map"));
        }
        map.choose_args.insert(id, args);
    }
    Ok(())
}

impl CrushMap {
    /// Checks the invariants that the bytes alone do not give: what items a bucket has, that it
    /// does not contain itself, and how deep the hierarchy is.
    pub(crate) fn check_hierarchy(&self) -> Result<(), &'static str> {
        for b in self.buckets() {
            if b.kind == 0 {
                return Err("a crush bucket of the type of devices");
            }
            for &item in &b.items {
                let exists = match slot_of(item) {
                    None => item < ITEM_UNDEF,
                    Some(_) => self.bucket(item).is_some(),
                };
                if !exists {
                    return Err("a crush bucket with an item that does not exist");
                }
            }
        }
        match self.depth() {
            Some(depth) if depth <= crate::map::MAX_DEPTH => Ok(()),
            Some(_) => Err("a crush hierarchy that is too deep"),
            None => Err("a crush bucket that contains itself"),
        }
    }

    /// How many buckets lie below each other at most; `None` when one contains itself. Takes the
    /// buckets away from the top, level by level.
    pub(crate) fn depth(&self) -> Option<usize> {
        let mut parents = vec![0usize; self.buckets.len()];
        let children = |b: &Bucket| b.items.iter().filter_map(|&i| slot_of(i)).collect();
        let count_up = |slot: usize, by: usize, parents: &mut Vec<usize>| {
            let n = parents.get_mut(slot)?;
            *n = n.wrapping_add(by);
            (*n == 0).then_some(slot)
        };
        for b in self.buckets() {
            let slots: Vec<usize> = children(b);
            for slot in slots {
                count_up(slot, 1, &mut parents);
            }
        }
        let exists = |slot: &usize| self.bucket(id_of(*slot)).is_some();
        let mut left = self.buckets().count();
        let mut level: Vec<usize> = (0..parents.len())
            .filter(exists)
            .filter(|&slot| parents.get(slot) == Some(&0))
            .collect();
        let mut depth = 0usize;
        while !level.is_empty() {
            depth = depth.saturating_add(1);
            left = left.saturating_sub(level.len());
            let mut next = Vec::new();
            for slot in level {
                let slots: Vec<usize> = self.bucket(id_of(slot)).map(children).unwrap_or_default();
                for child in slots {
                    next.extend(count_up(child, usize::MAX, &mut parents));
                }
            }
            level = next;
        }
        (left == 0).then_some(depth)
    }

    /// Makes weight-sets fit their buckets: drops those of buckets that are gone or are not
    /// straw2, resizes the rest (`update_choose_args`).
    pub(crate) fn update_choose_args(&mut self) {
        let mut all = std::mem::take(&mut self.choose_args);
        for args in all.values_mut() {
            let ids: Vec<ItemId> = args.iter().map(|(id, _)| id).collect();
            for id in ids {
                let straw2 = |b: &&Bucket| b.algorithm() == Algorithm::Straw2;
                let Some(b) = self.bucket(id).filter(straw2) else {
                    args.set(id, None);
                    continue;
                };
                if let Some(arg) = args.get_mut(id) {
                    for set in &mut arg.weight_sets {
                        set.resize(b.items.len(), 0);
                    }
                }
            }
        }
        self.choose_args = all;
    }
}
