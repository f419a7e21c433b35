"""Which commands of `ceph` are compared, and in which state."""

# Makes both clusters alike, whatever they start from: the answers count as well.
SETUP = """
config set mgr mgr/devicehealth/enable_monitoring false
config set global mon_allow_pool_delete true
config set global mon_allow_pool_size_one true
config set global osd_pool_default_pg_autoscale_mode off
config set global mon_warn_on_pool_no_redundancy false
balancer off
osd crush rm-device-class 0 1 2
osd crush set-device-class ssd 0 1
osd crush set-device-class hdd 2
osd crush set osd.0 1.0 host=h0 root=default
osd crush set osd.1 1.0 host=h1 root=default
osd crush set osd.2 1.0 host=h2 root=default
osd new 33333333-0000-4000-8000-000000000003 3
osd new 44444444-0000-4000-8000-000000000004 4
osd crush add osd.3 0.5 host=h3 rack=r1 root=default
osd set noout
"""

# The pools of a history and what else it begins with.
STATE = """
osd crush rule create-replicated onssd default osd ssd
osd crush rule create-simple flat default osd firstn
osd erasure-code-profile set k2 k=2 m=1 crush-failure-domain=osd
osd pool create pa 8 8
osd pool create pb 4 4 replicated flat
osd pool create pc 8 8 replicated onssd
osd pool set pc size 2
osd pool application enable pa rbd
osd pool application enable pb rgw
osd pool application set pb rgw tier hot
osd pool mksnap pb before
osd pool set pb nosizechange true
osd pool set pa compression_mode force
osd pool set-quota pb max_objects 1000
config set osd osd_max_backfills 3
config set osd.1 osd_recovery_sleep 0.5
config set global debug_ms 0/0
config-key set notes/one first
config-key set notes/two second
auth get-or-create client.app mon 'allow r' osd 'allow rw pool=pa'
osd blocklist add 10.1.2.3:0/77 86400
osd primary-affinity 1 0.5
osd reweight 2 0.9
"""

# How both end: what all commands have left.
LOOKS = """
osd dump
osd pool ls detail
osd tree
osd crush dump
osd crush tree --show-shadow
osd crush weight-set dump
osd crush class ls
osd erasure-code-profile ls
osd blocklist ls
config dump
config-key dump
auth ls
health
mon dump
osd pool application get
"""

# One after the other, each in every format, after malformed ones made of it.
CATALOGUE = """
status
health
health detail
fsid
quorum_status
mon stat
mon dump
mon getmap
mon metadata
mon metadata a
mon versions
mon count-metadata ceph_version
mon ok-to-stop a
mon ok-to-add-offline
mon ok-to-rm a
mon feature ls
mon feature ls --with-value
mon scrub
mon enable-msgr2
mon set-weight a 3
mon set-rank a 0
mgr stat
mgr dump
mgr services
mgr metadata
mgr versions
mgr count-metadata ceph_version
mgr module ls
mgr fail nosuch
mds stat
mds versions
mds metadata
mds count-metadata ceph_version
mds ok-to-stop a
mds fail a
mds repaired 0
fs ls
fs dump
fs get cephfs
fs status
fs feature ls
fs rm cephfs
fs fail cephfs
fs volume ls
features
versions
node ls
node ls osd
time-sync-status
report
log last 5
log last 3 info cluster
log hello world
df
df detail
service dump
service status
device ls
device ls-by-daemon osd.0
device ls-by-host h0
device ls-lights
device info nosuch
device get-health-metrics nosuch
device check-health
device rm-life-expectancy nosuch
osd stat
osd dump
osd ls
osd ls-tree default
osd ls-tree h0
osd tree
osd tree up
osd tree down out
osd tree-from h1
osd df
osd df tree
osd df plain class ssd
osd df tree name pa
osd perf
osd status
osd utilization
osd numa-status
osd blocked-by
osd versions
osd metadata
osd metadata 0
osd count-metadata osd_objectstore
osd find 1
osd info
osd info 0
osd getmaxosd
osd getmap
osd getcrushmap
osd last-stat-seq 0
osd map pa obj
osd map pa obj ns
osd get-require-min-compat-client
osd safe-to-destroy 0
osd safe-to-destroy 3
osd safe-to-destroy all
osd ok-to-stop 0
osd ok-to-stop 3
osd pool ls
osd pool ls detail
osd lspools
osd pool stats
osd pool stats pa
osd pool get pa size
osd pool get pa all
osd pool get pb all
osd pool get pa compression_mode
osd pool get pa crush_rule
osd pool get pa erasure_code_profile
osd pool get pa pg_autoscale_mode
osd pool get pa target_size_ratio
osd pool get-quota pa
osd pool get-quota pb
osd pool autoscale-status
osd pool application get
osd pool application get pb
osd pool application get pb rgw
osd pool application get pb rgw tier
pg stat
pg dump
pg dump all
pg dump summary
pg dump pools
pg dump osds
pg dump pgs
pg dump pgs_brief
pg dump sum
pg dump delta
pg dump_json all
pg dump_pools_json
pg dump_stuck
pg dump_stuck unclean
pg dump_stuck inactive stale
pg ls
pg ls 1
pg ls 1 active
pg ls-by-pool pa
pg ls-by-pool pa active clean
pg ls-by-osd osd.0
pg ls-by-primary 0
pg getmap
pg debug unfound_objects_exist
pg debug degraded_pgs_exist
balancer status
balancer mode upmap
balancer on
balancer off
balancer ls
balancer eval
balancer eval pa
balancer pool ls
balancer pool add pa
balancer pool rm pa
progress
progress json
progress on
progress off
progress clear
crash ls
crash ls-new
crash stat
crash info nosuch
crash archive nosuch
crash archive-all
crash prune 30
crash rm nosuch
config dump
config get osd
config get osd.1
config get osd.1 osd_recovery_sleep
config get mon.a osd_max_backfills
config get client.admin
config help osd_max_backfills
config help mon_allow_pool_delete
config help osd_pool_default_pg_autoscale_mode
config help bluestore_min_alloc_size
config ls
config log
config log 2
config set osd osd_recovery_max_active 5
config set osd/class:ssd osd_max_scrubs 2
config set osd/host:h0 osd_max_scrubs 2
config set osd osd_max_scrubs nonsense
config set mon.a mon_pg_warn_min_per_osd 5
config set client rbd_cache false
config set mgr mgr/balancer/mode upmap
config set global nosuch_option 1
config set global nosuch_option 1 --force
config set osd osd_memory_target 4G
config set osd debug_osd 5/5
config set global mon_host x
config rm osd osd_recovery_max_active
config rm osd nosuch_option
config generate-minimal-conf
config show osd.0
config show osd.0 osd_max_backfills
config show-with-defaults osd.0
config reset 2
config-key ls
config-key dump
config-key dump notes
config-key get notes/one
config-key exists notes/one
config-key exists nosuch
config-key set notes/three third
config-key put notes/four fourth
config-key rm notes/three
config-key del notes/four
config-key list
auth ls
auth list
auth get client.app
auth get-key client.app
auth print-key client.app
auth print_key client.app
auth export client.app
auth get-or-create client.two mon 'profile rbd' osd 'profile rbd pool=pa'
auth get-or-create client.two mon 'profile rbd' osd 'profile rbd pool=pa'
auth get-or-create client.two mon 'allow *'
auth get-or-create-key client.three mon 'allow r'
auth add client.four mon 'allow r'
auth add client.four mon 'allow rw'
auth caps client.four mon 'allow rw' osd 'allow *'
auth caps client.four mon 'nonsense'
auth caps client.nosuch mon 'allow r'
auth del client.four
auth rm client.three
auth rm client.nosuch
osd set noup
osd unset noup
osd set pause
osd unset pause
osd set nodeep-scrub
osd unset nodeep-scrub
osd set pglog_hardlimit
osd set full
osd unset full
osd pause
osd unpause
osd set-group noup,noout osd.3 h3
osd set-group noin ssd
osd unset-group noup,noout osd.3 h3
osd unset-group noin ssd
osd add-noup 3
osd rm-noup 3
osd add-noout osd.3
osd rm-noout osd.3
osd add-nodown 3
osd rm-nodown 3
osd add-noin 3
osd rm-noin 3
osd set-full-ratio 0.96
osd set-nearfull-ratio 0.86
osd set-backfillfull-ratio 0.91
osd set-nearfull-ratio 0.85
osd set-backfillfull-ratio 0.90
osd set-full-ratio 0.95
osd set-require-min-compat-client luminous
osd set-require-min-compat-client jewel
osd set-require-min-compat-client nosuch
osd require-osd-release pacific
osd require-osd-release octopus
osd setmaxosd 20
osd setmaxosd 1
osd setmaxosd 5
osd blocklist ls
osd blocklist add 10.1.2.3
osd blocklist add 10.1.2.4:0/5 3600
osd blocklist rm 10.1.2.4:0/5
osd blocklist rm 10.9.9.9:0/5
osd blocklist range add 10.2.0.0/16
osd blocklist range rm 10.2.0.0/16
osd blacklist add 10.1.2.5:0/5 60
osd blacklist rm 10.1.2.5:0/5
osd blacklist ls
osd blocklist clear
osd reweight 2 0.8
osd reweight 2 1.0
osd reweightn {"0":65536,"2":50000}
osd primary-affinity 1 1.0
osd in 2
osd in 0 1
osd out 3
osd in osd.3
osd in all
osd down 3
osd down 99
osd lost 3
osd lost 3 --yes-i-really-mean-it
osd lost 0 --yes-i-really-mean-it
osd reweight-by-utilization 120
osd reweight-by-pg 120
osd test-reweight-by-utilization
osd test-reweight-by-pg
osd new 55555555-0000-4000-8000-000000000005 7
osd new 55555555-0000-4000-8000-000000000005 7
osd new 55555555-0000-4000-8000-000000000006 7
osd destroy 7
osd destroy 7 --yes-i-really-mean-it
osd destroy 0 --yes-i-really-mean-it
osd new 55555555-0000-4000-8000-000000000007 7
osd purge-new 7
osd purge-new 7 --yes-i-really-mean-it
osd purge 7
osd purge 7 --yes-i-really-mean-it
osd purge 0 --yes-i-really-mean-it
osd rm 0
osd create
osd create 55555555-0000-4000-8000-000000000008
osd create 55555555-0000-4000-8000-000000000008
osd rm 5 6
osd rm 99
osd crush dump
osd crush tree
osd crush tree --show-shadow
osd crush ls default
osd crush ls h0
osd crush rule ls
osd crush rule list
osd crush rule dump
osd crush rule dump onssd
osd crush rule ls-by-class ssd
osd crush show-tunables
osd crush get-tunable straw_calc_version
osd crush set-tunable straw_calc_version 1
osd crush tunables optimal
osd crush class ls
osd crush class ls-osd ssd
osd crush get-device-class 0 1
osd crush add-bucket r2 rack root=default
osd crush add-bucket r2 rack
osd crush add-bucket h9 host
osd crush move h9 rack=r2
osd crush move h9 rack=r2
osd crush add 4 1.0 host=h9
osd crush set 4 1.5 host=h9
osd crush create-or-move 4 1.0 host=h9 rack=r2
osd crush create-or-move 4 1.0 host=h3
osd crush reweight osd.4 2.0
osd crush reweight h9 2.0
osd crush reweight-subtree h3 0.75
osd crush reweight-all
osd crush link h9 root=default
osd crush unlink h9 default
osd crush rename-bucket h9 h10
osd crush swap-bucket h10 h3
osd crush swap-bucket r2 r1 --yes-i-really-mean-it
osd crush set-device-class nvme 4
osd crush set-device-class ssd 4
osd crush rm-device-class 4
osd crush class create fast
osd crush class rename fast faster
osd crush class rm faster
osd crush rule create-replicated rr default host
osd crush rule create-replicated rr default host
osd crush rule create-replicated rr2 default nosuch
osd crush rule create-replicated rr2 nosuch host
osd crush rule create-replicated rr2 default host nosuch
osd crush rule create-simple rs default host
osd crush rule create-erasure re k2
osd crush rule rename rs rs2
osd crush rule rm rs2
osd crush rule rm onssd
osd crush rule rm rr
osd crush weight-set ls
osd crush weight-set dump
osd crush weight-set create-compat
osd crush weight-set reweight-compat osd.0 0.9
osd crush weight-set create pa flat
osd crush weight-set reweight pa osd.0 0.8
osd crush weight-set rm pa
osd crush weight-set rm-compat
osd crush rm osd.4
osd crush remove h10
osd crush set-all-straw-buckets-to-straw2
osd erasure-code-profile ls
osd erasure-code-profile get default
osd erasure-code-profile get k2
osd erasure-code-profile get nosuch
osd erasure-code-profile set k3 k=3 m=2 crush-failure-domain=osd
osd erasure-code-profile set k3 k=4 m=2
osd erasure-code-profile set k3 k=4 m=2 --force
osd erasure-code-profile rm k3
osd pool create pd
osd pool create pd 8
osd pool create pe 8 8 replicated replicated_rule 0 --autoscale_mode on
osd pool create pf 7 5
osd pool create pg 8 --size 2
osd pool create ph 8 --pg_num_min 4 --target_size_bytes 1000000
osd pool create .hidden 4
osd pool create toomany 100000
osd pool create badrule 8 8 replicated nosuch
osd pool rename pf pff
osd pool rename nosuch x
osd pool rename pa pb
osd pool set pd size 2
osd pool set pd size 1
osd pool set pd size 1 --yes-i-really-mean-it
osd pool set pd size 3
osd pool set pd min_size 1
osd pool set pd min_size 4
osd pool set pb size 2
osd pool set pd crush_rule flat
osd pool set pd crush_rule nosuch
osd pool set pd noscrub true
osd pool set pd nodelete true
osd pool rm pd pd --yes-i-really-really-mean-it
osd pool set pd nodelete false
osd pool set pd compression_mode aggressive
osd pool set pd compression_algorithm zstd
osd pool set pd compression_required_ratio 0.7
osd pool set pd compression_mode unset
osd pool set pd target_size_bytes 10G
osd pool set pd target_size_ratio 0.5
osd pool set pd pg_autoscale_mode warn
osd pool set pd pg_autoscale_bias 4
osd pool set pd pg_num_min 4
osd pool set pd pg_num_max 64
osd pool set pd recovery_priority 5
osd pool set pd scrub_min_interval 100
osd pool set pd hashpspool false
osd pool set pd fast_read true
osd pool set pd allow_ec_overwrites true
osd pool set pd csum_type crc32c
osd pool set pd dedup_tier pa
osd pool set pd hit_set_type bloom
osd pool set pd target_max_bytes 5
osd pool set pd bulk true
osd pool set pd pgp_num 4
osd pool set pd pg_num 16
osd pool set pd pg_num 100000
osd pool get pd all
osd pool set-quota pd max_bytes 10G
osd pool set-quota pd max_bytes 10K
osd pool set-quota pd max_objects 10
osd pool set-quota pd max_objects 10M
osd pool set-quota pd max_objects 0
osd pool set-quota pd max_bytes junk
osd pool application enable pd rbd
osd pool application enable pd rgw
osd pool application enable pd rgw --yes-i-really-mean-it
osd pool application set pd rgw a b
osd pool application rm pd rgw a
osd pool application rm pd rgw nosuch
osd pool application disable pd rgw
osd pool application disable pd rgw --yes-i-really-mean-it
osd pool application disable pd nosuch --yes-i-really-mean-it
osd pool application set pd nosuch a b
osd pool mksnap pd s1
osd pool mksnap pd s1
osd pool rmsnap pd s1
osd pool rmsnap pd nosuch
osd pool scrub pa
osd pool deep-scrub pa
osd pool repair pa
osd pool force-recovery pa
osd pool force-backfill pa
osd pool cancel-force-recovery pa
osd pool cancel-force-backfill pa
osd pool rm pg
osd pool rm pg pg
osd pool rm pg pg --yes-i-really-really-mean-it
osd pool delete ph ph --yes-i-really-really-mean-it
osd pool rm nosuch nosuch --yes-i-really-really-mean-it
pg map PG.0
pg scrub PG.0
pg deep-scrub PG.0
pg repair PG.0
pg repeer PG.0
pg force-recovery PG.0
pg force-backfill PG.0
pg cancel-force-recovery PG.0
pg cancel-force-backfill PG.0
osd scrub 0
osd scrub all
osd deep-scrub osd.1
osd repair 2
osd force-create-pg PG.0
osd force-create-pg PG.0 --yes-i-really-mean-it
osd force-create-pg 999.0 --yes-i-really-mean-it
osd pg-temp PG.0 2 1 0
osd pg-temp PG.0
osd primary-temp PG.0 1
osd pg-upmap PG.0 0 1 2
osd rm-pg-upmap PG.0
osd pg-upmap-items PG.0 0 2
osd pg-upmap-items PG.0 0 99
osd rm-pg-upmap-items PG.0
health mute OSD_DOWN
health mute POOL_NO_REDUNDANCY 1h
health mute NO_SUCH_CHECK
health mute NO_SUCH_CHECK --sticky
health mute OSD_FLAGS 4h --sticky
health unmute OSD_FLAGS
health unmute NO_SUCH_CHECK
health unmute
rbd task list
rbd task add flatten pa/nosuch
rbd task add remove pa/nosuch
rbd task add trash remove pa/nosuch
rbd task cancel 0
rbd trash purge schedule add pa 1h
rbd trash purge schedule list
rbd trash purge schedule list pa
rbd trash purge schedule status
rbd trash purge schedule remove pa
rbd perf image stats
rbd perf image counters
config assimilate-conf
auth import
mgr module enable iostat
mgr module disable iostat
"""


def lines(text):
    return [line for line in text.splitlines() if line]


# What is asked of an OSD itself (`ceph tell osd.0`).
TOLD = """
version
status
dump_ops_in_flight
dump_blocked_ops
dump_historic_ops
dump_historic_ops_by_duration
dump_historic_slow_ops
dump_op_pq_state
dump_blocklist
dump_watchers
dump_recovery_reservations
dump_scrub_reservations
dump_scrubs
dump_objectstore_kv_stats
dump_pgstate_history
dump_pg_recovery_stats
dump_osd_network
dump_mempools
dump_reservations
get_latest_osdmap
getomap
get_heap_property
get_mapped_pools
heap stats
cluster_log
objecter_requests
send_beacon
flush_store_cache
flush_pg_stats
flush_journal
reset_pg_recovery_stats
rotate-stored-key
calc_objectstore_db_histogram
compact
perf dump
perf schema
perf reset
perf histogram dump
perf histogram schema
config show
config diff
config get
config set
config unset
config help
injectargs
bench
cpu_profiler
cache status
cache drop
debug kick_recovery_wq
debug_drop_cache
list_devices
list_unfound
log dump
log flush
log reopen
git_version
help
ops
scrub_purged_snaps
set_heap_property
set_recovery_delay
smart
test_ops_hook
bluestore allocator dump block
bluestore allocator score block
bluestore bluefs device info
bluestore bluefs stats
nosuch
"""


def told():
    for line in lines(TOLD):
        yield {"prefix": line}
