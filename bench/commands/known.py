"""Commands of `ceph` that are not compared, and answers that differ on purpose: each with the reason."""

import re

# Left out of the random ones, or wholly, and why.
LEFT_OUT = [(re.compile(pattern), reason) for pattern, reason in [
    (r"osd tier", "there are no cache tiers"),
    (r"device (light|monitoring|predict-life-expectancy|set-life-expectancy)",
     "OSDs report no devices"),
    (r"rbd (mirror snapshot schedule|task add migration)", "not there yet, as README.md says"),
    (r"(mon_status|ops|sessions|version|dump_historic_ops|dump_historic_slow_ops)$",
     "asked of the mon itself"),
    (r"(orch|cephadm|nfs|dashboard|telemetry|zabbix|influx|telegraf|restful|insights|hello|"
     r"alerts|prometheus|test_orchestrator|diskprediction|iostat|healthcheck|mgr self-test)\b",
     "modules of the mgr that are not for clients of storage"),
    (r"fs (subvolume|subvolumegroup|snap-schedule|snapshot|clone|perf|mirror|volume (create|rm|info))",
     "file systems"),
    (r"fs (new|add_data_pool|authorize|compat|flag|reset|rm_data_pool|set-default|set_default|"
     r"required_client_features|set)|mds (?!stat|versions|metadata|count-metadata|ok-to-stop|fail|"
     r"repaired)", "file systems"),
    (r"mon (add|rm|remove|set-addrs|enable_stretch_mode|set_location|set_new_tiebreaker|"
     r"set election_strategy)|osd force_\w+_stretch_mode", "one mon, and no stretched cluster"),
    (r"(add_bootstrap_peer_hintv?|quorum (enter|exit)|sync_force|connection scores \w+|compact|"
     r"scrub|heap|injectargs|smart|tell|mds tell)$", "for the mon itself"),
]]

# Never made by chance: they end the run.
NOT_BY_CHANCE = re.compile(
    r"(osd (stop|setcrushmap|crush set|require-osd-release|set-require-min-compat-client|setmaxosd|"
    r"rm|destroy|destroy-actual|purge|purge-actual|purge-new|lost|down|out|"
    r"set-full-ratio|reweightn|force-create-pg)|config-key .*|mgr (fail|module .*)|auth import|"
    r"config assimilate-conf|config reset|log|report|pg (scrub|deep-scrub|repair)|"
    r"osd (scrub|deep-scrub|repair)|osd pool (scrub|deep-scrub|repair)|device .*|crash .*|"
    r"mon (scrub|enable-msgr2)|balancer .*|progress .*|rbd .*|fs .*|mds .*|service .*)$")


def left_out(prefix):
    return any(pattern.match(prefix) for pattern, _ in LEFT_OUT)


# Where an answer of ours is another on purpose: command, place of the difference, and why.
KNOWN = [(re.compile(prefix), re.compile(place), reason) for prefix, place, reason in [
    (r"config-key (dump|ls|list)", r"config-history|config/|\.mgr/|^\[\]|^output",
     "Ceph keeps its own records beside the keys of operators"),
    (r"config (help|ls)", r"", "the options of our own daemons, in our own words"),
    (r"config show.*", r"overrides|form", "other daemons, other options"),
    (r"config generate-minimal-conf", r"output", "with what a client needs without authentication"),
    (r"config (dump|log)", r"changes|form|length|heading", "the mgr of Ceph sets options of its own"),
    (r"(osd|mon|mgr) metadata|osd find|report", r"missing|only ours",
     "what a daemon tells of itself and its disks is its own affair"),
    (r"osd count-metadata|mon count-metadata|mgr count-metadata", r"bluestore|loligo",
     "the name of the store"),
    (r"mgr (dump|metadata|module ls|module enable|module disable)|status",
     r"modules|active_clients|result|status|always_on", "the mgr is built into the mon"),
    (r"health|status", r"AUTH_INSECURE|heading|form|length", "checks of authentication, and hints"),
    (r"log last", r"heading|form", "other messages"),
    (r"(osd dump|mon dump)", r"addrvec\[\] length|^output", "v2 addresses only"),
    (r"crash (info|archive|prune|rm)", r"^result 22 / -22", "a module of Ceph forgets the sign"),
    (r"osd status", r"", "OSDs do not count their I/O each"),
    (r"osd primary-affinity", r"status", "Ceph prints the numbers of stream flags"),
    (r"(balancer eval|crash stat)", r"heading", "JSON where it was asked for"),
    (r"balancer pool ls", r"output", "an empty list rather than nothing"),
    (r"osd pool autoscale-status", r"", "without an autoscaler, the numbers as they are"),
    (r"progress json", r"order", "the order of two fields"),
    (r"pg getmap", r"", "nothing reads the mgr's own encoding"),
    (r"mon set-(rank|weight)", r"", "there is one mon"),
    (r"(osd pool \w+ noautoscale)", r"", "there is no autoscaler"),
    (r"osd blocklist", r"result", "addresses one by one, no ranges"),
    (r"pg (dump|dump_json|ls.*)", r"network_ping_times|avail_no_missing|pool_statfs",
     "lists that OSDs do not report"),
    (r"perf (dump|schema|histogram \w+)|config (show|diff)|help|dump_mempools|cache status|"
     r"git_version|dump_recovery_reservations|dump_scrubs", r"missing|only ours|form|kind|result|\.",
     "another store, other options and counters"),
    (r"status", r"cluster_osdmap_trim|\.refused", "an OSD's own state"),
    (r"bluestore .*|dump_objectstore_kv_stats|calc_objectstore_db_histogram|flush_journal|smart|"
     r"dump_op_pq_state|log dump|set_recovery_delay|test_ops_hook|scrub_purged_snaps|"
     r"dump_pg_recovery_stats|reset_pg_recovery_stats|dump_pgstate_history|cpu_profiler",
     r"result|status", "insides of Ceph's OSD"),
    (r"pg|query", r"peer_info|scrubber|backfill_targets", "what a primary knows of others, in part"),
    (r"auth .*", r"^(result|status) (0|-2|-22) / -22", "a name must be one: TYPE.ID"),
    (r"pg (debug|ls.*)|mds metadata", r"output", "Ceph prints a piece of JSON beside the text"),
    (r"pg stat", r"heading", "the order of states"),
    (r"(osd|mon|mgr) (crush )?(add|create-or-move|reweight|reweight-subtree)", r"result",
     "weights beyond what a map can have are refused"),
    (r"osd (un)?set|osd blocklist", r"description", "words that are refused anyway are not offered"),
    (r"(osd (getcrushmap|last-stat-seq))", r"", "numbers of their own"),
]]


def reason(prefix, place):
    """Why the answers to a command may differ there; None when they may not."""
    for of, where, why in KNOWN:
        if of.fullmatch(prefix) and where.search(place):
            return why
    return None
