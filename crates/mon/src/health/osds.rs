//! Checks of OSDs and of the OSDMap's flags.

use super::{Checks, Severity};
use crate::cluster::Cluster;
use crate::osds::osds_that_are;
use crate::show::osdmap::shown_flags;
use crate::show::{join, place_of};
use io::Now;
use maps::{OsdMap, OsdState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Epoch, OsdId};

pub(super) fn check(c: &Cluster, now: Now, checks: &mut Checks) {
    let map = c.map();
    down(map, checks);
    silent(c, now, checks);
    orphans(map, checks);
    ratios(map, checks);
    fullness(map, checks);
    flags(map, checks);
    too_few(c, checks);
    slow(c, checks);
    slow_disks(c, checks);
    damaged(c, checks);
    refused(c, checks);
    clocks(c, checks);
}

/// OSDs that are up and do not speak with this mon: what is shown of them is old.
fn silent(c: &Cluster, now: Now, checks: &mut Checks) {
    /// OSDs report every 5 s, and try every 10 s to reach a mon that is gone.
    const SILENT: Duration = Duration::from_secs(30);
    let map = c.map();
    let silences = map.up_osds().filter_map(|id| Some((id, c.silence(now, id)?)));
    let lines: Vec<String> = silences
        .filter(|(_, silence)| *silence >= SILENT)
        .map(|(id, silence)| {
            let (place, time) = (place_of(map, id.0), admin::units::exact_timespan(silence));
            format!("osd.{id} ({place}) has said nothing to this mon for {time}")
        })
        .collect();
    if lines.is_empty() {
        return;
    }
    let everybody = c.cut_off(now).is_some();
    let severity = if everybody { Severity::Err } else { Severity::Warn };
    let summary = format!("{} osds are up, but silent", lines.len());
    checks.add("OSD_SILENT", severity, lines.len(), summary).detail(lines).hint(if everybody {
        "no OSD is heard: either this mon's network is cut, or all of them are gone; nobody is marked down, and \
         what is shown of OSDs and PGs is old, until one is heard again"
    } else {
        "look at their hosts and at the network between them and this mon; what is shown of them is old"
    });
}

/// OSDs that have lost something of what they have written down for themselves.
fn damaged(c: &Cluster, checks: &mut Checks) {
    let map = c.map();
    let damaged = c.pgmap.living(map).filter(|(_, s)| !s.own_damage.is_empty());
    let lines: Vec<String> = damaged
        .map(|(id, s)| format!("osd.{id} ({}): {}", place_of(map, id.0), s.own_damage))
        .collect();
    if !lines.is_empty() {
        let summary = format!("{} osds have damaged records of their own", lines.len());
        checks.add("OSD_RECORDS_DAMAGED", Severity::Err, lines.len(), summary).detail(lines).hint(
            "they serve their data, but may not start again; have it copied elsewhere, and make them \
             anew one by one: 'loligo osd replace'",
        );
    }
}

/// OSDs that are not taken into the map.
fn refused(c: &Cluster, checks: &mut Checks) {
    let lines: Vec<String> = c.identities.refusals().map(|(_, r)| r.why.clone()).collect();
    if !lines.is_empty() {
        let summary = format!("{} osds are refused", lines.len());
        checks
            .add("OSD_REFUSED", Severity::Warn, lines.len(), summary)
            .detail(lines)
            .hint("they keep asking, and come in when the reason is gone");
    }
}

/// Clocks that differ from ours: nothing that counts goes by them, but stamps of objects, snapshots and
/// scrubs do.
fn clocks(c: &Cluster, checks: &mut Checks) {
    let map = c.map();
    let allowed = c.settings.duration("mon_osd_clock_drift_allowed");
    let allowed_ms = i64::try_from(allowed.as_millis()).unwrap_or(i64::MAX);
    let wrong = c
        .pgmap
        .living(map)
        .filter(|(_, s)| allowed_ms > 0 && s.clock_ahead_ms.saturating_abs() > allowed_ms);
    let lines: Vec<String> = wrong
        .map(|(id, s)| {
            let off = Duration::from_millis(s.clock_ahead_ms.unsigned_abs());
            let side = if s.clock_ahead_ms > 0 { "ahead of" } else { "behind" };
            let (place, off) = (place_of(map, id.0), admin::units::exact_timespan(off));
            format!("osd.{id} ({place}): its clock is {off} {side} the mon's")
        })
        .collect();
    if !lines.is_empty() {
        let summary = format!("{} osds have clocks that differ from the mon's", lines.len());
        checks
            .add("OSD_CLOCK_SKEW", Severity::Warn, lines.len(), summary)
            .detail(lines)
            .hint("set them right (chrony, ntpd); until then times of objects are wrong");
    }
}

fn down(map: &OsdMap, checks: &mut Checks) {
    // One that was given out and never started is not missed; of one that was made anew copies are.
    let is_new = |id: OsdId| {
        let never_up = map.osd(id).is_none_or(|osd| osd.info.up_from == Epoch::ZERO);
        never_up && map.state(id).contains(OsdState::NEW)
    };
    let missed = map.in_osds().filter(|&id| map.is_down(id) && !is_new(id));
    let down: BTreeSet<i32> = missed.map(|id| id.0).collect();
    if down.is_empty() {
        return;
    }
    checks
        .add("OSD_DOWN", Severity::Warn, down.len(), format_args!("{} osds down", down.len()))
        .detail(down.iter().map(|&id| format!("osd.{id} ({}) is down", place_of(map, id))))
        .hint(
            "start these daemons; if a disk is lost, 'ceph osd out ID' has its data copied \
             elsewhere now",
        );
    let crush = map.crush();
    let mut by_type: BTreeMap<u16, Vec<(i32, usize)>> = BTreeMap::new();
    for bucket in crush.buckets().filter(|b| !crush.is_shadow(b.id())) {
        let below = crush.devices_below(bucket.id());
        let below: Vec<i32> = below.into_iter().filter(|&id| map.is_in(OsdId(id))).collect();
        if !below.is_empty() && below.iter().all(|id| down.contains(id)) {
            by_type.entry(bucket.kind()).or_default().push((bucket.id(), below.len()));
        }
    }
    for (kind, mut buckets) in by_type {
        let kind = crush.type_name(i32::from(kind)).unwrap_or_default();
        buckets.sort_by_key(|(id, _)| crush.item_name(*id).unwrap_or_default());
        let osds: usize = buckets.iter().map(|(_, n)| n).sum();
        let plural = if buckets.len() > 1 { "s" } else { "" };
        let summary = format!("{} {kind}{plural} ({osds} osds) down", buckets.len());
        let lines = buckets.iter().map(|(id, n)| {
            let name = crush.item_name(*id).unwrap_or_default();
            format!("{kind} {name} ({}) ({n} osds) is down", place_of(map, *id))
        });
        checks
            .add(
                &format!("OSD_{}_DOWN", kind.to_uppercase()),
                Severity::Warn,
                buckets.len(),
                summary,
            )
            .detail(lines)
            .hint("see to power and network of these places");
    }
}

fn orphans(map: &OsdMap, checks: &mut Checks) {
    let crush = map.crush();
    let orphans: Vec<i32> =
        crush.placed_devices().into_iter().filter(|&id| !map.exists(OsdId(id))).collect();
    if orphans.is_empty() {
        return;
    }
    let summary = format!("{} osds exist in the crush map but not in the osdmap", orphans.len());
    checks
        .add("OSD_ORPHAN", Severity::Warn, orphans.len(), summary)
        .detail(orphans.iter().map(|id| format!("osd.{id} exists in crush map but not in osdmap")))
        .hint("remove them with 'ceph osd crush rm osd.ID'");
}

fn ratios(map: &OsdMap, checks: &mut Checks) {
    let text = |r: f32| admin::units::stream(f64::from(r));
    let (near, mut back, full) = (map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio);
    let mut lines = Vec::new();
    if back < near {
        let (b, n) = (text(back), text(near));
        lines.push(format!("backfillfull_ratio ({b}) < nearfull_ratio ({n}), increased"));
        back = near;
    }
    if full < back {
        let (f, b) = (text(full), text(back));
        lines.push(format!("full_ratio ({f}) < backfillfull_ratio ({b}), increased"));
    }
    if !lines.is_empty() {
        checks
            .add("OSD_OUT_OF_ORDER_FULL", Severity::Err, 0, "full ratio(s) out of order")
            .detail(lines)
            .hint(
                "set them in order with 'ceph osd set-nearfull-ratio', '-backfillfull-', '-full-'",
            );
    }
}

fn fullness(map: &OsdMap, checks: &mut Checks) {
    let kinds = [
        (
            OsdState::FULL,
            "OSD_FULL",
            Severity::Err,
            "full",
            "clients cannot write; delete data, add OSDs, or raise the limit a little with 'ceph osd \
             set-full-ratio'",
        ),
        (
            OsdState::BACKFILLFULL,
            "OSD_BACKFILLFULL",
            Severity::Warn,
            "backfillfull",
            "no data is moved to them; add OSDs or delete data",
        ),
        (
            OsdState::NEARFULL,
            "OSD_NEARFULL",
            Severity::Warn,
            "nearfull",
            "add OSDs or delete data before they are full",
        ),
    ];
    for (state, code, severity, word, hint) in kinds {
        let osds: Vec<OsdId> = osds_that_are(state, map).collect();
        if !osds.is_empty() {
            checks
                .add(code, severity, osds.len(), format_args!("{} {word} osd(s)", osds.len()))
                .detail(osds.iter().map(|id| format!("osd.{id} is {}", near(word))))
                .hint(hint);
        }
    }
}

/// In sentences it is "near full".
fn near(word: &str) -> &str {
    match word {
        "nearfull" => "near full",
        "backfillfull" => "backfill full",
        word => word,
    }
}

fn flags(map: &OsdMap, checks: &mut Checks) {
    let set = shown_flags(map);
    if set.0 != 0 {
        let text = set.to_string();
        checks
            .add("OSDMAP_FLAGS", Severity::Warn, text.len(), format_args!("{text} flag(s) set"))
            .hint("somebody set them with 'ceph osd set'; 'ceph osd unset FLAG' takes them back");
    }
    let flags = OsdState::NOUP | OsdState::NODOWN | OsdState::NOIN | OsdState::NOOUT;
    let only = |state: OsdState| OsdState(state.0 & flags.0);
    let words = |state: OsdState| join(only(state).sorted_names(), ",");
    let mut lines: Vec<String> = map
        .existing_osds()
        .filter(|&id| only(map.state(id)).0 != 0)
        .map(|id| format!("osd.{id} has flags {}", words(map.state(id))))
        .collect();
    let crush = map.crush();
    for (&id, &state) in &map.crush_node_flags {
        if only(state).0 != 0 {
            let kind = crush.bucket(id).and_then(|b| crush.type_name(i32::from(b.kind())));
            let (kind, name) = (kind.unwrap_or_default(), crush.item_name(id).unwrap_or_default());
            lines.push(format!("{kind} {name} has flags {}", words(state)));
        }
    }
    for (&class, &state) in &map.device_class_flags {
        if only(state).0 != 0 {
            let name = crush.class_name(class).unwrap_or_default();
            lines.push(format!("device class '{name}' has flags {}", words(state)));
        }
    }
    if !lines.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            lines.len()
        );
        checks
            .add("OSD_FLAGS", Severity::Warn, lines.len(), summary)
            .detail(lines)
            .hint("'ceph osd unset-group FLAGS WHO' takes them back");
    }
}

fn too_few(c: &Cluster, checks: &mut Checks) {
    let wanted = c.settings.uint("osd_pool_default_size");
    let osds = c.map().existing_osds().count();
    if c.settings.bool("mon_warn_on_too_few_osds") && (osds as u64) < wanted {
        let summary = format!("OSD count {osds} < osd_pool_default_size {wanted}");
        checks.add("TOO_FEW_OSDS", Severity::Warn, osds, summary).hint(
            "add OSDs, or say that fewer copies do: 'ceph config set global osd_pool_default_size N'",
        );
    }
}

fn slow(c: &Cluster, checks: &mut Checks) {
    let map = c.map();
    let slow: Vec<_> = c.pgmap.living(map).filter(|(_, s)| s.slow_requests > 0).collect();
    if slow.is_empty() {
        return;
    }
    let ops: u64 = slow.iter().map(|(_, s)| u64::from(s.slow_requests)).sum();
    let oldest = slow.iter().map(|(_, s)| s.oldest_request_s).max().unwrap_or(0);
    let names: Vec<String> = slow.iter().map(|(id, _)| format!("osd.{id}")).collect();
    let who = match names.as_slice() {
        [one] => format!("{one} has slow ops"),
        all => format!("daemons [{}] have slow ops.", all.join(",")),
    };
    let summary = format!("{ops} slow ops, oldest one blocked for {oldest} sec, {who}");
    let count = usize::try_from(ops).unwrap_or(usize::MAX);
    checks
        .add("SLOW_OPS", Severity::Warn, count, summary)
        .hint("'ceph tell osd.ID dump_ops_in_flight' says what each of them waits for");
}

/// Disks that are slow but alive: every write of a PG waits for the slowest of its copies.
fn slow_disks(c: &Cluster, checks: &mut Checks) {
    let map = c.map();
    let limit_ms = c.settings.uint("mon_warn_on_slow_commit_ms");
    let mut all: Vec<(u64, OsdId)> = c
        .pgmap
        .living(map)
        .filter(|(_, s)| s.commit_latency_us > 0)
        .map(|(id, s)| (u64::from(s.commit_latency_us) / 1000, id))
        .collect();
    all.sort_unstable();
    let median_ms = all.get(all.len() / 2).map_or(0, |(ms, _)| *ms);
    let slow = all.iter().rev().filter(|(ms, _)| limit_ms > 0 && *ms >= limit_ms);
    let lines: Vec<String> = slow
        .map(|(ms, id)| {
            let place = place_of(map, id.0);
            format!("osd.{id} ({place}) takes {ms} ms to make a write durable, the median is {median_ms} ms")
        })
        .collect();
    if !lines.is_empty() {
        let summary = format!("{} osds have slow disks", lines.len());
        checks.add("OSD_SLOW_DISK", Severity::Warn, lines.len(), summary).detail(lines).hint(
            "look at these disks (smartctl, the kernel's log); 'ceph osd out ID' has the data copied \
             elsewhere and its reads and writes taken off the disk",
        );
    }
}
