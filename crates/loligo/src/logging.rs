//! Where log lines go.

use crate::failure::{Context, Failure};
use clap::Args;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;

/// Options about the log, good for every command.
#[derive(Clone, Debug, Args)]
pub struct Logging {
    /// Append the log to FILE; without it, log lines go to stderr
    #[arg(long, global = true, value_name = "FILE", help_heading = "Log")]
    pub log: Option<PathBuf>,

    /// How much to log: off, error, warn, info or debug
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Log")]
    pub log_level: Option<LevelFilter>,
}

/// Starts the log. `default`: what is logged unless the command line says otherwise.
///
/// # Errors
/// When the file cannot be opened.
pub fn start(logging: &Logging, default: LevelFilter) -> Result<(), Failure> {
    let level = logging.log_level.unwrap_or(default);
    let lines = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    match &logging.log {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.context(|| format!("cannot open the log {}", path.display()))?;
            lines.with_ansi(false).with_writer(Mutex::new(file)).init();
        }
        None => lines.with_ansi(false).with_writer(std::io::stderr).init(),
    }
    Ok(())
}
