//! The mounted store.
//!
//! A state machine: the owner calls [`Store::handle`] for each disk operation that ended, asks and
//! submits, takes events with [`Store::poll_event`], and calls [`Store::end_turn`] once a turn.
//!
//! **Order of things.** A transaction is visible to reads as soon as it is submitted. Its batch and
//! its data beside the log are written at the end of the turn. It is durable, and the owner is told
//! so, when it is decided (see `wal`). Later, in the background and in bounded slices:
//!
//! * *putting in place*: logged blocks of recorded transactions are written to their places;
//! * *checkpoint*: the memtable is frozen and applied to the tree, copy-on-write;
//! * *commit*: flush, then a superblock that points to the new tree and says which part of the log
//!   is still needed, and only then are that log, replaced nodes and freed blocks used again.
//!
//! **Faults.** A failed write or flush is [`StoreEvent::Fatal`]: nothing is done after it. A failed
//! or wrong read fails the fetch it was for. A checkpoint that cannot read the tree is fatal too,
//! after some tries: the store cannot go on without it.

pub(crate) mod blocks;
mod checkpoint;
mod commit;
mod counters;
pub(crate) mod direct;
mod fetch;
mod gather;
pub(crate) mod inflight;
mod memory;
pub(crate) mod miss;
pub(crate) mod onodes;
pub(crate) mod outlines;
mod pace;
mod pieces;
mod read;
mod read_values;
mod recent;
mod reload;
mod scrub;
mod space;
mod submit;
mod turn;
pub(crate) mod txns;
mod writeback;

pub(crate) use fetch::check_node;

pub use counters::{AccountUsage, Compressed, Counters, Usage};
pub use memory::{Held, MemoryUse, Outside};
pub use miss::{Miss, ReadSet};
pub use pieces::Piece;
pub use read::ObjectStat;
pub use read_values::{OmapPage, OmapRange};
pub use scrub::{ObjectDigest, ScrubCursor, ScrubLimits, Scrubbed};

use crate::accounts::Accounts;
use crate::alloc::Allocator;
use crate::compress::Codec;
use crate::config::{Config, Devices, Identity};
use crate::error::{Fatal, StoreError};
use crate::memtable::Garbage;
use crate::plan::Rows;
use crate::store::onodes::{OnodeCache, ShardCache};
use crate::superblock::{Superblock, Totals};
use crate::tree::node::PagePtr;
use crate::wal::Wal;
use blocks::BlockCache;
use checkpoint::Checkpoint;
use commit::Commit;
use denc::Arena;
use direct::DirectWrites;
use fetch::{Fetches, Piecewise};
use gather::Gather;
use inflight::Io;
use io::disk::{DevId, DiskError};
use outlines::Outlines;
use pace::Pace;
use std::cell::RefCell;
use std::collections::VecDeque;
use txns::Txns;
use types::{Mono, ObjectKey};
use writeback::WriteBack;

/// Numbers transactions, in the order they were submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// Something the owner must know.
#[derive(Debug)]
pub enum StoreEvent {
    /// These transactions survive any crash from now on; in order within each sequencer.
    Durable {
        /// Which.
        txns: Vec<TxnId>,
    },
    /// A fetch ended. On success the operation is run again with the read set.
    Fetched {
        /// Whom it was for.
        waiter: u64,
        /// What was fetched.
        result: Result<ReadSet, StoreError>,
    },
    /// Submits that were answered with busy can be tried again.
    Writable,
    /// A block of an object is damaged on this device.
    BadBlock {
        /// The object.
        object: ObjectKey,
        /// Byte offset in it.
        offset: u64,
    },
    /// The store is closed in order; nothing is in flight.
    Unmounted,
    /// The store cannot go on.
    Fatal(Fatal),
}

/// What the end of a disk operation means.
#[derive(Debug)]
pub(crate) enum Ended {
    Batch { seq: u64 },
    Direct { start: u64 },
    DirectFlush { txns: Vec<u64> },
    Fetch { id: u64, part: Piecewise },
    CheckpointRead { ptrs: Box<[PagePtr]> },
    CheckpointWrite { blocks: u64 },
    InPlaceRead { group: u64, index: usize, seq: u64 },
    InPlaceWrite { group: u64 },
    Reload { block: u64 },
    CommitFlush,
    CommitSuper,
    Discard { run: crate::alloc::Run },
}

/// How the owner's wish to close is coming along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Closing,
    Closed,
    Dead,
}

/// A mounted store.
pub struct Store {
    config: Config,
    devices: Devices,
    /// The newest durable superblock.
    sb: Superblock,
    rows: Rows,
    onodes: OnodeCache,
    shards: ShardCache,
    outlines: Outlines,
    blocks: BlockCache,
    outside: Outside,
    /// The memory that it is to have; see [`Store::set_memory`].
    memory_wanted: usize,
    wal: Wal,
    direct: DirectWrites,
    alloc: Allocator,
    txns: Txns,
    totals: Totals,
    accounts: Accounts,
    codec: RefCell<Codec>,
    /// Memory for rows, which live until the next checkpoint.
    arena: RefCell<Arena>,
    next_id: u64,
    io: Io<Ended>,
    fetches: Fetches,
    checkpoint: Option<Checkpoint>,
    writeback: WriteBack,
    pace: Pace,
    gather: Gather,
    commit: Option<Commit>,
    /// The memtable that the last checkpoint applied, on its way out.
    garbage: Garbage,
    /// Nodes of older trees whose blocks are free when nothing reads them.
    old_pages: VecDeque<PagePtr>,
    old_page_blocks: u64,
    /// Long nodes of what was submitted last would have found no place: free blocks are too scattered.
    in_pieces: bool,
    /// Stretches of the reserve, if they were counted since the last checkpoint.
    reserved_stretches: Option<u64>,
    /// Discards in flight.
    discarding: usize,
    /// Changes whenever blocks or log get free to be used again.
    epoch: u64,
    /// What the header of the last issued batch calls decided.
    announced: u64,
    /// Somebody waits for decided transactions to be recorded.
    mark_wanted: bool,
    mark_due: Option<Mono>,
    /// When the store was last found clean and then changed.
    dirty_since: Option<Mono>,
    /// A checkpoint should begin though no limit is reached.
    checkpoint_wanted: bool,
    /// The owner asked for a checkpoint.
    flush_wanted: bool,
    /// Blocks of batches before this one should be put in place though no limit is reached.
    drain_until: u64,
    /// Logged blocks were put in place since the last commit began.
    round_done: bool,
    /// A submit was answered with busy; the owner waits to be told of a change.
    blocked: bool,
    /// The owner waits to be told when writers are not held any more (see `pace`).
    held: bool,
    /// Log or space ran short: background work must not wait for its usual triggers.
    pressure: bool,
    /// There is work that waits for nothing but the next turn.
    work_left: bool,
    /// Bytes of changes that are not in a checkpoint, as a rule at most: half of what there is for them. Less of it
    /// counts from the next checkpoint on.
    rows_limit: usize,
    life: Life,
    events: VecDeque<StoreEvent>,
    /// Memory for the next record of the log.
    record: Vec<u8>,
    counters: Counters,
    now: Mono,
}

/// What a mount found.
pub(crate) struct Parts {
    pub config: Config,
    pub devices: Devices,
    pub sb: Superblock,
    pub rows: Rows,
    pub wal: Wal,
    pub alloc: Allocator,
    pub totals: Totals,
    pub accounts: Accounts,
    pub next_id: u64,
    pub next_txn: u64,
    pub next_token: u64,
}

impl Store {
    pub(crate) fn assemble(parts: Parts) -> Store {
        let announced = parts.next_txn - 1;
        Store {
            devices: parts.devices,
            // It was; from now on the log goes on.
            sb: Superblock { clean: false, ..parts.sb },
            rows: parts.rows,
            onodes: OnodeCache::new(),
            shards: ShardCache::new(parts.config.shard_cache_bytes),
            outlines: Outlines::new(parts.config.outline_bytes),
            blocks: BlockCache::default(),
            outside: Outside::default(),
            memory_wanted: parts.config.memory_bytes,
            rows_limit: parts.config.memtable_bytes / 2,
            config: parts.config,
            wal: parts.wal,
            direct: DirectWrites::default(),
            alloc: parts.alloc,
            txns: Txns::new(parts.next_txn),
            totals: parts.totals,
            accounts: parts.accounts,
            codec: RefCell::default(),
            arena: RefCell::default(),
            next_id: parts.next_id,
            io: Io::new(parts.next_token),
            fetches: Fetches::default(),
            checkpoint: None,
            writeback: WriteBack::default(),
            pace: Pace::default(),
            gather: Gather::default(),
            commit: None,
            garbage: Garbage::default(),
            old_pages: VecDeque::new(),
            old_page_blocks: 0,
            in_pieces: false,
            reserved_stretches: None,
            discarding: 0,
            epoch: 0,
            announced,
            mark_wanted: false,
            mark_due: None,
            dirty_since: None,
            checkpoint_wanted: false,
            flush_wanted: false,
            drain_until: 0,
            round_done: false,
            blocked: false,
            held: false,
            pressure: false,
            work_left: false,
            life: Life::Running,
            events: VecDeque::new(),
            record: Vec::new(),
            counters: Counters::default(),
            now: Mono::default(),
        }
    }

    /// Whose store this is.
    pub fn identity(&self) -> &Identity {
        &self.sb.identity
    }

    /// The newest transaction that is durable, with all before it. They are numbered for the store's
    /// whole life.
    pub fn durable_txn(&self) -> u64 {
        self.txns.decided()
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The devices it is on.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    /// Performance counters since the mount.
    pub fn counters(&self) -> Counters {
        let (page_hits, page_misses) = self.rows.pages.hits_and_misses();
        let log_answer_ns = self.gather.quickest_ns();
        Counters {
            page_hits,
            page_misses,
            removed_rows_passed: self.rows.gaps.passed(),
            log_answer_ns,
            kept_blocks_read: self.blocks.hits(),
            kept_bytes: self.blocks.bytes() as u64,
            accounts_below_zero: self.accounts.below_zero(),
            ..self.counters
        }
    }

    /// The largest transaction: bytes that its rows and small writes may take in the log.
    pub fn max_transaction_bytes(&self) -> u64 {
        self.wal.max_txn_blocks() * io::BLOCK_BYTES as u64
    }

    /// The same of one that is to be copied to other stores, which add some of their own to it: larger ones
    /// are refused unless they may use the reserve.
    pub fn max_first_transaction_bytes(&self) -> u64 {
        self.wal.max_first_txn_blocks() * io::BLOCK_BYTES as u64
    }

    /// Whether the device is told from now on which blocks are freed.
    pub fn set_discard(&mut self, discard: bool) {
        self.config.discard = discard;
    }

    /// Drops nodes of the tree, rows of extents and blocks that are kept in memory only to be at hand.
    pub fn drop_caches(&mut self) {
        self.rows.pages.clear();
        self.shards.clear();
        self.blocks.clear();
    }

    fn log_dev(&self) -> DevId {
        DevId(self.wal.place.dev)
    }

    fn fatal(&mut self, what: &'static str, why: impl ToString) {
        if self.life != Life::Dead {
            self.life = Life::Dead;
            self.events.push_back(StoreEvent::Fatal(Fatal { what, why: why.to_string() }));
        }
    }

    /// Ends everything when a write failed.
    fn must(&mut self, what: &'static str, result: Result<bytes::Bytes, DiskError>) -> bool {
        if let Err(error) = result {
            self.fatal(what, error);
            return false;
        }
        true
    }

    /// Tells the owner that waiting for busy is over: something changed that writers may have waited for.
    /// If all of them are held, that is put off until they are let go.
    fn unblock(&mut self) {
        self.held |= std::mem::take(&mut self.blocked);
        self.let_go();
    }
}
