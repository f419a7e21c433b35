//! New maps: applied epoch by epoch, since a change that a later one undoes (a primary that went and
//! came back) still makes requests be sent again (`Objecter::handle_osd_map`).

use super::target::{MapView, Verdict};
use super::{Cx, Objecter};
use crate::mon::MonSession;
use crate::outcome::Outcome;
use maps::{Incremental, OsdMap};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Epoch, OsdId, Uuid};
use wire::msg::MOsdMap;

/// What a row of maps has made necessary.
#[derive(Debug, Default)]
struct Consequences {
    /// Requests to be placed anew.
    place: BTreeSet<u64>,
    /// Watches and notifies to be registered anew.
    register: BTreeSet<u64>,
}

impl Objecter {
    /// Maps came, from a mon or an OSD.
    pub fn on_map(&mut self, cx: &mut Cx<'_>, fsid: Option<Uuid>, m: &MOsdMap) {
        if fsid.is_some_and(|fsid| fsid != m.fsid) {
            tracing::warn!(theirs = %m.fsid, "an OSDMap of another cluster is ignored");
            return;
        }
        let before = self.epoch();
        let mut todo = Consequences::default();
        while let Some((map, skipped)) = self.next_map(cx.mon, m) {
            self.view = Some(MapView::new(map));
            self.scan(skipped, &mut todo);
        }
        let epoch = self.epoch();
        if epoch == before {
            return;
        }
        cx.mon.got_osdmap(epoch);
        if m.newest > epoch {
            cx.mon.want_osdmap(epoch.next());
        }
        self.carry_out(cx, before == Epoch::ZERO, todo);
        self.tell_waiters(cx);
    }

    /// The next map that the message has for us, and whether some before it were skipped.
    fn next_map(&self, mon: &mut MonSession, m: &MOsdMap) -> Option<(Arc<OsdMap>, bool)> {
        let have = self.epoch();
        let next = have.next();
        if let (Some(bytes), Some(view)) = (m.incrementals.get(&next), &self.view) {
            let mut map = view.map.clone();
            let applied = denc::decode_all::<Incremental>(bytes)
                .map_err(maps::MapError::from)
                .and_then(|inc| Arc::make_mut(&mut map).apply_checked(&inc));
            match applied {
                Ok(()) => return Some((map, false)),
                Err(error) => {
                    tracing::warn!(%error, epoch = %next, "an incremental OSDMap cannot be used");
                }
            }
        }
        // A full map of the next epoch, or whichever comes first after a gap.
        let full = m.fulls.range(next..).next();
        let full = if have == Epoch::ZERO { m.fulls.iter().next_back() } else { full };
        if let Some((&epoch, bytes)) = full {
            match denc::decode::<OsdMap>(bytes) {
                Ok(map) if map.epoch == epoch => {
                    return Some((Arc::new(map), have != Epoch::ZERO && epoch != next));
                }
                Ok(map) => {
                    tracing::warn!(%epoch, is = %map.epoch, "a full OSDMap of another epoch");
                }
                Err(error) => tracing::warn!(%error, %epoch, "a full OSDMap cannot be used"),
            }
        }
        if m.last().is_some_and(|last| last > have) {
            // Something is missing or damaged: the newest full map will do.
            mon.want_osdmap(Epoch::ZERO);
        }
        None
    }

    /// Looks at everything in flight in the light of a new map.
    fn scan(&mut self, skipped: bool, todo: &mut Consequences) {
        let Some(view) = &mut self.view else {
            return;
        };
        let map = view.map.clone();
        for (tid, op) in &mut self.ops {
            op.request.snapc.snaps.retain(|snap| {
                let removed = map.new_removed_snaps.get(&op.target.pool());
                !removed.is_some_and(|r| r.contains(*snap))
            });
            let verdict = op.target.aim_at(view, false);
            if op.target.paused {
                // OSDs drop writes from before the pool was full: sent again when it is not.
                op.sent = false;
            }
            if verdict != Verdict::Same || skipped {
                op.sent = false;
                todo.place.insert(*tid);
            }
        }
        let moved = self.moved_lingers();
        todo.register.extend(moved);
        if skipped {
            // Nobody knows where they were meanwhile.
            todo.register.extend(self.living_lingers());
        }
        let gone: Vec<OsdId> = self
            .sessions
            .iter()
            .filter_map(|(osd, session)| {
                let same = map.client_addrs(*osd) == Some(&session.addrs);
                (!same).then_some(*osd)
            })
            .collect();
        for osd in gone {
            todo.place.extend(self.close_session(osd));
            let there = self.lingers.iter().filter(|(_, l)| l.target.osd == Some(osd));
            todo.register.extend(there.map(|(cookie, _)| *cookie));
        }
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, first_map: bool, todo: Consequences) {
        let mut tids = todo.place;
        if first_map {
            tids.extend(self.ops.keys().chain(self.tells.keys()));
        }
        // Registrations are made anew below, and pings are not sent again.
        let told = |tid: &u64| self.tells.contains_key(tid);
        let own =
            |tid: &u64| told(tid) || self.ops.get(tid).is_some_and(|op| op.purpose.is_resent());
        let (again, over): (Vec<u64>, Vec<u64>) = tids.iter().partition(|tid| own(tid));
        for tid in again {
            self.place(cx, tid);
        }
        for tid in over {
            self.drop_unsent(cx, tid, &todo.register);
        }
        for cookie in todo.register {
            self.register(cx, cookie);
        }
        let stuck = |op: &super::Op| op.session.is_none() || op.target.paused;
        if self.ops.values().any(|op| stuck(op)) {
            cx.mon.want_osdmap(self.next_epoch());
        }
    }

    /// A registration or ping whose target moved: the registration is placed anew unless its linger
    /// makes another one, the ping is over.
    fn drop_unsent(&mut self, cx: &mut Cx<'_>, tid: u64, anew: &BTreeSet<u64>) {
        match self.ops.get(&tid).map(|op| &op.purpose) {
            Some(super::Purpose::Register(cookie)) if !anew.contains(cookie) => {
                self.place(cx, tid);
            }
            Some(super::Purpose::Ping { .. }) => {
                self.remove(cx, tid);
                self.forget(tid);
            }
            _ => {}
        }
    }

    fn tell_waiters(&mut self, cx: &mut Cx<'_>) {
        let epoch = self.epoch();
        let waiting = std::mem::take(&mut self.for_epoch);
        for (wanted, mut completion) in waiting {
            if wanted > epoch {
                self.for_epoch.push((wanted, completion));
                continue;
            }
            if let Outcome::Map(Ok(at)) = &mut completion.outcome {
                *at = epoch;
            }
            cx.out.push_back(completion);
        }
        if !self.for_epoch.is_empty() {
            cx.mon.want_osdmap(self.next_epoch());
        }
    }
}
