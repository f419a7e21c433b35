//! Crashes of daemons: what they left behind, kept until somebody has looked at it.
//!
//! As with Ceph's mgr (`pybind/mgr/crash/module.py`): a crash is a JSON object, kept under a key of
//! [`config-key`](crate::commands), and RECENT_CRASH warns of those that are new. Daemons post what they left
//! themselves, `ceph-crash` or a person what others did.

use crate::cluster::Cluster;
use crate::log::Level;
use crate::state::State;
use io::Now;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::UTime;

/// Where they are kept.
const KEY: &str = "mgr/crash/crash/";
/// So many are kept; then the oldest goes.
const MAX_CRASHES: usize = 300;

/// One crash.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    /// When.
    pub stamp: UTime,
    /// What is known: `crash_id`, `timestamp`, and mostly `entity_name`, `utsname_hostname`, `backtrace`...
    pub facts: Map<String, Value>,
}

impl Crash {
    /// From JSON.
    ///
    /// # Errors
    /// When it is none, or has no id or time.
    pub fn parse(json: &[u8]) -> Result<(String, Self), String> {
        let facts: Map<String, Value> = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let field = |name: &str| {
            let text = facts.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| format!("missing '{name}' field"))
        };
        let stamp = field("timestamp")?.parse().map_err(|e| format!("timestamp: {e}"))?;
        Ok((field("crash_id")?.to_owned(), Crash { stamp, facts }))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.facts.get(name).and_then(Value::as_str)
    }

    /// Whose it is.
    pub fn entity(&self) -> &str {
        self.text("entity_name").unwrap_or("unknown")
    }

    /// The kind of program.
    pub fn process(&self) -> &str {
        self.text("process_name").filter(|name| !name.is_empty()).unwrap_or("unknown")
    }

    /// Nobody has looked at it yet.
    pub fn is_new(&self) -> bool {
        !self.facts.contains_key("archived")
    }

    /// `osd.0 crashed on host h1 at 2026-11-26T10:11:12.131415Z`
    pub fn line(&self) -> String {
        let host = self.text("utsname_hostname").unwrap_or("(unknown)");
        let at = self.text("timestamp").unwrap_or("unknown time");
        format!("{} crashed on host {host} at {at}", self.entity())
    }
}

/// All crashes, by id.
#[derive(Debug, Default)]
pub(crate) struct Crashes(BTreeMap<String, Crash>);

impl Crashes {
    /// As they were kept. What makes no sense is left alone.
    pub fn load(state: &State) -> Self {
        let kept = state.config_key.range(KEY.to_owned()..);
        let kept = kept.take_while(|(key, _)| key.starts_with(KEY));
        Crashes(kept.filter_map(|(_, json)| Crash::parse(json).ok()).collect())
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Option<&Crash> {
        self.0.get(id)
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Crash)> {
        self.0.iter()
    }
}

impl Cluster {
    /// Keeps a crash. One that is known already stays as it is.
    pub fn add_crash(&mut self, now: Now, id: String, crash: Crash) {
        if self.crashes.0.contains_key(&id) {
            return;
        }
        self.say(now, Level::Error, crash.line());
        self.keep_crash(id, crash);
        while self.crashes.0.len() > MAX_CRASHES {
            let oldest =
                self.crashes.0.iter().min_by_key(|(_, c)| c.stamp).map(|(id, _)| id.clone());
            self.remove_crash(&oldest.expect("there are many"));
        }
    }

    fn keep_crash(&mut self, id: String, crash: Crash) {
        let json = Value::from(crash.facts.clone()).to_string();
        self.set_config_key(format!("{KEY}{id}"), json.into());
        self.crashes.0.insert(id, crash);
    }

    /// Forgets a crash.
    pub fn remove_crash(&mut self, id: &str) {
        if self.crashes.0.remove(id).is_some() {
            self.remove_config_key(&format!("{KEY}{id}"));
        }
    }

    /// Somebody has looked at these.
    pub fn archive_crashes(&mut self, now: Now, which: impl Fn(&str) -> bool) {
        let new = self.crashes.0.iter().filter(|(id, crash)| crash.is_new() && which(id));
        let new: Vec<_> = new.map(|(id, crash)| (id.clone(), crash.clone())).collect();
        for (id, mut crash) in new {
            crash.facts.insert("archived".to_owned(), now.wall.to_string().into());
            self.keep_crash(id, crash);
        }
    }

    /// Forgets those from before a time.
    pub fn prune_crashes(&mut self, before: UTime) {
        let old = self.crashes.0.iter().filter(|(_, crash)| crash.stamp <= before);
        for id in old.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.remove_crash(&id);
        }
    }

    /// Forgets those that nobody needs any more.
    pub fn age_crashes(&mut self, now: Now) {
        let kept = self.settings.duration("mgr/crash/retain_interval");
        let before = now.wall.as_duration().saturating_sub(kept);
        self.prune_crashes(UTime::from_unix(before));
    }
}
