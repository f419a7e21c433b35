//! Random operations on objects.

use super::request::{Names, SNAPS};
use io::Rng;
use types::{ByteString, SnapId};
use wire::msg::op::{self, op_flags};
use wire::msg::op_data as od;
use wire::msg::{ObjectLocator, OpArgs, OpCode, OsdOp};

fn offset(r: &mut Rng) -> u64 {
    match r.u8(0..30) {
        0 => r.u64(..),
        1 => (128 << 20) - r.u64(0..10_000),
        2 => (128 << 20) + r.u64(0..10_000),
        3 => u64::MAX - r.u64(0..10_000),
        4..10 => 0,
        10..16 => r.u64(0..4) * 4096,
        _ => r.u64(0..20_000),
    }
}

fn length(r: &mut Rng) -> u64 {
    match r.u8(0..30) {
        0 => r.u64(..),
        1 => u64::MAX - r.u64(0..10_000),
        2 => 1 << 32,
        3..8 => 0,
        8..14 => r.u64(0..4) * 4096,
        _ => r.u64(0..10_000),
    }
}

fn data(r: &mut Rng) -> Vec<u8> {
    let n = match r.u8(0..8) {
        0 => 0,
        1 => 4096 * r.usize(1..3),
        2..5 => r.usize(0..6_000),
        _ => r.usize(0..40),
    };
    let kind = r.u8(0..4);
    (0..n).map(|_| if kind == 0 { 0 } else { r.u8(b'a'..b'e') }).collect()
}

fn name(r: &mut Rng) -> Vec<u8> {
    match r.u8(0..20) {
        0 => Vec::new(),
        1 => vec![b'n'; 300],
        2 => vec![0xff],
        _ => vec![b'a' + r.u8(0..5)],
    }
}

fn value(r: &mut Rng) -> Vec<u8> {
    match r.u8(0..12) {
        0 => Vec::new(),
        1 => vec![b'v'; r.usize(0..70_000)],
        2..6 => r.u64(0..12).to_string().into_bytes(),
        _ => (0..r.usize(0..9)).map(|_| b'0' + r.u8(0..5)).collect(),
    }
}

fn key(r: &mut Rng) -> ByteString {
    name(r).into()
}

fn extent(r: &mut Rng) -> OpArgs {
    let (offset, length) = (offset(r), length(r));
    op::Extent { offset, length, ..op::Extent::default() }.into()
}

/// One whose end can be said: a longer one ends an OSD of Ceph.
fn bounded_extent(r: &mut Rng) -> OpArgs {
    let offset = offset(r);
    let length = length(r).min(u64::MAX - offset);
    op::Extent { offset, length, ..op::Extent::default() }.into()
}

fn xattr(r: &mut Rng, code: OpCode, with_value: bool) -> OsdOp {
    // Without a name Ceph shows and overwrites its own record of the object.
    let n = Some(name(r)).filter(|n| !n.is_empty()).unwrap_or_else(|| b"n".to_vec());
    let (n, v) = (n, if with_value { value(r) } else { Vec::new() });
    let (cmp_op, cmp_mode) = (r.u8(0..8), r.u8(0..4));
    let mut op = od::xattr_op(code, &n, &v, cmp_op, cmp_mode);
    if r.u8(0..20) == 0 {
        // Less than what is there. More than that ends an OSD of Ceph.
        let name_len = r.u32(1..=n.len() as u32);
        let value_len = r.u32(0..=v.len() as u32);
        // As a number Ceph takes what stands behind the value, too.
        let cmp_mode = op::cmp_op::MODE_STRING;
        op.args = op::Xattr { name_len, value_len, cmp_op, cmp_mode }.into();
    }
    op
}

fn keys(r: &mut Rng) -> od::Keys {
    (0..r.usize(0..4)).map(|_| key(r)).collect()
}

fn values(r: &mut Rng) -> od::Values {
    (0..r.usize(0..4)).map(|_| (key(r), value(r).into())).collect()
}

/// An operation with encoded input, which may be cut short or go on too long.
fn encoded(r: &mut Rng, code: OpCode, input: bytes::Bytes) -> OsdOp {
    let input = match r.u8(0..20) {
        0 => input.slice(..r.usize(0..=input.len())),
        1 => [input.as_ref(), b"more"].concat().into(),
        _ => input,
    };
    OsdOp::new(code, OpArgs::default()).with_indata(input)
}

pub fn read(r: &mut Rng) -> OsdOp {
    match r.u8(0..17) {
        0 | 1 => OsdOp::new(OpCode::READ, bounded_extent(r)),
        2 => OsdOp::new(OpCode::SPARSE_READ, bounded_extent(r)),
        3 => OsdOp::new(OpCode::STAT, extent(r)),
        4 => OsdOp::new(OpCode::MAPEXT, extent(r)),
        5 => xattr(r, OpCode::GETXATTR, false),
        6 => OsdOp::new(OpCode::GETXATTRS, OpArgs::default()),
        7 => xattr(r, OpCode::CMPXATTR, true),
        8 => {
            let max = if r.bool() { r.u64(0..5) } else { r.u64(..) };
            let ask = od::OmapGetKeysIn { start_after: key(r), max };
            encoded(r, OpCode::OMAPGETKEYS, denc::encode(&ask))
        }
        9 => {
            let max = if r.bool() { r.u64(0..5) } else { r.u64(..) };
            let prefix = if r.bool() { key(r) } else { ByteString::default() };
            let ask = od::OmapGetValsIn { start_after: key(r), max, prefix };
            encoded(r, OpCode::OMAPGETVALS, denc::encode(&ask))
        }
        10 => {
            let ask = keys(r);
            encoded(r, OpCode::OMAPGETVALSBYKEYS, denc::encode(&ask))
        }
        11 => OsdOp::new(OpCode::OMAPGETHEADER, OpArgs::default()),
        12 => omap_cmp(r),
        13 => checksum(r),
        14 => {
            let data = data(r);
            let length = if r.u8(0..10) == 0 { length(r) } else { data.len() as u64 };
            let args = op::Extent { offset: offset(r), length, ..op::Extent::default() };
            OsdOp::new(OpCode::CMPEXT, args).with_indata(data)
        }
        15 => {
            let codes = [OpCode::LIST_SNAPS, OpCode::SYNC_READ];
            OsdOp::new(codes[r.usize(0..codes.len())], bounded_extent(r))
        }
        _ => OsdOp::new(
            OpCode::ASSERT_VER,
            op::AssertVer { unused: 0, version: [0, 1 << 40][r.usize(0..2)] },
        ),
    }
}

fn omap_cmp(r: &mut Rng) -> OsdOp {
    let one = |r: &mut Rng| {
        let op = [0, 1, 1, 2, 3, 4, 5, 6, 9][r.usize(0..9)];
        (key(r), od::OmapAssertion { value: value(r).into(), op })
    };
    let ask: od::OmapCmpIn = (0..r.usize(0..3)).map(|_| one(r)).collect();
    encoded(r, OpCode::OMAP_CMP, denc::encode(&ask))
}

fn checksum(r: &mut Rng) -> OsdOp {
    let chunk_size = [0, 0, 1, 512, 4096, 4097][r.usize(0..6)];
    let kind = r.u8(0..4);
    let length = if chunk_size > 0 && r.bool() { u64::from(chunk_size) * 2 } else { length(r) };
    let offset = offset(r);
    let length = length.min(u64::MAX - offset);
    let args = op::Checksum { offset, length, chunk_size, kind };
    let start = r.u64(..);
    let input = if kind == 1 { denc::encode(&start) } else { denc::encode(&(start as u32)) };
    let op = OsdOp::new(OpCode::CHECKSUM, args);
    if r.u8(0..20) == 0 { op } else { op.with_indata(input) }
}

fn write(r: &mut Rng, of: &Names) -> OsdOp {
    match r.u8(0..30) {
        0..5 => with_some(with_extent(r, OpCode::WRITE, of.truncates())),
        5 | 6 => with_some(with_extent(r, OpCode::WRITEFULL, of.truncates())),
        7 | 8 => with_some(with_extent(r, OpCode::APPEND, of.truncates())),
        9 | 10 => {
            let (offset, length) = (offset(r), length(r).max(1));
            let args = op::Extent { offset, length, ..op::Extent::default() };
            OsdOp::new(OpCode::ZERO, args)
        }
        11 | 12 => OsdOp::new(OpCode::TRUNCATE, extent(r)),
        13 => OsdOp::new(OpCode::DELETE, OpArgs::default()),
        14 | 15 => {
            let flags = if r.bool() { op_flags::EXCL } else { 0 };
            OsdOp::new(OpCode::CREATE, OpArgs::default()).with_flags(flags)
        }
        16 | 17 => xattr(r, OpCode::SETXATTR, true),
        18 => xattr(r, OpCode::RMXATTR, false),
        19 | 20 => {
            let values = values(r);
            encoded(r, OpCode::OMAPSETVALS, denc::encode(&values))
        }
        21 => OsdOp::new(OpCode::OMAPSETHEADER, OpArgs::default()).with_indata(value(r)),
        22 => {
            let keys = keys(r);
            encoded(r, OpCode::OMAPRMKEYS, denc::encode(&keys))
        }
        23 => {
            let ask = od::OmapRmKeyRangeIn { begin: key(r), end: key(r) };
            encoded(r, OpCode::OMAPRMKEYRANGE, denc::encode(&ask))
        }
        24 => OsdOp::new(OpCode::TRUNCATE, extent(r)),
        // In Ceph it may leave an object that cannot be read when there were truncations.
        25 if !of.truncates() => {
            let pattern = data(r);
            let length = match r.u8(0..5) {
                0 => length(r) % (1 << 22),
                _ => pattern.len() as u64 * r.u64(0..4),
            };
            let data_length = if r.u8(0..20) == 0 { r.u64(0..9) } else { pattern.len() as u64 };
            let args = op::WriteSame { offset: offset(r), length, data_length };
            OsdOp::new(OpCode::WRITESAME, args).with_indata(pattern)
        }
        26 => OsdOp::new(OpCode::ROLLBACK, op::Snap { snapid: r.u64(0..=SNAPS) }),
        27 => copy_from(r, of),
        28 => {
            let args = op::AllocHint {
                expected_object_size: length(r),
                expected_write_size: length(r),
                flags: r.u32(0..9),
            };
            OsdOp::new(OpCode::SETALLOCHINT, args)
        }
        _ => {
            let codes = [
                OpCode::CACHE_PIN,
                OpCode::CACHE_UNPIN,
                OpCode::SETTRUNC,
                OpCode::TRIMTRUNC,
                OpCode::SETXATTRS,
                OpCode::RESETXATTRS,
                OpCode(0x2207),
                OpCode(0x22fe),
                OpCode(0x12fe),
            ];
            OsdOp::new(codes[r.usize(0..codes.len())], extent(r))
        }
    }
}

/// The same with data. To write nothing where there was an object once, of which only clones are left,
/// makes no object in Ceph, though it says so; to write nothing beyond the end gives it a size that its
/// store does not know of, so that the next read of a clone ends an OSD.
fn with_some(op: OsdOp) -> OsdOp {
    if !op.indata.is_empty() {
        return op;
    }
    let args = op::Extent { length: 4, ..op.args.extent() };
    OsdOp { args: args.into(), ..op }.with_indata("some")
}

fn with_extent(r: &mut Rng, code: OpCode, heeds: bool) -> OsdOp {
    let data = data(r);
    let length = if r.u8(0..15) == 0 { length(r) } else { data.len() as u64 };
    let mut args = op::Extent { offset: offset(r), length, ..op::Extent::default() };
    if heeds && r.u8(0..15) == 0 {
        args.truncate_size = r.u64(0..8_000);
        args.truncate_seq = r.u32(0..4);
    }
    OsdOp::new(code, args).with_indata(data)
}

fn copy_from(r: &mut Rng, of: &Names) -> OsdOp {
    let source = of.source();
    let snapid = if r.bool() { SnapId::HEAD.0 } else { r.u64(1..=SNAPS) };
    let args = op::CopyFrom {
        snapid,
        src_version: [0, 0, 0, 1 << 40][r.usize(0..4)],
        // Not 1, which asks a tier to be flushed.
        flags: [0, 0, 0, 2, 4, 8, 16, 32][r.usize(0..8)],
        src_fadvise_flags: 0,
    };
    let locator = ObjectLocator {
        pool: of.pool,
        key: source.key.clone(),
        nspace: ByteString::default(),
        hash: -1,
    };
    let ask = od::CopyFromIn { source: source.name, locator };
    OsdOp::new(OpCode::COPY_FROM, args).with_indata(denc::encode(&ask))
}

pub fn any(r: &mut Rng, of: &Names) -> OsdOp {
    if r.u8(0..4) > 0 {
        return write(r, of);
    }
    let op = read(r);
    // What Ceph reads of an omap that the same request changes depends on what the store has of it; an
    // OSD ends when the request has made the object.
    let of_omap = [
        OpCode::OMAPGETKEYS,
        OpCode::OMAPGETVALS,
        OpCode::OMAPGETVALSBYKEYS,
        OpCode::OMAP_CMP,
        OpCode::OMAPGETHEADER,
    ];
    if of_omap.contains(&op.code) { OsdOp::new(OpCode::STAT, OpArgs::default()) } else { op }
}
