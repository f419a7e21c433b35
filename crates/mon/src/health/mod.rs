//! What is wrong with the cluster, by Ceph's codes and in its words, and what to do about it.
//!
//! Every check ends its details with a line that begins with [`HINT`].

mod crashes;
mod disk;
mod mutes;
mod osds;
mod pgs;
mod pools;

pub(crate) use pgs::ratio_text;

use crate::cluster::Cluster;
use crate::log::Level;
use crate::pgmap::Sums;
use crate::show::since;
use admin::units::exact_timespan;
use io::Now;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;

/// How the line begins that says what to do.
pub(crate) const HINT: &str = "=> ";

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    #[default]
    Ok,
    Warn,
    Err,
}

impl Severity {
    /// `HEALTH_WARN`
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Err => "HEALTH_ERR",
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Err => "ERR",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub severity: Severity,
    pub summary: String,
    pub count: i64,
    pub detail: Vec<String>,
}

/// Everything that is wrong, by code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(pub BTreeMap<String, Check>);

impl Checks {
    /// Adds a check without details.
    fn add(
        &mut self,
        code: &str,
        severity: Severity,
        count: usize,
        summary: impl Display,
    ) -> &mut Check {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let check = Check { severity, summary: summary.to_string(), count, detail: Vec::new() };
        let entry = self.0.entry(code.to_owned());
        entry.insert_entry(check).into_mut()
    }
}

impl Check {
    fn detail(&mut self, lines: impl IntoIterator<Item = String>) -> &mut Self {
        self.detail.extend(lines);
        self
    }

    fn hint(&mut self, what_to_do: &str) {
        self.detail.push(format!("{HINT}{what_to_do}"));
    }
}

/// The cluster's health at a moment.
#[derive(Debug)]
pub(crate) struct Health {
    checks: Checks,
    mutes: Vec<(String, crate::state::Mute)>,
    now: Now,
}

impl Cluster {
    /// Looks at everything.
    pub fn checks(&self, now: Now, sums: &Sums) -> Checks {
        let mut checks = Checks::default();
        osds::check(self, now, &mut checks);
        pools::check(self, sums, &mut checks);
        pgs::check(self, now, sums, &mut checks);
        crashes::check(self, now, &mut checks);
        disk::check(self, &mut checks);
        checks
    }

    /// Notes in the log what has become wrong or well again since the last time.
    pub fn log_health(&mut self, now: Now, checks: &Checks) {
        let before = std::mem::take(&mut self.health_seen);
        for (code, check) in &checks.0 {
            let text = match before.get(code) {
                None => format!("Health check failed: {} ({code})", check.summary),
                Some(old) if *old != check.summary => {
                    format!("Health check update: {} ({code})", check.summary)
                }
                Some(_) => continue,
            };
            let is_error = check.severity == Severity::Err;
            self.say(now, if is_error { Level::Error } else { Level::Warn }, text);
        }
        for (code, was) in before.iter().filter(|(code, _)| !checks.0.contains_key(*code)) {
            self.say(now, Level::Info, format!("Health check cleared: {code} (was: {was})"));
        }
        if checks.0.is_empty() && !before.is_empty() {
            self.say(now, Level::Info, "Cluster is now healthy");
        }
        let summaries = checks.0.iter().map(|(code, c)| (code.clone(), c.summary.clone()));
        self.health_seen = summaries.collect();
    }

    /// The health as it is shown.
    pub fn health(&self, now: Now) -> Health {
        self.health_of(now, &self.pgmap.sums(self.map()))
    }

    /// The same, when sums are at hand.
    pub fn health_of(&self, now: Now, sums: &Sums) -> Health {
        let mutes = self.state.mutes.iter().map(|(c, m)| (c.clone(), m.clone())).collect();
        Health { checks: self.checks(now, sums), mutes, now }
    }
}

impl Health {
    fn is_muted(&self, code: &str) -> bool {
        self.mutes.iter().any(|(c, _)| c == code)
    }

    /// The worst of what is not muted.
    pub fn status(&self) -> Severity {
        let loud = self.checks.0.iter().filter(|(code, _)| !self.is_muted(code));
        loud.map(|(_, check)| check.severity).max().unwrap_or_default()
    }

    /// What is wrong and not muted, one text each; then what is muted.
    pub fn summaries(&self) -> Vec<String> {
        let loud = self.checks.0.iter().filter(|(code, _)| !self.is_muted(code));
        let mut texts: Vec<String> = loud.map(|(_, check)| check.summary.clone()).collect();
        let muted = self.mutes.iter().filter(|(code, _)| self.checks.0.contains_key(code));
        let muted: Vec<String> = muted
            .map(|(code, mute)| match mute.until.is_zero() {
                true => code.clone(),
                false => format!("{code}({})", self.left(mute)),
            })
            .collect();
        if !muted.is_empty() {
            texts.push(format!("(muted: {})", muted.join(" ")));
        }
        texts
    }

    /// How long a mute still lasts, in its largest unit.
    fn left(&self, mute: &crate::state::Mute) -> String {
        let left = since(mute.until, self.now.wall);
        let text = exact_timespan(left);
        let end = text.find(|c: char| c.is_ascii_alphabetic()).map_or(text.len(), |at| at + 1);
        text.get(..end).unwrap_or_default().to_owned()
    }

    /// `health`, `health detail` for people.
    pub fn text(&self, detail: bool) -> String {
        let mut out = self.status().name().to_owned();
        let summaries = self.summaries();
        if !summaries.is_empty() {
            out.push(' ');
            out.push_str(&summaries.join("; "));
        }
        if !detail {
            return out;
        }
        for (code, check) in &self.checks.0 {
            out.push('\n');
            if let Some((_, mute)) = self.mutes.iter().find(|(c, _)| c == code) {
                out.push_str("(MUTED");
                if !mute.until.is_zero() {
                    out.push_str(&format!(" ttl {}", self.left(mute)));
                }
                out.push_str(if mute.sticky { ", STICKY) " } else { ") " });
            }
            out.push_str(&format!("[{}] {code}: {}", check.severity.tag(), check.summary));
            for line in &check.detail {
                out.push_str(&format!("\n    {line}"));
            }
        }
        out
    }

    /// The same in JSON.
    pub fn json(&self, detail: bool) -> Value {
        let checks: Map<String, Value> = self
            .checks
            .0
            .iter()
            .map(|(code, check)| (code.clone(), self.check_json(code, check, detail)))
            .collect();
        let mutes = self.mutes.iter().map(|(code, mute)| {
            let mut out = Map::new();
            out.insert("code".into(), code.as_str().into());
            if !mute.until.is_zero() {
                out.insert("ttl".into(), mute.until.to_string().into());
            }
            out.insert("sticky".into(), mute.sticky.into());
            out.insert("summary".into(), mute.summary.as_str().into());
            out.insert("count".into(), mute.count.into());
            Value::Object(out)
        });
        json!({
            "status": self.status().name(),
            "checks": checks,
            "mutes": mutes.collect::<Vec<_>>(),
        })
    }

    fn check_json(&self, code: &str, check: &Check, detail: bool) -> Value {
        let mut out = Map::new();
        out.insert("severity".into(), check.severity.name().into());
        let summary = json!({"message": check.summary, "count": check.count});
        out.insert("summary".into(), summary);
        if detail {
            let lines = check.detail.iter().map(|line| json!({ "message": line }));
            out.insert("detail".into(), lines.collect());
        }
        out.insert("muted".into(), self.is_muted(code).into());
        Value::Object(out)
    }
}
