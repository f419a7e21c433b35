//! COPY_FROM: fetching the source object, as a client of whoever leads its PG (which may be us).
//!
//! The source is read with ordinary operations: its size, and when there is room for so much
//! ([`crate::write_room`]) ranges, attributes and omap, page by page. That nothing changed in between is
//! asserted by the user version.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::{Ops, Origin};
use crate::ops::{CopiedObject, CopySource, MAX_COPY_BYTES, MAX_MADE_BYTES, Sender, entry_bytes};
use bytes::Bytes;
use io::Effects;
use maps::OsdMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::testing::{Probe, hit};
use types::{EntityName, Epoch, Errno, HObject, Mono, OsdId, PgId};
use wire::LinkId;
use wire::msg::op::{AssertVer, Extent};
use wire::msg::op_data::{OmapGetValsIn, OmapGetValsOut, SparseReadOut, StatOut, Values, output};
use wire::msg::{MOsdOp, MOsdOpReply, ObjectLocator, OpArgs, OpCode, OsdOp, Payload, ReplyOp};

/// Omap entries of one request.
const OMAP_ENTRIES: u64 = 1024;
/// Data of one request.
const PAGE_BYTES: u64 = 4 << 20;
/// Times a copy begins anew because the source changed.
const MAX_RESTARTS: u32 = 16;
/// A source that does not answer for so long, its PG may be down, keeps no room that others wait for.
const PATIENCE_MS: u64 = 5_000;

/// One source being fetched.
struct Fetching {
    op: OpId,
    /// The attempt that waits for it.
    attempt: u32,
    source: CopySource,
    /// Whom it was asked of last, if it was.
    target: Option<Target>,
    /// What the request has made before it, in bytes.
    made: usize,
    /// `None` while not even the size is known.
    so_far: Option<SoFar>,
    restarts: u32,
    /// Since when what is asked for now has had no answer, however often it was asked for.
    asked_at: Mono,
}

/// Who is asked for a source. As long as that is the same by all maps, it keeps the request: it would have as many of
/// them as there are maps while the source cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    pgid: PgId,
    primary: Option<OsdId>,
    /// Which life of it.
    up_from: Epoch,
}

impl Target {
    /// `None`: there is no such pool.
    fn of(source: &CopySource, map: &OsdMap) -> Option<Target> {
        let pgid = map.raw_pg_to_pg(source.raw_pg(map)?)?;
        let primary = map.pg_to_up_acting(pgid).acting_primary;
        let up_from = primary.and_then(|osd| map.osd(osd)).map_or(Epoch::ZERO, |o| o.info.up_from);
        Some(Target { pgid, primary, up_from })
    }
}

/// What is here of a source.
#[derive(Default)]
struct SoFar {
    copied: CopiedObject,
    /// What it takes.
    bytes: usize,
    /// Attributes and the omap header are here.
    has_attrs: bool,
    /// Data is here up to this offset.
    data_to: u64,
}

impl SoFar {
    fn of(stat: &StatOut, user_version: u64) -> Self {
        let (size, mtime) = (stat.size, stat.mtime);
        let copied = CopiedObject { size, mtime, user_version, ..CopiedObject::default() };
        SoFar { copied, ..SoFar::default() }
    }

    /// What it takes with all of its data, and the next page of its omap.
    fn bytes_expected(&self) -> usize {
        let data = self.copied.size.saturating_sub(self.data_to);
        let data = usize::try_from(data).unwrap_or(usize::MAX);
        self.bytes.saturating_add(data).saturating_add(MAX_COPY_BYTES)
    }
}

/// All sources being fetched.
#[derive(Default)]
pub struct Copies {
    /// What is to be asked for, in order.
    to_ask: VecDeque<Fetching>,
    /// By the last request for it.
    asked: BTreeMap<u64, Fetching>,
    /// Their PGs had no room for them to wait: they are asked for again with the next tick.
    refused: Vec<Fetching>,
    last_tid: u64,
    /// Answers to be delivered to others than clients.
    pub answers: Vec<(Origin, u64, MOsdOpReply)>,
}

impl Copies {
    /// Whether [`Daemon::go_on_copying`] has something to do.
    pub fn are_due(&self) -> bool {
        !self.answers.is_empty() || !self.to_ask.is_empty()
    }

    /// Forgets what was asked for by requests that are over.
    pub fn forget_ended(&mut self, ops: &Ops) {
        let is_over = |f: &Fetching| !ops.contains_key(&f.op);
        self.asked.retain(|_, f| !is_over(f));
        self.refused.retain(|f| !is_over(f));
        self.to_ask.retain(|f| !is_over(f));
    }

    /// What was asked for is asked for once more.
    fn ask_again(&mut self, which: impl Fn(&Fetching) -> bool) {
        let again = self.asked.extract_if(.., |_, f| which(f)).map(|(_, f)| f);
        self.to_ask.extend(again);
    }

    /// Takes out those that have room for a source that has not come for too long: it does not answer, or
    /// its PG refuses to be asked again and again.
    fn take_slow(&mut self, now: Mono) -> Vec<Fetching> {
        let patience = Duration::from_millis(PATIENCE_MS);
        let is_slow = |f: &Fetching| f.so_far.is_some() && now.since(f.asked_at) >= patience;
        let silent = self.asked.extract_if(.., |_, f| is_slow(f)).map(|(_, f)| f);
        silent.chain(self.refused.extract_if(.., |f| is_slow(f))).collect()
    }
}

impl Daemon {
    /// A request that has made so many bytes needs another object. It is asked for later in the turn: the
    /// request stands in its object's queue as one that is about to run, and the other object may be a
    /// snapshot of the same.
    pub(crate) fn begin_copy(&mut self, op: OpId, source: CopySource, made: usize) {
        let Some(attempt) = self.ops.get(&op).map(|op| op.attempt) else { return };
        let asked_at = self.now.mono;
        let (target, so_far, restarts) = (None, None, 0);
        let fetching = Fetching { op, attempt, source, target, made, so_far, restarts, asked_at };
        self.copies.to_ask.push_back(fetching);
    }

    /// A map is new: what was asked of who does not lead the source's PG by it, or for the first time again, is asked
    /// for anew. Each map counts: who did not lead by one of them has dropped the request.
    pub(crate) fn redirect_copies(&mut self, map: &OsdMap) {
        self.copies.ask_again(|f| f.target != Target::of(&f.source, map));
    }

    /// All requests may have got lost with maps that are not there.
    pub(crate) fn resend_copies(&mut self) {
        self.copies.ask_again(|_| true);
    }

    /// Requests to an OSD may have got lost.
    pub(crate) fn resend_copies_to(&mut self, osd: OsdId) {
        self.copies.ask_again(|f| f.target.is_some_and(|t| t.primary == Some(osd)));
    }

    /// Asks again for what was refused, and takes room from sources that do not answer.
    pub(crate) fn tick_copies(&mut self) {
        if self.write_room.is_waited_for() {
            for f in self.copies.take_slow(self.now.mono) {
                self.lose_room(f.op, f.attempt);
            }
        }
        self.copies.to_ask.extend(self.copies.refused.drain(..));
        self.write_room.look_again();
    }

    fn send_copy_request(&mut self, mut f: Fetching, fx: &mut Effects) {
        // Its request is over, or has begun anew.
        if self.ops.get(&f.op).is_none_or(|op| op.attempt != f.attempt) {
            return;
        }
        let Some((target, request)) = self.copy_request(&f) else {
            self.copy_fetched(f, Err(Errno::ENOENT), fx);
            return;
        };
        self.copies.last_tid += 1;
        let tid = self.copies.last_tid;
        f.target = Some(target);
        self.copies.asked.insert(tid, f);
        match target.primary {
            None => {}
            Some(primary) if primary == self.cfg.id => {
                self.new_own_op(Origin::Own, tid, request, fx);
            }
            Some(primary) => self.send_peer(primary, request.encode().with_tid(tid), fx),
        }
    }

    /// The next request for a source, and whom to ask. `None` when there is no such pool.
    fn copy_request(&self, f: &Fetching) -> Option<(Target, MOsdOp)> {
        let map = self.maps.current();
        let ObjectLocator { pool, key, nspace, .. } = &f.source.locator;
        let raw = f.source.raw_pg(map)?;
        let target = Target::of(&f.source, map)?;
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
            pgid: types::SpgId { pgid: target.pgid, shard: types::ShardId::NONE },
            object,
            locator_pool: *pool,
            epoch: map.epoch,
            flags: wire::msg::flags::READ,
            ops: copy_ops(f.so_far.as_ref()).into_iter().collect(),
            ..MOsdOp::default()
        };
        Some((target, request))
    }

    /// What is asked for and not yet answered. The other lists of Ceph's are those of a client.
    pub(crate) fn copy_requests(&self) -> Value {
        let asked = self.copies.asked.iter().map(|(tid, f)| {
            let ObjectLocator { pool, nspace, .. } = &f.source.locator;
            json!({
                "tid": tid,
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

    /// Delivers answers to copy requests, sends new ones, and lets go on what waited for room; called when
    /// nothing else is in hand.
    pub(crate) fn go_on_copying(&mut self, fx: &mut Effects) {
        while self.copies.are_due() || self.write_room.is_due() {
            self.deliver_copies(fx);
            if let Some(f) = self.copies.to_ask.pop_front() {
                self.send_copy_request(f, fx);
            }
            self.start_waiting_writes(fx);
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
        let Some(mut f) = self.copies.asked.remove(&tid) else { return };
        let result = reply.result;
        if result == Errno::EAGAIN.wire() {
            hit(Probe::CopyRefused);
            self.copies.refused.push(f);
            return;
        }
        f.asked_at = self.now.mono;
        if result == Errno::ERANGE.wire() || result == Errno::EOVERFLOW.wire() {
            f.so_far = None;
            f.restarts += 1;
            if f.restarts > MAX_RESTARTS {
                self.copy_fetched(f, Err(Errno::EAGAIN), fx);
            } else {
                self.copies.to_ask.push_back(f);
            }
            return;
        }
        if result < 0 {
            self.copy_fetched(f, Err(Errno(result.saturating_neg())), fx);
            return;
        }
        match take_in(&mut f.so_far, &reply) {
            Ok(more) => self.copy_taken_in(f, more, fx),
            Err(_) => self.copy_fetched(f, Err(Errno::EIO), fx),
        }
    }

    /// More of a source is here, and more must be asked for, or not.
    fn copy_taken_in(&mut self, mut f: Fetching, more: bool, fx: &mut Effects) {
        let expected = |s: &SoFar| if more { s.bytes_expected() } else { s.bytes };
        let need = f.made.saturating_add(f.so_far.as_ref().map_or(0, expected));
        if need > MAX_MADE_BYTES {
            self.copy_fetched(f, Err(Errno::EFBIG), fx);
        } else if self.take_room(f.op, f.attempt, need) {
            match f.so_far.take_if(|_| !more) {
                Some(whole) => self.copy_fetched(f, Ok(whole.copied), fx),
                None => self.copies.to_ask.push_back(f),
            }
        }
    }

    /// A source is here, or cannot be had: the request is run again.
    fn copy_fetched(&mut self, f: Fetching, result: Result<CopiedObject, Errno>, fx: &mut Effects) {
        let Some(op) = self.ops.get_mut(&f.op).filter(|op| op.attempt == f.attempt) else { return };
        op.copies.push((f.source, result));
        self.op_fetched(f.op, f.attempt, Ok(store::ReadSet::new()), fx);
    }
}

/// The operations that ask for an object's size, or for the next page of it.
fn copy_ops(so_far: Option<&SoFar>) -> Vec<OsdOp> {
    let none = OpArgs::default();
    let Some(SoFar { copied, has_attrs, data_to, .. }) = so_far else {
        return vec![OsdOp::new(OpCode::STAT, none)];
    };
    let version = AssertVer { unused: 0, version: copied.user_version };
    let page = Extent { offset: *data_to, length: PAGE_BYTES, ..Extent::default() };
    let after = copied.omap.last().map(|(k, _)| (&k[..]).into());
    let omap = OmapGetValsIn {
        start_after: after.unwrap_or_default(),
        max: OMAP_ENTRIES,
        ..OmapGetValsIn::default()
    };
    let mut ops = vec![
        OsdOp::new(OpCode::ASSERT_VER, version),
        OsdOp::new(OpCode::SPARSE_READ, page),
        OsdOp::new(OpCode::OMAPGETVALS, none).with_indata(denc::encode(&omap)),
    ];
    if !has_attrs {
        ops.push(OsdOp::new(OpCode::GETXATTRS, none));
        ops.push(OsdOp::new(OpCode::OMAPGETHEADER, none));
    }
    ops
}

/// Adds an answer to what is known of the object. Whether more must be asked for.
fn take_in(so_far: &mut Option<SoFar>, reply: &MOsdOpReply) -> Result<bool, denc::DecodeError> {
    let Some(so_far) = so_far else {
        let stat: StatOut = output(reply.ops.first())?;
        *so_far = Some(SoFar::of(&stat, reply.user_version));
        return Ok(true);
    };
    let SoFar { copied, bytes, has_attrs, data_to } = so_far;
    let data = stored_ranges(output(reply.ops.get(1))?)?;
    *bytes = data.iter().fold(*bytes, |sum, (_, data)| sum.saturating_add(data.len()));
    copied.data.extend(data);
    *data_to = data_to.saturating_add(PAGE_BYTES);
    let page: OmapGetValsOut = output(reply.ops.get(2))?;
    let pairs = page.values.into_iter().map(|(k, v)| (Bytes::copy_from_slice(&k), v));
    let added = copied.omap.len();
    copied.omap.extend(pairs);
    let added = copied.omap.iter().skip(added);
    *bytes = added.fold(*bytes, |sum, entry| sum.saturating_add(entry_bytes(entry)));
    if !std::mem::replace(has_attrs, true) {
        let attrs: Values = output(reply.ops.get(3))?;
        let stored =
            |(name, value): (types::ByteString, Bytes)| (crate::ops::stored_name(&name), value);
        copied.attrs = attrs.into_iter().map(stored).collect();
        copied.omap_header = reply.ops.get(4).map(ReplyOp::output).unwrap_or_default();
        let attrs: usize = copied.attrs.iter().map(entry_bytes).sum();
        *bytes = bytes.saturating_add(attrs).saturating_add(copied.omap_header.len());
    }
    Ok(page.more || *data_to < copied.size)
}

/// Offset and bytes of what a sparse read found.
fn stored_ranges(sparse: SparseReadOut) -> Result<Vec<(u64, Bytes)>, denc::DecodeError> {
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
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SnapId;

    /// Its PG may refuse it again and again.
    #[test]
    fn a_source_that_is_refused_for_long_keeps_no_room() {
        let fetching = |so_far| Fetching {
            op: OpId(1),
            attempt: 1,
            source: CopySource {
                name: "s".into(),
                locator: ObjectLocator::default(),
                snap: SnapId::HEAD,
            },
            target: None,
            made: 0,
            so_far,
            restarts: 0,
            asked_at: Mono(0),
        };
        let mut copies = Copies::default();
        copies.refused.extend([fetching(None), fetching(Some(SoFar::default()))]);
        let at = |ms| Mono(0).after(Duration::from_millis(ms));
        assert!(copies.take_slow(at(PATIENCE_MS - 1)).is_empty());
        assert_eq!((copies.take_slow(at(PATIENCE_MS)).len(), copies.refused.len()), (1, 1));
    }
}
