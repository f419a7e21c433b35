//! What is refused before anything is run (guide §5.8).

use types::{Errno, SnapId};
use wire::msg::op::Extent;
use wire::msg::{MOsdOp, OpCode, OsdOp, flags};

/// `osd_max_object_name_len`
pub const MAX_NAME_BYTES: usize = 2048;
/// `osd_max_object_namespace_len`
pub const MAX_NSPACE_BYTES: usize = 256;
/// `osd_max_object_size`
pub const MAX_OBJECT_BYTES: u64 = 128 << 20;
/// `osd_max_write_size`
pub const MAX_WRITE_BYTES: usize = 90 << 20;

/// What a request may make beside what came with it: sources of copies, and what WRITESAME repeats. More
/// than the largest object, as a source has an omap, too.
pub const MAX_MADE_BYTES: usize = 256 << 20;

/// Checks a request's names, sizes and flags, in the order in which Ceph does.
///
/// # Errors
/// What the client is answered.
pub fn check_request(request: &MOsdOp, writes: bool) -> Result<(), Errno> {
    let object = &request.object;
    if request.has_flag(flags::PARALLELEXEC) {
        return Err(Errno::EINVAL);
    }
    let too_long = object.name.len() > MAX_NAME_BYTES
        || object.key.len() > MAX_NAME_BYTES
        || object.nspace.len() > MAX_NSPACE_BYTES;
    if too_long {
        return Err(Errno::ENAMETOOLONG);
    }
    if object.name.is_empty() {
        return Err(Errno::EINVAL);
    }
    let lists_snaps = |op: &OsdOp| op.code == OpCode::LIST_SNAPS;
    if object.snap != SnapId::SNAPDIR && request.ops.iter().any(lists_snaps) {
        return Err(Errno::EINVAL);
    }
    if !writes {
        return Ok(());
    }
    if object.snap != SnapId::HEAD {
        return Err(Errno::EINVAL);
    }
    let input: usize = request.ops.iter().map(|op| op.indata.len()).sum();
    if input > MAX_WRITE_BYTES {
        return Err(Errno::EMSGSIZE);
    }
    if !request.snapc.is_valid() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// A range, as it stands in an operation. That a truncation to no size at all was the first one says that there was none:
/// so clients of CephFS write to new files (`PrimaryLogPG::do_osd_ops`).
pub(super) fn extent_of(op: &OsdOp) -> Extent {
    let e = op.args.extent();
    match (e.truncate_seq, e.truncate_size) {
        (1, u64::MAX) => Extent { truncate_seq: 0, truncate_size: 0, ..e },
        _ => e,
    }
}

/// Checks a range against the largest object.
///
/// # Errors
/// EFBIG, also when it is empty and begins where the largest object ends.
pub(super) fn check_range(offset: u64, len: u64) -> Result<(), Errno> {
    match offset.checked_add(len) {
        Some(end) if offset < MAX_OBJECT_BYTES && end <= MAX_OBJECT_BYTES => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}
