//! What a write takes of the disk: what is let through where there is no space.

use crate::ops::Change;
use crate::space::SMALL_BYTES;
use crate::write::encode_txn;
use wire::msg::{MOsdOp, OpCode, flags};

/// What a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// Nothing, or next to it. It is let through where there is no space, and has the store's reserve: it may be what
    /// frees some.
    Nothing,
    /// Space, but no more than there was. It is let through where the pool or the cluster is to take no more (so does
    /// Ceph: `PrimaryLogPG.cc: prepare_transaction`), but not where there is no space.
    AsBefore,
    /// More than there was.
    More,
}

impl Takes {
    /// As far as a request's operations say. What its methods do shows when they have run.
    pub fn by_ops(request: &MOsdOp) -> Takes {
        let frees = |code: OpCode| {
            matches!(
                code,
                OpCode::DELETE
                    | OpCode::OMAPCLEAR
                    | OpCode::OMAPRMKEYS
                    | OpCode::OMAPRMKEYRANGE
                    | OpCode::RMXATTR
                    | OpCode::WATCH
            ) || !code.is_write()
        };
        if request.ops.iter().all(|op| frees(op.code)) { Takes::Nothing } else { Takes::More }
    }

    /// With what the methods that a request calls came to. Small data (an object map, a journal) are let through for
    /// those only who ask not to wait: they remove images of pools that are full.
    pub fn by_change(request: &MOsdOp, change: &Change) -> Takes {
        let data = change.txn().data_bytes();
        let may_be_small = data == 0 || request.has_flag(flags::FULL_TRY);
        let is_small = may_be_small
            && data <= SMALL_BYTES
            && data + encode_txn(change.txn()).0.len() as u64 <= SMALL_BYTES;
        match (is_small, change.grows()) {
            (true, _) => Takes::Nothing,
            (_, false) => Takes::AsBefore,
            (_, true) => Takes::More,
        }
    }
}
