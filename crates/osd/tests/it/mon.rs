//! A mon of few words: keeps the OSD map in memory, marks OSDs up and down, and asks for PGs.

use bytes::Bytes;
use crush::Location;
use io::net::{ListenAddr, ListenId};
use io::{Core, Effects, Event, Now, Rng};
use maps::{
    BlocklistAddr, FreshOsdMap, Incremental, OsdAddrs, OsdMap, OsdMapFlags, OsdState, OsdXInfo,
    PgIdExt, PgMergeMeta, PgPool, PoolOpt, PoolOptKey, PoolType,
};
use peer::{
    FailureKind, OsdAlive, OsdBoot, OsdFailure, OsdGoingDown, OsdPgTemp, OsdReport, PgCreate,
    PgCreates, PgStat, ScrubOrder, View, mapping, pool_rules,
};
use pg::{History, PastIntervals, Pg};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use types::{Epoch, Mono, OsdId, PgId, PoolId, SnapId, Uuid};
use wire::messenger::ListenerConfig;
use wire::msg::{MConfig, MMonGetOsdMap, MMonSubscribe, MOsdMap, Message, Payload};
use wire::{Identity, LinkId, Messenger, MsgrEvent};

pub struct TestMon {
    msgr: Messenger,
    listen: SocketAddr,
    pub map: OsdMap,
    next: Incremental,
    incrementals: BTreeMap<Epoch, Bytes>,
    subscribed: BTreeMap<LinkId, Epoch>,
    osds: BTreeMap<LinkId, OsdId>,
    /// Boots that wait for the old life to be marked down.
    boots: BTreeMap<OsdId, OsdBoot>,
    pub stats: BTreeMap<PgId, PgStat>,
    /// The newest transaction that each OSD's store called durable.
    durable: BTreeMap<OsdId, u64>,
    /// The newest report of each OSD.
    pub reports: BTreeMap<OsdId, OsdReport>,
    /// PGs that nobody has reported yet.
    newborn: BTreeMap<PgId, Pg>,
    next_global_id: u64,
    /// The epoch in which PGs were last told to become quiet, to be merged, or to serve again.
    quiet_since: Epoch,
    /// An OSD whose session ends is marked down.
    pub notices_deaths: bool,
    /// Nobody is marked up.
    pub no_up: bool,
    /// Who has only older maps gets this one instead of what follows.
    pub oldest: Epoch,
    /// Its maps come out otherwise than OSDs make them: so of a newer version of the program. Full ones are kept.
    pub is_of_tomorrow: bool,
    /// Those, while it is so.
    fulls: BTreeMap<Epoch, Bytes>,
    /// How often one of them was asked for.
    pub fulls_asked: u32,
    /// How often maps were subscribed to.
    pub subscriptions: u32,
    /// What OSDs are told of their options when they come, if anything.
    config: MConfig,
}

impl TestMon {
    pub fn new(fsid: Uuid, listen: SocketAddr, osds: i32, hosts: i32) -> Self {
        let fresh =
            FreshOsdMap { fsid, now: types::UTime::ZERO, failure_domain: "host".to_owned() };
        let mut map = OsdMap::fresh(&fresh).expect("a map");
        let mut crush = (**map.crush()).clone();
        for osd in 0..osds {
            let host = format!("host=node{}", osd % hosts);
            let loc = Location::parse(&["root=default", host.as_str()]).expect("a location");
            let name = format!("osd.{osd}");
            crush.create_or_move_item(osd, 0x10000, &name, &loc).expect("a place");
        }
        map.set_crush(Arc::new(crush));
        map.set_max_osd(osds);
        for osd in 0..osds {
            map.set_weight(OsdId(osd), 0x10000);
        }
        // Everything up to here is the first map.
        let next = Incremental::after(&map);
        TestMon {
            msgr: Messenger::new(Identity::daemon(types::EntityType::MON, 0, 1), Rng::with_seed(1)),
            listen,
            map,
            next,
            incrementals: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            osds: BTreeMap::new(),
            boots: BTreeMap::new(),
            stats: BTreeMap::new(),
            durable: BTreeMap::new(),
            reports: BTreeMap::new(),
            newborn: BTreeMap::new(),
            next_global_id: 4100,
            quiet_since: Epoch::ZERO,
            notices_deaths: true,
            no_up: false,
            oldest: Epoch(1),
            is_of_tomorrow: false,
            fulls: BTreeMap::new(),
            fulls_asked: 0,
            subscriptions: 0,
            config: MConfig::default(),
        }
    }

    pub fn create_pool(&mut self, id: i64, name: &str, size: u8, min_size: u8, pg_num: u32) {
        let mut pool = PgPool::new(PoolType::REPLICATED, size, min_size, 0, pg_num);
        pool.last_change = self.next.epoch;
        self.next.new_pools.insert(PoolId(id), pool);
        self.next.new_pool_names.insert(PoolId(id), name.to_owned());
        self.next.new_pool_max = Some(id);
    }

    /// The newest map of an OSD that wants to be marked up.
    pub fn newest_at_boot(&self, osd: OsdId) -> Option<Epoch> {
        self.boots.get(&osd).map(|boot| boot.newest_map)
    }

    /// From the next map on.
    pub fn set_min_size(&mut self, id: i64, min_size: u8) {
        let mut pool = self.pool_to_be(id);
        pool.min_size = min_size;
        self.next.new_pools.insert(PoolId(id), pool);
    }

    /// From the next map on.
    pub fn set_size(&mut self, id: i64, size: u8) {
        let mut pool = self.pool_to_be(id);
        pool.size = size;
        self.next.new_pools.insert(PoolId(id), pool);
    }

    /// Sets text options of a pool.
    pub fn set_pool_options(&mut self, id: i64, options: &[(&str, &str)]) {
        let known = self.next.new_pools.get(&PoolId(id)).or_else(|| self.map.pool(PoolId(id)));
        let mut pool = known.expect("the pool is there").clone();
        pool.last_change = self.next.epoch;
        for (name, value) in options {
            let key = PoolOptKey::from_name(name).expect("an option");
            pool.opts.0.insert(key, PoolOpt::Str((*value).to_owned()));
        }
        self.next.new_pools.insert(PoolId(id), pool);
    }

    /// Changes the number of PGs, and of different places for them, with the next map.
    pub fn set_pg_num(&mut self, id: i64, pg_num: u32, pgp_num: u32) {
        self.quiet_since = self.next.epoch;
        let mut pool = self.pool_to_be(id);
        (pool.pg_num, pool.pg_num_target, pool.pg_num_pending) = (pg_num, pg_num, pg_num);
        (pool.pgp_num, pool.pgp_num_target) = (pgp_num, pgp_num);
        self.next.new_pools.insert(PoolId(id), pool);
    }

    /// Has PGs merged, one by one, until there are so many.
    pub fn merge_to(&mut self, id: i64, pg_num: u32) {
        let mut pool = self.pool_to_be(id);
        pool.pg_num_target = pg_num;
        pool.pgp_num = pool.pgp_num.min(pg_num);
        pool.pgp_num_target = pool.pgp_num;
        self.next.new_pools.insert(PoolId(id), pool);
    }

    fn pool_to_be(&self, id: i64) -> PgPool {
        let known = self.next.new_pools.get(&PoolId(id)).or_else(|| self.map.pool(PoolId(id)));
        let mut pool = known.expect("the pool is there").clone();
        pool.last_change = self.next.epoch;
        pool
    }

    /// Goes on with merging, as the real mon does: the last PG and its target become quiet, then one.
    fn go_on_merging(&mut self) {
        let ids: Vec<_> = self.map.pools.keys().copied().collect();
        for id in ids {
            if self.next.new_pools.contains_key(&id) {
                continue;
            }
            let pool = self.map.pool(id).expect("it is there");
            if pool.pg_num_target >= pool.pg_num && pool.pg_num_pending >= pool.pg_num {
                continue;
            }
            let source = PgId::new(id, pool.pg_num - 1);
            let target = source.parent();
            let pending = pool.pg_num_pending < pool.pg_num;
            let both = [source, target].map(|p| self.stats.get(&p).cloned());
            let [Some(s), Some(t)] = both else { continue };
            let since = self.quiet_since;
            let has = |bits: pg::StateBits| {
                [&s, &t]
                    .iter()
                    .all(|p| pg::StateBits(p.state).has(bits) && p.mapping_epoch >= since)
            };
            let same = s.acting == t.acting && s.up == s.acting && t.up == t.acting;
            let mut next = self.pool_to_be(id.0);
            let serve = [&s, &t].iter().all(|p| {
                let state = pg::StateBits(p.state);
                state.has(pg::StateBits::ACTIVE) && state.has(pg::StateBits::CLEAN)
            });
            let clean = pg::StateBits::CLEAN;
            match () {
                () if !pending && serve && same => next.pg_num_pending -= 1,
                () if pending && has(clean) && has(pg::StateBits::PREMERGE) && same => {
                    next.pg_num -= 1;
                    next.last_pg_merge_meta = PgMergeMeta {
                        source_pgid: source,
                        ready_epoch: self.map.epoch,
                        last_epoch_started: self.map.epoch,
                        last_epoch_clean: self.map.epoch,
                        source_version: s.last_update,
                        target_version: t.last_update,
                    };
                    self.stats.remove(&source);
                }
                // It cannot be now: they serve again meanwhile.
                () if pending
                    && [&s, &t].iter().any(|p| {
                        let state = pg::StateBits(p.state);
                        p.mapping_epoch >= since
                            && state.has(pg::StateBits::PEERED)
                            && !state.has(clean)
                    }) =>
                {
                    next.pg_num_pending = next.pg_num
                }
                () => continue,
            }
            self.quiet_since = self.next.epoch;
            self.next.new_pools.insert(id, next);
        }
    }

    pub fn delete_pool(&mut self, id: i64) {
        self.next.old_pools.insert(PoolId(id));
        self.stats.retain(|p, _| p.pool != PoolId(id));
    }

    pub fn remove_snap(&mut self, pool: i64, snap: SnapId) {
        self.next.new_removed_snaps.entry(PoolId(pool)).or_default().insert(snap);
    }

    /// Takes removed snapshots off the map that no PG has anything left of.
    fn purge_snaps(&mut self) {
        for (pool, queue) in &self.map.removed_snaps_queue {
            let Some(info) = self.map.pool(*pool) else { continue };
            let mut gone = queue.clone();
            for pgid in info.pgs(*pool) {
                let trimmed = self.stats.get(&pgid).map(|s| s.trimmed.clone());
                gone.intersect(&trimmed.unwrap_or_default());
            }
            if !gone.is_empty() {
                self.next.new_purged_snaps.insert(*pool, gone);
            }
        }
    }

    /// Shuts out all clients of a host.
    pub fn blocklist(&mut self, host: IpAddr) {
        let until = types::UTime { sec: u32::MAX, nsec: 0 };
        self.next.new_blocklist.insert(BlocklistAddr::host(host), until);
    }

    /// `ceph osd lost`.
    pub fn mark_lost(&mut self, osd: OsdId) {
        let epoch = self.next.epoch;
        self.next.new_lost.insert(osd, epoch);
    }

    /// Sets or clears a bit of an OSD.
    pub fn set_state(&mut self, osd: OsdId, state: maps::OsdState, on: bool) {
        if self.map.state(osd).contains(state) != on {
            self.next.toggle_state(osd, state);
        }
    }

    /// Tells an OSD something.
    pub fn tell(&mut self, osd: OsdId, what: impl Payload) {
        let link = self.osds.iter().find(|(_, o)| **o == osd).map(|(link, _)| *link);
        self.msgr.send(link.expect("it is connected"), what.encode());
    }

    /// `ceph config set osd`.
    pub fn set_option(&mut self, name: &str, value: &str) {
        self.config.config.insert(name.to_owned(), value.to_owned());
        for link in self.osds.keys() {
            self.msgr.send(*link, self.config.clone().encode());
        }
    }

    pub fn mark_down(&mut self, osd: OsdId) {
        if self.map.is_up(osd) && !self.next.new_state.contains_key(&osd) {
            self.next.mark_down(osd);
        }
    }

    /// Says that an OSD is full, or that it is not any more.
    pub fn set_full(&mut self, osd: OsdId, full: bool) {
        if self.map.state(osd).contains(OsdState::FULL) != full {
            self.next.toggle_state(osd, OsdState::FULL);
        }
    }

    pub fn set_weight(&mut self, osd: OsdId, weight: u32) {
        self.next.new_weight.insert(osd, weight);
    }

    /// Sets how readily an OSD leads: 0x10000 is 1.
    pub fn set_affinity(&mut self, osd: OsdId, affinity: u32) {
        self.next.new_primary_affinity.insert(osd, affinity);
    }

    /// Sends an OSD that will lead a PG by the next map the order to scrub it.
    pub fn order_scrub_early(&mut self, pgid: PgId, osd: OsdId) {
        let order =
            ScrubOrder { epoch: self.next.epoch, pgs: vec![pgid], deep: true, repair: false };
        self.tell(osd, order);
    }

    /// Sends the primary of a PG the order to scrub it. `false` when it is not connected.
    pub fn order_scrub(&mut self, pgid: PgId, deep: bool, repair: bool) -> bool {
        let primary = self.map.pg_to_up_acting(pgid).acting_primary;
        let link = self.osds.iter().rfind(|(_, osd)| Some(**osd) == primary).map(|(l, _)| *l);
        let order = ScrubOrder { epoch: self.map.epoch, pgs: vec![pgid], deep, repair };
        link.map(|link| self.msgr.send(link, order.encode())).is_some()
    }

    /// Sets the flags of the cluster.
    pub fn set_flags(&mut self, flags: OsdMapFlags) {
        self.next.new_flags = Some(flags);
    }

    /// Whether every PG is reported, active and clean by the newest mapping.
    pub fn all_clean(&self) -> bool {
        let want = pg::StateBits::ACTIVE.0 | pg::StateBits::CLEAN.0;
        self.map.pools.iter().all(|(id, pool)| {
            pool.pgs(*id).all(|pgid| {
                let acting = self.map.pg_to_up_acting(pgid);
                self.stats.get(&pgid).is_some_and(|s| {
                    s.state & want == want
                        && s.acting == acting.acting.to_vec()
                        && acting.acting.iter().all(|o| o.is_some())
                        && acting.acting.len() == usize::from(pool.size)
                })
            })
        })
    }

    pub fn states(&self) -> String {
        let text = |(p, s): (&PgId, &PgStat)| {
            format!(
                "{p}: {} up {:?} acting {:?} at {}",
                pg::StateBits(s.state),
                s.up,
                s.acting,
                s.last_update
            )
        };
        self.stats.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn on_boot(&mut self, boot: OsdBoot) {
        let osd = boot.osd;
        if self.map.is_up(osd) && self.map.client_addrs(osd) == Some(&boot.client_addrs) {
            return;
        }
        self.mark_down(osd);
        self.boots.insert(osd, boot);
    }

    fn bring_up(&mut self) {
        if self.no_up {
            return;
        }
        let ready = |osd: &OsdId| !self.map.is_up(*osd);
        let up: Vec<_> = self.boots.keys().copied().filter(ready).collect();
        for osd in up {
            let Some(boot) = self.boots.remove(&osd) else { continue };
            if !self.map.exists(osd) {
                self.next.toggle_state(osd, maps::OsdState::EXISTS);
                self.next.new_uuid.insert(osd, boot.uuid);
            } else if self.map.osd(osd).is_some_and(|o| o.uuid != boot.uuid) {
                self.next.new_uuid.insert(osd, boot.uuid);
                self.next.new_lost.insert(osd, self.map.epoch);
            }
            let addrs = OsdAddrs {
                client: boot.client_addrs.clone(),
                cluster: boot.cluster_addrs.clone(),
                hb_back: boot.hb_back_addrs,
                hb_front: boot.hb_front_addrs,
            };
            self.next.mark_up(osd, addrs);
        }
    }

    fn on_pg_temp(&mut self, m: &OsdPgTemp) {
        if m.epoch > self.map.epoch {
            return;
        }
        for (pgid, want) in &m.wants {
            let now: Vec<_> = self.map.pg_to_up_acting(*pgid).acting.to_vec();
            let up: Vec<_> = self.map.pg_to_up_acting(*pgid).up.to_vec();
            let all_up = want.iter().all(|o| self.map.is_up(*o));
            let target = if want.is_empty() { &up } else { want };
            if all_up && now != *target && self.map.pool(pgid.pool).is_some() {
                self.next.new_pg_temp.insert(*pgid, want.iter().copied().collect());
            }
        }
    }

    fn on_message(&mut self, link: LinkId, message: &Message) {
        match message.header.kind {
            MMonSubscribe::TYPE => {
                let m: MMonSubscribe = message.decode().expect("a subscription");
                self.subscriptions += 1;
                if m.what.contains_key("config") && !self.config.config.is_empty() {
                    self.msgr.send(link, self.config.clone().encode());
                }
                if let Some(want) = m.what.get("osdmap") {
                    let have =
                        Epoch(u32::try_from(want.start).expect("an epoch").saturating_sub(1));
                    self.send_maps(link, have);
                    self.subscribed.insert(link, self.map.epoch);
                }
            }
            MMonGetOsdMap::TYPE => {
                let m: MMonGetOsdMap = message.decode().expect("a question");
                self.fulls_asked += 1;
                let wanted = self.fulls.range(m.full_first..=m.full_last).take(40);
                let fulls = wanted.map(|(epoch, full)| (*epoch, full.clone())).collect();
                let (oldest, newest) = (self.oldest, self.map.epoch);
                let fsid = self.map.fsid;
                let m = MOsdMap { fsid, fulls, oldest, newest, ..MOsdMap::default() };
                self.msgr.send(link, m.encode());
            }
            OsdBoot::TYPE => {
                let boot: OsdBoot = message.decode().expect("a boot");
                self.osds.insert(link, boot.osd);
                if self.map.osd(boot.osd).is_some_and(|o| o.uuid != boot.uuid) {
                    self.durable.remove(&boot.osd);
                }
                // Whatever crashed: what a store called durable it has.
                let once = self.durable.get(&boot.osd).copied().unwrap_or(0);
                let (id, now) = (boot.osd, boot.durable_txn);
                assert!(now >= once, "osd.{id} had {once} transactions, and now {now}");
                self.on_boot(boot);
            }
            OsdAlive::TYPE => {
                let m: OsdAlive = message.decode().expect("alive");
                let to = m.want.max(self.map.epoch);
                if self.map.is_up(m.osd) {
                    self.next.new_up_thru.insert(m.osd, to);
                }
            }
            OsdPgTemp::TYPE => self.on_pg_temp(&message.decode().expect("pg_temp")),
            OsdGoingDown::TYPE => {
                let m: OsdGoingDown = message.decode().expect("going down");
                let current = self.map.osd(m.osd).is_some_and(|o| o.info.up_from == m.up_from);
                if current {
                    self.mark_down(m.osd);
                    let xinfo = self.map.osd(m.osd).map(|o| o.xinfo).unwrap_or_default();
                    let dead = OsdXInfo { dead_epoch: self.next.epoch, ..xinfo };
                    self.next.new_xinfo.insert(m.osd, dead);
                }
            }
            OsdFailure::TYPE => {
                let m: OsdFailure = message.decode().expect("a failure");
                let current = self.map.osd(m.target).is_some_and(|o| o.info.up_from == m.up_from);
                if current && m.what != FailureKind::Answers && self.map.is_up(m.reporter) {
                    self.mark_down(m.target);
                }
            }
            OsdReport::TYPE => {
                let m: OsdReport = message.decode().expect("a report");
                assert!(
                    m.pools.is_some(),
                    "osd.{}: everything is counted, under its pool",
                    m.osd.0
                );
                let durable = self.durable.entry(m.osd).or_default();
                *durable = m.durable_txn.max(*durable);
                for stat in m.pgs.clone() {
                    let leads = self.map.pg_to_up_acting(stat.pgid).acting_primary == Some(m.osd);
                    if leads && self.map.pg_exists(stat.pgid) {
                        self.stats.insert(stat.pgid, stat);
                    }
                }
                self.reports.insert(m.osd, m);
                self.purge_snaps();
            }
            _ => {}
        }
    }

    fn send_maps(&mut self, link: LinkId, have: Epoch) {
        if have >= self.map.epoch {
            return;
        }
        let mut m = MOsdMap {
            fsid: self.map.fsid,
            oldest: self.oldest,
            newest: self.map.epoch,
            ..MOsdMap::default()
        };
        if have < self.oldest {
            m.fulls.insert(self.map.epoch, denc::encode(&self.map));
        } else {
            let range = self.incrementals.range(have.next()..);
            m.incrementals.extend(range.map(|(e, b)| (*e, b.clone())));
        }
        self.msgr.send(link, m.encode());
    }

    fn propose(&mut self) {
        self.bring_up();
        self.go_on_merging();
        if self.next.is_empty() {
            return;
        }
        let mut inc = std::mem::replace(&mut self.next, Incremental::after(&self.map));
        // A wish for somebody who goes down in the same epoch is void.
        inc.new_up_thru.retain(|osd, _| !inc.new_state.contains_key(osd));
        let mut map = self.map.clone();
        map.apply(&inc).expect("it applies");
        let (full, crc) = map.encode_with_crc();
        inc.full_crc = crc ^ u32::from(self.is_of_tomorrow);
        if self.is_of_tomorrow {
            self.fulls.insert(map.epoch, full);
        }
        self.incrementals.insert(inc.epoch, denc::encode(&inc));
        let old = std::mem::replace(&mut self.map, map);
        self.advance_newborn(&old);
        self.next = Incremental::after(&self.map);
        let links: Vec<_> = self.subscribed.iter().map(|(l, e)| (*l, *e)).collect();
        for (link, have) in links {
            self.send_maps(link, have);
            self.subscribed.insert(link, self.map.epoch);
        }
        self.ask_for_pgs();
    }

    fn advance_newborn(&mut self, old: &OsdMap) {
        let (map, stats) = (&self.map, &self.stats);
        self.newborn.retain(|p, _| map.pool(p.pool).is_some() && !stats.contains_key(p));
        for (pgid, pg) in &mut self.newborn {
            pg.catch_up(&View(old), &View(map), mapping(map, *pgid), pool_rules(map, pgid.pool));
        }
        let created = |pool: &PoolId| !old.pools.contains_key(pool);
        for (id, pool) in map.pools.iter().filter(|(id, _)| created(id)) {
            for pgid in pool.pgs(*id) {
                let history = History::created(map.epoch);
                let (to, rules) = (mapping(map, pgid), pool_rules(map, pgid.pool));
                let past = PastIntervals::default();
                let pg = Pg::create(OsdId::NONE, pgid, history, past, map.epoch, to, rules);
                self.newborn.insert(pgid, pg);
            }
        }
    }

    fn ask_for_pgs(&mut self) {
        let mut wanted: BTreeMap<OsdId, Vec<PgCreate>> = BTreeMap::new();
        for (pgid, pg) in &self.newborn {
            if let Some(osd) = self.map.pg_to_up_acting(*pgid).acting_primary {
                let (history, past) = (pg.info().history, pg.past().clone());
                wanted.entry(osd).or_default().push(PgCreate { pgid: *pgid, history, past });
            }
        }
        for (link, osd) in &self.osds {
            if let Some(pgs) = wanted.get(osd) {
                let m = PgCreates { epoch: self.map.epoch, pgs: pgs.clone() };
                self.msgr.send(*link, m.encode());
            }
        }
    }
}

impl Core for TestMon {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let mut events = Vec::new();
        match event {
            Event::Start => {
                let addrs = types::AddrVec::msgr2(self.listen, 0);
                let config = ListenerConfig::mon(addrs);
                self.msgr.listen(ListenId(1), ListenAddr::Tcp(self.listen), config, fx);
            }
            Event::Net(event) => drop(self.msgr.handle(now, event, fx, &mut events)),
            _ => {}
        }
        self.on_events(events);
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let mut events = Vec::new();
        self.msgr.tick(now, fx, &mut events);
        self.on_events(events);
        self.propose();
        self.msgr.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.msgr.next_deadline()
    }
}

impl TestMon {
    fn on_events(&mut self, events: Vec<MsgrEvent>) {
        for event in events {
            match event {
                MsgrEvent::WantsGlobalId { link, .. } => {
                    self.next_global_id += 1;
                    self.msgr.assign_global_id(link, self.next_global_id);
                }
                MsgrEvent::Message { link, message } => self.on_message(link, &message),
                MsgrEvent::Closed { link, .. } => {
                    self.subscribed.remove(&link);
                    let osd = self.osds.remove(&link);
                    if let Some(osd) = osd.filter(|_| self.notices_deaths)
                        && !self.osds.values().any(|o| *o == osd)
                    {
                        self.mark_down(osd);
                    }
                }
                _ => {}
            }
        }
    }
}
