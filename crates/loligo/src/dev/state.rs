//! What belongs to a development cluster, kept in its folder.

use super::layout::{DaemonId, Layout};
use crate::failure::{Context, Exit, Failure};
use crate::files::{beside, write_atomically};
use crate::sync_client::entropy;
use crate::wait::Deadline;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;
use types::Uuid;

const KIND: &str = "loligo development cluster";
const FORMAT: u32 = 1;
/// What Ceph's `osd_pool_default_size` is.
pub const DEFAULT_COPIES: usize = 3;
/// How long another command is waited for: the kernel lets go of the lock of one that was killed only after a while.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What belongs to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    kind: String,
    format: u32,
    /// The cluster's id.
    pub fsid: String,
    /// The monitor's port on loopback.
    pub port: u16,
    /// Network namespaces of its OSDs, without their numbers; the default: all of it on loopback.
    #[serde(default)]
    pub namespaces: Option<String>,
    /// Whether it was up and clean once: then the monitor's store must be there.
    #[serde(default)]
    pub has_run: bool,
    /// Its OSDs.
    pub osds: Vec<Osd>,
}

/// OSDs that were to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmade {
    /// How many.
    pub osds: u32,
    /// Bytes of the disk of each.
    pub bytes: u64,
}

/// An OSD of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Osd {
    /// Its number.
    pub id: u32,
    /// Bytes of its disk.
    pub bytes: u64,
    /// Whether its store was made. Until then, whatever is there is a failed try.
    pub formatted: bool,
}

impl State {
    /// A new cluster without OSDs.
    pub fn new(port: u16) -> Self {
        let random = u128::from(entropy()) << 64 | u128::from(entropy());
        let fsid = Uuid::from_random(random).to_string();
        State {
            kind: KIND.into(),
            format: FORMAT,
            fsid,
            port,
            namespaces: None,
            has_run: false,
            osds: Vec::new(),
        }
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// When somebody changed the file.
    pub fn fsid(&self) -> Result<Uuid, Failure> {
        self.fsid.parse().context(|| format!("the cluster's id `{}`", self.fsid))
    }

    /// The monitor's address.
    pub fn mon_addr(&self) -> SocketAddr {
        let ip = if self.namespaces.is_some() { [10, 77, 0, 1] } else { [127, 0, 0, 1] };
        SocketAddr::from((ip, self.port))
    }

    /// OSDs whose stores were not made, since something came between: there are none. What was wished for.
    pub fn forget_unmade(&mut self) -> Option<Unmade> {
        let unmade: Vec<Osd> = self.osds.extract_if(.., |osd| !osd.formatted).collect();
        Some(Unmade { osds: unmade.len() as u32, bytes: unmade.first()?.bytes })
    }

    /// Copies of the objects of its pools: not more than there are OSDs.
    pub fn copies(&self) -> usize {
        self.osds.len().min(DEFAULT_COPIES)
    }

    /// The network namespace of an OSD and its address there, if it has them.
    pub fn namespace(&self, osd: u32) -> Option<(String, SocketAddr)> {
        let name = format!("{}{osd}", self.namespaces.as_ref()?);
        let last = u8::try_from(osd).ok()?.checked_add(10)?;
        Some((name, SocketAddr::from(([10, 77, 0, last], 0))))
    }

    /// All daemons, the monitor first.
    pub fn daemons(&self) -> Vec<DaemonId> {
        let osds = self.osds.iter().map(|o| DaemonId::Osd(o.id));
        std::iter::once(DaemonId::Mon).chain(osds).collect()
    }

    /// The state of the cluster in a folder; `None` when the folder is empty or absent.
    ///
    /// # Errors
    /// When something else is there.
    pub fn load(layout: &Layout) -> Result<Option<State>, Failure> {
        let what = || format!("cannot use the folder {}", layout.dir().display());
        let text = match std::fs::read_to_string(layout.state()) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return if is_empty(layout) {
                    Ok(None)
                } else {
                    let why = "there are other things in it, and no development cluster";
                    Err(Failure::new(what(), why)
                        .advise("Name an empty or a new folder by --dir.")
                        .exit(Exit::Refused))
                };
            }
            Err(e) => return Err(Failure::new(what(), e)),
        };
        let state: State = serde_json::from_str(&text)
            .context(|| format!("cannot read {}", layout.state().display()))
            .map_err(|f| f.exit(Exit::Refused))?;
        if state.kind != KIND || state.format > FORMAT {
            let why = "its cluster was made by a newer version of this program";
            return Err(Failure::new(what(), why).exit(Exit::Refused));
        }
        Ok(Some(state))
    }

    /// As [`State::load`], for commands that need a cluster.
    ///
    /// # Errors
    /// Also when there is none.
    pub fn existing(layout: &Layout) -> Result<State, Failure> {
        State::load(layout)?.ok_or_else(|| {
            let what = format!("no cluster in {}", layout.dir().display());
            Failure::new(what, "the folder is empty or absent")
                .advise("Make one with `loligo dev start`, or name its folder by --dir.")
                .exit(Exit::NotRunning)
        })
    }

    /// Writes it, so that a crash leaves the old state or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, layout: &Layout) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self)
            .context(|| "cannot write the cluster's state".into())?;
        write_atomically(&layout.state(), &text)
    }
}

/// Whether there is nothing in the folder but our lock, and what a first command left that was killed while it
/// wrote the state.
fn is_empty(layout: &Layout) -> bool {
    let Ok(entries) = std::fs::read_dir(layout.dir()) else {
        return true;
    };
    let ours = [layout.lock(), beside(&layout.state())];
    entries.flatten().all(|e| ours.contains(&e.path()))
}

/// Keeps two commands off the same cluster, as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the folder's lock, making the folder if need be.
    ///
    /// # Errors
    /// When another command holds it.
    pub fn take(layout: &Layout) -> Result<Self, Failure> {
        Self::take_waiting(layout, || ())
    }

    /// The same. `wait` is called as often as it is found held.
    fn take_waiting(layout: &Layout, mut wait: impl FnMut()) -> Result<Self, Failure> {
        let what = || format!("cannot use the folder {}", layout.dir().display());
        std::fs::create_dir_all(layout.dir()).context(what)?;
        let file = File::options().create(true).append(true).open(layout.lock()).context(what)?;
        let lock = || {
            let held = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
            if held {
                wait();
            }
            !held
        };
        if !Deadline::after(LOCK_LIMIT).until(LOOK_EVERY, lock) {
            let why = "another `loligo dev` command is at work there";
            return Err(Failure::new(what(), why).advise("Wait for it, and try again."));
        }
        Ok(Lock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_others_is_refused_and_an_own_one_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("c"));
        assert_eq!(State::load(&layout).unwrap(), None);
        assert_eq!(State::existing(&layout).unwrap_err().exit, Exit::NotRunning);
        let lock = Lock::take(&layout).unwrap();
        assert!(Lock::take(&layout).is_err());
        // A command that is about to end is waited for.
        let mut ends = Some(lock);
        let lock = Lock::take_waiting(&layout, || drop(ends.take())).unwrap();
        assert_eq!(State::load(&layout).unwrap(), None, "the lock is nobody else's thing");
        drop(lock);
        // Killed in the middle of the first `save`.
        std::fs::write(dir.path().join("c/loligo-dev.new"), "{").unwrap();
        assert_eq!(State::load(&layout).unwrap(), None);
        let mut state = State::new(3300);
        state.osds.push(Osd { id: 0, bytes: 5, formatted: false });
        state.save(&layout).unwrap();
        assert_eq!(State::load(&layout).unwrap(), Some(state));

        let other = Layout::new(dir.path().to_owned());
        let failure = State::load(&other).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.to_string().contains("other things"), "{failure}");
    }
}
