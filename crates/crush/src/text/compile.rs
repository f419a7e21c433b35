//! From text to map (`CrushCompiler.cc`): the same text gives the same bytes as `crushtool -c`.

use super::ast::{Ast, BucketText, ChooseArgsText, ItemText, RuleText, StepText};
use super::parse::parse;
use super::tokens::Token;
use super::{CompileError, Place};
use crate::bucket::Algorithm;
use crate::error::CrushError;
use crate::map::{
    ChooseArg, ChooseArgs, CrushMap, ITEM_UNDEF, ItemId, MAX_BUCKET_WEIGHT, MAX_DEVICE_WEIGHT, Op,
    Rule, Step, Tunables,
};
use std::collections::{BTreeMap, BTreeSet};

type Result<T> = std::result::Result<T, CompileError>;

/// Makes a map of its text form.
///
/// # Errors
/// When the text is not of the form, or names something that it does not define. The first error
/// is reported.
pub fn compile(text: &str) -> Result<CrushMap> {
    let mut ast = parse(text)?;
    put_in_order(&mut ast)?;
    let mut c = Compiler::new(&ast);
    for (name, value) in &ast.tunables {
        set_tunable(&mut c.map.tunables, *name, *value)?;
    }
    for &(kind, name) in &ast.types {
        c.types.insert(name.text, kind);
        c.map.set_type_name(kind, name.text);
    }
    for device in &ast.devices {
        c.device(device.id, device.name, device.class)?;
    }
    for bucket in &ast.buckets {
        c.bucket(bucket)?;
    }
    let end = ast.rules.first().map_or_else(Place::default, |r| r.place);
    if !ast.rules.is_empty() {
        let shadows = c.map.make_shadows(&c.class_buckets);
        shadows.map_err(|e| CompileError::at(end, e.to_string()))?;
    }
    for rule in &ast.rules {
        c.rule(rule)?;
    }
    for args in &ast.choose_args {
        c.choose_args(args)?;
    }
    c.map.check_hierarchy().map_err(|why| CompileError::at(end, why))?;
    c.map.finalize();
    Ok(c.map)
}

/// Exchanges each bucket with a later one that it contains, so that buckets are defined before
/// they are used (`adjust_bucket_item_place`).
fn put_in_order(ast: &mut Ast<'_>) -> Result<()> {
    let names: Vec<Token<'_>> = ast.buckets.iter().map(|b| b.name).collect();
    let contains: Vec<BTreeSet<&str>> =
        ast.buckets.iter().map(|b| b.items.iter().map(|i| i.name.text).collect()).collect();
    for (i, outer) in names.iter().enumerate() {
        for (j, inner) in names.iter().enumerate().skip(i + 1) {
            if !contains[i].contains(inner.text) {
                continue;
            }
            if contains[j].contains(outer.text) {
                let (a, b) = (outer.text, inner.text);
                let message = format!("bucket '{a}' and bucket '{b}' are included each other");
                return Err(CompileError::at(outer.place, message));
            }
            ast.buckets.swap(i, j);
        }
    }
    Ok(())
}

fn set_tunable(t: &mut Tunables, name: Token<'_>, value: i32) -> Result<()> {
    let word = value as u32;
    match name.text {
        "choose_local_tries" => t.choose_local_tries = word,
        "choose_local_fallback_tries" => t.choose_local_fallback_tries = word,
        "choose_total_tries" => t.choose_total_tries = word,
        "chooseleaf_descend_once" => t.chooseleaf_descend_once = u32::from(value != 0),
        "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
        "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
        "straw_calc_version" => t.straw_calc_version = value as u8,
        "allowed_bucket_algs" => t.allowed_bucket_algs = word,
        other => {
            let message = format!("tunable {other} not recognized");
            return Err(CompileError::at(name.place, message));
        }
    }
    Ok(())
}

struct Compiler<'a> {
    map: CrushMap,
    types: BTreeMap<&'a str, i32>,
    items: BTreeMap<&'a str, ItemId>,
    weights: BTreeMap<ItemId, u32>,
    /// Ids that buckets and shadows ask for, or have got.
    used_ids: BTreeSet<ItemId>,
    class_buckets: BTreeMap<ItemId, BTreeMap<i32, ItemId>>,
}

impl<'a> Compiler<'a> {
    fn new(ast: &Ast<'a>) -> Self {
        let ids = ast.buckets.iter().flat_map(|b| &b.ids);
        Compiler {
            // Always from the oldest tunables, so that a text means the same for ever.
            map: CrushMap { tunables: Tunables::LEGACY, ..CrushMap::empty() },
            types: BTreeMap::new(),
            items: BTreeMap::new(),
            weights: BTreeMap::new(),
            used_ids: ids.map(|&(id, _)| id).collect(),
            class_buckets: BTreeMap::new(),
        }
    }

    fn device(&mut self, id: i32, name: Token<'a>, class: Option<Token<'a>>) -> Result<()> {
        if !(0..ITEM_UNDEF).contains(&id) {
            return Err(CompileError::at(name.place, "bad id of a device"));
        }
        if self.items.insert(name.text, id).is_some() {
            let message = format!("item {} defined twice", name.text);
            return Err(CompileError::at(name.place, message));
        }
        self.map.item_names.insert(id, name.text.to_owned());
        if let Some(class) = class {
            let class = self.map.class_or_new(class.text);
            self.map.class_map.insert(id, class);
        }
        Ok(())
    }

    fn bucket(&mut self, b: &BucketText<'a>) -> Result<()> {
        let fail = |message: String| Err(CompileError::at(b.name.place, message));
        let name = b.name.text;
        let Some(&kind) = self.types.get(b.kind.text) else {
            let message = format!("bucket type '{}' is not defined", b.kind.text);
            return Err(CompileError::at(b.kind.place, message));
        };
        let Some(kind) = u16::try_from(kind).ok().filter(|&kind| kind > 0) else {
            return fail(format!("bucket '{name}' is of the type of devices"));
        };
        if self.items.contains_key(name) {
            return fail(format!("bucket or device '{name}' is already defined"));
        }
        let mut algs = Algorithm::PREFERRED.into_iter();
        let Some(alg) = algs.find(|alg| alg.name() == b.alg.text) else {
            let message = format!("unknown bucket alg '{}'", b.alg.text);
            return Err(CompileError::at(b.alg.place, message));
        };
        let (id, shadows) = self.ids_of(b)?;
        let entries = self.entries(b, alg)?;
        let sum = entries.iter().try_fold(0u32, |sum, &(_, w)| sum.checked_add(w));
        let Some(sum) = sum else {
            return fail(CrushError::WeightOverflow.to_string());
        };
        let id = id.unwrap_or_else(|| self.free_id());
        for (class, shadow) in shadows {
            let of_bucket = self.class_buckets.entry(id).or_default();
            of_bucket.insert(class, shadow);
        }
        self.used_ids.insert(id);
        self.items.insert(name, id);
        self.weights.insert(id, sum);
        match self.map.place_bucket(Some(id), kind, alg, b.hash, &entries) {
            Ok(_) => {}
            Err(CrushError::BucketExists(id)) => return fail(format!("Duplicate bucket id {id}")),
            Err(e) => return fail(format!("add_bucket failed: {e}")),
        }
        self.map.item_names.insert(id, name.to_owned());
        Ok(())
    }

    /// The id a bucket asks for, and those for its shadows by class.
    fn ids_of(&mut self, b: &BucketText<'a>) -> Result<(Option<ItemId>, BTreeMap<i32, ItemId>)> {
        let (mut own, mut shadows) = (None, BTreeMap::new());
        for &(id, class) in &b.ids {
            let Some(class) = class else {
                own = Some(id);
                continue;
            };
            let number = self.map.class_or_new(class.text);
            if shadows.insert(number, id).is_some() {
                let (class_name, bucket) = (class.text, b.name.text);
                let message = format!("duplicate device class {class_name} for bucket {bucket}");
                return Err(CompileError::at(class.place, message));
            }
        }
        Ok((own, shadows))
    }

    fn free_id(&self) -> ItemId {
        let mut ids = (1..=ItemId::MAX).map(|n| -n);
        ids.find(|id| !self.used_ids.contains(id)).unwrap_or(ItemId::MIN)
    }

    /// The items of a bucket at their positions.
    fn entries(&self, b: &BucketText<'a>, alg: Algorithm) -> Result<Vec<(ItemId, u32)>> {
        let bucket = b.name.text;
        let size = b.items.len();
        let mut used = BTreeSet::new();
        for item in &b.items {
            let (name, Some(pos)) = (item.name.text, item.pos) else {
                continue;
            };
            let what = format!("item '{name}' in bucket '{bucket}' has");
            let pos_error = |what| Err(CompileError::at(item.name.place, what));
            match usize::try_from(pos).ok().filter(|&pos| pos < size) {
                Some(pos) if used.insert(pos) => {}
                Some(pos) => {
                    return pos_error(format!("{what} explicit pos {pos}, which is occupied"));
                }
                None => return pos_error(format!("{what} pos {pos} >= size {size}")),
            }
        }
        let mut free = (0..size).filter(|pos| !used.contains(pos));
        let mut entries = vec![(0, 0); size];
        let mut uniform = None;
        for item in &b.items {
            let entry = self.entry(item, bucket)?;
            if alg == Algorithm::Uniform && *uniform.get_or_insert(entry.1) != entry.1 {
                let message = format!(
                    "item '{}' in uniform bucket '{bucket}' has another weight than the previous \
                     item(s); uniform bucket items must all have identical weights.",
                    item.name.text
                );
                return Err(CompileError::at(item.name.place, message));
            }
            let pos = match item.pos {
                Some(pos) => usize::try_from(pos).ok(),
                None => free.next(),
            };
            if let Some(place) = pos.and_then(|pos| entries.get_mut(pos)) {
                *place = entry;
            }
        }
        Ok(entries)
    }

    fn entry(&self, item: &ItemText<'a>, bucket: &str) -> Result<(ItemId, u32)> {
        let (name, place) = (item.name.text, item.name.place);
        let Some(&id) = self.items.get(name) else {
            let message = format!("item '{name}' in bucket '{bucket}' is not defined");
            return Err(CompileError::at(place, message));
        };
        let Some(weight) = item.weight else {
            let of_bucket = self.weights.get(&id).copied();
            return Ok((id, of_bucket.unwrap_or(crate::WEIGHT_ONE)));
        };
        if id >= 0 && weight > MAX_DEVICE_WEIGHT {
            let message = "device weight limited to 100";
            return Err(CompileError::at(place, message));
        }
        if id < 0 && weight > MAX_BUCKET_WEIGHT {
            let message = "bucket weight limited to 65535 to prevent overflow";
            return Err(CompileError::at(place, message));
        }
        Ok((id, weight))
    }

    fn rule(&mut self, r: &RuleText<'a>) -> Result<()> {
        let fail = |message: String| Err(CompileError::at(r.place, message));
        let name = r.name.map_or("", |n| n.text);
        if !name.is_empty() && self.map.rule_id(name).is_some() {
            return fail(format!("rule name '{name}' already defined"));
        }
        let Ok(ruleset) = u8::try_from(r.id) else {
            return fail(format!("unable to add rule id {} for rule '{name}'", r.id));
        };
        let steps: Result<Vec<Step>> = r.steps.iter().map(|s| self.step(s, name)).collect();
        let rule = Rule {
            ruleset,
            kind: r.kind,
            min_size: r.min_size,
            max_size: r.max_size,
            steps: steps?,
        };
        if self.map.place_rule(u32::from(ruleset), rule).is_err() {
            return fail(format!("rule {} already exists", r.id));
        }
        if !name.is_empty() {
            self.map.set_rule_name(u32::from(ruleset), name);
        }
        Ok(())
    }

    fn step(&self, step: &StepText<'a>, rule: &str) -> Result<Step> {
        Ok(match *step {
            StepText::Take(item, class) => Step::new(Op::TAKE, self.take(item, class, rule)?, 0),
            StepText::Set(op, n) => Step::new(op, n, 0),
            StepText::Choose(op, n, kind) => {
                let Some(&number) = self.types.get(kind.text) else {
                    let message = format!("in rule '{rule}' type '{}' not defined", kind.text);
                    return Err(CompileError::at(kind.place, message));
                };
                Step::new(op, n, number)
            }
            StepText::Emit => Step::new(Op::EMIT, 0, 0),
            StepText::Noop => Step::new(Op::NOOP, 0, 0),
        })
    }

    fn take(&self, item: Token<'a>, class: Option<Token<'a>>, rule: &str) -> Result<ItemId> {
        let name = item.text;
        let Some(&id) = self.items.get(name) else {
            let message = format!("in rule '{rule}' item '{name}' not defined");
            return Err(CompileError::at(item.place, message));
        };
        let Some(class) = class else { return Ok(id) };
        let number = self.map.class_id(class.text);
        let shadow = number.and_then(|class| self.map.shadow_of(id, class));
        shadow.ok_or_else(|| {
            let class_name = class.text;
            let message = format!(
                "in rule '{rule}' step take {name} no matching bucket for class {class_name}"
            );
            CompileError::at(class.place, message)
        })
    }

    fn choose_args(&mut self, text: &ChooseArgsText) -> Result<()> {
        let id = i64::from(text.id);
        if self.map.choose_args.contains_key(&id) {
            return Err(CompileError::at(text.place, format!("{id} duplicated")));
        }
        let mut args = ChooseArgs::default();
        for arg in &text.args {
            let fail = |message| Err(CompileError::at(arg.place, message));
            let bucket = arg.bucket;
            let Some(b) = self.map.bucket(bucket) else {
                return fail(format!("{bucket} does not exist"));
            };
            let size = b.items().len();
            let needs = |what: &str, n: usize| {
                fail(format!("{bucket} needs exactly {size} {what} but got {n}"))
            };
            if let Some(set) = arg.weight_sets.iter().find(|set| set.len() != size) {
                return needs("weights", set.len());
            }
            if !arg.ids.is_empty() && arg.ids.len() != size {
                return needs("ids", arg.ids.len());
            }
            let arg = ChooseArg { weight_sets: arg.weight_sets.clone(), ids: arg.ids.clone() };
            args.set(bucket, Some(arg));
        }
        self.map.choose_args.insert(id, args);
        Ok(())
    }
}
