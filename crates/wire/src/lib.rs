//! Ceph's protocol without I/O: from network events to messages and back.
//!
//! Four layers, each usable alone:
//!
//! * [`frame`]: msgr2.1 frames, their checksums and bounds; reading without copying;
//! * [`connection`]: one TCP connection, from the banner over authentication to an open session;
//! * [`messenger`]: all connections of a process; lossy and lossless links, reconnects, time-outs;
//! * [`msg`]: every message as a typed struct, both directions.
//!
//! Nothing here opens a socket, reads a clock or knows what a message means. Bytes from outside
//! never panic: whatever is wrong ends the connection they came on, with one line in the log.
//!
//! Source of the facts: Ceph 16.2, `src/msg/async/{ProtocolV2,frames_v2}.cc`, `src/messages`.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod connection;
pub mod frame;
pub mod messenger;
pub mod msg;

mod error;
mod fuzz;

pub use error::ProtocolError;
pub use fuzz::{fuzz_frames, fuzz_messages};
pub use messenger::{
    CloseWhy, Dial, Identity, LinkId, ListenerConfig, Messenger, MsgrEvent, PeerInfo, Policy,
};
pub use msg::{Header, Message, OutMessage, Payload, Pieces};
