//! `auth`: names that may use the cluster, their keys and rights.
//!
//! Connections are not authenticated yet (AUTH_NONE): keys and rights are kept, so that scripts
//! that set users up work, and not asked for.

use super::{Call, CommandDef, Reply, old, read, write};
use crate::cluster::Cluster;
use crate::state::AuthEntry;
use crate::store::keys;
use admin::{Answer, CommandError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use types::UTime;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("auth ls", "auth", "lists names, keys and rights", ls),
    old(read("auth list", "auth", "lists names, keys and rights", ls)),
    read("auth get <entity:String>", "auth", "gives out a keyring with the key of a name", get),
    read("auth export [entity:String]", "auth", "gives out a keyring, or that of a name", export),
    read("auth get-key <entity:String>", "auth", "shows the key of a name", get_key),
    read("auth print-key <entity:String>", "auth", "shows the key of a name", get_key),
    old(read("auth print_key <entity:String>", "auth", "shows the key of a name", get_key)),
    write("auth add <entity:String> [caps:String]...", "auth", "adds a name", add),
    write(
        "auth get-or-create <entity:String> [caps:String]...",
        "auth",
        "adds a name if there is none, and gives out its keyring",
        get_or_create,
    ),
    write(
        "auth get-or-create-key <entity:String> [caps:String]...",
        "auth",
        "adds a name if there is none, and shows its key",
        get_or_create_key,
    ),
    write("auth caps <entity:String> <caps:String>...", "auth", "sets the rights of a name", caps),
    write("auth import", "auth", "takes over a keyring (-i FILE)", import),
    write("auth rm <entity:String>", "auth", "removes a name", rm),
    old(write("auth del <entity:String>", "auth", "removes a name", rm)),
];

/// `client.foo`
fn parse_entity(text: &str) -> Result<String, CommandError> {
    let bad = || CommandError::invalid(format_args!("invalid entity name '{text}'"));
    let (kind, id) = text.split_once('.').ok_or_else(bad)?;
    let known = ["mon", "mgr", "osd", "mds", "client"].contains(&kind);
    let good = id.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"[]/".contains(c));
    if !known || id.is_empty() || !good {
        return Err(bad());
    }
    Ok(text.to_owned())
}

/// `mon 'allow r' osd 'allow rw'` as the words that were typed.
fn parse_caps(call: &Call) -> Result<BTreeMap<String, String>, CommandError> {
    let words = call.args.list("caps");
    let mut caps = BTreeMap::new();
    for pair in words.chunks(2) {
        match pair {
            [of, what] => {
                super::auth_caps::check(of, what)?;
                caps.insert(of.to_string(), what.to_string());
            }
            _ => {
                let text = "bad capabilities request; odd number of arguments";
                return Err(CommandError::invalid(text));
            }
        }
    }
    Ok(caps)
}

impl AuthEntry {
    /// A key as keyrings show it: type, time and length before its 16 bytes, in base64.
    pub fn key_text(&self) -> String {
        const AES: u16 = 1;
        let mut bytes = Vec::with_capacity(28);
        bytes.extend(AES.to_le_bytes());
        bytes.extend(self.created.sec.to_le_bytes());
        bytes.extend(self.created.nsec.to_le_bytes());
        bytes.extend(u16::try_from(self.key.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(&self.key);
        base64(&bytes)
    }

    fn from_text(text: &str) -> Option<AuthEntry> {
        let bytes = unbase64(text)?;
        let (head, key) = bytes.split_at_checked(12)?;
        let number = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let created = UTime { sec: number(2)?, nsec: number(6)? };
        let length = u16::from_le_bytes(head.get(10..12)?.try_into().ok()?);
        (usize::from(length) == key.len() && key.len() == KEY_BYTES).then(|| AuthEntry {
            key: key.to_vec(),
            created,
            caps: BTreeMap::new(),
        })
    }

    /// Its part of a keyring.
    fn keyring(&self, entity: &str, with_caps: bool) -> String {
        let mut out = format!("[{entity}]\n\tkey = {}\n", self.key_text());
        for (of, what) in self.caps.iter().filter(|_| with_caps) {
            let _ = writeln!(out, "\tcaps {of} = \"{}\"", escaped(what));
        }
        out
    }

    fn json(&self, entity: &str, with_caps: bool) -> Value {
        let mut out = Map::new();
        out.insert("entity".into(), entity.into());
        out.insert("key".into(), self.key_text().into());
        if with_caps {
            out.insert("caps".into(), json!(self.caps));
        }
        Value::Object(out)
    }
}

/// Bytes of a key.
const KEY_BYTES: usize = 16;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().trim_end_matches('=');
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for c in digits.bytes() {
        let digit = DIGITS.iter().position(|d| *d == c)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

impl Cluster {
    fn put_auth(&mut self, entity: &str, entry: AuthEntry) {
        self.draft.put(format!("{}{entity}", keys::AUTH), denc::encode(&entry));
        self.state.auth.insert(entity.to_owned(), entry);
    }

    fn new_auth(&mut self, call: &Call, caps: BTreeMap<String, String>) -> AuthEntry {
        let mut key = vec![0; KEY_BYTES];
        self.rng.fill(&mut key);
        AuthEntry { key, created: call.now.wall, caps }
    }
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    let all = &c.state.auth;
    let message = match all.is_empty() {
        true => "no installed auth entries!\n",
        false => "installed auth entries:\n\n",
    };
    if call.format().is_json() {
        let entries: Vec<Value> = all.iter().map(|(name, e)| e.json(name, true)).collect();
        let value = if all.is_empty() { json!({}) } else { json!({ "auth_dump": entries }) };
        return Ok(Answer::json(value));
    }
    let mut out = String::new();
    for (name, entry) in all {
        let _ = writeln!(out, "{name}\n\tkey: {}", entry.key_text());
        for (of, what) in &entry.caps {
            let _ = writeln!(out, "\tcaps: [{of}] {what}");
        }
    }
    Ok(Answer::text(out).with_message(message))
}

fn find<'a>(c: &'a Cluster, entity: &str) -> Result<&'a AuthEntry, CommandError> {
    let none = || CommandError::not_found(format_args!("failed to find {entity} in keyring"));
    c.state.auth.get(entity).ok_or_else(none)
}

fn shown(call: &Call, entity: &str, entry: &AuthEntry, with_caps: bool) -> Answer {
    let json = || json!([entry.json(entity, with_caps)]);
    Answer::either(call.format(), json, || entry.keyring(entity, with_caps))
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let entity = parse_entity(&call.args.text("entity"))?;
    let entry = find(c, &entity)?;
    let message = format!("exported keyring for {entity}");
    Ok(shown(call, &entity, entry, true).with_message(message))
}

fn export(c: &Cluster, call: &Call) -> Reply {
    if call.args.has("entity") {
        let entity = parse_entity(&call.args.text("entity"))?;
        return Ok(shown(call, &entity, find(c, &entity)?, true));
    }
    let json = || c.state.auth.iter().map(|(name, e)| e.json(name, true)).collect();
    let text = || c.state.auth.iter().map(|(name, e)| e.keyring(name, true)).collect();
    Ok(Answer::either(call.format(), json, text).with_message("exported master keyring"))
}

fn key_answer(call: &Call, entry: &AuthEntry) -> Answer {
    let json = || json!({ "key": entry.key_text() });
    Answer::either(call.format(), json, || entry.key_text())
}

fn get_key(c: &Cluster, call: &Call) -> Reply {
    let entity = parse_entity(&call.args.text("entity"))?;
    let none = || CommandError::not_found(format_args!("don't have {entity}"));
    Ok(key_answer(call, c.state.auth.get(&entity).ok_or_else(none)?))
}

/// The entry of a name, made if there is none. One that is there must have these rights, if any are
/// said.
fn ensure(c: &mut Cluster, call: &Call) -> Result<(String, AuthEntry, bool), CommandError> {
    let entity = parse_entity(&call.args.text("entity"))?;
    let caps = parse_caps(call)?;
    if let Some(entry) = c.state.auth.get(&entity) {
        for (of, what) in &caps {
            if entry.caps.get(of) != Some(what) {
                let text = format!("key for {entity} exists but cap {of} does not match");
                return Err(CommandError::invalid(text));
            }
        }
        return Ok((entity, entry.clone(), false));
    }
    let entry = c.new_auth(call, caps);
    c.put_auth(&entity, entry.clone());
    Ok((entity, entry, true))
}

fn get_or_create(c: &mut Cluster, call: &Call) -> Reply {
    let (entity, entry, _) = ensure(c, call)?;
    Ok(shown(call, &entity, &entry, false))
}

fn get_or_create_key(c: &mut Cluster, call: &Call) -> Reply {
    let (_, entry, _) = ensure(c, call)?;
    Ok(key_answer(call, &entry))
}

fn add(c: &mut Cluster, call: &Call) -> Reply {
    let entity = parse_entity(&call.args.text("entity"))?;
    if !call.input.is_empty() {
        let ring = parse_keyring(&call.input)?;
        let none = || CommandError::invalid(format_args!("no {entity} in the keyring"));
        let mut entry = ring.get(&entity).cloned().ok_or_else(none)?;
        let caps = parse_caps(call)?;
        if !caps.is_empty() {
            entry.caps = caps;
        }
        if c.state.auth.get(&entity).is_some_and(|there| *there != entry) {
            let text = format!("entity {entity} exists but key or caps do not match");
            return Err(CommandError::invalid(text));
        }
        c.put_auth(&entity, entry);
    } else {
        ensure(c, call)?;
    }
    Ok(Answer::message(format_args!("added key for {entity}")))
}

fn caps(c: &mut Cluster, call: &Call) -> Reply {
    let entity = parse_entity(&call.args.text("entity"))?;
    let caps = parse_caps(call)?;
    let none = || CommandError::not_found(format_args!("couldn't find entry {entity}"));
    let mut entry = c.state.auth.get(&entity).cloned().ok_or_else(none)?;
    entry.caps = caps;
    c.put_auth(&entity, entry);
    Ok(Answer::message(format_args!("updated caps for {entity}")))
}

fn import(c: &mut Cluster, call: &Call) -> Reply {
    if call.input.is_empty() {
        return Err(CommandError::invalid("auth import: no data supplied"));
    }
    for (entity, entry) in parse_keyring(&call.input)? {
        c.put_auth(&entity, entry);
    }
    Ok(Answer::message("imported keyring"))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let entity = parse_entity(&call.args.text("entity"))?;
    if c.state.auth.remove(&entity).is_none() {
        return Ok(Answer::message(format_args!("entity {entity} does not exist")));
    }
    c.draft.remove(format!("{}{entity}", keys::AUTH));
    Ok(Answer::message("updated"))
}

/// `[client.foo]`, `key = ..`, `caps mon = ".."`. What the rights say is not looked at, as Ceph does: a keyring may
/// come from a newer cluster.
fn parse_keyring(input: &[u8]) -> Result<BTreeMap<String, AuthEntry>, CommandError> {
    let bad = |line: &str| CommandError::invalid(format_args!("error parsing keyring: '{line}'"));
    let text = std::str::from_utf8(input).map_err(|_| bad("not text"))?;
    let mut ring: BTreeMap<String, AuthEntry> = BTreeMap::new();
    let mut entity = None;
    for line in text.lines().map(str::trim).filter(|l| !is_comment(l)) {
        if let Some((name, left)) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
            let name = parse_entity(name.trim()).ok().filter(|_| is_comment(left));
            let name = name.ok_or_else(|| bad(line))?;
            ring.entry(name.clone()).or_default();
            entity = Some(name);
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| bad(line))?;
        let entry = entity.as_ref().and_then(|e| ring.get_mut(e)).ok_or_else(|| bad(line))?;
        let value = parse_value(value.trim()).ok_or_else(|| bad(line))?;
        // `caps_mon` is the same.
        let name = name.replace('_', " ");
        match name.split_whitespace().collect::<Vec<_>>()[..] {
            ["key"] => {
                let read = AuthEntry::from_text(&value).ok_or_else(|| bad(line))?;
                (entry.key, entry.created) = (read.key, read.created);
            }
            ["caps", of] => drop(entry.caps.insert(of.to_owned(), value)),
            // A number that very old keyrings have.
            ["auid"] => {}
            // Rights that are misspelled must not get lost.
            _ => return Err(bad(line)),
        }
    }
    match ring.iter().find(|(_, entry)| entry.key.is_empty()) {
        Some((entity, _)) => Err(bad(&format!("{entity} has no key"))),
        None => Ok(ring),
    }
}

const COMMENT: [char; 2] = ['#', ';'];

/// Nothing, or a comment.
fn is_comment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with(COMMENT)
}

/// As a value stands in quotes. Ceph escapes quotes only, and reads a backslash as an escape.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A value of a keyring: in quotes or not, and perhaps a comment. A backslash takes the next character as it is.
fn parse_value(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let (value, _) = unescaped(text, &COMMENT);
        return Some(value.trim().to_owned());
    };
    let inner = text.strip_prefix(quote)?;
    let (value, end) = unescaped(inner, &[quote]);
    if is_comment(inner.get(end?..)?.strip_prefix(quote)?) {
        return Some(value);
    }
    // We once wrote quotes within others as they are.
    let (value, _) = unescaped(inner.strip_suffix(quote)?, &[]);
    Some(value)
}

/// What stands before the first of these characters that is not escaped, and where that is.
fn unescaped(text: &str, ends: &[char]) -> (String, Option<usize>) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if ends.contains(&c) => return (out, Some(at)),
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    (out, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_cephs_form() {
        let text = "AQDZ/ABrLlqpDhAAbSUhcv3rvx5HVTZoOf6lVQ==";
        let entry = AuthEntry::from_text(text).unwrap();
        assert_eq!(entry.key.len(), KEY_BYTES);
        assert_eq!(entry.key_text(), text);
        assert_eq!(entry.created.sec, 0x6b00_fcd9);
        for bad in ["", "AQDZ", "!!!!", "AQDZ/ABrLlqpDhAAbSUhcv3rvx5HVTZo"] {
            assert_eq!(AuthEntry::from_text(bad), None, "{bad}");
        }
        for n in 0..20 {
            let bytes: Vec<u8> = (0..n).collect();
            assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn keyrings_are_read_as_they_are_written() {
        let key = "AQDZ/ABrLlqpDhAAbSUhcv3rvx5HVTZoOf6lVQ==";
        let text = format!("[client.a]\n\tkey = {key}\n\tcaps mon = \"allow r\"\n");
        let ring = parse_keyring(text.as_bytes()).unwrap();
        assert_eq!(ring["client.a"].keyring("client.a", true), text);
        for bad in ["key = x", "[nosuch.a]", "[client.a]", "[client.a]\nkey = zz", "\u{1}"] {
            assert!(parse_keyring(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in [
            "cap mon = a",
            "caps = a",
            "caps mon = \"a",
            "caps mon = \"a\\\"",
            "caps mon = \"a\" b",
        ] {
            assert!(parse_keyring(format!("{text}{bad}").as_bytes()).is_err(), "{bad}");
        }
        assert!(parse_entity("client.").is_err() && parse_entity("foo").is_err());
    }

    /// `ceph-authtool` reads each of these so, but for the two that are marked: those it refuses.
    #[test]
    fn values_are_read_as_ceph_reads_them() {
        for (text, value) in [
            ("allow r", "allow r"),
            ("\"allow r\"", "allow r"),
            ("'allow r'  # for now", "allow r"),
            ("allow r ; for now", "allow r"),
            (
                r#""allow r, allow command \"osd blocklist\"""#,
                r#"allow r, allow command "osd blocklist""#,
            ),
            (r#"'allow command "a"'"#, r#"allow command "a""#),
            (r#"allow command "a""#, r#"allow command "a""#),
            (r"allow \# r", "allow # r"),
            (r#""a\\b \n""#, r"a\b n"),
            ("\"\"", ""),
            ("", ""),
            // It writes that itself.
            ("\"allow r; allow w\"", "allow r; allow w"),
            // And that an older Loligo.
            (
                r#""allow command "a", allow command "b"""#,
                r#"allow command "a", allow command "b""#,
            ),
        ] {
            assert_eq!(parse_value(text).as_deref(), Some(value), "{text}");
        }
        let key = "AQDZ/ABrLlqpDhAAbSUhcv3rvx5HVTZoOf6lVQ==";
        let text = format!(
            "[client.a] # a\nkey = {key} ; b\n caps_mon=allow r\nauid = 0\ncaps  osd = 'b'"
        );
        let ring = parse_keyring(text.as_bytes()).unwrap();
        let caps = ring["client.a"].caps.iter().map(|(of, what)| (&**of, &**what));
        assert_eq!(caps.collect::<Vec<_>>(), [("mon", "allow r"), ("osd", "b")]);
    }

    #[test]
    fn a_keyring_brings_back_what_was_exported() {
        let mut bench = crate::commands::bench::Bench::new();
        let what = r#"allow r, allow command "osd blocklist""#;
        let caps = ["mon", what, "osd", r"allow rw pool='a\b'; allow r pool=c"];
        let cmd = json!({"prefix": "auth get-or-create", "entity": "client.x", "caps": caps});
        assert_eq!(bench.run(&cmd).0, 0);
        let before = bench.c.state.auth["client.x"].clone();
        let get = json!({"prefix": "auth get", "entity": "client.x"});
        let (_, _, keyring) = bench.run(&get);
        let quoted = r#"caps mon = "allow r, allow command \"osd blocklist\"""#;
        let text = std::str::from_utf8(&keyring).unwrap();
        assert!(text.contains(quoted), "{text}");
        bench.run(&json!({"prefix": "auth rm", "entity": "client.x"}));
        let (r, outs, _) = bench.run_with(&json!({"prefix": "auth import"}), keyring);
        assert_eq!((r, &*outs), (0, "imported keyring"));
        assert_eq!(bench.c.state.auth["client.x"], before);
    }

    /// A typing error is told of at once, and not kept.
    #[test]
    fn rights_that_cannot_be_read_are_refused() {
        let mut bench = crate::commands::bench::Bench::new();
        let mut run = |prefix: &str, caps: &[&str]| {
            let cmd = json!({"prefix": prefix, "entity": "client.x", "caps": caps});
            let (r, outs, _) = bench.run(&cmd);
            (r, outs, bench.c.state.auth.get("client.x").map(|e| e.caps.len()))
        };
        for prefix in ["auth get-or-create", "auth add", "auth get-or-create-key"] {
            let (r, outs, _) = run(prefix, &["mon", "allow r", "osd", "alow rw"]);
            let text = "osd capability parse failed, stopped at 'alow rw' of 'alow rw'";
            assert_eq!((r, &*outs), (-22, text));
        }
        let (r, outs, there) =
            run("auth add", &["mon", "profile rbd", "osd", "profile rbd pool=x"]);
        assert_eq!((r, there), (0, Some(2)), "{outs}");
        let (r, outs, there) = run("auth caps", &["mom", "allow r"]);
        assert_eq!((r, &*outs, there), (-22, "unknown cap type 'mom'", Some(2)));
        let (r, outs, _) = run("auth caps", &["mon"]);
        assert_eq!((r, &*outs), (-22, "bad capabilities request; odd number of arguments"));
    }
}
