//! The one binary: `loligo mon`, `loligo osd`, `loligo dev`, `loligo store`,
//! `loligo bench`.
//!
//! There is no storage logic here: this crate reads command lines and configuration files, wires
//! cores to the runner, looks after processes, and talks to people. What it has for other programs
//! (its own tests, above all) is [`SyncClient`]: a [`client::Client`] behind calls that block.

mod bench;
pub mod cli;
pub mod conf;
pub mod daemon;
pub mod dev;
pub mod disks;
pub mod failure;
pub mod files;
pub mod logging;
pub mod machine;
mod progress;
mod replace;
pub mod sizes;
mod store_bench;
mod store_count;
mod store_read;
pub mod store_tool;
pub mod sync_client;
mod sync_image;
pub mod wait;

pub use failure::{Exit, Failure};
pub use sync_client::{SyncClient, with_client};

use signal_hook::consts::SIGPIPE;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Carries out a command line.
///
/// # Errors
/// When it could not be done.
pub fn run(cli: cli::Cli) -> Result<Exit, Failure> {
    logging::start(&cli.logging, cli.command.default_level())?;
    if cli.command.is_daemon() {
        logging::reopen_on_hangup()?;
    } else {
        end_with_the_reader();
    }
    match cli.command {
        cli::Command::Dev(args) => dev::run(&args),
        cli::Command::Mon(args) => daemon::mon::run(&args),
        cli::Command::Osd(cli::OsdArgs::Run(args)) => daemon::osd::run(&args),
        cli::Command::Osd(cli::OsdArgs::Replace(args)) => replace::run(&args),
        cli::Command::Store(args) => store_tool::run(&args),
        cli::Command::Bench(args) => bench::run(&args),
    }
}

/// Lets a tool end without a word when nobody reads its output any more (`| head`), as others do. Rust's
/// programs ignore SIGPIPE, and panic at the next line.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    if let Err(e) = signal_hook::flag::register_conditional_default(SIGPIPE, always) {
        tracing::warn!("SIGPIPE: {e}");
    }
}
