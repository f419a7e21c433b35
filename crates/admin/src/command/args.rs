//! The arguments of a command that came.

use super::sig::{fraction, whole};
use crate::answer::CommandError;
use crate::json::Format;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use types::{AddrType, EntityAddr, OsdId, PgId, Uuid};

/// What Ceph says of an argument that is missing or of another type.
pub(super) fn bad_field(name: &str) -> CommandError {
    CommandError::invalid(format_args!("bad or missing field '{name}'"))
}

/// Arguments that were checked against a signature.
#[derive(Clone, Debug, Default)]
pub struct Args {
    args: Map<String, Value>,
}

impl Args {
    /// Arguments as they came.
    pub fn new(args: Map<String, Value>) -> Self {
        Args { args }
    }

    /// The command's words.
    pub fn prefix(&self) -> &str {
        self.args.get("prefix").and_then(Value::as_str).unwrap_or_default()
    }

    /// How the answer is to be printed.
    pub fn format(&self) -> Format {
        Format::from_name(self.args.get("format").and_then(Value::as_str).unwrap_or_default())
    }

    /// As they came.
    pub fn raw(&self) -> &Map<String, Value> {
        &self.args
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.args.get(name).filter(|v| !v.is_null())
    }

    /// Whether it was given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A text. A number is taken as its digits.
    pub fn str(&self, name: &str) -> Option<Cow<'_, str>> {
        scalar_text(self.get(name)?)
    }

    /// A text that the signature requires; empty if it is not there after all.
    pub fn text(&self, name: &str) -> Cow<'_, str> {
        self.str(name).unwrap_or_default()
    }

    /// A list; of a single value, just that one.
    pub fn list(&self, name: &str) -> Vec<Cow<'_, str>> {
        match self.get(name) {
            Some(Value::Array(items)) => items.iter().filter_map(scalar_text).collect(),
            Some(one) => scalar_text(one).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(whole)
    }

    /// A number.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(fraction)
    }

    /// A list of numbers.
    pub fn floats(&self, name: &str) -> Vec<f64> {
        match self.get(name) {
            Some(Value::Array(items)) => items.iter().filter_map(fraction).collect(),
            Some(one) => fraction(one).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// A switch. Old clients send it as the text that was typed, some under the name `sure`.
    pub fn flag(&self, name: &str) -> bool {
        let typed = |text: &str| {
            let mut word = String::from("--");
            word.extend(name.chars().map(|c| if c == '_' { '-' } else { c }));
            text == "true" || text == word
        };
        match self.get(name) {
            Some(Value::Bool(on)) => *on,
            Some(Value::String(text)) => typed(text),
            _ => self.get("sure").and_then(Value::as_str).is_some_and(|t| t != "true" && typed(t)),
        }
    }

    /// An OSD.
    pub fn osd(&self, name: &str) -> Option<OsdId> {
        self.get(name).and_then(osd_id)
    }

    /// A list of OSDs. `None` when one of them is none.
    pub fn osds(&self, name: &str) -> Option<Vec<OsdId>> {
        match self.get(name) {
            Some(Value::Array(items)) => items.iter().map(osd_id).collect(),
            Some(one) => osd_id(one).map(|id| vec![id]),
            None => Some(Vec::new()),
        }
    }

    /// A PG.
    pub fn pgid(&self, name: &str) -> Option<PgId> {
        self.get(name)?.as_str()?.parse().ok()
    }

    /// A UUID.
    pub fn uuid(&self, name: &str) -> Option<Uuid> {
        self.get(name)?.as_str()?.parse().ok()
    }

    /// An address.
    pub fn addr(&self, name: &str) -> Option<EntityAddr> {
        parse_addr(self.get(name)?.as_str()?)
    }
}

/// Text of a text or number.
pub(super) fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(s) => Some(s.as_str().into()),
        Value::Number(n) => Some(n.to_string().into()),
        Value::Bool(b) => Some(b.to_string().into()),
        _ => None,
    }
}

/// `3`, `"3"`, `"osd.3"`
pub(super) fn osd_id(value: &Value) -> Option<OsdId> {
    let number = match value {
        Value::Number(n) => n.as_i64()?,
        Value::String(s) => parse_osd(s)?.0.into(),
        _ => return None,
    };
    i32::try_from(number).ok().map(OsdId).filter(|id| id.index().is_some())
}

/// `3` or `osd.3`
pub fn parse_osd(text: &str) -> Option<OsdId> {
    let number = text.strip_prefix("osd.").unwrap_or(text);
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().map(OsdId).filter(|id| id.index().is_some())
}

/// `1.2.3.4`, `1.2.3.4:5`, `[::1]:5/7`, with or without `v1:`, `v2:`, `any:` before it.
pub fn parse_addr(text: &str) -> Option<EntityAddr> {
    let prefixes = [("v1:", AddrType::LEGACY), ("v2:", AddrType::MSGR2), ("any:", AddrType::ANY)];
    let (kind, rest) = prefixes
        .iter()
        .find_map(|(prefix, kind)| Some((*kind, text.strip_prefix(prefix)?)))
        .unwrap_or((AddrType::ANY, text));
    let (addr, nonce) = match rest.split_once('/') {
        Some((addr, nonce)) => (addr, nonce.parse().ok()?),
        None => (rest, 0),
    };
    let sock = match addr.parse::<SocketAddr>() {
        Ok(sock) => sock,
        Err(_) => SocketAddr::new(addr.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 0),
    };
    Some(EntityAddr { kind, nonce, sock: Some(sock) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn args(value: Value) -> Args {
        Args::new(value.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn typed_access() {
        let a = args(json!({"prefix": "x y", "format": "json", "id": "osd.4", "ids": [1, "osd.2"],
            "n": 5, "w": "0.5", "yes_i_really_mean_it": true, "words": "one", "pg": "2.1f"}));
        assert_eq!((a.prefix(), a.format()), ("x y", Format::Json));
        assert_eq!(a.osd("id"), Some(OsdId(4)));
        assert_eq!(a.osds("ids"), Some(vec![OsdId(1), OsdId(2)]));
        assert_eq!(a.list("ids"), ["1", "osd.2"]);
        assert_eq!((a.int("n"), a.float("w")), (Some(5), Some(0.5)));
        assert!(a.flag("yes_i_really_mean_it") && !a.flag("force"));
        assert_eq!(a.list("words"), ["one"]);
        assert_eq!(a.pgid("pg").map(|p| p.to_string()), Some("2.1f".into()));
        assert!(args(json!({"sure": "--yes-i-really-mean-it"})).flag("yes_i_really_mean_it"));
        assert!(!args(json!({"sure": "true"})).flag("yes_i_really_mean_it"));
    }

    #[test]
    fn addresses() {
        let shown = |t: &str| parse_addr(t).map(|a| a.to_string());
        assert_eq!(shown("1.2.3.4:0/123").as_deref(), Some("1.2.3.4:0/123"));
        assert_eq!(shown("1.2.3.4").as_deref(), Some("1.2.3.4:0/0"));
        assert_eq!(shown("v2:[::1]:7/1").as_deref(), Some("v2:[::1]:7/1"));
        for bad in ["", "nosuch", "1.2.3.4:x", "1.2.3.4/x", "1.2.3"] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }
}
