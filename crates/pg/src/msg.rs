//! What the holders of a PG say to each other about it.

use crate::info::{History, Notify, PgInfo};
use crate::merge::LogSegment;
use crate::missing::Missing;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{Epoch, Eversion, HObject, PgId};

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// A [`Body::Notify`].
    Info,
    /// A [`Body::Log`] from `since` on (or from the tail, when that is newer).
    Log {
        /// Newest version the asker has in common with everybody.
        since: Eversion,
    },
}

/// A message about a PG.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgMsg {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// For answers: the epoch of the question; else the epoch the sender's interval began in. A
    /// message from before the receiver's interval is dropped.
    pub interval: Epoch,
    /// What is said.
    pub body: Body,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Primary to anybody: tell me.
    Query(Query, History),
    /// A holder's state: the answer to [`Query::Info`], or unasked when a new primary appears.
    Notify(Box<Notify>),
    /// The answer to [`Query::Log`].
    Log {
        /// The copy's state.
        info: Box<PgInfo>,
        /// Its log.
        log: LogSegment,
        /// What it is missing.
        missing: Missing,
    },
    /// Primary to the acting set and the backfill targets: take over this log and go active.
    Activate {
        /// The primary's state.
        info: Box<PgInfo>,
        /// The authoritative log from where the receiver's ends, or whole for a backfill.
        log: LogSegment,
        /// Start (again) from nothing: every object will be brought.
        backfill: bool,
    },
    /// The answer: durably done.
    Activated(Box<PgInfo>),
    /// The primary shares what it knows of the PG's life (active, clean).
    History(History),
    /// The primary to a holder that is not needed any more: remove your copy.
    Remove,
    /// The primary to a member: your copy of this object is bad, and you are missing this version of it
    /// until it is brought.
    Bad(Box<HObject>, Eversion),
}

impl Encode for Query {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Query::Info => e.put(&0u8),
            Query::Log { since } => e.put(&1u8).put(since),
        };
    }
}

impl Decode for Query {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            0 => Ok(Query::Info),
            1 => Ok(Query::Log { since: d.get()? }),
            _ => Err(d.invalid("an unknown query")),
        }
    }
}

impl Encode for Body {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Body::Query(query, history) => e.put(&1u8).put(query).put(history),
            Body::Notify(notify) => e.put(&2u8).put(notify),
            Body::Log { info, log, missing } => e.put(&3u8).put(info).put(log).put(missing),
            Body::Activate { info, log, backfill } => e.put(&4u8).put(info).put(log).put(backfill),
            Body::Activated(info) => e.put(&5u8).put(info),
            Body::History(history) => e.put(&6u8).put(history),
            Body::Remove => e.put(&7u8),
            Body::Bad(object, need) => e.put(&8u8).put(object).put(need),
        };
    }
}

impl Decode for Body {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match d.get::<u8>()? {
            1 => Body::Query(d.get()?, d.get()?),
            2 => Body::Notify(d.get()?),
            3 => Body::Log { info: d.get()?, log: d.get()?, missing: d.get()? },
            4 => Body::Activate { info: d.get()?, log: d.get()?, backfill: d.get()? },
            5 => Body::Activated(d.get()?),
            6 => Body::History(d.get()?),
            7 => Body::Remove,
            8 => Body::Bad(d.get()?, d.get()?),
            _ => return Err(d.invalid("an unknown PG message")),
        })
    }
}
