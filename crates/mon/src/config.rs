//! What a mon is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::Uuid;

/// Settings of a mon's process.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// Its name, without `mon.`.
    pub name: String,
    /// Where it listens, and where clients reach it.
    pub addr: SocketAddr,
    /// Where it listens for clients of the mgr, which it is as well. `None`: any free port.
    pub mgr_addr: Option<SocketAddr>,
    /// The admin socket, if there is to be one.
    pub admin_socket: Option<PathBuf>,
    /// What to make when the cluster store is empty. `None`: then the mon refuses to start.
    pub new_cluster: Option<NewCluster>,
    /// Options from the configuration file or command line.
    pub options: BTreeMap<String, String>,
    /// Facts about process and machine, for `ceph mon metadata`.
    pub metadata: BTreeMap<String, String>,
}

impl MonConfig {
    /// A mon without anything special.
    pub fn new(name: impl Into<String>, addr: SocketAddr) -> Self {
        MonConfig {
            name: name.into(),
            addr,
            mgr_addr: None,
            admin_socket: None,
            new_cluster: None,
            options: BTreeMap::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// Where the mgr's socket is to be made.
    pub(crate) fn mgr_addr(&self) -> SocketAddr {
        self.mgr_addr.unwrap_or_else(|| SocketAddr::new(self.addr.ip(), 0))
    }

    /// Makes this cluster when the store is empty.
    #[must_use]
    pub fn with_new_cluster(mut self, new: NewCluster) -> Self {
        self.new_cluster = Some(new);
        self
    }
}

/// A cluster to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCluster {
    /// Its id.
    pub fsid: Uuid,
    /// The type of CRUSH bucket over which the first rule spreads copies: `host`; for a cluster on
    /// one machine `osd` (what `osd_crush_chooseleaf_type = 0` means to Ceph).
    pub failure_domain: String,
}

impl NewCluster {
    /// A cluster that spreads over hosts.
    pub fn new(fsid: Uuid) -> Self {
        NewCluster { fsid, failure_domain: "host".into() }
    }
}
