//! The mon from its start: reads the cluster store, makes a new cluster if there is none, sees old
//! maps again where PGs that nobody has reported need them, then serves ([`Server`]).

use crate::cluster::Cluster;
use crate::config::MonConfig;
use crate::kv::Kv;
use crate::options;
use crate::server::Server;
use crate::state::State;
use crate::store::{Loaded, Loader, MapKey, fresh};
use admin::settings::{Settings, Source};
use bytes::Bytes;
use io::kv::{KvAnswer, KvDone, KvOp};
use io::{Core, Effects, Event, Now, Rng};
use maps::{Incremental, OsdMap};
use std::fmt::Display;
use types::{Epoch, Mono};

/// The mon of a cluster, as a core for a runner with a cluster store.
pub struct Mon {
    cfg: MonConfig,
    rng: Rng,
    kv: Kv,
    life: Life,
}

/// How far it is.
enum Life {
    /// The first event is not here yet.
    Born,
    /// The store is being read.
    Loading(Loader),
    /// A new cluster is being written.
    Founding(Box<State>),
    /// Old maps are being seen again; this one is the last so far.
    Recalling(Box<Cluster>, Option<Box<OsdMap>>),
    Serving(Box<Server>),
    /// It has said why it ends.
    Over,
}

/// Why it ends, with its exit code.
struct Unable {
    code: i32,
    why: String,
}

impl<T: Display> From<T> for Unable {
    fn from(why: T) -> Self {
        Unable { code: 1, why: why.to_string() }
    }
}

/// Of its store.
fn wrong_store(why: impl Into<String>) -> Unable {
    Unable { code: EXIT_WRONG_STORE, why: why.into() }
}

impl Mon {
    /// A mon. `seed` is for everything that is random.
    pub fn new(cfg: MonConfig, seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Mon { cfg, rng, kv: Kv::default(), life: Life::Born }
    }

    fn fail(&mut self, why: impl Into<Unable>, fx: &mut Effects) {
        let Unable { code, why } = why.into();
        self.life = Life::Over;
        fx.exit(code, format!("mon.{}: {why}", self.cfg.name));
    }

    fn on_kv(&mut self, now: Now, done: KvDone, fx: &mut Effects) {
        let answer = match done.result {
            Ok(answer) => answer,
            Err(e) => {
                let code = if e.is_full { EXIT_NO_SPACE } else { 1 };
                return self.fail(Unable { code, why: e.to_string() }, fx);
            }
        };
        self.kv.saw(&answer);
        let life = std::mem::replace(&mut self.life, Life::Over);
        let next = match life {
            Life::Serving(mut server) => {
                let done = server.on_kv(now, &mut self.kv, done.token, answer, fx);
                done.map(|()| Life::Serving(server)).map_err(Unable::from)
            }
            Life::Loading(loader) => self.load(now, loader, answer, fx),
            Life::Founding(state) => self.founded(now, *state, &answer, fx),
            Life::Recalling(cluster, last) => self.recall(now, cluster, last, answer, fx),
            life @ (Life::Born | Life::Over) => Ok(life),
        };
        match next {
            Ok(life) => self.life = life,
            Err(why) => self.fail(why, fx),
        }
    }

    fn load(
        &mut self,
        now: Now,
        mut loader: Loader,
        answer: KvAnswer,
        fx: &mut Effects,
    ) -> Result<Life, Unable> {
        let unusable = |why| wrong_store(format!("its store cannot be used: {why}"));
        let loaded = match answer {
            KvAnswer::Pairs(pairs, _) => loader.page(pairs),
            KvAnswer::Value(value) => std::mem::take(&mut loader).newest_map(value),
            KvAnswer::Committed(_) | KvAnswer::Conflict(_) | KvAnswer::Space(_) => {
                return Ok(Life::Loading(loader));
            }
        };
        match loaded.map_err(unusable)? {
            Loaded::Next(op) => {
                self.kv.submit(op, fx);
                Ok(Life::Loading(loader))
            }
            Loaded::Empty => self.found(now, fx),
            Loaded::All(state) => self.loaded(now, *state, fx),
        }
    }

    fn found(&mut self, now: Now, fx: &mut Effects) -> Result<Life, Unable> {
        let Some(new) = self.cfg.new_cluster.clone() else {
            let text = "its store is empty and it was not told to make a new cluster; is the path \
                        right?";
            return Err(wrong_store(text));
        };
        let (state, batch) = fresh(&self.cfg, &new, now)?;
        self.kv.commit(batch, fx);
        Ok(Life::Founding(Box::new(state)))
    }

    fn founded(
        &mut self,
        now: Now,
        state: State,
        answer: &KvAnswer,
        fx: &mut Effects,
    ) -> Result<Life, Unable> {
        if !matches!(answer, KvAnswer::Committed(_)) {
            return Err("another mon made a cluster in this store at the same time".into());
        }
        tracing::info!("mon.{}: made the cluster {}", self.cfg.name, state.fsid);
        self.loaded(now, state, fx)
    }

    fn loaded(&mut self, now: Now, state: State, fx: &mut Effects) -> Result<Life, Unable> {
        if let Some(wanted) = self.cfg.new_cluster.as_ref().map(|new| new.fsid)
            && !wanted.is_nil()
            && wanted != state.fsid
        {
            let why = format!("its store is of the cluster {}, not of {wanted}", state.fsid);
            return Err(wrong_store(why));
        }
        let name = &self.cfg.name;
        if !state.monmap.mons.contains_key(name) {
            let whose = crate::show::join(state.monmap.mons.keys(), ", mon.");
            let why = format!(
                "its store is the one of mon.{whose}, not of mon.{name}; start it by that name"
            );
            return Err(wrong_store(why));
        }
        let mut settings = known_settings();
        // An option that is none of the mon's is passed over: the file is shared by everybody.
        for (name, value) in self.cfg.options.iter().filter(|(name, _)| is_own(name)) {
            settings.set(Source::File, name, value).map_err(|e| format!("option {name}: {e}"))?;
        }
        let cluster = Cluster::new(&self.cfg, now, state, settings, self.rng.fork());
        match cluster.oldest_creation() {
            Some(created) => {
                // Of old maps only some are kept whole.
                let state = &cluster.state;
                let whole = state.pruned.whole(state.first_epoch, created);
                self.kv.submit(KvOp::Get { key: MapKey::Full(whole).key().into() }, fx);
                Ok(Life::Recalling(Box::new(cluster), None))
            }
            None => Ok(self.serve(now, cluster, fx)),
        }
    }

    /// Shows the PGs that nobody has reported one map after the other.
    fn recall(
        &mut self,
        now: Now,
        mut cluster: Box<Cluster>,
        last: Option<Box<OsdMap>>,
        answer: KvAnswer,
        fx: &mut Effects,
    ) -> Result<Life, Unable> {
        let KvAnswer::Value(value) = answer else { return Ok(Life::Recalling(cluster, last)) };
        let map = match last {
            None => {
                let map = recalled_full(value)?;
                // There is no PG yet to which something came before it.
                cluster.advance_newborns(&map, &map);
                map
            }
            Some(last) => {
                let map = recalled_next(&last, value)?;
                cluster.advance_newborns(&last, &map);
                map
            }
        };
        if map.epoch >= cluster.state.osdmap.epoch {
            return Ok(self.serve(now, *cluster, fx));
        }
        let next = MapKey::Incremental(map.epoch.next());
        self.kv.submit(KvOp::Get { key: next.key().into() }, fx);
        Ok(Life::Recalling(cluster, Some(Box::new(map))))
    }

    fn serve(&mut self, now: Now, cluster: Cluster, fx: &mut Effects) -> Life {
        let mut server = Server::new(&self.cfg, &mut self.rng, cluster);
        server.start(now, &self.cfg, fx);
        Life::Serving(Box::new(server))
    }
}

/// The options that a mon has.
pub fn known_settings() -> Settings {
    Settings::new([options::MON])
}

/// Exit code of a mon that refuses its store: damaged, or another cluster's. Nothing was changed.
pub const EXIT_WRONG_STORE: i32 = 65;
/// Exit code of a mon that cannot listen where it should.
pub const EXIT_CANNOT_LISTEN: i32 = 69;
/// Exit code of a mon whose disk is full: what it cannot write down it must not say.
pub const EXIT_NO_SPACE: i32 = 73;

fn is_own(option: &str) -> bool {
    options::MON.iter().any(|def| def.name == option)
}

fn recalled_full(value: Option<Bytes>) -> Result<OsdMap, String> {
    let bytes = value.ok_or("an old OSDMap that PGs still need is missing")?;
    denc::decode(&bytes).map_err(|e| format!("an old OSDMap that PGs still need: {e}"))
}

fn recalled_next(last: &OsdMap, value: Option<Bytes>) -> Result<OsdMap, String> {
    let epoch: Epoch = last.epoch.next();
    let bytes = value.ok_or_else(|| format!("the change of the OSDMap to {epoch} is missing"))?;
    let inc: Incremental = denc::decode(&bytes)
        .map_err(|e| format!("the change of the OSDMap to epoch {epoch}: {e}"))?;
    let mut map = last.clone();
    map.apply(&inc).map_err(|e| format!("the change of the OSDMap to epoch {epoch}: {e}"))?;
    Ok(map)
}

impl Core for Mon {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                let loader = Loader::default();
                self.kv.submit(loader.start(), fx);
                self.life = Life::Loading(loader);
            }
            Event::Kv(done) => self.on_kv(now, done, fx),
            Event::Stop => match &mut self.life {
                Life::Serving(server) => server.stop(),
                _ => {
                    self.life = Life::Over;
                    fx.exit(0, format!("mon.{}: stopped", self.cfg.name));
                }
            },
            Event::Net(event) => {
                if let Life::Serving(server) = &mut self.life {
                    server.on_net(now, event, fx);
                }
            }
            Event::Timer | Event::Disk(_) | Event::Memory(_) => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if let Life::Serving(server) = &mut self.life {
            server.end_turn(now, &mut self.kv, fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        match &self.life {
            Life::Serving(server) => server.next_deadline(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewCluster;
    use io::kv::{KvError, KvToken};
    use types::Uuid;

    /// Clients would be told of a mon that is not there.
    #[test]
    fn a_store_of_a_mon_by_another_name_is_refused() {
        let config = |name: &str| MonConfig::new(name, "127.0.0.1:7001".parse().unwrap());
        let new = NewCluster::new(Uuid([7; 16]));
        let (state, _) = fresh(&config("a"), &new, Now::default()).unwrap();
        let start = |name: &str| {
            let mut mon = Mon::new(config(name), 1);
            mon.loaded(Now::default(), state.clone(), &mut Effects::default())
        };
        assert!(start("a").is_ok());
        let refused = start("b").err().unwrap();
        assert_eq!(refused.code, EXIT_WRONG_STORE);
        assert!(refused.why.contains("the one of mon.a, not of mon.b"), "{}", refused.why);
    }

    /// Whoever starts it again need not, before there is space.
    #[test]
    fn a_mon_that_ends_says_whether_its_disk_is_full() {
        let ended = |is_full| {
            let config = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
            let mut mon = Mon::new(config, 1);
            let mut fx = Effects::default();
            let result = Err(KvError { why: "why".to_owned(), is_full });
            mon.handle(Now::default(), Event::Kv(KvDone { token: KvToken(1), result }), &mut fx);
            fx.exit.unwrap().code
        };
        assert_eq!([true, false].map(ended), [EXIT_NO_SPACE, 1]);
    }
}
