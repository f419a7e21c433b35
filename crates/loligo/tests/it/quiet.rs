//! Tools whose output nobody reads to its end.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

const SIGPIPE: i32 = 13;

#[test]
fn a_tool_ends_without_a_word_when_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut tool = Command::new(env!("CARGO_BIN_EXE_loligo"));
    tool.args(["store", "mkfs", "--id", "0", "--size", "256M", "--fsid"]);
    tool.arg("7b1a4d3e-0000-4000-8000-000000000001").arg(folder.path().join("block"));
    let ran = tool.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ran.status.signal(), Some(SIGPIPE), "{ran:?}");
    assert!(ran.stderr.is_empty(), "{ran:?}");
}
