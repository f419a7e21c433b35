//! One operation on an object: opcode, flags, arguments, input.
//!
//! `ceph_osd_op` (`include/rados.h`, guide §5.2) is 38 bytes:
//! `u16 op, u32 flags, 28 bytes of arguments, u32 payload_len`. The arguments are a union; they stay
//! raw in [`OpArgs`] and are read through the accessor that fits the opcode ([`OpArgs::extent`] for
//! a READ), which costs a few loads and no allocation. An opcode nobody knows is carried unchanged,
//! since the reply echoes it.

use bytes::Bytes;
use denc::{DecodeError, Decoder, Encoder, KnownCrc};
use std::fmt;

/// Bytes of an op on the wire.
pub const OP_BYTES: usize = 38;
/// Bytes of the arguments' union.
pub const ARGS_BYTES: usize = 28;

/// What an operation does (`CEPH_OSD_OP_*`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

macro_rules! opcodes {
    ($($name:ident = $n:literal;)*) => {
        impl OpCode {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: OpCode = OpCode($n);)*

            /// Ceph's name; `None` for an opcode not listed here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($n => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

opcodes! {
    READ = 0x1201;
    STAT = 0x1202;
    MAPEXT = 0x1203;
    SPARSE_READ = 0x1205;
    NOTIFY = 0x1206;
    NOTIFY_ACK = 0x1207;
    ASSERT_VER = 0x1208;
    LIST_WATCHERS = 0x1209;
    LIST_SNAPS = 0x120a;
    SYNC_READ = 0x120b;
    OMAPGETKEYS = 0x1211;
    OMAPGETVALS = 0x1212;
    OMAPGETHEADER = 0x1213;
    OMAPGETVALSBYKEYS = 0x1214;
    OMAP_CMP = 0x1219;
    ISDIRTY = 0x121d;
    COPY_GET = 0x121e;
    CHECKSUM = 0x121f;
    CMPEXT = 0x1220;
    GETXATTR = 0x1301;
    GETXATTRS = 0x1302;
    CMPXATTR = 0x1303;
    CALL = 0x1401;
    PGLS = 0x1501;
    PGLS_FILTER = 0x1502;
    PGNLS = 0x1505;
    PGNLS_FILTER = 0x1506;
    SCRUBLS = 0x1507;
    WRITE = 0x2201;
    WRITEFULL = 0x2202;
    TRUNCATE = 0x2203;
    ZERO = 0x2204;
    DELETE = 0x2205;
    APPEND = 0x2206;
    STARTSYNC = 0x2207;
    SETTRUNC = 0x2208;
    TRIMTRUNC = 0x2209;
    TMAPUP = 0x320a;
    TMAPPUT = 0x220b;
    TMAPGET = 0x120c;
    CREATE = 0x220d;
    ROLLBACK = 0x220e;
    WATCH = 0x220f;
    OMAPSETVALS = 0x2215;
    OMAPSETHEADER = 0x2216;
    OMAPCLEAR = 0x2217;
    OMAPRMKEYS = 0x2218;
    COPY_FROM = 0x221a;
    UNDIRTY = 0x221c;
    SETALLOCHINT = 0x2223;
    CACHE_PIN = 0x2224;
    CACHE_UNPIN = 0x2225;
    WRITESAME = 0x2226;
    OMAPRMKEYRANGE = 0x222c;
    COPY_FROM2 = 0x222d;
    SETXATTR = 0x2301;
    SETXATTRS = 0x2302;
    RESETXATTRS = 0x2303;
    RMXATTR = 0x2304;
    CACHE_FLUSH = 0x821f;
    CACHE_EVICT = 0x8220;
    CACHE_TRY_FLUSH = 0x8221;
}

impl OpCode {
    const MODE: u16 = 0xf000;
    const MODE_READ: u16 = 0x1000;
    const MODE_WRITE: u16 = 0x2000;
    const MODE_CACHE: u16 = 0x8000;
    const TYPE: u16 = 0x0f00;
    const TYPE_ATTR: u16 = 0x0300;
    const TYPE_EXEC: u16 = 0x0400;
    const TYPE_PG: u16 = 0x0500;

    /// Whether its class is read. CALL is, though its method may write.
    pub fn is_read(self) -> bool {
        self.0 & Self::MODE_READ != 0
    }

    /// Whether its class is write.
    pub fn is_write(self) -> bool {
        self.0 & Self::MODE_WRITE != 0
    }

    /// Whether it is for cache tiers.
    pub fn is_cache(self) -> bool {
        self.0 & Self::MODE == Self::MODE_CACHE
    }

    /// Whether it works on xattrs.
    pub fn is_attr(self) -> bool {
        self.0 & Self::TYPE == Self::TYPE_ATTR
    }

    /// Whether it runs a class method.
    pub fn is_exec(self) -> bool {
        self.0 & Self::TYPE == Self::TYPE_EXEC
    }

    /// Whether it is about a PG, not an object.
    pub fn is_pg(self) -> bool {
        self.0 & Self::TYPE == Self::TYPE_PG
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "op {:#x}", self.0),
        }
    }
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bits of [`OsdOp::flags`] (`CEPH_OSD_OP_FLAG_*`).
pub mod op_flags {
    /// CREATE only: the object must not exist.
    pub const EXCL: u32 = 1;
    /// Go on when this op fails.
    pub const FAILOK: u32 = 2;
    /// Hint.
    pub const FADVISE_RANDOM: u32 = 4;
    /// Hint.
    pub const FADVISE_SEQUENTIAL: u32 = 8;
    /// Hint.
    pub const FADVISE_WILLNEED: u32 = 0x10;
    /// Hint.
    pub const FADVISE_DONTNEED: u32 = 0x20;
    /// Hint.
    pub const FADVISE_NOCACHE: u32 = 0x40;
}

/// Values of [`Watch::op`].
pub mod watch_op {
    /// End the watch.
    pub const UNWATCH: u8 = 0;
    /// Watch, as very old clients ask for it.
    pub const LEGACY_WATCH: u8 = 1;
    /// Watch.
    pub const WATCH: u8 = 3;
    /// Go on with a watch after the connection was lost.
    pub const RECONNECT: u8 = 5;
    /// The watcher is alive.
    pub const PING: u8 = 7;
}

/// Values of [`Xattr::cmp_op`] and of the OMAP_CMP assertions.
pub mod cmp_op {
    /// Equal.
    pub const EQ: u8 = 1;
    /// Not equal.
    pub const NE: u8 = 2;
    /// The given value is greater than the stored one.
    pub const GT: u8 = 3;
    /// Greater or equal.
    pub const GTE: u8 = 4;
    /// Less.
    pub const LT: u8 = 5;
    /// Less or equal.
    pub const LTE: u8 = 6;
    /// Mode: compare as bytes.
    pub const MODE_STRING: u8 = 1;
    /// Mode: compare as u64.
    pub const MODE_U64: u8 = 2;
}

/// Values of [`Checksum::kind`].
pub mod checksum_kind {
    /// xxHash, 32 bits.
    pub const XXHASH32: u8 = 0;
    /// xxHash, 64 bits.
    pub const XXHASH64: u8 = 1;
    /// CRC-32C.
    pub const CRC32C: u8 = 2;
}

/// The union of arguments, as it stands on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpArgs(pub [u8; ARGS_BYTES]);

/// A number at a place of the union.
trait Place: Sized {
    fn take(from: &mut &[u8]) -> Self;
    fn put(self, to: &mut &mut [u8]);
}

macro_rules! places {
    ($($t:ty),*) => {$(
        impl Place for $t {
            fn take(from: &mut &[u8]) -> Self {
                match from.split_first_chunk() {
                    Some((bytes, rest)) => {
                        *from = rest;
                        <$t>::from_le_bytes(*bytes)
                    }
                    None => 0,
                }
            }
            fn put(self, to: &mut &mut [u8]) {
                if let Some((bytes, rest)) = std::mem::take(to).split_first_chunk_mut() {
                    *bytes = self.to_le_bytes();
                    *to = rest;
                }
            }
        }
    )*};
}

places!(u8, u32, u64);

macro_rules! unions {
    ($($(#[$doc:meta])* $name:ident, $get:ident, { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

        const _: () = assert!(0 $(+ size_of::<$t>())* <= ARGS_BYTES);

        impl From<$name> for OpArgs {
            fn from(args: $name) -> OpArgs {
                let mut raw = [0; ARGS_BYTES];
                let mut to = raw.as_mut_slice();
                $(args.$field.put(&mut to);)*
                let _ = to;
                OpArgs(raw)
            }
        }

        impl OpArgs {
            #[doc = concat!("Read as [`", stringify!($name), "`].")]
            pub fn $get(&self) -> $name {
                let mut from = self.0.as_slice();
                let args = $name { $($field: <$t>::take(&mut from),)* };
                let _ = from;
                args
            }
        }
    )*};
}

unions! {
    /// READ, WRITE and all others that name a range of bytes.
    Extent, extent, {
        /// First byte; the new size for TRUNCATE.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Size at the last truncation the client knows (CephFS).
        truncate_size: u64,
        /// Number of that truncation.
        truncate_seq: u32,
    }
    /// GETXATTR, SETXATTR, CMPXATTR, RMXATTR; input = name, value.
    Xattr, xattr, {
        /// Bytes of the name.
        name_len: u32,
        /// Bytes of the value.
        value_len: u32,
        /// See [`cmp_op`].
        cmp_op: u8,
        /// See [`cmp_op::MODE_STRING`].
        cmp_mode: u8,
    }
    /// CALL; input = class, method, the method's input.
    Call, call, {
        /// Bytes of the class's name.
        class_len: u8,
        /// Bytes of the method's name.
        method_len: u8,
        /// Unused.
        argc: u8,
        /// Bytes of the method's input.
        input_len: u32,
    }
    /// PGNLS and its relatives; input = cursor.
    Pgls, pgls, {
        /// At most so many entries.
        count: u64,
        /// The client's map when it began to list.
        start_epoch: u32,
    }
    /// ROLLBACK.
    Snap, snap, {
        /// To this snapshot.
        snapid: u64,
    }
    /// WATCH, NOTIFY_ACK.
    Watch, watch, {
        /// The client's name for the watch; the notify's id in NOTIFY_ACK.
        cookie: u64,
        /// Unused.
        version: u64,
        /// See [`watch_op`].
        op: u8,
        /// Counts the reconnects of the watch.
        generation: u32,
        /// Seconds without a ping after which the watch is dropped; 0 = default.
        timeout_s: u32,
    }
    /// NOTIFY.
    Notify, notify, {
        /// The notifier's name for it.
        cookie: u64,
    }
    /// ASSERT_VER.
    AssertVer, assert_ver, {
        /// Unused.
        unused: u64,
        /// The object's user_version must be this.
        version: u64,
    }
    /// COPY_GET.
    CopyGet, copy_get, {
        /// At most so many bytes.
        max: u64,
    }
    /// COPY_FROM, COPY_FROM2.
    CopyFrom, copy_from, {
        /// The source's snapshot.
        snapid: u64,
        /// The source's user_version must be this, unless 0.
        src_version: u64,
        /// `CEPH_OSD_COPY_FROM_FLAG_*`
        flags: u8,
        /// Hints for the read.
        src_fadvise_flags: u32,
    }
    /// SETALLOCHINT.
    AllocHint, alloc_hint, {
        /// Bytes the object will have.
        expected_object_size: u64,
        /// Bytes a write will have.
        expected_write_size: u64,
        /// `CEPH_OSD_ALLOC_HINT_FLAG_*`
        flags: u32,
    }
    /// WRITESAME; input = the pattern.
    WriteSame, writesame, {
        /// First byte.
        offset: u64,
        /// Bytes; a multiple of the pattern's.
        length: u64,
        /// Bytes of the pattern.
        data_length: u64,
    }
    /// CHECKSUM; input = start value.
    Checksum, checksum, {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of a chunk, each with its own checksum; 0 = one for all.
        chunk_size: u32,
        /// See [`checksum_kind`].
        kind: u8,
    }
}

/// One operation of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdOp {
    /// What it does.
    pub code: OpCode,
    /// See [`op_flags`].
    pub flags: u32,
    /// Arguments.
    pub args: OpArgs,
    /// Input: a slice of the message's data.
    pub indata: Bytes,
    /// Its checksum.
    pub indata_crc: KnownCrc,
}

impl OsdOp {
    /// An operation without input.
    pub fn new(code: OpCode, args: impl Into<OpArgs>) -> Self {
        OsdOp { code, args: args.into(), ..OsdOp::default() }
    }

    /// The same with input.
    #[must_use]
    pub fn with_indata(mut self, indata: impl Into<Bytes>) -> Self {
        self.indata = indata.into();
        self.indata_crc = KnownCrc::NONE;
        self
    }

    /// The same with flags.
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// Whether the client set `flag` (of [`op_flags`]).
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Writes the 38 bytes of an op.
pub(super) fn put_op(e: &mut Encoder, code: OpCode, flags: u32, args: &OpArgs, payload_len: usize) {
    e.put(&code.0).put(&flags);
    e.put_raw(&args.0);
    e.put_count(payload_len);
}

/// Reads the 38 bytes of an op; the input is empty yet, its length is given beside.
pub(super) fn get_op(d: &mut Decoder<'_>) -> Result<(OsdOp, usize), DecodeError> {
    let op = OsdOp {
        code: OpCode(d.get()?),
        flags: d.get()?,
        args: OpArgs(d.take_array()?),
        ..OsdOp::default()
    };
    Ok((op, d.count()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stand_where_ceph_has_them() {
        let args = OpArgs::from(Extent { offset: 1, length: 2, truncate_size: 3, truncate_seq: 4 });
        assert_eq!((args.0[0], args.0[8], args.0[16], args.0[24]), (1, 2, 3, 4));
        assert_eq!(args.extent().truncate_seq, 4);
        let args = OpArgs::from(Call { class_len: 3, method_len: 4, argc: 0, input_len: 5 });
        assert_eq!(args.0[..8], [3, 4, 0, 5, 0, 0, 0, 0]);
        let args = OpArgs::from(Watch {
            cookie: 1,
            version: 2,
            op: watch_op::PING,
            generation: 3,
            timeout_s: 30,
        });
        assert_eq!((args.0[16], args.0[17], args.0[21]), (7, 3, 30));
        assert_eq!(args.watch().timeout_s, 30);
    }

    #[test]
    fn classes_of_opcodes() {
        assert!(OpCode::READ.is_read() && !OpCode::READ.is_write());
        assert!(OpCode::WRITE.is_write() && !OpCode::WRITE.is_read());
        assert!(OpCode::CALL.is_exec() && OpCode::PGNLS.is_pg() && OpCode::SETXATTR.is_attr());
        assert!(OpCode::CACHE_EVICT.is_cache() && !OpCode::CACHE_EVICT.is_write());
        assert!(OpCode::TMAPUP.is_read() && OpCode::TMAPUP.is_write());
        assert_eq!(OpCode::CALL.to_string(), "CALL");
        assert_eq!(OpCode(0x7).to_string(), "op 0x7");
    }
}
