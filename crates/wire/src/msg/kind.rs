//! Type numbers of messages (`include/ceph_fs.h`, `msg/Message.h`, guide §1.8).

/// From here on, types are our own daemons' business; Ceph uses none of them.
pub const OURS_FROM: u16 = 0x4000;

macro_rules! kinds {
    ($($name:ident = $n:literal;)*) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: u16 = $n;)*

        /// Ceph's name of a type; `None` for one not listed here.
        pub fn name(kind: u16) -> Option<&'static str> {
            match kind { $($n => Some(stringify!($name)),)* _ => None }
        }
    };
}

kinds! {
    PING = 2;
    MON_MAP = 4;
    MON_GET_MAP = 5;
    MON_GET_OSDMAP = 6;
    STATFS = 13;
    STATFS_REPLY = 14;
    MON_SUBSCRIBE = 15;
    MON_SUBSCRIBE_ACK = 16;
    AUTH = 17;
    AUTH_REPLY = 18;
    MON_GET_VERSION = 19;
    MON_GET_VERSION_REPLY = 20;
    MDS_MAP = 21;
    CLIENT_SESSION = 22;
    CLIENT_RECONNECT = 23;
    CLIENT_REQUEST = 24;
    CLIENT_REQUEST_FORWARD = 25;
    CLIENT_REPLY = 26;
    CLIENT_RECLAIM = 27;
    CLIENT_RECLAIM_REPLY = 28;
    CLIENT_METRICS = 29;
    OSD_MAP = 41;
    OSD_OP = 42;
    OSD_OPREPLY = 43;
    WATCH_NOTIFY = 44;
    FS_MAP = 45;
    POOLOP_REPLY = 48;
    POOLOP = 49;
    MON_COMMAND = 50;
    MON_COMMAND_ACK = 51;
    LOG = 52;
    LOGACK = 53;
    GETPOOLSTATS = 58;
    GETPOOLSTATSREPLY = 59;
    OSD_BACKOFF = 61;
    CONFIG = 62;
    GET_CONFIG = 63;
    COMMAND = 97;
    COMMAND_REPLY = 98;
    FS_MAP_USER = 103;
    CLIENT_CAPS = 0x310;
    CLIENT_LEASE = 0x311;
    CLIENT_SNAP = 0x312;
    CLIENT_CAPRELEASE = 0x313;
    CLIENT_QUOTA = 0x314;
    MGR_OPEN = 0x700;
    MGR_MAP = 0x704;
    MGR_COMMAND = 0x709;
    MGR_COMMAND_REPLY = 0x70a;
}
