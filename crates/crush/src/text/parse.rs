//! Reading a text into its parts (`crush/grammar.h`).

use super::ast::{
    Ast, BucketText, ChooseArgText, ChooseArgsText, Device, ItemText, RuleText, StepText,
};
use super::tokens::{Tokens, unexpected};
use super::{CompileError, Place};
use crate::map::{Op, RULE_ERASURE, RULE_REPLICATED};

type Result<T> = std::result::Result<T, CompileError>;

/// Reads everything: first tunables, devices and types, then buckets, then rules, then
/// choose_args.
pub(super) fn parse(text: &str) -> Result<Ast<'_>> {
    let mut t = Tokens::new(text);
    let mut ast = Ast::default();
    loop {
        if t.accept("tunable") {
            let name = t.name("the name of a tunable")?;
            ast.tunables.push((name, t.int("a number")?));
        } else if t.accept("device") {
            let id = t.int("the id of a device")?;
            let name = t.name("the name of a device")?;
            let class = t.accept("class").then(|| t.name("a class")).transpose()?;
            ast.devices.push(Device { id, name, class });
        } else if t.accept("type") {
            let id = t.int("the number of a type")?;
            ast.types.push((id, t.name("the name of a type")?));
        } else {
            break;
        }
    }
    while let Some(word) = t.peek() {
        let place = t.place();
        if word == "choose_args" {
            break;
        } else if t.accept("rule") {
            ast.rules.push(rule(&mut t, place)?);
        } else if ast.rules.is_empty() {
            ast.buckets.push(bucket(&mut t)?);
        } else {
            return Err(CompileError::at(place, "buckets must be defined before rules"));
        }
    }
    while t.peek().is_some() {
        ast.choose_args.push(choose_args(&mut t)?);
    }
    Ok(ast)
}

fn bucket<'a>(t: &mut Tokens<'a>) -> Result<BucketText<'a>> {
    let kind = t.name("the type of a bucket")?;
    let name = t.name("the name of a bucket")?;
    t.expect("{")?;
    let mut ids = Vec::new();
    while t.accept("id") {
        let place = t.place();
        let id = t.int("a bucket's id")?;
        if id >= 0 {
            return Err(CompileError::at(place, "a bucket's id is below 0"));
        }
        let class = t.accept("class").then(|| t.name("a class")).transpose()?;
        ids.push((id, class));
    }
    t.expect("alg")?;
    let alg = t.name("a bucket algorithm")?;
    let mut hash = 0;
    while t.accept("hash") {
        hash = if t.accept("rjenkins1") { 0 } else { t.int("the number of a hash")? as u8 };
    }
    let mut items = Vec::new();
    while t.accept("item") {
        items.push(ItemText {
            name: t.name("the name of an item")?,
            weight: t.accept("weight").then(|| t.weight()).transpose()?,
            pos: t.accept("pos").then(|| t.int("a position")).transpose()?,
        });
    }
    t.expect("}")?;
    Ok(BucketText { kind, name, ids, alg, hash, items })
}

fn rule<'a>(t: &mut Tokens<'a>, place: Place) -> Result<RuleText<'a>> {
    let name = match t.peek() {
        Some("{") => None,
        _ => Some(t.name("the name of a rule")?),
    };
    t.expect("{")?;
    if !t.accept("ruleset") {
        t.expect("id")?;
    }
    let id = t.int("the id of a rule")?;
    t.expect("type")?;
    let kind = match t.take("the type of a rule")? {
        token if token.text == "replicated" => RULE_REPLICATED,
        token if token.text == "erasure" => RULE_ERASURE,
        token => return Err(unexpected(token, "'replicated' or 'erasure'")),
    };
    // Later versions leave these out.
    let (mut min_size, mut max_size) = (1, 100);
    if t.accept("min_size") {
        min_size = t.int("a number")? as u8;
    }
    if t.accept("max_size") {
        max_size = t.int("a number")? as u8;
    }
    let mut steps = Vec::new();
    while t.accept("step") {
        steps.push(step(t)?);
    }
    if steps.is_empty() {
        t.expect("step")?;
    }
    t.expect("}")?;
    Ok(RuleText { place, name, id, kind, min_size, max_size, steps })
}

fn step<'a>(t: &mut Tokens<'a>) -> Result<StepText<'a>> {
    let verb = t.take("a step")?;
    let op = match verb.text {
        "take" => {
            let item = t.name("the name of an item")?;
            let class = t.accept("class").then(|| t.name("a class")).transpose()?;
            return Ok(StepText::Take(item, class));
        }
        "emit" => return Ok(StepText::Emit),
        "noop" => return Ok(StepText::Noop),
        "choose" | "chooseleaf" => {
            let mode = t.take("'firstn' or 'indep'")?;
            let op = match (verb.text, mode.text) {
                ("choose", "firstn") => Op::CHOOSE_FIRSTN,
                ("choose", "indep") => Op::CHOOSE_INDEP,
                (_, "firstn") => Op::CHOOSELEAF_FIRSTN,
                (_, "indep") => Op::CHOOSELEAF_INDEP,
                _ => return Err(unexpected(mode, "'firstn' or 'indep'")),
            };
            let n = t.int("a number")?;
            t.expect("type")?;
            return Ok(StepText::Choose(op, n, t.name("a type")?));
        }
        "set_choose_tries" => Op::SET_CHOOSE_TRIES,
        "set_choose_local_tries" => Op::SET_CHOOSE_LOCAL_TRIES,
        "set_choose_local_fallback_tries" => Op::SET_CHOOSE_LOCAL_FALLBACK_TRIES,
        "set_chooseleaf_tries" => Op::SET_CHOOSELEAF_TRIES,
        "set_chooseleaf_vary_r" => Op::SET_CHOOSELEAF_VARY_R,
        "set_chooseleaf_stable" => Op::SET_CHOOSELEAF_STABLE,
        _ => return Err(unexpected(verb, "a step")),
    };
    Ok(StepText::Set(op, t.int("a number")?))
}

fn choose_args(t: &mut Tokens<'_>) -> Result<ChooseArgsText> {
    let place = t.expect("choose_args")?;
    let id = t.int("the id of choose_args")?;
    t.expect("{")?;
    let mut args = Vec::new();
    while !t.accept("}") {
        let place = t.expect("{")?;
        t.expect("bucket_id")?;
        let mut arg = ChooseArgText {
            place,
            bucket: t.int("the id of a bucket")?,
            weight_sets: Vec::new(),
            ids: Vec::new(),
        };
        if t.accept("weight_set") {
            t.expect("[")?;
            while !t.accept("]") {
                t.expect("[")?;
                let mut set = Vec::new();
                while !t.accept("]") {
                    set.push(t.weight()?);
                }
                arg.weight_sets.push(set);
            }
        }
        if t.accept("ids") {
            t.expect("[")?;
            while !t.accept("]") {
                arg.ids.push(t.int("an id")?);
            }
        }
        t.expect("}")?;
        args.push(arg);
    }
    Ok(ChooseArgsText { place, id, args })
}
