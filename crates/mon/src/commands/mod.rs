//! Every command of `ceph`, by theme.
//!
//! A command is one line in the `COMMANDS` of its file and a function. One that reads gets the
//! [`Cluster`] as it is; one that writes changes it through the draft, and is answered when that is
//! committed. What is published as `get_command_descriptions` and what checks incoming commands
//! are the same table.

mod absent;
mod auth;
mod auth_caps;
mod balancer;
#[cfg(test)]
mod behaviour;
#[cfg(test)]
pub(crate) mod bench;
#[cfg(test)]
mod beside;
mod config;
mod config_key;
mod config_show;
mod config_who;
mod crash;
mod crush;
mod device;
mod df;
mod fs;
#[cfg(test)]
mod golden;
mod log;
mod mgr;
mod mon;
#[cfg(test)]
mod nonsense;
mod osd;
mod pg;
mod pool;
mod progress;
mod rbd;
mod status;
mod tell;

pub(crate) use config::config_for;
pub(crate) use pg::scrubs;
pub(crate) use tell::{Tell, mon_status, tell_table};

use crate::cluster::Cluster;
use crate::log::Speaker;
use crate::tasks::{self, Question};
use admin::command::Def;
use admin::{Answer, Args, CommandError, CommandTable, Format};
use bytes::Bytes;
use io::Now;
use maps::OsdMap;
use serde_json::Value;
use std::collections::BTreeMap;
use types::OsdId;

/// What a command answers.
pub(crate) type Reply = Result<Answer, CommandError>;

/// A command that came.
#[derive(Debug)]
pub(crate) struct Call {
    pub now: Now,
    pub args: Args,
    /// `-i FILE`
    pub input: Bytes,
    /// Who sent it.
    pub from: Speaker,
}

impl Call {
    /// How the answer is to be printed.
    pub fn format(&self) -> Format {
        self.args.format()
    }

    /// An OSD that the signature requires.
    ///
    /// # Errors
    /// EINVAL when it is none after all.
    pub fn osd(&self, name: &str) -> Result<OsdId, CommandError> {
        let text = self.args.text(name);
        self.args.osd(name).ok_or_else(|| {
            CommandError::invalid(format_args!("unable to parse osd id value '{text}'"))
        })
    }

    /// Whether `--yes-i-really-mean-it` was said.
    pub fn sure(&self) -> bool {
        self.args.flag("yes_i_really_mean_it")
    }
}

/// What carries a command out.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Changes nothing.
    Read(fn(&Cluster, &Call) -> Reply),
    /// Shows an OSDMap, also an old one: the argument `epoch`.
    Map(fn(&Cluster, &Call, &OsdMap) -> Reply),
    /// Changes something.
    Write(fn(&mut Cluster, &Call) -> Reply),
    /// The same, when something is known of an image, which the mon looks at as a client does: what it asks for,
    /// and what it does then.
    Look(
        fn(&Cluster, &Call) -> Result<Option<Question>, CommandError>,
        fn(&mut Cluster, &Call, &tasks::Answer) -> Reply,
    ),
    /// The table itself.
    Descriptions,
}

pub(crate) type CommandDef = Def<Handler>;

const fn read(
    sig: &'static str,
    module: &'static str,
    help: &'static str,
    f: fn(&Cluster, &Call) -> Reply,
) -> CommandDef {
    Def::read(sig, module, help, Handler::Read(f))
}

const fn map(
    sig: &'static str,
    help: &'static str,
    f: fn(&Cluster, &Call, &OsdMap) -> Reply,
) -> CommandDef {
    Def::read(sig, "osd", help, Handler::Map(f))
}

const fn write(
    sig: &'static str,
    module: &'static str,
    help: &'static str,
    f: fn(&mut Cluster, &Call) -> Reply,
) -> CommandDef {
    Def::write(sig, module, help, Handler::Write(f))
}

const fn look(
    sig: &'static str,
    module: &'static str,
    help: &'static str,
    ask: fn(&Cluster, &Call) -> Result<Option<Question>, CommandError>,
    then: fn(&mut Cluster, &Call, &tasks::Answer) -> Reply,
) -> CommandDef {
    Def::write(sig, module, help, Handler::Look(ask, then))
}

/// The same command under an old name.
const fn old(def: CommandDef) -> CommandDef {
    def.with_flags(admin::command::flags::DEPRECATED)
}

/// Texts by name as a JSON object.
fn map_of(facts: &BTreeMap<String, String>) -> Value {
    Value::Object(facts.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect())
}

/// All commands.
pub(crate) fn table() -> CommandTable<Handler> {
    let themes: &[&[CommandDef]] = &[
        status::COMMANDS,
        df::COMMANDS,
        log::COMMANDS,
        mon::COMMANDS,
        balancer::COMMANDS,
        mgr::COMMANDS,
        device::COMMANDS,
        fs::COMMANDS,
        progress::COMMANDS,
        auth::COMMANDS,
        config::COMMANDS,
        config_key::COMMANDS,
        config_show::COMMANDS,
        crash::COMMANDS,
        absent::COMMANDS,
        DESCRIPTIONS,
    ];
    let themes = themes.iter().chain(osd::THEMES).chain(self::crush::THEMES);
    let themes = themes.chain(rbd::THEMES).chain(pool::THEMES).chain(self::pg::THEMES);
    CommandTable::new(themes.copied().flatten().copied())
}

const DESCRIPTIONS: &[CommandDef] = &[Def::read(
    "get_command_descriptions",
    "mon",
    "describes all commands, for tools",
    Handler::Descriptions,
)
.with_flags(admin::command::flags::HIDDEN)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let table = table();
        assert!(table.specs().count() > 80);
        for spec in table.specs() {
            assert!(!spec.def.help.is_empty(), "{}", spec.prefix);
            assert_eq!(spec.def.flags & 8, 0, "{}: there is no mgr", spec.prefix);
            let writes = matches!(spec.def.handler, Handler::Write(_) | Handler::Look(..));
            assert_eq!(writes, spec.def.perm.contains('w'), "{}", spec.prefix);
        }
    }
}
