//! Between OSDs.

use crate::payload;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder, KnownCrc};
use pg::{LogRecord, PgMsg};
use smallvec::SmallVec;
use types::{ByteString, Epoch, Eversion, HObject, OsdId, PgId, SnapId};
use wire::msg::{Message, OutMessage, Payload, Pieces, kind};

/// A message of peering.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PgPeering {
    /// What is said.
    pub msg: PgMsg,
    /// Primaries of intervals that are over and who may still serve reads, as the sender knows.
    pub readers: Vec<PriorReader>,
}

/// See `osd::lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PriorReader {
    /// Who.
    pub osd: OsdId,
    /// The last epoch in which it was primary.
    pub epoch: Epoch,
    /// For how long still, at most.
    pub left_ms: u32,
}
payload!(PgPeering, 16);

/// Primary to replica: one write.
///
/// Front: the fields below; data: the transaction's data pieces.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct RepOp {
    /// Which PG.
    pub pgid: PgId,
    /// The primary's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// The new log entries, encoded [`LogRecord`]s: stored as they came.
    pub records: SmallVec<[Bytes; 2]>,
    /// Trim the log up to here (zero: not at all).
    pub trim_to: Eversion,
    /// The store transaction without its data; empty when only the log learns of the write.
    pub txn: Bytes,
    /// The transaction's data, piece after piece.
    #[denc(skip)]
    pub data: Pieces,
    /// The checksum of all of it.
    #[denc(skip)]
    pub data_crc: KnownCrc,
}

impl RepOp {
    /// The log entries.
    ///
    /// # Errors
    /// When one is malformed.
    pub fn log_records(&self) -> Result<SmallVec<[LogRecord; 1]>, DecodeError> {
        self.records.iter().map(denc::decode_all).collect()
    }

    /// The transaction's data as one piece.
    pub fn data_bytes(&self) -> Bytes {
        match self.data.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

impl Payload for RepOp {
    const TYPE: u16 = kind::OURS_FROM + 17;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn decode(m: &Message) -> Result<Self, DecodeError> {
        let mut op: RepOp = denc::decode(&m.front)?;
        if !m.data.is_empty() {
            op.data.push(m.data.clone());
            op.data_crc = m.data_crc;
        }
        Ok(op)
    }

    fn encode(self) -> OutMessage {
        let front = denc::encode_briefly(&self);
        OutMessage { data: self.data, data_crc: self.data_crc, ..OutMessage::new::<Self>(front) }
    }
}

/// Primary to replica: the log is trimmed, without a write that would say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgTrim {
    /// Which PG.
    pub pgid: PgId,
    /// The primary's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// Up to here.
    pub to: Eversion,
}
payload!(PgTrim, 30);

/// Replica to primary: every write up to `version` is durable here.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 3, compat = 1)]
pub struct RepAck {
    /// Which PG.
    pub pgid: PgId,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// Up to here.
    pub version: Eversion,
    /// Entries of this write that were logged without their data, for lack of space: their objects
    /// are missing here.
    #[denc(since = 2)]
    pub missed: Vec<Eversion>,
    /// There is no space for data here: see [`Heartbeat::full`].
    #[denc(since = 3)]
    pub full: bool,
}
payload!(RepAck, 18);

/// Where a push in several parts stands: what is next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct PushCursor {
    /// The next byte of data.
    pub data_offset: u64,
    /// Whether all data is sent.
    pub data_done: bool,
    /// The omap goes on after this key (empty: from the start).
    pub omap_after: Bytes,
    /// Whether everything is sent.
    pub done: bool,
    /// Attributes go on after this one (empty: from the start), before anything else. `None`: they do not,
    /// but for the first part, which begins them. (Who knows nothing of it answers with another cursor than was
    /// sent, and gets no more of an object whose attributes take several parts.)
    #[denc(since = 2)]
    pub attrs_after: Option<Bytes>,
}

/// Primary to a holder: send me this object.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 4, compat = 1)]
pub struct Pull {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What.
    pub object: HObject,
    /// Exactly this version is of use.
    pub need: Eversion,
    /// From where on.
    pub cursor: PushCursor,
    /// A client waits for it.
    #[denc(since = 2)]
    pub urgent: bool,
    /// The version that is here: what was changed since may be enough. Zero: none.
    #[denc(since = 3)]
    pub have: Eversion,
    /// What it shares with another version of the object may be taken from there; if the head is missing
    /// here, too, this is the version of it that is here. `None`: all must be sent.
    #[denc(since = 4)]
    pub shares: Option<Eversion>,
    /// What parts before have taken from there ([`Push::shared`]).
    #[denc(since = 4)]
    pub shared: Vec<(u64, u64)>,
}
payload!(Pull, 19);

impl Pull {
    /// All of an object, from its beginning and whatever is here of it; no client waits.
    pub fn whole(
        pgid: PgId,
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
        need: Eversion,
    ) -> Self {
        Pull {
            pgid,
            epoch,
            interval,
            object,
            need,
            cursor: PushCursor::default(),
            urgent: false,
            have: Eversion::ZERO,
            shares: None,
            shared: Vec::new(),
        }
    }
}

/// An object on its way, or a part of it. Data: the contents of `extents`, one after the other. Who knows
/// nothing of `base` must not take it: what was changed would stand there as the whole.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 4, compat = 3)]
pub struct Push {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What.
    pub object: HObject,
    /// Whether it answers a [`Pull`].
    pub pulled: bool,
    /// Whether the object exists; if not, the receiver removes it.
    pub exists: bool,
    /// Its version.
    pub version: Eversion,
    /// Its size in bytes.
    pub size: u64,
    /// What the OSD keeps with it.
    pub meta: Bytes,
    /// Attributes of this part. They begin with the first one, and anew when all else is sent if they have
    /// changed meanwhile.
    pub attrs: Vec<(ByteString, Bytes)>,
    /// Its omap header; in the first part only.
    pub omap_header: Bytes,
    /// Omap keys and values of this part.
    pub omap: Vec<(Bytes, Bytes)>,
    /// Offset and length of the data of this part; the rest is holes.
    pub extents: Vec<(u64, u64)>,
    /// Where this part began.
    pub from: PushCursor,
    /// Where the next part begins.
    pub next: PushCursor,
    /// A client waits for it.
    #[denc(since = 2)]
    pub urgent: bool,
    /// It is only what was changed since this version, which must be there. Zero: it is the whole.
    #[denc(since = 3)]
    pub base: Eversion,
    /// If anything is shared: the first part is made upon another version of the object, this clone or the
    /// head, which must be there in version `base`. (Who knows nothing of it does not have that as the object's
    /// own version, and asks for the whole.)
    #[denc(since = 4)]
    pub base_snap: SnapId,
    /// What the first part takes from there, as offset and length: no part brings it. In whole blocks.
    #[denc(since = 4)]
    pub shared: Vec<(u64, u64)>,
    /// Their bytes.
    #[denc(skip)]
    pub data: Bytes,
}
payload!(Push, 20, data = data);

impl Push {
    /// Whether it is made upon another version of the object.
    pub fn takes_from_another(&self) -> bool {
        self.from == PushCursor::default() && !self.shared.is_empty()
    }

    /// What it brings, in bytes.
    pub fn bytes(&self) -> u64 {
        let attrs = self.attrs.iter().map(|(name, value)| name.len() + value.len());
        let omap = self.omap.iter().map(|(key, value)| key.len() + value.len());
        let more = attrs.chain(omap).sum::<usize>() + self.omap_header.len() + self.meta.len();
        (more + self.data.len()) as u64
    }

    /// The answer to a [`Pull`] of an object that the holder does not have, or cannot read.
    pub fn absent(pgid: PgId, epoch: Epoch, interval: Epoch, object: HObject) -> Push {
        let done = PushCursor { done: true, ..PushCursor::default() };
        Push {
            pgid,
            epoch,
            interval,
            object,
            pulled: true,
            exists: false,
            version: Eversion::ZERO,
            size: 0,
            meta: Bytes::new(),
            attrs: Vec::new(),
            omap_header: Bytes::new(),
            omap: Vec::new(),
            extents: Vec::new(),
            from: PushCursor::default(),
            next: done,
            urgent: false,
            base: Eversion::ZERO,
            base_snap: SnapId::default(),
            shared: Vec::new(),
            data: Bytes::new(),
        }
    }
}

/// What has become of a part of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartFate {
    /// It is durable; send the next one.
    #[default]
    Durable,
    /// There is no space for it: it was not taken, and no other one will be.
    NoSpace,
    /// It was not taken, for it is made upon a version that is not there: send the whole.
    WholeWanted,
}

impl Encode for PartFate {
    fn encode(&self, e: &mut Encoder) {
        e.put(&(*self as u8));
    }
}

impl Decode for PartFate {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match d.get::<u8>()? {
            0 => PartFate::Durable,
            1 => PartFate::NoSpace,
            2 => PartFate::WholeWanted,
            _ => return Err(d.invalid("an unknown fate of a part")),
        })
    }
}

/// A part of an object has come.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct PushAck {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What.
    pub object: HObject,
    /// The version that arrives or has arrived.
    pub version: Eversion,
    /// What is next.
    pub next: PushCursor,
    /// What has become of the part.
    #[denc(since = 2)]
    pub fate: PartFate,
}
payload!(PushAck, 21);

/// A client waits for an object that is on its way between the two: what is held of it may go on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Hurry {
    /// Which PG.
    pub pgid: PgId,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What.
    pub object: HObject,
}
payload!(Hurry, 29);

/// Primary to a backfill target: list your objects.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Scan {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// First object.
    pub begin: HObject,
    /// At most so many.
    pub max: u32,
}
payload!(Scan, 22);

/// The answer to [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScanReply {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// First object asked for.
    pub begin: HObject,
    /// Everything before this is listed. The first object: nothing could be read.
    pub end: HObject,
    /// Objects and their versions.
    pub objects: Vec<(HObject, Eversion)>,
}
payload!(ScanReply, 23);

/// Primary to a backfill target: you are complete up to here; note it durably.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct BackfillProgress {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// Everything before this is complete; the maximum: everything.
    pub to: HObject,
}
payload!(BackfillProgress, 24);

/// The answer to [`BackfillProgress`], when it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct BackfillProgressAck {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// As asked.
    pub to: HObject,
}
payload!(BackfillProgressAck, 25);

/// Are you there? And the answer. Over connections of their own, one a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 3, compat = 1)]
pub struct Heartbeat {
    /// Whether it is the answer.
    pub answer: bool,
    /// The asker's monotonic clock when it asked, in nanoseconds.
    pub asked_ns: u64,
    /// The sender's map.
    pub epoch: Epoch,
    /// The sender has no space for data: primaries hold writes to PGs in which it acts.
    #[denc(since = 2)]
    pub full: bool,
    /// The largest transaction that the sender takes from others: no value may be larger. 0: unknown.
    #[denc(since = 3)]
    pub txn_bytes: u64,
}
payload!(Heartbeat, 26);

/// Promise me that you begin no interval without me for a while; see `osd::lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LeaseAsk {
    /// The asker's monotonic clock, in nanoseconds; comes back in the grant.
    pub asked_ns: u64,
    /// Since when the asker is up.
    pub up_from: Epoch,
}
payload!(LeaseAsk, 27);

/// The promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LeaseGrant {
    /// As asked.
    pub asked_ns: u64,
    /// The granter's map: the promise is of use only to whoever has it too.
    pub epoch: Epoch,
}
payload!(LeaseGrant, 28);
