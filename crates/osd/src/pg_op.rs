//! Requests that ask a PG as such: listings, also of what scrubs found.

use crate::config::WAITING_OPS_PER_PG;
use crate::daemon::{Daemon, Waiter};
use crate::host::OpId;
use crate::op::ClientOp;
use crate::ops::{self, ListRange, Reader, Stop};
use crate::scrub::list_wrong;
use crate::tracker::Mark;
use io::Effects;
use types::{Errno, PgId};
use wire::msg::{MOsdOpReply, OpCode};

impl Daemon {
    pub(crate) fn run_pg_op(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) {
        let Some(pool) = self.maps.current().pool(pgid.pool) else { return };
        let pg_num = pool.pg_num;
        if self.pg_read_must_wait(id, pgid, fx) || self.must_answer_later(id) {
            return;
        }
        if self.listing_must_wait(id, pgid, fx) {
            return;
        }
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.trace.mark(self.now.mono, Mark::Started);
        let range = ListRange::of(pgid, pg_num, self.limits.list_entries);
        let reader = Reader { store: &self.store, set: &op.reads };
        let mut reply = MOsdOpReply::answer(&op.request, self.maps.epoch());
        for (i, sub) in op.request.ops.iter().enumerate() {
            let listed = match sub.code {
                OpCode::PGNLS => {
                    let nspace = &op.request.object.nspace;
                    let Some(host) = self.pgs.get(&pgid) else { return };
                    let missing = host.pg.missing();
                    let listed = ops::list_objects(reader, sub, nspace, &range, missing);
                    listed.map(|(result, out)| (result, denc::encode(&out)))
                }
                OpCode::SCRUBLS => {
                    let host = self.pgs.get(&pgid).ok_or(Errno::ENOENT);
                    let listed = host.and_then(|h| list_wrong(h, sub));
                    listed.map(|out| (0, out)).map_err(Stop::Fail)
                }
                OpCode::PGNLS_FILTER => Err(Stop::Fail(Errno::EINVAL)),
                _ => Err(Stop::Fail(Errno::EOPNOTSUPP)),
            };
            match listed {
                Ok((result, out)) => {
                    reply.ops[i].outdata.push(out);
                    reply.ops[i].rval = result;
                    reply.result = result;
                }
                Err(Stop::Miss(miss)) => {
                    op.trace.mark(self.now.mono, Mark::WaitingForRead);
                    op.is_reading = false;
                    op.attempt += 1;
                    let waiter = Waiter::Op(id, op.attempt);
                    self.fetch(miss, waiter, fx);
                    return;
                }
                Err(Stop::Fail(e)) => {
                    reply.result = e.wire();
                    break;
                }
                Err(_) => {
                    reply.result = Errno::EIO.wire();
                    break;
                }
            }
        }
        self.reply_op(id, reply);
    }

    /// Whether a listing must wait: what the log says is not all in the store yet. What scrubs found is in memory.
    fn listing_must_wait(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> bool {
        let Some(host) = self.pgs.get_mut(&pgid).filter(|h| !h.is_settled()) else { return false };
        let lists = |op: &ClientOp| op.request.ops.iter().any(|sub| sub.code == OpCode::PGNLS);
        if !self.ops.get(&id).is_some_and(|op| lists(op)) {
            return false;
        }
        if host.behind_removals.len() < WAITING_OPS_PER_PG {
            host.behind_removals.push_back(id);
            self.mark_op(id, Mark::WaitingForObject);
        } else {
            self.send_back(id, fx);
        }
        true
    }

    /// Nothing is left to be removed: listings that waited for that are made.
    pub(crate) fn release_listings(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid).filter(|h| h.is_settled()) else { return };
        for id in std::mem::take(&mut host.behind_removals) {
            self.start_op(id, fx);
        }
    }

    /// Bytes came for a listing.
    pub(crate) fn is_pg_op(&self, id: OpId) -> bool {
        self.ops.get(&id).is_some_and(|op| op.request.is_for_pg())
    }
}
