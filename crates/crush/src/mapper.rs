//! The mapping itself: from a number to the items a rule chooses (`crush/mapper.c`).
//!
//! Bit for bit what every client computes. Nothing is allocated unless a result is longer than
//! [`INLINE`] or a large bucket has to be permuted. A map cannot make this hang: each choice costs
//! about as many units as the bucket has items, and after [`BUDGET`] units the remaining places
//! stay empty. No map that a cluster could use comes near it.
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use crate::bucket::{Algorithm, Bucket};
use crate::choose::{Permutation, choose};
use crate::hash::hash2;
use crate::map::{ChooseArgs, CrushMap, ITEM_NONE, ITEM_UNDEF, ItemId, Op, Rule, Step, WEIGHT_ONE};
use smallvec::SmallVec;

/// Results up to this length are kept without allocation.
pub const INLINE: usize = 16;
/// Items looked at in one mapping, at most: under a second of work. A rule that tries 100 times to
/// find a 17th device among 10,000 others takes half of it.
const BUDGET: u64 = 1 << 25;
/// What a choice costs beside the items.
const COST_OF_CHOICE: u64 = 32;

/// What a rule gives: devices (or, for rules that choose no devices, buckets), with
/// [`ITEM_NONE`] in places that stay empty.
pub type Mapping = SmallVec<[ItemId; INLINE]>;

impl CrushMap {
    /// Maps `x` by a rule to at most `result_max` items (`crush_do_rule`).
    ///
    /// `weights` are the devices' 16.16 weights by id, as the OSDMap keeps them: 0 is out, 1.0 in;
    /// a device beyond the slice is out. A rule that does not exist maps to nothing.
    pub fn do_rule(
        &self,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<&ChooseArgs>,
    ) -> Mapping {
        match self.rule(rule) {
            Some(rule) => Mapper::new(self, x, weights, choose_args).run(rule, result_max),
            None => Mapping::new(),
        }
    }
}

/// The tunables that a rule may override, as they are at the current step.
struct Settings {
    /// Attempts for each place.
    tries: u32,
    /// Attempts for the device below a bucket; 0 is "not set".
    leaf_tries: u32,
    local_retries: u32,
    local_fallback_retries: u32,
    vary_r: u32,
    stable: bool,
}

/// One mapping in progress.
struct Mapper<'a> {
    map: &'a CrushMap,
    x: u32,
    weights: &'a [u32],
    args: Option<&'a ChooseArgs>,
    settings: Settings,
    budget: u64,
    perm: Permutation,
}

/// What one choose step wants from each item of the working set.
#[derive(Clone, Copy)]
struct Want {
    /// The type of the items.
    kind: i32,
    /// Whether to go on to a device below each.
    leaf: bool,
    /// How many; above 0.
    numrep: u32,
}

/// Where a descent of [`Mapper::descend`] ended.
enum Descent {
    /// At an item of the wanted type, chosen with this `r`.
    Found(ItemId, u32),
    /// In an empty bucket: another attempt may do better.
    Empty,
    /// At an item that no attempt can make right.
    Bad,
}

impl<'a> Mapper<'a> {
    fn new(
        map: &'a CrushMap,
        x: u32,
        weights: &'a [u32],
        args: Option<&'a ChooseArgs>,
    ) -> Mapper<'a> {
        let t = &map.tunables;
        Mapper {
            map,
            x,
            weights,
            args,
            settings: Settings {
                // This tunable always counted retries.
                tries: t.choose_total_tries.wrapping_add(1),
                leaf_tries: 0,
                local_retries: t.choose_local_tries,
                local_fallback_retries: t.choose_local_fallback_tries,
                vary_r: u32::from(t.chooseleaf_vary_r),
                stable: t.chooseleaf_stable != 0,
            },
            budget: BUDGET,
            perm: Permutation::default(),
        }
    }

    fn run(mut self, rule: &Rule, result_max: usize) -> Mapping {
        let mut result = Mapping::new();
        let mut working = Mapping::new();
        for step in &rule.steps {
            match step.op {
                Op::TAKE => {
                    if self.can_take(step.arg1) {
                        working = Mapping::from_slice(&[step.arg1]);
                    }
                }
                Op::CHOOSE_FIRSTN => working = self.step(working, step, result_max, true, false),
                Op::CHOOSELEAF_FIRSTN => working = self.step(working, step, result_max, true, true),
                Op::CHOOSE_INDEP => working = self.step(working, step, result_max, false, false),
                Op::CHOOSELEAF_INDEP => working = self.step(working, step, result_max, false, true),
                Op::EMIT => {
                    let room = result_max.saturating_sub(result.len());
                    result.extend(working.drain(..).take(room));
                }
                _ => self.settings.set(step),
            }
        }
        result
    }

    fn can_take(&self, item: ItemId) -> bool {
        (0..self.map.max_devices).contains(&item) || self.map.bucket(item).is_some()
    }

    /// Chooses from each bucket of the working set; the results together are the next one.
    fn step(
        &mut self,
        working: Mapping,
        step: &Step,
        result_max: usize,
        firstn: bool,
        leaf: bool,
    ) -> Mapping {
        let max = i64::try_from(result_max).unwrap_or(i64::MAX);
        let numrep = match i64::from(step.arg1) {
            n if n > 0 => n,
            n => n.saturating_add(max),
        };
        let (mut out, mut leaves) = (Mapping::new(), Mapping::new());
        let Some(numrep) = u32::try_from(numrep).ok().filter(|&n| n > 0) else {
            return out;
        };
        let want = Want { kind: step.arg2, leaf, numrep };
        for from in working {
            let Some(bucket) = self.map.bucket(from) else {
                continue;
            };
            let room = result_max.saturating_sub(out.len());
            if firstn {
                self.firstn(bucket, want, room, &mut out, &mut leaves);
            } else {
                self.indep(bucket, want, room, &mut out, &mut leaves);
            }
        }
        if leaf { leaves } else { out }
    }

    /// Appends up to `room` items, without gaps (`crush_choose_firstn`). `leaves` grows alike.
    fn firstn(
        &mut self,
        top: &'a Bucket,
        want: Want,
        mut room: usize,
        out: &mut Mapping,
        leaves: &mut Mapping,
    ) {
        let start = out.len();
        for rep in 0..want.numrep {
            if room == 0 || self.budget == 0 {
                break;
            }
            let taken = out.get(start..).unwrap_or_default();
            let taken_leaves = leaves.get(start..).unwrap_or_default();
            let below = want.leaf.then_some(taken_leaves);
            let tries = self.settings.tries;
            if let Some((item, leaf)) = self.place(top, want.kind, rep, taken, tries, below) {
                out.push(item);
                leaves.push(leaf);
                room = room.saturating_sub(1);
            }
        }
    }

    /// Fills one place of a firstn result: an item of type `kind` that is not among `taken`, and,
    /// when `below` is given, a device under it that is not among those.
    fn place(
        &mut self,
        top: &'a Bucket,
        kind: i32,
        rep: u32,
        taken: &[ItemId],
        tries: u32,
        below: Option<&[ItemId]>,
    ) -> Option<(ItemId, ItemId)> {
        let position = taken.len();
        let fallback = self.settings.local_fallback_retries;
        let mut failed = 0u32;
        let mut bucket = top;
        let mut failed_here = 0u32;
        loop {
            self.charge(bucket)?;
            let size = bucket.items.len() as u32;
            let r = rep.wrapping_add(failed);
            let mut collides = false;
            if size > 0 {
                let permute = fallback > 0 && failed_here >= size >> 1 && failed_here > fallback;
                let item = if permute {
                    self.perm.choose(bucket, self.x, r)?
                } else {
                    self.choose(bucket, r, position)?
                };
                let (found, inner) = self.kind_of(item)?;
                if found != kind {
                    bucket = inner?;
                    continue;
                }
                collides = taken.contains(&item);
                if !collides {
                    let leaf = match (below, inner) {
                        (Some(below), Some(inner)) => self.leaf_firstn(inner, r, below),
                        _ => Some(item),
                    };
                    if let Some(leaf) = leaf.filter(|_| found != 0 || !self.is_out(item)) {
                        return Some((item, leaf));
                    }
                }
            }
            failed = failed.wrapping_add(1);
            failed_here = failed_here.wrapping_add(1);
            let again_here = collides && failed_here <= self.settings.local_retries
                || fallback > 0 && failed_here <= size.wrapping_add(fallback);
            if again_here {
                continue;
            }
            if failed >= tries {
                return None;
            }
            bucket = top;
            failed_here = 0;
        }
    }

    /// The device below a bucket that a chooseleaf firstn chose with `r`.
    fn leaf_firstn(&mut self, top: &'a Bucket, r: u32, taken: &[ItemId]) -> Option<ItemId> {
        let s = &self.settings;
        let tries = match s.leaf_tries {
            0 if self.map.tunables.chooseleaf_descend_once != 0 => 1,
            0 => s.tries,
            n => n,
        };
        let sub_r = match s.vary_r {
            0 => 0,
            // An arithmetic shift, and as processors do it: by the count modulo 32.
            n => (r as i32).wrapping_shr(n.wrapping_sub(1)) as u32,
        };
        let rep = if s.stable { 0 } else { taken.len() as u32 };
        self.place(top, 0, rep.wrapping_add(sub_r), taken, tries, None).map(|(item, _)| item)
    }

    /// Appends up to `room` places, each filled on its own or [`ITEM_NONE`] (`crush_choose_indep`).
    fn indep(
        &mut self,
        top: &'a Bucket,
        want: Want,
        room: usize,
        out: &mut Mapping,
        leaves: &mut Mapping,
    ) {
        let start = out.len();
        let size = room.min(want.numrep as usize);
        let end = start.saturating_add(size);
        out.resize(end, ITEM_UNDEF);
        leaves.resize(end, ITEM_UNDEF);
        let out = out.get_mut(start..).unwrap_or_default();
        let leaves = leaves.get_mut(start..).unwrap_or_default();
        let mut left = size;
        for failed in 0..self.settings.tries {
            if left == 0 || self.budget == 0 {
                break;
            }
            for rep in 0..size {
                if out.get(rep) != Some(&ITEM_UNDEF) {
                    continue;
                }
                let filled = self.indep_place(top, want, rep as u32, failed, out, leaves);
                left = left.saturating_sub(usize::from(filled));
            }
        }
        for place in out.iter_mut().chain(leaves) {
            if *place == ITEM_UNDEF {
                *place = ITEM_NONE;
            }
        }
    }

    /// One attempt for one place of an indep result. Whether the place is settled.
    fn indep_place(
        &mut self,
        top: &'a Bucket,
        want: Want,
        rep: u32,
        failed: u32,
        out: &mut [ItemId],
        leaves: &mut [ItemId],
    ) -> bool {
        let (item, r) = match self.descend(top, want.kind, rep, want.numrep, failed, 0) {
            Descent::Found(item, r) => (item, r),
            Descent::Empty => return false,
            Descent::Bad => {
                set(out, rep, ITEM_NONE);
                set(leaves, rep, ITEM_NONE);
                return true;
            }
        };
        if out.contains(&item) {
            return false;
        }
        if want.leaf {
            let leaf = match self.map.bucket(item) {
                Some(inner) => self.leaf_indep(inner, want.numrep, rep, r),
                None => item,
            };
            // Stays even if the place is not settled below: the last attempt's leaf is given out.
            set(leaves, rep, leaf);
            if leaf == ITEM_NONE {
                return false;
            }
        }
        if item >= 0 && self.is_out(item) {
            return false;
        }
        set(out, rep, item);
        true
    }

    /// The device below a bucket that a chooseleaf indep chose with `r` for place `rep`.
    fn leaf_indep(&mut self, top: &'a Bucket, numrep: u32, rep: u32, r: u32) -> ItemId {
        let tries = self.settings.leaf_tries.max(1);
        let start = rep.wrapping_add(r);
        for failed in 0..tries {
            match self.descend(top, 0, start, numrep, failed, rep as usize) {
                Descent::Found(item, _) if !self.is_out(item) => return item,
                Descent::Found(..) | Descent::Empty => {}
                Descent::Bad => break,
            }
        }
        ITEM_NONE
    }

    /// Goes down from `top` to an item of type `kind` in the way of indep.
    fn descend(
        &mut self,
        top: &'a Bucket,
        kind: i32,
        start: u32,
        numrep: u32,
        failed: u32,
        position: usize,
    ) -> Descent {
        let mut bucket = top;
        loop {
            if self.charge(bucket).is_none() {
                return Descent::Bad;
            }
            if bucket.items.is_empty() {
                return Descent::Empty;
            }
            // In a uniform bucket of a multiple of numrep items, each attempt would otherwise
            // meet the same ones.
            let uniform = bucket.algorithm() == Algorithm::Uniform;
            let aligned = (bucket.items.len() as u32).checked_rem(numrep) == Some(0);
            let stride = numrep.wrapping_add(u32::from(uniform && aligned));
            let r = start.wrapping_add(stride.wrapping_mul(failed));
            let Some(item) = self.choose(bucket, r, position) else {
                return Descent::Bad;
            };
            match self.kind_of(item) {
                Some((found, _)) if found == kind => return Descent::Found(item, r),
                Some((_, Some(inner))) => bucket = inner,
                _ => return Descent::Bad,
            }
        }
    }

    fn choose(&mut self, bucket: &Bucket, r: u32, position: usize) -> Option<ItemId> {
        let arg = self.args.and_then(|args| args.get(bucket.id));
        choose(bucket, self.x, r, arg, position, &mut self.perm)
    }

    /// The type of an item, and the bucket if it is one. `None` for ids that nothing has.
    fn kind_of(&self, item: ItemId) -> Option<(i32, Option<&'a Bucket>)> {
        if item >= 0 {
            return (item < self.map.max_devices).then_some((0, None));
        }
        let bucket = self.map.bucket(item)?;
        Some((i32::from(bucket.kind), Some(bucket)))
    }

    /// Whether a device is out, by its weight, for this `x`.
    fn is_out(&self, device: ItemId) -> bool {
        let weight = usize::try_from(device).ok().and_then(|i| self.weights.get(i));
        match weight {
            None | Some(0) => true,
            Some(&w) => w < WEIGHT_ONE && hash2(self.x, device as u32) & 0xffff >= w,
        }
    }

    /// Pays for one choice; `None` when the budget is used up.
    fn charge(&mut self, bucket: &Bucket) -> Option<()> {
        let cost = (bucket.items.len() as u64).saturating_add(COST_OF_CHOICE);
        self.budget = self.budget.saturating_sub(cost);
        (self.budget > 0).then_some(())
    }
}

fn set(places: &mut [ItemId], place: u32, item: ItemId) {
    if let Some(p) = places.get_mut(place as usize) {
        *p = item;
    }
}

impl Settings {
    /// Carries out a step that sets something; others are ignored.
    fn set(&mut self, step: &Step) {
        let Ok(n) = u32::try_from(step.arg1) else {
            return;
        };
        match step.op {
            Op::SET_CHOOSE_TRIES if n > 0 => self.tries = n,
            Op::SET_CHOOSELEAF_TRIES if n > 0 => self.leaf_tries = n,
            Op::SET_CHOOSE_LOCAL_TRIES => self.local_retries = n,
            Op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => self.local_fallback_retries = n,
            Op::SET_CHOOSELEAF_VARY_R => self.vary_r = n,
            Op::SET_CHOOSELEAF_STABLE => self.stable = n != 0,
            _ => {}
        }
    }
}
