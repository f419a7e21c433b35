//! Placement groups: log, peering, replication and recovery as pure state machines.
//!
//! Nothing here reads a disk, a socket or a clock. [`Pg`] takes maps, messages of other holders and
//! completions, and answers with [`Fx`]: record changes, messages, wishes to the mon. The host
//! (`osd`) carries them out. Words are Ceph's: up set, acting set, interval, last_epoch_started,
//! last_update, missing, backfill.
//!
//! Where to find what: [`LogEntry`], [`PgLog`] and [`Missing`] are the data; `merge` brings two logs together;
//! `prior` and `choose` are the two decisions of peering; `peering` is its course; `replicate`,
//! `recovery`, `todo`, `clones`, `unfound`, `backfill` and [`scrub`] are what an active PG does; `split` makes several PGs
//! of one, `join` one of two; `persist` is how it is kept.

mod backfill;
mod choose;
mod clones;
mod damaged;
mod entry;
mod info;
mod intervals;
mod join;
#[cfg(test)]
mod left_out;
mod log;
mod merge;
mod missing;
mod msg;
mod peering;
mod persist;
mod pg;
mod prior;
mod recovery;
mod replicate;
mod requests;
mod reserve;
pub mod scrub;
mod split;
mod status;
mod todo;
mod unfitting;
mod unfound;

pub use backfill::{BackfillWork, Listing};
pub use choose::{Choice, authoritative, choose};
pub use entry::{EntryKind, LogEntry, OpReturn};
pub use info::{History, Notify, ObjectSums, PgInfo};
pub use intervals::{
    Interval, MapView, Mapping, OsdSet, PastIntervals, PoolRules, is_new_interval,
};
pub use log::{Changed, DUPS_TRACKED, Dup, PgLog};
pub use merge::{LogSegment, Merged, merge_log, peer_missing};
pub use missing::{Lack, Missing, MissingItem};
pub use msg::{Body, PgMsg, Query};
pub use persist::{
    Belongs, IMPORT_KEY, INFO_KEY, InfoRecord, LoadError, Loaded, LogRecord, MetaOp, ObjectRow,
    forget_deleted, forget_deleted_range, load, log_key, missing_key, object_row, put_deleted,
    put_import, put_missing,
};
pub use pg::{Ctx, Fx, Notice, Pg, Stage};
pub use prior::Prior;
pub use recovery::{Gate, Need, Readiness, Work};
pub use replicate::{Behind, InFlight, LogLimits, Taken, Target};
pub use reserve::{Forced, Reserver, Turn};
pub use status::{PeerView, StateBits};
pub use unfitting::PullSize;
pub use unfound::{GiveUp, Probe};
