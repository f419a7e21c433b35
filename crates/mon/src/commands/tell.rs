//! What is asked of this daemon itself: `ceph daemon PATH ..`, `ceph tell mon.NAME ..`.

use super::status::ELECTION_EPOCH;
use crate::cluster::Cluster;
use crate::show::monmap;
use admin::command::Def;
use admin::common::{Common, defs};
use admin::perf::Logger;
use admin::{Answer, Args, CommandError, CommandTable};
use io::Now;
use serde_json::{Value, json};

/// What carries such a command out.
#[derive(Clone, Copy)]
pub(crate) enum Tell {
    /// What every daemon has.
    Common(Common),
    /// What only a mon has.
    Mon(fn(&Cluster, Now) -> Value),
}

const fn def(sig: &'static str, help: &'static str, f: fn(&Cluster, Now) -> Value) -> Def<Tell> {
    Def::read(sig, "mon", help, Tell::Mon(f))
}

/// All of them.
pub(crate) fn tell_table() -> CommandTable<Tell> {
    let own = [
        def("mon_status", "shows this mon and its quorum", mon_status),
        def("quorum_status", "shows the quorum", quorum_status),
        def("sessions", "shows who is connected", sessions),
        def("status", "shows how far this mon is", status),
    ];
    CommandTable::new(defs(Tell::Common).into_iter().chain(own))
}

impl Cluster {
    /// What this mon is told of an option that it does not heed, or the default; `None` when it heeds it, or nobody
    /// knows it.
    fn option_of_others(&self, name: &str) -> Option<String> {
        if self.settings.def(name).is_some() {
            return None;
        }
        self.own_config().remove(name).or_else(|| self.default_of(name))
    }

    /// Carries out a command that is for this daemon.
    ///
    /// # Errors
    /// In Ceph's words where it has any.
    pub fn told(
        &mut self,
        now: Now,
        table: &CommandTable<Tell>,
        handler: Tell,
        args: &Args,
        loggers: impl FnOnce() -> Vec<Logger>,
    ) -> Result<Answer, CommandError> {
        match handler {
            Tell::Common(common) => {
                let var = args.text("var");
                if common == Common::ConfigGet
                    && let Some(value) = self.option_of_others(&var)
                {
                    return Ok(Answer::json(json!({ &*var: value })));
                }
                common.run(args, table, &mut self.settings, &mut self.resets, loggers)
            }
            Tell::Mon(show) => Ok(Answer::json(show(self, now))),
        }
    }
}

/// This mon and its quorum.
pub(crate) fn mon_status(c: &Cluster, now: Now) -> Value {
    json!({
        "name": c.name,
        "rank": 0,
        "state": "leader",
        "election_epoch": ELECTION_EPOCH,
        "quorum": [0],
        "quorum_age": now.mono.since(c.started.mono).as_secs(),
        "features": {
            "required_con": "0", "required_mon": [],
            "quorum_con": crate::osds::FEATURES.to_string(),
            "quorum_mon": c.state.monmap.persistent_features.names().collect::<Vec<_>>(),
        },
        "outside_quorum": [],
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": monmap::json(&c.state.monmap),
        "feature_map": super::mon::feature_map(c),
        "stretch_mode": c.state.monmap.stretch_mode_enabled,
    })
}

pub(super) fn quorum_status(c: &Cluster, now: Now) -> Value {
    json!({
        "election_epoch": ELECTION_EPOCH,
        "quorum": [0],
        "quorum_names": [c.name],
        "quorum_leader_name": c.name,
        "quorum_age": now.mono.since(c.started.mono).as_secs(),
        "features": {
            "quorum_con": crate::osds::FEATURES.to_string(),
            "quorum_mon": c.state.monmap.persistent_features.names().collect::<Vec<_>>(),
        },
        "monmap": monmap::json(&c.state.monmap),
    })
}

fn sessions(c: &Cluster, now: Now) -> Value {
    let shown = c.sessions.values().map(|s| {
        let subs = s.subs.iter().map(|(what, sub)| json!({"what": what, "start": sub.start}));
        json!({
            "name": s.peer.name.to_string(),
            "entity_name": s.entity(),
            "addrs": crate::show::addr::addrvec_json(&s.peer.addrs),
            "socket_addr": s.peer.socket.map(|a| a.to_string()),
            "con_features": s.peer.features,
            "hostname": s.hostname,
            "open_for_seconds": now.mono.since(s.opened.mono).as_secs(),
            "osd_epoch": s.osd_epoch.0,
            "subs": subs.collect::<Vec<_>>(),
        })
    });
    shown.collect()
}

fn status(c: &Cluster, now: Now) -> Value {
    json!({
        "cluster_fsid": c.state.fsid.to_string(),
        "name": c.name,
        "state": "leader",
        "uptime_seconds": now.mono.since(c.started.mono).as_secs(),
        "oldest_map": c.state.first_epoch.0,
        "newest_map": c.state.osdmap.epoch.0,
        "sessions": c.sessions.len(),
    })
}
