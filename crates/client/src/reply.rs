//! Answers to requests on objects.

use crate::error::ClientError;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder};
use types::{Epoch, Errno, Eversion};
use wire::msg::op::checksum_kind;
use wire::msg::op_data::{
    self as od, Extents, ListSnapsOut, OmapGetKeysOut, OmapGetValsOut, SparseReadOut, StatOut,
    Values, WatchItem,
};
use wire::msg::{MOsdOpReply, ReplyOp, ReplyOps};

/// The answer to a request on an object. Outputs are taken by the place of their operation.
#[derive(Clone, Debug, Default)]
pub struct OpReply {
    /// The object's version, which counts its changes.
    pub user_version: u64,
    /// The version a write got in its PG; 0'0 of a read.
    pub version: Eversion,
    /// 0 or more; what it means depends on the operation.
    pub result: i32,
    /// The OSD's map.
    pub epoch: Epoch,
    /// Each operation's own result and output.
    pub ops: ReplyOps,
}

impl From<MOsdOpReply> for OpReply {
    fn from(reply: MOsdOpReply) -> Self {
        OpReply {
            user_version: reply.user_version,
            version: reply.replay_version,
            result: reply.result,
            epoch: reply.epoch,
            ops: reply.ops,
        }
    }
}

type Output<T> = Result<T, ClientError>;

impl OpReply {
    fn op(&self, i: usize) -> Output<&ReplyOp> {
        let op = self.ops.get(i).ok_or_else(|| {
            let what = format!("output of operation {i}");
            ClientError::new(Errno::EIO, what, "the reply has fewer operations than that")
        })?;
        if op.rval < 0 {
            let what = format!("operation {i}, {}", op.code);
            return Err(ClientError::new(crate::error::errno_of(op.rval), what, ""));
        }
        Ok(op)
    }

    fn decode<T>(
        &self,
        i: usize,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Output<T> {
        let op = self.op(i)?;
        let bytes = op.output();
        read(&mut Decoder::new(&bytes)).map_err(|e| {
            let what = format!("output of operation {i}, {}", op.code);
            ClientError::new(Errno::EIO, what, format!("the OSD's answer is malformed: {e}"))
        })
    }

    pub(crate) fn get<T: Decode>(&self, i: usize) -> Output<T> {
        self.decode(i, |d| d.get())
    }

    /// Plain bytes: of a read, an attribute, an omap header, a class's method.
    ///
    /// # Errors
    /// Like all outputs: when that operation failed, or its output is not of this kind.
    pub fn bytes(&self, i: usize) -> Output<Bytes> {
        Ok(self.op(i)?.output())
    }

    /// Of a stat.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn stat(&self, i: usize) -> Output<StatOut> {
        self.get(i)
    }

    /// Of a sparse read.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn sparse(&self, i: usize) -> Output<SparseReadOut> {
        self.get(i)
    }

    /// Of a MAPEXT.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn extents(&self, i: usize) -> Output<Extents> {
        self.get(i)
    }

    /// All attributes, or omap values by key.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn values(&self, i: usize) -> Output<Values> {
        self.get(i)
    }

    /// Of [`omap_values`](crate::ObjectOp::omap_values).
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn omap_values(&self, i: usize) -> Output<OmapGetValsOut> {
        self.get(i)
    }

    /// Of [`omap_keys`](crate::ObjectOp::omap_keys).
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn omap_keys(&self, i: usize) -> Output<OmapGetKeysOut> {
        self.get(i)
    }

    /// Of a checksum.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn checksums(&self, i: usize) -> Output<Vec<u64>> {
        let wide = self.op(i)?.args.checksum().kind == checksum_kind::XXHASH64;
        self.decode(i, |d| {
            let count = d.count()?;
            let next = |d: &mut Decoder<'_>| {
                if wide { d.get() } else { d.get::<u32>().map(u64::from) }
            };
            (0..count).map(|_| next(d)).collect()
        })
    }

    /// Who watches.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn watchers(&self, i: usize) -> Output<Vec<WatchItem>> {
        self.get::<od::ListWatchersOut>(i).map(|out| out.watchers)
    }

    /// The object's clones.
    ///
    /// # Errors
    /// See [`OpReply::bytes`].
    pub fn snaps(&self, i: usize) -> Output<ListSnapsOut> {
        self.get(i)
    }
}
