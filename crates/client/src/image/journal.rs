//! What an image with the feature journaling has besides: its journal (`journal/JournalTrimmer.cc`).

use super::script::{Desk, remove_object};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use types::{ByteString, Errno, PoolId};

/// Sets of a journal that are removed, at most: 4 TiB of entries, where objects and sets are as `rbd` makes
/// them. More is nonsense in its header.
const MAX_SETS: u64 = 1 << 16;

/// Where the entries of a journal are.
struct Extent {
    /// Objects of a set.
    splay_width: u64,
    pool: PoolId,
    /// The oldest set, and the one that is written.
    sets: (u64, u64),
}

/// Removes the journal of an image, with all that stands in it.
pub async fn remove(
    desk: &Desk,
    pool: PoolId,
    nspace: &ByteString,
    id: &str,
) -> Result<(), ClientError> {
    let object = |pool, name| Object::new(pool, name).in_namespace(nspace.clone());
    let header = object(pool, format!("journal.{id}"));
    let extent = match extent(desk, &header, pool).await {
        Err(error) if error.errno == Errno::ENOENT => return Ok(()),
        other => other?,
    };
    let (oldest, active) = extent.sets;
    if active.saturating_sub(oldest) > MAX_SETS {
        let what = format!("removing the journal of image {id}");
        let why = format!("its header speaks of the sets {oldest} to {active}");
        return Err(ClientError::new(Errno::EFBIG, what, why));
    }
    // Who was about to write the next set may have made objects of it.
    for set in oldest..=active.saturating_add(1) {
        for n in 0..extent.splay_width {
            let number = set.saturating_mul(extent.splay_width).saturating_add(n);
            let name = format!("journal_data.{}.{id}.{number}", pool.0);
            remove_object(desk, object(extent.pool, name)).await?;
        }
    }
    remove_object(desk, header).await
}

async fn extent(desk: &Desk, header: &Object, pool: PoolId) -> Result<Extent, ClientError> {
    let methods = ["get_splay_width", "get_pool_id", "get_minimum_set", "get_active_set"];
    let ask = |op: ObjectOp, method: &&str| op.call("journal", method, Vec::new());
    let reply = desk.op(methods.iter().fold(ObjectOp::new(header.clone()), ask)).await?;
    let splay_width: u8 = reply.get(0)?;
    let data_pool: i64 = reply.get(1)?;
    Ok(Extent {
        splay_width: u64::from(splay_width),
        // None: that of the image.
        pool: if data_pool < 0 { pool } else { PoolId(data_pool) },
        sets: (reply.get(2)?, reply.get(3)?),
    })
}
