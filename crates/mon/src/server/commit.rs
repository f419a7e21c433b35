//! From the draft to the store, and what follows when it is there.

use super::{Output, Server};
use crate::draft::NewMap;
use crate::kv::Kv;
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
            c.tidy();
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
    pub(super) fn committed(&mut self, now: Now, token: KvToken, fx: &mut Effects) {
        let Some(done) = self.committing.take_if(|c| c.token == token) else { return };
        let later = std::mem::replace(&mut self.outbox, done.outbox);
        self.outbox.extend(later);
        self.counters.commits += 1;
        self.counters.commit_time += now.mono.since(done.since);
        // What came meanwhile has waited.
        self.waited(now, done.since);
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
        // What is durable does not wait for the next commit: there may always be a next one.
        self.flush(now, fx);
        while !self.must_wait()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonConfig;
    use crate::commands::bench::Bench;
    use io::Rng;
    use io::kv::{KvAnswer, KvVersion};
    use wire::LinkId;

    /// What one commit acknowledges leaves before the next one begins, be it in the same turn: under
    /// requests without end there always is a next one.
    #[test]
    fn what_is_durable_does_not_wait_for_the_next_commit() {
        let Bench { c, .. } = Bench::new();
        let now = c.started;
        let cfg = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
        let mut server = Server::new(&cfg, &mut Rng::with_seed(1), c);
        server.next_tick = Mono(u64::MAX);
        let (mut kv, mut fx) = (Kv::default(), Effects::default());
        let change = |server: &mut Server, kv: &mut Kv, fx: &mut Effects, n: u64| {
            server.cluster.draft.put(format!("key{n}"), "value");
            server.outbox.push(Output::GlobalId(LinkId(n), n));
            server.end_turn(now, kv, fx);
            let under_way = server.committing.as_ref().expect("a commit");
            (under_way.token, under_way.outbox.len())
        };
        let (token, acks) = change(&mut server, &mut kv, &mut fx, 1);
        assert_eq!((acks, server.outbox.len()), (1, 0));
        let done = KvAnswer::Committed(KvVersion::default());
        server.on_kv(now, &mut kv, token, done, &mut fx).unwrap();
        let (_, acks) = change(&mut server, &mut kv, &mut fx, 2);
        assert_eq!(acks, 1, "the first one has left");
    }
}
