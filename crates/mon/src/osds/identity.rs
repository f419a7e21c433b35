//! OSDs that boot and are not what they say, or not all that they were.
//!
//! * A store that was **rolled back** (restored from an older image; a disk that lost writes it had
//!   called durable) has confirmed writes that it does not have. The mon remembers how far each store has
//!   come, by the number of its newest durable transaction, and refuses one that has less.
//! * A **copied disk** has the same number and identity as the one that is up. Only one of two may run:
//!   the mon asks the one it knows whether it lives, and refuses the newcomer if it does.
//! * A store whose OSD was **destroyed or removed** comes back by itself when its host starts again with the bad disk
//!   still in it. (In Ceph such an OSD has no key any more; here one key may be everybody's.) The mon remembers what is
//!   gone, and refuses it until `ceph osd new` says that it is wanted.
//! * What is refused, and why, is in `ceph health detail` for as long as it tries.

use crate::cluster::Cluster;
use crate::store::keys;
use denc::{Decode, Encode};
use io::Now;
use maps::OsdMap;
use peer::{OsdBoot, OsdHere, OsdReport};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{AddrVec, Mono, OsdId, UTime, Uuid};
use wire::LinkId;

/// Refusals that are remembered, at most.
const MAX_REFUSALS: usize = 64;
/// A refusal is forgotten when nobody has tried again for so long, in seconds; OSDs do it every two.
const REFUSAL_S: u64 = 20;
/// How long an OSD has to say that it lives, in milliseconds.
const ANSWER_MS: u64 = 2000;
/// Marks are stored this often, in seconds, and whenever their OSD goes down.
const MARKS_EVERY_S: u64 = 60;

/// How far an OSD's store is known to have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct StoreMark {
    /// Which store.
    pub uuid: Uuid,
    /// A transaction that it has called durable.
    pub durable_txn: u64,
}

/// Stores that are remembered as gone, at most: then the one that went first is forgotten.
const MAX_GONE: usize = 1000;

/// The store of an OSD that was destroyed or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GoneStore {
    /// Whose it was.
    pub osd: i32,
    /// When it went.
    pub at: UTime,
}

/// An OSD that is not taken into the map.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Why, and what to do.
    pub why: String,
    at: Mono,
}

/// An OSD that is up was asked whether it lives. A question stands for as long as that OSD is up and
/// both sessions last: nobody else looks when its time is over.
#[derive(Debug)]
struct Question {
    number: u64,
    /// The session of the one that was asked, and of the newcomer.
    between: [LinkId; 2],
    asked: Mono,
    answered: bool,
}

/// Who was asked, who was refused.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    refusals: Vec<(OsdId, AddrVec, Refusal)>,
    questions: BTreeMap<OsdId, Question>,
    last_question: u64,
    /// OSDs whose marks are newer than the cluster store's.
    unsaved: BTreeSet<OsdId>,
    saved_at: Mono,
}

/// What is known of an OSD's last life when it boots anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLife {
    /// It does not answer.
    Over,
    /// It was asked, on this session.
    Ask(LinkId, u64),
    /// Its answer is waited for.
    Asked,
    /// It answers.
    Goes,
}

impl Identities {
    /// OSDs that are being refused.
    pub fn refusals(&self) -> impl Iterator<Item = (OsdId, &Refusal)> {
        self.refusals.iter().map(|(id, _, refusal)| (*id, refusal))
    }

    /// When a question's time is over.
    pub fn next_deadline(&self) -> Option<Mono> {
        let end = |q: &Question| q.asked.after(Duration::from_millis(ANSWER_MS));
        self.questions.values().map(end).min()
    }

    /// A session ended.
    pub(super) fn session_closed(&mut self, link: LinkId) {
        self.questions.retain(|_, q| !q.between.contains(&link));
    }

    /// Nobody was heard for so long.
    pub(super) fn stood_still(&mut self, time: Duration) {
        self.questions.values_mut().for_each(|q| q.asked = q.asked.after(time));
    }

    /// A map is committed: who is down is not asked any more.
    pub fn follow(&mut self, map: &OsdMap) {
        self.questions.retain(|&id, _| map.is_up(id));
    }

    fn forget(&mut self, id: OsdId, addrs: &AddrVec) {
        self.refusals.retain(|(osd, from, _)| *osd != id || from != addrs);
    }
}

impl Cluster {
    /// Notes that a boot is refused.
    pub(super) fn refused(&mut self, now: Now, boot: &OsdBoot, why: &str) {
        let all = &mut self.identities;
        let known =
            all.refusals.iter().any(|(_, from, r)| *from == boot.client_addrs && r.why == why);
        if !known {
            tracing::warn!("{why}");
        }
        all.forget(boot.osd, &boot.client_addrs);
        if all.refusals.len() >= MAX_REFUSALS {
            all.refusals.remove(0);
        }
        let refusal = Refusal { why: why.to_owned(), at: now.mono };
        all.refusals.push((boot.osd, boot.client_addrs.clone(), refusal));
    }

    /// A boot is not refused any more.
    pub(super) fn accepted(&mut self, boot: &OsdBoot) {
        self.identities.forget(boot.osd, &boot.client_addrs);
    }

    /// Whether the process that is in the map as this OSD still lives. `link` is another one's.
    pub(super) fn last_life(&mut self, now: Now, id: OsdId, link: LinkId) -> LastLife {
        let old = self.osd_links.get(&id).copied().filter(|old| *old != link);
        let old = old.filter(|old| self.sessions.contains_key(old));
        let all = &mut self.identities;
        let Some(old) = old else {
            all.questions.remove(&id);
            return LastLife::Over;
        };
        let Some(question) = all.questions.get(&id) else {
            all.last_question += 1;
            let number = all.last_question;
            let between = [old, link];
            all.questions
                .insert(id, Question { number, between, asked: now.mono, answered: false });
            return LastLife::Ask(old, number);
        };
        let over = now.mono.since(question.asked) >= Duration::from_millis(ANSWER_MS);
        let answered = question.answered;
        if answered || over {
            all.questions.remove(&id);
        }
        match (answered, over) {
            (true, _) => LastLife::Goes,
            (_, true) => LastLife::Over,
            _ => LastLife::Asked,
        }
    }

    /// An OSD says that it lives.
    pub fn here(&mut self, link: LinkId, m: &OsdHere) {
        if self.osd_links.get(&m.osd) != Some(&link) {
            return;
        }
        let asked = self.identities.questions.get_mut(&m.osd);
        if let Some(question) = asked.filter(|q| q.number == m.number) {
            question.answered = true;
        }
    }

    /// An OSD that is up speaks here: this session's end is its end.
    pub fn claim(&mut self, id: OsdId, link: LinkId) {
        let newest = self.osd_links.entry(id).or_insert(link);
        // A message of an older session may come late.
        *newest = link.max(*newest);
        self.awaited.remove(&id);
    }

    /// Why a store cannot be the one it was.
    pub(super) fn rolled_back(&self, boot: &OsdBoot) -> Result<(), String> {
        let (id, map) = (boot.osd, self.map().epoch);
        if boot.newest_map > map {
            return Err(format!(
                "osd.{id} knows the OSDMap of epoch {}, and this mon has none after {map}: the mon's \
                 store is older than the cluster; give the mon its newest store",
                boot.newest_map
            ));
        }
        let mark = self.state.store_marks.get(&id).filter(|m| m.uuid == boot.uuid);
        match mark.map(|m| m.durable_txn) {
            Some(once) if once > boot.durable_txn => Err(format!(
                "osd.{id}'s store had stored {once} transactions, and now has {}: it is an older image \
                 of itself, a copy, or its disk lost writes that it had called durable. If the data \
                 have other copies, make it anew ('loligo osd replace', or 'ceph osd destroy {id}' and \
                 an empty store); if not, 'ceph osd lost {id}' takes it as it is",
                boot.durable_txn
            )),
            _ => Ok(()),
        }
    }

    /// An OSD that is up says how far its store has come.
    pub(super) fn mark_store(&mut self, report: &OsdReport) {
        let Some(uuid) = self.map().osd(report.osd).map(|o| o.uuid) else { return };
        let mark = self.state.store_marks.entry(report.osd).or_default();
        if mark.uuid != uuid {
            *mark = StoreMark { uuid, durable_txn: 0 };
        }
        if report.durable_txn > mark.durable_txn {
            mark.durable_txn = report.durable_txn;
            self.identities.unsaved.insert(report.osd);
        }
    }

    /// Stores what is known of an OSD's store.
    pub(super) fn save_mark(&mut self, id: OsdId) {
        if self.identities.unsaved.remove(&id)
            && let Some(mark) = self.state.store_marks.get(&id)
        {
            self.draft.put(keys::store_mark(id), denc::encode(mark));
        }
    }

    /// The operator takes an OSD's store as it is, or it is gone.
    pub fn forget_mark(&mut self, id: OsdId) {
        self.identities.unsaved.remove(&id);
        if self.state.store_marks.remove(&id).is_some() {
            self.draft.remove(keys::store_mark(id));
        }
    }

    /// An OSD that was there in `before` was destroyed or removed: its store shall not come back by itself.
    pub fn note_gone(&mut self, now: Now, id: OsdId, before: &OsdMap) {
        let osd = before.osd(id).filter(|osd| !osd.uuid.is_nil());
        let Some(uuid) = osd.map(|osd| osd.uuid.to_string()) else { return };
        let gone = &mut self.state.gone;
        while gone.len() >= MAX_GONE
            && let Some(first) = gone.iter().min_by_key(|(_, g)| g.at).map(|(uuid, _)| uuid.clone())
        {
            gone.remove(&first);
            self.draft.remove(keys::gone(&first));
        }
        let store = GoneStore { osd: id.0, at: now.wall };
        self.draft.put(keys::gone(&uuid), denc::encode(&store));
        gone.insert(uuid, store);
    }

    /// The operator wants a store.
    pub fn forget_gone(&mut self, uuid: &Uuid) {
        let uuid = uuid.to_string();
        if self.state.gone.remove(&uuid).is_some() {
            self.draft.remove(keys::gone(&uuid));
        }
    }

    /// Whether a store is of an OSD that was destroyed or removed.
    pub(super) fn was_gone(&self, boot: &OsdBoot) -> Result<(), String> {
        let Some(gone) = self.state.gone.get(&boot.uuid.to_string()) else { return Ok(()) };
        let (id, uuid, was) = (boot.osd, boot.uuid, gone.osd);
        Err(format!(
            "osd.{id} has the store {uuid} of the osd.{was} that was destroyed or removed on {}. If that disk is \
             to serve again, 'ceph osd new {uuid} {id}' takes it as it is, and 'loligo store mkfs' makes it empty; \
             if not, keep it from being started",
            gone.at
        ))
    }

    /// What goes by the clock.
    pub fn age_identities(&mut self, now: Now) {
        let all = &mut self.identities;
        let age = Duration::from_secs(REFUSAL_S);
        all.refusals.retain(|(_, _, r)| now.mono.since(r.at) < age);
        if now.mono.since(all.saved_at) >= Duration::from_secs(MARKS_EVERY_S) {
            all.saved_at = now.mono;
            for id in all.unsaved.clone() {
                self.save_mark(id);
            }
        }
    }
}
