//! `pg`: placement groups.

mod acts;
mod dump;
mod json;
mod list;
mod table;
mod value;

pub(crate) use value::scrubs;

use super::CommandDef;

pub(super) const THEMES: &[&[CommandDef]] = &[dump::COMMANDS, list::COMMANDS, acts::COMMANDS];
