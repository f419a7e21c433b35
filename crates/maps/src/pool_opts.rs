//! Options of a pool that most pools do not have (`pool_opts_t`).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use std::time::Duration;

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOpt {
    /// Text.
    Str(String),
    /// A whole number.
    Int(i64),
    /// A fraction.
    Double(f64),
}

/// Which kind of value an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOptKind {
    /// Text.
    Str,
    /// A whole number.
    Int,
    /// A fraction.
    Double,
}

/// Which option (`pool_opts_t::key_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct PoolOptKey(pub i32);

use PoolOptKind::{Double, Int, Str};

impl PoolOptKey {
    /// All options: number on the wire is the place, then name and kind of value.
    pub const ALL: [(&'static str, PoolOptKind); 24] = [
        ("scrub_min_interval", Double),
        ("scrub_max_interval", Double),
        ("deep_scrub_interval", Double),
        ("recovery_priority", Int),
        ("recovery_op_priority", Int),
        ("scrub_priority", Int),
        ("compression_mode", Str),
        ("compression_algorithm", Str),
        ("compression_required_ratio", Double),
        ("compression_max_blob_size", Int),
        ("compression_min_blob_size", Int),
        ("csum_type", Int),
        ("csum_max_block", Int),
        ("csum_min_block", Int),
        ("fingerprint_algorithm", Str),
        ("pg_num_min", Int),
        ("target_size_bytes", Int),
        ("target_size_ratio", Double),
        ("pg_autoscale_bias", Double),
        ("read_lease_interval", Double),
        ("dedup_tier", Int),
        ("dedup_chunk_algorithm", Str),
        ("dedup_cdc_chunk_size", Int),
        ("pg_num_max", Int),
    ];

    /// The option's name.
    pub fn name(self) -> Option<&'static str> {
        let index = usize::try_from(self.0).ok()?;
        Self::ALL.get(index).map(|(name, _)| *name)
    }

    /// The kind of value it takes.
    pub fn kind(self) -> Option<PoolOptKind> {
        let index = usize::try_from(self.0).ok()?;
        Self::ALL.get(index).map(|(_, kind)| *kind)
    }

    /// The option of a name.
    pub fn from_name(name: &str) -> Option<PoolOptKey> {
        let index = Self::ALL.iter().position(|(n, _)| *n == name)?;
        i32::try_from(index).ok().map(PoolOptKey)
    }
}

/// The options that are set: V(2,1){u32 n, n × {i32 key, i32 kind, value}}.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolOpts(pub BTreeMap<PoolOptKey, PoolOpt>);

impl PoolOpts {
    /// An option that is a whole number, by its name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            PoolOpt::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// An option, by its name.
    pub fn get(&self, name: &str) -> Option<&PoolOpt> {
        self.0.get(&PoolOptKey::from_name(name)?)
    }

    /// An option that is a time in seconds, by its name; zero and less is as if it were not set.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        match self.get(name)? {
            PoolOpt::Double(s) if *s > 0.0 => Some(types::seconds(*s)),
            _ => None,
        }
    }

    /// Those that are set and known, sorted by name, as they are printed.
    pub fn by_name(&self) -> BTreeMap<&'static str, &PoolOpt> {
        let named = |(key, value): (&PoolOptKey, _)| key.name().map(|name| (name, value));
        self.0.iter().filter_map(|(k, v)| named((k, v))).collect()
    }
}

impl Encode for PoolOpts {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 1, |e| {
            e.put_count(self.0.len());
            for (key, value) in &self.0 {
                e.put(key);
                match value {
                    PoolOpt::Str(s) => e.put(&0i32).put(s),
                    PoolOpt::Int(n) => e.put(&1i32).put(n),
                    PoolOpt::Double(x) => e.put(&2i32).put(x),
                };
            }
        });
    }
}

impl Decode for PoolOpts {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, v| {
            let mut opts = BTreeMap::new();
            for _ in 0..d.count()? {
                let key = d.get()?;
                let value = match d.get::<i32>()? {
                    0 => PoolOpt::Str(d.get()?),
                    // The first version wrote 32 bits.
                    1 if v < 2 => PoolOpt::Int(i64::from(d.get::<i32>()?)),
                    1 => PoolOpt::Int(d.get()?),
                    2 => PoolOpt::Double(d.get()?),
                    _ => return Err(d.invalid("a pool option of an unknown kind")),
                };
                opts.insert(key, value);
            }
            Ok(PoolOpts(opts))
        })
    }
}
