//! Reads of a clone that is missing stand aside of their object's queue.
//!
//! A clone may be unfound, or wait for space, while its head is whole: an image in use is read and written on while a
//! backup waits for what its snapshot shows. No write of the head changes what a clone holds, so that such a read may
//! be answered at any later time (so does Ceph: `PrimaryLogPG::wait_for_unreadable_object`). What changes something, a
//! rollback, keeps its place.

use crate::daemon::Daemon;
use crate::host::{ObjectQueue, OpId};
use crate::op::Ops;
use io::Effects;
use types::testing::{Probe, hit};
use types::{HObject, PgId};

impl ObjectQueue {
    /// Reads for copies that wait, aside or not.
    pub(crate) fn waiting_copies(&self, ops: &Ops) -> usize {
        let is_for_copy = |id: &&OpId| ops.get(*id).is_some_and(|op| op.is_for_copy());
        self.urgent.len() + self.aside.values().flatten().filter(is_for_copy).count()
    }
}

impl Daemon {
    /// A read waits for a clone; those behind it go on.
    pub(crate) fn stand_aside(&mut self, id: OpId, pgid: PgId, clone: &HObject) {
        hit(Probe::ReadStoodAside);
        if let Some(op) = self.ops.get_mut(&id) {
            op.is_reading = false;
        }
        if let Some(queue) = self.queue_of(pgid, &clone.head()) {
            queue.aside.entry(clone.snap).or_default().push(id);
        }
    }

    /// Reads whose clones are not missing any more go back to where they were. The other clones are wanted still.
    pub(crate) fn call_back(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        if self.queue_of(pgid, head).is_none_or(|queue| queue.aside.is_empty()) {
            return;
        }
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(queue) = host.objects.get_mut(head) else { return };
        let missing = host.pg.missing();
        let is_here = |snap| !missing.contains(&head.at_snap(snap));
        let mut come: Vec<OpId> =
            queue.aside.extract_if(.., |snap, _| is_here(*snap)).flat_map(|(_, ids)| ids).collect();
        come.sort_unstable();
        for id in come.into_iter().rev() {
            match self.ops.get(&id).is_some_and(|op| op.is_for_copy()) {
                true => queue.urgent.push_front(id),
                false => queue.waiting.push_front(id),
            }
        }
        let wanted: Vec<HObject> = queue.aside.keys().map(|snap| head.at_snap(*snap)).collect();
        for clone in wanted {
            self.want_object(pgid, &clone, fx);
        }
    }
}
