//! SCRUBLS: what the last scrub found, for `rados list-inconsistent-obj`.

use crate::host::PgHost;
use crate::object::ObjectMeta;
use bytes::Bytes;
use pg::scrub::{CopyVerdict, ScrubObject, Source, Verdict, copy_error};
use std::collections::BTreeMap;
use types::{ByteString, Errno, HObject, OsdId, SnapId};
use wire::msg::{ListedCopy, ObjectInfo, OsdOp, ScrubLsArg, ScrubLsOut, WrongObject, op_data};

/// Entries of one answer.
const MAX_ENTRIES: usize = 1000;
/// Attribute under which tools look for the record of an object.
const INFO_ATTR: &str = "_";

/// The answer to SCRUBLS.
///
/// # Errors
/// EINVAL: the question is malformed; EAGAIN: it belongs to another interval, the list is to be begun
/// anew; ENOENT: the PG was not scrubbed in this interval.
pub(crate) fn list_wrong(host: &PgHost, op: &OsdOp) -> Result<Bytes, Errno> {
    let arg: ScrubLsArg = op_data::input(op).map_err(|_| Errno::EINVAL)?;
    let interval = host.interval().0;
    if arg.interval != 0 && arg.interval != interval {
        return Err(Errno::EAGAIN);
    }
    let wrong = host.scrub.wrong.as_ref().ok_or(Errno::ENOENT)?;
    let mut values = Vec::new();
    if !arg.get_snapsets {
        let after = (&arg.after_nspace, &arg.after_name, arg.after_snap);
        let begin = arg.after_name.is_empty();
        let sorted: BTreeMap<_, _> = wrong.iter().map(|(o, v)| (place(o), v)).collect();
        let most = usize::try_from(arg.max_return).unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
        let rest = sorted.iter().filter(|(place, _)| begin || **place > after).take(most);
        let primary = host.pg.mapping().acting_primary;
        values = rest.map(|(_, v)| denc::encode(&listed(v, primary))).collect();
    }
    Ok(denc::encode(&ScrubLsOut { interval, values }))
}

/// The order of the list: the question names just this of an object.
fn place(o: &HObject) -> (&ByteString, &ByteString, SnapId) {
    (&o.nspace, &o.name, o.snap)
}

fn listed(verdict: &Verdict, primary: Option<OsdId>) -> WrongObject {
    let selected = verdict.copies.values().find(|c| c.selected).and_then(|c| c.copy.as_ref());
    let any = || verdict.copies.values().find_map(|c| c.copy.as_ref());
    let meta = selected.or_else(any).and_then(|c| ObjectMeta::decode(&c.meta).ok());
    let mut object = verdict.object.clone();
    if object.key == object.name {
        object.key = ByteString::default();
    }
    WrongObject {
        errors: verdict.errors,
        object,
        version: meta.map_or(0, |m| m.user_version),
        copies: verdict
            .copies
            .iter()
            .map(|(osd, copy)| (*osd, listed_copy(verdict, copy, primary == Some(*osd))))
            .collect(),
    }
}

fn listed_copy(verdict: &Verdict, copy: &CopyVerdict, primary: bool) -> ListedCopy {
    let Some(found) = &copy.copy else {
        // What is left over of a deleted object: the others are right to miss it, but there is no
        // other word for what differs.
        let deleted = verdict.source == Source::Deleted;
        let errors = if deleted { copy_error::MISSING } else { copy.errors };
        return ListedCopy { errors, primary, ..ListedCopy::default() };
    };
    let mut attrs: BTreeMap<ByteString, Bytes> = found.attrs.iter().cloned().collect();
    if copy.errors & copy_error::INFO_MISSING == 0 {
        attrs.insert(INFO_ATTR.into(), denc::encode(&info(found)));
    }
    ListedCopy {
        errors: copy.errors,
        primary,
        attrs,
        size: found.size,
        omap_digest: found.digests.map(|d| d.omap),
        data_digest: found.digests.map(|d| d.data),
        selected: copy.selected,
    }
}

/// The record of an object in Ceph's form.
fn info(found: &ScrubObject) -> ObjectInfo {
    let meta = ObjectMeta::decode(&found.meta).unwrap_or_default();
    let omap = found.digests.is_some_and(|d| d.omap_bytes > 0);
    ObjectInfo {
        object: found.object.clone(),
        version: found.version,
        user_version: meta.user_version,
        size: found.size,
        mtime: meta.mtime,
        truncate_seq: meta.truncate_seq.into(),
        truncate_size: meta.truncate_size,
        flags: if meta.whiteout { ObjectInfo::WHITEOUT } else { 0 }
            | if omap { ObjectInfo::OMAP } else { 0 },
        expected_object_bytes: meta.hint.object_size,
        expected_write_bytes: meta.hint.write_size,
        hint_flags: meta.hint.flags,
    }
}
