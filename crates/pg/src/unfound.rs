//! Unfound objects: no reachable copy has the version that counts.
//!
//! They are known by the logs, so that nobody is told that they do not exist: who wants one waits,
//! until an OSD comes back that has it, or until the operator gives it up. Everything else goes on.
//! Source: Ceph `osd/PeeringState.cc: build_might_have_unfound, all_unfound_are_queried_or_lost`,
//! `osd/PrimaryLogPG.cc: mark_all_unfound_lost, pick_newest_available`.

use crate::entry::{EntryKind, LogEntry};
use crate::intervals::MapView;
use crate::missing::MissingItem;
use crate::msg::{Body, Query};
use crate::pg::{Fx, Pg, Stage};
use std::collections::{BTreeMap, BTreeSet};
use types::{Eversion, HObject, OsdId};

/// What is known of an OSD that may have what is unfound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It has said what it has.
    Probed,
    /// It was asked.
    Querying,
    /// It is down.
    Down,
    /// It is up, and was not asked: it has not said yet that it is a holder.
    NotQueried,
}

impl Probe {
    /// In Ceph's words.
    pub fn text(self) -> &'static str {
        match self {
            Probe::Probed => "already probed",
            Probe::Querying => "querying",
            Probe::Down => "osd is down",
            Probe::NotQueried => "not queried",
        }
    }
}

/// What becomes of an unfound object that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// It is deleted.
    Delete,
    /// It goes back to an older version.
    Revert {
        /// To which.
        to: Eversion,
        /// Who has it; this OSD itself if it does.
        from: OsdId,
    },
}

impl std::fmt::Display for GiveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GiveUp::Delete => f.write_str("it is deleted"),
            GiveUp::Revert { to, from } => write!(f, "it goes back to version {to} of osd.{from}"),
        }
    }
}

impl Pg {
    /// Missing objects that no reachable copy has.
    pub fn unfound(&self) -> impl Iterator<Item = &HObject> {
        self.missing.iter().map(|(o, _)| o).filter(|o| self.source_of(o).is_none())
    }

    /// Whether the object is one of them.
    pub fn is_unfound(&self, object: &HObject) -> bool {
        self.missing.contains(object) && self.source_of(object).is_none()
    }

    /// As the primary: OSDs that may have what is unfound: all that held the PG since it was clean.
    pub fn might_have_unfound(&self, map: &dyn MapView) -> Vec<(OsdId, Probe)> {
        let now = self.mapping.acting.iter().chain(&self.mapping.up).copied();
        let mut all: BTreeSet<OsdId> = self.past.members();
        all.extend(now.filter(|o| o.is_some()));
        all.extend(self.peers.iter().filter(|(_, p)| p.had_copy).map(|(o, _)| *o));
        all.remove(&self.me);
        all.into_iter().map(|osd| (osd, self.probe(osd, map))).collect()
    }

    fn probe(&self, osd: OsdId, map: &dyn MapView) -> Probe {
        if !map.is_up(osd) {
            return Probe::Down;
        }
        match self.peers.get(&osd) {
            Some(p) if p.missing.is_some() || !p.had_copy => Probe::Probed,
            // It was asked for each of them, since its log does not say what it has.
            Some(p) if self.unfound().all(|object| p.lacks.contains(object)) => Probe::Probed,
            Some(_) => Probe::Querying,
            None => Probe::NotQueried,
        }
    }

    /// As the primary: asks those that may have what is unfound and were never heard of: whoever has no copy
    /// says nothing by itself.
    pub fn ask_for_unfound(&mut self, map: &dyn MapView, fx: &mut Fx) {
        if self.stage != Stage::Active || self.unfound().next().is_none() {
            return;
        }
        for (osd, probe) in self.might_have_unfound(map) {
            if probe == Probe::NotQueried {
                self.send(osd, Body::Query(Query::Info, self.info.history), fx);
            }
        }
    }

    /// Whether no OSD is left that could come back, or answer, and have what is unfound.
    pub fn unfound_is_lost(&self, map: &dyn MapView) -> bool {
        self.might_have_unfound(map).into_iter().all(|(osd, probe)| {
            let given_up = !map.exists(osd) || map.lost_at(osd) > map.up_from(osd);
            probe == Probe::Probed || (probe == Probe::Down && given_up)
        })
    }

    /// As the primary: unfound objects of which no client was ever told their newest state, nor that it was
    /// written. They are given up without anybody's order: clients that still wait for their writes do them again.
    ///
    /// All replicas were full, and logged a write without its data, and the primary, which alone had them, went
    /// away. That is so when in the interval of the write all members but one never had the data, and all in
    /// every interval since, this one included: what a replica leaves out is not answered before two have it.
    ///
    /// The clones that these writes made go with them ([`Pg::clones_made_after`]): whoever reads one asks the head
    /// for it. Not writes that changed or removed clones: these would have to come again.
    pub fn never_acknowledged(&self) -> Vec<HObject> {
        if !self.may_take_back() {
            return Vec::new();
        }
        let missing = self.missing.iter().map(|(object, _)| object);
        missing.filter(|object| self.was_never_acknowledged(object)).cloned().collect()
    }

    /// With fewer copies the next interval may not know of it.
    pub(crate) fn may_take_back(&self) -> bool {
        self.stage == Stage::Active && self.has_enough_copies()
    }

    /// Whether an object is one of them.
    pub(crate) fn was_never_acknowledged(&self, object: &HObject) -> bool {
        let never_had = |item: &MissingItem| item.never_had_since > Eversion::ZERO;
        object.is_head()
            && self.missing.get(object).is_some_and(never_had)
            && self.source_of(object).is_none()
            && self.was_never_on_two(object)
    }

    /// Whether nobody was ever told of what is unfound of an object.
    fn was_never_on_two(&self, object: &HObject) -> bool {
        let mut never_had: BTreeMap<OsdId, Eversion> = self
            .peers
            .iter()
            .filter_map(|(osd, p)| Some((*osd, p.missing.as_ref()?.get(object)?.never_had_since)))
            .collect();
        never_had.extend(self.missing.get(object).map(|item| (self.me, item.never_had_since)));
        never_had.retain(|_, since| *since > Eversion::ZERO);
        let Some(since) = never_had.values().min().copied() else { return false };
        let changes_clone = |e: &LogEntry| {
            let of_it = e.object != *object && e.object.head() == *object;
            of_it && e.changes_object() && e.kind != EntryKind::Clone
        };
        // What a write did to a clone is the entry before its own, which may be trimmed.
        let before = self.log.entries().rev().find(|e| e.version < since);
        let is_known = before.is_some() || self.log.tail() == Eversion::ZERO;
        if !is_known || before.into_iter().chain(self.log.after(since)).any(changes_clone) {
            return false;
        }
        let first = since.epoch;
        let lacks = |osd: &OsdId| never_had.contains_key(osd);
        // Whose copy turned out to be damaged has shown it to clients before.
        if !self.mapping.acting.iter().all(lacks) {
            return false;
        }
        let mut intervals = self.past.iter().skip_while(|i| i.last < first);
        let Some(of_write) = intervals.next().filter(|i| i.first <= first) else { return false };
        let had = of_write.acting.iter().filter(|o| !lacks(o)).count();
        if had > 1 || had == of_write.acting.len() {
            return false;
        }
        let mut last = of_write.last;
        for later in intervals {
            let lacked_by_all = !later.maybe_went_rw || later.acting.iter().all(lacks);
            if !later.follows || !lacked_by_all {
                return false;
            }
            last = later.last;
        }
        last.next() == self.info.history.same_interval_since
    }

    /// The clones, and their versions, that were made of a head after this version. They go when it goes back to it.
    pub fn clones_made_after(&self, head: &HObject, version: Eversion) -> Vec<(HObject, Eversion)> {
        let made = |e: &&LogEntry| e.kind == EntryKind::Clone && e.object.head() == *head;
        self.log.after(version).filter(made).map(|e| (e.object.clone(), e.version)).collect()
    }

    /// What becomes of `object` when it is given up; `revert`: back to the newest version that is
    /// left, if there is one.
    pub fn give_up_unfound(&self, object: &HObject, revert: bool) -> GiveUp {
        let here = self.missing.get(object).map(|item| (item.have, true, self.me));
        let there = self.peers.iter().filter_map(|(osd, p)| {
            let have = p.missing.as_ref()?.get(object)?.have;
            let failed = p.lacks.contains(object);
            (!failed).then_some((have, false, *osd))
        });
        // It was given up before, and that is not done yet: what was lost then does not come again, since the
        // requests that had made it are forgotten.
        let last = self.missing.get(object).and_then(|item| self.log.get(item.need));
        let lost_after = last.and_then(|e| e.lost_after).unwrap_or(Eversion::MAX);
        let counts = |have: Eversion| have > Eversion::ZERO && have <= lost_after;
        let best = here.into_iter().chain(there).max_by_key(|all| (counts(all.0), *all));
        match best.filter(|_| revert) {
            Some((to, _, from)) if to > Eversion::ZERO => GiveUp::Revert { to, from },
            _ => GiveUp::Delete,
        }
    }

    /// As the primary: whether `osd` is one of those that have said what they have, and are still there.
    pub fn hears_of(&self, osd: OsdId) -> bool {
        self.peers.contains_key(&osd)
    }

    /// As the primary: `osd` has nothing of the object after all that one could go back to.
    pub fn has_nothing_older(&mut self, osd: OsdId, object: &HObject) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.lacks.insert(object.clone());
        }
        self.look_again(object);
    }

    /// As the primary: an older version of a missing object was brought here, to be gone back to.
    /// Gives the record change.
    pub fn older_arrived(&mut self, object: &HObject, version: Eversion) -> Option<crate::MetaOp> {
        let need = self.missing.get(object)?.need;
        self.missing.set(object.clone(), need, version);
        self.look_again(object);
        Some(crate::persist::put_missing(object, self.missing.get(object)?))
    }
}
