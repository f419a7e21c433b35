//! `loligo store`: making, checking and showing a store that no OSD has open.

use crate::cli::{StoreArgs, StoreCommand};
use crate::failure::{Exit, Failure};

/// Carries out `loligo store`.
///
/// # Errors
/// When it could not be done.
pub fn run(args: &StoreArgs) -> Result<Exit, Failure> {
    let what = match &args.command {
        StoreCommand::Mkfs(_) => "make",
        StoreCommand::Fsck(_) => "check",
        StoreCommand::Info(_) => "show",
    };
    Err(Failure::new(format!("cannot {what} a store"), "this build has none"))
}

/// Makes an empty store, in a new file of this size or on what is there.
///
/// # Errors
/// When it could not be made, or there is a store already.
pub fn mkfs(
    path: &std::path::Path,
    fsid: types::Uuid,
    osd: types::OsdId,
    bytes: Option<u64>,
) -> Result<(), Failure> {
    let _ = (fsid, osd, bytes);
    Err(Failure::new(format!("cannot make a store in {}", path.display()), "this build has none"))
}
