//! `loligo dev`: a whole cluster on this machine, each daemon a process of its own, everything below
//! one folder.
//!
//! The folder is marked by `loligo-dev.json`, which says what belongs to the cluster; a folder with
//! other things in it is never touched. Whether a daemon runs is told by the lock on its pid file
//! ([`crate::daemon::pid`]), so numbers that `kill -9` left behind mislead nobody.

mod health;
mod layout;
mod process;
mod start;
mod state;
mod status;
mod stop;

use crate::cli::{DevArgs, DevCommand, DevWhere};
use crate::failure::{Exit, Failure};
use layout::Layout;
use std::path::PathBuf;

/// Carries out `loligo dev`.
///
/// # Errors
/// When it could not be done.
pub fn run(args: &DevArgs) -> Result<Exit, Failure> {
    match &args.command {
        DevCommand::Start(start) => start::run(start),
        DevCommand::Stop(place) => stop::run(place),
        DevCommand::Status(place) => status::run(place),
    }
}

/// The folder a command line means.
fn layout(place: &DevWhere) -> Result<Layout, Failure> {
    let dir = place.dir.clone().or_else(default_dir).ok_or_else(|| {
        Failure::new("no folder for the cluster", "neither --dir nor a home folder is there")
            .advise("Say where by --dir DIR.")
    })?;
    let absolute = std::path::absolute(&dir);
    absolute
        .map(Layout::new)
        .map_err(|e| Failure::new(format!("cannot use the folder {}", dir.display()), e))
}

fn default_dir() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|s| !s.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/state"));
    state.or_else(home).map(|s| s.join("loligo/dev"))
}
