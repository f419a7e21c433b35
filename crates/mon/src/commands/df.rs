//! `df`: space, of the devices and of the pools.

use super::{Call, CommandDef, Reply, read};
use crate::cluster::Cluster;
use crate::pgmap::{OsdSum, copies};
use admin::units::{Bytes, Si};
use admin::{Align, Answer, TextTable};
use maps::PgPool;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::{OsdId, PoolId};
use wire::msg::PoolStat;

pub(super) const COMMANDS: &[CommandDef] = &[read(
    "df [detail:Choices,detail]",
    "mon",
    "shows the space of the cluster and of its pools",
    df,
)];

/// Space of one pool.
struct PoolSpace<'a> {
    id: PoolId,
    name: &'a str,
    pool: &'a PgPool,
    stat: PoolStat,
    /// How many copies there are of each of its objects.
    copies: f64,
    /// Bytes that can still be put on devices.
    avail_raw: u64,
}

impl PoolSpace<'_> {
    fn max_avail(&self) -> u64 {
        self.avail_raw / u64::from(self.pool.size.max(1))
    }

    /// Bytes on devices.
    fn used(&self) -> u64 {
        self.used_data().saturating_add(self.used_omap())
    }

    fn used_data(&self) -> u64 {
        count(self.stat.store_stats.allocated)
    }

    fn used_omap(&self) -> u64 {
        count(self.stat.store_stats.omap_allocated)
    }

    fn used_ratio(&self) -> f32 {
        let all = self.used() as f64 + self.avail_raw as f64;
        if all > 0.0 { (self.used() as f64 / all) as f32 } else { 0.0 }
    }

    /// Bytes that its objects have, in one copy.
    fn stored(&self) -> u64 {
        self.stored_data().saturating_add(self.stored_omap())
    }

    fn stored_data(&self) -> u64 {
        let raw = count(self.stat.store_stats.data_stored) as f64;
        if self.copies > 0.0 { (raw / self.copies).round() as u64 } else { 0 }
    }

    fn stored_omap(&self) -> u64 {
        count(self.stat.stats.sum.num_omap_bytes)
    }
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn pools(c: &Cluster) -> Vec<PoolSpace<'_>> {
    let map = c.map();
    let mut sums = c.pgmap.sums(map);
    // There may be thousands of pools, and few rules.
    let mut by_rule: BTreeMap<u32, u64> = BTreeMap::new();
    let mut available = |pool| {
        let rule = map.rule_of(pool)?;
        Some(*by_rule.entry(rule).or_insert_with(|| c.pgmap.rule_available(map, rule)))
    };
    let space = |(&id, pool)| {
        let stat = sums.pools.remove(&id).unwrap_or_default();
        PoolSpace {
            id,
            name: map.pool_name(id).unwrap_or_default(),
            pool,
            copies: copies(pool, &stat.stats.sum),
            avail_raw: available(pool).unwrap_or(0),
            stat,
        }
    };
    map.pools.iter().map(|(id, pool)| (id, &**pool)).map(space).collect()
}

/// Space by device class; OSDs without one count only in the total.
fn classes(c: &Cluster) -> BTreeMap<String, OsdSum> {
    let map = c.map();
    let mut by: BTreeMap<String, Vec<OsdId>> = BTreeMap::new();
    for id in map.in_osds() {
        if let Some(class) = map.crush().item_class(id.0) {
            by.entry(class.to_owned()).or_default().push(id);
        }
    }
    by.into_iter().map(|(class, osds)| (class, c.pgmap.osd_sum(osds))).collect()
}

fn df(c: &Cluster, call: &Call) -> Reply {
    let detail = call.args.has("detail");
    Ok(Answer::either(call.format(), || df_json(c, detail), || df_text(c, detail)))
}

fn raw_json(sum: &OsdSum) -> Map<String, Value> {
    let value = json!({
        "total_bytes": sum.total,
        "total_avail_bytes": sum.available,
        "total_used_bytes": sum.used(),
        "total_used_raw_bytes": sum.used(),
        "total_used_raw_ratio": f64::from(sum.used_ratio() as f32),
    });
    value.as_object().cloned().unwrap_or_default()
}

fn df_json(c: &Cluster, detail: bool) -> Value {
    let total = c.pgmap.osd_sum(c.map().in_osds());
    let mut stats = raw_json(&total);
    stats.insert("num_osds".into(), total.osds.into());
    stats.insert("num_per_pool_osds".into(), total.per_pool.into());
    stats.insert("num_per_pool_omap_osds".into(), 0.into());
    let classes: Map<String, Value> =
        classes(c).iter().map(|(class, sum)| (class.clone(), raw_json(sum).into())).collect();
    let pools = pools(c);
    let pools = pools.iter().map(|p| {
        let stats = if detail { detail_json(p) } else { brief_json(p) };
        json!({"name": p.name, "id": p.id.0, "stats": stats})
    });
    json!({"stats": stats, "stats_by_class": classes, "pools": pools.collect::<Vec<_>>()})
}

fn brief_json(p: &PoolSpace<'_>) -> Value {
    json!({
        "stored": p.stored(),
        "objects": p.stat.stats.sum.num_objects,
        "kb_used": p.used().div_ceil(1024),
        "bytes_used": p.used(),
        "percent_used": f64::from(p.used_ratio()),
        "max_avail": p.max_avail(),
    })
}

fn detail_json(p: &PoolSpace<'_>) -> Value {
    let sum = &p.stat.stats.sum;
    json!({
        "stored": p.stored(),
        "stored_data": p.stored_data(),
        "stored_omap": p.stored_omap(),
        "objects": sum.num_objects,
        "kb_used": p.used().div_ceil(1024),
        "bytes_used": p.used(),
        "data_bytes_used": p.used_data(),
        "omap_bytes_used": p.used_omap(),
        "percent_used": f64::from(p.used_ratio()),
        "max_avail": p.max_avail(),
        "quota_objects": p.pool.quota_max_objects,
        "quota_bytes": p.pool.quota_max_bytes,
        "dirty": sum.num_objects_dirty,
        "rd": sum.num_rd,
        "rd_bytes": count(sum.num_rd_kb) << 10,
        "wr": sum.num_wr,
        "wr_bytes": count(sum.num_wr_kb) << 10,
        "compress_bytes_used": count(p.stat.store_stats.data_compressed_allocated),
        "compress_under_bytes": count(p.stat.store_stats.data_compressed_original),
        "stored_raw": (p.stored() as f64 * p.copies).round() as u64,
        "avail_raw": p.avail_raw,
    })
}

/// A share in percent as tables show it: nothing below a hundredth.
fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 0.01 { "0".to_owned() } else { format!("{percent:.2}") }
}

fn df_text(c: &Cluster, detail: bool) -> String {
    let mut raw = TextTable::new().column("CLASS", Align::Left, Align::Left).columns(
        &["SIZE", "AVAIL", "USED", "RAW USED", "%RAW USED"],
        Align::Right,
        Align::Right,
    );
    let total = c.pgmap.osd_sum(c.map().in_osds());
    let all = classes(c).into_iter().chain([("TOTAL".to_owned(), total)]);
    for (class, sum) in all {
        let used = Bytes(sum.used()).to_string();
        raw.row([
            class,
            Bytes(sum.total).to_string(),
            Bytes(sum.available).to_string(),
            used.clone(),
            used,
            percent(sum.used_ratio()),
        ]);
    }
    let pools = pools(c);
    let pools = if detail { detail_table(&pools) } else { brief_table(&pools) };
    format!("--- RAW STORAGE ---\n{raw} \n--- POOLS ---\n{pools}")
}

fn brief_table(pools: &[PoolSpace<'_>]) -> TextTable {
    let numbers = ["ID", "PGS", "STORED", "OBJECTS", "USED", "%USED", "MAX AVAIL"];
    let mut table = TextTable::new().column("POOL", Align::Left, Align::Left).columns(
        &numbers,
        Align::Right,
        Align::Right,
    );
    for p in pools {
        table.row([
            p.name.to_owned(),
            p.id.0.to_string(),
            p.pool.pg_num.to_string(),
            Bytes(p.stored()).to_string(),
            Si(count(p.stat.stats.sum.num_objects)).to_string(),
            Bytes(p.used()).to_string(),
            percent(f64::from(p.used_ratio())),
            Bytes(p.max_avail()).to_string(),
        ]);
    }
    table
}

fn detail_table(pools: &[PoolSpace<'_>]) -> TextTable {
    let numbers = [
        "ID",
        "PGS",
        "STORED",
        "(DATA)",
        "(OMAP)",
        "OBJECTS",
        "USED",
        "(DATA)",
        "(OMAP)",
        "%USED",
        "MAX AVAIL",
        "QUOTA OBJECTS",
        "QUOTA BYTES",
        "DIRTY",
        "USED COMPR",
        "UNDER COMPR",
    ];
    let mut table = TextTable::new().column("POOL", Align::Left, Align::Left).columns(
        &numbers,
        Align::Right,
        Align::Right,
    );
    let bytes = |n: u64| Bytes(n).to_string();
    let none = || "N/A".to_owned();
    for p in pools {
        let quota = |max: u64, text: String| if max == 0 { none() } else { text };
        table.row([
            p.name.to_owned(),
            p.id.0.to_string(),
            p.pool.pg_num.to_string(),
            bytes(p.stored()),
            bytes(p.stored_data()),
            bytes(p.stored_omap()),
            Si(count(p.stat.stats.sum.num_objects)).to_string(),
            bytes(p.used()),
            bytes(p.used_data()),
            bytes(p.used_omap()),
            percent(f64::from(p.used_ratio())),
            bytes(p.max_avail()),
            quota(p.pool.quota_max_objects, Si(p.pool.quota_max_objects).to_string()),
            quota(p.pool.quota_max_bytes, bytes(p.pool.quota_max_bytes)),
            none(),
            bytes(count(p.stat.store_stats.data_compressed_allocated)),
            bytes(count(p.stat.store_stats.data_compressed_original)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use peer::PoolUsage;
    use serde_json::{Value, json};
    use types::{OsdId, PoolId};
    use wire::msg::{MGetPoolStats, PaxosHeader};

    const MIB: u64 = 1 << 20;

    /// A pool of three copies that holds ten objects of 1 MiB.
    fn bench() -> (Bench, PoolId) {
        let mut b = Bench::new();
        let id = b.make_pool_of_images("thin");
        b.write(json!({id.0.to_string(): [10, 10 * MIB]}).as_object().unwrap());
        (b, id)
    }

    /// What each OSD that says it has of the pool.
    fn takes(b: &mut Bench, pool: PoolId, allocated: u64, stored: u64) {
        let usage = PoolUsage { pool, allocated, stored };
        b.pools = (0..3).map(|id| (OsdId(id), vec![usage])).collect();
        b.again();
    }

    fn asked(b: &mut Bench) -> Value {
        let (_, _, out) = b.run(&json!({"prefix": "df", "detail": "detail", "format": "json"}));
        serde_json::from_slice(&out).unwrap()
    }

    /// Stored, and used.
    fn shown(b: &mut Bench) -> (u64, u64) {
        let df = asked(b);
        let mine = df["pools"].as_array().unwrap().iter().find(|p| p["name"] == "thin").unwrap();
        let n = |name: &str| mine["stats"][name].as_u64().unwrap();
        assert_eq!((n("stored_data"), n("data_bytes_used")), (n("stored"), n("bytes_used")));
        (n("stored"), n("bytes_used"))
    }

    #[test]
    fn pools_take_what_osds_say_and_holes_are_nothing() {
        let (mut b, id) = bench();
        takes(&mut b, id, 4 * MIB + 4096, 4 * MIB + 5);
        assert_eq!(shown(&mut b), (4 * MIB + 5, 3 * (4 * MIB + 4096)));
        let stats = asked(&mut b)["stats"].clone();
        assert_eq!((&stats["num_osds"], &stats["num_per_pool_osds"]), (&json!(3), &json!(3)));
        let ask = MGetPoolStats {
            paxos: PaxosHeader::default(),
            fsid: b.c.state.fsid,
            pools: vec!["thin".into()],
        };
        let reply = b.c.pool_stats(&ask);
        let stat = &reply.stats["thin"].store_stats;
        let sums = (stat.allocated as u64, stat.data_stored as u64);
        assert!(reply.per_pool);
        assert_eq!(sums, (3 * (4 * MIB + 4096), 3 * (4 * MIB + 5)));
        let (_, _, out) =
            b.run(&json!({"prefix": "pg dump", "dumpcontents": ["osds"], "format": "json"}));
        let dump: Value = serde_json::from_slice(&out).unwrap();
        let places: Vec<_> = dump["pool_statfs"].as_array().unwrap().iter().collect();
        assert_eq!(places.len(), 3);
        assert_eq!(places[2]["osd"], 2);
        assert_eq!(places[2]["allocated"], 4 * MIB + 4096);
    }

    /// As Ceph does it: where one OSD does not say it, it is told of no pool.
    #[test]
    fn where_an_osd_does_not_say_it_all_bytes_count_in_all_copies() {
        let (mut b, id) = bench();
        b.silent_of_pools.insert(OsdId(1));
        takes(&mut b, id, 4 * MIB, 4 * MIB);
        assert_eq!(shown(&mut b), (10 * MIB, 30 * MIB));
        assert_eq!(asked(&mut b)["stats"]["num_per_pool_osds"], 2);
        // Unless it is out.
        b.c.change(|inc, _| _ = inc.new_weight.insert(OsdId(1), 0)).unwrap();
        b.commit();
        let (_, used) = shown(&mut b);
        assert_eq!(used, 8 * MIB);
    }

    #[test]
    fn what_an_osd_that_is_down_has_said_last_still_counts() {
        let (mut b, id) = bench();
        takes(&mut b, id, 4 * MIB, 4 * MIB);
        b.stop_unheard(OsdId(2));
        assert_eq!(shown(&mut b), (4 * MIB, 12 * MIB));
    }

    /// It counted for ever, beside what was made anew of it.
    #[test]
    fn what_an_osd_has_that_is_down_and_out_is_made_anew_elsewhere() {
        let (mut b, id) = bench();
        takes(&mut b, id, 4 * MIB, 4 * MIB);
        b.stop_unheard(OsdId(2));
        b.c.change(|inc, _| _ = inc.new_weight.insert(OsdId(2), 0)).unwrap();
        b.commit();
        let stats = b.c.pgmap.pool_stat(b.c.map(), id).unwrap().store_stats;
        assert_eq!(stats.data_stored as u64, 8 * MIB);
        let (stored, used) = shown(&mut b);
        assert_eq!((stored, used), (4 * MIB, 8 * MIB));
    }
}
