//! What a process is, whom it serves and how, and what it dials.

use crate::frame::FEATURES_SUPPORTED;
use std::time::Duration;
use types::{AddrVec, EntityType};

/// Time for everything from TCP's connect to the open session (`ms_connection_ready_timeout`).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without any traffic is closed after this (`ms_connection_idle_timeout`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(900);
/// First pause before a lossless link is dialled again (`ms_initial_backoff`).
pub const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest such pause (`ms_max_backoff`).
pub const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// Received messages are acknowledged after this at the latest.
pub const ACK_DELAY: Duration = Duration::from_millis(20);
/// Received messages are acknowledged at once when there are so many.
pub const ACK_MAX_MESSAGES: u64 = 64;
/// Received messages are acknowledged at once when they have so many bytes.
pub const ACK_MAX_BYTES: usize = 4 << 20;
/// Peers that may be authenticating at the same time.
pub const MAX_HANDSHAKES: usize = 4096;

/// Asking whether the peer is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// A KEEPALIVE2 goes out this often.
    pub interval: Duration,
    /// Without any byte from the peer for so long, the connection is given up.
    pub timeout: Duration,
}

impl Keepalive {
    /// `mon_client_ping_interval`, `mon_client_ping_timeout`: 10 s, 30 s.
    pub const MON_CLIENT: Keepalive =
        Keepalive { interval: Duration::from_secs(10), timeout: Duration::from_secs(30) };
}

/// How a link is kept (Ceph `msg/Policy.h`). The accepting end decides what is lossy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The session ends with its connection, and what was not received is lost. Otherwise it
    /// survives reconnects: no message is lost, doubled, or out of order.
    pub lossy: bool,
    /// Accepting end: a second connection from the same addresses replaces the first. Lossless
    /// sessions always are registered.
    pub registered: bool,
    /// Without any traffic for so long, the connection is closed.
    pub idle_timeout: Option<Duration>,
    /// Asks whether the peer is there.
    pub keepalive: Option<Keepalive>,
    /// Accepting end: how long a lossless session waits for its peer to connect again.
    pub standby_timeout: Duration,
    /// Bytes of messages that may wait to be sent (no connection) or acknowledged (lossless). Over
    /// it the session is given up.
    pub max_queued_bytes: usize,
    /// The same, in messages.
    pub max_queued_messages: usize,
    /// When more bytes than this wait to be sent, nothing is received from the peer until half of them
    /// have left.
    pub send_limit_bytes: Option<usize>,
    /// Its long messages wait for room before they are received
    /// ([`Messenger::limit_receiving`](super::Messenger::limit_receiving)).
    pub shares_room: bool,
}

impl Policy {
    fn lossy() -> Self {
        Policy {
            lossy: true,
            registered: false,
            idle_timeout: Some(IDLE_TIMEOUT),
            keepalive: None,
            standby_timeout: IDLE_TIMEOUT,
            max_queued_bytes: 256 << 20,
            max_queued_messages: 1 << 16,
            send_limit_bytes: None,
            shares_room: false,
        }
    }

    /// A mon towards clients: `stateless_server`.
    pub fn stateless_server() -> Self {
        Policy { send_limit_bytes: Some(16 << 20), ..Self::lossy() }
    }

    /// An OSD towards clients: `stateless_registered_server`.
    pub fn stateless_registered_server() -> Self {
        let send_limit_bytes = Some(16 << 20);
        Policy { registered: true, send_limit_bytes, shares_room: true, ..Self::lossy() }
    }

    /// A client towards OSDs: `lossy_client`.
    pub fn lossy_client() -> Self {
        Self::lossy()
    }

    /// A client towards a mon: lossy, with keepalives.
    pub fn mon_client() -> Self {
        Policy { keepalive: Some(Keepalive::MON_CLIENT), ..Self::lossy() }
    }

    /// OSD to OSD, both ends: `lossless_peer`. Between two OSDs the smaller id dials.
    pub fn lossless_peer() -> Self {
        Policy {
            lossy: false,
            registered: true,
            idle_timeout: None,
            keepalive: Some(Keepalive::MON_CLIENT),
            max_queued_bytes: 1 << 30,
            ..Self::lossy()
        }
    }
}

/// How a listener comes to a client's global id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalIds {
    /// A mon: a client without one gets a new one, from
    /// [`MsgrEvent::WantsGlobalId`](super::MsgrEvent::WantsGlobalId).
    Assigned,
    /// Any other daemon: what the client says.
    Echoed,
}

/// What a listening socket serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The addresses clients know it by, stated in SERVER_IDENT. Left empty, the socket's own
    /// address with the process's nonce, once it is known.
    pub addrs: AddrVec,
    /// Where global ids come from.
    pub global_ids: GlobalIds,
    /// Kinds of peers that are served, and how. Others are refused.
    pub policies: Vec<(EntityType, Policy)>,
}

impl ListenerConfig {
    /// A mon's: clients and daemons, all lossy.
    pub fn mon(addrs: AddrVec) -> Self {
        let kinds = [
            EntityType::CLIENT,
            EntityType::OSD,
            EntityType::MDS,
            EntityType::MGR,
            EntityType::MON,
        ];
        ListenerConfig {
            addrs,
            global_ids: GlobalIds::Assigned,
            policies: kinds.into_iter().map(|kind| (kind, Policy::stateless_server())).collect(),
        }
    }

    /// An OSD's: clients lossy and registered, other OSDs lossless.
    pub fn osd(addrs: AddrVec) -> Self {
        let client = Policy::stateless_registered_server();
        ListenerConfig {
            addrs,
            global_ids: GlobalIds::Echoed,
            policies: vec![
                (EntityType::CLIENT, client.clone()),
                (EntityType::MDS, client.clone()),
                (EntityType::MGR, client),
                (EntityType::OSD, Policy::lossless_peer()),
            ],
        }
    }

    pub(super) fn policy(&self, kind: EntityType) -> Option<&Policy> {
        let mut policies = self.policies.iter();
        policies.find(|(k, _)| *k == kind).map(|(_, policy)| policy)
    }
}

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its kind.
    pub entity: EntityType,
    /// Its number in idents: OSD id, mon rank; a client's global id, -1 before it has one.
    pub num: i64,
    /// The name it authenticates with: `admin` of `client.admin`.
    pub id: String,
    /// The global id it presents; 0 for none yet.
    pub global_id: u64,
    /// Tells this process from others that used the same address; unique per process.
    pub nonce: u32,
}

impl Identity {
    /// A client that has no global id yet.
    pub fn client(id: impl Into<String>, nonce: u32) -> Self {
        Identity { entity: EntityType::CLIENT, num: -1, id: id.into(), global_id: 0, nonce }
    }

    /// A daemon with its number.
    pub fn daemon(entity: EntityType, num: u32, nonce: u32) -> Self {
        Identity { entity, num: i64::from(num), id: num.to_string(), global_id: 0, nonce }
    }
}

/// Whom to dial, and how to keep the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// The peer's addresses; its msgr2 address is dialled, and must be among those it states.
    pub target: AddrVec,
    /// What must answer there.
    pub expected: EntityType,
    /// How the link is kept.
    pub policy: Policy,
    /// Our own addresses to state; a client leaves this empty and states what it learned from the
    /// first daemon it dialled.
    pub my_addrs: AddrVec,
    /// Feature bits to state: those that we have, or fewer, as an older client would.
    pub features: u64,
}

impl Dial {
    /// A client's dial.
    pub fn new(target: AddrVec, expected: EntityType, policy: Policy) -> Self {
        let (my_addrs, features) = (AddrVec::default(), FEATURES_SUPPORTED);
        Dial { target, expected, policy, my_addrs, features }
    }

    /// A daemon's dial, which states its own addresses.
    #[must_use]
    pub fn from_addrs(mut self, my_addrs: AddrVec) -> Self {
        self.my_addrs = my_addrs;
        self
    }
}
