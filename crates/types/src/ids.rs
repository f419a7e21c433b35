//! Newtypes for everything that is a number on the wire.

use std::fmt;
use std::str::FromStr;

/// A version of the OSDMap (or of another cluster map). Epoch 0 means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// No map at all.
    pub const ZERO: Epoch = Epoch(0);

    /// The epoch after this one. Epochs cannot wrap in the life of a cluster.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.checked_add(1).expect("epochs do not wrap"))
    }

    /// The epoch before this one, or zero.
    #[must_use]
    pub fn prev(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An OSD's number. Never negative for a real OSD; [`OsdId::NONE`] marks a hole in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdId(pub i32);

impl OsdId {
    /// `CRUSH_ITEM_NONE`: no OSD at this place of a mapping.
    pub const NONE: OsdId = OsdId(0x7fff_ffff);

    /// Whether this names an OSD (and is not a hole).
    pub fn is_some(self) -> bool {
        self != OsdId::NONE
    }

    /// Index into the per-OSD vectors of a map; `None` for negative ids and holes.
    pub fn index(self) -> Option<usize> {
        if self == OsdId::NONE { None } else { usize::try_from(self.0).ok() }
    }
}

impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == OsdId::NONE { f.write_str("NONE") } else { self.0.fmt(f) }
    }
}

/// A pool's number. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub i64);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A placement group: pool and seed. Shown as Ceph does, `2.1f` (the seed in hex).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    /// The pool.
    pub pool: PoolId,
    /// 0 .. pg_num, or a raw 32-bit object hash before it is reduced.
    pub seed: u32,
}

impl PgId {
    /// The PG `seed` of `pool`.
    pub fn new(pool: PoolId, seed: u32) -> Self {
        PgId { pool, seed }
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

impl FromStr for PgId {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let (pool, seed) = s.split_once('.').ok_or(())?;
        let pool = pool.parse().map_err(|_| ())?;
        let seed = u32::from_str_radix(seed, 16).map_err(|_| ())?;
        Ok(PgId { pool: PoolId(pool), seed })
    }
}

/// Position of an erasure-coded shard; [`ShardId::NONE`] in replicated pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i8);

impl ShardId {
    /// Replicated: no shard.
    pub const NONE: ShardId = ShardId(-1);
}

/// A PG together with the shard an OSD holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    /// The PG.
    pub pgid: PgId,
    /// The shard, [`ShardId::NONE`] when replicated.
    pub shard: ShardId,
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shard == ShardId::NONE {
            self.pgid.fmt(f)
        } else {
            write!(f, "{}s{}", self.pgid, self.shard.0)
        }
    }
}

/// A snapshot's id, and the two special places an object has beside its clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The head: the writable, newest state (`CEPH_NOSNAP`).
    pub const HEAD: SnapId = SnapId(0xffff_ffff_ffff_fffe);
    /// `CEPH_SNAPDIR`: what LIST_SNAPS is addressed to.
    pub const SNAPDIR: SnapId = SnapId(0xffff_ffff_ffff_ffff);
    /// The largest id a snapshot may have.
    pub const MAX: SnapId = SnapId(0xffff_ffff_ffff_fffd);
}

impl fmt::Display for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SnapId::HEAD => f.write_str("head"),
            SnapId::SNAPDIR => f.write_str("snapdir"),
            SnapId(n) => write!(f, "{n:x}"),
        }
    }
}

/// The kind of a peer (`CEPH_ENTITY_TYPE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityType(pub u8);

impl EntityType {
    /// A monitor.
    pub const MON: EntityType = EntityType(1);
    /// A metadata server.
    pub const MDS: EntityType = EntityType(2);
    /// An object storage daemon.
    pub const OSD: EntityType = EntityType(4);
    /// Any client.
    pub const CLIENT: EntityType = EntityType(8);
    /// A manager daemon.
    pub const MGR: EntityType = EntityType(0x10);

    /// Ceph's short name (`mon`, `osd`, `client`, ...).
    pub fn name(self) -> &'static str {
        match self {
            EntityType::MON => "mon",
            EntityType::MDS => "mds",
            EntityType::OSD => "osd",
            EntityType::CLIENT => "client",
            EntityType::MGR => "mgr",
            _ => "unknown",
        }
    }
}

/// A peer's name: kind and number, `client.4123`, `osd.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// The kind.
    pub kind: EntityType,
    /// The number: OSD id, or a client's global id. Negative when not known yet.
    pub num: i64,
}

impl EntityName {
    /// `osd.N`
    pub fn osd(id: OsdId) -> Self {
        EntityName { kind: EntityType::OSD, num: i64::from(id.0) }
    }

    /// `client.N`
    pub fn client(id: ClientId) -> Self {
        EntityName { kind: EntityType::CLIENT, num: id.0 as i64 }
    }

    /// `mon.N`
    pub fn mon(rank: i64) -> Self {
        EntityName { kind: EntityType::MON, num: rank }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num < 0 {
            write!(f, "{}.?", self.kind.name())
        } else {
            write!(f, "{}.{}", self.kind.name(), self.num)
        }
    }
}

/// A client's global id, given out by the mon, unique for the life of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What makes a request unique over resends (`osd_reqid_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    /// Who asked.
    pub name: EntityName,
    /// The asker's incarnation; 0 for clients.
    pub inc: i32,
    /// The asker's transaction id.
    pub tid: u64,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgid_reads_what_it_prints() {
        let pg = PgId::new(PoolId(12), 0x1f);
        assert_eq!(pg.to_string(), "12.1f");
        assert_eq!("12.1f".parse(), Ok(pg));
        assert_eq!("12".parse::<PgId>(), Err(()));
        assert_eq!("12.zz".parse::<PgId>(), Err(()));
    }

    #[test]
    fn a_hole_has_no_index() {
        assert_eq!(OsdId::NONE.index(), None);
        assert_eq!(OsdId(-3).index(), None);
        assert_eq!(OsdId(7).index(), Some(7));
    }
}
