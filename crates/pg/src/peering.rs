//! Peering: from a new interval to an active PG. Source: Ceph `osd/PeeringState.cc`.
//!
//! ```text
//! GetInfo -> [Down] -> [Incomplete] -> [WaitActing] -> [GetLog] -> GetMissing -> WaitUpThru
//!         -> Activating -> Active
//! ```

use crate::backfill::Backfill;
use crate::choose::{Choice, choose};
use crate::info::{History, Notify, PgInfo};
use crate::intervals::{MapView, OsdSet};
use crate::log::PgLog;
use crate::merge::{LogSegment, Merged, merge_log, newest_common, peer_missing};
use crate::missing::{Lack, Missing};
use crate::msg::{Body, Query};
use crate::persist::{
    LogRecord, MetaOp, log_key, missing_key, put_dup, put_missing, put_tail, remove_all_log,
};
use crate::pg::{Ctx, Fx, Notice, Peer, Pg, Stage};
use crate::prior::Prior;
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Bug, Probe, hit, planted};
use types::{Epoch, Eversion, HObject, OsdId};

impl Pg {
    pub(crate) fn start_peering(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        self.prior = self.prior_by(ctx.map);
        let mut waiting = BTreeSet::new();
        for osd in self.prior.probe.clone() {
            if osd != self.me && !self.peers.contains_key(&osd) {
                waiting.insert(osd);
                self.send(osd, Body::Query(Query::Info, self.info.history), fx);
            }
        }
        self.set_stage(Stage::GetInfo { waiting }, ctx);
        self.check_infos(ctx, fx);
    }

    /// Whom must be heard, by this map and what the others have said.
    pub(crate) fn prior_by(&self, map: &dyn MapView) -> Prior {
        let since = self.info.history.last_epoch_started;
        Prior::build(&self.mapping, &self.past, since, map, &|osd| match osd == self.me {
            true => self.info.has_nothing(),
            false => self.peers.get(&osd).is_some_and(|p| p.info.has_nothing()),
        })
    }

    /// Any holder answers queries, whatever it is doing.
    pub(crate) fn answer(
        &mut self,
        from: OsdId,
        query: Query,
        history: &History,
        interval: Epoch,
        fx: &mut Fx,
    ) {
        self.info_dirty |= self.info.history.merge(history);
        let body = match query {
            Query::Info => Body::Notify(Box::new(self.notify())),
            Query::Log { since } => Body::Log {
                info: Box::new(self.info.clone()),
                log: LogSegment::after(&self.log, since),
                missing: self.missing.clone(),
            },
        };
        self.send_when_durable(from, interval, body, fx);
    }

    pub(crate) fn on_notify(&mut self, from: OsdId, n: Notify, ctx: &Ctx<'_>, fx: &mut Fx) {
        if !self.is_primary() || from == self.me {
            return;
        }
        let absent = n.info.is_absent();
        let learned = self.info.history.merge(&n.info.history);
        self.info_dirty |= learned;
        if learned || !n.past.is_empty() {
            self.past.adopt_if_longer(&n.past);
            self.look_at_all_again();
        }
        let known = self.peers.contains_key(&from);
        if !known {
            self.peers.insert(from, Peer::new(n.info, n.lack));
            self.look_at_all_again();
            self.try_unreadable_again(fx);
        }
        if self.is_clean() && !self.mapping.acting.contains(&from) {
            self.send_away(from, fx);
            return;
        }
        match &mut self.stage {
            Stage::GetInfo { waiting } => {
                waiting.remove(&from);
                if self.prior_by(ctx.map) != self.prior {
                    self.start_peering(ctx, fx);
                } else {
                    self.check_infos(ctx, fx);
                }
            }
            Stage::Down | Stage::Incomplete if !known => self.start_peering(ctx, fx),
            // It may have what nobody else has, and be better than none in the acting set.
            Stage::Active if !known => {
                if !self.missing.is_empty() {
                    self.ask_late_holder(from, fx);
                }
                self.ask_for_late_holders(fx);
            }
            // It could not tell whether the activation is of this interval, and has begun no copy.
            Stage::Activating { waiting } if waiting.contains(&from) && absent => {
                hit(Probe::ActivatedAgain);
                self.peers.insert(from, Peer::new(PgInfo::absent(self.info.pgid), Lack::default()));
                let body = self.activation_for(from);
                let interval = self.info.history.same_interval_since;
                self.send_when_durable(from, interval, body, fx);
            }
            _ => {}
        }
    }

    pub(crate) fn late_holder_answers(
        &mut self,
        from: OsdId,
        mut info: PgInfo,
        seg: &LogSegment,
        missing: Missing,
        fx: &mut Fx,
    ) {
        let Some(peer) = self.peers.get_mut(&from).filter(|p| p.missing.is_none()) else {
            return;
        };
        // Our log goes on meanwhile, and may have left it behind: then it is asked for each object.
        let learned = peer_missing(&self.log, &mut info, seg, missing);
        let missing = learned.unwrap_or_default();
        // It was asked for these before this was known, and may have older states of them.
        peer.lacks.retain(|object| !missing.contains(object));
        peer.missing = Some(missing);
        self.look_at_all_again();
        self.look_at_damaged(fx);
    }

    fn ask_late_holder(&mut self, osd: OsdId, fx: &mut Fx) {
        if self.needs_log_of(osd) {
            let since = self.common_with(osd);
            self.send(osd, Body::Query(Query::Log { since }, self.info.history), fx);
        }
    }

    /// With fewer copies than there should be, holders of the PG that came when it was active already take
    /// part as well: it may serve again, or better, long before others are filled. We go on as we are
    /// until the map changes (Ceph `PeeringState.cc: Active::react(const MNotifyRec&)`).
    fn ask_for_late_holders(&mut self, fx: &mut Fx) {
        let acting = &self.mapping.acting;
        if self.stage != Stage::Active || self.acting_count() >= self.rules.size as usize {
            return;
        }
        let joins = |c: &Choice| {
            c.want.len() > acting.len() && acting.iter().all(|osd| c.want.contains(osd))
        };
        if let Some(choice) = self.choice().filter(joins) {
            hit(Probe::LateHolderWanted);
            fx.want_pg_temp = Some(self.pg_temp_for(&choice));
        }
    }

    /// We have become full, and cannot be brought what we miss: another member that has it is to lead. We go on as
    /// we are until the map changes.
    pub(crate) fn hand_over_if_full(&mut self, fx: &mut Fx) {
        if self.missing.is_empty() || !self.full.contains(&self.me) {
            return;
        }
        let acting = &self.mapping.acting;
        let leads = |c: &Choice| c.want.first() == Some(&self.me);
        let others = |c: &Choice| is_same_set(&c.want, acting) && !leads(c);
        if let Some(choice) = self.choice().filter(others) {
            hit(Probe::FullHandedOver);
            fx.want_pg_temp = Some(self.pg_temp_for(&choice));
        }
    }

    fn check_infos(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        let Stage::GetInfo { waiting } = &self.stage else {
            return;
        };
        if !waiting.is_empty() {
            return;
        }
        if !self.prior.blocked_by.is_empty() {
            hit(Probe::Down);
            self.set_stage(Stage::Down, ctx);
            return;
        }
        let Some(choice) = self.choice() else {
            hit(Probe::Incomplete);
            self.set_stage(Stage::Incomplete, ctx);
            return;
        };
        if choice.want != self.mapping.acting {
            self.ask_for_acting(&choice, ctx, fx);
        } else if !choice.want.contains(&self.me) {
            // The map makes an OSD lead that does not act (`primary_temp`): it would lead with what it has, be it nothing.
            fx.notices.push(Notice::Odd("the primary is not in the acting set"));
            self.set_stage(Stage::Incomplete, ctx);
        } else if choice.auth == self.me {
            self.get_missing(&choice, ctx, fx);
        } else {
            self.get_log(&choice, ctx, fx);
        }
    }

    pub(crate) fn choice(&self) -> Option<Choice> {
        let mut infos: BTreeMap<_, _> =
            self.peers.iter().map(|(o, p)| (*o, p.info.clone())).collect();
        infos.insert(self.me, self.info.clone());
        let lack = |p: &Peer| p.missing.as_ref().map_or(p.lack, Lack::of);
        let mut lacks: BTreeMap<_, _> = self.peers.iter().map(|(o, p)| (*o, lack(p))).collect();
        lacks.insert(self.me, Lack::of(&self.missing));
        choose(&infos, &lacks, &self.full, &self.mapping, self.rules.size, self.me)
    }

    pub(crate) fn ask_for_acting(&mut self, choice: &Choice, ctx: &Ctx<'_>, fx: &mut Fx) {
        let want = self.pg_temp_for(choice);
        hit(Probe::PgTempWanted);
        fx.want_pg_temp = Some(want.clone());
        self.set_stage(Stage::WaitActing { want }, ctx);
    }

    /// Empty when the up set is what is wanted.
    fn pg_temp_for(&self, choice: &Choice) -> OsdSet {
        if choice.want == self.mapping.up { OsdSet::new() } else { choice.want.clone() }
    }

    /// Asks for enough of the log to bring every peer up to date that can be.
    fn get_log(&mut self, choice: &Choice, ctx: &Ctx<'_>, fx: &mut Fx) {
        let Some(auth) = self.peers.get(&choice.auth) else {
            return;
        };
        let tail = auth.info.log_tail;
        let members = choice.want.iter().chain(&choice.backfill);
        let behind = members.filter_map(|o| self.peers.get(o)).map(|p| p.info.last_update);
        let oldest = behind.filter(|lu| *lu >= tail).min().unwrap_or(self.info.last_update);
        let since = oldest.min(self.info.last_update);
        self.send(choice.auth, Body::Query(Query::Log { since }, self.info.history), fx);
        self.set_stage(Stage::GetLog { from: choice.auth }, ctx);
    }

    pub(crate) fn on_log(
        &mut self,
        from: OsdId,
        info: PgInfo,
        seg: LogSegment,
        missing: Missing,
        ctx: &Ctx<'_>,
        fx: &mut Fx,
    ) {
        match &mut self.stage {
            Stage::GetLog { from: auth } if *auth == from => {
                let goes_back = seg.tail > info.log_tail;
                if goes_back && newest_common(&self.log, &info, &seg).is_none() {
                    let mut ours = self.log.entries().rev().map(|e| e.version);
                    let since = ours.find(|v| *v < seg.tail).unwrap_or(self.log.tail());
                    hit(Probe::LogAskedAgain);
                    self.send(from, Body::Query(Query::Log { since }, self.info.history), fx);
                    return;
                }
                if let Err(why) = self.take_over_log(&info, &seg, fx) {
                    fx.notices.push(Notice::Odd(why));
                    self.set_stage(Stage::Incomplete, ctx);
                    return;
                }
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.missing = Some(missing);
                    peer.info.last_update = self.info.last_update;
                }
                match self.choice() {
                    Some(choice) => self.get_missing(&choice, ctx, fx),
                    None => self.set_stage(Stage::Incomplete, ctx),
                }
            }
            Stage::GetMissing { waiting } => {
                if !waiting.remove(&from) {
                    return;
                }
                let done = waiting.is_empty();
                self.learn_missing(from, info, &seg, missing, fx);
                if done {
                    self.got_missing(ctx, fx);
                }
            }
            Stage::Active => self.late_holder_answers(from, info, &seg, missing, fx),
            _ => {}
        }
    }

    /// Makes `seg` our log and writes what changed.
    fn take_over_log(
        &mut self,
        auth: &PgInfo,
        seg: &LogSegment,
        fx: &mut Fx,
    ) -> Result<(), &'static str> {
        let before = self.missing.clone();
        let merged = merge_log(&mut self.log, &mut self.info, &mut self.missing, auth, seg)?;
        self.info_dirty = true;
        self.record_merge(&before, merged, fx);
        Ok(())
    }

    fn record_merge(&self, before: &Missing, merged: Merged, fx: &mut Fx) {
        fx.meta.push(put_tail(self.log.tail()));
        fx.meta.extend(merged.divergent.into_iter().map(|v| MetaOp::Remove(log_key(v))));
        for entry in merged.added.iter().filter_map(|v| self.log.get(*v)) {
            let record = LogRecord {
                entry: entry.clone(),
                sums: self.info.sums,
                last_user_version: self.info.last_user_version,
            };
            fx.meta.push(MetaOp::Put(log_key(entry.version), denc::encode(&record)));
        }
        if merged.dups_changed {
            fx.meta.extend(self.log.dups().map(put_dup));
        }
        for (object, _) in before.iter().filter(|(o, _)| !self.missing.contains(o)) {
            fx.meta.push(MetaOp::Remove(missing_key(object)));
        }
        for (object, item) in self.missing.iter().filter(|(o, i)| before.get(o) != Some(i)) {
            fx.meta.push(put_missing(object, item));
        }
        fx.remove.extend(merged.remove);
    }

    fn get_missing(&mut self, choice: &Choice, ctx: &Ctx<'_>, fx: &mut Fx) {
        let mut waiting = BTreeSet::new();
        for osd in choice.want.iter().chain(&choice.backfill).copied() {
            if osd != self.me && self.needs_log_of(osd) {
                waiting.insert(osd);
            }
        }
        if !self.missing.is_empty() {
            // Anybody may hold what we are missing.
            let all: Vec<_> = self.peers.keys().copied().collect();
            waiting.extend(all.into_iter().filter(|o| self.needs_log_of(*o)));
        }
        for osd in &waiting {
            let since = self.common_with(*osd);
            self.send(*osd, Body::Query(Query::Log { since }, self.info.history), fx);
        }
        let done = waiting.is_empty();
        self.set_stage(Stage::GetMissing { waiting }, ctx);
        if done {
            self.got_missing(ctx, fx);
        }
    }

    /// A version up to which a peer's log is surely ours: everybody who took part in the newest
    /// completed activation has the same log from before it. A peer's own `last_epoch_started`
    /// proves nothing, since that activation may not have been completed.
    fn common_with(&self, osd: OsdId) -> Eversion {
        let completed = self.info.history.last_epoch_started;
        match self.peers.get(&osd) {
            Some(peer) if peer.info.last_epoch_started >= completed => Eversion::new(completed, 0),
            _ => Eversion::ZERO,
        }
    }

    /// Everything is known. A peer whose log made no sense may have changed who should act.
    fn got_missing(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        match self.choice() {
            None => self.set_stage(Stage::Incomplete, ctx),
            // In which order is settled. By what is known now it might be another one, but then by what is
            // known at the beginning of the next interval the first one again, and so on for ever.
            Some(choice) if !is_same_set(&choice.want, &self.mapping.acting) => {
                self.ask_for_acting(&choice, ctx, fx);
            }
            Some(choice) => {
                let new = |o: &OsdId| (*o, Backfill::starting_at(HObject::min()));
                self.backfills = choice.backfill.iter().map(new).collect();
                self.check_up_thru(ctx, fx);
            }
        }
    }

    /// Whether a peer's log must be seen to know what it is missing. Fills in the answer where not.
    fn needs_log_of(&mut self, osd: OsdId) -> bool {
        let (head, tail) = (self.info.last_update, self.log.tail());
        let Some(peer) = self.peers.get_mut(&osd) else {
            return false;
        };
        let hopeless = peer.info.last_backfill.is_min() || peer.info.last_update < tail;
        if peer.missing.is_some() || hopeless {
            return false;
        }
        if peer.info.last_update == head && peer.lack.objects == 0 {
            peer.missing = Some(Missing::default());
            return false;
        }
        true
    }

    fn learn_missing(
        &mut self,
        from: OsdId,
        mut info: PgInfo,
        seg: &LogSegment,
        missing: Missing,
        fx: &mut Fx,
    ) {
        let learned = peer_missing(&self.log, &mut info, seg, missing);
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        match learned {
            Ok(missing) => {
                peer.missing = Some(missing);
                peer.info.last_update = info.last_update;
            }
            Err(why) => {
                // As good as nothing: it will be backfilled.
                peer.info = PgInfo::absent(self.info.pgid);
                fx.notices.push(Notice::Odd(why));
            }
        }
    }

    pub(crate) fn check_up_thru(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        let since = self.info.history.same_interval_since;
        if ctx.map.up_thru(self.me) >= since || planted(Bug::UpThruIgnored) {
            self.activate(ctx, fx);
            return;
        }
        if !matches!(self.stage, Stage::WaitUpThru { .. }) {
            hit(Probe::UpThruWaited);
            fx.want_up_thru = Some(self.epoch);
            self.set_stage(Stage::WaitUpThru { want: self.epoch }, ctx);
        }
    }

    fn activate(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        // With too few copies for writes, going active proves nothing about the past: another set
        // may do the same with an older log (Ceph doc/dev/osd_internals/last_epoch_started.rst).
        if self.has_enough_copies() {
            self.info.last_epoch_started = self.epoch;
            self.info.last_interval_started = self.info.history.same_interval_since;
        }
        self.info_dirty = true;
        fx.tell_durable = Some(self.epoch);
        let mut waiting: BTreeSet<_> = [self.me].into();
        let members = self.mapping.acting.iter().chain(self.backfills.keys()).copied();
        for osd in members.filter(|o| *o != self.me && o.is_some()).collect::<BTreeSet<_>>() {
            let body = self.activation_for(osd);
            self.send_when_durable(osd, self.info.history.same_interval_since, body, fx);
            waiting.insert(osd);
        }
        self.set_stage(Stage::Activating { waiting }, ctx);
    }

    fn activation_for(&mut self, osd: OsdId) -> Body {
        let absent = PgInfo::absent(self.info.pgid);
        let peer = self.peers.entry(osd).or_insert_with(|| Peer::new(absent, Lack::default()));
        let restart = peer.missing.is_none() || peer.info.last_update < self.log.tail();
        let log = if restart {
            peer.info.last_backfill = HObject::min();
            peer.missing = Some(Missing::default());
            LogSegment::whole(&self.log)
        } else {
            LogSegment::after(&self.log, peer.info.last_update)
        };
        peer.info.last_update = self.info.last_update;
        if let Some(backfill) = self.backfills.get_mut(&osd) {
            hit(if restart { Probe::BackfillBegan } else { Probe::BackfillResumed });
            *backfill = Backfill::starting_at(peer.info.last_backfill.clone());
        }
        // From now on it has a copy, if it had none.
        peer.info.history = self.info.history;
        Body::Activate { info: Box::new(self.info.clone()), log, backfill: restart }
    }

    pub(crate) fn on_activate(
        &mut self,
        from: OsdId,
        info: PgInfo,
        log: LogSegment,
        backfill: bool,
        ctx: &Ctx<'_>,
        fx: &mut Fx,
    ) {
        if self.mapping.acting_primary != Some(from) || self.is_primary() {
            return;
        }
        self.info.history.merge(&info.history);
        let taken = if backfill {
            self.start_over(&info, log, fx)
        } else {
            self.take_over_log(&info, &log, fx)
        };
        if let Err(why) = taken {
            fx.notices.push(Notice::Odd(why));
            return;
        }
        self.info_dirty = true;
        self.set_stage(Stage::Replica, ctx);
        let reply = Body::Activated(Box::new(self.info.clone()));
        self.send_when_durable(from, self.info.history.same_interval_since, reply, fx);
    }

    /// Forgets what this copy was: a backfill will bring every object.
    fn start_over(
        &mut self,
        info: &PgInfo,
        seg: LogSegment,
        fx: &mut Fx,
    ) -> Result<(), &'static str> {
        if !seg.is_well_formed() {
            return Err("the authoritative log is malformed");
        }
        self.log = PgLog::from_parts(seg.tail, seg.entries, seg.dups)?;
        self.log.raise_head(seg.head);
        self.missing = Missing::default();
        let history = self.info.history;
        let (last_backfill, there_since) = (HObject::min(), self.epoch);
        self.info = PgInfo { last_backfill, history, there_since, ..info.clone() };
        fx.meta.extend(remove_all_log());
        fx.meta.push(put_tail(self.log.tail()));
        for entry in self.log.entries() {
            let record = LogRecord {
                entry: entry.clone(),
                sums: info.sums,
                last_user_version: info.last_user_version,
            };
            fx.meta.push(MetaOp::Put(log_key(entry.version), denc::encode(&record)));
        }
        fx.meta.extend(self.log.dups().map(put_dup));
        self.info.log_tail = self.log.tail();
        Ok(())
    }

    pub(crate) fn activated_by(&mut self, osd: OsdId, ctx: &Ctx<'_>, fx: &mut Fx) {
        let Stage::Activating { waiting } = &mut self.stage else {
            return;
        };
        waiting.remove(&osd);
        if !waiting.is_empty() {
            return;
        }
        if self.has_enough_copies() {
            let history = &mut self.info.history;
            history.last_epoch_started = self.info.last_epoch_started;
            history.last_interval_started = self.info.last_interval_started;
            self.info_dirty = true;
            self.share_history(fx);
        }
        self.set_stage(Stage::Active, ctx);
        self.look_at_all_again();
        fx.notices.push(Notice::Active);
        self.look_at_damaged(fx);
        self.hand_over_if_full(fx);
        self.check_clean(fx);
        self.ask_for_late_holders(fx);
    }

    pub(crate) fn share_history(&self, fx: &mut Fx) {
        for osd in self.mapping.acting.iter().chain(self.backfills.keys()) {
            if *osd != self.me && osd.is_some() {
                self.send(*osd, Body::History(self.info.history), fx);
            }
        }
    }

    /// Asks the mon again for what this PG waits for: the session with it was lost, or it has not
    /// answered for long.
    pub fn ask_again(&mut self, fx: &mut Fx) {
        match &self.stage {
            Stage::WaitActing { want } => fx.want_pg_temp = Some(want.clone()),
            Stage::WaitUpThru { want } => fx.want_up_thru = Some(*want),
            Stage::Active => {
                self.check_clean(fx);
                self.ask_for_late_holders(fx);
                self.hand_over_if_full(fx);
            }
            _ => {}
        }
        self.flush_info(fx);
    }

    /// Looks whether recovery is over: goes back to the up set, or declares the PG clean.
    pub(crate) fn check_clean(&mut self, fx: &mut Fx) {
        if self.stage != Stage::Active || !self.is_recovered() {
            return;
        }
        if self.mapping.acting != self.mapping.up
            && let Some(choice) = self.choice().filter(|c| c.want != self.mapping.acting)
        {
            // We go on serving until the map changes. Where CRUSH finds too few OSDs the acting set
            // stays as it is, and is as clean as can be.
            fx.want_pg_temp = Some(self.pg_temp_for(&choice));
            return;
        }
        if self.acting_count() < self.rules.size as usize || self.read_elsewhere {
            return;
        }
        let history = &mut self.info.history;
        if history.last_epoch_clean >= history.same_interval_since {
            return;
        }
        history.last_epoch_clean = self.epoch;
        history.last_interval_clean = history.same_interval_since;
        self.past.clear();
        self.info_dirty = true;
        self.share_history(fx);
        let others: Vec<_> =
            self.peers.keys().filter(|o| !self.mapping.acting.contains(o)).copied().collect();
        others.into_iter().for_each(|osd| self.send_away(osd, fx));
        fx.notices.push(Notice::Clean);
    }

    /// The PG is clean, and nobody needs the copy of an OSD that is not in the acting set. Nothing is
    /// asked of it any more: it would not answer.
    fn send_away(&mut self, osd: OsdId, fx: &mut Fx) {
        if self.peers.remove(&osd).is_some_and(|p| !p.info.is_absent()) {
            self.send(osd, Body::Remove, fx);
        }
    }

    /// Whether all acting copies have everything since this interval began.
    fn is_clean(&self) -> bool {
        let history = &self.info.history;
        let once = history.last_epoch_clean >= history.same_interval_since;
        self.stage == Stage::Active && once && self.is_recovered()
    }
}

fn is_same_set(a: &OsdSet, b: &OsdSet) -> bool {
    a.len() == b.len() && a.iter().all(|osd| b.contains(osd))
}
