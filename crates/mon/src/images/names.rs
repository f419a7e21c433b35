//! Names of images by their ids, from the object `rbd_directory` of a pool's namespace.
//!
//! The mon reads its omap as a client does, on the session that the OSD has with the mon.

use super::Place;
use maps::OsdMap;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ByteString, HObject, Mono, OsdId, ShardId, SnapId, SpgId};
use wire::msg::op_data::{OmapGetValsIn, OmapGetValsOut, output};
use wire::msg::{MOsdOp, MOsdOpReply, OpArgs, OpCode, OsdOp, flags};

/// The object that lists the images, and what keys that lead from ids to names begin with.
const DIRECTORY: &str = "rbd_directory";
const ID: &str = "id_";
/// Names of one answer.
const NAMES_AT_ONCE: u64 = 1024;
/// Names of one place that are remembered, at most.
const MAX_NAMES: usize = 65_536;
/// An answer that is not there after so long does not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// An unknown id is looked for again so long after the last time.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Images are renamed: names are read again so often (`POOL_REFRESH_INTERVAL`).
const REFRESH_EVERY: Duration = Duration::from_secs(300);

/// Part of a list that is to be read.
#[derive(Debug)]
pub(crate) struct NameRequest {
    pub tid: u64,
    pub place: Place,
    /// The last key that is here already.
    pub after: ByteString,
}

impl NameRequest {
    /// Whom to ask, and what.
    pub fn on(&self, map: &OsdMap) -> Option<(OsdId, MOsdOp)> {
        let (pool, nspace) = (self.place.0, ByteString::from(self.place.1.as_str()));
        let name: ByteString = DIRECTORY.into();
        let raw = map.object_to_pg(pool, &nspace, &ByteString::default(), &name)?;
        let pgid = map.raw_pg_to_pg(raw)?;
        let wanted = OmapGetValsIn {
            start_after: self.after.clone(),
            max: NAMES_AT_ONCE,
            prefix: ID.into(),
        };
        let read = OsdOp::new(OpCode::OMAPGETVALS, OpArgs::default());
        let request = MOsdOp {
            pgid: SpgId { pgid, shard: ShardId::NONE },
            object: HObject {
                pool,
                hash: raw.seed,
                nspace,
                key: ByteString::default(),
                name,
                snap: SnapId::HEAD,
                max: false,
            },
            locator_pool: pool,
            epoch: map.epoch,
            flags: flags::READ,
            ops: [read.with_indata(denc::encode(&wanted))].into_iter().collect(),
            ..MOsdOp::default()
        };
        Some((map.pg_to_up_acting(pgid).acting_primary?, request))
    }
}

/// A list being read.
#[derive(Debug)]
struct Reading {
    tid: u64,
    /// When the part on its way was asked for; `None`: it is to be asked for.
    since: Option<Mono>,
    after: ByteString,
    so_far: BTreeMap<String, String>,
}

/// The names in one place.
#[derive(Debug, Default)]
struct List {
    names: BTreeMap<String, String>,
    read_at: Option<Mono>,
    reading: Option<Reading>,
}

/// All names that were asked for.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: BTreeMap<Place, List>,
    last_tid: u64,
}

impl Names {
    pub fn get(&self, place: &Place, id: &str) -> Option<&str> {
        self.places.get(place)?.names.get(id).map(String::as_str)
    }

    /// The name of an image is wanted: its list is read if need be.
    pub fn want(&mut self, now: Mono, place: &Place, id: &str) {
        let list = self.places.entry(place.clone()).or_default();
        let keep = if list.names.contains_key(id) { REFRESH_EVERY } else { LOOK_AGAIN_AFTER };
        let is_fresh = list.read_at.is_some_and(|at| now.since(at) < keep);
        if list.reading.is_none() && !is_fresh {
            self.last_tid += 1;
            let (after, so_far) = (ByteString::default(), BTreeMap::new());
            list.reading = Some(Reading { tid: self.last_tid, since: None, after, so_far });
        }
    }

    /// What is to be asked for now.
    pub fn due(&mut self, now: Mono) -> Vec<NameRequest> {
        let mut out = Vec::new();
        for (place, list) in &mut self.places {
            let Some(reading) = &mut list.reading else { continue };
            if reading.since.is_some_and(|since| now.since(since) < ANSWER_WITHIN) {
                continue;
            }
            reading.since = Some(now);
            let (tid, after) = (reading.tid, reading.after.clone());
            out.push(NameRequest { tid, place: place.clone(), after });
        }
        out
    }

    /// Takes in part of a list.
    pub fn answered(&mut self, now: Mono, tid: u64, reply: &MOsdOpReply) {
        let is_asked = |list: &&mut List| list.reading.as_ref().is_some_and(|r| r.tid == tid);
        let Some(list) = self.places.values_mut().find(is_asked) else { return };
        let Some(mut reading) = list.reading.take() else { return };
        list.read_at = Some(now);
        let page = output::<OmapGetValsOut>(reply.ops.first()).ok();
        // Without images there is no list.
        let page = page.filter(|_| reply.result >= 0).unwrap_or_default();
        if let Some(last) = page.values.keys().next_back() {
            reading.after = last.clone();
        }
        let more = page.more && !page.values.is_empty() && reading.so_far.len() < MAX_NAMES;
        for (key, value) in page.values {
            let id = std::str::from_utf8(&key).ok().and_then(|key| key.strip_prefix(ID));
            if let (Some(id), Ok(name)) = (id, denc::decode_all::<String>(&value)) {
                reading.so_far.insert(id.to_owned(), name);
            }
        }
        if more {
            self.last_tid += 1;
            list.reading = Some(Reading { tid: self.last_tid, since: None, ..reading });
        } else {
            list.names = reading.so_far;
        }
    }
}
