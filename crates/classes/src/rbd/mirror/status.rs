//! How the mirroring of images goes, as instances of rbd-mirror say. What an instance said counts
//! as long as it watches the object.

use super::image;
use super::types::{Image, Inst, Origin, Peer, SiteStatus, Status, StoredStatus, direction, state};
use crate::input::{ListArgs, Tail, args};
use crate::object::if_found;
use crate::{CallError, CallResult, Object, omap};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::Errno;

/// What the own site's instances say, by the image's global id.
const LOCAL: &str = "status_global_";
/// What others say: global id, `_`, the other site's mirror uuid.
const REMOTE: &str = "remote_status_global_";

fn remote_prefix(global_id: &[u8]) -> Bytes {
    omap::key(REMOTE, &[global_id, b"_"].concat())
}

fn key(global_id: &[u8], mirror_uuid: &[u8]) -> Bytes {
    if mirror_uuid.is_empty() {
        omap::key(LOCAL, global_id)
    } else {
        omap::key(remote_prefix(global_id), mirror_uuid)
    }
}

fn watchers(o: &mut dyn Object) -> CallResult<Vec<Inst>> {
    Ok(o.watchers()?.into_iter().map(Inst::from).collect())
}

/// What all sites say about an image; ENOENT when none does.
fn load(o: &mut dyn Object, global_id: &[u8], watchers: &[Inst]) -> CallResult<Status> {
    let shown = |stored: StoredStatus, mirror_uuid: Bytes| {
        let up = watchers.contains(&stored.origin.inst);
        SiteStatus { up, mirror_uuid, ..stored.status }
    };
    let mut sites = Vec::new();
    if let Some(stored) = omap::find(o, &key(global_id, b""))? {
        sites.push(shown(stored, Bytes::new()));
    }
    for (mirror_uuid, stored) in omap::list_as(o, remote_prefix(global_id), b"", omap::ALL)? {
        sites.push(shown(stored, mirror_uuid));
    }
    if sites.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(Status { sites }) }
}

/// Removes what all sites say about an image.
pub fn forget(o: &mut dyn Object, global_id: &[u8]) -> CallResult<()> {
    let listed = omap::list(o, remote_prefix(global_id), b"", omap::ALL)?;
    let mut keys = vec![key(global_id, b"")];
    keys.extend(listed.into_iter().map(|(uuid, _)| key(global_id, &uuid)));
    omap::remove_any(o, &keys)
}

pub fn mirror_image_status_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (global_id, said): (Bytes, SiteStatus) = args(input)?;
    if !image::is_enabled(o, &global_id)? {
        // It is too late: nobody asks for it any more.
        return Ok(Bytes::new());
    }
    let key = key(&global_id, &said.mirror_uuid);
    let last_update = o.now();
    // The site stands in the key.
    let status = SiteStatus { mirror_uuid: Bytes::new(), up: false, last_update, ..said };
    let origin = Origin { inst: o.caller().into() };
    omap::put(o, &key, &StoredStatus { origin, status })?;
    Ok(Bytes::new())
}

pub fn mirror_image_status_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let global_id: Bytes = args(input)?;
    forget(o, &global_id)?;
    Ok(Bytes::new())
}

pub fn mirror_image_status_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let global_id: Bytes = args(input)?;
    let watchers = watchers(o)?;
    Ok(denc::encode(&load(o, &global_id, &watchers)?))
}

pub fn mirror_image_status_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let watchers = watchers(o)?;
    let images = omap::list_as::<Image>(o, image::PREFIX, &after, max)?;
    let mut statuses = BTreeMap::new();
    for (id, image) in &images {
        match load(o, &image.global_id, &watchers) {
            Ok(status) => drop(statuses.insert(id.clone(), status)),
            Err(CallError::Fail(_)) => {}
            Err(interrupted) => return Err(interrupted),
        }
    }
    Ok(denc::encode(&(BTreeMap::from_iter(images), statuses)))
}

pub fn mirror_image_status_get_summary(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let Tail(peers): Tail<Vec<Peer>> = args(input)?;
    let peers = peers.unwrap_or_default();
    let way = common_direction(&peers);
    let receivers: BTreeSet<Bytes> =
        peers.into_iter().filter(|p| p.direction != direction::RX).map(|p| p.mirror_uuid).collect();
    let watchers = watchers(o)?;
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in omap::list_as::<Image>(o, image::PREFIX, b"", omap::ALL)? {
        let status = if_found(load(o, &image.global_id, &watchers))?.unwrap_or_default();
        let count = counts.entry(summary_state(way, &receivers, &status)).or_default();
        *count = count.saturating_add(1);
    }
    Ok(denc::encode(&counts))
}

/// Which way a pool with these peers is mirrored.
fn common_direction(peers: &[Peer]) -> u8 {
    let first = peers.first().map_or(direction::RX, |p| p.direction);
    let mut senders = peers.iter().map(|p| p.direction).filter(|&d| d != direction::RX);
    if senders.all(|d| d == first) { first } else { direction::RX_TX }
}

/// The state of an image in the pool's summary: the worst that those who count say.
fn summary_state(way: u8, receivers: &BTreeSet<Bytes>, status: &Status) -> u8 {
    let mut worst = None;
    if matches!(way, direction::RX | direction::RX_TX) {
        worst = status.local().filter(|s| s.up).map(|s| s.state);
    }
    let mut unheard = 0;
    if matches!(way, direction::TX | direction::RX_TX) {
        unheard = receivers.len();
        for remote in status.remote() {
            if unheard > 0 && receivers.contains(&remote.mirror_uuid) {
                unheard -= 1;
            }
            let said = if remote.up { remote.state } else { state::UNKNOWN };
            worst = match worst {
                _ if remote.state == state::ERROR => Some(state::ERROR),
                Some(state::ERROR) => worst,
                Some(before) => Some(before.min(said)),
                None => Some(said),
            };
        }
    }
    worst.filter(|_| unheard == 0).unwrap_or(state::UNKNOWN)
}

/// Removes what was said by instances that watch no more.
pub fn mirror_image_status_remove_down(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let watchers = watchers(o)?;
    let mut down = Vec::new();
    for prefix in [LOCAL, REMOTE] {
        for (name, origin) in omap::list_as::<Origin>(o, prefix, b"", omap::ALL)? {
            if !watchers.contains(&origin.inst) {
                down.push(omap::key(prefix, &name));
            }
        }
    }
    omap::remove_any(o, &down)?;
    Ok(Bytes::new())
}

/// The instance that handles an image; ESTALE when it watches no more.
fn instance(o: &mut dyn Object, global_id: &[u8], watchers: &[Inst]) -> CallResult<Inst> {
    let inst = omap::get::<StoredStatus>(o, &key(global_id, b""))?.origin.inst;
    if watchers.contains(&inst) { Ok(inst) } else { Err(Errno::ESTALE.into()) }
}

pub fn mirror_image_instance_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let global_id: Bytes = args(input)?;
    let watchers = watchers(o)?;
    Ok(denc::encode(&instance(o, &global_id, &watchers)?))
}

pub fn mirror_image_instance_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let watchers = watchers(o)?;
    let mut instances = BTreeMap::new();
    // Images without an instance do not count, so all may have to be looked at.
    for (id, image) in omap::list_as::<Image>(o, image::PREFIX, &after, omap::ALL)? {
        if instances.len() as u64 >= max {
            break;
        }
        match instance(o, &image.global_id, &watchers) {
            Ok(inst) => drop(instances.insert(id, inst)),
            Err(CallError::Fail(_)) => {}
            Err(interrupted) => return Err(interrupted),
        }
    }
    Ok(denc::encode(&instances))
}
