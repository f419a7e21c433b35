//! Old maps, from the store: for subscribers who are behind, and for commands that show them.

use super::{Output, Role, Server};
use crate::kv::Kv;
use crate::state::State;
use crate::store::MapKey;
use admin::CommandError;
use bytes::Bytes;
use io::kv::{KvOp, KvToken};
use io::{Effects, Now};
use maps::{Incremental, OsdMap};
use std::collections::{BTreeMap, VecDeque};
use types::Epoch;
use wire::LinkId;
use wire::msg::{MOsdMap, Payload};

/// Maps in one message (`osd_map_message_max`).
pub(super) const MAPS_PER_MESSAGE: u32 = 40;
/// Bytes of maps in one message, about (`osd_map_message_max_bytes`).
const MAP_BYTES_PER_MESSAGE: usize = 10 << 20;

/// What is read from the store.
#[derive(Debug)]
pub(super) enum Reading {
    /// Changes, for a subscriber.
    Maps(Batch),
    /// A whole map.
    Whole(Whole),
}

impl Reading {
    fn key(&self) -> Option<MapKey> {
        match self {
            Reading::Maps(batch) => batch.keys.front().copied(),
            Reading::Whole(whole) => Some(whole.key()),
        }
    }
}

/// A whole map. One that was pruned ([`Pruned`](crate::state::Pruned)) is made of an older one and the changes since.
#[derive(Debug)]
pub(super) struct Whole {
    epoch: Epoch,
    /// The map that it is made of.
    from: Epoch,
    /// How far it is made.
    made: Option<Box<OsdMap>>,
    by: Asker,
}

/// Who wants a whole map.
#[derive(Debug)]
enum Asker {
    /// A subscriber; then come the changes.
    Subscriber(Batch),
    /// A command that shows it.
    Command(Asked),
}

impl Whole {
    fn new(epoch: Epoch, by: Asker, state: &State) -> Self {
        let from = state.pruned.whole(state.first_epoch, epoch);
        Whole { epoch, from, made: None, by }
    }

    /// What is read next.
    fn key(&self) -> MapKey {
        match &self.made {
            None => MapKey::Full(self.from),
            Some(map) => MapKey::Incremental(map.epoch.next()),
        }
    }

    /// Takes in what was read. Gives the map when it is whole.
    ///
    /// # Errors
    /// A sentence, when what is stored is damaged.
    fn add(&mut self, bytes: Bytes) -> Result<Option<Bytes>, String> {
        let Some(map) = &mut self.made else {
            if self.from == self.epoch {
                return Ok(Some(bytes));
            }
            self.made = Some(Box::new(denc::decode(&bytes).map_err(|e| e.to_string())?));
            return Ok(None);
        };
        let inc: Incremental = denc::decode(&bytes).map_err(|e| e.to_string())?;
        map.apply(&inc).map_err(|e| e.to_string())?;
        if map.epoch < self.epoch {
            return Ok(None);
        }
        let (whole, crc) = map.encode_with_crc();
        match crc == inc.full_crc {
            true => Ok(Some(whole)),
            false => Err("its checksum is wrong".into()),
        }
    }
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
                match *key {
                    MapKey::Full(epoch) => self.read_whole(epoch, Asker::Subscriber(batch)),
                    MapKey::Incremental(_) => self.to_read.push(Reading::Maps(batch)),
                }
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
            if let Some(key) = reading.key() {
                self.counters.map_reads += 1;
                let token = kv.submit(KvOp::Get { key: key.key().into() }, fx);
                self.reads.insert(token, reading);
            }
        }
    }

    /// A command shows an old map.
    pub(super) fn read_for_command(&mut self, asked: Asked) {
        self.read_whole(asked.epoch, Asker::Command(asked));
    }

    fn read_whole(&mut self, epoch: Epoch, by: Asker) {
        self.to_read.push(Reading::Whole(Whole::new(epoch, by, &self.cluster.state)));
    }

    /// Something was read.
    pub(super) fn read(&mut self, now: Now, token: KvToken, value: Option<Bytes>) {
        match (self.reads.remove(&token), value) {
            (Some(Reading::Maps(mut batch)), Some(bytes)) => {
                if let Some(key) = batch.keys.pop_front() {
                    batch.found.insert(key, bytes);
                }
                self.go_on(now, batch);
            }
            (Some(Reading::Maps(batch)), None) => {
                let gone = matches!(batch.keys.front(), Some(key) if self.was_removed(key.epoch()));
                self.lacks(now, batch, gone);
            }
            (Some(Reading::Whole(mut whole)), Some(bytes)) => match whole.add(bytes) {
                Ok(Some(bytes)) => self.whole_read(now, whole, bytes),
                Ok(None) => self.to_read.push(Reading::Whole(whole)),
                Err(why) => self.whole_lacks(now, whole, &why),
            },
            (Some(Reading::Whole(whole)), None) => {
                let again = Whole::new(whole.epoch, whole.by, &self.cluster.state);
                if again.from != whole.from && !self.was_removed(again.epoch) {
                    // It was pruned meanwhile, or what it is made of was removed.
                    self.to_read.push(Reading::Whole(again));
                } else {
                    self.whole_lacks(now, again, "it is missing");
                }
            }
            (None, _) => {}
        }
    }

    fn was_removed(&self, epoch: Epoch) -> bool {
        epoch < self.cluster.state.first_epoch
    }

    /// A whole map is here.
    fn whole_read(&mut self, now: Now, whole: Whole, bytes: Bytes) {
        match whole.by {
            Asker::Subscriber(mut batch) => {
                batch.keys.pop_front();
                batch.found.insert(MapKey::Full(whole.epoch), bytes);
                self.go_on(now, batch);
            }
            Asker::Command(asked) => {
                let map = denc::decode(&bytes).map_err(|e| {
                    tracing::error!("the stored OSDMap of epoch {}: {e}", asked.epoch);
                    no_map(asked.epoch)
                });
                self.show_old_map(now, &asked, map);
            }
        }
    }

    /// A whole map cannot be had.
    fn whole_lacks(&mut self, now: Now, whole: Whole, why: &str) {
        let gone = self.was_removed(whole.epoch);
        if !gone {
            tracing::error!("the stored OSDMap of epoch {}: {why}", whole.epoch);
        }
        match whole.by {
            Asker::Subscriber(batch) => self.lacks(now, batch, gone),
            Asker::Command(asked) => {
                self.show_old_map(now, &asked, Err(no_map(asked.epoch)));
            }
        }
    }

    /// A subscriber cannot get what it was to be sent next. When that was removed meanwhile, it gets what is there
    /// now; else the store has lost it, and to look again at once would be without end.
    fn lacks(&mut self, now: Now, batch: Batch, gone: bool) {
        let link = batch.link;
        if let Some(session) = self.cluster.sessions.get_mut(&link) {
            session.is_reading = false;
        }
        if gone {
            self.serve(now, link);
        } else {
            let key = batch.keys.front().map(|key| key.key()).unwrap_or_default();
            tracing::error!("a peer is disconnected: the store has no {key} for it");
            self.outbox.push(Output::Close(Role::Mon, link));
        }
    }
}

fn no_map(epoch: Epoch) -> CommandError {
    CommandError::not_found(format_args!("there is no map for epoch {epoch}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonConfig;
    use crate::commands::bench::Bench;
    use crate::session::Session;
    use io::Rng;
    use io::kv::KvAnswer;
    use std::sync::Arc;
    use types::{EntityName, OsdId};
    use wire::PeerInfo;
    use wire::msg::Subscription;

    /// To ask a store again for what it has lost would be without end.
    #[test]
    fn who_needs_a_map_that_is_lost_is_disconnected() {
        let Bench { c, .. } = Bench::new();
        let (now, link) = (c.started, LinkId(5));
        let cfg = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
        let mut server = Server::new(&cfg, &mut Rng::with_seed(1), c);
        let peer = PeerInfo {
            name: EntityName::osd(OsdId(5)),
            auth_name: Default::default(),
            global_id: 9,
            addrs: Default::default(),
            socket: None,
            features: 0,
            listen: None,
            lossy: true,
        };
        let mut session = Session::new(now, Arc::new(peer));
        session.subs.insert("osdmap".into(), Subscription { start: 3, flags: 0 });
        server.cluster.sessions.insert(link, session);
        server.serve(now, link);
        let (mut kv, mut fx) = (Kv::default(), Effects::default());
        server.ask_store(&mut kv, &mut fx);
        let asked = std::mem::take(&mut fx.kv);
        let [(token, KvOp::Get { key })] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(key, &MapKey::Incremental(Epoch(3)).key());
        server.on_kv(now, &mut kv, *token, KvAnswer::Value(None), &mut fx).unwrap();
        assert!(fx.kv.is_empty(), "{:?}", fx.kv);
        assert!(matches!(server.outbox[..], [Output::Close(Role::Mon, l)] if l == link));
    }
}
