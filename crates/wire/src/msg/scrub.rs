//! SCRUBLS: what a scrub found, for `rados list-inconsistent-obj`. Source: Ceph 16.2
//! `common/scrub_types.cc`, `osd/osd_types.cc: object_info_t::encode`.

use super::snaps::{ObjectLocator, name};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{ByteString, Eversion, HObject, OsdId, ReqId, SnapId, UTime};

/// The input of SCRUBLS: scrub_ls_arg_t V(1,1).
///
/// `u32 interval, u32 get_snapsets, str name, str nspace, u64 snap, u64 max_return`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubLsArg {
    /// The interval of the answer before; 0 to begin.
    pub interval: u32,
    /// Whether inconsistent snapshot sets are wanted, and not inconsistent objects.
    pub get_snapsets: bool,
    /// What was listed last: its name, empty to begin.
    pub after_name: ByteString,
    /// Its namespace.
    pub after_nspace: ByteString,
    /// Its snapshot.
    pub after_snap: SnapId,
    /// At most so many.
    pub max_return: u64,
}

impl Decode for ScrubLsArg {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| {
            Ok(ScrubLsArg {
                interval: d.get()?,
                get_snapsets: d.get::<u32>()? != 0,
                after_name: name(d)?,
                after_nspace: name(d)?,
                after_snap: d.get()?,
                max_return: d.get()?,
            })
        })
    }
}

/// The output of SCRUBLS: scrub_ls_result_t V(1,1). `u32 interval, vec<bytes> values`, each of them a
/// [`WrongObject`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubLsOut {
    /// First epoch of the PG's interval.
    pub interval: u32,
    /// What is wrong.
    pub values: Vec<Bytes>,
}

/// One copy: shard_info_t V(3,3).
///
/// `u64 errors, bool primary`, and unless it is missing: `map<str, bytes> attrs, u64 size, bool
/// omap_digest_present, u32 omap_digest, bool data_digest_present, u32 data_digest, bool selected_oi`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedCopy {
    /// What is wrong with it (`err_t`).
    pub errors: u64,
    /// It is the primary's.
    pub primary: bool,
    /// Its attributes: users' begin with `_`, the record ([`ObjectInfo`]) is `_`.
    pub attrs: BTreeMap<ByteString, Bytes>,
    /// Its size in bytes.
    pub size: u64,
    /// Digest of its omap.
    pub omap_digest: Option<u32>,
    /// Digest of its data.
    pub data_digest: Option<u32>,
    /// It is what the others are compared with.
    pub selected: bool,
}

impl ListedCopy {
    const MISSING: u64 = 1 << 1;
}

impl Encode for ListedCopy {
    fn encode(&self, e: &mut Encoder) {
        e.section(3, 3, |e| {
            e.put(&self.errors).put(&self.primary);
            if self.errors & Self::MISSING != 0 {
                return;
            }
            e.put(&self.attrs).put(&self.size);
            for digest in [self.omap_digest, self.data_digest] {
                e.put(&digest.is_some()).put(&digest.unwrap_or_default());
            }
            e.put(&self.selected);
        });
    }
}

/// An inconsistent object: inconsistent_obj_t V(2,2).
///
/// `u64 errors, object_id, u64 version, map<osd_shard, shard_info> shards, u64 union of their errors`;
/// object_id V(1,1) `str name, str nspace, str locator, u64 snap`; osd_shard V(1,1) `i32 osd, i8 -1`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongObject {
    /// In what copies differ (`obj_err_t`).
    pub errors: u64,
    /// Which object.
    pub object: HObject,
    /// Its version, as users see it.
    pub version: u64,
    /// Its copies.
    pub copies: BTreeMap<OsdId, ListedCopy>,
}

impl Encode for WrongObject {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 2, |e| {
            e.put(&self.errors);
            e.section(1, 1, |e| {
                let o = &self.object;
                e.put_bytes(&o.name);
                e.put_bytes(&o.nspace);
                e.put_bytes(&o.key);
                e.put(&o.snap);
            });
            e.put(&self.version).put(&(self.copies.len() as u32));
            for (osd, copy) in &self.copies {
                e.section(1, 1, |e| {
                    e.put(&osd.0).put(&0xffu8);
                });
                e.put(copy);
            }
            e.put(&self.copies.values().fold(0u64, |all, c| all | c.errors));
        });
    }
}

/// What an OSD of Ceph keeps with an object: object_info_t V(17,8). Tools show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The object.
    pub object: HObject,
    /// Its version.
    pub version: Eversion,
    /// Its version, as users see it.
    pub user_version: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its time of change.
    pub mtime: UTime,
    /// See `truncate_size`.
    pub truncate_seq: u64,
    /// CephFS: the size that the last truncation left.
    pub truncate_size: u64,
    /// `object_info_t::flag_t`
    pub flags: u32,
    /// Expected bytes of the object.
    pub expected_object_bytes: u64,
    /// Expected bytes of a write.
    pub expected_write_bytes: u64,
    /// Hints.
    pub hint_flags: u32,
}

impl ObjectInfo {
    /// The head exists only for its clones.
    pub const WHITEOUT: u32 = 1 << 1;
    /// It has an omap.
    pub const OMAP: u32 = 1 << 3;
}

impl Encode for ObjectInfo {
    fn encode(&self, e: &mut Encoder) {
        e.section(17, 8, |e| {
            let o = &self.object;
            let locator = ObjectLocator {
                pool: o.pool,
                key: o.key.clone(),
                nspace: o.nspace.clone(),
                hash: -1,
            };
            e.put(o).put(&locator).put(&0u32);
            e.put(&self.version).put(&Eversion::ZERO).put(&ReqId::default());
            e.put(&self.size).put(&self.mtime);
            if o.is_head() {
                e.put(&ReqId::default());
            } else {
                e.put(&0u32);
            }
            e.put(&self.truncate_seq).put(&self.truncate_size);
            // Not lost; no watchers in the old form.
            e.put(&false).put(&0u32);
            let user = Eversion { version: self.user_version, ..Eversion::ZERO };
            // No tmap; watchers are left out.
            e.put(&user).put(&false).put(&0u32);
            e.put(&self.flags).put(&self.mtime);
            // No digests are recorded.
            e.put(&u32::MAX).put(&u32::MAX);
            e.put(&self.expected_object_bytes).put(&self.expected_write_bytes);
            e.put(&self.hint_flags);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_ceph_writes_it() {
        let bytes: &[u8] = &[
            1, 1, 40, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'o', 3, 0, 0, 0, b'n', b's',
            b'p', 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 32, 0, 0, 0, 0, 0, 0, 0,
        ];
        let mut bytes = bytes.to_vec();
        bytes[2] = (bytes.len() - 6) as u8;
        let arg: ScrubLsArg = denc::decode_all(&bytes.into()).expect("it is whole");
        assert_eq!((arg.interval, arg.get_snapsets, arg.max_return), (7, false, 32));
        assert_eq!((&arg.after_name[..], &arg.after_nspace[..]), (&b"o"[..], &b"nsp"[..]));
        assert_eq!(arg.after_snap, SnapId::HEAD);
    }

    /// Of a copy that is not there nothing follows its errors.
    #[test]
    fn a_missing_copy_is_short() {
        let missing =
            ListedCopy { errors: ListedCopy::MISSING, primary: true, ..Default::default() };
        assert_eq!(denc::encode(&missing)[..], [3, 3, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        let there = ListedCopy { omap_digest: Some(5), ..ListedCopy::default() };
        // errors, primary, no attrs, size, two digests, selected
        assert_eq!(denc::encode(&there).len(), 6 + 8 + 1 + 4 + 8 + 5 + 5 + 1);
    }
}
