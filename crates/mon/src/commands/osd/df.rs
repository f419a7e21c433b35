//! `osd df`: how full each OSD is, and each bucket of the hierarchy.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::pgmap::OsdSum;
use crate::show::osdmap::status;
use crate::show::tree::{self, Item};
use crate::show::{weight, weight_text};
use admin::units::Bytes;
use admin::{Align, Answer, CommandError, TextTable};
use maps::OsdMap;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[read(
    "osd df [output_method:Choices,plain|tree] [filter_by:Choices,class|name] [filter:String]",
    "osd",
    "shows how full OSDs are",
    df,
)];

/// What is shown, and what it adds up to.
struct Usage<'a> {
    c: &'a Cluster,
    map: &'a OsdMap,
    /// The devices that were asked for; `None` for all.
    only: Option<BTreeSet<i32>>,
    /// PGs that each OSD serves.
    pgs: BTreeMap<OsdId, (usize, usize)>,
    /// Of all that is shown and in.
    total: OsdSum,
}

/// What an OSD or bucket holds.
struct Line {
    sum: OsdSum,
    /// Per cent in use.
    used: f64,
    /// That, relative to the mean.
    var: f64,
}

impl<'a> Usage<'a> {
    fn new(c: &'a Cluster, only: Option<BTreeSet<i32>>) -> Self {
        let map = c.map();
        let shown = |id: &OsdId| only.as_ref().is_none_or(|only| only.contains(&id.0));
        let total = c.pgmap.osd_sum(map.existing_osds().filter(|&o| map.is_in(o)).filter(shown));
        Usage { c, map, pgs: c.pgmap.pgs_by_osd(), total, only }
    }

    fn shows(&self, id: i32) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&id))
    }

    fn line(&self, id: i32) -> Line {
        let crush = self.map.crush();
        let below = if id >= 0 { BTreeSet::from([id]) } else { crush.devices_below(id) };
        // What is out holds nothing that counts.
        let counted = below.into_iter().filter(|&o| self.shows(o)).map(OsdId);
        let counted = counted.filter(|&o| id >= 0 || self.map.is_in(o));
        let sum = match id >= 0 && self.map.is_out(OsdId(id)) {
            true => OsdSum::default(),
            false => self.c.pgmap.osd_sum(counted),
        };
        let (used, mean) = (sum.used_ratio() * 100.0, self.total.used_ratio() * 100.0);
        let var = if mean > 0.0 { used / mean } else { 0.0 };
        Line { sum, used, var }
    }

    /// Everything in the order of the hierarchy; then what stands nowhere in it.
    fn items(&self) -> (Vec<Item>, Vec<Item>) {
        let crush = self.map.crush();
        let all = self.only.is_none();
        let items = tree::walk(crush, &tree::roots(crush, false), all, &|id| self.shows(id));
        let stray = tree::stray(self.map, &items, &|id| self.shows(id));
        (items, stray)
    }

    /// Least and greatest variance, and the standard deviation of the use.
    fn spread(&self) -> (f64, f64, f64) {
        let (items, stray) = self.items();
        let mean = self.total.used_ratio() * 100.0;
        let devices = items.iter().chain(&stray).filter(|i| i.id >= 0);
        let lines = devices.filter(|i| self.map.is_in(OsdId(i.id))).map(|i| self.line(i.id));
        let lines: Vec<Line> = lines.filter(|l| l.sum.total > 0).collect();
        let min = lines.iter().map(|l| l.var).min_by(f64::total_cmp).unwrap_or(0.0);
        let max = lines.iter().map(|l| l.var).max_by(f64::total_cmp).unwrap_or(0.0);
        let squares: f64 = lines.iter().map(|l| (l.used - mean).powi(2)).sum();
        let dev = if lines.is_empty() { 0.0 } else { (squares / lines.len() as f64).sqrt() };
        (min, max, dev)
    }

    fn pgs(&self, id: i32) -> usize {
        self.pgs.get(&OsdId(id)).map_or(0, |n| n.0)
    }
}

/// The devices a filter chooses.
fn chosen(c: &Cluster, call: &Call) -> Result<Option<BTreeSet<i32>>, CommandError> {
    if !call.args.has("filter") {
        return Ok(None);
    }
    let text = call.args.text("filter");
    let crush = c.map().crush();
    let by_class = call.args.text("filter_by") == "class";
    let class = || crush.class_id(&text).map(|class| crush.devices_of_class(class).collect());
    let pool = || {
        let pool = c.map().pool(c.map().pool_by_name(&text)?)?;
        let rule = c.map().rule_of(pool)?;
        let takes = crush.rule(rule)?.takes();
        Some(takes.flat_map(|take| crush.devices_below(take)).collect())
    };
    let node = || crush.item_id(&text).map(|id| crush.devices_below(id));
    let found = if by_class { class() } else { pool().or_else(node).or_else(class) };
    found.map(Some).ok_or_else(|| {
        let text = format!("'{text}' not a pool, crush node or device class name");
        CommandError::invalid(text)
    })
}

fn df(c: &Cluster, call: &Call) -> Reply {
    let usage = Usage::new(c, chosen(c, call)?);
    let tree = call.args.text("output_method") == "tree";
    Ok(Answer::either(call.format(), || usage_json(&usage, tree), || usage_text(&usage, tree)))
}

fn kb_fields(out: &mut Map<String, Value>, before: &str, sum: &OsdSum) {
    let fields = [
        ("kb", sum.total),
        ("kb_used", sum.used()),
        ("kb_used_data", sum.data),
        ("kb_used_omap", sum.omap),
        ("kb_used_meta", sum.meta),
        ("kb_avail", sum.available),
    ];
    for (name, bytes) in fields {
        out.insert(format!("{before}{name}"), (bytes >> 10).into());
    }
}

fn usage_json(usage: &Usage<'_>, tree: bool) -> Value {
    let pools = usage.c.pool_names();
    let show = |item: &Item| {
        let mut out = tree::item_json(usage.map.crush(), &pools, item);
        let id = OsdId(item.id);
        let line = usage.line(item.id);
        let reweight = if item.id >= 0 { weight(usage.map.weight(id)) } else { -1.0 };
        out.insert("reweight".into(), reweight.into());
        kb_fields(&mut out, "", &line.sum);
        out.insert("utilization".into(), line.used.into());
        out.insert("var".into(), line.var.into());
        out.insert("pgs".into(), usage.pgs(item.id).into());
        match item.id >= 0 {
            true => out.insert("status".into(), status(usage.map, id).into()),
            false => out.insert("children".into(), item.children.clone().into()),
        };
        Value::Object(out)
    };
    let (items, stray) = usage.items();
    let nodes: Vec<Value> = items.iter().filter(|i| tree || i.id >= 0).map(show).collect();
    let (min, max, dev) = usage.spread();
    let mut summary = Map::new();
    kb_fields(&mut summary, "total_", &usage.total);
    summary.insert("average_utilization".into(), (usage.total.used_ratio() * 100.0).into());
    summary.insert("min_var".into(), min.into());
    summary.insert("max_var".into(), max.into());
    summary.insert("dev".into(), dev.into());
    json!({"nodes": nodes, "stray": stray.iter().map(show).collect::<Vec<_>>(), "summary": summary})
}

fn sizes(sum: &OsdSum) -> [String; 6] {
    [sum.total, sum.used(), sum.data, sum.omap, sum.meta, sum.available]
        .map(|bytes| Bytes(bytes).to_string())
}

/// Two decimals; a plain zero for next to nothing (`lowprecision_t`).
fn two_decimals(x: f64) -> String {
    if x < 0.01 { "0".to_owned() } else { format!("{x:.2}") }
}

fn usage_text(usage: &Usage<'_>, tree: bool) -> String {
    let mut table = TextTable::new()
        .columns(&["ID", "CLASS", "WEIGHT", "REWEIGHT"], Align::Left, Align::Right)
        .columns(&["SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL"], Align::Left, Align::Right)
        .columns(&["%USE", "VAR", "PGS", "STATUS"], Align::Left, Align::Right);
    if tree {
        table = table.column("TYPE NAME", Align::Left, Align::Left);
    }
    let (items, stray) = usage.items();
    for item in items.iter().chain(&stray).filter(|i| tree || i.id >= 0) {
        let crush = usage.map.crush();
        let id = OsdId(item.id);
        let line = usage.line(item.id);
        let device = item.id >= 0;
        let mut row = vec![
            item.id.to_string(),
            crush.item_class(item.id).unwrap_or_default().to_owned(),
            weight_text(item.weight),
            if device { weight_text(weight(usage.map.weight(id))) } else { "-".into() },
        ];
        row.extend(sizes(&line.sum));
        row.push(two_decimals(line.used));
        row.push(two_decimals(line.var));
        row.push(if device { usage.pgs(item.id).to_string() } else { "-".into() });
        row.push(if device { status(usage.map, id).to_owned() } else { String::new() });
        if tree {
            // Buckets have a space behind their name.
            let name = tree::indented_name(crush, item);
            row.push(if device { name } else { format!("{name} ") });
        }
        table.row(row);
    }
    let mut total: Vec<String> = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
    total.extend(sizes(&usage.total));
    total.push(two_decimals(usage.total.used_ratio() * 100.0));
    total.extend(vec![String::new(); if tree { 4 } else { 3 }]);
    table.row(total);
    let (min, max, dev) = usage.spread();
    let (min, max, dev) = (two_decimals(min), two_decimals(max), two_decimals(dev));
    format!("{table}MIN/MAX VAR: {min}/{max}  STDDEV: {dev}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_ceph_prints_them() {
        assert_eq!([0.0, 0.0031, 0.01, 7.086].map(two_decimals), ["0", "0", "0.01", "7.09"]);
    }
}
