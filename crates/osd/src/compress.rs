//! Which writes are compressed: the pool's options and the hints of clients
//! (`BlueStore.cc: _choose_write_options`).
//!
//! | option of the pool | what it does here |
//! |---|---|
//! | `compression_mode` | `none`; `passive`: objects hinted as compressible; `aggressive`: all but those hinted as incompressible; `force`: all |
//! | `compression_algorithm` | `lz4`, `zstd`; `snappy` and nothing: as `lz4`; `zlib`: as `zstd` |
//! | `compression_required_ratio` | compressed bytes by original ones, at most; 0.875 |
//! | `compression_min_blob_size` | shorter pieces are not compressed; 8 KiB |
//! | `compression_max_blob_size` | longer pieces are cut; 64 KiB, at most 128 KiB. Of objects hinted as read at random and not in order, pieces have the smallest size instead |

use maps::{PgPool, PoolOpt};
use store::{Algorithm, Compress};

/// `CEPH_OSD_ALLOC_HINT_FLAG_*`
mod hint {
    pub const SEQUENTIAL_READ: u32 = 4;
    pub const RANDOM_READ: u32 = 8;
    pub const COMPRESSIBLE: u32 = 256;
    pub const INCOMPRESSIBLE: u32 = 512;
}

/// `bluestore_compression_required_ratio`, in thousandths.
const REQUIRED_PER_MILLE: u16 = 875;
/// `bluestore_compression_min_blob_size_ssd`
const MIN_BLOB_BYTES: u32 = 8 << 10;
/// `bluestore_compression_max_blob_size_ssd`
const MAX_BLOB_BYTES: u32 = 64 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    None,
    Passive,
    Aggressive,
    Force,
}

/// What a pool's options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCompression {
    mode: Mode,
    how: Option<Compress>,
}

impl PoolCompression {
    /// Reads the options of a pool.
    pub fn of(pool: &PgPool) -> PoolCompression {
        let word = |name| match pool.opts.get(name) {
            Some(PoolOpt::Str(word)) => word.as_str(),
            _ => "",
        };
        let bytes = |name, default: u32| match pool.opts.int(name) {
            Some(n) if n > 0 => u32::try_from(n).unwrap_or(u32::MAX),
            _ => default,
        };
        let mode = match word("compression_mode") {
            "passive" => Mode::Passive,
            "aggressive" => Mode::Aggressive,
            "force" => Mode::Force,
            _ => return PoolCompression::default(),
        };
        let algorithm = match word("compression_algorithm") {
            "none" => return PoolCompression::default(),
            "zstd" | "zlib" => Algorithm::Zstd,
            _ => Algorithm::Lz4,
        };
        let required_per_mille = match pool.opts.get("compression_required_ratio") {
            Some(PoolOpt::Double(ratio)) => (ratio * 1000.0).clamp(0.0, 1000.0) as u16,
            _ => REQUIRED_PER_MILLE,
        };
        let min_blob_bytes = bytes("compression_min_blob_size", MIN_BLOB_BYTES);
        let max_blob_bytes = bytes("compression_max_blob_size", MAX_BLOB_BYTES);
        let how = Compress {
            algorithm,
            required_per_mille,
            min_blob_bytes,
            max_blob_bytes: max_blob_bytes.max(min_blob_bytes),
        };
        PoolCompression { mode, how: Some(how) }
    }

    /// How an object with these hints is compressed.
    pub fn for_hints(&self, hints: u32) -> Option<Compress> {
        let has = |flag| hints & flag != 0;
        let wanted = match self.mode {
            Mode::None => false,
            Mode::Passive => has(hint::COMPRESSIBLE),
            Mode::Aggressive => !has(hint::INCOMPRESSIBLE),
            Mode::Force => true,
        };
        let mut how = self.how.filter(|_| wanted)?;
        if has(hint::RANDOM_READ) && !has(hint::SEQUENTIAL_READ) {
            how.max_blob_bytes = how.min_blob_bytes;
        }
        Some(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(opts: &[(&str, PoolOpt)]) -> PoolCompression {
        let mut pool = PgPool::default();
        for (name, value) in opts {
            let key = maps::PoolOptKey::from_name(name).expect("an option");
            pool.opts.0.insert(key, value.clone());
        }
        PoolCompression::of(&pool)
    }

    fn word(word: &str) -> PoolOpt {
        PoolOpt::Str(word.into())
    }

    #[test]
    fn modes_and_hints_decide_as_in_ceph() {
        let hints = [0, hint::COMPRESSIBLE, hint::INCOMPRESSIBLE];
        let compressed = |mode| {
            let pool = pool(&[("compression_mode", word(mode))]);
            hints.map(|h| pool.for_hints(h).is_some())
        };
        assert_eq!(compressed("none"), [false, false, false]);
        assert_eq!(compressed("passive"), [false, true, false]);
        assert_eq!(compressed("aggressive"), [true, true, false]);
        assert_eq!(compressed("force"), [true, true, true]);
    }

    #[test]
    fn options_say_how() {
        let force = ("compression_mode", word("force"));
        let plain = pool(std::slice::from_ref(&force)).for_hints(0).expect("forced");
        assert_eq!((plain.algorithm, plain.required_per_mille), (Algorithm::Lz4, 875));
        assert_eq!((plain.min_blob_bytes, plain.max_blob_bytes), (8192, 65_536));
        let all = pool(&[
            force.clone(),
            ("compression_algorithm", word("zstd")),
            ("compression_required_ratio", PoolOpt::Double(0.5)),
            ("compression_min_blob_size", PoolOpt::Int(16_384)),
            ("compression_max_blob_size", PoolOpt::Int(131_072)),
        ]);
        let how = all.for_hints(0).expect("forced");
        assert_eq!((how.algorithm, how.required_per_mille), (Algorithm::Zstd, 500));
        assert_eq!((how.min_blob_bytes, how.max_blob_bytes), (16_384, 131_072));
        let random = all.for_hints(hint::RANDOM_READ).expect("forced");
        assert_eq!(random.max_blob_bytes, 16_384);
        let none = pool(&[force, ("compression_algorithm", word("none"))]);
        assert_eq!(none.for_hints(0), None);
    }
}
