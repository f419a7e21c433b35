//! From an object to the OSD that serves it, and whether a new map means that a request must be sent
//! again (`Objecter::_calc_target`).

use crate::op::Object;
use maps::{OsdMap, OsdMapFlags, PgIdExt, PoolFlags, UpActing};
use std::fmt;
use std::sync::Arc;
use types::{ByteString, Epoch, HObject, HashMap, OsdId, PgId, PoolId, ShardId, SnapId, SpgId};
use wire::msg::flags;

/// Where a PG is, in one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub osds: UpActing,
    size: u8,
    min_size: u8,
}

impl Mapping {
    /// What PG operations go to changed (`OSDMap::primary_changed`): the primary, or its place.
    fn primary_differs(&self, other: &Mapping) -> bool {
        let place = |m: &Mapping| {
            let primary = m.osds.acting_primary?;
            m.osds.acting.iter().position(|osd| *osd == primary)
        };
        self.osds.acting_primary != other.osds.acting_primary
            || self.osds.acting.is_empty() != other.osds.acting.is_empty()
            || place(self) != place(other)
    }
}

/// A map, and the places of PGs computed from it so far.
#[derive(Debug)]
pub(super) struct MapView {
    pub map: Arc<OsdMap>,
    places: HashMap<PgId, Arc<Mapping>>,
}

impl MapView {
    pub fn new(map: Arc<OsdMap>) -> Self {
        MapView { map, places: HashMap::default() }
    }

    fn place(&mut self, pg: PgId, size: u8, min_size: u8) -> Arc<Mapping> {
        let map = &self.map;
        let compute = || Arc::new(Mapping { osds: map.pg_to_up_acting(pg), size, min_size });
        self.places.entry(pg).or_insert_with(compute).clone()
    }
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// An object; its name says where.
    Object(Object),
    /// The PG that this hash belongs to, and in it what is of this namespace.
    Pg { pool: PoolId, hash: u32, nspace: ByteString },
}

impl Aim {
    fn pool(&self) -> PoolId {
        match self {
            Aim::Object(object) => object.pool,
            Aim::Pg { pool, .. } => *pool,
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aim::Object(object) => object.fmt(f),
            Aim::Pg { pool, .. } => write!(f, "pool {pool}"),
        }
    }
}

/// What a map means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Same,
    /// Send it (again).
    Send,
    /// There is no such pool in this map.
    NoPool,
    /// The pool is marked broken.
    PoolBroken,
}

/// Where a request goes, as far as the newest map tells.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub aim: Aim,
    /// The request's flags on the wire.
    pub flags: u32,
    /// The raw hash.
    pub hash: u32,
    /// The PG, and which shard of it the primary has.
    pub pgid: SpgId,
    /// Whom to send it to; `None` while the PG has no primary.
    pub osd: Option<OsdId>,
    /// The map says that requests like this are to be held.
    pub paused: bool,
    mapping: Option<Arc<Mapping>>,
    pg_num: u32,
    last_force_resend: Epoch,
}

impl Target {
    pub fn new(aim: Aim, flags: u32) -> Self {
        let pgid = SpgId { pgid: PgId::new(aim.pool(), 0), shard: ShardId::NONE };
        Target {
            aim,
            flags,
            hash: 0,
            pgid,
            osd: None,
            paused: false,
            mapping: None,
            pg_num: 0,
            last_force_resend: Epoch::ZERO,
        }
    }

    pub fn pool(&self) -> PoolId {
        self.aim.pool()
    }

    /// What it is about, at its place in the order of objects.
    pub fn object(&self, snap: SnapId) -> HObject {
        match &self.aim {
            Aim::Object(object) => object.at(self.hash, snap),
            Aim::Pg { pool, hash, nspace } => HObject {
                pool: *pool,
                hash: *hash,
                nspace: nspace.clone(),
                snap: SnapId::HEAD,
                ..HObject::min()
            },
        }
    }

    /// Forgets where it went: it is a new request.
    pub fn reset(&mut self) {
        *self = Target::new(self.aim.clone(), self.flags);
    }

    /// Computes the target anew. `any_change`: any change of the PG's OSDs counts (watches), not
    /// only one of the primary.
    pub fn aim_at(&mut self, view: &mut MapView, any_change: bool) -> Verdict {
        let map = view.map.clone();
        let Some(pool) = map.pool(self.aim.pool()) else {
            self.osd = None;
            return Verdict::NoPool;
        };
        if pool.flags.contains(PoolFlags::EIO) {
            self.osd = None;
            return Verdict::PoolBroken;
        }
        self.hash = match &self.aim {
            Aim::Object(o) => pool.hash_key(&o.nspace, &o.key, &o.name),
            Aim::Pg { hash, .. } => *hash,
        };
        let pg = pool.raw_pg_to_pg(PgId::new(self.aim.pool(), self.hash));
        let place = view.place(pg, pool.size, pool.min_size);

        let pause = should_pause(&map, self);
        let unpaused = self.paused && !pause;
        self.paused = pause;
        let forced = self.is_forced(map.epoch, pool.last_force_op_resend);
        let moved = self.pgid.pgid != pg || self.has_moved(&place, any_change);
        let split = self.pg_num > 0 && split_or_merged(self.pgid.pgid, self.pg_num, pool.pg_num);
        self.pg_num = pool.pg_num;
        if !(moved || split || forced || unpaused) {
            return Verdict::Same;
        }
        self.osd = place.osds.acting_primary;
        let shard = match self.osd {
            Some(osd) if pool.is_erasure() => shard_of(osd, &place),
            _ => ShardId::NONE,
        };
        self.pgid = SpgId { pgid: pg, shard };
        self.mapping = Some(place);
        Verdict::Send
    }

    fn has_moved(&self, place: &Arc<Mapping>, any_change: bool) -> bool {
        match &self.mapping {
            None => true,
            Some(old) if any_change => old != place,
            Some(old) => old.primary_differs(place),
        }
    }

    /// Whether the pool asks for everything to be sent again, in this epoch.
    fn is_forced(&mut self, epoch: Epoch, force: Epoch) -> bool {
        let forced = force == epoch && self.last_force_resend < force;
        if forced {
            self.last_force_resend = force;
        }
        forced
    }
}

/// Whether the map says to hold such requests (`target_should_be_paused`).
fn should_pause(map: &OsdMap, target: &Target) -> bool {
    let has = |flag| target.flags & flag != 0;
    let heeds_full = !has(flags::FULL_TRY) && !has(flags::FULL_FORCE);
    let pool_full = map.pool(target.pool()).is_some_and(|p| p.flags.contains(PoolFlags::FULL));
    let full = map.flags.contains(OsdMapFlags::FULL) || pool_full;
    let no_writes = map.flags.contains(OsdMapFlags::PAUSEWR) || (full && heeds_full);
    let no_reads = map.flags.contains(OsdMapFlags::PAUSERD);
    (has(flags::READ) && no_reads) || (has(flags::WRITE) && no_writes)
}

fn shard_of(osd: OsdId, place: &Mapping) -> ShardId {
    let at = place.osds.acting.iter().position(|o| *o == osd);
    let shard = at.and_then(|i| i8::try_from(i).ok());
    shard.map_or(ShardId::NONE, ShardId)
}

fn split_or_merged(pg: PgId, old: u32, new: u32) -> bool {
    old != new
        && (pg.is_split(old, new)
            || pg.merge_target(old, new).is_some()
            || pg.is_merge_target(old, new))
}
