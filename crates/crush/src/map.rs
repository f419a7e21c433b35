//! What a CRUSH map is made of (`crush/crush.h`, `CrushWrapper.h`).

use crate::bucket::Bucket;
use std::collections::BTreeMap;

/// The id of an item: devices count up from 0, buckets count down from -1.
pub type ItemId = i32;

/// No device at this place of a mapping (`CRUSH_ITEM_NONE`).
pub const ITEM_NONE: ItemId = 0x7fff_ffff;
/// A place that is not filled yet, inside the mapper (`CRUSH_ITEM_UNDEF`).
pub(crate) const ITEM_UNDEF: ItemId = 0x7fff_fffe;
/// A weight of 1.0: weights are 16.16 fixed point.
pub const WEIGHT_ONE: u32 = 0x1_0000;
/// The largest weight of a device (100.0) in the text form (`CRUSH_MAX_DEVICE_WEIGHT`).
pub const MAX_DEVICE_WEIGHT: u32 = 100 * WEIGHT_ONE;
/// The largest weight of a bucket (65535.0) in the text form (`CRUSH_MAX_BUCKET_WEIGHT`).
pub const MAX_BUCKET_WEIGHT: u32 = 65_535 * WEIGHT_ONE;
/// Rule numbers are below this (`CRUSH_MAX_RULES`).
pub const MAX_RULES: usize = 256;
/// Levels of buckets below each other. Ceph has no bound (its tools speak of 10); a map beyond
/// this is refused, so that everything which walks a map may recurse.
pub const MAX_DEPTH: usize = 64;
/// Ways from the roots to an item, on average. Ceph has no bound, and walks of maps beyond this that never end; edits
/// and `osd setcrushmap` make none.
pub const MAX_WAYS: u64 = 64;
/// Slots for buckets, which bounds the memory that an id from outside claims: the lowest bucket
/// id is the negative of this.
pub const MAX_BUCKETS: usize = 1 << 20;
/// Slots of the choose_args of a map altogether; bounds the memory that bytes from outside claim.
pub(crate) const MAX_CHOOSE_ARG_SLOTS: usize = 1 << 22;
/// Weights in the weight-sets of a map altogether; for the same reason. 10,000 OSDs in weight-sets of 12 positions have
/// 120,000 for each pool that has its own.
pub(crate) const MAX_CHOOSE_ARG_WEIGHTS: usize = 1 << 26;
/// The choose_args that serve every pool without its own (`DEFAULT_CHOOSE_ARGS`): the "compat"
/// weight-set.
pub const COMPAT_CHOOSE_ARGS: i64 = -1;
/// Rules for replicated pools (`pg_pool_t::TYPE_REPLICATED`).
pub const RULE_REPLICATED: u8 = 1;
/// Rules for erasure-coded pools (`pg_pool_t::TYPE_ERASURE`).
pub const RULE_ERASURE: u8 = 3;

/// What a step of a rule does (`crush_opcodes`). Numbers this version does not know do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(pub u32);

impl Op {
    /// Nothing.
    pub const NOOP: Op = Op(0);
    /// Start from item `arg1`.
    pub const TAKE: Op = Op(1);
    /// Choose `arg1` items of type `arg2`, closing gaps.
    pub const CHOOSE_FIRSTN: Op = Op(2);
    /// Choose `arg1` items of type `arg2`, each place on its own.
    pub const CHOOSE_INDEP: Op = Op(3);
    /// Append what is chosen to the result.
    pub const EMIT: Op = Op(4);
    /// As `CHOOSE_FIRSTN`, then one device below each.
    pub const CHOOSELEAF_FIRSTN: Op = Op(6);
    /// As `CHOOSE_INDEP`, then one device below each.
    pub const CHOOSELEAF_INDEP: Op = Op(7);
    /// Override of [`Tunables::choose_total_tries`] (without its off-by-one).
    pub const SET_CHOOSE_TRIES: Op = Op(8);
    /// How often the search for the device of a chooseleaf is tried.
    pub const SET_CHOOSELEAF_TRIES: Op = Op(9);
    /// Override of [`Tunables::choose_local_tries`].
    pub const SET_CHOOSE_LOCAL_TRIES: Op = Op(10);
    /// Override of [`Tunables::choose_local_fallback_tries`].
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: Op = Op(11);
    /// Override of [`Tunables::chooseleaf_vary_r`].
    pub const SET_CHOOSELEAF_VARY_R: Op = Op(12);
    /// Override of [`Tunables::chooseleaf_stable`].
    pub const SET_CHOOSELEAF_STABLE: Op = Op(13);
}

/// One step of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub op: Op,
    /// First argument; for choosing, 0 means "as many as the pool wants", negative that many less.
    pub arg1: i32,
    /// Second argument: the type, when choosing.
    pub arg2: i32,
}

impl Step {
    /// A step.
    pub const fn new(op: Op, arg1: i32, arg2: i32) -> Self {
        Step { op, arg1, arg2 }
    }
}

/// How a pool's replicas are chosen (`crush_rule`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The number pools name the rule by; equal to its slot in maps made since Luminous.
    pub ruleset: u8,
    /// [`RULE_REPLICATED`] or [`RULE_ERASURE`].
    pub kind: u8,
    /// Smallest pool size the rule is for.
    pub min_size: u8,
    /// Largest pool size the rule is for.
    pub max_size: u8,
    /// What to do.
    pub steps: Vec<Step>,
}

/// The choices of behaviour that were made as CRUSH grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision.
    pub choose_local_tries: u32,
    /// Retries by permutation of the same bucket.
    pub choose_local_fallback_tries: u32,
    /// Retries of a whole descent (tries are one more).
    pub choose_total_tries: u32,
    /// 1: a chooseleaf tries only one device below each chosen bucket.
    pub chooseleaf_descend_once: u32,
    /// 0: the device below a bucket does not depend on the attempt; else how slowly it does.
    pub chooseleaf_vary_r: u8,
    /// How straw (v1) lengths are calculated.
    pub straw_calc_version: u8,
    /// Bit `n`: new buckets may use algorithm `n`.
    pub allowed_bucket_algs: u32,
    /// 1: the device below a bucket does not depend on the bucket's place in the result.
    pub chooseleaf_stable: u8,
}

const ALGS_LEGACY: u32 = 1 << 1 | 1 << 2 | 1 << 4;
const ALGS_HAMMER: u32 = ALGS_LEGACY | 1 << 5;

impl Tunables {
    const ARGONAUT: Tunables = Tunables {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: ALGS_LEGACY,
        chooseleaf_stable: 0,
    };
    const BOBTAIL: Tunables = Tunables {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        ..Tunables::ARGONAUT
    };
    const FIREFLY: Tunables = Tunables { chooseleaf_vary_r: 1, ..Tunables::BOBTAIL };
    const HAMMER: Tunables = Tunables { allowed_bucket_algs: ALGS_HAMMER, ..Tunables::FIREFLY };
    const JEWEL: Tunables = Tunables { chooseleaf_stable: 1, ..Tunables::HAMMER };

    /// Those of a map that says nothing (`set_tunables_legacy`).
    pub const LEGACY: Tunables = Tunables::ARGONAUT;
    /// Those of a new map (`set_tunables_default`).
    pub const DEFAULT: Tunables = Tunables { straw_calc_version: 1, ..Tunables::JEWEL };

    /// The names `ceph osd crush tunables` knows.
    pub const PROFILES: [&'static str; 8] =
        ["legacy", "argonaut", "bobtail", "firefly", "hammer", "jewel", "optimal", "default"];

    /// These tunables changed to a profile. Only `legacy`, `optimal` and `default` also choose the
    /// straw calculation. `None` for a name that is not in [`Tunables::PROFILES`].
    #[must_use]
    pub fn with_profile(self, name: &str) -> Option<Tunables> {
        let keep =
            |profile: Tunables| Tunables { straw_calc_version: self.straw_calc_version, ..profile };
        Some(match name {
            "legacy" => Tunables::LEGACY,
            "argonaut" => keep(Tunables::ARGONAUT),
            "bobtail" => keep(Tunables::BOBTAIL),
            "firefly" => keep(Tunables::FIREFLY),
            "hammer" => keep(Tunables::HAMMER),
            "jewel" => keep(Tunables::JEWEL),
            "optimal" | "default" => Tunables::DEFAULT,
            _ => return None,
        })
    }

    /// The profile these are (`jewel` .. `argonaut`), or `unknown`, as `crush dump` shows it.
    pub fn profile(&self) -> &'static str {
        ["jewel", "hammer", "firefly", "bobtail", "argonaut"]
            .into_iter()
            .find(|name| self.with_profile(name) == Some(*self))
            .unwrap_or("unknown")
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables::DEFAULT
    }
}

/// Other weights, or other ids to be hashed, for the items of one bucket (`crush_choose_arg`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChooseArg {
    /// Weights for each place of the result; the last one serves all later places.
    pub weight_sets: Vec<Vec<u32>>,
    /// Ids in place of the items' own; empty to use those.
    pub ids: Vec<ItemId>,
}

impl ChooseArg {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.weight_sets.is_empty() && self.ids.is_empty()
    }
}

/// The [`ChooseArg`]s of one weight-set, by bucket (`crush_choose_arg_map`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChooseArgs {
    /// Slot `i` is for bucket `-1 - i`. The last slot is never `None`, so that equal sets are equal.
    slots: Vec<Option<Box<ChooseArg>>>,
}

impl ChooseArgs {
    /// What is set for a bucket.
    #[inline]
    pub fn get(&self, bucket: ItemId) -> Option<&ChooseArg> {
        self.slots.get(slot_of(bucket)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, bucket: ItemId) -> Option<&mut ChooseArg> {
        self.slots.get_mut(slot_of(bucket)?)?.as_deref_mut()
    }

    /// Sets or clears what a bucket has. Ids of devices are ignored.
    pub(crate) fn set(&mut self, bucket: ItemId, arg: Option<ChooseArg>) {
        let Some(slot) = slot_of(bucket) else { return };
        let arg = arg.filter(|a| !a.is_empty()).map(Box::new);
        if slot >= self.slots.len() && arg.is_some() {
            self.slots.resize(slot.saturating_add(1), None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = arg;
        }
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
    }

    /// Slots that take memory.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// All that is set, by bucket, from -1 downwards.
    pub fn iter(&self) -> impl Iterator<Item = (ItemId, &ChooseArg)> {
        self.slots.iter().enumerate().filter_map(|(i, arg)| Some((id_of(i), arg.as_deref()?)))
    }

    /// How many places of a result have their own weights, taken from the first bucket that has
    /// any (`get_choose_args_positions`).
    pub fn positions(&self) -> usize {
        self.iter().map(|(_, arg)| arg.weight_sets.len()).find(|&n| n > 0).unwrap_or(1)
    }
}

/// A CRUSH map: the hierarchy of buckets, the rules, and everything that names them.
///
/// Invariants, which decoding checks and edits keep: a bucket stands in the slot of its id; every
/// item of a bucket is a device or a bucket that exists; no bucket contains itself, and the
/// hierarchy is at most [`MAX_DEPTH`] deep; bucket types are above 0; each bucket has as many
/// weights as items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrushMap {
    /// Slot `i` is bucket `-1 - i`.
    pub(crate) buckets: Vec<Option<Bucket>>,
    pub(crate) rules: Vec<Option<Rule>>,
    /// Devices have ids below this.
    pub(crate) max_devices: i32,
    pub(crate) type_names: BTreeMap<i32, String>,
    pub(crate) item_names: BTreeMap<ItemId, String>,
    pub(crate) rule_names: BTreeMap<i32, String>,
    /// The tunables.
    pub tunables: Tunables,
    /// The class of each classified device and of each shadow bucket.
    pub(crate) class_map: BTreeMap<ItemId, i32>,
    pub(crate) class_names: BTreeMap<i32, String>,
    /// For each bucket and class its shadow.
    pub(crate) class_buckets: BTreeMap<ItemId, BTreeMap<i32, ItemId>>,
    pub(crate) choose_args: BTreeMap<i64, ChooseArgs>,
}

/// The slot of a bucket; `None` for devices.
#[inline]
pub(crate) fn slot_of(id: ItemId) -> Option<usize> {
    if id < 0 { Some(!id as usize) } else { None }
}

/// The bucket of a slot.
pub(crate) fn id_of(slot: usize) -> ItemId {
    !(slot as i32)
}

impl CrushMap {
    /// A bucket by its id.
    #[inline]
    pub fn bucket(&self, id: ItemId) -> Option<&Bucket> {
        self.buckets.get(slot_of(id)?)?.as_ref()
    }

    pub(crate) fn bucket_mut(&mut self, id: ItemId) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot_of(id)?)?.as_mut()
    }

    /// All buckets, shadows too, from -1 downwards.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    /// Slots for buckets (`max_buckets`).
    pub fn max_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Devices have ids below this (`max_devices`).
    pub fn max_devices(&self) -> i32 {
        self.max_devices
    }

    /// A rule by its number.
    pub fn rule(&self, rule: u32) -> Option<&Rule> {
        self.rules.get(rule as usize)?.as_ref()
    }

    /// All rules with their numbers.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        let numbered = |(i, rule): (usize, _)| Option::as_ref(rule).map(|r| (i as u32, r));
        self.rules.iter().enumerate().filter_map(numbered)
    }

    /// Slots for rules (`max_rules`).
    pub fn max_rules(&self) -> usize {
        self.rules.len()
    }

    /// The first rule that is for pools of this ruleset, kind and size (`crush_find_rule`).
    pub fn find_rule(&self, ruleset: u8, kind: u8, size: u8) -> Option<u32> {
        self.rules()
            .find(|(_, r)| {
                r.ruleset == ruleset && r.kind == kind && (r.min_size..=r.max_size).contains(&size)
            })
            .map(|(number, _)| number)
    }

    /// All weight-sets by pool; [`COMPAT_CHOOSE_ARGS`] is the one for all other pools.
    pub fn choose_args(&self) -> impl Iterator<Item = (i64, &ChooseArgs)> {
        self.choose_args.iter().map(|(id, args)| (*id, args))
    }

    /// The weight-set a pool uses: its own, else the compat one (`choose_args_get_with_fallback`).
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&COMPAT_CHOOSE_ARGS))
    }

    /// Recomputes what follows from the rest (`finalize`): `max_devices` is one more than the
    /// highest device that is in a bucket or has a name.
    pub(crate) fn finalize(&mut self) {
        let placed = self.buckets().flat_map(|b| b.items().iter().copied()).max();
        let named = self.item_names.keys().next_back().copied();
        self.max_devices = placed.max(named).map_or(0, |id| id.saturating_add(1).max(0));
    }
}
