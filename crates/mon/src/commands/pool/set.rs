//! `osd pool set`.

use super::get::{check_applies, flag, is_of_tier};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, write};
use crate::pools::MAX_SIZE;
use crate::show::pool::CSUM_TYPES;
use admin::units::parse_iec;
use admin::{Answer, CommandError};
use maps::{OsdMap, PgAutoscaleMode, PgPool, PoolFlags, PoolOpt, PoolOptKey, PoolOptKind};
use types::PoolId;

pub(super) const COMMANDS: &[CommandDef] = &[write(
    "osd pool set <pool:Poolname> <var:Choices,size|min_size|pg_num|pgp_num|pgp_num_actual|\
     crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|\
     nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|\
     target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|\
     cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|\
     min_read_recency_for_promote|min_write_recency_for_promote|fast_read|\
     hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|\
     deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|\
     compression_algorithm|compression_required_ratio|compression_max_blob_size|\
     compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|\
     fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|\
     target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|\
     bulk|*> <val:String> [yes_i_really_mean_it:Bool]",
    "osd",
    "changes a setting of a pool",
    set,
)];

/// A setting that is to be changed.
struct Wish<'a> {
    pool: &'a str,
    id: PoolId,
    var: &'a str,
    val: &'a str,
    sure: bool,
}

/// What is to be said of a change.
enum Said {
    Set,
    Unset,
    Nothing,
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, var, val) = (call.args.text("pool"), call.args.text("var"), call.args.text("val"));
    let id = c.pool_id(&pool)?;
    let wish = Wish { pool: &pool, id, var: &var, val: &val, sure: call.sure() };
    let said = match &*var {
        "size" => set_size(c, &wish)?,
        "crush_rule" => set_rule(c, &wish)?,
        "min_size" => c.edit_pool(id, |p, _| set_min_size(p, &wish))?,
        "pg_num" => set_pg_num(c, call, &wish)?,
        "pgp_num" | "pgp_num_actual" => set_pgp_num(c, call, &wish)?,
        var if flag(var).is_some() => c.edit_pool(id, |p, _| set_flag(p, &wish))?,
        _ => c.edit_pool(id, |p, map| set_other(p, map, &wish))?,
    };
    Ok(match said {
        Said::Set => Answer::message(format_args!("set pool {id} {var} to {val}")),
        Said::Unset => Answer::message(format_args!("unset pool {id} {var}")),
        Said::Nothing => Answer::ok(),
    })
}

impl Wish<'_> {
    fn int(&self) -> Result<i64, CommandError> {
        let val = self.val;
        val.parse().map_err(|_| {
            CommandError::invalid(format_args!(
                "error parsing integer value '{val}': Expected option value to be integer, got \
                 '{val}'"
            ))
        })
    }

    fn float(&self) -> Result<f64, CommandError> {
        let val = self.val;
        let number = val.parse().ok().filter(|x: &f64| x.is_finite());
        number.ok_or_else(|| {
            CommandError::invalid(format_args!(
                "error parsing floating point value '{val}': Expected option value to be float, \
                 got '{val}'"
            ))
        })
    }

    fn bool(&self) -> Result<bool, CommandError> {
        match self.val {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(CommandError::invalid("expecting value 'true', 'false', '0', or '1'")),
        }
    }

    /// That the pool does not forbid a change.
    fn check_allowed(
        &self,
        pool: &PgPool,
        flag: PoolFlags,
        what: &str,
    ) -> Result<(), CommandError> {
        if !pool.flags.contains(flag) {
            return Ok(());
        }
        Err(CommandError::not_permitted(format_args!(
            "pool {what} change is disabled; you must unset {flag} flag for the pool first"
        )))
    }
}

fn set_size(c: &mut Cluster, wish: &Wish<'_>) -> Result<Said, CommandError> {
    let size = wish.int();
    if let Some(p) = c.map().pool(wish.id) {
        wish.check_allowed(p, PoolFlags::NOSIZECHANGE, "size")?;
    }
    let size = size?;
    let size =
        u8::try_from(size).ok().filter(|_| (1..=MAX_SIZE).contains(&size)).ok_or_else(|| {
            CommandError::invalid(format_args!("pool size must be between 1 and {MAX_SIZE}"))
        })?;
    if size == 1 {
        c.check_size_one()?;
        if !wish.sure {
            return Err(CommandError::not_permitted(
                "WARNING: setting pool size 1 could lead to data loss without recovery. If you are \
                 *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
            ));
        }
    }
    if let Some(p) = c.map().pool(wish.id) {
        let more = u64::from(size.saturating_sub(p.size)) * u64::from(p.pg_num);
        check_rule_size(c.map(), p.crush_rule, size)?;
        c.check_pg_load(c.map(), more)?;
    }
    let min_size = c.pool_min_size(size);
    c.edit_pool(wish.id, |p, _| {
        p.size = size;
        p.min_size = min_size;
        Ok(Said::Set)
    })
}

/// That a rule is for pools of a size.
fn check_rule_size(map: &OsdMap, rule: u8, size: u8) -> Result<(), CommandError> {
    match map.crush().find_rule(rule, crush::RULE_REPLICATED, size) {
        Some(_) => Ok(()),
        None => Err(CommandError::invalid(format_args!(
            "crush rule {rule} is not for replicated pools of size {size}"
        ))),
    }
}

fn set_rule(c: &mut Cluster, wish: &Wish<'_>) -> Result<Said, CommandError> {
    let name = wish.val;
    let map = c.map();
    let found = map.crush().rule_id(name).and_then(|id| map.crush().rule(id));
    let ruleset = found
        .map(|rule| rule.ruleset)
        .ok_or_else(|| CommandError::not_found(format_args!("crush rule {name} does not exist")))?;
    let size = map.pool(wish.id).map_or(0, |p| p.size);
    if map.crush().find_rule(ruleset, crush::RULE_REPLICATED, size).is_none() {
        let text = format!("crush rule {name} type does not match pool");
        return Err(CommandError::invalid(text));
    }
    c.edit_pool(wish.id, |p, _| {
        p.crush_rule = ruleset;
        Ok(Said::Set)
    })
}

fn set_min_size(p: &mut PgPool, wish: &Wish<'_>) -> Result<Said, CommandError> {
    wish.check_allowed(p, PoolFlags::NOSIZECHANGE, "min size")?;
    let size = p.size;
    let min = u8::try_from(wish.int()?).ok().filter(|m| (1..=size).contains(m));
    p.min_size = min.ok_or_else(|| {
        let text = "pool min_size must be between 1 and size, which is set to";
        CommandError::invalid(format_args!("{text} {size}"))
    })?;
    Ok(Said::Set)
}

fn set_pg_num(c: &mut Cluster, call: &Call, wish: &Wish<'_>) -> Result<Said, CommandError> {
    if let Some(p) = c.map().pool(wish.id) {
        wish.check_allowed(p, PoolFlags::NOPGCHANGE, "pg_num")?;
    }
    let changed = c.want_pg_num(call.now.mono, wish.id, wish.int()?)?;
    Ok(if changed { Said::Set } else { Said::Nothing })
}

fn set_pgp_num(c: &mut Cluster, call: &Call, wish: &Wish<'_>) -> Result<Said, CommandError> {
    if let Some(p) = c.map().pool(wish.id) {
        wish.check_allowed(p, PoolFlags::NOPGCHANGE, "pgp_num")?;
    }
    c.want_pgp_num(call.now.mono, wish.id, wish.int()?, wish.var == "pgp_num_actual")?;
    Ok(Said::Set)
}

fn set_flag(p: &mut PgPool, wish: &Wish<'_>) -> Result<Said, CommandError> {
    let on = wish.bool()?;
    let flag = flag(wish.var).unwrap_or_default();
    if flag == PoolFlags::EC_OVERWRITES {
        let text = "ec overwrites can only be enabled for an erasure coded pool";
        return Err(CommandError::invalid(text));
    }
    if flag == PoolFlags::HASHPSPOOL && !wish.sure {
        return Err(CommandError::not_permitted(
            "are you SURE?  this will remap all placement groups in this pool, this triggers large \
             data movement, pass --yes-i-really-mean-it if you really do.",
        ));
    }
    p.flags = if on { p.flags.with(flag) } else { p.flags.without(flag) };
    Ok(Said::Set)
}

/// One of some words, or `unset`.
fn word(wish: &Wish<'_>, words: &[&str], what: &str) -> Result<Option<PoolOpt>, CommandError> {
    match wish.val {
        "unset" => Ok(None),
        val if words.contains(&val) => Ok(Some(PoolOpt::Str(val.to_owned()))),
        val => Err(CommandError::invalid(format_args!("unrecognized {what} '{val}'"))),
    }
}

fn set_other(p: &mut PgPool, map: &OsdMap, wish: &Wish<'_>) -> Result<Said, CommandError> {
    if is_of_tier(wish.var) {
        check_applies(wish.pool, p, wish.var)?;
    }
    match wish.var {
        "use_gmt_hitset" => {
            p.use_gmt_hitset = wish.bool()?;
            return Ok(Said::Set);
        }
        "fast_read" => {
            if wish.bool()? {
                let text = "fast read is not supported in replication pool";
                return Err(CommandError::invalid(text));
            }
            return Ok(Said::Set);
        }
        "pg_autoscale_mode" => {
            let mode = PgAutoscaleMode::from_name(wish.val);
            p.pg_autoscale_mode = mode.ok_or_else(|| {
                CommandError::invalid(format_args!("specified invalid mode {}", wish.val))
            })?;
            return Ok(Said::Set);
        }
        _ => {}
    }
    let key = PoolOptKey::from_name(wish.var).ok_or_else(|| {
        CommandError::invalid(format_args!("unrecognized variable '{}'", wish.var))
    })?;
    let option = option(p, map, wish, key)?;
    match option {
        Some(value) => p.opts.0.insert(key, value),
        None => p.opts.0.remove(&key),
    };
    Ok(if wish.val == "unset" { Said::Unset } else { Said::Set })
}

/// The new value of an option; `None` to remove it.
fn option(
    p: &PgPool,
    map: &OsdMap,
    wish: &Wish<'_>,
    key: PoolOptKey,
) -> Result<Option<PoolOpt>, CommandError> {
    match wish.var {
        "compression_mode" => {
            word(wish, &["none", "passive", "aggressive", "force"], "compression mode")
        }
        "compression_algorithm" => {
            let words = ["none", "snappy", "zlib", "zstd", "lz4"];
            word(wish, &words, "compression_algorithm")
        }
        "fingerprint_algorithm" => {
            word(wish, &["none", "sha1", "sha256", "sha512"], "fingerprint_algorithm")
        }
        "dedup_chunk_algorithm" => word(wish, &["fastcdc", "fixed"], "fingerprint_algorithm"),
        "csum_type" => {
            let number = word(wish, &CSUM_TYPES, "csum_type")?.and_then(|_| {
                CSUM_TYPES.iter().rposition(|t| *t == wish.val).and_then(|n| i64::try_from(n).ok())
            });
            Ok(number.map(PoolOpt::Int))
        }
        "dedup_tier" => {
            let id = map.pool_by_name(wish.val).ok_or_else(|| {
                CommandError::not_found(format_args!("unrecognized pool '{}'", wish.val))
            })?;
            Ok(Some(PoolOpt::Int(id.0)))
        }
        _ if wish.val == "unset" => Ok(None),
        _ => match key.kind() {
            Some(PoolOptKind::Double) => fraction(wish),
            Some(PoolOptKind::Int) => whole(p, wish),
            _ => Err(CommandError::invalid("this setting cannot be changed")),
        },
    }
}

/// A fraction; zero removes it.
fn fraction(wish: &Wish<'_>) -> Result<Option<PoolOpt>, CommandError> {
    let number = wish.float()?;
    let (var, val) = (wish.var, wish.val);
    let wrong = match var {
        "compression_required_ratio" if !(0.0..=1.0).contains(&number) => {
            format!("compression_required_ratio is out of range (0-1): '{val}'")
        }
        "pg_autoscale_bias" if !(0.0..=1000.0).contains(&number) => {
            "pg_autoscale_bias must be between 0 and 1000".to_owned()
        }
        _ if number < 0.0 => format!("{var} cannot be negative: '{val}'"),
        _ => return Ok(Some(PoolOpt::Double(number)).filter(|_| number != 0.0)),
    };
    Err(CommandError::invalid(wrong))
}

/// A whole number, of bytes perhaps; zero removes it.
fn whole(p: &PgPool, wish: &Wish<'_>) -> Result<Option<PoolOpt>, CommandError> {
    const SIZES: [&str; 5] = [
        "compression_max_blob_size",
        "compression_min_blob_size",
        "csum_max_block",
        "csum_min_block",
        "target_size_bytes",
    ];
    let (var, val) = (wish.var, wish.val);
    let number = match SIZES.contains(&var) {
        true => parse_iec(val).map_err(|e| {
            CommandError::invalid(format_args!("error parsing integer value '{val}': {e}"))
        })?,
        false => wish.int()?,
    };
    let pg_num = i64::from(p.pg_num);
    let wrong = match var {
        "recovery_priority" if !(-10..=10).contains(&number) => {
            "pool recovery_priority must be between -10 and 10".to_owned()
        }
        "recovery_priority" => return Ok(Some(PoolOpt::Int(number)).filter(|_| number != 0)),
        _ if number < 0 => format!("{var} cannot be negative: '{val}'"),
        "pg_num_min" if number > pg_num => {
            format!("specified pg_num_min {number} > pg_num {pg_num}")
        }
        "pg_num_max" if number != 0 && number < pg_num => {
            format!("specified pg_num_max {number} < pg_num {pg_num}")
        }
        _ => return Ok(Some(PoolOpt::Int(number)).filter(|_| number != 0)),
    };
    Err(CommandError::invalid(wrong))
}
