//! Where everything of a development cluster is.

use crate::daemon::mon::STORE as MON_STORE;
use crate::disks::BLOCK;
use std::path::{Path, PathBuf};

/// The name of the monitor.
pub const MON_NAME: &str = "a";

/// A ceph.conf begins a comment, ends a path, or puts something else there.
const ODD: [char; 6] = ['#', ';', ',', '$', '"', '\''];
/// The longest path of a socket that Linux takes.
const MAX_SOCKET_BYTES: usize = 107;
const LAST_OSD: u32 = 99;

/// A daemon of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DaemonId {
    /// The monitor.
    Mon,
    /// An OSD.
    Osd(u32),
}

impl std::fmt::Display for DaemonId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DaemonId::Mon => write!(f, "mon.{MON_NAME}"),
            DaemonId::Osd(id) => write!(f, "osd.{id}"),
        }
    }
}

/// The folder of a cluster and what is in it.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The cluster in this folder.
    pub fn new(dir: PathBuf) -> Self {
        Layout { dir }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Why no cluster can be made in it: Ceph's tools, which read its path in `ceph.conf` and `CEPH_CONF`, could not
    /// use it.
    pub fn unsuited(&self) -> Option<String> {
        let path = self.dir.to_string_lossy();
        if let Some(odd) = path.chars().find(|c| ODD.contains(c) || c.is_control()) {
            return Some(format!("there is a {odd:?} in its name, which a ceph.conf cannot have"));
        }
        let socket = self.admin_socket(DaemonId::Osd(LAST_OSD));
        let room = MAX_SOCKET_BYTES.saturating_sub(socket.as_os_str().len() - path.len());
        (path.len() > room).then(|| {
            format!(
                "its name has {} bytes; with more than {room} there are no admin sockets",
                path.len()
            )
        })
    }

    /// What marks the folder.
    pub fn state(&self) -> PathBuf {
        self.dir.join("loligo-dev.json")
    }

    /// Held while the cluster is being started or stopped.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The configuration for clients.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// A daemon's data.
    pub fn data(&self, daemon: DaemonId) -> PathBuf {
        match daemon {
            DaemonId::Mon => self.dir.join("mon"),
            DaemonId::Osd(id) => self.dir.join(format!("osd.{id}")),
        }
    }

    /// The monitor's store.
    pub fn mon_store(&self) -> PathBuf {
        self.data(DaemonId::Mon).join(MON_STORE)
    }

    /// The disk of an OSD.
    pub fn block(&self, osd: u32) -> PathBuf {
        self.data(DaemonId::Osd(osd)).join(BLOCK)
    }

    /// Its process number.
    pub fn pid(&self, daemon: DaemonId) -> PathBuf {
        self.dir.join(format!("{daemon}.pid"))
    }

    /// Its log.
    pub fn log(&self, daemon: DaemonId) -> PathBuf {
        self.dir.join(format!("{daemon}.log"))
    }

    /// What daemons that crash leave behind.
    pub fn crashes(&self) -> PathBuf {
        self.dir.join("crash")
    }

    /// Its admin socket.
    pub fn admin_socket(&self, daemon: DaemonId) -> PathBuf {
        self.dir.join(format!("{daemon}.asok"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_cephs_tools_cannot_use_are_known() {
        let unsuited = |dir: &str| Layout::new(dir.into()).unsuited();
        assert_eq!(unsuited("/home/me/my cluster"), None);
        for odd in ["/a#b", "/a;b", "/a,b", "/a$b", "/a\nb"] {
            assert!(unsuited(odd).is_some_and(|why| why.contains("ceph.conf")), "{odd}");
        }
        // With "/osd.99.asok".
        assert_eq!(unsuited(&format!("/{}", "x".repeat(94))), None);
        assert!(unsuited(&format!("/{}", "x".repeat(95))).is_some_and(|why| why.contains("95")));
    }
}
