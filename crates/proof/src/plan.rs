//! What a seed draws: the cluster, the load, and which faults there are and how many.

use io::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of faults, each on or off for a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Connections break.
    Breaks,
    /// Messages take long, and other connections overtake them.
    Delays,
    /// Two machines cannot reach each other, and know it.
    Partitions,
    /// From one machine nothing arrives at another; connections stay open.
    OneWay,
    /// A machine is alone with some of the others.
    Islands,
    /// The power of an OSD fails.
    Crashes,
    /// The power of all fails at once.
    Blackouts,
    /// An OSD is stopped in order.
    Stops,
    /// An OSD dies while it recovers objects.
    RecoveryCrashes,
    /// A process hangs for a while.
    Pauses,
    /// The mon's power fails.
    MonCrashes,
    /// A client dies with requests under way.
    ClientCrashes,
    /// Disk operations take up to 100 times as long.
    SlowDisks,
    /// Bits flip on one OSD's disk.
    Rot,
    /// Writes of one OSD's disk go elsewhere, or nowhere.
    Misdirects,
    /// Disks are small, and the mon takes them for nearly full or full.
    Full,
    /// Clocks differ.
    Skew,
    /// Weights, affinities, upmaps, pg_temp, out and in, many at once.
    MapStorms,
    /// Flags: noout, norecover, nobackfill, ...
    Flags,
    /// The pool's size and min_size change.
    Resizes,
    /// Scrubs in the middle of it all.
    Scrubs,
    /// All disks but one lag when the power of all fails, and that one's machine is back last.
    Lags,
    /// An OSD takes writes of some clients that nobody else hears of, and is back with them when the
    /// others have gone on.
    Branches,
    /// The pool gets more PGs, and fewer.
    PgNums,
    /// Two OSDs lose the session between them, and all that was on its way.
    Sessions,
    /// One OSD dies with its disk, and begins anew with an empty one.
    Replaces,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 26] = [
        Kind::Breaks,
        Kind::Delays,
        Kind::Partitions,
        Kind::OneWay,
        Kind::Islands,
        Kind::Crashes,
        Kind::Blackouts,
        Kind::Stops,
        Kind::RecoveryCrashes,
        Kind::Pauses,
        Kind::MonCrashes,
        Kind::ClientCrashes,
        Kind::SlowDisks,
        Kind::Rot,
        Kind::Misdirects,
        Kind::Full,
        Kind::Skew,
        Kind::MapStorms,
        Kind::Flags,
        Kind::Resizes,
        Kind::Scrubs,
        Kind::Lags,
        Kind::Branches,
        Kind::PgNums,
        Kind::Sessions,
        Kind::Replaces,
    ];

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| format!("{k:?}").eq_ignore_ascii_case(name))
    }
}

/// What a seed draws.
#[derive(Clone, Debug)]
pub struct Plan {
    /// It.
    pub seed: u64,
    /// OSDs.
    pub osds: usize,
    /// Copies.
    pub size: u8,
    /// Copies without which nothing is written.
    pub min_size: u8,
    /// PGs.
    pub pg_num: u32,
    /// Clients that load the cluster.
    pub clients: usize,
    /// Objects they share.
    pub objects: u64,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Slots of an object at most, about.
    pub slots: u8,
    /// Turns of the first phase.
    pub turns: u32,
    /// Longest turn in ms.
    pub turn_ms: u64,
    /// Requests sent in a turn at most.
    pub burst: usize,
    /// Requests under way at most.
    pub window: usize,
    /// Of 256 writes, how many remove their object, beside those that are drawn anyway.
    pub removals: u8,
    /// Bytes of each disk.
    pub disk_bytes: u64,
    /// Whether the pool is compressed.
    pub compression: Option<&'static str>,
    /// The faults.
    pub kinds: BTreeSet<Kind>,
    /// Of 256 turns, in how many something happens for each kind.
    pub rate: u8,
    /// What the OSDs' configuration says.
    pub options: BTreeMap<String, String>,
}

impl Plan {
    /// What this seed draws.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_0001);
        let osds = rng.usize(3..=7);
        let size = if rng.u8(0..4) == 0 { 2 } else { 3 };
        let min_size = if size == 2 { rng.u8(1..=2) } else { [1, 2, 2, 2][rng.usize(0..4)] };
        let mut kinds = draw_kinds(&mut rng);
        let bad = [Kind::Rot, Kind::Misdirects, Kind::Replaces];
        if min_size < 2 {
            // What was written while the others were away has one copy only: it must not rot.
            kinds.retain(|k| !bad.contains(k));
        }
        if bad.iter().any(|k| kinds.contains(k)) {
            // With fewer copies than min_size promises the bad disk's could be the only one.
            kinds.remove(&Kind::Resizes);
        }
        let slot_bytes = [64, 1000, 4096, 6008, 20_000][rng.usize(0..5)];
        let full = kinds.contains(&Kind::Full);
        // An island must outlast the leases, and somebody must go on meanwhile.
        let long = [Kind::Islands, Kind::Branches, Kind::Lags];
        let lasts = long.iter().any(|k| kinds.contains(k));
        // Two histories of a PG differ more where it takes more of the load.
        let few_pgs = kinds.contains(&Kind::Branches) && rng.bool();
        let turns_ms: &[u64] = if lasts { &[60, 150] } else { &[5, 20, 60, 150] };
        Plan {
            seed,
            osds,
            size,
            min_size,
            pg_num: 1 << rng.u32(0..=if few_pgs { 1 } else { 4 }),
            clients: rng.usize(2..=4),
            objects: if rng.u8(0..4) == 0 { rng.u64(13..=40) } else { rng.u64(2..=12) },
            slot_bytes,
            slots: rng.u8(3..=10),
            turns: rng.u32(40..250),
            turn_ms: turns_ms[rng.usize(0..turns_ms.len())],
            burst: rng.usize(3..16),
            window: rng.usize(12..64),
            removals: [0, 0, 30, 120][rng.usize(0..4)],
            disk_bytes: if full { 28 << 20 } else { 64 << 20 },
            compression: (rng.u8(0..4) == 0).then(|| ["lz4", "zstd"][rng.usize(0..2)]),
            kinds,
            rate: rng.u8(4..30),
            options: sim::small_options(&mut rng),
        }
    }

    /// Whether blocks of a disk come to hold what nobody wrote there.
    pub fn has_bad_blocks(&self) -> bool {
        self.has(Kind::Rot) || self.has(Kind::Misdirects)
    }

    /// Whether there are such faults.
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Some of all; or only a few, which then are not drowned by others.
fn draw_kinds(rng: &mut Rng) -> BTreeSet<Kind> {
    if rng.u8(0..3) == 0 {
        let few = rng.usize(1..=3);
        return (0..few).map(|_| Kind::ALL[rng.usize(0..Kind::ALL.len())]).collect();
    }
    let likely = rng.u8(1..=5);
    Kind::ALL.into_iter().filter(|_| rng.u8(0..10) < likely).collect()
}
