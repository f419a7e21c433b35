//! Files that must outlive a crash.

use crate::failure::{Context, Failure};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
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

/// A file of ours that is not whole yet: it goes again, unless it is kept.
#[derive(Debug)]
pub struct MadeFile {
    path: PathBuf,
    is_to_go: bool,
}

impl MadeFile {
    /// At this path; `is_ours`: there was none before.
    pub fn new(path: &Path, is_ours: bool) -> Self {
        MadeFile { path: path.to_owned(), is_to_go: is_ours }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It is whole.
    pub fn keep(&mut self) {
        self.is_to_go = false;
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if self.is_to_go {
            // If it cannot be removed, the next try says that it is there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How much space is free in a folder.
///
/// # Errors
/// When that cannot be told.
pub fn free_bytes(folder: &Path) -> Result<u64, Failure> {
    let stat = rustix::fs::statvfs(folder)
        .context(|| format!("cannot see how much space is in {}", folder.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether two paths name one file, however they are spelled. Of a file that does not exist its folder must.
///
/// # Errors
/// When that cannot be told.
pub fn is_same_file(a: &Path, b: &Path) -> std::io::Result<bool> {
    let id = |path: &Path| {
        let (meta, name) = match path.metadata() {
            Ok(meta) => (meta, None),
            Err(_) => (folder_of(path).metadata()?, path.file_name()),
        };
        Ok::<_, std::io::Error>((meta.dev(), meta.ino(), name.map(ToOwned::to_owned)))
    };
    Ok(id(a)? == id(b)?)
}

/// A path as it is written in a command for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Makes it durable that a file is in its folder.
///
/// # Errors
/// When the folder cannot be flushed.
pub fn sync_folder_of(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    let flushed = File::open(folder).and_then(|f| f.sync_all());
    flushed.context(|| format!("cannot flush the folder {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_no_room_is_not_written_and_it_is_the_machines_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("/dev/full", beside(&path)).unwrap();
        let failure = write_atomically(&path, "new").unwrap_err();
        assert_eq!(failure.exit, crate::Exit::Machine, "{failure}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_shell_takes_a_quoted_path_as_it_is() {
        let quoted = |path: &str| quoted(path.as_ref());
        assert_eq!(quoted("/home/me/loligo-1.0"), "/home/me/loligo-1.0");
        assert_eq!(quoted("/my cluster"), "'/my cluster'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
    }
}
