//! The CRUSH map: `osd crush dump`, `osd crush rule dump`, tunables, weight-sets.

use super::weight;
use crush::{CrushMap, Op, Rule, Step, Tunables};
use serde_json::{Map, Value, json};

/// All of the map (`CrushWrapper::dump`).
pub(crate) fn json(map: &CrushMap) -> Value {
    // Ceph also shows the ids between them.
    let mut ids = map.placed_devices();
    ids.extend(map.item_names().map(|(id, _)| id).filter(|&id| id >= 0));
    let devices = ids.into_iter().map(|id| {
        let name = map.item_name(id).map_or_else(|| format!("device{id}"), str::to_owned);
        let mut device = Map::new();
        device.insert("id".into(), id.into());
        device.insert("name".into(), name.into());
        if let Some(class) = map.item_class(id) {
            device.insert("class".into(), class.into());
        }
        Value::Object(device)
    });
    let types = map.type_names().map(|(id, name)| json!({"type_id": id, "name": name}));
    let buckets = map.buckets().map(|b| {
        let items = b.entries().enumerate();
        let items = items.map(|(pos, (id, w))| json!({"id": id, "weight": w, "pos": pos}));
        json!({
            "id": b.id(),
            "name": map.item_name(b.id()).unwrap_or_default(),
            "type_id": b.kind(),
            "type_name": map.type_name(i32::from(b.kind())).unwrap_or_default(),
            "weight": b.weight(),
            "alg": b.algorithm().name(),
            "hash": "rjenkins1",
            "items": items.collect::<Vec<_>>(),
        })
    });
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "buckets": buckets.collect::<Vec<_>>(),
        "rules": rules_json(map),
        "tunables": tunables_json(map),
        "choose_args": choose_args_json(map),
    })
}

/// `osd crush rule dump`
pub(crate) fn rules_json(map: &CrushMap) -> Value {
    map.rules().map(|(number, rule)| rule_json(map, number, rule)).collect()
}

/// One rule.
pub(crate) fn rule_json(map: &CrushMap, number: u32, rule: &Rule) -> Value {
    json!({
        "rule_id": number,
        "rule_name": map.rule_name(number).unwrap_or_default(),
        "ruleset": rule.ruleset,
        "type": rule.kind,
        "min_size": rule.min_size,
        "max_size": rule.max_size,
        "steps": rule.steps.iter().map(|s| step_json(map, s)).collect::<Vec<_>>(),
    })
}

fn step_json(map: &CrushMap, step: &Step) -> Value {
    let choose = |op: &str| {
        let kind = map.type_name(step.arg2).unwrap_or_default();
        json!({"op": op, "num": step.arg1, "type": kind})
    };
    let set = |op: &str| json!({"op": op, "num": step.arg1});
    match step.op {
        Op::NOOP => json!({"op": "noop"}),
        Op::TAKE => {
            let name = map.item_name(step.arg1).unwrap_or_default();
            json!({"op": "take", "item": step.arg1, "item_name": name})
        }
        Op::EMIT => json!({"op": "emit"}),
        Op::CHOOSE_FIRSTN => choose("choose_firstn"),
        Op::CHOOSE_INDEP => choose("choose_indep"),
        Op::CHOOSELEAF_FIRSTN => choose("chooseleaf_firstn"),
        Op::CHOOSELEAF_INDEP => choose("chooseleaf_indep"),
        Op::SET_CHOOSE_TRIES => set("set_choose_tries"),
        Op::SET_CHOOSELEAF_TRIES => set("set_chooseleaf_tries"),
        other => json!({"opcode": other.0, "arg1": step.arg1, "arg2": step.arg2}),
    }
}

/// Whether any rule has a step of one of these kinds.
fn has_steps(map: &CrushMap, ops: &[Op]) -> u8 {
    u8::from(map.rules().any(|(_, r)| r.steps.iter().any(|s| ops.contains(&s.op))))
}

/// `osd crush show-tunables`
pub(crate) fn tunables_json(map: &CrushMap) -> Value {
    let t = &map.tunables;
    let is = |name: &str| u8::from(t.with_profile(name).is_some_and(|p| same(&p, t)));
    let v2 = has_steps(
        map,
        &[Op::CHOOSE_INDEP, Op::CHOOSELEAF_INDEP, Op::SET_CHOOSE_TRIES, Op::SET_CHOOSELEAF_TRIES],
    );
    // A rule as erasure-code profiles make them needs all of that; plain indep ones do not count.
    let v2 = v2 & has_steps(map, &[Op::SET_CHOOSE_TRIES, Op::SET_CHOOSELEAF_TRIES]);
    let v3 = has_steps(map, &[Op::SET_CHOOSELEAF_VARY_R]);
    let v5 = has_steps(map, &[Op::SET_CHOOSELEAF_STABLE]);
    let v4 = u8::from(map.buckets().any(|b| b.algorithm() == crush::Algorithm::Straw2));
    let features = u8::from(
        t.choose_local_tries != 2
            || t.choose_local_fallback_tries != 5
            || t.choose_total_tries != 19,
    );
    json!({
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": t.profile(),
        "optimal_tunables": is("jewel"),
        "legacy_tunables": is("argonaut"),
        "minimum_required_version": minimum_version(t, v2, v3, v4, v5),
        "require_feature_tunables": features,
        "require_feature_tunables2": u8::from(t.chooseleaf_descend_once != 0),
        "has_v2_rules": v2,
        "require_feature_tunables3": u8::from(t.chooseleaf_vary_r != 0),
        "has_v3_rules": v3,
        "has_v4_buckets": v4,
        "require_feature_tunables5": u8::from(t.chooseleaf_stable != 0),
        "has_v5_rules": v5,
    })
}

fn same(a: &Tunables, b: &Tunables) -> bool {
    Tunables { straw_calc_version: 0, ..*a } == Tunables { straw_calc_version: 0, ..*b }
}

fn minimum_version(t: &Tunables, v2: u8, v3: u8, v4: u8, v5: u8) -> &'static str {
    match () {
        () if v5 != 0 || t.chooseleaf_stable != 0 => "jewel",
        () if v4 != 0 => "hammer",
        () if v3 != 0 || v2 != 0 || t.chooseleaf_vary_r != 0 => "firefly",
        () if t.chooseleaf_descend_once != 0 || t.choose_total_tries != 19 => "bobtail",
        () => "argonaut",
    }
}

/// `osd crush weight-set dump`
pub(crate) fn choose_args_json(map: &CrushMap) -> Value {
    let sets = map.choose_args().map(|(id, args)| {
        let of = args.iter().map(|(bucket, arg)| {
            let mut entry = Map::new();
            entry.insert("bucket_id".into(), bucket.into());
            let sets = arg.weight_sets.iter();
            let sets = sets.map(|set| set.iter().map(|w| weight(*w)).collect::<Value>());
            entry.insert("weight_set".into(), sets.collect());
            if !arg.ids.is_empty() {
                entry.insert("ids".into(), arg.ids.clone().into());
            }
            Value::Object(entry)
        });
        (id.to_string(), of.collect())
    });
    Value::Object(sets.collect())
}
