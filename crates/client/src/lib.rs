//! A client of the cluster, as a state machine without I/O.
//!
//! [`Client`] keeps one session with a mon and one with each OSD it has something to say to. Its
//! owner submits requests ([`ObjectOp`] for objects, and commands, pool operations, listings,
//! watches, notifies), hands every network event and the time to it, and takes completions out
//! ([`Client::poll`]) in the order in which they came to be. It can be embedded in another core (a
//! gateway, the OSD for copies between PGs), or be one by itself ([`ClientCore`]).
//!
//! ```
//! use client::{Client, ClientConfig, Object, ObjectOp, Outcome};
//! use io::Now;
//! use types::{AddrVec, PoolId};
//!
//! let mon = AddrVec::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
//! let mut client = Client::new(ClientConfig::new(vec![mon]), 1);
//! let now = Now::default();
//! client.start(now);
//! let object = Object::new(PoolId(2), "greeting");
//! let id = client.submit(now, ObjectOp::new(object).write_full("hello").stat()).unwrap();
//! // Later, after network events:
//! while let Some(done) = client.poll() {
//!     if let (true, Outcome::Op(Ok(reply))) = (done.id == id, &done.outcome) {
//!         println!("version {}", reply.user_version);
//!     }
//! }
//! ```
//!
//! **Promises.** A request ends with exactly one completion (a watch has further events). A write
//! that completed well was acknowledged by its PG's primary. Requests to one object are sent, and
//! sent again after a lost connection or a moved PG, in the order they were submitted; the primary
//! applies each once. A request waits as long as the cluster needs, unless it has a time limit;
//! [`Client::waiting`] says what each one waits for.
//!
//! **Bounds.** At most [`ClientConfig::max_ops`] and [`ClientConfig::max_bytes`] of object requests
//! are in flight; [`Client::submit`] gives a request back when there is no room ([`Busy`]).
//!
//! The rules are those of Ceph 16.2 `osdc/Objecter.cc` and `mon/MonClient.cc` (guide §3, §4.7, §5.9,
//! §5.10), except that there are no cache tiers.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod client;
mod config;
mod core;
mod error;
pub mod image;
mod mon;
mod objecter;
mod op;
mod outcome;
mod reply;

pub use client::Client;
pub use config::ClientConfig;
pub use core::ClientCore;
pub use error::{Busy, ClientError};
pub use objecter::{ListCursor, Waiting};
pub use op::{Object, ObjectOp};
pub use outcome::{CommandReply, Completion, MapVersions, NotifyResult, Outcome, Page, RequestId};
pub use reply::OpReply;
