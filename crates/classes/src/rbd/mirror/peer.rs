//! Clusters that a pool is mirrored to or from.

use super::types::{Peer, direction};
use super::{is_enabled, own_uuid};
use crate::input::args;
use crate::rbd::snapshot::new_uuid;
use crate::rbd::types::NO_POOL;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use types::{Errno, UTime};

const PREFIX: &str = "mirror_peer_";

/// All peers.
pub fn all(o: &mut dyn Object) -> CallResult<Vec<Peer>> {
    let listed = omap::list_as(o, PREFIX, b"", omap::ALL)?;
    Ok(listed.into_iter().map(|(_, peer)| peer).collect())
}

fn load(o: &mut dyn Object, uuid: &[u8]) -> CallResult<Peer> {
    omap::get(o, &omap::key(PREFIX, uuid))
}

fn save(o: &mut dyn Object, peer: &Peer) -> CallResult<Bytes> {
    omap::put(o, &omap::key(PREFIX, &peer.uuid), peer)?;
    Ok(Bytes::new())
}

pub fn mirror_peer_list(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&all(o)?))
}

/// A peer says that it is there.
pub fn mirror_peer_ping(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (site_name, mirror_uuid, way): (Bytes, Bytes, u8) = args(input)?;
    let named = !site_name.is_empty() && !mirror_uuid.is_empty();
    if way != direction::TX || !is_enabled(o)? || !named {
        return Err(Errno::EINVAL.into());
    }
    let peers = all(o)?;
    let by_uuid = peers.iter().find(|p| p.mirror_uuid == mirror_uuid);
    let by_site = peers.iter().find(|p| p.site_name == site_name);
    let mut peer = match (by_site, by_uuid) {
        // The site's uuid was not known, or is this one.
        (Some(p), _) if p.mirror_uuid.is_empty() || p.mirror_uuid == mirror_uuid => {
            Peer { mirror_uuid, ..p.clone() }
        }
        // Two peers: the uuid counts, and the name is not touched.
        (Some(_), Some(p)) => p.clone(),
        // The site got another uuid.
        (Some(p), None) => Peer { mirror_uuid, ..p.clone() },
        // The site got another name.
        (None, Some(p)) => Peer { site_name, ..p.clone() },
        (None, None) => new_sender(o, site_name, mirror_uuid)?,
    };
    if peer.direction == direction::RX {
        peer.direction = direction::RX_TX;
    }
    peer.last_seen = o.now();
    if !peer.is_valid() {
        return Err(Errno::EINVAL.into());
    }
    save(o, &peer)
}

/// A peer that we only send to, under a new uuid.
fn new_sender(o: &mut dyn Object, site_name: Bytes, mirror_uuid: Bytes) -> CallResult<Peer> {
    let uuid = new_uuid(o);
    if omap::has(o, &omap::key(PREFIX, &uuid))? {
        // That does not happen with random numbers that are random.
        return Err(Errno::EEXIST.into());
    }
    Ok(Peer {
        uuid,
        site_name,
        client_name: Bytes::new(),
        pool: NO_POOL,
        direction: direction::TX,
        mirror_uuid,
        last_seen: UTime::ZERO,
    })
}

pub fn mirror_peer_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let peer: Peer = args(input)?;
    if !is_enabled(o)? || !peer.is_valid() {
        return Err(Errno::EINVAL.into());
    }
    if own_uuid(o)? == peer.uuid || peer.direction == direction::TX {
        return Err(Errno::EINVAL.into());
    }
    for other in all(o)? {
        if other.uuid == peer.uuid {
            return Err(Errno::ESTALE.into());
        }
        let same_pool = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site_name == peer.site_name || same_pool {
            return Err(Errno::EEXIST.into());
        }
    }
    save(o, &Peer { pool: NO_POOL, ..peer })
}

pub fn mirror_peer_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let uuid: Bytes = args(input)?;
    omap::remove_any(o, &[omap::key(PREFIX, &uuid)])?;
    Ok(Bytes::new())
}

pub fn mirror_peer_set_client(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (uuid, client_name): (Bytes, Bytes) = args(input)?;
    let peer = Peer { client_name, ..load(o, &uuid)? };
    save(o, &peer)
}

/// Sets the name of the peer's site.
pub fn mirror_peer_set_cluster(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (uuid, site_name): (Bytes, Bytes) = args(input)?;
    let peers = all(o)?;
    if peers.iter().any(|p| p.uuid != uuid && p.site_name == site_name) {
        return Err(Errno::EEXIST.into());
    }
    let peer = peers.into_iter().find(|p| p.uuid == uuid).ok_or(Errno::ENOENT)?;
    save(o, &Peer { site_name, ..peer })
}

pub fn mirror_peer_set_direction(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (uuid, direction): (Bytes, u8) = args(input)?;
    let peer = Peer { direction, ..load(o, &uuid)? };
    save(o, &peer)
}
