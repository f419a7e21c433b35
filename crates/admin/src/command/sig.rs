//! Signatures: from their text to parameters, and the check of values against them.

use super::args::{bad_field, osd_id, scalar_text};
use crate::answer::CommandError;
use serde_json::{Map, Value};
use types::{PgId, Uuid};

/// The type of a parameter, as Ceph's tools know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Text.
    String,
    /// `--name`
    Bool,
    /// One of some words.
    Choices,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A pool.
    Poolname,
    /// An object.
    Objectname,
    /// A PG, `2.1f`.
    Pgid,
    /// `3` or `osd.3`.
    OsdName,
    /// `osd.3`, `client.admin`.
    Name,
    /// `1.2.3.4:0/123`
    EntityAddr,
    /// `1.2.3.4:6789`
    IPAddr,
    /// A UUID.
    UUID,
}

const KINDS: [(&str, ParamKind); 13] = [
    ("String", ParamKind::String),
    ("Bool", ParamKind::Bool),
    ("Choices", ParamKind::Choices),
    ("Int", ParamKind::Int),
    ("Float", ParamKind::Float),
    ("Poolname", ParamKind::Poolname),
    ("Objectname", ParamKind::Objectname),
    ("Pgid", ParamKind::Pgid),
    ("OsdName", ParamKind::OsdName),
    ("Name", ParamKind::Name),
    ("EntityAddr", ParamKind::EntityAddr),
    ("IPAddr", ParamKind::IPAddr),
    ("UUID", ParamKind::UUID),
];

/// Which characters a text may have; letters and digits always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoodChars {
    /// `good=crush`: `-_.`
    Crush,
    /// `good=loc`: `-_.=`
    Location,
    /// `good=class`: `-_`
    Class,
}

impl GoodChars {
    fn pattern(self) -> &'static str {
        match self {
            GoodChars::Crush => "[A-Za-z0-9-_.]",
            GoodChars::Location => "[A-Za-z0-9-_.=]",
            GoodChars::Class => "[A-Za-z0-9-_]",
        }
    }

    fn allows(self, text: &str) -> bool {
        let extra = match self {
            GoodChars::Crush => "-_.",
            GoodChars::Location => "-_.=",
            GoodChars::Class => "-_",
        };
        text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    }
}

/// One parameter of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name in the JSON.
    pub name: String,
    /// Its type.
    pub kind: ParamKind,
    /// Whether it must be given.
    pub required: bool,
    /// Whether it is a list.
    pub many: bool,
    /// Of a number: least and largest, as they are written.
    pub range: Option<String>,
    /// Of a choice: the words.
    pub choices: Vec<String>,
    /// Of a choice: what other words mean is for the command to say.
    pub open: bool,
    /// Of a text.
    pub good: Option<GoodChars>,
}

/// Takes a signature apart.
///
/// # Panics
/// When it is malformed.
pub(super) fn parse(sig: &str) -> (String, Vec<Param>) {
    let mut words = Vec::new();
    let mut params = Vec::new();
    for token in sig.split_ascii_whitespace() {
        if token.starts_with(['<', '[']) {
            params.push(parse_param(token).unwrap_or_else(|| panic!("bad signature: {sig}")));
        } else {
            assert!(params.is_empty(), "words come before parameters: {sig}");
            words.push(token);
        }
    }
    assert!(!words.is_empty(), "a command has a name: {sig}");
    (words.join(" "), params)
}

fn parse_param(token: &str) -> Option<Param> {
    let (token, many) = match token.strip_suffix("...") {
        Some(one) => (one, true),
        None => (token, false),
    };
    let required = token.starts_with('<');
    let inner = token.strip_prefix(['<', '['])?.strip_suffix(if required { '>' } else { ']' })?;
    let (name, rest) = inner.split_once(':')?;
    let (kind, bounds) = rest.split_once(',').map_or((rest, None), |(k, b)| (k, Some(b)));
    let kind = KINDS.iter().find(|(n, _)| *n == kind)?.1;
    let mut param = Param {
        name: name.to_owned(),
        kind,
        required,
        many,
        range: None,
        choices: Vec::new(),
        open: false,
        good: None,
    };
    match (kind, bounds) {
        (ParamKind::Choices, Some(words)) => {
            param.open = words.ends_with("|*");
            let words = words.split('|').filter(|word| *word != "*");
            param.choices = words.map(str::to_owned).collect();
        }
        (ParamKind::Choices, None) => return None,
        (ParamKind::Int | ParamKind::Float, Some(range)) => param.range = Some(range.to_owned()),
        (_, Some("good=crush")) => param.good = Some(GoodChars::Crush),
        (_, Some("good=loc")) => param.good = Some(GoodChars::Location),
        (_, Some("good=class")) => param.good = Some(GoodChars::Class),
        (_, Some(_)) => return None,
        (_, None) => {}
    }
    Some(param)
}

impl Param {
    pub(super) fn describe(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), self.name.as_str().into());
        if !self.required {
            map.insert("req".into(), false.into());
        }
        let kind = KINDS.iter().find(|(_, k)| *k == self.kind).map_or("String", |(n, _)| n);
        map.insert("type".into(), format!("Ceph{kind}").into());
        if let Some(range) = &self.range {
            map.insert("range".into(), range.as_str().into());
        }
        if !self.choices.is_empty() {
            map.insert("strings".into(), self.choices.join("|").into());
        }
        if let Some(good) = self.good {
            map.insert("goodchars".into(), good.pattern().into());
        }
        if self.many {
            map.insert("n".into(), "N".into());
        }
        Value::Object(map)
    }

    /// Checks a value that is given. A list of one may stand alone.
    pub(super) fn check(&self, value: &Value) -> Result<(), CommandError> {
        match value {
            Value::Array(items) if self.many => items.iter().try_for_each(|v| self.check_one(v)),
            one => self.check_one(one),
        }
    }

    fn check_one(&self, value: &Value) -> Result<(), CommandError> {
        let bad = || bad_field(&self.name);
        match self.kind {
            ParamKind::Bool => match value {
                Value::Bool(_) | Value::String(_) => Ok(()),
                _ => Err(bad()),
            },
            ParamKind::Int => {
                let number = whole(value).ok_or_else(bad)?;
                self.check_range(number as f64, value)
            }
            ParamKind::Float => {
                let number = fraction(value).filter(|n| n.is_finite()).ok_or_else(bad)?;
                self.check_range(number, value)
            }
            ParamKind::OsdName => osd_id(value).map(|_| ()).ok_or_else(bad),
            ParamKind::UUID => {
                let text = value.as_str().ok_or_else(bad)?;
                text.parse::<Uuid>().map(|_| ()).map_err(|_| bad())
            }
            ParamKind::Pgid => {
                let text = value.as_str().ok_or_else(bad)?;
                let parsed = text.parse::<PgId>().map(|_| ());
                parsed.map_err(|()| CommandError::invalid(format_args!("invalid pgid '{text}'")))
            }
            ParamKind::EntityAddr | ParamKind::IPAddr => {
                let text = value.as_str().ok_or_else(bad)?;
                let parsed = crate::command::args::parse_addr(text).map(|_| ());
                let wrong = || format!("unable to parse address {text}");
                parsed.ok_or_else(|| CommandError::invalid(wrong()))
            }
            ParamKind::Choices => self.check_choice(value.as_str().ok_or_else(bad)?),
            ParamKind::String | ParamKind::Poolname | ParamKind::Objectname | ParamKind::Name => {
                let text = scalar_text(value).ok_or_else(bad)?;
                self.check_chars(&text)
            }
        }
    }

    fn check_choice(&self, word: &str) -> Result<(), CommandError> {
        if self.open || self.choices.iter().any(|c| c == word) {
            return Ok(());
        }
        let (name, choices) = (&self.name, self.choices.join("|"));
        let text = format!("invalid value '{word}' for '{name}': must be one of {choices}");
        Err(CommandError::invalid(text))
    }

    fn check_chars(&self, text: &str) -> Result<(), CommandError> {
        let most = if self.good.is_some() { MAX_NAME_BYTES } else { MAX_TEXT_BYTES };
        if text.len() > most {
            let (name, len) = (&self.name, text.len());
            let why = format!("'{name}' has {len} bytes, and may have {most}");
            return Err(CommandError::invalid(why));
        }
        match self.good {
            Some(good) if !good.allows(text) => {
                let (name, pattern) = (&self.name, good.pattern());
                let why =
                    format!("invalid chars in '{text}': only {pattern} may be used for '{name}'");
                Err(CommandError::invalid(why))
            }
            _ => Ok(()),
        }
    }

    fn check_range(&self, number: f64, value: &Value) -> Result<(), CommandError> {
        let Some(range) = &self.range else { return Ok(()) };
        let (min, max) =
            range.split_once('|').map_or((range.as_str(), None), |(a, b)| (a, Some(b)));
        let beyond = |bound: &str, over: bool| {
            let bound: f64 = bound.parse().unwrap_or(0.0);
            if over { number > bound } else { number < bound }
        };
        if !beyond(min, false) && !max.is_some_and(|max| beyond(max, true)) {
            return Ok(());
        }
        let allowed = match max {
            Some(max) => format!("from {min} to {max}"),
            None => format!("at least {min}"),
        };
        let shown = scalar_text(value).unwrap_or_default();
        let name = &self.name;
        let text = format!("invalid value '{shown}' for '{name}': must be {allowed}");
        Err(CommandError::invalid(text))
    }
}

/// Longest name; maps have it, and maps are kept by the hundred.
const MAX_NAME_BYTES: usize = 1024;
/// Longest other text (`config-key`'s `mon_config_key_max_entry_size`). What is longer comes as a
/// command's data.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// A whole number, also as text.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => n.as_i64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}

/// A number, also as text.
pub(super) fn fraction(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}
