//! PGNLS: listing the objects of a PG.
//!
//! Guide §5.11. Heads only, in hash order; the handle is the next object, or the first of the next
//! PG when this one is finished (result 1).
//!
//! Heads that are only there for their clones are listed, too, as by Ceph 16.2 (the guide says otherwise):
//! clients do not say which snapshot they look at, and who brings back a snapshot must find what was
//! deleted since.
//!
//! What the primary does not have yet, since it was away, is there all the same, and is listed.

use super::{Reader, Stop};
use crate::object::key_range;
use maps::PgIdExt;
use pg::Missing;
use types::testing::{Bug, planted};
use types::{Errno, HObject, ObjectKey, PgId, SnapId};
use wire::msg::OsdOp;
use wire::msg::op_data::{ListedObject, PgnlsOut, input};

/// Stored objects looked at for one request, when few of them are listed, for each entry that it may have.
const SCANNED_PER_ENTRY: usize = 2;
/// `LIBRADOS_ALL_NSPACES`: all namespaces.
const ALL_NSPACES: &[u8] = b"\x01";

/// What can be listed of a PG.
pub struct ListRange {
    first: HObject,
    /// The handle behind the last object; in the last PG of a pool it is the end of everything.
    end: HObject,
    /// Where the PG ends in the store, which has other pools behind this one.
    end_key: ObjectKey,
    /// Entries of a page at most.
    max_entries: usize,
}

impl ListRange {
    /// The objects of a PG, at most so many of them at once.
    pub fn of(pgid: PgId, pg_num: u32, max_entries: usize) -> Self {
        let (_, end_key) = key_range(pgid, pg_num);
        let (first, end) = (pgid.first_object(), pgid.end_of_objects(pg_num));
        ListRange { first, end, end_key, max_entries: max_entries.max(1) }
    }
}

/// Stored objects with those that are missing, in order; `None` as the second: that is all. Else what is looked at
/// next is behind the last of them.
fn with_missing<'a>(
    mut stored: Vec<HObject>,
    missing: impl Iterator<Item = &'a HObject>,
    at_most: usize,
) -> (Vec<HObject>, Option<HObject>) {
    let heads = missing.filter(|o| o.is_head());
    let mut missing: Vec<HObject> = heads.take(at_most).cloned().collect();
    let ends = [&stored, &missing].map(|list| list.last().filter(|_| list.len() >= at_most));
    let end = ends.into_iter().flatten().min().cloned();
    if !missing.is_empty() {
        stored.append(&mut missing);
        stored.sort();
        // An older version of it is stored.
        stored.dedup();
        stored.retain(|o| end.as_ref().is_none_or(|end| o <= end));
    }
    (stored, end)
}

/// Lists objects of a PG, with those that its primary is missing. Returns the result and the output.
///
/// # Errors
/// EINVAL for a cursor outside the PG; misses of the store.
pub fn list_objects(
    reader: Reader<'_>,
    op: &OsdOp,
    nspace: &[u8],
    range: &ListRange,
    missing: &Missing,
) -> Result<(i32, PgnlsOut), Stop> {
    let cursor: HObject = input(op)?;
    let from = if cursor.is_min() { range.first.clone() } else { cursor };
    if from < range.first || from > range.end {
        return Err(Errno::EINVAL.into());
    }
    let wanted = op.args.pgls().count.clamp(1, range.max_entries as u64) as usize;
    let at_most = range.max_entries.saturating_mul(SCANNED_PER_ENTRY);
    let mut out = PgnlsOut::default();
    let mut next = None;
    let listed = reader.store.list(&from.to_key(), &range.end_key, at_most)?;
    let stored: Result<Vec<HObject>, _> = listed.iter().map(|(key, _)| key.decode()).collect();
    let stored = stored.map_err(|_| Errno::EIO)?;
    let (objects, end) = with_missing(stored, missing.from(&from), at_most);
    for object in objects {
        if out.entries.len() == wanted {
            next = Some(object);
            break;
        }
        let here = nspace == ALL_NSPACES || &object.nspace[..] == nspace;
        if object.is_head() && here {
            out.entries.push(ListedObject {
                nspace: object.nspace,
                name: object.name,
                key: object.key,
            });
        }
    }
    // Not everything was looked at: the cursor goes just behind what was looked at last.
    let next = next.or_else(|| end.map(|last| just_behind(&last)));
    Ok(match next {
        Some(handle) => (0, PgnlsOut { handle, ..out }),
        None => (1, PgnlsOut { handle: range.end.clone(), ..out }),
    })
}

/// The first place behind an object or a clone. Behind a clone may be newer ones of the same object, and its head.
fn just_behind(last: &HObject) -> HObject {
    let skips_head = planted(Bug::ListingSkipsHead);
    let snap = if last.is_head() || skips_head {
        SnapId::SNAPDIR
    } else {
        SnapId(last.snap.0.saturating_add(1))
    };
    last.at_snap(snap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    fn head(hash: u32) -> HObject {
        let pool = PoolId(1);
        HObject { pool, hash: hash.reverse_bits(), snap: SnapId::HEAD, ..HObject::min() }
    }

    #[test]
    fn what_is_missing_is_listed_in_its_place() {
        let heads = |hashes: &[u32]| hashes.iter().map(|h| head(*h)).collect::<Vec<_>>();
        let merged = |stored: &[u32], missing: &[u32], at_most| {
            let (list, end) = with_missing(heads(stored), heads(missing).iter(), at_most);
            (list, end.map(|o| o.reversed_hash()))
        };
        assert_eq!(merged(&[1, 3, 5], &[], 4), (heads(&[1, 3, 5]), None));
        assert_eq!(merged(&[], &[2], 4), (heads(&[2]), None));
        assert_eq!(merged(&[1, 3, 5], &[0, 3, 4, 9], 5), (heads(&[0, 1, 3, 4, 5, 9]), None));
        // Behind the end of what was looked at others may be.
        assert_eq!(merged(&[1, 3, 5], &[2, 9], 3), (heads(&[1, 2, 3, 5]), Some(5)));
        assert_eq!(merged(&[1, 9], &[2, 3, 4], 3), (heads(&[1, 2, 3, 4]), Some(4)));
        assert_eq!(merged(&[5, 6, 7], &[1, 2, 6], 3), (heads(&[1, 2, 5, 6]), Some(6)));
        let clone = head(2).at_snap(SnapId(4));
        assert_eq!(with_missing(heads(&[1]), [&clone].into_iter(), 3), (heads(&[1]), None));
    }

    #[test]
    fn behind_a_clone_is_its_head() {
        let [clone, head] = [SnapId(4), SnapId::HEAD].map(|snap| head(2).at_snap(snap));
        assert!(clone < just_behind(&clone) && just_behind(&clone) <= head.at_snap(SnapId(5)));
        assert!(just_behind(&clone) <= head && head < just_behind(&head));
        assert_eq!(just_behind(&head), head.at_snap(SnapId::SNAPDIR));
    }
}
