//! The binary form of the OSDMap (`OSDMap::encode`; guide §4.1).
//!
//! `V(8,7){ V(9,1){client section} V(9,1){osd section} u32 crc }`. The checksum is over all bytes
//! before it, the outer header with its final length included. A map with a wrong checksum is an
//! error here; a real client ends its process.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::osd_info::Osd;
use crate::osdmap::{MAX_OSDS, OsdMap};
use crate::shared::Shared;
use bytes::Bytes;
use denc::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, Encoder, crc32c};
use std::sync::Arc;

/// Version and compat of the outer section, of full maps and of incrementals.
pub(crate) const OUTER: (u8, u8) = (8, 7);
/// Version and compat of the two inner sections of a full map.
const CLIENT: (u8, u8) = (9, 1);
const OSD: (u8, u8) = (9, 1);
/// What checksums start from.
pub(crate) const CRC_SEED: u32 = u32::MAX;
/// Newest versions of the inner sections that are read; what they add is skipped.
pub(crate) const NEWEST_READ: u8 = u8::MAX;

impl OsdMap {
    /// The encoding and its checksum, which goes into the incremental that leads to this map.
    pub fn encode_with_crc(&self) -> (Bytes, u32) {
        let mut e = Encoder::with_capacity(self.crush_bytes.len().saturating_add(4096));
        let crc = self.encode_to(&mut e);
        (e.into_bytes(), crc)
    }

    fn encode_to(&self, e: &mut Encoder) -> u32 {
        let start = e.len();
        e.section(OUTER.0, OUTER.1, |e| {
            e.section(CLIENT.0, CLIENT.1, |e| self.encode_client(e));
            e.section(OSD.0, OSD.1, |e| self.encode_osd(e));
            e.put(&0u32);
        });
        let at = e.len().saturating_sub(4);
        let before = e.as_slice().get(start..at).unwrap_or_default();
        let crc = crc32c(CRC_SEED, before);
        e.patch_u32(at, crc);
        crc
    }

    fn encode_client(&self, e: &mut Encoder) {
        e.put(&self.fsid).put(&self.epoch);
        e.put(&self.created).put(&self.modified);
        e.put(&self.pools).put(&self.pool_names).put(&self.pool_max);
        e.put(&self.flags).put(&self.max_osd());
        e.put(&self.states).put(&self.weights);
        put_each(&self.osds, e, |osd, e| osd.client_addrs.encode(e));
        e.put(&self.pg_temp).put(&self.primary_temp);
        e.put(&self.primary_affinity).put(&self.crush_bytes);
        e.put(&self.erasure_code_profiles);
        e.put(&self.pg_upmap).put(&self.pg_upmap_items);
        e.put(&self.crush_version);
        e.put(&self.new_removed_snaps).put(&self.new_purged_snaps);
        e.put(&self.last_up_change).put(&self.last_in_change);
    }

    fn encode_osd(&self, e: &mut Encoder) {
        put_each(&self.osds, e, |osd, e| osd.hb_back_addrs.encode(e));
        put_each(&self.osds, e, |osd, e| osd.info.encode(e));
        e.put(&self.blocklist);
        put_each(&self.osds, e, |osd, e| osd.cluster_addrs.encode(e));
        e.put(&self.cluster_snapshot_epoch).put(&self.cluster_snapshot);
        put_each(&self.osds, e, |osd, e| osd.uuid.encode(e));
        put_each(&self.osds, e, |osd, e| osd.xinfo.encode(e));
        put_each(&self.osds, e, |osd, e| osd.hb_front_addrs.encode(e));
        e.put(&self.nearfull_ratio).put(&self.full_ratio).put(&self.backfillfull_ratio);
        e.put(&self.require_min_compat_client).put(&self.require_osd_release);
        e.put(&self.removed_snaps_queue);
        e.put(&self.crush_node_flags).put(&self.device_class_flags);
    }
}

impl Encode for OsdMap {
    fn encode(&self, e: &mut Encoder) {
        self.encode_to(e);
    }
}

fn put_each(osds: &[Shared<Osd>], e: &mut Encoder, put: impl Fn(&Osd, &mut Encoder)) {
    e.put_count(osds.len());
    for osd in osds {
        put(osd, e);
    }
}

/// The outer section of a map as its own bytes: the checksum of its header, the version, and the
/// content.
pub(crate) fn take_outer(d: &mut Decoder<'_>) -> Result<(u32, Bytes), DecodeError> {
    let head: [u8; 6] = d.take_array()?;
    let [_, compat, len @ ..] = head;
    if compat > OUTER.0 {
        return Err(d.error(DecodeErrorKind::TooNew { compat }));
    }
    if compat < OUTER.1 {
        return Err(d.invalid("a map in the encoding of a release before Nautilus"));
    }
    let body = d.take(u32::from_le_bytes(len) as usize)?;
    Ok((crc32c(CRC_SEED, &head), body))
}

impl Decode for OsdMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (head_crc, body) = take_outer(d)?;
        let mut b = Decoder::new(&body);
        let mut map = b.section(NEWEST_READ, |d, v| decode_client(d, v))?;
        b.section(NEWEST_READ, |d, v| decode_osd(&mut map, d, v))?;
        let before = body.get(..b.position()).unwrap_or_default();
        let actual = crc32c(head_crc, before);
        if b.get::<u32>()? != actual {
            return Err(b.invalid("an OSDMap with a wrong checksum"));
        }
        Ok(map)
    }
}

/// Refuses sections without the fields that every map has since Octopus.
pub(crate) fn check_version(d: &Decoder<'_>, v: u8, oldest: u8) -> Result<(), DecodeError> {
    if v < oldest {
        return Err(d.invalid("a map section of an old release"));
    }
    Ok(())
}

fn decode_client(d: &mut Decoder<'_>, v: u8) -> Result<OsdMap, DecodeError> {
    check_version(d, v, CLIENT.0)?;
    let mut map = OsdMap {
        fsid: d.get()?,
        epoch: d.get()?,
        created: d.get()?,
        modified: d.get()?,
        pools: d.get()?,
        pool_names: d.get()?,
        pool_max: d.get()?,
        flags: d.get()?,
        ..OsdMap::default()
    };
    let max_osd = usize::try_from(d.get::<i32>()?).ok();
    map.states = d.get()?;
    map.weights = d.get()?;
    let n = map.states.len();
    if max_osd != Some(n) || map.weights.len() != n {
        return Err(d.invalid("an OSDMap whose OSD vectors do not have max_osd entries"));
    }
    if n > MAX_OSDS {
        return Err(d.invalid("an OSDMap with too many OSDs"));
    }
    map.osds.resize(n, Shared::default());
    get_each(&mut map, d, |osd, d| {
        osd.client_addrs = d.get()?;
        Ok(())
    })?;
    map.pg_temp = d.get()?;
    map.primary_temp = d.get()?;
    map.primary_affinity = d.get()?;
    if !map.primary_affinity.is_empty() && map.primary_affinity.len() != n {
        return Err(d.invalid("an OSDMap with a wrong number of primary affinities"));
    }
    let crush = d.take_bytes()?;
    map.set_crush(Arc::new(denc::decode(&crush)?));
    map.erasure_code_profiles = d.get()?;
    map.pg_upmap = d.get()?;
    map.pg_upmap_items = d.get()?;
    map.crush_version = d.get()?;
    map.new_removed_snaps = d.get()?;
    map.new_purged_snaps = d.get()?;
    map.last_up_change = d.get()?;
    map.last_in_change = d.get()?;
    Ok(map)
}

fn decode_osd(map: &mut OsdMap, d: &mut Decoder<'_>, v: u8) -> Result<(), DecodeError> {
    check_version(d, v, OSD.0)?;
    get_each(map, d, |osd, d| {
        osd.hb_back_addrs = d.get()?;
        Ok(())
    })?;
    get_each(map, d, |osd, d| {
        osd.info = d.get()?;
        Ok(())
    })?;
    map.blocklist = d.get()?;
    get_each(map, d, |osd, d| {
        osd.cluster_addrs = d.get()?;
        Ok(())
    })?;
    map.cluster_snapshot_epoch = d.get()?;
    map.cluster_snapshot = d.get()?;
    get_each(map, d, |osd, d| {
        osd.uuid = d.get()?;
        Ok(())
    })?;
    get_each(map, d, |osd, d| {
        osd.xinfo = d.get()?;
        Ok(())
    })?;
    get_each(map, d, |osd, d| {
        osd.hb_front_addrs = d.get()?;
        Ok(())
    })?;
    map.nearfull_ratio = d.get()?;
    map.full_ratio = d.get()?;
    map.backfillfull_ratio = d.get()?;
    map.require_min_compat_client = d.get()?;
    map.require_osd_release = d.get()?;
    map.removed_snaps_queue = d.get()?;
    map.crush_node_flags = d.get()?;
    map.device_class_flags = d.get()?;
    Ok(())
}

/// Reads one of the vectors with an entry for each OSD.
fn get_each(
    map: &mut OsdMap,
    d: &mut Decoder<'_>,
    get: impl Fn(&mut Osd, &mut Decoder<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    if d.count()? != map.osds.len() {
        return Err(d.invalid("an OSDMap whose OSD vectors do not have max_osd entries"));
    }
    map.osds.iter_mut().try_for_each(|osd| get(osd, d))
}
