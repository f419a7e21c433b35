//! Settings, identity, devices.

use io::BLOCK_BYTES;
use io::disk::DeviceInfo;
use types::{ObjectKey, OsdId, Uuid};

/// Smallest log: below this a single transaction would hardly fit.
pub const MIN_WAL_BYTES: u64 = 256 * 1024;
/// Smallest room for data and metadata.
pub const MIN_DATA_BYTES: u64 = 1 << 20;

/// Whose store this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: Uuid,
    /// The OSD.
    pub osd: OsdId,
    /// This store: a new one each time a store is made.
    pub store: Uuid,
}

/// What a mount insists on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Only a store of this cluster.
    pub cluster: Option<Uuid>,
    /// Only a store of this OSD.
    pub osd: Option<OsdId>,
    /// Only this store.
    pub store: Option<Uuid>,
}

/// The devices of a store: `DevId(0)` holds the data, `DevId(1)`, if there is one, the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Data, metadata, and the log if it has no device of its own.
    pub data: DeviceInfo,
    /// The log.
    pub wal: Option<DeviceInfo>,
}

/// Says which account an object is of.
#[derive(Clone, Copy, Debug)]
pub struct AccountOf(pub fn(&ObjectKey) -> u64);

/// The settings. All memory the store takes beside them: a bit per 4 KiB of the device (32 MiB for a TiB), and
/// what operations in flight hold.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory that the caches, the log and the memtables may take together, about; see [`Config::set_memory`].
    pub memory_bytes: usize,
    /// Memory for tree nodes.
    pub page_cache_bytes: usize,
    /// Memory for rows of extents that were used last, beside the nodes that they are in: a row found there
    /// costs no search.
    pub shard_cache_bytes: usize,
    /// Memory for outlines of rows of extents, as far as the other caches can do without it and log and
    /// memtables do not need theirs: rows of what is written and read at random that are not in memory.
    pub outline_bytes: usize,
    /// Memory for blocks that were read, as far as none of the others needs it.
    pub block_cache_bytes: usize,
    /// Memory for blocks that are in the log and not yet in place; beyond it they are read back
    /// from the log.
    pub wal_cache_bytes: usize,
    /// Memory for changes that are not in the tree yet. A checkpoint starts at half of it, and
    /// writers wait before it is exceeded.
    pub memtable_bytes: usize,
    /// Size of the log. Only [`crate::Mkfs`] uses it.
    pub wal_bytes: u64,
    /// Writes shorter than this go into the log whole and are put in place later; longer ones go
    /// straight to fresh blocks.
    pub small_write_bytes: usize,
    /// Log batches in flight at a time. More of them cut the wait of a transaction that comes while
    /// one is in flight; fewer make larger batches.
    pub wal_inflight_batches: usize,
    /// A batch of fewer blocks waits until the one before it is written, if the disk is quick. It is worth
    /// it up to where moving the blocks takes longer than what a write costs besides; 0: never.
    pub wal_gather_blocks: u64,
    /// Bytes of big writes in flight before writers have to wait.
    pub direct_inflight_bytes: u64,
    /// Share of the device, in thousandths, that only transactions marked so may use.
    pub reserve_per_mille: u64,
    /// The reserve is not larger than this.
    pub reserve_max_bytes: u64,
    /// Tell the device which blocks were freed.
    pub discard: bool,
    /// Changes are in the tree, and small writes in place, at the latest so long after the store
    /// was last found clean.
    pub checkpoint_interval_ms: u64,
    /// The account that an object's transactions are of ([`crate::Transaction::account`]): for a mount that has to
    /// count anew, and for a check. `None`: nobody knows it.
    pub account_of: Option<AccountOf>,
    /// A mount that has to count anew what accounts have does it where the leaves of the tree, which are all read
    /// then, have no more blocks than this; otherwise it is not known. [`COUNT_ALL`]: it counts in any case, or is refused.
    pub recount_blocks: u64,
    /// After the last transaction, so long until the log is told that all of them are durable. Until
    /// then a rotten last log entry could be taken for one that was never finished.
    pub mark_interval_ms: u64,
}

/// See [`Config::recount_blocks`].
pub const COUNT_ALL: u64 = u64::MAX;
/// What a disk of an OSD reads in some seconds: nobody waits for it longer than for the replay of a log.
const RECOUNT_BLOCKS: u64 = 64 << 10;

impl Default for Config {
    fn default() -> Self {
        Config::for_memory(512 << 20)
    }
}

impl Config {
    /// Settings for a store that may use about this much memory.
    pub fn for_memory(bytes: usize) -> Self {
        let mut config = Config {
            memory_bytes: 0,
            page_cache_bytes: 0,
            shard_cache_bytes: 0,
            outline_bytes: 0,
            block_cache_bytes: usize::MAX,
            wal_cache_bytes: 0,
            memtable_bytes: 0,
            wal_bytes: 1 << 30,
            small_write_bytes: 64 << 10,
            wal_inflight_batches: 4,
            wal_gather_blocks: 64,
            direct_inflight_bytes: 128 << 20,
            reserve_per_mille: 5,
            reserve_max_bytes: 4 << 30,
            discard: false,
            checkpoint_interval_ms: 30_000,
            mark_interval_ms: 50,
            account_of: None,
            recount_blocks: RECOUNT_BLOCKS,
        };
        config.set_memory(bytes);
        config
    }

    /// Divides about this much memory among all that takes some.
    pub fn set_memory(&mut self, bytes: usize) {
        self.memory_bytes = bytes;
        self.page_cache_bytes = bytes / 2 - bytes / 16;
        self.shard_cache_bytes = bytes / 16;
        self.outline_bytes = bytes / 16 * 15;
        self.wal_cache_bytes = bytes / 4;
        self.memtable_bytes = bytes / 4;
    }
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalPlace {
    /// 0: on the data device; 1: on its own.
    pub dev: u8,
    /// First block of the ring.
    pub base: u64,
    /// Blocks of the ring.
    pub blocks: u64,
}

/// Blocks at the start of the data device before the log: two superblocks, and room.
pub(crate) const HEAD_BLOCKS: u64 = 16;
/// Blocks at the end of the data device: two superblocks.
pub(crate) const TAIL_BLOCKS: u64 = 2;
/// Blocks at the start of a log device: its label, and room.
pub(crate) const WAL_HEAD_BLOCKS: u64 = 16;

/// Bytes as blocks.
pub(crate) fn blocks_of(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES as u64
}

/// Blocks of the reserve of a device of `total` blocks.
pub(crate) fn reserve_blocks(config: &Config, total: u64) -> u64 {
    let share = total / 1000 * config.reserve_per_mille + 32;
    share.min(blocks_of(config.reserve_max_bytes)).min(total / 8)
}
