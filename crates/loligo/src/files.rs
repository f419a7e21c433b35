//! Files that must outlive a crash.

use crate::failure::{Context, Failure};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Replaces a file: after a crash it is the old one or the new one.
///
/// # Errors
/// When it cannot be written.
pub fn write_atomically(path: &Path, text: &str) -> Result<(), Failure> {
    let what = || format!("cannot write {}", path.display());
    let new = beside(path);
    let mut file = File::create(&new).context(what)?;
    file.write_all(text.as_bytes()).context(what)?;
    file.sync_all().context(what)?;
    std::fs::rename(&new, path).context(what)?;
    sync_folder_of(path)
}

/// Where a file is written before it takes its name.
pub fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Makes it durable that a file is in its folder.
///
/// # Errors
/// When the folder cannot be flushed.
pub fn sync_folder_of(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flushed = File::open(folder).and_then(|f| f.sync_all());
    flushed.context(|| format!("cannot flush the folder {}", folder.display()))
}
