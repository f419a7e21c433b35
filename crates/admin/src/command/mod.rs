//! Tables of commands.
//!
//! A signature is one line: literal words, then parameters, `<name:Type>` required, `[name:Type]`
//! optional, `...` behind it for a list; after a comma what it may be (of words, `*` as the last one leaves it to
//! the command to refuse others):
//!
//! ```
//! use admin::command::{CommandTable, Def};
//! let table = CommandTable::new([Def::read(
//!     "osd tree [epoch:Int,0] [states:Choices,up|down|in|out]...",
//!     "osd",
//!     "shows the OSDs in their hierarchy",
//!     (),
//! )]);
//! let text = r#"{"prefix":"osd tree","states":["up"],"format":"json"}"#;
//! let (_, args) = table.parse(text).unwrap();
//! assert_eq!(args.list("states"), ["up"]);
//! let error = table.parse(r#"{"prefix":"osd tree","states":["best"]}"#).unwrap_err();
//! assert_eq!(error.text, "invalid value 'best' for 'states': must be one of up|down|in|out");
//! ```
//!
//! From it come the JSON by which Ceph's tools check and complete what is typed, and the check of
//! a command that arrives. Types are Ceph's without their `Ceph`.

mod args;
mod sig;

pub use args::Args;
pub use sig::{GoodChars, Param, ParamKind};

use crate::answer::CommandError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Longest text of a command that is looked at: `config-key set` values and CRUSH maps travel as
/// data, not as text.
pub const MAX_COMMAND_BYTES: usize = 1 << 20;

/// One command as it is written down.
#[derive(Clone, Copy, Debug)]
pub struct Def<H> {
    /// Words and parameters; see the module's text.
    pub sig: &'static str,
    /// The part of the system it is about: `osd`, `mon`, `pg`, ...
    pub module: &'static str,
    /// Rights it would need: `r`, `rw`, `rx`, ...
    pub perm: &'static str,
    /// What it does, for `ceph --help`.
    pub help: &'static str,
    /// Bits of [`flags`].
    pub flags: u32,
    /// What carries it out.
    pub handler: H,
}

/// Bits of [`Def::flags`]. Ceph's bit 8 (to be sent to a mgr) is never set by us.
pub mod flags {
    /// An old name: works, but is not listed in helps.
    pub const DEPRECATED: u32 = 4;
    /// Works, but is not listed in helps.
    pub const HIDDEN: u32 = 32;
}

impl<H> Def<H> {
    /// A command that changes nothing.
    pub const fn read(
        sig: &'static str,
        module: &'static str,
        help: &'static str,
        handler: H,
    ) -> Self {
        Def { sig, module, perm: "r", help, flags: 0, handler }
    }

    /// A command that changes something.
    pub const fn write(
        sig: &'static str,
        module: &'static str,
        help: &'static str,
        handler: H,
    ) -> Self {
        Def { sig, module, perm: "rw", help, flags: 0, handler }
    }

    /// With these flags.
    #[must_use]
    pub const fn with_flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }
}

/// One command, its signature taken apart.
#[derive(Clone, Debug)]
pub struct Spec<H> {
    /// Its literal words, joined by spaces.
    pub prefix: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// As it is written down.
    pub def: Def<H>,
}

impl<H> Spec<H> {
    /// `{"sig": [..], "help": .., "module": .., "perm": .., "flags": ..}`
    fn describe(&self) -> Value {
        let words = self.prefix.split(' ').map(Value::from);
        let sig: Vec<Value> = words.chain(self.params.iter().map(Param::describe)).collect();
        let def = &self.def;
        serde_json::json!({
            "sig": sig, "help": def.help, "module": def.module, "perm": def.perm,
            "flags": def.flags,
        })
    }

    fn missing(&self, args: &Map<String, Value>) -> Option<&Param> {
        self.params.iter().find(|p| p.required && args.get(&p.name).is_none_or(Value::is_null))
    }
}

/// All commands of a daemon.
#[derive(Clone, Debug)]
pub struct CommandTable<H> {
    specs: Vec<Spec<H>>,
    by_prefix: BTreeMap<String, Vec<usize>>,
}

impl<H> CommandTable<H> {
    /// A table of these commands.
    ///
    /// # Panics
    /// When a signature is malformed: a bug of ours.
    pub fn new(defs: impl IntoIterator<Item = Def<H>>) -> Self {
        let mut table = CommandTable { specs: Vec::new(), by_prefix: BTreeMap::new() };
        for def in defs {
            let (prefix, params) = sig::parse(def.sig);
            table.by_prefix.entry(prefix.clone()).or_default().push(table.specs.len());
            table.specs.push(Spec { prefix, params, def });
        }
        table
    }

    /// All commands, in the order they were written down.
    pub fn specs(&self) -> impl Iterator<Item = &Spec<H>> {
        self.specs.iter()
    }

    /// The answer to `get_command_descriptions`.
    pub fn descriptions(&self) -> Value {
        let described = self.specs.iter().enumerate();
        Value::Object(described.map(|(i, s)| (format!("cmd{i:03}"), s.describe())).collect())
    }

    /// The answer to the admin socket's `help`: prefix and text.
    pub fn help(&self) -> Value {
        let sorted: BTreeMap<_, _> = self.specs.iter().map(|s| (&s.prefix, s.def.help)).collect();
        Value::Object(sorted.into_iter().map(|(p, help)| (p.clone(), help.into())).collect())
    }

    /// The command that a JSON text asks for, and its checked arguments. What follows the object
    /// counts for nothing, as in Ceph: `rbd perf image` sends a quotation mark too many.
    ///
    /// # Errors
    /// EINVAL, in Ceph's words where it has any.
    pub fn parse(&self, text: &str) -> Result<(&Spec<H>, Args), CommandError> {
        if text.len() > MAX_COMMAND_BYTES {
            return Err(CommandError::invalid("the command is longer than 1 MiB"));
        }
        match serde_json::Deserializer::from_str(text).into_iter().next() {
            Some(Ok(Value::Object(args))) => self.find(args),
            Some(Ok(_)) => {
                Err(CommandError::invalid(format_args!("not JSON object {}", shown(text))))
            }
            _ => Err(CommandError::invalid(format_args!("unparseable JSON {}", shown(text)))),
        }
    }

    /// The prefix of a command that a JSON text asks for, if this table has none of that name.
    pub fn unknown_prefix(&self, text: &str) -> Option<String> {
        let parsed = serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok()?;
        let prefix = parsed.get("prefix")?.as_str()?;
        (!self.by_prefix.contains_key(prefix)).then(|| prefix.to_owned())
    }

    /// The command that parsed JSON asks for, and its checked arguments. Arguments that the
    /// command does not know are ignored, as Ceph does.
    ///
    /// # Errors
    /// EINVAL, in Ceph's words where it has any.
    pub fn find(&self, args: Map<String, Value>) -> Result<(&Spec<H>, Args), CommandError> {
        let prefix = args.get("prefix").and_then(Value::as_str);
        let prefix = prefix.ok_or_else(|| CommandError::invalid("command prefix not found"))?;
        let unknown = || CommandError::invalid("command not known");
        let candidates = self.by_prefix.get(prefix).ok_or_else(unknown)?;
        let candidates: Vec<&Spec<H>> =
            candidates.iter().filter_map(|&i| self.specs.get(i)).collect();
        let given =
            |spec: &&&Spec<H>| spec.params.iter().filter(|p| args.contains_key(&p.name)).count();
        let complete = candidates.iter().filter(|spec| spec.missing(&args).is_none());
        let best = complete.max_by_key(given);
        let spec = best.or(candidates.first()).copied().ok_or_else(unknown)?;
        if let Some(param) = spec.missing(&args) {
            return Err(args::bad_field(&param.name));
        }
        for param in &spec.params {
            if let Some(value) = args.get(&param.name).filter(|v| !v.is_null()) {
                param.check(value)?;
            }
        }
        Ok((spec, Args::new(args)))
    }
}

/// The beginning of what was sent: enough to know it again.
fn shown(text: &str) -> &str {
    const MOST_BYTES: usize = 1000;
    text.get(..text.floor_char_boundary(MOST_BYTES)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{self, Format};
    use proptest::prelude::*;
    use serde_json::json;
    use types::Errno;

    fn table() -> CommandTable<u8> {
        CommandTable::new([
            Def::read("status", "mon", "how it is", 0),
            Def::write("osd crush set [prior_version:Int]", "osd", "sets the map", 1),
            Def::write(
                "osd crush set <id:OsdName> <weight:Float,0.0> <args:String,good=loc>...",
                "osd",
                "places an OSD",
                2,
            ),
            Def::write("osd reweight <id:OsdName> <weight:Float,0.0|1.0>", "osd", "in part", 3),
            Def::read("pg map <pgid:Pgid>", "pg", "where it is", 4),
            Def::write("osd set <key:Choices,a|b> [yes:Bool]", "osd", "sets a flag", 5),
            Def::read("osd get <var:Choices,a|b|*>", "osd", "shows one", 7),
            Def::write("new <uuid:UUID> [addr:EntityAddr]", "osd", "makes one", 6),
        ])
    }

    fn handler(text: &str) -> Result<u8, String> {
        let table = table();
        table.parse(text).map(|(spec, _)| spec.def.handler).map_err(|e| {
            assert_eq!(e.errno, Errno::EINVAL);
            e.text
        })
    }

    #[test]
    fn descriptions_are_in_cephs_form() {
        let all = table().descriptions();
        assert_eq!(
            json::print(&all["cmd002"], Format::Json),
            r#"{"sig":["osd","crush","set",{"name":"id","type":"CephOsdName"},{"name":"weight","type":"CephFloat","range":"0.0"},{"name":"args","type":"CephString","goodchars":"[A-Za-z0-9-_.=]","n":"N"}],"help":"places an OSD","module":"osd","perm":"rw","flags":0}"#
        );
        assert_eq!(
            json::print(&all["cmd005"]["sig"][3], Format::Json),
            r#"{"name":"yes","req":false,"type":"CephBool"}"#
        );
        let var = json!({"name": "var", "type": "CephChoices", "strings": "a|b"});
        assert_eq!(all["cmd006"]["sig"][2], var);
        assert_eq!(all["cmd007"]["sig"][1], json!({"name": "uuid", "type": "CephUUID"}));
        assert_eq!(table().help()["osd set"], "sets a flag");
    }

    #[test]
    fn the_signature_that_fits_is_taken() {
        assert_eq!(handler(r#"{"prefix":"status","format":"json","x":1}"#), Ok(0));
        assert_eq!(handler(r#"{"prefix":"osd crush set"}"#), Ok(1));
        assert_eq!(
            handler(r#"{"prefix":"osd crush set","id":"osd.3","weight":1,"args":["host=a"]}"#),
            Ok(2)
        );
        assert_eq!(handler(r#"{"prefix":"osd get","var":"c"}"#), Ok(7), "it says itself what c is");
    }

    #[test]
    fn what_follows_a_command_counts_for_nothing() {
        // As `rbd perf image` sends it.
        assert_eq!(handler("\n  {\"prefix\": \"status\"}\""), Ok(0));
        assert_eq!(handler("{\"prefix\": \"status\"} {"), Ok(0));
        assert_eq!(handler(" ").unwrap_err(), "unparseable JSON  ");
    }

    #[test]
    fn malformed_commands_are_refused() {
        let refused = |text: &str| handler(text).unwrap_err();
        for text in [r#"{"prefix":"nosuch"}"#, r#"{"prefix":""}"#] {
            assert_eq!(refused(text), "command not known");
        }
        for text in [r#"{"a":1}"#, r#"{"prefix":7}"#] {
            assert_eq!(refused(text), "command prefix not found");
        }
        assert_eq!(refused("{"), "unparseable JSON {");
        assert_eq!(refused("[]"), "not JSON object []");
        let long = format!("[{}]", "\"é\",".repeat(1000));
        assert!(refused(&long).len() < 1100, "what was sent is shown in part");
        let reweight = |args: &str| refused(&format!(r#"{{"prefix":"osd reweight",{args}}}"#));
        assert_eq!(reweight(r#""id":0"#), "bad or missing field 'weight'");
        assert_eq!(reweight(r#""id":0,"weight":"abc""#), "bad or missing field 'weight'");
        assert_eq!(reweight(r#""id":"x","weight":1"#), "bad or missing field 'id'");
        assert_eq!(reweight(r#""id":-1,"weight":1"#), "bad or missing field 'id'");
        assert_eq!(reweight(r#""id":[0],"weight":1"#), "bad or missing field 'id'");
        assert_eq!(
            reweight(r#""id":0,"weight":7.5"#),
            "invalid value '7.5' for 'weight': must be from 0.0 to 1.0"
        );
        assert_eq!(refused(r#"{"prefix":"pg map","pgid":"zz"}"#), "invalid pgid 'zz'");
        assert_eq!(
            refused(r#"{"prefix":"osd set","key":"c"}"#),
            "invalid value 'c' for 'key': must be one of a|b"
        );
        assert_eq!(
            refused(r#"{"prefix":"osd crush set","id":0,"weight":1,"args":["a b"]}"#),
            "invalid chars in 'a b': only [A-Za-z0-9-_.=] may be used for 'args'"
        );
        assert_eq!(refused(r#"{"prefix":"new","uuid":"1"}"#), "bad or missing field 'uuid'");
        let new = r#"{"prefix":"new","uuid":"11111111-2222-3333-4444-555555555555","addr":"bad"}"#;
        assert_eq!(refused(new), "unable to parse address bad");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_answered(value in any_json(), prefix in 0..8usize) {
            let table = table();
            let specs: Vec<_> = table.specs().collect();
            let mut args = Map::new();
            let prefix = specs.get(prefix).map_or("x", |s| s.prefix.as_str());
            args.insert("prefix".into(), prefix.into());
            for name in ["id", "weight", "args", "pgid", "key", "yes", "uuid", "addr"] {
                args.insert(name.into(), value.clone());
            }
            if let Ok((_, args)) = table.find(args) {
                let _ = (args.osd("id"), args.float("weight"), args.list("args"), args.flag("yes"));
                let _ = (args.int("weight"), args.pgid("pgid"), args.uuid("uuid"));
            }
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            "(osd\\.)?[0-9]{1,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                inner.prop_map(|v| json!({ "x": v })),
            ]
        })
    }
}
