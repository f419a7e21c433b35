//! `osd pool`: pools, their settings, quotas, snapshots and applications.

mod application;
mod autoscale;
mod get;
mod life;
mod set;
mod stats;

use super::CommandDef;

pub(super) const THEMES: &[&[CommandDef]] = &[
    life::COMMANDS,
    get::COMMANDS,
    set::COMMANDS,
    stats::COMMANDS,
    autoscale::COMMANDS,
    application::COMMANDS,
];
