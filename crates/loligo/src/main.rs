//! See crate `loligo`'s library: this is its command line.

use clap::Parser;
use loligo::cli::Cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match loligo::run(Cli::parse()) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            eprintln!("loligo: {failure}");
            ExitCode::from(failure.exit.code())
        }
    }
}
