//! New pools, and their end.

use crate::cluster::Cluster;
use admin::CommandError;
use io::Now;
use maps::{OsdMap, PgAutoscaleMode, PgPool, PoolFlags, PoolOpt, PoolOptKey, PoolType};
use types::{Epoch, Errno, PoolId};

/// Most copies a pool may have.
pub(crate) const MAX_SIZE: i64 = 10;

/// A pool to be made; what is not said comes from the options.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewPool {
    pub name: String,
    pub pg_num: Option<i64>,
    pub pgp_num: Option<i64>,
    /// Number of the CRUSH rule.
    pub rule: Option<u32>,
    pub size: Option<i64>,
    pub expected_num_objects: u64,
    pub autoscale: Option<PgAutoscaleMode>,
    pub bulk: bool,
    pub options: Vec<(&'static str, PoolOpt)>,
}

/// That a name can be that of a pool.
///
/// # Errors
/// EINVAL, when it cannot.
pub(crate) fn check_name(name: &str) -> Result<(), CommandError> {
    // Ceph has no limit; but every map has the names of all pools.
    const MAX_NAME_BYTES: usize = 4096;
    if name.is_empty() {
        return Err(CommandError::invalid("a pool needs a name"));
    }
    if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let text =
            format!("pool names have at most {MAX_NAME_BYTES} bytes and no control characters");
        return Err(CommandError::invalid(text));
    }
    Ok(())
}

impl Cluster {
    /// Whether another pool than this one has a name, by the committed map or by the next one. One epoch must not
    /// take a name from a pool and give it to another: Ceph's clients forget it when they do both.
    pub fn has_pool_name(&self, name: &str, but: Option<PoolId>) -> bool {
        let has = |map: &OsdMap| map.pool_by_name(name).is_some_and(|id| Some(id) != but);
        has(&self.state.osdmap) || has(self.map())
    }

    /// Makes a pool. `None` when there is one of that name.
    ///
    /// # Errors
    /// In Ceph's words where it has any.
    pub fn create_pool(&mut self, now: Now, new: &NewPool) -> Result<Option<PoolId>, CommandError> {
        check_name(&new.name)?;
        if self.has_pool_name(&new.name, None) {
            return Ok(None);
        }
        let size = self.pool_size(new)?;
        let min_size = self.pool_min_size(size);
        let (pg_num, pgp_num) = self.pool_pgs(new)?;
        let rule = self.pool_rule(new, size)?;
        self.check_pg_load(self.map(), u64::from(pg_num) * u64::from(size))?;
        let mut pool = PgPool::new(PoolType::REPLICATED, size, min_size, rule, pg_num);
        pool.pgp_num = pgp_num;
        pool.pgp_num_target = pgp_num;
        pool.create_time = now.wall;
        pool.expected_num_objects = new.expected_num_objects;
        let mode = self.settings.str("osd_pool_default_pg_autoscale_mode");
        let mode = PgAutoscaleMode::from_name(mode).unwrap_or(PgAutoscaleMode::OFF);
        pool.pg_autoscale_mode = new.autoscale.unwrap_or(mode);
        if new.bulk {
            pool.flags |= PoolFlags::BULK;
        }
        if self.settings.bool("osd_pool_default_flag_nodelete") {
            pool.flags |= PoolFlags::NODELETE;
        }
        for (name, value) in &new.options {
            if let Some(key) = PoolOptKey::from_name(name) {
                pool.opts.0.insert(key, value.clone());
            }
        }
        let (id, epoch) = self.edit(|inc, map| {
            let id = PoolId(i64::from(map.pool_max).saturating_add(1));
            inc.new_pool_max = Some(id.0);
            inc.new_pools.insert(id, pool);
            inc.new_pool_names.insert(id, new.name.clone());
            Ok((id, inc.epoch))
        })?;
        self.order_pgs(id, epoch, pg_num);
        Ok(Some(id))
    }

    fn pool_size(&self, new: &NewPool) -> Result<u8, CommandError> {
        let default = self.settings.uint("osd_pool_default_size");
        let size = new.size.filter(|s| *s != 0).unwrap_or(i64::try_from(default).unwrap_or(0));
        if !(1..=MAX_SIZE).contains(&size) {
            let text = format!("pool size must be between 1 and {MAX_SIZE}");
            return Err(CommandError::invalid(text));
        }
        if size == 1 && new.size == Some(1) {
            self.check_size_one()?;
        }
        Ok(u8::try_from(size).unwrap_or(1))
    }

    /// That pools may have a single copy.
    ///
    /// # Errors
    /// EPERM, in Ceph's words.
    pub fn check_size_one(&self) -> Result<(), CommandError> {
        if self.settings.bool("mon_allow_pool_size_one") {
            return Ok(());
        }
        Err(CommandError::not_permitted(
            "configuring pool size as 1 is disabled by default; 'ceph config set mon \
             mon_allow_pool_size_one true' allows it",
        ))
    }

    /// How many copies a pool of a size needs to serve.
    pub fn pool_min_size(&self, size: u8) -> u8 {
        let default = self.settings.uint("osd_pool_default_min_size");
        match u8::try_from(default) {
            Ok(min) if min > 0 => min.min(size),
            _ => size - size / 2,
        }
    }

    fn pool_pgs(&self, new: &NewPool) -> Result<(u32, u32), CommandError> {
        let max = self.settings.uint("mon_max_pool_pg_num");
        let check = |what: &str, n: i64| match u32::try_from(n) {
            Ok(n) if n > 0 && u64::from(n) <= max => Ok(n),
            _ => Err(CommandError::new(
                Errno::ERANGE,
                format_args!(
                    "'{what}' must be greater than 0 and less than or equal to {max} (you may \
                     adjust 'mon max pool pg num' for higher values)"
                ),
            )),
        };
        let default = i64::try_from(self.settings.uint("osd_pool_default_pg_num")).unwrap_or(32);
        let pg_num = check("pg_num", new.pg_num.filter(|n| *n != 0).unwrap_or(default))?;
        let default = i64::try_from(self.settings.uint("osd_pool_default_pgp_num")).unwrap_or(0);
        let asked = new.pgp_num.filter(|n| *n != 0);
        let pgp_num = match asked.or(Some(default).filter(|n| *n > 0)) {
            Some(n) => check("pgp_num", n)?,
            None => pg_num,
        };
        if pgp_num > pg_num {
            let text = format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this \
                 case is {pg_num}"
            );
            return Err(CommandError::new(Errno::ERANGE, text));
        }
        Ok((pg_num, pgp_num))
    }

    fn pool_rule(&self, new: &NewPool, size: u8) -> Result<u8, CommandError> {
        let crush = self.map().crush();
        let rule = match (new.rule, self.settings.get("osd_pool_default_crush_rule")) {
            (Some(rule), _) => Some(rule),
            (None, Some(admin::settings::Setting::Int(n))) if *n >= 0 => u32::try_from(*n).ok(),
            (None, _) => crush.first_rule(crush::RULE_REPLICATED),
        };
        let none = || CommandError::not_found("no suitable CRUSH rule exists");
        let number = rule.ok_or_else(none)?;
        let rule = crush.rule(number).ok_or_else(|| {
            CommandError::not_found(format_args!("crush rule {number} does not exist"))
        })?;
        if rule.kind != crush::RULE_REPLICATED || !(rule.min_size..=rule.max_size).contains(&size) {
            let text = format!("crush rule {number} is not for replicated pools of size {size}");
            return Err(CommandError::invalid(text));
        }
        Ok(rule.ruleset)
    }

    /// Whether the OSDs can bear so many more copies of PGs.
    ///
    /// # Errors
    /// ERANGE, in Ceph's words.
    pub fn check_pg_load(&self, map: &OsdMap, more: u64) -> Result<(), CommandError> {
        let now: u64 = map
            .pools
            .values()
            .map(|p| u64::from(p.pg_num.max(p.pg_num_target)) * u64::from(p.size))
            .sum();
        let each = self.settings.uint("mon_max_pg_per_osd");
        let osds = (map.in_osds().count() as u64).max(3);
        let max = each.saturating_mul(osds);
        if now.saturating_add(more) <= max {
            return Ok(());
        }
        let text = format!(
            "would mean {} total pgs, which exceeds max {max} (mon_max_pg_per_osd {each} * \
             num_in_osds {osds})",
            now.saturating_add(more)
        );
        Err(CommandError::new(Errno::ERANGE, text))
    }

    /// Deletes a pool with all that is in it.
    ///
    /// # Errors
    /// EPERM when that is not allowed.
    pub fn delete_pool(&mut self, id: PoolId) -> Result<Epoch, CommandError> {
        if !self.settings.bool("mon_allow_pool_delete") {
            let text = "pool deletion is disabled; you must first set the mon_allow_pool_delete \
                        config option to true before you can destroy a pool";
            return Err(CommandError::not_permitted(text));
        }
        let protected = self.map().pool(id).is_some_and(|p| p.flags.contains(PoolFlags::NODELETE));
        if protected {
            let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
            return Err(CommandError::not_permitted(text));
        }
        let epoch = self.edit(|inc, map| {
            inc.new_pools.remove(&id);
            inc.new_pool_names.remove(&id);
            inc.old_pools.insert(id);
            for pgid in map.pg_temp.keys().filter(|p| p.pool == id) {
                inc.new_pg_temp.insert(*pgid, maps::OsdList::new());
            }
            let mut crush = crush::CrushMap::clone(map.crush());
            if crush.remove_weight_set(id.0) {
                inc.set_crush(&crush);
            }
            Ok(inc.epoch)
        })?;
        self.forget_orders(id);
        Ok(epoch)
    }
}
