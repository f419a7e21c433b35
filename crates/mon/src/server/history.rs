//! Old maps, from the store: for subscribers who are behind, and for commands that show them.

use super::{Role, Server};
use crate::kv::Kv;
use crate::store::MapKey;
use admin::CommandError;
use bytes::Bytes;
use io::kv::{KvOp, KvToken};
use io::{Effects, Now};
use std::collections::{BTreeMap, VecDeque};
use types::Epoch;
use wire::LinkId;
use wire::msg::{MOsdMap, Payload};

/// Maps in one message (`osd_map_message_max`).
pub(super) const MAPS_PER_MESSAGE: u32 = 40;
/// Bytes of maps in one message, about (`osd_map_message_max_bytes`).
const MAP_BYTES_PER_MESSAGE: usize = 10 << 20;

/// Who waits for what is read.
#[derive(Debug)]
pub(super) enum Reading {
    /// A subscriber.
    Maps(Batch),
    /// A command that shows an old map.
    Command(Asked),
}

/// A command, and where its answer goes.
#[derive(Debug)]
pub(super) struct Asked {
    pub role: Role,
    pub link: LinkId,
    pub tid: u64,
    pub text: String,
    pub epoch: Epoch,
}

/// A message of maps that is being put together.
#[derive(Debug)]
pub(super) struct Batch {
    pub link: LinkId,
    /// It was asked for by itself: the subscription stays where it is.
    pub is_asked: bool,
    /// Still to be found, in order.
    pub keys: VecDeque<MapKey>,
    pub found: BTreeMap<MapKey, Bytes>,
}

impl Batch {
    fn is_big(&self) -> bool {
        self.found.values().map(Bytes::len).sum::<usize>() >= MAP_BYTES_PER_MESSAGE
    }

    fn message(self, fsid: types::Uuid, oldest: Epoch, newest: Epoch) -> MOsdMap {
        let mut m = MOsdMap { fsid, oldest, newest, ..MOsdMap::default() };
        for (key, bytes) in self.found {
            match key {
                MapKey::Full(epoch) => m.fulls.insert(epoch, bytes),
                MapKey::Incremental(epoch) => m.incrementals.insert(epoch, bytes),
            };
        }
        m
    }
}

impl Server {
    /// Goes on with a batch: what is at hand is taken, the rest is read.
    pub(super) fn go_on(&mut self, now: Now, mut batch: Batch) {
        while let Some(key) = batch.keys.front() {
            if batch.is_big() {
                break;
            }
            let Some(bytes) = self.maps.get(*key) else {
                self.to_read.push(Reading::Maps(batch));
                return;
            };
            batch.found.insert(*key, bytes.clone());
            batch.keys.pop_front();
        }
        let (link, is_asked) = (batch.link, batch.is_asked);
        let state = &self.cluster.state;
        let m = batch.message(state.fsid, state.first_epoch, state.osdmap.epoch);
        let Some(session) = self.cluster.sessions.get_mut(&link) else { return };
        session.is_reading = false;
        if !is_asked {
            let Some(last) = m.last() else { return };
            session.sent_osdmap(last, state.osdmap.epoch);
        }
        self.send(link, m.encode());
        self.serve(now, link);
    }

    /// Asks the store for what is to be read.
    pub(super) fn ask_store(&mut self, kv: &mut Kv, fx: &mut Effects) {
        if std::mem::take(&mut self.asks_for_space) {
            kv.submit(KvOp::Space, fx);
        }
        for reading in std::mem::take(&mut self.to_read) {
            let key = match &reading {
                Reading::Maps(batch) => batch.keys.front().copied(),
                Reading::Command(asked) => Some(MapKey::Full(asked.epoch)),
            };
            if let Some(key) = key {
                self.counters.map_reads += 1;
                let token = kv.submit(KvOp::Get { key: key.key().into() }, fx);
                self.reads.insert(token, reading);
            }
        }
    }

    /// Something was read.
    pub(super) fn read(&mut self, now: Now, token: KvToken, value: Option<Bytes>) {
        match self.reads.remove(&token) {
            Some(Reading::Maps(batch)) => self.read_map(now, batch, value),
            Some(Reading::Command(asked)) => {
                let gone = || {
                    let text = format!("there is no map for epoch {}", asked.epoch);
                    CommandError::not_found(text)
                };
                let map = value.ok_or_else(gone).and_then(|bytes| {
                    denc::decode(&bytes).map_err(|e| {
                        tracing::error!("the stored OSDMap of epoch {}: {e}", asked.epoch);
                        gone()
                    })
                });
                self.show_old_map(now, &asked, map);
            }
            None => {}
        }
    }

    fn read_map(&mut self, now: Now, mut batch: Batch, value: Option<Bytes>) {
        let Some(key) = batch.keys.pop_front() else { return };
        match value {
            Some(bytes) => {
                batch.found.insert(key, bytes);
                self.go_on(now, batch);
            }
            None => {
                // Trimmed meanwhile: from what is there now.
                let link = batch.link;
                if let Some(session) = self.cluster.sessions.get_mut(&link) {
                    session.is_reading = false;
                }
                self.serve(now, link);
            }
        }
    }
}
