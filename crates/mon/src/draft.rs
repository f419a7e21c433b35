//! Changes that are being made: what the next commit takes to the store.
//!
//! All changes of one turn of the loop come together here and are committed in one batch. While a
//! commit is under way no new draft is begun ([`Mon`](crate::Mon) keeps requests waiting), so that
//! a draft always starts from what is committed.
//!
//! The OSDMap is changed through [`Draft::edit`]: each edit is tried on the map at once and refused
//! as a whole when the resulting incremental cannot be applied. [`Draft::map`] shows the map as it
//! will be.

use admin::CommandError;
use bytes::Bytes;
use io::kv::KvBatch;
use maps::{Incremental, MAX_OSDS, OsdMap, OsdState};
use std::sync::Arc;
use types::{OsdId, UTime};

/// Changes to be committed together.
#[derive(Debug, Default)]
pub struct Draft {
    osdmap: Option<OsdMapDraft>,
    batch: KvBatch,
    /// Whether `ceph config` changed: sessions get new configurations.
    pub config_changed: bool,
}

#[derive(Debug)]
struct OsdMapDraft {
    inc: Incremental,
    map: Arc<OsdMap>,
}

impl Draft {
    /// Whether nothing is to be committed.
    pub fn is_empty(&self) -> bool {
        self.osdmap.is_none() && self.batch.is_empty()
    }

    /// Whether there will be a new epoch.
    pub fn has_epoch(&self) -> bool {
        self.osdmap.is_some()
    }

    /// Whether the state of an OSD is being changed already: then a further change of it has to
    /// wait for the next epoch.
    pub fn touches(&self, id: OsdId) -> bool {
        self.osdmap.as_ref().is_some_and(|d| {
            d.inc.new_state.contains_key(&id) || d.inc.new_up_client.contains_key(&id)
        })
    }

    /// The map as it will be; `committed` is the newest map there is.
    pub fn map<'a>(&'a self, committed: &'a Arc<OsdMap>) -> &'a Arc<OsdMap> {
        self.osdmap.as_ref().map_or(committed, |d| &d.map)
    }

    /// Changes the OSDMap. `edit` is given the map as it will be without this change.
    ///
    /// # Errors
    /// What `edit` says; then nothing is changed. EINVAL when the change cannot be.
    pub fn edit<R>(
        &mut self,
        committed: &Arc<OsdMap>,
        edit: impl FnOnce(&mut Incremental, &OsdMap) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let (mut inc, before) = match &self.osdmap {
            Some(d) => (d.inc.clone(), d.map.clone()),
            None => (Incremental::after(committed), committed.clone()),
        };
        let result = edit(&mut inc, &before)?;
        if inc.is_empty() {
            self.osdmap = None;
            return Ok(result);
        }
        let mut map = OsdMap::clone(committed);
        map.apply(&inc).map_err(|e| CommandError::new(e.errno(), e))?;
        check_devices(committed, &map)?;
        self.osdmap = Some(OsdMapDraft { inc, map: Arc::new(map) });
        Ok(result)
    }

    /// Sets a key of the store.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.batch.put(key, value);
    }

    /// Removes a key of the store.
    pub fn remove(&mut self, key: impl Into<Bytes>) {
        self.batch.remove(key);
    }

    /// Ends the draft: the new map, if there is one, its incremental with checksums, both encoded,
    /// and the other changes.
    pub fn close(&mut self, committed: &Arc<OsdMap>, now: UTime) -> Closed {
        let osdmap = self.osdmap.take().map(|d| {
            let mut inc = d.inc;
            stamp(&mut inc, committed, now);
            let mut map = OsdMap::clone(committed);
            map.apply(&inc).expect("it could be applied when it was edited");
            let (full_bytes, crc) = map.encode_with_crc();
            inc.full_crc = crc;
            NewMap { map: Arc::new(map), full_bytes, inc_bytes: denc::encode(&inc) }
        });
        Closed {
            osdmap,
            batch: std::mem::take(&mut self.batch),
            config_changed: std::mem::take(&mut self.config_changed),
        }
    }
}

/// That a CRUSH map gets no devices that no OSD can be. One that has them stays editable, so that they can be
/// removed.
fn check_devices(before: &OsdMap, after: &OsdMap) -> Result<(), CommandError> {
    let devices = |map: &OsdMap| usize::try_from(map.crush().max_devices()).unwrap_or(0);
    let (had, has) = (devices(before), devices(after));
    if has > MAX_OSDS && has > had {
        let text = format!("the crush map has a device {}, ids are below {MAX_OSDS}", has - 1);
        return Err(CommandError::invalid(text));
    }
    Ok(())
}

/// Times that say when OSDs last changed.
fn stamp(inc: &mut Incremental, committed: &OsdMap, now: UTime) {
    inc.modified = now;
    let turns = |(id, turned): (&OsdId, &OsdState)| {
        let up = *turned == OsdState::NONE || turned.contains(OsdState::UP);
        up && committed.is_up(*id)
    };
    if !inc.new_up_client.is_empty() || inc.new_state.iter().any(turns) {
        inc.new_last_up_change = now;
    }
    let moves = |(id, weight): (&OsdId, &u32)| (*weight == 0) != committed.is_out(*id);
    let goes = |(id, turned): (&OsdId, &OsdState)| {
        turned.contains(OsdState::EXISTS) && committed.is_in(*id)
    };
    if inc.new_weight.iter().any(moves) || inc.new_state.iter().any(goes) {
        inc.new_last_in_change = now;
    }
}

/// A new version of the OSDMap.
#[derive(Debug)]
pub struct NewMap {
    /// The map.
    pub map: Arc<OsdMap>,
    /// Encoded.
    pub full_bytes: Bytes,
    /// What led to it, encoded.
    pub inc_bytes: Bytes,
}

/// A draft that is ready for the store.
#[derive(Debug)]
pub struct Closed {
    /// The new map.
    pub osdmap: Option<NewMap>,
    /// The other changes.
    pub batch: KvBatch,
    /// See [`Draft::config_changed`].
    pub config_changed: bool,
}
