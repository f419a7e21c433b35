//! Commands that every daemon has on its admin socket and under `ceph tell`.

use crate::answer::{Answer, CommandError, strerror};
use crate::command::{Args, CommandTable, Def};
use crate::perf::{self, Logger, Resets};
use crate::settings::{OptionDef, OptionKind, SettingError, Settings, Source};
use serde_json::{Value, json};
use std::sync::LazyLock;
use types::Errno;

/// What we are, in the form that Ceph's tools take apart: the release whose protocol we speak, and a build of it, as
/// `git describe` names those between releases. The build's number is our own version, two digits for each part but
/// the first (0.1.0: 100). Programs that compare versions know only numbers here.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let part = |text: &str| text.parse::<u32>().expect("a number");
    let [major, minor, patch] = [
        part(env!("CARGO_PKG_VERSION_MAJOR")),
        part(env!("CARGO_PKG_VERSION_MINOR")),
        part(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    format!("16.2.15-{}-loligo", (major * 100 + minor) * 100 + patch)
});
/// The release whose protocol we speak.
pub const RELEASE: &str = "pacific";
/// There is no build id; tools want 40 hex digits here.
const BUILD: &str = "0000000000000000000000000000000000000000";

/// `ceph version 16.2.15-100-loligo (0000..) pacific (stable)`
pub fn version_line() -> String {
    format!("ceph version {} ({BUILD}) {RELEASE} (stable)", *VERSION)
}

/// Whether [`Common::Assert`] is carried out (Ceph's option). Every daemon has it among its own.
pub const ASSERT: OptionDef = OptionDef::new(
    "debug_asok_assert_abort",
    OptionKind::Bool,
    "false",
    "whether the command `assert` makes the daemon crash: to see what that leads to",
);

/// A common command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// `version`
    Version,
    /// `git_version`
    GitVersion,
    /// `help`
    Help,
    /// `get_command_descriptions`
    Descriptions,
    /// `config show`
    ConfigShow,
    /// `config get`
    ConfigGet,
    /// `config set`
    ConfigSet,
    /// `config unset`
    ConfigUnset,
    /// `injectargs`
    InjectArgs,
    /// `config diff`, `config diff get`
    ConfigDiff,
    /// `config help`
    ConfigHelp,
    /// `perf dump`
    PerfDump,
    /// `perf schema`
    PerfSchema,
    /// `perf reset`
    PerfReset,
    /// `assert`
    Assert,
    /// `log reopen`. Who carries it out sets [`io::Effects::reopen_log`], too.
    LogReopen,
    /// `log flush`
    LogFlush,
}

const fn def<H: Copy>(sig: &'static str, help: &'static str, handler: H) -> Def<H> {
    Def { sig, module: "mon", perm: "rw", help, flags: 0, handler }
}

/// Their signatures; `wrap` makes a handler of the daemon's table.
pub fn defs<H: Copy>(wrap: impl Fn(Common) -> H) -> Vec<Def<H>> {
    use Common as C;
    vec![
        def("version", "shows the version of this daemon", wrap(C::Version)),
        def("git_version", "shows the build of this daemon", wrap(C::GitVersion)),
        def("help", "lists the commands of this daemon", wrap(C::Help)),
        def("get_command_descriptions", "describes the commands", wrap(C::Descriptions)),
        def("config show", "shows every option of this daemon", wrap(C::ConfigShow)),
        def("config get <var:String>", "shows an option of this daemon", wrap(C::ConfigGet)),
        def(
            "config set <var:String> <val:String>...",
            "sets an option of this daemon until it ends",
            wrap(C::ConfigSet),
        ),
        def("config unset <var:String>", "takes `config set` back", wrap(C::ConfigUnset)),
        def(
            "injectargs <injected_args:String>...",
            "sets options until the daemon ends: --name=value",
            wrap(C::InjectArgs),
        ),
        def("config diff", "shows what is not at its default, and why", wrap(C::ConfigDiff)),
        def(
            "config diff get <var:String>",
            "shows why an option is what it is",
            wrap(C::ConfigDiff),
        ),
        def("config help [var:String]", "explains an option", wrap(C::ConfigHelp)),
        def(
            "perf dump [logger:String] [counter:String]",
            "shows the performance counters",
            wrap(C::PerfDump),
        ),
        def("perf schema", "explains the performance counters", wrap(C::PerfSchema)),
        def(
            "perf reset <var:String>",
            "performance counters of a logger, or of `all`, begin at zero",
            wrap(C::PerfReset),
        ),
        def(
            "assert",
            "panics, if debug_asok_assert_abort is set: to see what a crash leads to",
            wrap(C::Assert),
        ),
        def("log flush", "does nothing: the log is not buffered", wrap(C::LogFlush)),
        def(
            "log reopen",
            "opens the log's file anew, after it was given another name",
            wrap(C::LogReopen),
        ),
    ]
}

impl Common {
    /// Carries the command out.
    ///
    /// # Errors
    /// In Ceph's words where it has any.
    pub fn run<H>(
        self,
        args: &Args,
        table: &CommandTable<H>,
        settings: &mut Settings,
        resets: &mut Resets,
        loggers: impl FnOnce() -> Vec<Logger>,
    ) -> Result<Answer, CommandError> {
        let var = args.text("var");
        Ok(match self {
            Common::Version => Answer::json(
                json!({"version": *VERSION, "release": RELEASE, "release_type": "stable"}),
            ),
            Common::GitVersion => Answer::json(json!({"git_version": BUILD})),
            Common::Help => Answer::json(table.help()),
            Common::Descriptions => Answer::json(table.descriptions()),
            Common::ConfigShow => Answer::json(settings.show_all()),
            Common::ConfigGet => {
                let value = settings.show(&var).ok_or_else(|| missing("getting", &var))?;
                Answer::json(json!({ &*var: value }))
            }
            Common::ConfigSet => set(settings, &var, &args.list("val").join(" "))?,
            Common::ConfigUnset => {
                settings.def(&var).ok_or_else(|| missing("unsetting", &var))?;
                settings.unset(Source::Override, &var);
                Answer::json(json!({ "success": "" }))
            }
            Common::InjectArgs => inject(settings, &args.list("injected_args").join(" "))?,
            Common::ConfigDiff if args.has("var") => {
                let diff = &settings.diff()["diff"][&*var];
                Answer::json(
                    json!({"diff": {&*var: if diff.is_null() { json!({}) } else { diff.clone() }}}),
                )
            }
            Common::ConfigDiff => Answer::json(settings.diff()),
            Common::ConfigHelp if args.has("var") => {
                let def = settings.def(&var).ok_or_else(|| missing("explaining", &var))?;
                Answer::json(json!({"option": def.describe()}))
            }
            Common::ConfigHelp => {
                let all: Vec<Value> = settings.defs().map(|d| d.describe()).collect();
                Answer::json(json!({ "options": all }))
            }
            Common::PerfDump => {
                let (logger, counter) = (args.str("logger"), args.str("counter"));
                Answer::json(perf::dump(
                    &resets.apply(loggers()),
                    logger.as_deref(),
                    counter.as_deref(),
                ))
            }
            Common::PerfReset => {
                if !resets.reset(&loggers(), &var) {
                    return Err(CommandError::not_found(format_args!("Not find: {var}")));
                }
                Answer::json(json!({ "success": format!("perf reset {var}") }))
            }
            Common::PerfSchema => Answer::json(perf::schema(&loggers())),
            Common::Assert => {
                assert!(!settings.bool(ASSERT.name), "`assert` was asked for");
                let why = format!("`{}` is not set", ASSERT.name);
                return Err(CommandError::new(Errno::EPERM, why));
            }
            Common::LogReopen | Common::LogFlush => Answer::json(json!({})),
        })
    }
}

fn missing(doing: &str, var: &str) -> CommandError {
    let why = strerror(Errno::ENOENT);
    CommandError::not_found(format_args!("error {doing} '{var}': {why}"))
}

fn set(settings: &mut Settings, var: &str, val: &str) -> Result<Answer, CommandError> {
    settings.set(Source::Override, var, val).map_err(|e| {
        let errno = match &e {
            SettingError::Unknown(_) => Errno::ENOENT,
            SettingError::Bad(_) => Errno::EINVAL,
        };
        CommandError::new(errno, format_args!("error setting '{var}' to '{val}': {e}"))
    })?;
    let runtime = settings.def(var).is_some_and(|d| d.runtime);
    let note = if runtime { "" } else { " (not observed, change may require restart) " };
    Ok(Answer::json(json!({ "success": format!("{var} = '{val}'{note}") })))
}

/// Sets options as they would stand on a command line. Those that can be set are, also where others cannot.
fn inject(settings: &mut Settings, text: &str) -> Result<Answer, CommandError> {
    let mut words = text.split_whitespace().peekable();
    let (mut said, mut odd) = (String::new(), Vec::new());
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            odd.push(word);
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, words.next_if(|next| !next.starts_with("--"))),
        };
        let name = name.replace('-', "_");
        let switch = settings.def(&name).is_some_and(|def| def.kind == OptionKind::Bool);
        let value = value.or(switch.then_some("true"));
        let value = value
            .ok_or_else(|| CommandError::invalid(format_args!("there is no value for '{word}'")))?;
        match settings.set(Source::Override, &name, value) {
            Ok(_) => said.push_str(&format!("{name} = '{value}' ")),
            Err(SettingError::Unknown(_)) if name.starts_with("debug_") => {
                said.push_str(&format!(
                    "{name} is not heeded: how much is logged is said at the start "
                ));
            }
            Err(SettingError::Unknown(_)) => odd.push(word),
            Err(why) => return Err(CommandError::invalid(format_args!("{name}: {why}"))),
        }
    }
    if !odd.is_empty() {
        let text = format!("failed to parse arguments: {}", odd.join(","));
        return Err(CommandError::invalid(text));
    }
    Ok(Answer::json(json!({})).with_message(said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    const SCHEMA: &[OptionDef] =
        &[OptionDef::new("osd_max_backfills", OptionKind::Uint, "1", "backfills at a time")];

    fn run(settings: &mut Settings, command: Value) -> Result<Value, String> {
        let table = CommandTable::new(defs(|c| c));
        let args: Map<String, Value> = command.as_object().cloned().unwrap();
        let (spec, args) = table.find(args).map_err(|e| e.text)?;
        let answer =
            spec.def.handler.run(&args, &table, settings, &mut Resets::default(), Vec::new);
        match answer.map_err(|e| e.text)?.data {
            crate::answer::Data::Json(v) => Ok(v),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_can_be_seen_and_changed() {
        let mut s = Settings::new([SCHEMA]);
        let get = json!({"prefix": "config get", "var": "osd_max_backfills"});
        assert_eq!(run(&mut s, get.clone()), Ok(json!({"osd_max_backfills": "1"})));
        let set = json!({"prefix": "config set", "var": "osd_max_backfills", "val": ["4"]});
        assert_eq!(run(&mut s, set), Ok(json!({"success": "osd_max_backfills = '4'"})));
        assert_eq!(run(&mut s, get.clone()), Ok(json!({"osd_max_backfills": "4"})));
        let diff = json!({"prefix": "config diff get", "var": "osd_max_backfills"});
        assert_eq!(
            run(&mut s, diff),
            Ok(json!({"diff": {"osd_max_backfills": {"default": 1, "override": 4, "final": 4}}}))
        );
        let unset = json!({"prefix": "config unset", "var": "osd_max_backfills"});
        assert!(run(&mut s, unset).is_ok());
        assert_eq!(run(&mut s, get.clone()), Ok(json!({"osd_max_backfills": "1"})));
        let inject = |words: &[&str]| json!({"prefix": "injectargs", "injected_args": words});
        let mut said = |words: &[&str]| run(&mut s, inject(words));
        assert_eq!(said(&["--osd-max-backfills=5", "--debug-osd", "1/5"]), Ok(json!({})));
        let odd = Err("failed to parse arguments: --nosuch=1,x".into());
        assert_eq!(said(&["--nosuch=1 x --osd_max_backfills 6"]), odd);
        assert_eq!(
            said(&["--osd_max_backfills"]),
            Err("there is no value for '--osd_max_backfills'".into())
        );
        assert_eq!(run(&mut s, get.clone()), Ok(json!({"osd_max_backfills": "6"})));
        let bad = json!({"prefix": "config set", "var": "nosuch", "val": ["4"]});
        assert_eq!(
            run(&mut s, bad),
            Err("error setting 'nosuch' to '4': unrecognized config option 'nosuch'".into())
        );
        let all = run(&mut s, json!({"prefix": "help"})).unwrap();
        assert_eq!(all["version"], "shows the version of this daemon");
        assert!(version_line().starts_with("ceph version 16.2.15"));
    }
}
