//! The hierarchy, walked as Ceph walks it (`crush/CrushTreeDumper.h`): `osd tree`, `osd df`,
//! `osd crush tree`.

use super::osdmap::status;
use super::{weight, weight_text};
use admin::{Align, TextTable};
use crush::CrushMap;
use maps::OsdMap;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;

/// A place in the walk.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub id: i32,
    /// The bucket it stands in; 0 for none.
    pub parent: i32,
    pub depth: usize,
    pub weight: f64,
    /// Of a bucket, in the order of Ceph's JSON: the last one of the walk first.
    pub children: Vec<i32>,
}

/// Items that a walk shows, at most. Only of a map with very many ways to its items there are more (`crush::MAX_WAYS`),
/// which is not taken any more.
const MAX_ITEMS: usize = 1 << 20;

/// Names of pools, for those that have weight-sets of their own.
pub(crate) type PoolNames = BTreeMap<i64, String>;

/// The wanted OSDs that a walk did not come by: they stand nowhere in the hierarchy.
pub(crate) fn stray(map: &OsdMap, walked: &[Item], wanted: &dyn Fn(i32) -> bool) -> Vec<Item> {
    let touched: BTreeSet<i32> = walked.iter().map(|i| i.id).collect();
    let ids = map.existing_osds().map(|osd| osd.0);
    let stray = ids.filter(|id| !touched.contains(id) && wanted(*id));
    stray.map(|id| Item { id, parent: 0, depth: 0, weight: 0.0, children: Vec::new() }).collect()
}

/// Walks from the roots down, each bucket before what is in it; siblings sorted by class and name.
/// `wanted` chooses devices; buckets without any are left out unless `empty_buckets`.
pub(crate) fn walk(
    map: &CrushMap,
    roots: &[i32],
    empty_buckets: bool,
    wanted: &dyn Fn(i32) -> bool,
) -> Vec<Item> {
    let shown = |id: i32| match map.bucket(id) {
        None => wanted(id),
        Some(_) => empty_buckets || map.devices_below(id).into_iter().any(wanted),
    };
    let mut found = Vec::new();
    for &root in roots.iter().filter(|&&id| shown(id)) {
        let weight = match map.bucket(root) {
            Some(bucket) => weight(bucket.weight()),
            None => map.item_weight(root).map_or(0.0, weight),
        };
        let mut stack = vec![Item { id: root, parent: 0, depth: 0, weight, children: Vec::new() }];
        while found.len() < MAX_ITEMS
            && let Some(mut item) = stack.pop()
        {
            for (_, child, weight) in sorted_children(map, item.id, &shown).into_iter().rev() {
                item.children.push(child);
                stack.push(Item {
                    id: child,
                    parent: item.id,
                    depth: item.depth + 1,
                    weight,
                    children: Vec::new(),
                });
            }
            found.push(item);
        }
    }
    found
}

fn sorted_children(
    map: &CrushMap,
    bucket: i32,
    shown: &dyn Fn(i32) -> bool,
) -> Vec<(String, i32, f64)> {
    let Some(bucket) = map.bucket(bucket) else { return Vec::new() };
    let mut children: Vec<(String, i32, f64)> = bucket
        .entries()
        .filter(|(id, _)| shown(*id))
        .map(|(id, w)| {
            let key = if id >= 0 {
                format!("{}_osd.{id:08}", map.item_class(id).unwrap_or_default())
            } else {
                format!("_{}", map.item_name(id).unwrap_or_default())
            };
            (key, id, weight(w))
        })
        .collect();
    children.sort_by(|a, b| a.0.cmp(&b.0));
    children
}

/// The roots a tree starts from: from -1 downwards in memory, listed from the lowest id.
pub(crate) fn roots(map: &CrushMap, shadows: bool) -> Vec<i32> {
    let mut roots: Vec<i32> =
        if shadows { map.roots().collect() } else { map.real_roots().collect() };
    roots.sort_unstable();
    roots
}

/// Fields that every kind of tree has.
pub(crate) fn item_json(map: &CrushMap, pools: &PoolNames, item: &Item) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("id".into(), item.id.into());
    if let Some(class) = map.item_class(item.id) {
        out.insert("device_class".into(), class.into());
    }
    match map.bucket(item.id) {
        Some(bucket) => {
            let kind = i32::from(bucket.kind());
            out.insert("name".into(), map.item_name(item.id).unwrap_or_default().into());
            out.insert("type".into(), map.type_name(kind).unwrap_or_default().into());
            out.insert("type_id".into(), kind.into());
        }
        None => {
            out.insert("name".into(), format!("osd.{}", item.id).into());
            out.insert("type".into(), map.type_name(0).unwrap_or_default().into());
            out.insert("type_id".into(), 0.into());
            out.insert("crush_weight".into(), item.weight.into());
            out.insert("depth".into(), item.depth.into());
        }
    }
    if item.parent < 0 {
        out.insert("pool_weights".into(), pool_weights(map, pools, item));
    }
    out
}

/// The children, as the last field of a bucket.
pub(crate) fn children_json(item: &Item) -> Option<Value> {
    (item.id < 0).then(|| item.children.clone().into())
}

fn set_name(pools: &PoolNames, id: i64) -> String {
    match id {
        crush::COMPAT_CHOOSE_ARGS => "(compat)".to_owned(),
        id => pools.get(&id).cloned().unwrap_or_else(|| id.to_string()),
    }
}

fn pool_weights(map: &CrushMap, pools: &PoolNames, item: &Item) -> Value {
    let Some(pos) = map.bucket(item.parent).and_then(|b| b.position(item.id)) else {
        return json!({});
    };
    let sets = map.choose_args().filter_map(|(id, args)| {
        let arg = args.get(item.parent).filter(|a| !a.weight_sets.is_empty())?;
        let weights = arg.weight_sets.iter().filter_map(|set| set.get(pos));
        Some((set_name(pools, id), weights.map(|w| weight(*w)).collect()))
    });
    Value::Object(sets.collect())
}

/// Which OSDs a tree shows: all of these must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(pub Vec<String>);

impl Filter {
    fn passes(&self, map: &OsdMap, id: i32) -> bool {
        let id = OsdId(id);
        let destroyed = map.state(id).contains(maps::OsdState::DESTROYED);
        self.0.iter().all(|word| match word.as_str() {
            "up" => map.is_up(id),
            "down" => map.exists(id) && !map.is_up(id) && !destroyed,
            "in" => map.is_in(id),
            "out" => map.exists(id) && map.is_out(id),
            "destroyed" => destroyed,
            _ => true,
        })
    }
}

/// `osd tree`: the walk and the OSDs that stand nowhere.
fn osd_items(map: &OsdMap, from: Option<i32>, filter: &Filter) -> (Vec<Item>, Vec<Item>) {
    let crush = map.crush();
    let wanted = |id: i32| filter.passes(map, id);
    let starts = from.map_or_else(|| roots(crush, false), |id| vec![id]);
    let items = walk(crush, &starts, filter.0.is_empty(), &wanted);
    let stray = stray(map, &items, &|id| from.is_none() && wanted(id));
    (items, stray)
}

/// `osd tree -f json`
pub(crate) fn osd_json(
    map: &OsdMap,
    pools: &PoolNames,
    from: Option<i32>,
    filter: &Filter,
) -> Value {
    let show = |item: &Item| {
        let mut out = item_json(map.crush(), pools, item);
        match children_json(item) {
            Some(children) => {
                out.insert("children".into(), children);
            }
            None => {
                let id = OsdId(item.id);
                out.insert("exists".into(), u8::from(map.exists(id)).into());
                let word = if map.exists(id) { status(map, id) } else { "down" };
                out.insert("status".into(), word.into());
                out.insert("reweight".into(), weight(map.weight(id)).into());
                out.insert("primary_affinity".into(), weight(map.primary_affinity(id)).into());
            }
        }
        Value::Object(out)
    };
    let (items, stray) = osd_items(map, from, filter);
    let nodes: Vec<Value> = items.iter().map(show).collect();
    match from {
        Some(_) => json!({ "nodes": nodes }),
        None => json!({"nodes": nodes, "stray": stray.iter().map(show).collect::<Vec<_>>()}),
    }
}

/// `    host h0`, indented by depth.
pub(crate) fn indented_name(map: &CrushMap, item: &Item) -> String {
    let indent = "    ".repeat(item.depth);
    match map.bucket(item.id) {
        None => format!("{indent}osd.{}", item.id),
        Some(bucket) => {
            let kind = map.type_name(i32::from(bucket.kind())).unwrap_or_default();
            format!("{indent}{kind} {}", map.item_name(item.id).unwrap_or_default())
        }
    }
}

/// `osd tree` for people.
pub(crate) fn osd_text(map: &OsdMap, from: Option<i32>, filter: &Filter) -> String {
    let crush = map.crush();
    let mut table = TextTable::new()
        .columns(&["ID", "CLASS", "WEIGHT"], Align::Left, Align::Right)
        .column("TYPE NAME", Align::Left, Align::Left)
        .columns(&["STATUS", "REWEIGHT", "PRI-AFF"], Align::Left, Align::Right);
    let (items, stray) = osd_items(map, from, filter);
    for item in items.iter().chain(&stray) {
        let mut row = vec![
            item.id.to_string(),
            crush.item_class(item.id).unwrap_or_default().to_owned(),
            weight_text(item.weight),
            indented_name(crush, item),
        ];
        if item.id >= 0 {
            let id = OsdId(item.id);
            row.push(status(map, id).to_owned());
            row.push(if map.exists(id) { weight_text(weight(map.weight(id))) } else { "0".into() });
            row.push(weight_text(weight(map.primary_affinity(id))));
        } else {
            row.extend([String::new(), String::new(), String::new()]);
        }
        table.row(row);
    }
    table.to_string()
}

/// `osd crush tree -f json`
pub(crate) fn crush_json(map: &CrushMap, pools: &PoolNames, shadows: bool) -> Value {
    let items = walk(map, &roots(map, shadows), true, &|_| true);
    let nodes = items.iter().map(|item| {
        let mut out = item_json(map, pools, item);
        if let Some(children) = children_json(item) {
            out.insert("children".into(), children);
        }
        Value::Object(out)
    });
    json!({"nodes": nodes.collect::<Vec<_>>(), "stray": []})
}

/// `osd crush tree` for people.
pub(crate) fn crush_text(map: &CrushMap, pools: &PoolNames, shadows: bool) -> String {
    let sets: Vec<i64> = map.choose_args().map(|(id, _)| id).collect();
    let mut table = TextTable::new().columns(&["ID", "CLASS", "WEIGHT"], Align::Left, Align::Right);
    for &id in &sets {
        table = table.column(&set_name(pools, id), Align::Left, Align::Right);
    }
    table = table.column("TYPE NAME", Align::Left, Align::Left);
    for item in walk(map, &roots(map, shadows), true, &|_| true) {
        let mut row = vec![
            item.id.to_string(),
            map.item_class(item.id).unwrap_or_default().to_owned(),
            weight_text(item.weight),
        ];
        let pos = map.bucket(item.parent).and_then(|b| b.position(item.id));
        for (_, args) in map.choose_args() {
            let set = args.get(item.parent).and_then(|a| a.weight_sets.first());
            let w = set.and_then(|set| set.get(pos?));
            row.push(w.map_or_else(String::new, |w| weight_text(weight(*w))));
        }
        row.push(indented_name(map, &item));
        table.row(row);
    }
    table.to_string()
}
