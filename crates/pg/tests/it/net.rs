//! What the OSDs of the small world say to each other and to the mon.

use crate::state::{Op, State};
use pg::*;
use types::*;

/// Everything OSDs send to each other.
#[derive(Clone, Debug)]
pub enum Net {
    Pg(PgMsg),
    Rep {
        epoch: Epoch,
        interval: Epoch,
        records: Vec<LogRecord>,
        ops: Option<Vec<Op>>,
        /// The data that it brings. (What brings none is never left out for lack of space.)
        data: Option<u64>,
        trim: Eversion,
    },
    RepAck {
        interval: Epoch,
        version: Eversion,
        /// Of these only the log entries are there.
        missed: Vec<Eversion>,
    },
    Pull {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
    },
    Push {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
        state: Option<State>,
        pulled: bool,
    },
    PushAck {
        epoch: Epoch,
        interval: Epoch,
        object: HObject,
        version: Eversion,
        /// There was no space for it.
        refused: bool,
    },
    Scan {
        epoch: Epoch,
        interval: Epoch,
        begin: HObject,
    },
    Listed {
        epoch: Epoch,
        interval: Epoch,
        listing: Listing,
    },
    Progress {
        epoch: Epoch,
        interval: Epoch,
        to: HObject,
    },
    ProgressAck {
        epoch: Epoch,
        interval: Epoch,
        to: HObject,
    },
}

impl Net {
    pub fn epoch(&self) -> Epoch {
        match self {
            Net::Pg(m) => m.epoch,
            Net::RepAck { .. } => Epoch::ZERO,
            Net::Rep { epoch, .. }
            | Net::Pull { epoch, .. }
            | Net::Push { epoch, .. }
            | Net::PushAck { epoch, .. }
            | Net::Scan { epoch, .. }
            | Net::Listed { epoch, .. }
            | Net::Progress { epoch, .. }
            | Net::ProgressAck { epoch, .. } => *epoch,
        }
    }
}

/// What an OSD asks of the mon.
#[derive(Clone, Debug)]
pub enum Ask {
    UpThru(Epoch),
    PgTemp(Epoch, Vec<i32>),
}

/// Whether everything that is said is to be told.
pub fn is_traced() -> bool {
    std::env::var("PG_TRACE").is_ok_and(|v| !v.is_empty())
}

/// A message in a line, for PG_TRACE.
pub fn summary(msg: &PgMsg) -> String {
    let info = |i: &PgInfo| {
        format!(
            "lu {} tail {} les {}/{}",
            i.last_update, i.log_tail, i.last_epoch_started, i.history.last_epoch_started
        )
    };
    let what = match &msg.body {
        Body::Query(q, _) => format!("{q:?}"),
        Body::Notify(n) => format!("notify {} missing {}", info(&n.info), n.lack.objects),
        Body::Log { info: i, log, .. } => format!("log {} {}..{}", info(i), log.tail, log.head),
        Body::Activate { info: i, log, backfill } => {
            format!("activate {} {}..{} backfill {backfill}", info(i), log.tail, log.head)
        }
        Body::Activated(i) => format!("activated {}", info(i)),
        Body::History(_) => "history".into(),
        Body::Remove => "remove".into(),
        Body::Bad(object, need) => format!("bad {object} {need}"),
    };
    format!("e{} i{} {what}", msg.epoch, msg.interval)
}
