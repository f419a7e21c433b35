//! Listing the objects of a pool, PG after PG.
//!
//! Objects are ordered by their bit-reversed hash, so a PG is one range, and a cursor into the order
//! stays good when PGs split.

use super::target::{Aim, Target};
use super::{Cx, Objecter, Purpose, Request};
use crate::error::ClientError;
use crate::outcome::{Page, RequestId};
use crate::reply::OpReply;
use bytes::Bytes;
use types::{ByteString, Errno, HObject, PoolId};
use wire::msg::op::{OpCode, Pgls};
use wire::msg::op_data::PgnlsOut;
use wire::msg::{Ops, OsdOp, flags};

/// What stands for all namespaces (`LIBRADOS_ALL_NSPACES`).
const ALL_NAMESPACES: &[u8] = b"\x01";
/// Most entries of a page (`osd_max_pgls`).
const MAX_PAGE: u64 = 1024;
/// What real clients set on listings beside READ and ONDISK: no cache tier is to be asked.
const IGNORE_OVERLAY: u32 = 0x2_0000;

/// A place in the listing of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor {
    pool: PoolId,
    nspace: ByteString,
    at: HObject,
}

impl ListCursor {
    /// Before the first object of a pool. `nspace`: of this namespace only; `None`: of all.
    pub fn new(pool: PoolId, nspace: Option<&[u8]>) -> Self {
        let nspace = nspace.unwrap_or(ALL_NAMESPACES);
        let nspace = if nspace.is_empty() { ByteString::default() } else { nspace.into() };
        ListCursor { pool, nspace, at: HObject::min() }
    }

    /// Whether everything was listed.
    pub fn is_end(&self) -> bool {
        self.at.max
    }

    /// The next object's place.
    pub fn position(&self) -> &HObject {
        &self.at
    }

    /// What an answer to a listing from here says.
    pub(super) fn page(self, answer: Result<OpReply, ClientError>) -> Result<Page, ClientError> {
        let what = format!("listing of pool {}", self.pool);
        let reply = answer?;
        let malformed = |e: String| {
            let why = format!("the OSD's answer is malformed: {e}");
            ClientError::new(Errno::EIO, what.clone(), why)
        };
        let bytes: Bytes = reply.bytes(0)?;
        let out: PgnlsOut = denc::decode(&bytes).map_err(|e| malformed(e.to_string()))?;
        if out.handle <= self.at {
            return Err(malformed("it does not advance".to_owned()));
        }
        Ok(Page { objects: out.entries, next: ListCursor { at: out.handle, ..self } })
    }
}

impl Objecter {
    /// Lists at most `max` objects from a cursor on, all of one PG.
    pub fn list(&mut self, cx: &mut Cx<'_>, id: RequestId, from: ListCursor, max: u64) {
        let args = Pgls { count: max.clamp(1, MAX_PAGE), start_epoch: self.epoch().0 };
        let op = OsdOp::new(OpCode::PGNLS, args).with_indata(denc::encode(&from.at));
        let aim = Aim::Pg { pool: from.pool, hash: from.at.hash, nspace: from.nspace.clone() };
        let flags = flags::READ | flags::ONDISK | flags::KNOWN_IF_REDIRECTED | IGNORE_OVERLAY;
        let request = Request::read(Ops::from_iter([op]));
        let timeout = self.default_timeout;
        let purpose = Purpose::List(id, from);
        let tid = self.begin(cx, purpose, request, Target::new(aim, flags), 0);
        self.limit(cx, tid, timeout);
    }
}
