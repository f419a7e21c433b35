//! `ceph pg ID query`: a PG in full, with Ceph's field names (`PeeringState.cc`, `PG.cc`).

use crate::daemon::Daemon;
use crate::host::PgHost;
use admin::{Answer, Args, CommandError};
use pg::{History, PeerView, Pg, PgInfo, Stage};
use serde_json::{Value, json};
use types::{HObject, OsdId};

/// Lost objects that one answer lists (`osd_command_max_records`).
const MAX_LISTED: usize = 256;

impl Daemon {
    pub(crate) fn queried(&self, args: &Args) -> Result<&PgHost, CommandError> {
        let pgid = args.pgid("pgid").ok_or_else(|| CommandError::invalid("no pgid specified"))?;
        self.pgs.get(&pgid).filter(|h| h.pg.is_primary()).ok_or_else(|| {
            CommandError::not_found(format_args!(
                "osd.{} is not the primary of {pgid} by map {}",
                self.cfg.id,
                self.maps.epoch()
            ))
        })
    }

    pub(super) fn query(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let host = self.queried(args)?;
        let pg = &host.pg;
        let mapping = pg.mapping();
        let mut involved: Vec<OsdId> = pg.peers().map(|p| p.osd).collect();
        involved.push(self.cfg.id);
        involved.retain(|o| mapping.acting.contains(o) || mapping.up.contains(o));
        involved.sort();
        let peers: Vec<Value> = pg.peers().map(|p| peer_json(pg, &p)).collect();
        let mut info = info_json(pg.info(), pg.missing().is_empty());
        info["stats"] = stats_json(host);
        let mut state = stage_json(pg);
        if *pg.stage() == Stage::Active {
            state["reservation"] = host.course.stand_text().into();
            let unfound = pg.unfound().next().is_some();
            let sources = if unfound { self.sources_json(pg) } else { json!([]) };
            state["might_have_unfound"] = sources;
        }
        Ok(Answer::json(json!({
            "snap_trimq": "[]",
            "snap_trimq_len": 0,
            "state": state_of(host),
            "epoch": pg.epoch().0,
            "up": ids(&mapping.up),
            "acting": ids(&mapping.acting),
            "backfill_targets": pg.backfills().map(|(o, _)| o.0.to_string()).collect::<Vec<_>>(),
            "acting_recovery_backfill":
                involved.iter().map(|o| o.0.to_string()).collect::<Vec<_>>(),
            "info": info,
            "peer_info": peers,
            "recovery_state": [state],
            "agent_state": {},
        })))
    }

    /// OSDs that may have what is unfound, as Ceph lists them.
    fn sources_json(&self, pg: &Pg) -> Value {
        let sources = pg.might_have_unfound(&peer::View(self.maps.current()));
        let one = |(osd, probe): (OsdId, pg::Probe)| json!({ "osd": osd.0.to_string(), "status": probe.text() });
        sources.into_iter().map(one).collect()
    }

    pub(super) fn list_unfound(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let pg = &self.queried(args)?.pg;
        let unfound: Vec<&HObject> = pg.unfound().collect();
        let objects: Vec<Value> = unfound
            .iter()
            .take(MAX_LISTED)
            .map(|o| {
                let item = pg.missing().get(o);
                let version = |v: Option<types::Eversion>| v.map(|v| v.to_string());
                json!({
                    "oid": object_json(o),
                    "need": version(item.map(|i| i.need)),
                    "have": version(item.map(|i| i.have)),
                    "flags": "none",
                    "clean_regions":
                        "clean_offsets: [], clean_omap: 0, new_object: 1",
                    "locations": [],
                })
            })
            .collect();
        Ok(Answer::json(json!({
            "num_missing": pg.missing().len(),
            "num_unfound": unfound.len(),
            "objects": objects,
            "state": stage_name(pg.stage()),
            "available_might_have_unfound": true,
            "might_have_unfound": self.sources_json(pg),
            "more": unfound.len() > MAX_LISTED,
        })))
    }
}

fn state_of(host: &PgHost) -> String {
    let mut state = host.pg.state();
    state |= host.scrub_bits();
    state.to_string()
}

fn ids(osds: &[OsdId]) -> Vec<i32> {
    osds.iter().map(|o| o.0).collect()
}

fn object_json(o: &HObject) -> Value {
    json!({
        "oid": String::from_utf8_lossy(&o.name), "key": String::from_utf8_lossy(&o.key),
        "snapid": o.snap.0 as i64, "hash": o.hash, "max": i32::from(o.max), "pool": o.pool.0,
        "namespace": String::from_utf8_lossy(&o.nspace),
    })
}

fn cursor(at: &HObject) -> String {
    match (at.max, at.is_min()) {
        (true, _) => "MAX".into(),
        (_, true) => "MIN".into(),
        _ => at.to_string(),
    }
}

fn info_json(info: &PgInfo, complete: bool) -> Value {
    let last_complete = if complete { info.last_update } else { info.log_tail };
    json!({
        "pgid": info.pgid.to_string(),
        "last_update": info.last_update.to_string(),
        "last_complete": last_complete.to_string(),
        "log_tail": info.log_tail.to_string(),
        "last_user_version": info.last_user_version,
        "last_backfill": cursor(&info.last_backfill),
        "purged_snaps": [],
        "history": history_json(&info.history),
        "stats": {},
        "empty": i32::from(info.is_empty()),
        "dne": i32::from(info.is_absent()),
        "incomplete": i32::from(!info.is_complete()),
        "last_epoch_started": info.last_epoch_started.0,
    })
}

fn history_json(h: &History) -> Value {
    json!({
        "epoch_created": h.epoch_created.0,
        "epoch_pool_created": h.epoch_created.0,
        "last_epoch_started": h.last_epoch_started.0,
        "last_interval_started": h.last_interval_started.0,
        "last_epoch_clean": h.last_epoch_clean.0,
        "last_interval_clean": h.last_interval_clean.0,
        "last_epoch_split": 0,
        "last_epoch_marked_full": 0,
        "same_up_since": h.same_up_since.0,
        "same_interval_since": h.same_interval_since.0,
        "same_primary_since": h.same_primary_since.0,
        "last_scrub": h.scrub.last_scrub.to_string(),
        "last_scrub_stamp": h.scrub.last_scrub_stamp.to_string(),
        "last_deep_scrub": h.scrub.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": h.scrub.last_deep_scrub_stamp.to_string(),
        "last_clean_scrub_stamp": h.scrub.last_clean_scrub_stamp.to_string(),
    })
}

fn stats_json(host: &PgHost) -> Value {
    let (pg, sums) = (&host.pg, host.pg.info().sums);
    let mapping = pg.mapping();
    let scrub = &pg.info().history.scrub;
    let number = |o: Option<OsdId>| o.map_or(-1, |o| o.0);
    let (lacking, misplaced) = pg.copies_lacking();
    let copies = sums.objects.saturating_mul(i64::from(pg.rules().size));
    json!({
        "version": pg.info().last_update.to_string(),
        "state": state_of(host),
        "mapping_epoch": pg.info().history.same_interval_since.0,
        "log_start": pg.info().log_tail.to_string(),
        "ondisk_log_start": pg.info().log_tail.to_string(),
        "created": pg.info().history.epoch_created.0,
        "last_epoch_clean": pg.info().history.last_epoch_clean.0,
        "log_size": pg.log().len(),
        "ondisk_log_size": pg.log().len(),
        "snaptrimq_len": 0,
        "last_scrub": scrub.last_scrub.to_string(),
        "last_scrub_stamp": scrub.last_scrub_stamp.to_string(),
        "last_deep_scrub": scrub.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": scrub.last_deep_scrub_stamp.to_string(),
        "last_clean_scrub_stamp": scrub.last_clean_scrub_stamp.to_string(),
        "stat_sum": {
            "num_bytes": sums.bytes,
            "num_objects": sums.objects,
            "num_object_clones": sums.clones,
            "num_object_copies": copies,
            "num_objects_missing_on_primary": pg.missing().len(),
            "num_objects_degraded": pg.degraded_count() + lacking,
            "num_objects_misplaced": misplaced,
            "num_objects_unfound": pg.unfound_count(),
            "num_whiteouts": sums.whiteouts,
            "num_read": host.io.reads,
            "num_read_kb": host.io.read_bytes.div_ceil(1024),
            "num_write": host.io.writes,
            "num_write_kb": host.io.write_bytes.div_ceil(1024),
            "num_objects_recovered": host.recovered.0,
            "num_bytes_recovered": host.recovered.1,
            "num_objects_omap": sums.omap_objects,
            "num_scrub_errors": scrub.errors(),
            "num_shallow_scrub_errors": scrub.shallow_errors,
            "num_deep_scrub_errors": scrub.deep_errors,
            "num_omap_bytes": scrub.omap_bytes,
            "num_omap_keys": scrub.omap_entries,
            "num_objects_repaired": scrub.objects_repaired,
        },
        "up": ids(&mapping.up),
        "acting": ids(&mapping.acting),
        "blocked_by": ids(&pg.blocked_by()),
        "up_primary": number(mapping.up_primary),
        "acting_primary": number(mapping.acting_primary),
    })
}

fn peer_json(pg: &Pg, peer: &PeerView<'_>) -> Value {
    let missing = peer.missing.map_or(0, pg::Missing::len);
    let mut value = json!({ "peer": peer.osd.0.to_string() });
    let info = info_json(peer.info, missing == 0);
    if let (Value::Object(all), Value::Object(info)) = (&mut value, info) {
        all.extend(info);
        all.insert("missing_objects".into(), missing.into());
        let filled = pg.backfills().find(|(o, _)| *o == peer.osd);
        if let Some((_, at)) = filled {
            all.insert("backfilled_to".into(), cursor(at).into());
        }
    }
    value
}

/// Ceph's name of where the machine stands.
fn stage_name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Stray => "Started/Stray",
        Stage::Replica => "Started/ReplicaActive",
        Stage::GetInfo { .. } => "Started/Primary/Peering/GetInfo",
        Stage::Down => "Started/Primary/Peering/Down",
        Stage::Incomplete => "Started/Primary/Peering/Incomplete",
        Stage::WaitActing { .. } => "Started/Primary/WaitActingChange",
        Stage::GetLog { .. } => "Started/Primary/Peering/GetLog",
        Stage::GetMissing { .. } => "Started/Primary/Peering/GetMissing",
        Stage::WaitUpThru { .. } => "Started/Primary/Peering/WaitUpThru",
        Stage::Activating { .. } => "Started/Primary/Active/Activating",
        Stage::Active => "Started/Primary/Active",
    }
}

/// Where it stands, since when, and for whom it waits.
fn stage_json(pg: &Pg) -> Value {
    let mut state = json!({
        "name": stage_name(pg.stage()),
        "enter_time": pg.stage_since().to_string(),
    });
    let blocked = pg.blocked_by();
    if !blocked.is_empty() {
        let why = match pg.stage() {
            Stage::Down => "an OSD that may have taken the last writes is down",
            _ => "it waits for the answers of these OSDs",
        };
        state["comment"] = why.into();
        state["blocked_by"] = ids(&blocked).into();
    }
    match pg.stage() {
        Stage::Active => state["recovery_progress"] = progress_json(pg),
        Stage::WaitUpThru { .. } => {
            state["comment"] = "the mon has yet to note that we are alive".into()
        }
        Stage::WaitActing { want } => {
            state["comment"] = "the mon was asked for another acting set".into();
            state["want_acting"] = ids(want).into();
        }
        Stage::Incomplete => {
            state["comment"] = "no complete copy is known to hold every acknowledged write".into();
        }
        _ => {}
    }
    let past: Vec<Value> = pg
        .past()
        .iter()
        .map(|i| {
            json!({
                "first": i.first.0, "last": i.last.0, "acting": ids(&i.acting), "up": ids(&i.up),
                "maybe_went_rw": i.maybe_went_rw,
            })
        })
        .collect();
    state["past_intervals"] = past.into();
    state
}

fn progress_json(pg: &Pg) -> Value {
    let backfills: Vec<Value> = pg
        .backfills()
        .map(|(osd, at)| json!({ "osd": osd.0, "last_backfill_started": cursor(at) }))
        .collect();
    let pulling: Vec<Value> =
        pg.pulling().map(|(o, from)| json!({ "object": o.to_string(), "from": from.0 })).collect();
    let pushing: Vec<Value> =
        pg.pushing().map(|(o, to)| json!({ "object": o.to_string(), "to": ids(to) })).collect();
    json!({
        "backfill_targets": pg.backfills().map(|(o, _)| o.0.to_string()).collect::<Vec<_>>(),
        "backfill_info": backfills,
        "backfilled_objects": pg.backfilled_count(),
        "pg_backend": { "pull_from_peer": pulling, "pushing": pushing },
    })
}
