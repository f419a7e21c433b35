//! Profiles of erasure codes. The map keeps them, and rules can be made for them; pools with them
//! are refused until OSDs can do erasure coding.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read, write};
use admin::{Answer, CommandError};
use maps::StringMap;
use serde_json::json;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd erasure-code-profile ls", "osd", "lists profiles of erasure codes", ls),
    read("osd erasure-code-profile get <name:String,good=crush>", "osd", "shows a profile", get),
    write(
        "osd erasure-code-profile set <name:String,good=crush> [profile:String]... [force:Bool]",
        "osd",
        "makes a profile: k=K m=M [crush-failure-domain=TYPE ..]",
        set,
    ),
    write("osd erasure-code-profile rm <name:String,good=crush>", "osd", "removes a profile", rm),
];

fn ls(c: &Cluster, call: &Call) -> Reply {
    let names: Vec<&String> = c.map().erasure_code_profiles.keys().collect();
    Ok(Answer::either(
        call.format(),
        || json!(names),
        || names.iter().map(|n| format!("{n}\n")).collect(),
    ))
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let profile = c.map().erasure_code_profiles.get(&*name).ok_or_else(|| {
        CommandError::not_found(format_args!("unknown erasure code profile '{name}'"))
    })?;
    Ok(Answer::either(
        call.format(),
        || json!(profile),
        || profile.iter().map(|(k, v)| format!("{k}={v}\n")).collect(),
    ))
}

/// Values of a profile that nobody has to give.
const DEFAULTS: [(&str, &str); 8] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("jerasure-per-chunk-alignment", "false"),
    ("k", "2"),
    ("m", "2"),
    ("plugin", "jerasure"),
    ("technique", "reed_sol_van"),
];

/// A profile from what was typed.
fn complete(words: &[std::borrow::Cow<'_, str>]) -> Result<StringMap, CommandError> {
    let mut profile = StringMap::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if key.starts_with("ruleset-") {
            let text = format!(
                "property '{key}' is no longer supported; try 'crush-{}'",
                key.trim_start_matches("ruleset-")
            );
            return Err(CommandError::invalid(text));
        }
        profile.insert(key.to_owned(), value.to_owned());
    }
    let plugin = profile.get("plugin").map_or("jerasure", String::as_str);
    let technique = profile.get("technique").map_or("reed_sol_van", String::as_str);
    if (plugin, technique) != ("jerasure", "reed_sol_van") {
        let text = format!(
            "plugin '{plugin}' with technique '{technique}' is not there; there is \
             plugin=jerasure technique=reed_sol_van"
        );
        return Err(CommandError::invalid(text));
    }
    for (key, value) in DEFAULTS {
        profile.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    profile.entry("w".to_owned()).or_insert_with(|| "8".to_owned());
    check(&profile)?;
    Ok(profile)
}

/// That the numbers make sense.
fn check(profile: &StringMap) -> Result<(), CommandError> {
    let number = |key: &str, least: u32| {
        let text = profile.get(key).map_or("", String::as_str);
        let bad = || {
            let text = format!("{key}={text} must be a number >= {least}");
            CommandError::invalid(text)
        };
        text.parse::<u32>().ok().filter(|n| *n >= least).ok_or_else(bad)
    };
    let (k, m) = (number("k", 2)?, number("m", 1)?);
    if k.saturating_add(m) > 32 {
        return Err(CommandError::invalid(format_args!("k={k} + m={m} must be <= 32")));
    }
    let w = number("w", 1)?;
    if ![8, 16, 32].contains(&w) {
        let text = format!("reed_sol_van: w={w} must be one of {{8, 16, 32}}");
        return Err(CommandError::invalid(text));
    }
    Ok(())
}

/// `{k=2,m=1}`
fn shown(profile: &StringMap) -> String {
    let pairs = profile.iter().map(|(k, v)| format!("{k}={v}"));
    format!("{{{}}}", crate::show::join(pairs, ","))
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name").into_owned();
    let profile = complete(&call.args.list("profile"))?;
    c.edit(|inc, map| {
        match map.erasure_code_profiles.get(&name) {
            Some(old) if *old == profile => return Ok(()),
            Some(old) if !call.args.flag("force") => {
                return Err(CommandError::not_permitted(format_args!(
                    "will not override erasure code profile {name} because the existing profile \
                     {} is different from the proposed profile {}",
                    shown(old),
                    shown(&profile)
                )));
            }
            _ => {}
        }
        inc.old_erasure_code_profiles.retain(|n| *n != name);
        inc.new_erasure_code_profiles.insert(name.clone(), profile);
        Ok(())
    })?;
    Ok(Answer::ok())
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name").into_owned();
    c.edit(|inc, map| {
        if !map.erasure_code_profiles.contains_key(&name) {
            let text = format!("erasure-code-profile {name} does not exist");
            return Ok(Answer::message(text));
        }
        let users = map.pools.iter().filter(|(_, p)| p.erasure_code_profile == name);
        let users: Vec<&str> = users.filter_map(|(id, _)| map.pool_name(*id)).collect();
        if !users.is_empty() {
            let text =
                format!("{} pool(s) are using the erasure code profile '{name}'", users.join(","));
            return Err(CommandError::busy(text));
        }
        inc.new_erasure_code_profiles.remove(&name);
        inc.old_erasure_code_profiles.push(name.clone());
        Ok(Answer::ok())
    })
}
