//! What a daemon that panics leaves behind, and who tells the mon of it.
//!
//! As Ceph's daemons and `ceph-crash` do: a panic leaves `DIR/ID/meta`, a JSON object; every daemon looks there
//! now and then, posts to the mon (`crash post`) what it finds, of whom ever, and moves it to `DIR/posted`, or to
//! `DIR/refused` if the mon will never take it.

use crate::conf::ClientConf;
use crate::failure::{Context, Failure};
use crate::machine;
use crate::sync_client::{SyncClient, entropy};
use crate::wait::Deadline;
use rustix::time::ClockId;
use serde_json::{Map, Value, json};
use std::backtrace::Backtrace;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::panic::{Location, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Errno, UTime, Uuid};

/// Where those are that the mon knows.
const POSTED: &str = "posted";
/// Where those are that it does not take.
const REFUSED: &str = "refused";
/// The file in the folder of a crash.
const META: &str = "meta";
/// So many crashes lie in a folder; more are in the log only.
const MAX_CRASHES: usize = 100;
/// Bytes of a panic's message that are kept: a failed assertion may show whatever it compared.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// Lines of a backtrace that are kept, and bytes of each: names of generic functions have no end.
const MAX_LINES: usize = 200;
const MAX_LINE_BYTES: usize = 200;
/// Bytes that the mon takes.
const MAX_BYTES: usize = 64 << 10;
/// Bytes of a file that are read: whoever has left it kept to no bound.
const MAX_READ_BYTES: u64 = 16 << 20;
/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The mon must answer within this.
const PATIENCE: Duration = Duration::from_secs(20);

/// From now on a panic of this process leaves a note in `dir`. `entity`: `osd.3`.
pub fn note_panics(dir: &Path, entity: &str) {
    let (dir, entity) = (dir.to_owned(), entity.to_owned());
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        let (id, meta) = describe(info, &entity);
        if let Err(e) = leave(&dir, &id, &meta) {
            let at = dir.display();
            // A panic in here would say nothing of the first one.
            let _ = writeln!(std::io::stderr(), "loligo: the crash cannot be noted in {at}: {e}");
        }
    }));
}

fn describe(info: &PanicHookInfo<'_>, entity: &str) -> (String, Value) {
    let said = info.payload_as_str().unwrap_or_default();
    note(entity, said, info.location(), &Backtrace::force_capture().to_string())
}

/// The id and the facts of a crash.
fn note(
    entity: &str,
    said: &str,
    place: Option<&Location<'_>>,
    backtrace: &str,
) -> (String, Value) {
    let now = UTime::from_unix(machine::clock(ClockId::Realtime));
    let stamp = now.to_string().replace("+0000", "Z");
    let random = u128::from(entropy()) << 64 | u128::from(entropy());
    let id = format!("{stamp}_{}", Uuid::from_random(random));
    let lines = backtrace.lines().take(MAX_LINES);
    let backtrace: Vec<&str> = lines.map(|line| cut(line.trim(), MAX_LINE_BYTES)).collect();
    let mut meta = Map::new();
    let mut say = |name: &str, value: Value| drop(meta.insert(name.to_owned(), value));
    say("crash_id", json!(id));
    say("timestamp", json!(stamp));
    say("entity_name", json!(entity));
    let kind = entity.split('.').next().unwrap_or_default();
    say("process_name", json!(format!("loligo-{kind}")));
    say("ceph_version", json!(&*admin::common::VERSION));
    say("assert_msg", json!(cut(said, MAX_MESSAGE_BYTES)));
    say("assert_thread_name", json!(std::thread::current().name().unwrap_or_default()));
    if let Some(place) = place {
        say("assert_file", json!(place.file()));
        say("assert_line", json!(place.line()));
    }
    say("backtrace", json!(backtrace));
    let renamed = [
        ("utsname_hostname", "hostname"),
        ("utsname_sysname", "os"),
        ("utsname_release", "kernel_version"),
        ("utsname_version", "kernel_description"),
        ("utsname_machine", "arch"),
        ("os_id", "distro"),
        ("os_name", "distro_description"),
        ("os_version_id", "distro_version"),
    ];
    let facts = machine::facts();
    for (name, fact) in renamed {
        say(name, json!(facts.get(fact)));
    }
    (id, meta.into())
}

/// The start of a text.
fn cut(text: &str, max_bytes: usize) -> &str {
    text.split_at(text.floor_char_boundary(max_bytes)).0
}

/// Writes a note. What is half written has another name.
fn leave(dir: &Path, id: &str, meta: &Value) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let is_whole = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    if fs::read_dir(dir)?.flatten().filter(is_whole).count() > MAX_CRASHES {
        return Err(std::io::Error::other("it is full of others"));
    }
    let (half, whole) = (dir.join(format!(".{id}")), dir.join(id));
    fs::create_dir(&half)?;
    let written = fs::write(half.join(META), format!("{meta:#}\n"));
    let done = written.and_then(|()| fs::rename(&half, whole));
    if done.is_err() {
        // Nobody else would remove it.
        let _ = fs::remove_dir_all(&half);
    }
    done
}

/// The crashes in a folder that were not posted yet, oldest first.
fn left_behind(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = found
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.starts_with('.') && name != POSTED && name != REFUSED && path.join(META).is_file()
        })
        .collect();
    found.sort();
    found
}

/// Posts what is in the folder, now and later, on a thread of its own.
///
/// # Errors
/// When there is no thread.
pub fn post_all(dir: &Path, mons: &ClientConf) -> Result<(), Failure> {
    let (dir, mons) = (dir.to_owned(), mons.clone());
    let look = move || {
        loop {
            let found = left_behind(&dir);
            if !found.is_empty()
                && let Err(failure) = post(&dir, &found, &mons)
            {
                tracing::warn!("{failure}");
            }
            Deadline::after(LOOK_EVERY).sleep();
        }
    };
    let thread = std::thread::Builder::new().name("crashes".to_owned()).spawn(look);
    thread.map(drop).context(|| "cannot look for crashes".to_owned())
}

/// What becomes of a note.
enum Posted {
    /// The mon has it.
    Taken,
    /// The mon never will.
    Refused(String),
    /// It may another time.
    Later(String),
    /// Another daemon was faster.
    Gone,
}

/// One that cannot be dealt with holds up no other, unless the mon does not answer.
fn post(dir: &Path, found: &[PathBuf], mons: &ClientConf) -> Result<(), Failure> {
    let mut client = SyncClient::connect(mons, PATIENCE)?;
    let mut say = |text: Vec<u8>| {
        let command = client.command_with(&json!({"prefix": "crash post"}), text);
        command.map(|reply| (reply.status, reply.outs)).map_err(|e| e.to_string())
    };
    for path in found {
        let what = || format!("the crash in {} cannot be posted to the mon", path.display());
        let folder = match post_one(path, &mut say).context(what)? {
            Posted::Gone => continue,
            Posted::Later(why) => {
                tracing::warn!("{}: {why}", what());
                continue;
            }
            Posted::Taken => POSTED,
            Posted::Refused(why) => {
                tracing::warn!("{}: {why}; it is in {REFUSED} now", what());
                REFUSED
            }
        };
        let folder = dir.join(folder);
        if let Err(e) = set_aside(path, &folder) {
            let (path, to) = (path.display(), folder.display());
            tracing::warn!("the crash in {path} is dealt with, but cannot be moved to {to}: {e}");
        }
        forget_old(&folder);
    }
    Ok(())
}

/// Offers the mon a note by `say`, which answers its status and why. An error is that it does not answer.
fn post_one(
    path: &Path,
    say: &mut impl FnMut(Vec<u8>) -> Result<(i32, String), String>,
) -> Result<Posted, String> {
    let mut text = Vec::new();
    let read = fs::File::open(path.join(META));
    let read = read.and_then(|file| file.take(MAX_READ_BYTES).read_to_end(&mut text));
    let text = match read {
        Ok(_) => fitting(text),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Posted::Gone),
        Err(e) => Err(format!("it cannot be read: {e}")),
    };
    let text = match text {
        Ok(text) => text,
        Err(why) => return Ok(Posted::Refused(why)),
    };
    match say(text)? {
        (0.., _) => Ok(Posted::Taken),
        (status, why) if status == -Errno::EINVAL.0 => Ok(Posted::Refused(why)),
        (_, why) => Ok(Posted::Later(why)),
    }
}

/// Moves a note that is done with into this folder, in the place of an older one of the same name.
fn set_aside(path: &Path, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let to = folder.join(path.file_name().unwrap_or_default());
    match fs::rename(path, &to) {
        Err(_) if !path.exists() => Ok(()), // Another daemon was faster.
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            fs::remove_dir_all(&to)?;
            fs::rename(path, &to)
        }
        moved => moved,
    }
}

/// A note that the mon takes: if it is too long, without its backtrace, and its texts cut.
fn fitting(text: Vec<u8>) -> Result<Vec<u8>, String> {
    if text.len() <= MAX_BYTES {
        return Ok(text);
    }
    let meta = serde_json::from_slice::<Map<String, Value>>(&text);
    let mut meta = meta.map_err(|e| format!("it is too long, and no note: {e}"))?;
    meta.remove("backtrace");
    for value in meta.values_mut() {
        if let Value::String(text) = value {
            text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
    }
    let text = Value::from(meta).to_string().into_bytes();
    if text.len() <= MAX_BYTES { Ok(text) } else { Err("it is too long".to_owned()) }
}

/// Of those that are done with, only the newest stay.
fn forget_old(folder: &Path) {
    let known = left_behind(folder);
    for old in known.iter().rev().skip(MAX_CRASHES) {
        let _ = fs::remove_dir_all(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_left_one_by_one_and_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..=MAX_CRASHES {
            leave(dir.path(), &format!("x{i:03}"), &json!({"crash_id": i})).unwrap();
        }
        let full = leave(dir.path(), "y", &json!({})).unwrap_err();
        assert_eq!(full.to_string(), "it is full of others");
        for done in [POSTED, REFUSED] {
            leave(&dir.path().join(done), "old", &json!({})).unwrap();
        }
        fs::create_dir_all(dir.path().join(".half")).unwrap();
        let found = left_behind(dir.path());
        assert_eq!(found.len(), MAX_CRASHES + 1);
        assert_eq!(found[7], dir.path().join("x007"));
        forget_old(dir.path());
        assert_eq!(left_behind(dir.path()), found[1..]);
    }

    /// Of a daemon that panicked while its disk was full.
    #[test]
    fn what_is_half_written_neither_stays_nor_counts() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..=MAX_CRASHES {
            fs::create_dir(dir.path().join(format!(".half{i}"))).unwrap();
        }
        // The name is taken by a file: it cannot be made whole.
        fs::write(dir.path().join("x"), "").unwrap();
        leave(dir.path(), "x", &json!({})).unwrap_err();
        assert!(!dir.path().join(".x").exists());
        leave(dir.path(), "y", &json!({})).unwrap();
        assert_eq!(left_behind(dir.path()), [dir.path().join("y")]);
    }

    #[test]
    fn one_note_that_cannot_be_dealt_with_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let meta = |id: &str| dir.path().join(id).join(META);
        let mut taken = Vec::new();
        let mut say = |text| {
            taken.push(text);
            Ok((0, String::new()))
        };
        // Its file is none.
        fs::create_dir_all(meta("a")).unwrap();
        let posted = post_one(&dir.path().join("a"), &mut say).unwrap();
        assert!(matches!(posted, Posted::Refused(why) if why.contains("cannot be read")));
        let posted = post_one(&dir.path().join("gone"), &mut say).unwrap();
        assert!(matches!(posted, Posted::Gone));
        leave(dir.path(), "b", &json!({"crash_id": "b"})).unwrap();
        assert!(matches!(post_one(&dir.path().join("b"), &mut say), Ok(Posted::Taken)));
        assert_eq!(taken.len(), 1);
        // It was posted before, and moved back by somebody; or another daemon has moved it.
        let posted = dir.path().join(POSTED);
        leave(&posted, "b", &json!({"crash_id": "old"})).unwrap();
        set_aside(&dir.path().join("b"), &posted).unwrap();
        assert!(fs::read_to_string(posted.join("b").join(META)).unwrap().contains("\"b\""));
        set_aside(&dir.path().join("b"), &posted).unwrap();
        assert!(!dir.path().join("b").exists());
        leave(dir.path(), "c", &json!({})).unwrap();
        let mut busy = |_| Ok((-Errno::EAGAIN.0, "busy".to_owned()));
        assert!(matches!(post_one(&dir.path().join("c"), &mut busy), Ok(Posted::Later(_))));
        // The mon does not answer: nor would it to the next one.
        let mut silence = |_| Err("no answer".to_owned());
        assert!(post_one(&dir.path().join("c"), &mut silence).is_err());
    }

    #[test]
    fn whatever_a_daemon_says_when_it_panics_the_mon_takes_it() {
        let (message, line) = ("\u{e9}\u{1}".repeat(1 << 19), "\u{1}".repeat(1 << 12));
        let backtrace = format!("{line}\n").repeat(1000);
        let (id, meta) = note("osd.3", &message, None, &backtrace);
        let said = meta["assert_msg"].as_str().unwrap();
        assert!(said.len() <= MAX_MESSAGE_BYTES && message.starts_with(said));
        assert_eq!(meta["backtrace"].as_array().unwrap().len(), MAX_LINES);
        // Written as JSON they are still too long.
        let text = format!("{meta:#}\n").into_bytes();
        let posted: Value = serde_json::from_slice(&fitting(text).unwrap()).unwrap();
        assert_eq!((&posted["crash_id"], posted["assert_msg"].as_str()), (&json!(id), Some(said)));
        // Most are posted as they are.
        let (_, meta) = note(
            "osd.3",
            &"x".repeat(1 << 20),
            None,
            &format!("{}\n", "y".repeat(300)).repeat(200),
        );
        let text = format!("{meta:#}\n").into_bytes();
        assert!(text.len() < MAX_BYTES);
        assert_eq!(fitting(text.clone()).unwrap(), text);
    }

    /// By an older build, or somebody else.
    #[test]
    fn a_note_that_is_too_long_is_posted_without_its_backtrace() {
        let lines = vec!["z".repeat(1000); 200];
        let meta = json!({"crash_id": "x", "assert_msg": "y".repeat(1 << 20), "backtrace": lines});
        let text = fitting(meta.to_string().into_bytes()).unwrap();
        let posted: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(posted["crash_id"], "x");
        assert!(posted.get("backtrace").is_none());
        assert!(fitting(vec![b'x'; MAX_BYTES + 1]).unwrap_err().contains("no note"));
    }
}
