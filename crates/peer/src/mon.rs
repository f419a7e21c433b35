//! Between an OSD and the mon.

use crate::payload;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use maps::SnapSet;
use pg::scrub::ScrubRecord;
use pg::{History, ObjectSums, PastIntervals};
use std::collections::BTreeMap;
use types::{AddrVec, Epoch, Eversion, OsdId, PgId, PoolId, UTime, Uuid};

/// OSD to mon: I am here, mark me up. Sent again until the map says so.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct OsdBoot {
    /// The cluster it was made for.
    pub cluster: Uuid,
    /// Its number.
    pub osd: OsdId,
    /// Identifies its store: the same number with another store is another OSD.
    pub uuid: Uuid,
    /// Where clients reach it.
    pub client_addrs: AddrVec,
    /// Where other OSDs reach it.
    pub cluster_addrs: AddrVec,
    /// Where heartbeats of the cluster's network reach it.
    pub hb_back_addrs: AddrVec,
    /// Where heartbeats of the clients' network reach it.
    pub hb_front_addrs: AddrVec,
    /// Whether it was marked down though it lived, and joins again because of that.
    pub was_alive: bool,
    /// The newest map it has.
    pub newest_map: Epoch,
    /// Bytes of its store; the CRUSH weight of a new OSD (1.0 = 1 TiB).
    pub store_bytes: u64,
    /// `hdd`, `ssd`, `nvme`; empty when it does not know.
    pub device_class: String,
    /// Where it stands, as CRUSH types and names: `host` -> `node1`.
    pub location: Vec<(String, String)>,
    /// For `ceph osd metadata`.
    pub metadata: BTreeMap<String, String>,
    /// The newest transaction in its store. They are numbered for the store's whole life: one that
    /// once had more was rolled back, or lost what its disk had called durable.
    #[denc(since = 2)]
    pub durable_txn: u64,
}
payload!(OsdBoot, 1);

/// Mon to OSD: you are not taken into the map. It may ask again, and is answered again.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdRefusal {
    /// Why, and what to do: for people.
    pub why: String,
}
payload!(OsdRefusal, 8);

/// Mon to OSD, on the session of one that is up: another process says it is you, with your store.
/// Whoever lives answers with [`OsdHere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdWhoIsThere {
    /// Names the question.
    pub number: u64,
}
payload!(OsdWhoIsThere, 10);

/// OSD to mon: the answer to [`OsdWhoIsThere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdHere {
    /// Who.
    pub osd: OsdId,
    /// Of the question.
    pub number: u64,
}
payload!(OsdHere, 11);

/// OSD to mon: promise in the map that I am alive, so that I may go active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdAlive {
    /// Who.
    pub osd: OsdId,
    /// up_thru must reach at least this.
    pub want: Epoch,
}
payload!(OsdAlive, 2);

/// OSD to mon: let these OSDs act for PGs that I lead.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdPgTemp {
    /// The map the wishes are based on: a wish for a PG whose mapping has changed since is void.
    pub epoch: Epoch,
    /// The wanted acting sets; empty to go back to the up set.
    pub wants: Vec<(PgId, Vec<OsdId>)>,
}
payload!(OsdPgTemp, 3);

/// OSD to mon: I stop. The mon marks it down at once, and answers with the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdGoingDown {
    /// Who.
    pub osd: OsdId,
    /// Since when it was up: a message from before a restart is void.
    pub up_from: Epoch,
}
payload!(OsdGoingDown, 4);

/// Counts of client I/O since the OSD started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct IoCounts {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// State of a PG, from its primary.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct PgStat {
    /// Which.
    pub pgid: PgId,
    /// Bits of [`pg::StateBits`].
    pub state: u64,
    /// Since when it has been in this state.
    pub state_since: UTime,
    /// The OSD's map.
    pub epoch: Epoch,
    /// Newest write.
    pub last_update: Eversion,
    /// Where the log begins.
    pub log_tail: Eversion,
    /// Entries in the log.
    pub log_entries: u64,
    /// Requests remembered behind the log.
    pub log_dups: u64,
    /// Where CRUSH wants it.
    pub up: Vec<OsdId>,
    /// Who serves it.
    pub acting: Vec<OsdId>,
    /// First of up; -1 for none.
    pub up_primary: i32,
    /// Who leads it; -1 for none.
    pub acting_primary: i32,
    /// First epoch of this mapping.
    pub mapping_epoch: Epoch,
    /// When it was created.
    pub created: Epoch,
    /// When it was last clean.
    pub last_epoch_clean: Epoch,
    /// Sums over its objects.
    pub sums: ObjectSums,
    /// Copies of objects that are missing.
    pub degraded: u64,
    /// Copies of objects that are not where CRUSH wants them.
    pub misplaced: u64,
    /// Objects of which no good copy is known.
    pub unfound: u64,
    /// Client I/O.
    pub io: IoCounts,
    /// Objects recovered since the OSD started.
    pub recovered_objects: u64,
    /// Their bytes.
    pub recovered_bytes: u64,
    /// Whom it waits for.
    pub blocked_by: Vec<OsdId>,
    /// Removed snapshots (of those that the map still names) of which nothing is left.
    pub trimmed: SnapSet,
    /// How many others there are.
    pub snaps_to_trim: u32,
    /// Its scrubs.
    #[denc(since = 2)]
    pub scrub: ScrubRecord,
}

/// What fills an OSD's store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdSpace {
    /// The device.
    pub total: u64,
    /// Free for objects.
    pub available: u64,
    /// Object data.
    pub data: u64,
    /// Omap and attributes.
    pub omap: u64,
    /// The store's own metadata and log.
    pub meta: u64,
}

/// What the data of one pool's objects takes on an OSD, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PoolUsage {
    /// The pool.
    pub pool: PoolId,
    /// Blocks of the disk; what several objects share counts once.
    pub allocated: u64,
    /// Bytes of objects that are no holes, each object's for itself.
    pub stored: u64,
}

/// What compression did to the objects of one pool on an OSD, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PoolCompressed {
    /// The pool.
    pub pool: PoolId,
    /// Bytes of objects that are compressed.
    pub original: u64,
    /// Space that they take.
    pub allocated: u64,
    /// Bytes of it that are used.
    pub stored: u64,
}

/// Clients' I/O on one image in a period, as one OSD served it. Times are sums, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ImageIo {
    /// The pool that the image is listed in.
    pub pool: PoolId,
    /// Its namespace.
    pub nspace: String,
    /// Its id.
    pub id: String,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes that they brought.
    pub write_bytes: u64,
    /// From receiving to answering.
    pub write_us: u64,
    /// Requests that read.
    pub reads: u64,
    /// Bytes that they got.
    pub read_bytes: u64,
    /// From receiving to answering.
    pub read_us: u64,
}

/// Clients' I/O by image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ImageCounts {
    /// Length of the period.
    pub over_ms: u32,
    /// Images on which there was some.
    pub images: Vec<ImageIo>,
}

/// Mon to OSD: count clients' I/O by image for some time, and report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ImagesAsked {
    /// For so long, unless it is asked again.
    pub for_ms: u32,
}
payload!(ImagesAsked, 14);

/// OSD to mon: how I am. Every few seconds, and at once when a PG's state changes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 8, compat = 1)]
pub struct OsdReport {
    /// Who.
    pub osd: OsdId,
    /// Since when it is up.
    pub up_from: Epoch,
    /// Its space.
    pub space: OsdSpace,
    /// Copies of PGs it holds.
    pub pgs_held: u32,
    /// Mean time from the write to the disk until it was durable, of the last period.
    pub commit_latency_us: u32,
    /// Requests in flight for longer than the complaint time, and the age of the oldest.
    pub slow_requests: u32,
    /// See `slow_requests`.
    pub oldest_request_s: u32,
    /// PGs it leads and that changed since the last report; all of them after a new session.
    pub pgs: Vec<PgStat>,
    /// Pools of which something is compressed here.
    #[denc(since = 2)]
    pub compressed: Vec<PoolCompressed>,
    /// See [`OsdBoot::durable_txn`].
    #[denc(since = 3)]
    pub durable_txn: u64,
    /// What its clock says.
    #[denc(since = 3)]
    pub wall: UTime,
    /// It takes no more data, whatever the ratios of the map are.
    #[denc(since = 4)]
    pub full: bool,
    /// What is damaged of its own records. Empty: nothing that it knows of.
    #[denc(since = 5)]
    pub own_damage: String,
    /// What [`ImagesAsked`] asks for, if it is asked and a period is over.
    #[denc(since = 6)]
    pub images: Option<ImageCounts>,
    /// Its options that are not left to their defaults.
    #[denc(since = 7)]
    pub options: Vec<OptionSaid>,
    /// How many it has sent since it started, with this one.
    #[denc(since = 7)]
    pub seq: u32,
    /// What each pool takes here, of those that take something. `None`: it does not know.
    #[denc(since = 8)]
    pub pools: Option<Vec<PoolUsage>>,
}
payload!(OsdReport, 5);

/// The number of a report as `flush_pg_stats` and `osd last-stat-seq` say it: OSDs count anew with each start.
#[must_use]
pub fn stat_seq(up_from: Epoch, seq: u32) -> u64 {
    u64::from(up_from.0) << 32 | u64::from(seq)
}

/// What was said of a daemon's option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OptionSaid {
    /// Which.
    pub name: String,
    /// Where (`file`, `mon`, `override`) and what; the last one counts.
    pub said: Vec<(String, String)>,
}

/// A PG to be made: it is there since its pool is, though no OSD has reported it yet.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PgCreate {
    /// Which.
    pub pgid: PgId,
    /// Its life so far, as of [`PgCreates::epoch`].
    pub history: History,
    /// Its intervals before the current one, as of [`PgCreates::epoch`]: in one of them an OSD that
    /// was told to make it may have taken writes, and failed before it could say so.
    pub past: PastIntervals,
}

/// Mon to OSD: these PGs are new, and you lead them. Sent again until they are reported.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgCreates {
    /// The map by which the OSD leads them. It makes them only when it has every map from here on.
    pub epoch: Epoch,
    /// Which.
    pub pgs: Vec<PgCreate>,
}
payload!(PgCreates, 6);

/// OSD to mon: another OSD does not answer, or answers again after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct OsdFailure {
    /// Who says so.
    pub reporter: OsdId,
    /// About whom.
    pub target: OsdId,
    /// Since when the target is up: what is said of an earlier life is void.
    pub up_from: Epoch,
    /// For how long it has not answered.
    pub silent_ms: u64,
    /// What is known.
    pub what: FailureKind,
}
payload!(OsdFailure, 7);

/// What an OSD has to say of another one; one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It has not answered heartbeats for longer than the grace.
    Silent = 0,
    /// Its host refuses connections to it: the process is gone.
    Refused = 1,
    /// It answers again: an earlier report is void.
    Answers = 2,
}

impl Encode for FailureKind {
    fn encode(&self, e: &mut Encoder) {
        (*self as u8).encode(e);
    }
}

impl Decode for FailureKind {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u8::decode(d)? {
            0 => Ok(FailureKind::Silent),
            1 => Ok(FailureKind::Refused),
            2 => Ok(FailureKind::Answers),
            _ => Err(d.invalid("kind of failure")),
        }
    }
}
