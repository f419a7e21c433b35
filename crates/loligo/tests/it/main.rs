//! Tests of the whole: the house rules, and (`interop`) real Ceph tools against a cluster of real
//! processes.
//!
//! The interop tests start one cluster from the built binary in a temporary folder and share it.
//! `LOLIGO_IT_CONF=FILE` points them at a running cluster instead, be it one of real Ceph: then the
//! tests themselves are put to the test.
#![allow(clippy::unwrap_used)]

mod house;
mod interop;
mod quiet;
