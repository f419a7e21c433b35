//! What Ceph's module `rbd_support` answers.

mod level;
mod mirror;
mod perf;
mod purge;
mod task;

use crate::commands::CommandDef;
use admin::CommandError;

pub(super) const THEMES: &[&[CommandDef]] =
    &[perf::COMMANDS, task::COMMANDS, purge::COMMANDS, mirror::COMMANDS];

/// The cluster could not answer.
fn failed(e: &client::ClientError) -> CommandError {
    CommandError::new(e.errno, format_args!("[errno {}] {e}", e.errno.0))
}
