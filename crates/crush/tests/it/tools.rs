//! Ceph's own tools. Tests that need one pass where it is not installed; `./check` installs it.

use bytes::Bytes;
use crush::CrushMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `crushtool` with a folder for its files.
pub struct Crushtool {
    dir: tempfile::TempDir,
}

/// The tool, if it is installed.
pub fn crushtool() -> Option<Crushtool> {
    let path = std::env::var_os("PATH")?;
    let mut dirs = std::env::split_paths(&path);
    dirs.any(|dir| dir.join("crushtool").is_file())
        .then(|| Crushtool { dir: tempfile::tempdir().unwrap() })
}

impl Crushtool {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Runs the tool: what it printed, and whether it says that all went well.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> (String, bool) {
        // The tools of Ceph rarely, but sometimes hang in a lock of their own.
        let attempts = (0..5).map(|_| {
            let mut command = Command::new("timeout");
            command.args(["10", "crushtool"]).args(args);
            command.output().unwrap()
        });
        let mut in_time = attempts.filter(|output| output.status.code() != Some(124));
        let output = in_time.next().expect("crushtool hangs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { (text, true) } else { (format!("{text}{errors}"), false) }
    }

    /// Edits a map with the tool's options; `None` when it refuses. The result is read as a mon
    /// reads it, which recalculates the number of devices.
    pub fn edit(&self, map: &CrushMap, args: &[&str]) -> Option<CrushMap> {
        let input = self.file("edit.in", &denc::encode(map));
        let output = self.path("edit.out");
        let _ = std::fs::remove_file(&output);
        let (input, output_arg) = (input.to_str().unwrap(), output.to_str().unwrap());
        let mut all = vec!["-i", input];
        all.extend_from_slice(args);
        all.extend_from_slice(&["-o", output_arg]);
        let (_, ok) = self.run(&all);
        // Where there is nothing to do, the tool writes nothing.
        ok.then(|| read_map(&output).unwrap_or_else(|| map.clone()))
    }
}

fn read_map(path: &Path) -> Option<CrushMap> {
    let bytes: Bytes = std::fs::read(path).ok()?.into();
    Some(denc::decode_all(&bytes).unwrap())
}

/// What `crushtool -d` prints for a map.
pub fn decompiled(tool: &Crushtool, map: &Bytes) -> String {
    let file = tool.file("decompile.bin", map);
    let (text, ok) = tool.run(&["-d", file.to_str().unwrap()]);
    assert!(ok, "crushtool refuses a map: {text}");
    text
}
