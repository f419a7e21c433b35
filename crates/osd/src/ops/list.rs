//! PGNLS: listing the objects of a PG.
//!
//! Guide §5.11. Heads only, in hash order; the handle is the next object, or the first of the next
//! PG when this one is finished (result 1).
//!
//! Heads that are only there for their clones are listed, too, as by Ceph 16.2 (the guide says otherwise):
//! clients do not say which snapshot they look at, and who brings back a snapshot must find what was
//! deleted since.

use super::{Reader, Stop};
use crate::object::key_range;
use maps::PgIdExt;
use types::{Errno, HObject, ObjectKey, PgId, SnapId};
use wire::msg::OsdOp;
use wire::msg::op_data::{ListedObject, PgnlsOut, input};

/// `osd_max_pgls`
const MAX_ENTRIES: u64 = 1024;
/// Stored objects looked at for one request, when few of them are listed.
const MAX_SCANNED: usize = 2048;
/// `LIBRADOS_ALL_NSPACES`: all namespaces.
const ALL_NSPACES: &[u8] = b"\x01";

/// What can be listed of a PG.
pub struct ListRange {
    first: HObject,
    /// The handle behind the last object; in the last PG of a pool it is the end of everything.
    end: HObject,
    /// Where the PG ends in the store, which has other pools behind this one.
    end_key: ObjectKey,
}

impl ListRange {
    /// The objects of a PG.
    pub fn of(pgid: PgId, pg_num: u32) -> Self {
        let (_, end_key) = key_range(pgid, pg_num);
        ListRange { first: pgid.first_object(), end: pgid.end_of_objects(pg_num), end_key }
    }
}

/// Lists objects of a PG. Returns the result and the output.
///
/// # Errors
/// EINVAL for a cursor outside the PG; misses of the store.
pub fn list_objects(
    reader: Reader<'_>,
    op: &OsdOp,
    nspace: &[u8],
    range: &ListRange,
) -> Result<(i32, PgnlsOut), Stop> {
    let cursor: HObject = input(op)?;
    let from = if cursor.is_min() { range.first.clone() } else { cursor };
    if from < range.first || from > range.end {
        return Err(Errno::EINVAL.into());
    }
    let wanted = op.args.pgls().count.clamp(1, MAX_ENTRIES) as usize;
    let mut out = PgnlsOut::default();
    let mut next = None;
    let listed = reader.store.list(&from.to_key(), &range.end_key, MAX_SCANNED)?;
    let all = listed.len() < MAX_SCANNED;
    let mut last = from;
    for (key, _) in listed {
        let object = key.decode().map_err(|_| Errno::EIO)?;
        if out.entries.len() == wanted {
            next = Some(object);
            break;
        }
        last = object.clone();
        let here = nspace == ALL_NSPACES || &object.nspace[..] == nspace;
        if object.is_head() && here {
            out.entries.push(ListedObject {
                nspace: object.nspace,
                name: object.name,
                key: object.key,
            });
        }
    }
    // Not everything was looked at: the cursor goes just behind the last object that was.
    let next = next.or_else(|| (!all).then(|| last.at_snap(SnapId::SNAPDIR)));
    Ok(match next {
        Some(handle) => (0, PgnlsOut { handle, ..out }),
        None => (1, PgnlsOut { handle: range.end.clone(), ..out }),
    })
}
