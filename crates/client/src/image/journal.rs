//! What an image with the feature journaling has besides: its journal (`journal/JournalTrimmer.cc`).

use super::script::{Desk, remove_object, unless_missing};
use super::snapshot::AT_A_TIME;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::reply::OpReply;
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
    let first = oldest.saturating_mul(extent.splay_width);
    let end = active.saturating_add(2).saturating_mul(extent.splay_width);
    let ops = (first..end).map(|number| {
        let name = format!("journal_data.{}.{id}.{number}", pool.0);
        ObjectOp::new(object(extent.pool, name)).remove().full_try()
    });
    let judge = |answer: Result<OpReply, ClientError>| {
        unless_missing(answer.map(drop))?;
        desk.is_wanted()
    };
    desk.many(AT_A_TIME, ops, judge).await?;
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

#[cfg(test)]
mod tests {
    use super::super::stage::{End, Stage};
    use super::*;
    use crate::image::ImageRequest;

    /// A journal of the sets 1 to 20, three objects each.
    fn removing(stage: &mut Stage) -> (ImageRequest, End<Result<(), ClientError>>) {
        stage.answers.push(("journal.get_splay_width", denc::encode(&3u8)));
        stage.answers.push(("journal.get_pool_id", denc::encode(&-1i64)));
        stage.answers.push(("journal.get_minimum_set", denc::encode(&1u64)));
        stage.answers.push(("journal.get_active_set", denc::encode(&20u64)));
        let removing = stage.request(|desk| async move {
            remove(&desk, PoolId(1), &ByteString::default(), "1").await
        });
        let asked = stage.take("journal.get");
        stage.ok(asked);
        removing
    }

    #[test]
    fn the_objects_of_a_journal_are_removed_several_at_a_time_and_its_header_last() {
        let mut stage = Stage::new();
        let (_, removed) = removing(&mut stage);
        assert_eq!(stage.asked.len(), AT_A_TIME);
        let mut names = Vec::new();
        while let Some(asked) = stage.asked.pop_front() {
            names.push(asked.text.clone());
            stage.ok(asked);
        }
        // Also those of the set after the active one.
        let of_objects = (3..66).map(|n| format!("journal_data.1.1.{n}: DELETE"));
        assert!(names.into_iter().eq(of_objects.chain(["journal.1: DELETE".to_owned()])));
        assert!(removed.take().unwrap().is_ok());
    }

    #[test]
    fn a_journal_is_not_removed_further_when_nobody_wants_it() {
        let mut stage = Stage::new();
        let (id, removed) = removing(&mut stage);
        stage.cancel(id);
        for _ in 0..AT_A_TIME {
            let asked = stage.take("journal_data");
            stage.ok(asked);
        }
        assert!(stage.asked.is_empty(), "{:?}", stage.asked);
        assert_eq!(removed.take().unwrap().unwrap_err().errno, Errno::ECANCELED);
    }
}
