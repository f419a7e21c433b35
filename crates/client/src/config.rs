//! Settings of a client.

use std::time::Duration;
use types::AddrVec;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where mons are; the monmap tells of others later.
    pub mons: Vec<AddrVec>,
    /// As whom it authenticates: `admin` of `client.admin`.
    pub name: String,
    /// Shown by the mon's session list.
    pub hostname: String,
    /// Tells this process from others of the same host; part of its identity in watches and
    /// blocklists. 0: drawn from the seed.
    pub nonce: u32,
    /// Requests on objects that may be in flight (`objecter_inflight_ops`).
    pub max_ops: usize,
    /// Bytes of data of those requests, written or asked for (`objecter_inflight_op_bytes`).
    pub max_bytes: usize,
    /// A request on an object fails with ETIMEDOUT after so long; `None`: it waits for ever
    /// (`rados_osd_op_timeout`). A request's own limit goes before. It is also the limit of a watch, until it is
    /// registered the first time, and of a notify, beside the time that the notify gives watchers.
    pub op_timeout: Option<Duration>,
    /// The same for requests to the mon (`rados_mon_op_timeout`).
    pub mon_timeout: Option<Duration>,
}

impl ClientConfig {
    /// Ceph's defaults: `client.admin`, 1024 requests, 100 MiB, no time limit.
    pub fn new(mons: Vec<AddrVec>) -> Self {
        ClientConfig {
            mons,
            name: "admin".to_owned(),
            hostname: String::new(),
            nonce: 0,
            max_ops: 1024,
            max_bytes: 100 << 20,
            op_timeout: None,
            mon_timeout: None,
        }
    }
}
