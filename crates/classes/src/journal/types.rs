//! What a journal's header holds, as encoded.

use bytes::Bytes;
use denc::{Decode, Encode};

/// A place in the journal: ObjectPosition V(1,1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Position {
    pub object: u64,
    pub tag: u64,
    pub entry: u64,
}

/// Places in all objects that are written side by side, newest first: ObjectSetPosition V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct SetPosition {
    pub positions: Vec<Position>,
}

/// Who reads the journal, and how far it came: Client V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Client {
    pub id: Bytes,
    pub data: Bytes,
    pub committed: SetPosition,
    pub state: u8,
}

impl Client {
    /// What it has not read must be kept.
    pub const CONNECTED: u8 = 0;
    /// It has to begin anew.
    pub const DISCONNECTED: u8 = 1;
}

/// An epoch of the journal's writers: Tag V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Tag {
    pub tid: u64,
    pub class: u64,
    pub data: Bytes,
}

impl Tag {
    /// Class of a tag that shall get a class of its own.
    pub const NEW_CLASS: u64 = u64::MAX;
}
