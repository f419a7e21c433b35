//! Options: those this mon heeds itself ([`MON`]), and all names that `ceph config set` knows.
//!
//! What our daemons heed is defined once, with defaults and bounds: here, and for OSDs in [`admin::options`].
//! `known.tsv` lists what else may stand in the configuration database, the options of Ceph's clients, and of its
//! daemons those that ours have not: name, type, level, default, least and largest value, whether a change needs
//! no restart. The mon hands them on; clients judge what they mean.

use admin::options::OSD;
use admin::settings::{Level, MOST_SECONDS, OptionDef, OptionKind};
use std::collections::BTreeMap;

const KNOWN: &str = include_str!("known.tsv");

use OptionKind::{Bool, Choice, Float, Int, Millisecs, Secs, Str, Uint};

/// The options this mon heeds.
pub(crate) const MON: &[OptionDef] = &[
    admin::common::ASSERT,
    OptionDef::new("mon_allow_pool_delete", Bool, "false", "whether pools may be deleted at all"),
    OptionDef::new(
        "mon_allow_pool_size_one",
        Bool,
        "false",
        "whether pools may have a single copy of their objects",
    ),
    OptionDef::new(
        "mon_max_pg_per_osd",
        Uint,
        "250",
        "PGs an OSD may have; pools that would lead to more are refused",
    )
    .at_least(1.0),
    OptionDef::new("mon_max_pool_pg_num", Uint, "65536", "PGs a pool may have").at_least(1.0),
    OptionDef::new(
        "mgr_max_pg_num_change",
        Uint,
        "128",
        "a pool gets at most so many PGs more than its pgp_num at once",
    )
    .at_least(1.0),
    OptionDef::new(
        "target_max_misplaced_ratio",
        Float,
        "0.05",
        "pgp_num changes in steps that misplace about this share of all objects",
    )
    .within(0.0001, 1.0)
    .basic(),
    OptionDef::new("mgr/balancer/active", Bool, "true", "whether the balancer works by itself"),
    OptionDef::new(
        "mgr/balancer/mode",
        Choice(&["none", "upmap"]),
        "upmap",
        "how the balancer moves PGs: by exceptions from CRUSH (upmaps), or not at all",
    ),
    OptionDef::new(
        "mgr/balancer/sleep_interval",
        Secs,
        "60",
        "how often the balancer looks whether something is to be moved",
    ),
    OptionDef::new(
        "mgr/balancer/upmap_max_deviation",
        Uint,
        "5",
        "OSDs may have so many copies of PGs more or fewer than their weight would give them",
    )
    .at_least(1.0),
    OptionDef::new(
        "mgr/balancer/upmap_max_optimizations",
        Uint,
        "10",
        "PGs that the balancer moves at a time",
    )
    .at_least(1.0),
    OptionDef::new(
        "mgr/balancer/pool_ids",
        Str,
        "",
        "numbers of the pools that are balanced, with commas between them; empty: all",
    ),
    OptionDef::new("mgr/progress/enabled", Bool, "true", "whether work that goes on is shown"),
    OptionDef::new(
        "mgr/crash/warn_recent_interval",
        Secs,
        "1209600",
        "for so long RECENT_CRASH warns of a crash that nobody has archived",
    ),
    OptionDef::new(
        "mgr/crash/retain_interval",
        Secs,
        "31536000",
        "for so long crashes are kept",
    ),
    OptionDef::new("mon_max_osd", Uint, "10000", "OSD ids are below this")
        .within(1.0, maps::MAX_OSDS as f64),
    OptionDef::new(
        "mon_osd_down_out_interval",
        Secs,
        "600",
        "an OSD that is down for so long is marked out, and its data is copied elsewhere; 0: never",
    ),
    OptionDef::new(
        "mon_osd_down_out_subtree_limit",
        Str,
        "rack",
        "when all below a bucket of this type is down, it is not marked out",
    ),
    OptionDef::new(
        "mon_osd_min_in_ratio",
        Float,
        "0.75",
        "no OSD is marked out when a smaller share than this is still in",
    )
    .within(0.0, 1.0),
    OptionDef::new(
        "mon_osd_report_timeout",
        Secs,
        "900",
        "an OSD that has not reported for so long is marked down",
    ),
    OptionDef::new(
        "mon_osd_min_up_ratio",
        Float,
        "0.3",
        "no OSD is marked down for its silence when a smaller share than this is still up",
    )
    .within(0.0, 1.0),
    admin::options::HEARTBEAT_GRACE,
    OptionDef::new(
        "mon_osd_min_down_reporters",
        Uint,
        "2",
        "places that must report an OSD as failed; all of them where there are fewer",
    )
    .at_least(1.0),
    OptionDef::new(
        "mon_osd_reporter_subtree_level",
        Str,
        "host",
        "what counts as a place: OSDs below the same bucket of this type are one",
    ),
    OptionDef::new(
        "mon_osd_adjust_heartbeat_grace",
        Bool,
        "true",
        "whether an OSD that was marked down though it lived gets more time",
    ),
    OptionDef::new(
        "mon_osd_laggy_halflife",
        Float,
        "3600",
        "how soon that is forgotten, in seconds",
    )
    .within(1.0, MOST_SECONDS),
    OptionDef::new(
        "mon_osd_laggy_weight",
        Float,
        "0.3",
        "how much the last time counts against those before",
    )
    .within(0.0, 1.0),
    OptionDef::new(
        "mon_osd_laggy_max_interval",
        Float,
        "300",
        "the most time an OSD gets for that, in seconds",
    )
    .within(0.0, MOST_SECONDS),
    OptionDef::new(
        "mon_warn_on_slow_commit_ms",
        Uint,
        "500",
        "warn of OSDs that take so many milliseconds to make a write durable; 0: never",
    ),
    OptionDef::new(
        "mon_osd_clock_drift_allowed",
        Secs,
        "5",
        "warn of OSDs whose clocks differ from the mon's by more; 0: never",
    ),
    OptionDef::new(
        "mon_osd_slow_disk_out_interval",
        Secs,
        "0",
        "an OSD whose disk has been slow for so long (see mon_warn_on_slow_commit_ms) is marked out, if \
         others are not; 0: never",
    ),
    OptionDef::new(
        "mon_osd_reconnect_grace",
        Secs,
        "20",
        "after the mon started, or went on after it had stood still or was cut off, or after the session of an OSD \
         ended that had been silent: one that has not come back for so long is marked down",
    ),
    OptionDef::new(
        "mon_osd_blocklist_default_expire",
        Float,
        "3600",
        "how long a client stays blocklisted when nothing is said, in seconds",
    )
    .within(0.0, MOST_SECONDS),
    OptionDef::new("mon_min_osdmap_epochs", Uint, "500", "old maps that are kept").at_least(10.0),
    OptionDef::new(
        "mon_osdmap_full_prune_enabled",
        Bool,
        "true",
        "whether of old maps that are needed for long most are kept only as changes",
    ),
    OptionDef::new(
        "mon_osdmap_full_prune_min",
        Uint,
        "1000",
        "from so many maps on; Ceph: 10000",
    ),
    OptionDef::new(
        "mon_osdmap_full_prune_interval",
        Uint,
        "10",
        "one of so many is kept whole; a change counts when no pruned map is needed any more",
    )
    .within(1.0, 100.0),
    OptionDef::new(
        "mon_data_avail_warn",
        Uint,
        "30",
        "warn when no more per cent than this is free where the mon's store lies",
    )
    .within(0.0, 100.0),
    OptionDef::new(
        "mon_data_avail_crit",
        Uint,
        "5",
        "an error when no more per cent than this is free where the mon's store lies",
    )
    .within(0.0, 100.0),
    OptionDef::new(
        "mon_data_size_warn",
        OptionKind::Size,
        "16106127360",
        "warn when the mon's store has so many bytes",
    ),
    OptionDef::new(
        "mon_pg_stuck_threshold",
        Secs,
        "60",
        "a PG that is not well for so long is called stuck",
    ),
    OptionDef::new(
        "mon_tick_interval_ms",
        Millisecs,
        "1000",
        "how often everything is looked at that goes by the clock",
    )
    .within(10.0, 60_000.0)
    .dev(),
    OptionDef::new(
        "mon_warn_pg_not_scrubbed_ratio",
        Float,
        "0.5",
        "warn of PGs whose scrub is late by more than this part of osd_scrub_max_interval; 0: never",
    )
    .within(0.0, 1000.0),
    OptionDef::new(
        "mon_warn_pg_not_deep_scrubbed_ratio",
        Float,
        "0.75",
        "warn of PGs whose deep scrub is late by more than this part of osd_deep_scrub_interval; 0: \
         never",
    )
    .within(0.0, 1000.0),
    admin::options::SCRUB_MAX_INTERVAL,
    admin::options::DEEP_SCRUB_INTERVAL,
    OptionDef::new("mon_health_max_detail", Uint, "50", "lines of detail of one health alert"),
    OptionDef::new(
        "mon_warn_on_pool_no_app",
        Bool,
        "true",
        "warn of pools with data that no application is named for",
    ),
    OptionDef::new(
        "mon_warn_on_pool_no_redundancy",
        Bool,
        "true",
        "warn of pools with a single copy of their objects",
    ),
    OptionDef::new(
        "mon_warn_on_pool_pg_num_not_power_of_two",
        Bool,
        "true",
        "warn of pools whose number of PGs is not a power of two",
    ),
    OptionDef::new(
        "mon_warn_on_too_few_osds",
        Bool,
        "true",
        "warn of fewer OSDs than a new pool would have copies",
    ),
    OptionDef::new("osd_pool_default_size", Uint, "3", "copies of the objects of a new pool")
        .within(0.0, 10.0),
    OptionDef::new(
        "osd_pool_default_min_size",
        Uint,
        "0",
        "copies a new pool needs to serve; 0: size - size/2",
    )
    .within(0.0, 255.0),
    OptionDef::new("osd_pool_default_pg_num", Uint, "32", "PGs of a new pool").at_least(1.0),
    OptionDef::new("osd_pool_default_pgp_num", Uint, "0", "pgp_num of a new pool; 0: as pg_num"),
    OptionDef::new(
        "osd_pool_default_crush_rule",
        Int,
        "-1",
        "CRUSH rule of a new pool; -1: the first one for copies",
    ),
    OptionDef::new(
        "osd_pool_default_pg_autoscale_mode",
        Choice(&["off", "warn", "on"]),
        "off",
        "kept with a new pool; the number of PGs is not changed automatically yet",
    ),
    OptionDef::new(
        "osd_pool_default_flag_nodelete",
        Bool,
        "false",
        "whether new pools are protected from being deleted",
    ),
    OptionDef::new(
        "osd_crush_update_on_start",
        Bool,
        "true",
        "whether an OSD that boots is moved to where it says it stands",
    ),
    OptionDef::new(
        "osd_class_update_on_start",
        Bool,
        "true",
        "whether an OSD that boots without a device class gets the one it says",
    ),
    OptionDef::new(
        "osd_crush_initial_weight",
        Float,
        "-1",
        "CRUSH weight of a new OSD; negative: its size in TiB",
    ),
    OptionDef::new(
        "osd_crush_chooseleaf_type",
        Int,
        "1",
        "type of bucket that new rules spread over: 0 osd, 1 host, ..",
    ),
];

/// The options that daemons of some kind heed; there are none of other kinds than ours. `None`: they are no daemons
/// of ours, but clients, who may know others than we do.
pub(crate) fn of_daemons(kind: &str) -> Option<&'static [OptionDef]> {
    match kind {
        "mon" | "mgr" => Some(MON),
        "osd" => Some(OSD),
        "mds" => Some(&[]),
        _ => None,
    }
}

/// What to say of an option that those do not heed whom it is set for: a kind of daemon, or (empty) everybody.
pub(crate) fn unheeded(kind: &str, name: &str) -> Option<String> {
    let heed = |kind| of_daemons(kind).is_none_or(|all| all.iter().any(|def| def.name == name));
    let whom = match kind {
        "" if !is_of_daemons(name) || heed("mon") || heed("osd") => return None,
        kind if !kind.is_empty() && heed(kind) => return None,
        "" => "daemon",
        "osd" => "OSD",
        kind => kind,
    };
    let what = "whatever it is set to changes nothing there";
    Some(format!("no {whom} of this cluster heeds '{name}': {what}"))
}

/// Whether an option is one of Ceph's daemons only, by its name.
fn is_of_daemons(name: &str) -> bool {
    let begins = |start: &str| name.starts_with(start);
    const OF_DAEMONS: [&str; 15] = [
        "bdev_",
        "bluefs_",
        "bluestore_",
        "filestore_",
        "journal_",
        "kstore_",
        "leveldb_",
        "mds_",
        "memstore_",
        "mgr/",
        "mgr_",
        "mon_",
        "osd_",
        "paxos_",
        "rocksdb_",
    ];
    OF_DAEMONS.into_iter().any(begins) && !begins("mon_client_")
}

/// Every option that may stand in the configuration database.
#[derive(Debug)]
pub(crate) struct Known {
    by_name: BTreeMap<&'static str, OptionDef>,
}

impl Known {
    /// Reads the list.
    pub fn new() -> Self {
        let mut by_name: BTreeMap<_, _> =
            KNOWN.lines().filter_map(parse).map(|def| (def.name, def)).collect();
        by_name.extend(OSD.iter().chain(MON).map(|def| (def.name, *def)));
        Known { by_name }
    }

    /// An option. Any `debug_NAME` is one.
    pub fn get(&self, name: &str) -> Option<OptionDef> {
        let debug = || {
            let known = name.starts_with("debug_");
            known.then(|| OptionDef::new("debug", OptionKind::Log, "1/5", "level of logging"))
        };
        self.by_name.get(name).copied().or_else(debug)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.by_name.keys().copied()
    }
}

fn parse(line: &'static str) -> Option<OptionDef> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let (name, kind, level, default) = (next()?, next()?, next()?, next()?);
    let (min, max, runtime) = (next()?, next()?, next()?);
    let kind = match kind {
        "bool" => Bool,
        "int" => Int,
        "uint" => Uint,
        "float" => Float,
        "size" => OptionKind::Size,
        "secs" => Secs,
        "millisecs" => Millisecs,
        _ => Str,
    };
    Some(OptionDef {
        name,
        kind,
        default,
        min: min.parse().ok(),
        max: max.parse().ok(),
        description: match is_of_daemons(name) {
            true => "an option of Ceph's daemons that no daemon of this cluster heeds",
            false => "an option of Ceph's clients; see Ceph's manual",
        },
        level: match level {
            "basic" => Level::Basic,
            "dev" => Level::Dev,
            _ => Level::Advanced,
        },
        runtime: runtime == "1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All that the mon says of an option comes from its definition.
    #[test]
    fn the_mon_takes_the_options_of_osds_for_what_osds_take_them_for() {
        let (known, of_osds) = (Known::new(), osd::known_settings());
        assert!(of_osds.defs().count() > 50);
        for def in of_osds.defs() {
            assert_eq!(known.get(def.name).as_ref(), Some(def));
        }
        let names: BTreeSet<&str> = OSD.iter().map(|def| def.name).collect();
        assert!(of_osds.defs().map(|def| def.name).eq(names), "it has these and no others");
        for def in MON.iter().filter(|def| of_osds.def(def.name).is_some()) {
            assert_eq!(of_osds.def(def.name), Some(def), "both have it");
        }
    }

    #[test]
    fn every_known_option_can_be_read_and_takes_its_default() {
        assert_eq!(KNOWN.lines().filter_map(parse).count(), KNOWN.lines().count());
        let known = Known::new();
        let ours = OSD.iter().chain(MON).map(|def| def.name).collect::<BTreeSet<_>>();
        let others = KNOWN.lines().filter_map(parse).map(|def| def.name);
        assert!(others.clone().all(|name| !ours.contains(name)), "each is defined once");
        assert_eq!(known.names().count(), ours.len() + others.count());
        for name in known.names() {
            let def = known.get(name).unwrap();
            assert!(def.parse(def.default).is_ok(), "{name} = {:?}", def.default);
        }
        assert_eq!(known.get("rbd_cache").map(|d| d.kind), Some(Bool));
        assert!(known.get("debug_osd").is_some() && known.get("nosuch_option").is_none());
        assert!(known.get("mon_allow_pool_delete").is_some());
    }
}
