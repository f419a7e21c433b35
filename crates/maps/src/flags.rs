//! Sets of flags as they stand in the maps, and the releases of Ceph.

use denc::{Decode, Encode};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of named bits: constants, set operations, and the names as Ceph prints them.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $int:ty {
        $($(#[$flag_doc:meta])* $flag:ident = $bits:expr, $text:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: $name = $name($bits);)*

            /// No flag.
            pub const NONE: $name = $name(0);

            /// All named flags with their names, in the order in which they are printed.
            pub const NAMES: &'static [($name, &'static str)] = &[$(($name::$flag, $text)),*];

            /// Whether all of `flags` are set.
            pub fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Whether any of `flags` is set.
            pub fn intersects(self, flags: $name) -> bool {
                self.0 & flags.0 != 0
            }

            /// With `flags` set too.
            #[must_use]
            pub fn with(self, flags: $name) -> $name {
                $name(self.0 | flags.0)
            }

            /// With `flags` cleared.
            #[must_use]
            pub fn without(self, flags: $name) -> $name {
                $name(self.0 & !flags.0)
            }

            /// The flag of a name.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::NAMES.iter().find(|(_, n)| *n == name).map(|&(flag, _)| flag)
            }

            /// The names of the flags that are set, in the order in which they are printed.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, n)| *n)
            }
        }

        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.with(other)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                *self = self.with(other);
            }
        }

        impl fmt::Display for $name {
            /// The names, with commas between them.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (i, name) in self.names().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    f.write_str(name)?;
                }
                Ok(())
            }
        }
    };
}

flags! {
    /// Flags of the whole cluster (`CEPH_OSDMAP_*`).
    OsdMapFlags: u32 {
        /// Some OSD is nearly full (clusters before Luminous).
        NEARFULL = 1 << 0, "nearfull";
        /// Some OSD is full: clients hold their writes (clusters before Luminous).
        FULL = 1 << 1, "full";
        /// Clients hold their reads.
        PAUSERD = 1 << 2, "pauserd";
        /// Clients hold their writes.
        PAUSEWR = 1 << 3, "pausewr";
        /// Recovery is paused (not used).
        PAUSEREC = 1 << 4, "pauserec";
        /// OSDs may not be marked up.
        NOUP = 1 << 5, "noup";
        /// OSDs are not marked down.
        NODOWN = 1 << 6, "nodown";
        /// Down OSDs are not marked out by time.
        NOOUT = 1 << 7, "noout";
        /// Booting OSDs are not marked in.
        NOIN = 1 << 8, "noin";
        /// No backfill.
        NOBACKFILL = 1 << 9, "nobackfill";
        /// No backfill of PGs that are not degraded.
        NOREBALANCE = 1 << 14, "norebalance";
        /// No recovery.
        NORECOVER = 1 << 10, "norecover";
        /// No scrub.
        NOSCRUB = 1 << 11, "noscrub";
        /// No deep scrub.
        NODEEP_SCRUB = 1 << 12, "nodeep-scrub";
        /// No work of the cache tier agent.
        NOTIERAGENT = 1 << 13, "notieragent";
        /// Removed snapshots are not trimmed.
        NOSNAPTRIM = 1 << 21, "nosnaptrim";
        /// Objects are ordered by bit-reversed hash. Always set.
        SORTBITWISE = 1 << 15, "sortbitwise";
        /// OSDs must be Jewel or newer (old clusters).
        REQUIRE_JEWEL = 1 << 16, "require_jewel_osds";
        /// OSDs must be Kraken or newer (old clusters).
        REQUIRE_KRAKEN = 1 << 17, "require_kraken_osds";
        /// OSDs must be Luminous or newer (old clusters).
        REQUIRE_LUMINOUS = 1 << 18, "require_luminous_osds";
        /// Deletes are recovered, not done while peering. Always set.
        RECOVERY_DELETES = 1 << 19, "recovery_deletes";
        /// No snapdir objects are left. Always set.
        PURGED_SNAPDIRS = 1 << 20, "purged_snapdirs";
        /// The length of PG logs is bounded at all times. Always set.
        PGLOG_HARDLIMIT = 1 << 22, "pglog_hardlimit";
    }
}

impl OsdMapFlags {
    /// Those of a new 16.2 cluster, 0x588000.
    pub const FRESH: OsdMapFlags = OsdMapFlags(
        Self::SORTBITWISE.0
            | Self::RECOVERY_DELETES.0
            | Self::PURGED_SNAPDIRS.0
            | Self::PGLOG_HARDLIMIT.0,
    );
    /// What `ceph osd set pause` sets.
    pub const PAUSE: OsdMapFlags = OsdMapFlags(Self::PAUSERD.0 | Self::PAUSEWR.0);
}

flags! {
    /// Flags of a pool (`pg_pool_t::FLAG_*`).
    PoolFlags: u64 {
        /// The placement of a PG depends on its pool too. Set in all pools since Bobtail.
        HASHPSPOOL = 1 << 0, "hashpspool";
        /// Full: clients hold their writes.
        FULL = 1 << 1, "full";
        /// An erasure-coded pool whose objects may be overwritten.
        EC_OVERWRITES = 1 << 2, "ec_overwrites";
        /// Clones may be missing (cache tiers).
        INCOMPLETE_CLONES = 1 << 3, "incomplete_clones";
        /// The pool cannot be deleted.
        NODELETE = 1 << 4, "nodelete";
        /// `pg_num` and `pgp_num` cannot be changed.
        NOPGCHANGE = 1 << 5, "nopgchange";
        /// `size` and `min_size` cannot be changed.
        NOSIZECHANGE = 1 << 6, "nosizechange";
        /// Written data is not wanted in caches.
        WRITE_FADVISE_DONTNEED = 1 << 7, "write_fadvise_dontneed";
        /// No scrub.
        NOSCRUB = 1 << 8, "noscrub";
        /// No deep scrub.
        NODEEP_SCRUB = 1 << 9, "nodeep-scrub";
        /// Full by its quota.
        FULL_QUOTA = 1 << 10, "full_quota";
        /// Nearly full.
        NEARFULL = 1 << 11, "nearfull";
        /// Too full to be backfilled.
        BACKFILLFULL = 1 << 12, "backfillfull";
        /// Clients make its snapshots (rbd).
        SELFMANAGED_SNAPS = 1 << 13, "selfmanaged_snaps";
        /// It has snapshots of the whole pool.
        POOL_SNAPS = 1 << 14, "pool_snaps";
        /// Its first PGs are still being created.
        CREATING = 1 << 15, "creating";
        /// All operations fail with EIO.
        EIO = 1 << 16, "eio";
        /// Expected to be large: starts with many PGs.
        BULK = 1 << 17, "bulk";
    }
}

flags! {
    /// The state of an OSD (`CEPH_OSD_*`).
    OsdState: u32 {
        /// The id is in use.
        EXISTS = 1 << 0, "exists";
        /// It is up.
        UP = 1 << 1, "up";
        /// It was marked out by time, and comes in again when it boots.
        AUTOOUT = 1 << 2, "autoout";
        /// It never was in.
        NEW = 1 << 3, "new";
        /// It is full.
        FULL = 1 << 4, "full";
        /// It is nearly full.
        NEARFULL = 1 << 5, "nearfull";
        /// It is too full to be backfilled.
        BACKFILLFULL = 1 << 6, "backfillfull";
        /// Its data is gone; the id waits for a new disk.
        DESTROYED = 1 << 7, "destroyed";
        /// It may not be marked up.
        NOUP = 1 << 8, "noup";
        /// It is not marked down.
        NODOWN = 1 << 9, "nodown";
        /// It is not marked in when it boots.
        NOIN = 1 << 10, "noin";
        /// It is not marked out by time.
        NOOUT = 1 << 11, "noout";
        /// It is asked to stop.
        STOP = 1 << 12, "stop";
    }
}

impl OsdState {
    /// The names of the flags that are set, sorted: how `osd dump` lists them.
    pub fn sorted_names(self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.names().collect();
        names.sort_unstable();
        names
    }
}

/// A release of Ceph (`ceph_release_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Release(pub u8);

impl Release {
    /// None.
    pub const UNKNOWN: Release = Release(0);
    /// 10.2
    pub const JEWEL: Release = Release(10);
    /// 12.2
    pub const LUMINOUS: Release = Release(12);
    /// 13.2
    pub const MIMIC: Release = Release(13);
    /// 14.2
    pub const NAUTILUS: Release = Release(14);
    /// 15.2
    pub const OCTOPUS: Release = Release(15);
    /// 16.2
    pub const PACIFIC: Release = Release(16);

    const NAMES: [&'static str; 17] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
    ];

    /// Its name; `unknown` for releases after Pacific too.
    pub fn name(self) -> &'static str {
        let name = Self::NAMES.get(usize::from(self.0));
        name.copied().unwrap_or("unknown")
    }

    /// The release of a name.
    pub fn from_name(name: &str) -> Option<Release> {
        let number = Self::NAMES.iter().position(|&n| n == name)?;
        u8::try_from(number).ok().filter(|&n| n > 0).map(Release)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_printed_as_ceph_prints_them() {
        assert_eq!(OsdMapFlags::FRESH.0, 0x58_8000);
        assert_eq!(
            OsdMapFlags::FRESH.with(OsdMapFlags::NOOUT).to_string(),
            "noout,sortbitwise,recovery_deletes,purged_snapdirs,pglog_hardlimit"
        );
        let up = OsdState::UP | OsdState::EXISTS | OsdState::NOOUT;
        assert_eq!(up.sorted_names(), ["exists", "noout", "up"]);
        assert_eq!(OsdMapFlags::from_name("nodeep-scrub"), Some(OsdMapFlags::NODEEP_SCRUB));
        assert_eq!(PoolFlags::NONE.to_string(), "");
    }

    #[test]
    fn releases() {
        assert_eq!(Release::from_name("luminous"), Some(Release::LUMINOUS));
        assert_eq!(Release::PACIFIC.to_string(), "pacific");
        assert_eq!(Release(99).name(), "unknown");
        assert_eq!(Release::from_name("unknown"), None);
    }
}
