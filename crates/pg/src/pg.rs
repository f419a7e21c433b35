//! One OSD's copy of a PG: its state, and the inputs and outputs of the machine around it.
//!
//! The machine is pure: maps, messages and completions in, [`Fx`] out. It decides; the host (`osd`)
//! reads and writes objects, keeps the copy's records, and carries messages.
//!
//! Invariants:
//! * the records of `log`, `missing` and `info` on disk change only together with the objects they
//!   speak of, in one transaction;
//! * a message that says "I have" leaves only after the records behind it are durable
//!   ([`Fx::send_durable`]);
//! * a message from before the current interval changes nothing.

use crate::backfill::Backfill;
use crate::info::{History, Notify, PgInfo};
use crate::intervals::{
    Interval, MapView, Mapping, OsdSet, PastIntervals, PoolRules, is_new_interval, maybe_went_rw,
};
use crate::log::PgLog;
use crate::missing::{Lack, Missing};
use crate::msg::{Body, PgMsg};
use crate::persist::{INFO_KEY, InfoRecord, Loaded, MetaOp};
use crate::prior::Prior;
use crate::recovery::Recovery;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Bug, planted};
use types::{Epoch, Eversion, HObject, OsdId, PgId, UTime};

/// Where the copy stands in the current interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not the primary, and not told to be active (yet).
    Stray,
    /// Not the primary; active.
    Replica,
    /// Primary: asking everybody who may know something.
    GetInfo {
        /// Who has not answered.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: an interval that may have taken writes has no member that is up.
    Down,
    /// Primary: no complete copy is known to hold every acknowledged write.
    Incomplete,
    /// Primary: asked the mon for another acting set (pg_temp).
    WaitActing {
        /// The wanted one; empty to go back to the up set.
        want: OsdSet,
    },
    /// Primary: fetching the authoritative log.
    GetLog {
        /// From whom.
        from: OsdId,
    },
    /// Primary: fetching the peers' logs and missing objects.
    GetMissing {
        /// Who has not answered.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: the map must first promise that we are alive in this interval.
    WaitUpThru {
        /// Up to which epoch it was asked to. It stays so: an OSD far behind would else ask with each map
        /// it takes in, and each time make another one.
        want: Epoch,
    },
    /// Primary: everybody is taking over the log.
    Activating {
        /// Who has not durably done it, ourselves included.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: serving.
    Active,
}

/// What the primary knows of another holder.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub info: PgInfo,
    /// `None` while it is not known.
    pub missing: Option<Missing>,
    /// What it said of the objects that it is missing.
    pub lack: Lack,
    /// Objects that it turned out not to have.
    pub lacks: BTreeSet<HObject>,
    /// It holds objects, even if its log does not say which.
    pub had_copy: bool,
}

impl Peer {
    pub(crate) fn new(info: PgInfo, lack: Lack) -> Self {
        let had_copy = !info.is_absent();
        Peer { info, missing: None, lack, lacks: BTreeSet::new(), had_copy }
    }
}

/// What happened, for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A new interval began: operations in flight will not be answered, waiting ones wait again.
    NewInterval,
    /// The primary is active: waiting operations can run (if [`Pg::accepts_io`]).
    Active,
    /// Every copy is complete and in its place.
    Clean,
    /// An object is not missing any more, though nothing was brought: our copy of it, which could not be read whole,
    /// is all that is left.
    Counts(HObject),
    /// This copy is not needed any more and is to be removed.
    RemoveSelf,
    /// A peer sent what cannot be; it was ignored.
    Odd(&'static str),
}

/// What the machine wants done.
#[derive(Debug, Default)]
pub struct Fx {
    /// Record changes, one transaction.
    pub meta: Vec<MetaOp>,
    /// Objects to remove (absent ones are fine). That transaction notes them ([`crate::put_deleted`]); they go behind
    /// it, and before anything else looks at the PG's objects.
    pub remove: Vec<HObject>,
    /// Messages that may leave at once.
    pub send: Vec<(OsdId, PgMsg)>,
    /// Messages that may leave only when the transaction, and every write of this PG before it, is
    /// durable.
    pub send_durable: Vec<(OsdId, PgMsg)>,
    /// Call [`Pg::on_durable`] with this when the transaction is durable.
    pub tell_durable: Option<Epoch>,
    /// Ask the mon to note that we are alive in this epoch.
    pub want_up_thru: Option<Epoch>,
    /// Ask the mon for this acting set; empty to go back to the up set.
    pub want_pg_temp: Option<OsdSet>,
    /// What happened.
    pub notices: Vec<Notice>,
}

impl Fx {
    /// Whether records or objects change.
    pub fn has_transaction(&self) -> bool {
        !self.meta.is_empty() || !self.remove.is_empty()
    }
}

/// The map and the time of an input.
pub struct Ctx<'a> {
    /// The newest map of the OSD.
    pub map: &'a dyn MapView,
    /// The time, for "since when".
    pub now: UTime,
}

/// The machine.
#[derive(Debug)]
pub struct Pg {
    pub(crate) me: OsdId,
    pub(crate) info: PgInfo,
    pub(crate) log: PgLog,
    pub(crate) missing: Missing,
    pub(crate) past: PastIntervals,
    pub(crate) mapping: Mapping,
    pub(crate) rules: PoolRules,
    pub(crate) epoch: Epoch,
    pub(crate) stage: Stage,
    pub(crate) stage_since: UTime,
    pub(crate) prior: Prior,
    /// Members of the up set that have no space, by the newest map.
    pub(crate) full: BTreeSet<OsdId>,
    pub(crate) peers: BTreeMap<OsdId, Peer>,
    /// Members of the up set that are being filled.
    pub(crate) backfills: BTreeMap<OsdId, Backfill>,
    pub(crate) recovery: Recovery,
    pub(crate) read_elsewhere: bool,
    pub(crate) info_dirty: bool,
}

impl Pg {
    /// A new, empty copy. `epoch` is the newest map taken in, `mapping` and `rules` are that map's;
    /// `history` and `past` are as of it.
    ///
    /// A mon too makes one ([`OsdId::NONE`] holds it) for every PG that no OSD has reported yet, and
    /// lets it [`Pg::catch_up`] with each map: only so does the OSD that is told to make the PG hear
    /// of earlier ones that were told the same and may have taken writes.
    pub fn create(
        me: OsdId,
        pgid: PgId,
        history: History,
        past: PastIntervals,
        epoch: Epoch,
        mapping: Mapping,
        rules: PoolRules,
    ) -> Self {
        let info = PgInfo::new(pgid, history);
        let record = InfoRecord { info, past, epoch, pg_num: rules.pg_num };
        let (log, missing) = (PgLog::default(), Missing::default());
        let loaded = Loaded { record, log, missing, deleted: Vec::new() };
        Pg { info_dirty: true, ..Pg::restore(me, loaded, mapping, rules) }
    }

    /// The copy is new on this OSD, but the PG is not: it must be filled before it counts.
    pub fn mark_unfilled(&mut self) {
        self.info.last_backfill = HObject::min();
        self.info_dirty = true;
    }

    /// A copy as it was stored; `mapping` and `rules` are those of the map of its epoch.
    pub fn restore(me: OsdId, loaded: Loaded, mapping: Mapping, rules: PoolRules) -> Self {
        Pg {
            me,
            info: loaded.record.info,
            log: loaded.log,
            missing: loaded.missing,
            past: loaded.record.past,
            mapping,
            rules,
            epoch: loaded.record.epoch,
            stage: Stage::Stray,
            stage_since: UTime::ZERO,
            prior: Prior::default(),
            full: BTreeSet::new(),
            peers: BTreeMap::new(),
            backfills: BTreeMap::new(),
            recovery: Recovery::default(),
            read_elsewhere: false,
            info_dirty: false,
        }
    }

    /// The first act after [`Pg::create`] or [`Pg::restore`] and all maps since: takes up the role.
    pub fn start(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        if self.info.there_since == Epoch::ZERO {
            (self.info.there_since, self.info_dirty) = (ctx.map.epoch(), true);
        }
        self.begin_interval(ctx, fx);
        self.flush_info(fx);
    }

    /// Takes in the next map while the OSD is catching up, or the PG is divided or joined, before
    /// [`Pg::start`]: only intervals are noted, and nobody is served until then.
    pub fn catch_up(
        &mut self,
        old: &dyn MapView,
        new: &dyn MapView,
        mapping: Mapping,
        rules: PoolRules,
    ) {
        self.stage = Stage::Stray;
        self.note_map(old, new.epoch(), mapping, rules);
    }

    /// Whether the primary of an earlier interval may still serve reads (`osd::lease`). Meanwhile the PG does not
    /// become clean: it forgets its past intervals then, by which members that start know whom to wait for.
    pub fn set_read_elsewhere(&mut self, may_be: bool) {
        self.read_elsewhere = may_be;
    }

    /// Messages of this interval were lost: everything from the start of the interval on is done
    /// again.
    pub fn restart(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        self.begin_interval(ctx, fx);
        self.flush_info(fx);
    }

    /// Whether it waits for messages of this OSD or relies on what it has told it, so that a session that
    /// was lost with some of them means a [`Pg::restart`]. For a primary not only who acts counts: peering
    /// asks who is to act and who has acted, backfill goes to others, objects come from any holder. All
    /// others must be heard of by the primary, which may know of the PG only by them.
    pub fn relies_on(&self, osd: OsdId) -> bool {
        match self.is_primary() {
            true => self.prior.probe.contains(&osd) || self.peers.contains_key(&osd),
            false => self.stage == Stage::Stray && self.mapping.acting_primary == Some(osd),
        }
    }

    /// Takes in a map that does not follow the last one, before [`Pg::start`]. The mon has thrown the
    /// maps between away because every PG was clean after them: nothing before counts any more.
    pub fn skip_to(&mut self, epoch: Epoch, mapping: Mapping, rules: PoolRules) {
        assert!(epoch > self.epoch, "maps are skipped forwards");
        self.stage = Stage::Stray;
        (self.epoch, self.mapping, self.rules) = (epoch, mapping, rules);
        self.past.clear();
        let h = &mut self.info.history;
        h.same_interval_since = epoch;
        h.same_up_since = epoch;
        h.same_primary_since = epoch;
        self.info_dirty = true;
    }

    /// Takes in the next map.
    ///
    /// # Panics
    /// When `new` is not the epoch after the last one.
    pub fn on_map(
        &mut self,
        old: &dyn MapView,
        ctx: &Ctx<'_>,
        mapping: Mapping,
        rules: PoolRules,
        fx: &mut Fx,
    ) {
        if self.note_map(old, ctx.map.epoch(), mapping, rules) {
            fx.notices.push(Notice::NewInterval);
            self.begin_interval(ctx, fx);
        } else {
            self.same_interval(ctx, fx);
        }
        self.flush_info(fx);
    }

    /// Returns whether a new interval began.
    fn note_map(
        &mut self,
        old: &dyn MapView,
        epoch: Epoch,
        mapping: Mapping,
        rules: PoolRules,
    ) -> bool {
        assert_eq!(epoch, self.epoch.next(), "{}: maps come one by one", self.info.pgid);
        let fresh = self.ends_interval(&mapping, rules);
        if fresh {
            self.end_interval(old, epoch);
            let h = &mut self.info.history;
            h.same_interval_since = epoch;
            if self.mapping.up != mapping.up {
                h.same_up_since = epoch;
            }
            if self.mapping.acting_primary != mapping.acting_primary {
                h.same_primary_since = epoch;
            }
            self.info_dirty = true;
        }
        (self.epoch, self.mapping, self.rules) = (epoch, mapping, rules);
        fresh
    }

    fn end_interval(&mut self, old: &dyn MapView, epoch: Epoch) {
        let first = self.info.history.same_interval_since;
        let interval = Interval {
            first,
            last: epoch.prev(),
            acting: self.mapping.acting.clone(),
            up: self.mapping.up.clone(),
            primary: self.mapping.acting_primary,
            maybe_went_rw: maybe_went_rw(&self.mapping, first, self.rules, old),
            follows: false,
        };
        self.past.push(interval);
    }

    pub(crate) fn set_stage(&mut self, stage: Stage, ctx: &Ctx<'_>) {
        self.stage = stage;
        self.stage_since = ctx.now;
    }

    fn begin_interval(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        self.peers.clear();
        self.backfills.clear();
        self.recovery = Recovery::default();
        self.prior = Prior::default();
        self.note_full(ctx.map);
        if self.is_primary() {
            self.start_peering(ctx, fx);
            return;
        }
        self.set_stage(Stage::Stray, ctx);
        if let Some(primary) = self.mapping.acting_primary {
            let body = Body::Notify(Box::new(self.notify()));
            self.send_when_durable(primary, self.info.history.same_interval_since, body, fx);
        }
    }

    fn same_interval(&mut self, ctx: &Ctx<'_>, fx: &mut Fx) {
        self.forget_peers_that_are_down(ctx.map, fx);
        self.note_full(ctx.map);
        match &self.stage {
            Stage::GetInfo { .. } | Stage::Down | Stage::Incomplete
                if self.prior_by(ctx.map) != self.prior =>
            {
                self.start_peering(ctx, fx);
            }
            // Who was to answer is gone.
            Stage::GetLog { from } if !self.peers.contains_key(from) => {
                self.start_peering(ctx, fx);
            }
            Stage::GetMissing { waiting }
                if !waiting.iter().all(|o| self.peers.contains_key(o)) =>
            {
                self.start_peering(ctx, fx);
            }
            Stage::WaitUpThru { .. } => self.check_up_thru(ctx, fx),
            Stage::Active => self.hand_over_if_full(fx),
            _ => {}
        }
    }

    fn note_full(&mut self, map: &dyn MapView) {
        let up = self.mapping.up.iter().copied();
        self.full = up.filter(|osd| osd.is_some() && map.is_full(*osd)).collect();
    }

    /// The records are durable that [`Fx::tell_durable`] spoke of.
    pub fn on_durable(&mut self, epoch: Epoch, ctx: &Ctx<'_>, fx: &mut Fx) {
        if epoch >= self.info.history.same_interval_since {
            self.activated_by(self.me, ctx, fx);
        }
        self.flush_info(fx);
    }

    /// A message about this PG. The host has taken in at least the sender's map.
    pub fn on_msg(&mut self, from: OsdId, msg: PgMsg, ctx: &Ctx<'_>, fx: &mut Fx) {
        // Whoever stops in order may still answer in an interval that begins because of that.
        if msg.interval < self.info.history.same_interval_since || !ctx.map.is_up(from) {
            return;
        }
        match msg.body {
            Body::Query(query, history) => self.answer(from, query, &history, msg.interval, fx),
            Body::Notify(notify) => self.on_notify(from, *notify, ctx, fx),
            Body::Log { info, log, missing } => self.on_log(from, *info, log, missing, ctx, fx),
            Body::Activate { info, log, backfill } => {
                self.on_activate(from, *info, log, backfill, ctx, fx);
            }
            Body::Activated(info) => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.info.last_epoch_started = info.last_epoch_started;
                    self.activated_by(from, ctx, fx);
                }
            }
            Body::History(history) => self.on_history(&history),
            Body::Remove => self.on_remove(fx),
            Body::Bad(object, need) => self.on_bad_copy(&object, need, fx),
        }
        self.flush_info(fx);
    }

    fn on_history(&mut self, history: &History) {
        if self.is_primary() {
            return;
        }
        self.info_dirty |= self.info.history.merge(history);
        if self.info.history.last_epoch_clean >= self.info.history.same_interval_since {
            self.past.clear();
        }
    }

    fn on_remove(&mut self, fx: &mut Fx) {
        let mine = self.mapping.up.contains(&self.me) || self.mapping.acting.contains(&self.me);
        fx.notices.push(if mine {
            Notice::Odd("asked to remove a copy that the map wants here")
        } else {
            Notice::RemoveSelf
        });
    }

    pub(crate) fn notify(&self) -> Notify {
        let lack = Lack::of(&self.missing);
        Notify { info: self.info.clone(), past: self.past.clone(), lack }
    }

    pub(crate) fn send(&self, to: OsdId, body: Body, fx: &mut Fx) {
        fx.send.push((to, self.message(self.info.history.same_interval_since, body)));
    }

    /// Sends what speaks of our log or objects. It leaves when all writes up to now are durable:
    /// others build on what they hear, and must not build on what a crash could take away.
    pub(crate) fn send_when_durable(&self, to: OsdId, interval: Epoch, body: Body, fx: &mut Fx) {
        fx.send_durable.push((to, self.message(interval, body)));
    }

    pub(crate) fn message(&self, interval: Epoch, body: Body) -> PgMsg {
        PgMsg { pgid: self.info.pgid, epoch: self.epoch, interval, body }
    }

    /// Writes the info record if it changed.
    pub(crate) fn flush_info(&mut self, fx: &mut Fx) {
        if std::mem::take(&mut self.info_dirty) {
            fx.meta.push(self.info_record());
        }
    }

    /// The info record as it is now. The host may write it at any time, so that old maps need not be
    /// kept for this PG.
    pub fn info_record(&self) -> MetaOp {
        let record = InfoRecord {
            info: self.info.clone(),
            past: self.past.clone(),
            epoch: self.epoch,
            pg_num: self.rules.pg_num,
        };
        MetaOp::Put(Bytes::from_static(INFO_KEY), denc::encode(&record))
    }

    /// Whether this OSD leads the PG.
    pub fn is_primary(&self) -> bool {
        self.mapping.acting_primary == Some(self.me)
    }

    /// Whether clients are served: active, enough copies for a write to be safe, and not about to be
    /// merged.
    pub fn accepts_io(&self) -> bool {
        self.may_give_up() && self.has_enough_copies()
    }

    /// Whether it does not serve, and will not before another OSD comes.
    pub fn is_stuck(&self) -> bool {
        match self.stage {
            Stage::Down | Stage::Incomplete => true,
            Stage::Active => !self.has_enough_copies(),
            _ => false,
        }
    }

    /// Whether what is unfound may be given up. That takes no second copy: while it is unfound nothing is
    /// filled, and with too few copies clients would be served never again.
    pub fn may_give_up(&self) -> bool {
        self.stage == Stage::Active && !self.is_premerge()
    }

    pub(crate) fn has_enough_copies(&self) -> bool {
        self.acting_count() >= self.rules.min_size as usize || planted(Bug::NoMinSize)
    }

    pub(crate) fn acting_count(&self) -> usize {
        self.mapping.acting.iter().filter(|o| o.is_some()).count()
    }

    /// Whether an interval ends when the next map says this.
    pub fn ends_interval(&self, mapping: &Mapping, rules: PoolRules) -> bool {
        is_new_interval(self.info.pgid, (&self.mapping, self.rules), (mapping, rules))
    }

    /// Whose copy it is.
    pub fn me(&self) -> OsdId {
        self.me
    }

    /// Which PG.
    pub fn pgid(&self) -> PgId {
        self.info.pgid
    }

    /// The copy's state.
    pub fn info(&self) -> &PgInfo {
        &self.info
    }

    /// The log.
    pub fn log(&self) -> &PgLog {
        &self.log
    }

    /// What this copy is missing.
    pub fn missing(&self) -> &Missing {
        &self.missing
    }

    /// Up and acting set.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The newest map taken in.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the copy stands.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Since when.
    pub fn stage_since(&self) -> UTime {
        self.stage_since
    }

    /// The pool's rules as of the newest map.
    pub fn rules(&self) -> PoolRules {
        self.rules
    }

    /// Intervals since the PG was clean.
    pub fn past(&self) -> &PastIntervals {
        &self.past
    }

    /// Newest version of the log.
    pub fn last_update(&self) -> Eversion {
        self.info.last_update
    }
}
