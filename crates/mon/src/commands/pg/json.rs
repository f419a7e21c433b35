//! PGs as JSON, with Ceph's field names in Ceph's order, written field by field.
//!
//! There may be 80,000 of them, in one answer of 200 MB: a [`Value`] for each takes several times as long, and a
//! gigabyte.

use super::dump::all;
use super::value::{scrubs, sum_fields};
use crate::cluster::Cluster;
use crate::pgmap::{PgEntry, stat_sum};
use crate::show::ids;
use admin::{Answer, Format};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::fmt::Display;
use types::PgId;
use wire::msg::ObjectStatSum;

/// What an answer is put together of.
pub(super) enum Part<'a> {
    Value(Value),
    Object(Fields<'a>),
    Pgs(&'a Cluster, Vec<(PgId, Option<&'a PgEntry>)>),
    /// In the short form.
    Brief(&'a Cluster),
}

/// Parts by name.
#[derive(Default)]
pub(super) struct Fields<'a>(Vec<(String, Part<'a>)>);

impl<'a> Fields<'a> {
    pub fn put(&mut self, name: &str, part: Part<'a>) {
        self.0.push((name.to_owned(), part));
    }

    pub fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.put(name, Part::Value(value.into()));
    }

    pub fn extend(&mut self, values: Map<String, Value>) {
        self.0.extend(values.into_iter().map(|(name, value)| (name, Part::Value(value))));
    }

    /// Printed; where no format was asked for, in this one.
    pub fn answer(&self, format: Format, plain: Format) -> Answer {
        let format = if format.is_json() { format } else { plain };
        Answer::text(admin::json::print(self, format))
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, part)| (name, part)))
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Value(value) => value.serialize(s),
            Part::Object(fields) => fields.serialize(s),
            Part::Pgs(c, pgs) => s.collect_seq(pgs.iter().map(|(id, e)| Pg(c, *id, *e))),
            Part::Brief(c) => s.collect_seq(all(c).into_iter().map(|(id, e)| BriefPg(c, id, e))),
        }
    }
}

/// What is shown as text.
struct Text<T>(T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

struct Sum(ObjectStatSum);

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(sum_fields(&self.0))
    }
}

const NONE: [u8; 0] = [];

/// `pg_stat_t`
struct Pg<'a>(&'a Cluster, PgId, Option<&'a PgEntry>);

impl Serialize for Pg<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let Pg(c, pgid, entry) = *self;
        let mut m = s.serialize_map(None)?;
        m.serialize_entry("pgid", &Text(pgid))?;
        head(c, entry, &mut m)?;
        log_and_scrubs(c, pgid, entry, &mut m)?;
        let sum = entry.zip(c.map().pool(pgid.pool)).map(|(e, pool)| stat_sum(e, pool));
        m.serialize_entry("stat_sum", &Sum(sum.unwrap_or_default()))?;
        let stat = entry.map(|e| &e.stat);
        m.serialize_entry("up", &stat.map_or(vec![], |s| ids(&s.up)))?;
        m.serialize_entry("acting", &stat.map_or(vec![], |s| ids(&s.acting)))?;
        m.serialize_entry("avail_no_missing", &NONE)?;
        m.serialize_entry("object_location_counts", &NONE)?;
        m.serialize_entry("blocked_by", &stat.map_or(vec![], |s| ids(&s.blocked_by)))?;
        m.serialize_entry("up_primary", &stat.map_or(-1, |s| s.up_primary))?;
        m.serialize_entry("acting_primary", &stat.map_or(-1, |s| s.acting_primary))?;
        m.serialize_entry("purged_snaps", &NONE)?;
        m.end()
    }
}

fn head<M: SerializeMap>(c: &Cluster, entry: Option<&PgEntry>, m: &mut M) -> Result<(), M::Error> {
    let stat = entry.map(|e| &e.stat);
    let stamps = entry.map(|e| e.stamps).unwrap_or_default();
    let unstale = entry.and_then(|e| c.pgmap.stale_since(e)).unwrap_or(stamps.unstale);
    m.serialize_entry("version", &Text(stat.map(|s| s.last_update).unwrap_or_default()))?;
    m.serialize_entry("reported_seq", &entry.map_or(0, |e| e.seq))?;
    m.serialize_entry("reported_epoch", &stat.map_or(0, |s| s.epoch.0))?;
    m.serialize_entry("state", &Text(c.pgmap.state(c.map(), entry)))?;
    let times = [
        ("last_fresh", stamps.fresh),
        ("last_change", stamps.change),
        ("last_active", stamps.active),
        ("last_peered", stamps.peered),
        ("last_clean", stamps.clean),
        ("last_became_active", stamps.became_active),
        ("last_became_peered", stamps.became_peered),
        ("last_unstale", unstale),
        ("last_undegraded", stamps.undegraded),
        ("last_fullsized", stamps.fullsized),
    ];
    times.iter().try_for_each(|(name, time)| m.serialize_entry(name, &Text(time)))
}

fn log_and_scrubs<M: SerializeMap>(
    c: &Cluster,
    pgid: PgId,
    entry: Option<&PgEntry>,
    m: &mut M,
) -> Result<(), M::Error> {
    let stat = entry.map(|e| &e.stat);
    let tail = stat.map(|s| s.log_tail).unwrap_or_default();
    m.serialize_entry("mapping_epoch", &stat.map_or(0, |s| s.mapping_epoch.0))?;
    m.serialize_entry("log_start", &Text(tail))?;
    m.serialize_entry("ondisk_log_start", &Text(tail))?;
    m.serialize_entry("created", &stat.map_or(0, |s| s.created.0))?;
    m.serialize_entry("last_epoch_clean", &stat.map_or(0, |s| s.last_epoch_clean.0))?;
    m.serialize_entry("parent", "0.0")?;
    m.serialize_entry("parent_split_bits", &0)?;
    let scrubs = scrubs(c, pgid, entry);
    m.serialize_entry("last_scrub", &Text(scrubs.last_scrub))?;
    m.serialize_entry("last_scrub_stamp", &Text(scrubs.last_scrub_stamp))?;
    m.serialize_entry("last_deep_scrub", &Text(scrubs.last_deep_scrub))?;
    m.serialize_entry("last_deep_scrub_stamp", &Text(scrubs.last_deep_scrub_stamp))?;
    m.serialize_entry("last_clean_scrub_stamp", &Text(scrubs.last_clean_scrub_stamp))?;
    let log = stat.map_or(0, |s| s.log_entries);
    m.serialize_entry("log_size", &log)?;
    m.serialize_entry("ondisk_log_size", &log)?;
    let valid = [
        "stats_invalid",
        "dirty_stats_invalid",
        "omap_stats_invalid",
        "hitset_stats_invalid",
        "hitset_bytes_stats_invalid",
        "pin_stats_invalid",
        "manifest_stats_invalid",
    ];
    valid.iter().try_for_each(|name| m.serialize_entry(name, &false))?;
    m.serialize_entry("snaptrimq_len", &stat.map_or(0, |s| s.snaps_to_trim))
}

struct BriefPg<'a>(&'a Cluster, PgId, Option<&'a PgEntry>);

impl Serialize for BriefPg<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let BriefPg(c, pgid, entry) = *self;
        let stat = entry.map(|e| &e.stat);
        let mut m = s.serialize_map(None)?;
        m.serialize_entry("pgid", &Text(pgid))?;
        m.serialize_entry("state", &Text(c.pgmap.state(c.map(), entry)))?;
        m.serialize_entry("up", &stat.map_or(vec![], |s| ids(&s.up)))?;
        m.serialize_entry("acting", &stat.map_or(vec![], |s| ids(&s.acting)))?;
        m.serialize_entry("up_primary", &stat.map_or(-1, |s| s.up_primary))?;
        m.serialize_entry("acting_primary", &stat.map_or(-1, |s| s.acting_primary))?;
        m.end()
    }
}
