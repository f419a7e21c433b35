//! Recovery by log: single objects that some copy is missing are pulled and pushed.
//!
//! The primary first pulls what itself is missing, then pushes what others miss. An object that a
//! client waits for comes first. The host moves the objects; it asks for work with
//! [`Pg::next_recovery`] as its own limits allow.
//! Before a head its clones are brought, and these oldest first (`clones`).

use crate::entry::{EntryKind, LogEntry};
use crate::intervals::MapView;
use crate::persist::{MetaOp, missing_key};
use crate::pg::{Fx, Peer, Pg, Stage};
use crate::todo::{Todo, Urgent};
use crate::unfitting::PullSize;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;
use types::testing::{Probe, hit};
use types::{Eversion, HObject, OsdId};

/// Whether recovery and backfill may go on by themselves. What a client waits for is always brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// They may. Where nobody reserves anything it stays so.
    #[default]
    Open,
    /// They wait for their turn, or are held by a flag.
    Wait,
    /// A copy that would get objects has no space for them.
    TooFull,
}

/// What a PG could do for its copies now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing, or nothing that is possible.
    #[default]
    Nothing,
    /// Objects that the log names can be brought.
    Recovery,
    /// A copy is to be filled.
    Backfill,
}

/// An object that is written all the time is pushed at last, and its writes wait.
const PUT_OFF_AT_MOST: u8 = 3;

/// What is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) gate: Gate,
    /// From whom; ourselves when it is here, and not durable.
    pub(crate) pulling: BTreeMap<HObject, OsdId>,
    pub(crate) pushing: BTreeMap<HObject, SmallVec<[OsdId; 4]>>,
    urgent_pulls: Urgent,
    urgent_pushes: Urgent,
    /// What can be done; kept by those who ask.
    pub(crate) todo: RefCell<Todo>,
    /// Pushes that were put off for writes of their object, and how often.
    put_off: BTreeMap<HObject, u8>,
    /// What is missing here because our copy turned out to be damaged, or wrong, in this interval, in this version.
    pub(crate) damaged: BTreeMap<HObject, Eversion>,
    pub(crate) unreadable: Unreadable,
    /// What was pulled and did not fit.
    pub(crate) unfitting: BTreeMap<HObject, PullSize>,
}

/// What this copy cannot read, and no other copy has, in this version, which is the newest: there is
/// nothing to be pushed.
pub(crate) type Unreadable = BTreeMap<HObject, Eversion>;

impl Recovery {
    /// The object has come to where it was pushed.
    pub(crate) fn note_brought(&mut self, object: &HObject) {
        self.put_off.remove(object);
    }
}

/// One object to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fetch the object in (at least) version `need`.
    Pull {
        /// What.
        object: HObject,
        /// Version it must have.
        need: Eversion,
        /// From whom.
        from: OsdId,
    },
    /// Bring our version of the object to others.
    Push {
        /// What.
        object: HObject,
        /// Version it must have.
        need: Eversion,
        /// To whom.
        to: SmallVec<[OsdId; 4]>,
    },
}

/// Whether an object can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// By reads and writes.
    Ready,
    /// By reads: some other copy has not got it yet.
    Degraded,
    /// Not at all: we have not got it yet.
    Missing,
}

impl Pg {
    /// Whether `object` can be used now.
    pub fn readiness(&self, object: &HObject) -> Readiness {
        if self.missing.contains(object) {
            return Readiness::Missing;
        }
        // A pulled object takes no writes before it is durable here: the write would replace the
        // only copy of the version before it.
        let arriving = self.recovery.pulling.contains_key(object);
        let moving = self.backfills.values().any(|b| b.is_moving(object));
        if arriving || moving || self.is_missed(object) || self.too_few_have_a_clone_of(object) {
            Readiness::Degraded
        } else {
            Readiness::Ready
        }
    }

    /// Whether a member is known to miss the object.
    fn is_missed(&self, object: &HObject) -> bool {
        let missed = |osd: &OsdId| {
            let peer = self.peers.get(osd).and_then(|p| p.missing.as_ref());
            peer.is_some_and(|m| m.contains(object))
        };
        self.mapping.acting.iter().chain(self.backfills.keys()).any(missed)
    }

    /// Whether a write of `object` may begin now. Every acting copy must have the object first: should
    /// those without it once serve by themselves, and not know of the write, then it would be taken back
    /// where it was done, and nobody would have the object as it was before (how many may serve can
    /// change at any time: `min_size`). A copy that is being filled does not serve: one that misses the
    /// object learns of the write by its log only and is brought the object later. If it is on its way
    /// there just now ([`Pg::is_on_its_way`]), the host brings it the change as well, or puts the push
    /// off ([`Pg::put_off`]). (Ceph: `PrimaryLogPG::is_degraded_or_backfilling_object`.)
    pub fn write_readiness(&self, object: &HObject) -> Readiness {
        let ready = self.readiness(object);
        if ready != Readiness::Degraded {
            return ready;
        }
        let arriving = self.recovery.pulling.contains_key(object);
        let lacked =
            self.is_missed(object) && (!self.enough_have(object) || self.acting_copy_lacks(object));
        let lacked = lacked || self.too_few_have_a_clone_of(object);
        if arriving || lacked { Readiness::Degraded } else { Readiness::Ready }
    }

    /// Whether so many of the acting set have the object that a write of it is safe on them alone.
    pub fn enough_have(&self, object: &HObject) -> bool {
        let has = |osd: &&OsdId| **osd == self.me || self.surely_has(**osd, object);
        let copies = self.mapping.acting.iter().filter(has).count();
        copies >= self.rules.min_size.max(self.rules.size.min(2)) as usize
    }

    /// Whether a write of `object` may be answered that is in the log of every member, when all have made
    /// durable what is up to `committed`. Where it was deleted after that write, nobody misses it any more, but
    /// only a deletion that is durable makes up for copies that never had it. Any later write must be in all logs,
    /// too: it has replaced what this one wrote, and would be taken back should a copy that left out both once
    /// serve by itself.
    pub fn is_safe(&self, object: &HObject, version: Eversion, committed: Eversion) -> bool {
        let changes = |e: &&LogEntry| e.object == *object && e.changes_object();
        let later = || self.log.after(version).filter(changes);
        if later().any(|e| e.version > committed) {
            return false;
        }
        let deleted = later().any(|e| e.kind == EntryKind::Delete);
        deleted || (self.enough_have(object) && !self.too_few_have_a_clone_of(object))
    }

    fn acting_copy_lacks(&self, object: &HObject) -> bool {
        let mut others = self.mapping.acting.iter().filter(|o| o.is_some() && **o != self.me);
        others.any(|o| !self.surely_has(*o, object))
    }

    fn surely_has(&self, osd: OsdId, object: &HObject) -> bool {
        let missing = self.peers.get(&osd).and_then(|p| p.missing.as_ref());
        missing.is_some_and(|m| !m.contains(object))
    }

    /// The version of `object` that a member has, where it misses a newer one. Zero: none.
    pub fn base_of(&self, osd: OsdId, object: &HObject) -> Eversion {
        let missing = self.peers.get(&osd).and_then(|p| p.missing.as_ref());
        missing.and_then(|m| m.get(object)).map_or(Eversion::ZERO, |item| item.have)
    }

    /// Whether the object is being pulled or pushed.
    pub fn is_on_its_way(&self, object: &HObject) -> bool {
        let (pulling, pushing) = (&self.recovery.pulling, &self.recovery.pushing);
        pulling.contains_key(object)
            || pushing.contains_key(object)
            || self.backfills.values().any(|b| b.is_moving(object))
    }

    /// Whether a push of `object` may be put off for one more write.
    pub fn may_put_off(&self, object: &HObject) -> bool {
        self.recovery.put_off.get(object).is_none_or(|times| *times < PUT_OFF_AT_MOST)
    }

    /// As the primary: `object` is not on its way any more. Copies that lack it are brought it later.
    pub fn put_off(&mut self, object: &HObject) {
        hit(Probe::PushPutOff);
        self.recovery.pushing.remove(object);
        self.backfills.values_mut().for_each(|b| b.put_off(object));
        *self.recovery.put_off.entry(object.clone()).or_default() += 1;
        self.look_again(object);
    }

    /// A client waits for `object`.
    pub fn hurry(&mut self, object: &HObject) {
        match self.missing.contains(object) {
            true => self.recovery.urgent_pulls.push(object),
            false => self.recovery.urgent_pushes.push(object),
        }
    }

    /// The next object to move. It counts as under way until [`Pg::pulled`], [`Pg::pushed`] or
    /// [`Pg::give_up`].
    pub fn next_recovery(&mut self) -> Option<Work> {
        self.next_urgent(true, true).or_else(|| self.next_in_turn())
    }

    /// The next one when nobody waits for another.
    pub fn next_in_turn(&mut self) -> Option<Work> {
        if self.has_urgent() || self.recovery.gate != Gate::Open {
            return None;
        }
        let object = self.next_to_move()?;
        let work = self.work_on(&object);
        debug_assert!(
            work.is_some(),
            "{}: {object} would be the next one for ever",
            self.info.pgid
        );
        work
    }

    /// Whether somebody waits for objects that are not under way.
    pub fn has_urgent(&self) -> bool {
        !(self.recovery.urgent_pulls.is_empty() && self.recovery.urgent_pushes.is_empty())
    }

    /// The next object that a client waits for. Whether one may be pulled or pushed the host says, who knows what all
    /// PGs have on their way, whether there is space, and which pushes wait for what is pulled.
    pub fn next_urgent(&mut self, may_pull: bool, may_push: bool) -> Option<Work> {
        if self.stage != Stage::Active {
            return None;
        }
        while may_pull && let Some(object) = self.recovery.urgent_pulls.pop() {
            if let Some(work) = self.work_on(&object) {
                return Some(work);
            }
        }
        while may_push && let Some(object) = self.recovery.urgent_pushes.pop() {
            if let Some(work) = self.work_on(&object) {
                return Some(work);
            }
        }
        None
    }

    /// What could be done now.
    pub fn need(&self) -> Need {
        if self.stage != Stage::Active {
            return Need::Nothing;
        }
        if self.moving_count() > 0 || self.next_to_move().is_some() {
            return Need::Recovery;
        }
        if self.missing.is_empty() && self.can_backfill() {
            return Need::Backfill;
        }
        Need::Nothing
    }

    /// The copies to which objects are to be pushed.
    pub fn receivers(&self) -> impl Iterator<Item = OsdId> {
        let missing = |o: &OsdId| self.peers.get(o).and_then(|p| p.missing.as_ref());
        self.members().filter(move |o| missing(o).is_some_and(|m| !m.is_empty()))
    }

    /// Lets recovery and backfill go on, or wait.
    pub fn set_gate(&mut self, gate: Gate) {
        self.recovery.gate = gate;
    }

    /// See [`Gate`].
    pub fn gate(&self) -> Gate {
        self.recovery.gate
    }

    /// Members whose missing objects we bring: all that act or are being filled.
    pub(crate) fn members(&self) -> impl Iterator<Item = OsdId> {
        let acting = self.mapping.acting.iter().copied();
        acting.filter(|o| *o != self.me && o.is_some()).chain(self.backfills.keys().copied())
    }

    fn work_on(&mut self, object: &HObject) -> Option<Work> {
        let first = self.comes_first(object).cloned();
        let object = first.as_ref().unwrap_or(object);
        if let Some(item) = self.missing.get(object).copied() {
            let from = self.source_of(object)?;
            if self.recovery.pulling.contains_key(object) || self.is_unfitting(object) {
                return None;
            }
            self.recovery.pulling.insert(object.clone(), from);
            return Some(Work::Pull { object: object.clone(), need: item.need, from });
        }
        if self.recovery.pushing.contains_key(object) {
            return None;
        }
        let mut need = Eversion::ZERO;
        let mut to = SmallVec::new();
        for osd in self.members() {
            let item = self.peers.get(&osd).and_then(|p| p.missing.as_ref()?.get(object));
            if let Some(item) = item {
                need = need.max(item.need);
                to.push(osd);
            }
        }
        if to.is_empty() || self.recovery.unreadable.contains_key(object) {
            return None;
        }
        self.recovery.pushing.insert(object.clone(), to.clone());
        Some(Work::Push { object: object.clone(), need, to })
    }

    /// Who has the version of `object` that we need: somebody of whom it is known, else any copy
    /// that may have it, be it a stray, one that is to be filled anew, or one that could not be read once. (The
    /// receiver takes exactly the needed version: such a copy may hold an older or a divergent one.)
    pub(crate) fn source_of(&self, object: &HObject) -> Option<OsdId> {
        #[cfg(test)]
        crate::todo::tests::LOOKS.set(crate::todo::tests::LOOKS.get() + 1);
        let need = self.missing.get(object)?.need;
        let known = |p: &Peer| {
            p.info.last_update >= need
                && *object < p.info.last_backfill
                && p.missing.as_ref().is_some_and(|m| !m.contains(object))
        };
        let lacks = |p: &Peer| {
            let item = p.missing.as_ref().and_then(|m| m.get(object));
            item.is_some_and(|item| item.have != need && item.damaged != need)
        };
        let has_not_failed = |p: &Peer| !p.lacks.contains(object) && !lacks(p);
        let mut peers = self.peers.iter();
        let sure = peers.clone().find(|(_, p)| has_not_failed(p) && known(p));
        let (osd, _) = sure.or_else(|| peers.find(|(_, p)| has_not_failed(p) && p.had_copy))?;
        Some(*osd)
    }

    /// The record change to put into the transaction that stores a pulled or pushed object in this
    /// version.
    pub fn arrival_ops(&self, object: &HObject, version: Eversion) -> Vec<MetaOp> {
        match self.missing.get(object) {
            Some(item) if item.need <= version => vec![MetaOp::Remove(missing_key(object))],
            _ => Vec::new(),
        }
    }

    /// As any holder: the transaction with the object is handed to the store.
    pub fn arrived(&mut self, object: &HObject, version: Eversion) {
        if self.missing.got(object, version) && self.is_primary() {
            // It is here, but not durable, whatever becomes of who sent it: it may be down already.
            self.recovery.pulling.insert(object.clone(), self.me);
            self.look_again(object);
        }
    }

    /// As the primary: a pulled object is durable here.
    pub fn pulled(&mut self, object: &HObject, fx: &mut Fx) {
        self.recovery.pulling.remove(object);
        self.look_again(object);
        if self.recovery.damaged.remove(object).is_some() {
            // Others that turned out to be damaged as well wait for no turn.
            self.hurry(object);
        }
        self.is_readable_again(object);
        self.check_clean(fx);
        self.flush_info(fx);
    }

    /// As the primary: `osd` has the object in this version durably.
    pub fn pushed(&mut self, osd: OsdId, object: &HObject, version: Eversion, fx: &mut Fx) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.lacks.remove(object);
            peer.missing.iter_mut().for_each(|m| _ = m.got(object, version));
        }
        if let Some(to) = self.recovery.pushing.get_mut(object) {
            to.retain(|o| *o != osd);
            if to.is_empty() {
                self.recovery.pushing.remove(object);
                self.recovery.note_brought(object);
            }
        }
        self.look_again(object);
        self.check_clean(fx);
        self.flush_info(fx);
    }

    /// Moving the object failed; it may be tried again (from another source, if the host says that
    /// `source` has not got it).
    pub fn give_up(&mut self, object: &HObject, source: Option<OsdId>) {
        self.recovery.pulling.remove(object);
        self.recovery.pushing.remove(object);
        if let Some(peer) = source.and_then(|o| self.peers.get_mut(&o)) {
            peer.lacks.insert(object.clone());
        }
        self.look_again(object);
    }

    /// As the primary: nobody has what was to be pushed to these. A backfill that had come to an unfound object brings
    /// it, or its removal, when that is decided; one that nobody can read it passes over.
    pub fn pushed_in_vain(&mut self, object: &HObject, to: &[OsdId]) {
        let is_unfound = self.missing.contains(object);
        for (_, backfill) in self.backfills.iter_mut().filter(|(osd, _)| to.contains(osd)) {
            match is_unfound {
                true => backfill.put_off(object),
                false => backfill.give_up(object),
            }
        }
        if let Some(pushing) = self.recovery.pushing.get_mut(object) {
            pushing.retain(|osd| !to.contains(osd));
            if pushing.is_empty() {
                self.recovery.pushing.remove(object);
            }
        }
        self.look_again(object);
    }

    /// As the primary: whether another acting copy has everything that we know of.
    pub fn has_complete_peer(&self) -> bool {
        let complete =
            |p: &Peer| p.info.last_backfill.max && p.missing.as_ref().is_some_and(|m| m.is_empty());
        let acting = self.mapping.acting.iter().filter(|o| **o != self.me);
        self.is_primary() && acting.filter_map(|o| self.peers.get(o)).any(complete)
    }

    /// A stray copy that is no member of the current sets went down: nothing will come from it. When
    /// it is up again it says so itself.
    pub(crate) fn forget_peers_that_are_down(&mut self, map: &dyn MapView, fx: &mut Fx) {
        let gone: Vec<_> = self.peers.keys().copied().filter(|o| !map.is_up(*o)).collect();
        if gone.is_empty() {
            return;
        }
        self.look_at_all_again();
        for osd in gone {
            self.peers.remove(&osd);
            self.recovery.pulling.retain(|_, from| *from != osd);
        }
        self.look_at_damaged(fx);
    }

    /// Whether no member misses anything and nothing is being filled.
    pub fn is_recovered(&self) -> bool {
        let complete = |osd: OsdId| {
            self.peers.get(&osd).and_then(|p| p.missing.as_ref()).is_some_and(|m| m.is_empty())
        };
        // What is being pulled is not durable yet, even when it is no longer missing.
        let here = self.missing.is_empty() && self.recovery.pulling.is_empty();
        here && self.backfills.is_empty() && self.members().all(complete)
    }

    /// Whether recovery is over and nobody has said so yet: also a write may end it, by deleting the last
    /// object that a copy was missing.
    pub fn awaits_clean(&self) -> bool {
        let history = &self.info.history;
        self.stage == Stage::Active
            && history.last_epoch_clean < history.same_interval_since
            && self.is_primary()
            && self.is_recovered()
    }

    /// As the primary: see [`Pg::awaits_clean`].
    pub fn recovered(&mut self, fx: &mut Fx) {
        self.check_clean(fx);
        self.flush_info(fx);
    }

    /// How many copies of objects members are missing (without those being filled).
    pub fn degraded_count(&self) -> u64 {
        let theirs = self.members().filter_map(|o| self.peers.get(&o)?.missing.as_ref());
        (self.missing.len() + theirs.map(|m| m.len()).sum::<usize>()) as u64
    }

    /// Objects that are being pulled, and from whom.
    pub fn pulling(&self) -> impl Iterator<Item = (&HObject, OsdId)> {
        self.recovery.pulling.iter().map(|(o, from)| (o, *from))
    }

    /// Objects that are being pushed, and to whom.
    pub fn pushing(&self) -> impl Iterator<Item = (&HObject, &[OsdId])> {
        self.recovery.pushing.iter().map(|(o, to)| (o, to.as_slice()))
    }

    /// How many objects are being pulled or pushed.
    pub fn moving_count(&self) -> usize {
        self.recovery.pulling.len() + self.recovery.pushing.len()
    }
}
