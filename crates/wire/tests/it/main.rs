//! Integration tests of `wire`: captured conversations, and messengers on a virtual network.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too.

mod captures;
mod hostile;
mod lossless;
mod messages;
mod network;
mod races;
mod room;
mod scripted;
mod vectors;
mod virtual_net;
