//! What objects' data takes, counted by account: for an OSD, by pool.
//!
//! Transactions carry differences ([`AccountDelta`]), in the log too; checkpoints write the sums that
//! changed as rows of the tree, as they write bitmaps. So both always tell of the same moment.
//!
//! Every block that holds data belongs to one account, so that all of them together have what the allocator says.
//! Where they have not, a mount counts anew (`mount::recount`): stores of earlier versions counted only what
//! compression did. Until then nothing is said of what an account takes. Sums that agree are right each for itself:
//! what the log takes from an account that was never counted stays behind as a surplus of the others, until there is
//! nothing left that was not counted.

use crate::codec::{Decoded, Malformed, Reader, put_varint};
use crate::keys::{self, Key};
use bytes::Bytes;
use denc::{unzigzag, zigzag};
use std::collections::{BTreeMap, BTreeSet};

/// Only what compression did.
const FORMAT_PACKED: u8 = 1;
const FORMAT: u8 = 2;

/// What the objects of one account take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountSums {
    /// Blocks of the device; those that several objects share count once.
    pub data: u64,
    /// Bytes of objects that are no holes, each object's for itself: blocks, less what [`crate::rows::Onode::padding`]
    /// says of each object. Objects that end in a hole can make that less than nothing.
    pub stored: i64,
    pub packed: PackedSums,
}

/// What compression did: blocks of content, and what they are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedSums {
    /// Blocks of objects that are in blobs; each object's for itself.
    pub content: u64,
    /// Blocks of the device that blobs take; those that several objects share count once.
    pub blocks: u64,
    /// Bytes of them that are used.
    pub bytes: u64,
}

impl AccountSums {
    pub fn is_empty(&self) -> bool {
        *self == AccountSums::default()
    }

    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        let PackedSums { content, blocks, bytes } = self.packed;
        for n in [content, blocks, bytes, self.data, zigzag(self.stored)] {
            put_varint(&mut out, n);
        }
        out.into()
    }

    pub fn decode(row: &[u8]) -> Decoded<AccountSums> {
        let mut r = Reader::new(row);
        let format = r.u8()?;
        if ![FORMAT_PACKED, FORMAT].contains(&format) {
            return Err(Malformed("an account of an unknown format"));
        }
        let packed = PackedSums { content: r.varint()?, blocks: r.varint()?, bytes: r.varint()? };
        let mut sums = AccountSums { packed, ..AccountSums::default() };
        if format == FORMAT {
            (sums.data, sums.stored) = (r.varint()?, unzigzag(r.varint()?));
        }
        r.finish()?;
        Ok(sums)
    }

    /// `false`: more goes than was there, so that the sums are wrong from now on.
    fn add(&mut self, delta: AccountDelta) -> bool {
        let PackedSums { content, blocks, bytes } = &mut self.packed;
        let PackedDelta { content: more_content, blocks: more_blocks, bytes: more_bytes } =
            delta.packed;
        self.stored = self.stored.saturating_add(delta.stored);
        let sums = [&mut self.data, content, blocks, bytes];
        let changes = [delta.data, more_content, more_blocks, more_bytes];
        sums.into_iter().zip(changes).fold(true, |fits, (sum, change)| {
            let new = sum.checked_add_signed(change);
            *sum = new.unwrap_or(0);
            fits && new.is_some()
        })
    }
}

/// How a transaction changes the sums of its account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountDelta {
    pub data: i64,
    pub stored: i64,
    pub packed: PackedDelta,
}

/// The part of it that compression did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedDelta {
    pub content: i64,
    pub blocks: i64,
    pub bytes: i64,
}

impl AccountDelta {
    pub fn is_empty(&self) -> bool {
        *self == AccountDelta::default()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let PackedDelta { content, blocks, bytes } = self.packed;
        for n in [content, blocks, bytes, self.data, self.stored] {
            put_varint(out, zigzag(n));
        }
    }

    /// Reads what [`AccountDelta::encode`] wrote; `packed`: what did so before there was more.
    pub fn decode(r: &mut Reader<'_>, packed: bool) -> Decoded<AccountDelta> {
        let mut next = || r.varint().map(unzigzag);
        let packed_delta = PackedDelta { content: next()?, blocks: next()?, bytes: next()? };
        let mut delta = AccountDelta { packed: packed_delta, ..AccountDelta::default() };
        if !packed {
            (delta.data, delta.stored) = (next()?, next()?);
        }
        Ok(delta)
    }
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    sums: BTreeMap<u64, AccountSums>,
    dirty: BTreeSet<u64>,
    frozen: Vec<(Key, Option<Bytes>)>,
    /// Changes by which a sum would have been less than nothing.
    below_zero: u64,
}

impl Accounts {
    /// Mount: the sums of an account as the last checkpoint wrote them.
    pub fn load(&mut self, account: u64, sums: AccountSums) {
        self.sums.insert(account, sums);
    }

    /// Counts what a transaction changed.
    pub fn add(&mut self, account: u64, delta: AccountDelta) {
        if !delta.is_empty() {
            let fits = self.sums.entry(account).or_default().add(delta);
            self.below_zero += u64::from(!fits);
            self.dirty.insert(account);
        }
    }

    /// Takes over what was counted anew.
    pub fn replace(&mut self, sums: BTreeMap<u64, AccountSums>) {
        self.dirty.extend(self.sums.keys().chain(sums.keys()));
        (self.sums, self.below_zero) = (sums, 0);
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
    pub fn iter(&self) -> impl Iterator<Item = (u64, AccountSums)> {
        self.sums.iter().filter(|(_, sums)| !sums.is_empty()).map(|(a, sums)| (*a, *sums))
    }

    /// Changes that cannot be, since an account has less than they take from it: its objects were changed under
    /// another one.
    pub fn below_zero(&self) -> u64 {
        self.below_zero
    }

    /// The sums over all accounts.
    pub fn total(&self) -> AccountSums {
        self.iter().fold(AccountSums::default(), |all, (_, sums)| AccountSums {
            data: all.data.saturating_add(sums.data),
            stored: all.stored.saturating_add(sums.stored),
            packed: PackedSums {
                content: all.packed.content.saturating_add(sums.packed.content),
                blocks: all.packed.blocks.saturating_add(sums.packed.blocks),
                bytes: all.packed.bytes.saturating_add(sums.packed.bytes),
            },
        })
    }
}
