//! From the draft to the store, and what follows when it is there.

use super::{Output, Server};
use crate::draft::NewMap;
use crate::kv::Kv;
use crate::osds::tidy::tidy;
use crate::store::{MapKey, keys};
use admin::settings::Source;
use io::kv::KvToken;
use io::{Effects, Now};
use std::collections::BTreeSet;
use types::{Mono, OsdId};

/// A commit under way.
#[derive(Debug)]
pub(super) struct Committing {
    token: KvToken,
    map: Option<NewMap>,
    since: Mono,
    config_changed: bool,
    /// What leaves when it is done.
    outbox: Vec<Output>,
}

impl Server {
    /// Commits the draft, if there is one.
    pub(super) fn commit(&mut self, now: Now, kv: &mut Kv, fx: &mut Effects) {
        let c = &mut self.cluster;
        if c.draft.has_epoch() {
            let tidied = c.change(tidy);
            tidied.expect("clearing away what is void can always be applied");
        }
        if c.draft.is_empty() {
            return;
        }
        let closed = c.draft.close(&c.state.osdmap, now.wall);
        let mut batch = closed.batch;
        if let Some(new) = &closed.osdmap {
            let epoch = new.map.epoch;
            batch.put(keys::full(epoch), new.full_bytes.clone());
            batch.put(keys::incremental(epoch), new.inc_bytes.clone());
            batch.put(keys::OSDMAP, denc::encode(&(c.state.first_epoch, epoch)));
        }
        if closed.monmap_changed {
            batch.put(keys::MONMAP, denc::encode(&c.state.monmap));
        }
        let token = kv.commit(batch, fx);
        self.committing = Some(Committing {
            token,
            since: now.mono,
            map: closed.osdmap,
            config_changed: closed.config_changed,
            outbox: std::mem::take(&mut self.outbox),
        });
    }

    /// A commit is done: everybody who waits for it, or is subscribed, hears of it.
    pub(super) fn committed(&mut self, now: Now, token: KvToken) {
        let Some(done) = self.committing.take_if(|c| c.token == token) else { return };
        let later = std::mem::replace(&mut self.outbox, done.outbox);
        self.outbox.extend(later);
        self.counters.commits += 1;
        self.counters.commit_time += now.mono.since(done.since);
        let mut creators = BTreeSet::new();
        if let Some(new) = done.map {
            creators = self.new_map(new);
        }
        if done.config_changed {
            let own = self.cluster.own_config();
            self.cluster.settings.replace(Source::Mon, &own);
        }
        self.serve_all(now);
        self.order_pgs(|osd| creators.contains(&osd));
        while self.committing.is_none()
            && let Some(input) = self.waiting.pop_front()
        {
            self.take_in(now, input);
        }
    }

    fn new_map(&mut self, new: NewMap) -> BTreeSet<OsdId> {
        let epoch = new.map.epoch;
        self.counters.epochs += 1;
        tracing::debug!("osdmap e{epoch}");
        self.maps.put(MapKey::Full(epoch), new.full_bytes.clone());
        self.maps.put(MapKey::Incremental(epoch), new.inc_bytes);
        self.newest_full = new.full_bytes;
        self.cluster.take_map(new.map)
    }
}
