//! Requests that nobody waits for any more here: their client has left, or holds them itself ([`crate::backoff`]).
//!
//! A client sends what was not answered again over its next connection, under the same number; what was done is known
//! by the log. So all may go that has not begun. What has begun ends by itself: a write that was handed over is durable
//! by and by (its resend joins it, or finds it in the log), and a read under way gives back what it has taken when its
//! bytes come, or its turn. Should the PG's interval end before, such requests go then ([`Daemon::requeue_ops`]).
//!
//! Ceph: `PG::can_discard_op`, by `osd_discard_disconnected_ops`.

use crate::daemon::{Daemon, Waiter};
use crate::host::{ObjectQueue, OpId, PgHost};
use crate::links::Sessions;
use crate::op::{ClientOp, Ops, Origin};
use io::Effects;
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Probe, hit};
use types::{HObject, PgId};
use wire::LinkId;

impl ObjectQueue {
    /// Forgets requests that are over. What stood behind one that waited may go on.
    fn forget_ended(&mut self, ops: &Ops) {
        self.waiting.retain(|id| ops.contains_key(id));
        self.aside.retain(|_, ids| {
            ids.retain(|id| ops.contains_key(id));
            !ids.is_empty()
        });
        self.stalled = self.stalled.filter(|id| ops.contains_key(id));
    }
}

impl PgHost {
    fn forget_ended(&mut self, ops: &Ops) {
        self.waiting.retain(|id| ops.contains_key(id));
        self.behind_removals.retain(|id| ops.contains_key(id));
    }
}

impl Sessions {
    /// Whether the client that sent a request is not connected any more, not as then.
    pub fn has_left(&self, op: &ClientOp) -> bool {
        op.origin == Origin::Client && self.get(op.link).is_none()
    }
}

impl Daemon {
    /// A client has left.
    pub(crate) fn abandon_ops_of(&mut self, link: LinkId, fx: &mut Effects) {
        hit(Probe::OpsAbandoned);
        self.abandon_ops(|op| op.origin == Origin::Client && op.link == link, fx);
    }

    /// Forgets those of these requests that have not begun. What waits behind them goes on.
    pub(crate) fn abandon_ops(&mut self, which: impl Fn(&ClientOp) -> bool, fx: &mut Effects) {
        let has_begun = |op: &ClientOp| op.answer.is_some() || op.is_reading;
        let ops = self.ops.iter().filter(|(_, op)| which(op) && !has_begun(op));
        let ids: Vec<OpId> = ops.map(|(id, _)| *id).collect();
        let mut places: BTreeMap<PgId, BTreeSet<HObject>> = BTreeMap::new();
        for id in ids {
            let Some(op) = self.ops.get(&id) else { continue };
            places.entry(op.pgid()).or_default().insert(op.head());
            self.drop_op(id);
        }
        if places.is_empty() {
            return;
        }
        let ops = &self.ops;
        self.waiting_ops.retain(|id| ops.contains_key(id));
        let is_over = |w: &Waiter| matches!(w, Waiter::Op(id, _) if !ops.contains_key(id));
        self.blocked.retain(|waiter| !is_over(waiter));
        self.copies.forget_ended(ops);
        self.write_room.look_again();
        for (pgid, heads) in places {
            if let Some(host) = self.pgs.get_mut(&pgid) {
                host.forget_ended(&self.ops);
            }
            for head in heads {
                if let Some(host) = self.pgs.get_mut(&pgid)
                    && let Some(queue) = host.objects.get_mut(&head)
                {
                    queue.forget_ended(&self.ops);
                }
                self.pump_object(pgid, &head, fx);
            }
        }
    }

    /// A request whose client has left was about to be run again: it is over.
    pub(crate) fn end_abandoned(&mut self, id: OpId, fx: &mut Effects) {
        let Some(op) = self.ops.get(&id) else { return };
        let (pgid, head, was_reading) = (op.pgid(), op.head(), op.is_reading);
        // One to a PG stands in no object's queue.
        let is_for_pg = op.request.is_for_pg();
        self.drop_op(id);
        if !is_for_pg {
            self.unstall(pgid, &head, was_reading);
            self.pump_object(pgid, &head, fx);
        }
    }
}
