//! What our own daemons say to each other. No Ceph daemon ever joins, so these are free; they travel
//! in the same frames as Ceph's messages, with type numbers from [`wire::msg::kind::OURS_FROM`] on.
//!
//! Each struct is versioned by `denc` sections; every field is in its encoding's order. The bulk of a
//! message (object contents) is its data segment, so that it is received straight into aligned
//! memory.
//!
//! [`View`] shows an OSDMap to crate `pg`, for the OSD and for the mon.

mod mon;
mod osd;
mod recovery;
mod scrub;
mod view;

pub use mon::{
    FailureKind, ImageCounts, ImageIo, ImagesAsked, IoCounts, OptionSaid, OsdAlive, OsdBoot,
    OsdFailure, OsdGoingDown, OsdHere, OsdPgTemp, OsdRefusal, OsdReport, OsdSpace, OsdWhoIsThere,
    PgCreate, PgCreates, PgStat, PoolCompressed, PoolUsage, stat_seq,
};
pub use osd::{
    BackfillProgress, BackfillProgressAck, Heartbeat, Hurry, LeaseAsk, LeaseGrant, PartFate,
    PgPeering, PgTrim, PriorReader, Pull, Push, PushAck, PushCursor, RepAck, RepOp, Scan,
    ScanReply,
};
pub use recovery::{Place, RecoveryOrder, RecoveryPlace};
pub use scrub::{Reserve, ScrubAsk, ScrubList, ScrubOrder, ScrubReserve};
pub use view::{View, mapping, pool_rules};

/// Implements [`wire::msg::Payload`] for a struct whose derived encoding is the front; with
/// `data = field` one skipped field is the data segment.
macro_rules! payload {
    ($name:ident, $number:expr) => {
        $crate::payload!(@ $name, $number,);
    };
    ($name:ident, $number:expr, data = $data:ident) => {
        $crate::payload!(@ $name, $number, $data);
    };
    (@ $name:ident, $number:expr, $($data:ident)?) => {
        impl wire::msg::Payload for $name {
            const TYPE: u16 = wire::msg::kind::OURS_FROM + $number;
            const VERSION: u16 = 1;
            const COMPAT: u16 = 1;

            fn decode(m: &wire::msg::Message) -> Result<Self, denc::DecodeError> {
                #[allow(unused_mut)]
                let mut value: Self = denc::decode(&m.front)?;
                $(value.$data = m.data.clone();)?
                Ok(value)
            }

            fn encode(self) -> wire::msg::OutMessage {
                let out = wire::msg::OutMessage::new::<Self>(denc::encode_briefly(&self));
                $(let out = out.with_data(self.$data);)?
                out
            }
        }
    };
}
pub(crate) use payload;
