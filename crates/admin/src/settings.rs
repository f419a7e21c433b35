//! Options of a daemon: one store of settings that knows why each value is what it is.
//!
//! A schema says what options there are, their type, default and bounds. A value comes from one of
//! four sources; the later one in this order wins: built-in default, configuration file, the
//! cluster's configuration database (`ceph config set`), an override made on this very daemon
//! (`ceph daemon .. config set`, `ceph tell`), which lasts until it ends.
//!
//! ```
//! use admin::settings::{OptionDef, OptionKind, Settings, Source};
//! const SCHEMA: &[OptionDef] = &[
//!     OptionDef::new("osd_max_backfills", OptionKind::Uint, "1", "backfills at a time").within(1.0, 100.0),
//! ];
//! let mut settings = Settings::new([SCHEMA]);
//! settings.set(Source::Mon, "osd_max_backfills", "3").unwrap();
//! assert_eq!(settings.uint("osd_max_backfills"), 3);
//! assert_eq!(settings.source("osd_max_backfills"), Some(Source::Mon));
//! ```

use crate::units::{SizeError, parse_iec, parse_si, parse_timespan, stream};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most that an option may be that is a number of seconds: as long as [`types::LONGEST`].
pub const MOST_SECONDS: f64 = types::LONGEST.as_secs() as f64;

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Text.
    Str,
    /// `true`, `false`
    Bool,
    /// A whole number; `5k` is 5000.
    Int,
    /// The same, never negative.
    Uint,
    /// A number.
    Float,
    /// Bytes; `4K` is 4096.
    Size,
    /// A duration in seconds, also `5m`.
    Secs,
    /// A duration in milliseconds.
    Millisecs,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Levels of logging: `1/5`.
    Log,
}

impl OptionKind {
    /// Ceph's word for it.
    pub fn name(self) -> &'static str {
        match self {
            OptionKind::Str | OptionKind::Choice(_) | OptionKind::Log => "str",
            OptionKind::Bool => "bool",
            OptionKind::Int => "int",
            OptionKind::Uint => "uint",
            OptionKind::Float => "float",
            OptionKind::Size => "size",
            OptionKind::Secs => "secs",
            OptionKind::Millisecs => "millisecs",
        }
    }
}

/// Whom an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Everybody.
    Basic,
    /// Whoever knows what they do.
    Advanced,
    /// Developers.
    Dev,
}

impl Level {
    /// Ceph's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Basic => "basic",
            Level::Advanced => "advanced",
            Level::Dev => "dev",
        }
    }
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionDef {
    /// Its name; unit last.
    pub name: &'static str,
    /// Its type.
    pub kind: OptionKind,
    /// Its value when nothing is said.
    pub default: &'static str,
    /// The least value allowed.
    pub min: Option<f64>,
    /// The largest value allowed.
    pub max: Option<f64>,
    /// What it does.
    pub description: &'static str,
    /// Whom it is for.
    pub level: Level,
    /// Whether a change has an effect without a restart.
    pub runtime: bool,
}

impl OptionDef {
    /// An option that can be changed at any time, without bounds.
    pub const fn new(
        name: &'static str,
        kind: OptionKind,
        default: &'static str,
        description: &'static str,
    ) -> Self {
        OptionDef {
            name,
            kind,
            default,
            min: None,
            max: None,
            description,
            level: Level::Advanced,
            runtime: true,
        }
    }

    /// With bounds, both allowed.
    #[must_use]
    pub const fn within(mut self, min: f64, max: f64) -> Self {
        self.min = Some(min);
        self.max = Some(max);
        self
    }

    /// With a least value.
    #[must_use]
    pub const fn at_least(mut self, min: f64) -> Self {
        self.min = Some(min);
        self
    }

    /// For everybody.
    #[must_use]
    pub const fn basic(mut self) -> Self {
        self.level = Level::Basic;
        self
    }

    /// For developers.
    #[must_use]
    pub const fn dev(mut self) -> Self {
        self.level = Level::Dev;
        self
    }

    /// Read only when the daemon starts.
    #[must_use]
    pub const fn at_start(mut self) -> Self {
        self.runtime = false;
        self
    }

    /// Reads a value.
    ///
    /// # Errors
    /// A sentence, Ceph's where it has one.
    pub fn parse(&self, text: &str) -> Result<Setting, String> {
        let number = |text: &str| parse_si(text).map_err(|e| number_error("strict_si_cast", e));
        let value = match self.kind {
            OptionKind::Str => Setting::Str(text.to_owned()),
            OptionKind::Bool => Setting::Bool(parse_bool(text)?),
            OptionKind::Int => Setting::Int(number(text)?),
            OptionKind::Uint => {
                let value = number(text)?;
                if value < 0 {
                    return Err("strict_sistrtoll: value should not be negative".into());
                }
                Setting::Int(value)
            }
            OptionKind::Size => {
                let value = parse_iec(text).map_err(|e| number_error("strict_iecstrtoll", e))?;
                if value < 0 {
                    return Err("strict_iecstrtoll: value should not be negative".into());
                }
                Setting::Int(value)
            }
            OptionKind::Float => {
                let bad = || format!("strict_strtod: expected float, got: '{text}'");
                Setting::Float(text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(bad)?)
            }
            OptionKind::Secs => {
                let bad = || format!("parse_timespan: '{text}' is not a duration such as 90 or 5m");
                Setting::Duration(parse_timespan(text).ok_or_else(bad)?)
            }
            OptionKind::Millisecs => {
                let bad = || format!("'{text}' is not a number of milliseconds");
                Setting::Duration(text.parse().map(Duration::from_millis).map_err(|_| bad())?)
            }
            OptionKind::Choice(words) => {
                if !words.contains(&text) {
                    return Err(format!(
                        "'{text}' is not one of the permitted values: {}",
                        words.join(", ")
                    ));
                }
                Setting::Str(text.to_owned())
            }
            OptionKind::Log => Setting::Str(parse_log(text)?),
        };
        if let Setting::Duration(d) = value
            && d > types::LONGEST
        {
            return Err(format!("Value '{text}' is longer than {MOST_SECONDS} seconds"));
        }
        self.check_bounds(&value, text)?;
        Ok(value)
    }

    fn check_bounds(&self, value: &Setting, text: &str) -> Result<(), String> {
        let number = match value {
            Setting::Int(n) => *n as f64,
            Setting::Float(x) => *x,
            Setting::Duration(d) if self.kind == OptionKind::Millisecs => d.as_millis() as f64,
            Setting::Duration(d) => d.as_secs_f64(),
            Setting::Str(_) | Setting::Bool(_) => return Ok(()),
        };
        match (self.min, self.max) {
            (Some(min), _) if number < min => {
                Err(format!("Value '{text}' is below minimum {}", stream(min)))
            }
            (_, Some(max)) if number > max => {
                Err(format!("Value '{text}' exceeds maximum {}", stream(max)))
            }
            _ => Ok(()),
        }
    }

    fn default_json(&self) -> Value {
        self.parse(self.default).map_or(Value::Null, |v| v.json(self.kind))
    }

    /// Its default, as a value is printed. `None`: it is no value of the option.
    pub fn show_default(&self) -> Option<String> {
        Some(self.parse(self.default).ok()?.show(self.kind))
    }

    /// The answer to `config help` in JSON.
    pub fn describe(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind.name(), "level": self.level.name(),
            "desc": self.description, "long_desc": "", "default": self.default_json(),
            "daemon_default": "", "tags": [], "services": [], "see_also": [],
            "enum_values": match self.kind {
                OptionKind::Choice(words) => words.to_vec(),
                _ => Vec::new(),
            },
            "min": self.min.map_or(Value::from(""), Value::from),
            "max": self.max.map_or(Value::from(""), Value::from),
            "can_update_at_runtime": self.runtime,
            "flags": if self.runtime { vec!["runtime"] } else { vec!["startup"] },
        })
    }

    /// The answer to `config help` for people.
    pub fn describe_text(&self) -> String {
        let mut out = format!("{} - {}\n", self.name, self.description);
        out.push_str(&format!("  ({}, {})\n", self.kind.name(), self.level.name()));
        out.push_str(&format!("  Default: {}\n", self.default));
        if let Some(min) = self.min {
            out.push_str(&format!("  Minimum: {}\n", stream(min)));
        }
        if let Some(max) = self.max {
            out.push_str(&format!("  Maximum: {}\n", stream(max)));
        }
        if let OptionKind::Choice(words) = self.kind {
            out.push_str(&format!("  Possible values:  {}\n", words.join(", ")));
        }
        let runtime = if self.runtime { "true" } else { "false" };
        out.push_str(&format!("  Can update at runtime: {runtime}\n"));
        out
    }
}

fn number_error(what: &str, e: SizeError) -> String {
    match e {
        SizeError::BadUnit => format!("{what}: unit prefix not recognized"),
        e => e.to_string(),
    }
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("Expected option value to be integer, got '{text}'")),
    }
}

fn parse_log(text: &str) -> Result<String, String> {
    let level = |t: &str| t.parse::<u8>().ok().filter(|n| *n <= 200);
    let both = match text.split_once('/') {
        Some((log, gather)) => level(log).zip(level(gather)),
        None => level(text).map(|n| (n, n)),
    };
    match both {
        Some((log, gather)) => Ok(format!("{log}/{gather}")),
        None => Err(format!(
            "value must take the form N or N/M, where N and M are integers, got '{text}'"
        )),
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Text.
    Str(String),
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A duration.
    Duration(Duration),
}

impl Setting {
    /// As it stands in JSON that is not all text.
    fn json(&self, kind: OptionKind) -> Value {
        match self {
            Setting::Bool(b) => (*b).into(),
            Setting::Int(n) => (*n).into(),
            Setting::Float(x) => (*x).into(),
            Setting::Str(_) | Setting::Duration(_) => self.show(kind).into(),
        }
    }

    /// As it is printed.
    pub fn show(&self, kind: OptionKind) -> String {
        match self {
            Setting::Str(s) => s.clone(),
            Setting::Bool(b) => b.to_string(),
            Setting::Int(n) => n.to_string(),
            Setting::Float(x) => format!("{x:.6}"),
            Setting::Duration(d) if kind == OptionKind::Millisecs => d.as_millis().to_string(),
            Setting::Duration(d) => d.as_secs().to_string(),
        }
    }
}

/// Where a value comes from. A later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Built in.
    Default,
    /// The daemon's configuration file or command line.
    File,
    /// The cluster's configuration database.
    Mon,
    /// Set on this daemon while it runs.
    Override,
}

impl Source {
    /// Ceph's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::File => "file",
            Source::Mon => "mon",
            Source::Override => "override",
        }
    }
}

/// Why an option cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such option.
    #[error("unrecognized config option '{0}'")]
    Unknown(String),
    /// The value is not one of its.
    #[error("error parsing value: {0}")]
    Bad(String),
}

#[derive(Clone, Debug)]
struct Entry {
    def: OptionDef,
    /// What each source says; the default stands first.
    values: Vec<(Source, Setting)>,
}

impl Entry {
    fn now(&self) -> &(Source, Setting) {
        self.values.last().expect("the default is always there")
    }
}

/// All options of a daemon, and what each source says of them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    entries: BTreeMap<&'static str, Entry>,
}

impl Settings {
    /// Options at their defaults.
    ///
    /// # Panics
    /// When a default is not a value of its option: a bug of ours.
    pub fn new<'a>(schemas: impl IntoIterator<Item = &'a [OptionDef]>) -> Self {
        let mut settings = Settings::default();
        for def in schemas.into_iter().flatten() {
            let value = def.parse(def.default);
            let value = value.unwrap_or_else(|e| panic!("default of {}: {e}", def.name));
            let values = vec![(Source::Default, value)];
            settings.entries.insert(def.name, Entry { def: *def, values });
        }
        settings
    }

    /// The options.
    pub fn defs(&self) -> impl Iterator<Item = &OptionDef> {
        self.entries.values().map(|e| &e.def)
    }

    /// An option.
    pub fn def(&self, name: &str) -> Option<&OptionDef> {
        self.entries.get(name).map(|e| &e.def)
    }

    /// Says what a source wants. Whether the value that counts changed.
    ///
    /// # Errors
    /// When there is no such option or the value is not one of its.
    pub fn set(&mut self, source: Source, name: &str, text: &str) -> Result<bool, SettingError> {
        let unknown = || SettingError::Unknown(name.to_owned());
        let entry = self.entries.get_mut(name).ok_or_else(unknown)?;
        let value = entry.def.parse(text).map_err(SettingError::Bad)?;
        let before = entry.now().1.clone();
        entry.values.retain(|(s, _)| *s != source);
        entry.values.push((source, value));
        entry.values.sort_by_key(|(s, _)| *s);
        Ok(entry.now().1 != before)
    }

    /// A source has no wish any more. Whether the value that counts changed.
    pub fn unset(&mut self, source: Source, name: &str) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let before = entry.now().1.clone();
        entry.values.retain(|(s, _)| *s != source || *s == Source::Default);
        entry.now().1 != before
    }

    /// Everything a source wants, in place of what it wanted before: what a CONFIG message says.
    /// Options that do not exist or values that are none are left out; their names are given back with
    /// the reason. Answers the names whose value changed, too.
    pub fn replace(
        &mut self,
        source: Source,
        wishes: &BTreeMap<String, String>,
    ) -> (Vec<&'static str>, Vec<(String, SettingError)>) {
        let before: Vec<_> = self.entries.values().map(|e| e.now().1.clone()).collect();
        let names: Vec<&'static str> = self.entries.keys().copied().collect();
        for name in &names {
            self.unset(source, name);
        }
        let refused = wishes.iter().filter_map(|(name, text)| {
            self.set(source, name, text).err().map(|why| (name.clone(), why))
        });
        let refused = refused.collect();
        let after = self.entries.values().map(|e| &e.now().1);
        let changed = names.iter().zip(before.iter().zip(after));
        (changed.filter(|(_, (b, a))| b != a).map(|(n, _)| *n).collect(), refused)
    }

    /// The value that counts.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.entries.get(name).map(|e| &e.now().1)
    }

    /// The value that counts, as text.
    pub fn show(&self, name: &str) -> Option<String> {
        self.entries.get(name).map(|e| e.now().1.show(e.def.kind))
    }

    /// Where the value that counts comes from.
    pub fn source(&self, name: &str) -> Option<Source> {
        self.entries.get(name).map(|e| e.now().0)
    }

    /// What each source says, the one that counts last: why a value is what it is.
    pub fn why(&self, name: &str) -> Vec<(Source, String)> {
        let values = self.entries.get(name).map(|e| (e.def.kind, &e.values));
        let shown = |(kind, values): (OptionKind, &Vec<(Source, Setting)>)| {
            values.iter().map(|(source, v)| (*source, v.show(kind))).collect()
        };
        values.map(shown).unwrap_or_default()
    }

    /// Options of which somebody said something, and what: the one that counts last.
    pub fn said(&self) -> impl Iterator<Item = (&'static str, Vec<(Source, String)>)> {
        self.entries.iter().filter(|(_, e)| e.values.len() > 1).map(|(name, e)| {
            let said = e.values.iter().filter(|(source, _)| *source != Source::Default);
            (*name, said.map(|(source, v)| (*source, v.show(e.def.kind))).collect())
        })
    }

    fn expect(&self, name: &str) -> &Setting {
        self.get(name).unwrap_or_else(|| panic!("{name} is in the schema"))
    }

    /// A whole number.
    ///
    /// # Panics
    /// When the schema has no such option of that type: a bug of ours. So do the ones below.
    pub fn uint(&self, name: &str) -> u64 {
        match self.expect(name) {
            Setting::Int(n) => u64::try_from(*n).unwrap_or(0),
            other => panic!("{name} is no whole number but {other:?}"),
        }
    }

    /// A number.
    ///
    /// # Panics
    /// See [`Settings::uint`].
    pub fn float(&self, name: &str) -> f64 {
        match self.expect(name) {
            Setting::Float(x) => *x,
            other => panic!("{name} is no fraction but {other:?}"),
        }
    }

    /// Yes or no.
    ///
    /// # Panics
    /// See [`Settings::uint`].
    pub fn bool(&self, name: &str) -> bool {
        match self.expect(name) {
            Setting::Bool(b) => *b,
            other => panic!("{name} is not yes or no but {other:?}"),
        }
    }

    /// Text.
    ///
    /// # Panics
    /// See [`Settings::uint`].
    pub fn str(&self, name: &str) -> &str {
        match self.expect(name) {
            Setting::Str(s) => s,
            other => panic!("{name} is no text but {other:?}"),
        }
    }

    /// A duration.
    ///
    /// # Panics
    /// See [`Settings::uint`].
    pub fn duration(&self, name: &str) -> Duration {
        match self.expect(name) {
            Setting::Duration(d) => *d,
            other => panic!("{name} is no duration but {other:?}"),
        }
    }

    /// The answer to the admin socket's `config show`: every name and value.
    pub fn show_all(&self) -> Value {
        let all = self.entries.iter();
        let shown = all.map(|(n, e)| ((*n).to_owned(), e.now().1.show(e.def.kind).into()));
        Value::Object(shown.collect())
    }

    /// The answer to the admin socket's `config diff`: what is not at its default, and why.
    pub fn diff(&self) -> Value {
        let mut diff = Map::new();
        for (name, entry) in self.entries.iter().filter(|(_, e)| e.values.len() > 1) {
            let kind = entry.def.kind;
            let mut of = Map::new();
            for (source, value) in &entry.values {
                of.insert(source.name().to_owned(), value.json(kind));
            }
            of.insert("final".to_owned(), entry.now().1.json(kind));
            diff.insert((*name).to_owned(), Value::Object(of));
        }
        json!({ "diff": diff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &[OptionDef] = &[
        OptionDef::new("max", OptionKind::Uint, "1", "").within(0.0, 10.0),
        OptionDef::new("bytes", OptionKind::Size, "4K", ""),
        OptionDef::new("ratio", OptionKind::Float, "0.5", "").within(0.0, 1.0),
        OptionDef::new("on", OptionKind::Bool, "true", ""),
        OptionDef::new("wait", OptionKind::Secs, "5m", "").at_start(),
        OptionDef::new("tick_ms", OptionKind::Millisecs, "50", ""),
        OptionDef::new("mode", OptionKind::Choice(&["a", "b"]), "a", ""),
        OptionDef::new("debug", OptionKind::Log, "1/5", ""),
        OptionDef::new("text", OptionKind::Str, "", ""),
    ];

    #[test]
    fn a_later_source_wins_and_all_are_remembered() {
        let mut s = Settings::new([SCHEMA]);
        assert_eq!(s.set(Source::Mon, "max", "3"), Ok(true));
        assert_eq!(s.set(Source::File, "max", "2"), Ok(false));
        assert_eq!(s.uint("max"), 3);
        assert_eq!(s.set(Source::Override, "max", "4"), Ok(true));
        let why: Vec<_> = s.why("max").into_iter().map(|(s, v)| (s.name(), v)).collect();
        let expected = [("default", "1"), ("file", "2"), ("mon", "3"), ("override", "4")];
        assert_eq!(why, expected.map(|(s, v)| (s, v.to_owned())));
        assert_eq!(
            s.diff(),
            json!({"diff": {"max": {"default": 1, "file": 2, "mon": 3, "override": 4, "final": 4}}})
        );
        let said: Vec<_> = s.said().map(|(name, said)| (name, said.len())).collect();
        assert_eq!(said, [("max", 3)], "without the default");
        assert!(s.unset(Source::Override, "max") && s.unset(Source::Mon, "max"));
        assert_eq!((s.uint("max"), s.source("max")), (2, Some(Source::File)));
        assert!(!s.unset(Source::Default, "max"), "defaults stay");
    }

    #[test]
    fn values_are_checked_in_cephs_words() {
        let mut s = Settings::new([SCHEMA]);
        let mut refused =
            |name: &str, text: &str| s.set(Source::Mon, name, text).unwrap_err().to_string();
        assert_eq!(refused("nosuch", "1"), "unrecognized config option 'nosuch'");
        assert_eq!(
            refused("max", "abc"),
            "error parsing value: strict_si_cast: unit prefix not recognized"
        );
        assert_eq!(
            refused("max", "-5"),
            "error parsing value: strict_sistrtoll: value should not be negative"
        );
        assert_eq!(refused("max", "17"), "error parsing value: Value '17' exceeds maximum 10");
        for (name, text) in [
            ("ratio", "x"),
            ("ratio", "2"),
            ("on", "maybe"),
            ("wait", "x"),
            ("mode", "c"),
            ("debug", "a/b"),
            ("tick_ms", "-1"),
            ("tick_ms", "18446744073709551615"),
            ("wait", "4294967296"),
            ("wait", "584000000000y"),
            ("bytes", "-1"),
        ] {
            refused(name, text);
        }
    }

    #[test]
    fn typed_values_and_their_texts() {
        let s = Settings::new([SCHEMA]);
        assert_eq!((s.uint("bytes"), s.bool("on"), s.str("mode")), (4096, true, "a"));
        assert_eq!(s.duration("wait"), Duration::from_secs(300));
        assert_eq!(s.duration("tick_ms"), Duration::from_millis(50));
        let shown = s.show_all();
        assert_eq!(shown["ratio"], "0.500000");
        assert_eq!((shown["wait"].as_str(), shown["tick_ms"].as_str()), (Some("300"), Some("50")));
        assert_eq!(shown["debug"], "1/5");
    }

    #[test]
    fn what_the_mon_sends_replaces_what_it_sent() {
        let mut s = Settings::new([SCHEMA]);
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let (changed, refused) =
            s.replace(Source::Mon, &of(&[("max", "2"), ("nosuch", "1"), ("ratio", "7")]));
        assert_eq!((changed, refused.len()), (vec!["max"], 2));
        let (changed, _) = s.replace(Source::Mon, &of(&[("on", "false")]));
        assert_eq!(changed, ["max", "on"]);
        assert!(s.replace(Source::Mon, &of(&[("on", "0")])).0.is_empty());
    }
}
