//! What objects' data takes, counted by account: for an OSD, by pool.
//!
//! Transactions carry differences ([`AccountDelta`]), in the log too; checkpoints write the sums that
//! changed as rows of the tree, as they write bitmaps. So both always tell of the same moment.
//!
//! Every block that holds data belongs to one account, so that all of them together have what the allocator says.
//! Where they have not, or where more was taken from one than it had, a mount counts anew (`mount::recount`): stores
//! of earlier versions counted only what compression did. Where that cannot be done it gives up: the sums go on to be
//! changed, mean nothing, and are remembered as such, until somebody counts who has the time.

use crate::codec::{Decoded, Malformed, Reader, put_varint};
use crate::keys::{self, Key};
use bytes::Bytes;
use denc::{unzigzag, zigzag};
use std::collections::{BTreeMap, BTreeSet};

/// Only what compression did.
const FORMAT_PACKED: u8 = 1;
const FORMAT: u8 = 2;

/// The account of what nobody has: blocks that are marked as data, and that no object has. Nothing is stored in them;
/// where this account has something stored, counting was given up.
const NOBODY: u64 = u64::MAX;

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
            self.below_zero += u64::from(!fits && !self.is_given_up());
            self.dirty.insert(account);
        }
    }

    /// Takes over what was counted anew, in a store with so many blocks of data.
    pub fn replace(&mut self, sums: BTreeMap<u64, AccountSums>, data_blocks: u64) {
        self.dirty.extend(self.sums.keys().chain(sums.keys()));
        (self.sums, self.below_zero) = (sums, 0);
        let data = data_blocks.saturating_sub(self.total().data);
        if data > 0 {
            self.set_nobodys(AccountSums { data, ..AccountSums::default() });
        }
    }

    /// What accounts have cannot be known, and no mount is to try it again by itself.
    pub fn give_up(&mut self) {
        if !self.is_given_up() {
            self.set_nobodys(AccountSums { stored: 1, ..AccountSums::default() });
        }
        self.below_zero = 0;
    }

    pub fn is_given_up(&self) -> bool {
        self.nobodys().stored != 0
    }

    fn nobodys(&self) -> AccountSums {
        self.sums.get(&NOBODY).copied().unwrap_or_default()
    }

    fn set_nobodys(&mut self, sums: AccountSums) {
        self.sums.insert(NOBODY, sums);
        self.dirty.insert(NOBODY);
    }

    /// Whether the sums are right, in a store with so many blocks of data.
    pub fn is_known(&self, data_blocks: u64) -> bool {
        let data = self.total().data.saturating_add(self.nobodys().data);
        !self.is_given_up() && self.below_zero == 0 && data == data_blocks
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

    /// All accounts that count something, but nobody's.
    pub fn iter(&self) -> impl Iterator<Item = (u64, AccountSums)> {
        let all = self.sums.range(..NOBODY).filter(|(_, sums)| !sums.is_empty());
        all.map(|(account, sums)| (*account, *sums))
    }

    /// Changes that cannot be, since an account has less than they take from it: its objects were changed under
    /// another one.
    pub fn below_zero(&self) -> u64 {
        self.below_zero
    }

    /// The sums over all accounts but nobody's.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As the next mount finds it.
    fn again(mut accounts: Accounts) -> Accounts {
        let mut next = Accounts::default();
        accounts.freeze();
        for (key, row) in accounts.take_frozen() {
            let Ok(keys::Parsed::Account { account }) = keys::parse(&key) else {
                panic!("{key:?}")
            };
            row.into_iter().for_each(|row| next.load(account, AccountSums::decode(&row).unwrap()));
        }
        next
    }

    /// Blocks that are marked as data, and that no object has, were counted once and for all.
    #[test]
    fn what_nobody_has_is_nobodys() {
        let sums = AccountSums { data: 10, stored: 40_000, ..AccountSums::default() };
        let mut accounts = Accounts::default();
        accounts.add(3, AccountDelta { data: 1, ..AccountDelta::default() });
        accounts.replace([(1, sums)].into(), 12);
        let mut accounts = again(accounts);
        assert!(accounts.is_known(12) && !accounts.is_known(10));
        assert!(accounts.iter().eq([(1, sums)]) && accounts.total() == sums);
        accounts.replace([(1, sums)].into(), 10);
        assert!(accounts.is_known(10));
    }

    #[test]
    fn what_was_given_up_is_not_known_whatever_it_comes_to() {
        let mut accounts = Accounts::default();
        accounts.give_up();
        let mut accounts = again(accounts);
        accounts.add(1, AccountDelta { data: -5, stored: -20_000, ..AccountDelta::default() });
        assert!(accounts.is_given_up() && !accounts.is_known(0) && accounts.below_zero() == 0);
        accounts.replace(BTreeMap::new(), 0);
        let accounts = again(accounts);
        assert!(!accounts.is_given_up() && accounts.is_known(0));
    }

    /// Sums that fit are right only if none of them had to be less than nothing on the way.
    #[test]
    fn more_than_was_there_is_not_known() {
        let mut accounts = Accounts::default();
        accounts.add(1, AccountDelta { data: -5, stored: -20_000, ..AccountDelta::default() });
        assert!(!accounts.is_known(0));
    }
}
