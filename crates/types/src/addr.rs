//! Network addresses as Ceph names them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Which protocol an [`EntityAddr`] is for (`entity_addr_t::type_t`). Ordered by wire number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrType(pub u32);

impl AddrType {
    /// No address.
    pub const NONE: AddrType = AddrType(0);
    /// msgr v1.
    pub const LEGACY: AddrType = AddrType(1);
    /// msgr v2.
    pub const MSGR2: AddrType = AddrType(2);
    /// Any protocol: how blocklist entries are kept.
    pub const ANY: AddrType = AddrType(3);

    /// The prefix Ceph prints: `v1`, `v2`, `any`, `-`.
    pub fn prefix(self) -> &'static str {
        match self {
            AddrType::LEGACY => "v1",
            AddrType::MSGR2 => "v2",
            AddrType::ANY => "any",
            AddrType::NONE => "-",
            _ => "unknown",
        }
    }
}

/// One address of a daemon or client: protocol, ip and port, and a nonce that tells apart two
/// processes that used the same port (`entity_addr_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityAddr {
    /// The protocol.
    pub kind: AddrType,
    /// Differs for each process that ever used this ip and port.
    pub nonce: u32,
    /// `None` is the blank address.
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    /// A msgr v2 address.
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        EntityAddr { kind: AddrType::MSGR2, nonce, sock: Some(sock) }
    }

    /// The same address with another protocol.
    #[must_use]
    pub fn with_kind(mut self, kind: AddrType) -> Self {
        self.kind = kind;
        self
    }

    /// The ip, unless blank.
    pub fn ip(&self) -> Option<IpAddr> {
        self.sock.map(|s| s.ip())
    }

    /// Whether this is the blank address.
    pub fn is_blank(&self) -> bool {
        self.sock.is_none()
    }
}

impl fmt::Display for EntityAddr {
    /// `v2:127.0.0.1:6800/12345`; a legacy address without prefix is not used by us.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.sock) {
            (AddrType::NONE, _) => f.write_str("-"),
            (_, None) => write!(f, "{}::/{}", self.kind.prefix(), self.nonce),
            (AddrType::ANY, Some(sock)) => write!(f, "{sock}/{}", self.nonce),
            (_, Some(sock)) => write!(f, "{}:{sock}/{}", self.kind.prefix(), self.nonce),
        }
    }
}

/// All addresses of one entity (`entity_addrvec_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    /// Only a msgr v2 address.
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        AddrVec(vec![EntityAddr::msgr2(sock, nonce)])
    }

    /// The msgr v2 entry, if there is one.
    pub fn v2(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrType::MSGR2)
    }

    /// The first legacy entry, if there is one.
    pub fn legacy(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrType::LEGACY)
    }

    /// Whether there is no address at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for AddrVec {
    /// One address plainly, several as `[v2:..,v1:..]` (`operator<<(entity_addrvec_t)`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => Ok(()),
            [one] => one.fmt(f),
            all => {
                f.write_str("[")?;
                for (i, addr) in all.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    addr.fmt(f)?;
                }
                f.write_str("]")
            }
        }
    }
}
