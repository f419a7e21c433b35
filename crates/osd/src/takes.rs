//! What a write takes of the disk: what is let through where there is no space.

use crate::ops::Change;
use crate::space::SMALL_BYTES;
use crate::write::encode_txn;
use wire::msg::{MOsdOp, OpCode, flags};

/// An object map that is written anew is no longer: that of an image of 64 TiB in objects of 4 MiB, two bits for each,
/// with its checksums. (Removing an image marks its objects, 262,144 at a time; removing a snapshot writes the whole.)
const REWRITTEN_BYTES: u64 = (4 << 20) + (64 << 10);

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

    /// With what the methods that a request calls came to. Data are let through for those only who ask not to wait:
    /// they remove images and snapshots of pools that are full. What they write anew is an object map.
    pub fn by_change(request: &MOsdOp, change: &Change) -> Takes {
        let data = change.txn().data_bytes();
        let asks_not_to_wait = request.has_flag(flags::FULL_TRY);
        // How much of them, and whether they count as what comes with them does.
        let (most, counted) = match (asks_not_to_wait, change.grows()) {
            (false, _) => (0, data),
            (true, true) => (SMALL_BYTES, data),
            (true, false) => (REWRITTEN_BYTES, 0),
        };
        let is_small =
            data <= most && counted + encode_txn(change.txn()).0.len() as u64 <= SMALL_BYTES;
        match (is_small, change.grows()) {
            (true, _) => Takes::Nothing,
            (_, false) => Takes::AsBefore,
            (_, true) => Takes::More,
        }
    }
}
