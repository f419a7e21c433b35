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
use std::io::{Read, Write};
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
    if fs::read_dir(dir)?.count() > MAX_CRASHES {
        return Err(std::io::Error::other("it is full of others"));
    }
    let (half, whole) = (dir.join(format!(".{id}")), dir.join(id));
    fs::create_dir(&half)?;
    fs::write(half.join(META), format!("{meta:#}\n"))?;
    fs::rename(half, whole)
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

fn post(dir: &Path, found: &[PathBuf], mons: &ClientConf) -> Result<(), Failure> {
    let mut client = SyncClient::connect(mons, PATIENCE)?;
    for path in found {
        let what = || format!("the crash in {} cannot be posted to the mon", path.display());
        let folder = match post_one(path, &mut client).context(what)? {
            Ok(()) => POSTED,
            Err(why) => {
                tracing::warn!("{}: {why}; it is in {REFUSED} now", what());
                REFUSED
            }
        };
        let folder = dir.join(folder);
        fs::create_dir_all(&folder).context(what)?;
        let moved = fs::rename(path, folder.join(path.file_name().unwrap_or_default()));
        // Another daemon may have been faster.
        if path.exists() {
            moved.context(what)?;
        }
        forget_old(&folder);
    }
    Ok(())
}

/// Whether the mon has taken a crash, or why it never will. An error passes.
fn post_one(path: &Path, client: &mut SyncClient) -> Result<Result<(), String>, String> {
    let mut text = Vec::new();
    let read = fs::File::open(path.join(META));
    let read = read.and_then(|file| file.take(MAX_READ_BYTES).read_to_end(&mut text));
    read.map_err(|e| e.to_string())?;
    let text = match fitting(text) {
        Ok(text) => text,
        Err(why) => return Ok(Err(why)),
    };
    let reply = client.command_with(&json!({"prefix": "crash post"}), text);
    let reply = reply.map_err(|e| e.to_string())?;
    match reply.status {
        0.. => Ok(Ok(())),
        refused if refused == -Errno::EINVAL.0 => Ok(Err(reply.outs)),
        _ => Err(reply.outs),
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
