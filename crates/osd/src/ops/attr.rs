//! Operations on attributes.
//!
//! A user's attribute `x` is stored as `_x`, so that no user can touch the OSD's own.

use super::{Run, Stop};
use bytes::Bytes;
use types::{ByteString, Errno};
use wire::msg::OsdOp;
use wire::msg::op::cmp_op;
use wire::msg::op_data::{Values, xattr_in};

/// `osd_max_attr_name_len`
const MAX_ATTR_NAME_BYTES: usize = 100;

/// The stored name of a user's attribute.
pub fn stored_name(name: &[u8]) -> Bytes {
    [b"_", name].concat().into()
}

impl Run<'_> {
    /// A user's attribute as it was before the request.
    fn attr(&self, name: &ByteString) -> Result<Option<Bytes>, Stop> {
        if !self.is_stored() {
            return Err(Errno::ENOENT.into());
        }
        let name = stored_name(name);
        Ok(self.reader.store.attr(&self.source_key, &name)?)
    }

    pub(super) fn op_getxattr(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let (name, _) = xattr_in(op)?;
        let value = self.attr(&name)?.ok_or(Errno::ENODATA)?;
        self.put(i, value);
        Ok(0)
    }

    pub(super) fn op_getxattrs(&mut self, i: usize) -> Result<i32, Stop> {
        if !self.is_stored() {
            return Err(Errno::ENOENT.into());
        }
        let mut values = Values::new();
        for (name, value) in self.reader.store.attrs(&self.source_key)?.unwrap_or_default() {
            if let Some(name) = name.strip_prefix(b"_") {
                values.insert(name.into(), value);
            }
        }
        self.put(i, denc::encode(&values));
        Ok(0)
    }

    /// Tests "given OP stored"; a missing attribute compares as empty. Success is 1.
    pub(super) fn op_cmpxattr(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let (name, given) = xattr_in(op)?;
        let args = op.args.xattr();
        let stored = self.attr(&name)?.unwrap_or_default();
        let order = match args.cmp_mode {
            cmp_op::MODE_STRING => given.cmp(&stored),
            cmp_op::MODE_U64 => given_number(&given)?.cmp(&stored_number(&stored)),
            _ => return Err(Errno::EINVAL.into()),
        };
        let holds = match args.cmp_op {
            cmp_op::EQ => order.is_eq(),
            cmp_op::NE => order.is_ne(),
            cmp_op::GT => order.is_gt(),
            cmp_op::GTE => order.is_ge(),
            cmp_op::LT => order.is_lt(),
            cmp_op::LTE => order.is_le(),
            _ => return Err(Errno::EINVAL.into()),
        };
        if holds { Ok(1) } else { Err(Errno::ECANCELED.into()) }
    }

    pub(super) fn op_setxattr(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        // Before the name is looked at, as Ceph does.
        if op.args.xattr().name_len as usize > MAX_ATTR_NAME_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (name, value) = xattr_in(op)?;
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.set_attr(&key, stored_name(&name), value);
        Ok(0)
    }

    pub(super) fn op_rmxattr(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let (name, _) = xattr_in(op)?;
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.rm_attr(&key, stored_name(&name));
        Ok(0)
    }
}

/// The given value of a comparison as number: u64, little-endian.
fn given_number(given: &Bytes) -> Result<u64, Stop> {
    Ok(denc::decode(given)?)
}

/// The stored value as number: decimal text, as far as it goes; empty is 0.
fn stored_number(stored: &[u8]) -> u64 {
    let digits = stored.iter().take_while(|c| c.is_ascii_digit());
    digits.fold(0, |n: u64, c| n.wrapping_mul(10).wrapping_add(u64::from(c - b'0')))
}
