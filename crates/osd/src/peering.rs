//! PGs and maps: taking in epochs, making PGs, and the messages of peering.

use crate::daemon::{Daemon, Life};
use crate::host::PgHost;
use crate::lease::Priors;
use io::Effects;
use maps::OsdMap;
use peer::{PgCreate, PgCreates, PgPeering, View, mapping, pool_rules};
use pg::{Body, Lack, Loaded, Notice, Notify, PastIntervals, Pg, PgInfo, PgMsg, PoolRules, Query};
use std::collections::BTreeSet;
use std::rc::Rc;
use types::testing::{Probe, hit};
use types::{Epoch, OsdId, PgId, PoolId};
use wire::msg::Payload;

impl Daemon {
    /// Takes in the next epoch: every PG, one after the other.
    pub(crate) fn advance(&mut self, old: &Rc<OsdMap>, new: &Rc<OsdMap>, fx: &mut Effects) {
        self.restore_ahead(new, fx);
        self.gates_due = true;
        let pgids: Vec<_> = self.pgs.keys().copied().collect();
        let snaps = [old, new].map(|map| &map.removed_snaps_queue);
        let is_other = |pool: &&PoolId| snaps[0].get(pool) != snaps[1].get(pool);
        let others: BTreeSet<PoolId> =
            snaps.into_iter().flat_map(|s| s.keys()).filter(is_other).copied().collect();
        for pgid in pgids {
            if new.pool(pgid.pool).is_none() {
                self.begin_removal(pgid, fx);
                continue;
            }
            let children = self.children_by(pgid, new);
            let sources = self.sources_by(pgid, new);
            if !new.pg_exists(pgid) {
                // The PG it goes into is not here.
                self.begin_removal(pgid, fx);
            } else if !children.is_empty() {
                self.split_pg(pgid, &children, Some(old), new, fx);
            } else if !sources.is_empty() {
                self.merge_pgs(pgid, &sources, Some(old), new, fx);
            } else {
                self.advance_pg(pgid, old, new, fx);
            }
            if others.contains(&pgid.pool) || !children.is_empty() || !sources.is_empty() {
                [pgid].into_iter().chain(children).for_each(|p| self.note_trimming(p));
            }
        }
    }

    /// The PG's interval is over with this map. Comes before the machine says anything about the next
    /// one.
    pub(crate) fn note_interval_end(&mut self, pgid: PgId, last: &OsdMap) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let until = host.pg.mapping().acting_primary.map(|p| self.leases.bound(p));
        host.end_interval(self.now.mono, last.epoch, until);
    }

    fn advance_pg(&mut self, pgid: PgId, old: &Rc<OsdMap>, new: &Rc<OsdMap>, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        if host.pg.epoch() >= new.epoch {
            return;
        }
        let (to, rules) = (mapping(new, pgid), pool_rules(new, pgid.pool));
        let (was, is) = (View(old), View(new));
        if host.pg.ends_interval(&to, rules) {
            self.note_interval_end(pgid, old);
        }
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.priors.retain_alive(new);
        if !host.started {
            host.pg.catch_up(&was, &is, to, rules);
            return;
        }
        self.run_pg_at(new, pgid, fx, |pg, ctx, out| pg.on_map(&was, ctx, to, rules, out));
        self.give_up_parts_of_gone(pgid, new, fx);
    }

    /// The mon has trimmed maps that we have not seen: every PG was clean since, so that nothing
    /// before the oldest kept map counts any more.
    pub(crate) fn skip_to(&mut self, map: &Rc<OsdMap>, fx: &mut Effects) {
        self.restore_behind(map, fx);
        let behind = |h: &PgHost| h.pg.epoch() < map.epoch;
        let pgids: Vec<_> = self.pgs.iter().filter(|(_, h)| behind(h)).map(|(p, _)| *p).collect();
        for pgid in pgids {
            let children = self.children_by(pgid, map);
            let sources = self.sources_by(pgid, map);
            if map.pool(pgid.pool).is_some() && !map.pg_exists(pgid) {
                self.begin_removal(pgid, fx);
            } else if !children.is_empty() {
                self.split_pg(pgid, &children, None, map, fx);
            } else if !sources.is_empty() {
                self.merge_pgs(pgid, &sources, None, map, fx);
            } else if let Some(host) = self.pgs.get_mut(&pgid) {
                host.pg.skip_to(map.epoch, mapping(map, pgid), pool_rules(map, pgid.pool));
                if host.started {
                    self.start_at(map, pgid, fx);
                }
            }
        }
        self.restore_ahead(map, fx);
    }

    /// A PG that is at this map not by having gone through it takes up its role in a new interval.
    pub(crate) fn start_at(&mut self, map: &Rc<OsdMap>, pgid: PgId, fx: &mut Effects) {
        self.run_pg_at(map, pgid, fx, |pg, ctx, out| {
            out.notices.push(Notice::NewInterval);
            pg.start(ctx, out);
        });
    }

    /// PGs whose records name an epoch before this one, of which there is no map: they are skipped to it
    /// from there, and divided or joined by what they say of themselves.
    fn restore_behind(&mut self, map: &Rc<OsdMap>, fx: &mut Effects) {
        let ahead = self.ahead.split_off(&map.epoch);
        for loaded in std::mem::replace(&mut self.ahead, ahead).into_values().flatten() {
            let record = &loaded.record;
            tracing::info!(
                "osd.{}: pg {}: no map is left of its epoch {}; it goes on from {}",
                self.cfg.id,
                record.info.pgid,
                record.epoch,
                map.epoch
            );
            let mut rules = pool_rules(map, record.info.pgid.pool);
            if record.pg_num != 0 {
                rules.pg_num = record.pg_num;
            }
            self.restore_pg(map, loaded, rules, fx);
        }
    }

    /// PGs whose records name this epoch as the newest they have taken in.
    fn restore_ahead(&mut self, map: &Rc<OsdMap>, fx: &mut Effects) {
        for loaded in self.ahead.remove(&map.epoch).unwrap_or_default() {
            let rules = pool_rules(map, loaded.record.info.pgid.pool);
            self.restore_pg(map, loaded, rules, fx);
        }
    }

    fn restore_pg(
        &mut self,
        map: &Rc<OsdMap>,
        mut loaded: Loaded,
        rules: PoolRules,
        fx: &mut Effects,
    ) {
        let pgid = loaded.record.info.pgid;
        let deleted = std::mem::take(&mut loaded.deleted);
        if !deleted.is_empty() {
            hit(Probe::DeletesLeft);
        }
        let past = &loaded.record.past;
        let mut priors = Priors::of_life_before(past, self.cfg.id, &self.leases);
        priors.retain_alive(map);
        let mut host = PgHost::new(Pg::restore(self.cfg.id, loaded, mapping(map, pgid), rules));
        host.priors = priors;
        self.pgs.insert(pgid, host);
        self.remove_deleted(pgid, deleted, fx);
    }

    /// The OSD is in the map: all PGs take up their roles.
    pub(crate) fn start_pgs(&mut self, fx: &mut Effects) {
        let pgids: Vec<_> = self.pgs.keys().copied().collect();
        for pgid in pgids {
            self.start_pg(pgid, fx);
        }
    }

    fn start_pg(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.started {
            host.started = true;
            self.run_pg(pgid, fx, |pg, ctx, out| pg.start(ctx, out));
            self.release_ops(fx);
        }
    }

    /// The mon says that PGs are new and that we lead them.
    pub(crate) fn on_pg_creates(&mut self, m: &PgCreates, fx: &mut Effects) {
        if !self.is_up() || m.epoch > self.maps.epoch() {
            // It comes again.
            return;
        }
        for create in &m.pgs {
            self.create_pg(m.epoch, create, fx);
        }
    }

    fn create_pg(&mut self, epoch: Epoch, create: &PgCreate, fx: &mut Effects) {
        let map = self.maps.current().clone();
        let pgid = create.pgid;
        let leads = mapping(&map, pgid).acting_primary == Some(self.cfg.id);
        let is_removed = self.removals.contains_key(&pgid) || self.is_removed_beside(pgid, fx);
        if !leads || self.pgs.contains_key(&pgid) || is_removed {
            return;
        }
        let Some(first) = self.maps.get(epoch).cloned() else { return };
        let rules = pool_rules(&first, pgid.pool);
        let (history, past) = (create.history, create.past.clone());
        let to = mapping(&first, pgid);
        let mut pg = Pg::create(self.cfg.id, pgid, history, past, epoch, to, rules);
        if self.catch_up_to_current(&mut pg) {
            self.pgs.insert(pgid, PgHost::new(pg));
            self.remove_left_records(pgid, fx);
            self.start_pg(pgid, fx);
        }
    }

    /// Whether all maps for it were there.
    fn catch_up_to_current(&self, pg: &mut Pg) -> bool {
        while pg.epoch() < self.maps.epoch() {
            let epoch = pg.epoch();
            let (Some(old), Some(new)) = (self.maps.get(epoch), self.maps.get(epoch.next())) else {
                return false;
            };
            let (to, rules) = (mapping(new, pg.pgid()), pool_rules(new, pg.pgid().pool));
            pg.catch_up(&View(old), &View(new), to, rules);
        }
        true
    }

    /// A message of peering from another OSD.
    pub(crate) fn on_peering(&mut self, from: OsdId, msg: PgMsg, fx: &mut Effects) {
        let pgid = msg.pgid;
        let (me, here) = (self.cfg.id, self.pgs.contains_key(&pgid));
        tracing::trace!("osd.{me}: pg {pgid} ({here}) from osd.{from}: {:?}", msg.body);
        let goes_on = match self.pgs.contains_key(&pgid) {
            // It was joined with one that is being removed.
            true => !self.hold_for_removal_beside(from, &msg, fx),
            false => self.make_copy(from, &msg, fx),
        };
        if !goes_on {
            return;
        }
        if self.pgs.get(&pgid).is_some_and(|h| h.started) {
            self.run_pg(pgid, fx, |pg, ctx, out| pg.on_msg(from, msg, ctx, out));
        }
    }

    /// A message about a PG that we have not got, or that is being removed: answers that, or begins a copy. Whether
    /// there is one now.
    fn make_copy(&mut self, from: OsdId, msg: &PgMsg, fx: &mut Effects) -> bool {
        let map = self.maps.current().clone();
        if map.pool(msg.pgid.pool).is_none() || !self.is_up() {
            return false;
        }
        let leads = mapping(&map, msg.pgid).acting_primary == Some(self.cfg.id);
        let history = match &msg.body {
            Body::Query(Query::Info, _) => {
                self.answer_absent(from, msg, fx);
                return false;
            }
            Body::Activate { info, .. } => info.history,
            Body::Notify(n) if leads && !n.info.is_absent() => n.info.history,
            _ => return false,
        };
        if !self.is_of_current_interval(msg) {
            // Or of one whose maps are too old to be in memory. A primary that still waits for us
            // in it says so again, with the map that it then has.
            if matches!(msg.body, Body::Activate { .. }) {
                self.answer_absent(from, msg, fx);
            }
            return false;
        }
        if self.hold_for_removal_beside(from, msg, fx) || !self.removal_has_given_way(from, msg, fx)
        {
            return false;
        }
        let rules = pool_rules(&map, msg.pgid.pool);
        let to = mapping(&map, msg.pgid);
        let mut pg = Pg::create(
            self.cfg.id,
            msg.pgid,
            history,
            PastIntervals::default(),
            map.epoch,
            to,
            rules,
        );
        pg.mark_unfilled();
        self.pgs.insert(msg.pgid, PgHost::new(pg));
        self.remove_left_records(msg.pgid, fx);
        self.start_pg(msg.pgid, fx);
        true
    }

    fn answer_absent(&mut self, from: OsdId, msg: &PgMsg, fx: &mut Effects) {
        let info = PgInfo::absent(msg.pgid);
        let notify = Notify { info, past: PastIntervals::default(), lack: Lack::default() };
        let body = Body::Notify(Box::new(notify));
        let answer = PgMsg { epoch: self.maps.epoch(), body, ..msg.clone() };
        let readers = Vec::new();
        self.send_peer(from, PgPeering { msg: answer, readers }.encode(), fx);
    }

    /// Whether the PG's mapping is still the one of the sender's map: only then do its epochs hold.
    fn is_of_current_interval(&self, msg: &PgMsg) -> bool {
        let now = mapping(self.maps.current(), msg.pgid);
        let rules = pool_rules(self.maps.current(), msg.pgid.pool);
        let mut epoch = msg.epoch;
        while epoch < self.maps.epoch() {
            match self.maps.get(epoch) {
                Some(map) => {
                    let was = (&mapping(map, msg.pgid), pool_rules(map, msg.pgid.pool));
                    if pg::is_new_interval(msg.pgid, was, (&now, rules)) {
                        return false;
                    }
                }
                None => return false,
            }
            epoch = epoch.next();
        }
        true
    }

    /// A PG's interval ended, and with it everything that was under way.
    pub(crate) fn new_interval(&mut self, pgid: PgId, fx: &mut Effects) {
        self.give_up_all_parts(pgid, fx);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.pg.is_primary() {
            self.requeue_ops(pgid);
        } else {
            host.watches = Default::default();
            self.drop_ops(pgid);
        }
    }

    /// A PG we lead went active.
    pub(crate) fn went_active(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let members = host.pg.mapping().acting.iter().copied().filter(|o| o.is_some());
        let members: Vec<_> = members.collect();
        host.in_flight.begin(members, host.pg.last_update());
        host.watches.begin_anew(self.now.mono);
        self.note_recount(pgid);
        self.release_pg(pgid, fx);
    }

    /// Messages of this interval were lost: the PG goes through peering again. Clients know nothing
    /// of it.
    pub(crate) fn restart_pg(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        if host.pg.is_primary() {
            // The copies must hear that it has no place now.
            self.give_back(pgid, fx);
            self.give_up_all_parts(pgid, fx);
            // So must those who take part in its scrub: their interval goes on.
            self.release_members(pgid, fx);
            self.requeue_ops(pgid);
        }
        self.run_pg(pgid, fx, |pg, ctx, out| pg.restart(ctx, out));
    }

    /// Where everything stands with the mon is lost, or long ago: ask again.
    pub(crate) fn ask_again(&mut self, fx: &mut Effects) {
        if !matches!(self.life, Life::Up) {
            return;
        }
        let wishing = |h: &PgHost| h.wish != Default::default();
        let pgids: Vec<_> = self.pgs.iter().filter(|(_, h)| wishing(h)).map(|(p, _)| *p).collect();
        for pgid in pgids {
            if let Some(host) = self.pgs.get_mut(&pgid) {
                host.wish = Default::default();
            }
            self.run_pg(pgid, fx, |pg, _, out| pg.ask_again(out));
        }
    }
}
