//! What compression did, counted by account: for an OSD, by pool.
//!
//! Transactions carry differences ([`PackedDelta`]), in the log too; checkpoints write the sums that
//! changed as rows of the tree, as they write bitmaps.

use crate::codec::{Decoded, Malformed, Reader, put_varint};
use crate::keys::{self, Key};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const FORMAT: u8 = 1;

/// What compression did to what one account counts: blocks of content, and what they are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedSums {
    /// Blocks of objects that are in blobs; each object's for itself.
    pub content: u64,
    /// Blocks of the device that blobs take; those that several objects share count once.
    pub blocks: u64,
    /// Bytes of them that are used.
    pub bytes: u64,
}

impl PackedSums {
    pub fn is_empty(&self) -> bool {
        *self == PackedSums::default()
    }

    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        [self.content, self.blocks, self.bytes].iter().for_each(|n| put_varint(&mut out, *n));
        out.into()
    }

    pub fn decode(row: &[u8]) -> Decoded<PackedSums> {
        let mut r = Reader::new(row);
        if r.u8()? != FORMAT {
            return Err(Malformed("an account of an unknown format"));
        }
        let sums = PackedSums { content: r.varint()?, blocks: r.varint()?, bytes: r.varint()? };
        r.finish()?;
        Ok(sums)
    }
}

/// How a transaction changes the sums of its account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedDelta {
    pub content: i64,
    pub blocks: i64,
    pub bytes: i64,
}

impl PackedDelta {
    pub fn is_empty(&self) -> bool {
        *self == PackedDelta::default()
    }
}

impl PackedSums {
    /// `false`: more goes than was there, so that the sums are wrong from now on.
    fn add(&mut self, delta: PackedDelta) -> bool {
        let sums = [&mut self.content, &mut self.blocks, &mut self.bytes];
        let changes = [delta.content, delta.blocks, delta.bytes];
        sums.into_iter().zip(changes).fold(true, |fits, (sum, change)| {
            let new = sum.checked_add_signed(change);
            *sum = new.unwrap_or(0);
            fits && new.is_some()
        })
    }
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    sums: BTreeMap<u64, PackedSums>,
    dirty: BTreeSet<u64>,
    frozen: Vec<(Key, Option<Bytes>)>,
    /// Changes by which a sum would have been less than nothing.
    below_zero: u64,
}

impl Accounts {
    /// Mount: the sums of an account as the last checkpoint wrote them.
    pub fn load(&mut self, account: u64, sums: PackedSums) {
        self.sums.insert(account, sums);
    }

    /// Counts what a transaction changed.
    pub fn add(&mut self, account: u64, delta: PackedDelta) {
        if !delta.is_empty() {
            let fits = self.sums.entry(account).or_default().add(delta);
            self.below_zero += u64::from(!fits);
            self.dirty.insert(account);
        }
    }

    /// From now on, what changes belongs to the next checkpoint.
    pub fn freeze(&mut self) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        for account in std::mem::take(&mut self.dirty) {
            let sums = self.sums.get(&account).copied().unwrap_or_default();
            let row = (!sums.is_empty()).then(|| sums.encode());
            if row.is_none() {
                self.sums.remove(&account);
            }
            self.frozen.push((keys::account(account), row));
        }
    }

    /// The rows of the running checkpoint, as they were when it was frozen.
    pub fn take_frozen(&mut self) -> Vec<(Key, Option<Bytes>)> {
        std::mem::take(&mut self.frozen)
    }

    /// Rows that wait to be written.
    pub fn waiting(&self) -> u64 {
        (self.dirty.len() + self.frozen.len()) as u64
    }

    /// All accounts that count something.
    pub fn iter(&self) -> impl Iterator<Item = (u64, PackedSums)> {
        self.sums.iter().filter(|(_, sums)| !sums.is_empty()).map(|(a, sums)| (*a, *sums))
    }

    /// Changes that cannot be, since an account has less than they take from it: its objects were changed under
    /// another one.
    pub fn below_zero(&self) -> u64 {
        self.below_zero
    }

    /// The sums over all accounts.
    pub fn total(&self) -> PackedSums {
        self.iter().fold(PackedSums::default(), |all, (_, sums)| PackedSums {
            content: all.content.saturating_add(sums.content),
            blocks: all.blocks.saturating_add(sums.blocks),
            bytes: all.bytes.saturating_add(sums.bytes),
        })
    }
}
