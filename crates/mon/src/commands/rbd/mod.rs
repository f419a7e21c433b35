//! What Ceph's module `rbd_support` answers.

mod perf;
mod task;

use crate::commands::CommandDef;

pub(super) const THEMES: &[&[CommandDef]] = &[perf::COMMANDS, task::COMMANDS];
