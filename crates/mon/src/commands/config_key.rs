//! `config-key`: a small store of keys and values for whoever wants one.

use super::{Call, CommandDef, Reply, old, read, write};
use crate::cluster::Cluster;
use crate::store::keys;
use admin::{Answer, CommandError, Data};
use bytes::Bytes;
use serde_json::Value;

/// Longest value.
const MAX_VALUE_BYTES: usize = 64 << 10;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("config-key get <key:String>", "config-key", "shows a value", get),
    write("config-key set <key:String> [val:String]", "config-key", "sets a value", set),
    write("config-key rm <key:String>", "config-key", "removes a key", rm),
    read("config-key exists <key:String>", "config-key", "says whether there is a key", exists),
    read("config-key ls", "config-key", "lists the keys", ls),
    read(
        "config-key dump [key:String]",
        "config-key",
        "shows keys that begin with a word, and their values",
        dump,
    ),
    old(write("config-key put <key:String> [val:String]", "config-key", "sets a value", set)),
    old(write("config-key del <key:String>", "config-key", "removes a key", rm)),
    old(read("config-key list", "config-key", "lists the keys", ls)),
];

impl Cluster {
    /// Sets a key, for good.
    pub fn set_config_key(&mut self, key: String, value: Bytes) {
        self.draft.put(format!("{}{key}", keys::CONFIG_KEY), value.clone());
        self.state.config_key.insert(key, value);
    }

    /// Removes a key, for good.
    pub fn remove_config_key(&mut self, key: &str) {
        if self.state.config_key.remove(key).is_some() {
            self.draft.remove(format!("{}{key}", keys::CONFIG_KEY));
        }
    }
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let value = c.state.config_key.get(&*call.args.text("key"));
    let value = value.ok_or_else(|| CommandError::not_found(""))?;
    Ok(Answer { data: Data::Raw(value.clone()), ..Answer::ok() })
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let key = call.args.text("key").into_owned();
    let value = match call.args.str("val") {
        Some(value) => Bytes::copy_from_slice(value.as_bytes()),
        None => Bytes::copy_from_slice(&call.input),
    };
    if value.len() > MAX_VALUE_BYTES {
        let text = format!("error: value is too large (max {MAX_VALUE_BYTES} bytes)");
        return Err(CommandError::new(types::Errno::EFBIG, text));
    }
    let answer = Answer::message(format_args!("set {key}"));
    c.set_config_key(key, value);
    Ok(answer)
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    c.remove_config_key(&call.args.text("key"));
    Ok(Answer::message("key deleted"))
}

fn exists(c: &Cluster, call: &Call) -> Reply {
    let key = call.args.text("key");
    if c.state.config_key.contains_key(&*key) {
        return Ok(Answer::message(format_args!("key '{key}' exists")));
    }
    Err(CommandError::not_found(format_args!("key '{key}' doesn't exist")))
}

fn ls(c: &Cluster, _call: &Call) -> Reply {
    Ok(Answer::json(c.state.config_key.keys().map(String::as_str).collect()))
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    let start = call.args.text("key");
    let wanted = c.state.config_key.iter().filter(|(k, _)| k.starts_with(&*start));
    let shown = wanted.map(|(key, value)| {
        let text = match std::str::from_utf8(value) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("<<< binary blob of length {} >>>", value.len()),
        };
        (key.clone(), Value::from(text))
    });
    Ok(Answer::json(Value::Object(shown.collect())))
}
