//! COPY_FROM: fetching the source object, as a client of whoever leads its PG (which may be us).
//!
//! The source is read with ordinary operations: size, stored ranges, attributes, omap. A long omap
//! takes several requests; that nothing changed in between is asserted by the user version.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::Origin;
use crate::ops::{CopiedObject, CopySource, Sender};
use bytes::Bytes;
use io::Effects;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{EntityName, Errno, HObject, OsdId};
use wire::LinkId;
use wire::msg::op::{AssertVer, Extent};
use wire::msg::op_data::{OmapGetValsIn, OmapGetValsOut, SparseReadOut, StatOut, Values, output};
use wire::msg::{MOsdOp, MOsdOpReply, ObjectLocator, OpArgs, OpCode, OsdOp, Payload, ReplyOp};

/// Omap entries of one request.
const OMAP_ENTRIES: u64 = 1024;
/// Times a copy begins anew because the source changed.
const MAX_RESTARTS: u32 = 16;

/// One source being fetched.
struct Fetching {
    op: OpId,
    /// The attempt that waits for it.
    attempt: u32,
    source: CopySource,
    so_far: Option<CopiedObject>,
    restarts: u32,
    /// Of the last request for it; 0 before the first.
    tid: u64,
}

/// All sources being fetched.
#[derive(Default)]
pub struct Copies {
    fetching: Vec<Fetching>,
    last_tid: u64,
    /// Answers to be delivered to others than clients.
    pub answers: Vec<(Origin, u64, MOsdOpReply)>,
}

impl Copies {
    /// The first source that nobody was asked for yet.
    fn not_asked_for(&self) -> Option<usize> {
        self.fetching.iter().position(|f| f.tid == 0)
    }

    /// Whether [`Daemon::go_on_copying`] has something to do.
    pub fn are_due(&self) -> bool {
        !self.answers.is_empty() || self.not_asked_for().is_some()
    }
}

impl Daemon {
    /// A request needs another object. It is asked for later in the turn: the request stands in its
    /// object's queue as one that is about to run, and the other object may be a snapshot of the same.
    pub(crate) fn begin_copy(&mut self, op: OpId, source: CopySource) {
        let Some(attempt) = self.ops.get(&op).map(|op| op.attempt) else { return };
        let fetching = Fetching { op, attempt, source, so_far: None, restarts: 0, tid: 0 };
        self.copies.fetching.push(fetching);
    }

    /// A map is new, or a session was lost: requests for sources may have got lost, so they are sent
    /// again.
    pub(crate) fn resend_copies(&mut self, fx: &mut Effects) {
        let waits = |f: &Fetching| self.ops.get(&f.op).is_some_and(|op| op.attempt == f.attempt);
        self.copies.fetching.retain(waits);
        // From the end: one that ends at once leaves its place to the last.
        for at in (0..self.copies.fetching.len()).rev() {
            if self.copies.fetching.get(at).is_some_and(|f| f.tid != 0) {
                self.send_copy_request(at, fx);
            }
        }
    }

    fn send_copy_request(&mut self, at: usize, fx: &mut Effects) {
        self.copies.last_tid += 1;
        let tid = self.copies.last_tid;
        let Some(f) = self.copies.fetching.get_mut(at) else { return };
        f.tid = tid;
        let map = self.maps.current();
        let ObjectLocator { pool, key, nspace, hash } = &f.source.locator;
        let raw = match u32::try_from(*hash) {
            Ok(hash) => Some(types::PgId::new(*pool, hash)),
            Err(_) => map.object_to_pg(*pool, nspace, key, &f.source.name),
        };
        let target = raw.and_then(|raw| Some((raw, map.raw_pg_to_pg(raw)?)));
        let Some((raw, pgid)) = target else {
            self.copy_fetched(at, Err(Errno::ENOENT), fx);
            return;
        };
        let same_key = *key == f.source.name;
        let object = HObject {
            pool: *pool,
            hash: raw.seed,
            nspace: nspace.clone(),
            key: if same_key { Default::default() } else { key.clone() },
            name: f.source.name.clone(),
            snap: f.source.snap,
            max: false,
        };
        let request = MOsdOp {
            pgid: types::SpgId { pgid, shard: types::ShardId::NONE },
            object,
            locator_pool: *pool,
            epoch: map.epoch,
            flags: wire::msg::flags::READ,
            ops: copy_ops(f.so_far.as_ref()).into_iter().collect(),
            ..MOsdOp::default()
        };
        let Some(primary) = map.pg_to_up_acting(pgid).acting_primary else { return };
        if primary == self.cfg.id {
            self.new_own_op(Origin::Own, tid, request, fx);
        } else {
            self.send_peer(primary, request.encode().with_tid(tid), fx);
        }
    }

    /// What is asked for and not yet answered. The other lists of Ceph's are those of a client.
    pub(crate) fn copy_requests(&self) -> Value {
        let asked = self.copies.fetching.iter().filter(|f| f.tid != 0).map(|f| {
            let ObjectLocator { pool, nspace, .. } = &f.source.locator;
            json!({
                "tid": f.tid,
                "object_id": f.source.name.to_string(),
                "object_locator": format!("@{pool}{}{nspace}", if nspace.is_empty() { "" } else { ";" }),
                "snapid": f.source.snap.to_string(),
                "attempts": u64::from(f.restarts).saturating_add(1),
            })
        });
        json!({
            "ops": asked.collect::<Vec<_>>(), "linger_ops": [], "pool_ops": [],
            "pool_stat_ops": [], "statfs_ops": [], "command_ops": [],
        })
    }

    fn new_own_op(&mut self, origin: Origin, tid: u64, request: MOsdOp, fx: &mut Effects) {
        let name = EntityName::osd(self.cfg.id);
        let sender = Sender { name, addr: Default::default() };
        self.new_op(origin, LinkId(0), tid, sender, request, 0, fx);
    }

    /// Another OSD reads an object of ours.
    pub(crate) fn on_peer_request(
        &mut self,
        from: OsdId,
        tid: u64,
        request: MOsdOp,
        fx: &mut Effects,
    ) {
        if !crate::ops::classify(&request).writes {
            self.new_own_op(Origin::Peer(from), tid, request, fx);
        }
    }

    /// Delivers answers to copy requests, and sends new ones; called when nothing else is in hand.
    pub(crate) fn go_on_copying(&mut self, fx: &mut Effects) {
        while self.copies.are_due() {
            self.deliver_copies(fx);
            if let Some(at) = self.copies.not_asked_for() {
                self.send_copy_request(at, fx);
            }
        }
    }

    fn deliver_copies(&mut self, fx: &mut Effects) {
        for (to, tid, reply) in std::mem::take(&mut self.copies.answers) {
            match to {
                Origin::Peer(osd) => self.send_peer(osd, reply.encode().with_tid(tid), fx),
                Origin::Own => self.on_copy_reply(tid, reply, fx),
                Origin::Client => unreachable!("clients are answered at once"),
            }
        }
    }

    pub(crate) fn on_copy_reply(&mut self, tid: u64, reply: MOsdOpReply, fx: &mut Effects) {
        let Some(at) = self.copies.fetching.iter().position(|f| f.tid == tid) else { return };
        let f = &mut self.copies.fetching[at];
        if reply.result == Errno::ERANGE.wire() || reply.result == Errno::EOVERFLOW.wire() {
            f.so_far = None;
            f.restarts += 1;
            if f.restarts > MAX_RESTARTS {
                self.copy_fetched(at, Err(Errno::EAGAIN), fx);
            } else {
                self.send_copy_request(at, fx);
            }
            return;
        }
        if reply.result < 0 {
            self.copy_fetched(at, Err(Errno(-reply.result)), fx);
            return;
        }
        match take_in(f.so_far.take(), &reply) {
            Ok((copied, true)) => {
                f.so_far = Some(copied);
                self.send_copy_request(at, fx);
            }
            Ok((copied, false)) => self.copy_fetched(at, Ok(copied), fx),
            Err(_) => self.copy_fetched(at, Err(Errno::EIO), fx),
        }
    }

    /// A source is here, or cannot be had: the request is run again.
    fn copy_fetched(&mut self, at: usize, result: Result<CopiedObject, Errno>, fx: &mut Effects) {
        let f = self.copies.fetching.swap_remove(at);
        let Some(op) = self.ops.get_mut(&f.op) else { return };
        op.copies.push((f.source, result));
        self.op_fetched(f.op, f.attempt, Ok(store::ReadSet::new()), fx);
    }
}

/// The operations that read an object, or the rest of its omap.
fn copy_ops(so_far: Option<&CopiedObject>) -> Vec<OsdOp> {
    let after = so_far.and_then(|c| c.omap.last()).map(|(k, _)| (&k[..]).into());
    let omap = OmapGetValsIn {
        start_after: after.unwrap_or_default(),
        max: OMAP_ENTRIES,
        ..OmapGetValsIn::default()
    };
    let none = OpArgs::default();
    let omap = OsdOp::new(OpCode::OMAPGETVALS, none).with_indata(denc::encode(&omap));
    if let Some(copied) = so_far {
        let version = AssertVer { unused: 0, version: copied.user_version };
        return vec![OsdOp::new(OpCode::ASSERT_VER, version), omap];
    }
    let all = Extent { length: crate::ops::MAX_OBJECT_BYTES, ..Extent::default() };
    vec![
        OsdOp::new(OpCode::STAT, none),
        OsdOp::new(OpCode::SPARSE_READ, all),
        OsdOp::new(OpCode::GETXATTRS, none),
        OsdOp::new(OpCode::OMAPGETHEADER, none),
        omap,
    ]
}

/// Adds an answer to what is known of the object. Whether more must be asked for.
fn take_in(
    so_far: Option<CopiedObject>,
    reply: &MOsdOpReply,
) -> Result<(CopiedObject, bool), denc::DecodeError> {
    let omap = |op: Option<&ReplyOp>| output::<OmapGetValsOut>(op);
    if let Some(mut copied) = so_far {
        let page = omap(reply.ops.get(1))?;
        copied.omap.extend(pairs(page.values));
        return Ok((copied, page.more));
    }
    let stat: StatOut = output(reply.ops.first())?;
    let sparse: SparseReadOut = output(reply.ops.get(1))?;
    let attrs: Values = output(reply.ops.get(2))?;
    let page = omap(reply.ops.get(4))?;
    let mut at = 0usize;
    let mut data = Vec::new();
    for (offset, len) in &sparse.extents.map {
        let end = at.saturating_add(usize::try_from(*len).unwrap_or(usize::MAX));
        if end > sparse.data.len() {
            let kind = denc::DecodeErrorKind::Invalid("fewer bytes than the extents say");
            return Err(denc::DecodeError { kind, at });
        }
        data.push((*offset, sparse.data.slice(at..end)));
        at = end;
    }
    let stored =
        |(name, value): (types::ByteString, Bytes)| (crate::ops::stored_name(&name), value);
    let copied = CopiedObject {
        size: stat.size,
        mtime: stat.mtime,
        user_version: reply.user_version,
        data,
        attrs: attrs.into_iter().map(stored).collect(),
        omap_header: reply.ops.get(3).map(ReplyOp::output).unwrap_or_default(),
        omap: pairs(page.values).collect(),
        truncate_seq: 0,
        truncate_size: 0,
    };
    Ok((copied, page.more))
}

fn pairs(values: BTreeMap<types::ByteString, Bytes>) -> impl Iterator<Item = (Bytes, Bytes)> {
    values.into_iter().map(|(k, v)| (Bytes::copy_from_slice(&k), v))
}
