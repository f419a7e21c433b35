//! What the product does for its own tests: probes on rare paths, and bugs that can be planted.
//!
//! Both exist in builds with debug assertions only; in others [`hit`] does nothing and [`planted`] is
//! `false` at compile time. Both are per thread: a simulated cluster lives on one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// An enum whose variants have a name and a sentence for people.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $what:literal])+ $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $what])+ $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// What it is, in a sentence.
            pub fn what(self) -> &'static str {
                match self { $($name::$variant => concat!($($what,)+).trim_ascii(),)+ }
            }
        }
    };
}

named! {
    /// A rare path that tests should have been on.
    Probe {
        /// entries of a log turned out divergent and were taken back
        DivergentEntries,
        /// a copy took another one's log
        LogMerged,
        /// a copy's log no longer reached the others': it is backfilled
        BackfillBegan,
        /// a backfill went on from where it was broken off
        BackfillResumed,
        /// a write reached a copy that is being backfilled, before its cursor
        WriteBehindCursor,
        /// a write reached a copy that is being backfilled, beyond its cursor
        WriteBeyondCursor,
        /// an object's attributes went to another copy in several parts, or without anything else
        AttrsDivided,
        /// a scrub that did not go on gave its places back
        ScrubPutOff,
        /// what a copy still had to remove was made anew
        DeletedMadeAnew,
        /// what a copy still had to remove was looked at
        DeletedLookedAt,
        /// more than may be waited for a newer map
        EarlyTooMuch,
        /// a log was trimmed
        LogTrimmed,
        /// a log was trimmed without a write
        IdleLogTrimmed,
        /// an acting set other than the up set was asked for
        PgTempWanted,
        /// a holder that came when the PG was active already was asked for
        LateHolderWanted,
        /// a PG was down: it waits for an OSD that may know of newer writes
        Down,
        /// a PG was incomplete: nobody has all of it
        Incomplete,
        /// a PG waited for the mon to note that its primary is alive
        UpThruWaited,
        /// a copy that could not tell the interval of its activation was activated again
        ActivatedAgain,
        /// a new interval waited until reads under the old one's leases have ended
        IntervalWaited,
        /// a read waited for a lease
        LeaseWaited,
        /// a request was recognised as sent again, and answered from the log
        DuplicateAnswered,
        /// a request sent again met itself in flight
        DuplicateInFlight,
        /// a write was sent to a replica again, which has it already
        RepOpAgain,
        /// an index of snapshots was looked into
        SnapIndexLooked,
        /// a PG was looked at for whether it has something to trim, or went on with it
        TrimLookedAtPg,
        /// what the transactions of all PGs that wait will take was added up
        QueuesSummed,
        /// trimming had more to do than a turn may take
        TrimGoesOn,
        /// an object was counted for the sums of its PG
        ObjectCounted,
        /// a request waited for an object that is missing here
        MissingWaited,
        /// a client left with requests in hand
        OpsAbandoned,
        /// a client was told to hold its requests for a PG
        BackedOff,
        /// a read of a clone that is missing here stood aside
        ReadStoodAside,
        /// an object was pulled from another copy
        Pulled,
        /// an object was pushed to another copy
        Pushed,
        /// a push was put off for a write
        PushPutOff,
        /// of an object on its way only what was changed was sent
        ChangesSent,
        /// of an object on its way only what differs from another version of it was sent
        SharedSent,
        /// a part waited until it was known whether what it is made upon is there
        BaseLookedUp,
        /// what was sent was made upon something that is not there: the whole was asked for
        WholeWanted,
        /// there was no space for an object that was pushed
        PushRefused,
        /// there was no space for an object that a primary had pulled
        PullRefused,
        /// a write came with the push that it met
        WriteBesidePush,
        /// parts of objects that were not to be made whole any more were removed
        PartsGivenUp,
        /// a PG came back while its old copy was being removed
        RemovalGaveWay,
        /// a part of a PG came back while the PG was being removed
        RemovalSplit,
        /// whoever was to send an older state of an unfound object went away
        OlderSourceLost,
        /// Objects to be removed were too much for one transaction.
        RemovalDivided,
        /// An object was sent whole: another version that it shares something with cannot be read.
        SentWithoutBase,
        /// a copy lacked the object it was asked for, or a part of it
        SourceFailed,
        /// a deletion was recovered
        DeleteRecovered,
        /// an OSD was stopped between two parts of what it had to delete
        DeletesLeft,
        /// a primary that became full left the lead to a member that has what it misses
        FullHandedOver,
        /// a copy that could not be read in an earlier interval is tried again: nobody else has the object
        DamagedTriedAgain,
        /// a damaged object was found and is fetched from another copy
        DamageFound,
        /// data was refused for lack of space
        NoSpace,
        /// a replica logged a write without its data, for lack of space or of what it is made upon
        WriteLeftOut,
        /// objects could not be listed for a backfill
        NotListed,
        /// a write that was never acknowledged, and of which no data are left, was taken back
        WriteTakenBack,
        /// another one's log was asked for from further back: it began after where it parts from ours
        LogAskedAgain,
        /// an OSD restarted to be given an object that is damaged
        RestartForRepair,
        /// the store asked for something to be read first
        StoreMissed,
        /// a long read waited for memory, or for its client to take what it was sent
        ReadWaitedForRoom,
        /// a copy, or what WRITESAME repeats, waited for memory
        WriteWaitedForRoom,
        /// a value was refused as longer than what the log of some OSD takes
        ValueTooLong,
        /// the PG of a copy's source had no room for one more to wait
        CopyRefused,
        /// the store was busy and a request waited for it
        StoreBusy,
        /// a clone was made for a snapshot
        CloneMade,
        /// a removed snapshot's clone was trimmed
        CloneTrimmed,
        /// a row of a snapshot index led to no clone that serves the snapshot
        RowLedNowhere,
        /// an object was rolled back to a snapshot
        RolledBack,
        /// a whiteout kept the clones of a removed object
        Whiteout,
        /// a scrub compared copies
        Scrubbed,
        /// a scrub found an inconsistency
        ScrubFoundError,
    }
}

named! {
    /// A bug that a test plants, to see that the others find it.
    Bug {
        /// the store calls writes durable before they are flushed
        SkippedFlush,
        /// a write is answered when the primary alone has it
        EarlyAck,
        /// a clone is said to have in common with its head what was written since
        OverlapTooWide,
        /// what is sent of an object lacks all that another version of it has, alike or not
        SharedTooMuch,
        /// a replica acknowledges before its store has the write
        ReplicaAckBeforeDurable,
        /// reads do not wait for leases
        ReadWithoutLease,
        /// reads do not wait for writes that are in flight
        ReadOfUncommitted,
        /// a replica takes a write and forgets its log entry's record
        LostLogRecord,
        /// divergent entries leave their objects as they are
        DivergentKept,
        /// the longest log counts, whichever interval it is from
        WrongAuthority,
        /// a backfill's cursor jumps over an object
        BackfillJump,
        /// a deletion is not recovered
        LostDelete,
        /// a request that was sent again is applied again
        DupApplied,
        /// min_size does not count
        NoMinSize,
        /// a write after a snapshot makes no clone
        CloneSkipped,
        /// where a page of a listing ends at a clone, its head is left out
        ListingSkipsHead,
        /// a PG does not wait for up_thru
        UpThruIgnored,
        /// a rollback of an object does nothing
        RollbackLost,
        /// scrub says that copies are equal without looking
        BlindScrub,
        /// a missing object is served as if it did not exist
        MissingServedAbsent,
        /// checksums of blocks are not verified
        NoChecksums,
        /// a pushed object comes without its omap
        OmapNotPushed,
        /// writes to a copy under backfill are left out though the cursor has passed
        BackfillMissesWrite,
        /// a log entry does not know all bytes that its write put
        ChangeForgotten,
        /// a superblock counts as in place what was written while its flush was under way
        UnflushedCounted,
        /// a discard takes a block more than was freed
        DiscardTooLong,
        /// a read that met damage is answered with EIO though another copy mends it
        RepairAnsweredEio,
        /// a PG that has trimmed a few clones trims no more
        TrimStops,
        /// a clone that recovery brings stands in no snapshot index
        CloneUnindexed,
    }
}

thread_local! {
    static HITS: RefCell<BTreeMap<Probe, u64>> = const { RefCell::new(BTreeMap::new()) };
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// This path was taken.
#[inline]
pub fn hit(probe: Probe) {
    if cfg!(debug_assertions) {
        HITS.with_borrow_mut(|hits| *hits.entry(probe).or_default() += 1);
    }
}

/// How often each path was taken on this thread since the last call.
pub fn take_hits() -> BTreeMap<Probe, u64> {
    HITS.take()
}

/// How often a path was taken on this thread since [`take_hits`].
pub fn hits_of(probe: Probe) -> u64 {
    HITS.with_borrow(|hits| hits.get(&probe).copied().unwrap_or(0))
}

/// From now on this thread's daemons have this bug, or none.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether the daemons here have this bug.
#[inline]
pub fn planted(bug: Bug) -> bool {
    cfg!(debug_assertions) && PLANTED.get() == Some(bug)
}
