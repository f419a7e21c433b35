//! See crate `loligo`'s library: this is its command line.

use clap::Parser;
use loligo::cli::Cli;
use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match loligo::run(Cli::parse()) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            // Where nobody can be told, there is the exit code.
            let _ = writeln!(std::io::stderr(), "loligo: {failure}");
            ExitCode::from(failure.exit.code())
        }
    }
}
