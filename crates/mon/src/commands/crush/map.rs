//! The CRUSH map as a whole: taking it away and bringing it back, tunables.

use super::Call;
use crate::cluster::{Cluster, crush_error};
use crate::commands::{CommandDef, Reply, map, write};
use admin::{Answer, CommandError};
use crush::CrushMap;
use maps::OsdMap;
use types::Errno;

pub(super) const COMMANDS: &[CommandDef] = &[
    map("osd getcrushmap [epoch:Int,0]", "gives the CRUSH map as bytes", getcrushmap),
    write(
        "osd setcrushmap [prior_version:Int]",
        "osd",
        "sets the CRUSH map (-i FILE)",
        setcrushmap,
    ),
    write("osd crush set [prior_version:Int]", "osd", "sets the CRUSH map (-i FILE)", setcrushmap),
    write(
        "osd crush tunables \
         <profile:Choices,legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default>",
        "osd",
        "sets all tunables to those of a release",
        tunables,
    ),
    write(
        "osd crush set-tunable <tunable:Choices,straw_calc_version> <value:Int>",
        "osd",
        "sets one tunable",
        set_tunable,
    ),
    write(
        "osd crush set-all-straw-buckets-to-straw2",
        "osd",
        "lets all buckets choose by straw2",
        straw2,
    ),
];

fn getcrushmap(_: &Cluster, _: &Call, map: &OsdMap) -> Reply {
    Ok(Answer::raw(map.crush_bytes().clone()).with_message(map.crush_version))
}

fn setcrushmap(c: &mut Cluster, call: &Call) -> Reply {
    let version = i64::from(c.map().crush_version);
    let prior = call.args.int("prior_version");
    if let Some(prior) = prior {
        // It is there already: an answer was lost, and the command came again.
        let same = c.map().crush_bytes() == &call.input;
        if prior == version - 1 && same {
            return Ok(Answer::message(version));
        }
        if prior != version {
            let text = format!("prior_version {prior} != crush version {version}");
            return Err(CommandError::not_permitted(text));
        }
    }
    let crush: CrushMap = denc::decode_all(&call.input)
        .map_err(|e| CommandError::invalid(format_args!("Failed to parse crushmap: {e}")))?;
    c.edit(|inc, map| {
        check(map, &crush)?;
        inc.set_crush(&crush);
        Ok(())
    })?;
    Ok(Answer::message(c.map().crush_version))
}

/// That a new map can be walked, and that every pool finds its rule in it.
fn check(map: &OsdMap, crush: &CrushMap) -> Result<(), CommandError> {
    crush.check_walk().map_err(crush_error)?;
    for (id, pool) in &map.pools {
        let name = map.pool_name(*id).unwrap_or_default();
        let number = pool.crush_rule;
        let rule = crush.rule(u32::from(number));
        let rule = rule.ok_or_else(|| {
            let text = format!("pool {id} references crush_rule {number} but it is not present");
            CommandError::new(Errno::ENOENT, text)
        })?;
        if rule.kind != pool.kind.0 {
            let text = format!(
                "pool {id} ('{name}') and crush_rule {number} are for different kinds of pools"
            );
            return Err(CommandError::invalid(text));
        }
        // By what placement goes: the set that a rule belongs to, and the sizes that it is for.
        if crush.find_rule(pool.crush_rule, pool.kind.0, pool.size) != Some(u32::from(number)) {
            let text = format!(
                "pool {id} ('{name}') of size {} would not be placed by crush_rule {number}: its ruleset is {}, and \
                 it is for sizes {} to {}",
                pool.size, rule.ruleset, rule.min_size, rule.max_size
            );
            return Err(CommandError::invalid(text));
        }
    }
    Ok(())
}

fn tunables(c: &mut Cluster, call: &Call) -> Reply {
    let profile = call.args.text("profile");
    c.edit_crush(|crush| {
        let tunables = crush.tunables.with_profile(&profile);
        crush.tunables = tunables.ok_or_else(|| {
            CommandError::invalid(format_args!("unrecognized profile '{profile}'"))
        })?;
        Ok(())
    })?;
    Ok(Answer::message(format_args!("adjusted tunables profile to {profile}")))
}

fn set_tunable(c: &mut Cluster, call: &Call) -> Reply {
    let value = call.args.int("value").unwrap_or_default();
    let version = u8::try_from(value).ok().filter(|v| *v <= 2);
    let version = version.ok_or_else(|| CommandError::invalid("value must be 0, 1, or 2"))?;
    c.edit_crush(|crush| {
        crush.tunables.straw_calc_version = version;
        Ok(())
    })?;
    Ok(Answer::message(format_args!("adjusted tunable straw_calc_version to {version}")))
}

fn straw2(c: &mut Cluster, _: &Call) -> Reply {
    c.edit_crush(|crush| {
        crush.straw_buckets_to_straw2();
        Ok(())
    })?;
    Ok(Answer::ok())
}
