//! A cluster without a mon around it, for tests of commands: what they change is committed at once,
//! and OSDs report as soon as the map changes.

use super::{Call, Handler, table};
use crate::cluster::Cluster;
use crate::log::Speaker;
use crate::tasks::{Found, Question};
use crate::{MonConfig, NewCluster, options, store};
use admin::settings::Source;
use admin::{Answer, CommandTable, Settings};
use bytes::Bytes;
use io::{Now, Rng};
use maps::OsdMap;
use peer::{IoCounts, OptionSaid, OsdReport, OsdSpace, PgStat, PoolUsage};
use pg::scrub::ScrubRecord;
use pg::{ObjectSums, StateBits};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Epoch, Mono, OsdId, PgId, PoolId, UTime};

/// The map it starts from: three OSDs on three hosts of a real cluster.
const START: &[u8] = include_bytes!("../../vectors/start.osdmap");

/// A cluster without a mon around it.
pub struct Bench {
    pub c: Cluster,
    table: Rc<CommandTable<Handler>>,
    now: Now,
    /// What pools hold: objects and bytes.
    held: BTreeMap<PoolId, (i64, i64)>,
    io: IoCounts,
    stopped: BTreeSet<OsdId>,
    /// How long OSDs take to make a write durable.
    pub commit_us: BTreeMap<OsdId, u32>,
    /// PGs of which no copy is left.
    pub lost: BTreeSet<PgId>,
    /// OSDs that take no more data.
    pub full: BTreeSet<OsdId>,
    /// What there are of images.
    pub images: BTreeMap<Question, Found>,
    /// What OSDs find damaged of their own records.
    pub own_damage: BTreeMap<OsdId, String>,
    /// Options of OSDs that are not left to their defaults.
    pub options: BTreeMap<OsdId, Vec<OptionSaid>>,
    /// What pools take on OSDs; on others each has its part of all copies.
    pub pools: BTreeMap<OsdId, Vec<PoolUsage>>,
    /// OSDs that do not say that.
    pub silent_of_pools: BTreeSet<OsdId>,
    /// How often all PGs were scrubbed.
    pub deep_scrubs: u64,
    /// When all PGs were last deep-scrubbed.
    pub deep_scrubbed: UTime,
    /// Removed snapshots of which PGs have nothing left.
    pub trimmed: BTreeMap<PgId, maps::SnapSet>,
    /// How far the clocks of OSDs are behind the mon's, in seconds.
    pub clocks_behind_s: u32,
}

impl Bench {
    pub fn new() -> Self {
        let map: OsdMap = denc::decode_all(&Bytes::from_static(START)).unwrap();
        let now =
            Now { mono: Mono(60_000_000_000), wall: map.modified.plus(Duration::from_secs(6)) };
        let cfg = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
        let (mut state, _) = store::fresh(&cfg, &NewCluster::new(map.fsid), now).unwrap();
        state.osdmap = Arc::new(map);
        let said = [
            ("hostname", "vm"),
            ("container_name", "box"),
            (
                "ceph_version",
                "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)",
            ),
        ];
        let said: BTreeMap<String, String> =
            said.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        state.osd_metadata = (0..3).map(|id| (OsdId(id), said.clone())).collect();
        let mut settings = Settings::new([options::MON]);
        for name in ["mon_allow_pool_delete", "mon_allow_pool_size_one"] {
            settings.set(Source::File, name, "true").unwrap();
        }
        settings.set(Source::File, "mon_max_pg_per_osd", "400").unwrap();
        settings.set(Source::File, "osd_pool_default_min_size", "2").unwrap();
        let c = Cluster::new(&cfg, now, state, settings, Rng::with_seed(1));
        let (held, io, stopped) = (BTreeMap::new(), IoCounts::default(), BTreeSet::new());
        let table = Rc::new(table());
        let commit_us = BTreeMap::new();
        let mut bench = Bench {
            c,
            table,
            now,
            held,
            io,
            stopped,
            commit_us,
            options: BTreeMap::new(),
            lost: BTreeSet::new(),
            full: BTreeSet::new(),
            images: BTreeMap::new(),
            own_damage: BTreeMap::new(),
            pools: BTreeMap::new(),
            silent_of_pools: BTreeSet::new(),
            deep_scrubbed: UTime::ZERO,
            deep_scrubs: 0,
            trimmed: BTreeMap::new(),
            clocks_behind_s: 0,
        };
        bench.report();
        bench
    }

    /// Time passes, and nothing else.
    pub fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono.after(time);
        self.now.wall = self.now.wall.plus(time);
    }

    /// Carries a command out, and commits.
    pub fn run(&mut self, cmd: &Value) -> (i32, String, Bytes) {
        self.run_with(cmd, Bytes::new())
    }

    /// The same with a file (`-i FILE`).
    pub fn run_with(&mut self, cmd: &Value, input: Bytes) -> (i32, String, Bytes) {
        self.pass(Duration::from_millis(100));
        let table = self.table.clone();
        let parsed = table.parse(&cmd.to_string());
        let (spec, args) = match parsed {
            Ok(parsed) => parsed,
            Err(e) => return Answer::from(e).into_reply(admin::Format::Plain),
        };
        let format = args.format();
        let call = Call { now: self.now, args, input, from: Speaker::default() };
        let reply = match spec.def.handler {
            Handler::Read(f) => f(&self.c, &call),
            Handler::Write(f) => f(&mut self.c, &call),
            Handler::Look(ask, then) => match ask(&self.c, &call) {
                Ok(question) => {
                    let nothing = Ok(Found::default());
                    let seen = question.map_or(nothing, |question| self.seen(&question));
                    then(&mut self.c, &call, &seen)
                }
                Err(e) => Err(e),
            },
            Handler::Descriptions => Ok(Answer::ok()),
            // Old maps are another's task, see `server::messages`.
            Handler::Map(f) => {
                let map = self.c.state.osdmap.clone();
                f(&self.c, &call, &map)
            }
        };
        self.commit();
        reply.unwrap_or_else(Answer::from).into_reply(format)
    }

    /// Makes a pool for images.
    pub fn make_pool_of_images(&mut self, name: &str) -> PoolId {
        for (prefix, key, value) in [
            ("osd pool create", "pg_num", json!(8)),
            ("osd pool application enable", "app", json!("rbd")),
        ] {
            let (r, outs, _) = self.run(&json!({"prefix": prefix, "pool": name, key: value}));
            assert_eq!(r, 0, "{outs}");
        }
        self.c.map().pool_by_name(name).unwrap()
    }

    /// What is seen of an image.
    fn seen(&self, question: &Question) -> crate::tasks::Answer {
        let none = || client::ClientError {
            errno: types::Errno::ENOENT,
            what: format!("{question:?}"),
            why: "".into(),
            reply: None,
        };
        self.images.get(question).cloned().ok_or_else(none)
    }

    /// Commits what was changed.
    pub fn commit(&mut self) {
        if self.c.draft.has_epoch() {
            self.c.tidy();
        }
        let committed = self.c.state.osdmap.clone();
        if let Some(new) = self.c.draft.close(&committed, self.now.wall).osdmap {
            let decoded: OsdMap = denc::decode_all(&new.full_bytes).unwrap();
            assert_eq!(decoded, *new.map, "the map that is stored is the one that is used");
            self.c.take_map(new.map);
            self.report();
        }
    }

    /// Each OSD that is up says how it is, and how the PGs are that it leads.
    fn report(&mut self) {
        let map = self.c.state.osdmap.clone();
        let mut of: BTreeMap<OsdId, (u32, Vec<PgStat>)> =
            map.up_osds().map(|id| (id, Default::default())).collect();
        let pgs = map.pools.iter().flat_map(|(&pool, p)| p.pgs(pool));
        for pgid in pgs.filter(|pgid| !self.lost.contains(pgid)) {
            let stat = self.pg_stat(&map, pgid);
            for id in &stat.acting {
                of.entry(*id).or_default().0 += 1;
            }
            of.entry(OsdId(stat.acting_primary)).or_default().1.push(stat);
        }
        for id in map.up_osds() {
            let (held, pgs) = of.remove(&id).unwrap_or_default();
            self.report_of(&map, id, held, pgs);
        }
    }

    fn report_of(&mut self, map: &OsdMap, id: OsdId, pgs_held: u32, pgs: Vec<PgStat>) {
        let space = OsdSpace {
            total: 4 << 30,
            available: 3_897_060 << 10,
            data: 148 << 10,
            omap: 0,
            meta: 297_096 << 10,
        };
        let pools = (!self.silent_of_pools.contains(&id)).then(|| self.pools_on(map, id));
        let report = OsdReport {
            pools,
            compressed: Vec::new(),
            osd: id,
            up_from: map.osd(id).unwrap().info.up_from,
            space,
            pgs_held,
            commit_latency_us: self.commit_us.get(&id).copied().unwrap_or(0),
            slow_requests: 0,
            oldest_request_s: 0,
            pgs,
            durable_txn: 1,
            wall: UTime { sec: self.now.wall.sec - self.clocks_behind_s, ..self.now.wall },
            full: self.full.contains(&id),
            images: None,
            options: self.options.get(&id).cloned().unwrap_or_default(),
            seq: 1,
            own_damage: self.own_damage.get(&id).cloned().unwrap_or_default(),
        };
        self.c.report(self.now, wire::LinkId(u64::from(id.0.unsigned_abs())), report);
    }

    fn pools_on(&self, map: &OsdMap, id: OsdId) -> Vec<PoolUsage> {
        let part = |(pool, (_, bytes)): (&PoolId, &(i64, i64))| {
            let copies = u64::from(map.pool(*pool)?.size);
            let stored = bytes.unsigned_abs() * copies / 3;
            Some(PoolUsage { pool: *pool, allocated: stored.next_multiple_of(4096), stored })
        };
        let parts = || self.held.iter().filter_map(part).collect();
        self.pools.get(&id).cloned().unwrap_or_else(parts)
    }

    /// All OSDs report again.
    pub fn again(&mut self) {
        self.report();
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.now
    }

    fn pg_stat(&self, map: &OsdMap, pgid: PgId) -> PgStat {
        let at = map.pg_to_up_acting(pgid);
        let size = usize::from(map.pool(pgid.pool).unwrap().size);
        // All objects are in the pool's first PG.
        let (objects, bytes) = match pgid.seed {
            0 => self.held.get(&pgid.pool).copied().unwrap_or_default(),
            _ => (0, 0),
        };
        let missing = (size - at.acting.len().min(size)) as u64 * objects as u64;
        let mut state = StateBits::ACTIVE;
        if at.acting.len() >= size {
            state |= StateBits::CLEAN;
        } else {
            state |= StateBits::UNDERSIZED;
            if missing > 0 {
                state |= StateBits::DEGRADED;
            }
        }
        if peer::pool_rules(map, pgid.pool).is_premerge(pgid) {
            state = StateBits::PEERED;
            state |= StateBits::PREMERGE;
            state |= StateBits::CLEAN;
        }
        let primary = |id: Option<OsdId>| id.map_or(-1, |id| id.0);
        PgStat {
            pgid,
            state: state.0,
            state_since: self.now.wall,
            epoch: map.epoch,
            last_update: types::Eversion::ZERO,
            log_tail: types::Eversion::ZERO,
            log_entries: 0,
            log_dups: 0,
            up: at.up.to_vec(),
            acting: at.acting.to_vec(),
            up_primary: primary(at.up_primary),
            acting_primary: primary(at.acting_primary),
            mapping_epoch: map.epoch,
            created: Epoch(1),
            last_epoch_clean: map.epoch,
            sums: ObjectSums { bytes, objects, ..ObjectSums::default() },
            degraded: missing,
            misplaced: 0,
            unfound: 0,
            io: if pgid.seed == 0 { self.io } else { IoCounts::default() },
            recovered_objects: 0,
            recovered_bytes: 0,
            blocked_by: Vec::new(),
            trimmed: self.trimmed.get(&pgid).cloned().unwrap_or_default(),
            snaps_to_trim: 0,
            scrub: ScrubRecord {
                changes: self.deep_scrubs,
                last_deep_scrub_stamp: self.deep_scrubbed,
                ..Default::default()
            },
        }
    }

    /// Commits what was changed, and nobody has reported since.
    fn commit_unheard(&mut self) {
        let committed = self.c.state.osdmap.clone();
        let new = self.c.draft.close(&committed, self.now.wall).osdmap.unwrap();
        self.c.take_map(new.map);
    }

    /// An OSD that was up is stopped.
    pub fn stop(&mut self, id: OsdId) {
        self.stopped.insert(id);
        self.c.change(|inc, _| inc.mark_down(id)).unwrap();
        self.commit();
    }

    /// One that was stopped comes up again.
    pub fn start(&mut self, id: OsdId) {
        self.stopped.remove(&id);
        self.sleep(Duration::ZERO);
    }

    /// The same, and it has not reported yet.
    pub fn comes_up_and_says_nothing(&mut self, id: OsdId) {
        self.c.change(|inc, map| boots(inc, map, id)).unwrap();
        self.commit_unheard();
    }

    /// An OSD that was up is stopped, and those that lead its PGs now have not reported yet.
    pub fn stop_unheard(&mut self, id: OsdId) {
        self.stopped.insert(id);
        self.c.change(|inc, _| inc.mark_down(id)).unwrap();
        self.commit_unheard();
    }

    /// Time passes. OSDs that run come up again.
    pub fn sleep(&mut self, time: Duration) {
        self.pass(time);
        let stopped = &self.stopped;
        let boots = |inc: &mut maps::Incremental, map: &OsdMap| {
            for id in map.existing_osds().filter(|&id| map.is_down(id) && !stopped.contains(&id)) {
                boots(inc, map, id);
            }
        };
        self.c.change(boots).unwrap();
        self.commit();
        let map = self.c.state.osdmap.clone();
        self.c.pgmap.tick(self.now, &map);
    }

    /// Pools hold so many objects and bytes now; that was written within ten seconds.
    pub fn write(&mut self, pools: &Map<String, Value>) {
        self.sleep(Duration::ZERO);
        for (pool, sums) in pools {
            let n = |i: usize| sums[i].as_i64().unwrap();
            self.held.insert(PoolId(pool.parse().unwrap()), (n(0), n(1)));
        }
        self.io = IoCounts { reads: 1, read_bytes: 1020, writes: 4750, write_bytes: 9_850_000 };
        self.report();
        self.sleep(Duration::from_secs(10));
    }
}

fn boots(inc: &mut maps::Incremental, map: &OsdMap, id: OsdId) {
    let osd = map.osd(id).unwrap();
    let addrs = maps::OsdAddrs {
        client: osd.client_addrs.clone(),
        cluster: osd.cluster_addrs.clone(),
        hb_back: osd.hb_back_addrs.clone(),
        hb_front: osd.hb_front_addrs.clone(),
    };
    inc.mark_up(id, addrs);
}
