//! What a daemon that panics leaves behind, and who tells the mon of it.
//!
//! As Ceph's daemons and `ceph-crash` do: a panic leaves `DIR/ID/meta`, a JSON object; every daemon looks there
//! now and then, posts to the mon (`crash post`) what it finds, of whom ever, and moves it to `DIR/posted`.

use crate::conf::ClientConf;
use crate::failure::{Context, Failure};
use crate::machine;
use crate::sync_client::{SyncClient, entropy};
use crate::wait::Deadline;
use rustix::time::ClockId;
use serde_json::{Map, Value, json};
use std::backtrace::Backtrace;
use std::fs;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{UTime, Uuid};

/// Where those are that the mon knows.
const POSTED: &str = "posted";
/// The file in the folder of a crash.
const META: &str = "meta";
/// So many crashes lie in a folder; more are in the log only.
const MAX_CRASHES: usize = 100;
/// Lines of a backtrace that are kept.
const MAX_LINES: usize = 200;
/// Bytes of a file that are posted.
const MAX_BYTES: u64 = 64 << 10;
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
    let now = UTime::from_unix(machine::clock(ClockId::Realtime));
    let stamp = now.to_string().replace("+0000", "Z");
    let random = u128::from(entropy()) << 64 | u128::from(entropy());
    let id = format!("{stamp}_{}", Uuid::from_random(random));
    let backtrace = Backtrace::force_capture().to_string();
    let backtrace: Vec<&str> = backtrace.lines().take(MAX_LINES).map(str::trim).collect();
    let said = info.payload();
    let said = said.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let said = said.or_else(|| info.payload().downcast_ref::<String>().cloned());
    let mut meta = Map::new();
    let mut say = |name: &str, value: Value| drop(meta.insert(name.to_owned(), value));
    say("crash_id", json!(id));
    say("timestamp", json!(stamp));
    say("entity_name", json!(entity));
    let kind = entity.split('.').next().unwrap_or_default();
    say("process_name", json!(format!("loligo-{kind}")));
    say("ceph_version", json!(admin::common::VERSION));
    say("assert_msg", json!(said.unwrap_or_default()));
    say("assert_thread_name", json!(std::thread::current().name().unwrap_or_default()));
    if let Some(place) = info.location() {
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
            !name.starts_with('.') && name != POSTED && path.join(META).is_file()
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
        let size = fs::metadata(path.join(META)).context(what)?.len();
        let text =
            if size > MAX_BYTES { Vec::new() } else { fs::read(path.join(META)).context(what)? };
        let command = json!({"prefix": "crash post"});
        let reply = client.command_with(&command, text).context(what)?;
        if reply.status < 0 {
            // It will not become better.
            tracing::warn!("{}: {}", what(), reply.outs);
        }
        let posted = dir.join(POSTED);
        fs::create_dir_all(&posted).context(what)?;
        let moved = fs::rename(path, posted.join(path.file_name().unwrap_or_default()));
        // Another daemon may have been faster.
        if path.exists() {
            moved.context(what)?;
        }
        forget_old(&posted);
    }
    Ok(())
}

/// Of those that the mon knows, only the newest stay.
fn forget_old(posted: &Path) {
    let known = left_behind(posted);
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
        fs::create_dir_all(dir.path().join(POSTED).join("old")).unwrap();
        fs::create_dir_all(dir.path().join(".half")).unwrap();
        let found = left_behind(dir.path());
        assert_eq!(found.len(), MAX_CRASHES + 1);
        assert_eq!(found[7], dir.path().join("x007"));
        forget_old(dir.path());
        assert_eq!(left_behind(dir.path()), found[1..]);
    }
}
