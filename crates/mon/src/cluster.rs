//! Everything a mon knows, without the ways by which it hears and speaks.
//!
//! Commands and messages are carried out on a [`Cluster`]. Changes go into its draft; who asked is
//! answered when the draft is committed (see [`Mon`](crate::Mon)).

use crate::balancer::Balancer;
use crate::crashes::Crashes;
use crate::draft::Draft;
use crate::images::Images;
use crate::log::ClusterLog;
use crate::options::Known;
use crate::osds::{Awaited, Failure, Identities};
use crate::pgmap::PgMap;
use crate::scrubs::Scrubs;
use crate::session::Session;
use crate::state::State;
use crate::store::keys;
use crate::tasks::{Purges, Tasks};
use admin::CommandError;
use admin::perf::Resets;
use admin::settings::{Settings, Source};
use crush::{CrushError, CrushMap};
use io::kv::KvSpace;
use io::{Now, Rng};
use maps::{Incremental, OsdMap, PgPool};
use peer::RecoveryOrder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use types::{AddrVec, Epoch, Mono, OsdId, PgId, PoolId};
use wire::LinkId;

/// Decoded maps of the last epochs, for wishes that are based on them.
const RECENT_MAPS: usize = 64;

/// Global ids that are reserved with one commit.
const GLOBAL_IDS_AT_ONCE: u64 = 10_000;

/// See the module's text.
pub(crate) struct Cluster {
    /// The mon's name.
    pub name: String,
    pub addrs: AddrVec,
    /// Where the mgr is reached; empty until its socket is there.
    pub mgr_addrs: AddrVec,
    /// Facts about the mon's process.
    pub metadata: BTreeMap<String, String>,
    /// When this mon started.
    pub started: Now,
    /// When it started, or last went on after it had stood still, or was cut off.
    pub woke: Mono,
    /// When it last heard an OSD, if it ever did.
    pub last_heard: Option<Mono>,
    pub state: State,
    pub draft: Draft,
    pub pgmap: PgMap,
    /// PGs that nobody has reported yet, as they are by the committed map.
    pub newborns: BTreeMap<PgId, pg::Pg>,
    pub settings: Settings,
    /// Counts changes of what it depends on which options somebody is told. To work it out for each session at
    /// each new map takes long where there are many sessions and sections.
    pub config_serial: u64,
    /// Where the mon's counters were reset.
    pub resets: Resets,
    pub known: Known,
    pub sessions: BTreeMap<LinkId, Session>,
    /// The newest session of each OSD.
    pub osd_links: BTreeMap<OsdId, LinkId>,
    /// OSDs without a session that may come back.
    pub awaited: BTreeMap<OsdId, Awaited>,
    /// Whom boots were refused, and who was asked whether it lives.
    pub identities: Identities,
    /// What OSDs say of others that do not answer.
    pub failures: BTreeMap<OsdId, Failure>,
    /// Since when OSDs are down, as far as this mon has seen.
    pub down_since: BTreeMap<OsdId, Mono>,
    recent: VecDeque<Arc<OsdMap>>,
    pub log: ClusterLog,
    /// What was wrong when the log was last told, by code.
    pub health_seen: BTreeMap<String, String>,
    /// How far pools are on the way to the number of PGs that is wanted.
    pub steps: BTreeMap<PoolId, crate::pools::Step>,
    /// Since when OSDs have slow disks.
    pub slow_since: BTreeMap<OsdId, Mono>,
    pub scrubs: Scrubs,
    pub balancer: Balancer,
    pub images: Images,
    pub crashes: Crashes,
    /// How much room the cluster store has, as it was last said.
    pub space: Option<KvSpace>,
    pub tasks: Tasks,
    pub purges: Purges,
    /// What OSDs are to recover first; they are told with the next commit.
    pub recovery_orders: Vec<(OsdId, RecoveryOrder)>,
    pub next_global_id: u64,
    pub rng: Rng,
}

impl Cluster {
    /// With this state, as it came from the store.
    pub fn new(
        cfg: &crate::MonConfig,
        now: Now,
        state: State,
        settings: Settings,
        rng: Rng,
    ) -> Self {
        let map = state.osdmap.clone();
        let down = map.existing_osds().filter(|&id| map.is_down(id));
        Cluster {
            name: cfg.name.clone(),
            addrs: AddrVec::msgr2(cfg.addr, 0),
            mgr_addrs: AddrVec::default(),
            metadata: cfg.metadata.clone(),
            started: now,
            woke: now.mono,
            last_heard: None,
            next_global_id: state.global_ids_to,
            draft: Draft::default(),
            pgmap: PgMap::default(),
            newborns: BTreeMap::new(),
            settings,
            config_serial: 1,
            resets: Resets::default(),
            known: Known::new(),
            sessions: BTreeMap::new(),
            osd_links: BTreeMap::new(),
            awaited: BTreeMap::new(),
            identities: Identities::default(),
            failures: BTreeMap::new(),
            down_since: down.map(|id| (id, now.mono)).collect(),
            recent: VecDeque::from([map]),
            log: ClusterLog::default(),
            health_seen: BTreeMap::new(),
            steps: BTreeMap::new(),
            slow_since: BTreeMap::new(),
            scrubs: Scrubs::default(),
            balancer: Balancer::default(),
            images: Images::default(),
            crashes: Crashes::load(&state),
            space: None,
            tasks: Tasks::load(&state),
            purges: Purges::default(),
            recovery_orders: Vec::new(),
            state,
            rng,
        }
    }

    /// The OSDMap as it will be when the draft is committed.
    pub fn map(&self) -> &Arc<OsdMap> {
        self.draft.map(&self.state.osdmap)
    }

    /// Changes the OSDMap; see [`Draft::edit`].
    ///
    /// # Errors
    /// What `edit` says; then nothing is changed.
    pub fn edit<R>(
        &mut self,
        edit: impl FnOnce(&mut Incremental, &OsdMap) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        self.draft.edit(&self.state.osdmap, edit)
    }

    /// Changes the OSDMap without a way to refuse.
    ///
    /// # Errors
    /// When the change cannot be.
    pub fn change(
        &mut self,
        edit: impl FnOnce(&mut Incremental, &OsdMap),
    ) -> Result<(), CommandError> {
        self.edit(|inc, map| {
            edit(inc, map);
            Ok(())
        })
    }

    /// Changes the CRUSH map. When nothing changes there is no new epoch.
    ///
    /// # Errors
    /// What `edit` says; then nothing is changed.
    pub fn edit_crush<R>(
        &mut self,
        edit: impl FnOnce(&mut CrushMap) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        self.edit(|inc, map| {
            let mut crush = CrushMap::clone(map.crush());
            let result = edit(&mut crush)?;
            if crush != **map.crush() {
                inc.set_crush(&crush);
            }
            Ok(result)
        })
    }

    /// Changes a pool.
    ///
    /// # Errors
    /// What `edit` says; then nothing is changed.
    pub fn edit_pool<R>(
        &mut self,
        id: PoolId,
        edit: impl FnOnce(&mut PgPool, &OsdMap) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        self.edit(|inc, map| {
            let mut pool = map
                .pool(id)
                .cloned()
                .ok_or_else(|| CommandError::not_found(format_args!("no pool {id}")))?;
            let result = edit(&mut pool, map)?;
            if map.pool(id) != Some(&pool) {
                inc.new_pools.insert(id, pool);
            }
            Ok(result)
        })
    }

    /// A pool by its name.
    ///
    /// # Errors
    /// ENOENT, in Ceph's words.
    pub fn pool_id(&self, name: &str) -> Result<PoolId, CommandError> {
        self.map()
            .pool_by_name(name)
            .ok_or_else(|| CommandError::not_found(format_args!("unrecognized pool '{name}'")))
    }

    /// What every life of a mon begins with: its address, its own version of the MgrMap, its own global ids.
    pub fn begin_life(&mut self, now: Now) {
        self.follow_own_addr(now);
        self.state.mgr_epoch = self.state.mgr_epoch.next();
        self.draft.put(keys::MGR_EPOCH, denc::encode(&self.state.mgr_epoch));
        self.log.begin_life(self.state.mgr_epoch.0);
        self.reserve_global_ids();
        // A store of a version that did not write them down has them from now on.
        self.draft.put(keys::OSD_NUMBERS, denc::encode(&self.state.osd_numbers));
        let own = self.own_config();
        self.settings.replace(Source::Mon, &own);
    }

    /// Clients go on with the addresses that the map of the monitors has, whichever they began with.
    fn follow_own_addr(&mut self, now: Now) {
        let monmap = &mut self.state.monmap;
        let Some(mon) = monmap.mons.get_mut(&self.name).filter(|mon| mon.addrs != self.addrs)
        else {
            return;
        };
        let before = std::mem::replace(&mut mon.addrs, self.addrs.clone());
        (monmap.epoch, monmap.last_changed) = (monmap.epoch.next(), now.wall);
        tracing::info!("mon.{}: has moved from {before} to {}", self.name, self.addrs);
        self.draft.put(keys::MONMAP, denc::encode(&self.state.monmap));
    }

    /// A global id that nobody ever had. It may leave when the draft is committed.
    pub fn new_global_id(&mut self) -> u64 {
        if self.next_global_id >= self.state.global_ids_to {
            self.reserve_global_ids();
        }
        self.next_global_id += 1;
        self.next_global_id - 1
    }

    fn reserve_global_ids(&mut self) {
        self.state.global_ids_to = self.next_global_id + GLOBAL_IDS_AT_ONCE;
        self.draft.put(keys::GLOBAL_ID, denc::encode(&self.state.global_ids_to));
    }

    /// Takes in a map that is committed now. Answers which OSDs have to hear at once of PGs they
    /// are to make.
    pub fn take_map(&mut self, map: Arc<OsdMap>) -> BTreeSet<OsdId> {
        let old = std::mem::replace(&mut self.state.osdmap, map.clone());
        if self.recent.len() >= RECENT_MAPS {
            self.recent.pop_front();
        }
        self.recent.push_back(map.clone());
        // Masks are for places in it.
        self.config_serial += u64::from(!Arc::ptr_eq(old.crush(), map.crush()));
        self.pgmap.follow(&old, &map);
        self.identities.follow(&map);
        self.advance_newborns(&old, &map)
    }

    /// A recent map.
    pub fn recent_map(&self, epoch: Epoch) -> Option<&Arc<OsdMap>> {
        self.recent.iter().rev().find(|m| m.epoch == epoch)
    }

    /// Names of pools by number, for trees.
    pub fn pool_names(&self) -> BTreeMap<i64, String> {
        self.map().pool_names.iter().map(|(id, name)| (id.0, name.clone())).collect()
    }
}

/// An error of an edit of the CRUSH map, as a command answers it.
pub(crate) fn crush_error(e: CrushError) -> CommandError {
    CommandError::new(e.errno(), e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use maps::MonMap;
    use serde_json::json;

    /// Started with another address on its store. Clients that came to it hung: the map they got named the old one.
    #[test]
    fn a_mon_that_has_moved_says_where_it_is() {
        let mut bench = Bench::new();
        let now = bench.now();
        bench.c.begin_life(now);
        assert_eq!(bench.c.state.monmap.epoch, Epoch(1));
        bench.c.addrs = AddrVec::msgr2("127.0.0.1:7009".parse().unwrap(), 0);
        for _ in 0..2 {
            bench.c.begin_life(now);
            assert_eq!(bench.c.state.monmap.epoch, Epoch(2));
        }
        let batch = bench.c.draft.close(&bench.c.state.osdmap, now.wall).batch;
        let stored = batch.changes.iter().find(|(key, _)| key == keys::MONMAP.as_bytes()).unwrap();
        let stored: MonMap = denc::decode(stored.1.as_ref().unwrap()).unwrap();
        assert_eq!(stored.mons["a"].addrs, bench.c.addrs);
        let (_, _, conf) = bench.run(&json!({"prefix": "config generate-minimal-conf"}));
        let conf = String::from_utf8_lossy(&conf);
        assert!(conf.contains("mon_host = [v2:127.0.0.1:7009/0]"), "{conf}");
    }
}
