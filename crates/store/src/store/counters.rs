//! What the store counts, and what it uses.

/// Performance counters since the mount. Latencies are sums; divide by the matching count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions taken.
    pub transactions: u64,
    /// Transactions that became durable.
    pub durable: u64,
    /// Time from submit to durable, summed, in nanoseconds.
    pub durable_ns: u64,
    /// Submits answered with a miss.
    pub submit_misses: u64,
    /// Submits answered with busy.
    pub submit_busy: u64,
    /// Submits answered with no space.
    pub submit_no_space: u64,
    /// Bytes of data in transactions.
    pub data_bytes: u64,
    /// Log batches written.
    pub log_batches: u64,
    /// Bytes of log batches.
    pub log_bytes: u64,
    /// How long the log's disk took for the quickest of the last batches, in nanoseconds.
    pub log_answer_ns: u64,
    /// Blocks that small writes put into the log.
    pub logged_blocks: u64,
    /// Bytes of big writes, beside the log.
    pub direct_bytes: u64,
    /// Writes of big writes.
    pub direct_writes: u64,
    /// Flushes for big writes in many pieces.
    pub direct_flushes: u64,
    /// Logged blocks put in place.
    pub in_place_blocks: u64,
    /// Writes that did so.
    pub in_place_writes: u64,
    /// Logged blocks read back from the log to be put in place.
    pub in_place_reads: u64,
    /// Checkpoints of the tree.
    pub checkpoints: u64,
    /// Superblocks written.
    pub superblocks: u64,
    /// Tree nodes written.
    pub nodes_written: u64,
    /// Bytes of tree nodes written.
    pub node_bytes: u64,
    /// Writes over blocks of which the row of extents was not in memory, and was not read.
    pub overwrites_unseen: u64,
    /// Blocks that were read by outlines, since the row of extents was not in memory.
    pub outlined_blocks_read: u64,
    /// Blocks that were not read, since they were in memory from an earlier read.
    pub kept_blocks_read: u64,
    /// Memory of such blocks, in bytes.
    pub kept_bytes: u64,
    /// Tree nodes read.
    pub nodes_read: u64,
    /// Fetches.
    pub fetches: u64,
    /// Time from fetch to fetched, summed, in nanoseconds.
    pub fetch_ns: u64,
    /// Reads of data for fetches.
    pub data_reads: u64,
    /// Bytes of them.
    pub data_read_bytes: u64,
    /// Blocks of objects whose checksum was wrong.
    pub bad_blocks: u64,
    /// Tree nodes whose checksum was wrong.
    pub bad_nodes: u64,
    /// Reads that the device failed.
    pub read_errors: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// Transactions that take more from a count of compressed extents than is in it: objects were changed under
    /// another account before. Those of the log at the mount, too.
    pub accounts_below_zero: u64,
    /// Rows that were passed over, since they are removed but not yet out of the tree.
    pub removed_rows_passed: u64,
    /// Lookups of tree nodes that were in memory.
    pub page_hits: u64,
    /// And that were not.
    pub page_misses: u64,
}

/// Space by what it is used for, in bytes but for the counts. All but `log_used`, `reserve`,
/// `shared`, `compressed*`, `available`, `objects` and `object_bytes` add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The data device.
    pub total: u64,
    /// Superblocks and the room around them.
    pub system: u64,
    /// The log, when it is on the data device.
    pub log: u64,
    /// Of the log, wherever it is: bytes that are needed.
    pub log_used: u64,
    /// Blocks of objects.
    pub data: u64,
    /// Of these, blocks that several objects share.
    pub shared: u64,
    /// Of the data: blocks of compressed extents.
    pub compressed: u64,
    /// Bytes of them that are used.
    pub compressed_bytes: u64,
    /// Bytes of objects that they hold, each object's for itself.
    pub compressed_original: u64,
    /// Tree nodes.
    pub metadata: u64,
    /// Freed, but not usable yet.
    pub freeing: u64,
    /// Free.
    pub free: u64,
    /// Of the free space, what only transactions marked so may use, with what checkpoints need.
    pub reserve: u64,
    /// Free for every transaction.
    pub available: u64,
    /// Objects.
    pub objects: u64,
    /// Logical bytes of all objects.
    pub object_bytes: u64,
}

/// What the data of one account's objects takes, in bytes. Attributes, omaps and the store's own records are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountUsage {
    /// Which account.
    pub account: u64,
    /// Whole blocks of the device; what several objects share counts once.
    pub allocated: u64,
    /// Bytes of objects that are no holes, each object's for itself; of an object that ends in a hole up to a block
    /// too few.
    pub stored: u64,
}

/// What compression did to the objects of one account, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Which account.
    pub account: u64,
    /// Bytes of objects that are compressed; each object's for itself.
    pub original: u64,
    /// Space that they take; what several objects share counts once.
    pub allocated: u64,
    /// Bytes of it that are used.
    pub stored: u64,
}
